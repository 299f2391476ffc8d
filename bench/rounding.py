"""Time of the integer stage, beside HiGHS on the same node.

    python -m bench.rounding [--quick]

Nodes have the cells and rounding passes of the 2020 redistricting data: total | hhgq,
hhgq x hispanic, hhgq x hispanic x cenrace, hhgq x votingage x hispanic x cenrace, detailed. Every
cell of every child is fractional, which no solution of the continuous stage comes near. The peer
gets each pass as one mixed-integer program with the same bounds, through `scipy.optimize.milp`.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from das.arrays import FloatArray
from solvers.problem import LeastSquaresTerm, NodeProblem, RoundingQuery
from solvers.rounding.round import Method, round_counts
from solvers.verify import verify_counts
from tests.unit.solvers.rounding.roundings import costs

SHAPE = (8, 2, 2, 63)  # hhgq, votingage, hispanic, cenrace
ORDERING = (((),), ((0,), (0, 2), (0, 2, 3), (0, 1, 2, 3)))
QUICK = ((10, 50), (10, 200), (30, 500), (100, 500))
FULL = (*QUICK, (30, 2000), (100, 1000))
LARGEST = (254, 2000)  # the counties of Texas; without the peer


def node(children: int, cells: int) -> tuple[NodeProblem, FloatArray]:
    """A node, and the mean of four tables that add up to the same parent."""
    rng = np.random.default_rng(2020)
    chosen = np.sort(rng.choice(np.prod(SHAPE), cells, replace=False))
    levels = np.array(np.unravel_index(chosen, SHAPE))
    table = rng.poisson(rng.gamma(0.5, 10.0, cells) + 0.5, (children, cells))
    table[0] += table.sum(0) == 0
    orders = [rng.random(table.shape).argsort(0) for _ in range(4)]
    shares = rng.dirichlet(np.ones(4))
    values = np.tensordot(shares, [np.take_along_axis(table, o, 0) for o in orders], 1)
    passes = tuple(tuple(query(levels, axes) for axes in one) for one in ORDERING)
    term = LeastSquaresTerm(np.arange(cells), values, np.ones(children))
    problem = NodeProblem("bench", cells, table.sum(0), (term,), (), passes)
    return problem, values


def query(levels: np.ndarray, axes: tuple[int, ...]) -> RoundingQuery:
    """The marginal over some attributes, on the live cells."""
    if not axes:
        return RoundingQuery(np.zeros(levels.shape[1], np.int64))
    return RoundingQuery(np.unique(levels[list(axes)], axis=1, return_inverse=True)[1].ravel())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    sizes = QUICK if parser.parse_args().quick else FULL
    round_counts(*node(3, 10))  # so that no case pays for loading libraries
    cases = []
    print(f"{'children':>9}{'cells':>7}{'seconds':>9}{'milp s':>9}{'ratio':>7}{'difference':>12}")
    for children, cells in (*sizes, LARGEST):
        problem, values = node(children, cells)
        started = time.perf_counter()
        ours = round_counts(problem, values)
        seconds = time.perf_counter() - started
        verify_counts(problem, ours.counts)
        case: dict[str, float | None] = {
            "children": children,
            "cells": cells,
            "seconds": round(seconds, 4),
            "milp_seconds": None,
            "ratio": None,
            "cost_difference": None,
        }
        if (children, cells) != LARGEST:
            started = time.perf_counter()
            peer = round_counts(problem, values, method=Method.MIXED_INTEGER)
            case["milp_seconds"] = round(time.perf_counter() - started, 3)
            case["ratio"] = round(case["milp_seconds"] / seconds, 1)
            both = (costs(problem, values, one.counts) for one in (ours, peer))
            case["cost_difference"] = max(abs(a - b) for a, b in zip(*both, strict=True))
        cases.append(case)
        texts = ["-" if value is None else f"{value:.3g}" for value in list(case.values())[2:]]
        print(f"{children:>9}{cells:>7}" + "{:>9}{:>9}{:>7}{:>12}".format(*texts))
    print(json.dumps({"cases": cases}))


if __name__ == "__main__":
    main()
