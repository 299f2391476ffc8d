"""Models of schema files."""

from __future__ import annotations

from pydantic import Field

from jobs.config.models.values import Model, Text


class AttributeFile(Model):
    """One attribute of a schema file."""

    name: Text = Field(description="Name used in queries and as microdata column.")
    levels: list[Text] = Field(description="Labels of the levels, in order.")


class RecodeFile(Model):
    """One recode of a schema file."""

    name: Text = Field(description="Name used in queries.")
    attribute: Text = Field(description="Attribute whose levels are grouped.")
    groups: dict[Text, list[Text]] = Field(
        description="Group label to the levels in it; every level in exactly one group."
    )


class SchemaFile(Model):
    """conf/schema/*.yaml: the attributes of a histogram and the recodes queries may use."""

    name: Text = Field(description="Name of the schema.")
    attributes: list[AttributeFile] = Field(description="Axes in order; the last varies fastest.")
    recodes: list[RecodeFile] = Field(default=[], description="Groupings of levels.")
