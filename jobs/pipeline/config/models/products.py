"""Models of what a run file says of a product."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from das.errors import ConfigError
from jobs.pipeline.config.models.data import AnyDataConfig, DataConfig, WithheldData
from jobs.pipeline.config.models.evaluation import EvaluateConfig
from jobs.pipeline.config.models.kinds.registry import AnyInvariant
from jobs.pipeline.config.models.values import Exact, LocalPath, Model, Text, Whole


class BudgetConfig(Model):
    """A total budget, stated in one of two ways."""

    rho: Exact | None = Field(
        default=None, description="Total budget under zcdp, exact. Give this or `epsilon`."
    )
    epsilon: Exact | None = Field(
        default=None,
        description="Under pure, the total budget, exact. Under zcdp, the total epsilon at "
        "`delta`; the largest rho that implies it is used.",
    )

    @model_validator(mode="after")
    def _one_budget(self) -> BudgetConfig:
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError("give exactly one of `rho` and `epsilon`")
        for name in ("rho", "epsilon"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive; got {value}")
        return self


class ProductPrivacyConfig(BudgetConfig):
    """The budget of a product and its split."""

    epsilon_from: Literal["rho", "noise"] = Field(
        default="rho",
        description="Under zcdp, how `epsilon` follows. rho: from the total alone. noise: from the "
        "distribution of the noise of everything that is measured, which affords a larger rho; "
        "takes seconds.",
    )
    allocation: LocalPath | None = Field(
        default=None,
        description="Allocation file. Every command needs one but `das plan --optimize`, which "
        "makes one.",
    )
    lazy_queries: list[Text] = Field(
        default=[],
        description="Queries of very many answers whose noise is drawn, below the root, only for "
        "answers about cells where the counts of the parent are positive; no other is ever read. "
        "Counts have the same distribution, and measurements of these queries are no longer "
        "complete: estimates are made of the others. They are measured geolevel by geolevel, each "
        "after the one above is solved.",
    )
    root_support: list[Text] = Field(
        default=[],
        description="For schemas of many millions of cells: queries that are measured at the root, "
        "each finer than the one before. Their counts there are found first, one after the other; "
        "lazy queries that are no sums of the last are then drawn at the root, too, for answers "
        "about cells below its positive counts alone. So nothing is as large as the schema.",
    )
    product: Text | None = Field(
        default=None,
        description="What is made of these people, such as persons or units, as the account names "
        "it. Default: the name of the schema.",
    )

    @property
    def allocation_file(self) -> Path:
        """The allocation file.

        Raises:
          ConfigError: None is named.
        """
        if self.allocation is None:
            raise ConfigError("privacy.allocation", "is required")
        return self.allocation

    @model_validator(mode="after")
    def _target(self) -> ProductPrivacyConfig:
        if self.epsilon_from == "noise" and self.epsilon is None:
            raise ValueError("`epsilon_from: noise` goes with `epsilon`, not with `rho`")
        return self


class HousingUnitsConfig(Model):
    """Totals of geounits expected by their housing units and the persons of their parent."""

    geolevels: list[Text] = Field(
        description="Where totals are expected, such as block; not the root."
    )
    expect: Literal["totals", "composition"] = Field(
        default="totals",
        description="totals: of geounits alone. composition: of their cells too, by those of the "
        "parent; less error in cells, and groups lose more where they are concentrated.",
    )
    kappa: float = Field(
        default=2.0,
        ge=0.1,
        le=1000.0,
        description="Factor of the variance of totals around what is expected, which is learned "
        "from noisy answers, and of twice that of composition. 1 has the least error; 2 costs a "
        "twentieth of it, and large and small households are shrunk toward the mean a quarter "
        "to a half less.",
    )
    certified: bool = Field(
        default=True,
        description="Whether they are used only at geolevels where the error that is estimated "
        "from noisy answers alone is less with them than without.",
    )


def _failsafe(value: object) -> object:
    """The failsafe of files that could only say whether there is one."""
    return {True: "exact", False: "none"}[value] if isinstance(value, bool) else value


class SolveConfig(Model):
    """How noisy answers become consistent integers."""

    rounding: list[list[Text]] = Field(
        default=[["total"], ["detailed"]],
        description="Rounding passes, each a list of queries whose sums stay closest to the "
        "real-valued solution; the sums of a pass are fixed for the passes after it. All queries "
        "in order must be nested, coarse before fine, and end in detailed.",
    )
    tolerance: float = Field(
        default=1e-7,
        gt=0,
        lt=1e-2,
        description="Largest accepted scaled optimality residual of a node; a node that does not "
        "reach it stops the run.",
    )
    targets: Literal["full", "own"] = Field(
        default="full",
        description="What a geounit's counts are fitted to. full: the estimate from all "
        "measurements in it and below it, of queries that are not lazy; own: from those of its own "
        "geolevel.",
    )
    learned_prior: list[Text] = Field(
        default=[],
        description="Geolevels at which cells are fitted to their posterior means under a prior "
        "learned from the noisy counts of the geolevel: less squared error where most counts are "
        "zero, and no longer the least-squares answer. Groups are understated where they are "
        "concentrated, by about a fifth (docs/covariates.md).",
    )
    housing_units: HousingUnitsConfig | None = Field(
        default=None,
        description="Where totals are expected by housing units, which an invariant "
        "`living_quarters` counts: less squared error, and totals shrunk toward the mean "
        "household of their parent. Estimates stay as they are.",
    )
    order: dict[Text, list[list[Text]]] = Field(
        default={},
        description="Least-squares passes by geolevel, each a list of measured queries whose "
        "answers are fixed for the passes after it; queries not named follow in a last pass. "
        "Default: one pass.",
    )
    round_passes: bool = Field(
        default=False,
        description="Whether the answers that a pass of `order` finds are rounded before they are "
        "fixed, as in 2020; then one query of each pass refines all others, those of passes before "
        "and all exact ones.",
    )
    method: Literal["nnls", "sequential", "reweighted", "maxfit"] = Field(
        default="nnls",
        description="nnls: nonnegative least squares. sequential: one query after the other, "
        "coarse first. reweighted: answers that look like noise alone count less. maxfit: the "
        "least largest deviation, for small nodes.",
    )
    least_squares: Literal["structured", "piqp", "gurobi"] = Field(
        default="structured", description="Solver of the continuous stage."
    )
    integers: Literal["highs", "gurobi"] = Field(
        default="highs", description="Solver of integer stages that are no flow."
    )
    failsafe: Annotated[Literal["exact", "penalty", "none"], BeforeValidator(_failsafe)] = Field(
        default="exact",
        description="What happens where no children keep their constraints and add up to their "
        "parent. exact: the parent moves to the nearest counts that children add up to. penalty: "
        "to the sum of the children that fit their noisy answers best with a penalty on what the "
        "parent moves, as in the 2020 system. Either is reported, and carried up to all geounits "
        "above. none: the run stops. Older files say true for exact and false for none.",
    )

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is not asked is left out, as it was before it could be: digests stay as they are."""
        document: dict[str, Any] = handler(self)
        if self.housing_units is None:
            document.pop("housing_units", None)
        if self.failsafe != "penalty":
            document["failsafe"] = self.failsafe == "exact"
        return document


