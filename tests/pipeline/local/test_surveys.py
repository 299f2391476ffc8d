"""Surveys by the commands their users type: made once, made again for nothing, refused by name."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import BudgetError
from jobs.pipeline.documents.document import read_document
from jobs.pipeline.storage.journal import read_journal
from jobs.survey.documents import MeansTable
from jobs.survey.results import means_text
from tests.builders.survey import RECORDS, WEIGHTS, configure, people, write_people, write_survey

pytestmark = pytest.mark.usefixtures("here")

Das = Callable[..., tuple[int, str]]


class Died(BaseException):
    """Stands for a process that is killed."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_survey(tmp_path)


def done(das: Das, *words: object) -> str:
    code, text = das(*words)
    assert code == 0, text
    return text


def refused(das: Das, *words: object) -> str:
    code, text = das(*words)
    assert code in (2, 3, 6), text
    return text


def means(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (folder / "out/release/means.csv").open() as handle:
        return {(row["statistic"], row["stratum"]): row for row in csv.DictReader(handle)}


def journal(folder: Path) -> list[dict[str, Any]]:
    return read_journal(folder / "persons.csv.das-account.jsonl")


def claims(folder: Path) -> list[dict[str, Any]]:
    return [line for line in journal(folder) if "event" not in line]


def dies_in(place: str, das: Das, *words: object) -> None:
    """Run a command that is killed where it would call a function."""

    def die(*_: object, **__: object) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, die)
        with pytest.raises(Died):
            das(*words)


def measurements(folder: Path) -> dict[str, str]:
    root = folder / "out/release/measurements"
    return {path.parent.name: path.read_text() for path in sorted(root.glob("*/_manifest.json"))}


# --- what is made --------------------------------------------------------------------------------


def test_a_run_makes_means_microdata_and_a_manifest_that_verify(das, config, tmp_path):
    done(das, "run", config)
    checked = json.loads(done(das, "verify", config))
    assert checked == {"parts": 3, "datasets": 5, "files": 15, "records": RECORDS, "spent": "4",
                       "granted": "4"}  # fmt: skip
    manifest = json.loads((tmp_path / "out/release/manifest.json").read_text())
    assert [part["share"] for part in manifest["parts"]] == ["1/4", "1/4", "1/2"]
    table = pq.read_table(next((tmp_path / "out/release/microdata/parquet").glob("part-*")))
    assert table.column_names == ["sex", "group", "age", "income"]
    assert set(table["income"].to_pylist()) <= {
        "0 to 999", "1000 to 1999", "2000 to 4999", "5000 and over", "under 16"
    }  # fmt: skip
    for path in (tmp_path / "out").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or "release" in path.parts


def test_means_are_near_the_truth_and_their_errors_are_evaluated(das, tmp_path):
    """At rho 10,000 noise is a thousandth of the spread; strata differ by hundreds."""
    config = write_survey(tmp_path, privacy__rho="10000")
    rows = [(r[0] + r[1], float(r[3] or 0)) for r in people()]
    sizes = {
        name: sum(key == name for key, _ in rows) for name in ("1A", "1B", "1C", "2A", "2B", "2C")
    }
    shares = ("0.30", "0.15", "0.05") * 2
    lines = [
        f"{'mf'[int(name[0]) - 1]},{name[1].lower()},{share},{size}"
        for (name, size), share in zip(sizes.items(), shares, strict=True)
    ]
    (tmp_path / "weights.csv").write_text("\n".join(["sex,group,weight,size", *lines, ""]))
    done(das, "run", config)
    true = {
        name: np.mean([v for key, v in rows if key == name]) for name in ("1A", "1B", "2A", "2B")
    }
    found = means(tmp_path)
    for name, stratum in (("1A", "m * a"), ("1B", "m * b"), ("2A", "f * a"), ("2B", "f * b")):
        # Noise of the last step: 2 x 8,000 / sqrt(2 x 1,875) = 260, over 80 records or more.
        assert abs(float(found["income", stratum]["mean"]) - true[name]) < 8 * 260 / sizes[name]
    evaluation = json.loads((tmp_path / "out/confidential/evaluation.json").read_text())
    income = evaluation["means"][0]
    assert income["means"][0]["truth"] == pytest.approx(true["1A"])
    relative = [row["relative"] for row in income["means"] if row["relative"] is not None]
    assert income["groups"] == len(relative) == 5  # nobody is of sex f and group c
    whole = income["everybody"]["relative"] / 5
    assert income["parity_error"] == pytest.approx(sum(relative) + whole)
    assert [row["order"] for row in evaluation["marginals"]] == [1, 2, 3]
    assert [row["records"] for row in evaluation["groups"][0]["groups"]][2] == 1
    assert sum(row["released"] for row in evaluation["groups"][0]["groups"]) == RECORDS


def test_strata_of_nobody_and_of_one_come_out_within_their_bounds(das, config, tmp_path):
    done(das, "run", config)
    found = means(tmp_path)
    for stratum in ("m * c", "f * c"):
        assert 0 <= float(found["income", stratum]["mean"]) <= 10000
    assert float(found["income", "everybody"]["weight"]) == 1


