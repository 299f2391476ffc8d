"""The identity of a run folder: its configuration, run file, account and input files."""

from __future__ import annotations

import hashlib
import pathlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from das.errors import ConfigError, InputError, LedgerError, OutputError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.product import Resolved, account_of
from jobs.pipeline.documents.summary import SUMMARY
from jobs.pipeline.folder.roots import (
    CONFIDENTIAL,
    NO_RUN,
    claim_root,
    make_folders,
    read_identity,
    refuse_other_root,
    remembered_root,
    remove_root,
    stated_root,
)
from jobs.pipeline.folder.solutions import other_settings
from jobs.pipeline.storage.account import is_there, read_account
from jobs.pipeline.storage.dataset import MANIFEST, PROPOSED
from jobs.pipeline.storage.files import create_file, json_text, read_json, write_json
from jobs.pipeline.storage.journal import LINES, journals_under, read_journal
from jobs.pipeline.storage.layout import ReleaseLayout, Roots, release_folder
from jobs.pipeline.storage.place import Place, found_under, is_same, place_of, remove_tree

_SOLUTIONS = "solutions"
"""Key of run.json with the run files of named solutions."""


@dataclass(frozen=True)
class Owner:
    """The run that is to own a run folder.

    Attributes:
      roots: The run folder, and the folder of its confidential files.
      digest: Digest of the configuration.
      account: Returns the path of the account.
      stated: Path and digests of the run file, stored in run.json; empty if the release or the
        named solution is finalized with other settings.
      solution: Name of the solution; None for the release.
    """

    roots: Roots
    digest: str
    account: Callable[[], Place]
    stated: Mapping[str, object]
    solution: str | None = None


def owner_of(resolved: Resolved) -> Owner:
    """Return the owner of the run folder of a census."""
    config = resolved.config
    return Owner(
        roots=config.output.roots,
        digest=resolved.plan.digest,
        account=lambda: account_of(config),
        stated={} if other_settings(resolved) else stated_configuration(resolved),
        solution=resolved.solution,
    )


def claim_as(wanted: Owner) -> str:
    """Create the roots of a run, or check that they belong to the same configuration.

    run.json stores the path of the run file, for `das run OUT`, and the run files of named
    solutions. A
    folder of another configuration is emptied and taken over if nothing was measured and no grant
    was claimed. The caller must be the only driver.

    Returns:
      The identity of the run folder.

    Raises:
      OutputError: A root cannot be written, belongs to another configuration or run, or holds
        other files.
    """
    roots, out, digest = wanted.roots, wanted.roots.out, wanted.digest
    path = out / "run.json"
    stated = {**wanted.stated, **stated_root(roots)}
    fresh = {"configuration_digest": digest, "run": uuid.uuid4().hex, **stated}
    make_folders(roots)
    if not path.exists() and create_file(path, json_text(fresh)):
        claim_root(roots, str(fresh["run"]))
        return str(fresh["run"])
    document = read_identity(out, "remove the folder")
    owner = document.get("configuration_digest")
    if owner != digest:
        spent = has_spent(out, wanted.account())
        if spent is not None:
            raise OutputError(
                str(out),
                "belongs to a different configuration",
                got=f"{str(owner)[:12]}, {spent}",
                want=digest[:12],
                remedy="choose another output.directory",
            )
        remove_root(Roots.of(out, remembered_root(document)), document["run"])
        remove_tree(release_folder(out))
        (out / SUMMARY).unlink(missing_ok=True)
    refuse_other_root(roots, document)
    claim_root(roots, document["run"])
    kept = {key: value for key, value in document.items() if key != CONFIDENTIAL}
    renewed = {**kept, "configuration_digest": digest, **stated_root(roots)}
    if wanted.solution is None:
        renewed |= wanted.stated
    elif wanted.stated:
        others = document.get(_SOLUTIONS, {})
        renewed[_SOLUTIONS] = {**others, wanted.solution: dict(wanted.stated)}
    if renewed != document:
        write_json(path, renewed)
    return str(document["run"])


def remembered_run(out: Place) -> str:
    """Return the identity stored in a run folder.

    Raises:
      OutputError: The folder is not a run folder.
    """
    return str(read_identity(out, "remove the folder")["run"])


