"""Files of estimates: moments in coordinates, which pass up and down the tree, and tables of them.

OUT/release/estimates/subtree/level=<L>/   messages up the tree, of all geolevels but the last
OUT/release/estimates/whole/level=<L>/     estimates from all answers, of all geolevels but the last
OUT/release/estimates/tables/level=<L>/    estimates, standard errors and intervals of tables
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from das.arrays import FloatArray, ObjectArray
from das.errors import OutputError
from das.queries.query import Query
from das.tree.coordinates import Coordinates
from das.tree.passes import Moments
from jobs.storage.columns import flattened, lists, repeated, texts
from jobs.storage.dataset import Dataset, RangeReader

MOMENTS = pa.schema(
    [
        ("geocode", pa.string()),
        ("values", pa.list_(pa.float64())),
        ("matrices", pa.dictionary(pa.int32(), pa.binary())),
    ]
)
TABLES = pa.schema(
    [
        ("geocode", pa.string()),
        ("query", pa.dictionary(pa.int32(), pa.string())),
        ("estimate", pa.list_(pa.float64())),
        ("standard_error", pa.list_(pa.float64())),
        ("lower", pa.list_(pa.float64())),
        ("upper", pa.list_(pa.float64())),
    ]
)


def moments_table(coordinates: Coordinates, codes: ObjectArray, moments: Moments) -> pa.Table:
    """One row per geounit; equal matrices are stored once."""
    flat = coordinates.flatten_matrices(moments.matrices)
    kinds = pa.array([row.tobytes() for row in flat], pa.binary())
    return pa.table(
        [
            pa.array(codes, pa.string()),
            lists(coordinates.flatten(moments.values)),
            pa.DictionaryArray.from_arrays(pa.array(moments.kind.astype(np.int32)), kinds),
        ],
        schema=MOMENTS,
    )


def read_moments(
    dataset: Dataset | RangeReader, coordinates: Coordinates, codes: ObjectArray
) -> Moments:
    """Read the moments of exactly these geocodes.

    Raises:
      OutputError: The dataset lacks a geounit, or a file cannot be read.
    """
    table = dataset.read(str(codes[0]), str(codes[-1]))
    present = texts(table)
    if not np.array_equal(present, codes):
        if not np.isin(codes, present).all():
            raise OutputError(
                str(dataset.path), "lacks a geounit", got=len(present), want=len(codes)
            )
        table = table.take(np.searchsorted(present, codes))
    values = flattened(table.column("values"))
    column = table.column("matrices").unify_dictionaries().combine_chunks()
    used, kind = np.unique(column.indices.to_numpy(), return_inverse=True)
    rows = [np.frombuffer(column.dictionary[int(index)].as_py()) for index in used]
    return Moments(
        coordinates.unflatten(values.reshape(len(codes), coordinates.size)),
        coordinates.unflatten_matrices(np.stack(rows)),
        kind.reshape(-1).astype(np.int64),
    )


def estimate_rows(
    coordinates: Coordinates,
    queries: Sequence[Query],
    codes: ObjectArray,
    moments: Moments,
    factor: float,
) -> list[pa.Table]:
    """Estimates, standard errors and central intervals of tables, one Arrow table per query."""
    out = []
    for query in queries:
        estimates = coordinates.answer(query, moments.values)
        errors = np.sqrt(coordinates.variances(query, moments.matrices))[moments.kind]
        half = factor * errors
        values = map(lists, (estimates, errors, estimates - half, estimates + half))
        columns = [pa.array(codes, pa.string()), repeated(query.name, len(codes)), *values]
        out.append(pa.table(columns, schema=TABLES))
    return out


def standard_error_sums(tables: Sequence[pa.Table]) -> list[FloatArray]:
    """Sums over geounits of the standard errors, float64[m] for each table of `estimate_rows`."""
    columns = [(flattened(table.column("standard_error")), table.num_rows) for table in tables]
    return [values.reshape(rows, -1).sum(0) for values, rows in columns]
