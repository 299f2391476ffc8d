"""What is seen of a file of records: forms, and no numbers of rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import InputError
from jobs.pipeline.confidential.look import MOST_CODES, Look, look_at, look_at_geocodes

ROWS = 1_000_000


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "persons.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def look(folder: Path, text: str | bytes, rows: int = ROWS) -> Look:
    return look_at(write(folder, text), rows)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize(("start", "end"), [("", "\n"), ("\ufeff", "\r\n")])
def test_separators_and_ends_of_lines_are_found_out(
    tmp_path: Path, delimiter: str, start: str, end: str
) -> None:
    lines = ["place,a b", "01,x", "02,", '02,"x"', ""]
    seen = look(tmp_path, start + end.join(lines).replace(",", delimiter))
    place, text = seen.columns
    assert (seen.delimiter, seen.is_whole) == (delimiter, True)
    assert (place.name, place.codes, place.is_code) == ("place", frozenset({"01", "02"}), True)
    assert (text.name, text.codes, text.has_missing) == ("a b", frozenset({"x", ""}), True)
    assert (place.shortest, place.longest, text.is_code) == (2, 2, False)


def test_a_column_is_what_its_values_are(tmp_path: Path) -> None:
    header = "many,number,decimal,text,blank"
    rows = [f"v{row},{row % 7 - 1},{row % 5}.0,x-{row % 3}, " for row in range(MOST_CODES + 1)]
    seen = {one.name: one for one in look(tmp_path, "\n".join([header, *rows, ""])).columns}
    assert seen["many"].codes is None
    assert (seen["number"].is_number, seen["number"].least, seen["number"].most) == (True, -1, 5)
    assert (seen["decimal"].is_number, seen["decimal"].most) == (True, 4)
    assert (seen["text"].is_number, seen["text"].is_code) == (False, False)
    assert seen["blank"].codes == frozenset({" "})


def test_a_column_without_repetition_is_told_from_a_small_file(tmp_path: Path) -> None:
    lines = [f"{row},{row % 2}" for row in range(30)]
    seen = look(tmp_path, "\n".join(["no,sex", *lines, ""]))
    assert [one.is_unique for one in seen.columns] == [True, False]
    few = look(tmp_path, "\n".join(["no,sex", *lines[:5], ""]))
    assert not few.columns[0].is_unique


def test_text_that_no_run_can_read_has_a_fault(tmp_path: Path) -> None:
    text = "place,name,twice,twice,,n\x07\n01,M\xfcller,1,2,3,4\n02,b\x07,1,2,3,4\n"
    faults = {one.name: one.fault for one in look(tmp_path, text.encode("latin-1")).columns}
    assert faults["name"] == "holds text that is not UTF-8"
    assert faults["twice"] == "occurs twice in the header"
    assert faults[""] == faults["n\x07"] == "has a name that a run file cannot hold"
    assert faults["place"] == ""


def test_not_all_rows_need_be_looked_at(tmp_path: Path) -> None:
    lines = [f"{row % 9},{'late' if row > 60_000 else 'early'}" for row in range(70_000)]
    text = "\n".join(["place,when", *lines, ""])
    assert look(tmp_path, text).column("when").codes == {"early", "late"}  # type: ignore[union-attr]
    # Rows come in batches: of so many, at least those asked for.
    part = look_at(tmp_path / "persons.csv", 1)
    assert part.is_whole or part.column("when").codes == {"early", "late"}  # type: ignore[union-attr]


def test_parquet_says_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "place": pa.array([7, 1007]),
            "sex": pa.array(["f", "m"]).dictionary_encode(),
            "known": [True, None],
            "born": pa.array([0, 1], pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "p.parquet")
    seen = {one.name: one for one in look_at(tmp_path / "p.parquet", ROWS).columns}
    assert (seen["place"].is_code, seen["place"].is_text, seen["place"].shortest) == (
        True, False, 1,
    )  # fmt: skip
    assert (seen["sex"].codes, seen["sex"].is_text) == ({"f", "m"}, True)
    assert seen["known"].codes == {"True", ""}
    assert "date32" in seen["born"].fault


def test_columns_of_geounits_are_told_from_columns_of_persons(tmp_path: Path) -> None:
    rows = [
        f"{place},{place[0]},{'town' if place in ('101', '203') else 'land'},{number % 2}"
        for place in ("101", "102", "203")
        for number in range(10)
    ]
    path = write(tmp_path, "\n".join(["place,prov,kind,sex", *rows, ""]))
    found = look_at_geocodes(path, look_at(path, ROWS), "place", ["prov", "kind", "sex"], ROWS)
    assert found.geocodes == {"101", "102", "203"}
    assert found.following == {"prov", "kind"}
    assert found.prefixes == {"prov": 1}


def test_few_rows_tell_nothing_of_geounits(tmp_path: Path) -> None:
    path = write(tmp_path, "place,sex\n101,1\n202,2\n")
    found = look_at_geocodes(path, look_at(path, ROWS), "place", ["sex"], ROWS)
    assert not found.following
    assert not found.prefixes


def test_prefixes_are_found_where_zeros_are_lost(tmp_path: Path) -> None:
    rows = [f"{place},{place // 1000}" for place in (1001, 1002, 12001) for _ in range(10)]
    path = write(tmp_path, "\n".join(["place,prov", *rows, ""]))
    found = look_at_geocodes(path, look_at(path, ROWS), "place", ["prov"], ROWS)
    assert found.prefixes == {"prov": 2}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("a,b\n", "is empty; expected at least one data row"),
        ("a\n1\n", "has one column, with any separator of"),
        ("1,2,x\n1,2,3\n", "row 1: looks like data"),
        ("a,b\n".encode("utf-16-le"), "is not UTF-8 text; got UTF-16"),
        ("ä,b\n1,2\n".encode("latin-1"), "got another encoding"),
        ("a,b\n1,2,3\n", "row 2: has the wrong number of fields"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str | bytes, what: str) -> None:
    with pytest.raises(InputError, match=what):
        look(tmp_path, text)


def test_a_list_of_geounits_repeats_nothing_and_has_prefixes(tmp_path: Path) -> None:
    rows = [f"{place},{place // 1000},{place}x" for place in range(1001, 3001, 50)]
    path = write(tmp_path, "\n".join(["place,prov,name", *rows, ""]))
    found = look_at_geocodes(path, look_at(path, ROWS), "place", ["prov", "name"], ROWS)
    assert found.prefixes == {"prov": 1}
    assert found.following == {"prov"}
