"""Factor: one attribute's part of a query, an integer matrix with one label per row.

The factors of partition queries are cached, since a plan uses the same factors many times. A task
receives the row of each level, not the matrix: that of 1,539 tribes has 19 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from types import MappingProxyType

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError


class FactorKind(StrEnum):
    """The structure of a factor matrix, which selects the fast path."""

    TOTAL = "total"  # one row of ones: the attribute is summed out
    IDENTITY = "identity"  # every level kept
    PARTITION = "partition"  # levels grouped, each level in exactly one group
    GENERAL = "general"  # any other integer matrix


@dataclass(frozen=True, eq=False)
class Factor:
    """An integer matrix over the levels of one attribute.

    Attributes:
      matrix: int64[m, n], m > 0 and n > 0, read-only.
      labels: One label per row.

    Raises:
      SchemaError: The entries are not integers, or the shapes do not fit.
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
        if matrix.ndim != 2 or matrix.size == 0 or len(self.labels) != matrix.shape[0]:
            raise SchemaError("factor", "needs a matrix with one label per row", got=matrix.shape)

    def __reduce__(self) -> tuple[Callable[..., Factor], tuple[object, ...]]:
        """Pickle without cached results, and partitions as cached factors of the other process."""
        if self.kind is FactorKind.GENERAL:
            return Factor, (self.matrix, self.labels)
        return partition, (self.labels, tuple(self.codes.tolist()))

    @cached_property
    def kind(self) -> FactorKind:
        """Return the most special kind of the matrix."""
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
    def counts_once(self) -> bool:
        """Return whether every level counts in at most one row, once."""
        binary = ((self.matrix == 0) | (self.matrix == 1)).all()
        return bool(binary and (self.matrix.sum(0) <= 1).all())

    @cached_property
    def codes(self) -> IntArray:
        """Return int64[n]: the row in which each level counts; not for GENERAL factors."""
        if self.kind is FactorKind.GENERAL:
            raise SchemaError("factor", "is not a partition of its levels")
        return np.asarray(self.matrix.argmax(0), np.int64)

    @cached_property
    def distinct(self) -> tuple[IntArray, IntArray]:
        """Return int64[m, k], the distinct columns, and int64[n], the column of each level."""
        matrix, of_level = np.unique(self.matrix, axis=1, return_inverse=True)
        return matrix, np.asarray(of_level.reshape(-1), np.int64)

    @cached_property
    def gram(self) -> FloatArray:
        """Return float64[n, n]: the inner products of the columns, exact below 2^53."""
        matrix = self.matrix.astype(np.float64)
        return np.asarray(matrix.T @ matrix)

    @cached_property
    def key(self) -> tuple[tuple[int, ...], bytes]:
        """Return a hashable key of the matrix, independent of the labels."""
        return self.matrix.shape, self.matrix.tobytes()

    @cached_property
    def first_levels(self) -> IntArray:
        """Return int64[m]: the first level of each row; not for GENERAL factors."""
        return np.asarray(np.unique(self.codes, return_index=True)[1], np.int64)

    @property
    def largest(self) -> int:
        """Return the largest absolute entry."""
        return max(int(self.matrix.max()), -int(self.matrix.min()))

    def of_groups(self, groups: Factor) -> Factor:
        """Return the product of this factor and a grouping of levels.

        Args:
          groups: A factor that is not GENERAL, with one row per column of this one.

        >>> both = partition(("minor", "adult"), (0, 1, 1))
        >>> prefix(both.labels).of_groups(both).matrix.tolist()
        [[1, 0, 0], [1, 1, 1]]
        """
        if groups.kind is FactorKind.IDENTITY:
            return self
        if self.kind is FactorKind.IDENTITY and self.labels == groups.labels:
            return groups
        return Factor(self.matrix[:, groups.codes], self.labels)


