"""The block elimination solves the conditions it is named for, whatever is inside the blocks."""

from __future__ import annotations

import itertools

import numpy as np

from solvers.least_squares.blocks import arrange
from solvers.least_squares.interior_point import Elimination
from solvers.problem import group_sums
from tests.builders.strategies import random_node
from tests.unit.solvers.least_squares.test_solve import SHAPES, division

__all__ = ["division"]


def test_conditions_are_met_on_the_support(division):
    """f_c M_c x_c - lambda = f_c right_c on the support, and the children sum to what is missing."""
    for with_barrier, shape in itertools.product([False, True], SHAPES):
        q = arrange(random_node(shape, 3))
        rng = np.random.default_rng(5)
        support = q.free & (rng.random(q.free.shape) < 0.8)
        support |= q.free & (support.sum(0) == 0)
        barrier = np.where(support, rng.random(support.shape), 0.0) if with_barrier else None
        weights = rng.random(q.least.shape) if q.coefficients.size else None
        right = np.where(support, rng.normal(size=support.shape), 0.0)
        missing = None
        if q.parent is not None:
            missing = np.where(support.any(0), rng.normal(size=support.shape[1]), 0.0)
        x, multiplier = Elimination(q, support, barrier, weights).solve(right, missing)
        assert not x[~support].any()
        image = q.apply(x)
        for e in q.equalities:
            image += q.penalty * group_sums(x, e.groups, e.targets.shape[1])[:, e.groups]
        if barrier is not None:
            image += barrier * x
        if weights is not None:
            image += (weights * (x @ q.coefficients.T)) @ q.coefficients
        off = q.scale[:, None] * (image - right) - multiplier
        size = max(1.0, float(np.abs(multiplier).max()))
        assert np.abs(off[support]).max() < 1e-6 * size
        if missing is not None:
            assert np.abs(x.sum(0) - missing).max() < 1e-6 * size
