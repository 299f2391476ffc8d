"""Variances of all answers with their numbers, beside the dense rows of every family."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.choices import Method
from das.workload.hdmm.marginals import optimize_marginals
from das.workload.hdmm.strategies import optimize_kronecker, optimize_union
from das.workload.plan import plan_workload
from das.workload.variances import list_average_variances, list_largest_variances, list_spreads
from das.workload.workload import AttributeWorkload, Weighting, Workload
from tests.builders.residual_plans import plan_oblique
from tests.unit.das.workload.test_plan import answer_variances, stacked

SEX, AGE = AttributeWorkload.identity("sex", 2), AttributeWorkload.prefix("age", 5)
GIVEN = AttributeWorkload.from_matrix("kind", np.array([[1, 1, 1], [1, 0, 0], [1, 0, -1]]))
WORKLOADS = {
    "plain": Workload.k_way([SEX, AttributeWorkload.identity("age", 5)], range(3)),
    "mixed": Workload.k_way([SEX, AGE, GIVEN], range(3)),
}
FAMILIES = {
    "oblique": plan_oblique,
    "product": optimize_kronecker,
    "marginals": optimize_marginals,
    "largest": lambda workload: plan_workload(workload, Method.RESIDUAL_PLANNER_PLUS).strategy,
}
# Levels of the attributes of the Adult data.
ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)


def test_every_answer_is_counted_once_with_its_variance():
    for family, name in itertools.product(FAMILIES, WORKLOADS):
        workload = WORKLOADS[name]
        strategy = FAMILIES[family](workload)
        spreads = list_spreads(strategy)
        dense = answer_variances(stacked(strategy), workload)
        assert len(spreads) == len(dense)
        for spread, answers in zip(spreads, dense, strict=True):
            found = np.repeat(spread.values, spread.counts.astype(int))
            np.testing.assert_allclose(np.sort(found), np.sort(answers), rtol=1e-6)


@pytest.mark.parametrize("name", WORKLOADS)
def test_means_and_maxima_are_those_of_the_spreads(name):
    """Also of unions, in which every marginal is answered by one part."""
    workload = WORKLOADS[name]
    apart = Workload.of_marginals(
        [AttributeWorkload.prefix("age", 10), AttributeWorkload.prefix("income", 9)],
        [("age",), ("income",)],
        [1.0, 5.0],
    )
    for strategy in (optimize_union(apart), optimize_union(workload), plan_oblique(workload)):
        spreads = list_spreads(strategy)
        means = [one.values @ one.counts / one.counts.sum() for one in spreads]
        np.testing.assert_allclose(means, list_average_variances(strategy), rtol=1e-9)
        largest = [one.values.max() for one in spreads]
        np.testing.assert_allclose(largest, list_largest_variances(strategy), rtol=1e-9)
    assert len(optimize_union(apart).parts) == 2


@pytest.mark.parametrize(
    ("weighting", "least", "most", "sign"),
    [
        (Weighting.EQUAL, 2, 3, 1),
        (Weighting.SQUARE_ROOT, 10, 40, -1),
        (Weighting.CELL_SIZE, 300, 1000, -1),
    ],
)
def test_the_more_size_counts_the_more_large_marginals_are_favored(weighting, least, most, sign):
    """Figures 1 to 3 of ResidualPlanner+: all 470 marginals of up to 3 attributes of Adult.

    With equal weights over twice the variance in large marginals; else orders of magnitude less.
    """
    attributes = [AttributeWorkload.identity(f"a{i}", size) for i, size in enumerate(ADULT)]
    workload = Workload.k_way(attributes, range(4), weighting)
    spreads = list_spreads(plan_oblique(workload))
    assert [len(one.values) for one in spreads] == [1] * 470
    variances = np.array([one.values[0] for one in spreads])
    assert least <= variances.max() / variances.min() <= most
    sizes = np.array([one.counts[0] for one in spreads])
    np.testing.assert_array_equal(sizes, workload.sizes)
    assert sign * np.corrcoef(np.log(sizes), np.log(variances))[0, 1] > 0.8


def test_too_many_distinct_variances_are_refused():
    with pytest.raises(
        SchemaError, match="are too many; got 33 distinct ones; expected at most 32"
    ):
        list_spreads(plan_oblique(WORKLOADS["mixed"]), most_values=32)
