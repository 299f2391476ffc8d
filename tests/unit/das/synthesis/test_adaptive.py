"""MST, AIM and GEM: exact ledgers, what they select, and what is drawn of their models."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from das.confidential import Confidential
from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import BitSource, NoiseKey, Position, Streams
from das.queries.sensitivity import Neighbors, sensitivity
from das.synthesis.adaptive import (
    AdaptiveRounds,
    _distance,
    _scores,
    measure_adaptively,
    measure_tree,
)
from das.synthesis.graphical import fit_model
from das.synthesis.mixture import Fit, fit_products
from das.synthesis.model import synthesize_chosen, targets_of_marginals
from das.synthesis.records import Domain, Records
from tests.builders.microdata import k_way_error
from tests.builders.streams import bits_at

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 4, 3))
KEY = NoiseKey(bytes(range(32)))
QUICK = AdaptiveRounds(rounds_per_attribute=2, most_megabytes=1.0, steps=60)
FITTERS = {
    "mst": fit_model,
    "aim": fit_model,
    "gem": partial(fit_products, fit=Fit(components=60, rate=0.2, starts=2)),
}
RHOS = (Fraction(1, 200), Fraction(149731, 10**7), Fraction(3, 7))


def dependent(n: int = 4000, seed: int = 2) -> Records:
    """b follows a, d follows c, c a little b; nothing else is dependent."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(0, 2, n), rng.integers(0, 4, n)
    b = np.where(rng.random(n) < 0.8, a, rng.integers(0, 3, n))
    c = np.where(rng.random(n) < 0.3, b, c)
    d = np.where(rng.random(n) < 0.8, c % 3, rng.integers(0, 3, n))
    return Records(DOMAIN, np.stack([a, b, c, d], axis=1))


def by_method(method, rho=Fraction(1, 2), neighbors=Neighbors.UNBOUNDED, data=None):
    truth = Confidential(data or dependent())
    if method == "mst":
        return measure_tree(truth, rho, neighbors, Streams(KEY))
    rounds = replace(QUICK, fitter=FITTERS[method])
    return measure_adaptively(truth, rho, neighbors, Streams(KEY), rounds)


def test_the_ledger_sums_to_rho_and_every_entry_costs_what_it_says():
    for rho, neighbors, method in itertools.product(RHOS, list(Neighbors), ["mst", "aim"]):
        measured = by_method(method, rho, neighbors)
        assert measured.rho == rho
        for answer in (*measured.one_way, *measured.marginals):
            mechanism = answer.mechanism
            (definition, norm) = next(iter(mechanism.norms.items()))
            charged = sensitivity(answer.query, neighbors, norm)
            assert mechanism.cost(definition, charged) == answer.rho
        for selected in measured.selections:
            assert selected.mechanism.rho == selected.mechanism.epsilon**2 / 8
        assert len(measured.selections) == len(measured.marginals)
        for selected, answer in zip(measured.selections, measured.marginals, strict=True):
            assert selected.attributes == answer.query.kept


@pytest.mark.parametrize("neighbors", list(Neighbors))
@pytest.mark.parametrize("method", ["mst", "aim"])
def test_a_selection_is_paid_for_the_most_that_a_neighbor_moves_a_score(method, neighbors):
    """Brute force: every record added or changed. Which sets are scored is the same for all."""
    data, rng = dependent(6), np.random.default_rng(1)
    expected = rng.gamma(1.0, 2.0, (2, 3))
    drawn = Records(DOMAIN, rng.integers(0, DOMAIN.sizes, (30, 4)))

    def scores(records: Records) -> dict[tuple[int, ...], int]:
        if method == "mst":
            return {(0, 1): _distance(records, (0, 1), expected)}
        return _scores(records, drawn, {}, QUICK.order, 0.85)

    at, moved = scores(data), set[int]()
    places = [None] if neighbors is Neighbors.UNBOUNDED else range(len(data.codes))
    for place, cell in itertools.product(places, itertools.product(*map(range, DOMAIN.sizes))):
        others = data.codes if place is None else np.delete(data.codes, place, 0)
        there = scores(Records(DOMAIN, np.concatenate([others, np.array([cell])])))
        assert there.keys() == at.keys()
        moved |= {abs(there[each] - at[each]) for each in at}
    selections = by_method(method, neighbors=neighbors).selections
    assert {each.mechanism.sensitivity for each in selections} == {max(moved)}


class OtherBits(Streams):
    """Streams with the noise of one key and the bits of another."""

    def bits(self, position: Position) -> BitSource:
        return bits_at(self.other, *position)


