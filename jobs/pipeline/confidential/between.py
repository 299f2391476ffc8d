"""Check the cross-product constraints against the confidential data.

The check runs before budget is reserved, so a contradiction costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from das.confidential import redact_errors
from das.errors import InputError
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.config.product import Product
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks


def check_ties(product: Product, products: Mapping[str, Product], tasks: Tasks) -> None:
    """Check that the records of a product meet its constraints with earlier products.

    Errors name the geounit and the constraint, and quote no number.

    Args:
      product: A product, with or without cross-product constraints.
      products: All products of the run, by name.
      tasks: Runs the tasks.

    Raises:
      InputError: The data of a geounit break a constraint.
    """
    ties = product.plan.limits.ties
    if ties is None:
        return
    level, size = product.plan.level(ties.geolevel), tasks.sizing.check_geounits
    batches = geounit_batches(product.release, level, tasks.batches, size.most, size.least)

    @redact_errors
    def run(batch: Batch) -> None:
        codes = read_public_geocodes(product.release, level.name, batch.low, batch.high)
        counts, *earlier = (
            true_counts(p.plan, p.confidential, level.name, codes).reveal()
            for p in (product, *(products[name] for name in ties.sizes))
        )
        for tie in ties.entries:
            broken = tie.broken(counts, dict(zip(ties.sizes, earlier, strict=True)))
            if broken.any():
                raise InputError(
                    f"{level.name} {codes[int(np.argmax(broken))]}",
                    "the confidential data of two products contradict each other",
                    got=f"between {tie.name}",
                    remedy="correct the data or the constraint",
                )

    tasks.run(f"check {product.name}", batches, run)
