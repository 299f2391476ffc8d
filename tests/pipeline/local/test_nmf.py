"""`das nmf import` and `das nmf export` as one types them, and what their errors say to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner, Result

from das.errors import DasError
from das.queries.query import parse_query
from jobs.cli.main import app
from jobs.pipeline.config.schema import load_schema
from tests.builders import toy
from tests.builders.histograms import from_dense
from tests.builders.in_process import execute, leave_out_figures, patch_spark
from tests.builders.nmf import SyntheticNmf, constraint, random_counts
from tests.builders.places import product_in, release_of
from tests.checkout import ROOT

TOY = ROOT / "conf" / "schema" / "toy.yaml"
DIGITS = {"nation": 0, "state": 3, "county": 8, "block": 11}
LEAVES = ["00100001001", "00100001002", "00100002001", "00100002002", "00200001007", "00200001008"]


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_spark(monkeypatch)
    leave_out_figures(monkeypatch)


def synthetic() -> SyntheticNmf:
    schema = load_schema(TOY)
    queries = {"total": Fraction(9, 2), "sex": Fraction(7), "detailed": Fraction(10)}
    counts = random_counts(len(LEAVES), schema.size)
    return SyntheticNmf(schema, LEAVES, DIGITS, dict.fromkeys(DIGITS, queries), counts)


def das(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> str:
    result = das(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(*words: object) -> str:
    result = das(*words)
    assert isinstance(result.exception, DasError), (result.output, result.exception)
    return str(result.exception)


def tried(bad: tuple[object, ...], good: tuple[object, ...], remedy: str) -> None:
    """A command that is refused, and one that does what the message says."""
    assert remedy in refused(*bad)
    done(*good)


def test_files_become_counts_estimates_and_files_again(tmp_path: Path) -> None:
    nmf, run, again = synthetic().write(tmp_path / "nmf"), tmp_path / "run", tmp_path / "again"
    printed = done("nmf", "import", nmf, run, "--schema", TOY, "--quiet")
    config = run / "run.yaml"
    assert str(config) in printed
    solve = yaml.safe_load(config.read_text())["products"]["persons"]["solve"]
    assert solve == {"rounding_passes": [["total"], ["sex", "detailed"]]}
    done("validate", config)
    assert "went made elsewhere" not in refused("run", "--only", "measure", config, "--quiet")
    assert "continue with `das run RUN --only solve` or `das estimate`" in refused(
        "evaluate", config, "--quiet"
    )
    done("run", "--only", "solve", config, "--quiet")
    verified = json.loads(done("verify", config, "--quiet"))
    assert verified["families"] == 6
    assert verified["noise_differences"] > 0
    assert 0.2 < verified["noise_chi_square"] / verified["noise_differences"] < 3
    found = json.loads(done("estimate", config, "--query", "sex", "--geounit", "001", "--json"))
    assert len(found) == 2
    manifest = json.loads((release_of(run / "out").manifest).read_text())
    assert manifest["origin"]["name"] == "nmf"
    assert manifest["privacy"]["randomness"] == "elsewhere"
    assert manifest["account"] is None
    done("verify", config, "--certificate", tmp_path / "certificate.html", "--quiet")
    release, claim = run / "out" / "release", "NOISE NOT VERIFIED"
    pages = (product_in(release).report, product_in(release).readme, tmp_path / "certificate.html")
    assert all(claim in page.read_text() for page in pages)
    assert "made elsewhere" in pages[0].read_text()
    assert "approved by" not in pages[2].read_text()
    assert {path.name for path in tmp_path.rglob("*account*")} == {"account.schema.json"}
    done("run", config, "--quiet")
    assert "complete" in done("run", run / "out", "--quiet")
    done("nmf", "export", config, again, "--quiet")
    done("nmf", "import", again, tmp_path / "second", "--schema", TOY, "--quiet")
    solved = [tmp_path / name / "allocation.yaml" for name in ("run", "second")]
    assert len({yaml.safe_load(path.read_text())["levels"]["block"]["share"] for path in solved})


def test_a_release_of_ours_can_be_exported_and_solved_again(tmp_path: Path) -> None:
    """The toy state has a chain of only children, which has the shares of its first geolevel."""
    toy.write_records(tmp_path)
    shares = {name: f"{place}/6" for place, name in enumerate(toy.LEVELS, 1)}
    levels = {
        name: {"share": "1/4", "queries": {"sex": share, "detailed": str(1 - Fraction(share))}}
        for name, share in shares.items()
    }
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({"name": "own", "levels": levels}))
    config = toy.configuration(tmp_path, privacy__allocation=str(own))
    execute(config)
    done("nmf", "export", config, tmp_path / "nmf", "--quiet")
    again = tmp_path / "again"
    done("nmf", "import", tmp_path / "nmf", again, "--schema", TOY, "--quiet")
    text = (again / "run.yaml").read_text()
    assert "chains: first" in text
    assert yaml.safe_load(text)["products"]["persons"]["privacy"]["rho"] == "1"
    done("run", "--only", "solve", again / "run.yaml", "--quiet")
    answers = [
        json.loads(done("inspect", folder, "--geounit", "99001", "--json"))["measurements"]
        for folder in (tmp_path / "out", again / "out")
    ]
    assert answers[0] == answers[1]


def rewritten(nmf: Path, change: Callable[[dict[str, Any]], list[int]]) -> None:
    """Replace the noisy answers of all files, row by row."""
    for file in nmf.glob("**/part-*.parquet"):
        table = pq.read_table(file)
        if "value" in table.column_names and "query_name" in table.column_names:
            rows = [{**row, "value": change(row)} for row in table.to_pylist()]
            pq.write_table(pa.Table.from_pylist(rows, table.schema), file)


@pytest.mark.parametrize("factor", [0, 4])
def test_answers_without_the_stated_noise_are_not_verified(tmp_path: Path, factor: int) -> None:
    """The truth itself, and four times the noise, under the variances of the files."""
    made = synthetic()
    nmf = made.write(tmp_path / "nmf")
    queries = {name: parse_query(made.schema, name) for name in ("total", "sex", "detailed")}

    def truth(row: dict[str, Any]) -> list[int]:
        code = row["geocode"]
        below = [code in ("0", "") or leaf.startswith(code) for leaf in LEAVES]
        cells = made.counts[below].sum(0)
        query = queries[row["query_name"].removesuffix("_dpq")]
        exact = query.answer(from_dense(cells[None]))[0]
        return (exact + factor * (np.asarray(row["value"]) - exact)).tolist()

    rewritten(nmf, truth)
    run = tmp_path / "run"
    done("nmf", "import", nmf, run, "--schema", TOY, "--quiet")
    done("run", "--only", "solve", run / "run.yaml", "--quiet")
    for words in (("verify",), ("verify", "--certificate", tmp_path / "page.html")):
        said = refused(words[0], run / "run.yaml", *words[1:], "--quiet")
        assert "does not hold the stated noise" in said
    assert not (tmp_path / "page.html").exists()


# --- what errors say to do -----------------------------------------------------------------------


def test_a_full_folder_is_not_imported_into(tmp_path: Path) -> None:
    nmf = synthetic().write(tmp_path / "nmf")
    words = ("nmf", "import", nmf)
    tried(
        (*words, nmf, "--schema", TOY),
        (*words, tmp_path / "new", "--schema", TOY),
        "choose a new folder for the import",
    )


def test_a_folder_is_not_exported_over(tmp_path: Path) -> None:
    nmf, config = synthetic().write(tmp_path / "nmf"), tmp_path / "run" / "run.yaml"
    done("nmf", "import", nmf, config.parent, "--schema", TOY)
    tried(
        ("nmf", "export", config, nmf),
        ("nmf", "export", config, tmp_path / "new"),
        "choose a new folder for the export",
    )


def test_invariants_without_a_place_are_left_out(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    stated = [{"query": "total", "geolevel": "state"}, {"query": "sex", "geolevel": "state"}]
    config = toy.configuration(tmp_path, invariants=stated)
    execute(config)
    words = ("nmf", "export", config, tmp_path / "nmf")
    tried(words, (*words, "--without-constraints"), "--without-constraints")


def test_two_states_without_the_nation_are_two_imports(tmp_path: Path) -> None:
    nmf = synthetic().write(tmp_path / "nmf")
    words = ("nmf", "import", nmf, tmp_path / "run", "--schema", TOY, "--root", "state")
    assert "of one state alone with --root state" in refused(*words)
    for folder in nmf.rglob("State=002"):
        shutil.rmtree(folder)
    done(*words)


def test_one_state_below_the_nation_begins_with_the_state(tmp_path: Path) -> None:
    nmf = synthetic().write(tmp_path / "nmf")
    for folder in nmf.rglob("State=002"):
        shutil.rmtree(folder)
    words = ("nmf", "import", nmf, tmp_path / "run", "--schema", TOY)
    tried(words, (*words, "--root", "state"), "begin with the state by --root state")


def test_attributes_of_no_ready_schema_need_one(tmp_path: Path) -> None:
    text = TOY.read_text().replace("age", "years").replace("name: toy", "name: own")
    (tmp_path / "own.yaml").write_text(text)
    made = replace(synthetic(), schema=load_schema(tmp_path / "own.yaml"))
    words = ("nmf", "import", made.write(tmp_path / "nmf"), tmp_path / "run")
    tried(words, (*words, "--schema", tmp_path / "own.yaml"), "by --schema")


def test_an_unknown_constraint_is_left_out(tmp_path: Path) -> None:
    extra = {"block": [constraint(code, "voting_age", "=", [1]) for code in LEAVES]}
    nmf = replace(synthetic(), extra=extra).write(tmp_path / "nmf")
    words = ("nmf", "import", nmf, tmp_path / "run", "--schema", TOY)
    tried(words, (*words, "--leave-out", "voting_age"), "--leave-out NAME")


def test_a_geolevel_in_chains_alone_needs_its_allocation(tmp_path: Path) -> None:
    """Each state has one county here, so no variance tells the share of the states."""
    leaves = ["00100001001", "00100001002", "00200001007", "00200001008"]
    made = replace(synthetic(), leaves=leaves, counts=random_counts(4, 6))
    totals = [(code, [int(row.sum())]) for code, row in made.truth("state").items()]
    extra = {"state": [constraint(code, "total", "=", total) for code, total in totals]}
    made = replace(made, extra=extra)
    nmf = made.write(tmp_path / "nmf")
    cost = sum(1 / one for one in made.sigma_sq["block"].values())
    level = {
        "share": "1/4",
        "queries": {name: str(1 / one / cost) for name, one in made.sigma_sq["block"].items()},
    }
    allocation = {"name": "own", "levels": dict.fromkeys(DIGITS, level)}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(allocation, sort_keys=False))
    words = ("nmf", "import", nmf, tmp_path / "run", "--schema", TOY)
    known = ("--allocation", tmp_path / "own.yaml", "--rho", str(4 * cost))
    tried(words, (*words, *known), "by --allocation and --rho")
    assert "implied by the other variances" not in refused(
        *words[:2], tmp_path / "x", *words[3:], *known[:3], "1"
    )
