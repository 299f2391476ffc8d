"""The command `das` of the pages, run by forks of one process: `python -m tests.documented.served`.

That process has imported the project and read the compiled solvers, which takes a command longer
than most blocks take. Tasks run in the fork, without Java. The README and the pages after it are
read with the installed command, which starts Spark.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import jobs
from jobs.cli.main import main as das
from tests.builders import in_process
from tests.checkout import ROOT

# Sends words, folder and variables with its three streams; ends with the exit code that comes back.
_CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as wire:
    wire.connect({address!r})
    asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(wire, [b"-"], [0, 1, 2])
    wire.sendall(asked)
    wire.shutdown(socket.SHUT_WR)
    sys.exit(int(wire.recv(16) or 70))
"""


@contextmanager
def serve(folder: Path) -> Iterator[Path]:
    """Start the process; yield the folder of its `das`, for the front of PATH."""
    address = folder / "das.socket"
    command = folder / "bin" / "das"
    command.parent.mkdir()
    command.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
    command.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(address))
        door.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(door.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[door.fileno()],
        )
    try:
        yield command.parent
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Fork for every command that comes in."""
    for name in ("matplotlib.figure", "jobs.pipeline.tasks.warm_daemon", *_modules()):
        importlib.import_module(name)
    patch = pytest.MonkeyPatch()
    in_process.patch_spark(patch)
    in_process.leave_out_figures(patch)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as door:
        while True:
            wire, _ = door.accept()
            with wire:
                if not os.fork():
                    _answer(wire)
            with suppress(ChildProcessError):
                while any(os.waitpid(-1, os.WNOHANG)):
                    pass


def _modules() -> Iterator[str]:
    """All modules that commands may import."""
    for found in pkgutil.walk_packages(jobs.__path__, "jobs."):
        if not found.name.endswith("__main__"):
            yield found.name


def _answer(wire: socket.socket) -> None:
    """Run a command and send its exit code."""
    _, streams, _, _ = socket.recv_fds(wire, 1, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    words, folder, variables = json.loads(b"".join(iter(lambda: wire.recv(65536), b"")))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["das", *words]
    code = 70  # of no command: it could not even begin
    try:
        code = das()
    finally:
        if code == 70:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        wire.sendall(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    main()
