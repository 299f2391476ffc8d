"""Marginals of a survey with known errors, by the commands their users type."""

from __future__ import annotations

import csv
import itertools
import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from das.errors import VerificationError
from das.mechanisms.laplace import DiscreteLaplace
from jobs.pipeline.storage.journal import read_journal
from jobs.survey.measurements import read_planned
from jobs.survey.plan import load_survey
from jobs.survey.results import check_marginals, read_results
from tests.builders.survey import GROUPS, RECORDS, SEXES, configure, people, write_survey
from tests.pipeline.local.test_surveys import claims, done, measurements, refused

MARGINALS = {"ways": 2, "bases": {"age": ["prefix"]}, "share": "1"}
EDGES = (0, 16, 30, 50, 70)


def survey(folder: Path, marginals: dict[str, Any] | None = None, **changes: Any) -> Path:
    settings = {"synthesis": None, "statistics": [], "marginals": marginals or MARGINALS}
    return write_survey(folder, **{**settings, **changes})


def files(folder: Path) -> dict[str, list[dict[str, str]]]:
    document = json.loads((folder / "out/release/marginals.json").read_text())
    out = {}
    for table in document["tables"]:
        with (folder / "out/release" / table["file"]).open() as handle:
            out[table["name"]] = list(csv.DictReader(handle))
        assert len(out[table["name"]]) == table["answers"]
    return out


def estimates(das, release: object, *words: object) -> list[dict[str, Any]]:
    return json.loads(done(das, "estimate", release, "--json", "--query", *words))


def truth() -> Counter[tuple[str, str, int]]:
    """Records by sex, group and the number of the age bin."""
    bins = lambda age: sum(age >= edge for edge in EDGES) - 1  # noqa: E731
    return Counter((SEXES["12".index(r[0])], r[1].lower(), bins(int(r[2]))) for r in people())


def test_a_run_writes_tables_whose_errors_hold_and_verify(das, tmp_path):
    config = survey(tmp_path, privacy__neighbors="unbounded")
    done(das, "run", config)
    checked = json.loads(done(das, "verify", config))
    assert checked == json.loads(done(das, "verify", tmp_path / "out/release"))
    assert (checked["parts"], checked["spent"], checked["granted"]) == (1, "4", "4")
    tables = files(tmp_path)
    columns = ("sex", "group", "age", "income")
    pairs = [" * ".join(pair) for pair in itertools.combinations(columns, 2)]
    assert [*tables] == ["total", *columns, *pairs]
    true = truth()
    scores = []
    for row, (sex, group) in zip(
        tables["sex * group"], itertools.product(SEXES, GROUPS), strict=True
    ):
        assert (row["sex"], row["group"]) == (sex, group)
        count = sum(n for key, n in true.items() if key[:2] == (sex, group))
        scores.append((float(row["estimate"]) - count) / float(row["standard_error"]))
    for place, row in enumerate(tables["age"]):  # up to each age
        count = sum(n for key, n in true.items() if key[2] <= place)
        scores.append((float(row["estimate"]) - count) / float(row["standard_error"]))
    assert tables["age"][-1]["age"] == "up to 70 and over"
    # Eleven scores: one above 5 has probability 6e-6.
    assert max(map(abs, scores)) < 5
    assert max(map(abs, scores)) > 0.01  # noise was added
    for row in tables["sex * group"]:
        half = 1.6448536 * float(row["standard_error"])
        assert float(row["upper"]) - float(row["estimate"]) == pytest.approx(half, rel=1e-4)
        assert float(row["estimate"]) - float(row["lower"]) == pytest.approx(half, rel=1e-4)
    written = json.loads((tmp_path / "out/confidential/evaluation.json").read_text())["written"]
    by_name = {one["name"]: one for one in written}
    assert [*by_name] == [*tables]
    rows = tables["sex * group"]
    squares = [
        (float(row["standard_error"]) * score) ** 2
        for row, score in zip(rows, scores, strict=False)
    ]
    found = by_name["sex * group"]
    assert found["root_mean_square_error"] ** 2 == pytest.approx(sum(squares) / 6, rel=1e-4)
    assert found["covered"] * 6 == pytest.approx(sum(abs(score) < 1.6449 for score in scores[:6]))
    stated = [float(row["standard_error"]) ** 2 for row in rows]
    assert found["expected"] ** 2 == pytest.approx(sum(stated) / 6, rel=1e-5)
    ledger = read_journal(tmp_path / "out/release/ledger.jsonl")
    assert [line["cost"] for line in ledger if line["event"] == "measured"] == ["4"]


