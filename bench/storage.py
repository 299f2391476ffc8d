"""Whole runs, races and sleeping drivers in every kind of store, beside folders of this machine.

    python -m bench.storage [--quick] [--blocks N] [--repeats N] [--delay SECONDS] [--spark]

A generated state runs whole with its data, account and run folder in each store: once per round in
every store, so that all meet the same load, and the cheapest run of each counts. Runs are processes
of their own that do one task after the other without Spark, whose start would hide what a store
costs; with --spark they are those of `das run`. Core seconds are those of the run alone: servers
are processes of their own, too. S3 is versitygw where Go builds it, else moto; Azure (Azurite) and
HDFS are left out, and said to be, where their programs are not to be had.

Races: threads, and with them processes, create one name at once; drivers publish one dataset at
once. Second draws: a driver is put to sleep before each step of a draw, past the time after which
its lock counts as left; another one does its work to the end; the first wakes up and goes on. What
can be read of a geolevel must be one draw for everybody, and the one that account and ledger know.

Prints a table on stderr and one line of JSON: backend -> seconds, core_seconds, ratio_to_posix,
races, winners_per_race (the worst; must be 1), second_draws and lost (must be 0).
With --delay every request is held up by a proxy, as real stores take 10 to 100 ms; then no races.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import jobs.pipeline.confidential.draw
import jobs.pipeline.config.local_path
import jobs.pipeline.folder.draws
import jobs.pipeline.folder.lock
from bench.state import das, run_file
from das.errors import DasError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import run_measuring
from jobs.pipeline.storage.account import MEASURED
from jobs.pipeline.storage.dataset import Dataset, PartWriter, find_damage, publish
from jobs.pipeline.storage.journal import read_journal
from jobs.pipeline.storage.ledger import read_ledger
from jobs.pipeline.storage.place import Place, place_of, store_of
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.pipeline.spark.cluster import free_port, wait_for
from tests.servers.azure import azure_server
from tests.servers.faults import fault_proxy, slow
from tests.servers.hdfs import hdfs_server
from tests.servers.processes import running
from tests.servers.s3 import credentials
from tests.servers.store import StoreServer
from tests.servers.versity import versity_server

_THREADS = 16  # that create one name at once
_PROCESSES = 4
STEPS = ("begin", "remove_files", "record", "accept")  # of a draw, each a place to fall asleep
_GEOLEVEL = "tract"
_SCHEMA = pa.schema([("geocode", pa.string()), ("driver", pa.int64())])
_MOTO = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from tests.servers import s3
s3.s3_backends[s3.ACCOUNT]["aws"].create_bucket("das", s3.REGION)
application = s3._Conditions(DomainDispatcherApplication(create_backend_app), s3.Lie.NONE)
make_server("127.0.0.1", int(sys.argv[1]), application, True, 1, s3._Quiet).serve_forever()
"""


# --- stores -------------------------------------------------------------------------------------


@contextmanager
def moto_server(folder: Path) -> Iterator[StoreServer]:
    """moto as a process of its own, so that what it costs is not counted."""
    port = free_port()
    with running([sys.executable, "-c", _MOTO, str(port)], folder / "moto.log"):
        wait_for(("127.0.0.1", port))
        yield StoreServer("s3://das", credentials(port), "AWS_ENDPOINT_URL")


def opened(
    stack: ExitStack, folder: Path, kinds: list[tuple[str, Callable[..., Any]]]
) -> tuple[str, StoreServer] | None:
    """The first server that can be had, with its name."""
    for name, start in kinds:
        here = folder / name
        here.mkdir()
        try:
            return name, stack.enter_context(start(here))
        except pytest.skip.Exception as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    return None


# --- whole runs ---------------------------------------------------------------------------------


def put_data(data: Path, base: Place) -> None:
    """Copy a generated state to where a run reads it."""
    for path in (*(data / "records").iterdir(), data / "geounits.parquet"):
        store, name = store_of(base / str(path.relative_to(data)))
        store.replace(name, path.read_bytes())


