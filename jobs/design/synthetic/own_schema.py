"""The command `das generate --schema FILE`: invented persons of the user's schema."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from das.errors import ConfigError
from jobs.design.folders import refuse_full
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.files import FORMATS, GrowingTable, check_spec, lies_in
from jobs.design.synthetic.invented import PERSONS, Inventor, choices_of
from jobs.design.synthetic.nation import block_geocodes
from jobs.pipeline.confidential.look import look_at
from jobs.pipeline.config.local_path import local_path
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.input.files import Table
from jobs.pipeline.input.geounits import geocode_column, sorted_unique
from jobs.pipeline.storage.files import writing
from jobs.pipeline.storage.place import Place


def invent_persons(spec: GenerateSpec, out: Path) -> dict[str, int | str | bool]:
    """Write invented persons of a schema file to `out/geounits.parquet` and `out/<format>/`.

    Returns:
      Facts: numbers of leaves and persons, and the written paths.

    Raises:
      ConfigError, SchemaError: The schema is invalid, or a number is out of range.
      InputError: The list cannot be read.
      OutputError: The folder is not empty or cannot be written.
    """
    refuse_full(out)
    try:
        path = local_path(spec.schema)
    except ValueError as error:
        raise ConfigError(f"path {spec.schema}", str(error)) from None
    schema = load_schema(path)
    check_spec(spec)
    names = [attribute.name for attribute in schema.attributes]
    if spec.format == "block_table" and not all(name.isidentifier() for name in names):
        raise ConfigError(
            "generate, format",
            "names columns after attributes, but these names are no identifiers",
            got=names,
            want="records or histograms",
        )
    if spec.persons is not None and spec.persons < 1:
        raise ConfigError("generate", "cannot invent these data", got=f"{spec.persons} persons")
    leaves = [*(block_geocodes(spec) if spec.listed is None else _listed(spec, spec.listed))]
    mean = PERSONS if spec.persons is None else spec.persons / len(leaves)
    inventor = Inventor(schema, choices_of(schema), (spec.seed, 0), mean)
    persons = 0
    data, geounits = out / spec.format, out / "geounits.parquet"
    with writing(out):
        data.mkdir(parents=True, exist_ok=True)
        with GrowingTable(geounits) as file:
            file.write(pa.table({"geocode": pa.array(leaves, pa.string())} | lies_in(leaves)))
        with GrowingTable(data / "part-00000.parquet") as file:
            for drawn in inventor.draw_all(leaves):
                persons += len(drawn.rows)
                file.write(FORMATS[spec.format](drawn.blocks(), schema))
    paths = {"data": str(data), "geounits": str(geounits)}
    return {"invented": True, "blocks": len(leaves), "persons": persons, **paths}


def _listed(spec: GenerateSpec, listed: Place) -> Iterator[str]:
    """Yield the sorted geocodes of a public list of leaves, of any spine."""
    named = spec.columns.split(",")[0].strip()
    look = look_at(listed, sys.maxsize, alone=True)
    column = look.column(named)
    if column is None or not column.is_code:
        raise ConfigError(
            f"generate, list {listed}",
            "has no such column of geocodes",
            got=named,
            want=f"one of {[column.name for column in look.columns if column.is_code]}",
            remedy="name it by --columns",
        )
    digits, lost = column.longest, not column.is_text or column.shortest < column.longest
    table = Table(listed, (named,), look.delimiter or ",", "", lost)
    codes = sorted_unique(geocode_column(table, named, digits), table, named, digits)
    yield from (code.decode() for code in codes.tolist())