@lru_cache(maxsize=1024)
def total(levels: tuple[str, ...]) -> Factor:
    """Return one row of ones, which sums the attribute out."""
    return Factor(np.ones((1, len(levels)), np.int64), ("all",))


@lru_cache(maxsize=1024)
def identity(levels: tuple[str, ...]) -> Factor:
    """Return the factor that counts every level."""
    return Factor(np.eye(len(levels), dtype=np.int64), tuple(levels))


@lru_cache(maxsize=1024)
def partition(groups: tuple[str, ...], codes: tuple[int, ...]) -> Factor:
    """Return the factor that counts every group.

    Args:
      groups: Group labels.
      codes: For each level, the index of its group in `groups`, from 0.
    """
    rows = np.arange(len(groups))[:, None]
    return Factor((np.asarray(codes)[None, :] == rows).astype(np.int64), tuple(groups))


def prefix(levels: Sequence[str]) -> Factor:
    """Return the lower triangle of ones: row i counts levels 0..i.

    >>> prefix(("0-17", "18-64", "65+")).labels
    ('up to 0-17', 'up to 18-64', 'up to 65+')
    """
    n = len(levels)
    return Factor(np.tri(n, dtype=np.int64), tuple(f"up to {level}" for level in levels))


def ranges(levels: Sequence[str]) -> Factor:
    """Return n (n + 1) / 2 rows, one per interval of levels i..j, ordered by i, then j.

    >>> ranges(("a", "b")).matrix.tolist(), ranges(("a", "b")).labels
    ([[1, 0], [1, 1], [0, 1]], ('a', 'a to b', 'b'))
    """
    n = len(levels)
    first, last = np.triu_indices(n)
    inside = (first[:, None] <= np.arange(n)) & (np.arange(n) <= last[:, None])
    labels = (
        levels[i] if i == j else f"{levels[i]} to {levels[j]}"
        for i, j in zip(first.tolist(), last.tolist(), strict=True)
    )
    return Factor(inside.astype(np.int64), tuple(labels))


def residual(levels: Sequence[str]) -> Factor:
    """Return Xi = n I - 1 1^T: row i is n times level i less the count of all levels.

    The rows span the orthogonal complement of the ones. ResidualPlanner measures Kronecker products
    of these matrices with independent noise, so the noise can be integer.

    References:
      Xiao, He, Zhang & Kifer, NeurIPS 2023, arXiv:2305.08175 (discrete Gaussian base mechanism).

    >>> residual(("a", "b", "c")).matrix.tolist()
    [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]
    """
    n = _at_least_two(levels, "residual")
    matrix = n * np.eye(n, dtype=np.int64) - 1
    return Factor(matrix, tuple(f"residual of {level}" for level in levels))


def contrasts(levels: Sequence[str]) -> Factor:
    """Return n - 1 rows: row i is the count of the first level less the count of level i + 1.

    The rows are a basis of the orthogonal complement of the ones, the subtraction matrix Sub_n of
    ResidualPlanner: contrasts = (contrasts @ residual) / n, exactly.

    >>> contrasts(("a", "b", "c")).matrix.tolist(), contrasts(("a", "b", "c")).labels
    ([[1, -1, 0], [1, 0, -1]], ('a less b', 'a less c'))
    """
    n = _at_least_two(levels, "contrasts")
    matrix = -np.eye(n, dtype=np.int64)[1:]
    matrix[:, 0] = 1
    return Factor(matrix, tuple(f"{levels[0]} less {level}" for level in levels[1:]))


def _at_least_two(levels: Sequence[str], function: str) -> int:
    if len(levels) < 2:
        raise SchemaError(
            f"{function} of {list(levels)}", "needs at least two levels; one has no residual"
        )
    return len(levels)


FUNCTIONS: Mapping[str, Callable[[Sequence[str]], Factor]] = MappingProxyType(
    {"prefix": prefix, "ranges": ranges, "residual": residual, "contrasts": contrasts}
)
"""Functions that query texts may apply to an attribute or recode."""
