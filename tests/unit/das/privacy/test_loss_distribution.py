"""Epsilon from loss distributions: never below the exact one, never above the one from rho."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as distributions

from das.errors import BudgetError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.normal import normal_variance
from das.privacy.accounting import epsilon_from_rho
from das.privacy.joint_shifts import JointShifts
from das.privacy.loss_distribution import Shifts, UnitShifts, losses_of_paths, unit_shift
from das.privacy.losses import Losses
from das.queries.query import Factor, Query, marginal, parse_query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.schema import Attribute, Schema
from tests.builders.histograms import from_dense
from tests.unit.das.privacy.releases import RELEASES, Release, page_rows, read_release, rounded_up

DELTA = Fraction(1, 10**10)
OWN_ROUNDING = 1 - 1e-12  # of the sums in floats that claims are compared with: some 1e-15
GAUSSIAN = DiscreteGaussian


def laplace(epsilon: Fraction) -> DiscreteLaplace:
    return DiscreteLaplace(1 / epsilon)


Law = Callable[[Fraction], Mechanism]


def shifts_of(noise: Law, parameter: Fraction, times: int = 1) -> UnitShifts:
    return UnitShifts(noise(parameter), times)


HalfPath = tuple[tuple[Shifts, ...], ...]  # the shifts of each chain of a path


def losses_along(path: HalfPath, delta: Fraction, neighbors: Neighbors) -> Losses:
    """Of a path on which nothing is an only child."""
    chains = {(level, level): shifts for level, shifts in enumerate(path)}
    return losses_of_paths(len(path), [chains], neighbors, delta)


def epsilon_along(path: HalfPath, delta: Fraction, neighbors: Neighbors) -> float:
    return losses_along(path, delta, neighbors).epsilon(delta)


def pmf(noise: Law, parameter: Fraction) -> np.ndarray:
    """P(-b), ..., P(b), the rest below 10^-37."""
    if noise is GAUSSIAN:
        bound = math.ceil(13 * math.sqrt(parameter))
        weights = np.exp(-(np.arange(-bound, bound + 1.0) ** 2) / (2 * float(parameter)))
    else:
        bound = math.ceil(85 / float(parameter))
        weights = np.exp(-float(parameter) * np.abs(np.arange(-bound, bound + 1.0)))
    return weights / weights.sum()


def joint(shifts: list[tuple[Law, Fraction, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Both joint laws of independent answers, of which one data set moves each by its shift."""
    one, other = np.ones(1), np.ones(1)
    for noise, parameter, shift in shifts:
        law = pmf(noise, parameter)
        here, there = np.append(law, [0] * abs(shift)), np.append([0] * abs(shift), law)
        if shift < 0:
            here, there = there, here
        one, other = np.multiply.outer(one, here).ravel(), np.multiply.outer(other, there).ravel()
        one, other = merged(one, other)
    return one, other


def merged(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The laws of the likelihood ratio: outcomes of one ratio are one.

    Ratios are taken for one that agree in eleven decimals of their logarithm.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.round(np.log(one) - np.log(other), 11)
    _, outcome = np.unique(ratio, return_inverse=True)
    return np.bincount(outcome, one), np.bincount(outcome, other)


def exact_delta(pair: tuple[np.ndarray, np.ndarray], epsilon: float) -> float:
    """The smallest delta for this epsilon in the direction of the pair; sums of positive terms."""
    excess = pair[0] - math.exp(epsilon) * pair[1]
    return float(excess[excess > 0].sum())


def exact_epsilon(pair: tuple[np.ndarray, np.ndarray], delta: float) -> float:
    low, high = 0.0, 700.0
    for _ in range(60):
        middle = (low + high) / 2
        if exact_delta(pair, middle) > delta:
            low = middle
        else:
            high = middle
    return high


# --- against exact sums --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shifts",
    [
        [(GAUSSIAN, Fraction("1.209"), 1)],
        [(GAUSSIAN, Fraction(1, 2), 1), (GAUSSIAN, Fraction(3), 1)],
        [(GAUSSIAN, Fraction(1, 2), 1), (GAUSSIAN, Fraction(2), 1), (GAUSSIAN, Fraction(2), -1)],
        [(GAUSSIAN, Fraction(4), 1), (laplace, Fraction(1, 2), -1)],
        [(laplace, Fraction(1), 1), (laplace, Fraction(1), 1), (GAUSSIAN, Fraction(1), 1)],
    ],
)
def test_it_is_just_above_the_exact_epsilon_in_both_directions(shifts):
    for delta in [Fraction(1, 10**3), Fraction(1, 10**6), DELTA]:
        path = tuple((shifts_of(noise, parameter),) for noise, parameter, _ in shifts)
        claimed = epsilon_along(path, delta, Neighbors.UNBOUNDED)
        one, other = joint(shifts)
        for pair in ((one, other), (other, one)):
            exact = exact_epsilon(pair, float(delta))
            assert exact * OWN_ROUNDING <= claimed <= exact * 1.005


