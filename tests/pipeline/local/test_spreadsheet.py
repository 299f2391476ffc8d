"""Workbooks of `das export --format xlsx`, read back as the XML that spreadsheet programs read."""

from __future__ import annotations

import errno
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
import yaml

from das.errors import OutputError
from jobs.analysis import spreadsheet
from jobs.analysis.spreadsheet import write_workbook
from tests.builders import toy
from tests.builders.in_process import execute
from tests.pipeline.local.test_export import OWN
from topdown_das import open_release

Das = Callable[..., tuple[int, str]]
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


class Opened:
    """A workbook: cells of each sheet as (text or number, format), and the tables."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            tree = {name: archive.read(name) for name in archive.namelist()}
        shared = ElementTree.fromstring(tree["xl/sharedStrings.xml"])
        texts = ["".join(part.itertext()) for part in shared]
        styles = ElementTree.fromstring(tree["xl/styles.xml"])
        codes = {
            one.get("numFmtId"): one.get("formatCode") for one in styles.iter(f"{_MAIN}numFmt")
        }
        codes |= {"3": "#,##0", "49": "@"}  # built in
        formats = [codes.get(one.get("numFmtId")) for one in styles.find(f"{_MAIN}cellXfs") or ()]
        names = [
            one.get("name")
            for one in ElementTree.fromstring(tree["xl/workbook.xml"]).iter(f"{_MAIN}sheet")
        ]
        self.sheets: dict[str, dict[str, tuple[str | float, str | None]]] = {}
        self.xml = {
            name: tree[f"xl/worksheets/sheet{n}.xml"].decode() for n, name in enumerate(names, 1)
        }
        for name, xml in self.xml.items():
            self.sheets[name] = {}
            for cell in ElementTree.fromstring(xml).iter(f"{_MAIN}c"):
                value = cell.find(f"{_MAIN}v")
                if value is not None:
                    is_text = cell.get("t") == "s"
                    shown = texts[int(value.text)] if is_text else float(value.text)
                    self.sheets[name][cell.get("r")] = (shown, formats[int(cell.get("s", 0))])
        self.tables = [
            dict(ElementTree.fromstring(xml).items())
            for name, xml in sorted(tree.items())
            if "xl/tables/" in name
        ]


@pytest.fixture(scope="module")
def villages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy.write_records(folder)
    return execute(toy.configuration(folder)) / "release"


def own(folder: Path, **changes: object) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({**OWN, "delimiter": ",", "quoted": True, **changes}))
    return path


def test_a_workbook_has_a_cover_notes_and_a_named_table_per_sheet(
    villages: Path, das: Das, tmp_path: Path
) -> None:
    arguments = ("--as", own(tmp_path), "--format", "xlsx", "--geolevel", "block")
    code, printed = das("export", villages, *arguments, "--to", tmp_path / "out")
    assert code == 0, printed
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["own_block.xlsx"]
    book = Opened(tmp_path / "out" / "own_block.xlsx")
    assert [*book.sheets] == ["Cover", "Notes", "Variables", "S", "T"]
    assert book.sheets["Cover"]["A1"][0] == "toy: own_block"
    assert {f"internal:'{name}'!A1" for name in book.sheets} - {"internal:'Cover'!A1"} == {
        f"internal:{place}" for place in re.findall(r'location="([^"]+)"', book.xml["Cover"])
    }
    assert any("90 % interval" in str(text) for text, _ in book.sheets["Notes"].values())
    meanings = {cell: text for cell, (text, _) in book.sheets["Variables"].items()}
    assert [meanings[cell] for cell in ("A2", "B2", "C2", "A3", "C3")] == [
        "S0001",
        "S",
        "female",
        "S0002",
        "male",
    ]

    counts = open_release(villages).table("sex", "block").to_pandas()
    women = counts[counts["sex"] == "female"].set_index("geocode")["count"].to_dict()
    cells = book.sheets["S"]
    assert [cells[f"{letter}1"][0] for letter in "ABCD"] == [
        "ID",
        "PLACE",
        "S0001",
        "S0001_estimate",
    ]
    found = {cells[f"A{row}"]: cells[f"C{row}"] for row in range(2, 2 + len(women))}
    assert found == {(code, "@"): (float(n), "#,##0") for code, n in women.items()}
    assert cells["D2"][1] == "#,##0.0"
    assert 'topLeftCell="C2"' in book.xml["S"]  # header, geocode and name stay in sight
    assert [(one["name"], one["ref"]) for one in book.tables[1:]] == [
        ("table_S", f"A1:J{1 + len(women)}"), ("table_T", f"A1:F{1 + len(women)}")
    ]  # fmt: skip


def test_equal_exports_are_equal_files(villages: Path, das: Das, tmp_path: Path) -> None:
    for name in ("one", "two"):
        words = ("--as", own(tmp_path), "--format", "xlsx", "--to", tmp_path / name)
        assert das("export", villages, *words)[0] == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_texts_stay_texts(tmp_path: Path) -> None:
    rows = pa.table({"ID": ["=1+1", "https://example.org", "007", "a\x01b"], "N": [1, None, 3, 4]})
    write_workbook(tmp_path / "a.xlsx", "t", {}, [], {"P001": rows})
    book = Opened(tmp_path / "a.xlsx")
    assert [book.sheets["P001"][f"A{n}"][0] for n in (2, 3, 4)] == [
        "=1+1",
        "https://example.org",
        "007",
    ]
    assert "B3" not in book.sheets["P001"]
    assert "<f>" not in book.xml["P001"]
    assert book.tables[0]["name"] == "table_P001"  # P001 alone would name a cell


def test_what_no_workbook_holds_is_refused(
    villages: Path, das: Das, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object, **changes: object) -> str:
        layout = own(tmp_path, **changes)
        code, printed = das("export", villages, "--as", layout, "--to", tmp_path / "x", *words)
        assert code in (2, 7)
        assert not (tmp_path / "x").exists()
        return printed

    assert "--format: is unknown; got xls" in refused("--format", "xls")
    assert "--geolevel: is not written; got place" in refused("--geolevel", "place")
    people = {"name": "people", "columns": [{"name": "SEX", "axis": ["sex"]}]}
    assert "is for tables of geounits" in refused("--format", "xlsx", files=[people])
    monkeypatch.setattr(spreadsheet, "_MOST_CELLS", 200)
    message = refused("--format", "xlsx")
    assert "own_{geolevel} of block: would have more rows, columns or cells than a" in message
    assert "choose with --geolevel and --leave-out, or write Parquet" in message
    monkeypatch.setattr(spreadsheet, "_MOST_CELLS", 10**9)
    monkeypatch.setattr(spreadsheet, "MOST_ROWS", 20)
    assert "of block: would have more rows" in refused("--format", "xlsx")
    monkeypatch.setattr(spreadsheet, "MOST_ROWS", 10**9)
    monkeypatch.setattr(spreadsheet, "MOST_COLUMNS", 2)
    message = refused("--format", "xlsx")
    assert "columns, " in message.partition("got ")[2]
    assert "at most 999999999 rows, 2 columns" in message
    words = ("--as", own(tmp_path), "--to", tmp_path / "y", "--format", "csv")
    assert das("export", villages, *words)[0] == 0


def test_an_export_to_a_full_disk_leaves_nothing(
    villages: Path, das: Das, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("xlsxwriter.workbook.ZipFile", full)
    words = ("--as", own(tmp_path), "--format", "xlsx", "--to", tmp_path / "x")
    code, printed = das("export", villages, *words)
    assert (code, "No space left on device; give the disk room" in printed) == (2, True), printed
    assert not [*(tmp_path / "x").iterdir()]


def test_a_sheet_that_cannot_be_named_is_refused(villages: Path, das: Das, tmp_path: Path) -> None:
    tables = {"Notes": {"variables": 1, "queries": ["total"]}}
    layout = own(tmp_path, tables=tables, files=[{**OWN["files"][0], "tables": ["Notes"]}])
    words = ("--as", layout, "--format", "xlsx", "--to", tmp_path / "x")
    code, printed = das("export", villages, *words)
    assert code == 2
    assert "cannot be a workbook" in printed


def test_columns_that_excel_takes_for_the_same_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"geocode": ["01"], "P1": [1], "p1": [2]})
    with pytest.raises(OutputError, match="one: cannot be an Excel table; expected names of col"):
        write_workbook(tmp_path / "a.xlsx", "t", {}, [], {"one": rows})
