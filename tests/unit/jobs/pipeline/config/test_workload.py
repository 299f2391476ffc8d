"""Planned strategies cost exactly what a geolevel has, and have full column rank."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from das.definition import Definition
from das.errors import BudgetError, ConfigError, SchemaError
from das.privacy.budget import Budget
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.schema import Attribute, Recode, Schema
from das.strategy import LevelStrategy, noisy_queries, strategy_for
from das.workload.choices import LossKind, Method
from das.workload.plan import plan_workload
from geography.lattice import Spine
from jobs.pipeline.config.allocation import freeze, load_allocation, planned_parts, read_frozen
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.workload import (
    ZCDP_BOUNDED,
    BudgetKind,
    plan_loss,
    plan_shares,
    positions_of,
    read_workload,
)
from tests.unit.das.queries.pairs_of_records import pair_costs

AGE = Attribute("age", ("0", "1", "2", "3", "4"))
SCHEMA = Schema(
    "s",
    (Attribute("sex", ("f", "m")), Attribute("kind", ("person",)), AGE),
    (Recode.from_groups("adult", AGE, {"minor": ("0", "1"), "adult": ("2", "3", "4")}),),
)
TABLES = {"total": "1", "sex": "1", "age": "2", "detailed": "1/2"}


def wanted(**changes) -> WorkloadConfig:
    return WorkloadConfig.model_validate({"tables": TABLES, **changes})


@pytest.mark.parametrize(
    "bases", [{}, {"age": ["prefix"]}, {"age": ["adult", "identity"], "sex": ["identity"]}]
)
def test_shares_sum_to_one_and_the_noise_costs_exactly_the_budget(bases):
    for neighbors, method in itertools.product(Neighbors, Method):
        if method is Method.RESIDUAL_PLANNER and bases:
            with pytest.raises(SchemaError):
                plan_shares(SCHEMA, wanted(method=method, bases=bases), ZCDP_BOUNDED)
            continue
        kind = BudgetKind(Definition.ZCDP, neighbors)
        shares = plan_shares(SCHEMA, wanted(method=method, bases=bases), kind)
        assert sum(entry.share for entry in shares) == 1
        level = LevelStrategy("state", Fraction(1), shares)
        budget = Budget(Fraction(3, 7), Fraction(1, 10**10), neighbors)
        measured = noisy_queries(strategy_for([level], ["state"]), budget, 0, 0)
        assert all(noisy.query.n_cells == SCHEMA.size for noisy in measured)
        assert sum(noisy.cost for noisy in measured) == budget.total
        laws = [noisy.mechanism.sigma_sq for noisy in measured]
        spent = pair_costs([noisy.query for noisy in measured], laws).of(neighbors)
        assert budget.total * (1 - Fraction(1, 2**12)) <= spent <= budget.total


def errors_of_methods(schema, wanted, kind, rho):
    """The error that every method has at the same cost, before anything is measured."""
    workload = read_workload(schema, wanted)
    loss = plan_loss(wanted.loss, workload, positions_of(schema, wanted, workload))
    is_sum = loss is LossKind.SUM_OF_VARIANCES
    total = sum(map(float, wanted.tables.values())) if is_sum else 1.0
    return {
        method: math.sqrt(
            plan_workload(workload, method, loss, neighbors=kind.neighbors).loss
            / (2 * float(rho) * total)
        )
        for method in Method
        if method is not Method.RESIDUAL_PLANNER or workload.is_plain
    }


@pytest.mark.parametrize("neighbors", Neighbors)
def test_predicted_errors_are_those_of_the_measured_noise(neighbors):
    """Least squares from the integer rows; the average over tables as the weights say."""
    kind, rho = BudgetKind(Definition.ZCDP, neighbors), Fraction(3)
    predicted = errors_of_methods(SCHEMA, wanted(), kind, rho)
    assert set(predicted) == set(Method)
    assert predicted[Method.AUTO] == pytest.approx(min(predicted.values()), rel=1e-6)
    cells = np.arange(SCHEMA.size)
    for method in Method:
        entries = plan_shares(SCHEMA, wanted(method=method), kind)
        precision = sum(
            float(2 * rho * entry.share / entry.sensitivity_sq) * entry.query.gram(cells)
            for entry in entries
        )
        covariance = np.linalg.inv(precision)
        error = 0.0
        for table, weight in TABLES.items():
            rows = parse_query(SCHEMA, table).columns(cells)
            error += float(Fraction(weight)) * (rows @ covariance @ rows.T).diagonal().mean()
        error /= sum(float(Fraction(weight)) for weight in TABLES.values())
        assert predicted[method] == pytest.approx(error**0.5, rel=1e-3)


LOSSES = [
    {"power_mean": "3"},
    {"max_weighted_mean": [{"total": "1", "sex": "1"}, {"age": "3", "detailed": "1/100"}]},
    {"variance_limits": {"total": "1", "sex": "2", "age": "4", "detailed": "10"}},
]


def variances_of_tables(entries, bases: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Variances of the answers of every table at rho 1, by least squares on the integer rows."""
    cells = np.arange(SCHEMA.size)
    precision = sum(
        float(2 * entry.share / entry.sensitivity_sq) * entry.query.gram(cells) for entry in entries
    )
    covariance = np.linalg.inv(precision)
    out = {}
    for table in TABLES:
        rows = np.ones((1, 1))
        for attribute in SCHEMA.attributes:
            is_asked = table == "detailed" or attribute.name in table.split(" * ")
            given = bases.get(attribute.name, np.eye(attribute.size))
            rows = np.kron(rows, given if is_asked else np.ones((1, attribute.size)))
        out[table] = (rows @ covariance * rows).sum(axis=1)
    return out


