"""The files of a synthetic nation: drawn blocks, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.arrays import IntArray
from das.errors import ConfigError
from das.schema import Schema
from jobs.design.synthetic.nation import Blocks
from jobs.design.synthetic.persons import Entries
from jobs.design.synthetic.schemas import levels_of
from jobs.pipeline.config.data import FILE_KINDS

TRACTS_PER_FILE = 400
TRACTS_PER_ROW_GROUP = 50
TOGETHER = "households"  # who lives with whom, where that is drawn
MOST_COLUMNS = 2_016  # of a block table, which has one for every cell: those of pl94
# What the name of a column of a block table calls an attribute; its level's position follows.
_LETTERS = {"hhgq": "q", "votingage": "v", "hispanic": "h", "cenrace": "r", "ethnicity_race": "e",
            "sex": "s", "age": "a"}  # fmt: skip


def pattern_of(schema: Schema) -> str:
    """Names of the columns of a block table, as `data.pattern` of a run file."""
    return "".join(
        f"{_LETTERS.get(a.name, f'x{index}_')}{{{a.name}{':02d' if a.size > 10 else ''}}}"
        for index, a in enumerate(schema.attributes)
    )


class NationFiles:
    """The growing files of one nation; tracts are written in the order of their geocodes."""

    def __init__(self, out: Path, kind: str, schema: Schema, *, with_prims: bool = False) -> None:
        self._folder = out / kind
        self._beside: dict[str, pq.ParquetWriter] = {}
        self._with_prims = with_prims
        self._out = out
        self._kind = kind
        self._schema = schema
        units = levels_of("units", "unit")
        types = [f"gq_{name}" for name in units[2:]]
        self._geounits = pa.schema(
            [("geocode", pa.string()), ("housing_units", pa.int64())]
            + [(name, pa.int64()) for name in types]
            + [("census_geocode", pa.string())] * with_prims
            + [(name, pa.string()) for name in ("aian", "place")]
        )
        self._listing = pq.ParquetWriter(
            out / "geounits.parquet", self._geounits, compression="zstd"
        )
        self._units = pa.schema([("geocode", pa.string()), *((name, pa.int64()) for name in units)])
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
        for writer in (self._part, *self._beside.values()):
            if writer:
                writer.close()

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
        census = [pa.array(blocks.census_geocodes)] if self._with_prims else []
        lies_in = map(pa.array, _lies_in(blocks.geocodes))
        listed = [geocodes, total, *facilities, *census, *lies_in]
        self._listing.write_table(pa.table(listed, schema=self._geounits))
        for name, entries in blocks.beside.items():
            self._append(name, _histogram_table(blocks.geocodes, *entries))
        if blocks.together is not None:
            self._append(TOGETHER, _together(blocks.geocodes, blocks.together, self._schema))
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

    def _append(self, name: str, table: pa.Table) -> None:
        """Append what else there is of some tracts."""
        if name not in self._beside:
            (self._out / name).mkdir()
            path = self._out / name / "part-00000.parquet"
            self._beside[name] = pq.ParquetWriter(path, table.schema, compression="zstd")
        self._beside[name].write_table(table)


class GrowingTable:
    """A CSV or Parquet file that grows table by table."""

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self._path = path
        self._options = pa_csv.WriteOptions(delimiter=delimiter)
        self._writer: pq.ParquetWriter | pa_csv.CSVWriter | None = None

    def __enter__(self) -> GrowingTable:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        if self._writer is None:
            if FILE_KINDS[self._path.suffix.lower()] == "csv":
                options = {"write_options": self._options}
                self._writer = pa_csv.CSVWriter(self._path, table.schema, **options)
            else:
                self._writer = pq.ParquetWriter(self._path, table.schema, compression="zstd")
        self._writer.write_table(table)


def _lies_in(geocodes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Made-up codes of tribal areas and of places, "" for none; they follow from the geocodes.

    A sixth of the block groups lies in a tribal area, in some counties. A place is most of three
    neighbouring tracts of four, and some blocks of the tracts beside them.
    """
    aian, place = [], []
    for code in geocodes:
        county, group = code[:5], crc32(code[:-3].encode())
        is_tribal = crc32(county.encode()) % 2 == 0 and group % 6 == 0
        aian.append(f"{crc32(county.encode()) % 4999:04d}" if is_tribal else "")
        number = int(code[5:11]) if code[5:11].isdigit() else crc32(code[:11].encode())
        tract = number + (crc32(code.encode()) % 8 == 0)
        place.append("" if tract % 4 == 0 else f"{county}{tract // 4}")
    return aian, place


