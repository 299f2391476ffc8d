"""Attributes, recodes, schemas: what they refuse and what they say."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.schema import Attribute, Recode, Schema, written_out

SEX = Attribute("sex", ("f", "m"))
AGE = Attribute("age", ("child", "adult", "old"))


def refused(build, message):
    with pytest.raises(SchemaError) as caught:
        build()
    assert str(caught.value) == message


def test_attribute_needs_levels():
    refused(lambda: Attribute("sex", ()), "attribute sex: has no levels")


def test_attribute_needs_different_levels():
    refused(
        lambda: Attribute("sex", ("m", "f", "m", "x", "f")),
        "attribute sex: has a level twice; got ['f', 'm']",
    )


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"minor": ("child",), "adult": ("adult",)}, "leaves levels without a group; got ['old']"),
        ({}, "leaves levels without a group; got ['child', 'adult', 'old']"),
        (
            {"a": ("child", "adult", "old"), "b": ("adult",)},
            "puts a level in two groups; got adult",
        ),
        ({"a": ("child", "child", "adult", "old")}, "puts a level in two groups; got child"),
        (
            {"a": ("child", "adult", "old", "baby")},
            "group a names an unknown level; got baby",
        ),
        ({"a": ("child", "adult", "old"), "none": ()}, "has an empty group; got ['none']"),
    ],
)
def test_recode_is_total_and_many_to_one(groups, message):
    refused(lambda: Recode.from_groups("group", AGE, groups), f"recode group of age: {message}")


def test_recode_codes_follow_the_order_of_levels_and_groups():
    recode = Recode.from_groups("voting", AGE, {"adult": ("old", "adult"), "minor": ("child",)})
    assert (recode.groups, recode.codes) == (("adult", "minor"), (1, 0, 0))


@pytest.mark.parametrize(
    ("attributes", "recodes", "message"),
    [
        ((SEX, SEX), (), "schema s: uses a name twice; got ['sex']"),
        (
            (SEX, AGE),
            (Recode("age", "sex", ("all",), (0, 0)),),
            "schema s: uses a name twice; got ['age']",
        ),
        ((), (), "schema s: has no attributes"),
        *(
            (
                (Attribute(name, ("a", "b")), SEX),
                (),
                f"schema s: has a name that would make queries ambiguous; got ['{name}']; expected "
                "no * or #, no outer spaces, no where between spaces, not total or detailed, "
                "not like prefix(age)",
            )
            for name in ("total", "detailed", "a * b", "no #1", " age", "prefix(age)", "")
        ),
        (
            (SEX,),
            (Recode("r", "age", ("all",), (0, 0)),),
            "recode r: names an unknown attribute; got age",
        ),
        (
            (SEX,),
            (Recode("r", "sex", ("all",), (0,)),),
            "recode r: does not give one code per level",
        ),
    ],
)
def test_schema_refuses(attributes, recodes, message):
    refused(lambda: Schema("s", attributes, recodes), message)


def test_cell_numbers_fit_in_63_bits():
    def attribute(name, size):
        return Attribute(name, tuple(map(str, range(size))))

    wide = tuple(attribute(f"a{index}", 2**9) for index in range(6))
    largest = Schema("s", (*wide, attribute("b", 2**8), attribute("c", 1)))  # 2^62 cells
    cell = largest.cells_of({a.name: np.array([a.size - 1]) for a in largest.attributes})
    assert cell[0] == 2**62 - 1
    refused(
        lambda: Schema("s", (*wide, attribute("b", 2**9))),
        f"schema s: has too many cells; got {2**63}",
    )


def test_unknown_attribute_lists_the_known_ones():
    refused(
        lambda: Schema("s", (SEX, AGE)).attribute("race"),
        "schema s: has no such attribute; got race; expected one of ['sex', 'age']",
    )


def test_strides_of_a_known_schema():
    schema = Schema("s", (SEX, AGE, Attribute("one", ("only",)), Attribute("x", ("a", "b"))))
    assert schema.shape == (2, 3, 1, 2)
    assert schema.strides == (6, 2, 2, 1)
    assert schema.size == 12
    assert schema.attribute("age") is AGE
    assert schema.cells_of({"sex": [1], "age": [2], "one": [0], "x": [0]}).tolist() == [10]


@pytest.mark.parametrize(
    ("wanted", "levels"),
    [
        (["1..3"], ("1", "2", "3")),
        (["3..3", "1"], ("3", "1")),
        (["2 .. x..y"], ("2", "3", "x..y")),
        (["x..y"], ("x..y",)),
        (["none"], ("none",)),
        ([], ()),
    ],
)
def test_ranges_are_of_levels_in_their_order(wanted, levels):
    """What is a level stays one, dots or not; what is none is for the caller to refuse."""
    assert written_out(("1", "2", "3", "x..y"), wanted, "here") == levels


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("3..1", "here: has a range that ends before it begins; got 3..1"),
        ("1..4", "its ends must be levels; got ['4']; expected some of ['1', '2', '3']"),
        ("..", "here: has the range .., and its ends must be levels; got ['', '']"),
        ("1...3", "its ends must be levels; got ['.3']"),
    ],
)
def test_a_range_without_sense_is_refused(wanted, message):
    with pytest.raises(SchemaError) as caught:
        written_out(("1", "2", "3"), [wanted], "here")
    assert message in str(caught.value)
