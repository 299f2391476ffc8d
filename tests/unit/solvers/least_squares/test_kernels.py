"""The kernels compute what their definition in arrays does."""

from __future__ import annotations

import numpy as np

from solvers.least_squares.blocks import arrange, side_by_side
from solvers.least_squares.machine_code import kernels
from solvers.least_squares.solve import solve_quadratic
from solvers.node import NodeSettings, solve_node
from solvers.problem import Status
from tests.builders.strategies import Shape, random_node
from tests.unit.solvers.least_squares import in_arrays
from tests.unit.solvers.least_squares.test_solve import SHAPES, division, far

TOLERANCE = 1e-7
__all__ = ["division"]


def test_iterations_are_those_in_arrays(division):
    for shape in SHAPES:
        for seed in range(4):
            problem = random_node(shape, seed)
            ours = solve_quadratic(problem, TOLERANCE)
            with in_arrays.use():
                theirs = solve_quadratic(problem, TOLERANCE)
            assert far(ours.values, theirs.values) <= 1e-9
            assert ours.status is theirs.status is Status.SOLVED
            assert ours.iterations == theirs.iterations


def test_sums_over_queries_are_those_in_arrays(division):
    for shape in SHAPES:
        problem = random_node(shape, 6)
        q, (C, k) = arrange(problem), (problem.n_children, problem.n_cells)
        rng = np.random.default_rng(7)
        x, give = rng.normal(size=(C, k)), rng.random((C, k)) + 0.1
        weights = rng.random((len(problem.terms), C))
        p = side_by_side(problem.terms, C, k)
        ours, theirs = (
            (
                module.adjoint(p.index, p.answers, weights),
                module.gram_blocks(p.index, weights, q.cells),
                *module.gradient(p.index, p.ends, p.answers, weights, x),
                *module.project_by_cell(x, give, q.free, np.abs(x).sum(0) / 4),
            )
            for module in (kernels(), in_arrays.DEFINITION)
        )
        for one, other in zip(ours, theirs, strict=True):
            assert far(np.asarray(one, float), np.asarray(other, float)) < 1e-12


def test_counts_are_those_of_the_definition():
    """Among them nodes whose compiled solution once ended at the tolerance: 2e-7 persons off."""
    shapes = [
        (Shape(9, 30, (1, 3), ((1,),), 1000.0, 200.0, 0.0, scales=True), 866),
        (Shape(9, 30, (1,), ((1,),), 1.0, 200.0, 0.0), 2283),
        (Shape(12, 60, (1, 3), ((1,), (2,)), 1.0, 200.0, 0.0, unequal=True), 2326),
        *((Shape(8, 30, (), ((1,), (2,)), 1.0, 20.0, 0.4), seed) for seed in range(6)),
        *((Shape(8, 30, (1,), ((1,),), 10.0, 20.0, 0.4, scales=True), seed) for seed in range(6)),
    ]
    for shape, seed in shapes:
        problem = random_node(shape, seed)
        ours = solve_node(problem, NodeSettings())
        with in_arrays.use():
            theirs = solve_node(problem, NodeSettings())
        np.testing.assert_array_equal(ours.counts, theirs.counts)
        np.testing.assert_allclose(ours.estimate.values, theirs.estimate.values, atol=1e-8)
