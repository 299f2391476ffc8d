"""Every reader of CSV files takes the records that Python's csv finds, or refuses by row.

The files are right but for a column of texts that no reader uses, such as write-ins. It must not
decide over the records of others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import InputError
from geography.lattice import Spine
from jobs.pipeline.config.models.data import BlockTableData, RecordsData
from jobs.pipeline.config.models.kinds.kind import PublicTable
from jobs.pipeline.config.models.products import AreasFile
from jobs.pipeline.config.models.run import GeounitsFile
from jobs.pipeline.input import files, lines
from jobs.pipeline.input.areas import read_areas
from jobs.pipeline.input.files import Table, plan_chunks, read_chunk, read_table
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.input.public_tables import read_public
from jobs.survey.checks import read_weights
from jobs.survey.confidential.read import read_survey
from jobs.survey.plan import load_survey
from tests.builders import survey
from tests.builders.dirty_csv import BROKEN_NOTES, NOTES, expected, first_refused
from tests.unit.jobs.pipeline.confidential.read.reading import AGE, SEX, read

Row = dict[str, str]
_SEXES, _AGES = SEX.levels, AGE.levels
_CODES = [f"0{number:03d}" for number in range(12)]
_CELLS = [f"s{sex}a{age}" for sex in range(2) for age in range(3)]
_SPINE = Spine(("state", "block"), (1, 4))
_SHARES = ["1/12", "1/6", "1/4"]


class Reader(NamedTuple):
    """A kind of file: rows that are right, how we read them, and what they say to anybody."""

    rows: Callable[[random.Random], list[Row]]
    read: Callable[[Path, str], Any]
    meaning: Callable[[list[Row]], Any]


def _some(rng: random.Random) -> list[str]:
    return rng.sample(_CODES, rng.randint(2, len(_CODES)))


def _records(rng: random.Random) -> list[Row]:
    return [
        {"block": rng.choice(_CODES), "sex": rng.choice(_SEXES), "age": rng.choice(_AGES)}
        for _ in range(rng.randint(1, 20))
    ]


def _read_records(path: Path, quoting: str) -> Any:
    columns = {"sex": "sex", "age": "age"}
    return read(
        RecordsData(
            input_format="records", path=path, geocode="block", columns=columns, quoting=quoting
        )
    )


def _counted(rows: list[Row]) -> Any:
    return Counter(
        (row["block"], _SEXES.index(row["sex"]) * 3 + _AGES.index(row["age"])) for row in rows
    )


def _read_survey(folder: Path) -> Callable[[Path, str], Any]:
    plan = load_survey(survey.write_survey(folder, privacy__neighbors="unbounded"))

    def read_records(path: Path, quoting: str) -> Any:
        data = plan.config.data.model_copy(update={"path": path, "quoting": quoting})
        changed = replace(plan, config=plan.config.model_copy(update={"data": data}))
        return read_survey(changed).reveal().records.codes[:, :2].tolist()

    return read_records


def _public(path: Path, _: str) -> Any:
    table = PublicTable(path=path, columns={"homes": "h"})
    codes, counts = read_public(table, ["homes"], 4)
    return dict(zip(codes.tolist(), counts[:, 0].tolist(), strict=True))


def _weights(path: Path, _: str) -> Any:
    sizes = read_weights(path, {"sex": ["f", "m"], "age": ["0", "1", "2"]}, 100)
    return {labels: str(stratum.weight) for labels, stratum in sizes.items()}


_KINDS: dict[str, Reader] = {
    "records": Reader(_records, _read_records, _counted),
    "block table": Reader(
        lambda rng: [
            {"geocode": code, **{name: str(rng.randrange(4)) for name in _CELLS}}
            for code in _some(rng)
        ],
        lambda path, quoting: read(
            BlockTableData(
                input_format="block_table", path=path, pattern="s{sex}a{age}", quoting=quoting
            )
        ),
        lambda rows: Counter(
            {
                (row["geocode"], cell): int(row[name])
                for row in rows
                for cell, name in enumerate(_CELLS)
                if row[name] != "0"
            }
        ),
    ),
    "survey": Reader(
        lambda rng: [
            {"SEX": rng.choice("12"), "GROUP": rng.choice("ABC"), "AGE": "30", "INCOME": ""}
            for _ in range(rng.randint(1, 20))
        ],
        lambda path, quoting: None,
        lambda rows: [["12".index(row["SEX"]), "ABC".index(row["GROUP"])] for row in rows],
    ),
    "geounits": Reader(
        lambda rng: [{"geocode": code} for code in _some(rng)],
        lambda path, _: [code.decode() for code in list_geounits(GeounitsFile(path=path), _SPINE)],
        lambda rows: sorted(row["geocode"] for row in rows),
    ),
    "public table": Reader(
        lambda rng: [{"geocode": code, "h": str(rng.randrange(9))} for code in _some(rng)],
        _public,
        lambda rows: {row["geocode"]: int(row["h"]) for row in rows},
    ),
    "areas": Reader(
        lambda rng: [{"type": rng.choice("ab"), "geocode": code} for code in _CODES],
        lambda path, _: {
            code: areas.labels[kind]
            for areas in [read_areas(AreasFile(path=path), np.array(_CODES, "S4"))]
            for code, kind in zip(_CODES, areas.of_geounits, strict=True)
        },
        lambda rows: {row["geocode"]: row["type"] for row in rows},
    ),
    "weights": Reader(
        lambda rng: [
            {"sex": sex, "age": age, "weight": _SHARES[int(age)]} for sex in "fm" for age in "012"
        ],
        _weights,
        lambda rows: {(row["sex"], row["age"]): row["weight"] for row in rows},
    ),
}
_UNQUOTED = ("records", "block table", "survey")
_N_FILES = 50


@pytest.mark.parametrize(
    ("kind", "quoting"),
    [*((kind, "double") for kind in _KINDS), *((kind, "none") for kind in _UNQUOTED)],
)
def test_texts_of_a_column_that_is_not_used_cost_no_record(
    tmp_path: Path, kind: str, quoting: str
) -> None:
    reader, path, seen = _KINDS[kind], tmp_path / "file.csv", Counter[str]()
    read_file = _read_survey(tmp_path) if kind == "survey" else reader.read

    @settings(max_examples=_N_FILES)
    @given(
        rng=st.randoms(use_true_random=False),
        n_bad=st.sampled_from([0, 0, 1, 1, 2]),
        end=st.sampled_from(["\n", "\r\n"]),
        block=st.sampled_from([1, 10, 50, 1 << 20]),
        chunk=st.sampled_from([1, 30, 1 << 20]),
    )
    def check(rng: random.Random, n_bad: int, end: str, block: int, chunk: int) -> None:
        rows = reader.rows(rng)
        names = list(rows[0])
        at = rng.randint(0, len(names))
        notes = ["note", *(rng.choice(NOTES) for _ in rows)]
        for _ in range(n_bad):
            notes[rng.randint(1, len(rows))] = rng.choice(BROKEN_NOTES)
        cells = [names, *([row[name] for name in names] for row in rows)]
        written = [[*row[:at], note, *row[at:]] for row, note in zip(cells, notes, strict=True)]
        path.write_bytes("".join(",".join(row) + end for row in written).encode())
        found, fault = expected(path.read_bytes(), quoting)
        with patch.object(files, "CHUNK_BYTES", chunk), patch.object(lines, "BLOCK_BYTES", block):
            if fault:
                with pytest.raises(InputError) as caught:
                    read_file(path, quoting)
                row = first_refused(path.read_bytes(), quoting)
                assert str(caught.value).startswith(f"{path}, row {row}: ")
                seen["refused"] += 1
                return
            records = [dict(zip(found[0], row, strict=True)) for row in found[1:]]
            assert len(records) == len(rows)
            assert read_file(path, quoting) == reader.meaning(records) == reader.meaning(rows)
            seen["read"] += 1

    check()
    assert min(seen["read"], seen["refused"]) > _N_FILES / 8, seen


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=8),
    most=st.sampled_from([1, 3, 10, 1 << 20]),
    batch=st.sampled_from([1, 4, 1 << 15]),
)
def test_parquet_files_give_the_rows_that_duckdb_reads(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int, batch: int
) -> None:
    """Row groups of any size, also empty ones, in chunks and batches of any size."""
    path = tmp_path_factory.mktemp("parquet") / "file.parquet"
    schema, n = pa.schema([("block", pa.string())]), 0
    with pq.ParquetWriter(path, schema) as writer:
        for size in sizes:
            writer.write_table(pa.table({"block": [f"{n + i:04d}" for i in range(size)]}, schema))
            n += size
    with duckdb.connect() as connection:
        query = "SELECT block FROM read_parquet(?)"
        others = connection.execute(query, [str(path)]).fetchall()
    table = Table(path, ("block",))
    with patch.object(files, "CHUNK_ROWS", most), patch.object(files, "BATCH_ROWS", batch):
        if not n:
            with pytest.raises(InputError, match="is empty"):
                plan_chunks(table)
            return
        found = [row for rows in read_table(table) for row in rows.table["block"].to_pylist()]
    assert [(row,) for row in found] == others
    assert len(found) == n


def test_a_parquet_file_that_gives_fewer_rows_than_were_planned_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"block": ["0101"] * 10}), path)
    table = Table(path, ("block",))
    (chunk,) = plan_chunks(table)
    pq.write_table(pa.table({"block": ["0101"] * 9}), path)
    with pytest.raises(InputError, match="gives another number of rows than its row groups state"):
        list(read_chunk(chunk, table))


def test_a_csv_file_that_was_cut_after_planning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text("block\n0101\n0102\n")
    table = Table(path, ("block",))
    (chunk,) = plan_chunks(table)
    path.write_text("block\n0101\n")
    with pytest.raises(InputError, match="changed while it was read"):
        list(read_chunk(chunk, table))
