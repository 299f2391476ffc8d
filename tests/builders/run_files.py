"""Run files in short: the keys of persons at the top, and perhaps a section `units` of its own.

So files of format 1 were written, which the program refuses. One product reads shorter so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.values import FORMAT
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.runnable import require_runnable

_SECTIONS = ("schema", "data", "invariants", "solve", "evaluate")
_PARTS = {  # of a product; the rest of these sections is about the whole run
    "privacy": (
        *("rho", "epsilon", "epsilon_from", "protects", "household_size"),
        *("allocation", "on_demand_queries", "product"),
    ),
    "output": ("microdata", "tables", "table_formats", "table_numbers", "intervals", "h1"),
}


def to_products(document: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same run as a file of format 3, its products in a map in the order of work."""
    run = dict(document)
    persons = {key: run.pop(key) for key in _SECTIONS if key in run}
    for section, keys in _PARTS.items():
        if isinstance(run.get(section), dict):
            rest = dict(run[section])
            persons[section] = {key: rest.pop(key) for key in keys if key in rest}
            run[section] = rest
        elif section in run:
            persons[section] = run.pop(section)
    if isinstance(persons.get("invariants"), list):
        persons["invariants"] = [_invariant(entry) for entry in persons["invariants"]]
    units = run.pop("units", None)
    if isinstance(units, dict) and isinstance(units.get("privacy"), dict):
        units = {**units, "privacy": {"product": "units", **units["privacy"]}}
    products = {**({} if units is None else {"units": units}), "persons": persons}
    return {**run, "format": FORMAT, "products": products}


def _invariant(entry: object) -> object:
    """Facilities that the units count; any other entry as it is."""
    if not (isinstance(entry, dict) and "facilities" in entry and entry.get("units") is not None):
        return entry
    rest = {key: value for key, value in entry.items() if key != "units"}
    return {**rest, "exact": {"product": "units", "query": entry["units"]}}


def load_runnable(path: Path) -> Resolved:
    """Load a run file and check, as `das validate` does first, that it could be finished."""
    resolved = load_run(path)
    require_runnable(resolved)
    return resolved
