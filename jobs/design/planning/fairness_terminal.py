"""Errors of cells by method on a terminal, as JSON or as a table."""

from __future__ import annotations

import json

import typer
from rich.text import Text

from jobs.design.planning.fairness import FairnessSummary
from jobs.design.planning.fairness_page import method_table, notes
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.printable import printable, result_console
from jobs.pipeline.report.console import terminal_table


def print_fairness(summary: FairnessSummary, *, as_json: bool) -> None:
    """Print errors of cells by method."""
    if as_json:
        typer.echo(json.dumps(json_of(summary), indent=1))
        return
    console = result_console()
    console.print(
        Text(printable(summary.name), "bold"),
        printable(f" {summary.geolevel}, rho {summary.rho}: {summary.workload}"),
    )
    console.print(terminal_table(method_table(summary)))
    for line in notes(summary):
        console.print(printable(line))
