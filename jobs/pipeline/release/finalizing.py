"""Finalize the release of a census or survey: it holds what its manifest names and no more.

A manifest is gathered from the plan, the ledger and what lies in the folder. To verify it is to
gather it again and to compare.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import math
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pyarrow.parquet as pq

from das.errors import OutputError, VerificationError
from jobs.pipeline.documents.document import json_of, read_document, write_document
from jobs.pipeline.documents.manifest import (
    Contents,
    Output,
    OutputColumn,
    ReleasedFile,
    Software,
)
from jobs.pipeline.revision import revision
from jobs.pipeline.storage.columns import TEXT, type_words
from jobs.pipeline.storage.dataset import (
    MANIFEST,
    Dataset,
    check_sizes,
    dataset_digest,
    files_beside_datasets,
    sweep,
    verify_files,
)
from jobs.pipeline.storage.files import (
    READABLE,
    open_to_readers,
    replace_file,
    understanding,
    writing,
)
from jobs.pipeline.storage.journal import journal_of
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import (
    Place,
    at_once,
    found_under,
    names_below,
    open_input,
)

_LIBRARIES = ("numpy", "scipy", "pyarrow", "pyspark", "ortools", "cryptography", "pydantic")
_NOTICE = "The noise of this release was seeded for a test. It protects nobody.\n"
SEEDED = "seeded_not_for_release"
# What older versions did not state; nothing else may be absent that is gathered again.
_ADDED_LATER = ("attacks", "mu_gdp", "nearest")
# Floats are computed again, and a logarithm may end in another bit on another machine. Statements
# are given by six digits or more, so a change that anybody can see is above this.
_SAME = 1e-9


M = TypeVar("M", bound=Contents)


def tidy_release(
    releases: Sequence[ReleaseLayout], texts: Mapping[Place, str], written: Collection[Place]
) -> None:
    """Make the folder of a release ready to be finalized.

    Args:
      releases: The folders that get a manifest: the release, and those of its products.
      texts: Public files to write beside the datasets; others in their folders are removed, since
        an earlier configuration had them.
      written: All further files that a run writes beside datasets.

    Raises:
      OutputError: A dataset is damaged; or a file lies there that no run writes, and everything
        in a release is published.
    """
    root, known = releases[-1].shared, {*texts, *written}
    known.update(path for release in releases for path in release.written_later)
    sweep(root)
    check_sizes(root)
    folders = {path.parent for path in texts}
    for path in files_beside_datasets(root):
        if path.parent in folders and path not in texts:
            with writing(path):
                path.unlink()
    for path, text in texts.items():
        replace_file(path, text, mode=READABLE)
    for path in files_beside_datasets(root):
        if path not in known and journal_of(path) not in known:
            raise OutputError(
                str(path),
                "is not a file of this run, and everything in a release is published",
                remedy="move it elsewhere, then go on with `das run OUT`",
            )


def write_manifest(release: ReleaseLayout, manifest: M, kind: type[M]) -> M:
    """Write the manifest of a release, and let others read all that lies there.

    Returns:
      The manifest. A manifest in the folder that states the same is kept, with its time.

    Raises:
      OutputError: A file cannot be written.
    """
    with writing(release.root):
        open_to_readers(release.root)
    if manifest.not_for_release:
        replace_file(release.notice, _NOTICE, mode=READABLE)
    if release.manifest.exists():
        with suppress(OutputError):  # damaged: written again
            finalized = read_document(kind, release.manifest, remedy="")
            if replace(manifest, created=finalized.created) == finalized:
                return finalized
    write_document(release.manifest, manifest, mode=READABLE)
    return manifest


def verify_contents(release: ReleaseLayout, manifest: Contents) -> int:
    """Check that a folder holds the datasets and files that its manifest names, and no others.

    Args:
      release: The release, or what its products share.
      manifest: Its manifest.

    Returns:
      How many datasets there are, those that replicates made later included.

    Raises:
      OutputError: A file is missing, or is not named by the manifest of its dataset.
      VerificationError: Something was changed, is missing, or is not named.
    """
    for output in manifest.outputs:
        dataset = release.root / output.path
        if not (dataset / MANIFEST).exists() or dataset_digest(dataset) != output.sha256:
            raise VerificationError(
                str(dataset / MANIFEST), "is not the one the manifest of the release names"
            )
    for file in manifest.files:
        path = release.root / file.path
        if not path.is_file():
            raise OutputError(str(path), "is missing", want="the file that the manifest names")
        if hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
            raise VerificationError(str(path), "is not the one the manifest of the release names")
    datasets = [path.parent for path in found_under(release.root, MANIFEST)]
    datasets = [dataset for dataset in datasets if release.is_own(dataset)]
    named = {release.root / output.path for output in manifest.outputs}
    found = [one for one in datasets if not release.is_of_replicates(one)]
    named |= {release.root / file.path for file in manifest.files}
    for path in (*found, *_own_files(release)):
        if path not in named:
            raise VerificationError(
                str(path),
                "lies in the release, and its manifest does not name it",
                remedy="find out who put it there; whoever has a copy has it too",
            )
    if release.notice.exists() != manifest.not_for_release:
        raise VerificationError(
            f"{release.manifest}, not_for_release", f"does not agree with {release.notice.name}"
        )
    for dataset in datasets:
        verify_files(dataset)
    return len(datasets)


def verify_manifest(release: ReleaseLayout, stated: M, again: M) -> None:
    """Check what a manifest states, but for when it was finalized and by which software.

    Args:
      release: The release; its contents were verified.
      stated: Its manifest.
      again: The same gathered again.

    Raises:
      VerificationError: They differ; names the first field that does.
    """
    places = {file.path: number for number, file in enumerate(stated.files)}  # older: not sorted
    files = sorted(again.files, key=lambda file: places.get(file.path, len(places)))
    again = replace(again, created=stated.created, software=stated.software, files=tuple(files))
    verify_statements(release.manifest, stated, again)


def verify_statements(place: Place, stated: object, again: object) -> None:
    """Check that a manifest states what is gathered again from plan, ledger and measurements.

    Exact values are compared as they are; floats up to 1e-9 of them.

    Args:
      place: The manifest, for errors.
      stated: What it states, a document.
      again: The same gathered again.

    Raises:
      VerificationError: They differ; names the first field that does.
    """
    found = _difference(json_of(stated), json_of(again), ())
    if found is not None:
        key, got, want = found
        raise VerificationError(
            f"{place}, {key}",
            "is not what plan, ledger and measurements say",
            got=got,
            want=want,
        )


def _difference(stated: object, again: object, key: tuple[str, ...]) -> tuple[str, ...] | None:
    """The first field in which two JSON values differ, and what it holds in both."""
    found = None
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for name in {**again, **stated}:
            if name in stated or name not in _ADDED_LATER:
                within = (*key, str(name))
                found = found or _difference(stated.get(name), again.get(name), within)
        return found
    if isinstance(stated, list) and isinstance(again, list):
        for number, (one, other) in enumerate(zip(stated, again, strict=False)):
            found = found or _difference(one, other, (*key, str(number)))
        if found is not None or len(stated) == len(again):
            return found
        return ".".join(key), f"{len(stated)} entries", f"{len(again)} entries"
    if isinstance(stated, float) and isinstance(again, float):
        is_same = math.isclose(stated, again, rel_tol=_SAME)
    else:
        is_same = type(stated) is type(again) and stated == again
    return None if is_same else (".".join(key), str(stated), str(again))


# --- what lies there -----------------------------------------------------------------------------


def released_outputs(release: ReleaseLayout) -> tuple[Output, ...]:
    """List the datasets of a release, as a manifest has them.

    All but those of products within it, and what replicates of the release made of it.
    """
    found = sorted(path.parent for path in found_under(release.root, MANIFEST))
    datasets = [one for one in found if release.is_own(one) and not release.is_of_replicates(one)]
    return tuple(at_once(release.root, lambda path: output_of(release, path), datasets))


def released_files(release: ReleaseLayout) -> tuple[ReleasedFile, ...]:
    """List the files beside the datasets, with their digests."""

    def described(path: Place) -> ReleasedFile:
        data = path.read_bytes()
        return ReleasedFile(
            path=str(names_below(path, release.root)),
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )

    return tuple(at_once(release.root, described, _own_files(release)))


def _own_files(release: ReleaseLayout) -> list[Place]:
    """List files beside datasets, but for other products' and those that no manifest can name."""
    journals = (release.solves, *([release.ledger] if release.is_product else []))
    return [
        path
        for path in files_beside_datasets(release.root)
        if release.is_own(path)
        and path not in release.written_later
        and journal_of(path) not in journals
    ]


