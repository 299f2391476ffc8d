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
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from das.errors import OutputError
from jobs.pipeline.storage.files import (
    create_file,
    json_text,
    make_closed_file,
    make_closed_folder,
    replace_file,
    understanding,
    writing,
)
from jobs.pipeline.storage.place import (
    READ_AHEAD,
    Place,
    StoredPlace,
    at_once,
    open_input,
    remove_tree,
    store_of,
)
from jobs.pipeline.storage.stores.store import Stat

MANIFEST = "_manifest.json"
PROPOSED = "_proposed-{}.json"
"""Name of the manifest of an attempt that nobody can read yet."""
_MANIFESTS = re.compile(r"_manifest(?:\.(\d+))?\.json")
_DRAFTS = re.compile(r"(?:part-|_proposed-|\..+\.)[0-9a-f]{32}(?:\.\w+)?")  # not yet published
_REPLACEABLE = "replaceable"
_REPLACEABLE_TEXT = f'"{_REPLACEABLE}": true'.encode()  # as json_text writes it
ROW_GROUP_BYTES = 4 << 20
LAST = "\x7f"  # greater than every geocode

_AGAIN = "`das run` with the run folder says what can be made again, and makes it"


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
      sha256: Digest of the manifest.
      replaceable: Whether it was published as one that `replace_published` may replace.
    """

    path: Place
    parts: tuple[PartFile, ...] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)
    replaced: int = 0
    sha256: str = field(default="", repr=False, compare=False)
    replaceable: bool = field(default=False, repr=False, compare=False)

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
        return RangeReader(self, columns).read(low, high)


@dataclass(frozen=True, eq=False)
class _OpenPart:
    """A part file that is being read.

    Attributes:
      file: What reads it.
      names: Columns that are read; None for all.
      bounds: Smallest and largest geocode of every row group.
    """

    file: pq.ParquetFile
    names: list[str] | None
    bounds: Sequence[tuple[str, str]]

    def read(self, groups: Sequence[int]) -> list[pa.Table]:
        """Some row groups, all by one reading."""
        if not groups:
            return []
        found = self.file.read_row_groups(groups, columns=self.names, use_threads=False)
        sizes = [self.file.metadata.row_group(group).num_rows for group in groups]
        starts = accumulate(sizes, initial=0)
        return [found.slice(start, size) for start, size in zip(starts, sizes, strict=False)]


class RangeReader:
    """Reads ranges of a dataset one after the other, each row group once if they ascend.

    Row groups are told apart by their statistics. The last ones of a range are held until the
    ranges have passed them, so that a task that reads piece by piece decodes nothing twice.
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | None = None,
        *,
        without: Collection[str] = (),
        query: str | None = None,
    ) -> None:
        """Begin.

        Args:
          dataset: What to read.
          columns: Columns wanted; default all.
          without: Columns to leave out, if there are such; not the geocode.
          query: Rows of this query alone are wanted; row groups without any are not read. Others
            may come along.
        """
        self.dataset = dataset
        self.path = dataset.path
        self._without = without
        self._query = query
        self._names = None if columns is None else list(columns)
        self._opened: dict[str, _OpenPart] = {}
        self._held: dict[tuple[str, int], pa.Table] = {}

    def read(self, low: str = "", high: str = LAST) -> pa.Table:
        """Read the rows with low <= geocode <= high; see `Dataset.read`.

        Raises:
          OutputError: A named file is missing or unreadable.
        """
        parts = self.dataset.within(low, high).parts
        self._opened = {p.file: self._opened[p.file] for p in parts if p.file in self._opened}
        held, self._held = self._held, {}
        tables: list[pa.Table] = []
        for part in parts:
            with _reading(self.path, part):
                tables += self._read_part(part, low, high, held)
        if not tables:
            return self._empty()
        with understanding(self.path, _AGAIN):  # parts may differ in their columns
            found = pa.concat_tables(tables)
        return found if self._names is None else found.select(self._names)

    def _read_part(
        self, part: PartFile, low: str, high: str, held: dict[tuple[str, int], pa.Table]
    ) -> list[pa.Table]:
        if part.file not in self._opened:
            self._opened[part.file] = self._open(part)
        opened = self._opened[part.file]
        groups = [
            group
            for group, (first, last) in enumerate(opened.bounds)
            if first <= high and last >= low and self._may_be_wanted(opened.file, group)
        ]
        found = {group: held[part.file, group] for group in groups if (part.file, group) in held}
        fresh = [group for group in groups if group not in found]
        # Two readings: what is held must not hold what is done with in the same memory.
        for is_held in (False, True):
            some = [group for group in fresh if (opened.bounds[group][1] > high) is is_held]
            found |= zip(some, opened.read(some), strict=True)
        tables = []
        for group in groups:
            first, last = opened.bounds[group]
            if last > high:
                self._held[part.file, group] = found[group]
            inside = low <= first and last <= high
            tables += [found[group]] if inside else _cut(found[group], low, high)
        return tables or [found[group].slice(0, 0) for group in groups[:1]]

    def _open(self, part: PartFile) -> _OpenPart:
        """Open a part; of a stored one, its footer is read, and pieces asked for together."""
        path = self.path / part.file
        stored = isinstance(path, StoredPlace)
        file = pq.ParquetFile(open_input(path, part.bytes), pre_buffer=stored)
        held = file.schema_arrow.names
        if "geocode" in held and file.schema_arrow.field("geocode").type != pa.string():
            raise ValueError("column geocode holds no text")
        names = self._names or held
        if "geocode" not in names:
            names = [*names, "geocode"]  # by which row groups are cut
        for name in names if self._names is not None else ():
            if name not in held:
                raise KeyError(f"column {name}")
        bounds = [("", LAST)] * file.num_row_groups
        if "geocode" in held:
            bounds = [_bounds_of(file, group, "geocode") for group in range(file.num_row_groups)]
        is_all = self._names is None and not self._without
        wanted = [name for name in names if name not in self._without]
        return _OpenPart(file, None if is_all else wanted, bounds)

    def _may_be_wanted(self, file: pq.ParquetFile, group: int) -> bool:
        """Whether a row group may have rows of the query, if one is named."""
        if self._query is None:
            return True
        least, most = _bounds_of(file, group, "query")
        return least <= self._query <= most

    def _empty(self) -> pa.Table:
        parts = self.dataset.parts
        if not parts:
            return pa.schema([]).empty_table()
        with _reading(self.path, parts[0]):
            schema = pq.read_schema(open_input(self.path / parts[0].file, parts[0].bytes))
            names = schema.names if self._names is None else self._names
            fields = [schema.field(name) for name in names if name not in self._without]
        return pa.schema(fields).empty_table()


