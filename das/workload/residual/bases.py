"""AttributeBasis: one attribute split into its total and residual rows.

The rows B = [1^T; Sub] span the row space of W. With a right inverse [u | R] of B,

    W = (W u) 1^T + (W R) Sub,     1^T u = 1,  Sub u = 0,  1^T R = 0,  Sub R = I,

so answers to W come from the total and the residual Sub x. ResidualPlanner takes the uniform pivot
u = 1/n; ResidualPlanner+ keeps u = 1/n for any W; the oblique planner also chooses u.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import SchemaError
from das.workload.one_dimensional import (
    DEFAULT_GAP,
    OneDimensionalStrategy,
    count_rank,
    minimize_largest_variance,
    minimize_total_variance,
)
from das.workload.workload import AttributeWorkload, BaseKind, Workload


@dataclass(frozen=True, eq=False)
class AttributeBasis:
    """Pivot u, residual rows Sub and their right inverse R of one attribute.

    Attributes:
      subtraction: Sub, float64[r - 1, n], measured with independent noise of equal variance.
      pivot: u, float64[n].
      spread: R, float64[n, r - 1].
      cell_cost: beta = max_j (Sub^T Sub)_jj, the privacy cost at noise variance 1.
      pivot_variance: s = |W u|^2, total variance of the answers if the total has variance 1.
      residual_variance: r = |W R|_F^2, total variance of the answers if Sub x has variance 1.
    """

    subtraction: FloatArray
    pivot: FloatArray
    spread: FloatArray
    cell_cost: float
    pivot_variance: float
    residual_variance: float

    @property
    def residual_product(self) -> float:
        """Return beta r, invariant under rescaling of Sub; plans depend on s and beta r alone."""
        return self.cell_cost * self.residual_variance

    @property
    def decoder(self) -> FloatArray:
        """Return the right inverse [u | R] of the total and residual rows, float64[n, r]."""
        return np.column_stack([self.pivot, self.spread])

    def row_variances(self, workload: AttributeWorkload) -> tuple[FloatArray, FloatArray]:
        """Return (W u)_i^2 and |(W R)_i|^2, float64[m] each: the two parts of a variance."""
        return (
            workload.apply(self.pivot[:, None])[:, 0] ** 2,
            np.maximum(workload.row_forms(self.spread @ self.spread.T), 0.0),
        )


def build_basis(
    workload: AttributeWorkload, subtraction: FloatArray, pivot: FloatArray, spread: FloatArray
) -> AttributeBasis:
    """Build a basis from Sub, u and R, with its costs and variances.

    Args:
      workload: The base matrix W of the attribute.
      subtraction: Sub, float64[r - 1, n].
      pivot: u, float64[n].
      spread: R, float64[n, r - 1].
    """
    gram = workload.gram
    return AttributeBasis(
        subtraction,
        pivot,
        spread,
        float((subtraction**2).sum(0).max()),
        float(pivot @ gram @ pivot),
        float(np.einsum("ij,ij->", gram @ spread, spread)),
    )


def split_off_total(
    workload: AttributeWorkload, factor: FloatArray, inverse: FloatArray
) -> AttributeBasis:
    """Split V = F F^T, given F and its inverse, into theta 11^T + Sub^T Sub with largest theta.

    Here theta = 1 / (1^T V^- 1), u = theta V^- 1 and Sub u = 0. The total and the residual,
    measured with variances 1 / theta and 1, have the information of V.

    Args:
      workload: The base matrix W of the attribute.
      factor: F, float64[n, r].
      inverse: Left inverse of F, float64[r, n].
    """
    inner = inverse.sum(0)  # the ones vector is F inner
    total = float(inner @ inner)
    others = _complement(inner)
    return build_basis(workload, (factor @ others).T, inverse @ inner / total, inverse @ others)


def _complement(vector: FloatArray) -> FloatArray:
    """Return orthonormal columns orthogonal to a vector, float64[r, r - 1], by reflection."""
    reflector = vector / np.linalg.norm(vector)
    sign = 1.0 if reflector[0] >= 0 else -1.0
    reflector = reflector.copy()
    reflector[0] += sign
    columns = np.eye(len(vector))[:, 1:]
    return np.asarray(columns - np.outer(reflector, reflector[1:]) * (2 / (reflector @ reflector)))


def _center(matrix: FloatArray) -> FloatArray:
    """Center the rows and columns of a matrix: (I - J/n) M (I - J/n)."""
    rows = matrix - matrix.mean(axis=0)
    return np.asarray(rows - rows.mean(axis=1)[:, None])


def uniform_basis(workload: AttributeWorkload) -> AttributeBasis:
    """Build the ResidualPlanner basis: u = 1/n, orthonormal residual rows; for the identity.

    Raises:
      SchemaError: W is not the identity.

    References:
      Xiao, He, Zhang & Kifer, An optimal and scalable matrix mechanism for noisy marginals under
      convex loss functions, NeurIPS 2023.

    >>> basis = uniform_basis(AttributeWorkload.identity("sex", 2))
    >>> round(basis.pivot_variance, 6), round(basis.residual_product, 6)
    (0.5, 0.5)
    """
    if workload.kind is not BaseKind.IDENTITY:
        raise SchemaError(
            f"workload of {workload.name}",
            "is not made of plain counts",
            got=workload.kind,
            want="identity",
            remedy="choose the planner for general base matrices",
        )
    subtraction = _complement(np.ones(workload.size)).T
    pivot = np.full(workload.size, 1 / workload.size)
    return build_basis(workload, subtraction, pivot, subtraction.T)


def projected_basis(workload: AttributeWorkload) -> AttributeBasis:
    """Build the ResidualPlanner+ basis: project the total out of a strategy.

    The strategy V is optimal for [1^T; W (I - J/n)], and Sub^T Sub = (I - J/n) V (I - J/n).

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Algorithm 4.
    """
    if workload.kind is BaseKind.IDENTITY:
        return uniform_basis(workload)
    centered = _center(workload.gram)
    strategy = minimize_total_variance(centered + 1.0, rank=count_rank(workload.gram))
    return _project(workload, strategy)


def projected_largest_basis(workload: AttributeWorkload) -> AttributeBasis:
    """Build the ResidualPlanner+ basis from a strategy of least largest variance."""
    if workload.kind is BaseKind.IDENTITY:
        return uniform_basis(workload)
    matrix = workload.matrix
    centered = matrix - matrix.mean(axis=1)[:, None]
    stacked = np.concatenate([centered, np.ones((1, workload.size))])
    strategy = minimize_largest_variance(AttributeWorkload.from_matrix(workload.name, stacked))
    return _project(workload, strategy)


def _project(workload: AttributeWorkload, strategy: OneDimensionalStrategy) -> AttributeBasis:
    rank = count_rank(workload.gram)
    squares, vectors = np.linalg.eigh(_center(strategy.gram))
    roots, vectors = np.sqrt(squares[1 - rank :]), vectors[:, 1 - rank :]
    pivot = np.full(workload.size, 1 / workload.size)
    return build_basis(workload, (vectors * roots).T, pivot, vectors / roots)


def orthogonal_basis(workload: AttributeWorkload, *, gap: float = DEFAULT_GAP) -> AttributeBasis:
    """Build the best basis among those with the uniform pivot u = 1/n, Sub 1 = 0."""
    if workload.kind is BaseKind.IDENTITY:
        return uniform_basis(workload)
    centered = _center(workload.gram)
    strategy = minimize_total_variance(centered, rank=count_rank(workload.gram) - 1, gap=gap)
    pivot = np.full(workload.size, 1 / workload.size)
    spread = strategy.inverse - strategy.inverse.mean(axis=0)
    # The dual point need not be uniform: the columns of the inverse are centered along u.
    return build_basis(workload, strategy.factor.T, pivot, spread)


def per_matrix(
    workload: Workload, build: Callable[[AttributeWorkload], AttributeBasis]
) -> tuple[AttributeBasis, ...]:
    """Return the basis of every attribute, built once for attributes with the same base matrix."""
    built = {each.signature: each for each in workload.attributes}
    bases = {signature: build(each) for signature, each in built.items()}
    return tuple(bases[each.signature] for each in workload.attributes)
