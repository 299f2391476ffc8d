"""Records: columns of codes, and exact answers to product queries, at any number of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray
from das.errors import SchemaError
from das.queries.query import Query

_MOST_TABLE = 1 << 27  # cells of one marginal, a gigabyte of integers


@dataclass(frozen=True, eq=False)
class Domain:
    """Attributes and their numbers of levels.

    Attributes:
      names: d distinct names.
      sizes: d numbers of levels, 2 or more.

    Raises:
      SchemaError: A name repeats or a size is below 2.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or len(self.names) != len(self.sizes):
            raise SchemaError("domain", "needs one size for each of its distinct attributes")
        if not self.sizes or min(self.sizes) < 2:
            raise SchemaError(
                "domain",
                "needs attributes of at least two levels",
                got=self.sizes,
                remedy="leave attributes of one level out; they say nothing",
            )

    def positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Positions of attributes.

        Raises:
          SchemaError: One is unknown.
        """
        place = {name: i for i, name in enumerate(self.names)}
        unknown = [name for name in names if name not in place]
        if unknown:
            raise SchemaError("attributes", "are unknown", got=unknown, want=list(self.names))
        return tuple(place[name] for name in names)

    def only(self, positions: Sequence[int]) -> Domain:
        """The domain of some of the attributes."""
        return Domain(
            tuple(self.names[i] for i in positions), tuple(self.sizes[i] for i in positions)
        )


@dataclass(frozen=True, eq=False)
class Records:
    """n records.

    Attributes:
      domain: Their attributes.
      codes: int64[n, d]; codes[j, i] is the level of attribute i, 0 or more.

    Raises:
      SchemaError: A code is no level, or the shape does not fit. No code is quoted.
    """

    domain: Domain
    codes: IntArray

    def __post_init__(self) -> None:
        codes = self.codes
        fits = codes.ndim == 2 and codes.shape[1] == len(self.domain.sizes)
        if not fits or codes.dtype != np.int64:
            raise SchemaError("records", "need int64 codes, one column per attribute")
        if len(codes) and ((codes < 0) | (codes >= np.array(self.domain.sizes))).any():
            raise SchemaError("records", "hold codes that are no level of their attribute")

    def only(self, names: Sequence[str]) -> Records:
        """The records with some of their attributes.

        Raises:
          SchemaError: One is unknown.
        """
        kept = self.domain.positions(names)
        return Records(self.domain.only(kept), np.ascontiguousarray(self.codes[:, kept]))

    def marginal(self, attributes: Sequence[int]) -> IntArray:
        """Counts by the levels of some attributes, int64[n_i, ...] in the order given.

        Raises:
          SchemaError: The marginal has too many cells.
        """
        shape = [self.domain.sizes[i] for i in attributes]
        cells = math.prod(shape)
        if cells > _MOST_TABLE:
            raise SchemaError(
                f"marginal of {len(shape)} attributes",
                "is too large",
                got=f"{cells:.3g} cells",
                want=f"at most {_MOST_TABLE}",
            )
        spots = np.zeros(len(self.codes), np.int64)
        for i, size in zip(attributes, shape, strict=True):
            spots = spots * size + self.codes[:, i]
        return np.bincount(spots, minlength=cells).astype(np.int64).reshape(shape)

    def answer(self, query: Query) -> IntArray:
        """Evaluate a product query exactly, int64[m].

        Only the marginal of the attributes that it does not sum out is formed.
        """
        if query.n_cells != math.prod(self.domain.sizes):
            raise SchemaError(f"query {query.name}", "is of another domain")
        table = self.marginal(query.kept)
        for axis, i in enumerate(query.kept):
            matrix = query.factors[i].matrix
            table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return np.ascontiguousarray(table).reshape(-1)
