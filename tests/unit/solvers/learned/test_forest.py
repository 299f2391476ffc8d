"""Regression trees: predictions as by hand, and fits that do not depend on the order of rows."""

from __future__ import annotations

import numpy as np

from solvers.learned.forest import DEPTH, LEAF_STEPS, Forest, fit_forest


def walked(forest: Forest, row: list[int]) -> float:
    """The prediction for one row, node by node."""
    total = forest.constant
    for features, thresholds, leaves in zip(
        forest.features, forest.thresholds, forest.leaves, strict=True
    ):
        node = 0
        for _ in range(DEPTH):
            node = 2 * node + 1 + int(row[features[node]] > thresholds[node])
        total += leaves[node - len(thresholds)]
    return total / LEAF_STEPS


def rows(number: int, seed: int = 3) -> tuple[list[np.ndarray], np.ndarray]:
    """Three features, and values that depend on two of them."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(-200, 200, number) for _ in range(3)]
    return columns, np.where(columns[0] > 40, 5.0, -1.0) + 2.0 * (columns[2] > 0)


def test_predictions_are_sums_of_leaves() -> None:
    columns, wanted = rows(500)
    forest = fit_forest(columns, wanted)
    some = np.array(columns).T[:60].tolist()
    assert forest.predict(columns)[:60].tolist() == [walked(forest, row) for row in some]


def test_a_step_function_is_learned() -> None:
    forest = fit_forest(*rows(4_000))
    columns, wanted = rows(1_000, seed=4)
    error = np.sqrt(((forest.predict(columns) - wanted) ** 2).mean())
    assert error < 0.3  # edges between bins are 6 apart: 3 % of rows may lie beside a step
    assert wanted.std() > 2.5


def test_the_order_of_rows_does_not_matter() -> None:
    """So sums are exact, and every machine finds the same trees."""
    columns, wanted = rows(1_500)
    wanted = wanted + np.random.default_rng(5).normal(size=len(wanted))
    order = np.random.default_rng(6).permutation(len(wanted))
    first = fit_forest(columns, wanted)
    second = fit_forest([column[order] for column in columns], wanted[order])
    assert first.constant == second.constant
    for name in ("features", "thresholds", "leaves"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_too_few_rows_give_the_mean() -> None:
    columns, wanted = rows(60)
    predicted = fit_forest(columns, wanted).predict(columns)
    assert np.ptp(predicted) == 0
    assert abs(predicted[0] - wanted.mean()) < 2 / LEAF_STEPS
