"""How the nodes of a geolevel were solved: facts of its counts, and rows of the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jobs.documents.document import document, value_of

if TYPE_CHECKING:
    from jobs.storage.dataset import Dataset

HOLDS = "holds_moves_of"  # fact of counts: geolevels whose moves these counts include


@document
class SlowNode:
    """A node that took long.

    Attributes:
      geocode: Of the parent; `root` if the root itself was solved.
      residual: Residual of its certificate.
      seconds: Processor seconds in the solver.
    """

    geocode: str
    residual: float
    seconds: float


@document
class Move:
    """What the failsafe moved in one parent.

    Attributes:
      geocode: Of the parent.
      cells: Numbers of the cells that changed.
      changes: What was added to the count of each, or taken from it.
    """

    geocode: str
    cells: tuple[int, ...]
    changes: tuple[int, ...]

    @property
    def records(self) -> int:
        """How many records were added, removed or moved to another cell."""
        added = sum(max(change, 0) for change in self.changes)
        return max(added, added - sum(self.changes))


@document
class SolveStatistics:
    """How the nodes of one geolevel were solved.

    Attributes:
      nodes: Parents solved.
      copied: Parents with one child, whose counts were copied.
      trivial: Parents without records.
      live: Sum over all children of their cells with records.
      variables: Sum over solved nodes of children times live cells.
      seconds: Processor seconds in the solver.
      max_residual: Largest residual of a certificate.
      iterations: Of interior points, of conjugate gradients in large nodes, or of a general solver.
      newton_steps: Newton steps.
      widened: Nodes whose rounding had to leave the neighboring integers.
      worst_nodes: The slowest five.
      moved: What the failsafe moved, by parent.
    """

    nodes: int
    copied: int
    trivial: int
    live: int
    variables: int
    seconds: float
    max_residual: float
    iterations: int
    newton_steps: int
    widened: int
    worst_nodes: tuple[SlowNode, ...]
    moved: tuple[Move, ...]


def statistics_of(counts: Dataset) -> SolveStatistics:
    """The statistics among the facts of published counts.

    Raises:
      OutputError: They are not there, or damaged.
    """
    stated = counts.facts.get("statistics")
    return value_of(
        SolveStatistics,
        stated if isinstance(stated, Mapping) else {},
        counts.path,
        remedy="remove it; then go on with `das resume`",
    )
