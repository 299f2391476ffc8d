"""Tables hold the answers of the counts and what is estimated; children's rows sum to their parent's."""

from __future__ import annotations

import csv
import errno
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jobs.pipeline.release.tables
import jobs.pipeline.storage.xlsx
from das.errors import OutputError
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from jobs.pipeline.config.product import TablesWanted
from jobs.pipeline.release.estimate import EstimateStage, LevelEstimator
from jobs.pipeline.release.tables import most_geounits, write_rows, write_tables
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from tests.builders import two_families as two

SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
NUMBERS = ("count", "estimate", "standard_error", "estimate_lower", "estimate_upper")
FORMATS = ("csv", "parquet", "xlsx")


@pytest.fixture
def release(tmp_path: Path) -> ReleaseLayout:
    layout = two.release(tmp_path)
    for geolevel in two.SPINE.levels:
        two.write_counts(layout, geolevel)
    return layout


def wanted(*names: str, formats: tuple[str, ...] = FORMATS, **where: list[str]) -> TablesWanted:
    """Tables of all geolevels, or of those that are named."""
    queries = {level: where.get(level, names) for level in two.SPINE.levels}
    parsed = {level: [two.query(one) for one in own] for level, own in queries.items()}
    return TablesWanted(parsed, formats)


def with_estimates(release: ReleaseLayout, *names: str) -> LevelEstimator:
    plan = two.plan()
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel, noise={"total": 3, "detailed": -1})
    estimator = LevelEstimator(plan, release, tuple(map(two.query, names)), 0.9)
    EstimateStage(estimator, two.TASKS).run()
    return estimator


def of_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return [plain(row) for row in csv.DictReader(handle)]


def of_xlsx(path: Path) -> list[dict[str, Any]]:
    """Rows of a workbook as Excel reads it: a cell is a number or a text."""
    rows: list[list[Any]] = []
    header: list[Any] = []
    with zipfile.ZipFile(path) as file:
        book = ElementTree.fromstring(file.read("xl/workbook.xml"))
        for number in range(1, len(book.findall(f".//{SHEET}sheet")) + 1):
            sheet = ElementTree.fromstring(file.read(f"xl/worksheets/sheet{number}.xml"))
            own = [[value_of(cell) for cell in row] for row in sheet.iter(f"{SHEET}row")]
            last = [row[-1].get("r") for row in sheet.iter(f"{SHEET}row")]
            letter = chr(ord("A") + len(own[0]) - 1)
            assert last == [f"{letter}{index}" for index in range(1, len(own) + 1)]
            header, rows = own[0], rows + own[1:]
    return [dict(zip(header, row, strict=True)) for row in rows]


def value_of(cell: ElementTree.Element) -> Any:
    text = "".join(cell.itertext())
    return text if cell.get("t") == "inlineStr" else float(text)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(value) if name in NUMBERS else value for name, value in row.items()}


def read(release: ReleaseLayout, geolevel: str, stem: str) -> list[dict[str, Any]]:
    """The rows of a table, which are the same in every format."""
    folder = release.tables(geolevel)
    table = pq.read_table(folder / f"{stem}.parquet", partitioning=None)
    rows = [plain(row) for row in table.to_pylist()]
    assert of_csv(folder / f"{stem}.csv") == rows
    assert of_xlsx(folder / f"{stem}.xlsx") == rows
    return rows


def test_every_geolevel_has_the_answers_of_its_counts(release: ReleaseLayout) -> None:
    write_tables(two.plan(), release, wanted("total", "age"), two.TASKS)
    for geolevel in two.SPINE.levels:
        assert read(release, geolevel, "total") == [
            {"geolevel": geolevel, "geocode": code, "count": sum(c)}
            for code, c in two.at(geolevel).items()
        ]
        assert read(release, geolevel, "age") == [
            {"geolevel": geolevel, "geocode": code, "age": label, "count": count}
            for code, c in two.at(geolevel).items()
            for label, count in (("minor", c[0] + c[2]), ("adult", c[1] + c[3]))
        ]


