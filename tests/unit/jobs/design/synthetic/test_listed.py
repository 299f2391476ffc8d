"""Persons for the blocks of a public list: its blocks and sizes, and nothing made of a bad list."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import ConfigError, InputError
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.design.synthetic.listed import list_tracts

CODES = [f"010010{tract:03d}001{block:03d}" for tract in range(1, 5) for block in range(30)]
UNITS = [(7 * index) % 60 for index in range(len(CODES))]
QUARTERS = [int(index % 40 == 3) for index in range(len(CODES))]
COLUMNS = "geoid, units, quarters"


def written(folder: Path, **changes: object) -> Path:
    """A list, its rows in no order."""
    columns: dict[str, object] = {"geoid": CODES, "units": UNITS, "quarters": QUARTERS, **changes}
    table = pa.table(columns)
    order = np.random.default_rng(5).permutation(table.num_rows)
    pq.write_table(table.take(pa.array(order)), folder / "list.parquet")
    return folder / "list.parquet"


def made(folder: Path, listed: Path, **changes: object) -> tuple[pa.Table, pa.Table]:
    spec = GenerateSpec(listed=listed, columns=COLUMNS, format="histograms", **changes)  # type: ignore[arg-type]
    generate(spec, folder)
    return pq.read_table(folder / "geounits.parquet"), pq.read_table(folder / "histograms")


def test_blocks_are_those_of_the_list_and_units_set_their_sizes(tmp_path: Path) -> None:
    geounits, histograms = made(tmp_path / "us", written(tmp_path))
    assert geounits["geocode"].to_pylist() == CODES
    assert geounits["housing_units"].to_pylist() == UNITS
    facilities = sum(
        np.asarray(geounits[name]) for name in geounits.column_names if name.startswith("gq_")
    )
    assert facilities.tolist() == QUARTERS
    persons = dict(
        zip(
            histograms["geocode"].to_pylist(),
            (sum(counts or ()) for counts in histograms["counts"].to_pylist()),
            strict=True,
        )
    )
    empty = [c for c, u, q in zip(CODES, UNITS, QUARTERS, strict=True) if u == q == 0]
    assert empty
    assert not any(persons.get(code, 0) for code in empty)
    mean = sum(persons.values()) / sum(UNITS)
    assert 1.7 < mean < 3.5  # a tenth vacant, 2.5 in each of the others, some in group quarters


def test_a_tract_depends_on_the_seed_and_its_own_rows_alone(tmp_path: Path) -> None:
    path = written(tmp_path)
    _, all_of_it = made(tmp_path / "all", path)
    geounits, some = made(tmp_path / "some", path, every=3)
    assert geounits["geocode"].to_pylist() == CODES[:30] + CODES[90:]
    rows = {row["geocode"]: row for row in all_of_it.to_pylist()}
    assert [rows[row["geocode"]] for row in some.to_pylist()] == some.to_pylist()
    _, other = made(tmp_path / "other", path, seed=7)
    assert other != all_of_it


def test_a_list_without_group_quarters_has_households_alone(tmp_path: Path) -> None:
    tracts = list_tracts(written(tmp_path), GenerateSpec(columns="geoid, units"))
    assert len(tracts) == 4
    assert not any(listed.group_quarters.any() for _, listed in tracts)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"geoid": [*CODES[:-1], CODES[0]]}, "appears twice"),
        ({"geoid": [*CODES[:-1], "0100"]}, "does not fit"),
        ({"units": [*UNITS[:-1], -1]}, "negative"),
        ({"units": [*UNITS[:-1], None]}, "missing"),
    ],
)
def test_a_bad_list_is_refused_and_nothing_is_written(
    tmp_path: Path, changes: dict[str, object], what: str
) -> None:
    listed = written(tmp_path, **changes)
    with pytest.raises(InputError, match=what):
        made(tmp_path / "us", listed)
    assert not (tmp_path / "us").exists()


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two or three columns"):
        list_tracts(tmp_path, GenerateSpec(columns="geoid"))
    with pytest.raises(ConfigError, match="not positive"):
        list_tracts(tmp_path, GenerateSpec(columns=COLUMNS, every=0))
    with pytest.raises(ConfigError, match="no blocks"):
        generate(GenerateSpec(listed=tmp_path, schema="census1940"), tmp_path / "new")
