"""Laws of noise as an analyst needs them: relative densities, and draws to floating-point accuracy.

Nothing here makes a release. Draws come from a NumPy generator that the analyst seeds; the noise of
a release comes from `das.mechanisms.entropy` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray
from das.errors import BudgetError
from das.mechanisms.mechanism import DiscreteGaussian, DiscreteLaplace, Mechanism

Generator = np.random.Generator  # noqa: TID251 - an analyst's own simulations

_REACH = 40.0  # standard deviations; beyond, densities are below 1e-300


@dataclass(frozen=True, slots=True)
class Laplace:
    """Continuous noise with density proportional to exp(-|x| / scale), scale > 0."""

    scale: float

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise BudgetError("Laplace", "scale must be positive", got=self.scale)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Continuous noise with density proportional to exp(-x^2 / (2 sigma_sq)), sigma_sq > 0.

    At integers it is proportional to the discrete Gaussian of the same parameter, which it replaces
    where a model lets confidential answers be any real number.
    """

    sigma_sq: float

    def __post_init__(self) -> None:
        if not self.sigma_sq > 0:
            raise BudgetError("Gaussian", "sigma_sq must be positive", got=self.sigma_sq)


Law = Mechanism | Laplace | Gaussian


def log_ratio(law: Law, noise: npt.ArrayLike) -> FloatArray:
    """Log of the density of noise over its largest value, at noise 0; at most 0.

    Args:
      law: The law.
      noise: Any shape; a discrete law has density 0 away from integers.

    Returns:
      float64 of the same shape.

    >>> log_ratio(Laplace(5.0), [5.0, -10.0]).tolist()
    [-1.0, -2.0]
    """
    at = np.asarray(noise, np.float64)
    if isinstance(law, Laplace):
        return -np.abs(at) / law.scale
    if isinstance(law, Gaussian):
        return -np.square(at) / (2 * law.sigma_sq)
    if isinstance(law, DiscreteGaussian):
        decay = -np.square(at) / (2 * float(law.sigma_sq))
    elif isinstance(law, DiscreteLaplace):
        decay = -np.abs(at) / float(law.scale)
    else:
        raise BudgetError("law of noise", "has no density here", got=type(law).__name__)
    return np.where(at == np.rint(at), decay, -np.inf)


def is_discrete(law: Law) -> bool:
    """Whether noise is a whole number."""
    return not isinstance(law, Laplace | Gaussian)


def log_peak(law: Law) -> float:
    """Log of the density of noise 0.

    >>> round(log_peak(Laplace(5.0)), 6)  # log(1 / 10)
    -2.302585
    """
    if isinstance(law, Laplace):
        return -math.log(2 * law.scale)
    if isinstance(law, Gaussian):
        return -0.5 * math.log(2 * math.pi * law.sigma_sq)
    return math.log(law.cdf(0) - law.cdf(-1))


def draw_noise(law: Law, size: int | tuple[int, ...], generator: Generator) -> FloatArray:
    """Draw independent noise for simulations; whole numbers if the law is discrete.

    Law: that of `law`, up to floating point; never for a release.
    """
    if isinstance(law, Laplace):
        return generator.laplace(scale=law.scale, size=size)
    if isinstance(law, Gaussian):
        return generator.normal(scale=law.sigma_sq**0.5, size=size)
    if isinstance(law, DiscreteLaplace):
        stop = -np.expm1(-1 / float(law.scale))
        difference = generator.geometric(stop, size) - generator.geometric(stop, size)
        return np.asarray(difference, np.float64)
    reach = int(_REACH * float(law.continuous_variance) ** 0.5) + 2
    support = np.arange(-reach, reach + 1)
    weights = np.exp(log_ratio(law, support))
    return generator.choice(support, size=size, p=weights / weights.sum()).astype(np.float64)
