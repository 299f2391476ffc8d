"""Strategies with strata: what they must hold to be a promise."""

from __future__ import annotations

from fractions import Fraction

import pytest

from das.errors import BudgetError
from das.queries.query import parse_group, parse_query
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy, Stratum, strategy_for

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
HALF = Fraction(1, 2)


def level(name: str, text: str, share=HALF) -> LevelStrategy:
    return LevelStrategy(
        name, Fraction(share), (QueryShare(parse_query(SCHEMA, text), Fraction(1)),)
    )


def own(condition: str, *levels: tuple[str, str, str]) -> tuple:
    rows = [level(name, f"{text} where {condition}", share) for name, text, share in levels]
    return parse_group(SCHEMA, condition), rows


def strategy(*strata) -> Strategy:
    levels = [level("state", "detailed", "1/4"), level("block", "detailed", "1/4")]
    return strategy_for(levels, ["state", "block"], None, strata)


WOMEN = own("sex=f", ("block", "age", "1/4"), ("state", "total", "1/4"))
MEN = own("sex=m", ("state", "age", "1/2"))


def test_queries_for_everybody_come_first_then_stratum_by_stratum():
    found = strategy(WOMEN, MEN)
    names = [[entry.query.name for entry in found.measured(level)] for level in (0, 1)]
    assert names == [
        ["detailed", "total where sex=f", "age where sex=m"],
        ["detailed", "age where sex=f"],
    ]
    women, men = found.strata
    assert [found.chain_share(0, 1, one) for one in (None, women, men)] == [HALF] * 3
    assert found.chain_share(1, 1, men) == 0


@pytest.mark.parametrize(
    ("strata", "message"),
    [
        (
            (WOMEN, own("sex=m", ("state", "age", "1/4"))),
            "stratum sex=m: its shares and the population-wide shares do not sum to 1; got 3/4",
        ),
        (
            (WOMEN, own("sex=m", ("state", "age", "3/4"))),
            "stratum sex=m: its shares and the population-wide shares do not sum to 1; got 5/4",
        ),
        ((WOMEN,), "strata: do not cover all cells of the schema; got 3 of 6 cells"),
        (
            (WOMEN, MEN, own("age=0", ("state", "total", "1/2"))),
            "strata sex=f and age=0: overlap",
        ),
        (
            (WOMEN, own("sex=m", ("block", "age", "1/2"))),
            "stratum sex=m: must be measured from the root down without a gap",
        ),
        (
            (WOMEN, own("sex=m", ("tract", "age", "1/2"))),
            "stratum sex=m: names a geolevel the spine lacks",
        ),
    ],
)
def test_what_is_no_promise_is_refused(strata, message):
    with pytest.raises(BudgetError, match=message):
        strategy(*strata)


def test_a_query_of_a_stratum_counts_nobody_else():
    with pytest.raises(BudgetError, match="stratum sex=f, query age: counts records of other"):
        Stratum(parse_group(SCHEMA, "sex=f"), (level("state", "age"),))
    with pytest.raises(BudgetError, match="counts records of other strata"):
        Stratum(parse_group(SCHEMA, "sex=f"), (level("state", "age where sex=m"),))


def test_everybody_and_all_strata_together_tell_every_cell_apart():
    """Neither everybody's queries nor those of one stratum have full column rank here."""
    flat = [level("state", "age")]
    strata = [own("sex=f", ("state", "age", "1/2")), own("sex=m", ("state", "age", "1/2"))]
    strategy_for(flat, ["state"], None, strata).require_full_column_rank()
    strata[1] = own("sex=m", ("state", "total", "1/2"))  # men by age are all less women
    strategy_for(flat, ["state"], None, strata).require_full_column_rank()
    strata[0] = own("sex=f", ("state", "total", "1/2"))
    strategy = strategy_for(flat, ["state"], None, strata)
    with pytest.raises(BudgetError, match="do not have full column rank"):
        strategy.require_full_column_rank()
