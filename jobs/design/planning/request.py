"""What `das plan` is asked, and its answers: errors of tables, and the best allocation for them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from das.errors import ConfigError
from das.tree.information import Information
from geography.lattice import Lattice
from jobs.design.planning.allocation import (
    EVEN,
    GoalFiles,
    optimize_allocation,
    read_goal,
    write_allocation,
)
from jobs.design.planning.covariances import predict_covariances
from jobs.design.planning.equity import optimize_equity, predict_groups
from jobs.design.planning.errors import subtree_classes
from jobs.design.planning.groups import read_equity
from jobs.design.planning.summary import (
    PlanSummary,
    equity_summary,
    optimized_summary,
    plan_summary,
)
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.documents.covariance import parse_pair
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.progress import Reporter


@dataclass(frozen=True)
class PlanRequest:
    """What to say of a run that was not begun.

    Attributes:
      product: The product that all other questions are about; None for the last.
      tables: Queries to predict and optimize; None for the tables of the product.
      losses: Whether to compute epsilon by privacy loss distributions too.
      goal: File to write with the best allocation for the tables, and what says which is best.
      equity: YAML with groups whose errors are predicted, and made equal by the best allocation.
      information: From which measurements estimates are made, for the best allocation.
      report: HTML file to write.
      covariance: Two queries, separated by a semicolon.
    """

    tables: list[str] | None = None
    losses: bool = False
    goal: GoalFiles = field(default_factory=GoalFiles)
    equity: Path | None = None
    information: Information = Information.OWN
    report: Path | None = None
    covariance: str | None = None
    product: str | None = None


def explain(
    resolved: Resolved, request: PlanRequest, geounits: Callable[[], Lattice], reporter: Reporter
) -> dict[str, PlanSummary]:
    """Predict how far off the tables of every product will be; optimize and report on request.

    Args:
      resolved: The run.
      request: What is asked.
      geounits: Lists the geounits, which may take long; called once what is asked is checked.
      reporter: Who watches.

    Returns:
      A summary by product, in the order of work.

    Raises:
      ConfigError, SchemaError: What is asked does not fit the run.
      OutputError: A file cannot be written, or is not one to replace.
    """
    if request.report is not None:
        refuse_foreign(request.report, b"<!DOCTYPE html>", "a report, which is replaced")
    planned = resolved.last if request.product is None else resolved.products[request.product]
    plan, source = planned.plan, resolved.config.geography.source
    tables = planned.tables if request.tables is None else request.tables
    goal, out = read_goal(plan, request.goal), request.goal.out
    equity = None
    if request.equity is not None:
        asked = (goal.weights, goal.targets, goal.floors)
        if any(one is not None for one in asked):
            raise ConfigError(
                "das plan",
                "takes --equity, or --weights, --targets, --floors and --others; a file of groups "
                "has keys `targets`, `limits` and `others` of its own",
            )
        equity = read_equity(plan, request.equity)
    pair = None
    if request.covariance is not None:
        pair = parse_pair(plan.schema, request.covariance)
    with reporter.line("plan", "geounits"):
        lattice = geounits()
    with reporter.line("plan", "errors"):
        classes = subtree_classes(lattice)
        summaries = {
            name: plan_summary(
                product,
                source,
                lattice,
                classes,
                request.tables if product is planned else None,
                losses=request.losses,
            )
            for name, product in resolved.products.items()
        }
        if equity is not None and out is None:
            groups = predict_groups(plan, classes, equity)
            summaries[planned.name] = replace(summaries[planned.name], groups=groups)
    if out is not None:
        information = request.information
        is_even = planned.config.privacy.allocation is None
        with reporter.line("plan", "optimize"):
            if equity is None:
                goal = replace(goal, reference=EVEN) if is_even else goal
                best = optimize_allocation(plan, classes, tables, information, goal)
                optimized = optimized_summary(plan, best, out, is_even=is_even)
            else:
                best = optimize_equity(plan, classes, tables, information, equity)
                optimized = equity_summary(plan, classes, best, equity, out, is_even=is_even)
        made = _command(resolved.source, request, out)
        sizes = f"{len(lattice.codes[-1]):,} geounits at {lattice.spine.levels[-1]}"
        best = replace(best, source=f"{made}: {best.source}; {sizes}")
        optimized = replace(optimized, source=best.source)
        write_allocation(best, out)
        summaries[planned.name] = replace(summaries[planned.name], optimized=optimized)
    if pair is not None:
        with reporter.line("plan", "covariances"):
            covariances = predict_covariances(plan, classes, pair)
        summaries[planned.name] = replace(summaries[planned.name], covariances=covariances)
    if request.report is not None:
        from jobs.design.planning.page import write_plan_report

        write_plan_report(summaries[planned.name], request.report)
    return summaries


def _command(run: Place, request: PlanRequest, out: Path) -> str:
    """What makes the allocation, to be typed again."""
    goal = request.goal
    options = {
        "--product": request.product,
        "--allocation": goal.allocation,
        "--tables": None if request.tables is None else ",".join(request.tables),
        "--weights": goal.weights,
        "--targets": goal.targets,
        "--floors": goal.floors,
        "--others": None if goal.others is None else f"{goal.others:g}",
        "--equity": request.equity,
        "--information": request.information,
    }
    words = ["das", "plan", str(run), "--optimize", str(out)]
    for name, value in options.items():
        words += [] if value is None else [name, str(value)]
    return shlex.join(words)
