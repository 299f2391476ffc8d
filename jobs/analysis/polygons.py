"""Read outlines of geounits from GeoJSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from das.arrays import FloatArray
from das.errors import InputError
from jobs.analysis.boundaries import read_features

_CONVERT = "convert it to GeoJSON in longitude and latitude, as with `ogr2ogr -f GeoJSON`"
_FARTHEST = 1e9  # coordinate; the circumference of the Earth is 1.3e8 feet
_DAMAGED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
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
    rows, rings = [], list[Rings]()
    for number, feature in enumerate(read_features(path)["features"], 1):
        try:
            properties = dict(feature.get("properties") or {})
            if "id" in feature:
                properties.setdefault("id", feature["id"])
            rings.append(_rings_of(feature.get("geometry")))
        except _DAMAGED as error:
            raise InputError(f"{path}, feature {number}", "is damaged", got=error) from None
        rows.append(_texts(properties))
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
