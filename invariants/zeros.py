"""Structural zeros: impossible cells, described by levels that do not go together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray, joined_ranges, run_starts, sums_at
from das.errors import SchemaError
from das.histograms import Histograms
from das.queries.query import Query
from das.schema import Schema
from invariants.conflict import Statement
from invariants.constraint import Constraint

_BOXES = 63  # bits of an int64 without the sign


@dataclass(frozen=True, eq=False)
class StructuralZeros(Constraint):
    """Union of boxes of impossible cells; a box is a product of sets of levels, one per attribute.

    It is stored by attribute, so memory does not grow with the cells of the schema.

    Attributes:
      shape: (n_1, ..., n_d), of the schema.
      boxes: Per box one bool[n_i] per attribute: the levels that are in the box.
    """

    kind: ClassVar[str] = "structural zeros"
    is_compatible_with_releases: ClassVar[bool] = True

    shape: tuple[int, ...]
    boxes: tuple[tuple[BoolArray, ...], ...]
    geolevels: tuple[str, ...] = ()

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """Return bool[G]: geounits with records in structural zeros."""
        broken = np.zeros(counts.n_geounits, np.bool_)
        broken[counts.owners()[self.holds(counts.cells)]] = True
        return broken

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Yield the statement that structural zeros are empty."""
        yield Statement(self.title, self.holds(cells).astype(np.int64), 0, 0)

    def described(self, schema: Schema) -> str:
        """Return the number of structural zeros and of cells."""
        return f"{len(self)} of {schema.size} cells"

    @classmethod
    def joined(cls, stated: Sequence[Constraint]) -> list[Constraint]:
        """Merge all boxes into one union."""
        zeros = [union for union in stated if isinstance(union, StructuralZeros)]
        boxes = tuple(box for union in zeros for box in union.boxes)
        return [cls(zeros[0].shape, boxes)] if zeros else []

    def check(self, others: Sequence[Constraint], invariants: Sequence[Constraint]) -> None:
        """Check that some cell is possible.

        Raises:
          SchemaError: Every cell is a structural zero.
        """
        if len(self) == math.prod(self.shape):
            raise SchemaError("zero", "makes every cell impossible")

    @cached_property
    def _words(self) -> tuple[IntArray, ...]:
        """Return int64[n_i, w] per attribute: bit b of word v, whether box 63 v + b has a level."""
        n_words = -(-len(self.boxes) // _BOXES)
        words = []
        for axis, size in enumerate(self.shape):
            table = np.zeros((size, n_words), np.int64)
            for number, box in enumerate(self.boxes):
                bit = np.int64(1) << np.int64(number % _BOXES)
                table[box[axis], number // _BOXES] |= bit
            words.append(table)
        return tuple(words)

    def holds(self, cells: IntArray) -> BoolArray:
        """Return bool[k]: whether each of the given cells is a structural zero.

        >>> two = StructuralZeros((2, 2), ((np.array([True, False]), np.array([False, True])),))
        >>> two.holds(np.arange(4)).tolist(), len(two)
        ([False, True, False, False], 1)
        """
        is_zero = np.zeros(len(cells), np.bool_)
        codes = np.unravel_index(cells, self.shape)
        for word in range(self._words[0].shape[1]):
            bits = np.full(len(cells), -1, np.int64)
            for table, code in zip(self._words, codes, strict=True):
                if (table[:, word] != table[0, word]).any():
                    bits &= table[code, word]
                else:
                    bits &= table[0, word]
            is_zero |= bits != 0
        return is_zero

    def __len__(self) -> int:
        """Return the number of structural zeros, each cell counted once."""
        patterns, counts = self._whole, np.ones(1, np.int64)
        for table in self._words:
            rows, sizes = np.unique(table, axis=0, return_counts=True)
            both = (patterns[:, None] & rows[None]).reshape(-1, rows.shape[1])
            products = (counts[:, None] * sizes[None]).reshape(-1)
            patterns, of_both = np.unique(both, axis=0, return_inverse=True)
            counts = sums_at(of_both.reshape(-1), products, len(patterns))
        return int(counts[patterns.any(axis=1)].sum())

    @property
    def _whole(self) -> IntArray:
        """Return int64[1, w]: a pattern in every box, to start intersections from."""
        return np.full((1, self._words[0].shape[1]), -1, np.int64)

    def patterns(self, axis: int) -> IntArray:
        """Return int64[n_i, w]: equal rows for levels of attribute `axis` that boxes treat alike.

        Attributes are numbered from 0.
        """
        return self._words[axis]

    def first_outside(self, query: Query, positions: IntArray) -> IntArray:
        """Return int64[p]: the first possible cell of each given answer; -1 if it has none.

        Boxes are intersected attribute by attribute: memory follows the answers, not the cells.

        Args:
          query: A partition query.
          positions: int64[p], numbers of answers.
        """
        owner, bits = np.arange(len(positions)), np.repeat(self._whole, len(positions), axis=0)
        cells = np.zeros(len(positions), np.int64)
        codes = np.unravel_index(positions, query.shape)
        for axis, (table, factor) in enumerate(zip(self._words, query.factors, strict=True)):
            stride = math.prod(self.shape[axis + 1 :])
            # Levels of one group that are in the same boxes are represented by the first of them.
            kinds, first = np.unique(
                np.column_stack([factor.codes, table]), axis=0, return_index=True
            )
            starts = np.searchsorted(kinds[:, 0], np.arange(query.shape[axis] + 1))
            group = codes[axis][owner]
            entry, kind = joined_ranges(starts[group], np.diff(starts)[group])
            owner, cells = owner[entry], cells[entry] + first[kind] * stride
            bits = bits[entry] & kinds[kind, 1:]
            order = np.lexsort((cells, *bits.T, owner))
            owner, cells, bits = owner[order], cells[order], bits[order]
            distinct = run_starts(owner, *bits.T)
            owner, cells, bits = owner[distinct], cells[distinct], bits[distinct]
        outside = np.full(len(positions), np.iinfo(np.int64).max)
        free = ~bits.any(axis=1)
        np.minimum.at(outside, owner[free], cells[free])
        return np.where(outside == np.iinfo(np.int64).max, -1, outside)


def representative_levels(
    shape: Sequence[int],
    queries: Sequence[Query],
    zeros: StructuralZeros | None,
    most: int,
) -> list[IntArray]:
    """Return at most `most` levels of each set of levels that nothing distinguishes, by attribute.

    Args:
      shape: Number of levels of each attribute.
      queries: Partition queries, which distinguish levels.
      zeros: Structural zeros, which distinguish levels too.
      most: Number of levels to keep of each set, the first ones.

    Returns:
      int64[at most n_i] per attribute, rising.
    """
    out = []
    for axis, size in enumerate(shape):
        columns = [query.factors[axis].codes for query in queries]
        if zeros is not None:
            columns += [*zeros.patterns(axis).T]
        kinds = np.column_stack([np.zeros(size, np.int64), *columns])
        kind = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)
        order = np.argsort(kind, kind="stable")
        starts = np.searchsorted(kind[order], kind[order])
        out.append(np.sort(order[np.arange(size) - starts < most]))
    return out


def cells_at(shape: Sequence[int], levels: Sequence[IntArray]) -> IntArray:
    """Return the flat indexes of all combinations of given levels, last attribute fastest.

    Args:
      shape: Number of levels of each attribute.
      levels: Per attribute, the levels to combine, numbered from 0.
    """
    return np.ravel_multi_index(np.ix_(*levels), tuple(shape)).reshape(-1)
