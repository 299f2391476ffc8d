"""Entities from files, new geocodes to a file and back, data under the new geocodes."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError, InputError, OutputError
from geography.lattice import Spine
from geography.offspine import NO_ENTITY
from geography.respine import SpineDesign, optimize_spine, original_codes
from jobs.analysis.respine import (
    read_codes,
    read_entities,
    recode_parquet,
    spine_summary,
    write_codes,
)
from jobs.cli import app
from jobs.config.models.run import GeounitsFile
from jobs.input.geounits import list_geounits

SPINE = Spine(("state", "tract", "group", "block"), (1, 2, 3, 4))
LEAVES = np.array([b"7111", b"7112", b"7121", b"7122", b"7211", b"7212"])
ROWS = """geocode,place,town
7212,,1
7111,Dover,1
7121,Dover,2
7122,,2
7112,,1
7211,Easton,1
"""


@pytest.fixture
def entities(tmp_path):
    (tmp_path / "entities.csv").write_text(ROWS)
    return read_entities(tmp_path / "entities.csv", LEAVES, ["place", "town"])


def design(entities):
    return optimize_spine(SPINE, LEAVES, entities, SpineDesign(regroup="group"))


def test_entities_come_in_the_order_of_the_leaves(entities):
    none = NO_ENTITY
    assert entities.members.tolist() == [[0, 0], [none, 0], [0, 1], [none, 1], [1, 0], [none, 0]]


def test_parquet_numbers_and_nulls_are_entities_too(tmp_path):
    table = pa.table({"geoid": LEAVES.astype(str), "place": [5, None, 5, None, 40, 40]})
    pq.write_table(table, tmp_path / "entities.parquet")
    read = read_entities(tmp_path / "entities.parquet", LEAVES, ["place"], geocode="geoid")
    # Codes are texts, so "40" comes before "5".
    assert read.members.ravel().tolist() == [1, -1, 1, -1, 0, 0]


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (ROWS.replace("7212,,1\n", ""), "5 rows, 5 of the leaves"),
        (ROWS.replace("7212", "7211"), "6 rows, 5 of the leaves"),
        (ROWS + "9999,,1\n", "7 rows, 6 of the leaves"),
    ],
)
def test_every_leaf_is_named_once(tmp_path, text, got):
    (tmp_path / "entities.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_entities(tmp_path / "entities.csv", LEAVES, ["place"])
    assert str(caught.value) == (
        f"{tmp_path}/entities.csv, geocode: does not name every leaf geounit exactly once; "
        f"got {got}; expected 6 leaves"
    )


def test_a_missing_column_is_named(tmp_path):
    (tmp_path / "entities.csv").write_text(ROWS)
    with pytest.raises(InputError, match="school"):
        read_entities(tmp_path / "entities.csv", LEAVES, ["school"])


def test_summary(tmp_path):
    (tmp_path / "entities.csv").write_text(ROWS)
    entities = read_entities(tmp_path / "entities.csv", LEAVES, ["place"])
    summary = spine_summary(SPINE, LEAVES, entities, design(entities))
    assert [level["name"] for level in summary["levels"]] == ["state", "tract", "group", "block"]
    assert summary["geounits"]["before"] == {"state": 1, "tract": 2, "group": 3, "block": 6}
    assert summary["distances"]["place"] == {
        "entities": 2,
        "before": {"mean": 1.5, "largest": 2},
        "after": {"mean": 1.0, "largest": 1},
    }


def test_codes_come_back_and_serve_as_list_of_geounits(tmp_path, entities):
    made = design(entities)
    path = tmp_path / "codes" / "codes.parquet"
    write_codes(made, LEAVES, path)
    old, again = read_codes(path)
    assert dict(zip(old.tolist(), again.codes.tolist(), strict=True)) == dict(
        zip(LEAVES.tolist(), made.codes.tolist(), strict=True)
    )
    assert (again.spine, again.insertions) == (made.spine, made.insertions)
    assert original_codes(again.codes, again.insertions).tolist() == old.tolist()
    listed = list_geounits(GeounitsFile(path=path, geocode="spine_geocode"), made.spine)
    assert listed.tolist() == sorted(made.codes.tolist())
    with pytest.raises(OutputError, match="exists"):
        write_codes(made, LEAVES, path)


def test_data_are_recoded(tmp_path, entities):
    made = design(entities)
    write_codes(made, LEAVES, tmp_path / "codes.parquet")
    data = pa.table({"n": [3, 1, 2], "block": ["7212", "7111", "7212"]})
    pq.write_table(data, tmp_path / "data.parquet")
    recode_parquet(
        tmp_path / "data.parquet", "block", tmp_path / "codes.parquet", tmp_path / "new.parquet"
    )
    new = pq.read_table(tmp_path / "new.parquet").to_pydict()
    expected = dict(zip(LEAVES.astype(str), made.codes.astype(str), strict=True))
    assert new == {"n": [3, 1, 2], "block": [expected[c] for c in ("7212", "7111", "7212")]}


def test_an_unknown_geocode_is_counted_and_leaves_no_file(tmp_path, entities):
    write_codes(design(entities), LEAVES, tmp_path / "codes.parquet")
    pq.write_table(pa.table({"block": ["7111", "9"]}), tmp_path / "data.parquet")
    files = [tmp_path / name for name in ("data.parquet", "codes.parquet", "new.parquet")]
    with pytest.raises(InputError, match=r"not in the list of leaves \(1 such\)"):
        recode_parquet(files[0], "block", files[1], files[2])
    assert not files[2].exists()
    with pytest.raises(InputError, match="lacks a column; expected tract"):
        recode_parquet(files[0], "tract", files[1], files[2])
    with pytest.raises(InputError, match="holds no geocodes of another spine"):
        read_codes(files[0])


# --- the command line ----------------------------------------------------------------------------

SHARES = {"share": "1/4", "queries": {"total": "1/2", "detailed": "1/2"}}


@pytest.fixture
def run_file(tmp_path):
    (tmp_path / "entities.csv").write_text(ROWS)
    (tmp_path / "schema.yaml").write_text(
        "name: s\nattributes: [{name: sex, levels: [f, m]}]\n", encoding="utf-8"
    )
    allocation = {"name": "even", "levels": dict.fromkeys(SPINE.levels, SHARES)}
    (tmp_path / "even.yaml").write_text(yaml.safe_dump(allocation))
    (tmp_path / "leaves.csv").write_text("\n".join(["geocode", *LEAVES.astype(str)]) + "\n")
    run = {
        "name": "toy",
        "schema": "schema.yaml",
        "data": {"format": "histograms", "path": "absent"},
        "geography": {
            "levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(SPINE.levels, SPINE.digits, strict=True)
            ],
            "geounits": {"path": "leaves.csv"},
        },
        "privacy": {"rho": "1", "allocation": "even.yaml"},
        "output": {"directory": "out"},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    return tmp_path / "run.yaml"


def command(run_file, kinds, *words):
    """`das spine` with the entities of this module."""
    folder = run_file.parent
    named = ["--entities", folder / "entities.csv", "--kinds", kinds, "--codes", folder / "new"]
    return CliRunner().invoke(app, ["spine", *map(str, [run_file, *named, *words])])


def test_the_command_writes_codes_and_says_what_they_change(run_file, entities):
    result = command(run_file, "place,town", "--regroup", "group")
    assert result.exit_code == 0, result.output
    made = design(entities)
    assert json.loads(result.stdout) == spine_summary(SPINE, LEAVES, entities, made)
    old, again = read_codes(run_file.parent / "new")
    assert dict(zip(old, again.codes, strict=True)) == dict(zip(LEAVES, made.codes, strict=True))
    refused = command(run_file, "place,town", "--regroup", "group")
    assert isinstance(refused.exception, OutputError)
    assert "exists" in str(refused.exception)


def test_the_command_splits_by_a_mark(run_file, entities):
    result = command(run_file, "place,town", "--split", "tract", "--mark", "place")
    assert result.exit_code == 0, result.output
    is_marked = entities.members[:, 0] != NO_ENTITY
    made = optimize_spine(SPINE, LEAVES, entities, SpineDesign("tract", None, None), is_marked)
    assert read_codes(run_file.parent / "new")[1].codes.tolist() == sorted(made.codes.tolist())
    assert len(made.spine.levels) == len(json.loads(result.stdout)["levels"])


@pytest.mark.parametrize(
    "words",
    [
        ["--split", "tract"],
        ["--mark", "place"],
        ["--split", "tract", "--mark", "school"],
    ],
)
def test_a_mark_goes_with_a_split(run_file, words):
    result = command(run_file, "place,town", *words)
    assert isinstance(result.exception, ConfigError)
    assert "--split: goes with --mark, one of --kinds" in str(result.exception)
    assert not (run_file.parent / "new").exists()


def test_a_spine_is_made_of_public_geounits_alone(run_file):
    run = yaml.safe_load(run_file.read_text())
    del run["geography"]["geounits"]
    run_file.write_text(yaml.safe_dump(run))
    result = command(run_file, "place")
    assert isinstance(result.exception, ConfigError)
    assert "geography.geounits: is needed: the spine is public" in str(result.exception)
