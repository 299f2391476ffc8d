"""Manifest: what was released, under which budget, by which software, with which digests."""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from das.privacy.budget import Budget
from das.privacy.ledger import Ledger
from das.privacy.semantics import statements
from das.queries.sensitivity import Neighbors
from jobs.neighborhoods import PUBLIC_LIST, neighborhood, with_neighborhoods
from jobs.plan import Plan
from jobs.storage.dataset import MANIFEST, Dataset, dataset_digest
from jobs.storage.files import replace_file, write_json
from jobs.storage.layout import ReleaseLayout
from jobs.storage.modes import READABLE

_LIBRARIES = ("numpy", "scipy", "pyarrow", "pyspark", "ortools", "cryptography", "pydantic")
NOT_FOR_RELEASE = "NOT_FOR_RELEASE.txt"


def budget_rows(plan: Plan, ledger: Ledger) -> list[dict[str, Any]]:
    """One row per geolevel, chain and query: exact fractions as text, and floats.

    `charged` says what the cost of a row is: "alone", of this query, or "together", a part of what
    the queries of a planned strategy cost together.
    """
    geounits = {(e.geolevel, e.chain_end, e.query): e.geounits for e in ledger.entries}
    rows = []
    for geolevel, chain_end in dict.fromkeys((e.geolevel, e.chain_end) for e in ledger.entries):
        for noisy in plan.noise(plan.level(geolevel).index, plan.level(chain_end).index):
            rows.append(
                {
                    "geolevel": geolevel,
                    "chain_end": chain_end,
                    "query": noisy.query.name,
                    "share": str(noisy.share),
                    "level_share": str(noisy.level_share),
                    "cost": str(noisy.cost),
                    "charged": "alone" if noisy.sensitivity_sq is None else "together",
                    "mechanism": noisy.mechanism.kind,
                    "parameter": str(noisy.mechanism.parameter),
                    "variance": noisy.mechanism.variance(),
                    "answers": noisy.query.size,
                    "geounits": geounits[geolevel, chain_end, noisy.query.name],
                }
            )
    return rows


def privacy_statement(plan: Plan, geounits_source: str) -> dict[str, Any]:
    """The budget, what it implies, what invariants leave of it, and where noise comes from."""
    return {
        **plan.budget.document(),
        "randomness": plan.randomness,
        "lazy_queries": sorted(plan.lazy),
        "neighborhood": neighborhood(plan, geounits_source),
    }


def privacy_statements(
    plan: Plan, ledger: Ledger, geounits_source: str = PUBLIC_LIST
) -> list[dict[str, Any]]:
    """Cost of changing a whole record, one attribute of it, or its place within a geounit.

    Costs of the ledger are those of the budget's neighbors; these are costs of changed records.
    """
    budget = plan.budget
    chains = dict.fromkeys((entry.geolevel, entry.chain_end) for entry in ledger.entries)
    changed = [plan.change_costs(first, last) for first, last in chains]
    names = [attribute.name for attribute in plan.schema.attributes]
    out = []
    for row in statements(ledger.spine, names, changed):
        if row.cost:
            stated = Budget(row.cost, budget.delta, Neighbors.BOUNDED, budget.definition).document()
        else:
            stated = {"total": "0", "epsilon": 0.0, "epsilon_simple": 0.0}
        kept = {key: stated[key] for key in ("total", "epsilon", "epsilon_simple")}
        out.append({"change": str(row.change), "name": row.name, **kept})
    return with_neighborhoods(out, plan, geounits_source)


@dataclass(frozen=True)
class RunFacts:
    """What a manifest says beyond the plan and the files; public.

    Attributes:
      name: Name of the run.
      account: All grants for the same people; none if the noise was seeded.
      geounits_source: "public list" or "data".
      environment: Cores, Spark, Java; nothing that depends on the truth, such as the time or
        memory that reading took.
      records: What the records are: persons or units.
      solution: The settings that the counts were made with, and those tried before.
      beside: Further keys of the manifest, about the product beside this one.
    """

    name: str
    account: Mapping[str, Any] | None
    geounits_source: str
    environment: Mapping[str, Any]
    records: str = "persons"
    solution: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)


