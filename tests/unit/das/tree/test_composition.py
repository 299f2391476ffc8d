"""Cells expected by the composition of the parent: best linear estimates, and what they are learned of."""

from __future__ import annotations

import numpy as np
import pytest

from das.tree.composition import (
    Dispersion,
    Family,
    family_scales,
    learn_dispersion,
    posterior,
    residuals,
)
from das.tree.covariate import merge

CHAIN = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3]])  # everybody, two groups, cells
PARENT = np.array([300.0, 100.0, 60.0, 40.0])
SHARE = PARENT / PARENT.sum()
NOISE = 4.0  # of every cell


def known(of_groups: float, of_cells: float) -> Dispersion:
    """D of a group is so many times what is expected of it."""
    at = np.array([1.0, 1000.0])
    none = np.zeros(0)
    return Dispersion((none, at, at), (none, of_groups * at, of_cells * at))


def family(noisy: np.ndarray, totals: np.ndarray, flat: np.ndarray | None = None) -> Family:
    """Children with noisy cells alone."""
    n = len(noisy)
    information = np.broadcast_to(np.eye(4) / NOISE, (n, 4, 4)).copy()
    none = np.zeros(n, np.bool_)
    return Family(PARENT, CHAIN, information, noisy / NOISE, totals, none if flat is None else flat)


def covariance(total: float, variance: float, dispersion: Dispersion) -> np.ndarray:
    """Of the cells of a child, written out by the law of total covariance."""
    groups = total * np.array([SHARE[:2].sum(), SHARE[2:].sum()])
    d = dispersion.of(1, groups)
    of_groups = np.diag(d) - np.outer(d, d) / d.sum()
    pi = groups / groups.sum()
    of_groups = of_groups + variance * np.outer(pi, pi)
    within = np.repeat(groups / total, 2)
    share = SHARE / within
    spread = np.kron(np.eye(2), np.ones((2, 2)))
    cells = dispersion.of(2, total * SHARE)
    sums = np.repeat([cells[:2].sum(), cells[2:].sum()], 2)
    own = np.diag(cells) - spread * np.outer(cells, cells) / sums[:, None]
    big = of_groups[np.ix_([0, 0, 1, 1], [0, 0, 1, 1])]
    return np.outer(share, share) * big + own


def test_the_estimate_is_the_conditional_mean_of_a_gaussian():
    """All children at once, with the sum known: conditioned by the textbook formula."""
    rng = np.random.default_rng(2)
    totals, variance = np.array([250.0, 150.0, 100.0]), np.array([90.0, 50.0, 30.0])
    dispersion = known(1.5, 1.2)
    noisy = totals[:, None] * SHARE + rng.normal(0, 6, (3, 4))
    one = family(noisy, totals)
    found = posterior(one, variance, dispersion, 1.0)
    assert found.sum(0) == pytest.approx(PARENT)
    spreads = family_scales(one, dispersion)
    prior = np.zeros((12, 12))
    for child in range(3):
        own = Dispersion(
            dispersion.expected,
            tuple(s * v for s, v in zip(spreads, dispersion.variance, strict=True)),
        )
        block = slice(4 * child, 4 * child + 4)
        prior[block, block] = covariance(totals[child], variance[child], own)
    mean = (totals[:, None] * SHARE).ravel()
    seen = np.vstack([np.eye(12), np.kron(np.ones((1, 3)), np.eye(4))])
    values = np.concatenate([noisy.ravel(), PARENT])
    noise = np.diag([NOISE] * 12 + [1e-7] * 4)
    gain = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + noise)
    expected = mean + gain @ (values - seen @ mean)
    assert found.ravel() == pytest.approx(expected, abs=1e-3)


def test_a_flat_child_keeps_its_noisy_total():
    noisy = np.array([[200.0, 70, 30, 20], [100.0, 30, 30, 20]])
    flat = np.array([True, False])
    found = posterior(family(noisy, noisy.sum(1), flat), np.ones(2), known(1, 1), 4.0)
    assert found[0].sum() == pytest.approx(noisy[0].sum(), rel=0.02)


def test_dispersion_is_learned_from_noisy_answers():
    """Groups off by a variance of twice what is expected, cells within them by once."""
    rng = np.random.default_rng(5)
    parts = []
    for _ in range(300):
        totals = rng.uniform(40, 160, 25)
        groups = np.outer(totals, [SHARE[:2].sum(), SHARE[2:].sum()])
        root = np.sqrt(2 * groups.prod(1) / groups.sum(1))
        moved = rng.normal(0, root)
        groups = groups + np.stack([moved, -moved], 1)
        share = np.repeat([SHARE[0] / SHARE[:2].sum(), SHARE[2] / SHARE[2:].sum()], 1)
        first = groups * share
        spread = rng.normal(0, np.sqrt(np.maximum(groups, 0) * share * (1 - share)))
        cells = np.stack([first + spread, groups - first - spread], 2).reshape(25, 4)
        parts.append(residuals(family(cells + rng.normal(0, NOISE**0.5, cells.shape), totals)))
    learned = learn_dispersion(merge(parts, 3))
    assert len(learned.expected[0]) == 0  # everybody is one group
    for expected in (10.0, 50.0):
        assert learned.of(1, np.array([expected]))[0] == pytest.approx(2 * expected, rel=0.25)
        assert learned.of(2, np.array([expected]))[0] == pytest.approx(expected, rel=0.25)
    one, other = merge(parts, 3), merge(parts[::-1], 3)
    assert np.array_equal(one.squares, other.squares)


def test_where_nothing_was_learned_counts_vary_as_if_drawn():
    empty = learn_dispersion(merge([], 2))
    assert empty.of(1, np.array([3.0, 8.0])).tolist() == [3, 8]
