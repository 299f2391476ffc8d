"""Implied constraints on random group quarters.

    python -m bench.feasibility [--quick] [--from N] [--count N] [--seed N]

An instance is a tract of block groups of blocks; block totals and facilities by type are exact, the
counts by type are noisy. It is solved from the tract down twice: with implied constraints, and with
the obvious ones alone (the geounit's own total, and its own facilities of every type). Every most
violated set is looked for by flow and by integer program; a disagreement is a difference in
violation. Every instance has a seed of its own, so a long run may be done in ranges, whose counts
add up. Prints JSON, with processor seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from das.errors import InfeasibleError
from invariants.implied import can_be_assigned, most_violated
from invariants.leaves import Leaves, add_up, stack
from solvers.least_squares.cuts import bounds_of, solve_with_cuts
from solvers.least_squares.solve import solve_quadratic
from solvers.problem import LeastSquaresTerm, LeavesTerm, NodeProblem, Status
from solvers.rounding.failsafe import KeptSums, nearest_parent
from solvers.rounding.round import round_counts
from solvers.verify import verify_counts
from tests.builders import node as builders
from tests.unit.invariants.implied_program import cut_by_program

INSTANCES, QUICK = 10_000, 200
TOLERANCE = 1e-7
MOST_PERSONS = 99_999


@dataclass(frozen=True, eq=False)
class Tract:
    """An instance.

    Attributes:
      blocks: Per block group, one row of leaves per block.
      truth: Per block group, int64[blocks, t].
    """

    blocks: tuple[Leaves, ...]
    truth: tuple[np.ndarray, ...]


def seeds_example() -> Tract:
    """Leclerc's example: 100 persons and types A and B in one block, 100 of type C in the other."""
    facilities = np.array([[1, 1, 0], [0, 0, 1]])
    blocks = Leaves(facilities, facilities * MOST_PERSONS, np.full(2, 100), np.full(2, 100))
    return Tract((blocks,), (np.array([[50, 50, 0], [0, 0, 100]]),))


def random_tract(rng: np.random.Generator) -> Tract:
    """1 to 3 block groups of 2 to 4 blocks, 3 to 5 types of which a block has 1 to 3."""
    t = int(rng.integers(3, 6))
    blocks, truth = [], []
    for _ in range(rng.integers(1, 4)):
        n = int(rng.integers(2, 5))
        has = np.argsort(np.argsort(rng.random((n, t)), axis=1), axis=1) < rng.integers(
            1, 4, (n, 1)
        )
        facilities = np.where(has, rng.integers(1, 3, (n, t)), 0)
        persons = facilities + np.where(has, rng.integers(0, 40, (n, t)), 0)
        totals = persons.sum(1)
        blocks.append(Leaves(facilities, facilities * MOST_PERSONS, totals, totals))
        truth.append(persons)
    return Tract(tuple(blocks), tuple(truth))


def node(
    name: str,
    parent: np.ndarray | None,
    leaves: list[Leaves],
    noisy: np.ndarray,
) -> tuple[NodeProblem, np.ndarray]:
    """The node problem over live types, and these types."""
    live = np.arange(noisy.shape[1]) if parent is None else np.flatnonzero(parent)
    totals = [[leaf.low.sum()] for leaf in leaves]
    problem = builders.node(
        noisy[:, live],
        parent=None if parent is None else parent[live],
        exact=[(np.zeros(len(live), np.int64), totals)],
        leaves=leaves,
        types=live,
        name=name,
    )
    return problem, live


def obvious(problem: NodeProblem, below: list[Leaves]) -> NodeProblem:
    """The same without implied constraints: only what a child's own total and facilities demand.

    Args:
      problem: With implied constraints.
      below: The blocks below each child.
    """
    own = tuple(
        Leaves(*(part.sum(0, keepdims=True) for part in (one.least, one.most, one.low, one.high)))
        for one in below
    )
    assert problem.leaves is not None
    single = np.eye(own[0].n_types, dtype=np.bool_)
    rows = bounds_of(LeavesTerm(problem.leaves.groups, own), single)
    return replace(problem, rows=(rows,), leaves=None)