def run_file_at(base: str, folder: Path) -> Path:
    """The run file of the demonstration with everything at one address, its noise seeded."""

    def put(document: dict[str, Any]) -> None:
        document["products"]["persons"]["data"]["path"] = f"{base}/records"
        geounits = {"path": f"{base}/geounits.parquet"}
        document["geography"]["geounits"] = geounits
        randomness = {"source": "seeded_not_for_release", "seed": 2020}
        document["privacy"] = {"account": f"{base}/account.jsonl", "randomness": randomness}
        document["output"]["directory"] = f"{base}/run"

    return run_file("demo.yaml", folder, put)


def run_once(base: str, data: Path, spark: bool) -> dict[str, float]:
    """Do a whole run in this process, with its files at an address; what it cost."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs.pipeline.config.local_path, "MEMORY", "allowed here")
        put_data(data, place_of(base))
        config = run_file_at(base, Path(name))
        before, began = _core_seconds(), time.monotonic()
        if spark:
            das("run", config, "--quiet")
        else:
            in_process.execute(config)
        seconds, core_seconds = time.monotonic() - began, _core_seconds() - before
    if spark:  # Java and the workers are no children of ours
        summary = json.loads((place_of(base) / "run" / "summary.json").read_text())
        core_seconds = summary["total"]["core_seconds"]
    return {"seconds": seconds, "core_seconds": core_seconds}


def _core_seconds() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def run_apart(base: str, data: Path, spark: bool, server: StoreServer | None) -> dict[str, float]:
    """`run_once` in a process of its own, which knows the store from its environment."""
    words = [sys.executable, "-m", "bench.storage", "--child", base, "--data", str(data)]
    environment = {**os.environ, **(server.environment if server else {})}
    done = subprocess.run(
        [*words, *(["--spark"] if spark else [])],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


# --- races --------------------------------------------------------------------------------------


def name_race(base: Place, name: str, data: list[bytes]) -> int:
    """How many of some writers of one name are told that they wrote it."""
    store, key = store_of(base / name)
    start = threading.Barrier(len(data))

    def create(one: bytes) -> bool:
        start.wait()
        return store.create(key, one)

    with ThreadPoolExecutor(len(data)) as threads:
        won = list(threads.map(create, data))
    found = store.read(key)
    assert [one for one, has in zip(data, won, strict=True) if has] in ([], [found])
    return sum(won)


def racing_process(base: str, names: list[str], start: Any, won: Any) -> None:
    """Create names at the same moments as others do."""
    for name in names:
        store, key = store_of(place_of(f"{base}/{name}"))
        start.wait()
        won.put((name, store.create(key, uuid.uuid4().hex.encode())))


def process_races(base: str, names: list[str]) -> list[int]:
    """Winners of each name that several processes create."""
    context = multiprocessing.get_context("spawn")
    start, won = context.Barrier(_PROCESSES), context.Queue()
    processes = [
        context.Process(target=racing_process, args=(base, names, start, won))
        for _ in range(_PROCESSES)
    ]
    for process in processes:
        process.start()
    winners: dict[str, int] = defaultdict(int)
    for _ in range(_PROCESSES * len(names)):
        name, has = won.get(timeout=120)
        winners[name] += has
    for process in processes:
        process.join()
    return [winners[name] for name in names]


def publication_race(dataset: Place, drivers: int) -> tuple[int, int]:
    """(drivers who publish one dataset at once, 1 if it can then not be read, else 0)."""
    start = threading.Barrier(drivers)

    def drive(number: int) -> bool:
        writer = PartWriter(dataset, _SCHEMA)
        writer.write(pa.table({"geocode": ["a"], "driver": [number]}, schema=_SCHEMA))
        part = writer.close()
        start.wait()
        try:
            publish(dataset, [part], {"driver": number})
        except DasError:
            return False
        return True

    with ThreadPoolExecutor(drivers) as threads:
        won = list(threads.map(drive, range(drivers)))
    return sum(won), int(not _is_whole(dataset))


def _is_whole(dataset: Place) -> bool:
    if find_damage(dataset):
        return False
    found = Dataset.open(dataset)
    return "driver" not in found.facts or found.read()["driver"].to_pylist() == [
        found.facts["driver"]
    ]


# --- drivers that sleep -------------------------------------------------------------------------


def sleeping_driver(base: str, step: str) -> tuple[int, int]:
    """One driver falls asleep before a step of drawing a geolevel, and another one takes over.

    Returns:
      Draws that could be read beyond the one of each geolevel; geolevels that account or ledger
      know and nobody can read.
    """
    asleep, awake = threading.Event(), threading.Event()
    sleeper = threading.local()
    read: dict[str, set[str]] = defaultdict(set)
    draws = jobs.pipeline.folder.draws

    def sleep_before(function: Callable[..., Any]) -> Callable[..., Any]:
        def slept(*arguments: Any, **named: Any) -> Any:
            words = " ".join(map(str, arguments))
            if getattr(sleeper, "is_here", False) and _GEOLEVEL in words and not asleep.is_set():
                asleep.set()
                awake.wait()
            return function(*arguments, **named)

        return slept

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def record(path: Place, geolevel: str, digest: str, **named: Any) -> None:
            read[geolevel].add(digest)
            function(path, geolevel, digest, **named)

        return record

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs.pipeline.config.local_path, "MEMORY", "allowed here")
        patch.setattr(
            jobs.pipeline.folder.lock, "_BEAT", 3600.0
        )  # who sleeps gives no sign of life
        patch.setattr(jobs.pipeline.folder.lock, "_SILENCE", 0.5)
        patch.setattr(jobs.pipeline.folder.lock, "_PATIENCE", 3.0)
        where = (draws.Draws, step) if step in ("begin", "record") else (draws, step)
        patch.setattr(*where, sleep_before(getattr(*where)))
        drawing = jobs.pipeline.confidential.draw
        patch.setattr(drawing, "record_measured", noted(drawing.record_measured))
        config = _toy_at(base, Path(name))

        def drive(*, sleeps: bool) -> DasError | None:
            sleeper.is_here = sleeps
            resolved = load_run(config)
            try:
                tasks = in_process.tasks_of(resolved.config)
                run_measuring(resolved, Reporter(quiet=True), tasks=tasks)
            except DasError as error:
                return error
            return None

        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(drive, sleeps=True)
            while not asleep.wait(0.1):
                if first.done():
                    raise SystemExit(f"nobody slept before {step}: {first.result()}")
            try:
                threads.submit(drive, sleeps=False).result()
            finally:
                awake.set()
            first.result()
        drive(sleeps=False)  # and whoever comes later finishes
    return _draws_of(place_of(base), read)


def _toy_at(base: str, folder: Path) -> Path:
    toy.write_records(folder)
    config = toy.configuration(
        folder,
        **toy.upload(folder, base),
        output__directory=f"{base}/run",
        privacy__account=f"{base}/account.jsonl",
    )
    document = yaml.safe_load(config.read_text())
    for privacy in (document["privacy"], document["products"]["persons"]["privacy"]):
        privacy.pop("randomness", None)  # drawn from the system: what is drawn once counts
    config.write_text(yaml.safe_dump(document))
    return config


def _draws_of(base: Place, read: dict[str, set[str]]) -> tuple[int, int]:
    release = release_of(base / "run")
    recorded: dict[str, set[str]] = defaultdict(set)
    for line in read_journal(base / "account.jsonl"):
        if line.get("event") == MEASURED:
            recorded[line["geolevel"]].add(line["sha256"])
    lost = 0
    for geolevel, digests in recorded.items():
        dataset = release.measurements(geolevel)
        try:
            is_there = not find_damage(dataset) and {Dataset.open(dataset).sha256} == digests
        except DasError:
            is_there = False
        lost += not is_there
        read[geolevel] |= digests
    measured = read_ledger(release.ledger).measured
    lost += sum(recorded[geolevel] != {digest} for geolevel, digest in measured.items())
    missing = set(toy.LEVELS) - set(recorded)
    if missing:
        raise SystemExit(f"nobody measured {sorted(missing)}")
    return sum(len(digests) - 1 for digests in read.values()), lost


# --- all of it ----------------------------------------------------------------------------------


def tried(base: str, races: int) -> dict[str, int]:
    """Races and sleeping drivers at one address."""
    root = place_of(base)
    winners = [
        name_race(root, f"race-{n}", [uuid.uuid4().hex.encode() for _ in range(_THREADS)])
        for n in range(races)
    ]
    if not base.startswith("memory:"):  # which one process alone sees
        winners += process_races(base, [f"processes-{n}" for n in range(races)])
    lost = 0
    for n in range(races):
        won, gone = publication_race(root / f"dataset-{n}", 2)
        winners.append(won)
        lost += gone
    second = 0
    for step in STEPS:
        drawn, gone = sleeping_driver(f"{base}/asleep-{step}", step)
        second += drawn
        lost += gone
    return {
        "races": len(winners),
        "winners_per_race": max(winners, key=lambda won: abs(won - 1)),
        "sleeping_drivers": len(STEPS),
        "second_draws": second,
        "lost": lost,
    }


def measured(arguments: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """All backends, each with what it cost and what came of the races."""
    data = folder / "data"
    das("generate", data, "--blocks", arguments.blocks, "--quiet")
    rows: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        servers: dict[str, StoreServer | None] = {"posix": None}
        if not (arguments.spark or arguments.delay):
            servers["memory"] = None
        kinds: dict[str, list[tuple[str, Callable[..., Any]]]] = {
            "s3": [("versitygw", versity_server), ("moto", moto_server)]
        }
        if not arguments.quick:
            kinds |= {"azure": [("azurite", azure_server)], "hdfs": [("hadoop", hdfs_server)]}
        names = {}
        for kind, offered in kinds.items():
            found = opened(stack, folder, offered)
            if found is not None:
                names[kind], servers[kind] = found
        spent: dict[str, list[dict[str, float]]] = defaultdict(list)
        for turn in range(arguments.repeats):
            for kind, server in servers.items():
                with delayed(server, arguments.delay) as (seen, proxy):
                    base = address(kind, server, folder / "posix") + f"/run-{turn}"
                    spent[kind].append(run_apart(base, data, arguments.spark, seen))
                    if proxy is not None:
                        spent[kind][-1]["requests"] = len(proxy.requests)
                if kind == "posix":
                    shutil.rmtree(base)
        for kind, server in servers.items():
            best = min(spent[kind], key=lambda one: one["core_seconds"])
            rows[kind] = {"server": names.get(kind, ""), **best}
            rows[kind]["seconds"] = min(one["seconds"] for one in spent[kind])
            if not arguments.delay:
                with ExitStack() as environment:
                    if server is not None:
                        environment.enter_context(server.in_environment())
                    base = address(kind, server, folder / "posix") + "/races"
                    rows[kind] |= tried(base, 5 if arguments.quick else 25)
    for row in rows.values():
        row["ratio_to_posix"] = round(row["core_seconds"] / rows["posix"]["core_seconds"], 3)
        row["seconds"], row["core_seconds"] = (
            round(row["seconds"], 2),
            round(row["core_seconds"], 2),
        )
    return rows


@contextmanager
def delayed(server: StoreServer | None, seconds: float) -> Iterator[tuple[Any, Any]]:
    """A server, behind a proxy that holds every request up if that is wanted; and the proxy."""
    if server is None or not server.endpoint or not seconds:
        yield server, None
        return
    with fault_proxy(server) as (proxy, seen):
        proxy.rule(slow(seconds))
        yield seen, proxy


def address(kind: str, server: StoreServer | None, folder: Path) -> str:
    """An empty place of a backend."""
    if kind == "memory":
        return f"memory://bench/{uuid.uuid4().hex[:8]}"
    return server.url if server else str(folder)


def main() -> None:
    """Measure every backend, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500 blocks; no Azure, no HDFS")
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(run_once(arguments.child, arguments.data, arguments.spark)))
        return
    arguments.blocks = arguments.blocks or (500 if arguments.quick else 2500)
    arguments.repeats = arguments.repeats or (2 if arguments.quick else 3)
    with tempfile.TemporaryDirectory() as name:
        rows = measured(arguments, Path(name))
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    print("".join(f"{column:>18}" for column in ("backend", *columns)), file=sys.stderr)
    for kind, row in rows.items():
        cells = (kind, *(row.get(column, "") for column in columns))
        print("".join(f"{cell!s:>18}" for cell in cells), file=sys.stderr)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
