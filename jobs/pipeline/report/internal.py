"""Internal report: the release compared with the truth. Confidential.

It is written from the evaluation alone; nothing here can read data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.pipeline.documents.evaluation import BySize, ByTrue, Evaluation, HouseholdErrors, Result
from jobs.pipeline.documents.manifest import Manifest, expected_rmse
from jobs.pipeline.documents.summary import Summary
from jobs.pipeline.language import prose
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import (
    Spending,
    budget_section,
    exact_section,
    level_grid,
    products_sections,
    query_figure,
)
from jobs.pipeline.report.groups import groups_section
from jobs.pipeline.report.page import Banner, Block, Page, Prose, Row, Section, Tile, write_report
from jobs.pipeline.report.run import run_section, solving_section
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
from jobs.pipeline.report.tiles import banners, facts, run_time_tile, tiles
from jobs.pipeline.storage.place import Place

CONFIDENTIAL = Banner(
    "secret",
    "CONFIDENTIAL: compares with the truth",
    "This page is computed from confidential records without any protection. Never publish it, "
    "and give it only to those who may see the records themselves.",
)
_SUMMARY = (
    "Errors of the released counts: where they are large, where they are biased, and how they "
    "compare with the noise added for privacy."
)


def write_internal_report(
    manifest: Manifest,
    evaluation: Evaluation,
    summary: Summary,
    out: Place,
    *,
    of: Sequence[Manifest] = (),
) -> None:
    """Write the internal report as one self-contained HTML file, readable by its owner only.

    Args:
      manifest: Manifest of the release.
      evaluation: Comparison of the release with the truth.
      summary: Costs of the run.
      out: The file; replaced at once.
      of: Manifests of all products of the release.

    Raises:
      OutputError: The file cannot be written.
    """
    comparison = Comparison.build(manifest, evaluation)
    page = Page(
        "Internal evaluation",
        manifest.name,
        _SUMMARY,
        facts(manifest),
        [CONFIDENTIAL, *banners(manifest)],
        [
            kept_tile(manifest, comparison) if tile.label == "Invariants" else tile
            for tile in [*tiles(manifest), run_time_tile(manifest, summary)]
        ],
        [
            *products_sections(manifest, of),
            error_section(comparison),
            groups_section(evaluation, manifest.records),
            *households_section(evaluation.households),
            size_section(comparison),
            bias_section(comparison),
            distribution_section(comparison),
            changed_section(comparison),
            budget_section(Spending.of(manifest)),
            exact_section(manifest),
            solving_section(manifest.solve),
            run_section(manifest, summary),
            definitions_section("definitions.html.j2"),
        ],
        manifest.records,
    )
    write_report(page, out)


def definitions_section(template: str) -> Section:
    """Explain the numbers of an internal report."""
    lead = "Meaning of every number on this page."
    return Section("definitions", "Definitions", lead, [Prose(template)])


@dataclass(frozen=True)
class Comparison:
    """Index of an evaluation.

    Attributes:
      levels: Geolevels, root first.
      queries: Evaluated queries, fewest answers first.
      results: (geolevel, query) -> statistics of the errors.
      noise: (geolevel, query) -> expected RMSE of a noisy answer.
      records: Name of the records, such as persons or units.
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


def kept_tile(manifest: Manifest, comparison: Comparison) -> Tile:
    """Count the evaluated invariants, and how many of them the release satisfies."""
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
    """Compare errors of released counts with errors of noisy answers, by query and geolevel."""
    axes = (comparison.queries, comparison.levels)
    noise = [[comparison.noise.get((v, query)) for v in axes[1]] for query in axes[0]]
    released = [[comparison.results[v, query].rmse for v in axes[1]] for query in axes[0]]
    legend = [("released", "released"), ("raw", "raw noisy answer, expected")]
    label = f"Root mean square error, in {comparison.records}"
    series = {"raw": noise, "released": released}
    figure = query_figure("error", axes, series, label, prose("error.caption"), legend)
    raw = level_grid("error-raw", "Raw noise: expected RMSE", noise, axes)
    grids = Row([level_grid("error-released", "Released: RMSE", released, axes), raw])
    is_better = [
        rmse < expected
        for key, expected in comparison.noise.items()
        if key in comparison.results and (rmse := comparison.results[key].rmse) is not None
    ]
    lead = []
    leaf = comparison.levels[-1]
    total = comparison.results[leaf, "total"]
    if total.mae is not None:
        lead.append(
            f"At {words(leaf)}, a total is off by {text.decimal(total.mae)} "
            f"{comparison.records} on average; half are off by at most "
            f"{text.integer(total.q50 or 0)}, and 99 in 100 by at most "
            f"{text.integer(total.q99 or 0)}."
        )
    if is_better:
        lead.append(
            f"For {sum(is_better)} of {len(is_better)} measured pairs of query and geolevel the "
            "released answer is closer to the truth than the noisy answer is expected to be."
        )
    blocks: list[Block] = [figure, grids, _full_table(comparison)]
    return Section("error", "Error by query and geolevel", " ".join(lead), blocks)


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
        values = (getattr(comparison.results[at], key) for at in keys)
        columns.append(numbers(title, values, show, hint))
    note = prose("error.note")
    return Table.of("error-table", "Every statistic by query and geolevel", columns, note)


