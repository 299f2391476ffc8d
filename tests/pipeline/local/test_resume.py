"""A run goes on from any point, damaged datasets are made again alike, lost noisy answers are not."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters
from py4j.protocol import Py4JError, Py4JNetworkError
from typer.testing import CliRunner

import jobs.pipeline.storage.dataset
from das.errors import (
    ConfigError,
    DamageError,
    InputError,
    LedgerError,
    OutputError,
    RuntimeSetupError,
)
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.folder.identity import claim_as, owner_of
from jobs.pipeline.folder.lock import only_driver
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.report.finished import write_internal_reports
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from jobs.pipeline.storage.layout import Roots
from tests.builders import in_process, toy
from tests.builders.places import release_of, truth_of
from tests.pipeline.local.test_failsafe import configure, hide_what_leaves_imply

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a complete run; beside it, its run file."""
    folder = tmp_path_factory.mktemp("finished")
    toy.write_records(folder)
    with pytest.MonkeyPatch.context() as patch:
        in_process.patch_spark(patch)
        out = in_process.execute(toy.configuration(folder))
        write_internal_reports(Roots.of(out))
    return out


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def contents(out: Path) -> dict[str, list[str]]:
    """Digests of all published files by dataset, whatever their names."""
    return {
        str(path.parent.relative_to(out)): sorted(p.sha256 for p in Dataset.open(path.parent).parts)
        for path in out.rglob(MANIFEST)
    }


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def one_part(dataset: Path) -> Path:
    return dataset / Dataset.open(dataset).parts[0].file


def run_file(out: Path) -> Path:
    """The run file that a run folder remembers."""
    return Path(json.loads((out / "run.json").read_text())["run_file"])


def all_files(out: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "driver.lock"}


def test_a_complete_run_is_said_to_be(copy, das):
    before = all_files(copy)
    code, printed = das("run", copy)
    assert code == 0
    n_files = sum(len(parts) for parts in contents(copy).values())
    assert f"complete: {n_files} files of {len(contents(copy))} datasets" in printed
    assert all_files(copy) == before


@pytest.mark.parametrize(
    ("harms", "n_redone"),
    [
        (
            {
                "confidential/products/persons/histograms/level=tract": remove,
                "confidential/products/persons/histograms/level=block": flip,
                "release/geography/level=county": truncate,
                "release/products/persons/invariants/level=state": remove,
                "release/products/persons/estimates/whole/level=county": truncate,
                "release/products/persons/estimates/tables/level=block": remove,
                "release/products/persons/microdata/csv": remove,
                "release/products/persons/tables/level=tract": flip,
            },
            9,
        ),
        ({"release/products/persons/counts/level=county": flip}, 9),
    ],
)
def test_what_follows_from_the_rest_is_made_again_alike(copy, das, harms, n_redone):
    """No command builds on a damaged file; one makes it again, with all that was solved from it."""
    before = contents(copy)
    parts = [one_part(copy / dataset) for dataset in harms]
    for part, harm in zip(parts, harms.values(), strict=True):
        harm(part)
    for words in (("run", run_file(copy), "--out", copy), ("run", copy, "--check")):
        code, printed = das(*words)
        assert code == DamageError.exit_code
        assert any(f"{part}: " in printed for part in parts)
        assert "das run" in printed
    code, printed = das("run", copy)
    assert code == 0
    assert all(f"{part}: " in printed for part in parts)
    redone = re.findall(r"(\d+) datasets? made again", printed)
    assert sum(map(int, redone)) == n_redone
    assert contents(copy) == before
    verify_run(load_run(run_file(copy), output=copy))


@pytest.mark.parametrize("harm", [remove, flip, truncate, lambda path: shutil.rmtree(path.parent)])
@pytest.mark.parametrize("of_manifest", [False, True])
def test_lost_noisy_answers_stay_lost(copy, das, harm, of_manifest):
    dataset = release_of(copy).measurements("tract")
    harm(dataset / MANIFEST if of_manifest else one_part(dataset))
    before = all_files(copy)
    for words in (("run", copy), ("run", run_file(copy), "--out", copy)):
        code, printed = das(*words)
        assert code == LedgerError.exit_code
        assert str(dataset) in printed
        assert "nothing may be measured again under this grant" in printed
        assert "restore the file from a backup; or give another privacy.budget_id" in printed
    assert all_files(copy).keys() == before.keys()


