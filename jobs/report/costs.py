"""What a run cost, as a table on the terminal."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.table import Table

from jobs.documents.summary import Costs, Summary, Total
from jobs.report import text


def summary_table(summary: Summary) -> Table:
    """The stages of a summary and their sum."""
    table = Table(box=SIMPLE, show_footer=True)
    titles = ("Elapsed", "Core time", "Core hours", "Peak memory", "Largest task")
    table.add_column("Stage", footer="all")
    footers = _cells(summary.total)
    for title, footer in zip((*titles, "Geounits", "Per second"), footers, strict=True):
        table.add_column(title, footer=footer, justify="right")
    for name, costs in summary.stages.items():
        table.add_row(name, *_cells(costs))
    return table


def _cells(costs: Total) -> list[str]:
    """Texts of one row; stages work on the same geounits, so their sum has none."""
    geounits, rate = (costs.geounits, costs.rate) if isinstance(costs, Costs) else (0, None)
    return [
        text.duration(costs.seconds),
        text.duration(costs.core_seconds),
        f"{costs.core_hours:.4f}",
        text.size(costs.peak_memory_bytes),
        text.size(costs.task_peak_memory_bytes) if costs.task_peak_memory_bytes else "",
        text.integer(geounits) if geounits else "",
        text.decimal(rate) if geounits else "",
    ]
