"""Candidate solutions with multipliers, and the certificate of their optimality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray
from solvers.least_squares.blocks import Quadratic, side_by_side
from solvers.least_squares.machine_code import kernels
from solvers.problem import Certificate, Fixed, LeastSquaresTerm, NodeProblem, group_sums


@dataclass(frozen=True, eq=False)
class Point:
    """Candidate solution of a node with C children and k cells, with Lagrange multipliers.

    Multipliers are divided by the largest d_c, the weight of single cells of child c
    (`Quadratic.unit`).

    Attributes:
      x: float64[C, k], counts of the children.
      coupling: float64[k], lambda: multipliers of the constraint that children sum to the parent.
      sums: Per equality, float64[C, m], mu: multipliers of its m sums.
      rows: float64[C, n], nu: multipliers of the n inequality rows, positive if the lower bound is
        active, negative if the upper bound is.
    """

    x: FloatArray
    coupling: FloatArray
    sums: tuple[FloatArray, ...]
    rows: FloatArray


def origin(q: Quadratic) -> Point:
    """Return the point x = 0 without multipliers."""
    return Point(
        np.zeros_like(q.linear),
        np.zeros(q.linear.shape[1]),
        tuple(np.zeros_like(e.targets) for e in q.equalities),
        np.zeros_like(q.least),
    )


def gradient(q: Quadratic, point: Point) -> FloatArray:
    """Compute the gradient of the Lagrangian, float64[C, k]."""
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
    """Compute the largest violation of the optimality conditions, over max(1, largest cell).

    Loops use it; the certificate is computed from the problem itself and contains more conditions.

    Args:
      q: The node problem in arrays.
      point: The candidate solution.
      g: float64[C, k], the gradient of the Lagrangian at the point.
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
        nu = point.rows / q.scale[:, None]
        parts += _row_residuals(x @ q.coefficients.T, q.least, q.most, nu)
    return float(np.max(parts)) / max(1.0, float(x.max(initial=0.0)))  # not a number stays one


def _row_residuals(
    values: FloatArray, least: FloatArray, most: FloatArray, nu: FloatArray
) -> list[float]:
    """Return violations of row bounds, and multipliers (in persons) of inactive rows."""
    broken = np.maximum(np.maximum(least - values, values - most), 0)
    off = (
        np.minimum(values - least, np.maximum(nu, 0)),
        np.minimum(most - values, np.maximum(-nu, 0)),
    )
    return [float(np.abs(part).max(initial=0.0)) for part in (broken, *off)]


@dataclass(frozen=True, eq=False)
class Rows:
    """Linear rows at a point; arrays float64[C, n].

    Attributes:
      values: R x.
      least: Lower bounds, -inf if none.
      most: Upper bounds, inf if none.
      multipliers: Positive at the lower bound, negative at the upper, 0 between.
    """

    values: FloatArray
    least: FloatArray
    most: FloatArray
    multipliers: FloatArray


@dataclass(frozen=True, eq=False)
class Conditions:
    """Quantities of the optimality conditions at a point with multipliers.

    Attributes:
      x: float64[C, k], negative counts included; all other fields are taken at max(x, 0).
      gradient: float64[C, k] of the Lagrangian; 0 where a count is forced to zero.
      unit: float64[C], curvature that converts a gradient to persons.
      objective: sum_c x_c' G_c x_c / 2 - b_c' x_c.
      equalities: Multipliers, and sums less targets in the same shape.
      rows: Linear rows.
      unsigned: Gradient in variables that may be negative, such as answers.
    """

    x: FloatArray
    gradient: FloatArray
    unit: FloatArray
    objective: float
    equalities: Sequence[tuple[FloatArray, FloatArray]] = ()
    rows: Rows | None = None
    unsigned: FloatArray | None = None


