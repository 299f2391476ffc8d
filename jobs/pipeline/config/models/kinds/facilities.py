"""Facilities: how many of each type a geounit has, and how many persons each may hold."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from das.errors import SchemaError
from das.queries.query import parse_query
from invariants.constraint import Constraint
from invariants.facilities import Facilities
from jobs.pipeline.config.models.kinds.kind import CountedConfig, ExactAnswers, PublicTable, Setting
from jobs.pipeline.config.models.values import Text, Whole

_LEAST, _MOST = 1, 99_999  # persons of one facility
_Limit = Annotated[Whole, Field(ge=0, le=10**6)]


class FacilitiesConfig(CountedConfig):
    """Facility counts by type, published exactly; each facility holds some persons."""

    key: ClassVar[str] = "facilities"
    limit: ClassVar[type[Constraint]] = Facilities

    facilities: Text
    """Query of the persons by type, such as hhgq."""

    geolevel: Text
    """Geolevel at which facilities are counted."""

    table: PublicTable | None = None
    """Public table with a column per type; geounits without a row have no facilities. A type
    without column is not counted, and can hold any number of persons. Give this or `exact`."""

    exact: ExactAnswers | None = None
    """Exact answers of another product that counts facilities, such as the units. Give this or
    `table`."""

    at_least: dict[Text, _Limit] = Field(default={})
    """Smallest number of persons in one facility, by type. Default: 1."""

    at_most: dict[Text, _Limit] = Field(default={})
    """Largest number of persons in one facility, by type. Default: 99999."""

    def build(self, setting: Setting) -> list[Constraint]:
        """Build the constraint: which types are counted, and bounds on persons per facility.

        Raises:
          SchemaError: The query does not count every person as one type, a name is not a type of
            the query, no type is counted, or `at_least` exceeds `at_most` for a type.
        """
        query = parse_query(setting.schema, self.facilities)
        if not query.is_partition:
            raise SchemaError(f"facilities {query.name}", "must count every person as one type")
        types, counted = query.labels(), self.labels(setting)
        if self.exact is not None:  # other answers of that product are no types
            counted = [label for label in counted if label in types]
        for key, names in (
            ("table.columns", counted),
            ("at_least", self.at_least),
            ("at_most", self.at_most),
        ):
            unknown = [name for name in names if name not in types]
            if unknown:
                raise SchemaError(
                    key, "names an unknown type", got=unknown, want=f"some of {types}"
                )
        if not counted:
            raise SchemaError(
                "exact", "has no level that is a type of facility", want=f"some of {types}"
            )
        least = np.array([self.at_least.get(name, _LEAST) for name in types], np.int64)
        most = np.array([self.at_most.get(name, _MOST) for name in types], np.int64)
        if (least > most).any():
            at = int(np.argmax(least > most))
            raise SchemaError(
                f"at_least.{types[at]}",
                "is above at_most, in persons per facility of this type",
                got=int(least[at]),
            )
        geolevels = setting.down_to(self.geolevel)
        return [Facilities(query, geolevels, least, most, np.isin(types, counted))]
