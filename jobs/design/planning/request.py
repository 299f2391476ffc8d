"""The command `das plan`: predicted errors of tables, and the best allocation for them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from das.errors import ConfigError
from geography.lattice import Lattice
from jobs.design.planning.allocation import EVEN, optimize_allocation, read_goal, write_allocation
from jobs.design.planning.covariances import predict_covariances
from jobs.design.planning.errors import subtree_classes
from jobs.design.planning.group_errors import optimize_for_groups, predict_groups
from jobs.design.planning.groups import GroupGoal, read_groups
from jobs.design.planning.summary import PlanSummary, optimized_summary, plan_summary
from jobs.design.requests import PlanRequest
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.documents.covariance import parse_pair
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.progress import Reporter


def explain(
    resolved: Resolved,
    request: PlanRequest,
    geounits: Callable[[], Lattice],
    reporter: Reporter,
) -> dict[str, PlanSummary]:
    """Predict errors of the tables of every product; optimize and write reports on request.

    Args:
      resolved: The run.
      request: Options of the command.
      geounits: Function that lists the geounits, possibly slowly; called after all checks.
      reporter: Receives progress.

    Returns:
      Product to summary, in the order of work.

    Raises:
      ConfigError, SchemaError: The request does not match the run.
      OutputError: A file cannot be written, or would replace a foreign file.
    """
    if request.report is not None:
        refuse_foreign(request.report, b"<!DOCTYPE html>", "a report, which is replaced")
    planned = resolved.last if request.product is None else resolved.products[request.product]
    plan, source = planned.plan, resolved.config.geography.source
    goal, group_goal = read_goal(plan, request), _read_groups(plan, request)
    pair = None if request.covariance is None else parse_pair(plan.schema, request.covariance)
    with reporter.line("plan", "geounits"):
        lattice = geounits()
    with reporter.line("plan", "predicted errors"):
        classes = subtree_classes(lattice)
        summaries = {}
        for name, product in resolved.products.items():
            tables = request.tables if product is planned else None
            summaries[name] = plan_summary(product, source, lattice, classes, tables)
        summary = summaries[planned.name]
        if group_goal is not None and request.optimize is None:
            summary = replace(summary, groups=predict_groups(plan, classes, group_goal))
    if request.optimize is not None:
        wanted = [*planned.tabulated] if request.tables is None else request.tables
        is_even, information = planned.config.privacy.allocation is None, request.information
        with reporter.line("plan", "optimize"):
            if group_goal is None:
                goal = replace(goal, reference=EVEN) if is_even else goal
                best = optimize_allocation(plan, classes, wanted, information, goal)
            else:
                best = optimize_for_groups(plan, classes, wanted, information, group_goal)
        made = _command(resolved.source, request)
        sizes = f"{len(lattice.codes[-1]):,} geounits at {lattice.spine.levels[-1]}"
        best = replace(best, source=f"{made}: {best.source}; {sizes}")
        write_allocation(best, request.optimize)
        written = (best, request.optimize, group_goal)
        optimized = optimized_summary(plan, classes, *written, is_even=is_even)
        summary = replace(summary, optimized=optimized)
    if pair is not None:
        with reporter.line("plan", "covariances"):
            summary = replace(summary, covariances=predict_covariances(plan, classes, pair))
    if request.report is not None:
        from jobs.design.planning.page import write_plan_report

        write_plan_report(summary, request.report)
    return summaries | {planned.name: summary}


def _read_groups(plan: Plan, request: PlanRequest) -> GroupGoal | None:
    """Read the file of groups, if one is given.

    Raises:
      ConfigError: The file is invalid, or combined with options for tables.
    """
    if request.groups is None:
        return None
    if request.planned:
        raise ConfigError("das plan", "takes --groups or --planned, not both")
    if request.weights or request.targets or request.max_rmse or request.max_worsening is not None:
        raise ConfigError(
            "das plan",
            "takes --groups, or --weights, --targets, --max-rmse and --max-worsening; in a file of "
            "groups the keys `targets`, `limits` and `others` do the same",
        )
    return read_groups(plan, request.groups)


def _command(run: Place, request: PlanRequest) -> str:
    """Return the command line that reproduces the allocation."""
    words = ["das", "plan", str(run), "--optimize", str(request.optimize)]
    for name in (
        *("product", "allocation", "tables", "weights", "targets", "max_rmse", "max_worsening"),
        *("groups", "information"),
    ):
        value = getattr(request, name)
        if isinstance(value, float):
            value = f"{value:g}"
        elif isinstance(value, tuple):
            value = ",".join(value)
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    words += ["--planned"] * request.planned
    return shlex.join(words)
