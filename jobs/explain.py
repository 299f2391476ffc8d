"""Explain a configuration: budget, noise and expected error, before any data is touched."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from geography.lattice import Lattice
from jobs.config.load import Resolved
from jobs.manifest import budget_rows, privacy_statement
from jobs.plan import planned_ledger
from jobs.progress import result_console


def budget_summary(resolved: Resolved) -> dict[str, Any]:
    """Resolved budget: one row per geolevel and query, for geounits outside of chains."""
    plan = resolved.plan
    rows = []
    for level, geolevel in enumerate(plan.spine.levels):
        for noisy in plan.noise(level, level):
            rows.append(
                {
                    "geolevel": geolevel,
                    "query": noisy.query.name,
                    "answers": noisy.query.size,
                    "level_share": str(noisy.level_share),
                    "share": str(noisy.share),
                    "rho": float(noisy.rho),
                    "sigma_sq": str(noisy.sigma_sq),
                    "sigma": float(noisy.sigma_sq) ** 0.5,
                }
            )
    return {
        "name": resolved.config.name,
        "configuration_digest": plan.digest,
        "schema": {"name": plan.schema.name, "cells": plan.schema.size},
        "privacy": privacy_statement(plan),
        "invariants": [
            {"query": i.query.name, "geolevels": list(i.geolevels)} for i in plan.invariants
        ],
        "budget": rows,
    }


def plan_summary(resolved: Resolved, lattice: Lattice) -> dict[str, Any]:
    """Budget per geolevel, chain and query with geounits and expected error of a raw answer."""
    plan = resolved.plan
    ledger = planned_ledger(plan, lattice)
    rows = budget_rows(plan, ledger)
    for row in rows:
        row["expected_rmse"] = row["variance"] ** 0.5
        row["half_width_90"] = 1.6448536269514722 * row["expected_rmse"]
    fanout = {
        name: {
            "geounits": len(lattice.codes[level]),
            "only_children": int(lattice.is_only_child[level].sum()),
            "largest_family": int(lattice.n_children(level).max()),
            "mean_family": float(np.mean(lattice.n_children(level))),
        }
        for level, name in enumerate(lattice.spine.levels)
    }
    summary = budget_summary(resolved)
    return {**summary, "geography": fanout, "budget": rows}


def print_summary(summary: dict[str, Any], *, as_json: bool) -> None:
    """Print a summary as JSON or as tables."""
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    console = result_console()
    privacy = summary["privacy"]
    console.print(
        f"[bold]{summary['name']}[/]  schema {summary['schema']['name']}, "
        f"{summary['schema']['cells']:,} cells"
    )
    console.print(
        f"rho {privacy['rho']} (zCDP, {privacy['neighbors']} neighbors): "
        f"epsilon {_up(privacy['epsilon'])} at delta {privacy['delta']} "
        f"({_up(privacy['epsilon_simple'])} by the simple bound)"
    )
    for invariant in summary["invariants"]:
        console.print(f"exact: {invariant['query']} at {', '.join(invariant['geolevels'])}")
    _print_geography(console, summary.get("geography", {}))
    _print_budget(console, summary["budget"])
    console.print(f"configuration {summary['configuration_digest'][:16]}")


def _print_geography(console: Console, geography: dict[str, Any]) -> None:
    if not geography:
        return
    table = Table(
        "geolevel", "geounits", "only children", "largest family", "mean family", box=SIMPLE
    )
    for name, row in geography.items():
        table.add_row(
            name,
            f"{row['geounits']:,}",
            f"{row['only_children']:,}",
            f"{row['largest_family']:,}",
            f"{row['mean_family']:.1f}",
        )
    console.print(table)


def _print_budget(console: Console, rows: list[dict[str, Any]]) -> None:
    planned = bool(rows) and "expected_rmse" in rows[0]
    columns = ["geolevel", "query", "answers", "level share", "share", "rho", "sigma"]
    table = Table(*columns, *(["geounits", "90% half width"] if planned else []), box=SIMPLE)
    for row in rows:
        chain = row.get("chain_end", row["geolevel"])
        name = row["geolevel"] if chain == row["geolevel"] else f"{row['geolevel']}..{chain}"
        rho = row["rho"] if isinstance(row["rho"], float) else _ratio(row["rho"])
        cells = [
            name,
            row["query"],
            f"{row['answers']:,}",
            row["level_share"],
            row["share"],
            f"{rho:.6f}",
            f"{row['sigma']:.4f}",
        ]
        if planned:
            cells += [f"{row['geounits']:,}", f"{row['half_width_90']:.2f}"]
        table.add_row(*cells)
    console.print(table)


def _up(value: float) -> str:
    """Four decimals, rounded up, so that the claim printed is never below the one proved."""
    return f"{math.ceil(value * 1e4) / 1e4:.4f}"


def _ratio(text: str) -> float:
    return float(Fraction(text))
