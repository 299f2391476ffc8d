"""Errors of released counts by size, as replicates of the release tell. Public."""

from __future__ import annotations

from collections.abc import Sequence

from das.metrics.accuracy import TRUE_LABELS
from jobs.pipeline.documents.intervals import Intervals
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.report import text
from jobs.pipeline.report.page import Section
from jobs.pipeline.report.table import Cell, Column, Table, gridded, labels, numbers, shaded, tilted

_NOTE = (
    "Of {} replicates. Answers are classed by what the release says. Covered is the share of "
    "answers of replicates in classes whose {} intervals are known to hold the truth as often as "
    "they say, or more often."
)


def intervals_section(manifest: Manifest, intervals: Intervals) -> Section:
    """How far released counts are from the truth, told without it."""
    lead = (
        "The release was measured and solved again as if it were the truth, with fresh noise of "
        "the same laws. How far these replicates are from the release says how far the release is "
        "from the truth; nothing here was compared with confidential data. Every released count "
        "has an interval in the folder intervals."
    )
    places = _places(manifest.geolevels, intervals)
    bias = tilted(_grid(intervals, places, "bias"))
    leaning = "Mean error by size of the count: which way solving leans"
    blocks = [
        errors_table(manifest.geolevels, intervals),
        _table("interval-bias", leaning, places, bias),
    ]
    return Section("intervals", "Error of released counts", lead, blocks)


def errors_table(levels: Sequence[str], intervals: Intervals) -> Table:
    """Root mean square errors of released counts, as replicates tell, and how much is covered."""
    places = _places(levels, intervals)
    confidence = text.percent(text.ratio(intervals.confidence), 0)
    note = _NOTE.format(text.integer(intervals.replicates), confidence)
    cells = shaded(_grid(intervals, places, "rmse"), text.decimal, logarithmic=True)
    caption = "Root mean square error of released counts by size of the count"
    covered = numbers("Covered", _covered(intervals, places), text.percent, "answers")
    return _table("interval-errors", caption, places, cells, [covered], note)


def _places(levels: Sequence[str], intervals: Intervals) -> list[tuple[str, str]]:
    """Geolevels and queries, the root first."""
    places = list(dict.fromkeys((row.geolevel, row.query) for row in intervals.errors))
    return sorted(places, key=lambda place: levels.index(place[0]))


def _grid(
    intervals: Intervals, places: Sequence[tuple[str, str]], name: str
) -> list[list[float | None]]:
    """A statistic by place and range of counts."""
    found = {(row.geolevel, row.query, row.bin): row for row in intervals.errors}
    rows = [[found.get((*place, size)) for size in TRUE_LABELS] for place in places]
    return [[None if one is None else getattr(one, name) for one in row] for row in rows]


def _covered(intervals: Intervals, places: Sequence[tuple[str, str]]) -> list[float]:
    """Share of answers of each geolevel and query in classes that are covered."""
    sums = {place: [0, 0] for place in places}
    for row in intervals.intervals:
        of_place = sums[row.geolevel, row.query]
        of_place[0] += row.answers * (row.mark in ("within", "above"))
        of_place[1] += row.answers
    return [inside / max(1, every) for inside, every in sums.values()]


def _table(
    key: str,
    caption: str,
    places: Sequence[tuple[str, str]],
    cells: Sequence[Sequence[Cell]],
    more: Sequence[Column] = (),
    note: str = "",
) -> Table:
    columns = [
        labels("Geolevel", (geolevel for geolevel, _ in places)),
        labels("Query", (query for _, query in places)),
        *gridded(TRUE_LABELS, cells),
        *more,
    ]
    return Table.of(key, caption, columns, note)
