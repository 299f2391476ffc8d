"""Optimal allocations with strata against closed forms, random search and their certificate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.queries.query import groups_of, parse_query
from das.queries.sensitivity import Neighbors
from das.tree.allocation import AllocationProblem, exact_strategy, minimize_weighted_error
from das.tree.classes import SubtreeClasses
from das.tree.errors import SpineModel
from das.tree.information import Information
from das.tree.largest import Objective, minimize_within_limits
from tests.unit.das.tree.test_allocation_oracle import CHAINED, PLAIN, SCHEMA, weights_of

GROUPS = groups_of(SCHEMA, parse_query(SCHEMA, "sex"))
EVERYBODY = ("detailed", "age", "total")
OWN = [f"{text} where sex={sex}" for sex in "fm" for text in ("age", "adult", "total")]
TABLES = ("total where sex=f", "age where sex=m", "sex", "age")


def problem(
    n_children, tables=TABLES, everybody=EVERYBODY, own=OWN, information=Information.GEOUNIT
):
    queries = tuple(parse_query(SCHEMA, text) for text in (*everybody, *own))
    asked = tuple(parse_query(SCHEMA, text) for text in tables)
    tree = SubtreeClasses.of_tree(n_children)
    model = SpineModel(tree, queries, ((),) * len(n_children), asked)
    strata = [0] * len(everybody) + [1 if "=f" in text else 2 for text in own]
    return AllocationProblem(model, Neighbors.BOUNDED, information, np.array(strata))


def even(one: AllocationProblem) -> np.ndarray:
    shape = (one.model.tree.n_levels, len(one.model.measured))
    shares = np.zeros(shape)
    for part in one.parts:
        shares[:, part] = 1 / (2 * shape[0] * len(part))
    return shares


def drawn(one: AllocationProblem, random: np.random.Generator) -> np.ndarray:
    """Shares of which every stratum's and everybody's sum to 1."""
    shares, of_all = np.zeros_like(even(one)), random.uniform(0.05, 0.95)
    for number, part in enumerate(one.parts):
        size = (len(shares), len(part))
        whole = 1 - of_all if number else of_all
        shares[:, part] = whole * (random.dirichlet(np.full(np.prod(size), 0.7)).reshape(size))
    return shares + 1e-9


@pytest.mark.parametrize("n_children", [PLAIN, CHAINED], ids=["plain", "chained"])
def test_shares_are_certified_and_beat_random_ones(n_children):
    one = problem(n_children)
    weights = weights_of(one, 3)
    found = minimize_weighted_error(one, weights, even(one))
    for part in one.parts[1:]:
        spent = found.shares[:, one.parts[0]].sum() + found.shares[:, part].sum()
        assert spent == pytest.approx(1)
    assert found.value == pytest.approx((weights * one.errors(found.shares)).sum(), rel=1e-12)
    assert found.bound <= found.value * (1 + 1e-12)
    assert found.value <= (1.02 if n_children is PLAIN else 1.3) * found.bound
    random = np.random.default_rng(5)
    for _ in range(50):
        value = (weights * one.errors(drawn(one, random))).sum()
        assert value >= found.bound
        assert value >= found.value * (1 - 2e-4)


def test_gradients_in_shares_equal_central_differences():
    one = problem(CHAINED)
    shares = drawn(one, np.random.default_rng(1)) + 1e-3
    weights = weights_of(one, 2)

    def goal(errors):
        return (weights * errors).sum()

    _, gradient, _ = one.evaluate(shares, weights)
    for spot in np.ndindex(shares.shape):
        step = np.zeros_like(shares)
        step[spot] = 1e-6 * shares[spot]
        up, down = (goal(one.errors(shares + sign * step)) for sign in (1, -1))
        slope = (up - down) / (2 * step[spot])
        assert gradient[spot] == pytest.approx(slope, rel=1e-3, abs=1e-6 * abs(gradient).max())


def test_strata_do_not_trade():
    """Own ages alone: each stratum has nearly all, split by the square roots of its own weights.

    How much a stratum weighs beside another changes nothing.
    """
    tables = ("age where sex=f", "age where sex=m")
    one = problem(PLAIN, tables, ("detailed",), [f"age where sex={sex}" for sex in "fm"])
    weights = np.array([[1.0, 4.0, 9.0, 16.0], [900.0, 400.0, 100.0, 25.0]])
    found = minimize_weighted_error(one, weights, even(one))
    for part, row in zip(one.parts[1:], weights, strict=True):
        spent = (found.shares[:, one.parts[0]] + found.shares[:, part])[:, 0]
        # The detailed query for everybody sees the same cells as well as the stratum's own.
        np.testing.assert_allclose(spent, np.sqrt(row) / np.sqrt(row).sum(), atol=5e-3)


def test_exact_shares_sum_to_one_in_every_stratum():
    one = problem(PLAIN)
    found = minimize_weighted_error(one, weights_of(one, 3), even(one))
    spine = ("a", "b", "c", "d")
    strategy = exact_strategy(one, found.shares, spine, None, GROUPS)
    assert [stratum.group for stratum in strategy.strata] == [*GROUPS]
    for stratum in strategy.strata:
        assert strategy.chain_share(0, 3) + strategy.chain_share(0, 3, stratum) == Fraction(1)
        assert tuple(level.geolevel for level in stratum.levels) == spine


# --- the largest error ---------------------------------------------------------------------------


def test_the_largest_error_is_certified_and_no_random_allocation_is_below_the_bound():
    one = problem(PLAIN)
    scale = weights_of(one, 7)
    found = minimize_within_limits(one, Objective(scale), even(one))
    for part in one.parts[1:]:
        spent = found.shares[:, one.parts[0]].sum() + found.shares[:, part].sum()
        assert spent == pytest.approx(1)
    attained = float((scale * one.errors(found.shares)).max())
    assert found.bound <= attained * (1 + 1e-9)
    assert attained <= found.value * (1 + 1e-9)
    assert found.value <= 1.01 * found.bound
    random = np.random.default_rng(5)
    for _ in range(50):
        assert (scale * one.errors(drawn(one, random))).max() >= found.bound


def test_targets_of_strata_need_what_the_worst_of_them_needs():
    """Own ages alone do not trade: a target for men costs nothing while women need more."""
    tables = ("age where sex=f", "age where sex=m")
    one = problem(PLAIN, tables, ("detailed",), [f"age where sex={sex}" for sex in "fm"])
    women = np.array([[1.0] * 4, [np.inf] * 4])
    both = np.array([[1.0] * 4, [4.0] * 4])
    alone, together = (
        minimize_within_limits(one, Objective(1 / targets**2), even(one)).value
        for targets in (women, both)
    )
    # Four geolevels at sigma^2 = 1 / rho under bounded neighbors, but for the parts of detailed.
    assert alone == pytest.approx(4, rel=5e-3)
    assert together == pytest.approx(alone, rel=5e-3)
