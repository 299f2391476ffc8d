"""The files of a synthetic nation: schemas, drawn blocks, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from das.arrays import IntArray
from das.errors import ConfigError
from das.schema import Attribute, Schema
from jobs.synthetic.persons import FACILITIES, N_AGES, RELATIONSHIPS

TRACTS_PER_FILE = 400
TRACTS_PER_ROW_GROUP = 50
_RACES = ("white", "black", "aian", "asian", "nhpi", "sor")
COMBINATIONS = [c for size in range(1, 7) for c in combinations(range(6), size)]
_ETHNICITY_RACE = ("hisp", "white", "black", "aian", "asian", "nhpi", "other", "two")
HHGQ = ("household", "correctional", "juvenile", "nursing", "other_institutional", "college",
         "military", "other_noninstitutional")  # fmt: skip
_VOTINGAGE = Attribute("votingage", ("under_18", "18_and_over"))
_CENRACE = Attribute("cenrace", tuple("-".join(_RACES[i] for i in c) for c in COMBINATIONS))
_HISPANIC = Attribute("hispanic", ("not_hispanic", "hispanic"))
_TABLE_AXES = (_VOTINGAGE, _HISPANIC, _CENRACE)
_SEX = Attribute("sex", ("male", "female"))
_AGE = Attribute("age", tuple(map(str, range(N_AGES))))

SCHEMAS = {
    schema.name: schema
    for schema in (
        Schema("pl94", (Attribute("hhgq", HHGQ), *_TABLE_AXES)),
        Schema("pl94_tables", _TABLE_AXES),
        Schema("block16", (_VOTINGAGE, Attribute("ethnicity_race", _ETHNICITY_RACE))),
        Schema("group_quarters", (Attribute("hhgq", HHGQ),)),
        Schema(
            "dhc_persons",
            (Attribute("relgq", (*RELATIONSHIPS, *FACILITIES)), _SEX, _AGE, _HISPANIC, _CENRACE),
        ),
        Schema(
            "census1940",
            (
                Attribute("hhgq", HHGQ),
                _SEX,
                _AGE,
                _HISPANIC,
                Attribute("race", ("white", "black", "aian", "chinese", "japanese", "other")),
                Attribute("citizen", ("citizen", "not_citizen")),
            ),
        ),
        Schema(
            "toy",
            (
                Attribute("sex", ("female", "male")),
                Attribute("age", ("under_18", "18_to_64", "65_and_over")),
            ),
        ),
    )
}
UNITS = ("occupied", "vacant", *HHGQ[1:])  # columns of the block table of units
# Column names of block tables, as `data.pattern` of a run file.
PATTERNS = {
    "pl94": "q{hhgq}v{votingage}h{hispanic}r{cenrace:02d}",
    "pl94_tables": "v{votingage}h{hispanic}r{cenrace:02d}",
    "block16": "v{votingage}e{ethnicity_race}",
    "group_quarters": "q{hhgq}",
    "toy": "s{sex}a{age}",
}


@dataclass(frozen=True, eq=False)
class Blocks:
    """The drawn blocks of a tract.

    Attributes:
      geocodes: B geocodes of 15 digits, sorted.
      housing_units: int64[B, 2], occupied and vacant.
      facilities: int64[B, 7] group-quarters facilities by type.
      rows: int64[m] block of every entry, increasing.
      cells: int64[m] cell of the requested schema, increasing within a block.
      counts: int64[m] persons, positive.
    """

    geocodes: list[str]
    housing_units: IntArray
    facilities: IntArray
    rows: IntArray
    cells: IntArray
    counts: IntArray


class NationFiles:
    """The growing files of one nation; tracts are written in the order of their geocodes."""

    def __init__(self, out: Path, kind: str, schema: Schema) -> None:
        self._folder = out / kind
        self._kind = kind
        self._schema = schema
        types = [f"gq_{name}" for name in HHGQ[1:]]
        self._geounits = pa.schema(
            [("geocode", pa.string()), ("housing_units", pa.int64())]
            + [(name, pa.int64()) for name in types]
        )
        self._listing = pq.ParquetWriter(
            out / "geounits.parquet", self._geounits, compression="zstd"
        )
        self._units = pa.schema([("geocode", pa.string()), *((name, pa.int64()) for name in UNITS)])
        (out / "units").mkdir()
        self._units_file = pq.ParquetWriter(
            out / "units" / "part-00000.parquet", self._units, compression="zstd"
        )
        self._part: pq.ParquetWriter | None = None
        self._waiting: list[Blocks] = []
        self._flushed = 0

    def __enter__(self) -> NationFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._listing.close()
        self._units_file.close()
        if self._part:
            self._part.close()

    def write(self, blocks: Blocks) -> None:
        """Append a tract."""
        self._waiting.append(blocks)
        if len(self._waiting) == TRACTS_PER_ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        blocks, self._waiting = _joined(self._waiting), []
        geocodes, facilities = pa.array(blocks.geocodes), list(map(pa.array, blocks.facilities.T))
        total = pa.array(blocks.housing_units.sum(axis=1))
        self._listing.write_table(pa.table([geocodes, total, *facilities], schema=self._geounits))
        occupancy = map(pa.array, blocks.housing_units.T)
        self._units_file.write_table(
            pa.table([geocodes, *occupancy, *facilities], schema=self._units)
        )
        table = FORMATS[self._kind](blocks, self._schema)
        row_groups = TRACTS_PER_FILE // TRACTS_PER_ROW_GROUP
        if self._flushed % row_groups == 0:
            if self._part:
                self._part.close()
            name = f"part-{self._flushed // row_groups:05d}.parquet"
            self._part = pq.ParquetWriter(self._folder / name, table.schema, compression="zstd")
        if self._part and table.num_rows:
            self._part.write_table(table)
        self._flushed += 1


def _joined(parts: list[Blocks]) -> Blocks:
    starts = np.cumsum([0, *(len(part.geocodes) for part in parts)])
    return Blocks(
        [code for part in parts for code in part.geocodes],
        np.concatenate([part.housing_units for part in parts]),
        np.concatenate([part.facilities for part in parts]),
        np.concatenate([part.rows + start for part, start in zip(parts, starts, strict=False)]),
        np.concatenate([part.cells for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def _records(blocks: Blocks, schema: Schema) -> pa.Table:
    rows, cells = np.repeat(blocks.rows, blocks.counts), np.repeat(blocks.cells, blocks.counts)
    columns = {"geocode": pa.array(blocks.geocodes).take(pa.array(rows))}
    for attribute in schema.attributes:
        codes = schema.codes_of(cells)[attribute.name].astype(np.int8)
        levels = pa.array(attribute.levels)
        columns[attribute.name] = pa.DictionaryArray.from_arrays(pa.array(codes), levels)
    return pa.table(columns)


def _histograms(blocks: Blocks, schema: Schema) -> pa.Table:
    edges = np.searchsorted(blocks.rows, np.arange(len(blocks.geocodes) + 1))
    offsets = pa.array(edges, pa.int32())
    return pa.table(
        {
            "geocode": pa.array(blocks.geocodes),
            "cells": pa.ListArray.from_arrays(offsets, pa.array(blocks.cells)),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(blocks.counts)),
        }
    )


def _block_table(blocks: Blocks, schema: Schema) -> pa.Table:
    if schema.name not in PATTERNS:
        raise ConfigError(
            "generate, format",
            "has a column per cell, and the schema has too many",
            got=f"{schema.size} cells",
            want="records or histograms",
        )
    dense = np.zeros((schema.size, len(blocks.geocodes)), np.int64)
    dense[blocks.cells, blocks.rows] = blocks.counts
    codes = schema.codes_of(np.arange(schema.size))
    columns = {"geocode": pa.array(blocks.geocodes)}
    for cell in range(schema.size):
        level = {name: int(values[cell]) for name, values in codes.items()}
        columns[PATTERNS[schema.name].format(**level)] = pa.array(dense[cell])
    return pa.table(columns)


FORMATS = {"records": _records, "histograms": _histograms, "block_table": _block_table}
