"""Variances of the answers of a strategy, by marginal, at privacy cost 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from das.arrays import FloatArray
from das.workload.hdmm.marginals import MarginalsStrategy
from das.workload.hdmm.strategies import HdmmStrategy, KroneckerStrategy, UnionStrategy
from das.workload.kronecker import list_members
from das.workload.residual.answer_rows import AnswerRows
from das.workload.residual.bases import build_basis, uniform_basis
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload

StrategyRows = ResidualPlan | HdmmStrategy


def list_average_variances(strategy: StrategyRows) -> FloatArray:
    """Return the mean variance of the answers of every marginal at privacy cost 1.

    Returns:
      float64[marginals]; infinite where a strategy has no answer, as for weights of 0.
    """
    if isinstance(strategy, MarginalsStrategy):
        strategy = as_residual_plan(strategy)
    if isinstance(strategy, ResidualPlan):
        return strategy.average_variances()
    if isinstance(strategy, UnionStrategy):
        return union_variances(strategy, list_average_variances)
    pairs = zip(strategy.workload.attributes, strategy.factors, strict=True)
    return product_variances(strategy, [each.variance(a.gram) / a.n_rows for a, each in pairs])


def list_largest_variances(strategy: StrategyRows) -> FloatArray:
    """Return the largest variance of an answer of every marginal, as `list_average_variances`."""
    if isinstance(strategy, MarginalsStrategy):
        strategy = as_residual_plan(strategy)
    if isinstance(strategy, ResidualPlan):
        rows = AnswerRows.build(strategy.workload, strategy.bases)
        return rows.find_largest(strategy.noise)[0]
    if isinstance(strategy, UnionStrategy):
        return union_variances(strategy, list_largest_variances)
    pairs = zip(strategy.workload.attributes, strategy.factors, strict=True)
    return product_variances(
        strategy,
        [float(a.row_forms(each.decoder @ each.decoder.T).max()) for a, each in pairs],
    )


def product_variances(strategy: KroneckerStrategy, variances: Sequence[float]) -> FloatArray:
    """Return prod over members of a variance times prod over the others of that of the total."""
    totals = np.array([factor.total_variance for factor in strategy.factors])
    ratios = np.array(variances) / totals
    return np.asarray(strategy.workload.marginals.product(ratios) * totals.prod())


def union_variances(
    strategy: UnionStrategy, describe: Callable[[KroneckerStrategy], FloatArray]
) -> FloatArray:
    """Return float64[marginals]: what `describe` says of the part that answers each, by its share.

    Infinite for marginals that no part answers.
    """
    marginals = strategy.workload.marginals
    out = np.full(marginals.size, np.inf)
    for part, share in zip(strategy.parts, strategy.shares, strict=True):
        places = [marginals.positions(members) for members in part.workload.marginals.by_order]
        out[np.concatenate(places)] = describe(part) / share
    return out


def as_residual_plan(strategy: MarginalsStrategy) -> ResidualPlan:
    """Residual answers with the same estimates as weighted marginals.

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
    outside = np.where(strategy.sets, 1.0, sizes).prod(axis=1) * strategy.shares
    targets = list_members(closure)
    precision = np.array(
        [outside[(strategy.sets >= target).all(axis=1)].sum() for target in targets]
    )
    with np.errstate(divide="ignore"):
        noise = np.where(targets, 1.0, sizes).prod(axis=1) / precision
    return ResidualPlan(workload, tuple(bases), closure, noise)
