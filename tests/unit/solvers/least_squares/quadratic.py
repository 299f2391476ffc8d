"""The node problem from its definition: dense matrices, one variable per child and cell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from solvers.problem import NO_LIMIT, GeneralTerm, LeastSquaresTerm, NodeProblem


def indicator(groups: np.ndarray, size: int) -> np.ndarray:
    """0/1 matrix [size, k] that sums cells by group."""
    return (np.arange(size)[:, None] == groups[None, :]).astype(float)


@dataclass(frozen=True)
class Dense:
    """minimise x'Px/2 - q'x subject to E x = e, low <= R x <= high, x >= 0.

    x lists the children one after another.
    """

    P: np.ndarray
    q: np.ndarray
    E: np.ndarray
    e: np.ndarray
    R: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shape: tuple[int, int]

    def objective(self, x: np.ndarray) -> float:
        v = x.ravel()
        return float(v @ self.P @ v / 2 - self.q @ v)


def gram_and_pull(term: LeastSquaresTerm | GeneralTerm) -> tuple[np.ndarray, np.ndarray]:
    """Q'Q and, per child, Q'y."""
    if isinstance(term, GeneralTerm):
        return term.gram, term.adjoint
    M = indicator(term.groups, term.answers.shape[1])
    return M.T @ M, term.answers @ M


def dense(problem: NodeProblem, fixed: tuple[tuple[np.ndarray, np.ndarray], ...] = ()) -> Dense:
    """Write a node problem out, with further partition sums fixed."""
    C, k = problem.n_children, problem.n_cells
    parts = [gram_and_pull(term) for term in problem.terms]
    P, q = np.zeros((C, k, C, k)), np.zeros((C, k))
    for term, (gram, adjoint) in zip(problem.terms, parts, strict=True):
        for c, weight in enumerate(term.weights):
            P[c, :, c] += weight * gram
            q[c] += weight * adjoint[c]
    rows, values = [np.zeros((0, C * k))], [np.zeros(0)]
    if problem.parent is not None:
        rows.append(np.tile(np.eye(k), C))
        values.append(problem.parent.astype(float))
    for groups, targets in [*((e.groups, e.targets) for e in problem.exact), *fixed]:
        A = indicator(groups, targets.shape[1])
        rows.append(np.kron(np.eye(C), A))
        values.append(targets.astype(float).ravel())
    R, low, high = [np.zeros((0, C * k))], [np.zeros(0)], [np.zeros(0)]
    for one in problem.rows:
        R.append(np.kron(np.eye(C), one.coefficients))
        low.append(np.where(one.least <= -NO_LIMIT, -np.inf, one.least).ravel())
        high.append(np.where(one.most >= NO_LIMIT, np.inf, one.most).ravel())
    return Dense(
        P.reshape(C * k, C * k),
        q.ravel(),
        np.vstack(rows),
        np.concatenate(values),
        np.vstack(R),
        np.concatenate(low),
        np.concatenate(high),
        (C, k),
    )


def best_of_all_supports(
    problem: NodeProblem, fixed: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
) -> np.ndarray:
    """The optimum by trying every set of positive cells and of rows at a limit; for few of both.

    On the right set the problem has only equalities, and every other set that gives a feasible
    point gives no better one.
    """
    d = dense(problem, fixed)
    n = d.P.shape[0]
    unit = np.abs(d.P).max()
    size = max(1.0, np.abs(d.e).max(initial=0.0))
    sides = []
    for low, high in zip(d.low, d.high, strict=True):
        free = [] if low == high else [None]
        sides.append([*free, *(v for v in {low, high} if np.isfinite(v))])
    best, best_value = None, np.inf
    for limits in itertools.product(*sides):
        at = [i for i, v in enumerate(limits) if v is not None]
        E = np.vstack([d.E, d.R[at]])
        e = np.concatenate([d.e, [limits[i] for i in at]])
        m = len(e)
        for bits in itertools.product((False, True), repeat=n):
            held = np.flatnonzero(bits)
            x = np.zeros(n)
            if len(held):
                left = np.block(
                    [
                        [d.P[np.ix_(held, held)] / unit, E[:, held].T],
                        [E[:, held], np.zeros((m, m))],
                    ]
                )
                right = np.concatenate([d.q[held] / unit, e])
                x[held] = np.linalg.lstsq(left, right, rcond=None)[0][: len(held)]
            broken = [np.abs(E @ x - e), d.low - d.R @ x, d.R @ x - d.high]
            if np.concatenate(broken).max(initial=0.0) > 1e-8 * size or x.min() < -1e-9 * size:
                continue
            if d.objective(x) < best_value:
                best, best_value = x, d.objective(x)
    assert best is not None
    return np.maximum(best, 0).reshape(d.shape)


def optimality_gap(
    problem: NodeProblem,
    x: np.ndarray,
    fixed: tuple[tuple[np.ndarray, np.ndarray], ...] = (),
) -> float:
    """How far x is from satisfying the optimality conditions, for the best multipliers there are.

    The largest of: broken equalities and rows, negative entries, gradients that are not zero where x > 0,
    negative gradients where x = 0. Gradients are divided by the smallest eigenvalue of the child's
    G, so that all are in persons; all are divided by the largest entry.
    """
    d = dense(problem, fixed)
    C, k = d.shape
    size = max(1.0, float(x.max()))
    v = x.ravel() / size
    primal = max(
        float(np.abs(d.E @ v - d.e / size).max(initial=0.0)), float(np.maximum(-v, 0).max())
    )
    values = d.R @ v * size
    beyond = np.maximum(d.low - values, values - d.high).max(initial=0.0) / size
    primal = max(primal, float(beyond))
    blocks = [d.P[c * k : (c + 1) * k, c * k : (c + 1) * k] for c in range(C)]
    unit = np.repeat([np.linalg.eigvalsh(block)[0] for block in blocks], k)
    gradient = (d.P @ v - d.q / size) / unit
    at_low, at_high = values <= d.low + 1e-7 * size, values >= d.high - 1e-7 * size
    at = at_low | at_high
    signs = [(None, None)] * len(d.e) + [
        (None if high else 0, None if low else 0)
        for low, high in zip(at_low[at], at_high[at], strict=True)
    ]
    E = np.vstack([d.E, d.R[at]]) / unit
    positive = v > 1e-8
    multipliers = np.zeros(len(E))
    if len(E):
        multipliers = _feasible_multipliers(gradient, E, positive, signs)
    for _ in range(2):
        left = (gradient - multipliers @ E)[positive]
        multipliers = multipliers + np.linalg.lstsq(E[:, positive].T, left, rcond=None)[0]
    reduced = gradient - multipliers @ E
    stationarity = float(np.abs(reduced[positive]).max(initial=0.0))
    sign = float(np.maximum(-reduced[~positive], 0).max(initial=0.0))
    return max(primal, stationarity, sign)


def _feasible_multipliers(
    gradient: np.ndarray,
    E: np.ndarray,
    positive: np.ndarray,
    signs: list[tuple[float | None, float | None]],
) -> np.ndarray:
    """Multipliers of the least violation t: a linear program, since they need not be unique."""
    m = E.shape[0]
    upper = np.hstack([E.T, -np.ones((E.shape[1], 1))])  # multipliers @ E - t <= gradient
    lower = np.hstack([-E.T[positive], -np.ones((positive.sum(), 1))])
    result = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.vstack([upper, lower]),
        b_ub=np.concatenate([gradient, -gradient[positive]]),
        bounds=[*signs, (0, None)],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.x is not None, result.message
    return result.x[:m]
