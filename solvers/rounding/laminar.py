"""Families of sets of cells: the distinct sets, and whether they nest.

A family is laminar if any two of its sets are disjoint or one contains the other. Sums over the
sets of a laminar family, together with sums over the sets of a second one, have a totally
unimodular matrix (Edmonds 1970; Schrijver, Combinatorial Optimization, 2003, section 41.4): with
integer bounds every vertex is an integer point. In a node, the first family contains the sets of
every child, and the second one set per cell: the cell in all children.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array, vstack

from das.arrays import IntArray

Number = TypeVar("Number", np.int64, np.float64)

NO_SET = -1


@dataclass(frozen=True, eq=False)
class Family:
    """Distinct sets of cells. Its items are the S sets of two or more cells, then the k cells.

    Attributes:
      n_cells: k.
      n_sets: S.
      sizes: int64[S], cells of every set.
      starts: int64[S], start of each set in `cells`; larger sets come first.
      cells: int64, the cells of the sets, one set after the other, ascending.
      parents: int64[S + k], smallest set that strictly contains each item, else NO_SET; None if two
        sets cross.
    """

    n_cells: int
    n_sets: int
    sizes: IntArray
    starts: IntArray
    cells: IntArray
    parents: IntArray | None

    def add(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sum over every set: [C, k] -> [C, S], same dtype."""
        if not self.n_sets:
            return np.zeros((len(values), 0), values.dtype)
        return np.add.reduceat(values[:, self.cells], self.starts, axis=1, dtype=values.dtype)

    @cached_property
    def incidence(self) -> csr_array:
        """Return int64[S, k], sparse 0/1: the cells of every set."""
        shape = (self.n_sets, self.n_cells)
        ends = np.append(self.starts, len(self.cells))
        return csr_array((np.ones(len(self.cells), np.int64), self.cells, ends), shape=shape)

    @cached_property
    def items(self) -> csr_array:
        """Return int64[S + k, k], sparse 0/1: the cells of every item."""
        cells = eye_array(self.n_cells, dtype=np.int64, format="csr")
        return csr_array(vstack([self.incidence, cells], format="csr"))


def arrange(candidates: list[IntArray]) -> tuple[Family, IntArray]:
    """Find the distinct sets among candidates, and how they nest.

    Args:
      candidates: Each int64[k], disjoint sets 0..m-1 of cells, none of them empty: the set of every
        cell, -1 for cells in none.

    Returns:
      The family, and int64, the item of each set, in order of candidates and sets.

    >>> family, items = arrange([np.array([0, 0, 0]), np.array([0, 1, 1])])
    >>> items.tolist(), family.parents.tolist()
    ([0, 2, 1], [-1, 0, 0, 1, 1])
    >>> arrange([np.array([0, 0, -1]), np.array([0, 1, 1])])[0].parents is None
    True
    """
    number_of: dict[bytes, int] = {}
    distinct: list[IntArray] = []
    numbered: list[IntArray] = []  # per set, its number among the distinct, or -1 - its only cell
    for groups in candidates:
        order = np.argsort(groups, kind="stable")
        ends = np.cumsum(np.bincount(groups + 1))
        starts, ends = ends[:-1], ends[1:]
        numbers = -1 - order[starts]
        for group in np.flatnonzero(ends - starts > 1):
            cells = order[starts[group] : ends[group]]
            numbers[group] = number_of.setdefault(cells.tobytes(), len(distinct))
            if numbers[group] == len(distinct):
                distinct.append(cells)
        numbered.append(numbers)
    lengths = np.array([len(cells) for cells in distinct], np.int64)
    larger_first = np.argsort(-lengths, kind="stable")
    rank = np.argsort(larger_first)
    S = len(distinct)
    numbers = np.concatenate(numbered)
    items = np.where(numbers < 0, S - 1 - numbers, np.append(rank, 0)[np.maximum(numbers, -1)])
    cells = np.concatenate([*(distinct[index] for index in larger_first), np.zeros(0, np.int64)])
    lengths = lengths[larger_first]
    parents = _parents(len(candidates[0]), np.repeat(np.arange(S), lengths), cells, S)
    starts = np.cumsum(lengths) - lengths
    return Family(len(candidates[0]), S, lengths, starts, cells, parents), items


def _parents(k: int, sets: IntArray, cells: IntArray, S: int) -> IntArray | None:
    """Return the smallest set around each item; None if two sets cross.

    The sets of a cell, larger ones first, are a chain. Sets nest iff each set has the same
    predecessor in the chains of all its cells, which then contains it.

    Args:
      k: Number of cells.
      sets: int64[n], ascending, the larger ones first.
      cells: int64[n], the cells of the sets.
      S: Number of sets.
    """
    order = np.argsort(cells, kind="stable")
    chain, of = sets[order], cells[order]
    before = np.full(len(chain), NO_SET)
    before[1:] = np.where(of[1:] == of[:-1], chain[:-1], NO_SET)
    parents = np.full(S + k, NO_SET)
    parents[chain] = before
    if (parents[chain] != before).any():
        return None
    parents[S + of] = chain  # the last set of a cell is the smallest
    return parents
