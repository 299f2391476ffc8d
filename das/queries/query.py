"""Query: an integer linear map of a histogram, one factor matrix per attribute.

A query over a schema with attributes i = 1..d is Q = kron_i F_i, F_i an integer matrix of shape
(m_i, n_i). Marginals, recoded marginals, residual, prefix and range queries all have this form;
only the factors differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from das.errors import SchemaError
from das.histograms import Histograms
from das.schema.schema import Recode, Schema

IntArray = npt.NDArray[np.int64]


class FactorKind(StrEnum):
    """What a factor does to its attribute; decides the fast path."""

    TOTAL = "total"  # one row of ones: the attribute is summed out
    IDENTITY = "identity"  # every level kept
    PARTITION = "partition"  # levels grouped, each level in exactly one group
    GENERAL = "general"  # any other integer matrix


@dataclass(frozen=True, eq=False)
class Factor:
    """One attribute's part of a query.

    Attributes:
      matrix: int64[m, n], read-only.
      labels: One label per row.
    """

    matrix: IntArray
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        given = np.asarray(self.matrix)
        if not np.issubdtype(given.dtype, np.integer):
            raise SchemaError("factor", "must hold integers", got=given.dtype)
        matrix = np.array(given, np.int64, order="C")
        matrix.flags.writeable = False
        object.__setattr__(self, "matrix", matrix)
        if matrix.ndim != 2 or len(self.labels) != matrix.shape[0]:
            raise SchemaError("factor", "needs a matrix with one label per row", got=matrix.shape)

    @cached_property
    def kind(self) -> FactorKind:
        """The fast path this matrix allows."""
        rows, columns = self.matrix.shape
        if rows == 1 and (self.matrix == 1).all():
            return FactorKind.TOTAL
        if rows == columns and np.array_equal(self.matrix, np.eye(rows, dtype=np.int64)):
            return FactorKind.IDENTITY
        binary = ((self.matrix == 0) | (self.matrix == 1)).all()
        if binary and (self.matrix.sum(0) == 1).all():
            return FactorKind.PARTITION
        return FactorKind.GENERAL

    @cached_property
    def codes(self) -> IntArray:
        """int64[n]: the row each level counts in; only for factors that are not GENERAL."""
        if self.kind is FactorKind.GENERAL:
            raise SchemaError("factor", "is not a partition of its levels")
        return np.asarray(self.matrix.argmax(0), np.int64)


@dataclass(frozen=True, eq=False)
class Query:
    """Q = kron_i F_i with a name; answers are int64[m], m = prod m_i, in C order of the rows.

    Attributes:
      name: Canonical name, for example "hispanic * cenrace", "total", "detailed".
      factors: One per attribute of the schema, in the schema's order.
    """

    name: str
    factors: tuple[Factor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(m_1, ..., m_d)."""
        return tuple(f.matrix.shape[0] for f in self.factors)

    @property
    def size(self) -> int:
        """m, the number of answers."""
        return math.prod(self.shape)

    @property
    def n_cells(self) -> int:
        """n, the number of cells the query reads."""
        return math.prod(f.matrix.shape[1] for f in self.factors)

    @property
    def is_partition(self) -> bool:
        """Whether every cell counts in exactly one answer, once."""
        return all(f.kind is not FactorKind.GENERAL for f in self.factors)

    def rows_of(self, cells: IntArray) -> IntArray:
        """Return int64[k]: for a partition query, the answer in which each cell counts.

        Raises:
          SchemaError: The query is not a partition.
        """
        out = np.zeros(len(cells), np.int64)
        stride = 1
        rest = cells
        for factor in reversed(self.factors):
            rows, columns = factor.matrix.shape
            if factor.kind is FactorKind.GENERAL:
                raise SchemaError(f"query {self.name}", "is not a partition of the cells")
            out += factor.codes[rest % columns] * stride
            rest = rest // columns
            stride *= rows
        return out

    def columns(self, cells: IntArray) -> npt.NDArray[np.int64]:
        """int64[m, k]: the dense columns of Q for some cells; for small k or tests."""
        out = np.ones((1, len(cells)), np.int64)
        rest = cells
        for factor in reversed(self.factors):
            n_columns = factor.matrix.shape[1]
            part = factor.matrix[:, rest % n_columns]
            out = (part[:, None, :] * out[None, :, :]).reshape(len(part) * len(out), len(cells))
            rest = rest // n_columns
        return out

    def answer(self, histograms: Histograms) -> IntArray:
        """Evaluate the query exactly.

        Args:
          histograms: G geounits over the schema's n cells.

        Returns:
          int64[G, m].
        """
        if histograms.n_cells != self.n_cells:
            raise SchemaError(
                f"query {self.name}",
                "was asked of histograms of another schema",
                got=f"{histograms.n_cells} cells",
                want=f"{self.n_cells} cells",
            )
        out = np.zeros((histograms.n_geounits, self.size), np.int64)
        if self.is_partition:
            np.add.at(out, (histograms.owners(), self.rows_of(histograms.cells)), histograms.counts)
            return out
        live, position = np.unique(histograms.cells, return_inverse=True)
        compact = np.zeros((histograms.n_geounits, len(live)), np.int64)
        compact[histograms.owners(), position] = histograms.counts
        return np.asarray(compact @ self.columns(live).T, np.int64)

    def labels(self) -> list[str]:
        """M row labels, such as "hispanic / white alone"."""
        parts = [f.labels for f in self.factors if f.kind is not FactorKind.TOTAL]
        out = [""]
        for labels in parts:
            out = [f"{left} / {right}" if left else right for left in out for right in labels]
        return out if parts else ["total"]


