"""Models of allocation files."""

from __future__ import annotations

from pydantic import Field, model_validator

from das.definition import Definition
from das.mechanisms.registry import chargeable
from das.workload.plan import LossKind, Method
from jobs.config.models.values import Exact, Model, Text


class WorkloadConfig(Model):
    """What should be accurate at a geolevel; the planner chooses what is measured."""

    method: Method = Field(
        default=Method.AUTO,
        description="residual_planner: plain counts; residual_planner_plus, orp: any base; hdmm: "
        "Kronecker products; auto: the best of all within reach.",
    )
    loss: LossKind = Field(
        default=LossKind.SUM_OF_VARIANCES,
        description="sum_of_variances: of all answers, weighted by table; largest_variance: of any "
        "answer.",
    )
    tables: dict[Text, Exact] = Field(
        description='Tables ("total", "detailed" or attributes joined by "*") to the weight of the '
        "mean variance of their answers. Together they must have full column rank, as detailed has."
    )
    bases: dict[Text, list[Text]] = Field(
        default={},
        description="Attribute to what its tables ask of it: identity, prefix, ranges or recodes "
        "of it, stacked. Default: identity.",
    )


class LevelAllocation(Model):
    """Share of one geolevel, and of its queries or the workload they are planned for."""

    share: Exact = Field(description='Exact share of the budget, such as "1440/4099".')
    queries: dict[Text, Exact] | None = Field(
        default=None,
        description='Query ("total", "detailed" or names joined by "*") to its exact share of the '
        "geolevel; shares sum to 1. Give this or `workload`.",
    )
    workload: WorkloadConfig | None = Field(
        default=None,
        description="Measure what is best for these tables. Give this or `queries`; zcdp only.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> LevelAllocation:
        if (self.queries is None) == (self.workload is None):
            raise ValueError("give exactly one of `queries` and `workload`")
        return self


class AllocationFile(Model):
    """conf/allocation/*.yaml: how rho is split over geolevels and queries."""

    name: Text = Field(description="Name of the allocation.")
    source: Text | None = Field(default=None, description="Where the numbers come from.")
    mechanism: Text | None = Field(
        default=None,
        description="Name of the noise of all queries, one that `privacy.definition` can charge. "
        "Default: "
        + ", ".join(f"{chargeable(one)[0].kind} under {one}" for one in Definition)
        + ".",
    )
    levels: dict[Text, LevelAllocation] = Field(
        description="Geolevel to its share and queries; level shares sum to 1."
    )
