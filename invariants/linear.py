"""Linear rows and the cells of structural zeros, written by levels of attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError, SchemaError
from das.histograms import Histograms
from das.privacy.neighborhoods import Held
from das.queries.query import Query
from das.schema import Schema, written_out
from invariants.between import Cap, weighted_sums
from invariants.conflict import Statement
from invariants.constraint import Constraint
from invariants.leaves import NO_LIMIT

MOST_CELLS_OF_ROWS = 4_000_000
"""Largest schema with linear rows: 32 MB a row in every process. Default, not measured."""


@dataclass(frozen=True, eq=False)
class LinearRow(Constraint):
    """Weighted sum of cells that is bounded, or exact, at a geolevel.

    It is also imposed at all coarser geolevels, with its bounds added up over the geounits below.
    Otherwise a parent could receive counts that its children cannot add up to in this row. Unlike
    nested partitions, rows may still contradict each other in integers.

    Attributes:
      name: Name of the row in the configuration.
      coefficients: int64[n], the weight of each cell of the schema.
      geolevels: Geolevels at which it is imposed, root first; stated at the last.
      least: Lower bound in each geounit of the last geolevel; None for no bound.
      most: Upper bound in each of these geounits; None for no bound. If `least`, `most` and `cap`
        are all None, the sum of the confidential data is published.
      cap: Source of the bounds of each geounit if a later product requires the row; None if the
        bounds are `least` and `most`.
    """

    kind: ClassVar[str] = "bounded row"

    name: str
    coefficients: IntArray
    geolevels: tuple[str, ...]
    least: int | None
    most: int | None
    cap: Cap | None = None

    @property
    def size(self) -> int:
        """Return 1, the number of answers."""
        return 1

    @property
    def is_exact(self) -> bool:
        """Return whether the confidential sums are published: the row has no bound and no cap."""
        return self.least is None and self.most is None and self.cap is None

    def answer(self, histograms: Histograms) -> IntArray:
        """Return int64[G, 1]: the weighted sum in each geounit."""
        return weighted_sums(self.coefficients, histograms)[:, None]

    @property
    def title(self) -> str:
        """Return the name of the row in errors."""
        return f"row {self.name}"

    @property
    def is_compared(self) -> bool:
        """Return whether the row has bounds."""
        return not self.is_exact

    def bounds(self, given: IntArray) -> tuple[IntArray, IntArray]:
        """Return int64[G] lower and upper bounds at the last geolevel, `NO_LIMIT` for none.

        Args:
          given: int64[G, m], public counts of G geounits.
        """
        least = -NO_LIMIT if self.least is None else self.least
        most = NO_LIMIT if self.most is None else self.most
        return np.full(len(given), least), np.full(len(given), most)

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """Return whether the weighted sum of each geounit violates its bounds, bool[G]."""
        (least, most), sums = self.bounds(given), self.answer(counts)[:, 0]
        return np.asarray((sums < least) | (sums > most), np.bool_)

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Yield one statement: the lower and upper bound of the weighted sum."""
        least, most = self.bounds(given[None])
        yield Statement(self.title, self.coefficients[cells], float(least[0]), float(most[0]))

    def held(self, cells: IntArray) -> list[Held]:
        """Return the sum as a bounded or fixed fact; an empty list if `cap` gives the bounds."""
        if self.cap is not None:
            return []
        name, weights = f"{self.title} in every {self.geolevel}", self.coefficients[cells]
        fixed = self.is_exact or self.least == self.most
        return [Held(name, len(self.geolevels) - 1, weights, weights == 0, fixed, is_weighted=True)]

    def described(self, schema: Schema) -> str:
        """Return the name of the row."""
        return self.name

    def document(self, schema: Schema) -> dict[str, object]:
        """Return the manifest entry; a row without bounds is of the kind "exact row"."""
        return super().document(schema) | ({"kind": "exact row"} if self.is_exact else {})

    def check(self, others: Sequence[Constraint], invariants: Sequence[Constraint]) -> None:
        """Check that the name of the row is unique among rows and exact queries.

        Raises:
          ConfigError: The name is used twice.
        """
        rows = [row.name for row in others if isinstance(row, LinearRow) and row is not self]
        if self.name in {*rows, *(invariant.stored_as for invariant in invariants)}:
            raise ConfigError(f"{self.title}, name", "is used twice", got=self.name)


def weighted_cells(
    schema: Schema, parts: Sequence[tuple[int, Mapping[str, Sequence[str]]]], where: str
) -> IntArray:
    """Return int64[n]: the coefficients of cells, as a sum of weighted parts.

    Args:
      schema: Attributes and cells.
      parts: Coefficient of each part, and its cells as in `cells_in`.
      where: Place of the parts in the configuration, for errors.

    Raises:
      SchemaError: The schema has more than 4,000,000 cells, whose coefficients would fill the
        memory; a name or level is unknown; or all coefficients are 0.
    """
    if schema.size > MOST_CELLS_OF_ROWS:
        raise SchemaError(
            where,
            "needs a coefficient for every cell of a large schema",
            got=f"{schema.size} cells",
            want=f"at most {MOST_CELLS_OF_ROWS}",
            remedy="remove the row from the run file; structural zeros and exact queries take "
            "schemas of any size",
        )
    coefficients = np.zeros(schema.size, np.int64)
    for coefficient, cells in parts:
        coefficients += coefficient * cells_in(schema, cells, where)
    if not coefficients.any():
        raise SchemaError(where, "has no cell with a coefficient other than 0")
    return coefficients


def answer_of_row(row: LinearRow, query: Query) -> int | None:
    """Return the index of the answer of a partition query that is the sum of a row, or None."""
    if not query.is_partition or not np.isin(row.coefficients, (0, 1)).all():
        return None
    rows = query.rows_of(np.arange(query.n_cells))
    answers = np.unique(rows[row.coefficients == 1])
    is_whole = len(answers) == 1 and bool((row.coefficients[rows == answers[0]] == 1).all())
    return int(answers[0]) if is_whole else None


def cells_in(schema: Schema, group: Mapping[str, Sequence[str]], where: str) -> BoolArray:
    """Return bool[n]: cells with a listed level of every listed attribute or recode.

    Raises:
      SchemaError: A name or level is unknown, or a range of levels is invalid.
    """
    mask = reduce(np.logical_and.outer, levels_in(schema, group, where))
    return np.asarray(mask, np.bool_).reshape(-1)


def levels_in(
    schema: Schema, group: Mapping[str, Sequence[str]], where: str
) -> tuple[BoolArray, ...]:
    """Return bool[n_i] per attribute: levels that are listed, of every attribute or recode.

    Raises:
      SchemaError: A name or level is unknown, or a range of levels is invalid.
    """
    masks = {attribute.name: np.ones(attribute.size, np.bool_) for attribute in schema.attributes}
    axes = {a.name: (a.name, a.levels, np.arange(a.size)) for a in schema.attributes}
    axes |= {r.name: (r.attribute, r.groups, np.asarray(r.codes)) for r in schema.recodes}
    for name, listed in group.items():
        if name not in axes:
            raise SchemaError(
                where, "names an unknown attribute", got=name, want=f"one of {[*axes]}"
            )
        of, labels, code = axes[name]
        wanted = written_out(labels, listed, f"{where}.{name}")
        unknown = [level for level in wanted if level not in labels]
        if unknown or not wanted:
            raise SchemaError(
                f"{where}.{name}",
                "names no known level" if not wanted else "names an unknown level",
                got=unknown,
                want=f"some of {list(labels)}",
            )
        masks[of] &= np.isin(code, [labels.index(level) for level in wanted])
    return tuple(masks.values())
