"""A run that could not be finished is refused at every door, before it costs anything."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from das.errors import ConfigError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.run import run
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.in_process import execute, tasks_of
from tests.builders.nmf import SyntheticNmf, random_counts
from tests.checkout import ROOT

Das = Callable[..., tuple[int, str]]
TOY = ROOT / "conf" / "schema" / "toy.yaml"
VILLAGES = ROOT / "tests" / "data" / "villages"
UNSOLVABLE = {"l2_passes": {"county": [["sex"], ["total"]]}, "round_l2_passes": True}
REFUSED = (
    "products.persons: solve.round_l2_passes, geolevel county: has a pass without a query that "
    "refines all others"
)
TOO_NOISY = "has too much noise to solve counts"


@pytest.fixture(autouse=True)
def _here(here: None) -> None:
    """All tasks in this process."""


@pytest.fixture
def unsolvable(tmp_path: Path) -> Path:
    """A run file of which nothing is done; its data are there."""
    toy.write_records(tmp_path)
    return toy.configuration(tmp_path, solve=UNSOLVABLE)


@pytest.mark.parametrize(
    "command", ["validate RUN", "run RUN", "run RUN --only measure", "plan RUN"]
)
def test_a_run_is_refused_before_anything_is_written(
    das: Das, unsolvable: Path, command: str
) -> None:
    code, said = das(*(unsolvable if word == "RUN" else word for word in command.split()))
    assert code == 2, said
    assert f"{unsolvable}: {REFUSED}" in said
    assert not (unsolvable.parent / "out").exists()


def test_a_program_that_runs_it_is_refused_before_anything_is_written(unsolvable: Path) -> None:
    resolved = load_run(unsolvable)
    with pytest.raises(ConfigError, match=REFUSED):
        run(resolved, Reporter(quiet=True), tasks=tasks_of(resolved.config))
    assert not (unsolvable.parent / "out").exists()


def test_it_is_not_rehearsed(das: Das, unsolvable: Path, tmp_path: Path) -> None:
    code, said = das("generate", tmp_path / "invented", "--like", unsolvable)
    assert code == 2, said
    assert REFUSED in said
    assert not (tmp_path / "invented").exists()


@pytest.mark.parametrize("command", ["RUN --only solve", "OUT", "OUT --check"])
def test_what_is_measured_is_not_solved(das: Das, tmp_path: Path, command: str) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path)
    assert das("run", config, "--only", "measure")[0] == 0
    toy.configuration(tmp_path, solve=UNSOLVABLE)
    places = {"RUN": config, "OUT": tmp_path / "out"}
    code, said = das("run", *(places.get(word, word) for word in command.split()))
    assert code == 2, said
    assert REFUSED in said
    assert not (tmp_path / "out" / "release" / "counts").exists()


def test_a_finished_release_is_not_repeated_but_read(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    out = execute(toy.configuration(tmp_path))
    config = toy.configuration(tmp_path, solve=UNSOLVABLE)
    code, said = das("replicate", out, "--count", 1)
    assert code == 2, said
    assert REFUSED in said
    for words in (
        ["verify", config],
        ["tables", config, "--table", "sex", "--to", tmp_path / "tables"],
    ):
        code, said = das(*words)
        assert code == 0, said


def test_a_draft_that_could_not_be_run_is_not_left(das: Das, tmp_path: Path) -> None:
    code, said = das("init", VILLAGES / "persons.csv", tmp_path / "new", "--rho", f"1/{10**22}")
    assert code == 2, said
    assert TOO_NOISY in said
    assert not (tmp_path / "new").exists()


def test_noisy_answers_of_others_that_could_not_be_solved_are_not_imported(
    das: Das, tmp_path: Path
) -> None:
    schema, digits = load_schema(TOY), {"nation": 0, "state": 3, "block": 11}
    leaves = ["00100001001", "00100001002", "00200002007", "00200002008"]
    variances = {"total": Fraction(4), "sex": Fraction(4)}
    nmf = SyntheticNmf(
        schema, leaves, digits, dict.fromkeys(digits, variances), random_counts(4, schema.size)
    )
    words = ("nmf", "import", nmf.write(tmp_path / "nmf"), tmp_path / "run", "--schema", TOY)
    code, said = das(*words)
    assert code == 3, said
    assert "allocation.yaml: allocation, geolevel nation: its queries do not have full" in said
    assert not (tmp_path / "run").exists()


def test_an_evaluation_by_too_many_groups_is_refused(
    das: Das, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """6 groups at 4 geolevels, by the total alone."""
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, evaluate={"groups": ["detailed"], "tables": ["total"]})
    monkeypatch.setattr("jobs.pipeline.config.runnable.MOST_ROWS", 24)
    assert das("validate", config)[0] == 0
    execute(config)
    monkeypatch.setattr("jobs.pipeline.config.runnable.MOST_ROWS", 23)
    for command in ("validate", "evaluate"):
        code, said = das(command, config)
        assert code == 2, said
        assert "products.persons.evaluate: groups: are too many" in said
