"""Models of survey run files: means, tables and microdata of a file without geography."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from das.workload.choices import LossKind
from das.workload.workload import Weighting
from jobs.pipeline.config.models.allocation import ConvexLossConfig
from jobs.pipeline.config.models.products import BudgetConfig
from jobs.pipeline.config.models.run import OutputConfig, PrivacyConfig
from jobs.pipeline.config.models.values import (
    SURVEY,
    Delimiter,
    Exact,
    LocalPath,
    Model,
    ProductName,
    Quoting,
    StoredPath,
    Text,
    Whole,
)

_LARGEST_VALUE = 1 << 28  # of a numeric column and of clipping bounds; default, not measured

Share = Annotated[Exact, Field(gt=0)]
Part = Annotated[Exact, Field(gt=0, lt=1)]
MinShare = Annotated[Exact, Field(ge=0, lt=1)]
Value = Annotated[Whole, Field(ge=-_LARGEST_VALUE, le=_LARGEST_VALUE)]


class SurveyPrivacyConfig(PrivacyConfig, BudgetConfig):
    """Privacy definition, budget and account of a survey run."""

    product: ProductName = Field(
        default=SURVEY, description="What the account calls that which is made."
    )


class SurveyColumn(Model):
    """Column of the survey file and the levels of its attribute, by codes or by public bins."""

    column: Text = Field(description="Column of the file.")
    codes: dict[Text, Text] | None = Field(
        default=None,
        description="Legal value in the file to the label of its level, in the order of levels; an "
        'empty value is `""`. Give this or `bins`.',
    )
    bins: list[Value] | None = Field(
        default=None,
        description="Public lower edges of the bins of a column of whole numbers, rising. The "
        "last bin takes all larger numbers; a number below the first edge is an error.",
    )
    missing: dict[Text, Text] = Field(
        default={},
        description="With `bins`: value in the file that is no number, to the label of its level, "
        'such as {"": not stated}. Anything else that is no number is an error.',
    )

    @model_validator(mode="after")
    def _one_of(self) -> SurveyColumn:
        if (self.codes is None) == (self.bins is None):
            raise ValueError("give exactly one of `codes` and `bins`")
        if self.codes is not None and self.missing:
            raise ValueError("`missing` goes with `bins`; among `codes` it is a code like others")
        if self.bins is not None:
            if any(low >= high for low, high in pairwise(self.bins)):
                raise ValueError("`bins` must rise")
            both = {*self.missing.values()} & {*bin_labels(self.bins)}
            if both:
                raise ValueError(f"`missing` gives {sorted(both)[0]!r} the label of a bin")
        if len(self.levels) < 2:
            raise ValueError("needs two levels or more")
        return self

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the labels of the levels, in order."""
        if self.bins is None:
            return tuple(dict.fromkeys((self.codes or {}).values()))
        return (*bin_labels(self.bins), *dict.fromkeys(self.missing.values()))


def bin_labels(edges: list[int]) -> list[str]:
    """Return the labels of the bins with these lower edges.

    >>> bin_labels([0, 10, 11, 20])
    ['0 to 9', '10', '11 to 19', '20 and over']
    """
    inner = [
        f"{low} to {high - 1}" if low < high - 1 else f"{low}" for low, high in pairwise(edges)
    ]
    return [*inner, f"{edges[-1]} and over"] if edges else []


class SurveyData(Model):
    """Survey file: one row per person, one column per attribute."""

    path: StoredPath = Field(description="CSV or Parquet file, or a folder of such files.")
    delimiter: Delimiter = Field(default=",", description="Field separator of CSV files.")
    quoting: Quoting = "double"
    n_records: Whole = Field(
        ge=1,
        description="Public number of records, by which means are divided and of which microdata "
        "are made. With bounded neighbors it is not protected, so a file with another number is an "
        "error.",
    )
    columns: dict[Text, SurveyColumn] = Field(
        min_length=1, description="Attribute to how it is read; in this order in the microdata."
    )


