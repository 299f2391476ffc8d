"""Public report: what was released, under which guarantee. Made from the manifest alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.report import text
from jobs.report.budget import (
    account_table,
    budget_section,
    noise_section,
    statements_table,
)
from jobs.report.datasets import described, example, other_files
from jobs.report.headline import banners, facts, part, records, rows, tiles, words
from jobs.report.operations import exact_section, files_table, run_section, solver_section
from jobs.report.page import Block, Page, Prose, Section, TableBlock
from jobs.report.products import products_sections
from jobs.report.render import render
from jobs.storage.files import replace_file
from jobs.storage.modes import READABLE

_SUMMARY = (
    "What this release contains, what its privacy guarantee covers, and how large the noise in "
    "its measurements is. Computed from public information alone."
)


def write_public_report(manifest: Mapping[str, Any], out: Path) -> None:
    """Write the public report as one self-contained HTML file.

    Args:
      manifest: The release manifest; a missing key is shown as not recorded, an unknown key is
        never shown.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    page = Page(
        "Release report",
        str(manifest.get("name") or "Unnamed run"),
        _SUMMARY,
        facts(manifest),
        banners(manifest),
        tiles(manifest),
        [
            privacy_section(manifest),
            *products_sections(manifest),
            budget_section(manifest),
            noise_section(manifest),
            exact_section(manifest),
            files_section(manifest),
            solver_section(manifest),
            run_section(manifest),
        ],
        records(manifest),
    )
    replace_file(out, render("page.html.j2", {"page": page}), mode=READABLE)


def privacy_section(manifest: Mapping[str, Any]) -> Section:
    """The guarantee, and what is and is not protected."""
    privacy = part(manifest, "privacy")
    values = {
        "void": bool(manifest.get("not_for_release")),
        "recorded": bool(privacy),
        "definition": privacy.get("definition"),
        "total": str(privacy.get("total") or text.NOT_RECORDED),
        "total_value": text.decimal(text.ratio(privacy.get("total"))),
        "epsilon": text.upward(privacy.get("epsilon")),
        "epsilon_simple": text.upward(privacy.get("epsilon_simple")),
        "delta": text.small(privacy.get("delta")),
        "neighbors": privacy.get("neighbors"),
        "invariants": [str(row.get("query")) for row in rows(manifest, "invariants")],
        "limits": [
            f"{words(row.get('kind'))} {words(row.get('name'))}" for row in rows(manifest, "limits")
        ],
        "neighborhood": str(part(privacy, "neighborhood").get("in_words") or ""),
        "is_void": part(privacy, "neighborhood").get("comparable") == "none",
        "protected": _statements(manifest, {"all", "some"}),
        "unprotected": _statements(manifest, {"none"}),
        "randomness": privacy.get("randomness"),
        "geounits_from_data": manifest.get("geounits_source") == "data",
        "open_sessions": [str(name) for name in manifest.get("open_sessions") or []],
    }
    lead = (
        "The guarantee limits what anyone can learn about one record from this release, whatever "
        "else they know and however much they compute."
    )
    blocks: list[Block] = [Prose("privacy.html.j2", values)]
    if manifest.get("statements"):
        blocks.append(TableBlock(statements_table(manifest)))
    if manifest.get("account"):
        blocks.append(TableBlock(account_table(part(manifest, "account"))))
    return Section("privacy", "Privacy", lead, blocks)


def _statements(manifest: Mapping[str, Any], comparable: set[str]) -> list[str]:
    """Attributes and places of which the invariants leave this much, as sentences."""
    out = []
    for row in rows(manifest, "statements"):
        if row.get("change") == "record" or row.get("comparable") not in comparable:
            continue
        called = words(row.get("name"))
        what = {
            "attribute": f"What a record says of {called}",
            "within": f"The place of a record within one {called}",
        }.get(str(row.get("change")), called)
        limits = str(row.get("in_words") or "").removeprefix("not protected: ")
        out.append(f"{what}: {limits}." if limits else f"{what}.")
    return out


def files_section(manifest: Mapping[str, Any]) -> Section:
    """Every file and how to read it."""
    lead = "All tables are Parquet or CSV; every dataset names its files and their digests."
    values = {
        "datasets": described(manifest),
        "files": other_files(manifest),
        "example": example(manifest),
    }
    blocks: list[Block] = [Prose("files.html.j2", values), TableBlock(files_table(manifest))]
    return Section("files", "Files and how to read them", lead, blocks)
