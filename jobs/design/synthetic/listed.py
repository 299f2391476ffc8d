"""Synthetic persons for the blocks of a public list, by their numbers of housing units.

The list is a table with a row per block: 15-digit geocode, housing units, and optionally group
quarters. Each tract is drawn from a separate seed, as in `nation`.
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
      codes: bytes[B], geocodes of blocks, sorted.
      housing_units: int64[B], housing units of each block.
      group_quarters: int64[B], group quarters of each block.
      edges: int64[T + 1], first block of each tract, and the end.
      every: Every n-th tract is drawn.
    """

    codes: Geocodes
    housing_units: IntArray
    group_quarters: IntArray
    edges: IntArray
    every: int

    def __len__(self) -> int:
        return len(range(0, len(self.edges) - 1, self.every))

    def draw(self, nation: GenerateSpec) -> Iterator[Blocks]:
        """Draw tracts one by one; each depends only on the seed and its rows."""
        for index in range(0, len(self.edges) - 1, self.every):
            part = slice(self.edges[index], self.edges[index + 1])
            geocodes = [code.decode() for code in self.codes[part].tolist()]
            first = geocodes[0]
            state, county, tract = int(first[:2], 36), int(first[2:5], 36), int(first[5:11], 36)
            drawn = Tract(state, county, tract, len(geocodes))
            units, quarters = self.housing_units[part], self.group_quarters[part]
            yield draw_listed(nation, drawn, geocodes, units, quarters)


def list_tracts(path: Place, nation: GenerateSpec) -> ListedTracts:
    """Read a public list of blocks.

    Raises:
      ConfigError: `columns` does not name two or three columns, or `every` is not positive.
      InputError: The list cannot be read, lacks a column, repeats a block, or has a geocode without
        15 letters or digits, or a negative number.
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
    blocks = np.concatenate(codes)
    order = np.argsort(blocks, kind="stable")
    blocks = blocks[order]
    refuse_twice(blocks, lambda code: rows_of(table, geocode, code, _DIGITS))
    units, *quarters = (np.concatenate(column)[order] for column in columns)
    tracts = blocks.astype(f"S{_TRACT_DIGITS}")
    starts = np.flatnonzero(np.append(True, tracts[1:] != tracts[:-1]))
    edges = np.append(starts, len(blocks)).astype(np.int64)
    none = np.zeros(len(blocks), np.int64)
    return ListedTracts(blocks, units, quarters[0] if quarters else none, edges, nation.every)
