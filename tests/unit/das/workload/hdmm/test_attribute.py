"""Rows for one attribute: feasible, right inverses, exact gradients, and how good each kind is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.workload.hdmm.attribute import (
    AttributeStrategy,
    measure_total,
    solve_exactly,
)
from das.workload.workload import AttributeWorkload
from tests.unit.das.workload.dense import GROUPED, MIXED

ATTRIBUTES = {f"{each.name} {i}": each for i, each in enumerate((*MIXED, *GROUPED))}


def test_rows_are_feasible_and_the_decoder_inverts_them():
    for total_weight, name in itertools.product([0.0, 3.0, 10000.0], list(ATTRIBUTES)):
        attribute = ATTRIBUTES[name]
        found = solve_exactly(attribute, total_weight)
        lengths = (found.rows**2).sum(0)
        assert lengths.max() == pytest.approx(1)
        queries = np.concatenate([attribute.matrix, np.ones((1, attribute.size))])
        weights = queries @ found.decoder
        np.testing.assert_allclose(weights @ found.rows, queries, atol=1e-6)
        assert found.variance(attribute.gram) == pytest.approx((weights[:-1] ** 2).sum())
        assert found.total_variance == pytest.approx((weights[-1] ** 2).sum())


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
