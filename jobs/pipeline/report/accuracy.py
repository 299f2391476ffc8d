"""Accuracy of the released tables, from the standard errors of estimates. Public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from das.metrics.accuracy import TRUE_LABELS
from das.tree.intervals import normal_factor
from jobs.pipeline.documents.intervals import Intervals
from jobs.pipeline.documents.manifest import LevelGeography, Manifest, expected_rmse
from jobs.pipeline.language import prose, tr, with_separators
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import level_grid, query_figure
from jobs.pipeline.report.page import Section, Tile
from jobs.pipeline.report.table import Cell, Column, Table, gridded, labels, numbers, shaded, tilted
from jobs.pipeline.report.text import words
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of the unbiased estimates of a release.

    Attributes:
      confidence: Confidence of the intervals, between 0 and 1.
      half_widths: (geolevel, table) -> mean half width of the interval of an answer.
    """

    confidence: float
    half_widths: Mapping[tuple[str, str], float]

    @property
    def tables(self) -> list[str]:
        """Return the names of the tables with estimates, in the order of the files."""
        return list(dict.fromkeys(table for _, table in self.half_widths))

    @property
    def often(self) -> str:
        """Return how often an interval contains the true value, such as `90 of 100`."""
        return tr("{share} of 100", share=round(100 * self.confidence))


def read_accuracy(release: ReleaseLayout, geography: Sequence[LevelGeography]) -> Accuracy | None:
    """Read the estimated errors of a release; None without estimates.

    Args:
      release: The release.
      geography: Geolevels of the release.

    Raises:
      OutputError: A dataset is damaged.
    """
    confidence, found = 0.0, {}
    for row in geography:
        path = EstimateLayout.of(release).tables(row.geolevel)
        if not is_published(path):
            return None
        facts = Dataset.open(path).facts
        confidence = facts["confidence"]
        for table, sums in facts["standard_error_sums"].items():
            mean = sum(sums) / (len(sums) * row.geounits)
            found[row.geolevel, table] = normal_factor(confidence) * mean
    return Accuracy(confidence, found) if found else None


def accuracy_tile(manifest: Manifest, accuracy: Accuracy) -> Tile | None:
    """Show the half width of intervals of the first table, at one geolevel, as a headline number.

    Returns:
      The tile; None if the geolevel has no estimates, for example if all its queries are on demand.
    """
    level = manifest.levels[max(0, len(manifest.levels) - 3)]
    for table in accuracy.tables:
        width = accuracy.half_widths.get((level, table))
        if width is not None:
            shown = words(table).capitalize()
            label = tr("{table} of a {geolevel}", table=shown, geolevel=words(level))
            often = tr("holds the truth in {often} cases, on average", often=accuracy.often)
            if not width:
                often = tr("an invariant")
            return Tile(label, f"±{text.decimal(width)}" if width else tr("exact"), often)
    return None


def accuracy_section(manifest: Manifest, accuracy: Accuracy) -> Section:
    """Show half widths of intervals of estimates and of noisy answers, by table and geolevel."""
    levels, tables = manifest.levels, accuracy.tables
    percent = with_separators(f"{100 * accuracy.confidence:.10g} %")
    factor = normal_factor(accuracy.confidence)
    values = [[accuracy.half_widths.get((level, table)) for level in levels] for table in tables]
    caption = prose("accuracy.caption", percent=percent)
    legend = [("released", prose("accuracy.estimate")), ("raw", tr("one noisy answer"))]
    label = prose("accuracy.label", percent=percent, records=manifest.records)
    expected = expected_rmse(manifest.budget, levels)
    raw = [[expected.get((level, table)) for level in levels] for table in tables]
    alone = [[None if one is None else factor * one for one in row] for row in raw]
    axes, series = (tables, levels), {"raw": alone, "released": values}
    figure = query_figure("accuracy", axes, series, label, caption, legend)
    grid = level_grid("accuracy-grid", label, values, axes, prose("accuracy.note"))
    title, lead = tr("Accuracy of the tables"), _lead(manifest, accuracy)
    return Section("accuracy", title, lead, [figure, grid])


def _lead(manifest: Manifest, accuracy: Accuracy) -> str:
    table, records = accuracy.tables[0], manifest.records
    widths = {level: accuracy.half_widths.get((level, table)) for level in manifest.levels}
    exact = [words(level) for level, width in widths.items() if width == 0]
    off = [text.at_level(text.decimal(width), level) for level, width in widths.items() if width]
    lead = []
    if exact:
        at = f" {tr('and')} ".join(exact)
        name = words(table).capitalize()
        lead.append(tr("{table} is exact at {geolevels}.", table=name, geolevels=at))
    if off:
        known = {"often": accuracy.often, "table": words(table), "records": records}
        lead.append(prose("accuracy.widths", **known, widths=", ".join(off)))
    return " ".join(lead)


def intervals_section(manifest: Manifest, intervals: Intervals) -> Section:
    """Return the errors of released counts, estimated without the true data."""
    places = _places(manifest.geolevels, intervals)
    bias = tilted(_grid(intervals, places, "bias"))
    leaning = tr("Mean error by size of the count: which way solving leans")
    blocks = [
        errors_table(manifest.geolevels, intervals),
        _table("interval-bias", leaning, places, bias),
    ]
    return Section("intervals", tr("Error of released counts"), prose("intervals.lead"), blocks)


def errors_table(levels: Sequence[str], intervals: Intervals) -> Table:
    """Tabulate root mean square errors of released counts from replicates, and checked coverage."""
    places = _places(levels, intervals)
    note = prose("intervals.note", replicates=text.integer(intervals.replicates))
    cells = shaded(_grid(intervals, places, "rmse"), text.decimal, logarithmic=True)
    caption = tr("Root mean square error of released counts by size of the count")
    sums = {place: [0, 0] for place in places}
    for row in intervals.intervals:
        of_place = sums[row.geolevel, row.query]
        of_place[0] += row.answers * (row.mark in ("within", "above"))
        of_place[1] += row.answers
    shares = (inside / max(1, every) for inside, every in sums.values())
    covered = numbers(tr("Covered"), shares, text.percent, tr("answers"))
    if not intervals.checked:
        return _table("interval-errors", caption, places, cells, note=note)
    percent = text.percent(text.ratio(intervals.confidence), 0)
    note += " " + prose("intervals.covered", percent=percent)
    return _table("interval-errors", caption, places, cells, [covered], note)


def _places(levels: Sequence[str], intervals: Intervals) -> list[tuple[str, str]]:
    """List geolevels and queries, the root first."""
    places = list(dict.fromkeys((row.geolevel, row.query) for row in intervals.errors))
    return sorted(places, key=lambda place: levels.index(place[0]))


def _grid(
    intervals: Intervals, places: Sequence[tuple[str, str]], name: str
) -> list[list[float | None]]:
    """Arrange a statistic by geolevel, query and range of counts."""
    values = {(row.geolevel, row.query, row.bin): getattr(row, name) for row in intervals.errors}
    return [[values.get((*place, size)) for size in TRUE_LABELS] for place in places]


def _table(
    key: str,
    caption: str,
    places: Sequence[tuple[str, str]],
    cells: Sequence[Sequence[Cell]],
    more: Sequence[Column] = (),
    note: str = "",
) -> Table:
    columns = [
        labels(tr("Geolevel"), (geolevel for geolevel, _ in places)),
        labels(tr("Query"), (query for _, query in places)),
        *gridded(map(tr, TRUE_LABELS), cells),
        *more,
    ]
    return Table.of(key, caption, columns, note)
