"""Continuous stage: nonnegative least squares over all children of a parent.

A primal-dual active-set Newton method finds the supports and solves for them to machine precision,
usually in a few steps. It guesses the supports and the rows at their bounds, solves the resulting
linear system, and corrects the guess where x - gradient / diagonal changes sign. If it cycles,
interior-point iterations find the solution, and active-set steps finish from there. Both solve
linear systems by block elimination (`interior_point.Elimination`). The result has a certificate
computed from the problem itself. If the certificate fails, a linear program decides whether the
constraints of the node contradict one another.

References:
  Hintermueller, Ito & Kunisch, SIAM J. Optim. 13 (2003), 865-888 (as semismooth Newton).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from das.arrays import FloatArray, IntArray
from solvers.constraints import contradiction
from solvers.least_squares import arrays
from solvers.least_squares.arrays import Guess
from solvers.least_squares.blocks import Quadratic, arrange
from solvers.least_squares.certificate import Point, certify, gradient, origin
from solvers.least_squares.interior_point import follow_path
from solvers.least_squares.machine_code import kernels
from solvers.problem import Certificate, Estimate, Fixed, NodeProblem, Status

_PATH_STEPS = 100  # interior-point steps; then the status is LIMIT. Default, not measured.
# Factors of the penalty of equalities in factorised matrices. If noise is a million times the
# counts, so are the multipliers, and barriers dominate the equalities. Children of 33 and 21
# persons with answers of 1e8 ended with sums off by a quarter at factor 1, 1e-9 at 1e2 to 1e8.
_PENALTIES = (1.0, 1e4, 1e8)
# Steps stop below the tolerance: the certificate has more conditions than their stopping test.
OVERSHOOT = 1e-2

# Active sets are found in few steps or not at all. After MOST_STEPS steps, or STALE_STEPS without a
# smaller residual, they are assumed to cycle, and interior points take over. Default, not measured.
MOST_STEPS = 15
STALE_STEPS = 5


def iterate(q: Quadratic, guess: Guess, start: Point, tolerance: float) -> tuple[Point, float, int]:
    """Iterate from a guess.

    Args:
      q: The node problem.
      guess: First supports and rows.
      start: A point with multipliers close to the solution.
      tolerance: Residual at which to stop.

    Returns:
      The point of the smallest residual, that residual, and the steps used.
    """
    k = q.linear.shape[1]
    order = q.cells[q.cells < k]  # blocks end to end
    starts = np.zeros(len(q.cells) + 1, np.int64)
    np.cumsum((q.cells < k).sum(1), out=starts[1:])
    groups = np.array([e.groups for e in q.equalities], np.int64).reshape(-1, k)
    in_order = np.ascontiguousarray
    point = arrays.Point(
        in_order(start.x[:, order]),
        start.coupling[order],
        _padded(q, start.sums),
        np.array(start.rows, order="C"),
    )
    problem = arrays.Problem(
        q.scale,
        in_order(q.linear[:, order]),
        np.zeros(k) if q.parent is None else q.parent[order],
        q.parent is not None,
        starts,
        in_order(q.blocks),
        in_order(q.outside[..., order]),
        in_order(q.diagonal[:, order]),
        in_order(q.free[:, order]),
        in_order(groups[:, order]),
        _padded(q, tuple(e.targets for e in q.equalities)),
        np.array([e.targets.shape[1] for e in q.equalities], np.int64),
        np.array(q.is_inside, np.bool_),
        in_order(q.coefficients[:, order]),
        in_order(q.least),
        in_order(q.most),
        q.penalty,
    )
    first = Guess(in_order(guess.support[:, order]), np.array(guess.sides, order="C"))
    residual, steps = kernels().active_set(
        tuple(first), tuple(point), tuple(problem), tolerance, MOST_STEPS, STALE_STEPS
    )
    sums = tuple(
        mu[:, : e.targets.shape[1]] for mu, e in zip(point.sums, q.equalities, strict=True)
    )
    back = np.empty_like(order)
    back[order] = np.arange(k)
    end = Point(in_order(point.x[:, back]), point.coupling[back], sums, point.rows)
    return end, float(residual), int(steps)


def _padded(q: Quadratic, arrays: tuple[FloatArray, ...]) -> FloatArray:
    """Return float64[equalities, C, largest m]: arrays padded with zeros."""
    most = max((e.targets.shape[1] for e in q.equalities), default=0)
    out = np.zeros((len(arrays), len(q.linear), most))
    for number, array in enumerate(arrays):
        out[number, :, : array.shape[1]] = array
    return out


def next_guess(q: Quadratic, point: Point, g: FloatArray) -> Guess:
    """Return the supports and active rows that a point and its gradient suggest.

    Args:
      q: The node problem.
      point: A candidate solution.
      g: float64[C, k], the gradient of the Lagrangian at the point.
    """
    f = q.scale[:, None]
    support = (point.x - g / (f * q.diagonal) > 0) & q.free
    return Guess(support, _sides(q, point.x, point.rows / f))


def _sides(q: Quadratic, x: FloatArray, nu: FloatArray) -> IntArray:
    values = x @ q.coefficients.T
    low = (nu - (values - q.least) > 0) | (q.least == q.most)
    high = (-nu - (q.most - values) > 0) & ~low
    return np.where(low, -1, np.where(high, 1, 0)).astype(np.int64)


def first_guess(q: Quadratic) -> Guess:
    """Return the supports of each child's unconstrained solution, projected to the parent.

    The projection in the metric of the diagonal is separate for each cell. If the query of single
    cells has most of the weight, it is close to the solution.
    """
    x = _separate_solutions(q)
    support = q.free & (x > 0)
    if q.parent is not None:
        give = np.ascontiguousarray(1 / (q.scale[:, None] * q.diagonal))
        x, support = kernels().project_by_cell(x, give, q.free, q.parent)
    return Guess(support, _sides(q, x, np.zeros_like(q.least)))


def _separate_solutions(q: Quadratic) -> FloatArray:
    """Minimise x' H_c x / 2 - b_c' x for each child, with a penalty for given sums."""
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


def solve_quadratic(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate:
    """Solve the continuous stage of a node, in one pass and without its `leaves`.

    Args:
      problem: The node problem.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further given partition sums, as groups int64[k] and targets float64[C, m]; they need
        not be nested.

    Returns:
      The estimate. Its status is LIMIT if the tolerance was not reached, which callers must not
      take for a solution, and INFEASIBLE, with evidence, if no point keeps every constraint.

    Raises:
      SolverError: The queries and equalities do not have full column rank in some child.
    """
    q, point, certificate, steps = _by_supports(problem, tolerance, fixed)
    iterations = 0
    if not certificate.residual <= tolerance:
        reason = contradiction(problem, fixed)
        if reason:
            values = np.maximum(point.x, 0)
            return Estimate(values, certificate, Status.INFEASIBLE, 0, steps, reason)
        for factor in _PENALTIES:
            stiff = replace(q, penalty=q.penalty * factor)
            path, _, passed = follow_path(stiff, point, tolerance * OVERSHOOT, _PATH_STEPS)
            guess = next_guess(stiff, path, gradient(stiff, path))
            end, _, more = iterate(stiff, guess, path, tolerance * OVERSHOOT)
            steps, iterations = steps + more, iterations + passed
            for candidate in (path, end):
                after = certify(problem, fixed, q, candidate)
                if after.residual < certificate.residual or not np.isfinite(certificate.residual):
                    point, certificate = candidate, after
            if certificate.residual <= tolerance:
                break
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(np.maximum(point.x, 0), certificate, status, iterations, steps)


def solve_by_supports(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate | None:
    """Solve the continuous stage of a node where active-set steps find its supports.

    For callers that have a faster alternative than interior points.

    Args:
      problem: The node problem, in one pass and without its `leaves`.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further given partition sums, as in `solve_quadratic`.

    Returns:
      The solution; None if the steps found none.

    Raises:
      SolverError: The queries and equalities do not have full column rank in some child.
    """
    _, point, certificate, steps = _by_supports(problem, tolerance, fixed)
    if not certificate.residual <= tolerance:
        return None
    return Estimate(np.maximum(point.x, 0), certificate, Status.SOLVED, 0, steps)


def _by_supports(
    problem: NodeProblem, tolerance: float, fixed: Fixed
) -> tuple[Quadratic, Point, Certificate, int]:
    """Take active-set steps from separate solutions of children; return the end and the steps."""
    q = arrange(problem, fixed)
    guess = first_guess(q)
    point, _, steps = iterate(q, guess, origin(q), tolerance * OVERSHOOT)
    return q, point, certify(problem, fixed, q, point), steps
