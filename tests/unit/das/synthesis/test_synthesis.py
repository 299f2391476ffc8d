"""Measuring marginals of records at an exact cost, taking noise out, fitting, drawing."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import NoiseKey, Streams
from das.queries.sensitivity import Neighbors
from das.synthesis.adaptive import measure_tree
from das.synthesis.measure import Spending, measure_marginals, merge_rare
from das.synthesis.mixture import (
    Fit,
    MarginalLoss,
    Mixture,
    PairLoss,
    draw_records,
    fit_mixture,
    synthesize,
)
from das.synthesis.model import Target
from das.synthesis.records import Domain, Merging, Records, unmerge
from das.synthesis.targets import (
    residual_block,
    shrink_block,
    shrink_singular_values,
    targets_of,
)
from das.workload.workload import Weighting

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 4, 3))
KEY = NoiseKey(bytes(range(32)))
PLAIN = Spending(pairs_again=0)


def dependent(n: int = 4000, seed: int = 2) -> Records:
    """b follows a, d follows c; the pairs are independent of one another."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(0, 2, n), rng.integers(0, 4, n)
    b = np.where(rng.random(n) < 0.8, a, rng.integers(0, 3, n))
    d = np.where(rng.random(n) < 0.8, c % 3, rng.integers(0, 3, n))
    return Records(DOMAIN, np.stack([a, b, c, d], axis=1))


def measured(rho=Fraction(1, 2), data=None, spending=PLAIN, neighbors=Neighbors.UNBOUNDED):
    truth = Confidential(data or dependent())
    return measure_marginals(truth, rho, neighbors, Streams(KEY), spending=spending)


def shares_of(mixture, attributes):
    """The mean over components of the products of their distributions."""
    letters = "abcd"[: len(attributes)]
    terms = ",".join(f"k{letter}" for letter in letters)
    levels = [mixture.levels[i] for i in attributes]
    return np.einsum(f"{terms}->{letters}", *levels) / len(levels[0])


def answers_of(result):
    return [*result.one_way, *result.residuals, *result.again]


@pytest.mark.parametrize("neighbors", list(Neighbors))
@pytest.mark.parametrize("again", [0, 2])
def test_every_pair_of_neighbors_costs_at_most_rho(neighbors, again):
    """Brute force over all cells: what moving one record does to all answers, in fractions."""
    rho = Fraction(3, 200)
    result = measured(rho, spending=Spending(pairs_again=again), neighbors=neighbors)
    assert result.rho == rho
    columns = []
    for cell in itertools.product(*map(range, DOMAIN.sizes)):
        codes = np.array([cell])
        merged = np.stack(
            [new[codes[:, i]] for i, new in enumerate(result.merging.new_level)], axis=1
        )
        parts = []
        for phase, answers in (
            (Records(DOMAIN, codes), result.one_way),
            (Records(result.merged, merged), (*result.residuals, *result.again)),
        ):
            parts += [(phase.answer(a.query), a.mechanism.sigma_sq) for a in answers]
        columns.append(parts)
    none = [(0 * answer, sigma_sq) for answer, sigma_sq in columns[0]]
    others = columns if neighbors is Neighbors.BOUNDED else [none]
    worst = max(
        sum(
            Fraction(int(((x - y) ** 2).sum())) / (2 * sigma_sq)
            for (x, sigma_sq), (y, _) in zip(one, other, strict=True)
        )
        for one in columns
        for other in others
    )
    assert worst <= rho
    if not again and neighbors is Neighbors.UNBOUNDED:
        assert worst == rho


def test_residual_blocks_are_centered_tables():
    data = dependent()
    result = measured(Fraction(10**8), data)  # so much that the noise is far below one record
    for answer in result.residuals:
        inside, table, deviation = residual_block(answer)
        expected = data.marginal(inside).astype(float)
        for axis in range(len(inside)):
            expected = expected - expected.mean(axis, keepdims=True)
        assert table == pytest.approx(expected, abs=0.01)
        assert deviation < 0.01


