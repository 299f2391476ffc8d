"""Many small systems at once: those of numpy, compiled and in arrays."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.dual_newton.blocks import factorise, substitute
from tests.unit.solvers.least_squares import in_arrays


def in_arrays_substitute(factors, right):
    place = factors.starts, factors.ends, factors.is_inverse
    return in_arrays.substitute(factors.flat, *place, right)


either = pytest.mark.parametrize("solve", [substitute, in_arrays_substitute])


@either
def test_every_block_is_solved(solve):
    rng = np.random.default_rng(1)
    sizes = np.array([3, 0, 1, 40])
    roots = [rng.normal(size=(n, n)) for n in sizes]
    blocks = [root @ root.T + np.eye(len(root)) for root in roots]
    wanted = [rng.normal(size=n) for n in sizes]
    right = np.concatenate([b @ x for b, x in zip(blocks, wanted, strict=True)])
    factors = factorise(np.concatenate([b.ravel() for b in blocks]), sizes)
    assert not factors.is_inverse.any()
    np.testing.assert_allclose(solve(factors, right), np.concatenate(wanted), atol=1e-10)


@either
def test_a_block_that_rounding_made_indefinite_is_inverted(solve):
    block = np.array([[1.0, 2.0], [2.0, 1.0]])
    flat = np.concatenate([block.ravel(), [4.0]])
    factors = factorise(flat, np.array([2, 1]))
    assert factors.is_inverse.tolist() == [True, False]
    found = solve(factors, np.array([3.0, 3.0, 8.0]))
    np.testing.assert_allclose(found, [1.0, 1.0, 2.0])


@either
def test_no_block_at_all(solve):
    factors = factorise(np.zeros(0), np.zeros(0, np.int64))
    assert solve(factors, np.zeros(0)).shape == (0,)
