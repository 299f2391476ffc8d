"""Commands that read a finished release: inspect and estimate, as their readers use them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from das.errors import ConfigError, DasError, InputError, OutputError
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.in_process import execute, patch_spark

ALLOCATION = {
    "name": "own",
    "levels": {
        "state": {"share": "1/4", "queries": {"total": "1/2", "detailed": "1/2"}},
        **{
            level: {"share": "1/4", "queries": {"sex": "1/2", "detailed": "1/2"}}
            for level in ("county", "tract", "block")
        },
    },
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run file of a finished toy run that measures the total at the state only."""
    folder = tmp_path_factory.mktemp("reading")
    toy.write_records(folder)
    (folder / "allocation.yaml").write_text(json.dumps(ALLOCATION))
    path = toy.configuration(
        folder,
        privacy__allocation=str(folder / "allocation.yaml"),
        output__tables=["total", "sex * age"],
    )
    execute(path)
    return path


def das(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(kind: type[DasError], *words: object) -> str:
    result = das(*words)
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


def inspected(config: Path, *words: object) -> dict:
    result = das("inspect", config.parent / "out", "--json", *words)
    assert result.exit_code == 0, result.output
    found: dict = json.loads(result.stdout)
    return found


def test_a_query_that_was_not_measured_is_said_so(config: Path) -> None:
    found = inspected(config, "--geounit", "99001", "--query", "total")
    assert found["measurements"] == []
    assert found["notes"] == [
        "total is not measured at county; measured there: sex, detailed",
    ]
    text = das("inspect", config.parent / "out", "--geounit", "99001", "--query", "total").output
    assert "total is not measured at county" in text
    assert "±" in text  # the estimate from all measurements is there


def test_estimates_are_shown_with_their_intervals(config: Path) -> None:
    found = inspected(config, "--geounit", "99001", "--query", "age * sex")  # terms in any order
    (row,) = found["estimates"]
    assert (row["query"], row["confidence"]) == ("detailed", 0.9)
    assert len(row["estimates"]) == 6
    for one in row["estimates"].values():
        assert one["lower"] <= one["estimate"] <= one["upper"]
    own = das("estimate", config, "--geounit", "99001", "--query", "sex * age", "--json")
    computed = {one["label"]: one["estimate"] for one in json.loads(own.stdout)}
    stored = {label: one["estimate"] for label, one in row["estimates"].items()}
    assert stored == pytest.approx(computed)


def test_what_is_not_stored_says_how_to_get_it(config: Path) -> None:
    found = inspected(config, "--geounit", "99001", "--query", "age")
    assert found["measurements"] == found["estimates"] == []
    assert "no estimate of age is stored" in found["notes"][1]
    assert das("estimate", config, "--geounit", "99001", "--query", "age").exit_code == 0


def test_only_children_say_whose_measurement_is_theirs(config: Path) -> None:
    found = inspected(config, "--geounit", "9900500")
    assert found["notes"] == ["an only child: measured with its parent, 99005"]
    assert found["estimates"]


def test_estimates_go_into_files_of_the_right_kind(config: Path, tmp_path: Path) -> None:
    asked = ("estimate", config, "--geounit", "99001", "--query", "sex")
    assert das(*asked, "--output", tmp_path / "x.csv").exit_code == 0
    assert das(*asked, "--output", tmp_path / "x.parquet").exit_code == 0
    text = pd.read_csv(tmp_path / "x.csv", dtype={"area": str})
    whole = pq.read_table(tmp_path / "x.parquet").to_pandas()
    pd.testing.assert_frame_equal(text, whole, check_dtype=False)
    for name in ("y.xlsx", "y"):
        assert "has an unknown suffix" in refused(ConfigError, *asked, "--output", tmp_path / name)
        assert not (tmp_path / name).exists()
    nowhere = tmp_path / "none" / "y.csv"
    assert "is not a folder; make it first" in refused(OutputError, *asked, "--output", nowhere)


def test_an_ordinary_assignment_file(config: Path, tmp_path: Path) -> None:
    blocks = tmp_path / "baf.txt"
    rows = [(code, "North county" if code < "9900300" else "South") for code in toy.blocks()]
    blocks.write_text("BLOCKID|DISTRICT\n" + "".join(f"{c}|{d}\n" for c, d in rows))
    result = das("estimate", config, "--area", blocks, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert [row["area"] for row in json.loads(result.stdout)] == ["North county", "South"]
    blocks.write_text("BLOCKID|DISTRICT\n9900100000|1\n9900100009|1\n")
    message = refused(InputError, "estimate", config, "--area", blocks)
    assert "baf.txt, row 3: names no block of the release (1 such rows); got 9900100009" in message
    blocks.write_text("9900100000\n")
    result = das("estimate", config, "--area", blocks)
    assert result.exit_code == 0
    blocks.write_text("9900100000|1\n")
    result = das("estimate", config, "--area", blocks)
    assert "20 of 21 geounits of block in no area, such as 9900100001, " in result.stderr


def test_version_and_help() -> None:
    assert das("--version").output.startswith("das")
    assert das("--version").exit_code == 0
    assert das("-h").output == das("--help").output
    assert "--query" in das("estimate", "-h").output


def test_a_run_says_that_its_list_of_geounits_comes_from_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.write_records(tmp_path)
    resolved = load_run(toy.configuration(tmp_path, geography__geounits=None))
    with pytest.MonkeyPatch.context() as patch:
        patch_spark(patch)
        with open_job(resolved, Reporter()) as job:
            do_stages(job, ("plan", "read"))
    said = capsys.readouterr().err
    before, _, _ = said.partition("plan      geounits")
    assert "which block exists comes from the data and is published" in before
