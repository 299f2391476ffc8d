"""Datasets that exist wholly or not at all: part files and one manifest that names them.

A step writes part files under names no other attempt uses, then publishes `_manifest.json` with
one atomic create-if-absent. Readers open only files the manifest names, so a half-written step,
a retried task or a second driver can never be read. Rows are sorted by geocode.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from das.errors import OutputError
from jobs.storage.files import sync_folder, understanding, writing
from jobs.storage.modes import make_closed_file, make_closed_folder

MANIFEST = "_manifest.json"
PROPOSED = "_proposed.json"
ROW_GROUP_BYTES = 4 << 20
LAST = "\x7f"  # greater than every geocode

_AGAIN = "`das resume` with the run folder says what can be made again, and makes it"


@dataclass(frozen=True, slots=True)
class PartFile:
    """One committed file.

    Attributes:
      file: Path relative to the dataset.
      rows: Number of rows.
      low: Smallest geocode in it, "" if empty.
      high: Largest geocode in it.
      bytes: Size on disk.
      sha256: Digest of the file.
      facts: What the task wants to tell the driver; small, JSON.
    """

    file: str
    rows: int
    low: str
    high: str
    bytes: int
    sha256: str
    facts: dict[str, Any] = field(default_factory=dict, repr=False)  # of the truth, for some


@dataclass(frozen=True)
class Dataset:
    """An opened dataset: a folder, and what its manifest said of it when it was opened.

    A task opens each dataset it reads once, and hands this value to its readers.

    Attributes:
      path: The folder.
      parts: Its part files, by their first geocodes.
      facts: What the step that wrote it said of it; JSON.
    """

    path: Path
    parts: tuple[PartFile, ...] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> Dataset:
        """Read the manifest of a published dataset.

        Raises:
          OutputError: It is not published, or the manifest is damaged.
        """
        return _parsed(path, MANIFEST)

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        """Size of all parts on disk, without the manifest."""
        return sum(part.bytes for part in self.parts)

    def within(self, low: str = "", high: str = LAST) -> Dataset:
        """The same without the parts that hold no geocode of low..high."""
        parts = tuple(p for p in self.parts if p.rows and p.high >= low and p.low <= high)
        return Dataset(self.path, parts, self.facts)

    def read(
        self, low: str = "", high: str = LAST, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read the rows with low <= geocode <= high, in the order they were written.

        Args:
          low: Smallest geocode wanted.
          high: Largest geocode wanted.
          columns: Columns wanted; default all.

        Returns:
          The rows. If there are none, a table without rows of the same columns, or without columns
          if the dataset has no part.

        Raises:
          OutputError: A named file is missing or unreadable.
        """
        names = None if columns is None else list(columns)
        tables = [self._read_part(part, low, high, names) for part in self.within(low, high).parts]
        return pa.concat_tables(tables) if tables else self._empty(names)

    def _read_part(self, part: PartFile, low: str, high: str, names: list[str] | None) -> pa.Table:
        inside = low <= part.low and part.high <= high
        filters = None if inside else [("geocode", ">=", low), ("geocode", "<=", high)]
        try:
            return pq.read_table(
                self.path / part.file,
                columns=names,
                filters=filters,
                use_threads=False,
                partitioning=None,
            )
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, part, error) from None

    def _empty(self, names: list[str] | None) -> pa.Table:
        if not self.parts:
            return pa.schema([]).empty_table()
        try:
            schema = pq.read_schema(self.path / self.parts[0].file)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, self.parts[0], error) from None
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        return schema.empty_table()


