"""Budget and allocation that the variances of noisy measurement files state.

The files state variances as floating-point numbers, and runs have exact fractions. If the variances
are those of a published allocation, that one is taken. Else fractions are chosen with which all
variances agree to the last digit that the files have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import yaml

from das.definition import Definition
from das.errors import BudgetError, InputError
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.schema import Schema
from das.strategy import Strategy, noisy_queries

_PERSONS, _UNITS = Fraction(293764, 114921), Fraction(11417641, 152349649)
PUBLISHED = {
    "pl94-2020-us": _PERSONS,
    "pl94-2020-state": _PERSONS * Fraction(3995, 4099),
    "pl94-2020-pr": _PERSONS,
    "pl94-units-2020-us": _UNITS,
    "pl94-units-2020-pr": _UNITS,
}
"""Ready allocations of files that the Bureau has published, with the rho that they split."""

NOISE = choose_mechanism(Definition.ZCDP)
"""The noise of the layout."""

# Files have variances as numbers of 4 bytes, 2^-24 off at most; whoever made them may have rounded
# once more.
_TOLERANCE = 2.0**-22
_FAR = 2  # variances from here on are sigma^2 to more digits than 4 bytes hold
_MOST_BITS = 100  # of the common denominator of precisions
_BISECTIONS = 60


@dataclass(frozen=True, order=True)
class Chain:
    """Geounits that are measured once: from geolevel `first` on, only children down to `last`."""

    first: int
    last: int


@dataclass(frozen=True)
class Variance:
    """A variance as a file has it.

    Attributes:
      value: The number.
      is_single: Whether the file holds it in 4 bytes.
      cost: rho of a row, if the file says it exactly.
    """

    value: float
    is_single: bool
    cost: Fraction | None = None

    def interval(self) -> tuple[Fraction, Fraction]:
        """All numbers that the file would hold as this one."""
        kind = np.float32 if self.is_single else np.float64
        here = kind(self.value)
        ends = (np.nextafter(here, kind(0)), np.nextafter(here, kind(np.inf)))
        middle = Fraction(float(here))
        low, high = ((middle + Fraction(float(end))) / 2 for end in ends)
        return low, high


Noise = Mapping[Chain, Mapping[str, Variance]]
"""Variances of the queries of every kind of geounit that there is, by chain and query."""


@dataclass(frozen=True, eq=False)
class Stated:
    """A budget with the allocation that splits it.

    Attributes:
      rho: The budget.
      document: The allocation file, as YAML.
    """

    rho: Fraction
    document: str


def check_variance(where: str, value: float) -> None:
    """Check that noise can have this variance.

    Raises:
      InputError: It is not a positive number, or one that no noise of an exact parameter has.
    """
    if not (math.isfinite(value) and value > 0):
        raise InputError(where, "has no noise of this variance", got=value, want="a number above 0")
    if value < 1e-6 or value > 2.0**79:
        raise InputError(
            where,
            f"is the variance of no {NOISE.title} noise that is drawn exactly",
            got=value,
            want="a number from 10^-6 to 2^79",
        )


def first_difference(
    strategy: Strategy, rho: Fraction, noise: Noise
) -> tuple[Chain, str, float, float | None] | None:
    """Where noise is not that of a strategy: chain, query, variance found and stated.

    The last is None if the strategy does not ask the query. None if all agree.
    """
    budget = Budget(rho, Fraction(1, 10**10), Neighbors.BOUNDED, Definition.ZCDP)
    for chain, variances in sorted(noise.items()):
        try:
            planned = {
                noisy.query.name: noisy.mechanism.variance()
                for noisy in noisy_queries(strategy, budget, chain.first, chain.last)
            }
        except BudgetError:
            planned = {}
        for query in dict.fromkeys((*variances, *planned)):
            if query not in planned or query not in variances:
                found = variances[query].value if query in variances else math.nan
                return chain, query, found, planned.get(query)
            found, want = variances[query].value, planned[query]
            if not math.isclose(found, want, rel_tol=_TOLERANCE):
                return chain, query, found, want
    return None


def derived(schema: Schema, geolevels: Sequence[str], noise: Noise, source: str) -> Stated:
    """A budget and its allocation with all variances of geounits that are in no chain.

    Precisions 1 / sigma^2 are multiples of one fraction, the largest power of 1/2 with which every
    variance is that of its file, so that shares have few digits.

    Raises:
      InputError: A geolevel has no such geounit, or no fraction of 2^-100 fits.
    """
    ordinary = []
    for level, geolevel in enumerate(geolevels):
        if Chain(level, level) not in noise:
            raise InputError(
                f"geolevel {geolevel}",
                "has no geounit with sisters and several children, so that its own share of the "
                "budget is in no variance",
                remedy="give the allocation and its rho by --allocation and --rho",
            )
        ordinary.append(noise[Chain(level, level)])
    costs = _stated_costs(ordinary) or _fitted_costs(schema, ordinary)
    sums = [sum(level.values(), Fraction(0)) for level in costs]
    rho = sum(sums, Fraction(0))
    document = {
        "name": "nmf",
        "source": source,
        "levels": {
            geolevel: {
                "share": str(own / rho),
                "queries": {name: str(cost / own) for name, cost in level.items()},
            }
            for geolevel, level, own in zip(geolevels, costs, sums, strict=True)
        },
    }
    return Stated(rho, yaml.safe_dump(document, sort_keys=False, width=10_000))


_Queries = Sequence[Mapping[str, Variance]]
_Costs = Sequence[Mapping[str, Fraction]]


def _stated_costs(ordinary: _Queries) -> _Costs | None:
    """What the files say that every query costs; None if they do not of all."""
    costs = [
        {name: one.cost for name, one in level.items() if one.cost is not None}
        for level in ordinary
    ]
    pairs = zip(costs, ordinary, strict=True)
    return costs if all(len(known) == len(level) for known, level in pairs) else None


def _fitted_costs(schema: Schema, ordinary: _Queries) -> _Costs:
    """What every query costs by its variance, for changed records."""
    # Of 1 / sigma^2: the largest and the least whose noise the files would state like this.
    ends = [
        {name: [1 / _sigma_sq(end) for end in one.interval()] for name, one in level.items()}
        for level in ordinary
    ]
    for bits in range(_MOST_BITS + 1):
        found = [
            {name: _multiple(low, high, bits) for name, (high, low) in level.items()}
            for level in ends
        ]
        if all(number is not None for level in found for number in level.values()):
            return [
                {
                    name: Fraction(number or 0, 2 << bits)
                    * l2_sensitivity_sq(parse_query(schema, name), Neighbors.BOUNDED)
                    for name, number in level.items()
                }
                for level in found
            ]
    raise InputError("variances", "are those of no fractions with the common denominator 2^100")


def _multiple(low: Fraction, high: Fraction, bits: int) -> int | None:
    """The multiple of 2^-bits next to the middle of an interval; None if none is inside."""
    low, high = low * (1 << bits), high * (1 << bits)
    number = max(1, round((low + high) / 2))
    return number if low <= number <= high else None


def _sigma_sq(variance: Fraction) -> Fraction:
    """The parameter of noise of a variance.

    The variance rises with the parameter, and is not above it; from 2 on they are the same to 16
    digits (Canonne, Kamath & Steinke, arXiv:2004.00010, Fact 19).
    """
    if variance >= _FAR:
        return variance
    low, high = Fraction(1, 1 << 20), Fraction(_FAR)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if NOISE.of(middle).variance() < variance:
            low = middle
        else:
            high = middle
    return high
