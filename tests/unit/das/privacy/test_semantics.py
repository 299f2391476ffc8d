"""Statements about one attribute and within a geolevel: published digits, and worst cases by force."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import LedgerError
from das.privacy.accounting import epsilon_from_rho
from das.privacy.semantics import (
    Change,
    Statement,
    statements,
    touched_attributes,
)
from das.queries.query import Query, marginal
from das.schema import Attribute, Recode, Schema
from tests.unit.das.privacy.releases import (
    RELEASES,
    measured_query,
    page_rows,
    read_release,
    rounded_up,
    tilings,
)

DELTA = Fraction(1, 10**10)

# --- the allocations of the 2020 redistricting release -------------------------------------------


@pytest.mark.parametrize("name", RELEASES)
def test_an_allocation_spends_exactly_the_published_rho(name):
    release = read_release(name)
    assert sum(release.shares.values()) == 1
    assert sum(release.rho.values()) == RELEASES[name][1]
    for level, share in release.shares.items():
        parts = [rho for key, rho in release.rho.items() if key[0] == level]
        assert sum(parts) == share * RELEASES[name][1]
        assert (level, "detailed") in release.rho


@pytest.mark.parametrize("name", ["pl94-units-2020-us", "pl94-units-2020-pr"])
def test_housing_units_are_measured_in_detail_only(name):
    release = read_release(name)
    assert {text for _, text in release.rho} == {"detailed"}
    assert {query.size for query in release.queries.values()} == {2}


@pytest.mark.parametrize(
    ("name", "level", "query", "sigma_sq"),
    [
        ("pl94-2020-us", "nation", "detailed", "19.66"),
        ("pl94-2020-us", "nation", "votingage * hispanic * cenrace", "142.9"),
        ("pl94-2020-us", "state", "total", "1.209"),
        ("pl94-2020-us", "state", "detailed", "19.84"),
        ("pl94-2020-us", "county", "total", "4.702"),
        ("pl94-2020-us", "county", "detailed", "19.49"),
        ("pl94-2020-us", "tract", "total", "6.110"),
        ("pl94-2020-us", "tract", "hispanic * cenrace", "4.953"),
        ("pl94-2020-us", "tract", "detailed", "19.86"),
        ("pl94-2020-us", "block_group", "total", "3.069"),
        ("pl94-2020-us", "block_group", "hispanic * cenrace", "4.960"),
        ("pl94-2020-us", "block_group", "detailed", "4.063"),
        ("pl94-2020-us", "block", "total", "7963"),
        ("pl94-2020-us", "block", "hhgq", "7963"),
        ("pl94-2020-us", "block", "detailed", "10.093"),
        ("pl94-units-2020-us", "nation", "detailed", "2735"),
        ("pl94-units-2020-us", "state", "detailed", "2735"),
        ("pl94-units-2020-us", "county", "detailed", "156.3"),
        ("pl94-units-2020-us", "tract", "detailed", "37.57"),
        ("pl94-units-2020-us", "block_group", "detailed", "31.10"),
        ("pl94-units-2020-us", "block", "detailed", "110.5"),
        # Same denominators as the United States at county and block, other shares of geolevels.
        ("pl94-2020-pr", "block", "detailed", "10.093"),
        ("pl94-units-2020-pr", "block", "detailed", "110.5"),
    ],
)
def test_published_sigma_sq(name, level, query, sigma_sq):
    digits = len(sigma_sq.partition(".")[2])
    assert f"{float(1 / read_release(name).rho[level, query]):.{digits}f}" == sigma_sq


PUBLISHED = {
    "pl94-2020-us": (
        ("17.14",),
        ("7.24", "7.57", "10.04", "10.08"),
        ("2.93", "9.38", "11.70", "13.05", "16.89"),
    ),
    "pl94-2020-pr": (
        ("17.14",),
        ("8.69", "9.49", "11.65", "11.69"),
        ("2.93", "11.18", "13.51", "15.41"),
    ),
    "pl94-units-2020-us": (("2.47",), ("2.47",), ("0.82", "1.81", "2.35", "2.46", "2.47")),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_statements(name):
    """Whole record; each attribute; within each geolevel, finest first."""
    release = read_release(name)
    names = [attribute.name for attribute in release.schema.attributes]
    rows = statements(release.spine, names, release.measured())
    labels = [(Change.RECORD, "")]
    labels += [(Change.ATTRIBUTE, attribute) for attribute in names]
    labels += [(Change.WITHIN, level) for level in reversed(release.spine[:-1])]
    assert [(row.change, row.name) for row in rows] == labels
    printed = tuple(f"{epsilon_from_rho(row.cost, DELTA):.2f}" for row in rows)
    assert printed == tuple(itertools.chain.from_iterable(PUBLISHED[name]))
    assert rows[0].cost == RELEASES[name][1]


def test_statements_in_the_accounting_page():
    release = read_release("pl94-2020-us")
    names = [attribute.name for attribute in release.schema.attributes]
    assert page_rows("| change | name") == [
        [
            row.change,
            row.name,
            f"{float(row.cost):.6f}",
            rounded_up(epsilon_from_rho(row.cost, DELTA)),
        ]
        for row in statements(release.spine, names, release.measured())
    ]


def test_published_statements_of_a_pure_budget():
    """A budget of 17: .2 of it at block groups, .5 at blocks, the rest above in some split.

    Of it .45 touches hhgq and .42 votingage. The four published numbers imply these parts.
    """
    spine = ("nation", "state", "county", "tract", "block_group", "block")
    shares = dict(zip(spine, ("0.1", "0.1", "0.05", "0.05", "0.2", "0.5"), strict=True))
    parts = {"hhgq": ("0.45", {"hhgq"}), "age": ("0.42", {"votingage"}), "total": ("0.13", set())}
    measured = [
        measured_query(level, level, touched, 17 * Fraction(shares[level]) * Fraction(part))
        for level in spine
        for part, touched in parts.values()
    ]
    rows = {(r.change, r.name): r.cost for r in statements(spine, ["hhgq", "votingage"], measured)}
    assert rows[Change.RECORD, ""] == 17
    assert rows[Change.ATTRIBUTE, "hhgq"] == Fraction("7.65")
    assert rows[Change.ATTRIBUTE, "votingage"] == Fraction("7.14")
    assert rows[Change.WITHIN, "tract"] == Fraction("11.9")
    assert rows[Change.WITHIN, "block_group"] == Fraction("8.5")


# --- chains --------------------------------------------------------------------------------------


def test_a_chain_counts_within_only_if_it_begins_below():
    """A tract with one block group: its chain is measured at the tract, with both budgets."""
    cells = ("sex",)
    measured = [
        measured_query("tract", "tract", cells, Fraction(1, 4)),
        measured_query("block_group", "block_group", cells, Fraction(1, 4)),
        measured_query("tract", "block_group", cells, Fraction(1, 2)),
        measured_query("block", "block", cells, Fraction(1, 2)),
    ]
    rows = statements(("tract", "block_group", "block"), [], measured)
    assert rows == (
        Statement(Change.RECORD, "", Fraction(1)),
        Statement(Change.WITHIN, "block_group", Fraction(1, 2)),
        Statement(Change.WITHIN, "tract", Fraction(3, 4)),
    )
    only_chains = [one for one in measured if one.chain_end != "block_group" or one.record > 0.3]
    only_chains.remove(measured[0])
    assert statements(("tract", "block_group", "block"), [], only_chains)[2].cost == Fraction(1, 2)


def test_a_chain_asks_the_queries_of_its_topmost_geolevel():
    """Sex costs more where the chain spends the block's budget on the tract's query of sex."""
    sex, nothing = ("sex",), ()
    measured = [
        measured_query("tract", "tract", sex, Fraction(1, 4)),
        measured_query("block", "block", nothing, Fraction(3, 4)),
    ]
    chain = measured_query("tract", "block", sex, Fraction(1))
    assert statements(("tract", "block"), ["sex"], measured)[1].cost == Fraction(1, 4)
    assert statements(("tract", "block"), ["sex"], [*measured, chain])[1].cost == 1


def test_chains_must_tile_the_spine():
    broken = [measured_query("tract", "tract", (), Fraction(1))]
    with pytest.raises(LedgerError, match="cover no root-to-leaf path"):
        statements(("tract", "block"), [], broken)


def test_all_chains_tile_in_every_composition():
    chains = [(first, last) for first in range(6) for last in range(first, 6)]
    paths = list(tilings(6, chains))
    assert len(paths) == len(set(paths)) == 2**5
    for path in paths:
        assert [level for first, last in path for level in range(first, last + 1)] == list(range(6))


# --- worst cases by force ------------------------------------------------------------------------

SEX, AGE = Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))
SMALL = Schema(
    "small", (SEX, AGE), (Recode.from_groups("adult", AGE, {"no": ("0",), "yes": ("1", "2")}),)
)
SPINE = ("nation", "state", "county", "block")  # a geounit is a beginning of a leaf code
AXES = ((), ("sex",), ("age",), ("adult",), ("sex", "adult"), ("sex", "age"))


@st.composite
def measured_trees(draw):
    """Leaves, and for each measured geounit its chain and queries with exact rho."""
    codes = ["".join(bits) for bits in itertools.product("01", repeat=3)]
    leaves = sorted(draw(st.sets(st.sampled_from(codes), min_size=2, max_size=5)))
    share = st.integers(1, 9).map(Fraction)
    levels = [
        (draw(share), draw(st.dictionaries(st.sampled_from(AXES), share, min_size=1)))
        for _ in SPINE
    ]
    geounits = {leaf[:size] for leaf in leaves for size in range(4)}
    children = {
        unit: {u for u in geounits if len(u) == len(unit) + 1 and u[: len(unit)] == unit}
        for unit in geounits
    }
    out = {}
    for unit in geounits:
        if unit and len(children[unit[:-1]]) == 1:
            continue
        last, below = len(unit), unit
        while len(children[below]) == 1:
            (below,) = children[below]
            last += 1
        budget = sum(share for share, _ in levels[len(unit) : last + 1])
        queries = levels[len(unit)][1]
        whole = sum(queries.values())
        out[unit] = (last, {axes: budget * part / whole for axes, part in queries.items()})
    return leaves, out


def changes(leaves: list[str]) -> Iterator[tuple[Change, str, tuple, tuple]]:
    """Every way to change one record (leaf, cell) that a statement is about."""
    cells = list(itertools.product(range(2), range(3)))
    for old, new in itertools.product(itertools.product(leaves, cells), repeat=2):
        yield Change.RECORD, "", old, new
        if old[0] == new[0]:
            for index, name in enumerate(("sex", "age")):
                if old[1][1 - index] == new[1][1 - index]:
                    yield Change.ATTRIBUTE, name, old, new
        if old[1] == new[1]:
            for size, level in enumerate(SPINE[:-1]):
                if old[0][:size] == new[0][:size]:
                    yield Change.WITHIN, level, old, new


def distance_sq(query: Query, old: int | None, new: int | None) -> int:
    """Squared change of the answers of one geounit that loses a record or gains one or both."""
    moved = np.zeros(query.size, np.int64)
    for cell, sign in ((old, -1), (new, 1)):
        if cell is not None:
            moved[query.rows_of(np.array([cell]))[0]] += sign
    return int((moved**2).sum())


@settings(max_examples=25, deadline=None)
@given(measured_trees())
def test_no_change_costs_more_than_stated(drawn):
    """The exact rho of a change is the sum of distance^2 / (2 sigma^2), with sigma^2 = 1 / rho."""
    leaves, units = drawn
    queries = {axes: marginal(SMALL, axes) for axes in AXES}
    table = {
        (axes, old, new): distance_sq(query, old, new)
        for axes, query in queries.items()
        for old in (None, *range(6))
        for new in (None, *range(6))
    }
    rows = statements(
        SPINE,
        ["sex", "age"],
        [
            measured_query(
                SPINE[first], SPINE[last], touched_attributes(queries[axes], ["sex", "age"]), rho
            )
            for first, last, axes, rho in {
                (len(unit), last, axes, rho)
                for unit, (last, costs) in units.items()
                for axes, rho in costs.items()
            }
        ],
    )
    stated = {(row.change, row.name): row.cost for row in rows}
    worst = dict.fromkeys(stated, Fraction(0))
    for change, name, (old_leaf, old), (new_leaf, new) in changes(leaves):
        cost = Fraction(0)
        for unit, (_, costs) in units.items():
            lost = old[0] * 3 + old[1] if old_leaf.startswith(unit) else None
            gained = new[0] * 3 + new[1] if new_leaf.startswith(unit) else None
            cost += sum(rho * table[axes, lost, gained] for axes, rho in costs.items()) / 2
        worst[change, name] = max(worst[change, name], cost)
    for key in stated:
        assert worst[key] <= stated[key]
    for name in ("sex", "age"):
        assert worst[Change.ATTRIBUTE, name] == stated[
            Change.ATTRIBUTE, name
        ] or _has_unreal_tiling(leaves, units)


def _has_unreal_tiling(leaves, units) -> bool:
    """Whether the chains of different paths combine to a path that does not occur."""
    chains = {(len(unit), last) for unit, (last, _) in units.items()}
    real = {
        tuple(sorted((len(u), last) for u, (last, _) in units.items() if leaf.startswith(u)))
        for leaf in leaves
    }
    return set(tilings(len(SPINE), chains)) != real


@pytest.mark.parametrize(
    ("axes", "touched"),
    [
        ((), ()),
        (("sex",), ("sex",)),
        (("adult",), ("age",)),
        (("adult", "sex"), ("sex", "age")),
        (("sex", "age"), ("sex", "age")),
    ],
)
def test_a_query_touches_all_but_what_it_sums_out(axes, touched):
    assert touched_attributes(marginal(SMALL, axes), ["sex", "age"]) == touched
