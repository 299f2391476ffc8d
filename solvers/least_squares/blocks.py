"""Blocks: the node problem in arrays that mostly split into small independent blocks.

Partition queries come in two kinds. Those inside join only cells of the same block; blocks are the
finest partition that all of them refine. The others, outside, have few groups. So

    G_c / d_c = H_c = blockdiag(H_c1, ..., H_cB) + F_c' F_c ,

with F_c of few rows. Eliminating the blocks, and within a block the coupling of the children, is
cheap and leaves a system of the outside rows of all children (see
`interior_point.Elimination`). The division into inside and outside has the least estimated cost.
With everything inside there is one block; with everything outside every cell is a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SolverError
from solvers.constraints import limits
from solvers.least_squares.machine_code import kernels
from solvers.problem import Fixed, LeastSquaresTerm, NodeProblem, Term, coarsening

# Defaults, not measured.
_SUPPORT = 0.2  # usual share of positive cells of a child
_DENSE = 0.2  # cost of an operation in large matrix products, over one in small loops
_ONE_BLOCK = 48  # nodes of so few cells are not divided
PENALTY = 1e4  # curvature of an equality in factorised matrices, over the largest curvature
# Curvature that counts as zero, over the largest diagonal entry. Strategies are accepted with
# 1e-9 and more; rounding leaves about 1e-13 at a thousand cells.
FLAT = 1e-12
ALIKE = 1e-12  # relative difference of weights of children that count as proportional
_NULL = 1e-7  # singular values of normalized groups of several partitions that count as zero


@dataclass(frozen=True, eq=False)
class Equality:
    """Given partition sums of every child.

    Attributes:
      groups: int64[k], the sum (0..m-1) in which each cell counts.
      targets: float64[C, m], the required sums of each child.
    """

    groups: IntArray
    targets: FloatArray


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Node problem in arrays; P is 1 if the weights of all children are proportional, else C.

    Attributes:
      unit: float64[C], d_c: the weight of queries of single cells; without one, the smallest
        curvature of G_c orthogonal to the equalities.
      scale: float64[C], d_c divided by its largest.
      linear: float64[C, k], b_c / d_c.
      parent: float64[k] or None.
      cells: int64[B, s], the cells of each block, padded with k.
      blocks: float64[B, P, s, s], H_cb.
      outside: float64[P, r, k], F_c.
      diagonal: float64[P, k] of H_c, 1 where it is 0.
      free: bool[C, k], cells not forced to zero.
      equalities: Given partition sums.
      is_inside: Whether each equality joins only cells of the same block.
      coefficients: float64[n, k], rows R.
      least: float64[C, n], lower bounds of R x_c, -inf if none.
      most: float64[C, n], upper bounds, inf if none.
      given: Per term, the equality that makes its answers constants; -1 if none.
      penalty: Curvature of an equality in factorised matrices.
    """

    unit: FloatArray
    scale: FloatArray
    linear: FloatArray
    parent: FloatArray | None
    cells: IntArray
    blocks: FloatArray
    outside: FloatArray
    diagonal: FloatArray
    free: BoolArray
    equalities: tuple[Equality, ...]
    is_inside: tuple[bool, ...]
    coefficients: FloatArray
    least: FloatArray
    most: FloatArray
    given: tuple[int, ...]
    penalty: float

    def apply(self, x: FloatArray) -> FloatArray:
        """Compute H_c x_c for every child, float64[C, k]."""
        y = self.scatter(self.times(self.blocks, self.gather(x)))
        if self.outside.shape[1]:
            y += ((self.outside @ x[:, :, None]).transpose(0, 2, 1) @ self.outside)[:, 0]
        return y

    def penalized(self) -> FloatArray:
        """Return float64[B, P, s, s]: the blocks with penalties for the equalities inside."""
        blocks = self.blocks
        for equality, within in zip(self.equalities, self.is_inside, strict=True):
            if within:
                padded = np.append(equality.groups, -1)[self.cells]
                same = (padded[:, :, None] == padded[:, None]) & (padded >= 0)[:, :, None]
                blocks = blocks + self.penalty * same[:, None]
        return blocks

    def outside_given(self) -> FloatArray:
        """Return `outside` with the equalities across blocks appended, float64[P, r + m, k].

        Each of their m partition sums becomes a row: sqrt(`penalty`) at its cells, 0 elsewhere.
        """
        parts = [self.outside]
        for equality, within in zip(self.equalities, self.is_inside, strict=True):
            if not within:
                m = equality.targets.shape[1]
                rows = (np.arange(m)[:, None] == equality.groups) * self.penalty**0.5
                parts.append(np.broadcast_to(rows, (len(self.outside), *rows.shape)))
        return np.concatenate(parts, axis=1)

    def gather(self, x: FloatArray) -> FloatArray:
        """Gather [C, k] into blocks [B, C, s], zero where a block has no cell."""
        padded = np.concatenate([x, np.zeros((len(x), 1))], axis=1)
        return np.ascontiguousarray(padded[:, self.cells].transpose(1, 0, 2))

    def scatter(self, y: FloatArray) -> FloatArray:
        """Scatter blocks [B, C, s] to [C, k]."""
        out = np.empty((y.shape[1], self.linear.shape[1] + 1))
        out[:, self.cells] = y.transpose(1, 0, 2)
        return np.ascontiguousarray(out[:, :-1])

    @staticmethod
    def times(blocks: FloatArray, y: FloatArray) -> FloatArray:
        """Multiply [B, P, s, s] with [B, C, s]."""
        return np.asarray((blocks @ y[..., None])[..., 0])


