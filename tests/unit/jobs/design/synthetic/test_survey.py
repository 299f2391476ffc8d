"""The invented survey: the same for the same seed, and never over something else."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from das.errors import ConfigError, OutputError
from jobs.cli.main import app
from jobs.design.synthetic.survey import generate_survey


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


def test_the_command_generates_a_survey_and_that_of_censuses_names_it(tmp_path):
    done = CliRunner().invoke(app, ["generate-survey", str(tmp_path / "a"), "--persons", "30"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["persons"] == 30
    for words in (("generate-survey", "--persons", "0"), ("generate", "--schema", "survey")):
        command, *options = words
        done = CliRunner().invoke(app, [command, str(tmp_path / "b"), *options])
        assert isinstance(done.exception, ConfigError)
        assert "generate-survey" in str(done.exception)
        assert not (tmp_path / "b").exists()