def _bounds_of(file: pq.ParquetFile, group: int, name: str) -> tuple[str, str]:
    """Smallest and largest value of a row group; all there can be if the file does not say."""
    columns = file.metadata.row_group(group)
    facts = columns.column(file.schema.names.index(name)).statistics
    if facts is None or not facts.has_min_max:
        return "", LAST
    return facts.min, facts.max


def _cut(table: pa.Table, low: str, high: str) -> list[pa.Table]:
    """The rows with low <= geocode <= high, as runs of them that are not copied."""
    codes = table.column("geocode")
    within = pc.and_(pc.greater_equal(codes, low), pc.less_equal(codes, high))
    edges = np.flatnonzero(np.diff(np.asarray(within, np.int8), prepend=0, append=0))
    return [table.slice(a, b - a) for a, b in edges.reshape(-1, 2).tolist()]


class PartSink:
    """A part file while it is written: where its bytes go, and what is known of its rows.

    They go to the file, or to memory for a store.

    Attributes:
      path: The file.
      opened: What pyarrow writes to.
    """

    def __init__(self, dataset: Place, ending: str, *, spooled: bool = False) -> None:
        """Begin a file for its owner only.

        Args:
          dataset: Folder of the dataset.
          ending: Of the name of the file.
          spooled: Whether one for a store may lie on the disk of this machine while it is written:
            it is public, and may be too large for memory.

        Raises:
          OutputError: It cannot be created.
        """
        self.path = path = dataset / f"part-{uuid.uuid4().hex}.{ending}"
        self._rows, self._low, self._high = 0, "", ""
        self._spool: tempfile.TemporaryDirectory[str] | None = None
        self.opened: Path | io.BytesIO
        if isinstance(path, StoredPlace) and spooled:
            self._spool = tempfile.TemporaryDirectory(prefix="das-")
            self.opened = Path(self._spool.name) / path.name
        elif isinstance(path, StoredPlace):
            self.opened = io.BytesIO()
        else:
            _make_folder(path.parent)
            with writing(path, path):
                make_closed_file(path)
            self.opened = path

    def note(self, table: pa.Table, key: str | None) -> None:
        """Take in what rows are written, sorted by a column if one is named."""
        if key is not None and table.num_rows:
            codes = table.column(key)
            self._low = self._low if self._rows else codes[0].as_py()
            self._high = codes[-1].as_py()
        self._rows += table.num_rows

    def close(self, facts: Mapping[str, Any] = MappingProxyType({})) -> PartFile:
        """Make what was written survive a crash, and describe it.

        Raises:
          OutputError: It cannot be written.
        """
        if isinstance(self.opened, io.BytesIO):
            data = self.opened.getvalue()
            if not create_file(self.path, data):
                raise OutputError(str(self.path), "cannot be written", got="another file there")
            size, digest = len(data), hashlib.sha256(data).hexdigest()
        else:
            with writing(self.path, self.path), self.opened.open("rb") as handle:
                if self._spool is None:
                    os.fsync(handle.fileno())
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
                size = handle.tell()
                if self._spool is not None:
                    store, name = store_of(self.path)
                    store.upload(name, self.opened)
                    self._spool.cleanup()
        rows = self._rows, self._low, self._high
        return PartFile(self.path.name, *rows, size, digest, {**facts})