def test_nonnegative_tables_agree_and_are_nearer_to_small_counts(das, tmp_path):
    marginals = {"ways": 3, "bases": {"age": ["prefix"]}, "share": "1"}
    seeded = {"source": "seeded_not_for_release", "seed": 2}
    config = survey(tmp_path, marginals, privacy__rho="1/100", privacy__randomness=seeded)
    done(das, "run", config)
    tables = files(tmp_path)
    fitted = {name: [float(row["nonnegative"]) for row in rows] for name, rows in tables.items()}
    estimates = [float(row["estimate"]) for rows in tables.values() for row in rows]
    assert min(estimates) < -1  # there is something to mend
    assert min(map(min, fitted.values())) >= 0
    assert fitted["total"] == [RECORDS]  # public, with bounded neighbors
    # Integers are sums of one table: 2 * 3 * 5 * 5 cells.
    whole = {name: [int(row["integer"]) for row in rows] for name, rows in tables.items()}
    assert min(map(min, whole.values())) == 0
    assert whole["total"] == [RECORDS]
    for name in ("sex", "group", "sex * group"):
        assert whole[f"{name} * age"][len(EDGES) - 1 :: len(EDGES)] == whole[name]
    near = [abs(a - b) for name in tables for a, b in zip(whole[name], fitted[name], strict=True)]
    assert max(near) < 12
    # Sums over age are the last of its prefixes, and equal the table without it.
    five = len(EDGES)
    for name in ("sex", "group", "sex * group"):
        wide = fitted[f"{name} * age"]
        assert wide[five - 1 :: five] == pytest.approx(fitted[name], abs=1e-4)
        steps = zip(wide, wide[1:], strict=False)
        assert all(b >= a - 2e-6 for i, (a, b) in enumerate(steps) if (i + 1) % five)
    assert sum(fitted["sex"]) == pytest.approx(RECORDS, abs=1e-4)
    written = json.loads((tmp_path / "out/confidential/evaluation.json").read_text())["written"]
    by_name = {one["name"]: one for one in written}["sex * group * age"]
    # Seeds 1 to 10: 0.69 to 0.89; this one 0.70.
    assert by_name["nonnegative"] < 0.9 * by_name["root_mean_square_error"]
    assert by_name["integer"] < 0.9 * by_name["root_mean_square_error"]


def test_a_pure_budget_measures_plain_tables_with_laplace_noise(das, tmp_path):
    marginals = {**MARGINALS, "confidence": "99/100"}
    pure = {"definition": "pure", "epsilon": "1", "neighbors": "unbounded"}
    config = survey(tmp_path, marginals, privacy=pure)
    assert "epsilon 1 (pure, unbounded neighbors)" in done(das, "validate", config)
    done(das, "run", config)
    checked = json.loads(done(das, "verify", config))
    assert (checked["parts"], checked["spent"], checked["granted"]) == (1, "1", "1")
    answers = read_planned(load_survey(config).release.measured_part("marginals")).answers
    assert {type(one.mechanism) for one in answers} == {DiscreteLaplace}
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "out/release", copy)
    (tmp_path / "persons.csv").unlink()
    rows, true = files(tmp_path)["sex * age"], truth()
    for row, (sex, place) in zip(rows, itertools.product(SEXES, range(5)), strict=True):
        count = sum(n for key, n in true.items() if key[0] == sex and key[2] <= place)
        error = float(row["standard_error"])
        # A sum of Laplace variables exceeds 14 standard errors with probability below 1e-8.
        assert abs(float(row["estimate"]) - count) < 14 * error
        half = -math.log(0.01) / math.sqrt(2) * error
        assert float(row["upper"]) - float(row["estimate"]) == pytest.approx(half, rel=1e-4)
    found = estimates(das, copy, "sex * prefix(age)", "--confidence", "0.99")
    for row, other in zip(found, rows, strict=True):
        for name in ("estimate", "standard_error", "lower", "upper"):
            assert row[name] == pytest.approx(float(other[name]), abs=1e-5)
    pairs = estimates(das, copy, "sex * age", "--covariance", "sex * age")
    variance = sum(
        row["covariance"] * (1 if row["label"] == row["other_label"] else 2)
        for row in pairs
        if row["label"][0] == row["other_label"][0] == "m"
    )
    assert variance == pytest.approx(float(rows[4]["standard_error"]) ** 2, rel=1e-5)


