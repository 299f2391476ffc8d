"""The integer stage against every rounding there is, and against branch and bound."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from das.errors import InfeasibleError
from invariants.leaves import MANY, Leaves
from solvers.least_squares.solve import solve_quadratic
from solvers.problem import LeavesTerm, NodeProblem, RoundingQuery, group_sums
from solvers.rounding.cost import STEPS
from solvers.rounding.round import Method, round_counts
from solvers.rounding.sums import arrange
from solvers.verify import verify_counts
from tests.builders.strategies import Shape, fractional_point, partition, random_node
from tests.unit.solvers.rounding.roundings import (
    all_controlled,
    costs,
    is_controlled,
    is_totally_unimodular,
    keeps_promises,
    least_cost_by_milp,
    least_costs_by_trying_all,
    least_excess_by_trying_all,
    pass_cost,
    with_leaves,
    with_rows,
)

TINY = {
    "totals, cells": Shape(3, 3, passes=((1,), ())),
    "one pass": Shape(3, 3, passes=((),)),
    "three levels": Shape(2, 4, passes=((1,), (2,))),
    "two queries in a pass": Shape(2, 4, passes=((1, 2),)),
    "exact totals": Shape(3, 3, exact=(1,), passes=((1,), ())),
    "exact groups": Shape(2, 4, exact=(2,), passes=((1,), ())),
    "exact finer than a pass": Shape(3, 3, exact=(1, 2), passes=((1,), ())),
    "exact coarser than a pass": Shape(2, 4, exact=(1,), passes=((2,), ())),
    "one child": Shape(1, 5, passes=((1,), (2,))),
    "root": Shape(1, 8, passes=((1,), (2,)), is_root=True),
    "root with totals": Shape(1, 8, exact=(2,), passes=((1,), (4,)), is_root=True),
    "one cell": Shape(4, 1, passes=((1,), ())),
}


def rounded(problem: NodeProblem, values: np.ndarray) -> np.ndarray:
    rounding = round_counts(problem, values)
    assert rounding.method is Method.FLOW
    assert not rounding.widened
    return rounding.counts


def test_every_pass_costs_the_least_of_all_roundings():
    for seed, shape in itertools.product(range(6), TINY.values()):
        problem = random_node(shape, seed)
        values = fractional_point(problem, seed)
        ours = rounded(problem, values)
        assert is_controlled(problem, values, ours)
        assert costs(problem, values, ours) == least_costs_by_trying_all(problem, values, ours)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(5, 9, passes=((1,), (3,)), persons=0.3, sparse=0.0),
        Shape(6, 12, passes=((1,), (3,)), persons=0.3, sparse=0.0),
    ],
)
def test_no_pass_leaves_the_bounds_to_save_cost(shape):
    """Whole numbers and sums of the other passes would have to move, for a cheaper pass."""
    for seed in range(150):
        problem = random_node(shape, seed)
        values = fractional_point(problem, seed)
        assert is_controlled(problem, values, rounded(problem, values))


def test_the_tiny_cases_leave_a_choice():
    """A test of minimal cost shows little where there is one rounding only."""
    choices = []
    for shape in TINY.values():
        for seed in range(6):
            problem = random_node(shape, seed)
            choices.append(len(list(all_controlled(problem, fractional_point(problem, seed)))))
    assert np.mean(np.array(choices) > 1) > 0.6
    assert max(choices) > 30


@pytest.mark.parametrize(
    "shape",
    [
        Shape(8, 24, passes=((1,), (6,))),
        Shape(5, 30, passes=((1, 3), (15,))),
        Shape(6, 20, exact=(1, 5), passes=((1,), (10,))),
        Shape(1, 60, passes=((1,), (6,), (20,)), is_root=True),
    ],
)
def test_medium_nodes_cost_what_branch_and_bound_finds(shape):
    problem = random_node(shape, 3)
    values = fractional_point(problem, 3, moves=300)
    ours = rounded(problem, values)
    assert is_controlled(problem, values, ours)
    for number in range(len(problem.passes)):
        least = least_cost_by_milp(problem, values, ours, number)
        assert pass_cost(problem, number, values, ours) == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("exact", [(), (1,)])
def test_solutions_of_the_continuous_stage_are_rounded_at_the_least_cost(exact):
    """Real solutions: any fractions, costs on the grid of rounding."""
    for seed in range(5):
        problem = random_node(Shape(4, 12, exact, passes=((1,), (4,)), scales=True), seed)
        values = solve_quadratic(problem, 1e-7).values
        ours = rounded(problem, values)
        first = least_cost_by_milp(problem, values, ours, 0)
        arcs = values.size
        assert pass_cost(problem, 0, values, ours) <= first + (arcs + 1) / STEPS


# --- rows and leaves -----------------------------------------------------------------------------

NESTED_SETS = [[0, 1, 2], [0, 1, 2, 3]]
SETS_IN_TYPES = [[0, 1, 2], [4]]
CROSSING_SETS = [[0, 1, 2], [1, 2, 3]]


def test_leaves_that_cross_a_set_need_a_program_only_where_a_flow_without_them_breaks_them():
    methods = []
    for seed in range(6):
        problem = random_node(Shape(2, 4, passes=((1,), (2,)), persons=1.0), seed)
        values = fractional_point(problem, seed)
        without = round_counts(problem, values).counts
        problem = with_leaves(problem, values, np.array([0, 1, 1, 0]), seed)
        ours = round_counts(problem, values)
        methods.append(ours.method)
        is_flow = keeps_promises(problem, without)
        assert ours.method is (Method.FLOW if is_flow else Method.MIXED_INTEGER)
        verify_counts(problem, ours.counts)
        program = round_counts(problem, values, method=Method.MIXED_INTEGER)
        least = pass_cost(problem, 0, values, program.counts)
        assert pass_cost(problem, 0, values, ours.counts) == pytest.approx(least, abs=1e-6)
    assert {*methods} == {Method.FLOW, Method.MIXED_INTEGER}


def test_one_row_of_leaves_inside_a_rounded_set_is_a_flow_of_the_same_cost():
    """Persons by type bounded by one box per child, such as by the units they live in."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = random_node(Shape(3, 6, passes=((1,), (2,)), persons=4.0), seed)
        values = fractional_point(problem, seed)
        types = np.array([0, 0, 1, 2, 2, 3])  # within halves
        sums = group_sums(values, types, 5)  # of the last type no cell is
        least = np.floor(sums).astype(int) - rng.integers(0, 2, sums.shape)
        most = np.ceil(sums).astype(int) + rng.integers(0, 2, sums.shape)
        most[:, 0] = MANY
        low, high = np.floor(values.sum(1)).astype(int), np.ceil(values.sum(1)).astype(int)
        boxes = tuple(
            Leaves(np.maximum(least[c], 0)[None], most[c][None], low[c : c + 1], high[c : c + 1])
            for c in range(3)
        )
        problem = replace(problem, leaves=LeavesTerm(types, boxes))
        ours = round_counts(problem, values)
        program = round_counts(problem, values, method=Method.MIXED_INTEGER)
        assert (ours.method, program.method) == (Method.FLOW, Method.MIXED_INTEGER)
        verify_counts(problem, ours.counts)
        assert not ours.widened
        least = pass_cost(problem, 0, values, program.counts)
        assert pass_cost(problem, 0, values, ours.counts) == pytest.approx(least, abs=1e-6)