@dataclass(frozen=True, eq=False)
class Partitions:
    """T partition queries of the same cells, with their answers side by side.

    Attributes:
      index: int64[T, k], column of `answers` that counts each cell.
      ends: int64[T + 1]; query t has the columns ends[t]:ends[t + 1].
      answers: float64[C, M], answers of all T queries for each child.
      weights: float64[T, C], weight of each query in each child: 1 / noise variance.
    """

    index: IntArray
    ends: IntArray
    answers: FloatArray
    weights: FloatArray


def side_by_side(terms: Sequence[Term], C: int, k: int) -> Partitions:
    """Put the answers of all partition queries in one array; other terms are left out.

    Args:
      terms: The terms of a node.
      C: Number of children.
      k: Number of live cells.
    """
    partitions = [term for term in terms if isinstance(term, LeastSquaresTerm)]
    T = len(partitions)
    ends = np.zeros(T + 1, np.int64)
    np.cumsum([t.answers.shape[1] for t in partitions], out=ends[1:])
    index = np.array([t.groups for t in partitions], np.int64).reshape(T, k)
    answers = np.concatenate([np.zeros((C, 0)), *(t.answers for t in partitions)], axis=1)
    weights = np.array([t.weights for t in partitions], np.float64).reshape(T, C)
    return Partitions(index + ends[:-1, None], ends, answers, weights)


