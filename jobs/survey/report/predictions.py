"""What a classifier trained on the microdata does to groups, on a page. Confidential."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.pipeline.report import text
from jobs.pipeline.report.page import Block, Section
from jobs.pipeline.report.plots import DotRow, Figure, Values, dot_rows
from jobs.pipeline.report.table import Table, known, labels, names, numbers
from jobs.pipeline.report.text import words
from jobs.survey.documents import GroupPrediction, PredictionParity, Predictions

_TRAINED = {"release": "the microdata", "truth": "the file itself"}
_MOST_DRAWN = 40  # groups of a figure


def group_figure(
    key: str,
    titles: Sequence[str],
    groups: Sequence[tuple[str, int, Values, Values]],
    caption: str,
    legend: Sequence[tuple[str, str]] = (),
) -> list[Figure]:
    """Draw percentages of groups as dots; nothing of fewer than two groups.

    Args:
      key: Unique on the page.
      titles: Headings of the columns.
      groups: (name, true records, percentages, what those are compared with), in order.
      caption: What it shows.
      legend: Meanings of the colors.
    """
    if len(groups) < 2:
        return []
    if len(groups) >= _MOST_DRAWN:
        caption += f" At most {_MOST_DRAWN} groups are drawn."
    rows = [
        DotRow(f"{words(group)} ({text.integer(records)})", values, marks)
        for group, records, values, marks in groups[:_MOST_DRAWN]
    ]
    return [Figure(key, dot_rows(key, titles, rows), caption, legend)]


def predictions_section(predictions: Predictions) -> Section:
    """Accuracy and parity of the classifiers, and each group."""
    wanted = ", ".join(predictions.levels)
    lead = (
        f"Whether {words(predictions.attribute)} is one of {wanted}, predicted by "
        f"{len(predictions.features)} other attributes. Classifiers are tested on the records of "
        "the file, none of which were held out; the one that is trained on the file itself is what "
        "can be reached. The more frequent answer alone is right for "
        f"{text.percent(predictions.majority_accuracy)}."
    )
    blocks: list[Block] = [_classifiers_table(predictions)]
    sets = zip(*(one.parity for one in predictions.classifiers), strict=True)
    for index, parity in enumerate(sets):
        blocks += [*_figure(index, parity), _groups_table(index, parity)]
    return Section("predictions", "What a use of the microdata does to groups", lead, blocks)


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
        columns.append(known("Demographic parity", ratios, hint=by))
        apart = (one.false_negative_rate_difference for one in sets)
        columns.append(known("False negatives apart", apart, hint=by))
    note = (
        "Demographic parity: smallest over largest share of positive predictions among groups; 1 "
        "is parity. False negatives apart: largest less smallest false negative rate among groups; "
        "0 is parity."
    )
    caption = f"Classifiers of {words(predictions.attribute)}"
    return Table.of("classifiers", caption, columns, note)


def _figure(index: int, parity: Sequence[PredictionParity]) -> list[Figure]:
    """Rates by group: a dot of the classifier of the microdata, a line of that of the file."""
    pairs = zip(*(one.groups for one in parity), strict=True)
    rows = [
        (own.group, own.records, _rates(own), _rates(of_truth))
        for own, of_truth in sorted(pairs, key=lambda pair: -pair[0].records)
    ]
    caption = (
        "Left, how many of a group are predicted to be positive; right, how many of its positive "
        "ones are missed. True number of records in brackets, the largest group first. A "
        "logarithmic scale; no dot where there are too few to tell."
    )
    legend = [("released", "trained on the microdata"), ("raw", "trained on the file itself")]
    titles = ["predicted positive", "positive ones missed"]
    return group_figure(f"predicted-{index}", titles, rows, caption, legend)


def _rates(group: GroupPrediction) -> list[float | None]:
    missed = group.false_negative_rate
    return [100 * group.predicted / group.records, None if missed is None else 100 * missed]


def _groups_table(index: int, parity: Sequence[PredictionParity]) -> Table:
    first = parity[0]
    by_basis = dict(zip(("by the microdata", "by the file"), parity, strict=True))
    positive = (own.positive / own.records for own in first.groups)
    predicted = {by: [g.predicted / g.records for g in p.groups] for by, p in by_basis.items()}
    missed = {by: [g.false_negative_rate for g in p.groups] for by, p in by_basis.items()}
    columns = [
        labels("Group", (own.group for own in first.groups)),
        numbers("Records", (own.records for own in first.groups), hint="true"),
        numbers("Positive", positive, text.percent, "true"),
        *(numbers("Predicted", shares, text.percent, by) for by, shares in predicted.items()),
        *(known("Missed", shares, text.percent, by) for by, shares in missed.items()),
    ]
    left_out = ", ".join(map(words, first.left_out))
    note = f"Too small to tell: {left_out}." if left_out else ""
    by = words(" * ".join(first.attributes))
    caption = f"Predictions for groups by {by}"
    return Table.of(f"predictions-{index}", caption, columns, note)
