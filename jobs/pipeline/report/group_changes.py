"""Which groups a solution serves better or worse than the release beside which it was made.

Confidential, as `jobs.pipeline.report.comparison`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.report import text
from jobs.pipeline.report.groups import MOST_FIGURED, Groups, groups_of
from jobs.pipeline.report.page import Block, Section
from jobs.pipeline.report.plots import DotRow, Figure, dot_rows
from jobs.pipeline.report.table import Column, Table, gridded, label, name, numbers, tilted
from jobs.pipeline.report.text import words

Pair = tuple[Groups, Groups]  # the same groups at the same geolevels, in the release and after


def changes_section(release: Evaluation, solution: Evaluation) -> Section:
    """Errors by group of a solution beside those of the release.

    Args:
      release: Evaluation of the release.
      solution: Of the solution. Groups that only one of them has are left out.
    """
    pairs = list(_pairs(release, solution))
    levels = solution.levels
    blocks: list[Block] = []
    drawn = [pair for pair in pairs if len(pair[1].drawn) > 1][:MOST_FIGURED]
    if drawn:
        rows = [row for pair in drawn for row in _dots(pair, levels)]
        svg = dot_rows("group-changes", [words(level) for level in levels], rows)
        caption = (
            "Sum of the absolute errors of the group's total over all geounits of a geolevel, in "
            "percent of the group. A dot is this solution, the short line the release: a dot to "
            "the right of its line is a group that this solution serves worse. Both post-process "
            "the same noise."
        )
        legend = [("released", "this solution"), ("raw", "the release")]
        blocks.append(Figure("group-changes", svg, caption, legend))
    blocks += [_table(index, pair) for index, pair in enumerate(pairs)]
    title = "Groups beside the release"
    return Section("group-changes", title, _lead(pairs), blocks)


def _pairs(release: Evaluation, solution: Evaluation) -> Iterator[Pair]:
    known = {one.name: one for one in groups_of(release)}
    for after in groups_of(solution):
        before = known.get(after.name)
        if before and (before.labels, before.levels) == (after.labels, after.levels):
            yield before, after


def _dots(pair: Pair, levels: Sequence[str]) -> list[DotRow]:
    before, after = pair
    return [
        DotRow(
            words(after.labels[index]),
            after.along(levels, [of_level[index] for of_level in after.relative]),
            before.along(levels, [of_level[index] for of_level in before.relative]),
            "" if row else words(after.name),
        )
        for row, index in enumerate(after.drawn)
    ]


def _change(before: float | None, after: float | None) -> float | None:
    """By which share of itself an error changed; None if there was none, or no number."""
    return None if not before or after is None else after / before - 1


def _changes(pair: Pair) -> list[list[float | None]]:
    """Changes of everybody's error and of each group's, by geolevel."""
    before, after = pair
    befores = [before.everybody, *zip(*before.relative, strict=True)]
    afters = [after.everybody, *zip(*after.relative, strict=True)]
    return [
        [_change(one, other) for one, other in zip(first, second, strict=True)]
        for first, second in zip(befores, afters, strict=True)
    ]


def _table(index: int, pair: Pair) -> Table:
    after = pair[1]
    columns = [
        Column("Group", False, cells=[name("everybody"), *map(label, after.labels)]),
        numbers("True", [sum(after.sizes), *after.sizes], hint="in all"),
        *gridded(map(words, after.levels), tilted(_changes(pair), _signed_percent)),
    ]
    note = (
        "By how much the sum of |error| of this solution is larger than that of the release, in "
        "percent of it. Without a value where the release has no error, or the group fewer than "
        f"{after.floor}."
    )
    caption = f"Change of errors by {words(after.name)}"
    return Table.of(f"group-changes-{index}", caption, columns, note)


def _signed_percent(share: float | None) -> str:
    shown = text.percent(None if share is None else abs(share))
    sign = "\N{MINUS SIGN}" if share is not None and share < 0 else "+" if share else ""
    return f"{sign}{shown}"


def _lead(pairs: Sequence[Pair]) -> str:
    lead = "The same noise solved otherwise: which groups are better off by it, and which worse."
    found = [
        (change, label, after)
        for before, after in pairs
        for label, (*_, change) in zip(after.labels, _changes((before, after))[1:], strict=True)
        if change is not None
    ]
    if not found:
        return lead
    better = sum(change < 0 for change, _, _ in found)
    worse = sum(change > 0 for change, _, _ in found)
    (least, first, one), (most, last, other) = (
        extreme(found, key=lambda row: row[0]) for extreme in (min, max)
    )
    return (
        f"{lead} At {words(one.levels[-1])}, errors are smaller for {better} of {len(found)} "
        f"groups and larger for {worse}. Extremes: {words(first)} ({words(one.name)}) "
        f"{_signed_percent(least)}, {words(last)} ({words(other.name)}) {_signed_percent(most)}."
    )
