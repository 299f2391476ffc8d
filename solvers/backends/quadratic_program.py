"""The node problem as a sparse quadratic program, for general solvers.

Answers become variables: with v_q = Q_q x_c the objective is diagonal, which general solvers
solve far faster than the dense G_c. `estimate` certifies what a solver returns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from das.arrays import FloatArray
from solvers.constraints import every_child, of_node, sums_of_groups
from solvers.least_squares.certificate import Conditions, Rows, judge
from solvers.problem import Certificate, Estimate, Fixed, LeastSquaresTerm, NodeProblem, Status


@dataclass(frozen=True, eq=False)
class QuadraticProgram:
    """Program: minimise v' P v / 2 - q' v subject to low <= A v <= high, v >= floor.

    The first C x k variables are the counts, child by child; the others are answers.

    Attributes:
      P: Sparse symmetric matrix, positive semidefinite.
      q: float64[n], linear part of the objective.
      A: Sparse matrix of m rows.
      low: float64[m], -inf for no lower bound.
      high: float64[m], inf for no upper bound.
      floor: float64[n], 0 for counts and -inf for answers.
    """

    P: sp.csc_matrix
    q: FloatArray
    A: sp.csc_matrix
    low: FloatArray
    high: FloatArray
    floor: FloatArray


def quadratic_program(problem: NodeProblem, fixed: Fixed = ()) -> QuadraticProgram:
    """Write the continuous stage of a node as a quadratic program.

    Args:
      problem: The node problem.
      fixed: Further partition sums that are fixed, as groups int64[k] and targets float64[C, m].
    """
    C, k = problem.n_children, problem.n_cells
    n = C * k
    gram = [sp.csc_matrix((k, k)) for _ in range(C)]
    q, diagonal, floor = [np.zeros(n)], [np.zeros(n)], [np.zeros(n)]
    lifted: list[sp.csr_array] = []
    for term in problem.terms:
        if not isinstance(term, LeastSquaresTerm):
            squares = sp.csc_matrix(term.gram)
            gram = [G + w * squares for G, w in zip(gram, term.weights, strict=True)]
            q[0] = q[0] + (term.weights[:, None] * term.adjoint).ravel()
        elif term.answers.shape[1] == k:  # of single cells
            diagonal[0] = diagonal[0] + np.repeat(term.weights, k)
            q[0] = q[0] + (term.weights[:, None] * term.answers[:, term.groups]).ravel()
        else:
            m = term.answers.shape[1]
            lifted.append(every_child(C, sums_of_groups(term.groups, m)))
            diagonal.append(np.repeat(term.weights, m))
            q.append((term.weights[:, None] * term.answers).ravel())
            floor.append(np.full(C * m, -np.inf))
    constraints = list(of_node(problem, fixed))
    low, high = [row.lower for row in constraints], [row.upper for row in constraints]
    answers = sum(matrix.shape[0] for matrix in lifted)
    rows = [sp.hstack([row.A, sp.csr_array((row.A.shape[0], answers))]) for row in constraints]
    if lifted:
        rows.append(sp.hstack([sp.vstack(lifted), -sp.eye_array(answers)]))
        low.append(np.zeros(answers))
        high.append(np.zeros(answers))
    counts = sp.block_diag(gram, format="csc")
    P = sp.block_diag([counts, sp.csc_matrix((answers, answers))]) + sp.diags(
        np.concatenate(diagonal)
    )
    return QuadraticProgram(
        sp.csc_matrix(P),
        np.concatenate(q),
        sp.csc_matrix(sp.vstack(rows)) if rows else sp.csc_matrix((0, n + answers)),
        np.concatenate(low) if low else np.zeros(0),
        np.concatenate(high) if high else np.zeros(0),
        np.concatenate(floor),
    )


def estimate(
    problem: NodeProblem,
    program: QuadraticProgram,
    v: FloatArray,
    y: FloatArray,
    tolerance: float,
    iterations: int,
) -> Estimate:
    """Certify a solver's point by the optimality conditions; the solver's status is not used.

    Interior-point solvers end near the boundary. A polish guesses from the returned point which
    counts are zero and which rows are at a bound, and solves the remaining equalities (as OSQP
    does: Stellato et al., Math. Program. Comput. 12 (2020), section 5.2). It is kept only if its
    certificate is better.

    With z = P v - q - A'y, a point is optimal if it is feasible, z >= 0 with z v = 0 on the counts,
    z = 0 on the answers, and y > 0 (< 0) only on rows at their lower (upper) bound. The gap is the
    difference of the primal and dual objectives.

    Args:
      problem: The node problem.
      program: The node problem as a quadratic program.
      v: float64[n], counts first.
      y: float64[m], multipliers of the rows.
      tolerance: Largest accepted residual.
      iterations: Iterations the solver used.
    """
    certificate = _certify(problem, program, v, y)
    if certificate.residual > tolerance * 1e-2:
        polished, multipliers = _polish(program, v, y)
        after = _certify(problem, program, polished, multipliers)
        if after.residual < certificate.residual:
            v, certificate = polished, after
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    n = problem.n_children * problem.n_cells
    counts = np.maximum(v[:n], 0).reshape(problem.n_children, problem.n_cells)
    return Estimate(counts, certificate, status, iterations, 0)


def _certify(
    problem: NodeProblem, program: QuadraticProgram, v: FloatArray, y: FloatArray
) -> Certificate:
    """Compute the certificate; answers are variables without sign, all constraints are rows."""
    C, k = problem.n_children, problem.n_cells
    n = C * k
    raw, v = v, np.where(program.floor == 0, np.maximum(v, 0), v)
    y = np.where(np.isinf(program.low), np.minimum(y, 0), y)
    y = np.where(np.isinf(program.high), np.maximum(y, 0), y)
    z = program.P @ v - program.q - program.A.T @ y
    return judge(
        Conditions(
            raw[None, :n],
            z[None, :n],
            np.array([_persons(program, n)]),
            float(0.5 * v @ (program.P @ v) - program.q @ v),
            rows=Rows((program.A @ v)[None], program.low[None], program.high[None], y[None]),
            unsigned=z[n:],
        )
    )


def _polish(
    program: QuadraticProgram, v: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve with the guessed zeros and active rows; a small shift allows dependent rows."""
    z = program.P @ v - program.q - program.A.T @ y
    free = np.flatnonzero((program.floor != 0) | (v > z / max(1.0, np.abs(program.P.data).max())))
    at_low = np.isfinite(program.low) & (y > 0)
    at_high = np.isfinite(program.high) & (y < 0)
    active = np.flatnonzero(at_low | at_high | (program.low == program.high))
    side = np.where(at_high & ~at_low, program.high, program.low)[active]
    A, P = program.A[active][:, free], program.P[free][:, free]
    unit = float(np.abs(program.P.data).max(initial=1.0))
    shift = sp.diags(np.concatenate([np.full(len(free), 1e-9), np.full(len(active), -1e-9)]))
    system = sp.bmat([[P / unit, -A.T], [-A, None]], format="csc")
    right = np.concatenate([program.q[free] / unit, -side])
    try:
        factor = splu(sp.csc_matrix(system + shift))
    except RuntimeError:  # singular: the guessed active set has no unique solution
        return v, y
    solution = np.zeros(len(right))
    for _ in range(10):
        solution = solution + factor.solve(right - system @ solution)
    counts, multipliers = np.zeros_like(v), np.zeros_like(y)
    counts[free] = solution[: len(free)]
    multipliers[active] = solution[len(free) :] * unit
    return counts, multipliers


def _persons(program: QuadraticProgram, n: int) -> float:
    """Return the smallest positive curvature of the counts; it converts gradients to persons."""
    diagonal = program.P.diagonal()[:n]
    return float(max(diagonal.min(initial=np.inf), 1e-300)) if n else 1.0