def test_noise_of_a_block_has_the_stated_deviation():
    """Standardized residuals of pairs that hold nobody, over many keys; three standard errors."""
    empty = Records(DOMAIN, np.zeros((0, 4), np.int64))
    squares, freedom = 0.0, 0
    for number in range(40):
        streams = Streams(NoiseKey(number.to_bytes(32, "big")))
        result = measure_marginals(
            Confidential(empty),
            Fraction(1, 50),
            Neighbors.UNBOUNDED,
            streams,
            spending=PLAIN,
        )
        for answer in result.residuals:
            inside, table, deviation = residual_block(answer)
            squares += float((table**2).sum()) / deviation**2
            freedom += math.prod(result.merged.sizes[i] - 1 for i in inside)
    assert freedom > 1000
    assert squares / freedom == pytest.approx(1.0, abs=3 * math.sqrt(2 / freedom))


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_weighting_divides_what_pairs_and_larger_tables_get(neighbors):
    """Exact costs; the more cells count, the more of rho the pairs of attributes take."""
    taken, again = {}, {}
    for weighting in Weighting:
        spending = Spending(pairs_again=2, weighting=weighting)
        result = measured(Fraction(1, 2), spending=spending, neighbors=neighbors)
        assert result.rho <= Fraction(1, 2)
        assert result.rho > Fraction(49, 100)
        pairs = [one.rho for one in result.residuals if len(one.query.kept) == 2]
        taken[weighting] = sum(pairs)
        by_pair = {one.query.kept: one.rho for one in result.again}
        again[weighting] = by_pair[2, 3] / by_pair[0, 1]  # c x d has 12 cells, a x b 6
    for found in (taken, again):
        assert found[Weighting.EQUAL] < found[Weighting.SQUARE_ROOT] < found[Weighting.CELL_SIZE]


def test_rare_levels_are_merged_and_their_records_stay():
    data = Records(Domain(("a", "b"), (4, 2)), np.array([[0, 0], [1, 1]] * 500 + [[3, 0]]))
    result = measured(Fraction(1, 2), data)
    assert result.merging.n_kept[0] == 2
    assert result.merging.new_level[0].tolist() == [0, 1, 2, 2]
    assert result.merged.sizes == (3, 2)
    drawn = synthesize(result, targets_of(result), Fit(20, 40, starts=2), 1000, seed=1)
    assert set(drawn.codes[:, 0]) <= {0, 1, 2, 3}
    merged = unmerge(np.full((50, 2), [2, 1]), result.merging, np.random.default_rng(1))
    assert {*merged[:, 0]} == {2, 3}


def test_levels_are_merged_by_published_counts_alone():
    """With so much noise, the true counts would merge others."""
    data, rho = dependent(250), Fraction(1, 50)
    tree = measure_tree(Confidential(data), rho, Neighbors.UNBOUNDED, Streams(KEY))
    for found in (measured(rho, data), tree):
        true = [replace(one, answers=data.answer(one.query)) for one in found.one_way]
        published, confidential = merge_rare(found.one_way).n_kept, merge_rare(true).n_kept
        assert found.merging.n_kept == published != confidential


def test_a_second_look_takes_the_pairs_that_stand_out():
    result = measured(spending=Spending(pairs_again=2))
    names = {answer.query.name for answer in result.again}
    assert names == {"residual of a * b", "residual of c * d"}
    once, twice = targets_of(measured()), targets_of(result)
    both = [residual_block(one) for one in (*result.residuals, *result.again)]
    precision = sum(deviation**-2 for inside, _, deviation in both if inside == (0, 1))
    assert twice.pair_sd[0, 1] == pytest.approx(precision**-0.5, abs=1e-6)
    assert twice.pair_sd[0, 1] < once.pair_sd[0, 1]
    assert twice.pair_sd[0, 2] > once.pair_sd[0, 2]


