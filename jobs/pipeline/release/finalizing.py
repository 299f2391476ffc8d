"""Finalize the release of a census or survey: it holds what its manifest names and no more.

A manifest is gathered from plan, ledger and the files of the folder. Verification gathers it again
and compares.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import math
import platform
from collections.abc import Collection, Mapping, Sequence
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
# Relative tolerance of floats: a logarithm may differ in its last bit between machines. Statements
# have at least six digits, so every visible change is larger.
_SAME = 1e-9


M = TypeVar("M", bound=Contents)


def tidy_release(
    releases: Sequence[ReleaseLayout], texts: Mapping[Place, str], written: Collection[Place]
) -> None:
    """Prepare the folder of a release for finalizing.

    Args:
      releases: The folders that get a manifest: the release, and those of its products.
      texts: Public files to write, outside datasets. Other files in their folders are removed,
        since they come from an earlier configuration.
      written: All further files that a run writes outside datasets.

    Raises:
      OutputError: A dataset is damaged; or the folder holds a file that no run writes, while
        everything in a release is published.
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
    """Write the manifest of a release, and open the folder to other readers.

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
      Number of datasets, including later ones of replicates.

    Raises:
      OutputError: A file is missing, or the manifest of its dataset does not name it.
      VerificationError: A dataset or file was changed, is missing, or is not in the manifest.
    """
    for output in manifest.outputs:
        dataset = release.root / output.path
        if not (dataset / MANIFEST).exists() or dataset_digest(dataset) != output.sha256:
            path = dataset / MANIFEST
            what = "is not the one the manifest of the release names"
            raise VerificationError(str(path), what if path.exists() else "is missing")
    for file in manifest.files:
        path = release.root / file.path
        if not path.is_file():
            raise OutputError(str(path), "is missing", want="the file that the manifest names")
        if hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
            raise VerificationError(str(path), "is not the one the manifest of the release names")
    datasets = [path.parent for path in found_under(release.root, MANIFEST)]
    datasets = [dataset for dataset in datasets if release.is_own(dataset)]
    named = {release.root / output.path for output in manifest.outputs}
    named |= {release.root / file.path for file in manifest.files}
    for path in (*datasets, *_own_files(release)):
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
    """Check the statements of a manifest, except for time of finalizing and software.

    Args:
      release: The release; its contents were verified.
      stated: The manifest of the release.
      again: The manifest gathered again.

    Raises:
      VerificationError: The manifests differ; names the first different field.
    """
    again = replace(again, created=stated.created, software=stated.software)
    verify_statements(release.manifest, stated, again)


def verify_statements(place: Place, stated: object, again: object) -> None:
    """Check that a manifest equals the manifest gathered again from plan, ledger, measurements.

    Exact values must be equal, floats within a relative 1e-9.

    Args:
      place: Path of the manifest, for errors.
      stated: The manifest, a document.
      again: The document gathered again.

    Raises:
      VerificationError: The documents differ; names the first different field.
    """
    difference = _difference(json_of(stated), json_of(again), ())
    if difference is not None:
        key, got, want = difference
        raise VerificationError(
            f"{place}, {key}",
            "is not what plan, ledger and measurements say",
            got=got,
            want=want,
        )


def _difference(stated: object, again: object, key: tuple[str, ...]) -> tuple[str, ...] | None:
    """Find the first different field of two JSON values: key, stated value, gathered value."""
    found = None
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for name in {**again, **stated}:
            within = (*key, str(name))
            found = found or _difference(stated.get(name), again.get(name), within)
        return found
    if isinstance(stated, list) and isinstance(again, list):
        for number, pair in enumerate(zip(stated, again, strict=False)):
            found = found or _difference(*pair, (*key, str(number)))
        if found is not None or len(stated) == len(again):
            return found
        return ".".join(key), f"{len(stated)} entries", f"{len(again)} entries"
    if isinstance(stated, float) and isinstance(again, float):
        is_same = math.isclose(stated, again, rel_tol=_SAME)
    else:
        is_same = type(stated) is type(again) and stated == again
    both = [f"{len(x)} parts" if isinstance(x, Mapping | list) else str(x) for x in (stated, again)]
    return None if is_same else (".".join(key), *both)


# --- contents of a release -----------------------------------------------------------------------


def released_outputs(release: ReleaseLayout) -> tuple[Output, ...]:
    """List the datasets of a release as outputs of its manifest.

    Datasets of products within the release are left out.
    """
    paths = sorted(path.parent for path in found_under(release.root, MANIFEST))
    datasets = [path for path in paths if release.is_own(path)]
    return tuple(at_once(release.root, lambda path: output_of(release, path), datasets))


def released_files(release: ReleaseLayout) -> tuple[ReleasedFile, ...]:
    """List the files outside datasets, with their digests."""

    def described(path: Place) -> ReleasedFile:
        data = path.read_bytes()
        return ReleasedFile(
            path=str(names_below(path, release.root)),
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )

    return tuple(at_once(release.root, described, _own_files(release)))


def _own_files(release: ReleaseLayout) -> list[Place]:
    """List files outside datasets, except other products' and those no manifest can name."""
    journals = (release.solves, *([release.ledger] if release.is_product else []))
    return [
        path
        for path in files_beside_datasets(release.root)
        if release.is_own(path)
        and path not in release.written_later
        and journal_of(path) not in journals
    ]


def output_of(release: ReleaseLayout, path: Place) -> Output:
    """Describe a dataset of a release as an output of the manifest.

    Raises:
      OutputError: The manifest of the dataset is damaged.
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
    """Return name and type of every column, from the facts of a dataset or its first file."""
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
    """List the software of a release: this program, and the libraries that numbers depend on."""
    try:
        version = importlib.metadata.version("topdown-das")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    libraries = {}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):  # a survey needs only some
            libraries[name] = importlib.metadata.version(name)
    return Software(
        name="topdown-das",
        version=version,
        python=platform.python_version(),
        libraries=libraries,
        revision=revision(),
    )
