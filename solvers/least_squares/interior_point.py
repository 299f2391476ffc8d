"""Primal-dual interior-point iterations: the robust fallback where active sets cycle.

Every cell and every bound of a row has a barrier. The linear systems are those of `elimination`
with every free cell in the support and the barriers on the diagonal.

References:
  Mehrotra, SIAM J. Optim. 2 (1992), 575-601 (predictor and corrector).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from das.arrays import FloatArray
from solvers.least_squares.blocks import Quadratic
from solvers.least_squares.certificate import Point, gradient, natural_residual
from solvers.least_squares.elimination import Elimination
from solvers.problem import group_sums

# Defaults, not measured.
_ROUNDS = 4  # rounds of correction with the same factors
# A path ends when the residual is below _NEAR and did not fall for _STALE_STEPS steps: rounding
# errors then dominate the barrier term, and active-set steps are more accurate from there.
_NEAR = 1e-5
_STALE_STEPS = 6
_START = 0.1  # smallest count at the start, over the largest
_END = 1e-26  # products of counts and duals that are zero up to rounding errors


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