def stated_configuration(resolved: Resolved) -> dict[str, object]:
    """Return the path of the run file, and digests of it and the files it names, for run.json."""
    files = [resolved.source.resolve()]
    for product in resolved.config.products.values():
        files += [product.schema_, product.privacy.allocation_file]
    return stated_files(files)


def stated_files(files: Sequence[Place]) -> dict[str, object]:
    """Return the path of the first file, the run file, and digests of all, for run.json."""
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {"run_file": str(files[0]), "configuration_files": digests}


def load_again(
    out: Place,
    config: pathlib.Path | None,
    master: str | None,
    solution: str | None = None,
    confidential: Place | None = None,
) -> Resolved:
    """Load the run file of a run folder.

    Args:
      out: The run folder.
      config: Current path of the run file; default: the path in run.json.
      master: Replaces `runtime.master`.
      solution: Name of a solution.
      confidential: Current folder of the confidential files; default: the one in run.json.

    Raises:
      OutputError: The folder is not a run folder.
      ConfigError: The run file is missing, or its configuration changed.
    """
    document, source = remembered(out, config, solution)
    resolved = load_run(
        source,
        output=out,
        confidential=confidential or remembered_root(document),
        master=master,
        solution=solution,
    )
    refuse_other_configuration(
        document,
        resolved.plan.digest,
        stated_configuration(resolved),
        want="changes of `solve` and `output` only",
    )
    return resolved


def remembered(
    out: Place, config: pathlib.Path | None, solution: str | None = None
) -> tuple[dict[str, Any], pathlib.Path]:
    """Return the contents of run.json, and the path of the run file.

    Args:
      out: The run folder, of a census or a survey.
      config: Current path of the run file; default: the path in run.json.
      solution: Name of a solution, whose run file is used. A new solution uses the run file of the
        release.

    Raises:
      OutputError: The folder is not a run folder.
      ConfigError: The run file is missing.
    """
    document = read_identity(out, NO_RUN)
    document |= document.get(_SOLUTIONS, {}).get(solution, {})
    source = config or document.get("run_file")
    if source is None or not pathlib.Path(source).exists():
        raise ConfigError(
            str(source or out / "run.json"),
            "the run file is not where it was" if source else "does not name the run file",
            remedy="say where it is with --config",
        )
    return document, pathlib.Path(source)


def refuse_other_configuration(
    document: Mapping[str, object],
    digest: str,
    stated: Mapping[str, object],
    want: str | None = None,
) -> None:
    """Refuse a run file whose configuration differs from that of the run folder.

    Args:
      document: Contents of run.json.
      digest: Digest of the current configuration.
      stated: Path and digests of the current run file, as `stated_files`.
      want: Allowed changes, for the error.

    Raises:
      ConfigError: The digests differ.
    """
    if document.get("configuration_digest") == digest:
        return
    before, now = document.get("configuration_files"), stated["configuration_files"]
    changed = []
    if isinstance(before, dict) and isinstance(now, dict):
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    raise ConfigError(
        str(stated["run_file"]),
        "is not the configuration that this folder was begun with",
        got=f"changes in {', '.join(changed)}" if changed else "another run file",
        want=want,
        remedy="undo the change, or choose another output.directory and a new privacy.budget_id",
    )


def is_renamed(out: Place, account: Place) -> bool:
    """Return whether the account differs from that in run.json, and the latter still exists."""
    before = read_identity(out, "remove the folder").get("account")
    if before is None or before == str(account):
        return False
    other = place_of(before)
    return is_there(other) and not (is_there(account) and is_same(account, other))


def refuse_other_account(out: Place, account: Place) -> None:
    """Refuse an account other than that in which the grants of a run folder were claimed.

    Raises:
      LedgerError: The account is a different one, not the former account in a new place. It would
        lack the draws of copies of this folder.
    """
    document = read_identity(out, "remove the folder")
    before = document.get("account")
    if before is None or before == str(account):
        return
    runs = [grant.run for grant in read_account(account)]
    if is_renamed(out, account) or document["run"] not in runs:
        moved = "" if is_there(account) else f", or move it to {account}"
        raise LedgerError(
            str(account),
            "is not the account in which the grants of this folder were claimed",
            want=before,
            remedy=f"name that one under privacy.account{moved}",
        )