def test_shrinking_keeps_what_stands_out_and_drops_noise():
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 1, (20, 30))
    assert not shrink_singular_values(noise * 0.5, 1.0).any()
    signal = 200 * np.outer(rng.normal(0, 1, 20), rng.normal(0, 1, 30))
    found = shrink_singular_values(signal + noise, 1.0)
    assert np.linalg.matrix_rank(found, tol=1e-6) == 1
    assert np.linalg.norm(found - signal) < np.linalg.norm(noise) / 2
    assert shrink_singular_values((signal + noise).T, 1.0) == pytest.approx(found.T)
    assert not shrink_block(np.ones((1, 4)), 10.0, 3).any()
    assert shrink_block(np.full((2, 2), 9.0), 0.0, 3) == pytest.approx(np.full((2, 2), 9.0))


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(7)
    sizes = np.array([2, 3])
    goal, weight = np.zeros((5, 5)), np.zeros((5, 5))
    goal[:2, 2:] = rng.normal(0, 0.1, (2, 3))
    goal += goal.T
    weight[:2, 2:] = weight[2:, :2] = 0.7
    shares, own = np.concatenate([rng.dirichlet(np.ones(size)) for size in sizes]), np.full(5, 0.3)
    loss = PairLoss(sizes, np.array([0, 2]), shares, goal, weight, own)

    def value(scores):
        weights = np.exp(scores)
        q = np.concatenate([w / w.sum(0) for w in (weights[:2], weights[2:])])
        centered = np.concatenate([part - part.mean(0) for part in (q[:2], q[2:])])
        error = centered @ centered.T / q.shape[1] - goal
        # The blocks on the diagonal have no weight; one-way errors count four times.
        return (weight * error**2).sum() + 4 * (own * (q.mean(1) - shares) ** 2).sum()

    scores = rng.normal(0, 1, (5, 4))
    exact = loss.gradient(loss.normalized(scores)) / 4
    assert exact == pytest.approx(numeric_gradient(value, scores), abs=2e-6)


def numeric_gradient(value, scores):
    """By central differences."""
    numeric = np.zeros_like(scores)
    for index in np.ndindex(scores.shape):
        step = np.zeros_like(scores)
        step[index] = 1e-5
        numeric[index] = (value(scores + step) - value(scores - step)) / 2e-5
    return numeric


def test_the_gradient_of_marginals_is_that_of_their_loss():
    rng = np.random.default_rng(8)
    sets = [(0,), (1,), (2,), (3,), (0, 2), (0, 1, 3)]
    targets = {}
    for each in sets:
        shape = [DOMAIN.sizes[i] for i in each]
        targets[each] = Target(rng.random(shape), rng.random(shape) + 0.1)
    loss = MarginalLoss.of(DOMAIN.sizes, targets)
    largest = max(target.weight.max() for target in targets.values())

    def value(scores):
        fitted = loss.mixture(loss.normalized(scores))
        errors = {each: shares_of(fitted, each) - targets[each].shares for each in sets}
        return sum((targets[s].weight * e**2).sum() for s, e in errors.items()) / largest

    scores = rng.normal(0, 1, (sum(DOMAIN.sizes), 5))
    exact = loss.gradient(loss.normalized(scores)) * 2 / 5
    assert exact == pytest.approx(numeric_gradient(value, scores), abs=2e-6)


def test_marginals_given_levels_are_those_of_the_joint_distribution_there():
    rng = np.random.default_rng(4)
    mixture = Mixture(tuple(rng.dirichlet(np.ones(size), 5) for size in DOMAIN.sizes))
    joint = shares_of(mixture, (0, 1, 2, 3))
    whole, pair = mixture.marginals([(0, 1, 2, 3), (0, 2)])
    assert whole == pytest.approx(joint)
    assert pair == pytest.approx(joint.sum((1, 3)))
    (there,) = mixture.marginals([(0, 2)], {1: 2, 3: 1})
    assert there == pytest.approx(joint[:, 2, :, 1] / joint[:, 2, :, 1].sum())


def test_a_fit_is_the_same_on_every_processor():
    """`make test-processors` runs this with the kernels of several; the digest is one of theirs."""
    levels = fit_mixture(
        DOMAIN, targets_of(measured()), Fit(30, 60, starts=2), np.random.default_rng(1)
    ).levels
    digest = hashlib.sha256(b"".join(each.tobytes() for each in levels)).hexdigest()
    assert digest[:16] == "3b845dd489e9d7f3"


