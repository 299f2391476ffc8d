"""Continuous stage for nodes with many live cells: no matrix over cells, ever.

Dual Newton method. Every query but the detailed one gets multipliers u_q, one per child and group,
and for given u the best cells are known in closed form: each live cell assigns the parent's persons
to the children by a projection onto a simplex,

    x_cj = max(0, d_cj + (sum_q u_cq[j] + lambda_j) / w_c),   sum_c x_cj = p_j,

d the detailed answers and w_c their precision. So every iterate keeps x >= 0 and sum_c x_c = p, and
the dual function is concave, piecewise quadratic and once differentiable; its gradient is
y_q - u_q / w_q - Q_q x. Newton steps (`solvers.dual_newton.face`) with a line search climb it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from das.arrays import BoolArray, FloatArray
from solvers.dual_newton.face import Face, Roles, Step, assign_roles
from solvers.dual_newton.layers import FORBIDDEN, Lifted, lift
from solvers.least_squares.blocks import Fixed
from solvers.least_squares.certificate import Conditions, Rows, judge
from solvers.least_squares.machine_code import kernels
from solvers.problem import (
    Certificate,
    Estimate,
    LeastSquaresTerm,
    NodeProblem,
    Status,
    group_sums,
)

# Many given sums contradict each other on most sets of positive cells, and an undamped step then
# goes nowhere near. Of 12 nodes of persons bound to redistricting counts, with 16 to 97 given sums
# per child, all were solved with 0.1 to 3 of the variance of a cell, and soonest with 1; with 0.01
# and with 10 some stopped short, and without damping all did but one. One given sum per child is
# mostly climbed without: counties and tracts of the redistricting data take 2.5 to 3 times as long
# with it. But 64 of 65 nodes of blocks' households, whose cells are nearly all noise, diverge.
DAMPING = 1.0
# Of 31 nodes of persons of blocks, one of 92 children and 1,469 cells took 236 steps, over a
# hundred of them without a smaller residual before the last few; the others took 140 at most.
DAMPED_STEPS = 1_000
DAMPED_STALE = 300
_NEWTON_STEPS = 200  # then the status is LIMIT
_TRIALS = 8  # of the line search
_ITERATIONS = 300  # of conjugate gradients in a step
_STALE_STEPS = 100  # without a smaller residual
# Relative to the first variance of a slack: growth per step, most, and the damping of rows that
# bind, since those that bind in all children can contradict the parent on a face.
_FREER, _FREEST, _DAMPING = 2.0, 100.0, 0.1
_LOOSE, _TIGHT = 0.3, 1e-3  # relative residuals of conjugate gradients
_NEAR = 100.0  # times the tolerance: from here on the certificate is asked


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Multipliers and what they imply, as a certificate sees them.

    Attributes:
      lifted: The lifted problem.
      x: float64[C, k], the counts.
      u: float64[C, m] per layer.
      nu: float64[C, r], of the rows.
      multiplier: float64[k], of the coupling.
    """

    lifted: Lifted
    x: FloatArray
    u: list[FloatArray]
    nu: FloatArray
    multiplier: FloatArray


