"""Models of the section `between` of a run file: constraints between its products."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from jobs.pipeline.config.models.kinds.row import RowPart
from jobs.pipeline.config.models.values import Model, ProductName, Text


class SideConfig(Model):
    """One side of a constraint: a weighted sum of cells of a product."""

    product: ProductName = Field(description="Name of the product.")
    row: list[RowPart] = Field(
        min_length=1,
        description="The sum; cells in several parts count in each. Of the product that comes "
        "later in the run file every record counts once or not at all.",
    )


class BetweenConfig(Model):
    """A constraint between two products, which holds in every geounit of a geolevel."""

    name: Text = Field(description="Its name in errors and in the manifest.")
    geolevel: Text = Field(
        description="Geolevel at which it holds, and so at all coarser ones; the same for all "
        "constraints of the later product."
    )
    left: SideConfig = Field(description="One product.")
    relation: Literal["equals", "at_least", "at_most"] = Field(
        description="How the left side compares with the right one."
    )
    right: SideConfig = Field(description="The other product.")
