"""Parity: Definition 11 by hand, exact merging, floors, public expectations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from das.errors import SchemaError
from das.metrics.parity import (
    compare_groups,
    expected_parity,
    merge_groups,
    no_errors,
    parity_of,
)

# Two geounits, three groups, a table of two rows.
TRUTH = np.array([[[10, 5], [2, 0], [0, 0]], [[20, 15], [1, 1], [0, 0]]])
RELEASED = np.array([[[11, 5], [0, 1], [1, 0]], [[17, 16], [1, 0], [0, 0]]])
FIELDS = ("answers", "truth", "released", "net", "absolute", "squared", "largest")


def test_definition_eleven_by_hand():
    errors = compare_groups(TRUTH, RELEASED)
    assert errors.truth.tolist() == [50, 4, 0]
    assert errors.absolute.tolist() == [5, 4, 1]
    assert errors.net.tolist() == [-1, -2, 1]
    assert errors.squared.tolist() == [11, 6, 1]
    assert errors.largest.tolist() == [3, 2, 1]
    assert errors.answers.tolist() == [4, 4, 4]
    parity = parity_of(errors)
    assert parity.n_groups == 2
    assert parity.relative[:2].tolist() == [0.1, 1.0]
    assert math.isnan(parity.relative[2])
    assert parity.everybody == pytest.approx(10 / 54)
    assert parity.error == pytest.approx(1.1 + 10 / 54 / 2)
    assert parity.mean == pytest.approx(parity.error / 2)
    assert parity.worst == 1
    assert parity_of(errors, omega=3.0).error == pytest.approx(1.1 + 3 * 10 / 54)


def test_two_batches_merged_are_one():
    whole = compare_groups(TRUTH, RELEASED)
    parts = [compare_groups(TRUTH[i : i + 1], RELEASED[i : i + 1]) for i in range(2)]
    for merged in (
        merge_groups(*parts),
        merge_groups(parts[1], parts[0]),
        merge_groups(no_errors(3), whole),
    ):
        for name in FIELDS:
            assert getattr(merged, name).tolist() == getattr(whole, name).tolist()


def test_groups_below_the_floor_have_no_relative_error_but_keep_their_errors():
    parity = parity_of(compare_groups(TRUTH, RELEASED), floor=5)
    assert parity.n_groups == 1
    assert parity.worst == 0
    assert np.isnan(parity.relative).tolist() == [False, True, True]


def test_nobody_has_no_parity():
    parity = parity_of(no_errors(2))
    assert parity.n_groups == 0
    assert parity.worst is None
    assert math.isnan(parity.error)
    assert math.isnan(parity.mean)


def test_an_exact_release_has_no_parity_error():
    assert parity_of(compare_groups(TRUTH, TRUTH)).error == 0.0


@pytest.mark.parametrize("bad", [{"floor": 0}, {"omega": -1.0}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(SchemaError, match="parity"):
        parity_of(no_errors(1), **bad)


def test_shapes_must_fit():
    with pytest.raises(SchemaError, match="do not fit"):
        compare_groups(TRUTH, RELEASED[:1])


def test_the_public_expectation_is_what_normal_errors_come_to():
    rng = np.random.default_rng(3)
    spread = rng.uniform(1, 9, 40)
    errors = np.abs(rng.normal(0, spread, (4000, 40))).sum(1)
    expected = expected_parity([spread, spread], [1000.0, 3.0], floor=10)
    assert expected[0] == pytest.approx(errors.mean() / 1000, rel=0.02)
    assert math.isnan(expected[1])
