"""Layouts of official files, described by data: names of files, columns and tables.

`conf/export` has a file per layout; another file of the same kind is a further layout, without
code. `das export` writes files of a layout, `das compare` reads them, and so does the reader of
redistricting files.
"""

from __future__ import annotations

import re
from importlib.resources import as_file
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from das.errors import ConfigError
from jobs.pipeline.config.files import read_model, ready_files, ready_folder
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.models.values import Delimiter, Model, Text, Whole

FIELD = re.compile(r"\{(\w+)\}")
"""Name of a field in a text of a layout."""
FIELDS = ("geocode", "geolevel", "length", "place", "run", "number")
"""Fields that every row has: census geocode, name of the geolevel, length of the geocode, name of
the geounit, name of the run, and number of the row in its file."""
_FOLDER = "export"  # in conf
# A column without a value is written as its name, and a single query without a list.
_Named = BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)
_Digit = Annotated[Whole, Field(ge=1)]
_Listed = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)


class LayoutColumn(Model):
    """A column of a layout: a text with fields, or the code of an attribute."""

    name: Text
    """Name of the column, in the first line if the layout has one."""

    text: Text = ""
    """Text, with fields in braces: geocode, geolevel, length (digits of the geocode), place (name
    of the geounit), number (of the row in its file), run (name of the run), the variables of
    tables, and columns further left."""

    digits: tuple[_Digit, _Digit] | None = None
    """First and last character of the text to keep, from 1; a shorter text becomes empty."""

    width: Annotated[Whole, Field(ge=0)] = 0
    """Zeros are put before the text, up to this many characters."""

    axis: list[Text] = Field(default=[])
    """Of records: attributes or recodes; the first that the product has gives the column."""

    codes: Text | None = None
    """Entry of `codes` of the layout, which replaces the text or the level."""


class LayoutTable(Model):
    """A table of a layout: variables with numbers, such as P0010001."""

    variables: Annotated[Whole, Field(gt=0)]
    """Number of the variables."""

    queries: list[Annotated[list[Text], _Listed]]
    """Queries whose answers are the variables, in order. Of a list of queries, the first that the
    product can answer. {NAME} stands for an entry of `texts`."""


class LayoutFile(Model):
    """A file of a layout: a row per record if a column has an axis, else a row per geounit."""

    name: Text
    """Name of the file without ending; the name of the split in braces stands for its value."""

    columns: list[Annotated[LayoutColumn, _Named]]
    """Columns in order. A name alone is an empty column."""

    tables: list[Text] = Field(default=[])
    """Tables of geounits, whose variables follow the columns."""

    intervals: bool = False
    """Whether each variable is followed by its estimate and the ends of the interval."""

    optional: bool = False
    """Whether the file is left out if no product has its attributes."""

    def column_of(self, text: str) -> LayoutColumn | None:
        """Return the first column with a text, such as "{number}"."""
        return next((column for column in self.columns if column.text == text), None)

    def geocode_columns(self) -> list[LayoutColumn]:
        """Return the columns that make the geocode: one, or its longest parts in order."""
        found = [c for c in self.columns if c.text == "{geocode}" and not c.codes]
        whole = [column for column in found if column.digits is None]
        parts = {column.digits: column for column in found if column.digits is not None}
        chosen, last = whole[:1], 0
        while able := [digits for digits in parts if not whole and digits[0] == last + 1]:
            chosen.append(parts[max(able)])
            last = max(able)[1]
        return chosen


class Layout(Model):
    """conf/export/*.yaml: the files that `das export` writes."""

    name: Text
    """Name of the layout."""

    source: Text
    """Where the columns and codes are documented."""

    leaf_digits: Whole | None = None
    """Digits of the geocodes of the leaf geolevel. Default: any, letters included."""

    geolevels: list[Whole] | None = None
    """Lengths of the geocodes of the geolevels to write, in order; for records, those that
    `das compare` counts. Default: all."""

    split: LayoutColumn
    """A file holds the rows that have the same value of this column."""

    endings: list[Text]
    """Endings of the names of files; a file that ends with .parquet is Parquet, others are text."""

    delimiter: Delimiter = ","

    header: bool = True
    """Whether the first line has the names of columns."""

    quoted: bool = True
    """Whether texts have quotation marks."""

    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    """Encoding of text files; other characters become question marks."""

    zip: Text
    """Name of the file for --zip."""

    recoded: dict[Text, Text] = Field(default={})
    """Geocodes of records in files of others, and the geocodes that they are read as."""

    codes: dict[Text, dict[Text, Text]] = Field(default={})
    """Codes by name of a list: text or level to its code."""

    texts: dict[Text, Text] = Field(default={})
    """Parts of queries that several tables share."""

    tables: dict[Text, LayoutTable] = Field(default={})
    """Tables by name."""

    tables_of: Text | None = None
    """Layout of conf/export whose texts and tables this one uses."""

    files: list[LayoutFile]
    """Files that are written."""

    def variables(self, table: str) -> list[str]:
        """Return the names of the variables of a table, such as P0010001."""
        return [f"{table}{number:04d}" for number in range(1, self.tables[table].variables + 1)]

    def columns(self, file: LayoutFile) -> list[str]:
        """Return the names of all columns of a file, those of its tables included."""
        variables = [name for table in file.tables for name in self.variables(table)]
        return [column.name for column in file.columns] + variables

    def file_name(self, file: str, value: str, ending: str = "") -> str:
        """Return the name of a file for a value of the split, which is in lower case."""
        plain = re.sub(r"[^\w.+-]", "-", value.lower())  # values can come from a release of others
        return file.replace(f"{{{self.split.name}}}", plain) + ending


def read_layout(name: str | None) -> Layout:
    """Read a layout of conf/export by its name, or from a YAML file.

    Raises:
      ConfigError: There is no such layout, or the file cannot be read.
    """
    known = [path.stem for path in ready_files() if str(path.parent) == _FOLDER]
    if name is not None and Path(name).suffix in (".yaml", ".yml"):
        layout = read_model(Path(name), Layout)
    elif name not in known:
        want = f"one of {known}, or the path of a layout, such as own.yaml"
        raise ConfigError("das export --as", "is no known layout", got=name, want=want)
    else:
        with as_file(ready_folder() / _FOLDER / f"{name}.yaml") as path:
            layout = read_model(path, Layout)
    if layout.tables_of is None:
        return layout
    refuse_unknown(f"layout {layout.name}, tables_of", "is unknown", [layout.tables_of], known)
    other = read_layout(layout.tables_of)
    return layout.model_copy(update={"texts": other.texts, "tables": other.tables})
