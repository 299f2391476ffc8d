"""Plans written out as dense matrices, by hand, for small domains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from das.workload.attribute_sets import AttributeSets
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload, Workload


def listed(sets: AttributeSets) -> list[tuple[int, ...]]:
    return [tuple(row) for members in sets.by_order for row in members.tolist()]


def kron(factors: list[np.ndarray]) -> np.ndarray:
    return reduce(np.kron, factors, np.ones((1, 1)))


def marginal_matrix(workload: Workload, members: tuple[int, ...]) -> np.ndarray:
    """kron_i (W_i if i in A else 1^T)."""
    return kron(
        [
            attribute.matrix if i in members else np.ones((1, attribute.size))
            for i, attribute in enumerate(workload.attributes)
        ]
    )


def workload_matrix(workload: Workload) -> np.ndarray:
    return np.concatenate([marginal_matrix(workload, a) for a in listed(workload.marginals)])


def workload_gram(workload: Workload) -> np.ndarray:
    """sum_A w_A M_A^T M_A, for the marginals M_A."""
    pairs = zip(workload.weights, listed(workload.marginals), strict=True)
    matrices = [(weight, marginal_matrix(workload, members)) for weight, members in pairs]
    return sum(weight * matrix.T @ matrix for weight, matrix in matrices)


def residual_matrix(plan: ResidualPlan, members: tuple[int, ...]) -> np.ndarray:
    """kron_i (Sub_i if i in S else 1^T)."""
    return kron(
        [
            basis.subtraction if i in members else np.ones((1, basis.subtraction.shape[1]))
            for i, basis in enumerate(plan.bases)
        ]
    )


def strategy_matrix(plan: ResidualPlan) -> np.ndarray:
    """All measured rows, each divided by its noise's standard deviation."""
    return np.concatenate(
        [
            residual_matrix(plan, members) / np.sqrt(noise)
            for members, noise in zip(listed(plan.residuals), plan.noise, strict=True)
        ]
    )


def covariance(plan: ResidualPlan, queries: np.ndarray) -> np.ndarray:
    """Covariance of the best linear unbiased estimate of `queries`, from the dense strategy."""
    strategy = strategy_matrix(plan)
    weights = queries @ np.linalg.pinv(strategy)
    np.testing.assert_allclose(weights @ strategy, queries, atol=1e-8)
    return weights @ weights.T


def partition(name: str, codes: Sequence[int]) -> AttributeWorkload:
    """The groups of a recode; codes[j] is the group of level j."""
    return tree(name, [codes])


def tree(name: str, levels: Sequence[Sequence[int]]) -> AttributeWorkload:
    """All nodes of a hierarchy; each entry of `levels` gives the node of every level there."""
    rows = [np.equal.outer(np.unique(codes), np.asarray(codes)) for codes in levels]
    return AttributeWorkload.from_matrix(name, np.concatenate(rows).astype(np.float64))


MIXED = (
    AttributeWorkload.prefix("age", 4),
    AttributeWorkload.identity("sex", 2),
    AttributeWorkload.ranges("income", 4),
    tree("place", [[0, 0, 0, 0, 0], [0, 0, 1, 1, 2], [0, 1, 2, 3, 4]]),
)
"""Two attributes of equal size with different base matrices, a binary one and a hierarchy."""

GROUPED = (
    partition("race", [0, 1, 1, 2, 0]),
    AttributeWorkload.prefix("age", 3),
    AttributeWorkload.from_matrix("odd", np.array([[1, 1, 1, 1], [2, 1, 0, 0], [0, 1, 2, 0]])),
)
"""Base matrices of deficient rank."""