class PartWriter:
    """Writes one Parquet part file; nothing is readable before the dataset is published.

    Tables are gathered into row groups of about 4 MiB so that ranges of geocodes can be read back
    without the rest.
    """

    def __init__(self, dataset: Path, schema: pa.Schema, key: str | None = "geocode") -> None:
        """Begin a file.

        Args:
          dataset: Folder of the dataset.
          schema: Its columns.
          key: The column by which rows are sorted; None if they are in no order.
        """
        self._key = key
        self._path = dataset / f"part-{uuid.uuid4().hex}.parquet"
        _make_folder(dataset)
        with writing(self._path, self._path):
            make_closed_file(self._path)
            self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._low = ""
        self._high = ""

    def write(self, table: pa.Table) -> None:
        """Append rows; geocodes must not fall below those already written."""
        if table.num_rows == 0:
            return
        self._note(table)
        self._waiting.append(table)
        if sum(t.nbytes for t in self._waiting) >= ROW_GROUP_BYTES:
            self._flush()

    def write_apart(self, tables: Iterable[pa.Table]) -> None:
        """Append tables about the same geounits, each as a row group of its own.

        Compression works per row group, and does best where the values of one have one scale.
        """
        self._flush()
        for table in tables:
            if table.num_rows:
                self._note(table)
                self._write(table)

    def _note(self, table: pa.Table) -> None:
        if self._key is not None:
            codes = table.column(self._key)
            if not self._rows:
                self._low = codes[0].as_py()
            self._high = codes[-1].as_py()
        self._rows += table.num_rows

    def _flush(self) -> None:
        if self._waiting:
            self._write(pa.concat_tables(self._waiting))
            self._waiting = []

    def _write(self, table: pa.Table) -> None:
        with writing(self._path, self._path):
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self, **facts: Any) -> PartFile:  # noqa: ANN401 - JSON facts
        """Finish the file and describe it; it survives a crash of the machine from then on."""
        self._flush()
        with writing(self._path, self._path):
            self._writer.close()
            with self._path.open("rb") as handle:
                os.fsync(handle.fileno())
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
                size = handle.tell()
        return PartFile(self._path.name, self._rows, self._low, self._high, size, digest, facts)


def is_published(dataset: Path) -> bool:
    """Whether the dataset is complete."""
    return (dataset / MANIFEST).exists()


def publish(dataset: Path, parts: Iterable[PartFile], facts: Mapping[str, Any]) -> None:
    """Make the dataset readable, once.

    Files of the folder that no part names are leftovers of failed attempts and are removed.

    Raises:
      OutputError: The dataset was already published, or the folder cannot be written.
    """
    with _draft(dataset, parts, facts) as draft:
        try:
            os.link(draft, dataset / MANIFEST)
        except FileExistsError:
            sweep(dataset)  # our parts were drawn under another key than the published ones
            raise OutputError(str(dataset), "was already published by another run") from None
        sync_folder(dataset)
    sweep(dataset)


def propose(dataset: Path, parts: Iterable[PartFile], facts: Mapping[str, Any]) -> str:
    """Write the manifest under a name that no reader opens; `accept` makes the dataset readable.

    For what must be recorded elsewhere before anybody can read it. Survives a crash.

    Returns:
      The digest that the published dataset will have.

    Raises:
      OutputError: The folder cannot be written.
    """
    with _draft(dataset, parts, facts) as draft:
        draft.replace(dataset / PROPOSED)
        sync_folder(dataset)
    return _digest(dataset / PROPOSED)


def is_proposed(dataset: Path) -> bool:
    """Whether the dataset waits to be accepted or withdrawn."""
    return (dataset / PROPOSED).exists() and not is_published(dataset)


def read_proposal(dataset: Path) -> tuple[str, dict[str, Any]]:
    """Digest and facts of a proposed dataset.

    Raises:
      OutputError: It is not proposed, or the manifest is damaged.
    """
    return _digest(dataset / PROPOSED), _parsed(dataset, PROPOSED).facts


def accept(dataset: Path) -> None:
    """Make a proposed dataset readable, once.

    Raises:
      OutputError: One of its files is missing or damaged, or the dataset was already published.
    """
    for error in find_damage(dataset, PROPOSED):
        raise error
    with writing(dataset / MANIFEST):
        try:
            os.link(dataset / PROPOSED, dataset / MANIFEST)
        except FileExistsError:
            raise OutputError(str(dataset), "was already published by another run") from None
        sync_folder(dataset)
    sweep(dataset)


def withdraw(dataset: Path) -> None:
    """Remove what was proposed, and all that was written for it; what is published stays."""
    (dataset / PROPOSED).unlink(missing_ok=True)
    if not is_published(dataset) and dataset.exists():
        for path in dataset.iterdir():
            if path.is_file():
                path.unlink()


def replace_published(dataset: Path, parts: Iterable[PartFile], facts: Mapping[str, Any]) -> None:
    """Publish other parts and facts in place of those of a published dataset, atomically.

    Raises:
      OutputError: The dataset is not published, or the folder cannot be written.
    """
    Dataset.open(dataset)
    with _draft(dataset, parts, facts) as draft:
        draft.replace(dataset / MANIFEST)
        sync_folder(dataset)
    sweep(dataset)


