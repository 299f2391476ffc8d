"""Configuration: the shipped files load, and every mistake is one error that names file and key."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from das.errors import (
    BudgetError,
    ConfigError,
    DasError,
    GeographyError,
    InputError,
    RuntimeSetupError,
    SchemaError,
)
from das.privacy.accounting import epsilon_from_rho
from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.strategy import Strategy, noisy_queries
from geography.lattice import Spine
from jobs.pipeline.config.allocation import load_allocation
from jobs.pipeline.config.files import absolute, is_survey, read_model, read_run_file
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.folder.solutions import settings_digest, settings_of
from jobs.pipeline.plan import Solving
from jobs.pipeline.storage.account import default_account
from jobs.survey.models import SurveyConfig
from tests.builders.run_files import to_products
from tests.checkout import ROOT

CONF = ROOT / "conf"
DELTA = Fraction(1, 10**10)
PERSONS = Fraction(293764, 114921)

SCHEMA = {
    "name": "toy",
    "attributes": [
        {"name": "sex", "levels": ["female", "male"]},
        {"name": "age", "levels": ["child", "adult", "old"]},
    ],
    "recodes": [
        {
            "name": "voting",
            "attribute": "age",
            "groups": {"minor": ["child"], "grown": ["adult", "old"]},
        }
    ],
}
ALLOCATION = {
    "name": "toy",
    "levels": {
        "state": {"share": "1/3", "queries": {"total": "1/4", "detailed": "3/4"}},
        "block": {"share": "2/3", "queries": {"voting * sex": "1/5", "detailed": "4/5"}},
    },
}
RUN = {
    "name": "toy",
    "schema": "schema.yaml",
    "data": {
        "input_format": "records",
        "path": "absent.csv",
        "columns": {"sex": {"column": "SEX", "codes": {"1": "male", "2": "female"}}, "age": "age"},
    },
    "geography": {
        "levels": [{"name": "state", "digits": 2}, {"name": "block", "digits": 5}],
        "geounits": {"path": "absent-blocks.csv"},
    },
    "privacy": {"rho": "1/2", "allocation": "allocation.yaml"},
    "invariants": [{"query": "total", "geolevel": "state"}],
    "solve": {"rounding_passes": [["total"], ["voting", "detailed"]]},
    "output": {"directory": "out"},
}


class Project:
    """Three files in a folder, each a document that a test may edit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schema: dict[str, Any] = copy.deepcopy(SCHEMA)
        self.allocation: dict[str, Any] = copy.deepcopy(ALLOCATION)
        self.run: dict[str, Any] = copy.deepcopy(RUN)

    def document(self, name: str) -> Any:
        """What the file is to say; the run is edited in short."""
        document = getattr(self, name)
        is_short = name == "run" and isinstance(document, dict)
        return to_products(document) if is_short else document

    def load(self, **options: Any) -> Resolved:
        for name in ("schema", "allocation", "run"):
            document = self.document(name)
            text = (
                document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
            )
            (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        resolved = load_run(self.folder / "run.yaml", **options)
        require_runnable(resolved)
        return resolved


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


# --- the shipped files ---------------------------------------------------------------------------


def shipped(folder: str) -> list[Path]:
    return sorted((CONF / folder).glob("*.yaml"))


SIZES = {
    "aiansf": 5_712_768,
    "block16": 16,
    "census1940": 44_544,
    "dhc_households": 1_578_528,
    "dhc_persons": 1_227_744,
    "dhc_units": 35,
    "dwellings": 15,
    "group_quarters": 8,
    "h1": 2,
    "h1_units": 26,
    "housing_units": 2,
    "pl94": 2016,
    "pl94_cvap": 4032,
    "pl94_tables": 252,
    "residents": 144,
    "sf2": 7_383_168,
    "toy": 6,
    "units": 9,
}


def test_ready_run_files_of_one_population_share_one_account():
    """Whichever is run first, and whether or not its account has been begun."""
    accounts: dict[Path, set[Path]] = {}
    for _, inputs, account in ready_runs():
        accounts.setdefault(inputs[0].parent, set()).add(account)
    shipped = {one.name: found for one, found in accounts.items() if one.name.endswith("-data")}
    assert {name for name, found in shipped.items() if len(found) > 1} == set()
    assert len(shipped) > 5


def test_ready_run_files_can_all_be_run_beside_each_other():
    """Each has a folder of its own, and no two spend the same grant of an account."""
    spent: Counter[object] = Counter()
    for config, _, account in ready_runs():
        if config.name.endswith("-plan"):  # for `das plan` alone
            continue
        spent[config.output.directory] += 1
        grant = config.privacy.budget_id
        if isinstance(config, SurveyConfig):
            spent[account, config.privacy.product, grant] += 1
        else:
            run = load_run(CONF / "run" / f"{config.name}.yaml")
            for product in run.products.values():
                spent[account, product.account_name, grant] += 1
    assert {one for one, n in spent.items() if n > 1} == set()


def ready_runs() -> Iterator[tuple[RunConfig | SurveyConfig, list[Path], Path]]:
    """Run files that write below `build`, with their inputs and account."""
    for path in sorted((CONF / "run").glob("*.yaml")):
        config: RunConfig | SurveyConfig
        if is_survey(path):
            config = absolute(read_model(path, SurveyConfig), path.parent)
            inputs = [config.data.path]
        else:
            config = absolute(read_run_file(path), path.parent)
            inputs = [product.input.path for product in config.products.values()]
        assert ROOT / "build" in config.output.directory.parents
        yield config, inputs, config.privacy.account or default_account(*inputs)


def test_levels_written_as_ranges_are_the_same_schema_and_the_same_run(project):
    project.schema["attributes"][1]["levels"] = [str(age) for age in range(8, 13)]
    project.schema["recodes"][0]["groups"] = {"minor": ["8", "9", "10"], "grown": ["11", "12"]}
    project.run["data"]["columns"]["age"] = "age"
    listed = project.load()
    project.schema["attributes"][1]["levels"] = "8..12"
    project.schema["recodes"][0]["groups"] = {"minor": "8..10", "grown": ["11 .. 12"]}
    ranges = project.load()
    assert ranges.plan.schema == listed.plan.schema
    assert ranges.plan.digest == listed.plan.digest
    project.schema["attributes"][1]["levels"] = ["08..12"]
    project.schema["recodes"][0]["groups"] = {"minor": "08..10", "grown": "11..12"}
    assert project.load().plan.schema.attribute("age").levels == ("08", "09", "10", "11", "12")


def test_every_shipped_schema_loads():
    for path in shipped("schema"):
        schema = load_schema(path)
        assert schema.name == path.stem
        assert schema.size == SIZES.get(schema.name, schema.size)


RUNS, SURVEYS = (
    [path for path in shipped("run") if is_survey(path) == survey] for survey in (False, True)
)


def test_every_shipped_survey_is_what_its_model_says():
    """Its public weights are files of their own, so it is not loaded here."""
    assert SURVEYS
    for path in SURVEYS:
        assert read_model(path, SurveyConfig).name == path.stem


def test_every_shipped_run_loads_without_its_data():
    for path in RUNS:
        resolved = load_run(path)
        assert resolved.config.name == path.stem
        assert resolved.plan.passes[-1][-1].name == "detailed"
        assert resolved.plan.budget.rho > 0
        assert not resolved.plan.not_for_release


def schema_of(allocation: Path) -> Path:
    """A schema that has the queries of a shipped allocation: its name begins with the schema's."""
    for name in sorted(SIZES, key=len, reverse=True):
        if allocation.stem.replace("-", "_").startswith(name):
            return CONF / "schema" / f"{name}.yaml"
    raise AssertionError(f"{allocation.name} names no shipped schema")


def shipped_strategy(path: Path) -> Strategy:
    levels = tuple(yaml.safe_load(path.read_text(encoding="utf-8"))["levels"])
    return load_allocation(
        path, load_schema(schema_of(path)), Spine(levels, tuple(range(len(levels))))
    )


def test_every_shipped_allocation_spends_exactly_rho():
    for path in shipped("allocation"):
        strategy = shipped_strategy(path)
        for planned in strategy.levels:
            planned.check_joint_cost(Neighbors.BOUNDED)
        budget = Budget(PERSONS, DELTA, Neighbors.BOUNDED)
        for stratum in [stratum.name for stratum in strategy.strata] or [""]:
            spent = Fraction(0)
            for level in range(len(strategy.levels)):
                for noisy in noisy_queries(strategy, budget, level, level):
                    if noisy.stratum in ("", stratum):
                        delta_sq = noisy.sensitivity_sq  # of a query that is charged jointly
                        if delta_sq is None:
                            delta_sq = l2_sensitivity_sq(noisy.query, Neighbors.BOUNDED)
                        spent += Fraction(delta_sq) / (2 * noisy.mechanism.sigma_sq)
            assert spent == PERSONS


@pytest.mark.parametrize(
    "path",
    sorted(p for p in (CONF / "allocation").iterdir() if re.search("-2020-|-production-", p.stem)),
    ids=lambda p: p.stem,
)
def test_beside_every_allocation_of_2020_lies_an_optimised_one(path):
    """Of the same geolevels; its source is the command that made it, with run files that exist."""
    name = path.name.replace("-persons-production-", "-persons-prims-production-")
    other = path.with_name(re.sub("-2020-|-production-", "-optimised-", name))
    names = [[level.geolevel for level in shipped_strategy(one).levels] for one in (path, other)]
    assert names[0] == names[1]
    source = yaml.safe_load(other.read_text())["source"]
    made = re.match(r"das plan (conf/run/[\w-]+\.yaml) --optimize (conf/allocation/\S+)", source)
    assert made is not None
    assert (CONF.parent / made[1]).exists()
    assert CONF.parent / made[2] == other


# --- the 2020 allocation of the United States ------------------------------------------------------


def production() -> dict[tuple[str, str], Any]:
    strategy = shipped_strategy(CONF / "allocation" / "pl94-2020-us.yaml")
    budget = Budget(PERSONS, DELTA, Neighbors.BOUNDED)
    return {
        (level.geolevel, _canonical(noisy.query.name)): noisy
        for index, level in enumerate(strategy.levels)
        for noisy in noisy_queries(strategy, budget, index, index)
    }


def _canonical(name: str) -> str:
    return " * ".join(sorted(name.split(" * ")))


@pytest.mark.parametrize(
    ("geolevel", "query", "sigma_sq"),
    [
        ("nation", "detailed", "19.66"),
        ("nation", "cenrace * hispanic * votingage", "142.9"),
        ("state", "total", "1.209"),
        ("state", "detailed", "19.84"),
        ("county", "total", "4.702"),
        ("county", "detailed", "19.49"),
        ("tract", "total", "6.110"),
        ("tract", "cenrace * hispanic", "4.953"),
        ("tract", "detailed", "19.86"),
        ("block_group", "total", "3.069"),
        ("block_group", "cenrace * hispanic", "4.960"),
        ("block_group", "detailed", "4.063"),
        ("block", "total", "7963"),
        ("block", "hhgq", "7963"),
        ("block", "detailed", "10.093"),
    ],
)
def test_published_noise_of_the_2020_allocation(geolevel, query, sigma_sq):
    digits = len(sigma_sq.partition(".")[2])
    assert f"{float(production()[geolevel, query].mechanism.sigma_sq):.{digits}f}" == sigma_sq


def test_the_2020_allocation_adds_up_exactly():
    assert sum(1 / noisy.mechanism.sigma_sq for noisy in production().values()) == PERSONS
    assert sum(noisy.cost for noisy in production().values()) == PERSONS
    assert len(production()) == 6 * 11 - 1  # the total of the nation is not measured
    answers = sum(n.query.size for (level, _), n in production().items() if level == "block")
    assert answers == 2603


@pytest.mark.parametrize(
    ("attribute", "epsilon"),
    [("hhgq", "7.24"), ("votingage", "7.57"), ("hispanic", "10.04"), ("cenrace", "10.08")],
)
def test_published_epsilon_of_one_attribute(attribute, epsilon):
    """What is spent on queries that touch the attribute, of which detailed is one."""
    names = {attribute, "detailed", "hhinstlevels" if attribute == "hhgq" else attribute}
    rho = sum(
        noisy.cost for (_, query), noisy in production().items() if names & set(query.split(" * "))
    )
    assert f"{epsilon_from_rho(rho, DELTA):.2f}" == epsilon


@pytest.mark.parametrize(
    ("below", "epsilon"),
    [
        ("block_group", "2.93"),
        ("tract", "9.38"),
        ("county", "11.70"),
        ("state", "13.05"),
        ("nation", "16.89"),
    ],
)
def test_published_epsilon_of_the_block_within_a_geounit(below, epsilon):
    """What is spent at geolevels below."""
    spine = ("nation", "state", "county", "tract", "block_group", "block")
    finer = spine[spine.index(below) + 1 :]
    rho = sum(noisy.cost for (level, _), noisy in production().items() if level in finer)
    assert f"{epsilon_from_rho(rho, DELTA):.2f}" == epsilon


# --- a run that is right ---------------------------------------------------------------------------


def test_a_run_resolves_to_plain_values(project, tmp_path):
    resolved = project.load()
    plan = resolved.plan
    assert resolved.source == tmp_path / "run.yaml"
    assert plan.schema.shape == (2, 3)
    assert plan.spine == Spine(("state", "block"), (2, 5))
    assert plan.budget == Budget(Fraction(1, 2), DELTA, Neighbors.BOUNDED)
    assert [q.query.name for q in plan.strategy.levels[1].queries] == ["sex * voting", "detailed"]
    assert [[q.name for q in one] for one in plan.passes] == [["total"], ["voting", "detailed"]]
    assert [i.geolevels for i in plan.invariants] == [("state",)]
    assert (plan.solving.tolerance, plan.not_for_release) == (1e-7, False)


def test_paths_are_relative_to_the_run_file(project, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = project.load().config
    assert config.products["persons"].data.path == tmp_path / "absent.csv"
    assert config.geography.geounits.path == tmp_path / "absent-blocks.csv"
    assert config.products["persons"].privacy.allocation == tmp_path / "allocation.yaml"
    assert config.products["persons"].schema_ == tmp_path / "schema.yaml"
    assert config.output.directory == tmp_path / "out"


def test_output_and_master_can_be_replaced(project, tmp_path):
    config = project.load(output=tmp_path / "other", master="local[1]").config
    assert config.output.directory == tmp_path / "other"
    assert config.runtime.master == "local[1]"


def test_epsilon_gives_the_largest_rho_that_implies_it(project):
    project.run["privacy"] = {"epsilon": "17.14", "allocation": "allocation.yaml"}
    budget = project.load().plan.budget
    assert budget.epsilon <= 17.14 < epsilon_from_rho(budget.rho + Fraction(1, 10**9), DELTA)


def test_seeded_noise_marks_the_plan(project):
    project.run["privacy"]["randomness"] = {"source": "seeded_not_for_release", "seed": 7}
    assert project.load().plan.not_for_release


def test_the_order_of_an_allocation_does_not_matter(project):
    project.allocation["levels"] = dict(reversed(project.allocation["levels"].items()))
    assert [one.geolevel for one in project.load().plan.strategy.levels] == ["state", "block"]


# --- mistakes --------------------------------------------------------------------------------------

Edit = Callable[[Project], object]


def put(document: str, *keys: str | int, value: Any) -> Edit:
    def edit(project: Project) -> None:
        inside = getattr(project, document)
        for key in keys[:-1]:
            inside = inside[key]
        inside[keys[-1]] = value

    return edit


def together(*edits: Edit) -> Edit:
    def edit(project: Project) -> None:
        for one in edits:
            one(project)

    return edit


def drop(document: str, *keys: str | int) -> Edit:
    def edit(project: Project) -> None:
        inside = getattr(project, document)
        for key in keys[:-1]:
            inside = inside[key]
        del inside[keys[-1]]

    return edit


def text(document: str, change: Callable[[str], str]) -> Edit:
    def edit(project: Project) -> None:
        written = yaml.safe_dump(project.document(document), sort_keys=False)
        setattr(project, document, change(written))

    return edit


MISTAKES: list[tuple[str, Edit, type[DasError], str, list[str]]] = [
    # what, edit, kind of error, file, what the message must say
    (
        "unknown key",
        put("run", "budget", value=1),
        ConfigError,
        "run",
        ["budget: is not a known key"],
    ),
    (
        "a character that is none in a code",
        put("run", "data", "columns", "sex", value={"column": "sex", "codes": {"\t": "f"}}),
        ConfigError,
        "run",
        ["data.columns.sex"],
    ),
    (
        "unknown key inside",
        put("run", "privacy", "delat", value="1/10"),
        ConfigError,
        "run",
        ["privacy.delat: is not a known key"],
    ),
    (
        "unknown key of an allocation",
        put("allocation", "levels", "block", "shares", value="1"),
        ConfigError,
        "allocation",
        ["levels.block.shares: is not a known key"],
    ),
    (
        "unknown key of a schema",
        put("schema", "attributes", 0, "label", value="x"),
        ConfigError,
        "schema",
        ["attributes.0.label: is not a known key"],
    ),
    ("missing key", drop("run", "output"), ConfigError, "run", ["output: is required"]),
    (
        "missing key inside",
        drop("run", "data", "columns"),
        ConfigError,
        "run",
        ["data.columns: is required"],
    ),
    (
        "two mistakes",
        lambda p: (drop("run", "output")(p), put("run", "x", value=1)(p)),
        ConfigError,
        "run",
        ["output: is required", " | ", "x: is not a known key"],
    ),
    (
        "unknown format",
        put("run", "data", "input_format", value="excel"),
        ConfigError,
        "run",
        ["data", "excel", "records"],
    ),
    (
        "float budget",
        put("run", "privacy", "rho", value=0.5),
        ConfigError,
        "run",
        ["privacy.rho", "floating-point number, which is not exact", "got 0.5"],
    ),
    (
        "float share",
        put("allocation", "levels", "block", "share", value=0.5),
        ConfigError,
        "allocation",
        ["levels.block.share", "not exact", "got 0.5"],
    ),
    (
        "float query share",
        put("allocation", "levels", "block", "queries", "detailed", value=0.8),
        ConfigError,
        "allocation",
        ["levels.block.queries.detailed", "not exact", "got 0.8"],
    ),
    (
        "budget that is no number",
        put("run", "privacy", "rho", value="lots"),
        ConfigError,
        "run",
        ["privacy.rho", "is not a fraction", "got 'lots'"],
    ),
    (
        "zero budget",
        put("run", "privacy", "rho", value="0"),
        ConfigError,
        "run",
        ["privacy.rho: Input should be greater than 0; got '0'"],
    ),
    (
        "negative epsilon",
        lambda p: p.run.update(privacy={"epsilon": "-1", "allocation": "allocation.yaml"}),
        ConfigError,
        "run",
        ["privacy.epsilon: Input should be greater than 0; got '-1'"],
    ),
    (
        "both budgets",
        put("run", "privacy", "epsilon", value="1"),
        ConfigError,
        "run",
        ["privacy: give exactly one of `rho` and `epsilon`"],
    ),
    (
        "no budget",
        drop("run", "privacy", "rho"),
        ConfigError,
        "run",
        ["privacy: give exactly one of `rho` and `epsilon`"],
    ),
    (
        "delta of one",
        put("run", "privacy", "delta", value="1"),
        ConfigError,
        "run",
        ["privacy.delta: Input should be less than 1; got '1'"],
    ),
    (
        "rho under pure differential privacy",
        put("run", "privacy", "definition", value="pure"),
        ConfigError,
        "run",
        ["privacy: definition pure counts `epsilon`, not `rho`"],
    ),
    (
        "unknown definition",
        put("run", "privacy", "definition", value="renyi"),
        ConfigError,
        "run",
        ["privacy.definition", "'zcdp' or 'pure'", "got 'renyi'"],
    ),
    (
        "query that is not a partition",
        put(
            "allocation",
            "levels",
            "block",
            "queries",
            value={"prefix(age)": "1/2", "detailed": "1/2"},
        ),
        SchemaError,
        "allocation",
        ["geolevel block: query prefix(age): cannot be measured", "are for output.tables"],
    ),
    (
        "unknown neighbors",
        put("run", "privacy", "neighbors", value="close"),
        ConfigError,
        "run",
        ["privacy.neighbors", "'bounded' or 'unbounded'", "got 'close'"],
    ),
    (
        "seed without its source",
        put("run", "privacy", "randomness", value={"seed": 7}),
        ConfigError,
        "run",
        ["privacy.randomness", "`seed` goes with source seeded_not_for_release"],
    ),
    (
        "source without its seed",
        put("run", "privacy", "randomness", value={"source": "seeded_not_for_release"}),
        ConfigError,
        "run",
        ["privacy.randomness", "`seed` goes with source seeded_not_for_release"],
    ),
    (
        "text that is a bool",
        put("schema", "attributes", 0, "levels", value=["female", True]),
        ConfigError,
        "schema",
        ["attributes.0.levels.1", "must be text; put quotes around it; got True"],
    ),
    (
        "loose tolerance",
        put("run", "solve", "tolerance", value=0.1),
        ConfigError,
        "run",
        ["solve.tolerance", "less than 0.01", "got 0.1"],
    ),
    (
        "zero tolerance",
        put("run", "solve", "tolerance", value=0),
        ConfigError,
        "run",
        ["solve.tolerance", "greater than 0", "got 0"],
    ),
    (
        "negative digits",
        put("run", "geography", "levels", 0, "digits", value=-1),
        ConfigError,
        "run",
        ["geography.levels.0.digits", "got -1"],
    ),
    (
        "name of a geolevel that is no folder name",
        put("run", "geography", "levels", 0, "name", value="a/b"),
        ConfigError,
        "run",
        ["geography.levels.0.name", "got 'a/b'"],
    ),
    (
        "list where a map belongs",
        put("run", "geography", value=["state"]),
        ConfigError,
        "run",
        ["geography", "got list"],
    ),
    (
        "key twice",
        text("run", lambda t: t + "\nname: again\n"),
        ConfigError,
        "run",
        ["key 'name' appears twice"],
    ),
    (
        "geolevel twice in an allocation",
        text("allocation", lambda t: t + "  block: {share: '1', queries: {detailed: '1'}}\n"),
        ConfigError,
        "allocation",
        ["key 'block' appears twice"],
    ),
    (
        "bad YAML",
        text("schema", lambda t: t + "\n  - ]\n"),
        ConfigError,
        "schema",
        ["is not valid YAML; got", "line"],
    ),
    ("empty file", text("run", lambda t: ""), ConfigError, "run", ["must be a map of keys"]),
    ("a list", text("allocation", lambda t: "- 1"), ConfigError, "allocation", ["got list"]),
    (
        "absent file",
        put("run", "schema", value="nowhere.yaml"),
        ConfigError,
        "nowhere",
        ["cannot be read; got No such file"],
    ),
    # meaning
    (
        "level twice",
        put("schema", "attributes", 0, "levels", value=["m", "m"]),
        SchemaError,
        "schema",
        ["attribute sex: has a level twice; got ['m']"],
    ),
    (
        "level without a group",
        put("schema", "recodes", 0, "groups", value={"minor": ["child"], "grown": ["adult"]}),
        SchemaError,
        "schema",
        ["recode voting of age: leaves levels without a group; got ['old']"],
    ),
    (
        "a range of levels that ends with none",
        put("schema", "recodes", 0, "groups", "grown", value="adult..older"),
        SchemaError,
        "schema",
        ["recode voting, group grown: has the range adult..older", "got ['older']"],
    ),
    (
        "a range of levels that ends before it begins",
        put("schema", "recodes", 0, "groups", "grown", value=["old..adult"]),
        SchemaError,
        "schema",
        ["group grown: has a range that ends before it begins; got old..adult"],
    ),
    (
        "levels by a range of numbers that falls",
        put("schema", "attributes", 1, "levels", value="9..3"),
        ConfigError,
        "schema",
        ["attributes.1.levels: range 9..3 must rise, by at most 3000 levels"],
    ),
    (
        "recode of an unknown attribute",
        put("schema", "recodes", 0, "attribute", value="race"),
        ConfigError,
        "schema",
        ["recodes.0.attribute: is unknown; got race; expected ['sex', 'age']"],
    ),
    (
        "unknown query",
        put("allocation", "levels", "block", "queries", value={"race": "1/5", "detailed": "4/5"}),
        SchemaError,
        "allocation",
        ["has no such attribute or recode; got race"],
    ),
    (
        "an attribute without a column, and one too many",
        put("run", "data", "columns", value={"sex": "sex", "ages": "age"}),
        ConfigError,
        "run",
        ["data.columns: lacks the attribute age", "data.columns.ages: is no attribute"],
    ),
    (
        "codes of unknown levels",
        put("run", "data", "columns", "sex", "codes", value={"1": "men", "2": "women"}),
        ConfigError,
        "run",
        ["data.columns.sex.codes.1: ", "got men", "data.columns.sex.codes.2: ", "got women"],
    ),
    (
        "a spreadsheet",
        put("run", "data", "path", value="persons.xlsx"),
        InputError,
        "run",
        ["data.path", "persons.xlsx: has an unknown file type"],
    ),
    (
        "a spreadsheet of geounits",
        put("run", "geography", "geounits", "path", value="blocks.xlsx"),
        InputError,
        "run",
        ["geography.geounits", "blocks.xlsx: has an unknown file type"],
    ),
    (
        "a table of an unknown query",
        put("run", "output", "tables", value=["total", "totals"]),
        SchemaError,
        "run",
        [
            "output.tables",
            "got totals, did you mean total?; expected total, detailed, or some of ['sex', 'age', ",
        ],
    ),
    (
        "mistakes in several sections",
        together(
            put("run", "data", "columns", value={"sex": "sex"}),
            put("run", "output", "tables", value=["sex, age"]),
            put("run", "invariants", value=[{"query": "race", "geolevel": "state"}]),
            put("allocation", "levels", "block", "share", value="1/2"),
        ),
        ConfigError,
        "run",
        [
            "lacks the attribute age",
            "got sex, age",
            "invariants: 0: schema toy: has no such attribute or recode; got race",
            "the shares of the geolevels do not sum to 1",
        ],
    ),
    (
        "unknown geolevel",
        lambda p: p.allocation["levels"].update(tract=p.allocation["levels"].pop("block")),
        BudgetError,
        "allocation",
        ["has no entry for block; got ['state', 'tract']"],
    ),
    (
        "a geolevel too many",
        put("allocation", "levels", "tract", value=ALLOCATION["levels"]["block"]),
        BudgetError,
        "allocation",
        ["names a geolevel the spine lacks; got ['tract']; expected ['state', 'block']"],
    ),
    (
        "query shares that do not sum to one",
        put("allocation", "levels", "block", "queries", "detailed", value="7/10"),
        BudgetError,
        "allocation",
        ["geolevel block: the shares of its queries do not sum to 1; got 9/10"],
    ),
    (
        "geolevel shares that do not sum to one",
        put("allocation", "levels", "block", "share", value="1/3"),
        BudgetError,
        "allocation",
        ["the shares of the geolevels do not sum to 1; got 2/3"],
    ),
    (
        "zero share",
        put("allocation", "levels", "block", "queries", value={"total": "0", "detailed": "1"}),
        BudgetError,
        "allocation",
        ["geolevel block, query total: share must be positive; got 0"],
    ),
    (
        "the same query under two names",
        put(
            "allocation", "levels", "block", "queries", value={"sex*age": "1/2", "detailed": "1/2"}
        ),
        BudgetError,
        "allocation",
        ["geolevel block: lists a query twice; got ['detailed']"],
    ),
    (
        "no detailed query",
        put("allocation", "levels", "block", "queries", value={"total": "1"}),
        BudgetError,
        "allocation",
        ["geolevel block: its queries do not have full column rank"],
    ),
    (
        "prefixes that do not grow",
        put("run", "geography", "levels", 1, "digits", value=2),
        GeographyError,
        "run",
        ["geography.levels", "prefix lengths must increase from the root; got [2, 2]"],
    ),
    (
        "invariant at an unknown geolevel",
        put("run", "invariants", 0, "geolevel", value="tract"),
        SchemaError,
        "run",
        ["invariants", "names an unknown geolevel; got tract"],
    ),
    (
        "crossing invariants",
        put(
            "run",
            "invariants",
            value=[{"query": q, "geolevel": "state"} for q in ("sex", "voting")],
        ),
        SchemaError,
        "run",
        ["invariants", "must be nested; got sex and voting"],
    ),
    (
        "crossing rounding queries",
        put("run", "solve", "rounding_passes", value=[["sex"], ["voting", "detailed"]]),
        SchemaError,
        "run",
        ["solve", "voting does not refine sex, which comes before it"],
    ),
    (
        "rounding that does not end in detailed",
        put("run", "solve", "rounding_passes", value=[["total"]]),
        SchemaError,
        "run",
        ["solve", "the last query of the last pass must be detailed"],
    ),
    (
        "no rounding",
        put("run", "solve", "rounding_passes", value=[]),
        SchemaError,
        "run",
        ["solve", "the last query of the last pass must be detailed"],
    ),
    (
        "rounding query twice",
        put("run", "solve", "rounding_passes", value=[["total", "total"], ["detailed"]]),
        SchemaError,
        "run",
        ["solve", "total does not refine total"],
    ),
    (
        "rounding that crosses an invariant",
        put("run", "invariants", value=[{"query": "sex", "geolevel": "state"}]),
        SchemaError,
        "run",
        ["solve", "voting and the invariant sex cross"],
    ),
    (
        "order of an unknown geolevel",
        put("run", "solve", "l2_passes", value={"tract": [["total"]]}),
        ConfigError,
        "run",
        ["solve", "l2_passes: names an unknown geolevel; got tract; expected ['state', 'block']"],
    ),
    (
        "order of a query that is not measured there",
        put("run", "solve", "l2_passes", value={"block": [["total"]]}),
        ConfigError,
        "run",
        [
            "solve",
            "l2_passes.block: lists each partition query that is measured there at most once",
            "got total; expected ['sex * voting', 'detailed']",
        ],
    ),
    (
        "order with a query in two passes",
        put("run", "solve", "l2_passes", value={"state": [["total"], ["detailed", "total"]]}),
        ConfigError,
        "run",
        ["solve", "l2_passes.state: lists each", "at most once; got total"],
    ),
    (
        "order with an unknown query",
        put("run", "solve", "l2_passes", value={"state": [["race"]]}),
        SchemaError,
        "run",
        ["solve", "has no such attribute or recode; got race"],
    ),
    (
        "learned prior of an unknown geolevel",
        put("run", "solve", "empirical_bayes", value=["block", "tract"]),
        ConfigError,
        "run",
        ["solve", "empirical_bayes: names an unknown geolevel; got tract"],
    ),
    (
        "unknown method",
        put("run", "solve", "method", value="ols"),
        ConfigError,
        "run",
        ["solve.method", "got 'ols'"],
    ),
]


@pytest.mark.parametrize(
    ("edit", "kind", "file", "said"),
    [pytest.param(*rest, id=what.replace(" ", "-")) for what, *rest in MISTAKES],
)
def test_a_mistake_is_one_error_that_names_the_file_and_the_key(project, edit, kind, file, said):
    project.load()
    edit(project)
    with pytest.raises(DasError) as caught:
        project.load()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert file in message.partition(":")[0]
    for words in said:
        assert words in message
    assert "\n" not in message
    assert "function-" not in message  # a name of the validator, not of a key


def test_an_epsilon_too_small_for_any_budget_names_the_file(project):
    project.run["privacy"] = {"epsilon": "1/10000000", "allocation": "allocation.yaml"}
    with pytest.raises(BudgetError, match=r"run\.yaml: .*is too small for any budget"):
        project.load()


def test_an_unknown_query_names_its_geolevel(project):
    project.allocation["levels"]["block"]["queries"] = {"race": "1/5", "detailed": "4/5"}
    with pytest.raises(SchemaError, match="block"):
        project.load()


@pytest.mark.parametrize(
    ("key", "solver", "package"),
    [
        ("least_squares", "piqp", "piqp"),
        ("least_squares", "gurobi", "gurobipy"),
        ("integers", "gurobi", "gurobipy"),
    ],
)
def test_a_solver_that_is_not_installed_is_named(project, monkeypatch, key, solver, package):
    project.run["solve"][key] = solver
    installed = {package}
    monkeypatch.setattr(
        "jobs.pipeline.config.runnable.find_spec",
        lambda name: find_spec("json") if name in installed else None,
    )
    assert getattr(project.load().plan.solving, key) == solver
    installed.clear()
    with pytest.raises(RuntimeSetupError) as caught:
        project.load()
    assert f"solver {solver}: the package {package} is not installed" in str(caught.value)
    assert f"pip install '.[{solver}]' in a clone" in str(caught.value)


def test_how_answers_become_counts_is_resolved(project):
    """Names of queries are brought to the form in which they are measured."""
    assert project.load().plan.solving == Solving()
    project.run["solve"] |= {
        "fit_to": "level",
        "empirical_bayes": ["block"],
        "l2_passes": {"block": [["voting * sex"]]},
        "method": "reweighted",
        "failsafe": "penalty",
    }
    solving = project.load().plan.solving
    assert solving.l2_passes == {"block": (("sex * voting",),)}
    assert (solving.fit_to, solving.empirical_bayes) == ("level", ("block",))
    assert (solving.method, solving.failsafe) == ("reweighted", "penalty")


@pytest.mark.parametrize("failsafe", ["exact", "penalty", "none"])
def test_a_failsafe_is_chosen_and_enters_the_digest_of_solving(project, failsafe):
    digest = project.load().plan.solve_digest
    project.run["solve"]["failsafe"] = failsafe
    plan = project.load().plan
    assert plan.solving.failsafe == failsafe
    assert (plan.solve_digest == digest) == (failsafe == "exact")


def test_a_penalty_beside_rows_is_refused_where_matrices_are_too_large(project, monkeypatch):
    row = {"name": "r", "row": [{"cells": {"sex": ["male"]}}], "geolevel": "block", "at_most": 9}
    project.run["invariants"] = [row]
    monkeypatch.setattr("jobs.pipeline.config.runnable.MOST_CELLS_OF_PARTITIONS", 5)
    assert project.load().plan.solving.failsafe == "exact"
    project.run["solve"]["failsafe"] = "penalty"
    with pytest.raises(ConfigError, match=r"geolevel block: the failsafe penalty forms matrices"):
        project.load()
    project.run["invariants"].pop()
    assert project.load().plan.solving.failsafe == "penalty"


# --- the digest ------------------------------------------------------------------------------------

SAME: dict[str, Edit] = {
    "name": put("run", "name", value="other"),
    "output": put("run", "output", value={"directory": "elsewhere", "microdata": ["csv"]}),
    "runtime": put("run", "runtime", value={"master": "local[1]", "spark": {"a": "b"}}),
    "a default spelled out": put("run", "privacy", "delta", value="1/10000000000"),
    "zeros that are kept": put("run", "data", "leading_zeros", value="kept"),
    "commas of the list": put("run", "geography", "geounits", "delimiter", value=","),
    "rho spelled otherwise": put("run", "privacy", "rho", value="0.5"),
    "comments": text("run", lambda t: "# comment\n" + t),
}
DIFFERENT: dict[str, Edit] = {
    "rho": put("run", "privacy", "rho", value="1/3"),
    "epsilon": lambda p: p.run.update(privacy={"epsilon": "1", "allocation": "allocation.yaml"}),
    "delta": put("run", "privacy", "delta", value="1/1000"),
    "neighbors": put("run", "privacy", "neighbors", value="unbounded"),
    "randomness": put(
        "run", "privacy", "randomness", value={"source": "seeded_not_for_release", "seed": 1}
    ),
    "share": lambda p: (
        put("allocation", "levels", "block", "share", value="1/2")(p),
        put("allocation", "levels", "state", "share", value="1/2")(p),
    ),
    "query": put("allocation", "levels", "block", "queries", value={"detailed": "1"}),
    "invariants": put("run", "invariants", value=[]),
    "data path": put("run", "data", "path", value="other.csv"),
    "data codes": put("run", "data", "columns", "age", value="years"),
    "geounits": drop("run", "geography", "geounits"),
    "zeros that are lost": put("run", "data", "leading_zeros", value="lost"),
    "zeros of the list": put("run", "geography", "geounits", "leading_zeros", value="lost"),
    "semicolons of the list": put("run", "geography", "geounits", "delimiter", value=";"),
    "digits": put("run", "geography", "levels", 1, "digits", value=6),
    "order of levels": put("schema", "attributes", 0, "levels", value=["male", "female"]),
    "order of attributes": put("schema", "attributes", value=SCHEMA["attributes"][::-1]),
    "label of a level": together(
        put("schema", "attributes", 0, "levels", value=["f", "male"]),
        put("run", "data", "columns", "sex", "codes", value={"1": "male", "2": "f"}),
    ),
    "label of a group": put(
        "schema", "recodes", 0, "groups", value={"young": ["child"], "grown": ["adult", "old"]}
    ),
}
SOLVING: dict[str, Edit] = {
    "rounding": put("run", "solve", "rounding_passes", value=[["detailed"]]),
    "passes": put("run", "solve", "rounding_passes", value=[["total", "voting"], ["detailed"]]),
    "tolerance": put("run", "solve", "tolerance", value=1e-8),
    "targets": put("run", "solve", "fit_to", value="level"),
    "learned prior": put("run", "solve", "empirical_bayes", value=["block"]),
    "order": put("run", "solve", "l2_passes", value={"state": [["total"]]}),
    "method": put("run", "solve", "method", value="sequential"),
    "solver": put("run", "solve", "least_squares", value="piqp"),
    "failsafe": put("run", "solve", "failsafe", value="none"),
}
ORDER = {
    "order of groups": put(
        "schema", "recodes", 0, "groups", value={"grown": ["adult", "old"], "minor": ["child"]}
    ),
    "order of queries": put(
        "allocation",
        "levels",
        "block",
        "queries",
        value={"detailed": "4/5", "voting * sex": "1/5"},
    ),
}


@given(st.lists(st.sampled_from(sorted(SAME)), unique=True, max_size=3))
def test_the_digest_does_not_change_with_what_changes_no_output(tmp_path_factory, edits):
    folder = tmp_path_factory.mktemp("same")
    expected = Project(folder).load().plan.digest
    project = Project(folder)
    for edit in sorted(edits, key=lambda name: name == "comments"):
        SAME[edit](project)
    assert project.load().plan.digest == expected


@pytest.mark.parametrize("name", SOLVING)
def test_the_digest_of_the_measurements_leaves_out_what_follows_from_them(project, name):
    """Of solving there is a digest of its own."""
    before = project.load()
    SOLVING[name](project)
    after = project.load()
    assert after.plan.digest == before.plan.digest
    assert after.plan.solve_digest != before.plan.solve_digest
    settings = [settings_digest(settings_of(one.config)) for one in (before, after)]
    assert settings[0] != settings[1]


@pytest.mark.parametrize(("key", "value"), [("tables", ["total"]), ("microdata", []), ("h1", None)])
def test_outputs_are_settings_but_not_of_solving(project, key, value):
    before = project.load()
    put("run", "output", key, value=value)(project)
    after = project.load()
    assert (after.plan.digest, after.plan.solve_digest) == (
        before.plan.digest,
        before.plan.solve_digest,
    )
    settings = [settings_of(one.config) for one in (before, after)]
    assert (settings[0] == settings[1]) == (key == "h1")
    put("run", "output", "directory", value="elsewhere")(project)
    assert settings_of(project.load().config) == settings[1]


@pytest.mark.parametrize(
    "name",
    [
        *DIFFERENT,
        *ORDER,
    ],
)
def test_the_digest_changes_with_everything_else(project, name):
    before = project.load().plan.digest
    (DIFFERENT | ORDER)[name](project)
    after = project.load().plan.digest
    assert after != before
    assert len(after) == 64


@given(st.lists(st.sampled_from(sorted(DIFFERENT | SOLVING)), min_size=2, max_size=2, unique=True))
def test_different_edits_give_different_digests(tmp_path_factory, edits):
    digests = set()
    for edit in edits:
        project = Project(tmp_path_factory.mktemp("different"))
        (DIFFERENT | SOLVING)[edit](project)
        plan = project.load().plan
        digests.add((plan.digest, plan.solve_digest))
    assert len(digests) == 2


def test_the_digest_does_not_change_with_the_folder(tmp_path):
    digests = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        digests.add(Project(tmp_path / name).load().plan.digest)
    assert len(digests) == 1