def test_small_strata_are_pooled_by_public_sizes_whatever_the_data(das, tmp_path):
    config = write_survey(tmp_path, statistics__0__min_share="1/10")
    done(das, "run", config)
    strata = {stratum for name, stratum in means(tmp_path) if name == "income"}
    assert strata == {"everybody", "m * a", "m * b", "f * a", "f * b", "pooled"}
    document = json.loads((tmp_path / "out/release/means.json").read_text())
    assert document["statistics"][0]["pooled"] == ["m * c", "f * c"]
    assert means(tmp_path)["income", "pooled"]["size"] == "60"


def test_rows_of_the_weights_may_come_in_any_order(das, config, tmp_path):
    from jobs.survey.plan import load_survey

    before = load_survey(config).means[0]
    head, *rows = (tmp_path / "weights.csv").read_text().split()
    (tmp_path / "weights.csv").write_text("\n".join([head, *reversed(rows), ""]))
    after = load_survey(config).means[0]
    assert (after.weights, after.strata.sizes) == (before.weights, before.strata.sizes)


def test_pure_epsilon_takes_clipped_means(das, tmp_path):
    statistics = [
        {"mean": "income", "low": 0, "high": 10000, "sd_bound": 1500, "share": "1",
         "method": "clipped", "missing": "exclude"},
    ]  # fmt: skip
    config = write_survey(
        tmp_path, privacy={"definition": "pure", "epsilon": "10"}, statistics=statistics,
        synthesis=None,
    )  # fmt: skip
    done(das, "run", config)
    assert json.loads(done(das, "verify", config))["spent"] == "10"
    incomes = [float(row[3]) for row in people() if row[3]]
    truth = np.mean(incomes) * len(incomes) / RECORDS
    row = means(tmp_path)["income", "everybody"]
    assert abs(float(row["mean"]) - truth) < 4000  # the public size counts those without a value
    kinds = {line["mechanism"] for line in sums(tmp_path, "income")}
    assert kinds == {"discrete_laplace"}


def sums(folder: Path, part: str) -> list[dict[str, Any]]:
    file = next((folder / f"out/release/measurements/part={part}").glob("part-*"))
    return pq.read_table(file).to_pylist()


def test_a_spread_that_is_too_small_is_warned_of_from_noisy_answers(das, tmp_path):
    """At rho 10,000 noise is nothing; incomes spread by a thousand, not by ten. Sizes are exact: of
    those that follow from weights, records that vary about them might explain as much."""
    config = write_survey(tmp_path, privacy__rho="10000", statistics__0__sd_bound=10)
    records = Counter(("mf"["12".index(row[0])], row[1].lower()) for row in people())
    sizes = [f"{line},{records[tuple(line.split(',')[:2])]}" for line in WEIGHTS[1:]]
    (tmp_path / "weights.csv").write_text("\n".join([f"{WEIGHTS[0]},size", *sizes, ""]))
    done(das, "run", config)
    document = json.loads((tmp_path / "out/release/means.json").read_text())
    income, age = document["statistics"]
    assert "`spread` is too small" in income["warnings"][0]
    assert age["warnings"] == []


@pytest.mark.parametrize(
    ("settings", "holds"),
    [
        ({"model": "tree"}, "selected marginals"),
        (
            {"model": "adaptive", "max_model_megabytes": 1, "steps_per_round": 5},
            "selected marginals",
        ),
        (
            {
                "strata": {
                    "attributes": ["sex", "group"],
                    "weights": "weights.csv",
                    "min_share": "1/20",
                }
            },
            "marginals of everybody and of strata",
        ),
        (
            {"model": "tree", "strata": {"attributes": ["group", "sex"], "min_share": "1/20"}},
            "marginals of everybody and of strata",
        ),
        (
            {
                "model": "gem",
                "steps_per_round": 1,
                "n_fits": 2,
                "strata": {"attributes": ["sex"]},
            },
            "marginals of everybody and of strata",
        ),
    ],
    ids=["tree", "adaptive", "strata", "tree of strata of measured sizes", "gem of strata"],
)
@pytest.mark.parametrize("neighbors", ["bounded", "unbounded"])
def test_other_models_are_measured_stored_and_verified(das, tmp_path, settings, holds, neighbors):
    synthesis = {"share": "1", "steps": 10, **settings}
    config = write_survey(
        tmp_path, synthesis=synthesis, statistics=[], privacy__neighbors=neighbors
    )
    done(das, "run", config)
    checked = json.loads(done(das, "verify", config))
    assert checked["records"] == RECORDS
    spent = Fraction(checked["spent"])
    assert Fraction(399, 100) < spent <= 4  # a selection costs a root rounded down
    facts = json.loads(measurements(tmp_path)["part=synthesis"])["facts"]
    assert facts["holds"] == holds
    shutil.rmtree(tmp_path / "out/release/microdata")
    (tmp_path / "persons.csv").unlink()
    done(das, "run", "--only", "solve", config)


