"""One grant, one draw: copies, backups and crashes never make a second noisy answer readable."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from das.errors import DasError, InputError, LedgerError, OutputError
from jobs.pipeline.confidential.measure import MeasureStage
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import account_of
from jobs.pipeline.folder.draws import Draws
from jobs.pipeline.folder.identity import claim_as, owner_of
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.account import is_keyed, read_account
from jobs.pipeline.storage.dataset import MANIFEST, dataset_digest
from jobs.pipeline.storage.journal import append_to_journal, read_journal
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.places import release_of
from tests.builders.units import section, write_units

pytestmark = pytest.mark.usefixtures("here")

SYSTEM = {"source": "operating_system"}


class Died(BaseException):
    """Stands for a driver that is killed."""


@pytest.fixture
def config(tmp_path) -> Path:
    toy.write_records(tmp_path)
    return toy.configuration(tmp_path, privacy__randomness=SYSTEM)


def measure(config: Path, out: Path | None = None, *, moved: bool = False) -> Path:
    resolved = load_run(config, output=out)
    with open_job(resolved, Reporter(quiet=True), moved=moved) as job:
        do_stages(job, ("plan", "read"))
        do_stages(job, ("resolve_constraints", "reserve_budget", "measure"))
    return resolved.config.output.directory


def dies_at(geolevel: str, config: Path) -> Path:
    """Measure, and die before anything is done for a geolevel; returns the folder."""
    begin = Draws.begin

    def dying(self: Draws, name: str, **options: bool) -> str:
        if name == geolevel:
            raise Died
        return begin(self, name, **options)

    dies_with("jobs.pipeline.folder.draws.Draws.begin", dying, config)
    return load_run(config).config.output.directory


def dies_with(place: str, replacement: Callable, config: Path) -> None:
    """Measure, and die in a function that was replaced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, replacement)
        with pytest.raises(Died):
            measure(config)


