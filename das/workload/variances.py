"""Variances of the answers of a strategy, by marginal, at privacy cost 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import SchemaError
from das.workload.attribute_sets import AttributeSets
from das.workload.hdmm.marginals import MarginalsStrategy
from das.workload.hdmm.strategies import HdmmStrategy, KroneckerStrategy, UnionStrategy
from das.workload.incidence import locate_subsets
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
    """Return float64[marginals]: what `describe` says of the part for each, by precision.

    Infinite for marginals that no part answers.
    """
    marginals = strategy.workload.marginals
    out = np.full(marginals.size, np.inf)
    for part, precision in zip(strategy.parts, strategy.precisions, strict=True):
        places = [marginals.positions(members) for members in part.workload.marginals.by_order]
        out[np.concatenate(places)] = describe(part) / precision
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
    outside = np.where(strategy.sets, 1.0, sizes).prod(axis=1) * strategy.precisions
    targets = list_members(closure)
    precision = np.array(
        [outside[(strategy.sets >= target).all(axis=1)].sum() for target in targets]
    )
    with np.errstate(divide="ignore"):
        noise = np.where(targets, 1.0, sizes).prod(axis=1) / precision
    return ResidualPlan(workload, tuple(bases), closure, noise)


@dataclass(frozen=True, eq=False)
class Spread:
    """Variances of the answers of one marginal.

    Attributes:
      values: float64[k], distinct but for rounding.
      counts: float64[k], how many answers have each; a float because tables pass 2^53 answers.
    """

    values: FloatArray
    counts: FloatArray


def list_spreads(strategy: StrategyRows, *, most_values: int = 1 << 22) -> list[Spread]:
    """The variance of every answer of every marginal, at the scale of the strategy.

    Rows of an attribute that have equal variances are counted and not repeated: of plain counts a
    marginal of any size has one value.

    Args:
      strategy: Any.
      most_values: Most distinct values of all marginals together.

    Raises:
      SchemaError: There are more.
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
    for members in _members(workload.marginals):
        counts: FloatArray = np.ones(1)
        if isinstance(strategy, ResidualPlan):
            found = locate_subsets(strategy.residuals, np.array([members], np.int64))[0]
            values = strategy.noise[found].reshape((2,) * len(members))
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
    """Per attribute, what the variance of an answer takes from its row: float64[m] each."""
    attributes = strategy.workload.attributes
    if isinstance(strategy, ResidualPlan):
        pairs = zip(strategy.bases, attributes, strict=True)
        return [basis.row_variances(attribute) for basis, attribute in pairs]
    return [
        (attribute.row_forms(factor.decoder @ factor.decoder.T),)
        for factor, attribute in zip(strategy.factors, attributes, strict=True)
    ]


def _spreads_of_union(strategy: UnionStrategy, most_values: int) -> list[Spread]:
    """Every marginal by the part that answers it; infinite where none does."""
    marginals = strategy.workload.marginals
    out = [Spread(np.full(1, np.inf), np.full(1, size)) for size in strategy.workload.sizes]
    for part, precision in zip(strategy.parts, strategy.precisions, strict=True):
        places = np.concatenate([marginals.positions(m) for m in part.workload.marginals.by_order])
        spreads = list_spreads(part, most_values=most_values)
        for place, spread in zip(places.tolist(), spreads, strict=True):
            out[place] = Spread(spread.values / precision, spread.counts)
    return out


def _distinct(columns: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Distinct rows of columns float64[m] to 12 digits, float64[k, columns], and their numbers."""
    rows = np.column_stack(columns)
    scale = max(float(np.abs(rows).max()), 1e-300)
    _, first, counts = np.unique(
        np.round(rows / scale, 12), axis=0, return_index=True, return_counts=True
    )
    return rows[first], counts.astype(np.float64)


def _members(marginals: AttributeSets) -> Iterator[list[int]]:
    """The attributes of every marginal, in flat order."""
    for rows in marginals.by_order:
        yield from rows.tolist()
