"""How the nodes of a geolevel were solved: facts of its counts, and rows of the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeVar

from jobs.pipeline.documents.document import document, value_of

if TYPE_CHECKING:
    from jobs.pipeline.storage.dataset import Dataset

Fact = TypeVar("Fact")
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
      by: To which counts: `exact`, the nearest that its children can add up to, as in all older
        manifests; `penalty`, the sum of the children that fit their noisy answers best with a
        penalty on what the parent moves.
    """

    geocode: str
    cells: tuple[int, ...]
    changes: tuple[int, ...]
    by: Literal["exact", "penalty"] = "exact"

    @property
    def records(self) -> int:
        """How many records were added, removed or moved to another cell."""
        added = sum(max(change, 0) for change in self.changes)
        return max(added, added - sum(self.changes))


@document
class EstimatedError:
    """Mean squared error of a marginal as noisy answers alone estimate it.

    Attributes:
      query: The marginal.
      way: `plain`, without what is expected; `totals` or `composition`, with it.
      error: The mean squared error of an answer.
      difference_error: Standard error of its difference to that of `plain`.
    """

    query: str
    way: str
    error: float
    difference_error: float


@document
class ExpectedTotals:
    """Whether counts of a geolevel were shrunk toward those expected by housing units, and why.

    Attributes:
      way: `totals` or `composition` if they were, `plain` if not.
      kappa: Factor of the variance.
      certified: Whether the estimated errors decided.
      children: Geounits whose noisy totals the variance was learned from.
      flat: Geounits of which nothing is expected: with facilities, or far from what is.
      totals: Expected totals at which the variance was learned.
      variance: Of true totals around each; empty if too few geounits were seen.
      errors: Estimated errors, of the families that were solved in every way.
    """

    way: str
    kappa: float
    certified: bool
    children: int
    flat: int
    totals: tuple[float, ...]
    variance: tuple[float, ...]
    errors: tuple[EstimatedError, ...]


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
    return _fact(counts, SolveStatistics, counts.facts.get("statistics"))


def expected_totals_of(counts: Dataset) -> ExpectedTotals | None:
    """What was expected of published counts by housing units; None where that was not asked for.

    Raises:
      OutputError: It is damaged.
    """
    stated = counts.facts.get("expected_totals")
    return None if stated is None else _fact(counts, ExpectedTotals, stated)


def _fact(counts: Dataset, kind: type[Fact], stated: object) -> Fact:
    return value_of(
        kind,
        stated if isinstance(stated, Mapping) else {},
        counts.path,
        remedy="remove it; then go on with `das run OUT`",
    )