class StatisticConfig(Model):
    """Mean of a numeric column, for all records and by strata."""

    mean: Text = Field(description="Attribute with `bins`, whose values are averaged.")
    name: ProductName | None = Field(
        default=None, description="What it is called; default: the attribute."
    )
    share: Share = Field(description="Of the budget; all shares of the file sum to exactly 1.")
    low: Value = Field(description="Public: no stratum has a mean below it.")
    high: Value = Field(description="Public: no stratum has a mean above it.")
    sd_bound: float = Field(
        gt=0,
        le=_LARGEST_VALUE,
        description="Public: standard deviation of the values within a stratum, about. Too small a "
        "one clips the tails, and biases the mean; too large a one costs noise.",
    )
    method: Literal["coinpress", "clipped"] = Field(
        default="coinpress",
        description="coinpress: clip ever narrower, zcdp alone. clipped: clip once.",
    )
    steps: Whole = Field(default=2, ge=1, le=20, description="Steps of coinpress.")
    miss_probability: Part = Field(
        default=Fraction(1, 10),
        description="Probability with which the interval of a stratum may miss its mean.",
    )
    intersect: bool = Field(
        default=True,
        description="Whether a step of coinpress keeps to the interval before; costs nothing.",
    )
    shrink: bool = Field(
        default=False,
        description="Whether means of strata are drawn together as far as their noise says; costs "
        "nothing, and may be changed after measuring.",
    )
    missing: Value | Literal["exclude"] | None = Field(
        default=None,
        description="What missing values count as: a number, or `exclude`, by which public sizes "
        "are those of records with a value. Required where the column has `missing`.",
    )
    stratify_by: list[Text] = Field(
        default=[], description="Attributes whose combinations are the strata; none: one stratum."
    )
    weights: LocalPath | None = Field(
        default=None,
        description="Public CSV file with one column per attribute of `stratify_by`, `weight`, "
        "and perhaps `size`; one row per stratum. Weights are shares of the population, and sum to "
        "exactly 1. Sizes are public numbers of records; default: weight times `data.n_records`.",
    )
    min_share: MinShare = Field(
        default=Fraction(0),
        description="Strata whose public size is a smaller part of all are pooled.",
    )

    @model_validator(mode="after")
    def _fits(self) -> StatisticConfig:
        if self.low >= self.high:
            raise ValueError(f"`low` must be below `high`; got {self.low} and {self.high}")
        if bool(self.stratify_by) != (self.weights is not None):
            raise ValueError("`stratify_by` and `weights` go together")
        if self.method == "clipped" and "steps" in self.model_fields_set:
            raise ValueError("`steps` goes with method coinpress")
        return self

    @property
    def label(self) -> str:
        """Return the name of the statistic; default: its attribute."""
        return self.name or self.mean


