"""HDMM strategies written out as dense matrices: sensitivity, unbiasedness, error, optimality."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.bounds import minimize_over_all_strategies
from das.workload.hdmm import strategies as hdmm
from das.workload.hdmm.attribute import AttributeStrategy
from das.workload.hdmm.marginals import MarginalsStrategy, optimize_marginals
from das.workload.hdmm.strategies import (
    HdmmStrategy,
    KroneckerStrategy,
    UnionStrategy,
    list_hdmm,
    optimize_kronecker,
    optimize_union,
)
from das.workload.workload import AttributeWorkload, Workload
from tests.unit.das.workload.dense import (
    GROUPED,
    MIXED,
    kron,
    listed,
    marginal_matrix,
    workload_gram,
)

SMALL = MIXED[:3]
WORKLOADS = {
    "all 2-way": Workload.k_way(SMALL, [2]),
    "up to 3-way": Workload.k_way(SMALL, range(4)),
    "3-way": Workload.k_way(SMALL, [3]),
    "deficient": Workload.k_way(GROUPED, range(3)),
    "hierarchy": Workload.k_way(MIXED[2:], [1]),
    "weighted": Workload.of_marginals(
        SMALL, [(), ("age",), ("sex", "income"), ("age", "income")], [3.0, 0.0, 10.0, 0.1]
    ),
}


def best_family(workload: Workload) -> HdmmStrategy:
    return min(list_hdmm(workload), key=lambda strategy: strategy.error)


OPTIMIZERS = {
    "kronecker": optimize_kronecker,
    "union": optimize_union,
    "marginals": optimize_marginals,
    "best": best_family,
}


def measured(strategy: HdmmStrategy) -> list[np.ndarray]:
    """The dense rows of every product, before they are weighted by their shares."""
    return [kron(list(product.factors)) for product in strategy.products]


def stacked(strategy: HdmmStrategy) -> np.ndarray:
    parts = zip(strategy.shares, measured(strategy), strict=True)
    return np.concatenate([np.sqrt(share) * rows for share, rows in parts])


def weights_on_answers(strategy: HdmmStrategy, names: tuple[str, ...]) -> list[np.ndarray]:
    """The linear map from the measured answers to those of a marginal, one matrix per product."""
    sizes = [len(rows) for rows in measured(strategy)]
    out = []
    for place, size in enumerate(sizes):
        columns = []
        for k in range(size):
            noisy = [np.zeros(other) for other in sizes]
            noisy[place][k] = 1.0
            columns.append(strategy.answer(noisy, names))
        out.append(np.array(columns).T)
    return out


def test_a_strategy_costs_one_is_unbiased_and_has_its_error():
    for family, name in itertools.product(list(OPTIMIZERS), list(WORKLOADS)):
        workload = WORKLOADS[name]
        strategy = OPTIMIZERS[family](workload)
        assert strategy.shares.sum() == pytest.approx(1)
        assert (stacked(strategy) ** 2).sum(0).max() == pytest.approx(1, abs=1e-9)
        error = 0.0
        for weight, members in zip(workload.weights, listed(workload.marginals), strict=True):
            if weight == 0:
                continue
            names = workload.names_of(np.array(members, np.int64))
            weights = weights_on_answers(strategy, names)
            exact = sum(w @ rows for w, rows in zip(weights, measured(strategy), strict=True))
            np.testing.assert_allclose(exact, marginal_matrix(workload, members), atol=1e-6)
            variances = [(w**2).sum() / c for w, c in zip(weights, strategy.shares, strict=True)]
            error += weight * sum(variances)
        assert strategy.error == pytest.approx(error, rel=1e-9)


def test_answers_are_least_squares():
    """Groups of a union answer apart; all measurements together could only do better."""
    for family, name in itertools.product(
        ["kronecker", "union", "marginals"], ["all 2-way", "up to 3-way", "3-way", "hierarchy"]
    ):
        workload = WORKLOADS[name]
        strategy = OPTIMIZERS[family](workload)
        rows = stacked(strategy)
        gram = workload_gram(workload)
        best = np.trace(gram @ np.linalg.pinv(rows.T @ rows, rcond=1e-10, hermitian=True))
        if family == "union" and len(strategy.parts) > 1:
            assert strategy.error >= best * (1 - 1e-9)
        else:
            assert strategy.error == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_no_family_passes_the_bound_and_the_best_is_the_best(name):
    workload = WORKLOADS[name]
    bound = minimize_over_all_strategies(workload).bound
    errors = [OPTIMIZERS[family](workload).error for family in OPTIMIZERS]
    assert min(errors) >= bound * (1 - 1e-9)
    assert errors[-1] == pytest.approx(min(errors))


def test_one_kronecker_workload_is_solved_to_optimality():
    workload = Workload.k_way(SMALL, [3])
    bound = minimize_over_all_strategies(workload).bound
    assert optimize_kronecker(workload).error == pytest.approx(bound, rel=2e-5)


def test_no_attribute_can_improve_a_kronecker_strategy():
    """Turning the rows of one attribute, with the other attributes fixed, never helps."""
    found = optimize_kronecker(WORKLOADS["all 2-way"])
    rng = np.random.default_rng(3)
    for i, _ in itertools.product(range(3), range(20)):
        rows = found.factors[i].rows
        rows = rows + 0.03 * rng.normal(size=rows.shape)
        rows /= np.sqrt((rows**2).sum(0).max())
        other = AttributeStrategy(rows, np.linalg.pinv(rows))
        factors = (*found.factors[:i], other, *found.factors[i + 1 :])
        changed = KroneckerStrategy(found.workload, factors)
        assert changed.error >= found.error * (1 - 1e-6)


def test_an_attribute_nobody_asks_about_is_summed_out():
    workload = Workload.of_marginals(SMALL, [("age",), ("age", "sex")], [1.0, 0.0])
    found = optimize_kronecker(workload)
    assert [factor.rows.shape for factor in found.factors] == [(4, 4), (1, 2), (1, 4)]
    alone = optimize_kronecker(Workload.k_way(SMALL[:1], [1]))
    assert found.error == pytest.approx(alone.error)


def test_the_shares_of_a_union_are_optimal():
    workload = Workload.of_marginals(SMALL, [("age",), ("income",)], [5.0, 1.0])
    single = [optimize_kronecker(hdmm._select(workload, np.array([k]))) for k in (0, 1)]
    union = UnionStrategy(workload, tuple(single))
    for moved in (-0.05, -1e-3, 1e-3, 0.05):
        shares = union.shares + np.array([moved, -moved])
        assert sum(s.error / c for s, c in zip(single, shares, strict=True)) > union.error
    assert sum(s.error / c for s, c in zip(single, union.shares, strict=True)) == pytest.approx(
        union.error
    )


def test_a_union_merges_what_belongs_together():
    attributes = [AttributeWorkload.prefix(name, 12) for name in "abcd"]
    nested = [("a",), ("b",), ("a", "b"), ("c",), ("d",), ("c", "d")]
    workload = Workload.of_marginals(attributes, nested, [9.0, 9.0, 1.0, 9.0, 9.0, 1.0])
    union = optimize_union(workload)
    groups = {
        frozenset(
            map(frozenset, (p.workload.names_of(np.array(m)) for m in listed(p.workload.marginals)))
        )
        for p in union.parts
    }
    assert len(union.parts) < 6
    assert sum(len(group) for group in groups) == 6
    separate = np.sqrt(hdmm._separate(workload, hdmm._remember(hdmm.solve_exactly))).sum() ** 2
    assert union.error < separate * 0.99
    assert union.error < optimize_kronecker(workload).error * 0.99


def test_many_groups_are_not_merged_and_each_attribute_keeps_its_own_rows(monkeypatch):
    monkeypatch.setattr(hdmm, "_MOST_GROUPS", 2)
    kinds = (AttributeWorkload.prefix, AttributeWorkload.ranges, AttributeWorkload.identity)
    attributes = [kind(name, 12) for kind, name in zip((*kinds, kinds[0]), "abcd", strict=True)]
    workload = Workload.k_way(attributes, [1])
    union = optimize_union(workload)
    assert len(union.parts) == 4
    alone = [optimize_kronecker(Workload.of_marginals(attributes, [name])).error for name in "abcd"]
    assert union.error == pytest.approx(np.sqrt(alone).sum() ** 2)


def test_which_family_wins_depends_on_the_workload():
    plain = [AttributeWorkload.identity(name, 5) for name in "abc"]
    assert isinstance(best_family(Workload.k_way(plain, range(3))), MarginalsStrategy)
    sums = [AttributeWorkload.prefix(name, 30) for name in "abc"]
    assert isinstance(best_family(Workload.k_way(sums, [1])), UnionStrategy)
    assert best_family(Workload.k_way(sums, [3])).error == pytest.approx(
        optimize_kronecker(Workload.k_way(sums, [3])).error
    )


def test_unions_of_products_pay_for_pairs_of_ranges():
    workload = Workload.k_way([AttributeWorkload.ranges(name, 16) for name in "abc"], [2])
    rmse = [np.sqrt(each.error / workload.sizes.sum()) for each in list_hdmm(workload)]
    assert rmse == pytest.approx([5.423, 5.262, 6.541], abs=1e-3)  # OPT_kron, OPT_+, OPT_M


def test_more_attributes_than_marginals_allow():
    attributes = [AttributeWorkload.identity(f"a{i}", 2) for i in range(15)]
    workload = Workload.k_way(attributes, [1])
    assert not isinstance(best_family(workload), MarginalsStrategy)
    with pytest.raises(SchemaError, match="too many attributes; got 15; expected 14"):
        optimize_marginals(workload)


def test_an_unplanned_marginal_is_refused():
    union = optimize_union(Workload.k_way(SMALL, [1]))
    noisy = [np.zeros(len(rows)) for rows in measured(union)]
    with pytest.raises(SchemaError, match="is not one that the strategy answers"):
        union.answer(noisy, ["age", "sex"])
    with pytest.raises(SchemaError, match="unknown attribute"):
        union.answer(noisy, ["shoe size"])


def test_weights_of_any_size():
    for weights, family in itertools.product(
        [[1e-12, 1.0, 1.0], [1.0, 1000000000000.0, 1.0], [1e-30, 1.0, 1e30]], list(OPTIMIZERS)
    ):
        workload = Workload.of_marginals(SMALL, [("age",), ("age", "sex"), ("income",)], weights)
        scale = max(weights)
        found = OPTIMIZERS[family](workload)
        alone = Workload.of_marginals(
            SMALL, [("age",), ("age", "sex"), ("income",)], [w * (w == scale) for w in weights]
        )
        bound = minimize_over_all_strategies(alone, gap=1e-3).bound
        assert bound * (1 - 1e-6) <= found.error <= 4 * bound
