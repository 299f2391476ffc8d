"""Datasets that exist completely or not at all: part files and one manifest that names them.

A step writes part files under unique names, then publishes `_manifest.json` by one atomic
create-if-absent. Readers open only files that the manifest names, so results of an interrupted
step, a retried task or a second driver are never read. Rows are sorted by geocode.

Object stores cannot rename. There a replaced manifest is `_manifest.1.json`, and so on; readers
open the one with the highest number. There is no lock either, so another driver can be at work:
files that no manifest names are removed only when no driver can publish them any more.
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

from das.errors import DamageError, OutputError
from jobs.pipeline.storage.files import (
    create_file,
    json_text,
    make_closed_folder,
    naming_file,
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
from jobs.pipeline.storage.stores.store import OWNER_ONLY, Stat

MANIFEST = "_manifest.json"
PROPOSED = "_proposed-{}.json"
"""Name of the manifest of an attempt that is not published yet."""
_MANIFESTS = re.compile(r"_manifest(?:\.(\d+))?\.json")
_DRAFTS = re.compile(r"(?:part-|_proposed-|\..+\.)[0-9a-f]{32}(?:\.\w+)?")  # not yet published
_REPLACEABLE = "replaceable"
_REPLACEABLE_TEXT = f'"{_REPLACEABLE}": true'.encode()  # as json_text writes it
ROW_GROUP_BYTES = 4 << 20
LAST = "\x7f"  # greater than every geocode

_AGAIN = (
    "`das run OUT` makes it again if possible; if you have no OUT, ask the publisher for a copy"
)


@dataclass(frozen=True, slots=True)
class PartFile:
    """One committed file.

    Attributes:
      file: Path relative to the dataset.
      rows: Number of rows.
      low: Smallest geocode, "" if empty.
      high: Largest geocode.
      bytes: Size on disk.
      sha256: Digest of the file.
      facts: Small JSON facts from the task to the driver.
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
    """An opened dataset: a folder, and its manifest at the time of opening.

    A task opens each dataset once, and passes this value to its readers.

    Attributes:
      path: The folder.
      parts: The part files, sorted by first geocode.
      facts: JSON facts from the step that wrote the dataset.
      replaced: Number of the manifest in a store, from 0; 0 on a disk, where a new manifest takes
        the name of the old one.
      sha256: Digest of the manifest.
      replaceable: Whether `replace_published` may replace the dataset.
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
          OutputError: The dataset is not published, or the manifest is damaged.
        """
        return _parsed(path, *_current(path))

    @property
    def rows(self) -> int:
        """Return the number of rows of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        """Return the size of all parts on disk, without the manifest."""
        return sum(part.bytes for part in self.parts)

    def require_format(self, number: int) -> None:
        """Refuse files of another format than the format `number`; exact answers name none.

        Raises:
          OutputError: The facts name another format: another version wrote the files.
        """
        if (found := self.facts.get("format", number)) != number:
            what = "is in a format that this version does not read"
            raise OutputError(str(self.path), what, got=found, want=number)

    def within(self, low: str = "", high: str = LAST) -> Dataset:
        """Return the dataset without the parts that hold no geocode of low..high."""
        parts = tuple(p for p in self.parts if p.rows and p.high >= low and p.low <= high)
        return replace(self, parts=parts)

    def read(
        self, low: str = "", high: str = LAST, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read the rows with low <= geocode <= high, in the order they were written.

        Args:
          low: Smallest geocode to read.
          high: Largest geocode to read.
          columns: Columns to read; None for all.

        Returns:
          The rows; if there are none, an empty table with the columns, if the dataset has a part.

        Raises:
          OutputError: A named file is missing or unreadable.
        """
        return RangeReader(self, columns).read(low, high)


@dataclass(frozen=True, eq=False)
class _OpenPart:
    """A part file that is being read.

    Attributes:
      file: The opened Parquet file.
      names: Columns to read; None for all.
      bounds: Smallest and largest geocode of every row group.
    """

    file: pq.ParquetFile
    names: list[str] | None
    bounds: Sequence[tuple[str, str]]

    def read(self, groups: Sequence[int]) -> list[pa.Table]:
        """Read some row groups in one call."""
        if not groups:
            return []
        rows = self.file.read_row_groups(groups, columns=self.names, use_threads=False)
        sizes = [self.file.metadata.row_group(group).num_rows for group in groups]
        starts = accumulate(sizes, initial=0)
        return [rows.slice(start, size) for start, size in zip(starts, sizes, strict=False)]


