"""Of tasks on a Connect server, what needs no server of Spark: doors, pieces, jobs, equipment."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from das.errors import RuntimeSetupError
from jobs.pipeline.config.protection import PROTECTION, REMOTE_VARIABLE
from jobs.pipeline.tasks import connect, connect_session
from jobs.pipeline.tasks.connect_session import _doors, _unprotected, _url
from jobs.pipeline.tasks.failures import machine_failure
from jobs.pipeline.tasks.shipping import PACKAGES, looker, own_equipment, project_archive
from jobs.pipeline.tasks.step import Step, TaskReport, watching
from tests.checkout import ROOT
from tests.pipeline.spark.cluster import free_port

grpc = pytest.importorskip("grpc")


# --- who is let in -------------------------------------------------------------------------------


@contextmanager
def listening(code: object) -> Iterator[str]:
    """A port that speaks the protocol, and answers whoever has no token by a code or, for None, well."""
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

    class Service(base_pb2_grpc.SparkConnectServiceServicer):
        def Config(self, request, context):  # noqa: N802 - as the protocol has it
            known = dict(context.invocation_metadata())
            assert known["x-cluster-id"] == "a"
            assert "authorization" not in known
            if code is not None:
                context.abort(code, "no")
            return base_pb2.ConfigResponse(session_id=request.session_id)

        def ReleaseSession(self, request, context):  # noqa: N802
            return base_pb2.ReleaseSessionResponse(session_id=request.session_id)

    server = grpc.server(ThreadPoolExecutor(1))
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def session_to(endpoint: str, properties: dict[str, str]) -> SimpleNamespace:
    """Stands in for a session with a token on a channel."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(f"sc://{endpoint}/;x-cluster-id=a;token=known")
    conf = SimpleNamespace(getAll=properties)
    return SimpleNamespace(client=SimpleNamespace(_builder=builder), conf=conf)


@pytest.mark.parametrize(
    ("code", "door"),
    [
        (None, "it lets in who has no token"),
        (grpc.StatusCode.UNAUTHENTICATED, None),
        (grpc.StatusCode.PERMISSION_DENIED, None),
        (
            grpc.StatusCode.UNIMPLEMENTED,
            "it was not seen to refuse who has no token (UNIMPLEMENTED)",
        ),
        (grpc.StatusCode.UNAVAILABLE, "it was not seen to refuse who has no token (UNAVAILABLE)"),
    ],
)
def test_a_server_must_refuse_who_has_no_token(code, door):
    with listening(code) as endpoint:
        here = endpoint.replace("127.0.0.1", "localhost")
        assert _doors(session_to(here, {}).client._builder) == ([] if door is None else [door])
        elsewhere = _doors(session_to(endpoint, {}).client._builder)
    assert elsewhere[0] == "the way to it is not encrypted"
    assert elsewhere[1:] == ([] if door is None else [door])


def test_a_way_that_cannot_be_seen_is_open():
    assert _doors(None) == ["the way to it cannot be seen"]


def test_what_a_server_does_not_show_is_off():
    def message(name: str) -> str:
        return f"{name} is not seen to be on"

    assert _unprotected(session_to("h:1", {})) == [*map(message, PROTECTION)]
    assert _unprotected(session_to("h:1", dict(PROTECTION))) == []


@pytest.mark.parametrize(
    ("master", "environment", "url"),
    [
        ("sc://a", None, "sc://a"),
        ("sc://a", "sc://b/;token=x", "sc://a"),
        (None, "sc://b/;token=x", "sc://b/;token=x"),
        ("local[2]", "sc://b", None),
        (None, "local[*]", None),
        (None, None, None),
    ],
)
def test_which_server_is_meant(monkeypatch, master, environment, url):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv(REMOTE_VARIABLE, raising=False)
    if environment is not None:
        monkeypatch.setenv(REMOTE_VARIABLE, environment)
    assert _url(master) == url
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # under spark-submit, its command line says
    assert _url(None) is None


def test_a_server_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr(connect_session, "_ANSWER_SECONDS", 1.0)
    with (
        pytest.raises(RuntimeSetupError, match=r"cannot be reached.* got no answer in 1 s"),
        connect_session.connect_session(f"sc://localhost:{free_port()}"),
    ):
        pass


def test_packages_that_are_missing_are_told(monkeypatch):
    monkeypatch.setattr(connect_session, "_PACKAGES", ("grpc", "nobody.has.this"))
    with (
        pytest.raises(RuntimeSetupError, match=r"no nobody\.has\.this; .*topdown-das\[connect\]"),
        connect_session.connect_session("sc://localhost:1"),
    ):
        pass


