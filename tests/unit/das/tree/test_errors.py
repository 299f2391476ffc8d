"""Classes of equal subtrees, components, and errors on trees small enough to do by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import GeographyError, SchemaError
from das.queries.query import parse_query
from das.schema import Attribute, Recode, Schema
from das.tree import components as spine_components
from das.tree.classes import SubtreeClasses
from das.tree.components import SpineComponents
from das.tree.errors import SpineModel, predict_errors
from das.tree.information import Information
from geography.lattice import Lattice
from tests.builders.strategies import trees

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")),))
TOTAL, DETAILED = parse_query(SCHEMA, "total"), parse_query(SCHEMA, "detailed")


def numbers(*levels: list[int]) -> list[np.ndarray]:
    return [np.array(level, np.int64) for level in levels]


def test_equal_subtrees_share_a_class_whatever_the_order_of_children():
    """Two counties of tracts (2 blocks, 3 blocks) and (3, 2); one of (2, 2)."""
    tree = SubtreeClasses.of_tree(numbers([3], [2, 2, 2], [2, 3, 3, 2, 2, 2], [0] * 14))
    assert tree.geounits.tolist() == [14, 4, 2, 2, 1, 1]
    assert tree.level_sizes().tolist() == [1, 3, 6, 14]
    assert tree.parent.tolist() == [1, 2, 3, 3, 4, 5, 5]
    assert tree.child.tolist() == [0, 0, 1, 2, 1, 3, 4]
    assert tree.number.tolist() == [2, 3, 1, 1, 2, 2, 1]


def test_chains_are_one_node_and_no_other_class_holds_their_members():
    tree = SubtreeClasses.of_tree(numbers([2], [1, 2], [1, 2, 1], [0] * 4))
    spans = {(chain.first, chain.last): tree.geounits_in(chain) for chain in tree.chains}
    assert spans == {(3, 3): 2, (2, 2): 1, (2, 3): 1, (1, 3): 1, (1, 1): 1, (0, 0): 1}
    assert tree.level_sizes().tolist() == [1, 2, 3, 4]


@given(trees())
def test_every_geounit_lies_in_one_class(drawn):
    spine, leaves = drawn
    lattice = Lattice.from_leaves(spine, leaves)
    tree = SubtreeClasses.of_tree([lattice.n_children(i) for i in range(len(spine.levels))])
    assert tree.level_sizes().tolist() == list(lattice.sizes().values())
    children = np.zeros(tree.n_classes)
    np.add.at(children, tree.child, tree.number * tree.geounits[tree.parent])
    assert children[:-1].tolist() == tree.geounits[:-1].tolist()
    assert tree.geounits[-1] == 1
    assert (tree.child < tree.parent).all()


def test_a_forest_is_refused():
    with pytest.raises(GeographyError, match="one root"):
        SubtreeClasses.of_tree(numbers([1, 1], [0, 0]))
    with pytest.raises(GeographyError, match="one root"):
        SubtreeClasses.of_tree(numbers([3], [0, 0]))


def model(*tables: str, exact: tuple = ((), ())) -> SpineModel:
    tree = SubtreeClasses.of_tree(numbers([4], [0] * 4))
    return SpineModel(tree, (TOTAL, DETAILED), exact, tuple(parse_query(SCHEMA, t) for t in tables))


def test_two_levels_by_hand():
    """Variance 2 of a total alone; four children of 1 add up to 4: together 1 / (1/2 + 1/4)."""
    found = predict_errors(model("total"), np.array([[0.75, 0.5], [0.25, 0.5]]), Information.TREE)
    # A cell of variance 2 makes a total of variance 4, precision 1/4; with 3/4: variance 1 per
    # child. At the root 1/4 + 1/4 = 1/2.
    assert found.mean[0, 0] == pytest.approx(1 / (1 / 2 + 1 / 4))
    # c = 1 - 1/4 + F / 16 with four equal children of variance 1 and F the root's variance.
    assert found.mean[0, 1] == pytest.approx(1 - 1 / 4 + found.mean[0, 0] / 16)
    own = predict_errors(model("total"), np.array([[0.75, 0.5], [0.25, 0.5]]), Information.GEOUNIT)
    assert own.mean[0].tolist() == pytest.approx([2, 1])


def test_what_is_exact_has_no_error_and_helps_its_children():
    precisions = np.array([[0.75, 0.5], [0.25, 0.5]])
    found = predict_errors(model("total", exact=((TOTAL,), ())), precisions, Information.TREE)
    assert found.mean[0].tolist() == pytest.approx([0, 1 - 1 / 4])
    assert found.mean[0, 0] == 0
    assert found.worst[0, 0] == 0


def test_an_only_child_knows_what_its_parent_knows():
    """To the digit: what is left by rounding, of either sign, has no root and is not noisy."""
    schema = Schema(
        "toy",
        (Attribute("sex", ("f", "m")), Attribute("age", ("young", "adult", "old"))),
        (Recode("votes", "age", ("minor", "adult"), (0, 1, 1)),),
    )
    asked = ("total", "detailed", "sex where votes=minor", "detailed where votes=adult")
    measured = tuple(parse_query(schema, text) for text in asked)
    tree = SubtreeClasses.of_tree(numbers([1], [60], [0] * 60))
    chained = SpineModel(tree, measured, ((measured[0],), (), ()), measured)
    for blocks, state in (((1, 1, 0, 2), (3, 3, 8, 6)), ((1, 2, 3, 4), (7, 1, 1, 1))):
        precisions = np.array([blocks, state]) / 16
        for information in Information:
            found = predict_errors(chained, precisions, information)
            assert found.mean[0, :2].tolist() == found.worst[0, :2].tolist() == [0, 0]
            assert (found.mean[1:] > 0).all()
            assert (found.worst[:, 2] > 0).all()


def test_too_many_combinations_of_groups_are_refused(monkeypatch):
    schema = Schema(
        "s",
        (Attribute("a", tuple("0123")), Attribute("b", tuple("0123"))),
        (Recode("ra", "a", ("x", "y"), (0, 0, 0, 1)), Recode("rb", "b", ("x", "y"), (0, 1, 1, 1))),
    )
    asked = [parse_query(schema, text) for text in ("detailed", "ra", "rb")]
    monkeypatch.setattr(spine_components, "MOST_GROUPS", 4)
    assert max(SpineComponents.of_queries(asked).sizes) == 4
    monkeypatch.setattr(spine_components, "MOST_GROUPS", 3)
    with pytest.raises(SchemaError, match="4 combinations"):
        SpineComponents.of_queries(asked)
    assert max(SpineComponents.of_queries(asked, most_groups=4).sizes) == 4


@given(st.integers(1, 6))
def test_grams_add_up_to_the_whole_matrix(size):
    """Trace of Q^T Q over components, with what lies within counted, is its trace."""
    schema = Schema("s", (Attribute("x", tuple(map(str, range(size)))),))
    asked = [parse_query(schema, text) for text in ("total", "detailed", "prefix(x)")]
    for chosen in (asked[:2], asked):
        components = SpineComponents.of_queries(chosen)
        for query in asked:
            traces = [np.trace(form) for form in components.trace_forms(query)]
            assert sum(traces) == pytest.approx((query.factors[0].matrix ** 2).sum())
