"""Promises of the node solver that hold for every node."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from solvers.least_squares.solve import solve_quadratic
from solvers.node import NodeSettings, solve_node
from solvers.problem import NO_LIMIT, NodeProblem, Status, group_sums
from solvers.rounding.round import round_counts
from solvers.verify import verify_counts
from tests.builders.strategies import (
    Shape,
    fractional_point,
    permuted_cells,
    permuted_children,
    random_node,
    random_rows,
    shapes,
)
from tests.unit.solvers.least_squares.quadratic import optimality_gap
from tests.unit.solvers.rounding.roundings import is_controlled, pass_cost

TOLERANCE = 1e-7
SEEDS = st.integers(0, 2**32 - 1)
GENERATE = (Phase.explicit, Phase.reuse, Phase.generate)  # a seed does not shrink


def without_exact(shape: Shape) -> Shape:
    return replace(shape, exact=())


PLAIN = st.builds(random_node, shapes().map(without_exact), SEEDS)
ALL = st.builds(random_node, shapes(), SEEDS)


def is_optimal(problem: NodeProblem) -> bool:
    estimate = solve_quadratic(problem, TOLERANCE)
    return estimate.status is Status.SOLVED and optimality_gap(problem, estimate.values) <= 1e-8


@given(PLAIN)
def test_the_continuous_solution_is_optimal(problem):
    assert is_optimal(problem)


@settings(phases=GENERATE)
@given(ALL)
def test_the_continuous_solution_is_optimal_with_invariants(problem):
    assert is_optimal(problem)


@settings(phases=GENERATE)
@given(
    st.builds(
        random_node,
        shapes().map(lambda shape: replace(shape, passes=((),), unequal=True)),
        SEEDS,
    ),
    st.integers(0, 2),
)
def test_the_continuous_solution_is_optimal_with_rows_and_weights_by_child(problem, rows):
    truth = solve_quadratic(problem, TOLERANCE).values.round().astype(np.int64)
    rng = np.random.default_rng(rows)
    limits = random_rows(truth, rows, rng)
    slack = np.abs(limits.coefficients).sum(1)  # the truth is a rounded point, not a table
    least = np.where(limits.least > -NO_LIMIT, limits.least - slack, -NO_LIMIT)
    most = np.where(limits.most < NO_LIMIT, limits.most + slack, NO_LIMIT)
    assert is_optimal(replace(problem, rows=(replace(limits, least=least, most=most),)))


def keeps_its_promises(problem: NodeProblem) -> None:
    """Every integer count is next to its estimate, every equality exact."""
    solution = solve_node(problem, NodeSettings(TOLERANCE))
    verify_counts(problem, solution.counts)
    values = solution.estimate.values
    assert values.min() >= 0
    slack = 1e-6 if not solution.rounding.widened else 1.0
    assert (solution.counts >= np.floor(values - slack)).all()
    assert (solution.counts <= np.ceil(values + slack)).all()
    again = solve_node(problem, NodeSettings(TOLERANCE))
    assert np.array_equal(again.counts, solution.counts)
    assert np.array_equal(again.estimate.values, values)


@given(PLAIN)
def test_a_solved_node_keeps_its_promises(problem):
    keeps_its_promises(problem)


@settings(phases=GENERATE)
@given(ALL)
def test_a_solved_node_keeps_its_promises_with_invariants(problem):
    keeps_its_promises(problem)


@given(PLAIN, st.randoms(use_true_random=False))
def test_permuting_children_permutes_the_solution(problem, shuffler):
    order = np.array(shuffler.sample(range(problem.n_children), problem.n_children))
    ours = solve_quadratic(problem, TOLERANCE).values
    theirs = solve_quadratic(permuted_children(problem, order), TOLERANCE).values
    assert np.abs(ours[order] - theirs).max() <= 1e-7 * max(1.0, ours.max())


@given(PLAIN, st.randoms(use_true_random=False))
def test_permuting_cells_permutes_the_solution(problem, shuffler):
    order = np.array(shuffler.sample(range(problem.n_cells), problem.n_cells))
    ours = solve_quadratic(problem, TOLERANCE).values
    theirs = solve_quadratic(permuted_cells(problem, order), TOLERANCE).values
    assert np.abs(ours[:, order] - theirs).max() <= 1e-7 * max(1.0, ours.max())


@given(PLAIN, st.sampled_from([1e-6, 1e-2, 3.0, 1e5]))
def test_only_the_ratios_of_weights_matter(problem, factor):
    ours = solve_quadratic(problem, TOLERANCE).values
    terms = tuple(replace(t, weights=t.weights * factor) for t in problem.terms)
    theirs = solve_quadratic(replace(problem, terms=terms), TOLERANCE).values
    assert np.abs(ours - theirs).max() <= 1e-7 * max(1.0, ours.max())


@given(PLAIN)
def test_a_term_split_in_two_changes_nothing(problem):
    first, *rest = problem.terms
    halves = (replace(first, weights=first.weights / 2),) * 2
    ours = solve_quadratic(problem, TOLERANCE).values
    theirs = solve_quadratic(replace(problem, terms=(*halves, *rest)), TOLERANCE).values
    assert np.abs(ours - theirs).max() <= 1e-7 * max(1.0, ours.max())


@given(shapes(), SEEDS)
def test_without_noise_the_output_is_the_truth(shape, seed):
    """Answers of an integer table that sums to the parent are reproduced, cell by cell."""
    problem = random_node(without_exact(shape), seed)
    truth = fractional_point(problem, seed, tables=1).astype(np.int64)
    terms = tuple(
        replace(t, answers=group_sums(truth, t.groups, t.answers.shape[1]).astype(float))
        for t in problem.terms
    )
    assert np.array_equal(
        solve_node(replace(problem, terms=terms), NodeSettings(TOLERANCE)).counts, truth
    )


# --- rounding alone, with invariants of every kind -----------------------------------------------


@given(shapes(most_children=6, most_cells=9), SEEDS)
def test_every_rounding_is_controlled(shape, seed):
    """Cells and groups within one of their real values, equalities exact, nothing widened."""
    problem = random_node(shape, seed)
    values = fractional_point(problem, seed)
    rounding = round_counts(problem, values)
    assert not rounding.widened
    verify_counts(problem, rounding.counts)
    assert is_controlled(problem, values, rounding.counts)
    assert np.array_equal(rounding.counts, round_counts(problem, values).counts)


@given(shapes(most_children=6, most_cells=9), SEEDS)
def test_an_integer_point_is_left_alone(shape, seed):
    problem = random_node(shape, seed)
    values = fractional_point(problem, seed, tables=1)
    rounding = round_counts(problem, values)
    assert not rounding.widened
    assert np.array_equal(rounding.counts, values)


@given(shapes(), SEEDS, st.randoms(use_true_random=False))
def test_permuting_children_and_cells_keeps_the_cost_of_the_first_pass(shape, seed, shuffler):
    problem = random_node(shape, seed)
    values = fractional_point(problem, seed)
    cost = pass_cost(problem, 0, values, round_counts(problem, values).counts)
    children = np.array(shuffler.sample(range(problem.n_children), problem.n_children))
    cells = np.array(shuffler.sample(range(problem.n_cells), problem.n_cells))
    other = permuted_cells(permuted_children(problem, children), cells)
    moved = values[children][:, cells]
    assert pass_cost(other, 0, moved, round_counts(other, moved).counts) == cost


@settings(max_examples=20)
@given(shapes(most_children=5, most_cells=8), SEEDS)
def test_more_passes_never_lower_the_cost_of_the_first(shape, seed):
    """The first pass alone costs as little as the first pass of all."""
    problem = random_node(shape, seed)
    values = fractional_point(problem, seed)
    every = round_counts(problem, values).counts
    chain = list(itertools.chain.from_iterable(problem.passes))
    one = replace(problem, passes=(problem.passes[0], (chain[-1],)))
    alone = round_counts(one, values).counts
    assert pass_cost(problem, 0, values, alone) <= pass_cost(problem, 0, values, every)


@given(st.integers(2, 5), st.integers(2, 8), SEEDS, st.sampled_from([3, 8, 256, 640]))
@settings(phases=GENERATE)
def test_last_digits_of_the_continuous_solution_decide_nothing(children, cells, seed, tables):
    """Values are means of so many tables, so many roundings cost the same, as in real nodes.

    Quotients of 256 lie half way between millionths of a person, whatever their last digits.
    """
    problem = random_node(Shape(children, cells, passes=((1,), (2,))), seed)
    values = fractional_point(problem, seed, tables)
    counts = round_counts(problem, values).counts
    rng = np.random.default_rng(seed)
    for size in (1e-13, 1e-10):
        moved = values + rng.uniform(-size, size, values.shape)
        np.testing.assert_array_equal(round_counts(problem, moved).counts, counts)
