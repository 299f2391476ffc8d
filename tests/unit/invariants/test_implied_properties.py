"""Adding up leaves loses nothing, in any order and in stages; cuts are exact consequences."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from invariants.implied import lower_bounds, most_violated, upper_bounds
from invariants.leaves import Leaves, add_up, stack, tighten
from tests.builders.leaves import one_owner


@st.composite
def dealt_leaves(draw: st.DrawFn) -> tuple[Leaves, np.ndarray]:
    """Rows with counts z that fit them: int64[R, t]."""
    t = draw(st.integers(1, 5))
    rows, counts = [], []
    for _ in range(draw(st.integers(1, 6))):
        persons = np.array(draw(st.lists(st.integers(0, 30), min_size=t, max_size=t)))
        below = np.array(draw(st.lists(st.integers(0, 30), min_size=t, max_size=t)))
        above = np.array(draw(st.lists(st.sampled_from([0, 1, 7, 99_999]), min_size=t, max_size=t)))
        least = np.maximum(persons - below, 0)
        most = persons + above
        slack = draw(st.sampled_from([(0, 0), (0, 3), (2, 0), (10**6, 10**6)]))
        total = int(persons.sum())
        rows.append((least, most, max(total - slack[0], 0), total + slack[1]))
        counts.append(persons)
    return Leaves(*(np.array(one, np.int64) for one in zip(*rows, strict=True))), np.array(counts)


def every_set(t: int) -> np.ndarray:
    return (np.arange(2**t)[:, None] >> np.arange(t)) % 2 == 1


@given(dealt_leaves())
def test_what_was_dealt_keeps_every_bound(drawn):
    leaves, counts = drawn
    assert most_violated(leaves, counts.sum(0)).violation == 0


@given(dealt_leaves())
def test_tightening_and_adding_up_keep_the_bounds_of_every_set(drawn):
    leaves, _ = drawn
    sets, summed = every_set(leaves.n_types), one_owner(leaves)
    for bounds in (lower_bounds, upper_bounds):
        expected = bounds(leaves, sets).tolist()
        assert bounds(tighten(leaves), sets).tolist() == expected
        assert bounds(summed, sets).tolist() == expected


@given(dealt_leaves(), st.randoms(use_true_random=False))
def test_adding_up_in_stages_is_the_same(drawn, rng):
    leaves, _ = drawn
    owners = np.array([rng.randrange(3) for _ in range(leaves.n_rows)])
    parts = add_up(leaves, owners, 3)
    staged, at_once = one_owner(stack([parts.of(g) for g in range(3)])), one_owner(leaves)
    sets = every_set(leaves.n_types)
    assert lower_bounds(staged, sets).tolist() == lower_bounds(at_once, sets).tolist()
    assert upper_bounds(staged, sets).tolist() == upper_bounds(at_once, sets).tolist()


@given(dealt_leaves(), st.data())
def test_the_most_violated_set_is_the_most_violated(drawn, data):
    leaves, counts = drawn
    moved = data.draw(
        st.lists(st.integers(-20, 20), min_size=leaves.n_types, max_size=leaves.n_types)
    )
    asked = np.maximum(counts.sum(0) + np.array(moved), 0)
    sets = every_set(leaves.n_types)
    below = lower_bounds(leaves, sets) - sets @ asked
    above = sets @ asked - upper_bounds(leaves, sets)
    assert most_violated(leaves, asked).violation == max(0, below.max(), above.max())