def leaning_point(problem: NodeProblem, seed: int) -> np.ndarray:
    """The first three cells hold one person more than whole numbers, each less than a half."""
    table = fractional_point(problem, seed, tables=1)
    down = np.where(table[1] > table[0], 1, 0)
    if np.random.default_rng(seed).random() < 0.7:
        down[:] = np.argmax(table.min(1))
    share = np.array([0.375, 0.375, 0.25, 0.375, 0.625])
    share[table[down, np.arange(5)] == 0] = 0
    table[down, np.arange(5)] -= share
    table[1 - down, np.arange(5)] += share
    return table


def promising(kind: str, seed: int) -> tuple[NodeProblem, np.ndarray]:
    """A small node with rows or leaves, and a fractional point that keeps them."""
    second = (2,) if kind in PROGRAMS else ()
    problem = random_node(Shape(2, 5, passes=((1,), second), persons=3.0, sparse=0.0), seed)
    values = leaning_point(problem, seed)
    if "nested rows" in kind:
        sets = SETS_IN_TYPES if "leaves" in kind else NESTED_SETS
        problem = with_rows(problem, values, sets, seed)
    if "crossing rows" in kind:
        problem = with_rows(problem, values, CROSSING_SETS, seed)
    if "leaves" in kind:
        groups = {"halves": partition(5, 2), "cells": np.arange(5), "crossing": np.arange(5) % 2}
        problem = with_leaves(problem, values, groups[kind.split()[-1]], seed)
    return problem, values


FLOWS = ["nested rows", "leaves of halves", "leaves of cells", "nested rows and leaves of halves"]
PROGRAMS = ["crossing rows", "crossing rows and leaves of halves", "leaves of crossing"]


def test_rows_and_leaves_are_kept_at_the_least_cost():
    for seed, kind in itertools.product(range(2), [*FLOWS, *PROGRAMS]):
        problem, values = promising(kind, seed)
        ours = round_counts(problem, values)
        verify_counts(problem, ours.counts)
        assert keeps_promises(problem, ours.counts)
        if kind in FLOWS:
            assert ours.method is Method.FLOW
            assert not ours.widened
        if ours.widened:
            assert next(all_controlled(problem, values), None) is None
            continue
        assert is_controlled(problem, values, ours.counts)
        least = least_costs_by_trying_all(problem, values, ours.counts)
        assert costs(problem, values, ours.counts) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("kind", [kind for kind in FLOWS if kind != "leaves of cells"])
