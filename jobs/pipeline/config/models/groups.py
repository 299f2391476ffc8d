"""Model of files of groups whose errors are planned."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from jobs.pipeline.config.models.values import LocalPath, Model, Text


class Comparison(StrEnum):
    """How errors of groups are compared with each other."""

    RELATIVE = "relative"
    ABSOLUTE = "absolute"


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]


class GroupsFile(Model):
    """Groups whose largest error is made least, or whose errors meet targets."""

    groups: dict[Text, Comparison | dict[Text, Comparison]] = Field(min_length=1)
    """Partition query, each of whose answers is a group, to how its groups are compared: relative
    to their sizes, or absolute, in persons; or geolevel to that."""

    tables: list[Text] = Field(default=["total"], min_length=1)
    """Tables whose errors count for a group, restricted to it; partition queries."""

    sizes: LocalPath | None = None
    """CSV with columns query, group, persons and perhaps geolevel: public numbers of persons in
    all, or in a typical geounit of the geolevel. For relative errors."""

    floor: Positive | None = None
    """Relative errors count only where a typical geounit has at least so many persons of the
    group."""

    targets: dict[Text, dict[Text, Positive | dict[Text, Positive]]] | None = None
    """Query to group to its largest error, relative or in persons as `groups` says, or geolevel to
    that. These are then met with the least rho."""

    others: Annotated[Positive, Field(ge=1)] | None = None
    """Largest factor by which the error of any table of the run may grow at any geolevel."""

    limits: dict[Text, Positive | dict[Text, Positive]] | None = None
    """Table to its largest root mean squared error, or geolevel to that."""
