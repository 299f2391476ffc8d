"""How an objective spreads accuracy over small and large marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from das.workload.residual.total_variance import plan_oblique
from das.workload.workload import AttributeWorkload, Weighting, Workload


@dataclass(frozen=True, eq=False)
class CellVariances:
    """One entry per marginal, by order and then lexicographic.

    Attributes:
      orders: int64[m], the number of attributes.
      sizes: float64[m], the number of answers.
      variances: float64[m], the mean variance of its answers.
    """

    orders: IntArray
    sizes: FloatArray
    variances: FloatArray


def explore_cell_variances(
    attributes: Sequence[AttributeWorkload],
    order: int,
    weighting: Weighting,
    privacy_cost: float = 1.0,
) -> CellVariances:
    """Plan all marginals on up to `order` attributes and return the variance each one gets.

    Args:
      attributes: With their base matrices.
      order: The most attributes of a marginal.
      weighting: How much each marginal counts in the weighted sum of variances.
      privacy_cost: c > 0.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Section 6.2.

    >>> pair = [AttributeWorkload.identity("sex", 2), AttributeWorkload.identity("age", 100)]
    >>> found = explore_cell_variances(pair, 1, Weighting.CELL_SIZE)
    >>> found.orders.tolist(), bool(found.variances[1] > found.variances[2])
    ([0, 1, 1], True)
    """
    workload = Workload.up_to_k_way(attributes, order, weighting)
    plan = plan_oblique(workload, privacy_cost)
    counts = [len(members) for members in workload.marginals.by_order]
    return CellVariances(
        np.repeat(np.arange(len(counts)), counts), workload.sizes, plan.average_variances()
    )
