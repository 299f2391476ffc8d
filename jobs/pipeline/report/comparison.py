"""Sections that compare a release with the truth. Confidential: only the internal report has them.

They are made from the evaluation alone; nothing here can read data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.pipeline.documents.evaluation import BySize, ByTrue, Evaluation, Result
from jobs.pipeline.documents.manifest import Manifest, expected_rmse
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import MOST_PANELS, level_grid
from jobs.pipeline.report.page import Block, Row, Section, Tile
from jobs.pipeline.report.plots import Figure, Panel, line_panels
from jobs.pipeline.report.table import Cell, Column, Table, codes, gridded, labels, numbers, tilted
from jobs.pipeline.report.text import words


@dataclass(frozen=True)
class Comparison:
    """An evaluation, indexed.

    Attributes:
      levels: Geolevels, root first.
      queries: Evaluated queries, fewest answers first.
      results: (geolevel, query) to its statistics.
      noise: (geolevel, query) to the expected error of the raw noisy answer.
      records: What is counted: persons or units.
    """

    levels: Sequence[str]
    queries: Sequence[str]
    results: Mapping[tuple[str, str], Result]
    noise: Mapping[tuple[str, str], float]
    records: str = "persons"

    @classmethod
    def build(cls, manifest: Manifest, evaluation: Evaluation) -> Comparison:
        """Index an evaluation."""
        return cls(
            evaluation.levels,
            evaluation.queries,
            {(result.geolevel, result.query): result for result in evaluation.results},
            expected_rmse(manifest.budget, manifest.levels),
            manifest.records,
        )

    def result(self, level: str, query: str) -> Result:
        """The statistics of a query at a geolevel."""
        return self.results[level, query]

    def value(self, level: str, query: str, key: str) -> float | None:
        """One statistic; None of no answers."""
        number: float | None = getattr(self.result(level, query), key)
        return number

    def grid(self, key: str) -> list[list[float | None]]:
        """One statistic, queries by geolevels."""
        return [[self.value(level, q, key) for level in self.levels] for q in self.queries]

    def shown(self) -> list[str]:
        """Queries worth a panel: total and detailed always, then the rest in order."""
        first = [q for q in ("total", "detailed") if q in self.queries]
        rest = [q for q in self.queries if q not in first]
        chosen = {*first, *rest[: MOST_PANELS - len(first)]}
        return [q for q in self.queries if q in chosen]


def kept_tile(manifest: Manifest, comparison: Comparison) -> Tile:
    """How many invariants the release keeps, of those the evaluation covers."""
    stated = manifest.invariants
    kept = sum(
        all(
            (level, row.query) in comparison.results
            and comparison.result(level, row.query).max == 0
            for level in row.geolevels
        )
        for row in stated
    )
    verdict = f"{len(stated) - kept} BROKEN OR UNSEEN"
    if kept == len(stated):
        verdict = "checked against the truth" if stated else "none stated"
    return Tile("Invariants exact", f"{kept} of {len(stated)}", verdict)


def error_section(comparison: Comparison) -> Section:
    """Error by query and geolevel, beside that of the raw noisy answers."""
    axes = (list(comparison.queries), list(comparison.levels))
    noise = [
        [comparison.noise.get((level, query)) for level in comparison.levels]
        for query in comparison.queries
    ]
    released = comparison.grid("rmse")
    panels = [
        Panel(
            words(query),
            [words(level) for level in comparison.levels],
            {
                "raw": [comparison.noise.get((level, query)) for level in comparison.levels],
                "released": [comparison.value(v, query, "rmse") for v in comparison.levels],
            },
        )
        for query in comparison.shown()
    ]
    caption = (
        "Root mean square error of one answer, by query (panel) and geolevel, on one logarithmic "
        "scale. Where the solid line lies below the dashed one, solving has removed noise."
    )
    legend = [("released", "released"), ("raw", "raw noisy answer, expected")]
    blocks: list[Block] = []
    if panels:
        label = f"Root mean square error, in {comparison.records}"
        svg = line_panels("error", panels, label)
        blocks.append(Figure("error", svg, caption, legend))
    blocks += [
        Row(
            [
                level_grid("error-released", "Released: RMSE", released, axes),
                level_grid("error-raw", "Raw noise: expected RMSE", noise, axes),
            ]
        ),
        _full_table(comparison),
    ]
    return Section("error", "Error by query and geolevel", _error_lead(comparison), blocks)


def _error_lead(comparison: Comparison) -> str:
    pairs = [
        (comparison.value(*key, "rmse"), noise)
        for key, noise in comparison.noise.items()
        if key in comparison.results
    ]
    known = [(mine, noise) for mine, noise in pairs if mine is not None]
    parts = []
    leaf = comparison.levels[-1]
    total = comparison.result(leaf, "total")
    if total.mae is not None:
        parts.append(
            f"At {words(leaf)}, a total is off by {text.decimal(total.mae)} "
            f"{comparison.records} on average; half are off by at most "
            f"{text.integer(total.q50)}, and 99 in 100 by at most {text.integer(total.q99)}."
        )
    if known:
        better = sum(mine < noise for mine, noise in known)
        parts.append(
            f"For {better} of {len(known)} measured pairs of query and geolevel the released "
            "answer is closer to the truth than the noisy answer is expected to be."
        )
    return " ".join(parts)


_FULL = (
    ("answers", "Answers", "compared", text.integer),
    ("mae", "MAE", "one answer", text.decimal),
    ("rmse", "RMSE", "one answer", text.decimal),
    ("bias", "Bias", "mean error", text.signed),
    ("exact", "Exact", "share", text.percent),
    ("q50", "Median", "|error|", text.integer),
    ("q90", "90\N{NO-BREAK SPACE}%", "|error|", text.integer),
    ("q99", "99\N{NO-BREAK SPACE}%", "|error|", text.integer),
    ("max", "Largest", "|error|", text.integer),
    ("tvd", "Moved", "of records", text.percent),
    ("appeared", "Appeared", "were 0", text.integer),
    ("vanished", "Vanished", "became 0", text.integer),
)


def _full_table(comparison: Comparison) -> Table:
    keys = [(level, query) for query in comparison.queries for level in comparison.levels]
    columns = [
        labels("Query", (query for _, query in keys)),
        labels("Geolevel", (level for level, _ in keys)),
    ]
    for key, title, hint, show in _FULL:
        columns.append(numbers(title, (comparison.value(*at, key) for at in keys), show, hint))
    note = (
        "All answers of all geounits count, empty ones included. Error is released minus true. "
        "Moved is the share of records counted in another answer than the true one. Quantiles are "
        "of the absolute error."
    )
    return Table.of("error-table", "Every statistic by query and geolevel", columns, note)


def changed_section(comparison: Comparison) -> Section:
    """The geounits that changed most."""
    blocks: list[Block] = [
        Row(
            [
                _changed_table(comparison, "total", "By change of the total"),
                _changed_table(comparison, "detailed", "By sum of absolute errors"),
            ]
        )
    ]
    lead = (
        "The most changed geounits of each geolevel, by their total and over all cells. Look "
        "here first for geounits that no model expected, such as prisons and campuses."
    )
    return Section("changed", "Most changed geounits", lead, blocks)


def _changed_table(comparison: Comparison, query: str, caption: str) -> Table:
    changed = [
        (level, change)
        for level in comparison.levels
        for change in comparison.result(level, query).most_changed
    ]
    changed.sort(key=lambda pair: -pair[1].l1)
    records, net = comparison.records.capitalize(), (change.net for _, change in changed)
    columns = [
        codes("Geounit", (change.geocode for _, change in changed)),
        labels("Geolevel", (level for level, _ in changed)),
        numbers(records, (change.persons for _, change in changed), hint="true"),
        numbers("Change", net, text.signed_integer, "of the total"),
        numbers("L1", (change.l1 for _, change in changed), hint="sum of |error|"),
    ]
    return Table.of(f"changed-{query}", caption, columns)


def bias_table(comparison: Comparison, query: str, kind: str, caption: str) -> Table:
    """Mean error of a query by bin (`kind` is by_size or by_true) and geolevel, two-sided."""
    bins, values = bin_values(comparison, query, kind, "bias")
    heading = (
        f"{comparison.records.capitalize()} in the geounit" if kind == "by_size" else "True count"
    )
    columns = [
        Column(heading, False, cells=[Cell(size, place) for place, size in enumerate(bins)]),
        *gridded(map(words, comparison.levels), tilted(values)),
    ]
    return Table.of(f"bias-{query}-{kind}".replace(" ", ""), caption, columns)


def bin_values(
    comparison: Comparison, query: str, kind: str, key: str
) -> tuple[list[str], list[list[float | None]]]:
    """Bin labels, and a statistic, bins by geolevels.

    Args:
      comparison: The evaluation.
      query: A query of it.
      kind: "by_size" or "by_true".
      key: The statistic.
    """
    by_level: list[Sequence[BySize | ByTrue]] = [
        getattr(comparison.result(level, query), kind) for level in comparison.levels
    ]
    rows = list(zip(*by_level, strict=True))  # every geolevel has the same bins
    return [row[0].bin for row in rows], [[getattr(one, key) for one in row] for row in rows]
