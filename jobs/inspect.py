"""Inspect a run folder: what is complete, what was released of a geounit. Reads no truth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.box import SIMPLE
from rich.table import Table

from das.errors import InputError, OutputError
from jobs.dataset import MANIFEST, read_manifest, read_range
from jobs.files import read_json
from jobs.layout import ReleaseLayout, release_layout
from jobs.progress import result_console


def inspect_run(out: Path) -> dict[str, Any]:
    """Every published dataset of the release with its rows and bytes.

    Raises:
      OutputError: It is not the folder of a run.
    """
    owner = read_json(out / "run.json", "give the output.directory of a run")
    root = release_layout(out).root
    datasets = []
    for path in sorted(root.rglob(MANIFEST)):
        parts, _ = read_manifest(path.parent)
        datasets.append(
            {
                "dataset": str(path.parent.relative_to(out)),
                "files": len(parts),
                "rows": sum(p.rows for p in parts),
                "bytes": sum(p.bytes for p in parts),
            }
        )
    sealed = (root / "manifest.json").exists()
    return {**owner, "sealed": sealed, "datasets": datasets}


def inspect_geounit(out: Path, geocode: str, query: str | None) -> dict[str, Any]:
    """Noisy measurements and protected total of one geounit.

    Raises:
      InputError: There is no such geounit.
    """
    release = release_layout(out)
    geolevel, geounit = _find(release, geocode)
    document: dict[str, Any] = {"geolevel": geolevel, **geounit}
    if geounit["only_child"]:
        document["measured_as"] = geounit["parent"]
    dataset = release.measurements(geolevel)
    measurements = []
    if (dataset / MANIFEST).exists():
        parts, facts = read_manifest(dataset)
        described = {q["query"]: q for q in facts["queries"]}
        for row in read_range(dataset, parts, geocode, geocode).to_pylist():
            if query is None or row["query"] == query:
                held = {k: v for k, v in row.items() if k not in ("geocode", "positions")}
                answers = _labelled(described[row["query"]], row["answers"], row.get("positions"))
                measurements.append({**held, "answers": answers})
    document["measurements"] = measurements
    counts = release.counts(geolevel)
    if (counts / MANIFEST).exists():
        parts, _ = read_manifest(counts)
        rows = read_range(counts, parts, geocode, geocode).to_pylist()
        document["protected_total"] = int(np.sum([n for row in rows for n in row["counts"]]))
    return document


def _labelled(
    query: Mapping[str, Any], answers: Sequence[int], positions: Sequence[int] | None
) -> dict[str, int]:
    """Answers by label; of a lazy query, those that were drawn."""
    places = range(len(answers)) if positions is None else positions
    if "labels" in query:
        return {query["labels"][p]: answer for p, answer in zip(places, answers, strict=True)}
    levels = zip(*np.unravel_index(np.array(places, np.int64), query["shape"]), strict=True)
    names = query["factor_labels"]
    return {
        " / ".join(name[at] for name, at in zip(names, level, strict=True)): answer
        for level, answer in zip(levels, answers, strict=True)
    }


def _find(release: ReleaseLayout, geocode: str) -> tuple[str, dict[str, Any]]:
    for folder in sorted((release.root / "geography").glob("level=*")):
        parts, facts = read_manifest(folder)
        rows = read_range(folder, parts, geocode, geocode).to_pylist()
        if rows:
            return str(facts["geolevel"]), rows[0]
    if not (release.root / "geography").exists():
        raise OutputError(str(release.root), "holds no geography", remedy="run `das measure`")
    raise InputError(str(release.root), "has no such geounit", got=geocode)


def print_inspection(document: dict[str, Any], *, as_json: bool) -> None:
    """Print an inspection as JSON or as tables."""
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    console = result_console()
    tables = {k: v for k, v in document.items() if isinstance(v, list)}
    for key, value in document.items():
        if key not in tables:
            console.print(f"{key}: {value}")
    for name, rows in tables.items():
        if not rows:
            continue
        table = Table(*rows[0].keys(), title=name, box=SIMPLE)
        for row in rows:
            table.add_row(*(_short(value) for value in row.values()))
        console.print(table)


def _short(value: object) -> str:
    if isinstance(value, dict):
        shown = [f"{k}: {v}" for k, v in list(value.items())[:12]]
        more = f" … {len(value) - 12} more" if len(value) > 12 else ""
        return "\n".join(shown) + more
    return f"{value:,}" if isinstance(value, int) else str(value)
