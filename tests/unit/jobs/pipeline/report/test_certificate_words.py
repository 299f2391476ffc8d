"""Words of the certificate that depend on what is counted, and survey CSV that no spreadsheet runs."""

from __future__ import annotations

import pytest

from jobs.pipeline.report.certificate import one_of
from jobs.pipeline.storage.csv import cell
from jobs.survey.documents import ReleasedTable
from jobs.survey.results import table_text


@pytest.mark.parametrize(
    ("records", "one"),
    [("families", "family"), ("people", "person"), ("households", "household"), ("units", "unit")],
)
def test_the_singular_of_what_is_counted(records, one):
    assert one_of(records) == one


def test_cells_of_survey_means_are_no_formulas():
    assert [cell(value) for value in ("=1+1", "a", -1.5, True)] == ["'=1+1", "a", -1.5, "true"]


def test_cells_of_survey_tables_are_no_formulas():
    fields = {name: None for name in ReleasedTable.__dataclass_fields__}
    table = ReleasedTable(
        **(fields | {"attributes": ("@x",), "levels": (("=1+1",),), "counts": (3,)})
    )
    assert table_text(table) == "'@x,count\n'=1+1,3\n"
