"""Invariants: queries whose exact answers are published, and what follows from them.

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
from invariants.limit import Limit, statements_of


@dataclass(frozen=True, eq=False)
class Invariant(Limit):
    """A partition query that is exact at a geolevel.

    The answers of a parent are the sums of its children's, so it is exact at all coarser
    geolevels as well, and is imposed there: otherwise a parent could be given an answer that its
    children cannot add up to.

    Attributes:
      query: The query.
      geolevels: Geolevels at which it holds, root first.
    """

    kind: ClassVar[str] = "exact"
    is_kept_beside_releases: ClassVar[bool] = True

    query: Query
    geolevels: tuple[str, ...]

    @property
    def title(self) -> str:
        """What errors call the table of its answers."""
        return f"table of {self.query.name}"

    @property
    def stored_as(self) -> str:
        """The name of the query."""
        return self.query.name

    @property
    def counted(self) -> tuple[str, ...]:
        """Its answers."""
        return tuple(self.query.labels())

    @property
    def queries(self) -> tuple[Query, ...]:
        """The query itself."""
        return (self.query,)

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """bool[G]: geounits whose answers are not those of its table."""
        return np.asarray((self.query.answer(counts) != given).any(1), np.bool_)

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Its answers, as its table has them."""
        return statements_of(self.title, self.query, given, given, cells)

    def held(self, cells: IntArray) -> list[Held]:
        """Its answers, which may not change."""
        name, deepest = f"{self.query.name} in every {self.geolevel}", len(self.geolevels) - 1
        return [Held(name, deepest, self.query.rows_of(cells), np.zeros(len(cells), np.bool_))]

    def described(self, schema: Schema) -> str:
        """The name of the query."""
        return self.query.name

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


class BoundQuery(Invariant):
    """A partition query whose answers are those of an earlier release, and not of the data."""

    kind: ClassVar[str] = "released before"
    is_whole: ClassVar[bool] = True

    @property
    def is_compared(self) -> bool:
        """No: its answers are compared with exact ones."""
        return False

    def held(self, cells: IntArray) -> list[Held]:
        """Nothing: its answers are protected."""
        return []

    def check(self, others: Sequence[Limit], invariants: Sequence[Limit]) -> None:
        """Check that counts of a release can be kept beside all others.

        Raises:
          SchemaError: It is no partition, or crosses an exact query or another bound one.
          ConfigError: Beside it stand kinds which nothing shows to be possible with the release.
        """
        if not self.query.is_partition:
            raise SchemaError(f"query {self.query.name}", "is no partition of the records")
        kept = [one for one in (*invariants, *others) if isinstance(one, Invariant)]
        check_invariants(kept)
        if not all(one.is_kept_beside_releases for one in others):
            raise ConfigError(
                f"query {self.query.name}",
                "is bound to an earlier release, and beside it stand facilities or rows, with "
                "which the counts of that release may be impossible",
                want="exact queries, living quarters and structural zeros",
                remedy="leave one of them out",
            )


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