def judge(conditions: Conditions) -> Certificate:
    """Compute the certificate of a point: the one definition of residuals, for every solver.

    Residuals are in persons over max(1, largest count). The gap is the difference of primal and
    dual objective, over max(1, |objective|), both in units of the largest curvature. It is summed
    as x'g + multipliers'(sums - targets), which is the same number without cancellation.
    """
    x = np.maximum(conditions.x, 0)
    persons = conditions.gradient / conditions.unit[:, None]
    stationarity = float(np.max(-persons, initial=0.0))
    complementarity = float(np.max(np.minimum(x, persons), initial=0.0))
    primal = float(np.max(-conditions.x, initial=0.0))
    gap = float((x * conditions.gradient).sum())
    for multipliers, off in conditions.equalities:
        primal = max(primal, float(np.abs(off).max(initial=0.0)))
        gap += float((multipliers * off).sum())
    rows = conditions.rows
    if rows is not None and rows.values.size:
        nu = rows.multipliers
        scaled = nu / conditions.unit[:, None]
        broken, low, high = _row_residuals(rows.values, rows.least, rows.most, scaled)
        primal = max(primal, broken)
        complementarity = max(complementarity, low, high)
        limit = np.where(nu > 0, rows.least, np.where(nu < 0, rows.most, rows.values))
        gap += float((nu * (rows.values - limit)).sum())
    if conditions.unsigned is not None:
        off = np.abs(conditions.unsigned).max(initial=0.0)
        stationarity = max(stationarity, float(off / conditions.unit.max()))
    size = max(1.0, float(x.max(initial=0.0)))
    top = float(conditions.unit.max())
    gap = abs(gap) / top / max(1.0, abs(conditions.objective) / top)
    return Certificate(stationarity / size, primal / size, complementarity / size, gap)


def certify(problem: NodeProblem, fixed: Fixed, q: Quadratic, point: Point) -> Certificate:
    """Compute the certificate of a point from the problem itself.

    The gradient is summed up term by term, without the arrays of the solver.

    Args:
      problem: The node problem.
      fixed: Further given partition sums, as groups int64[k] and targets float64[C, m].
      q: The node problem in arrays.
      point: The candidate solution.
    """
    x = np.maximum(point.x, 0)
    top = float(q.unit.max())
    every = side_by_side(problem.terms, *x.shape)
    g, coarse, quadratic, linear = kernels().gradient(
        every.index, every.ends, every.answers, every.weights / top, x
    )
    sums_of, number = list(point.sums), 0
    for term, given in zip(problem.terms, q.given, strict=True):
        if not isinstance(term, LeastSquaresTerm):
            w, image = term.weights[:, None] / top, x @ term.gram
            quadratic += float((w * image * x).sum())
            linear += float((w * term.adjoint * x).sum())
            g += w * (image - term.adjoint)
            continue
        if given >= 0:  # the solver left this query out: its gradient is a multiplier
            of_term = coarse[:, every.ends[number] : every.ends[number + 1]]
            first = np.zeros(q.equalities[given].targets.shape[1], np.int64)
            first[q.equalities[given].groups] = term.groups
            sums_of[given] = sums_of[given] + of_term[:, first]
        number += 1
    point = replace(point, sums=tuple(sums_of))
    equalities = [
        (mu, group_sums(x, e.groups, e.targets.shape[1]) - e.targets)
        for e, mu in zip(q.equalities, point.sums, strict=True)
    ]
    if q.parent is not None:
        equalities.append((point.coupling, x.sum(0) - q.parent))
    # Sums implied by finer ones have no multiplier, but are checked too.
    given_sums = [(e.groups, e.targets.astype(float)) for e in problem.exact]
    for groups, targets in (*given_sums, *fixed):
        off = group_sums(x, groups, targets.shape[1]) - targets
        equalities.append((np.zeros_like(targets), off))
    return judge(
        Conditions(
            point.x,
            np.where(q.free, _with_multipliers(q, point, g), 0.0),
            q.scale,
            0.5 * quadratic - linear,
            equalities,
            Rows(x @ q.coefficients.T, q.least, q.most, point.rows),
        )
    )