class DualIterate:
    """The dual iterate and what it implies; mutable."""

    def __init__(self, q: Lifted) -> None:
        self.lifted = q
        C = len(q.unit)
        self.u = [np.zeros((C, layer.size)) for layer in q.layers]
        self.nu = np.zeros((C, len(q.rows)))
        self.slack_variance = q.slack_variance
        self.center = np.clip(np.zeros_like(q.least), q.least, q.most)
        self._variance = [
            np.where(np.isfinite(layer.variance), layer.variance, 0.0)[:, None]
            for layer in q.layers
        ]
        self._asked = [np.isfinite(layer.variance)[:, None] for layer in q.layers]
        self.field = q.base.copy()
        self.x, self.multiplier = project(self.field, q.unit, q.parent)

    def slack(self, nu: FloatArray) -> FloatArray:
        """R x as the multipliers want it."""
        q = self.lifted
        return np.clip(self.center - nu * self.slack_variance, q.least, q.most)

    def inside(self) -> BoolArray:
        """Rows that do not bind."""
        q = self.lifted
        wanted = self.center - self.nu * self.slack_variance
        return (wanted > q.least) & (wanted < q.most)

    def residuals(self) -> tuple[list[FloatArray], FloatArray]:
        """Gradient of the dual function: per layer [C, m], and of the rows [C, r]."""
        q = self.lifted
        sums = q.sums(self.x)
        out = [
            np.where(asked, layer.answers - variance * u - s, 0.0)
            for layer, u, s, variance, asked in zip(
                q.layers, self.u, sums, self._variance, self._asked, strict=True
            )
        ]
        return out, self.slack(self.nu) - self.x @ q.rows.T

    def off(self, residuals: list[FloatArray], rows: FloatArray) -> float:
        """About what the certificate will say, for much less work."""
        q = self.lifted
        found = [float(np.abs(rows).max(initial=0.0))]
        for layer, residual in zip(q.layers, residuals, strict=True):
            precise = (layer.variance > 0) & np.isfinite(layer.variance)
            scale = np.where(precise, layer.variance * q.unit, 1.0)
            found.append(float(np.abs(residual / scale[:, None]).max(initial=0.0)))
        return max(found) / max(1.0, float(self.x.max(initial=0.0)))

    def move(self, step: Step) -> float:
        """Go along a step as far as the dual function rises; returns how far, 1 for all of it."""
        q = self.lifted
        change = q.spread(step.layers, step.rows @ q.rows)
        change /= q.unit[:, None]
        constant, linear = 0.0, 0.0
        for layer, u, du, variance in zip(
            q.layers, self.u, step.layers, self._variance, strict=True
        ):
            constant += float((du * (layer.answers - variance * u)).sum())
            linear += float((variance * du**2).sum())

        def slope(t: float, x: FloatArray) -> float:
            rows = float((step.rows * self.slack(self.nu + t * step.rows)).sum())
            moved = float(q.unit @ np.einsum("ck,ck->c", x, change))
            return constant - t * linear + rows - moved

        first = slope(0.0, self.x)
        t, low, high = 1.0, (0.0, first), (np.inf, 0.0)
        for trial in range(_TRIALS):
            if trial:
                cut = low[1] / (low[1] - high[1])
                t = low[0] + (high[0] - low[0]) * min(0.9, max(0.1, cut))
            field = self.field + t * change
            x, multiplier = project(field, q.unit, q.parent, self.multiplier)
            now = slope(t, x)
            if now >= 0:
                low = (t, now)
            else:
                high = (t, now)
            if first <= 0 or t == low[0] == 1 or abs(now) <= 0.1 * first:
                break
        self.field, self.x, self.multiplier = field, x, multiplier
        self.u = [u + t * du for u, du in zip(self.u, step.layers, strict=True)]
        self.nu = self.nu + t * step.rows
        self.center = self.slack(self.nu)
        freer = np.minimum(_FREER * self.slack_variance, _FREEST * q.slack_variance)
        self.slack_variance = freer
        return t