@pytest.mark.parametrize("loss", LOSSES, ids=["power_mean", "max_weighted_mean", "variance_limits"])
@pytest.mark.parametrize("rows", [None, [[1, 1, 0, 0, 0], [0, 0, 1, 2, -1], [1, 1, 1, 1, 1]]])
def test_convex_losses_and_given_rows_are_what_the_measured_noise_has(loss, rows):
    """The loss, by its definition in the reference, of the integer rows that are measured."""
    stacked = {} if rows is None else {"age": ["identity", *rows]}
    given = {} if rows is None else {"age": np.concatenate([np.eye(5), rows])}
    kind = BudgetKind(Definition.ZCDP, Neighbors.UNBOUNDED)
    asked = wanted(loss=loss, bases=stacked)
    found = variances_of_tables(plan_shares(SCHEMA, asked, kind), given)
    means = {table: variances.mean() for table, variances in found.items()}
    if "power_mean" in loss:
        weights = {table: float(Fraction(weight)) for table, weight in TABLES.items()}
        cubes = sum(weights[table] * means[table] ** 3 for table in TABLES)
        value = (cubes / sum(weights.values())) ** (1 / 3)
    elif "max_weighted_mean" in loss:
        value = max(
            sum(float(Fraction(w)) * means[t] for t, w in one.items())
            / sum(float(Fraction(w)) for w in one.values())
            for one in loss["max_weighted_mean"]
        )
    else:
        value = max(found[t].max() / float(limit) for t, limit in loss["variance_limits"].items())
    predicted = errors_of_methods(SCHEMA, asked, kind, Fraction(1))
    assert value**0.5 == pytest.approx(predicted[Method.AUTO], rel=1e-3)


def test_tables_that_differ_in_one_level_share_their_limits_and_weights():
    """`kind` has one level: its table is the total, so the smaller limit and both weights hold."""
    tables = {"total": "1", "kind": "1", "detailed": "1"}
    both = {"total": "3", "kind": "1", "detailed": "5"}
    once = {"total": "1", "detailed": "5"}
    kind = BudgetKind(Definition.ZCDP, Neighbors.UNBOUNDED)

    def error(tables, loss):
        asked = wanted(tables=tables, loss=loss)
        return errors_of_methods(SCHEMA, asked, kind, Fraction(1))[Method.ORP]

    single = {"total": "2", "detailed": "1"}
    assert error(tables, {"variance_limits": both}) == pytest.approx(
        error(single, {"variance_limits": once})
    )
    means = [{"total": "1", "kind": "2", "detailed": "1"}], [{"total": "3", "detailed": "1"}]
    assert error(tables, {"max_weighted_mean": means[0]}) == pytest.approx(
        error(single, {"max_weighted_mean": means[1]})
    )


def test_a_schema_of_one_cell_has_nothing_to_plan():
    one = Schema("one", (Attribute("kind", ("person",)), Attribute("place", ("here",))))
    with pytest.raises(SchemaError, match="nothing to plan: every attribute"):
        plan_shares(one, wanted(tables={"total": "1"}), ZCDP_BOUNDED)


def test_the_gram_matrix_of_a_planned_level_can_be_inverted():
    shares = plan_shares(SCHEMA, wanted(bases={"age": ["prefix"]}), ZCDP_BOUNDED)
    cells = np.arange(SCHEMA.size)
    gram = sum(
        float(e.share / l2_sensitivity_sq(e.query, Neighbors.UNBOUNDED)) * e.query.gram(cells)
        for e in shares
    )
    assert np.linalg.eigvalsh(gram)[0] > 1e-3


