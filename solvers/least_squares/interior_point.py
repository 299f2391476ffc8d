"""Primal-dual interior-point iterations: the robust fallback where active sets cycle.

Every cell and every bound of a row has a barrier. `Elimination` solves the linear systems,
with every free cell in the support and the barriers on the diagonal.

References:
  Mehrotra, SIAM J. Optim. 2 (1992), 575-601 (predictor and corrector).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as sla

from das.arrays import BoolArray, FloatArray
from solvers.least_squares.blocks import Quadratic
from solvers.least_squares.certificate import Point, gradient, natural_residual
from solvers.problem import group_sums

# Defaults, not measured.
_ROUNDS = 4  # rounds of correction with the same factors
# A path ends when the residual is below _NEAR and did not fall for _STALE_STEPS steps: rounding
# errors then dominate the barrier term, and active-set steps are more accurate from there.
_NEAR = 1e-5
_STALE_STEPS = 6
_START = 0.1  # smallest count at the start, over the largest
_END = 1e-26  # products of counts and duals that are zero up to rounding errors


class Elimination:
    """Factors of the equality-constrained node problem on given supports, by blocks.

    For fixed supports the optimality conditions are linear,

        f_c (H_c x_c - b_c) - lambda - E_c' mu_c = 0,    sum_c x_c = p,    E_c x_c = e_c.

    Equalities enter the matrix as penalties, which allows redundant ones, and rounds of correction
    make them exact (the method of multipliers). With K_c the inverse of the blocks on the support,
    and y_c = F_c x_c the outside rows,

        x_c = K_c (b_c + lambda / f_c - F_c' y_c),
        lambda = N^-1 (p - sum_c K_c (b_c - F_c' y_c)),    N = sum_c K_c / f_c,

    both block by block, which leaves one symmetric positive definite system for all y_c.
    """

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
        """Return the inverses K of all blocks on the support, float64[B, C, s, s]; 0 outside of it.

        Args:
          barrier: float64[C, k], added to the diagonal; None for no barrier.
        """
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
        """Return float64[P, r, k]: F, then equalities across blocks, then weighted linear rows.

        Args:
          row_weights: float64[C, n], weight of each linear row; None, or all 0, leaves the rows
            out.
        """
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


def follow_path(
    q: Quadratic, start: Point, tolerance: float, most_steps: int
) -> tuple[Point, float, int]:
    """Iterate from a point, which need not be feasible.

    Args:
      q: The node problem.
      start: First point; its multipliers are not used.
      tolerance: Residual at which to stop.
      most_steps: Most iterations.

    Returns:
      The point of the smallest residual, that residual, and the iterations used.
    """
    path = _Path(q, start.x)
    best, least, stale = start, np.inf, 0
    for step in range(most_steps):
        # Iterates may overflow; the residual is then not finite and the path ends.
        with np.errstate(all="ignore"):
            if step:
                path.advance()
            point = path.point()
            residual = natural_residual(q, point, gradient(q, point))
        if not np.isfinite(residual):
            return best, least, step
        stale += 1
        if residual < least:
            best, least, stale = point, residual, 0
        if stale >= _STALE_STEPS and least < _NEAR:
            return best, least, step  # rounding errors dominate the barrier term
        if least <= tolerance or path.is_at_its_end():
            return best, least, step
    return best, least, most_steps


_Step = dict[str, Any]  # changes by name of the attribute of `_Path`


class _Path:
    """Iterate: x with duals z, slacks of rows with duals, multipliers of equalities.

    Everything is scaled by the largest count, so that the barrier starts near one.
    """

    def __init__(self, q: Quadratic, x: FloatArray) -> None:
        self._q = q
        self._f = q.scale[:, None]
        size = max(1.0, float(np.abs(x).max(initial=0.0)))
        if q.parent is None:
            size = max(size, float(np.abs(q.linear / q.diagonal).max(initial=0.0)))
        else:
            size = max(size, float(q.parent.max(initial=0.0)) / len(x))
        self._equal = q.least == q.most
        self._low = np.isfinite(q.least) & ~self._equal
        self._high = np.isfinite(q.most) & ~self._equal
        self._count = int(q.free.sum() + self._low.sum() + self._high.sum())
        floor = _START * size
        self.x = np.where(q.free, np.maximum(x, floor), 0.0)
        self.z = np.where(q.free, floor * self._f, 0.0)
        values = self.x @ q.coefficients.T
        self.low_slack = np.where(self._low, np.maximum(values - q.least, floor), 1.0)
        self.high_slack = np.where(self._high, np.maximum(q.most - values, floor), 1.0)
        self.low = np.where(self._low, floor * self._f, 0.0)
        self.high = np.where(self._high, floor * self._f, 0.0)
        self.equal = np.zeros_like(q.least)
        self.coupling = np.zeros(x.shape[1])
        self.sums = [np.zeros_like(e.targets) for e in q.equalities]

    def point(self) -> Point:
        """Return the iterate as a candidate solution."""
        nu = self.equal + self.low - self.high
        return Point(self.x, self.coupling, tuple(self.sums), nu)

    def is_at_its_end(self) -> bool:
        """Return whether the barrier has vanished, so that iterates no longer change."""
        return self._complementarity(0.0, None) <= _END * max(1.0, float(self.x.max())) ** 2

    def advance(self) -> None:
        """Take one predictor and corrector step."""
        q = self._q
        barrier = np.where(q.free, self.z / np.where(q.free, self.x, 1.0) / self._f, 0.0)
        weights = None
        if q.coefficients.size:
            weights = (self.low / self.low_slack + self.high / self.high_slack) / self._f
            weights = np.where(self._equal, q.penalty, weights)
        elimination = Elimination(q, q.free, barrier, weights)
        mu = self._complementarity(0.0, None)
        target = [-self.x * self.z, -self.low_slack * self.low, -self.high_slack * self.high]
        step = self._direction(elimination, target)
        length = self._longest(step)
        after = self._complementarity(length, step)
        center = (after / mu) ** 3 * mu
        if length < 0.1:
            center = max(center, 0.3 * mu)
        target = [
            np.where(q.free, center - self.x * self.z - step["x"] * step["z"], 0.0),
            np.where(
                self._low, center - self.low_slack * self.low - step["low_slack"] * step["low"], 0.0
            ),
            np.where(
                self._high,
                center - self.high_slack * self.high - step["high_slack"] * step["high"],
                0.0,
            ),
        ]
        step = self._direction(elimination, target)
        length = min(1.0, (0.995 if mu > 1e-12 else 0.9) * self._longest(step))
        for name, change in step.items():
            if name == "sums":
                self.sums = [m + length * d for m, d in zip(self.sums, change, strict=True)]
            else:
                setattr(self, name, getattr(self, name) + length * change)

    def _complementarity(self, length: float, step: _Step | None) -> float:
        total = 0.0
        for a, b, used in (
            ("x", "z", self._q.free),
            ("low_slack", "low", self._low),
            ("high_slack", "high", self._high),
        ):
            left, right = getattr(self, a), getattr(self, b)
            if step is not None:
                left, right = left + length * step[a], right + length * step[b]
            total += float((left * right)[used].sum())
        return max(total, 0.0) / max(1, self._count)

    def _longest(self, step: _Step) -> float:
        length = 1.0
        for name in ("x", "z", "low_slack", "low", "high_slack", "high"):
            value, change = getattr(self, name), step[name]
            down = (change < 0) & (value > 0)
            if down.any():
                length = min(length, float((-value[down] / change[down]).min()))
        return length

    def _direction(self, elimination: Elimination, target: list[FloatArray]) -> _Step:
        """Solve the linearised conditions, with rounds of correction."""
        q, f = self._q, self._f
        x_safe = np.where(q.free, self.x, 1.0)
        R = q.coefficients
        point = self.point()
        g = np.where(q.free, gradient(q, point), 0.0)
        values = self.x @ R.T
        low_gap = np.where(self._low, values - q.least - self.low_slack, 0.0)
        high_gap = np.where(self._high, q.most - values - self.high_slack, 0.0)
        equal_gap = np.where(self._equal, np.where(self._equal, q.least, 0.0) - values, 0.0)
        gaps = [e.targets - group_sums(self.x, e.groups, e.targets.shape[1]) for e in q.equalities]
        missing = None if q.parent is None else q.parent - self.x.sum(0)
        # dz = (target - z dx) / x; dlow = (target - low dslack) / slack with dslack = R dx + gap
        low_push = (target[1] - self.low * low_gap) / self.low_slack
        high_push = (target[2] - self.high * high_gap) / self.high_slack
        base = -(g - self.z) + target[0] / x_safe
        if R.size:
            base = base + (low_push - high_push) @ R
        barrier = self.z / x_safe
        row_barrier = self.low / self.low_slack + self.high / self.high_slack
        dx = np.zeros_like(self.x)
        dc = np.zeros_like(self.coupling)
        ds = [np.zeros_like(m) for m in self.sums]
        de = np.zeros_like(self.equal)
        for _ in range(_ROUNDS):
            right = base - f * q.apply(dx) - barrier * dx + dc
            left = [
                g_ - group_sums(dx, e.groups, g_.shape[1])
                for g_, e in zip(gaps, q.equalities, strict=True)
            ]
            for e, d, gap in zip(q.equalities, ds, left, strict=True):
                right = right + (d + f * q.penalty * gap)[:, e.groups]
            equal_left = equal_gap
            if R.size:
                Rdx = dx @ R.T
                equal_left = np.where(self._equal, equal_gap - Rdx, 0.0)
                right = right - (row_barrier * Rdx) @ R + (de + f * q.penalty * equal_left) @ R
            rest = None if missing is None else missing - dx.sum(0)
            step, change = elimination.solve(np.where(q.free, right / f, 0.0), rest)
            dx, dc = dx + step, dc + change
            ds = [
                d + f * q.penalty * (gap - group_sums(step, e.groups, gap.shape[1]))
                for d, gap, e in zip(ds, left, q.equalities, strict=True)
            ]
            if R.size:
                de = np.where(self._equal, de + f * q.penalty * (equal_left - step @ R.T), 0.0)
        Rdx = dx @ R.T
        low_slack = np.where(self._low, Rdx + low_gap, 0.0)
        high_slack = np.where(self._high, -Rdx + high_gap, 0.0)
        return {
            "x": dx,
            "z": np.where(q.free, (target[0] - self.z * dx) / x_safe, 0.0),
            "low_slack": low_slack,
            "high_slack": high_slack,
            "low": np.where(self._low, (target[1] - self.low * low_slack) / self.low_slack, 0.0),
            "high": np.where(
                self._high, (target[2] - self.high * high_slack) / self.high_slack, 0.0
            ),
            "coupling": dc,
            "sums": ds,
            "equal": de,
        }
