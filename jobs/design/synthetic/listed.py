"""Synthetic persons for the blocks of a public list, by their numbers of housing units.

The list is a table with a row per block: 15-digit geocode, housing units, and optionally group
quarters. Each tract is drawn from a separate seed, as in `nation`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from das.arrays import Geocodes, IntArray
from das.errors import ConfigError
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.nation import ListedBlocks, Tract
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Table, read_table
from jobs.pipeline.input.geounits import refuse_twice, rows_of
from jobs.pipeline.storage.place import Place

_DIGITS, _TRACT_DIGITS = 15, 11


def list_tracts(path: Place, nation: GenerateSpec) -> list[tuple[Tract, ListedBlocks]]:
    """Read a public list of blocks, and return every n-th tract of it, sorted by geocode.

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
    table, (geocode, *numbers) = Table(path, columns_named), columns_named
    codes: list[Geocodes] = []
    columns: list[list[IntArray]] = [[] for _ in numbers]
    for batch in read_table(table):
        array = values.geocodes(batch, geocode, _DIGITS)
        codes.append(values.geocode_bytes(array, _DIGITS))
        for column, name in zip(columns, numbers, strict=True):
            column.append(values.counts(batch, name))
    order = np.argsort(np.concatenate(codes), kind="stable")
    blocks = np.concatenate(codes)[order]
    refuse_twice(blocks, lambda code: rows_of(table, geocode, code, _DIGITS))
    units, *quarters = (np.concatenate(column)[order] for column in columns)
    facilities = quarters[0] if quarters else np.zeros(len(blocks), np.int64)
    tracts = blocks.astype(f"S{_TRACT_DIGITS}")
    starts = np.flatnonzero(np.append(True, tracts[1:] != tracts[:-1]))
    out = []
    for start, stop in [*pairwise([*starts.tolist(), len(blocks)])][:: nation.every]:
        first = blocks[start].decode()
        state, county, number = int(first[:2], 36), int(first[2:5], 36), int(first[5:11], 36)
        listed = ListedBlocks(blocks[start:stop], units[start:stop], facilities[start:stop])
        out.append((Tract(state, county, number, stop - start), listed))
    return out
