"""Read the public list of leaf geounits, and check columns of geocodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import BoolArray, Geocodes, IntArray, ObjectArray
from das.errors import InputError
from geography.lattice import Lattice, Spine
from jobs.pipeline.config.models.data import BlockTableData, RecordsData
from jobs.pipeline.config.models.kinds.kind import PublicTable
from jobs.pipeline.config.models.products import AreasFile
from jobs.pipeline.config.models.run import EntitiesFile, GeounitsFile
from jobs.pipeline.config.models.values import GeocodeColumns, Quoting, names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Batch, Table, read_table

_DELIMITER = "geography.geounits.delimiter"


GeocodedFile = GeounitsFile | EntitiesFile | PublicTable | AreasFile | RecordsData | BlockTableData
"""A file with a column of geocodes, or several columns that make them."""


def list_geounits(geounits: GeounitsFile, spine: Spine) -> Geocodes:
    """List the geocodes of the public list of leaf geounits; reads no confidential data.

    Returns:
      bytes[G], sorted, unique.

    Raises:
      InputError: A geocode is missing, has the wrong length, or appears twice.
    """
    digits = spine.digits[-1]
    table = table_of(geounits, (), _DELIMITER)
    parts = geocode_column(table, geounits.geocode, digits)
    return sorted_unique(parts, table, geounits.geocode, digits)


def table_of(
    file: GeocodedFile, columns: Iterable[str], setting: str = "the delimiter of this table"
) -> Table:
    """Return the table that reads the geocodes and other columns of a file.

    Args:
      file: Section of the run file that names file and geocode columns.
      columns: The other columns.
      setting: Key of the run file that sets the delimiter, for errors.
    """
    names = dict.fromkeys((*names_of(file.geocode), *columns))
    lost = file.leading_zeros == "lost"
    quoting: Quoting = getattr(file, "quoting", "double")
    return Table(file.path, tuple(names), file.delimiter, setting, lost, quoting)


def list_names(geounits: GeounitsFile, lattice: Lattice) -> dict[str, ObjectArray]:
    """Read the names of geounits in the public list, by geolevel.

    Args:
      geounits: The list.
      lattice: The geounits of the list.

    Returns:
      Per geolevel with names, object[G] of str, sorted by geocode; "" without a name.

    Raises:
      InputError: A geounit has two names, or a column is missing.
    """
    if not geounits.names:
        return {}
    spine = lattice.spine
    table = table_of(geounits, geounits.names.values(), _DELIMITER)
    sizes = {level: len(lattice.codes[spine.levels.index(level)]) for level in geounits.names}
    found = {level: np.full(size, "", object) for level, size in sizes.items()}
    named = {level: np.zeros(size, np.bool_) for level, size in sizes.items()}
    for batch in read_table(table):
        leaves = values.geocodes(batch, geounits.geocode, spine.digits[-1])
        codes = values.geocode_bytes(leaves, spine.digits[-1])
        for level, column in geounits.names.items():
            index = spine.levels.index(level)
            digits = spine.digits[index]
            # A geolevel without digits is the root, which has one geounit.
            cut = codes.astype(f"S{digits}") if digits else np.zeros(len(codes), np.int64)
            spots = np.searchsorted(lattice.codes[index], cut) if digits else cut
            _note_names(found[level], named[level], spots, batch, column)
    return found


def _note_names(
    known: ObjectArray, named: BoolArray, spots: IntArray, batch: Batch, column: str
) -> None:
    """Record the names of some rows; rows of the same geounit must have the same name."""
    texts = pc.utf8_trim_whitespace(batch.table.column(column).cast(pa.string()))
    names = np.asarray(pc.fill_null(texts, "").to_numpy(zero_copy_only=False), object)
    places, first = np.unique(spots, return_index=True)
    fresh = ~named[places]
    known[places[fresh]] = names[first[fresh]]
    named[places] = True
    other = np.flatnonzero(known[spots] != names)
    if len(other):
        row = int(other[0])
        raise InputError(
            f"{batch.where(row)}, column {column}",
            "names a geounit otherwise than a row before",
            got=names[row] or "nothing",
            want=known[spots[row]] or "nothing",
        )


def geocode_column(table: Table, column: GeocodeColumns, digits: int) -> list[Geocodes]:
    """Read the geocodes of a table: bytes[m] per batch, in order.

    Raises:
      InputError: A geocode is missing or has the wrong length.
    """
    return [
        values.geocode_bytes(values.geocodes(batch, column, digits), digits)
        for batch in read_table(table)
    ]


def sorted_unique(
    parts: list[Geocodes], table: Table, column: GeocodeColumns, digits: int
) -> Geocodes:
    """Return bytes[G], the sorted geocodes of the G geounits of a table with one row each.

    Raises:
      InputError: A geocode appears twice.
    """
    codes = np.sort(np.concatenate(parts))
    refuse_twice(codes, lambda code: rows_of(table, column, code, digits))
    return codes


def refuse_twice(codes: Geocodes, places: Callable[[str], list[str]]) -> None:
    """Check that sorted geocodes are unique; `places` finds up to two rows of a geocode.

    Raises:
      InputError: A geocode appears twice.
    """
    twice = np.flatnonzero(codes[1:] == codes[:-1])
    if len(twice):
        found = places(codes[twice[0]].decode())
        raise InputError(
            found[0],
            "geocode appears twice",
            got=f"again at {found[1]}" if len(found) > 1 else None,
            want="one row per geounit",
        )


def rows_of(table: Table, column: GeocodeColumns, code: str, digits: int) -> list[str]:
    """Find the first two rows of a geocode."""
    found: list[str] = []
    for batch in read_table(table):
        codes = values.geocodes(batch, column, digits)
        for index in np.flatnonzero(np.asarray(pc.equal(codes, code))):
            found.append(batch.where(int(index)))
            if len(found) == 2:
                return found
    return found