def test_attributes_of_functions_and_conditions_have_columns(release: ReleaseLayout) -> None:
    asked = wanted("sex * prefix(age)", "age where sex=f", "total where sex=f")
    write_tables(two.plan(), release, asked, two.TASKS)
    both = read(release, "county", "sex-by-prefix-age")
    assert [(row["sex"], row["prefix(age)"]) for row in both[:4]] == [
        ("f", "up to minor"),
        ("f", "up to adult"),
        ("m", "up to minor"),
        ("m", "up to adult"),
    ]
    some = read(release, "county", "age-where-sex-is-f")
    assert {row["sex"] for row in some} == {"f"}
    [first, *_] = read(release, "county", "total-where-sex-is-f")
    assert (first["sex"], first["count"]) == ("f", sum(row["count"] for row in some[:2]))


def test_rows_of_children_sum_to_the_row_of_their_parent(release: ReleaseLayout) -> None:
    write_tables(two.plan(), release, wanted("sex * age"), two.TASKS)

    def counts(geolevel: str) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for row in read(release, geolevel, "detailed"):
            found.setdefault(row["geocode"], []).append(row["count"])
        return found

    for above, below in (("state", "county"), ("county", "block")):
        children = counts(below)
        for code, numbers in counts(above).items():
            own = [child for name, child in children.items() if name.startswith(code)]
            assert len(own) >= 2
            assert numbers == np.sum(own, axis=0).tolist()