def test_microdata_of_strata_have_the_public_shares(das, tmp_path):
    strata = {"attributes": ["group", "sex"], "weights": "weights.csv", "min_share": "0"}
    synthesis = {"share": "1", "steps": 10, "components": 10, "n_fits": 1, "strata": strata}
    done(das, "run", write_survey(tmp_path, synthesis=synthesis, statistics=[]))
    file = next((tmp_path / "out/release/microdata/parquet").glob("part-*"))
    rows = [tuple(row.values())[:2] for row in pq.read_table(file).to_pylist()]
    counts = {stratum: rows.count(stratum) for stratum in set(rows)}
    assert counts == {
        ("m", "a"): 180, ("m", "b"): 90, ("m", "c"): 30,
        ("f", "a"): 180, ("f", "b"): 90, ("f", "c"): 30,
    }  # fmt: skip


def test_parquet_gives_the_codes_that_csv_gives(das, tmp_path):
    from jobs.survey.confidential.read import read_survey
    from jobs.survey.plan import load_survey

    own = read_survey(load_survey(write_survey(tmp_path))).reveal()
    sex, group, age, income = zip(*people(), strict=True)
    table = pa.table(
        {
            "SEX": pa.array([int(one) for one in sex]),
            "GROUP": pa.array(group).dictionary_encode(),
            "AGE": pa.array([float(one) for one in age]),
            "INCOME": pa.array([int(one) if one else None for one in income]),
        }
    )
    pq.write_table(table, tmp_path / "persons.parquet")
    config = configure(tmp_path, data__path="persons.parquet")
    other = read_survey(load_survey(config)).reveal()
    assert (own.records.codes == other.records.codes).all()
    assert (own.numbers["income"].values == other.numbers["income"].values).all()


# --- once, and again for nothing -----------------------------------------------------------------


def test_measuring_and_solving_are_two_commands_under_one_grant(das, config, tmp_path):
    assert "income: is not measured" in refused(das, "run", "--only", "solve", config)
    done(das, "run", "--only", "measure", config)
    ledger = tmp_path / "out/release/ledger.jsonl"
    assert [line["event"] for line in read_journal(ledger)][-1] == "sealed"
    before = measurements(tmp_path)
    (tmp_path / "persons.csv").unlink()  # nothing that follows reads it
    done(das, "run", "--only", "solve", config)
    assert measurements(tmp_path) == before
    assert len(claims(tmp_path)) == 1
    assert json.loads(done(das, "verify", config))["spent"] == "4"


@pytest.mark.parametrize("command", ["tables"])
def test_only_run_draws_noise(das, config, tmp_path, command):
    assert "`das run RUN`" in refused(das, command, config)
    assert not (tmp_path / "out").exists()
    assert claims(tmp_path) == []


def test_other_settings_make_another_solution_without_data_or_noise(das, config, tmp_path):
    done(das, "run", config)
    before = measurements(tmp_path)
    (tmp_path / "persons.csv").unlink()
    configure(
        tmp_path, synthesis__components=5, synthesis__n_records=100, statistics__0__shrink=True
    )
    text = refused(das, "run", "--only", "solve", config)
    assert "shrink false, now true" in text
    assert "--solution NAME" in text
    configure(tmp_path, synthesis__components=5, synthesis__n_records=100)
    assert "components 20, now 5" in refused(das, "run", "--only", "solve", config)
    configure(
        tmp_path, synthesis__components=5, synthesis__n_records=100, statistics__0__shrink=True
    )
    done(das, "run", "--only", "solve", config, "--solution", "few")
    assert json.loads(done(das, "verify", config, "--solution", "few"))["records"] == 100
    assert measurements(tmp_path) == before
    assert len(claims(tmp_path)) == 1
    write_people(tmp_path)
    assert "changed since it was read" in refused(das, "evaluate", config, "--solution", "few")
    shrunk = json.loads((tmp_path / "out/solutions/few/means.json").read_text())
    assert shrunk["statistics"][0]["shrunk"]


def test_a_release_goes_on_with_its_own_run_file_after_a_solution_of_another_one(
    das, config, tmp_path
):
    done(das, "run", config)
    other = tmp_path / "other.yaml"
    configure(tmp_path, synthesis__components=5).rename(other)
    configure(tmp_path)
    refused(das, "run", "--only", "solve", other)
    done(das, "evaluate", other)
    done(das, "run", "--only", "solve", other, "--solution", "few")
    done(das, "run", tmp_path / "out")
    done(das, "run", tmp_path / "out", "--solution", "few")


def test_the_same_command_again_changes_nothing(das, config, tmp_path):
    done(das, "run", config)
    kept = {
        path: path.read_bytes() for path in (tmp_path / "out/release").rglob("*") if path.is_file()
    }
    done(das, "run", config)
    assert {path: path.read_bytes() for path in kept} == kept
    assert len(journal(tmp_path)) == 1 + 2 * 3


@pytest.mark.parametrize(
    ("place", "claimed"),
    [
        ("jobs.survey.run.reserve_budgets", 0),
        ("jobs.survey.run.measure_part", 1),  # between claim and draw
        ("jobs.survey.confidential.measure.write_part", 1),  # drawn, and nothing written
        ("jobs.pipeline.folder.draws.accept", 1),  # recorded, and not readable
        ("jobs.pipeline.confidential.draw.record_measured", 1),  # readable, not in the ledger
        ("jobs.survey.run.write_results", 1),
        ("jobs.survey.manifest.write_manifest", 1),
    ],
)
def test_a_run_that_dies_goes_on_and_draws_nothing_twice(das, config, tmp_path, place, claimed):
    dies_in(place, das, "run", config)
    assert len(claims(tmp_path)) == claimed
    before = measurements(tmp_path)
    done(das, "run", tmp_path / "out")
    assert len(claims(tmp_path)) == 1
    after = measurements(tmp_path)
    assert {name: after[name] for name in before} == before
    measured = [line["geolevel"] for line in journal(tmp_path) if line.get("event") == "measured"]
    assert sorted(measured) == ["age", "income", "synthesis"]
    assert json.loads(done(das, "verify", config))["spent"] == "4"


