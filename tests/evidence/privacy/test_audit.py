"""Attack a toy pipeline: what an attacker learns stays below the claim, and faults exceed it."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from das.definition import Definition
from das.privacy.accounting import epsilon_from_rho
from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors
from tests.evidence.privacy.attack import epsilon_lower_bounds
from tests.evidence.privacy.toy_pipeline import (
    ONE,
    OTHER,
    exact_zeros,
    half_as_loud,
    honest,
    measured,
    one_stream,
    released,
)

RUNS = 20_000  # of measuring
SOLVED_RUNS = 3_000  # of measuring and solving
DELTAS = [Fraction(0), Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 4)]
BUDGETS = {
    Definition.ZCDP: Budget(Fraction(1, 2), Fraction(1, 100), Neighbors.BOUNDED),
    Definition.PURE: Budget(Fraction(5, 2), Fraction(1, 100), Neighbors.BOUNDED, Definition.PURE),
}
each_definition = pytest.mark.parametrize("definition", list(Definition))
each_fault = pytest.mark.parametrize("fault", [half_as_loud, one_stream, exact_zeros])


def claims(definition) -> dict[Fraction, float]:
    """Epsilon at each delta where something is claimed."""
    one = BUDGETS[definition]
    if definition is Definition.PURE:
        return dict.fromkeys(DELTAS, float(one.total))
    return {delta: epsilon_from_rho(one.total, delta) for delta in DELTAS if delta}


@cache
def outputs(definition, measure_one, runs) -> list[list[np.ndarray]]:
    pair = enumerate((ONE, OTHER))
    return [measured(counts, runs, BUDGETS[definition], seed, measure_one) for seed, counts in pair]


def excess(definition, pair) -> float:
    """By how much the best lower bound of epsilon exceeds the claim."""
    claimed = claims(definition)
    bounds = epsilon_lower_bounds(*pair, list(claimed))
    return max(bound - epsilon for bound, epsilon in zip(bounds, claimed.values(), strict=True))


def attack_measurements(definition, measure_one) -> float:
    pair = [np.concatenate(one, axis=1) for one in outputs(definition, measure_one, RUNS)]
    return excess(definition, pair)


def attack_release(definition, measure_one) -> float:
    budget = BUDGETS[definition]
    pair = [released(one, budget) for one in outputs(definition, measure_one, SOLVED_RUNS)]
    return excess(definition, pair)


@each_definition
def test_measurements_tell_no_more_than_is_claimed(definition):
    assert attack_measurements(definition, honest) <= 0


@each_fault
@each_definition
def test_measurements_with_a_fault_tell_more(definition, fault):
    assert attack_measurements(definition, fault) > 0


@pytest.mark.long
@each_definition
def test_a_release_tells_no_more_than_is_claimed(definition):
    assert attack_release(definition, honest) <= 0


@pytest.mark.long
@each_definition
def test_a_release_with_half_the_noise_tells_more(definition):
    assert attack_release(definition, half_as_loud) > 0


def test_the_attack_finds_what_is_there():
    """An exact relation between coins proves a large epsilon; coins alone prove none."""
    rng = np.random.default_rng(1)
    coins = rng.integers(0, 2, (RUNS, 3)).astype(float)
    same = epsilon_lower_bounds(coins[::2], coins[1::2], DELTAS)
    assert max(same) < 0.1
    coins[1::2, 2] = coins[1::2, 0] + coins[1::2, 1]
    related = epsilon_lower_bounds(coins[::2], coins[1::2], DELTAS[:2])
    assert min(related) > 0.3
    coins[1::2, 1] += 2
    moved = epsilon_lower_bounds(coins[::2], coins[1::2], DELTAS)
    assert min(moved) > 5


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_the_attack_is_nearly_as_good_as_can_be(epsilon):
    """Randomized response has exactly this epsilon; the bound comes close and stays below."""
    rng = np.random.default_rng(2)
    truthful = np.exp(epsilon) / (1 + np.exp(epsilon))
    one, other = (rng.random((2, RUNS, 1)) < truthful).astype(float)
    (bound,) = epsilon_lower_bounds(one, 1 - other, DELTAS[:1])
    assert 0.8 * epsilon < bound <= epsilon
