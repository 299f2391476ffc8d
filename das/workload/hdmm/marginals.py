"""MarginalsStrategy: plain marginals with the best shares of the privacy cost (OPT_M)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.errors import SchemaError, SolverError
from das.workload.kronecker import Kronecker, list_members, mark_attributes
from das.workload.workload import AttributeWorkload, Workload

MOST_ATTRIBUTES = 14
"""Most attributes of a strategy of marginals, which has 2^d shares."""

_MOST_ITERATIONS = 1000
_MOST_RESTARTS = 5
_LEAST_SHARE = 1e-10
_LEAST_VALUE = 1e-100


@dataclass(frozen=True, eq=False)
class MarginalsStrategy:
    """Plain marginals of any order, measured with independent noise.

    Attributes:
      workload: What it answers.
      sets: bool[k, d], the attributes of each measured marginal.
      shares: float64[k], shares c_S of the privacy cost; the noise variance is 1 / c_S.
      error: Weighted total variance at privacy cost 1.
      bound: No strategy of this kind has a smaller error.
    """

    workload: Workload
    sets: BoolArray
    shares: FloatArray
    error: float
    bound: float

    @property
    def products(self) -> tuple[Kronecker, ...]:
        """The measured marginals."""
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

        The part of the estimate in the range of the projector P_T = kron(I - J/n if i in T else
        J/n) is the same part of the sum of c_S M_S^T y_S over S containing T, divided by lambda_T.

        Args:
          noisy: The noisy answers to `products`, float64[cells of the marginal] each.
          names: Attributes of the marginal.

        Raises:
          SchemaError: The marginal is not determined by what is measured.
        """
        asked = mark_attributes(self.workload, names)
        sizes = np.array([attribute.size for attribute in self.workload.attributes])
        table = np.zeros(np.where(asked, sizes, 1))
        for kept in itertools.product((False, True), repeat=int(asked.sum())):
            target = asked.copy()
            target[asked] = kept
            pooled, information = np.zeros(np.where(target, sizes, 1)), 0.0
            for chosen, share, values in zip(self.sets, self.shares, noisy, strict=True):
                if (chosen >= target).all():
                    cube = values.reshape(np.where(chosen, sizes, 1))
                    others = tuple(np.flatnonzero(chosen & ~target).tolist())
                    pooled += share * cube.mean(axis=others, keepdims=True)
                    information += share * math.prod(sizes[~chosen].tolist())
            if information == 0:
                raise SchemaError(
                    f"marginal {list(names)}", "is not determined by the measured marginals"
                )
            for axis in np.flatnonzero(target).tolist():
                pooled -= pooled.mean(axis=axis, keepdims=True)
            table += pooled * (math.prod(sizes[~asked].tolist()) / information)
        everything = zip(self.workload.attributes, asked, strict=True)
        return Kronecker(
            tuple(each.matrix if is_asked else np.eye(1) for each, is_asked in everything)
        ).apply(table.ravel())


def optimize_marginals(workload: Workload, *, gap: float = 1e-5) -> MarginalsStrategy:
    """Choose the shares of all 2^d marginals (OPT_M).

    V = sum_S c_S M_S^T M_S has the eigenvalues lambda_T = sum over S containing T of
    c_S prod_{i not in S} n_i on the ranges of the projectors P_T, so with tau_T = tr(G P_T)

        error = tr(G V^-1) = sum_T tau_T / lambda_T,

    which is convex in c; lambda and tau are transforms by 2 x 2 factors, d 2^d operations each.
    With g = - d error / d c, Cauchy-Schwarz gives the bound error^2 / max_S g_S for shares that
    sum to 1. If the best lambda among all positive ones needs no negative share, it is the answer
    in closed form; otherwise L-BFGS in z, c = z^2, starts from it.

    Args:
      workload: Marginals with weights, over at most 14 attributes.
      gap: Relative distance to the optimum to be proven.

    Raises:
      SchemaError: Too many attributes.
      SolverError: The gap was not reached.
    """
    attributes = workload.attributes
    if len(attributes) > MOST_ATTRIBUTES:
        raise SchemaError(
            "strategy of marginals",
            "has too many attributes",
            got=len(attributes),
            want=MOST_ATTRIBUTES,
        )
    sets = np.array(list(itertools.product((False, True), repeat=len(attributes))))
    asked = np.zeros(len(sets))
    powers = 1 << np.arange(len(attributes))[::-1]
    asked[list_members(workload.marginals) @ powers] = workload.weights
    descent = _MarginalsDescent.build(attributes, asked)
    shares, error, bound = descent.run(gap)
    kept = shares > 0
    return MarginalsStrategy(workload, sets[kept], shares[kept], error, bound)