def test_geounits_are_read_by_the_rows_and_by_the_counts_they_have(
    release: ReleaseLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Dataset.open(release.counts("block"))
    monkeypatch.setattr(jobs.pipeline.release.tables, "_ROWS", 12)
    assert [most_geounits(release, "block", rows) for rows in (1, 4, 100)] == [12, 3, 1]
    monkeypatch.setattr(jobs.pipeline.release.tables, "_BYTES", 2 * counts.bytes // counts.rows)
    assert most_geounits(release, "block", 1) in (1, 2)
    monkeypatch.setattr(jobs.pipeline.release.tables, "_BYTES", 0)
    assert most_geounits(release, "block", 1) == 1


@pytest.mark.parametrize(("rows", "size"), [(1, 10**6), (3, 10**6), (200_000, 10**6), (200_000, 0)])
def test_estimates_stand_beside_the_counts(
    release: ReleaseLayout, monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    monkeypatch.setattr(jobs.pipeline.release.tables, "_ROWS", rows)
    monkeypatch.setattr(jobs.pipeline.release.tables, "_BYTES", size)
    estimator = with_estimates(release, "total", "age")
    write_tables(two.plan(), release, wanted("total", "age"), two.TASKS)
    for geolevel in two.SPINE.levels:
        dataset = Dataset.open(EstimateLayout.of(release).tables(geolevel))
        told = {row["geocode"]: row for row in dataset.read().to_pylist() if row["query"] == "age"}
        for row in read(release, geolevel, "age"):
            index = ("minor", "adult").index(row["age"])
            value = told[row["geocode"]]["estimate"][index]
            error = told[row["geocode"]]["standard_error"][index]
            assert row["estimate"] == pytest.approx(value, abs=6e-4)
            assert row["standard_error"] == pytest.approx(error, abs=6e-4)
            assert row["estimate_lower"] == pytest.approx(value - 1.6449 * error, abs=2e-3)
            assert row["estimate_upper"] == pytest.approx(value + 1.6449 * error, abs=2e-3)
    assert estimator.confidence == 0.9


def test_a_table_without_estimates_has_none(release: ReleaseLayout) -> None:
    with_estimates(release, "age")
    write_tables(two.plan(), release, wanted("total", "age"), two.TASKS)
    assert "estimate" not in read(release, "block", "total")[0]
    assert "estimate" in read(release, "block", "age")[0]


def test_estimates_that_lack_a_geounit_are_refused(release: ReleaseLayout) -> None:
    with_estimates(release, "age")
    blocks = EstimateLayout.of(release).tables("block")
    table = Dataset.open(blocks).read()
    kept = table.filter(np.array(table.column("geocode").to_pylist()) != "111")
    facts = Dataset.open(blocks).facts
    (blocks / "_manifest.json").unlink()
    two.write(blocks, [kept], kept.schema, facts)
    with pytest.raises(OutputError, match="level=block: lacks a geounit"):
        write_tables(two.plan(), release, wanted("age"), two.TASKS)
    assert not (release.tables("block") / "_manifest.json").exists()


def test_tables_of_some_geolevels_are_there_alone(release: ReleaseLayout) -> None:
    asked = wanted(formats=("csv",), state=["age"], county=["total", "age"])
    write_tables(two.plan(), release, asked, two.TASKS)
    files = {
        geolevel: sorted(path.name for path in release.tables(geolevel).glob("*.csv"))
        for geolevel in two.SPINE.levels
    }
    assert files == {"state": ["age.csv"], "county": ["age.csv", "total.csv"], "block": []}
    facts = Dataset.open(release.tables("county")).facts
    assert facts["queries"] == [
        {"query": "total", "file": "total"},
        {"query": "age", "file": "age"},
    ]
    assert [column["name"] for column in facts["columns"]] == [
        "geolevel",
        "geocode",
        "age",
        "count",
    ]


def test_complete_tables_stay(release: ReleaseLayout) -> None:
    write_tables(two.plan(), release, wanted("total"), two.TASKS)
    before = (release.tables("county") / "_manifest.json").read_bytes()
    write_tables(two.plan(), release, wanted("age"), two.TASKS)
    assert (release.tables("county") / "_manifest.json").read_bytes() == before
    assert not (release.tables("county") / "age.csv").exists()


def test_what_a_driver_that_died_left_is_replaced(release: ReleaseLayout) -> None:
    folder = release.tables("county")
    folder.mkdir(parents=True)
    for name in ("total.csv", "other.csv", "part-0.csv"):
        (folder / name).write_text("half of it")
    write_tables(two.plan(), release, wanted("total", formats=("csv",)), two.TASKS)
    assert sorted(path.name for path in folder.iterdir()) == ["_manifest.json", "total.csv"]
    assert of_csv(folder / "total.csv")[0]["count"] == sum(two.at("county")["11"])


def test_a_sheet_that_is_full_goes_on_in_the_next(
    release: ReleaseLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.pipeline.storage.xlsx, "MOST_ROWS", 4)
    write_tables(two.plan(), release, wanted("age"), two.TASKS)
    assert len(read(release, "block", "age")) == 2 * len(two.at("block"))
    with zipfile.ZipFile(release.tables("block") / "age.xlsx") as file:
        assert "xl/worksheets/sheet3.xml" in file.namelist()


@pytest.mark.parametrize("step", ["worksheet.Worksheet.write_row", "workbook.ZipFile"])
def test_a_workbook_on_a_full_disk_leaves_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(f"xlsxwriter.{step}", full)
    rows, said = pa.table({"geocode": ["01"], "count": [1]}), r"got No space .* give the disk room"
    with pytest.raises(OutputError, match=said):
        write_rows([rows, rows], {"xlsx": tmp_path})
    assert not [*tmp_path.iterdir()]


def test_h1_counts_housing_units_alone(tmp_path: Path) -> None:
    """Levels beside occupied and vacant, such as group quarters, are no housing units."""
    kinds = Schema("units", (Attribute("status", ("vacant", "quarters", "occupied", "other")),))
    plan = two.plan(queries=("total", "detailed"))
    layout = two.release(tmp_path)
    for geolevel in two.SPINE.levels:
        two.write_counts(layout, geolevel)
    none = dict.fromkeys(two.SPINE.levels, ())
    write_tables(plan, layout, TablesWanted(none, ["csv"], parse_query(kinds, "status")), two.TASKS)
    for geolevel in two.SPINE.levels:
        with (layout.tables(geolevel) / "h1.csv").open(newline="") as handle:
            rows = [*csv.DictReader(handle)]
        assert rows == [
            {
                "geolevel": geolevel,
                "geocode": code,
                "H0010001": str(c[0] + c[2]),
                "H0010002": str(c[2]),
                "H0010003": str(c[0]),
            }
            for code, c in two.at(geolevel).items()
        ]
