"""The interface of a noise mechanism: its cost, its distribution and its sampler.

A mechanism adds independent noise of one distribution to every answer of an integer query. All
other code uses only the members of `Mechanism`. So a new mechanism is one class in one module that
`das.mechanisms.registry` lists; no other code depends on the kind of mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray, IntArray, WordArray
from das.definition import Definition
from das.errors import BudgetError
from das.mechanisms.entropy import BitSource


class Norm(StrEnum):
    """The norm of the query sensitivity that a cost is proportional to.

    Under L2_SQUARED a cost is also inversely proportional to the variance of the noise. Planners of
    strategies need this to trade costs against variances.
    """

    L1 = "l1"  # the largest sum of absolute changes of answers
    L2_SQUARED = "l2_squared"  # the largest sum of squared changes of answers


class Sampler(Protocol):
    """A sampler of one noise distribution from uniform words; a few draws need further bits."""

    @property
    def words_per_draw(self) -> int:
        """Return the number of words that each draw starts from."""

    def draw_many(self, words: WordArray, more: Callable[[int], BitSource]) -> IntArray:
        """Draw n integers, int64[n].

        Args:
          words: uint64[n * words_per_draw], uniform words; each draw starts from its part.
          more: Function from the index of a draw to the source of its further bits.
        """


class Distribution(Protocol):
    """A symmetric noise distribution in floats, for analysis and planning, not for sampling."""

    @property
    def is_discrete(self) -> bool:
        """Return whether noise is an integer."""

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        """Return the log of the density over the density at 0, elementwise; at most 0.

        A discrete distribution has density 0 at non-integers.
        """

    def log_peak(self) -> float:
        """Return the log density at 0."""

    def quantiles(self, probabilities: FloatArray) -> FloatArray:
        """Return the quantiles of the noise, elementwise.

        Args:
          probabilities: In [0, 1). At 0, a discrete distribution returns its 2^-53 quantile.
        """


class Continuous(Distribution, Protocol):
    """A noise distribution on the real numbers: the limit of a discrete one for a large scale.

    A class is a scale family.
    """

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return the distribution with this variance, > 0."""

    def log_cdf(self, values: FloatArray) -> FloatArray:
        """Return the log of P(noise <= value), elementwise."""


@dataclass(frozen=True)
class LossAtoms:
    """Upper bound on the distribution of the privacy loss ln P(o)/Q(o), o drawn from P.

    Attributes:
      atoms: Upper bounds of losses in nats and of their probabilities.
      beyond: Upper bound on the remaining probability; it counts as an infinite loss.
    """

    atoms: Sequence[tuple[Fraction, Decimal]]
    beyond: Decimal


class Mechanism(Distribution, Protocol):
    """Independent, symmetric integer noise. Values are frozen and compare by distribution.

    A mechanism is a subclass with one field, its exact parameter.

    Attributes:
      kind: Name of the mechanism in files; with `parameter` it identifies the distribution.
      title: Name of the mechanism in prose, as in "a discrete Gaussian variable".
      symbol: Name of the parameter in reports.
      norms: For each privacy definition that can charge the mechanism, the norm of the sensitivity
        that the cost is proportional to.
      continuous: The limit distribution for a large variance.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    symbol: ClassVar[str]
    norms: ClassVar[Mapping[Definition, Norm]]
    continuous: ClassVar[type[Continuous]]

    def __init__(self, parameter: Fraction, /) -> None: ...

    def __hash__(self) -> int:
        return hash((self.kind, self.parameter))

    @classmethod
    def of(cls, parameter: Fraction) -> Self:
        """Return the mechanism with this parameter.

        Raises:
          BudgetError: The parameter is out of range or not a Fraction.
        """
        return cls(parameter)

    @classmethod
    def costing(cls, definition: Definition, cost: Fraction, sensitivity: Fraction) -> Self:
        """Return the mechanism for which one measurement of a query costs exactly `cost`.

        Args:
          definition: A privacy definition of `norms`.
          cost: Exact, > 0.
          sensitivity: Sensitivity of the query in the norm of the definition; exact, > 0.

        Raises:
          BudgetError: The definition cannot charge the mechanism, or the parameter is out of range.
        """

    def cost(self, definition: Definition, sensitivity: Fraction) -> Fraction:
        """Return the cost of measuring a query of this sensitivity: exact, or an upper bound.

        Raises:
          BudgetError: The definition cannot charge the mechanism.
        """

    @property
    def unit_rho(self) -> Fraction:
        """Return an exact upper bound on the zCDP cost of moving one answer by 1."""

    def unit_losses(self, digits: int) -> LossAtoms:
        """Return the privacy losses of one answer that moves by 1.

        Args:
          digits: The sum of the probabilities is too large by less than 10^-digits.

        Raises:
          BudgetError: There are too many losses to list.
        """

    @property
    def parameter(self) -> Fraction:
        """Return the exact parameter that, with `kind`, identifies the distribution."""

    @property
    def continuous_variance(self) -> Fraction:
        """Return the variance of the continuous distribution with this parameter; exact, > 0."""

    def variance(self) -> float:
        """Return the variance of the noise of one answer; 0.0 if below the float range."""

    def cdf(self, k: int) -> float:
        """Return P(X <= k)."""

    def quantile(self, probability: float) -> int:
        """Return the least k with P(X <= k) >= probability, 0 < probability < 1."""

    def sampler(self) -> Sampler:
        """Return an exact sampler that is fast for this parameter."""

    def log_peak(self) -> float:
        """Return the log of P(X = 0)."""
        return math.log(self.cdf(0) - self.cdf(-1))

    def quantiles(self, probabilities: FloatArray) -> FloatArray:
        """Return the integer quantiles, from a table of all values of probability above 2^-53."""
        support, cumulative = _cumulative(self)
        at = np.searchsorted(cumulative, probabilities)
        return support[np.minimum(at, len(support) - 1)].astype(np.float64)


_LEAST_PROBABILITY = 2.0**-53  # the spacing of uniform floats, so no smaller one is requested


@lru_cache(maxsize=64)
def _cumulative(mechanism: Mechanism) -> tuple[IntArray, FloatArray]:
    least = mechanism.quantile(_LEAST_PROBABILITY)
    support = np.arange(least, 1 - least)
    masses = np.exp(mechanism.log_ratio(support))
    return support, np.cumsum(masses) / masses.sum()


def on_integers(noise: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """Return `log_ratio` where the noise is an integer, and -inf elsewhere."""
    return np.where(noise == np.rint(noise), log_ratio, -np.inf)


def require_chargeable(mechanism: type[Mechanism], definition: Definition) -> None:
    """Check that a privacy definition can charge a mechanism.

    Raises:
      BudgetError: The mechanism has no cost under this definition.
    """
    if definition not in mechanism.norms:
        raise BudgetError(
            f"mechanism {mechanism.kind}",
            "has no cost under this privacy definition",
            got=str(definition),
            want=" or ".join(mechanism.norms),
        )


def require_parameter(where: str, name: str, value: Fraction, most: Fraction) -> None:
    """Check the exact parameter of a mechanism.

    Raises:
      BudgetError: The parameter is not a Fraction in (0, most].
    """
    if not isinstance(value, Fraction) or not 0 < value <= most:
        raise BudgetError(
            where,
            f"{name} cannot be used",
            got=repr(value),
            want=f"a Fraction, 0 < {name} <= {most}",
        )