@pytest.mark.parametrize(
    ("sigma_sq", "times"),
    [(Fraction(72) / Fraction("2.56"), 144), (Fraction(2), 60), (Fraction("0.3"), 4)],
)
def test_many_equal_measurements_against_the_law_of_their_sum(sigma_sq, times):
    """The loss of k shifts with one sigma^2 depends on the sum s of the noise only.

    It is (k - 2 s) / (2 sigma^2).
    """
    for delta in [Fraction(1, 10**6), DELTA, Fraction(1, 10**12)]:
        law = pmf(GAUSSIAN, sigma_sq)
        whole = reduce(np.convolve, [law] * times)  # sums of positive terms: exact in the tails too
        sums = np.arange(len(whole)) - times * (len(law) // 2)
        pair = whole, whole * np.exp(np.minimum(-(times - 2 * sums) / (2 * float(sigma_sq)), 700))
        chain = (shifts_of(GAUSSIAN, sigma_sq, times // 2),)
        claimed = epsilon_along((chain,), delta, Neighbors.BOUNDED)
        exact = exact_epsilon(pair, float(delta))
        assert exact * OWN_ROUNDING <= claimed <= exact + 0.002


def test_chains_of_the_path_and_repeated_shifts_are_only_a_way_to_write():
    shift = shifts_of(GAUSSIAN, Fraction(3))
    other = shifts_of(GAUSSIAN, Fraction(7))
    same = [
        ((shift, shift, other),),
        ((shifts_of(GAUSSIAN, Fraction(3), 2), other),),
        ((shift,), (other, shift)),
    ]
    first, *rest = (epsilon_along(path, DELTA, Neighbors.BOUNDED) for path in same)
    assert rest == pytest.approx([first] * 2, abs=1e-3)


# --- neighbors -----------------------------------------------------------------------------------

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")),))
TOTAL, DETAILED = marginal(SCHEMA, ()), marginal(SCHEMA, ("sex",))
# Two blocks: each has its own noise for its own queries, and one geounit holds both.
PLAN = [
    ("nation", TOTAL, Fraction(1)),
    ("nation", DETAILED, Fraction(2)),
    ("block", DETAILED, Fraction(1, 2)),
]


def moves(before: np.ndarray, after: np.ndarray) -> list[tuple[Law, Fraction, int]]:
    """The answers that differ between int64[2, 2] counts by block and sex, with their noise."""
    out = []
    for level, query, sigma_sq in PLAN:
        tables = [t.sum(0, keepdims=True) if level == "nation" else t for t in (before, after)]
        answers = [query.answer(from_dense(table)) for table in tables]
        change = (answers[1] - answers[0]).ravel()
        out += [(GAUSSIAN, sigma_sq, int(step)) for step in change if step]
    return out


def test_every_pair_of_neighbors_keeps_the_promise():
    path = tuple((unit_shift(query, GAUSSIAN(sigma_sq)),) for _, query, sigma_sq in PLAN)
    full = np.full((2, 2), 3, np.int64)
    deltas = [Fraction(1, 10**2), Fraction(1, 10**5)]
    unbounded, bounded = [], []
    for place in np.ndindex(2, 2):
        less = full.copy()
        less[place] -= 1
        unbounded.append(moves(full, less))
        for to in np.ndindex(2, 2):
            changed = less.copy()
            changed[to] += 1
            if to != place:
                bounded.append(moves(full, changed))
    for pairs, neighbors in ((unbounded, Neighbors.UNBOUNDED), (bounded, Neighbors.BOUNDED)):
        for delta in deltas:
            claimed = epsilon_along(path, delta, neighbors)
            distinct = {tuple(sorted(pair, key=str)) for pair in pairs}
            exact = [exact_epsilon(joint(list(pair)), float(delta)) for pair in distinct]
            assert max(exact) * OWN_ROUNDING <= claimed


def test_epsilon_is_rounded_up_and_by_little():
    shifts = [(GAUSSIAN, sigma_sq, 1) for _, _, sigma_sq in PLAN]
    path = tuple((shifts_of(noise, sigma_sq),) for noise, sigma_sq, _ in shifts)
    for delta in (Fraction(1, 100), Fraction(1, 10**5), Fraction(1, 10**8)):
        claimed = epsilon_along(path, delta, Neighbors.UNBOUNDED)
        exact = exact_delta(joint(shifts), claimed)
        assert 0.999 * float(delta) <= exact <= float(delta) / OWN_ROUNDING


CHEAP, DEAR = shifts_of(GAUSSIAN, Fraction(9)), shifts_of(GAUSSIAN, Fraction(2), 2)


def test_the_worst_of_several_tilings_counts_once_per_half():
    """Chains: both geolevels together, or one after the other; the second costs more."""
    chains = {(0, 1): (CHEAP,), (0, 0): (DEAR,), (1, 1): (DEAR,)}
    for neighbors in Neighbors:
        both = losses_of_paths(2, [chains], neighbors, DELTA)
        alone = losses_along(((DEAR,), (DEAR,)), DELTA, neighbors)
        assert alone.epsilon(DELTA) <= both.epsilon(DELTA) <= alone.epsilon(DELTA) + 1e-3


def test_a_mixed_pair_can_be_the_worst():
    """The lattices of two tilings fit together so that both at once lose more than either twice."""
    gaussian, other = (GAUSSIAN, Fraction(1, 2)), (laplace, Fraction(2))
    chains = {(0, 1): (shifts_of(*gaussian),), (0, 0): (shifts_of(*other),)}
    claimed = losses_of_paths(2, [{**chains, (1, 1): chains[0, 0]}], Neighbors.BOUNDED, DELTA)
    for halves in ([gaussian] * 2, [gaussian, other, other], [other] * 4):
        pair = joint([(*shift, 1) for shift in halves])
        for delta in (Fraction(1, 100), Fraction(1, 10**6)):
            assert claimed.epsilon(delta) >= exact_epsilon(pair, float(delta)) * OWN_ROUNDING


def test_the_worst_of_several_strata_counts_and_a_change_may_go_from_one_to_another():
    strata = [{(0, 0): (one,)} for one in (CHEAP, shifts_of(GAUSSIAN, Fraction(4)), DEAR)]
    for neighbors in Neighbors:
        found = losses_of_paths(1, strata, neighbors, DELTA).epsilon(DELTA)
        alone = [losses_of_paths(1, [one], neighbors, DELTA).epsilon(DELTA) for one in strata]
        assert max(alone) - 1e-6 <= found <= max(alone) + 1e-3


# --- planned strategies --------------------------------------------------------------------------

PERSONS = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
SETS = ["total", "contrasts(sex)", "residual(age)", "contrasts(sex) * residual(age)"]


def moved_by(
    shifts: JointShifts, before: tuple[int, int], after: tuple[int, int] | None
) -> tuple[tuple[int, int], ...]:
    """(distance, sigma^2) of the answers that move when a record changes its (block, cell).

    There are two blocks. Without a place after the change, the record is removed.
    """
    out = []
    for geounit in ({0, 1}, {0}, {1}):
        change = np.zeros(6, np.int64)
        for place, sign in ((before, -1), (after, 1)):
            if place is not None and place[0] in geounit:
                change[place[1]] += sign
        for query, noise in zip(shifts.queries, shifts.noise, strict=True):
            steps = reduce(np.kron, [factor.matrix for factor in query.factors]) @ change
            out += [(abs(step), int(noise.parameter)) for step in steps.tolist() if step]
    return tuple(sorted(out))


def delta_of_moves(moves: tuple[tuple[int, int], ...], epsilon: float) -> float:
    """Delta from the exact losses (v^2 - 2 v z) / (2 sigma^2), which lie on a common lattice."""
    unit = 2 * math.lcm(*(sigma_sq for _, sigma_sq in moves))
    masses, lowest = np.ones(1), 0
    for step, sigma_sq in moves:
        law, scale = pmf(GAUSSIAN, Fraction(sigma_sq)), unit // (2 * sigma_sq)
        spread = np.zeros(2 * step * scale * (len(law) - 1) + 1)
        spread[:: 2 * step * scale] = law
        masses = np.convolve(masses, spread)
        lowest += scale * (step**2 - step * (len(law) - 1))
    losses = (lowest + np.arange(len(masses))) / unit
    return float((masses * np.maximum(-np.expm1(epsilon - losses), 0)).sum())


@pytest.mark.parametrize(
    ("sigma_sq", "closeness"), [((8, 8, 24, 24), 1.05), ((2, 48, 96, 96), 1.02)]
)
def test_no_neighbors_lose_more_of_a_planned_strategy_and_some_nearly_as_much(sigma_sq, closeness):
    """Every pair of neighbors of a root with two blocks, all with the same queries and noise."""
    queries = tuple(parse_query(PERSONS, text) for text in SETS)
    shifts = JointShifts(queries, tuple(GAUSSIAN(Fraction(one)) for one in sigma_sq))
    places = [*itertools.product(range(2), range(6))]
    for neighbors, pairs in (
        (Neighbors.UNBOUNDED, [(place, None) for place in places]),
        (Neighbors.BOUNDED, [*itertools.combinations(places, 2)]),
    ):
        distinct = {moved_by(shifts, *pair) for pair in pairs}
        for delta in (Fraction(1, 100), Fraction(1, 10**6)):
            losses = losses_along(((shifts,), (shifts,)), delta, neighbors)
            claimed = losses.epsilon(delta)
            less = claimed / closeness
            assert max(delta_of_moves(m, claimed) for m in distinct) <= delta / OWN_ROUNDING
            assert max(delta_of_moves(m, less) for m in distinct) > delta


def test_planned_and_listed_geolevels_compose_and_strata_are_refused():
    queries = tuple(parse_query(PERSONS, text) for text in SETS)
    planned = JointShifts(queries, (GAUSSIAN(Fraction(100)),) * 4)
    listed = shifts_of(GAUSSIAN, Fraction(9), 2)
    claimed = epsilon_along(((planned,), (listed,)), DELTA, Neighbors.BOUNDED)
    alone = [epsilon_along(((one,),), DELTA, Neighbors.BOUNDED) for one in (planned, listed)]
    assert max(alone) < claimed < sum(alone)
    with pytest.raises(BudgetError, match="strata: have planned strategies"):
        losses_of_paths(1, [{(0, 0): (planned,)}] * 2, Neighbors.BOUNDED, DELTA)


def test_what_rounds_normal_noise_is_no_noise_of_it():
    """Of the variance, r^2 with exp(-2 pi^2 r^2) at most slack / 5 is left out."""
    residual, noise = parse_query(PERSONS, "residual(age)"), GAUSSIAN(Fraction(4))
    (shift,) = JointShifts((residual,), (noise,)).added
    slack = shift.slack / residual.size
    normal = l2_sensitivity_sq(residual, Neighbors.UNBOUNDED) / (2 * shift.unit_rho)
    assert normal == normal_variance(noise, slack)
    assert 5 * math.exp(-2 * math.pi**2 * float(4 - normal)) <= slack


def test_little_noise_of_answers_that_move_by_several_integers_is_refused():
    residual = parse_query(PERSONS, "residual(age)")
    little = JointShifts((residual,), (GAUSSIAN(Fraction(1)),))
    with pytest.raises(BudgetError, match=r"discrete Gaussian noise: has no known losses.*σ² 1;"):
        epsilon_along(((little,),), DELTA, Neighbors.UNBOUNDED)
    other = JointShifts((residual,), (laplace(Fraction(2)),))
    with pytest.raises(BudgetError, match="discrete Laplace noise: has no known losses"):
        epsilon_along(((other,),), DELTA, Neighbors.UNBOUNDED)


# --- published figures ---------------------------------------------------------------------------


def test_seventy_two_queries_and_the_trap():
    """72 queries of rho 2.56 in all: 16.48; the library's coarser rounding gives 16.49 and 16.55.

    One measurement with all of rho gives 12.80.
    """
    rho = Fraction("2.56")
    chain = (shifts_of(GAUSSIAN, 72 / rho, 72),)
    claimed = epsilon_along((chain,), DELTA, Neighbors.BOUNDED)
    assert f"{claimed:.2f}" == "16.48"
    assert claimed <= epsilon_from_rho(rho, DELTA)
    for grid, printed in ((1e-4, "16.49"), (1e-3, "16.55")):
        rounded = distributions.from_discrete_gaussian_mechanism(
            math.sqrt(72 / rho), value_discretization_interval=grid
        ).self_compose(144)
        assert f"{rounded.get_epsilon_for_delta(1e-10):.2f}" == printed
    collapsed = ((shifts_of(GAUSSIAN, 1 / (2 * rho)),),)
    trap = epsilon_along(collapsed, DELTA, Neighbors.UNBOUNDED)
    assert f"{trap:.2f}" == "12.80"


def half_path(release: Release, path: tuple[tuple[int, int], ...]) -> HalfPath:
    """The chains of a tiling: queries of the first geolevel, budget of all of them."""
    out = []
    for first, last in path:
        level = release.spine[first]
        budget = sum(release.shares[name] for name in release.spine[first : last + 1])
        factor = release.shares[level] / budget
        costs = [rho for key, rho in release.rho.items() if key[0] == level]
        out.append(tuple(shifts_of(GAUSSIAN, factor / rho) for rho in costs))
    return tuple(out)


@pytest.mark.parametrize("name", RELEASES)
def test_epsilons_in_the_accounting_page(name):
    ((_, from_rho, from_losses, _),) = (row for row in page_rows("| allocation") if row[0] == name)
    release = read_release(name)
    path = half_path(release, tuple((level, level) for level in range(len(release.spine))))
    claimed = epsilon_along(path, DELTA, Neighbors.BOUNDED)
    assert rounded_up(claimed) == from_losses
    assert rounded_up(epsilon_from_rho(RELEASES[name][1], DELTA)) == from_rho


@pytest.mark.parametrize(
    "name",
    [name if "units" in name else pytest.param(name, marks=pytest.mark.long) for name in RELEASES],
)
def test_epsilons_with_chains_in_the_accounting_page(name):
    ((*_, with_chains),) = (row for row in page_rows("| allocation") if row[0] == name)
    release = read_release(name)
    n_levels = len(release.spine)
    pairs = itertools.combinations_with_replacement(range(n_levels), 2)
    chains = {chain: half_path(release, (chain,))[0] for chain in pairs}
    losses = losses_of_paths(n_levels, [chains], Neighbors.BOUNDED, DELTA)
    assert rounded_up(losses.epsilon(DELTA)) == with_chains


@pytest.mark.parametrize(
    ("rho", "delta"),
    [
        *((rho, DELTA) for rho in ("1/1000", "1")),
        ("1/1000", Fraction(1, 10**12)),
        ("100", Fraction(1, 10**5)),
    ],
)
def test_it_is_never_above_the_epsilon_of_rho(rho, delta):
    """Shares 1 : 2 : ... : 12 of rho; the grid follows rho, so small budgets are not drowned."""
    costs = [Fraction(rho) * share / 78 for share in range(1, 13)]
    path = (tuple(shifts_of(GAUSSIAN, 1 / cost) for cost in costs),)
    assert sum(shift.rho for shift in path[0]) * 2 == Fraction(rho)
    claimed = epsilon_along(path, delta, Neighbors.BOUNDED)
    assert 0 < claimed <= epsilon_from_rho(Fraction(rho), delta)


def test_the_grid_is_fine_enough_for_a_tiny_budget():
    rho = Fraction(1, 10**7)
    path = ((shifts_of(GAUSSIAN, 1 / rho),),)
    claimed = epsilon_along(path, DELTA, Neighbors.BOUNDED)
    assert claimed <= epsilon_from_rho(rho, DELTA)


def test_more_noise_costs_less_and_a_larger_delta_too():
    def epsilon(sigma_sq: str, delta: Fraction) -> float:
        path = ((shifts_of(GAUSSIAN, Fraction(sigma_sq), 20),),)
        return epsilon_along(path, delta, Neighbors.BOUNDED)

    assert epsilon("20", DELTA) > epsilon("21", DELTA) > epsilon("21", DELTA * 2)


def test_the_rho_of_shifts():
    assert shifts_of(GAUSSIAN, Fraction(3), 4).rho == Fraction(2, 3)
    assert shifts_of(laplace, Fraction(1, 3), 4).rho == Fraction(2, 9)


# --- what it refuses -----------------------------------------------------------------------------

ONE = ((shifts_of(GAUSSIAN, Fraction(1)),),)


@pytest.mark.parametrize("delta", [1e-10, Fraction(0), Fraction(1)])
def test_it_refuses_a_delta(delta):
    with pytest.raises(BudgetError, match="delta: must be an exact fraction between 0 and 1"):
        losses_of_paths(1, [{(0, 0): ONE[0]}], Neighbors.BOUNDED, delta)


@pytest.mark.parametrize("chains", [{}, {(0, 0): ()}, {(0, 1): ONE[0]}])
def test_it_refuses_to_account_for_nothing(chains):
    with pytest.raises(
        BudgetError, match="chains: must tile a path, and each chain must measure a query"
    ):
        losses_of_paths(1, [chains], Neighbors.BOUNDED, DELTA)


def test_it_refuses_noise_with_too_many_losses():
    wide = shifts_of(GAUSSIAN, Fraction(10**9))
    with pytest.raises(BudgetError, match=r"privacy losses: .* sigma_sq 1000000000; use the"):
        epsilon_along(((wide,),), DELTA, Neighbors.BOUNDED)


def test_it_refuses_no_shift():
    with pytest.raises(BudgetError, match="shifts: must be at least one; got 0"):
        shifts_of(GAUSSIAN, Fraction(1), 0)


@pytest.mark.parametrize("rows", [[[1, 2]], [[1, 0], [1, 1]], [[1, -1]]])
def test_it_refuses_queries_that_are_not_partitions(rows):
    matrix = np.array(rows, np.int64)
    query = Query("odd", (Factor(matrix, tuple(str(row) for row in range(len(rows)))),))
    with pytest.raises(BudgetError, match="query odd: is not a partition of cells"):
        unit_shift(query, GAUSSIAN(Fraction(1)))


def test_a_query_of_some_cells_moves_one_answer_by_one():
    query = Query("some", (Factor(np.array([[1, 0, 0], [0, 1, 0]], np.int64), ("0", "1")),))
    assert unit_shift(query, GAUSSIAN(Fraction(1))) == UnitShifts(GAUSSIAN(Fraction(1)), 1)
