"""The matrix-free solver of Kronecker queries against the one with matrices."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from das.errors import SolverError
from das.queries.factor import Factor, identity
from das.queries.query import Query, kronecker, parse_query
from das.schema import Attribute, Recode, Schema
from solvers import node as node_module
from solvers.dual_newton import projected
from solvers.dual_newton.projected import solve_projected
from solvers.least_squares.blocks import given_sums
from solvers.least_squares.solve import solve_quadratic
from solvers.node import NodeSettings
from solvers.problem import (
    ExactTerm,
    GeneralTerm,
    KroneckerTerm,
    LeastSquaresTerm,
    NodeProblem,
    Status,
    group_sums,
)

TOLERANCE = 1e-7
AGE = Attribute("age", tuple("01234"))
SCHEMA = Schema(
    "s",
    (Attribute("sex", ("f", "m")), AGE, Attribute("race", tuple("abcd"))),
    (Recode.from_groups("adult", AGE, {"no": ("0", "1"), "yes": ("2", "3", "4")}),),
)


def residuals() -> list[Query]:
    """What a residual planner measures."""
    parts = [f"residual({name})" for name in ("sex", "age", "race")]
    texts = ["total", *parts]
    texts += [f"{one} * {other}" for i, one in enumerate(parts) for other in parts[i + 1 :]]
    return [parse_query(SCHEMA, text) for text in (*texts, " * ".join(parts))]


def oblique() -> list[Query]:
    """Prefixes of age beside a leaning residual of race, and the plain cells of race."""
    lean = Factor(np.array([[3, -1, 0, 0], [0, 2, -1, 0], [1, 1, 1, -4]]), ("a", "b", "c"))
    sex = ("sex", identity(("f", "m")))
    return [
        parse_query(SCHEMA, "sex * prefix(age)"),
        kronecker(SCHEMA, "leaning", [("race", lean), sex, ("age", identity(AGE.levels))]),
        parse_query(SCHEMA, "prefix(age)"),
        parse_query(SCHEMA, "sex * age"),
    ]


def node(
    queries: list[Query],
    seed: int,
    *,
    children: int = 4,
    cells: int = 26,
    exact: tuple[str, ...] = (),
    alike: bool = True,
    spread: float = 1.0,
    is_root: bool = False,
) -> NodeProblem:
    rng = np.random.default_rng(seed)
    C = 1 if is_root else children
    held = np.sort(rng.choice(SCHEMA.size, cells, replace=False))
    truth = rng.poisson(3 * rng.gamma(0.3, 3.0, (C, cells))).astype(np.int64)
    truth[rng.integers(0, C, cells), np.arange(cells)] += 1
    terms: list[KroneckerTerm | LeastSquaresTerm] = []
    for query in queries:
        scale = np.sqrt(query.gram_diagonal(held).max())
        variance = scale**2 * 10 ** rng.uniform(-spread, spread, 1 if alike else C) * np.ones(C)
        noise = rng.normal(size=(C, query.size)) * np.sqrt(variance)[:, None]
        answers = truth @ query.columns(held).T + noise
        if query.is_partition:
            present, groups = np.unique(query.rows_of(held), return_inverse=True)
            terms.append(LeastSquaresTerm(groups, answers[:, present], 1 / variance, query))
        else:
            terms.append(KroneckerTerm(query, held, query.adjoint(answers, held), 1 / variance))
    given = []
    for text in exact:
        query = parse_query(SCHEMA, text)
        groups = np.unique(query.rows_of(held), return_inverse=True)[1]
        targets = np.array([np.bincount(groups, row).astype(np.int64) for row in truth])
        given.append(ExactTerm(groups, targets, query))
    parent = None if is_root else truth.sum(0)
    return NodeProblem("node", cells, parent, tuple(terms), tuple(given), ())


def without_queries(problem: NodeProblem) -> NodeProblem:
    """The same node in matrices over its cells."""
    terms = tuple(
        GeneralTerm(t.query.columns(t.cells).T @ t.query.columns(t.cells), t.adjoint, t.weights)
        if isinstance(t, KroneckerTerm)
        else t
        for t in problem.terms
    )
    return replace(problem, terms=terms)


def agree(problem: NodeProblem, fixed=()) -> None:
    ours = solve_projected(problem, TOLERANCE, fixed)
    reference = solve_quadratic(without_queries(problem), 1e-9, fixed)
    assert reference.status is Status.SOLVED
    assert ours.status is Status.SOLVED
    assert ours.certificate.residual <= TOLERANCE
    size = max(1.0, reference.values.max())
    assert np.abs(ours.values - reference.values).max() <= 1e-5 * size


KINDS = {
    "plain": {},
    "root": {"is_root": True, "cells": 40},
    "exact total at the root": {"is_root": True, "exact": ("total",), "cells": 40},
    "exact totals": {"exact": ("total",)},
    "nested exact sums": {"exact": ("total", "adult")},
    "exact cells of two attributes": {"exact": ("sex * race",)},
    "unequal children": {"alike": False, "exact": ("total",)},
    "uneven weights": {"spread": 2.0, "exact": ("total",)},
}


def test_it_finds_what_matrices_find():
    for seed, queries, kind in itertools.product(range(2), [residuals, oblique], KINDS):
        agree(node(queries(), seed, **KINDS[kind]))


def test_sums_of_live_cells_and_of_the_table_apply_the_same(monkeypatch):
    """Without groups of levels there are two ways; both are the Gram matrix."""
    problem = node(residuals(), 3, exact=("total",), alike=False)
    x = np.random.default_rng(1).normal(size=(4, 26))
    equalities = given_sums(problem, ())
    found = []
    for price in (0.0, 1e9):
        monkeypatch.setattr(projected, "_FOLD_PRICE", price)
        information = projected.Information(problem, equalities)
        assert bool(information.marginals) == (price > 0)
        found.append(information.apply(x))
        dense = np.einsum("ckl,cl->ck", gram_of(problem, information.given_weights), x)
        assert np.allclose(found[-1], dense, rtol=1e-9, atol=1e-9 * np.abs(dense).max())
    least = np.linalg.eigvalsh(gram_of(problem, information.given_weights))[:, 0]
    assert (information.least <= least * (1 + 1e-9)).all()
    assert (information.least > 0).all()


def gram_of(problem: NodeProblem, given: np.ndarray) -> np.ndarray:
    """float64[C, k, k]: all terms, and given sums with their weights."""
    out = np.zeros((problem.n_children, problem.n_cells, problem.n_cells))
    for term in problem.terms:
        gram = (
            term.groups[:, None] == term.groups if isinstance(term, LeastSquaresTerm) else term.gram
        )
        out += term.weights[:, None, None] * gram
    for e, weights in zip(given_sums(problem, ()), given, strict=True):
        out += weights[:, None, None] * (e.groups[:, None] == e.groups)
    return out


@pytest.mark.parametrize("queries", [residuals, oblique])
def test_a_query_is_applied_without_its_matrix(queries):
    for term in node(queries(), 5).terms:
        if isinstance(term, KroneckerTerm):
            x = np.random.default_rng(2).normal(size=(3, 26))
            assert np.allclose(term.apply(x), x @ term.gram)
            assert np.allclose(term.squares, term.gram.diagonal())


def test_sums_of_earlier_passes_are_kept():
    problem = node(residuals(), 7, exact=("total",))
    rows = parse_query(SCHEMA, "sex * race").rows_of(cells_of(problem))
    groups = np.unique(rows, return_inverse=True)[1]
    held = solve_quadratic(without_queries(problem), 1e-9).values
    agree(replace(problem, exact=()), ((groups, group_sums(held, groups, int(groups.max()) + 1)),))


def cells_of(problem: NodeProblem) -> np.ndarray:
    return next(term.cells for term in problem.terms if isinstance(term, KroneckerTerm))


def test_queries_without_full_column_rank_are_refused():
    problem = node(residuals()[:-1], 1)
    with pytest.raises(SolverError, match="do not have full column rank"):
        solve_projected(problem, TOLERANCE)


def test_promises_that_contradict_are_evidence(monkeypatch):
    """Through the node's dispatch, which chooses this solver for large nodes."""
    monkeypatch.setattr(node_module, "_LARGE_BLOCK", 1)
    problem = node(residuals(), 1, exact=("total",))
    wrong = replace(problem.exact[0], targets=problem.exact[0].targets + np.eye(4, 1, dtype=int))
    estimate = node_module.estimate_node(replace(problem, exact=(wrong,)), NodeSettings())
    assert estimate.status is Status.INFEASIBLE
    assert estimate.evidence.startswith("no table keeps every constraint")
    assert node_module.is_without_matrices(problem)
    assert node_module.estimate_node(problem, NodeSettings()).status is Status.SOLVED
