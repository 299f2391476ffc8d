"""Area files as offices write them, and what is said of those that do not fit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from das.errors import InputError
from jobs.analysis.area_files import AreaFile, read_areas

LEAVES = ["0101", "0102", "0103", "0201"]
TWO = {"North county": ["0101", "0102"], "South": ["0103", "0201"]}


def areas(found: AreaFile) -> dict[str, list[str]]:
    return {area: [code.decode() for code in codes] for area, codes in found.areas.items()}


def read(folder: Path, content: str | bytes, leaves: list[str] = LEAVES) -> AreaFile:
    path = folder / "north.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_areas(path, np.array(leaves, np.bytes_), "block")


def test_every_way_to_write_it(tmp_path: Path) -> None:
    headers = ("block{}district\n", "BLOCKID{}NAME\n", "")
    for header, delimiter, swapped, quote, mark, ending in itertools.product(
        headers, ",\t|;", (False, True), ("", '"'), ("", "\ufeff"), ("\n", "\r\n")
    ):
        lines = []
        for area, codes in TWO.items():
            for code in codes:
                pair = [f"{quote}{code}{quote}", f"{quote}{area}{quote}"]
                lines.append(delimiter.join(pair[::-1] if swapped else pair))
        text = mark + header.format(delimiter) + "\n".join(lines) + "\n"
        found = read(tmp_path, text.replace("\n", ending))
        assert areas(found) == TWO
        assert found.notes == []


@pytest.mark.parametrize("text", ["0101\n0201\n", "block\n0101\n\n0201", '"0101"\n"0201"\n'])
def test_one_column_is_one_area(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert areas(found) == {"north": ["0101", "0201"]}
    assert found.notes == []


def test_names_with_the_separator_in_quotes(tmp_path: Path) -> None:
    wanted = {"Bay, upper": ["0101", "0102"]}
    assert areas(read(tmp_path, '0101,"Bay, upper"\n0102,"Bay, upper"\n')) == wanted
    assert areas(read(tmp_path, '0101, "Bay, upper"\n0102 ,"Bay, upper" \n')) == wanted


def test_numbers_as_names_of_areas(tmp_path: Path) -> None:
    # Districts 1 and 2 are no geocodes, whichever column they are in.
    assert areas(read(tmp_path, "1,0101\n2,0102\n")) == {"1": ["0101"], "2": ["0102"]}
    assert areas(read(tmp_path, "0101,1\n0102,2\n")) == {"1": ["0101"], "2": ["0102"]}


def test_what_is_missing_or_twice_is_said(tmp_path: Path) -> None:
    found = read(tmp_path, "block,area\n0101,a\n0102,a\n0101,a\n0102,b\n0103,\n")
    assert areas(found) == {"a": ["0101", "0102"], "b": ["0102"]}
    assert found.notes == [
        "2 of 4 geounits of block in no area, such as 0103, 0201",
        "1 geounit of block twice in one area, counted once, the first is 0101 in rows 2 and 4",
        "1 geounit of block in more than one area, counted in each, the first is 0102 in a, row 3, and b, row 5",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("0101,a\n9999,b\n", "row 2: names no block of the release (1 such rows); got 9999"),
        ("9999,a\n0102,b\n", "row 1: names no block of the release (1 such rows); got 9999"),
        ("0101,a\n,b\n", "row 2: names no block of the release (1 such rows); got nothing"),
        ("block,a\nx,1\n", "row 2: no row holds a geocode of the geolevel block"),
        ("101,a\n102,b\n", "drop leading zeros: write them as text"),
        ('block;a\n101;"b c"\n', "row 2: the geocodes of the geolevel block lost their leading"),
        ("0101,a,1\n0102,b,2\n", "has several columns besides the geocodes; got 3"),
        ("0101,Bay\n0102,Bay, upper\n", "another number of fields than other rows"),
        (b"0101,\xff\n", "is not UTF-8"),
        (
            'area,block\n"A,0101\nB,0102\nC",0103\n',
            "row 2: has a quotation mark that opens a field",
        ),
        ('"A,0101\nB,0102\n', "row 1: has a quotation mark that opens a field"),
        ('0101,A\n\n0102,"B\n0103,C\n0201,D"\n', "row 3: has a quotation mark that opens a field"),
        ("0101,\n0102,\n", "assigns no geocode to an area"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: cannot be read"):
        read_areas(tmp_path / "none.csv", np.array(LEAVES, np.bytes_), "block")


def test_a_header_that_looks_like_a_geocode_of_letters(tmp_path: Path) -> None:
    leaves = ["AB01XYZ", "AB02XYZ"]
    with pytest.raises(InputError, match="row 1: names no block"):
        read(tmp_path, "GEOID20,x\nAB01XYZ,x\n", leaves)  # could be either: said, not guessed
    found = read(tmp_path, "GEOID20,x\n0000001,x\n", ["0000001"])
    assert areas(found) == {"x": ["0000001"]}


def test_one_of_several_columns_is_named(tmp_path: Path) -> None:
    path = tmp_path / "baf.txt"
    path.write_text("COUNTYFP|BLOCKID|DISTRICT\n01|0101|7\n01|0102|8\n02|0201|7\n")
    leaves = np.array(LEAVES, np.bytes_)
    assert areas(read_areas(path, leaves, "block", "DISTRICT")) == {
        "7": ["0101", "0201"],
        "8": ["0102"],
    }
    assert [*areas(read_areas(path, leaves, "block", "COUNTYFP"))] == ["01", "02"]
    for wrong in ("BLOCKID", "ward"):
        with pytest.raises(
            InputError, match=r"got \w+; expected one of \['COUNTYFP', 'DISTRICT'\]"
        ):
            read_areas(path, leaves, "block", wrong)
    path.write_text("0101,7,1\n0102,8,1\n")
    with pytest.raises(InputError, match="expected a first line with names of columns"):
        read_areas(path, leaves, "block", "DISTRICT")
