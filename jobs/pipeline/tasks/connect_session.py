"""Open sessions of Spark Connect: reach a server, check its protection, equip its workers.

A server accepts programs over one port (gRPC), as offered by Databricks and others. No Java runs
here, and static Spark properties cannot be set, since the server is already started.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from das.errors import RuntimeSetupError
from jobs.pipeline.config.protection import (
    REMOTE_VARIABLE,
    is_remote,
    missing_protection,
    remote_problem,
)
from jobs.pipeline.tasks.shipping import Equipment, looker, own_equipment, project_archive

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Packages of the extra `connect`, by the names that are imported.
_PACKAGES = ("google.rpc", "grpc", "grpc_status", "zstandard")
# A server takes some seconds to start: it is tried every two seconds for 21 seconds. In a step,
# waits grow fourfold to a minute, three minutes in all, for a network that comes back. A restarted
# server has lost the session anyway.
_TO_REACH = {"max_retries": 12, "max_backoff": 2000}
_IN_WORK = {"max_retries": 8, "max_backoff": 60_000}
_AT_THE_END = {"max_retries": 1, "max_backoff": 1000}
_ANSWER_SECONDS = 20.0
_MOST_PARTITIONS = 1 << 16
_SOCKETS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # the kernel's lists
_LISTENS = "0A"  # state of a socket, as Linux numbers them (include/net/tcp_states.h)
_ROOT = 0


@dataclass(frozen=True)
class Server:
    """A session on a server that can run tasks.

    Attributes:
      session: The session.
      slots: Parallel tasks of the server, from the partitions of its default range.
      doors: Ways in which others could connect or overhear, as far as the server shows them.
    """

    session: SparkSession
    slots: int
    doors: tuple[str, ...]


def is_connect_wanted(master: str | None) -> bool:
    """Return whether tasks run on a Connect server, named by `master` or already in use."""
    return _active_session() is not None or _url(master) is not None


@contextmanager
def connect_session(
    master: str | None,
    *,
    properties: Mapping[str, str] | None = None,
    allow_open: bool = False,
) -> Iterator[Server]:
    """Connect to a server, and disconnect afterwards.

    An active session, such as a notebook's, is used unchanged and left open.

    Args:
      master: URL of the server; None takes the URL of the environment.
      properties: Properties to set in the session.
      allow_open: Whether the server may be open to others.

    Raises:
      RuntimeSetupError: Packages are missing, the server cannot be reached, refuses, is open to
        others, or its workers cannot run the tasks.
    """
    active = _active_session()
    if active is None:
        require_packages("Spark Connect", "needs packages", _PACKAGES, "connect")
    with warnings.catch_warnings(), _no_classes_from_servers():
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
        if active is not None:
            session, doors = active, _doors(getattr(active.client, "_builder", None))
        else:
            session, doors = _reach(_url(master) or "", allow_open=allow_open)
        try:
            doors += _unprotected(session)
            if not allow_open:
                _refuse_doors(doors)
            _set_properties(session, properties or {})
            server = Server(session, _equip(session), tuple(doors))
            if active is None:
                _be_patient(session, _IN_WORK)
            yield server
        finally:
            if active is None:
                _be_patient(session, _AT_THE_END)
                session.stop()


def _url(master: str | None) -> str | None:
    """Return the URL of the Connect server; None if tasks run without such a server.

    Args:
      master: Spark master of the run file or the command line; None uses SPARK_REMOTE.
    """
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = os.environ.get(REMOTE_VARIABLE)
    return master if master is not None and is_remote(master) else None


def _active_session() -> Any:  # noqa: ANN401 - a session, or None
    """Return the active Connect session of this process; None if there is none."""
    module: Any = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return None
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        return module.SparkSession.active()
    return None


def _reach(url: str, *, allow_open: bool) -> tuple[Any, list[str]]:
    """Open a session on a server; returns the session, and ways in which others could connect.

    The first call of a session sends the token, so the server is checked before.

    Raises:
      RuntimeSetupError: The server cannot be reached, refuses, or is open without permission.
    """
    problem = remote_problem(url)
    if problem is not None:
        raise RuntimeSetupError(REMOTE_VARIABLE, problem)
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    builder = DefaultChannelBuilder(url)
    doors = _doors(builder)
    if not allow_open:
        _refuse_doors(doors)
        port = _local_port(builder)
        if port is not None:
            builder.add_interceptor(_listener_check(port))
    session: Any = SparkSession.builder.channelBuilder(builder).create()
    _be_patient(session, _TO_REACH)
    try:
        version = session.version
    except PySparkException as error:
        session.release_session_on_close = False  # would wait for it again
        session.stop()
        raise _unreachable(session.client.host, error_text(error)) from None
    if version.split(".")[0] != "4":
        session.stop()
        raise RuntimeSetupError(
            f"Spark Connect server {session.client.host}", "is too old", got=version, want="Spark 4"
        )
    return session, doors


def _unreachable(host: str, got: str) -> RuntimeSetupError:
    return RuntimeSetupError(
        f"Spark Connect server {host}",
        "cannot be reached, or refuses",
        got=got,
        remedy="see that it runs and listens there, that the token is correct, and that "
        "`use_ssl=true` is given if it speaks TLS, and only then (docs/cluster.md)",
    )


def require_packages(where: str, what: str, names: Sequence[str], extra: str) -> None:
    """Check that packages are installed, without importing them.

    Args:
      where: Subject of the error.
      what: Predicate of the error, such as "needs packages".
      names: Packages, by the names that are imported.
      extra: The extra of this project that installs them.

    Raises:
      RuntimeSetupError: A package is not installed.
    """
    absent = [*names]
    for name in names:
        with suppress(ModuleNotFoundError):  # the package that would contain it is absent too
            if find_spec(name) is not None:
                absent.remove(name)
    if absent:
        raise RuntimeSetupError(
            where,
            what,
            got=f"no {', '.join(absent)}",
            remedy=f"`pip install '.[{extra}]'` in a clone",
        )


def _be_patient(session: Any, tries: Mapping[str, int]) -> None:  # noqa: ANN401 - of PySpark
    """Set number and waits (milliseconds) of retries of a call without answer."""
    from pyspark.sql.connect.client import retries

    policy: Any = retries.DefaultPolicy
    session.client.set_retry_policies([policy(**tries)])


def error_text(error: BaseException) -> str:
    """Return the answer of a server, or the reason of its absence, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    details = [line for line in lines if line.startswith("details = ")]  # of a call without answer
    return [*details, *lines, type(error).__name__][0].removeprefix("details = ")[:300]


