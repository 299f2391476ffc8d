"""Noise of residual sets for bounded neighbors, which change a record.

If the worst added record costs 1, a changed record costs max(2, worst pair of cells): 2 for a move
between geounits, and more if a change within a geounit moves the residual rows further. Both are
linear in the precisions w_S of the residual sets, so the best noise minimizes

    F(w) = sum_S v_S / w_S    over    g_p' w <= 1 for the move and for every pair p of cells,

with v_S from `minimize_noise` and g_p[S] = prod_{i in S} a_i + prod_{i in S} a'_i
- 2 prod_{i in S} b_i of the triples of the pair. For multipliers lambda_p that sum to 1, the best w
of the mixed constraint has w_S = sqrt(v_S / g_S) / f, f = sum_S sqrt(v_S g_S), g = sum_p lambda_p
g_p, and f^2 bounds F from below. f is concave in lambda. Violated pairs are added one by one.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray
from das.queries.joint_sensitivity import WorstPair
from das.workload.residual.bases import AttributeBasis
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.total_variance import minimize_noise
from das.workload.workload import Workload

# Defaults, not measured.
_MOST_PAIRS = 40
_GAP = 1e-6  # relative distance of F to its bound
_MOST_ITERATIONS = 500


def change_cost(plan: ResidualPlan) -> float:
    """Return max(2, worst pair) relative to the cost of the worst added record; at most 4."""
    pair = _worst_pair(plan)
    return 4.0 if pair is None else max(2.0, float(pair.value) / plan.privacy_cost)


def minimize_noise_for_changes(
    workload: Workload, bases: tuple[AttributeBasis, ...]
) -> ResidualPlan:
    """Choose the noise of least weighted total variance where neighbors change a record.

    Args:
      workload: Marginals and weights.
      bases: One per attribute.

    Returns:
      The plan, scaled so that the worst added record costs 1. `change_cost` times its weighted
      variance is never more than with `minimize_noise`. It is within 1e-6 of the least for these
      bases, if all pairs of cells can be searched and 40 suffice.
    """
    best = plan = minimize_noise(workload, bases)
    values = plan.set_costs / plan.noise**2  # v_S up to a factor, from sqrt(costs_S / v_S)
    constraints = [2 * plan.set_costs]
    least = np.inf
    for _ in range(_MOST_PAIRS):
        pair = _worst_pair(plan)
        if pair is None:
            return best
        cost = max(2.0, float(pair.value) / plan.privacy_cost)
        error = cost * float(values @ plan.noise) * plan.privacy_cost
        if error < least:
            best, least = plan, error
        # The squared distance of the two cells in the rows of every residual set, g_p.
        first, second, both = (
            plan.residuals.product(np.array([triple[1, part] for triple in pair.triples]))
            for part in range(3)
        )
        constraints.append(np.maximum(first + second - 2 * both, 0.0))
        noise, bound = _solve(values, np.stack(constraints))
        if least <= bound * (1 + _GAP):
            break
        plan = replace(plan, noise=noise)
    return replace(best, noise=best.noise * best.privacy_cost)


def _worst_pair(plan: ResidualPlan) -> WorstPair | None:
    weights = [Fraction(weight) for weight in (1 / plan.noise).tolist()]
    return plan.gram_sum(weights).largest_pair(exact=False)


def _solve(values: FloatArray, constraints: FloatArray) -> tuple[FloatArray, float]:
    """Maximize f over multipliers; return the noise of the maximum, float64[sets], and f^2."""
    from scipy.optimize import minimize

    def mix(root: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(root**2 / (root**2).sum() @ constraints, 1e-300))

    def objective(root: FloatArray) -> tuple[float, FloatArray]:
        charges = mix(root)
        ratios = np.sqrt(values / charges)
        total = float(ratios @ charges)
        slopes = constraints @ ratios / total  # d log f^2 / d lambda
        return -2 * float(np.log(total)), -2 * root * (slopes - 1.0) / (root**2).sum()

    end = minimize(
        objective,
        np.ones(len(constraints)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _MOST_ITERATIONS, "ftol": 0.0, "gtol": 1e-10},
    )
    charges = mix(end.x)
    total = float(np.sqrt(values * charges).sum())
    return total * np.sqrt(charges / values), total**2
