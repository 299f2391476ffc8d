"""Residual plans of one kind of bases, for the weighted sum of variances at privacy cost 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from das.arrays import FloatArray
from das.queries.factor import Factor
from das.queries.query import Query
from das.workload.one_dimensional import DEFAULT_GAP, weigh_total
from das.workload.residual.bases import (
    AttributeBasis,
    orthogonal_basis,
    per_matrix,
    projected_basis,
    split_off_total,
    uniform_basis,
)
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.total_variance import choose_oblique_bases, minimize_noise
from das.workload.workload import AttributeWorkload, Workload


def plan_marginals(workload: Workload) -> ResidualPlan:
    """ResidualPlanner, for identity base matrices."""
    return minimize_noise(workload, per_matrix(workload, uniform_basis))


def plan_projected(workload: Workload) -> ResidualPlan:
    """ResidualPlanner+ as published: pivots 1/n, strategies with the total projected out."""
    return minimize_noise(workload, per_matrix(workload, projected_basis))


def plan_orthogonal(workload: Workload) -> ResidualPlan:
    """ResidualPlanner+ with the best strategies that the uniform pivot allows."""
    return minimize_noise(workload, per_matrix(workload, orthogonal_basis))


def plan_oblique(workload: Workload) -> ResidualPlan:
    """Oblique ResidualPlanner: pivots and strategies chosen together."""
    return minimize_noise(workload, choose_oblique_bases(workload))


def oblique_basis(
    workload: AttributeWorkload, total_weight: float, gap: float = DEFAULT_GAP
) -> AttributeBasis:
    """A basis on the frontier of (pivot_variance, residual_product)."""
    found = weigh_total(workload, total_weight, gap=gap)
    return split_off_total(workload, found.factor, found.inverse)


def variances_of_answers(plan: ResidualPlan, names: Sequence[str]) -> FloatArray:
    """The variance of each answer of a marginal, float64[m_1, ..., m_k]."""
    members = plan.workload.members_of(names)
    parts = [
        np.column_stack(plan.bases[i].row_variances(plan.workload.attributes[i])) for i in members
    ]
    return plan.contract(members, parts)


def marginal_query(workload: Workload, members: Sequence[int]) -> Query:
    """The marginal of some attributes, by the integer rows of their base matrices."""
    factors = []
    for i, attribute in enumerate(workload.attributes):
        rows = attribute.matrix if i in members else np.ones((1, attribute.size))
        assert (rows == np.rint(rows)).all()
        factors.append(Factor(np.rint(rows).astype(np.int64), tuple(map(str, range(len(rows))))))
    return Query("marginal", tuple(factors))
