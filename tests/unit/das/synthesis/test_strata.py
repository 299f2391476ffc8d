"""Strata: public weights, exact costs in parallel, shrinking, records of every stratum."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.confidential import Confidential
from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import NoiseKey, Streams
from das.queries.sensitivity import Neighbors
from das.synthesis.adaptive import measure_chosen_strata, measure_tree
from das.synthesis.measure import (
    Spending,
    costs_inside,
    measure_sizes,
    measure_strata,
    plan_pairs,
)
from das.synthesis.mixture import Fit, fit_products
from das.synthesis.records import Domain, Records
from das.synthesis.strata import (
    Block,
    MeasuredStrata,
    Prior,
    Strata,
    blocks_of,
    onto_simplex,
    synthesize_strata,
    variance_between,
)
from das.synthesis.targets import centered, residual_block

DOMAIN = Domain(("sex", "b", "race", "c"), (2, 3, 3, 2))
KEY = NoiseKey(bytes(range(32)))
SMALL = Fit(components=30, steps=40, starts=1)
WEIGHTS = np.array([[0.25, 0.2, 0.05]] * 2)


def strata(weights=WEIGHTS, names=("sex", "race"), **more):
    return Strata.of(DOMAIN, names, weights, **more)


def records(n: int = 3000, seed: int = 1) -> Records:
    """b and c depend on one another in a way that the stratum decides."""
    rng = np.random.default_rng(seed)
    sex, race = rng.integers(0, 2, n), rng.choice(3, n, p=[0.5, 0.4, 0.1])
    c = (rng.random(n) < np.where(race == 1, 0.9, 0.3)).astype(np.int64)
    b = np.where(sex == 1, c, rng.integers(0, 3, n))
    return Records(DOMAIN, np.stack([sex, b, race, c], axis=1))


def measured(data=None, rho=Fraction(1, 2), neighbors=Neighbors.UNBOUNDED, **more):
    return measure_strata(
        Confidential(data or records()), strata(**more), rho, neighbors, Streams(KEY)
    )


def test_weights_follow_labels_and_small_ones_are_pooled():
    for made in (strata(least=0.06), strata(WEIGHTS.T, ("race", "sex"), least=0.06)):
        assert made.attributes == (0, 2)
        assert made.groups.tolist() == [[0, 1, 4], [2, 3, 4]]
        assert made.shares() == pytest.approx([0.25, 0.2, 0.25, 0.2, 0.1])
    assert strata(least=0.0).n_strata == 6
    data = records(50)
    expected = [strata(least=0.06).groups[s, r] for s, r in data.codes[:, [0, 2]]]
    assert strata(least=0.06).of_records(data.codes).tolist() == expected


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_every_pair_of_neighbors_costs_at_most_rho(neighbors):
    """Brute force over all cells, strata included: what one record moves, in fractions."""
    rho = Fraction(3, 200)
    result = measured(rho=rho, neighbors=neighbors, least=0.06)
    assert result.rho == rho
    inside = {sum(answer.rho for answer in answers) for answers in result.inside}
    assert {result.population.rho + paid for paid in inside} == {rho}
    everybody = result.population
    inner_sizes = tuple(everybody.merged.sizes[i] for i in (1, 3))
    inner = Domain(("b", "c"), inner_sizes)
    columns = []
    for cell in itertools.product(*map(range, DOMAIN.sizes)):
        codes = np.array([cell])
        new = everybody.merging.new_level
        merged = np.stack([new[i][codes[:, i]] for i in range(4)], axis=1)
        parts = [
            (Records(DOMAIN, codes).answer(a.query), a.mechanism.sigma_sq)
            for a in everybody.one_way
        ]
        parts += [
            (Records(everybody.merged, merged).answer(a.query), a.mechanism.sigma_sq)
            for a in everybody.residuals
        ]
        own = int(result.strata.of_records(codes)[0])
        for stratum, answers in enumerate(result.inside):
            part = Records(inner, merged[:, [1, 3]][: int(stratum == own)])
            parts += [(part.answer(a.query), a.mechanism.sigma_sq) for a in answers]
        columns.append(parts)
    none = [(0 * answer, sigma_sq) for answer, sigma_sq in columns[0]]
    others = columns if neighbors is Neighbors.BOUNDED else [none]
    costs = [
        sum(
            Fraction(int(((x - y) ** 2).sum())) / (2 * sigma_sq)
            for (x, sigma_sq), (y, _) in zip(one, other, strict=True)
        )
        for one in columns
        for other in others
    ]
    assert max(costs) <= rho
    if neighbors is Neighbors.UNBOUNDED:
        assert max(costs) == rho


def chosen(data: Records, rho: Fraction, neighbors=Neighbors.UNBOUNDED) -> MeasuredStrata:
    """Strata of measured sizes, and a tree of pairs of everybody."""
    truth, streams = Confidential(data), Streams(KEY)
    made, sizes = measure_sizes(truth, ["race", "sex"], 0.06, rho / 20, neighbors, streams)
    everybody = measure_tree(truth, rho / 2, neighbors, streams)
    rest = rho - sizes.rho - everybody.rho
    found = measure_chosen_strata(truth, made, everybody, rest, neighbors, streams)
    return replace(found, sizes=sizes)


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_strata_of_measured_sizes_and_selected_marginals_cost_at_most_rho(neighbors):
    """Brute force over all cells, as above; selections, which neighbors share, cost the rest."""
    rho = Fraction(1)
    result = chosen(records(), rho, neighbors)
    everybody = result.population
    selected = sum(one.mechanism.rho for one in everybody.selections)
    assert result.rho == rho
    merged = everybody.merged.only((1, 3))
    columns = []
    for cell in itertools.product(*map(range, DOMAIN.sizes)):
        one = Records(DOMAIN, np.array([cell]))
        recoded = everybody.merging.recode(one)
        parts = [(one, answer) for answer in (result.sizes, *everybody.one_way)]
        parts += [(recoded, answer) for answer in everybody.marginals]
        own = int(result.strata.of_records(one.codes)[0])
        for stratum, answers in enumerate(result.inside):
            inner = Records(merged, recoded.codes[:, [1, 3]][: int(stratum == own)])
            parts += [(inner, answer) for answer in answers]
        columns.append(
            [(data.answer(answer.query), answer.mechanism.sigma_sq) for data, answer in parts]
        )
    none = [(0 * answer, sigma_sq) for answer, sigma_sq in columns[0]]
    costs = [
        sum(
            Fraction(int(((x - y) ** 2).sum())) / (2 * sigma_sq)
            for (x, sigma_sq), (y, _) in zip(one, other, strict=True)
        )
        for one in columns
        for other in (columns if neighbors is Neighbors.BOUNDED else [none])
    ]
    assert max(costs) <= rho - selected
    if neighbors is Neighbors.UNBOUNDED:
        assert max(costs) == rho - selected


@pytest.mark.parametrize("is_alike", [False, True])
def test_strata_of_selected_marginals_keep_what_is_their_own_and_shrink_what_is_noise(is_alike):
    """By the distance of b and c in the large strata from the truth, drawn and as measured."""
    data = records(6000)
    if is_alike:  # b and c no longer know the stratum
        order = np.random.default_rng(2).permutation(6000)
        data = Records(DOMAIN, np.where([True, False, True, False], data.codes, data.codes[order]))
    result = chosen(data, Fraction(1, 100))
    assert result.strata.groups.tolist() == [[0, 1, 4], [2, 3, 4]]
    drawn = synthesize_strata(result, Fit(steps=200), 6000, 3)
    measured_distance = drawn_distance = 0.0
    for stratum, (sex, race) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        true = data.marginal((0, 2, 1, 3))[sex, race]
        made = drawn.marginal((0, 2, 1, 3))[sex, race]
        noisy = result.inside[stratum][-1].answers.reshape(true.shape)
        measured_distance += np.abs(noisy - true).sum() / true.sum()
        drawn_distance += np.abs(made / made.sum() - true / true.sum()).sum()
    assert drawn_distance < (0.6 if is_alike else 0.8) * measured_distance
    assert len(synthesize_strata(chosen(records(0), Fraction(1)), SMALL, 20, 1).codes) == 20


def test_mixtures_of_selected_marginals_keep_what_strata_have_of_their_own():
    data = records(6000)
    fitter = partial(fit_products, fit=Fit(20, starts=2))
    drawn = synthesize_strata(chosen(data, Fraction(10)), Fit(steps=60), 6000, 3, fitter)
    true, made = (each.marginal((0, 2, 1, 3))[:, :2] for each in (data, drawn))
    means = true.sum((0, 1)) / true.sum()
    inside = [each / each.sum((2, 3), keepdims=True) for each in (true, made)]
    assert np.abs(inside[1] - inside[0]).sum((2, 3)).max() < 0.15
    assert np.abs(means - inside[0]).sum((2, 3)).max() > 0.3


def test_the_noise_of_strata_does_not_depend_on_their_true_sizes():
    """All records move to one sex; the total, and its noise, are the same."""
    data = records()
    moved = Records(DOMAIN, data.codes * [0, 1, 1, 1] + [1, 0, 0, 0])
    noise = [
        [[one.mechanism for one in answers] for answers in measured(each).inside]
        for each in (data, moved)
    ]
    assert noise[0] == noise[1]


def test_records_have_public_shares_and_what_is_their_own():
    data = records()
    result = measured(data, Fraction(100), least=0.06)
    drawn = synthesize_strata(result, SMALL, 2000, 3)
    counts = drawn.marginal((0, 2)) / 2000
    assert counts[:, :2] == pytest.approx(np.array([[0.25, 0.2], [0.25, 0.2]]), abs=6e-4)
    assert counts[:, 2].sum() == pytest.approx(0.1, abs=1e-3)
    for sex, race in ((0, 0), (1, 1)):
        true = data.marginal((0, 2, 1, 3))[sex, race] / data.marginal((0, 2))[sex, race]
        found = drawn.marginal((0, 2, 1, 3))[sex, race] / drawn.marginal((0, 2))[sex, race]
        assert np.abs(true - found).sum() < 0.12
    again = synthesize_strata(result, SMALL, 2000, 3)
    assert np.array_equal(drawn.codes, again.codes)


def test_weights_of_a_sample_give_way_to_precise_counts():
    wrong = np.array([[0.15, 0.3, 0.05]] * 2)
    data = records()
    true = data.marginal((0, 2)) / len(data.codes)
    for sample, is_near in ((20, True), (None, False)):
        result = measured(data, Fraction(100), weights=wrong, sample=sample)
        counts = synthesize_strata(result, SMALL, 2000, 3).marginal((0, 2)) / 2000
        assert (np.abs(counts - true).max() < 0.03) == is_near


@pytest.mark.parametrize("n", [0, 1])
def test_strata_of_nobody_or_one_record(n):
    data = records()
    is_rare = (data.codes[:, 2] == 2) & (data.codes[:, 0] == 1)
    rare = np.flatnonzero(is_rare)[n:]
    data = Records(DOMAIN, np.delete(data.codes, rare, axis=0))
    result = measured(data)
    assert result.rho == Fraction(1, 2)
    drawn = synthesize_strata(result, SMALL, 500, 1)
    assert len(drawn.codes) == 500
    nobody = Records(DOMAIN, np.zeros((0, 4), np.int64))
    assert len(synthesize_strata(measured(nobody), SMALL, 20, 1).codes) == 20
    assert len(synthesize_strata(measured(nobody), SMALL, 0, 1).codes) == 0


def blocks(variance: float, seed: int) -> list[Block]:
    """Strata of 50 to 50,000 records whose shares vary about one model's, each with its noise."""
    rng = np.random.default_rng(seed)
    model = rng.dirichlet(np.full(20, 2.0))
    out = []
    for size in np.geomspace(50, 50_000, 40).astype(int):
        shares = rng.dirichlet(model * (1 / variance - 1)) if variance else model
        counts = rng.multinomial(size, shares).reshape(4, 5)
        noisy = centered(counts + rng.normal(0, 30.0, (4, 5)))
        out.append(Block.of(noisy, model.reshape(4, 5), 30.0, float(size)))
    return out


