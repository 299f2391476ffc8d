"""Node problems say of the live cells of a family what answers and invariants say of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from invariants.constraints import Constraints
from invariants.facilities import Facilities
from invariants.leaves import add_up
from invariants.linear import LinearRow
from jobs.pipeline.plan import Solving
from jobs.pipeline.release.implied import BatchLimits
from jobs.pipeline.release.problems import (
    BatchConstraints,
    CellGroups,
    Family,
    Targets,
    histograms_of,
    may_be_empty,
    node_problem,
)
from tests.builders import two_families as two
from tests.builders.histograms import from_dense

BLOCK = 2
ANSWERS = np.array([10.0 * block + np.arange(4) for block in range(4)])  # of four blocks, detailed
TOTALS = ANSWERS.sum(1)[:, None]


def targets(queries=("total", "detailed"), answers=(TOTALS, ANSWERS)) -> Targets:
    weights = [np.array([1.0, 2, 3, 4]), np.array([5.0, 6, 7, 8])][: len(queries)]
    return Targets([two.query(q) for q in queries], answers, weights, np.arange(4))


def families() -> tuple[Family, Family]:
    """Counties 11 and 12, the second without female minors."""
    parents = from_dense(np.array([[1, 3, 2, 0], [0, 1, 0, 4]]))
    return (
        Family("11", slice(0, 2), parents.slice(0, 1)),
        Family("12", slice(2, 4), parents.slice(1, 2)),
    )


NOTHING = BatchConstraints([], [], None)


def test_answers_are_those_of_live_cells_of_the_children(tmp_path):
    template = two.template(two.plan(), BLOCK)
    first, second = (node_problem(template, f, targets(), NOTHING) for f in families())
    assert (first.geocode, first.n_cells, first.parent.tolist()) == ("11", 3, [1, 3, 2])
    assert (second.geocode, second.n_cells, second.parent.tolist()) == ("12", 2, [1, 4])
    total, detailed = second.terms
    assert total.answers.tolist() == [[86.0], [126.0]]
    assert total.groups.tolist() == [0, 0]
    assert total.weights.tolist() == [3.0, 4.0]
    assert detailed.answers.tolist() == [[21.0, 23.0], [31.0, 33.0]]  # cells 1 and 3 of blocks 2, 3
    assert detailed.groups.tolist() == [0, 1]
    assert detailed.weights.tolist() == [7.0, 8.0]


def test_only_children_do_not_shift_the_answers_of_others(tmp_path):
    """Geounit 2 of the range is an only child: not measured, so geounits 3 and 4 have rows 2, 3."""
    shifted = replace(targets(), row=np.array([0, 1, 1, 2, 3]))
    family = replace(families()[1], rows=slice(3, 5))
    problem = node_problem(two.template(two.plan(), BLOCK), family, shifted, NOTHING)
    assert problem.terms[0].answers.tolist() == [[86.0], [126.0]]


def test_exact_answers_of_live_groups(tmp_path):
    template = two.template(two.plan(invariants=(two.exact("age", "block"),)), BLOCK)
    exact = np.array([[3, 0], [0, 3], [0, 0], [2, 5]])
    problem = node_problem(template, families()[1], targets(), BatchConstraints([exact], [], None))
    (term,) = problem.exact
    assert term.groups.tolist() == [0, 0]  # both live cells are of adults
    assert term.targets.tolist() == [[0], [5]]


def test_linear_rows_exact_ones_first(tmp_path):
    men = LinearRow("men", np.array([0, 0, 1, 1]), two.SPINE.levels, None, None)
    odd = LinearRow("odd", np.array([1, -2, 3, -4]), two.SPINE.levels, -9, 9)
    template = two.template(two.plan(limits=Constraints((odd, men))), BLOCK)
    bounds = BatchLimits(None, np.full((4, 1), -9), np.arange(4)[:, None])
    constraints = BatchConstraints([], [np.array([[2], [0], [0], [4]])], bounds)
    (term,) = node_problem(template, families()[1], targets(), constraints).rows
    assert term.names == ("men", "odd")
    assert term.coefficients.tolist() == [[0, 1], [-2, -4]]
    assert term.least.tolist() == [[0, -9], [4, -9]]
    assert term.most.tolist() == [[0, 2], [4, 3]]


def test_leaves_of_the_children(tmp_path):
    ages = Facilities(
        two.query("age"), two.SPINE.levels, np.array([1, 1]), np.array([4, 4]), np.array([True] * 2)
    )
    template = two.template(two.plan(limits=Constraints((ages,))), BLOCK)
    leaves = add_up(ages.boxes(np.array([[1, 0], [0, 2], [0, 0], [1, 1]])), np.arange(4), 4)
    empty = np.zeros((4, 0), np.int64)
    constraints = BatchConstraints([], [], BatchLimits(leaves, empty, empty))
    term = node_problem(template, families()[1], targets(), constraints).leaves
    assert term.groups.tolist() == [1, 1]
    assert [own.most.tolist() for own in term.leaves] == [[[0, 0]], [[4, 4]]]


def test_named_passes_come_first_and_the_others_last(tmp_path):
    queries = ("total", "sex", "detailed")
    sexes = np.column_stack([ANSWERS[:, :2].sum(1), ANSWERS[:, 2:].sum(1)])
    own = targets(queries[:2], (TOTALS, sexes))
    own = replace(own, queries=[*own.queries, two.query("detailed")])
    own = replace(own, answers=[TOTALS, sexes, ANSWERS], weights=[*own.weights, np.ones(4)])
    order = {"block": (("sex",), ("total",))}
    plan = two.plan(queries, solving=Solving(fit_to="level", l2_passes=order))
    problem = node_problem(two.template(plan, BLOCK), families()[0], own, NOTHING)
    assert problem.order == ((1,), (0,), (2,))
    plan = two.plan(queries)
    assert node_problem(two.template(plan, BLOCK), families()[0], own, NOTHING).order == ()


def test_the_root_lives_where_somebody_may_be(tmp_path):
    template = two.template(two.plan(limits=Constraints((two.zeros(0, 2),))), 0)
    root = Family("root", slice(0, 1), None)
    own = Targets([two.query("detailed")], [ANSWERS[:1]], [np.ones(1)], np.arange(1))
    problem = node_problem(template, root, own, NOTHING)
    assert problem.parent is None
    assert problem.terms[0].answers.tolist() == [[1.0, 3.0]]
    counts = histograms_of(template, root, np.array([[7, 9]]))
    assert counts.dense().tolist() == [[0, 7, 0, 9]]


def test_counts_of_live_cells_become_histograms(tmp_path):
    template = two.template(two.plan(), BLOCK)
    counts = histograms_of(template, families()[1], np.array([[0, 0], [1, 4]]))
    assert counts.dense().tolist() == [[0, 0, 0, 0], [0, 1, 0, 4]]


@pytest.mark.parametrize(
    ("least", "most", "expected"), [(0, 3, True), (1, 3, False), (-2, -1, False), (-1, 0, True)]
)
def test_children_may_be_empty_if_their_rows_allow_zero(least, most, expected):
    row = LinearRow("men", np.array([0, 0, 1, 1]), two.SPINE.levels, least, most)
    template = two.template(two.plan(limits=Constraints((row,))), BLOCK)
    least_of, most_of = np.full((4, 1), -9), np.full((4, 1), 9)
    least_of[3], most_of[3] = least, most
    constraints = BatchConstraints([], [], BatchLimits(None, least_of, most_of))
    first, second = families()
    assert may_be_empty(template, second, constraints) is expected
    assert may_be_empty(template, first, constraints)


def test_groups_of_small_and_large_schemas_are_the_same(monkeypatch):
    cells = np.array([0, 1, 3])
    kept = CellGroups(4)
    by_name = {name: kept.present(two.query(name), cells) for name in ("total", "sex", "age")}
    assert by_name["age"][0].tolist() == [0, 1]
    assert by_name["age"][1].tolist() == [0, 1, 1]
    assert set(kept.known) == {"total", "sex", "age"}
    monkeypatch.setattr("jobs.pipeline.release.problems._KEPT_CELLS", 3)
    again = CellGroups(4)
    for name, (present, groups) in by_name.items():
        for expected, made in zip(
            (present, groups), again.present(two.query(name), cells), strict=True
        ):
            assert made.tolist() == expected.tolist()
    assert not again.known


def test_a_family_has_persons_unless_its_parent_has_none():
    family = families()[1]
    assert (family.n_children, family.has_persons) == (2, True)
    nobody = from_dense(np.zeros((1, 4), int))
    assert not replace(family, parent=nobody).has_persons
    assert replace(family, parent=None).has_persons