def test_rows_and_leaves_forbid_what_would_cost_less(kind):
    """Without them other counts are found, now and then."""
    forbidden = 0
    for seed in range(40):
        problem, values = promising(kind, seed)
        free = round_counts(replace(problem, rows=(), leaves=None), values).counts
        forbidden += not keeps_promises(problem, free)
    assert forbidden >= 3


def test_flow_and_mixed_integer_program_cost_the_same():
    """Of the first pass; the sums it finds need not be unique, and later passes build on them."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shape = Shape(
            int(rng.integers(1, 7)),
            12,
            exact=((), (1,), (3,))[seed % 3],
            passes=(((1,), (6,)), ((1, 3), ()), ((),))[seed % 3],
            is_root=seed % 10 == 9,
            persons=float(rng.choice([0.3, 5.0])),
        )
        problem = random_node(shape, seed)
        values = fractional_point(problem, seed)
        problem = with_rows(problem, values, [[0, 1, 2, 3], [0, 1], [10]], seed)
        if seed % 3 < 2:
            problem = with_leaves(problem, values, partition(12, 3), seed)
        flow = round_counts(problem, values)
        program = round_counts(problem, values, method=Method.MIXED_INTEGER)
        assert (flow.method, program.method) == tuple(Method)
        assert not flow.widened
        assert not program.widened
        assert program.gap == pytest.approx(0, abs=1e-9)
        least = pass_cost(problem, 0, values, program.counts)
        assert pass_cost(problem, 0, values, flow.counts) == pytest.approx(least, abs=1e-6)


# --- widening ------------------------------------------------------------------------------------


def test_as_few_persons_as_possible_leave_the_bounds():
    """The point misses its equalities, as no certified solution would."""
    for kind in ["plain", *FLOWS, *PROGRAMS]:
        widened = 0
        for seed in range(6):
            passes = ((2,), ()) if kind in PROGRAMS or "cells" not in kind else ((1,), ())
            problem = random_node(Shape(2, 4, passes=passes, persons=0.3), seed)
            point = fractional_point(problem, seed)
            if kind != "plain":
                problem = promised_around(problem, point, kind, seed)
            rng = np.random.default_rng(seed)
            values = np.maximum(point + rng.choice([-1.25, 0, 0.5], point.shape), 0)
            least = least_excess_by_trying_all(problem, values)
            if least is None:
                with pytest.raises(InfeasibleError, match="no nonnegative integers"):
                    round_counts(problem, values)
                continue
            ours = round_counts(problem, values)
            assert keeps_promises(problem, ours.counts)
            assert ours.widened == least
            widened += least > 0
        assert widened >= 2


def promised_around(problem: NodeProblem, point: np.ndarray, kind: str, seed: int) -> NodeProblem:
    if "rows" in kind:
        sets = [[0, 1], [1, 2, 3]] if "crossing" in kind else [[0, 1], [3]]
        problem = with_rows(problem, point, sets, seed)
    if "leaves" in kind:
        groups = {
            "halves": partition(4, 2),
            "cells": np.arange(4),
            "crossing": np.array([0, 1, 1, 0]),
        }
        problem = with_leaves(problem, point, groups[kind.split()[-1]], seed)
    return problem


# --- what makes it a flow ------------------------------------------------------------------------


def test_nested_sets_and_a_parent_are_totally_unimodular():
    """All families of three sets over three cells, in two children: nested ones always are."""
    sets = [s for size in (1, 2, 3) for s in itertools.combinations(range(3), size)]
    nested = unimodular = 0
    for family in itertools.combinations(sets, 3):
        rows = np.array([np.isin(np.arange(3), cells) for cells in family], np.int64)
        matrix = np.vstack([np.kron(np.eye(2, dtype=int), rows), np.tile(np.eye(3, dtype=int), 2)])
        candidates = [np.where(row, 0, -1) for row in rows]
        is_nested = arrange(candidates)[0].parents is not None
        is_unimodular = is_totally_unimodular(matrix)
        assert is_unimodular or not is_nested
        nested += is_nested
        unimodular += is_unimodular
    assert 0 < nested <= unimodular < 35


def test_crossing_passes_are_rounded_by_a_program():
    rows, columns = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    for seed in range(12):
        problem = random_node(Shape(2, 4, persons=2.0), seed)
        passes = ((RoundingQuery(rows), RoundingQuery(columns)), (RoundingQuery(np.arange(4)),))
        problem = replace(problem, passes=passes)
        values = fractional_point(problem, seed)
        ours = round_counts(problem, values)
        assert ours.method is Method.MIXED_INTEGER
        if ours.widened:
            assert next(all_controlled(problem, values), None) is None
            continue
        least = least_costs_by_trying_all(problem, values, ours.counts)
        assert costs(problem, values, ours.counts) == pytest.approx(least, abs=1e-9)
