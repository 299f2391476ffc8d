"""Weights that a release carries: no spreadsheet computes their labels, and they are read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.survey.checks import read_weights
from jobs.survey.manifest import released_configuration
from jobs.survey.plan import load_survey
from tests.builders.survey import WEIGHTS, write_survey


@pytest.mark.parametrize(("label", "written"), [("=1+1", "'=1+1"), ("@a", "'@a"), ("5-17", "5-17")])
def test_labels_of_released_weights_are_no_formulas(
    tmp_path: Path, label: str, written: str
) -> None:
    codes = {"1": label, "2": "f"}
    config = write_survey(tmp_path, data__columns__sex__codes=codes)
    (tmp_path / "weights.csv").write_text(
        "".join(f"{row.replace('m,', f'{label},', 1)}\n" for row in WEIGHTS)
    )
    plan = load_survey(config)
    text = released_configuration(plan)["weights-income.csv"]
    assert [line.split(",")[0] for line in text.split()] == ["sex", *[written] * 3, *["f"] * 3]
    (tmp_path / "again.csv").write_text(text)
    levels = {"sex": [label, "f"], "group": ["a", "b", "c"]}
    again, first = (
        read_weights(tmp_path / name, levels, 600) for name in ("again.csv", "weights.csv")
    )
    assert again == first


def test_weights_as_spreadsheets_of_europe_write_them(tmp_path: Path) -> None:
    (tmp_path / "weights.csv").write_text("sex;weight;size\nf;0,25;4\nm;0,75;9\n", "utf-8-sig")
    strata = read_weights(tmp_path / "weights.csv", {"sex": ["f", "m"]}, 100)
    assert [(str(one.weight), one.size) for one in strata.values()] == [("1/4", 4), ("3/4", 9)]
