"""Files of the format before 3: read with the same digests."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from das.errors import ConfigError
from jobs.pipeline.config.between import joined_settings
from jobs.pipeline.config.files import absolute, is_survey, read_model, read_run_file
from jobs.pipeline.config.load import run_digest
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.resolve import read_named, solve_digest
from jobs.pipeline.folder.solutions import settings_digest, settings_of
from jobs.survey.models import SurveyConfig
from jobs.survey.plan import load_survey
from tests.checkout import ROOT

OLD, NEW = ROOT / "tests/data/format_2", ROOT / "tests/data/format_3"
# Made by the last version that wrote format 2, from these files and those of conf of its time.
DIGESTS: dict[str, dict[str, Any]] = json.loads((OLD / "digests.json").read_text())
RUNS = ["adaptive", "census", "means", "pairs", "tables"]
SHIPPED = sorted(path.name for path in (ROOT / "conf/run").glob("*.yaml"))


def digests(path: Path) -> dict[str, Any]:
    """Every digest that hangs on a run file."""
    if is_survey(path):
        plan = load_survey(path)
        settings = {part: sha256(json.dumps(plan.settings(part))) for part in plan.costs}
        return {"digest": plan.digest, "settings": settings}
    config = read_run_file(path)
    run = absolute(config, path.parent)
    found = {
        "digest": run_digest(config, read_named(run)),
        "settings": settings_digest(settings_of(run)),
        "solve": {name: solve_digest(one.solve) for name, one in run.products.items()},
    }
    joined = {
        name: joined_settings(one.output.joined)
        for name, one in run.products.items()
        if one.output.joined is not None
    }
    return found | ({"joined": joined} if joined else {})


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("folder", [OLD, NEW], ids=["older", "format 3"])
def test_digests_of_a_run_stay(folder: Path, name: str) -> None:
    assert digests(folder / f"{name}.yaml") == DIGESTS[f"{name}.yaml"]


@pytest.mark.parametrize("name", SHIPPED)
def test_digests_of_every_shipped_run_stay(tmp_path: Path, name: str) -> None:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    path = tmp_path / "conf/run" / name
    if is_survey(path):
        survey = read_model(path, SurveyConfig)
        for one in survey.statistics:
            if one.weights is not None:
                levels = [survey.data.columns[key].levels for key in one.stratify_by]
                cells = [",".join(cell) for cell in itertools.product(*levels)]
                lines = [",".join([*one.stratify_by, "weight"])]
                lines += [f"{cell},1/{len(cells)}" for cell in cells]
                (path.parent / one.weights).parent.mkdir(parents=True)
                (path.parent / one.weights).write_text("\n".join(lines) + "\n")
    assert digests(path) == DIGESTS[name]


def test_every_section_that_is_hashed_is_compared() -> None:
    assert {*DIGESTS} == {*SHIPPED, *(f"{name}.yaml" for name in RUNS)}
    assert any("joined" in one for one in DIGESTS.values())


OLD_KEYS = {  # in a file of format 3: the key as it was called, and as it is called
    ("privacy", "grant"): "budget_id",
    ("between",): "cross_product_constraints",
    ("geography", "spine", "near"): "align_with",
    ("products", "persons", "data", "format"): "input_format",
    ("products", "persons", "solve", "order"): "l2_passes",
    ("products", "order", "solve", "targets"): "fit_to",
    ("products", "persons", "solve", "housing_units", "kappa"): "variance_factor",
    ("products", "persons", "output", "joined", "adults"): "householder_first",
}


@pytest.mark.parametrize("keys", OLD_KEYS, ids=".".join)
def test_an_old_key_in_format_3_is_refused_and_the_new_one_named(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    document = yaml.safe_load((NEW / "census.yaml").read_text())
    section = document
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = section.pop(OLD_KEYS[keys])
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as refused:
        read_run_file(path)
    said = f"{'.'.join(keys)}: is not a known key; did you mean `{OLD_KEYS[keys]}`"
    if keys[-1] == "format":  # which tells of what format the input is
        said = "products.persons.data: Unable to extract tag using discriminator 'input_format'"
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "keys", "value", "said"),
    [
        ("census", "products.persons.solve.targets", "half", "solve.targets: Input should be"),
        ("census", "products.persons.solve.round_passes", "x", "solve.round_passes: Input"),
        ("census", "products.persons.solve.fit_to", "tree", "`targets`"),
        ("census", "products.persons.solve.goal", "x", "persons.solve.goal: is not a known key"),
        ("census", "privacy.budget_id", "1", "this file states format 2; expected `grant`"),
        ("census", "geography.spine.near", [1.5], "geography.spine.near.0: must be text"),
        ("census", "products.persons.output.joined.alike", 1, "output.joined.alike: Input"),
        ("means", "data.records", 0, "data.records: Input should be greater"),
        ("means", "statistics.0.spread", 0, "statistics.0.spread: Input should be greater"),
        ("means", "synthesis.strata.least", 2, "synthesis.strata.least: Input should be less"),
        ("means", "synthesis.n_fits", 2, "synthesis.n_fits: is a key of format 3"),
        ("tables", "tables.1.table", 1.5, "tables.1.table: must be text"),
        ("allocation", "levels.state.workload.loss.max_weighted_mean", [], "is the same key as"),
        ("allocation", "levels.state.workload.loss.worst", [], "loss.worst: is not a known key"),
    ],
)
def test_a_mistake_in_an_older_file_is_named_by_its_own_key(
    tmp_path: Path, name: str, keys: str, value: object, said: str
) -> None:
    document = yaml.safe_load((OLD / f"{name}.yaml").read_text())
    section: Any = document
    *above, last = keys.split(".")
    for key in above:
        section = section[int(key) if isinstance(section, list) else key]
    section[last] = value
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(document))
    model = {"census": None, "allocation": AllocationFile}.get(name, SurveyConfig)
    with pytest.raises(ConfigError) as refused:
        read_run_file(path) if model is None else read_model(path, model)
    assert said in str(refused.value)
