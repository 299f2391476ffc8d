"""Planned strategies in the search for an allocation, whose candidate queries are residual sets.

Shares of residual sets reach every precision that `residual_planner` and `orp` can plan, so one
search finds them together with the shares of geolevels. The search knows a few pairs of neighbors,
first a move between geounits. A change within a geounit that costs more is added, and the search is
repeated. At the end every geolevel gets the share that its worst pair costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray
from das.errors import ConfigError
from das.queries.joint_sensitivity import gram_sum
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.strategy import LevelStrategy, QueryShare, Strategy
from das.tree.allocation import Allocation, AllocationProblem, exact_strategy
from das.workload.choices import Method
from das.workload.workload import BaseKind
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.workload import BudgetKind, plan_shares
from jobs.pipeline.plan import Plan

_WORSE = 1.003  # cost of a pair over that of known pairs at which it is added; default


def workload_for(plan: Plan, tables: Sequence[Query]) -> WorkloadConfig:
    """Return the workload whose residual sets are the candidates for some tables.

    Its bases are what the tables name: levels, recodes, and functions of an attribute.

    Raises:
      ConfigError: The allocation has strata.
    """
    if plan.strategy.strata:
        raise ConfigError("--planned", "plans no strata, and the allocation has some")
    of_recode = {recode.name: recode.attribute for recode in plan.schema.recodes}
    bases: dict[str, list[str]] = {}
    wanted = {frozenset(attribute.name for attribute in plan.schema.attributes): "detailed"}
    for table in tables:
        names = []
        for term in table.name.split(" * ") if table.name not in {"total", "detailed"} else ():
            function, _, argument = term.removesuffix(")").partition("(")
            names.append(argument or of_recode.get(term, term))
            base = function if argument else term
            if base != names[-1]:
                of_attribute = bases.setdefault(names[-1], [BaseKind.IDENTITY.value])
                of_attribute += [base] if base not in of_attribute else []
        if table.name != "detailed":
            wanted.setdefault(frozenset(names), " * ".join(names) or "total")
    return WorkloadConfig.model_validate(
        {
            "method": Method.ORP if bases else Method.RESIDUAL_PLANNER,
            "tables": dict.fromkeys(wanted.values(), 1),
            "bases": bases,
        }
    )


def queries_of(plan: Plan, workload: WorkloadConfig) -> tuple[QueryShare, ...]:
    """Return the queries of all residual sets, with the exact shares that the workload asks for.

    Raises:
      SchemaError: A table cannot be planned for.
      BudgetError: The noise costs in proportion to L1 sensitivities.
    """
    budget = plan.budget
    kind = BudgetKind(budget.definition, budget.neighbors, plan.strategy.mechanism)
    return plan_shares(plan.schema, workload, kind)


def planned_levels(
    plan: Plan, problem: AllocationProblem, allocation: Allocation, workload: WorkloadConfig
) -> tuple[Strategy, tuple[WorkloadConfig, ...]]:
    """Return the exact strategy of shares of residual sets, and the workload of each geolevel."""
    rounded = exact_strategy(problem, allocation.shares, plan.spine.levels, plan.strategy.mechanism)
    workloads = tuple(
        workload.model_copy(
            update={"shares": {_set_of(entry.query): entry.share for entry in level.queries}}
        )
        for level in rounded.levels
    )
    levels = tuple(
        LevelStrategy(level.geolevel, level.share, queries_of(plan, of_level))
        for level, of_level in zip(rounded.levels, workloads, strict=True)
    )
    return replace(rounded, levels=levels), workloads


def worse_pairs(
    plan: Plan, candidates: Sequence[QueryShare], pairs: FloatArray, shares: FloatArray
) -> FloatArray:
    """Add pairs of cells whose change costs more than all known pairs, float64[P, Q].

    Args:
      plan: The plan; neighbors that add a record have no pairs.
      candidates: The queries of the residual sets.
      pairs: Costs of known pairs; see `AllocationProblem`.
      shares: float64[L, Q], shares of the sets, at each of which the worst pair is tried.
    """
    if plan.budget.neighbors is Neighbors.UNBOUNDED:
        return pairs
    queries = [entry.query for entry in candidates]
    longest = np.array([l2_sensitivity_sq(query, Neighbors.UNBOUNDED) for query in queries])
    for row in shares:
        weights = [Fraction(weight) for weight in (row / longest).tolist()]
        together = gram_sum(queries, weights)
        worst = together and together.largest_pair(exact=False)
        known = float((pairs @ row).max())
        if not together or not worst or float(worst.value) / 2 <= _WORSE * known:
            continue
        parts = [
            np.prod([triple[kind] for triple, kind in zip(worst.triples, kinds, strict=True)], 0)
            for kinds in together.kinds
        ]
        costs = [first + second - 2 * both for first, second, both in parts]
        pairs = np.vstack([pairs, np.maximum(costs, 0.0) / (2 * longest)])
    return pairs


def charged_together(
    plan: Plan, problem: AllocationProblem, allocation: Allocation, workload: WorkloadConfig
) -> Allocation:
    """Return the allocation with shares and value that pay for the worst change of a record."""
    strategy, _ = planned_levels(plan, problem, allocation, workload)
    moved = 1 if plan.budget.neighbors is Neighbors.UNBOUNDED else 2
    # The squared sensitivity of the total, 1 for one record, is scaled by the cost of the worst.
    worst = [float(level.queries[0].sensitivity_sq or moved) / moved for level in strategy.levels]
    of_levels = allocation.shares.sum(axis=1)
    if problem.pairs is not None:  # of unrounded shares, which the bound is for
        known = (allocation.shares @ problem.pairs.T).max(axis=1) / of_levels
        worst = np.maximum(worst, known).tolist()
    charged = np.array(worst) * of_levels / problem.charge(allocation.shares)
    shares = allocation.shares * charged[:, None]
    growth = float(shares.sum())
    return replace(allocation, shares=shares / growth, value=allocation.value * growth)


def _set_of(query: Query) -> str:
    """Return the attributes of a residual set, as in the keys of `shares` of a workload."""
    return query.name.partition(" #")[0].removeprefix("residual of ")
