"""Priors are learned from all tasks alike, and node problems are fitted to their means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from jobs.pipeline.release.problems import (
    AnswerEstimates,
    BatchConstraints,
    ChildCounts,
    Family,
    Targets,
    child_counts,
    fit_to_posterior,
    learn_priors,
    node_problem,
    tally_children,
)
from jobs.pipeline.release.solve import node_settings
from tests.builders import two_families as two
from tests.builders.histograms import from_dense

PARENT = from_dense(np.array([[6, 0, 30, 4]]))
# Of four children in a range; the family has the last two.
VALUES = np.arange(16.0).reshape(4, 4)
VARIANCES = np.array([9.0, 9.0, 2.0, 8.0])


def problem(shares=(10.0, 30.0)):
    """Noisy answers from which least squares give the children exactly these totals."""
    detailed = np.array([[6.0, 0, 30, 4]]) * np.array(shares)[:, None] / 40
    own = Targets([two.query("detailed")], [detailed], [np.ones(2)], np.arange(2))
    family = Family("12", slice(0, 2), PARENT)
    template = two.template(two.plan(("detailed",)), 2)
    return node_problem(template, family, own, BatchConstraints([], [], None))


def children(shares=(10.0, 30.0), variances=VARIANCES):
    query = two.query("detailed")
    estimates = {query.name: AnswerEstimates(VALUES, variances, np.zeros(VALUES.shape, np.bool_))}
    settings = node_settings(two.plan())
    return child_counts(problem(shares), PARENT, estimates, slice(2, 4), settings)


def test_a_child_is_expected_to_have_its_share_of_every_cell_of_the_parent():
    first, second = children()
    assert first.noisy.tolist() == [8.0, 10.0, 11.0]  # live cells 0, 2 and 3 of the third child
    assert second.noisy.tolist() == [12.0, 14.0, 15.0]
    share = (10 + 0.3) / (40 + 0.6)
    assert first.expected == pytest.approx(share * np.array([6, 30, 4]), rel=1e-6)
    assert first.expected + second.expected == pytest.approx([6, 30, 4], rel=1e-12)
    assert (first.key, second.key) == (("detailed", 2.0), ("detailed", 8.0))
    assert (first.child, second.child) == (0, 1)


def test_a_child_that_seems_empty_is_expected_to_have_somebody():
    first, _ = children((0.0, 40.0))
    assert first.expected == pytest.approx(0.3 / 40.6 * np.array([6, 30, 4]), rel=1e-6)


@pytest.mark.parametrize("error", [-1e-13, 0.0, 1e-13])
def test_last_digits_of_a_variance_choose_no_other_prior(error):
    """1.125 lies on the edge between 1.12 and 1.13; its neighbors in the last digits as well."""
    (first, second) = children(variances=np.array([9, 9, 1.125 * (1 + error), 4.0]))
    assert (first.key[1], second.key[1]) == (1.13, 4.0)


def counts(variance, noisy, expected, known=None, child=0) -> ChildCounts:
    is_known = np.zeros(len(noisy), np.bool_) if known is None else known
    return ChildCounts(
        ("detailed", variance), child, np.array(noisy, float), np.array(expected, float), is_known
    )


def test_a_total_is_expected_to_be_the_mean_whatever_is_noisy():
    query = two.query("total")
    own = Targets([query], [np.array([[10.0], [30.0]])], [np.ones(2)], np.arange(2))
    cells = Targets(
        [query, two.query("detailed")],
        [*own.answers, np.array([[6.0, 0, 30, 4]]) * [[0.25], [0.75]]],
        [np.ones(2)] * 2,
        np.arange(2),
    )
    template = two.template(two.plan(("total", "detailed")), 2)
    family = Family("12", slice(0, 2), PARENT)
    noisy = node_problem(template, family, cells, BatchConstraints([], [], None))
    known = np.zeros((2, 1), np.bool_)
    estimates = {query.name: AnswerEstimates(np.array([[9.0], [31.0]]), np.ones(2), known)}
    found = child_counts(noisy, PARENT, estimates, slice(0, 2), node_settings(two.plan()))
    assert [child.expected.tolist() for child in found] == [[20.0], [20.0]]
    assert [child.noisy.tolist() for child in found] == [[9.0], [31.0]]
    total, detailed = fit_to_posterior(noisy, found, {("total", 1.0): Doubling()}).terms
    assert total.answers.tolist() == [[38.0], [82.0]]
    assert total.weights.tolist() == [1, 1]
    assert detailed.answers.tolist() == noisy.terms[1].answers.tolist()


def sample(variance: float, n: int = 400, seed: int = 0) -> ChildCounts:
    rng = np.random.default_rng(seed)
    expected = np.full(n, 0.1)
    true = (rng.random(n) < 0.1) * 1.0
    return counts(variance, true + rng.normal(0, np.sqrt(variance), n), expected)


def test_tasks_learn_what_one_task_would():
    group = [sample(2.0, seed=1), sample(2.0, seed=2), sample(8.0, seed=3)]
    together = learn_priors([tally_children(group)])
    apart = learn_priors([tally_children([child]) for child in group])
    assert set(together) == set(apart) == {("detailed", 2.0), ("detailed", 8.0)}
    noisy, expected = np.linspace(-3, 6, 10), np.full(10, 0.1)
    for key, prior in together.items():
        means = prior.posterior_mean(noisy, expected)
        assert means == pytest.approx(apart[key].posterior_mean(noisy, expected), abs=1e-12)
        assert means[0] < 0.2  # mostly zero, so a negative noisy count means next to nobody
        assert (np.diff(means) >= 0).all()


@dataclass(frozen=True)
class Doubling:
    """A prior whose posterior mean is known."""

    def posterior_mean(self, noisy, expected):
        return 2 * noisy + expected


def test_a_problem_is_fitted_to_posterior_means_of_its_children():
    before = problem()
    group = [
        counts(2.0, [1, 2, 3], [0, 0, 1]),
        counts(8.0, [4, 5, 6], [0, 1, 0], child=1),
    ]
    priors = {("detailed", 2.0): Doubling(), ("detailed", 8.0): Doubling()}
    after = fit_to_posterior(before, group, priors)
    (term,) = after.terms
    assert term.groups.tolist() == [0, 1, 2]
    assert term.answers.tolist() == [[2.0, 4.0, 7.0], [8.0, 11.0, 12.0]]
    assert term.weights.tolist() == before.terms[0].weights.tolist()
    assert after.order == before.order
    assert after.passes is before.passes
    assert after.parent is before.parent


def test_known_cells_teach_no_prior_and_stay_as_they_are():
    known = np.array([True, False, True])
    child = counts(2.0, [50, 2, 0], [0.1, 0.1, 0.1], known)
    only = counts(2.0, [2], [0.1])
    (found,) = tally_children([child]).values()
    (expected,) = tally_children([only]).values()
    assert found.steps.tolist() == expected.steps.tolist()
    assert found.times.tolist() == expected.times.tolist()
    every = counts(1.0, [7, 0, 1], np.ones(3), np.ones(3, np.bool_), child=1)
    assert tally_children([every]) == {}
    before = problem()
    (term,) = fit_to_posterior(before, [child, every], {("detailed", 2.0): Doubling()}).terms
    answers = before.terms[0].answers
    assert term.answers.tolist() == [[answers[0, 0], 4.1, answers[0, 2]], answers[1].tolist()]
