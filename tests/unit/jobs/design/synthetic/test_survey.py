"""The invented survey: the same for the same seed, and never over something else."""

from __future__ import annotations

from fractions import Fraction

import pytest

from das.errors import ConfigError, OutputError
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.generate import generate_any
from jobs.design.synthetic.survey import generate_survey
from jobs.pipeline.tasks.progress import Reporter


def test_an_invented_survey_is_the_same_for_the_same_seed(tmp_path):
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate_survey(tmp_path / name, 500, seed)
        texts.append((tmp_path / name / "persons.csv").read_text())
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0].splitlines()) == 501
    with pytest.raises(OutputError, match="name a new one, or remove it"):
        generate_survey(tmp_path / "a", 500, 1)
    generate_survey(tmp_path / "d", 500, 1)


def test_its_weights_sum_to_one(tmp_path):
    generate_survey(tmp_path / "a", 1, 1)
    rows = (tmp_path / "a" / "weights.csv").read_text().splitlines()
    assert sum(Fraction(row.split(",")[2]) for row in rows[1:]) == 1


@pytest.mark.parametrize(("persons", "seed"), [(0, 1), (6_000_000, 1), (10, -1)])
def test_numbers_out_of_range_are_refused(tmp_path, persons, seed):
    with pytest.raises(ConfigError, match="cannot invent"):
        generate_survey(tmp_path / "a", persons, seed)
    assert not (tmp_path / "a").exists()


def test_no_persons_are_not_the_default_number_of_persons(tmp_path):
    spec = GenerateSpec(schema="survey", persons=0)
    with pytest.raises(ConfigError, match="0 persons"):
        generate_any(spec, tmp_path / "a", Reporter(quiet=True))
    assert not (tmp_path / "a").exists()
