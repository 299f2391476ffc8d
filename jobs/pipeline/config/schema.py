"""Read schema files."""

from __future__ import annotations

from das.schema import Attribute, Recode, Schema, written_out
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.mistakes import at, refuse_unknown
from jobs.pipeline.config.models.schema import SchemaFile
from jobs.pipeline.storage.place import Place


def read_schema(path: Place) -> SchemaFile:
    """Read a schema file; ranges of levels are written out, so that spelling changes no digest.

    Raises:
      ConfigError, SchemaError: The file cannot be read, or a range of levels is invalid.
    """
    model = read_model(path, SchemaFile)
    levels = {attribute.name: attribute.levels for attribute in model.attributes}
    recodes = []
    for recode in model.recodes:
        where, known = f"{path}: recode {recode.name}, group ", levels.get(recode.attribute)
        groups = {
            label: list(written_out(known, listed, where + label)) if known else listed
            for label, listed in recode.groups.items()
        }
        recodes.append(recode.model_copy(update={"groups": groups}))
    return model.model_copy(update={"recodes": recodes})


def load_schema(path: Place, model: SchemaFile | None = None) -> Schema:
    """Read a schema file.

    Args:
      path: The file.
      model: Content of the file, if it was read before.

    Raises:
      ConfigError, SchemaError: The schema file cannot be used.
    """
    model = model or read_schema(path)
    with at(str(path)):
        attributes = tuple(Attribute(a.name, tuple(a.levels)) for a in model.attributes)
        by_name = {a.name: a for a in attributes}
        recodes = []
        for index, recode in enumerate(model.recodes):
            refuse_unknown(f"recodes.{index}.attribute", "is unknown", [recode.attribute], by_name)
            groups = {label: tuple(levels) for label, levels in recode.groups.items()}
            recodes.append(Recode.from_groups(recode.name, by_name[recode.attribute], groups))
        return Schema(model.name, attributes, tuple(recodes))
