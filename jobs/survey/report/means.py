"""Means of a survey on a page: a figure of intervals and a table for each statistic."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.pipeline.report import text
from jobs.pipeline.report.page import Block, Prose, Section
from jobs.pipeline.report.plots import Figure, Span, span_rows
from jobs.pipeline.report.table import Cell, Column, Show, Table, labels, name, numbers
from jobs.pipeline.report.text import words
from jobs.survey.documents import MeansTable, ReleasedMean, StratumMean

MOST_DRAWN = 60  # strata in a figure, about as high as two screens
_METHODS = {"coinpress": "Coinpress", "clipped": "clipping once"}


def means_section(means: MeansTable) -> Section:
    """What was released of every statistic."""
    lead = (
        "Sums with noise, divided by public numbers of records. Each interval is for the mean of "
        "the population: it counts noise and sampling, and holds with about the stated probability "
        "as far as the public bounds, sizes and spread of values are right."
    )
    blocks: list[Block] = []
    for index, one in enumerate(means.statistics):
        blocks += [
            *mean_figures(index, one),
            _table(index, one),
            Prose("survey_mean.html.j2", {"mean": one, "pooled": [words(p) for p in one.pooled]}),
        ]
    return Section("means", "Means", lead, blocks)


def mean_figures(
    index: int, mean: ReleasedMean, truth: Mapping[str, float | None] | None = None
) -> list[Figure]:
    """Intervals of a statistic, everybody first; none of a statistic without strata.

    Args:
      index: Number of the statistic on the page.
      mean: What was released.
      truth: True means by stratum, of an internal page.
    """
    rows = with_strata(mean)
    if len(rows) == 1:
        return []
    # The largest are drawn where there are many, in their order.
    large = sorted(rows[1:], key=lambda row: -row.size)[:MOST_DRAWN]
    drawn = [rows[0], *(row for row in rows[1:] if row in large)]
    true = truth or {}
    spans = [
        Span(words(row.stratum), row.low, row.mean, row.high, true.get(row.stratum))
        for row in drawn
    ]
    title = f"Mean of {words(mean.attribute)}"
    caption = (
        f"{_heading(mean)}: released means, and intervals at {confidence(mean)}. The dotted line "
        "is everybody."
    )
    if len(drawn) < len(rows):
        caption += f" The {MOST_DRAWN} strata with the most records; the table has all."
    legend = [("released", "released mean and its interval")]
    if truth is not None:
        legend.append(("raw", "true mean"))
    return [Figure(f"mean-{index}", span_rows(f"mean-{index}", title, spans), caption, legend)]


def with_strata(mean: ReleasedMean) -> list[StratumMean]:
    """Everybody, and the strata if there are any."""
    return [mean.everybody, *(mean.means if mean.strata else ())]


def shower(mean: ReleasedMean) -> Show:
    """How numbers of a statistic are written: one width for a column."""
    size = max(abs(row.mean) for row in (mean.everybody, *mean.means))
    places = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 4

    def show(value: float | None) -> str:
        if value is None:
            return text.NOT_RECORDED
        return f"{value:,.{places}f}".replace("-", "\N{MINUS SIGN}")

    return show


def _table(index: int, mean: ReleasedMean) -> Table:
    show, rows = shower(mean), with_strata(mean)
    columns = [
        labels("Stratum", (row.stratum for row in rows)),
        numbers("Weight", (text.ratio(row.weight) for row in rows), text.fine_percent, "public"),
        numbers("Records", (row.size for row in rows), hint="public"),
        numbers("Mean", (row.mean for row in rows), show),
        numbers("From", (row.low for row in rows), show, confidence(mean)),
        numbers("To", (row.high for row in rows), show, confidence(mean)),
        numbers("Std. error", (row.standard_error for row in rows), show, "noise, sampling"),
        numbers("Std. dev.", (row.noise_sd for row in rows), show, "noise alone"),
    ]
    if any(row.outside for row in mean.means):
        warnings = [name("outside of its bounds") if row.outside else Cell("") for row in rows]
        columns.append(Column("Warning", numeric=False, cells=warnings))
    note = (
        f"By {_METHODS.get(mean.method, mean.method)}, with a public spread of {mean.spread:,.10g}."
    )
    if mean.shrunk:
        note += (
            " Means of strata are drawn together as far as their noise says, within their "
            "intervals; standard errors are those before."
        )
    return Table.of(f"means-{index}", _heading(mean), columns, note)


def _heading(mean: ReleasedMean) -> str:
    by = f" by {words(' * '.join(mean.strata))}" if mean.strata else ""
    called = "" if mean.name == mean.attribute else f" ({words(mean.name)})"
    return f"Mean of {words(mean.attribute)}{by}{called}"


def confidence(mean: ReleasedMean) -> str:
    """That of the intervals of a statistic, in percent."""
    return f"{100 * mean.confidence:.10g} %"
