"""How tight the continuous stage must be: the share of released counts that a tolerance changes.

    python -m bench.tolerance [--nodes N | --run CONFIG --out FOLDER [--every K]]

Solves and rounds N generated nodes of each kind of parent, or every K-th node of a finished run
(of its parents as released), at tolerances from 1e-3 to 1e-9 and
compares the counts with those at 1e-10; once with Newton iterations, which overshoot any tolerance
they reach, and once with interior points alone, which stop at it. Prints a table and a line of
JSON. The default tolerance should be where a tighter one changes nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.l2_nodes import node
from jobs.pipeline.config.load import load_run
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import read_pieces
from jobs.pipeline.release.solve import LevelSolving, _problem, known_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from solvers.least_squares.blocks import arrange
from solvers.least_squares.certificate import origin
from solvers.least_squares.interior_point import follow_path
from solvers.least_squares.solve import solve_quadratic
from solvers.problem import NodeProblem
from solvers.rounding.round import round_counts

KINDS = (("block", 30, 40, 1_200, 0.103), ("block_group", 4, 60, 4_000, 0.783))
TOLERANCES = tuple(10.0**-n for n in range(3, 10))


def newton(problem: NodeProblem, tolerance: float) -> np.ndarray:
    return solve_quadratic(problem, tolerance).values


def interior(problem: NodeProblem, tolerance: float) -> np.ndarray:
    q = arrange(problem)
    x = np.maximum(follow_path(q, origin(q), tolerance, 100)[0].x, 0)
    return x if problem.parent is None else x * (problem.parent / x.sum(0))


def nodes_of(config: Path, out: Path | None) -> Iterator[NodeProblem]:
    """All node problems of a finished run, root first."""
    resolved = load_run(config, output=out)
    release = resolved.last.release
    for level in resolved.plan.levels:
        for batch in geounit_batches(release, level, 1, 10**9):
            yield from _problems(resolved.plan, release, batch)


def _problems(plan: Plan, release: ReleaseLayout, batch: Batch) -> Iterator[NodeProblem]:
    """The node problems of a range with noisy answers."""
    solving = LevelSolving.of(plan, batch.level)
    for piece in read_pieces(LevelReader(plan, release, batch.level), batch):
        for family in piece.families:
            if family.has_persons and known_counts(solving.template, piece, family) is None:
                yield _problem(solving, piece, family)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.run:
        problems = list(nodes_of(arguments.run, arguments.out))[:: arguments.every]
    else:
        generated = range(arguments.nodes)
        problems = [node(*kind, seed=seed) for kind in KINDS for seed in generated]
    cells = sum(p.n_cells * p.n_children for p in problems)
    exact = [round_counts(p, newton(p, 1e-10)).counts for p in problems]
    rows = []
    for method in (newton, interior):
        for tolerance in TOLERANCES:
            changed = sum(
                int((round_counts(p, method(p, tolerance)).counts != counts).sum())
                for p, counts in zip(problems, exact, strict=True)
            )
            share = changed / cells
            rows.append({"method": method.__name__, "tolerance": tolerance, "changed": share})
            print(f"{method.__name__:<10}{tolerance:>8.0e}{share:>12.2e}", flush=True)
    print(json.dumps({"nodes": len(problems), "counts": cells, "tolerance": rows}))


if __name__ == "__main__":
    main()