class RangeReader:
    """Reader of ranges of a dataset; ascending ranges decode each row group once.

    Row groups are selected by their statistics. The last row groups of a range are kept until later
    ranges have passed them, so a task that reads piece by piece decodes nothing twice.
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | None = None,
        *,
        without: Collection[str] = (),
        query: str | None = None,
    ) -> None:
        """Open a reader; no file is read yet.

        Args:
          dataset: The dataset.
          columns: Columns to read; None for all.
          without: Columns that are not read even if present; never the geocode.
          query: Skip row groups without rows of this query. Rows of other queries can still occur.
        """
        self.dataset = dataset
        self.path = dataset.path
        self._without = without
        self._query = query
        self._names = None if columns is None else list(columns)
        self._opened: dict[str, _OpenPart] = {}
        self._kept: dict[tuple[str, int], pa.Table] = {}

    def read(self, low: str = "", high: str = LAST) -> pa.Table:
        """Read the rows with low <= geocode <= high; see `Dataset.read`.

        Raises:
          OutputError: A named file is missing or unreadable.
        """
        parts = self.dataset.within(low, high).parts
        self._opened = {p.file: self._opened[p.file] for p in parts if p.file in self._opened}
        kept, self._kept = self._kept, {}
        tables: list[pa.Table] = []
        for part in parts:
            with _reading(self.path, part):
                tables += self._read_part(part, low, high, kept)
        if not tables:
            return self._empty()
        with understanding(self.path, _AGAIN):  # parts may differ in their columns
            rows = pa.concat_tables(tables)
        return rows if self._names is None else rows.select(self._names)

    def _read_part(
        self, part: PartFile, low: str, high: str, kept: dict[tuple[str, int], pa.Table]
    ) -> list[pa.Table]:
        if part.file not in self._opened:
            self._opened[part.file] = self._open(part)
        opened = self._opened[part.file]
        groups = [
            group
            for group, (first, last) in enumerate(opened.bounds)
            if first <= high and last >= low and self._may_be_wanted(opened.file, group)
        ]
        tables_of = {g: kept[part.file, g] for g in groups if (part.file, g) in kept}
        fresh = [group for group in groups if group not in tables_of]
        # Two readings, so that kept row groups do not keep finished ones in shared memory.
        for is_held in (False, True):
            some = [group for group in fresh if (opened.bounds[group][1] > high) is is_held]
            tables_of |= zip(some, opened.read(some), strict=True)
        tables = []
        for group in groups:
            first, last = opened.bounds[group]
            if last > high:
                self._kept[part.file, group] = tables_of[group]
            inside = low <= first and last <= high
            tables += [tables_of[group]] if inside else _cut(tables_of[group], low, high)
        return tables or [tables_of[group].slice(0, 0) for group in groups[:1]]

    def _open(self, part: PartFile) -> _OpenPart:
        """Open a part; in a store, the footer is read and requests are combined."""
        path = self.path / part.file
        stored = isinstance(path, StoredPlace)
        file = pq.ParquetFile(open_input(path, part.bytes), pre_buffer=stored)
        present = file.schema_arrow.names
        if "geocode" in present and file.schema_arrow.field("geocode").type != pa.string():
            raise ValueError("column geocode holds no text")
        names = self._names or present
        if "geocode" not in names:
            names = [*names, "geocode"]  # by which row groups are cut
        for name in names if self._names is not None else ():
            if name not in present:
                raise KeyError(f"column {name}")
        bounds = [("", LAST)] * file.num_row_groups
        if "geocode" in present:
            bounds = [_bounds_of(file, group, "geocode") for group in range(file.num_row_groups)]
        is_all = self._names is None and not self._without
        wanted = [name for name in names if name not in self._without]
        return _OpenPart(file, None if is_all else wanted, bounds)

    def _may_be_wanted(self, file: pq.ParquetFile, group: int) -> bool:
        """Return whether a row group can have rows of the query; true without a query."""
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
    """Return smallest and largest value of a row group; the widest range without statistics."""
    columns = file.metadata.row_group(group)
    facts = columns.column(file.schema.names.index(name)).statistics
    if facts is None or not facts.has_min_max:
        return "", LAST
    return facts.min, facts.max


def _cut(table: pa.Table, low: str, high: str) -> list[pa.Table]:
    """Select the rows with low <= geocode <= high as slices that are not copied."""
    codes = table.column("geocode")
    within = pc.and_(pc.greater_equal(codes, low), pc.less_equal(codes, high))
    edges = np.flatnonzero(np.diff(np.asarray(within, np.int8), prepend=0, append=0))
    return [table.slice(a, b - a) for a, b in edges.reshape(-1, 2).tolist()]


class PartSink:
    """Target of a part file while it is written, with statistics of its rows.

    Bytes go to the file, or to memory for a store.

    Attributes:
      path: The file.
      opened: The path or buffer that pyarrow writes to.
    """

    def __init__(self, dataset: Place, ending: str, *, spooled: bool = False) -> None:
        """Create a file that only its owner can read.

        Args:
          dataset: Folder of the dataset.
          ending: Suffix of the file name.
          spooled: Whether a file for a store may be written to the local disk first: the file is
            public, and can be too large for memory.

        Raises:
          OutputError: The file cannot be created.
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
                path.touch(mode=OWNER_ONLY, exist_ok=False)
            self.opened = path

    def note(self, table: pa.Table, key: str | None) -> None:
        """Count written rows, and update the range of the sort column `key` if rows are sorted."""
        if key is not None and table.num_rows:
            codes = table.column(key)
            self._low = self._low if self._rows else codes[0].as_py()
            self._high = codes[-1].as_py()
        self._rows += table.num_rows

    def close(self, facts: Mapping[str, Any] = MappingProxyType({})) -> PartFile:
        """Sync the file to disk or upload it, and describe it.

        Raises:
          OutputError: The file cannot be written.
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
    """Writer of one Parquet part file; readers see it once the dataset is published.

    Tables are gathered into row groups of about 4 MiB, so that ranges of geocodes can be read
    alone. A part for a store is held in memory until complete, and never touches the local disk.
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
        """Create a part file.

        Args:
          dataset: Folder of the dataset.
          schema: The columns.
          key: The column by which rows are sorted; None if rows are unsorted.
          uncompressed: Columns that hardly compress; they get no dictionary either.
          spooled: Passed to `PartSink`.
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
        """Append tables about the same geounits, each as a separate row group.

        Compression works per row group, and is best where its values have one scale.
        """
        self._flush()
        for table in tables:
            if table.num_rows:
                self._sink.note(table, self._key)
                self._waiting.append(table)
                self._flush()

    def _flush(self) -> None:
        """Write the waiting tables as one row group."""
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            with writing(self._sink.path, self._sink.path):
                self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._waiting, self._waiting_bytes = [], 0

    def close(self, **facts: Any) -> PartFile:  # noqa: ANN401 - JSON facts
        """Finish and sync the file, and describe it."""
        self._flush()
        with writing(self._sink.path, self._sink.path):
            self._writer.close()
        return self._sink.close(facts)


def _options(schema: pa.Schema, uncompressed: Sequence[str]) -> dict[str, Any]:
    """Return the Parquet options of columns.

    Columns whose values can repeat get a dictionary; noisy floats get none. Columns other than
    lists and bytes get statistics, by which readers select row groups.
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
    """Return whether the dataset is complete."""
    return (dataset / MANIFEST).is_file()


