"""Outlines on a grid: areas that share a border keep sharing it, however few corners are left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.analysis.outlines import GRID, Outlines, outlines
from jobs.analysis.polygons import read_polygons
from tests.builders.boundaries import invented, write_boundaries

SQUARE = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
EAST = np.array([1.0, 0.0])


def corners(found: Outlines, area: int) -> list[np.ndarray]:
    """Rings of an area as a page draws them, closed."""
    rings = []
    for ring in found.rings[area]:
        parts = [found.arcs[a] if a >= 0 else found.arcs[~a][::-1] for a in ring]
        assert all((a[-1] == b[0]).all() for a, b in zip(parts, parts[1:], strict=False))
        rings.append(np.concatenate([parts[0], *(part[1:] for part in parts[1:])]))
        assert (rings[-1][0] == rings[-1][-1]).all()
    return rings


def size(rings: list[np.ndarray]) -> float:
    """Area of rings, holes taken away as the even-odd rule does."""
    found = [
        abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
        for ring in rings
        for x, y in [ring[:-1].T.astype(float)]
    ]
    return 2 * max(found) - sum(found) if found else 0.0


def test_a_border_is_stored_once() -> None:
    right = SQUARE + EAST
    found = outlines([[SQUARE], [right]], 1000)
    assert len(found.arcs) == 3
    shared = {a if a >= 0 else ~a for ring in found.rings[0] for a in ring} & {
        a if a >= 0 else ~a for ring in found.rings[1] for a in ring
    }
    assert len(shared) == 1
    assert sorted(map(tuple, corners(found, 0)[0][:-1].tolist())) == sorted(
        (x, y) for x in (0, GRID // 2) for y in (0, found.height)
    )


def test_an_island_and_the_hole_that_it_lies_in_share_their_arc() -> None:
    island = 0.25 + SQUARE[::-1] / 2
    found = outlines([[SQUARE, 0.25 + SQUARE / 2], [island]], 1000)
    assert len(found.arcs) == 2
    assert [abs(ring[0]) >= 0 for ring in found.rings[1]] == [True]
    assert size(corners(found, 0)) == pytest.approx(3 * size(corners(found, 1)), rel=1e-3)


@given(st.integers(2, 14), st.integers(0, 1000), st.sampled_from([60, 300, 10_000]))
def test_areas_fill_the_land_and_do_not_overlap(n: int, seed: int, most: int) -> None:
    """The sum of all areas is that of the outside, which holds if each border is one arc."""
    rings = land(n, seed)
    found = outlines([[ring] for ring in rings], most)
    used = [a for area in found.rings for ring in area for a in ring]
    inside = {~a for a in used} & {*used}
    outside = [a for a in used if a not in inside]
    signed = sum(shoelace(corners(found, area)[0]) for area in range(n))
    border = sum(shoelace(found.arcs[a] if a >= 0 else found.arcs[~a][::-1]) for a in outside)
    assert signed == pytest.approx(border)
    assert all(len(ring) >= 4 for area in range(n) for ring in corners(found, area))


def shoelace(line: np.ndarray) -> float:
    x, y = line.T.astype(float)
    return float(np.dot(x[:-1], y[1:]) - np.dot(y[:-1], x[1:])) / 2


def land(n: int, seed: int) -> list[np.ndarray]:
    return [np.array(ring) for _, ring in invented([f"{k:03d}" for k in range(n)], seed=seed)]


def test_fewer_corners_where_few_are_allowed() -> None:
    rings = [[ring] for ring in land(30, 3)]
    few, many = outlines(rings, 400), outlines(rings, 10_000)
    assert few.corners <= 400 < many.corners


def test_the_map_is_cut_where_most_room_is() -> None:
    """Areas on both sides of the antimeridian lie side by side."""
    east, west = 2 * SQUARE + (177, 50), 2 * SQUARE + (-179, 50)
    found = outlines([[east], [west]], 1000)
    one, other = (corners(found, area)[0] for area in (0, 1))
    assert one[:, 0].max() <= other[:, 0].min()
    assert found.width == GRID or found.height == GRID


def test_arrays_tell_all() -> None:
    found = outlines([[SQUARE], [SQUARE + EAST]], 1000)
    arrays = found.arrays()
    starts = np.stack([arrays["startX"].cumsum(), arrays["startY"].cumsum()], 1)
    steps = np.stack([arrays["stepX"], arrays["stepY"]], 1)
    at = 0
    for arc, start, length in zip(found.arcs, starts, arrays["lengths"], strict=True):
        own = np.concatenate([[start], start + steps[at : at + length - 1].cumsum(0)])
        assert (own == arc).all()
        at += length - 1
    assert at == len(steps)
    assert arrays["parts"].sum() == len(arrays["arcs"])
    assert arrays["rings"].sum() == len(arrays["parts"])


def test_a_file_that_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "land.json"
    write_boundaries(path, ["0102", "0101", "0201"], (2,))
    read = read_polygons(path)
    assert read.column("GEOID") == ["0101", "0102", "0201"]
    assert all(len(rings) == 1 for rings in read.rings)
