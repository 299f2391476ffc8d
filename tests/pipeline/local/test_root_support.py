"""A run whose root is found from coarse to fine: repaired, seeded again, and what its files say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from das.queries.query import parse_query
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.dataset import dataset_digest
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import execute, leave_out_figures, patch_spark
from tests.builders.places import release_of


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the toy state, with the cells of men and women found first."""
    folder = tmp_path_factory.mktemp("support")
    toy.write_records(folder)
    path = toy.configuration(folder, privacy__on_demand_queries=["detailed"])
    document = yaml.safe_load(path.read_text())
    document["products"]["persons"]["privacy"]["root_support_passes"] = ["total", "sex"]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    execute(path)
    return folder


def test_the_release_says_where_it_drew(done: Path) -> None:
    release = release_of(done / "out").root
    plan = load_run(done / "run.yaml").plan
    (support,) = rows_of(release / "support" / "level=state")
    sex = parse_query(plan.schema, "sex")
    (drawn,) = rows_of(release / "lazy_measurements" / "level=state")
    assert drawn["query"] == "detailed"
    assert drawn["positions"] == sex.cells_of(np.array(support["cells"])).tolist()
    (state,) = rows_of(release / "counts" / "level=state")
    rows = sex.rows_of(np.array(state["cells"]))
    sums = [int(np.array(state["counts"])[rows == cell].sum()) for cell in support["cells"]]
    assert sums == support["counts"]
    manifest = json.loads((release / "manifest.json").read_text())
    assert "support/level=state" in {output["path"] for output in manifest["outputs"]}
    assert "support/level=" in (release / "codebook.md").read_text()


@pytest.mark.parametrize("lost", ["support/level=state"])
def test_what_is_lost_is_made_again_as_it_was(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    patch_spark(monkeypatch)
    leave_out_figures(monkeypatch)
    folder = tmp_path / "copy"
    shutil.copytree(done, folder)
    release = release_of(folder / "out").root
    counts = [release / "counts" / f"level={name}" for name in toy.LEVELS]
    before = [rows_of(place) for place in (release / "support" / "level=state", *counts)]
    noise = [dataset_digest(path) for path in sorted((release / "lazy_measurements").iterdir())]
    shutil.rmtree(release / lost)
    result = CliRunner().invoke(app, ["run", str(folder / "out"), "--quiet"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert before == [rows_of(place) for place in (release / "support" / "level=state", *counts)]
    assert noise == [
        dataset_digest(path) for path in sorted((release / "lazy_measurements").iterdir())
    ]
