"""AttributeWorkload and Workload: the linear queries whose answers should be accurate.

Every attribute i has a base matrix W_i (identity, prefix sums, ranges, groups, ...). The queries of
the marginal on a set A of attributes are kron_i (W_i if i in A else 1^T).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray, IntArray, read_only
from das.errors import SchemaError, require_distinct
from das.workload.attribute_sets import AttributeSets, append_one

_IN_ROW_SPACE = 1e-9  # largest residual of the ones vector; default, not measured


class BaseKind(StrEnum):
    """Form of the rows of a base matrix."""

    IDENTITY = "identity"  # row i: level i
    PREFIX = "prefix"  # row i: levels 0..i
    RANGES = "ranges"  # row (a, b), a <= b: levels a..b, in lexicographic order
    GIVEN = "given"  # any matrix


@dataclass(frozen=True, eq=False)
class AttributeWorkload:
    """Base matrix W of one attribute, float64[m, n]; implicit for the regular kinds.

    Attributes:
      name: Name of the attribute.
      kind: The form of the base matrix W.
      size: n, the number of levels, at least 2.
      given: float64[m, n], read-only, if the kind is GIVEN.

    Raises:
      SchemaError: There are fewer than two levels, or an entry is not finite. Or the ones vector is
        not in the row space of W, or all columns of W are equal.

    >>> AttributeWorkload.ranges("age", 3).matrix.astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]]
    """

    name: str
    kind: BaseKind
    size: int
    given: FloatArray | None = None

    def __post_init__(self) -> None:
        where = f"workload of {self.name}"
        object.__setattr__(self, "kind", BaseKind(self.kind))
        if self.size < 2:
            raise SchemaError(
                where,
                "needs at least two levels",
                got=self.size,
                remedy="remove the attribute from the workload: one level needs no plan",
            )
        if (self.kind is BaseKind.GIVEN) != (self.given is not None):
            raise SchemaError(where, "needs a matrix if, and only if, its kind is given")
        if self.given is not None:
            matrix = read_only(self.given)
            object.__setattr__(self, "given", matrix)
            _check_given(where, matrix, self.size)

    @classmethod
    def identity(cls, name: str, size: int) -> AttributeWorkload:
        """Build the workload of every single level: plain counts."""
        return cls(name, BaseKind.IDENTITY, size)

    @classmethod
    def prefix(cls, name: str, size: int) -> AttributeWorkload:
        """Build the workload of the levels up to i, for every i."""
        return cls(name, BaseKind.PREFIX, size)

    @classmethod
    def ranges(cls, name: str, size: int) -> AttributeWorkload:
        """Build the workload of all n (n + 1) / 2 ranges of consecutive levels."""
        return cls(name, BaseKind.RANGES, size)

    @classmethod
    def from_matrix(
        cls, name: str, matrix: npt.NDArray[np.floating | np.integer]
    ) -> AttributeWorkload:
        """Build a workload from a base matrix of m rows (queries) and n columns (levels).

        Raises:
          SchemaError: The array is no matrix, or violates a condition of the class: for example,
            the ones vector is not in its row space.
        """
        given = np.asarray(matrix, np.float64)
        if given.ndim != 2:
            raise SchemaError(f"workload of {name}", "needs a matrix", got=f"shape {given.shape}")
        return cls(name, BaseKind.GIVEN, given.shape[1], given)

    @property
    def n_rows(self) -> int:
        """Return the number of rows, m."""
        if self.given is not None:
            return len(self.given)
        return self.size * (self.size + 1) // 2 if self.kind is BaseKind.RANGES else self.size

    @property
    def signature(self) -> tuple[object, ...]:
        """Return a key that is equal for attributes with the same base matrix."""
        return (self.kind, self.size, None if self.given is None else self.given.tobytes())

    @property
    def matrix(self) -> FloatArray:
        """Return the base matrix W as a dense array, float64[m, n]."""
        return self.apply(np.eye(self.size))

    @cached_property
    def gram(self) -> FloatArray:
        """Return the Gram matrix W^T W of the base matrix, float64[n, n]."""
        return self.weighted_gram(np.ones(self.n_rows))

    def apply(self, columns: FloatArray) -> FloatArray:
        """Apply the base matrix W to columns float64[n, k]; return float64[m, k]."""
        if self.given is not None:
            return self.given @ columns
        if self.kind is BaseKind.IDENTITY:
            return columns
        sums = np.cumsum(columns, axis=0)
        if self.kind is BaseKind.PREFIX:
            return sums
        first, last = np.triu_indices(self.size)
        below = np.concatenate([np.zeros((1, columns.shape[1])), sums])
        return np.asarray(sums[last] - below[first])

    def weighted_gram(self, weights: FloatArray) -> FloatArray:
        """Return W^T diag(weights) W, float64[n, n], for weights float64[m]."""
        if self.given is not None:
            return (self.given.T * weights) @ self.given
        if self.kind is BaseKind.IDENTITY:
            return np.diag(weights)
        n = self.size
        later = np.maximum.outer(np.arange(n), np.arange(n))
        if self.kind is BaseKind.PREFIX:
            return np.asarray(np.cumsum(weights[::-1])[::-1][later])
        ranges = np.zeros((n, n))
        ranges[np.triu_indices(n)] = weights
        # Levels j <= k are both in the ranges that start at or before j and end at or after k.
        together = np.cumsum(np.cumsum(ranges, axis=0)[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(together[np.minimum.outer(np.arange(n), np.arange(n)), later])

    def row_forms(self, form: FloatArray) -> FloatArray:
        """Return the diagonal of W form W^T, float64[m], for a symmetric form float64[n, n].

        If the form is the covariance of the levels, these are the variances of the answers.
        """
        if self.given is not None:
            return np.asarray(np.einsum("ij,ij->i", self.given @ form, self.given))
        if self.kind is BaseKind.IDENTITY:
            return np.diag(form).copy()
        sums = np.cumsum(np.cumsum(form, axis=0), axis=1)
        if self.kind is BaseKind.PREFIX:
            return np.diag(sums).copy()
        padded = np.zeros((self.size + 1, self.size + 1))
        padded[1:, 1:] = sums
        first, last = np.triu_indices(self.size)
        squares = np.diag(padded)
        return np.asarray(squares[last + 1] + squares[first] - 2 * padded[first, last + 1])


def _check_given(where: str, matrix: FloatArray, size: int) -> None:
    if matrix.ndim != 2 or matrix.shape[1] != size:
        raise SchemaError(
            where, "has a matrix of the wrong shape", got=matrix.shape, want=f"(m, {size})"
        )
    if not np.isfinite(matrix).all():
        raise SchemaError(where, "has entries that are not finite")
    ones = np.ones(size)
    weights, _, rank, _ = np.linalg.lstsq(matrix.T, ones, rcond=None)
    if np.abs(matrix.T @ weights - ones).max() > _IN_ROW_SPACE:
        raise SchemaError(
            where,
            "does not determine the total, so marginals without this attribute have no answer",
            want="the ones vector in the row space",
            remedy="add a row of ones",
        )
    if rank < 2:
        raise SchemaError(
            where,
            "tells no two levels apart: all columns of its matrix are equal",
            remedy="remove the attribute from `bases`; its levels are then counted one by one",
        )


def positions_of(attributes: Sequence[AttributeWorkload], names: Sequence[str]) -> list[int]:
    """Return the positions of the attributes of a marginal, in the order of the names.

    Args:
      attributes: The attributes of the workload.
      names: Names of the attributes of the marginal.

    Raises:
      SchemaError: A name is not that of an attribute, or occurs twice.
    """
    index = {attribute.name: i for i, attribute in enumerate(attributes)}
    where, known = f"marginal {list(names)}", f"some of {list(index)}"
    unknown = [name for name in names if name not in index]
    if unknown:
        raise SchemaError(where, "names an unknown attribute", got=unknown, want=known)
    require_distinct(names, SchemaError, where, "names an attribute twice")
    return [index[name] for name in names]


class Weighting(StrEnum):
    """Scheme for the importance Imp_A of the average variance of a marginal's answers."""

    EQUAL = "equal"  # Imp_A = 1
    SQUARE_ROOT = "square_root"  # Imp_A = sqrt(number of answers)
    CELL_SIZE = "cell_size"  # Imp_A = number of answers: the sum of all variances

    @property
    def exponent(self) -> float:
        """Return the power of the number of answers m_A in the weight w_A = Imp_A / m_A."""
        return {Weighting.EQUAL: -1.0, Weighting.SQUARE_ROOT: -0.5, Weighting.CELL_SIZE: 0.0}[self]