def test_names_carry_the_matrices():
    plain = plan_shares(SCHEMA, wanted(), ZCDP_BOUNDED)
    again = plan_shares(SCHEMA, wanted(), ZCDP_BOUNDED)
    other = plan_shares(SCHEMA, wanted(bases={"age": ["prefix"]}), ZCDP_BOUNDED)
    names = [entry.query.name for entry in plain]
    assert names == [entry.query.name for entry in again]
    assert len(set(names)) == len(names)
    assert names[0] == "total"
    assert all("#" in name for name in names[1:])
    assert not {*names[1:]} & {entry.query.name for entry in other if "age" in entry.query.name}


def test_weights_move_the_budget():
    def share_of_total(weight: str) -> Fraction:
        shares = plan_shares(SCHEMA, wanted(tables={**TABLES, "total": weight}), ZCDP_BOUNDED)
        return next(entry.share for entry in shares if entry.query.name == "total")

    assert share_of_total("100") > share_of_total("1")


@pytest.mark.parametrize("neighbors", Neighbors)
def test_given_shares_are_parts_of_the_joint_cost_and_digests_without_them_stay(neighbors):
    given = {"total": "1/10", "sex": "1/5", "age": "1/5", "sex * age": "1/2"}
    kind = BudgetKind(Definition.ZCDP, neighbors)
    shares = plan_shares(SCHEMA, wanted(method="residual_planner", shares=given), kind)
    assert [float(one.share) for one in shares] == pytest.approx([0.1, 0.2, 0.2, 0.5], abs=1e-6)
    laws = [one.sensitivity_sq / (2 * one.share) for one in shares]
    cost = pair_costs([one.query for one in shares], laws).of(neighbors)
    assert 1 - Fraction(1, 2**12) <= cost <= 1
    assert "shares" not in wanted().model_dump(mode="json")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"method": "orp", "shares": {"total": "1"}},
            r"shares: must be positive, one for each .*; got \['total'\]; expected .*'sex \* age'",
        ),
        (
            {
                "method": "residual_planner",
                "shares": {"total": 0, "sex": 1, "age": 1, "sex * age": 1},
            },
            "shares: must be positive",
        ),
        ({"bases": {"income": ["prefix"]}}, "bases: names an unknown attribute; got .*income"),
        ({"bases": {"age": ["decade"]}}, "base of age: is unknown; got decade; .*'adult'"),
        ({"bases": {"sex": ["adult"]}}, "base of sex: is unknown; got adult"),
        ({"bases": {"age": []}}, "base of age: is empty"),
        ({"bases": {"age": [[1, 1, 1]]}}, "row that does not fit; got 3 integers; expected 5"),
        ({"bases": {"age": [[0] * 5]}}, "row that cannot be used; got .0, 0.*not all 0"),
        ({"bases": {"age": [[1, 0, 0, 0, 1025]]}}, "row that cannot be used.*1025"),
        ({"bases": {"age": [[1, 1, 0, 0, 0]]}}, "does not determine the total"),
        ({"bases": {"age": [[1, 1, 1, 1, 1]]}}, "tells no two levels apart"),
        ({"loss": {"power_mean": "1/2"}}, "loss, power of the mean: makes the loss not convex"),
        ({"loss": {"power_mean": 1000}}, "power of the mean: is too large; got 1000"),
        ({"loss": {"max_weighted_mean": []}}, "loss, weights of means: cannot be used"),
        (
            {"loss": {"max_weighted_mean": [{"total": 1}]}},
            "loss, weights of means: have a mean",
        ),
        (
            {"loss": {"max_weighted_mean": [{"total": 0}]}},
            "max_weighted_mean: has a mean without a positive",
        ),
        (
            {"loss": {"max_weighted_mean": [{"total": -1}]}},
            "max_weighted_mean, total: is negative; got -1",
        ),
        ({"loss": {"max_weighted_mean": [{"kind": 1}]}}, "not among `tables`; got .*kind"),
        (
            {"loss": {"variance_limits": {"total": 1}}},
            "loss, limits: cannot be used; expected positive",
        ),
        (
            {"loss": {"power_mean": 2}, "tables": {"total": 0, "detailed": 1}},
            "loss: needs a positive weight for every table",
        ),
        ({"tables": {"income": "1"}}, "income"),
        ({"tables": {"adult": "1"}}, "may name only attributes; got .*adult.*under `bases`"),
        ({"tables": {"sex": "-1"}}, "table sex: has a negative weight; got -1"),
        ({"tables": {"sex": "0"}}, "weights that cannot be used"),
        ({"tables": {}}, "has no marginals"),
    ],
)
def test_workloads_that_cannot_be_planned(changes, match):
    with pytest.raises(SchemaError, match=match):
        plan_shares(SCHEMA, wanted(**changes), ZCDP_BOUNDED)


