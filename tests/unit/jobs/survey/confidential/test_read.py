"""A survey file is read into the levels, numbers and strata that its run file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from das.errors import InputError
from jobs.survey.confidential.read import SurveyTruth, read_survey
from jobs.survey.plan import SurveyPlan, load_survey
from tests.builders.survey import write_people, write_survey

# Ages at both ends of a bin; one income is missing.
ROWS = [("1", "A", "15", ""), ("2", "B", "16", "2000"), ("2", "A", "29", "1999")]


def read(folder: Path, **changes: Any) -> tuple[SurveyPlan, SurveyTruth]:
    plan = load_survey(write_survey(folder, **changes))
    write_people(folder, ROWS)
    return plan, read_survey(plan).reveal()


def test_numbers_lie_in_the_bin_that_begins_with_them_or_below(tmp_path):
    _, truth = read(tmp_path, data__n_records=3)
    age, income = (truth.records.domain.positions([name])[0] for name in ("age", "income"))
    assert truth.records.codes[:, age].tolist() == [0, 1, 1]
    assert truth.records.codes[:, income].tolist() == [4, 2, 1]  # the last level is `missing`


@pytest.mark.parametrize(
    ("counted_as", "values"), [("exclude", [2000, 1999]), (7, [7, 2000, 1999])]
)
def test_missing_numbers_are_left_out_or_count_as_stated(tmp_path, counted_as, values):
    plan, truth = read(tmp_path, data__n_records=3, statistics__0__missing=counted_as)
    found = truth.values(plan.part("income"))
    assert found.values.tolist() == values
    assert len(found.strata) == len(values)


def test_a_number_of_records_that_is_public_is_the_true_one(tmp_path):
    with pytest.raises(InputError, match=r"has another number of records.*got 3; expected 600"):
        read(tmp_path)
    assert read(tmp_path, privacy__neighbors="unbounded")
