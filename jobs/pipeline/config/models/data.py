"""Input formats as run files state them: where the files are, and what their columns mean.

A format is a model here, in the union `DataConfig`, and a reader that
`jobs.pipeline.confidential.read.formats` lists. Nothing else asks which format an input has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from das.arrays import BoolArray
from das.errors import ConfigError
from das.schema import Schema
from invariants.linear import cells_in
from jobs.pipeline.config.data import FILE_KINDS, check_suffix
from jobs.pipeline.config.models.values import (
    Delimiter,
    GeocodeColumns,
    LeadingZeros,
    LocalPath,
    Model,
    Quoting,
    StoredPath,
    Text,
    digits_of,
)

MOST_COLUMNS = 100_000  # of a block table, which has one for every cell
_PL94_AXES: Mapping[str, Mapping[str, int]] = {
    "persons": {"votingage": 2, "hispanic": 2, "cenrace": 63},
    "group_quarters": {"hhgq": 8},
    "housing_units": {"occupancy": 2},
}


class InputFormat(Model):
    """Settings of an input in one format, with the checks that need no file."""

    endings: ClassVar[Sequence[str]] = tuple(FILE_KINDS)  # of names of files; none for any

    input_format: str
    path: StoredPath

    @property
    def geocodes(self) -> GeocodeColumns:
        """Return the column of the leaf geocodes, or the columns that are joined to geocodes."""
        columns: GeocodeColumns = getattr(self, "geocode", "geocode")
        return columns

    def check(self, schema: Schema) -> None:
        """Check all settings of the input against the schema.

        Raises:
          ConfigError, SchemaError: Attributes, levels or a product do not fit the schema; the
            message names all mistakes.
        """

    def check_path(self) -> None:
        """Check that the name of the input is that of a folder, or ends in a known file type.

        Raises:
          InputError: The name ends in another file type.
        """
        if self.endings:
            check_suffix(self.path, self.endings)

    def check_digits(self, digits: int) -> None:
        """Check that several columns make a whole geocode of the last geolevel.

        Raises:
          ConfigError: The digits of the columns do not sum to the length of the geocode.
        """
        got = digits_of(self.geocodes)
        if got is not None and got != digits:
            raise ConfigError(
                "data.geocode",
                "has columns whose digits do not add up to those of the last geolevel",
                got=got,
                want=digits,
            )


class RecordColumn(Model):
    """Column of person records with one attribute, and its codes."""

    column: Text
    """Name of the column in the file."""

    codes: dict[Text, Text] | None = None
    """Legal value in the file to level label. Default: the labels themselves."""


class RecordsData(InputFormat):
    """Person records: one row per person, with a geocode and one column per attribute."""

    later = ("quoting", "leading_zeros", "unique")

    input_format: Literal["records"]
    path: StoredPath
    """CSV or Parquet file, or a folder of such files."""

    geocode: GeocodeColumns = "geocode"

    columns: dict[Text, RecordColumn | Text]
    """For each attribute its column, or {column, codes}."""

    delimiter: Delimiter = ","

    quoting: Quoting = "double"
    leading_zeros: LeadingZeros = "kept"

    unique: list[Text] = Field(default=[])
    """Columns whose values, together, belong to one record only, such as `[household, number]`. A
    record that occurs twice doubles the loss of a person. `das validate --data` finds the rows that
    repeat them, in some 100 bytes of memory a row; a run does not read them."""

    def column_of(self, attribute: str) -> str:
        """Name the column that holds an attribute."""
        entry = self.columns[attribute]
        return entry if isinstance(entry, str) else entry.column

    def check(self, schema: Schema) -> None:
        """Check the columns, as `legal_codes` does."""
        self.legal_codes(schema)

    def legal_codes(self, schema: Schema) -> dict[str, dict[str, int]]:
        """Map, per attribute, each legal value of the file to its level position.

        Raises:
          ConfigError: `columns` does not name every attribute of the schema once, or `codes` maps
            to a level that does not exist; all that are wrong are named.
        """
        wanted = [attribute.name for attribute in schema.attributes]
        problems = [
            f"data.columns: lacks the attribute {name}; expected {wanted}"
            for name in wanted
            if name not in self.columns
        ] + [
            f"data.columns.{name}: is no attribute of the schema; expected {wanted}"
            for name in self.columns
            if name not in wanted
        ]
        out: dict[str, dict[str, int]] = {}
        for attribute in schema.attributes:
            entry, known = self.columns.get(attribute.name), attribute.level_index
            codes = entry.codes if isinstance(entry, RecordColumn) else None
            if codes is None:
                codes = {level: level for level in attribute.levels}
            problems += [
                f"data.columns.{attribute.name}.codes.{value}: names an unknown level; got {level};"
                f" expected one of {list(attribute.levels)}"
                for value, level in codes.items()
                if level not in known
            ]
            out[attribute.name] = {v: known[level] for v, level in codes.items() if level in known}
        if problems:
            where, _, rest = problems[0].partition(": ")
            raise ConfigError(where, " | ".join([rest, *problems[1:]]))
        return out


class BlockTableData(InputFormat):
    """Block table: one row per leaf geounit, one column per cell."""

    later = ("quoting", "leading_zeros")

    input_format: Literal["block_table"]
    path: StoredPath
    """CSV or Parquet file, or a folder of such files."""

    geocode: GeocodeColumns = "geocode"

    pattern: Text | None = None
    """Name of the column of a cell, with level positions in braces, such as
    "v{votingage}h{hispanic}r{cenrace:02d}". Give this or `columns`."""

    columns: dict[Text, dict[Text, Text]] | None = None
    """For each column {attribute: level}, with all attributes. Several columns can add to one cell.
    Give this or `pattern`."""

    checks: dict[Text, dict[Text, Text]] = Field(default={})
    """Columns that must equal the sum of a group of cells: column to {attribute or recode: level}.
    An empty map means all cells."""

    delimiter: Delimiter = ","

    quoting: Quoting = "double"
    leading_zeros: LeadingZeros = "kept"

    @model_validator(mode="after")
    def _one_of(self) -> BlockTableData:
        if (self.pattern is None) == (self.columns is None):
            raise ValueError("give exactly one of `pattern` and `columns`")
        return self

    def check(self, schema: Schema) -> None:
        """Check the columns, as `cells_of_columns` and `sums` do."""
        self.cells_of_columns(schema)
        self.sums(schema)

    def cells_of_columns(self, schema: Schema) -> dict[str, int]:
        """Map every column that holds counts to the number of its cell.

        Raises:
          ConfigError, SchemaError: A name is unknown, a cell has no column, or two cells have the
            same one.
        """
        if schema.size > MOST_COLUMNS:
            raise ConfigError(
                "data.input_format",
                "has a column for every cell, and the schema has too many",
                got=f"{schema.size} cells",
                want=f"at most {MOST_COLUMNS}",
                remedy="give the data as records or histograms",
            )
        if self.pattern is not None:
            return _from_pattern(self.pattern, schema)
        return _from_map(self.columns or {}, schema)

    def sums(self, schema: Schema) -> dict[str, BoolArray]:
        """Map every column of `checks` to bool[n], the cells whose sum it must equal.

        Raises:
          SchemaError: An attribute or level is unknown.
        """
        return {
            name: _cells_in(schema, group, f"data.checks.{name}")
            for name, group in self.checks.items()
        }


def _from_pattern(pattern: str, schema: Schema) -> dict[str, int]:
    codes = schema.codes_of(np.arange(schema.size))
    columns: dict[str, int] = {}
    for cell in range(schema.size):
        try:
            name = pattern.format(**{key: int(array[cell]) for key, array in codes.items()})
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise ConfigError(
                "data.pattern",
                f"cannot be filled in ({error})",
                got=pattern,
                want=f"only {list(codes)} in braces",
            ) from None
        if name in columns:
            raise ConfigError(
                "data.pattern",
                f"gives the column {name} for two cells",
                got=pattern,
                want=f"all of {list(codes)} in braces",
            )
        columns[name] = cell
    return columns


def _from_map(named: Mapping[str, Mapping[str, str]], schema: Schema) -> dict[str, int]:
    wanted = [attribute.name for attribute in schema.attributes]
    columns: dict[str, int] = {}
    for name, levels in named.items():
        where = f"data.columns.{name}"
        cells = np.flatnonzero(_cells_in(schema, levels, where))
        if sorted(levels) != sorted(wanted) or len(cells) != 1:
            raise ConfigError(
                where, "must name one level of every attribute", got=list(levels), want=wanted
            )
        columns[name] = int(cells[0])
    bare = sorted(set(range(schema.size)) - set(columns.values()))
    if bare:
        codes = schema.codes_of(np.array(bare[:1]))
        levels = {a.name: a.levels[int(codes[a.name][0])] for a in schema.attributes}
        raise ConfigError("data.columns", f"leaves {len(bare)} cells without a column", got=levels)
    return columns


def _cells_in(schema: Schema, group: Mapping[str, str], where: str) -> BoolArray:
    """Return bool[n], the cells in a group given as {attribute or recode: level}."""
    return cells_in(schema, {name: [level] for name, level in group.items()}, where)


class Pl94Data(InputFormat):
    """Official 2020 PL 94-171 summary files: geographic header and segments 1 to 3."""

    endings: ClassVar[Sequence[str]] = ()

    input_format: Literal["pl94"]
    path: StoredPath
    """The zip as published, or a folder with its four .pl files."""

    product: Literal["persons", "group_quarters", "housing_units"] = "persons"
    """persons: voting age x Hispanic x race (252 cells) from P1 to P4; group_quarters: population
    in households and 7 group-quarters types from P1 and P5; housing_units: occupied and vacant
    units from H1."""

    def check(self, schema: Schema) -> None:
        """Check that the schema has the attributes of the product.

        Raises:
          ConfigError: The schema has other attributes.
        """
        got = {attribute.name: attribute.size for attribute in schema.attributes}
        want = _PL94_AXES[self.product]
        if list(got.items()) != list(want.items()):
            raise ConfigError(
                f"data.product {self.product}", "does not fit the schema", got=got, want=want
            )


class HistogramsData(InputFormat):
    """Sparse histograms: one row per leaf geounit with its nonzero cells."""

    endings: ClassVar[Sequence[str]] = [e for e, kind in FILE_KINDS.items() if kind == "parquet"]

    input_format: Literal["histograms"]
    path: StoredPath
    """Parquet file or folder with columns geocode: string, cells: list<int64>, counts:
    list<int64>."""


class NmfData(InputFormat):
    """Noisy measurement files of the Census Bureau: imported noisy answers."""

    endings: ClassVar[Sequence[str]] = ()

    input_format: Literal["nmf"]
    path: LocalPath
    """Folder with `<Geolevel>.parquet/DPQuery`; `das nmf import` reads it, and writes the run file
    that names it."""

    chains: Literal["first", "last"] = "last"
    """End of a chain of only children whose queries and shares were measured: the first geolevel,
    as in runs of this system, or the last, as in those of the Bureau."""


class WithheldData(Model):
    """No input: used in the configuration of a release, which does not contain the data."""

    input_format: Literal["withheld"]


DataConfig = RecordsData | BlockTableData | Pl94Data | HistogramsData | NmfData
AnyDataConfig = Annotated[DataConfig | WithheldData, Field(discriminator="input_format")]