@dataclass(frozen=True, eq=False)
class Workload:
    """Marginals over attributes with base matrices, each with a weight.

    The objective is the sum over marginals A of w_A times the summed variance of the answers. An
    importance Imp_A of the average variance is the weight w_A = Imp_A / m_A.

    Attributes:
      attributes: The attributes in order, with unique names; arrays are indexed by position.
      marginals: The sets of attributes of the marginals.
      weights: float64[number of marginals], nonnegative, one positive.
      weighting: The scheme of the weights; None for individual weights.

    Raises:
      SchemaError: A name repeats, there is no marginal, or the weights do not fit.

    >>> sex, age = AttributeWorkload.identity("sex", 2), AttributeWorkload.prefix("age", 5)
    >>> workload = Workload.k_way((sex, age), range(3))
    >>> workload.marginals.size, workload.sizes.sum()
    (4, np.float64(18.0))
    """

    attributes: tuple[AttributeWorkload, ...]
    marginals: AttributeSets
    weights: FloatArray
    weighting: Weighting | None = None

    def __post_init__(self) -> None:
        names = [attribute.name for attribute in self.attributes]
        require_distinct(names, SchemaError, "workload", "names an attribute twice")
        if self.marginals.size == 0:
            raise SchemaError("workload", "has no marginals")
        weights = read_only(self.weights)
        object.__setattr__(self, "weights", weights)
        if (
            weights.shape != (self.marginals.size,)
            or not (np.isfinite(weights) & (weights >= 0)).all()
            or not weights.any()
        ):
            raise SchemaError(
                "workload",
                "has weights that cannot be used",
                want=f"{self.marginals.size} nonnegative numbers, one positive",
            )

    @classmethod
    def k_way(
        cls,
        attributes: Sequence[AttributeWorkload],
        orders: Collection[int],
        weighting: Weighting = Weighting.CELL_SIZE,
        most_answers: float = math.inf,
    ) -> Workload:
        """Select all marginals on as many attributes as `orders` lists, such as [1, 2].

        Args:
          attributes: The attributes.
          orders: Numbers of attributes of the marginals.
          weighting: Scheme of the weights.
          most_answers: Marginals with more answers are left out.
        """
        if not 0 <= max(orders) <= len(attributes):
            raise SchemaError(
                "workload",
                "has marginals of more attributes than there are",
                got=max(orders),
                want=len(attributes),
            )
        rows = np.array([attribute.n_rows for attribute in attributes], np.float64)
        members, by_order = np.zeros((1, 0), np.int64), []
        for order in range(max(orders) + 1):
            by_order.append(members if order in orders else members[:0])
            last = members[:, -1] if order else np.full(len(members), -1)
            members = append_one(members, len(attributes) - 1 - last)
            members = members[rows[members].prod(axis=1) <= most_answers]
        while by_order and not len(by_order[-1]):
            by_order.pop()
        sets = AttributeSets(len(attributes), tuple(by_order))
        weights = sets.product(_weight_factors(attributes, weighting))
        return cls(tuple(attributes), sets, weights, weighting)

    @classmethod
    def of_marginals(
        cls,
        attributes: Sequence[AttributeWorkload],
        marginals: Sequence[Sequence[str]],
        weights: Sequence[float] | Weighting = Weighting.CELL_SIZE,
    ) -> Workload:
        """Select marginals by the names of their attributes.

        Args:
          attributes: The attributes.
          marginals: Names of the attributes of each marginal.
          weights: The weight w_A of each marginal, or a scheme of weights.

        Raises:
          SchemaError: A name is not that of an attribute, or occurs twice in a marginal. Or a
            marginal occurs twice, or the number of weights differs.
        """
        rows = [
            np.array([sorted(positions_of(attributes, names))], np.int64) for names in marginals
        ]
        sets = AttributeSets.from_rows(len(attributes), rows)
        if sets.size != len(rows):
            raise SchemaError("workload", "lists a marginal twice")
        if isinstance(weights, Weighting):
            scheme = sets.product(_weight_factors(attributes, weights))
            return cls(tuple(attributes), sets, scheme, weights)
        if len(weights) != len(rows):
            raise SchemaError(
                "workload", "needs a weight per marginal", got=len(weights), want=len(rows)
            )
        flat = np.zeros(sets.size)
        for row, weight in zip(rows, weights, strict=True):
            flat[sets.positions(row)] = weight
        return cls(tuple(attributes), sets, flat)

    @property
    def is_plain(self) -> bool:
        """Test whether every base matrix is the identity: marginals of plain counts."""
        return all(each.kind is BaseKind.IDENTITY for each in self.attributes)

    @cached_property
    def sizes(self) -> FloatArray:
        """Return the number of answers m_A of every marginal, float64 as it may pass 2^63."""
        return self.marginals.product(np.array([a.n_rows for a in self.attributes], np.float64))

    @property
    def weight_factors(self) -> FloatArray | None:
        """Return t, float64[d], with weights w_A = prod_{i in A} t_i; None without a scheme."""
        return None if self.weighting is None else _weight_factors(self.attributes, self.weighting)

    def members_of(self, names: Sequence[str]) -> IntArray:
        """Return the positions of the attributes of a marginal, int64[k], ascending.

        Raises:
          SchemaError: A name is not that of an attribute, occurs twice, or is out of order.
        """
        members = np.array(positions_of(self.attributes, names), np.int64)
        if (np.diff(members) <= 0).any():
            raise SchemaError(
                f"marginal {list(names)}",
                "does not list attributes in the order of the workload",
                want=f"a part of {[each.name for each in self.attributes]}",
            )
        return members

    def names_of(self, members: IntArray) -> tuple[str, ...]:
        """Return the names of the attributes in one set, int64[k]."""
        return tuple(self.attributes[i].name for i in members)


def _weight_factors(attributes: Sequence[AttributeWorkload], weighting: Weighting) -> FloatArray:
    rows = np.array([attribute.n_rows for attribute in attributes], np.float64)
    return np.asarray(rows**weighting.exponent)
