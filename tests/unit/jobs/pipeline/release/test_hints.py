"""What noisy answers of persons say of units: which sums, with which weight, in which node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.plan import Hint
from jobs.pipeline.release.pieces import _LEAST_VARIANCE, weights_of
from jobs.pipeline.release.problems import (
    BatchConstraints,
    Family,
    NodeTemplate,
    Targets,
    ToldSum,
    node_problem,
)
from solvers.problem import GeneralTerm, NodeProblem
from tests.builders.histograms import from_dense
from tests.checkout import ROOT

SIZES = np.arange(8)  # vacant, 1 to 7 and more


@pytest.fixture(scope="module")
def resolved() -> Resolved:
    return load_run(ROOT / "conf" / "run" / "residents.yaml")


@pytest.fixture(scope="module")
def hint(resolved: Resolved) -> Hint:
    (found,) = resolved.products["dwellings"].plan.hints
    return found


def test_units_are_told_of_by_householders_and_by_persons_in_households(hint: Hint) -> None:
    assert hint.query.name == "residence"
    assert hint.product == "persons"
    types = {tuple(np.flatnonzero(row)): number for number, row in enumerate(hint.types)}
    householders, others = types[0,], types[1,]
    assert {tuple(np.flatnonzero(members)) for members in hint.sums} == {
        tuple(sorted({householders, others})),
        *((one,) for one in types.values()),
    }
    assert np.array_equal(hint.least[householders, :8], np.minimum(SIZES, 1))
    assert np.array_equal(hint.least[others, :8], np.maximum(SIZES - 1, 0))
    assert np.flatnonzero(hint.is_open[others]).tolist() == [7]
    assert not hint.is_open[householders].any()


def test_persons_are_told_nothing_and_a_run_apart_neither(tmp_path: Path) -> None:
    run = yaml.safe_load((ROOT / "conf" / "run" / "residents.yaml").read_text())
    del run["cross_product_constraints"], run["products"]["persons"]["output"]["joined"]
    for product in run["products"].values():
        product["schema"] = str(ROOT / "conf" / "run" / product["schema"])
        product["privacy"]["allocation"] = str(
            ROOT / "conf" / "run" / product["privacy"]["allocation"]
        )
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    for product in load_run(tmp_path / "run.yaml").products.values():
        assert product.plan.hints == ()


def test_the_last_product_is_told_nothing(resolved: Resolved) -> None:
    assert resolved.last.plan.hints == ()


def test_weights_of_sums_are_those_that_were_measured(hint: Hint) -> None:
    """Answers by residence, and of all in households once more: their covariance and back."""
    precision = np.diag([1 / 10, 1 / 20, *[1 / 8] * 7])
    both = np.zeros(9)
    both[:2] = 1
    precision += np.outer(both, both) / 4
    covariance = np.linalg.inv(precision) - _LEAST_VARIANCE * np.eye(9)
    weights = weights_of(hint, covariance)
    for members, weight in zip(hint.sums, weights, strict=True):
        seen = np.flatnonzero(members @ hint.types)
        wanted = {(0,): 1 / 10, (1,): 1 / 20, (0, 1): 1 / 4}.get(tuple(seen), 1 / 8)
        assert weight == pytest.approx(wanted, rel=1e-6)


def test_what_is_exact_has_a_bounded_weight(hint: Hint) -> None:
    assert weights_of(hint, np.zeros((9, 9))).max() <= 1 / _LEAST_VARIANCE + 1e-6


def test_weights_that_are_not_found_tell_nothing(
    hint: Hint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a grant is claimed, what is only an improvement makes no run fail."""

    def nnls(matrix: np.ndarray, right: np.ndarray) -> None:
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr("jobs.pipeline.release.pieces.nnls", nnls)
    assert not weights_of(hint, np.eye(9)).any()


PARENT = np.array([4, 0, 6, 0, 0, 0, 0, 2] + [0] * 7)  # four vacant, six of two, two open ones


def told_terms(
    resolved: Resolved, coefficients: np.ndarray, beyond: np.ndarray, spread: np.ndarray
) -> list[GeneralTerm]:
    """Terms of a family of four children that are told of one sum."""
    problem = told_node(resolved, coefficients, beyond, spread)
    return [term for term in problem.terms if isinstance(term, GeneralTerm)]


def told_node(
    resolved: Resolved,
    coefficients: np.ndarray,
    beyond: np.ndarray,
    spread: np.ndarray,
    order: tuple[tuple[str, ...], ...] = (),
) -> NodeProblem:
    """The node of a family of four children that are told of one sum."""
    plan = resolved.products["dwellings"].plan
    level = plan.levels[-1]
    detailed, kinds = level.queries[-1], level.exact[0]
    answers, weights = np.array([5.0, 10, -1, 5]), np.array([1.0, 1, 1, 0])
    told = ToldSum(coefficients, beyond, spread, answers, weights)
    targets = Targets([detailed], [np.zeros((4, 15))], [np.ones(4)], np.arange(4), [told])
    exact = np.zeros((4, kinds.size), np.int64)
    exact[:, 0] = 3
    family = Family("0", slice(0, 4), from_dense(PARENT[None]))
    template = replace(NodeTemplate.of(plan, level), order=order)
    return node_problem(template, family, targets, BatchConstraints([exact], [], None))


@pytest.mark.parametrize(
    ("order", "taken"),
    [((), ()), ((("detailed",),), ((0, 1),)), (((), ("detailed",)), ((), (0, 1)))],
)
def test_a_told_sum_is_in_the_last_pass_that_there_is(resolved, order, taken) -> None:
    """After a pass that fixes every cell it could move nothing: ten times the error of persons."""
    sizes = np.append(SIZES, [0] * 7).astype(float)
    assert told_node(resolved, sizes, np.zeros(15), np.zeros(15), order).order == taken


def test_a_told_sum_is_an_answer_of_every_child(resolved: Resolved) -> None:
    sizes = np.append(SIZES, [0] * 7).astype(float)
    (term,) = told_terms(resolved, sizes, np.zeros(15), np.zeros(15))
    row = np.array([0, 2, 7])  # of the live cells
    assert np.array_equal(term.gram, np.outer(row, row))
    assert np.array_equal(term.adjoint, np.outer([5, 10, -1, 5], row))
    assert term.weights.tolist() == [1, 1, 1, 0]


def test_what_open_units_add_widens_it(resolved: Resolved) -> None:
    """Two open units, one of them in the child with half of the answers and none in one without.

    One holds 3 beyond its least, of variance 12, and that mean has a variance of 1 there.
    """
    sizes, beyond, spread = np.append(SIZES, [0] * 7).astype(float), np.zeros(15), np.zeros(15)
    beyond[7], spread[7] = 3, 12
    (term,) = told_terms(resolved, sizes, beyond, spread)
    varies = [12 / 2 + 1 / 4, 12 + 1, 0]
    assert term.weights == pytest.approx([*(1 / (1 + one) for one in varies), 0])


def test_what_exact_answers_fix_is_no_target(resolved: Resolved) -> None:
    all_units = np.append(np.ones(8), [0] * 7)  # housing units, which are exact
    assert told_terms(resolved, all_units, np.zeros(15), np.zeros(15)) == []
