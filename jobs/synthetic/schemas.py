"""The schemas that can be generated: files of conf/schema, which are installed with this room.

In a checkout the folder `schema` beside this module is a link to conf/schema; an installed package
has the files themselves.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from das.schema import Schema
from jobs.config.schema import load_schema

NAMES = ("pl94", "pl94_tables", "block16", "group_quarters", "dhc_persons", "census1940", "toy")
_FOLDER = Path(__file__).parent / "schema"


@lru_cache
def schema_named(name: str) -> Schema:
    """A schema of conf/schema."""
    return load_schema(_FOLDER / f"{name}.yaml")


def levels_of(name: str, attribute: str) -> tuple[str, ...]:
    """Levels of an attribute of a schema of conf/schema."""
    attributes = schema_named(name).attributes
    return next(one.levels for one in attributes if one.name == attribute)
