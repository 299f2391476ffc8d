"""How accurate the released tables are, as the standard errors of estimates say. Public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from das.tree.intervals import normal_factor
from jobs.pipeline.documents.manifest import LevelGeography, Manifest, expected_rmse
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import MOST_PANELS, level_grid
from jobs.pipeline.report.page import Block, Section, Tile
from jobs.pipeline.report.plots import Figure, Panel, line_panels
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

    def first_at(self, geolevel: str) -> str | None:
        """Return the first table with estimates at a geolevel; None if there is none."""
        return next((t for t in self.tables if (geolevel, t) in self.half_widths), None)

    @property
    def often(self) -> str:
        """How often an interval holds the truth, in words."""
        return f"{round(100 * self.confidence)} of 100"


def read_accuracy(release: ReleaseLayout, geography: Sequence[LevelGeography]) -> Accuracy | None:
    """What the estimates of a release say of their errors; None if there are none.

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
      None if the geolevel has no estimates, as where all its queries are lazy.
    """
    level = manifest.levels[max(0, len(manifest.levels) - 3)]
    table = accuracy.first_at(level)
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
    """Half widths of intervals by table and geolevel, beside those of the raw noisy answers."""
    levels, tables = manifest.levels, accuracy.tables
    percent = f"{100 * accuracy.confidence:.10g} %"
    factor = normal_factor(accuracy.confidence)
    raw = expected_rmse(manifest.budget, levels)
    values = [[accuracy.half_widths.get((level, table)) for level in levels] for table in tables]
    panels = [
        Panel(
            words(table),
            [words(level) for level in levels],
            {
                "raw": [
                    None if noise is None else factor * noise
                    for level in levels
                    for noise in [raw.get((level, table))]
                ],
                "released": row,
            },
        )
        for table, row in list(zip(tables, values, strict=True))[:MOST_PANELS]
    ]
    caption = (
        f"Mean half width of the {percent} interval of one answer, by table (panel) and geolevel, "
        "on one logarithmic scale with zero. Where a noisy answer was measured, the dashed line "
        "shows what it would give alone."
    )
    legend = [("released", "estimate from all noisy answers"), ("raw", "one noisy answer")]
    label = f"Half width of the {percent} interval, in {manifest.records}"
    figure = Figure("accuracy", line_panels("accuracy", panels, label), caption, legend)
    note = (
        "Of unbiased estimates, from the standard errors in estimates/tables; an average over "
        "geounits and answers. Protected counts use more than the estimates do, so most of them "
        "are closer to the truth. Nothing here was compared with confidential data."
    )
    grid = level_grid("accuracy-grid", label, values, (tables, levels), note)
    blocks: list[Block] = [figure, grid]
    return Section("accuracy", "Accuracy of the tables", _lead(manifest, accuracy), blocks)


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
