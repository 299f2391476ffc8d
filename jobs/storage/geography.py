"""The public geounits of every geolevel, written once and read by range."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from das.arrays import ObjectArray
from geography.lattice import Lattice
from jobs.storage.columns import texts
from jobs.storage.dataset import LAST, Dataset, PartWriter, is_published, publish
from jobs.storage.layout import ReleaseLayout

_GEOGRAPHY = pa.schema(
    [
        ("geocode", pa.string()),
        ("parent", pa.string()),
        ("n_children", pa.int64()),
        ("only_child", pa.bool_()),
        ("chain_end", pa.string()),
    ]
)
# Geounits of a row group, and of a part file: a task reads a few thousand in a row, and decodes
# whole row groups. With those of 200,000 that was 20 to 60 ms for each of its readings.
_GROUP_ROWS = 8_192
_PART_ROWS = 32 * _GROUP_ROWS


_NAME = pa.field("name", pa.string())


def write_geography(
    lattice: Lattice,
    layout: ReleaseLayout,
    names: Mapping[str, ObjectArray] = MappingProxyType({}),
) -> None:
    """Write the public geounits of every geolevel; complete ones are kept.

    Args:
      lattice: The geounits.
      layout: The release.
      names: Per geolevel whose geounits have names, object[G] of str, by geocode.
    """
    for level, name in enumerate(lattice.spine.levels):
        dataset = layout.geography(name)
        if is_published(dataset):
            continue
        parts = []
        rows = _rows(lattice, level, names.get(name))
        schema = _GEOGRAPHY.append(_NAME) if name in names else _GEOGRAPHY
        for group in rows:
            writer = PartWriter(dataset, schema)
            writer.write_apart([group, *itertools.islice(rows, _PART_ROWS // _GROUP_ROWS - 1)])
            parts.append(writer.close())
        publish(dataset, parts, {"geolevel": name})


def _rows(lattice: Lattice, level: int, named: ObjectArray | None) -> Iterator[pa.Table]:
    """The rows of a geolevel, by row group."""
    codes, numbers = lattice.codes[level], lattice.n_children(level)
    names = np.array(lattice.spine.levels, dtype=object)
    for start in range(0, len(codes), _GROUP_ROWS):
        rows = slice(start, start + _GROUP_ROWS)
        parents = lattice.parents[level][rows]
        above = lattice.codes[level - 1][parents] if level else np.full(len(parents), b"")
        table = pa.table(
            [
                pa.array(codes[rows].astype(np.str_)),
                pa.array(above.astype(np.str_)),
                pa.array(numbers[rows]),
                pa.array(lattice.is_only_child[level][rows]),
                pa.array(names[lattice.chain_end[level][rows]], pa.string()),
            ],
            schema=_GEOGRAPHY,
        )
        yield (
            table
            if named is None
            else table.append_column(_NAME, pa.array(named[rows], pa.string()))
        )


def read_geography(
    layout: ReleaseLayout,
    geolevel: str,
    low: str = "",
    high: str = LAST,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read the geounits low..high of a geolevel, sorted by geocode.

    Args:
      layout: The release.
      geolevel: Name of the geolevel.
      low: First geocode.
      high: Last geocode.
      columns: Of geocode, parent (geocode; "" of the root), n_children, only_child and chain_end
        (name of the geolevel in which the chain of only children below it ends); default all.

    Raises:
      OutputError: The geography is not complete, or a file cannot be read.
    """
    return Dataset.open(layout.geography(geolevel)).read(low, high, columns)


def read_public_geocodes(
    layout: ReleaseLayout, geolevel: str, low: str = "", high: str = LAST
) -> ObjectArray:
    """Read the geocodes of the geounits low..high of a geolevel, object[G], sorted.

    Raises:
      OutputError: The geography is not complete, or a file cannot be read.
    """
    table = read_geography(layout, geolevel, low, high, ("geocode",))
    return texts(table)


def families(parents: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Ranges [start, stop) of rows that share a parent."""
    if not len(parents):
        return
    starts = np.flatnonzero(np.concatenate(([True], parents[1:] != parents[:-1])))
    yield from zip(starts, np.append(starts[1:], len(parents)), strict=True)
