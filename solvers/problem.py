"""The node problem: one parent, all its children, and the constraints on its solution.

For parent p in N^k (live cells only: cells where the parent has persons) and children c = 1..C

    minimise    sum_c ( 1/2 x_c' G_c x_c - b_c' x_c ),     G_c = sum_q w_cq Q_q' Q_q,
    subject to  x_c >= 0,   sum_c x_c = p,   A x_c = a_c,   least_c <= R x_c <= most_c,

and the counts by type of child c can be assigned to the leaves below it. Q_q is query q on the live
cells, w_cq is the inverse variance of its noise in child c, and b_c = sum_q w_cq Q_q' y_cq gathers
the noisy answers. Then the solution is rounded to integers that keep every constraint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray, IntArray
from das.errors import SolverError
from das.queries.query import Query
from invariants.leaves import NO_LIMIT as NO_LIMIT
from invariants.leaves import Leaves


@dataclass(frozen=True, eq=False)
class LeastSquaresTerm:
    """Noisy answers of one partition query for all children.

    Attributes:
      groups: int64[k], the answer (0..m-1) in which each live cell counts; answers without live
        cells are left out, since no solution changes them.
      answers: float64[C, m], noisy answers of each child.
      weights: float64[C], inverse variance of the noise of each child; 0 if not measured there.
      query: The query over the whole schema, if known; `projected.Information` uses it.
    """

    groups: IntArray
    answers: FloatArray
    weights: FloatArray
    query: Query | None = None


@dataclass(frozen=True, eq=False)
class GeneralTerm:
    """Noisy answers of any linear query Q for all children, as the normal equations need them.

    Attributes:
      gram: float64[k, k], Q'Q on the live cells.
      adjoint: float64[C, k], Q'y_c on the live cells.
      weights: float64[C], inverse variance of the noise of each child; 0 if not measured there.
    """

    gram: FloatArray
    adjoint: FloatArray
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class KroneckerTerm:
    """Noisy answers of a query over the whole schema that is no partition, for all children.

    In small nodes it is a `GeneralTerm` whose matrix is formed on first use. In large nodes it is
    applied attribute by attribute.

    Attributes:
      query: Q, the query over the whole schema.
      cells: int64[k], the live cells as cells of the schema, the same in all terms of a node.
      adjoint: float64[C, k], Q'y_c on the live cells.
      weights: float64[C], inverse variance of the noise of each child; 0 if not measured there.
    """

    query: Query
    cells: IntArray
    adjoint: FloatArray
    weights: FloatArray

    @cached_property
    def gram(self) -> FloatArray:
        """Return float64[k, k]: Q'Q on the live cells."""
        return self.query.gram(self.cells)

    @cached_property
    def squares(self) -> FloatArray:
        """Return float64[k]: the diagonal of `gram`."""
        return self.query.gram_diagonal(self.cells)

    def apply(self, x: FloatArray) -> FloatArray:
        """Compute Q'Q x, float64[C, k] for float64[C, k], without forming `gram`."""
        return self.query.gram_times(self.cells, x)


Term = LeastSquaresTerm | GeneralTerm | KroneckerTerm
# Further given partition sums, as groups int64[k] and targets float64[C, m].
Fixed = tuple[tuple[IntArray, FloatArray], ...]


@dataclass(frozen=True, eq=False)
class ExactTerm:
    """Exact answers of one partition query for all children: M x_c = targets[c].

    Attributes:
      groups: int64[k], as in `LeastSquaresTerm`, over all answers with live cells.
      targets: int64[C, m], nonnegative; their sum over children equals the parent's answers.
      query: The query over the whole schema, if known.
    """

    groups: IntArray
    targets: IntArray
    query: Query | None = None


@dataclass(frozen=True, eq=False)
class RowsTerm:
    """Linear rows that hold exactly in every child: least[c] <= R x_c <= most[c].

    Attributes:
      coefficients: int64[r, k], R on the live cells.
      least: int64[C, r]; -NO_LIMIT for no bound.
      most: int64[C, r]; NO_LIMIT for no bound, equal to `least` for an equality.
      names: r names for messages.
    """

    coefficients: IntArray
    least: IntArray
    most: IntArray
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LeavesTerm:
    """Bounds of the leaves below each child, by type.

    Attributes:
      groups: int64[k], type of each live cell, 0..t-1.
      leaves: Per child; see `invariants.leaves.Leaves`.
    """

    groups: IntArray
    leaves: tuple[Leaves, ...]


