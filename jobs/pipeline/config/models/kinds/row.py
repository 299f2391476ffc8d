"""Linear rows: weighted sums of cells that are bounded, or exact, in every geounit."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from das.arrays import IntArray
from das.errors import SchemaError
from das.schema import Schema
from invariants.constraint import Constraint
from invariants.linear import LinearRow, weighted_cells
from jobs.pipeline.config.models.kinds.kind import KindConfig, Setting
from jobs.pipeline.config.models.values import Levels, Model, Text, Whole

_LARGEST_LIMIT = 10**15  # persons; sums of such are exact in 64 bits


class RowPart(Model):
    """Cells that count in a linear row."""

    cells: dict[Text, Levels]
    """Attributes or recodes, each with levels or ranges of levels; empty for all cells."""

    coefficient: Whole = Field(default=1, ge=-(10**6), le=10**6)
    """Weight of each person in these cells."""


class RowConfig(KindConfig):
    """A linear row: a weighted sum of cells that is bounded, or exact, in every geounit."""

    key: ClassVar[str] = "row"
    limit: ClassVar[type[Constraint]] = LinearRow

    row: list[RowPart]
    """The weighted sum. A cell in several parts counts in each part."""

    name: Text
    """Name of the row in errors and in the manifest."""

    geolevel: Text
    """Geolevel at which the row holds. At coarser geolevels, bounds are the sums of these."""

    at_least: Whole | None = Field(default=None, ge=-_LARGEST_LIMIT, le=_LARGEST_LIMIT)
    """Lower bound. Default: none."""

    at_most: Whole | None = Field(default=None, ge=-_LARGEST_LIMIT, le=_LARGEST_LIMIT)
    """Upper bound. Default: none. Without both bounds, the sum in the confidential data is
    published."""

    @property
    def is_rehearsed(self) -> bool:
        """Return whether the row has no bounds, which synthetic persons may violate."""
        return self.at_least is None and self.at_most is None

    def build(self, setting: Setting) -> list[Constraint]:
        """Find the coefficients of cells.

        Raises:
          SchemaError: The schema has too many cells, a name is unknown, or bounds contradict each
            other.
        """
        where = f"row {self.name}"
        coefficients = coefficients_of(self.row, setting.schema, where)
        low, high = self.at_least, self.at_most
        if low is not None and high is not None and low > high:
            raise SchemaError(where, "has a larger at_least than at_most", got=low)
        geolevels = setting.down_to(self.geolevel)
        return [LinearRow(self.name, coefficients, geolevels, low, high)]


def coefficients_of(parts: list[RowPart], schema: Schema, where: str) -> IntArray:
    """Return int64[n], the coefficient of each cell; raises errors of `weighted_cells`."""
    return weighted_cells(schema, [(part.coefficient, part.cells) for part in parts], where)
