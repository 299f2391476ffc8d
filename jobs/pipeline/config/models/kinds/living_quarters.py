"""Living quarters by kind: where there are none, nobody lives."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from das.errors import SchemaError
from invariants.constraint import Constraint
from invariants.quarters import LivingQuarters
from jobs.pipeline.config.models.kinds.kind import CountedConfig, ExactAnswers, PublicTable, Setting
from jobs.pipeline.config.models.values import Text


class LivingQuartersConfig(CountedConfig):
    """Housing units and facilities by kind; a geounit without them has no persons."""

    key: ClassVar[str] = "living_quarters"
    limit: ClassVar[type[Constraint]] = LivingQuarters

    living_quarters: list[Text]
    """Kinds that are housing units, from which persons can be predicted (`solve.housing_units`).
    All other kinds are facilities. Empty if no kind is housing units."""

    geolevel: Text
    """Geolevel at which housing units and facilities are counted."""

    table: PublicTable | None = None
    """Public table with a column per kind; geounits without a row have none. Every kind in which
    people can live must have a column. Give this or `exact`."""

    exact: ExactAnswers | None = None
    """Exact answers of another product, such as the units; every answer of the query is a kind.
    Give this or `table`."""

    def build(self, setting: Setting) -> list[Constraint]:
        """Find the kinds that are counted, and which of them are housing units.

        Raises:
          SchemaError: Nothing is counted, or housing units are no kind.
        """
        counted = self.labels(setting)
        unknown = [name for name in self.living_quarters if name not in counted]
        if unknown:
            raise SchemaError(
                "living_quarters",
                "names a kind that is not counted",
                got=unknown,
                want=f"some of {counted}",
            )
        if not counted:
            raise SchemaError("table.columns", "counts nothing")
        is_housing = np.isin(counted, self.living_quarters)
        return [LivingQuarters(tuple(counted), is_housing, setting.down_to(self.geolevel))]
