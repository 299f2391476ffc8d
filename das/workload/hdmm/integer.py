"""IntegerStrategy: an HDMM strategy as integer queries with exact noise variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.queries.factor import Factor
from das.queries.joint_sensitivity import joint_sensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.workload.exact_shares import as_fractions, round_up, split_exactly
from das.workload.hdmm.attribute import AttributeStrategy
from das.workload.hdmm.strategies import HdmmStrategy, KroneckerStrategy, UnionStrategy
from das.workload.residual.integer_rows import positive_triangle
from das.workload.workload import AttributeWorkload, BaseKind

DEFAULT_SCALE = 1024
"""Integer that represents an entry of 1."""

_IN_ROW_SPACE = 1e-8  # relative residual of a workload in the row space; default, not measured


@dataclass(frozen=True, eq=False)
class IntegerStrategy:
    """Integer queries Q_j, measured with independent noise of variance sigma_sq_j.

    Attributes:
      queries: One per product of the strategy, factors in the order of the workload.
      shares: Part of the joint cost per query, exact; they sum to 1.
      noise: sigma_sq per query, exact, for which all queries together cost 1.
      neighbors: The neighboring relation of the privacy cost.
      strategy: The strategy of these queries, scaled to unit columns. Its `error` is the weighted
        total variance at privacy cost 1 for unbounded neighbors. The variance of discrete Gaussian
        noise is at most sigma_sq.
      loss: Relative increase of the error by rounding.
    """

    queries: tuple[Query, ...]
    shares: tuple[Fraction, ...]
    noise: tuple[Fraction, ...]
    neighbors: Neighbors
    strategy: HdmmStrategy
    loss: float

    @property
    def privacy_cost(self) -> Fraction:
        """Return twice the zCDP rho of all queries together, exact, for the worst neighbors."""
        weights = [1 / sigma_sq for sigma_sq in self.noise]
        return joint_sensitivity(self.queries, weights).of(self.neighbors)

    def answer(self, noisy: Sequence[FloatArray | IntArray], names: Sequence[str]) -> FloatArray:
        """Return the least-squares answers of one marginal, float64[m_A] in C order.

        Args:
          noisy: The noisy answers to `queries`.
          names: Attributes of the marginal.
        """
        lengths = [
            math.sqrt(l2_sensitivity_sq(query, Neighbors.UNBOUNDED)) for query in self.queries
        ]
        scaled = [values / length for values, length in zip(noisy, lengths, strict=True)]
        return self.strategy.answer(scaled, names)


def round_to_integers(
    strategy: HdmmStrategy,
    *,
    scale: int = DEFAULT_SCALE,
    neighbors: Neighbors = Neighbors.UNBOUNDED,
) -> IntegerStrategy:
    """Round the rows of a strategy to multiples of 1 / scale and compute their exact cost.

    Every factor A becomes rint(scale A), with noise for its exact squared sensitivity and a new
    least-squares inverse. So answers stay unbiased and the privacy guarantee exact; the loss
    increases by about 1 / scale. Levels with equal columns in the workload keep equal columns.
    Marginals are integer already. Answers of a product over k attributes are about scale^k times
    the counts and must fit in 63 bits.

    Args:
      strategy: The strategy to round.
      scale: Factor of the rows before they are rounded, at least 1.
      neighbors: The neighboring relation of the budget.

    Returns:
      Queries and noise of privacy cost at most 1, and within 2^-48 of it.

    Raises:
      SchemaError: The rounded rows of an attribute do not determine its workload: the scale is too
        small, or its base matrix has dependent columns that are not equal.

    >>> from das.workload.hdmm.strategies import optimize_kronecker
    >>> from das.workload.workload import Workload
    >>> ages = Workload.k_way([AttributeWorkload.prefix("age", 3)], [1])
    >>> rounded = round_to_integers(optimize_kronecker(ages))
    >>> rounded.privacy_cost, rounded.queries[0].shape, abs(rounded.loss) < 0.01
    (Fraction(1, 1), (3,), True)
    """
    queries, rounded = integer_queries(strategy, partial(_round, scale=scale))
    shares = as_fractions(split_exactly(rounded.shares))
    # Noise for one added record, then for the worst neighbors of all queries together.
    of_added = [
        l2_sensitivity_sq(query, Neighbors.UNBOUNDED) / share
        for query, share in zip(queries, shares, strict=True)
    ]
    joint = round_up(
        joint_sensitivity(queries, [1 / sigma_sq for sigma_sq in of_added]).of(neighbors)
    )
    noise = tuple(joint * sigma_sq for sigma_sq in of_added)
    loss = rounded.error / strategy.error - 1
    return IntegerStrategy(queries, shares, noise, neighbors, rounded, loss)


def integer_queries(
    strategy: HdmmStrategy,
    round_rows: Callable[
        [AttributeWorkload, AttributeStrategy], tuple[IntArray, AttributeStrategy]
    ],
) -> tuple[tuple[Query, ...], HdmmStrategy]:
    """Round a strategy to integer queries; plain marginals are integers already.

    Args:
      strategy: A strategy of any family.
      round_rows: Function that rounds the strategy of one attribute. It returns the integer rows,
        and the strategy with these rows scaled to privacy cost 1.

    Returns:
      The integer queries, and the strategy with these queries scaled to privacy cost 1.
    """
    known: dict[tuple[str, AttributeStrategy], tuple[IntArray, AttributeStrategy]] = {}
    matrices: list[list[IntArray]] = []
    parts = []
    for part in strategy.parts if isinstance(strategy, UnionStrategy) else (strategy,):
        if not isinstance(part, KroneckerStrategy):
            matrices += [[f.astype(np.int64) for f in product.factors] for product in part.products]
            continue
        pairs = []
        for attribute, given in zip(part.workload.attributes, part.factors, strict=True):
            key = (attribute.name, given)
            if key not in known:
                known[key] = round_rows(attribute, given)
            pairs.append(known[key])
        matrices.append([integers for integers, _ in pairs])
        parts.append(replace(part, factors=tuple(scaled for _, scaled in pairs)))
    rounded: HdmmStrategy = parts[0] if parts else strategy
    if isinstance(strategy, UnionStrategy):
        rounded = replace(strategy, parts=tuple(parts))
    names = [attribute.name for attribute in strategy.workload.attributes]
    queries = tuple(_query(f"strategy {j}", names, rows) for j, rows in enumerate(matrices))
    return queries, rounded


def _query(name: str, attributes: Sequence[str], matrices: Sequence[IntArray]) -> Query:
    labels = [
        tuple(f"{attribute} {row}" for row in range(len(matrix)))
        for attribute, matrix in zip(attributes, matrices, strict=True)
    ]
    return Query(name, tuple(map(Factor, matrices, labels)))


def _round(
    attribute: AttributeWorkload, given: AttributeStrategy, scale: int
) -> tuple[IntArray, AttributeStrategy]:
    """Round the rows of the strategy of one attribute to integers.

    If there are at most as many rows as distinct columns, a triangle with the same Gram matrix
    replaces them. The rows are multiplied by `scale` and rounded. Rows of zeros are dropped, and
    the greatest common divisor of all entries is divided out.

    Returns:
      The integer rows; and the strategy of these rows divided by their largest column L2 norm, so
      that it has privacy cost 1.

    Raises:
      SchemaError: The rounded rows do not determine the workload of the attribute.
    """
    if len(given.rows) == 1 and (given.rows == 1).all():
        return np.ones((1, attribute.size), np.int64), given
    first = group = np.arange(attribute.size)
    if attribute.kind is BaseKind.GIVEN:
        _, first, group = np.unique(
            attribute.matrix, axis=1, return_index=True, return_inverse=True
        )
    rows = given.rows[:, first]
    if len(rows) <= len(first):
        # A triangle has the same Gram matrix; its zeros and, for plain counts, ones are integers.
        rows = positive_triangle(rows)
    integers = np.rint(scale * rows).astype(np.int64)[:, group.ravel()]
    integers = integers[(integers != 0).any(axis=1)]
    integers //= max(1, int(np.gcd.reduce(integers, axis=None)))
    length = math.sqrt(int((integers**2).sum(axis=0).max(initial=0))) or 1.0
    scaled = integers / length
    decoder: FloatArray = np.linalg.pinv(scaled, rcond=1e-10).astype(np.float64)
    answers = attribute.apply(decoder) @ scaled
    if np.abs(answers - attribute.matrix).max() > _IN_ROW_SPACE * np.abs(answers).max(initial=1):
        raise SchemaError(
            f"workload of {attribute.name}",
            "is not determined by rounded rows",
            got=f"scale {scale}",
            remedy="choose a larger scale, or ask for single levels too",
        )
    return integers, AttributeStrategy(scaled, decoder)
