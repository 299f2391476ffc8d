"""What an invariant is to the rest of the project: one value per kind, which `Limit` describes.

A further kind is a subclass, a model, and a line in `jobs.pipeline.config.models.kinds.registry`.
Solvers take what kinds say in four forms: cells that are empty (`StructuralZeros`), rows with
bounds (`LinearRow`), bounds by type (`Facilities`) and empty geounits (`LivingQuarters`). A kind
that says the same in other words builds one of these, or a subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.histograms import Histograms
from das.privacy.neighborhoods import Held
from das.queries.query import Query
from das.schema import Schema
from invariants.conflict import Statement


class Limit(ABC):
    """An invariant of one kind, with all that is asked of it.

    Attributes:
      kind: What manifests call the kind.
      note: What a report says of the kind; empty for nothing.
      is_single: Whether a product can state it once only.
      is_kept_beside_releases: Whether counts of an earlier release can always keep it, where the
        data do.
      is_whole: Whether every geounit has a row in the counts that are given for it.
      geolevels: Where it holds, root first; stated at the last. Empty for every geolevel.
    """

    kind: ClassVar[str]
    note: ClassVar[str] = ""
    is_single: ClassVar[bool] = False
    is_kept_beside_releases: ClassVar[bool] = False
    is_whole: ClassVar[bool] = False

    geolevels: tuple[str, ...]

    @property
    def geolevel(self) -> str:
        """Where it is stated; empty for every geolevel."""
        return self.geolevels[-1] if self.geolevels else ""

    @property
    def title(self) -> str:
        """What errors call it."""
        return self.kind

    @property
    def stored_as(self) -> str:
        """What files of given counts call it."""
        return self.title

    @property
    def counted(self) -> tuple[str, ...]:
        """What the public counts that are given for it count; empty if none are."""
        return ()

    @property
    def queries(self) -> tuple[Query, ...]:
        """Partition queries that tell apart all cells that it treats in different ways."""
        return ()

    @property
    def is_compared(self) -> bool:
        """Whether `broken` says all. Exact answers are compared where they are published."""
        return True

    @abstractmethod
    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """bool[G]: geounits that do not keep it, in integers.

        Args:
          counts: Of G geounits of its geolevel.
          given: int64[G, m], counts of what `counted` names.
        """

    @abstractmethod
    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """What it demands of the counts of one geounit.

        Args:
          cells: int64[k], the cells that statements are about.
          given: int64[m], as in `broken`.
        """

    def held(self, cells: IntArray) -> list[Held]:
        """What it makes neighboring data sets have in common, about some cells."""
        return []

    @abstractmethod
    def described(self, schema: Schema) -> str:
        """What a manifest says of it beside its kind."""

    @property
    def types(self) -> tuple[str, ...]:
        """What manifests list as its types; empty for none."""
        return ()

    def document(self, schema: Schema) -> dict[str, object]:
        """What a manifest says: its kind, name, geolevels, and its types if it has some."""
        name, geolevels = self.described(schema), list(self.geolevels)
        types = {"types": list(self.types)} if self.types else {}
        return {"kind": self.kind, "name": name, "geolevels": geolevels, **types}

    @classmethod
    def joined(cls, stated: Sequence[Limit]) -> list[Limit]:
        """Limits of this kind as one plan has them."""
        return [*stated]

    def check(self, others: Sequence[Limit], invariants: Sequence[Limit]) -> None:  # noqa: B027
        """Check that it can be kept beside all others of a plan, and beside exact queries.

        Raises:
          ConfigError, SchemaError: It may contradict one.
        """

    def check_given(self, counts: IntArray) -> None:  # noqa: B027
        """Check all counts that are given for it, int64[G, m].

        Raises:
          InputError: They make no sense.
        """


def statements_of(
    title: str, query: Query, least: IntArray, most: IntArray, cells: IntArray
) -> Iterator[Statement]:
    """One statement per answer of a partition query, about some cells.

    Args:
      title: What errors call them.
      query: The query.
      least: int64[m].
      most: int64[m].
      cells: int64[k].
    """
    rows = query.rows_of(cells)
    for index, label in enumerate(query.labels()):
        called = title if query.size == 1 else f"{title}: {label}"
        counted = (rows == index).astype(np.int64)
        yield Statement(called, counted, float(least[index]), float(most[index]))
