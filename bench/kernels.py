"""Random small nodes solved as every processor would, and in arrays: how far values are apart.

    python -m bench.kernels [--nodes N] [--quick]

Prints one line of JSON: nodes, how many of them have other counts under any processor or by the
definition of the kernels in arrays, and quantiles of the largest difference of a value of a node, in persons. Nodes have
up to 13 children, 60 cells, weights 1,000 apart, invariants, and children of unlike weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from solvers.node import NodeSettings, solve_node
from tests.builders.strategies import Shape, random_node
from tests.processors import PROCESSORS
from tests.unit.solvers.least_squares import in_arrays

UNCOMPILED = "in arrays"


def shape(rng: np.random.Generator) -> Shape:
    """Any small node; equal weights, under which most roundings cost the same, are frequent."""
    return Shape(
        children=int(rng.integers(2, 14)),
        cells=int(rng.choice([3, 6, 12, 30, 60])),
        exact=((), (), (1,), (1, 3))[rng.integers(4)],
        passes=(((1,), (2,)), ((1,),))[rng.integers(2)],
        spread=float(rng.choice([1.0, 1.0, 2.0, 10.0, 1e3])),
        persons=float(rng.choice([0.5, 3, 20, 200])),
        sparse=float(rng.choice([0, 0.4, 0.9])),
        scales=bool(rng.random() < 0.3),
        unequal=bool(rng.random() < 0.3),
    )


def solve(nodes: int, path: Path) -> None:
    """Solve so many nodes and write their values and counts, end to end."""
    rng = np.random.default_rng(1)
    found = [solve_node(random_node(shape(rng), seed), NodeSettings()) for seed in range(nodes)]
    np.savez(
        path,
        sizes=[one.counts.size for one in found],
        counts=np.concatenate([one.counts.ravel() for one in found]),
        values=np.concatenate([one.estimate.values.ravel() for one in found]),
    )


def main() -> None:
    """Print the line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--quick", action="store_true", help="200 nodes")
    parser.add_argument("--solve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    nodes = 200 if arguments.quick else arguments.nodes
    if arguments.solve:
        kind, path = arguments.solve
        with in_arrays.use() if kind == UNCOMPILED else nullcontext():
            solve(nodes, Path(path))
        return
    kinds = {name: one.variables() for name, one in PROCESSORS.items() if not one.lacking}
    kinds[UNCOMPILED] = dict(os.environ)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (kind, environment) in enumerate(kinds.items()):
            path = Path(folder) / f"{number}.npz"
            command = [sys.executable, "-m", "bench.kernels", "--nodes", str(nodes)]
            subprocess.run([*command, "--solve", kind, str(path)], env=environment, check=True)
            found[kind] = dict(np.load(path))
    first, *others = found.values()
    starts = np.cumsum(first["sizes"]) - first["sizes"]
    apart = np.max([np.abs(one["values"] - first["values"]) for one in others], axis=0)
    other = np.any([one["counts"] != first["counts"] for one in others], axis=0)
    worst = np.maximum.reduceat(apart, starts)
    levels = ("0.5", "0.9", "0.99", "1")
    quantiles = np.quantile(worst, [float(level) for level in levels])
    line = {
        "nodes": nodes,
        "kinds": list(found),
        "nodes_of_other_counts": int(np.logical_or.reduceat(other, starts).sum()),
        "largest_difference": {
            level: float(f"{q:.2g}") for level, q in zip(levels, quantiles, strict=True)
        },
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
