"""The continuous stage of one node of each size, beside general solvers, in the same run.

    python -m bench.l2_nodes [--quick] [--limit SECONDS] [--highs-python PYTHON]

Nodes have the redistricting schema, the weights of the 2020 allocation, and the live cells of
production nodes. Peers get the lifted problem (answers as variables z = Q x, which suits them far
better than dense G), already built; their seconds are set-up and solve, ours are everything from
the node problem to the certified estimate. All are processor seconds of one thread, the least of
some repetitions where they are short. The peer of the ratio is the fastest of Clarabel, OSQP,
HiGHS and Gurobi whose objective equals ours within 1e-7; where none ends in time the limit gives a
lower bound of the ratio. PIQP is shown besides. HiGHS runs in a process of its own. Without
--quick the node of 20 x 100,000 is solved too, with wall seconds for its peers. Prints a
table and one line of JSON. Small nodes are the subject of `bench.newton_step`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

from solvers.least_squares.solve import solve_quadratic  # noqa: E402
from solvers.problem import (  # noqa: E402
    LeastSquaresTerm,
    NodeProblem,
    RoundingQuery,
    group_sums,
)

SHAPE = (8, 2, 2, 63)
QUERIES = ((), (3,), (2,), (1,), (0,), (2, 3), (1, 3), (1, 2), (1, 2, 3), (0, 1, 2, 3))
SHARES = {  # of the 2020 production allocation, per query above, out of about 4,100
    "block": (5, 9, 5, 5, 10, 21, 21, 5, 71, 3945),
    "block_group": (1705, 3, 3, 3, 6, 1055, 9, 3, 24, 1288),
    "tract": (1567, 8, 5, 5, 10, 1933, 20, 5, 67, 482),
    "state": (3773, 6, 6, 6, 12, 12, 12, 6, 34, 230),
}
NODES = (  # geolevel of the children, children, live cells, persons, rho
    ("block", 30, 119, 1_200, 0.103),
    ("block_group", 4, 188, 4_000, 0.783),
    ("tract", 25, 554, 90_000, 0.428),
    ("state", 51, 2016, 330_000_000, 0.898),
)
TOLERANCE = 1e-9
EQUAL = 1e-7
RATED_PEERS = ("clarabel", "osqp", "highs", "gurobi")
HIGHS_PYTHON = sys.executable


def node(
    level: str, children: int, cells: int, persons: int, rho: float, seed: int = 7
) -> NodeProblem:
    """A node with Dirichlet truth, every cell live, and Gaussian noise of the production weights."""
    rng = np.random.default_rng(seed)
    live = np.sort(rng.choice(2016, cells, replace=False))
    profile = rng.dirichlet(np.full(cells, 0.15))
    sizes = rng.multinomial(persons, rng.dirichlet(np.full(children, 2.0)))
    truth = np.stack([rng.multinomial(n, rng.dirichlet(profile * 80 + 1e-3)) for n in sizes])
    empty = np.flatnonzero(truth.sum(0) == 0)
    truth[rng.integers(0, children, len(empty)), empty] = 1
    codes = np.indices(SHAPE).reshape(4, -1)[:, live]
    shares = np.array(SHARES[level]) / sum(SHARES[level])
    terms = []
    for axes, share in zip(QUERIES, shares, strict=True):
        rows = np.zeros(cells, np.int64)
        for axis in axes:
            rows = rows * SHAPE[axis] + codes[axis]
        present, groups = np.unique(rows, return_inverse=True)
        sigma_sq = 1 / (rho * share)
        noise = np.rint(rng.normal(0, sigma_sq**0.5, (children, len(present))))
        answers = group_sums(truth, groups, len(present)) + noise
        terms.append(LeastSquaresTerm(groups, answers, np.full(children, 1 / sigma_sq)))
    passes = ((RoundingQuery(np.arange(cells)),),)
    return NodeProblem(level, cells, truth.sum(0), tuple(terms), (), passes)


def objective(problem: NodeProblem, x: np.ndarray) -> float:
    """In units of the detailed weight."""
    total = 0.0
    for t in problem.terms:
        sums = group_sums(x, t.groups, t.answers.shape[1])
        total += float((t.weights[:, None] * (0.5 * sums - t.answers) * sums).sum())
    return total / problem.terms[-1].weights[0]


@dataclass(frozen=True)
class Lifted:
    """minimise v'Pv/2 + q'v subject to A v = b and the first `counts` variables nonnegative."""

    P: sp.csc_matrix
    q: np.ndarray
    A: sp.csc_matrix
    b: np.ndarray
    counts: int


def lift(problem: NodeProblem) -> Lifted:
    """The node problem with the answers of all but the detailed query as variables."""
    k, C = problem.n_cells, problem.n_children
    *coarse, detailed = problem.terms
    unit = detailed.weights[0]
    maps = [
        sp.csc_matrix((np.ones(k), (t.groups, np.arange(k))), (t.answers.shape[1], k))
        for t in coarse
    ]
    answers = sp.vstack(maps)
    m = answers.shape[0]
    weights = np.hstack([np.repeat(t.weights[:, None], t.answers.shape[1], 1) for t in coarse])
    linear = np.hstack([t.weights[:, None] * t.answers for t in coarse])
    P = sp.diags(np.concatenate([np.repeat(detailed.weights, k), weights.ravel()]) / unit)
    own = detailed.weights[:, None] * detailed.answers[:, detailed.groups]
    q = -np.concatenate([own.ravel(), linear.ravel()]) / unit
    A = sp.vstack(
        [
            sp.hstack([sp.block_diag([answers] * C), -sp.eye(C * m)]),
            sp.hstack([sp.hstack([sp.eye(k)] * C), sp.csc_matrix((k, C * m))]),
        ]
    )
    b = np.concatenate([np.zeros(C * m), problem.parent.astype(float)])
    return Lifted(P.tocsc(), q, A.tocsc(), b, C * k)


Found = tuple[float, np.ndarray | None, str]  # seconds, counts, what stopped it


def clarabel(p: Lifted, limit: float) -> Found:
    import clarabel as package

    n, C = len(p.q), p.counts
    cone = sp.hstack([-sp.eye(C), sp.csc_matrix((C, n - C))])
    A, b = sp.vstack([p.A, cone]).tocsc(), np.concatenate([p.b, np.zeros(C)])
    settings = package.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, limit, 1
    cones = [package.ZeroConeT(len(p.b)), package.NonnegativeConeT(C)]
    started = time.process_time()
    result = package.DefaultSolver(sp.triu(p.P).tocsc(), p.q, A, b, cones, settings).solve()
    seconds = time.process_time() - started
    status = str(result.status)
    return seconds, np.array(result.x)[:C] if status == "Solved" else None, status


def osqp(p: Lifted, limit: float) -> Found:
    import osqp as package

    n, C = len(p.q), p.counts
    A = sp.vstack([p.A, sp.hstack([sp.eye(C), sp.csc_matrix((C, n - C))])]).tocsc()
    low = np.concatenate([p.b, np.zeros(C)])
    high = np.concatenate([p.b, np.full(C, np.inf)])
    total, status, x = 0.0, "", None
    for accuracy in (1e-5, 1e-6, 1e-7, 1e-8):  # the loosest that is equal is what counts
        solver = package.OSQP()
        started = time.process_time()
        solver.setup(
            p.P, p.q, A, low, high,
            verbose=False, eps_abs=accuracy, eps_rel=accuracy, max_iter=10**7, time_limit=limit,
        )  # fmt: skip
        result = solver.solve()
        total, status = time.process_time() - started, str(result.info.status)
        if status != "solved":
            return total, None, status
        x = np.array(result.x)[:C]
        if _is_equal(p, x):
            break
    return total, x, status


_reference: dict[int, tuple[float, Callable[[np.ndarray], float]]] = {}


def _is_equal(p: Lifted, x: np.ndarray) -> bool:
    ours, value = _reference[id(p)]
    return abs(value(x) - ours) <= EQUAL * abs(ours)


def gurobi(p: Lifted, limit: float) -> Found:
    import gurobipy as package

    settings = {"OutputFlag": 0, "Threads": 1, "TimeLimit": limit}
    with package.Env(params=settings) as environment, package.Model(env=environment) as model:
        low = np.where(np.arange(len(p.q)) < p.counts, 0.0, -np.inf)
        v = model.addMVar(len(p.q), lb=low)
        model.setObjective(v @ (p.P / 2) @ v + p.q @ v)
        model.addConstr(p.A @ v == p.b)
        started = time.process_time()
        model.optimize()
        seconds = time.process_time() - started
        if model.Status != package.GRB.OPTIMAL:
            return seconds, None, f"status {model.Status}"
        return seconds, v.X[: p.counts], "solved"


def piqp(p: Lifted, _limit: float) -> Found:
    import piqp as package

    solver = package.SparseSolver()
    low = np.where(np.arange(len(p.q)) < p.counts, 0.0, -np.inf)
    started = time.process_time()
    solver.setup(p.P, p.q, p.A, p.b, x_l=low)
    status = str(solver.solve())
    seconds = time.process_time() - started
    return seconds, np.array(solver.result.x)[: p.counts], status


def highs(p: Lifted, limit: float) -> Found:
    """In a process of its own: packages highspy and ortools do not load together."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"{folder}/problem.npz"
        low = np.where(np.arange(len(p.q)) < p.counts, 0.0, -np.inf)
        np.savez(
            name, P=p.P.diagonal(), q=p.q, low=low, b=p.b,
            data=p.A.data, indices=p.A.indices, indptr=p.A.indptr,
        )  # fmt: skip
        done = subprocess.run(
            [HIGHS_PYTHON, "-c", _HIGHS, name, str(limit)],
            capture_output=True,
            text=True,
            timeout=10 * limit + 60,
        )
        if done.returncode:
            raise ImportError(done.stderr.strip().splitlines()[-1])
        with np.load(name) as result:
            x, seconds, status = result["x"], float(result["seconds"]), str(result["status"])
    return seconds, x[: p.counts] if "kOptimal" in status else None, status


