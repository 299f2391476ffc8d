"""Read outlines of geounits: GeoJSON, and GeoParquet with polygons as WKB."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from das.arrays import FloatArray
from das.errors import InputError
from jobs.analysis.boundaries import read_features

_CONVERT = "convert it to GeoJSON in longitude and latitude, as with `ogr2ogr -f GeoJSON`"
_POLYGON, _MULTIPOLYGON, _COLLECTION = 3, 6, 7  # of WKB
_Z, _M, _SRID = 0x80000000, 0x40000000, 0x20000000  # flags of extended WKB
_FARTHEST = 1e9  # coordinate; the circumference of the Earth is 1.3e8 feet
_DAMAGED = (
    *(AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError),
    struct.error,
)
Rings = list[FloatArray]


@dataclass(frozen=True, eq=False)
class Polygons:
    """Areas with properties and outlines.

    Attributes:
      path: The file.
      fields: Names of the properties that are text or whole numbers, in order.
      rows: Properties of each area.
      rings: For each area and ring: float64[n, 2], corners (longitude, latitude) without the
        closing one; no ring for an area without outline.
    """

    path: Path
    fields: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    rings: Sequence[Rings]

    def column(self, field: str) -> list[str]:
        """Return the value of a property for every area, or an empty text where it is missing.

        Raises:
          InputError: No area has the property.
        """
        if field not in self.fields:
            known = list(self.fields)
            raise InputError(str(self.path), "has no such property", got=field, want=known)
        return [row.get(field, "") for row in self.rows]


def read_polygons(path: Path) -> Polygons:
    """Read areas with outlines.

    Raises:
      InputError: The file is missing, damaged, or of another format.
    """
    try:
        with path.open("rb") as handle:
            start = handle.read(4)
    except OSError as error:
        raise InputError(str(path), "cannot be read", got=error.strerror) from None
    areas = list(_parquet(path) if start == b"PAR1" else _geojson(path))
    rows, rings = [row for row, _ in areas], [of_area for _, of_area in areas]
    fields = tuple(dict.fromkeys(name for row in rows for name in row))
    if not any(rings):
        raise InputError(str(path), "has no polygons", remedy=_CONVERT)
    if not fields:
        raise InputError(str(path), "has no properties that are text or whole numbers")
    return Polygons(path, fields, rows, rings)


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return properties that are text or whole numbers, as text."""
    texts = {}
    for name, value in properties.items():
        is_whole = isinstance(value, float) and value.is_integer()
        if is_whole or (isinstance(value, str | int) and not isinstance(value, bool)):
            texts[str(name)] = str(int(value) if is_whole else value).strip()
    return texts


# --- GeoJSON -------------------------------------------------------------------------------------


def _geojson(path: Path) -> Iterator[tuple[dict[str, str], Rings]]:
    features = read_features(path)["features"]
    for number, feature in enumerate(features, 1):
        try:
            properties = dict(feature.get("properties") or {})
            if "id" in feature:
                properties.setdefault("id", feature["id"])
            rings = _rings_of(feature.get("geometry"))
        except _DAMAGED as error:
            raise InputError(f"{path}, feature {number}", "is damaged", got=error) from None
        yield _texts(properties), rings


def _rings_of(geometry: Mapping[str, Any] | None) -> Rings:
    if geometry is None:
        return []
    if geometry["type"] == "GeometryCollection":
        return [ring for part in geometry["geometries"] for ring in _rings_of(part)]
    polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else []
    if geometry["type"] == "Polygon":
        polygons = [geometry["coordinates"]]
    return [_ring([p[:2] for p in ring]) for polygon in polygons for ring in polygon]


def _ring(corners: object) -> FloatArray:
    """Return float64[n, 2], the x and y of the corners, without the closing corner."""
    ring = np.asarray(corners, np.float64).reshape(-1, 2)
    if not len(ring):
        raise ValueError("a ring has no corners")
    if not (np.abs(ring) <= _FARTHEST).all():  # also where it is not a number
        raise ValueError(f"a corner is not within {_FARTHEST:.0e} of the origin")
    return ring[:-1] if len(ring) > 1 and (ring[0] == ring[-1]).all() else ring


# --- GeoParquet ----------------------------------------------------------------------------------


def _parquet(path: Path) -> Iterator[tuple[dict[str, str], Rings]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(str(path), "cannot be read", got=str(error)) from None
    column = _geometry_column(path, table.schema)
    others = [name for name in table.column_names if name != column]
    texts = table.select(others).to_pylist()
    for number, (row, content) in enumerate(zip(texts, table.column(column), strict=True), 1):
        try:
            known = content.as_py()
            rings = [] if known is None else _Wkb(known).rings()
        except _DAMAGED as error:
            raise InputError(
                f"{path}, row {number}", "holds a damaged geometry", got=error
            ) from None
        yield _texts(row), rings


def _geometry_column(path: Path, schema: pa.Schema) -> str:
    """Return the column with polygons, as named in the GeoParquet metadata."""
    try:
        metadata = json.loads((schema.metadata or {}).get(b"geo", b"{}"))
        column = metadata.get("primary_column", "geometry")
        encoding = metadata.get("columns", {}).get(column, {}).get("encoding", "WKB")
    except _DAMAGED:
        column, encoding = "geometry", "WKB"
    if column not in schema.names:
        got, what = list(schema.names), "has no column of geometry"
        raise InputError(str(path), what, got=got, remedy=_CONVERT)
    if encoding != "WKB":
        raise InputError(str(path), "holds geometry in another encoding", got=encoding, want="WKB")
    return str(column)


class _Wkb:
    """Parser of polygons in well-known binary, extended or not, with two to four dimensions."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def rings(self) -> Rings:
        """Return the rings of the geometry at the current position."""
        order = "<" if self._content[self._at] == 1 else ">"
        self._at += 1
        kind = self._number(order)
        dimensions = 2 + bool(kind & _Z) + bool(kind & _M)
        if kind & _SRID:
            self._number(order)
        kind &= 0x0FFFFFFF
        dimensions += {0: 0, 1: 1, 2: 1, 3: 2}[kind // 1000]
        kind %= 1000
        if kind == _POLYGON:
            return [self._ring(order, dimensions) for _ in range(self._number(order))]
        if kind in (_MULTIPOLYGON, _COLLECTION):
            return [ring for _ in range(self._number(order)) for ring in self.rings()]
        raise ValueError("is no polygon")

    def _number(self, order: str) -> int:
        (value,) = struct.unpack_from(f"{order}I", self._content, self._at)
        self._at += 4
        return int(value)

    def _ring(self, order: str, dimensions: int) -> FloatArray:
        count = self._number(order) * dimensions
        values = np.frombuffer(self._content, f"{order}f8", count, self._at)
        self._at += 8 * count
        return _ring(values.reshape(-1, dimensions)[:, :2])
