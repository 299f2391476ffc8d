"""Exact queries: invariants whose answers are published as they are in the data.

An invariant lies outside the differential privacy guarantee; the manifest lists each one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError, SchemaError
from das.histograms import Histograms
from das.privacy.neighborhoods import Held
from das.queries.query import Query, is_refinement, parse_query
from das.schema import Schema
from invariants.conflict import Statement
from invariants.constraint import Constraint, QueryConstraint, statements_of


@dataclass(frozen=True, eq=False)
class Invariant(QueryConstraint):
    """Partition query whose answers are published exactly at a geolevel.

    The answers of a parent are the sums of the answers of its children, so the query is exact at
    all coarser geolevels as well. It is imposed there too: otherwise a parent could receive an
    answer that its children cannot add up to.

    Attributes:
      query: The partition query.
      geolevels: Geolevels at which it is exact, root first.
    """

    kind: ClassVar[str] = "exact"
    is_compatible_with_releases: ClassVar[bool] = True

    query: Query
    geolevels: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return the name of the table of answers in errors."""
        return f"table of {self.query.name}"

    @property
    def stored_as(self) -> str:
        """Return the name of the query."""
        return self.query.name

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """Return bool[G]: geounits whose answers differ from the table of answers."""
        return np.asarray((self.query.answer(counts) != given).any(1), np.bool_)

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Yield the answers in the table as equations."""
        return statements_of(self.title, self.query, given, given, cells)

    def held(self, cells: IntArray) -> list[Held]:
        """Return the answers, which are the same in neighboring data sets."""
        name, deepest = f"{self.query.name} in every {self.geolevel}", len(self.geolevels) - 1
        return [Held(name, deepest, self.query.rows_of(cells), np.zeros(len(cells), np.bool_))]

    @classmethod
    def build(cls, schema: Schema, spine: Sequence[str], query: str, geolevel: str) -> Invariant:
        """Parse an exact query, stated at one geolevel.

        Args:
          schema: The schema.
          spine: Names of the geolevels, root first.
          query: Text of the query.
          geolevel: Finest geolevel at which its answers are exact.

        Raises:
          SchemaError: The query or geolevel is unknown.
        """
        if geolevel not in spine:
            raise SchemaError(
                f"invariant {query}", "names an unknown geolevel", got=geolevel, want=list(spine)
            )
        parsed = parse_query(schema, query)
        return cls(parsed, tuple(spine[: list(spine).index(geolevel) + 1]))


class PinnedQuery(Invariant):
    """Partition query whose answers are taken from an earlier release, not from the data."""

    kind: ClassVar[str] = "released before"
    is_whole: ClassVar[bool] = True

    @property
    def is_compared(self) -> bool:
        """Return False: answers of the data may differ from answers of the earlier release."""
        return False

    def held(self, cells: IntArray) -> list[Held]:
        """Return nothing: the answers of the earlier release are protected."""
        return []

    def check(self, others: Sequence[Constraint], invariants: Sequence[Constraint]) -> None:
        """Check that counts can agree with the earlier release and all other constraints.

        Raises:
          SchemaError: The query is no partition, or crosses an exact query or another such query.
          ConfigError: The plan has kinds of constraints that may be infeasible with the release.
        """
        if not self.query.is_partition:
            raise SchemaError(f"query {self.query.name}", "is no partition of the records")
        queries = [
            constraint for constraint in (*invariants, *others) if isinstance(constraint, Invariant)
        ]
        check_invariants(queries)
        if not all(constraint.is_compatible_with_releases for constraint in others):
            raise ConfigError(
                f"query {self.query.name}",
                "is pinned to an earlier release; the counts of that release may contradict the "
                "facilities or rows of this product",
                want="only exact queries, living quarters and structural zeros",
                remedy="remove the pinned query, or the facilities and rows, from `invariants`",
            )


def invariants_at(invariants: Sequence[Invariant], geolevel: str) -> list[Invariant]:
    """Return the invariants that hold at a geolevel, coarse query before fine."""
    exact = [i for i in invariants if geolevel in i.geolevels]
    return sorted(exact, key=lambda i: i.query.size)


def check_invariants(invariants: Sequence[Invariant]) -> None:
    """Check that every node problem will be feasible for any noise.

    It is sufficient that the exact queries of each geolevel are nested: each refines the coarser
    one. Then each parent cell can be assigned to children as in a transportation problem whose
    margins agree. Crossing queries can contradict each other in integers.

    Raises:
      SchemaError: Two invariants of one geolevel are not nested, or one is stated twice.
    """
    for index, first in enumerate(invariants):
        for second in invariants[index + 1 :]:
            if first.query.name == second.query.name:
                raise SchemaError("invariants", "a query is listed twice", got=first.query.name)
            coarse, fine = sorted((first.query, second.query), key=lambda q: q.size)
            shared = set(first.geolevels) & set(second.geolevels)
            if shared and not is_refinement(fine, coarse):
                raise SchemaError(
                    "invariants",
                    "two invariants of one geolevel must be nested",
                    got=f"{coarse.name} and {fine.name}",
                )
