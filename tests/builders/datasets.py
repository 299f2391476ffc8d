"""Published datasets from tables, and their rows back."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.pipeline.storage.answers import MEASUREMENTS
from jobs.pipeline.storage.columns import with_lists
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, PartWriter, publish
from jobs.pipeline.storage.place import Place, found_under, names_below, open_input

MEASUREMENTS_OF_FORMAT_1 = pa.schema(
    [
        *[MEASUREMENTS.field(name) for name in ("geocode", "query", "mechanism", "parameter")],
        ("variance", pa.float64()),
        ("answers", pa.list_(pa.int64())),
    ]
)


def publish_tables(
    folder: Path, tables: Iterable[pa.Table], facts: Mapping[str, object] | None = None
) -> None:
    """Publish a dataset of one part per table."""
    parts = []
    for table in tables:
        writer = PartWriter(folder, table.schema)
        writer.write(table)
        parts.append(writer.close())
    publish(folder, parts, dict(facts or {}))


def contents(out: Place) -> dict[str, list[str]]:
    """Digests of all published files by dataset, whatever their names."""
    return {
        str(names_below(path.parent, out)): sorted(
            p.sha256 for p in Dataset.open(path.parent).parts
        )
        for path in found_under(out, MANIFEST)
    }


def rows_of(folder: Place) -> list[dict[str, Any]]:
    """Rows of a published dataset from its files alone, in the order of its parts; packed answers as lists."""
    rows: list[dict[str, Any]] = []
    for part in json.loads((folder / "_manifest.json").read_text())["files"]:
        if part["file"].endswith(".csv"):
            rows += rows_of_csv(folder / part["file"])
        else:
            table = pq.read_table(open_input(folder / part["file"]), partitioning=None)
            rows += with_lists(table).to_pylist()
    return rows


def rows_of_csv(file: Place) -> list[dict[str, Any]]:
    """Rows of a CSV file."""
    with file.open(newline="") as handle:
        return list(csv.DictReader(handle))
