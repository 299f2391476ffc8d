"""Explain a configuration: budget, noise and expected error, before any data is touched."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from das.definition import Definition
from das.errors import BudgetError, SchemaError
from das.privacy.ledger import Ledger, number_of_tilings, tilings
from das.privacy.loss_distribution import epsilon_from_losses, unit_shift
from das.schema import Schema
from das.tree.classes import SubtreeClasses
from geography.lattice import Lattice
from jobs.config.product import Product
from jobs.neighborhoods import FROM_DATA, geounits_from_data
from jobs.plan import Plan
from jobs.planning.allocation import Optimized
from jobs.planning.errors import NORMAL_90, parse_tables, predict, prediction_rows
from jobs.planning.ledger import ordinary_ledger, planned_ledger
from jobs.printable import printable, result_console
from jobs.release.manifest import budget_rows, privacy_statement, privacy_statements
from jobs.report.text import TOGETHER
from jobs.storage.account import FailedCheck

_MOST_FORMULAS = 5  # shown
_MOST_PATHS = 64  # whose pairs, 2,080 of them, are compared; seven geolevels have no more


def budget_summary(product: Product, source: str, *, losses: bool = False) -> dict[str, Any]:
    """Resolved budget: one row per geolevel and query, for geounits outside of chains.

    Args:
      product: A product of the run.
      source: Where the list of geounits comes from, as manifests call it.
      losses: Whether to compute epsilon by privacy loss distributions too.

    Raises:
      RuntimeSetupError: `losses`, and the library for it is missing.
    """
    return _summary(product, source, ordinary_ledger(product.plan), losses)


def _summary(product: Product, source: str, ledger: Ledger, losses: bool) -> dict[str, Any]:
    plan = product.plan
    return {
        **({"epsilon_losses": _epsilon_by_losses(plan, ledger)} if losses else {}),
        "name": product.title,
        "configuration_digest": plan.digest,
        "schema": {"name": plan.schema.name, "cells": plan.schema.size},
        "geounits_source": source,
        "leaf": plan.leaf.name,
        "privacy": privacy_statement(plan, source),
        "statements": privacy_statements(plan, ledger, source),
        "invariants": [
            {"query": i.query.name, "geolevels": list(i.geolevels)} for i in plan.invariants
        ],
        "limits": plan.limits.document(plan.schema),
        "formulas": formulas(plan.schema),
        "budget": budget_rows(plan, ledger),
    }


def _epsilon_by_losses(plan: Plan, ledger: Ledger) -> float:
    position = {name: index for index, name in enumerate(ledger.spine)}
    chains = {
        chain: tuple(unit_shift(noisy.query, noisy.mechanism) for noisy in plan.noise(*chain))
        for chain in {(position[e.geolevel], position[e.chain_end]) for e in ledger.entries}
    }
    n_paths = number_of_tilings(len(ledger.spine), chains)
    if n_paths > _MOST_PATHS:
        raise BudgetError(
            "--losses",
            "would compare too many kinds of paths of only children",
            got=n_paths,
            want=f"at most {_MOST_PATHS}",
            remedy="leave --losses out; the epsilon that follows from rho holds for all of them",
        )
    half_paths = [
        tuple(chains[chain] for chain in path) for path in tilings(len(ledger.spine), chains)
    ]
    return epsilon_from_losses(half_paths, plan.budget.delta, plan.budget.neighbors)


def formulas(schema: Schema) -> list[str]:
    """Names and labels that a spreadsheet would compute when it opens a CSV file that holds them.

    >>> from das.schema import Attribute
    >>> formulas(Schema("s", (Attribute("age", ("0-4", "-5", "=1+1", "85+")),)))
    ['-5', '=1+1']
    """
    names = [*(a.name for a in schema.attributes), *(r.name for r in schema.recodes)]
    labels = [
        *(level for attribute in schema.attributes for level in attribute.levels),
        *(group for recode in schema.recodes for group in recode.groups),
    ]
    return [
        text
        for text in dict.fromkeys([*names, *labels])
        if text.lstrip()[:1] in {"=", "+", "-", "@"}
    ]


def plan_summary(
    product: Product,
    source: str,
    lattice: Lattice,
    classes: SubtreeClasses,
    tables: Sequence[str] | None = None,
    *,
    losses: bool = False,
) -> dict[str, Any]:
    """Budget per geolevel, chain and query, and the predicted error of every table.

    Args:
      product: A product of the run.
      source: Where the list of geounits comes from, as manifests call it.
      lattice: All its geounits.
      classes: Its subtree classes.
      tables: Tables whose errors are predicted. Default: those it publishes.
      losses: Whether to compute epsilon by privacy loss distributions too.

    Raises:
      SchemaError: A table is not a query on the schema.
    """
    plan = product.plan
    wanted = parse_tables(plan, product.tables if tables is None else tables)
    try:
        predicted = predict(plan, plan.strategy, classes, wanted)
        errors: dict[str, Any] = {"predicted": prediction_rows(plan, predicted)}
    except SchemaError as error:  # nothing else of a plan depends on the prediction
        errors = {"predicted": [], "not_predicted": str(error)}
    ledger = planned_ledger(plan, lattice)
    summary = _summary(product, source, ledger, losses)
    for row in summary["budget"]:
        row["expected_rmse"] = row["variance"] ** 0.5
        row["half_width_90"] = NORMAL_90 * row["expected_rmse"]
    fanout = {
        name: {
            "geounits": len(lattice.codes[level]),
            "only_children": int(lattice.is_only_child[level].sum()),
            "largest_family": int(lattice.n_children(level).max()),
            "mean_family": float(np.mean(lattice.n_children(level))),
        }
        for level, name in enumerate(lattice.spine.levels)
    }
    return {**summary, "geography": fanout, **errors}


def optimized_summary(plan: Plan, optimized: Optimized, path: Path) -> dict[str, Any]:
    """Shares and predicted errors of an optimized allocation, the errors before in `before`."""
    before = prediction_rows(plan, optimized.before)
    after = prediction_rows(plan, optimized.after)
    return {
        "path": str(path),
        "source": optimized.source,
        "value": optimized.value,
        "bound": optimized.bound,
        "predicted": [{**row, "before": old} for row, old in zip(after, before, strict=True)],
        "shares": [
            {
                "geolevel": level.geolevel,
                "level_share": str(level.share),
                "query": entry.query.name,
                "share": str(entry.share),
            }
            for level in optimized.strategy.levels
            for entry in level.queries
        ],
    }


def print_summary(summary: dict[str, Any], *, as_json: bool) -> None:
    """Print a summary as JSON or as tables."""
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    console = result_console()
    summary = printable(summary)
    privacy, schema = summary["privacy"], summary["schema"]
    console.print(
        Text(summary["name"], "bold"), f" schema {schema['name']}, {schema['cells']:,} cells"
    )
    console.print(_guarantee(privacy))
    if "epsilon_losses" in summary:
        console.print(
            f"epsilon {_up(summary['epsilon_losses'])} by privacy loss distributions, in floating "
            "point and not certified"
        )
    if privacy["neighborhood"]["in_words"]:
        console.print(privacy["neighborhood"]["in_words"])
    _print_statements(console, summary)
    if summary["geounits_source"] == FROM_DATA:
        console.print(f"exact: {geounits_from_data(summary['leaf'])}")
    for invariant in summary["invariants"]:
        console.print(f"exact: {invariant['query']} at {', '.join(invariant['geolevels'])}")
    for limit in summary["limits"]:
        where = ", ".join(limit["geolevels"]) or "every geolevel"
        console.print(f"held: {limit['kind']} {limit['name']} at {where}")
    if summary["formulas"]:
        shown = ", ".join(repr(text) for text in summary["formulas"][:_MOST_FORMULAS])
        more = len(summary["formulas"]) - _MOST_FORMULAS
        console.print(
            "warning: a spreadsheet computes text that begins with = + - or @, and CSV files are "
            f"written as they are: {shown}{f' and {more} more' if more > 0 else ''}"
        )
    _print_geography(console, summary.get("geography", {}))
    _print_budget(console, summary["budget"])
    _print_predicted(console, summary)
    if "optimized" in summary:
        _print_optimized(console, summary["optimized"])
    for line in summary.get("absent", []):
        console.print(f"does not exist yet: {line}")
    console.print(f"configuration {summary['configuration_digest'][:16]}")


def print_account(
    path: Path, account: dict[str, Any], failed: Sequence[FailedCheck], *, as_json: bool
) -> None:
    """Print the grants of an account, what they compose to, and the checks that failed."""
    if as_json:
        document = {**account, "failed_checks": [asdict(one) for one in failed]}
        typer.echo(json.dumps(document, indent=1))
        return
    console = result_console()
    account = printable(account)
    console.print(printable(f"{path}: {len(account['grants'])} grants"))
    table = Table("product", "grant", "budget", box=SIMPLE)
    for row in account["grants"]:
        table.add_row(row["product"], row["grant"], _guarantee(row))
    for total in account["composed"]:
        table.add_row("all together", "", _guarantee(total), style="bold")
    console.print(table)
    if failed:
        console.print(
            f"{len(failed)} checks of the data failed; each told exactly, and unpaid for, that the "
            "data of a geounit break an invariant:"
        )
        shown = Table("product", "geounit", "when", "folder", box=SIMPLE)
        for one in failed:
            shown.add_row(*map(printable, (one.product, one.geounit, one.at, one.folder)))
        console.print(shown)


def _guarantee(privacy: dict[str, Any]) -> str:
    if Definition(privacy["definition"]).is_pure:
        return f"epsilon {privacy['total']} (pure, {privacy['neighbors']} neighbors)"
    return (
        f"rho {privacy['total']} (zCDP, {privacy['neighbors']} neighbors): "
        f"epsilon {_up(privacy['epsilon'])} at delta {privacy['delta']} "
        f"({_up(privacy['epsilon_simple'])} by the simple bound)"
    )


def _print_statements(console: Console, summary: dict[str, Any]) -> None:
    """What a smaller change of a record costs: one attribute, or the place within a geounit."""
    is_pure = Definition(summary["privacy"]["definition"]).is_pure
    columns = ["changing", "epsilon" if is_pure else "rho"]
    columns += [] if is_pure else ["epsilon", "epsilon, simple"]
    limited = any(row["in_words"] for row in summary["statements"])
    table = Table(*columns, *(["limited by what is exact"] if limited else []), box=SIMPLE)
    for row in summary["statements"]:
        changed = {
            "record": "a whole record",
            "attribute": f"{row['name']} only",
            "within": f"the place within a {row['name']}",
        }[row["change"]]
        if row["total"] is None:
            numbers = ["none"] * len(columns[1:])
        else:
            both = [] if is_pure else [_up(row["epsilon"]), _up(row["epsilon_simple"])]
            numbers = [f"{float(Fraction(row['total'])):.6f}", *both]
        table.add_row(changed, *numbers, *([row["in_words"]] if limited else []))
    console.print(table)


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
    columns = ["geolevel", "query", "answers", "level share", "share", "cost", "std. dev."]
    table = Table(*columns, *(["geounits", "90% half width"] if planned else []), box=SIMPLE)
    for row in rows:
        chain = row.get("chain_end", row["geolevel"])
        name = row["geolevel"] if chain == row["geolevel"] else f"{row['geolevel']}..{chain}"
        cells = [
            name,
            row["query"],
            f"{row['answers']:,}",
            row["level_share"],
            row["share"],
            f"{float(Fraction(row['cost'])):.6f}",
            f"{row['variance'] ** 0.5:.4f}",
        ]
        if planned:
            cells += [f"{row['geounits']:,}", f"{row['half_width_90']:.2f}"]
        table.add_row(*cells)
    console.print(table)
    if any(row.get("charged") == "together" for row in rows):
        console.print(TOGETHER)


def _print_predicted(console: Console, summary: dict[str, Any]) -> None:
    if summary.get("not_predicted"):
        console.print(f"no predicted errors: {summary['not_predicted']}")
    rows = summary.get("predicted", [])
    if not rows:
        return
    console.print(
        "Predicted root mean squared error of a linear estimate, in persons, before nonnegativity "
        "and rounding:\nfrom the geounit's own measurements, and from those of the whole tree"
    )
    table = Table("table", "geolevel", box=SIMPLE)
    for heading in ("own", "90% half width", "worst", "full", "90% half width", "worst"):
        table.add_column(heading, justify="right")
    for row in rows:
        numbers = (
            row[kind][key]
            for kind in ("own", "full")
            for key in ("rmse", "half_width_90", "worst_rmse")
        )
        table.add_row(row["table"], row["geolevel"], *(f"{value:.2f}" for value in numbers))
    console.print(table)


def _print_optimized(console: Console, optimized: dict[str, Any]) -> None:
    console.print(
        f"optimized allocation {optimized['path']}: {optimized['source']}\n"
        "Predicted root mean squared errors at the same budget, before and with it:"
    )
    table = Table("table", "geolevel", box=SIMPLE)
    for heading in ("own", "optimized", "full", "optimized"):
        table.add_column(heading, justify="right")
    for row in optimized["predicted"]:
        numbers = (held[kind]["rmse"] for kind in ("own", "full") for held in (row["before"], row))
        table.add_row(row["table"], row["geolevel"], *(f"{value:.2f}" for value in numbers))
    console.print(table)
    shares = Table("geolevel", "share", "query", "share of the geolevel", box=SIMPLE)
    for row in optimized["shares"]:
        shares.add_row(row["geolevel"], row["level_share"], row["query"], row["share"])
    console.print(shares)


def _up(value: float) -> str:
    """Four decimals, rounded up, so that the claim printed is never below the one proved."""
    return f"{math.ceil(value * 1e4) / 1e4:.4f}"
