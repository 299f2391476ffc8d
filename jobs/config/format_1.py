"""Run files of format 1, which hold the keys of persons at the top and may have a section `units`.

They mean what the same keys mean under `products` in format 2. Read for one release more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PERSONS, UNITS = "persons", "units"
NOTICE = (
    "format 1 is not read by the next release; write `format: 2`, put schema, data, invariants, "
    "solve, what privacy says of rho, epsilon, allocation, lazy_queries and product, and what "
    "output says of microdata, tables and h1 under `products: {persons: ...}`, the section units "
    "under `products: {units: ...}` before it, with `privacy.product: units` if it names none, and "
    "write `exact: {product: units, query: QUERY}` "
    "for `units: QUERY` of facilities (docs/configuration.md); the folder of the run stays valid"
)
_SECTIONS = ("schema", "data", "invariants", "solve", "evaluate")
_PARTS = {  # of a product; the rest of these sections is about the whole run
    "privacy": ("rho", "epsilon", "epsilon_from", "allocation", "lazy_queries", "product"),
    "output": ("microdata", "tables", "table_formats", "h1"),
}


def to_products(document: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same run with its products in a map, in the order of work.

    Takes any map, and leaves what is no run file to those who check the result.
    """
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
    units = run.pop(UNITS, None)
    if isinstance(units, dict) and isinstance(units.get("privacy"), dict):
        units = {**units, "privacy": {"product": UNITS, **units["privacy"]}}
    products = {**({} if units is None else {UNITS: units}), PERSONS: persons}
    return {**run, "format": 2, "products": products}


def _invariant(entry: object) -> object:
    """Facilities that the units count; any other entry as it is."""
    if not (isinstance(entry, dict) and "facilities" in entry and entry.get(UNITS) is not None):
        return entry
    rest = {key: value for key, value in entry.items() if key != UNITS}
    return {**rest, "exact": {"product": UNITS, "query": entry[UNITS]}}


def written_keys(keys: Sequence[str]) -> list[str]:
    """Where a value of the map of products stands in a file of format 1.

    >>> written_keys(["products", "persons", "privacy", "rho"])
    ['privacy', 'rho']
    >>> written_keys(["products", "units", "schema"])
    ['units', 'schema']
    """
    written = list(keys)
    if written[:1] == ["products"]:
        written = written[2:] if written[1:2] == [PERSONS] else written[1:]
    if "exact" in written:
        written = [*written[: written.index("exact")], UNITS]
    return written


def keys_of(product: str) -> str:
    """What stands before the keys of a product."""
    return "" if product == PERSONS else f"{product}."
