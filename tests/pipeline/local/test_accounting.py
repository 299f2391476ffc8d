"""One grant, one run; lost measurements are not drawn again; products add up; pure DP end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import BudgetError, ConfigError, LedgerError, RuntimeSetupError, VerificationError
from das.mechanisms import entropy
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import account_of
from jobs.pipeline.folder.progress import repair
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.report.text import RHO
from jobs.pipeline.storage.account import read_account
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of, truth_of
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent

SYSTEM = {"source": "operating_system"}


def real(folder: Path, out: str, **changes) -> Path:
    return toy.configuration(
        folder, privacy__randomness=SYSTEM, output__directory=str(folder / out), **changes
    )


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records measured once, as persons under grant 1, into the folder `first`."""
    folder = tmp_path_factory.mktemp("people")
    toy.write_records(folder)
    execute(real(folder, "first", privacy__product="persons"))
    return folder


def manifest_of(out: Path) -> dict:
    return json.loads((release_of(out).manifest).read_text())


def test_a_second_run_on_the_same_people_is_refused_before_it_reads(people):
    config = real(people, "second", privacy__product="persons")
    with pytest.raises(
        LedgerError, match=r"grant '1' of 'persons' was spent by another run.*first"
    ):
        execute(config)
    assert not (truth_of(people / "second").root / "histograms").exists()
    assert not (people / "second" / "release").exists()
    assert len(read_account(account_of(load_run(config).config))) == 1


def test_a_limit_is_kept_until_it_is_raised_for_all_to_see(das, here, tmp_path):
    toy.write_records(tmp_path)
    run = real(tmp_path, "out")
    assert das("account", run, "--limit", "1/2")[0] == 3  # without a reason
    limited = das("account", run, "--limit", "1/2", "--reason", "the board, 12 May")
    assert (limited[0], "left: rho 1/2" in limited[1]) == (0, True), limited
    for command in ("validate", "run"):
        code, said = das(command, run)
        assert (code, "would exceed the limit" in said, "12 May" in said) == (3, True, True), said
    assert not (tmp_path / "out" / "release").exists()
    assert das("account", run, "--limit", "3", "--reason", "the board, 1 June")[0] == 0
    code, said = das("validate", run)
    assert code == 0, said
    for words in (
        "spent: nothing",
        "rho 1/2 (",
        "the board, 12 May",
        "the board, 1 June",
        "left: rho 2",
    ):
        assert words in said
    assert das("run", run)[0] == 0
    assert "spent: 1 grant, rho 1, " in das("validate", run)[1]
    account = account_of(load_run(run).config)
    account.write_text(account.read_text().replace('"1/2"', '"2/3"'))
    assert das("validate", run)[0] == 3


def test_another_account_near_the_data_is_told(das, tmp_path):
    """A copy of the people under another name would begin with nothing spent."""
    toy.write_records(tmp_path)
    own = str(tmp_path / "own.das-account.jsonl")
    run = real(tmp_path, "out", privacy__account=own)
    assert "another account" not in das("validate", run)[1]
    (tmp_path / "people.csv.das-account.jsonl").touch()
    said = das("validate", run)[1]
    assert f"are its people the same? {tmp_path}/people.csv.das-account.jsonl" in said


def test_the_run_that_spent_the_grant_goes_on(people):
    config = real(people, "first", privacy__product="persons")
    counts = release_of(people / "first").counts("block")
    before = sparse(counts)
    shutil.rmtree(counts)
    repair(load_run(config))
    execute(config)
    assert sparse(counts) == before


def test_another_product_of_the_same_people_adds_up(people):
    config = real(people, "units", privacy__product="units", privacy__rho="1/2")
    out = execute(config)
    account = manifest_of(out)["account"]
    assert [(g["product"], g["total"]) for g in account["grants"]] == [
        ("persons", "1"),
        ("units", "1/2"),
    ]
    assert [total["total"] for total in account["composed"]] == ["3/2"]
    assert "3/2" in (release_of(out).report).read_text()