def arrange(problem: NodeProblem, fixed: Fixed = ()) -> Quadratic:
    """Arrange a node problem.

    Args:
      problem: The node problem.
      fixed: Further given partition sums, as groups int64[k] and targets float64[C, m].

    Raises:
      SolverError: The queries and equalities do not have full column rank in some child.
    """
    k, C = problem.n_cells, problem.n_children
    equalities, given, terms = _not_given(problem, fixed)
    unit = _units(problem, equalities)
    weights = _relative_weights(terms, unit)
    inside, labels = _divide(terms, equalities, C, k)
    cells = _members(labels)
    partitions = [t for t in terms if isinstance(t, LeastSquaresTerm)]
    is_partition = np.array([isinstance(t, LeastSquaresTerm) for t in terms], bool)
    within = np.array(inside, bool)
    every = side_by_side(terms, C, k)
    linear = kernels().adjoint(every.index, every.answers, every.weights / unit)
    joined = within[is_partition]
    inside_weights = np.ascontiguousarray(weights[is_partition & within])
    blocks = kernels().gram_blocks(every.index[joined], inside_weights, cells)
    diagonal = np.repeat(weights[is_partition].sum(0)[:, None], k, axis=1)
    for term, weight in zip(terms, weights, strict=True):
        if not isinstance(term, LeastSquaresTerm):
            linear += (term.weights / unit)[:, None] * term.adjoint
            diagonal += weight[:, None] * np.diag(term.gram)
            blocks += weight[None, :, None, None] * term.gram
    diagonal = np.where(diagonal > 0, diagonal, 1.0)  # cells determined by equalities only
    rows = [
        (np.arange(t.answers.shape[1])[:, None] == t.groups).astype(float)
        for t, is_joined in zip(partitions, joined, strict=True)
        if not is_joined
    ]
    row_weights = [
        np.repeat(weight[None], len(indicators), axis=0)
        for weight, indicators in zip(weights[is_partition & ~within], rows, strict=True)
    ]
    outside = np.zeros((weights.shape[1], 0, k))
    if rows:
        outside = _compressed(np.concatenate(rows), np.concatenate(row_weights))
    free = np.ones((C, k), bool)
    for equality in equalities:
        free &= equality.targets[:, equality.groups] > 0
    coefficients = np.concatenate([np.zeros((0, k)), *(r.coefficients for r in problem.rows)])
    least = np.hstack([np.zeros((C, 0)), *(limits(rows.least) for rows in problem.rows)])
    most = np.hstack([np.zeros((C, 0)), *(limits(rows.most) for rows in problem.rows)])
    for row, high in zip(coefficients, most.T, strict=True):
        if (row >= 0).all():
            free &= ~((high <= 0)[:, None] & (row > 0))
    curvature = 1.0 + float(diagonal.max(initial=0.0))
    return Quadratic(
        unit,
        unit / unit.max(),
        linear,
        None if problem.parent is None else problem.parent.astype(float),
        cells,
        blocks,
        outside,
        diagonal,
        free,
        equalities,
        tuple(coarsening(e.groups, labels) is not None for e in equalities),
        coefficients,
        least,
        most,
        given,
        PENALTY * curvature,
    )


def extent(problem: NodeProblem, fixed: Fixed = ()) -> tuple[int, float, int]:
    """Compute the size of the arranged problem without arranging it.

    Args:
      problem: The node problem.
      fixed: Further given partition sums, as groups int64[k] and targets float64[C, m].

    Returns:
      Cells of its largest block. Numbers in its matrices over cells: of the blocks, one for each
      pattern, and of the positive cells of each child. Number of patterns: 1 if the weights of all
      children are proportional, else as many as children.
    """
    C = problem.n_children
    equalities, _, terms = _not_given(problem, fixed)
    _, labels = _divide(terms, equalities, C, problem.n_cells)
    sizes = np.bincount(labels).astype(float)
    patterns = _relative_weights(terms, _units(problem, equalities)).shape[1]
    numbers = max(patterns, C * _SUPPORT**2) * float((sizes**2).sum())
    return int(sizes.max(initial=0)), numbers, patterns


def _relative_weights(terms: Sequence[Term], unit: FloatArray) -> FloatArray:
    """Return float64[terms, P]: weights over each child's unit; one pattern if proportional."""
    weights = np.array([t.weights for t in terms]).reshape(len(terms), len(unit)) / unit
    if np.ptp(weights, axis=1).max(initial=0.0) <= ALIKE * weights.max(initial=0.0):
        return weights[:, :1]
    return weights


