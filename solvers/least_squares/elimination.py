"""Elimination: solve the equality-constrained node problem on given supports, by blocks.

For fixed supports the optimality conditions are linear,

    f_c (H_c x_c - b_c) - lambda - E_c' mu_c = 0,    sum_c x_c = p,    E_c x_c = e_c.

Equalities enter the matrix as penalties, which allows redundant ones, and rounds of correction
make them exact (the method of multipliers). With K_c the inverse of the blocks on the support, and
y_c = F_c x_c the outside rows,

    x_c = K_c (b_c + lambda / f_c - F_c' y_c),
    lambda = N^-1 (p - sum_c K_c (b_c - F_c' y_c)),    N = sum_c K_c / f_c,

both block by block, which leaves one symmetric positive definite system for all y_c.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg as sla

from das.arrays import BoolArray, FloatArray
from solvers.least_squares.blocks import Quadratic


class Elimination:
    """Factors of the linear system above; `solve` applies its inverse."""

    def __init__(
        self,
        q: Quadratic,
        support: BoolArray,
        barrier: FloatArray | None = None,
        row_weights: FloatArray | None = None,
    ) -> None:
        """Factorise.

        Args:
          q: The node problem.
          support: bool[C, k], the cells that may be positive.
          barrier: float64[C, k], curvature added to single cells.
          row_weights: float64[C, n], curvature along the rows.
        """
        self._q = q
        self._support = support
        self._K = self._inverses(barrier)
        self._L = self._coupling() if q.parent is not None else None
        self._F = self._outside_rows(row_weights)
        self._S = self._outside_system() if self._F.shape[1] else None

    def _inverses(self, barrier: FloatArray | None) -> FloatArray:
        """Return K: float64[B, C, s, s], zero outside the support."""
        q = self._q
        B, C, s = len(q.cells), len(q.linear), q.cells.shape[1]
        is_positive = q.gather(self._support.astype(float)) > 0
        n = max(1, int(is_positive.sum(-1).max(initial=0)))
        order = np.argsort(~is_positive, axis=-1, kind="stable")[..., :n]
        is_positive = np.take_along_axis(is_positive, order, -1)
        at_block = np.arange(B)[:, None, None, None]
        at_child = np.arange(C)[:, None, None]
        rows, columns = order[..., :, None], order[..., None, :]
        pairs = is_positive[..., :, None] & is_positive[..., None, :]
        penalized = q.penalized()
        pattern = at_child if penalized.shape[1] > 1 else 0
        matrices = np.where(pairs, penalized[at_block, pattern, rows, columns], 0.0)
        index = np.arange(n)
        if barrier is not None:
            matrices[..., index, index] += (
                np.take_along_axis(q.gather(barrier), order, -1) * is_positive
            )
        matrices[..., index, index] += ~is_positive
        root = 1 / np.sqrt(matrices[..., index, index])
        matrices *= root[..., :, None] * root[..., None, :]
        inverse = np.linalg.inv(matrices.reshape(-1, n, n)).reshape(B, C, n, n)
        inverse *= root[..., :, None] * root[..., None, :] * pairs
        K = np.zeros((B, C, s, s))
        K[at_block, at_child, rows, columns] = inverse
        return K

    def _coupling(self) -> FloatArray:
        """Return float64[B, s, s]: L with L'L the inverse of N."""
        index = np.arange(self._K.shape[-1])
        N = np.tensordot(1 / self._q.scale, self._K, (0, 1))
        N = (N + N.transpose(0, 2, 1)) / 2
        diagonal = N[:, index, index]
        root = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        N *= root[:, :, None] * root[:, None, :]
        N[:, index, index] = np.where(diagonal > 0, 1 + 1e-14, 1.0)
        values, vectors = np.linalg.eigh(N)
        values = np.maximum(values, 1e-15)
        L = vectors.transpose(0, 2, 1) / np.sqrt(values)[:, :, None]
        L *= root[:, None, :]
        return np.asarray(L)

    def _outside_rows(self, row_weights: FloatArray | None) -> FloatArray:
        """Return float64[P, r, k]: F, and outside equalities and rows that have weight."""
        q = self._q
        parts = [q.outside_given()]
        if row_weights is not None and row_weights.any():
            weighted = np.sqrt(row_weights)[:, :, None] * q.coefficients
            parts = [np.broadcast_to(p, (len(weighted), *p.shape[1:])) for p in parts]
            parts.append(weighted)
        return np.concatenate(parts, axis=1)

    def _outside_system(self) -> Callable[[FloatArray], FloatArray]:
        """Return the inverse of the system of all y_c, as a function."""
        q = self._q
        P, r, _ = self._F.shape
        C = len(q.linear)
        self._Fb = q.gather(self._F.reshape(P * r, -1)).reshape(len(q.cells), P, r, -1)
        self._Z = self._Fb @ self._K
        J = np.einsum(
            "bcrs,bcts->crt", self._Z, np.broadcast_to(self._Fb, self._Z.shape), optimize=True
        )
        J[:, np.arange(r), np.arange(r)] += 1
        by_child = np.zeros((C, r, C, r))
        by_child[np.arange(C), :, np.arange(C), :] = q.scale[:, None, None] * J
        S = by_child.reshape(C * r, C * r)
        if self._L is not None:
            Y = self._Z.reshape(len(q.cells), C * r, -1) @ self._L.transpose(0, 2, 1)
            flat = Y.transpose(1, 0, 2).reshape(C * r, -1)
            S -= flat @ flat.T
        root = 1 / np.sqrt(np.repeat(q.scale, r))
        S *= root[:, None] * root
        # S >= 1 in exact arithmetic; the shift covers rounding errors.
        S[np.diag_indices_from(S)] += 1e-14 * S.diagonal().max()
        try:
            factor = sla.cholesky(S, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(S)
            inverse = root[:, None] * (vectors / np.maximum(values, 1.0)) @ vectors.T * root
            return lambda right: np.asarray(inverse @ right)
        return lambda right: np.asarray(
            root * sla.cho_solve((factor, True), root * right, check_finite=False)
        )

    def solve(self, right: FloatArray, missing: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Solve f_c M_c x_c - lambda = f_c right_c on the support, sum_c x_c = missing.

        M_c is H_c with the penalties, barrier and row weights. Returns x and lambda.
        """
        q = self._q
        x = q.times(self._K, q.gather(right))
        multiplier = np.zeros((len(x), x.shape[2]))
        if missing is not None:
            padded = np.append(missing, 0.0)[q.cells]
            multiplier = self._uncoupled(padded - x.sum(1))
        if self._S is not None:
            f = q.scale[:, None]
            Fx = np.einsum("bcrs,bcs->cr", np.broadcast_to(self._Fb, self._Z.shape), x)
            Zl = np.einsum("bcrs,bs->cr", self._Z, multiplier)
            y = self._S((f * Fx + Zl).ravel()).reshape(Fx.shape)
            adjoint = np.einsum("bcrs,cr->bcs", self._Z, y)
            x = x - adjoint
            if missing is not None:
                multiplier = multiplier + self._uncoupled(adjoint.sum(1))
        if missing is not None:
            x = x + q.times(self._K, multiplier[:, None] / q.scale[:, None])
        return q.scatter(x), q.scatter(multiplier[:, None])[0]

    def _uncoupled(self, gap: FloatArray) -> FloatArray:
        if self._L is None:
            return np.zeros_like(gap)
        half = self._L @ gap[..., None]
        return np.asarray((self._L.transpose(0, 2, 1) @ half)[..., 0])
