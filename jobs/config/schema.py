"""Schema files as schemas."""

from __future__ import annotations

from das.errors import ConfigError
from das.schema import Attribute, Recode, Schema
from jobs.config.files import named, read_model
from jobs.config.models.schema import SchemaFile
from jobs.storage.place import Place


def load_schema(path: Place) -> Schema:
    """Read a schema file.

    Raises:
      ConfigError, SchemaError: It cannot be used.
    """
    model = read_model(path, SchemaFile)

    def build() -> Schema:
        attributes = tuple(Attribute(a.name, tuple(a.levels)) for a in model.attributes)
        by_name = {a.name: a for a in attributes}
        recodes = []
        for index, recode in enumerate(model.recodes):
            if recode.attribute not in by_name:
                raise ConfigError(
                    f"recodes.{index}.attribute",
                    "is unknown",
                    got=recode.attribute,
                    want=f"one of {list(by_name)}",
                )
            groups = {label: tuple(levels) for label, levels in recode.groups.items()}
            recodes.append(Recode.from_groups(recode.name, by_name[recode.attribute], groups))
        return Schema(model.name, attributes, tuple(recodes))

    return named(str(path), build)
