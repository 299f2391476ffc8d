"""Estimates of a tree equal those of one dense least-squares problem over the cells of all leaves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.queries.query import Query, is_answered_by, marginal, parse_query
from das.schema import Attribute, Recode, Schema
from das.tree.coordinates import Coordinates
from das.tree.model import GeolevelTerms, spine_terms
from das.tree.passes import Kinds, Moments, add_families, add_leaves, combine, gather_evidence
from das.tree.targets import subtree_targets
from geography.lattice import Lattice, Spine
from tests.builders.strategies import dense_matrix, marginals, queries, schemas, trees
from tests.unit.das.tree.dense import null_space
from tests.unit.das.tree.estimation_trees import (
    TreeCase,
    TreeEstimate,
    area_by_shares,
    estimate_tree,
)


@dataclass(frozen=True, eq=False)
class Dense:
    """The estimate and covariance of the cells of all leaves."""

    estimate: np.ndarray
    covariance: np.ndarray


def solve_dense(case: TreeCase) -> Dense:
    """The definition: weighted rows, exact rows as constraints, over leaves x cells."""
    size = case.n_leaves * case.n_cells
    design, right, weight = [np.zeros((0, size))], [np.zeros(0)], [np.zeros(0)]
    known, stated = [np.zeros((0, size))], [np.zeros(0)]
    for level, one in enumerate(case.answers):
        held = case.held(level)
        measured = np.flatnonzero(~one.is_only)
        for column, (query, answers) in enumerate(
            zip(case.terms[level].measured, one.noisy, strict=True)
        ):
            for row, g in enumerate(measured):
                design.append(np.kron(held[g : g + 1], dense_matrix(query)))
                right.append(answers[row])
                precision = one.precisions[one.kind[row], column]
                weight.append(np.full(query.size, precision))
        for query, answers in zip(case.terms[level].exact, one.exact, strict=True):
            known.append(np.kron(held, dense_matrix(query)))
            stated.append(answers.ravel())
    if case.has_type is not None:
        cell_types = case.terms[0].types.rows_of(np.arange(case.n_cells))
        empty = np.flatnonzero(~case.has_type[:, cell_types])
        known.append(np.eye(size)[empty])
        stated.append(np.zeros(len(empty)))
    rows, y, w = np.concatenate(design), np.concatenate(right), np.concatenate(weight)
    exact, a = np.concatenate(known), np.concatenate(stated)
    free = null_space(exact, size)
    base = np.linalg.lstsq(exact, a, rcond=None)[0] if len(exact) else np.zeros(size)
    inverse = np.linalg.inv(free.T @ (rows.T * w) @ rows @ free)
    found = base + free @ inverse @ free.T @ ((rows.T * w) @ (y - rows @ base))
    return Dense(found, free @ inverse @ free.T)


@st.composite
def cases(draw: st.DrawFn) -> tuple[TreeCase, tuple[Query, ...]]:
    """Irregular trees, unmeasured levels and queries, recodes, any factors, invariants, chains."""
    spine, leaves = draw(trees(most_levels=4, most_leaves=7))
    lattice = Lattice.from_leaves(spine, leaves)
    schema = draw(schemas(most_attributes=2, most_levels=4))
    detailed = marginal(schema, [a.name for a in schema.attributes])
    depth = len(spine.levels)
    measured = []
    for level in range(depth):
        asked = {(q.name, str(q.factors)): q for q in draw(st.lists(queries(schema), max_size=3))}
        tops = lattice.chain_end[level][~lattice.is_only_child[level]]
        kept = (tops == depth - 1).any() or draw(st.booleans())  # nothing lies below these
        measured.append((*asked.values(), *([detailed] if kept else [])))
    invariant = draw(st.one_of(st.none(), marginals(schema)))
    down_to = draw(st.integers(0, depth - 1))
    exact = [(invariant,) if invariant and level <= down_to else () for level in range(depth)]
    tables = tuple(draw(st.lists(queries(schema), min_size=1, max_size=3)))
    seed = draw(st.integers(0, 2**32 - 1))
    return TreeCase.random(lattice, schema, measured, exact, seed), tables


def compare(found: np.ndarray, wanted: np.ndarray, scale: float = 1.0) -> None:
    np.testing.assert_allclose(
        found, wanted, rtol=1e-9, atol=1e-9 * max(scale, float(np.abs(wanted).max(initial=0.0)))
    )


def check_all(case: TreeCase, tables: tuple[Query, ...]) -> TreeEstimate:
    dense = solve_dense(case)
    found = estimate_tree(case.terms, case.answers)
    for table in tables:
        matrix = dense_matrix(table).astype(float)
        touched = case.coordinates.touched_by([table])
        for level, whole in enumerate(found.whole):
            held = case.held(level)
            part = Moments(
                touched.select(case.coordinates, whole.values),
                touched.select(case.coordinates, whole.matrices),
                whole.kind,
            )
            if not part.values:
                assert not matrix.any()
                continue
            estimates = touched.answer(table, part.values)
            variances = touched.variances(table, part.matrices)[part.kind]
            for g in range(len(held)):
                rows = np.kron(held[g : g + 1], matrix)
                spread = np.einsum("ij,jk,ik->i", rows, dense.covariance, rows)
                compare(estimates[g], rows @ dense.estimate)
                compare(variances[g], spread)
    return found


def check_area(tree: TreeCase, tables: tuple[Query, ...], inside: np.ndarray) -> None:
    dense = solve_dense(tree)
    found = area_by_shares(tree, estimate_tree(tree.terms, tree.answers), inside)
    for table in tables:
        rows = np.kron(inside[None, :].astype(float), dense_matrix(table))
        compare(tree.coordinates.answer(table, found.values)[0], rows @ dense.estimate)
        spread = np.einsum("ij,jk,ik->i", rows, dense.covariance, rows)
        compare(tree.coordinates.variances(table, found.matrices)[0], spread)


@given(cases())
def test_estimates_and_variances_equal_those_of_one_dense_problem(case):
    check_all(*case)


@given(cases(), st.data())
def test_any_set_of_leaves_has_the_dense_estimate_and_variance(case, data):
    tree, tables = case
    inside = np.array(
        data.draw(st.lists(st.booleans(), min_size=tree.n_leaves, max_size=tree.n_leaves))
    )
    inside[data.draw(st.integers(0, tree.n_leaves - 1))] = True
    check_area(tree, tables, inside)


AGE = Attribute("age", ("0", "1", "2", "3", "4"))
SEX = Attribute("sex", ("f", "m", "x"))
SCHEMA = Schema(
    "s",
    (AGE, SEX),
    (
        Recode("young", "age", ("y", "n"), (0, 0, 1, 1, 1)),
        Recode("old", "age", ("a", "b", "c"), (0, 0, 1, 2, 2)),
        Recode("odd", "age", ("e", "o"), (0, 1, 0, 1, 0)),
        Recode("female", "sex", ("y", "n"), (0, 1, 1)),
    ),
)
LATTICE = Lattice.from_leaves(
    Spine(("nation", "state", "county", "block"), (0, 1, 2, 4)),
    ["1000", "1001", "1002", "1100", "1101", "2000", "3000", "3001", "3100", "3101", "3102"],
)
LEVELS = {
    "residual": ("total", "residual(age)", "residual(sex)", "residual(age) * residual(sex)"),
    "prefix": ("prefix(age)", "detailed"),
    "ranges": ("ranges(age) * female", "detailed"),
    "nested recodes": ("total", "young", "old * sex", "detailed"),
    "crossing recodes": ("young * female", "odd", "age * female", "detailed"),
    "strata": ("total where female=y", "age where female=n", "old where female=n", "detailed"),
    "contrasts": ("contrasts(sex)", "old", "detailed"),
}


@st.composite
def cases_with_types(draw: st.DrawFn) -> tuple[TreeCase, tuple[Query, ...]]:
    """Leaves without some types of cells, in any pattern, with any invariant down to any level."""
    spine, leaves = draw(trees(most_levels=4, most_leaves=7))
    lattice = Lattice.from_leaves(spine, leaves)
    schema = draw(schemas(most_attributes=2, most_levels=4))
    names = [attribute.name for attribute in schema.attributes]
    detailed, types = marginal(schema, names), draw(marginals(schema))
    depth = len(spine.levels)
    measured = [(*draw(st.lists(queries(schema), max_size=2)), detailed) for _ in range(depth)]
    invariant = draw(st.one_of(st.none(), marginals(schema)))
    down_to = draw(st.integers(0, depth - 1))
    exact = [(invariant,) if invariant and level <= down_to else () for level in range(depth)]
    row = st.lists(st.booleans(), min_size=types.size, max_size=types.size)
    has_type = np.array([draw(row) for _ in leaves]).reshape(len(leaves), types.size)
    tables = tuple(draw(st.lists(queries(schema), min_size=1, max_size=3)))
    case = TreeCase.random(
        lattice,
        schema,
        measured,
        exact,
        draw(st.integers(0, 2**32 - 1)),
        make=partial(spine_terms, types=types),
        has_type=has_type,
    )
    return case, tables


@given(cases_with_types())
def test_public_zeros_of_single_geounits_are_known_everywhere(case):
    """As exact rows of the dense problem are; patterns of siblings and invariants interact."""
    check_all(*case)


@given(cases_with_types(), st.data())
def test_areas_know_public_zeros(case, data):
    tree, tables = case
    chosen = data.draw(st.sets(st.integers(0, tree.n_leaves - 1), min_size=1))
    inside = np.isin(np.arange(tree.n_leaves), sorted(chosen))
    check_area(tree, tables, inside)


def test_every_kind_of_strategy_with_every_kind_of_invariant():
    """A geolevel that is not measured, another strategy above it, a chain down to a block."""
    for name, exact in itertools.product(
        LEVELS, [(), ("total",), ("total", "young"), ("old * female",)]
    ):
        asked = [parse_query(SCHEMA, text) for text in LEVELS[name]]
        own = [parse_query(SCHEMA, text) for text in ("total", "sex", "detailed")]
        held = tuple(parse_query(SCHEMA, text) for text in exact)
        case = TreeCase.random(
            LATTICE, SCHEMA, [asked, own, (), asked], [held, held, held[:1], ()], seed=5
        )
        tables = tuple(
            parse_query(SCHEMA, text)
            for text in ("total", "prefix(age)", "ranges(old) * sex", "odd")
        )
        check_all(case, tables)
        if held:
            found = estimate_tree(case.terms, case.answers).whole[1]
            variance = case.coordinates.variances(held[0], found.matrices)[found.kind]
            assert variance.max() < 1e-12
            given_answers = case.answers[1].exact[0]
            compare(case.coordinates.answer(held[0], found.values), given_answers)


def test_summed_leaves_give_the_same_families():
    """The shortcut for leaves equals adding up estimates of each."""
    detailed, total = parse_query(SCHEMA, "detailed"), parse_query(SCHEMA, "old")
    (terms,) = spine_terms([[total, detailed]], [[parse_query(SCHEMA, "total")]])
    rng = np.random.default_rng(3)
    starts, numbers = np.array([0, 2, 5]), np.array([2, 3, 4])
    answers = [rng.normal(size=(9, q.size)) for q in (total, detailed)]
    exact = [rng.normal(size=(9, 1))]
    precisions = np.array([[0.4, 2.0]])

    def estimated(noisy, stated, rows):
        kinds = Kinds(precisions, np.zeros(rows, np.int64))
        evidence = gather_evidence(terms, noisy=noisy, exact=stated, kinds=kinds)
        return combine(terms, evidence, None)

    slow = add_families(estimated(answers, exact, 9), starts, terms)
    summed = [np.add.reduceat(a, starts) for a in (*answers, *exact)]
    fast = add_leaves(estimated(summed[:2], summed[2:], 3), numbers, np.arange(3), terms)
    for one, other in zip(slow.values, fast.values, strict=True):
        compare(one, other)
    for one, other in zip(slow.matrices, fast.matrices, strict=True):
        compare(one[slow.kind], other[fast.kind])


def information(terms: GeolevelTerms, weights: np.ndarray) -> np.ndarray:
    return sum(
        w * dense_matrix(q).T @ dense_matrix(q)
        for q, w in zip(terms.measured, weights, strict=True)
    )


@pytest.mark.parametrize("equal", [True, False])
def test_targets_hold_the_subtree(equal):
    """Exact where families are equal; near it elsewhere; z is the optimum in both."""
    leaves = (
        ["100", "101", "110", "111", "200", "201", "210", "211"]
        if equal
        else ["100", "101", "102", "103", "110", "111", "200", "201", "210", "211", "212"]
    )
    lattice = Lattice.from_leaves(Spine(("r", "a", "b", "c"), (0, 1, 2, 3)), leaves)
    asked = [parse_query(SCHEMA, text) for text in ("total", "old * sex", "age", "detailed")]
    case = TreeCase.random(lattice, SCHEMA, [asked] * 4, [()] * 4, seed=9, equal_noise=True)
    found = estimate_tree(case.terms, case.answers)
    detailed = asked[-1]
    for level in (1, 2):
        subtree = found.messages[level]
        targets = subtree_targets(case.terms[level], asked, subtree)
        z = case.coordinates.answer(detailed, subtree.values)
        for g in range(len(z)):
            gram = information(case.terms[level], targets.weights[g])
            adjoint = sum(
                w * dense_matrix(q).T @ answers[g]
                for q, w, answers in zip(asked, targets.weights[g], targets.answers, strict=True)
            )
            compare(np.linalg.solve(gram, adjoint), z[g])
            covariance = subtree_covariance(case.coordinates, detailed, subtree, g)
            error = gram @ covariance - np.eye(len(gram))
            root = np.linalg.cholesky(covariance)
            relative = np.linalg.norm(root.T @ gram @ root - np.eye(len(gram)))
            assert relative / np.sqrt(len(gram)) == pytest.approx(targets.misfit[g], abs=1e-9)
            if equal or level == 2:
                assert np.abs(error).max() < 1e-9
            else:
                assert 1e-6 < targets.misfit[g] < 0.02
    assert (targets.weights >= 0).all()


@pytest.mark.parametrize("known", [("total",), ("sex",), ("detailed",)])
def test_what_invariants_fix_gets_no_weight(known):
    """Residual rows and the total, beside sums that are exact at the first two geolevels."""
    texts = ("total", "residual(sex)", "residual(age)", "residual(sex) * residual(age)")
    asked = [parse_query(SCHEMA, text) for text in texts]
    exact = [parse_query(SCHEMA, text) for text in known]
    leaves = ["100", "101", "102", "110", "111", "200", "201", "210"]
    lattice = Lattice.from_leaves(Spine(("r", "a", "b", "c"), (0, 1, 2, 3)), leaves)
    case = TreeCase.random(lattice, SCHEMA, [asked] * 4, [exact, exact, (), ()], seed=9)
    found = estimate_tree(case.terms, case.answers)
    for level in (0, 1):
        targets = subtree_targets(case.terms[level], asked, found.messages[level])
        for query, weights in zip(asked, targets.weights.T, strict=True):
            fixed = any(is_answered_by(one, query) for one in exact)
            assert (weights == 0).all() if fixed else (weights > 0).all()
        assert targets.misfit.max() < (1e-6 if level == 0 else 0.3)
        rows = np.concatenate([dense_matrix(query) for query in exact])
        fixed_space = np.linalg.svd(rows)[2]
        open_ = fixed_space[np.linalg.matrix_rank(rows) :]
        if len(open_):
            gram = information(case.terms[level], targets.weights[0])
            covariance = subtree_covariance(
                case.coordinates, parse_query(SCHEMA, "detailed"), found.messages[level], 0
            )
            relative = open_ @ gram @ open_.T @ (open_ @ covariance @ open_.T)
            assert np.linalg.eigvals(relative).real.min() > 0.1


@pytest.mark.parametrize("known", [(), ("total",)])
def test_targets_weigh_queries_that_differ_in_empty_cells_alone(known):
    """Without ages 1 to 4, `sex` and `detailed` say the same of a leaf; its problem has all cells."""
    asked = [parse_query(SCHEMA, text) for text in ("total", "sex", "detailed")]
    exact = tuple(parse_query(SCHEMA, text) for text in known)
    has_type = np.ones((11, 5), np.bool_)
    has_type[[0, 2, 5], 1:] = False
    make = partial(spine_terms, types=parse_query(SCHEMA, "age"))
    case = TreeCase.random(
        LATTICE, SCHEMA, [asked] * 4, [exact] * 4, 7, make=make, has_type=has_type
    )
    found = estimate_tree(case.terms, case.answers)
    for level, subtree in enumerate(found.messages):
        targets = subtree_targets(case.terms[level], asked, subtree)
        is_measured = ~case.lattice.is_only_child[level]
        weights = targets.weights[is_measured]
        assert (weights[:, 0] == 0).all() if known else (weights[:, 0] >= 0).all()
        lacking = (
            case.held(level)[is_measured] @ ~has_type
            == case.held(level)[is_measured].sum(1)[:, None]
        )
        assert (weights[lacking.any(axis=1)][:, 1:] > 0).all()
        assert targets.misfit[is_measured].max() < 0.3


def test_answers_that_zeros_and_invariants_fix_together_get_no_large_weight():
    """Without ages 1 to 4 anywhere, `age` has the exact total as its first answer, else zeros."""
    asked = [parse_query(SCHEMA, text) for text in ("sex", "age", "detailed")]
    types = parse_query(SCHEMA, "sex * age")
    has_type = np.tile(np.arange(types.size) < 3, (11, 1))
    make = partial(spine_terms, types=types)
    exact = [(parse_query(SCHEMA, "total"),)] * 4
    case = TreeCase.random(LATTICE, SCHEMA, [asked] * 4, exact, 7, make=make, has_type=has_type)
    for level, subtree in enumerate(estimate_tree(case.terms, case.answers).messages):
        targets = subtree_targets(case.terms[level], asked, subtree)
        is_measured = ~case.lattice.is_only_child[level]
        weights = targets.weights[is_measured]
        assert weights.max() < 100 * weights[:, [0, 2]].max()


def subtree_covariance(
    coordinates: Coordinates, detailed: Query, subtree: Moments, g: int
) -> np.ndarray:
    """float64[n, n] in cells: coordinates of unit vectors, moved by the matrices."""
    eye = coordinates.adjoint(detailed, np.eye(detailed.size))
    flat = coordinates.flatten(eye)
    moved = coordinates.flatten(
        tuple(m[subtree.kind[g]] @ part for m, part in zip(subtree.matrices, eye, strict=True))
    )
    return flat @ moved.T
