"""Models of the sections of a product in a run file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from das.errors import ConfigError
from jobs.pipeline.config.models.data import AnyDataConfig, DataConfig, WithheldData
from jobs.pipeline.config.models.kinds.registry import AnyInvariant
from jobs.pipeline.config.models.values import (
    Delimiter,
    Exact,
    LeadingZeros,
    LocalPath,
    Model,
    StoredPath,
    Text,
    Whole,
)


class BudgetConfig(Model):
    """A total budget, stated in one of two ways."""

    rho: Exact | None = Field(default=None, gt=0)
    """Total budget under zcdp, exact. Give this or `epsilon`."""

    epsilon: Exact | None = Field(default=None, gt=0)
    """Under pure, the total budget, exact. Under zcdp, the total epsilon at `delta`; the largest
    rho that implies it is used."""

    @model_validator(mode="after")
    def _one_budget(self) -> BudgetConfig:
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError("give exactly one of `rho` and `epsilon`")
        return self


class ProductPrivacyConfig(BudgetConfig):
    """The budget of a product and its split over queries."""

    later = ("epsilon_from", "root_support_passes", "household_size", "protects")

    epsilon_from: Literal["rho", "noise"] = "rho"
    """Under zcdp, how `epsilon` follows. rho: from the total alone. noise: from the distribution of
    the noise of everything that is measured, which affords a larger rho; takes seconds."""

    household_size: Whole | None = Field(default=None, ge=2, le=1000)
    """Number of persons of the largest household. The privacy loss of whole households of at most
    this size is then stated everywhere; the noise stays the same."""

    protects: Literal["record", "household"] = "record"
    """What `rho` or `epsilon` is for. household: for every household of at most `household_size`
    persons, all of its records together. One record then has rho / size^2, or epsilon / size under
    pure; the account and the other statements are about one record."""

    allocation: LocalPath | None = None
    """Allocation file. Every command needs one but `das plan --optimize`, which makes one."""

    on_demand_queries: list[Text] = Field(default=[])
    """Queries of very many answers whose noise is drawn, below the root, only for answers about
    cells where the counts of the parent are positive; no other is ever read. Counts have the same
    distribution, and measurements of these queries are no longer complete: estimates are made of
    the others. They are measured geolevel by geolevel, each after the one above is solved."""

    root_support_passes: list[Text] = Field(default=[])
    """For schemas of many millions of cells: queries that are measured at the root, each finer than
    the one before. Their counts there are found first, one after the other; on-demand queries that
    are no sums of the last are then drawn at the root, too, for answers about cells below its
    positive counts alone. So nothing is as large as the schema."""

    product: Text | None = None
    """What is made of these people, such as persons or units, as the account names it. Default: the
    name of the schema."""

    @property
    def allocation_file(self) -> Path:
        """Return the path of the allocation file.

        Raises:
          ConfigError: The product names no allocation file.
        """
        if self.allocation is None:
            raise ConfigError("privacy.allocation", "is required")
        return self.allocation

    @model_validator(mode="after")
    def _target(self) -> ProductPrivacyConfig:
        if self.epsilon_from == "noise" and self.epsilon is None:
            raise ValueError("`epsilon_from: noise` goes with `epsilon`, not with `rho`")
        if self.protects == "household" and self.household_size is None:
            raise ValueError("`protects: household` needs `household_size`, such as 10")
        if self.protects == "household" and self.epsilon_from == "noise":
            raise ValueError("`protects: household` goes with `epsilon_from: rho` only")
        return self


class HousingUnitsConfig(Model):
    """Housing-unit covariate: predicts totals from housing units and the persons of the parent."""

    geolevels: list[Text]
    """Geolevels at which totals are predicted, such as block; not the root."""

    expect: Literal["totals", "composition"] = "totals"
    """totals: only totals of geounits are predicted. composition: also their cells, from the cells
    of the parent. Errors of cells are smaller, but concentrated groups lose more."""

    variance_factor: float = Field(default=2.0, ge=0.1, le=1000.0)
    """Factor of the variance of totals around the predicted totals, which is learned from noisy
    answers; composition uses twice this factor. 1 has the least error; 2 costs a twentieth of it,
    and large and small households are shrunk toward the mean a quarter to a half less."""

    only_if_better: bool = True
    """Whether the covariate is used only at geolevels where it lowers the error that is estimated
    from noisy answers alone."""


class LearnedConfig(Model):
    """Regressions that correct released answers."""

    geolevels: list[Text] = Field(min_length=1, max_length=1)
    """The geolevel whose counts are corrected, the last one: `[block]`."""

    file: Literal["self"] | LocalPath
    """File of the regressions, made by `das plan --learn` for the same schema, allocation and
    budget from public counts of other places. self: the run learns from its own noisy answers, by
    measuring and solving its release again."""


class SolveConfig(Model):
    """How noisy answers become consistent integers."""

    later = ("housing_units", "learned")

    rounding_passes: list[list[Text]] = Field(default=[["total"], ["detailed"]])
    """Rounding passes, each a list of queries whose sums stay closest to the real-valued solution;
    the sums of a pass are fixed for the passes after it. All queries in order must be nested,
    coarse before fine, and end in detailed."""

    tolerance: float = Field(default=1e-7, gt=0, lt=1e-2)
    """Largest accepted scaled optimality residual of a node; a node that does not reach it stops
    the run."""

    fit_to: Literal["tree", "level"] = "tree"
    """Estimates to which the counts of a geounit are fitted. tree: estimates from all noisy answers
    in the geounit and below it, except on-demand queries. level: noisy answers of its own
    geolevel."""

    empirical_bayes: list[Text] = Field(default=[])
    """Geolevels at which answers are fitted to their posterior means under priors learned from the
    noisy counts of the geolevel: less squared error where most counts are zero, and no longer the
    least-squares answer. Groups are understated where they are concentrated
    (docs/covariates.md)."""

    housing_units: HousingUnitsConfig | None = None
    """Predicts totals from housing units, which an invariant `living_quarters` counts. The squared
    error is smaller, and totals are shrunk toward the mean household of their parent. Unbiased
    estimates do not change."""

    learned: LearnedConfig | None = None
    """Corrects released counts by what was learned from simulated releases. Each kind of answer is
    corrected only where this lowers the error that is estimated from noisy answers alone. Unbiased
    estimates do not change."""

    l2_passes: dict[Text, list[list[Text]]] = Field(default={})
    """Least-squares passes by geolevel, each a list of measured queries whose answers are fixed for
    the passes after it; queries not named follow in a last pass. Default: one pass."""

    round_l2_passes: bool = False
    """Whether the answers of a pass of `l2_passes` are rounded before later passes keep them, as in
    2020. One query of each pass must then refine all others, those of earlier passes and all exact
    queries."""

    method: Literal["nnls", "sequential", "reweighted", "maxfit"] = "nnls"
    """nnls: nonnegative least squares. sequential: one query after the other, coarse first.
    reweighted: answers that look like noise alone get less weight. maxfit: the smallest possible
    largest deviation, for small nodes."""

    least_squares: Literal["structured", "piqp", "gurobi"] = "structured"
    """Solver of the continuous stage."""

    integers: Literal["highs", "gurobi"] = "highs"
    """Solver of integer problems that are not network flows."""

    failsafe: Literal["exact", "penalty", "none"] = "exact"
    """Action if no children keep their constraints and sum to their parent. exact: the parent moves
    to the nearest counts to which children can sum. penalty: the parent moves to the sum of the
    children that fit their noisy answers best, with a penalty on moved persons, as in the 2020
    system. Both are reported, and added to all geounits above. none: the run stops."""


class GeolevelTableConfig(Model):
    """A table at some geolevels only."""

    query: Text
    """The query, such as `sex * age`."""

    geolevels: list[Text] = Field(min_length=1)
    """Geolevels of the table, such as `[county, tract]`. Estimates of the query are made at every
    geolevel."""


AnyTable = Annotated[
    Annotated[Text, Tag("all")] | Annotated[GeolevelTableConfig, Tag("some")],
    Discriminator(lambda entry: "some" if isinstance(entry, dict | GeolevelTableConfig) else "all"),
]
TableFormat = Literal["csv", "parquet", "xlsx"]
_TABLE_FORMATS: list[TableFormat] = ["csv", "parquet"]


class JoinedConfig(Model):
    """Microdata in which every record has the number of the unit it lives in."""

    file_formats: list[Literal["parquet", "csv"]] = Field(default=["parquet", "csv"], min_length=1)
    """Formats of the file."""

    householder_first: dict[Text, list[Text]] = Field(default={})
    """Levels of attributes or recodes whose records are assigned first, such as `{votingage:
    [18_and_over]}`. Other records are alone in a unit only if there are too few of these. Default:
    no record comes first."""

    match_on: list[Text] = Field(default=[])
    """Attributes or recodes that records of a unit should share, such as `[ethnicity_race]`.
    Records join a householder of the same level while there are any. If the product of the units
    has this attribute or recode with these levels, householders get units of their level."""

    seed: Whole = Field(default=0, ge=0, lt=2**63)
    """Public number that, with the geocode, decides the random part of the assignment."""


class ProductOutputConfig(Model):
    """Microdata and tables that are written of a product."""

    later = ("table_formats", "table_numbers", "intervals", "joined")

    microdata: list[Literal["parquet", "csv"]] = Field(default=["parquet", "csv"])
    """Formats of the microdata, one row per record."""

    tables: list[AnyTable] | None = None
    """Tables, each a query for all geolevels, or a query with `geolevels`. Functions such as
    prefix(age) are allowed. Default: total and every single attribute; at the last geolevel only
    the total, with estimates of the others."""

    table_formats: list[TableFormat] = Field(default=_TABLE_FORMATS)
    """Formats of the files of tables. xlsx is for spreadsheet programs, which can change values of
    CSV files."""

    table_numbers: Literal["point", "comma"] = "point"
    """How CSV files of tables are written. comma: decimal commas, and semicolons between fields, as
    spreadsheet programs of most of Europe and Latin America read them."""

    intervals: bool = True
    """Whether counts in tables have intervals. They take up to 30 % more core seconds."""

    h1: Text | None = None
    """Attribute or recode with the levels `occupied` and `vacant`, of which table H1 is written:
    all, occupied and vacant housing units."""

    joined: JoinedConfig | None = None
    """Microdata of this product with the unit of each record. The units are an earlier product,
    connected by `cross_product_constraints`. Default: none."""


class AreasFile(Model):
    """Public table of the types of geounits, such as urban and rural."""

    path: StoredPath
    """CSV or Parquet file with one row for each geounit of the geolevel."""

    geocode: Text = "geocode"
    """Column with the geocode."""

    type: Text = "type"
    """Column with the type, as text."""

    delimiter: Delimiter = ","
    leading_zeros: LeadingZeros = "kept"


class EvaluateConfig(Model):
    """Groups for which a release is compared with the truth; released counts do not change."""

    groups: list[Text] | None = None
    """Queries; each of their answers is a group of records. Every record counts in one of them.
    Default: every attribute alone."""

    areas: dict[Text, AreasFile] = Field(default={})
    """For each geolevel, a public table of the types of its geounits. Each type is a group, at this
    and all finer geolevels."""

    tables: list[Text] | None = None
    """Queries whose errors are added up in every group; each must count every record once. The
    total of the group is always included. Default: the queries of output.tables that count every
    record once."""

    floor: Whole = Field(default=10, ge=1)
    """Relative errors are stated for groups of at least this number of records. In a group of fewer
    than 10, one record is more than a tenth."""


class ProductConfig(Model):
    """A product of a run: its records, measurements and outputs."""

    schema_: LocalPath = Field(alias="schema")
    """Schema file."""

    data: AnyDataConfig
    """Confidential input."""

    privacy: ProductPrivacyConfig
    """Budget of the product and its split."""

    invariants: list[AnyInvariant] = Field(default=[])
    """Values published exactly, and other constraints of the counts."""

    solve: SolveConfig = Field(default_factory=SolveConfig)
    """Solver settings."""

    output: ProductOutputConfig = Field(default_factory=ProductOutputConfig)
    """Microdata and tables to write."""

    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    """Groups for which the product is compared with the truth."""

    @property
    def input(self) -> DataConfig:
        """Return the confidential input.

        Raises:
          ConfigError: The configuration is that of a release, which has no confidential input.
        """
        if isinstance(self.data, WithheldData):
            raise ConfigError(
                "data.input_format withheld",
                "belongs to the configuration published with a release, whose data are not here",
                remedy="use the run file from which the release was made",
            )
        return self.data
