"""What happened while nodes were solved: statistics of one node, and of many together."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.pipeline.documents.statistics import Move, SlowNode, SolveStatistics
from solvers.families.solve import Solved
from solvers.node import NodeSolution

_WORST = 5  # rows of the table of slowest nodes in a report
_SUMS = (
    "nodes",
    "copied",
    "trivial",
    "live",
    "variables",
    "seconds",
    "iterations",
    "newton_steps",
    "widened",
)


def of_node(
    geocode: str, solution: NodeSolution, *, live: int, seconds: float, moved: tuple[Move, ...]
) -> SolveStatistics:
    """Statistics of one solved node.

    Args:
      geocode: Of the parent.
      solution: Of its node problem.
      live: Cells with persons, summed over its children.
      seconds: Processor seconds in the solver.
      moved: What the failsafe moved in it.
    """
    estimate = solution.estimate
    residual = estimate.certificate.residual
    return SolveStatistics(
        nodes=1,
        copied=0,
        trivial=0,
        live=live,
        variables=solution.counts.size,
        seconds=seconds,
        max_residual=residual,
        iterations=estimate.iterations,
        newton_steps=estimate.newton_steps,
        widened=int(bool(solution.rounding.widened)),
        worst_nodes=(SlowNode(geocode=geocode, residual=residual, seconds=seconds),),
        moved=moved,
    )


def of_packed(geocode: str, solved: Solved, *, seconds: float) -> SolveStatistics:
    """Statistics of one parent that was solved with others."""
    return SolveStatistics(
        nodes=1,
        copied=0,
        trivial=0,
        live=solved.live,
        variables=solved.variables,
        seconds=seconds,
        max_residual=solved.residual,
        iterations=0,
        newton_steps=solved.newton_steps,
        widened=0,
        worst_nodes=(SlowNode(geocode=geocode, residual=solved.residual, seconds=seconds),),
        moved=(),
    )


def unsolved(*, live: int, is_copied: bool) -> SolveStatistics:
    """Statistics of one parent whose children needed no solving: a copy of it, or empty like it."""
    return SolveStatistics(
        nodes=0,
        copied=int(is_copied),
        trivial=int(not is_copied),
        live=live,
        variables=0,
        seconds=0.0,
        max_residual=0.0,
        iterations=0,
        newton_steps=0,
        widened=0,
        worst_nodes=(),
        moved=(),
    )


def total(parts: Iterable[SolveStatistics]) -> SolveStatistics:
    """Statistics of several parents, or of several tasks; of all their nodes the slowest stay."""
    parts = list(parts)
    slowest = sorted(
        (node for part in parts for node in part.worst_nodes),
        key=lambda node: (-node.seconds, node.geocode),
    )
    return SolveStatistics(
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMS},
        max_residual=max((part.max_residual for part in parts), default=0.0),
        worst_nodes=tuple(slowest[:_WORST]),
        moved=tuple(move for part in parts for move in part.moved),
    )
