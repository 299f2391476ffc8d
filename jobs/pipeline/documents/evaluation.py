"""The evaluation of a release against the truth. Confidential."""

from __future__ import annotations

from typing import Literal

from jobs.pipeline.documents.document import document


@document
class Bin:
    """Label of a group of answers.

    Attributes:
      bin: The values it covers, such as `10 to 99`.
    """

    bin: str


@document
class Means:
    """Statistics of the error, released minus true; null of no answers.

    Attributes:
      answers: Number of answers.
      mae: Mean of the absolute errors.
      rmse: Root mean square error.
      bias: Mean error.
      max: Largest absolute error.
      exact: Share of answers that are exactly right.
    """

    answers: int
    mae: float | None
    rmse: float | None
    bias: float | None
    max: int | None
    exact: float | None


@document
class ByTrue(Means, Bin):
    """Statistics of the answers with one range of true counts."""


@document
class BySize(Means, Bin):
    """Statistics of the answers of geounits with one range of true populations.

    Attributes:
      geounits: Number of geounits.
    """

    geounits: int


@document
class Changed:
    """A geounit that changed much.

    Attributes:
      geocode: Which.
      l1: Sum of its absolute errors.
      persons: Records in truth.
      net: Change of its total.
    """

    geocode: str
    l1: int
    persons: int
    net: int


@document
class _Asked:
    """What is compared.

    Attributes:
      geolevel: Where.
      query: Name of the query.
      size: Answers per geounit.
      measured: Whether it was measured there.
      expected_rmse: Of the raw noisy answer; null if it was not measured.
      geounits: Compared.
      persons: Records in truth.
    """

    geolevel: str
    query: str
    size: int
    measured: bool
    expected_rmse: float | None
    geounits: int
    persons: int


@document
class Result(Means, _Asked):
    """How far a query is from the truth at a geolevel.

    Attributes:
      l1: Sum of the absolute errors.
      tvd: l1 / (2 persons); null without persons.
      appeared: Answers that are zero only in truth.
      vanished: Answers that are zero only in the release.
      q50: Median of the absolute error; null of no answers, as the other quantiles.
      q90: Its 90 % quantile.
      q95: Its 95 % quantile.
      q99: Its 99 % quantile.
      live: Answers that are not zero on both sides.
      distribution: Shares of these with absolute error 0, 1, 2, 3 to 4, 5 to 9, 10 to 19, 20 to 49,
        50 or more; empty without any.
      by_size: By true population of the geounit.
      by_true: By true count.
      most_changed: Up to 20 geounits.
    """

    l1: int
    tvd: float | None
    appeared: int
    vanished: int
    q50: int | None
    q90: int | None
    q95: int | None
    q99: int | None
    live: int
    distribution: tuple[float, ...]
    by_size: tuple[BySize, ...]
    by_true: tuple[ByTrue, ...]
    most_changed: tuple[Changed, ...]


@document
class GroupError:
    """Errors of a table in one group of records, at one geolevel.

    Attributes:
      group: Label of the group.
      persons: Its records in truth.
      released: Its released records.
      answers: Compared: the rows that the table has in it, in every geounit.
      l1: Sum of the absolute errors.
      mae: Mean of the absolute errors; null of no answers, as the other statistics.
      rmse: Root mean square error.
      bias: Mean error, released minus true.
      max: Largest absolute error.
      relative: l1 / persons; null of a group below the floor.
      to_everybody: `relative` over that of everybody; null without either.
    """

    group: str
    persons: int
    released: int
    answers: int
    l1: int
    mae: float | None
    rmse: float | None
    bias: float | None
    max: int | None
    relative: float | None
    to_everybody: float | None


@document
class ParityResult:
    """For whom a table is worse at a geolevel.

    Attributes:
      geolevel: Where.
      kind: `query`: the groups are its answers; `areas`: types of geounits.
      groups: Name of the query, or what the types are of.
      table: Name of the table that is restricted to each group.
      expected_rmse: Of a raw noisy answer to the table in the groups; null where it was not
        measured as it is.
      floor: Relative errors are of groups of at least so many records.
      population_weight: Weight of everybody in the parity error; null if no group reaches the floor
        and none was set.
      everybody: Sum of absolute errors of the table of all records, over their number; null below
        the floor.
      k: Groups that reach the floor.
      parity: Parity error: `population_weight` times `everybody`, and the relative errors of these
        groups; null without any.
      parity_mean: parity / k.
      worst: The group with the largest relative error; null without any.
      by_group: Every group, in the order of the query or of the names of types.
      exact: Whether an invariant publishes these answers exactly, for the few as for the many.
    """

    geolevel: str
    kind: Literal["query", "areas"]
    groups: str
    table: str
    expected_rmse: float | None
    floor: int
    population_weight: float | None
    everybody: float | None
    k: int
    parity: float | None
    parity_mean: float | None
    worst: str | None
    by_group: tuple[GroupError, ...]
    exact: bool = False


@document
class HouseholdErrors:
    """Errors of some geounits with and without totals expected by housing units.

    Attributes:
      geolevel: Where.
      kind: `totals`; `sums` of children that form no geounit; `persons per unit`, over those of the
        parent; `concentrated groups` of an attribute, of 1.5 times their share in the parent.
      label: Which of the kind.
      answers: Compared.
      records: Of them, in truth.
      bias: Sum of the errors of released counts, over the records; null without any.
      bias_plain: The same of the counts without what is expected.
      mse: Mean squared error of released counts; null of no answers.
      mse_plain: The same of the counts without what is expected.
    """

    geolevel: str
    kind: str
    label: str
    answers: int
    records: int
    bias: float | None
    bias_plain: float | None
    mse: float | None
    mse_plain: float | None


@document
class Evaluation:
    """How far a release is from the truth.

    Attributes:
      format: 1.
      created: UTC time.
      levels: Geolevels, the root first.
      queries: Evaluated queries, fewest answers first: the measured ones, every attribute, total,
        detailed, invariants and tables.
      results: One per geolevel and query.
      parity: One per geolevel, groups and table.
      households: Where totals were to be expected by housing units, of some 20,000 geounits.
    """

    format: Literal[1]
    created: str
    levels: tuple[str, ...]
    queries: tuple[str, ...]
    results: tuple[Result, ...]
    parity: tuple[ParityResult, ...] = ()
    households: tuple[HouseholdErrors, ...] = ()
