"""AttributeStrategy: the measured rows of one attribute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray
from das.workload.one_dimensional import weigh_total
from das.workload.workload import AttributeWorkload


@dataclass(frozen=True, eq=False)
class AttributeStrategy:
    """Measured rows A of one attribute and a least-squares inverse.

    Attributes:
      rows: A, float64[m, n], columns of squared norm at most 1.
      decoder: A^+, float64[n, m]; W A^+ A = W for the attribute's workload W.
      cell_weights: float64[n], dual weights to start similar problems from, if known.
    """

    rows: FloatArray
    decoder: FloatArray
    cell_weights: FloatArray | None = None

    @cached_property
    def total_variance(self) -> float:
        """Return |1^T A^+|^2, the variance of the sum of all levels at noise variance 1."""
        return float((self.decoder.sum(axis=0) ** 2).sum())

    def variance(self, gram: FloatArray) -> float:
        """Return tr(G A^+ A^+^T), the total variance of answers with Gram matrix G."""
        return float(np.einsum("ij,ij->", gram @ self.decoder, self.decoder))


AttributeSolver = Callable[[AttributeWorkload, float, AttributeStrategy | None], AttributeStrategy]
"""Minimizes tr((G + c 11^T) (A^T A)^-) for an attribute and c, from an optional start."""


def solve_exactly(
    attribute: AttributeWorkload, total_weight: float, start: AttributeStrategy | None = None
) -> AttributeStrategy:
    """Find the best rows among all matrices, proven to a relative gap of 1e-6.

    Args:
      attribute: The workload of the attribute, with Gram matrix G.
      total_weight: c, the weight of the total query.
      start: Strategy whose cell weights start the search; None for equal weights.
    """
    known = None if start is None else start.cell_weights
    best = weigh_total(attribute, total_weight, start=known)
    return AttributeStrategy(best.factor.T, best.inverse, best.cell_weights)


def measure_total(size: int) -> AttributeStrategy:
    """Return one row of ones, for an attribute in no marginal."""
    return AttributeStrategy(np.ones((1, size)), np.full((size, 1), 1 / size))