def test_a_lost_ledger_ends_the_run_even_if_nothing_else_is_left(tmp_path, das):
    """The account knows that the grant was claimed; a fresh ledger would let it be spent twice."""
    toy.write_records(tmp_path)
    fresh = {"source": "operating_system"}
    config = toy.configuration(
        tmp_path, privacy__randomness=fresh, privacy__account=str(tmp_path / "account.jsonl")
    )
    assert das("run", "--only", "measure", config)[0] == 0
    out = tmp_path / "out"
    for part in ("release", "confidential"):
        shutil.rmtree(out / part)
    code, printed = das("run", out)
    assert code == LedgerError.exit_code
    assert "ledger.jsonl: is gone" in printed
    assert not release_of(out).measurements("state").exists()


def test_other_input_is_refused_once_anything_was_measured(copy, das):
    """Even if the histograms are gone, and the ledger stays."""
    ledger = release_of(copy).ledger.read_bytes()
    shutil.rmtree(truth_of(copy).root / "histograms")
    records = run_file(copy).parent / "records.csv"
    stamps = records.stat()
    os.utime(records, ns=(stamps.st_atime_ns, stamps.st_mtime_ns + 1))
    try:
        code, printed = das("run", copy)
    finally:
        os.utime(records, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert code == InputError.exit_code
    assert "the input changed since it was read" in printed
    assert release_of(copy).ledger.read_bytes() == ledger
    assert not (truth_of(copy).root / "histograms").exists()


def test_a_driver_that_dies_again_and_again_ends_like_one_that_lives(
    finished, tmp_path, monkeypatch
):
    """Before the manifest is linked and after it, by turns, two or three datasets further each time."""
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path)
    link, linked = os.link, 0

    def dies(draft, manifest):
        nonlocal linked
        if Path(manifest).name != MANIFEST:
            return link(draft, manifest)  # of a probe, or of who owns the folder
        linked += 1
        if start % 2 or linked % 3:
            link(draft, manifest)
        if not linked % 3:
            raise KeyboardInterrupt

    out, start = None, -1
    while out is None:
        start += 1
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(jobs.pipeline.storage.dataset.os, "link", dies)
            out = in_process.execute(config)
    assert start == 13
    assert contents(out) == contents(finished)


def test_moved_parents_are_moved_again(tmp_path, monkeypatch, das):
    """Counts above a geolevel that moved its parents were solved before they were moved."""
    hide_what_leaves_imply(monkeypatch)
    out = in_process.execute(configure(tmp_path))
    before = contents(out)
    assert Dataset.open(release_of(out).counts("block")).facts["statistics"]["moved"]
    remove(one_part(release_of(out).counts("tract")))
    code, printed = das("run", out)
    assert code == 0
    assert "10 datasets made again" in printed
    assert contents(out) == before


def test_counts_that_are_gone_below_others_are_missed(copy, das):
    """And what interrupted steps left is removed before they are done again."""
    before, dataset = contents(copy), release_of(copy).counts("county")
    (dataset / MANIFEST).unlink()
    left = {path.name for path in dataset.iterdir()}
    code, printed = das("run", "--only", "solve", run_file(copy), "--out", copy)
    assert code == OutputError.exit_code
    assert "level=county: is missing" in printed
    assert das("run", copy)[0] == 0
    assert contents(copy) == before
    assert not left & {path.name for path in dataset.iterdir()}


def test_a_run_file_that_moved_is_asked_for(copy, das, tmp_path):
    """Where it is now counts, and is remembered."""
    document = json.loads((copy / "run.json").read_text())
    shutil.copy(document["run_file"], tmp_path / "moved.yaml")
    document["run_file"] = str(tmp_path / "gone.yaml")
    (copy / "run.json").write_text(json.dumps(document))
    code, printed = das("run", copy)
    assert code == ConfigError.exit_code
    assert f"{tmp_path / 'gone.yaml'}: the run file is not where it was; say where" in printed
    code, printed = das("run", copy, "--config", tmp_path / "moved.yaml")
    assert code == 0


