"""Find the allocation that makes given tables most accurate, and write it as a file.

The tables come with weights, to be made as accurate as the budget allows, or with targets,
to be met with as little of it as possible. Nothing here reads data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from das.arrays import FloatArray
from das.errors import BudgetError, ConfigError, DasError, OutputError
from das.mechanisms.mechanism import Norm
from das.mechanisms.registry import choose_mechanism
from das.queries.query import Query, parse_query, restricted
from das.strategy import LevelStrategy, Strategy
from das.tree.allocation import (
    DENOMINATOR,
    Allocation,
    AllocationProblem,
    exact_strategy,
    least_weighted_error,
    strategy_shares,
)
from das.tree.classes import SubtreeClasses
from das.tree.information import Information
from das.tree.largest import least_rho
from jobs.config.yaml_file import read_map
from jobs.plan import Plan
from jobs.planning.errors import Prediction, parse_tables, predict, spine_model

OPTIMIZATION = "optimization of an allocation"


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
    """Weights or targets, one of them."""

    weights: TableNumbers | None
    targets: TableNumbers | None


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
    """

    strategy: Strategy
    before: Prediction
    after: Prediction
    value: float
    bound: float
    source: str


@dataclass(frozen=True, eq=False)
class Compared:
    """What an allocation replaces.

    Attributes:
      before: Predicted errors of the allocation of the run file.
      source: How the new one was made, for the file.
    """

    before: Prediction
    source: str


def read_goal(
    plan: Plan, weights: Path | None, targets: Path | None, out: Path | None
) -> Goal | None:
    """Read what the command line asks for; None if nothing.

    Raises:
      ConfigError: Both files are given, or one without a place for the result.
      DasError: As `read_numbers`.
    """
    if weights is not None and targets is not None:
        raise ConfigError("das plan", "takes --weights or --targets, not both")
    if out is None and (weights is not None or targets is not None):
        raise ConfigError("das plan", "needs --optimize with --weights or --targets")
    if out is not None and out.exists():
        raise OutputError(str(out), "exists", remedy="name another file or remove it")
    if targets is not None:
        return Goal(None, read_numbers(plan, targets, math.inf))
    return Goal(read_numbers(plan, weights, 0.0), None) if weights is not None else None


