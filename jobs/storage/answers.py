"""Files of answers, a row per geounit and query: exact, given, or noisy with its mechanism.

Exact answers of invariants and given counts have three columns (geocode, query, answers); noisy
answers also the mechanism of their noise, and lazy ones the positions of those that were drawn.
Noisy answers are packed (`jobs.storage.packed`); releases that were made before they were, whose
facts name no format, are read as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import FloatArray, IntArray, ObjectArray
from das.errors import OutputError
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.registry import read_mechanism
from das.queries.query import Query
from invariants.linear import LinearRow
from jobs.storage.columns import chosen, flattened, lists, ragged_lists, repeated, texts
from jobs.storage.dataset import LAST, Dataset, RangeReader
from jobs.storage.packed import PACKED, packed, row_sizes, unpacked

ANSWERS = pa.schema(
    [
        ("geocode", pa.string()),
        ("query", pa.dictionary(pa.int32(), pa.string())),
        ("answers", pa.list_(pa.int64())),
    ]
)
MEASUREMENTS = pa.schema(
    [
        ("geocode", pa.string()),
        ("query", pa.dictionary(pa.int32(), pa.string())),
        ("mechanism", pa.dictionary(pa.int32(), pa.string())),
        ("parameter", pa.dictionary(pa.int32(), pa.string())),
        ("variance", pa.float64()),
        *PACKED,
    ]
)
MEASUREMENTS_FORMAT = 2  # 1: answers as lists of int64
LAZY_MEASUREMENTS = MEASUREMENTS.append(pa.field("positions", pa.list_(pa.int64())))


@dataclass(frozen=True, eq=False)
class DrawnAnswers:
    """Answers of a lazy query: of every geounit those that were drawn, compressed by rows.

    Attributes:
      offsets: int64[G + 1]; geounit g owns entries offsets[g]:offsets[g + 1].
      positions: int64, which answer each entry is, rising within a geounit.
      answers: int64, noisy.
    """

    offsets: IntArray
    positions: IntArray
    answers: IntArray

    def of(self, rows: slice, positions: IntArray) -> FloatArray:
        """Some answers of the geounits of one family, float64[C, p].

        Args:
          rows: The C geounits, start and stop given.
          positions: int64[p], ascending numbers of the answers.

        Raises:
          OutputError: One was not drawn.
        """
        edges = self.offsets[rows.start : rows.stop + 1]
        entries = slice(edges[0], edges[-1])
        drawn = self.positions[entries].reshape(rows.stop - rows.start, -1)
        place = np.searchsorted(drawn[0], positions)
        if (place >= drawn.shape[1]).any() or (drawn[:, place] != positions).any():
            raise OutputError(
                "lazy measurements",
                "lack answers about cells that are positive now: the geolevel above was solved "
                "again after they were drawn",
                remedy="restore those counts from a backup; or remove them and solve them again "
                "with the libraries and the machine that solved them first",
            )
        return self.answers[entries].reshape(drawn.shape)[:, place].astype(np.float64)


# --- writing -------------------------------------------------------------------------------------


def answer_table(codes: Sequence[str] | ObjectArray, query: str, answers: IntArray) -> pa.Table:
    """Rows of ANSWERS: the answers of one query, int64[G, m], in G geounits."""
    columns = [pa.array(codes, pa.string()), repeated(query, len(codes)), lists(answers)]
    return pa.table(columns, schema=ANSWERS)


def measurement_table(
    codes: Sequence[str],
    query: str,
    mechanisms: Sequence[Mechanism],
    answers: IntArray | DrawnAnswers,
    schema: pa.Schema = MEASUREMENTS,
) -> pa.Table:
    """Rows of noisy answers of one query in G geounits.

    Args:
      codes: G geocodes.
      query: Its name.
      mechanisms: One per geounit, of the noise of each of its answers.
      answers: int64[G, m], or those that were drawn.
      schema: MEASUREMENTS, or LAZY_MEASUREMENTS if some query of the geolevel is lazy.
    """
    distinct = list(dict(zip(map(id, mechanisms), mechanisms, strict=True)).values())
    position = {id(mechanism): index for index, mechanism in enumerate(distinct)}
    which = np.zeros(len(mechanisms), np.int32)  # mostly all have one
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


# --- reading -------------------------------------------------------------------------------------


def rows_about(table: pa.Table, query: str) -> pa.Table:
    """The rows of a table of answers about one query, in their order; runs are not copied."""
    is_about = np.asarray(pc.equal(table.column("query"), query), np.int8)
    starts, stops = np.flatnonzero(np.diff(is_about, prepend=0, append=0)).reshape(-1, 2).T
    runs = [table.slice(a, b - a) for a, b in zip(starts, stops, strict=True)]
    return pa.concat_tables(runs or [table.slice(0, 0)])


def read_answers(
    dataset: Dataset | RangeReader,
    queries: Sequence[Query | LinearRow],
    codes: ObjectArray,
    *,
    narrow: bool = False,
) -> list[IntArray]:
    """Read the answers of queries for exactly these geocodes.

    Args:
      dataset: Exact or noisy answers of a geolevel, or what reads them piece by piece; of a lazy
        query `read_noisy` reads them.
      queries: What to read.
      codes: object[G], as they lie in the files.
      narrow: As of `unpacked`.

    Returns:
      Per query int64[G, m], or narrower ones.

    Raises:
      OutputError: The dataset lacks an answer, or a file cannot be read.
    """
    if not len(codes):
        return [np.zeros((0, query.size), np.int64) for query in queries]
    table = dataset.read(str(codes[0]), str(codes[-1]))
    return [
        _whole(dataset, _rows_of(dataset, table, query, codes), query, len(codes), narrow=narrow)
        for query in queries
    ]


def read_noisy(
    dataset: Dataset | RangeReader,
    queries: Sequence[Query],
    lazy: Sequence[Query],
    codes: ObjectArray,
) -> list[FloatArray | DrawnAnswers]:
    """Read the noisy answers of queries for exactly these geocodes.

    Args:
      dataset: The measurements of a geolevel, or what reads them piece by piece.
      queries: What to read.
      lazy: Those of them of which only some answers were drawn.
      codes: object[G], geocodes of measured geounits, as they lie in the files.

    Returns:
      Per query float64[G, m], or the answers drawn if it is lazy.

    Raises:
      OutputError: The dataset lacks an answer, or a file cannot be read.
    """
    if not len(codes):
        return [np.zeros((0, query.size)) for query in queries]
    table = dataset.read(str(codes[0]), str(codes[-1]))
    noisy: list[FloatArray | DrawnAnswers] = []
    for query in queries:
        rows = _rows_of(dataset, table, query, codes)
        if query in lazy:
            noisy.append(_drawn(dataset, rows))
        else:
            noisy.append(_whole(dataset, rows, query, len(codes)).astype(np.float64))
    return noisy


def read_available(
    dataset: Dataset, name: str, n_answers: int, low: str = "", high: str = LAST
) -> tuple[ObjectArray, IntArray]:
    """Read the answers of one query in all geounits of a range that have them.

    Args:
      dataset: Exact or given answers of a geolevel.
      name: Name of the query.
      n_answers: Its number of answers, m.
      low: First geocode.
      high: Last geocode.

    Returns:
      object[G] geocodes, sorted, and int64[G, m] answers.

    Raises:
      OutputError: The dataset holds nothing of this name, or a file cannot be read.
    """
    if name not in dataset.facts["queries"]:
        held = dataset.facts["queries"]
        raise OutputError(str(dataset.path), f"does not hold {name}", got=held)
    rows = rows_about(dataset.read(low, high), name)
    codes = texts(rows)
    return codes, unpacked(rows).reshape(len(codes), n_answers)


def read_measured(
    dataset: Dataset, name: str, n_answers: int
) -> tuple[ObjectArray, IntArray, tuple[Mechanism, ...]]:
    """Read the noisy answers of one query that is not lazy in all measured geounits.

    Args:
      dataset: The measurements of a geolevel.
      name: Name of the query.
      n_answers: Its number of answers, m.

    Returns:
      object[G] geocodes, int64[G, m] answers, and the mechanism of the noise of each geounit.

    Raises:
      OutputError: A file cannot be read.
    """
    rows = rows_about(dataset.read(), name)
    codes = texts(rows)
    kinds, parameters = (rows.column(c).to_pylist() for c in ("mechanism", "parameter"))
    pairs = list(zip(kinds, parameters, strict=True))
    mechanisms = {
        (kind, parameter): read_mechanism(kind, Fraction(parameter))
        for kind, parameter in dict.fromkeys(pairs)
    }
    answers = _numbers(dataset, rows).reshape(len(codes), n_answers)
    return codes, answers, tuple(mechanisms[pair] for pair in pairs)


def _rows_of(
    dataset: Dataset | RangeReader, table: pa.Table, query: Query | LinearRow, codes: ObjectArray
) -> pa.Table:
    """The rows about a query, which are of exactly these geounits."""
    rows = rows_about(table, query.name)
    if not np.array_equal(texts(rows), codes):
        raise _lacks(dataset, query, len(rows), len(codes))
    return rows


def _whole(
    dataset: Dataset | RangeReader,
    rows: pa.Table,
    query: Query | LinearRow,
    n_geounits: int,
    *,
    narrow: bool = False,
) -> IntArray:
    """int64[G, m], or narrower, of rows that hold every answer."""
    answers = _numbers(dataset, rows, narrow=narrow)
    if len(answers) != n_geounits * query.size:
        raise _lacks(dataset, query, len(rows), n_geounits)
    return answers.reshape(n_geounits, query.size)


def _drawn(dataset: Dataset | RangeReader, rows: pa.Table) -> DrawnAnswers:
    answers, positions = _numbers(dataset, rows), flattened(rows.column("positions"))
    return DrawnAnswers(np.concatenate(([0], np.cumsum(row_sizes(rows)))), positions, answers)


def _numbers(dataset: Dataset | RangeReader, rows: pa.Table, *, narrow: bool = False) -> IntArray:
    _require_known_format(dataset)
    try:
        return unpacked(rows, narrow=narrow)
    except ValueError as error:
        raise OutputError(str(dataset.path), "cannot be read", got=str(error)) from None


def _require_known_format(dataset: Dataset | RangeReader) -> None:
    facts = (dataset.dataset if isinstance(dataset, RangeReader) else dataset).facts
    if facts.get("format", 1) not in range(1, MEASUREMENTS_FORMAT + 1):
        raise OutputError(
            str(dataset.path),
            "has answers of a format that this version does not know",
            got=facts["format"],
            want=f"at most {MEASUREMENTS_FORMAT}",
        )


def _lacks(
    dataset: Dataset | RangeReader, query: Query | LinearRow, got: int, want: int
) -> OutputError:
    return OutputError(
        str(dataset.path),
        f"does not hold query {query.name} of every geounit",
        got=f"{got} rows",
        want=want,
    )
