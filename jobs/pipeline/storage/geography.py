"""The public geounits of every geolevel, written once and read by range."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from das.arrays import Geocodes, ObjectArray
from geography.lattice import ROOT_CODE, Lattice
from jobs.pipeline.storage.columns import check_columns, texts
from jobs.pipeline.storage.dataset import LAST, Dataset, PartWriter, is_published, publish
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.layout import ReleaseLayout

_GEOGRAPHY = pa.schema(
    [
        ("geocode", pa.string()),
        ("parent", pa.string()),
        ("n_children", pa.int64()),
        ("only_child", pa.bool_()),
        ("chain_end", pa.string()),
    ]
)
# Geounits of a row group, and of a part file. A task reads a few thousand consecutive geounits, and
# decodes whole row groups; row groups of 200,000 took 20 to 60 ms per reading.
_GROUP_ROWS = 8_192
_PART_ROWS = 32 * _GROUP_ROWS


_CENSUS = pa.field("census_geocode", pa.string())
_NAME = pa.field("name", pa.string())
_Column = Geocodes | ObjectArray


@dataclass(frozen=True, eq=False)
class Census:
    """Census geocodes of the leaves, for a spine other than the census hierarchy.

    Attributes:
      lattice: The census geounits.
      leaves: bytes[G], census geocode of every leaf, in the order of the spine.
    """

    lattice: Lattice
    leaves: Geocodes


def write_geography(
    lattice: Lattice,
    layout: ReleaseLayout,
    names: Mapping[str, ObjectArray] = MappingProxyType({}),
    census: Census | None = None,
) -> None:
    """Write the public geounits of every geolevel; complete geolevels are kept.

    Args:
      lattice: The geounits of the spine.
      layout: The release.
      names: Per geolevel with names, object[G] of str, sorted by census geocode.
      census: Census geocodes, if the spine has others. Common geolevels then get both geocodes,
        and census geolevels off the spine are written too.
    """
    for level, name in enumerate(lattice.spine.levels):
        more: dict[pa.Field, _Column] = {}
        named = names.get(name)
        if census is not None and name in census.lattice.spine.levels:
            in_census = more[_CENSUS] = _census_codes(lattice, level, census)
            if named is not None:
                codes = census.lattice.codes[census.lattice.spine.levels.index(name)]
                named = named[np.searchsorted(codes, in_census)]
        if named is not None:
            more[_NAME] = named
        _write_level(lattice, level, layout, more)
    for level, name in enumerate(() if census is None else census.lattice.spine.levels):
        if census is not None and name not in lattice.spine.levels:
            more = {_NAME: names[name]} if name in names else {}
            _write_level(census.lattice, level, layout, more)


def _census_codes(lattice: Lattice, level: int, census: Census) -> Geocodes:
    """Return bytes[G], census geocodes of the G geounits of a geolevel that the census has too."""
    first = np.arange(len(lattice.codes[level]))
    for below in range(level, len(lattice.spine.levels) - 1):
        first = lattice.first_child[below][first]
    spine = census.lattice.spine
    digits = spine.digits[spine.levels.index(lattice.spine.levels[level])]
    leaves = census.leaves[first]
    return leaves.astype(f"S{digits}") if digits else np.full(len(leaves), ROOT_CODE, "S1")


def _write_level(
    lattice: Lattice, level: int, layout: ReleaseLayout, more: Mapping[pa.Field, _Column]
) -> None:
    name = lattice.spine.levels[level]
    dataset = layout.geography(name)
    if is_published(dataset):
        return
    parts = []
    rows = _rows(lattice, level, more)
    schema = pa.schema([*_GEOGRAPHY, *more])
    for group in rows:
        writer = PartWriter(dataset, schema)
        writer.write_apart([group, *itertools.islice(rows, _PART_ROWS // _GROUP_ROWS - 1)])
        parts.append(writer.close())
    publish(dataset, parts, {"geolevel": name})


def _rows(lattice: Lattice, level: int, more: Mapping[pa.Field, _Column]) -> Iterator[pa.Table]:
    """Yield the rows of a geolevel by row group, with further columns."""
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
        for field, column in more.items():
            part = column[rows]
            values = pa.array(part.astype(np.str_) if part.dtype.kind == "S" else part, pa.string())
            table = table.append_column(field, values)
        yield table


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
      columns: Some of geocode, parent (geocode; "" for the root), n_children, only_child, chain_end
        (geolevel at which the chain of only children below ends), and, if present, census_geocode
        and name; default all.

    Raises:
      OutputError: The geography is not complete, or a file cannot be read.
    """
    dataset = Dataset.open(layout.geography(geolevel))
    table = dataset.read(low, high, columns)
    with understanding(dataset.path):
        check_columns(table, (*_GEOGRAPHY, _CENSUS, _NAME), columns or _GEOGRAPHY.names)
    return table


def read_public_geocodes(
    layout: ReleaseLayout, geolevel: str, low: str = "", high: str = LAST
) -> ObjectArray:
    """Read the geocodes of the geounits low..high of a geolevel, object[G], sorted.

    Raises:
      OutputError: The geography is not complete, or a file cannot be read.
    """
    table = read_geography(layout, geolevel, low, high, ("geocode",))
    return texts(table)


def read_both_geocodes(
    layout: ReleaseLayout, geolevel: str, low: str = "", high: str = LAST
) -> tuple[ObjectArray, ObjectArray]:
    """Read the geocodes of the geounits low..high of a geolevel.

    Returns:
      object[G] geocodes on the spine, sorted, and object[G] census geocodes. Both are equal if the
      spine is the census hierarchy, and for geolevels that only the spine has.

    Raises:
      OutputError: The geography is not complete, or a file cannot be read.
    """
    table = read_geography(layout, geolevel, low, high)
    is_census = _CENSUS.name in table.column_names
    return texts(table), texts(table, _CENSUS.name if is_census else "geocode")


def families(parents: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield ranges [start, stop) of rows that share a parent."""
    if not len(parents):
        return
    starts = np.flatnonzero(np.concatenate(([True], parents[1:] != parents[:-1])))
    yield from zip(starts, np.append(starts[1:], len(parents)), strict=True)
