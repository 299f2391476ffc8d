"""The node problem as a sparse quadratic program, for solvers that know no structure.

Answers become variables: with v_q = Q_q x_c the objective is diagonal, which general solvers
handle far better than the dense G_c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from das.arrays import FloatArray, IntArray
from solvers.problem import NO_LIMIT, LeastSquaresTerm, NodeProblem


@dataclass(frozen=True, eq=False)
class QuadraticProgram:
    """minimise v' P v / 2 - q' v  subject to  low <= A v <= high, v >= floor.

    The first C x k variables are the counts, child by child; the others are answers.

    Attributes:
      P: Sparse symmetric matrix, positive semidefinite.
      q: float64[n].
      A: Sparse matrix of m rows.
      low: float64[m], -inf where a row has no lower limit.
      high: float64[m], inf where it has no upper one.
      floor: float64[n], 0 for counts and -inf for answers.
    """

    P: sp.csc_matrix
    q: FloatArray
    A: sp.csc_matrix
    low: FloatArray
    high: FloatArray
    floor: FloatArray


def quadratic_program(
    problem: NodeProblem, fixed: tuple[tuple[IntArray, FloatArray], ...] = ()
) -> QuadraticProgram:
    """Write the continuous stage of a node out.

    Args:
      problem: The node problem.
      fixed: Further partition sums that are fixed, as groups int64[k] and targets float64[C, m].
    """
    C, k = problem.n_children, problem.n_cells
    n = C * k
    own = [sp.csc_matrix((k, k)) for _ in range(C)]
    q, diagonal, floor = [np.zeros(n)], [np.zeros(n)], [np.zeros(n)]
    lifted: list[sp.csr_matrix] = []
    for term in problem.terms:
        if not isinstance(term, LeastSquaresTerm):
            own = [H + w * sp.csc_matrix(term.gram) for H, w in zip(own, term.weights, strict=True)]
            q[0] = q[0] + (term.weights[:, None] * term.pulled).ravel()
        elif _is_cellwise(term):
            diagonal[0] = diagonal[0] + np.repeat(term.weights, k)
            q[0] = q[0] + (term.weights[:, None] * term.answers[:, term.groups]).ravel()
        else:
            m = term.answers.shape[1]
            lifted.append(sp.kron(sp.eye(C), _sums(term.groups, m), format="csr"))
            diagonal.append(np.repeat(term.weights, m))
            q.append((term.weights[:, None] * term.answers).ravel())
            floor.append(np.full(C * m, -np.inf))
    blocks, low, high = _constraints(problem, fixed)
    answers = sum(matrix.shape[0] for matrix in lifted)
    rows = [sp.hstack([block, sp.csr_matrix((block.shape[0], answers))]) for block in blocks]
    if lifted:
        rows.append(sp.hstack([sp.vstack(lifted), -sp.eye(answers)]))
        low.append(np.zeros(answers))
        high.append(np.zeros(answers))
    counts = sp.block_diag(own, format="csc")
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


def _is_cellwise(term: LeastSquaresTerm) -> bool:
    return bool(term.answers.shape[1] == len(term.groups))


def _sums(groups: IntArray, m: int) -> sp.csr_matrix:
    k = len(groups)
    return sp.csr_matrix((np.ones(k), (groups, np.arange(k))), shape=(m, k))


def _constraints(
    problem: NodeProblem, fixed: tuple[tuple[IntArray, FloatArray], ...]
) -> tuple[list[sp.csr_matrix], list[FloatArray], list[FloatArray]]:
    """Rows on the counts, with their limits."""
    C, k = problem.n_children, problem.n_cells
    blocks: list[sp.csr_matrix] = []
    low: list[FloatArray] = []
    high: list[FloatArray] = []

    def add(block: sp.csr_matrix, least: FloatArray, most: FloatArray) -> None:
        blocks.append(block)
        low.append(least)
        high.append(most)

    if problem.parent is not None:
        parent = problem.parent.astype(float)
        add(sp.kron(np.ones((1, C)), sp.eye(k), format="csr"), parent, parent)
    equalities = [(e.groups, e.targets.astype(float)) for e in problem.exact]
    for groups, targets in (*equalities, *fixed):
        sums = _sums(groups, targets.shape[1])
        add(sp.kron(sp.eye(C), sums, format="csr"), targets.ravel(), targets.ravel())
    for rows in problem.rows:
        least, most = rows.least.astype(float).ravel(), rows.most.astype(float).ravel()
        add(
            sp.kron(sp.eye(C), sp.csr_matrix(rows.coefficients.astype(float)), format="csr"),
            np.where(least <= -NO_LIMIT, -np.inf, least),
            np.where(most >= NO_LIMIT, np.inf, most),
        )
    return blocks, low, high
