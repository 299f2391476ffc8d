"""Sides of a comparison that are files in a layout of conf/export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from das.errors import InputError
from das.histograms import Histograms, mixed_radix
from das.queries.query import Query
from das.schema import Schema
from jobs.analysis.layouts import attribute_codes, table_queries
from jobs.pipeline.config.layouts import Layout
from jobs.pipeline.input.published import (
    FileSet,
    Kinds,
    find_sets,
    needed_columns,
    stored_files,
)


def _rows_of(files: FileSet, kinds: Kinds) -> Iterator[pa.Table]:
    """Stream columns of files with the geocode of each row.

    Raises:
      InputError: A file is malformed, or a value is missing.
    """
    codes = [column.name for column in files.files[0].geocode_columns()]
    for first, rows in files.rows(dict.fromkeys(codes, pa.string()) | {**kinds}):
        for name in rows.column_names:
            if rows[name].null_count:
                row = first + pc.index(pc.is_null(rows[name]), True).as_py()
                raise InputError(files.where(row, name), "has no value")
        joined = pc.binary_join_element_wise(*(rows[name] for name in codes), "")
        yield rows.append_column("geocode", joined)


@dataclass(frozen=True, eq=False)
class TabulatedFiles:
    """Files in a layout that have a row per geounit.

    Attributes:
      path: The path that names them.
      sets: Files with the same rows.
    """

    path: Path
    sets: Sequence[FileSet]

    def tables(self, wanted: Layout) -> list[str]:
        """List the tables of a layout whose variables all files have."""
        names = [{name for columns in one.columns for name in columns} for one in self.sets]
        held = set.intersection(*names)
        return [name for name in wanted.tables if {*wanted.variables(name)} <= held]

    def geolevels(self) -> dict[int, str]:
        """Return the lengths of the geocodes, without names."""
        lengths = pc.utf8_length(self._rows(())["geocode"])
        return dict.fromkeys(sorted(pc.unique(lengths).to_pylist()), "")

    def read(self, wanted: Layout, table: str, length: int) -> pa.Table:
        """Return the variables of a table for the geounits with geocodes of a length.

        Returns:
          Columns geocode and the variables; each geocode once.

        Raises:
          InputError: A file is malformed, or states a geounit twice.
        """
        rows = self._rows(tuple(wanted.variables(table)))
        rows = rows.filter(pc.equal(pc.utf8_length(rows["geocode"]), length))
        if pc.count_distinct(rows["geocode"]).as_py() < rows.num_rows:
            raise InputError(str(self.path), "has a geocode twice", got=f"{length} characters")
        return rows

    @lru_cache(maxsize=1)  # noqa: B019 - the files of a comparison live as long as its command
    def _rows(self, variables: tuple[str, ...]) -> pa.Table:
        """Return geocodes with variables."""
        kinds = dict.fromkeys(variables, pa.float64())
        parts = [
            rows.select(["geocode", *kinds]) for one in self.sets for rows in _geounits(one, kinds)
        ]
        return pa.concat_tables(parts).combine_chunks()


def _geounits(files: FileSet, kinds: Kinds) -> Iterator[pa.Table]:
    """Stream the rows whose geolevel is one of the layout.

    Official files also have rows of places and districts, whose geocodes can be as long.
    """
    length = files.files[0].column_of("{length}")
    if length is None or length.codes is None:
        yield from _rows_of(files, kinds)
        return
    listed = files.layout.codes[length.codes]
    digits = pa.array([int(each) for each in listed])
    for rows in _rows_of(files, {**kinds, length.name: pa.string()}):
        place = pc.index_in(rows[length.name], value_set=pa.array([*listed.values()]))
        yield rows.filter(pc.equal(pc.take(digits, place), pc.utf8_length(rows["geocode"])))


@dataclass(frozen=True, eq=False)
class RecordFiles:
    """Files in a layout that have a row per record.

    Attributes:
      parts: Files of the records of each schema, such as persons and units.
    """

    parts: Sequence[tuple[Schema, Sequence[FileSet]]]

    def tables(self, wanted: Layout) -> list[str]:
        """List the tables of a layout that the records can be counted for."""
        return [name for name in wanted.tables if self._counted(wanted, name)]

    def geolevels(self) -> dict[int, str]:
        """Return the lengths of geocodes for which records are counted, without names."""
        return dict.fromkeys(self.parts[0][1][0].layout.geolevels or (), "")

    def read(self, wanted: Layout, table: str, length: int) -> pa.Table:
        """Return the variables of a table for the geounits with geocodes of a length.

        Returns:
          Columns geocode and the variables; each geocode once, if it has records.

        Raises:
          InputError: A file is malformed, or has an unknown code.
        """
        place, queries = self._counted(wanted, table)[0]
        rows, n = self._cells(place), self.parts[place][0].size
        codes = pc.utf8_slice_codeunits(rows["geocode"], 0, length).combine_chunks()
        encoded = codes.dictionary_encode()
        keys = np.asarray(encoded.indices, np.int64) * n + np.asarray(rows["cell"])
        keys, counts = np.unique(keys, return_counts=True)
        offsets = np.searchsorted(keys, np.arange(len(encoded.dictionary) + 1) * n)
        histograms = Histograms(n, offsets, keys % n, counts)
        answers = np.concatenate([query.answer(histograms) for query in queries], axis=1)
        columns = zip(wanted.variables(table), map(pa.array, answers.T), strict=True)
        return pa.table({"geocode": encoded.dictionary, **dict(columns)})

    def _counted(self, wanted: Layout, table: str) -> list[tuple[int, Sequence[Query]]]:
        """List the parts that have the attributes of a table, with the queries of the table."""
        able = [table_queries(wanted, table, schema) for schema, _ in self.parts]
        return [(place, queries) for place, queries in enumerate(able) if queries is not None]

    @lru_cache(maxsize=2)  # noqa: B019 - the files of a comparison live as long as its command
    def _cells(self, place: int) -> pa.Table:
        """Return the geocode and the cell of each record of a part, which is read once.

        Raises:
          InputError: A file is malformed, or files are of two editions.
        """
        schema, sets = self.parts[place]
        layout, file = sets[0].layout, sets[0].files[0]
        by_attribute = attribute_codes(layout, file, schema)
        edition = file.column_of("{run}")
        names = [name for columns in by_attribute.values() for name in columns]
        sizes = [len(attribute.levels) for attribute in schema.attributes]
        parts, editions = [], set[str]()
        for one in sets:
            extra = [edition.name] if edition is not None and edition.name in one.columns[0] else []
            for rows in _rows_of(one, dict.fromkeys([*names, *extra], pa.string())):
                levels = [_levels(one, rows, columns) for columns in by_attribute.values()]
                cells = mixed_radix(np.stack(levels, axis=1), range(len(sizes)), sizes)
                codes = _recoded(layout, rows["geocode"])
                parts.append(pa.table({"geocode": codes, "cell": cells}))
                editions.update(*(pc.unique(rows[name]).to_pylist() for name in extra))
        if len(editions) > 1:
            holder = str(sets[0].stored[0].holder.parent)
            what = "has records of two editions"
            raise InputError(holder, what, got=sorted(editions), want="one")
        return pa.concat_tables(parts)


def _levels(files: FileSet, rows: pa.Table, columns: Mapping[str, Sequence[str]]) -> IntArray:
    """Return the level of each record that columns of codes tell, int64[n].

    Raises:
      InputError: No level has the codes of a record.
    """
    joined = pc.binary_join_element_wise(*(rows[name] for name in columns), "|")
    listed = ["|".join(several) for several in zip(*columns.values(), strict=True)]
    levels = pc.index_in(joined, value_set=pa.array(listed))
    if levels.null_count:
        wrong = joined.filter(pc.is_null(levels))[0].as_py()
        where = f"{files.stored[0]}, {'|'.join(columns)}"
        raise InputError(where, "has an unknown code", got=wrong, want=listed)
    return np.asarray(levels, np.int64)


def _recoded(layout: Layout, geocodes: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace geocodes that the published files state differently from the measurements."""
    position = pc.index_in(geocodes, value_set=pa.array([*layout.recoded], pa.string()))
    replaced = pc.take(pa.array([*layout.recoded.values()], pa.string()), position)
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
        parts, sets = [], find_sets(layout, stored)
        plain = [one for one in sets if not any(column.axis for column in one.files[0].columns)]
        if plain:
            return TabulatedFiles(path, plain)
        for file in layout.files:
            fitting = [one for one in sets if file in one.files]
            able = [one for one in schemas if fitting and attribute_codes(layout, file, one)]
            if able:  # the schema with most cells tells most of a record
                parts.append((max(able, key=lambda one: one.size), fitting))
        if parts:
            return RecordFiles(parts)
    readable = [layout for layout in layouts if layout.header]
    raise InputError(
        str(path),
        "holds no files of a known layout",
        got={str(one): one.columns(readable[0])[:12] for one in stored[:3]} or "no file to read",
        want={
            f"{file.name} of {layout.name}": needed_columns(file)
            for layout in readable
            for file in layout.files
        },
        remedy="name the layout of the files with --as, or rename columns",
    )