def is_refinement(fine: Query, coarse: Query) -> bool:
    """Return whether every answer of `coarse` is a sum of answers of `fine` (both partitions)."""
    if not (fine.is_partition and coarse.is_partition):
        return False
    for f, c in zip(fine.factors, coarse.factors, strict=True):
        for group in range(f.matrix.shape[0]):
            if len(np.unique(c.codes[f.codes == group])) > 1:
                return False
    return True


def marginal(schema: Schema, axes: Sequence[str]) -> Query:
    """Build the marginal over attributes or recodes (the matrix M_B of the residual algebra).

    Args:
      schema: The schema.
      axes: Names of attributes or recodes, at most one per attribute, in any order; empty for
        the total.

    Returns:
      A partition query whose factors are identities, recode partitions, or rows of ones.

    Raises:
      SchemaError: A name is unknown or two axes use the same attribute.
    """
    recodes = {r.name: r for r in schema.recodes}
    chosen: dict[str, Recode | None] = {}
    for name in axes:
        recode = recodes.get(name)
        owner = recode.attribute if recode else schema.attribute(name).name
        if owner in chosen:
            raise SchemaError(f"query {list(axes)}", "uses an attribute twice", got=owner)
        chosen[owner] = recode
    factors = []
    names = []
    for attribute in schema.attributes:
        if attribute.name not in chosen:
            factors.append(Factor(np.ones((1, attribute.size), np.int64), ("all",)))
            continue
        recode = chosen[attribute.name]
        if recode is None:
            factors.append(Factor(np.eye(attribute.size, dtype=np.int64), attribute.levels))
            names.append(attribute.name)
        else:
            groups = np.arange(len(recode.groups))[:, None]
            matrix = (np.asarray(recode.codes)[None, :] == groups).astype(np.int64)
            factors.append(Factor(matrix, recode.groups))
            names.append(recode.name)
    every = len(chosen) == len(schema.attributes) and not any(chosen.values())
    return Query("detailed" if every else " * ".join(names) or "total", tuple(factors))


def parse_query(schema: Schema, text: str) -> Query:
    """Read a query from text: "total", "detailed", or names joined by "*".

    Raises:
      SchemaError: A name is unknown or an attribute is used twice.

    >>> from das.schema.schema import Attribute
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> parse_query(schema, "age * sex").name, parse_query(schema, "age").size
    ('detailed', 3)
    """
    stripped = text.strip()
    if stripped == "total":
        return marginal(schema, ())
    if stripped == "detailed":
        return marginal(schema, [a.name for a in schema.attributes])
    return marginal(schema, [name.strip() for name in stripped.split("*")])
