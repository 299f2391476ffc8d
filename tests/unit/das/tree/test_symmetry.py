"""Components of errors in which alike levels are one, against those that tell all atoms apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import SchemaError
from das.queries.query import parse_query
from das.schema import Attribute, Recode, Schema
from das.tree import components as spine_components
from das.tree.classes import SubtreeClasses
from das.tree.components import SpineComponents
from das.tree.errors import SpineModel, solve_spine
from das.tree.information import Information
from das.tree.symmetry import SymmetricComponents

AGES = tuple(str(age) for age in range(12))
PAIRS = (0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7)
HALVES = (0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
ODD = (0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1)


def schema_of(**recodes: tuple[int, ...]) -> Schema:
    made = [
        Recode(name, "age", tuple(f"g{code}" for code in range(max(codes) + 1)), codes)
        for name, codes in recodes.items()
    ]
    return Schema("s", (Attribute("sex", ("f", "m", "x")), Attribute("age", AGES)), tuple(made))


def together(codes: np.ndarray) -> list[int]:
    """For each level the first one of the same code."""
    return [codes.tolist().index(code) for code in codes.tolist()]


def test_levels_that_all_queries_treat_alike_are_one_kind():
    """Pairs below the half are alike, pairs above it, and the four ages that are no pair."""
    schema = schema_of(pairs=PAIRS, halves=HALVES)
    asked = [parse_query(schema, text) for text in ("total", "pairs", "halves", "detailed")]
    found = SymmetricComponents.of_queries(asked)
    axis = found.pieces[0].axes[1]
    assert together(axis.kinds[axis.atoms]) == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8]
    # Kinds, between those of each of three kinds, within pairs. Differences of the sexes are seen by
    # detailed alone, to which all ages are alike: their sum and the rest.
    assert found.sizes == (3, 1, 1, 1, 1, 1, 1)
    assert sorted(axis.dimensions) == [1, 1, 3, 4]
    assert max(SpineComponents.of_queries(asked).sizes) == 8
    # A recode that tells apart the levels of a pair leaves none of them alike: 8 and 2 kinds.
    crossed = schema_of(pairs=PAIRS, odd=ODD)
    asked = [parse_query(crossed, text) for text in ("pairs", "odd", "detailed")]
    assert max(SymmetricComponents.of_queries(asked).sizes) == 10


def test_a_group_of_another_size_is_not_alike():
    schema = schema_of(groups=(0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2))
    asked = [parse_query(schema, text) for text in ("groups", "detailed")]
    axis = SymmetricComponents.of_queries(asked).pieces[0].axes[1]
    assert together(axis.kinds[axis.atoms]) == [0] * 6 + [6] * 6


@st.composite
def partitions(draw):
    codes = draw(st.lists(st.integers(0, 3), min_size=12, max_size=12))
    return tuple(np.unique(codes, return_inverse=True)[1].tolist())


@given(partitions(), partitions(), st.integers(0, 2**32 - 1), st.booleans())
def test_errors_and_gradients_are_those_of_all_atoms(one, other, seed, is_exact):
    rng = np.random.default_rng(seed)
    schema = schema_of(one=one, other=other, pairs=PAIRS)
    names = ("total", "one * sex", "other", "pairs", "sex", "detailed")
    measured = tuple(parse_query(schema, name) for name in names)
    tables = tuple(
        parse_query(schema, text) for text in ("ranges(age)", "prefix(age) * sex", "one", "total")
    )
    exact = ((measured[1],) if is_exact else (), (), ())
    tree = SubtreeClasses.of_tree([np.array([2]), np.array([3, 1]), np.zeros(4, np.int64)])
    small = SpineModel(tree, measured, exact, tables)
    whole = replace(small, spine_components=SpineComponents.of_queries(small.answered))
    precisions = rng.uniform(0.1, 3, (len(tree.chains), len(measured)))
    precisions[:, :-1] *= rng.random((len(tree.chains), len(measured) - 1)) < 0.7
    weights = rng.random((len(tables), 3))
    np.testing.assert_array_equal(small.is_determined, whole.is_determined)
    for information in Information:
        found, wanted = (solve_spine(model, precisions, information) for model in (small, whole))
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            found.gradient(weights), wanted.gradient(weights), rtol=1e-8, atol=1e-9
        )


def test_too_many_kinds_are_refused(monkeypatch):
    schema = schema_of(pairs=PAIRS, odd=ODD)
    asked = [parse_query(schema, text) for text in ("pairs", "odd", "detailed")]
    monkeypatch.setattr(spine_components, "MOST_GROUPS", 9)
    with pytest.raises(SchemaError, match="10 combinations"):
        SymmetricComponents.of_queries(asked)