class TableConfig(Model):
    """Small table of counts, released with noise and some exact marginals."""

    query: Text = Field(description='Its attributes, such as "sex * race".')
    name: ProductName | None = Field(
        default=None, description="What it is called; default: its attributes, joined by `_`."
    )
    share: Share = Field(description="Of the budget; all shares of the file sum to exactly 1.")
    exact: list[Text] = Field(
        default=[],
        description="Marginals of the table that are published as they are, without protection, "
        'such as ["sex"], and that the released table keeps. None: the number of records alone.',
    )
    method: Literal["conditioned"] = Field(
        default="conditioned",
        description="conditioned: two-sided geometric noise on every count, given that the "
        "marginals are kept and no count is negative; drawn exactly; definition pure alone.",
    )

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the attributes of the table."""
        return attributes_of(self.query)

    @property
    def label(self) -> str:
        """Return the name of the table; default: its attributes, joined by `_`."""
        return self.name or "_".join(self.attributes)


def attributes_of(table: str) -> tuple[str, ...]:
    """Split the text of a table into its attributes.

    >>> attributes_of("sex * race")
    ('sex', 'race')
    """
    return tuple(name.strip() for name in table.split("*"))


class SynthesisStrataConfig(Model):
    """Strata of microdata: measured separately, and shrunk toward a model of all records."""

    attributes: list[Text] = Field(
        min_length=1, description="Attributes whose combinations are the strata."
    )
    weights: LocalPath | None = Field(
        default=None,
        description="Public CSV file as for means; its weights are the shares of the microdata. "
        "Default: the sizes of the strata are measured.",
    )
    sizes_share: Part = Field(
        default=Fraction(1, 20),
        description="Without `weights`: part of the share that measures the sizes of the strata.",
    )
    min_share: MinShare = Field(
        default=Fraction(1, 1000), description="Strata of at most this weight are pooled."
    )
    population_model_share: Part = Field(
        default=Fraction(2, 3),
        description="Part of the share, after the sizes, that measures all records together; the "
        "rest measures the strata.",
    )

    @model_validator(mode="after")
    def _fits(self) -> SynthesisStrataConfig:
        if self.weights is not None and "sizes_share" in self.model_fields_set:
            raise ValueError("`sizes_share` has no effect with `weights`")
        return self


# Models that read a key of `SynthesisConfig`; all models read the others.
_MODELS_OF = {
    **dict.fromkeys(("one_way_share", "n_remeasured_pairs", "weighting"), ("mixture",)),
    **dict.fromkeys(("components", "n_fits"), ("mixture", "gem")),
    "steps_per_round": ("adaptive", "gem"),
    "max_model_megabytes": ("adaptive",),
}


class SynthesisConfig(Model):
    """Microdata drawn from a model of noisy marginals."""

    share: Share = Field(description="Of the budget; all shares of the file sum to exactly 1.")
    attributes: list[Text] | None = Field(
        default=None, description="Attributes of the microdata; default: all."
    )
    model: Literal["mixture", "tree", "adaptive", "gem"] = Field(
        default="mixture",
        description="mixture: all one- and two-way marginals are measured, and a mixture of "
        "products fitted to them. tree: a tree of pairs is selected and measured (MST). adaptive: "
        "marginals are selected in rounds by what the model misses most (AIM); slow. gem: in such "
        "rounds, with a mixture as the model (GEM).",
    )
    strata: SynthesisStrataConfig | None = Field(
        default=None,
        description="Strata that are measured apart, in parallel, and shrunk toward all records.",
    )
    one_way_share: Part = Field(
        default=Fraction(3, 20),
        description="Of a mixture without strata: part of the share for one-way counts, by which "
        "rare levels are merged.",
    )
    n_remeasured_pairs: Whole = Field(
        default=40,
        ge=0,
        le=10_000,
        description="Of a mixture without strata: pairs that are measured once more, those that "
        "stand out in the noisy answers; half of what is left of the share goes there.",
    )
    weighting: Weighting = Field(
        default=Weighting.SQUARE_ROOT,
        description="Of a mixture: how much the average variance of the cells of a marginal counts "
        "when the share is divided among marginals: each as much (`equal`), by the root of its "
        "cells (`square_root`), or by its cells (`cell_size`), which gives large tables more.",
    )
    max_model_megabytes: Whole = Field(
        default=8, ge=1, le=1024, description="Of adaptive: largest model between rounds."
    )
    steps_per_round: Whole = Field(
        default=100,
        ge=1,
        le=100_000,
        description="Of adaptive and gem: steps of the fit after each round.",
    )
    components: Whole = Field(
        default=200,
        ge=1,
        le=10_000,
        description="Of each fit of a mixture or of gem; may be changed after measuring.",
    )
    n_fits: Whole = Field(
        default=12,
        ge=1,
        le=1000,
        description="Fits of a mixture or of gem, of which the mean is taken; may be changed after "
        "measuring.",
    )
    steps: Whole = Field(
        default=400, ge=1, le=100_000, description="Of a fit; may be changed after measuring."
    )
    seed: Whole = Field(
        default=1,
        ge=0,
        description="Of the fit and of drawing records, which see no data; may be changed after "
        "measuring.",
    )
    n_records: Whole | None = Field(
        default=None,
        ge=1,
        description="Records of the microdata; default: `data.n_records`. May be changed after "
        "measuring.",
    )

    @model_validator(mode="after")
    def _fits(self) -> SynthesisConfig:
        foreign = {key for key, models in _MODELS_OF.items() if self.model not in models}
        if self.strata is not None:
            foreign |= {"one_way_share", "n_remeasured_pairs"}
        if wrong := sorted(foreign & self.model_fields_set):
            other = "with strata" if self.strata is not None else f"with model {self.model}"
            raise ValueError(f"`{wrong[0]}` has no effect {other}")
        return self


class MarginalsConfig(Model):
    """Unbiased noisy tables of counts, any of whose sums have known errors."""

    share: Share = Field(description="Of the budget; all shares of the file sum to exactly 1.")
    tables: list[Text] | None = Field(
        default=None, min_length=1, description='Such as ["sex * race", age]; this or `ways`.'
    )
    ways: Whole | None = Field(
        default=None, ge=1, description="Plan for all tables of up to so many attributes."
    )
    bases: dict[Text, list[Text | list[Whole]]] = Field(
        default={},
        description="Attribute to what its tables ask of it, stacked: identity (the default), "
        "prefix, ranges, or rows of integers with one per level, which determine the total.",
    )
    weighting: Weighting = Field(
        default=Weighting.EQUAL,
        description="How much the average variance of a table counts: each as much (`equal`), by "
        "the root of its answers (`square_root`), or by its answers (`cell_size`).",
    )
    loss: LossKind | ConvexLossConfig = Field(
        default=LossKind.SUM_OF_VARIANCES,
        description="sum_of_variances: of the averages (pure: only this); largest_variance: of any "
        "answer; or a convex loss with a parameter.",
    )
    written: list[Text] | None = Field(
        default=None,
        description="Tables in CSV files; default: all planned. May be changed after measuring.",
    )
    confidence: Annotated[Exact, Field(gt=Fraction(1, 2), lt=1)] = Field(
        default=Fraction(9, 10), description="Of intervals; may be changed after measuring."
    )

    @model_validator(mode="after")
    def _fits(self) -> MarginalsConfig:
        if (self.tables is None) == (self.ways is None):
            raise ValueError("give exactly one of `tables` and `ways`")
        if self.loss is LossKind.LARGEST_VARIANCE and "weighting" in self.model_fields_set:
            raise ValueError("`weighting` has no effect with loss largest_variance")
        return self


class PredictConfig(Model):
    """Classifier trained on the microdata and tested on the true records."""

    attribute: Text = Field(description="What is predicted: an attribute of the microdata.")
    levels: list[Text] = Field(
        min_length=1, description="Labels of its levels that count as positive; not all of them."
    )
    features: list[Text] | None = Field(
        default=None,
        description="Attributes by which it is predicted; default: all others of the microdata.",
    )


class SurveyEvaluateConfig(Model):
    """Further comparisons of `das evaluate`; they are not released."""

    groups: list[Annotated[list[Text], Field(min_length=1)]] = Field(
        default=[],
        description="Sets of attributes of the microdata whose combinations are groups, such as "
        "[[sex, race]], in addition to the `strata` of the statistics.",
    )
    floor: Whole = Field(
        default=50,
        ge=1,
        description="Shares of fewer true records are left out of largest disparities and of "
        "parity of predictions: a share of 50 records has a standard error of up to 0.07.",
    )
    predict: PredictConfig | None = Field(
        default=None, description="What a classifier of the microdata does to `groups`."
    )


class SurveyConfig(Model):
    """conf/run/survey.yaml: means, tables and microdata of one survey file."""

    later = ("marginals",)

    kind: Literal["survey"] = Field(description="That this is the run file of a survey.")
    format: Literal[3] = Field(description="How this file is written: 3.")
    name: Text = Field(description="Name of the run.")
    privacy: SurveyPrivacyConfig = Field(description="What protection means, and the account.")
    data: SurveyData = Field(description="The survey file; confidential.")
    statistics: list[StatisticConfig] = Field(default=[], description="Means.")
    contingency_tables: list[TableConfig] = Field(
        default=[], description="Tables of counts that keep exact marginals."
    )
    synthesis: SynthesisConfig | None = Field(default=None, description="Microdata.")
    marginals: MarginalsConfig | None = Field(
        default=None, description="Unbiased noisy tables of counts, planned together."
    )
    evaluate: SurveyEvaluateConfig = Field(
        default_factory=SurveyEvaluateConfig,
        description="What `das evaluate` looks at besides; may be changed after measuring.",
    )
    output: OutputConfig = Field(description="Where everything is written.")


class WithheldSurveyData(SurveyData):
    """Survey file in the configuration of a release: its columns, without its path."""

    path: StoredPath = Field(
        default=Path("withheld"), description="Nothing: the data stay where they are."
    )


class ReleasedSurveyConfig(SurveyConfig):
    """configuration/run.yaml of a release of a survey."""

    data: WithheldSurveyData = Field(description="The survey file, which is not there.")
    output: OutputConfig = Field(
        default=OutputConfig(directory=Path("..")), description="Nothing: it lies in the release."
    )
