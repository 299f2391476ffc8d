"""How much work a task gets, one table for all steps; and the ranges of geounits it is cut into.

docs/sizes.md says why each size is what it is, and what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from jobs.pipeline.plan import Level
from jobs.pipeline.storage.dataset import LAST, Dataset
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.layout import ReleaseLayout

Piece = tuple[str, str]
"""First and last geocode of a range of geounits."""


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The work of one task of a step, in a unit that the field of `Sizing` names.

    Attributes:
      least: Less is not worth a task of its own, nor a part file.
      most: More is cut: memory of a task, time until a retry has caught up, steps of progress.
    """

    least: int
    most: int


@dataclass(frozen=True)
class Sizing:
    """How every step is cut into tasks; changes no result, only how long it takes.

    A step with work enough has `batches_per_slot` tasks for each slot, each within its bounds.

    Attributes:
      batches_per_slot: Wanted tasks for each that runs at the same time.
      merge_leaves: Leaf geounits whose sorted runs are merged.
      truth_children: Geounits whose histograms are added up to those of the geolevel above.
      check_geounits: Geounits whose true histograms are compared with the invariants.
      invariants_geounits: Geounits whose exact answers are written.
      implied_geounits: Geounits whose limits are added up to those of the geolevel above.
      measure_numbers: Noisy answers drawn.
      estimate_numbers: Answers and coordinates read.
      solve_numbers: Noisy answers read.
      solve_variables: Cells of nodes solved.
      write_geounits: Geounits whose persons, or intervals, are written.
      evaluate_geounits: Geounits whose histograms are compared.
    """

    batches_per_slot: int
    merge_leaves: TaskSize = TaskSize(1, 50_000)
    truth_children: TaskSize = TaskSize(2_000, 50_000)
    check_geounits: TaskSize = TaskSize(1, 20_000)
    invariants_geounits: TaskSize = TaskSize(10_000, 100_000)
    implied_geounits: TaskSize = TaskSize(1, 50_000)
    measure_numbers: TaskSize = TaskSize(1_000_000, 40_000_000)
    estimate_numbers: TaskSize = TaskSize(1_000_000, 20_000_000)
    solve_numbers: TaskSize = TaskSize(1, 20_000_000)
    solve_variables: TaskSize = TaskSize(50_000, 3_000_000)
    write_geounits: TaskSize = TaskSize(1_000, 50_000)
    evaluate_geounits: TaskSize = TaskSize(2_048, 65_536)


@dataclass(frozen=True)
class Batch:
    """A contiguous range of geounits of one geolevel; the unit of work of a task.

    Attributes:
      level: Position of the geolevel.
      low: First geocode.
      high: Last geocode.
      cost: Predicted cost, in geounits.
      first: Number of the first geounit in its geolevel, by geocode from 0; None if it was not
        counted. Numbers select noise streams, so measuring refuses a range without it.
    """

    level: int
    low: str
    high: str
    cost: int
    first: int | None = None


def geounit_batches(
    layout: ReleaseLayout, level: Level, n_batches: int, largest: int, smallest: int = 1
) -> list[Batch]:
    """Split a geolevel into contiguous ranges that never divide a family, costliest first.

    Args:
      layout: The release, with its geography written.
      level: The geolevel.
      n_batches: Wanted number of ranges.
      largest: Most geounits in a range, unless one family is larger.
      smallest: Geounits that are worth a range of their own; fewer ranges are made for it.
    """
    table = read_geography(layout, level.name, columns=("geocode", "parent"))
    # In Arrow's memory: as Python strings, the blocks of a nation would take a gigabyte here.
    codes, parents = table.column("geocode"), table.column("parent").combine_chunks()
    is_first = np.asarray(pc.not_equal(parents[1:], parents[:-1]), np.bool_)
    starts = np.flatnonzero(np.concatenate(([True], is_first)))
    ends = np.append(starts[1:], len(codes))
    size = max(1, min(largest, max(smallest, -(-len(codes) // n_batches))))
    batches = []
    first = 0
    for index, end in enumerate(ends):
        last = index == len(ends) - 1
        if last or ends[index + 1] - starts[first] > size:
            start = int(starts[first])
            low, high = codes[start].as_py(), codes[int(end) - 1].as_py()
            batches.append(Batch(level.index, low, high, int(end) - start, start))
            first = index + 1
    return sorted(batches, key=lambda batch: (-batch.cost, batch.low))


def even_pieces(release: ReleaseLayout, geolevel: str, most: int) -> Iterator[Piece]:
    """Cut all geounits of a geolevel into ranges of `most`, in order."""
    dataset = Dataset.open(release.geography(geolevel))
    for part in dataset.parts:
        codes = dataset.read(part.low, part.high, ("geocode",)).column("geocode")
        for start in range(0, len(codes), most):
            last = min(start + most, len(codes)) - 1
            yield codes[start].as_py(), codes[last].as_py()


def all_geounits(level: int) -> Batch:
    """Return the range of a whole geolevel."""
    return Batch(level, "", LAST, 0)
