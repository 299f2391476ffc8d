"""Differences of two sets of published numbers, in the measures of official comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import SchemaError

LARGE_PERCENT = 5.0  # the first threshold of the official summary metrics


@dataclass(frozen=True)
class Differences:
    """Measures of differences between numbers and a reference.

    These are the measures of the Detailed Summary Metrics of the 2020 census (U.S. Census Bureau).
    Percentages leave out answers whose reference is 0, and are None if none is left.

    Attributes:
      answers: Number of compared answers.
      mean: Mean difference.
      mean_absolute: Mean absolute difference.
      root_mean_square: Root of the mean squared difference.
      quantile_90: Smallest number that 90 % of the absolute differences do not exceed.
      largest: Largest absolute difference.
      variation: Root mean square as a percentage of the mean reference.
      mean_percent: Mean difference as a percentage of the reference.
      mean_absolute_percent: Mean absolute difference as a percentage of the reference.
      large: Percentage of answers that differ by more than LARGE_PERCENT of the reference.
    """

    answers: int
    mean: float
    mean_absolute: float
    root_mean_square: float
    quantile_90: float
    largest: float
    variation: float | None
    mean_percent: float | None
    mean_absolute_percent: float | None
    large: float | None


def measure_differences(values: FloatArray, reference: FloatArray) -> Differences:
    """Measure the differences between numbers and a reference.

    Args:
      values: float64[n], with n > 0.
      reference: float64[n].

    Raises:
      SchemaError: There are no numbers, or the shapes differ.
    """
    if values.shape != reference.shape or not values.size:
        got = f"shapes {values.shape} and {reference.shape}"
        raise SchemaError("differences", "need numbers of equal shape", got=got)
    errors = values - reference
    absolute, nonzero = np.abs(errors), reference != 0
    root, level = float(np.sqrt(np.mean(errors**2))), float(reference.mean())
    percent = 100 * errors[nonzero] / reference[nonzero]
    some = bool(percent.size)
    return Differences(
        answers=int(values.size),
        mean=float(errors.mean()),
        mean_absolute=float(absolute.mean()),
        root_mean_square=root,
        quantile_90=float(np.quantile(absolute, 0.9, method="inverted_cdf")),
        largest=float(absolute.max()),
        variation=100 * root / level if level > 0 else None,
        mean_percent=float(percent.mean()) if some else None,
        mean_absolute_percent=float(np.abs(percent).mean()) if some else None,
        large=float(100 * np.mean(np.abs(percent) > LARGE_PERCENT)) if some else None,
    )
