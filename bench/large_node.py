"""Nodes with many live cells: seconds, peak memory and certificate of the dual Newton method.

    python -m bench.large_node [--cells N] [--children N] [--peers] [--seconds S]
                                     [--roots | --counties]

The parent is a state of the 2020 person schema (relationship or group quarters 42, sex 2, age 116,
Hispanic 2, race 63: 1,227,744 cells), its children are counties, asked the ten production queries
with the production precisions. By dual ascent, and by projected steps. Peers (Clarabel, OSQP) get the lifted problem and S seconds.
--counties solves redistricting states of many counties, whose queries have weights of their own in
every county and whose totals were fixed before, without matrices and with them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from bench.l2_nodes import node
from solvers.dual_newton.dual_ascent import solve_compiled
from solvers.dual_newton.projected import solve_projected
from solvers.least_squares.passes import Solve, solve_in_passes
from solvers.least_squares.solve import solve_quadratic
from solvers.problem import (
    Estimate,
    Fixed,
    LeastSquaresTerm,
    NodeProblem,
    RoundingQuery,
    group_sums,
)

SHAPE = (42, 2, 116, 2, 63)  # relationship or group quarters, sex, age, Hispanic, race
_MOST_NUMBERS = 200_000_000  # of matrices over cells, with which several gigabytes are needed
AGE_40 = np.r_[
    0:5, 5, 10, 15:22, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65:76, 80, 85, 90, 95, 100
]
RHO = {  # zCDP of the ten queries: base, the sixth, the seventh
    "state": (0.0999, 0.3996, 0.0999),
    "county": (0.0310, 0.1240, 0.1240),
    "tract": (0.0868, 0.3472, 0.3472),
    "block": (0.0011, 0.0011, 0.0011),
}


def recode(starts: np.ndarray | list[int], size: int) -> np.ndarray:
    """Group of each level, the groups being intervals that begin at `starts`."""
    return np.searchsorted(np.asarray(starts), np.arange(size), side="right") - 1


def production_queries(codes: np.ndarray) -> list[np.ndarray]:
    """Groups of each cell (columns of `codes`) in the ten queries, all but the last recoded."""
    relation, sex, age, hispanic, race = codes
    kind = recode([0, *range(1, 18), 18, 21, 24, 27, 31, 35, 39], 42)[relation]  # 18 + 7
    four = recode([0, 18, 27, 35], 42)[relation]
    limits = recode([0, 18, 21, 27, 31, 35], 42)[relation]
    target = recode([*range(18), 18], 42)[relation]
    age_40 = recode(AGE_40, 116)[age]
    age_38 = recode(np.delete(AGE_40, [3, 36]), 116)[age]
    age_10 = recode([0, 5, 15, 18, 25, 35, 45, 55, 65, 75], 116)[age]
    age_3 = recode([0, 18, 65], 116)[age]
    wanted = (
        (age_3, four),
        (age_3, sex),
        (age_38, sex),
        (hispanic, sex),
        (sex, four),
        (limits, age_10),
        (target,),
        (hispanic, sex, age_40, kind, race),
        (relation, age_40, hispanic, race, sex),
        (relation, sex, age, hispanic, race),
    )
    groups = []
    for parts in wanted:
        number = np.zeros(codes.shape[1], np.int64)
        for part in parts:
            number = number * (int(part.max()) + 1) + part
        groups.append(np.unique(number, return_inverse=True)[1].astype(np.int64))
    return groups


def large_node(n_cells: int, children: int, level: str = "county", seed: int = 7) -> NodeProblem:
    """A state whose persons fill few cells thickly and most of `n_cells` with one to three."""
    rng = np.random.default_rng(seed)
    relation = np.r_[rng.dirichlet(np.full(18, 0.4)) * 0.97, rng.dirichlet(np.full(24, 0.5)) * 0.03]
    age = np.interp(np.arange(116), [0, 20, 60, 80, 100, 115], [1, 1.1, 1.1, 0.5, 0.01, 1e-5])
    race = np.sort(rng.lognormal(-7, 1.8, 63))[::-1] + np.r_[0.7, 0.15, 0.05, np.zeros(60)]
    profile = np.array([1.0])
    for part in (relation, np.full(2, 0.5), age, np.array([0.8, 0.2]), race):
        profile = np.multiply.outer(profile, part / part.sum()).ravel()
    profile *= rng.lognormal(0, 1.0, profile.size)
    profile /= profile.sum()
    persons = 5 * n_cells
    while np.count_nonzero(whole := rng.multinomial(persons, profile)) < n_cells:
        persons = int(persons * 1.3)
    held = np.flatnonzero(whole)
    dropped = rng.permutation(held[whole[held] == 1])[: len(held) - n_cells]
    cells = np.setdiff1d(held, dropped)[:n_cells]
    codes = np.array(np.unravel_index(cells, SHAPE))
    size = rng.dirichlet(np.full(children, 2.0))
    by_race = np.stack([rng.dirichlet(size * 60 + 1e-2) for _ in range(SHAPE[4])])
    truth = np.stack(
        [rng.multinomial(whole[j], by_race[r]) for j, r in zip(cells, codes[4], strict=True)], 1
    )
    base, sixth, seventh = RHO[level]
    rho = [base] * 5 + [sixth, seventh] + [base] * 3
    terms = []
    for groups, precision in zip(production_queries(codes), rho, strict=True):
        answers = group_sums(truth, groups, int(groups.max()) + 1)
        noise = np.rint(rng.normal(0, precision**-0.5, answers.shape))
        terms.append(LeastSquaresTerm(groups, answers + noise, np.full(children, precision)))
    single = (RoundingQuery(np.arange(n_cells)),)
    return NodeProblem(level, n_cells, truth.sum(0), tuple(terms), (), (single,))


ROOTS = {  # levels and queries (axes) of roots where every cell is live
    "2020 redistricting": ((8, 2, 2, 63), ((), (3,), (2,), (0,), (2, 3), (1, 3), (1, 2, 3))),
    "1940": (
        (8, 2, 116, 2, 6, 2),
        ((), (0,), (2,), (1, 2), (0, 3, 4), (1, 3, 4, 5), (0, 1, 3, 4, 5)),
    ),
}


def root_node(name: str, persons: int = 10_000_000, seed: int = 3) -> NodeProblem:
    """One child, no parent, every cell of the schema live, equal precisions."""
    shape, queries = ROOTS[name]
    rng = np.random.default_rng(seed)
    cells = int(np.prod(shape))
    codes = np.indices(shape).reshape(len(shape), -1)
    truth = rng.multinomial(persons, rng.dirichlet(np.full(cells, 0.1)))[None]
    terms = []
    for axes in (*queries, tuple(range(len(shape)))):
        groups = np.zeros(cells, np.int64)
        for axis in axes:
            groups = groups * shape[axis] + codes[axis]
        answers = group_sums(truth, groups, int(groups.max()) + 1)
        noise = np.rint(rng.normal(0, 5, answers.shape))
        terms.append(LeastSquaresTerm(groups, answers + noise, np.full(1, 1 / 25)))
    single = (RoundingQuery(np.arange(cells)),)
    return NodeProblem(name, cells, None, tuple(terms), (), (single,))


COUNTIES = ((60, 482), (150, 482), (150, 900), (254, 2016))  # counties of a state, live cells


def state_of_counties(counties: int, cells: int, seed: int = 7) -> NodeProblem:
    """A redistricting state whose counties have subtrees of different sizes; totals go first."""
    problem = node("tract", counties, cells, 2000 * cells, 0.428, seed)
    rng = np.random.default_rng(seed)
    terms = tuple(
        replace(term, weights=term.weights * rng.uniform(0.5, 5, counties))
        for term in problem.terms
    )
    order = ((0,), tuple(range(1, len(terms))))
    return replace(problem, geocode="state", terms=terms, order=order)


def in_passes(problem: NodeProblem, tolerance: float, solve: Solve) -> Estimate:
    """Totals by the structured solver, the last pass by this one."""

    def one(part: NodeProblem, tolerance: float, fixed: Fixed) -> Estimate:
        return (solve if fixed else solve_quadratic)(part, tolerance, fixed)

    return solve_in_passes(problem, tolerance, one)


def run_alone(problem: NodeProblem, solve: Solve) -> dict[str, object]:
    """`run_node` in a process of its own, so that its memory is told apart."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as alone:
        return alone.submit(run_node, problem, 1e-7, partial(in_passes, solve=solve)).result()


