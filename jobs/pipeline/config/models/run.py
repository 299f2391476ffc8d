"""Models of run files: what all products share, and the products."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from das.definition import Definition
from das.mechanisms.registry import chargeable
from das.queries.sensitivity import Neighbors
from geography.respine import FAN_OUT_CUTOFF, SpineDesign
from jobs.pipeline.config.models.kinds.row import RowPart
from jobs.pipeline.config.models.products import ProductConfig
from jobs.pipeline.config.models.values import (
    LONGEST_NAME,
    Delimiter,
    Exact,
    GeocodeColumns,
    LeadingZeros,
    Model,
    ProductName,
    StoredPath,
    Text,
    Whole,
    digits_of,
)
from jobs.pipeline.config.protection import (
    PROTECTION,
    missing_protection,
    refuse_remote,
    secret_properties,
)
from jobs.pipeline.storage.layout import Roots


class GeolevelConfig(Model):
    """One geolevel."""

    name: Text = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=LONGEST_NAME)
    """Name of the geolevel: letters, digits, _ and -."""

    digits: Whole = Field(ge=0, le=100)
    """Length of the geocode prefix; 0 for the whole."""


class GeounitsFile(Model):
    """Public list of all leaf geounits."""

    later = ("names", "delimiter", "leading_zeros")

    path: StoredPath
    """CSV or Parquet file with one row per leaf geounit."""

    geocode: GeocodeColumns = "geocode"
    names: dict[Text, Text] = Field(default={})
    """Columns with names of geounits, by geolevel, such as `{county: county_name}`. Tables show the
    names. All leaves of a geounit must have the same name."""

    delimiter: Delimiter = ","
    leading_zeros: LeadingZeros = "kept"


class EntitiesFile(Model):
    """Public table of the entities that contain each leaf geounit."""

    path: StoredPath
    """CSV or Parquet file with one row per leaf geounit."""

    geocode: GeocodeColumns = "geocode"
    delimiter: Delimiter = ","
    leading_zeros: LeadingZeros = "kept"


class SplitConfig(Model):
    """Geounits that are split in two, and the column that marks one part."""

    geolevel: Text
    """Geolevel whose geounits, and all geounits below, are split into a marked and an unmarked
    part."""

    by: Text
    """Column that marks leaves, such as the code of a tribal area. A leaf with a text is marked; a
    leaf with an empty text or null is not."""

    codes: list[Text] = Field(default=[])
    """Texts that mark a leaf, or ranges of texts of equal length such as "0001..4989", ends
    included. Default: every text."""

    @field_validator("codes")
    @classmethod
    def _ranges(cls, codes: list[str]) -> list[str]:
        for code in codes:
            low, dots, high = code.partition("..")
            if dots and (len(low) != len(high) or low > high):
                raise ValueError(
                    f"{code!r} is not a range: both ends must have the same length and be in order"
                )
        return codes


class SpineConfig(Model):
    """Another spine to measure and solve on: geocodes of data, microdata and tables stay."""

    split: SplitConfig | None = None
    """Split of geounits into two parts, such as tribal areas and the rest of a state."""

    regroup: Text | None = None
    """Geolevel whose geounits are formed anew from the geounits of the geolevel below, so that
    entities are sums of fewer geounits."""

    split_children: Text | None = None
    """Geolevel whose children are gathered into groups, so that entities are sums of fewer
    geounits."""

    align_with: list[Text] = Field(default=[])
    """Columns of entities, such as places, that should be sums of few geounits of the spine. One
    kind of entity per column; an empty text or null is no entity."""

    fan_out_cutoff: Whole = FAN_OUT_CUTOFF
    """A group of a geounit with n items has at most the rounded-up square root of n, plus this
    number, of them."""

    entities: EntitiesFile | None = None
    """File with the columns of `align_with` and `split`. Default: `geounits`."""

    @model_validator(mode="after")
    def _whole(self) -> SpineConfig:
        if self.split is None and self.regroup is None and self.split_children is None:
            raise ValueError("changes nothing; it may `split`, `regroup` or `split_children`")
        if bool(self.align_with) != (self.regroup is not None or self.split_children is not None):
            raise ValueError(
                "`align_with` goes with `regroup` or `split_children`, which bring entities nearer"
            )
        if len({*self.align_with}) < len(self.align_with):
            raise ValueError("`align_with` names a column twice")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the file of entities that the design reads, each once."""
        by = () if self.split is None else (self.split.by,)
        return tuple(dict.fromkeys((*self.align_with, *by)))

    @property
    def design(self) -> SpineDesign:
        """Return the changes of the geolevels."""
        split = None if self.split is None else self.split.geolevel
        return SpineDesign(split, self.regroup, self.split_children, self.fan_out_cutoff)