def note_account(out: Place, account: Place, inputs: Mapping[str, str]) -> None:
    """Store the path of the account in run.json, before grants are claimed.

    Args:
      out: The run folder.
      account: The account.
      inputs: Product -> keyed digest of its input, for the grants claimed now.

    Raises:
      LedgerError: As for `refuse_other_account`.
    """
    refuse_other_account(out, account)
    document = read_identity(out, "remove the folder")
    digests = {**document.get("inputs", {}), **inputs}
    noted = {**document, "account": str(account), **({"inputs": digests} if digests else {})}
    if noted != document:
        write_json(out / "run.json", noted)


def has_spent(out: Place, account: Place) -> str | None:
    """Say why a run folder must keep its configuration; None if another may take it over.

    Args:
      out: The run folder.
      account: The account of the other configuration.
    """
    document = read_identity(out, "remove the folder")
    if "account" in document or any(
        grant.run == document["run"] for grant in read_account(account)
    ):
        return "which claimed its grant"
    root = release_folder(out)
    measured = [
        path
        for folder in ("measurements", "lazy_measurements")
        for name in (MANIFEST, PROPOSED.format("*"))
        for path in root.rglob(f"{folder}/*/{name}")
    ]
    ledgers = journals_under(root, "ledger.jsonl")
    if measured or any(
        line.get("event") == "measured" for path in ledgers for line in read_journal(path)
    ):
        return "which measured the data"
    return None


def input_files(config: RunConfig) -> dict[str, list[int]]:
    """Return size and modification time (ns) of every input file, by path."""
    products = config.products.values()
    roots = [product.input.path for product in products]
    if config.geography.geounits is not None:
        roots.append(config.geography.geounits.path)
    spine = config.geography.spine
    if spine is not None and spine.entities is not None:
        roots.append(spine.entities.path)
    stated = [entry for product in products for entry in product.invariants]
    roots += [entry.public_table.path for entry in stated if entry.public_table is not None]
    released = [entry.released_before for entry in stated]
    # The manifest of a release determines all its files by their digests.
    roots += [ReleaseLayout(r.path).manifest for r in released if r is not None and r.path]
    return files_under(roots, account_of(config))


def input_digest(data: Place, account: Place) -> bytes:
    """Return the SHA-256 of the contents of an input, independent of file names.

    The digest is confidential: store only a keyed digest (`jobs.pipeline.storage.account.keyed`).

    Args:
      data: A file or folder.
      account: The account, which is skipped if it lies in the folder.
    """
    digests = []
    for file in files_under([data], account):
        with place_of(file).open("rb") as handle:
            digests.append(hashlib.file_digest(handle, "sha256").digest())
    return hashlib.sha256(b"".join(sorted(digests))).digest()


def files_under(roots: Sequence[Place], account: Place) -> dict[str, list[int]]:
    """Return size and modification time (ns) of files, also in folders, without the account."""
    files = [p for root in roots for p in (found_under(root, "*") if root.is_dir() else [root])]
    return {
        str(p): [p.stat().st_size, p.stat().st_mtime_ns]
        for p in files
        if p.is_file() and p != account and p.parent.name != account.name + LINES
    }


def check_same_input(config: RunConfig, path: Place) -> None:
    """Refuse input files that changed since they were read.

    Raises:
      InputError: An input file is not the one that was read.
    """
    check_same_files(input_files(config), [*config.products.values()][-1].input.path, path)


def check_same_files(seen: Mapping[str, list[int]], data: Place, path: Place) -> None:
    """Refuse input files that changed, since noise is drawn for one data set only.

    Args:
      seen: Current size and modification time of the input files.
      data: The input, for the error.
      path: File with the values recorded when the input was read.

    Raises:
      InputError: An input file changed since it was read.
    """
    before = read_json(
        path, "restore it; or go on from the measurements with `das run RUN --only solve`"
    )
    if before != seen:
        changed = sorted(name for name in {*seen, *before} if seen.get(name) != before.get(name))
        raise InputError(
            str(data),
            "the input changed since it was read",
            got=changed[:3],
            remedy="give another output.directory; noise must not be drawn for other data here",
        )
