"""Small outlines of areas: corners on a grid, shared borders stored once and simplified.

A border between two areas is one arc and is simplified once for both, so that no gap opens. Its
tolerance depends on the smaller of the two areas, so that towns next to counties keep their shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray

GRID = 1 << 14  # steps of the longer side; default, not measured
_COARSER = 1.6  # factor by which tolerances grow until all corners fit; default, not measured


@dataclass(frozen=True, eq=False)
class Outlines:
    """Outlines of F areas on a grid.

    Attributes:
      width: Width of the grid in steps.
      height: Height of the grid in steps; y grows to the south.
      arcs: int64[n, 2], corners of each arc including both ends.
      rings: For each area and ring, indices of arcs; ~a is arc a reversed.
    """

    width: int
    height: int
    arcs: Sequence[IntArray]
    rings: Sequence[Sequence[Sequence[int]]]

    @property
    def corners(self) -> int:
        """Return the number of corners of all arcs."""
        return sum(len(arc) for arc in self.arcs)

    def arrays(self) -> dict[str, IntArray]:
        """Encode arcs and rings as integer arrays, with arcs as differences of corners."""
        steps = [np.diff(arc, axis=0) for arc in self.arcs]
        starts = np.array([arc[0] for arc in self.arcs], np.int64).reshape(-1, 2)
        moved = np.diff(starts, axis=0, prepend=np.zeros((1, 2), np.int64))
        all_steps = np.concatenate([np.zeros((0, 2), np.int64), *steps])
        return {
            "lengths": np.array([len(arc) for arc in self.arcs], np.int64),
            "startX": moved[:, 0],
            "startY": moved[:, 1],
            "stepX": all_steps[:, 0],
            "stepY": all_steps[:, 1],
            "rings": np.array([len(area) for area in self.rings], np.int64),
            "parts": np.array([len(ring) for area in self.rings for ring in area], np.int64),
            "arcs": np.array([a for area in self.rings for ring in area for a in ring], np.int64),
        }


def outlines(areas: Sequence[Sequence[FloatArray]], most_corners: int) -> Outlines:
    """Simplify outlines of areas to a limited number of corners, or as few as junctions allow.

    Args:
      areas: For each area and ring: float64[n, 2], corners (longitude, latitude), not closed.
      most_corners: Limit on the corners of all arcs together.
    """
    points, (width, height) = _on_grid(areas)
    kept = [[ring for ring in area if len(ring) >= 3] for area in points]
    arcs, rings, neighbors = _arcs(kept)
    sizes = np.array([max([1.0, *map(_area, area)]) for area in kept])
    scale = np.sqrt(np.minimum.reduceat(sizes[neighbors[1]], neighbors[0])) if arcs else np.zeros(0)
    tolerance = 0.01
    while True:
        simple = [_simplified(arc, tolerance * size) for arc, size in zip(arcs, scale, strict=True)]
        simplified = Outlines(width, height, simple, rings)
        if simplified.corners <= most_corners or tolerance > 1:
            return simplified
        tolerance *= _COARSER


def _on_grid(areas: Sequence[Sequence[FloatArray]]) -> tuple[list[list[IntArray]], tuple[int, int]]:
    """Return corners on the grid without repetitions, and (width, height) of the grid.

    Longitudes are scaled by the cosine of the middle latitude, which keeps the shapes of a state.
    If areas lie on both sides of the antimeridian, the map is cut at the widest gap in longitude.
    """
    every = np.concatenate([ring for area in areas for ring in area])
    longitude = np.sort(every[:, 0])
    cut = -np.inf
    if longitude[-1] - longitude[0] > 180 and longitude[0] >= -180 and longitude[-1] <= 180:
        gap = int(np.diff(longitude).argmax())
        if longitude[gap + 1] - longitude[gap] > 360 - (longitude[-1] - longitude[0]):
            cut = longitude[gap]
    low, high = every[:, 1].min(), every[:, 1].max()
    is_geographic = -90 <= low and high <= 90 and -360 <= longitude[0] and longitude[-1] <= 360
    shrunk = np.cos(np.radians((low + high) / 2)) if is_geographic else 1.0

    def flat(ring: FloatArray) -> FloatArray:
        east = np.where(ring[:, 0] <= cut, ring[:, 0] + 360, ring[:, 0])
        return np.stack([east * shrunk, -ring[:, 1]], axis=1)

    flattened = [[flat(ring) for ring in area] for area in areas]
    every = np.concatenate([ring for area in flattened for ring in area])
    origin, extent = every.min(0), np.ptp(every, axis=0)
    step = max(float(extent.max()), 1e-12) / GRID
    grid = [
        [_distinct(np.rint((ring - origin) / step).astype(np.int64)) for ring in area]
        for area in flattened
    ]
    width, height = (int(np.rint(side / step)) for side in extent)
    return grid, (max(1, width), max(1, height))


def _distinct(ring: IntArray) -> IntArray:
    """Remove corners of a closed ring that repeat the one before."""
    return np.asarray(ring[(ring != np.roll(ring, 1, axis=0)).any(1)], np.int64)


def _area(ring: IntArray) -> float:
    x, y = ring.astype(np.float64).T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def _arcs(
    areas: Sequence[Sequence[IntArray]],
) -> tuple[list[IntArray], list[list[list[int]]], tuple[IntArray, IntArray]]:
    """Cut rings where three areas meet or a border reaches the outside; store each arc once.

    Returns:
      The arcs; for each area its rings as indices of arcs; and the areas on both sides of each arc:
      its first position in a list of areas, and the list.
    """
    flat = [ring for area in areas for ring in area]
    if not flat:
        return [], [[] for _ in areas], (np.zeros(0, np.int64), np.zeros(0, np.int64))
    cuts = np.split(_junctions(flat), np.cumsum([len(ring) for ring in flat])[:-1])
    numbers: dict[bytes, int] = {}
    arcs: list[IntArray] = []
    owners: list[list[int]] = []
    out: list[list[list[int]]] = []
    remaining = iter(cuts)
    for owner, area in enumerate(areas):
        out.append([])
        for ring, is_cut in zip(area, remaining, strict=False):  # one entry of `cuts` per ring
            of_ring = []
            for piece in _pieces(ring, is_cut):
                keys = _keys(piece).tolist()
                backward = keys > keys[::-1]  # so that both areas store it in one direction
                arc = np.ascontiguousarray(piece[::-1] if backward else piece)
                number = numbers.setdefault(arc.tobytes(), len(arcs))
                if number == len(arcs):
                    arcs.append(arc)
                    owners.append([])
                owners[number].append(owner)
                of_ring.append(~number if backward else number)
            out[-1].append(of_ring)
    first = np.cumsum([0, *map(len, owners)])[:-1].astype(np.int64)
    return arcs, out, (first, np.array([*itertools.chain.from_iterable(owners)], np.int64))


def _junctions(rings: Sequence[IntArray]) -> BoolArray:
    """Return bool[corners of all rings], whether two rings share the corner and then diverge."""
    before = _keys(np.concatenate([np.roll(ring, 1, axis=0) for ring in rings]))
    after = _keys(np.concatenate([np.roll(ring, -1, axis=0) for ring in rings]))
    at = _keys(np.concatenate(list(rings)))
    less, more = np.minimum(before, after), np.maximum(before, after)
    corners = np.stack((at, less, more))[:, np.lexsort((more, less, at))]
    changes = np.diff(corners) != 0
    junctions = corners[0, 1:][~changes[0] & changes[1:].any(0)]  # a point with two such pairs
    return np.isin(at, junctions)


def _keys(points: IntArray) -> IntArray:
    return points[:, 0] * (4 * GRID) + points[:, 1]


def _pieces(ring: IntArray, is_cut: BoolArray) -> Iterator[IntArray]:
    """Yield a ring from junction to junction; without junctions from its smallest corner."""
    cuts = np.flatnonzero(is_cut)
    if not len(cuts):
        cuts = np.array([_keys(ring).argmin()])
    turned = np.concatenate([ring[cuts[0] :], ring[: cuts[0] + 1]])
    ends = np.append(cuts - cuts[0], len(ring))
    for start, stop in itertools.pairwise(ends):
        yield turned[start : stop + 1]


def _simplified(arc: IntArray, tolerance: float) -> IntArray:
    """Return the ends of an arc, and the corners by which it departs from a line by a tolerance.

    A closed arc also keeps the corner farthest from its start, so that its area stays positive.

    References:
      Douglas & Peucker, Cartographica 10, 1973.
    """
    keep = np.zeros(len(arc), np.bool_)
    keep[[0, -1]] = True
    if (arc[0] == arc[-1]).all():
        far = int(((arc - arc[0]) ** 2).sum(1).argmax())
        side = int(_across(arc, 0, far).argmax())
        keep[[far, side]] = True
    open_parts = [*itertools.pairwise(np.flatnonzero(keep).tolist())]
    while open_parts:
        first, last = open_parts.pop()
        if last - first < 2:
            continue
        distance = _across(arc[first : last + 1], 0, last - first)
        middle = int(distance.argmax())
        if distance[middle] > tolerance:
            keep[first + middle] = True
            open_parts += [(first, first + middle), (first + middle, last)]
    return arc[keep]


def _across(arc: IntArray, start: int, end: int) -> FloatArray:
    """Return the distance of every corner of an arc from a segment.

    Args:
      arc: int64[n, 2], the corners.
      start: Index of the first corner of the segment.
      end: Index of its last corner. If both are one point, distances are from this point.
    """
    x, y = (arc - arc[start]).astype(np.float64).T
    along = (arc[end] - arc[start]).astype(np.float64)
    length = float(np.hypot(*along))
    if length == 0:
        return np.asarray(np.hypot(x, y), np.float64)
    part = np.clip((x * along[0] + y * along[1]) / length**2, 0, 1)
    return np.asarray(np.hypot(x - part * along[0], y - part * along[1]), np.float64)
