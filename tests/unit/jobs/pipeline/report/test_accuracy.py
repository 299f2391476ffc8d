"""What the public report says of accuracy: half widths of intervals, from standard errors alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.pipeline.report.accuracy import Accuracy, accuracy_section, accuracy_tile
from jobs.pipeline.report.public import write_public_report
from jobs.pipeline.report.table import Table
from tests.unit.jobs.pipeline.report.report_samples import LEVELS, manifest

HALF_WIDTHS = {
    (level, table): width
    for table, widths in {"total": (0.0, 2.5, 12.0), "sex": (1.0, 3.0, 14.0)}.items()
    for level, width in zip(LEVELS, widths, strict=True)
}
ACCURACY = Accuracy(0.9, HALF_WIDTHS)


def test_the_lead_says_what_is_exact_and_how_far_the_rest_is_off() -> None:
    section = accuracy_section(manifest(), ACCURACY)
    assert section.lead == (
        "Total is exact at nation. In 90 of 100 cases an estimate of total is at most so many "
        "persons away from the truth, on average: 2.50 at county, 12.00 at block."
    )


def test_the_table_has_every_geolevel_and_table() -> None:
    (grid,) = (b for b in accuracy_section(manifest(), ACCURACY).blocks if isinstance(b, Table))
    assert [[cell.text for cell in row] for row in grid.rows] == [
        ["total", "0", "2.50", "12.00"],
        ["sex", "1.00", "3.00", "14.00"],
    ]


def test_the_headline_is_of_the_geolevel_that_most_ask_for() -> None:
    tile = accuracy_tile(manifest(), Accuracy(0.9, HALF_WIDTHS | {("nation", "total"): 0.5}))
    assert (tile.label, tile.value) == ("Total of a nation", "±0.50")
    assert accuracy_tile(manifest(), ACCURACY).value == "exact"


@pytest.mark.parametrize("accuracy", [None, ACCURACY])
def test_the_public_report_tells_accuracy_and_no_residual(
    tmp_path: Path, accuracy: Accuracy | None
) -> None:
    out = tmp_path / "report.html"
    write_public_report(manifest(), out, accuracy=accuracy)
    page = re.sub(r"<[^>]*>", " ", out.read_text("utf-8"))
    assert ("Accuracy of the tables" in page) is (accuracy is not None)
    assert ("Noise of total" in page) is (accuracy is None)
    assert "esidual" not in page
    assert "How counts were made" in page
