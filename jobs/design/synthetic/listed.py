"""Generated persons for the blocks of a public list, whose housing units say how many there are.

The list is any table with a row per block: 15-digit geocodes, housing units, and perhaps the
number of group quarters. Tracts are drawn one by one, each from a seed of its own as in `nation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from das.arrays import Geocodes, IntArray
from das.errors import ConfigError
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.nation import Blocks, Tract, draw_listed
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Table, read_table
from jobs.pipeline.input.geounits import refuse_twice, rows_of
from jobs.pipeline.storage.place import Place

_DIGITS, _TRACT_DIGITS = 15, 11


@dataclass(frozen=True, eq=False)
class ListedTracts:
    """Tracts of a list, sorted by geocode.

    Attributes:
      codes: bytes[B] geocodes of blocks, sorted.
      housing_units: int64[B].
      group_quarters: int64[B].
      edges: int64[T + 1]: where tracts begin in these, and the end.
      every: Which of them are drawn.
    """

    codes: Geocodes
    housing_units: IntArray
    group_quarters: IntArray
    edges: IntArray
    every: int

    def __len__(self) -> int:
        return len(range(0, len(self.edges) - 1, self.every))

    def draw(self, nation: GenerateSpec) -> Iterator[Blocks]:
        """Draw one after the other; each depends on the seed and its own rows alone."""
        for index in range(0, len(self.edges) - 1, self.every):
            part = slice(self.edges[index], self.edges[index + 1])
            geocodes = [code.decode() for code in self.codes[part].tolist()]
            first = geocodes[0]
            state, county, tract = int(first[:2], 36), int(first[2:5], 36), int(first[5:11], 36)
            place = Tract(state, county, tract, len(geocodes))
            units, quarters = self.housing_units[part], self.group_quarters[part]
            yield draw_listed(nation, place, geocodes, units, quarters)


def list_tracts(path: Place, nation: GenerateSpec) -> ListedTracts:
    """Read a public list of blocks.

    Raises:
      ConfigError: There are not two or three columns, or `every` is not positive.
      InputError: It cannot be read, lacks a column, names a block twice, or has a geocode that is
        not of 15 letters or digits, or a number that is negative.
    """
    columns_named = tuple(name.strip() for name in nation.columns.split(","))
    if not 2 <= len(columns_named) <= 3:
        raise ConfigError(
            "generate, columns",
            "do not name a geocode, housing units and perhaps group quarters",
            got=", ".join(columns_named),
            want="two or three columns",
        )
    if nation.every < 1:
        raise ConfigError("generate, every", "is not positive", got=nation.every)
    table = Table(path, columns_named)
    geocode, *numbers = columns_named
    codes: list[Geocodes] = []
    columns: list[list[IntArray]] = [[] for _ in numbers]
    for batch in read_table(table):
        array = values.geocodes(batch, geocode, _DIGITS)
        codes.append(values.geocode_bytes(array, _DIGITS))
        for column, name in zip(columns, numbers, strict=True):
            column.append(values.counts(batch, name))
    found = np.concatenate(codes)
    order = np.argsort(found, kind="stable")
    found = found[order]
    refuse_twice(found, lambda code: rows_of(table, geocode, code, _DIGITS))
    units, *quarters = (np.concatenate(column)[order] for column in columns)
    tracts = found.astype(f"S{_TRACT_DIGITS}")
    starts = np.flatnonzero(np.append(True, tracts[1:] != tracts[:-1]))
    edges = np.append(starts, len(found)).astype(np.int64)
    none = np.zeros(len(found), np.int64)
    return ListedTracts(found, units, quarters[0] if quarters else none, edges, nation.every)
