"""Model of files of groups whose errors are planned."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from jobs.pipeline.config.models.values import LocalPath, Model, Text


class Comparison(StrEnum):
    """Measure by which errors of groups are compared."""

    RELATIVE = "relative"
    ABSOLUTE = "absolute"


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]


class GroupsFile(Model):
    """Population groups whose largest error is minimized, or whose errors must meet targets."""

    groups: dict[Text, Comparison | dict[Text, Comparison]] = Field(min_length=1)
    """Partition query, each of whose answers is a group, to how its groups are compared: relative
    to their sizes, or absolute, in persons; or geolevel to that."""

    tables: list[Text] = Field(default=["total"], min_length=1)
    """Partition queries whose errors count for a group, restricted to the group."""

    sizes: LocalPath | None = None
    """CSV with columns query, group, persons and perhaps geolevel: public numbers of persons in
    all, or in a typical geounit of the geolevel. For relative errors."""

    floor: Positive | None = None
    """Relative errors count only if a typical geounit has at least this number of persons of the
    group."""

    targets: dict[Text, dict[Text, Positive | dict[Text, Positive]]] | None = None
    """For each query and group its largest error, relative or in persons as `groups` states, or a
    map of geolevel to this error. The plan then meets the targets with the least rho."""

    others: Annotated[Positive, Field(ge=1)] | None = None
    """Largest factor by which the error of any table of the run may grow, at any geolevel."""

    limits: dict[Text, Positive | dict[Text, Positive]] | None = None
    """For each table its largest root mean squared error, or a map of geolevel to this error."""