def output_of(release: ReleaseLayout, path: Place) -> Output:
    """A dataset of a release, as a manifest has it.

    Raises:
      OutputError: Its manifest is damaged.
    """
    dataset = Dataset.open(path)
    of_tables = {part.file.rpartition(".")[0]: part.rows for part in dataset.parts}
    with understanding(path):
        queries = dataset.facts.get("queries", [])
        return Output(
            path=str(names_below(path, release.root)),
            files=len(dataset.parts),
            rows=sum(of_tables.values()),  # a table has the same rows in every format
            bytes=dataset.bytes,
            sha256=dataset.sha256,
            columns=dataset_columns(dataset),
            labelled=tuple(
                q["query"] for q in queries if isinstance(q, dict) and {"labels", "file"} & {*q}
            ),
        )


def dataset_columns(dataset: Dataset) -> tuple[OutputColumn, ...]:
    """Name and type of every column of a dataset, as it says, or from its first file."""
    if "columns" in dataset.facts:
        return tuple(OutputColumn(**column) for column in dataset.facts["columns"])
    if not dataset.parts:
        return ()
    path = dataset.path / dataset.parts[0].file
    if path.suffix == ".parquet":
        schema = pq.read_schema(open_input(path, dataset.parts[0].bytes))
        return tuple(OutputColumn(name=f.name, type=type_words(f.type)) for f in schema)
    with path.open(newline="", encoding="utf-8") as handle:
        header = next(csv.reader(handle), [])
    return tuple(OutputColumn(name=name, type=TEXT) for name in header)


def software() -> Software:
    """What makes a release: this program, and the libraries that numbers depend on."""
    try:
        version = importlib.metadata.version("topdown-das")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    return Software(
        name="topdown-das",
        version=version,
        python=platform.python_version(),
        libraries=dict(_installed()),
        revision=revision(),
    )


def _installed() -> Iterator[tuple[str, str]]:
    """Versions of the libraries that are there; a survey does without some."""
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)
