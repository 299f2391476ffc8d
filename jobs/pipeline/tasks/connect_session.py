"""Sessions of Spark Connect: reaching a server, whether it is closed, and what its workers have.

A server takes programs over one port (gRPC), as Databricks and others offer it. There is no Java
here, and nothing of Spark's own properties can be given: they belong to who starts the server.
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
# A server takes some seconds to start: it is looked for every two seconds, 21 in all. In a step,
# waits grow fourfold to a minute, three minutes in all: a network that comes back by then is waited
# for, and a server that is started again has lost the session anyway.
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
      slots: Tasks that the server would run at the same time, as it cuts data of its own.
      doors: By what others could get in or overhear, as far as the server shows it.
    """

    session: SparkSession
    slots: int
    doors: tuple[str, ...]


def is_connect_wanted(master: str | None) -> bool:
    """Say whether tasks run on a Connect server: one in use already, or the one that is named."""
    return _active_session() is not None or _url(master) is not None


@contextmanager
def connect_session(
    master: str | None,
    *,
    properties: Mapping[str, str] | None = None,
    allow_open: bool = False,
) -> Iterator[Server]:
    """Reach a Connect server, and leave it afterwards.

    A session that is already in use, such as a notebook's, is used as it is and left open.

    Args:
      master: URL of the server; None takes the one of the environment.
      properties: Properties to set in the session.
      allow_open: Whether others may be able to get in or overhear.

    Raises:
      RuntimeSetupError: Packages are missing here, the server cannot be reached or refuses, is
        open to others, or its workers cannot run the tasks.
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
    """Return the server that a run file or the command line names, else the environment."""
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = os.environ.get(REMOTE_VARIABLE)
    return master if master is not None and is_remote(master) else None


def _active_session() -> Any:  # noqa: ANN401 - a session, or None
    """Return the Connect session that this process uses already; None if it uses none."""
    module: Any = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return None
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        return module.SparkSession.active()
    return None


def _reach(url: str, *, allow_open: bool) -> tuple[Any, list[str]]:
    """Open a session on the server of a URL; return it, and how strangers could get in besides.

    The token is in the first call of a session, so the server is checked before.

    Raises:
      RuntimeSetupError: The server cannot be reached or refuses, or it is open to others and may
        not be.
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
        if not builder.use_ssl and builder.host == "localhost":
            builder.add_interceptor(_listener_check(_port(builder)))
    session: Any = SparkSession.builder.channelBuilder(builder).create()
    _be_patient(session, _TO_REACH)
    try:
        version = session.version
    except PySparkException as error:
        session.release_session_on_close = False  # would wait for it again
        session.stop()
        raise _unreachable(session.client.host, said(error)) from None
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
        remedy="see that it runs and listens there, that the token is the one it asks for, and "
        "that `use_ssl=true` is given if it speaks TLS, and only then (docs/cluster.md)",
    )


def require_packages(where: str, what: str, names: Iterable[str], extra: str) -> None:
    """Refuse to go on without packages; nothing is imported.

    Args:
      where: What lacks them.
      what: What it is like without them.
      names: Packages, by the names that are imported.
      extra: The extra of this project that installs them.

    Raises:
      RuntimeSetupError: A package is not installed.
    """
    absent = []
    for name in names:
        found = None
        with suppress(ModuleNotFoundError):  # nor the package that would hold it
            found = find_spec(name)
        if found is None:
            absent.append(name)
    if absent:
        raise RuntimeSetupError(
            where,
            what,
            got=f"no {', '.join(absent)}",
            remedy=f"`pip install 'topdown-das[{extra}]'`, or '.[{extra}]' in a clone",
        )


def _be_patient(session: Any, tries: Mapping[str, int]) -> None:  # noqa: ANN401 - of PySpark
    """Set how often, and after how many milliseconds, a call is tried that had no answer."""
    from pyspark.sql.connect.client import retries

    policy: Any = retries.DefaultPolicy
    session.client.set_retry_policies([policy(**tries)])


def said(error: BaseException) -> str:
    """Return what a server answered, or why it did not, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    details = [line for line in lines if line.startswith("details = ")]  # of a call without answer
    return [*details, *lines, type(error).__name__][0].removeprefix("details = ")[:300]


# --- whether it is closed ------------------------------------------------------------------------


def _refuse_doors(doors: Sequence[str]) -> None:
    """Refuse a server by whose doors others could get in or overhear.

    Raises:
      RuntimeSetupError: There is such a door.
    """
    if doors:
        raise RuntimeSetupError(
            "Spark Connect server",
            "is open to others, or does not show that it is closed",
            got="; ".join(doors),
            remedy="start it with a token and with these properties on, and reach it by TLS, or as "
            "localhost on its own machine (docs/cluster.md); or accept the risk by "
            "`runtime.allow_open_cluster: true`, which the release then states",
        )


def _doors(builder: Any) -> list[str]:  # noqa: ANN401 - of PySpark
    """List how strangers could get in, or overhear, on the way to the server. Sends no token.

    Args:
      builder: Of the channel to the server.

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
    found = []
    is_by_localhost = not builder.use_ssl and builder.host == "localhost"
    if not builder.use_ssl and not is_by_localhost:
        found.append("the way to it is not encrypted")
    # As somebody who has no token.
    channel = (
        grpc.secure_channel(builder.endpoint, grpc.ssl_channel_credentials())
        if builder.use_ssl
        else grpc.insecure_channel(builder.endpoint)
    )
    stub = calls.SparkConnectServiceStub(channel)
    identity = {"session_id": str(uuid.uuid4()), "user_context": {"user_id": "stranger"}}
    asked = messages.ConfigRequest(**identity, operation={"get_all": {}})
    how = {"metadata": [*builder.metadata()], "timeout": _ANSWER_SECONDS, "wait_for_ready": True}
    try:
        stub.Config(asked, **how)
        stub.ReleaseSession(messages.ReleaseSessionRequest(**identity), **how)
        found.append("it lets in who has no token")
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise _unreachable(builder.host, f"no answer in {_ANSWER_SECONDS:g} s") from None
        refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
        if error.code() not in refused:
            found.append(f"it was not seen to refuse who has no token ({error.code().name})")
    finally:
        channel.close()
    # No certificate says who answers: a program of this machine, which the kernel knows.
    stranger = stranger_at(_port(builder)) if is_by_localhost else None
    return [*found, *([stranger] if stranger else [])]


