r"""Discrete Gaussian noise as a randomized rounding of normal noise, and losses of normal noise.

One record moves many answers of a planned strategy, by many integers. Their losses are bounded by
the loss of one normal variable.

**Rounding.** Round y to the integer z with probability exp(-(z - y)^2 / (2 r^2)) / S(y). If y is
normal with variance sigma^2 - r^2, the sum over y makes z proportional to exp(-z^2 / (2 sigma^2)),
the discrete Gaussian, but for the factor 1 / S(y). By Poisson summation, S(y) is constant up to
1 +- 2q / (1 - q), q = exp(-2 pi^2 r^2). So both distributions differ by a factor of at most
exp(5q), for q <= 1/100. Integer shifts move y and z alike. So m answers that move by integers v_i
lose at most as much as normal noise with mu^2 = sum v_i^2 / (sigma_i^2 - r^2), up to a factor
exp(5qm) in probability and 10qm in the loss.

**The other way.** Discrete Gaussian noise plus normal noise of variance r^2 is normal with variance
sigma^2 + r^2, up to the factor for q = exp(-2 pi^2 r^2 sigma^2 / (sigma^2 + r^2)). So the losses of
normal noise are at most those of one discrete answer that moves by s, with
s^2 / (sigma^2 + r^2) = mu^2. They are listed exactly.

References:
  Micciancio & Peikert, CRYPTO 2013 (convolutions of discrete Gaussians); Dong, Roth & Su, JRSS-B
  2022, arXiv:1905.02383 (normal noise composes to normal noise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from das.errors import BudgetError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.mechanism import LossAtoms, Mechanism
from das.rational import decimal_of

_SIGMA = 150  # least sigma of the listed answer: mu^2 grows by at most 3 in 22,500
_SMOOTH = 2  # r^2 of the listed answer: 5q is 4e-17
_SMOOTH_SLACK = Fraction(1, 10**16)
_TWICE_PI_SQ = Decimal("19.7392")  # rounded down


def normal_variance(noise: Mechanism, slack: Fraction) -> Fraction:
    """Return the variance of normal noise of which discrete noise is a randomized rounding.

    Args:
      noise: The noise of an answer that moves by an integer.
      slack: Largest logarithm of the ratio of probabilities, exact, 0 < slack <= 1/20.

    Raises:
      BudgetError: The noise is not known to be a rounding, or too small for this slack.
    """
    smooth = Fraction((decimal_of(5 / slack).ln() / _TWICE_PI_SQ).quantize(Decimal("0.001")))
    smooth += Fraction(1, 1000)
    if not isinstance(noise, DiscreteGaussian) or noise.sigma_sq <= 2 * smooth:
        raise BudgetError(
            f"{noise.title} noise",
            "has no known losses if one record moves an answer by more than 1",
            got=f"{noise.symbol} {float(noise.parameter):.3g}",
            want=f"discrete Gaussian noise with a sigma_sq above {float(2 * smooth):.3g}",
            remedy="use the epsilon that follows from rho",
        )
    return noise.sigma_sq - smooth


@dataclass(frozen=True)
class NormalShift:
    """Normal noise whose mean moves, as a bound on the losses of many discrete answers.

    Attributes:
      unit_rho: Half the squared distance of the means in standard deviations, exact, > 0.
      slack: Logarithm by which true probabilities may be larger; losses by twice as much.
    """

    unit_rho: Fraction
    slack: Fraction

    def unit_losses(self, digits: int) -> LossAtoms:
        """Return upper bounds of the losses, as `Mechanism.unit_losses` does.

        Raises:
          BudgetError: There are too many losses to list.
        """
        mu_sq, slack = 2 * self.unit_rho, self.slack + _SMOOTH_SLACK
        step = math.isqrt(math.ceil(mu_sq * _SIGMA**2)) + 1
        sigma_sq = Fraction(math.floor(step**2 / mu_sq) - _SMOOTH)  # small fractions are fast
        unit = DiscreteGaussian(sigma_sq).unit_losses(digits)  # (1 - 2 z) / (2 sigma^2)
        further = (step**2 - step) / (2 * sigma_sq) + 2 * slack  # to (s^2 - 2 s z) / (2 sigma^2)
        factor = 1 + 2 * decimal_of(slack)  # above e^slack
        atoms = [(step * loss + further, share * factor) for loss, share in unit.atoms]
        return LossAtoms(atoms, unit.beyond * factor)
