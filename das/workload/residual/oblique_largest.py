"""Oblique bases for the largest variance: pivots, strategies and row weights jointly.

At the optimum the largest variance equals a weighted sum of variances. The search is over weights
in product form: y_A per marginal and a distribution lambda_i over the rows of each W_i. For fixed
weights this is the total-variance problem with Grams W_i^T diag(lambda_i) W_i, whose pairs
(s_i, rho_i) lie on the frontier V(c_i). The weights then move toward the largest variances. The
noise for the final bases is solved exactly.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray, IntArray
from das.workload.incidence import Incidence
from das.workload.one_dimensional import count_rank, minimize_total_variance
from das.workload.residual.bases import (
    AttributeBasis,
    orthogonal_basis,
    split_off_total,
)
from das.workload.residual.convex_loss import CertifiedPlan, check_limits, minimize_largest_variance
from das.workload.workload import AttributeWorkload, BaseKind, Workload

# Defaults, not measured.
_ROUNDS = 150
_ROUND_GAP = 1e-3
_LAST_GAP = 1e-6
_LEAST_WEIGHT = 1e-12


def plan_oblique_largest(
    workload: Workload,
    *,
    limits: FloatArray | None = None,
    gap: float = 1e-4,
) -> CertifiedPlan:
    """Plan oblique residual sets for the largest variance of all answers of all marginals.

    Args:
      workload: The marginals; their weights are not used.
      limits: float64[marginals], positive; the loss is the largest variance / limit. Default 1.
      gap: Relative distance to the optimum for the chosen bases, to be proven. The bases are a
        stationary point without a proof.

    Returns:
      The plan, its largest (relative) variance, and the bound for its bases.

    Raises:
      SchemaError: The limits do not fit.
      SolverError: The gap was not reached.
    """
    scale = 1 / check_limits(workload, limits)
    bases = _choose_bases(workload, scale)
    return minimize_largest_variance(workload, bases, limits=limits, gap=gap)


@dataclass(frozen=True, eq=False)
class _Attribute:
    """One attribute, or several with the same matrix in a symmetric workload."""

    workload: AttributeWorkload
    positions: IntArray
    rank: int
    row_weights: FloatArray
    total_weight: float
    cell_weights: FloatArray | None
    basis: AttributeBasis
    pivot_rows: FloatArray
    residual_rows: FloatArray


def _choose_bases(workload: Workload, scale: FloatArray) -> tuple[AttributeBasis, ...]:
    incidence = Incidence(workload.marginals, workload.marginals.closure())
    attributes = [_start(*group) for group in _gather_equal(workload, scale)]
    weights = scale / scale.sum()
    plain = workload.is_plain
    for _ in range(0 if plain else _ROUNDS):
        state = _weigh(incidence, attributes, weights, scale)
        attributes = [_move(attribute, state) for attribute in attributes]
        weights = np.maximum(weights * state.variances / state.value, _LEAST_WEIGHT)
        weights /= weights.sum()
    out: dict[int, AttributeBasis] = {}
    for attribute in attributes:
        basis = _solve(attribute, _LAST_GAP).basis
        out |= dict.fromkeys(attribute.positions.tolist(), basis)
    return tuple(out[position] for position in range(len(out)))


def _gather_equal(
    workload: Workload, scale: FloatArray
) -> list[tuple[AttributeWorkload, IntArray]]:
    """Group attributes of equal matrix if the workload is symmetric in them."""
    marginals = workload.marginals
    symmetric = bool((scale == scale[0]).all()) and all(
        marginals.is_complete(order) for order, sets in enumerate(marginals.by_order) if len(sets)
    )
    groups: dict[Hashable, list[int]] = {}
    for position, attribute in enumerate(workload.attributes):
        key: Hashable = attribute.signature if symmetric else position
        groups.setdefault(key, []).append(position)
    return [(workload.attributes[rows[0]], np.array(rows, np.int64)) for rows in groups.values()]


def _start(workload: AttributeWorkload, positions: IntArray) -> _Attribute:
    basis = orthogonal_basis(workload, gap=_ROUND_GAP)
    weights = np.full(workload.n_rows, 1 / workload.n_rows)
    rank = count_rank(workload.gram)
    rows = basis.row_variances(workload)
    start = _Attribute(workload, positions, rank, weights, 1.0, None, basis, *rows)
    return _solve(start, _ROUND_GAP)


def _solve(attribute: _Attribute, gap: float) -> _Attribute:
    """Find the strategy at the current weights; plain counts keep the uniform pivot by symmetry."""
    workload = attribute.workload
    if workload.kind is BaseKind.IDENTITY:
        return attribute
    strategy = minimize_total_variance(
        workload.weighted_gram(attribute.row_weights) + attribute.total_weight,
        rank=attribute.rank,
        gap=gap,
        start=attribute.cell_weights,
    )
    basis = split_off_total(workload, strategy.factor, strategy.inverse)
    pivot_rows, residual_rows = basis.row_variances(workload)
    return replace(
        attribute,
        cell_weights=strategy.cell_weights,
        basis=basis,
        pivot_rows=pivot_rows,
        residual_rows=residual_rows,
    )


@dataclass(frozen=True, eq=False)
class _State:
    """Weighted problem of one round.

    Attributes:
      value: Weighted sum of variances at the best noise, relative to the limits.
      variances: float64[marginals], relative variance of each marginal, averaged by row weights.
      outside: float64[d], part of `value` from residual sets without the attribute.
      inside: float64[d], part of `value` from residual sets with the attribute.
    """

    value: float
    variances: FloatArray
    outside: FloatArray
    inside: FloatArray


def _weigh(
    incidence: Incidence, attributes: list[_Attribute], weights: FloatArray, scale: FloatArray
) -> _State:
    n_attributes = incidence.marginals.n_attributes
    pairs, cell_costs = np.zeros((n_attributes, 2)), np.zeros(n_attributes)
    for attribute in attributes:
        pairs[attribute.positions] = (
            attribute.row_weights @ attribute.pivot_rows,
            attribute.row_weights @ attribute.residual_rows,
        )
        cell_costs[attribute.positions] = attribute.basis.cell_cost
    values = incidence.values(pairs[:, 0], pairs[:, 1])
    costs = incidence.residuals.product(cell_costs)
    adjoint = np.zeros(len(costs))
    for order, (columns, products) in enumerate(zip(incidence.columns, values, strict=True)):
        factor = (weights * scale)[incidence.marginals.part(order)][:, None]
        adjoint += np.bincount(columns.ravel(), (products * factor).ravel(), minlength=len(costs))
    height = float(np.sqrt(costs * adjoint).sum())
    noise = height * np.sqrt(costs / adjoint)
    variances = np.zeros(len(weights))
    outside, inside = np.zeros(n_attributes), np.zeros(n_attributes)
    for order, (columns, products) in enumerate(zip(incidence.columns, values, strict=True)):
        part = incidence.marginals.part(order)
        members = incidence.marginals.by_order[order]
        terms = products * noise[columns] * scale[part][:, None]
        variances[part] = terms.sum(axis=1)
        weighted = terms * weights[part][:, None]
        for column in range(order):
            shape = (len(members), 1 << column, 2, 1 << (order - 1 - column))
            halves = weighted.reshape(shape).sum(axis=(1, 3))
            outside += np.bincount(members[:, column], halves[:, 0], minlength=n_attributes)
            inside += np.bincount(members[:, column], halves[:, 1], minlength=n_attributes)
    return _State(height**2, variances, outside, inside)


def _move(attribute: _Attribute, state: _State) -> _Attribute:
    """Move row weights toward large variances and c_i toward stationarity; solve for V again."""
    outside = state.outside[attribute.positions].sum()
    inside = state.inside[attribute.positions].sum()
    if attribute.workload.kind is BaseKind.IDENTITY or outside + inside == 0:
        return attribute
    rest = len(attribute.positions) * state.value - outside - inside
    pivot = attribute.row_weights @ attribute.pivot_rows
    residual = attribute.row_weights @ attribute.residual_rows
    by_row = (
        attribute.pivot_rows * (outside / pivot)
        + attribute.residual_rows * (inside / residual)
        + rest
    )
    row_weights = attribute.row_weights * by_row
    row_weights = np.maximum(row_weights / row_weights.sum(), _LEAST_WEIGHT)
    # rho F_rho = inside and s F_s = outside, so rho (F_rho / F_s)^2 = (inside s / outside)^2 / rho.
    product = residual * attribute.basis.cell_cost
    stationary = max(0.0, (inside * pivot / outside) ** 2 / product - pivot)
    moved = replace(
        attribute,
        row_weights=row_weights / row_weights.sum(),
        total_weight=(attribute.total_weight + stationary) / 2,
    )
    return _solve(moved, _ROUND_GAP)
