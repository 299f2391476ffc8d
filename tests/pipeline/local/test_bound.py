"""A small release made first, and detailed counts bound to it: every count of it is kept."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from das.errors import (
    ConfigError,
    DasError,
    InputError,
    LedgerError,
    OutputError,
    VerificationError,
)
from jobs.pipeline.confidential.inputs import check_present
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.account import read_account
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import execute, tasks_of
from tests.builders.places import release_of, truth_of
from tests.release_checks import sparse, tree_is_consistent

# Sex and voting age of the persons whose sex and age the toy schema has.
FIRST = {
    "name": "first",
    "attributes": [
        {"name": "sex", "levels": ["female", "male"]},
        {"name": "votingage", "levels": ["under_18", "18_and_over"]},
    ],
}
OLD = {"under_18": "under_18", "18_to_64": "18_and_over", "65_and_over": "18_and_over"}
BOUND = "sex * votingage"


def write_schemas(folder: Path) -> None:
    (folder / "first.yaml").write_text(yaml.safe_dump(FIRST))
    schema = yaml.safe_load((toy.ROOT / "conf/schema/toy.yaml").read_text())
    groups = {"under_18": ["under_18"], "18_and_over": "18_to_64..65_and_over"}
    schema["recodes"] = [{"name": "votingage", "attribute": "age", "groups": groups}]
    (folder / "second.yaml").write_text(yaml.safe_dump(schema))


def write_allocation(folder: Path, name: str, levels: list[str], queries: list[str]) -> str:
    shares = {query: f"1/{len(queries)}" for query in queries}
    document = {"share": f"1/{len(levels)}", "queries": shares}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "levels": dict.fromkeys(levels, document)}))
    return str(path)


def first(folder: Path, **changes: Any) -> Path:
    """The run file of the release that comes first, of three geolevels."""
    levels = ["state", "county", "block"]
    columns = {"sex": "sex", "votingage": {"column": "age", "codes": OLD}}
    return toy.configuration(
        folder,
        **{
            "schema": str(folder / "first.yaml"),
            "data__columns": columns,
            "geography__levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(levels, (2, 5, 10), strict=True)
            ],
            "privacy__allocation": write_allocation(folder, "a1", levels, ["total", "detailed"]),
            "output__directory": str(folder / "first"),
            **changes,
        },
    )


def second(folder: Path, released: dict[str, Any] | None = None, **changes: Any) -> Path:
    """The run file of all four geolevels that is bound to it."""
    source = {"path": str(folder / "first" / "release"), "query": "detailed"}
    bound = {"query": BOUND, "geolevel": "block", "released": released or source}
    return toy.configuration(
        folder,
        **{
            "schema": str(folder / "second.yaml"),
            "invariants": [bound],
            "privacy__allocation": write_allocation(folder, "a2", toy.LEVELS, ["age", "detailed"]),
            "privacy__on_demand_queries": ["detailed"],
            "privacy__rho": "1/5",
            "solve": {"fit_to": "level"},
            **changes,
        },
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the first release and the second, which is bound to it."""
    folder = tmp_path_factory.mktemp("bound")
    toy.write_records(folder)
    write_schemas(folder)
    execute(load_run(first(folder)))
    execute(load_run(second(folder)))
    return folder


def added_up(counts: dict[str, dict[int, int]], digits: int) -> dict[str, Counter[int]]:
    """Counts of leaves by a prefix of their geocodes."""
    out: dict[str, Counter[int]] = {}
    for code, cells in counts.items():
        out.setdefault(code[:digits], Counter()).update(cells)
    return out


def test_every_count_of_the_first_release_is_kept_at_every_geolevel(finished):
    before = sparse(release_of(finished / "first").counts("block"))
    assert before != sparse(truth_of(finished / "first").histograms("block"))
    for level, digits in zip(toy.LEVELS, (2, 5, 7, 10), strict=True):
        now: dict[str, Counter[int]] = {}
        for code, cells in sparse(release_of(finished / "out").counts(level)).items():
            for cell, count in cells.items():
                sex, age = divmod(cell, 3)
                now.setdefault(code, Counter())[2 * sex + (age > 0)] += count
        assert now == added_up(before, digits)
    assert tree_is_consistent(finished / "out", toy.LEVELS)


def test_verify_compares_the_counts_with_those_it_was_bound_to(finished):
    checked = verify_run(load_run(second(finished)))
    blocks, tracts, counties = 21, 6, 3
    assert checked["exact_answers"] == 4 * (blocks + tracts + counties + 1)
    manifest = json.loads((release_of(finished / "out").manifest).read_text())
    assert {"kind": "released before", "name": BOUND}.items() <= manifest["limits"][0].items()
    assert manifest["invariants"] == []


# --- what is refused, before anything is granted -------------------------------------------------


