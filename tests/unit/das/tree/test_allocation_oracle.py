"""Optimal allocations against closed forms, random search and their own certificate."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import BudgetError
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Recode, Schema
from das.tree.allocation import (
    LEAST_DETAILED,
    AllocationProblem,
    minimize_weighted_error,
)
from das.tree.classes import SubtreeClasses
from das.tree.errors import SpineModel
from das.tree.information import Information
from das.tree.largest import Objective, minimize_within_limits

AGE = Attribute("age", ("0", "1", "2", "3"))
SCHEMA = Schema(
    "s",
    (Attribute("sex", ("f", "m")), AGE),
    (Recode("adult", "age", ("no", "yes"), (0, 1, 1, 1)),),
)
# Root; two counties of 3 and 1 tracts; tracts of 2, 1, 4 and 5 blocks: two kinds of chains.
CHAINED = [np.array([2]), np.array([3, 1]), np.array([2, 1, 4, 5]), np.zeros(12, np.int64)]
PLAIN = [np.array([2]), np.array([3, 2]), np.array([2, 3, 4, 5, 2]), np.zeros(16, np.int64)]


def problem(n_children, measured, tables, information, exact=()) -> AllocationProblem:
    tree = SubtreeClasses.of_tree(n_children)
    known = tuple(tuple(parse_query(SCHEMA, q) for q in level) for level in exact) or ((),) * len(
        n_children
    )
    model = SpineModel(
        tree,
        tuple(parse_query(SCHEMA, text) for text in measured),
        known,
        tuple(parse_query(SCHEMA, text) for text in tables),
    )
    return AllocationProblem(model, Neighbors.BOUNDED, information)


def even(one: AllocationProblem) -> np.ndarray:
    shape = (one.model.tree.n_levels, len(one.model.measured))
    return np.full(shape, 1 / np.prod(shape))


def weights_of(one: AllocationProblem, seed: int) -> np.ndarray:
    shape = (len(one.model.tables), one.model.tree.n_levels)
    return np.random.default_rng(seed).uniform(0.2, 2, shape)


QUERIES = ("total", "adult", "sex * age", "age", "detailed")
TABLES = ("total", "adult * sex", "prefix(age)")


def test_one_query_is_split_by_the_square_roots_of_its_weights():
    """Own measurements of detailed alone: sum_l c_l / s_l is least at s_l ~ sqrt(c_l)."""
    one = problem(PLAIN, ("detailed",), ("age",), Information.GEOUNIT)
    weights = np.array([[1.0, 4.0, 9.0, 0.25]])
    found = minimize_weighted_error(one, weights, even(one))
    roots = np.sqrt(weights[0])
    np.testing.assert_allclose(found.shares[:, 0], roots / roots.sum(), atol=2e-3)
    # sigma^2 = 1 / rho under bounded neighbors, two cells per age.
    assert found.value == pytest.approx(2 * roots.sum() ** 2, rel=1e-4)
    assert found.bound == pytest.approx(found.value, rel=1e-3)


@pytest.mark.parametrize("information", Information)
@pytest.mark.parametrize("n_children", [PLAIN, CHAINED], ids=["plain", "chained"])
def test_shares_are_certified_and_beat_random_ones(n_children, information):
    one = problem(n_children, QUERIES, TABLES, information, (("total",), (), (), ()))
    weights = weights_of(one, 3)
    found = minimize_weighted_error(one, weights, even(one))
    assert found.shares.sum() == pytest.approx(1)
    assert (found.shares[:, 4] >= float(LEAST_DETAILED) * (1 - 1e-9)).all()
    assert found.value == pytest.approx((weights * one.errors(found.shares)).sum(), rel=1e-12)
    assert found.bound <= found.value * (1 + 1e-12)
    if n_children is PLAIN and information is Information.GEOUNIT:
        assert found.value <= 1.003 * found.bound
    else:  # the bound relaxes chains, and the search with full information stops earlier
        assert found.value <= 1.2 * found.bound
    random = np.random.default_rng(5)
    for _ in range(50):
        near = found.shares * random.uniform(0.7, 1.4, found.shares.shape)
        far = random.dirichlet(np.full(found.shares.size, 0.7)).reshape(found.shares.shape) + 1e-6
        for other in (near / near.sum(), far / far.sum()):
            value = (weights * one.errors(other)).sum()
            assert value >= found.bound
            assert value >= found.value * (1 - 2e-4)


@pytest.mark.parametrize("information", Information)
def test_gradients_in_shares_equal_central_differences(information):
    one = problem(CHAINED, QUERIES, TABLES, information)
    shares = np.random.default_rng(1).dirichlet(np.full(20, 3.0)).reshape(4, 5)
    weights = weights_of(one, 2)

    def goal(at):
        return float((weights * one.errors(at)).sum())

    _, gradient, steepest = one.evaluate(shares, weights)
    for spot in np.ndindex(shares.shape):
        step = np.zeros_like(shares)
        step[spot] = 1e-6 * shares[spot]
        up, down = (goal(shares + sign * step) for sign in (1, -1))
        assert gradient[spot] == pytest.approx((up - down) / (2 * step[spot]), rel=1e-4, abs=1e-3)
    value = goal(shares)
    assert (gradient * shares).sum() == pytest.approx(-value, rel=1e-9)  # homogeneous
    assert steepest >= value  # or the bound would exceed the value


@pytest.mark.parametrize("information", Information)
def test_targets_are_met_with_the_least_rho(information):
    one = problem(PLAIN, QUERIES, TABLES, information)
    targets = np.array([[2.0, 3.0, np.inf, 4.0], [np.inf] * 4, [5.0, 5.0, 6.0, 6.0]])
    found = minimize_within_limits(one, Objective(1 / targets**2), even(one))
    rmse = np.sqrt(one.errors(found.shares) / found.value)
    assert (rmse <= targets * (1 + 1e-9)).all()
    assert (rmse >= targets * (1 - 1e-6)).any()  # with less rho one would be missed
    slack = 1.02 if information is Information.GEOUNIT else 1.15
    assert found.bound <= found.value <= slack * found.bound
    tighter = minimize_within_limits(one, Objective(4 / targets**2), even(one))
    assert tighter.value == pytest.approx(4 * found.value, rel=1e-2)


def test_one_target_is_the_closed_form():
    """One answer of detailed at one geolevel, all else nothing: rho = 1 / (share tau^2)."""
    one = problem(PLAIN, ("detailed",), ("detailed",), Information.GEOUNIT)
    targets = np.array([[np.inf, np.inf, 0.5, np.inf]])
    found = minimize_within_limits(one, Objective(1 / targets**2), even(one))
    assert found.value == pytest.approx(1 / 0.25, rel=5e-3)
    assert 1 / 0.25 >= found.bound


def test_impossible_wishes_are_refused():
    one = problem(PLAIN, ("detailed",), ("age",), Information.GEOUNIT)
    with pytest.raises(BudgetError, match="nonnegative"):
        minimize_weighted_error(one, -np.ones((1, 4)), even(one))
    with pytest.raises(BudgetError, match="nonnegative"):
        minimize_weighted_error(one, np.zeros((1, 4)), even(one))
    without = problem(PLAIN, ("age",), ("age",), Information.GEOUNIT)
    with pytest.raises(BudgetError, match="detailed"):
        minimize_weighted_error(without, np.ones((1, 4)), even(without))
