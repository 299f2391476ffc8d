"""Families of one geolevel, solved by compiled loops where they are small and simple.

For one node problem at a time, Python calls on small arrays take several times as long as the
arithmetic. Here the answers of many families are packed at once. Each family is assembled, solved,
certified and rounded by a few compiled calls. `PackedFamilies.solve` returns None for families that
it does not accept or solve. `node.solve_node` accepts all families and finds the same counts,
except where two roundings have equal cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import VerificationError
from solvers.least_squares import arrays
from solvers.least_squares.blocks import ALIKE, PENALTY
from solvers.least_squares.machine_code import FAMILIES, kernels
from solvers.least_squares.solve import MOST_STEPS, OVERSHOOT, STALE_STEPS

# Defaults, not measured.
MOST_CELLS = 200  # live cells of a node; larger nodes are divided into blocks
MOST_VARIABLES = 20_000  # children times live cells of a node
# With more numbers in the matrices of children with different weights, and more cells, dual ascent
# takes less time than adding up the matrices.
MOST_NUMBERS, DUAL_ASCENT_CELLS = 200_000, 100


@dataclass(frozen=True, eq=False)
class FamilySettings:
    """Settings for solving and rounding all families of a geolevel; the schema has n cells.

    Attributes:
      chain: int64[L, n], the answer that counts each cell, for nested rounding queries, coarse
        before fine; the last one is of single cells.
      query_counts: int64[P, L], how many queries of each of P rounding passes equal each query of
        the chain.
      tolerance: Largest accepted certificate residual.
      first: Name of the query of a first least-squares pass. Its answers are fixed in the second
        pass, which uses all other queries. None for a single pass.
    """

    chain: IntArray
    query_counts: IntArray
    tolerance: float
    first: str | None = None


@dataclass(frozen=True, eq=False)
class SolvedFamily:
    """Statistics of a solved family.

    Attributes:
      residual: Largest residual of the optimality conditions.
      newton_steps: Active-set steps.
      variables: Children times live cells.
      live: Variables that are positive.
    """

    residual: float
    newton_steps: int
    variables: int
    live: int


@dataclass(frozen=True, eq=False)
class Parents:
    """F parents and their children.

    Attributes:
      labels: F labels, for messages.
      n_children: int64[F], number of children of each parent.
      first: int64[F], row of the first child among the answers; undefined for an only child.
      offsets: int64[F + 1], start of the live cells of each parent.
      cells: int64, live cells.
      counts: int64, the parent's counts in them, all positive.
    """

    labels: Sequence[str]
    n_children: IntArray
    first: IntArray
    offsets: IntArray
    cells: IntArray
    counts: IntArray


class PackedFamilies:
    """Families with their answers, and their counts once solved.

    Attributes:
      parents: Parents of the families, with the live cells and counts of each.
    """

    def __init__(
        self,
        questions: FamilySettings,
        queries: IntArray,
        parents: Parents,
        answers: Sequence[FloatArray | IntArray],
        weights: FloatArray,
        first: int | None = None,
    ) -> None:
        """Pack the answers of all families.

        Args:
          questions: Settings that all families share.
          queries: int64[T, n], per query, the answer that counts each cell.
          parents: Parents of the families, with live cells and counts.
          answers: Per query, float64 or integers[M, m] of M geounits.
          weights: float64[M, T], inverse noise variance of each query in each geounit.
          first: Index of the query of the first pass; None for a single pass.
        """
        code = kernels(FAMILIES)
        T, M = len(queries), len(weights)
        if any(
            len(noisy) != M or noisy.shape[1] <= rows.max()
            for noisy, rows in zip(answers, queries, strict=True)
        ):
            raise ValueError("answers need a row per geounit and a column per answer of the query")
        self._questions, self.parents, self._n_queries = questions, parents, T
        self._first, self._first_weights = first, np.zeros(M)
        self._weights = np.array(weights, np.float64, order="C")
        if first is not None and M:
            # As `passes._partition`: the least weight of a child where the weight is 0.
            least = np.where(weights > 0, weights, np.inf).min(axis=1)
            self._first_weights = np.where(weights[:, first] > 0, weights[:, first], least)
            self._weights[:, first] = 0.0
        sizes = np.diff(parents.offsets)
        self._is_packed = (sizes > 0) & (sizes <= MOST_CELLS) & (parents.n_children > 1)
        self._is_packed &= parents.n_children * sizes <= MOST_VARIABLES
        is_heavy = (sizes >= DUAL_ASCENT_CELLS) & (parents.n_children * sizes**2 > MOST_NUMBERS)
        for heavy in np.flatnonzero(self._is_packed & is_heavy):
            rows = slice(parents.first[heavy], parents.first[heavy] + parents.n_children[heavy])
            of_children = self._weights[rows]
            shares = of_children / of_children.max(axis=1, initial=1e-300, keepdims=True)
            # Whether the weights of all children are proportional.
            self._is_packed[heavy] = np.ptp(shares, axis=0).max(initial=0.0) <= ALIKE
        children = np.where(self._is_packed, parents.n_children, 0)
        self._groups, self._sizes = _numbered(queries, parents)
        self._chain, self._chain_sizes = _numbered(questions.chain, parents)
        widths = self._sizes.sum(1)
        self._start = _starts(children * widths)
        self._answers = np.zeros(self._start[-1])
        self._ends = np.zeros((len(widths), T + 1), np.int64)
        np.cumsum(self._sizes, axis=1, out=self._ends[:, 1:])
        for number, noisy in enumerate(answers):
            code.pick_answers(
                number,
                queries,
                np.require(noisy, None if noisy.dtype == np.int16 else np.float64, ["C", "W"]),
                (parents.first, children, parents.offsets, parents.cells),
                (self._groups, self._sizes, self._start),
                self._answers,
            )
        self._index = self._groups + np.repeat(self._ends[:, :-1].ravel(), np.repeat(sizes, T))
        self._counts_start = _starts(parents.n_children * sizes)
        self._counts = np.zeros(self._counts_start[-1], np.int64)

    def copy(self, number: int) -> None:
        """Copy the parent's counts to the only child of a family."""
        low, high = self.parents.offsets[number : number + 2]
        start = self._counts_start[number]
        self._counts[start : start + high - low] = self.parents.counts[low:high]

    def histograms(self, low: int, high: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return ends, cells and counts of children of families low..high-1, without zeros."""
        parents = self.parents
        code = kernels(FAMILIES)
        families = parents.first, parents.n_children, parents.offsets, parents.cells
        entries: tuple[IntArray, IntArray, IntArray] = code.compress(
            low, high, families, self._counts_start, self._counts
        )
        return entries

    def solve(self, number: int) -> SolvedFamily | None:
        """Solve a family.

        Returns:
          Its statistics. None if the family is not packed or needs `solve_node`: a child lacks a
            weight of
          single cells, the active set was not found, or some rounded sum must leave the interval
            from
          floor to ceiling.

        Raises:
          VerificationError: The counts do not add up to the parent; a defect of this program.
        """
        if not self._is_packed[number]:
            return None
        code, questions = kernels(FAMILIES), self._questions
        parents, first = self.parents, self.parents.first[number]
        low, high = self.parents.offsets[number : number + 2]
        C, k = int(parents.n_children[number]), int(high - low)
        T, L = self._n_queries, len(questions.chain)
        parent = parents.counts[low:high]
        index = self._index[T * low : T * high].reshape(T, k)
        ends = self._ends[number]
        answers = self._answers[self._start[number] : self._start[number + 1]].reshape(C, -1)
        weights = self._weights[first : first + C]
        whole = parent.astype(np.float64)
        groups, targets = np.zeros(k, np.int64), np.zeros((C, 0))
        if self._first is not None:
            low_answer, high_answer = ends[self._first : self._first + 2]
            groups = index[self._first] - low_answer
            of_parent = np.bincount(groups, whole).astype(np.float64)
            first_weights = self._first_weights[first : first + C]
            # The nonnegative sums nearest to the answers that add up to the parent's. Each sum is
            # projected separately, which is exact; see `kernels.project_by_cell`.
            noisy = np.ascontiguousarray(answers[:, low_answer:high_answer])
            give = np.repeat(first_weights.max() / first_weights[:, None], noisy.shape[1], axis=1)
            free = np.ones(noisy.shape, np.bool_)
            targets, _ = kernels().project_by_cell(noisy, give, free, of_parent)
        queries = index, ends, answers, weights
        unit, *block, alone = code.assemble(queries, groups, targets, PENALTY)
        if not unit.all():
            return None
        x, coupling, given, steps = _iterate(
            (whole, groups, targets, *block), alone, questions.tolerance * OVERSHOOT
        )
        solution = x, coupling, given
        residual = max(code.certify(queries, unit, whole, solution, groups, targets))
        if not residual <= questions.tolerance:
            return None
        at = self._counts_start[number]
        counts = self._counts[at : at + C * k].reshape(C, k)
        chain = self._chain[L * low : L * high].reshape(L, k)
        outcome = code.round_node(
            x, parent, chain, self._chain_sizes[number], questions.query_counts, counts
        )
        if outcome == code.BROKEN:
            raise VerificationError(
                f"node {parents.labels[number]}", "children do not sum to the parent"
            )
        if outcome != code.ROUNDED:
            counts[:] = 0
            return None
        return SolvedFamily(residual, steps, C * k, int(np.count_nonzero(counts)))


def _iterate(
    block: tuple[Any, ...], alone: FloatArray, tolerance: float
) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Take active-set steps from each child's separate solution, in one block without rows.

    Args:
      block: Parent, groups and targets of given sums, then from `kernels.assemble` scale, linear,
        blocks, diagonal, penalty; see `blocks.Quadratic`.
      alone: float64[C, k], each child's separate solution.
      tolerance: Residual at which to stop.

    Returns:
      The point, the multipliers of the parent and of given sums, and steps.
    """
    parent, groups, targets, scale, linear, blocks, diagonal, penalty = block
    (C, k), m = linear.shape, targets.shape[1]
    n = int(m > 0)  # equalities
    code = kernels()
    free = np.ones((C, k), np.bool_)
    if m:
        free &= targets[:, groups] > 0  # keeps C order, the only order compiled
    _, support = code.project_by_cell(alone, 1 / (scale[:, None] * diagonal), free, parent)
    no_rows = np.zeros((C, 0))
    point = arrays.Point(np.zeros((C, k)), np.zeros(k), np.zeros((n, C, m)), no_rows)
    problem = arrays.Problem(
        scale,
        linear,
        parent,
        True,
        np.array([0, k]),
        blocks,
        np.zeros((blocks.shape[1], 0, k)),
        diagonal,
        free,
        groups[None].repeat(n, axis=0),
        targets[None].repeat(n, axis=0),
        np.full(n, m),
        np.ones(n, np.bool_),
        np.zeros((0, k)),
        no_rows,
        no_rows,
        penalty,
    )
    guess = arrays.Guess(support, np.zeros((C, 0), np.int64))
    _, steps = code.active_set(
        tuple(guess), tuple(point), tuple(problem), tolerance, MOST_STEPS, STALE_STEPS
    )
    return point.x, point.coupling, point.sums[0] if m else no_rows, int(steps)


def _numbered(partitions: IntArray, parents: Parents) -> tuple[IntArray, IntArray]:
    """Return groups of live cells by partition and family, and their numbers int64[F, T]."""
    T, F = len(partitions), len(parents.offsets) - 1
    groups = np.zeros(T * len(parents.cells), np.int64)
    sizes = np.zeros((F, T), np.int64)
    kernels(FAMILIES).number_groups(partitions, parents.offsets, parents.cells, groups, sizes)
    return groups, sizes


def _starts(lengths: IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(lengths)))
