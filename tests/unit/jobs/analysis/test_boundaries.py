"""Boundaries get the numbers of their areas, and what does not fit is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from das.errors import ConfigError, InputError, OutputError
from jobs.analysis.boundaries import Boundaries, join_boundaries, properties_of

NUMBERS = {"01": {"count": 5}, "02": {"count": 7}}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}


def feature(**properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": SQUARE, "properties": properties}


def write(folder: Path, *features: dict[str, Any], **more: Any) -> Path:
    path = folder / "districts.geojson"
    path.write_text(
        json.dumps({"type": "FeatureCollection", **more, "features": list(features)}),
        encoding="utf-8-sig",
    )
    return path


def test_every_feature_gets_the_numbers_of_its_area(tmp_path: Path) -> None:
    path = write(tmp_path, feature(ID="01", color="red"), feature(ID="02"), name="districts")
    document, notes = join_boundaries(path, "ID", NUMBERS)
    assert notes == ()
    assert document["name"] == "districts"
    assert [one["properties"] for one in document["features"]] == [
        {"ID": "01", "color": "red", "count": 5},
        {"ID": "02", "count": 7},
    ]
    assert all(one["geometry"] == SQUARE for one in document["features"])


def test_numbers_name_areas_as_they_are_written(tmp_path: Path) -> None:
    path = write(tmp_path, feature(ID=1), feature(ID=2.0), feature(ID=None))
    document, _ = join_boundaries(path, "ID", {"1": {"count": 5}, "2": {"count": 7}})
    assert [one["properties"].get("count") for one in document["features"]] == [5, 7, None]


def test_what_does_not_meet_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, feature(ID="01"), feature(ID="09"), feature(ID="01"), feature())
    assert join_boundaries(path, "ID", NUMBERS)[1] == (
        "2 values of ID without numbers, such as 09, nothing",
        "1 area without a feature of the same ID, such as 02",
        "1 value of ID in several features, such as 01",
    )


def test_boundaries_of_other_areas_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, feature(ID="09"), feature(ID="10"))
    with pytest.raises(InputError, match="names no area that has numbers; got 09, 10; expected"):
        join_boundaries(path, "ID", NUMBERS)
    with pytest.raises(InputError, match="drop leading zeros: keep them as text"):
        join_boundaries(write(tmp_path, feature(ID=1)), "ID", NUMBERS)


def test_a_property_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    path = write(tmp_path, feature(GEOID="01", NAME="x"))
    with pytest.raises(InputError, match=r"got ID; expected one of \['GEOID', 'NAME'\]"):
        join_boundaries(path, "ID", NUMBERS)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no GeoJSON with features"),
        ('{"type": "Feature"}', "is no GeoJSON with features"),
        ('{"type": "FeatureCollection", "features": []}', "is no GeoJSON with features"),
        ('{"type": "FeatureCollection", "features": [1]}', "is no GeoJSON with features"),
        (
            '{"type": "FeatureCollection", "features": [{"properties": 1}]}',
            "is no GeoJSON with features",
        ),
    ],
)
def test_what_is_no_geojson_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "districts.geojson"
    path.write_text(text)
    with pytest.raises(InputError, match=what):
        join_boundaries(path, "ID", NUMBERS)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read; got No such file"):
        join_boundaries(tmp_path / "none.geojson", "ID", NUMBERS)


def test_the_three_options_go_together(tmp_path: Path) -> None:
    assert not Boundaries().check()
    with pytest.raises(ConfigError, match="got no --join"):
        Boundaries(tmp_path / "a", None, tmp_path / "b").check()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="is another file and is not written over"):
        Boundaries(tmp_path / "a", "ID", tmp_path / "notes.txt").check()


def test_the_file_may_be_written_again(tmp_path: Path) -> None:
    path, out = write(tmp_path, feature(ID="01")), tmp_path / "out.geojson"
    table = pa.table({"area": ["01"], "table": ["total"], "label": ["total"], "count": [5]})
    for _ in range(2):
        asked = Boundaries(path, "ID", out)
        assert asked.check()
        asked.write(table)
    assert json.loads(out.read_text())["features"][0]["properties"] == {"ID": "01", "count": 5}


def test_properties_are_flat() -> None:
    table = pa.table(
        {
            "area": ["a", "a", "b"],
            "table": ["total", "sex", "total"],
            "label": ["total", "female", "total"],
            "count": [5, 3, 7],
            "deviation": [-1.0, None, 1.0],
        }
    )
    assert properties_of(table) == {
        "a": {"count": 5, "deviation": -1.0, "sex: female, count": 3},
        "b": {"count": 7, "deviation": 1.0},
    }
