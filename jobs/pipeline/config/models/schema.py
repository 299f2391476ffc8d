"""Models of schema files."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from jobs.pipeline.config.models.values import Levels, Model, Text

# Of an attribute, six times the largest of this project. Its identity is a matrix of the square of
# this, 72 MB, and the rank of a workload takes the cube: 5 s, where 10,000 levels take minutes. A
# typing error in a range, or a schema that comes with a release of others, must not wait for that.
_MOST_LEVELS = 3_000


def _numbered(levels: list[str]) -> list[str]:
    """Return levels with ranges of whole numbers written out."""
    out: list[str] = []
    for text in levels:
        first, dots, last = (part.strip() for part in text.partition(".."))
        if not (dots and first.isdecimal() and last.isdecimal()):
            out.append(text)
            continue
        n_levels = int(last) - int(first) + 1
        if not 0 < n_levels <= _MOST_LEVELS:
            raise ValueError(f"range {text} must rise, by at most {_MOST_LEVELS} levels")
        width = len(first) if first.startswith("0") and len(first) == len(last) else 0
        out += [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    if len(out) > _MOST_LEVELS:
        raise ValueError(f"are {len(out)}, and an attribute has at most {_MOST_LEVELS} levels")
    return out


class AttributeFile(Model):
    """One attribute of a schema file."""

    name: Text
    """Name used in queries and as microdata column."""

    levels: Annotated[Levels, AfterValidator(_numbered)]
    """Labels of the levels, in order; whole numbers also as ranges such as 0..115."""


class RecodeFile(Model):
    """One recode of a schema file: a grouping of the levels of an attribute."""

    name: Text
    """Name used in queries."""

    attribute: Text
    """Attribute whose levels are grouped."""

    groups: dict[Text, Levels]
    """For each group label the levels in the group, or ranges of consecutive levels such as 0..17.
    Every level must be in exactly one group."""


class SchemaFile(Model):
    """conf/schema/*.yaml: the attributes of a histogram and the recodes queries may use."""

    name: Text
    """Name of the schema."""

    attributes: list[AttributeFile]
    """Attributes in order; in the numbering of cells the last one varies fastest."""

    recodes: list[RecodeFile] = Field(default=[])
    """Groupings of the levels of an attribute."""