def project(
    field: FloatArray, unit: FloatArray, parent: FloatArray | None, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Per cell, the children's persons nearest to `field` that are nonnegative and sum to parent.

    Args:
      field: float64[C, k].
      unit: float64[C], weight of the distance per child.
      parent: float64[k], positive, or None for x >= 0 alone.
      start: float64[k], multipliers to begin from.

    Returns:
      float64[C, k] and the multiplier per cell: x = max(0, field + multiplier / unit).

    References:
      Michelot, J. Optim. Theory Appl. 50 (1986), 195-200 (projection onto a simplex).
    """
    if parent is None:
        return np.maximum(field, 0.0), np.zeros(field.shape[1])
    multiplier = np.full(field.shape[1], -np.inf) if start is None else start.copy()
    x = kernels().project_by_child(field, 1 / unit, parent, multiplier, FORBIDDEN / 2)
    return x, multiplier


def solve_matrix_free(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate:
    """Solve the continuous stage of a node with many live cells.

    Args:
      problem: The node problem; partition queries only, detailed asked of every child.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further partition sums that are given, as in `least_squares.solve_quadratic`; one of
        the sums that are given refines all others.

    Returns:
      The estimate; its status is LIMIT if the tolerance was not reached, as where no solution
      exists, which callers must not take for a solution.

    Raises:
      SolverError: A query is not a partition, or some child has no detailed answers.
    """
    q = lift(problem, fixed)
    roles = assign_roles(q)
    first, *others = dampings(q)
    estimate = _climb(problem, q, roles, first, tolerance)
    for damping in others:
        if estimate.status is Status.SOLVED:
            break
        estimate = _climb(problem, q, roles, damping, tolerance)
    return estimate


def dampings(q: Lifted) -> tuple[float, ...]:
    """How damped given sums are, at first and where that stops short."""
    given = [layer.size for layer in q.layers if layer.is_exact]
    if any(size > 1 for size in given):
        return (DAMPING,)
    return (0.0, DAMPING) if given else (0.0,)


def _climb(
    problem: NodeProblem, q: Lifted, roles: Roles, damping: float, tolerance: float
) -> Estimate:
    dual = DualIterate(q)
    most, most_stale = (DAMPED_STEPS, DAMPED_STALE) if damping else (_NEWTON_STEPS, _STALE_STEPS)
    iterations, forcing = 0, _LOOSE
    best, stale = np.inf, 0
    steps = 0
    certificate = None
    while True:
        residuals, rows = dual.residuals()
        off = dual.off(residuals, rows)
        certificate = certify(problem, dual) if off <= _NEAR * tolerance else None
        if certificate:
            off = certificate.residual
        best, stale = min(best, off), stale + 1
        if off == best:
            stale = 0
        if (certificate and off <= tolerance) or stale >= most_stale or steps == most:
            break
        slacks = np.where(dual.inside(), dual.slack_variance, _DAMPING * q.slack_variance)
        face = Face(_damped(q, damping * min(1.0, off)), roles, dual.x > 0, slacks)
        step = face.solve(residuals, rows, forcing, _ITERATIONS)
        iterations += step.iterations
        steps += 1
        # Where the support still changes much, an exact direction is not worth its price.
        t = dual.move(step)
        forcing = _LOOSE if t < 1 else _TIGHT
    certificate = certificate or certify(problem, dual)
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(dual.x, certificate, status, iterations, steps)


def _damped(q: Lifted, damping: float) -> Lifted:
    """Given sums with a variance for the Newton step, relative to that of a cell; 0 for none."""
    if not damping:
        return q
    layers = [
        replace(layer, variance=damping / q.unit) if layer.is_exact else layer for layer in q.layers
    ]
    return replace(q, layers=tuple(layers))


def certify(problem: NodeProblem, dual: DualIterate | DualPoint) -> Certificate:
    """Measure how far the iterate and its multipliers are from optimal, from the problem itself."""
    q, x = dual.lifted, dual.x
    up = np.where(np.isfinite(q.least), np.maximum(dual.nu, 0), 0.0)
    down = np.where(np.isfinite(q.most), np.maximum(-dual.nu, 0), 0.0)
    gradient = -(up - down) @ q.rows
    objective = 0.0
    terms = [term for term in problem.terms if isinstance(term, LeastSquaresTerm)]
    for term, settled in zip(terms, q.settled, strict=True):
        weights = term.weights[:, None]
        sums = group_sums(x, term.groups, term.answers.shape[1])
        objective += float((weights * sums * (0.5 * sums - term.answers)).sum())
        if not settled:  # else the multiplier of the invariant takes it up
            gradient += (weights * (sums - term.answers))[:, term.groups]
    equalities = []
    for layer, u in zip(q.layers, dual.u, strict=True):
        if layer.is_exact:
            equalities.append((u, group_sums(x, layer.groups, layer.size) - layer.answers))
            gradient -= u[:, layer.groups]
    if q.parent is not None:
        equalities.append((dual.multiplier, x.sum(0) - q.parent))
        gradient -= dual.multiplier
    gradient[q.base <= FORBIDDEN] = 0.0
    rows = Rows(x @ q.rows.T, q.least, q.most, up - down)
    return judge(Conditions(x, gradient, q.unit, objective, equalities, rows))
