"""Tables of a release for people: one file for each table, geolevel and format.

A row is a geounit and an answer, whose labels stand in columns: the protected count, and what else
is known of the truth, which is the unbiased estimate with standard error and interval and, after
`das replicate`, an interval of the count. Made from the release alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import FloatArray, IntArray, ObjectArray
from das.errors import OutputError
from das.histograms import Histograms
from das.queries.query import Query, terms_of
from das.tree.intervals import central_intervals, normal_factor
from jobs.pipeline.config.product import H1, TablesWanted
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.intervals import MARKS, ClassTable
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

_ROWS = 200_000  # held at once: with the texts of CSV some 50 MB
# Of counts as files have them, read at once, some tens of MB as they are held. Bounded apart from
# rows: 152,000 enumeration districts have one row each of a table of totals and 320 cells each, and
# took 4.6 GB.
_BYTES = 4_000_000
_DECIMALS = 3  # of estimates; the noise of none is as small


class Estimates(Protocol):
    """Unbiased estimates of a query in the geounits of a geolevel."""

    @property
    def confidence(self) -> float:
        """Of the intervals."""

    def pieces(self, most: int) -> Iterator[Piece]:
        """All geounits in ranges of `most` or so, in the order in which they are read."""

    def read(self, codes: ObjectArray) -> tuple[FloatArray, FloatArray]:
        """float64[G, m] estimates and standard errors of the geounits of a piece."""


@dataclass(frozen=True, eq=False)
class ReleasedEstimates:
    """Those that a release holds, of a query of `output.tables`.

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
        """None where a release has no estimates, or none of this query."""
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
        """Of the intervals."""
        with understanding(self._dataset.path):
            return float(self._dataset.facts["confidence"])

    def pieces(self, most: int) -> Iterator[Piece]:
        """All geounits in ranges of `most`."""
        return even_pieces(self.release, self.geolevel, most)

    def read(self, codes: ObjectArray) -> tuple[FloatArray, FloatArray]:
        """float64[G, m] estimates and standard errors of the geounits of a piece.

        Raises:
          OutputError: The dataset lacks one, or cannot be read.
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
            values, errors = (one.astype(np.float64).reshape(shape) for one in columns)
            return values, errors


def most_geounits(release: ReleaseLayout, geolevel: str, rows: int) -> int:
    """How many geounits of a geolevel to read at once, for a table of so many rows for each."""
    counts = Dataset.open(release.counts(geolevel))
    by_counts = _BYTES * counts.rows // max(1, counts.bytes)
    return max(1, min(_ROWS // rows, by_counts))


class Tabulated(Protocol):
    """A table of one geolevel as rows."""

    @property
    def geolevel(self) -> str:
        """The geolevel."""

    def rows(self) -> Iterator[pa.Table]:
        """Rows by geounit, some at a time; once at least, with the columns."""


@dataclass(frozen=True, eq=False)
class _Geounits:
    """Some geounits of a geolevel, with their protected counts.

    Attributes:
      codes: object[G] geocodes, ascending.
      shown: The same as the census has them, where it has these geounits.
      names: Their names; None if there are none.
      counts: Their histograms.
    """

    codes: ObjectArray
    shown: pa.ChunkedArray
    names: pa.ChunkedArray | None
    counts: Histograms

    def columns(self, geolevel: str, times: int) -> dict[str, pa.Array]:
        """Columns that say of each row which geounit it is about, `times` rows for each."""
        rows = pa.array(np.repeat(np.arange(len(self.codes)), times))
        found = {
            "geolevel": repeated(geolevel, len(rows)),
            "geocode": self.shown.take(rows),
        }
        return found if self.names is None else {**found, "name": self.names.take(rows)}


def _read_geounits(
    plan: Plan, release: ReleaseLayout, geolevel: str, pieces: Iterator[Piece]
) -> Iterator[_Geounits]:
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
        yield _Geounits(codes, shown, names, read_histograms(counts, codes, plan.schema.size))


@dataclass(frozen=True, eq=False)
class GeolevelTable:
    """A query in all geounits of a geolevel.

    Attributes:
      plan: The plan.
      release: Has the counts.
      geolevel: The geolevel.
      query: The query.
      estimates: Of it; None if there are none.
      intervals: Of its counts; None if there are none.
      confidence: Of the intervals of estimates; None for that of the estimates.
    """

    plan: Plan
    release: ReleaseLayout
    geolevel: str
    query: Query
    estimates: Estimates | None = None
    intervals: ClassTable | None = None
    confidence: float | None = None

    def rows(self) -> Iterator[pa.Table]:
        """A row per geounit and answer."""
        most = most_geounits(self.release, self.geolevel, self.query.size)
        if self.estimates is None:
            pieces = even_pieces(self.release, self.geolevel, most)
        else:
            pieces = self.estimates.pieces(most)
        for some in _read_geounits(self.plan, self.release, self.geolevel, pieces):
            yield self._table(some)

    def _table(self, some: _Geounits) -> pa.Table:
        answers = self.query.answer(some.counts)
        columns = some.columns(self.geolevel, self.query.size)
        known = {*columns, *_NUMBERS}
        for term, label in self._labels(len(some.codes)):
            columns[f"{term} (attribute)" if term in known else term] = label
        columns["count"] = pa.array(answers.ravel(), pa.int64())
        if self.intervals is not None:
            columns |= self._of_counts(self.intervals, some.counts, answers)
        if self.estimates is not None:
            columns |= _of_estimates(self.estimates, some.codes, self.confidence)
        return pa.table(columns)

    def _labels(self, geounits: int) -> Iterator[tuple[str, pa.DictionaryArray]]:
        """The term of each attribute that is kept, and its label in every row."""
        query = self.query
        index = np.indices([query.shape[axis] for axis in query.kept], np.int32)
        index = index.reshape(len(query.kept), query.size)
        for term, axis, own in zip(
            terms_of(self.plan.schema, query), query.kept, index, strict=True
        ):
            labels = pa.array(query.factors[axis].labels, pa.string())
            which = pa.array(np.tile(own, geounits))
            yield term, pa.DictionaryArray.from_arrays(which, labels)

    def _of_counts(
        self, intervals: ClassTable, counts: Histograms, answers: IntArray
    ) -> dict[str, pa.Array]:
        signed = any(factor.matrix.min() < 0 for factor in self.query.factors)
        lower, upper, mark = intervals.at(counts.totals(), answers, least=None if signed else 0)
        marks = pa.array(mark.ravel().astype(np.int32))
        return {
            "count_lower": pa.array(lower.ravel(), pa.int64()),
            "count_upper": pa.array(upper.ravel(), pa.int64()),
            "count_coverage": pa.DictionaryArray.from_arrays(marks, pa.array(MARKS, pa.string())),
        }


_NUMBERS = (
    *("count", "count_lower", "count_upper", "count_coverage"),
    *("estimate", "standard_error", "estimate_lower", "estimate_upper"),
)


def _of_estimates(
    estimates: Estimates, codes: ObjectArray, confidence: float | None
) -> dict[str, pa.Array]:
    values, errors = estimates.read(codes)
    factor = normal_factor(confidence or estimates.confidence)
    found = central_intervals(values, errors, factor)
    columns = (values, errors, found.lower, found.upper)
    return {
        # -0.0 is 0, but is written otherwise.
        name: pa.array(np.round(column, _DECIMALS).ravel() + 0.0)
        for name, column in zip(_NUMBERS[-4:], columns, strict=True)
    }


@dataclass(frozen=True, eq=False)
class H1Table:
    """Table H1 of the redistricting data: all, occupied and vacant housing units.

    Attributes:
      plan: The plan of the units.
      release: Has their counts.
      geolevel: The geolevel.
      query: Attribute or recode with the levels `occupied` and `vacant`; others are no housing
        units.
    """

    plan: Plan
    release: ReleaseLayout
    geolevel: str
    query: Query

    def rows(self) -> Iterator[pa.Table]:
        """A row per geounit, with columns under their official names."""
        labels = self.query.labels()
        wanted = [labels.index("occupied"), labels.index("vacant")]
        most = most_geounits(self.release, self.geolevel, len(labels))
        pieces = even_pieces(self.release, self.geolevel, most)
        for some in _read_geounits(self.plan, self.release, self.geolevel, pieces):
            answers = self.query.answer(some.counts)[:, wanted]
            columns = some.columns(self.geolevel, 1)
            columns["H0010001"] = pa.array(answers.sum(axis=1), pa.int64())
            columns["H0010002"] = pa.array(answers[:, 0], pa.int64())
            columns["H0010003"] = pa.array(answers[:, 1], pa.int64())
            yield pa.table(columns)


# --- files ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenTable:
    """What was written of a table of a geolevel.

    Attributes:
      parts: Its files, by format.
      columns: (name, type in words) of its columns.
    """

    parts: Mapping[str, PartFile]
    columns: tuple[tuple[str, str], ...]


def write_table(table: Tabulated, folder: Place, formats: Sequence[str]) -> WrittenTable:
    """Write a table as `csv`, `parquet` or `xlsx`, all in one go; holds a few rows at a time.

    Args:
      table: The table.
      folder: Where to, under names that nobody else uses.
      formats: One or more.

    Raises:
      OutputError: The release is not complete, or a file cannot be written.
    """
    writers: dict[str, CsvPartWriter | PartWriter | XlsxPartWriter] = {}
    schema = pa.schema([])
    for rows in table.rows():
        if not writers:
            schema = rows.schema
            writers = {name: _writer(name, folder, table.geolevel, schema) for name in formats}
        for writer in writers.values():
            writer.write(rows)
    parts = {name: writer.close() for name, writer in writers.items()}
    return WrittenTable(parts, tuple((one.name, type_words(one.type)) for one in schema))


def _writer(
    name: str, folder: Place, title: str, schema: pa.Schema
) -> CsvPartWriter | PartWriter | XlsxPartWriter:
    if name == "csv":
        return CsvPartWriter(folder, spooled=True)
    if name == "xlsx":
        return XlsxPartWriter(folder, title, spooled=True)
    return PartWriter(folder, schema, spooled=True)


# --- the stage -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Item:
    """A table of a geolevel, as a task is told of it."""

    geolevel: str
    query: Query
    stem: str


def write_tables(plan: Plan, release: ReleaseLayout, wanted: TablesWanted, tasks: Tasks) -> None:
    """Write the tables of every geolevel, each by one task; complete geolevels are kept.

    Raises:
      OutputError: The counts are not complete, or a file cannot be written.
    """
    missing = [name for name in plan.geolevels if not is_published(release.tables(name))]
    rows = {name: Dataset.open(release.geography(name)).rows for name in missing}
    items = [
        _Item(geolevel, query, stem)
        for geolevel in missing
        if wanted.formats
        for stem, query in wanted.files(geolevel)
    ]
    items.sort(key=lambda item: -rows[item.geolevel] * item.query.size)

    def run(item: _Item) -> WrittenTable:
        table: Tabulated
        if item.stem == H1:
            table = H1Table(plan, release, item.geolevel, item.query)
        else:
            estimates = ReleasedEstimates.of(release, item.geolevel, item.query)
            table = GeolevelTable(plan, release, item.geolevel, item.query, estimates)
        return write_table(table, release.tables(item.geolevel), wanted.formats)

    written = [*zip(items, tasks.run("write tables", items, run), strict=True)]
    for geolevel in missing:
        own = [(item, one) for item, one in written if item.geolevel == geolevel]
        columns = dict(column for _, one in own for column in one.columns)
        columns = dict(sorted(columns.items(), key=lambda column: column[0] in _NUMBERS))
        facts = {
            **wanted.facts(geolevel),
            "geolevel": geolevel,
            "columns": [{"name": name, "type": words} for name, words in columns.items()],
            "not_for_release": plan.not_for_release,
        }
        names = {
            part.file: f"{item.stem}.{name}"
            for item, one in own
            for name, part in one.parts.items()
        }
        parts = [part for _, one in own for part in one.parts.values()]
        publish(release.tables(geolevel), parts, facts, names=names)
