"""Datasets that exist wholly or not at all: part files and one manifest that names them.

A step writes part files under names no other attempt uses, then publishes `_manifest.json` with
one atomic create-if-absent. Readers open only files the manifest names, so a half-written step,
a retried task or a second driver can never be read. Rows are sorted by geocode.

In a store, where nothing can be renamed, the manifest that takes the place of another is
`_manifest.1.json`, and so on; readers open the one with the highest number. Nor is there a lock
there, so another driver may be at work: files that no manifest names are removed only if nobody can
publish them any more.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from das.errors import OutputError
from jobs.storage.files import create_file, json_text, replace_file, understanding, writing
from jobs.storage.modes import make_closed_file, make_closed_folder
from jobs.storage.place import (
    Place,
    StoredPlace,
    found_under,
    open_input,
    remove_tree,
    store_of,
)

MANIFEST = "_manifest.json"
PROPOSED = "_proposed-{}.json"
"""Name of the manifest of an attempt that nobody can read yet."""
_MANIFESTS = re.compile(r"_manifest(?:\.(\d+))?\.json")
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
      replaced: How often others had taken the place of the first manifest; 0 on a disk, where one
        takes the name of another.
    """

    path: Place
    parts: tuple[PartFile, ...] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)
    replaced: int = 0

    @classmethod
    def open(cls, path: Place) -> Dataset:
        """Read the manifest of a published dataset.

        Raises:
          OutputError: It is not published, or the manifest is damaged.
        """
        return _parsed(path, *_current(path))

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
        return replace(self, parts=parts)

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
                open_input(self.path / part.file, part.bytes),
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
            first = self.parts[0]
            schema = pq.read_schema(open_input(self.path / first.file, first.bytes))
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, self.parts[0], error) from None
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        return schema.empty_table()


class PartWriter:
    """Writes one Parquet part file; nothing is readable before the dataset is published.

    Tables are gathered into row groups of about 4 MiB so that ranges of geocodes can be read back
    without the rest. A part for a store is held in memory until it is whole, and never touches the
    disk of the machine that makes it.
    """

    def __init__(self, dataset: Place, schema: pa.Schema, key: str | None = "geocode") -> None:
        """Begin a file.

        Args:
          dataset: Folder of the dataset.
          schema: Its columns.
          key: The column by which rows are sorted; None if they are in no order.
        """
        self._key = key
        self._path = dataset / f"part-{uuid.uuid4().hex}.parquet"
        self._sink = PartSink(self._path)
        with writing(self._path, self._path):
            self._writer = pq.ParquetWriter(self._sink.opened, schema, compression="zstd")
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
        size, digest = self._sink.close()
        return PartFile(self._path.name, self._rows, self._low, self._high, size, digest, facts)


class PartSink:
    """Where the bytes of a part file go while it is written: its file, or memory for a store.

    Attributes:
      opened: What pyarrow writes to.
    """

    def __init__(self, path: Place) -> None:
        """Begin a file for its owner only.

        Raises:
          OutputError: It cannot be created.
        """
        self._path = path
        self.opened: Path | io.BytesIO
        if isinstance(path, StoredPlace):
            self.opened = io.BytesIO()
            return
        _make_folder(path.parent)
        with writing(path, path):
            make_closed_file(path)
        self.opened = path

    def close(self) -> tuple[int, str]:
        """Make what was written survive a crash.

        Returns:
          Bytes and SHA-256 of the file.

        Raises:
          OutputError: It cannot be written.
        """
        if isinstance(self.opened, io.BytesIO):
            data = self.opened.getvalue()
            if not create_file(self._path, data):
                raise OutputError(str(self._path), "cannot be written", got="another file there")
            return len(data), hashlib.sha256(data).hexdigest()
        with writing(self._path, self._path), self.opened.open("rb") as handle:
            os.fsync(handle.fileno())
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            return handle.tell(), digest


def is_published(dataset: Place) -> bool:
    """Whether the dataset is complete."""
    return (dataset / MANIFEST).is_file()


def publish(dataset: Place, parts: Iterable[PartFile], facts: Mapping[str, Any]) -> None:
    """Make the dataset readable, once.

    Files of the folder that no part names are leftovers of failed attempts and are removed.

    Raises:
      OutputError: The dataset was already published, or the folder cannot be written.
    """
    ours = list(parts)
    _make_folder(dataset)
    if not create_file(dataset / MANIFEST, _document(ours, facts)):
        # Our parts were drawn under another key than the published ones.
        _remove(dataset, [part.file for part in ours])
        raise OutputError(str(dataset), "was already published by another run")
    _sweep_one(dataset)


