"""Two workers against one: seconds of the solve stage on a standalone cluster.

    python -m bench.workers [--blocks N] [--quick]

Four generated states with the 2,016 cells of PL94 are measured once. Copies of the run are then solved by a
standalone master with executors of one core each, on one worker and on two. Prints the geolevels and
one line of JSON; the goal is a speed-up of 1.7. What does not shrink are the levels of few nodes,
the driver's work between geolevels and the last task of each. Both need a processor to themselves:
the load of the machine in the minute of each solve is printed, and should be the number of workers.
Machine code is made before, so that neither run waits for a compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

import yaml

from bench.state import das, generated, persons_of
from tests.pipeline.spark.cluster import Cluster, build_zip, standalone_cluster

_STATES = 4  # so that no node of the upper geolevels holds up all others


def solved(cluster: Cluster, archive: Path, config: Path, workers: int) -> dict[str, float]:
    """Solve a copy of the measured run; seconds of every geolevel."""
    measured = config.parent / "out"
    out = config.parent / f"out-{workers}"
    shutil.copytree(measured, out)
    (out / "summary.json").unlink()
    log = config.parent / f"driver-{workers}.log"
    conf = {"spark.cores.max": str(workers)}
    driver = cluster.start(
        archive, "run", "--only", "solve", config, "--out", out, log=log, conf=conf
    )
    if driver.wait():
        raise SystemExit(log.read_text()[-3000:])
    summary = json.loads((out / "summary.json").read_text())
    shutil.rmtree(out)
    return {part["what"]: part["seconds"] for part in summary["parts"] if part["stage"] == "solve"}


def main() -> None:
    """Measure, solve with one worker and with two, and print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--quick", action="store_true", help="2,000 blocks instead of 120,000")
    arguments = parser.parse_args()
    arguments.blocks = arguments.blocks or (2_000 if arguments.quick else 120_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = generated("demo.yaml", folder, arguments.blocks, _STATES)
        document = yaml.safe_load(config.read_text())
        document["privacy"]["randomness"] = {"source": "seeded_not_for_release", "seed": 2020}
        persons_of(document)["output"] = {"microdata": [], "tables": ["total"]}
        document["runtime"] = {}
        config.write_text(yaml.safe_dump(document))
        das("run", "--only", "measure", config, "--quiet")
        das("prepare")
        archive = build_zip(folder)
        with standalone_cluster(folder) as cluster:
            two, busy = solved(cluster, archive, config, 2), [os.getloadavg()[0]]
            one = solved(cluster, archive, config, 1)
            busy.append(os.getloadavg()[0])
    print(f"{'geolevel':<14}{'one worker':>12}{'two workers':>12}{'speed-up':>10}")
    for level in one:
        print(f"{level:<14}{one[level]:>12.2f}{two[level]:>12.2f}{one[level] / two[level]:>10.2f}")
    seconds = sum(one.values()), sum(two.values())
    result = {
        "blocks": arguments.blocks,
        "one": round(seconds[0], 2),
        "two": round(seconds[1], 2),
        "speedup": round(seconds[0] / seconds[1], 3),
        "load_two_one": [round(load, 1) for load in busy],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