class PartWriter:
    """Writes one Parquet part file; nothing is readable before the dataset is published.

    Tables are gathered into row groups of about 4 MiB so that ranges of geocodes can be read back
    without the rest. A part for a store is held in memory until it is whole, and never touches the
    disk of the machine that makes it.
    """

    def __init__(
        self,
        dataset: Place,
        schema: pa.Schema,
        key: str | None = "geocode",
        *,
        uncompressed: Sequence[str] = (),
        spooled: bool = False,
    ) -> None:
        """Begin a file.

        Args:
          dataset: Folder of the dataset.
          schema: Its columns.
          key: The column by which rows are sorted; None if they are in no order.
          uncompressed: Columns that hardly compress; they have no dictionary either.
          spooled: As of `PartSink`.
        """
        self._key = key
        self._sink = PartSink(dataset, "parquet", spooled=spooled)
        with writing(self._sink.path, self._sink.path):
            options = _options(schema, uncompressed)
            self._writer = pq.ParquetWriter(self._sink.opened, schema, **options)
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def write(self, table: pa.Table) -> None:
        """Append rows; geocodes must not fall below those already written."""
        if table.num_rows:
            self._sink.note(table, self._key)
            self._waiting.append(table)
            self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def write_apart(self, tables: Iterable[pa.Table]) -> None:
        """Append tables about the same geounits, each as a row group of its own.

        Compression works per row group, and does best where the values of one have one scale.
        """
        self._flush()
        for table in tables:
            if table.num_rows:
                self._sink.note(table, self._key)
                self._waiting.append(table)
                self._flush()

    def _flush(self) -> None:
        """Write what waits as one row group."""
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            with writing(self._sink.path, self._sink.path):
                self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._waiting, self._waiting_bytes = [], 0

    def close(self, **facts: Any) -> PartFile:  # noqa: ANN401 - JSON facts
        """Finish the file and describe it; it survives a crash of the machine from then on."""
        self._flush()
        with writing(self._sink.path, self._sink.path):
            self._writer.close()
        return self._sink.close(facts)


def _options(schema: pa.Schema, uncompressed: Sequence[str]) -> dict[str, Any]:
    """How Parquet writes columns.

    A dictionary is tried where values may repeat: what noise went into hardly does. Statistics, by
    which readers choose row groups, are kept of columns other than lists and bytes.
    """
    compression, dictionaries, statistics = {}, [], []
    for column in schema:
        is_list, is_bytes = pa.types.is_list(column.type), pa.types.is_binary(column.type)
        path = f"{column.name}.list.element" if is_list else column.name  # as Parquet names it
        values = column.type.value_type if is_list else column.type
        compression[path] = "none" if path in uncompressed else "zstd"
        if not (is_bytes or pa.types.is_floating(values) or path in uncompressed):
            dictionaries.append(path)
        if not (is_bytes or pa.types.is_nested(column.type)):
            statistics.append(column.name)
    return {
        "compression": compression,
        "use_dictionary": sorted(dictionaries),
        "write_statistics": statistics,
    }


