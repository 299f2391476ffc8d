"""Geocodes of the eight geolevels of the 2020 tables of persons and households.

Between counties and block groups lie prims, which are places or county subdivisions, tract subset
groups and tract subsets. A geocode has 16 characters: state 2, county 3, prim 1, tract subset group
5, tract subset 1, block group 1, block 3. The lengths are those of the geolevels of 2020; where the
boundaries of prims run is drawn, and one in a few tracts is cut in two by such a boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from das.arrays import IntArray

PRIMS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # one character each, in the order of geocodes
_TRACTS_PER_PRIM = 3
_MOST_SUBSETS = 9  # of a group: one digit


def tract_subsets(
    choose: Callable[[int, int], IntArray], county: str, n_tracts: int
) -> list[tuple[str, ...]]:
    """Tract subsets of the tracts of a county.

    Args:
      choose: Draws so many (second) different numbers below another (first): where the boundaries
        of prims run, anywhere between halves of tracts.
      county: Its geocode of 5 digits.
      n_tracts: At least 1.

    Returns:
      Per tract the geocodes of its subsets, one or two, 12 characters each. They rise.
    """
    halves = 2 * n_tracts
    n_prims = min(len(PRIMS), max(1, round(n_tracts / _TRACTS_PER_PRIM)))
    edges = 1 + np.sort(choose(halves - 1, n_prims - 1))
    prim = np.searchsorted(edges, np.arange(halves), side="right")
    parts = [
        list(dict.fromkeys(prim[2 * tract : 2 * tract + 2].tolist())) for tract in range(n_tracts)
    ]
    sizes = np.bincount([one for part in parts for one in part], minlength=n_prims)
    seen = [0] * n_prims
    out = []
    for part in parts:
        codes = []
        for one in part:
            per_group = min(_MOST_SUBSETS, math.isqrt(int(sizes[one]) - 1) + 1)
            group, place = divmod(seen[one], per_group)
            codes.append(f"{county}{PRIMS[one]}{group + 1:05d}{place + 1}")
            seen[one] += 1
        out.append(tuple(codes))
    return out


def block_codes(subsets: Sequence[str], census: Sequence[str]) -> list[str]:
    """Geocodes of 16 characters of the blocks of a tract; the order stays.

    Args:
      subsets: Of the tract, one or two.
      census: Geocodes of 15 digits of its blocks, sorted. The first half of its block groups is in
        the first subset.
    """
    groups = sorted({code[11] for code in census})
    first = -(-len(groups) // len(subsets))
    subset = {group: subsets[index // first] for index, group in enumerate(groups)}
    return [f"{subset[code[11]]}{code[11:]}" for code in census]
