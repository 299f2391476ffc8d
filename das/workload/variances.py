"""Variances of the answers of a strategy, per marginal, at privacy cost 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import SchemaError
from das.workload.hdmm.attribute import AttributeStrategy
from das.workload.hdmm.marginals import MarginalsStrategy, as_residual_plan
from das.workload.hdmm.strategies import HdmmStrategy, KroneckerStrategy, UnionStrategy
from das.workload.incidence import locate_subsets
from das.workload.residual.answer_rows import AnswerRows
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload

StrategyRows = ResidualPlan | HdmmStrategy


def list_average_variances(strategy: StrategyRows) -> FloatArray:
    """Return the mean variance of the answers of every marginal at privacy cost 1.

    Returns:
      float64[marginals]; infinite for marginals without an answer, such as those of weight 0.
    """
    return _by_marginal(
        strategy, ResidualPlan.average_variances, lambda a, f: f.variance(a.gram) / a.n_rows
    )


def list_largest_variances(strategy: StrategyRows) -> FloatArray:
    """Return the largest variance of the answers of every marginal at privacy cost 1."""
    return _by_marginal(
        strategy,
        lambda plan: AnswerRows.build(plan.workload, plan.bases).find_largest(plan.noise)[0],
        lambda a, f: float(a.row_forms(f.decoder @ f.decoder.T).max()),
    )


def _by_marginal(
    strategy: StrategyRows,
    of_plan: Callable[[ResidualPlan], FloatArray],
    of_factor: Callable[[AttributeWorkload, AttributeStrategy], float],
) -> FloatArray:
    """Return one variance per marginal for a strategy of any family, float64[marginals].

    Args:
      strategy: A strategy of any family.
      of_plan: The variances of a residual plan.
      of_factor: The variance of one attribute of a Kronecker product.
    """
    if isinstance(strategy, MarginalsStrategy):
        strategy = as_residual_plan(strategy)
    if isinstance(strategy, ResidualPlan):
        return of_plan(strategy)
    marginals = strategy.workload.marginals
    if isinstance(strategy, UnionStrategy):
        out = np.full(marginals.size, np.inf)  # for marginals that no part answers
        for part, precision in zip(strategy.parts, strategy.precisions, strict=True):
            variances = _by_marginal(part, of_plan, of_factor)
            out[marginals.locate(part.workload.marginals)] = variances / precision
        return out
    pairs = zip(strategy.workload.attributes, strategy.factors, strict=True)
    variances = np.array([of_factor(attribute, factor) for attribute, factor in pairs])
    totals = np.array([factor.total_variance for factor in strategy.factors])
    return np.asarray(marginals.product(variances / totals) * totals.prod())


@dataclass(frozen=True, eq=False)
class Spread:
    """Variances of the answers of one marginal.

    Attributes:
      values: float64[k], distinct variances, up to rounding.
      counts: float64[k], number of answers of each variance; a float as it may pass 2^53.
    """

    values: FloatArray
    counts: FloatArray


def list_spreads(strategy: StrategyRows, *, most_values: int = 1 << 22) -> list[Spread]:
    """Return the variances of all answers of every marginal, at the scale of the strategy.

    Rows of an attribute with equal variances are counted, not repeated. A marginal of plain counts
    has one value, for any size.

    Args:
      strategy: A strategy of any kind.
      most_values: Most distinct values of all marginals together.

    Raises:
      SchemaError: There are more distinct values.
    """
    if isinstance(strategy, MarginalsStrategy):
        strategy = as_residual_plan(strategy)
    if isinstance(strategy, UnionStrategy):
        return _spreads_of_union(strategy, most_values)
    workload = strategy.workload
    kinds = [_distinct(columns) for columns in _row_variances(strategy)]
    sizes = workload.marginals.product(np.array([float(len(counts)) for _, counts in kinds]))
    if sizes.sum() > most_values:
        raise SchemaError(
            "variances of answers",
            "are too many",
            got=f"{sizes.sum():.3g} distinct ones",
            want=f"at most {most_values}",
            remedy="ask for fewer or smaller tables",
        )
    rest = 1.0
    if isinstance(strategy, KroneckerStrategy):
        rest = float(np.prod([factor.total_variance for factor in strategy.factors]))
    out = []
    for members in workload.marginals.rows:
        counts: FloatArray = np.ones(1)
        if isinstance(strategy, ResidualPlan):
            subsets = locate_subsets(strategy.residuals, np.array([members], np.int64))[0]
            values = strategy.noise[subsets].reshape((2,) * len(members))
            for i in members:
                values = np.tensordot(values, kinds[i][0], axes=([0], [1]))
        else:
            values = np.full(1, rest)
            for i in members:
                ratio = kinds[i][0][:, 0] / strategy.factors[i].total_variance
                values = np.multiply.outer(values, ratio)
        for i in members:
            counts = np.multiply.outer(counts, kinds[i][1])
        out.append(Spread(values.ravel(), counts.ravel()))
    return out


def _row_variances(strategy: ResidualPlan | KroneckerStrategy) -> list[tuple[FloatArray, ...]]:
    """Return per attribute the factors of its rows in the variance of an answer, float64[m]."""
    attributes = strategy.workload.attributes
    if isinstance(strategy, ResidualPlan):
        pairs = zip(strategy.bases, attributes, strict=True)
        return [basis.row_variances(attribute) for basis, attribute in pairs]
    return [
        (attribute.row_forms(factor.decoder @ factor.decoder.T),)
        for factor, attribute in zip(strategy.factors, attributes, strict=True)
    ]


def _spreads_of_union(strategy: UnionStrategy, most_values: int) -> list[Spread]:
    """Return the variances of a union; infinite for marginals that no part answers."""
    marginals = strategy.workload.marginals
    out = [Spread(np.full(1, np.inf), np.full(1, size)) for size in strategy.workload.sizes]
    for part, precision in zip(strategy.parts, strategy.precisions, strict=True):
        indexes = marginals.locate(part.workload.marginals).tolist()
        spreads = list_spreads(part, most_values=most_values)
        for index, spread in zip(indexes, spreads, strict=True):
            out[index] = Spread(spread.values / precision, spread.counts)
    return out


def _distinct(columns: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Round rows of columns float64[m] to 12 digits; return the distinct ones and their counts."""
    rows = np.column_stack(columns)
    scale = max(float(np.abs(rows).max()), 1e-300)
    _, first, counts = np.unique(
        np.round(rows / scale, 12), axis=0, return_index=True, return_counts=True
    )
    return rows[first], counts.astype(np.float64)
