"""One node of each size: seconds of the continuous and the integer stage, beside a peer.

    python -m tests.bench.nodes [--quick]

The peer of the continuous stage is PIQP (package piqp), a general interior-point solver, on the
lifted problem; it is run where it ends in time. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp

from solvers.least_squares import assemble, solve_least_squares
from solvers.problem import LeastSquaresTerm, NodeProblem, RoundingQuery, group_sums
from solvers.rounding import round_counts
from solvers.verify import verify_counts

SHAPE = (8, 2, 2, 63)
QUERIES = ((), (3,), (2,), (1,), (0,), (2, 3), (1, 3), (1, 2), (1, 2, 3), (0, 1, 2, 3))
SHARES = {  # of the 2020 production allocation, per query above, out of about 4,100
    "block": (5, 9, 5, 5, 10, 21, 21, 5, 71, 3945),
    "block_group": (1705, 3, 3, 3, 6, 1055, 9, 3, 24, 1288),
    "tract": (1567, 8, 5, 5, 10, 1933, 20, 5, 67, 482),
    "county": (3126, 10, 10, 10, 20, 28, 28, 10, 101, 754),
    "state": (3773, 6, 6, 6, 12, 12, 12, 6, 34, 230),
}
NODES = (  # name, geolevel of the children, children, persons, cells to draw from, rho
    ("block group", "block", 30, 1_200, 120, 0.103),
    ("tract", "block_group", 4, 4_000, 190, 0.783),
    ("county", "tract", 25, 90_000, 600, 0.428),
    ("state", "county", 60, 6_000_000, 1_760, 0.279),
    ("nation", "state", 51, 330_000_000, 2_016, 0.898),
)


def node(level: str, children: int, persons: int, cells: int, rho: float) -> NodeProblem:
    """A node with Dirichlet truth and Gaussian noise of the production weights."""
    rng = np.random.default_rng(7)
    live = np.sort(rng.choice(2016, cells, replace=False))
    profile = rng.dirichlet(np.full(cells, 0.15))
    sizes = rng.multinomial(persons, rng.dirichlet(np.full(children, 2.0)))
    truth = np.stack([rng.multinomial(n, rng.dirichlet(profile * 80 + 1e-3)) for n in sizes])
    kept = truth.sum(0) > 0
    truth, live = truth[:, kept], live[kept]
    codes = np.indices(SHAPE).reshape(4, -1)[:, live]
    shares = np.array(SHARES[level]) / sum(SHARES[level])
    terms = []
    for axes, share in zip(QUERIES, shares, strict=True):
        rows = np.zeros(len(live), np.int64)
        for axis in axes:
            rows = rows * SHAPE[axis] + codes[axis]
        present, groups = np.unique(rows, return_inverse=True)
        sigma_sq = 1 / (rho * share)
        noise = np.rint(rng.normal(0, sigma_sq**0.5, (children, len(present))))
        answers = group_sums(truth, groups, len(present)) + noise
        terms.append(LeastSquaresTerm(groups, answers, 1 / sigma_sq))
    k = len(live)
    households = np.unique(codes[0], return_inverse=True)[1]
    passes = (
        (RoundingQuery(np.zeros(k, np.int64)),),
        (RoundingQuery(households), RoundingQuery(np.arange(k))),
    )
    return NodeProblem(level, k, truth.sum(0), np.ones(children), tuple(terms), (), passes)


def objective(problem: NodeProblem, x: np.ndarray) -> float:
    q = assemble(problem)
    return float((q.scale[:, None] * (0.5 * (x @ q.H) - q.B) * x).sum())


def peer_seconds(problem: NodeProblem) -> tuple[float, float]:
    """Seconds of PIQP on the lifted problem (answers as variables), relative objective gap."""
    import piqp

    k, C = problem.n_cells, problem.n_children
    q = assemble(problem)
    unit = sum(t.weight for t in problem.terms if t.answers.shape[1] == k)
    weights, linear, maps = [], [], []
    for term in problem.terms:
        m = term.answers.shape[1]
        maps.append(sp.csc_matrix((np.ones(k), (term.groups, np.arange(k))), (m, k)))
        weights.append(np.full(m, term.weight / unit))
        linear.append(-term.answers * term.weight / unit)
    lift = sp.vstack(maps)
    m = lift.shape[0]
    P = sp.block_diag(
        [sp.csc_matrix((C * k, C * k)), sp.diags(np.tile(np.concatenate(weights), C))]
    )
    cost = np.concatenate([np.zeros(C * k), np.concatenate(linear, axis=1).ravel()])
    answers = sp.hstack([sp.block_diag([lift] * C), -sp.eye(C * m)])
    coupling = sp.hstack([sp.hstack([sp.eye(k)] * C), sp.csc_matrix((k, C * m))])
    solver = piqp.SparseSolver()
    started = time.perf_counter()
    solver.setup(
        P.tocsc(),
        cost,
        sp.vstack([answers, coupling]).tocsc(),
        np.concatenate([np.zeros(C * m), q.p]),
        x_l=np.concatenate([np.zeros(C * k), np.full(C * m, -np.inf)]),
    )
    solver.solve()
    seconds = time.perf_counter() - started
    ours = objective(problem, solve_least_squares(problem, 1e-9).values)
    theirs = objective(problem, np.array(solver.result.x[: C * k]).reshape(C, k))
    return seconds, (theirs - ours) / abs(ours)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rows = []
    print(
        f"{'parent':<12}{'children':>9}{'cells':>7}{'L2 s':>9}{'round s':>9}{'residual':>10}"
        f"{'steps':>6}{'peer s':>9}{'ratio':>8}"
    )
    for name, level, children, persons, cells, rho in NODES:
        problem = node(level, children, persons, cells, rho)
        started = time.perf_counter()
        estimate = solve_least_squares(problem, 1e-9)
        seconds = time.perf_counter() - started
        started = time.perf_counter()
        counts, _ = round_counts(problem, estimate.values)
        rounding = time.perf_counter() - started
        verify_counts(problem, counts)
        peer, gap = (None, None)
        if problem.n_children * problem.n_cells < (10_000 if quick else 80_000):
            peer, gap = peer_seconds(problem)
        rows.append(
            {
                "parent": name,
                "children": children,
                "cells": problem.n_cells,
                "seconds": round(seconds, 4),
                "rounding_seconds": round(rounding, 4),
                "certificate": estimate.certificate.residual,
                "status": str(estimate.status),
                "newton_steps": estimate.newton_steps,
                "iterations": estimate.iterations,
                "peer": "piqp",
                "peer_seconds": peer and round(peer, 3),
                "ratio": peer and round(peer / seconds, 1),
                "peer_relative_objective_gap": gap,
            }
        )
        r = rows[-1]
        print(
            f"{name:<12}{children:>9}{r['cells']:>7}{seconds:>9.3f}{rounding:>9.3f}"
            f"{r['certificate']:>10.1e}{r['newton_steps']:>6}"
            f"{r['peer_seconds'] or '-':>9}{r['ratio'] or '-':>8}"
        )
    print(json.dumps({"nodes": rows}))


if __name__ == "__main__":
    main()
