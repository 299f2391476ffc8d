"""The reports of a finished run, written from its manifests and evaluations."""

from __future__ import annotations

from pathlib import Path

from jobs.documents.document import read_document
from jobs.documents.evaluation import Evaluation
from jobs.documents.manifest import read_manifest
from jobs.documents.summary import read_summary
from jobs.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    confidential_layout,
    release_layout,
)


def finished_products(
    out: Path, solution: str | None = None
) -> list[tuple[ReleaseLayout, ConfidentialLayout]]:
    """Where the sealed products of a run folder, or of a solution of it, lie, the last first."""
    release, confidential = release_layout(out, solution), confidential_layout(out, solution)
    others = release.sealed_products
    return [
        (release, confidential),
        *((release.product(n), confidential.product(n)) for n in others),
    ]


def write_public_reports(out: Path, solution: str | None = None) -> list[Path]:
    """Write the public reports of a finished run, or of a solution of it, from its manifests.

    Returns:
      The files written.
    """
    from jobs.report.public import write_public_report  # draws plots: slow to import

    written = []
    for release, _ in finished_products(out, solution):
        write_public_report(read_manifest(release), release.report)
        written.append(release.report)
    return written


def write_internal_reports(out: Path, solution: str | None = None) -> list[Path]:
    """Write the internal reports of what was evaluated of a finished run, or of a solution of it.

    Returns:
      The files written.
    """
    from jobs.report.internal import write_internal_report

    written = []
    costs = costs_folder(out, solution)
    for release, confidential in finished_products(out, solution):
        manifest = read_manifest(release)
        if confidential.evaluation.exists():
            evaluation = read_document(
                Evaluation, confidential.evaluation, remedy="run `das evaluate`"
            )
            report = confidential.report
            write_internal_report(manifest, evaluation, read_summary(costs), report)
            written.append(confidential.report)
    return written


def costs_folder(out: Path, solution: str | None) -> Path:
    """Folder of the summary of what a run, or a solution of it, cost."""
    return out if solution is None else confidential_layout(out, solution).compared
