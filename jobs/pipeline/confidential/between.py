"""Check that the confidential data of the products of a run agree as its definition says.

Runs before anything is measured: a contradiction costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from das.confidential import redact_errors
from das.errors import InputError
from das.histograms import Histograms
from invariants.between import Ties
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.config.product import Product
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.layout import ConfidentialLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks


def check_ties(product: Product, products: Mapping[str, Product], tasks: Tasks) -> None:
    """Check that the records of a product agree with those of the products before it.

    Errors name the geounit and the constraint, and quote no number.

    Args:
      product: A product with ties.
      products: All of the run.
      tasks: What runs the step.

    Raises:
      InputError: The data of a geounit break a constraint.
    """
    ties = product.plan.limits.ties
    if ties is None:
        return
    sources = {name: products[name].confidential for name in ties.sizes}
    level, size = product.plan.level(ties.geolevel), tasks.sizing.check_geounits
    batches = geounit_batches(product.release, level, tasks.batches, size.most, size.least)

    @redact_errors
    def run(batch: Batch) -> None:
        codes = read_public_geocodes(product.release, ties.geolevel, batch.low, batch.high)

        def truth(confidential: ConfidentialLayout, n_cells: int) -> Histograms:
            dataset = Dataset.open(confidential.histograms(ties.geolevel))
            return read_truth(dataset, codes, n_cells).reveal()

        _refuse_broken(
            ties,
            [f"{ties.geolevel} {code}" for code in codes],
            truth(product.confidential, product.plan.schema.size),
            {name: truth(sources[name], n_cells) for name, n_cells in ties.sizes.items()},
        )

    tasks.run(f"check {product.name}", batches, run)


def _refuse_broken(
    ties: Ties, where: list[str], own: Histograms, others: Mapping[str, Histograms]
) -> None:
    for tie in ties.entries:
        broken = tie.broken(own, others)
        if broken.any():
            raise InputError(
                where[int(np.argmax(broken))],
                "the confidential data of two products contradict each other",
                got=f"between {tie.name}",
                remedy="correct the data or the constraint",
            )
