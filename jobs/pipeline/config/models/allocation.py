"""Models of allocation files."""

from __future__ import annotations

from pydantic import Field, model_validator

from das.definition import Definition
from das.mechanisms.registry import chargeable
from das.workload.choices import LossKind, Method
from jobs.pipeline.config.models.values import Exact, Model, Text, Whole
from jobs.pipeline.config.upgrade import Kind


class ConvexLossConfig(Model):
    """A convex loss of the variances of tables, with its parameter: one of these."""

    power_mean: Exact | None = None
    """p from 1 to 64: (weighted mean of v^p)^(1/p) of the mean variance v of each table. 1 is the
    weighted mean; the larger p, the more the worst table counts."""

    max_weighted_mean: list[dict[Text, Exact]] | None = None
    """Maps of table to weight, such as one per group of users: the largest of their weighted mean
    variances. Weights of each are divided by their sum."""

    variance_limits: dict[Text, Exact] | None = None
    """Every table to a variance: the largest variance of any answer over that of its table."""

    @model_validator(mode="after")
    def _one_of(self) -> ConvexLossConfig:
        if [self.power_mean, self.max_weighted_mean, self.variance_limits].count(None) != 2:
            raise ValueError(
                "give exactly one of `power_mean`, `max_weighted_mean` and `variance_limits`"
            )
        return self

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that the parameter names."""
        stated = (self.variance_limits or {}, *(self.max_weighted_mean or ()))
        return tuple(dict.fromkeys(table for numbers in stated for table in numbers))


class WorkloadConfig(Model):
    """What should be accurate at a geolevel; the planner chooses what is measured."""

    method: Method = Method.AUTO
    """residual_planner: plain counts; residual_planner_plus, orp: any base; hdmm: Kronecker
    products; auto: the best of all within reach. Under pure hdmm alone, which auto is there."""

    loss: LossKind | ConvexLossConfig = LossKind.SUM_OF_VARIANCES
    """sum_of_variances: of all answers, weighted by table; largest_variance: of any answer; or a
    convex loss with a parameter."""

    tables: dict[Text, Exact]
    """Tables ("total", "detailed" or attributes joined by "*") to the weight of the mean variance
    of their answers. Together they must have full column rank, as detailed has."""

    bases: dict[Text, list[Text | list[Whole]]] = Field(default={})
    """Attribute to what its tables ask of it, stacked: identity, prefix, ranges, recodes of it, or
    rows of integers with one per level, of at most 1024 in size. Together they must determine the
    total. Default: identity."""


class LevelAllocation(Model):
    """Share of one geolevel, and of its queries or the workload they are planned for."""

    share: Exact
    """Exact share of the budget, such as "1440/4099"."""

    queries: dict[Text, Exact] | None = None
    """Query ("total", "detailed" or names joined by "*") to its exact share of the geolevel; shares
    sum to 1. Give this or `workload`."""

    workload: WorkloadConfig | None = None
    """Measure what is best for these tables. Give this or `queries`."""

    @model_validator(mode="after")
    def _one_of(self) -> LevelAllocation:
        if (self.queries is None) == (self.workload is None):
            raise ValueError("give exactly one of `queries` and `workload`")
        return self


class StrataAllocation(Model):
    """Queries and shares of groups that are measured apart from one another."""

    query: Text
    """Query of attributes and recodes, such as "race_group": the records of each of its answers are
    a stratum."""

    levels: dict[Text, dict[Text, LevelAllocation]]
    """Label of each answer ("f / white" of two attributes) to geolevels, from the root down without
    a gap, with shares and queries that count its records alone."""


class AllocationFile(Model):
    """conf/allocation/*.yaml: how rho is split over geolevels and queries."""

    renames = Kind.ALLOCATION
    later = ("mechanism", "strata")

    name: Text
    """Name of the allocation."""

    source: Text | None = None
    """Where the numbers come from."""

    mechanism: Text | None = Field(
        default=None,
        description="Name of the noise of all queries, one that `privacy.definition` can charge. "
        "Default: "
        + ", ".join(f"{chargeable(one)[0].kind} under {one}" for one in Definition)
        + ".",
    )
    levels: dict[Text, LevelAllocation]
    """Geolevel to its share and queries; level shares sum to 1, with `strata` together with those
    of each stratum."""

    strata: StrataAllocation | None = None
    """What is measured of disjoint groups of records, beside `levels`. Their shares do not add up:
    each record is in one."""
