"""Ties of products: bounds by type against all splits spelled out, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import ConfigError
from das.histograms import Histograms
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from invariants.between import (
    CrossProductConstraint,
    CrossProductConstraints,
    Form,
    build_constraints,
    caps_of,
)
from invariants.exact import Invariant
from invariants.implied import can_be_assigned
from invariants.leaves import add_up

SCHEMA = Schema("persons", (Attribute("role", ("head", "member", "resident")),))
HEADS, HOUSEHOLD, RESIDENTS = (0,), (0, 1), (2,)
VACANT, ONE, MANY_PERSONS, FACILITY = np.eye(4, dtype=np.int64)
LEVELS = ("state", "block")


def form(coefficients: np.ndarray) -> Form:
    return Form({"units": coefficients})


def tie(name: str, cells: tuple[int, ...], least=None, most=None) -> CrossProductConstraint:
    return CrossProductConstraint(name, np.isin(np.arange(SCHEMA.size), cells), least, most)


def equal(name: str, cells: tuple[int, ...], coefficients: np.ndarray) -> CrossProductConstraint:
    same = form(coefficients)
    return tie(name, cells, same, same)


def ties_of(*entries: CrossProductConstraint) -> CrossProductConstraints:
    return build_constraints(entries, LEVELS, np.ones(SCHEMA.size, np.bool_))


def dense(counts: np.ndarray) -> Histograms:
    counts = np.atleast_2d(counts)
    owners, cells = np.nonzero(counts)
    return Histograms.from_entries(
        counts.shape[1], len(counts), owners, cells, counts[owners, cells]
    )


PLAIN = (
    equal("heads", HEADS, ONE + MANY_PERSONS),
    tie("at least their sizes", HOUSEHOLD, least=form(ONE + 2 * MANY_PERSONS)),
    tie("at most their sizes", HOUSEHOLD, most=form(ONE + 3 * MANY_PERSONS)),
    tie("in facilities", RESIDENTS, least=form(FACILITY)),
)
TWO_LOWER = (
    tie("one way", HOUSEHOLD, least=form(ONE + MANY_PERSONS)),
    tie("another", HOUSEHOLD, least=form(2 * ONE)),
    tie("none where none", HOUSEHOLD, most=form(3 * ONE + 2 * MANY_PERSONS)),
)


EVERY = np.array([*itertools.product(range(4), range(4), range(3))])  # counts of a leaf


def kept(entries: tuple[CrossProductConstraint, ...], units: np.ndarray) -> np.ndarray:
    """Which of EVERY keep the ties in a leaf with these units."""
    others = {"units": dense(np.tile(units, (len(EVERY), 1)))}
    return ~np.any([one.broken(dense(EVERY), others) for one in entries], axis=0)


@pytest.mark.parametrize("entries", [PLAIN, TWO_LOWER], ids=["plain", "two lower bounds"])
def test_counts_can_be_assigned_iff_some_split_keeps_the_ties(entries) -> None:
    ties, rng = ties_of(*entries), np.random.default_rng(3)
    seen = {True: 0, False: 0}
    for _ in range(8):
        units = rng.integers(0, 2, (2, 4))
        leaves = add_up(ties.boxes({"units": dense(units)}, 2), np.zeros(2, np.int64), 1).of(0)
        one, other = (EVERY[kept(entries, own)] for own in units)
        sums = {tuple(both) for both in (one[:, None] + other[None]).reshape(-1, 3).tolist()}
        for counts in EVERY:
            by_type = np.bincount(ties.query.codes, counts, ties.query.size).astype(np.int64)
            possible = tuple(counts.tolist()) in sums
            assert can_be_assigned(leaves, by_type) == possible, (counts, units)
            seen[possible] += 1
    assert min(seen.values()) > 20


def test_exact_totals_can_be_kept_iff_the_caps_are() -> None:
    """Caps of the total on the units, against all persons of a leaf."""
    ties, total = ties_of(*PLAIN), parse_query(SCHEMA, "total")
    caps = [*caps_of(None, ties, [Invariant(total, ("state",))], ["units"])]
    assert [(name, at) for name, _, at, _ in caps] == [("units", ("state",))]
    ((_, coefficients, _, cap),) = caps
    assert cap.is_most
    seen = {True: 0, False: 0}
    for units in itertools.product(range(2), repeat=4):
        totals = {*EVERY[kept(PLAIN, np.array(units))].sum(1).tolist()}
        for persons in range(3):  # in EVERY are all counts of so few
            assert (persons in totals) == (coefficients @ units <= persons), (units, persons)
            seen[persons in totals] += 1
    assert min(seen.values()) > 10


def test_a_total_that_is_bounded_from_above_needs_units() -> None:
    bounded = (*PLAIN, tie("few in facilities", RESIDENTS, most=form(4 * FACILITY)))
    caps = [*caps_of(None, ties_of(*bounded), [total_of("total")], ["units"])]
    assert [cap.is_most for *_, cap in caps] == [True, False]
    assert caps[1][1].tolist() == [0, 1, 3, 4]


def test_answers_that_tell_types_apart_are_added_up() -> None:
    caps = [*caps_of(None, ties_of(*PLAIN[1:]), [total_of("role")], ["units"])]
    assert sorted(cap.answers for *_, cap in caps) == [(0, 1), (0, 1), (2,)]


def total_of(name: str) -> Invariant:
    return Invariant(parse_query(SCHEMA, name), LEVELS)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            (tie("a", (0, 1), least=form(ONE)), tie("b", (1, 2), least=form(ONE))),
            "neither lies within the other",
        ),
        (
            (tie("a", (0,), least=form(ONE)), tie("b", (0, 1), least=form(ONE))),
            "only equalities may",
        ),
        (
            (tie("a", (0,), least=form(2 * ONE)), tie("b", (0,), most=form(ONE))),
            "may have a lower bound above the upper one",
        ),
        (
            (equal("a", (0,), 2 * ONE), tie("b", (0, 1), most=form(ONE))),
            "may leave a negative upper bound",
        ),
        (
            (equal("a", (0,), ONE), equal("b", (1,), ONE), tie("c", (0, 1), least=form(ONE))),
            "follows from those within it",
        ),
    ],
)
def test_ties_that_might_contradict_each_other_are_refused(entries, said) -> None:
    with pytest.raises(ConfigError, match=said):
        ties_of(*entries)


def test_cells_in_which_nobody_may_be_are_no_type() -> None:
    possible = np.array([True, True, False])
    with pytest.raises(ConfigError, match="counts no possible cell"):
        build_constraints([tie("a", (2,), least=form(ONE))], LEVELS, possible)


def test_two_bounds_of_which_either_may_bind_do_not_go_with_exact_totals() -> None:
    with pytest.raises(ConfigError, match="several lower or several upper bounds"):
        list(caps_of(None, ties_of(*TWO_LOWER), [total_of("total")], ["units"]))


def test_exact_queries_may_not_cross_the_types() -> None:
    schema = Schema("two", (Attribute("a", ("x", "y")), Attribute("b", ("x", "y"))))
    diagonal = CrossProductConstraint(
        "diagonal", np.array([True, False, False, True]), form(ONE), None
    )
    ties = build_constraints([diagonal], LEVELS, np.ones(4, np.bool_))
    invariant = Invariant(parse_query(schema, "a"), LEVELS)
    with pytest.raises(ConfigError, match="crosses"):
        list(caps_of(None, ties, [invariant], ["units"]))
