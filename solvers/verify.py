"""Integer check that the counts of a node keep every constraint."""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray
from das.errors import VerificationError
from invariants.implied import can_be_assigned
from solvers.problem import NodeProblem, group_sums


def verify_counts(problem: NodeProblem, counts: IntArray) -> None:
    """Check nonnegativity, the sum to the parent cell by cell, and every invariant.

    Args:
      problem: The node problem.
      counts: int64[C, k], counts of the live cells of each child.

    Raises:
      VerificationError: A constraint is broken; the message names the node and the cell or child.
    """
    where = f"node {problem.geocode}"
    if counts.dtype != np.int64 or counts.shape != (problem.n_children, problem.n_cells):
        raise VerificationError(
            where,
            "counts have the wrong type or shape",
            got=f"{counts.dtype}{counts.shape}",
            want=f"int64{(problem.n_children, problem.n_cells)}",
        )
    if counts.min(initial=0) < 0:
        raise VerificationError(where, "a count is negative", got=int(counts.min()))
    if problem.parent is not None:
        off = np.flatnonzero(counts.sum(0) != problem.parent)
        if off.size:
            raise VerificationError(
                where, f"children do not sum to the parent in live cell {off[0]} ({off.size} such)"
            )
    for number, exact in enumerate(problem.exact):
        sums = group_sums(counts, exact.groups, exact.targets.shape[1])
        wrong = np.argwhere(sums != exact.targets)
        if len(wrong):
            raise VerificationError(
                where, f"invariant {number} is broken for child {wrong[0][0]} ({len(wrong)} such)"
            )
    for term in problem.rows:
        sums = counts @ term.coefficients.T
        wrong = np.argwhere((sums < term.least) | (sums > term.most))
        if len(wrong):
            child, row = wrong[0]
            raise VerificationError(
                where, f"row {term.names[row]} is broken for child {child} ({len(wrong)} such)"
            )
    if problem.leaves is not None:
        leaves = problem.leaves.leaves
        by_type = group_sums(counts, problem.leaves.groups, leaves[0].least.shape[1])
        for child, (below, persons) in enumerate(zip(leaves, by_type, strict=True)):
            if not can_be_assigned(below, persons):
                raise VerificationError(
                    where, f"child {child} has counts by type that its leaves cannot have"
                )
