"""Which marginals an objective favors, on the domain of ResidualPlanner+, Section 6.2; its figure."""

from __future__ import annotations

import re

import numpy as np
import pytest

from das.workload.workload import AttributeWorkload, Weighting
from tests.studies.cell_fairness import SIZES, draw, explore, explore_cell_variances

ADULT = [AttributeWorkload.identity(f"a{i}", size) for i, size in enumerate(SIZES)]


@pytest.mark.parametrize(
    ("weighting", "least", "most", "sign"),
    [
        (Weighting.EQUAL, 2, 3, 1),
        (Weighting.SQUARE_ROOT, 10, 40, -1),
        (Weighting.CELL_SIZE, 300, 1000, -1),
    ],
)
def test_the_more_size_counts_the_more_large_marginals_are_favored(weighting, least, most, sign):
    """Equal weights: over twice the variance in large marginals; else orders of magnitude less."""
    found = explore_cell_variances(ADULT, 3, weighting)
    assert found.orders.tolist() == [0] + [1] * 14 + [2] * 91 + [3] * 364
    assert least <= found.variances.max() / found.variances.min() <= most
    trend = np.corrcoef(np.log(found.sizes), np.log(found.variances))[0, 1]
    assert sign * trend > 0.8


def test_twice_the_cost_halves_every_variance():
    once = explore_cell_variances(ADULT, 2, Weighting.EQUAL)
    twice = explore_cell_variances(ADULT, 2, Weighting.EQUAL, 2.0)
    np.testing.assert_allclose(once.variances, 2 * twice.variances)


def test_every_marginal_is_a_mark_and_files_repeat(tmp_path):
    found = explore(2)
    assert list(found) == [Weighting.EQUAL, Weighting.SQUARE_ROOT, Weighting.CELL_SIZE]
    pairs = len(SIZES) * (len(SIZES) - 1) // 2
    assert {len(each.sizes) for each in found.values()} == {1 + len(SIZES) + pairs}
    texts = []
    for name in ("first.svg", "second.svg"):
        draw(found, tmp_path / name)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    # Marks of the data are clipped to their panel, unlike ticks and the legend.
    clipped = re.findall(r"<g clip-path=[^>]*>(.*?)</g>", texts[0], flags=re.DOTALL)
    assert sum(part.count("<use ") for part in clipped) == 3 * (1 + len(SIZES) + pairs)
