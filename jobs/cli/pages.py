"""Building blocks of generated pages: types in words, nested types, and tables of fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

PLAIN = {str: "text", bool: "boolean", int: "integer", float: "number"}


def words(annotation: Any, plain: Mapping[Any, str] = PLAIN) -> str:  # noqa: ANN401 - any type
    """Describe a type in words; None is left out unless `plain` names it.

    >>> words(dict[str, list[int]])
    'map of text to list of integer'
    >>> words(tuple[int, ...] | None, {**PLAIN, NoneType: "null"})
    'list of integer or null'
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in plain:
        return plain[annotation]
    if origin is Annotated:
        return words(arguments[0], plain)
    if origin in (list, tuple):
        return f"list of {words(arguments[0], plain)}"
    if origin is dict:
        return f"map of {words(arguments[0], plain)} to {words(arguments[1], plain)}"
    if origin in (Union, UnionType):
        shown = [kind for kind in arguments if kind is not NoneType or NoneType in plain]
        return " or ".join(words(kind, plain) for kind in shown)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        arguments = tuple(member.value for member in annotation)
    elif origin is not Literal:
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    values = ", ".join(f"`{value}`" for value in arguments)
    return f"one of {values}" if len(arguments) > 1 else values


def nested(kind: type) -> Iterator[type]:
    """Yield a type and all types of its fields, each once, depth first."""
    seen: dict[type, None] = {}

    def visit(annotation: Any) -> None:  # noqa: ANN401 - any type annotation
        for argument in get_args(annotation):
            visit(argument)
        names = fields_of(annotation)
        if names and annotation not in seen:
            seen[annotation] = None
            hints = get_type_hints(annotation)
            for name in names:
                visit(hints[name])

    visit(kind)
    yield from seen


def fields_of(kind: Any) -> Sequence[str]:  # noqa: ANN401 - any type annotation
    """Return the names of the fields of a dataclass or a model; none of another type."""
    if not isinstance(kind, type):
        return ()
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return [*getattr(kind, "model_fields", ())]


def section(title: str, summary: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a section of Markdown with a table."""
    table = ["| " + " | ".join(map(escaped, row)) + " |" for row in (head, *rows)]
    table.insert(1, "|---" * len(head) + "|")
    return "\n".join([f"### {title}\n", f"{summary}\n", *table, ""])


def escaped(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")