@pytest.mark.usefixtures("here")
def test_grants_for_other_neighbors_of_the_same_people_add_up(tmp_path, das):
    """One run protects changed records, the other added ones, which cost 2 rho to change."""
    toy.write_records(tmp_path)
    assert das("run", real(tmp_path, "bounded"))[0] == 0
    other = {"privacy__budget_id": "2", "privacy__neighbors": "unbounded"}
    config = real(tmp_path, "unbounded", **other)
    assert das("run", config)[0] == 0
    code, printed = das("account", config, "--json")
    account = json.loads(printed)
    assert code == 0
    assert [grant["changed_record"] for grant in account["grants"]] == ["1", "2"]
    assert [(one["neighbors"], one["total"]) for one in account["composed"]] == [("bounded", "3")]
    assert 18.8 < account["composed"][0]["epsilon"] < 18.84
    remark = "nothing is stated: grant 1 of toy protects changed records alone"
    assert remark in " ".join(das("account", config)[1].split())
    manifest = manifest_of(tmp_path / "unbounded")
    assert manifest["account"]["composed"] == account["composed"]
    assert manifest["statements"][0]["total"] == "2"
    report = (release_of(tmp_path / "unbounded").report).read_text()
    assert remark in report
    assert das("verify", tmp_path / "unbounded" / "release")[0] == 0
    assert (
        "= 3, zero-concentrated"
        in (tmp_path / "unbounded/release/products/persons/README.md").read_text()
    )


def test_measurements_that_are_gone_are_not_drawn_again(people):
    shutil.copytree(people / "first", people / "kept")
    lost = release_of(people / "first").measurements("tract")
    shutil.rmtree(lost)
    config = real(people, "first", privacy__product="persons")
    with pytest.raises(
        LedgerError, match="level=tract: is missing, and noisy answers are drawn once"
    ):
        execute(config)
    assert not lost.exists()
    shutil.copytree(release_of(people / "kept").measurements("tract"), lost)
    execute(config)
    shutil.rmtree(people / "kept")


def test_verify_finds_a_changed_ledger_and_foreign_measurements(people):
    out = people / "first"
    plan = load_run(real(people, "first", privacy__product="persons")).plan
    release = release_of(out)
    verify_release(plan, release)
    whole = release.ledger.read_text()
    release.ledger.write_text(whole.replace('"geounits": 1}', '"geounits": 2}', 1))
    with pytest.raises(LedgerError, match="edited or damaged"):
        verify_release(plan, release)
    release.ledger.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(VerificationError, match="is not finalized"):
        verify_release(plan, release)
    release.ledger.write_text(whole)
    dataset = release.measurements("county") / "_manifest.json"
    dataset.write_text(dataset.read_text() + "\n")
    with pytest.raises(VerificationError, match="is not the one"):
        verify_release(plan, release)


def test_a_failure_before_the_first_draw_leaves_the_grant_to_the_run(tmp_path, monkeypatch):
    """No entropy: nothing is measured; the same folder goes on later, another may not."""
    toy.write_records(tmp_path)
    config = real(tmp_path, "out")

    def no_entropy(_: int) -> bytes:
        raise NotImplementedError

    with monkeypatch.context() as patched:
        patched.setattr(entropy, "os", SimpleNamespace(urandom=no_entropy))
        with pytest.raises(
            RuntimeSetupError, match="entropy: is not available from the operating system"
        ):
            execute(config)
    assert not list((tmp_path / "out" / "release").rglob("measurements/*/_manifest.json"))
    assert len(read_account(account_of(load_run(config).config))) == 1
    out = execute(config)
    assert totals_are_exact(out, "state")
    with pytest.raises(LedgerError):
        execute(real(tmp_path, "other"))


def test_seeded_runs_spend_nothing(tmp_path):
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path)
    execute(config)
    assert not account_of(load_run(config).config).exists()
    assert manifest_of(tmp_path / "out")["account"] is None


def test_pure_differential_privacy_end_to_end(tmp_path):
    toy.write_records(tmp_path)
    config = toy.configuration(
        tmp_path,
        privacy={
            "definition": "pure",
            "epsilon": "4",
            "allocation": str(toy.ROOT / "conf" / "allocation" / "toy.yaml"),
            "randomness": {"source": "seeded_not_for_release", "seed": 5},
        },
    )
    out = execute(config)
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    manifest = manifest_of(out)
    assert (manifest["privacy"]["definition"], manifest["privacy"]["total"]) == ("pure", "4")
    assert {row["mechanism"] for row in manifest["budget"]} == {"discrete_laplace"}
    for level in toy.LEVELS:
        files = (release_of(out).measurements(level)).glob("*.parquet")
        table = pa.concat_tables(pq.read_table(path, partitioning=None) for path in files)
        assert set(table.column("mechanism").to_pylist()) == {"discrete_laplace"}
        assert min(table.column("variance").to_pylist()) > 0
    page = (release_of(out).report).read_text()
    assert "ε-differential privacy" in page
    assert "discrete Laplace" in page
    assert "Gaussian" not in page


