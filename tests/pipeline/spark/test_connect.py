"""Runs on a Spark Connect server: the same release, and what is refused, told and survived."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.digests import digests_of
from das.errors import RuntimeSetupError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.protection import REMOTE_VARIABLE, TOKEN_VARIABLE
from jobs.pipeline.tasks import connect_session as sessions
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.connect import ConnectTasks
from jobs.pipeline.tasks.connect_session import connect_session, is_connect_wanted
from jobs.pipeline.tasks.executor import open_tasks
from jobs.pipeline.tasks.failures import machine_failure
from jobs.pipeline.tasks.java import find_java_home
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.checkout import checkout, environment
from tests.pipeline.spark.cluster import MANY_TASKS, RUN_FILE, free_port
from tests.pipeline.spark.connect import MASTER, Server, connect_server, documented_commands

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose workers have no project of ours to import."""
    with connect_server(tmp_path_factory.mktemp("server"), python_path=None) as server:
        yield server


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, which no worker has: it differs from the one that is installed."""
    return checkout(tmp_path_factory.mktemp("project"), MANY_TASKS)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The run file of the toy state, without a master."""
    toy.write_records(tmp_path)
    return toy.configuration(tmp_path, runtime={})


def das(project: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in another process, whose environment names no server but what is given."""
    return subprocess.run(
        [sys.executable, "-m", "jobs", *map(str, words)],
        cwd=project,
        env={**environment(project), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_server_releases_what_one_process_releases(
    server: Server, project: Path, state: Path, tmp_path: Path
) -> None:
    expected = digests_of(in_process.execute(load_run(state, output=tmp_path / "here")))
    token = {TOKEN_VARIABLE: server.token or ""}
    done = das(project, "run", state, "--master", server.url, **token)
    assert done.returncode == 0, done.stderr[-3000:]
    assert digests_of(tmp_path / "out") == expected
    assert len(expected) > 10
    manifest = json.loads((release_of(tmp_path / "out").manifest).read_text())
    assert manifest["environment"]["slots"] == 2
    assert manifest["open_sessions"] == []
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {part["stage"]: part["tasks"] for part in summary["parts"]}["solve"] > 1


@pytest.mark.long
def test_the_documented_commands(project: Path, state: Path, tmp_path: Path) -> None:
    port = free_port()
    script = documented_commands()
    listens = f"from tests.pipeline.spark.cluster import wait_for; wait_for(('127.0.0.1', {port}))"
    for written, here in (
        (MASTER, f"local[2,3]' --conf 'spark.connect.grpc.binding.port={port}"),
        (RUN_FILE, str(state)),
        ("sc://localhost", f"sc://localhost:{port}"),
        ("das run", f'python -c "{listens}"\npython -m jobs run'),  # longer than a command waits
    ):
        assert script.count(written) == 1
        script = script.replace(written, here)
    variables = {
        **environment(project),
        "JAVA_HOME": str(find_java_home()),
        "SPARK_PID_DIR": str(tmp_path),
        "SPARK_LOG_DIR": str(tmp_path),
    }
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=project,
            env=variables,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    finally:
        for file in tmp_path.glob("*.pid"):  # where a command before the last has failed
            psutil.Process(int(file.read_text())).kill()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert (release_of(tmp_path / "out").manifest).exists()


@pytest.mark.long
def test_workers_get_the_project_of_the_driver(server: Server, project: Path) -> None:
    script = """
import json
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.connect import ConnectTasks
from jobs.pipeline.tasks.connect_session import connect_session

def where(_):
    import jobs.pipeline.tasks.executor
    return jobs.pipeline.tasks.executor.__file__, jobs.pipeline.tasks.executor.Sizing.__module__

with connect_session(None) as opened:
    print(json.dumps(ConnectTasks(opened.session, Sizing(4), 2, False).run("where", [0, 1], where)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=project,
        env={**environment(project), REMOTE_VARIABLE: f"{server.url}/;token={server.token}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for file, changed_by in json.loads(done.stdout):
        assert ".zip/jobs/" in file
        assert not file.startswith(str(project))
        assert changed_by == "jobs.pipeline.tasks.executor"


@pytest.mark.parametrize("token", [None, "another"])
def test_who_does_not_know_the_token_is_told_so_before_anything_is_read(
    server: Server, project: Path, state: Path, tmp_path: Path, token: str | None
) -> None:
    variables = {} if token is None else {TOKEN_VARIABLE: token}
    done = das(project, "run", state, "--master", server.url, **variables)
    assert done.returncode == 7, done.stderr[-3000:]
    assert "cannot be reached, or refuses" in done.stderr
    assert "oken" in done.stderr
    assert not any(tmp_path.rglob("*.parquet"))


@pytest.mark.long
def test_a_missing_server_is_told_within_half_a_minute(
    project: Path, state: Path, tmp_path: Path
) -> None:
    began = time.monotonic()
    done = das(project, "run", state, "--master", f"sc://localhost:{free_port()}")
    assert done.returncode == 7, done.stderr[-3000:]
    assert "cannot be reached, or refuses" in done.stderr
    assert time.monotonic() - began < 60
    assert not any(tmp_path.rglob("*.parquet"))


@pytest.mark.long
def test_a_session_in_use_is_used_and_left_open(
    server: Server, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, server.token or "")
    assert not is_connect_wanted(None)
    with connect_session(server.url) as ours:
        assert is_connect_wanted(None)
        with open_tasks(load_run(state).config) as tasks:
            assert isinstance(tasks, ConnectTasks)
            assert tasks.session is ours.session
            assert tasks.run("negate", [1, 2], lambda n: -n) == [-1, -2]
        assert ours.session.range(3).count() == 3
    assert not is_connect_wanted(None)


@pytest.mark.long
def test_properties_of_a_session_are_set_and_others_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, server.token or "")
    with connect_session(server.url, properties={"spark.sql.shuffle.partitions": "3"}) as opened:
        assert opened.session.conf.get("spark.sql.shuffle.partitions") == "3"
    with (
        pytest.raises(RuntimeSetupError, match=r"runtime\.spark\.spark\.executor\.memory: cannot"),
        connect_session(server.url, properties={"spark.executor.memory": "3g"}),
    ):
        pass


# --- a server that is open, and dies -------------------------------------------------------------


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("open")
    with connect_server(folder, token=None, properties={}) as server:
        yield server


@pytest.mark.long
def test_a_server_that_lets_in_everybody_is_refused_unless_the_run_file_accepts_it(
    open_server: Server, state: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(RuntimeSetupError, match="is open to others") as told,
        connect_session(open_server.url),
    ):
        pass
    assert "it lets in who has no token" in str(told.value)
    assert "allow_open_cluster" in str(told.value)
    with (
        pytest.raises(RuntimeSetupError, match="the way to it is not encrypted"),
        connect_session(open_server.url.replace("localhost", "127.0.0.1")),
    ):
        pass
    accepted = toy.configuration(
        tmp_path, runtime={"allow_open_cluster": True, "master": open_server.url}
    )
    with connect_session(open_server.url, allow_open=True) as opened:
        assert "spark.authenticate is not seen to be on" in opened.doors
    with open_tasks(load_run(accepted).config) as tasks:
        assert tasks.is_open
        assert tasks.run("negate", [1, 2], lambda n: -n) == [-1, -2]


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.long
def test_a_server_that_dies_in_a_step_is_told_as_a_failure_of_the_machine(
    open_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of this server."""
    monkeypatch.setattr(sessions, "_IN_WORK", {"max_retries": 3})
    with connect_session(open_server.url, allow_open=True) as opened:
        tasks = ConnectTasks(opened.session, Sizing(4), opened.slots, is_open=True)
        killer = threading.Timer(1.5, open_server.kill)
        killer.start()
        with pytest.raises(Exception, match=r".+") as told:
            tasks.run("nap", [0.0, 60.0], nap)
        killer.join()
    failure = machine_failure(told.value)
    assert isinstance(failure, RuntimeSetupError)
    assert "das run" in str(failure)
