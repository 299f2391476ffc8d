"""Tables of a survey that keep exact marginals, by the commands their users type."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs.pipeline.storage.journal import read_journal
from tests.builders.survey import GROUPS, RECORDS, SEXES, configure, people, write_survey
from tests.pipeline.local.test_surveys import (
    claims,
    dies_in,
    done,
    measurements,
    refused,
    state_digest,
)

PURE = {"definition": "pure", "epsilon": "8"}
MEAN = {"mean": "age", "low": 0, "high": 100, "sd_bound": 25, "share": "1/2", "method": "clipped"}
TABLES = [
    {"query": "sex * group", "exact": ["sex"], "method": "conditioned", "share": "1/4"},
    {"query": "group * sex", "name": "both", "exact": ["sex", "group"], "share": "1/8"},
    {"query": "age", "name": "ages", "share": "1/8"},
]


def survey(folder: Path, **changes: Any) -> Path:
    settings = {
        "privacy": PURE,
        "synthesis": None,
        "statistics": [MEAN],
        "contingency_tables": TABLES,
    }
    return write_survey(folder, **{**settings, **changes})


def one_table(folder: Path, table: dict[str, Any], **changes: Any) -> Path:
    return survey(folder, statistics=[], contingency_tables=[{"share": "1", **table}], **changes)


def truth() -> Counter[tuple[str, str]]:
    return Counter((SEXES["12".index(row[0])], row[1].lower()) for row in people())


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open() as handle:
        return list(csv.DictReader(handle))


def test_tables_keep_their_exact_marginals_and_verify(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config)
    checked = json.loads(done(das, "verify", config))
    assert (checked["parts"], checked["spent"], checked["granted"]) == (4, "8", "8")
    true = truth()
    rows = rows_of(tmp_path / "out/release/tables/sex_group.csv")
    assert [(row["sex"], row["group"]) for row in rows] == [(s, g) for s in SEXES for g in GROUPS]
    for sex in SEXES:
        released = sum(int(row["count"]) for row in rows if row["sex"] == sex)
        assert released == sum(n for key, n in true.items() if key[0] == sex)
    both = rows_of(tmp_path / "out/release/tables/both.csv")
    for place, name in ((0, "sex"), (1, "group")):
        released = Counter()
        for row in both:
            released[row[name]] += int(row["count"])
        assert +released == Counter(key[place] for key in true.elements())
    [whole] = [rows_of(tmp_path / "out/release/tables/ages.csv")]
    assert sum(int(row["count"]) for row in whole) == RECORDS
    found = json.loads((tmp_path / "out/confidential/evaluation.json").read_text())["tables"]
    errors = [int(row["count"]) - true[row["sex"], row["group"]] for row in rows]
    assert found[0]["l1"] == sum(map(abs, errors))
    assert found[0]["l2"] == pytest.approx(sum(error**2 for error in errors) ** 0.5)
    assert [one["exact_held"] for one in found] == [True] * 3


def test_a_release_of_tables_is_certified_alone_and_names_what_is_exact(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config)
    release, page = tmp_path / "out/release", tmp_path / "page.html"
    assert json.loads(done(das, "verify", release)) == json.loads(done(das, "verify", config))
    done(das, "verify", release, "--certificate", page)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page.read_text()))
    assert "sex in the table sex group" in text
    assert "total in the table ages" in text
    assert "between data sets that agree on the exact marginals" in text
    assert "anything but what is exact" in text
    assert "pure differential privacy with ε = 8" in text


def test_what_is_proved_is_charged_and_stated(das, tmp_path):
    config = survey(tmp_path)
    text = done(das, "validate", config)
    assert "without protection: sex;" in text
    assert "(1 + 1) x 2 x 1/2 = 2; the smallest gamma that holds is 0." in text
    parts = json.loads(done(das, "validate", config, "--json"))["parts"]
    gammas = {part["part"]: part["effective_gamma"] for part in parts}
    assert gammas["age"] is gammas["both"] is None  # a mean, and a table of two exact marginals
    assert 0 < gammas["sex_group"] < gammas["ages"] < 1  # the ages are more cells
    done(das, "run", config)
    manifest = json.loads((tmp_path / "out/release/manifest.json").read_text())
    parts = {part["name"]: part for part in manifest["parts"]}
    assert {name: part["cost"] for name, part in parts.items()} == {
        "age": "4", "sex_group": "2", "both": "1", "ages": "1"
    }  # fmt: skip
    # A changed record changes two counts: (1 + 1) x 2 x (2 / 4) = 2.
    assert parts["sex_group"]["conditioned"] == {
        "k": 2, "gamma": "1", "epsilon": "1/2", "proved": "2", "exact": ["sex"]
    }  # fmt: skip
    assert parts["ages"]["conditioned"]["k"] == 1
    assert parts["ages"]["conditioned"]["exact"] == ["total"]
    ledger = read_journal(tmp_path / "out/release/ledger.jsonl")
    assert [line["cost"] for line in ledger if line["event"] == "measured"] == ["4", "2", "1", "1"]
    facts = json.loads(measurements(tmp_path)["part=sex_group"])["facts"]
    assert (facts["scale"], facts["records"]) == ("4", 2)


def test_tables_and_means_spend_one_grant_and_draw_once(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config)
    before = measurements(tmp_path)
    done(das, "run", config)
    after = measurements(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(claims(tmp_path)) == 1
    assert json.loads(done(das, "verify", config))["spent"] == "8"


@pytest.mark.parametrize(
    "place",
    [
        "jobs.survey.run.measure_part",
        "jobs.pipeline.folder.draws.accept",
        "jobs.survey.run.write_results",
    ],
)
def test_a_run_that_dies_goes_on_and_draws_nothing_twice(das, tmp_path, place):
    config = survey(tmp_path)
    dies_in(place, das, "run", config)
    before = measurements(tmp_path)
    done(das, "run", tmp_path / "out")
    after = measurements(tmp_path)
    assert {name: after[name] for name in before} == before
    assert json.loads(done(das, "verify", config))["spent"] == "8"


def test_lost_tables_are_not_drawn_again(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config)
    shutil.rmtree(tmp_path / "out/release/measurements/part=both")
    assert "drawn once" in refused(das, "run", config)


def test_a_changed_table_is_found(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config)
    root = tmp_path / "out/release"
    kept = {path: path.read_text() for path in (root / "tables.json", root / "tables/ages.csv")}

    def change(by: tuple[int, ...]) -> str:
        for path, text in kept.items():
            path.write_text(text)
        found = json.loads((root / "tables.json").read_text())
        counts = found["tables"][2]["counts"]
        found["tables"][2]["counts"] = [n + m for n, m in zip(counts, by, strict=True)]
        (root / "tables.json").write_text(json.dumps(found))
        state_digest(tmp_path, "tables.json")
        return refused(das, "verify", config)

    assert "does not keep its exact marginal" in change((1, 0, 0, 0, 0))
    assert "differs from the drawn table" in change((1, -1, 0, 0, 0))
    (root / "tables.json").write_text(kept[root / "tables.json"])
    state_digest(tmp_path, "tables.json")
    file = root / "tables/ages.csv"
    file.write_text(kept[file].replace("0 to 15,", "0 to 15,1"))
    assert "is not the one the manifest of the release names" in refused(das, "verify", config)
    state_digest(tmp_path, "tables/ages.csv")
    assert "does not hold the rows of tables.json" in refused(das, "verify", config)


def test_another_promise_in_the_manifest_is_found(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config)
    file = tmp_path / "out/release/manifest.json"
    text = file.read_text()
    assert '"gamma": "1"' in text
    file.write_text(text.replace('"gamma": "1"', '"gamma": "0"'))
    assert "manifest.json, parts.1.conditioned.gamma" in refused(das, "verify", config)


# --- refused by name -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "changes", "what"),
    [
        ({"query": "sex * group", "exact": ["sex"]}, {"privacy": {"rho": "1"}},
         "has no guarantee under zCDP"),
        ({"query": "sex * group", "exact": ["sex"]},
         {"privacy": {**PURE, "neighbors": "unbounded"}}, "unbounded neighbors protect"),
        ({"query": "sex * group", "exact": ["age"]}, {}, "names an attribute that is not in the table"),
        ({"query": "sex * group", "exact": ["group * sex"]}, {}, "is the whole table"),
        ({"query": "sex * group * age", "exact": ["sex", "sex * age"]}, {}, "another one implies"),
        ({"query": "sex * group", "exact": ["sex", "sex"]}, {}, "another one implies"),
        ({"query": "sex * place"}, {}, "names no column"),
        ({"query": "sex * sex"}, {}, "an attribute twice"),
        ({"query": "sex * group", "method": "projected"}, {}, "method"),
        ({"query": "sex * group", "share": "1/2"}, {}, "do not sum to 1"),
        ({"query": "sex * group", "share": "0"}, {}, "share: Input should be greater than 0"),
        ({"query": "sex * group", "name": "synthesis"}, {}, "name of another part"),
        ({"query": "sex * group * age * income", "exact": ["sex"]},
         {"data__columns__age__bins": [*range(0, 90, 3)]}, "has too many cells"),
        ({"query": "sex * group"}, {"privacy": {**PURE, "epsilon": "100000"}}, "so little noise"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_drawn_cost_nothing(das, tmp_path, table, changes, what):
    config = one_table(tmp_path, table, **changes)
    assert what in refused(das, "validate", config)
    assert what in refused(das, "run", config)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "persons.csv.das-account.jsonl").exists()


def test_a_table_that_another_one_publishes_is_refused(das, tmp_path):
    tables = [
        {"query": "sex * group", "share": "1/2"},
        {"query": "age * group * sex", "exact": ["group * sex"], "share": "1/2"},
    ]
    config = survey(tmp_path, statistics=[], contingency_tables=tables)
    assert "has sex_group, which age_group_sex publishes exactly" in refused(
        das, "validate", config
    )


def test_attributes_that_make_no_name_need_one(das, tmp_path):
    columns = {"Sex": {"column": "SEX", "codes": {"1": "m", "2": "f"}}}
    config = one_table(tmp_path, {"query": "Sex"}, data__columns=columns)
    assert "needs a `name`" in refused(das, "validate", config)
    config = one_table(tmp_path, {"query": "Sex", "name": "sex"}, data__columns=columns)
    done(das, "run", config)


def test_a_mean_whose_attribute_makes_no_name_needs_one(das, tmp_path):
    columns = {"../age": {"column": "AGE", "bins": [0, 16, 30]}}
    mean = {
        "mean": "../age",
        "low": 0,
        "high": 99,
        "sd_bound": 9,
        "share": "1",
        "method": "clipped",
    }
    config = survey(tmp_path, statistics=[mean], contingency_tables=[], data__columns=columns)
    assert "needs a `name`" in refused(das, "validate", config)
    config = survey(
        tmp_path, statistics=[mean | {"name": "age"}], contingency_tables=[], data__columns=columns
    )
    assert "age" in done(das, "validate", config)


def test_a_table_that_is_too_large_is_refused_and_with_fewer_marginals_drawn(das, tmp_path):
    table = {"query": "age * income", "exact": ["age", "income"]}
    config = one_table(tmp_path, table)
    text = refused(das, "validate", config)
    assert "may be too large for exact sampling" in text
    assert "keep fewer marginals, or request a table with fewer cells" in text
    config = one_table(tmp_path, {**table, "exact": ["age"]})
    done(das, "run", config)


def test_a_file_without_tables_has_no_key_of_tables(das, tmp_path):
    config = write_survey(tmp_path)
    assert "tables" not in json.loads(done(das, "validate", config, "--json"))
    configure(tmp_path)
