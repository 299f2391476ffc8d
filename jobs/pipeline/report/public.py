"""Public report: released data, guarantee, and errors estimated from replicates."""

from __future__ import annotations

from collections.abc import Sequence

from das.privacy.neighborhoods import Comparable
from das.privacy.semantics import Change
from jobs.pipeline.documents.intervals import Intervals
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.language import prose, tr
from jobs.pipeline.neighborhoods import (
    FROM_DATA,
    NOT_PROTECTED,
    explained,
    relation_words,
    statement_words,
)
from jobs.pipeline.report.accuracy import Accuracy, accuracy_section, intervals_section
from jobs.pipeline.report.budget import (
    Spending,
    budget_section,
    exact_section,
    guarantee_section,
    noise_section,
    person_remark,
    products_sections,
    statements_table,
)
from jobs.pipeline.report.datasets import census_files, described, example, files_section
from jobs.pipeline.report.groups import expected_section
from jobs.pipeline.report.page import Page, Section, write_report
from jobs.pipeline.report.run import run_section, solving_section
from jobs.pipeline.report.text import words
from jobs.pipeline.report.tiles import banners, facts, tiles
from jobs.pipeline.storage.files import READABLE
from jobs.pipeline.storage.place import Place


def write_public_report(
    manifest: Manifest,
    out: Place,
    intervals: Intervals | None = None,
    accuracy: Accuracy | None = None,
    *,
    of: Sequence[Manifest] = (),
    remedy: str | None = None,
) -> None:
    """Write the public report as one self-contained HTML file.

    Args:
      manifest: Manifest of the release.
      out: The file; replaced at once.
      intervals: Errors and intervals from replicates; None without replicates.
      accuracy: Half widths of the intervals of estimates; None without estimates.
      of: The manifests of all products of the release.
      remedy: Remedy in the error if the file cannot be written; default: it depends on the cause.

    Raises:
      OutputError: The file cannot be written.
    """
    spending = Spending.of(manifest)
    page = Page(
        tr("Release report"),
        manifest.name,
        prose("report.summary"),
        facts(manifest),
        banners(manifest),
        tiles(manifest, accuracy),
        [
            privacy_section(manifest),
            *([accuracy_section(manifest, accuracy)] if accuracy else []),
            *([intervals_section(manifest, intervals)] if intervals else []),
            *products_sections(manifest, of),
            budget_section(spending),
            noise_section(spending),
            *([expected_section(manifest)] if manifest.expected_groups else []),
            exact_section(manifest),
            census_files_section(manifest),
            solving_section(manifest.solve),
            run_section(manifest),
        ],
        manifest.records,
    )
    write_report(page, out, mode=READABLE, remedy=remedy)


def privacy_section(manifest: Manifest) -> Section:
    """Return the section on the guarantee, and on what is not protected."""
    privacy = manifest.privacy
    values = {
        "derived": tr("counts, tables and microdata"),
        "sources": tr("the measurements, the invariants and public information"),
        "person": person_remark(manifest),
        "invariants": [row.query for row in manifest.invariants],
        "limits": [f"{tr(limit.kind)} {words(limit.name)}" for limit in manifest.limits],
        "neighborhood": relation_words(privacy.neighbors, privacy.neighborhood),
        "epsilon_by_noise": privacy.epsilon_by_noise,
        "nearest": explained(privacy.nearest, privacy),
        "is_void": privacy.neighborhood.comparable is Comparable.NONE,
        "protected": _statements(manifest, {Comparable.ALL, Comparable.SOME}),
        "unprotected": _statements(manifest, {Comparable.NONE}),
        "geounits_from_data": manifest.geounits_source == FROM_DATA,
        "open_sessions": manifest.open_sessions,
    }
    accounts = (manifest.account, manifest.together)
    statements = statements_table(manifest.statements, privacy.definition)
    return guarantee_section(manifest, "privacy.html.j2", values, [statements], *accounts)


def _statements(manifest: Manifest, comparable: set[Comparable]) -> list[str]:
    """List a sentence for each attribute or place whose neighbors are comparable as given."""
    sentences = []
    for statement in manifest.statements:
        if statement.change is Change.RECORD or statement.comparable not in comparable:
            continue
        sentence = {
            Change.HOUSEHOLD: "A household of at most {name} persons, as a whole",
            Change.ATTRIBUTE: "What a record says of {name}",
            Change.WITHIN: "The place of a record within one {name}",
        }[statement.change]
        what = tr(sentence, name=words(statement.name))
        limits = statement_words(statement).removeprefix(tr(NOT_PROTECTED, reason=""))
        sentences.append(f"{what}: {limits}." if limits else f"{what}.")
    return sentences


def census_files_section(manifest: Manifest) -> Section:
    """Return the section on the files of a census release and how to read them."""
    values = {
        "datasets": described(manifest),
        "files": census_files(manifest),
        "example": example(manifest),
        "remark": prose("files.geocodes"),
    }
    return files_section(manifest.outputs, values)
