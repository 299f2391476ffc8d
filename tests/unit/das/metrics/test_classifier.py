"""A classifier by Newton's method, against a general optimizer and against scores by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

import das.metrics.classifier as classifier_module
from das.errors import SchemaError, SolverError
from das.metrics.classifier import train

SIZES = (2, 4, 3)


def people(n: int = 400, seed: int = 5):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, n) for size in SIZES], axis=1)
    score = 1.5 * codes[:, 0] - codes[:, 1] + 0.5 * (codes[:, 2] == 1)
    return codes, rng.random(n) < 1 / (1 + np.exp(-score))


def test_effects_are_those_of_a_general_optimizer():
    codes, positive = people()
    columns = [np.ones(len(codes))]
    columns += [codes[:, i] == level for i, size in enumerate(SIZES) for level in range(size)]
    design = np.stack(columns, axis=1).astype(float)

    def loss(effects):
        scores = design @ effects
        value = np.logaddexp(0, scores).sum() - scores[positive].sum() + effects @ effects / 2
        return value, design.T @ (1 / (1 + np.exp(-scores)) - positive) + effects

    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9}
    found = optimize.minimize(
        loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B", options=options
    )
    own = train(codes, SIZES, positive)
    flat = np.concatenate([[own.intercept], *own.effects]) / 2**14
    # Half a unit of rounding, and what the other optimizer leaves: some 1e-6 at a ridge of 1.
    assert np.abs(flat - found.x).max() < 2**-15 + 1e-5
    for row, says in zip(codes, own.predict(codes), strict=True):
        score = own.intercept + sum(int(own.effects[i][level]) for i, level in enumerate(row))
        assert says == (score > 0)


def test_neither_order_nor_another_start_of_sums_changes_it():
    codes, positive = people(3000)
    first = train(codes, SIZES, positive)
    back = train(codes[::-1], SIZES, positive[::-1])
    assert first.intercept == back.intercept
    assert all((a == b).all() for a, b in zip(first.effects, back.effects, strict=True))


def test_what_one_attribute_decides_is_found_and_one_answer_is_given():
    codes, _ = people(2000)
    decided = codes[:, 1] >= 2
    assert (train(codes, SIZES, decided).predict(codes) == decided).all()
    for answer in (True, False):
        flags = np.full(len(codes), answer)
        assert (train(codes, SIZES, flags).predict(codes) == flags).all()
    nobody = train(codes[:0], SIZES, decided[:0])
    assert not nobody.predict(codes).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda codes, flags: train(codes, SIZES[:2], flags),
        lambda codes, flags: train(codes, SIZES, flags[1:]),
        lambda codes, flags: train(codes + 1, SIZES, flags),
        lambda codes, flags: train(codes[:, :0], (), flags),
    ],
)
def test_bad_input_is_refused(make):
    with pytest.raises(SchemaError):
        make(*people())


def test_a_fit_that_does_not_end_is_no_classifier(monkeypatch):
    monkeypatch.setattr(classifier_module, "_MOST_STEPS", 1)
    with pytest.raises(SolverError, match="does not converge"):
        train(people()[0], SIZES, people()[1])