def test_what_was_recorded_before_a_crash_is_what_is_released(das, config, tmp_path):
    dies_in("jobs.pipeline.folder.draws.accept", das, "run", config)
    proposed = next((tmp_path / "out/release/measurements").glob("*/_proposed-*.json")).read_text()
    done(das, "run", config)
    assert measurements(tmp_path)["part=income"] == proposed


def test_a_copy_of_the_folder_draws_nothing(das, config, tmp_path):
    dies_in("jobs.survey.run.measure_part", das, "run", config)
    copy = Path(shutil.copytree(tmp_path / "out", tmp_path / "copy/out"))
    text = refused(das, "run", config, "--out", copy)
    assert "a copy of the folder" in text
    assert "part income" in text
    done(das, "run", config)
    text = refused(das, "run", config, "--out", copy)
    assert "was measured under grant" in text
    assert not measurements(tmp_path / "copy")


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("lost", ["rolled back", "release removed", "folder removed", "answers"])
def test_nothing_that_is_lost_or_rolled_back_is_drawn_again(das, config, tmp_path, lost, moved):
    out = tmp_path / "out"
    dies_in("jobs.survey.run.write_results", das, "run", config)
    backup = shutil.copytree(out, tmp_path / "backup")
    shutil.rmtree(backup / "release/measurements/part=synthesis")
    done(das, "run", config)
    before = journal(tmp_path)
    if lost == "answers":
        (out / "release/measurements/part=age/_manifest.json").unlink()
    else:
        shutil.rmtree(out / "release" if lost == "release removed" else out)
    if lost == "rolled back":
        shutil.move(backup, out)
    for command in (("run", config), ("run", "--only", "measure", config), ("run", out)):
        words = (*command, "--moved") if moved and command[1] == out else command
        refused(das, *words)
    assert journal(tmp_path) == before


def test_of_copies_the_one_that_is_said_to_go_on_draws(das, config, tmp_path):
    dies_in("jobs.survey.run.measure_part", das, "run", config)
    copies = [tmp_path / f"copy{i}" for i in range(3)]
    for copy in copies:
        shutil.copytree(tmp_path / "out", copy / "out")
    done(das, "run", copies[0] / "out", "--moved")
    assert len(measurements(copies[0])) == 3
    for other in (*copies[1:], tmp_path):
        refused(das, "run", other / "out")
        refused(das, "run", other / "out", "--moved")
        assert not measurements(other)
    measured = [line["geolevel"] for line in journal(tmp_path) if line.get("event") == "measured"]
    assert sorted(measured) == ["age", "income", "synthesis"]


def test_another_run_on_the_same_people_needs_another_grant(das, config, tmp_path):
    done(das, "run", config)
    assert "was spent by another run" in refused(das, "run", config, "--out", tmp_path / "two")
    configure(tmp_path, privacy__budget_id="2", output__directory="two")
    done(das, "run", config)
    found = json.loads(done(das, "account", config, "--json"))
    assert [one["total"] for one in found["composed"]] == ["8"]


def test_lost_answers_are_never_drawn_again(das, config, tmp_path):
    done(das, "run", config)
    shutil.rmtree(tmp_path / "out/release/measurements/part=age")
    assert "drawn once" in refused(das, "run", config)
    (tmp_path / "out/release/ledger.jsonl").unlink()
    assert "is gone" in refused(das, "run", config)


def test_a_lost_ledger_is_not_begun_anew(das, config, tmp_path):
    done(das, "run", config)
    (tmp_path / "out/release/ledger.jsonl").unlink()
    shutil.rmtree(tmp_path / "out/release/measurements")
    assert "is gone" in refused(das, "run", config)


def test_changed_data_are_refused_once_something_was_measured(das, config, tmp_path):
    done(das, "run", config)
    write_people(tmp_path, people(seed=8))
    assert "changed since it was read" in refused(das, "run", config)


def test_damaged_microdata_are_made_again(das, config, tmp_path):
    done(das, "run", config)
    file = next((tmp_path / "out/release/microdata/csv").glob("part-*"))
    text = file.read_text()
    file.write_text(text + '"m","a","0 to 15","under 16"\n')
    assert "was changed" in refused(das, "verify", config)
    done(das, "run", tmp_path / "out")
    again = next((tmp_path / "out/release/microdata/csv").glob("part-*"))
    assert again.read_text() == text
    done(das, "verify", config)


def test_a_mean_that_was_changed_is_found(das, config, tmp_path):
    done(das, "run", config)
    file = tmp_path / "out/release/means.csv"
    file.write_text(file.read_text().replace("everybody,1,", "everybody,1,1", 1))
    assert "is not the one the manifest of the release names" in refused(das, "verify", config)
    state_digest(tmp_path, "means.csv")
    assert "does not hold the rows of means.json" in refused(das, "verify", config)


