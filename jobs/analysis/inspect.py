"""Inspect a run folder: what is complete, what was released of a geounit. Reads no truth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import typer

from das.errors import ConfigError, InputError, OutputError
from jobs.analysis.results import print_rows
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.documents.manifest import read_manifest, read_release
from jobs.pipeline.printable import printable, result_console
from jobs.pipeline.storage.answers import read_listed
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.files import read_json, understanding
from jobs.pipeline.storage.layout import (
    EstimateLayout,
    ReleaseLayout,
    census_release,
    is_release,
    products_folder,
    received_release,
    release_folder,
    solutions_of,
)
from jobs.pipeline.storage.place import Place, found_under, names_below


def _release(out: Place, solution: str | None) -> Place:
    """Return the folder of the release of a run, or the folder itself if it is a release."""
    return received_release(out).root if is_release(out) else release_folder(out, solution)


def _product(root: Place, name: str | None) -> ReleaseLayout:
    """Return the product that is named, or the last of a finalized release, or the only one.

    Raises:
      ConfigError: There is no such product; or there are several, and their order is not known yet.
    """
    if ReleaseLayout(root).manifest.exists():
        names = [*read_release(root).names]
    else:
        names = sorted(path.name for path in products_folder(root).glob("*") if path.is_dir())
        if name is None and len(names) > 1:
            raise ConfigError("--product", "is required until the release is finalized", want=names)
    if name is not None:
        refuse_unknown("--product", "is unknown", [name], names)
    names = names or [""]
    return census_release(root, names).product(name or names[-1])


def inspect_run(out: Place, solution: str | None = None) -> dict[str, Any]:
    """Every published dataset of the release, or of a solution of it, with its rows and bytes.

    Raises:
      OutputError: It is not the folder of a run.
    """
    remedy = "give the output.directory of a run, or the folder of a release"
    owner = {} if is_release(out) else read_json(out / "run.json", remedy)
    root = _release(out, solution)
    datasets = []
    for path in found_under(root, MANIFEST):
        dataset = Dataset.open(path.parent)
        named = {"dataset": str(names_below(path.parent, out)), "files": len(dataset.parts)}
        datasets.append({**named, "rows": dataset.rows, "bytes": dataset.bytes})
    finalized = (root / "manifest.json").exists()
    known = {
        "finalized": finalized,
        "solution": solution,
        "solutions": ", ".join(solutions_of(out)),
    }
    return {**owner, **known, "datasets": datasets}


def inspect_geounit(
    out: Place,
    geocode: str,
    query: str | None,
    solution: str | None = None,
    product: str | None = None,
) -> dict[str, Any]:
    """Noisy measurements, estimates and protected total of one geounit.

    What there is not is said in `notes`.

    Args:
      out: Folder of the run.
      geocode: Of any geolevel.
      query: Only this query; terms in any order.
      solution: Name of a solution beside the release.
      product: Name of the product; None for the last.

    Raises:
      InputError: There is no such geounit.
      ConfigError: There is no such product; or there are several, and their order is not known yet.
    """
    release = _product(_release(out, solution), product)
    geolevel, geounit = _find(release, geocode)
    query = None if query is None else _known_name(release, query)
    dataset, tables = release.measurements(geolevel), EstimateLayout.of(release).tables(geolevel)
    measured = [
        {**held, "answers": {label: answer for label, (answer,) in answers.items()}}
        for place in (dataset, release.lazy_measurements(geolevel))
        for held, answers in _answers(place, geocode, query, ("answers",), read_listed)
    ]
    estimates = []
    for held, answers in _answers(tables, geocode, query, _INTERVAL, read_tables):
        by_label = {k: dict(zip(_INTERVAL, values, strict=True)) for k, values in answers.items()}
        held["confidence"] = Dataset.open(tables).facts["confidence"]
        estimates.append({**held, "estimates": by_label})
    notes = []
    if not measured:
        notes.append(_why_unmeasured(dataset, geolevel, geounit, query))
    if not estimates and (dataset / MANIFEST).exists():
        notes.append(_why_not_estimated(tables, geolevel, geocode, query))
    found = {"notes": notes, "measurements": measured, "estimates": estimates}
    document: dict[str, Any] = {"geolevel": geolevel, **geounit, **found}
    counts = release.counts(geolevel)
    if (counts / MANIFEST).exists():
        with understanding(counts):
            rows = Dataset.open(counts).read(geocode, geocode).to_pylist()
            document["protected_total"] = int(np.sum([n for row in rows for n in row["counts"]]))
    return document


_INTERVAL = ("estimate", "standard_error", "lower", "upper")


def _answers(
    dataset: Place,
    geocode: str,
    query: str | None,
    values: Sequence[str],
    read: Callable[[Dataset, str, str], pa.Table],
) -> Iterator[tuple[dict[str, Any], dict[str, tuple[Any, ...]]]]:
    """Of every row about a geounit and query: what it says beside values, and values by label."""
    if not (dataset / MANIFEST).exists():
        return
    answers = Dataset.open(dataset)
    with understanding(dataset):
        described = {q["query"]: q for q in answers.facts["queries"]}
        for row in read(answers, geocode, geocode).to_pylist():
            if query is None or _same(query, row["query"]):
                held = {k: v for k, v in row.items() if k not in ("geocode", "positions", *values)}
                answered = [*zip(*(row[name] for name in values), strict=True)]
                places = row.get("positions") or range(len(answered))
                labels = _labels(described[row["query"]], places)
                yield held, dict(zip(labels, answered, strict=True))


def _known_name(release: ReleaseLayout, query: str) -> str:
    """`detailed` for all attributes of a finalized release joined, else the query itself."""
    if not release.manifest.exists():
        return query
    names = [attribute.name for attribute in read_manifest(release).schema.attributes]
    return "detailed" if _same(query, " * ".join(names)) else query


def _same(asked: str, name: str) -> bool:
    """Whether two texts ask the same, their terms in any order."""
    return sorted(map(str.strip, asked.split("*"))) == sorted(map(str.strip, name.split("*")))


def _why_unmeasured(
    dataset: Place, geolevel: str, geounit: Mapping[str, Any], query: str | None
) -> str:
    if not (dataset / MANIFEST).exists():
        return f"{geolevel} is not measured yet"
    if geounit["only_child"]:
        return f"an only child: its measurement is that of {geounit['parent'] or 'the root'}"
    return f"{query} is not measured at {geolevel}; measured there: {_queries_of(dataset)}"


def _why_not_estimated(dataset: Place, geolevel: str, geocode: str, query: str | None) -> str:
    if not (dataset / MANIFEST).exists():
        return f"no estimates at {geolevel}"
    return (
        f"no estimate of {query} is stored; stored are: {_queries_of(dataset)}; das estimate makes "
        f"any, with --query and --geounit {geocode}"
    )


def _queries_of(dataset: Place) -> str:
    return ", ".join(query["query"] for query in Dataset.open(dataset).facts["queries"])


def _labels(query: Mapping[str, Any], places: Sequence[int]) -> list[str]:
    """Labels of some answers of a query; of an on-demand one, those that were drawn."""
    if "labels" in query:
        return [query["labels"][place] for place in places]
    levels = np.array(np.unravel_index(np.array(places, np.int64), query["shape"])).T
    return [
        " / ".join(name[at] for name, at in zip(query["factor_labels"], level, strict=True))
        for level in levels
    ]


def _find(release: ReleaseLayout, geocode: str) -> tuple[str, dict[str, Any]]:
    for folder in found_under(release.shared / "geography", "level=*"):
        geography = Dataset.open(folder)
        rows = geography.read(geocode, geocode).to_pylist()
        if rows:
            with understanding(folder):
                return str(geography.facts["geolevel"]), rows[0]
    if not (release.shared / "geography").exists():
        raise OutputError(
            str(release.shared), "holds no geography", remedy="use `das run RUN --only measure`"
        )
    raise InputError(str(release.shared), "has no such geounit", got=geocode)


def print_inspection(document: dict[str, Any], *, as_json: bool) -> None:
    """Print an inspection as JSON or as tables."""
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    console = result_console()
    document = printable(document)
    for note in document.pop("notes", []):
        console.print(note)
    tables = {k: v for k, v in document.items() if isinstance(v, list)}
    for key, value in document.items():
        if key not in tables:
            console.print(f"{key}: {value}")
    for name, rows in tables.items():
        if not rows:
            continue
        print_rows(rows[0], ([*map(_short, row.values())] for row in rows), name)


def _short(value: object) -> str:
    if isinstance(value, dict):
        shown = [f"{k}: {_one(v)}" for k, v in list(value.items())[:12]]
        more = f" … {len(value) - 12} more" if len(value) > 12 else ""
        return "\n".join(shown) + more
    return f"{value:,}" if isinstance(value, int) else str(value)


def _one(value: object) -> str:
    """An answer, or an estimate with its interval."""
    if not isinstance(value, dict):
        return str(value)
    return (
        f"{value['estimate']:,.1f} ± {value['standard_error']:,.1f}, "
        f"{value['lower']:,.1f} to {value['upper']:,.1f}"
    )