class Tally:
    """Solves instances and counts what happens."""

    def __init__(self) -> None:
        self.nodes = self.cuts = self.rounds = self.failed_with = self.failed_without = 0
        self.comparisons = self.disagreements = self.moved = self.rescued = 0

    def with_cuts(self, problem: NodeProblem) -> np.ndarray:
        """Counts of a node with implied constraints."""
        found = solve_with_cuts(problem, partial(solve_quadratic, tolerance=TOLERANCE))
        self.nodes += 1
        self.cuts += found.cuts
        self.rounds += found.rounds
        if found.estimate.status is not Status.SOLVED:
            raise InfeasibleError(f"node {problem.geocode}", found.estimate.status)
        rounding = round_counts(problem, found.estimate.values)
        verify_counts(problem, rounding.counts)
        return rounding.counts

    def compare(self, leaves: Leaves, counts: np.ndarray) -> None:
        """Look for the most violated set in two ways."""
        self.comparisons += 1
        flow = most_violated(leaves, counts)
        program = most_violated(leaves, counts, cut_by_program)
        self.disagreements += abs(flow.violation - program.violation) > 1e-6

    def solve(self, tract: Tract, noise: np.ndarray) -> None:
        """Solve one instance both ways."""
        groups = [add_up(b, np.zeros(b.n_rows, np.int64), 1).of(0) for b in tract.blocks]
        rows = stack(groups)
        whole = add_up(rows, np.zeros(rows.n_rows, np.int64), 1).of(0)
        truth = np.array([one.sum(0) for one in tract.truth])
        noisy = [truth.sum(0, keepdims=True) + noise[:1], truth + noise[1 : 1 + len(truth)]]
        try:
            self._down(tract, groups, whole, noisy, noise)
        except InfeasibleError:
            self.failed_with += 1
        self.failed_without += self._fails(tract, groups, whole, noisy)

    def _down(self, tract: Tract, groups, whole, noisy, noise) -> None:
        root, _ = node("tract", None, [whole], noisy[0])
        top = self.with_cuts(root)[0]
        problem, live = node("groups", top, groups, noisy[1])
        found = np.zeros((len(groups), len(top)), np.int64)
        found[:, live] = self.with_cuts(problem)
        for leaves, truth, counts in zip(tract.blocks, tract.truth, found, strict=True):
            below, _ = node(
                "blocks",
                counts,
                [leaves.rows(slice(i, i + 1)) for i in range(leaves.n_rows)],
                truth + noise[: leaves.n_rows],
            )
            self.with_cuts(below)

    def _fails(self, tract: Tract, groups, whole, noisy) -> bool:
        """Whether a geounit is given counts that its blocks cannot hold, without cuts."""
        root, live = node("tract", None, [whole], noisy[0])
        top = self._without_cuts(obvious(root, [stack(tract.blocks)]), live, [whole])
        if top is None:
            return True
        problem, live = node("groups", top[0], groups, noisy[1])
        return self._without_cuts(obvious(problem, list(tract.blocks)), live, groups) is None

    def _without_cuts(self, problem: NodeProblem, live, leaves: list[Leaves]) -> np.ndarray | None:
        """int64[C, t], or None if some child cannot be solved for; then the failsafe is tried."""
        estimate = solve_quadratic(problem, TOLERANCE)
        if estimate.status is not Status.SOLVED:
            return None
        values = np.zeros((len(leaves), leaves[0].n_types))
        values[:, live] = estimate.values
        counts = np.zeros(values.shape, np.int64)
        counts[:, live] = round_counts(problem, estimate.values).counts
        for one, reals in zip(leaves, values, strict=True):
            self.compare(one, reals)
        bad = [c for c, one in enumerate(leaves) if not can_be_assigned(one, counts[c])]
        for child in bad:
            self._rescue(counts[child], [leaves[child]])
        return None if bad else counts

    def _rescue(self, counts: np.ndarray, leaves: list[Leaves]) -> None:
        """The failsafe: the nearest counts that can be dealt."""
        types = np.arange(len(counts))
        answers = np.tile(counts.astype(float), (len(leaves), 1))
        term = LeastSquaresTerm(types, answers, np.ones(len(leaves)))
        limits = LeavesTerm(types, tuple(leaves))
        problem = NodeProblem("geounit", len(counts), counts, (term,), (), (), leaves=limits)
        near = nearest_parent(problem, counts, KeptSums((np.zeros(len(counts), np.int64),)))
        self.moved += int(np.abs(near - counts).sum()) // 2
        self.rescued += can_be_assigned(leaves[0], near)


def instance(seed: int, index: int) -> tuple[Tract, np.ndarray]:
    """Leclerc's example with noise that fools it as number 0, then random ones."""
    if index == 0:
        return seeds_example(), np.vstack([np.array([[-49, -49, 98]])] * 5)
    rng = np.random.default_rng([seed, index])
    tract = random_tract(rng)
    return tract, np.rint(rng.normal(0, 30, (5, tract.blocks[0].n_types))).astype(np.int64)


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} instances")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first instance")
    parser.add_argument(
        "--count", "--instances", type=int, default=INSTANCES, help="how many instances"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    number = QUICK if options.quick else options.count
    tally, example, started = Tally(), Tally(), time.process_time()
    example.solve(*instance(options.seed, 0))
    for index in range(options.first, options.first + number):
        tally.solve(*instance(options.seed, index))
    print(
        json.dumps(
            {
                "from": options.first,
                "instances": number,
                "failsafes_with_cuts": tally.failed_with,
                "failsafes_without_cuts": tally.failed_without,
                "share_without_cuts": round(tally.failed_without / number, 4),
                "separation_disagreements": tally.disagreements,
                "separations_compared": tally.comparisons,
                "nodes_with_cuts": tally.nodes,
                "cuts_per_node": round(tally.cuts / tally.nodes, 4),
                "rounds_per_node": round(tally.rounds / tally.nodes, 4),
                "rescued_by_failsafe": tally.rescued,
                "persons_moved_by_failsafe": tally.moved,
                "example": {
                    "failsafes_with_cuts": example.failed_with,
                    "failsafes_without_cuts": example.failed_without,
                },
                "seconds": round(time.process_time() - started, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
