"""Models of the YAML files. The only place that knows what a configuration file may say.

Every model is frozen and refuses unknown keys. Each field's description becomes the configuration
reference in docs/configuration.md.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from das.definition import Definition
from das.errors import BudgetError
from das.mechanisms.registry import chargeable
from das.queries.sensitivity import Neighbors
from das.rational import parse_fraction
from das.workload.plan import LossKind, Method
from jobs.config.local_path import local_path
from jobs.config.protection import PROTECTION, missing_protection, secret_properties


def _exact(value: object) -> Fraction:
    try:
        return parse_fraction(value, "value")
    except BudgetError as error:
        raise ValueError(str(error).removeprefix("value: ")) from None


def _text(value: object) -> object:
    """YAML reads an unquoted 12 or yes as a number or a bool; codes are always text."""
    if isinstance(value, bool | float):
        raise ValueError(f"must be text; put quotes around it; got {value!r}")
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT:
            raise ValueError(f"must have at most {_LONGEST_TEXT} characters; got {len(value)}")
        if any(ord(c) < 32 or 127 <= ord(c) < 160 or "\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"holds a control character or half of a character; got {value!a}")
    return str(value) if isinstance(value, int) else value


def _whole(value: object) -> object:
    """YAML reads yes as a bool, which Python counts as 1."""
    if isinstance(value, bool | float):
        raise ValueError(f"must be a whole number; got {value!r}")
    return value


def _delimiter(value: object) -> str:
    if not isinstance(value, str) or len(value) != 1 or not (value == "\t" or " " <= value <= "~"):
        raise ValueError(f'must be one character, such as ";" or "\\t"; got {value!a:.99}')
    if value.isalnum() or value == '"':
        raise ValueError(f"must not be a letter, a digit or a quotation mark; got {value!r}")
    return value


_LONGEST_TEXT = 20_000  # the source of an allocation names all tables it was made for
_LONGEST_NAME = 100  # geolevels are names of folders
_LARGEST_LIMIT = 10**15  # persons; sums of such are exact in 64 bits

Exact = Annotated[Fraction, BeforeValidator(_exact)]
Text = Annotated[str, BeforeValidator(_text)]
ProductName = Annotated[
    str,
    BeforeValidator(_text),
    StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=_LONGEST_NAME),
]
Whole = Annotated[int, BeforeValidator(_whole)]
Delimiter = Annotated[str, BeforeValidator(_delimiter)]
LocalPath = Annotated[Path, BeforeValidator(local_path)]


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
        "mean variance of their answers. Together they must have full column rank, as detailed has."
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
    path: LocalPath = Field(description="CSV or Parquet file, or a folder of such files.")
    geocode: Text = Field(default="geocode", description="Column with the leaf geocode.")
    columns: dict[Text, RecordColumn | Text] = Field(
        description="Attribute to its column, or to {column, codes}."
    )
    delimiter: Delimiter = Field(default=",", description="Field separator of CSV files.")


class BlockTableData(_Model):
    """Block table: one row per leaf geounit, one column per cell."""

    format: Literal["block_table"]
    path: LocalPath = Field(description="CSV or Parquet file, or a folder of such files.")
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
    delimiter: Delimiter = Field(default=",", description="Field separator of CSV files.")

    @model_validator(mode="after")
    def _one_of(self) -> BlockTableData:
        if (self.pattern is None) == (self.columns is None):
            raise ValueError("give exactly one of `pattern` and `columns`")
        return self


class Pl94Data(_Model):
    """Official 2020 PL 94-171 summary files: geographic header and segments 1 to 3."""

    format: Literal["pl94"]
    path: LocalPath = Field(
        description="The zip as published, or a folder with its four .pl files."
    )
    product: Literal["persons", "group_quarters", "housing_units"] = Field(
        default="persons",
        description="persons: voting age x Hispanic x race (252 cells) from P1 to P4; "
        "group_quarters: population in households and 7 group-quarters types from P1 and P5; "
        "housing_units: occupied and vacant units from H1.",
    )


class HistogramsData(_Model):
    """Sparse histograms: one row per leaf geounit with its nonzero cells."""

    format: Literal["histograms"]
    path: LocalPath = Field(
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
        max_length=_LONGEST_NAME,
        description="Name of the geolevel: letters, digits, _ and -.",
    )
    digits: Whole = Field(
        ge=0, le=100, description="Length of the geocode prefix; 0 for the whole."
    )


class GeounitsFile(_Model):
    """Public list of all leaf geounits."""

    path: LocalPath = Field(description="CSV or Parquet file with one row per leaf geounit.")
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

    @property
    def source(self) -> str:
        """Where the list of geounits comes from, as manifests call it."""
        return "data" if self.geounits is None else "public list"


class Randomness(_Model):
    """Where noise comes from."""

    source: Literal["operating_system", "seeded_not_for_release"] = Field(
        default="operating_system",
        description="operating_system: AES-256-CTR streams under a key from the operating system. "
        "seeded_not_for_release: reproducible noise for tests; marks every output.",
    )
    seed: Whole | None = Field(default=None, description="Only with seeded_not_for_release.")

    @model_validator(mode="after")
    def _seed(self) -> Randomness:
        if (self.source == "seeded_not_for_release") != (self.seed is not None):
            raise ValueError("`seed` goes with source seeded_not_for_release, and only with it")
        return self


class PrivacyConfig(_Model):
    """What protection means, for all products of the run, and who keeps the account."""

    definition: Definition = Field(
        default=Definition.ZCDP,
        description="zcdp: costs are rho of zero-concentrated differential privacy, noise is "
        f"{chargeable(Definition.ZCDP)[0].title}. pure: costs are epsilon of differential privacy, "
        f"noise is {chargeable(Definition.PURE)[0].title}. The allocation may name other noise.",
    )
    delta: Exact = Field(
        default=Fraction(1, 10**10), description="Where (epsilon, delta) is stated."
    )
    neighbors: Neighbors = Field(
        default=Neighbors.BOUNDED,
        description="bounded: change one record; unbounded: add or remove one.",
    )
    randomness: Randomness = Field(default=Randomness(), description="Where noise comes from.")
    grant: Text = Field(
        default="1",
        description="Name of the budget granted to the products. One run may spend it; another "
        "run on the same people needs another grant, and the costs add up.",
    )
    account: LocalPath | None = Field(
        default=None,
        description="File that records all grants spent on the same people, shared by all who "
        "measure them. Default: `data.path` of the last product with .das-account.jsonl appended, "
        "or the one of a folder above it that has one.",
    )

    @model_validator(mode="after")
    def _delta(self) -> PrivacyConfig:
        if not 0 < self.delta < 1:
            raise ValueError(f"`delta` must lie between 0 and 1; got {self.delta}")
        return self


class ProductPrivacyConfig(_Model):
    """The budget of a product and its split."""

    rho: Exact | None = Field(
        default=None, description="Total budget under zcdp, exact. Give this or `epsilon`."
    )
    epsilon: Exact | None = Field(
        default=None,
        description="Under pure, the total budget, exact. Under zcdp, the total epsilon at "
        "`delta`; the largest rho that implies it is used.",
    )
    allocation: LocalPath = Field(description="Allocation file.")
    lazy_queries: list[Text] = Field(
        default=[],
        description="Queries of very many answers whose noise is drawn, below the root, only for "
        "answers about cells where the counts of the parent are positive; no other is ever read. "
        "Counts have the same distribution, and measurements are no longer complete. Geolevels are "
        "then measured one by one, each after the one above is solved.",
    )
    product: Text | None = Field(
        default=None,
        description="What is made of these people, such as persons or units, as the account names "
        "it. Default: the name of the schema.",
    )

    @model_validator(mode="after")
    def _one_budget(self) -> ProductPrivacyConfig:
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError("give exactly one of `rho` and `epsilon`")
        for name in ("rho", "epsilon"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive; got {value}")
        return self


class PublicTable(_Model):
    """A public table with one row per geounit and one column of counts per name."""

    path: LocalPath = Field(description="CSV or Parquet file, or a folder of such files.")
    geocode: Text = Field(default="geocode", description="Column with the geocode.")
    columns: dict[Text, Text] = Field(
        description="What is counted, such as a type or an answer of a query, to its column."
    )
    delimiter: Delimiter = Field(default=",", description="Field separator of CSV files.")


class InvariantConfig(_Model):
    """A query that is published exactly."""

    query: Text = Field(description='Query, such as "total".')
    geolevel: Text = Field(
        description="Geolevel at which it is exact; then also exact at all coarser ones."
    )
    table: PublicTable | None = Field(
        default=None,
        description="Published table the confidential data must agree with: a column per answer; "
        "geounits that are not in it have none.",
    )


class ExactAnswers(_Model):
    """What another product of the run publishes exactly."""

    product: Text = Field(description="Name of the product; it comes before this one.")
    query: Text = Field(description="Its exact query; its levels are types of this product.")


class FacilitiesConfig(_Model):
    """Facility counts by type, published exactly; each facility holds some persons."""

    facilities: Text = Field(description="Query of the persons by type, such as hhgq.")
    geolevel: Text = Field(description="Geolevel at which facilities are counted.")
    table: PublicTable | None = Field(
        default=None,
        description="Public table with a column per type; geounits that are not in it have no "
        "facilities. A type left out is not counted: it may hold any number of persons. Give this "
        "or `exact`.",
    )
    exact: ExactAnswers | None = Field(
        default=None,
        description="Exact answers of another product that counts them, such as the units. Give "
        "this or `table`.",
    )
    at_least: dict[Text, Whole] = Field(
        default={}, description="Type to the fewest persons of one facility; 1 if left out."
    )
    at_most: dict[Text, Whole] = Field(
        default={}, description="Type to the most persons of one facility; 99999 if left out."
    )

    @model_validator(mode="after")
    def _limits(self) -> FacilitiesConfig:
        if (self.table is None) == (self.exact is None):
            raise ValueError("give exactly one of `table` and `exact`")
        for name in ("at_least", "at_most"):
            if any(not 0 <= limit <= 10**6 for limit in getattr(self, name).values()):
                raise ValueError(f"`{name}` must lie between 0 and 1000000")
        return self


class ZeroConfig(_Model):
    """Structural zeros: persons who cannot be."""

    zero: dict[Text, list[Text]] = Field(
        description="Attribute or recode to levels; nobody has one of these levels in all of them."
    )


class RowPart(_Model):
    """Cells that count in a linear row."""

    cells: dict[Text, list[Text]] = Field(
        description="Attribute or recode to levels; empty for all cells."
    )
    coefficient: Whole = Field(
        default=1,
        ge=-(10**6),
        le=10**6,
        description="How often each of their persons counts.",
    )


class RowConfig(_Model):
    """A linear row: a weighted sum of cells that is bounded, or exact, in every geounit."""

    row: list[RowPart] = Field(description="The sum; cells in several parts count in each.")
    name: Text = Field(description="Its name in errors and in the manifest.")
    geolevel: Text = Field(
        description="Geolevel at which it holds; coarser ones add up what their geounits may hold."
    )
    at_least: Whole | None = Field(
        default=None,
        ge=-_LARGEST_LIMIT,
        le=_LARGEST_LIMIT,
        description="Fewest. Default: no limit.",
    )
    at_most: Whole | None = Field(
        default=None,
        ge=-_LARGEST_LIMIT,
        le=_LARGEST_LIMIT,
        description="Most. Without any limit, the sum of the confidential data is published.",
    )


_KINDS_OF_INVARIANTS = ("facilities", "zero", "row")


def _kind_of_invariant(value: object) -> str:
    """The kind of an invariant is told by the key that only it has."""
    for key in _KINDS_OF_INVARIANTS:
        if (key in value) if isinstance(value, dict) else hasattr(value, key):
            return key
    return "query"


AnyInvariant = Annotated[
    Annotated[InvariantConfig, Tag("query")]
    | Annotated[FacilitiesConfig, Tag("facilities")]
    | Annotated[ZeroConfig, Tag("zero")]
    | Annotated[RowConfig, Tag("row")],
    Discriminator(_kind_of_invariant),
]


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
    targets: Literal["full", "own"] = Field(
        default="full",
        description="What a geounit's counts are fitted to. full: the estimate from all "
        "measurements in it and below it; own: from those of its own geolevel.",
    )
    learned_prior: list[Text] = Field(
        default=[],
        description="Geolevels at which cells are fitted to their posterior means under a prior "
        "learned from the noisy counts of the geolevel: less squared error where most counts are "
        "zero, and no longer the least-squares answer.",
    )
    order: dict[Text, list[list[Text]]] = Field(
        default={},
        description="Least-squares passes by geolevel, each a list of measured queries whose "
        "answers are fixed for the passes after it; queries not named follow in a last pass. "
        "Default: one pass.",
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
    failsafe: bool = Field(
        default=True,
        description="Whether a node whose constraints contradict its parent moves the parent to "
        "the nearest counts that satisfy them, which is reported; otherwise it stops the run.",
    )


class OutputConfig(_Model):
    """Where everything is written."""

    directory: LocalPath = Field(description="Folder of the run; created if absent.")


class ProductOutputConfig(_Model):
    """What is written of a product."""

    microdata: list[Literal["parquet", "csv"]] = Field(
        default=["parquet", "csv"], description="Formats of the microdata, one row per record."
    )
    tables: list[Text] | None = Field(
        default=None,
        description="Queries tabulated per geolevel; may also use functions such as prefix(age). "
        "Default: total and every attribute alone.",
    )
    h1: Text | None = Field(
        default=None,
        description="Attribute or recode with the levels `occupied` and `vacant`, of which table "
        "H1 is written: all, occupied and vacant housing units.",
    )


class RuntimeConfig(_Model):
    """Where a run works, and how fast: nothing here changes the distribution of any output."""

    master: Text | None = Field(
        default=None,
        description='Spark master, such as "local[4,4]" or "spark://host:7077". Default: what '
        "spark-submit was given, else all local cores.",
    )
    batches_per_slot: Whole = Field(
        default=4,
        ge=1,
        le=10_000,
        description="Tasks per parallel slot in each step; fewer where there is little work, more "
        "where much.",
    )
    driver_memory: Text = Field(default="2g", description="Heap of the Spark driver.")
    spark: dict[Text, Text] = Field(
        default={},
        description="Further Spark properties; no secrets, and none that open a session.",
    )
    allow_open_cluster: bool = Field(
        default=False,
        description="Whether to work in a Spark session without authentication or encryption. "
        "Whoever reaches its ports or network can then read the confidential data, or act as the "
        "user of the run. Manifest and public report say so.",
    )

    @model_validator(mode="after")
    def _closed(self) -> RuntimeConfig:
        if named := secret_properties(self.spark):
            raise ValueError(
                f"spark.{named[0]}: a run file is no place for a secret, and Spark would show it "
                "in the list of processes; put it into a properties file that only its owner can "
                "read, and give that to spark-submit by --properties-file"
            )
        if self.allow_open_cluster:
            return self
        off = missing_protection({**PROTECTION, **self.spark})
        if off:
            raise ValueError(
                f"spark.{off[0]}: turned off, which opens the session to others on its machines "
                "or network; leave it out, or accept the risk by `allow_open_cluster: true`, which "
                "the release then states"
            )
        return self


class ProductConfig(_Model):
    """A product of a run: what is measured of one kind of records, and what is made of it."""

    schema_: LocalPath = Field(alias="schema", description="Schema file.")
    data: DataConfig = Field(description="Confidential input.")
    privacy: ProductPrivacyConfig = Field(description="Budget and its split.")
    invariants: list[AnyInvariant] = Field(default=[], description="What is published exactly.")
    solve: SolveConfig = Field(default=SolveConfig(), description="Solver settings.")
    output: ProductOutputConfig = Field(
        default=ProductOutputConfig(), description="What is written of it."
    )


class RunConfig(_Model):
    """conf/run/*.yaml: one run."""

    format: Literal[2] = Field(description="How this file is written: 2.")
    name: Text = Field(description="Name of the run, shown in reports.")
    geography: GeographyConfig = Field(description="Spine and leaf geounits.")
    privacy: PrivacyConfig = Field(
        default=PrivacyConfig(), description="What protection means, and the account."
    )
    products: dict[ProductName, ProductConfig] = Field(
        min_length=1,
        description="Name of each product, such as persons, to what it is, in the order of work. "
        "The last lies in the folder of the release itself, every other in one of its name there.",
    )
    output: OutputConfig = Field(description="Where everything is written.")
    runtime: RuntimeConfig = Field(
        default=RuntimeConfig(), description="Where it works; speed only."
    )


def model_fields(model: type[BaseModel]) -> dict[str, Any]:
    """Fields of a model by the key used in YAML."""
    return {field.alias or name: field for name, field in model.model_fields.items()}