class GeolevelTableConfig(Model):
    """A table of some geolevels."""

    query: Text = Field(description="The query, such as `sex * age`.")
    geolevels: list[Text] = Field(
        min_length=1,
        description="Where it is written, such as `[county, tract]`. Estimates of it are made at "
        "every geolevel.",
    )


def _kind_of_table(entry: object) -> str:
    return "some" if isinstance(entry, dict | GeolevelTableConfig) else "all"


AnyTable = Annotated[
    Annotated[Text, Tag("all")] | Annotated[GeolevelTableConfig, Tag("some")],
    Discriminator(_kind_of_table),
]
TableFormat = Literal["csv", "parquet", "xlsx"]
_TABLE_FORMATS: list[TableFormat] = ["csv", "parquet"]


class JoinedConfig(Model):
    """Microdata in which every record has the number of the unit it lives in."""

    formats: list[Literal["parquet", "csv"]] = Field(
        default=["parquet", "csv"], min_length=1, description="Formats of the file."
    )
    adults: dict[Text, list[Text]] = Field(
        default={},
        description="Levels of attributes or recodes of records that come first, such as "
        "`{votingage: [18_and_over]}`: others are alone in a unit only where there are too few of "
        "them. Default: nobody comes first.",
    )
    alike: list[Text] = Field(
        default=[],
        description="Attributes or recodes that units have in common, such as `[ethnicity_race]`: "
        "records come to a householder of the same level, as far as there are any; where the "
        "product of the units has an attribute or recode of this name and these levels, "
        "householders come to a unit of theirs.",
    )
    seed: Whole = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="Public number that, with the geocode, draws who lives with whom beyond that.",
    )


class ProductOutputConfig(Model):
    """What is written of a product."""

    microdata: list[Literal["parquet", "csv"]] = Field(
        default=["parquet", "csv"], description="Formats of the microdata, one row per record."
    )
    tables: list[AnyTable] | None = Field(
        default=None,
        description="Tables, each a query for all geolevels, or a query with `geolevels`; may also "
        "use functions such as prefix(age). Default: total and every attribute alone; at the last "
        "geolevel only total, of the others estimates.",
    )
    table_formats: list[TableFormat] = Field(
        default=_TABLE_FORMATS,
        description="Formats of the files of tables. xlsx is for spreadsheets: they spoil CSV.",
    )
    h1: Text | None = Field(
        default=None,
        description="Attribute or recode with the levels `occupied` and `vacant`, of which table "
        "H1 is written: all, occupied and vacant housing units.",
    )
    joined: JoinedConfig | None = Field(
        default=None,
        description="Microdata of this product with the units of the product that `between` ties "
        "it to, which comes before. Default: none.",
    )

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is not asked is left out, as it was before it could be: digests stay as they are."""
        document: dict[str, Any] = handler(self)
        if self.table_formats == _TABLE_FORMATS:
            document.pop("table_formats", None)
        if self.joined is None:
            document.pop("joined", None)
        return document


class ProductConfig(Model):
    """A product of a run: what is measured of one kind of records, and what is made of it."""

    schema_: LocalPath = Field(alias="schema", description="Schema file.")
    data: AnyDataConfig = Field(description="Confidential input.")
    privacy: ProductPrivacyConfig = Field(description="Budget and its split.")
    invariants: list[AnyInvariant] = Field(default=[], description="What is published exactly.")
    solve: SolveConfig = Field(default_factory=SolveConfig, description="Solver settings.")
    output: ProductOutputConfig = Field(
        default_factory=ProductOutputConfig, description="What is written of it."
    )
    evaluate: EvaluateConfig = Field(
        default_factory=EvaluateConfig, description="For whom it is compared with the truth."
    )

    @property
    def input(self) -> DataConfig:
        """The confidential input.

        Raises:
          ConfigError: This is the configuration of a release, which has none.
        """
        if isinstance(self.data, WithheldData):
            raise ConfigError(
                "data.format withheld",
                "is of the configuration of a release, whose data are not here",
                remedy="use the run file that made it",
            )
        return self.data
