"""The manifest of a tiny release says what is in its files, what was measured and what it cost."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from das.errors import OutputError
from geography.lattice import Lattice
from invariants.constraints import Constraints
from invariants.linear import LinearRow
from jobs.pipeline.config.product import TablesWanted
from jobs.pipeline.documents.manifest import Environment, Solution
from jobs.pipeline.plan import planned_ledger
from jobs.pipeline.release.implied import publish_implied
from jobs.pipeline.release.manifest import RunFacts, finalize_product
from jobs.pipeline.release.microdata import write_microdata
from jobs.pipeline.release.solve import solve_level
from jobs.pipeline.release.tables import write_tables
from jobs.pipeline.storage.dataset import Dataset
from tests.builders import two_families as two

# County 13 is one block, so both are measured once, with the budget of both.
BLOCKS = {**two.BLOCKS, "131": (1, 1, 0, 2)}
PERSONS = sum(map(sum, BLOCKS.values()))
LATTICE = Lattice.from_leaves(two.SPINE, sorted(BLOCKS))
ROW = LinearRow("men", np.array([0, 0, 1, 1]), two.SPINE.levels, 0, 99)
PLAN = two.plan(
    invariants=(two.exact("total", "county"),),
    limits=Constraints((ROW,)),
)
FACTS = RunFacts(
    "tiny",
    None,
    "public list",
    Environment(cores=2, slots=1, spark="none", java="none", platform="test"),
    Solution(name=None, digest="solve digest", settings={}, history=()),
)


@pytest.fixture
def release(tmp_path):
    """Measured without noise, solved, written."""
    layout = two.release(tmp_path, BLOCKS)
    for geolevel in two.SPINE.levels:
        two.write_noisy(layout, PLAN, geolevel, BLOCKS)
        if geolevel != "block":
            two.write_exact(layout, geolevel, ["total"], BLOCKS)
    publish_implied(PLAN, layout, two.TASKS)
    for level in PLAN.levels:
        solve_level(level, plan=PLAN, release=layout, tasks=two.TASKS)
    write_microdata(PLAN, layout, ["parquet", "csv"], two.TASKS)
    queries = {level: [two.query("age")] for level in two.SPINE.levels}
    write_tables(PLAN, layout, TablesWanted(queries, ["parquet", "csv"]), two.TASKS)
    layout.ledger.write_text("a ledger\n")
    return layout


def written(layout, plan=PLAN, facts=FACTS) -> dict:
    finalize_product(plan, planned_ledger(plan, LATTICE), layout, facts)
    return json.loads(layout.manifest.read_text())


def test_geography_tells_measured_geounits_from_only_children(release):
    rows = {row.pop("geolevel"): row for row in written(release)["geography"]}
    assert rows == {
        "state": {"digits": 1, "geounits": 1, "measured": 1, "only_children": 0},
        "county": {"digits": 2, "geounits": 3, "measured": 3, "only_children": 0},
        "block": {"digits": 3, "geounits": 5, "measured": 4, "only_children": 1},
    }


def test_every_path_from_the_root_costs_the_budget(release):
    document = written(release)
    costs: dict[tuple[str, str], Fraction] = {}
    for row in document["budget"]:
        key = (row["geolevel"], row["chain_end"])
        costs[key] = costs.get(key, Fraction(0)) + Fraction(row["cost"])
        assert row["charged"] == "alone"
    state, county, block = (costs[level, level] for level in two.SPINE.levels)
    assert state + county + block == PLAN.budget.total
    assert state + costs["county", "block"] == PLAN.budget.total
    assert Fraction(document["privacy"]["total"]) == PLAN.budget.total
    geounits = {(r["geolevel"], r["chain_end"]): r["geounits"] for r in document["budget"]}
    assert geounits == {
        ("state", "state"): 1,
        ("county", "county"): 2,
        ("county", "block"): 1,
        ("block", "block"): 4,
    }


def test_outputs_are_the_datasets_that_are_there(release):
    outputs = {row["path"]: row for row in written(release)["outputs"]}
    for path, row in outputs.items():
        manifest = release.root / path / "_manifest.json"
        dataset = Dataset.open(release.root / path)
        assert row["sha256"] == hashlib.sha256(manifest.read_bytes()).hexdigest()
        in_two_formats = path.startswith("tables")
        assert row["rows"] == dataset.rows // (2 if in_two_formats else 1)
        assert row["bytes"] == sum((dataset.path / p.file).stat().st_size for p in dataset.parts)
    folders = {path.split("/")[0] for path in outputs}
    assert folders == {
        "measurements",
        "invariants",
        "implied",
        "counts",
        "microdata",
        "tables",
    }
    assert len(outputs) == 3 * 4 + 2 + 2  # invariants at two geolevels, microdata in two formats
    assert [column["name"] for column in outputs["tables/level=block"]["columns"]] == [
        "geolevel",
        "geocode",
        "age",
        "count",
    ]
    for name in ("parquet", "csv"):
        columns = outputs[f"microdata/{name}"]["columns"]
        assert columns == [{"name": n, "type": "text"} for n in ("geocode", "sex", "age")]


def test_totals_and_what_each_geolevel_took_to_solve(release):
    document = written(release, facts=replace(FACTS, records="people"))
    assert document["totals"] == {"people": PERSONS, "leaf_geounits": 5}
    solved = {row["geolevel"]: row for row in document["solve"]}
    assert list(solved) == list(two.SPINE.levels)
    assert (solved["block"]["nodes"], solved["block"]["copied"]) == (2, 1)
    assert solved["block"]["solve_digest"] == "solve digest"


def test_without_microdata_the_number_of_records_is_not_said(tmp_path, release):
    for name in ("parquet", "csv"):
        (release.microdata / name / "_manifest.json").unlink()
    assert written(release)["totals"] == {"persons": None, "leaf_geounits": 5}


def test_invariants_and_limits_are_named(release):
    document = written(release)
    assert document["invariants"] == [{"query": "total", "geolevels": ["state", "county"]}]
    assert document["limits"] == [
        {"kind": "bounded row", "name": "men", "geolevels": ["state", "county", "block"]}
    ]


def test_files_beside_the_datasets_have_digests(release):
    rows = {row["path"]: row for row in written(release)["files"]}
    assert set(rows) == {"ledger.jsonl", "README.md", "codebook.json", "codebook.md"}
    for name, row in rows.items():
        data = (release.root / name).read_bytes()
        assert row == {
            "path": name,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }


@pytest.mark.parametrize("is_test", [True, False])
def test_seeded_noise_is_said_in_the_manifest_and_in_a_file(release, is_test):
    document = written(release, replace(PLAN, not_for_release=is_test))
    assert document["not_for_release"] is is_test
    assert release.notice.exists() is is_test
    kinds = {True: "seeded_not_for_release", False: "operating_system"}
    assert document["privacy"]["randomness"] == kinds[is_test]


def test_open_sessions_are_named(release):
    dataset = release.measurements("county") / "_manifest.json"
    document = json.loads(dataset.read_text())
    document["facts"]["open_session"] = True
    dataset.write_text(json.dumps(document))
    assert written(release)["open_sessions"] == ["county"]


def test_an_incomplete_release_has_no_manifest(release):
    (release.counts("block") / "_manifest.json").unlink()
    with pytest.raises(OutputError, match="level=block: is not complete"):
        written(release)
    assert not release.manifest.exists()
