"""Find the allocation that makes given tables most accurate, and write it as a file.

The tables come with weights, to be made as accurate as the budget allows, perhaps within floors of
accuracy, or with targets, to be met with as little of it as possible. Nothing here reads data.
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
    detailed_column,
    exact_strategy,
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
from jobs.design.requests import PlanRequest
from jobs.pipeline.config.yaml_file import read_map
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.files import writing

OPTIMIZATION = "optimization of an allocation"

# Limits are sought a little lower than they are, since shares are rounded to 1/DENOMINATOR
# afterwards, and lower still where the rounded shares miss one.
_BELOW_LIMITS = 0.998

_SMALL = 1e-3  # of a geolevel
_IDLE = 5e-3  # relative growth of a squared error: less than the search itself leaves open

REPLACED = "the allocation it replaces"
EVEN = "even shares of geolevels and tables"

AimOf = Callable[[Information], Objective]


@dataclass(frozen=True, eq=False)
class TableNumbers:
    """One number per table and geolevel.

    Attributes:
      tables: The tables, T of them.
      numbers: float64[T, L]; what is not named is 0 for weights and infinite for targets.
    """

    tables: tuple[Query, ...]
    numbers: FloatArray


@dataclass(frozen=True, eq=False)
class Goal:
    """What the best allocation is: weights or targets, one of them at most, or equal weights.

    Attributes:
      weights: Of tables.
      targets: Of tables; without limits and others.
      limits: The largest accepted root mean squared errors of tables, in persons.
      others: Factor by which no table may be worse at any geolevel than under the allocation that
        is replaced; infinite for any.
      reference: What errors are compared with.
    """

    weights: TableNumbers | None = None
    targets: TableNumbers | None = None
    limits: TableNumbers | None = None
    others: float = math.inf
    reference: str = REPLACED


@dataclass(frozen=True, eq=False)
class Optimized:
    """An allocation and what it attains.

    Attributes:
      strategy: Exact shares.
      before: Predicted errors of the allocation of the run file.
      after: Predicted errors of the strategy, at the same budget.
      value: With weights, the weighted mean of squared errors over those before; with targets, the
        least rho; before shares are rounded.
      bound: No allocation over the same queries has a lower value.
      source: How it was made, for the file.
      information: What estimates may use.
    """

    strategy: Strategy
    before: Prediction
    after: Prediction
    value: float
    bound: float
    source: str
    information: Information


def read_goal(plan: Plan, request: PlanRequest) -> Goal:
    """Read what the command line says of the best allocation.

    Raises:
      ConfigError: Options contradict each other, one is without a place for the result, or a factor
        is not positive.
      OutputError: The place exists.
      DasError: As `read_numbers`.
    """
    out, worsening = request.optimize, request.max_worsening
    is_bounded = request.max_rmse is not None or worsening is not None
    if request.weights is not None and request.targets is not None:
        raise ConfigError("das plan", "takes --weights or --targets, not both")
    if is_bounded and request.targets is not None:
        raise ConfigError("das plan", "takes --targets or --max-rmse and --max-worsening, not both")
    if out is None and (is_bounded or request.weights or request.targets):
        raise ConfigError("das plan", "needs --optimize with --weights, --targets or --max-rmse")
    if out is not None and out.exists():
        raise OutputError(str(out), "exists", remedy="name another file or remove it")
    if worsening is not None and not worsening > 0:
        raise ConfigError("--max-worsening", "must be a positive factor", got=worsening)
    files = ((request.weights, 0.0), (request.targets, math.inf), (request.max_rmse, math.inf))
    weights, targets, limits = (
        None if path is None else read_numbers(plan, path, rest) for path, rest in files
    )
    return Goal(weights, targets, limits, math.inf if worsening is None else worsening)


def optimize_allocation(
    plan: Plan,
    tree: SubtreeClasses,
    tables: Sequence[str],
    information: Information,
    goal: Goal | None = None,
) -> Optimized:
    """Optimize for targets, for weights, or for equal weights of `tables`."""
    goal = goal or Goal()
    if goal.targets is not None:
        return optimize_targets(plan, tree, information, goal.targets)
    return optimize_weights(plan, tree, tables, information, goal)


def read_numbers(plan: Plan, path: Path, missing: float) -> TableNumbers:
    """Read a file of weights or targets: table to a number, or to {geolevel: number}.

    A number stands for all geolevels; what is not named does not count.

    Raises:
      ConfigError: The file cannot be used: not such a map, an unknown geolevel, a number that is
        negative or not finite.
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
      plan: Has the schema and the geolevels.
      where: What stands before the name of a table in errors.
      document: Table to a number, or to {geolevel: number}.
      missing: The number of a geolevel that is not named.
      read: Reads the name of a table.

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
    goal: Goal | None = None,
) -> Optimized:
    """Make tables as accurate as the budget allows.

    Minimizes the weighted mean, over tables and geolevels with noise, of the mean squared error
    divided by that under the allocation of the run file, within the floors.

    Args:
      plan: Budget, invariants and the allocation to compare with.
      tree: Classes of equal subtrees.
      tables: Tables of equal weight if no weights are given; floors by a factor hold for them, too.
      information: What estimates may use.
      goal: Weights per table and geolevel, and floors.

    Raises:
      BudgetError: The cost of the noise is not proportional to squared sensitivities, no table
        with noise has weight, or the floors need more than the budget; the message says how much.
    """
    require_squares(plan, OPTIMIZATION)
    goal = goal or Goal()
    named, n_levels = parse_tables(plan, tables), len(plan.spine.levels)
    weights = goal.weights or TableNumbers(named, np.ones((len(named), n_levels)))
    limited = goal.limits.tables if goal.limits is not None else ()
    others = named if math.isfinite(goal.others) else ()
    queries = tuple({query.name: query for query in (*weights.tables, *others, *limited)}.values())
    before = predict(plan, plan.strategy, tree, queries)
    noisy = before.errors[information].mean > 0
    given = np.where(noisy, _spread(weights, queries, n_levels, 0.0), 0.0)
    if not given.any():
        raise BudgetError("weights of tables", "leave no table with noise at any geolevel")
    given /= given.sum()
    rho = float(plan.budget.total)
    most = _spread(goal.limits, queries, n_levels, math.inf) ** 2 * rho
    compared = [query.name in {other.name for other in others} for query in queries]

    def aim(kind: Information) -> Objective:
        errors = before.errors[kind].mean
        relative = np.divide(given, rho * errors, out=np.zeros_like(given), where=noisy)
        limits = most.copy()
        if others:
            worst = np.where(noisy, goal.others**2 * rho * errors, np.inf)
            limits[compared] = np.minimum(limits, worst)[compared]
        return Objective(
            relative, is_sum=True, limits=limits if np.isfinite(limits).any() else None
        )

    kind = "equal weights" if goal.weights is None else "given weights"
    within = ", within floors" if limited or others else ""

    def source(allocation: Allocation) -> str:
        return (
            f"{kind} of squared errors relative to {goal.reference}"
            f"{within}, {information} information: {allocation.value:.4f} of it, least possible "
            f"{allocation.bound:.4f}; tables: {', '.join(table.name for table in queries)}"
        )

    return optimize_within(plan, tree, Sought(queries, information, aim), before, source)


