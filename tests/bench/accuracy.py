"""Error of the integer release on real blocks: targets of the own geolevel against all information.

    python -m tests.bench.accuracy [--quick] [--seeds N] [--states ri,de]

Every seed draws its noise once; each way of solving post-processes the same measurements. Mean
squared errors are over geounits and answers, means over seeds; `bias by size` groups cells by their
true count. Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

from das.queries.query import parse_query
from das.schema.schema import Schema
from jobs.config.load import load_run
from jobs.counts import read_counts
from jobs.dataset import read_manifest, read_range
from jobs.layout import confidential_layout, release_layout
from jobs.truth import read_truth
from solvers.problem import group_sums

ROOT = Path(__file__).resolve().parents[2]
QUERIES = {"total": "total", "ethnicity_race": "ethnicity_race", "cells": "detailed"}
WAYS = {
    "own": {"targets": "own"},
    "full": {"targets": "full"},
    "learned": {"targets": "full", "learned_prior": ["block"]},
}
SIZES = ((0, 0), (1, 2), (3, 9), (10, 49), (50, 10**9))


def run(state: str, way: str, seed: int, folder: Path) -> Path:
    """Run one state once and return the run folder."""
    source = ROOT / "conf" / "run" / f"{state}-2010.yaml"
    document = yaml.safe_load(source.read_text())
    document["schema"] = str((source.parent / document["schema"]).resolve())
    document["data"]["path"] = str((source.parent / document["data"]["path"]).resolve())
    privacy = document["privacy"]
    privacy["allocation"] = str((source.parent / privacy["allocation"]).resolve())
    privacy.pop("account", None)
    privacy["randomness"] = {"source": "seeded_not_for_release", "seed": seed}
    document["solve"].update(WAYS[way])
    document["output"] = {"directory": str(folder / f"{way}-{seed}"), "microdata": []}
    path = folder / f"{way}-{seed}.yaml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [sys.executable, "-m", "jobs", "run", str(path)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return path


def noise_of(path: Path) -> list[list[int]]:
    """Measured answers of the first geolevels of a run, to compare runs by."""
    resolved = load_run(path)
    release = release_layout(resolved.config.output.directory)
    dataset = release.measurements(resolved.plan.spine.levels[1])
    table = read_range(dataset, read_manifest(dataset)[0])
    table = table.set_column(
        table.column_names.index("query"), "query", table.column("query").cast("string")
    )
    rows = table.sort_by([("query", "ascending"), ("geocode", "ascending")])
    return list(rows.column("answers").to_pylist())


def errors(path: Path) -> tuple[dict[str, dict[str, float]], dict[str, list[float]]]:
    """Mean squared error by geolevel and query, and mean error of leaf cells by true count."""
    plan = load_run(path).plan
    out = load_run(path).config.output.directory
    release, confidential = release_layout(out), confidential_layout(out)
    found: dict[str, dict[str, float]] = {}
    bias: dict[str, list[float]] = {}
    for geolevel in plan.spine.levels:
        geography = release.geography(geolevel)
        table = read_range(geography, read_manifest(geography)[0], columns=["geocode"])
        codes = sorted(table.column("geocode").to_pylist())
        ours = read_counts(release, geolevel, codes, plan.schema.size).dense()
        truth = read_truth(confidential, geolevel, codes, plan.schema.size).reveal().dense()
        off = ours - truth
        found[geolevel] = {
            name: float((sums_of(plan.schema, text, off) ** 2).mean())
            for name, text in QUERIES.items()
        }
        bias[geolevel] = [
            float(off[(truth >= low) & (truth <= high)].mean())
            if ((truth >= low) & (truth <= high)).any()
            else float("nan")
            for low, high in SIZES
        ]
    return found, bias


def sums_of(schema: Schema, text: str, values: np.ndarray) -> np.ndarray:
    """Sums of cells by the groups of a query, int64[G, m]."""
    query = parse_query(schema, text)
    return group_sums(values, query.rows_of(np.arange(schema.size)), query.size)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--states", default=None)
    arguments = parser.parse_args()
    seeds = arguments.seeds or (2 if arguments.quick else 10)
    states = (arguments.states or ("ri" if arguments.quick else "ri,de")).split(",")
    result: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for state in states:
        every: dict[str, list[dict[str, dict[str, float]]]] = {way: [] for way in WAYS}
        biases: dict[str, list[dict[str, list[float]]]] = {way: [] for way in WAYS}
        for seed in range(1, seeds + 1):
            with tempfile.TemporaryDirectory() as name:
                paths = {way: run(state, way, seed, Path(name)) for way in WAYS}
                drawn = [noise_of(path) for path in paths.values()]
                if any(one != drawn[0] for one in drawn):
                    raise SystemExit("the ways did not see the same noise")
                for way, path in paths.items():
                    found, bias = errors(path)
                    every[way].append(found)
                    biases[way].append(bias)
        result[state] = table_of(state, every)
        print_bias(state, biases)
    print(json.dumps({"states": result, "seeds": seeds, **result[states[0]]}))


def table_of(
    state: str, every: dict[str, list[dict[str, dict[str, float]]]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Means over seeds, printed, with the ratio to the own geolevel's targets."""
    print(f"\n{state}: mean squared error, ratio to own")
    print(f"{'geolevel':<14}{'marginal':<16}" + "".join(f"{way:>18}" for way in every))
    out: dict[str, dict[str, dict[str, float]]] = {}
    for geolevel in every["own"][0]:
        out[geolevel] = {}
        for query in QUERIES:
            means = {
                way: float(np.mean([one[geolevel][query] for one in runs]))
                for way, runs in every.items()
            }
            own = means["own"]
            ratio = means["full"] / own if own else 1.0
            out[geolevel][query] = {**{way: round(m, 4) for way, m in means.items()}}
            out[geolevel][query]["ratio"] = round(ratio, 4)
            shown = "".join(f"{m:>10.3f} ({m / own if own else 1.0:.2f})" for m in means.values())
            print(f"{geolevel:<14}{query:<16}{shown}")
    return out


def print_bias(state: str, biases: dict[str, list[dict[str, list[float]]]]) -> None:
    """Mean error of cells by their true count."""
    sizes = [str(low) if low == high else f"{low}-{high}" for low, high in SIZES[:-1]] + ["50+"]
    print(f"\n{state}: mean error of cells by true count")
    print(f"{'geolevel':<14}{'way':<10}" + "".join(f"{size:>10}" for size in sizes))
    for geolevel in biases["own"][0]:
        for way, runs in biases.items():
            means = np.nanmean([one[geolevel] for one in runs], axis=0)
            print(f"{geolevel:<14}{way:<10}" + "".join(f"{m:>10.3f}" for m in means))


if __name__ == "__main__":
    main()
