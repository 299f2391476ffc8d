"""Print plans, comparisons of planners and accounts on a terminal, as JSON or as tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from jobs.design.planning.summary import PlanSummary
from jobs.design.planning.tables import plan_tables
from jobs.pipeline.config.product import Resolved, key_beside, reservation_of
from jobs.pipeline.documents.account import Account, account_of_grants
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.neighborhoods import FROM_DATA, explained, geounits_from_data
from jobs.pipeline.printable import counted, printable, result_console
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import account_table
from jobs.pipeline.report.console import terminal_table
from jobs.pipeline.report.table import Table, gridded, labels, names, numbers, shaded
from jobs.pipeline.storage.account import (
    BudgetLimit,
    FailedCheck,
    Reservation,
    other_accounts,
    read_account,
    read_limits,
    refuse_above_limit,
)
from jobs.pipeline.storage.place import Place

if TYPE_CHECKING:
    from jobs.design.planning.planners import PlannerComparison

_MOST_FORMULAS = 5  # shown
_MOST_PAIRS = 6  # shown
_NAMES = {
    "run": "this run",
    "residual_planner": "ResidualPlanner",
    "residual_planner_plus": "ResidualPlanner+",
    "orp": "oblique planner",
    "hdmm": "HDMM",
}


def print_summaries(
    summaries: Mapping[str, PlanSummary], *, as_json: bool, together: Account | None = None
) -> None:
    """Print the summaries of the products of a run, in the order of work, as JSON or as tables.

    Args:
      summaries: Product to summary.
      as_json: Whether to print JSON.
      together: Joint cost of all products; None for one product.
    """
    *others, last = summaries
    if as_json:
        keys = [*(field.name for field in fields(PlanSummary)), "together"]
        document = json_of(summaries[last])
        document |= {key_beside(name, keys): json_of(summaries[name]) for name in others}
        if together is not None:
            document["together"] = json_of(together)
        typer.echo(json.dumps(document, indent=1))
        return
    console = result_console()
    for name in (last, *others):
        _print_summary(console, summaries[name])
    if together is not None:
        table = account_table(together, "together", "Joint cost of all products")
        console.print(terminal_table(table))


def cost_together(resolved: Resolved) -> Account | None:
    """Return the joint cost of the products of a run; None for one product."""
    reservations = [reservation_of(resolved, product, "") for product in resolved.products.values()]
    return account_of_grants(reservations) if len(reservations) > 1 else None


def _print_summary(console: Console, summary: PlanSummary) -> None:
    schema = f" schema {printable(summary.schema.name)}, {summary.schema.cells:,} cells"
    console.print(Text(printable(summary.name), "bold"), schema)
    for line in _statements(summary):
        console.print(printable(line))
    for table in plan_tables(summary):
        console.print(terminal_table(table))
    for line in _notes(summary):
        console.print(printable(line))
    console.print(f"configuration {summary.configuration_digest[:16]}")


def _statements(summary: PlanSummary) -> list[str]:
    """Return lines with the guarantee and the exact queries."""
    lines = [text.guarantee(summary.privacy)]
    privacy, by_noise = summary.privacy, summary.by_noise
    if privacy.epsilon_by_noise is not None:
        lines.append(
            f"epsilon {privacy.epsilon_by_noise} at delta {privacy.delta} from the noise, for "
            "which this rho was chosen: it holds for every geography"
        )
    if by_noise is not None:
        epsilon = text.upward(by_noise.epsilon)
        lines.append(f"epsilon {epsilon} at delta {by_noise.delta} from the losses of the noise")
    if privacy.neighborhood.in_words:
        lines.append(privacy.neighborhood.in_words)
    if privacy.nearest is not None:
        lines.append(explained(privacy.nearest, privacy))
    if summary.geounits_source == FROM_DATA:
        lines.append(f"exact: {geounits_from_data(summary.levels[-1])}")
    lines += [f"exact: {row.query} at {', '.join(row.geolevels)}" for row in summary.invariants]
    for limit in summary.limits:
        where = ", ".join(limit.geolevels) or "every geolevel"
        lines.append(f"limit: {limit.kind} {limit.name} at {where}")
    if summary.root_core_seconds is not None:
        seconds = math.ceil(summary.root_core_seconds)
        lines.append(f"time: about {seconds:,} core seconds to fit the root to planned queries")
    return lines


def _notes(summary: PlanSummary) -> list[str]:
    """Return further lines for the user."""
    lines = []
    if summary.formulas:
        shown = ", ".join(repr(formula) for formula in summary.formulas[:_MOST_FORMULAS])
        more = len(summary.formulas) - _MOST_FORMULAS
        lines.append(
            "note: spreadsheets compute text that begins with = + - or @, so CSV files have an "
            f"apostrophe before {shown}{f' and {more} more' if more > 0 else ''}"
        )
    if summary.unrelated:
        pairs = [
            pair if error is None else f"{pair} ({error:.0f})"
            for pair, error in summary.unrelated.items()
        ]
        more = len(pairs) - _MOST_PAIRS
        lines.append(
            "note: no measured table joins the following pairs, so microdata and counts show them "
            f"close to chance where counts are of the order of their standard error, here at "
            f"{summary.levels[0]}: {', '.join(pairs[:_MOST_PAIRS])}"
            + (f" and {more} more" if more > 0 else "")
        )
    if summary.not_predicted:
        lines.append(f"no predicted errors: {summary.not_predicted}")
    for query, geolevels in (summary.without_estimates or {}).items():
        where = "" if len(geolevels) >= len(summary.levels) else f" at {', '.join(geolevels)}"
        lines.append(
            f"no estimates of {query}{where}: the query does not follow from complete measurements"
        )
    if summary.optimized is not None:
        lines.append(f"optimized allocation {summary.optimized.path}: {summary.optimized.source}")
    lines += [f"does not exist yet: {line}" for line in summary.absent or ()]
    lines += [f"cannot be read here, so not checked: {line}" for line in summary.closed or ()]
    return lines


def print_planners(summary: PlannerComparison, *, as_json: bool) -> None:
    """Print the comparison as JSON, or as a table with the planners left out."""
    if as_json:
        typer.echo(json.dumps(json_of(summary), indent=1))
        return
    console = result_console()
    console.print(
        Text(printable(summary.name), "bold"),
        printable(f" {summary.geolevel}, rho {summary.rho}: {summary.workload}"),
    )
    console.print(terminal_table(method_table(summary)))
    for skipped in summary.skipped:
        console.print(printable(f"left out: {skipped.method}: {skipped.reason}"))


def method_table(summary: PlannerComparison) -> Table:
    """Return quantiles of the standard errors, one row per method."""
    methods = summary.methods
    errors = [[*vars(method.answers).values(), method.rmse] for method in methods]
    cells = shaded(errors, text.decimal, logarithmic=True)
    titles = ("Least", "Tenth", "Median", "Ninetieth", "Largest", "RMSE")
    columns = [
        labels("Method", [_NAMES[method.method] for method in methods]),
        labels("Minimizes", [method.objective for method in methods]),
        *gridded(titles, cells),
        numbers("Ratio", [method.ratio for method in methods], text.decimal, "largest : least"),
    ]
    return Table.of(
        "methods",
        f"Standard errors of all answers of all tables, in {summary.records}",
        columns,
        "Quantiles over answers: one in ten has at most the tenth. RMSE: root mean square. Sums "
        "add up variances: mean variances of tables (equal weight per table), the same times the "
        "root of the number of answers, or variances of all answers. Power mean: over tables.",
    )


def check_grants(
    path: Place, reservations: Sequence[Reservation], inputs: Iterable[Place]
) -> list[str]:
    """Check the grants of a run against the limit of its account, before anything is spent.

    Args:
      path: The account.
      reservations: Grants of the run; those that the account has already are not added again.
      inputs: Inputs of the run.

    Returns:
      Lines for the user: the account, what is spent, its limits, and other accounts near the data.

    Raises:
      BudgetError: The grants exceed the limit.
    """
    spent, limits = read_account(path), read_limits(path)
    known = {(grant.product, grant.grant) for grant in spent}
    new = [one for one in reservations if (one.product, one.grant) not in known]
    if new:
        refuse_above_limit(path, limits, [*spent, *new])
    lines = [f"account {path}", f"  spent: {_together(spent)}"]
    if new:
        lines.append(f"  with this run: {_together([*spent, *new])}")
    lines += _limit_lines(limits, [*spent, *new])
    for other in dict.fromkeys(other for data in inputs for other in other_accounts(path, data)):
        lines.append(f"  another account lies near the data; are its people the same? {other}")
    return lines


def _together(grants: Sequence[Reservation]) -> str:
    """Return the composition of grants in a line."""
    if not grants:
        return "nothing"
    total = account_of_grants(grants).composed[0]
    epsilon = f"{text.upward(total.epsilon)} at delta {total.delta}"
    return f"{counted(len(grants), 'grants')}, {total.definition.unit} {total.total}" + (
        "" if total.definition.is_pure else f", epsilon {epsilon}"
    )


def _limit_lines(limits: Sequence[BudgetLimit], grants: Sequence[Reservation]) -> list[str]:
    """Return a line for each limit of an account, and what the last one leaves."""
    lines = [
        f"  limit: {limit.definition.unit} {limit.total} ({limit.at}, {limit.reason})"
        for limit in limits
    ]
    if not limits:
        return ["  limit: none; `das account RUN --limit` sets one"]
    last = limits[-1]
    return [*lines, f"  left: {last.definition.unit} {last.total - last.spent(grants)}"]


def print_account(
    path: Place,
    spent: Sequence[Reservation],
    limits: Sequence[BudgetLimit],
    failed: Sequence[FailedCheck],
    *,
    as_json: bool,
) -> None:
    """Print the grants of an account, their composition, limits, and failed checks."""
    account = account_of_grants(spent)
    if as_json:
        document = json_of(account) | {
            "limits": [{**asdict(limit), "total": str(limit.total)} for limit in limits],
            "failed_checks": [asdict(check) for check in failed],
        }
        typer.echo(json.dumps(document, indent=1))
        return
    console = result_console()
    if limits:
        for line in _limit_lines(limits, spent):
            console.print(printable(line.strip()))
    if not (account.grants or failed):
        console.print(printable(f"{path}: no budget was granted yet"))
        return
    console.print(printable(f"{path}: {counted(len(account.grants), 'grants')}"))
    console.print(terminal_table(account_table(account)))
    if failed:
        titles = {"Product": "product", "Where": "geounit", "When": "at", "Folder": "folder"}
        columns = [names(title, map(attrgetter(key), failed)) for title, key in titles.items()]
        note = (
            f"{counted(len(failed), 'checks')} of the data failed. Each revealed exactly, at no "
            "budget, that a row of the data is invalid or that a geounit violates an invariant."
        )
        table = Table.of("failed-checks", "Checks of the data that failed", columns, note)
        console.print(terminal_table(table))
