"""How far a run is: which outputs of which stages are complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from das.errors import OutputError
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.job import Stage
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, dataset_digest, is_published
from jobs.pipeline.storage.journal import is_begun
from jobs.pipeline.storage.layout import ReleaseLayout, is_of_replicates
from jobs.pipeline.storage.ledger import recorded_draws
from jobs.pipeline.storage.place import Place, at_once


@dataclass(frozen=True)
class StageProgress:
    """How far a stage of a product came.

    Attributes:
      product: Name of the product.
      stage: Name of the stage.
      done: Outputs it has completed.
      outputs: Those it completes in all.
    """

    product: str
    stage: str
    done: int
    outputs: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.done == self.outputs


def stage_progress(stages: Sequence[Stage], resolved: Resolved) -> list[StageProgress]:
    """How far every stage of every product came, in the order of work.

    Stages that make nothing of a product, such as exact answers where there are no invariants, are
    omitted.
    """
    progress = []
    for product in resolved.products.values():
        ledger = product.release.ledger
        recorded = {*recorded_draws(product.release)} if is_begun(ledger) else set()
        for stage in stages:
            outputs = stage.outputs(product)
            done = sum(_is_complete(product, path, recorded) for path in outputs)
            if outputs:
                progress.append(StageProgress(product.name, stage.name, done, len(outputs)))
    return progress


def _is_complete(product: Product, output: Place, recorded: set[Place]) -> bool:
    """Whether an output is as it will stay; `recorded` are the measurements in the ledger."""
    release = product.release
    if output == release.manifest:
        return is_sealed(release)
    if output.parent in (release.measurements("").parent, release.lazy_measurements("").parent):
        return output in recorded and is_published(output)
    if output == release.ledger:
        return is_begun(output)
    return output.is_file() or is_published(output)


def is_sealed(release: ReleaseLayout) -> bool:
    """Whether the manifest of the release names the datasets that are there."""
    if not release.manifest.is_file():
        return False
    try:
        outputs = read_manifest(release).outputs
        named = {release.root / output.path: output.sha256 for output in outputs}
    except OutputError:
        return False  # damaged: written again
    found = sorted({path.parent for path in release.root.rglob(MANIFEST)})
    there = [dataset for dataset in found if not is_of_replicates(dataset, release.root)]
    digests = at_once(release.root, dataset_digest, there)
    return dict(zip(there, digests, strict=True)) == named


def count_files(resolved: Resolved) -> tuple[int, int]:
    """(datasets, files) that the manifests of a run folder name."""
    last = resolved.last  # the folders of the others lie within its own
    roots = (last.release.root, last.confidential.root)
    found = [path.parent for root in roots for path in root.rglob(MANIFEST)]
    parts = [len(dataset.parts) for dataset in at_once(roots[0], Dataset.open, found)]
    return len(parts), sum(parts)