def test_a_changed_run_file_is_refused_and_named(copy, das, tmp_path):
    changed = tmp_path / "changed.yaml"
    changed.write_text(run_file(copy).read_text().replace("rho: '1'", "rho: '2'"))
    code, printed = das("run", copy, "--config", changed)
    assert code == ConfigError.exit_code
    assert "is not the configuration that this folder was begun with" in printed
    assert str(changed) in printed


def test_a_folder_of_no_run_cannot_be_resumed(tmp_path, das):
    code, printed = das("run", tmp_path)
    assert code == OutputError.exit_code
    assert "run.json: is missing; give the output.directory of a run" in printed


def test_a_second_driver_is_refused(copy, das):
    with only_driver(copy):
        for words in (("run", copy), ("run", run_file(copy), "--out", copy)):
            code, printed = das(*words)
            assert code == OutputError.exit_code
            assert f"another process works on this folder; got process {os.getpid()}" in printed
    assert das("run", copy)[0] == 0


def test_a_start_that_died_at_once_leaves_a_usable_folder(tmp_path):
    config = load_run(toy.configuration(tmp_path))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".run.json.4711").write_text("{")
    identity = claim_as(owner_of(config))
    assert claim_as(owner_of(config)) == identity
    (tmp_path / "out" / "run.json").unlink()
    (tmp_path / "out" / "other.txt").write_text("")
    with pytest.raises(OutputError, match=r"not the folder of a run; got other.txt"):
        claim_as(owner_of(config))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            OSError(errno.ENOSPC, "full", "/out/report.html"),
            OutputError,
            "/out/report.html: is full",
        ),
        (Py4JNetworkError("Answer from Java side is empty"), RuntimeSetupError, "side is empty"),
        (Py4JError("in o1.f.\n: SparkException: lost\n\tat x"), RuntimeSetupError, "lost; see to"),
    ],
)
def test_what_the_machine_did_is_an_error_of_one_line(monkeypatch, das, error, kind, said):
    def fails():
        try:
            raise error
        finally:
            raise ConnectionRefusedError  # as stopping a session that is gone does

    monkeypatch.setattr("jobs.cli.main.app", fails)
    code, printed = das("run")
    assert code == kind.exit_code
    assert f"das: {kind.__name__} " in printed
    assert said in printed
    assert "`das run OUT`" in printed
    assert printed.count("\n") == 1


def test_a_connection_that_breaks_prints_no_frames(monkeypatch, das, caplog):
    """The bridge to Java writes them to the root logger, if the connection is reset in mid answer."""

    class Reset:
        def send_command(self, command):
            raise Py4JNetworkError("Error while sending or receiving", when="error.on.receive")

        def close(self, reset):
            pass

    client = GatewayClient(gateway_parameters=GatewayParameters(port=1))
    monkeypatch.setattr(client, "_get_connection", Reset)

    def fails():
        raise Py4JNetworkError(client.send_command("x"))

    monkeypatch.setattr("jobs.cli.main.app", fails)
    code, printed = das("run")
    assert code == RuntimeSetupError.exit_code
    assert printed.count("\n") == 1
    assert not caplog.records
    logging.getLogger().error("others are heard")
    assert caplog.messages == ["others are heard"]


@pytest.mark.parametrize(
    "defect", [ValueError("ours"), OSError(errno.EACCES, "no"), Py4JError("PythonException: ours")]
)
def test_defects_keep_their_frames(monkeypatch, das, defect):
    def fails():
        raise defect

    monkeypatch.setattr("jobs.cli.main.app", fails)
    with pytest.raises(type(defect)):
        das("run")


def test_who_stops_a_run_is_told_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without lines of progress; what is told is then done."""
    folder = tmp_path / "my run"
    folder.mkdir()
    toy.write_records(folder)
    config = toy.configuration(folder)

    def stopped(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.release.stages.EstimateStage.run", stopped)
        with pytest.raises(KeyboardInterrupt):
            in_process.execute(config)
    told = re.search(r"stopped; .*`(.*)`", capsys.readouterr().err)
    assert told is not None
    words = shlex.split(told[1])
    assert words == ["das", "run", str(folder / "out")]
    in_process.patch_spark(monkeypatch)
    result = CliRunner().invoke(app, [*words[1:], "--quiet"])
    assert result.exit_code == 0, result.output