@contextmanager
def _draft(dataset: Path, parts: Iterable[PartFile], facts: Mapping[str, Any]) -> Iterator[Path]:
    """A manifest on disk under a name of its own, which is gone afterwards."""
    _make_folder(dataset)
    ordered = sorted(parts, key=lambda part: (part.low, part.file))
    document = {"facts": dict(facts), "files": [asdict(part) for part in ordered]}
    draft = dataset / f".{uuid.uuid4().hex}.json"
    with writing(dataset / MANIFEST):
        try:
            make_closed_file(draft)
            with draft.open("w", encoding="utf-8") as handle:
                json.dump(document, handle, indent=1)
                handle.flush()
                os.fsync(handle.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def sweep(root: Path) -> None:
    """Remove the files that no manifest names from every published dataset under a folder.

    They are what lost task attempts and dead drivers left behind, sometimes after publication.
    """
    for manifest in [root / MANIFEST, *root.rglob(MANIFEST)]:
        if not manifest.exists():
            continue
        for path in _unnamed(Dataset.open(manifest.parent)):
            path.unlink(missing_ok=True)


def dataset_digest(dataset: Path) -> str:
    """SHA-256 of the manifest of a published dataset; it covers the digests of all its files."""
    return _digest(dataset / MANIFEST)


def _digest(path: Path) -> str:
    with understanding(path, _AGAIN):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _parsed(dataset: Path, name: str) -> Dataset:
    """What a manifest says, checked.

    Raises:
      OutputError: There is none, or it is damaged.
    """
    path = dataset / name
    if not path.exists():
        raise OutputError(str(dataset), "is not complete", remedy="run the stage that writes it")
    with understanding(path, _AGAIN):
        document = json.loads(path.read_text(encoding="utf-8"))
        parts = tuple(_part(part) for part in document["files"])
        return Dataset(dataset, parts, {**document["facts"]})


def _part(fields: Mapping[str, Any]) -> PartFile:
    part = PartFile(**fields)
    texts = (part.file, part.low, part.high, part.sha256)
    if not all(isinstance(text, str) for text in texts) or "/" in part.file:
        raise ValueError("a file has no name, range or digest")
    if not isinstance(part.rows, int) or not isinstance(part.bytes, int):
        raise ValueError("a file has no number of rows or bytes")
    return part


def _unreadable(dataset: Path, part: PartFile, error: Exception) -> OutputError:
    return OutputError(
        str(dataset / part.file),
        "cannot be read",
        got=type(error).__name__,
        remedy=_AGAIN,
    )


def find_damage(dataset: Path, name: str = MANIFEST) -> list[OutputError]:
    """What is wrong with the named files of a published dataset, by their recorded digests.

    With the name PROPOSED, of a proposed one.
    """
    try:
        parts = _parsed(dataset, name).parts
    except OutputError as error:
        return [error]
    found = []
    for part in parts:
        path = dataset / part.file
        try:
            with path.open("rb") as handle:
                if hashlib.file_digest(handle, "sha256").hexdigest() != part.sha256:
                    what = "was changed after it was published"
                    found.append(OutputError(str(path), what, remedy=_AGAIN))
        except FileNotFoundError:
            found.append(OutputError(str(path), "is missing", remedy=_AGAIN))
        except OSError as error:
            found.append(_unreadable(dataset, part, error))
    return found


def verify_files(dataset: Path) -> None:
    """Check every file of a published dataset against its recorded digest.

    Raises:
      OutputError: A file is missing, was changed, or is not named by the manifest.
    """
    for error in find_damage(dataset):
        raise error
    for path in _unnamed(Dataset.open(dataset)):
        raise OutputError(
            str(path),
            "is not named by the manifest; an attempt that was given up wrote it late",
            remedy="remove it",
        )


def check_sizes(root: Path) -> None:
    """Check that every named file of every published dataset under a folder has its recorded size.

    Raises:
      OutputError: One is missing or of another size.
    """
    for manifest in sorted(root.rglob(MANIFEST)):
        for part in Dataset.open(manifest.parent).parts:
            path = manifest.parent / part.file
            size = path.stat().st_size if path.exists() else None
            if size != part.bytes:
                what = "is missing" if size is None else "was changed after it was published"
                raise OutputError(str(path), what, remedy=_AGAIN)


def _unnamed(dataset: Dataset) -> list[Path]:
    named = {part.file for part in dataset.parts} | {MANIFEST}
    return sorted(p for p in dataset.path.iterdir() if p.name not in named and p.is_file())


def _make_folder(folder: Path) -> None:
    try:
        make_closed_folder(folder)
    except OSError as error:
        raise OutputError(str(folder), "cannot be created", got=error.strerror) from None
