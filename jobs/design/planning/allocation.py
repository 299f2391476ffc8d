"""Optimize the allocation of the budget for given tables, and write it as an allocation file.

With weights, the tables become as accurate as the budget allows, optionally within error limits.
With targets, the targets are met with the least budget. No data are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from das.arrays import FloatArray
from das.errors import BudgetError, ConfigError, OutputError
from das.mechanisms.mechanism import Norm
from das.mechanisms.registry import choose_mechanism
from das.queries.query import Query, parse_query, restricted
from das.strategy import LevelStrategy, Strategy
from das.tree.allocation import (
    DENOMINATOR,
    Allocation,
    AllocationProblem,
    exact_strategy,
    needed_columns,
    strategy_shares,
)
from das.tree.classes import SubtreeClasses
from das.tree.information import Information
from das.tree.largest import Objective
from das.tree.search import find_shares
from jobs.design.planning.errors import (
    Prediction,
    by_geolevel,
    parse_tables,
    predict,
    query_at,
    spine_model,
)
from jobs.design.planning.residual_sets import (
    charged_together,
    planned_levels,
    queries_of,
    workload_for,
    worse_pairs,
)
from jobs.design.requests import PlanRequest
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.yaml_file import read_map
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.files import writing

OPTIMIZATION = "optimization of an allocation"

# The search uses slightly lower limits, because shares are rounded to 1/DENOMINATOR afterwards, and
# still lower ones if the rounded shares miss a limit. Default, not measured.
_BELOW_LIMITS = 0.998

_SMALL = 1e-3  # share of a geolevel; default, not measured
_IDLE = 5e-3  # relative growth of a squared error, below the tolerance of the search

REPLACED = "the allocation it replaces"
EVEN = "even shares of geolevels and tables"

AimOf = Callable[[Information], Objective]


@dataclass(frozen=True, eq=False)
class TableNumbers:
    """Numbers by table and geolevel.

    Attributes:
      tables: The T tables that the file names.
      numbers: float64[T, L], weight or target by table and geolevel; 0 for missing weights,
      infinite for missing targets.
    """

    tables: tuple[Query, ...]
    numbers: FloatArray


@dataclass(frozen=True, eq=False)
class Goal:
    """Objective of an optimization: weights or targets of tables; by default equal weights.

    Attributes:
      weights: Weights of tables.
      targets: Targets of root mean squared errors, in persons; exclude all other fields.
      limits: Largest accepted root mean squared errors, in persons.
      others: Largest factor by which the error of any table may grow at any geolevel, relative to
        the replaced allocation; infinite for no limit.
      planned: Whether residual sets are measured, as `residual_planner` and `orp` do, in place of
        queries that count every cell once.
      reference: Name of the allocation that errors are compared with.
    """

    weights: TableNumbers | None = None
    targets: TableNumbers | None = None
    limits: TableNumbers | None = None
    others: float = math.inf
    reference: str = REPLACED
    planned: bool = False


EQUAL_WEIGHTS = Goal()


@dataclass(frozen=True, eq=False)
class Optimized:
    """Optimized allocation and its predicted errors.

    Attributes:
      strategy: Exact shares.
      before: Predicted errors of the allocation of the run file.
      after: Predicted errors of the strategy, at the same budget.
      value: With weights: weighted mean of squared errors relative to `before`. With targets: least
        rho. Both before shares are rounded.
      bound: Lower bound on `value` for all allocations over the same queries.
      source: Description of the optimization, for the file.
      information: Measurements that estimates may use.
      workloads: The workload of each geolevel of a planned strategy; empty for listed queries.
    """

    strategy: Strategy
    before: Prediction
    after: Prediction
    value: float
    bound: float
    source: str
    information: Information
    workloads: tuple[WorkloadConfig, ...] = ()


def read_goal(plan: Plan, request: PlanRequest) -> Goal:
    """Read the objective from the options of the command line.

    Raises:
      ConfigError: Options contradict each other, --optimize is missing, or a factor is not
        positive.
      OutputError: The file for the result exists.
      DasError: As `read_numbers`.
    """
    out, worsening = request.optimize, request.max_worsening
    is_bounded = request.max_rmse is not None or worsening is not None
    if request.weights is not None and request.targets is not None:
        raise ConfigError("das plan", "takes --weights or --targets, not both")
    if is_bounded and request.targets is not None:
        raise ConfigError("das plan", "takes --targets or --max-rmse and --max-worsening, not both")
    if out is None and (is_bounded or request.weights or request.targets or request.planned):
        what = "needs --optimize with --weights, --targets, --max-rmse or --planned"
        raise ConfigError("das plan", what)
    if out is not None and out.exists():
        raise OutputError(str(out), "exists", remedy="name another file or remove it")
    if worsening is not None and not worsening > 0:
        raise ConfigError("--max-worsening", "must be a positive factor", got=worsening)
    files = ((request.weights, 0.0), (request.targets, math.inf), (request.max_rmse, math.inf))
    weights, targets, limits = (
        None if path is None else read_numbers(plan, path, rest) for path, rest in files
    )
    others = math.inf if worsening is None else worsening
    return Goal(weights, targets, limits, others, planned=request.planned)


def optimize_allocation(
    plan: Plan,
    tree: SubtreeClasses,
    tables: Sequence[str],
    information: Information,
    goal: Goal = EQUAL_WEIGHTS,
) -> Optimized:
    """Optimize for targets, for weights, or for equal weights of `tables`."""
    if goal.targets is not None:
        return optimize_targets(plan, tree, information, goal.targets, planned=goal.planned)
    return optimize_weights(plan, tree, tables, information, goal)


def read_numbers(plan: Plan, path: Path, missing: float) -> TableNumbers:
    """Read a file of weights or targets: table to a number, or to {geolevel: number}.

    A single number holds for all geolevels; tables and geolevels that are not named do not count.

    Raises:
      ConfigError: The file is no such map, or has an unknown geolevel or a number that is negative
        or not finite.
      SchemaError: A table is not a query on the schema.
    """
    document = read_map(path)
    if not document:
        raise ConfigError(
            str(path), "must map tables to numbers", want="total: 1, or total: {tract: 1}"
        )
    return table_numbers(plan, f"{path}: ", document, missing)


def table_numbers(
    plan: Plan,
    where: str,
    document: Mapping[Any, Any],
    missing: float,
    read: Callable[[Plan, object, str], Query] = query_at,
) -> TableNumbers:
    """Read numbers of tables, each for all geolevels or by geolevel.

    Args:
      plan: The plan, for schema and geolevels.
      where: Prefix of the name of a table in errors.
      document: Table to a number, or to {geolevel: number}.
      missing: Number for geolevels that are not named.
      read: Function that parses the name of a table.

    Raises:
      ConfigError, SchemaError: As `read_numbers`.
    """
    levels = plan.spine.levels
    tables: dict[str, Query] = {}
    numbers: list[list[float]] = []
    for text, given in document.items():
        at = f"{where}{text}"
        table = read(plan, text, at)
        if table.name in tables:
            raise ConfigError(at, "names a table twice", got=table.name)
        per_level = by_geolevel(plan, at, given)
        tables[table.name] = table
        numbers.append(
            [_number(f"{at}.{name}", per_level.get(name, missing), missing) for name in levels]
        )
    return TableNumbers(tuple(tables.values()), np.reshape(numbers, (len(tables), len(levels))))


def _number(where: str, value: object, missing: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(where, "must be a number", got=repr(value))
    if value != missing and not (math.isfinite(value) and value >= 0):
        raise ConfigError(where, "must not be negative or infinite", got=value)
    return float(value)


def optimize_weights(
    plan: Plan,
    tree: SubtreeClasses,
    tables: Sequence[str],
    information: Information,
    goal: Goal = EQUAL_WEIGHTS,
) -> Optimized:
    """Optimize tables by weights, within the budget.

    Minimize the weighted mean, over tables and geolevels with noise, of the mean squared error
    relative to the error under the allocation of the run file, within the error limits.

    Args:
      plan: Budget, invariants and the allocation to compare with.
      tree: Classes of equal subtrees.
      tables: Tables with equal weights if no weights are given; `goal.others` limits them too.
      information: Measurements that estimates may use.
      goal: Weights by table and geolevel, and error limits.

    Raises:
      BudgetError: The cost of the noise is not proportional to squared sensitivities, no table
        with noise has weight, or the limits need more than the budget; the message says how much.
    """
    require_squares(plan, OPTIMIZATION)
    named, n_levels = parse_tables(plan, tables), len(plan.spine.levels)
    weights = goal.weights or TableNumbers(named, np.ones((len(named), n_levels)))
    given_limits = goal.limits or TableNumbers((), np.zeros((0, n_levels)))
    others = named if math.isfinite(goal.others) else ()
    counted = (*weights.tables, *others, *given_limits.tables)
    queries = tuple({query.name: query for query in counted}.values())
    before = predict(plan, plan.strategy, tree, queries)
    noisy = before.errors[information].mean > 0
    given = np.where(noisy, _spread(weights, queries, 0.0), 0.0)
    if not given.any():
        raise BudgetError("weights of tables", "leave no table with noise at any geolevel")
    given /= given.sum()
    rho = float(plan.budget.total)
    most = _spread(given_limits, queries, math.inf) ** 2 * rho
    compared = [query.name in {table.name for table in others} for query in queries]

    def aim(kind: Information) -> Objective:
        errors = before.errors[kind].mean
        relative = np.divide(given, rho * errors, out=np.zeros_like(given), where=noisy)
        limits = most.copy()
        if others:
            worst = np.where(noisy, goal.others**2 * rho * errors, np.inf)
            limits[compared] = np.minimum(limits, worst)[compared]
        has_limits = bool(np.isfinite(limits).any())
        return Objective(relative, is_sum=True, limits=limits if has_limits else None)

    kind = "equal weights" if goal.weights is None else "given weights"
    within = ", within limits" if given_limits.tables or others else ""

    def source(allocation: Allocation) -> str:
        return (
            f"{kind} of squared errors relative to {goal.reference}"
            f"{within}, {information} information: {allocation.value:.4f} of it, least possible "
            f"{allocation.bound:.4f}; tables: {', '.join(table.name for table in queries)}"
        )

    sought = Sought(queries, information, aim, planned=goal.planned)
    return optimize_within(plan, tree, sought, before, source)


def _spread(given: TableNumbers, queries: Sequence[Query], missing: float) -> FloatArray:
    """Return float64[tables, geolevels], the weight or target of each table at each geolevel.

    Args:
      given: Numbers of the tables that the file names.
      queries: The tables.
      missing: Number of a table that the file does not name.
    """
    rows = {query.name: numbers for query, numbers in zip(given.tables, given.numbers, strict=True)}
    empty = np.full(given.numbers.shape[1], missing)
    return np.stack([rows.get(query.name, empty) for query in queries])


@dataclass(frozen=True, eq=False)
class Sought:
    """Input of the search for shares.

    Attributes:
      tables: Tables of the model.
      information: Measurements that estimates may use.
      aim: Objective and limits by kind of information; a search with full information starts from
        one with single geounits.
      offered: Candidate queries besides those of the plan; None: the tables.
      planned: Whether the candidates are residual sets instead.
    """

    tables: tuple[Query, ...]
    information: Information
    aim: AimOf
    offered: tuple[Query, ...] | None = None
    planned: bool = False


def optimize_within(
    plan: Plan,
    tree: SubtreeClasses,
    sought: Sought,
    before: Prediction,
    source: Callable[[Allocation], str],
) -> Optimized:
    """Search for shares, round them, and search again if rounded shares miss a limit."""
    rho = float(plan.budget.total)
    limits = sought.aim(sought.information).limits
    below, start = _BELOW_LIMITS, None
    while True:  # until rounded shares keep the limits, or the search raises an error
        lowered = replace(sought, aim=_lowered(sought.aim, below))
        problem, allocation = search_shares(plan, tree, lowered, start)
        optimized = optimized_of(plan, tree, problem, allocation, before, source(allocation))
        if limits is None:
            return optimized
        missed = float((rho * optimized.after.errors[sought.information].mean / limits).max())
        if missed <= 1.0:
            return optimized
        below, start = below * (_BELOW_LIMITS / missed), allocation.shares


def _lowered(aim: AimOf, factor: float) -> AimOf:
    def lowered(kind: Information) -> Objective:
        unlowered = aim(kind)
        limits = unlowered.limits
        return unlowered if limits is None else replace(unlowered, limits=limits * factor)

    return lowered


def optimize_targets(
    plan: Plan,
    tree: SubtreeClasses,
    information: Information,
    targets: TableNumbers,
    *,
    planned: bool = False,
) -> Optimized:
    """Meet targets of root mean squared errors, in persons, with the least rho.

    The allocation then splits the whole budget of the plan.

    Raises:
      BudgetError: The cost of the noise is not proportional to squared sensitivities, a target is
        0, no target is given, or the targets need more rho than the budget; the message says how
        much.
    """
    require_squares(plan, OPTIMIZATION)
    if not (targets.numbers > 0).all() or not np.isfinite(targets.numbers).any():
        raise BudgetError("error targets", "must be positive, one of them finite")
    before = predict(plan, plan.strategy, tree, targets.tables)
    # Tables that invariants determine have no error and meet any target.
    aim = Objective(1.0 / targets.numbers**2)
    sought = Sought(targets.tables, information, lambda _: aim, planned=planned)
    named = f"tables: {', '.join(table.name for table in targets.tables)}"
    return meet_targets(plan, tree, sought, before, ("error targets", named))


def meet_targets(
    plan: Plan,
    tree: SubtreeClasses,
    sought: Sought,
    before: Prediction,
    words: tuple[str, str],
    unmet: Callable[[AllocationProblem, Allocation], str] = lambda *_: "",
) -> Optimized:
    """Search for shares that meet targets with the least rho.

    Args:
      plan: The plan; its budget is the limit.
      tree: Classes of equal subtrees.
      sought: The tables, and the targets as scales of their squared errors.
      before: Errors to compare with.
      words: Names of the targets and of the tables, for messages.
      unmet: Function that lists the missed targets, for the error.

    Raises:
      BudgetError: The targets need more rho than the budget; the message says how much.
    """
    problem, allocation = search_shares(plan, tree, sought)
    rho, (what, named) = float(plan.budget.total), words
    if allocation.value > rho:
        raise BudgetError(
            what,
            f"need more than the budget{unmet(problem, allocation)}",
            got=f"rho {rho:.6g}",
            want=f"rho {allocation.value:.6g} (at least {allocation.bound:.6g} is needed)",
            remedy="raise the budget or the targets",
        )
    source = (
        f"{what}, {sought.information} information: they need rho {allocation.value:.6g}, "
        f"least possible {allocation.bound:.6g}; {named}"
    )
    return optimized_of(plan, tree, problem, allocation, before, source)


def require_squares(plan: Plan, what: str) -> None:
    """Refuse noise whose cost is not proportional to squared sensitivities.

    Raises:
      BudgetError: The mechanism has another cost; the error names `what`.
    """
    definition = plan.budget.definition
    noise = choose_mechanism(definition, plan.strategy.mechanism)
    if noise.norms[definition] is not Norm.L2_SQUARED:
        raise BudgetError(
            what,
            "supports only noise whose cost is proportional to squared sensitivities",
            got=f"{noise.title} noise under {definition}",
            remedy="set privacy.definition to zcdp",
        )


def search_shares(
    plan: Plan, tree: SubtreeClasses, sought: Sought, start: FloatArray | None = None
) -> tuple[AllocationProblem, Allocation]:
    """Search for shares; full information starts from the faster search with single geounits.

    Args:
      plan: The plan; its measured queries are candidates, and its shares the start.
      tree: Classes of equal subtrees.
      sought: Tables, information and objective.
      start: Other shares to start from; skips the search with single geounits.
    """
    if sought.planned:
        return _search_planned(plan, tree, sought, start)
    offered = sought.tables if sought.offered is None else sought.offered
    measured = (query for level in plan.levels for query in level.queries)
    candidates = {
        query.name: query
        for query in (parse_query(plan.schema, "detailed"), *measured, *offered)
        if query.is_partition and query.is_listed
    }
    strata = None
    if plan.strategy.strata:
        of_strata = _of_strata(plan, list(candidates.values()))
        numbers = [0] * len(candidates) + [number for number, _ in of_strata]
        candidates |= {query.name: query for _, query in of_strata}
        strata = np.array(numbers)
    model = spine_model(plan, tree, list(candidates.values()), sought.tables)
    problem = AllocationProblem(model, plan.budget.neighbors, sought.information, strata)
    first = strategy_shares(problem, plan.strategy)
    return problem, _search(problem, sought, first, start)


def _search(
    problem: AllocationProblem, sought: Sought, first: FloatArray, start: FloatArray | None
) -> Allocation:
    """Search from `start`; without it from `first`, with single geounits before the whole tree."""
    information = sought.information
    if start is None and information is Information.TREE:
        # Errors from single geounits are larger and may exceed the limits: no limits yet.
        aim = replace(sought.aim(Information.GEOUNIT), limits=None)
        of_geounits = replace(problem, information=Information.GEOUNIT)
        start = find_shares(of_geounits, aim, first).shares
    return find_shares(problem, sought.aim(information), first if start is None else start)


def _search_planned(
    plan: Plan, tree: SubtreeClasses, sought: Sought, start: FloatArray | None
) -> tuple[AllocationProblem, Allocation]:
    """Search for shares of residual sets, which are charged together; see `search_shares`."""
    workload = workload_for(plan, sought.tables)
    candidates = queries_of(plan, workload)
    model = spine_model(plan, tree, [entry.query for entry in candidates], sought.tables)
    first = np.tile([float(entry.share) for entry in candidates], (len(plan.spine.levels), 1))
    first /= len(first)
    pairs, bound = np.ones((1, len(candidates))), 0.0
    while True:  # until no pair of neighbors costs more than those of the search
        problem = AllocationProblem(model, plan.budget.neighbors, sought.information, pairs=pairs)
        allocation = _search(problem, sought, first, start)
        bound = max(bound, allocation.bound)  # that of fewer pairs holds too
        more = worse_pairs(plan, candidates, pairs, allocation.shares)
        if len(more) == len(pairs):
            allocation = charged_together(plan, problem, allocation, workload)
            return problem, replace(allocation, bound=bound)
        pairs, start = more, allocation.shares


def _of_strata(plan: Plan, candidates: Sequence[Query]) -> list[tuple[int, Query]]:
    """Return (stratum from 1, query): its measured queries and all candidates within it."""
    out = []
    for number, stratum in enumerate(plan.strategy.strata, 1):
        measured = [entry.query for level in stratum.levels for entry in level.queries]
        candidates_of = [query for query in measured if query.counts_once and query.is_listed]
        candidates_of += [restricted(query, stratum.group) for query in candidates]
        # Two texts can name the same query in a stratum, such as its total and its recode.
        distinct = {
            tuple(f.matrix.tobytes() for f in q.factors): q for q in reversed(candidates_of)
        }
        out += [(number, query) for query in reversed(distinct.values())]
    return out


def optimized_of(
    plan: Plan,
    tree: SubtreeClasses,
    problem: AllocationProblem,
    allocation: Allocation,
    before: Prediction,
    source: str,
) -> Optimized:
    """Return the exact strategy of an allocation, with errors before and after."""
    workloads: tuple[WorkloadConfig, ...] = ()
    tables, levels = problem.model.tables, plan.spine.levels
    if problem.pairs is not None:
        workload = workload_for(plan, tables)
        strategy, workloads = planned_levels(plan, problem, allocation, workload)
    else:
        shares = _without_idle(problem, allocation.shares)
        groups = [stratum.group for stratum in plan.strategy.strata]
        strategy = exact_strategy(problem, shares, levels, plan.strategy.mechanism, groups)
    after = predict(plan, strategy, tree, tables)
    value, bound = allocation.value, allocation.bound
    return Optimized(strategy, before, after, value, bound, source, problem.information, workloads)


def _without_idle(problem: AllocationProblem, shares: FloatArray) -> FloatArray:
    """Remove small shares that no error needs, since each is a query measured everywhere.

    The search gives every candidate a positive share. Shares below _SMALL of their geolevel go to
    the other queries there, if no error grows by more than _IDLE.
    """
    out = shares.copy()
    for part in problem.parts:
        of_part = shares[:, part]
        is_small = of_part < _SMALL * of_part.sum(axis=1, keepdims=True)
        is_small[:, np.isin(part, needed_columns(problem))] = False
        kept = np.where(is_small, 0.0, of_part)
        out[:, part] = kept * (of_part.sum(axis=1) / kept.sum(axis=1))[:, None]
    before, after = problem.errors(shares), problem.errors(out)
    return out if (after <= (1 + _IDLE) * before).all() else shares


def _level_document(levels: Sequence[LevelStrategy]) -> dict[str, Any]:
    """Return geolevels as in an allocation file; names of queries omit the stratum (`where`)."""
    document = {}
    for level in levels:
        names = [entry.query.name.partition(" where ")[0] for entry in level.queries]
        shares = {name: str(entry.share) for name, entry in zip(names, level.queries, strict=True)}
        document[level.geolevel] = {"share": str(level.share), "queries": shares}
    return document


def allocation_text(optimized: Optimized, name: str) -> str:
    """Return the text of an allocation file with this name."""
    strategy = optimized.strategy
    document: dict[str, Any] = {
        "name": name,
        "source": f"{optimized.source}. Shares are multiples of 1/{DENOMINATOR}.",
    }
    if strategy.mechanism:
        document["mechanism"] = strategy.mechanism
    document["levels"] = _level_document(strategy.levels)
    for level, workload in zip(strategy.levels, optimized.workloads, strict=False):
        planned = workload.model_dump(mode="json", exclude_defaults=True)
        document["levels"][level.geolevel] = {"share": str(level.share), "workload": planned}
    if strategy.strata:
        levels = {s.group.label: _level_document(s.levels) for s in strategy.strata}
        query = " * ".join(strategy.strata[0].group.axes)
        document["strata"] = {"query": query, "levels": levels}
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))


def write_allocation(optimized: Optimized, path: Path) -> None:
    """Write the strategy as a new allocation file.

    Raises:
      OutputError: The file exists or cannot be written.
    """
    text = allocation_text(optimized, path.stem)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            remedy = "name another file or remove it"
            raise OutputError(str(path), "exists", remedy=remedy) from None
