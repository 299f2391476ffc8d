"""Rows for one attribute: feasible, right inverses, exact gradients, and how good each kind is."""

from __future__ import annotations

import numpy as np
import pytest

from das.workload.hdmm.attribute import (
    AttributeStrategy,
    evaluate_p_identity,
    measure_total,
    p_identity_solver,
    solve_exactly,
)
from das.workload.workload import AttributeWorkload
from tests.unit.das.workload.dense import GROUPED, MIXED

ATTRIBUTES = {f"{each.name} {i}": each for i, each in enumerate((*MIXED, *GROUPED))}
SOLVERS = {"exact": solve_exactly, "2-identity": p_identity_solver(2)}


@pytest.mark.parametrize("solver", list(SOLVERS))
@pytest.mark.parametrize("total_weight", [0.0, 3.0, 1e4])
@pytest.mark.parametrize("name", list(ATTRIBUTES))
def test_rows_are_feasible_and_the_decoder_inverts_them(name, total_weight, solver):
    attribute = ATTRIBUTES[name]
    found = SOLVERS[solver](attribute, total_weight, None)
    lengths = (found.rows**2).sum(0)
    assert lengths.max() == pytest.approx(1)
    queries = np.concatenate([attribute.matrix, np.ones((1, attribute.size))])
    weights = queries @ found.decoder
    np.testing.assert_allclose(weights @ found.rows, queries, atol=1e-6)
    assert found.variance(attribute.gram) == pytest.approx((weights[:-1] ** 2).sum())
    assert found.total_variance == pytest.approx((weights[-1] ** 2).sum())


@pytest.mark.parametrize("n_extra_rows", [1, 3])
def test_the_gradient_of_p_identity_is_exact(n_extra_rows):
    rng = np.random.default_rng(n_extra_rows)
    gram = AttributeWorkload.ranges("a", 5).gram
    theta = rng.normal(size=(n_extra_rows, 5))
    value, gradient = evaluate_p_identity(gram, theta)
    rows = np.concatenate([np.eye(5), theta])
    rows /= np.linalg.norm(rows, axis=0)
    assert value == pytest.approx(np.trace(gram @ np.linalg.inv(rows.T @ rows)))
    for place in range(theta.size):
        step = np.zeros(theta.size)
        step[place] = 1e-5
        up, down = (
            evaluate_p_identity(gram, theta + sign * step.reshape(theta.shape))[0]
            for sign in (1, -1)
        )
        assert gradient[place] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("make", [AttributeWorkload.prefix, AttributeWorkload.ranges])
def test_p_identity_reaches_the_optimum_with_enough_rows_and_never_passes_it(make):
    attribute = make("a", 16)
    optimum = solve_exactly(attribute, 0.0).variance(attribute.gram)
    errors = [
        p_identity_solver(p)(attribute, 0.0, None).variance(attribute.gram) for p in (1, 4, 16)
    ]
    assert errors[0] > errors[1] * 1.01 > optimum * 1.01
    assert errors[2] == pytest.approx(optimum, rel=2e-5)
    assert min(errors) >= optimum * (1 - 1e-6)


def test_p_identity_measures_every_level():
    rows = p_identity_solver(3)(AttributeWorkload.prefix("a", 9), 0.0, None).rows
    assert rows.shape == (12, 9)
    np.testing.assert_array_equal(rows[:9], np.diag(rows[:9].diagonal()))
    assert (rows[:9].diagonal() > 0).all()


def test_the_weight_of_the_total_trades_it_for_the_answers():
    attribute = AttributeWorkload.prefix("a", 12)
    found = [solve_exactly(attribute, weight) for weight in (0.0, 10.0, 1e4)]
    totals = [each.total_variance for each in found]
    answers = [each.variance(attribute.gram) for each in found]
    assert totals == sorted(totals, reverse=True)
    assert answers == sorted(answers)
    assert totals[2] == pytest.approx(1, rel=0.1)


def test_the_total_alone():
    assert measure_total(7).total_variance == pytest.approx(1)
    twice = AttributeStrategy(np.eye(3), np.eye(3))
    assert (twice.total_variance, twice.variance(np.eye(3))) == (3, 3)