def _spread(
    given: TableNumbers | None, queries: Sequence[Query], levels: int, missing: float
) -> FloatArray:
    """float64[T, L]: numbers of tables, among other tables."""
    rows = dict(zip([q.name for q in given.tables], given.numbers, strict=True)) if given else {}
    empty = np.full(levels, missing)
    return np.stack([rows.get(query.name, empty) for query in queries])


@dataclass(frozen=True, eq=False)
class Sought:
    """What an allocation is sought for.

    Attributes:
      tables: Tables of the model.
      information: What estimates may use.
      aim: What is made least, and limits; own measurements come first where all of the tree are
        asked for.
      offered: Candidates besides those of the plan, where they can be measured; None for the
        tables.
    """

    tables: tuple[Query, ...]
    information: Information
    aim: AimOf
    offered: tuple[Query, ...] | None = None


def optimize_within(
    plan: Plan,
    tree: SubtreeClasses,
    sought: Sought,
    before: Prediction,
    source: Callable[[Allocation], str],
) -> Optimized:
    """Search, round the shares, and search again where the rounded shares miss a limit."""
    rho = float(plan.budget.total)
    limits = sought.aim(sought.information).limits
    below, start = _BELOW_LIMITS, None
    while True:  # until the shares keep the limits, or the search finds these too low
        lowered = replace(sought, aim=_lowered(sought.aim, below))
        problem, allocation = search_shares(plan, tree, lowered, start)
        found = optimized_of(plan, tree, problem, allocation, before, source(allocation))
        if limits is None:
            return found
        missed = float((rho * found.after.errors[sought.information].mean / limits).max())
        if missed <= 1.0:
            return found
        below, start = below * (_BELOW_LIMITS / missed), allocation.shares


