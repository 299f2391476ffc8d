"""How accurate the released tables are, as the standard errors of estimates say. Public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from das.metrics.accuracy import TRUE_LABELS
from das.tree.intervals import normal_factor
from jobs.pipeline.documents.intervals import Intervals
from jobs.pipeline.documents.manifest import LevelGeography, Manifest, expected_rmse
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import level_grid, query_figure
from jobs.pipeline.report.page import Section, Tile
from jobs.pipeline.report.table import Cell, Column, Table, gridded, labels, numbers, shaded, tilted
from jobs.pipeline.report.text import words
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout


@dataclass(frozen=True)
class Accuracy:
    """How far unbiased estimates may be from the truth.

    Attributes:
      confidence: Of the intervals.
      half_widths: (geolevel, table) to the mean half width of the intervals of one answer.
    """

    confidence: float
    half_widths: Mapping[tuple[str, str], float]

    @property
    def tables(self) -> list[str]:
        """Their names, in the order of the files."""
        return list(dict.fromkeys(table for _, table in self.half_widths))

    @property
    def often(self) -> str:
        """How often an interval holds the truth, in words."""
        return f"{round(100 * self.confidence)} of 100"


def read_accuracy(release: ReleaseLayout, geography: Sequence[LevelGeography]) -> Accuracy | None:
    """Read the estimated errors of a release; None without estimates.

    Args:
      release: The release.
      geography: Its geolevels.

    Raises:
      OutputError: A dataset is damaged.
    """
    confidence, found = 0.0, {}
    for row in geography:
        path = EstimateLayout.of(release).tables(row.geolevel)
        if not is_published(path):
            return None
        facts = Dataset.open(path).facts
        if "standard_error_sums" not in facts:  # of releases of older versions
            return None
        confidence = facts["confidence"]
        for table, sums in facts["standard_error_sums"].items():
            mean = sum(sums) / (len(sums) * row.geounits)
            found[row.geolevel, table] = normal_factor(confidence) * mean
    return Accuracy(confidence, found) if found else None


def accuracy_tile(manifest: Manifest, accuracy: Accuracy) -> Tile | None:
    """Show how far off the first table is at the geolevel above block groups or the like.

    Returns:
      None if the geolevel has no estimates, as where all its queries are on demand.
    """
    level = manifest.levels[max(0, len(manifest.levels) - 3)]
    found = (one for one in accuracy.tables if (level, one) in accuracy.half_widths)
    table = next(found, None)
    if table is None:
        return None
    width = accuracy.half_widths[level, table]
    if width == 0:
        return Tile(f"{words(table).capitalize()} of a {words(level)}", "exact", "an invariant")
    return Tile(
        f"{words(table).capitalize()} of a {words(level)}",
        f"±{text.decimal(width)}",
        f"holds the truth in {accuracy.often} cases, on average",
    )


def accuracy_section(manifest: Manifest, accuracy: Accuracy) -> Section:
    """Half widths of intervals by table and geolevel, compared with those of noisy answers."""
    levels, tables = manifest.levels, accuracy.tables
    percent = f"{100 * accuracy.confidence:.10g} %"
    factor = normal_factor(accuracy.confidence)
    values = [[accuracy.half_widths.get((level, table)) for level in levels] for table in tables]
    caption = (
        f"Mean half width of the {percent} interval of one answer, by table (panel) and geolevel, "
        "on one logarithmic scale with zero. Where a noisy answer was measured, the dashed line "
        "shows what it would give alone."
    )
    legend = [("released", "estimate from all noisy answers"), ("raw", "one noisy answer")]
    label = f"Half width of the {percent} interval, in {manifest.records}"
    expected = expected_rmse(manifest.budget, levels)
    raw = [[expected.get((level, table)) for level in levels] for table in tables]
    alone = [[None if one is None else factor * one for one in row] for row in raw]
    axes, series = (tables, levels), {"raw": alone, "released": values}
    figure = query_figure("accuracy", axes, series, label, caption, legend)
    note = (
        "Of unbiased estimates, from the standard errors in estimates/tables; an average over "
        "geounits and answers. Protected counts use more than the estimates do, so most of them "
        "are closer to the truth. Nothing here was compared with confidential data."
    )
    grid = level_grid("accuracy-grid", label, values, axes, note)
    title, lead = "Accuracy of the tables", _lead(manifest, accuracy)
    return Section("accuracy", title, lead, [figure, grid])


def _lead(manifest: Manifest, accuracy: Accuracy) -> str:
    table, records = accuracy.tables[0], manifest.records
    found = {level: accuracy.half_widths.get((level, table)) for level in manifest.levels}
    widths = {level: width for level, width in found.items() if width is not None}
    exact = [words(level) for level, width in widths.items() if not width]
    off = [f"{text.decimal(width)} at {words(level)}" for level, width in widths.items() if width]
    lead = f"{words(table).capitalize()} is exact at {' and '.join(exact)}. " if exact else ""
    if off:
        lead += (
            f"In {accuracy.often} cases an estimate of {words(table)} is at most so many {records} "
            f"away from the truth, on average: {', '.join(off)}."
        )
    return lead


_NOTE = (
    "Of {} replicates. Answers are classed by what the release says. Covered is the share of "
    "answers of replicates in classes whose {} intervals are known to hold the truth as often as "
    "they say, or more often."
)


def intervals_section(manifest: Manifest, intervals: Intervals) -> Section:
    """Return the errors of released counts, estimated without the true data."""
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
    """Arrange a statistic by geolevel, query and range of counts."""
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
