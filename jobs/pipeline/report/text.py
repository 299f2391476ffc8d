"""Numbers as readers want them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from das.definition import Definition
from das.rational import stated_fraction
from jobs.pipeline.documents.account import Guarantee
from jobs.pipeline.language import tr, with_separators

NOT_RECORDED = "not recorded"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MINUS = "\N{MINUS SIGN}"
RHO = "\N{GREEK SMALL LETTER RHO}"
EPSILON = "\N{GREEK SMALL LETTER EPSILON}"
TOGETHER = (
    "The queries that a planner chose for a geolevel are charged together: for the two data sets "
    "that differ most in all of them. The cost of each is its part of that, not what it would cost "
    "alone."
)


def words(name: object) -> str:
    """Return a query or geolevel in words."""
    return str(name).replace(" * ", " \N{MULTIPLICATION SIGN} ").replace("_", " ")


def unit(definition: Definition) -> str:
    """Return the letter of the unit of costs."""
    return EPSILON if definition.is_pure else RHO


def integer(value: float) -> str:
    """Format an integer with commas, such as 1,052,567."""
    return with_separators(f"{int(value):,}").replace("-", _MINUS)


def decimal(value: float) -> str:
    """Format a number with 2 decimals below 100, 1 below 1,000, else 0; 4 if it is below 0.01."""
    size = abs(value)
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    if size < 0.0001:
        return scientific(value)
    places = 4 if size < 0.01 else 2 if size < 100 else 1 if size < 1000 else 0
    return with_separators(f"{value:,.{places}f}").replace("-", _MINUS)


def upward(value: float) -> str:
    """Format a privacy loss with three decimals, rounded up so that it stays an upper bound."""
    return with_separators(f"{math.ceil(value * 1e3) / 1e3:,.3f}")


def guarantee(budget: Guarantee) -> str:
    """Describe a budget and what it implies in a sentence."""
    if budget.definition.is_pure:
        return f"epsilon {budget.total} (pure, {budget.neighbors} neighbors)"
    return (
        f"rho {budget.total} (zCDP, {budget.neighbors} neighbors): "
        f"epsilon {upward(budget.epsilon)} at delta {budget.delta} "
        f"({upward(budget.epsilon_simple)} by the simple bound)"
    )


def percent_above(value: float) -> str:
    """Format a probability in percent with one decimal, rounded up."""
    return with_separators(f"{math.ceil(value * 1e3) / 10:.1f} %")


def at_level(number: str, geolevel: str) -> str:
    """Return a formatted number with its geolevel."""
    return tr("{number} at {geolevel}", number=number, geolevel=words(geolevel))


def signed(value: float) -> str:
    """Format a number as `decimal` does, with a plus sign."""
    return ("+" if value > 0 else "") + decimal(value)


def signed_integer(value: float) -> str:
    """Format a number as `integer` does, with a plus sign."""
    return ("+" if value > 0 else "") + integer(value)


def percent(share: float, places: int = 1) -> str:
    """Format a share in percent, such as 12.3 %; only 0 becomes 0 % and only 1 becomes 100 %."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    least = 0.5 * 10.0 ** -(places + 2)
    if abs(share) < least:
        return with_separators(f"< {10.0**-places:.{places}f} %")
    if 1 - least <= share < 1:
        return with_separators(f"> {100 - 10.0**-places:.{places}f} %")
    return with_separators(f"{100 * share:.{places}f} %")


def fine_percent(share: float) -> str:
    """Format a share as `percent` does, with two decimals."""
    return percent(share, 2)


def moment(value: object) -> str:
    """Format an ISO time as 2026-11-21 05:24 UTC."""
    try:
        when = datetime.fromisoformat(str(value))
    except ValueError:
        return str(value)
    shown = tr("%Y-%m-%d %H:%M UTC")
    return when.astimezone(UTC).strftime(shown) if when.tzinfo else str(value)


def scientific(value: float) -> str:
    """Format a number with a power of ten, such as 3.1 x 10 to the power of -8."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = str(int(exponent)).translate(SUPERSCRIPT)
    mantissa = with_separators(mantissa).replace("-", _MINUS)
    return f"{mantissa} \N{MULTIPLICATION SIGN} 10{power}"


def duration(seconds: float) -> str:
    """Format seconds as 800 ms, 42 s, 3 min 05 s or 2 h 10 min."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:,.3g} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def size(n_bytes: float) -> str:
    """Format bytes as kB, MB, GB or TB, in powers of 1000."""
    value = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return (
                f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
            )
        value /= 1000
    return f"{value:,.1f} TB"


def ratio(text: str) -> float:
    """Return the value of "a/b"."""
    return float(stated_fraction(text))


def small(text: str) -> str:
    """Format a small exact fraction, as a power of ten if it is one."""
    exact = stated_fraction(text)
    digits = str(exact.denominator)
    if exact.numerator == 1 and digits.strip("0") == "1":
        return f"10{str(1 - len(digits)).translate(SUPERSCRIPT)}" if len(digits) > 1 else "1"
    return str(exact) if len(digits) < 8 else scientific(float(exact))
