"""What a step costs before it works: the start of a session, and a task that does nothing.

    python -m bench.tasks [--repeats N] [--tasks N] [--connect]

With --connect, a session on local threads is compared with a Spark Connect server of as many: seconds
of the smallest step, milliseconds that a task adds to it, and seconds of whole runs of the toy state,
in turn; medians, as a JSON object.

Else prints a JSON object: medians of [seconds, processor seconds of Java] per start, and milliseconds
per task. Sessions are started in turn with and without the archive of Spark's classes (`das prepare` makes
it), each in a process of its own. Then empty tasks run on a session whose workers are warm. The
medians are behind `jobs.pipeline.tasks.java` and the least work of a task in `jobs.pipeline.tasks.batches`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.connect import ConnectTasks
from jobs.pipeline.tasks.connect_session import connect_session
from jobs.pipeline.tasks.executor import SparkTasks, Tasks
from jobs.pipeline.tasks.java import make_class_archive
from jobs.pipeline.tasks.session import spark_session
from tests.builders import toy
from tests.pipeline.spark.connect import connect_server

_START = """
import json, sys, time
from pathlib import Path
import psutil
from jobs.pipeline.tasks import session
if sys.argv[1] == "without":
    session.class_archive = lambda: Path("/nonexistent")
started = time.monotonic()
with session.spark_session("bench", master="local[2]"):
    wall = time.monotonic() - started
    family = psutil.Process().children(recursive=True)
    java = [process.cpu_times() for process in family if process.name().startswith("java")]
    print(json.dumps([wall, sum(times.user + times.system for times in java)]))
"""


def start_seconds(archive: str) -> tuple[float, float]:
    """Seconds until a new process has an embedded session, and processor seconds of its Java."""
    command = [sys.executable, "-c", _START, archive]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall, java = json.loads(done.stdout.splitlines()[-1])
    return wall, java


def empty_steps(tasks: Tasks, n_tasks: int, repeats: int) -> tuple[float, float]:
    """Seconds of a step of two empty tasks, and milliseconds that each further one adds."""
    tasks.run("warm", list(range(50)), abs)

    def seconds(n: int) -> float:
        started = time.monotonic()
        tasks.run("empty", list(range(n)), abs)
        return time.monotonic() - started

    few = median(seconds(2) for _ in range(repeats))
    many = median(seconds(2 + n_tasks) for _ in range(repeats))
    return few, 1000 * (many - few) / n_tasks


def with_a_server(n_tasks: int, repeats: int) -> dict[str, dict[str, float]]:
    """What steps and whole runs cost on a session of local threads and on a server."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        toy.write_records(folder)
        with connect_server(folder) as server:
            os.environ.update(server.variables)
            with connect_session(server.url) as opened:
                own = ConnectTasks(opened.session, Sizing(4), opened.slots, is_open=False)
                found["connect"] = _steps(own, n_tasks, repeats)
            with spark_session("bench", master="local[2,3]", driver_memory="1g") as session:
                found["session"] = _steps(SparkTasks(session, Sizing(4)), n_tasks, repeats)
            masters = {"connect": server.url, "session": "local[2,3]"}
            runs: dict[str, list[float]] = {way: [] for way in masters}
            for turn in range(repeats):
                for way, master in masters.items():
                    config = toy.configuration(folder, runtime={"master": master})
                    words = ["run", config, "--out", folder / f"{way}-{turn}", "--quiet"]
                    started = time.monotonic()
                    subprocess.run(
                        [sys.executable, "-m", "jobs", *map(str, words)],
                        check=True,
                        capture_output=True,
                    )
                    runs[way].append(time.monotonic() - started)
            for way, seconds in runs.items():
                found[way]["run_seconds"] = round(median(seconds), 1)
    return found


def _steps(tasks: Tasks, n_tasks: int, repeats: int) -> dict[str, float]:
    few, each = empty_steps(tasks, n_tasks, repeats)
    return {"step_seconds": round(few, 3), "task_milliseconds": round(each, 1)}


def main() -> None:
    """Measure and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--connect", action="store_true", help="compare with a Connect server")
    arguments = parser.parse_args()
    if arguments.connect:
        print(json.dumps(with_a_server(arguments.tasks, arguments.repeats)))
        return
    make_class_archive()
    starts = {archive: [] for archive in ("with", "without")}
    for _ in range(arguments.repeats):
        for archive, seconds in starts.items():
            seconds.append(start_seconds(archive))
    result = {
        f"start_{archive}_archive": [round(median(part), 2) for part in zip(*seconds, strict=True)]
        for archive, seconds in starts.items()
    }
    with spark_session("bench", master="local[2]") as session:
        tasks = SparkTasks(session, Sizing(4))
        _, empty = empty_steps(tasks, arguments.tasks, arguments.repeats)
    print(json.dumps({**result, "empty_task_milliseconds": round(empty, 2)}))


if __name__ == "__main__":
    main()
