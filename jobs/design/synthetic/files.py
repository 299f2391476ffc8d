"""Files of a synthetic nation, written tract by tract."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.arrays import IntArray
from das.errors import ConfigError
from das.schema import Schema
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.nation import Blocks
from jobs.design.synthetic.schemas import levels_of
from jobs.pipeline.config.data import FILE_KINDS
from jobs.pipeline.config.mistakes import refuse_unknown

TRACTS_PER_FILE = 400  # default, not measured
TRACTS_PER_ROW_GROUP = 50  # default, not measured
TOGETHER = "households"  # folder of household members, for schemas that draw them
MOST_COLUMNS = 2_016  # of a block table, one per cell: the cells of pl94
# Abbreviations of attributes in column names of a block table; the index of the level follows.
_LETTERS = {"hhgq": "q", "votingage": "v", "hispanic": "h", "cenrace": "r", "ethnicity_race": "e",
            "sex": "s", "age": "a"}  # fmt: skip


def pattern_of(schema: Schema) -> str:
    """Return the column names of a block table, as `data.pattern` of a run file."""
    return "".join(
        f"{_LETTERS.get(a.name, f'x{index}_')}{{{a.name}{':02d' if a.size > 10 else ''}}}"
        for index, a in enumerate(schema.attributes)
    )


class NationFiles(AbstractContextManager["NationFiles"]):
    """Growing files of one nation; tracts are written in the order of their geocodes."""

    def __init__(self, out: Path, spec: GenerateSpec, schema: Schema) -> None:
        self._out, self._spec, self._schema = out, spec, schema
        self._units = levels_of("units", "unit")
        self._waiting: dict[str, list[pa.Table]] = {}
        self._tracts = 0
        self._files: dict[Path, GrowingTable] = {}

    def __exit__(self, *_: object) -> None:
        self._flush()
        for file in self._files.values():
            file.close()

    def write(self, blocks: Blocks) -> None:
        """Append the blocks of a tract."""
        for name, table in self._tables(blocks).items():
            self._waiting.setdefault(name, []).append(table)
        self._tracts += 1
        if self._tracts % TRACTS_PER_ROW_GROUP == 0:
            self._flush()

    def _tables(self, blocks: Blocks) -> dict[str, pa.Table]:
        """Return the tables of a tract, by name of folder or file."""
        codes, spec = blocks.geocodes, self._spec
        types = dict(zip(self._units[2:], blocks.facilities.T, strict=True))
        listed = {"geocode": codes, "housing_units": blocks.housing_units.sum(axis=1)}
        listed |= {f"gq_{name}": numbers for name, numbers in types.items()}
        if spec.with_prims:
            listed["census_geocode"] = [*blocks.census_geocodes]
        occupancy = dict(zip(self._units[:2], blocks.housing_units.T, strict=True))
        tables = {
            "geounits": pa.table(listed | lies_in(codes)),
            "units": pa.table({"geocode": codes} | occupancy | types),
            spec.format: FORMATS[spec.format](blocks, self._schema),
        }
        tables |= {name: _lists(codes, *entries) for name, entries in blocks.further.items()}
        if blocks.together is not None:
            rows, numbers, cells = blocks.together  # by block and household, householders first
            geocodes = pa.array(codes).take(pa.array(rows))
            columns = {"geocode": geocodes, "household": pa.array(numbers.astype(np.int32))}
            tables[TOGETHER] = pa.table(columns | _labels(cells, self._schema))
        return tables

    def _flush(self) -> None:
        for name, tables in self._waiting.items():
            part = (self._tracts - 1) // TRACTS_PER_FILE if name == self._spec.format else 0
            path = self._out / name / f"part-{part:05d}.parquet"
            if name == "geounits":
                path = self._out / "geounits.parquet"
            if path not in self._files:
                path.parent.mkdir(exist_ok=True)
                for finished in [p for p in self._files if p.parent == path.parent]:
                    self._files.pop(finished).close()
                self._files[path] = GrowingTable(path)
            self._files[path].write(pa.concat_tables(tables))
        self._waiting = {}


class GrowingTable(AbstractContextManager["GrowingTable"]):
    """CSV or Parquet file that grows table by table."""

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self._path = path
        self._options = pa_csv.WriteOptions(delimiter=delimiter)
        self._writer: pq.ParquetWriter | pa_csv.CSVWriter | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the file."""
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
        if table.num_rows:
            self._writer.write_table(table)


def lies_in(geocodes: Sequence[str]) -> dict[str, list[str]]:
    """Invent the columns `aian` and `place`: codes of tribal areas and of places, "" for none.

    In half of the counties a sixth of the block groups lies in a tribal area. A place covers most
    of three in four neighboring tracts, and some blocks of adjacent tracts.
    """
    aian, place = [], []
    for code in geocodes:
        county, group = code[:5], crc32(code[:-3].encode())
        is_tribal = crc32(county.encode()) % 2 == 0 and group % 6 == 0
        aian.append(f"{crc32(county.encode()) % 4999:04d}" if is_tribal else "")
        number = int(code[5:11]) if code[5:11].isdigit() else crc32(code[:11].encode())
        tract = number + (crc32(code.encode()) % 8 == 0)
        place.append("" if tract % 4 == 0 else f"{county}{tract // 4}")
    return {"aian": aian, "place": place}


def _labels(cells: IntArray, schema: Schema) -> dict[str, pa.DictionaryArray]:
    """Return the attributes of cells by name."""
    codes = schema.codes_of(cells)
    return {
        attribute.name: pa.DictionaryArray.from_arrays(
            codes[attribute.name].astype(np.min_scalar_type(-len(attribute.levels))),
            pa.array(attribute.levels),
        )
        for attribute in schema.attributes
    }


def _records(blocks: Blocks, schema: Schema) -> pa.Table:
    rows, cells = (np.repeat(each, blocks.counts) for each in (blocks.rows, blocks.cells))
    columns = {"geocode": pa.array(blocks.geocodes).take(pa.array(rows))}
    return pa.table(columns | _labels(cells, schema))


def _histograms(blocks: Blocks, schema: Schema) -> pa.Table:
    return _lists(blocks.geocodes, blocks.rows, blocks.cells, blocks.counts)


def _lists(geocodes: list[str], rows: IntArray, cells: IntArray, counts: IntArray) -> pa.Table:
    """Return one row per block with its cells and their counts."""
    offsets = pa.array(np.searchsorted(rows, np.arange(len(geocodes) + 1)), pa.int32())
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
            "has a column per cell, and the schema has too many cells",
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


def check_spec(spec: GenerateSpec) -> None:
    """Check options that all schemas have in common.

    Raises:
      ConfigError: A value is out of range.
    """
    refuse_unknown("generate, format", "is unknown", [spec.format], FORMATS)
    if spec.listed is None and not 1 <= spec.states <= 99:
        raise ConfigError("generate, states", "is out of range", got=spec.states, want="1..99")
    if spec.listed is None and spec.blocks < spec.states:
        want = f"at least one per state, {spec.states}"
        raise ConfigError("generate, blocks", "is too small", got=spec.blocks, want=want)
    if spec.seed < 0:
        raise ConfigError("generate, seed", "is negative", got=spec.seed)
