"""Constraints of a product: invariants other than exact queries. Their content is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.queries.query import Query
from das.schema import Schema
from invariants.between import CrossProductConstraints
from invariants.constraint import Constraint
from invariants.exact import PinnedQuery
from invariants.facilities import Facilities
from invariants.linear import LinearRow
from invariants.quarters import LivingQuarters
from invariants.zeros import StructuralZeros, representative_levels

Kind = TypeVar("Kind", bound=Constraint)


@dataclass(frozen=True, eq=False)
class Constraints:
    """All constraints on the counts of a product besides the exact queries of its plan.

    Attributes:
      stated: Invariants of the product. Linear rows that other products require come last.
      ties: Bounds from the counts of products solved before; None without such bounds. With
        bounds, there are no facilities.
    """

    stated: tuple[Constraint, ...] = ()
    ties: CrossProductConstraints | None = None

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """Return all constraints of one kind."""
        return tuple(constraint for constraint in self.stated if isinstance(constraint, kind))

    def stated_at(self, geolevel: str) -> list[Constraint]:
        """Return constraints checked at a geolevel: stated there, or stated at every geolevel."""
        stated = [constraint for constraint in self.stated if constraint.geolevel in ("", geolevel)]
        return [constraint for constraint in stated if constraint.is_compared]

    @cached_property
    def facilities(self) -> Facilities | None:
        """Return the invariant on facilities; None if the product has none."""
        return next(iter(self.of(Facilities)), None)

    @cached_property
    def zeros(self) -> StructuralZeros | None:
        """Return the structural zeros; None if the product has none."""
        return next(iter(self.of(StructuralZeros)), None)

    @cached_property
    def quarters(self) -> LivingQuarters | None:
        """Return the invariant that geounits without living quarters have no persons, or None."""
        return next(iter(self.of(LivingQuarters)), None)

    @cached_property
    def rows(self) -> tuple[LinearRow, ...]:
        """Return the linear rows."""
        return self.of(LinearRow)

    @cached_property
    def pinned(self) -> tuple[PinnedQuery, ...]:
        """Return queries whose answers are taken from an earlier release."""
        return self.of(PinnedQuery)

    @property
    def by_type(self) -> Facilities | CrossProductConstraints | None:
        """Return the constraint that bounds counts by type in the leaves, or None."""
        return self.facilities or self.ties

    @property
    def depends_on_other_products(self) -> bool:
        """Return whether implied bounds are known only after other products are solved."""
        return self.ties is not None or any(row.cap is not None for row in self.rows)

    @property
    def counted_before_solving(self) -> tuple[Facilities | LivingQuarters, ...]:
        """Return the facilities and living quarters whose counts are public before any solving."""
        if self.depends_on_other_products:
            return ()
        return tuple(stated for stated in (self.facilities, self.quarters) if stated is not None)

    def possible(self, schema: Schema) -> IntArray:
        """Return int64[k]: sorted cells that are not structural zeros."""
        cells = np.arange(schema.size)
        return cells if self.zeros is None else cells[~self.zeros.holds(cells)]

    def possible_answers(self, query: Query) -> BoolArray:
        """Return bool[m]: answers of a partition query that count a possible cell.

        Memory is proportional to the answers, not to the cells.
        """
        if self.zeros is None:
            return np.ones(query.size, np.bool_)
        return self.zeros.first_outside(query, np.arange(query.size)) >= 0

    def n_possible(self, schema: Schema) -> int:
        """Return k, the number of cells that are not structural zeros."""
        return schema.size - (0 if self.zeros is None else len(self.zeros))

    def rows_at(self, geolevel: str) -> list[LinearRow]:
        """Return the rows imposed at a geolevel."""
        return [row for row in self.rows if geolevel in row.geolevels]

    def bounded_rows_at(self, geolevel: str) -> list[LinearRow]:
        """Return the rows with stated bounds imposed at a geolevel."""
        return [row for row in self.rows_at(geolevel) if not row.is_exact]

    def exact_rows_at(self, geolevel: str) -> list[LinearRow]:
        """Return the rows whose sums are published exactly at a geolevel."""
        return [row for row in self.rows_at(geolevel) if row.is_exact]

    def binds(self, geolevel: str) -> bool:
        """Return whether bounds by type or bounded rows hold at a geolevel."""
        counted = self.by_type is not None and geolevel in self.by_type.geolevels
        return counted or bool(self.bounded_rows_at(geolevel))

    def quarters_at(self, geolevel: str) -> LivingQuarters | None:
        """Return the living quarters if they are known at a geolevel, else None."""
        known = self.quarters is not None and geolevel in self.quarters.geolevels
        return self.quarters if known else None

    def is_implied(self, geolevel: str) -> bool:
        """Return whether geounits of a geolevel have constraints implied by public counts."""
        return self.binds(geolevel) or self.quarters_at(geolevel) is not None

    def representative_levels(
        self, schema: Schema, queries: Sequence[Query], most: int
    ) -> list[IntArray]:
        """Return representative levels of each attribute, for all constraints and queries.

        With linear rows, all levels are returned, since each cell may have another coefficient.

        Args:
          schema: Attributes and cells.
          queries: Partition queries.
          most: Number of representatives of each set of equivalent levels.
        """
        if self.rows:
            return [np.arange(size) for size in schema.shape]
        distinguishing = [
            *queries,
            *(query for constraint in self.stated for query in constraint.queries),
        ]
        return representative_levels(schema.shape, distinguishing, self.zeros, most)

    def document(self, schema: Schema) -> list[dict[str, object]]:
        """Return the manifest entries of all constraints."""
        others = [constraint for constraint in self.stated if not isinstance(constraint, LinearRow)]
        stated = [constraint.document(schema) for constraint in others]
        if self.ties is not None:
            geolevels = list(self.ties.geolevels)
            for tie in self.ties.entries:
                stated.append({"kind": "between", "name": tie.name, "geolevels": geolevels})
        # Rows with a cap follow from constraints of other products, which their manifests list.
        return stated + [row.document(schema) for row in self.rows if row.cap is None]
