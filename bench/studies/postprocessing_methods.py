"""Post-processing methods as plain functions from a noisy table to a histogram.

    OLS         minimise sum_q |Q_q x - a_q|^2 / variance_q; unbiased, may be negative.
    NNLS        the same under x >= 0.
    MAXFIT      minimise the largest |Q_q x - a_q| / deviation_q under x >= 0, then least squares
                among these.
    SEQUENTIAL  NNLS query by query; the answers found so far are fixed.
    REWEIGHTED  NNLS with less weight on answers that look like noise around zero, and their sum as
                a further answer.
    POSTERIOR   mean of x given the answers, under a prior learned from them (see `posterior`).

References:
  Abowd, Ashmead, Cumings-Menon, Garfinkel, Kifer, Leclerc, Sexton, Simpson, Task & Zhuravlev,
  "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import numpy as np

from bench.studies.postprocessing_posterior import posterior_mean
from bench.studies.postprocessing_table import NoisyTable
from das.arrays import FloatArray
from solvers.objectives.bounded import (
    BoundedProblems,
    Equalities,
    fit_largest_deviation,
    solve_bounded,
    solve_on_sides,
    solve_with_equalities,
)
from solvers.objectives.in_node import downweight, find_low_answers

_PROXIMAL = 0.01


class TableMethod(StrEnum):
    """How noisy answers become a histogram."""

    OLS = "ols"
    NNLS = "nnls"
    MAXFIT = "maxfit"
    SEQUENTIAL = "sequential"
    REWEIGHTED = "reweighted"
    POSTERIOR = "posterior"


def post_process(table: NoisyTable, method: TableMethod) -> FloatArray:
    """Return the histogram of every draw, float64[R, n]; nonnegative but for OLS.

    Args:
      table: Noisy answers.
      method: The method.

    Raises:
      SolverError: A problem was not solved.

    >>> from das.mechanisms.laplace import Laplace
    >>> from bench.studies.postprocessing_table import NoisyQuery
    >>> total = NoisyQuery(np.zeros(2, int), np.array([[9.0]]), 2.0)
    >>> cells = NoisyQuery(np.arange(2), np.array([[12.0, -6.0]]), 2.0)
    >>> table = NoisyTable((total,), cells, Laplace)
    >>> for method in (TableMethod.OLS, TableMethod.NNLS, TableMethod.SEQUENTIAL):
    ...     print(method, post_process(table, method).round(6).tolist())
    ols [[13.0, -5.0]]
    nnls [[10.5, 0.0]]
    sequential [[9.0, 0.0]]
    """
    return _METHODS[method](table)


def fit_ordinary(table: NoisyTable) -> FloatArray:
    """Least squares without x >= 0."""
    return solve_on_sides(_problems(table), np.zeros(table.cells.answers.shape, np.int8))[0]


def fit_nonnegative(table: NoisyTable) -> FloatArray:
    """Least squares under x >= 0."""
    return solve_bounded(_problems(table), fit_ordinary(table))


def fit_sequentially(table: NoisyTable) -> FloatArray:
    """Least squares query by query, coarse ones first, found answers fixed for the next.

    References:
      Algorithm 1 of the paper.
    """
    R, n = table.cells.answers.shape
    fixed, targets = np.zeros((0, n)), np.zeros((R, 0))
    x = np.zeros((R, n))
    for query in table.coarse:
        rows = query.rows()
        weights = np.ones((R, len(rows)))
        ones, upper = np.ones((R, n)), _upper(fixed, targets)
        part = BoundedProblems(ones, x, rows, weights, query.answers, np.zeros((R, n)), upper)
        x = solve_with_equalities(part, Equalities(fixed, targets), _PROXIMAL)
        fixed = np.vstack([fixed, rows])
        targets = x @ fixed.T
        targets[targets <= 1e-9 * np.maximum(1.0, x.max(1, keepdims=True))] = 0.0
    none = np.zeros((0, n)), np.zeros((R, 0)), np.zeros((R, 0))
    upper = _upper(fixed, targets)
    last = BoundedProblems(
        np.ones((R, n)), table.cells.answers, *none, lower=np.zeros((R, n)), upper=upper
    )
    return solve_with_equalities(last, Equalities(fixed, targets))


def fit_largest(table: NoisyTable, slack: float = 0.0) -> FloatArray:
    """Minimise the largest deviation, then least squares with at most `slack` more.

    Args:
      table: Noisy answers.
      slack: In standard deviations of the noise.
    """
    variances = np.concatenate(
        [table.coarse_variances(), np.full(table.n_cells, table.cells.variance)]
    )
    answers = np.hstack([table.coarse_answers(), table.cells.answers])
    return fit_largest_deviation(table.coarse_rows(), answers, variances, slack)


def fit_reweighted(table: NoisyTable) -> FloatArray:
    """Least squares under x >= 0 with the weights of Algorithm 2 of the paper."""
    R, n = table.cells.answers.shape
    queries = (*table.coarse, table.cells)
    extra_rows, extra_weights, extra_answers, weights = [], [], [], []
    for query in queries:
        low = find_low_answers(query.answers, query.variance, table.noise)
        each, of_sum = downweight(low, query.variance, table.noise)
        weights.append(each)
        extra_rows.append(low[:, query.groups])
        extra_weights.append(of_sum)
        extra_answers.append(np.where(low, query.answers, 0.0).sum(1))
    shared = np.broadcast_to(table.coarse_rows(), (R, sum(q.n_answers for q in table.coarse), n))
    problems = BoundedProblems(
        weights[-1],
        table.cells.answers,
        np.concatenate([shared, np.stack(extra_rows, 1)], 1),
        np.hstack([*weights[:-1], np.stack(extra_weights, 1)]),
        np.hstack([table.coarse_answers(), np.stack(extra_answers, 1)]),
        np.zeros((R, n)),
        np.full((R, n), np.inf),
    )
    return solve_bounded(problems)


def _problems(table: NoisyTable) -> BoundedProblems:
    """Least squares under x >= 0 with inverse variances as weights."""
    R, n = table.cells.answers.shape
    answers = table.coarse_answers()
    return BoundedProblems(
        np.full((R, n), 1 / table.cells.variance),
        table.cells.answers,
        table.coarse_rows(),
        np.broadcast_to(1 / table.coarse_variances(), answers.shape),
        answers,
        np.zeros((R, n)),
        np.full((R, n), np.inf),
    )


def _upper(rows: FloatArray, targets: FloatArray) -> FloatArray:
    """Zero for cells in an answer that is fixed at zero, else no limit."""
    return np.where((targets == 0) @ rows > 0, 0.0, np.inf)


_METHODS: dict[TableMethod, Callable[[NoisyTable], FloatArray]] = {
    TableMethod.OLS: fit_ordinary,
    TableMethod.NNLS: fit_nonnegative,
    TableMethod.MAXFIT: fit_largest,
    TableMethod.SEQUENTIAL: fit_sequentially,
    TableMethod.REWEIGHTED: fit_reweighted,
    TableMethod.POSTERIOR: posterior_mean,
}
