"""Estimates of any set of leaves, with covariances from the answers that the leaves share.

An area is a set of leaves. Given the true histogram x_u of a geounit u, the subtrees of its
children are independent but for their sum. So the part of an area in u has mean m + L x_u and
covariance C, given x_u and all answers:

    child c inside the area:  its part is the whole child;     child outside:  no part;
    H = sum_c L_c S_c,   L_u = H B_u^+,   m_u = sum_c (m_c + L_c z_c) - L_u s_u,
    C_u = sum_c (C_c + L_c S_c L_c') - H B_u^+ H',

with L = I, m = C = 0 for whole children. At any geounit that holds the area, with estimate x and
covariance F from all answers, the area is estimated by m + L x with covariance C + L F L'. Only
geounits that the area cuts are visited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.tree.passes import Moments

Parts = tuple[FloatArray, ...]  # one array per component


@dataclass(frozen=True, eq=False)
class Share:
    """Part of a geounit in an area, given its histogram x: mean offset + gain x, and covariance.

    Attributes:
      offset: Per component, float64[D, R].
      gain: Per component, float64[D, D].
      covariance: Per component, float64[D, D].
    """

    offset: Parts
    gain: Parts
    covariance: Parts


@dataclass(frozen=True, eq=False)
class CutChild:
    """Child that an area cuts: its share in the area, and its estimate from its subtree.

    Attributes:
      share: The part of the child in the area.
      values: Per component, float64[D, R].
      covariance: Per component, float64[D, D].
    """

    share: Share
    values: Parts
    covariance: Parts


def share_of_family(
    children: Moments,
    *,
    is_whole: BoolArray,
    cut: Sequence[CutChild],
    below: Moments,
) -> Share:
    """Compute the part of an area in a geounit with more than one child.

    Args:
      children: Subtree estimates of the geounit's children.
      is_whole: bool[G], the children inside the area.
      cut: The children partly inside the area.
      below: One row, the sums over the children and their precision.
    """
    counts = np.bincount(children.kind[is_whole], minlength=len(children.matrices[0]))
    out: list[Parts] = []
    for index, values in enumerate(children.values):
        matrices = children.matrices[index]
        spread = np.tensordot(counts.astype(np.float64), matrices, 1)
        precision = below.matrices[index][below.kind[0]]
        reach = spread + _sum(c.share.gain[index] @ c.covariance[index] for c in cut)
        gain = reach @ precision
        offset = values[is_whole].sum(axis=0) - gain @ below.values[index][0]
        offset = offset + _sum(
            c.share.offset[index] + c.share.gain[index] @ c.values[index] for c in cut
        )
        covariance = spread - reach @ precision @ reach.T
        covariance = covariance + _sum(
            c.share.covariance[index] + _moved(c.share.gain[index], c.covariance[index])
            for c in cut
        )
        out.append((offset, gain, covariance))
    offsets, gains, covariances = zip(*out, strict=True)
    return Share(offsets, gains, covariances)


def estimate_share(share: Share, holder: Moments) -> Moments:
    """Estimate an area from the estimate of a geounit that contains the area.

    Args:
      share: The part of the geounit in the area.
      holder: One row: the geounit's estimate from all answers and its covariance.
    """
    kind = int(holder.kind[0])
    values = tuple(
        (offset + gain @ part[0])[None]
        for offset, gain, part in zip(share.offset, share.gain, holder.values, strict=True)
    )
    covariance = tuple(
        (spread + _moved(gain, part[kind]))[None]
        for spread, gain, part in zip(share.covariance, share.gain, holder.matrices, strict=True)
    )
    return Moments(values, covariance, np.zeros(1, np.int64))


def _moved(gain: FloatArray, covariance: FloatArray) -> FloatArray:
    return np.asarray(gain @ covariance @ gain.T)


def _sum(parts: Iterable[FloatArray]) -> FloatArray:
    """Return the sum of matrices, or 0 for an empty sequence."""
    return reduce(add, parts, np.zeros(()))
