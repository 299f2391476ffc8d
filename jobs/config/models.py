"""Models of the YAML files. The only place that knows what a configuration file may say.

Every model is frozen and refuses unknown keys. Each field's description becomes the configuration
reference in docs/configuration.md.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from das.errors import BudgetError
from das.planning.auto import LossKind, Method
from das.privacy.budget import Definition
from das.queries.sensitivity import Neighbors
from das.rational import parse_fraction


def _exact(value: object) -> Fraction:
    try:
        return parse_fraction(value, "value")
    except BudgetError as error:
        raise ValueError(str(error).removeprefix("value: ")) from None


def _text(value: object) -> object:
    """YAML reads an unquoted 01 or yes as a number or a bool; codes are always text."""
    if isinstance(value, bool | float):
        raise ValueError(f"must be text; put quotes around it; got {value!r}")
    return str(value) if isinstance(value, int) else value


Exact = Annotated[Fraction, BeforeValidator(_exact)]
Text = Annotated[str, BeforeValidator(_text)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


# --- schema files -------------------------------------------------------------------------------


class AttributeFile(_Model):
    """One attribute of a schema file."""

    name: Text = Field(description="Name used in queries and as microdata column.")
    levels: list[Text] = Field(description="Labels of the levels, in order.")


class RecodeFile(_Model):
    """One recode of a schema file."""

    name: Text = Field(description="Name used in queries.")
    attribute: Text = Field(description="Attribute whose levels are grouped.")
    groups: dict[Text, list[Text]] = Field(
        description="Group label to the levels in it; every level in exactly one group."
    )


class SchemaFile(_Model):
    """conf/schema/*.yaml: the attributes of a histogram and the recodes queries may use."""

    name: Text = Field(description="Name of the schema.")
    attributes: list[AttributeFile] = Field(description="Axes in order; the last varies fastest.")
    recodes: list[RecodeFile] = Field(default=[], description="Groupings of levels.")


# --- allocation files ---------------------------------------------------------------------------


class WorkloadConfig(_Model):
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
        "mean variance of their answers. Together they must tell all cells apart, as detailed does."
    )
    bases: dict[Text, list[Text]] = Field(
        default={},
        description="Attribute to what its tables ask of it: identity, prefix, ranges or recodes "
        "of it, stacked. Default: identity.",
    )


class LevelAllocation(_Model):
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


class AllocationFile(_Model):
    """conf/allocation/*.yaml: how rho is split over geolevels and queries."""

    name: Text = Field(description="Name of the allocation.")
    source: Text | None = Field(default=None, description="Where the numbers come from.")
    levels: dict[Text, LevelAllocation] = Field(
        description="Geolevel to its share and queries; level shares sum to 1."
    )


# --- run files ----------------------------------------------------------------------------------


class RecordColumn(_Model):
    """How one attribute is read from person records."""

    column: Text = Field(description="Column of the file.")
    codes: dict[Text, Text] | None = Field(
        default=None,
        description="Legal value in the file to level label. Default: the labels themselves.",
    )


class RecordsData(_Model):
    """Person records: one row per person, with a geocode and one column per attribute."""

    format: Literal["records"]
    path: Path = Field(description="CSV or Parquet file, or a folder of such files.")
    geocode: Text = Field(default="geocode", description="Column with the leaf geocode.")
    columns: dict[Text, RecordColumn | Text] = Field(
        description="Attribute to its column, or to {column, codes}."
    )
    delimiter: Text = Field(default=",", description="Field separator of CSV files.")


class BlockTableData(_Model):
    """Block table: one row per leaf geounit, one column per cell."""

    format: Literal["block_table"]
    path: Path = Field(description="CSV or Parquet file, or a folder of such files.")
    geocode: Text = Field(default="geocode", description="Column with the leaf geocode.")
    pattern: Text | None = Field(
        default=None,
        description="Name of the column of a cell, with level positions in braces, such as "
        '"v{votingage}h{hispanic}r{cenrace:02d}". Give this or `columns`.',
    )
    columns: dict[Text, dict[Text, Text]] | None = Field(
        default=None,
        description="Column to {attribute: level}, all attributes named. Several columns may add "
        "to one cell. Give this or `pattern`.",
    )
    checks: dict[Text, dict[Text, Text]] = Field(
        default={},
        description="Column that must equal the sum of a group of cells: column to "
        "{attribute or recode: level}; an empty map means all cells.",
    )
    delimiter: Text = Field(default=",", description="Field separator of CSV files.")

    @model_validator(mode="after")
    def _one_of(self) -> BlockTableData:
        if (self.pattern is None) == (self.columns is None):
            raise ValueError("give exactly one of `pattern` and `columns`")
        return self


class Pl94Data(_Model):
    """Official 2020 PL 94-171 summary files: geographic header and segments 1 to 3."""

    format: Literal["pl94"]
    path: Path = Field(description="The zip as published, or a folder with its four .pl files.")
    product: Literal["persons", "group_quarters", "housing_units"] = Field(
        default="persons",
        description="persons: voting age x Hispanic x race (252 cells) from P1 to P4; "
        "group_quarters: population in households and 7 group-quarters types from P1 and P5; "
        "housing_units: occupied and vacant units from H1.",
    )


class HistogramsData(_Model):
    """Sparse histograms: one row per leaf geounit with its nonzero cells."""

    format: Literal["histograms"]
    path: Path = Field(
        description="Parquet file or folder with columns geocode: string, cells: list<int64>, "
        "counts: list<int64>."
    )


DataConfig = Annotated[
    RecordsData | BlockTableData | Pl94Data | HistogramsData, Field(discriminator="format")
]


class GeolevelConfig(_Model):
    """One geolevel."""

    name: Text = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_-]*$",
        description="Name of the geolevel: letters, digits, _ and -.",
    )
    digits: int = Field(ge=0, description="Length of the geocode prefix; 0 for the whole.")


class GeounitsFile(_Model):
    """Public list of all leaf geounits."""

    path: Path = Field(description="CSV or Parquet file with one row per leaf geounit.")
    geocode: Text = Field(default="geocode", description="Column with the leaf geocode.")


class GeographyConfig(_Model):
    """The spine, and which leaf geounits exist."""

    levels: list[GeolevelConfig] = Field(description="Geolevels, root first.")
    geounits: GeounitsFile | None = Field(
        default=None,
        description="Public list of all leaf geounits, empty ones included. Default: the geocodes "
        "of the data, which are then published exactly; with person records this reveals which "
        "geounits are inhabited.",
    )


class Randomness(_Model):
    """Where noise comes from."""

    source: Literal["operating_system", "seeded_not_for_release"] = Field(
        default="operating_system",
        description="operating_system: AES-256-CTR streams under a key from the operating system. "
        "seeded_not_for_release: reproducible noise for tests; marks every output.",
    )
    seed: int | None = Field(default=None, description="Only with seeded_not_for_release.")

    @model_validator(mode="after")
    def _seed(self) -> Randomness:
        if (self.source == "seeded_not_for_release") != (self.seed is not None):
            raise ValueError("`seed` goes with source seeded_not_for_release, and only with it")
        return self


class PrivacyConfig(_Model):
    """The budget and its split."""

    definition: Definition = Field(
        default=Definition.ZCDP,
        description="zcdp: costs are rho of zero-concentrated differential privacy, noise is "
        "discrete Gaussian. pure: costs are epsilon of differential privacy, noise is discrete "
        "Laplace.",
    )
    rho: Exact | None = Field(
        default=None, description="Total budget under zcdp, exact. Give this or `epsilon`."
    )
    epsilon: Exact | None = Field(
        default=None,
        description="Under pure, the total budget, exact. Under zcdp, the total epsilon at "
        "`delta`; the largest rho that implies it is used.",
    )
    delta: Exact = Field(
        default=Fraction(1, 10**10), description="Where (epsilon, delta) is stated."
    )
    neighbors: Neighbors = Field(
        default=Neighbors.BOUNDED,
        description="bounded: change one record; unbounded: add or remove one.",
    )
    allocation: Path = Field(description="Allocation file.")
    randomness: Randomness = Field(default=Randomness(), description="Where noise comes from.")
    product: Text | None = Field(
        default=None,
        description="What is made of these people, such as persons or units. Default: the name of "
        "the schema.",
    )
    grant: Text = Field(
        default="1",
        description="Name of the budget granted to the product. One run may spend it; another "
        "run on the same people needs another grant, and the costs add up.",
    )
    account: Path | None = Field(
        default=None,
        description="File that records all grants spent on the same people, shared by all who "
        "measure them. Default: `data.path` with .das-account.jsonl appended.",
    )

    @model_validator(mode="after")
    def _one_budget(self) -> PrivacyConfig:
        if self.definition is Definition.PURE and self.rho is not None:
            raise ValueError("definition pure counts `epsilon`, not `rho`")
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError("give exactly one of `rho` and `epsilon`")
        for name in ("rho", "epsilon"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive; got {value}")
        if not 0 < self.delta < 1:
            raise ValueError(f"`delta` must lie between 0 and 1; got {self.delta}")
        return self


class InvariantConfig(_Model):
    """A query that is published exactly."""

    query: Text = Field(description='Query, such as "total".')
    geolevel: Text = Field(
        description="Geolevel at which it is exact; then also exact at all coarser ones."
    )


class SolveConfig(_Model):
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


class OutputConfig(_Model):
    """What is written where."""

    directory: Path = Field(description="Folder of the run; created if absent.")
    microdata: list[Literal["parquet", "csv"]] = Field(
        default=["parquet", "csv"], description="Formats of the microdata."
    )
    tables: list[Text] | None = Field(
        default=None,
        description="Queries tabulated per geolevel; may also use functions such as prefix(age). "
        "Default: total and every attribute alone.",
    )


class RuntimeConfig(_Model):
    """Speed only: nothing here changes the law of any output."""

    master: Text | None = Field(
        default=None,
        description='Spark master, such as "local[4,4]" or "spark://host:7077". Default: what '
        "spark-submit was given, else all local cores.",
    )
    batches_per_slot: int = Field(
        default=4, ge=1, description="Tasks per parallel slot in each step."
    )
    driver_memory: Text = Field(default="2g", description="Heap of the Spark driver.")
    spark: dict[Text, Text] = Field(default={}, description="Further Spark properties.")


class RunConfig(_Model):
    """conf/run/*.yaml: one run."""

    name: Text = Field(description="Name of the run, shown in reports.")
    schema_: Path = Field(alias="schema", description="Schema file.")
    data: DataConfig = Field(description="Confidential input.")
    geography: GeographyConfig = Field(description="Spine and leaf geounits.")
    privacy: PrivacyConfig = Field(description="Budget and its split.")
    invariants: list[InvariantConfig] = Field(default=[], description="What is published exactly.")
    solve: SolveConfig = Field(default=SolveConfig(), description="Solver settings.")
    output: OutputConfig = Field(description="Outputs.")
    runtime: RuntimeConfig = Field(default=RuntimeConfig(), description="Speed only.")


def model_fields(model: type[BaseModel]) -> dict[str, Any]:
    """Fields of a model by the key used in YAML."""
    return {field.alias or name: field for name, field in model.model_fields.items()}
