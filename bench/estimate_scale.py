"""Seconds of the estimate stage on generated states of growing size.

    python -m bench.estimate_scale [--blocks N N ...] [--schema block16|pl94] [--quick]

`das generate` makes a state, `das run RUN --only measure` draws; then the estimate stage alone is timed, in a session
that has already run a task, with the tables of the run file. With pl94 the whole run is timed too,
for the share of the estimate stage in it. Prints a table and one line of JSON: blocks -> seconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from bench.state import das, generated
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.estimate import EstimateStage, LevelEstimator
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.layout import EstimateLayout
from jobs.pipeline.tasks.executor import open_tasks

QUICK = (5_000, 20_000, 50_000)
EVERY = (*QUICK, 200_000)


def timed(blocks: int, schema: str) -> dict[str, float]:
    """Generate, measure or run, and estimate one state."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = schema == "block16"
        config = generated("ri-2010.yaml" if small else "demo.yaml", folder, blocks)
        started = time.monotonic()
        das("run", config, "--quiet", *(("--only", "measure") if small else ()))
        before = time.monotonic() - started
        resolved = load_run(config)
        release = resolved.last.release
        tables = tuple(resolved.last.tabulated.values())
        with open_tasks(resolved.config) as tasks:
            tasks.run("warm", list(range(8)), abs)
            started = time.monotonic()
            EstimateStage(LevelEstimator(resolved.plan, release, tables, 0.9), tasks).run()
            seconds = time.monotonic() - started
        written = EstimateLayout.of(release).root.rglob("_manifest.json")
        size = sum(Dataset.open(path.parent).bytes for path in written)
    found = {"blocks": blocks, "seconds": round(seconds, 2), "megabytes": round(size / 1e6, 1)}
    if not small:
        found["share_of_run"] = round(seconds / (before + seconds), 3)
    return found


def main() -> None:
    """Measure, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+")
    parser.add_argument("--schema", choices=("block16", "pl94"), default="block16")
    parser.add_argument("--quick", action="store_true", help="not 200,000 blocks")
    arguments = parser.parse_args()
    rows = []
    print(f"{'blocks':>10}{'seconds':>10}{'s per 1,000':>13}{'MB':>10}{'of run':>10}")
    for blocks in arguments.blocks or (QUICK if arguments.quick else EVERY):
        row = timed(blocks, arguments.schema)
        rows.append(row)
        print(
            f"{blocks:>10,}{row['seconds']:>10.2f}{1000 * row['seconds'] / blocks:>13.3f}"
            f"{row['megabytes']:>10.1f}{row.get('share_of_run', float('nan')):>10.3f}",
            flush=True,
        )
    result = {
        **{str(row["blocks"]): row["seconds"] for row in rows},
        "schema": arguments.schema,
        "megabytes": {row["blocks"]: row["megabytes"] for row in rows},
        "share_of_run": {r["blocks"]: r["share_of_run"] for r in rows if "share_of_run" in r},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
