"""Cells by attribute levels: structural zeros and linear rows that a user writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError, SchemaError
from das.histograms import Histograms
from das.privacy.neighborhoods import Held
from das.schema import Schema, written_out
from invariants.between import Cap, weighted_sums
from invariants.conflict import Statement
from invariants.leaves import NO_LIMIT
from invariants.limit import Limit

MOST_CELLS_OF_ROWS = 4_000_000
"""Of a schema with linear rows, 32 MB a row in every process."""


@dataclass(frozen=True, eq=False)
class LinearRow(Limit):
    """A weighted sum of cells that is bounded, or exact, at a geolevel.

    It is imposed at all coarser geolevels too, with its bounds added up over the geounits of its
    own, so that a parent is not given counts that its children cannot add up to in this row. Unlike
    nested partitions, rows may still contradict each other in integers.

    Attributes:
      name: Its name in the configuration.
      coefficients: int64[n].
      geolevels: Geolevels at which it is imposed, root first, its own last.
      least: Fewest, in every geounit of its own geolevel; None without limit.
      most: Most; None without limit. Both None: the sum of the confidential data, published.
      cap: Where its bounds come from, geounit by geounit, if a later product demands it.
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
        """One answer."""
        return 1

    @property
    def is_exact(self) -> bool:
        """Whether its answers are those of the confidential data."""
        return self.least is None and self.most is None and self.cap is None

    def answer(self, histograms: Histograms) -> IntArray:
        """int64[G, 1]."""
        return weighted_sums(self.coefficients, histograms)[:, None]

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"row {self.name}"

    @property
    def is_compared(self) -> bool:
        """Whether it has bounds."""
        return not self.is_exact

    def bounds(self, given: IntArray) -> tuple[IntArray, IntArray]:
        """int64[G] fewest and most in geounits of its own geolevel, `NO_LIMIT` without limit.

        Args:
          given: int64[G, m], as in `broken`.
        """
        least = -NO_LIMIT if self.least is None else self.least
        most = NO_LIMIT if self.most is None else self.most
        return np.full(len(given), least), np.full(len(given), most)

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """bool[G]: geounits whose sums are below or above its bounds."""
        (least, most), sums = self.bounds(given), self.answer(counts)[:, 0]
        return np.asarray((sums < least) | (sums > most), np.bool_)

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Its bounds."""
        least, most = self.bounds(given[None])
        yield Statement(self.title, self.coefficients[cells], float(least[0]), float(most[0]))

    def held(self, cells: IntArray) -> list[Held]:
        """The sum, within its bounds or fixed; nothing where bounds come from released counts."""
        if self.cap is not None:
            return []
        name, own = f"{self.title} in every {self.geolevel}", self.coefficients[cells]
        fixed = self.is_exact or self.least == self.most
        return [Held(name, len(self.geolevels) - 1, own, own == 0, fixed, is_weighted=True)]

    def described(self, schema: Schema) -> str:
        """Its name."""
        return self.name

    def document(self, schema: Schema) -> dict[str, object]:
        """What a manifest says; the kind of a row without bounds is another."""
        return super().document(schema) | ({"kind": "exact row"} if self.is_exact else {})

    def check(self, others: Sequence[Limit], invariants: Sequence[Limit]) -> None:
        """Check that no other row or exact query has its name.

        Raises:
          ConfigError: One has.
        """
        rows = [one.name for one in others if isinstance(one, LinearRow) and one is not self]
        if self.name in {*rows, *(one.stored_as for one in invariants)}:
            raise ConfigError(f"{self.title}, name", "is used twice", got=self.name)


def weighted_cells(
    schema: Schema, parts: Sequence[tuple[int, Mapping[str, Sequence[str]]]], where: str
) -> IntArray:
    """int64[n]: coefficients of cells that are given by parts, which add up.

    Args:
      schema: Attributes and cells.
      parts: Coefficient of each part, and its cells as in `cells_in`.
      where: For errors.

    Raises:
      SchemaError: The schema has more than 4,000,000 cells, whose coefficients would fill the
        memory; a name or level is unknown; or no cell counts.
    """
    if schema.size > MOST_CELLS_OF_ROWS:
        raise SchemaError(
            where,
            "keeps a coefficient for every cell",
            got=f"{schema.size} cells",
            want=f"at most {MOST_CELLS_OF_ROWS}",
            remedy="leave it out; structural zeros and exact queries take schemas of any size",
        )
    coefficients = np.zeros(schema.size, np.int64)
    for coefficient, cells in parts:
        coefficients += coefficient * cells_in(schema, cells, where)
    if not coefficients.any():
        raise SchemaError(where, "counts nobody")
    return coefficients


def cells_in(schema: Schema, group: Mapping[str, Sequence[str]], where: str) -> BoolArray:
    """bool[n]: cells whose level is one of those listed, for every attribute or recode listed.

    Raises:
      SchemaError: A name or level is unknown, or a range of levels has no sense.
    """
    mask = np.ones(1, np.bool_)
    for levels in levels_in(schema, group, where):
        mask = (mask[:, None] & levels[None]).reshape(-1)
    return mask


def levels_in(
    schema: Schema, group: Mapping[str, Sequence[str]], where: str
) -> tuple[BoolArray, ...]:
    """bool[n_i] per attribute: levels among those listed, for every attribute or recode listed.

    Raises:
      SchemaError: A name or level is unknown, or a range of levels has no sense.
    """
    recodes = {recode.name: recode for recode in schema.recodes}
    masks = {one.name: np.ones(one.size, np.bool_) for one in schema.attributes}
    for name, listed in group.items():
        if name in recodes:
            labels: Sequence[str] = recodes[name].groups
            of, code = recodes[name].attribute, np.asarray(recodes[name].codes)
        elif name in masks:
            labels, of = schema.attribute(name).levels, name
            code = np.arange(len(labels))
        else:
            raise SchemaError(
                where, "names an unknown attribute", got=name, want=f"one of {[*masks, *recodes]}"
            )
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
