"""Integer residual rows for discrete noise.

- Plain counts: the rows n I - 11^T with independent noise are equivalent to orthonormal residual
  rows with independent noise (ResidualPlanner, Algorithm 3).
- Any other base matrix: rint(K Sub) keeps the row space, and B = [1^T; rows] has a right inverse
  with a new pivot. The loss increases by about 1 / K.
"""

from __future__ import annotations

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.workload.residual.bases import AttributeBasis, build_basis
from das.workload.workload import AttributeWorkload, BaseKind


def integer_rows(basis: AttributeBasis) -> IntArray:
    """Return the residual rows of an integer basis, int64[q, n]."""
    return np.rint(basis.subtraction).astype(np.int64)


def center_counts(workload: AttributeWorkload) -> AttributeBasis:
    """Build the basis of plain counts: n I - 11^T, and for two levels the one row (1, -1).

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Algorithm 3.

    >>> basis = center_counts(AttributeWorkload.identity("size", 3))
    >>> integer_rows(basis).tolist(), basis.cell_cost
    ([[2, -1, -1], [-1, 2, -1], [-1, -1, 2]], 6.0)
    """
    n = workload.size
    rows = np.array([[1.0, -1.0]]) if n == 2 else n * np.eye(n) - 1
    return build_basis(workload, rows, np.full(n, 1 / n), np.linalg.pinv(rows))


def round_rows(workload: AttributeWorkload, basis: AttributeBasis, bits: int) -> AttributeBasis:
    """Round the residual rows at largest column norm 2^bits and find their right inverse.

    Args:
      workload: The base matrix of the attribute.
      basis: A basis with float residual rows.
      bits: log2 of K.

    Returns:
      A basis with integer rows.

    Raises:
      SchemaError: W has fractions, and dependent columns that are not equal. Or the resolution is
        too coarse for rows of full rank.
    """
    frame = _frame(workload)
    inverse: FloatArray = np.linalg.pinv(frame).astype(np.float64)
    scale = 2.0**bits / np.sqrt(basis.cell_cost)
    rounded = np.rint(scale * positive_triangle(basis.subtraction @ inverse))
    square = np.concatenate([np.ones((1, workload.size)) @ inverse, rounded])
    if np.linalg.matrix_rank(square) < len(square):
        raise SchemaError(
            f"workload of {workload.name}",
            "has dependent rows after rounding",
            got=f"{bits} bits",
            remedy="choose a higher resolution",
        )
    decoder: FloatArray = (inverse @ np.linalg.inv(square)).astype(np.float64)
    return build_basis(workload, rounded @ frame, decoder[:, 0], decoder[:, 1:])


def positive_triangle(rows: FloatArray) -> FloatArray:
    """Return the triangle of positive diagonal with the same Gram matrix as some rows.

    The processor decides the signs of eigenvectors, and their basis for equal eigenvalues. The
    triangle is unique, so all processors round the same rows.
    """
    triangle = np.linalg.qr(rows)[1]
    return np.asarray(triangle * np.where(triangle.diagonal() < 0, -1.0, 1.0)[:, None], np.float64)


def _frame(workload: AttributeWorkload) -> FloatArray:
    """Return integer rows float64[r, n] that span the row space of W; coefficients are rounded.

    The rows are indicators of levels with equal columns if these suffice, or else rows of W.
    """
    if workload.kind is not BaseKind.GIVEN:
        return np.eye(workload.size)
    matrix = workload.matrix
    columns, group = np.unique(matrix, axis=1, return_inverse=True)
    rank = np.linalg.matrix_rank(matrix)
    if rank == columns.shape[1]:
        return np.asarray(group.ravel() == np.arange(rank)[:, None], np.float64)
    if not np.array_equal(matrix, np.rint(matrix)):
        raise SchemaError(
            f"workload of {workload.name}",
            "cannot be measured with integer rows",
            got=f"rank {rank} over {columns.shape[1]} distinct levels, with fractions",
            remedy="scale its rows to integers",
        )
    from scipy.linalg import qr

    order = qr(matrix.T, mode="r", pivoting=True)[1]
    return np.asarray(matrix[np.sort(order[:rank])])