def test_estimates_come_from_the_release_alone_and_agree_with_its_files(das, tmp_path):
    done(das, "run", survey(tmp_path))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "out/release", copy)
    tables = files(tmp_path)
    (tmp_path / "persons.csv").unlink()
    shutil.rmtree(tmp_path / "out")
    found = estimates(das, copy, "sex * prefix(age)")
    assert [row["label"] for row in found[:2]] == ["m / up to 0 to 15", "m / up to 16 to 29"]
    for row, other in zip(found, tables["sex * age"], strict=True):
        for name in ("estimate", "standard_error", "lower", "upper"):
            assert row[name] == pytest.approx(float(other[name]), abs=1e-5)
    # Other queries over the same attributes, and sums that fit.
    single = estimates(das, copy, "sex * age")
    assert single[0]["estimate"] == pytest.approx(found[0]["estimate"], rel=1e-9)
    both = found[0]["estimate"] + single[1]["estimate"]
    assert both == pytest.approx(found[1]["estimate"], rel=1e-9)
    # Variance of a difference by the covariances of its parts.
    pairs = estimates(das, copy, "sex * age", "--covariance", "sex * age")
    by_label = {(row["label"], row["other_label"]): row["covariance"] for row in pairs}
    one, two = single[0]["label"], single[1]["label"]
    variance = by_label[one, one] + by_label[two, two] + 2 * by_label[one, two]
    assert variance == pytest.approx(found[1]["standard_error"] ** 2, rel=1e-6)
    # With bounded neighbors the number of records is public, and all tables add up to it.
    [total] = estimates(das, copy, "total")
    assert (total["estimate"], total["standard_error"]) == (RECORDS, 0)
    assert sum(row["estimate"] for row in single) == pytest.approx(RECORDS)
    wide = estimates(das, copy, "sex * age", "--simultaneous", "--confidence", "0.95")
    assert wide[0]["upper"] > single[0]["upper"]
    csv_file = tmp_path / "sex.csv"
    done(das, "estimate", copy, "--query", "sex", "--output", csv_file)
    done(das, "estimate", copy, "--query", "group", "--output", csv_file)
    assert csv_file.read_text().startswith('"query","label","estimate"')
    assert "m / up to 0 to 15" in done(das, "estimate", copy, "--query", "sex * prefix(age)")
    assert "correlation" in done(das, "estimate", copy, "--query", "sex", "--covariance", "group")


def test_what_a_release_cannot_answer_is_refused(das, tmp_path):
    done(das, "run", survey(tmp_path))
    release = tmp_path / "out/release"
    for query, message in (
        ("sex * age * group", "was not planned"),
        ("education", "has no such attribute"),
    ):
        assert message in refused(das, "estimate", release, "--query", query)
    assert "no areas" in refused(das, "estimate", release, "--geolevel", "state")
    assert "can have negative answers" in refused(
        das, "estimate", release, "--query", "contrasts(age)", "--positive"
    )
    (tmp_path / "persons.csv.das-account.jsonl").unlink()
    config = write_survey(tmp_path, output__directory="other")
    done(das, "run", config)
    assert "has no section `marginals`" in refused(das, "estimate", tmp_path / "other/release")


