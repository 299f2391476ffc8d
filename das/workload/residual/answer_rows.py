"""AnswerRows: the answers whose variance can be the largest, numbered across all marginals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from das.arrays import FloatArray, IntArray
from das.workload.incidence import Incidence
from das.workload.residual.bases import AttributeBasis
from das.workload.workload import Workload

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_CHUNK = 1 << 21  # answers processed at once; default, not measured


def keep_maximal(pairs: FloatArray) -> FloatArray:
    """Keep the rows of float64[m, 2] that no other row exceeds in both columns.

    >>> keep_maximal(np.array([[1.0, 1.0], [2.0, 0.5], [0.5, 0.5]])).tolist()
    [[2.0, 0.5], [1.0, 1.0]]
    """
    ordered = pairs[np.lexsort((-pairs[:, 1], -pairs[:, 0]))]
    highest = np.maximum.accumulate(ordered[:, 1])
    before = np.concatenate([[-np.inf], highest[:-1]])
    return np.asarray(ordered[ordered[:, 1] > before * (1 + 1e-12)])


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """Products of Pareto-maximal rows for every marginal.

    The variance of an answer is multilinear, with nonnegative coefficients, in the pairs
    ((W u)_i^2, |(W R)_i|^2) of its rows. So the largest variance is at a product of maximal pairs.
    These answers have flat indexes, marginal by marginal and in C order of their rows.

    Attributes:
      incidence: The marginals and their residual sets.
      pairs: pairs[i] is float64[k_i, 2], the maximal pairs of attribute i.
    """

    incidence: Incidence
    pairs: tuple[FloatArray, ...]

    @classmethod
    def build(cls, workload: Workload, bases: tuple[AttributeBasis, ...]) -> AnswerRows:
        """Find the maximal rows of every attribute and the subsets of every marginal."""
        pairs = [
            keep_maximal(np.column_stack(basis.row_variances(attribute)))
            for basis, attribute in zip(bases, workload.attributes, strict=True)
        ]
        marginals = workload.marginals
        return cls(Incidence(marginals, marginals.closure()), tuple(pairs))

    @cached_property
    def _counts(self) -> FloatArray:
        return np.array([len(rows) for rows in self.pairs], np.float64)

    @cached_property
    def starts(self) -> IntArray:
        """Return the flat index, from 0, of the first answer of every marginal, and the end."""
        counts = self.incidence.marginals.product(self._counts)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @cached_property
    def _padded(self) -> FloatArray:
        out = np.zeros((len(self.pairs), int(self._counts.max()), 2))
        for i, rows in enumerate(self.pairs):
            out[i, : len(rows)] = rows
        return out

    def matrix(self, answers: IntArray) -> csr_array:
        """Return the variances of chosen answers as a linear map of the noise.

        Args:
          answers: int64[r], increasing.

        Returns:
          float64[r, residual sets], sparse.
        """
        from scipy.sparse import csr_array

        marginals = self.incidence.marginals
        owners = np.searchsorted(self.starts, answers, side="right") - 1
        values, columns, widths = [], [], []
        for order, members in enumerate(marginals.by_order):
            part = marginals.part(order)
            first, last = np.searchsorted(owners, [part.start, part.stop])
            rows = owners[first:last] - part.start
            rest = answers[first:last] - self.starts[owners[first:last]]
            product = np.ones((len(rows), 1))
            for column in range(order - 1, -1, -1):
                attribute = members[rows, column]
                sizes = self._counts[attribute].astype(np.int64)
                chosen = self._padded[attribute, rest % sizes]
                rest = rest // sizes
                width = 2 * product.shape[1]
                product = (chosen[:, :, None] * product[:, None, :]).reshape(-1, width)
            values.append(product.ravel())
            columns.append(self.incidence.columns[order][rows].ravel())
            widths.append(np.full(len(rows), product.shape[1]))
        ends = np.concatenate([[0], np.cumsum(np.concatenate(widths))])
        return csr_array(
            (np.concatenate(values), np.concatenate(columns), ends),
            shape=(len(answers), self.incidence.residuals.size),
        )

    def find_largest(self, noise: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the largest variance of every marginal and the index of its answer.

        Args:
          noise: float64[residual sets], the noise variance of each residual set.

        Returns:
          float64[marginals] and int64[marginals].
        """
        marginals = self.incidence.marginals
        largest, where = np.zeros(marginals.size), np.zeros(marginals.size, np.int64)
        for order, members in enumerate(marginals.by_order):
            offset = marginals.offsets[order]
            for rows, shape in group_by_shape(members, self._counts.astype(np.int64)):
                step = max(1, _CHUNK // max(1, math.prod(shape)))
                for begin in range(0, len(rows), step):
                    batch = rows[begin : begin + step]
                    variances = noise[self.incidence.columns[order][batch]]
                    for column in range(order):
                        table = self._padded[members[batch, column], : shape[column]]
                        folded = variances.reshape(len(batch), 2, -1).transpose(0, 2, 1)
                        variances = folded @ table.transpose(0, 2, 1)
                    flat = variances.reshape(len(batch), -1)
                    best = flat.argmax(axis=1)
                    largest[offset + batch] = flat[np.arange(len(batch)), best]
                    where[offset + batch] = self.starts[offset + batch] + best
        return largest, where


def group_by_shape(
    members: IntArray, sizes: IntArray
) -> Iterator[tuple[IntArray, tuple[int, ...]]]:
    """Yield indices, from 0, of the rows of int64[m, k] with the same sizes, and these sizes.

    >>> groups = group_by_shape(np.array([[0, 1], [0, 2], [1, 2]]), np.array([2, 3, 3]))
    >>> [(rows.tolist(), shape) for rows, shape in groups]
    [([0, 1], (2, 3)), ([2], (3, 3))]
    """
    distinct, kind = np.unique(sizes, return_inverse=True)
    codes = np.zeros(len(members), np.int64)
    for column in range(members.shape[1]):
        codes = codes * len(distinct) + kind[members[:, column]]
        # Renumbering keeps the codes below the number of rows, whatever the order.
        if len(distinct) > 1:
            codes = np.unique(codes, return_inverse=True)[1]
    for code in range(int(codes.max()) + 1 if len(codes) else 0):
        rows = np.flatnonzero(codes == code)
        yield rows, tuple(int(size) for size in sizes[members[rows[0]]])