_HIGHS = """
import sys, time
import highspy
import numpy as np
with np.load(sys.argv[1]) as f:
    f = dict(f)
n, m = len(f["q"]), len(f["b"])
model = highspy.HighsModel()
lp = model.lp_
lp.num_col_, lp.num_row_ = n, m
lp.col_cost_, lp.col_lower_, lp.col_upper_ = f["q"], f["low"], np.full(n, np.inf)
lp.row_lower_ = lp.row_upper_ = f["b"]
lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
lp.a_matrix_.start_, lp.a_matrix_.index_ = f["indptr"], f["indices"]
lp.a_matrix_.value_ = f["data"]
hessian = model.hessian_
hessian.dim_, hessian.format_ = n, highspy.HessianFormat.kTriangular
hessian.start_, hessian.index_, hessian.value_ = np.arange(n + 1), np.arange(n), f["P"]
solver = highspy.Highs()
solver.setOptionValue("output_flag", False)
solver.setOptionValue("threads", 1)
solver.setOptionValue("time_limit", float(sys.argv[2]))
started = time.process_time()
solver.passModel(model)
solver.run()
seconds = time.process_time() - started
x = np.array(solver.getSolution().col_value)
np.savez(sys.argv[1], x=x, seconds=seconds, status=str(solver.getModelStatus()))
"""

