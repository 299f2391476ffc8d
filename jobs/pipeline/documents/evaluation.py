"""The evaluation of a release against the true data. Confidential."""

from __future__ import annotations

from typing import Literal

from jobs.pipeline.documents.document import document


@document
class Bin:
    """Label of a group of answers.

    Attributes:
      bin: Range of values, such as `10 to 99`.
    """

    bin: str


@document
class Means:
    """Statistics of the error, released minus true; null without answers.

    Attributes:
      answers: Number of answers.
      mae: Mean of the absolute errors.
      rmse: Root mean square error.
      bias: Mean error.
      max: Largest absolute error.
      exact: Share of answers without error.
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
    """A geounit with large errors.

    Attributes:
      geocode: Geocode of the geounit.
      l1: Sum of its absolute errors.
      persons: True number of records.
      net: Error of its total.
    """

    geocode: str
    l1: int
    persons: int
    net: int


@document
class _Compared:
    """A query compared at a geolevel.

    Attributes:
      geolevel: Name of the geolevel.
      query: Name of the query.
      size: Number of answers per geounit.
      measured: Whether the query was measured at the geolevel.
      expected_rmse: Expected RMSE of a noisy answer; null if not measured.
      geounits: Number of compared geounits.
      persons: True number of records.
    """

    geolevel: str
    query: str
    size: int
    measured: bool
    expected_rmse: float | None
    geounits: int
    persons: int


@document
class Result(Means, _Compared):
    """Errors of a query at a geolevel.

    Attributes:
      l1: Sum of the absolute errors.
      tvd: l1 / (2 persons); null without persons.
      appeared: Number of answers that are zero in the true data only.
      vanished: Number of answers that are zero in the release only.
      q50: Median of the absolute error; quantiles are null without answers.
      q90: 90 % quantile of the absolute error.
      q95: 95 % quantile of the absolute error.
      q99: 99 % quantile of the absolute error.
      live: Number of answers that are nonzero in the true data or in the release.
      distribution: Shares of live answers with absolute error 0, 1, 2, 3 to 4, 5 to 9, 10 to 19,
        20 to 49, 50 or more; empty without live answers.
      by_size: Statistics by true population of the geounit.
      by_true: Statistics by true count.
      most_changed: Up to 20 geounits with the largest errors.
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
    """Errors of a table in one population group, at one geolevel.

    Attributes:
      group: Label of the group.
      persons: True number of records of the group.
      released: Released number of records of the group.
      answers: Number of compared answers: rows of the table in the group, over all geounits.
      l1: Sum of the absolute errors.
      mae: Mean of the absolute errors; statistics are null without answers.
      rmse: Root mean square error.
      bias: Mean error, released minus true.
      max: Largest absolute error.
      relative: l1 / persons; null if the group is below the floor.
      to_everybody: `relative` divided by the relative error of the whole population; null if one of
        them is null.
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
    """Errors of a table compared between groups at a geolevel.

    Attributes:
      geolevel: Name of the geolevel.
      kind: `query` if the groups are answers of a query; `areas` if they are types of geounits.
      groups: Name of the query, or of the geolevel with types.
      table: Name of the table that is restricted to each group.
      expected_rmse: Expected RMSE of a noisy answer of the table in the groups; null if it was not
        measured in this form.
      floor: Relative errors are stated for groups of at least this number of records.
      population_weight: Weight of the whole population in the parity error; null if no group
        reaches the floor and no weight was set.
      everybody: Relative error of the table in the whole population; null below the floor.
      k: Number of groups that reach the floor.
      parity: Parity error: `population_weight` times `everybody`, plus the relative errors of
        these groups; null without groups.
      parity_mean: parity / k.
      worst: Group with the largest relative error; null without groups.
      by_group: All groups, in the order of the query or of the names of types.
      exact: Whether an invariant publishes these answers exactly.
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
    """Errors of some geounits with and without the housing-unit covariate.

    Attributes:
      geolevel: Name of the geolevel.
      kind: `totals`; `sums` of children that form no geounit; `persons per unit`, relative to the
        parent; `concentrated groups` of an attribute, with 1.5 times their share in the parent.
      label: Label within the kind.
      answers: Number of compared answers.
      records: True number of records in these answers.
      bias: Sum of the errors of released counts, divided by the records; null without records.
      bias_plain: `bias` of counts solved without the covariate.
      mse: Mean squared error of released counts; null without answers.
      mse_plain: `mse` of counts solved without the covariate.
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
    """Errors of a release against the true data.

    Attributes:
      format: 1.
      created: UTC time.
      levels: Geolevels, the root first.
      queries: Evaluated queries, fewest answers first: the measured ones, every attribute, total,
        detailed, invariants and tables.
      results: One per geolevel and query.
      parity: One per geolevel, groups and table.
      households: Errors with and without the housing-unit covariate, of some 20,000 geounits.
    """

    format: Literal[1]
    created: str
    levels: tuple[str, ...]
    queries: tuple[str, ...]
    results: tuple[Result, ...]
    parity: tuple[ParityResult, ...] = ()
    households: tuple[HouseholdErrors, ...] = ()