def test_a_changed_number_does_not_follow_from_the_noisy_answers(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config)
    plan = load_survey(config)
    _, _, stated = read_results(plan.made)
    check_marginals(plan, stated)
    file = tmp_path / "out/release/marginals/0003-group.csv"
    text = file.read_text()
    rows = [line.split(",") for line in text.splitlines()]
    for digits, is_same in ((5e-7, True), (1e-3, False)):
        rows[1][1] = f"{float(rows[1][1]) + digits:.7f}"
        file.write_text("\n".join(",".join(row) for row in rows) + "\n")
        if is_same:
            check_marginals(plan, stated)
        else:
            with pytest.raises(VerificationError, match=r"0003-group\.csv: does not follow"):
                check_marginals(plan, stated)
    assert "is not the one the manifest" in refused(das, "verify", config)
    file.write_text(text)
    done(das, "verify", config)


def test_measured_once_and_written_anew_at_no_cost(das, tmp_path):
    config = survey(tmp_path)
    done(das, "run", config, "--only", "measure")
    before = measurements(tmp_path)
    configure(tmp_path, synthesis=None, statistics=[], marginals={**MARGINALS, "written": ["sex"]})
    done(das, "run", config)
    assert [*files(tmp_path)] == ["sex"]
    changed = {**MARGINALS, "written": ["age * sex"], "confidence": "0.99"}
    configure(tmp_path, synthesis=None, statistics=[], marginals=changed)
    assert "finalized with other settings of marginals" in refused(das, "run", config)
    done(das, "run", config, "--only", "solve", "--solution", "more")
    other = tmp_path / "out/solutions/more/marginals/0001-sex_age.csv"
    assert len(other.read_text().splitlines()) == 1 + 2 * 5
    assert measurements(tmp_path) == before
    assert len(claims(tmp_path)) == 1
    configure(tmp_path, synthesis=None, statistics=[], marginals={**MARGINALS, "ways": 1})
    assert "another" in refused(das, "run", config)


def test_marginals_share_the_budget_with_other_parts(das, tmp_path):
    config = write_survey(tmp_path, synthesis__share="1/4", marginals={**MARGINALS, "share": "1/4"})
    text = done(das, "validate", config)
    assert "marginals" in text
    done(das, "run", config)
    checked = json.loads(done(das, "verify", config))
    assert (checked["parts"], checked["spent"]) == (4, "4")
    manifest = json.loads((tmp_path / "out/release/manifest.json").read_text())
    assert [part["name"] for part in manifest["parts"]] == [
        "income",
        "age",
        "marginals",
        "synthesis",
    ]
    page = (tmp_path / "out/release/report.html").read_text()
    assert "Written marginals" in page
    assert "0001-total.csv" in page


def test_a_table_too_wide_for_one_schema_is_estimated(das, tmp_path):
    """40^13 cells exceed 63 bits; a query is read over the attributes that it names."""
    levels = [f"l{k}" for k in range(40)]
    columns = {
        f"c{i}": {"column": f"C{i}", "codes": dict(zip(levels, levels, strict=True))}
        for i in range(13)
    }
    tables = ["c1 * c2", "c12"]
    config = survey(
        tmp_path, {"tables": tables, "share": "1"}, privacy__rho="1000", data__columns=columns
    )
    rows = [[levels[(i * (k + 1)) % 40] for k in range(13)] for i in range(RECORDS)]
    lines = [",".join(f"C{i}" for i in range(13)), *map(",".join, rows), ""]
    (tmp_path / "persons.csv").write_text("\n".join(lines))
    done(das, "run", config)
    found = estimates(das, tmp_path / "out/release", "c2 * c1")
    assert found[0]["query"] == "c1 * c2"
    true = Counter(f"{row[1]} / {row[2]}" for row in rows)
    for row in found:
        assert abs(row["estimate"] - true[row["label"]]) < 5 * row["standard_error"]
    assert found[0]["standard_error"] < 0.5
    assert "was not planned" in refused(
        das, "estimate", tmp_path / "out/release", "--query", "c1 * c12"
    )


