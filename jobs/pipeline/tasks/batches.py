"""Amounts of work per task for all steps, and cuts of geolevels into ranges of geounits.

docs/sizes.md has the reason and the measurement of each size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from jobs.pipeline.plan import Level
from jobs.pipeline.storage.dataset import LAST, Dataset
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.layout import ReleaseLayout

Piece = tuple[str, str]
"""First and last geocode of a range of geounits."""


@dataclass(frozen=True, slots=True)
class TaskSize:
    """Bounds of the work of one task of a step, in the unit of the field of `Sizing`.

    Attributes:
      least: Smallest work of a task, since less is not worth a separate task or part file.
      most: Largest work of a task. It limits memory, the time of a retry, and steps of progress.
    """

    least: int
    most: int


@dataclass(frozen=True)
class Sizing:
    """Sizes by which steps are cut into tasks; they change times but no result.

    A step with enough work has `batches_per_slot` tasks per slot, within the bounds of its size.

    Attributes:
      batches_per_slot: Number of tasks per slot to aim for.
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
      n_batches: Number of ranges to aim for.
      largest: Most geounits in a range, unless one family is larger.
      smallest: Fewest geounits of a range, which takes precedence over `n_batches`.
    """
    table = read_geography(layout, level.name, columns=("geocode", "parent"))
    codes = table.column("geocode")
    size = max(1, min(largest, max(smallest, -(-len(codes) // n_batches))))
    batches = [
        Batch(level.index, codes[start].as_py(), codes[stop - 1].as_py(), stop - start, start)
        for start, stop in cut_groups(first_rows(table.column("parent")), len(codes), size)
    ]
    return sorted(batches, key=lambda batch: (-batch.cost, batch.low))


def first_rows(column: pa.ChunkedArray) -> IntArray:
    """Return the first row of every run of equal texts.

    Comparison stays in Arrow: as Python strings, the blocks of a nation would take a gigabyte.
    """
    texts = column.combine_chunks()
    is_first = np.asarray(pc.not_equal(texts[1:], texts[:-1]), np.bool_)
    return np.flatnonzero(np.concatenate(([True], is_first)))


def cut_groups(starts: IntArray, rows: int, most: int) -> list[tuple[int, int]]:
    """Cut rows into ranges of at most `most` rows, or one larger group, that divide no group.

    Args:
      starts: int64[U], the first row of every group, ascending.
      rows: Number of rows.
      most: Most rows of a range.

    Returns:
      (first row, row after the last) of each range.

    >>> cut_groups(np.array([0, 2, 4, 9]), 10, 4)
    [(0, 4), (4, 9), (9, 10)]
    """
    bounds, ranges, first = [*starts.tolist(), rows], list[tuple[int, int]](), 0
    for index in range(1, len(bounds)):
        if index == len(bounds) - 1 or bounds[index + 1] - bounds[first] > most:
            ranges.append((bounds[first], bounds[index]))
            first = index
    return ranges


def even_pieces(release: ReleaseLayout, geolevel: str, most: int) -> Iterator[Piece]:
    """Yield ranges of `most` geounits that cover a geolevel, in order."""
    dataset = Dataset.open(release.geography(geolevel))
    for part in dataset.parts:
        codes = dataset.read(part.low, part.high, ("geocode",)).column("geocode")
        for start in range(0, len(codes), most):
            last = min(start + most, len(codes)) - 1
            yield codes[start].as_py(), codes[last].as_py()


def all_geounits(level: int) -> Batch:
    """Return the range of a whole geolevel."""
    return Batch(level, "", LAST, 0)
