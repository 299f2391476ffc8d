"""Write the tables of a release: one file for each table, geolevel and format.

A row is a geounit and an answer, with labels in columns. It holds the protected count with its
interval, and the unbiased estimate with standard error and interval.
Tables are made from released files only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import FloatArray, ObjectArray
from das.errors import OutputError
from das.histograms import Histograms
from das.queries.query import Query, terms_of
from das.tree.intervals import central_intervals, normal_factor
from jobs.pipeline.config.product import H1, TablesWanted
from jobs.pipeline.documents.intervals import read_intervals
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.intervals import MARKS, ClassTable, class_tables
from jobs.pipeline.release.public_bounds import PublicBounds
from jobs.pipeline.storage.columns import flattened, repeated, texts, type_words
from jobs.pipeline.storage.csv import CsvPartWriter
from jobs.pipeline.storage.dataset import (
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    is_published,
    publish,
)
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.storage.xlsx import XlsxPartWriter
from jobs.pipeline.tasks.batches import Piece, even_pieces
from jobs.pipeline.tasks.executor import Tasks

_ROWS = 200_000  # rows held at once: with the texts of CSV some 50 MB
# Bytes of count files read at once, some tens of MB in memory. Rows are no bound: a table of totals
# has one row for each of 152,000 enumeration districts, whose 320 cells each took 4.6 GB.
_BYTES = 4_000_000
DECIMALS = 3
"""Decimals of estimates, finer than the noise; default, not measured."""


class Estimates(Protocol):
    """Unbiased estimates of a query in the geounits of a geolevel."""

    @property
    def confidence(self) -> float:
        """Return the confidence of the intervals, between 0 and 1."""

    def pieces(self, most: int) -> Iterator[Piece]:
        """Yield ranges of about `most` geounits, in the order of reading."""

    def read(self, codes: ObjectArray) -> tuple[FloatArray, FloatArray]:
        """Read float64[G, m] estimates and standard errors of the geounits of a piece."""


@dataclass(frozen=True, eq=False)
class ReleasedEstimates:
    """Estimates of a query of `output.tables` that a release holds.

    Attributes:
      release: The release.
      geolevel: The geolevel.
      query: The query.
    """

    release: ReleaseLayout
    geolevel: str
    query: Query

    @classmethod
    def of(cls, release: ReleaseLayout, geolevel: str, query: Query) -> ReleasedEstimates | None:
        """Open the estimates of a query; None if the release lacks them."""
        place = EstimateLayout.of(release).tables(geolevel)
        if not is_published(place):
            return None
        with understanding(place):
            known = [entry["query"] for entry in Dataset.open(place).facts["queries"]]
        return cls(release, geolevel, query) if query.name in known else None

    @cached_property
    def _dataset(self) -> Dataset:
        return Dataset.open(EstimateLayout.of(self.release).tables(self.geolevel))

    @cached_property
    def _reader(self) -> RangeReader:
        columns = ("geocode", "query", "estimate", "standard_error")
        return RangeReader(self._dataset, columns, query=self.query.name)

    @property
    def confidence(self) -> float:
        """Return the confidence of the intervals, between 0 and 1."""
        with understanding(self._dataset.path):
            return float(self._dataset.facts["confidence"])

    def pieces(self, most: int) -> Iterator[Piece]:
        """Yield ranges of `most` geounits."""
        return even_pieces(self.release, self.geolevel, most)

    def read(self, codes: ObjectArray) -> tuple[FloatArray, FloatArray]:
        """Read float64[G, m] estimates and standard errors of the geounits of a piece.

        Raises:
          OutputError: The dataset lacks a geounit, or cannot be read.
        """
        place, shape = self._dataset.path, (len(codes), self.query.size)
        with understanding(place):
            table = self._reader.read(str(codes[0]), str(codes[-1]))
            if table.num_columns:
                table = table.filter(pc.equal(table.column("query"), self.query.name))
            if table.num_rows != len(codes) or not np.array_equal(texts(table), codes):
                raise OutputError(
                    str(place), "lacks a geounit", got=table.num_rows, want=len(codes)
                )
            columns = (flattened(table.column(name)) for name in ("estimate", "standard_error"))
            values, errors = (column.astype(np.float64).reshape(shape) for column in columns)
            return values, errors


def most_geounits(release: ReleaseLayout, geolevel: str, rows: int) -> int:
    """Return the geounits of a geolevel to read at once, for a table of `rows` rows per geounit."""
    counts = Dataset.open(release.counts(geolevel))
    by_counts = _BYTES * counts.rows // max(1, counts.bytes)
    return max(1, min(_ROWS // rows, by_counts))


@dataclass(frozen=True, eq=False)
class Geounits:
    """Some geounits of a geolevel, with their protected counts.

    Attributes:
      codes: object[G] geocodes, ascending.
      shown: Geocodes to print: census geocodes where the release has them.
      names: Names of the geounits; None if there are none.
      counts: Histograms of the geounits.
    """

    codes: ObjectArray
    shown: pa.ChunkedArray
    names: pa.ChunkedArray | None
    counts: Histograms

    def columns(self, geolevel: str, times: int) -> dict[str, pa.Array]:
        """Return the columns that identify the geounit of each row, `times` rows per geounit."""
        rows = pa.array(np.repeat(np.arange(len(self.codes)), times))
        found = {
            "geolevel": repeated(geolevel, len(rows)),
            "geocode": self.shown.take(rows),
        }
        return found if self.names is None else {**found, "name": self.names.take(rows)}


def read_geounits(
    plan: Plan, release: ReleaseLayout, geolevel: str, pieces: Iterator[Piece]
) -> Iterator[Geounits]:
    """Yield the geounits of each range of a geolevel, with their protected counts.

    Raises:
      OutputError: The geolevel is not solved, or a file cannot be read.
    """
    geography = RangeReader(
        Dataset.open(release.geography(geolevel)), without=("parent", "n_children")
    )
    counts = RangeReader(Dataset.open(release.counts(geolevel)))
    for low, high in pieces:
        table = geography.read(low, high)
        names = table.column("name") if "name" in table.column_names else None
        codes = texts(table)
        known = "census_geocode" in table.column_names
        shown = table.column("census_geocode" if known else "geocode")
        yield Geounits(codes, shown, names, read_histograms(counts, codes, plan.schema.size))


@dataclass(frozen=True, eq=False)
class GeolevelTable:
    """A query in all geounits of a geolevel, as rows.

    Attributes:
      plan: The plan.
      release: The release with the counts.
      geolevel: The geolevel.
      query: The query.
      estimates: Estimates of the query; None if there are none.
      intervals: Intervals of the counts; None if there are none.
      confidence: Confidence of the intervals of estimates; None for the confidence of `estimates`.
      is_h1: Whether the table is H1 of the redistricting data: all, occupied and vacant housing
        units, under their official names. The query has levels `occupied` and `vacant`; records of
        other levels are not housing units.
    """

    plan: Plan
    release: ReleaseLayout
    geolevel: str
    query: Query
    estimates: Estimates | None = None
    intervals: ClassTable | None = None
    confidence: float | None = None
    is_h1: bool = False

    @cached_property
    def _bounds(self) -> PublicBounds:
        return PublicBounds(self.plan, self.release, self.geolevel)

    def rows(self) -> Iterator[pa.Table]:
        """Yield tables with a row per geounit and answer; at least one table, with the columns."""
        most = most_geounits(self.release, self.geolevel, self.query.size)
        if self.estimates is None:
            pieces = even_pieces(self.release, self.geolevel, most)
        else:
            pieces = self.estimates.pieces(most)
        for some in read_geounits(self.plan, self.release, self.geolevel, pieces):
            yield self._h1(some) if self.is_h1 else self._table(some)

    def _h1(self, some: Geounits) -> pa.Table:
        labels, columns = self.query.labels(), some.columns(self.geolevel, 1)
        answers = self.query.answer(some.counts)
        occupied, vacant = (answers[:, labels.index(name)] for name in ("occupied", "vacant"))
        for number, counts in enumerate((occupied + vacant, occupied, vacant), 1):
            columns[f"H001000{number}"] = pa.array(counts, pa.int64())
        return pa.table(columns)

    def _table(self, some: Geounits) -> pa.Table:
        answers = self.query.answer(some.counts)
        columns = some.columns(self.geolevel, self.query.size)
        known = {*columns, *_NUMBERS}
        for term, label in self._labels(len(some.codes)):
            columns[f"{term} (attribute)" if term in known else term] = label
        columns["count"] = pa.array(answers.ravel(), pa.int64())
        if self.intervals is not None:
            bounds = self._bounds.of(self.query, some.codes)
            _, lower, upper, mark = self.intervals.at(self.query, some.counts, bounds)
            marks = pa.array(mark.ravel().astype(np.int32))
            columns["count_lower"] = pa.array(lower.ravel(), pa.int64())
            columns["count_upper"] = pa.array(upper.ravel(), pa.int64())
            if not self.intervals.is_unknown:
                columns["count_coverage"] = pa.DictionaryArray.from_arrays(
                    marks, pa.array(MARKS, pa.string())
                )
        if self.estimates is not None:
            values, errors = self.estimates.read(some.codes)
            factor = normal_factor(self.confidence or self.estimates.confidence)
            ends = central_intervals(values, errors, factor)
            for name, column in zip(
                _NUMBERS[-4:], (values, errors, ends.lower, ends.upper), strict=True
            ):  # adding 0.0 turns -0.0 into 0.0, which is written without a sign
                columns[name] = pa.array(np.round(column, DECIMALS).ravel() + 0.0)
        return pa.table(columns)

    def _labels(self, geounits: int) -> Iterator[tuple[str, pa.DictionaryArray]]:
        """Yield the term of each kept attribute, and its label in every row."""
        query = self.query
        index = np.indices([query.shape[axis] for axis in query.kept], np.int32)
        index = index.reshape(len(query.kept), query.size)
        for term, axis, level in zip(
            terms_of(self.plan.schema, query), query.kept, index, strict=True
        ):
            labels = pa.array(query.factors[axis].labels, pa.string())
            which = pa.array(np.tile(level, geounits))
            yield term, pa.DictionaryArray.from_arrays(which, labels)


_NUMBERS = (
    *("count", "count_lower", "count_upper", "count_coverage"),
    *("estimate", "standard_error", "estimate_lower", "estimate_upper"),
)


# --- files ---------------------------------------------------------------------------------------


def write_rows(
    tables: Iterable[pa.Table],
    folders: Mapping[str, Place],
    *,
    title: str = "",
    spooled: bool = False,
    has_commas: bool = False,
) -> dict[str, PartFile]:
    """Write tables one after another to one part file per format.

    The tables are consumed once, so few rows are held at a time.

    Args:
      tables: At least one table, all with the same columns.
      folders: Target folders by format: `csv`, `parquet` or `xlsx`.
      title: Title of the sheets of a workbook.
      spooled: Whether a file for a store may be written to the local disk first, because its rows
        are public and can be too large for memory.
      has_commas: Whether CSV files have decimal commas, and semicolons between fields.

    Raises:
      OutputError: A dataset behind the rows is not complete, or a file cannot be written.
    """
    writers: dict[str, CsvPartWriter | PartWriter | XlsxPartWriter] = {}
    for rows in tables:
        for name, folder in folders.items():
            if name not in writers and name == "csv":
                writers[name] = CsvPartWriter(folder, spooled=spooled, has_commas=has_commas)
            elif name not in writers and name == "xlsx":
                writers[name] = XlsxPartWriter(folder, title, spooled=spooled)
            elif name not in writers:
                writers[name] = PartWriter(folder, rows.schema, spooled=spooled)
            writers[name].write(rows)
    return {name: writer.close() for name, writer in writers.items()}


# --- the stage -----------------------------------------------------------------------------------


def write_tables(plan: Plan, release: ReleaseLayout, wanted: TablesWanted, tasks: Tasks) -> None:
    """Write the tables of every geolevel, each by one task; complete geolevels are kept.

    Raises:
      OutputError: The counts are not complete, or a file cannot be written.
    """
    missing = [name for name in plan.geolevels if not is_published(release.tables(name))]
    rows = {name: Dataset.open(release.geography(name)).rows for name in missing}
    items = [
        (geolevel, stem, query)
        for geolevel in missing
        if wanted.formats
        for stem, query in wanted.files(geolevel)
    ]
    items.sort(key=lambda item: -rows[item[0]] * item[2].size)

    classes = class_tables(read_intervals(release, plan.leaf.name))

    def run(item: tuple[str, str, Query]) -> tuple[dict[str, PartFile], dict[str, str]]:
        geolevel, stem, query = item
        is_h1, columns = stem == H1, dict[str, str]()
        estimates = None if is_h1 else ReleasedEstimates.of(release, geolevel, query)
        seen = classes.get((geolevel, query.name))
        table = GeolevelTable(plan, release, geolevel, query, estimates, seen, is_h1=is_h1)
        folders = dict.fromkeys(wanted.formats, release.tables(geolevel))
        rows, commas = _noted(table.rows(), columns), wanted.has_commas
        made = write_rows(rows, folders, title=geolevel, spooled=True, has_commas=commas)
        return made, columns

    written = [*zip(items, tasks.run("write tables", items, run), strict=True)]
    for geolevel in missing:
        of_level = [(stem, *made) for (name, stem, _), made in written if name == geolevel]
        columns = dict(column for _, _, named in of_level for column in named.items())
        columns = dict(sorted(columns.items(), key=lambda column: column[0] in _NUMBERS))
        facts = {
            **wanted.facts(geolevel),
            "geolevel": geolevel,
            "columns": [{"name": name, "type": words} for name, words in columns.items()],
            "not_for_release": plan.not_for_release,
        }
        names = {
            part.file: f"{stem}.{name}"
            for stem, parts, _ in of_level
            for name, part in parts.items()
        }
        files = [part for _, parts, _ in of_level for part in parts.values()]
        publish(release.tables(geolevel), files, facts, names=names)


def _noted(tables: Iterable[pa.Table], columns: dict[str, str]) -> Iterator[pa.Table]:
    """Pass tables through, and record their columns with types in words in `columns`."""
    for table in tables:
        columns.update((field.name, type_words(field.type)) for field in table.schema)
        yield table
