"""Integer strategies: exact cost, unbiased answers, and how much rounding costs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.errors import SchemaError
from das.queries.factor import FactorKind
from das.queries.sensitivity import Neighbors
from das.workload.hdmm.integer import round_to_integers
from das.workload.hdmm.marginals import optimize_marginals
from das.workload.hdmm.strategies import optimize_kronecker, optimize_union
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.histograms import from_dense
from tests.unit.das.queries.pairs_of_records import pair_costs
from tests.unit.das.workload.dense import GROUPED, MIXED, listed, marginal_matrix, partition

ATTRIBUTES = (*MIXED[:2], partition("race", [0, 1, 1, 2, 0]))
WORKLOAD = Workload.k_way(ATTRIBUTES, range(3))
FAMILIES = {
    "kronecker": optimize_kronecker,
    "union": optimize_union,
    "marginals": optimize_marginals,
}


@pytest.mark.parametrize("neighbors", list(Neighbors))
@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_cost_is_one_exactly(family, neighbors):
    found = round_to_integers(FAMILIES[family](WORKLOAD), neighbors=neighbors)
    assert 1 - Fraction(1, 2**47) <= found.privacy_cost <= 1
    assert sum(found.shares) == 1
    worst = pair_costs(found.queries, found.noise).of(neighbors)
    assert 2 * worst <= found.privacy_cost
    assert 2 * worst >= 1 - Fraction(1, 2**12)
    assert all(type(sigma_sq) is Fraction and sigma_sq > 0 for sigma_sq in found.noise)
    assert len({query.name for query in found.queries}) == len(found.queries)
    # The squared column norms of all queries over their noise, cell by cell.
    cells = np.arange(found.queries[0].n_cells)
    costs = [Fraction(0)] * len(cells)
    for query, sigma_sq in zip(found.queries, found.noise, strict=True):
        for cell, column in enumerate(query.columns(cells).T.tolist()):
            costs[cell] += Fraction(sum(x * x for x in column)) / sigma_sq
    assert max(costs) <= (1 if neighbors is Neighbors.UNBOUNDED else Fraction(1, 2))
    assert max(costs) > Fraction(2, 5)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_answers_without_noise_are_exact_and_the_error_is_that_of_the_rows(family):
    found = round_to_integers(FAMILIES[family](WORKLOAD), scale=64)
    counts = np.random.default_rng(2).integers(1, 50, 40)
    histograms = from_dense(counts[None])
    noiseless = [query.answer(histograms)[0] for query in found.queries]
    error = 0.0
    for weight, members in zip(WORKLOAD.weights, listed(WORKLOAD.marginals), strict=True):
        names = WORKLOAD.names_of(np.array(members, np.int64))
        expected = marginal_matrix(WORKLOAD, members) @ counts
        np.testing.assert_allclose(found.answer(noiseless, names), expected, rtol=1e-7)
        for place, sigma_sq in enumerate(found.noise):
            for k in range(len(noiseless[place])):
                unit = [np.zeros(len(each)) for each in noiseless]
                unit[place][k] = 1.0
                error += weight * float(sigma_sq) * (found.answer(unit, names) ** 2).sum()
    assert found.strategy.error == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_loss_is_what_rounding_costs_and_falls_with_the_scale(family):
    strategy = FAMILIES[family](Workload.k_way(MIXED[:3], [2]))
    found = [round_to_integers(strategy, scale=scale) for scale in (16, 256, 1 << 16)]
    losses = [each.loss for each in found]
    for each in found:
        assert each.strategy.error / strategy.error - 1 == pytest.approx(each.loss)
    if family == "marginals":
        assert losses == [0, 0, 0]
    else:
        assert losses[0] > 10 * abs(losses[1]) > 10 * abs(losses[2])
        assert abs(losses[2]) < 1e-4


def test_plain_counts_stay_plain():
    workload = Workload.k_way([AttributeWorkload.identity(name, 3) for name in "ab"], [2])
    (query,) = round_to_integers(optimize_kronecker(workload)).queries
    assert [factor.kind for factor in query.factors] == [FactorKind.IDENTITY] * 2
    alone = Workload.of_marginals(workload.attributes, [("a",)])
    (query,) = round_to_integers(optimize_kronecker(alone)).queries
    assert [factor.kind for factor in query.factors] == [FactorKind.IDENTITY, FactorKind.TOTAL]


def test_levels_never_told_apart_keep_equal_columns():
    race = Workload.k_way(ATTRIBUTES[2:], [1])
    (query,) = round_to_integers(optimize_kronecker(race)).queries
    columns = query.factors[0].matrix.T.tolist()
    assert columns[0] == columns[4]
    assert columns[1] == columns[2] != columns[3]


def test_rows_that_rounding_would_lose_are_refused():
    """Three rows over four different levels: rounding moves the space they span."""
    odd = Workload.k_way(GROUPED[2:], [1])
    assert odd.attributes[0].matrix.shape == (3, 4)
    with pytest.raises(SchemaError, match="not determined by rounded rows; got scale 1000; choose"):
        round_to_integers(optimize_kronecker(odd), scale=1000)
