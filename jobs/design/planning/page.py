"""Plan report: budget and predicted errors as tables and plots, before any data are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from jobs.design.planning.errors import PredictedRow
from jobs.design.planning.summary import OptimizedSummary, PlanSummary
from jobs.design.planning.tables import (
    HEADINGS,
    attacks_of_summary,
    covariance_table,
    geography_table,
    groups_table,
    optimized_tables,
    predicted_table,
    spending_of,
)
from jobs.pipeline.neighborhoods import FROM_DATA, explained, geounits_from_data
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import (
    attacks_table,
    budget_section,
    noise_section,
    query_figure,
    statements_table,
)
from jobs.pipeline.report.page import Block, Page, Section, Tile, write_report
from jobs.pipeline.report.plots import Figure
from jobs.pipeline.storage.files import READABLE

_SUMMARY = (
    "Measured queries by geolevel, and the predicted error of every table. Computed from the "
    "budget and the public list of geounits alone; no data were read."
)
_LINEAR = (
    "Errors of the best linear unbiased estimate. Later steps make counts nonnegative and round "
    "them, which makes small counts more accurate on average, and biased."
)
_GROUPS = (
    "Predicted errors of the tables for each population group, under the allocation of the run "
    "file."
)


def write_plan_report(summary: PlanSummary, out: Path) -> None:
    """Write the summary of a plan as one self-contained HTML file.

    Args:
      summary: The summary; with `optimized`, the page shows that allocation and its errors too.
      out: The file; replaced atomically.

    Raises:
      OutputError: The file cannot be written.
    """
    geography, predicted = summary.geography or {}, summary.predicted or ()
    levels, privacy = summary.levels, summary.privacy
    spending = spending_of(summary)
    sections = [_predicted_section(summary)] if predicted else []
    if summary.optimized is not None:
        sections.append(_optimized_section(summary.optimized, summary))
    if summary.groups is not None:
        block = groups_table(summary.groups, summary.records)
        sections.append(Section("groups", "Errors of groups", _GROUPS, [block]))
    adds_up = "Geounits whose counts add up to those of their parents."
    sections.append(Section("shape", "Geography", adds_up, [geography_table(geography)]))
    sections += [budget_section(spending), noise_section(spending)]
    if summary.covariances is not None:
        table = covariance_table(summary.covariances, summary.records)
        sections.append(Section("covariances", "Covariances", _LINEAR, [table]))
    lead = f"Privacy loss of a change of one record. {privacy.neighborhood.in_words}".strip()
    lead = f"{lead} {explained(privacy.nearest, privacy)}".strip()
    if summary.geounits_source == FROM_DATA:
        lead += f" Exact: {geounits_from_data(levels[-1])}."
    blocks = [statements_table(summary.statements, privacy.definition)]
    attacks = attacks_of_summary(summary)
    if attacks:
        blocks.append(attacks_table(attacks, privacy.mu_gdp))
    sections.append(Section("privacy", "Privacy", lead, blocks))
    n_tables = len({row.table for row in predicted})
    tiles = [
        Tile("Geounits", text.integer(geography[levels[-1]].geounits), levels[-1]),
        Tile("Tables", text.integer(n_tables), "with predicted errors"),
        Tile(text.EPSILON, text.upward(privacy.epsilon), f"{privacy.total} granted"),
    ]
    facts = [("Configuration", summary.configuration_digest[:16])]
    page = Page("Plan", summary.name, _SUMMARY, facts, [], tiles, sections, summary.records)
    write_report(page, out, mode=READABLE)


def _predicted_section(summary: PlanSummary) -> Section:
    rows = summary.predicted or ()
    errors = [_errors(rows, f"{kind}.rmse") for kind in HEADINGS]
    caption = (
        "Predicted root mean squared error by table (panel) and geolevel, on one logarithmic "
        "scale with zero. Zero means that an invariant gives the table exactly."
    )
    figure = _figure("predicted", errors, tuple(HEADINGS.values()), caption, summary)
    blocks: list[Block] = [figure, predicted_table(rows, summary.records)]
    return Section("predicted", "Predicted errors", _LINEAR, blocks)


def _optimized_section(optimized: OptimizedSummary, summary: PlanSummary) -> Section:
    blocks: list[Block] = []
    rows, names = optimized.predicted, (optimized.compared_with, "optimized")
    for kind, heading in HEADINGS.items():
        errors = [_errors(rows, f"{path}{kind}.rmse") for path in ("before.", "")]
        caption = f"Errors from {heading}, before and with the optimized allocation."
        blocks.append(_figure(f"optimized-{kind}", errors, names, caption, summary))
    blocks += optimized_tables(optimized, summary.records)
    return Section("optimized", "Optimized allocation", f"{optimized.source}.", blocks)


def _errors(rows: Sequence[PredictedRow], path: str) -> dict[tuple[str, str], float]:
    return {(row.table, row.geolevel): attrgetter(path)(row) for row in rows}


def _figure(
    key: str,
    errors: Sequence[Mapping[tuple[str, str], float]],
    names: tuple[str, ...],
    caption: str,
    summary: PlanSummary,
) -> Figure:
    """Draw two errors of the first tables by geolevel, as panels of lines."""
    roles = ("raw", "released")
    axes = [*dict.fromkeys(table for table, _ in errors[0])], summary.levels
    series = {
        role: [[errors_of[table, level] for level in axes[1]] for table in axes[0]]
        for role, errors_of in zip(roles, errors, strict=True)
    }
    label = f"Root mean squared error of one answer, in {summary.records}"
    return query_figure(key, axes, series, label, caption, [*zip(roles, names, strict=True)])