# --- whether it is closed ------------------------------------------------------------------------


def _refuse_doors(doors: Sequence[str]) -> None:
    """Refuse a server that is open to others.

    Raises:
      RuntimeSetupError: `doors` is not empty.
    """
    if doors:
        raise RuntimeSetupError(
            "Spark Connect server",
            "is open to others, or does not show that it is closed",
            got="; ".join(doors),
            remedy="start it with a token and with spark.authenticate, "
            "spark.network.crypto.enabled and spark.io.encryption.enabled on, and reach it by TLS, "
            "or as localhost on its own machine (docs/cluster.md); or accept the risk by "
            "`runtime.allow_open_cluster: true`, which the release then states",
        )


def _doors(builder: Any) -> list[str]:  # noqa: ANN401 - of PySpark
    """List ways in which others could connect or overhear, without sending the token.

    Args:
      builder: Builder of the channel to the server.

    Raises:
      RuntimeSetupError: The server does not answer.
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

    messages: Any = base_pb2
    calls: Any = base_pb2_grpc
    if not isinstance(builder, DefaultChannelBuilder):
        return ["the way to it cannot be seen"]
    local_port, doors = _local_port(builder), list[str]()
    if not builder.use_ssl and local_port is None:
        doors.append("the way to it is not encrypted")
    # Connect without a token.
    channel = (
        grpc.secure_channel(builder.endpoint, grpc.ssl_channel_credentials())
        if builder.use_ssl
        else grpc.insecure_channel(builder.endpoint)
    )
    stub = calls.SparkConnectServiceStub(channel)
    identity = {"session_id": str(uuid.uuid4()), "user_context": {"user_id": "stranger"}}
    request = messages.ConfigRequest(**identity, operation={"get_all": {}})
    how = {"metadata": [*builder.metadata()], "timeout": _ANSWER_SECONDS, "wait_for_ready": True}
    try:
        stub.Config(request, **how)
        stub.ReleaseSession(messages.ReleaseSessionRequest(**identity), **how)
        doors.append("it lets in who has no token")
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise _unreachable(builder.host, f"no answer in {_ANSWER_SECONDS:g} s") from None
        refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
        if error.code() not in refused:
            doors.append(f"it was not seen to refuse who has no token ({error.code().name})")
    finally:
        channel.close()
    # Without a certificate, the kernel identifies the listening program of this machine.
    stranger = None if local_port is None else stranger_at(local_port)
    return [*doors, *([stranger] if stranger else [])]


def _local_port(builder: Any) -> int | None:  # noqa: ANN401 - of PySpark
    """Return the port of a server on this machine without TLS; None for other servers."""
    is_local = not builder.use_ssl and builder.host == "localhost"
    return int(builder.endpoint.rpartition(":")[2]) if is_local else None


def listeners(port: int, tables: Iterable[Path] = _SOCKETS) -> frozenset[int] | None:
    """Return the users whose programs listen at a port, at any address of this machine.

    All addresses count, since `localhost` can be 127.0.0.1 or ::1.

    Args:
      port: TCP port.
      tables: The kernel's tables of IPv4 and IPv6 sockets.

    Returns:
      User ids; None on systems without these tables (other than Linux).
    """
    users: set[int] = set()
    seen = False
    for table in tables:
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:
            continue
        seen = True
        for row in rows:
            # Columns: number, local address, remote one, state, queues, timer, retries, user.
            words = row.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                users.add(int(words[7]))
    return frozenset(users) if seen else None


def stranger_at(port: int) -> str | None:
    """Return why the listener at a local port cannot be trusted; None if it can.

    Every user can listen at ports above 1024, so another user could take the port before the
    server does. Programs of this user and root are trusted. A port without listener is not: another
    user could listen before and after this check.
    """
    users = listeners(port)
    if users is None:
        return "this system does not show whose program listens there"
    if users - {os.getuid(), _ROOT}:
        return "a program of another user listens there"
    return None if users else "no program listens there now, so that any user could"


def _listener_check(port: int) -> Any:  # noqa: ANN401 - an interceptor of gRPC
    """Make an interceptor that checks the listener before every call, in case the server ended."""
    import grpc

    class Check(
        grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
        grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
        grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    ):
        def _call(self, call: Any, details: Any, request: Any) -> Any:  # noqa: ANN401
            stranger = stranger_at(port)
            if stranger:
                _refuse_doors([stranger])
            return call(details, request)

        intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = _call

    return Check()


@contextmanager
def _no_classes_from_servers() -> Iterator[None]:
    """Refuse classes in schemas from servers, which PySpark would import or unpickle."""
    from pyspark.sql.connect import types

    module: Any = types
    kept = module.UserDefinedType

    class Refused(kept):  # type: ignore[misc,valid-type]
        @classmethod
        def fromJson(cls, json: object) -> object:  # noqa: N802 - as PySpark has it
            raise RuntimeSetupError("Spark Connect server", "sent a class where data are expected")

    module.UserDefinedType = Refused
    try:
        yield
    finally:
        module.UserDefinedType = kept


def _unprotected(session: SparkSession) -> list[str]:
    """List the protecting properties of the server that are not seen to be on."""
    from pyspark.errors import PySparkException

    properties: dict[str, str] = {}
    with suppress(PySparkException):  # some servers show none
        properties = dict(session.conf.getAll)
    return [f"{name} is not seen to be on" for name in missing_protection(properties)]


def _set_properties(session: SparkSession, properties: Mapping[str, str]) -> None:
    """Set properties of the session.

    Raises:
      RuntimeSetupError: A property cannot be set in a session.
    """
    from pyspark.errors import PySparkException

    for name, value in properties.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            raise RuntimeSetupError(
                f"runtime.spark.{name}",
                "cannot be set in a session of a Spark Connect server",
                got=error_text(error),
                remedy="leave it out of runtime.spark, and set it when the server is started",
            ) from None


# --- what its workers have -----------------------------------------------------------------------


def _equip(session: SparkSession) -> int:
    """Send the project to workers that have another version; returns the slots.

    Raises:
      RuntimeSetupError: Workers cannot run Python, lack libraries, or keep another version.
    """
    ours = own_equipment()
    workers = _look(session)
    absent = sorted({name for worker in workers for name in worker.absent})
    if absent:
        raise RuntimeSetupError(
            "Spark Connect server",
            "has workers without libraries that tasks need",
            got=f"no {', '.join(absent)}",
            remedy="give its Python those of requirements/run.txt (docs/cluster.md)",
        )
    if any(worker.digest != ours.digest for worker in workers):
        with tempfile.TemporaryDirectory(prefix="topdown-das-") as folder:
            archive = project_archive(Path(folder), str(ours.digest))
            session.addArtifacts(str(archive), pyfile=True)
            if str(archive) in sys.path and archive.parent == Path(folder):
                sys.path.remove(str(archive))  # here it is imported from where it is
        workers = _look(session)
    if any(worker.digest != ours.digest for worker in workers):
        raise RuntimeSetupError(
            "Spark Connect server",
            "has workers that hold on to another version of this project",
            remedy="install this version there, or none, and start the server again",
        )
    return len(workers)


def _look(session: SparkSession) -> list[Equipment]:
    """Return the equipment of the workers, one entry per partition of the server's default range.

    Raises:
      RuntimeSetupError: The workers cannot run Python.
    """
    from pyspark.errors import PySparkException

    look = looker()

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            pass
        digest, absent = look()
        yield pa.RecordBatch.from_pydict({"digest": [digest or ""], "absent": [" ".join(absent)]})

    try:
        partitions = session.range(_MOST_PARTITIONS)
        rows = partitions.mapInArrow(ask, "digest string, absent string").collect()
    except PySparkException as error:
        raise RuntimeSetupError(
            "Spark Connect server",
            "cannot run Python tasks",
            got=error_text(error),
            want=f"workers with Python {sys.version_info.major}.{sys.version_info.minor}, pyarrow "
            "and pandas",
        ) from error
    return [Equipment(row.digest or None, tuple(row.absent.split())) for row in rows]
