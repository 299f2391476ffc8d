"""HDMM under pure differential privacy: exact cost, errors as predicted, and how good they are."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from das.definition import Definition
from das.errors import SchemaError
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.mechanism import Norm
from das.queries.factor import identity, total
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l1_sensitivity
from das.tree.intervals import IntervalKind
from das.workload import pure as module
from das.workload.choices import LossKind
from das.workload.hdmm.attribute import AttributeStrategy
from das.workload.hdmm.marginals import optimize_marginals, optimize_marginals_l1, pool_tables
from das.workload.hdmm.strategies import optimize_kronecker, optimize_union
from das.workload.losses import evaluate_loss
from das.workload.pure import (
    PurePlan,
    evaluate_p_identity_l1,
    plan_plain_tables,
    plan_pure,
    solve_p_identity,
)
from das.workload.residual.products import answer_product, product_covariances, product_variances
from das.workload.variances import list_average_variances
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.histograms import from_dense
from tests.unit.das.workload.dense import MIXED, listed, marginal_matrix

EPSILON = Fraction(3, 7)
AGES = AttributeWorkload.prefix("age", 20)
FAMILIES = {
    "kronecker": lambda workload: optimize_kronecker(workload, solve_p_identity),
    "union": lambda workload: optimize_union(workload, solve_p_identity, Norm.L1),
    "marginals": optimize_marginals_l1,
}
WORKLOAD = Workload.of_marginals(
    [AttributeWorkload.prefix("age", 9), *MIXED[1:3]],
    [("age",), ("income",), ("age", "sex", "income")],
    [1.0, 30.0, 0.0001],
)


def planned(family: str, workload: Workload = WORKLOAD, bits: int = 24) -> PurePlan:
    return module._round(FAMILIES[family](workload), bits)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_dense_error(seed):
    rng = np.random.default_rng(seed)
    theta, half = rng.random((2, 5)), rng.normal(size=(7, 5))
    gram = half.T @ half

    def dense(point):
        rows = np.concatenate([np.eye(5), point.reshape(2, 5)])
        rows /= np.abs(rows).sum(axis=0)
        return np.trace(gram @ np.linalg.inv(rows.T @ rows))

    value, gradient = evaluate_p_identity_l1(gram, theta)
    assert value == pytest.approx(dense(theta), rel=1e-9)
    steps = 1e-6 * np.eye(10)
    slopes = [(dense(theta.ravel() + h) - dense(theta.ravel() - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-5 * abs(gradient).max())


@pytest.mark.parametrize("neighbors", Neighbors)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_worst_of_all_pairs_of_records_costs_epsilon_exactly(family, neighbors):
    """Every pair of cells, within a geounit and between two; noise of queries is independent."""
    plan = planned(family)
    assert sum(plan.shares) == 1
    scales = plan.scales(EPSILON, neighbors)
    assert all(type(scale) is Fraction for scale in scales)
    cells = np.arange(plan.queries[0].n_cells)
    columns = [query.columns(cells) for query in plan.queries]
    added = [Fraction(0)] * len(cells)
    for matrix, scale in zip(columns, scales, strict=True):
        lengths = np.abs(matrix).sum(axis=0)
        assert lengths.min() == lengths.max()  # so that nothing is lost by charging one by one
        added = [a + Fraction(int(own)) / scale for a, own in zip(added, lengths, strict=True)]
    if neighbors is Neighbors.UNBOUNDED:
        assert set(added) == {EPSILON}
        return
    moved = max(one + other for one, other in itertools.product(added, repeat=2))
    assert moved == EPSILON
    changed = [
        sum(
            Fraction(int(np.abs(matrix[:, j] - matrix[:, k]).sum())) / scale
            for matrix, scale in zip(columns, scales, strict=True)
        )
        for j, k in itertools.combinations(cells.tolist(), 2)
    ]
    assert max(changed) <= EPSILON


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_without_noise_are_exact_and_the_error_is_that_of_the_rows(family):
    plan = planned(family)
    counts = np.random.default_rng(2).integers(1, 50, plan.queries[0].n_cells)
    histograms = from_dense(counts[None])
    noiseless = [query.answer(histograms)[0] for query in plan.queries]
    scales = [float(scale) for scale in plan.scales(EPSILON, Neighbors.BOUNDED)]
    error, means = 0.0, []
    for weight, members in zip(WORKLOAD.weights, listed(WORKLOAD.marginals), strict=True):
        names = WORKLOAD.names_of(np.array(members, np.int64))
        expected = marginal_matrix(WORKLOAD, members) @ counts
        np.testing.assert_allclose(plan.answer(noiseless, names), expected, rtol=1e-7)
        total = 0.0
        for place, scale in enumerate(scales):
            for k in range(len(noiseless[place])):
                unit = [np.zeros(len(each)) for each in noiseless]
                unit[place][k] = 1.0
                total += 2 * scale**2 * float((plan.answer(unit, names) ** 2).sum())
        error += weight * total
        means.append(total / len(expected))
    assert plan.error(EPSILON, Neighbors.BOUNDED) == pytest.approx(error, rel=1e-6)
    variances = 2 * (2 / float(EPSILON)) ** 2 * list_average_variances(plan.strategy)
    np.testing.assert_allclose(variances, means, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_errors_of_drawn_noise_are_those_predicted(family):
    """Six standard errors: 3 in 10^9; half the variance would be more than 10 away."""
    plan = planned(family)
    rng = np.random.default_rng(20261122)
    laws = [DiscreteLaplace(scale) for scale in plan.scales(EPSILON, Neighbors.BOUNDED)]
    noise = []
    for query, law in zip(plan.queries, laws, strict=True):
        # The difference of two geometric variables of ratio exp(-1 / scale) is the law.
        success, shape = -math.expm1(-1 / float(law.scale)), (800, query.size)
        noise.append(rng.geometric(success, shape) - rng.geometric(success, shape))
    units, ends = (
        np.eye(sum(q.size for q in plan.queries)),
        np.cumsum([q.size for q in plan.queries]),
    )
    squares = np.zeros(800)
    for weight, members in zip(WORKLOAD.weights, listed(WORKLOAD.marginals), strict=True):
        names = WORKLOAD.names_of(np.array(members, np.int64))
        # Answers are linear in the noise.
        rows = np.array([plan.answer(np.split(unit, ends[:-1]), names) for unit in units])
        squares += weight * ((np.concatenate(noise, axis=1) @ rows) ** 2).sum(axis=1)
    predicted = plan.error(EPSILON, Neighbors.BOUNDED)
    deviation = np.std(squares) / math.sqrt(len(squares))
    assert abs(np.mean(squares) - predicted) < 6 * deviation
    assert predicted > 20 * deviation
    costs = [
        law.cost(Definition.PURE, Fraction(l1_sensitivity(query, Neighbors.BOUNDED)))
        for query, law in zip(plan.queries, laws, strict=True)
    ]
    assert sum(costs) == EPSILON


def test_shares_of_a_union_go_with_cube_roots():
    """Of e_j / c_j^2 with sum c_j = 1; no other shares are better."""
    apart = Workload.of_marginals([AGES, MIXED[2]], [("age",), ("income",)], [1.0, 9.0])
    found = optimize_union(apart, solve_p_identity, Norm.L1)
    errors = np.array([part.error for part in found.parts])
    assert len(errors) > 1
    assert found.error == pytest.approx((errors / found.shares**2).sum())
    rng = np.random.default_rng(5)
    others = rng.dirichlet(np.ones(len(errors)), 500)
    near = found.shares * (1 + 0.01 * rng.normal(size=others.shape))
    near /= near.sum(axis=1, keepdims=True)
    for shares in (*others, *near):
        assert (errors / shares**2).sum() >= found.error * (1 - 1e-9)


@pytest.mark.parametrize("sizes", [(2, 3), (8, 5, 6), (10, 10, 10)])
@pytest.mark.parametrize("order", [1, 2])
def test_marginals_are_a_local_optimum_between_the_bound_and_single_choices(sizes, order):
    plain = [AttributeWorkload.identity(f"a{i}", n) for i, n in enumerate(sizes)]
    workload = Workload.k_way(plain, [order])
    found = optimize_marginals_l1(workload)
    assert found.shares.sum() == pytest.approx(1)
    assert optimize_marginals(workload).bound == pytest.approx(found.bound)
    assert found.bound <= found.error * (1 + 1e-9)
    # Every marginal that is asked alone, with cube-root shares, and all cells alone.
    cells = math.prod(sizes)
    asked = [math.prod(c) for c in itertools.combinations(sizes, order)]
    alone = sum(size ** (1 / 3) for size in asked) ** 3
    assert found.error <= min(alone, cells * len(asked)) * (1 + 1e-4)
    rng = np.random.default_rng(7)
    for _ in range(50):
        shares = found.shares * (1 + 0.02 * rng.normal(size=len(found.shares)))
        other = replace(found, shares=shares / shares.sum())
        values = list_average_variances(other) * workload.sizes * workload.weights
        assert values.sum() >= found.error * (1 - 1e-6)


@pytest.mark.parametrize("base", ["prefix", "ranges"])
@pytest.mark.parametrize("size", [16, 64, 100])
def test_p_identity_is_better_than_levels_alone_and_than_trees(base, size):
    """Trees of every branching number with one weight for all, the best known by hand."""
    attribute = getattr(AttributeWorkload, base)("age", size)
    found = solve_p_identity(attribute, 0.0)
    assert np.abs(found.rows).sum(axis=0) == pytest.approx(np.ones(size))
    rivals = [np.eye(size)]
    for branch in (2, 3, 4, 8, 16):
        rows = np.concatenate([np.eye(size), module._inner_nodes(size, branch) > 0])
        rivals.append(rows / rows.sum(axis=0))
    errors = [np.trace(attribute.gram @ np.linalg.inv(rows.T @ rows)) for rows in rivals]
    assert found.variance(attribute.gram) <= min(errors) * (1 + 1e-9)
    if size >= 64:
        assert found.variance(attribute.gram) < 0.99 * min(errors)


def test_plain_counts_stay_plain():
    plain = [AttributeWorkload.identity(name, 3) for name in "ab"]
    (query,) = plan_pure(Workload.k_way(plain, [2])).queries
    assert query.is_partition
    assert query.size == 9


@pytest.mark.parametrize("kind", LossKind)
def test_the_best_family_by_the_loss_is_returned(kind):
    best = plan_pure(WORKLOAD, kind)
    for family in FAMILIES:
        other = planned(family)
        mine, theirs = (evaluate_loss(kind, WORKLOAD, p.strategy) for p in (best, other))
        assert mine <= theirs * (1 + 2e-6)


def test_rounding_costs_less_the_more_bits_there_are():
    workload = Workload.k_way([AGES], [1])
    losses = [abs(planned("kronecker", workload, bits).rounding) for bits in (3, 6, 10)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 1e-3


def test_rounded_columns_of_overlapping_sums_have_one_norm_and_keep_their_levels():
    """At weight 100 and a small scale, sums rounded to nearest would leave levels nothing."""
    for weight, scale in itertools.product([0.1, 1.0, 100.0], [4, 64, 1024]):
        theta = weight * np.random.default_rng(3).random((5, 7))
        stacked = np.concatenate([np.eye(7), theta])
        rows = stacked / stacked.sum(axis=0)
        integers, scaled = module._round_attribute(
            AGES, AttributeStrategy(rows, np.linalg.pinv(rows)), scale
        )
        assert len(set(integers.sum(axis=0).tolist())) == 1
        assert integers.sum(axis=0)[0] <= scale
        assert integers.min() >= 0
        assert integers[:7].diagonal().min() > 0
        np.testing.assert_allclose(
            scaled.decoder @ integers, np.eye(7) * integers[:, 0].sum(), atol=1e-6 * scale
        )


def test_too_many_attributes_for_the_bits_are_refused():
    workload = Workload.k_way([AGES, AttributeWorkload.prefix("other", 20)], [2])
    with pytest.raises(SchemaError, match="too many attributes with more strategy rows"):
        plan_pure(workload, bits=3)


PLAIN = Workload.k_way(
    [AttributeWorkload.identity("a", 2), AttributeWorkload.prefix("b", 3), MIXED[1]], range(3)
)
WAYS = {"optimized": 10**6, "largest": 0}  # most cells of tables that are measured


def plain(members: tuple[int, ...]) -> Query:
    levels = [tuple(map(str, range(one.size))) for one in PLAIN.attributes]
    factors = [identity(one) if i in members else total(one) for i, one in enumerate(levels)]
    return Query(str(members), tuple(factors))


@pytest.mark.parametrize("neighbors", Neighbors)
@pytest.mark.parametrize("way", WAYS)
def test_plain_tables_cost_epsilon_exactly_in_a_single_geounit(way, neighbors):
    plan = plan_plain_tables(PLAIN, neighbors, WAYS[way])
    assert sum(plan.shares) == 1
    assert plan.error(EPSILON, neighbors) > 0
    expected = {"optimized": {(0, 1, 2)}, "largest": {(0, 1), (0, 2), (1, 2)}}[way]
    assert {query.kept for query in plan.queries} == expected  # the public total is not among them
    scales = plan.scales(EPSILON, neighbors)
    columns = [query.columns(np.arange(query.n_cells)) for query in plan.queries]

    def cost(shift):
        parts = zip(columns, scales, strict=True)
        return sum(Fraction(int(np.abs(shift(each)).sum())) / scale for each, scale in parts)

    cells = range(plan.queries[0].n_cells)
    if neighbors is Neighbors.UNBOUNDED:
        assert {cost(lambda rows, j=j: rows[:, j]) for j in cells} == {EPSILON}
        return
    pairs = itertools.combinations(cells, 2)
    assert max(cost(lambda rows, p=p: rows[:, p[0]] - rows[:, p[1]]) for p in pairs) == EPSILON


def test_the_public_total_is_not_measured_beside_tables():
    attributes = [AttributeWorkload.identity("a", 200), AttributeWorkload.identity("b", 300)]
    workload = Workload.of_marginals(attributes, [(), ("a",), ("b",)], [100.0, 1.0, 1.0])
    kept = {
        neighbors: [query.name for query in plan_plain_tables(workload, neighbors, 10**6).queries]
        for neighbors in Neighbors
    }
    assert kept[Neighbors.UNBOUNDED] == ["total", "b", "a"]
    assert kept[Neighbors.BOUNDED] == ["b", "a"]
    alone = Workload.of_marginals(attributes, [()])
    [query] = plan_plain_tables(alone, Neighbors.BOUNDED, 0).queries
    assert query.name == "total"


def test_pooled_tables_are_the_least_squares_estimate_with_its_covariances():
    rng = np.random.default_rng(8)
    measured = [((0, 1), 3.0), ((1, 2), 1.0), ((0,), 0.5), ((2,), 7.0)]
    rows = [plain(members).columns(np.arange(plain(()).n_cells)) for members, _ in measured]
    noisy = [rng.integers(0, 50, len(each)) for each in rows]
    pooled = pool_tables(
        PLAIN.attributes,
        [(*one, values) for one, values in zip(measured, noisy, strict=True)],
    )
    roots = [math.sqrt(variance) for _, variance in measured]
    inverse = np.linalg.pinv(np.concatenate([r / s for r, s in zip(rows, roots, strict=True)]))
    cells = inverse @ np.concatenate([y / s for y, s in zip(noisy, roots, strict=True)])
    queries = [plain(members) for members in [(), (0,), (1,), (2,), (0, 1), (1, 2)]]
    dense = [query.columns(np.arange(query.n_cells)) for query in queries]
    for query, matrix in zip(queries, dense, strict=True):
        spread = matrix @ inverse
        np.testing.assert_allclose(answer_product(pooled, query), matrix @ cells, rtol=1e-9)
        found = product_variances(pooled.plan, query)
        np.testing.assert_allclose(found, (spread**2).sum(axis=1), rtol=1e-9)
        other = product_covariances(pooled.plan, query, queries[-1])
        np.testing.assert_allclose(other, spread @ (dense[-1] @ inverse).T, atol=1e-9)
    with pytest.raises(SchemaError, match="was not planned"):
        answer_product(pooled, plain((0, 2)))


def test_intervals_of_pooled_tables_cover_as_stated_or_more():
    """Sums of a few Laplace variables; 20,000 seeded draws."""
    plan, n_draws = plan_plain_tables(PLAIN, Neighbors.UNBOUNDED, 0), 20_000
    laws = [DiscreteLaplace(scale) for scale in plan.scales(EPSILON, Neighbors.UNBOUNDED)]
    queries = [plain(members) for members in [(0,), (1,), (0, 1)]]
    sizes = [query.size for query in plan.queries]

    def pooled(noise):
        parts = np.split(noise, np.cumsum(sizes)[:-1])
        drawn = zip(plan.queries, laws, parts, strict=True)
        return pool_tables(
            PLAIN.attributes,
            [(query.kept, float(law.continuous_variance), part) for query, law, part in drawn],
        )

    units = [pooled(unit) for unit in np.eye(sum(sizes))]  # pooling is linear
    rows = np.array([np.concatenate([answer_product(u, q) for q in queries]) for u in units])
    stated = np.sqrt(np.concatenate([product_variances(units[0].plan, q) for q in queries]))
    rng, noise = np.random.default_rng(5), []
    for size, law in zip(sizes, laws, strict=True):
        success, shape = -math.expm1(-1 / float(law.scale)), (n_draws, size)
        noise.append(rng.geometric(success, shape) - rng.geometric(success, shape))
    errors = np.concatenate(noise, axis=1) @ rows / stated
    assert (errors**2).mean() == pytest.approx(1, abs=0.02)

    def covered(confidence, definition):
        kind, ones = IntervalKind(confidence), np.ones_like(errors)
        ends = kind.around(errors, ones, 1, definition=definition)
        return ((ends.lower <= 0) & (ends.upper >= 0)).mean()

    assert 0.9 <= covered(0.9, Definition.PURE) < 0.91
    assert 0.99 <= covered(0.99, Definition.PURE) < 0.997
    assert covered(0.99, Definition.ZCDP) < 0.987
