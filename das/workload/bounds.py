"""Lower bounds for all strategies: on total and largest variance at privacy cost 1.

For any Gram matrix G over all cells and any cell weights D >= 0 with sum 1, every strategy V with
diag V <= 1 has

    tr(G V^-) >= tr((D^.5 G D^.5)^.5)^2,

with equality for the best V and D. Uniform D is the singular value bound. The dense bounds form
matrices over all cells; the others need matrices of single attributes only.
"""

from __future__ import annotations

import math

import numpy as np

from das.arrays import FloatArray, kron
from das.errors import SchemaError
from das.workload.incidence import Incidence
from das.workload.kronecker import Kronecker, list_members
from das.workload.one_dimensional import (
    OneDimensionalStrategy,
    count_rank,
    minimize_largest_variance,
    minimize_total_variance,
)
from das.workload.workload import AttributeWorkload, Workload

MOST_CELLS = 2048
"""Most cells of a domain for which matrices over all cells are formed."""

_COMMUTES = 1e-9  # relative, by which row sums of a commuting Gram matrix may differ


def dual_bound(gram: FloatArray, cell_weights: FloatArray) -> float:
    """Return tr((D^.5 G D^.5)^.5)^2 / tr D, a bound on tr(G V^-) at privacy cost 1.

    The dual point alone proves the bound.

    Args:
      gram: float64[n, n], the Gram matrix G.
      cell_weights: D, float64[n], nonnegative, not all 0.

    >>> round(dual_bound(np.eye(2), np.array([0.5, 0.5])), 12)
    2.0
    """
    half = np.sqrt(cell_weights / cell_weights.sum())
    return _sum_roots(half[:, None] * gram * half) ** 2


def svd_bound(workload: Workload) -> float:
    """Return the singular value bound (sum_j sqrt(eigenvalue_j(G)))^2 / n on the total variance.

    If the ones vector is an eigenvector of every W_i^T W_i (plain counts, partitions into equal
    groups), all terms of G commute. The sum then has a closed form over the subsets S of the
    marginals, for any number of attributes. For plain counts it is the optimum. Otherwise the dense
    matrix G is formed.

    Raises:
      SchemaError: The terms do not commute and there are too many cells.

    References:
      Li & Miklau, Optimal error of query sets under the differentially-private matrix mechanism,
      ICDT 2013.
    """
    means = np.array([a.gram.sum() / a.size for a in workload.attributes])
    if not all(
        np.abs(a.gram.sum(axis=0) - mean).max() <= _COMMUTES * mean
        for a, mean in zip(workload.attributes, means, strict=True)
    ):
        gram = _dense_gram(workload)
        return dual_bound(gram, np.ones(len(gram)))
    sizes = np.array([a.size for a in workload.attributes], np.float64)
    marginals = workload.marginals
    residuals = marginals.closure()
    incidence = Incidence(marginals, residuals).matrix(means / sizes, 1 / sizes)
    roots = [
        _sum_roots(a.gram - mean / a.size)
        for a, mean in zip(workload.attributes, means, strict=True)
    ]
    heights = residuals.product(np.array(roots))
    return float((np.sqrt(incidence.T @ workload.weights) * heights).sum() ** 2)


def separate_bound(workload: Workload) -> float:
    """Return sum_A w_A prod_{i in A} (bound of attribute i alone), a bound for any domain.

    The optimum of one Kronecker product is the product of the optima. The bound is exact for one
    marginal and loose for many.
    """
    bounds = [
        minimize_total_variance(a.gram, rank=count_rank(a.gram)).bound for a in workload.attributes
    ]
    return float(workload.weights @ workload.marginals.product(np.array(bounds)))


def separate_variance_bound(workload: Workload) -> float:
    """Return a lower bound on the largest variance of any strategy at privacy cost 1.

    The bound is max_A prod_{i in A} gamma_2(W_i)^2 over the marginals A. It holds since gamma_2 of
    a Kronecker product is the product of the norms. Only matrices of single attributes are formed,
    so the domain may have any size. The weights of the marginals are not used.
    """
    bounds = [minimize_largest_variance(a).bound for a in workload.attributes]
    return float(workload.marginals.product(np.array(bounds)).max())


def minimize_over_all_strategies(
    workload: Workload, *, gap: float = 1e-5
) -> OneDimensionalStrategy:
    """Find the strategy over all cells with the least total variance, of any form.

    Args:
      workload: The marginals with weights, over at most 2048 cells.
      gap: Relative distance to the optimum to be proven.

    Returns:
      A dense strategy; its `bound` holds for every planner.

    Raises:
      SchemaError: The domain has more cells.
      SolverError: The gap was not reached.
    """
    return minimize_total_variance(_dense_gram(workload), gap=gap)


def minimize_largest_over_all_strategies(
    workload: Workload, *, gap: float = 1e-3
) -> OneDimensionalStrategy:
    """Find the strategy over all cells whose largest variance of an answer is least.

    The optimum is gamma_2(W)^2 of the stacked answers of all marginals, whose weights are not used.

    Args:
      workload: The marginals, over at most 2048 cells.
      gap: Relative distance to the optimum to be proven.

    Raises:
      SchemaError: The domain has more cells.
      SolverError: The gap was not reached.
    """
    cells = np.eye(_count_cells(workload))
    answers = [
        Kronecker(
            tuple(
                each.matrix if is_in else np.ones((1, each.size))
                for each, is_in in zip(workload.attributes, chosen, strict=True)
            )
        ).apply(cells)
        for chosen in list_members(workload.marginals)
    ]
    stacked = AttributeWorkload.from_matrix("all cells", np.concatenate(answers))
    return minimize_largest_variance(stacked, gap=gap)


def _sum_roots(gram: FloatArray) -> float:
    """Return tr(G^.5) without eigenvalues at rounding level, which keeps bounds valid."""
    squares = np.linalg.eigvalsh(gram)
    return float(np.sqrt(squares[squares > squares[-1] * len(gram) * 1e-15]).sum())


def _count_cells(workload: Workload) -> int:
    cells = math.prod(attribute.size for attribute in workload.attributes)
    if cells > MOST_CELLS:
        raise SchemaError(
            "bound over all strategies",
            "would need a matrix over too many cells",
            got=cells,
            want=f"at most {MOST_CELLS}",
            remedy="use separate_bound, or fewer levels",
        )
    return cells


def _dense_gram(workload: Workload) -> FloatArray:
    """Return sum_A w_A kron_i (W_i^T W_i if i in A else 1 1^T), float64[n, n], over all cells.

    Its trace with the covariance of the cells is the weighted total variance of the answers.
    """
    cells = _count_cells(workload)
    out = np.zeros((cells, cells))
    for weight, chosen in zip(workload.weights, list_members(workload.marginals), strict=True):
        pairs = zip(workload.attributes, chosen, strict=True)
        parts = [a.gram if is_in else np.ones((a.size, a.size)) for a, is_in in pairs]
        out += weight * kron(parts)
    return out
