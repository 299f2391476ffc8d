"""The kernels once more, in arrays: what they compute, written to be read.

`DEFINITION` has the functions of `solvers.least_squares.kernels` that others call, with the same
arguments, and `use` puts it in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from solvers.least_squares.arrays import Guess
from solvers.least_squares.blocks import Equality, Quadratic
from solvers.least_squares.certificate import Point, natural_residual
from solvers.least_squares.certificate import gradient as lagrangian_gradient
from solvers.least_squares.interior_point import Elimination
from solvers.least_squares.solve import next_guess
from solvers.problem import group_sums

ROUNDS = 10
CALLERS = (
    "solvers.least_squares.solve",
    "solvers.least_squares.blocks",
    "solvers.least_squares.certificate",
)


@contextmanager
def use() -> Iterator[None]:
    """Nothing compiled is called inside."""
    with pytest.MonkeyPatch.context() as patch:
        for caller in CALLERS:
            patch.setattr(f"{caller}.kernels", lambda: DEFINITION)
        yield


def adjoint(index, answers, weights):
    """sum_q w_cq Q_q' y_cq."""
    out = np.zeros((len(answers), index.shape[1]))
    for columns, weight in zip(index, weights, strict=True):
        out += weight[:, None] * answers[:, columns]
    return out


def gram_blocks(index, weights, cells):
    """sum_q w_pq Q_q' Q_q on blocks of cells."""
    B, s = cells.shape
    out = np.zeros((B, weights.shape[1], s, s))
    for groups, weight in zip(index, weights, strict=True):
        padded = np.append(groups, -1)[cells]
        out += weight[None, :, None, None] * (padded[:, :, None] == padded[:, None])[:, None]
    present = cells < index.shape[1]
    return out * (present[:, :, None] & present[:, None])[:, None]


def gradient(index, ends, answers, weights, x):
    """Of sum_cq w_cq |Q_q x_c - y_cq|^2 / 2; w (Q x - y); sums of w (Q x)^2 and w y Q x."""
    g, sums = np.zeros_like(x), np.empty_like(answers)
    for columns, start, end in zip(index, ends[:-1], ends[1:], strict=True):
        sums[:, start:end] = group_sums(x, columns - start, int(end - start))
    wide = np.repeat(weights, np.diff(ends), axis=0).T
    weighted = wide * sums
    coarse = weighted - wide * answers
    for columns in index:
        g += coarse[:, columns]
    return g, coarse, float((weighted * sums).sum()), float((weighted * answers).sum())


def project_by_cell(x, give, free, parent):
    """The nearest x >= 0 that sums to the parent in every cell, and its support."""
    support = free
    while True:
        shares = np.where(support, give, 0.0)
        gap = parent - np.where(support, x, 0.0).sum(0)
        shifted = x + give * (gap / np.maximum(shares.sum(0), np.finfo(float).tiny))
        positive = support & (shifted > 0)
        if np.array_equal(positive, support):
            return np.where(support, shifted, 0.0), support
        support = positive


def project_by_child(field, inverse, parent, level, forbidden):
    """max(0, field + level / unit) that sums to the parent; `level` is overwritten."""
    inverse = inverse[:, None]
    support = field + level * inverse > 0
    empty = ~support.any(0)
    support[:, empty] = field[:, empty] > forbidden
    for _ in range(2 * len(field) + 2):
        room = np.maximum(np.where(support, inverse, 0.0).sum(0), 1e-300)
        level[:] = (parent - np.where(support, field, 0.0).sum(0)) / room
        shifted = field + level * inverse
        if np.array_equal(shifted > 0, support):
            break
        support = shifted > 0
    return np.maximum(shifted, 0.0)


def active_set(guess, start, problem, tolerance, most_steps, stale_steps):
    """Iterate and overwrite the start with the point of the smallest residual."""
    q, guess = quadratic(problem), Guess(*guess)
    x, coupling, sums, rows = start
    widths = [e.targets.shape[1] for e in q.equalities]
    unpadded = tuple(mu[:, :m].copy() for mu, m in zip(sums, widths, strict=True))
    best = point = Point(x.copy(), coupling.copy(), unpadded, rows.copy())
    least, stale, steps = np.inf, 0, 0
    for _ in range(most_steps):
        guess = Guess(with_holders(q, guess.support), guess.sides)
        point = solve_guess(q, guess, point)
        steps += 1
        g = lagrangian_gradient(q, point)
        residual = natural_residual(q, point, g)
        if not np.isfinite(residual):
            break
        stale += 1
        if residual < least:
            best, least, stale = point, residual, 0
        if least <= tolerance or stale >= stale_steps:
            break
        after = next_guess(q, point, g)
        same = np.array_equal(after.support, guess.support)
        if same and np.array_equal(after.sides, guess.sides):
            break
        guess = after
    x[:], coupling[:], rows[:] = best.x, best.coupling, best.rows
    for mu, own, m in zip(sums, best.sums, widths, strict=True):
        mu[:, :m] = own
    return least, steps


def quadratic(problem):
    """The arranged problem whose fields are handed to `active_set`."""
    (scale, linear, parent, has_parent, starts, blocks, outside, diagonal, free, groups, targets,
     sizes, is_inside, coefficients, least, most, penalty) = problem  # fmt: skip
    k, width = linear.shape[1], blocks.shape[-1]
    cells = np.full((len(starts) - 1, width), k)
    for number, (start, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        cells[number, : end - start] = np.arange(start, end)
    equalities = tuple(
        Equality(own, wanted[:, :m]) for own, wanted, m in zip(groups, targets, sizes, strict=True)
    )
    return Quadratic(
        scale, scale, linear, parent if has_parent else None, cells, blocks, outside, diagonal,
        free, equalities, tuple(is_inside.tolist()), coefficients, least, most, (), penalty,
    )  # fmt: skip


def solve_guess(q, guess, start):
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
    for _ in range(ROUNDS):
        right = np.where(guess.support, -lagrangian_gradient(q, point) / f, 0.0)
        missing = None if q.parent is None else q.parent - point.x.sum(0)
        gaps = [e.targets - group_sums(point.x, e.groups, e.targets.shape[1]) for e in q.equalities]
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
            mu + f * q.penalty * (gap - group_sums(dx, e.groups, gap.shape[1]))
            for mu, e, gap in zip(point.sums, q.equalities, gaps, strict=True)
        )
        nu = point.rows
        if q.coefficients.size:
            step = f * q.penalty * (row_gap - dx @ q.coefficients.T)
            nu = np.where(guess.sides != 0, nu + step, 0.0)
        point = Point(point.x + dx, point.coupling + change, sums, nu)
    return best


def with_holders(q, support):
    """Make sure each live cell has a child, and each positive exact group a cell, to carry it."""
    support = support.copy()
    if q.parent is not None:
        empty = np.flatnonzero(~support.any(0))
        if empty.size:
            score = np.where(q.free[:, empty], q.linear[:, empty], -np.inf)
            support[score.argmax(0), empty] = True
            support &= q.free
    for e in q.equalities:
        present = group_sums(support.astype(float), e.groups, e.targets.shape[1])
        for c, g in zip(*np.nonzero((present == 0) & (e.targets > 0)), strict=True):
            support[c, (e.groups == g) & q.free[c]] = True
    return support


DEFINITION = SimpleNamespace(
    adjoint=adjoint,
    gram_blocks=gram_blocks,
    gradient=gradient,
    project_by_cell=project_by_cell,
    active_set=active_set,
)