@dataclass(frozen=True, eq=False)
class RoundingQuery:
    """Partition of the live cells whose sums rounding keeps within one of the estimate.

    Attributes:
      groups: int64[k], group of each live cell, 0..m-1.
    """

    groups: IntArray


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """One parent and its children.

    Attributes:
      geocode: The parent's label; not interpreted.
      n_cells: k, the number of live cells.
      parent: int64[k], the parent's counts, all positive; None at the root.
      terms: The noisy answers. Together with the exact ones they have full column rank in every
        child.
      exact: Equality invariants of partition queries, nested, coarse before fine.
      passes: Rounding passes, each a tuple of nested partitions, coarse before fine; the last
        partition of the last pass is single cells.
      rows: Other linear invariants.
      leaves: Bounds of the leaves below each child, or None.
      order: Least-squares passes, each the indices of its terms; () for a single pass. Answers of
        a pass are fixed in later passes.
      n_children: C, the number of children.
    """

    geocode: str
    n_cells: int
    parent: IntArray | None
    terms: tuple[Term, ...]
    exact: tuple[ExactTerm, ...]
    passes: tuple[tuple[RoundingQuery, ...], ...]
    rows: tuple[RowsTerm, ...] = ()
    leaves: LeavesTerm | None = None
    order: tuple[tuple[int, ...], ...] = ()
    n_children: int = field(init=False)

    def __post_init__(self) -> None:
        where = f"node {self.geocode}"
        if not self.terms:
            raise SolverError(where, "has no noisy answers")
        object.__setattr__(self, "n_children", len(self.terms[0].weights))
        if self.parent is None and self.n_children != 1:
            raise SolverError(where, "a root problem has exactly one child")
        if self.parent is not None and len(self.parent) != self.n_cells:
            raise SolverError(where, "parent and cells differ in length")
        covered = [len(exact.groups) for exact in self.exact]
        covered += [rows.coefficients.shape[1] for rows in self.rows]
        for term in self.terms:
            if isinstance(term, LeastSquaresTerm):
                covered.append(len(term.groups))
            else:
                covered.append(term.adjoint.shape[1])
        if {*covered} - {self.n_cells}:
            raise SolverError(where, "a query does not cover the live cells")


class Status(StrEnum):
    """Outcome of a stage. A limit reached is never a success."""

    SOLVED = "solved"
    LIMIT = "limit"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True)
class Certificate:
    """Optimality residuals of the continuous solution.

    With multipliers for all equalities and rows, g is the gradient of the Lagrangian; g >= 0 where
    x = 0 and g = 0 where x > 0 at an optimum. In child c it is divided by a lower bound of the
    smallest eigenvalue of G_c, so that it bounds persons.

    Attributes:
      stationarity: Largest violation of g >= 0, over max(1, largest cell).
      primal: Largest violation of an equality, of a row or of x >= 0, over max(1, largest cell).
      complementarity: Largest min(x, g), or product of the slack and the multiplier of a row, over
        max(1, largest cell).
      gap: Difference of the primal and dual objectives, divided by max(1, |objective|).
    """

    stationarity: float
    primal: float
    complementarity: float
    gap: float

    @property
    def residual(self) -> float:
        """Return the largest of the four residuals."""
        return max(self.stationarity, self.primal, self.complementarity, self.gap)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Solution of the continuous stage.

    Attributes:
      values: float64[C, k], counts of the live cells of each child.
      certificate: Optimality residuals of `values`.
      status: SOLVED if the residual is within the requested tolerance.
      iterations: Iterations of the fallback.
      newton_steps: Active-set steps.
      evidence: Reason why no solution exists, if the status is INFEASIBLE.
    """

    values: FloatArray
    certificate: Certificate
    status: Status
    iterations: int
    newton_steps: int
    evidence: str = ""


Number = TypeVar("Number", np.int64, np.float64)


def group_sums(values: npt.NDArray[Number], groups: IntArray, n_groups: int) -> npt.NDArray[Number]:
    """Sum columns by group.

    Args:
      values: [C, k], integers or floats.
      groups: int64[k], the group of each column.
      n_groups: m, the number of groups.

    Returns:
      [C, m], of the same dtype: exact where that is integers.
    """
    C = len(values)
    if np.issubdtype(values.dtype, np.floating):
        index = (np.arange(C)[:, None] * n_groups + groups).ravel()
        flat = np.bincount(index, values.ravel(), C * n_groups)
        return flat.reshape(C, n_groups).astype(values.dtype, copy=False)
    order = np.argsort(groups, kind="stable")
    present, starts = np.unique(groups[order], return_index=True)
    out = np.zeros((values.shape[0], n_groups), values.dtype)
    if len(present):
        out[:, present] = np.add.reduceat(values[:, order], starts, axis=1)
    return out


def coarsening(fine: IntArray, coarse: IntArray) -> IntArray | None:
    """Map each group of `fine` to the group of `coarse` that contains it.

    Args:
      fine: int64[k], groups of the cells, numbered from 0.
      coarse: int64[k], groups of the cells, numbered from 0.

    Returns:
      int64[groups of `fine`]; None if `fine` does not refine `coarse`.
    """
    index = np.zeros(int(fine.max(initial=-1)) + 1, np.int64)
    index[fine] = coarse
    return index if np.array_equal(index[fine], coarse) else None


def is_constant(row: FloatArray, groups: IntArray) -> bool:
    """Return whether a row has equal coefficients float64[k] for all cells of each group."""
    first = np.zeros(int(groups.max(initial=-1)) + 1)
    first[groups] = row
    return np.array_equal(first[groups], row)
