"""Files of the format before 3: read with the same digests, and rewritten word by word."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError
from jobs.cli.main import app
from jobs.pipeline.config.between import joined_settings
from jobs.pipeline.config.files import absolute, read_model, read_run_file
from jobs.pipeline.config.load import meaning_of
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.resolve import solve_digest
from jobs.pipeline.config.rewrite import Kind, kind_of, upgrade_file
from jobs.pipeline.folder.solutions import settings_digest, settings_of
from jobs.survey.models import SurveyConfig
from jobs.survey.plan import load_survey, meaning_of_survey
from tests.checkout import ROOT

OLD, NEW = ROOT / "tests/data/format_2", ROOT / "tests/data/format_3"
# Made by the last version that wrote format 2, from these files and those of conf of its time.
DIGESTS: dict[str, dict[str, Any]] = json.loads((OLD / "digests.json").read_text())
RUNS = ["adaptive", "census", "means", "pairs", "tables"]
SHIPPED = sorted(path.name for path in (ROOT / "conf/run").glob("*.yaml"))


def digests(path: Path) -> dict[str, Any]:
    """Every digest that hangs on a run file."""
    if kind_of(path) is Kind.SURVEY:
        plan = load_survey(path)
        settings = {part: sha256(json.dumps(plan.settings(part))) for part in plan.costs}
        return {"digest": plan.digest, "settings": settings}
    config, digest = meaning_of(path)
    run = absolute(config, path.parent)
    found = {
        "digest": digest,
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
    text = re.sub(r"\n *learned: .*", "", path.read_text())  # a key of later versions
    text = re.sub(r'epsilon: "10"\n *epsilon_from: .*', 'rho: "1"', text)  # so is this
    path.write_text(text)
    if kind_of(path) is Kind.SURVEY:
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


def upgrade(path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["validate", "--upgrade", str(path)])
    said = result.output if result.exception is None else str(result.exception)
    return result.exit_code, " ".join(said.split())


@pytest.mark.parametrize("name", [*RUNS, "allocation"])
def test_only_renamed_words_change(tmp_path: Path, name: str) -> None:
    shutil.copytree(OLD, tmp_path / "x")
    path = tmp_path / "x" / f"{name}.yaml"
    path.chmod(0o640)
    before, expected = path.read_bytes(), (NEW / f"{name}.yaml").read_bytes()
    code, said = upgrade(path)
    assert code == 0, said
    assert path.read_bytes() == expected != before
    assert path.stat().st_mode & 0o777 == 0o640
    assert "the digest is the same" in said
    changed = [
        number
        for number, lines in enumerate(
            zip(before.decode().split("\n"), expected.decode().split("\n"), strict=True), 1
        )
        if lines[0] != lines[1]
    ]
    assert all(f"line {number}: " in said for number in changed)
    code, said = upgrade(path)
    assert (code, path.read_bytes()) == (0, expected)
    assert "has the keys of format 3 already; left as it is" in said
    assert {one.name for one in path.parent.iterdir()} == {one.name for one in OLD.iterdir()}


def test_the_ends_of_lines_and_a_mark_at_the_start_stay(tmp_path: Path) -> None:
    def odd(text: str) -> bytes:
        return ("\ufeff" + text.replace("# ", "# é𝄞 ").replace("\n", "\r\n")).encode()

    path = tmp_path / "run.yaml"
    path.write_bytes(odd((OLD / "tables.yaml").read_text()))
    assert upgrade(path)[0] == 0
    assert path.read_bytes() == odd((NEW / "tables.yaml").read_text())


def test_a_link_stays_and_its_file_is_rewritten(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "x")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "x" / "means.yaml")
    assert upgrade(tmp_path / "link.yaml")[0] == 0
    assert (tmp_path / "link.yaml").is_symlink()
    assert (tmp_path / "x/means.yaml").read_bytes() == (NEW / "means.yaml").read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("      targets: own", "      targets: &n own\n      method: *n", "solve.method: Input"),
        ("format: 2 ", "format: 4 ", "format: Input should be 3; got 4"),
        ('{"grant": ', '{"gr\\x61nt": ', "line 14: cannot be replaced by `budget_id`"),
        ("name: every renamed key", "name: &n full", "line 3: is used by an alias"),
        ('{"grant": ', '{"budget_id": ', "privacy.budget_id: is a key of format 3"),
        ('{"grant": ', '{"grants": ', "privacy.grants: is not a known key"),
        ("schema: schema.yaml", "schema: absent.yaml", "absent.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_rewritten_is_left_as_it_is(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    shutil.copytree(OLD, tmp_path / "x")
    path = tmp_path / "x/census.yaml"
    text = path.read_text().replace(old, new, 1)
    if new.endswith("&n full"):
        text = text.replace("'targets': \"full\"", "targets: *n")
    path.write_text(text)
    code, printed = upgrade(path)
    assert code != 0
    assert said in printed
    assert path.read_text() == text
    assert {one.name for one in path.parent.iterdir()} == {one.name for one in OLD.iterdir()}


def test_a_text_that_two_places_share_is_written_out(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "x")
    path = tmp_path / "x/means.yaml"
    text = path.read_text()
    shared = text.replace("name: every renamed key", "name: spread", 1)
    path.write_text(shared.replace("- mean: income", "- mean: income\n    name: &n spread"))
    path.write_text(path.read_text().replace("    spread: 1500", "    *n : 1500"))
    code, said = upgrade(path)
    assert code != 0
    assert "is used by an alias, and format 3 has different names for its places" in said
    path.write_text(shared.replace("- mean: income", "- mean: income\n    name: spread"))
    assert upgrade(path)[0] == 0
    assert "    name: spread\n" in path.read_text()


def test_a_file_that_would_mean_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "x")
    path = tmp_path / "x/means.yaml"
    meanings = iter(range(2))
    with pytest.raises(ConfigError, match="would mean something else in format 3"):
        upgrade_file(path, Kind.SURVEY, lambda _: next(meanings))
    assert path.read_bytes() == (OLD / "means.yaml").read_bytes()
    assert {one.name for one in path.parent.iterdir()} == {one.name for one in OLD.iterdir()}
    assert upgrade_file(path, Kind.SURVEY, meaning_of_survey)


def test_other_files_are_not_rewritten() -> None:
    code, said = upgrade(OLD / "schema.yaml")
    assert code != 0
    assert "is not a file that format 3 changes" in said


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
