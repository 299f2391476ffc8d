"""Estimates of any set of leaves, with the covariance that their common answers give them.

Given the truth x_u of a geounit u, the subtrees of its children are independent but for their sum.
So the share of an area in u has, given x_u and all answers, mean m + L x_u and a covariance C:

    whole child c in the area:  counts as its own share;     child outside:  no share;
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
    """What an area holds of a geounit, given the geounit: mean offset + gain x, and covariance.

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
    """A child that an area cuts: its share, and its estimate from its subtree.

    Attributes:
      share: The area's share of it.
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
    """The share of an area in a geounit of more than one child.

    Args:
      children: Subtree estimates of its children.
      is_whole: bool[G], the children that lie in the area.
      cut: The children that lie in it partly.
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
    """Estimate an area from the estimate of a geounit that holds it.

    Args:
      share: The area's share of the geounit.
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
    """Sum of matrices, 0 if there is none."""
    return reduce(add, parts, np.zeros(()))
