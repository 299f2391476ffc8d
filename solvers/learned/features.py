"""Features of released answers: what is released and noisy in a geounit and in its parent.

The regressions correct the answer of a child to a partition query. An answer is described by its
released count, by its noisy estimates, by the count of the parent, and by the same of every coarser
query that contains it. Housing units and facilities describe it too, where they are public. All are
released or follow from what is released.

Symbols: C children of a family; q a query with m answers; o the released count, z the noisy
estimate of an answer, P the count of the parent; r a coarser query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray
from das.queries.query import Query, is_refinement
from solvers.problem import group_sums

# Features are whole multiples of 1 / STEPS. So trees branch alike on every processor, although the
# last digits of estimates differ.
STEPS = 64
_OFF_EDGES = 1e-6  # of a step: halves lie on the edge between two steps


@dataclass(frozen=True, eq=False)
class Released:
    """M children of F families with what is known of them; no family is empty.

    Attributes:
      queries: The measured partition queries.
      owner: int64[M], index of the family of each child, ascending.
      parents: int64[F, n], counts of the parents.
      counts: int64[M, n], released counts of the children.
      answers: Per query, numbers[M, m], noisy answers.
      weights: Per query, float64[M], their inverse variances.
      quarters: int64[M, 2], housing units and facilities of the children; None if unknown.
    """

    queries: Sequence[Query]
    owner: IntArray
    parents: IntArray
    counts: IntArray
    answers: Sequence[FloatArray | IntArray]
    weights: Sequence[FloatArray]
    quarters: IntArray | None = None

    @cached_property
    def rows(self) -> list[IntArray]:
        """Return per query int64[n], the answer to which each cell contributes."""
        cells = np.arange(self.parents.shape[1])
        return [query.rows_of(cells) for query in self.queries]

    def sums(self, counts: IntArray, number: int) -> IntArray:
        """Return the answers of histograms to a query, int64[..., m]."""
        return group_sums(counts, self.rows[number], self.queries[number].size)

    def within(self, fine: int, coarse: int) -> IntArray:
        """Return int64[m], the answer of a coarser query that contains each answer of a finer."""
        out = np.zeros(self.queries[fine].size, np.int64)
        out[self.rows[fine]] = self.rows[coarse]
        return out

    @cached_property
    def known(self) -> list[tuple[IntArray, FloatArray, IntArray]]:
        """Return per query o, z and P of each answer, [M, m], [M, m] and [F, m]."""
        numbers = range(len(self.queries))
        parents = [self.sums(self.parents, number) for number in numbers]
        return [
            (self.sums(self.counts, number), self._estimates(number, parents), parents[number])
            for number in numbers
        ]

    def _estimates(self, number: int, parents: Sequence[IntArray]) -> FloatArray:
        """Estimate the answers to a query by all queries that refine it, by inverse variance.

        Answers without records in the parent are known to be 0, and have no noise.
        """
        size = self.queries[number].size
        total = precision = np.zeros((len(self.owner), size))
        for fine, (answers, weights) in enumerate(zip(self.answers, self.weights, strict=True)):
            if not is_refinement(self.queries[fine], self.queries[number]):
                continue
            within, is_live = self.within(fine, number), parents[fine] > 0
            parts = group_sums(is_live.astype(np.int64), within, size)[self.owner]
            of_query = weights[:, None] / np.maximum(parts, 1)
            sums = group_sums(np.where(is_live[self.owner], answers, 0), within, size)
            total = total + of_query * sums
            precision = precision + of_query
        return np.asarray(total / precision)

    def live(self, number: int) -> tuple[IntArray, IntArray]:
        """Return child and answer of each answer to a query with records in the parent."""
        child, answer = np.nonzero((self.known[number][2] > 0)[self.owner])
        return child.astype(np.int64), answer.astype(np.int64)

    def columns(self, number: int) -> list[IntArray]:
        """Return the features of the live answers to a query, int64[N] each."""
        return [np.rint(STEPS * one + _OFF_EDGES).astype(np.int64) for one in self._columns(number)]

    def _columns(self, number: int) -> Iterator[FloatArray | IntArray]:
        child, answer = self.live(number)
        family, children = self.owner[child], np.bincount(self.owner)
        n_children = children[family].astype(np.float64)
        o, z, parent = self.known[number]
        starts = np.concatenate(([0], np.cumsum(children)[:-1]))
        gap = parent - np.add.reduceat(z, starts, axis=0)
        count, estimate, above = o[child, answer], z[child, answer], parent[family, answer]
        yield count
        yield estimate - count
        yield estimate - count + gap[family, answer] / n_children
        yield above
        yield above / n_children - count
        yield n_children
        yield self.sums((self.counts > 0).astype(np.int64), number)[child, answer]
        for coarse in range(len(self.queries)):
            if coarse == number or not is_refinement(self.queries[number], self.queries[coarse]):
                continue
            o, z, parent = self.known[coarse]
            at = self.within(number, coarse)[answer]
            whole, whole_above = o[child, at], parent[family, at]
            yield whole - count
            yield z[child, at] - whole
            yield whole_above
            yield above * (whole / whole_above) - count
        if self.quarters is None:
            return
        units, facilities = self.quarters.T
        persons, all_units = self.parents.sum(1), np.add.reduceat(units, starts)
        share = (units / np.maximum(1, all_units)[self.owner])[child]
        yield units[child]
        yield facilities[child]
        yield above * share - count
        yield persons[family] * share - self.counts.sum(1)[child]
        yield persons[family] / np.maximum(1, all_units)[family]
