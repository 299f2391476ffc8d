"""Sections that compare a release with the truth. Confidential: only the internal report has them.

They are made from the evaluation alone; nothing here can read data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.pipeline.documents.evaluation import BySize, ByTrue, Evaluation, HouseholdErrors, Result
from jobs.pipeline.documents.manifest import Manifest, expected_rmse
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import level_grid, query_figure
from jobs.pipeline.report.page import Block, Row, Section, Tile
from jobs.pipeline.report.table import (
    Cell,
    Column,
    Table,
    codes,
    gridded,
    labels,
    numbers,
    shaded,
    tilted,
)
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

    def value(self, level: str, query: str, key: str) -> float | None:
        """Return one statistic; None without answers."""
        number: float | None = getattr(self.results[level, query], key)
        return number

    def grid(self, key: str) -> list[list[float | None]]:
        """Return one statistic by query and geolevel."""
        return [[self.value(level, q, key) for level in self.levels] for q in self.queries]


def kept_tile(manifest: Manifest, comparison: Comparison) -> Tile:
    """How many invariants the release keeps, of those the evaluation covers."""
    stated = manifest.invariants
    kept = sum(
        all(
            (level, row.query) in comparison.results
            and comparison.results[level, row.query].max == 0
            for level in row.geolevels
        )
        for row in stated
    )
    verdict = f"{len(stated) - kept} BROKEN OR UNSEEN"
    if kept == len(stated):
        verdict = "checked against the truth" if stated else "none stated"
    return Tile("Invariants exact", f"{kept} of {len(stated)}", verdict)


def error_section(comparison: Comparison) -> Section:
    """Return errors by query and geolevel, compared with those of noisy answers."""
    axes = (comparison.queries, comparison.levels)
    noise = [[comparison.noise.get((v, query)) for v in axes[1]] for query in axes[0]]
    released = comparison.grid("rmse")
    caption = (
        "Root mean square error of one answer, by query (panel) and geolevel, on one logarithmic "
        "scale. Where the solid line lies below the dashed one, solving has removed noise."
    )
    legend = [("released", "released"), ("raw", "raw noisy answer, expected")]
    label = f"Root mean square error, in {comparison.records}"
    series = {"raw": noise, "released": released}
    figure = query_figure("error", axes, series, label, caption, legend)
    grids = [
        level_grid("error-released", "Released: RMSE", released, axes),
        level_grid("error-raw", "Raw noise: expected RMSE", noise, axes),
    ]
    blocks: list[Block] = [figure, Row(grids), _full_table(comparison)]
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
    total = comparison.results[leaf, "total"]
    if total.mae is not None:
        parts.append(
            f"At {words(leaf)}, a total is off by {text.decimal(total.mae)} "
            f"{comparison.records} on average; half are off by at most "
            f"{text.integer(total.q50 or 0)}, and 99 in 100 by at most "
            f"{text.integer(total.q99 or 0)}."
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
    """Return the section on geounits with the largest errors."""
    tables = [
        _changed_table(comparison, "total", "By change of the total"),
        _changed_table(comparison, "detailed", "By sum of absolute errors"),
    ]
    lead = (
        "The most changed geounits of each geolevel, by their total and over all cells. Look "
        "here first for geounits that no model expected, such as prisons and campuses."
    )
    return Section("changed", "Most changed geounits", lead, [Row(tables)])


def _changed_table(comparison: Comparison, query: str, caption: str) -> Table:
    changed = [
        (level, change)
        for level in comparison.levels
        for change in comparison.results[level, query].most_changed
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
    by_level: list[Sequence[BySize | ByTrue]] = [
        getattr(comparison.results[level, query], kind) for level in comparison.levels
    ]
    rows = list(zip(*by_level, strict=True))  # every geolevel has the same bins
    is_size = kind == "by_size"
    heading = f"{comparison.records.capitalize()} in the geounit" if is_size else "True count"
    columns = [
        Column(heading, False, cells=[Cell(row[0].bin, place) for place, row in enumerate(rows)]),
        *gridded(
            map(words, comparison.levels), tilted([[one.bias for one in row] for row in rows])
        ),
    ]
    return Table.of(f"bias-{query}-{kind}".replace(" ", ""), caption, columns)


_CLASSES = ("0", "1", "2", "3 to 4", "5 to 9", "10 to 19", "20 to 49", "50 or more")


def size_section(comparison: Comparison) -> Section:
    """Error by true population of the geounit."""
    lead, table = _size_lead(comparison), _size_table(comparison)
    return Section("size", "Error by size of geounit", lead, [table])


def _size_lead(comparison: Comparison) -> str:
    lead = "The noise does not depend on how large a geounit is; what solving makes of it does."
    leaf = comparison.levels[-1]
    ends = _ends(comparison.results[leaf, "total"].by_size, "mae")
    if ends is None:
        return lead
    (few, first), (many, last) = ends
    return (
        f"{lead} At {words(leaf)}, the total of geounits with {few} {comparison.records} is off "
        f"by {text.decimal(first)} on average, that of geounits with {many} by "
        f"{text.decimal(last)}."
    )


def _ends(
    rows: Sequence[BySize | ByTrue], key: str
) -> tuple[tuple[str, float], tuple[str, float]] | None:
    """Return the first and last bin with a statistic, and its values; None for fewer than two."""
    found = [(row.bin, getattr(row, key)) for row in rows if getattr(row, key) is not None]
    return (found[0], found[-1]) if len(found) > 1 else None


def _size_table(comparison: Comparison) -> Table:
    totals, cells = (
        [
            (level, order, one)
            for level in comparison.levels
            for order, one in enumerate(comparison.results[level, query].by_size)
            if one.geounits
        ]
        for query in ("total", "detailed")
    )
    sizes = [Cell(one.bin, order) for _, order, one in totals]
    columns = [
        labels("Geolevel", (level for level, *_ in totals)),
        Column(comparison.records.capitalize(), False, "in the geounit", sizes),
        numbers("Geounits", (one.geounits for *_, one in totals)),
    ]
    for rows, of, exact in ((totals, "total", "total"), (cells, "one cell", "cells")):
        columns += [
            numbers("MAE", (one.mae for *_, one in rows), text.decimal, of),
            numbers("Bias", (one.bias for *_, one in rows), text.signed, of),
            numbers("Exact", (one.exact for *_, one in rows), text.percent, exact),
        ]
    return Table.of("size-table", "Error by geolevel and size of geounit", columns)


def bias_section(comparison: Comparison) -> Section:
    """Mean error by size of geounit and by true count."""
    query = "detailed" if "detailed" in comparison.queries else "total"
    kinds = (
        (query, "by_true", "Bias of one cell by true count"),
        ("total", "by_size", "Bias of the total by size of geounit"),
    )
    tables = [bias_table(comparison, *of) for of in kinds]
    return Section("bias", "Bias", _bias_lead(comparison, query), [Row(tables)])


def _bias_lead(comparison: Comparison, query: str) -> str:
    lead = (
        "Released counts cannot be negative, so noise pushes cells that are truly zero upward, "
        "and where totals hold, larger cells pay for it."
    )
    leaf = comparison.levels[-1]
    ends = _ends(comparison.results[leaf, query].by_true, "bias")
    if ends is None:
        return lead
    (few, first), (many, last) = ends
    return (
        f"{lead} At {words(leaf)}, cells with a true count of {few} move by {text.signed(first)} "
        f"on average, those of {many} by {text.signed(last)}."
    )


def distribution_section(comparison: Comparison) -> Section:
    """Distribution of the absolute error by geolevel."""
    lead = (
        "How often an answer is exactly right, off by one, by two, and so on. Averages hide this: "
        "a small mean error can be many small errors or few large ones."
    )
    keys = [(level, query) for query in comparison.queries for level in comparison.levels]
    results = [comparison.results[key] for key in keys]
    shares = [one.distribution or [None] * len(_CLASSES) for one in results]
    note = "Answers that are zero in truth and in the release are left out."
    columns = [
        labels("Query", (query for _, query in keys)),
        labels("Geolevel", (level for level, _ in keys)),
        numbers("Answers", (result.live for result in results), hint="not 0 in both"),
        *gridded(_CLASSES, shaded(shares, text.percent)),
    ]
    caption = f"Share of answers by absolute error in {comparison.records}"
    table = Table.of("distribution-table", caption, columns, note)
    return Section("distribution", "Distribution of the error", lead, [table])


def households_section(found: tuple[HouseholdErrors, ...]) -> list[Section]:
    """Tabulate errors of released and of plain counts; None if only plain counts exist."""
    if not found:
        return []
    columns = [
        labels("Geolevel", (one.geolevel for one in found)),
        labels("By", (one.kind for one in found)),
        labels("Of", (one.label for one in found)),
        numbers("Answers", (one.answers for one in found)),
        numbers("Records", (one.records for one in found), hint="in truth"),
        numbers("Bias", (one.bias for one in found), text.percent, "released, of the records"),
        numbers("Plain", (one.bias_plain for one in found), text.percent, "bias without"),
        numbers("Squared error", (one.mse for one in found), text.decimal, "released, mean"),
        numbers("Plain", (one.mse_plain for one in found), text.decimal, "squared error without"),
    ]
    lead = (
        "Counts are shrunk toward the persons per housing unit of their parent, so places with "
        "large households lose and places with small ones gain. Plain is the same run without. "
        "Persons per unit are over those of the parent, in truth; groups are concentrated where "
        "their share is 1.5 times that in the parent; sums are of geounits that form none."
    )
    table = Table.of("households", "Errors with and without expected totals", columns)
    return [Section("households", "Housing units as a covariate", lead, [table])]