def test_a_block_varies_as_the_cell_of_one_record():
    """The covariance of a centered table of one record, summed over the cells it may be in."""
    shares = np.random.default_rng(1).dirichlet(np.ones(6)).reshape(2, 3)
    block = Block.of(np.zeros((2, 3)), shares, 1.0, 10.0)
    ones = [centered(np.eye(6)[cell].reshape(2, 3)).reshape(-1) for cell in range(6)]
    mean = sum(p * one for p, one in zip(shares.reshape(-1), ones, strict=True))
    expected = sum(
        p * np.outer(one - mean, one - mean)
        for p, one in zip(shares.reshape(-1), ones, strict=True)
    )
    assert block.goal.reshape(-1) == pytest.approx(10 * mean)
    assert (block.axes * block.scales) @ block.axes.T == pytest.approx(expected, abs=1e-12)
    assert block.axes.T @ block.axes == pytest.approx(np.eye(2), abs=1e-12)
    assert len(block.scales) == 2


def test_variation_between_strata_is_found_and_noise_is_not_taken_for_it():
    """On the strict side: of 12 the mean was 0.0081, their standard deviation 0.0013."""
    assert variance_between(blocks(0.0, 1)) == 0.0
    found = [variance_between(blocks(0.01, seed)) for seed in range(12)]
    assert 0.006 < np.mean(found) < 0.01


