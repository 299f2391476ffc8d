"""Exact fractions: parsing, checks and conversion with safe rounding."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

from das.errors import BudgetError

_FRACTION = re.compile(r"[+-]?[0-9]+(/[0-9]+)?|[+-]?[0-9]*\.[0-9]+")
_LONGEST_STATED = 4000  # characters; Python converts integers of up to 4,300 digits
_MOST_DIGITS = 100  # per numerator or denominator, since sums of shares multiply denominators


def parse_fraction(value: object, where: str) -> Fraction:
    """Parse an exact fraction from an integer or from text.

    Args:
      value: An int, a Fraction, or text such as "51/36352", "3" or "0.25" (read as 1/4 exactly).
      where: Location of the number, for the error message.

    Returns:
      The exact value.

    Raises:
      BudgetError: `value` is a float (0.1 is not 1/10), a bool, text that is not a fraction, or one
        of more than 100 digits.

    >>> parse_fraction("0.25", "share")
    Fraction(1, 4)
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, str) and _FRACTION.fullmatch(value.strip()):
        if any(len(part) > _MOST_DIGITS for part in value.strip().split("/")):
            raise BudgetError(
                where, "has too many digits", got=value, want=f"at most {_MOST_DIGITS} of them"
            )
        try:
            return Fraction(value.strip())
        except ZeroDivisionError:
            raise BudgetError(where, "has a zero denominator", got=value) from None
    if isinstance(value, float):
        raise BudgetError(
            where,
            "is a floating-point number, which is not exact",
            got=repr(value),
            want='a fraction in quotes, such as "1/4" or "0.25"',
        )
    raise BudgetError(where, "is not a fraction", got=repr(value), want='text such as "51/36352"')


def stated_fraction(text: object) -> Fraction:
    """Parse a fraction in a machine-written document, in the form of `str(Fraction)`.

    `Fraction` would not return for text such as "1e999999999". So exponents are refused and the
    length is limited. The limit is above that of `parse_fraction`, since exact costs can be long.

    Args:
      text: A fraction such as "13511/5000".

    Raises:
      ValueError: The value is not text, not a fraction, or longer than 4,000 characters.

    >>> stated_fraction("-3/7")
    Fraction(-3, 7)
    """
    if isinstance(text, str) and len(text) <= _LONGEST_STATED and _FRACTION.fullmatch(text):
        try:
            return Fraction(text)
        except ZeroDivisionError:
            pass
    raise ValueError("is not a fraction such as 51/36352")


def decimal_of(value: Fraction) -> Decimal:
    """Return the decimal nearest to a fraction, at the precision of the current context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def float_above(value: Fraction | Decimal) -> float:
    """Return the smallest float that is at least a number.

    >>> float_above(Fraction(1, 10)), float_above(Fraction(1, 4))
    (0.1, 0.25)
    """
    exact = Fraction(value)
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def require_positive(where: str, value: object, *, or_zero: bool = False) -> None:
    """Check that a number is an exact fraction above 0, or at least 0.

    Args:
      where: Name of the number in errors.
      value: The number.
      or_zero: Whether 0 is allowed.

    Raises:
      BudgetError: The number is out of range, or a float.
    """
    if not isinstance(value, Fraction) or value < 0 or not (value or or_zero):
        kind = "nonnegative" if or_zero else "positive"
        raise BudgetError(where, f"must be a {kind} exact fraction", got=repr(value))


def require_probability(where: str, value: object) -> None:
    """Check that a number is a fraction above 0 and below 1.

    Raises:
      BudgetError: The number is out of range, or a float.
    """
    if not isinstance(value, Fraction) or not 0 < value < 1:
        raise BudgetError(where, "must be an exact fraction between 0 and 1", got=repr(value))
