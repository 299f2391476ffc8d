"""Whose shares a chain of only children is measured with: those of its first geolevel, or its last."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from das.change_costs import Chain, change_costs
from das.errors import BudgetError
from das.privacy.budget import Budget
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy, noisy_queries

SCHEMA = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
BUDGET = Budget(Fraction(2), Fraction(1, 10**10), Neighbors.BOUNDED)


def level(name: str, share: str, **queries: str) -> LevelStrategy:
    entries = (QueryShare(parse_query(SCHEMA, q), Fraction(s)) for q, s in queries.items())
    return LevelStrategy(name, Fraction(share), tuple(entries))


STRATEGY = Strategy(
    (
        level("county", "1/2", sex="1/4", detailed="3/4"),
        level("block", "1/2", detailed="1/3", sex="2/3"),
    )
)


@pytest.mark.parametrize(("asks_last", "sex"), [(False, "1/4"), (True, "2/3")])
def test_a_chain_spends_all_with_the_shares_of_one_geolevel(asks_last: bool, sex: str) -> None:
    strategy = replace(STRATEGY, asks_last=asks_last)
    noisy = noisy_queries(strategy, BUDGET, 0, 1)
    assert [one.query.name for one in noisy] == ["sex", "detailed"]  # as the first asks them
    assert [one.cost for one in noisy] == [2 * Fraction(sex), 2 * (1 - Fraction(sex))]
    costs = change_costs(strategy, BUDGET, ["sex", "age"], Chain(0, 1, ("county", "block")))
    assert costs[0].record == 2
    assert costs[0].attributes["age"] == 2 * (1 - Fraction(sex))


def test_geounits_in_no_chain_are_asked_as_ever() -> None:
    other = replace(STRATEGY, asks_last=True)
    for index in (0, 1):
        costs = [
            [one.cost for one in noisy_queries(strategy, BUDGET, index, index)]
            for strategy in (STRATEGY, other)
        ]
        assert costs[0] == costs[1]


def test_a_last_geolevel_that_asks_something_else_is_refused() -> None:
    levels = (STRATEGY.levels[0], level("block", "1/2", detailed="1/3", age="2/3"))
    with pytest.raises(BudgetError, match="measures other queries"):
        noisy_queries(Strategy(levels, asks_last=True), BUDGET, 0, 1)
