"""Replicates: how far counts of a repeated run are from those it took for the truth.

Of each replicate only errors counted by size class are kept, in one small file; they are integers,
and those of several replicates add up to what one file of all would hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from das.errors import OutputError
from das.metrics.accuracy import pack, unpack
from das.metrics.replicates import ClassErrors, Compared, add_errors, compare
from das.queries.query import Query
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.columns import chosen
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.files import read_bytes, replace_file
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import even_pieces

_GEOUNITS = 20_000  # compared at a time, as by `das verify`
_BOTH = ("by_release", "by_replicate")
_PLACE = ("generation", "product", "geolevel", "query", "seen")
_ERRORS = pa.schema(
    [
        ("generation", pa.int8()),
        *((name, pa.string()) for name in _PLACE[1:]),
        ("error", pa.int64()),
        ("size_bin", pa.int8()),
        ("count_bin", pa.int8()),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True, order=True)
class Asked:
    """What is compared.

    Attributes:
      generation: 1 for a replicate of the release, 2 for one of such a replicate.
      product: Name of the product.
      geolevel: Name of the geolevel.
      query: Canonical name of the query.
    """

    generation: int
    product: str
    geolevel: str
    query: str


Errors = Mapping[Asked, Compared]


def compare_level(
    plan: Plan,
    geolevel: str,
    queries: Sequence[Query],
    release: ReleaseLayout,
    replicate: ReleaseLayout,
) -> dict[str, Compared]:
    """Compare queries of all geounits of a geolevel, by name of the query."""
    found: dict[str, list[Compared]] = {query.name: [] for query in queries}
    ours, theirs = (Dataset.open(one.counts(geolevel)) for one in (release, replicate))
    for low, high in even_pieces(release, geolevel, _GEOUNITS):
        codes = read_public_geocodes(release, geolevel, low, high)
        first, second = (read_histograms(one, codes, plan.schema.size) for one in (ours, theirs))
        for query in queries:
            found[query.name].append(compare(query, first, second))
    return {name: _added(parts) for name, parts in found.items()}


def _added(parts: Sequence[Compared]) -> Compared:
    both = (add_errors(getattr(part, name) for part in parts) for name in _BOTH)
    return Compared(*both)


def write_errors(path: Place, errors: Errors) -> None:
    """Write the errors of a replicate; the file is there when it is whole.

    Raises:
      OutputError: It cannot be written.
    """
    rows = [
        (one, name, getattr(compared, name)) for one, compared in errors.items() for name in _BOTH
    ]
    sizes = [len(counted.keys) for _, _, counted in rows]
    values = [unpack(counted.keys) for _, _, counted in rows]
    of_row = np.repeat(np.arange(len(rows), dtype=np.int32), sizes)
    columns = [
        pa.array(np.repeat([one.generation for one, _, _ in rows], sizes), pa.int8()),
        *(
            chosen(of_row, [getattr(one, name) for one, _, _ in rows]).cast(pa.string())
            for name in ("product", "geolevel", "query")
        ),
        chosen(of_row, [name for _, name, _ in rows]).cast(pa.string()),
        *(
            np.concatenate([value[i] for value in values]).astype(kind)
            for i, kind in enumerate((np.int64, np.int8, np.int8))
        ),
        np.concatenate([counted.counts for _, _, counted in rows]),
    ]
    file = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=_ERRORS), file, compression="zstd")
    replace_file(path, file.getvalue().to_pybytes())


def read_errors(path: Place) -> pa.Table:
    """Read the errors of a replicate, as rows of _ERRORS.

    Raises:
      OutputError: It is missing or damaged.
    """
    remedy = "remove it, and run `das replicate` again"
    data = read_bytes(path, remedy)
    try:
        table = pq.read_table(pa.BufferReader(data)).cast(_ERRORS)
    except (pa.ArrowException, ValueError) as error:
        raise OutputError(
            str(path), "is damaged", got=type(error).__name__, remedy=remedy
        ) from None
    return table


def gather_errors(replicates: Sequence[pa.Table]) -> dict[Asked, Compared]:
    """Errors of several replicates together, from what `read_errors` returns."""
    names = _ERRORS.names
    table = pa.concat_tables(replicates).group_by(names[:-1]).aggregate([("count", "sum")])
    order = [(name, "ascending") for name in (*_PLACE, "size_bin", "count_bin", "error")]
    table = table.sort_by(order)
    codes = [np.asarray(pc.rank(table.column(name), tiebreaker="dense")) for name in _PLACE]
    found: dict[Asked, dict[str, ClassErrors]] = {}
    if not len(table):
        return {}
    changes = np.any([np.diff(code) != 0 for code in codes], axis=0)
    edges = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(table)]))
    values = [table.column(name).to_numpy() for name in ("error", "size_bin", "count_bin")]
    keys = pack(*(np.asarray(value, np.int64) for value in values))
    counts = np.asarray(table.column("count_sum").to_numpy(), np.int64)
    for first, last in pairwise(edges.tolist()):
        generation, product, geolevel, query, seen = (
            table.column(name)[first].as_py() for name in _PLACE
        )
        errors = add_errors([ClassErrors(keys[first:last], counts[first:last])])
        found.setdefault(Asked(generation, product, geolevel, query), {})[seen] = errors
    return {one: Compared(both[_BOTH[0]], both[_BOTH[1]]) for one, both in found.items()}