def _not_given(
    problem: NodeProblem, fixed: Fixed
) -> tuple[tuple[Equality, ...], tuple[int, ...], list[Term]]:
    """Return the equalities, the one that fixes each term (-1 if none), and the other terms."""
    equalities = given_sums(problem, fixed)
    given, left = [], []
    for term in problem.terms:
        given.append(-1)
        if isinstance(term, LeastSquaresTerm) and term.answers.shape[1] < problem.n_cells:
            finer = (coarsening(e.groups, term.groups) is not None for e in equalities)
            given[-1] = next((index for index, implies in enumerate(finer) if implies), -1)
        if given[-1] < 0:
            left.append(term)
    return equalities, tuple(given), left


def given_sums(problem: NodeProblem, fixed: Fixed) -> tuple[Equality, ...]:
    """Return given partition sums, without those that finer ones imply."""
    every = [Equality(e.groups, e.targets.astype(float)) for e in problem.exact]
    every += [Equality(groups, targets) for groups, targets in fixed]
    kept: list[Equality] = []
    for equality in sorted(every, key=lambda e: -e.targets.shape[1]):
        if not any(coarsening(finer.groups, equality.groups) is not None for finer in kept):
            kept.append(equality)
    return tuple(kept)


def _units(problem: NodeProblem, equalities: Sequence[Equality]) -> FloatArray:
    """Return a lower bound of the smallest curvature of each G_c orthogonal to equalities."""
    k = problem.n_cells
    unit = np.zeros(problem.n_children)
    for term in problem.terms:
        if isinstance(term, LeastSquaresTerm) and term.answers.shape[1] == k:
            unit += term.weights
    missing = np.flatnonzero(unit == 0)
    if not missing.size:
        return unit
    fixed = _fixed_directions(equalities, k)
    curvatures: dict[bytes, float] = {}
    for c in missing:
        weights = np.array([t.weights[c] for t in problem.terms])
        largest = float(weights.max())
        if fixed.shape[1] == k:  # every cell is given: no direction is left
            unit[c] = largest if largest > 0 else 1.0
            continue
        if largest <= 0:
            raise not_full_rank(problem, int(c))
        key = (weights / largest).tobytes()
        if key not in curvatures:
            curvatures[key] = _smallest_curvature(problem, int(c), weights / largest, fixed)
        unit[c] = curvatures[key] * largest
    return unit


def _fixed_directions(equalities: Sequence[Equality], k: int) -> FloatArray:
    """Return float64[k, r]: an orthonormal basis of the sums that equalities give.

    Groups of one partition are orthogonal. For several partitions, the squares of the singular
    values are eigenvalues of an integer matrix of a few rows: either 0 or far above rounding
    errors.
    """
    parts = []
    for equality in equalities:
        indicators = (equality.groups[:, None] == np.unique(equality.groups)).astype(float)
        parts.append(indicators / np.sqrt(indicators.sum(0)))
    if len(parts) < 2:
        return parts[0] if parts else np.zeros((k, 0))
    vectors, values, _ = np.linalg.svd(np.concatenate(parts, axis=1), full_matrices=False)
    return np.asarray(vectors[:, values > _NULL])


def _smallest_curvature(
    problem: NodeProblem, child: int, weights: FloatArray, fixed: FloatArray
) -> float:
    """Return the smallest eigenvalue of G_c orthogonal to `fixed` float64[k, r], r < k.

    The projected G_c has r eigenvalues 0, which come first because none is negative.
    """
    G = np.zeros((problem.n_cells, problem.n_cells))
    for term, weight in zip(problem.terms, weights, strict=True):
        if not isinstance(term, LeastSquaresTerm):
            G += weight * term.gram
        else:
            G += weight * (term.groups[:, None] == term.groups)
    scale = float(G.diagonal().max())
    if fixed.shape[1]:
        half = G - (G @ fixed) @ fixed.T
        G = half - fixed @ (fixed.T @ half)
        G = (G + G.T) / 2
    least = float(np.linalg.eigvalsh(G)[fixed.shape[1]])
    if least <= FLAT * scale:
        raise not_full_rank(problem, child)
    return least