def test_a_mean_that_does_not_follow_from_the_noisy_sums_is_found(das, config, tmp_path):
    done(das, "run", config)
    file = tmp_path / "out/release/means.json"
    table = json.loads(file.read_text())
    row = table["statistics"][0]["means"][0]
    row["mean"] += 0.5
    file.write_text(json.dumps(table))
    means = read_document(MeansTable, file, remedy="")
    text = tmp_path / "out/release/means.csv"
    text.write_text(means_text(means))
    state_digest(tmp_path, "means.json")
    state_digest(tmp_path, "means.csv")
    assert "does not follow from the noisy sums" in refused(das, "verify", config)


def state_digest(folder: Path, name: str) -> None:
    """Let the manifest state the digest that a changed file has."""
    file = folder / "out/release/manifest.json"
    manifest = json.loads(file.read_text())
    data = (folder / "out/release" / name).read_bytes()
    for one in manifest["files"]:
        if one["path"] == name:
            one["sha256"] = hashlib.sha256(data).hexdigest()
    file.write_text(json.dumps(manifest))


def test_seeded_noise_is_marked_and_claims_nothing(das, tmp_path):
    randomness = {"source": "seeded_not_for_release", "seed": 5}
    config = write_survey(tmp_path, privacy__randomness=randomness)
    done(das, "run", config)
    assert (tmp_path / "out/release/NOT_FOR_RELEASE.txt").exists()
    assert not (tmp_path / "persons.csv.das-account.jsonl").exists()
    first = [row["answer"] for row in sums(tmp_path, "income")]
    done(das, "run", config, "--out", tmp_path / "again")
    other = next((tmp_path / "again/release/measurements/part=income").glob("part-*"))
    assert pq.read_table(other)["answer"].to_pylist() == first


def test_another_configuration_of_a_folder_is_refused(das, config, tmp_path):
    done(das, "run", config)
    configure(tmp_path, statistics__0__sd_bound=2000)
    text = refused(das, "run", tmp_path / "out")
    assert "is not the configuration that this folder was begun with" in text
    assert "belongs to a different configuration" in refused(das, "run", config)
    configure(tmp_path)
    (tmp_path / "weights.csv").write_text((tmp_path / "weights.csv").read_text() + "\n")
    assert "different configuration" in refused(das, "run", config)
    configure(
        tmp_path, statistics__0__sd_bound=2000, output__directory="new", privacy__budget_id="2"
    )
    done(das, "run", config)


def test_a_lost_account_is_said(das, config, tmp_path):
    done(das, "run", config)
    account = tmp_path / "out/release/account.json"
    kept = account.read_bytes()
    account.unlink()
    assert "account.json" in refused(das, "verify", config)
    account.write_bytes(kept)
    done(das, "verify", config)


# --- what a use of it does to groups -------------------------------------------------------------


def predicting(**changes: Any) -> dict[str, Any]:
    """A section `evaluate`."""
    predicted = {"attribute": "income", "levels": ["2000 to 4999", "5000 and over"], **changes}
    return {"groups": [["sex"]], "predict": predicted}


def test_a_classifier_is_asked_for_after_measuring_and_costs_nothing(das, config, tmp_path):
    done(das, "run", config)
    before = measurements(tmp_path)
    assert evaluation(tmp_path)["predictions"] is None
    configure(tmp_path, evaluate=predicting())
    done(das, "evaluate", config)
    assert measurements(tmp_path) == before
    assert len(claims(tmp_path)) == 1
    found = evaluation(tmp_path)
    assert [one["attributes"] for one in found["groups"]] == [["sex", "group"], ["sex"]]
    assert found["groups"][1]["max_disparity"]["relative"] > 0
    first, ceiling = found["predictions"]["classifiers"]
    assert (first["trained_on"], ceiling["trained_on"]) == ("release", "truth")
    assert first["records"] == ceiling["records"] == RECORDS
    assert found["predictions"]["positive"] == ceiling["positive"]
    groups = first["parity"][0]["groups"]
    assert sum(one["records"] for one in groups) == RECORDS
    done(das, "evaluate", config)
    assert evaluation(tmp_path) == found


