"""Kronecker: products of one matrix per attribute, applied without forming them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.errors import SchemaError
from das.workload.attribute_sets import AttributeSets
from das.workload.workload import Workload, positions_of


@dataclass(frozen=True, eq=False)
class Kronecker:
    """K = kron_i F_i, rows and columns in C order: the last factor moves fastest.

    Attributes:
      factors: F_i, float64[m_i, n_i] each.

    >>> pair = Kronecker((np.tri(2), np.ones((1, 3))))
    >>> pair.shape, pair.apply(np.arange(6.0)).tolist()
    ((2, 6), [3.0, 15.0])
    """

    factors: tuple[FloatArray, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns of the product."""
        return (
            math.prod(factor.shape[0] for factor in self.factors),
            math.prod(factor.shape[1] for factor in self.factors),
        )

    def apply(self, columns: FloatArray) -> FloatArray:
        """Return K @ columns, axis by axis.

        Args:
          columns: float64[n] or float64[n, k], n = prod n_i.

        Returns:
          float64[m] or float64[m, k], m = prod m_i.

        Raises:
          SchemaError: The columns have another length.
        """
        if len(columns) != self.shape[1]:
            raise SchemaError(
                "Kronecker product",
                "was applied to a vector of another length",
                got=len(columns),
                want=self.shape[1],
            )
        out = columns.reshape([factor.shape[1] for factor in self.factors] + [-1])
        for factor in self.factors:
            # The first axis is multiplied and becomes the last one, so that a round over all
            # factors leaves the axes in order behind the one of the columns.
            out = np.tensordot(out, factor, axes=([0], [1]))
        return np.asarray(out.reshape(-1, self.shape[0]).T.reshape(-1, *columns.shape[1:]))

    def transpose(self) -> Kronecker:
        """Return the transposed product."""
        return Kronecker(tuple(factor.T for factor in self.factors))

    def largest_column(self) -> float:
        """Return max_j |K_j|^2, the squared L2 sensitivity of one added record."""
        return math.prod(float((factor**2).sum(axis=0).max()) for factor in self.factors)


def list_members(sets: AttributeSets) -> BoolArray:
    """Return which attributes are in which set, bool[number of sets, d]."""
    out = np.zeros((sets.size, sets.n_attributes), bool)
    for order, members in enumerate(sets.by_order):
        np.put_along_axis(out[sets.part(order)], members, True, axis=1)
    return out


def mark_attributes(workload: Workload, names: Sequence[str]) -> BoolArray:
    """Return which of d attributes a marginal contains, bool[d].

    Args:
      workload: The workload with the attributes.
      names: Names of the attributes of the marginal.

    Raises:
      SchemaError: A name is not that of an attribute, or occurs twice.
    """
    out = np.zeros(len(workload.attributes), bool)
    out[positions_of(workload.attributes, names)] = True
    return out
