"""The leaf geounits of a run: those of the public list, else those in the data."""

from __future__ import annotations

import numpy as np

from das.arrays import Geocodes
from geography.lattice import Lattice
from jobs.confidential.inputs import check_inputs
from jobs.confidential.read.formats import read_geocodes
from jobs.config.product import Resolved
from jobs.input.geounits import list_geounits
from jobs.tasks.executor import Tasks, open_tasks


def leaf_geocodes(resolved: Resolved, tasks: Tasks) -> Geocodes:
    """Geocodes of the public list; without one, those in the data of all products."""
    public, spine = resolved.config.geography.geounits, resolved.plan.spine
    if public is not None:
        return list_geounits(public, spine)
    data = [product.config.input for product in resolved.products.values()]
    return np.unique(
        np.concatenate([read_geocodes(source, None, spine=spine, tasks=tasks) for source in data])
    )


def lattice_of(resolved: Resolved) -> Lattice:
    """All geounits of a run that need not have begun; starts Spark if there is no public list.

    Raises:
      DasError: A geocode does not fit, or, without a list, an input file.
    """
    spine, public = resolved.plan.spine, resolved.config.geography.geounits
    if public is not None:
        return Lattice.from_leaves(spine, list_geounits(public, spine))
    check_inputs(resolved)
    with open_tasks(resolved.config) as tasks:
        return Lattice.from_leaves(spine, leaf_geocodes(resolved, tasks))
