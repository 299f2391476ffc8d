"""Schemas of conf/schema for which data can be generated."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import as_file

from das.schema import Schema
from jobs.pipeline.config.files import ready_folder
from jobs.pipeline.config.schema import load_schema

NAMES = (
    "pl94",
    "pl94_tables",
    "block16",
    "group_quarters",
    "dhc_persons",
    "dhc_households",
    "census1940",
    "toy",
    "residents",
)


@lru_cache
def schema_named(name: str) -> Schema:
    """Load a schema of conf/schema."""
    with as_file(ready_folder() / "schema" / f"{name}.yaml") as path:
        return load_schema(path)


def levels_of(name: str, attribute: str) -> tuple[str, ...]:
    """Return the levels of an attribute of a schema of conf/schema."""
    return next(a.levels for a in schema_named(name).attributes if a.name == attribute)
