"""Internal report: the release against the truth. Confidential."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.documents.summary import Summary
from jobs.pipeline.report.budget import Spending, budget_section, products_sections
from jobs.pipeline.report.comparison import (
    Comparison,
    bias_section,
    changed_section,
    distribution_section,
    error_section,
    households_section,
    kept_tile,
    size_section,
)
from jobs.pipeline.report.exact import exact_section
from jobs.pipeline.report.groups import changes_section, groups_section
from jobs.pipeline.report.page import Banner, Page, Prose, Section, write_report
from jobs.pipeline.report.run import run_section, solving_section
from jobs.pipeline.report.tiles import banners, facts, run_time_tile, tiles
from jobs.pipeline.storage.place import Place

CONFIDENTIAL = Banner(
    "secret",
    "CONFIDENTIAL: compares with the truth",
    "This page is computed from confidential records without any protection. Never publish it, "
    "and give it only to those who may see the records themselves.",
)
_SUMMARY = (
    "How far the released counts lie from the truth, where the error is large and where it leans "
    "to one side, next to the noise that privacy asked for."
)


def write_internal_report(
    manifest: Manifest,
    evaluation: Evaluation,
    summary: Summary,
    out: Place,
    *,
    of: Sequence[Manifest] = (),
    of_release: Evaluation | None = None,
) -> None:
    """Write the internal report as one self-contained HTML file, readable by its owner only.

    Args:
      manifest: Of the release.
      evaluation: Of the release against the truth.
      summary: What the run cost.
      out: The file; replaced at once.
      of: The manifests of all products of the release.
      of_release: Evaluation of the release, if this page is about a named solution.

    Raises:
      OutputError: It cannot be written.
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
            *([changes_section(of_release, evaluation)] if of_release else []),
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
    """Say what the numbers of an internal report mean."""
    lead = "What every number on this page means."
    return Section("definitions", "Definitions", lead, [Prose(template)])
