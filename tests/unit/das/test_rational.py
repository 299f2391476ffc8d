"""Exact fractions are read exactly, and nothing else is read at all."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import BudgetError
from das.rational import parse_fraction


@given(st.fractions())
def test_text_round_trip_is_exact(value: Fraction):
    assert parse_fraction(str(value), "x") == value
    assert parse_fraction(value, "x") is value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_a_decimal_in_text_means_the_decimal(value):
    assert parse_fraction(f"{value:f}", "x") == Fraction(value)


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        ("51/36352", Fraction(51, 36352)),
        (" 3 ", Fraction(3)),
        (".5", Fraction(1, 2)),
        ("-2/4", Fraction(-1, 2)),
        ("+0.1", Fraction(1, 10)),
        (7, Fraction(7)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_accepted(value, exact):
    assert parse_fraction(value, "x") == exact


@given(st.floats())
def test_every_float_is_refused(value):
    with pytest.raises(BudgetError) as caught:
        parse_fraction(value, "share of block")
    assert caught.value.where == "share of block"
    assert "floating-point number, which is not exact" in str(caught.value)
    assert f"got {value!r}" in str(caught.value)
    assert '"1/4"' in str(caught.value)


@pytest.mark.parametrize(
    "value", [True, None, "", "1/2/3", "a", "1e-3", "1.", "1 /2", "nan", "inf", [1], "0x1", "1_0"]
)
def test_anything_else_is_refused_and_quoted(value):
    with pytest.raises(BudgetError) as caught:
        parse_fraction(value, "rho")
    assert str(caught.value).startswith(f"rho: is not a fraction; got {value!r}; expected")


def test_a_zero_denominator_is_refused():
    with pytest.raises(BudgetError, match=r"^rho: has a zero denominator; got 1/0$"):
        parse_fraction("1/0", "rho")
