"""What a step costs before it works: the start of a session, and a task that does nothing.

    python -m bench.tasks [--repeats N] [--tasks N]

Prints a JSON object: medians of [seconds, processor seconds of Java] per start, and milliseconds
per task. Sessions are started in turn with and without the archive of Spark's classes (`das prepare` makes
it), each in a process of its own. Then empty tasks run on a session whose workers are warm. The
medians are behind `jobs.pipeline.tasks.java` and the least work of a task in `jobs.pipeline.tasks.batches`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from statistics import median

from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import SparkTasks, Tasks
from jobs.pipeline.tasks.java import make_class_archive
from jobs.pipeline.tasks.session import spark_session

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


def main() -> None:
    """Measure and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=100)
    arguments = parser.parse_args()
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
