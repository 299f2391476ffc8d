"""Write and read files of answers, a row per geounit and query: exact, given or noisy.

Exact answers and given counts have three columns (geocode, query, answers). Noisy answers also have
the mechanism of their noise. On-demand answers, in a separate dataset, have the positions of the
drawn answers.

Noisy answers are packed (`jobs.pipeline.storage.columns`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from das.arrays import FloatArray, IntArray, ObjectArray
from das.errors import OutputError
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.registry import read_mechanism
from das.queries.query import Query
from das.rational import stated_fraction
from invariants.linear import LinearRow
from jobs.pipeline.storage.columns import (
    PACKED,
    chosen,
    flattened,
    lists,
    packed,
    ragged_lists,
    repeated,
    row_sizes,
    texts,
    unpacked,
    with_lists,
)
from jobs.pipeline.storage.dataset import LAST, Dataset, RangeReader
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.place import Place

_NAMES = pa.dictionary(pa.int32(), pa.string())
_ROW = [("geocode", pa.string()), ("query", _NAMES)]
ANSWERS = pa.schema([*_ROW, ("answers", pa.list_(pa.int64()))])
_NOISE = [("mechanism", _NAMES), ("parameter", _NAMES), ("variance", pa.float64())]
MEASUREMENTS = pa.schema([*_ROW, *_NOISE, *PACKED])
ORIGIN = "origin"
"""Fact of imported measurements: their origin."""
MEASUREMENTS_FORMAT = 2
# Queries with more answers list labels of their factors in place of labels of all answers. Default,
# not measured.
_LABELS = 100_000
LAZY_MEASUREMENTS = MEASUREMENTS.append(pa.field("positions", pa.list_(pa.int64())))


@dataclass(frozen=True, eq=False)
class DrawnAnswers:
    """Noisy answers of an on-demand query in compressed sparse rows, a row per geounit.

    Below the root, noise is drawn only for answers about cells that are positive in the published
    counts of the parent. Other answers are absent.

    Attributes:
      offsets: int64[G + 1]; geounit g has entries offsets[g]:offsets[g + 1].
      positions: int64, position of each drawn answer in the query, ascending within a geounit.
      answers: int64, noisy answers.
    """

    offsets: IntArray
    positions: IntArray
    answers: IntArray

    def take(self, geounits: IntArray) -> DrawnAnswers:
        """Return the answers of the geounits at these int64 positions, in this order."""
        sizes = np.diff(self.offsets)[geounits]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        entries = np.repeat(self.offsets[geounits], sizes) + within
        return DrawnAnswers(offsets, self.positions[entries], self.answers[entries])

    def of(self, rows: slice, positions: IntArray) -> FloatArray:
        """Return float64[C, p], p answers of each of the C geounits of one family.

        Args:
          rows: Slice of the C geounits, with start and stop.
          positions: int64[p], positions of answers in the query, ascending.

        Raises:
          OutputError: An answer was not drawn.
        """
        edges = self.offsets[rows.start : rows.stop + 1]
        entries = slice(edges[0], edges[-1])
        drawn = self.positions[entries].reshape(rows.stop - rows.start, -1)
        index = np.searchsorted(drawn[0], positions)
        if (index >= drawn.shape[1]).any() or (drawn[:, index] != positions).any():
            raise OutputError(
                "on-demand measurements",
                "lack answers about cells that are positive now: the geolevel above was solved "
                "again after they were drawn",
                remedy="restore those counts from a backup; or remove them and solve them again "
                "with the libraries and the machine that solved them first",
            )
        return self.answers[entries].reshape(drawn.shape)[:, index].astype(np.float64)


# --- writing -------------------------------------------------------------------------------------


def answer_table(codes: Sequence[str] | ObjectArray, query: str, answers: IntArray) -> pa.Table:
    """Make rows of `ANSWERS` from the answers of one query, int64[G, m], in G geounits."""
    columns = [pa.array(codes, pa.string()), repeated(query, len(codes)), lists(answers)]
    return pa.table(columns, schema=ANSWERS)


def measurement_table(
    codes: Sequence[str],
    query: str,
    mechanisms: Sequence[Mechanism],
    answers: IntArray | DrawnAnswers,
    schema: pa.Schema = MEASUREMENTS,
) -> pa.Table:
    """Make rows of noisy answers of one query in G geounits.

    Args:
      codes: G geocodes.
      query: Name of the query.
      mechanisms: Mechanism of the noise of each geounit.
      answers: int64[G, m], or answers drawn on demand.
      schema: `MEASUREMENTS`, or `LAZY_MEASUREMENTS` for answers drawn on demand.
    """
    distinct = list(dict(zip(map(id, mechanisms), mechanisms, strict=True)).values())
    position = {id(mechanism): index for index, mechanism in enumerate(distinct)}
    which = np.zeros(len(mechanisms), np.int32)  # mostly all geounits have the same mechanism
    if len(distinct) > 1:
        which[:] = [position[id(mechanism)] for mechanism in mechanisms]
    columns = [
        pa.array(codes, pa.string()),
        repeated(query, len(codes)),
        chosen(which, [mechanism.kind for mechanism in distinct]),
        chosen(which, [str(mechanism.parameter) for mechanism in distinct]),
        pa.array(np.array([m.variance() for m in distinct])[which], pa.float64()),
    ]
    if isinstance(answers, DrawnAnswers):
        columns += packed(answers.answers, answers.offsets)
        columns.append(ragged_lists(answers.offsets, answers.positions))
    else:
        columns += packed(answers, answers.shape[1] * np.arange(len(answers) + 1))
        if len(schema) > len(MEASUREMENTS):
            columns.append(pa.nulls(len(codes), schema.field("positions").type))
    return pa.table(columns, schema=schema)


def described(query: Query) -> dict[str, Any]:
    """Describe a query for readers of the measurements; JSON."""
    facts = {"query": query.name, "answers": query.size, "shape": list(query.shape)}
    if query.size <= _LABELS:
        facts["labels"] = query.labels()
    else:
        facts["factor_labels"] = [list(factor.labels) for factor in query.factors]
    if not query.is_partition:
        facts["factors"] = [factor.matrix.tolist() for factor in query.factors]
    return facts


# --- reading -------------------------------------------------------------------------------------


def rows_about(table: pa.Table, query: str) -> pa.Table:
    """Select the rows about one query, in order; consecutive rows are not copied."""
    return _by_query(table).get(query, table.slice(0, 0))


def _by_query(table: pa.Table) -> dict[str, pa.Table]:
    """Group rows by query, in order; consecutive rows are not copied."""
    runs: dict[str, list[pa.Table]] = {}
    if table.num_rows:
        column = table.column("query")
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries()
        index = np.concatenate([np.asarray(chunk.indices) for chunk in column.chunks])
        starts = np.flatnonzero(np.diff(index, prepend=-1))
        names = column.chunk(0).dictionary.to_pylist()
        for start, stop in pairwise([*starts.tolist(), len(index)]):
            runs.setdefault(names[index[start]], []).append(table.slice(start, stop - start))
    return {query: pa.concat_tables(tables) for query, tables in runs.items()}


def answers_reader(dataset: Dataset) -> RangeReader:
    """Open a reader of answers by range, without the columns that describe the noise."""
    return RangeReader(dataset, without=[name for name, _ in _NOISE])


def read_answers(
    dataset: Dataset | RangeReader,
    queries: Sequence[Query | LinearRow],
    codes: ObjectArray,
    *,
    narrow: bool = False,
) -> list[IntArray]:
    """Read the answers of queries for exactly these geocodes.

    Args:
      dataset: Exact or noisy answers of a geolevel, or a reader of them. On-demand answers are read
        by `read_drawn`.
      queries: The queries.
      codes: object[G] geocodes, in the order of the files.
      narrow: Passed to `unpacked`.

    Returns:
      Per query int64[G, m], or a narrower dtype.

    Raises:
      OutputError: The dataset lacks an answer, or a file cannot be read.
    """
    if not len(codes):
        return [np.zeros((0, query.size), np.int64) for query in queries]
    out = []
    with understanding(dataset.path):
        for query, rows in _rows_of(dataset, queries, codes):
            answers = unpacked(rows, narrow=narrow)
            if len(answers) != len(codes) * query.size:
                raise _lacks(dataset.path, query, len(rows), len(codes))
            out.append(answers.reshape(len(codes), query.size))
    return out


def read_drawn(
    dataset: Dataset | RangeReader, queries: Sequence[Query], codes: ObjectArray
) -> list[DrawnAnswers]:
    """Read the drawn answers of on-demand queries for exactly these geocodes.

    Args:
      dataset: The on-demand measurements of a geolevel, or a reader of them.
      queries: The queries.
      codes: object[G] geocodes of measured geounits, in the order of the files.

    Raises:
      OutputError: The dataset lacks a query, or a file cannot be read.
    """
    if not len(codes):
        none = np.zeros(0, np.int64)
        return [DrawnAnswers(np.zeros(1, np.int64), none, none) for _ in queries]
    with understanding(dataset.path):
        return [
            DrawnAnswers(
                np.concatenate(([0], np.cumsum(row_sizes(rows)))),
                flattened(rows.column("positions")),
                unpacked(rows),
            )
            for _, rows in _rows_of(dataset, queries, codes)
        ]


def read_listed(dataset: Dataset, low: str = "", high: str = LAST) -> pa.Table:
    """Read noisy answers, with `answers` as lists of int64; see `with_lists`.

    Raises:
      OutputError: A file cannot be read, or another version wrote it.
    """
    dataset.require_format(MEASUREMENTS_FORMAT)
    with understanding(dataset.path):
        return with_lists(dataset.read(low, high))


def read_available(
    dataset: Dataset, name: str, n_answers: int, low: str = "", high: str = LAST
) -> tuple[ObjectArray, IntArray]:
    """Read the answers of one query in the geounits of a range that have answers.

    Args:
      dataset: Exact or given answers of a geolevel.
      name: Name of the query.
      n_answers: Number of answers of the query, m.
      low: First geocode.
      high: Last geocode.

    Returns:
      object[G] geocodes, sorted, and int64[G, m] answers.

    Raises:
      OutputError: The dataset lacks the query, or a file cannot be read.
    """
    with understanding(dataset.path):
        queries = dataset.facts["queries"]
        if name not in queries:
            raise OutputError(str(dataset.path), f"does not hold {name}", got=queries)
        rows = rows_about(dataset.read(low, high), name)
        codes = texts(rows)
        return codes, unpacked(rows).reshape(len(codes), n_answers)


def read_measured(
    dataset: Dataset, name: str, n_answers: int
) -> tuple[ObjectArray, IntArray, tuple[Mechanism, ...]]:
    """Read the noisy answers of one query, not on demand, in all measured geounits.

    Args:
      dataset: The measurements of a geolevel.
      name: Name of the query.
      n_answers: Number of answers of the query, m.

    Returns:
      object[G] geocodes, int64[G, m] answers, and the mechanism of the noise of each geounit.

    Raises:
      OutputError: A file cannot be read.
    """
    dataset.require_format(MEASUREMENTS_FORMAT)
    with understanding(dataset.path):
        rows = rows_about(dataset.read(), name)
        codes = texts(rows)
        mechanism = cache(lambda kind, text: read_mechanism(kind, stated_fraction(text)))
        kinds, parameters = (rows.column(c).to_pylist() for c in ("mechanism", "parameter"))
        answers = unpacked(rows).reshape(len(codes), n_answers)
        return codes, answers, tuple(map(mechanism, kinds, parameters))


def _rows_of(
    dataset: Dataset | RangeReader, queries: Sequence[Query | LinearRow], codes: ObjectArray
) -> Iterator[tuple[Query | LinearRow, pa.Table]]:
    """Yield each query with its rows; checks that they are of exactly these geounits."""
    reader = dataset if isinstance(dataset, RangeReader) else answers_reader(dataset)
    reader.dataset.require_format(MEASUREMENTS_FORMAT)
    table = reader.read(str(codes[0]), str(codes[-1]))
    by_query = _by_query(table)
    wanted = pa.chunked_array([pa.array(codes, pa.string())])
    for query in queries:
        rows = by_query.get(query.name, table.slice(0, 0))
        if not rows.num_columns or not rows.column("geocode").equals(wanted):
            raise _lacks(reader.path, query, len(rows), len(codes))
        yield query, rows


def _lacks(path: Place, query: Query | LinearRow, got: int, want: int) -> OutputError:
    what = f"does not hold query {query.name} of every geounit"
    return OutputError(str(path), what, got=f"{got} rows", want=want)
