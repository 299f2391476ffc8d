"""How far released microdata are from the truth, and what a use of them does to groups.

All are functions of both files, so they are confidential unless the truth is public.

References:
  Rosenblatt, Stoyanovich & Musco, Stratification against the disparate impact of differential
  privacy, Definition 14 (workload error) and Figure 7 (disparity, demographic parity, FNR).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SchemaError

_MOST_CELLS = 1 << 27  # of one marginal, a gigabyte of counts


def shares(codes: IntArray, sizes: Sequence[int], attributes: Sequence[int]) -> FloatArray:
    """Shares of records by the levels of some attributes, float64[product of their sizes].

    Of no records all shares are 0.

    Args:
      codes: int64[n, d].
      sizes: d numbers of levels.
      attributes: Positions of columns.

    Raises:
      SchemaError: The marginal has too many cells.
    """
    cells = math.prod(sizes[i] for i in attributes)
    if cells > _MOST_CELLS:
        raise SchemaError(
            f"marginal of {len(attributes)} attributes",
            "is too large",
            got=f"{cells:.3g} cells",
            want=f"at most {_MOST_CELLS}",
        )
    spots = np.zeros(len(codes), np.int64)
    for i in attributes:
        spots = spots * sizes[i] + codes[:, i]
    return np.bincount(spots, minlength=cells) / max(1, len(codes))


def distances_of(
    truth: IntArray,
    released: IntArray,
    sizes: Sequence[int],
    marginals: Iterable[tuple[int, ...]],
) -> dict[tuple[int, ...], float]:
    """L1 distance of the shares of each marginal, by its attributes.

    Args:
      truth: int64[n, d], codes.
      released: int64[m, d], codes; m may differ from n.
      sizes: d numbers of levels.
      marginals: Sets of attributes.

    Raises:
      SchemaError: A marginal is too large.
    """
    # Columns are read one by one, 455 triples of 15: contiguous ones are read twice as fast.
    first, second = np.asfortranarray(truth), np.asfortranarray(released)
    return {
        each: float(np.abs(shares(first, sizes, each) - shares(second, sizes, each)).sum())
        for each in marginals
    }


def disparities(truth: FloatArray, released: FloatArray) -> FloatArray:
    """|released - truth| / |truth|, nan where the truth is 0 or either is undefined.

    Args:
      truth: float64[k, m], m values in each of k strata, such as means.
      released: float64[k, m].

    Raises:
      SchemaError: The shapes differ.
    """
    if truth.shape != released.shape:
        raise SchemaError("disparity", "shapes differ", got=f"{truth.shape}, {released.shape}")
    is_known = np.isfinite(truth) & np.isfinite(released) & (truth != 0)
    out = np.full(truth.shape, np.nan)
    out[is_known] = np.abs(released[is_known] - truth[is_known]) / np.abs(truth[is_known])
    return out


def demographic_parity_ratio(predicted: BoolArray, groups: IntArray) -> float:
    """Smallest over largest share of positive predictions among groups that have records (7b).

    1 is parity; nan if no group has a positive prediction, or there are no records.

    Args:
      predicted: bool[n].
      groups: int64[n], 0 or more.
    """
    rates = _rates(predicted, groups)
    if not len(rates) or rates.max() == 0:
        return math.nan
    return float(rates.min() / rates.max())


def false_negative_rate_difference(
    truth: BoolArray, predicted: BoolArray, groups: IntArray
) -> float:
    """Largest less smallest false negative rate among groups that have positive records (7c).

    Args:
      truth: bool[n].
      predicted: bool[n].
      groups: int64[n], 0 or more.

    Returns:
      0 is parity; nan if no record is positive.
    """
    if not len(truth) == len(predicted) == len(groups):
        raise SchemaError("false negative rates", "need a truth, a prediction and a group of each")
    rates = _rates(~predicted[truth], groups[truth])
    return float(rates.max() - rates.min()) if len(rates) else math.nan


def _rates(flags: BoolArray, groups: IntArray) -> FloatArray:
    """Share of flags in every group that has records."""
    if len(flags) != len(groups):
        raise SchemaError("rates by group", "need a group of each record")
    sizes = np.bincount(groups)
    counts = np.bincount(groups, weights=flags)
    return np.asarray(counts[sizes > 0] / sizes[sizes > 0])