@pytest.mark.parametrize(
    ("protects", "record", "household"), [("record", "1", "100"), ("household", "1/100", "1")]
)
def test_the_loss_of_a_household_is_stated_everywhere(
    das, here, tmp_path, protects, record, household
):
    toy.write_records(tmp_path)
    keys = {"privacy__household_size": 10, "privacy__protects": protects}
    # Without the exact total of the state, so that households may also leave it.
    config = real(tmp_path, "out", **keys, invariants=[])
    words = "anything in a household of at most 10 persons"
    code, said = das("validate", config)
    assert (code, words in " ".join(said.split())) == (0, True), said
    out = execute(config)
    manifest = manifest_of(out)
    rows = {row["change"]: row for row in manifest["statements"]}
    assert (manifest["privacy"]["total"], rows["record"]["total"]) == (record, record)
    assert (rows["household"]["name"], rows["household"]["total"]) == ("10", household)
    readme = (release_of(out).root / "README.md").read_text()
    assert f"household of at most 10 persons together have {RHO} = {household}, " in readme
    assert words in release_of(out).report.read_text()
    page = tmp_path / "page.html"
    code, said = das("verify", out / "release", "--certificate", page)
    assert (code, words in page.read_text()) == (0, True), said
    assert "the second row of the table is that to a household" in page.read_text()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"privacy__rho": 0.5}, "floating-point number, which is not exact"),
        ({"privacy__rho": "0"}, "privacy.rho: Input should be greater than 0; got '0'"),
        ({"privacy__rho": "-1"}, "privacy.rho: Input should be greater than 0; got '-1'"),
        ({"privacy__neighbors": "nearby"}, "privacy.neighbors: .*'bounded' or 'unbounded'"),
        ({"privacy__definition": "pure"}, "counts `epsilon`, not `rho`"),
        ({"privacy__definition": "renyi"}, "privacy.definition: .*'zcdp' or 'pure'"),
        ({"privacy__randomness": {"source": "seeded_not_for_release"}}, "`seed` goes with"),
        ({"privacy__protects": "household"}, "needs `household_size`, such as 10"),
        (
            {
                "privacy__protects": "household",
                "privacy__household_size": 5,
                "privacy__rho": None,
                "privacy__epsilon": "3",
                "privacy__epsilon_from": "noise",
            },
            "goes with `epsilon_from: rho` only",
        ),
    ],
)
def test_bad_privacy_settings_touch_nothing(tmp_path, changes, match):
    from das.errors import ConfigError

    toy.write_records(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises((ConfigError, BudgetError), match=match):
        execute(toy.configuration(tmp_path, **changes))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "run.yaml"])


# --- a target of epsilon and delta ----------------------------------------------------------------

TARGET = {"privacy__rho": None, "privacy__epsilon": "3", "privacy__epsilon_from": "noise"}


def test_a_run_for_a_target_grants_the_rho_that_its_noise_affords(tmp_path):
    toy.write_records(tmp_path)
    config = real(tmp_path, "out", privacy__delta="1/1000000", **TARGET)
    resolved = load_run(config)
    rho = resolved.plan.budget.total
    out = execute(config)
    manifest = manifest_of(out)
    privacy = manifest["privacy"]
    assert (privacy["epsilon_by_noise"], privacy["total"]) == ("3", str(rho))
    assert privacy["epsilon"] > 3  # what rho alone implies is more
    assert manifest["account"]["composed"][0]["total"] == str(rho)
    assert "the target for which" in (release_of(out).report).read_text()
    assert load_run(config).plan.budget == resolved.plan.budget


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"privacy__definition": "pure"},
            "privacy: epsilon_from: cannot be noise under pure, where the total is epsilon itself",
        ),
        (
            {"privacy__rho": "1", "privacy__epsilon": None},
            "`epsilon_from: noise` goes with `epsilon`, not with `rho`",
        ),
    ],
)
def test_what_a_target_cannot_be_is_refused(tmp_path, changes, message):
    toy.write_records(tmp_path)
    with pytest.raises((BudgetError, ConfigError), match=message):
        load_run(real(tmp_path, "out", **{**TARGET, **changes}))