def evaluation(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out/confidential/evaluation.json").read_text())
    return found


# --- refused by name -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (["m,a,1/2", "m,b,1/2"], "lacks 4 of 6 strata"),
        (["m,a,0.3", "m,b,0.15", "m,c,0.05", "f,a,0.3", "f,b,0.15", "f,c,0.06"], "sum 101/100"),
        (["m,a,0.3", "m,a,0.7"], "a second time"),
        (["m,x,1"], "unknown level of group"),
        (["m,a,-1"], "negative weight"),
        (["m,a,half"], "no exact number"),
        (["m,a,1e-3"], "no exact number"),
        (["m,a,1/0"], "no exact number"),
        (["m,a"], "wrong number of fields"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit(das, config, tmp_path, rows, what):
    (tmp_path / "weights.csv").write_text("\n".join(["sex,group,weight", *rows, ""]))
    text = refused(das, "validate", config)
    assert what in text
    assert "weights.csv" in text
    assert what in refused(das, "run", config)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"statistics__0__share": "1/3"}, "do not sum to 1"),
        ({"statistics__0__share": 0.25}, "floating-point"),
        ({"statistics__0__sd_bound": None}, "sd_bound: is required"),
        ({"statistics__0__sd_bound": 0}, "sd_bound"),
        ({"statistics__0__mean": "sex"}, "no attribute with `bins`"),
        ({"statistics__0__missing": None}, "is required: the column has missing values"),
        ({"statistics__0__stratify_by": ["sex", "place"]}, "names no column"),
        ({"statistics__0__weights": None}, "go together"),
        ({"statistics__0__low": 10000}, "below `high`"),
        ({"statistics__1__mean": "income", "statistics__1__missing": 0}, "has a name twice"),
        ({"statistics__1__name": "synthesis"}, "name of another part"),
        ({"privacy__definition": "pure", "privacy__rho": None, "privacy__epsilon": "1"},
         "no pure epsilon"),
        ({"privacy__rho": None}, "exactly one of `rho` and `epsilon`"),
        ({"data__columns__age__bins": [0, 30, 20]}, "must rise"),
        ({"data__columns__age__codes": {"1": "a", "2": "b"}}, "exactly one of"),
        ({"data__columns__sex__codes": {"1": "m", "2": "m"}}, "two levels or more"),
        ({"data__n_records": 6_000_000}, "more than one machine can process"),
        ({"data__columns__age__bins": list(range(5001))}, "more than one machine can process"),
        ({"data__path": "persons.sav"}, "unknown file type"),
        ({"data__geocode": "place"}, "is not a known key"),
        ({"synthesis__attributes": ["sex"]}, "two attributes or more"),
        ({"synthesis__attributes": ["sex", "place"]}, "names no column"),
        ({"synthesis__one_way_share": "1"}, "one_way_share: Input should be less than 1"),
        ({"synthesis__model": "gan"}, "model"),
        ({"synthesis__model": "tree"}, "`components` has no effect with model tree"),
        ({"synthesis__weighting": "cells"}, "weighting"),
        ({"synthesis": {"share": "1/2", "model": "tree", "weighting": "equal"}},
         "`weighting` has no effect with model tree"),
        ({"synthesis__max_model_megabytes": 2}, "`max_model_megabytes` has no effect with model mixture"),
        ({"synthesis__strata": {"attributes": ["sex"], "weights": "weights.csv"}},
         "`n_remeasured_pairs` has no effect with strata"),
        ({"synthesis__n_remeasured_pairs": None,
          "synthesis__strata": {"attributes": ["sex"], "weights": "weights.csv"}},
         "a second time"),
        ({"synthesis__n_remeasured_pairs": None,
          "synthesis__strata": {"attributes": ["sex", "place"], "weights": "weights.csv"}},
         "are unknown"),
        ({"synthesis": {"share": "1/2", "strata": {"attributes": ["sex", "place"]}}}, "are unknown"),
        ({"synthesis": {"share": "1/2", "strata": {
            "attributes": ["sex"], "weights": "weights.csv", "sizes_share": "1/9"}}},
         "`sizes_share` has no effect"),
        ({"evaluate": {"groups": [["sex", "place"]]}}, "is no attribute of the microdata"),
        ({"evaluate": {"groups": [["sex", "sex"]]}}, "names an attribute twice"),
        ({"evaluate": {"groups": [["sex", "age"], ["age", "sex"]]}}, "set of attributes twice"),
        ({"evaluate": {"groups": [[]]}}, "at least 1 item"),
        ({"evaluate": {"floor": 0}}, "floor"),
        ({"evaluate": predicting(attribute="place")}, "is no attribute of the microdata"),
        ({"evaluate": predicting(levels=["5000"])}, "need distinct levels of income, at least one and not all"),
        ({"evaluate": predicting(levels=[])}, "levels"),
        ({"evaluate": predicting(attribute="sex", levels=["m", "f"])}, "and not all"),
        ({"evaluate": predicting(features=[])}, "attributes other than the one"),
        ({"evaluate": predicting(features=["sex", "income"])}, "attributes other than the one"),
        ({"evaluate": {**predicting(), "groups": []}}, "is required with `predict`"),
        ({"evaluate": {**predicting(), "groups": [["income", "sex"]]}}, "holds the predicted attribute"),
        ({"evaluate": predicting(), "synthesis": None, "statistics__0__share": "3/4"},
         "compares microdata"),
    ],
)  # fmt: skip
def test_run_files_that_cannot_be_used(das, tmp_path, changes, what):
    config = write_survey(tmp_path, **changes)
    assert what in refused(das, "validate", config)
    assert not (tmp_path / "out").exists()


def test_shares_that_do_not_sum_to_1_are_an_error_of_the_budget(das, tmp_path):
    code, _ = das("validate", write_survey(tmp_path, statistics__0__share="1/3"))
    assert code == BudgetError.exit_code


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (("3", "A", "40", "7919393"), "unknown code"),
        (("", "A", "40", "7919393"), "code is missing"),
        (("1", "A", "7919393x", "100"), "no whole number"),
        (("1", "A", "", "7919393"), "number is missing"),
        (("1", "A", "40", "79193.93"), "no whole number"),
    ],
)
def test_data_that_do_not_fit_cost_nothing_and_are_not_quoted(das, config, tmp_path, row, what):
    write_people(tmp_path, [*people()[1:], row])
    text = refused(das, "run", config)
    assert what in text
    assert f"row {RECORDS + 1}" in text
    assert "79193" not in text
    assert not claims(tmp_path)
    write_people(tmp_path)
    done(das, "run", config)


