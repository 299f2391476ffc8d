"""Going on with the run of a folder: whose it is, what is done, what is damaged, and what to redo.

A dataset is damaged if a file that its manifest names is missing or has another digest, or if it is
gone while something that was made of it is there. All but the noisy answers follow from the input
and from them, so a damaged dataset is removed, with what was solved from it, and its step is done
again without new noise. Lost noisy answers stay lost: the budget was spent on them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from das.errors import ConfigError, LedgerError, OutputError
from jobs.config.load import account_of, load_run
from jobs.config.product import Product, Resolved
from jobs.documents.statistics import statistics_of
from jobs.release.moves import HOLDS
from jobs.storage.account import read_account
from jobs.storage.dataset import (
    MANIFEST,
    PROPOSED,
    Dataset,
    dataset_digest,
    find_damage,
    is_proposed,
    is_published,
)
from jobs.storage.files import read_json, write_json
from jobs.storage.layout import EstimateLayout, ReleaseLayout, release_layout
from jobs.storage.ledger import read_ledger

_PATIENCE = 10.0  # seconds that a driver that was just killed is given to end
_STATED = ("run_file", "configuration_files")


@dataclass(frozen=True)
class Damage:
    """A dataset that cannot be used as it is.

    Attributes:
      dataset: Its folder.
      error: What is wrong with it.
      redo: Datasets that are made again for it, itself included; none if it cannot be.
    """

    dataset: Path
    error: OutputError
    redo: tuple[Path, ...]


@dataclass(frozen=True)
class StageProgress:
    """How far a stage of a product came.

    Attributes:
      product: Name of the product.
      stage: Name of the stage.
      done: Datasets or files it has completed.
      wanted: Those it completes in all.
    """

    product: str
    stage: str
    done: int
    wanted: int


# --- whose folder it is --------------------------------------------------------------------------


def stated_configuration(resolved: Resolved) -> dict[str, object]:
    """What a run folder remembers of its run file: where it is, and digests of what it names."""
    products = resolved.config.products.values()
    files = [resolved.source.resolve()]
    files += [
        path for product in products for path in (product.schema_, product.privacy.allocation)
    ]
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return dict(zip(_STATED, (str(resolved.source.resolve()), digests), strict=True))


def load_again(
    out: Path, config: Path | None, master: str | None, solution: str | None = None
) -> Resolved:
    """Load the run file of a run folder.

    Args:
      out: The run folder.
      config: Where the run file is now; default: where it was.
      master: Replaces `runtime.master`.
      solution: Name of a solution beside the release.

    Raises:
      OutputError: It is not the folder of a run.
      ConfigError: The run file is not where it was, or says something else than it said.
    """
    document = read_json(out / "run.json", "give the output.directory of a run")
    source = config or document.get("run_file")
    if source is None or not Path(source).exists():
        raise ConfigError(
            str(source or out / "run.json"),
            "the run file is not where it was" if source else "does not name the run file",
            remedy="say where it is with --config",
        )
    resolved = load_run(Path(source), output=out, master=master, solution=solution)
    if document.get("configuration_digest") != resolved.plan.digest:
        raise ConfigError(
            str(source),
            "is not the configuration that this folder was begun with",
            got=_changed_files(document, resolved) or "another run file",
            want="changes of `solve` and `output` only",
            remedy="undo the change, or choose another output.directory and a new privacy.grant",
        )
    return resolved


def _changed_files(document: dict[str, object], resolved: Resolved) -> str:
    """Which files differ from what they were; empty if that is not known."""
    before, now = document.get("configuration_files"), stated_configuration(resolved)
    seen = now["configuration_files"]
    if not isinstance(before, dict) or not isinstance(seen, dict):
        return ""
    changed = sorted(name for name in {*before, *seen} if before.get(name) != seen.get(name))
    return f"changes in {', '.join(changed)}" if changed else ""


def note_account(out: Path, account: Path) -> None:
    """Remember in which account the grants of a run folder are claimed, before they are.

    Raises:
      LedgerError: They were claimed in another one, which this one is not in a new place: a second
        account knows nothing of the draws of copies of this folder.
    """
    document = read_json(out / "run.json", "remove the folder")
    before = document.get("account")
    if before == str(account):
        return
    if before is not None:
        is_there = Path(before).exists() and not (account.exists() and account.samefile(before))
        if is_there or all(one.run != document["run"] for one in read_account(account)):
            raise LedgerError(
                str(account),
                "is not the account in which the grants of this folder were claimed",
                want=before,
                remedy="name that one under privacy.account, or move it to the new place",
            )
    write_json(out / "run.json", {**document, "account": str(account)})


def has_spent(out: Path, account: Path) -> str | None:
    """What binds a run folder to its configuration; None if another may take it over.

    Args:
      out: The run folder.
      account: The account of the other configuration.
    """
    document = read_json(out / "run.json", "remove the folder")
    if "account" in document or any(one.run == document["run"] for one in read_account(account)):
        return "which claimed its grant"
    root = release_layout(out).root
    measured = [
        *root.rglob(f"measurements/*/{MANIFEST}"),
        *root.rglob(f"measurements/*/{PROPOSED}"),
    ]
    ledgers = [path for path in root.rglob("ledger.jsonl") if path.stat().st_size]
    if measured or any(read_ledger(path).measured for path in ledgers):
        return "which measured the data"
    return None


@contextmanager
def only_driver(out: Path) -> Iterator[None]:
    """Hold a run folder: two drivers at once would remove each other's unpublished files.

    The hold ends with the process, however it ends. Who stops it from the keyboard is told how to
    go on.

    Raises:
      OutputError: Another process works on the folder.
    """
    path = out / "driver.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _is_locked(path, handle):
            if time.monotonic() > deadline:
                raise OutputError(
                    str(out),
                    "another process works on this folder",
                    got=path.read_text(encoding="utf-8").strip() or None,
                    remedy="wait for its end, or end it",
                )
            time.sleep(0.1)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    except KeyboardInterrupt:
        typer.echo(f"das: stopped; nothing is lost, go on with `das resume {out}`", err=True)
        raise
    finally:
        os.close(handle)


def _is_locked(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise OutputError(str(path), "cannot be locked", got=error.strerror) from None
    return True


# --- what is damaged -----------------------------------------------------------------------------


def damage_of(resolved: Resolved) -> list[Damage]:
    """Every damaged dataset of a run folder, by the digests of all its files.

    Raises:
      LedgerError: The ledger was tampered with, or is gone though the grant was claimed.
    """
    found: list[Damage] = []
    *others, _ = resolved.products.values()
    for product in resolved.products.values():
        release = product.release
        _refuse_lost_ledger(resolved, product)
        missing = [*_lost_measurements(product), *_lost_counts(product)]
        roots = [release.root, product.confidential.root]
        paths = sorted(path.parent for root in roots for path in root.rglob(MANIFEST))
        if product is resolved.last:  # the folders of the others lie within
            inner = {
                root for other in others for root in (other.release.root, other.confidential.root)
            }
            paths = [path for path in paths if not inner & {*path.parents}]
        broken = [(path, error) for path in paths for error in find_damage(path)[:1]]
        found += [Damage(p, e, _to_redo(product, p)) for p, e in [*missing, *broken]]
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
    found = damage_of(resolved)
    for damage in found:
        if not damage.redo:
            raise lost_answers(damage.error)
    for path in dict.fromkeys(path for damage in found for path in damage.redo):
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    for product in resolved.products.values():
        for root in (product.release.root, product.confidential.root):
            for left in root.rglob("part-*"):
                if not (is_published(left.parent) or is_proposed(left.parent)):
                    left.unlink(missing_ok=True)
    return found


def lost_answers(error: OutputError) -> LedgerError:
    """What damaged noisy answers are: lost, since nothing may be drawn again."""
    return LedgerError(
        error.where,
        f"{error.what}, and noisy answers are drawn once: the budget was spent on them, and "
        "nothing may be measured again under this grant",
        got=error.got,
        remedy="restore the file from a backup; or give another privacy.grant and "
        "output.directory, and its cost is added to what the same people have lost",
    )


def _refuse_lost_ledger(resolved: Resolved, product: Product) -> None:
    """Without its ledger nobody knows what a run measured, and it must not measure again."""
    ledger = product.release.ledger
    if ledger.exists() and ledger.stat().st_size:
        read_ledger(ledger)
        return
    measured = any((product.release.root / "measurements").glob(f"*/{MANIFEST}"))
    if measured or _is_claimed(resolved):
        raise LedgerError(
            str(ledger),
            "is gone, and with it the record of what was measured; the budget counts as spent",
            remedy="restore it from a backup; or give another privacy.grant and "
            "output.directory, and its cost is added to what the same people have lost",
        )


def _is_claimed(resolved: Resolved) -> bool:
    if resolved.plan.not_for_release:
        return False
    document = read_json(resolved.config.output.directory / "run.json", "remove the folder")
    spent = read_account(account_of(resolved.config))
    return any(one.run == document.get("run") for one in spent)


def _lost_measurements(product: Product) -> list[tuple[Path, OutputError]]:
    ledger = product.release.ledger
    if not ledger.exists() or not ledger.stat().st_size:
        return []
    found = []
    for geolevel, digest in read_ledger(ledger).measured.items():
        dataset = product.release.measurements(geolevel)
        if not is_published(dataset):
            found.append((dataset, OutputError(str(dataset), "is missing")))
        elif dataset_digest(dataset) != digest:
            what = "is not the one that the ledger names"
            found.append((dataset, OutputError(str(dataset / MANIFEST), what)))
    return found


def _lost_counts(product: Product) -> list[tuple[Path, OutputError]]:
    """Counts that are gone while counts or outputs that were made of them are there."""
    datasets = [product.release.counts(level) for level in product.plan.spine.levels]
    made = [*datasets, *_outputs(product)]
    found = []
    for index, dataset in enumerate(datasets):
        if not is_published(dataset) and any(is_published(path) for path in made[index + 1 :]):
            remedy = "`das resume` with the run folder makes it again"
            found.append((dataset, OutputError(str(dataset), "is missing", remedy=remedy)))
    return found


def _outputs(product: Product) -> list[Path]:
    """Datasets that are made of counts."""
    release, config = product.release, product.config
    levels = product.plan.spine.levels
    written = [release.microdata / name for name in ("parquet", "csv")]
    written += [release.tables(level) for level in levels]
    return [*written, *(release.h1(level) for level in levels if config.output.h1 is not None)]


def _to_redo(product: Product, dataset: Path) -> tuple[Path, ...]:
    """What to make again for a damaged dataset; nothing for noisy answers.

    Counts are made again with all that was solved from them, so that the tree adds up even where
    another machine solves a node otherwise; and with all others if the failsafe moved parents,
    whose counts were solved before they were moved.
    """
    release, spine = product.release, product.plan.spine
    if dataset.parent == release.root / "measurements":
        return ()
    estimates = EstimateLayout.of(release)
    if dataset.parent == estimates.whole("").parent:
        return (dataset, estimates.tables(dataset.name.removeprefix("level=")))
    counts = [release.counts(level) for level in spine.levels]
    if dataset in counts:
        first = 0 if any(_holds_moves(path) for path in counts) else counts.index(dataset)
        return (*counts[first:], *_outputs(product))
    return (dataset,)


def _holds_moves(counts: Path) -> bool:
    if not is_published(counts):
        return False
    try:
        dataset = Dataset.open(counts)
        return bool(dataset.facts.get(HOLDS)) or bool(statistics_of(dataset).moved)
    except (OutputError, KeyError):
        return True  # not known


# --- what is done --------------------------------------------------------------------------------


def stage_progress(resolved: Resolved) -> list[StageProgress]:
    """How far every stage of every product came, in the order of work."""
    out = []
    for product in resolved.products.values():
        release, confidential = product.release, product.confidential
        config, levels = product.config, product.plan.spine.levels
        is_measured = release.ledger.exists() and release.ledger.stat().st_size
        measured = read_ledger(release.ledger).measured if is_measured else {}
        made = {
            "read": [is_published(confidential.histograms(level)) for level in levels],
            "measure": [level in measured for level in levels],
            "estimate": [
                is_published(EstimateLayout.of(release).tables(level)) for level in levels
            ],
            "solve": [is_published(release.counts(level)) for level in levels],
            "write": [
                *(is_published(release.microdata / name) for name in config.output.microdata),
                *(is_published(release.tables(level)) for level in levels),
                *(is_published(release.h1(level)) for level in levels if config.output.h1),
            ],
            "seal": [is_sealed(release), release.report.exists()],
            "evaluate": [confidential.evaluation.exists(), confidential.report.exists()],
        }
        out += [
            StageProgress(product.name, stage, sum(map(bool, done)), len(done))
            for stage, done in made.items()
        ]
    return out


def is_sealed(release: ReleaseLayout) -> bool:
    """Whether the manifest of the release names the datasets that are there."""
    if not release.manifest.exists():
        return False
    try:
        outputs = read_json(release.manifest, "")["outputs"]
        named = {release.root / one["path"]: one["sha256"] for one in outputs}
    except (OutputError, KeyError, TypeError):
        return False  # damaged: written again
    there = {path.parent for path in release.root.rglob(MANIFEST)}
    return {path: dataset_digest(path) for path in there} == named


def count_files(resolved: Resolved) -> tuple[int, int]:
    """(datasets, files) that the manifests of a run folder name."""
    last = resolved.last  # the folders of the others lie within its own
    roots = (last.release.root, last.confidential.root)
    parts = [len(Dataset.open(p.parent).parts) for root in roots for p in root.rglob(MANIFEST)]
    return len(parts), sum(parts)
