"""Mechanisms as values: a law of noise, its exact cost, its moments and its sampler.

A mechanism adds independent noise of one law to every answer of an integer query. It is named in
files by `kind` and `parameter`, from which `read_mechanism` makes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

from das.arrays import IntArray, WordArray
from das.errors import BudgetError
from das.mechanisms import moments
from das.mechanisms.entropy import BitSource
from das.mechanisms.table import gaussian_table, laplace_table
from das.mechanisms.wide import (
    MOST_SCALE,
    MOST_SIGMA_SQ,
    MOST_TABLE_SCALE,
    wide_gaussian,
    wide_laplace,
)

# A table grows with sigma. At this limit it has 9,300 entries and takes some 50 ms to build.
WIDE_SIGMA_SQ = Fraction(1 << 20)


class Sampler(Protocol):
    """Draws noise of one law from uniform words; a few draws ask for more bits."""

    @property
    def words_per_draw(self) -> int:
        """Words that each draw starts from."""
        ...

    def draw_many(self, words: WordArray, more: Callable[[int], BitSource]) -> IntArray:
        """Return int64[n] from uint64[n words_per_draw]; more(i) gives further bits of draw i."""
        ...


class Mechanism(Protocol):
    """Independent, symmetric integer noise of one law. Values are frozen and compare by law."""

    kind: ClassVar[str]

    @property
    def parameter(self) -> Fraction:
        """The exact number that, with `kind`, says which law it is."""
        ...

    @property
    def continuous_variance(self) -> Fraction:
        """Variance of the continuous law with the same parameter, exact and positive."""
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


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """Noise with P(X = k) proportional to exp(-k^2 / (2 sigma_sq)) on the integers.

    Attributes:
      sigma_sq: Exact parameter, 0 < sigma_sq <= 2^80. It is not the variance.

    Raises:
      BudgetError: `sigma_sq` is out of range or not a Fraction.

    References:
      Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010, Theorem 14.

    >>> DiscreteGaussian(Fraction(50)).rho(Fraction(2))
    Fraction(1, 50)
    """

    kind: ClassVar[str] = "discrete_gaussian"
    sigma_sq: Fraction

    def __post_init__(self) -> None:
        _require("discrete Gaussian", "sigma_sq", self.sigma_sq, MOST_SIGMA_SQ)

    @classmethod
    def costing(cls, rho: Fraction, l2_sensitivity_sq: int) -> DiscreteGaussian:
        """Return the mechanism whose release of a query costs exactly rho."""
        return cls(Fraction(l2_sensitivity_sq) / (2 * rho))

    @property
    def parameter(self) -> Fraction:
        """sigma_sq."""
        return self.sigma_sq

    @property
    def continuous_variance(self) -> Fraction:
        """sigma_sq."""
        return self.sigma_sq

    def rho(self, l2_sensitivity_sq: Fraction) -> Fraction:
        """Return the zCDP cost of one release, l2_sensitivity_sq / (2 sigma_sq), exact."""
        return l2_sensitivity_sq / (2 * self.sigma_sq)

    def variance(self) -> float:
        """Return the true variance, at most sigma_sq."""
        return moments.variance(sigma_sq=self.sigma_sq)

    def cdf(self, k: int) -> float:
        """Return P(X <= k)."""
        return moments.cdf(k, sigma_sq=self.sigma_sq)

    def quantile(self, probability: float) -> int:
        """Return the least k with P(X <= k) >= probability."""
        return moments.quantile(probability, sigma_sq=self.sigma_sq)

    def sampler(self) -> Sampler:
        """Return a table, or two levels of them for a large sigma_sq."""
        if self.sigma_sq <= WIDE_SIGMA_SQ:
            return gaussian_table(self.sigma_sq)
        return wide_gaussian(self.sigma_sq)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """Noise with P(X = k) proportional to exp(-|k| / scale): the two-sided geometric mechanism.

    Attributes:
      scale: Exact parameter, 0 < scale <= 2^39.

    Raises:
      BudgetError: `scale` is out of range or not a Fraction.

    References:
      Ghosh, Roughgarden & Sundararajan, STOC 2009, arXiv:0811.2841.

    >>> DiscreteLaplace(Fraction(50)).epsilon(Fraction(2))
    Fraction(1, 25)
    """

    kind: ClassVar[str] = "discrete_laplace"
    scale: Fraction

    def __post_init__(self) -> None:
        _require("discrete Laplace", "scale", self.scale, MOST_SCALE)

    @classmethod
    def costing(cls, epsilon: Fraction, l1_sensitivity: int) -> DiscreteLaplace:
        """Return the mechanism whose release of a query costs exactly epsilon."""
        return cls(Fraction(l1_sensitivity) / epsilon)

    @property
    def parameter(self) -> Fraction:
        """The scale."""
        return self.scale

    @property
    def continuous_variance(self) -> Fraction:
        """2 scale^2."""
        return 2 * self.scale**2

    def epsilon(self, l1_sensitivity: Fraction) -> Fraction:
        """Return the pure cost of one release, l1_sensitivity / scale, exact."""
        return l1_sensitivity / self.scale

    def variance(self) -> float:
        """Return the variance, somewhat below 2 scale^2."""
        return moments.laplace_variance(scale=self.scale)

    def cdf(self, k: int) -> float:
        """Return P(X <= k)."""
        return moments.laplace_cdf(k, scale=self.scale)

    def quantile(self, probability: float) -> int:
        """Return the least k with P(X <= k) >= probability."""
        return moments.laplace_quantile(probability, scale=self.scale)

    def sampler(self) -> Sampler:
        """Return a table, or two levels of them for a large scale."""
        if self.scale <= MOST_TABLE_SCALE:
            return laplace_table(self.scale)
        return wide_laplace(self.scale)


def read_mechanism(kind: str, parameter: Fraction) -> Mechanism:
    """Make the mechanism that has this kind and parameter.

    Raises:
      BudgetError: The kind is unknown or the parameter out of range.
    """
    if kind == DiscreteGaussian.kind:
        return DiscreteGaussian(parameter)
    if kind == DiscreteLaplace.kind:
        return DiscreteLaplace(parameter)
    raise BudgetError(
        "mechanism",
        "is unknown",
        got=kind,
        want=f"{DiscreteGaussian.kind} or {DiscreteLaplace.kind}",
    )


def _require(where: str, name: str, value: Fraction, most: Fraction) -> None:
    if not isinstance(value, Fraction) or not 0 < value <= most:
        raise BudgetError(
            where,
            f"{name} cannot be used",
            got=repr(value),
            want=f"a Fraction, 0 < {name} <= {most}",
        )