def changed_section(comparison: Comparison) -> Section:
    """Return the section on geounits with the largest errors."""
    tables = [
        _changed_table(comparison, "total", "By change of the total"),
        _changed_table(comparison, "detailed", "By sum of absolute errors"),
    ]
    return Section("changed", "Most changed geounits", prose("changed.lead"), [Row(tables)])


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
    """Tabulate the mean error of a query by geolevel and bin; `kind` is by_size or by_true."""
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
    """Return the section on errors by true population of the geounit."""
    lead = "The noise does not depend on the size of a geounit; the error after solving does."
    leaf = comparison.levels[-1]
    known = [
        (row.bin, row.mae)
        for row in comparison.results[leaf, "total"].by_size
        if row.mae is not None
    ]
    if len(known) > 1:
        (few, first), *_, (many, last) = known
        lead += (
            f" At {words(leaf)}, the total of geounits with {few} {comparison.records} is off by "
            f"{text.decimal(first)} on average, that of geounits with {many} by "
            f"{text.decimal(last)}."
        )
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
    table = Table.of("size-table", "Error by geolevel and size of geounit", columns)
    return Section("size", "Error by size of geounit", lead, [table])


def bias_section(comparison: Comparison) -> Section:
    """Return the section on the mean error by size of geounit and by true count."""
    query = "detailed" if "detailed" in comparison.queries else "total"
    kinds = (
        (query, "by_true", "Bias of one cell by true count"),
        ("total", "by_size", "Bias of the total by size of geounit"),
    )
    tables = [bias_table(comparison, *of) for of in kinds]
    lead = prose("bias.lead")
    leaf = comparison.levels[-1]
    by_true = comparison.results[leaf, query].by_true
    known = [(row.bin, row.bias) for row in by_true if row.bias is not None]
    if len(known) > 1:
        (few, first), *_, (many, last) = known
        lead += (
            f" At {words(leaf)}, cells with a true count of {few} move by {text.signed(first)} on "
            f"average, those of {many} by {text.signed(last)}."
        )
    return Section("bias", "Bias", lead, [Row(tables)])


def distribution_section(comparison: Comparison) -> Section:
    """Return the section on the distribution of the absolute error by geolevel."""
    lead = prose("distribution.lead")
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


def households_section(errors: tuple[HouseholdErrors, ...]) -> list[Section]:
    """Tabulate errors of released and of plain counts; no section if only plain counts exist."""
    if not errors:
        return []
    columns = [
        labels("Geolevel", (row.geolevel for row in errors)),
        labels("By", (row.kind for row in errors)),
        labels("Of", (row.label for row in errors)),
        numbers("Answers", (row.answers for row in errors)),
        numbers("Records", (row.records for row in errors), hint="in truth"),
        numbers("Bias", (row.bias for row in errors), text.percent, "released, of the records"),
        numbers("Plain", (row.bias_plain for row in errors), text.percent, "bias without"),
        numbers("Squared error", (row.mse for row in errors), text.decimal, "released, mean"),
        numbers("Plain", (row.mse_plain for row in errors), text.decimal, "squared error without"),
    ]
    lead = prose("households.lead")
    table = Table.of("households", "Errors with and without expected totals", columns)
    return [Section("households", "Housing units as a covariate", lead, [table])]
