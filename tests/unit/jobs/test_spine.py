"""Entities from files, new geocodes to a file and back, data under the new geocodes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import InputError, OutputError
from geography.lattice import Spine
from geography.offspine import NO_ENTITY
from geography.optimize import SpineDesign, optimize_spine, original_codes
from jobs.config.models import GeounitsFile
from jobs.read.read import list_geounits
from jobs.spine import read_codes, read_entities, recode_parquet, spine_summary, write_codes

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
