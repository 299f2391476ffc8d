"""Parity: Definition 11 by hand, sparse sums against dense ones, exact merging, floors."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import SchemaError
from das.metrics.parity import (
    Areas,
    Differences,
    Restriction,
    expected_absolute,
    merge_groups,
    parity_of,
)
from das.queries.query import parse_query
from das.schema import Attribute, Recode, Schema
from tests.builders.histograms import from_dense

FIELDS = ("answers", "truth", "released", "absolute", "squared", "largest")
STRATA = Schema("strata", (Attribute("g", ("a", "b", "c")), Attribute("f", ("x", "y"))))
# Two geounits, three strata, a table of two rows.
TRUTH = np.array([[10, 5, 2, 0, 0, 0], [20, 15, 1, 1, 0, 0]])
RELEASED = np.array([[11, 5, 0, 1, 1, 0], [17, 16, 1, 0, 0, 0]])

AGE = Attribute("age", ("0", "1", "2", "3"))
WIDE = Schema(
    "wide",
    (Attribute("sex", ("f", "m")), AGE, Attribute("race", ("r", "s", "t"))),
    (
        Recode("adult", "age", ("minor", "adult"), (0, 0, 1, 1)),
        Recode("school", "age", ("before", "at", "after"), (0, 1, 1, 2)),
        Recode("odd", "age", ("even", "odd"), (0, 1, 0, 1)),
    ),
)
QUERIES = (
    "total",
    "sex",
    "age",
    "adult",
    "school",
    "odd",
    "sex * race",
    "adult * race",
    "detailed",
)


def differences(truth: np.ndarray, released: np.ndarray) -> Differences:
    return Differences.between(from_dense(truth), from_dense(released))


def restriction(schema: Schema, groups: str, table: str) -> Restriction:
    return Restriction(parse_query(schema, groups), parse_query(schema, table))


def same(one, other) -> bool:
    return all([*getattr(one, name)] == [*getattr(other, name)] for name in FIELDS)


def test_definition_eleven_by_hand_on_three_strata():
    found = differences(TRUTH, RELEASED)
    errors = found.by_group(restriction(STRATA, "g", "f"))
    assert errors.truth.tolist() == [50, 4, 0]
    assert errors.released.tolist() == [49, 2, 1]
    assert errors.absolute.tolist() == [5, 4, 1]
    assert errors.squared == (11, 6, 1)
    assert errors.largest.tolist() == [3, 2, 1]
    assert errors.answers.tolist() == [4, 4, 4]
    everybody = found.by_group(restriction(STRATA, "total", "f"))
    # x: 12 -> 12 and 21 -> 18; y: 5 -> 6 and 16 -> 16.
    assert everybody.absolute.tolist() == [4]
    parity = parity_of(errors.absolute, errors.truth, 4)
    assert parity.n_groups == 2
    assert parity.relative[:2].tolist() == [0.1, 1.0]
    assert math.isnan(parity.relative[2])
    assert parity.population == pytest.approx(4 / 54)
    assert parity.error == pytest.approx(1.1 + 4 / 54 / 2)
    assert parity.mean == pytest.approx(parity.error / 2)
    assert parity.worst == 1


def test_squares_of_large_errors_do_not_overflow():
    found = differences(np.full((2, 6), 3 * 10**9), np.zeros((2, 6), np.int64))
    errors = found.by_group(restriction(STRATA, "g", "f"))
    assert errors.squared == (4 * 9 * 10**18,) * 3
    assert merge_groups(errors, errors).squared == (8 * 9 * 10**18,) * 3


def cells(n_geounits: int):
    count = st.integers(0, 9) | st.just(0)
    return st.lists(count, min_size=n_geounits * WIDE.size, max_size=n_geounits * WIDE.size).map(
        lambda flat: np.array(flat, np.int64).reshape(n_geounits, WIDE.size)
    )


def dense(asked: Restriction, truth: np.ndarray, released: np.ndarray):
    """Every answer of the table in every group, cell by cell."""
    every = np.arange(WIDE.size)
    group, row = asked.groups.rows_of(every), asked.table.rows_of(every)
    out = {name: np.zeros(asked.groups.size, np.int64) for name in FIELDS}
    for g in range(asked.groups.size):
        for r in set(row[group == g].tolist()):
            inside = (group == g) & (row == r)
            true, shown = truth[:, inside].sum(1), released[:, inside].sum(1)
            error = shown - true
            out["answers"][g] += len(truth)
            out["truth"][g] += true.sum()
            out["released"][g] += shown.sum()
            out["absolute"][g] += np.abs(error).sum()
            out["squared"][g] += (error**2).sum()
            out["largest"][g] = max(out["largest"][g], np.abs(error).max(initial=0))
    return out


@given(
    truth=cells(3),
    released=cells(3),
    groups=st.sampled_from(QUERIES),
    table=st.sampled_from(QUERIES),
)
def test_sparse_sums_are_the_dense_ones(truth, released, groups, table):
    asked = restriction(WIDE, groups, table)
    found = differences(truth, released).by_group(asked)
    for name, values in dense(asked, truth, released).items():
        assert [*getattr(found, name)] == [*values], name
    parts = [differences(truth[i : i + 1], released[i : i + 1]) for i in range(3)]
    merged = reduce(merge_groups, (part.by_group(asked) for part in reversed(parts)))
    assert same(merged, found)


@given(truth=cells(4), released=cells(4), table=st.sampled_from(QUERIES))
def test_a_type_of_geounits_is_compared_as_these_geounits_alone(truth, released, table):
    kinds = np.array([1, 0, 1, 2])
    areas = Areas(("city", "town", "land", "sea"), kinds)
    query = parse_query(WIDE, table)
    found = differences(truth, released).by_area(query, areas)
    for kind in range(4):
        own = differences(truth[kinds == kind], released[kinds == kind])
        alone = own.by_group(Restriction(parse_query(WIDE, "total"), query))
        for name in FIELDS:
            assert getattr(found, name)[kind] == getattr(alone, name)[0], (kind, name)
    halves = [
        differences(truth[i], released[i]).by_area(query, areas.slice(i.start, i.stop))
        for i in (slice(0, 1), slice(1, 4))
    ]
    assert same(merge_groups(*halves), found)


def test_recodes_of_one_attribute_meet_without_empty_answers():
    asked = restriction(WIDE, "adult * sex", "school")
    assert asked.rows.tolist() == [2, 2, 2, 2]
    assert asked.joint.size == 8
    assert restriction(WIDE, "adult", "odd").joint.labels() == [
        *("minor & even", "minor & odd", "adult & even", "adult & odd")
    ]
    assert restriction(WIDE, "age", "adult").rows.tolist() == [1, 1, 1, 1]
    assert not restriction(WIDE, "age", "adult").is_finer
    assert restriction(WIDE, "adult", "age").is_finer


@pytest.mark.parametrize(("groups", "table"), [("prefix(age)", "sex"), ("sex", "prefix(age)")])
def test_groups_and_tables_count_everybody_once(groups, table):
    with pytest.raises(SchemaError, match="prefix\\(age\\): is not a partition"):
        _ = restriction(WIDE, groups, table).joint


def test_groups_below_the_floor_have_no_relative_error():
    parity = parity_of(np.array([5, 4, 1]), np.array([50, 4, 0]), 4, floor=5)
    assert parity.n_groups == 1
    assert parity.worst == 0
    assert np.isnan(parity.relative).tolist() == [False, True, True]


def test_nobody_has_no_parity():
    parity = parity_of(np.zeros(2), np.zeros(2, np.int64), 0)
    assert parity.n_groups == 0
    assert parity.worst is None
    assert math.isnan(parity.error)
    assert math.isnan(parity.mean)


def test_an_exact_release_has_no_parity_error():
    errors = differences(TRUTH, TRUTH).by_group(restriction(STRATA, "g", "f"))
    assert errors.truth.tolist() == [50, 4, 0]
    assert parity_of(errors.absolute, errors.truth, 0).error == 0.0


def test_a_floor_of_nobody_is_refused():
    with pytest.raises(SchemaError, match="parity error: has too small a floor"):
        parity_of(np.zeros(1), np.ones(1, np.int64), 0, floor=0)


def test_geounits_must_fit():
    with pytest.raises(SchemaError, match="different geounits"):
        differences(TRUTH, RELEASED[:1])
    with pytest.raises(SchemaError, match="one type per geounit"):
        differences(TRUTH, RELEASED).by_area(
            parse_query(STRATA, "f"), Areas(("a",), np.zeros(3, int))
        )


def test_expected_errors_are_what_normal_errors_come_to():
    rng = np.random.default_rng(3)
    spread = rng.uniform(1, 9, 40)
    errors = np.abs(rng.normal(0, spread, (4000, 40)))
    # The mean of 160,000 |error| has a standard error of 0.2 % of it; five of them.
    assert expected_absolute(spread).sum() == pytest.approx(errors.sum(1).mean(), rel=0.01)
