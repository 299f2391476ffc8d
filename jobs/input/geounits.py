"""The public list of leaf geounits, and the checks of any column of geocodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow.compute as pc

from das.arrays import Geocodes
from das.errors import InputError
from geography.lattice import Spine
from jobs.config.models.run import GeounitsFile
from jobs.input import values
from jobs.input.files import Table, read_table


def list_geounits(geounits: GeounitsFile, spine: Spine) -> Geocodes:
    """List the geocodes of the public list of leaf geounits; reads no confidential data.

    Returns:
      bytes[G], sorted, unique.

    Raises:
      InputError: A geocode is missing, has the wrong length, or appears twice.
    """
    digits = spine.digits[-1]
    table = Table(geounits.path, (geounits.geocode,))
    return sorted_unique(geocode_column(table, geounits.geocode, digits), table, digits)


def geocode_column(table: Table, column: str, digits: int) -> list[Geocodes]:
    """Read the geocodes of a table: bytes[m] for each of its batches, in order.

    Raises:
      InputError: One is missing or has the wrong length.
    """
    return [
        values.geocode_bytes(values.geocodes(batch, column, digits), digits)
        for batch in read_table(table)
    ]


def sorted_unique(parts: list[Geocodes], table: Table, digits: int) -> Geocodes:
    """Geocodes of a table with one row per geounit: bytes[G], sorted.

    Raises:
      InputError: One appears twice.
    """
    codes = np.sort(np.concatenate(parts))
    refuse_twice(codes, lambda code: rows_of(table, code, digits))
    return codes


def refuse_twice(codes: Geocodes, places: Callable[[str], list[str]]) -> None:
    """Check that sorted geocodes are unique; `places` says where one stands, at most two places.

    Raises:
      InputError: One appears twice.
    """
    twice = np.flatnonzero(codes[1:] == codes[:-1])
    if len(twice):
        found = places(codes[twice[0]].decode())
        raise InputError(
            found[0],
            f"geocode appears twice ({len(np.unique(codes[twice]))} such)",
            got=f"again at {found[1]}" if len(found) > 1 else None,
            want="one row per geounit",
        )


def rows_of(table: Table, code: str, digits: int) -> list[str]:
    """First two places of a geocode."""
    found: list[str] = []
    for batch in read_table(table):
        codes = values.geocodes(batch, table.columns[0], digits)
        for index in np.flatnonzero(np.asarray(pc.equal(codes, code))):
            found.append(batch.where(int(index)))
            if len(found) == 2:
                return found
    return found