@dataclass(frozen=True, eq=False)
class _MarginalsDescent:
    """The problem of the shares: tau float64[2^d] and the transforms between c and lambda."""

    tau: FloatArray
    to_lambda: Kronecker
    from_lambda: Kronecker
    cell_costs: FloatArray  # diagonal of P_T

    @classmethod
    def build(cls, attributes: Sequence[AttributeWorkload], asked: FloatArray) -> _MarginalsDescent:
        parts, up, down, costs = [], [], [], []
        for each in attributes:
            n, mean = each.size, float(each.gram.sum()) / each.size
            parts.append(np.array([[n, mean], [0.0, np.trace(each.gram) - mean]]))
            up.append(np.array([[n, 1.0], [0.0, 1.0]]))
            down.append(np.array([[1 / n, -1 / n], [0.0, 1.0]]))
            costs.append(np.array([[1 / n], [1 - 1 / n]]))
        return cls(
            Kronecker(tuple(parts)).apply(asked),
            Kronecker(tuple(up)),
            Kronecker(tuple(down)),
            Kronecker(tuple(costs)).apply(np.ones(1)),
        )

    def evaluate(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """The error and minus its gradient."""
        used = self.tau > 0
        values = np.maximum(self.to_lambda.apply(shares)[used], _LEAST_VALUE)
        ratios = np.zeros(len(self.tau))
        ratios[used] = self.tau[used] / values
        error = float(ratios.sum())
        ratios[used] /= values
        return error, self.to_lambda.transpose().apply(ratios)

    def run(self, gap: float) -> tuple[FloatArray, float, float]:
        """Return shares that sum to 1, their error and a bound on all errors."""
        from scipy.optimize import minimize

        best, best_error, bound = np.zeros(len(self.tau)), math.inf, 0.0

        def look(shares: FloatArray) -> tuple[float, FloatArray]:
            nonlocal best, best_error, bound
            error, slope = self.evaluate(shares)
            bound = max(bound, error**2 / float(slope.max()))
            if error < best_error:
                best, best_error = shares, error
            return error, slope

        def objective(root: FloatArray) -> tuple[float, FloatArray]:
            scale = float((root**2).sum())
            error, slope = look(root**2 / scale)
            return math.log(error), 2 * root * (1 - slope / error) / scale

        def stop_when_proven(_: FloatArray) -> None:
            if best_error <= bound * (1 + gap):
                raise StopIteration

        ideal = self.from_lambda.apply(np.sqrt(self.tau / self.cell_costs))
        look(np.maximum(ideal, 0.0) / np.maximum(ideal, 0.0).sum())
        point = np.sqrt(np.maximum(ideal, ideal.max() * 1e-4))
        for _ in range(_MOST_RESTARTS):
            if best_error <= bound * (1 + gap):
                break
            point = minimize(
                objective,
                point,
                jac=True,
                method="L-BFGS-B",
                callback=stop_when_proven,
                options={"maxiter": _MOST_ITERATIONS, "maxcor": 20, "ftol": 0.0, "gtol": 0.0},
            ).x
        if best_error > bound * (1 + gap):
            raise SolverError(
                "strategy of marginals",
                "was not proven optimal",
                got=f"{best_error:.8g} against the bound {bound:.8g}",
                want=f"a relative gap of {gap:g}",
            )
        large = np.where(best > _LEAST_SHARE, best, 0.0)
        large /= large.sum()
        error = self.evaluate(large)[0]
        if error <= bound * (1 + gap):
            return large, error, bound
        return best, best_error, bound
