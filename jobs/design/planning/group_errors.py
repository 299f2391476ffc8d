"""Optimize an allocation for population groups: minimize the largest relative growth of errors.

Errors of groups are compared within one query, table and geolevel, relative to public sizes or in
persons. The largest error of each comparison is divided by its value under the allocation of the
run file, and the largest of these ratios is minimized. Without this division blocks would decide
alone, since their relative errors are hundreds of times those of counties. With targets, the
targets are met with the least rho.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray
from das.errors import BudgetError
from das.queries.query import parse_query
from das.tree.allocation import Allocation, AllocationProblem
from das.tree.classes import SubtreeClasses
from das.tree.information import Information
from das.tree.largest import Objective
from das.tree.search import find_shares
from jobs.design.planning.allocation import (
    OPTIMIZATION,
    Optimized,
    Sought,
    meet_targets,
    optimize_within,
    require_squares,
)
from jobs.design.planning.errors import Prediction, parse_tables, predict
from jobs.design.planning.groups import GroupGoal
from jobs.pipeline.config.models.groups import Comparison
from jobs.pipeline.documents.document import document
from jobs.pipeline.plan import Plan

_MOST_UNREACHABLE = 10  # missed targets that an error names, with the rho that each needs


@document
class GroupError:
    """Predicted error of one group.

    Attributes:
      rmse: Root mean squared error of one answer.
      relative: `rmse` divided by the persons that an answer counts in a typical geounit; null
        without public sizes.
      is_worst: Whether no compared group has a larger error.
      rho_needed: Budget with which the allocation would meet the target; null without a target.
    """

    rmse: float
    relative: float | None
    is_worst: bool
    rho_needed: float | None


@document
class GroupRow:
    """Predicted errors of one table of a group at a geolevel.

    Attributes:
      name: The group, and the table if it is not the total.
      query: Partition query that defines the groups.
      group: Label of the group among the answers of the query.
      table: Name of the table.
      geolevel: The geolevel.
      persons: Persons of the group in a typical geounit; null if unknown.
      compared: Unit in which errors of groups are compared; null if they are not compared.
      target: Largest accepted error, in the unit of `compared`.
      own: Errors of estimates from the measurements of the geounit alone.
      full: Errors of estimates from the measurements of the whole tree.
    """

    name: str
    query: str
    group: str
    table: str
    geolevel: str
    persons: float | None
    compared: Comparison | None
    target: float | None
    own: GroupError
    full: GroupError


@document
class ComparedGroup(GroupRow):
    """Predicted errors of a group under an optimized allocation.

    Attributes:
      before: Errors under the allocation of the run file.
    """

    before: GroupRow


@dataclass(frozen=True, eq=False)
class Units:
    """Units in which errors of groups are compared.

    Attributes:
      scale: float64[T, L], 1 / squared unit of the mean squared error of an answer; 0 if not
        compared.
      persons: float64[T, L], persons of the group in a typical geounit; NaN if unknown.
      blocks: int64[T, L], index of the comparison; errors with equal index are compared.
    """

    scale: FloatArray
    persons: FloatArray
    blocks: npt.NDArray[np.int64]


def units_of(plan: Plan, tree: SubtreeClasses, group_goal: GroupGoal) -> Units:
    """Return, for each error of a group, its unit and the errors with which it is compared."""
    levels = plan.spine.levels
    persons = group_goal.persons(levels, tree.level_sizes())
    scale = np.zeros_like(persons)
    blocks = np.zeros(persons.shape, np.int64)
    numbers: dict[tuple[str, str, str], int] = {}
    for index, row in enumerate(group_goal.rows):
        for level, name in enumerate(levels):
            number = numbers.setdefault((row.query, row.table, name), len(numbers))
            blocks[index, level] = number
            kind = row.compared.get(name)
            if kind is Comparison.ABSOLUTE:
                scale[index, level] = 1.0
            elif kind is Comparison.RELATIVE and persons[index, level] >= group_goal.floor:
                scale[index, level] = (row.restricted.size / persons[index, level]) ** 2
    return Units(scale, persons, blocks)


def largest_of_blocks(blocks: npt.NDArray[np.int64], values: FloatArray) -> FloatArray:
    """Return float64[T, L], the largest of the values that are compared with each value.

    Args:
      blocks: int64[T, L], index of the comparison of each table and geolevel.
      values: float64[T, L], one value per table and geolevel.
    """
    largest = np.zeros(int(blocks.max()) + 1)
    np.maximum.at(largest, blocks.ravel(), values.ravel())
    return largest[blocks]


def predict_groups(plan: Plan, tree: SubtreeClasses, group_goal: GroupGoal) -> tuple[GroupRow, ...]:
    """Predict errors of groups under the allocation of the run file."""
    prediction = predict(plan, plan.strategy, tree, [row.restricted for row in group_goal.rows])
    return group_rows(plan, tree, group_goal, prediction)


def group_rows(
    plan: Plan, tree: SubtreeClasses, group_goal: GroupGoal, prediction: Prediction
) -> tuple[GroupRow, ...]:
    """Return one row of predicted errors per group, table and geolevel.

    Args:
      plan: Budget and geolevels.
      tree: Classes of equal subtrees.
      group_goal: The groups.
      prediction: Predicted errors; the tables of the groups come first.
    """
    units = units_of(plan, tree, group_goal)
    number = len(group_goal.rows)
    by_kind = {}
    for kind, errors in prediction.errors.items():
        mean = errors.mean[:number]
        compared = mean * units.scale
        is_worst = (compared > 0) & (compared == largest_of_blocks(units.blocks, compared))
        by_kind[kind] = (mean, compared, is_worst)
    rho = float(plan.budget.total)

    def error(kind: Information, index: int, level: int) -> GroupError:
        mean, compared, is_worst = by_kind[kind]
        rmse = float(mean[index, level]) ** 0.5
        size = group_goal.rows[index].restricted.size
        target = float(group_goal.targets[index, level])
        needed = rho * float(compared[index, level]) / target**2
        return GroupError(
            rmse=rmse,
            relative=known(rmse * size / float(units.persons[index, level])),
            is_worst=bool(is_worst[index, level]),
            rho_needed=needed if np.isfinite(target) else None,
        )

    def known(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return tuple(
        GroupRow(
            name=row.name,
            query=row.query,
            group=row.group,
            table=row.table,
            geolevel=name,
            persons=known(units.persons[index, level]),
            compared=row.compared.get(name),
            target=known(group_goal.targets[index, level]),
            own=error(Information.GEOUNIT, index, level),
            full=error(Information.TREE, index, level),
        )
        for index, row in enumerate(group_goal.rows)
        for level, name in enumerate(plan.spine.levels)
    )


def optimize_for_groups(
    plan: Plan,
    tree: SubtreeClasses,
    tables: Sequence[str],
    information: Information,
    group_goal: GroupGoal,
) -> Optimized:
    """Minimize the largest error over groups, or meet targets of groups with the least rho.

    Args:
      plan: Budget, invariants and the allocation to compare with.
      tree: Classes of equal subtrees.
      tables: Tables of the run; `group_goal.others` can limit the growth of their errors. In
        predictions they follow the tables of the groups.
      information: Measurements that estimates may use.
      group_goal: Groups, targets and limits.

    Raises:
      BudgetError: The cost of the noise is not proportional to squared sensitivities, no group has
        noise, or limits or targets need more rho than the budget; the message says how much.
    """
    require_squares(plan, OPTIMIZATION)
    others = parse_tables(plan, tables)
    limited = group_goal.limits.tables
    predicted = (*(row.restricted for row in group_goal.rows), *others, *limited)
    before = predict(plan, plan.strategy, tree, predicted)
    units = units_of(plan, tree, group_goal)
    rho, number = float(plan.budget.total), len(group_goal.rows)
    noisy = ~before.model.is_determined[:number]
    if not (units.scale[noisy] > 0).any():
        raise BudgetError(
            "groups",
            "have no error with noise to compare: invariants determine them, or no group reaches "
            "`floor` persons",
        )
    n_padding = ((0, len(predicted) - number), (0, 0))

    def of_groups(information: Information) -> Objective:
        errors = before.errors[information].mean
        compared = errors[:number] * units.scale
        largest = rho * largest_of_blocks(units.blocks, compared)
        scale = np.divide(units.scale, largest, out=np.zeros_like(compared), where=compared > 0)
        limits = np.full_like(errors, np.inf)
        if np.isfinite(group_goal.others):
            rows = slice(number, number + len(others))
            grown = group_goal.others**2 * rho * errors[rows]
            limits[rows] = np.where(errors[rows] > 0, grown, np.inf)
        limits[number + len(others) :] = rho * group_goal.limits.numbers**2
        return Objective(np.pad(scale, n_padding), limits=limits)

    queries = {row.query: parse_query(plan.schema, row.query) for row in group_goal.rows}
    offered, shown = (*queries.values(), *others, *limited), ", ".join(queries)

    def source(allocation: Allocation) -> str:
        return (
            "largest squared error over groups relative to the allocation it replaces, "
            f"{information} information: {allocation.value:.4f} of it, least possible "
            f"{allocation.bound:.4f}; groups: {shown}"
        )

    if not group_goal.has_targets:
        sought = Sought(predicted, information, of_groups, offered)
        return optimize_within(plan, tree, sought, before, source)
    scale = np.sqrt(np.where(noisy, units.scale, 0.0))
    none = np.full_like(scale, np.inf)
    targets = np.divide(group_goal.targets, scale, out=none, where=scale > 0)
    of_targets = Objective(np.pad(1.0 / targets**2, n_padding))
    sought = Sought(predicted, information, lambda _: of_targets, offered)
    words = ("targets of groups", f"groups: {shown}")
    return meet_targets(plan, tree, sought, before, words, partial(_unmet, plan, group_goal, units))


def _unmet(
    plan: Plan,
    group_goal: GroupGoal,
    units: Units,
    problem: AllocationProblem,
    allocation: Allocation,
) -> str:
    """Return a text that names missed targets, with the rho that each would need by itself."""
    rho, number = float(plan.budget.total), len(group_goal.rows)
    ratios = problem.errors(allocation.shares)[:number] * units.scale / group_goal.targets**2
    spots = [(int(a), int(b)) for a, b in np.argwhere(ratios > rho)]
    spots.sort(key=lambda spot: -float(ratios[spot]))
    named = []
    for index, level in spots[:_MOST_UNREACHABLE]:
        alone = np.zeros((len(problem.model.tables), ratios.shape[1]))
        alone[index, level] = units.scale[index, level] / group_goal.targets[index, level] ** 2
        least = find_shares(problem, Objective(alone), allocation.shares)
        where = f"{group_goal.rows[index].name} at {plan.spine.levels[level]}"
        named.append(f"{where} alone needs rho {least.value:.6g}")
    more = len(spots) - len(named)
    return ": " + "; ".join([*named, *([f"{more} more"] if more else [])])
