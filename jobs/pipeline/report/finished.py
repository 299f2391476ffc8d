"""The reports of a finished run, written from its manifests and evaluations."""

from __future__ import annotations

from jobs.pipeline.documents.document import read_document
from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.documents.intervals import read_intervals
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.documents.summary import read_summary
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.layout import (
    ConfidentialLayout,
    IntervalLayout,
    ReleaseLayout,
    Roots,
    confidential_layout,
    product_confidential,
    product_release,
    release_layout,
)
from jobs.pipeline.storage.place import Place, names_below


def _products(release: ReleaseLayout) -> list[str | None]:
    """Names of the products of a release by their folders, None for the last, which comes first.

    What merely lies in the folder is no product: reports are written into folders of products.
    """
    return [None, *sorted(read_manifest(release).products or {})]


def write_public_reports(
    whole: ReleaseLayout, to: Place | None = None, *, remedy: str | None = None
) -> list[Place]:
    """Write the public reports of a release from its manifests; nothing else is read.

    Args:
      whole: The release, or a solution beside it, wherever it lies.
      to: Folder for them; default: the release itself. Those of other products lie below it where
        they lie below the release.
      remedy: What to do if one cannot be written; default: see to the disk.

    Returns:
      The files written.

    Raises:
      OutputError: The release cannot be read, a file cannot be written, or is no report.
    """
    from jobs.pipeline.report.accuracy import read_accuracy
    from jobs.pipeline.report.public import write_public_report  # draws plots: slow to import

    releases = [whole.beside(name) for name in _products(whole)]
    files = [release.report for release in releases]
    if to is not None:
        files = [to / names_below(file, whole.root).as_posix() for file in files]
        for file in files:
            refuse_foreign(file, b"<!DOCTYPE html>", "a report, which is replaced")
    for release, file in zip(releases, files, strict=True):
        intervals = read_intervals(IntervalLayout.of(release).document, release.manifest)
        manifest = read_manifest(release)
        accuracy = read_accuracy(release, manifest.geography)
        write_public_report(manifest, file, intervals, accuracy, remedy=remedy)
    return files


def write_internal_reports(roots: Roots, solution: str | None = None) -> list[Place]:
    """Write the internal reports of what was evaluated of a finished run, or of a solution of it.

    Returns:
      The files written.
    """
    from jobs.pipeline.report.internal import write_internal_report

    written = []
    costs, out = costs_folder(roots, solution), roots.out
    for name in _products(release_layout(out, solution)):
        confidential = product_confidential(roots, solution, name)
        evaluation = _evaluation(confidential)
        if evaluation is not None:
            first = product_confidential(roots, None, name)
            write_internal_report(
                read_manifest(product_release(out, solution, name)),
                evaluation,
                read_summary(costs),
                confidential.report,
                beside=None if solution is None else _evaluation(first),
            )
            written.append(confidential.report)
    return written


def _evaluation(confidential: ConfidentialLayout) -> Evaluation | None:
    """Of a product, if it was evaluated."""
    path = confidential.evaluation
    return read_document(Evaluation, path, remedy="run `das evaluate`") if path.exists() else None


def costs_folder(roots: Roots, solution: str | None) -> Place:
    """Folder of the summary of what a run, or a solution of it, cost."""
    return roots.out if solution is None else confidential_layout(roots, solution).compared