def _lowered(aim: AimOf, factor: float) -> AimOf:
    def lowered(kind: Information) -> Objective:
        found = aim(kind)
        limits = found.limits
        return found if limits is None else replace(found, limits=limits * factor)

    return lowered


def optimize_targets(
    plan: Plan, tree: SubtreeClasses, information: Information, targets: TableNumbers
) -> Optimized:
    """Meet targets of root mean squared errors, in persons, with the least rho.

    The allocation is then used with the whole budget of the plan.

    Raises:
      BudgetError: The cost of the noise is not proportional to squared sensitivities, a target is
        0, none is given, or the targets need more
        rho than the budget; the message says how much.
    """
    require_squares(plan, OPTIMIZATION)
    if not (targets.numbers > 0).all() or not np.isfinite(targets.numbers).any():
        raise BudgetError("error targets", "must be positive, one of them finite")
    before = predict(plan, plan.strategy, tree, targets.tables)
    # What invariants determine has no error, so it meets any target.
    aim = Objective(1.0 / targets.numbers**2)
    sought = Sought(targets.tables, information, lambda _: aim)
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
    """Search the shares that meet targets with the least rho.

    Args:
      plan: Its budget is what they may need.
      tree: Classes of equal subtrees.
      sought: The tables, and the targets as scales of their squared errors.
      before: Errors to compare with.
      words: What the targets are, and of what.
      unmet: Says which of them the budget does not reach, if it does not.

    Raises:
      BudgetError: They need more rho than the budget; the message says how much.
    """
    problem, allocation = search_shares(plan, tree, sought)
    rho, (what, named) = float(plan.budget.total), words
    if allocation.value > rho:
        raise BudgetError(
            what,
            f"need more than the budget{unmet(problem, allocation)}",
            got=f"rho {rho:.6g}",
            want=f"rho {allocation.value:.6g} (none below {allocation.bound:.6g} can do)",
            remedy="raise the budget or the targets",
        )
    source = (
        f"{what}, {sought.information} information: they need rho {allocation.value:.6g}, "
        f"least possible {allocation.bound:.6g}; {named}"
    )
    return optimized_of(plan, tree, problem, allocation, before, source)


def require_squares(plan: Plan, what: str) -> None:
    """Refuse noise whose cost is not proportional to squared sensitivities, by what needs it.

    Raises:
      BudgetError: It is not.
    """
    definition = plan.budget.definition
    noise = choose_mechanism(definition, plan.strategy.mechanism)
    if noise.norms[definition] is not Norm.L2_SQUARED:
        raise BudgetError(
            what,
            "knows only noise that costs in proportion to squared sensitivities",
            got=f"{noise.title} noise under {definition}",
            remedy="set privacy.definition to zcdp",
        )


