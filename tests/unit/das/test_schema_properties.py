"""Cell numbering is a bijection, in the documented order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from das.schema import Attribute, Recode, Schema
from tests.builders.strategies import cells_in_order, schemas


@given(schemas())
def test_cells_are_numbered_in_c_order_and_back(schema: Schema):
    order = cells_in_order(schema)
    assert schema.size == len(order)
    codes = {
        attribute.name: np.array([positions[axis] for positions in order])
        for axis, attribute in enumerate(schema.attributes)
    }
    assert np.array_equal(schema.cells_of(codes), np.arange(schema.size))
    for name, positions in schema.codes_of(np.arange(schema.size)).items():
        assert np.array_equal(positions, codes[name])


@given(st.lists(st.integers(1, 300), min_size=1, max_size=7), st.data())
def test_numbering_of_large_schemas_round_trips(sizes, data):
    schema = Schema(
        "large",
        tuple(
            Attribute(f"a{axis}", tuple(map(str, range(size)))) for axis, size in enumerate(sizes)
        ),
    )
    positions = [data.draw(st.integers(0, size - 1)) for size in sizes]
    cell = 0
    for position, size in zip(positions, sizes, strict=True):
        cell = cell * size + position
    codes = {f"a{axis}": np.array([position]) for axis, position in enumerate(positions)}
    assert schema.cells_of(codes).tolist() == [cell]
    assert {name: c.tolist() for name, c in schema.codes_of(np.array([cell])).items()} == {
        name: c.tolist() for name, c in codes.items()
    }


@given(schemas())
def test_every_level_has_one_group(schema: Schema):
    for recode in schema.recodes:
        assert len(recode.codes) == schema.attribute(recode.attribute).size
        assert set(recode.codes) == set(range(len(recode.groups)))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_recode_says_where_each_level_is(codes, shuffler):
    """Whatever the order of groups and of levels inside them."""
    attribute = Attribute("a", tuple(f"l{i}" for i in range(len(codes))))
    groups: dict[str, list[str]] = {}
    pairs = list(zip(attribute.levels, codes, strict=True))
    shuffler.shuffle(pairs)
    for level, code in pairs:
        groups.setdefault(f"g{code}", []).append(level)
    recode = Recode.from_groups("r", attribute, {g: tuple(ls) for g, ls in groups.items()})
    assert [recode.groups[c] for c in recode.codes] == [f"g{code}" for code in codes]
