"""What fills a layout of `das export`: the queries of its tables, and products of a release.

Which product of a release answers a query, and whether the release can fill the columns at all, is
decided here before a file is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from das.errors import ConfigError, SchemaError, require_distinct
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.config.layouts import FIELD, FIELDS, Layout, LayoutFile
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.product import Product, Resolved


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
        tables[name] = FilledTable(name, layout.variables(name), product, queries or ())
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
