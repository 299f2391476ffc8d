"""Inspect a run folder: published datasets, and released numbers of a geounit; reads no truth."""

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
    """Return the release folder.

    Args:
      out: A run folder or a release folder.
      solution: A further solution of the run; None for the release itself.
    """
    return received_release(out).root if is_release(out) else release_folder(out, solution)


def _product(root: Place, name: str | None) -> ReleaseLayout:
    """Return the named product, the last of a finalized release, or the only one.

    Raises:
      ConfigError: The product is unknown; or there are several in a release that is not finalized.
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
    """List every published dataset of the release or of a further solution, with rows and bytes.

    Raises:
      OutputError: The folder holds neither a run nor a release.
    """
    remedy = "give the output.directory of a run, or the folder of a release"
    owner = {} if is_release(out) else read_json(out / "run.json", remedy)
    root = _release(out, solution)
    datasets = []
    for path in found_under(root, MANIFEST):
        dataset = Dataset.open(path.parent)
        named = {"dataset": str(names_below(path.parent, out)), "files": len(dataset.parts)}
        datasets.append({**named, "rows": dataset.rows, "bytes": dataset.bytes})
    choices = {"solution": solution, "solutions": ", ".join(solutions_of(out))}
    known = {key: value for key, value in choices.items() if value}
    is_final = (root / "manifest.json").exists()
    return {**owner, "finalized": is_final, **known, "datasets": datasets}


def inspect_geounit(
    out: Place,
    geocode: str,
    query: str | None,
    solution: str | None = None,
    product: str | None = None,
) -> dict[str, Any]:
    """Return noisy measurements, estimates and protected total of one geounit.

    `notes` explains missing numbers.

    Args:
      out: Folder of the run.
      geocode: Geocode at any geolevel.
      query: Only this query, with terms in any order; None: all.
      solution: Name of a further solution; None: the release.
      product: Name of the product; None: the last.

    Raises:
      InputError: The geounit does not exist.
      ConfigError: The product is unknown; or there are several in a release that is not finalized.
    """
    release = _product(_release(out, solution), product)
    geolevel, geounit = _find(release, geocode)
    query = None if query is None else _known_name(release, query)
    dataset, tables = release.measurements(geolevel), EstimateLayout.of(release).tables(geolevel)
    measured = [
        {**facts, "answers": {label: answer for label, (answer,) in answers.items()}}
        for folder in (dataset, release.lazy_measurements(geolevel))
        for facts, answers in _answers(folder, geocode, query, ("answers",), read_listed)
    ]
    estimates = []
    for facts, answers in _answers(tables, geocode, query, _INTERVAL, read_tables):
        by_label = {k: dict(zip(_INTERVAL, values, strict=True)) for k, values in answers.items()}
        facts["confidence"] = Dataset.open(tables).facts["confidence"]
        estimates.append({**facts, "estimates": by_label})
    notes = []
    is_measured = (dataset / MANIFEST).exists()
    if not measured and not is_measured:
        notes.append(f"{geolevel} is not measured yet")
    elif not measured and geounit["only_child"]:
        parent = geounit["parent"] or "the root"
        notes.append(f"an only child: measured with its parent, {parent}")
    elif not measured:
        there = f"measured there: {_queries_of(dataset)}"
        notes.append(f"{query} is not measured at {geolevel}; {there}")
    if not estimates and is_measured and not (tables / MANIFEST).exists():
        notes.append(f"no estimates at {geolevel}")
    elif not estimates and is_measured:
        notes.append(
            f"no estimate of {query} is stored; stored: {_queries_of(tables)}; das estimate "
            f"computes any other, with --query and --geounit {geocode}"
        )
    numbers = {"notes": notes, "measurements": measured, "estimates": estimates}
    document: dict[str, Any] = {"geolevel": geolevel, **geounit, **numbers}
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
    """Yield for each row of a geounit its facts, and the values of its answers by label.

    Args:
      dataset: Dataset of answers or estimates; nothing is yielded if it does not exist.
      geocode: The geounit.
      query: The query; None for all.
      values: Columns with one value per answer. All other columns are facts.
      read: Reads the rows of a dataset between two geocodes.
    """
    if not (dataset / MANIFEST).exists():
        return
    answers = Dataset.open(dataset)
    with understanding(dataset):
        described = {q["query"]: q for q in answers.facts["queries"]}
        for row in read(answers, geocode, geocode).to_pylist():
            if query is None or _same(query, row["query"]):
                skipped = ("geocode", "positions", *values)
                facts = {k: v for k, v in row.items() if k not in skipped}
                answered = [*zip(*(row[name] for name in values), strict=True)]
                indices = row.get("positions") or range(len(answered))
                labels = _labels(described[row["query"]], indices)
                yield facts, dict(zip(labels, answered, strict=True))


def _known_name(release: ReleaseLayout, query: str) -> str:
    """Return `detailed` for a query of all attributes of a finalized release, else the query."""
    if not release.manifest.exists():
        return query
    names = [attribute.name for attribute in read_manifest(release).schema.attributes]
    return "detailed" if _same(query, " * ".join(names)) else query


def _same(query: str, name: str) -> bool:
    """Return whether two texts name one query; the order of terms does not matter."""
    return sorted(map(str.strip, query.split("*"))) == sorted(map(str.strip, name.split("*")))


def _queries_of(dataset: Place) -> str:
    return ", ".join(query["query"] for query in Dataset.open(dataset).facts["queries"])


def _labels(query: Mapping[str, Any], indices: Sequence[int]) -> list[str]:
    """Return the labels of some answers of a query."""
    if "labels" in query:
        return [query["labels"][index] for index in indices]
    levels = np.array(np.unravel_index(np.array(indices, np.int64), query["shape"])).T
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
        if rows:
            print_rows(rows[0], ([*map(_short, row.values())] for row in rows), name)


def _short(value: object) -> str:
    if isinstance(value, dict):
        shown = [f"{k}: {_cell_text(v)}" for k, v in list(value.items())[:12]]
        more = f" … {len(value) - 12} more" if len(value) > 12 else ""
        return "\n".join(shown) + more
    return f"{value:,}" if isinstance(value, int) else str(value)


def _cell_text(value: object) -> str:
    """Format an answer, or an estimate with its interval."""
    if not isinstance(value, dict):
        return str(value)
    return (
        f"{value['estimate']:,.1f} ± {value['standard_error']:,.1f}, "
        f"{value['lower']:,.1f} to {value['upper']:,.1f}"
    )
