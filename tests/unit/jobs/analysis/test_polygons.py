"""Outlines from GeoJSON, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from das.errors import InputError
from jobs.analysis.polygons import read_polygons

RING = [[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 0.0]]


def geojson(path: Path, *geometries: Any, **properties: Any) -> Path:
    features = [
        {"type": "Feature", "properties": {"code": str(n), **properties}, "geometry": geometry}
        for n, geometry in enumerate(geometries)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_polygons_of_every_kind(tmp_path: Path) -> None:
    polygon = {"type": "Polygon", "coordinates": [RING]}
    several = {"type": "MultiPolygon", "coordinates": [[RING], [RING, RING]]}
    mixed = {"type": "GeometryCollection", "geometries": [polygon, several]}
    high = {"type": "Polygon", "coordinates": [[[*corner, 7.0] for corner in RING]]}
    path = geojson(tmp_path / "a.json", polygon, several, mixed, high, None, name="here", size=1.5)
    read = read_polygons(path)
    assert [len(rings) for rings in read.rings] == [1, 3, 4, 1, 0]
    assert all(ring.tolist() == RING[:-1] for rings in read.rings for ring in rings)
    assert read.fields == ("code", "name")
    assert read.column("code") == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04", "is not JSON"),
        (b'{"type": "Topology"}', "is no GeoJSON with features"),
        (b"[1]", "is no GeoJSON with features"),
        (b'{"type": "FeatureCollection", "features": [{"geometry": null}]}', "has no polygons"),
        (
            b'{"type": "FeatureCollection", "features": [{"geometry": {"type": "Polygon", '
            b'"coordinates": [[["a", "b"]]]}}]}',
            "feature 1: is damaged",
        ),
        (b"PAR1", "is not JSON"),
    ],
)
def test_what_is_no_boundary_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said.replace("[", r"\[")):
        read_polygons(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read; got No such file"):
        read_polygons(tmp_path / "absent")


def test_a_property_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = geojson(tmp_path / "a.json", {"type": "Polygon", "coordinates": [RING]})
    with pytest.raises(InputError, match=r"has no such property; got GEOID; expected .*code"):
        read_polygons(path).column("GEOID")


@pytest.mark.parametrize(
    "corner", ["[1e308, 0]", "[0, -1e10]", "[1e400, 0]", f"[1{'0' * 400}, 0]", "[NaN, 0]"]
)
def test_corners_far_from_the_earth_are_damaged(tmp_path: Path, corner: str) -> None:
    path = tmp_path / "a.json"
    ring = f"[{corner}, [1, 0], [1, 1], [0, 0]]"
    geometry = f'{{"type": "Polygon", "coordinates": [{ring}]}}'
    feature = f'{{"type": "Feature", "properties": {{"code": "1"}}, "geometry": {geometry}}}'
    path.write_text(f'{{"type": "FeatureCollection", "features": [{feature}]}}')
    with pytest.raises(InputError, match="feature 1: is damaged"):
        read_polygons(path)


def test_corners_in_feet_are_read(tmp_path: Path) -> None:
    ring = [[1.3e8 * x, 1.3e8 * y] for x, y in RING]
    read = read_polygons(geojson(tmp_path / "a.json", {"type": "Polygon", "coordinates": [ring]}))
    assert read.rings[0][0].tolist() == ring[:-1]


def test_outlines_without_properties_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [RING]}}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    with pytest.raises(InputError, match="has no properties"):
        read_polygons(path)
