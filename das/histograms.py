"""Histograms: sparse counts of many geounits over one schema's cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray, run_starts
from das.errors import SchemaError

# No sum of counts may reach this: 100,000 times the world population. Sums are then exact in int64
# and in floats, and node problems can be solved: states of 2e17 persons were, one of 2e18 was not.
TOTAL_LIMIT = 2**50
_MOST_CELLS = 1 << 27  # of one marginal of records: a gigabyte of counts


def frozen_array(values: npt.ArrayLike) -> IntArray:
    """Return an int64, contiguous, read-only copy-on-need of integer `values`.

    Raises:
      SchemaError: The values are not integers; they are never rounded silently.
    """
    given = np.asarray(values)
    if given.size and not np.issubdtype(given.dtype, np.integer):
        raise SchemaError("array of counts", "must hold integers", got=given.dtype)
    array = np.ascontiguousarray(given, np.int64)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def mixed_radix(codes: IntArray, attributes: Sequence[int], sizes: Sequence[int]) -> IntArray:
    """Number the combinations of levels of some attributes, int64[n]; the last runs fastest.

    Args:
      codes: int64[n, d], the level of each attribute, numbered from 0.
      attributes: Columns of `codes` to combine, in this order.
      sizes: d numbers of levels.
    """
    out = np.zeros(len(codes), np.int64)
    for i in attributes:
        out = out * sizes[i] + codes[:, i]
    return out


def count_by_levels(codes: IntArray, sizes: Sequence[int], attributes: Sequence[int]) -> IntArray:
    """Count records by the levels of some attributes, int64[product of their sizes] in C order.

    Args:
      codes: int64[n, d], the level of each attribute.
      sizes: d numbers of levels.
      attributes: Columns of `codes` to count by, numbered from 0, in this order.

    Raises:
      SchemaError: The marginal has too many cells.
    """
    cells = math.prod(sizes[i] for i in attributes)
    if cells > _MOST_CELLS:
        raise SchemaError(
            f"marginal of {len(attributes)} attributes",
            "is too large",
            got=f"{cells:.3g} cells",
            want=f"at most {_MOST_CELLS}",
        )
    spots = mixed_radix(codes, attributes, sizes)
    return np.bincount(spots, minlength=cells).astype(np.int64)


def freeze_arrays(owner: object, *names: str) -> None:
    """Replace integer arrays of a frozen dataclass by read-only ones, as `frozen_array` does."""
    for name in names:
        object.__setattr__(owner, name, frozen_array(getattr(owner, name)))


@dataclass(frozen=True, eq=False, slots=True)
class Histograms:
    """Counts of G geounits, compressed by rows; a geounit's histogram is x_g in N^n.

    The counts may be confidential, so the repr shows only the shape.

    Attributes:
      n_cells: n, the number of cells of the schema.
      offsets: int64[G + 1]; geounit g has entries offsets[g]:offsets[g + 1].
      cells: int64[nnz]; cell numbers, strictly increasing within a geounit.
      counts: int64[nnz]; persons, strictly positive.

    Raises:
      SchemaError: The arrays break one of these rules.
    """

    n_cells: int
    offsets: IntArray
    cells: IntArray
    counts: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self, "offsets", "cells", "counts")
        if len(self.offsets) == 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.cells):
            raise SchemaError("histograms", "offsets do not span the entries")
        if (np.diff(self.offsets) < 0).any():
            raise SchemaError("histograms", "offsets fall")
        if len(self.cells) != len(self.counts):
            raise SchemaError("histograms", "cells and counts differ in length")
        if len(self.cells):
            if self.cells.min() < 0 or self.cells.max() >= self.n_cells:
                raise SchemaError("histograms", f"a cell is outside 0..{self.n_cells - 1}")
            if self.counts.min() <= 0:
                raise SchemaError("histograms", "a stored count is not positive")
            falls = np.flatnonzero(np.diff(self.cells) <= 0) + 1
            if not np.isin(falls, self.offsets).all():
                raise SchemaError("histograms", "cells do not increase within a geounit")

    def __repr__(self) -> str:
        return f"Histograms({self.n_geounits} geounits, {self.n_cells} cells)"

    @property
    def n_geounits(self) -> int:
        """Return G, the number of geounits."""
        return len(self.offsets) - 1

    def owners(self) -> IntArray:
        """Return int64[nnz]: the geounit of every entry."""
        return np.repeat(np.arange(self.n_geounits), np.diff(self.offsets))

    def totals(self) -> IntArray:
        """Return int64[G]: the persons in each geounit."""
        sums = np.concatenate(([0], np.cumsum(self.counts)))
        return np.asarray(sums[self.offsets[1:]] - sums[self.offsets[:-1]], np.int64)

    def dense(self) -> IntArray:
        """Return int64[G, n]: all cells; only for small batches or schemas."""
        out = np.zeros((self.n_geounits, self.n_cells), np.int64)
        out[self.owners(), self.cells] = self.counts
        return out

    def slice(self, start: int, stop: int) -> Histograms:
        """Return the histograms of geounits start..stop-1, without checks."""
        low, high = self.offsets[start], self.offsets[stop]
        part = object.__new__(Histograms)
        object.__setattr__(part, "n_cells", self.n_cells)
        object.__setattr__(part, "offsets", frozen_array(self.offsets[start : stop + 1] - low))
        object.__setattr__(part, "cells", self.cells[low:high])
        object.__setattr__(part, "counts", self.counts[low:high])
        return part

    @classmethod
    def from_entries(
        cls, n_cells: int, n_geounits: int, owners: IntArray, cells: IntArray, counts: IntArray
    ) -> Histograms:
        """Build histograms from entries (geounit, cell, count) in any order; duplicates add up.

        Args:
          n_cells: Number of cells of the schema.
          n_geounits: Number of geounits.
          owners: int64[k], the geounit of each entry.
          cells: int64[k], the cell of each entry.
          counts: int64[k], the count of each entry.
        """
        order = np.lexsort((cells, owners))
        owners, cells, counts = owners[order], cells[order], counts[order]
        if len(owners):
            first = run_starts(owners, cells)
            owners, cells, counts = owners[first], cells[first], np.add.reduceat(counts, first)
            keep = counts != 0
            owners, cells, counts = owners[keep], cells[keep], counts[keep]
        offsets = np.searchsorted(owners, np.arange(n_geounits + 1))
        return cls(n_cells, offsets.astype(np.int64), cells, counts)


def first_difference(first: Histograms, second: Histograms) -> int | None:
    """Return the first geounit in which two histograms differ, or None."""
    if all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("offsets", "cells", "counts")
    ):
        return None
    differ = (
        i
        for i in range(first.n_geounits)
        for a, b in [(first.slice(i, i + 1), second.slice(i, i + 1))]
        if not (np.array_equal(a.cells, b.cells) and np.array_equal(a.counts, b.counts))
    )
    return next(differ)
