"""The progress of a run: complete, missing and damaged outputs of each stage."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from das.errors import OutputError
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.intervals import digest_of
from jobs.pipeline.documents.manifest import (
    Contents,
    read_manifest,
    read_release,
)
from jobs.pipeline.documents.statistics import HOLDS, statistics_of
from jobs.pipeline.folder.draws import lost_answers
from jobs.pipeline.folder.spending import lost_measurements, refuse_lost_ledger, spending_of
from jobs.pipeline.job import Stage
from jobs.pipeline.storage.dataset import (
    MANIFEST,
    Dataset,
    are_proposed,
    dataset_digest,
    find_damage,
    is_published,
    remove_dataset,
)
from jobs.pipeline.storage.journal import is_begun
from jobs.pipeline.storage.layout import MICRODATA, EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.ledger import recorded_draws
from jobs.pipeline.storage.place import Place, StoredPlace, at_once, lies_in


@dataclass(frozen=True)
class StageProgress:
    """The progress of a stage of a product.

    Attributes:
      product: Name of the product.
      stage: Name of the stage.
      done: Number of complete outputs.
      outputs: Number of all outputs.
    """

    product: str
    stage: str
    done: int
    outputs: int

    @property
    def is_complete(self) -> bool:
        """Return whether all outputs are complete."""
        return self.done == self.outputs


def stage_progress(stages: Sequence[Stage], resolved: Resolved) -> list[StageProgress]:
    """Return the progress of every stage of every product, in the order of work.

    Stages without outputs for a product are omitted.
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
    """Return whether an output is final; `recorded` are the measurements in the ledger."""
    release = product.release
    if output == release.manifest:
        return is_finalized(release)
    if output.parent in (release.folder("measurements"), release.folder("lazy_measurements")):
        return output in recorded and is_published(output)
    if output == release.ledger:
        return is_begun(output)
    return output.is_file() or is_published(output)


def is_finalized(release: ReleaseLayout) -> bool:
    """Return whether a product is finalized: its manifest lists exactly its existing datasets.

    The digests of the datasets must match, too. Replicates are not compared. A missing or damaged
    manifest counts as not finalized.

    Args:
      release: Places of the product.
    """
    try:
        return release.manifest.is_file() and _names_all(release, read_manifest(release))
    except OutputError:
        return False  # a damaged manifest is written again


def is_census_finalized(resolved: Resolved) -> bool:
    """Return whether all products are finalized, and the release names their current manifests."""
    release, products = resolved.release, resolved.products
    if not all(is_finalized(product.release) for product in products.values()):
        return False
    try:
        stated = read_release(release.root)
        digests = {name: digest_of(p.release.manifest) for name, p in products.items()}
        return stated.products == digests and _names_all(release, stated)
    except OutputError:
        return False  # missing or damaged: written again


def _names_all(release: ReleaseLayout, manifest: Contents) -> bool:
    """Return whether a manifest names exactly the existing datasets."""
    named = {release.root / output.path: output.sha256 for output in manifest.outputs}
    datasets = sorted(
        folder
        for folder in {path.parent for path in release.root.rglob(MANIFEST)}
        if release.is_own(folder)
    )
    digests = at_once(release.root, dataset_digest, datasets)
    return dict(zip(datasets, digests, strict=True)) == named


def count_files(resolved: Resolved) -> tuple[int, int]:
    """Return the numbers of datasets and of files that the manifests of a run folder name."""
    roots = (resolved.release.root, resolved.config.output.roots.confidential)
    folders = [path.parent for root in roots for path in root.rglob(MANIFEST)]
    parts = [len(dataset.parts) for dataset in at_once(roots[0], Dataset.open, folders)]
    return len(parts), sum(parts)


@dataclass(frozen=True)
class Damage:
    """A damaged or missing dataset.

    Attributes:
      dataset: Folder of the dataset.
      error: Description of the damage.
      redo: Existing datasets that must be rebuilt, including the damaged one; empty if it cannot
        be rebuilt.
    """

    dataset: Place
    error: OutputError
    redo: tuple[Place, ...]


def damage_of(resolved: Resolved) -> list[Damage]:
    """Find the damaged datasets of a run folder, by the digests of all files.

    Raises:
      LedgerError: The ledger was altered, or is gone though the grant was claimed.
    """
    roots = (resolved.release.root, resolved.config.output.roots.confidential)
    there = {path.parent for root in roots for path in root.rglob(MANIFEST)}
    damages = []
    for product in resolved.products.values():
        spending = spending_of(resolved, product)
        refuse_lost_ledger(spending)
        lost = [*lost_measurements(spending), *_lost_counts(product, there)]
        for path in sorted(there, key=str):
            if _owner(resolved, path) is product:
                lost += [(path, error) for error in find_damage(path)[:1]]
        for path, error in lost:
            redo = _to_redo(product, path)
            made = (*redo, *_tied_to(resolved, redo))
            redone = tuple(other for other in made if other == path or other in there)
            damages.append(Damage(path, error, redone))
    return damages