def resolve_constraints(config: Path) -> None:
    """Do what comes before the first grant."""
    resolved = load_run(config)
    check_present(resolved)
    with open_job(resolved, Reporter(quiet=True), tasks=tasks_of(resolved.config)) as job:
        do_stages(job, ("plan", "read"))
        do_stages(job, ("resolve_constraints",))


def copied(finished: Path, folder: Path) -> Path:
    """Another folder with the same data, schemas and first release."""
    shutil.copytree(finished, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("out"))
    return folder


def refused(config: Path) -> DasError:
    """The error of what comes before the first grant; nothing was drawn."""
    with pytest.raises(DasError) as caught:
        resolve_constraints(config)
    out = config.parent / "out"
    assert not (release_of(out).root / "measurements").exists()
    return caught.value


def test_a_release_of_other_persons_is_refused(finished, tmp_path):
    """Its total of the state is exact, so it must be that of the data."""
    folder = copied(finished, tmp_path)
    lines = (folder / "records.csv").read_text().splitlines()
    (folder / "records.csv").write_text("\n".join(lines[:-1]) + "\n")
    error = refused(second(folder))
    assert (type(error), error.where, error.got) == (
        InputError,
        "state 99",
        "total, which is exact in the release",
    )
    assert error.remedy == "bind the run to the release of these data"
    (folder / "records.csv").write_text("\n".join(lines) + "\n")
    shutil.rmtree(folder / "out")
    resolve_constraints(second(folder))


def test_an_invariant_of_the_data_that_the_release_does_not_have_is_refused(finished, tmp_path):
    folder = copied(finished, tmp_path)
    own = second(folder)
    stated = yaml.safe_load(own.read_text())
    entries = stated["products"]["persons"]["invariants"]
    entries.append({"query": "sex", "geolevel": "county"})
    own.write_text(yaml.safe_dump(stated))
    error = refused(own)
    assert (type(error), error.got) == (InputError, "the invariant sex")
    assert error.where.startswith("county ")


def test_a_release_of_other_geounits_is_refused(finished, tmp_path):
    folder = copied(finished, tmp_path)
    blocks = (folder / "blocks.csv").read_text()
    (folder / "blocks.csv").write_text(f"{blocks}9900503000\n")
    error = refused(second(folder))
    assert (type(error), error.got) == (InputError, "9900503000")
    assert "lacks geounits of the geolevel block (1 such)" in str(error)
    assert not (folder / "out").exists()  # nothing was read
    (folder / "blocks.csv").write_text(blocks)
    resolve_constraints(second(folder))


def test_a_release_that_was_changed_is_refused_by_validate(finished, tmp_path):
    folder = copied(finished, tmp_path)
    part, *_ = (folder / "first/release/products/persons/counts/level=block").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    with pytest.raises((OutputError, VerificationError), match="level=block"):
        check_present(load_run(second(folder)))


@pytest.mark.parametrize(
    ("released", "what"),
    [
        ({"query": "votingage"}, r"has other answers than sex \* votingage \(6 such\)"),
        ({"query": "prefix(votingage)"}, "is no partition of its records"),
        ({"query": "hhgq"}, "hhgq"),
        ({"product": "units"}, "has no such product; got units"),
        ({"answers": {"total": "total"}}, "must name every answer of"),
    ],
)
def test_answers_that_the_release_does_not_have_are_refused_by_validate(finished, released, what):
    source = {"path": str(finished / "first" / "release"), "query": "detailed"}
    folder = finished / "refused"
    folder.mkdir(exist_ok=True)
    write_schemas(folder)
    (folder / "records.csv").touch()
    with pytest.raises(DasError, match=what):
        check_present(load_run(second(folder, {**source, **released})))


def test_answers_go_by_the_names_they_have_in_the_release(finished, tmp_path):
    """Of a coarser query of the release than all it has."""
    folder = copied(finished, tmp_path)
    schema = yaml.safe_load((folder / "second.yaml").read_text())
    schema["recodes"][0]["groups"] = {"adult": "18_to_64..65_and_over", "minor": ["under_18"]}
    (folder / "second.yaml").write_text(yaml.safe_dump(schema))
    source = {"path": str(folder / "first" / "release"), "query": "votingage"}
    named = {"minor": "under_18", "adult": "18_and_over"}
    config = second(folder, {**source, "answers": named})
    document = yaml.safe_load(config.read_text())
    document["products"]["persons"]["invariants"][0]["query"] = "votingage"
    config.write_text(yaml.safe_dump(document))
    resolve_constraints(config)
    rows = rows_of(folder / "out/release/products/persons/given/level=state")
    (first_total,) = sparse(folder / "first/release/products/persons/counts/level=state").values()
    minors, adults = (first_total.get(i, 0) + first_total.get(i + 2, 0) for i in (0, 1))
    assert [row["answers"] for row in rows] == [[adults, minors]]  # groups as the file has them