def not_full_rank(problem: NodeProblem, child: int) -> SolverError:
    """Return the error that the queries of a child do not determine all cells."""
    return SolverError(
        f"node {problem.geocode} ({problem.n_cells} live cells), child {child}",
        "the measured and exact queries together do not have full column rank on the live cells",
        remedy="measure detailed, or a workload that contains it",
    )


def _divide(
    terms: Sequence[Term],
    equalities: Sequence[Equality],
    C: int,
    k: int,
) -> tuple[list[bool], IntArray]:
    """Choose the terms inside blocks, and return the block of each cell."""
    queries = [t for t in terms if isinstance(t, LeastSquaresTerm)]
    if len(queries) < len(terms) or k <= _ONE_BLOCK:
        return [True] * len(terms), np.zeros(k, np.int64)
    sizes = [t.answers.shape[1] for t in queries]
    partitions = [(m, t.groups) for m, t in zip(sizes, queries, strict=True)]
    partitions += [(e.targets.shape[1], e.groups) for e in equalities]
    order = sorted(range(len(partitions)), key=lambda i: -partitions[i][0])
    labels = np.arange(k)
    left = sum(m for m, _ in partitions if m < k)
    best = (_cost(labels, left, C, k), 0, labels)
    for count, index in enumerate(order, 1):
        if not labels.any() and count < len(order):
            continue  # with one block, more queries inside cost less
        m, groups = partitions[index]
        if m < k:
            labels = _joined(labels, groups) if labels.any() else labels
            left = sum(partitions[other][0] for other in order[count:])
            cost = _cost(labels, left, C, k)
            if cost < best[0]:
                best = (cost, count, labels)
        elif best[1] == count - 1:
            best = (best[0], count, labels)
    within = set(order[: best[1]])
    return [i in within or m == k for i, m in enumerate(sizes)], best[2]


def _cost(labels: IntArray, rows: int, C: int, k: int) -> float:
    """Estimate the work of one factorisation with these blocks and so many rows outside."""
    sizes = np.bincount(labels).astype(float)
    outside = float(C * rows)
    inside = C * (3 * (_SUPPORT * sizes) ** 3).sum() + (sizes**3 / 2).sum()
    return float(inside + _DENSE * (outside**2 * k + outside**3 / 3) + outside * (sizes**2).sum())


def _joined(labels: IntArray, groups: IntArray) -> IntArray:
    """Return the finest partition that both refine, numbered from 0."""
    while True:
        least = np.full(int(groups.max()) + 1, len(labels))
        np.minimum.at(least, groups, labels)
        lowered = least[groups]
        least = np.full(int(labels.max()) + 1, len(labels))
        np.minimum.at(least, labels, lowered)
        lowered = least[labels]
        if np.array_equal(lowered, labels):
            is_least = np.zeros(len(least), np.bool_)
            is_least[labels] = True
            return np.asarray((np.cumsum(is_least) - 1)[labels])
        labels = lowered


def _members(labels: IntArray) -> IntArray:
    """Return the cells of each block, padded with k."""
    k = len(labels)
    sizes = np.bincount(labels)
    cells = np.full((len(sizes), int(sizes.max(initial=0))), k)
    order = np.argsort(labels, kind="stable")
    starts = np.cumsum(sizes) - sizes
    cells[labels[order], np.arange(k) - starts[labels[order]]] = order
    return cells


def _compressed(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return F with F'F = sum of weighted rows: as few rows as their rank, for one pattern."""
    F = np.sqrt(weights).T[:, :, None] * rows
    if len(F) > 1:
        return F
    values, vectors = np.linalg.eigh(F[0] @ F[0].T)
    kept = values > 1e-14 * values[-1]
    return np.asarray((vectors[:, kept].T @ F[0])[None])
