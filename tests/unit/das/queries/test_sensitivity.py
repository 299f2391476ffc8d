"""Sensitivities known by hand, also where they do not fit in 64 bits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from das.queries.factor import Factor, prefix, residual
from das.queries.query import Query, parse_query
from das.queries.sensitivity import Neighbors, l1_sensitivity, l2_sensitivity_sq
from das.schema import Attribute, Schema

SEX = Attribute("sex", ("f", "m"))
AGE = Attribute("age", ("0", "1", "2", "3", "4"))
SCHEMA = Schema("s", (SEX, AGE))


def product(*matrices) -> Query:
    factors = (Factor(np.array(matrix), ("row",) * len(matrix)) for matrix in matrices)
    return Query("q", tuple(factors))


@pytest.mark.parametrize(
    ("text", "l2_unbounded", "l2_bounded", "l1_unbounded"),
    [
        ("total", 1, 2, 1),
        ("detailed", 1, 2, 1),
        ("prefix(age)", 5, 10, 5),
        ("prefix(age) * sex", 5, 10, 5),
        ("ranges(age)", 9, 18, 9),  # the middle level lies in 3 * 3 intervals
        ("residual(age)", 5 * 4, 2 * 5**2, 2 * 4),  # n (n - 1), 2 n^2, 2 (n - 1)
        ("contrasts(age)", 4, 8, 4),  # 4 + 1 + 2 = 7 within, 4 + 4 across
        ("contrasts(sex)", 1, 4, 1),
        ("residual(sex) * residual(age)", 2 * 20, 8 * 20, 2 * 8),  # changing sex alone
        ("contrasts(sex) * prefix(age)", 5, 20, 5),
    ],
)
def test_known_sensitivities(text, l2_unbounded, l2_bounded, l1_unbounded):
    query = parse_query(SCHEMA, text)
    assert l2_sensitivity_sq(query, Neighbors.UNBOUNDED) == l2_unbounded
    assert l2_sensitivity_sq(query, Neighbors.BOUNDED) == l2_bounded
    assert l1_sensitivity(query, Neighbors.UNBOUNDED) == l1_unbounded
    assert l1_sensitivity(query, Neighbors.BOUNDED) == 2 * l1_unbounded


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (7, 4, 4), (40, 61)])
def test_residuals_cost_what_residual_planner_says(sizes):
    """prod n (n - 1) unbounded; bounded, records that differ where n is least."""
    levels = [tuple(map(str, range(n))) for n in sizes]
    query = Query("q", tuple(residual(names) for names in levels))
    unbounded = math.prod(n * (n - 1) for n in sizes)
    assert l2_sensitivity_sq(query, Neighbors.UNBOUNDED) == unbounded
    least = min(sizes)
    assert l2_sensitivity_sq(query, Neighbors.BOUNDED) == 2 * unbounded * least // (least - 1)


@pytest.mark.parametrize("size", [2**26, 2**31, 2**62, 2**63 - 1])
def test_entries_of_any_size_are_exact(size):
    query = product([[size, -size], [1, 0], [0, 3]], [[size - 1, 2]])
    first, second = size**2 + 9, (size - 1) ** 2
    assert l2_sensitivity_sq(query, Neighbors.UNBOUNDED) == first * second
    within = (2 * size) ** 2 + 1 + 9
    assert l2_sensitivity_sq(query, Neighbors.BOUNDED) == within * second
    assert l1_sensitivity(query, Neighbors.UNBOUNDED) == (size + 3) * (size - 1)


def test_large_negative_entries_are_exact():
    query = product([[1, 1 - 2**31]])
    assert l2_sensitivity_sq(query, Neighbors.UNBOUNDED) == (2**31 - 1) ** 2
    assert l2_sensitivity_sq(query, Neighbors.BOUNDED) == max(2**62, 2 * (2**31 - 1) ** 2)


def test_the_least_int64_is_exact():
    query = product([[-(2**63), 2**63 - 1]])
    assert l2_sensitivity_sq(query, Neighbors.UNBOUNDED) == 2**126
    assert l2_sensitivity_sq(query, Neighbors.BOUNDED) == (2**64 - 1) ** 2
    assert l1_sensitivity(query, Neighbors.BOUNDED) == 2**64


def test_products_of_many_factors_do_not_wrap():
    levels = tuple(map(str, range(1000)))
    query = Query("q", (prefix(levels),) * 10)
    for sensitivity in (l1_sensitivity, l2_sensitivity_sq):
        assert sensitivity(query, Neighbors.UNBOUNDED) == 10**30
        assert sensitivity(query, Neighbors.BOUNDED) == 2 * 10**30


def test_a_query_that_reads_nothing_has_no_sensitivity():
    query = product([[0, 0]], [[5, -5]])
    for sensitivity in (l1_sensitivity, l2_sensitivity_sq):
        for neighbors in Neighbors:
            assert sensitivity(query, neighbors) == 0


def test_opposite_columns_in_two_factors_do_not_add_up():
    """(-a) x (-b) = a x b: records that differ in both do not move the answer at all."""
    query = product([[1, -1]], [[1, -1]])
    assert l2_sensitivity_sq(query, Neighbors.BOUNDED) == 4
