"""AttributeSets: sets of attributes as integer arrays, so that a million sets need no objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray, joined_ranges
from das.errors import SchemaError


def list_combinations(n_attributes: int, order: int) -> IntArray:
    """List all sets of `order` attributes in lexicographic order, int64[C(d, k), k].

    >>> list_combinations(3, 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    out = np.zeros((1, 0), np.int64)
    for _ in range(order):
        last = out[:, -1] if out.shape[1] else np.full(1, -1)
        out = append_one(out, n_attributes - 1 - last)
    return out


def append_one(members: IntArray, n_choices: IntArray) -> IntArray:
    """Extend each row i by each of the `n_choices[i]` attributes after its last attribute."""
    last = members[:, -1] if members.shape[1] else np.full(len(members), -1)
    source, appended = joined_ranges(last + 1, n_choices)
    return np.concatenate([members[source], appended[:, None]], axis=1)


def rank_sets(members: IntArray, n_attributes: int) -> IntArray:
    """Return the index of each set among all sets of its order, in lexicographic order.

    Args:
      members: int64[m, k], rows strictly increasing, 0 <= entry < d.
      n_attributes: d, the number of attributes.

    Returns:
      int64[m].

    >>> rank_sets(np.array([[0, 1], [1, 2]]), 3).tolist()
    [0, 2]
    """
    order = members.shape[1]
    if math.comb(n_attributes, order) >= 2**63:
        raise SchemaError(
            "attribute sets", "are too many to index", got=f"{order} of {n_attributes} attributes"
        )
    # Row S comes before the sum over c of C(d - 1 - S_c, k - c) sets; count from the end.
    ranks = np.full(len(members), math.comb(n_attributes, order) - 1, np.int64)
    for column in range(order):
        after = np.array([math.comb(x, order - column) for x in range(n_attributes)], np.int64)
        ranks -= after[n_attributes - 1 - members[:, column]]
    return ranks


@dataclass(frozen=True, eq=False)
class AttributeSets:
    """Distinct sets of attributes 0..d-1, grouped by order (number of members).

    The flat order is by order first, then lexicographic. Vectors over the sets (weights, variances,
    noise scales) follow it.

    Attributes:
      n_attributes: d, the number of attributes.
      by_order: by_order[k] is int64[m_k, k], rows strictly increasing.
    """

    n_attributes: int
    by_order: tuple[IntArray, ...]

    @classmethod
    def from_rows(cls, n_attributes: int, rows: Sequence[IntArray]) -> AttributeSets:
        """Sort and deduplicate sets; each array is int64[m, k] with increasing rows."""
        top = max((part.shape[1] for part in rows), default=0)
        by_order = []
        for order in range(top + 1):
            parts = [part for part in rows if part.shape[1] == order]
            members = np.concatenate([np.zeros((0, order), np.int64), *parts])
            ranks = rank_sets(members, n_attributes)
            if len(ranks) > 1 and not (np.diff(ranks) > 0).all():
                members = members[np.unique(ranks, return_index=True)[1]]
            by_order.append(members)
        return cls(n_attributes, tuple(by_order))

    @property
    def size(self) -> int:
        """Return the number of sets."""
        return sum(len(members) for members in self.by_order)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Return the flat index of the first set of each order (set size), then the set count."""
        counts = [len(members) for members in self.by_order]
        return tuple(int(x) for x in np.cumsum([0, *counts]))

    def part(self, order: int) -> slice:
        """Return the flat indexes, from 0, of the sets with `order` attributes."""
        return slice(self.offsets[order], self.offsets[order + 1])

    def is_complete(self, order: int) -> bool:
        """Test whether every set of `order` attributes is present."""
        return len(self.by_order[order]) == math.comb(self.n_attributes, order)

    @cached_property
    def _ranks(self) -> tuple[IntArray, ...]:
        return tuple(rank_sets(members, self.n_attributes) for members in self.by_order)

    def positions(self, members: IntArray) -> IntArray:
        """Return the flat index of each set, int64[m].

        Args:
          members: int64[m, k], rows strictly increasing.

        Raises:
          SchemaError: A set is not present.
        """
        order = members.shape[1]
        wanted = rank_sets(members, self.n_attributes)
        if order >= len(self.by_order):
            missing: BoolArray = np.ones(len(wanted), bool)
            indexes = wanted
        elif self.is_complete(order):
            return wanted + self.offsets[order]
        else:
            ranks = self._ranks[order]
            indexes = np.searchsorted(ranks, wanted)
            inside = indexes < len(ranks)
            missing = ~inside
            missing[inside] = ranks[indexes[inside]] != wanted[inside]
        if missing.any():
            raise SchemaError(
                "attribute sets", "do not contain a set", got=members[missing.argmax()].tolist()
            )
        return np.asarray(indexes + self.offsets[order], np.int64)

    def closure(self) -> AttributeSets:
        """Return all subsets of all sets."""
        top = len(self.by_order) - 1
        if all(self.is_complete(order) for order in range(top + 1)):
            return self
        if self.is_complete(top):
            rows = [list_combinations(self.n_attributes, order) for order in range(top + 1)]
            return AttributeSets(self.n_attributes, tuple(rows))
        by_order = list(self.by_order)
        for order in range(top, 0, -1):
            smaller = [np.delete(by_order[order], column, axis=1) for column in range(order)]
            merged = AttributeSets.from_rows(self.n_attributes, [*smaller, by_order[order - 1]])
            by_order[order - 1] = merged.by_order[order - 1]
        return AttributeSets(self.n_attributes, tuple(by_order))

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """Return the members of every set, in flat order."""
        return tuple(tuple(row) for members in self.by_order for row in members.tolist())

    def locate(self, sets: AttributeSets) -> IntArray:
        """Return the flat index here of every one of some sets, int64[their number]."""
        return np.concatenate([self.positions(members) for members in sets.by_order])

    def product(self, factors: FloatArray) -> FloatArray:
        """Return prod_{i in A} factors[i] for every set A, float64[size]."""
        out = np.ones(self.size)
        for order, members in enumerate(self.by_order):
            block = out[self.part(order)]
            for column in range(order):
                block *= factors[members[:, column]]
        return out
