"""A contradiction is told by statements of which none can be left out."""

from __future__ import annotations

import itertools

import numpy as np

from invariants.conflict import Statement, smallest_conflict


def statement(name: str, coefficients, least: float, most: float) -> Statement:
    return Statement(name, np.array(coefficients, np.int64), least, most)


TOTAL = statement("total", [1, 1, 1], 5, 5)
NURSING = statement("nursing", [0, 1, 0], 3, np.inf)
MILITARY = statement("military", [0, 0, 1], 3, np.inf)
HOUSEHOLDS = statement("households", [1, 0, 0], 0, 9)


def test_no_conflict():
    assert smallest_conflict([TOTAL, NURSING, HOUSEHOLDS]) == ()
    assert smallest_conflict([]) == ()


def test_what_does_not_matter_is_left_out():
    assert smallest_conflict([HOUSEHOLDS, TOTAL, NURSING, MILITARY]) == (
        "total",
        "nursing",
        "military",
    )


def test_the_conflict_is_irreducible_in_any_order():
    for order in list(itertools.permutations(range(4))):
        every = [TOTAL, NURSING, MILITARY, HOUSEHOLDS]
        found = smallest_conflict([every[i] for i in order])
        assert sorted(found) == ["military", "nursing", "total"]


def test_integers_may_contradict_where_fractions_do_not():
    even = statement("even", [2, 2, 0], 5, 5)
    assert smallest_conflict([even, HOUSEHOLDS]) == ("even",)


def test_a_negative_answer_contradicts_counts():
    assert smallest_conflict([statement("less than nobody", [1, 0, 0], -9, -1)]) == (
        "less than nobody",
    )
