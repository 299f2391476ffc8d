"""Families of sets of cells: the distinct ones, and whether they nest.

A family is laminar if any two of its sets are disjoint or one contains the other. Sums over the
sets of a laminar family, together with sums over the sets of a second one, have a totally
unimodular matrix (Edmonds 1970; Schrijver, Combinatorial Optimization, 2003, section 41.4): with
integer bounds every vertex is an integer point. In a node, the first family holds the sets of
every child and the second one set per cell, the cell in all children.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array, vstack

IntArray = npt.NDArray[np.int64]

NO_SET = -1


@dataclass(frozen=True, eq=False)
class Family:
    """Distinct sets of cells. Its items are the S sets of two or more cells, then the k cells.

    Attributes:
      incidence: int64[S, k] sparse 0/1, the larger sets first.
      parents: int64[S + k], smallest set that strictly contains each item, NO_SET where there is
        none; None if two sets cross.
    """

    incidence: csr_array
    parents: IntArray | None

    @property
    def n_sets(self) -> int:
        """S."""
        return int(self.incidence.shape[0])

    @cached_property
    def items(self) -> csr_array:
        """int64[S + k, k] sparse 0/1, the cells of every item."""
        cells = eye_array(self.incidence.shape[1], dtype=np.int64, format="csr")
        return csr_array(vstack([self.incidence, cells], format="csr"))


def arrange(candidates: list[IntArray]) -> tuple[Family, IntArray]:
    """Find the distinct sets among candidates and how they nest.

    Two sets cross iff they share cells, but fewer than the smaller one has. All shared numbers are
    the entries of one sparse product.

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
    k = len(candidates[0])
    ends = np.cumsum([int(one.max()) + 1 for one in candidates])
    every = np.array(candidates)
    number, columns = np.nonzero(every >= 0)
    rows = every[number, columns] + np.append(0, ends)[number]
    count = int(ends[-1])
    matrix = csr_array((np.ones(len(rows), np.int64), (rows, columns)), shape=(count, k))
    sizes = np.diff(matrix.indptr)
    shared = (matrix @ matrix.T).tocoo()
    first, second = shared.row, shared.col
    within = shared.data == sizes[first]
    laminar = bool((within | (shared.data == sizes[second])).all())

    same = within & (sizes[first] == sizes[second])
    representative = np.arange(count)
    np.minimum.at(representative, first[same], second[same])
    kept = np.flatnonzero((representative == np.arange(count)) & (sizes > 1))
    kept = kept[np.argsort(-sizes[kept], kind="stable")]
    items = np.full(count, NO_SET)
    items[kept] = np.arange(len(kept))
    single = sizes == 1
    items[single] = len(kept) + matrix.indices[matrix.indptr[:-1][single]]
    items = items[representative]
    incidence = csr_array(matrix[kept])
    if not laminar:
        return Family(incidence, None), items

    parents = np.full(len(kept) + k, NO_SET)
    strict = within & (sizes[first] < sizes[second]) & ~single[first]
    inner, outer = items[first[strict]], items[second[strict]]
    np.maximum.at(parents, inner, outer)  # larger sets come first: the last one is the smallest
    cells = incidence.tocoo()
    np.maximum.at(parents, len(kept) + cells.col, cells.row)
    return Family(incidence, parents), items
