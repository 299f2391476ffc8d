"""Constraints of a node as sparse rows: what every program over its counts is written from.

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
from solvers.problem import NO_LIMIT, NodeProblem, RowsTerm


@dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= A x <= upper.

    Attributes:
      A: Sparse, [m, C n]; n cells, or groups of cells.
      lower: float64[m], -inf if none.
      upper: float64[m], inf if none.
      names: What each row says, for messages.
    """

    A: sp.csr_array
    lower: FloatArray
    upper: FloatArray
    names: tuple[str, ...]


def limits(bounds: npt.NDArray[np.int64]) -> FloatArray:
    """Bounds as floats, infinite where they are those of `NO_LIMIT`."""
    return np.where(np.abs(bounds) >= NO_LIMIT, np.copysign(np.inf, bounds), bounds.astype(float))


def sums_of_groups(groups: IntArray, size: int) -> sp.csr_array:
    """Matrix [size, n] that sums n cells by group."""
    n = len(groups)
    return sp.csr_array((np.ones(n), (groups, np.arange(n))), shape=(size, n))


# Without a format, products may come in blocks that store zeros, which solvers take for entries.
def every_child(C: int, matrix: sp.sparray) -> sp.csr_array:
    """Block diagonal: the matrix once per child."""
    return sp.csr_array(sp.kron(sp.eye_array(C), matrix, format="csr"))


def sum_of_children(C: int, n: int) -> sp.csr_array:
    """Matrix [n, C n] that sums every cell over the children."""
    return sp.csr_array(sp.kron(np.ones((1, C)), sp.eye_array(n), format="csr"))


def given_sums(groups: IntArray, targets: npt.NDArray[np.generic], name: str = "") -> Constraint:
    """Sums by group are the targets [C, m] of every child."""
    C, m = targets.shape
    wanted = targets.ravel().astype(float)
    return Constraint(every_child(C, sums_of_groups(groups, m)), wanted, wanted, (name,) * (C * m))


def linear_rows(rows: RowsTerm) -> Constraint:
    """Linear rows of every child are within their limits."""
    C = len(rows.least)
    return Constraint(
        every_child(C, sp.csr_array(rows.coefficients.astype(float))),
        limits(rows.least).ravel(),
        limits(rows.most).ravel(),
        tuple(f"row {name}" for name in rows.names) * C,
    )


def of_node(
    problem: NodeProblem, fixed: tuple[tuple[IntArray, FloatArray], ...] = ()
) -> Iterator[Constraint]:
    """All constraints of a node but signs and leaves.

    Args:
      problem: The node problem.
      fixed: Further partition sums that are given, as groups int64[k] and targets float64[C, m].
    """
    C, k = problem.n_children, problem.n_cells
    if problem.parent is not None:
        parent = problem.parent.astype(float)
        yield Constraint(sum_of_children(C, k), parent, parent, ("the sum of the children",) * k)
    sums = [(exact.groups, exact.targets) for exact in problem.exact]
    for number, (groups, targets) in enumerate((*sums, *fixed)):
        yield given_sums(groups, targets, f"equality {number}")
    for rows in problem.rows:
        yield linear_rows(rows)


@dataclass(frozen=True, eq=False)
class LeafRows:
    """Rows on what the R patterns of leaves below one child hold of t types, pattern by pattern.

    Attributes:
      by_type: Sparse, [t, R t], persons of each type.
      by_pattern: Sparse, [R, R t], persons of each pattern.
      low: float64[R], fewest persons of a pattern.
      high: float64[R], most.
    """

    by_type: sp.csr_array
    by_pattern: sp.csr_array
    low: FloatArray
    high: FloatArray


def leaf_rows(leaves: Leaves) -> LeafRows:
    """Rows on what the leaves below one child hold."""
    R, t = leaves.least.shape
    return LeafRows(
        sum_of_children(R, t),
        every_child(R, sp.csr_array(np.ones((1, t)))),
        limits(leaves.low),
        limits(leaves.high),
    )
