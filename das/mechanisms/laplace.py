"""The discrete Laplace mechanism and the continuous Laplace distribution."""

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
from das.mechanisms.table import laplace_table
from das.mechanisms.wide import MOST_SCALE, MOST_TABLE_SCALE, wide_laplace
from das.rational import decimal_of


@dataclass(frozen=True, slots=True)
class Laplace:
    """Continuous noise with density proportional to exp(-|x| / scale), scale > 0.

    >>> Laplace(5.0).log_ratio([5.0, -10.0]).tolist()
    [-1.0, -2.0]
    >>> round(Laplace(5.0).log_peak(), 6)  # log(1 / 10)
    -2.302585
    """

    is_discrete: ClassVar[bool] = False
    scale: float

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise BudgetError("Laplace", "scale must be positive", got=self.scale)

    @classmethod
    def of_variance(cls, variance: float) -> Laplace:
        """Return the distribution with 2 scale^2 = variance."""
        return cls(math.sqrt(variance / 2))

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        """Return the log of the density over its largest value, -|noise| / scale."""
        return np.asarray(-np.abs(np.asarray(noise, np.float64)) / self.scale)

    def log_peak(self) -> float:
        """Return the log density at 0."""
        return -math.log(2 * self.scale)

    def log_cdf(self, values: FloatArray) -> FloatArray:
        """Return the log of P(noise <= value), elementwise."""
        z = values / self.scale
        return np.where(z < 0, z - math.log(2), np.log1p(-np.exp(-np.abs(z)) / 2))

    def quantiles(self, probabilities: FloatArray) -> FloatArray:
        """Return the quantiles of the noise at these probabilities, elementwise."""
        tail = np.minimum(probabilities, 1 - probabilities)
        return np.asarray(np.sign(probabilities - 0.5) * -np.log(2 * tail) * self.scale)


@dataclass(frozen=True)
class DiscreteLaplace(Mechanism):
    """Noise with P(X = k) proportional to exp(-|k| / scale): the two-sided geometric mechanism.

    Attributes:
      scale: Exact parameter, 0 < scale <= 2^39.

    Raises:
      BudgetError: `scale` is out of range or not a Fraction.

    References:
      Ghosh, Roughgarden & Sundararajan, STOC 2009, arXiv:0811.2841.

    >>> DiscreteLaplace(Fraction(50)).cost(Definition.PURE, Fraction(2))
    Fraction(1, 25)
    """

    kind: ClassVar[str] = "discrete_laplace"
    title: ClassVar[str] = "discrete Laplace"
    symbol: ClassVar[str] = "Scale"
    norms: ClassVar[Mapping[Definition, Norm]] = MappingProxyType({Definition.PURE: Norm.L1})
    continuous: ClassVar[type[Continuous]] = Laplace
    is_discrete: ClassVar[bool] = True
    scale: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.title, "scale", self.scale, MOST_SCALE)

    @classmethod
    def costing(
        cls, definition: Definition, cost: Fraction, sensitivity: Fraction
    ) -> DiscreteLaplace:
        """Return the mechanism that costs epsilon for a query of this L1 sensitivity."""
        require_chargeable(cls, definition)
        return cls(sensitivity / cost)

    def cost(self, definition: Definition, sensitivity: Fraction) -> Fraction:
        """Return epsilon of one measurement, the L1 sensitivity / scale, exact."""
        require_chargeable(type(self), definition)
        return sensitivity / self.scale

    @property
    def unit_rho(self) -> Fraction:
        """Return 1 / (2 scale^2): epsilon-DP implies rho = epsilon^2 / 2."""
        return 1 / (2 * self.scale**2)

    def unit_losses(self, digits: int) -> LossAtoms:
        """Return the losses of a shift by 1: 1 / scale up to noise 0, else -1 / scale."""
        with localcontext(Context(prec=digits + 2)):
            ratio, up = (-1 / decimal_of(self.scale)).exp(), 1 + Decimal(10) ** -digits
            atoms = [
                (1 / self.scale, up / (1 + ratio)),
                (-1 / self.scale, up * ratio / (1 + ratio)),
            ]
            return LossAtoms(atoms, Decimal(0))

    @property
    def parameter(self) -> Fraction:
        """Return the scale, the parameter of the mechanism."""
        return self.scale

    @property
    def continuous_variance(self) -> Fraction:
        """Return the variance of `Laplace`, 2 scale^2."""
        return 2 * self.scale**2

    def variance(self) -> float:
        """Return the variance, slightly below 2 scale^2."""
        return moments.laplace_variance(scale=self.scale)

    def cdf(self, k: int) -> float:
        """Return P(X <= k)."""
        return moments.laplace_cdf(k, scale=self.scale)

    def quantile(self, probability: float) -> int:
        """Return the least k with P(X <= k) >= probability."""
        return moments.laplace_quantile(probability, scale=self.scale)

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        """Return the log of P(X = noise) / P(X = 0), -|noise| / scale on the integers."""
        at = np.asarray(noise, np.float64)
        return on_integers(at, -np.abs(at) / float(self.scale))

    def sampler(self) -> Sampler:
        """Return a table sampler, or a two-level sampler for a large scale."""
        if self.scale <= MOST_TABLE_SCALE:
            return laplace_table(self.scale)
        return wide_laplace(self.scale)
