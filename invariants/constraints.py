"""Limits: invariants other than exact queries. What they say is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.queries.query import Query
from das.schema import Schema
from invariants.between import Ties
from invariants.exact import BoundQuery
from invariants.facilities import Facilities
from invariants.limit import Limit
from invariants.linear import LinearRow
from invariants.quarters import LivingQuarters
from invariants.zeros import StructuralZeros, representative_levels

Kind = TypeVar("Kind", bound=Limit)


@dataclass(frozen=True, eq=False)
class Limits:
    """All that counts must keep beside the exact queries of a plan.

    Attributes:
      stated: Invariants of the product; linear rows that other products demand come last.
      ties: What counts of products before this one bound; then there are no facilities.
    """

    stated: tuple[Limit, ...] = ()
    ties: Ties | None = None

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """All of one kind."""
        return tuple(one for one in self.stated if isinstance(one, kind))

    def stated_at(self, geolevel: str) -> list[Limit]:
        """Those that are stated at a geolevel, or at every one, and can be broken by counts."""
        return [one for one in self.stated if one.is_compared and one.geolevel in ("", geolevel)]

    @cached_property
    def facilities(self) -> Facilities | None:
        """Facility counts by type, or none."""
        return next(iter(self.of(Facilities)), None)

    @cached_property
    def zeros(self) -> StructuralZeros | None:
        """Cells in which nobody can be, or none."""
        return next(iter(self.of(StructuralZeros)), None)

    @cached_property
    def quarters(self) -> LivingQuarters | None:
        """Living quarters, without which nobody lives in a geounit, or none."""
        return next(iter(self.of(LivingQuarters)), None)

    @cached_property
    def rows(self) -> tuple[LinearRow, ...]:
        """Linear rows."""
        return self.of(LinearRow)

    @cached_property
    def bound(self) -> tuple[BoundQuery, ...]:
        """Queries whose answers are those of an earlier release."""
        return self.of(BoundQuery)

    @property
    def by_type(self) -> Facilities | Ties | None:
        """What bounds counts by type in the leaves, or none."""
        return self.facilities or self.ties

    @property
    def hang_on_products(self) -> bool:
        """Whether what they imply is known only once other products are counted."""
        return self.ties is not None or any(row.cap is not None for row in self.rows)

    def possible(self, schema: Schema) -> IntArray:
        """int64[k]: cells in which somebody may be, sorted; a number for each of them."""
        cells = np.arange(schema.size)
        return cells if self.zeros is None else cells[~self.zeros.holds(cells)]

    def possible_answers(self, query: Query) -> BoolArray:
        """bool[m]: answers of a partition query that count a cell in which somebody may be.

        Memory follows the answers, not the cells.
        """
        if self.zeros is None:
            return np.ones(query.size, np.bool_)
        return self.zeros.first_outside(query, np.arange(query.size)) >= 0

    def n_possible(self, schema: Schema) -> int:
        """k, the number of cells in which somebody may be."""
        return schema.size - (0 if self.zeros is None else len(self.zeros))

    def rows_at(self, geolevel: str) -> list[LinearRow]:
        """Rows imposed at a geolevel."""
        return [row for row in self.rows if geolevel in row.geolevels]

    def bounded_rows_at(self, geolevel: str) -> list[LinearRow]:
        """Rows with stated bounds imposed at a geolevel."""
        return [row for row in self.rows_at(geolevel) if not row.is_exact]

    def exact_rows_at(self, geolevel: str) -> list[LinearRow]:
        """Rows whose sums are published exactly at a geolevel."""
        return [row for row in self.rows_at(geolevel) if row.is_exact]

    def binds(self, geolevel: str) -> bool:
        """Whether geounits of a geolevel have leaves or bounded rows to keep."""
        counted = self.by_type is not None and geolevel in self.by_type.geolevels
        return counted or bool(self.bounded_rows_at(geolevel))

    def quarters_at(self, geolevel: str) -> LivingQuarters | None:
        """Living quarters, if they are known at a geolevel."""
        known = self.quarters is not None and geolevel in self.quarters.geolevels
        return self.quarters if known else None

    def is_implied(self, geolevel: str) -> bool:
        """Whether geounits of a geolevel keep something that follows from given counts."""
        return self.binds(geolevel) or self.quarters_at(geolevel) is not None

    def levels_told_apart(
        self, schema: Schema, queries: Sequence[Query], most: int
    ) -> list[IntArray]:
        """Levels of each attribute that stand for all that no limit and no query tells apart.

        Coefficients of rows tell all apart.

        Args:
          schema: Attributes and cells.
          queries: Partition queries.
          most: How many levels stand for those that are alike.
        """
        if self.rows:
            return [np.arange(size) for size in schema.shape]
        asked = [*queries, *(query for one in self.stated for query in one.queries)]
        return representative_levels(schema.shape, asked, self.zeros, most)

    def document(self, schema: Schema) -> list[dict[str, object]]:
        """What a manifest says of each: its kind, its name, where it holds, and types."""
        stated = [one.document(schema) for one in self.stated if not isinstance(one, LinearRow)]
        if self.ties is not None:
            geolevels = list(self.ties.geolevels)
            for tie in self.ties.entries:
                stated.append({"kind": "between", "name": tie.name, "geolevels": geolevels})
        # What other products demand follows from what is stated.
        return stated + [row.document(schema) for row in self.rows if row.cap is None]