def test_another_number_of_records_is_refused_with_bounded_neighbors_alone(das, config, tmp_path):
    write_people(tmp_path, people(n=RECORDS - 1))
    assert "another number of records" in refused(das, "run", config)
    assert not claims(tmp_path)
    configure(tmp_path, privacy__neighbors="unbounded")
    done(das, "run", config)
    done(das, "verify", config)


def test_a_number_below_the_first_bin_is_refused_until_it_has_a_label(das, config, tmp_path):
    ages = {"column": "AGE", "bins": [10, 30, 50, 70]}
    configure(tmp_path, data__columns__age=ages)
    said = refused(das, "run", config)
    assert "column AGE: number is below the first bin" in said
    assert "put a lower edge first in its `bins`" in said
    assert not claims(tmp_path)
    configure(tmp_path, data__columns__age=ages | {"bins": [0, 10, 30, 50, 70]})
    done(das, "run", config)


def test_commands_of_censuses_say_that_a_survey_is_none(das, config, tmp_path):
    assert "is the run file of a survey" in refused(das, "plan", config)
    assert "one process" in refused(das, "run", config, "--master", "local[2]")


def test_the_folder_of_a_release_is_enough(das, config, tmp_path):
    """Copied anywhere: it is verified, certified and reported; whatever was changed is found."""
    done(das, "run", config)
    checked, alone = json.loads(done(das, "verify", config)), tmp_path / "elsewhere" / "copy"
    shutil.copytree(tmp_path / "out/release", alone)
    for name in ("run.yaml", "weights.csv", "persons.csv"):
        (tmp_path / name).rename(tmp_path / f"moved-{name}")
    assert json.loads(done(das, "verify", alone)) == checked
    published = "".join(path.read_text() for path in (alone / "configuration").iterdir())
    assert "persons.csv" not in published
    page = tmp_path / "page.html"
    done(das, "verify", alone, "--certificate", page)
    text = page.read_text()
    digest = hashlib.sha256((alone / "manifest.json").read_bytes()).hexdigest()
    assert digest in text
    assert "One record is <strong>one person</strong>" in text
    assert "mean of income" in text
    before = (alone / "report.html").read_bytes()
    (alone / "report.html").unlink()
    done(das, "inspect", "--reports", alone)
    assert (alone / "report.html").read_bytes() == before
    assert "has no section `marginals`" in refused(das, "estimate", alone)
    for command in ("tables", "explore", "areas", "export"):
        said = refused(das, command, alone)
        assert "is the release of a survey, which has no geounits" in said
        assert "das verify or inspect" in said
    weights = alone / "configuration" / "weights-income.csv"
    weights.write_text(weights.read_text().replace("m,a,3/10", "m,a,1/10").replace(
        "m,b,3/20", "m,b,7/20"))  # fmt: skip
    assert "is not the one the manifest of the release names" in refused(das, "verify", alone)
    assert "is not the one the manifest of the release names" in refused(
        das, "verify", alone, "--certificate", page
    )


def test_no_spreadsheet_computes_a_cell_of_a_release(das, tmp_path):
    """Names and labels that are formulas, in every CSV file; the weights are read back from it."""
    config = write_survey(tmp_path)
    run = config.read_text().replace("group:", "'@SUM':").replace("- group", "- '@SUM'")
    config.write_text(run.replace("'1': m", "'1': =1+1"))
    weights = tmp_path / "weights.csv"
    weights.write_text(weights.read_text().replace("group", "@SUM").replace("m,", "=1+1,"))
    done(das, "run", config)
    alone = Path(shutil.copytree(tmp_path / "out/release", tmp_path / "elsewhere"))
    weights.unlink()
    done(das, "verify", alone)
    seen = Counter()
    for path in alone.rglob("*.csv"):
        with path.open(newline="") as handle:
            for cell in [cell for row in csv.reader(handle) for cell in row]:
                assert cell[:1] not in {"=", "@"}, path
                seen[path.name] += "=1+1" in cell or "@SUM" in cell
    assert seen["weights-income.csv"] == 4
    assert seen["means.csv"] == 3
    assert len(+seen) == 3  # and the microdata


def test_a_release_without_its_configuration_needs_the_run_file(das, config, tmp_path):
    """As solutions beside a release are."""
    done(das, "run", config)
    release = tmp_path / "out/release"
    shutil.rmtree(release / "configuration")
    manifest = json.loads((release / "manifest.json").read_text())
    manifest["files"] = [
        one for one in manifest["files"] if not one["path"].startswith("configuration")
    ]
    (release / "manifest.json").write_text(json.dumps(manifest))
    assert "give the run file: solutions need it" in refused(das, "verify", release)
    done(das, "verify", config)
    configure(tmp_path, synthesis__components=3)
    done(das, "run", "--only", "solve", config, "--solution", "other")
    assert "give the run file" in refused(das, "verify", tmp_path / "out/solutions/other")
    assert json.loads(done(das, "verify", config, "--solution", "other"))["parts"] == 3


