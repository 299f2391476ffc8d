"""Base classes of invariants in a run file, and the public counts that they can name.

A further kind is a model, in a module here, and a line in `registry`; what it means for counts is a
subclass of `invariants.constraint.Constraint`. Nothing else asks which kind an invariant has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import model_validator

from das.errors import SchemaError
from das.queries.query import Query
from das.schema import Schema
from invariants.constraint import Constraint
from jobs.pipeline.config.models.values import Delimiter, LeadingZeros, Model, StoredPath, Text


class PublicTable(Model):
    """A public table with one row per geounit and one column of counts per name."""

    later = ("leading_zeros",)

    path: StoredPath
    """CSV or Parquet file, or a folder of such files."""

    geocode: Text = "geocode"
    """Column with the geocode."""

    columns: dict[Text, Text]
    """For each counted type or answer of a query, its column."""

    delimiter: Delimiter = ","

    leading_zeros: LeadingZeros = "kept"


class ReleasedCounts(Model):
    """Protected counts of an earlier release to which the counts of this run must sum."""

    path: StoredPath | None = None
    """Folder of a finished release of the same geounits. Give this or `table`."""

    product: Text | None = None
    """Product of the earlier release. Default: its last product."""

    query: Text | None = None
    """Query on the schema of the earlier release, such as detailed; its answers fix the answers of
    the invariant. Default: the query of the invariant."""

    answers: dict[Text, Text] | None = None
    """For each answer of the query here, the answer of the query in the release. Default: equal
    labels; all labels must then match."""

    table: PublicTable | None = None
    """Public table with such counts, one column per answer. Geounits without a row have 0. Give
    this or `path`."""

    @model_validator(mode="after")
    def _one_source(self) -> ReleasedCounts:
        if (self.table is None) == (self.path is None):
            raise ValueError("give exactly one of `path` and `table`")
        if self.table is not None and (self.product or self.query or self.answers):
            raise ValueError("`product`, `query` and `answers` belong to a release, not to a table")
        return self


class ExactAnswers(Model):
    """Exact answers that another product of the run publishes."""

    product: Text
    """Name of the other product, which must come earlier in the run file."""

    query: Text
    """Exact query of the other product. Its answers are the types of this product."""


@dataclass(frozen=True)
class Setting:
    """Schema, geolevels and other products to which invariants refer.

    Attributes:
      schema: Attributes and cells.
      spine: Geolevels, root first.
      exact: Returns an exact query of another product, given the names of product, query and
        geolevel.
    """

    schema: Schema
    spine: Sequence[str]
    exact: Callable[[str, str, str], Query]

    def down_to(self, geolevel: str) -> tuple[str, ...]:
        """Return the geolevels from the root to a geolevel, inclusive.

        Raises:
          SchemaError: The geolevel is unknown.
        """
        if geolevel not in self.spine:
            raise SchemaError("geolevel", "is unknown", got=geolevel, want=list(self.spine))
        return tuple(self.spine[: list(self.spine).index(geolevel) + 1])


class KindConfig(Model):
    """An invariant of one kind as a run file states it.

    Attributes:
      key: The key that only this kind has.
      limit: Class of the constraint that `build` makes.
      is_rehearsed: Whether synthetic persons satisfy the invariant.
    """

    key: ClassVar[str]
    limit: ClassVar[type[Constraint]]

    @property
    def is_rehearsed(self) -> bool:
        """Return whether synthetic persons satisfy the invariant."""
        return True

    @property
    def is_exact_query(self) -> bool:
        """Return whether the invariant fixes a query to its exact answers in the data of this run.

        All other invariants are limits, even a query fixed to the counts of an earlier release.
        """
        return False

    @property
    def stated_at(self) -> str:
        """Return the geolevel of the invariant; empty if it holds at every geolevel."""
        return str(getattr(self, "geolevel", ""))

    @property
    def released_before(self) -> ReleasedCounts | None:
        """Return the earlier release with the answers; None if there is none."""
        released: ReleasedCounts | None = getattr(self, "released", None)
        return released

    @property
    def public_table(self) -> PublicTable | None:
        """Return the public table of the invariant; None if there is none."""
        table: PublicTable | None = getattr(self.released_before or self, "table", None)
        return table

    @property
    def answers_of(self) -> ExactAnswers | None:
        """Return the exact answers of another product that are used; None if there are none."""
        answers: ExactAnswers | None = getattr(self, "exact", None)
        return answers

    @abstractmethod
    def build(self, setting: Setting) -> list[Constraint]:
        """Build the constraints on counts that the invariant states.

        Raises:
          SchemaError, ConfigError: The invariant does not fit the schema, the spine or another
            product.
        """


class CountedConfig(KindConfig):
    """An invariant by public counts: of a table, or of the exact answers of another product."""

    @property
    def is_rehearsed(self) -> bool:
        """Return False: synthetic persons are made without regard to public counts."""
        return False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.public_table is None) == (self.answers_of is None):
            raise ValueError("give exactly one of `table` and `exact`")
        return self

    def labels(self, setting: Setting) -> list[str]:
        """Return the labels of the counted types, or of the answers of the exact query."""
        if self.answers_of is not None:
            exact = self.answers_of
            return setting.exact(exact.product, exact.query, self.stated_at).labels()
        return [*self.public_table.columns] if self.public_table is not None else []
