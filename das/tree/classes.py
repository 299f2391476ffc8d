"""Classes of geounits with equally shaped subtrees, which have equal errors.

A node is a maximal chain of only children; it is measured once, at its top. Two nodes whose chains
span the same geolevels and whose children are equal, counted without order, have the same
precision from below. The eight million blocks of the United States are one or two classes, its
quarter of a million block groups a few hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray, joined_ranges
from das.errors import GeographyError


@dataclass(frozen=True)
class Chain:
    """Classes start:stop; their chains of only children span geolevels first..last."""

    first: int
    last: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class SubtreeClasses:
    """Classes of equal subtrees, numbered so that children come before their parents.

    Attributes:
      n_levels: Number of geolevels.
      chains: Contiguous ranges of classes, deepest top first; the last holds the root alone.
      geounits: int64[C], number of nodes in each class.
      parent: int64[E], ascending; class of the parent of an edge.
      child: int64[E], class of the child.
      number: int64[E], number of children of this class per parent.
    """

    n_levels: int
    chains: tuple[Chain, ...]
    geounits: IntArray
    parent: IntArray
    child: IntArray
    number: IntArray

    @classmethod
    def of_tree(cls, n_children: Sequence[IntArray]) -> SubtreeClasses:
        """Group the nodes of a tree.

        Args:
          n_children: Per geolevel, root first, int64[G_l]: the number of children of every
            geounit, which are consecutive one geolevel down; zeros at the last.

        Raises:
          GeographyError: The numbers of children do not describe a tree with one root.

        >>> two = SubtreeClasses.of_tree([np.array([2]), np.array([3, 3]), np.zeros(6, np.int64)])
        >>> two.geounits.tolist(), two.number.tolist()
        ([6, 2, 1], [3, 2])
        """
        sizes = [len(each) for each in n_children]
        if sizes[0] != 1 or sizes[1:] != [int(each.sum()) for each in n_children[:-1]]:
            raise GeographyError("spine", "is not a tree with one root", got=sizes)
        bottom = len(n_children) - 1
        class_of: dict[int, IntArray] = {}  # per geolevel, of the nodes; -1 for only children
        ends: dict[int, IntArray] = {bottom: np.full(sizes[bottom], bottom, np.int64)}
        ends_at: dict[int, IntArray] = {bottom: np.arange(sizes[bottom])}
        chains: list[Chain] = []
        edges: list[IntArray] = []
        n_classes = 0
        for level in range(bottom, -1, -1):
            if level < bottom:
                starts = np.cumsum(n_children[level]) - n_children[level]
                only = n_children[level] == 1
                ends[level] = np.where(only, ends[level + 1][starts], level)
                ends_at[level] = np.where(only, ends_at[level + 1][starts], np.arange(sizes[level]))
            is_node = np.ones(1, np.bool_)
            if level:
                is_node = np.repeat(n_children[level - 1] != 1, n_children[level - 1])
            class_of[level] = np.full(sizes[level], -1, np.int64)
            for last in np.unique(ends[level][is_node]).tolist():
                nodes = np.flatnonzero(is_node & (ends[level] == last))
                if last == bottom:
                    numbers = np.zeros(len(nodes), np.int64)
                else:
                    below = class_of[last + 1]
                    runs = _child_runs(n_children[last], ends_at[level][nodes], below)
                    numbers, kept = _equal_rows(runs, len(nodes))
                    edges.append(kept + np.array([n_classes, 0, 0]))
                class_of[level][nodes] = numbers + n_classes
                stop = n_classes + int(numbers.max()) + 1
                chains.append(Chain(level, last, n_classes, stop))
                n_classes = stop
        counts = np.zeros(n_classes, np.int64)
        for codes in class_of.values():
            counts += np.bincount(codes[codes >= 0], minlength=n_classes)
        table = np.concatenate([*edges, np.zeros((0, 3), np.int64)])
        return cls(bottom + 1, tuple(chains), counts, *table.T.copy())

    @property
    def n_classes(self) -> int:
        """Return the number of classes, C."""
        return len(self.geounits)

    def geounits_in(self, chain: Chain) -> int:
        """Return the number of nodes in the classes of a chain."""
        return int(self.geounits[chain.start : chain.stop].sum())

    def level_sizes(self) -> IntArray:
        """Return the number of geounits of every geolevel, int64[L]."""
        out = np.zeros(self.n_levels, np.int64)
        for chain in self.chains:
            out[chain.first : chain.last + 1] += self.geounits_in(chain)
        return out


def _child_runs(n_children: IntArray, parents: IntArray, class_of: IntArray) -> IntArray:
    """Count children by parent and class: rows (position in `parents`, class, number), sorted."""
    starts = np.cumsum(n_children) - n_children
    owner, children = joined_ranges(starts[parents], n_children[parents])
    key = owner * (int(class_of.max()) + 1) + class_of[children]
    keys, number = np.unique(key, return_counts=True)
    owner, child = np.divmod(keys, int(class_of.max()) + 1)
    return np.stack([owner, child, number], axis=1)


def _equal_rows(runs: IntArray, n_nodes: int) -> tuple[IntArray, IntArray]:
    """Give nodes with equal children one number; keep the runs of the first node of each."""
    bounds = np.searchsorted(runs[:, 0], np.arange(n_nodes + 1)).tolist()
    content = np.ascontiguousarray(runs[:, 1:])
    numbers: dict[bytes, int] = {}
    number_of = np.empty(n_nodes, np.int64)
    firsts: list[int] = []
    for node in range(n_nodes):
        key = content[bounds[node] : bounds[node + 1]].tobytes()
        number = numbers.setdefault(key, len(numbers))
        if number == len(firsts):
            firsts.append(node)
        number_of[node] = number
    kept = [runs[bounds[node] : bounds[node + 1]] for node in firsts]
    table = np.concatenate(kept)
    table[:, 0] = np.repeat(np.arange(len(kept)), [len(rows) for rows in kept])
    return number_of, table
