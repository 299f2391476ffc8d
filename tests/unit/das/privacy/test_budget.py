"""Budget and its split: exact shares, known scales, ranges."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.errors import BudgetError
from das.mechanisms.gaussian import DiscreteGaussian
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho
from das.privacy.budget import Budget
from das.queries.query import Factor, Query, marginal
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.strategy import (
    LevelStrategy,
    QueryShare,
    Strategy,
    noisy_queries,
    strategy_for,
)
from tests.builders.strategies import query_mechanism

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
TOTAL, SEX, DETAILED = (marginal(SCHEMA, axes) for axes in ((), ("sex",), ("sex", "age")))
DELTA = Fraction(1, 10**10)


def budget(rho=Fraction(1), neighbors=Neighbors.BOUNDED) -> Budget:
    return Budget(rho, DELTA, neighbors)


def level(name="block", share=Fraction(1), queries=((DETAILED, Fraction(1)),)) -> LevelStrategy:
    return LevelStrategy(name, share, tuple(QueryShare(*entry) for entry in queries))


@pytest.mark.parametrize(
    ("share", "sigma_sq"), [(Fraction(1, 5), 25), (Fraction(1, 2), 10), (Fraction(1, 20), 100)]
)
def test_known_scales_of_a_known_split(share, sigma_sq):
    """One fifth of rho 1 for the geolevel, neighbors that change a record."""
    rho = budget().total * Fraction(1, 5) * share
    assert query_mechanism(budget(), SEX, rho) == DiscreteGaussian(Fraction(sigma_sq))


@pytest.mark.parametrize(("neighbors", "sigma_sq"), [("bounded", 4), ("unbounded", 2)])
def test_sigma_sq_of_a_partition(neighbors, sigma_sq):
    one = budget(neighbors=Neighbors(neighbors))
    assert query_mechanism(one, TOTAL, Fraction(1, 4)) == DiscreteGaussian(Fraction(sigma_sq))


def test_sigma_sq_pays_for_the_sensitivity_of_the_query():
    query = Query("weighted", (Factor(np.array([[3, 1]]), ("row",)),))
    for neighbors, delta_sq in ((Neighbors.BOUNDED, 18), (Neighbors.UNBOUNDED, 9)):
        rho = Fraction(7, 11)
        assert (
            Fraction(delta_sq)
            / (2 * query_mechanism(budget(neighbors=neighbors), query, rho).sigma_sq)
            == rho
        )


@pytest.mark.parametrize("rho", [Fraction(0), Fraction(-1, 3), 1.0, 1, "1"])
def test_a_budget_needs_a_positive_exact_rho(rho):
    with pytest.raises(BudgetError, match=r"^budget rho: must be a positive exact fraction; got"):
        budget(rho)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(3, 2), 1e-10])
def test_a_budget_needs_delta_between_0_and_1(delta):
    with pytest.raises(
        BudgetError, match=r"^budget delta: must be an exact fraction between 0 and 1; got"
    ):
        Budget(Fraction(1), delta, Neighbors.BOUNDED)


def test_epsilons_of_a_budget_are_those_of_the_accountant():
    one = budget(Fraction(3, 7))
    assert one.epsilon == epsilon_from_rho(Fraction(3, 7), DELTA)
    assert one.epsilon_simple == epsilon_bun_steinke(Fraction(3, 7), DELTA)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: level(share=Fraction(0)),
            "allocation, geolevel block: must have a positive share; got 0",
        ),
        (
            lambda: level(share=Fraction(-1, 2)),
            "allocation, geolevel block: must have a positive share; got -1/2",
        ),
        (lambda: level(queries=()), "allocation, geolevel block: measures no query"),
        (
            lambda: level(queries=((SEX, Fraction(0)), (DETAILED, Fraction(1)))),
            "allocation, geolevel block, query sex: share must be positive; got 0",
        ),
        (
            lambda: level(queries=((SEX, Fraction(-1)), (DETAILED, Fraction(2)))),
            "allocation, geolevel block, query sex: share must be positive; got -1",
        ),
        (
            lambda: Strategy((level(queries=((SEX, Fraction(1, 2)), (SEX, Fraction(1, 2)))),)),
            "allocation, geolevel block: lists a query twice; got ['sex']",
        ),
        (
            lambda: level(queries=((SEX, Fraction(1, 2)), (DETAILED, Fraction(1, 3)))),
            "allocation, geolevel block: the shares of its queries do not sum to 1; "
            "got 5/6 (about 0.833333); expected exactly 1",
        ),
        (
            lambda: level(queries=((SEX, Fraction(1)), (DETAILED, Fraction(1, 10**30)))),
            "allocation, geolevel block: the shares of its queries do not sum to 1; "
            f"got {1 + Fraction(1, 10**30)} (about 1.000000); expected exactly 1",
        ),
        (
            lambda: Strategy(
                (level(queries=((TOTAL, Fraction(1, 2)), (SEX, Fraction(1, 2)))),)
            ).require_full_column_rank(),
            "allocation, geolevel block: its queries do not have full column rank: some cell counts "
            "would be undetermined; got ['total', 'sex']; give detailed a share, or a weight among "
            "the tables of a workload, however small",
        ),
        (
            lambda: Strategy((level("state", Fraction(1, 2)), level("block", Fraction(1, 3)))),
            "allocation: the shares of the geolevels do not sum to 1; "
            "got 5/6 (about 0.833333); expected exactly 1",
        ),
        (
            lambda: Strategy(()),
            "allocation: the shares of the geolevels do not sum to 1; "
            "got 0 (about 0.000000); expected exactly 1",
        ),
        (
            lambda: strategy_for([level("state")], ("state", "block")),
            "allocation: has no entry for block; got ['state']; expected ['state', 'block']; give "
            "every geolevel of the run a share and queries under `levels`",
        ),
        (
            lambda: strategy_for([level("state"), level("tract")], ("state",)),
            "allocation: names a geolevel the spine lacks; got ['tract']; expected ['state']",
        ),
    ],
)
def test_a_split_that_is_not_exact_is_refused(build, message):
    with pytest.raises(BudgetError) as caught:
        build()
    assert str(caught.value) == message


def three_levels() -> Strategy:
    return strategy_for(
        [
            level("block", Fraction(1, 2)),
            level("state", Fraction(1, 3), ((TOTAL, Fraction(1, 4)), (DETAILED, Fraction(3, 4)))),
            level("county", Fraction(1, 6)),
        ],
        ("state", "county", "block"),
    )


def test_levels_are_put_in_the_order_of_the_spine():
    assert [one.geolevel for one in three_levels().levels] == ["state", "county", "block"]


def test_a_chain_of_only_children_has_the_shares_of_its_geolevels():
    strategy = three_levels()
    assert strategy.chain_share(0, 0) == Fraction(1, 3)
    assert strategy.chain_share(0, 1) == Fraction(1, 2)
    assert strategy.chain_share(1, 2) == Fraction(2, 3)
    assert strategy.chain_share(0, 2) == 1


def test_a_chain_asks_the_queries_of_its_top_with_the_budget_of_all():
    noisy = noisy_queries(three_levels(), budget(Fraction(6)), 0, 1)
    assert [one.query.name for one in noisy] == ["total", "detailed"]
    assert [one.cost for one in noisy] == [Fraction(3, 4), Fraction(9, 4)]
    assert [one.mechanism.sigma_sq for one in noisy] == [Fraction(4, 3), Fraction(4, 9)]
    assert {one.level_share for one in noisy} == {Fraction(1, 2)}
    assert [one.share for one in noisy] == [Fraction(1, 4), Fraction(3, 4)]