def _port(builder: Any) -> int:  # noqa: ANN401 - of PySpark
    return int(builder.endpoint.rpartition(":")[2])


def listeners(port: int, tables: Iterable[Path] = _SOCKETS) -> frozenset[int] | None:
    """Return the users whose programs listen at a port, at any address of this machine.

    All addresses count, since `localhost` may lead to 127.0.0.1 and to ::1.

    Args:
      port: Of TCP.
      tables: The kernel's lists of sockets, of IPv4 and IPv6.

    Returns:
      Numbers of users; None where the system has no such list, as other systems than Linux.
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
    """Say why who listens at a port of this machine cannot be trusted; None if it can.

    Ports above 1024 are free for all users of a machine, so a stranger could take one before the
    server does.

    Trusted are programs of this user and of root. A port where nobody listens is free to be taken:
    a stranger could answer, stop listening before this look, and listen again after it.
    """
    users = listeners(port)
    if users is None:
        return "this system does not show whose program listens there"
    if users - {os.getuid(), _ROOT}:
        return "a program of another user listens there"
    return None if users else "nobody listens there now, so that anybody could"


def _listener_check(port: int) -> Any:  # noqa: ANN401 - an interceptor of gRPC
    """Look who listens before every call: a server may end, and a stranger take its port."""
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
    """Let no server name a class in a schema: PySpark would import or unpickle it."""
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
    """List properties that would protect what is behind the server, and are not seen to be on."""
    from pyspark.errors import PySparkException

    properties: dict[str, str] = {}
    with suppress(PySparkException):  # some servers show none
        properties = dict(session.conf.getAll)
    return [f"{name} is not seen to be on" for name in missing_protection(properties)]


def _set_properties(session: SparkSession, properties: Mapping[str, str]) -> None:
    """Set properties of the session.

    Raises:
      RuntimeSetupError: One cannot be set in a session.
    """
    from pyspark.errors import PySparkException

    for name, value in properties.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            raise RuntimeSetupError(
                f"runtime.spark.{name}",
                "cannot be set in a session of a Spark Connect server",
                got=said(error),
                remedy="leave it out, and give it where the server is started",
            ) from None


# --- what its workers have -----------------------------------------------------------------------


def _equip(session: SparkSession) -> int:
    """Send the project to the workers if theirs is not this one; returns the slots.

    Raises:
      RuntimeSetupError: They cannot run Python, or lack libraries, or hold on to another project.
    """
    own = own_equipment()
    workers = _look(session)
    absent = sorted({name for one in workers for name in one.absent})
    if absent:
        raise RuntimeSetupError(
            "Spark Connect server",
            "has workers without libraries that tasks need",
            got=f"no {', '.join(absent)}",
            remedy="give its Python those of requirements/run.txt (docs/cluster.md)",
        )
    if any(one.digest != own.digest for one in workers):
        with tempfile.TemporaryDirectory(prefix="topdown-das-") as folder:
            archive = project_archive(Path(folder), str(own.digest))
            session.addArtifacts(str(archive), pyfile=True)
            if str(archive) in sys.path and archive.parent == Path(folder):
                sys.path.remove(str(archive))  # here it is imported from where it is
        workers = _look(session)
    if any(one.digest != own.digest for one in workers):
        raise RuntimeSetupError(
            "Spark Connect server",
            "has workers that hold on to another version of this project",
            remedy="install this version there, or none, and start the server again",
        )
    return len(workers)


def _look(session: SparkSession) -> list[Equipment]:
    """Return what workers have, one for each partition that the server makes of its own data.

    Raises:
      RuntimeSetupError: They cannot run Python.
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
        rows = (
            session.range(_MOST_PARTITIONS)
            .mapInArrow(ask, "digest string, absent string")
            .collect()
        )
    except PySparkException as error:
        raise RuntimeSetupError(
            "Spark Connect server",
            "cannot run Python tasks",
            got=said(error),
            want=f"workers with Python {sys.version_info.major}.{sys.version_info.minor}, pyarrow "
            "and pandas",
        ) from error
    return [Equipment(row.digest or None, tuple(row.absent.split())) for row in rows]
