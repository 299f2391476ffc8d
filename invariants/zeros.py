"""Structural zeros: cells in which nobody can be, as levels that do not go together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import SchemaError
from das.histograms import Histograms
from das.queries.query import Query
from das.schema import Schema
from invariants.conflict import Statement
from invariants.limit import Limit

_BOXES = 63  # of a word of an int64


@dataclass(frozen=True, eq=False)
class StructuralZeros(Limit):
    """A union of boxes; a box has all cells whose levels are among its own, in every attribute.

    It is held by attribute, so memory does not grow with the cells of the schema.

    Attributes:
      shape: (n_1, ..., n_d), of the schema.
      boxes: Of each box one bool[n_i] per attribute, which of its levels are in it.
    """

    kind: ClassVar[str] = "structural zeros"
    is_kept_beside_releases: ClassVar[bool] = True

    shape: tuple[int, ...]
    boxes: tuple[tuple[BoolArray, ...], ...]
    geolevels: tuple[str, ...] = ()

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """bool[G]: geounits with persons in some of these cells."""
        broken = np.zeros(counts.n_geounits, np.bool_)
        broken[counts.owners()[self.holds(counts.cells)]] = True
        return broken

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """That nobody is in these cells."""
        yield Statement(self.title, self.holds(cells).astype(np.int64), 0, 0)

    def described(self, schema: Schema) -> str:
        """How many cells they are."""
        return f"{len(self)} of {schema.size} cells"

    @classmethod
    def joined(cls, stated: Sequence[Limit]) -> list[Limit]:
        """One union of all boxes."""
        own = [one for one in stated if isinstance(one, StructuralZeros)]
        boxes = tuple(box for one in own for box in one.boxes)
        return [cls(own[0].shape, boxes)] if own else []

    def check(self, others: Sequence[Limit], invariants: Sequence[Limit]) -> None:
        """Check that they leave some cell.

        Raises:
          SchemaError: They do not.
        """
        if len(self) == math.prod(self.shape):
            raise SchemaError("zero", "leaves no cell in which somebody can be")

    @cached_property
    def _words(self) -> tuple[IntArray, ...]:
        """int64[n_i, w] per attribute: bit b of word v, whether a level is in box 63 v + b."""
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
        """bool[k]: whether each of some cells is one of them.

        >>> two = StructuralZeros((2, 2), ((np.array([True, False]), np.array([False, True])),))
        >>> two.holds(np.arange(4)).tolist(), len(two)
        ([False, True, False, False], 1)
        """
        found = np.zeros(len(cells), np.bool_)
        codes = np.unravel_index(cells, self.shape)
        for word in range(self._words[0].shape[1]):
            bits = np.full(len(cells), -1, np.int64)
            for table, code in zip(self._words, codes, strict=True):
                if (table[:, word] != table[0, word]).any():
                    bits &= table[code, word]
                else:
                    bits &= table[0, word]
            found |= bits != 0
        return found

    def __len__(self) -> int:
        """How many cells, each once."""
        patterns, counts = self._whole, np.ones(1, np.int64)
        for table in self._words:
            own, sizes = np.unique(table, axis=0, return_counts=True)
            both = (patterns[:, None] & own[None]).reshape(-1, own.shape[1])
            products = (counts[:, None] * sizes[None]).reshape(-1)
            patterns, of_both = np.unique(both, axis=0, return_inverse=True)
            counts = np.zeros(len(patterns), np.int64)
            np.add.at(counts, of_both.reshape(-1), products)
        return int(counts[patterns.any(axis=1)].sum())

    @property
    def _whole(self) -> IntArray:
        """int64[1, w]: in every box so far."""
        return np.full((1, self._words[0].shape[1]), -1, np.int64)

    def patterns(self, axis: int) -> IntArray:
        """int64[n_i, w]: equal rows for levels of an attribute that no box tells apart."""
        return self._words[axis]

    def first_outside(self, query: Query, positions: IntArray) -> IntArray:
        """int64[p]: the first cell that is none of them in some answers; -1 where all cells are.

        Attribute by attribute, so that memory follows the answers and not their cells.

        Args:
          query: A partition query.
          positions: int64[p], numbers of answers.
        """
        owner, bits = np.arange(len(positions)), np.repeat(self._whole, len(positions), axis=0)
        cells = np.zeros(len(positions), np.int64)
        codes = np.unravel_index(positions, query.shape)
        for axis, (table, factor) in enumerate(zip(self._words, query.factors, strict=True)):
            stride = math.prod(self.shape[axis + 1 :])
            # Levels of one group that are in the same boxes need one of them, the first.
            kinds = np.column_stack([factor.codes, table])
            own, first = np.unique(kinds, axis=0, return_index=True)
            starts = np.searchsorted(own[:, 0], np.arange(query.shape[axis] + 1))
            group = codes[axis][owner]
            sizes = np.diff(starts)[group]
            entry = np.repeat(np.arange(len(owner)), sizes)
            ends = np.cumsum(sizes)
            kind = np.arange(len(entry)) - (ends - sizes - starts[group])[entry]
            owner, cells = owner[entry], cells[entry] + first[kind] * stride
            bits = bits[entry] & own[kind, 1:]
            order = np.lexsort((cells, *bits.T, owner))
            owner, cells, bits = owner[order], cells[order], bits[order]
            is_new = np.ones(len(owner), np.bool_)
            is_new[1:] = (np.diff(owner) != 0) | (np.diff(bits, axis=0) != 0).any(axis=1)
            owner, cells, bits = owner[is_new], cells[is_new], bits[is_new]
        found = np.full(len(positions), np.iinfo(np.int64).max)
        free = ~bits.any(axis=1)
        np.minimum.at(found, owner[free], cells[free])
        return np.where(found == np.iinfo(np.int64).max, -1, found)


def representative_levels(
    shape: Sequence[int],
    queries: Sequence[Query],
    zeros: StructuralZeros | None,
    most: int,
) -> list[IntArray]:
    """Levels of each attribute, no more than `most` of those that nothing tells apart.

    Args:
      shape: Number of levels of each attribute.
      queries: Partition queries that tell levels apart.
      zeros: Which do too.
      most: Of each kind of levels, the first so many.

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
    """int64[product]: the cells of all combinations of some levels of each attribute, in order."""
    cells = np.zeros(1, np.int64)
    for size, own in zip(shape, levels, strict=True):
        cells = (cells[:, None] * size + own[None]).reshape(-1)
    return cells