def optimize_allocation(
    plan: Plan,
    tree: SubtreeClasses,
    tables: Sequence[str],
    information: Information,
    goal: Goal | None,
) -> Optimized:
    """Optimize for targets, for weights, or for equal weights of `tables`."""
    if goal is not None and goal.targets is not None:
        return optimize_targets(plan, tree, information, goal.targets)
    return optimize_weights(plan, tree, tables, information, goal.weights if goal else None)


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
    levels = plan.spine.levels
    tables: dict[str, Query] = {}
    numbers: dict[str, FloatArray] = {}
    for text, given in document.items():
        where = f"{path}: {text}"
        try:
            table = parse_query(plan.schema, str(text))
        except DasError as error:
            raise type(error)(
                f"{where}: {error.where}", error.what, got=error.got, want=error.want
            ) from None
        if table.name in tables:
            raise ConfigError(where, "names a table twice", got=table.name)
        per_level = given if isinstance(given, dict) else dict.fromkeys(levels, given)
        unknown = [str(name) for name in per_level if name not in levels]
        if unknown:
            raise ConfigError(where, "names an unknown geolevel", got=unknown, want=list(levels))
        tables[table.name] = table
        numbers[table.name] = np.array(
            [_number(f"{where}.{name}", per_level.get(name, missing), missing) for name in levels]
        )
    return TableNumbers(tuple(tables.values()), np.stack(list(numbers.values())))


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
    weights: TableNumbers | None = None,
) -> Optimized:
    """Make tables as accurate as the budget allows.

    Minimizes the weighted mean, over tables and geolevels with noise, of the mean squared error
    divided by that under the allocation of the run file.

    Args:
      plan: Budget, invariants and the allocation to compare with.
      tree: Classes of equal subtrees.
      tables: Tables of equal weight; used if no weights are given.
      information: What estimates may use.
      weights: Per table and geolevel.

    Raises:
      BudgetError: The cost of the noise is not proportional to squared sensitivities, or no table
        with noise has weight.
    """
    require_squares(plan, OPTIMIZATION)
    queries = weights.tables if weights is not None else parse_tables(plan, tables)
    before = predict(plan, plan.strategy, tree, queries)
    errors = before.errors[information].mean
    noisy = errors > 0
    given = np.where(noisy, 1.0 if weights is None else weights.numbers, 0.0)
    if not given.any():
        raise BudgetError("weights of tables", "leave no table with noise at any geolevel")
    given /= given.sum()
    rho = float(plan.budget.total)
    relative = np.divide(given, rho * errors, out=np.zeros_like(errors), where=noisy)
    problem, allocation = search_shares(
        plan, tree, queries, information, lambda p, start: least_weighted_error(p, relative, start)
    )
    kind = "equal weights" if weights is None else "given weights"
    source = (
        f"das plan --optimize, {kind} of squared errors relative to the allocation it replaces, "
        f"{information} information: {allocation.value:.4f} of it, least possible "
        f"{allocation.bound:.4f}; tables: {', '.join(table.name for table in queries)}"
    )
    return optimized_of(plan, tree, problem, allocation, Compared(before, source))


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
    before = predict(plan, plan.strategy, tree, targets.tables)
    # What invariants determine has no error, so it meets any target.
    largest = np.where(before.model.is_determined, np.inf, targets.numbers)
    problem, allocation = search_shares(
        plan, tree, targets.tables, information, lambda p, start: least_rho(p, largest, start)
    )
    rho = float(plan.budget.total)
    if allocation.value > rho:
        raise BudgetError(
            "error targets",
            "need more than the budget",
            got=f"rho {rho:.6g}",
            want=f"rho {allocation.value:.6g} (none below {allocation.bound:.6g} can do)",
            remedy="raise the budget or the targets",
        )
    source = (
        f"das plan --optimize, error targets, {information} information: they need rho "
        f"{allocation.value:.6g}, least possible {allocation.bound:.6g}; "
        f"tables: {', '.join(table.name for table in targets.tables)}"
    )
    return optimized_of(plan, tree, problem, allocation, Compared(before, source))


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
    plan: Plan,
    tree: SubtreeClasses,
    tables: Sequence[Query],
    information: Information,
    search: Callable[[AllocationProblem, FloatArray], Allocation],
    offered: Sequence[Query] | None = None,
) -> tuple[AllocationProblem, Allocation]:
    """Search with own measurements first, which is fast; full information starts from there.

    Args:
      plan: Its measured queries are candidates, from whose shares the search starts.
      tree: Classes of equal subtrees.
      tables: Tables of the model.
      information: What estimates may use.
      search: From a problem and shares to start from to an allocation.
      offered: Candidates besides, where they can be measured; None for the tables.
    """
    candidates = {
        query.name: query
        for query in (
            parse_query(plan.schema, "detailed"),
            *(query for level in plan.levels for query in level.queries),
            *(tables if offered is None else offered),
        )
        if query.is_partition and query.is_listed
    }
    strata = None
    if plan.strategy.strata:
        of_strata = _of_strata(plan, list(candidates.values()))
        numbers = [0] * len(candidates) + [number for number, _ in of_strata]
        candidates |= {query.name: query for _, query in of_strata}
        strata = np.array(numbers)
    model = spine_model(plan, tree, list(candidates.values()), tables)
    own = AllocationProblem(model, plan.budget.neighbors, Information.OWN, strata)
    allocation = search(own, strategy_shares(own, plan.strategy))
    if information is Information.OWN:
        return own, allocation
    full = AllocationProblem(model, plan.budget.neighbors, information, strata)
    return full, search(full, allocation.shares)


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
    compared: Compared,
) -> Optimized:
    """The exact strategy of an allocation, with its errors before and after."""
    mechanism = plan.strategy.mechanism
    groups = [stratum.group for stratum in plan.strategy.strata]
    strategy = exact_strategy(problem, allocation.shares, plan.spine.levels, mechanism, groups)
    after = predict(plan, strategy, tree, problem.model.tables)
    return Optimized(
        strategy, compared.before, after, allocation.value, allocation.bound, compared.source
    )


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


def write_allocation(optimized: Optimized, path: Path) -> None:
    """Write the strategy as an allocation file; an existing file is not replaced.

    Raises:
      OutputError: The file exists or cannot be written.
    """
    strategy = optimized.strategy
    strata = {}
    if strategy.strata:
        strata["strata"] = {
            "query": " * ".join(strategy.strata[0].group.axes),
            "levels": {
                stratum.group.label: _level_document(stratum.levels) for stratum in strategy.strata
            },
        }
    document = {
        "name": path.stem,
        "source": f"{optimized.source}. Shares are multiples of 1/{DENOMINATOR}.",
        **({"mechanism": strategy.mechanism} if strategy.mechanism else {}),
        "levels": _level_document(strategy.levels),
        **strata,
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputError(str(path), "exists", remedy="name another file or remove it") from None
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