def _histogram_table(
    geocodes: list[str], rows: IntArray, cells: IntArray, counts: IntArray
) -> pa.Table:
    edges = np.searchsorted(rows, np.arange(len(geocodes) + 1))
    return _lists(geocodes, edges, cells, counts)


def _together(geocodes: list[str], entries: Entries, schema: Schema) -> pa.Table:
    """One row per person in a household, by block and household, the householder first."""
    rows, numbers, cells = entries
    columns = {
        "geocode": pa.array(geocodes).take(pa.array(rows)),
        "household": pa.array(numbers.astype(np.int32)),
    }
    return pa.table(columns | _labels(cells, schema))


def _labels(cells: IntArray, schema: Schema) -> dict[str, pa.DictionaryArray]:
    """The attributes of cells, by their names."""
    codes = schema.codes_of(cells)
    return {
        one.name: pa.DictionaryArray.from_arrays(
            codes[one.name].astype(np.int8), pa.array(one.levels)
        )
        for one in schema.attributes
    }


def _joined(parts: list[Blocks]) -> Blocks:
    starts = np.cumsum([0, *(len(part.geocodes) for part in parts)])
    beside: dict[str, Entries] = {}
    for name in parts[0].beside:
        columns = [*zip(*(part.beside[name] for part in parts), strict=True)]
        rows = [own + start for own, start in zip(columns[0], starts, strict=False)]
        joined = (np.concatenate(column) for column in (rows, columns[1], columns[2]))
        beside[name] = (next(joined), next(joined), next(joined))
    found = [
        (own[0] + start, own[1], own[2])
        for part, start in zip(parts, starts, strict=False)
        if (own := part.together) is not None
    ]
    joined = (np.concatenate(column) for column in zip(*found, strict=True))
    together = (next(joined), next(joined), next(joined)) if found else None
    return Blocks(
        [code for part in parts for code in part.geocodes],
        np.concatenate([part.housing_units for part in parts]),
        np.concatenate([part.facilities for part in parts]),
        np.concatenate([part.rows + start for part, start in zip(parts, starts, strict=False)]),
        np.concatenate([part.cells for part in parts]),
        np.concatenate([part.counts for part in parts]),
        [code for part in parts for code in part.census_geocodes],
        beside,
        together,
    )


def _records(blocks: Blocks, schema: Schema) -> pa.Table:
    rows, cells = np.repeat(blocks.rows, blocks.counts), np.repeat(blocks.cells, blocks.counts)
    columns = {"geocode": pa.array(blocks.geocodes).take(pa.array(rows))}
    return pa.table(columns | _labels(cells, schema))


def _histograms(blocks: Blocks, schema: Schema) -> pa.Table:
    edges = np.searchsorted(blocks.rows, np.arange(len(blocks.geocodes) + 1))
    return _lists(blocks.geocodes, edges, blocks.cells, blocks.counts)


def _lists(geocodes: list[str], edges: IntArray, cells: IntArray, counts: IntArray) -> pa.Table:
    """A row per block with its cells and their counts."""
    offsets = pa.array(edges, pa.int32())
    return pa.table(
        {
            "geocode": pa.array(geocodes),
            "cells": pa.ListArray.from_arrays(offsets, pa.array(cells)),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(counts)),
        }
    )


def _block_table(blocks: Blocks, schema: Schema) -> pa.Table:
    if schema.size > MOST_COLUMNS:
        raise ConfigError(
            "generate, format",
            "has a column per cell, and the schema has too many",
            got=f"{schema.size} cells",
            want="records or histograms",
        )
    dense = np.zeros((schema.size, len(blocks.geocodes)), np.int64)
    dense[blocks.cells, blocks.rows] = blocks.counts
    codes = schema.codes_of(np.arange(schema.size))
    columns, pattern = {"geocode": pa.array(blocks.geocodes)}, pattern_of(schema)
    for cell in range(schema.size):
        level = {name: int(values[cell]) for name, values in codes.items()}
        columns[pattern.format(**level)] = pa.array(dense[cell])
    return pa.table(columns)


FORMATS = {"records": _records, "histograms": _histograms, "block_table": _block_table}
