"""Primal-dual active-set Newton iterations for the node problem.

Guess the supports and the rows at their limits, solve what is then linear, and correct the guess
where x - gradient / diagonal changes sign. Near the solution this ends in a few steps.

References:
  Hintermueller, Ito & Kunisch, SIAM J. Optim. 13 (2003), 865-888 (as semismooth Newton).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from solvers.least_squares.blocks import Quadratic
from solvers.least_squares.certificate import Point, gradient, natural_residual
from solvers.least_squares.elimination import Elimination
from solvers.least_squares.partitions import IN_ARRAYS, TermSums, partition_sums

MOST_STEPS = 15
STALE_STEPS = 5
_ROUNDS = 10


@dataclass(frozen=True, eq=False)
class Guess:
    """Which cells are positive and which rows are at a limit.

    Attributes:
      support: bool[C, k].
      sides: int8[C, n]: -1 at the lower limit, 1 at the upper, 0 between.
    """

    support: BoolArray
    sides: IntArray


def iterate(q: Quadratic, guess: Guess, start: Point, tolerance: float) -> tuple[Point, float, int]:
    """Iterate from a guess.

    Args:
      q: The node problem.
      guess: First supports and rows.
      start: A point whose multipliers are near.
      tolerance: Residual at which to stop.

    Returns:
      The point of the smallest residual, that residual, and the steps used.
    """
    best, least, stale, steps = start, np.inf, 0, 0
    point = start
    for _ in range(MOST_STEPS):
        support = _with_holders(q, guess.support)
        point = solve_guess(q, Guess(support, guess.sides), point)
        steps += 1
        g = gradient(q, point)
        residual = natural_residual(q, point, g)
        if not np.isfinite(residual):
            break
        if residual < least:
            best, least, stale = point, residual, 0
        else:
            stale += 1
        if least <= tolerance or stale >= STALE_STEPS:
            break
        changed = next_guess(q, point, g)
        if np.array_equal(changed.support, support) and np.array_equal(changed.sides, guess.sides):
            break
        guess = changed
    return best, least, steps


def next_guess(q: Quadratic, point: Point, g: FloatArray) -> Guess:
    """Supports and rows that a point and its gradient suggest."""
    f = q.scale[:, None]
    support = (point.x - g / (f * q.diagonal) > 0) & q.free
    return Guess(support, _sides(q, point.x, point.rows / f))


def _sides(q: Quadratic, x: FloatArray, nu: FloatArray) -> IntArray:
    values = x @ q.coefficients.T
    low = (nu - (values - q.least) > 0) | (q.least == q.most)
    high = (-nu - (q.most - values) > 0) & ~low
    return np.where(low, -1, np.where(high, 1, 0)).astype(np.int64)


def solve_guess(q: Quadratic, guess: Guess, start: Point) -> Point:
    """Solve the equality-constrained problem of a guess, to the last digits.

    Every round solves for what is still missing with the same factors; the multipliers of
    equalities grow by what their penalties did not reach.
    """
    weights = np.where(guess.sides != 0, q.penalty, 0.0) if q.coefficients.size else None
    elimination = Elimination(q, guess.support, row_weights=weights)
    limits = np.where(guess.sides < 0, q.least, q.most)
    point = Point(
        np.where(guess.support, start.x, 0.0),
        start.coupling,
        start.sums,
        np.where(guess.sides != 0, start.rows, 0.0),
    )
    best, least = point, np.inf
    f = q.scale[:, None]
    for _ in range(_ROUNDS):
        right = np.where(guess.support, -gradient(q, point) / f, 0.0)
        missing = None if q.parent is None else q.parent - point.x.sum(0)
        gaps = [
            e.targets - partition_sums(point.x, e.groups, e.targets.shape[1]) for e in q.equalities
        ]
        row_gap = np.zeros_like(q.least)
        if q.coefficients.size:
            row_gap = np.where(guess.sides != 0, limits - point.x @ q.coefficients.T, 0.0)
        size = max(1.0, float(np.abs(point.x).max(initial=0.0)))
        off = max(float(np.abs(a).max(initial=0.0)) for a in (right, row_gap, *gaps)) / size
        if missing is not None:
            off = max(off, float(np.abs(missing).max(initial=0.0)) / size)
        if not off < 0.5 * least:
            break
        best, least = point, off
        if off <= 1e-14:
            break
        for e, gap in zip(q.equalities, gaps, strict=True):
            right = right + q.penalty * gap[:, e.groups]
        if q.coefficients.size:
            right = right + q.penalty * row_gap @ q.coefficients
        dx, change = elimination.solve(np.where(guess.support, right, 0.0), missing)
        sums = tuple(
            mu + f * q.penalty * (gap - partition_sums(dx, e.groups, gap.shape[1]))
            for mu, e, gap in zip(point.sums, q.equalities, gaps, strict=True)
        )
        nu = point.rows
        if q.coefficients.size:
            step = f * q.penalty * (row_gap - dx @ q.coefficients.T)
            nu = np.where(guess.sides != 0, nu + step, 0.0)
        point = Point(point.x + dx, point.coupling + change, sums, nu)
    return best


def first_guess(q: Quadratic, sums: TermSums = IN_ARRAYS) -> Guess:
    """Support of every child's own solution without x >= 0, moved to what the parent allows.

    Moved in the metric of the diagonal, each cell goes by itself. Where the query of single cells
    has most of the weight, this is nearly the solution.
    """
    x = _alone(q)
    support = q.free & (x > 0)
    if q.parent is not None:
        x, support = sums.deal(x, 1 / (q.scale[:, None] * q.diagonal), q.free, q.parent)
    return Guess(support, _sides(q, x, np.zeros_like(q.least)))


def _alone(q: Quadratic) -> FloatArray:
    """Minimise x' H_c x / 2 - b_c' x with a penalty for what is given."""
    s = q.cells.shape[1]
    padding = (q.cells == q.linear.shape[1]).astype(float)
    matrices = q.penalized()
    matrices = matrices + (padding[:, :, None] * np.eye(s))[:, None]
    right = q.linear
    for e in q.equalities:
        right = right + q.penalty * e.targets[:, e.groups]
    x = q.gather(right)
    F = q.outside_given()
    if not F.shape[1] and matrices.shape[1] == 1:
        return q.scatter(np.linalg.solve(matrices[:, 0], x.transpose(0, 2, 1)).transpose(0, 2, 1))
    K = np.linalg.inv(matrices)
    x = q.times(K, x)
    if F.shape[1]:
        P, r, k = F.shape
        Fb = q.gather(F.reshape(P * r, k)).reshape(len(K), P, r, s)
        Z = Fb @ K
        J = np.eye(r) + np.einsum("bprs,bpts->prt", Z, Fb, optimize=True)
        Fx = np.einsum("bprs,bcs->cr" if P == 1 else "bcrs,bcs->cr", Fb, x, optimize=True)
        y = np.linalg.solve(J, Fx[..., None])[..., 0] if P > 1 else np.linalg.solve(J[0], Fx.T).T
        x = x - np.einsum("bprs,cr->bcs" if P == 1 else "bcrs,cr->bcs", Z, y, optimize=True)
    return q.scatter(x)


def _with_holders(q: Quadratic, support: BoolArray) -> BoolArray:
    """Make sure each live cell has a child, and each positive exact group a cell, to carry it."""
    support = support.copy()
    if q.parent is not None:
        empty = np.flatnonzero(~support.any(0))
        if empty.size:
            score = np.where(q.free[:, empty], q.linear[:, empty], -np.inf)
            support[score.argmax(0), empty] = True
            support &= q.free
    for e in q.equalities:
        held = partition_sums(support.astype(float), e.groups, e.targets.shape[1])
        for c, g in zip(*np.nonzero((held == 0) & (e.targets > 0)), strict=True):
            support[c, (e.groups == g) & q.free[c]] = True
    return support
