"""Entries and geocodes through Spark, with errors that keep their type."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import InputError
from das.schema import Schema
from geography.lattice import Lattice, Spine
from jobs.pipeline.confidential.histograms import write_truth
from jobs.pipeline.confidential.read.formats import read_geocodes, reader_of
from jobs.pipeline.confidential.read.reader import Reader
from jobs.pipeline.confidential.read.records import RecordsReader
from jobs.pipeline.config.models.data import (
    BlockTableData,
    DataConfig,
    HistogramsData,
    Pl94Data,
    RecordsData,
)
from jobs.pipeline.config.models.run import GeounitsFile
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.input import files
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.tasks.executor import SparkTasks
from tests.builders.places import truth_of
from tests.unit.jobs.pipeline.confidential.read import test_pl94 as pl94_files
from tests.unit.jobs.pipeline.confidential.read.reading import ROOT, TOY, read

pytestmark = pytest.mark.spark
SPINE = Spine(("state", "block"), (2, 4))


def records(folder: Path, text: str) -> RecordsData:
    path = folder / "people.csv"
    path.write_text(text)
    columns = {"sex": "sex", "age": "age"}
    return RecordsData(input_format="records", path=path, geocode="block", columns=columns)


def histograms(folder: Path, codes: list[str]) -> HistogramsData:
    path = folder / "truth.parquet"
    lists = pa.array([[0]] * len(codes), pa.list_(pa.int64()))
    table = pa.table({"geocode": codes, "cells": lists, "counts": lists})
    pq.write_table(table, path)
    return HistogramsData(input_format="histograms", path=path)


def listing(folder: Path, codes: list[str], kind: str = "csv") -> GeounitsFile:
    path = folder / f"units.{kind}"
    if kind == "csv":
        path.write_text("code\n" + "".join(f"{code}\n" for code in codes))
    else:
        pq.write_table(pa.table({"code": pa.array(codes, pa.string())}), path)
    return GeounitsFile(path=path, geocode="code")


def codes_of(
    data: DataConfig,
    units: GeounitsFile | None,
    tasks: SparkTasks,
    spine: Spine = SPINE,
    schema: Schema = TOY,
) -> np.ndarray:
    if units is not None:
        return list_geounits(units, spine)
    return read_geocodes(reader_of(data, schema, spine.digits[-1]), tasks)


def text_of(codes: np.ndarray) -> list[str]:
    return [code.decode() for code in codes]


def entries_of(source: Reader[Any, Any]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for piece in source.pieces():
        for batch in source.entries(piece):
            for row in batch.to_pylist():
                found[row["geocode"], row["cell"]] += row["n"]
    return found


PEOPLE = "block,sex,age\n0203,male,under_18\n0101,male,under_18\n0203,female,under_18\n"


def test_entries_of_records_come_from_all_chunks(
    tasks: SparkTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 40)
    data = records(tmp_path, PEOPLE + "0101,male,under_18\n" * 5)
    source = reader_of(data, TOY, 4)
    assert len(source.pieces()) > 1
    found = entries_of(source)
    assert found == read(data) == Counter({("0101", 3): 6, ("0203", 3): 1, ("0203", 0): 1})


def test_entries_of_pl94(tasks: SparkTasks, tmp_path: Path) -> None:
    path = pl94_files.write_zip(tmp_path / "pr2020.pl.zip", pl94_files.lines())
    data = Pl94Data(input_format="pl94", path=path)
    schema = load_schema(ROOT / "conf" / "schema" / "pl94_tables.yaml")
    spine = Spine(("state", "block"), (2, 15))
    assert entries_of(reader_of(data, schema, 15)) == pl94_files.expected()
    assert text_of(codes_of(data, None, tasks, spine, schema)) == list(pl94_files.BLOCKS)


def test_error_in_a_task_keeps_type_file_and_row(tasks: SparkTasks, tmp_path: Path) -> None:
    data = records(tmp_path, PEOPLE + "0101,male,elderly\n")
    lattice = Lattice.from_leaves(SPINE, ["0101"])
    source = reader_of(data, TOY, 4)
    with pytest.raises(InputError) as caught:
        write_truth(source, lattice, schema=TOY, layout=truth_of(tmp_path), tasks=tasks)
    assert f"{data.path}, row 5, column age: unknown code" in str(caught.value)
    assert "elderly" not in str(caught.value)


def test_unforeseen_error_in_a_task_quotes_nothing(tasks: SparkTasks, tmp_path: Path) -> None:
    class Broken(RecordsReader):
        def pieces(self) -> list[str]:
            return ["elderly"]

        def entries(self, piece: str) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"geocode": [piece], "cell": [int(piece)], "n": [1]})

    source = Broken(records(tmp_path, PEOPLE), TOY, 4)
    lattice = Lattice.from_leaves(SPINE, ["0101"])
    with pytest.raises(Exception, match=r"ValueError at .* its text is withheld") as caught:
        write_truth(source, lattice, schema=TOY, layout=truth_of(tmp_path), tasks=tasks)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in entries" in shown
    assert "elderly" not in shown


def test_geocodes_of_records_and_tables(tasks: SparkTasks, tmp_path: Path) -> None:
    data: DataConfig = records(tmp_path, PEOPLE)
    assert text_of(codes_of(data, None, tasks)) == ["0101", "0203"]
    data = histograms(tmp_path, ["0203", "0102"])
    assert text_of(codes_of(data, None, tasks)) == ["0102", "0203"]
    path = tmp_path / "blocks.csv"
    cells = [f"s{sex}a{age}" for sex in range(2) for age in range(3)]
    lines = ["|".join(["id", *cells]), "0102|0|0|0|0|0|0", "0101|0|0|0|0|0|0"]
    path.write_text("\n".join(lines) + "\n")
    data = BlockTableData(
        input_format="block_table", path=path, geocode="id", pattern="s{sex}a{age}", delimiter="|"
    )
    codes = codes_of(data, None, tasks)
    assert text_of(codes) == ["0101", "0102"]
    assert codes.dtype == np.dtype("S4")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_public_list_adds_empty_geounits(tasks: SparkTasks, tmp_path: Path, kind: str) -> None:
    units = listing(tmp_path, ["0203", "0101", "0102"], kind)
    found = codes_of(records(tmp_path, PEOPLE), units, tasks)
    assert text_of(found) == ["0101", "0102", "0203"]


def message(data: DataConfig, units: GeounitsFile | None, tasks: SparkTasks) -> str:
    with pytest.raises(InputError) as caught:
        codes_of(data, units, tasks)
    return str(caught.value)


def refused(data: DataConfig, units: GeounitsFile, out: Path, tasks: SparkTasks) -> str:
    schema = load_schema(ROOT / "conf" / "schema" / "pl94_tables.yaml")
    spine = SPINE
    if isinstance(data, Pl94Data):
        spine = Spine(("state", "block"), (2, 15))
    else:
        schema = TOY
    lattice = Lattice.from_leaves(spine, codes_of(data, units, tasks, spine, schema))
    layout = truth_of(out)
    with pytest.raises(InputError, match="is not in the list of geounits") as caught:
        write_truth(
            reader_of(data, schema, spine.digits[-1]),
            lattice,
            schema=schema,
            layout=layout,
            tasks=tasks,
        )
    assert not list(out.rglob("_manifest.json"))
    return str(caught.value)


def test_geocode_that_is_not_in_the_public_list(tasks: SparkTasks, tmp_path: Path) -> None:
    units = listing(tmp_path, ["0101", "0102"])
    data: DataConfig = records(tmp_path, PEOPLE)
    text = refused(data, units, tmp_path / "a", tasks)
    assert f"{data.path}, row 2: geocode is not in the list of geounits" in text
    assert "0203" not in text


def test_geocode_of_pl94_that_is_not_in_the_public_list(tasks: SparkTasks, tmp_path: Path) -> None:
    path = pl94_files.write_zip(tmp_path / "pr2020.pl.zip", pl94_files.lines())
    units = listing(tmp_path, [pl94_files.BLOCKS[0]])
    text = refused(Pl94Data(input_format="pl94", path=path), units, tmp_path / "a", tasks)
    assert f"{path}/prgeo2020.pl, row 3: geocode is not in the list" in text
    assert pl94_files.BLOCKS[1] not in text


def test_geounit_that_appears_twice(tasks: SparkTasks, tmp_path: Path) -> None:
    text = message(histograms(tmp_path, ["0102", "0101", "0102"]), None, tasks)
    path = tmp_path / "truth.parquet"
    where = f"{path}, row 1: geocode appears twice; got again at {path}, row 3"
    assert where in text
    assert "0102" not in text
    units = listing(tmp_path, ["0101", "0203", "0203"])
    text = message(records(tmp_path, PEOPLE), units, tasks)
    assert f"{units.path}, row 3: geocode appears twice" in text


def test_geocodes_that_do_not_fit(tasks: SparkTasks, tmp_path: Path) -> None:
    data = records(tmp_path, PEOPLE + "101,male,under_18\n")
    assert f"{data.path}, row 5, column block: geocode does not fit" in message(data, None, tasks)
    units = listing(tmp_path, ["0101", "02030"])
    text = message(histograms(tmp_path, ["0101"]), units, tasks)
    assert f"{units.path}, row 3, column code: geocode does not fit" in text
    gone = GeounitsFile(path=tmp_path / "gone.csv")
    assert f"{gone.path}: does not exist" in message(data, gone, tasks)
