"""Models of the section `invariants` of a product."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from jobs.pipeline.config.models.values import (
    Delimiter,
    LeadingZeros,
    Levels,
    Model,
    StoredPath,
    Text,
    Whole,
)

_LARGEST_LIMIT = 10**15  # persons; sums of such are exact in 64 bits


class PublicTable(Model):
    """A public table with one row per geounit and one column of counts per name."""

    later = ("leading_zeros",)

    path: StoredPath = Field(description="CSV or Parquet file, or a folder of such files.")
    geocode: Text = Field(default="geocode", description="Column with the geocode.")
    columns: dict[Text, Text] = Field(
        description="What is counted, such as a type or an answer of a query, to its column."
    )
    delimiter: Delimiter = Field(default=",", description="Field separator of CSV files.")
    leading_zeros: LeadingZeros = "kept"


class ReleasedCounts(Model):
    """Counts that were released before, protected: the counts of this run are to add up to them."""

    path: StoredPath | None = Field(
        default=None,
        description="Folder of a finished release of the same geounits. Give this or `table`.",
    )
    product: Text | None = Field(
        default=None, description="Product of that release. Default: its last."
    )
    query: Text | None = Field(
        default=None,
        description="Query on the schema of that release, such as detailed; its answers are those "
        "of the invariant. Default: the query as it stands here.",
    )
    answers: dict[Text, Text] | None = Field(
        default=None,
        description="Answer of the query here to the answer there. Default: those with the same "
        "labels, all of them.",
    )
    table: PublicTable | None = Field(
        default=None,
        description="Public table of such counts: a column per answer; geounits that are not in "
        "it have none. Give this or `path`.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> ReleasedCounts:
        if (self.table is None) == (self.path is None):
            raise ValueError("give exactly one of `path` and `table`")
        if self.table is not None and (self.product or self.query or self.answers):
            raise ValueError("`product`, `query` and `answers` are of a release, not of a table")
        return self


class InvariantConfig(Model):
    """A query whose answers are published exactly, or are those of an earlier release."""

    later = ("released",)

    query: Text = Field(description='Query, such as "total".')
    geolevel: Text = Field(
        description="Geolevel at which it is exact; then also exact at all coarser ones."
    )
    table: PublicTable | None = Field(
        default=None,
        description="Published table the confidential data must agree with: a column per answer; "
        "geounits that are not in it have none.",
    )
    released: ReleasedCounts | None = Field(
        default=None,
        description="Counts of an earlier release: the answers of the run are these, and not those "
        "of the confidential data, which nothing is read of.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> InvariantConfig:
        if self.table is not None and self.released is not None:
            raise ValueError("give `table` or `released`: the data agree with it, or need not")
        return self


class ExactAnswers(Model):
    """What another product of the run publishes exactly."""

    product: Text = Field(description="Name of the product; it comes before this one.")
    query: Text = Field(description="Its exact query; its levels are types of this product.")


class FacilitiesConfig(Model):
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


class LivingQuartersConfig(Model):
    """Housing units and facilities by kind; where there are none, nobody lives."""

    living_quarters: list[Text] = Field(
        description="Kinds that are housing units, by which persons may be expected "
        "(`solve.housing_units`); all other kinds are facilities. Empty if none are."
    )
    geolevel: Text = Field(description="Geolevel at which they are counted.")
    table: PublicTable | None = Field(
        default=None,
        description="Public table with a column per kind; geounits that are not in it have none. "
        "It names every kind in which somebody may live. Give this or `exact`.",
    )
    exact: ExactAnswers | None = Field(
        default=None,
        description="Exact answers of another product, such as the units; every answer of the "
        "query is a kind. Give this or `table`.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> LivingQuartersConfig:
        if (self.table is None) == (self.exact is None):
            raise ValueError("give exactly one of `table` and `exact`")
        return self


class ZeroConfig(Model):
    """Structural zeros: persons who cannot be."""

    zero: dict[Text, Levels] = Field(
        description="Attribute or recode to levels, or to ranges of consecutive ones such as "
        "0..14; nobody has one of these levels in all of them."
    )


class RowPart(Model):
    """Cells that count in a linear row."""

    cells: dict[Text, Levels] = Field(
        description="Attribute or recode to levels, or to ranges of them; empty for all cells."
    )
    coefficient: Whole = Field(
        default=1,
        ge=-(10**6),
        le=10**6,
        description="How often each of their persons counts.",
    )


class RowConfig(Model):
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


def table_of(entry: AnyInvariant) -> PublicTable | None:
    """The public table of an invariant, whatever it holds; None without one."""
    released = getattr(entry, "released", None)
    table: PublicTable | None = getattr(entry if released is None else released, "table", None)
    return table


_KINDS_OF_INVARIANTS = ("facilities", "living_quarters", "zero", "row")


def _kind_of_invariant(value: object) -> str:
    """The kind of an invariant is told by the key that only it has."""
    for key in _KINDS_OF_INVARIANTS:
        if (key in value) if isinstance(value, dict) else hasattr(value, key):
            return key
    return "query"


AnyInvariant = Annotated[
    Annotated[InvariantConfig, Tag("query")]
    | Annotated[FacilitiesConfig, Tag("facilities")]
    | Annotated[LivingQuartersConfig, Tag("living_quarters")]
    | Annotated[ZeroConfig, Tag("zero")]
    | Annotated[RowConfig, Tag("row")],
    Discriminator(_kind_of_invariant),
]