def search_shares(
    plan: Plan, tree: SubtreeClasses, sought: Sought, start: FloatArray | None = None
) -> tuple[AllocationProblem, Allocation]:
    """Search with own measurements first, which is fast; full information starts from there.

    Args:
      plan: Its measured queries are candidates, from whose shares the search starts.
      tree: Classes of equal subtrees.
      sought: What for.
      start: Shares to start from instead, without a search with own measurements.
    """
    offered = sought.tables if sought.offered is None else sought.offered
    candidates = {
        query.name: query
        for query in (
            parse_query(plan.schema, "detailed"),
            *(query for level in plan.levels for query in level.queries),
            *offered,
        )
        if query.is_partition and query.is_listed
    }
    strata = None
    if plan.strategy.strata:
        of_strata = _of_strata(plan, list(candidates.values()))
        numbers = [0] * len(candidates) + [number for number, _ in of_strata]
        candidates |= {query.name: query for _, query in of_strata}
        strata = np.array(numbers)
    model = spine_model(plan, tree, list(candidates.values()), sought.tables)
    neighbors, information = plan.budget.neighbors, sought.information
    own = AllocationProblem(model, neighbors, Information.GEOUNIT, strata)
    full = AllocationProblem(model, neighbors, Information.TREE, strata)
    asked = own if information is Information.GEOUNIT else full
    if start is not None:
        return asked, find_shares(asked, sought.aim(information), start)
    start = strategy_shares(own, plan.strategy)
    if information is Information.TREE:
        # Own errors are larger, and limits in persons may be beyond them: no limits yet.
        first = replace(sought.aim(Information.GEOUNIT), limits=None)
        start = find_shares(own, first, start).shares
    return asked, find_shares(asked, sought.aim(information), start)


def _of_strata(plan: Plan, candidates: Sequence[Query]) -> list[tuple[int, Query]]:
    """Candidates of each stratum, with its number from 1: what it measures, and the others."""
    out = []
    for number, stratum in enumerate(plan.strategy.strata, 1):
        measured = [entry.query for level in stratum.levels for entry in level.queries]
        every = [query for query in measured if query.counts_once and query.is_listed]
        every += [restricted(query, stratum.group) for query in candidates]
        # Two texts may ask the same of a stratum, such as its total and its recode.
        distinct = {tuple(f.matrix.tobytes() for f in q.factors): q for q in reversed(every)}
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
    """The exact strategy of an allocation, with its errors before and after."""
    mechanism = plan.strategy.mechanism
    shares = _without_idle(problem, allocation.shares)
    groups = [stratum.group for stratum in plan.strategy.strata]
    strategy = exact_strategy(problem, shares, plan.spine.levels, mechanism, groups)
    after = predict(plan, strategy, tree, problem.model.tables)
    value, bound = allocation.value, allocation.bound
    return Optimized(strategy, before, after, value, bound, source, problem.information)


def _without_idle(problem: AllocationProblem, shares: FloatArray) -> FloatArray:
    """Shares without small ones that no error needs: each is a query to measure everywhere.

    A search leaves something to every candidate. What has less than _SMALL of its geolevel goes to
    the others there, if no error grows by more than _IDLE.
    """
    out = shares.copy()
    for part in problem.parts:
        own = shares[:, part]
        is_small = own < _SMALL * own.sum(axis=1, keepdims=True)
        is_small[:, part == detailed_column(problem)] = False
        kept = np.where(is_small, 0.0, own)
        out[:, part] = kept * (own.sum(axis=1) / kept.sum(axis=1))[:, None]
    before, after = problem.errors(shares), problem.errors(out)
    return out if (after <= (1 + _IDLE) * before).all() else shares


def _level_document(levels: Sequence[LevelStrategy]) -> dict[str, Any]:
    """Geolevels as an allocation file has them; queries of a stratum without its condition."""
    return {
        level.geolevel: {
            "share": str(level.share),
            "queries": {
                entry.query.name.partition(" where ")[0]: str(entry.share)
                for entry in level.queries
            },
        }
        for level in levels
    }


def allocation_text(optimized: Optimized, name: str) -> str:
    """The strategy as the text of an allocation file of this name."""
    strategy = optimized.strategy
    document: dict[str, Any] = {
        "name": name,
        "source": f"{optimized.source}. Shares are multiples of 1/{DENOMINATOR}.",
    }
    if strategy.mechanism:
        document["mechanism"] = strategy.mechanism
    document["levels"] = _level_document(strategy.levels)
    if strategy.strata:
        levels = {one.group.label: _level_document(one.levels) for one in strategy.strata}
        query = " * ".join(strategy.strata[0].group.axes)
        document["strata"] = {"query": query, "levels": levels}
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))


def write_allocation(optimized: Optimized, path: Path) -> None:
    """Write the strategy as an allocation file; an existing file is not replaced.

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
