"""Files of estimates: moments in coordinates, which pass up and down the tree, and tables of them.

estimates/subtree/level=<L>/   messages up the tree, of all geolevels but the last
estimates/whole/level=<L>/     estimates from all answers, of all geolevels but the last
estimates/tables/level=<L>/    estimates and standard errors of tables

All have a format number, the fact `format`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from das.arrays import FloatArray, ObjectArray
from das.errors import OutputError
from das.queries.query import Query
from das.tree.coordinates import Coordinates
from das.tree.intervals import central_intervals, normal_factor
from das.tree.passes import Moments
from jobs.pipeline.storage.columns import (
    byte_rows,
    flattened,
    lengths,
    lists,
    ragged_lists,
    repeated,
    texts,
)
from jobs.pipeline.storage.dataset import LAST, Dataset, PartFile, PartWriter, RangeReader
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.place import Place

MOMENTS = pa.schema(
    [
        ("geocode", pa.string()),
        ("values", pa.binary()),
        ("matrices", pa.dictionary(pa.int32(), pa.binary())),
    ]
)
FORMAT = 3
_GROUP_NUMBERS = 1 << 19  # numbers of a row group of moments: 4 MiB as double; not measured
_SINGLE_BELOW = 2.0**16  # below it float32 rounds by at most 2^-9, less than any noise


def tables_schema(largest_above: float) -> pa.Schema:
    """Return the schema of estimated tables: float32 if estimates are below 2^16, else float64.

    Below 2^16, float32 rounds by at most 2^-9, less than any noise.

    Args:
      largest_above: Largest estimate of the geolevel above, an approximate bound for its children.
    """
    number = pa.float32() if largest_above < _SINGLE_BELOW else pa.float64()
    values = [("estimate", pa.list_(number)), ("standard_error", pa.list_(number))]
    names = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([("geocode", pa.string()), ("query", names), *values])


def write_moments(
    dataset: Place,
    coordinates: Coordinates,
    codes: ObjectArray,
    moments: Moments,
    *,
    single: bool = False,
) -> PartFile:
    """Write one part of moments, a row per geounit; equal matrices of a row group are stored once.

    Row groups are small, so that tasks of the geolevel below read few geounits in vain. Compression
    of the noisy values would save 3 percent.

    Args:
      dataset: Folder of the dataset.
      coordinates: Coordinates of the moments.
      codes: object[G] geocodes, ascending.
      moments: Moments of these geounits.
      single: Whether geounits with small values are stored in single precision.
    """
    writer = PartWriter(dataset, MOMENTS, uncompressed=("values",))
    most = max(1, _GROUP_NUMBERS // coordinates.size)
    writer.write_apart(
        _moments_table(coordinates, codes[rows], moments.take(rows), single=single)
        for start in range(0, len(codes), most)
        for rows in [np.arange(start, min(start + most, len(codes)))]
    )
    return writer.close()


def _moments_table(
    coordinates: Coordinates, codes: ObjectArray, moments: Moments, *, single: bool
) -> pa.Table:
    used, kind = np.unique(moments.kind, return_inverse=True)
    flat = coordinates.flatten(tuple(part[used] for part in moments.matrices))
    kinds = pa.array([row.tobytes() for row in flat], pa.binary())
    return pa.table(
        [
            pa.array(codes, pa.string()),
            _value_bytes(coordinates.flatten(moments.values), single=single),
            pa.DictionaryArray.from_arrays(pa.array(kind.reshape(-1).astype(np.int32)), kinds),
        ],
        schema=MOMENTS,
    )


def _value_bytes(values: FloatArray, *, single: bool) -> pa.Array | pa.ChunkedArray:
    """Encode rows of floats in 8 bytes each, or in 4 if `single` and the row is small."""
    small = single & (np.abs(values).max(axis=1, initial=0) < _SINGLE_BELOW)
    if not small.any() or small.all():
        numbers = np.ascontiguousarray(values, "<f4" if small.any() else "<f8")
        return byte_rows(numbers.ravel(), values.shape[1] * np.arange(len(values) + 1))
    rows = [
        row.astype("<f4" if is_small else "<f8").tobytes()
        for row, is_small in zip(values, small.tolist(), strict=True)
    ]
    return pa.array(rows, pa.binary())


def _values_of(column: pa.ChunkedArray, size: int) -> FloatArray:
    """Decode float64[G, size] from `_value_bytes`."""
    out = np.empty((len(column), size))
    at = 0
    for chunk in column.chunks:
        ends = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset :][: len(chunk) + 1]
        data = chunk.buffers()[2]
        widths = np.diff(ends)
        edges = np.flatnonzero(np.diff(widths, prepend=-1, append=-1)).tolist()
        for first, last in pairwise(edges):  # rows of one width
            kind = np.dtype("<f4" if widths[first] == 4 * size else "<f8")
            n = (last - first) * size
            rows = np.frombuffer(data, kind, n, int(ends[first])) if n else np.empty(0)
            out[at + first : at + last] = rows.reshape(last - first, size)
        at += len(chunk)
    return out


def read_moments(
    dataset: Dataset | RangeReader, coordinates: Coordinates, codes: ObjectArray
) -> Moments:
    """Read the moments of exactly these geocodes.

    Raises:
      OutputError: The dataset lacks a geounit, or a file cannot be read.
    """
    (dataset.dataset if isinstance(dataset, RangeReader) else dataset).require_format(FORMAT)
    with understanding(dataset.path):
        table = dataset.read(str(codes[0]), str(codes[-1]))
        present = texts(table)
        if not np.array_equal(present, codes):
            if not np.isin(codes, present).all():
                raise OutputError(
                    str(dataset.path),
                    "lacks the estimates of a geounit",
                    got=len(present),
                    want=len(codes),
                )
            table = table.take(np.searchsorted(present, codes))
        values = _values_of(table.column("values"), coordinates.size)
        column = table.column("matrices").unify_dictionaries().combine_chunks()
        used, kind = np.unique(column.indices.to_numpy(), return_inverse=True)
        rows = [np.frombuffer(column.dictionary[int(index)].as_py()) for index in used]
        return Moments(
            coordinates.unflatten(values),
            coordinates.unflatten_matrices(np.stack(rows)),
            kind.reshape(-1).astype(np.int64),
        )


def estimate_rows(
    coordinates: Coordinates,
    queries: Sequence[Query],
    codes: ObjectArray,
    moments: Moments,
    schema: pa.Schema,
) -> list[pa.Table]:
    """Make an Arrow table of estimates and standard errors per query."""
    number = schema.field("estimate").type.value_type.to_pandas_dtype()
    out = []
    for query in queries:
        estimates = coordinates.answer(query, moments.values).astype(number, copy=False)
        errors = np.sqrt(coordinates.variances(query, moments.matrices)).astype(number)
        values = map(lists, (estimates, errors[moments.kind]))
        columns = [pa.array(codes, pa.string()), repeated(query.name, len(codes)), *values]
        out.append(pa.table(columns, schema=schema))
    return out


def standard_error_sums(tables: Sequence[pa.Table]) -> list[FloatArray]:
    """Sum standard errors over geounits: float64[m] for each table of `estimate_rows`."""
    columns = [(flattened(table.column("standard_error")), table.num_rows) for table in tables]
    return [values.reshape(rows, -1).sum(0, dtype=np.float64) for values, rows in columns]


def largest_estimate(tables: Sequence[pa.Table]) -> float:
    """Return the largest absolute value of all estimates; 0 if there are none."""
    values = (flattened(table.column("estimate")) for table in tables)
    return float(max((np.abs(some).max(initial=0) for some in values), default=0))


def read_tables(dataset: Dataset, low: str = "", high: str = LAST) -> pa.Table:
    """Read the tables of a geolevel, with the ends of intervals.

    Args:
      dataset: `estimates/tables/level=<L>` of a release.
      low: First geocode.
      high: Last geocode.

    Returns:
      Columns geocode, query and, as lists of float64, estimate, standard_error, lower and upper.
      The intervals are central, with the confidence stated in the facts.

    Raises:
      OutputError: A file cannot be read, or another version wrote it.
    """
    dataset.require_format(FORMAT)
    table = dataset.read(low, high)
    if not table.num_columns:
        return table
    with understanding(dataset.path):
        half_width = normal_factor(dataset.facts["confidence"])
        sizes = lengths(table.column("estimate"))
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        values, errors = (
            flattened(table.column(name)).astype(np.float64)
            for name in ("estimate", "standard_error")
        )
        bounds = central_intervals(values, errors, half_width)
        names = ("estimate", "standard_error", "lower", "upper")
        columns = (values, errors, bounds.lower, bounds.upper)
        out = table.select(["geocode", "query"])
        for name, column in zip(names, columns, strict=True):
            out = out.append_column(name, ragged_lists(offsets, column))
        return out
