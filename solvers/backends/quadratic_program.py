"""The node problem as a sparse quadratic program, for general solvers.

Answers become variables: with v_q = Q_q x_c the objective is diagonal, which general solvers
solve far faster than the dense G_c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from das.arrays import FloatArray, IntArray
from solvers.constraints import every_child, of_node, sums_of_groups
from solvers.problem import LeastSquaresTerm, NodeProblem


@dataclass(frozen=True, eq=False)
class QuadraticProgram:
    """Program: minimise v' P v / 2 - q' v subject to low <= A v <= high, v >= floor.

    The first C x k variables are the counts, child by child; the others are answers.

    Attributes:
      P: Sparse symmetric matrix, positive semidefinite.
      q: float64[n].
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


def quadratic_program(
    problem: NodeProblem, fixed: tuple[tuple[IntArray, FloatArray], ...] = ()
) -> QuadraticProgram:
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
