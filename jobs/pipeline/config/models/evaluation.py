"""Models of what a run file says of the evaluation of a product."""

from __future__ import annotations

from pydantic import Field, model_validator

from jobs.pipeline.config.models.values import (
    Delimiter,
    Exact,
    LeadingZeros,
    Model,
    StoredPath,
    Text,
    Whole,
)


class AreasFile(Model):
    """Public table of the types of geounits, such as urban and rural."""

    path: StoredPath = Field(
        description="CSV or Parquet file with one row for each geounit of the geolevel."
    )
    geocode: Text = Field(default="geocode", description="Column with the geocode.")
    type: Text = Field(default="type", description="Column with the type, as text.")
    delimiter: Delimiter = Field(
        default=",", description="What separates the columns of a CSV file."
    )
    leading_zeros: LeadingZeros = "kept"


class EvaluateConfig(Model):
    """For whom a release is compared with the truth. Nothing here changes a release's counts."""

    groups: list[Text] | None = Field(
        default=None,
        description="Queries; each of their answers is a group of records. Every record counts in "
        "one of them. Default: every attribute alone.",
    )
    areas: dict[Text, AreasFile] = Field(
        default={},
        description="Geolevel to a public table of the types of its geounits; each type is a "
        "group, there and at all finer geolevels.",
    )
    tables: list[Text] | None = Field(
        default=None,
        description="Queries whose errors are added up in every group, each counting every record "
        "once. The group's total is always among them. Default: those of output.tables that count "
        "every record once.",
    )
    floor: Whole = Field(
        default=10,
        ge=1,
        description="Relative errors are stated of groups of at least so many records: of a "
        "smaller group than 10, one record is more than a tenth.",
    )
    population_weight: Exact | None = Field(
        default=None,
        description="Weight of everybody's error beside those of the k groups in the parity "
        'error. Default: 1/k, as for one group more; "0" leaves it out.',
    )

    @model_validator(mode="after")
    def _weight(self) -> EvaluateConfig:
        if self.population_weight is not None and self.population_weight < 0:
            raise ValueError(
                f"`population_weight` must not be negative; got {self.population_weight}"
            )
        return self
