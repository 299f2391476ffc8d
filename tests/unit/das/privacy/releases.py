"""The allocations of the 2020 redistricting release, resolved, and tables of the accounting page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

import yaml

from das.privacy.ledger import Chain
from das.privacy.semantics import ChangeCosts, touched_attributes
from das.queries.query import Query, parse_query
from das.schema import Attribute, Recode, Schema
from tests.checkout import ROOT

CONF = ROOT / "conf"
PAGE = ROOT / "docs" / "accounting.md"
PERSONS = Fraction(293764, 114921)
UNITS = Fraction(11417641, 152349649)
RELEASES = {
    "pl94-2020-us": ("pl94", PERSONS),
    "pl94-2020-pr": ("pl94", PERSONS),
    "pl94-units-2020-us": ("housing_units", UNITS),
    "pl94-units-2020-pr": ("housing_units", UNITS),
}


def measured_query(geolevel, chain_end, attributes, cost) -> ChangeCosts:
    """A query that is charged for itself, among neighbors that change a record."""
    cost = Fraction(cost)
    return ChangeCosts(geolevel, chain_end, cost, dict.fromkeys(attributes, cost), cost)


@dataclass(frozen=True)
class Release:
    """An allocation resolved against its schema: (geolevel, query) to exact rho."""

    schema: Schema
    spine: tuple[str, ...]
    shares: dict[str, Fraction]
    queries: dict[tuple[str, str], Query]
    rho: dict[tuple[str, str], Fraction]

    def measured(self) -> list[ChangeCosts]:
        names = [attribute.name for attribute in self.schema.attributes]
        return [
            measured_query(key[0], key[0], touched_attributes(query, names), self.rho[key])
            for key, query in self.queries.items()
        ]


def read_release(name: str) -> Release:
    schema_name, rho = RELEASES[name]
    raw = yaml.safe_load((CONF / "schema" / f"{schema_name}.yaml").read_text())
    attributes = tuple(Attribute(one["name"], tuple(one["levels"])) for one in raw["attributes"])
    recodes = tuple(
        Recode.from_groups(
            one["name"],
            next(a for a in attributes if a.name == one["attribute"]),
            {group: tuple(levels) for group, levels in one["groups"].items()},
        )
        for one in raw.get("recodes", [])
    )
    schema = Schema(raw["name"], attributes, recodes)
    levels = yaml.safe_load((CONF / "allocation" / f"{name}.yaml").read_text())["levels"]
    shares = {level: Fraction(entry["share"]) for level, entry in levels.items()}
    queries, costs = {}, {}
    for level, entry in levels.items():
        for text, share in entry["queries"].items():
            queries[level, text] = parse_query(schema, text)
            costs[level, text] = rho * shares[level] * Fraction(share)
    return Release(schema, tuple(levels), shares, queries, costs)


def page_rows(heading: str) -> list[list[str]]:
    """Cells of the table of docs/accounting.md whose heading row starts with this text."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (start,) = (index for index, line in enumerate(lines) if line.startswith(heading))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def rounded_up(epsilon: float) -> str:
    return f"{math.ceil(epsilon * 10_000) / 10_000:.4f}"


def tilings(
    n_levels: int, chains: Collection[Chain], start: int = 0
) -> Iterator[tuple[Chain, ...]]:
    """Every way to cut a path of geolevels from `start` into the given chains."""
    if start == n_levels:
        yield ()
    for first, last in chains:
        if first == start:
            for rest in tilings(n_levels, chains, last + 1):
                yield ((first, last), *rest)
