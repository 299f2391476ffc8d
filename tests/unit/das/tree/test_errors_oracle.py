"""Predicted errors equal those of a dense least-squares problem over all leaves of a small tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.queries.query import Query, is_refinement, marginal, parse_query
from das.schema import Attribute, Recode, Schema
from das.tree.classes import SubtreeClasses
from das.tree.components import SpineComponents
from das.tree.errors import (
    PredictedErrors,
    SpineModel,
    predict_errors,
    solve_spine,
)
from das.tree.information import Information
from geography.lattice import Lattice, Spine
from tests.builders.strategies import dense_matrix, marginals, queries, schemas, trees
from tests.unit.das.tree.dense import null_space


def sum_out(lattice: Lattice, level: int) -> np.ndarray:
    """float64[G_l, leaves]: which leaves each geounit holds."""
    leaves = lattice.codes[-1]
    digits = lattice.spine.digits[level]
    owner = leaves.astype(f"S{digits}") if digits else np.full(len(leaves), b"0")
    return (lattice.codes[level][:, None] == owner[None, :]).astype(float)


def dense_errors(
    lattice: Lattice,
    measured: Sequence[Query],
    precision: dict[tuple[int, int], np.ndarray],
    exact: Sequence[Sequence[Query]],
    tables: Sequence[Query],
) -> dict[Information, PredictedErrors]:
    """The definition: one matrix over the cells of all leaves, constraints and all."""
    depth, n = len(lattice.spine.levels), measured[0].n_cells
    size = len(lattice.codes[-1]) * n
    known = [
        np.kron(sum_out(lattice, level), dense_matrix(query))
        for level in range(depth)
        for query in exact[level]
    ]
    free = null_space(np.concatenate([np.zeros((0, size)), *known]), size)
    gram = np.zeros((size, size))
    for level in range(depth):
        held = sum_out(lattice, level)
        for g in np.flatnonzero(~lattice.is_only_child[level]):
            row = held[g : g + 1]
            for query, weight in zip(
                measured, precision[level, int(lattice.chain_end[level][g])], strict=True
            ):
                part = np.kron(row, dense_matrix(query))
                gram += weight * part.T @ part
    full = free @ np.linalg.inv(free.T @ gram @ free) @ free.T
    shape = (len(tables), depth)
    out = {one: PredictedErrors(np.zeros(shape), np.zeros(shape)) for one in Information}
    for level in range(depth):
        held = sum_out(lattice, level)
        for t, table in enumerate(tables):
            matrix = dense_matrix(table).astype(float)
            errors: dict[Information, list[float]] = {one: [] for one in Information}
            for g in range(len(held)):
                part = np.kron(held[g : g + 1], matrix)
                errors[Information.TREE].append(np.einsum("ij,jk,ik", part, full, part))
                top, spot = level, g
                while lattice.is_only_child[top][spot]:
                    top, spot = top - 1, int(lattice.parents[top][spot])
                own = sum(
                    weight * dense_matrix(query).T @ dense_matrix(query)
                    for query, weight in zip(
                        measured, precision[top, int(lattice.chain_end[top][spot])], strict=True
                    )
                )
                rows = [dense_matrix(query) for query in exact[top]]
                basis = null_space(np.concatenate([np.zeros((0, n)), *rows]), n)
                cov = basis @ np.linalg.inv(basis.T @ own @ basis) @ basis.T
                errors[Information.GEOUNIT].append(np.einsum("ij,jk,ik", matrix, cov, matrix))
            for one, values in errors.items():
                out[one].mean[t, level] = np.mean(values) / table.size
                out[one].worst[t, level] = np.max(values) / table.size
    return out


@st.composite
def cases(draw):
    spine, leaves = draw(trees(most_levels=4, most_leaves=7))
    lattice = Lattice.from_leaves(spine, leaves)
    schema = draw(schemas(most_attributes=2, most_levels=4))
    detailed = marginal(schema, [a.name for a in schema.attributes])
    asked = {(q.name, str(q.factors)): q for q in draw(st.lists(queries(schema), max_size=3))}
    measured = (*asked.values(), detailed)
    depth = len(spine.levels)
    precision = {}
    weight = st.floats(0.05, 20)
    for first in range(depth):
        for last in range(first, depth):
            row = np.array([draw(st.one_of(st.just(0.0), weight)) for _ in measured])
            row[-1] = draw(weight)
            precision[first, last] = row
    invariant = draw(st.one_of(st.none(), marginals(schema)))
    down_to = draw(st.integers(0, depth - 1))
    exact = [(invariant,) if invariant and level <= down_to else () for level in range(depth)]
    tables = tuple(draw(st.lists(queries(schema), min_size=1, max_size=3)))
    tables = tuple(t for t in tables if dense_matrix(t).any()) or (detailed,)
    return lattice, measured, precision, tuple(exact), tables


def model_of(lattice, measured, exact, tables) -> SpineModel:
    levels = range(len(lattice.spine.levels))
    tree = SubtreeClasses.of_tree([lattice.n_children(level) for level in levels])
    return SpineModel(tree, measured, exact, tables)


def precision_rows(model: SpineModel, precision: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    return np.stack([precision[chain.first, chain.last] for chain in model.tree.chains])


@given(cases())
def test_errors_equal_those_of_one_dense_problem(case):
    lattice, measured, precision, exact, tables = case
    model = model_of(lattice, measured, exact, tables)
    wanted = dense_errors(lattice, measured, precision, exact, tables)
    for information in Information:
        found = predict_errors(model, precision_rows(model, precision), information)
        scale = 1e-9 * max(1.0, float(wanted[information].worst.max()))
        np.testing.assert_allclose(found.mean, wanted[information].mean, rtol=1e-9, atol=scale)
        np.testing.assert_allclose(found.worst, wanted[information].worst, rtol=1e-9, atol=scale)


@given(cases(), st.integers(0, 2**32 - 1))
def test_gradients_equal_central_differences(case, seed):
    lattice, measured, precision, exact, tables = case
    model = model_of(lattice, measured, exact, tables)
    rows = precision_rows(model, precision)
    weights = np.random.default_rng(seed).uniform(0, 1, (len(tables), len(lattice.spine.levels)))
    step = 1e-5
    for information in Information:
        found = solve_spine(model, rows, information).gradient(weights)
        for spot in np.ndindex(rows.shape):
            if not rows[spot]:
                continue  # a difference would ask for a negative precision
            shift = np.zeros_like(rows)
            shift[spot] = step * rows[spot]
            value = [
                (weights * solve_spine(model, rows + sign * shift, information).mean).sum()
                for sign in (1, -1)
            ]
            wanted = (value[0] - value[1]) / (2 * shift[spot])
            scale = max(1.0, abs(value[0])) / rows[spot]
            assert found[spot] == pytest.approx(wanted, rel=1e-5, abs=1e-6 * scale)


def test_crossing_recodes_of_one_attribute_and_of_two():
    """Recodes of unequal groups whose Gram matrices commute neither with each other nor J."""
    age = Attribute("age", ("0", "1", "2", "3", "4"))
    sex = Attribute("sex", ("f", "m", "x"))
    schema = Schema(
        "s",
        (age, sex),
        (
            Recode("young", "age", ("y", "n"), (0, 0, 1, 1, 1)),
            Recode("odd", "age", ("e", "o"), (0, 1, 0, 1, 0)),
            Recode("female", "sex", ("y", "n"), (0, 1, 1)),
        ),
    )
    measured = tuple(
        parse_query(schema, text)
        for text in ("total", "young * female", "odd", "age * female", "detailed")
    )
    assert not is_refinement(measured[1], measured[2])
    tables = tuple(parse_query(schema, t) for t in ("ranges(age) * sex", "young", "prefix(odd)"))
    lattice = Lattice.from_leaves(
        Spine(("a", "b", "c"), (0, 1, 2)), ["10", "11", "12", "20", "31", "32"]
    )
    precision = {
        (first, last): np.array([0.3, 1.1, 0.7, 0.2, 0.5]) * (1 + first) / (2 + last)
        for first in range(3)
        for last in range(first, 3)
    }
    exact = ((parse_query(schema, "young"),), (), ())
    model = model_of(lattice, measured, exact, tables)
    wanted = dense_errors(lattice, measured, precision, exact, tables)
    for information in Information:
        found = predict_errors(model, precision_rows(model, precision), information)
        np.testing.assert_allclose(found.mean, wanted[information].mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found.worst, wanted[information].worst, rtol=1e-10, atol=1e-12)
    assert found.mean[1, 0] == 0


def test_queries_of_planners_keep_small_components():
    """Residuals are as symmetric as the identity; prefixes tell all levels apart."""
    levels = tuple("abcde")
    schema = Schema("s", (Attribute("x", levels), Attribute("y", levels)))
    plain = [parse_query(schema, t) for t in ("total", "residual(x)", "residual(x) * residual(y)")]
    detailed = parse_query(schema, "detailed")
    assert SpineComponents.of_queries([*plain, detailed]).sizes == (1, 1, 1, 1)
    prefixed = SpineComponents.of_queries([detailed, parse_query(schema, "prefix(x)")])
    assert prefixed.sizes == (5, 5)
