"""The leaf geounits of a run, from the public list or else from the data."""

from __future__ import annotations

import numpy as np

from geography.lattice import Lattice
from jobs.pipeline.confidential.inputs import check_inputs
from jobs.pipeline.confidential.read.formats import read_geocodes, reader_of
from jobs.pipeline.config.product import Resolved, account_of, reservation_of
from jobs.pipeline.input.spine import public_lattice, run_leaves
from jobs.pipeline.storage.account import noted_failures
from jobs.pipeline.storage.geography import Census
from jobs.pipeline.tasks.executor import Tasks, open_tasks


def planned_geounits(resolved: Resolved, tasks: Tasks) -> tuple[Lattice, Census | None]:
    """Return the geounits of the spine, and of the census where its geounits differ."""
    geography, census = resolved.config.geography, resolved.plan.census_spine
    if geography.geounits is not None:
        return public_lattice(geography, census)
    readers = [
        reader_of(product.config.input, product.plan.schema, census.digits[-1])
        for product in resolved.products.values()
    ]
    leaves = np.unique(np.concatenate([read_geocodes(reader, tasks) for reader in readers]))
    return run_leaves(geography, census, leaves)


def lattice_of(resolved: Resolved) -> Lattice:
    """Return the geounits of a run, started or not; without a public list this starts Spark.

    Raises:
      DasError: A geocode does not fit the spine; or, without a list, an input file is invalid.
    """
    geography = resolved.config.geography
    if geography.geounits is not None:
        return public_lattice(geography, resolved.plan.census_spine)[0]
    check_inputs(resolved)
    noted = noted_failures(account_of(resolved.config), reservation_of(resolved, resolved.last, ""))
    with open_tasks(resolved.config) as tasks, noted:
        return planned_geounits(resolved, tasks)[0]
