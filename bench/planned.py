"""Planned strategies in a census: errors of released counts on real blocks, way by way.

    python -m bench.planned [--quick] [--seeds N] [--states ri,de] [--data FOLDER]

Ways: 2020, the shares of the 2020 release; optimised, the shares of `das plan --optimize`; planned,
the shares of geolevels of 2020 with a strategy of `residual_planner` at every geolevel; both, the
strategies and shares of `das plan --optimize --planned`. All four count with the measurements of
the whole tree, `fit_to: tree`, at the same rho. Prints a table and one line of JSON, `lattice`:
way -> geolevel -> answers -> mean squared error over geounits and answers, mean over seeds.
`--quick`: one state, two seeds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from bench.accuracy import DATA, PRODUCTION, QUERIES, blocks_of, errors, ratio_of, resolve
from das.tree.information import Information
from jobs.design.planning.allocation import Goal, optimize_allocation, write_allocation
from jobs.design.planning.errors import subtree_classes
from jobs.pipeline.confidential.geounits import lattice_of
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.checkout import ROOT

TABLES = ("total", "votingage", "ethnicity_race", "detailed")
OPTIMISED = ROOT / "conf" / "allocation" / "block16-optimised-state.yaml"


def allocations(blocks: Path, folder: Path) -> tuple[dict[str, Path], dict[str, float]]:
    """Allocation files of all ways, made for a file of blocks; value and bound of the search."""
    document = yaml.safe_load(PRODUCTION.read_text())
    for level in document["levels"].values():
        del level["queries"]
        level["workload"] = {"method": "residual_planner", "tables": dict.fromkeys(TABLES, 1)}
    planned, both = folder / "planned.yaml", folder / "both.yaml"
    planned.write_text(yaml.safe_dump(document))
    first = resolve(blocks, "full", 0, folder / "plan", PRODUCTION)
    tree = subtree_classes(lattice_of(first))
    goal = Goal(others=1.0, planned=True)
    best = optimize_allocation(first.plan, tree, TABLES, Information.TREE, goal)
    write_allocation(best, both)
    ways = {"2020": PRODUCTION, "optimised": OPTIMISED, "planned": planned, "both": both}
    return ways, {"value": round(best.value, 4), "bound": round(best.bound, 4)}


def errors_of(
    blocks: Path, allocation: Path, seed: int, folder: Path
) -> dict[str, dict[str, float]]:
    """Mean squared errors of one release, by geolevel and answers."""
    resolved = resolve(blocks, "full", seed, folder, allocation)
    tasks = LocalTasks(Sizing(1))
    with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
        do_stages(job, ("plan", "read"))
        do_stages(job, ("resolve_constraints", "reserve_budget", "measure"))
        do_stages(replace(job, resolved=resolved), ("estimate", "solve"))
    found = errors(resolved)
    return {
        geolevel: {query: some[query][0] for query in QUERIES} for geolevel, some in found.items()
    }


def bench(blocks: Path, seeds: Sequence[int]) -> dict[str, object]:
    """All ways on a file of blocks: table, errors and the distance of the search to its bound."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways, search = allocations(blocks, folder)
        runs = {
            way: [errors_of(blocks, path, seed, folder / f"{way}-{seed}") for seed in seeds]
            for way, path in ways.items()
        }
    lattice: dict[str, dict[str, dict[str, float]]] = {way: {} for way in ways}
    print(f"\n{blocks.stem}: mean squared error; ratio to optimised -+ its standard error")
    for geolevel in runs["2020"][0]:
        for query in QUERIES:
            by_way = {way: [run[geolevel][query] for run in some] for way, some in runs.items()}
            shown = f"{geolevel:<13}{query:<16}"
            for way, values in by_way.items():
                lattice[way].setdefault(geolevel, {})[query] = round(float(np.mean(values)), 4)
                ratio, spread = ratio_of(values, by_way["optimised"])
                shown += f"{np.mean(values):>10.3f} {ratio:.3f} -+ {spread:.3f}"
            print(shown)
    return {"search": search, "lattice": lattice}


def main() -> None:
    """Bench every state; print tables and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--states", default="ri,de")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the files of blocks")
    given = parser.parse_args()
    seeds = range(given.seeds or (2 if given.quick else 10))
    states = given.states.split(",")[: 1 if given.quick else None]
    print(json.dumps({state: bench(blocks_of(state, given.data), seeds) for state in states}))


if __name__ == "__main__":
    main()
