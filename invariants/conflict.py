"""Contradictions between invariants of one geounit: a set of them of which none can be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray
from das.errors import SolverError

_INFEASIBLE = 2  # status of scipy.optimize.milp


@dataclass(frozen=True, eq=False)
class Statement:
    """least <= c'x <= most, for the counts x of one geounit.

    Attributes:
      name: What a message calls it.
      coefficients: int64[n], c.
      least: -inf without limit.
      most: inf without limit.
    """

    name: str
    coefficients: IntArray
    least: float
    most: float


def smallest_conflict(statements: Sequence[Statement]) -> tuple[str, ...]:
    """Find an irreducible set of statements that no counts in N^n satisfy.

    Deletion filter: statements are left out one by one as long as the others still contradict each
    other. No statement of the result can be left out; other conflicts may be smaller.

    Returns:
      Names in the order given; () if some counts satisfy all.

    References:
      Chinneck & Dravnieks, Locating Minimal Infeasible Constraint Sets in Linear Programs, ORSA
      Journal on Computing 3, 1991.
    """
    if _has_solution(statements):
        return ()
    kept = list(statements)
    for one in statements:
        others = [other for other in kept if other is not one]
        if not _has_solution(others):
            kept = others
    return tuple(dict.fromkeys(one.name for one in kept))


def _has_solution(statements: Sequence[Statement]) -> bool:
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not statements:
        return True
    # Cells that all statements treat alike need one variable.
    matrix = np.unique(np.array([one.coefficients for one in statements]), axis=1)
    constraint = LinearConstraint(
        matrix, [one.least for one in statements], [one.most for one in statements]
    )
    n = matrix.shape[1]
    found = milp(
        np.zeros(n), integrality=np.ones(n), bounds=Bounds(0, np.inf), constraints=constraint
    )
    if found.status not in (0, _INFEASIBLE):
        raise SolverError("invariants", "could not be compared", got=found.message)
    return bool(found.status == 0)
