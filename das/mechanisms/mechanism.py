"""What a mechanism is: noise as a value that knows its cost, its distribution and its sampler.

A mechanism adds independent noise of one distribution to every answer of an integer query. All that
the rest of the project asks about noise is a member of `Mechanism`, so a further mechanism is one
class in one module that `das.mechanisms.registry` lists; nothing else asks which mechanism it has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
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
    """The sensitivity of a query that a cost is proportional to.

    By L2_SQUARED a cost is also inversely proportional to the variance of the noise, so that costs
    of queries measured together trade against variances, as planners of strategies need it.
    """

    L1 = "l1"  # the largest sum of absolute changes of answers
    L2_SQUARED = "l2_squared"  # the largest sum of squared changes of answers


class Sampler(Protocol):
    """Draws noise of one distribution from uniform words; a few draws ask for more bits."""

    @property
    def words_per_draw(self) -> int:
        """Words that each draw starts from."""
        ...

    def draw_many(self, words: WordArray, more: Callable[[int], BitSource]) -> IntArray:
        """Return int64[n] from uint64[n words_per_draw]; more(i) gives further bits of draw i."""
        ...


class Distribution(Protocol):
    """A symmetric distribution of noise, in floats: for analysts and plans, never for a release."""

    @property
    def is_discrete(self) -> bool:
        """Whether noise is a whole number."""
        ...

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        """Log of the density of noise over that of noise 0, elementwise; at most 0.

        A discrete distribution has density 0 away from integers.
        """
        ...

    def log_peak(self) -> float:
        """Log of the density of noise 0."""
        ...

    def quantiles(self, probabilities: FloatArray) -> FloatArray:
        """The least value that noise does not exceed with these probabilities, elementwise.

        Args:
          probabilities: In [0, 1); a discrete distribution answers 0 by its least value above mass
            2^-53.
        """
        ...


class Continuous(Distribution, Protocol):
    """Noise with a density on the real numbers, which a discrete one approaches as it grows.

    All distributions of a class are one, scaled.

    Attributes:
      is_normal: Whether the density is that of a normal distribution.
    """

    is_normal: ClassVar[bool]

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return the distribution of this variance, which is positive."""
        ...

    def log_cdf(self, values: FloatArray) -> FloatArray:
        """Log of P(noise <= value), elementwise."""
        ...


@dataclass(frozen=True)
class LossAtoms:
    """How ln P(o)/Q(o) is distributed under P, bounded from above.

    Attributes:
      atoms: Losses in nats and their probabilities, neither smaller than it is.
      beyond: Probability of everything else, not smaller than it is; it counts as an infinite loss.
    """

    atoms: Sequence[tuple[Fraction, Decimal]]
    beyond: Decimal


class Mechanism(Distribution, Hashable, Protocol):
    """Independent, symmetric integer noise. Values are frozen and compare by distribution.

    Attributes:
      kind: Its name in files; with `parameter` it says which distribution it is.
      title: Its name in prose, as in "a discrete Gaussian variable".
      symbol: What tables call its parameter.
      norms: The definitions of privacy it can be charged in, and the sensitivity its cost is
        proportional to.
      continuous: The distribution it approaches as its variance grows.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    symbol: ClassVar[str]
    norms: ClassVar[Mapping[Definition, Norm]]
    continuous: ClassVar[type[Continuous]]

    @classmethod
    def of(cls, parameter: Fraction) -> Self:
        """Return the mechanism of a parameter.

        Raises:
          BudgetError: The parameter is out of range or not a Fraction.
        """
        ...

    @classmethod
    def costing(cls, definition: Definition, cost: Fraction, sensitivity: Fraction) -> Self:
        """Return the mechanism whose release of a query costs exactly `cost`.

        Args:
          definition: One of `norms`.
          cost: Exact, > 0.
          sensitivity: Of the query, in the norm of the definition; exact, > 0.

        Raises:
          BudgetError: It cannot be charged in this definition, or its parameter is out of range.
        """
        ...

    def cost(self, definition: Definition, sensitivity: Fraction) -> Fraction:
        """Return what one release of a query of this sensitivity costs: exact, or an upper bound.

        Raises:
          BudgetError: It cannot be charged in this definition.
        """
        ...

    @property
    def unit_rho(self) -> Fraction:
        """An upper bound in zCDP on the cost of moving one answer by 1, exact."""
        ...

    def unit_losses(self, digits: int) -> LossAtoms:
        """Return the privacy losses of one answer that moves by 1.

        Args:
          digits: Probabilities are too large by less than 10^-digits altogether.

        Raises:
          BudgetError: There are too many losses to list.
        """
        ...

    @property
    def parameter(self) -> Fraction:
        """The exact number that, with `kind`, says which distribution it is."""
        ...

    @property
    def continuous_variance(self) -> Fraction:
        """Variance of the continuous distribution of the same parameter, exact and positive."""
        ...

    def variance(self) -> float:
        """Return the variance of the noise of one answer; 0.0 where a float holds no more."""
        ...

    def cdf(self, k: int) -> float:
        """Return P(X <= k)."""
        ...

    def quantile(self, probability: float) -> int:
        """Return the least k with P(X <= k) >= probability, 0 < probability < 1."""
        ...

    def sampler(self) -> Sampler:
        """Return the exact sampler that is fast at this parameter."""
        ...


_LEAST_PROBABILITY = 2.0**-53  # the spacing of uniform floats; rarer noise is never asked for


def integer_quantiles(mechanism: Mechanism, probabilities: FloatArray) -> FloatArray:
    """`Mechanism.quantiles` from a table of all values of more than negligible probability."""
    support, cumulative = _cumulative(mechanism)
    at = np.searchsorted(cumulative, probabilities)
    return support[np.minimum(at, len(support) - 1)].astype(np.float64)


@lru_cache(maxsize=64)
def _cumulative(mechanism: Mechanism) -> tuple[IntArray, FloatArray]:
    least = mechanism.quantile(_LEAST_PROBABILITY)
    support = np.arange(least, 1 - least)
    masses = np.exp(mechanism.log_ratio(support))
    return support, np.cumsum(masses) / masses.sum()


def on_integers(noise: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """A log density where the noise is a whole number, -inf elsewhere."""
    return np.where(noise == np.rint(noise), log_ratio, -np.inf)


def require_chargeable(mechanism: type[Mechanism], definition: Definition) -> None:
    """Check that costs of a mechanism can be counted in a definition of privacy.

    Raises:
      BudgetError: They cannot.
    """
    if definition not in mechanism.norms:
        raise BudgetError(
            f"mechanism {mechanism.kind}",
            "cannot be charged in this definition of privacy",
            got=str(definition),
            want=" or ".join(mechanism.norms),
        )


def require_parameter(where: str, name: str, value: Fraction, most: Fraction) -> None:
    """Check the exact parameter of a mechanism.

    Raises:
      BudgetError: It is not a Fraction in (0, most].
    """
    if not isinstance(value, Fraction) or not 0 < value <= most:
        raise BudgetError(
            where,
            f"{name} cannot be used",
            got=repr(value),
            want=f"a Fraction, 0 < {name} <= {most}",
        )
