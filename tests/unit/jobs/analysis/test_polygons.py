"""Outlines from GeoJSON and GeoParquet, and files that are neither."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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


def wkb(order: str = "<", *, kind: int = 3, dimensions: int = 2) -> bytes:
    corners = [[*corner, *[9.0] * (dimensions - 2)] for corner in RING]
    flat = [value for corner in corners for value in corner]
    mark = b"\x01" if order == "<" else b"\x00"
    return mark + struct.pack(f"{order}III{len(flat)}d", kind, 1, len(corners), *flat)


def several(*parts: bytes) -> bytes:
    return b"\x01" + struct.pack("<II", 6, len(parts)) + b"".join(parts)


def parquet(path: Path, contents: list[bytes | None], **metadata: str) -> Path:
    table = pa.table({"GEOID": [f"0{n}" for n in range(len(contents))], "shape": contents})
    said = {"primary_column": "shape", "columns": {"shape": {"encoding": "WKB"} | metadata}}
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(said)}), path)
    return path


def test_well_known_binary_of_every_kind(tmp_path: Path) -> None:
    contents = [
        wkb(),
        wkb(">"),
        several(wkb(), wkb(">")),
        wkb(kind=1003, dimensions=3),
        wkb(kind=3 | 0x80000000, dimensions=3),
        wkb(kind=3003, dimensions=4),
        None,
    ]
    read = read_polygons(parquet(tmp_path / "a.parquet", contents))
    assert [len(rings) for rings in read.rings] == [1, 1, 2, 1, 1, 1, 0]
    assert all(ring.tolist() == RING[:-1] for rings in read.rings for ring in rings)
    assert read.column("GEOID")[0] == "00"


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
        (b"PAR1", "cannot be read"),
    ],
)
def test_what_is_no_boundary_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said.replace("[", r"\[")):
        read_polygons(path)


def test_what_of_a_parquet_file_is_not_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds geometry in another encoding; got polygon"):
        read_polygons(parquet(tmp_path / "a", [wkb()], encoding="polygon"))
    with pytest.raises(InputError, match="row 2: holds a damaged geometry"):
        read_polygons(parquet(tmp_path / "b", [wkb(), wkb()[:30]]))
    with pytest.raises(InputError, match="row 1: holds a damaged geometry"):
        read_polygons(parquet(tmp_path / "c", [wkb(kind=1)]))
    pq.write_table(pa.table({"code": ["1"]}), tmp_path / "d")
    with pytest.raises(InputError, match="has no column of geometry"):
        read_polygons(tmp_path / "d")
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


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"\x01" + struct.pack("<I", 9003),
        b"\x01" + struct.pack("<III", 3, 1, 0),
        b"\x01" + struct.pack("<III", 3, 1, 2**32 - 1),
        (b"\x01" + struct.pack("<II", 7, 1)) * 2000 + wkb(),
        wkb()[:-16] + struct.pack("<dd", 1e308, 0),
    ],
)
def test_damaged_well_known_binary_is_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match="row 1: holds a damaged geometry"):
        read_polygons(parquet(tmp_path / "a.parquet", [content]))


def test_outlines_without_properties_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [RING]}}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    with pytest.raises(InputError, match="has no properties"):
        read_polygons(path)