def run_node(
    problem: NodeProblem,
    tolerance: float = 1e-6,
    solve: Callable[[NodeProblem, float], Estimate | None] = solve_compiled,
) -> dict[str, object]:
    """Solve a node; seconds, certificate, and growth of the peak of resident memory in MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, processor = time.perf_counter(), time.process_time()
    estimate = solve(problem, tolerance)
    if estimate is None:
        raise SystemExit(f"{problem.geocode}: left to projected steps")
    return {
        "node": problem.geocode,
        "children": problem.n_children,
        "cells": problem.n_cells,
        "status": str(estimate.status),
        "seconds": round(time.perf_counter() - started, 2),
        "processor_seconds": round(time.process_time() - processor, 2),
        "residual": estimate.certificate.residual,
        "newton_steps": estimate.newton_steps,
        "iterations": estimate.iterations,
        "peak_growth_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024,
    }


def _lifted(problem: NodeProblem) -> tuple[sp.csc_matrix, np.ndarray, sp.csc_matrix, np.ndarray]:
    """P, q, E, e of the node with the answers of the coarser queries as variables after x."""
    C, k = problem.n_children, problem.n_cells
    detailed = problem.terms[-1]
    unit = float(detailed.weights.max())
    weights = [np.repeat(detailed.weights / unit, k)]
    linear = [-(detailed.weights[:, None] / unit * detailed.answers[:, detailed.groups]).ravel()]
    links, sizes = [], []
    for term in problem.terms[:-1]:
        m = term.answers.shape[1]
        one = sp.csc_matrix((np.ones(k), (term.groups, np.arange(k))), (m, k))
        links.append(sp.kron(sp.identity(C), one))
        sizes.append(C * m)
        weights.append(np.repeat(term.weights / unit, m))
        linear.append(-(term.weights[:, None] / unit * term.answers).ravel())
    E = sp.hstack([sp.vstack(links), -sp.identity(sum(sizes))])
    e = np.zeros(sum(sizes))
    if problem.parent is not None:
        coupling = sp.kron(np.ones((1, C)), sp.identity(k))
        E = sp.vstack([E, sp.hstack([coupling, sp.csc_matrix((k, sum(sizes)))])])
        e = np.concatenate([e, problem.parent])
    P = sp.diags(np.concatenate(weights))
    return P.tocsc(), np.concatenate(linear), E.tocsc(), e


def run_peer(problem: NodeProblem, name: str, seconds: float) -> str:
    """Seconds of a peer at its own tolerance 1e-6, or that it did not finish in the time given."""
    started = time.perf_counter()
    worker = multiprocessing.get_context("fork").Process(target=_peer, args=(problem, name))
    worker.start()
    worker.join(seconds)
    if worker.is_alive():
        worker.kill()
        worker.join()
        return f"did not finish in {seconds:.0f} s"
    taken = time.perf_counter() - started
    return f"{taken:.2f} s" if worker.exitcode == 0 else f"failed after {taken:.2f} s"


def _peer(problem: NodeProblem, name: str) -> None:
    P, q, E, e = _lifted(problem)
    n = problem.n_children * problem.n_cells
    bounds = sp.hstack([-sp.identity(n), sp.csc_matrix((n, len(q) - n))])
    if name == "clarabel":
        import clarabel

        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        cones = [clarabel.ZeroConeT(len(e)), clarabel.NonnegativeConeT(n)]
        A, b = sp.vstack([E, bounds]).tocsc(), np.concatenate([e, np.zeros(n)])
        found = clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()
        raise SystemExit(0 if str(found.status) == "Solved" else 1)
    import osqp

    solver = osqp.OSQP()
    A = sp.vstack([E, -bounds]).tocsc()
    low = np.concatenate([e, np.zeros(n)])
    high = np.concatenate([e, np.full(n, np.inf)])
    solver.setup(P, q, A, low, high, verbose=False, eps_abs=1e-6, eps_rel=1e-6, max_iter=10**6)
    raise SystemExit(0 if solver.solve().info.status == "solved" else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--children", type=int, default=20)
    parser.add_argument("--roots", action="store_true", help="roots instead of the large node")
    parser.add_argument("--counties", action="store_true", help="states of counties instead")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each peer")
    chosen = parser.parse_args()
    if chosen.counties:
        for counties, cells in COUNTIES:
            problem = state_of_counties(counties, cells)
            print(json.dumps({"solver": "dual ascent", **run_alone(problem, solve_compiled)}))
            if counties * cells**2 <= _MOST_NUMBERS:
                print(json.dumps({"solver": "structured", **run_alone(problem, solve_quadratic)}))
        return
    nodes = (
        [root_node(name) for name in ROOTS]
        if chosen.roots
        else [large_node(chosen.cells, chosen.children)]
    )
    for problem in nodes:
        print(json.dumps({"solver": "projected steps", **run_node(problem, solve=solve_projected)}))
        row = {"solver": "compiled", **run_node(problem)}
        for name in ("clarabel", "osqp") if chosen.peers else ():
            row[name] = run_peer(problem, name, chosen.seconds)
        print(json.dumps(row))


if __name__ == "__main__":
    main()
