"""Manifest: what was released, under which budget, by which software, with which digests."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import OutputError
from das.mechanisms.moments import variance
from das.privacy.ledger import Ledger
from jobs.dataset import MANIFEST, read_manifest
from jobs.layout import ReleaseLayout
from jobs.plan import Plan

_LIBRARIES = ("numpy", "scipy", "pyarrow", "pyspark", "ortools", "cryptography", "pydantic")
NOT_FOR_RELEASE = "NOT_FOR_RELEASE.txt"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON so that the file is either the old one or the new one, whole.

    Raises:
      OutputError: The folder cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON map.

    Raises:
      OutputError: It is missing or damaged.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputError(str(path), "is missing", remedy=remedy) from None
    except (OSError, ValueError) as error:
        raise OutputError(str(path), "cannot be read", got=error) from None
    if not isinstance(document, dict):
        raise OutputError(str(path), "is damaged", got=type(document).__name__)
    return document


def budget_rows(plan: Plan, ledger: Ledger) -> list[dict[str, Any]]:
    """One row per geolevel, chain and query: exact fractions as text, and floats."""
    names = plan.spine.levels
    geounits = {(e.geolevel, e.chain_end, e.query): e.geounits for e in ledger.entries}
    rows = []
    for geolevel, chain_end in dict.fromkeys((e.geolevel, e.chain_end) for e in ledger.entries):
        for noisy in plan.noise(names.index(geolevel), names.index(chain_end)):
            rows.append(
                {
                    "geolevel": geolevel,
                    "chain_end": chain_end,
                    "query": noisy.query.name,
                    "share": str(noisy.share),
                    "level_share": str(noisy.level_share),
                    "rho": str(noisy.rho),
                    "sigma_sq": str(noisy.sigma_sq),
                    "sigma": float(noisy.sigma_sq) ** 0.5,
                    "variance": variance(sigma_sq=noisy.sigma_sq),
                    "answers": noisy.query.size,
                    "geounits": geounits[geolevel, chain_end, noisy.query.name],
                }
            )
    return rows


def privacy_statement(plan: Plan) -> dict[str, Any]:
    """Budget and semantics."""
    budget = plan.budget
    return {
        "rho": str(budget.rho),
        "delta": str(budget.delta),
        "epsilon": budget.epsilon,
        "epsilon_simple": budget.epsilon_simple,
        "neighbors": str(budget.neighbors),
        "randomness": "seeded_not_for_release" if plan.not_for_release else "operating_system",
    }


def write_manifest(
    name: str,
    plan: Plan,
    ledger: Ledger,
    release: ReleaseLayout,
    *,
    geounits_source: str,
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """Gather and write the manifest of a finished release.

    Args:
      name: Name of the run.
      plan: The plan.
      ledger: The sealed ledger.
      release: The release; all its datasets must be published.
      geounits_source: "public list" or "data".
      environment: Cores, Spark, Java; nothing that depends on the truth, such as the time or
        memory that reading took.

    Returns:
      The document written.

    Raises:
      LedgerError: Spent differs from granted.
      OutputError: A dataset is incomplete.
    """
    ledger.seal(plan.budget)
    leaf = plan.spine.levels[-1]
    microdata = next(iter(_datasets(release.microdata)), None)
    geography = _geography(plan, release)
    document = {
        "format": 1,
        "name": name,
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
        "privacy": privacy_statement(plan),
        "budget": budget_rows(plan, ledger),
        "invariants": [
            {"query": i.query.name, "geolevels": list(i.geolevels)} for i in plan.invariants
        ],
        "geography": geography,
        "geounits_source": geounits_source,
        "solve": [
            {
                "geolevel": level,
                "wall_seconds": facts["seconds"],
                **facts["statistics"],
            }
            for level in plan.spine.levels
            for facts in [read_manifest(release.counts(level))[1]]
        ],
        "outputs": [_output(release, path) for path in _all_datasets(release)],
        "totals": {
            "persons": sum(p.rows for p in read_manifest(microdata)[0]) if microdata else None,
            "leaf_geounits": next(g["geounits"] for g in geography if g["geolevel"] == leaf),
        },
        "environment": dict(environment),
    }
    write_json(release.manifest, document)
    if plan.not_for_release:
        (release.root / NOT_FOR_RELEASE).write_text(
            "The noise of this release was seeded for a test. It protects nobody.\n",
            encoding="utf-8",
        )
    return document


def _geography(plan: Plan, release: ReleaseLayout) -> list[dict[str, Any]]:
    out = []
    for level, digits in zip(plan.spine.levels, plan.spine.digits, strict=True):
        geounits = sum(p.rows for p in read_manifest(release.geography(level))[0])
        parts, facts = read_manifest(release.measurements(level))
        measured = sum(p.rows for p in parts) // max(1, len(facts["queries"]))
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


def _output(release: ReleaseLayout, dataset: Path) -> dict[str, Any]:
    parts, _ = read_manifest(dataset)
    return {
        "path": str(dataset.relative_to(release.root)),
        "files": len(parts),
        "rows": sum(part.rows for part in parts),
        "bytes": sum(part.bytes for part in parts),
        "sha256": hashlib.sha256((dataset / MANIFEST).read_bytes()).hexdigest(),
    }


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """The ledger as JSON values, fractions as text."""
    return {
        "spine": list(ledger.spine),
        "entries": [
            {**vars(e), "sigma_sq": str(e.sigma_sq), "rho": str(e.rho)} for e in ledger.entries
        ],
    }


def ledger_from_document(document: Mapping[str, Any]) -> Ledger:
    """Read back what `ledger_document` wrote."""
    from das.privacy.ledger import LedgerEntry

    return Ledger(
        tuple(document["spine"]),
        tuple(
            LedgerEntry(**{**e, "sigma_sq": Fraction(e["sigma_sq"]), "rho": Fraction(e["rho"])})
            for e in document["entries"]
        ),
    )
