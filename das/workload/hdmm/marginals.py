"""MarginalsStrategy: plain marginals with optimal shares of the privacy cost (OPT_M)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SchemaError
from das.mechanisms.mechanism import Norm
from das.workload.attribute_sets import AttributeSets
from das.workload.kronecker import Kronecker, list_members
from das.workload.one_dimensional import not_proven
from das.workload.residual.bases import build_basis, uniform_basis
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.reconstruction import (
    ResidualAnswers,
    index_answers,
    locate_answers,
    reconstruct,
)
from das.workload.workload import AttributeWorkload, Workload

MOST_ATTRIBUTES = 14
"""Most attributes of a strategy of marginals, which has 2^d shares."""

# Defaults, not measured.
_GAP = 1e-5
_MOST_ITERATIONS = 1000
_MOST_RESTARTS = 5
_LEAST_SHARE = 1e-10
_LEAST_SHARE_L1 = 1e-4  # smaller shares are dropped if the error stays within _GAP
_LEAST_VALUE = 1e-100


@dataclass(frozen=True, eq=False)
class MarginalsStrategy:
    """Plain marginals of any order, measured with independent noise.

    Attributes:
      workload: The marginals to answer.
      sets: bool[k, d], the attributes of each measured marginal.
      shares: float64[k], shares c_S of the privacy cost; the noise variance is 1 / c_S, or
        1 / c_S^2 for the L1 norm.
      error: Weighted total variance at privacy cost 1.
      bound: No strategy of this kind has a smaller error.
      norm: The norm in which the columns of all marginals have length 1.
    """

    workload: Workload
    sets: BoolArray
    shares: FloatArray
    error: float
    bound: float
    norm: Norm = Norm.L2_SQUARED

    @property
    def precisions(self) -> FloatArray:
        """Return 1 / noise variance of each of k marginals at privacy cost 1, float64[k]."""
        return self.shares if self.norm is Norm.L2_SQUARED else self.shares**2

    @property
    def products(self) -> tuple[Kronecker, ...]:
        """Return one Kronecker product per measured marginal, of 0/1 matrices."""
        sizes = [attribute.size for attribute in self.workload.attributes]
        return tuple(
            Kronecker(
                tuple(
                    np.eye(size) if is_in else np.ones((1, size))
                    for size, is_in in zip(sizes, chosen, strict=True)
                )
            )
            for chosen in self.sets
        )

    def answer(self, noisy: Sequence[FloatArray], names: Sequence[str]) -> FloatArray:
        """Return the least-squares answers of one marginal, float64[m_A] in C order.

        Args:
          noisy: The noisy answers to `products`, float64[cells of the marginal] each.
          names: Attributes of the marginal.

        Raises:
          SchemaError: The measured marginals do not determine this one.
        """
        members = [np.flatnonzero(chosen).tolist() for chosen in self.sets]
        measured = zip(members, 1 / self.precisions, noisy, strict=True)
        return reconstruct(pool_tables(self.workload.attributes, [*measured]), names).reshape(-1)


def as_residual_plan(strategy: MarginalsStrategy) -> ResidualPlan:
    """Convert weighted marginals to residual sets with the same estimates.

    The least-squares estimate in the range of P_T = kron(I - J/n if i in T else J/n) has the
    precision lambda_T = sum over S containing T of c_S prod_{i not in S} n_i; residual rows of
    T with orthonormal factors and ones have it at the noise prod_{i not in T} n_i / lambda_T.
    """
    workload = strategy.workload
    bases = []
    for attribute in workload.attributes:
        rows = uniform_basis(AttributeWorkload.identity("", attribute.size)).subtraction
        pivot = np.full(attribute.size, 1 / attribute.size)
        bases.append(build_basis(attribute, rows, pivot, rows.T))
    closure = workload.marginals.closure()
    sizes = np.array([attribute.size for attribute in workload.attributes], np.float64)
    outside = np.where(strategy.sets, 1.0, sizes).prod(axis=1) * strategy.precisions
    targets = list_members(closure)
    precision = np.array(
        [outside[(strategy.sets >= target).all(axis=1)].sum() for target in targets]
    )
    with np.errstate(divide="ignore"):
        noise = np.where(targets, 1.0, sizes).prod(axis=1) / precision
    return ResidualPlan(workload, tuple(bases), closure, noise)


def pool_tables(
    attributes: Sequence[AttributeWorkload],
    measured: Sequence[tuple[Sequence[int], float, FloatArray | IntArray]],
) -> ResidualAnswers:
    """Pool plain tables that were measured independently into residual answers.

    On the orthonormal residual rows of T, table S of variance v has white noise of variance
    v prod_{i in S, not in T} n_i, uncorrelated with that of other sets. So the mean over all S that
    contain T, weighted by precision, is the best linear unbiased estimate.

    Args:
      attributes: All attributes.
      measured: Positions of the attributes, increasing, noise variance and answers of each table.

    Returns:
      Plan and answers. The workload of the plan lists the tables with weight 1.
    """
    rows = [np.array([members], np.int64).reshape(1, -1) for members, _, _ in measured]
    sets = AttributeSets.from_rows(len(attributes), rows)
    places = [int(sets.positions(row)[0]) for row in rows]
    precisions = np.bincount(places, [1 / one[1] for one in measured]).astype(np.float64)
    workload = Workload(tuple(attributes), sets, np.ones(sets.size))
    marks = list_members(sets)
    plan = as_residual_plan(MarginalsStrategy(workload, marks, precisions, math.nan, 0.0))
    values = np.zeros(locate_answers(plan)[-1])
    for members, variance, answers in measured:
        bases = [plan.bases[i] for i in members]
        parts = [np.concatenate([b.pivot[None], b.subtraction]) for b in bases]
        index = index_answers(plan, members)
        values[index] += Kronecker(tuple(parts)).apply(answers / variance).reshape(index.shape)
    return ResidualAnswers(plan, values * np.repeat(plan.noise, np.diff(locate_answers(plan))))


def optimize_marginals(workload: Workload) -> MarginalsStrategy:
    """Choose the shares of all 2^d marginals (OPT_M).

    V = sum_S c_S M_S^T M_S has the eigenvalues lambda_T = sum over S containing T of
    c_S prod_{i not in S} n_i on the ranges of the projectors P_T, so with tau_T = tr(G P_T)

        error = tr(G V^-1) = sum_T tau_T / lambda_T,

    which is convex in c. Lambda and tau are transforms by 2 x 2 factors, d 2^d operations each.
    With g = - d error / d c, Cauchy-Schwarz gives the bound error^2 / max_S g_S for shares that
    sum to 1. The optimum over positive lambda has a closed form. If it needs a negative share,
    L-BFGS in z, c = z^2, starts from it.

    Args:
      workload: Marginals with weights, over at most 14 attributes.

    Raises:
      SchemaError: There are more attributes.
      SolverError: The relative distance to the optimum was not proven to be below 1e-5.
    """
    sets, descent = _all_marginals(workload)
    shares, error, bound = descent.run()
    kept = shares > 0
    return MarginalsStrategy(workload, sets[kept], shares[kept], error, bound)


def optimize_marginals_l1(workload: Workload) -> MarginalsStrategy:
    """Choose shares of all 2^d marginals for pure differential privacy, where precisions are c_S^2.

    The error (see `optimize_marginals`) is convex in the precisions, but the precisions of shares
    that sum to 1 are not a convex set. L-BFGS in z, c = z^2 / sum z^2, starts from six points: one
    marginal that answers everything, the optimal shares for squared norms, a mixture of both, the
    roots of these shares, and equal shares of all marginals or of those with a positive share. As
    sum c_S^2 <= 1, the bound for squared norms holds here too, but is not tight.

    Args:
      workload: Marginals with weights, over at most 14 attributes.

    Raises:
      SchemaError: There are more attributes.
      SolverError: The bound for squared norms was not proven.
    """
    sets, descent = _all_marginals(workload)
    squared, _, bound = descent.run()
    shares, error = descent.run_l1(squared)
    kept = shares > 0
    return MarginalsStrategy(workload, sets[kept], shares[kept], error, bound, Norm.L1)


def _all_marginals(workload: Workload) -> tuple[BoolArray, _MarginalsDescent]:
    """List all sets of attributes, bool[2^d, d], and build the problem of their shares."""
    attributes = workload.attributes
    if len(attributes) > MOST_ATTRIBUTES:
        raise SchemaError(
            "strategy of marginals",
            "has too many attributes",
            got=len(attributes),
            want=MOST_ATTRIBUTES,
        )
    sets = np.array(list(itertools.product((False, True), repeat=len(attributes))))
    weights = np.zeros(len(sets))
    powers = 1 << np.arange(len(attributes))[::-1]
    weights[list_members(workload.marginals) @ powers] = workload.weights
    return sets, _MarginalsDescent.build(attributes, weights)


@dataclass(frozen=True, eq=False)
class _MarginalsDescent:
    """Problem of the shares: tau float64[2^d] and the transforms between c and lambda."""

    tau: FloatArray
    to_lambda: Kronecker
    from_lambda: Kronecker
    cell_costs: FloatArray  # diagonal of P_T

    @classmethod
    def build(
        cls, attributes: Sequence[AttributeWorkload], weights: FloatArray
    ) -> _MarginalsDescent:
        parts, up, down, costs = [], [], [], []
        for each in attributes:
            n, mean = each.size, float(each.gram.sum()) / each.size
            parts.append(np.array([[n, mean], [0.0, np.trace(each.gram) - mean]]))
            up.append(np.array([[n, 1.0], [0.0, 1.0]]))
            down.append(np.array([[1 / n, -1 / n], [0.0, 1.0]]))
            costs.append(np.array([[1 / n], [1 - 1 / n]]))
        return cls(
            Kronecker(tuple(parts)).apply(weights),
            Kronecker(tuple(up)),
            Kronecker(tuple(down)),
            Kronecker(tuple(costs)).apply(np.ones(1)),
        )

    def evaluate(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """Return the error and minus its gradient."""
        used = self.tau > 0
        values = np.maximum(self.to_lambda.apply(shares)[used], _LEAST_VALUE)
        ratios = np.zeros(len(self.tau))
        ratios[used] = self.tau[used] / values
        error = float(ratios.sum())
        ratios[used] /= values
        return error, self.to_lambda.transpose().apply(ratios)

    def run(self) -> tuple[FloatArray, float, float]:
        """Return shares that sum to 1, their error and a bound on all errors."""
        from scipy.optimize import minimize

        best, best_error, bound = np.zeros(len(self.tau)), math.inf, 0.0

        def record(shares: FloatArray) -> tuple[float, FloatArray]:
            nonlocal best, best_error, bound
            error, slope = self.evaluate(shares)
            bound = max(bound, error**2 / float(slope.max()))
            if error < best_error:
                best, best_error = shares, error
            return error, slope

        def objective(root: FloatArray) -> tuple[float, FloatArray]:
            scale = float((root**2).sum())
            error, slope = record(root**2 / scale)
            return math.log(error), 2 * root * (1 - slope / error) / scale

        def stop_when_proven(_: FloatArray) -> None:
            if best_error <= bound * (1 + _GAP):
                raise StopIteration

        ideal = self.from_lambda.apply(np.sqrt(self.tau / self.cell_costs))
        record(np.maximum(ideal, 0.0) / np.maximum(ideal, 0.0).sum())
        point = np.sqrt(np.maximum(ideal, ideal.max() * 1e-4))
        for _ in range(_MOST_RESTARTS):
            if best_error <= bound * (1 + _GAP):
                break
            point = minimize(
                objective,
                point,
                jac=True,
                method="L-BFGS-B",
                callback=stop_when_proven,
                options={"maxiter": _MOST_ITERATIONS, "maxcor": 20, "ftol": 0.0, "gtol": 0.0},
            ).x
        if best_error > bound * (1 + _GAP):
            raise not_proven("strategy of marginals", best_error, bound, _GAP)
        large = np.where(best > _LEAST_SHARE, best, 0.0)
        large /= large.sum()
        error = self.evaluate(large)[0]
        if error <= bound * (1 + _GAP):
            return large, error, bound
        return best, best_error, bound

    def run_l1(self, squared: FloatArray) -> tuple[FloatArray, float]:
        """Minimize the error over shares of L1 norm 1 whose squares are the precisions.

        Return the shares, float64[2^d], and the error.

        Args:
          squared: float64[2^d], the optimal shares for precisions equal to the shares.
        """
        from scipy.optimize import minimize

        def objective(root: FloatArray) -> tuple[float, FloatArray]:
            length = float((root**2).sum())
            shares = root**2 / length
            error, slope = self.evaluate(shares**2)
            # The slope of log error in the shares, less its mean: they sum to 1.
            by_share = -2 * shares * slope / error
            return math.log(error), 2 * root * (by_share - by_share @ shares) / length

        # The smallest marginal that answers everything: a single marginal is often optimal.
        members = np.flatnonzero(self.tau > 0)
        corner = np.zeros_like(squared)
        corner[np.bitwise_or.reduce(members)] = 1.0
        spread, even = np.sqrt(squared), np.ones_like(squared)
        ends = []
        for start in (corner, corner + squared / 4, squared, spread, squared > _LEAST_SHARE, even):
            root = minimize(
                objective,
                np.sqrt(np.asarray(start, np.float64)),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _MOST_ITERATIONS, "maxcor": 20},
            ).x
            shares = root**2 / (root**2).sum()
            ends.append((self.evaluate(shares**2)[0], shares))
        error, best = min(ends, key=lambda end: end[0])
        large = np.where(best > _LEAST_SHARE_L1, best, 0.0)
        large /= large.sum()
        without = self.evaluate(large**2)[0]
        return (large, without) if without <= error * (1 + _GAP) else (best, error)