@pytest.mark.parametrize(
    "loss",
    [
        {},
        {"power_mean": 2, "variance_limits": {"total": 1}},
        {"power_mean": 2.5},
        {"softmax": 1},
        "median",
    ],
)
def test_a_loss_is_named_once_and_exactly(loss):
    with pytest.raises(ValidationError):
        wanted(loss=loss)


def test_shares_need_a_residual_planner():
    with pytest.raises(ValidationError, match="`shares` need `method: residual_planner`"):
        wanted(shares={"total": 1})


@pytest.mark.parametrize("row", [[1, 0.5, 0, 0, 0], [1, True, 0, 0, 0], [[1], 0, 0, 0, 0]])
def test_rows_hold_whole_numbers(row):
    with pytest.raises(ValidationError):
        wanted(bases={"age": [row]})


@pytest.mark.parametrize(
    "bases", [{}, {"age": ["prefix"]}, {"age": ["adult", "identity"], "sex": ["identity"]}]
)
def test_under_pure_privacy_hdmm_costs_exactly_epsilon_and_the_others_are_refused_by_name(bases):
    for neighbors, method in itertools.product(Neighbors, Method):
        kind = BudgetKind(Definition.PURE, neighbors)
        if method not in (Method.HDMM, Method.AUTO):
            with pytest.raises(
                BudgetError,
                match=f"method {method}: .*squared sensitivities; got discrete Laplace.*plan with hdmm",
            ):
                plan_shares(SCHEMA, wanted(method=method, bases=bases), kind)
            continue
        shares = plan_shares(SCHEMA, wanted(method=method, bases=bases), kind)
        assert sum(entry.share for entry in shares) == 1
        level = LevelStrategy("state", Fraction(1), shares)
        budget = Budget(Fraction(3, 7), Fraction(1, 10**10), neighbors, Definition.PURE)
        measured = noisy_queries(strategy_for([level], ["state"]), budget, 0, 0)
        assert sum(noisy.cost for noisy in measured) == budget.total
        # The worst record, added in one geounit or taken out there and put into another.
        cells = np.arange(SCHEMA.size)
        added = [Fraction(0)] * len(cells)
        for noisy in measured:
            lengths = np.abs(noisy.query.columns(cells)).sum(axis=0).tolist()
            added = [
                a + one / noisy.mechanism.parameter for a, one in zip(added, lengths, strict=True)
            ]
        moved = 2 if neighbors is Neighbors.BOUNDED else 1
        assert max(added) * moved == budget.total


def test_what_was_planned_for_pure_privacy_is_kept_with_the_folder(tmp_path):
    path = allocation(tmp_path, {"workload": {"tables": TABLES, "bases": {"age": ["prefix"]}}})
    kind = BudgetKind(Definition.PURE, Neighbors.BOUNDED)
    strategy = load_allocation(path, SCHEMA, Spine(("state",), (2,)), kind)
    parts = planned_parts(strategy)
    assert list(parts) == ["state"]
    freeze(tmp_path / "planned.json", "d", parts)
    kept = read_frozen(tmp_path / "planned.json", "d")["state"]
    assert [one.share for one in kept] == [one.share for one in parts["state"]]
    assert [one.query.name for one in kept] == [one.query.name for one in parts["state"]]
    assert all(one.sensitivity_sq is None for one in kept)
    listed = load_allocation(
        allocation(tmp_path, {"queries": {"detailed": 1}}), SCHEMA, Spine(("state",), (2,)), kind
    )
    assert planned_parts(listed) == {}


def allocation(folder: Path, level: dict) -> Path:
    path = folder / "allocation.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "levels": {"state": {"share": 1, **level}}}))
    return path


def test_a_workload_that_leaves_cells_together_is_refused(tmp_path):
    path = allocation(tmp_path, {"workload": {"tables": {"sex": 1, "age": 1}}})
    with pytest.raises(
        BudgetError, match="geolevel state: its queries do not have full column rank"
    ):
        load_allocation(path, SCHEMA, Spine(("state",), (2,))).require_full_column_rank()


@pytest.mark.parametrize(
    "level", [{}, {"queries": {"detailed": 1}, "workload": {"tables": {"detailed": 1}}}]
)
def test_a_level_lists_queries_or_a_workload(tmp_path, level):
    with pytest.raises(ConfigError, match="give exactly one of `queries` and `workload`"):
        load_allocation(allocation(tmp_path, level), SCHEMA, Spine(("state",), (2,)))
