"""Geocodes of the eight geolevels of the 2020 tables of persons and households.

Between counties and block groups lie prims (places or county subdivisions), tract subset groups and
tract subsets. A geocode has 16 characters: state 2, county 3, prim 1, tract subset group 5, tract
subset 1, block group 1, block 3, the lengths of 2020. The boundaries of prims are drawn; some
tracts are cut in two by a boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from das.arrays import IntArray

PRIMS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # one character each, in the order of geocodes
_TRACTS_PER_PRIM = 3  # mean; default
_MOST_SUBSETS = 9  # of a group: one digit


def tract_subsets(
    choose: Callable[[int, int], IntArray], county: str, n_tracts: int
) -> list[tuple[str, ...]]:
    """Return the tract subsets of the tracts of a county.

    Args:
      choose: Function (n, k) that draws k different numbers below n: the boundaries of prims, in
        halves of tracts.
      county: 5-digit geocode.
      n_tracts: Number of tracts, at least 1.

    Returns:
      For each tract the 12-character geocodes of its one or two subsets, ascending.
    """
    halves = 2 * n_tracts
    n_prims = min(len(PRIMS), max(1, round(n_tracts / _TRACTS_PER_PRIM)))
    edges = 1 + np.sort(choose(halves - 1, n_prims - 1))
    prim = np.searchsorted(edges, np.arange(halves), side="right")
    parts = [
        list(dict.fromkeys(prim[2 * tract : 2 * tract + 2].tolist())) for tract in range(n_tracts)
    ]
    sizes = np.bincount([p for part in parts for p in part], minlength=n_prims)
    seen = [0] * n_prims
    out = []
    for part in parts:
        codes = []
        for number in part:
            per_group = min(_MOST_SUBSETS, math.isqrt(int(sizes[number]) - 1) + 1)
            group, subset = divmod(seen[number], per_group)
            codes.append(f"{county}{PRIMS[number]}{group + 1:05d}{subset + 1}")
            seen[number] += 1
        out.append(tuple(codes))
    return out


def block_codes(subsets: Sequence[str], census: Sequence[str]) -> list[str]:
    """Return 16-character geocodes of the blocks of a tract, in the same order.

    Args:
      subsets: One or two subsets of the tract.
      census: Sorted 15-digit geocodes of its blocks. The first half of the block groups lies in the
        first subset.
    """
    groups = sorted({code[11] for code in census})
    first = -(-len(groups) // len(subsets))
    subset = {group: subsets[index // first] for index, group in enumerate(groups)}
    return [f"{subset[code[11]]}{code[11:]}" for code in census]
