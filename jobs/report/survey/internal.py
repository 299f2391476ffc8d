"""Internal report of a survey: the release against the truth. Confidential."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobs.documents.survey import (
    GroupErrors,
    MeanErrors,
    ReleasedMean,
    SurveyEvaluation,
)
from jobs.report import text
from jobs.report.internal import CONFIDENTIAL
from jobs.report.page import Block, FigureBlock, Page, Prose, Section, TableBlock, Tile
from jobs.report.plots import DotRow, Figure, dot_rows
from jobs.report.render import render
from jobs.report.survey.means import mean_figures, shower
from jobs.report.survey.predictions import predictions_section
from jobs.report.survey.public import survey_budget_section, survey_tiles
from jobs.report.survey.release import SurveyRelease
from jobs.report.table import EMPTY, Cell, Column, Table, bars, label, name, number
from jobs.report.text import words
from jobs.report.tiles import banners, origin
from jobs.storage.files import replace_file
from jobs.storage.place import Place

_MOST_DRAWN = 40  # groups in the figure, those with the largest errors
_DEFINITIONS = Section(
    "definitions",
    "Definitions",
    "What every number on this page means.",
    [Prose("survey_definitions.html.j2")],
)
_SUMMARY = (
    "How far released means and microdata lie from the truth, and for whom the error is larger."
)


def write_survey_evaluation(
    release: SurveyRelease, evaluation: SurveyEvaluation, out: Place
) -> None:
    """Write the internal report of a survey as one HTML file, readable by its owner only.

    Args:
      release: What was released.
      evaluation: Of the release against the truth.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    manifest = release.manifest
    page = Page(
        "Internal evaluation of a survey",
        manifest.name,
        _SUMMARY,
        [*origin(manifest, manifest.solution), ("Records", text.integer(evaluation.records))],
        [CONFIDENTIAL, *banners(manifest)],
        [*survey_tiles(release), *_worst_tile(evaluation)],
        [
            *([_means_section(evaluation, release)] if evaluation.means else []),
            *([_tables_section(evaluation)] if evaluation.tables else []),
            *([_marginals_section(evaluation)] if evaluation.marginals else []),
            *([_groups_section(evaluation)] if evaluation.groups else []),
            *([predictions_section(evaluation.predictions)] if evaluation.predictions else []),
            survey_budget_section(release),
            _DEFINITIONS,
        ],
        "records",
    )
    replace_file(out, render("page.html.j2", {"page": page}))


def _worst_tile(evaluation: SurveyEvaluation) -> list[Tile]:
    """The stratum whose mean is furthest off, over all statistics."""
    worst = [
        (row.relative, row.stratum, one.name)
        for one in evaluation.means
        for row in one.means
        if row.relative is not None
    ]
    if not worst:
        return []
    relative, stratum, statistic = max(worst)
    return [
        Tile(
            "Worst stratum",
            text.percent(relative),
            f"off: {words(stratum)}, mean of {words(statistic)}",
        )
    ]


def _means_section(evaluation: SurveyEvaluation, release: SurveyRelease) -> Section:
    released = {one.name: one for one in release.statistics}
    lead = (
        "Released means beside the true ones of the file, which are not clipped. The interval is "
        "about the population and has room for sampling too, so the mean of the file should lie "
        "in it about as often as is stated, or more often. Where it does not, public sizes, bounds "
        "or the spread are off."
    )
    blocks: list[Block] = []
    by_strata = [one for one in evaluation.means if released[one.name].strata]
    if by_strata:
        blocks.append(TableBlock(_parity_table(by_strata)))
    for index, one in enumerate(evaluation.means):
        mean = released[one.name]
        truth = {row.stratum: row.truth for row in (one.everybody, *one.means)}
        blocks += [*mean_figures(index, mean, truth), TableBlock(_mean_table(index, one, mean))]
    return Section("means", "Means against the truth", lead, blocks)


def _parity_table(errors: Sequence[MeanErrors]) -> Table:
    body = []
    for one in errors:
        worst = max(
            (row for row in one.means if row.relative is not None),
            key=lambda row: row.relative or 0.0,
            default=None,
        )
        body.append(
            [
                label(one.name),
                number(one.groups),
                _shown(one.parity_error),
                _shown(one.parity_mean),
                _shown(one.everybody.relative, text.fine_percent),
                _shown(one.largest, text.fine_percent),
                Cell(EMPTY) if worst is None else label(worst.stratum),
                Cell(EMPTY) if worst is None else number(worst.records),
            ]
        )
    columns = [
        Column("Statistic", numeric=False),
        Column("Strata", hint="k"),
        Column("Parity error"),
        Column("Parity error", hint="over k"),
        Column("Everybody", hint="|error| / |truth|"),
        Column("Worst stratum", hint="|error| / |truth|"),
        Column("That is", numeric=False),
        Column("Its records", hint="true"),
    ]
    return Table("parity", "Parity of the means", columns, body)


