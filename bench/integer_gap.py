"""How far relaxing and rounding are from the best integers, on small nodes of real shapes.

    python -m bench.integer_gap [--quick] [--nodes N] [--seconds S]

Nodes are those of finished runs with `fit_to: level`: the blocks of Rhode Island and Delaware (16
cells), and a generated state of the 2,016 cells of PL94. Of each geolevel at most N nodes of at
most 800 unknowns are drawn, 436 in all by default. The integer least-squares problem of a
node, min sum w (Qx - y)^2 over whole x >= 0 with the parent's sums and the exact answers, is a
mixed-integer program without loss: an answer is whole, so its square is a largest of tangents
between neighboring integers. HiGHS solves it. Prints a table and one line of JSON, `integer_gap`:
shape -> nodes, share of nodes whose objective is above the best, mean and largest gap of the
objective, the largest difference of a count, and by how much, in the mean, the best integers are
above the real minimum. Where the time limit S ends a program, the gap is that to its proven bound.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import block_diag, coo_array, csr_array, hstack, identity

from bench.accuracy import DATA, blocks_of, resolve
from bench.state import generated, persons_of
from bench.tolerance import _problems
from das.arrays import FloatArray, IntArray
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.tasks.batches import Sizing, geounit_batches
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from solvers.node import NodeSettings, solve_node
from solvers.problem import LeastSquaresTerm, NodeProblem
from tests.unit.solvers.least_squares.quadratic import indicator

MOST_UNKNOWNS = 800
TANGENTS = (
    6  # below and above the sum of the rounded counts; a program that leaves them is done again
)
STAGES = (
    ("plan", "read"),
    ("resolve_constraints", "reserve_budget", "measure"),
    ("estimate", "solve"),
)


def objective(problem: NodeProblem, x: IntArray | FloatArray) -> float:
    """Weighted squared distance of counts from all noisy answers."""
    out = 0.0
    for term in problem.terms:
        assert isinstance(term, LeastSquaresTerm)
        sums = x @ indicator(term.groups, term.answers.shape[1]).T
        out += float((term.weights[:, None] * (sums - term.answers) ** 2).sum())
    return out


def best(problem: NodeProblem, start: IntArray, seconds: float) -> tuple[IntArray, float]:
    """The best integers, and the proven lower bound of the objective.

    Args:
      problem: A node whose noisy answers count cells.
      start: Counts around which the squares are represented exactly.
      seconds: Time limit.
    """
    C, k = start.shape
    maps, targets, weights = [], [], []
    for term in problem.terms:
        rows = csr_array(block_diag([indicator(term.groups, term.answers.shape[1])] * C))
        used = np.repeat(term.weights > 0, term.answers.shape[1])
        maps.append(rows[used])
        targets.append(term.answers.ravel()[used])
        weights.append(np.repeat(term.weights, term.answers.shape[1])[used])
    A, y = csr_array(np.vstack([m.toarray() for m in maps])), np.concatenate(targets)
    w = np.concatenate(weights) / np.concatenate(weights).max()
    n, reach = len(y), TANGENTS
    exact = [LinearConstraint(_wide(hstack([identity(k)] * C), n), problem.parent, problem.parent)]
    for given in problem.exact:
        rows = csr_array(block_diag([indicator(given.groups, given.targets.shape[1])] * C))
        sums = given.targets.ravel()
        exact.append(LinearConstraint(_wide(rows, n), sums, sums))
    whole = np.concatenate([np.ones(C * k), np.zeros(n)])
    cost = np.concatenate([np.zeros(C * k), w])
    while True:
        centre = A @ start.ravel()
        # Between m and m + 1 the square is (2 m + 1 - 2 y) (a - m) + (m - y)^2, its tangent.
        m = np.maximum(centre[:, None] + np.arange(-reach, reach), 0)
        slope, row = 2 * m + 1 - 2 * y[:, None], np.repeat(np.arange(n), 2 * reach)
        scaled = coo_array((slope.ravel(), (np.arange(row.size), row)), (row.size, n)) @ A
        picks = coo_array((-np.ones(row.size), (np.arange(row.size), row)), (row.size, n))
        above = (slope * m - (m - y[:, None]) ** 2).ravel()
        squares = LinearConstraint(csr_array(hstack([scaled, picks])), -np.inf, above)
        found = milp(
            cost,
            constraints=[*exact, squares],
            integrality=whole,
            bounds=Bounds(0, np.inf),
            options={"time_limit": seconds, "mip_rel_gap": 1e-6},
        )
        if found.x is None:
            return start, 0.0
        x = np.rint(found.x[: C * k]).astype(np.int64).reshape(C, k)
        if np.abs(A @ x.ravel() - centre).max() <= reach:
            return x, float(found.mip_dual_bound) * float(np.concatenate(weights).max())
        reach *= 2


def _wide(rows: csr_array, n: int) -> csr_array:
    return csr_array(hstack([rows, csr_array((rows.shape[0], n))]))


def finished(resolved: Resolved) -> Iterator[tuple[str, NodeProblem]]:
    """Run, and yield geolevel and problem of every small node below the root."""
    with open_job(resolved, Reporter(quiet=True), tasks=LocalTasks(Sizing(1))) as job:
        for stages in STAGES:
            do_stages(job, stages)
    plan, release = resolved.plan, resolved.last.release
    for level in plan.levels[1:]:
        for batch in geounit_batches(release, level, 1, 10**9):
            for problem in _problems(plan, release, batch):
                small = problem.n_children * problem.n_cells <= MOST_UNKNOWNS
                if small and problem.n_cells > 1:
                    yield level.name, problem


def gaps(problems: list[NodeProblem], seconds: float) -> dict[str, float]:
    """Relative distance of rounded objectives from the best, over some nodes."""
    found, of_integers, difference, unproven = [], [], 0, 0
    for problem in problems:
        solution = solve_node(problem, NodeSettings())
        rounded = solution.counts
        ours = objective(problem, rounded)
        x, bound = best(problem, rounded, seconds)
        least = objective(problem, x)
        assert least <= ours * (1 + 1e-6)
        of_integers.append(least / objective(problem, solution.estimate.values) - 1)
        unproven += bound < least * (1 - 1e-4)
        found.append(max(0.0, ours / max(min(bound, least), 1e-9) - 1))
        difference = max(difference, int(np.abs(x - rounded).max()))
    every = np.array(found)
    return {
        "nodes": len(problems),
        "above": round(float((every > 1e-5).mean()), 4),
        "mean": round(float(every.mean()), 5),
        "largest": round(float(every.max()), 5),
        "largest_difference": difference,
        "of_integers": round(float(np.mean(of_integers)), 5),
        "unproven": int(unproven),
    }


def run_of(name: str, folder: Path, blocks: int) -> Resolved:
    """The run of a shape: `ri` or `de` with real blocks, else a generated state of PL94."""
    if name != "pl94":
        return resolve(blocks_of(name, DATA), "own", 1, folder / "out")
    path = generated("demo.yaml", folder, blocks)
    document = yaml.safe_load(path.read_text())
    persons = persons_of(document)
    persons["solve"] = {"fit_to": "level", "rounding_passes": persons["solve"]["rounding_passes"]}
    document["privacy"]["randomness"] = {"source": "seeded_not_for_release", "seed": 1}
    path.write_text(yaml.safe_dump(document))
    return load_run(path)


def bench(most: int, seconds: float, blocks: int) -> dict[str, dict[str, float]]:
    """Gaps of every shape: run and geolevel; prints a table.

    Args:
      most: Nodes of each geolevel and run.
      seconds: Time limit of one program.
      blocks: Blocks of the generated state.
    """
    out: dict[str, dict[str, float]] = {}
    print(f"{'shape':<20}{'nodes':>6}{'above':>9}{'mean':>9}{'largest':>9}{'unproven':>9}")
    for name in ("ri", "de", "pl94"):
        by_level: dict[str, list[NodeProblem]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for level, problem in finished(run_of(name, Path(folder), blocks)):
                by_level.setdefault(level, []).append(problem)
        for level, problems in by_level.items():
            order = np.random.default_rng(2020).permutation(len(problems))[:most]
            row = gaps([problems[i] for i in order.tolist()], seconds)
            out[f"{name} {level}"] = row
            numbers = (row["above"], row["mean"], row["largest"])
            shown = "".join(f"{number:>9.4f}" for number in numbers)
            print(f"{name} {level:<17}{row['nodes']:>6}{shown}{row['unproven']:>9}", flush=True)
    return out


def main() -> None:
    """Bench every shape; print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 nodes of each shape")
    parser.add_argument("--nodes", type=int, help="most nodes of each geolevel and run")
    parser.add_argument("--seconds", type=float, default=10.0, help="most of one program")
    parser.add_argument("--blocks", type=int, default=6000, help="of the generated state")
    given = parser.parse_args()
    most = given.nodes or (5 if given.quick else 150)
    print(json.dumps({"integer_gap": bench(most, given.seconds, given.blocks)}))


if __name__ == "__main__":
    main()
