"""Errors of a release, geounit by geounit, for the internal page of `das explore`. Confidential."""

from __future__ import annotations

from collections.abc import Callable

from das.arrays import IntArray
from das.confidential import redact_errors
from das.errors import OutputError
from das.queries.query import Query
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.config.product import Product
from jobs.pipeline.storage.dataset import is_published
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts


def errors_of(product: Product) -> Callable[[str, Query], IntArray]:
    """Return a function that computes released minus true answers.

    Args:
      product: Product of the release; its true histograms must exist.

    Returns:
      Function of a geolevel and a query with m answers. It returns int64[G, m], geounits sorted by
      geocode.

    Raises:
      OutputError: The true histograms do not exist.
    """
    truth = product.confidential.histograms(product.plan.leaf.name)
    if not is_published(truth):
        raise OutputError(
            str(truth),
            "does not exist: errors are computed from the true histograms",
            remedy="use the run folder in which the release was made",
        )
    plan = product.plan

    @redact_errors
    def errors(geolevel: str, query: Query) -> IntArray:
        codes = read_public_geocodes(product.release, geolevel)
        true = true_counts(plan, product.confidential, geolevel, codes)
        released = read_counts(product.release, geolevel, codes, plan.schema.size)
        return query.answer(released) - query.answer(true.reveal())

    return errors
