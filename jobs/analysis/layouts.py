"""Layouts of `das export`: the files that other programs read, described by data.

`conf/export` has a file per layout; another file of the same kind is a further layout, without
code. A layout states columns and the queries that fill them. Which product of a release answers a
query, and whether the release can fill the columns at all, is decided here before a file is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import as_file
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from das.errors import ConfigError, SchemaError, require_distinct
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.config.files import read_model, ready_files, ready_folder
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.models.values import Delimiter, Model, Text, Whole
from jobs.pipeline.config.product import Product, Resolved

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


@dataclass(frozen=True, eq=False)
class FilledTable:
    """A table of a layout with the product that fills it.

    Attributes:
      name: Name of the table.
      variables: Names of the variables, such as P0010001.
      product: Product that answers the queries; None if the table is left out.
      queries: Queries on the schema of the product; their answers are the variables.
    """

    name: str
    variables: Sequence[str]
    product: Product | None
    queries: Sequence[Query]


@dataclass(frozen=True, eq=False)
class FilledFile:
    """A file of a layout with all that fills it.

    Attributes:
      file: The file.
      tables: Tables that columns need, by name.
      records: Product of the records; None for a file of geounits.
      levels: Column to its attribute and to the code of each level of the attribute.
    """

    file: LayoutFile
    tables: Mapping[str, FilledTable]
    records: Product | None
    levels: Mapping[str, tuple[str, Sequence[str]]]


def fill_layout(layout: Layout, resolved: Resolved, leave_out: Sequence[str]) -> list[FilledFile]:
    """Find the products of a release that fill a layout.

    Args:
      layout: The layout.
      resolved: The run of the release.
      leave_out: Tables to leave out.

    Raises:
      ConfigError: The geocodes do not fit the layout, the layout is contradictory, or the release
        lacks what columns need; names all missing tables.
    """
    where = f"das export --as {layout.name}"
    refuse_unknown(f"{where} --leave-out", "is no table", leave_out, layout.tables)
    leaf, digits = [*resolved.plan.census_digits.items()][-1]
    if layout.leaf_digits not in (None, digits):
        got, want = f"geolevel {leaf}, {digits} digits", f"{layout.leaf_digits} digits"
        raise ConfigError(where, "cannot hold the geocodes of the leaves", got=got, want=want)
    products, tables = fill_tables(layout, resolved, leave_out)
    files = [_filled_file(layout, file, tables, products) for file in layout.files]
    filled = [file for file in files if file is not None]
    used = dict.fromkeys(name for file in filled for name in file.file.tables)
    missing = [name for name in used if tables[name].product is None and name not in leave_out]
    if missing:
        raise ConfigError(
            where,
            f"has tables that no product of the release can fill: {', '.join(missing)}",
            got={name: [*_axes(one.plan.schema)] for name, one in resolved.products.items()},
            want=" ".join(f"--leave-out {name}" for name in missing),
        )
    return filled


def fill_tables(
    layout: Layout, resolved: Resolved, leave_out: Sequence[str] = ()
) -> tuple[list[Product], dict[str, FilledTable]]:
    """Find the product that fills each table of a layout.

    Args:
      layout: The layout.
      resolved: The run of the release.
      leave_out: Tables to leave out.

    Returns:
      The products, those that fill most tables first; and the tables by name.

    Raises:
      ConfigError: The layout is contradictory.
    """
    products = [*resolved.products.values()][::-1]  # the last is what users mean first
    fits = {
        one.name: {name: table_queries(layout, name, one.plan.schema) for name in layout.tables}
        for one in products
    }
    # One product fills as many tables as possible, since counts of two products can differ.
    products.sort(key=lambda one: sum(queries is None for queries in fits[one.name].values()))
    tables = {}
    for name in layout.tables:
        able = [one for one in products if fits[one.name][name] and name not in leave_out]
        product = able[0] if able else None
        queries = fits[product.name][name] if product else None
        tables[name] = FilledTable(name, table_variables(layout, name), product, queries or ())
    return products, tables


def _axes(schema: Schema) -> dict[str, str]:
    """Return the attribute of each attribute and recode."""
    recodes = {one.name: one.attribute for one in schema.recodes}
    return {one.name: one.name for one in schema.attributes} | recodes


def table_queries(layout: Layout, name: str, schema: Schema) -> tuple[Query, ...] | None:
    """Return the queries of a table on a schema, whose answers are the variables in order.

    Args:
      layout: The layout.
      name: Name of a table of the layout.
      schema: Schema of a product.

    Returns:
      The queries; None if the schema lacks an attribute or a level.

    Raises:
      ConfigError: The queries have other answers than the table has variables, or name an unknown
        text.
    """
    table, where, queries = layout.tables[name], f"layout {layout.name}, table {name}", []
    for entry in table.queries:
        texts = [field for text in entry for field in FIELD.findall(text)]
        refuse_unknown(where, "has an unknown text", texts, layout.texts)
        for text in entry:
            with suppress(SchemaError):
                whole = FIELD.sub(lambda field: layout.texts[field[1]], text)
                queries.append(parse_query(schema, whole))
                break
        else:
            return None
    size = sum(query.size for query in queries)
    if size != table.variables:
        raise ConfigError(where, "has another number of answers", got=size, want=table.variables)
    return tuple(queries)


def table_variables(layout: Layout, name: str) -> list[str]:
    """Return the names of the variables of a table, such as P0010001."""
    return [f"{name}{number:04d}" for number in range(1, layout.tables[name].variables + 1)]


def _filled_file(
    layout: Layout, file: LayoutFile, tables: Mapping[str, FilledTable], products: Sequence[Product]
) -> FilledFile | None:
    """Return a file with the first product that has its attributes; None if it may be missing."""
    where = f"layout {layout.name}, file {file.name}"
    refuse_unknown(where, "has an unknown table", file.tables, tables)
    lists = [one.codes for one in (layout.split, *file.columns) if one.codes is not None]
    refuse_unknown(where, "has an unknown list of codes", lists, layout.codes)
    split = FIELD.findall(layout.split.text)
    refuse_unknown(where, "is split by an unknown field", split, FIELDS[:-1])  # numbers come later
    require_distinct([c.name for c in file.columns], ConfigError, where, "has a column twice")
    owner = {variable: name for name, one in tables.items() for variable in one.variables}
    known, needed = {*FIELDS}, dict.fromkeys(file.tables)
    for column in file.columns:
        fields, place = FIELD.findall(column.text), f"{where}, column {column.name}"
        refuse_unknown(place, "has an unknown field", fields, (*known, *owner))
        needed |= dict.fromkeys(owner[field] for field in fields if field in owner)
        known.add(column.name)
    with_axis = [column for column in file.columns if column.axis]
    if not with_axis:
        return FilledFile(file, {name: tables[name] for name in needed}, None, {})
    refuse_unknown(where, "has records, and tables are of geounits", file.tables, ())
    for product in products:
        levels = dict(_levels(layout, file, product.plan.schema))
        if len(levels) == len(with_axis):
            return FilledFile(file, {}, product, levels)
    if file.optional:
        return None
    raise ConfigError(
        f"das export --as {layout.name}",
        f"has the file {file.name}, and no product of the release has its attributes",
        got={product.name: [*_axes(product.plan.schema)] for product in products},
        want=[" or ".join(column.axis) for column in with_axis],
    )


def _levels(
    layout: Layout, file: LayoutFile, schema: Schema
) -> Iterator[tuple[str, tuple[str, Sequence[str]]]]:
    """Yield (column, (attribute, code of each level)) of the columns that a schema can fill."""
    owner = _axes(schema)
    for column in file.columns:
        axis = next((name for name in column.axis if name in owner), None)
        if axis is None:
            continue
        position = [one.name for one in schema.attributes].index(owner[axis])
        factor = parse_query(schema, axis).factors[position]
        codes = layout.codes.get(column.codes or "", {name: name for name in factor.labels})
        if {*factor.labels} <= codes.keys():
            yield column.name, (owner[axis], [codes[factor.labels[row]] for row in factor.codes])


def attribute_codes(
    layout: Layout, file: LayoutFile, schema: Schema
) -> dict[str, dict[str, Sequence[str]]]:
    """Return the columns that tell the level of each attribute, with the code of each level.

    Returns:
      Attribute to column to codes; empty if the columns do not tell every attribute of the schema.
    """
    found: dict[str, dict[str, Sequence[str]]] = {one.name: {} for one in schema.attributes}
    for column, (attribute, codes) in _levels(layout, file, schema):
        found[attribute][column] = codes
    for one in schema.attributes:
        if len({*zip(*found[one.name].values(), strict=True)}) < len(one.levels):
            return {}
    return found