def test_a_server_that_is_lost_is_told_by_why_it_does_not_answer():
    from pyspark.errors.exceptions.connect import PythonException, SparkConnectGrpcException

    error = SparkConnectGrpcException('<RPC that ended with:\n\tdetails = "refused"\n>')
    failure = machine_failure(error)
    assert isinstance(failure, RuntimeSetupError)
    assert failure.got == '"refused"'
    assert machine_failure(PythonException("ZeroDivisionError")) is None  # a defect of a task


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start programs of other users")
def test_a_stranger_at_the_port_gets_no_token(tmp_path: Path):
    """Another user's program answers as a server would; nothing with a token reaches it."""
    script = """
import os
from concurrent.futures import ThreadPoolExecutor
import grpc
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc
os.setuid(65534)  # nobody
class Service(base_pb2_grpc.SparkConnectServiceServicer):
    def Config(self, request, context):
        print("asked", dict(context.invocation_metadata()), flush=True)
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
    AnalyzePlan = ExecutePlan = Config
server = grpc.server(ThreadPoolExecutor(1))
base_pb2_grpc.add_SparkConnectServiceServicer_to_server(Service(), server)
print(server.add_insecure_port("localhost:0"), flush=True)
server.start()
server.wait_for_termination()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with (
                pytest.raises(RuntimeSetupError, match="a program of another user listens there"),
                connect_session.connect_session(f"sc://localhost:{port}/;token=known"),
            ):
                pass
            assert "known" not in process.stdout.readline()
        finally:
            process.kill()
        assert "known" not in process.stdout.read()


def test_a_port_that_changes_hands_gets_no_call(monkeypatch):
    check = connect_session._listener_check(1)
    calls = []
    monkeypatch.setattr(connect_session, "stranger_at", lambda _: None)
    check.intercept_unary_unary(lambda *call: calls.append(call), "details", "request")
    monkeypatch.setattr(connect_session, "stranger_at", lambda _: "somebody")
    for name in ("intercept_unary_unary", "intercept_unary_stream", "intercept_stream_unary"):
        with pytest.raises(RuntimeSetupError, match="somebody"):
            getattr(check, name)(lambda *call: calls.append(call), "details", "request")
    assert calls == [("details", "request")]


def test_a_schema_may_name_no_class():
    from pyspark.sql.connect import types
    from pyspark.sql.connect.proto import types_pb2

    schema = types_pb2.DataType()
    schema.udt.type = "udt"
    schema.udt.python_class = "os.system"
    schema.udt.serialized_python_class = "AAAA"
    with (
        connect_session._no_classes_from_servers(),
        pytest.raises(RuntimeSetupError, match="sent a class"),
    ):
        types.proto_schema_to_pyspark_data_type(schema)


# --- what goes back and forth --------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 5 * 2**20])
def test_pieces_are_the_whole_and_small(size):
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    rows = pa.Table.from_batches(connect._pieces(7, content)).to_pylist()
    assert b"".join(row["content"] for row in rows) == content
    assert {row["task"] for row in rows} == {7}
    assert {row["pieces"] for row in rows} == {len(rows)}
    assert max(len(row["content"]) for row in rows) <= 2**20


def test_jobs_carry_what_they_can():
    assert doctest.testmod(connect).failed == 0
    assert [*connect._jobs([])] == []
    assert [*connect._jobs([1] * 9)] == [range(9)]


def test_progress_by_what_the_server_says():
    seen = []
    with watching(lambda one: seen.append((one.done, len(one.reports)))):
        step = Step("work", ["a", "b", "c", "d"])
        shown = connect._Shown(step)
        shown.begin(range(3))
        stages = [SimpleNamespace(num_completed_tasks=1), SimpleNamespace(num_completed_tasks=0)]
        shown(stages=stages, inflight_tasks=2, operation_id="x", done=False)
        shown(stages=None, inflight_tasks=0, operation_id="x", done=True)
        for index in range(3):
            shown.take(TaskReport(index, 1.0, {}, 0))
        shown.begin(range(3, 4))
        shown.take(TaskReport(3, 1.0, {}, 0))
    assert seen == [(1, 0), (1, 0), (1, 1), (2, 2), (3, 3), (4, 4)]


# --- what workers have ---------------------------------------------------------------------------


def test_the_archive_is_the_project_as_it_is_here(tmp_path: Path):
    own = own_equipment()
    assert own.digest is not None
    assert own.absent == ()
    archive = project_archive(tmp_path, own.digest)
    assert _found_by(archive) == [own.digest, []]
    # It goes on from there: what runs from an archive sends it on.
    script = """
from pathlib import Path
from jobs.pipeline.tasks.failures import machine_failure
from jobs.pipeline.tasks.shipping import own_equipment, project_archive
print(project_archive(Path("nowhere"), str(own_equipment().digest)))
"""
    assert _run(script, archive) == str(archive)


def test_another_project_or_none_is_seen(tmp_path: Path):
    assert _found_by(tmp_path)[0] is None or _found_by(tmp_path)[0] != own_equipment().digest
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    assert _found_by(tmp_path)[0] not in {None, own_equipment().digest}


def _found_by(place: Path) -> list[object]:
    """What a worker that has no more than a place would say; the function goes to it by value."""
    from pyspark import cloudpickle

    sent = cloudpickle.dumps(looker()).hex()
    script = f"""
import json, pickle
print(json.dumps(pickle.loads(bytes.fromhex({sent!r}))()))
"""
    found: list[object] = json.loads(_run(script, place))
    return found


def _run(script: str, place: Path) -> str:
    # -S: without what .pth files add, such as this project where it is installed to be edited.
    packages = sysconfig.get_path("purelib")
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=place.parent,
        env={"PYTHONPATH": f"{place}{os.pathsep}{packages}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("words", [["--help"], ["validate", "conf/run/demo.yaml"]])
def test_commands_that_need_no_server_do_not_load_what_reaches_one(words):
    script = f"""
import sys
sys.argv = ["das", *{words!r}]
from jobs.cli.main import main
main()
found = [name for name in sys.modules if name.startswith(("grpc", "pyspark.sql.connect"))]
print("loaded", found)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["loaded []"], done.stdout + done.stderr
