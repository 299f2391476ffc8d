"""How far a run is: which outputs of which stages are complete."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from das.errors import OutputError
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.intervals import digest_of
from jobs.pipeline.documents.manifest import (
    CensusManifest,
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
        return is_finalized(release)
    if output.parent in (release.measurements("").parent, release.lazy_measurements("").parent):
        return output in recorded and is_published(output)
    if output == release.ledger:
        return is_begun(output)
    return output.is_file() or is_published(output)


def is_finalized(release: ReleaseLayout) -> bool:
    """Whether the manifest of a product names the datasets that are there."""
    if not release.manifest.is_file():
        return False
    try:
        return _names_all(release, read_manifest(release))
    except OutputError:
        return False  # damaged: written again


def is_census_finalized(resolved: Resolved) -> bool:
    """Return whether all products are finalized, and the release manifest names them."""
    release, products = resolved.release, resolved.products
    if not all(is_finalized(product.release) for product in products.values()):
        return False
    try:
        stated = read_release(release.root)
        if not isinstance(stated, CensusManifest):
            return True
        digests = {name: digest_of(one.release.manifest) for name, one in products.items()}
        return stated.products == digests and _names_all(release, stated)
    except OutputError:
        return False  # missing or damaged: written again


def _names_all(release: ReleaseLayout, manifest: Contents) -> bool:
    """Return whether a manifest names the datasets that are there, but for those of replicates."""
    named = {release.root / output.path: output.sha256 for output in manifest.outputs}
    found = sorted({path.parent for path in release.root.rglob(MANIFEST)})
    there = [one for one in found if release.is_own(one) and not release.is_of_replicates(one)]
    digests = at_once(release.root, dataset_digest, there)
    return dict(zip(there, digests, strict=True)) == named


def count_files(resolved: Resolved) -> tuple[int, int]:
    """(datasets, files) that the manifests of a run folder name."""
    roots = (resolved.release.root, resolved.config.output.roots.confidential)
    found = [path.parent for root in roots for path in root.rglob(MANIFEST)]
    parts = [len(dataset.parts) for dataset in at_once(roots[0], Dataset.open, found)]
    return len(parts), sum(parts)


@dataclass(frozen=True)
class Damage:
    """A dataset that cannot be used as it is.

    Attributes:
      dataset: Its folder.
      error: What is wrong with it.
      redo: Datasets that are made again for it, itself included, of those that are there; none if
        it cannot be.
    """

    dataset: Place
    error: OutputError
    redo: tuple[Place, ...]


def damage_of(resolved: Resolved) -> list[Damage]:
    """Every damaged dataset of a run folder, by the digests of all its files.

    Raises:
      LedgerError: The ledger was tampered with, or is gone though the grant was claimed.
    """
    roots = (resolved.release.root, resolved.config.output.roots.confidential)
    there = {path.parent for root in roots for path in root.rglob(MANIFEST)}
    damages = []
    for product in resolved.products.values():
        spending = spending_of(resolved, product)
        refuse_lost_ledger(spending)
        found = [*lost_measurements(spending), *_lost_counts(product, there)]
        for path in sorted(there, key=str):
            if _owner(resolved, path) is product:
                found += [(path, error) for error in find_damage(path)[:1]]
        for path, error in found:
            redo = _to_redo(product, path)
            made = (*redo, *_tied_to(resolved, redo))
            redone = tuple(other for other in made if other == path or other in there)
            damages.append(Damage(path, error, redone))
    return damages


def _owner(resolved: Resolved, path: Place) -> Product:
    """Return the product in whose folders a dataset lies; the last for what all products share."""
    for product in resolved.products.values():
        roots = (product.release.root, product.confidential.root)
        if any(lies_in(path, root) for root in roots):
            return product
    return resolved.last


def _tied_to(resolved: Resolved, redo: Sequence[Place]) -> list[Place]:
    """What was made of counts that are made again, of products that must agree with them."""
    gone, found = {*redo}, list[Place]()
    for product in resolved.products.values():
        ties = product.plan.limits.ties
        before = [] if ties is None else [resolved.products[name] for name in ties.sizes]
        if gone & {path for other in before for path in _solved(other)}:
            tied = map(product.release.tied, product.plan.spine.levels)
            made = [*tied, *_solved(product), *_outputs(product)]
            gone |= {*made}
            found += made
    return found


def refuse_damage(resolved: Resolved) -> None:
    """Stop before anything is built on a damaged dataset.

    Raises:
      OutputError: A dataset is damaged that can be made again.
      LedgerError: Noisy answers are lost, or the ledger.
    """
    for damage in damage_of(resolved):
        raise damage.error if damage.redo else lost_answers(damage.error)


def repair(resolved: Resolved) -> list[Damage]:
    """Remove the damaged datasets, and what was made of them, so that they are made again.

    Also removes what interrupted steps left; the caller is the only driver.

    Returns:
      What was damaged.

    Raises:
      LedgerError: Noisy answers are lost, or the ledger; nothing was removed.
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
                continue  # without locks, a driver that was believed dead may still publish them
            for left in root.rglob("part-*"):
                if not (is_published(left.parent) or are_proposed(left.parent)):
                    left.unlink(missing_ok=True)
    return damages


def _lost_counts(product: Product, there: Set[Place]) -> list[tuple[Place, OutputError]]:
    """Counts that are gone while counts or outputs that were made of them are there."""
    datasets = _solved(product)
    made = [*datasets, *_outputs(product)]
    lost = []
    for index, dataset in enumerate(datasets):
        if dataset not in there and there & {*made[index + 1 :]}:
            remedy = "`das run` with the run folder makes it again"
            lost.append((dataset, OutputError(str(dataset), "is missing", remedy=remedy)))
    return lost


def _solved(product: Product) -> list[Place]:
    """Datasets of counts, each before those that are made of it."""
    release, levels = product.release, product.plan.spine.levels
    support = [release.support(levels[0])] if product.plan.support else []
    return [*support, *map(release.counts, levels)]


def _outputs(product: Product) -> list[Place]:
    """Datasets that are made of counts."""
    release = product.release
    made = (release.microdata, release.joined)
    written = [folder / name for folder in made for name in MICRODATA]
    plan = product.plan
    return [
        *written,
        *map(release.tables, plan.geolevels),
        *map(release.counts, plan.off_spine),
    ]


def _to_redo(product: Product, dataset: Place) -> tuple[Place, ...]:
    """What to make again for a damaged dataset; nothing for noisy answers.

    Counts are made again with all that was solved from them, so that the tree adds up even where
    another machine solves a node otherwise; and with all others if the failsafe moved parents,
    whose counts were solved before they were moved.
    """
    release = product.release
    if dataset.parent in (release.measurements("").parent, release.lazy_measurements("").parent):
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
        return bool(dataset.facts.get(HOLDS)) or bool(statistics_of(dataset).moved)
    except (OutputError, KeyError):
        return True  # not known