def propose(
    dataset: Place, attempt: str, parts: Iterable[PartFile], facts: Mapping[str, Any]
) -> str:
    """Write the manifest under a name that no reader opens; `accept` makes the dataset readable.

    For what must be recorded elsewhere before anybody can read it. Survives a crash.

    Args:
      dataset: The folder.
      attempt: Of which attempt it is; goes into the facts.
      parts: Its files.
      facts: As of `publish`.

    Returns:
      The digest that the published dataset will have.

    Raises:
      OutputError: The folder cannot be written.
    """
    _make_folder(dataset)
    text = _document(parts, {**facts, "attempt": attempt})
    replace_file(_proposal(dataset, attempt), text)
    return hashlib.sha256(text.encode()).hexdigest()


def is_proposed(dataset: Place, attempt: str) -> bool:
    """Whether the dataset of an attempt waits to be accepted or withdrawn."""
    return _proposal(dataset, attempt).is_file() and not is_published(dataset)


def are_proposed(dataset: Place) -> bool:
    """Whether the dataset of any attempt waits to be accepted or withdrawn."""
    return not is_published(dataset) and any(dataset.glob(PROPOSED.format("*")))


def read_proposal(dataset: Place, attempt: str) -> tuple[str, dict[str, Any]]:
    """Digest and facts of a proposed dataset.

    Raises:
      OutputError: It is not proposed, or the manifest is damaged.
    """
    proposal = _proposal(dataset, attempt)
    return _digest(proposal), _parsed(dataset, proposal).facts


def accept(dataset: Place, attempt: str) -> None:
    """Make a proposed dataset readable, once.

    Raises:
      OutputError: One of its files is missing or damaged, or the dataset was already published.
    """
    proposal = _proposal(dataset, attempt)
    for error in find_damage(dataset, attempt):
        raise error
    with understanding(proposal, _AGAIN):
        text = proposal.read_bytes()
    if not create_file(dataset / MANIFEST, text):
        raise OutputError(str(dataset), "was already published by another run")
    _sweep_one(dataset)


def withdraw(dataset: Place, attempt: str) -> None:
    """Remove what was proposed and must not be used.

    Args:
      dataset: The folder.
      attempt: Of which attempt; files that a published manifest names stay.

    Raises:
      OSError: Something cannot be removed.
      OutputError: A manifest is damaged.
    """
    proposal = _proposal(dataset, attempt)
    if proposal.is_file():
        proposed = [part.file for part in _parsed(dataset, proposal).parts]
        published = Dataset.open(dataset).parts if is_published(dataset) else ()
        named = {part.file for part in published}
        _remove(dataset, [proposal.name, *(name for name in proposed if name not in named)])


def leftovers(dataset: Place) -> list[str]:
    """Names of the files of a dataset that is not published: what attempts at it wrote so far."""
    if is_published(dataset) or not dataset.exists():
        return []
    return [path.name for path in dataset.iterdir() if path.is_file()]


def remove_leftovers(dataset: Place, names: Sequence[str]) -> None:
    """Remove what attempts wrote that can be published no more.

    Raises:
      OSError: Something cannot be removed.
    """
    _remove(dataset, names)


def replace_published(
    dataset: Dataset, parts: Iterable[PartFile], facts: Mapping[str, Any]
) -> None:
    """Publish other parts and facts in place of those of a published dataset, atomically.

    Args:
      dataset: As it was when the parts were made of it. In a store, where another driver may be at
        work, nothing is published if it was replaced since.
      parts: The parts; those of the dataset may be among them.
      facts: What the step says of it.

    Raises:
      OutputError: Another driver replaced it, or the folder cannot be written.
    """
    text = _document(parts, facts)
    if isinstance(dataset.path, StoredPlace) and not create_file(
        dataset.path / _later(dataset.replaced + 1), text
    ):
        raise OutputError(str(dataset.path), "was already published by another run")
    # In a store, for who reads the folder without this program; readers here take the number.
    replace_file(dataset.path / MANIFEST, text)
    _sweep_one(dataset.path)


def remove_dataset(dataset: Place) -> None:
    """Remove a dataset with all that is in its folder; whenever that stops, nothing else is read.

    Manifests go first, the last one before those whose place it took: none may be left that would
    take the place of one that is published later.

    Raises:
      OSError: Something cannot be removed.
    """
    store, name = store_of(dataset)
    names = [entry.rpartition("/")[2] for entry, folder in store.entries(name) if not folder]
    for manifest in sorted(filter(_is_manifest, names), key=_number, reverse=True):
        _remove(dataset, [manifest])
    remove_tree(dataset)


def _document(parts: Iterable[PartFile], facts: Mapping[str, Any]) -> str:
    """A manifest. Its token tells it from one with the same parts, such as none, of another."""
    ordered = sorted(parts, key=lambda part: (part.low, part.file))
    document = {"facts": dict(facts), "files": [asdict(part) for part in ordered]}
    return json_text({**document, "token": uuid.uuid4().hex})


def _proposal(dataset: Place, attempt: str) -> Place:
    return dataset / PROPOSED.format(attempt)


def _current(dataset: Place) -> tuple[Place, int]:
    """The manifest that counts, the last of those that took the place of the first; its number."""
    if isinstance(dataset, Path):
        return dataset / MANIFEST, 0
    for number in count(1):
        if not (dataset / _later(number)).is_file():
            return dataset / (_later(number - 1) if number > 1 else MANIFEST), number - 1
    raise AssertionError


