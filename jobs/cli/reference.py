"""Write the tables of the configuration reference: `python -m jobs.cli.reference PAGE`.

The tables are made from `jobs.pipeline.config.models`; text and examples are written on the page
itself, docs/configuration.md. A test compares the tables with the output of this module, and loads
the examples.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from enum import Enum
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jobs.cli.pages import PLAIN, nested, section, words
from jobs.pipeline.config.layouts import Layout
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.models.groups import GroupsFile
from jobs.pipeline.config.models.run import RunConfig, model_fields
from jobs.pipeline.config.models.schema import SchemaFile
from jobs.pipeline.storage.place import StoredPlace
from jobs.survey.models import SurveyConfig

_PLAIN = {**PLAIN, Fraction: "fraction", Path: "path", StoredPlace: "address"}
_FILES = (RunConfig, SchemaFile, AllocationFile, GroupsFile, SurveyConfig, Layout)
_FORMAT = "Which of the input formats this is."


def reference(page: str) -> str:
    """Return the page with up-to-date tables of all models.

    Everything from the heading of a file's model to the next file is generated.
    """
    seen = set[type]()
    for file in _FILES:
        models = [each for each in nested(file) if issubclass(each, BaseModel)]
        sections = "\n".join(_section(each) for each in models if each not in seen)
        seen.update(models)
        start = page.index(f"### {file.__name__}\n")
        page = page[:start] + sections + page[page.index("\n## ", start) :]
    return page


def default(field: FieldInfo) -> str:
    """Describe the value of a key that is left out."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, str):
        return f"`{value}`" if value.isalnum() else f'`"{value}"`'
    return f'`"{value}"`' if isinstance(value, Fraction) else f"`{json.dumps(value)}`"


def _section(model: type[BaseModel]) -> str:
    rows = [
        (f"`{key}`", words(field.annotation, _PLAIN), default(field), meanings(model)[key])
        for key, field in model_fields(model).items()
    ]
    summary = " ".join((model.__doc__ or "").split())
    return section(model.__name__, summary, ("Key", "Type", "Default", "Meaning"), rows)


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each key of a model: the text below its field, or its description."""
    texts = {name: field.description for name, field in model.model_fields.items()}
    for kind in model.__mro__:
        if not issubclass(kind, BaseModel) or kind is BaseModel:
            continue
        for field, text in pairwise(_classes(inspect.getfile(kind))[kind.__name__].body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[field.target.id] = " ".join(text.value.value.split())  # type: ignore[attr-defined, union-attr]
    return {
        key: texts[name] or _FORMAT
        for name, key in zip(model.model_fields, model_fields(model), strict=True)
    }


@cache
def _classes(path: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name."""
    body = ast.parse(Path(path).read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


if __name__ == "__main__":
    written = Path(sys.argv[1])
    written.write_text(reference(written.read_text(encoding="utf-8")), encoding="utf-8")
