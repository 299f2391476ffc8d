"""What a classifier trained on the microdata does to groups, on a page. Confidential."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.documents.survey import GroupPrediction, PredictionParity, Predictions
from jobs.report import text
from jobs.report.page import Block, FigureBlock, Section, TableBlock
from jobs.report.plots import DotRow, Figure, dot_rows
from jobs.report.table import EMPTY, Cell, Column, Table, label, name, number
from jobs.report.text import words

_TRAINED = {"release": "the microdata", "truth": "the file itself"}
_MOST_DRAWN = 40  # groups of a figure


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
    blocks: list[Block] = [TableBlock(_classifiers_table(predictions))]
    sets = zip(*(one.parity for one in predictions.classifiers), strict=True)
    for index, parity in enumerate(sets):
        blocks += [*_figure(index, parity), TableBlock(_groups_table(index, parity))]
    return Section("predictions", "What a use of the microdata does to groups", lead, blocks)


def _classifiers_table(predictions: Predictions) -> Table:
    body = [
        [
            name(_TRAINED[one.trained_on]),
            number(one.records),
            number(one.positive / one.records if one.records else None, text.percent),
            number(one.accuracy, text.fine_percent),
            *(
                Cell(EMPTY) if value is None else number(value, text.decimal)
                for parity in one.parity
                for value in (
                    parity.demographic_parity_ratio,
                    parity.false_negative_rate_difference,
                )
            ),
        ]
        for one in predictions.classifiers
    ]
    sets = [words(" * ".join(one.attributes)) for one in predictions.classifiers[0].parity]
    columns = [
        Column("Trained on", numeric=False),
        Column("Records"),
        Column("Positive"),
        Column("Accuracy", hint="of the file"),
        *(
            Column(title, hint=by)
            for by in sets
            for title in ("Demographic parity", "False negatives apart")
        ),
    ]
    note = (
        "Demographic parity: smallest over largest share of positive predictions among groups; 1 "
        "is parity. False negatives apart: largest less smallest false negative rate among groups; "
        "0 is parity."
    )
    caption = f"Classifiers of {words(predictions.attribute)}"
    return Table("classifiers", caption, columns, body, note)


def _figure(index: int, parity: Sequence[PredictionParity]) -> list[FigureBlock]:
    """Rates by group: a dot of the classifier of the microdata, a line of that of the file."""
    drawn = sorted(
        zip(*(one.groups for one in parity), strict=True), key=lambda pair: -pair[0].records
    )[:_MOST_DRAWN]
    if len(drawn) < 2:
        return []
    rows = [
        DotRow(f"{words(own.group)} ({text.integer(own.records)})", _rates(own), _rates(of_truth))
        for own, of_truth in drawn
    ]
    key = f"predicted-{index}"
    caption = (
        "Left, how many of a group are predicted to be positive; right, how many of its positive "
        "ones are missed. True number of records in brackets, the largest group first. A "
        "logarithmic scale; no dot where there are too few to tell."
    )
    if len(drawn) == _MOST_DRAWN:
        caption += f" At most {_MOST_DRAWN} groups are drawn."
    legend = [("released", "trained on the microdata"), ("raw", "trained on the file itself")]
    svg = dot_rows(key, ["predicted positive", "positive ones missed"], rows)
    return [FigureBlock(Figure(key, svg, caption, legend))]


def _rates(group: GroupPrediction) -> list[float | None]:
    missed = group.false_negative_rate
    return [100 * group.predicted / group.records, None if missed is None else 100 * missed]


def _groups_table(index: int, parity: Sequence[PredictionParity]) -> Table:
    body = []
    for pair in zip(*(one.groups for one in parity), strict=True):
        own = pair[0]
        body.append(
            [
                label(own.group),
                number(own.records),
                number(own.positive / own.records, text.percent),
                *(number(one.predicted / one.records, text.percent) for one in pair),
                *(
                    Cell(EMPTY)
                    if one.false_negative_rate is None
                    else number(one.false_negative_rate, text.percent)
                    for one in pair
                ),
            ]
        )
    columns = [
        Column("Group", numeric=False),
        Column("Records", hint="true"),
        Column("Positive", hint="true"),
        Column("Predicted", hint="by the microdata"),
        Column("Predicted", hint="by the file"),
        Column("Missed", hint="by the microdata"),
        Column("Missed", hint="by the file"),
    ]
    left_out = ", ".join(map(words, parity[0].left_out))
    note = f"Too small to tell: {left_out}." if left_out else ""
    by = words(" * ".join(parity[0].attributes))
    return Table(f"predictions-{index}", f"Predictions for groups by {by}", columns, body, note)