def test_a_mixture_reaches_the_tables_it_is_fitted_to():
    data = dependent()
    result = measured(Fraction(100), data)
    targets = targets_of(result)
    mixture = fit_mixture(result.merged, targets, Fit(60, 400, starts=2), np.random.default_rng(1))
    for pair in itertools.combinations(range(4), 2):
        table = data.marginal(pair) / len(data.codes)
        assert np.abs(shares_of(mixture, pair) - table).sum() < 0.04
        alone = np.outer(table.sum(1), table.sum(0))
        if pair in {(0, 1), (2, 3)}:
            assert np.abs(alone - table).sum() > 0.4


@pytest.mark.parametrize("most_cells", [0, 1 << 21])
def test_drawn_records_follow_the_mixture(most_cells, monkeypatch):
    monkeypatch.setattr("das.synthesis.mixture._MOST_CELLS", most_cells)
    rng = np.random.default_rng(3)
    domain = Domain(("a", "b"), (3, 2))
    mixture = Mixture(tuple(rng.dirichlet(np.ones(size), 5) for size in domain.sizes))
    merging = Merging((np.arange(3), np.arange(2)), (3, 2))
    drawn = draw_records(mixture, merging, domain, 20_000, rng)
    for kept in ((0,), (1,), (0, 1)):
        shares = drawn.marginal(kept) / 20_000
        assert np.abs(shares - shares_of(mixture, kept)).max() < 0.01
    assert draw_records(mixture, merging, domain, 0, rng).codes.shape == (0, 2)


@pytest.mark.parametrize("n", [1, 37, 5000])
def test_of_few_cells_every_expected_number_is_rounded_up_or_down(n):
    rng = np.random.default_rng(n)
    sizes = (3, 2, 4, 5)
    domain = Domain(("a", "b", "c", "d"), sizes)
    mixture = Mixture(tuple(rng.dirichlet(np.full(size, 0.3), 6) for size in sizes))
    merging = Merging(tuple(np.arange(size) for size in sizes), sizes)
    drawn = draw_records(mixture, merging, domain, n, rng)
    assert len(drawn.codes) == n
    for kept in ((0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)):  # leading attributes
        expected = n * shares_of(mixture, kept)
        assert np.abs(drawn.marginal(kept) - expected).max() < 1 + 1e-6
    # On average over starts every cell has its expected number.
    total = sum(draw_records(mixture, merging, domain, n, rng).marginal((3,)) for _ in range(200))
    expected = n * shares_of(mixture, (3,))
    assert np.abs(total / 200 - expected).max() < 5 * math.sqrt(n * 0.25 / 200) + 1e-6


def test_too_many_records_are_refused():
    mixture = Mixture((np.full((1, 2), 0.5),))
    merging = Merging((np.arange(2),), (2,))
    with pytest.raises(SchemaError):
        draw_records(
            mixture, merging, Domain(("a",), (2,)), (1 << 24) + 1, np.random.default_rng(1)
        )


def test_the_same_seed_draws_the_same_records():
    result = measured()
    targets = targets_of(result)
    first, second = (
        synthesize(result, targets, Fit(20, 30, starts=2), 500, seed=4) for _ in range(2)
    )
    assert np.array_equal(first.codes, second.codes)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: measured(Fraction(0)), BudgetError),
        (lambda: Spending(one_way=Fraction(1)), BudgetError),
        (lambda: Spending(pairs_again=-1), BudgetError),
        (lambda: Spending(again=Fraction(0)), BudgetError),
        (
            lambda: measured(data=Records(Domain(("a",), (2,)), np.zeros((3, 1), np.int64))),
            SchemaError,
        ),
    ],
)
def test_bad_input_is_refused(make, error):
    with pytest.raises(error):
        make()


def test_nobody_at_all_still_ends():
    empty = Records(DOMAIN, np.zeros((0, 4), np.int64))
    result = measured(Fraction(1, 2), empty)
    assert merge_rare(result.one_way).sizes() == result.merged.sizes
    drawn = synthesize(result, targets_of(result), Fit(5, 5, starts=1), 10, seed=1)
    assert len(drawn.codes) == 10