def is_published(dataset: Place) -> bool:
    """Whether the dataset is complete."""
    return (dataset / MANIFEST).is_file()


def publish(
    dataset: Place,
    parts: Iterable[PartFile],
    facts: Mapping[str, Any],
    *,
    replaceable: bool = False,
    names: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make the dataset readable, once.

    Files of the folder that no part names are leftovers of failed attempts and are removed.

    Args:
      dataset: The folder.
      parts: Its files.
      facts: What readers are told of it; JSON.
      replaceable: Whether `replace_published` may be called; in a store readers then ask for later
        manifests too.
      names: By the names of parts, those that they get: for people. Whoever makes the dataset again
        makes the same files, so that it does not matter whose has the name.

    Raises:
      OutputError: The dataset was already published, or the folder cannot be written.
    """
    ours = list(parts)
    _make_folder(dataset)
    if names and not is_published(dataset):
        ours = [_renamed(dataset, part, names) for part in ours]
    if not create_file(dataset / MANIFEST, _document(ours, facts, replaceable=replaceable)):
        # Our parts were drawn under another key than the published ones.
        named = {part.file for part in Dataset.open(dataset).parts} if names else set()
        remove_files(dataset, [part.file for part in ours if part.file not in named])
        raise _published_by_another(dataset)
    _sweep_one(dataset, ours)


def _renamed(dataset: Place, part: PartFile, names: Mapping[str, str]) -> PartFile:
    if part.file not in names:
        return part
    (store, name), (_, other) = (store_of(dataset / one) for one in (part.file, names[part.file]))
    with writing(dataset / names[part.file]):
        store.rename(name, other)
    return replace(part, file=names[part.file])


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


def read_proposal(dataset: Place, attempt: str) -> Dataset:
    """Read the manifest of a proposed dataset.

    Raises:
      OutputError: It is not proposed, or the manifest is damaged.
    """
    path = _proposal(dataset, attempt)
    return _parsed(dataset, path, 0, _manifest_bytes(dataset, path))


def accept(dataset: Place, attempt: str) -> None:
    """Make a proposed dataset readable, once.

    Raises:
      OutputError: One of its files is missing or damaged, or the dataset was already published.
    """
    proposal = _proposal(dataset, attempt)
    for error in find_damage(dataset, attempt):
        # Whoever took over from a driver that slept may have accepted what it proposed.
        raise _published_by_another(dataset) if is_published(dataset) else error
    data = _manifest_bytes(dataset, proposal)
    if not create_file(dataset / MANIFEST, data):
        raise _published_by_another(dataset)
    _sweep_one(dataset, _parsed(dataset, proposal, 0, data).parts)


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
        proposed = [part.file for part in read_proposal(dataset, attempt).parts]
        published = Dataset.open(dataset).parts if is_published(dataset) else ()
        named = {part.file for part in published}
        remove_files(dataset, [proposal.name, *(name for name in proposed if name not in named)])


def leftovers(dataset: Place) -> list[str]:
    """Names of the files of a dataset that is not published: what attempts at it wrote so far."""
    files = _files_of(dataset)
    return [] if MANIFEST in files else [*files]


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
      ValueError: It lies in a store, whose readers do not look for a later manifest of it.
    """
    ours = list(parts)
    text, name = _document(ours, facts, replaceable=True), MANIFEST
    if isinstance(dataset.path, StoredPlace):
        if not dataset.replaceable:
            raise ValueError(f"{dataset.path} was published as one that is not replaced")
        name = _later(dataset.replaced + 1)
        if not create_file(dataset.path / name, text):
            raise _published_by_another(dataset.path)
    # In a store, for who reads the folder without this program; readers here take the number.
    replace_file(dataset.path / MANIFEST, text)
    _sweep_one(dataset.path, ours, name)


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
        remove_files(dataset, [manifest])
    remove_tree(dataset)


def _document(
    parts: Iterable[PartFile], facts: Mapping[str, Any], *, replaceable: bool = False
) -> str:
    """A manifest. Its token tells it from one with the same parts, such as none, of another."""
    ordered = sorted(parts, key=lambda part: (part.low, part.file))
    document = {"facts": dict(facts), "files": [asdict(part) for part in ordered]}
    mark = {_REPLACEABLE: True} if replaceable else {}
    return json_text({**document, **mark, "token": uuid.uuid4().hex})


def _proposal(dataset: Place, attempt: str) -> Place:
    return dataset / PROPOSED.format(attempt)


def _current(dataset: Place) -> tuple[Place, int, bytes]:
    """The manifest that counts, the last of those that took the place of the first.

    Returns:
      The file, its number and what it holds.

    Raises:
      OutputError: There is none, or it cannot be read.
    """
    path: Place = dataset / MANIFEST
    data = _manifest_bytes(dataset, path)
    if isinstance(dataset, StoredPlace) and _REPLACEABLE_TEXT in data:
        for number in count(1):
            later = dataset / _later(number)
            try:
                with understanding(later, _AGAIN, absent=True):
                    data = later.read_bytes()
            except FileNotFoundError:
                return path, number - 1, data
            path = later
    return path, 0, data


def _manifest_bytes(dataset: Place, path: Place) -> bytes:
    try:
        with understanding(path, _AGAIN, absent=True):
            return path.read_bytes()
    except FileNotFoundError:
        remedy = "run the stage that writes it"
        raise OutputError(str(dataset), "is not complete", remedy=remedy) from None


def _later(number: int) -> str:
    return MANIFEST.replace(".", f".{number}.")


def _is_manifest(name: str) -> bool:
    return _MANIFESTS.fullmatch(name) is not None


def _number(manifest: str) -> int:
    match = _MANIFESTS.fullmatch(manifest)
    return int(match[1] or 0) if match else 0


def sweep(root: Place) -> None:
    """Remove what lost task attempts and dead drivers left behind, sometimes after publication.

    That is what no manifest names in every published dataset under a folder, and part files and
    drafts everywhere else. To be called when nothing there is still written.
    """

    def sweep_whole(found: tuple[Place, Mapping[str, Stat]]) -> None:
        dataset, files = found
        path, number, data = _current(dataset)
        if number:
            replace_file(dataset / MANIFEST, data)  # a driver may have died before it did
        remove_files(dataset, _unnamed(_parsed(dataset, path, number, data).parts, files))

    at_once(root, sweep_whole, [own for own in _folders_under(root) if MANIFEST in own[1]])
    for path in files_beside_datasets(root):
        if _DRAFTS.fullmatch(path.name):
            remove_files(path.parent, [path.name])


def files_beside_datasets(root: Place) -> list[Place]:
    """List the files under a folder that lie in no published dataset, sorted."""
    found = [
        folder / name
        for folder, files in _folders_under(root)
        if MANIFEST not in files
        for name in files
    ]
    return sorted(found, key=str)


def _sweep_one(dataset: Place, parts: Iterable[PartFile], manifest: str = MANIFEST) -> None:
    """Remove what no manifest names from a dataset that was just published.

    In a store another driver may already write what shall take its place, and publish it at any
    time: what is not older than the manifest by which files are judged stays, and all of it if
    that manifest counts no more.
    """
    files = _files_of(dataset)
    unnamed = _unnamed(parts, files)
    if isinstance(dataset, StoredPlace):
        if max(filter(_is_manifest, files), key=_number, default="") != manifest:
            return
        published = files[manifest].st_mtime_ns
        unnamed = [name for name in unnamed if files[name].st_mtime_ns < published]
    remove_files(dataset, unnamed)


def _files_of(folder: Place) -> dict[str, Stat]:
    """The files that lie directly in a folder, by name."""
    return dict(_folders_under(folder)).get(folder, {})


def _folders_under(root: Place) -> list[tuple[Place, dict[str, Stat]]]:
    """Every folder that holds files, at any depth, and the files that lie directly in it."""
    store, name = store_of(root)
    folders: dict[str, dict[str, Stat]] = defaultdict(dict)
    for file, stat in store.stats(name):
        folder, _, base = file.rpartition("/")
        folders[folder][base] = stat
    return [
        (StoredPlace(root.root, folder) if isinstance(root, StoredPlace) else Path(folder), files)
        for folder, files in sorted(folders.items())
    ]


def _unnamed(parts: Iterable[PartFile], files: Iterable[str]) -> list[str]:
    """Names of the files that no manifest names, sorted."""
    named = {part.file for part in parts}
    return sorted(name for name in files if name not in named and not _is_manifest(name))


def remove_files(dataset: Place, names: Sequence[str]) -> None:
    """Remove files of a dataset by their names, such as leftovers that can be published no more.

    Raises:
      OSError: Something cannot be removed.
    """
    if names:
        store, _ = store_of(dataset)
        store.remove([store_of(dataset / name)[1] for name in names])


def dataset_digest(dataset: Place) -> str:
    """SHA-256 of the manifest of a published dataset; it covers the digests of all its files."""
    return hashlib.sha256(_current(dataset)[2]).hexdigest()


@lru_cache(maxsize=16)  # tasks of one process open the same few, of a nation thousands of parts
def _parsed(dataset: Place, path: Place, replaced: int, data: bytes) -> Dataset:
    """What a manifest says, checked.

    Raises:
      OutputError: It is damaged.
    """
    with understanding(path, _AGAIN):
        document = json.loads(data)
        parts = tuple(_part(part) for part in document["files"])
        return Dataset(
            dataset,
            parts,
            {**document["facts"]},
            replaced,
            hashlib.sha256(data).hexdigest(),
            document.get(_REPLACEABLE) is True,
        )


def _part(fields: Mapping[str, Any]) -> PartFile:
    part = PartFile(**fields)
    texts = (part.file, part.low, part.high, part.sha256)
    is_named = all(isinstance(text, str) for text in texts)
    if not is_named or "/" in part.file or part.file in ("", ".", ".."):
        raise ValueError("a file has no name, range or digest")
    if not isinstance(part.rows, int) or not isinstance(part.bytes, int):
        raise ValueError("a file has no number of rows or bytes")
    return part


def _published_by_another(dataset: Place) -> OutputError:
    return OutputError(str(dataset), "was already published by another run")


@contextmanager
def _reading(dataset: Place, part: PartFile) -> Iterator[None]:
    """Make what a damaged part file leads to an error that names the file."""
    with understanding(dataset / part.file, _AGAIN):
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(dataset, part, error) from None


def _unreadable(dataset: Place, part: PartFile, error: Exception) -> OutputError:
    path, got = str(dataset / part.file), type(error).__name__
    return OutputError(path, "cannot be read", got=got, remedy=_AGAIN)


def find_damage(dataset: Place, attempt: str | None = None) -> list[OutputError]:
    """What is wrong with the named files of a dataset, by their recorded digests.

    Args:
      dataset: The folder.
      attempt: Of which attempt that is proposed; None if it is published.
    """
    try:
        found = Dataset.open(dataset) if attempt is None else read_proposal(dataset, attempt)
    except OutputError as error:
        return [error]
    damage = at_once(dataset, lambda part: _damage_of(dataset, part), found.parts)
    return [error for error in damage if error is not None]


def _damage_of(dataset: Place, part: PartFile) -> OutputError | None:
    path = dataset / part.file
    try:
        if isinstance(path, StoredPlace) and part.bytes <= READ_AHEAD:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            with path.open("rb") as handle:
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except FileNotFoundError:
        return OutputError(str(path), "is missing", remedy=_AGAIN)
    except OSError as error:
        return _unreadable(dataset, part, error)
    if digest == part.sha256:
        return None
    return OutputError(str(path), "was changed after it was published", remedy=_AGAIN)


def verify_files(dataset: Place) -> None:
    """Check every file of a published dataset against its recorded digest.

    Raises:
      OutputError: A file is missing, was changed, or is not named by the manifest.
    """
    for error in find_damage(dataset):
        raise error
    for name in _unnamed(Dataset.open(dataset).parts, _files_of(dataset)):
        raise OutputError(
            str(dataset / name),
            "is not named by the manifest; an attempt that was given up wrote it late",
            remedy="remove it",
        )


def check_sizes(root: Place) -> None:
    """Check that every named file of every published dataset under a folder has its recorded size.

    Raises:
      OutputError: One is missing or of another size.
    """
    found = [own for own in _folders_under(root) if MANIFEST in own[1]]
    opened = at_once(root, Dataset.open, [dataset for dataset, _ in found])
    for dataset, (_, files) in zip(opened, found, strict=True):
        for part in dataset.parts:
            size = files[part.file].st_size if part.file in files else None
            if size != part.bytes:
                what = "is missing" if size is None else "was changed after it was published"
                raise OutputError(str(dataset.path / part.file), what, remedy=_AGAIN)


def _make_folder(folder: Place) -> None:
    try:
        make_closed_folder(folder)
    except OSError as error:
        raise OutputError(str(folder), "cannot be created", got=error.strerror) from None
