"""Priors are learned from all tasks alike, and node problems are fitted to their means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from jobs.pipeline.release.problems import (
    BatchConstraints,
    CellEstimates,
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
    cells = CellEstimates(VALUES, variances, np.zeros(VALUES.shape, np.bool_))
    settings = node_settings(two.plan())
    return child_counts(problem(shares), PARENT, cells, slice(2, 4), settings)


def test_a_child_is_expected_to_have_its_share_of_every_cell_of_the_parent():
    first, second = children()
    assert first.noisy.tolist() == [8.0, 10.0, 11.0]  # live cells 0, 2 and 3 of the third child
    assert second.noisy.tolist() == [12.0, 14.0, 15.0]
    share = (10 + 0.3) / (40 + 0.6)
    assert first.expected == pytest.approx(share * np.array([6, 30, 4]), rel=1e-6)
    assert first.expected + second.expected == pytest.approx([6, 30, 4], rel=1e-12)
    assert (first.variance, second.variance) == (2.0, 8.0)


def test_a_child_that_seems_empty_is_expected_to_have_somebody():
    first, _ = children((0.0, 40.0))
    assert first.expected == pytest.approx(0.3 / 40.6 * np.array([6, 30, 4]), rel=1e-6)


@pytest.mark.parametrize("error", [-1e-13, 0.0, 1e-13])
def test_last_digits_of_a_variance_choose_no_other_prior(error):
    """1.125 lies on the edge between 1.12 and 1.13; its neighbors in the last digits as well."""
    (first, second) = children(variances=np.array([9, 9, 1.125 * (1 + error), 4.0]))
    assert (first.variance, second.variance) == (1.13, 4.0)


def sample(variance: float, n: int = 400, seed: int = 0) -> ChildCounts:
    rng = np.random.default_rng(seed)
    expected = np.full(n, 0.1)
    counts = (rng.random(n) < 0.1) * 1.0
    return ChildCounts(
        variance, counts + rng.normal(0, np.sqrt(variance), n), expected, np.zeros(n, np.bool_)
    )


def test_tasks_learn_what_one_task_would():
    group = [sample(2.0, seed=1), sample(2.0, seed=2), sample(8.0, seed=3)]
    together = learn_priors([tally_children(group)])
    apart = learn_priors([tally_children([child]) for child in group])
    assert set(together) == set(apart) == {2.0, 8.0}
    noisy, expected = np.linspace(-3, 6, 10), np.full(10, 0.1)
    for variance, prior in together.items():
        means = prior.posterior_mean(noisy, expected)
        assert means == pytest.approx(apart[variance].posterior_mean(noisy, expected), abs=1e-12)
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
        ChildCounts(2.0, np.array([1.0, 2, 3]), np.array([0.0, 0, 1]), np.zeros(3, np.bool_)),
        ChildCounts(8.0, np.array([4.0, 5, 6]), np.array([0.0, 1, 0]), np.zeros(3, np.bool_)),
    ]
    after = fit_to_posterior(before, group, {2.0: Doubling(), 8.0: Doubling()})
    (term,) = after.terms
    assert term.groups.tolist() == [0, 1, 2]
    assert term.answers.tolist() == [[2.0, 4.0, 7.0], [8.0, 11.0, 12.0]]
    assert term.weights.tolist() == [1 / 2, 1 / 8]
    assert after.order == ()
    assert after.passes is before.passes
    assert after.parent is before.parent


def test_known_cells_teach_no_prior_and_stay_as_they_are():
    known = np.array([True, False, True])
    child = ChildCounts(2.0, np.array([50.0, 2, 0]), np.array([0.1, 0.1, 0.1]), known)
    only = ChildCounts(2.0, np.array([2.0]), np.array([0.1]), np.array([False]))
    (found,) = tally_children([child]).values()
    (expected,) = tally_children([only]).values()
    assert found.steps.tolist() == expected.steps.tolist()
    assert found.times.tolist() == expected.times.tolist()
    every = ChildCounts(1.0, np.array([7.0, 0, 1]), np.ones(3), np.ones(3, np.bool_))
    assert tally_children([every]) == {}
    (term,) = fit_to_posterior(problem(), [child, every], {2.0: Doubling()}).terms
    assert term.answers.tolist() == [[50.0, 4.1, 0.0], [7.0, 0.0, 1.0]]
