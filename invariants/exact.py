"""Invariants: queries whose exact answers are published, and what follows from them.

An invariant lies outside the differential privacy guarantee; the manifest lists each one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from das.errors import SchemaError
from das.queries.query import Query, is_refinement, parse_query
from das.schema import Schema


@dataclass(frozen=True, eq=False)
class Invariant:
    """A partition query that is exact at a geolevel.

    The answers of a parent are the sums of its children's, so it is exact at all coarser
    geolevels as well, and is imposed there: otherwise a parent could be given an answer that its
    children cannot add up to.

    Attributes:
      query: The query.
      geolevels: Geolevels at which it holds, root first.
    """

    query: Query
    geolevels: tuple[str, ...]

    @classmethod
    def build(cls, schema: Schema, spine: Sequence[str], query: str, geolevel: str) -> Invariant:
        """Parse an invariant stated at one geolevel.

        Raises:
          SchemaError: The query or geolevel is unknown.
        """
        if geolevel not in spine:
            raise SchemaError(
                f"invariant {query}", "names an unknown geolevel", got=geolevel, want=list(spine)
            )
        parsed = parse_query(schema, query)
        return cls(parsed, tuple(spine[: list(spine).index(geolevel) + 1]))


def invariants_at(invariants: Sequence[Invariant], geolevel: str) -> list[Invariant]:
    """The invariants that hold at a geolevel, coarse query before fine."""
    held = [i for i in invariants if geolevel in i.geolevels]
    return sorted(held, key=lambda i: i.query.size)


def check_invariants(invariants: Sequence[Invariant]) -> None:
    """Check that every node problem will be feasible whatever the noise.

    Sufficient: at each geolevel the invariant queries are nested (each refines the coarser).
    Then each parent cell can be assigned to children as in a transportation problem whose margins
    agree. Crossing queries can contradict each other in integers.

    Raises:
      SchemaError: Two invariants held at the same geolevel are not nested, or one is stated twice.
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