def test_a_seeded_release_binds_no_run_for_release(finished, tmp_path):
    folder = copied(finished, tmp_path)
    secret = {
        "privacy__randomness": {"source": "operating_system"},
        "privacy__account": str(folder / "account.jsonl"),
        "privacy__budget_id": "one",
    }
    config = second(folder, **secret)
    with pytest.raises(ConfigError, match="has seeded noise") as caught:
        check_present(load_run(config))
    assert (
        caught.value.remedy == "make the earlier release again with noise of the operating system"
    )


def test_a_run_is_paid_from_the_account_of_the_release_it_is_bound_to(tmp_path):
    """By validate, and by a run that was not validated; nothing is claimed in the other account."""
    toy.write_records(tmp_path)
    write_schemas(tmp_path)
    secret = {
        "privacy__randomness": {"source": "operating_system"},
        "privacy__account": str(tmp_path / "office.jsonl"),
    }
    execute(first(tmp_path, **secret))
    other = tmp_path / "other.jsonl"
    config = second(tmp_path, **secret | {"privacy__account": str(other)})
    with pytest.raises(LedgerError, match="lacks a grant of the release that this run") as caught:
        check_present(load_run(config))
    assert caught.value.remedy == "name the account of that release under privacy.account"
    with pytest.raises(LedgerError):
        execute(config)
    assert read_account(other) == ()
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    config = second(tmp_path, **secret)
    check_present(load_run(config))
    execute(config)
    assert len(read_account(tmp_path / "office.jsonl")) == 2


def test_persons_whom_structural_zeros_leave_no_cell_are_refused(finished, tmp_path):
    """The release has minors; here nobody is a man under 18."""
    folder = copied(finished, tmp_path)
    config = second(folder)
    document = yaml.safe_load(config.read_text())
    entries = document["products"]["persons"]["invariants"]
    entries.append({"zero": {"sex": ["male"], "age": ["under_18"]}})
    config.write_text(yaml.safe_dump(document))
    error = refused(config)
    assert (type(error), error.got) == (InputError, "male / under_18")
    assert error.where.startswith("block, 99001")
    entries.pop()
    config.write_text(yaml.safe_dump(document))
    shutil.rmtree(folder / "out")
    resolve_constraints(config)


def test_a_public_table_of_earlier_counts_binds_like_a_release(finished, tmp_path):
    """Women by block, of which the data need not be; blocks without a row have none."""
    folder = copied(finished, tmp_path)
    women, men = toy.blocks()[:2]
    (folder / "sexes.csv").write_text(f"block,w,m\n{women},7,0\n{men},0,2\n")
    columns = {"female": "w", "male": "m"}
    table = {"path": str(folder / "sexes.csv"), "geocode": "block", "columns": columns}
    config = second(folder, {"table": table})
    document = yaml.safe_load(config.read_text())
    document["products"]["persons"]["invariants"][0]["query"] = "sex"
    config.write_text(yaml.safe_dump(document))
    execute(load_run(config))
    counts = sparse(folder / "out/release/products/persons/counts/level=block")
    sexes = {code: Counter[int]() for code in counts}
    for code, cells in counts.items():
        for cell, count in cells.items():
            sexes[code][cell // 3] += count
    assert sexes == {women: {0: 7}, men: {1: 2}}
    assert verify_run(load_run(config))["exact_answers"] == 2 * (21 + 6 + 3 + 1)


def test_people_of_the_release_where_nobody_can_live_are_refused(finished, tmp_path):
    folder = copied(finished, tmp_path)
    counts = sparse(finished / "first/release/products/persons/counts/level=block")
    truth = sparse(finished / "first/confidential/products/persons/histograms/level=block")
    inhabited = sorted(truth)
    homes = "\n".join(f"{code},1" for code in inhabited)
    (folder / "homes.csv").write_text(f"geocode,homes\n{homes}\n")
    table = {"path": str(folder / "homes.csv"), "columns": {"homes": "homes"}}
    quarters = {"living_quarters": ["homes"], "geolevel": "block", "table": table}
    config = second(folder)
    document = yaml.safe_load(config.read_text())
    document["products"]["persons"]["invariants"].append(quarters)
    config.write_text(yaml.safe_dump(document))
    assert {*counts} - {*truth}
    assert "there are no living quarters" in str(refused(config))


def test_rows_beside_an_earlier_release_are_refused(finished, tmp_path):
    """Nothing shows that the counts of the release can keep them."""
    folder = copied(finished, tmp_path)
    config = second(folder)
    document = yaml.safe_load(config.read_text())
    entries = document["products"]["persons"]["invariants"]
    cells = [{"cells": {"sex": ["male"]}}]
    entries.append({"name": "men", "row": cells, "geolevel": "county", "at_most": 5})
    config.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="may contradict the facilities or rows"):
        load_run(config)
    entries.pop()
    config.write_text(yaml.safe_dump(document))
    load_run(config)