def publish(
    dataset: Place,
    parts: Iterable[PartFile],
    facts: Mapping[str, Any],
    *,
    replaceable: bool = False,
    names: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Publish a dataset, once.

    Other files of the folder are leftovers of failed attempts and are removed.

    Args:
      dataset: The folder.
      parts: The part files.
      facts: JSON facts for readers.
      replaceable: Allow `replace_published`; readers of a store then look for later manifests.
      names: Readable names of part files, by their written names. Another attempt writes the same
        content, so it does not matter whose file gets the name.

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
    (store, name), (_, other) = (store_of(dataset / file) for file in (part.file, names[part.file]))
    with writing(dataset / names[part.file]):
        store.rename(name, other)
    return replace(part, file=names[part.file])


def propose(
    dataset: Place, attempt: str, parts: Iterable[PartFile], facts: Mapping[str, Any]
) -> str:
    """Write the manifest under a name that no reader opens; `accept` publishes the dataset.

    For datasets that must be recorded in the account before they are published. Survives a crash.

    Args:
      dataset: The folder.
      attempt: Identity of the attempt, which goes into the facts.
      parts: The part files.
      facts: JSON facts for readers.

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
    """Return whether the dataset of an attempt waits to be accepted or withdrawn."""
    return _proposal(dataset, attempt).is_file() and not is_published(dataset)


def are_proposed(dataset: Place) -> bool:
    """Return whether the dataset of any attempt waits to be accepted or withdrawn."""
    return not is_published(dataset) and any(dataset.glob(PROPOSED.format("*")))


def read_proposal(dataset: Place, attempt: str) -> Dataset:
    """Read the manifest of a proposed dataset.

    Raises:
      OutputError: The dataset is not proposed, or the manifest is damaged.
    """
    path = _proposal(dataset, attempt)
    return _parsed(dataset, path, 0, _manifest_bytes(dataset, path))


def accept(dataset: Place, attempt: str) -> None:
    """Publish a proposed dataset, once.

    Raises:
      OutputError: A file is missing or damaged, or the dataset was already published.
    """
    proposal = _proposal(dataset, attempt)
    for error in find_damage(dataset, attempt):
        # Another driver that took over may have accepted the proposal.
        raise _published_by_another(dataset) if is_published(dataset) else error
    data = _manifest_bytes(dataset, proposal)
    if not create_file(dataset / MANIFEST, data):
        raise _published_by_another(dataset)
    _sweep_one(dataset, _parsed(dataset, proposal, 0, data).parts)


def withdraw(dataset: Place, attempt: str) -> None:
    """Remove a proposed dataset that must not be used.

    Args:
      dataset: The folder.
      attempt: Identity of the attempt. Files that a published manifest names stay.

    Raises:
      OSError: A file cannot be removed.
      OutputError: A manifest is damaged.
    """
    proposal = _proposal(dataset, attempt)
    if proposal.is_file():
        proposed = [part.file for part in read_proposal(dataset, attempt).parts]
        published = Dataset.open(dataset).parts if is_published(dataset) else ()
        named = {part.file for part in published}
        remove_files(dataset, [proposal.name, *(name for name in proposed if name not in named)])


def leftovers(dataset: Place) -> list[str]:
    """List the files that attempts wrote for a dataset that is not published yet."""
    files = _files_of(dataset)
    return [] if MANIFEST in files else [*files]


def replace_published(
    dataset: Dataset, parts: Iterable[PartFile], facts: Mapping[str, Any]
) -> None:
    """Replace parts and facts of a published dataset, atomically.

    Args:
      dataset: The dataset from which the new parts were made. In a store nothing is published if
        another driver replaced it meanwhile.
      parts: The new parts; parts of the dataset may be among them.
      facts: JSON facts for readers.

    Raises:
      OutputError: Another driver replaced the dataset before, or the folder cannot be written.
      ValueError: The dataset is in a store and was not published as replaceable.
    """
    ours = list(parts)
    text, name = _document(ours, facts, replaceable=True), MANIFEST
    if isinstance(dataset.path, StoredPlace):
        if not dataset.replaceable:
            raise ValueError(f"{dataset.path} was published as one that is not replaced")
        name = _later(dataset.replaced + 1)
        if not create_file(dataset.path / name, text):
            raise _published_by_another(dataset.path)
    # In a store this file is for other programs; readers here open the highest number.
    replace_file(dataset.path / MANIFEST, text)
    _sweep_one(dataset.path, ours, name)


def remove_dataset(dataset: Place) -> None:
    """Remove a dataset and its folder; an interruption leaves no other dataset readable.

    Manifests are removed first, highest number first: no old manifest can override a later one.

    Raises:
      OSError: A file cannot be removed.
    """
    store, name = store_of(dataset)
    names = [entry.rpartition("/")[2] for entry, folder in store.entries(name) if not folder]
    for manifest in sorted(filter(_is_manifest, names), key=_number, reverse=True):
        remove_files(dataset, [manifest])
    remove_tree(dataset)


def _document(
    parts: Iterable[PartFile], facts: Mapping[str, Any], *, replaceable: bool = False
) -> str:
    """Format a manifest. A random token distinguishes it from another driver's with equal parts."""
    ordered = sorted(parts, key=lambda part: (part.low, part.file))
    document = {"facts": dict(facts), "files": [asdict(part) for part in ordered]}
    mark = {_REPLACEABLE: True} if replaceable else {}
    return json_text({**document, **mark, "token": uuid.uuid4().hex})


def _proposal(dataset: Place, attempt: str) -> Place:
    return dataset / PROPOSED.format(attempt)


def _current(dataset: Place) -> tuple[Place, int, bytes]:
    """Find the current manifest, which has the highest number.

    Returns:
      The file, its number and its bytes.

    Raises:
      OutputError: There is no manifest, or it cannot be read.
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
    """Remove leftovers of lost task attempts and dead drivers, also from after publication.

    In published datasets those are files that the manifest does not name; in other folders, part
    files, drafts and their temporary files. Call it when no task is writing.
    """

    def sweep_whole(folder: tuple[Place, Mapping[str, Stat]]) -> None:
        dataset, files = folder
        path, number, data = _current(dataset)
        if number:
            replace_file(dataset / MANIFEST, data)  # a driver may have died before this step
        remove_files(dataset, _unnamed(_parsed(dataset, path, number, data).parts, files))

    at_once(root, sweep_whole, [item for item in _folders_under(root) if MANIFEST in item[1]])
    for path in files_beside_datasets(root):
        if _DRAFTS.fullmatch(path.name) or _DRAFTS.fullmatch(path.parent.name):
            remove_files(path.parent, [path.name])


def files_beside_datasets(root: Place) -> list[Place]:
    """List the files under a folder that are in no published dataset, sorted."""
    other = ((folder, files) for folder, files in _folders_under(root) if MANIFEST not in files)
    return sorted((folder / name for folder, files in other for name in files), key=str)


def _sweep_one(dataset: Place, parts: Iterable[PartFile], manifest: str = MANIFEST) -> None:
    """Remove files that the manifest does not name from a dataset that was just published.

    In a store another driver may be writing a replacement. So files that are not older than the
    manifest stay, and all files if the manifest is not current any more.
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
    """List the files directly in a folder, by name."""
    return dict(_folders_under(folder)).get(folder, {})


def _folders_under(root: Place) -> list[tuple[Place, dict[str, Stat]]]:
    """List every folder with files, at any depth, and the files directly in it."""
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
    """List the files that are neither parts nor manifests, sorted."""
    named = {part.file for part in parts}
    return sorted(name for name in files if name not in named and not _is_manifest(name))


def remove_files(dataset: Place, names: Sequence[str]) -> None:
    """Remove files of a dataset by name.

    Raises:
      OSError: A file cannot be removed.
    """
    if names:
        store, _ = store_of(dataset)
        store.remove([store_of(dataset / name)[1] for name in names])


def dataset_digest(dataset: Place) -> str:
    """Return the SHA-256 of the manifest of a published dataset, which covers all its files."""
    return hashlib.sha256(_current(dataset)[2]).hexdigest()


@lru_cache(maxsize=16)  # tasks of one process open the same few, of a nation thousands of parts
def _parsed(dataset: Place, path: Place, replaced: int, data: bytes) -> Dataset:
    """Parse and check a manifest.

    Raises:
      OutputError: The manifest is damaged.
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
    """Turn errors of a damaged part file into an OutputError that names the file."""
    with understanding(dataset / part.file, _AGAIN):
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(dataset, part, error) from None


def _unreadable(dataset: Place, part: PartFile, error: Exception) -> OutputError:
    path, got = str(dataset / part.file), type(error).__name__
    return OutputError(path, "cannot be read", got=got, remedy=_AGAIN)


def find_damage(dataset: Place, attempt: str | None = None) -> list[OutputError]:
    """List the errors of the named files of a dataset, by their recorded digests.

    Args:
      dataset: The folder.
      attempt: Identity of a proposed attempt; None for the published dataset.
    """
    try:
        opened = Dataset.open(dataset) if attempt is None else read_proposal(dataset, attempt)
    except OutputError as error:
        return [error]
    damage = at_once(dataset, lambda part: _damage_of(dataset, part), opened.parts)
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
        return DamageError(str(path), "is missing", remedy=_AGAIN)
    except OSError as error:
        return _unreadable(dataset, part, error)
    if digest == part.sha256:
        return None
    return DamageError(str(path), "was changed after it was published", remedy=_AGAIN)


def verify_files(dataset: Place) -> None:
    """Check every file of a published dataset against its recorded digest.

    Raises:
      DamageError: A file is missing or was changed.
      OutputError: A file is not named by the manifest.
    """
    for error in find_damage(dataset):
        raise error
    for name in _unnamed(Dataset.open(dataset).parts, _files_of(dataset)):
        raise OutputError(
            str(dataset / name),
            "is not named by the manifest; an abandoned attempt wrote it late",
            remedy="remove it",
        )


def check_sizes(root: Place) -> None:
    """Check that every named file of every published dataset under a folder has its recorded size.

    Raises:
      DamageError: A file is missing or of another size.
    """
    folders = {folder: files for folder, files in _folders_under(root) if MANIFEST in files}
    for dataset in at_once(root, Dataset.open, folders):
        for part in dataset.parts:
            stat = folders[dataset.path].get(part.file)
            if stat is None or stat.st_size != part.bytes:
                what = "is missing" if stat is None else "was changed after it was published"
                raise DamageError(str(dataset.path / part.file), what, remedy=_AGAIN)


def _make_folder(folder: Place) -> None:
    with naming_file(folder, "cannot be created"):
        make_closed_folder(folder)
