"""Limits of every geounit are what its geounits below allow together, and nothing less."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from das.errors import InfeasibleError, OutputError
from invariants.constraints import Constraints
from invariants.facilities import Facilities
from invariants.linear import LinearRow
from invariants.quarters import LivingQuarters
from jobs.pipeline.release.implied import implied_limits, publish_implied, read_limits
from jobs.pipeline.storage.answers import ANSWERS, answer_table
from jobs.pipeline.storage.dataset import Dataset
from solvers.problem import NO_LIMIT
from tests.builders import two_families as two

MINORS = np.array([1, 0, 1, 0])


def limits_at(plan, release, geolevel):
    codes = np.array(sorted(two.at(geolevel)), object)
    stored = Dataset.open(implied_limits(plan, release, geolevel))
    return read_limits(plan, plan.level(geolevel), stored, codes)


def bounded(*, least: int | None, most: int | None, down_to: str = "block"):
    geolevels = two.SPINE.levels[: two.SPINE.levels.index(down_to) + 1]
    return two.plan(limits=Constraints((LinearRow("minors", MINORS, geolevels, least, most),)))


def test_bounds_of_a_row_add_up_over_both_families(tmp_path):
    plan, release = bounded(least=1, most=3), two.release(tmp_path)
    publish_implied(plan, release, two.TASKS)
    for geolevel, n in (("block", 1), ("county", 2), ("state", 4)):
        limits = limits_at(plan, release, geolevel)
        assert limits.row_least.tolist() == [[n * 1]] * len(two.at(geolevel))
        assert limits.row_most.tolist() == [[n * 3]] * len(two.at(geolevel))
        assert limits.leaves is None


def test_a_row_without_a_bound_has_none_above(tmp_path):
    plan, release = bounded(least=2, most=None), two.release(tmp_path)
    publish_implied(plan, release, two.TASKS)
    state = limits_at(plan, release, "state")
    assert (state.row_least.item(), state.row_most.item()) == (8, NO_LIMIT)


def test_a_row_of_counties_says_nothing_of_blocks(tmp_path):
    plan, release = bounded(least=None, most=5, down_to="county"), two.release(tmp_path)
    publish_implied(plan, release, two.TASKS)
    assert not release.implied("block").exists()
    assert limits_at(plan, release, "county").row_most.tolist() == [[5], [5]]
    assert limits_at(plan, release, "state").row_most.tolist() == [[10]]
    assert limits_at(plan, release, "state").row_least.tolist() == [[-NO_LIMIT]]


def with_facilities(tmp_path, counts, invariants=()):
    """Facilities by age in each block, of one to four persons each."""
    ages = Facilities(
        two.query("age"), two.SPINE.levels, np.array([1, 1]), np.array([4, 4]), np.array([True] * 2)
    )
    release = two.release(tmp_path)
    table = answer_table(sorted(two.BLOCKS), "facilities age", np.array(counts))
    two.write(release.given("block"), [table], ANSWERS, {"queries": ["facilities age"]})
    return two.plan(limits=Constraints((ages,)), invariants=invariants), release


FACILITIES = [[1, 0], [0, 2], [0, 0], [1, 1]]


def test_leaves_below_hold_what_their_facilities_allow(tmp_path):
    plan, release = with_facilities(tmp_path, FACILITIES)
    publish_implied(plan, release, two.TASKS)
    for geolevel in two.SPINE.levels:
        leaves = limits_at(plan, release, geolevel).leaves
        sums: dict[str, np.ndarray] = {}
        for code, counts in zip(sorted(two.BLOCKS), FACILITIES, strict=True):
            key = code[: two.SPINE.digits[two.SPINE.levels.index(geolevel)]]
            sums[key] = sums.get(key, np.zeros(2, int)) + counts
        for index, counts in enumerate(sums.values()):
            own = leaves.of(index)
            assert own.least.sum(0).tolist() == counts.tolist()
            assert own.most.sum(0).tolist() == (4 * counts).tolist()


def test_exact_totals_bind_the_leaves_of_every_geounit_above(tmp_path):
    """All that counties can hold, by brute force over what their blocks can."""
    invariants = (two.exact("total", "block"),)
    plan, release = with_facilities(tmp_path, FACILITIES, invariants)
    blocks = {"111": (2, 0, 1, 0), "112": (0, 3, 0, 0), "121": (0,) * 4, "122": (1, 2, 0, 2)}
    two.write_exact(release, "block", ["total"], blocks)
    publish_implied(plan, release, two.TASKS)
    fits = {}
    for code, (minor, adult) in zip(sorted(blocks), FACILITIES, strict=True):
        fits[code] = {
            (a, b)
            for a, b in product(range(9), range(9))
            if minor <= a <= 4 * minor and adult <= b <= 4 * adult and a + b == sum(blocks[code])
        }
    leaves = limits_at(plan, release, "county").leaves
    for index, family in enumerate((("111", "112"), ("121", "122"))):
        sums = np.array([np.add(a, b) for a, b in product(*(fits[code] for code in family))])
        own = leaves.of(index)
        assert own.least.sum(0).tolist() == sums.min(0).tolist()
        assert own.most.sum(0).tolist() == sums.max(0).tolist()
        assert own.low.sum() == own.high.sum() == sums[0].sum()


def test_a_total_that_the_facilities_cannot_hold_is_refused(tmp_path):
    plan, release = with_facilities(tmp_path, FACILITIES, (two.exact("total", "block"),))
    two.write_exact(release, "block", ["total"], {**two.BLOCKS, "112": (0, 1, 0, 0)})
    with pytest.raises(InfeasibleError, match="no counts fit"):
        publish_implied(plan, release, two.TASKS)
    assert not (release.implied("block") / "_manifest.json").exists()


QUARTERS = LivingQuarters(("homes", "gq"), np.array([True, False]), two.SPINE.levels)


def with_quarters(tmp_path, counts, *limits):
    release = two.release(tmp_path)
    given = [answer_table(sorted(two.BLOCKS), "living quarters", np.array(counts))]
    queries = ["living quarters"]
    if any(isinstance(limit, Facilities) for limit in limits):
        queries.append("facilities age")
        given.append(answer_table(sorted(two.BLOCKS), queries[1], np.array([[1, 0]] * 4)))
    two.write(release.given("block"), given, ANSWERS, {"queries": queries})
    plan = two.plan(limits=Constraints((QUARTERS, *limits)))
    publish_implied(plan, release, two.TASKS)
    return plan, release


def test_living_quarters_add_up(tmp_path):
    plan, release = with_quarters(tmp_path, [[3, 0], [0, 0], [0, 0], [0, 0]])
    assert limits_at(plan, release, "county").quarters.tolist() == [[3, 0], [0, 0]]
    assert limits_at(plan, release, "state").quarters.tolist() == [[3, 0]]
    assert limits_at(plan, release, "block").leaves is None


def test_bounds_of_a_row_are_of_geounits_with_quarters(tmp_path):
    row = LinearRow("minors", MINORS, two.SPINE.levels, None, 3)
    plan, release = with_quarters(tmp_path, [[3, 0], [0, 0], [0, 1], [2, 2]], row)
    assert limits_at(plan, release, "block").row_most.tolist() == [[3], [0], [3], [3]]
    assert limits_at(plan, release, "county").row_most.tolist() == [[3], [6]]


def test_types_that_are_not_counted_are_nowhere_without_quarters(tmp_path):
    """One facility of minors in each block that holds none or some; adults are not counted."""
    ages = Facilities(
        two.query("age"), two.SPINE.levels, np.array([0, 0]), np.array([4, 4]), np.array([1, 0]) > 0
    )
    plan, release = with_quarters(tmp_path, [[0, 0], [0, 0], [0, 0], [2, 2]], ages)
    counties = limits_at(plan, release, "county").leaves
    assert counties.of(0).most.tolist() == [[0, 0]]
    assert counties.of(1).most[0, 0] == 4
    assert counties.of(1).most[0, 1] >= 10**10


def test_limits_are_of_every_geounit(tmp_path):
    plan, release = bounded(least=1, most=3), two.release(tmp_path)
    publish_implied(plan, release, two.TASKS)
    codes = np.array(["111", "112", "121", "123"], object)
    stored = Dataset.open(implied_limits(plan, release, "block"))
    with pytest.raises(OutputError, match="does not hold every geounit"):
        read_limits(plan, plan.level("block"), stored, codes)
