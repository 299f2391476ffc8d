"""Boundaries as GeoJSON, with numbers of areas joined as properties of features.

Geometry is copied unchanged and not interpreted (RFC 7946).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from das.errors import ConfigError, InputError
from jobs.analysis.results import check_place, shared_mode
from jobs.pipeline.printable import counted
from jobs.pipeline.storage.files import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

_EXAMPLES = 3
_START = b'{"type": "FeatureCollection"'


@dataclass(frozen=True)
class Boundaries:
    """Options of `das areas --geojson`: boundaries to which numbers of areas are joined.

    Attributes:
      boundaries: GeoJSON file of the areas.
      join: Property of its features that names the area.
      geojson: Output file: the boundaries with the numbers.
    """

    boundaries: Path | None = None
    join: str | None = None
    geojson: Path | None = None

    def check(self) -> bool:
        """Check in advance that the file can be written; return whether one was requested.

        Raises:
          ConfigError: Only some of the three options are given.
          OutputError: The file cannot be written, or exists with other contents.
        """
        given = vars(self)
        missing = [f"--{name}" for name, value in given.items() if value is None]
        if len(missing) == len(given):
            return False
        if self.geojson is None or missing:
            want = tuple(f"--{name}" for name in given)
            raise ConfigError(
                "das areas", "needs all three options", got=f"no {missing[0]}", want=want
            )
        check_place(self.geojson, _START, "what `das areas --geojson` wrote before")
        return True

    def write(self, table: pa.Table) -> tuple[str, ...]:
        """Write the boundaries with the numbers of a table; return warnings.

        Raises:
          InputError: As `join_boundaries`.
          OutputError: The file cannot be written.
        """
        if self.boundaries is None or self.join is None or self.geojson is None:
            raise ValueError("no boundaries are requested")
        document, notes = join_boundaries(self.boundaries, self.join, properties_of(table))
        first = {"type": document["type"]}  # comes first, so that `check` recognizes the file
        text = json.dumps({**first, **document}, ensure_ascii=False)
        replace_file(self.geojson, text, mode=shared_mode())
        return notes


def join_boundaries(
    path: Path, field: str, numbers: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read boundaries and add the numbers of its area to each feature.

    Args:
      path: GeoJSON file whose features are areas.
      field: Property of features that names the area.
      numbers: Numbers to add as properties, by area.

    Returns:
      The GeoJSON, and notes on features without numbers and areas without a feature.

    Raises:
      InputError: The file is no GeoJSON with features, no feature has the property, or no
        feature names an area with numbers.
    """
    document = read_features(path)
    features: list[dict[str, Any]] = document["features"]
    named = [_named(feature, field) for feature in features]
    if all(name is None for name in named):
        known = sorted({key for feature in features for key in (feature.get("properties") or {})})
        raise InputError(
            str(path), "has no feature with the property", got=field, want=f"one of {known}"
        )
    if not set(named) & {*numbers}:
        texts = [name for name in named if name is not None]
        lost_zeros = {name.lstrip("0") for name in texts} & {name.lstrip("0") for name in numbers}
        remedy = "programs that read codes as numbers drop leading zeros: keep them as text"
        raise InputError(
            f"{path}, property {field}",
            "names no area that has numbers",
            got=_examples(texts),
            want=f"areas such as {_examples([*numbers])}",
            remedy=remedy if lost_zeros else None,
        )
    joined = []
    for feature, name in zip(features, named, strict=True):
        properties = {**(feature.get("properties") or {}), **numbers.get(name or "", {})}
        joined.append({**feature, "properties": properties})
    return {**document, "features": joined}, (*_notes(field, named, numbers),)


def read_features(path: Path) -> dict[str, Any]:
    """Read a GeoJSON file with features, each a map whose properties are a map or absent.

    Raises:
      InputError: The file cannot be read, or is no GeoJSON with features.
    """
    try:
        document = json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        raise InputError(str(path), "cannot be read", got=error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), "is not JSON", got=error) from None
    is_collection = isinstance(document, dict) and document.get("type") == "FeatureCollection"
    features = document.get("features") if is_collection else None
    are_features = isinstance(features, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("properties"), dict | None)
        for entry in features
    )
    if not features or not are_features:
        raise InputError(
            str(path),
            "is no GeoJSON with features",
            want='{"type": "FeatureCollection", "features": [...]}',
        )
    return {**document}


def _named(feature: Mapping[str, Any], field: str) -> str | None:
    """Return the area that a feature names; whole numbers are written as integers."""
    value = (feature.get("properties") or {}).get(field)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, bool | list | dict):
        return None
    return str(value).strip()


def _notes(field: str, named: Sequence[str | None], numbers: Mapping[str, object]) -> list[str]:
    absent = list(dict.fromkeys(name or "nothing" for name in named if name not in numbers))
    missing = [name for name in numbers if name not in set(named)]
    again = [name for name in dict.fromkeys(named) if name is not None and named.count(name) > 1]
    lines = (
        (absent, f"values of {field} without numbers"),
        (missing, f"areas without a feature of the same {field}"),
        (again, f"values of {field} in several features"),
    )
    return [f"{counted(len(ids), what)}, such as {_examples(ids)}" for ids, what in lines if ids]


def _examples(names: Sequence[str]) -> str:
    return ", ".join(list(dict.fromkeys(names))[:_EXAMPLES])


def properties_of(table: pa.Table) -> dict[str, dict[str, Any]]:
    """Return the numbers of each area as flat properties; only totals lack table and label.

    Args:
      table: A table like `AreaTables.table`.
    """
    properties: dict[str, dict[str, Any]] = {}
    columns = [name for name in table.column_names if name not in ("area", "table", "label")]
    for row in table.to_pylist():
        before = "" if row["table"] == "total" else f"{row['table']}: {row['label']}, "
        of_area = properties.setdefault(row["area"], {})
        of_area |= {f"{before}{name}": row[name] for name in columns if row[name] is not None}
    return properties
