"""The discrete Gaussian mechanism and the continuous Gaussian distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray
from das.definition import Definition
from das.errors import BudgetError
from das.mechanisms import moments
from das.mechanisms.mechanism import (
    Continuous,
    LossAtoms,
    Mechanism,
    Norm,
    Sampler,
    on_integers,
    require_chargeable,
    require_parameter,
)
from das.mechanisms.table import gaussian_table
from das.mechanisms.wide import MOST_SIGMA_SQ, wide_gaussian
from das.rational import decimal_of

# A table grows with sigma. At this limit it has 9,300 entries and takes some 50 ms to build.
WIDE_SIGMA_SQ = Fraction(1 << 20)

_MOST_LOSSES = 10**5  # noise values of either sign; default, not measured
_SPARE = 16  # extra decimal digits: 12 for rounding 10^5 times 10^5 products, and a margin


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Continuous noise with density proportional to exp(-x^2 / (2 sigma_sq)), sigma_sq > 0.

    At integers the density is proportional to the discrete Gaussian of the same parameter. Models
    use it in place of the discrete Gaussian if they treat confidential answers as real numbers.
    """

    is_discrete: ClassVar[bool] = False
    sigma_sq: float

    def __post_init__(self) -> None:
        if not self.sigma_sq > 0:
            raise BudgetError("Gaussian", "sigma_sq must be positive", got=self.sigma_sq)

    @classmethod
    def of_variance(cls, variance: float) -> Gaussian:
        """Return the distribution with sigma_sq = variance."""
        return cls(variance)

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        """Return the log of the density over its largest value, -noise^2 / (2 sigma_sq)."""
        return np.asarray(-np.square(np.asarray(noise, np.float64)) / (2 * self.sigma_sq))

    def log_peak(self) -> float:
        """Return the log density at 0."""
        return -0.5 * math.log(2 * math.pi * self.sigma_sq)

    def log_cdf(self, values: FloatArray) -> FloatArray:
        """Return the log of P(noise <= value), elementwise."""
        from scipy.special import log_ndtr

        return np.asarray(log_ndtr(values / math.sqrt(self.sigma_sq)))

    def quantiles(self, probabilities: FloatArray) -> FloatArray:
        """Return the quantiles of the noise at these probabilities, elementwise."""
        from scipy.special import ndtri

        return np.asarray(ndtri(probabilities) * math.sqrt(self.sigma_sq))


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Noise with P(X = k) proportional to exp(-k^2 / (2 sigma_sq)) on the integers.

    Attributes:
      sigma_sq: Exact parameter, 0 < sigma_sq <= 2^80. The variance is slightly smaller.

    Raises:
      BudgetError: `sigma_sq` is out of range or not a Fraction.

    References:
      Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010, Theorem 14.

    >>> DiscreteGaussian(Fraction(50)).cost(Definition.ZCDP, Fraction(2))
    Fraction(1, 50)
    """

    kind: ClassVar[str] = "discrete_gaussian"
    title: ClassVar[str] = "discrete Gaussian"
    symbol: ClassVar[str] = "\N{GREEK SMALL LETTER SIGMA}²"
    norms: ClassVar[Mapping[Definition, Norm]] = MappingProxyType(
        {Definition.ZCDP: Norm.L2_SQUARED}
    )
    continuous: ClassVar[type[Continuous]] = Gaussian
    is_discrete: ClassVar[bool] = True
    sigma_sq: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.title, "sigma_sq", self.sigma_sq, MOST_SIGMA_SQ)

    @classmethod
    def costing(
        cls, definition: Definition, cost: Fraction, sensitivity: Fraction
    ) -> DiscreteGaussian:
        """Return the mechanism that costs rho for a query of this squared L2 sensitivity."""
        require_chargeable(cls, definition)
        return cls(sensitivity / (2 * cost))

    def cost(self, definition: Definition, sensitivity: Fraction) -> Fraction:
        """Return rho of one measurement, the squared L2 sensitivity / (2 sigma_sq), exact."""
        require_chargeable(type(self), definition)
        return sensitivity / (2 * self.sigma_sq)

    @property
    def unit_rho(self) -> Fraction:
        """Return the zCDP cost of moving one answer by 1, 1 / (2 sigma_sq)."""
        return 1 / (2 * self.sigma_sq)

    def unit_losses(self, digits: int) -> LossAtoms:
        """Return the losses of a shift by 1: (1 - 2 z) / (2 sigma_sq) at noise z.

        Raises:
          BudgetError: There are more than 100,000 losses of either sign.
        """
        with localcontext(Context(prec=digits + _SPARE)):
            least, parameter = Decimal(10) ** -(digits + 2), decimal_of(self.sigma_sq)
            weights, ratio = [Decimal(1)], (-1 / (2 * parameter)).exp()
            factor = (-1 / parameter).exp()
            while weights[-1] > least * (1 - ratio):
                weights.append(weights[-1] * ratio)
                ratio *= factor
                if len(weights) > _MOST_LOSSES:
                    raise BudgetError(
                        "privacy losses",
                        "are too many to list for noise of this scale",
                        got=f"sigma_sq {self.sigma_sq}",
                        remedy="use the epsilon that follows from rho",
                    )
            # Weight k is a product of k rounded ratios, each of up to k factors: its error is below
            # k^2 units of the last digit.
            least *= 1 + Decimal(10) ** -5
            whole = 2 * sum(weights) - 1  # at most the sum of all weights, up to rounding
            up = (1 + Decimal(10) ** -(digits + 2)) / whole
            atoms = [
                ((1 - 2 * z) / (2 * self.sigma_sq), weights[abs(z)] * up)
                for z in range(1 - len(weights), len(weights))
            ]
            # The tail on either side weighs at most the geometric series with the last ratio.
            beyond = least * up
            loss, last = atoms[-1]
            return LossAtoms([*atoms[:-1], (loss, last + beyond)], beyond)

    @property
    def parameter(self) -> Fraction:
        """Return sigma_sq, the parameter of the mechanism."""
        return self.sigma_sq

    @property
    def continuous_variance(self) -> Fraction:
        """Return sigma_sq, the variance of the continuous `Gaussian` with the same parameter."""
        return self.sigma_sq

    def variance(self) -> float:
        """Return the variance, at most sigma_sq."""
        return moments.variance(sigma_sq=self.sigma_sq)

    def cdf(self, k: int) -> float:
        """Return P(X <= k)."""
        return moments.cdf(k, sigma_sq=self.sigma_sq)

    def quantile(self, probability: float) -> int:
        """Return the least k with P(X <= k) >= probability."""
        return moments.quantile(probability, sigma_sq=self.sigma_sq)

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        """Return the log of P(X = noise) / P(X = 0), -noise^2 / (2 sigma_sq) on the integers."""
        at = np.asarray(noise, np.float64)
        return on_integers(at, -np.square(at) / (2 * float(self.sigma_sq)))

    def sampler(self) -> Sampler:
        """Return a table sampler, or a two-level sampler for a large sigma_sq."""
        if self.sigma_sq <= WIDE_SIGMA_SQ:
            return gaussian_table(self.sigma_sq)
        return wide_gaussian(self.sigma_sq)
