"""Whole runs in a store that is busy, loses answers or is gone, and with drivers that die or sleep."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from das.errors import DasError, LedgerError, OutputError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import account_of
from jobs.pipeline.folder.draws import Draws
from jobs.pipeline.folder.lock import only_driver
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.run import MEASURING, do_stages, open_job
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, dataset_digest
from jobs.pipeline.storage.journal import read_journal
from jobs.pipeline.storage.place import Place, StoredPlace, found_under, place_of
from jobs.pipeline.storage.stores import objects
from jobs.pipeline.storage.stores.objects import ObjectStoreFiles
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import in_process, toy
from tests.builders.datasets import contents
from tests.builders.patience import lose_patience
from tests.builders.places import release_of
from tests.builders.turns import Died
from tests.servers import faults
from tests.servers.faults import FaultProxy, fault_proxy
from tests.servers.s3 import s3_server

pytestmark = pytest.mark.usefixtures("here")

SYSTEM = {"source": "operating_system"}
# Of each kind of request some are met: what is done, method, pattern of the path, which of them.
FAULTS = (
    (faults.LOST_ANSWER, "PUT", "counts/level=county/_manifest", {"times": 1}),
    (faults.LOST_ANSWER, "PUT", "ledger.jsonl.lines/", {"first": 2, "times": 1}),
    (faults.LOST_ANSWER, "PUT", "part-", {"first": 3, "times": 1}),
    (faults.LOST_REQUEST, "PUT", "counts/level=tract/_manifest", {"times": 1}),
    (faults.DONE_IN_SILENCE, "PUT", "measurements/level=tract/_manifest", {"times": 1}),
    (faults.CONFLICT, "PUT", "", {"header": "if-none-match", "first": 20, "times": 1}),
    (faults.SLOW_DOWN, "PUT", "", {"first": 9, "times": 2}),
    (faults.SLOW_DOWN, "GET", "part-", {"first": 9, "times": 2}),
    (faults.SLOW_DOWN, "GET", "list-type", {"first": 9, "times": 2}),
    (faults.SLOW_DOWN, "HEAD", "", {"first": 9, "times": 2}),
    (faults.INTERNAL_ERROR, "POST", "delete", {"times": 1}),
    (faults.HALF_A_BODY, "GET", "part-", {"first": 15, "times": 2}),
    (faults.HALF_A_BODY, "GET", "/_manifest", {"first": 5, "times": 1}),
    (faults.SILENCE, "GET", "part-", {"first": 22, "times": 1}),
)


def long(*values: object) -> object:
    """A case for the long tests."""
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Files of the same run on a disk."""
    folder = tmp_path_factory.mktemp("expected")
    toy.write_records(folder)
    return contents(in_process.execute(toy.configuration(folder)))


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultProxy, str]]:
    """A store that can be made to fail, and drivers that have less patience with it."""
    lose_patience(monkeypatch, silence_seconds=2.0)
    with s3_server() as server, fault_proxy(server) as (proxy, seen), seen.in_environment():
        yield proxy, seen.url


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of this process alone, which run files may not name otherwise."""
    monkeypatch.setattr("jobs.pipeline.config.local_path.MEMORY", "allowed here")
    return f"memory://{uuid.uuid4().hex}"


def configuration(folder: Path, url: str, **changes: Any) -> Path:
    toy.write_records(folder)
    return toy.configuration(folder, output__directory=f"{url}/runs/toy", **changes)


def check_draws(config: Path, out: Place) -> None:
    """What the account recorded once is what is published, and nothing else lies there."""
    recorded: dict[str, list[str]] = {}
    for line in read_journal(account_of(load_run(config).config)):
        if line.get("event") == "measured":
            recorded.setdefault(line["geolevel"], []).append(line["sha256"])
    release = release_of(out)
    published = {level: [dataset_digest(release.measurements(level))] for level in toy.LEVELS}
    assert recorded == published
    verify_run(load_run(config))


# --- the store fails -----------------------------------------------------------------------------


def test_a_busy_store_gives_the_same_release(tmp_path, proxy, expected):
    between, url = proxy
    rules = [between.rule(*which[:3], **which[3]) for which in FAULTS]
    gone = between.rule(faults.LOST_REQUEST, "PUT", "counts/level=block/part-", times=1, hold=True)

    def go_away() -> None:
        gone.arrived.wait()
        between.refuse()
        gone.held.set()
        time.sleep(1)
        between.accept()

    threading.Thread(target=go_away, daemon=True).start()
    out = in_process.execute(configuration(tmp_path, url))
    assert [rule for rule in (*rules, gone) if not rule.met] == []
    assert contents(out) == expected
    verify_run(load_run(tmp_path / "run.yaml"))


def test_a_store_that_is_gone_is_named_and_the_run_goes_on_when_it_is_back(
    tmp_path, proxy, expected, monkeypatch
):
    between, url = proxy
    monkeypatch.setattr(objects, "_PATIENCE", 1.0)
    config = configuration(tmp_path, url)
    gone = between.rule(faults.LOST_REQUEST, "PUT", "counts/level=tract/part-", times=1, hold=True)

    def go_away() -> None:
        gone.arrived.wait()
        between.refuse()
        gone.held.set()

    threading.Thread(target=go_away, daemon=True).start()
    with pytest.raises(
        OutputError, match=r"counts/level=tract/part-.*: cannot be written; got s3:"
    ):
        in_process.execute(config)
    between.accept()
    assert contents(in_process.execute(config)) == expected


def test_a_second_driver_is_told_who_works_on_the_folder(tmp_path, memory, monkeypatch):
    monkeypatch.setattr("jobs.pipeline.folder.lock._BEAT", 0.05)
    monkeypatch.setattr("jobs.pipeline.folder.lock._LOOK", 0.01)
    config = configuration(tmp_path, memory)
    with (
        only_driver(load_run(config).config.output.directory),
        pytest.raises(OutputError, match="another process works on this folder; got process"),
    ):
        in_process.execute(config)


# --- copies and backups --------------------------------------------------------------------------


def copied(folder: Place, to: str) -> Place:
    other = place_of(to)
    assert isinstance(folder, StoredPlace)
    assert isinstance(other, StoredPlace)
    for name in [*folder.store.files(folder.key)]:
        other.store.replace(other.key + name.removeprefix(folder.key), folder.store.read(name))
    return other


def removed(folder: Place) -> None:
    assert isinstance(folder, StoredPlace)
    folder.store.remove([*folder.store.files(folder.key)])


def test_copies_and_backups_in_a_store_draw_nothing(tmp_path, memory, monkeypatch):
    account = f"{memory}/account.jsonl"
    config = configuration(tmp_path, memory, privacy__randomness=SYSTEM, privacy__account=account)
    out = load_run(config).config.output.directory

    def measure(folder: Place | None = None, *, moved: bool = False) -> None:
        resolved = load_run(config, output=folder)
        tasks = in_process.tasks_of(resolved.config)
        with open_job(resolved, Reporter(quiet=True), moved=moved, tasks=tasks) as job:
            do_stages(job, MEASURING)

    begin = Draws.begin

    def mortal(self: Draws, name: str, **options: bool) -> str:
        if name == "county":
            raise Died
        return begin(self, name, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Draws, "begin", mortal)
        with pytest.raises(Died):
            measure()
    first, second = (copied(out, f"{memory}/copy{i}") for i in range(2))
    for copy in (first, second):
        with pytest.raises(LedgerError, match="in a copy of the folder in which the run began"):
            measure(copy)
    measure(first, moved=True)
    for other in (out, second):
        for moved in (False, True):
            with pytest.raises(LedgerError, match="county: was measured under grant"):
                measure(other, moved=moved)
    removed(first)
    removed(out)
    copied(second, str(out))  # an older backup
    for moved in (False, True):
        with pytest.raises(LedgerError, match="county: was measured under grant"):
            measure(moved=moved)
    lines = place_of(f"{account}.lines")
    assert isinstance(lines, StoredPlace)
    lines.store.remove(sorted(lines.store.files(lines.key))[3:4])
    with pytest.raises(LedgerError):
        measure()


# --- drivers die ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [long("seeded"), "fresh"])
def test_drivers_that_die_at_every_publication_leave_the_same_release(
    tmp_path, memory, monkeypatch, expected, source
):
    """Each dies at the second one, in turn before and after it; stragglers write parts all along."""
    fresh = {"privacy__randomness": SYSTEM} if source == "fresh" else {}
    config = configuration(tmp_path, memory, **fresh)
    out = load_run(config).config.output.directory
    create = ObjectStoreFiles.create
    left = [0, 0]  # publications until death; drivers

    def mortal(self: ObjectStoreFiles, name: str, data: bytes, **options: int) -> bool:
        if not name.endswith(MANIFEST):
            return create(self, name, data, **options)
        left[0] -= 1
        if not left[0] and left[1] % 2:
            raise Died
        created = create(self, name, data, **options)
        if not left[0]:
            raise Died
        return created

    monkeypatch.setattr(ObjectStoreFiles, "create", mortal)
    seen: dict[str, str] = {}
    for driver in range(100):
        left[:] = [2, driver]
        with suppress(Died):
            in_process.execute(config)
            break
        straggle(out)
        for path in found_under(release_of(out).root / "measurements", MANIFEST):
            digest = dataset_digest(path.parent)
            assert seen.setdefault(path.parent.name, digest) == digest, "a second draw"
    assert driver > 10
    if source == "seeded":
        assert contents(out) == expected
        verify_run(load_run(config))
    else:
        check_draws(config, out)


def straggle(out: Place) -> None:
    """A task that was given up writes its part again, late, everywhere."""
    for path in found_under(release_of(out).shared, MANIFEST):
        for part in Dataset.open(path.parent).parts[:1]:
            late = path.parent / f"part-{uuid.uuid4().hex}.parquet"
            assert isinstance(late, StoredPlace)
            late.store.create(late.key, (path.parent / part.file).read_bytes())


# --- drivers sleep -------------------------------------------------------------------------------


OVERTAKEN = "was taken over by another process"
PUBLISHED = "was already published by another run"
MEASURED = "was measured under grant"
DRAWN = "was drawn by a copy of this folder at the same time"


@pytest.mark.parametrize(
    ("operation", "name", "told"),
    [
        long("create", "histograms/level=tract/_manifest.json", PUBLISHED),
        long("create", "account.jsonl.lines/00000002", PUBLISHED),  # of what it had proposed
        ("create", "account.jsonl.lines/00000003", MEASURED),
        ("replace", "measurements/level=county/_proposed-", DRAWN),
        long("create", "measurements/level=county/_manifest.json", OVERTAKEN),
        ("create", "counts/level=county/_manifest.json", PUBLISHED),
        long("create", "ledger.jsonl.lines/00000006", OVERTAKEN),
        long("replace", "release/products/persons/manifest.json", OVERTAKEN),
    ],
)
def test_a_driver_that_sleeps_while_another_finishes_changes_nothing(
    tmp_path, memory, monkeypatch, operation, name, told
):
    """It stops before it writes a file; the other one takes over, and works to the end."""
    monkeypatch.setattr("jobs.pipeline.folder.lock._SILENCE", 0.3)
    monkeypatch.setattr("jobs.pipeline.folder.lock._BEAT", 1000.0)
    monkeypatch.setattr("jobs.pipeline.folder.lock._LOOK", 0.1)
    account = f"{memory}/account.jsonl"
    config = configuration(tmp_path, memory, privacy__randomness=SYSTEM, privacy__account=account)
    slept: list[str] = []
    before: dict[str, list[str]] = {}

    def meanwhile() -> None:
        before.update(contents(in_process.execute(config)))

    said = None
    with sleeping(operation, name, slept, meanwhile):
        try:
            in_process.execute(config)
        except DasError as error:
            said = str(error)
    assert len(slept) == 1
    assert told in str(said)
    out = load_run(config).config.output.directory
    assert contents(out) == before
    check_draws(config, out)


@contextmanager
def sleeping(
    operation: str, name: str, slept: list[str], meanwhile: Callable[[], object]
) -> Iterator[None]:
    """Whoever first does an operation on a name sleeps before it; meanwhile something happens."""
    original = getattr(ObjectStoreFiles, operation)

    def sleep(self: ObjectStoreFiles, key: str, data: bytes, **options: int) -> object:
        if name in key and not slept:
            slept.append(key)
            meanwhile()
        return original(self, key, data, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectStoreFiles, operation, sleep)
        yield
