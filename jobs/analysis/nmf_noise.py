"""Budget and allocation that reproduce the variances of noisy measurement files.

Files state variances as floating-point numbers, while runs have exact fractions. A published
allocation with the same variances is used if there is one. Otherwise fractions are fitted that
reproduce every variance to the last stored digit.
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
"""Ready allocations of the files published by the Census Bureau, with their rho."""

NOISE = choose_mechanism(Definition.ZCDP)
"""The noise of the layout."""

# Files store variances in 4 bytes, a relative error of 2^-24 at most; their makers may have rounded
# once more.
_TOLERANCE = 2.0**-22
_FAR = 2  # from here on the variance equals sigma^2 to more digits than 4 bytes hold
_MOST_BITS = 100  # of the common denominator of precisions; more than a double holds
_BISECTIONS = 60  # 2^-60 is below the resolution of a double


@dataclass(frozen=True, order=True)
class Chain:
    """Chains of only children measured once: from geolevel `first` down to `last`."""

    first: int
    last: int


@dataclass(frozen=True)
class Variance:
    """Variance as stored in a file.

    Attributes:
      value: The stored number.
      is_single: Whether the file stores it in 4 bytes.
      cost: rho of a row, if the file states it exactly.
    """

    value: float
    is_single: bool
    cost: Fraction | None = None

    def interval(self) -> tuple[Fraction, Fraction]:
        """Return the interval of numbers that round to the stored value."""
        kind = np.float32 if self.is_single else np.float64
        here = kind(self.value)
        ends = (np.nextafter(here, kind(0)), np.nextafter(here, kind(np.inf)))
        middle = Fraction(float(here))
        low, high = ((middle + Fraction(float(end))) / 2 for end in ends)
        return low, high


Noise = Mapping[Chain, Mapping[str, Variance]]
"""Chain to query to variance."""


@dataclass(frozen=True, eq=False)
class Stated:
    """Budget and allocation.

    Attributes:
      rho: The budget that the allocation splits.
      document: The allocation file, as YAML.
    """

    rho: Fraction
    document: str


def check_variance(where: str, value: float) -> None:
    """Check that discrete Gaussian noise can have this variance.

    Raises:
      InputError: The value is not positive, or outside the range that can be drawn exactly.
    """
    if not (math.isfinite(value) and value > 0):
        raise InputError(where, "has no noise of this variance", got=value, want="a number above 0")
    if value < 1e-6 or value > 2.0**79:
        raise InputError(
            where,
            f"is outside the variances of {NOISE.title} noise that can be drawn exactly",
            got=value,
            want="a number from 10^-6 to 2^79",
        )


def first_difference(
    strategy: Strategy, rho: Fraction, noise: Noise
) -> tuple[Chain, str, float, float | None] | None:
    """Return the first variance that differs from a strategy: chain, query, stored, expected.

    The expected value is None if the strategy lacks the query. The result is None if all agree.
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
            stored = variances[query].value if query in variances else math.nan
            want = planned.get(query)
            if want is None or not math.isclose(stored, want, rel_tol=_TOLERANCE):
                return chain, query, stored, want
    return None


def derived(schema: Schema, geolevels: Sequence[str], noise: Noise, source: str) -> Stated:
    """Fit a budget and an allocation to the variances of geounits that are in no chain.

    All precisions 1 / sigma^2 become multiples of 2^-b with the smallest b that reproduces every
    stored variance, so that shares have few digits.

    Raises:
      InputError: A geolevel has no such geounit, or no b up to 100 fits.
    """
    ordinary = []
    for level, geolevel in enumerate(geolevels):
        if Chain(level, level) not in noise:
            raise InputError(
                f"geolevel {geolevel}",
                "has no geounit with siblings and several children, so no variance shows its "
                "share of the budget",
                remedy="give the allocation and its rho by --allocation and --rho",
            )
        ordinary.append(noise[Chain(level, level)])
    costs = [
        {name: variance.cost for name, variance in level.items() if variance.cost is not None}
        for level in ordinary
    ]
    if [*map(len, costs)] != [*map(len, ordinary)]:  # the files do not state every cost
        costs = _fitted_costs(schema, ordinary)
    sums = [sum(level.values(), Fraction(0)) for level in costs]
    rho = sum(sums, Fraction(0))
    document = {
        "name": "nmf",
        "source": source,
        "levels": {
            geolevel: {
                "share": str(of_level / rho),
                "queries": {name: str(cost / of_level) for name, cost in level.items()},
            }
            for geolevel, level, of_level in zip(geolevels, costs, sums, strict=True)
        },
    }
    return Stated(rho, yaml.safe_dump(document, sort_keys=False, width=10_000))


def _fitted_costs(
    schema: Schema, ordinary: Sequence[Mapping[str, Variance]]
) -> list[dict[str, Fraction]]:
    """Return by geolevel the simplest zCDP cost of each query that gives its variance."""
    # Largest and smallest 1 / sigma^2 whose variance rounds to the stored one.
    ends = {
        (index, name): [1 / _sigma_sq(end) for end in variance.interval()]
        for index, level in enumerate(ordinary)
        for name, variance in level.items()
    }
    for bits in range(_MOST_BITS + 1):
        multiples = {key: _multiple(low, high, bits) for key, (high, low) in ends.items()}
        if None in multiples.values():
            continue
        costs: list[dict[str, Fraction]] = [{} for _ in ordinary]
        for (index, name), number in multiples.items():
            sensitivity_sq = l2_sensitivity_sq(parse_query(schema, name), Neighbors.BOUNDED)
            costs[index][name] = Fraction(number or 0, 2 << bits) * sensitivity_sq
        return costs
    raise InputError("variances", "match no fractions with the common denominator 2^100")


def _multiple(low: Fraction, high: Fraction, bits: int) -> int | None:
    """Return m so that m 2^-bits is nearest to the middle of [low, high]; None if it is outside."""
    low, high = low * (1 << bits), high * (1 << bits)
    number = max(1, round((low + high) / 2))
    return number if low <= number <= high else None


def _sigma_sq(variance: Fraction) -> Fraction:
    """Return sigma^2 of the noise with a given variance.

    The variance increases with sigma^2 and never exceeds it; from 2 on both agree to 16 digits
    (Canonne, Kamath & Steinke, arXiv:2004.00010, Fact 19).
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
