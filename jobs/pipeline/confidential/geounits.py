"""The leaf geounits of a run, from the public list or else from the data."""

from __future__ import annotations

import numpy as np

from das.arrays import Geocodes
from geography.lattice import Lattice
from jobs.pipeline.confidential.inputs import check_inputs
from jobs.pipeline.confidential.read.formats import read_geocodes, reader_of
from jobs.pipeline.config.product import Resolved, account_of, reservation_of
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.input.spine import public_lattice, run_leaves
from jobs.pipeline.storage.account import noted_failures
from jobs.pipeline.storage.geography import Census
from jobs.pipeline.tasks.executor import Tasks, open_tasks


def planned_geounits(resolved: Resolved, tasks: Tasks) -> tuple[Lattice, Census | None]:
    """Return the geounits of the spine, and of the census where its geounits differ."""
    census = resolved.plan.census_spine
    return run_leaves(resolved.config.geography, census, _leaf_geocodes(resolved, tasks))


def _leaf_geocodes(resolved: Resolved, tasks: Tasks) -> Geocodes:
    """Return the leaf geocodes of the public list, or else of the data of all products."""
    public, spine = resolved.config.geography.geounits, resolved.plan.census_spine
    if public is not None:
        return list_geounits(public, spine)
    readers = [
        reader_of(product.config.input, product.plan.schema, spine.digits[-1])
        for product in resolved.products.values()
    ]
    return np.unique(np.concatenate([read_geocodes(reader, tasks) for reader in readers]))


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
