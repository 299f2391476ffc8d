"""Histogram with the smallest largest standardized deviation; ties by least squares.

The first stage is a linear program per draw. In the second stage a cell lies in
[max(0, a - t deviation), a + t deviation], and the deviation of a coarse answer becomes a variable
with such bounds, so that all draws are one batch of problems with bounds and equalities.
"""

from __future__ import annotations

import numpy as np

from das.arrays import FloatArray
from das.errors import SolverError
from solvers.objectives.bounded import BoundedProblems, Equalities, solve_with_equalities

_FLOAT_ROOM = 1e-7  # added to the smallest deviation: the tolerance of HiGHS


def fit_largest_deviation(
    rows: FloatArray,
    answers: FloatArray,
    variances: FloatArray,
    slack: float = 0.0,
    equalities: Equalities | None = None,
) -> FloatArray:
    """Fit the histogram of every draw.

    Args:
      rows: float64[m, n], coarse queries.
      answers: float64[R, m + n], coarse answers, then cells.
      variances: float64[m + n].
      slack: Deviation allowed beyond the smallest, in standard deviations.
      equalities: Further equalities over the cells.

    Returns:
      float64[R, n], nonnegative.

    Raises:
      SolverError: A linear program or the least squares after it did not end.
    """
    deviations = np.sqrt(variances)
    matrix = np.vstack([rows, np.eye(rows.shape[1])])
    n, m, R = rows.shape[1], len(rows), len(answers)
    must = equalities or Equalities(np.zeros((0, n)), np.zeros((R, 0)))
    smallest = [
        smallest_deviation(matrix, noisy, deviations, must.rows, target)
        for noisy, target in zip(answers, must.targets, strict=True)
    ]
    room = np.array(smallest)[:, None] * (1 + _FLOAT_ROOM) + _FLOAT_ROOM + slack
    limit = room * deviations
    scaled = np.broadcast_to(1 / variances, answers.shape)
    # Variables: cells, then the deviations of the coarse answers.
    problems = BoundedProblems(
        np.hstack([scaled[:, m:], scaled[:, :m]]),
        np.hstack([answers[:, m:], np.zeros((R, m))]),
        np.zeros((0, n + m)),
        np.zeros((R, 0)),
        np.zeros((R, 0)),
        np.hstack([np.maximum(0.0, answers[:, m:] - limit[:, m:]), -limit[:, :m]]),
        np.hstack([np.maximum(0.0, answers[:, m:] + limit[:, m:]), limit[:, :m]]),
    )
    rows_of_both = np.block([[rows, -np.eye(m)], [must.rows, np.zeros((len(must.rows), m))]])
    both = Equalities(rows_of_both, np.hstack([answers[:, :m], must.targets]))
    return solve_with_equalities(problems, both)[:, :n]


def smallest_deviation(
    matrix: FloatArray,
    answers: FloatArray,
    deviations: FloatArray,
    fixed: FloatArray,
    targets: FloatArray,
) -> float:
    """Return min over x >= 0 with fixed x = targets of the largest |M x - a| / deviation.

    >>> none = np.zeros((0, 1)), np.zeros(0)
    >>> round(smallest_deviation(np.ones((2, 1)), np.array([1.0, 5.0]), np.ones(2), *none), 9)
    2.0
    """
    import scipy.sparse as sp
    from scipy.optimize import linprog

    sparse, column = sp.csr_array(matrix), sp.csr_array(deviations[:, None])
    result = linprog(
        np.append(np.zeros(matrix.shape[1]), 1.0),
        A_ub=sp.vstack([sp.hstack([sparse, -column]), sp.hstack([-sparse, -column])]),
        b_ub=np.concatenate([answers, -answers]),
        A_eq=np.hstack([fixed, np.zeros((len(fixed), 1))]) if len(fixed) else None,
        b_eq=targets if len(fixed) else None,
        method="highs",
    )
    if result.status != 0:
        raise SolverError("largest deviation", "the linear program did not end", got=result.message)
    return float(result.x[-1])