def write_manifest(
    plan: Plan, ledger: Ledger, release: ReleaseLayout, facts: RunFacts
) -> dict[str, Any]:
    """Gather and write the manifest of a finished release.

    Args:
      plan: The plan.
      ledger: The sealed ledger of the run.
      release: The release; all its datasets must be published.
      facts: What only the run knows.

    Returns:
      The document written.

    Raises:
      OutputError: A dataset is incomplete.
    """
    leaf = plan.leaf.name
    microdata = next(iter(_datasets(release.microdata)), None)
    geography = _geography(plan, release)
    document = {
        "format": 2,
        "name": facts.name,
        "not_for_release": plan.not_for_release,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "software": _software(),
        "configuration_digest": plan.digest,
        "schema": {
            "name": plan.schema.name,
            "cells": plan.schema.size,
            "attributes": [
                {"name": a.name, "levels": list(a.levels)} for a in plan.schema.attributes
            ],
        },
        "privacy": privacy_statement(plan, facts.geounits_source),
        "statements": privacy_statements(plan, ledger, facts.geounits_source),
        "account": facts.account,
        "budget": budget_rows(plan, ledger),
        "invariants": [
            {"query": i.query.name, "geolevels": list(i.geolevels)} for i in plan.invariants
        ],
        "limits": plan.limits.document(plan.schema),
        "geography": geography,
        "geounits_source": facts.geounits_source,
        "open_sessions": [
            level
            for level in plan.spine.levels
            if Dataset.open(release.measurements(level)).facts.get("open_session")
        ],
        "solve": [
            {
                "geolevel": level,
                "wall_seconds": solved["seconds"],
                "solve_digest": solved["solve_digest"],
                **solved["statistics"],
            }
            for level in plan.spine.levels
            for solved in [Dataset.open(release.counts(level)).facts]
        ],
        "solution": facts.solution,
        "outputs": [_output(release, path) for path in _all_datasets(release)],
        "files": _files(release),
        "totals": {
            facts.records: Dataset.open(microdata).rows if microdata else None,
            "leaf_geounits": next(g["geounits"] for g in geography if g["geolevel"] == leaf),
        },
        "environment": facts.environment,
        "records": facts.records,
        **facts.beside,
    }
    write_json(release.manifest, document, mode=READABLE)
    if plan.not_for_release:
        replace_file(
            release.root / NOT_FOR_RELEASE,
            "The noise of this release was seeded for a test. It protects nobody.\n",
            mode=READABLE,
        )
    return document


def _geography(plan: Plan, release: ReleaseLayout) -> list[dict[str, Any]]:
    out = []
    for level, digits in zip(plan.spine.levels, plan.spine.digits, strict=True):
        geounits = Dataset.open(release.geography(level)).rows
        answers = Dataset.open(release.measurements(level))
        measured = answers.rows // max(1, len(answers.facts["queries"]))
        out.append(
            {
                "geolevel": level,
                "digits": digits,
                "geounits": geounits,
                "measured": measured,
                "only_children": geounits - measured,
            }
        )
    return out


def _software() -> dict[str, Any]:
    try:
        version = importlib.metadata.version("topdown-das")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    return {
        "name": "topdown-das",
        "version": version,
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
    }


def _datasets(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.rglob(MANIFEST))


def _all_datasets(release: ReleaseLayout) -> list[Path]:
    return _datasets(release.root)


def _files(release: ReleaseLayout) -> list[dict[str, Any]]:
    """Files beside the datasets, with their digests; manifest and report cannot hold their own."""
    beside = (release.ledger, release.planned, release.solves, release.account)
    found = (path for path in beside if path.exists())
    return [
        {
            "path": str(path.relative_to(release.root)),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in found
        if path.is_relative_to(release.root)
    ]


def _output(release: ReleaseLayout, path: Path) -> dict[str, Any]:
    dataset = Dataset.open(path)
    queries = dataset.facts.get("queries", [])
    return {
        "path": str(path.relative_to(release.root)),
        "files": len(dataset.parts),
        "rows": dataset.rows,
        "bytes": dataset.bytes,
        "sha256": dataset_digest(path),
        "columns": dataset_columns(dataset),
        "labelled": [q["query"] for q in queries if isinstance(q, dict) and "labels" in q],
    }


def dataset_columns(dataset: Dataset) -> list[dict[str, str]]:
    """Name and type of every column of a dataset, from its first file.

    Answers to a query have one column each in a CSV table; they count as one, named "query: ...".
    """
    if not dataset.parts:
        return []
    path = dataset.path / dataset.parts[0].file
    if path.suffix == ".parquet":
        schema = pq.read_schema(path)
        return [{"name": field.name, "type": _type_words(field.type)} for field in schema]
    with path.open(newline="", encoding="utf-8") as handle:
        header = next(csv.reader(handle), [])
    queries = [str(query) for query in dataset.facts.get("queries", [])]
    names = dict.fromkeys(
        next((f"{q}: …" for q in queries if column.startswith(f"{q}: ")), column)
        for column in header
    )
    is_table = bool(queries)
    return [
        {"name": name, "type": _WHOLE if is_table and name != "geocode" else _TEXT}
        for name in names
    ]


_TEXT, _WHOLE = "text", "whole number"


def _type_words(kind: pa.DataType) -> str:
    """An Arrow type as a reader of any language calls it."""
    if pa.types.is_dictionary(kind):
        return _type_words(kind.value_type)
    if pa.types.is_list(kind):
        return f"list of {_type_words(kind.value_type)}s"
    if pa.types.is_string(kind):
        return _TEXT
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_floating(kind):
        return "number"
    return "true or false" if pa.types.is_boolean(kind) else "bytes"