@pytest.mark.parametrize("method", ["mst", "aim"])
def test_selections_depend_on_their_random_bits(method):
    """The records and all noise are the same; with so little budget no candidate is certain."""
    rounds = AdaptiveRounds(rounds_per_attribute=1, most_megabytes=1.0, steps=5)
    selected = set()
    for number in range(4):
        streams = OtherBits(KEY)
        streams.other = NoiseKey.for_testing(number)
        given = (Confidential(dependent(200)), Fraction(1, 500), Neighbors.UNBOUNDED, streams)
        found = measure_tree(*given) if method == "mst" else measure_adaptively(*given, rounds)
        selected.add(tuple(each.attributes for each in found.selections))
    assert len(selected) > 1


def test_the_tree_joins_what_depends():
    chosen = [set(each.attributes) for each in by_method("mst").selections]
    assert {0, 1} in chosen
    assert {2, 3} in chosen
    assert len(chosen) == 3
    assert set().union(*chosen) == {0, 1, 2, 3}


@pytest.mark.parametrize("method", FITTERS)
def test_with_much_budget_records_are_near_the_truth(method):
    data = dependent()
    measured = by_method(method, Fraction(50), data=data)
    drawn = synthesize_chosen(measured, FITTERS[method], 300, len(data.codes), seed=1)
    errors = [k_way_error(data.codes, drawn.codes, DOMAIN.sizes, k) for k in (1, 2)]
    independent = np.stack(
        [np.random.default_rng(i).permutation(data.codes[:, i]) for i in range(4)], axis=1
    )
    assert errors[0] < 0.01
    assert errors[1] < 0.06
    assert k_way_error(data.codes, independent, DOMAIN.sizes, 2) > 0.25


def test_a_fit_without_noise_has_the_marginals_it_was_given():
    data = dependent()
    measured = by_method("aim", Fraction(10**8), data=data)
    size, targets = targets_of_marginals(measured)
    assert size == pytest.approx(len(data.codes), abs=0.01)
    model = fit_model(DOMAIN.sizes, targets, 2000)
    for each, found in zip(targets, model.marginals(targets), strict=True):
        assert np.abs(found - data.marginal(each) / size).sum() < 0.002


def test_large_models_are_no_candidates():
    rounds = AdaptiveRounds(rounds_per_attribute=2, most_megabytes=60 * 8 / 2**20, steps=20)
    measured = measure_adaptively(
        Confidential(dependent()), Fraction(1, 2), Neighbors.UNBOUNDED, Streams(KEY), rounds
    )
    assert measured.rho == Fraction(1, 2)
    model = fit_model(DOMAIN.sizes, targets_of_marginals(measured)[1], 5)
    assert model.tree.cells <= 60


def test_what_is_said_of_a_selection_does_not_tell_how_many_draws_it_took():
    """How many sets were struck out before one fitted depends on the records: no budget pays for
    it. All 14 sets of up to three attributes are candidates by public numbers."""
    rounds = AdaptiveRounds(rounds_per_attribute=2, most_megabytes=60 * 8 / 2**20, steps=20)
    measured = measure_adaptively(
        Confidential(dependent()), Fraction(1, 2), Neighbors.UNBOUNDED, Streams(KEY), rounds
    )
    assert {selected.n_candidates for selected in measured.selections} == {14}


@pytest.mark.parametrize("method", FITTERS)
def test_nobody_at_all_still_ends(method):
    empty = Records(DOMAIN, np.zeros((0, 4), np.int64))
    measured = by_method(method, Fraction(1, 100), data=empty)
    assert measured.rho == Fraction(1, 100)
    assert len(synthesize_chosen(measured, FITTERS[method], 5, 10, seed=1).codes) == 10


def test_the_same_key_and_seed_give_the_same_records():
    first, second = (
        synthesize_chosen(by_method("aim"), fit_model, 30, 500, seed=4).codes for _ in range(2)
    )
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: by_method("mst", Fraction(0)), BudgetError),
        (lambda: by_method("aim", Fraction(-1)), BudgetError),
        (lambda: AdaptiveRounds(selection_share=Fraction(1)), BudgetError),
        (lambda: AdaptiveRounds(steps=0), BudgetError),
        (
            lambda: by_method(
                "mst", data=Records(Domain(("a",), (2,)), np.zeros((3, 1), np.int64))
            ),
            SchemaError,
        ),
    ],
)
def test_bad_input_is_refused(make, error):
    with pytest.raises(error):
        make()