class GeographyConfig(Model):
    """The spine, and which leaf geounits exist."""

    later = ("spine",)

    levels: list[GeolevelConfig]
    """Geolevels, root first."""

    geounits: GeounitsFile | None = None
    """Public list of all leaf geounits, empty ones included. Default: the geocodes of the data,
    which are then published exactly; with person records this reveals which geounits are
    inhabited."""

    spine: SpineConfig | None = None
    """Another spine to measure and solve on. Default: `levels`. Allocation, invariants and passes
    name its geolevels."""

    @model_validator(mode="after")
    def _public(self) -> GeographyConfig:
        if self.spine is not None and self.geounits is None:
            raise ValueError("`spine` needs `geounits`: it is made of public geounits alone")
        entities = None if self.spine is None else self.spine.entities
        for key, file in {"geounits": self.geounits, "spine.entities": entities}.items():
            digits = None if file is None else digits_of(file.geocode)
            if digits is not None and self.levels and digits != self.levels[-1].digits:
                raise ValueError(
                    f"`{key}.geocode` has columns of {digits} digits together; the geocodes of "
                    f"the last geolevel have {self.levels[-1].digits}"
                )
        known = [level.name for level in self.levels]
        for name in {} if self.geounits is None else self.geounits.names:
            if name not in known:
                raise ValueError(
                    f"`geounits.names` has an unknown geolevel: {name}; it may name {known}"
                )
        return self

    @property
    def source(self) -> Literal["public list", "data"]:
        """Return the source of the list of geounits, in the words of manifests."""
        return "data" if self.geounits is None else "public list"


class Randomness(Model):
    """Source of the noise."""

    source: Literal["operating_system", "seeded_not_for_release"] = "operating_system"
    """operating_system: AES-256 under keys made of one from the operating system.
    seeded_not_for_release: reproducible noise for tests; marks every output."""

    seed: Whole | None = None
    """Public seed; required with seeded_not_for_release, else not allowed."""

    @model_validator(mode="after")
    def _seed(self) -> Randomness:
        if (self.source == "seeded_not_for_release") != (self.seed is not None):
            raise ValueError("`seed` goes with source seeded_not_for_release, and only with it")
        return self


class PrivacyConfig(Model):
    """Privacy definition, noise source and account for all products of the run."""

    definition: Definition = Field(
        default=Definition.ZCDP,
        description="zcdp: costs are rho of zero-concentrated differential privacy, noise is "
        f"{chargeable(Definition.ZCDP)[0].title}. pure: costs are epsilon of differential privacy, "
        f"noise is {chargeable(Definition.PURE)[0].title}. The allocation may name other noise.",
    )
    delta: Exact = Field(default=Fraction(1, 10**10), gt=0, lt=1)
    """The delta at which (epsilon, delta) is stated."""

    neighbors: Neighbors = Neighbors.BOUNDED
    """bounded: change one record; unbounded: add or remove one."""

    randomness: Randomness = Randomness()
    """Source of the noise."""

    budget_id: Text = "1"
    """Name of the budget granted to the products. One run may spend it; another run on the same
    people needs another name, and the costs add up."""

    account: StoredPath | None = None
    """File that records all grants spent on the same people, shared by all who measure them.
    Default: `data.path` of the last product with .das-account.jsonl appended, or the one that lies
    beside the input of another product or of a folder above. Must be named where inputs lie in
    several folders, or several accounts may be meant."""