PEERS: dict[str, Callable[[Lifted, float], Found]] = {
    "clarabel": clarabel,
    "osqp": osqp,
    "highs": highs,
    "gurobi": gurobi,
    "piqp": piqp,
}


def least_seconds(run: Callable[[], object]) -> float:
    """Least processor seconds of up to seven repetitions, fewer if they are long."""
    times: list[float] = []
    while len(times) < 7 and sum(times) < 2:
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def compare(spec: tuple[str, int, int, int, float], limit: float) -> dict[str, object]:
    """One node: ours, then every peer."""
    problem = node(*spec)
    estimate = solve_quadratic(problem, TOLERANCE)
    seconds = least_seconds(lambda: solve_quadratic(problem, TOLERANCE))
    ours = objective(problem, estimate.values)
    lifted = lift(problem)
    shape = estimate.values.shape
    _reference[id(lifted)] = (ours, lambda x: objective(problem, x.reshape(shape)))
    print(
        f"{spec[1]} x {spec[2]}: {seconds:.4f} s, {estimate.status}, "
        f"residual {estimate.certificate.residual:.1e}, {estimate.newton_steps} steps",
        flush=True,
    )
    peers: dict[str, dict[str, object]] = {}
    best: tuple[float, str, float | None] | None = None
    bound: tuple[float, str, float | None] | None = None
    for name, peer in PEERS.items():
        try:
            used, x, stopped = peer(lifted, limit)
        except Exception as error:  # noqa: BLE001 - a peer's own types: not installed, licence, size, its defects
            print(f"    {name:<9}skipped: {str(error)[:90]}", flush=True)
            peers[name] = {"skipped": str(error)[:90]}
            continue
        if x is None:
            print(f"    {name:<9}{used:9.3f} s, no solution: {stopped}", flush=True)
            peers[name] = {"seconds": round(used, 4), "stopped": stopped}
            if name in RATED_PEERS and "time" in stopped.lower():
                bound = min(bound or (np.inf, name, None), (used, name, None))
            continue
        if used < 1:
            used = min(used, peer(lifted, limit)[0], peer(lifted, limit)[0])
        gap = (objective(problem, x.reshape(shape)) - ours) / abs(ours)
        print(f"    {name:<9}{used:9.3f} s, ratio {used / seconds:.1f}, gap {gap:.1e}", flush=True)
        ratio = round(used / seconds, 1)
        peers[name] = {"seconds": round(used, 6), "ratio": ratio, "relative_gap": gap}
        if name in RATED_PEERS and abs(gap) <= EQUAL and (best is None or used < best[0]):
            best = (used, name, gap)
    chosen = best or bound
    return {
        "children": spec[1],
        "cells": spec[2],
        "seconds": round(seconds, 6),
        "peer": chosen[1] if chosen else None,
        "peer_seconds": round(chosen[0], 4) if chosen else None,
        "ratio": round(chosen[0] / seconds, 1) if chosen else None,
        "ratio_is_lower_bound": best is None,
        "relative_objective_gap": chosen[2] if chosen else None,
        "certificate": estimate.certificate.residual,
        "peers": peers,
    }


def large(limit: float) -> dict[str, object]:
    """The node of 20 x 100,000, which no peer can hold."""
    from bench import large_node

    problem = large_node.large_node(100_000, 20)
    measured: dict[str, object] = large_node.run_node(problem)
    for peer in ("clarabel", "osqp"):
        measured[peer] = large_node.run_peer(problem, peer, limit)
    return measured


def main() -> None:
    rows = [compare(spec, arguments.limit) for spec in NODES]
    if not arguments.quick:
        rows.append(large(arguments.limit))
    print(json.dumps({"nodes": rows}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--limit", type=float, help="seconds a peer gets per node; 300, or 60 with --quick"
    )
    parser.add_argument("--highs-python", default=sys.executable, help="Python that has highspy")
    arguments = parser.parse_args()
    arguments.limit = arguments.limit or (60.0 if arguments.quick else 300.0)
    HIGHS_PYTHON = arguments.highs_python
    main()
