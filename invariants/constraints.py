"""Limits: invariants other than exact queries. What they say is public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray
from das.queries.query import Query
from das.schema import Schema
from invariants.between import Ties
from invariants.exact import Invariant
from invariants.facilities import Facilities
from invariants.linear import LinearRow
from invariants.quarters import NAME, LivingQuarters
from invariants.zeros import StructuralZeros

BOUND = "released before"
"""The kind of an invariant whose answers are those of an earlier release."""


@dataclass(frozen=True, eq=False)
class Limits:
    """All that counts must keep beside the exact queries of a plan.

    Attributes:
      facilities: Facility counts by type, or none.
      zeros: Cells in which nobody can be, or none.
      rows: Linear rows.
      quarters: Living quarters, without which nobody lives in a geounit, or none.
      bound: Queries whose answers are those of an earlier release, and not of the data.
      ties: What counts of products before this one bound; then there are no facilities.
    """

    facilities: Facilities | None = None
    zeros: StructuralZeros | None = None
    rows: tuple[LinearRow, ...] = ()
    quarters: LivingQuarters | None = None
    bound: tuple[Invariant, ...] = ()
    ties: Ties | None = None

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

    def has_quarters(self, geolevel: str) -> bool:
        """Whether it is known which geounits of a geolevel have no living quarters."""
        return self.quarters is not None and geolevel in self.quarters.geolevels

    def is_implied(self, geolevel: str) -> bool:
        """Whether geounits of a geolevel keep something that follows from given counts."""
        return self.binds(geolevel) or self.has_quarters(geolevel)

    def document(self, schema: Schema) -> list[dict[str, object]]:
        """What a manifest says of each: its kind, its name, where it holds, whether it is exact."""
        rows: list[dict[str, object]] = []
        if self.facilities is not None:
            counted = [
                label
                for label, is_counted in zip(
                    self.facilities.query.labels(), self.facilities.counted, strict=True
                )
                if is_counted
            ]
            rows.append(
                {
                    "kind": "facilities",
                    "name": self.facilities.query.name,
                    "geolevels": list(self.facilities.geolevels),
                    "types": counted,
                }
            )
        if self.quarters is not None:
            rows.append(
                {
                    "kind": NAME,
                    "name": "nobody without them",
                    "geolevels": list(self.quarters.geolevels),
                    "types": list(self.quarters.kinds),
                }
            )
        if self.zeros is not None:
            cells = f"{len(self.zeros)} of {schema.size} cells"
            rows.append({"kind": "structural zeros", "name": cells, "geolevels": []})
        for one in self.bound:
            rows.append({"kind": BOUND, "name": one.query.name, "geolevels": list(one.geolevels)})
        for tie in () if self.ties is None else self.ties.entries:
            geolevels = list(self.ties.geolevels) if self.ties is not None else []
            rows.append({"kind": "between", "name": tie.name, "geolevels": geolevels})
        for row in self.rows:
            if row.cap is not None:  # follows from what is stated
                continue
            kind = "exact row" if row.is_exact else "bounded row"
            rows.append({"kind": kind, "name": row.name, "geolevels": list(row.geolevels)})
        return rows
