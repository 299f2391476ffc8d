"""Portable floats: exact sums in any order, and how near to the functions they stand for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.synthesis import portable


@pytest.mark.parametrize("n", [1, 2, 3, 512, 513, 3000])
def test_products_are_those_of_rounded_numbers_in_exact_arithmetic(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 3, (2, n)), rng.normal(0, 1e-3, (n, 3))
    found = portable.product(a, b)
    bits = (53 - max(1, (n - 1).bit_length())) // 2
    rounded = []
    for values in (a, b):
        scale = 2.0 ** (bits - np.frexp(np.abs(values).max())[1])
        assert np.abs(values * scale).max() < 2**bits
        rounded.append(np.rint(values * scale) / scale)
    first, second = rounded
    for i, j in np.ndindex(2, 3):
        terms = zip(first[i].tolist(), second[:, j].tolist(), strict=True)
        assert Fraction(float(found[i, j])) == sum(Fraction(x) * Fraction(y) for x, y in terms)
    assert found == pytest.approx(a @ b, abs=n * 3e-8)


def test_a_matrix_times_itself_and_zeros():
    a = np.random.default_rng(1).normal(0, 1, (4, 9))
    assert portable.product(a, a.T) == pytest.approx(a @ a.T, abs=1e-5)
    assert not portable.product(np.zeros((2, 3)), np.ones((3, 2))).any()


def test_exponentials_and_logarithms_are_near():
    x = np.concatenate([-np.geomspace(1e-9, 690, 2000), [0.0]])
    assert portable.exp(x) == pytest.approx(np.exp(x), rel=2e-7)
    assert portable.exp(np.array([-1e9])) == portable.exp(np.array([-700.0])) > 0
    y = np.geomspace(1e-9, 1e6, 2000)
    assert portable.log(y) == pytest.approx(np.log(y), abs=1e-7)