def test_large_strata_keep_what_is_their_own_and_small_ones_the_common_model():
    every = blocks(0.01, 3)
    variance = variance_between(every)
    small, large = every[0], every[-1]
    for block, kept in ((small, 0.01), (large, 0.99)):
        moved = np.linalg.norm(block.shrunk(variance) - block.goal)
        whole = np.linalg.norm(block.noisy - block.goal)
        assert moved / whole == pytest.approx(kept, abs=0.02)


def test_what_is_rare_everywhere_is_believed_less_than_what_is_common():
    """Noise of 20 in a cell of one in a thousand is noise; in one of a third it may be a stratum."""
    shares = np.array([0.34, 0.33, 0.329, 0.001])
    noisy = centered(shares * 1000) + centered(np.array([20.0, -20.0, 0.0, 20.0]))
    block = Block.of(noisy, shares, 10.0, 1000.0)
    counts = block.shrunk(0.001) + 250.0
    # The first levels vary by 33 * (1 + 1000 / 1000) records^2, against 100 of the noise: five
    # sixths are kept; of the last, some hundredth.
    assert counts[0] - counts[1] - 10.0 == pytest.approx(40 * 0.87, abs=2)
    assert abs(counts[3] - 1.0) < 2.0


@pytest.mark.parametrize(
    ("distance", "size_sd", "part"),  # in standard deviations of the noise
    [(4.0, 0.0, 1.0), (2.0, 0.0, 0.0), (2.0, 1e6, 1.0), (2.0, 1.0, 0.5)],
)
def test_sizes_are_known_by_precision(distance, size_sd, part):
    """A public size that noise contradicts is given up; others meet the noisy one in between."""
    answers = measured(least=0.06).inside[0]
    _, noisy, deviation = next(found for found in map(residual_block, answers) if not found[0])
    public = float(noisy) + distance * deviation
    levels = tuple(np.full((1, n), 1 / n) for n in (3, 2))
    size, found = blocks_of(answers, Prior(levels, np.ones(1), public, size_sd * deviation))
    assert size == pytest.approx(public + part * (float(noisy) - public), abs=2e-3)
    assert {block.size for block in found.values()} == {size}


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_small_strata_pay_for_sizes_and_one_way_tables(neighbors):
    inner = Domain(("a", "b", "c"), (2, 3, 4))
    plan = plan_pairs(inner, neighbors).measure_exactly(Fraction(1, 100))
    parts = {}
    for size in (0.0, 1e3, 1e12):
        costs = costs_inside(plan, size)
        assert sum(cost for _, cost in costs) == plan.rho
        parts[size] = [sum(c for q, c in costs if len(q.kept) == k) / plan.rho for k in (1, 2)]
    of_plan = [
        sum(exact.rho for exact in plan.queries() if len(exact.query.kept) == k) / plan.rho
        for k in (1, 2)
    ]
    assert parts[1e12] == of_plan
    assert parts[0.0][1] == of_plan[1] / 64
    assert parts[0.0][0] > parts[1e3][0] > of_plan[0]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=6), st.floats(0, 100, exclude_min=False))
