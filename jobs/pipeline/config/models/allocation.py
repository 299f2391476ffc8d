"""Models of allocation files."""

from __future__ import annotations

from pydantic import Field, model_validator

from das.definition import Definition
from das.mechanisms.registry import chargeable
from das.workload.choices import LossKind, Method
from jobs.pipeline.config.models.values import Exact, Model, Text, Whole


class ConvexLossConfig(Model):
    """A convex loss of the variances of tables; exactly one key is given."""

    power_mean: Exact | None = None
    """p from 1 to 64. The loss is (weighted mean of v^p)^(1/p), where v is the mean variance of a
    table. 1 is the weighted mean; a larger p gives more weight to the worst table."""

    max_weighted_mean: list[dict[Text, Exact]] | None = None
    """Maps of table to weight, such as one map per group of users. The loss is the largest weighted
    mean variance of a map. The weights of each map are divided by their sum."""

    variance_limits: dict[Text, Exact] | None = None
    """Every table with a variance. The loss is the largest ratio of the variance of an answer to
    the variance given for its table."""

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
    """Tables that should be accurate at a geolevel; the planner chooses the measured queries."""

    later = ("shares",)

    method: Method = Method.AUTO
    """residual_planner: plain counts. residual_planner_plus, orp: any base. hdmm: Kronecker
    products. auto: the best feasible method. Under pure, only hdmm is possible, and auto means
    hdmm."""

    loss: LossKind | ConvexLossConfig = LossKind.SUM_OF_VARIANCES
    """sum_of_variances: of all answers, weighted by table. largest_variance: of any answer. Or a
    convex loss with a parameter."""

    tables: dict[Text, Exact]
    """Tables ("total", "detailed" or attributes joined by "*"), each with the weight of the mean
    variance of its answers. Together they must have full column rank, as detailed has."""

    bases: dict[Text, list[Text | list[Whole]]] = Field(default={})
    """For each attribute, the queries on its levels that its tables request, stacked: identity,
    prefix, ranges, recodes of it, or rows of integers with one entry per level, each at most 1024
    in size. Together they must determine the total. Default: identity."""

    shares: dict[Text, Exact] | None = None
    """Part of the cost of each set of attributes that a residual planner measures ("total", or
    names joined by "*"), in place of the parts that it would choose. `das plan --optimize
    --planned` writes them."""

    @model_validator(mode="after")
    def _shares_fit(self) -> WorkloadConfig:
        if self.shares is not None and self.method in {Method.HDMM, Method.AUTO}:
            raise ValueError("`shares` need `method: residual_planner`, or orp for other bases")
        return self


class LevelAllocation(Model):
    """Share of one geolevel, with its queries or the workload for which queries are planned."""

    share: Exact
    """Exact share of the budget, such as "1440/4099"."""

    queries: dict[Text, Exact] | None = None
    """Queries ("total", "detailed" or names joined by "*"), each with its exact share of the
    geolevel; the shares sum to 1. Give this or `workload`."""

    workload: WorkloadConfig | None = None
    """Plan the best queries for these tables. Give this or `queries`."""

    @model_validator(mode="after")
    def _one_of(self) -> LevelAllocation:
        if (self.queries is None) == (self.workload is None):
            raise ValueError("give exactly one of `queries` and `workload`")
        return self


class StrataAllocation(Model):
    """Queries and shares of strata, which are measured separately."""

    query: Text
    """Query of attributes and recodes, such as "race_group"; the records of each answer are a
    stratum."""

    levels: dict[Text, dict[Text, LevelAllocation]]
    """For each answer, by its label ("f / white" with two attributes), its geolevels from the root
    down without a gap. Their queries count only records of the stratum."""


class AllocationFile(Model):
    """conf/allocation/*.yaml: how rho is split over geolevels and queries."""

    later = ("mechanism", "strata")

    name: Text
    """Name of the allocation."""

    source: Text | None = None
    """Source of the shares."""

    mechanism: Text | None = Field(
        default=None,
        description="Name of the noise of all queries, one that `privacy.definition` can charge. "
        "Default: "
        + ", ".join(f"{chargeable(one)[0].kind} under {one}" for one in Definition)
        + ".",
    )
    levels: dict[Text, LevelAllocation]
    """Share and queries of each geolevel; the shares sum to 1. With `strata`, they sum to 1
    together with the shares of any one stratum."""

    strata: StrataAllocation | None = None
    """Queries of disjoint strata, in addition to `levels`. Shares of different strata do not add
    up, since each record is in one stratum."""
