"""Intervals cover the truth as often as they say, and would not with another variance."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest

from bench.coverage import (
    SPINE,
    coverage,
    positive_coverage,
    simulate,
    simultaneous_coverage,
)

pytestmark = pytest.mark.slow

RELEASES = 500
LOW, HIGH = 0.89, 0.91


@cache
def simulated():
    return simulate(RELEASES)


@pytest.mark.parametrize("geolevel", SPINE.levels)
def test_ninety_percent_intervals_cover_ninety_percent(geolevel):
    assert LOW < coverage(simulated()[geolevel]) < HIGH


def test_variances_off_by_a_tenth_would_be_seen():
    for geolevel, off in itertools.product(SPINE.levels, [1 / 1.1, 1.1]):
        assert not LOW < coverage(simulated()[geolevel], off**0.5) < HIGH


def enough(geolevel, off=1.0):
    """Releases for 100,000 answers, as far as there are, with errors of another variance."""
    tables = simulated()[geolevel]
    n_answers = sum(one.truth.size for one in tables)
    releases = min(RELEASES, -(-100_000 // n_answers))
    scaled = off**0.5
    return [
        replace(one, errors=one.errors[:releases], standard_errors=scaled * one.standard_errors)
        for one in tables
    ]


@pytest.mark.parametrize("geolevel", SPINE.levels)
def test_intervals_without_negative_truths_cover_as_often(geolevel):
    assert LOW < positive_coverage(enough(geolevel)) < HIGH


@pytest.mark.parametrize("geolevel", ["state", "block_group"])
@pytest.mark.parametrize("off", [1 / 1.1, 1.1])
def test_variances_off_by_a_tenth_would_be_seen_without_negative_truths(geolevel, off):
    assert not LOW < positive_coverage(enough(geolevel, off)) < HIGH


@pytest.mark.parametrize("geolevel", SPINE.levels)
def test_whole_tables_are_covered_at_least_as_often(geolevel):
    assert LOW < simultaneous_coverage(simulated()[geolevel]) < 0.96
