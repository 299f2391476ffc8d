"""Errors by size class add up, and intervals of order statistics hold what they say."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from das.errors import SchemaError
from das.metrics.accuracy import SIZE_EDGES, TRUE_EDGES, bins_of, pack
from das.metrics.replicates import (
    LEAF_SHARES,
    ClassErrors,
    Compared,
    Mark,
    add_errors,
    central,
    class_intervals,
    compare,
    mark_of,
    own_intervals,
)
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from tests.builders.histograms import from_dense

NINE_TENTHS = Fraction(9, 10)


@pytest.fixture
def schema() -> Schema:
    return Schema("s", (Attribute("a", ("x", "y")), Attribute("b", ("u", "v", "w"))))


def counted(errors: list[int], size_bin: int = 2, count_bin: int = 3) -> ClassErrors:
    values, counts = np.unique(np.array(errors, np.int64), return_counts=True)
    bins = np.full(len(values), size_bin), np.full(len(values), count_bin)
    return ClassErrors(pack(values, *bins), counts)


def both(errors: ClassErrors, released: ClassErrors | None = None) -> Compared:
    return Compared(released or errors, errors)


def test_errors_are_counted_by_what_is_seen_on_either_side(schema):
    rng = np.random.default_rng(5)
    release, replicate = rng.poisson(2, (2, 40, 6))
    query = parse_query(schema, "b")
    found = compare(query, from_dense(release), from_dense(replicate))
    for one, other, errors in (
        (release, replicate, found.by_release),
        (replicate, release, found.by_replicate),
    ):
        ours, theirs = (query.answer(from_dense(x)) for x in (one, other))
        size = np.repeat(bins_of(one.sum(1), SIZE_EDGES)[:, None], 3, 1)
        keys = pack(theirs - ours, size, bins_of(ours, TRUE_EDGES)).ravel()
        wanted, counts = np.unique(keys, return_counts=True)
        assert np.array_equal(errors.keys, wanted)
        assert np.array_equal(errors.counts, counts)


def test_other_geounits_are_refused(schema):
    one, other = (from_dense(np.ones((n, 6), np.int64)) for n in (2, 3))
    with pytest.raises(SchemaError, match="other geounits"):
        compare(parse_query(schema, "total"), one, other)


def test_errors_of_parts_add_up_in_any_order():
    parts = [counted([0, 1, 1]), counted([-3]), counted([1, 5], 0, 0)]
    sums = {
        (tuple(one.keys.tolist()), tuple(one.counts.tolist()))
        for order in itertools.permutations(parts)
        for one in [add_errors(order)]
    }
    assert len(sums) == 1
    assert sum(next(iter(sums))[1]) == 6
    assert not len(add_errors([]).keys)


@pytest.mark.parametrize("n", [19, 20, 39, 100])
@pytest.mark.parametrize("confidence", [NINE_TENTHS, Fraction(1, 2), Fraction(95, 100)])
def test_order_statistics_hold_one_more_draw_as_often_as_they_say(n, confidence):
    """Exactly: each rank of the last of n + 1 distinct draws is equally likely."""
    held = 0
    for last in range(n + 1):
        draws = np.array([one for one in range(n + 1) if one != last])
        ends = central(draws, np.ones(n, np.int64), confidence)
        if ends is None:
            assert n + 1 < 2 / (1 - confidence)
            return
        held += ends[0] <= last <= ends[1]
    assert Fraction(held, n + 1) >= confidence
    assert Fraction(held - 2, n + 1) < confidence  # and a narrower one would not


def test_too_few_draws_make_no_interval():
    assert central(np.arange(18), np.ones(18, np.int64), NINE_TENTHS) is None


def test_ends_move_inwards_where_ties_leave_room():
    """Of 100 draws 94 are 0, 3 are -1 and 3 are 4: together outside they are less than a tenth."""
    errors, counts = np.array([-1, 0, 4]), np.array([3, 94, 3])
    assert central(errors, counts, NINE_TENTHS) == (0, 0)
    assert central(errors, np.array([17, 66, 17]), NINE_TENTHS) == (-1, 4)
    assert central(errors, np.array([9, 82, 9]), NINE_TENTHS) == (0, 4)  # 91 are nearer than all
    assert central(errors, np.array([6, 88, 6]), NINE_TENTHS) == (0, 4)
    assert central(errors, np.array([1, 83, 16]), NINE_TENTHS) == (0, 4)


def test_intervals_are_of_their_class_alone():
    first = both(add_errors([counted([0] * 60 + [7] * 40), counted([-2] * 100, 4, 5)]))
    second = both(add_errors([counted([0] * 50 + [7] * 50), counted([-2] * 30, 4, 5)]))
    found = class_intervals(first, second, NINE_TENTHS)
    one, other = 2 * len(TRUE_EDGES) + 3, 4 * len(TRUE_EDGES) + 5
    assert set(found) == {one, other}
    assert (found[one].low, found[one].high, found[one].answers) == (0, 7, 100)
    assert (found[other].low, found[other].high) == (-2, -2)
    assert found[other].mark is Mark.ABOVE


def test_a_class_whose_second_replicates_are_narrower_is_not_covered():
    first, second = both(counted([-4, -2, 0, 2, 4] * 20)), both(counted([-1, 0, 1] * 30))
    (found,) = class_intervals(first, second, NINE_TENTHS).values()
    assert (found.low, found.high) == (-4, 4)
    assert found.expected == 0.2
    assert found.mark is Mark.BELOW


def test_without_second_replicates_nothing_is_said():
    first, none = both(counted([0, 1] * 50)), both(add_errors([]))
    (found,) = class_intervals(first, none, NINE_TENTHS).values()
    assert (found.expected, found.mark) == (None, Mark.UNKNOWN)
    (few,) = class_intervals(both(counted([0, 3])), both(counted([0] * 99)), NINE_TENTHS).values()
    # Student's t of 2 degrees, 2.92, times the root of (0 + 9) / 2.
    assert (few.low, few.high, few.mark) == (-7, 7, Mark.UNKNOWN)


@pytest.mark.parametrize(
    ("coverage", "mark"),
    [(0.879, Mark.BELOW), (0.881, Mark.WITHIN), (0.919, Mark.WITHIN), (0.921, Mark.ABOVE)],
)
def test_marks_are_within_two_points(coverage, mark):
    assert mark_of(coverage, NINE_TENTHS) is mark


EVEN = [*range(-100, 100)]  # errors of standard deviation 58


@pytest.mark.parametrize(
    ("second", "released", "mark"),
    [
        (EVEN * 50, 10_000, Mark.WITHIN),
        ([one + 4 for one in EVEN] * 50, 10_000, Mark.SHIFTED),  # another mean
        (EVEN * 50, 8_000, Mark.SHIFTED),  # replicates have more such answers
        (EVEN * 50, 9_500, Mark.WITHIN),
        ([one + 4 for one in EVEN] * 2, 10_000, Mark.WITHIN),  # which may be chance
    ],
)
def test_a_class_that_changes_from_step_to_step_is_shifted(second, released, mark):
    first = both(counted(EVEN * 50), counted([0] * released))
    (found,) = class_intervals(first, both(counted(second)), NINE_TENTHS).values()
    assert found.mark is mark


def test_own_intervals_hold_one_more_error_as_often_as_they_say():
    """Normal errors, rounded: of 20,000 sums 90 % are held, of a few points more as ends round."""
    rng = np.random.default_rng(3)
    seen = np.full((20_000, 1), 1000)
    errors = np.rint(rng.normal(0, 20, (13, 20_000, 1))).astype(np.int64)
    found = own_intervals(seen, seen + errors[:-1], 0.9)
    truth = seen + errors[-1]
    held = ((found.lower <= truth) & (truth <= found.upper)).mean()
    assert 0.89 < held < 0.93
    narrow = own_intervals(seen, seen + errors[:-1] // 2, 0.9)
    assert ((narrow.lower <= truth) & (truth <= narrow.upper)).mean() < 0.8  # the check has power


def test_one_replicate_makes_no_interval():
    one = np.ones((1, 1), np.int64)
    with pytest.raises(SchemaError, match="too few"):
        own_intervals(one, one[None], 0.9)


def test_intervals_of_leaves_are_wider_by_the_share_of_their_class():
    """Errors -100..99 evenly: of counts of 5 to 9, 7 in 100 stay outside in place of 10."""
    first = both(counted(EVEN * 50))
    (usual,) = class_intervals(first, both(add_errors([])), NINE_TENTHS).values()
    (leaf,) = class_intervals(first, both(add_errors([])), NINE_TENTHS, LEAF_SHARES).values()
    assert (usual.low, usual.high) == (-89, 90)
    assert (leaf.low, leaf.high) == (-92, 93)


@pytest.mark.parametrize(("n", "wanted"), [(100, 0.9), (1000, 0.9), (1000, 0.7)])
def test_intervals_of_whole_numbers_cover_as_often_as_stated_on_average(n, wanted):
    """Rounded normal errors of many spreads, seeded: the mean over classes is the confidence."""
    rng, covered = np.random.default_rng(8), []
    for spread in rng.uniform(1.5, 6, 400):
        draws = np.rint(rng.normal(0, spread, n + 2000)).astype(np.int64)
        low, high = central(
            *np.unique(draws[:n], return_counts=True), Fraction(wanted).limit_denominator(100)
        )
        covered.append(((low <= draws[n:]) & (draws[n:] <= high)).mean())
    assert abs(np.mean(covered) - wanted) < 0.01
