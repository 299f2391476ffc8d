"""Cells by attribute levels: structural zeros and linear rows that a user writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import SchemaError
from das.histograms import Histograms
from das.schema import Schema, written_out
from invariants.between import Cap, weighted_sums


@dataclass(frozen=True, eq=False)
class LinearRow:
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
