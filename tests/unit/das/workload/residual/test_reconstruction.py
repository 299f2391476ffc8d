"""Reconstruction against dense algebra: unbiased, best, in one go or by batches."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.residual.reconstruction import (
    ResidualAnswers,
    locate_answers,
    reconstruct,
)
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.residual_plans import plan_marginals, plan_oblique, plan_projected
from tests.unit.das.workload.dense import (
    GROUPED,
    MIXED,
    listed,
    marginal_matrix,
    residual_matrix,
    strategy_matrix,
)

PLAIN = tuple(AttributeWorkload.identity(f"a{i}", n) for i, n in enumerate((3, 3, 2, 3)))
CASES = {
    "plain": (plan_marginals, Workload.k_way(PLAIN, range(4))),
    "mixed": (plan_oblique, Workload.k_way(MIXED, range(4))),
    "projected": (plan_projected, Workload.k_way(MIXED, [2])),
    "deficient": (plan_oblique, Workload.k_way(GROUPED, range(4))),
    "irregular": (plan_oblique, Workload.of_marginals(MIXED, [["age", "income"], ["place"]])),
}


@pytest.fixture(params=list(CASES), scope="module")
def plan(request):
    build, workload = CASES[request.param]
    return build(workload)


def exact_answers(plan, histogram):
    return np.concatenate([residual_matrix(plan, s) @ histogram for s in listed(plan.residuals)])


def n_cells(plan):
    return int(np.prod([attribute.size for attribute in plan.workload.attributes]))


def test_without_noise_answers_are_exact(plan):
    histogram = np.random.default_rng(1).integers(0, 50, n_cells(plan)).astype(float)
    residuals = ResidualAnswers(plan, exact_answers(plan, histogram))
    for members in listed(plan.residuals):
        names = plan.workload.names_of(members)
        wanted = marginal_matrix(plan.workload, members) @ histogram
        found = reconstruct(residuals, names)
        assert found.shape == tuple(plan.workload.attributes[i].n_rows for i in members)
        np.testing.assert_allclose(found.ravel(), wanted, atol=1e-7)


def test_any_answers_give_the_least_squares_estimate(plan):
    """Also for answers that no histogram has: W x for the least-squares x."""
    values = np.random.default_rng(2).normal(size=locate_answers(plan)[-1])
    residuals = ResidualAnswers(plan, values)
    spread = np.sqrt(np.repeat(plan.noise, np.diff(residuals.starts)))
    estimate = np.linalg.lstsq(strategy_matrix(plan), values / spread, rcond=None)[0]
    for members in listed(plan.workload.marginals):
        wanted = marginal_matrix(plan.workload, members) @ estimate
        found = reconstruct(residuals, plan.workload.names_of(members))
        np.testing.assert_allclose(found.ravel(), wanted, atol=1e-8)


def test_ranges_over_many_levels_are_summed_not_multiplied():
    """300 levels have 45,150 ranges: W as a matrix would take 108 MB."""
    workload = Workload.k_way(
        (AttributeWorkload.ranges("age", 300), AttributeWorkload.identity("sex", 2)), [2]
    )
    plan = plan_projected(workload)
    values = np.random.default_rng(4).normal(size=locate_answers(plan)[-1])
    residuals = ResidualAnswers(plan, values)
    assert residuals.decoders[0].matrix.shape == (300, 300)
    found = reconstruct(residuals, ["age", "sex"])
    assert found.shape == (45_150, 2)
    single = found[[0, 300, 599]]  # ranges (0, 0), (1, 1), (2, 2)
    np.testing.assert_allclose(found[2], single.sum(0), atol=1e-9)  # range (0, 2)


def test_residual_answers_are_found_by_set():
    plan = plan_projected(Workload.k_way(MIXED, [2]))
    starts = locate_answers(plan)
    sizes = [
        np.prod([len(plan.bases[i].subtraction) for i in members])
        for members in listed(plan.residuals)
    ]
    assert np.diff(starts).tolist() == sizes


def test_unusable_requests_are_refused():
    plan = plan_projected(Workload.k_way(MIXED, [2]))
    values = np.zeros(locate_answers(plan)[-1])
    residuals = ResidualAnswers(plan, values)
    with pytest.raises(SchemaError, match="do not fit the plan"):
        ResidualAnswers(plan, values[1:])
    with pytest.raises(SchemaError, match="names an unknown attribute; got \\['height'\\]"):
        reconstruct(residuals, ["height"])
    with pytest.raises(SchemaError, match="do not contain a set"):
        reconstruct(residuals, ["age", "sex", "income"])
    with pytest.raises(SchemaError, match="is too large to reconstruct") as caught:
        reconstruct(residuals, ["income", "place"], most_bytes=1000)
    assert caught.value.where == "marginal ['income', 'place']"