def test_the_nearest_point_of_a_simplex(values, total):
    """Karush, Kuhn and Tucker: one shift for all that are positive, none less moved at 0."""
    at = np.array(values)
    found = onto_simplex(at, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, abs=1e-9)
    if found.any():
        shift = (at - found)[found > 0]
        assert shift == pytest.approx(shift[0], abs=1e-9)
        assert (at[found == 0] <= shift[0] + 1e-9).all()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: strata(WEIGHTS.reshape(-1)), SchemaError),
        (lambda: strata(np.vstack([WEIGHTS, np.zeros((1, 3))])), SchemaError),
        (lambda: strata(WEIGHTS * 1.05), SchemaError),
        (lambda: strata(np.array([[0.75, -0.3, 0.05], [0.25, 0.2, 0.05]])), SchemaError),
        (lambda: strata(WEIGHTS * float("nan")), SchemaError),
        (lambda: strata(names=("sex", "sex")), SchemaError),
        (lambda: strata(names=("sex", "none")), SchemaError),
        (lambda: strata(names=("sex", "race", "b")), SchemaError),
        (
            lambda: measure_strata(
                Confidential(records()),
                strata(),
                Fraction(1),
                Neighbors.BOUNDED,
                Streams(KEY),
                Spending(population=Fraction(1)),
            ),
            BudgetError,
        ),
    ],
)
def test_bad_input_is_refused(make, error):
    with pytest.raises(error):
        make()
