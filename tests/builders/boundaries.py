"""Invented outlines of geounits that fit together: a land cut in two again and again."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path

Corner = tuple[float, float]


def write_boundaries(
    path: Path, codes: Sequence[str], digits: Sequence[int] = (), *, seed: int = 1, bends: int = 3
) -> None:
    """Write GeoJSON with an outline and a name for every geocode; as for `invented`."""
    features = [
        {
            "type": "Feature",
            "properties": {"GEOID": code, "NAME": f"Place {number}"},
            "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
        }
        for number, (code, ring) in enumerate(invented(codes, digits, seed=seed, bends=bends), 1)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def invented(
    codes: Sequence[str], digits: Sequence[int] = (), *, seed: int = 1, bends: int = 3
) -> Iterator[tuple[str, list[Corner]]]:
    """Geocodes with outlines, by geocode.

    Args:
      codes: Geocodes of one geolevel.
      digits: Lengths of the geocodes of coarser geolevels, whose geounits are kept together.
      seed: Of the shapes.
      bends: How often a border is halved, and bent there.
    """
    rng = random.Random(seed)
    land = [
        (-72 + 1.5 * r * math.cos(a), 41.5 + r * math.sin(a))
        for k in range(240)
        for a in [math.tau * k / 240]
        for r in [0.8 + 0.12 * math.sin(3 * a + 1) + 0.05 * math.sin(7 * a) + 0.01 * rng.random()]
    ]
    yield from _shared_out(rng, sorted(codes), land, digits, bends)


def _shared_out(
    rng: random.Random,
    codes: Sequence[str],
    ring: list[Corner],
    digits: Sequence[int],
    bends: int,
) -> Iterator[tuple[str, list[Corner]]]:
    """Cut a ring for the geounits of the first of some geolevels, and each piece further."""
    length = digits[0] if digits else None
    groups = [list(own) for _, own in groupby(codes, lambda code: code[:length])]
    for own, piece in _cut(rng, groups, ring, bends):
        if digits:
            yield from _shared_out(rng, own, piece, digits[1:], bends)
        else:
            yield own[0], piece


def _cut(
    rng: random.Random, groups: list[list[str]], ring: list[Corner], bends: int
) -> Iterator[tuple[list[str], list[Corner]]]:
    if len(groups) == 1:
        yield groups[0], ring
        return
    half = len(groups) // 2
    share = sum(map(len, groups[:half])) / sum(map(len, groups))
    first, second = _parts(rng, ring, share, bends)
    yield from _cut(rng, groups[:half], first, bends)
    yield from _cut(rng, groups[half:], second, bends)


def _parts(
    rng: random.Random, ring: list[Corner], share: float, bends: int
) -> tuple[list[Corner], list[Corner]]:
    """Two pieces with a border between two corners, the first with about a share of the area."""
    n = len(ring)
    while n < 24:  # so that there are corners to end at
        ring = [
            corner
            for one, other in zip(ring, ring[1:] + ring[:1], strict=True)
            for corner in (one, ((one[0] + other[0]) / 2, (one[1] + other[1]) / 2))
        ]
        n = len(ring)
    twice = [_cross(a, b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
    swept = [0.0, *accumulate(twice + twice)]  # from the first corner on, around it all twice
    whole = swept[n]
    best = (math.inf, 0, 0)
    for start in rng.sample(range(n), min(n, 12)):
        for stop in range(start + n // 5, start + n - n // 5, max(1, n // 40)):
            one, other = ring[start], ring[stop % n]
            part = (swept[stop] - swept[start] + _cross(other, one)) / whole
            length = math.dist(one, other) / math.sqrt(abs(whole) / 2)
            best = min(best, (4 * abs(part - share) + length, start, stop))
    _, start, stop = best
    turned, stop = ring[start:] + ring[:start], stop - start
    line = _wiggly(rng, turned[stop], turned[0], bends)
    return turned[: stop + 1] + line[1:-1], [turned[0], *line[-2:0:-1], *turned[stop:]]


def _wiggly(rng: random.Random, one: Corner, other: Corner, depth: int) -> list[Corner]:
    """A line between two corners that bends at each halving."""
    if depth == 0:
        return [one, other]
    east, north = other[0] - one[0], other[1] - one[1]
    bend = rng.uniform(-0.13, 0.13)
    middle = ((one[0] + other[0]) / 2 - bend * north, (one[1] + other[1]) / 2 + bend * east)
    left, right = _wiggly(rng, one, middle, depth - 1), _wiggly(rng, middle, other, depth - 1)
    return left + right[1:]


def _cross(one: Corner, other: Corner) -> float:
    return one[0] * other[1] - other[0] * one[1]