def _later(number: int) -> str:
    return MANIFEST.replace(".", f".{number}.")


def _is_manifest(name: str) -> bool:
    return _MANIFESTS.fullmatch(name) is not None


def _number(manifest: str) -> int:
    match = _MANIFESTS.fullmatch(manifest)
    return int(match[1] or 0) if match else 0


def sweep(root: Place) -> None:
    """Remove the files that no manifest names from every published dataset under a folder.

    They are what lost task attempts and dead drivers left behind, sometimes after publication. To
    be called when no dataset there is still replaced.
    """
    for manifest in [root / MANIFEST, *root.rglob(MANIFEST)]:
        if manifest.is_file():
            if (current := _current(manifest.parent)[0]) != manifest:
                replace_file(manifest, current.read_bytes())  # a driver may have died before it did
            _remove(manifest.parent, [p.name for p in _unnamed(Dataset.open(manifest.parent))])


def _sweep_one(dataset: Place) -> None:
    """Remove what no manifest names from a dataset that was just published.

    In a store another driver may already write what shall take its place, and publish it at any
    time: what is not older than the manifest by which files are judged stays.
    """
    manifest, replaced = _current(dataset)
    unnamed = _unnamed(_parsed(dataset, manifest, replaced))
    if isinstance(dataset, StoredPlace):
        published = manifest.stat().st_mtime_ns
        unnamed = [path for path in unnamed if _is_older(path, published)]
    _remove(dataset, [path.name for path in unnamed])


def _is_older(path: Place, than: int) -> bool:
    try:
        return path.stat().st_mtime_ns < than
    except FileNotFoundError:
        return False


def _remove(dataset: Place, names: Sequence[str]) -> None:
    store, _ = store_of(dataset)
    store.remove([store_of(dataset / name)[1] for name in names])


def dataset_digest(dataset: Place) -> str:
    """SHA-256 of the manifest of a published dataset; it covers the digests of all its files."""
    return _digest(_current(dataset)[0])


def _digest(path: Place) -> str:
    with understanding(path, _AGAIN):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _parsed(dataset: Place, path: Place, replaced: int = 0) -> Dataset:
    """What a manifest says, checked.

    Raises:
      OutputError: There is none, or it is damaged.
    """
    if not path.is_file():
        raise OutputError(str(dataset), "is not complete", remedy="run the stage that writes it")
    with understanding(path, _AGAIN):
        document = json.loads(path.read_text(encoding="utf-8"))
        parts = tuple(_part(part) for part in document["files"])
        return Dataset(dataset, parts, {**document["facts"]}, replaced)


def _part(fields: Mapping[str, Any]) -> PartFile:
    part = PartFile(**fields)
    texts = (part.file, part.low, part.high, part.sha256)
    if not all(isinstance(text, str) for text in texts) or "/" in part.file:
        raise ValueError("a file has no name, range or digest")
    if not isinstance(part.rows, int) or not isinstance(part.bytes, int):
        raise ValueError("a file has no number of rows or bytes")
    return part


def _unreadable(dataset: Place, part: PartFile, error: Exception) -> OutputError:
    return OutputError(
        str(dataset / part.file),
        "cannot be read",
        got=type(error).__name__,
        remedy=_AGAIN,
    )


def find_damage(dataset: Place, attempt: str | None = None) -> list[OutputError]:
    """What is wrong with the named files of a dataset, by their recorded digests.

    Args:
      dataset: The folder.
      attempt: Of which attempt that is proposed; None if it is published.
    """
    manifest = _current(dataset)[0] if attempt is None else _proposal(dataset, attempt)
    try:
        parts = _parsed(dataset, manifest).parts
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


def verify_files(dataset: Place) -> None:
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


def check_sizes(root: Place) -> None:
    """Check that every named file of every published dataset under a folder has its recorded size.

    Raises:
      OutputError: One is missing or of another size.
    """
    for manifest in found_under(root, MANIFEST):
        for part in Dataset.open(manifest.parent).parts:
            path = manifest.parent / part.file
            try:
                size: int | None = path.stat().st_size
            except FileNotFoundError:
                size = None
            if size != part.bytes:
                what = "is missing" if size is None else "was changed after it was published"
                raise OutputError(str(path), what, remedy=_AGAIN)


def _unnamed(dataset: Dataset) -> list[Place]:
    named = {part.file for part in dataset.parts}
    store, name = store_of(dataset.path)
    names = sorted(entry.rpartition("/")[2] for entry, folder in store.entries(name) if not folder)
    return [dataset.path / one for one in names if one not in named and not _is_manifest(one)]


def _make_folder(folder: Place) -> None:
    try:
        make_closed_folder(folder)
    except OSError as error:
        raise OutputError(str(folder), "cannot be created", got=error.strerror) from None
