"""Confidence regions of parameters, by the normal approximation at the maximum likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray
from das.errors import SchemaError, SolverError


@dataclass(frozen=True, eq=False)
class Ellipse:
    """The points t with (t - center)' covariance^-1 (t - center) <= radius^2.

    Attributes:
      center: float64[k], the estimate.
      covariance: float64[k, k], of the estimate, positive definite.
      radius: In standard errors: the square root of a quantile of chi-square with k degrees.
    """

    center: FloatArray
    covariance: FloatArray
    radius: float

    def contains(self, points: npt.ArrayLike) -> BoolArray:
        """Return which points, float[..., k], lie in the region or on its boundary, bool[...]."""
        away = np.asarray(points, np.float64) - self.center
        squares = (away * np.linalg.solve(self.covariance, away[..., None])[..., 0]).sum(axis=-1)
        return np.asarray(squares <= self.radius**2)

    def axes(self) -> FloatArray:
        """Return the half axes of the ellipsoid as rows, the longest first, float64[k, k]."""
        lengths, directions = np.linalg.eigh(self.covariance)
        return np.asarray((self.radius * np.sqrt(lengths) * directions).T[::-1])

    def boundary(self, n: int) -> FloatArray:
        """Return n points of the boundary for a plot, the first repeated at the end, float64[n, 2].

        Raises:
          SchemaError: The region does not have two dimensions.
        """
        if len(self.center) != 2:
            raise SchemaError("confidence region", "is not in the plane", got=len(self.center))
        angle = np.linspace(0.0, 2 * np.pi, n)
        circle = np.stack((np.cos(angle), np.sin(angle)), axis=1)
        return np.asarray(self.center + circle @ self.axes())


def ellipse(
    estimate: npt.ArrayLike,
    information: npt.ArrayLike,
    confidence: float,
    parameters: Sequence[int] = (0, 1),
) -> Ellipse:
    """Return the region of some parameters, all others unknown.

    Args:
      estimate: float[p], maximum of a likelihood.
      information: float[p, p], its observed information.
      confidence: In (0, 1), of the region as a whole, such as 0.95.
      parameters: Indices of the k parameters of the region. Their covariance is a block of the
        inverse information.

    Law: Under the model the region holds the true parameters with probability `confidence`, as
    units become many. With few the approximation is rough, and simulation says how rough.

    Raises:
      SchemaError: The confidence is not in (0, 1), or shapes do not fit.
      SolverError: The information is not positive definite.
    """
    center = np.asarray(estimate, np.float64)
    matrix = np.asarray(information, np.float64)
    chosen = list(parameters)
    if not 0.0 < confidence < 1.0:
        raise SchemaError("confidence region", "no confidence", got=confidence, want="in (0, 1)")
    if center.ndim != 1 or matrix.shape != (len(center),) * 2:
        got = (center.shape, matrix.shape)
        raise SchemaError("confidence region", "shapes do not fit", got=got, want="(p,) and (p, p)")
    if not chosen or len({*chosen}) < len(chosen) or not {*chosen} <= {*range(len(center))}:
        want = f"some of 0 to {len(center) - 1}, each once"
        raise SchemaError("confidence region", "lacks parameters", got=chosen, want=want)
    if not np.isfinite(matrix).all() or not np.linalg.eigvalsh(matrix).min() > 0.0:
        raise SolverError("confidence region", "the information is not positive definite")
    from scipy.special import chdtri

    covariance = np.asarray(np.linalg.inv(matrix)[np.ix_(chosen, chosen)], np.float64)
    radius = float(chdtri(len(chosen), 1.0 - confidence)) ** 0.5
    return Ellipse(center[chosen], covariance, radius)
