"""Costs of changes by what one geounit measures, against all pairs of cells."""

from __future__ import annotations

from fractions import Fraction

import pytest

from das.change_costs import Chain, change_costs
from das.definition import Definition
from das.errors import BudgetError
from das.privacy.budget import Budget
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, noisy_queries, strategy_for
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.workload import BudgetKind, plan_shares
from tests.unit.das.queries.pairs_of_records import pair_costs

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
NAMES = ["sex", "age"]
TABLES = {"total": "1", "sex": "1", "age": "1", "detailed": "1"}
RHO = Fraction(3, 2)


def budget(neighbors: Neighbors, definition: Definition = Definition.ZCDP) -> Budget:
    return Budget(RHO, Fraction(1, 10**10), neighbors, definition)


def costs_of(shares, granted: Budget):
    strategy = strategy_for([LevelStrategy("block", Fraction(1), tuple(shares))], ["block"])
    (found,) = change_costs(strategy, granted, NAMES, Chain(0, 0, ("block", "block")))
    return found, noisy_queries(strategy, granted, 0, 0)


@pytest.mark.parametrize("neighbors", Neighbors)
@pytest.mark.parametrize("method", ["residual_planner", "orp", "hdmm"])
def test_planned_queries_cost_what_their_worst_pair_costs(method, neighbors):
    wanted = WorkloadConfig.model_validate({"method": method, "tables": TABLES})
    shares = plan_shares(SCHEMA, wanted, BudgetKind(Definition.ZCDP, neighbors))
    found, noisy = costs_of(shares, budget(neighbors))
    worst = pair_costs([one.query for one in noisy], [one.mechanism.sigma_sq for one in noisy])
    assert worst.of(neighbors) <= RHO
    factor = 2 if neighbors is Neighbors.UNBOUNDED else 1
    assert found.record == max(worst.changed, factor * RHO)
    assert found.place == factor * RHO
    assert tuple(found.attributes.values()) == worst.attributes


def test_residuals_of_one_attribute_cost_more_than_twice_an_added_record():
    """The statement on sex is 1.236 rho; twice what an added record costs would be 0.618 rho."""
    wanted = WorkloadConfig.model_validate({"method": "residual_planner", "tables": TABLES})
    shares = plan_shares(SCHEMA, wanted, BudgetKind(Definition.ZCDP, Neighbors.UNBOUNDED))
    found, noisy = costs_of(shares, budget(Neighbors.UNBOUNDED))
    touching = sum(one.cost for one in noisy if "sex" in one.query.name)
    assert float(found.attributes["sex"] / RHO) == pytest.approx(1.2361, abs=1e-4)
    assert found.attributes["sex"] == 4 * touching


@pytest.mark.parametrize(
    ("text", "definition", "factor"),
    [
        ("sex", Definition.ZCDP, 2),
        ("residual(sex)", Definition.ZCDP, 4),
        ("residual(age)", Definition.ZCDP, 3),
        ("residual(sex)", Definition.PURE, 2),
    ],
)
def test_listed_queries_cost_by_their_own_sensitivities(text, definition, factor):
    queries = [parse_query(SCHEMA, "detailed"), parse_query(SCHEMA, text)]
    shares = [QueryShare(query, Fraction(1, 2)) for query in queries]
    found, noisy = costs_of(shares, budget(Neighbors.UNBOUNDED, definition))
    detailed, other = (one.cost for one in noisy)
    assert found.record == 2 * detailed + factor * other
    assert found.place == 2 * RHO
    name = "age" if "age" in text else "sex"
    assert found.attributes[name] == 2 * detailed + factor * other
    (rest,) = {*NAMES} - {name}
    assert found.attributes[rest] == 2 * detailed
    changed, _ = costs_of(shares, budget(Neighbors.BOUNDED, definition))
    assert changed.record == changed.place == RHO


def test_a_strategy_that_costs_more_than_its_share_is_refused():
    shares = [QueryShare(parse_query(SCHEMA, "detailed"), Fraction(1), Fraction(2))]
    level = LevelStrategy("block", Fraction(1), tuple(shares))
    level.check_joint_cost(Neighbors.BOUNDED)
    with pytest.raises(BudgetError, match="of geolevel block: costs more than its share"):
        LevelStrategy(
            "block",
            Fraction(1),
            (QueryShare(parse_query(SCHEMA, "detailed"), Fraction(1), Fraction(20, 19)),),
        ).check_joint_cost(Neighbors.BOUNDED)


def test_queries_are_charged_together_or_not():
    queries = [parse_query(SCHEMA, text) for text in ("detailed", "sex")]
    half = Fraction(1, 2)
    with pytest.raises(BudgetError, match="charges some queries jointly"):
        LevelStrategy(
            "block",
            Fraction(1),
            (QueryShare(queries[0], half), QueryShare(queries[1], half, Fraction(2))),
        )
