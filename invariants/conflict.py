"""Irreducible sets of contradicting invariants of one geounit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray
from das.errors import SolverError

_INFEASIBLE = 2  # status of scipy.optimize.milp


@dataclass(frozen=True, eq=False)
class Statement:
    """Linear inequality least <= c'x <= most for the counts x of one geounit.

    Attributes:
      name: Name in messages.
      coefficients: int64[n], c, the coefficient of each cell.
      least: Lower bound; -inf for none.
      most: Upper bound; inf for none.
    """

    name: str
    coefficients: IntArray
    least: float
    most: float


def smallest_conflict(statements: Sequence[Statement]) -> tuple[str, ...]:
    """Find an irreducible set of statements that no counts in N^n satisfy.

    Deletion filter: statements are removed one by one as long as the others still contradict each
    other. Every statement of the result is needed; other conflicts may have fewer statements.

    Returns:
      Names of the statements in the order given; () if some counts satisfy all.

    References:
      Chinneck & Dravnieks, Locating Minimal Infeasible Constraint Sets in Linear Programs, ORSA
      Journal on Computing 3, 1991.
    """
    if _has_solution(statements):
        return ()
    kept = list(statements)
    for statement in statements:
        others = [other for other in kept if other is not statement]
        if not _has_solution(others):
            kept = others
    return tuple(dict.fromkeys(statement.name for statement in kept))


def _has_solution(statements: Sequence[Statement]) -> bool:
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not statements:
        return True
    # Cells with equal coefficients in all statements need one variable.
    matrix = np.unique(np.array([row.coefficients for row in statements]), axis=1)
    constraint = LinearConstraint(
        matrix, [row.least for row in statements], [row.most for row in statements]
    )
    n = matrix.shape[1]
    result = milp(
        np.zeros(n), integrality=np.ones(n), bounds=Bounds(0, np.inf), constraints=constraint
    )
    if result.status not in (0, _INFEASIBLE):
        raise SolverError("invariants", "could not be compared", got=result.message)
    return bool(result.status == 0)
