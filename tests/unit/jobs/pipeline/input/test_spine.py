"""What leaves lie in, read from public files: every leaf once, marks and codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import InputError
from geography.lattice import Spine
from geography.offspine import NO_ENTITY
from jobs.pipeline.config.models.run import EntitiesFile, GeographyConfig
from jobs.pipeline.input.spine import public_lattice, read_columns, respined

SPINE = Spine(("state", "tract", "block"), (1, 2, 4))
LEAVES = np.array([b"7111", b"7112", b"7121", b"7122", b"7211"])
ROWS = "geoid,aian,place\n7211,, \n7111,0012,Dover\n7121,5100,Dover\n7122,,\n7112,99,Easton\n"


def written(folder: Path, text: str = ROWS) -> EntitiesFile:
    (folder / "own.csv").write_text(text)
    return EntitiesFile(path=folder / "own.csv", geocode="geoid")


def test_columns_come_in_the_order_of_the_leaves(tmp_path):
    found = read_columns(written(tmp_path), LEAVES, 4, ("place", "aian"))
    assert found["place"].tolist() == ["Dover", "Easton", "Dover", "", ""]
    assert found["aian"].tolist() == ["0012", "99", "5100", "", ""]


def test_parquet_numbers_and_nulls_are_texts_too(tmp_path):
    table = pa.table({"geoid": LEAVES.astype(str), "place": [5, None, 5, None, 40]})
    pq.write_table(table, tmp_path / "own.parquet")
    file = EntitiesFile(path=tmp_path / "own.parquet", geocode="geoid")
    assert read_columns(file, LEAVES, 4, ("place",))["place"].tolist() == ["5", "", "5", "", "40"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROWS.replace("7121,5100,Dover\n", ""), "geoid: lacks a geounit (1 such); "
         "expected a row for 7121"),
        (ROWS + "7112,,\n", "geocode appears twice"),
        (ROWS + "7999,,\n", "row 7, geoid: geocode is not in the list of geounits (1 such in these "
         "rows); got 7999"),
        (ROWS.replace("place", "ward"), "place"),
        (ROWS.replace("7121,", "712,"), "row 4, column geoid: geocode does not fit the leaf geolevel"),
        (ROWS.replace("7121,", ",", 1), "row 4, column geoid: geocode is missing"),
    ],
)  # fmt: skip
def test_every_leaf_is_named_once(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        read_columns(written(tmp_path, text), LEAVES, 4, ("place",))
    assert message in str(caught.value)
    assert "own.csv" in str(caught.value)


def geography(folder: Path, **split: object) -> GeographyConfig:
    levels = zip(SPINE.levels, SPINE.digits, strict=True)
    return GeographyConfig.model_validate(
        {
            "levels": [{"name": name, "digits": digits} for name, digits in levels],
            "geounits": {"path": str(written(folder).path), "geocode": "geoid"},
            "spine": {"split": {"geolevel": "state", "by": "aian", **split}},
        }
    )


@pytest.mark.parametrize(
    ("codes", "marked"),
    [
        ([], [b"7111", b"7112", b"7121"]),
        (["0001..4999"], [b"7111"]),
        (["0012", "99"], [b"7111", b"7112"]),
        (["0013..5100"], [b"7121"]),
        (["1000..9999"], [b"7121"]),
    ],
)
def test_marks_are_texts_or_ranges_of_them(tmp_path, codes, marked):
    made, entities = respined(geography(tmp_path, codes=codes), SPINE, LEAVES)
    assert [leaf for leaf, code in zip(LEAVES, made.codes, strict=True) if code[1:2] == b"1"] == (
        marked
    )
    assert entities.members.shape == (5, 0)
    assert NO_ENTITY not in entities.members


def test_leaves_have_both_geocodes(tmp_path):
    lattice, census = public_lattice(geography(tmp_path), SPINE)
    assert lattice.spine.levels == ("state", "state_part", "tract_part", "block")
    pairs = dict(zip(lattice.codes[-1].tolist(), census.leaves.tolist(), strict=True))
    assert pairs == {b"71111": b"7111", b"71112": b"7112", b"71121": b"7121", b"70122": b"7122",
                     b"70211": b"7211"}  # fmt: skip
    assert census.lattice.codes[1].tolist() == [b"71", b"72"]
