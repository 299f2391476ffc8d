"""Block tables: columns to cells, checks, and wrong counts."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from das.errors import ConfigError, InputError, SchemaError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.data import BlockTableData
from jobs.pipeline.config.schema import load_schema
from tests.unit.jobs.pipeline.confidential.read.reading import DATA, ROOT, read

PATTERN = "s{sex}a{age:02d}"
COLUMNS = {
    "fu": {"sex": "female", "age": "under_18"},
    "f1": {"sex": "female", "age": "18_to_64"},
    "f2": {"sex": "female", "age": "18_to_64"},
    "fo": {"sex": "female", "age": "65_and_over"},
    "mu": {"sex": "male", "age": "under_18"},
    "m1": {"sex": "male", "age": "18_to_64"},
    "mo": {"sex": "male", "age": "65_and_over"},
}


def config(path: Path, **changes: object) -> BlockTableData:
    fields = {"input_format": "block_table", "path": path, "pattern": PATTERN}
    return BlockTableData(**{**fields, **changes})


def write(folder: Path, rows: dict[str, list[object]], kind: str = "parquet") -> Path:
    path = folder / f"blocks.{kind}"
    pa_csv.write_csv(pa.table(rows), path) if kind == "csv" else pq.write_table(
        pa.table(rows), path
    )
    return path


def rows(**changes: list[object]) -> dict[str, list[object]]:
    base: dict[str, list[object]] = {"geocode": ["0101", "0102", "0203"]}
    base |= {f"s{s}a{a:02d}": [0, 10 * s + a, 0] for s in range(2) for a in range(3)}
    return base | changes


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_pattern(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, rows(), kind)
    assert read(config(path)) == Counter(
        {("0102", 1): 1, ("0102", 2): 2, ("0102", 3): 10, ("0102", 4): 11, ("0102", 5): 12}
    )


def test_several_columns_add_to_one_cell(tmp_path: Path) -> None:
    counts = {name: [index] for index, name in enumerate(COLUMNS)}
    path = write(tmp_path, {"geocode": ["0101"], **counts})
    found = read(config(path, pattern=None, columns=COLUMNS))
    assert found == Counter({("0101", i): n for i, n in enumerate([0, 3, 3, 4, 5, 6]) if n})


def test_checks_over_all_cells_levels_and_recodes(tmp_path: Path) -> None:
    path = write(tmp_path, rows(pop=[0, 36, 0], men=[0, 33, 0], minors=[0, 10, 0]))
    checks = {"pop": {}, "men": {"sex": "male"}, "minors": {"votingage": "minor"}}
    read(config(path, checks=checks))
    path = write(tmp_path, rows(pop=[0, 36, 0], men=[0, 34, 0], minors=[0, 10, 0]))
    with pytest.raises(InputError) as caught:
        read(config(path, checks=checks))
    where, text = str(caught.value).split(", ", 1)
    assert where == str(path)
    assert text.startswith("row 2, column men: is not the sum of its cells")
    assert "0102" not in text
    assert "33" not in text
    assert "34" not in text


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([0, None, 0], "count is missing"),
        ([0, -7777, 0], "count is negative"),
        ([0.0, 7777.5, 0.0], "count is not an integer"),
        ([0.0, float("nan"), 0.0], "count is not an integer"),
        (["0", "7777x", "0"], "count is not an integer"),
        (["0", "-7777", "0"], "count is negative"),
        (["0", " ", "0"], "count is missing"),
        (["0", "7777" * 5, "0"], "count is too large"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_wrong_counts_name_row_and_column_only(
    tmp_path: Path, kind: str, values: list[object], what: str
) -> None:
    path = write(tmp_path, rows(s1a02=values), kind)
    with pytest.raises(InputError) as caught:
        read(config(path))
    row = 3 if kind == "csv" else 2
    assert f"{path}, row {row}, column s1a02: {what}" in str(caught.value)
    assert "7777" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pa.array([0, 2**63 + 7777, 0], pa.uint64()), "count is too large"),
        (pa.array([0, 7777e300, 0]), "count is too large"),
        (pa.array([0, Decimal(7777 * 10**40), 0], pa.decimal256(60, 0)), "count is too large"),
        (pa.array([Decimal(0), Decimal("7777.5"), None]), "count is not an integer"),
        (pa.array([b"0", b"\xe97777", b"0"]).view(pa.string()), "count is not an integer"),
    ],
)
def test_counts_that_arrow_would_quote(tmp_path: Path, values: pa.Array, what: str) -> None:
    path = write(tmp_path, rows(s1a02=values))
    with pytest.raises(InputError) as caught:
        read(config(path))
    assert f"{path}, row 2, column s1a02: {what}" in str(caught.value)
    assert "7777" not in str(caught.value)
    assert "9223372036854783585" not in str(caught.value)


def test_whole_floats_are_counts_but_other_types_are_not(tmp_path: Path) -> None:
    assert read(config(write(tmp_path, rows(s0a00=[0.0, 5.0, 0.0]))))["0102", 0] == 5
    path = write(tmp_path, rows(s0a00=[True, False, True]))
    with pytest.raises(InputError, match=r"column s0a00: does not hold counts; got .* bool"):
        read(config(path))


def test_missing_columns(tmp_path: Path) -> None:
    some = rows()
    del some["s1a01"]
    with pytest.raises(InputError, match=r"lacks columns; got .*'s0a00'.*expected also \['s1a01'"):
        read(config(write(tmp_path, some)))


def test_configuration_errors(tmp_path: Path) -> None:
    path = write(tmp_path, rows())
    for pattern, what in (("s{sex}", "for two cells"), ("s{sex}a{old}", "cannot be filled in")):
        with pytest.raises(ConfigError, match=f"data.pattern: .*{what}"):
            read(config(path, pattern=pattern))
    cases = [
        ({"mo": {"sex": "male"}}, "must name one level of every attribute"),
        ({"mo": {"sex": "male", "age": "old"}}, r"data.columns.mo.age: .*got \['old'\]"),
        ({"mo": {"sex": "male", "age": "18_to_64..65_and_over"}}, "must name one level of every"),
    ]
    for change, what in cases:
        with pytest.raises((ConfigError, SchemaError), match=what):
            read(config(path, pattern=None, columns=COLUMNS | change))
    with pytest.raises(ConfigError, match="leaves 1 cells without a column"):
        read(config(path, pattern=None, columns={k: v for k, v in COLUMNS.items() if k != "mo"}))
    with pytest.raises(SchemaError, match=r"data.checks.pop: names an unknown attribute; got race"):
        read(config(path, checks={"pop": {"race": "x"}}))


@pytest.mark.parametrize(("state", "persons"), [("ri", 171_111), ("de", 150_202), ("hi", 223_268)])
def test_real_blocks(state: str, persons: int) -> None:
    run = load_run(ROOT / "conf" / "run" / f"{state}-2010.yaml")
    schema = load_schema(ROOT / "conf" / "schema" / "block16.yaml")
    assert read(run.last.config.data, schema, 15).total() == persons


def test_real_tracts_by_pattern() -> None:
    path = DATA / "il_2020_tract_252cells.parquet"
    schema = load_schema(ROOT / "conf" / "schema" / "pl94_tables.yaml")
    data = config(path, geocode="geoid", pattern="v{votingage}h{hispanic}r{cenrace:02d}")
    assert read(data, schema, 11).total() == 428_987


def test_a_row_that_is_its_check_but_for_a_power_of_two_is_refused(tmp_path: Path) -> None:
    """Twenty counts that add up to 2^64, where the total says 0."""
    part = 2**64 // 20
    counts = [part] * 19 + [2**64 - 19 * part]
    cells = [levels for name, levels in COLUMNS.items() if name != "f2"]
    columns = {f"c{i}": cells[i % 6] for i in range(20)}
    table = {"geocode": ["0101", "0102"], "all": [0, 0]}
    table |= {f"c{i}": [0, count] for i, count in enumerate(counts)}
    data = config(write(tmp_path, table), pattern=None, columns=columns, checks={"all": {}})
    with pytest.raises(InputError, match=r"blocks\.parquet, row 2: the counts of the file up to"):
        read(data)