def _mean_table(index: int, one: MeanErrors, mean: ReleasedMean) -> Table:
    show = shower(mean)
    ends = {row.stratum: (row.low, row.high) for row in (mean.everybody, *mean.means)}
    rows = [one.everybody, *(one.means if mean.strata else ())]
    body = []
    n_held = n_known = 0
    for row, share in zip(rows, bars([r.relative for r in rows], text.fine_percent), strict=True):
        low, high = ends[row.stratum]
        is_held = row.truth is not None and low <= row.truth <= high
        if row.truth is not None:
            n_known, n_held = n_known + 1, n_held + is_held
        body.append(
            [
                label(row.stratum),
                number(row.records),
                _shown(row.truth, show),
                number(row.released, show),
                _shown(row.error, text.signed),
                share if row.relative is not None else Cell(EMPTY),
                Cell(EMPTY) if row.truth is None else name("yes" if is_held else "no"),
            ]
        )
    columns = [
        Column("Stratum", numeric=False),
        Column("Records", hint="true"),
        Column("Mean", hint="true"),
        Column("Mean", hint="released"),
        Column("Error"),
        Column("|Error|", hint="of the true mean"),
        Column("Interval holds it", numeric=False),
    ]
    note = f"{n_held} of {n_known} intervals hold the mean of the file."
    return Table(f"mean-errors-{index}", f"Mean of {words(one.name)}", columns, body, note)


def _tables_section(evaluation: SurveyEvaluation) -> Section:
    lead = "Released tables of counts beside those of the file."
    body = [
        [
            label(one.name),
            number(one.l1),
            number(one.l2, text.decimal),
            name("yes" if one.exact_held else "no"),
        ]
        for one in evaluation.tables
    ]
    columns = [
        Column("Table", numeric=False),
        Column("L1", hint="sum of |error|"),
        Column("L2", hint="root of squares"),
        Column("Exact marginals kept", numeric=False),
    ]
    table = Table("table-errors", "Tables that keep exact marginals", columns, body)
    return Section("tables", "Tables against the truth", lead, [TableBlock(table)])


def _marginals_section(evaluation: SurveyEvaluation) -> Section:
    lead = (
        "Every table of one, two and three attributes of the microdata against that of the file. "
        "The L1 distance of two tables of shares is twice the part of the records that would have "
        "to change to turn one into the other; 2 is the largest there is."
    )
    largest = bars([row.mean_l1 for row in evaluation.marginals], "{:.4f}".format)
    body = [
        [
            Cell(f"{row.order}-way", row.order),
            number(row.marginals),
            mean,
            number(row.largest_l1, "{:.4f}".format),
            label(" * ".join(row.worst)),
        ]
        for row, mean in zip(evaluation.marginals, largest, strict=True)
    ]
    columns = [
        Column("Tables", numeric=False),
        Column("How many"),
        Column("L1 distance", hint="mean"),
        Column("L1 distance", hint="largest"),
        Column("That is", numeric=False),
    ]
    note = "" if not evaluation.notes else f"Left out: {'; '.join(evaluation.notes)}."
    table = Table("marginals", "Tables of the microdata", columns, body, note)
    return Section("marginals", "Microdata against the truth", lead, [TableBlock(table)])


def _groups_section(evaluation: SurveyEvaluation) -> Section:
    lead = (
        "All one-way tables of the microdata within each group: the sum of absolute errors over "
        "all cells, in percent of the records counted there. Noise and a common model weigh more "
        "on the few than on the many."
    )
    blocks: list[Block] = []
    for index, one in enumerate(evaluation.groups):
        blocks += [
            *_groups_figure(index, one),
            TableBlock(_groups_table(index, one, evaluation.floor)),
        ]
    return Section("groups", "For whom the microdata are worse", lead, blocks)


def _groups_figure(index: int, one: GroupErrors) -> list[FigureBlock]:
    worst = sorted(
        (row for row in one.groups if row.relative is not None),
        key=lambda row: -(row.relative or 0.0),
    )[:_MOST_DRAWN]
    if len(worst) < 2:
        return []
    rows = [
        DotRow(
            f"{words(row.group)} ({text.integer(row.records)})", [100 * (row.relative or 0)], [None]
        )
        for row in worst
    ]
    by = words(" * ".join(one.attributes))
    caption = (
        f"Error of the one-way tables of groups by {by}, true number of records in brackets, the "
        "worst group first. A logarithmic scale; no dot means no error."
    )
    if len(worst) == _MOST_DRAWN:
        caption += f" At most {_MOST_DRAWN} groups are drawn."
    key = f"groups-{index}"
    return [FigureBlock(Figure(key, dot_rows(key, [by], rows), caption))]


def _groups_table(index: int, one: GroupErrors, floor: int) -> Table:
    relative = bars([row.relative for row in one.groups], text.fine_percent)
    body = [
        [
            label(row.group),
            number(row.records),
            number(row.released),
            number(row.released - row.records, text.signed_integer),
            share if row.relative is not None else Cell(EMPTY),
        ]
        for row, share in zip(one.groups, relative, strict=True)
    ]
    columns = [
        Column("Group", numeric=False),
        Column("Records", hint="true"),
        Column("Records", hint="released"),
        Column("Difference"),
        Column("Error", hint="of its one-way tables"),
    ]
    note = f"k = {one.compared} groups with records."
    if one.parity_error is not None and one.parity_mean is not None:
        note += (
            f" Parity error {text.decimal(one.parity_error)}, over k "
            f"{text.decimal(one.parity_mean)}."
        )
    worst = one.max_disparity
    if worst is not None:
        note += (
            f" Of {text.integer(one.shares)} shares of levels in groups, of {floor} records or "
            f"more, the one that is furthest off: {words(worst.attribute)} {worst.level} of "
            f"{words(worst.group)}, truly {text.fine_percent(worst.truth)}, released "
            f"{text.fine_percent(worst.released)}."
        )
    caption = f"Groups by {words(' * '.join(one.attributes))}"
    return Table(f"groups-{index}", caption, columns, body, note)


def _shown(value: float | None, show: Callable[[float | None], str] = text.decimal) -> Cell:
    """A number, empty where there is none."""
    return Cell(EMPTY) if value is None else number(value, show)
