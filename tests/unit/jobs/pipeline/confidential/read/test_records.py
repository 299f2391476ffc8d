"""Person records from CSV and Parquet, and every way in which they can be wrong."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from das.errors import ConfigError, InputError
from jobs.pipeline.config.models.data import RecordColumn, RecordsData
from jobs.pipeline.input import files
from tests.unit.jobs.pipeline.confidential.read.reading import TOY, read

PEOPLE = [
    ("0101", "male", "under_18"),
    ("0101", "male", "under_18"),
    ("0101", "female", "65_and_over"),
    ("0203", "female", "18_to_64"),
]
EXPECTED = Counter({("0101", 3): 2, ("0101", 2): 1, ("0203", 1): 1})


def table(people: list[tuple[object, ...]] = PEOPLE) -> pa.Table:
    names = ("block", "sex", "age")
    columns = zip(*people, strict=True) if people else ((), (), ())
    arrays = [pa.array(list(column), pa.string()) for column in columns]
    return pa.table(dict(zip(names, arrays, strict=True)))


def write(folder: Path, kind: str, rows: pa.Table) -> Path:
    path = folder / f"people.{kind}"
    if kind == "csv":
        pa_csv.write_csv(rows, path)
    else:
        pq.write_table(rows, path)
    return path


def config(path: Path, **changes: object) -> RecordsData:
    fields = {"input_format": "records", "path": path, "geocode": "block",
              "columns": {"sex": "sex", "age": "age"}}  # fmt: skip
    return RecordsData(**{**fields, **changes})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_records_are_counted_by_geocode_and_cell(tmp_path: Path, kind: str) -> None:
    assert read(config(write(tmp_path, kind, table()))) == EXPECTED


LOST = [(code.lstrip("0"), *cell) for code, *cell in PEOPLE]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_leading_zeros_that_were_lost_are_put_back(tmp_path: Path, kind: str) -> None:
    data = config(write(tmp_path, kind, table(LOST)), leading_zeros="lost")
    assert read(data) == EXPECTED
    with pytest.raises(InputError, match="column block: geocode does not fit"):
        read(data.model_copy(update={"leading_zeros": "kept"}))


def test_geocodes_that_are_integers_lost_their_zeros(tmp_path: Path) -> None:
    numbers = table(LOST)
    codes = pa.array([int(row[0]) for row in LOST])
    path = write(tmp_path, "parquet", numbers.set_column(0, "block", codes))
    assert read(config(path, leading_zeros="lost")) == EXPECTED
    with pytest.raises(InputError, match=r"got int64; .* say `leading_zeros: lost`"):
        read(config(path))


PARTS = [{"column": "prov", "digits": 1}, {"column": "mun", "digits": 3}]


def in_two_columns(people: list[tuple[object, ...]], kind: type) -> pa.Table:
    """The geocodes of four digits as one and three, as text or as numbers."""
    codes = [str(code) for code, *_ in people]
    rows = table(people).drop_columns("block")
    for name, part in (("mun", slice(1, None)), ("prov", slice(0, 1))):
        rows = rows.add_column(0, name, pa.array([kind(code[part]) for code in codes]))
    return rows


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("values", "zeros"), [(str, "kept"), (int, "lost")])
def test_several_columns_make_a_geocode(
    tmp_path: Path, kind: str, values: type, zeros: str
) -> None:
    """In the order of the run file, each with the zeros that it lost: 0 and 101 are 0101."""
    people = [*PEOPLE, ("1002", "male", "under_18"), ("1020", "male", "under_18")]
    data = config(
        write(tmp_path, kind, in_two_columns(people, values)), geocode=PARTS, leading_zeros=zeros
    )
    assert read(data) == EXPECTED + Counter({("1002", 3): 1, ("1020", 3): 1})


def test_numbers_in_several_columns_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet", in_two_columns(PEOPLE, int))
    with pytest.raises(InputError, match=r"column prov: .* got int64; .* `leading_zeros: lost`"):
        read(config(path, geocode=PARTS))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (",101", "row 3, column prov: geocode is missing; expected 1 letters"),
        ("0,", "row 3, column mun: geocode is missing; expected 3 letters"),
        ("0,7101", "row 3, column mun: geocode does not fit the digits of this column"),
        ("01,01", "row 3, column prov: geocode does not fit the digits of this column"),
        ("0,1 1", "row 3, column mun: geocode does not fit the digits of this column"),
    ],
)
def test_a_part_that_does_not_fit_is_named_and_not_quoted(
    tmp_path: Path, row: str, said: str
) -> None:
    """Also where all parts together have the length of a geocode."""
    path = tmp_path / "people.csv"
    path.write_text(f"prov,mun,sex,age\n0,101,male,under_18\n{row},male,under_18\n")
    with pytest.raises(InputError) as caught:
        read(config(path, geocode=PARTS, leading_zeros="lost"))
    assert said in str(caught.value)
    assert "7101" not in str(caught.value)


def test_every_column_of_a_geocode_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", in_two_columns(PEOPLE, str).drop_columns("mun"))
    with pytest.raises(InputError, match=r"lacks columns; .* expected also \['mun'\]"):
        read(config(path, geocode=PARTS))


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("A1", "does not fit the leaf geolevel"),
        ("1.70310E+14", "was rounded by a spreadsheet: take the column as text"),
        ("10101", "does not fit the leaf geolevel"),
        ("1 1", "does not fit the leaf geolevel"),
        ("-1", "does not fit the leaf geolevel"),
        ("", "geocode is missing"),
    ],
)
def test_what_is_no_number_gets_no_zeros(tmp_path: Path, code: str, what: str) -> None:
    path = write(tmp_path, "csv", table([*LOST, (code, "male", "under_18")]))
    with pytest.raises(InputError, match=f"row 6, column block: .*{what}") as caught:
        read(config(path, leading_zeros="lost"))
    assert "leading_zeros" not in str(caught.value)


def test_codes_map_values_of_the_file_to_levels(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("block;s;age\n0101;1;under_18\n0101;2;under_18\n")
    sex = RecordColumn(column="s", codes={"1": "male", "2": "female"})
    data = config(path, delimiter=";", columns={"sex": sex, "age": "age"})
    assert read(data) == Counter({("0101", 3): 1, ("0101", 0): 1})


def test_integer_codes_and_dictionary_columns_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    rows = pa.table(
        {
            "block": pa.array(["0101", "0101"]).dictionary_encode(),
            "sex": [1, 2],
            "age": pa.array(["under_18", "18_to_64"]).dictionary_encode(),
        }
    )
    pq.write_table(rows, path)
    sex = RecordColumn(column="sex", codes={"1": "male", "2": "female"})
    assert read(config(path, columns={"sex": sex, "age": "age"})) == Counter(
        {("0101", 3): 1, ("0101", 1): 1}
    )


def test_quotes_byte_order_mark_carriage_returns_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"block",note,sex,age\r\n'
        b'"0101","a, b",male,under_18\r\n\r\n0203,,female,"18_to_64"\r\n'
    )
    assert read(config(path)) == Counter({("0101", 3): 1, ("0203", 1): 1})


def test_chunks_give_every_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = PEOPLE * 50
    for size in (1, 7, 64, 333):
        monkeypatch.setattr(files, "CHUNK_BYTES", size)
        data = config(write(tmp_path, "csv", table(many)))
        assert read(data) == Counter({key: 50 * n for key, n in EXPECTED.items()})
    monkeypatch.setattr(files, "CHUNK_ROWS", 30)
    path = tmp_path / "groups.parquet"
    pq.write_table(table(many), path, row_group_size=7)
    assert len(files.plan_chunks(files.Table(path, ("block",)))) == 6
    assert read(config(path)) == Counter({key: 50 * n for key, n in EXPECTED.items()})


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "state=1").mkdir()
    pq.write_table(table(), tmp_path / "state=1" / "a.parquet")
    pq.write_table(table([]), tmp_path / "empty.parquet")
    pq.write_table(table(), tmp_path / "b.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert read(config(tmp_path)) == EXPECTED + EXPECTED


def test_missing_code_of_a_dictionary_column(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    sex = pa.array(["male", None, "male"]).dictionary_encode()
    rows = pa.table({"block": ["0101"] * 3, "sex": sex, "age": ["under_18"] * 3})
    pq.write_table(rows, path)
    assert f"{path}, row 2, column sex: code is missing;" in message(config(path))


def message(data: RecordsData) -> str:
    with pytest.raises(InputError) as caught:
        read(data)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_missing_column_lists_those_present(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind, table())
    text = message(config(path, geocode="geocode"))
    assert str(path) in text
    assert "['block', 'sex', 'age']" in text
    assert "['geocode']" in text


@pytest.mark.parametrize(("kind", "row"), [("csv", 4), ("parquet", 3)])
def test_unknown_code_names_the_row_but_no_value_and_no_number_of_rows(
    tmp_path: Path, kind: str, row: int
) -> None:
    people = [*PEOPLE[:2], ("0101", "x7", "under_18"), PEOPLE[3], ("0203", "y7", "under_18")]
    path = write(tmp_path, kind, table(people))
    text = message(config(path))
    assert f"{path}, row {row}, column sex: unknown code" in text
    assert "7" not in text.removeprefix(str(path))
    assert "['female', 'male']" in text


@pytest.mark.parametrize(("kind", "row"), [("csv", 3), ("parquet", 2)])
def test_missing_code(tmp_path: Path, kind: str, row: int) -> None:
    path = write(tmp_path, kind, table([PEOPLE[0], ("0101", None, "under_18")]))
    assert f"{path}, row {row}, column sex: code is missing;" in message(config(path))


@pytest.mark.parametrize(("kind", "row"), [("csv", 5), ("parquet", 4)])
def test_geocode_of_wrong_length(tmp_path: Path, kind: str, row: int) -> None:
    path = write(tmp_path, kind, table([*PEOPLE[:3], ("203", "female", "under_18")]))
    text = message(config(path))
    assert f"{path}, row {row}, column block: geocode does not fit the leaf geolevel" in text
    assert "expected 4 letters or digits" in text
    assert "203" not in text.removeprefix(str(path))


@pytest.mark.parametrize(("kind", "row"), [("csv", 2), ("parquet", 1)])
def test_missing_geocode(tmp_path: Path, kind: str, row: int) -> None:
    path = write(tmp_path, kind, table([(None, "female", "under_18"), *PEOPLE]))
    assert f"{path}, row {row}, column block: geocode is missing" in message(config(path))


def test_geocode_that_is_not_ascii_or_not_text(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet", table([("01é1", "female", "under_18")]))
    assert "row 1, column block" in message(config(path))
    numbers = table().set_column(0, "block", pa.array([101, 101, 101, 203]))
    text = message(config(write(tmp_path, "parquet", numbers)))
    assert "not text" in text
    assert "int64" in text


def test_file_without_a_header_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("0101,male,under_18\n0203,female,under_18\n")
    text = message(config(path))
    assert f"{path}: lacks columns; got 3 others; expected ['block', 'sex', 'age']" in text
    assert "male" not in text
    assert "0101" not in text


@pytest.mark.parametrize(
    "codes",
    [
        pa.array([b"male", b"m\xe9le"]).view(pa.string()),
        pa.array([1, 7777]),
        pa.array([1.0, 7777.0]),
        pa.array(["male", "7777"], pa.large_string()),
    ],
)
def test_codes_of_other_types_are_not_quoted(tmp_path: Path, codes: pa.Array) -> None:
    rows = pa.table({"block": ["0101"] * 2, "sex": codes, "age": ["under_18"] * 2})
    sex = RecordColumn(column="sex", codes={"male": "male", "1": "male", "1.0": "male"})
    path = write(tmp_path, "parquet", rows)
    text = message(config(path, columns={"sex": sex, "age": "age"}))
    assert f"{path}, row 2, column sex: unknown code" in text
    assert "7777" not in text
    assert "xe9" not in text


def test_codes_that_have_no_text(tmp_path: Path) -> None:
    rows = table().set_column(1, "sex", pa.array([date(1977, 7, 7)] * 4))
    text = message(config(write(tmp_path, "parquet", rows)))
    assert "column sex: holds codes that are not text; got values of type date32[day]" in text
    assert "1977" not in text


def test_a_long_field_is_not_taken_for_the_row_that_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(f"block,sex,age\n0101,male,{'7' * 140_000}\n0101\n")
    assert f"{path}, row 3: has the wrong number of fields; got 1" in message(config(path))


def test_row_numbers_count_through_chunks_and_blank_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 50)
    lines = ["block,sex,age", *(["0101,male,under_18", ""] * 20), "0101,male,old"]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    assert f"{path}, row 42, column age" in message(config(path))


def test_wrong_number_of_fields_does_not_quote_the_line(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("block,sex,age\n0101,male,under_18\n0101,male\n")
    text = message(config(path))
    assert f"{path}, row 3: has the wrong number of fields; got 2; expected 3" in text
    assert "0101" not in text


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(b"block,sex,age\n0101,male,under_18\n0101,m\xe9le,under_18\n")
    assert f"{path}, row 3: is not UTF-8 text" in message(config(path))


@pytest.mark.parametrize("content", [b"", b"block,sex,age\n", b"block,sex,age\n\n"])
def test_empty_csv(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    assert f"{path}: is empty" in message(config(path))


def test_empty_parquet(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet", table([]))
    assert f"{path}: is empty" in message(config(path))


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.csv"
    assert f"{missing}: does not exist" in message(config(missing))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"not parquet")
    assert f"{broken}: is not a readable Parquet file" in message(config(broken))
    broken.rename(tmp_path / "people.xlsx")
    assert "unknown file type" in message(config(tmp_path / "people.xlsx"))
    empty = tmp_path / "folder"
    empty.mkdir()
    assert "folder without data files" in message(config(empty))
    write(empty, "csv", table())
    write(empty, "parquet", table())
    assert "two formats" in message(config(empty))


def test_configuration_must_fit_the_schema(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", table())
    with pytest.raises(ConfigError, match=r"data\.columns: lacks the attribute age"):
        read(config(path, columns={"sex": "sex"}))
    sex = RecordColumn(column="sex", codes={"1": "boy"})
    with pytest.raises(ConfigError, match=r"data\.columns\.sex\.codes\.1: .*got boy"):
        read(config(path, columns={"sex": sex, "age": "age"}))
    assert TOY.size == 6