class OutputConfig(Model):
    """Folders to which a run writes."""

    directory: StoredPath
    """Folder of the run; created if absent."""

    confidential: StoredPath | None = None
    """Folder of files that must not be published: true histograms, and the errors of the release.
    For example another bucket with other access rights. Default: `confidential` in the folder of
    the run."""

    @property
    def roots(self) -> Roots:
        """Return the run folder and the confidential folder of the run."""
        return Roots.of(self.directory, self.confidential)


class RuntimeConfig(Model):
    """Machines and parallelism of a run; no setting changes the distribution of any output."""

    master: Annotated[Text | None, AfterValidator(refuse_remote)] = None
    """Spark master, such as "local[4,4]" or "spark://host:7077". Default: what spark-submit was
    given, else all local cores."""
    batches_per_slot: Whole = Field(default=4, ge=1, le=10_000)
    """Number of tasks per parallel slot in each step. Steps with little work have fewer tasks,
    steps with much work more."""

    driver_memory: Text = "2g"
    """Heap of the Spark driver."""

    spark: dict[Text, Text] = Field(default={})
    """Further Spark properties; no secrets, and none that open a session."""

    allow_open_cluster: bool = False
    """Whether the run may use a Spark session without authentication or encryption. Anyone who
    reaches its ports or network can then read the confidential data, or act as the user of the run.
    Manifest and public report state it."""

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
                "or network; remove it, or accept the risk by `allow_open_cluster: true`, which "
                "the release then states"
            )
        return self


class AboutConfig(Model):
    """Texts for the README of the release, and its language; they have no other effect."""

    language: Literal["en", "pt"] = "en"
    """Language of README, codebook, public report, certificate and `das explore`. Names of files,
    columns and codes stay."""

    title: Text | None = None
    """Title of the release. Default: the name of the run."""

    publisher: Text | None = None
    """Name of the office that publishes the release."""

    description: Text | None = None
    """Content of the release, in a sentence."""

    licence: Text | None = None
    """Terms under which the release may be used. Default: the README states none."""

    citation: Text | None = None
    """How to cite the release. Default: publisher, title, year, software and configuration."""

    contact: Text | None = None
    """Address for questions about the release."""


class SideConfig(Model):
    """One side of a constraint: a weighted sum of cells of a product."""

    product: ProductName
    """Name of the product."""

    row: list[RowPart] = Field(min_length=1)
    """The weighted sum. A cell in several parts counts in each part. On the side of the later
    product, every record must count once or not at all."""


class BetweenConfig(Model):
    """A constraint between two products, which holds in every geounit of a geolevel."""

    name: Text
    """Name of the constraint in errors and in the manifest."""

    geolevel: Text
    """Geolevel at which the constraint holds; it then holds at all coarser geolevels. All
    constraints of the later product must have the same geolevel."""

    left: SideConfig
    """Left side: a sum of cells of one product."""

    relation: Literal["equals", "at_least", "at_most"]
    """Relation of the left side to the right side."""

    right: SideConfig
    """Right side: a sum of cells of the other product."""


class RunConfig(Model):
    """conf/run/*.yaml: one run."""

    format: Literal[3]
    """Version of the format of this file: 3."""

    name: Text
    """Name of the run, shown in reports."""

    geography: GeographyConfig
    """Spine and leaf geounits."""

    privacy: PrivacyConfig = Field(default_factory=PrivacyConfig)
    """Privacy definition, noise source and account."""

    products: dict[ProductName, ProductConfig] = Field(min_length=1)
    """Products by name, such as persons, in the order of work. The release has a folder for each
    product, in `products`."""

    cross_product_constraints: list[BetweenConfig] = Field(default=[])
    """Constraints that hold between records of two products by definition, such as persons in
    households."""

    output: OutputConfig
    """Folders to which the run writes."""

    about: AboutConfig = Field(default_factory=AboutConfig)
    """Title, publisher, licence: for the README. Language of the pages."""

    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)
    """Machines and parallelism; affects speed only."""


def model_fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model by their keys in YAML."""
    return {field.alias or name: field for name, field in model.model_fields.items()}
