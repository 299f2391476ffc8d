"""Structural zeros by attribute: as a plain list of cells says, and without one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.queries.query import parse_query
from das.schema import Attribute, Recode, Schema
from invariants.zeros import StructuralZeros, cells_at, representative_levels

SCHEMA = Schema(
    "three",
    tuple(Attribute(name, tuple(map(str, range(n)))) for name, n in (("a", 3), ("b", 4), ("c", 5))),
    (Recode("c2", "c", ("low", "high"), (0, 1, 0, 1, 1)),),
)
CELLS = np.arange(SCHEMA.size)
QUERIES = ("total", "a", "c2", "a * c2", "b * c", "detailed")
BOXES = st.tuples(*(st.lists(st.booleans(), min_size=n, max_size=n) for n in SCHEMA.shape))


def plain(boxes: list[tuple[list[bool], ...]]) -> np.ndarray:
    """bool[n], cell after cell."""
    codes = np.unravel_index(CELLS, SCHEMA.shape)
    return np.array(
        [
            any(all(box[axis][codes[axis][cell]] for axis in range(3)) for box in boxes)
            for cell in CELLS
        ]
    )


def made(boxes: list[tuple[list[bool], ...]]) -> StructuralZeros:
    return StructuralZeros(SCHEMA.shape, tuple(tuple(map(np.array, box)) for box in boxes))


@given(st.lists(BOXES, min_size=1, max_size=4))
def test_a_union_of_boxes_is_what_a_list_of_its_cells_says(boxes):
    zeros, expected = made(boxes), plain(boxes)
    assert np.array_equal(zeros.holds(CELLS), expected)
    assert len(zeros) == expected.sum()


def test_more_boxes_than_bits_of_a_word():
    boxes = [tuple([*(np.arange(n) == level)] for n, level in zip(SCHEMA.shape, at, strict=True))
             for at in np.ndindex(*SCHEMA.shape)] * 2  # fmt: skip
    assert len(boxes) > 63
    assert made(boxes).holds(CELLS).all()
    assert not made(boxes[:59]).holds(CELLS).all()


@given(st.lists(BOXES, min_size=1, max_size=4), st.sampled_from(QUERIES), st.data())
def test_the_first_cell_of_an_answer_in_which_somebody_can_be(boxes, name, data):
    query = parse_query(SCHEMA, name)
    answers = st.lists(st.integers(0, query.size - 1), unique=True, min_size=1)
    positions = np.array(sorted(data.draw(answers)))
    nobody, rows = plain(boxes), query.rows_of(CELLS)
    expected = [
        next((cell for cell in CELLS if rows[cell] == row and not nobody[cell]), -1)
        for row in positions
    ]
    assert made(boxes).first_outside(query, positions).tolist() == expected


@given(st.lists(BOXES, max_size=3), st.sampled_from(QUERIES), st.integers(1, 2))
def test_levels_that_stand_for_others_meet_every_pattern(boxes, name, most):
    """Every answer and every box has among them a cell for each pattern it has among all."""
    query, zeros = parse_query(SCHEMA, name), made(boxes) if boxes else None
    kept = cells_at(SCHEMA.shape, representative_levels(SCHEMA.shape, [query], zeros, most))
    assert (np.diff(kept) > 0).all()

    def patterns(cells: np.ndarray) -> set[tuple[int, ...]]:
        masks = [plain([box])[cells] for box in boxes]
        return {*zip(query.rows_of(cells).tolist(), *masks, strict=True)}

    assert patterns(kept) == patterns(CELLS)


def peak(work: Callable[[], object]) -> int:
    """Most bytes allocated at a time."""
    work()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("of", ["holds", "len", "first_outside"])
def test_memory_does_not_grow_with_the_cells(of):
    def allocated(levels: int) -> int:
        shape = (2, 50, 20, levels)
        names = "abcd"
        own = Schema(
            "grown",
            tuple(
                Attribute(name, tuple(map(str, range(n))))
                for name, n in zip(names, shape, strict=True)
            ),
        )
        box = tuple(np.arange(n) < 2 for n in shape)
        zeros, query = StructuralZeros(shape, (box, box[::1])), parse_query(own, "a * b * c")
        cells = np.linspace(0, own.size - 1, 5_000).astype(np.int64)
        positions = np.arange(query.size)
        work = {
            "holds": lambda: zeros.holds(cells),
            "len": lambda: len(zeros),
            "first_outside": lambda: zeros.first_outside(query, positions),
        }[of]
        return peak(work)

    small, large = allocated(10), allocated(5_000)  # 20,000 and 10,000,000 cells
    assert large < small + 8 * 50 * 5_000  # some arrays over the levels, none over the cells