def test_a_survey_without_means_or_without_microdata(das, tmp_path):
    config = write_survey(tmp_path, statistics=[], synthesis__share="1")
    done(das, "run", config, "--out", tmp_path / "microdata")
    assert not (tmp_path / "microdata/release/means.csv").exists()
    config = write_survey(
        tmp_path, statistics__0__share="3/4", synthesis=None, privacy__budget_id="second"
    )
    done(das, "run", config, "--out", tmp_path / "means")
    assert not (tmp_path / "means/release/microdata").exists()


def test_what_a_folder_holds_is_said(das, config, tmp_path):
    assert "run `das run` first" in refused(das, "verify", config)
    assert "give the output.directory of a run" in refused(das, "run", tmp_path)
    dies_in("jobs.survey.run.write_microdata", das, "run", config)
    text = done(das, "run", tmp_path / "out", "--check")
    assert [line.split() for line in text.splitlines()] == [
        ["income", "released"], ["age", "released"], ["synthesis", "measured"]
    ]  # fmt: skip
    assert "release/measurements/part=income" in done(das, "inspect", tmp_path / "out")
    found = json.loads(done(das, "validate", config, "--json"))
    assert [part["cost"] for part in found["parts"]] == ["1", "1", "2"]
    assert "is the run folder of a survey" in refused(
        das, "inspect", tmp_path / "out", "--geounit", "1"
    )
    (tmp_path / "run.yaml").rename(tmp_path / "moved.yaml")
    assert "say where it is with --config" in refused(das, "run", tmp_path / "out")
    done(das, "run", tmp_path / "out", "--config", tmp_path / "moved.yaml")


# --- refused before anything is spent ------------------------------------------------------------


@pytest.mark.parametrize("name", ["b * c", "total", " age", "prefix(age)", "a#b"])
def test_attributes_of_surveys_are_named_as_those_of_censuses(das, tmp_path, name):
    """`b * c` beside `b` and `c` made two queries of one name, which shared a noise stream."""
    columns = {"b": {"column": "SEX", "codes": {"1": "m", "2": "f"}},
               name: {"column": "GROUP", "codes": {"A": "a", "B": "b", "C": "c"}}}  # fmt: skip
    synthesis = {"share": "1", "components": 2, "n_fits": 1, "steps": 2}
    config = write_survey(tmp_path, data__columns=columns, statistics=[], synthesis=synthesis)
    assert "cannot be the name of an attribute" in refused(das, "validate", config)
    assert "cannot be the name of an attribute" in refused(das, "run", config)
    assert claims(tmp_path) == []


@pytest.mark.parametrize("label", ["pooled", "everybody", "m * a"])
def test_labels_that_would_make_strata_ambiguous_are_refused(das, tmp_path, label):
    config = write_survey(tmp_path, data__columns__sex__codes={"1": label, "2": "f"})
    assert "make names of strata ambiguous" in refused(das, "validate", config)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"statistics__1__high": 1 << 28, "statistics__1__sd_bound": 1e8}, "coarser unit"),
        ({"privacy__rho": "1/100000000000000000"}, "sigma_sq"),
    ],
)
def test_means_that_could_not_be_measured_cost_nothing(das, tmp_path, changes, what):
    config = write_survey(tmp_path, **changes)
    assert what in refused(das, "validate", config)
    assert what in refused(das, "run", config)
    assert claims(tmp_path) == []


def test_no_noisy_answer_makes_a_later_step_fail(das, tmp_path):
    """So little budget that the first step says nothing: later ones clip within a public limit."""
    ages = {"mean": "age", "low": -(1 << 27), "high": 1 << 27, "sd_bound": 2e7, "share": "1",
            "steps": 3, "intersect": False}  # fmt: skip
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = write_survey(folder, privacy__rho="1/10000", statistics=[ages], synthesis=None)
        done(das, "run", config)
        widest = max(row["upper"] - row["lower"] for row in sums(folder, "age"))
        assert widest <= 2 << 28


def test_a_part_that_failed_after_its_draw_is_spent(das, config, tmp_path, monkeypatch):
    """It is never drawn again, and the error shows no value."""

    def fails(*arguments: object) -> None:
        raise ValueError(f"noisy answers {arguments}")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.survey.confidential.measure.part_rows", fails)
        text = refused(das, "run", config)
    assert "failed after noise was drawn" in text
    assert "noisy answers" not in text
    assert [line["event"] for line in journal(tmp_path) if "event" in line] == [
        "drawing", "failed_draw"
    ]  # fmt: skip
    for _ in range(2):
        assert "its budget is spent" in refused(das, "run", tmp_path / "out")
    assert sum(line.get("event") == "drawing" for line in journal(tmp_path)) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_what_the_machine_does_wrong_is_drawn_anew(das, config, tmp_path, monkeypatch, error):
    def fails(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("jobs.survey.confidential.measure.write_part", fails)
        with suppress(MemoryError):  # a full disk is said, this one is not
            refused(das, "run", config)
    done(das, "run", tmp_path / "out")
    assert json.loads(done(das, "verify", config))["spent"] == "4"
