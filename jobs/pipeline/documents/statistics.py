"""Solver statistics of a geolevel: facts of its counts, and rows of the manifest."""

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
    """One of the slowest nodes.

    Attributes:
      geocode: Geocode of the parent; `root` if the root itself was solved.
      residual: Residual of its certificate.
      seconds: Processor seconds in the solver.
    """

    geocode: str
    residual: float
    seconds: float


@document
class Move:
    """Changes by the failsafe to the counts of one parent.

    Attributes:
      geocode: Geocode of the parent.
      cells: Indices of the changed cells.
      changes: Change of the count of each of these cells.
      by: `exact`: the nearest counts to which the children can add up;
        `penalty`: the sum of children that fit their noisy answers best, with a penalty on changes
        of the parent.
    """

    geocode: str
    cells: tuple[int, ...]
    changes: tuple[int, ...]
    by: Literal["exact", "penalty"] = "exact"

    @property
    def records(self) -> int:
        """Return the number of records that were added, removed or moved to another cell."""
        added = sum(max(change, 0) for change in self.changes)
        return max(added, added - sum(self.changes))


@document
class EstimatedError:
    """Mean squared error of a marginal, estimated from noisy answers alone (SURE).

    Attributes:
      query: The marginal.
      way: `plain`; `totals` or `composition`, with the covariate; `learned`, with corrections.
      error: Mean squared error of an answer.
      difference_error: Standard error of the difference to `plain`.
    """

    query: str
    way: str
    error: float
    difference_error: float


@document
class ExpectedTotals:
    """Use of the housing-unit covariate at a geolevel, and the reason for it.

    Attributes:
      way: `totals` or `composition` if counts were shrunk toward predictions, else `plain`.
      kappa: Factor of the fitted variance.
      certified: Whether estimated errors decided on the use.
      children: Number of geounits whose noisy totals were used to fit the variance.
      flat: Number of geounits without prediction: with facilities, or far from the prediction.
      totals: Predicted totals at which the variance was fitted.
      variance: Variance of true totals around each; empty with too few geounits.
      errors: Estimated errors of the families that were solved with and without the covariate.
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
class LearnedAnswers:
    """Use of regressions that were trained on public counts, and the reason for it.

    Attributes:
      corrected: Queries whose released answers were corrected; empty if none improved.
      source: The public tables on which the regressions were trained, and the command.
      digest: SHA-256 of the file of the regressions.
      errors: Estimated errors of some families, with the first queries that were tried.
    """

    corrected: tuple[str, ...]
    source: str
    digest: str
    errors: tuple[EstimatedError, ...]


@document
class SolveStatistics:
    """Solver statistics of one geolevel.

    Attributes:
      nodes: Number of solved parents.
      copied: Number of parents with one child, whose counts were copied.
      trivial: Number of parents without records.
      live: Sum over all children of the number of cells with records.
      variables: Sum over solved nodes of children times live cells.
      seconds: Processor seconds in the solver.
      max_residual: Largest residual of a certificate.
      iterations: Iterations of the interior point method, of conjugate gradients in large nodes, or
        of a general solver.
      newton_steps: Number of Newton steps.
      widened: Number of nodes whose rounding had to leave the neighboring integers.
      worst_nodes: The slowest five nodes.
      moved: Changes by the failsafe, by parent.
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
    """Return the solver statistics of published counts.

    Raises:
      OutputError: The statistics are missing or damaged.
    """
    return _fact(counts, SolveStatistics, counts.facts.get("statistics"))


def use_of(counts: Dataset, name: str, kind: type[Fact]) -> Fact | None:
    """Return how published counts used public data; None if that was not requested.

    Args:
      counts: The counts.
      name: Name of the fact: `expected_totals` or `learned`.
      kind: Its type.

    Raises:
      OutputError: The fact is damaged.
    """
    stated = counts.facts.get(name)
    return None if stated is None else _fact(counts, kind, stated)


def _fact(counts: Dataset, kind: type[Fact], stated: object) -> Fact:
    return value_of(
        kind,
        stated if isinstance(stated, Mapping) else {},
        counts.path,
        remedy="remove it; then go on with `das run OUT`",
    )
