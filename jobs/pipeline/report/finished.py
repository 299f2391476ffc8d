"""The reports of a finished run, written from its manifests and evaluations."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.pipeline.documents.document import read_document
from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.documents.intervals import read_intervals
from jobs.pipeline.documents.manifest import Manifest, read_manifest, read_release
from jobs.pipeline.documents.summary import read_summary
from jobs.pipeline.language import spoken
from jobs.pipeline.report.datasets import with_shared
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    Roots,
    census_release,
    confidential_layout,
    release_folder,
)
from jobs.pipeline.storage.place import Place, names_below


@dataclass(frozen=True)
class _Finalized:
    """A product of a finished release.

    Attributes:
      release: Paths of the product.
      manifest: Manifest of the product, with the datasets and files that all products share.
    """

    release: ReleaseLayout
    manifest: Manifest


def _finalized(root: Place) -> dict[str, _Finalized]:
    """Read the products of a finished release by name, in the order of work.

    Only what the manifest names is a product: reports are written into folders of products.
    """
    whole = read_release(root)
    layout, found = census_release(root, whole.names), dict[str, _Finalized]()
    for name in whole.names:
        release = layout.product(name)
        manifest = with_shared(read_manifest(release), whole.outputs, whole.files)
        found[name] = _Finalized(release, manifest)
    return found


def write_public_reports(
    root: Place, to: Place | None = None, *, remedy: str | None = None
) -> list[Place]:
    """Write the public reports of a release from its manifests; nothing else is read.

    Args:
      root: Folder of the release, or of a named solution.
      to: Folder for the reports; default: the release itself. Subfolders are as in the release.
      remedy: What to do if one cannot be written; default: see to the disk.

    Returns:
      The written files, first the report of the last product.

    Raises:
      OutputError: The release cannot be read, a file cannot be written, or is no report.
    """
    from jobs.pipeline.report.accuracy import read_accuracy
    from jobs.pipeline.report.public import write_public_report  # draws plots: slow to import

    products = [*_finalized(root).values()]
    manifests = [one.manifest for one in products]
    products.reverse()
    files = [one.release.report for one in products]
    if to is not None:
        files = [to / names_below(file, root).as_posix() for file in files]
        for file in files:
            refuse_foreign(file, b"<!DOCTYPE html>", "a report, which is replaced")
    for one, file in zip(products, files, strict=True):
        shown = one.manifest
        intervals = read_intervals(one.release, shown.levels[-1])
        accuracy = read_accuracy(one.release, shown.geography)
        with spoken(shown.language):
            write_public_report(shown, file, intervals, accuracy, of=manifests, remedy=remedy)
    return files


def write_internal_reports(roots: Roots, solution: str | None = None) -> list[Place]:
    """Write the internal reports of the evaluated products of a finished run or solution.

    Returns:
      The written files, first the report of the last product.
    """
    from jobs.pipeline.report.internal import write_internal_report

    written, costs = [], costs_folder(roots, solution)
    products = _finalized(release_folder(roots.out, solution))
    folders = census_release(release_folder(roots.out), [*products]).folders
    manifests = [one.manifest for one in products.values()]
    for name, one in reversed(products.items()):
        confidential = confidential_layout(roots, solution, folders[name])
        evaluation = _evaluation(confidential)
        if evaluation is not None:
            write_internal_report(
                one.manifest,
                evaluation,
                read_summary(costs),
                confidential.report,
                of=manifests,
            )
            written.append(confidential.report)
    return written


def _evaluation(confidential: ConfidentialLayout) -> Evaluation | None:
    """Read the evaluation of a product, such as persons or units; return None if none is made.

    Raises:
      OutputError: The evaluation cannot be read or is damaged.
    """
    path = confidential.evaluation
    return read_document(Evaluation, path, remedy="run `das evaluate`") if path.exists() else None


def costs_folder(roots: Roots, solution: str | None) -> Place:
    """Return the folder with the summary of the costs of a run, or of a named solution."""
    return roots.out if solution is None else confidential_layout(roots, solution).compared
