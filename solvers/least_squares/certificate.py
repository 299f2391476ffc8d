"""Points with multipliers, and the certificate of how far one is from the optimum."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray
from solvers.least_squares import partitions
from solvers.least_squares.blocks import Equality, Fixed, Quadratic
from solvers.least_squares.partitions import Partitions
from solvers.problem import Certificate, LeastSquaresTerm, NodeProblem, group_sums


@dataclass(frozen=True, eq=False)
class Point:
    """A candidate solution; multipliers are in units of the largest d_c.

    Attributes:
      x: float64[C, k].
      coupling: float64[k], lambda.
      sums: Per equality, float64[C, m], mu.
      rows: float64[C, n], nu: positive at the lower limit of a row, negative at the upper.
    """

    x: FloatArray
    coupling: FloatArray
    sums: tuple[FloatArray, ...]
    rows: FloatArray


def origin(q: Quadratic) -> Point:
    """X = 0 without multipliers."""
    return Point(
        np.zeros_like(q.linear),
        np.zeros(q.linear.shape[1]),
        tuple(np.zeros_like(e.targets) for e in q.equalities),
        np.zeros_like(q.least),
    )


def gradient(q: Quadratic, point: Point) -> FloatArray:
    """Gradient of the Lagrangian, float64[C, k]."""
    g = q.scale[:, None] * (q.apply(point.x) - q.linear)
    return _with_multipliers(q, point, g)


def _with_multipliers(q: Quadratic, point: Point, g: FloatArray) -> FloatArray:
    if q.parent is not None:
        g = g - point.coupling
    for equality, multiplier in zip(q.equalities, point.sums, strict=True):
        g = g - multiplier[:, equality.groups]
    if q.coefficients.size:
        g = g - point.rows @ q.coefficients
    return g


def natural_residual(q: Quadratic, point: Point, g: FloatArray) -> float:
    """Largest violation of the optimality conditions, in persons over max(1, largest cell).

    For loops; the certificate says the same and more, from the problem itself.
    """
    x = np.maximum(point.x, 0)
    least = np.where(q.free, np.abs(np.minimum(x, g / q.scale[:, None])), 0.0).max(initial=0.0)
    parts = [float(least), float(np.maximum(-point.x, 0).max(initial=0.0))]
    if q.parent is not None:
        parts.append(float(np.abs(x.sum(0) - q.parent).max(initial=0.0)))
    for e in q.equalities:
        sums = group_sums(x, e.groups, e.targets.shape[1])
        parts.append(float(np.abs(sums - e.targets).max(initial=0.0)))
    if q.coefficients.size:
        parts += _row_residuals(q, x, point.rows)
    return max(parts) / max(1.0, float(x.max(initial=0.0)))


def _row_residuals(q: Quadratic, x: FloatArray, nu: FloatArray) -> list[float]:
    """Broken limits, and multipliers of rows that are not at theirs."""
    values = x @ q.coefficients.T
    broken = np.maximum(np.maximum(q.least - values, values - q.most), 0)
    nu = nu / q.scale[:, None]
    off = (
        np.minimum(values - q.least, np.maximum(nu, 0)),
        np.minimum(q.most - values, np.maximum(-nu, 0)),
    )
    return [float(np.abs(part).max(initial=0.0)) for part in (broken, *off)]


def certify(problem: NodeProblem, fixed: Fixed, q: Quadratic, point: Point) -> Certificate:
    """Measure how far a point is from the optimality conditions, from the problem itself.

    The gradient is summed up term by term, not with the arrays of the solver.
    """
    x = np.maximum(point.x, 0)
    size = max(1.0, float(x.max(initial=0.0)))
    top = float(q.unit.max())
    terms = [t for t in problem.terms if isinstance(t, LeastSquaresTerm)]
    every = Partitions.of(terms, *x.shape)
    weights = np.array([t.weights for t in terms]).reshape(len(terms), len(x)) / top
    g, coarse, quadratic, linear = partitions.gradient(every, weights, x)
    sums_of, number = list(point.sums), 0
    for term, given in zip(problem.terms, q.given, strict=True):
        if not isinstance(term, LeastSquaresTerm):
            w, pull = term.weights[:, None] / top, x @ term.gram
            quadratic += float((w * pull * x).sum())
            linear += float((w * term.pulled * x).sum())
            g += w * (pull - term.pulled)
            continue
        if given >= 0:  # the solver left this query out: its gradient is a multiplier
            own = coarse[:, every.ends[number] : every.ends[number + 1]]
            first = np.zeros(q.equalities[given].targets.shape[1], np.int64)
            first[q.equalities[given].groups] = term.groups
            sums_of[given] = sums_of[given] + own[:, first]
        number += 1
    point = replace(point, sums=tuple(sums_of))
    g = _with_multipliers(q, point, g)
    scaled = np.where(q.free, g / q.scale[:, None], 0.0)
    stationarity = float(np.maximum(-scaled, 0).max(initial=0.0))
    complementarity = float(np.minimum(x, np.maximum(scaled, 0)).max(initial=0.0))
    primal = float(np.maximum(-point.x, 0).max(initial=0.0))
    dual = -0.5 * quadratic
    if q.parent is not None:
        primal = max(primal, float(np.abs(x.sum(0) - q.parent).max(initial=0.0)))
        dual += float(point.coupling @ q.parent)
    given_sums = [Equality(e.groups, e.targets.astype(float)) for e in problem.exact]
    given_sums += [Equality(groups, targets) for groups, targets in fixed]
    for e in given_sums:
        off = group_sums(x, e.groups, e.targets.shape[1]) - e.targets
        primal = max(primal, float(np.abs(off).max(initial=0.0)))
    for e, mu in zip(q.equalities, point.sums, strict=True):
        dual += float((mu * e.targets).sum())
    if q.coefficients.size:
        broken, low, high = _row_residuals(q, x, point.rows)
        primal = max(primal, broken)
        complementarity = max(complementarity, low, high)
        limit = np.where(point.rows > 0, q.least, np.where(point.rows < 0, q.most, 0.0))
        dual += float((point.rows * limit).sum())
    objective = 0.5 * quadratic - linear
    gap = abs(objective - dual) / max(1.0, abs(objective))
    return Certificate(stationarity / size, primal / size, complementarity / size, gap)
