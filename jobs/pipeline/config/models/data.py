"""Models of confidential input: where it is, and what its columns mean."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from jobs.pipeline.config.models.values import (
    Delimiter,
    GeocodeColumns,
    LeadingZeros,
    LocalPath,
    Model,
    Quoting,
    StoredPath,
    Text,
)


class RecordColumn(Model):
    """How one attribute is read from person records."""

    column: Text = Field(description="Column of the file.")
    codes: dict[Text, Text] | None = Field(
        default=None,
        description="Legal value in the file to level label. Default: the labels themselves.",
    )


class RecordsData(Model):
    """Person records: one row per person, with a geocode and one column per attribute."""

    format: Literal["records"]
    path: StoredPath = Field(description="CSV or Parquet file, or a folder of such files.")
    geocode: GeocodeColumns = Field(
        default="geocode", description="Column with the leaf geocode, or several that make it."
    )
    columns: dict[Text, RecordColumn | Text] = Field(
        description="Attribute to its column, or to {column, codes}."
    )
    delimiter: Delimiter = Field(default=",", description="Field separator of CSV files.")
    quoting: Quoting = "double"
    leading_zeros: LeadingZeros = "kept"


class BlockTableData(Model):
    """Block table: one row per leaf geounit, one column per cell."""

    format: Literal["block_table"]
    path: StoredPath = Field(description="CSV or Parquet file, or a folder of such files.")
    geocode: GeocodeColumns = Field(
        default="geocode", description="Column with the leaf geocode, or several that make it."
    )
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
    quoting: Quoting = "double"
    leading_zeros: LeadingZeros = "kept"

    @model_validator(mode="after")
    def _one_of(self) -> BlockTableData:
        if (self.pattern is None) == (self.columns is None):
            raise ValueError("give exactly one of `pattern` and `columns`")
        return self


class Pl94Data(Model):
    """Official 2020 PL 94-171 summary files: geographic header and segments 1 to 3."""

    format: Literal["pl94"]
    path: StoredPath = Field(
        description="The zip as published, or a folder with its four .pl files."
    )
    product: Literal["persons", "group_quarters", "housing_units"] = Field(
        default="persons",
        description="persons: voting age x Hispanic x race (252 cells) from P1 to P4; "
        "group_quarters: population in households and 7 group-quarters types from P1 and P5; "
        "housing_units: occupied and vacant units from H1.",
    )


class HistogramsData(Model):
    """Sparse histograms: one row per leaf geounit with its nonzero cells."""

    format: Literal["histograms"]
    path: StoredPath = Field(
        description="Parquet file or folder with columns geocode: string, cells: list<int64>, "
        "counts: list<int64>."
    )


class NmfData(Model):
    """Noisy measurement files of the Census Bureau: noisy answers that were made elsewhere."""

    format: Literal["nmf"]
    path: LocalPath = Field(
        description="Folder with `<Geolevel>.parquet/DPQuery`; `das import-nmf` reads it, and "
        "writes the run file that names it."
    )
    chains: Literal["first", "last"] = Field(
        default="last",
        description="With whose queries and shares a chain of only children was measured: those of "
        "its first geolevel, as runs of this system do, or of its last, as the Bureau's do.",
    )


class WithheldData(Model):
    """No input: in the configuration of a release, whose data stay where they are."""

    format: Literal["withheld"]


DataConfig = RecordsData | BlockTableData | Pl94Data | HistogramsData | NmfData
AnyDataConfig = Annotated[DataConfig | WithheldData, Field(discriminator="format")]
