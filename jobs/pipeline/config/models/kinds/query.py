"""Queries whose answers are published exactly, or are those of an earlier release."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from das.errors import ConfigError
from invariants.constraint import Constraint
from invariants.exact import Invariant, PinnedQuery
from jobs.pipeline.config.models.kinds.kind import KindConfig, PublicTable, ReleasedCounts, Setting
from jobs.pipeline.config.models.values import Text


class InvariantConfig(KindConfig):
    """A query whose answers are published exactly, or are those of an earlier release."""

    later = ("released",)
    key: ClassVar[str] = "query"
    limit: ClassVar[type[Constraint]] = PinnedQuery

    query: Text
    """Query, such as "total"."""

    geolevel: Text
    """Geolevel at which the query is exact; it is then exact at all coarser geolevels."""

    table: PublicTable | None = None
    """Published table with which the confidential data must agree, one column per answer. Geounits
    without a row have 0."""

    released: ReleasedCounts | None = None
    """Counts of an earlier release, which replace the answers of the confidential data. The query
    is not evaluated on the confidential data."""

    @model_validator(mode="after")
    def _one_source(self) -> InvariantConfig:
        if self.table is not None and self.released is not None:
            raise ValueError("give only one of `table` and `released`")
        return self

    @property
    def is_exact_query(self) -> bool:
        """Return whether the answers come from the data of this run."""
        return self.released is None

    def build(self, setting: Setting) -> list[Constraint]:
        """Parse the query.

        Raises:
          SchemaError: The query or geolevel is unknown.
          ConfigError: The table lacks answers.
        """
        kind = Invariant if self.is_exact_query else PinnedQuery
        found = kind.build(setting.schema, setting.spine, self.query, self.geolevel)
        table = self.public_table
        if table is not None and sorted(table.columns) != sorted(found.query.labels()):
            raise ConfigError(
                "table.columns",
                f"must name every answer of {found.query.name}",
                got=list(table.columns),
                want=found.query.labels(),
            )
        return [found]
