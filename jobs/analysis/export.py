"""The command `das export`: a release in the layouts that other programs read.

Files are made from released datasets only, range by range of geounits, so memory does not depend
on the size of the release.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.errors import ConfigError, InputError, OutputError
from das.tree.intervals import central_intervals, normal_factor
from jobs.analysis.layouts import FilledFile, FilledTable, fill_layout
from jobs.analysis.requests import ExportRequest
from jobs.analysis.results import drafts_in, shared_mode
from jobs.analysis.spreadsheet import require_room, write_workbook
from jobs.analysis.tables import ComputedEstimates, estimates_of, verify_tables
from jobs.pipeline.config.layouts import FIELD, Layout, LayoutColumn, read_layout
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.release.estimate import CONFIDENCE
from jobs.pipeline.release.microdata import person_rows
from jobs.pipeline.release.tables import DECIMALS, Estimates, most_geounits, read_geounits
from jobs.pipeline.storage.csv import without_formulas
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.tasks.batches import Batch, even_pieces
from jobs.pipeline.tasks.progress import Reporter

_FORMATS = ("csv", "parquet", "xlsx")
_PARQUET, _XLSX = ".parquet", ".xlsx"
_LEAVES = 20_000  # leaves whose records are written at once; default, not measured
# Bytes of a row group. Pieces have some 600 geounits of 1,200 columns; a row group of each would
# make the footer of a nation's blocks a gigabyte. Default, not measured.
_GROUP_BYTES = 64 << 20
_ENDS = ("estimate", "lower", "upper")
_NOTES = (
    "A variable is a protected count: noise was added before publication. The sheet Variables says "
    "what each variable counts. A range such as a..c is the sum of all levels from a to c.",
    "Geocodes are text, so leading zeros are kept.",
    "VARIABLE_estimate is the unbiased estimate of the same number, and can be negative. From "
    f"VARIABLE_lower to VARIABLE_upper is its {CONFIDENCE * 100:.0f} % interval.",
)
"""Notes of a workbook; the last is about intervals."""


def export_release(resolved: Resolved, request: ExportRequest, reporter: Reporter) -> list[Path]:
    """Write the files of a layout from a finished release.

    Args:
      resolved: The run of the release.
      request: Options of the command.
      reporter: Receives progress.

    Returns:
      The written files.

    Raises:
      ConfigError: The layout is unknown, or the release does not fit it.
      InputError: A geocode does not fit the layout.
      OutputError: The release is incomplete or changed, has no intervals that the layout needs, or
        a file exists.
    """
    layout = read_layout(request.layout)
    refuse_unknown("das export --format", "is unknown", request.formats, _FORMATS)
    if request.formats:
        layout = layout.model_copy(update={"endings": [f".{name}" for name in request.formats]})
    files, folder = fill_layout(layout, resolved, request.leave_out), request.to
    _refuse_existing(layout, request)
    geolevels = _geolevels(layout, resolved, request)
    if _XLSX in layout.endings:
        _refuse_large(layout, resolved, files, geolevels)
    for product in resolved.products.values():
        any_query = any(file.file.intervals for file in files)
        verify_tables(product, product.plan.geolevels, any_query=any_query)
    with drafts_in(folder, "export", reporter) as (drafts, tick):
        made: dict[Path, str] = {}  # draft to the value of the split
        for done, file in enumerate(files):
            tick(done, len(files))
            writer = _Writer(layout, resolved.config.name, file, drafts)
            for rows in _rows(layout, resolved, file, geolevels):
                writer.write(rows)
            made |= writer.close()
        if request.zip:
            made = _zipped(layout, made, drafts)
        tick(len(files), len(files))
        for draft in made:  # moved together, after all were made
            draft.chmod(shared_mode())
            draft.rename(folder / draft.name)
    return [folder / draft.name for draft in made]


def _refuse_existing(layout: Layout, request: ExportRequest) -> None:
    """Refuse a folder that has files of the layout, whatever the values of the split are.

    Raises:
      OutputError: It has one.
    """
    files = [file.name + ending for file in layout.files for ending in layout.endings]
    for name in [layout.zip] if request.zip else files:
        pattern = "*".join(escape(part) for part in re.split(r"\{\w+\}", name))
        for path in request.to.glob(pattern):
            raise OutputError(str(path), "exists already", want="another folder as --to")


def _geolevels(layout: Layout, resolved: Resolved, request: ExportRequest) -> list[str]:
    """Return the census geolevels that are written, in the order of the layout."""
    digits = resolved.plan.census_digits
    wanted = digits.values() if layout.geolevels is None else layout.geolevels
    known = [name for length in wanted for name in digits if digits[name] == length]
    refuse_unknown("das export --geolevel", "is not written", request.geolevels, known)
    return [name for name in known if name in (request.geolevels or known)]


def _refuse_large(
    layout: Layout, resolved: Resolved, files: Sequence[FilledFile], geolevels: Sequence[str]
) -> None:
    """Refuse workbooks of records, and those that are too large."""
    for file in files:
        if file.records is not None:
            what = "is for tables of geounits, and the layout has records"
            raise ConfigError("das export --format xlsx", what, got=file.file.name)
        sizes = [len(one.variables) for one in file.tables.values() if one.product is not None]
        of_each, ids = 1 + len(_ENDS) * file.file.intervals, len(file.file.columns)
        columns = [ids + size * of_each for size in sizes or [0]]
        for geolevel in geolevels:
            rows = Dataset.open(resolved.release.geography(geolevel)).rows
            require_room(f"{file.file.name} of {geolevel}", rows, columns)


# --- rows with all fields -------------------------------------------------------------------------


def _rows(
    layout: Layout, resolved: Resolved, file: FilledFile, geolevels: list[str]
) -> Iterator[pa.Table]:
    """Yield rows of a file with all fields that its columns need, but no number."""
    if file.records is None:
        for geolevel in geolevels:
            yield from geounit_rows(layout, resolved, file, geolevel)
        return
    plan, release = file.records.plan, file.records.release
    for low, high in even_pieces(release, plan.leaf.name, _LEAVES):
        for rows in person_rows(plan, release, Batch(plan.leaf.index, low, high, 0)):
            fields = _fields(resolved, plan.leaf.name, rows.column("geocode"), None)
            for name, (attribute, codes) in file.levels.items():
                labels = rows.column(attribute).combine_chunks()
                levels = pa.DictionaryArray.from_arrays(labels.indices, pa.array(codes))
                fields[f"level of {name}"] = levels.cast(pa.string())
            yield _checked(layout, pa.table(fields))


def _checked(layout: Layout, rows: pa.Table) -> pa.Table:
    """Return rows of leaves if their geocodes fit the layout.

    Raises:
      InputError: A geocode has letters, and the layout wants digits.
    """
    wrong = rows.filter(pc.invert(pc.ascii_is_decimal(rows.column("geocode"))))
    if layout.leaf_digits is not None and wrong.num_rows:
        where, what = f"das export --as {layout.name}", "cannot hold a geocode of a leaf"
        raise InputError(where, what, got=wrong.column("geocode")[0].as_py(), want="digits")
    return rows


def _fields(
    resolved: Resolved, geolevel: str, geocodes: pa.Array, names: pa.Array | None
) -> dict[str, pa.Array]:
    """Return the fields of rows that every layout has, except for the number."""
    texts = {"geolevel": geolevel, "run": resolved.config.name, "place": ""}
    fields = {name: pa.repeat(text, len(geocodes)) for name, text in texts.items()}
    fields |= {} if names is None else {"place": names}
    length = pc.utf8_length(geocodes).cast(pa.string())
    return {"geocode": geocodes, "length": length, **fields}


def geounit_rows(
    layout: Layout, resolved: Resolved, file: FilledFile, geolevel: str
) -> Iterator[pa.Table]:
    """Yield the geounits of a geolevel with the variables of the tables of a file.

    Raises:
      InputError: A geocode does not fit the layout.
      OutputError: The release is damaged, or has no intervals that the file needs.
    """
    tables = [table for table in file.tables.values() if table.product is not None]
    width = sum(len(table.variables) for table in tables) or 1
    products = {table.product.name: table.product for table in tables if table.product}
    products = products or {resolved.last.name: resolved.last}
    wanted = tables if file.file.intervals else []
    estimates = _estimates(layout, wanted, [*products.values()], geolevel)
    most = min(most_geounits(one.release, geolevel, width) for one in products.values())
    every = [*chain.from_iterable(estimates.values())]
    every.sort(key=lambda one: not isinstance(one, ComputedEstimates))  # those divide no family
    pieces = [*(every[0].pieces(most) if every else even_pieces(resolved.release, geolevel, most))]
    readers = {
        name: read_geounits(one.plan, one.release, geolevel, iter(pieces))
        for name, one in products.items()
    }
    for several in zip(*readers.values(), strict=True):
        of_product = dict(zip(readers, several, strict=True))
        some = several[0]
        fields = _fields(resolved, geolevel, some.shown, some.names)
        for table in tables:
            counts = of_product[table.product.name].counts  # type: ignore[union-attr]
            answers = np.concatenate([query.answer(counts) for query in table.queries], axis=1)
            fields |= zip(table.variables, map(pa.array, answers.T), strict=True)
            if table.name not in estimates:
                continue
            read = [one.read(some.codes) for one in estimates[table.name]]
            values, errors = (np.concatenate(each, axis=1) for each in zip(*read, strict=True))
            factor = normal_factor(estimates[table.name][0].confidence)
            ends = central_intervals(values, errors, factor)
            for name, numbers in zip(_ENDS, (values, ends.lower, ends.upper), strict=True):
                columns = map(pa.array, np.round(numbers, DECIMALS).T + 0.0)  # no -0.0
                fields |= zip((f"{one}_{name}" for one in table.variables), columns, strict=True)
        rows = pa.table(fields)
        yield _checked(layout, rows) if geolevel == resolved.plan.leaf.name else rows


def _estimates(
    layout: Layout, tables: Sequence[FilledTable], products: Sequence[Product], geolevel: str
) -> dict[str, list[Estimates]]:
    """Open the estimates of the queries of each table at a geolevel.

    Raises:
      OutputError: The release has none.
    """
    found: dict[str, list[Estimates]] = {}
    for product in products:
        owners = [(one, query) for one in tables if one.product is product for query in one.queries]
        known = estimates_of(product, geolevel, [query for _, query in owners])
        for (table, _), estimates in zip(owners, known, strict=True):
            if estimates is None:
                raise OutputError(
                    f"das export --as {layout.name}",
                    "needs intervals, which the release does not have",
                    got=f"table {table.name} at geolevel {geolevel}",
                    want=f"a release with estimates, or --leave-out {table.name}",
                )
            found.setdefault(table.name, []).append(estimates)
    return found


# --- columns and files ----------------------------------------------------------------------------


@dataclass(eq=False)
class _Writer:
    """Writer of all files that a file of a layout is split into.

    Attributes:
      layout: The layout.
      run: Name of the run.
      file: The file.
      folder: Folder of drafts.
      numbers: Rows written so far, by value of the split.
      parquet: Open Parquet files by path.
      waiting: Rows that are not yet written, by value of the split.
      held: Bytes of these rows.
    """

    layout: Layout
    run: str
    file: FilledFile
    folder: Path
    numbers: Counter[str] = field(default_factory=Counter)
    parquet: dict[Path, pq.ParquetWriter] = field(default_factory=dict)
    waiting: dict[str, list[pa.Table]] = field(default_factory=dict)
    held: int = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows to the files of their values of the split; rows without a value are left out.

        Raises:
          InputError: A geocode has no code in the layout.
        """
        split = self._filled(self.layout.split, rows, {})
        values = pc.unique(split).to_pylist()
        for value in values:
            some = rows.filter(pc.equal(split, value)) if len(values) > 1 else rows
            if value:
                first = self.numbers[value] + 1
                self.numbers[value] += some.num_rows
                numbers = np.arange(first, first + some.num_rows)
                table = self._table(some.append_column("number", pa.array(numbers)))
                self.waiting.setdefault(value, []).append(table)
                self.held += table.nbytes
        if self.held >= _GROUP_BYTES and _XLSX not in self.layout.endings:
            self._flush()

    def close(self) -> dict[Path, str]:
        """Finish the files; return each with its value of the split."""
        self._flush()
        for writer in self.parquet.values():
            writer.close()
        return {self._path(v, ending): v for v in self.numbers for ending in self.layout.endings}

    def _flush(self) -> None:
        """Write the waiting rows; in a Parquet file they are a row group."""
        for value, waiting in self.waiting.items():
            rows = pa.concat_tables(waiting)
            for ending in self.layout.endings:
                path = self._path(value, ending)
                if ending == _XLSX:
                    self._write_workbook(path, value, rows)
                elif ending.endswith(_PARQUET):
                    if path not in self.parquet:
                        self.parquet[path] = pq.ParquetWriter(path, rows.schema, compression="zstd")
                    self.parquet[path].write_table(rows)
                else:
                    data = _text(self.layout, rows, is_first=not path.exists())
                    with path.open("ab") as handle:
                        handle.write(data)
        self.waiting.clear()
        self.held = 0

    def _path(self, value: str, ending: str) -> Path:
        return self.folder / self.layout.file_name(self.file.file.name, value, ending)

    def _table(self, rows: pa.Table) -> pa.Table:
        """Return the columns of the file."""
        columns: dict[str, pa.Array] = {}
        for column in self.file.file.columns:
            columns[column.name] = self._filled(column, rows, columns)
        if not self.layout.quoted:  # text without quotation marks cannot hold the delimiter
            bad = f'["\\r\\n{re.escape(self.layout.delimiter)}]'
            filled = [one.name for one in self.file.file.columns if one.text or one.axis]
            columns |= {k: pc.replace_substring_regex(columns[k], bad, "") for k in filled}
        for name in self.file.file.tables:
            columns |= self._variables(self.file.tables[name], rows)
        return pa.table(columns)

    def _variables(self, table: FilledTable, rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
        """Yield the variables of a table; those left out are empty, or absent with a header."""
        for variable in table.variables:
            if table.product is not None:
                yield variable, rows.column(variable)
                if self.file.file.intervals:
                    for end in _ENDS:
                        yield f"{variable}_{end}", rows.column(f"{variable}_{end}")
            elif not self.layout.header:
                yield variable, pa.nulls(rows.num_rows, pa.int64())

    def _filled(
        self, column: LayoutColumn, rows: pa.Table, columns: Mapping[str, pa.Array]
    ) -> pa.Array:
        """Return the values of a column of text.

        Raises:
          InputError: A value has no code.
        """
        if f"level of {column.name}" in rows.column_names:
            return rows.column(f"level of {column.name}")
        if not column.text:
            return pa.repeat("", rows.num_rows)
        parts = [pa.repeat("", rows.num_rows)]
        for place, part in enumerate(FIELD.split(column.text)):
            if place % 2 == 0:
                parts += [pa.scalar(part)] if part else []
            elif part in columns or part in rows.column_names:
                found = columns[part] if part in columns else rows.column(part)
                parts.append(found.cast(pa.string()))
        text = pc.binary_join_element_wise(*parts, "")
        if column.digits is not None:
            first, last = column.digits
            is_short = pc.less(pc.utf8_length(text), last)
            text = pc.if_else(is_short, "", pc.utf8_slice_codeunits(text, first - 1, last))
        if column.width:
            text = pc.utf8_lpad(text, column.width, "0")
        return text if column.codes is None else self._coded(column, text)

    def _coded(self, column: LayoutColumn, text: pa.Array) -> pa.Array:
        """Replace texts by their codes; an empty text stays empty."""
        codes = self.layout.codes[column.codes or ""]
        known = pc.index_in(text, value_set=pa.array([*codes], pa.string()))
        unknown = pc.and_(pc.is_null(known), pc.not_equal(text, ""))
        if pc.any(unknown).as_py():
            raise InputError(
                f"das export --as {self.layout.name}, column {column.name}",
                "has no code for a value of the release",
                got=text.filter(unknown)[0].as_py(),
                want=[*codes],
            )
        return pc.fill_null(pc.take(pa.array([*codes.values()], pa.string()), known), "")

    def _write_workbook(self, path: Path, value: str, rows: pa.Table) -> None:
        """Write a workbook with a sheet per table, and one that explains the variables."""
        file, split = self.file.file, self.layout.split.name
        ids = [column.name for column in file.columns]
        listed = [self.file.tables[name] for name in file.tables]
        tables = [one for one in listed if one.product is not None]
        sheets = {}
        if file.tables:
            meanings = [
                {"Variable": variable, "Table": one.name, "Counts": label}
                for one in tables
                for labels in [chain.from_iterable(query.labels() for query in one.queries)]
                for variable, label in zip(one.variables, labels, strict=True)
            ]
            sheets["Variables"] = pa.Table.from_pylist(meanings)
        for one in tables:
            sheets[one.name] = rows.select(ids + [name for name, _ in self._variables(one, rows)])
        title = f"{self.run}: {self.layout.file_name(file.name, value)}"
        facts = {split.capitalize(): value, "Source": self.layout.source.strip()}
        notes = _NOTES if file.intervals else _NOTES[:2]
        write_workbook(path, title, facts, notes, sheets or {"Rows": rows})


def _text(layout: Layout, table: pa.Table, *, is_first: bool) -> bytes:
    """Format rows as text in the dialect of a layout."""
    quotes = dict.fromkeys(
        ("quoting_style", "quoting_header"), "needed" if layout.quoted else "none"
    )
    has_header = layout.header and is_first
    options = pa_csv.WriteOptions(include_header=has_header, delimiter=layout.delimiter, **quotes)
    buffer = pa.BufferOutputStream()
    pa_csv.write_csv(without_formulas(table) if layout.quoted else table, buffer, options)
    data = bytes(buffer.getvalue().to_pybytes())
    if layout.encoding == "utf-8":
        return data
    return data.decode("utf-8").encode(layout.encoding, "replace")


def _zipped(layout: Layout, made: Mapping[Path, str], folder: Path) -> dict[Path, str]:
    """Put the files of each value of the split into a zip; return the zips."""
    zips: dict[Path, str] = {}
    for path, value in made.items():
        target = folder / layout.file_name(layout.zip, value)
        with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.write(path, path.name)
        path.unlink()
        zips[target] = value
    return zips
