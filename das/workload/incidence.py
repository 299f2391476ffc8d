"""Incidence: the residual sets of every marginal, as index arrays and sparse matrices."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from das.arrays import FloatArray, IntArray
from das.workload.attribute_sets import AttributeSets

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Incidence:
    """Positions of all subsets S of every marginal A in the list of residual sets.

    Marginals and residual sets are sets of attributes. The position of a residual set is its index
    in the flat order of `residuals`.

    Attributes:
      marginals: Sets of attributes of the marginals.
      residuals: Residual sets; must contain every subset of every marginal.
    """

    marginals: AttributeSets
    residuals: AttributeSets

    @cached_property
    def columns(self) -> tuple[IntArray, ...]:
        """Return per order k int64[m, 2^k]; bit c of a column, highest first, marks member c in S.

        Raises:
          SchemaError: A subset is missing.
        """
        orders = self.marginals.by_order
        return tuple(locate_subsets(self.residuals, members) for members in orders)

    def values(self, pivots: FloatArray, residuals: FloatArray) -> list[FloatArray]:
        """Return a product for every marginal A and every subset S of A, shaped as `columns`.

        Args:
          pivots: float64[d], the factor of attributes in A but not in S.
          residuals: float64[d], the factor of attributes in S.
        """
        pairs = np.column_stack([pivots, residuals])
        return [expand_products(pairs, members) for members in self.marginals.by_order]

    def matrix(self, pivots: FloatArray, residuals: FloatArray) -> csr_array:
        """Return the products of `values` as a sparse matrix, float64[marginals, residual sets].

        Args:
          pivots: float64[d], the factor of attributes in A but not in S.
          residuals: float64[d], the factor of attributes in S.
        """
        from scipy.sparse import csr_array

        widths = np.repeat(
            [part.shape[1] for part in self.columns], [len(part) for part in self.columns]
        )
        rows = np.concatenate([[0], np.cumsum(widths)])
        return csr_array(
            (
                np.concatenate([part.ravel() for part in self.values(pivots, residuals)]),
                np.concatenate([part.ravel() for part in self.columns]),
                rows,
            ),
            shape=(self.marginals.size, self.residuals.size),
        )


def locate_subsets(residuals: AttributeSets, members: IntArray) -> IntArray:
    """Return the flat indexes of all 2^k subsets of each row of `members`, int64[m, 2^k].

    Args:
      residuals: The sets that are numbered.
      members: int64[m, k], one set of attributes per row.
    """
    order = members.shape[1]
    masks = itertools.product((False, True), repeat=order)
    return np.column_stack(
        [residuals.positions(members[:, np.array(mask, bool)]) for mask in masks]
    )


def expand_products(pairs: FloatArray, members: IntArray) -> FloatArray:
    """Return a product for every subset of each row of `members`, float64[m, 2^k].

    Args:
      pairs: float64[d, 2], factor of each attribute if it is absent (column 0) or present (column
        1).
      members: int64[m, k], one set of attributes per row.
    """
    out = np.ones((len(members), 1))
    for column in range(members.shape[1]):
        width = 2 * out.shape[1]
        out = (out[:, :, None] * pairs[members[:, column], None, :]).reshape(-1, width)
    return out
