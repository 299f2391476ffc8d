"""python -m tests.pipeline.spark.measuring RUN.yaml: reads and measures a run, and keeps its session open.

Prints one line of JSON, then waits for the end of its input:

java    process of the session
keys    every noise key that was drawn, in hexadecimal
shares  what tasks carried of them, likewise
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from das.mechanisms.entropy import NoiseKey
from jobs.pipeline.confidential import measure as measuring
from jobs.pipeline.confidential.measure import MeasureTask
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.tasks.progress import Reporter


def main() -> None:
    keys: list[str] = []
    shares: list[str] = []

    def remember(*arguments: Any) -> MeasureTask:
        task = MeasureTask(*arguments)
        keys.append(task.key.key().secret.hex())
        shares.append(task.key.share.hex())
        return task

    measuring.MeasureTask = remember  # type: ignore[misc, assignment]
    assert NoiseKey.draw() != NoiseKey.draw()
    with open_job(load_run(Path(sys.argv[1])), Reporter(quiet=True)) as job:
        do_stages(job, ("plan", "read"))
        do_stages(job, ("resolve_constraints", "reserve_budget", "measure"))
        java = job.tasks.session.sparkContext._gateway.proc.pid
        print(json.dumps({"java": java, "keys": keys, "shares": shares}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
