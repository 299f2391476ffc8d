"""Allocations for the errors of released counts: weights of answers from simulated releases.

    python -m bench.released_weights [--quick] [--seeds N]

`das plan --optimize` minimizes variances of unbiased estimates. Released counts are nonnegative, so
some err more than their estimates, others less. The blocks of Rhode Island, taken as public, are
measured and solved under the shipped allocation. The weight of each answer is the ratio of both
errors, relative to that of 2020, and an allocation is planned with these weights; twice. Prints the
squared errors of released counts in Delaware divided by those under the shipped allocation, and one
line of JSON: geolevel -> answer -> [ratio, standard error]. --quick takes two seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import yaml

from bench.accuracy import (
    DATA,
    PRODUCTION,
    blocks_of,
    errors,
    ratio_of,
    resolve,
)
from bench.redistricting import BEFORE
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.checkout import ROOT

SHIPPED = ROOT / "conf" / "allocation" / "block16-optimised-state.yaml"
ANSWERS = {"total": "total", "votingage": "votingage", "ethnicity_race": "ethnicity_race"}
ANSWERS |= {"detailed": "cells"}  # table of the planner -> answer of `errors`
ROUNDS = 2

Places = dict[tuple[str, str], list[float]]
"""Geolevel and table to the mean squared error of each seed."""


def released(state: str, allocation: Path, seeds: Iterable[int]) -> Places:
    """Return the squared errors of released counts."""
    found: Places = defaultdict(list)
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            resolved = resolve(blocks_of(state, DATA), "optimised", seed, out, allocation)
            quiet, tasks = Reporter(quiet=True), LocalTasks(Sizing(1))
            with open_job(resolved, quiet, tasks=tasks) as job:
                do_stages(job, (*BEFORE, "solve"))
            for geolevel, of_answer in errors(resolved).items():
                for table, answer in ANSWERS.items():
                    if answer in of_answer:
                        found[geolevel, table].append(of_answer[answer][0])
    return found


def planned(allocation: Path, *options: object) -> dict[tuple[str, str], float]:
    """Run `das plan` for Rhode Island; return the predicted variances of estimates."""
    words = ["plan", "conf/run/ri-2010.yaml", "--allocation", allocation, *options]
    words += ["--information", "full", "--tables", ", ".join(ANSWERS), "--json"]
    line = [sys.executable, "-m", "jobs", *map(str, words)]
    said = subprocess.run(line, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    rows = json.loads(said)["predicted"]
    return {(row["geolevel"], row["table"]): row["full"]["rmse"] ** 2 for row in rows}


def weights_of(allocation: Path, seeds: Iterable[int]) -> dict[str, dict[str, float]]:
    """Weigh each table and geolevel by its released error over its predicted one, relative to 2020."""
    weights: dict[str, dict[str, float]] = defaultdict(dict)
    seeds = list(seeds)
    then, now = ((planned(one), released("ri", one, seeds)) for one in (PRODUCTION, allocation))
    for (geolevel, table), variance in now[0].items():
        before = then[0][geolevel, table]
        if variance > 0 and before > 0:
            ours = np.mean(now[1][geolevel, table]) / variance
            theirs = np.mean(then[1][geolevel, table]) / before
            weights[table][geolevel] = float(ours / theirs)
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--seeds", type=int, default=5, help="of Delaware; at most 3 for weights")
    arguments = parser.parse_args()
    seeds = range(1, 1 + (2 if arguments.quick else arguments.seeds))
    with tempfile.TemporaryDirectory() as name:
        folder, allocation = Path(name), SHIPPED
        for number in range(ROUNDS):
            weights = folder / f"weights-{number}.yaml"
            weights.write_text(yaml.safe_dump(dict(weights_of(allocation, seeds[:3]))))
            allocation = folder / f"allocation-{number}.yaml"
            planned(PRODUCTION, "--optimize", allocation, "--weights", weights)
        ours, theirs = (released("de", one, seeds) for one in (allocation, SHIPPED))
    ratios: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    print("| Geolevel | Answers | Ratio |\n|---|---|---|")
    for (geolevel, table), some in ours.items():
        if np.mean(theirs[geolevel, table]) > 0:
            ratio, error = ratios[geolevel][table] = ratio_of(some, theirs[geolevel, table])
            print(f"| {geolevel} | {table} | {ratio:.3f} ± {error:.3f} |")
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
