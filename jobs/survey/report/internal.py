"""Internal report of a survey: the release compared with the data; confidential."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.pipeline.documents.document import read_document
from jobs.pipeline.report import text
from jobs.pipeline.report.internal import CONFIDENTIAL, definitions_section
from jobs.pipeline.report.page import Block, Page, Section, Tile, write_report
from jobs.pipeline.report.table import Cell, Column, Table, bars, labels, names, numbers
from jobs.pipeline.report.text import words
from jobs.pipeline.report.tiles import banners, origin
from jobs.pipeline.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    Roots,
    confidential_layout,
    release_folder,
)
from jobs.pipeline.storage.place import Place
from jobs.survey.documents import (
    GroupErrors,
    MeanErrors,
    PredictionParity,
    Predictions,
    ReleasedMean,
    SurveyEvaluation,
)
from jobs.survey.report.public import (
    SurveyRelease,
    mean_figures,
    shower,
    survey_budget_section,
    survey_tiles,
    write_public_page,
)

_SHARE = "|error| / |truth|"
_SUMMARY = "Errors of released means and microdata against the data, by group."


def write_pages(roots: Roots, solution: str | None, to: Place | None = None) -> list[Place]:
    """Write the reports of a run or of a further solution again.

    Args:
      roots: Folders of the run.
      solution: Name of the further solution; None: the release.
      to: Folder for the public report, which is then the only one; default: the release.

    Returns:
      The files; after an evaluation the confidential report comes first.

    Raises:
      OutputError: The release is not finalized, or a report cannot be written.
    """
    made = ReleaseLayout(release_folder(roots.out, solution))
    confidential = confidential_layout(roots, solution)
    is_evaluated = to is None and confidential.evaluation.exists()
    internal = [write_internal_page(made, confidential)] if is_evaluated else []
    return [*internal, write_public_page(made, to)]


def write_internal_page(made: ReleaseLayout, confidential: ConfidentialLayout) -> Place:
    """Write the confidential report of the evaluation, as a file that only its owner can read.

    Returns:
      The file.

    Raises:
      OutputError: The release is not finalized or not evaluated, or the report cannot be written.
    """
    evaluation = read_document(
        SurveyEvaluation, confidential.evaluation, remedy="run `das evaluate`"
    )
    release = SurveyRelease.read(made)
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
            survey_budget_section(manifest),
            definitions_section("survey_definitions.html.j2"),
        ],
        "records",
    )
    write_report(page, confidential.report)
    return confidential.report


def _worst_tile(evaluation: SurveyEvaluation) -> list[Tile]:
    """Return a tile with the stratum of the largest relative error, over all statistics."""
    erring = [(mean.largest, mean) for mean in evaluation.means if mean.largest is not None]
    if not erring:
        return []
    largest, worst = max(erring, key=lambda pair: pair[0])
    detail = f"off: {words(_worst(worst)[0])}, mean of {words(worst.name)}"
    return [Tile("Worst stratum", text.percent(largest), detail)]


def _worst(one: MeanErrors) -> tuple[str | None, int | None]:
    """Return the stratum with the largest relative error, and its true records; or Nones."""
    worst = ((row.stratum, row.records) for row in one.means if row.relative == one.largest)
    return (None, None) if one.largest is None else next(worst)


def _means_section(evaluation: SurveyEvaluation, release: SurveyRelease) -> Section:
    released = {one.name: one for one in release.statistics}
    lead = (
        "Released means and the unclipped means of the file. Intervals also cover sampling, so "
        "they should hold the mean of the file at least as often as stated. If they do not, the "
        "public sizes, bounds or standard deviation are wrong."
    )
    blocks: list[Block] = []
    by_strata = [one for one in evaluation.means if released[one.name].strata]
    if by_strata:
        blocks.append(_parity_table(by_strata))
    for index, one in enumerate(evaluation.means):
        mean = released[one.name]
        truth = {row.stratum: row.truth for row in (one.everybody, *one.means)}
        blocks += [*mean_figures(index, mean, truth), _mean_table(index, one, mean)]
    return Section("means", "Means against the truth", lead, blocks)


def _parity_table(errors: Sequence[MeanErrors]) -> Table:
    worst = [_worst(one) for one in errors]
    columns = [
        labels("Statistic", (one.name for one in errors)),
        numbers("Strata", (one.groups for one in errors), hint="k"),
        numbers("Parity error", (one.parity_error for one in errors), text.decimal),
        numbers("Parity error", (one.parity_mean for one in errors), text.decimal, "over k"),
        numbers(
            "All records", (one.everybody.relative for one in errors), text.fine_percent, _SHARE
        ),
        numbers("Worst stratum", (one.largest for one in errors), text.fine_percent, _SHARE),
        labels("That is", (stratum for stratum, _ in worst)),
        numbers("Its records", (records for _, records in worst), text.integer, "true"),
    ]
    return Table.of("parity", "Parity of the means", columns)


def _mean_table(index: int, one: MeanErrors, mean: ReleasedMean) -> Table:
    show = shower(mean)
    rows = [one.everybody, *(one.means if mean.strata else ())]
    holds = [
        None if row.truth is None else "yes" if ends.low <= row.truth <= ends.high else "no"
        for row, ends in zip(rows, mean.rows, strict=True)
    ]
    columns = [
        labels("Stratum", (row.stratum for row in rows)),
        numbers("Records", (row.records for row in rows), hint="true"),
        numbers("Mean", (row.truth for row in rows), show, "true"),
        numbers("Mean", (row.released for row in rows), show, "released"),
        numbers("Error", (row.error for row in rows), text.signed),
        bars("|Error|", (row.relative for row in rows), text.fine_percent, "of the true mean"),
        labels("Interval holds it", holds),
    ]
    n_known = len(holds) - holds.count(None)
    note = f"{holds.count('yes')} of {n_known} intervals hold the mean of the file."
    return Table.of(f"mean-errors-{index}", f"Mean of {words(one.name)}", columns, note)


def _tables_section(evaluation: SurveyEvaluation) -> Section:
    lead = "Released tables of counts, compared with the counts of the file."
    kept = ["yes" if one.exact_held else "no" for one in evaluation.tables]
    tables = evaluation.tables
    columns = [
        labels("Table", (errors.name for errors in tables)),
        numbers("L1", (errors.l1 for errors in tables), hint="sum of |error|"),
        numbers("L2", (errors.l2 for errors in tables), text.decimal, "root of squares"),
        names("Exact marginals kept", kept),
    ]
    table = Table.of("table-errors", "Tables that keep exact marginals", columns)
    return Section("tables", "Tables against the truth", lead, [table])


def _marginals_section(evaluation: SurveyEvaluation) -> Section:
    lead = (
        "Tables of one to three attributes of the microdata and of the file. The L1 distance of "
        "two tables of shares is twice the share of records to change in one to get the other; at "
        "most 2."
    )
    rows, shown = evaluation.marginals, "{:.4f}".format
    orders = [Cell(f"{row.order}-way", row.order) for row in rows]
    columns = [
        Column("Tables", numeric=False, cells=orders),
        numbers("How many", (row.marginals for row in rows)),
        bars("L1 distance", (row.mean_l1 for row in rows), shown, "mean"),
        numbers("L1 distance", (row.largest_l1 for row in rows), shown, "largest"),
        labels("That is", (" * ".join(row.worst) for row in rows)),
    ]
    note = "" if not evaluation.notes else f"Left out: {'; '.join(evaluation.notes)}."
    table = Table.of("marginals", "Tables of the microdata", columns, note)
    return Section("marginals", "Microdata against the truth", lead, [table])


def _groups_section(evaluation: SurveyEvaluation) -> Section:
    lead = (
        "Sum of absolute errors over all cells of the one-way tables of each group, in percent of "
        "the records counted there. Noise and common model cause larger errors in small groups."
    )
    tables = [
        _groups_table(index, errors, evaluation.floor)
        for index, errors in enumerate(evaluation.groups)
    ]
    return Section("groups", "Errors of the microdata by group", lead, tables)


def _groups_table(index: int, one: GroupErrors, floor: int) -> Table:
    rows = one.groups
    columns = [
        labels("Group", (row.group for row in rows)),
        numbers("Records", (row.records for row in rows), hint="true"),
        numbers("Records", (row.released for row in rows), hint="released"),
        numbers("Difference", (row.released - row.records for row in rows), text.signed_integer),
        bars("Error", (row.relative for row in rows), text.fine_percent, "of its one-way tables"),
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
            f"more, the largest relative error is that of {words(worst.attribute)} {worst.level} "
            f"in {words(worst.group)}: true {text.fine_percent(worst.truth)}, released "
            f"{text.fine_percent(worst.released)}."
        )
    caption = f"Groups by {words(' * '.join(one.attributes))}"
    return Table.of(f"groups-{index}", caption, columns, note)


_TRAINED = {"release": "the microdata", "truth": "the file itself"}


def predictions_section(predictions: Predictions) -> Section:
    """Describe accuracy and parity of the classifiers, overall and by group."""
    wanted = ", ".join(predictions.levels)
    lead = (
        f"Whether {words(predictions.attribute)} is one of {wanted}, predicted by "
        f"{len(predictions.features)} other attributes. Classifiers are tested on all records of "
        "the file; the benchmark is trained on them, too. Always predicting the more frequent "
        f"answer is right for {text.percent(predictions.majority_accuracy)}."
    )
    sets = zip(*(one.parity for one in predictions.classifiers), strict=True)
    tables = [
        _classifiers_table(predictions),
        *(_predictions_table(index, parity) for index, parity in enumerate(sets)),
    ]
    return Section("predictions", "Predictions from the microdata by group", lead, tables)


def _classifiers_table(predictions: Predictions) -> Table:
    rows = predictions.classifiers
    positive = (one.positive / one.records if one.records else None for one in rows)
    columns = [
        names("Trained on", (_TRAINED[one.trained_on] for one in rows)),
        numbers("Records", (one.records for one in rows)),
        numbers("Positive", positive, text.percent),
        numbers("Accuracy", (one.accuracy for one in rows), text.fine_percent, "of the file"),
    ]
    for sets in zip(*(one.parity for one in rows), strict=True):
        by = words(" * ".join(sets[0].attributes))
        ratios = (one.demographic_parity_ratio for one in sets)
        columns.append(numbers("Demographic parity", ratios, text.decimal, by))
        difference = (one.false_negative_rate_difference for one in sets)
        columns.append(numbers("False negative difference", difference, text.decimal, by))
    note = (
        "Demographic parity: smallest over largest share of positive predictions of a group; 1 is "
        "parity. False negative difference: largest minus smallest rate of a group; 0 is parity."
    )
    caption = f"Classifiers of {words(predictions.attribute)}"
    return Table.of("classifiers", caption, columns, note)


def _predictions_table(index: int, parity: Sequence[PredictionParity]) -> Table:
    first = parity[0]
    by_basis = dict(zip(("by the microdata", "by the file"), parity, strict=True))
    positive = (group.positive / group.records for group in first.groups)
    predicted = {by: [g.predicted / g.records for g in p.groups] for by, p in by_basis.items()}
    missed = {by: [g.false_negative_rate for g in p.groups] for by, p in by_basis.items()}
    columns = [
        labels("Group", (group.group for group in first.groups)),
        numbers("Records", (group.records for group in first.groups), hint="true"),
        numbers("Positive", positive, text.percent, "true"),
        *(bars("Predicted", shares, text.percent, by) for by, shares in predicted.items()),
        *(bars("Missed", shares, text.percent, by) for by, shares in missed.items()),
    ]
    left_out = ", ".join(map(words, first.left_out))
    note = f"Too few records to compare: {left_out}." if left_out else ""
    by = words(" * ".join(first.attributes))
    caption = f"Predictions for groups by {by}"
    return Table.of(f"predictions-{index}", caption, columns, note)
