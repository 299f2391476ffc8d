"""The failsafe moves a parent no further than its children need, and keeps what holds above it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from das.errors import InfeasibleError
from invariants.constraints import Constraints
from invariants.linear import LinearRow
from jobs.pipeline.documents.statistics import Move
from jobs.pipeline.release.implied import BatchLimits
from jobs.pipeline.release.moves import Contradicted, move_of, moved_family
from jobs.pipeline.release.pieces import Piece
from jobs.pipeline.release.problems import BatchConstraints, Family, Targets, node_problem
from solvers.choices import Failsafe
from solvers.node import NodeSettings, solve_node
from tests.builders import two_families as two
from tests.builders.histograms import from_dense

BLOCK = 2


def family(*counts: int) -> Family:
    """Blocks 121 and 122, of a county with these counts."""
    return Family("12", slice(2, 4), from_dense(np.array([counts])))


def targets(support=(0, 0, 0, 0)) -> Targets:
    """Noisy answers of four blocks that speak alike for persons in the cells."""
    answers = np.tile(np.array(support, float), (4, 1))
    return Targets([two.query("detailed")], [answers], [np.ones(4)], np.arange(4))


def contradicted(plan, own: Family) -> Contradicted:
    """The family with children of one minor each."""
    piece = Piece(np.arange(4), (own,), targets(), minors(1, 1), None)
    return Contradicted.of(plan, two.template(plan, BLOCK), piece, own)


def moved(
    plan, own: Family, constraints: BatchConstraints, answers: Targets, failsafe: Failsafe
) -> np.ndarray:
    """Counts of the parent after the move, dense; children add up to them."""
    piece = Piece(np.arange(4), (own,), answers, constraints, None)
    node = Contradicted.of(plan, two.template(plan, BLOCK), piece, own)
    moved = moved_family(node, failsafe, NodeSettings())
    solved = solve_node(node_problem(node.template, moved, answers, constraints), NodeSettings())
    assert solved.counts.sum(0).tolist() == moved.parent.counts.tolist()
    assert (moved.geocode, moved.rows) == (own.geocode, own.rows)
    return moved.parent.dense()[0]


def nearest(plan, own: Family, constraints: BatchConstraints, support=(0, 0, 0, 0)) -> np.ndarray:
    """Counts of the nearest parent."""
    return moved(plan, own, constraints, targets(support), Failsafe.EXACT)


MINORS = LinearRow("minors", np.array([1, 0, 1, 0]), two.SPINE.levels, 0, 99)


def minors(*of_blocks: int) -> BatchConstraints:
    """So many minors in the blocks 121 and 122."""
    counts = np.array([0, 0, *of_blocks])[:, None]
    return BatchConstraints([], [], BatchLimits(None, counts, counts))


def plan_with(*exact: str):
    """Minors are bounded in blocks, and some queries exact in counties."""
    invariants = tuple(two.exact(name, "county") for name in exact)
    return two.plan(limits=Constraints((MINORS,)), invariants=invariants)


def test_children_that_need_more_minors_get_the_nearest_parent():
    """The total is exact above: four adults become minors, and no nearer parent has six."""
    before = np.array([2, 6, 0, 8])
    after = nearest(plan_with("total"), family(*before), minors(3, 3))
    fits = [(women, boys, 6 - women, 10 - boys) for women, boys in product(range(7), range(11))]
    best = min(np.abs(np.array(counts) - before).sum() for counts in fits)
    assert (after[0] + after[2], after[1] + after[3]) == (6, 10)
    assert np.abs(after - before).sum() == best == 8


def test_where_no_total_holds_above_nobody_else_moves():
    after = nearest(plan_with(), family(2, 6, 0, 8), minors(3, 3))
    assert after.tolist() == [6, 6, 0, 8]


@pytest.mark.parametrize(("more", "fewer"), [(0, 2), (2, 0)])
def test_with_a_penalty_noisy_answers_choose_whom_the_parent_moves(more, fewer):
    """Six minors are needed and two are there: the nearest parents differ in their sex alone."""
    before, support = np.array([1, 7, 1, 7]), np.zeros(4)
    support[more] = 30.0
    plan, answers = plan_with("total"), targets(support)
    after = moved(plan, family(*before), minors(3, 3), answers, Failsafe.PENALTY)
    assert after.sum() == before.sum()
    assert after[0] + after[2] == 6
    assert after[more] > after[fewer]


def test_with_a_penalty_what_is_exact_above_stays():
    plan, answers = plan_with("sex"), targets((9, 0, 0, 0))
    after = moved(plan, family(4, 0, 0, 6), minors(1, 1), answers, Failsafe.PENALTY)
    assert after.tolist() == [2, 2, 0, 6]


def test_a_penalty_finds_parents_far_from_the_nearest():
    """Room is added until it binds nothing: answers far above the parent, which no total holds."""
    answers = targets((500, 0, 0, 0))
    after = moved(plan_with(), family(4, 0, 0, 6), minors(2, 3), answers, Failsafe.PENALTY)
    assert after.tolist() == [5, 0, 0, 6]  # minors of blocks are 5 together
    free = moved(
        plan_with(), family(4, 1, 0, 6), minors(2, 3), targets((0, 500, 0, 0)), Failsafe.PENALTY
    )
    assert free[1] > 40


@pytest.mark.parametrize("cell", [0, 2])
def test_measurements_choose_the_cell_of_persons_that_no_live_cell_can_take(cell):
    support = np.zeros(4)
    support[cell] = 50.0
    after = nearest(plan_with("total"), family(0, 9, 0, 0), minors(2, 1), support)
    assert after[cell] == 3
    assert after.sum() == 9


def test_what_is_exact_above_stays():
    """Women and men of counties are exact, so minors of one sex become adults of it."""
    after = nearest(plan_with("sex"), family(4, 0, 0, 6), minors(1, 1))
    assert after.tolist() == [2, 2, 0, 6]


def test_a_parent_without_counts_that_fit_is_refused():
    with pytest.raises(InfeasibleError, match="node 12"):
        nearest(plan_with("total"), family(4, 0, 0, 6), minors(2, 9))


def test_rules_keep_rows_unless_the_children_have_bounds_of_their_own():
    men = LinearRow("men", np.array([0, 0, 1, 1]), ("state", "county"), 0, 9)
    odd = LinearRow("odd", np.array([1, 0, 3, 0]), two.SPINE.levels, 0, 9)
    exact = LinearRow("exact", np.array([0, 5, 0, 5]), two.SPINE.levels, None, None)
    plan = two.plan(
        limits=Constraints((two.zeros(1), men, odd, exact)),
        invariants=(two.exact("sex", "county"), two.exact("age", "block")),
    )
    rules = contradicted(plan, family(4, 0, 0, 6))
    assert rules.cells.tolist() == [0, 2, 3]
    assert [row.tolist() for row in rules.kept.rows] == [[0, 1, 1], [0, 0, 5]]  # men and exact
    assert sorted(p.tolist() for p in rules.kept.partitions) == [[0, 0, 1], [0, 1, 1]]


def test_cells_that_were_not_measured_stay_empty():
    plan = two.plan(on_demand=frozenset({"detailed"}))
    assert contradicted(plan, family(4, 0, 0, 6)).cells.tolist() == [0, 3]
    with pytest.raises(InfeasibleError, match="node 12: is empty"):
        contradicted(plan, family(0, 0, 0, 0))
    assert contradicted(two.plan(), family(0, 0, 0, 0)).cells.tolist() == [0, 1, 2, 3]


def test_a_move_names_what_changed_alone():
    plan, before = plan_with(), family(4, 1, 0, 6)
    node = contradicted(plan, before)
    move = move_of(node, family(0, 1, 3, 6), Failsafe.PENALTY)
    assert move == Move(geocode="12", cells=(0, 2), changes=(-4, 3), by="penalty")
