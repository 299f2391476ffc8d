"""The figure of cell fairness: every marginal is drawn, the same each time."""

from __future__ import annotations

import re

from das.workload.workload import Weighting
from jobs.report.fairness import SIZES, draw, explore


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
