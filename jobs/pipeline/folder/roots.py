"""The two roots of a run: the run folder, and the folder of its confidential files.

A separate confidential root names its run in OWNER.json: two run folders that shared one would use
each other's true data.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from das.errors import OutputError
from jobs.pipeline.folder.lock import LOCK
from jobs.pipeline.storage.files import (
    close_folder,
    create_file,
    json_text,
    naming_file,
    read_json,
)
from jobs.pipeline.storage.layout import Roots
from jobs.pipeline.storage.place import Place, StoredPlace, place_of, remove_tree
from jobs.pipeline.storage.stores.store import probe

OWNER = "OWNER.json"
CONFIDENTIAL = "confidential"
"""Key of run.json with the confidential root, if it is separate from the run folder."""

NO_RUN = "give the output.directory of a run, or restore its run.json: no grant is spent twice"
_TEXTS = ("run", "configuration_digest", "run_file", "account", CONFIDENTIAL)
_KEYS = {"run.json": "output.directory", OWNER: "output.confidential"}
_SAFE = "keep runs in a store that creates a file only if it is absent: docs/storage.md names some"


def make_roots(roots: Roots) -> None:
    """Create the roots of a run, or check existing ones, without setting an owner.

    Raises:
      OutputError: A root cannot be written, holds other files, cannot be closed to other users, or
        lies in a store without create-if-absent.
    """
    for place, _ in _roots(roots):
        _probe(place)
    make_folders(roots)


def make_folders(roots: Roots) -> None:
    """Create the roots of a run, as `make_roots` does, without probing stores.

    Raises:
      OutputError: As for `make_roots`.
    """
    for place, owner in _roots(roots):
        _make_folder(place)
        _refuse_foreign(place, owner)
        if isinstance(place, Path) and not os.access(place, os.W_OK):
            raise OutputError(str(place), "cannot be written")
        close_folder(place)
    _refuse_shared(roots)


def check_roots(roots: Roots) -> None:
    """Check that the roots of a run could be written, without creating them.

    In a store, a file with a random name is written and removed.

    Raises:
      OutputError: A root could not be written.
    """
    for place, owner in _roots(roots):
        _probe(place)
        if isinstance(place, Path):
            there = next((p for p in (place, *place.parents) if p.exists()), place)
            if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
                what = "cannot be created" if there != place else "cannot be written"
                raise OutputError(str(place), what, remedy=f"choose another {_KEYS[owner]}")
        if place.is_dir():
            _refuse_foreign(place, owner)
    _refuse_shared(roots)


def _roots(roots: Roots) -> list[tuple[Place, str]]:
    """Return the separate roots, each with the file that names its run."""
    separate = [(roots.confidential, OWNER)] if roots.are_apart else []
    return [(roots.out, "run.json"), *separate]


def _probe(place: Place) -> None:
    if not isinstance(place, StoredPlace):
        return
    try:
        probe(place.store, place.key)
    except OSError as error:
        what, remedy = "cannot be created", None
        if error.errno == errno.ENOTSUP:  # the store lacks or ignores create-if-absent
            what, remedy = "lies in a store that is not safe for runs", _SAFE
        raise OutputError(str(place), what, got=error.strerror, remedy=remedy) from None


def _make_folder(place: Place) -> None:
    with naming_file(place, "cannot be created"):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)


def _refuse_foreign(place: Place, owner: str) -> None:
    """Refuse a folder that is not empty and has no owner file."""
    # A killed start may leave a draft of the owner file, a lock and a probe.
    ours = (owner, f".{owner}.", LOCK, ".probe-")
    with naming_file(place, "cannot be created"):
        foreign = next((p for p in place.iterdir() if not p.name.startswith(ours)), None)
    if foreign is not None and not (place / owner).exists():
        raise OutputError(
            str(place),
            "is not empty and is not the folder of a run",
            got=foreign.name,
            remedy=f"choose another {_KEYS[owner]}",
        )


# --- whose the confidential root is --------------------------------------------------------------


def stated_root(roots: Roots) -> dict[str, str]:
    """Return the entry of run.json for a separate confidential root; empty without one."""
    return {CONFIDENTIAL: str(roots.confidential)} if roots.are_apart else {}


def remembered_root(document: Mapping[str, Any]) -> Place | None:
    """Return the separate confidential root of a run folder; None if it has no separate root.

    Args:
      document: Contents of run.json.
    """
    stated = document.get(CONFIDENTIAL)
    return None if stated is None else place_of(str(stated))


def read_identity(out: Place, remedy: str) -> dict[str, Any]:
    """Read run.json of a run folder.

    Raises:
      OutputError: The file is missing or damaged, or has values of wrong types.
    """
    path = out / "run.json"
    document = {"run": None, **read_json(path, remedy)}
    kinds = {**dict.fromkeys(_TEXTS, str), "inputs": dict, "solutions": dict}
    for key in sorted(kinds.keys() & document.keys()):
        if not isinstance(document[key], kinds[key]):
            raise OutputError(f"{path}: {key}", "is damaged", got=type(document[key]).__name__)
    return document


def remembered_roots(out: Place) -> Roots:
    """Return the roots stored in a run folder; default roots without run.json.

    Raises:
      OutputError: run.json is damaged.
    """
    path = out / "run.json"
    document = read_json(path, NO_RUN) if path.exists() else {}
    return Roots.of(out, remembered_root(document))


def claim_root(roots: Roots, run: str) -> None:
    """Create the confidential root of a run; a separate one is marked with the run.

    Raises:
      OutputError: The root belongs to another run, or cannot be written or closed to other users.
    """
    _make_folder(roots.confidential)
    close_folder(roots.confidential)
    owner = roots.confidential / OWNER
    if roots.are_apart and not create_file(owner, json_text({"run": run})):
        raise _shared(roots)


def _refuse_shared(roots: Roots) -> None:
    """Refuse a confidential root that belongs to another run."""
    owner = roots.confidential / OWNER
    if roots.are_apart and owner.exists() and _run_in(owner) != _run_in(roots.out / "run.json"):
        raise _shared(roots)


def _run_in(document: Place) -> object:
    """Return the run that a document names; None if the document is absent."""
    return read_json(document, "remove the folder").get("run") if document.exists() else None


def _shared(roots: Roots) -> OutputError:
    return OutputError(
        str(roots.confidential),
        "holds the confidential files of another run",
        want=f"a separate folder for {roots.out}",
        remedy="name another one by output.confidential, or by --confidential",
    )


def refuse_other_root(roots: Roots, document: Mapping[str, Any]) -> None:
    """Refuse a run folder whose confidential files lie in another root.

    If they no longer exist, for example after they were destroyed, they are made again as needed.

    Args:
      roots: Roots according to the run file or the command line.
      document: Contents of run.json.

    Raises:
      OutputError: The confidential files lie in another root.
    """
    before = Roots.of(roots.out, remembered_root(document)).confidential
    if before == roots.confidential or (roots.confidential / OWNER).exists():
        return
    if before.is_dir() and any(path.name != OWNER for path in before.iterdir()):
        raise OutputError(
            str(roots.confidential),
            "is not where the confidential files of this run lie",
            want=str(before),
            remedy="name that one by output.confidential, or by --confidential",
        )


def remove_root(roots: Roots, run: str) -> None:
    """Remove the confidential root of a run; a separate root only if it is marked with the run."""
    if not roots.are_apart or _run_in(roots.confidential / OWNER) == run:
        remove_tree(roots.confidential)