@pytest.mark.parametrize(
    ("marginals", "message"),
    [
        ({"ways": 2, "tables": ["sex"]}, "give exactly one of `tables` and `ways`"),
        ({}, "give exactly one of `tables` and `ways`"),
        ({"tables": ["sex * job"]}, "marginals: tables: names no column of data.columns; got ['job']"),
        ({"tables": ["sex * sex"]}, "names an attribute twice"),
        ({"tables": ["sex * age", "age * sex"]}, "names a table twice"),
        ({"ways": 5}, "is above the number of attributes; got 5"),
        ({"ways": 1, "bases": {"job": ["prefix"]}}, "marginals: bases: names no column"),
        ({"ways": 1, "bases": {"age": ["suffix"]}}, "workload, base of age: is unknown; got suffix"),
        ({"ways": 1, "bases": {"age": [[1, 0]]}}, "has a row that does not fit; got 2 integers"),
        ({"ways": 1, "bases": {"age": [[1, 0, 0, 0, 0]]}}, "does not determine the total"),
        ({"ways": 1, "bases": {"age": []}}, "base of age: is empty"),
        ({"ways": 1, "written": ["sex * age"]}, "names a table that is not planned"),
        ({"ways": 1, "written": ["sex", "sex"]}, "written: names a table twice"),
        ({"ways": 1, "share": "0"}, "marginals.share"),
        ({"ways": 1, "loss": "largest_variance", "weighting": "equal"}, "`weighting` has no effect"),
        ({"tables": ["sex"], "loss": {"variance_limits": {"age": 1}}}, "not among `tables`"),
        ({"tables": ["sex"], "loss": {"variance_limits": {"job": 1}}}, "names no column"),
        ({"tables": ["sex", "age"], "loss": {"variance_limits": {"age": 1}}}, "limits"),
        ({"ways": 1, "share": "1/2"}, "do not sum to 1; got 1/2"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_anything_is_read(das, tmp_path, marginals, message):
    config = survey(tmp_path, {"share": "1", **marginals})
    (tmp_path / "persons.csv").unlink()
    assert message in " ".join(refused(das, "validate", config).split())


def test_an_attribute_may_not_have_the_name_of_a_column_of_estimates(das, tmp_path):
    columns = {"lower": {"column": "SEX", "codes": {"1": "m", "2": "f"}}}
    config = survey(tmp_path, {"ways": 1, "share": "1"}, data__columns=columns)
    assert "cannot have the names of columns of estimates; got ['lower']" in refused(
        das, "validate", config
    )


def test_losses_of_pure_budgets_and_too_much_are_refused_with_the_number(das, tmp_path):
    largest = {"ways": 1, "loss": "largest_variance", "share": "1"}
    config = survey(tmp_path, largest, privacy={"definition": "pure", "epsilon": "1"})
    assert "loss: is planned under zCDP only" in refused(das, "validate", config)
    config = survey(tmp_path, privacy={"rho": "0"})
    assert "privacy.rho: Input should be greater than 0; got '0'" in refused(
        das, "validate", config
    )
    columns = {
        f"c{i}": {"column": f"C{i}", "codes": {str(k): f"l{k}" for k in range(40)}}
        for i in range(23)
    }
    many = {"ways": 3, "share": "1"}
    config = survey(tmp_path, many, data__columns=columns)
    text = " ".join(refused(das, "validate", config).split())
    assert "ways: asks for too many tables; got 2048; expected at most 2000" in text
    config = survey(tmp_path, {"ways": 9, "share": "1"}, data__columns=columns)
    number = sum(math.comb(23, order) for order in range(10))
    assert number > 10**6
    assert f"too many tables; got {number}; " in " ".join(refused(das, "validate", config).split())
    config = survey(
        tmp_path, {"tables": ["c1 * c2 * c3 * c4 * c5"], "share": "1"}, data__columns=columns
    )
    text = " ".join(refused(das, "validate", config).split())
    assert f"too many answers to measure; got {40**5}; expected at most {1 << 25}" in text
    config = survey(
        tmp_path, {"tables": ["c1 * c2 * c3 * c4"], "share": "1"}, data__columns=columns
    )
    assert f"too many rows: name fewer tables; got {40**4}" in " ".join(
        refused(das, "validate", config).split()
    )
