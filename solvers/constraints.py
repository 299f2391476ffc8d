"""Constraints of a node as sparse rows, for linear, quadratic and integer programs over its counts.

Counts are the first variables of a program, child by child.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from das.arrays import FloatArray, IntArray
from invariants.leaves import Leaves
from solvers.problem import NO_LIMIT, Fixed, NodeProblem, RowsTerm


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Linear constraint lower <= A x <= upper.

    Attributes:
      A: Sparse, [m, C n]; n cells, or groups of cells.
      lower: float64[m], -inf if none.
      upper: float64[m], inf if none.
      names: Description of each row, for messages.
    """

    A: sp.csr_array
    lower: FloatArray
    upper: FloatArray
    names: tuple[str, ...]


def limits(bounds: npt.NDArray[np.int64]) -> FloatArray:
    """Return lower or upper bounds as floats; -NO_LIMIT becomes -inf, and NO_LIMIT becomes inf."""
    return np.where(np.abs(bounds) >= NO_LIMIT, np.copysign(np.inf, bounds), bounds.astype(float))


def sums_of_groups(groups: IntArray, size: int) -> sp.csr_array:
    """Return the 0/1 matrix that sums n cells by group, sparse [size, n].

    Args:
      groups: int64[n], the group of each cell.
      size: Number of groups.
    """
    n = len(groups)
    return sp.csr_array((np.ones(n), (groups, np.arange(n))), shape=(size, n))


# Without `format`, scipy may store zeros in blocks, which solvers treat as entries.
def every_child(C: int, matrix: sp.sparray) -> sp.csr_array:
    """Return a block diagonal matrix: `matrix` once per child."""
    return sp.csr_array(sp.kron(sp.eye_array(C), matrix, format="csr"))


def sum_of_children(C: int, n: int) -> sp.csr_array:
    """Return the matrix [n, C n] that sums every cell over the children."""
    return sp.csr_array(sp.kron(np.ones((1, C)), sp.eye_array(n), format="csr"))


def given_sums(groups: IntArray, targets: npt.NDArray[np.generic], name: str = "") -> SparseRows:
    """Return the constraint that the sums by group of every child equal the targets.

    Args:
      groups: int64[k], the group of each cell.
      targets: number[C, m], the required sums.
      name: Name of the constraint in errors.
    """
    C, m = targets.shape
    sums = targets.ravel().astype(float)
    return SparseRows(every_child(C, sums_of_groups(groups, m)), sums, sums, (name,) * (C * m))


def linear_rows(rows: RowsTerm) -> SparseRows:
    """Return the constraint that the linear rows of every child are within their bounds."""
    C = len(rows.least)
    return SparseRows(
        every_child(C, sp.csr_array(rows.coefficients.astype(float))),
        limits(rows.least).ravel(),
        limits(rows.most).ravel(),
        tuple(f"row {name}" for name in rows.names) * C,
    )


def of_node(problem: NodeProblem, fixed: Fixed = ()) -> Iterator[SparseRows]:
    """Yield all constraints of a node except nonnegativity and leaves.

    Args:
      problem: The node problem.
      fixed: Further given partition sums, as groups int64[k] and targets float64[C, m].
    """
    C, k = problem.n_children, problem.n_cells
    if problem.parent is not None:
        parent = problem.parent.astype(float)
        yield SparseRows(sum_of_children(C, k), parent, parent, ("the sum of the children",) * k)
    sums = [(exact.groups, exact.targets) for exact in problem.exact]
    for number, (groups, targets) in enumerate((*sums, *fixed)):
        yield given_sums(groups, targets, f"equality {number}")
    for rows in problem.rows:
        yield linear_rows(rows)


def leaf_rows(leaves: Leaves) -> tuple[sp.csr_array, sp.csr_array]:
    """Return the rows on the persons of t types in the R patterns of leaves below one child.

    Returns:
      Sparse [t, R t], sums of each type, and sparse [R, R t], sums of each pattern.
    """
    R, t = leaves.least.shape
    return sum_of_children(R, t), every_child(R, sp.csr_array(np.ones((1, t))))


_SLACK = 1e-6  # relative: sums fixed by earlier passes have the residual of their certificate


def contradiction(problem: NodeProblem, fixed: Fixed = ()) -> str:
    """Find the least total violation of the constraints that any x >= 0 achieves.

    Args:
      problem: The node problem; its `leaves` are not considered.
      fixed: Further given partition sums.

    Returns:
      The largest violation as text, or "" if all constraints can be kept together.
    """
    from scipy.optimize import linprog  # takes a third of a second, for infeasible nodes only

    constraints = list(of_node(problem, fixed))
    if not constraints:
        return ""
    A = sp.vstack([rows.A for rows in constraints]).tocsr()
    least = np.concatenate([rows.lower for rows in constraints])
    most = np.concatenate([rows.upper for rows in constraints])
    names = [name for rows in constraints for name in rows.names]
    n, m = problem.n_children * problem.n_cells, len(least)
    size = max(1.0, float(np.abs(least[np.isfinite(least)]).max(initial=0.0)))
    lacking, exceeding = np.isfinite(least), np.isfinite(most)
    eye = sp.eye_array(m).tocsr()
    result = linprog(
        np.concatenate([np.zeros(n), np.ones(2 * m)]),
        A_ub=sp.vstack(
            [
                sp.hstack([-A[lacking], -eye[lacking], sp.csr_array((lacking.sum(), m))]),
                sp.hstack([A[exceeding], sp.csr_array((exceeding.sum(), m)), -eye[exceeding]]),
            ]
        ).tocsr(),
        b_ub=np.concatenate([-least[lacking], most[exceeding]]) / size,
        bounds=(0, None),
        method="highs",
    )
    if result.x is None or result.fun <= _SLACK * m**0.5:
        return ""
    off = result.x[n : n + m] + result.x[n + m :]
    worst = int(np.argmax(off))
    return (
        "no table keeps every constraint: the violations add up to at least "
        f"{result.fun * size:.6g} persons, for example {names[worst]} by {off[worst] * size:.6g}"
    )
