"""Files in a layout of `das export`, read back: by whomever they were published."""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.errors import InputError
from das.histograms import Histograms, mixed_radix
from das.queries.query import Query
from das.schema import Schema
from jobs.analysis.layouts import (
    Layout,
    LayoutColumn,
    LayoutFile,
    attribute_codes,
    table_queries,
    table_variables,
)

_PARQUET = ".parquet"
_ENDINGS = (".pl", ".csv", ".txt", _PARQUET)
_YEAR = re.compile(r"\d{4}$")  # at the end of a name: files of another year have another one
_UNREADABLE = (OSError, pa.ArrowException, zipfile.BadZipFile, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class StoredFile:
    """A file, or a file in a zip.

    Attributes:
      holder: The file, or the zip.
      name: Name of the file in the zip; empty for a file that is in none.
    """

    holder: Path
    name: str = ""

    def __str__(self) -> str:
        return f"{self.holder}/{self.name}" if self.name else str(self.holder)

    @property
    def plain(self) -> str:
        """Return the name of the file without folders."""
        return (self.name or self.holder.name).rpartition("/")[2]

    @property
    def is_parquet(self) -> bool:
        """Return whether the file is Parquet; others are text."""
        return self.plain.lower().endswith(_PARQUET)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file for reading.

        Raises:
          InputError: The file cannot be read.
        """
        try:
            with ExitStack() as stack:
                if self.name:
                    archive = stack.enter_context(zipfile.ZipFile(self.holder))
                    yield stack.enter_context(archive.open(self.name))
                else:
                    yield stack.enter_context(self.holder.open("rb"))
        except _UNREADABLE as error:
            raise InputError(str(self), "cannot be read", got=error) from None


def stored_files(path: Path) -> list[StoredFile]:
    """List the files that a path names: a file, a folder, or zips with files.

    Raises:
      InputError: The path does not exist, or a zip cannot be read.
    """
    if not path.exists():
        raise InputError(str(path), "does not exist")
    found = []
    for holder in sorted(path.iterdir()) if path.is_dir() else [path]:
        if holder.suffix.lower() != ".zip":
            found.append(StoredFile(holder))
            continue
        try:
            with zipfile.ZipFile(holder) as archive:
                found += [StoredFile(holder, name) for name in archive.namelist()]
        except _UNREADABLE as error:
            raise InputError(str(holder), "cannot be read", got=type(error).__name__) from None
    readable = [one for one in found if one.plain.lower().endswith(_ENDINGS)]
    parquet = {str(one)[: -len(_PARQUET)] for one in readable if one.is_parquet}
    # A table that lies there in both formats is read once.
    return [one for one in readable if one.is_parquet or str(one).rpartition(".")[0] not in parquet]


@dataclass(frozen=True, eq=False)
class TabulatedFile:
    """A stored file of a layout, with a row per geounit.

    Attributes:
      layout: The layout.
      file: The file of the layout.
      stored: The stored file.
      columns: All columns of the stored file.
    """

    layout: Layout
    file: LayoutFile
    stored: StoredFile
    columns: Sequence[str]

    @property
    def number(self) -> LayoutColumn | None:
        """Return the column with the number of the row, by which files are joined."""
        return _column_of(self.file, "{number}")

    def read(self, texts: Sequence[str], variables: Sequence[str]) -> pa.Table:
        """Return columns of text, and those of the variables that the file has.

        Raises:
          InputError: The file is malformed.
        """
        types = dict.fromkeys(texts, pa.string())
        types |= {name: pa.float64() for name in variables if name in self.columns}
        return _parsed(self.layout, self.stored, self.columns, types)

    def geounits(self, variables: Sequence[str]) -> pa.Table:
        """Return geocodes and variables of the rows whose geolevel is one of the layout.

        Official files also have rows of places and districts, whose geocodes can be as long.

        Raises:
          InputError: The file is malformed.
        """
        length, codes = _column_of(self.file, "{length}"), _code_columns(self.file)
        texts = [column.name for column in (*codes, self.number, length) if column is not None]
        rows = self.read([*dict.fromkeys(texts)], variables)
        rows = rows.append_column("geocode", _geocodes(rows, codes))
        if length is None or length.codes is None:
            return rows
        listed = self.layout.codes[length.codes]
        position = pc.index_in(rows[length.name], value_set=pa.array([*listed.values()]))
        wanted = pc.take(pa.array([int(digits) for digits in listed]), position)
        return rows.filter(pc.equal(wanted, pc.utf8_length(rows["geocode"])))


@dataclass(frozen=True, eq=False)
class TabulatedFiles:
    """Files in a layout that have a row per geounit.

    Attributes:
      path: The path that names them.
      groups: Value of the split to its files, the file with geocodes first.
    """

    path: Path
    groups: Mapping[str, Sequence[TabulatedFile]]

    def tables(self, wanted: Layout) -> list[str]:
        """List the tables of a layout whose variables the files hold."""
        names = {name for group in self.groups.values() for one in group for name in one.columns}
        return [name for name in wanted.tables if {*table_variables(wanted, name)} <= names]

    def lengths(self) -> list[int]:
        """List the lengths of the geocodes."""
        lengths = pc.utf8_length(self._rows(())["geocode"])
        return sorted(pc.unique(lengths).to_pylist())

    def read(self, wanted: Layout, table: str, length: int) -> pa.Table:
        """Return the variables of a table for the geounits with geocodes of a length.

        Returns:
          Columns geocode and the variables; each geocode once.

        Raises:
          InputError: A file is malformed, or states a geounit twice.
        """
        rows = self._rows(tuple(table_variables(wanted, table)))
        rows = rows.filter(pc.equal(pc.utf8_length(rows["geocode"]), length))
        if pc.count_distinct(rows["geocode"]).as_py() < rows.num_rows:
            raise InputError(str(self.path), "has a geocode twice", got=f"{length} characters")
        return rows

    @lru_cache(maxsize=1)  # noqa: B019 - the files of a comparison live as long as its command
    def _rows(self, variables: tuple[str, ...]) -> pa.Table:
        """Return geocodes with variables; files of one value of the split are joined by number."""
        parts = []
        for first, *others in self.groups.values():
            rows = first.geounits(variables)
            for other in others:
                if first.number is not None and not {*variables}.isdisjoint(other.columns):
                    key = first.number.name
                    rows = rows.join(other.read([key], variables), key, join_type="inner")
            parts.append(rows.select(["geocode", *variables]))
        return pa.concat_tables(parts).combine_chunks()


@dataclass(frozen=True, eq=False)
class RecordFiles:
    """Files in a layout that have a row per record.

    Attributes:
      path: The path that names them.
      parts: Files of the records of each schema, such as persons and units.
    """

    path: Path
    parts: Sequence[Records]

    def tables(self, wanted: Layout) -> list[str]:
        """List the tables of a layout that the records can be counted for."""
        return [name for name in wanted.tables if self._counted(wanted, name)]

    def lengths(self) -> list[int]:
        """List the lengths of geocodes that the layout names, for which records are counted."""
        return [*(self.parts[0].layout.geolevels or ())]

    def read(self, wanted: Layout, table: str, length: int) -> pa.Table:
        """Return the variables of a table for the geounits with geocodes of a length.

        Returns:
          Columns geocode and the variables; each geocode once, if it has records.

        Raises:
          InputError: A file is malformed, or has an unknown code.
        """
        records, queries = self._counted(wanted, table)[0]
        codes, histograms = records.count(length)
        answers = np.concatenate([query.answer(histograms) for query in queries], axis=1)
        columns = zip(table_variables(wanted, table), map(pa.array, answers.T), strict=True)
        return pa.table({"geocode": codes, **dict(columns)})

    def _counted(self, wanted: Layout, table: str) -> list[tuple[Records, Sequence[Query]]]:
        """List the records that have the attributes of a table, with the queries of the table."""
        able = [(part, table_queries(wanted, table, part.schema)) for part in self.parts]
        return [(part, queries) for part, queries in able if queries is not None]


@dataclass(frozen=True, eq=False)
class Records:
    """Files of records that have the attributes of a schema.

    Attributes:
      layout: The layout.
      file: The file of the layout.
      stored: The stored files.
      schema: Schema whose attributes the columns have.
    """

    layout: Layout
    file: LayoutFile
    stored: Sequence[StoredFile]
    schema: Schema

    def count(self, length: int) -> tuple[pa.Array, Histograms]:
        """Count the records of each geounit.

        Args:
          length: Number of leading characters of the geocode that name a geounit.

        Returns:
          The geocodes, and their histograms in the same order.

        Raises:
          InputError: A file is malformed, or has an unknown code.
        """
        rows = self._rows
        codes = pc.utf8_slice_codeunits(rows["geocode"], 0, length).combine_chunks()
        encoded = codes.dictionary_encode()
        n = self.schema.size
        keys = np.asarray(encoded.indices, np.int64) * n + np.asarray(rows["cell"])
        keys, counts = np.unique(keys, return_counts=True)
        offsets = np.searchsorted(keys, np.arange(len(encoded.dictionary) + 1) * n)
        return encoded.dictionary, Histograms(n, offsets, keys % n, counts)

    @cached_property
    def _rows(self) -> pa.Table:
        """Return the geocode and the cell of each record of all files, which are read once."""
        return pa.concat_tables([self._keys(stored) for stored in self.stored])

    def _keys(self, stored: StoredFile) -> pa.Table:
        """Return the geocode and the cell of each record."""
        codes = _code_columns(self.file)
        by_attribute = attribute_codes(self.layout, self.file, self.schema)
        names = [column.name for column in codes]
        names += [name for columns in by_attribute.values() for name in columns]
        types = dict.fromkeys(names, pa.string())
        rows = _parsed(self.layout, stored, _header(self.layout, stored), types)
        levels = np.zeros((rows.num_rows, len(by_attribute)), np.int64)
        for place, columns in enumerate(by_attribute.values()):
            joined = pc.binary_join_element_wise(*(rows[name] for name in columns), "|")
            listed = ["|".join(several) for several in zip(*columns.values(), strict=True)]
            level = pc.index_in(joined, value_set=pa.array(listed))
            if level.null_count:
                wrong = joined.filter(pc.is_null(level))[0].as_py()
                where = f"{stored}, {'|'.join(columns)}"
                raise InputError(where, "has an unknown code", got=wrong, want=listed)
            levels[:, place] = np.asarray(level)
        sizes = [len(attribute.levels) for attribute in self.schema.attributes]
        cells = mixed_radix(levels, range(len(sizes)), sizes)
        return pa.table({"geocode": self._recoded(_geocodes(rows, codes)), "cell": cells})

    def _recoded(self, geocodes: pa.ChunkedArray) -> pa.ChunkedArray:
        """Replace geocodes that the published files state differently from the measurements."""
        known = self.layout.recoded
        position = pc.index_in(geocodes, value_set=pa.array([*known], pa.string()))
        replaced = pc.take(pa.array([*known.values()], pa.string()), position)
        return pc.coalesce(replaced, geocodes)


def find_published(
    path: Path, layouts: Sequence[Layout], schemas: Sequence[Schema]
) -> TabulatedFiles | RecordFiles:
    """Find the layout in which files were published.

    Args:
      path: A file, a folder of files, or a zip.
      layouts: Layouts to try, in order.
      schemas: Schemas that records can have; the first of the largest that fit is taken.

    Raises:
      InputError: The path does not exist, cannot be read, or is in none of the layouts.
    """
    stored = stored_files(path)
    for layout in layouts:
        parts = []
        for file in layout.files:
            fitting = [one for one in stored if _fits(layout, file, one)]
            if fitting and not any(column.axis for column in file.columns):
                return TabulatedFiles(path, _by_split(layout, stored))
            able = [one for one in schemas if fitting and attribute_codes(layout, file, one)]
            if able:  # the schema with most cells tells most of a record
                schema = max(able, key=lambda one: one.size)
                parts.append(Records(layout, file, fitting, schema))
        if parts:
            return RecordFiles(path, parts)
    readable = [layout for layout in layouts if layout.header]
    raise InputError(
        str(path),
        "holds no files of a known layout",
        got={one.plain: _header(readable[0], one)[:12] for one in stored[:3]} or "no file to read",
        want={
            f"{one.name} of {layout.name}": _needed(one)
            for layout in readable
            for one in layout.files
        },
        remedy="name the layout of the files with --as, or rename columns",
    )


def _fits(layout: Layout, file: LayoutFile, stored: StoredFile) -> bool:
    """Return whether a stored file is a file of a layout: by its columns, or else by its name."""
    if layout.header:
        return {*_needed(file)} <= {*_header(layout, stored)}
    return _split_of(layout, file, stored) is not None


def _needed(file: LayoutFile) -> list[str]:
    """List the columns that a file with a header must have to be read."""
    return [c.name for c in _code_columns(file)] + [c.name for c in file.columns if c.axis]


def _by_split(layout: Layout, stored: Sequence[StoredFile]) -> dict[str, list[TabulatedFile]]:
    """Group stored files by the value of the split; a file with a header needs no other file."""
    groups = defaultdict[str, list[TabulatedFile]](list)
    for one in stored:
        file = next((file for file in layout.files if _fits(layout, file, one)), None)
        if file is None:
            continue
        split = str(one) if layout.header else _split_of(layout, file, one) or ""
        columns = [column.name for column in file.columns]
        columns += [name for table in file.tables for name in table_variables(layout, table)]
        names = _header(layout, one) if layout.header else columns
        groups[split].append(TabulatedFile(layout, file, one, names))
    return {
        split: sorted(group, key=lambda one: not _code_columns(one.file))
        for split, group in groups.items()
    }


def _split_of(layout: Layout, file: LayoutFile, stored: StoredFile) -> str | None:
    """Return the value of the split in the name of a stored file; None for another file."""
    parts = re.split(r"\{\w+\}", _YEAR.sub("", file.name))
    pattern = r"(\w+?)".join(map(re.escape, parts)) + r"\d*[^/]*?"
    endings = "|".join(map(re.escape, layout.endings))
    match = re.fullmatch(f"{pattern}({endings})", stored.plain, re.IGNORECASE)
    return match and match[1].lower()


def _column_of(file: LayoutFile, text: str) -> LayoutColumn | None:
    """Return the first column with a text, such as "{number}"."""
    return next((column for column in file.columns if column.text == text), None)


def _code_columns(file: LayoutFile) -> list[LayoutColumn]:
    """Return the columns that make the geocode: one, or the longest parts from left to right."""
    whole = [c for c in file.columns if c.text == "{geocode}" and c.digits is None]
    parts = [c for c in file.columns if c.text == "{geocode}" and c.digits and not c.codes]
    chosen, first = whole[:1], 1
    while not whole:
        able = [(c.digits[1], c) for c in parts if c.digits and c.digits[0] == first]
        if not able:
            break
        last, column = max(able, key=lambda one: one[0])
        chosen.append(column)
        first = last + 1
    return chosen


def _geocodes(rows: pa.Table, columns: Sequence[LayoutColumn]) -> pa.Array:
    """Return the geocode of each row."""
    return pc.binary_join_element_wise(*(rows[column.name] for column in columns), "")


def _header(layout: Layout, stored: StoredFile) -> list[str]:
    """List the columns that a file names: in its first line, or as Parquet."""
    with stored.opened() as handle:
        if stored.is_parquet:
            return list(pq.read_schema(handle).names)
        first = handle.readline().decode(layout.encoding, "replace")
    return [name.strip('"\ufeff') for name in first.rstrip("\r\n").split(layout.delimiter)]


def _parsed(
    layout: Layout, stored: StoredFile, names: Sequence[str], types: Mapping[str, pa.DataType]
) -> pa.Table:
    """Return some columns of a file with the given types.

    Raises:
      InputError: A line is malformed, or a number is missing.
    """
    with stored.opened() as handle:
        if stored.is_parquet:
            rows = pq.read_table(handle, columns=[*types]).cast(pa.schema(types.items()))
        else:
            rows = pa_csv.read_csv(
                handle,
                pa_csv.ReadOptions(
                    column_names=names, skip_rows=layout.header, encoding=layout.encoding
                ),
                pa_csv.ParseOptions(delimiter=layout.delimiter, quote_char=layout.quoted and '"'),
                pa_csv.ConvertOptions(column_types=types, include_columns=[*types]),
            )
    for name in types:
        if rows[name].null_count:
            row = pc.index(pc.is_null(rows[name]), True).as_py() + 1
            raise InputError(f"{stored}, record {row}, {name}", "has no value")
    return rows
