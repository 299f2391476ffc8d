"""The linear program that says which constraints contradict one another, and by how much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers.constraints import contradiction
from solvers.problem import NO_LIMIT, ExactTerm, RowsTerm
from tests.builders.strategies import Shape, random_node


@pytest.mark.parametrize(
    "shape", [Shape(3, 4), Shape(3, 4, exact=(1,)), Shape(4, 6, rows=2), Shape(1, 6, is_root=True)]
)
def test_what_can_be_kept_is_no_contradiction(shape):
    for seed in range(3):
        assert contradiction(random_node(shape, seed)) == ""


def test_the_least_violation_is_told():
    problem = random_node(Shape(3, 4, exact=(1,)), 7)
    (exact,) = problem.exact
    wrong = replace(exact, targets=exact.targets + np.array([[2], [0], [0]]))
    evidence = contradiction(replace(problem, exact=(wrong,)))
    assert "add up to at least 2 persons" in evidence


def test_sums_of_earlier_passes_count_and_their_last_digits_do_not():
    problem = random_node(Shape(3, 4, exact=(1,)), 7)
    (exact,) = problem.exact
    assert contradiction(problem, ((exact.groups, exact.targets + 1e-9),)) == ""
    evidence = contradiction(problem, ((exact.groups, exact.targets + 0.5),))
    assert "add up to at least 1.5 persons" in evidence


def test_a_row_is_named():
    problem = random_node(Shape(3, 4), 7)
    total = int(problem.parent.sum())
    least = np.full((3, 1), total)
    row = RowsTerm(np.ones((1, 4), np.int64), least, np.full((3, 1), NO_LIMIT), ("everybody",))
    evidence = contradiction(replace(problem, rows=(row,)))
    assert f"add up to at least {2 * total} persons" in evidence
    assert "row everybody" in evidence or "the sum of the children" in evidence


def test_a_root_without_constraints_has_nothing_to_contradict():
    root = random_node(Shape(1, 6, is_root=True), 1)
    assert contradiction(replace(root, exact=(), rows=())) == ""
    negative = ExactTerm(np.zeros(6, np.int64), np.array([[-3]]))
    assert "3 persons" in contradiction(replace(root, exact=(negative,)))
