"""Constraint interface: what each kind of invariant provides to the rest of the project.

A new kind needs a subclass, a model, and a line in `jobs.pipeline.config.models.kinds.registry`.
Solvers take four forms: empty cells (`StructuralZeros`), rows with bounds (`LinearRow`), bounds by
type (`Facilities`) and empty geounits (`LivingQuarters`). A kind that one of these forms can
express builds that form, or a subclass of it.
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


class Constraint(ABC):
    """Constraint of one kind on the counts of a product: the interface of all kinds.

    Attributes:
      kind: Name of the kind in manifests.
      note: Sentence of reports about the kind; may be empty.
      is_single: Whether a product can state the kind once only.
      is_compatible_with_releases: Whether counts that agree with an earlier release can meet the
        constraint, given that the data meet it.
      is_whole: Whether the table of its public counts has a row for every geounit.
      geolevels: Geolevels at which it holds, root first; stated at the last. Empty means every
        geolevel.
    """

    kind: ClassVar[str]
    note: ClassVar[str] = ""
    is_single: ClassVar[bool] = False
    is_compatible_with_releases: ClassVar[bool] = False
    is_whole: ClassVar[bool] = False

    geolevels: tuple[str, ...]

    @property
    def geolevel(self) -> str:
        """Return the geolevel at which the constraint is stated; "" means every geolevel."""
        return self.geolevels[-1] if self.geolevels else ""

    @property
    def title(self) -> str:
        """Return the name of the constraint in errors."""
        return self.kind

    @property
    def stored_as(self) -> str:
        """Return the name of the constraint in files of public counts."""
        return self.title

    @property
    def counted(self) -> tuple[str, ...]:
        """Return labels of the public counts that the constraint uses; an empty tuple without."""
        return ()

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return partition queries that distinguish all cells that the constraint distinguishes."""
        return ()

    @property
    def is_compared(self) -> bool:
        """Return whether `broken` checks it; exact answers are checked where they are published."""
        return True

    @abstractmethod
    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """Return bool[G]: geounits whose integer counts break the constraint.

        Args:
          counts: Counts of G geounits of the geolevel of the constraint.
          given: int64[G, m], public counts, with the columns `counted`.
        """

    @abstractmethod
    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Yield linear statements that the constraint makes about the counts of one geounit.

        Args:
          cells: int64[k], the cells of the statements.
          given: int64[m], public counts of the geounit, with the columns `counted`.
        """

    def held(self, cells: IntArray) -> list[Held]:
        """Return facts about `cells` that neighboring data sets share because of the constraint."""
        return []

    @abstractmethod
    def described(self, schema: Schema) -> str:
        """Return a name that tells this constraint from others of the same kind, for manifests."""

    @property
    def types(self) -> tuple[str, ...]:
        """Return labels of the types that manifests list; an empty tuple without types."""
        return ()

    def document(self, schema: Schema) -> dict[str, object]:
        """Return the manifest entry: kind, name, geolevels, and types if there are some."""
        name, geolevels = self.described(schema), list(self.geolevels)
        types = {"types": list(self.types)} if self.types else {}
        return {"kind": self.kind, "name": name, "geolevels": geolevels, **types}

    @classmethod
    def joined(cls, stated: Sequence[Constraint]) -> list[Constraint]:
        """Return what a plan keeps of the stated constraints of this kind; some may be merged."""
        return [*stated]

    def check(self, others: Sequence[Constraint], invariants: Sequence[Constraint]) -> None:  # noqa: B027
        """Check that counts can meet the constraint and all other constraints of a plan.

        Args:
          others: All constraints of the plan but exact queries.
          invariants: The exact queries.

        Raises:
          ConfigError, SchemaError: The constraint may contradict another one.
        """

    def check_given(self, counts: IntArray) -> None:  # noqa: B027
        """Check the public counts int64[G, m] of all geounits.

        Raises:
          InputError: The public counts are not plausible.
        """


class QueryConstraint(Constraint):
    """Constraint on the answers of one partition query.

    Attributes:
      query: The partition query.
    """

    query: Query

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the labels of all answers; public counts that a kind lacks are 0."""
        return tuple(self.query.labels())

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return the query of the constraint, as a tuple of one."""
        return (self.query,)

    def described(self, schema: Schema) -> str:
        """Return the name of the query."""
        return self.query.name


def statements_of(
    title: str, query: Query, least: IntArray, most: IntArray, cells: IntArray
) -> Iterator[Statement]:
    """Yield one statement per answer of a partition query, about some cells.

    Args:
      title: Name of the statements in errors.
      query: The partition query.
      least: int64[m], lower bounds of the answers.
      most: int64[m], upper bounds of the answers.
      cells: int64[k], the cells of the statements.
    """
    rows = query.rows_of(cells)
    for index, label in enumerate(query.labels()):
        name = title if query.size == 1 else f"{title}: {label}"
        is_counted = (rows == index).astype(np.int64)
        yield Statement(name, is_counted, float(least[index]), float(most[index]))
