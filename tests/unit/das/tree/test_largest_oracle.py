"""Shares of the least largest error against grids, closed forms, other searches and the bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import BudgetError
from das.queries.query import groups_of, parse_query, restricted
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Recode, Schema
from das.tree.allocation import AllocationProblem, minimize_weighted_error
from das.tree.classes import SubtreeClasses
from das.tree.errors import SpineModel
from das.tree.information import Information
from das.tree.largest import Objective, minimize_within_limits

SCHEMA = Schema(
    "s",
    (
        Attribute("sex", ("f", "m")),
        Attribute("race", ("a", "b", "c", "d")),
    ),
    (Recode("large", "race", ("a", "other"), (0, 1, 1, 1)),),
)
TREE = [np.array([2]), np.array([3, 2]), np.zeros(5, np.int64)]
CHAINED = [np.array([2]), np.array([3, 1]), np.array([2, 1, 4, 5]), np.zeros(12, np.int64)]
QUERIES = ("total", "large", "sex", "race", "detailed")


def problem(tree, measured=QUERIES, information=Information.GEOUNIT, groups=("race",), exact=()):
    queries = [parse_query(SCHEMA, text) for text in groups]
    total = parse_query(SCHEMA, "total")
    known = tuple(tuple(parse_query(SCHEMA, q) for q in level) for level in exact) or ((),) * len(
        tree
    )
    model = SpineModel(
        SubtreeClasses.of_tree(tree),
        tuple(parse_query(SCHEMA, text) for text in measured),
        known,
        tuple(restricted(total, group) for one in queries for group in groups_of(SCHEMA, one)),
    )
    return AllocationProblem(model, Neighbors.BOUNDED, information)


def even(one: AllocationProblem) -> np.ndarray:
    shape = (one.model.tree.n_levels, len(one.model.measured))
    return np.full(shape, 1 / np.prod(shape))


def scales(one: AllocationProblem, seed: int) -> np.ndarray:
    """Squared sizes between 1 and 1/1000 apart, some errors not counted."""
    random = np.random.default_rng(seed)
    shape = (len(one.model.tables), one.model.tree.n_levels)
    drawn = np.exp(random.uniform(-7, 0, shape)) * (random.uniform(size=shape) < 0.7)
    drawn[0, -1] = 1.0
    return drawn


def test_rows_of_one_query_differ_where_recodes_make_them():
    """Brute force: the covariance of all cells from the queries of one geounit."""
    one = problem(TREE)
    shares = np.random.default_rng(4).dirichlet(np.ones(15)).reshape(3, 5)
    found = one.errors(shares)
    for level, row in enumerate(shares):
        matrices = [q.columns(np.arange(8)) for q in one.model.measured]
        # Bounded neighbors: a change of one record costs 1 / sigma^2 by every partition query.
        precision = sum(s * m.T @ m for s, m in zip(row, matrices, strict=True))
        covariance = np.linalg.inv(precision)
        for group, table in enumerate(one.model.tables):
            answer = table.columns(np.arange(8)).astype(float)
            expected = float(np.trace(answer @ covariance @ answer.T))
            assert found[group, level] == pytest.approx(expected, rel=1e-9)
    assert found[0, 0] != pytest.approx(found[1, 0], rel=1e-3)  # the recode sees the first alone


@pytest.mark.parametrize("information", Information)
def test_no_point_of_a_grid_is_better(information):
    """Two geolevels and two queries: every split in steps of 1/24."""
    tree = [np.array([3]), np.zeros(3, np.int64)]
    one = problem(tree, ("race", "detailed"), information)
    scale = np.array([[1.0, 0.3], [0.2, 0.9], [0.5, 0.1], [0.0, 0.4]])
    found = minimize_within_limits(one, Objective(scale), even(one))
    best = np.inf
    for parts in itertools.product(range(1, 22), repeat=3):
        if sum(parts) < 24:
            shares = np.array([*parts, 24 - sum(parts)]).reshape(2, 2) / 24
            best = min(best, float((one.errors(shares) * scale).max()))
    assert found.value <= best * (1 + 1e-9)
    assert best <= 1.1 * found.value  # the grid comes near, or the first line says little
    assert found.bound <= found.value <= 1.01 * found.bound


def test_the_certificate_closes_on_random_problems():
    for seed, information in enumerate(Information):
        one = problem(TREE, information=information, groups=("race", "sex * large"))
        scale = scales(one, seed)
        found = minimize_within_limits(one, Objective(scale), even(one))
        assert found.shares.sum() == pytest.approx(1)
        assert found.value == pytest.approx(
            float((one.errors(found.shares) * scale).max()), rel=1e-12
        )
        assert found.bound <= found.value * (1 + 1e-12)
        assert found.value <= 1.01 * found.bound
        # The weights of the certificate make a weighted problem that is no easier: its least value is
        # a bound, too, found by other means.
        assert found.weights.min() >= 0
        assert found.weights.sum() == pytest.approx(1)
        weighted = minimize_weighted_error(one, found.weights * scale, found.shares)
        assert weighted.value <= 1.005 * found.value  # searches stop within 1e-3 of the least value
        assert weighted.value >= found.bound * (1 - 1e-9)


def test_the_bound_holds_for_allocations_that_spend_chains_as_they_like():
    """Random shares never beat the bound, on a tree with two kinds of chains."""
    one = problem(CHAINED, information=Information.TREE)
    scale = scales(one, 11)
    found = minimize_within_limits(one, Objective(scale), even(one))
    random = np.random.default_rng(5)
    for _ in range(100):
        near = found.shares * random.uniform(0.7, 1.4, found.shares.shape)
        far = random.dirichlet(np.full(found.shares.size, 0.5)).reshape(found.shares.shape) + 1e-6
        for other in (near / near.sum(), far / far.sum()):
            value = float((one.errors(other) * scale).max())
            assert value >= found.bound
            assert value >= found.value * (1 - 2e-3)


def test_one_group_is_the_weighted_solution():
    """Groups that are equal in all are one error: its least value is known from another search."""
    one = problem(TREE, ("total", "race", "detailed"))
    scale = np.zeros((4, 3))
    scale[:, 1] = 2.0
    found = minimize_within_limits(one, Objective(scale), even(one))
    weights = np.zeros((4, 3))
    weights[0, 1] = 2.0
    weighted = minimize_weighted_error(one, weights, even(one))
    assert found.value == pytest.approx(weighted.value, rel=2e-3)
    assert found.bound == pytest.approx(weighted.bound, rel=2e-3)


def test_errors_of_two_geolevels_are_balanced_in_closed_form():
    """detailed alone: f_l = c_l / s_l, so the largest is least where all are equal: sum c_l."""
    one = problem(TREE, ("detailed",))
    scale = np.zeros((4, 3))
    scale[0] = (1.0, 4.0, 9.0)
    found = minimize_within_limits(one, Objective(scale), even(one))
    # Two cells per race; sigma^2 = 1 / rho under bounded neighbors.
    assert found.value == pytest.approx(2 * 14.0, rel=1e-4)
    np.testing.assert_allclose(found.shares[:, 0], np.array([1, 4, 9]) / 14, rtol=1e-3)
    np.testing.assert_allclose(found.weights[0], np.array([1, 4, 9]) / 14, rtol=1e-2)


def test_scales_of_errors_scale_the_value():
    one = problem(TREE, information=Information.TREE)
    scale = scales(one, 3)
    first, second = (
        minimize_within_limits(one, Objective(factor * scale), even(one)) for factor in (1.0, 50.0)
    )
    assert second.value == pytest.approx(50 * first.value, rel=2e-3)
    assert second.bound == pytest.approx(50 * first.bound, rel=2e-3)


@pytest.mark.parametrize("information", Information)
def test_limits_are_kept_and_what_they_cost_is_certified(information):
    one = problem(TREE, information=information, groups=("race", "sex"))
    scale = np.zeros((6, 3))
    scale[:4, 2] = 1.0
    free = minimize_within_limits(one, Objective(scale), even(one))
    limits = np.full((6, 3), np.inf)
    limits[4:, 1] = 0.001 * one.errors(free.shares)[4:, 1]
    found = minimize_within_limits(one, Objective(scale, limits=limits), even(one))
    assert (one.errors(found.shares) <= limits * (1 + 1e-5)).all()
    assert found.value > 1.01 * free.value
    assert found.bound <= found.value <= 1.01 * found.bound
    random = np.random.default_rng(0)
    for _ in range(50):
        other = found.shares * random.uniform(0.8, 1.25, found.shares.shape)
        other /= other.sum()
        errors = one.errors(other)
        if (errors <= limits).all():
            assert float((errors * scale).max()) >= found.bound
    with pytest.raises(BudgetError, match=r"cannot be met together; got .* times the budget"):
        minimize_within_limits(one, Objective(scale, limits=limits / 1e6), even(one))


def test_what_cannot_be_asked_is_refused():
    one = problem(TREE, exact=(("race",), (), ()))
    with pytest.raises(BudgetError, match="nonnegative"):
        minimize_within_limits(one, Objective(-np.ones((4, 3))), even(one))
    exact = np.zeros((4, 3))
    exact[:, 0] = 1.0  # invariants give the root
    with pytest.raises(BudgetError, match="one with noise"):
        minimize_within_limits(one, Objective(exact), even(one))
    with pytest.raises(BudgetError, match="positive"):
        minimize_within_limits(one, Objective(np.ones((4, 3)), limits=np.zeros((4, 3))), even(one))
