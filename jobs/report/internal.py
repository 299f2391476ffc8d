"""Internal report: the release against the truth. Confidential."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.documents.summary import Summary
from jobs.report.budget import budget_section
from jobs.report.comparison import Comparison, changed_section, error_section, kept_tile
from jobs.report.headline import banners, facts, records, run_time_tile, tiles
from jobs.report.operations import exact_section, run_section, solver_section
from jobs.report.page import Banner, Page, Prose, Section
from jobs.report.products import products_sections
from jobs.report.render import render
from jobs.report.shape import bias_section, distribution_section, size_section
from jobs.storage.files import replace_file

CONFIDENTIAL = Banner(
    "secret",
    "CONFIDENTIAL: compares with the truth",
    "This page is computed from confidential records without any protection. Never publish it, "
    "and give it only to those who may see the records themselves.",
)
DEFINITIONS = Section(
    "definitions",
    "Definitions",
    "What every number on this page means.",
    [Prose("definitions.html.j2")],
)
_SUMMARY = (
    "How far the released counts lie from the truth, where the error is large and where it leans "
    "to one side, next to the noise that privacy asked for."
)


def write_internal_report(
    manifest: Mapping[str, Any], evaluation: Mapping[str, Any], summary: Summary, out: Path
) -> None:
    """Write the internal report as one self-contained HTML file, readable by its owner only.

    Args:
      manifest: The release manifest; a missing key is shown as not recorded.
      evaluation: What `jobs.confidential.evaluate.evaluate` returned; any key may be missing.
      summary: What the run cost.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    comparison = Comparison.build(manifest, evaluation)
    page = Page(
        "Internal evaluation",
        str(manifest.get("name") or "Unnamed run"),
        _SUMMARY,
        facts(manifest),
        [CONFIDENTIAL, *banners(manifest)],
        [
            kept_tile(manifest, comparison) if tile.label == "Invariants" else tile
            for tile in [*tiles(manifest), run_time_tile(manifest, summary)]
        ],
        [
            *products_sections(manifest),
            error_section(comparison),
            size_section(comparison),
            bias_section(comparison),
            distribution_section(comparison),
            changed_section(comparison),
            budget_section(manifest),
            exact_section(manifest),
            solver_section(manifest),
            run_section(manifest, summary),
            DEFINITIONS,
        ],
        records(manifest),
    )
    replace_file(out, render("page.html.j2", {"page": page}))