def recorded(config: Path) -> dict[tuple[str, str], list[str]]:
    """Digests in the account by product and geolevel."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in read_journal(account_of(load_run(config).config)):
        if line.get("event") == "measured":
            found.setdefault((line["product"], line["geolevel"]), []).append(line["sha256"])
    return found


def published(out: Path, product: str = "toy") -> dict[tuple[str, str], list[str]]:
    """Digests of the measurements of a folder, as the account should have them."""
    release = release_of(out, "persons" if product == "toy" else product)
    datasets = {level: release.measurements(level) for level in toy.LEVELS}
    datasets |= {
        f"{level}, on-demand queries": release.lazy_measurements(level) for level in toy.LEVELS
    }
    return {
        (product, level): [dataset_digest(dataset)]
        for level, dataset in datasets.items()
        if (dataset / MANIFEST).exists()
    }


# --- copies and backups --------------------------------------------------------------------------


def test_copies_of_a_folder_draw_nothing(config, tmp_path):
    out = dies_at("county", config)
    copies = [Path(shutil.copytree(out, tmp_path / f"copy{i}")) for i in range(2)]
    for copy in copies:
        with pytest.raises(LedgerError, match="in a copy of the folder in which the run began"):
            measure(config, copy)
        assert published(copy).keys() == {("toy", "state")}
    measure(config)
    shutil.rmtree(out)
    for copy in copies:
        for moved in (False, True):
            with pytest.raises(LedgerError, match="county: was measured under grant '1' before"):
                measure(config, copy, moved=moved)
    assert {len(digests) for digests in recorded(config).values()} == {1}
    assert len(recorded(config)) == 4


def test_a_folder_that_moved_goes_on_and_the_one_left_behind_does_not(config, tmp_path, das):
    out = dies_at("county", config)
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    code, printed = das("run", copy)
    assert code == LedgerError.exit_code
    assert f"`das run {copy} --moved`" in printed
    assert das("run", copy, "--moved", "--quiet")[0] == 0
    assert published(copy) == recorded(config)
    with pytest.raises(LedgerError, match=rf"was measured .* got measured in {copy}"):
        measure(config)
    assert published(out).keys() == {("toy", "state")}


def test_a_renamed_folder_goes_on_by_itself(config, tmp_path):
    out = dies_at("tract", config)
    out.rename(tmp_path / "elsewhere")
    measure(config, tmp_path / "elsewhere")
    assert published(tmp_path / "elsewhere") == recorded(config)


def test_an_older_backup_is_refused_with_the_true_reason(config, tmp_path):
    out = dies_at("tract", config)
    backup = Path(shutil.copytree(out, tmp_path / "backup"))
    measure(config)
    assert len(recorded(config)) == 4
    shutil.rmtree(out)
    shutil.copytree(backup, out)
    before = published(out)
    with pytest.raises(
        LedgerError,
        match=r"tract: was measured under grant .* restored from a backup that is older",
    ):
        measure(config)
    assert published(out) == before


def test_a_folder_rolled_back_while_it_drew_is_refused_until_it_is_said_to_go_on(config, tmp_path):
    out = dies_at("tract", config)
    backup = Path(shutil.copytree(out, tmp_path / "backup"))
    dies_with("jobs.pipeline.confidential.measure.MeasureStage.draw", dying, config)
    shutil.rmtree(out)
    backup.rename(out)
    with pytest.raises(LedgerError, match=r"another copy of this folder began to draw it later"):
        measure(config)
    measure(config, moved=True)
    assert published(out) == recorded(config)


def dying(*_: object, **__: object) -> None:
    raise Died


def test_a_copy_that_draws_at_the_same_time_leaves_one_of_both(config, tmp_path, monkeypatch):
    """The one taken over while it draws removes what it drew; nobody could read it."""
    out = dies_at("county", config)
    draw, copy = MeasureStage.draw, tmp_path / "copy"

    def overtaken(self: MeasureStage, *arguments: object, **named: object) -> object:
        monkeypatch.setattr(MeasureStage, "draw", draw)
        shutil.copytree(out, copy)
        measure(config, copy, moved=True)
        drawn = draw(self, *arguments, **named)
        assert not (release_of(out).measurements("county") / MANIFEST).exists()
        return drawn

    monkeypatch.setattr(MeasureStage, "draw", overtaken)
    with pytest.raises(
        LedgerError, match=r"drawn by a copy of this folder at the same time.*copy,"
    ):
        measure(config)
    assert list(release_of(out).measurements("county").iterdir()) == []
    assert published(copy) == recorded(config)


def test_a_copy_that_is_measured_may_be_solved_anywhere(config, tmp_path, das):
    """Work on noisy answers costs nothing, in any number of copies."""
    out = measure(config)
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    for folder in (copy, out):
        assert das("run", "--only", "solve", config, "--out", folder, "--quiet")[0] == 0
        assert published(folder) == recorded(config)


def test_two_products_are_drawn_once_each(tmp_path):
    toy.write_records(tmp_path)
    write_units(tmp_path)
    config = toy.configuration(tmp_path, privacy__randomness=SYSTEM, units=section(tmp_path))
    out = dies_at("state", config)
    assert len(read_account(account_of(load_run(config).config))) == 2
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    measure(config)
    assert recorded(config) == published(out) | published(out, "units")
    shutil.rmtree(out)
    with pytest.raises(LedgerError, match="units, part state: was measured"):
        measure(config, copy)


def test_lazy_geolevels_are_drawn_once_each(tmp_path, das):
    toy.write_records(tmp_path)
    config = toy.configuration(
        tmp_path,
        privacy__randomness=SYSTEM,
        privacy__on_demand_queries=["detailed"],
        solve={"fit_to": "level"},
    )
    out = measure(config)
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    assert len(recorded(config)) == 4
    code, printed = das("run", "--only", "solve", config, "--out", copy, "--quiet")
    assert code == LedgerError.exit_code
    assert "county, on-demand queries: would be drawn in a copy of the folder" in printed
    assert das("run", "--only", "solve", config, "--quiet")[0] == 0
    assert published(out) == recorded(config)
    assert (
        das("run", "--only", "solve", config, "--out", copy, "--quiet")[0] == LedgerError.exit_code
    )


@pytest.mark.parametrize(
    "lost",
    [
        ".",
        "release",
        "release/products/persons/ledger.jsonl",
        "release/products/persons/measurements/level=county",
        "release/products/persons/measurements/level=county/_manifest.json",
        "release/products/persons/measurements/level=county/part-*",
    ],
)
def test_nothing_that_is_lost_is_drawn_again(config, lost, tmp_path):
    out, account = measure(config), account_of(load_run(config).config)
    before = account.read_bytes()
    (found,) = out.glob(lost) if "*" in lost else [out / lost]
    found.rename(tmp_path / "lost")
    for folder, moved in ((out, False), (out, True), (tmp_path / "another", False)):
        with pytest.raises(LedgerError):
            measure(config, folder, moved=moved)
    assert account.read_bytes() == before
    assert not (tmp_path / "another").exists()


def test_changed_answers_are_lost_whatever_the_folder_forgot(config):
    out = measure(config)
    part = next(release_of(out).measurements("county").glob("part-*"))
    part.write_bytes(part.read_bytes()[:-1] + b"0")
    (out / "draws.jsonl").unlink()
    before = account_of(load_run(config).config).read_bytes()
    for moved in (False, True):
        with pytest.raises(LedgerError, match="noisy answers are drawn once"):
            measure(config, moved=moved)
    assert account_of(load_run(config).config).read_bytes() == before


# --- crashes -------------------------------------------------------------------------------------


def before(call: Callable) -> Callable:
    def crash(*arguments: object, **options: object) -> object:
        if "county" in str(arguments):
            raise Died
        return call(*arguments, **options)

    return crash


def after(call: Callable) -> Callable:
    def crash(*arguments: object, **options: object) -> object:
        found = call(*arguments, **options)
        if "county" in str(arguments):
            raise Died
        return found

    return crash


@pytest.mark.parametrize(
    ("place", "when", "is_drawn"),
    [
        ("jobs.pipeline.folder.draws.Draws.begin", before, False),
        ("jobs.pipeline.folder.draws.Draws.begin", after, False),
        ("jobs.pipeline.confidential.draw.propose", before, False),
        ("jobs.pipeline.confidential.draw.propose", after, True),
        ("jobs.pipeline.folder.draws.Draws.record", after, True),
        ("jobs.pipeline.folder.draws.accept", after, True),
        ("jobs.pipeline.confidential.draw.record_measured", after, True),
    ],
)
def test_whatever_the_driver_dies_between_the_folder_goes_on(config, place, when, is_drawn):
    """What was drawn and not yet readable counts, if it came as far as a proposal."""
    out = load_run(config).config.output.directory
    dies_with(place, when(pkgutil.resolve_name(place)), config)
    dataset = release_of(out).measurements("county")
    drawn = {p.name: p.read_bytes() for p in dataset.glob("part-*")} if dataset.exists() else {}
    measure(config)
    assert published(out) == recorded(config)
    assert len(recorded(config)) == 4
    kept = {p.name: p.read_bytes() for p in dataset.glob("part-*")}
    assert (kept == drawn) == is_drawn


def test_a_driver_that_is_killed_while_it_draws_goes_on(config, tmp_path):
    """A process of its own, ended by the system between the record and the publication."""
    script = (
        "import os, pathlib, signal, sys, jobs.pipeline.folder.draws\n"
        "import pytest; from tests.builders import in_process\n"
        "from tests.pipeline.local.test_one_draw import measure\n"
        "patch = pytest.MonkeyPatch(); in_process.patch_spark(patch)\n"
        "accept, places = jobs.pipeline.folder.draws.accept, []\n"
        "def killed(dataset, attempt):\n"
        "    places.append(dataset)\n"
        "    kills = len(places) == 3\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if kills else accept(dataset, attempt)\n"
        "jobs.pipeline.folder.draws.accept = killed\n"
        "measure(pathlib.Path(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(config)], check=False, cwd=toy.ROOT)
    assert done.returncode == -signal.SIGKILL
    known = recorded(config)
    assert len(known) == 3
    assert len(published(tmp_path / "out")) == 2
    measure(config)
    assert published(tmp_path / "out") == recorded(config)
    assert known.items() <= recorded(config).items()


def test_what_waits_to_be_accepted_and_is_lost_stays_lost(config):
    out = dies_at("county", config)
    dies_with("jobs.pipeline.folder.draws.accept", dying, config)
    next(release_of(out).measurements("county").glob("part-*")).unlink()
    with pytest.raises(LedgerError, match="noisy answers are drawn once"):
        measure(config)
    assert len(recorded(config)) == 2


def test_repairs_keep_what_waits_to_be_accepted(config, das):
    out = dies_at("county", config)
    dies_with("jobs.pipeline.folder.draws.accept", dying, config)
    known = recorded(config)
    assert das("run", out, "--quiet")[0] == 0
    assert known.items() <= recorded(config).items()
    assert published(out) == recorded(config)


def test_an_account_that_was_rolled_back_is_refused_and_learns_what_a_complete_folder_measured(
    config, das
):
    assert das("run", config)[0] == 0
    out, account = load_run(config).config.output.directory, account_of(load_run(config).config)
    claims = account.read_bytes().splitlines(keepends=True)[0]
    account.write_bytes(claims)
    for part in ((), ("--only", "measure"), ("--only", "solve")):
        code, printed = das("run", config, *part)
        assert code == LedgerError.exit_code
        assert "was rolled back: it does not hold the last line that this run folder" in printed
    assert f"`das run {out} --moved`" in printed
    assert das("run", out, "--moved")[0] == 0
    assert published(out) == recorded(config)
    assert das("run", config)[0] == 0


def test_a_second_account_for_the_same_data_is_noticed(config, tmp_path, das):
    """Account and run folder keep a keyed digest of the input; the release has none of any kind."""
    assert das("run", config)[0] == 0
    out, account = load_run(config).config.output.directory, account_of(load_run(config).config)
    (claim, *_) = read_account(account)
    plain = hashlib.sha256((tmp_path / "records.csv").read_bytes()).digest()
    assert claim.input is not None
    assert is_keyed(claim.input, hashlib.sha256(plain).digest())
    assert json.loads((out / "run.json").read_text())["inputs"] == {"toy": claim.input}
    secrets = [plain.hex(), hashlib.sha256(plain).hexdigest(), *claim.input.split(":")]
    for file in (out / "release").rglob("*"):
        if file.is_file():
            assert not [text for text in secrets if text.encode() in file.read_bytes()], file

    second = {"budget_id": "2", "account": str(tmp_path / "another.jsonl")}
    changes = {f"privacy__{key}": value for key, value in second.items()}
    folder = {"output__directory": str(tmp_path / "second")}
    other = toy.configuration(tmp_path, privacy__randomness=SYSTEM, **changes, **folder)
    code, printed = das("run", other)
    assert code == LedgerError.exit_code
    assert f"is a second account: another one holds grants for the same data; got {account}" in (
        " ".join(printed.split())
    )
    assert not (tmp_path / "another.jsonl").exists()
    changes["privacy__account"] = str(account)  # the remedy
    named = toy.configuration(tmp_path, privacy__randomness=SYSTEM, **changes, **folder)
    assert das("run", named)[0] == 0
    assert len(read_account(account)) == 2


def test_a_rolled_back_account_is_refused_by_the_folder_of_any_run(config, tmp_path, das):
    """A backup from before the second run lets nobody forget it; it may be lost on purpose."""
    assert das("run", config)[0] == 0
    account = account_of(load_run(config).config)
    backup = account.read_bytes()
    second = {"privacy__budget_id": "2", "output__directory": str(tmp_path / "second")}
    other = toy.configuration(tmp_path, privacy__randomness=SYSTEM, **second)
    assert das("run", other)[0] == 0
    later = account.read_bytes()
    for rolled_back in (backup, b""):
        account.write_bytes(rolled_back)
        code, printed = das("run", other)
        assert code == LedgerError.exit_code
        assert "was rolled back" in printed
    account.unlink()
    assert "was rolled back" in das("run", other)[1]
    account.write_bytes(later)
    assert das("run", other)[0] == 0


def test_a_folder_that_still_draws_does_not_go_on_under_a_rolled_back_account(config, das):
    out = dies_at("county", config)
    account = account_of(load_run(config).config)
    whole = account.read_bytes()
    account.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    for words in (("run", config), ("run", out), ("run", out, "--moved")):
        code, printed = das(*words)
        assert (code, "was rolled back" in printed) == (LedgerError.exit_code, True)
    account.write_bytes(whole)
    assert das("run", out)[0] == 0


def test_a_folder_of_an_earlier_version_goes_on(config, das):
    """It did not keep the lines that it saw of the account."""
    out = dies_at("county", config)
    lines = [line for line in read_journal(out / "draws.jsonl") if "account_lines" not in line]
    (out / "draws.jsonl").unlink()
    append_to_journal(out / "draws.jsonl", lambda _: lines)
    assert das("run", out)[0] == 0
    assert published(out) == recorded(config)


def test_another_account_does_not_let_a_copy_draw(config, tmp_path):
    out = dies_at("county", config)
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    account = account_of(load_run(config).config)
    changes = {"privacy__randomness": SYSTEM, "privacy__account": str(tmp_path / "fresh.jsonl")}
    other = toy.configuration(tmp_path, **changes)
    with pytest.raises(LedgerError, match=rf"is not the account in which .*expected {account}"):
        measure(other, copy, moved=True)
    assert not (tmp_path / "fresh.jsonl").exists()
    account.rename(tmp_path / "fresh.jsonl")
    measure(other)
    assert published(out) == recorded(other)


# --- claims --------------------------------------------------------------------------------------


def claim_at_once(config: Path, out: Path, bar: multiprocessing.Barrier, told: object) -> None:
    resolved = load_run(config, output=out)
    bar.wait()
    try:
        told.put(claim_as(owner_of(resolved)))
    except DasError as error:
        told.put(f"error {error}")


def test_two_drivers_that_start_at_once_have_one_identity(config, tmp_path):
    context = multiprocessing.get_context("fork")
    for number in range(10):
        bar, told = context.Barrier(2), context.Queue()
        out = tmp_path / f"out{number}"
        two = [context.Process(target=claim_at_once, args=(config, out, bar, told)) for _ in "12"]
        for process in two:
            process.start()
        identities = {told.get(timeout=60) for _ in two}
        for process in two:
            process.join()
        assert identities == {json.loads((out / "run.json").read_text())["run"]}


def test_a_folder_in_which_nothing_was_measured_takes_another_configuration(tmp_path):
    toy.write_records(tmp_path)
    wrong = toy.configuration(tmp_path, privacy__randomness=SYSTEM, privacy__rho="1/2")
    resolved = load_run(wrong)
    with open_job(resolved, Reporter(quiet=True)) as job:
        do_stages(job, ("plan", "read"))
    out = resolved.config.output.directory
    assert release_of(out).ledger.exists()
    right = toy.configuration(tmp_path, privacy__randomness=SYSTEM)
    measure(right)
    assert '"granted": "1"' in release_of(out).ledger.read_text()
    with pytest.raises(OutputError, match=r"belongs to a different configuration; got .*its grant"):
        measure(toy.configuration(tmp_path, privacy__randomness=SYSTEM, privacy__rho="1/2"))


def test_a_seeded_folder_that_was_measured_keeps_its_configuration(tmp_path):
    toy.write_records(tmp_path)
    measure(toy.configuration(tmp_path))
    with pytest.raises(OutputError, match=r"different configuration; got .*measured the data"):
        measure(toy.configuration(tmp_path, privacy__rho="1/2"))


def test_a_run_that_is_refused_for_its_grant_leaves_no_folder(config, tmp_path):
    measure(config)
    for out in ("second", "deep/third"):
        with pytest.raises(LedgerError, match="was spent by another run"):
            measure(config, tmp_path / out)
        assert not (tmp_path / out).exists()
    assert not (tmp_path / "deep").exists()


def test_an_account_that_cannot_be_written_is_refused_before_anything_is_made(
    config, tmp_path, monkeypatch, das
):
    account, access = account_of(load_run(config).config), os.access
    read_only = lambda path, mode: Path(path) != account.parent and access(path, mode)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.storage.account.os.access", read_only)
        for command in ("validate", "run"):
            code, printed = das(command, config)
            assert code == OutputError.exit_code
            assert f"{account}: the account cannot be written; got" in printed
            assert "name another file under privacy.account" in printed
    assert not (tmp_path / "out").exists()


def test_a_disk_that_turns_read_only_stops_before_the_first_draw(config, tmp_path, monkeypatch):
    account, opened = account_of(load_run(config).config), os.open

    def refused(path: object, *rest: int) -> int:
        if path == account:
            raise OSError(30, os.strerror(30), str(path))
        return opened(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.storage.journal.os.open", refused)
        with pytest.raises(OutputError, match=r"account.jsonl: cannot be written; got Read-only"):
            measure(config)
    assert not (release_of(tmp_path / "out").root / "measurements").exists()
    measure(config)


@pytest.mark.parametrize("seeded", [False, True])
def test_a_failed_check_leaves_a_trace_in_the_account(tmp_path, das, seeded):
    toy.write_records(tmp_path)
    row = {"row": [{"cells": {}}], "name": "few", "geolevel": "block", "at_most": 3}
    randomness = {} if seeded else {"privacy__randomness": SYSTEM}
    config = toy.configuration(tmp_path, invariants=[row], **randomness)
    for _ in range(2):
        with pytest.raises(InputError, match=r"block 99.*break an invariant"):
            measure(config)
    code, printed = das("account", config)
    assert code == 0
    assert "2 checks of the data failed" in printed
    code, printed = das("account", config, "--json")
    failed = json.loads(printed)["failed_checks"]
    assert [one["geounit"][:8] for one in failed] == ["block 99"] * 2
    assert json.loads(printed)["grants"] == []
    account = account_of(load_run(config).config)
    account.unlink()
    account.mkdir()
    with pytest.raises(OutputError, match=r"account.jsonl: cannot be (read|written)"):
        measure(config)


def test_who_stops_a_run_is_told_how_to_go_on(config, tmp_path, monkeypatch, das):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.confidential.stages.publish_given_counts", interrupted)
        code, printed = das("run", config, "--quiet")
    assert code == 130
    line = f"das: stopped; nothing is lost, go on with `das run {tmp_path / 'out'}`\n"
    assert printed.count(line) == 1
    assert das("run", tmp_path / "out", "--quiet")[0] == 0