def _owner(resolved: Resolved, path: Place) -> Product:
    """Return the product of a dataset; the last product for datasets shared by all."""
    for product in resolved.products.values():
        roots = (product.release.root, product.confidential.root)
        if any(lies_in(path, root) for root in roots):
            return product
    return resolved.last


def _tied_to(resolved: Resolved, redo: Sequence[Place]) -> list[Place]:
    """List datasets of later products that depend on rebuilt counts of earlier ones."""
    gone, tied_datasets = {*redo}, list[Place]()
    for product in resolved.products.values():
        ties = product.plan.limits.ties
        before = [] if ties is None else [resolved.products[name] for name in ties.sizes]
        if gone & {path for other in before for path in _solved(other)}:
            tied = map(product.release.tied, product.plan.spine.levels)
            made = [*tied, *_solved(product), *_outputs(product)]
            gone |= {*made}
            tied_datasets += made
    return tied_datasets


def refuse_damage(resolved: Resolved) -> None:
    """Raise an error for the first damaged dataset.

    Raises:
      OutputError: A dataset is damaged and can be rebuilt.
      LedgerError: Noisy answers or the ledger are lost.
    """
    for damage in damage_of(resolved):
        raise damage.error if damage.redo else lost_answers(damage.error)


def repair(resolved: Resolved) -> list[Damage]:
    """Remove damaged datasets and all that depend on them, so that they are rebuilt.

    Also removes files of interrupted tasks; the caller must be the only driver.

    Returns:
      The damaged datasets.

    Raises:
      LedgerError: Noisy answers or the ledger are lost; nothing was removed.
    """
    damages = damage_of(resolved)
    for damage in damages:
        if not damage.redo:
            raise lost_answers(damage.error)
    for path in dict.fromkeys(path for damage in damages for path in damage.redo):
        remove_dataset(path)
    for product in resolved.products.values():
        for root in (product.release.root, product.confidential.root):
            if isinstance(root, StoredPlace):
                continue  # without file locks, a driver believed dead may still publish them
            for left in root.rglob("part-*"):
                if not (is_published(left.parent) or are_proposed(left.parent)):
                    left.unlink(missing_ok=True)
    return damages


def _lost_counts(product: Product, there: Set[Place]) -> list[tuple[Place, OutputError]]:
    """List missing counts from which existing counts or outputs were made."""
    datasets = _solved(product)
    made = [*datasets, *_outputs(product)]
    remedy = "`das run` with the run folder makes it again"
    return [
        (dataset, OutputError(str(dataset), "is missing", remedy=remedy))
        for index, dataset in enumerate(datasets)
        if dataset not in there and there & {*made[index + 1 :]}
    ]


def _solved(product: Product) -> list[Place]:
    """Return the datasets of counts, each before those that are made from it."""
    release, levels = product.release, product.plan.spine.levels
    support = [release.support(levels[0])] if product.plan.support else []
    return [*support, *map(release.counts, levels)]


def _outputs(product: Product) -> list[Place]:
    """Return the datasets made from solved counts: microdata, tables and counts off the spine."""
    release, plan = product.release, product.plan
    return [
        *(folder / name for folder in (release.microdata, release.joined) for name in MICRODATA),
        *map(release.tables, plan.geolevels),
        *map(release.counts, plan.off_spine),
    ]


def _to_redo(product: Product, dataset: Place) -> tuple[Place, ...]:
    """Return the datasets to rebuild for a damaged one; none for noisy answers.

    Counts are rebuilt with all counts solved from them, so that the tree adds up even if another
    machine rounds a node differently. If the failsafe moved records of parents, all counts are
    rebuilt, since the moves came after solving.
    """
    release = product.release
    if dataset.parent in (release.folder("measurements"), release.folder("lazy_measurements")):
        return ()
    estimates = EstimateLayout.of(release)
    if dataset.parent == estimates.whole("").parent:
        return (dataset, estimates.tables(dataset.name.removeprefix("level=")))
    solved = _solved(product)
    counts = solved[-len(product.plan.spine.levels) :]
    if dataset in solved:
        is_moved = dataset in counts and any(_holds_moves(path) for path in counts)
        first = solved.index(counts[0] if is_moved else dataset)
        return (*solved[first:], *_outputs(product))
    return (dataset,)


def _holds_moves(counts: Place) -> bool:
    if not is_published(counts):
        return False
    try:
        dataset = Dataset.open(counts)
        return bool(dataset.facts.get(HOLDS) or statistics_of(dataset).moved)
    except (OutputError, KeyError):
        return True  # unknown, so assume moves
