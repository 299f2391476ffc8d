r"""What one record moves in the answers to a planned strategy, whose queries are charged jointly.

**Queries of one answer**, such as the total and the contrast of two levels, have entries 1 and -1.
An added record moves the answer by 1. A change within a geounit moves it by 2 or not at all, which
depends only on the attributes of two levels that change. Such answers have little noise, so their
exact losses count.

**All other answers** of a strategy move by many integers. Their noise is a randomized rounding of
normal noise (`das.mechanisms.normal`), whose losses grow with the squared distance alone. So the
worst neighbors are those with the largest joint cost of these queries, for each combination of
two-level attributes that change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from das.mechanisms.mechanism import Mechanism
from das.mechanisms.normal import NormalShift, StepShift, normal_variance
from das.queries.factor import FactorKind
from das.queries.joint_sensitivity import joint_sensitivity, pair_costs
from das.queries.query import Query

Noise = Mechanism | StepShift | NormalShift

_SLACK = Fraction(1, 10**6)  # epsilon grows by up to 4 times as much per geounit of a path
_MOST_AXES = 6  # two-level attributes, whose 64 combinations are searched; default, not measured


@dataclass(frozen=True)
class JointShifts:
    """Answers to the queries of a planned strategy in one geounit.

    Attributes:
      queries: The queries, charged jointly.
      noise: The noise of each query.
    """

    queries: tuple[Query, ...]
    noise: tuple[Mechanism, ...]

    @property
    def rho(self) -> Fraction:
        """Return an upper bound on half the cost of a change in zCDP, for the scale of losses."""
        costs = _costs(self.queries, self._weights)
        singles = sum((noise.unit_rho for noise in self._singles.values()), Fraction(0))
        return singles + self._scale * max(costs.column, *(pair / 2 for _, pair in costs.pairs))

    @cached_property
    def added(self) -> tuple[Noise, ...]:
        """Return noise whose unit shifts lose at least as much privacy as one added record."""
        return (*self._singles.values(), *self._normal(_costs(self.queries, self._weights).column))

    def changes(self) -> Iterator[tuple[Noise, ...]]:
        """Yield noise whose unit shifts together bound every change within the geounit."""
        for differ, cost in _costs(self.queries, self._weights).pairs:
            moved = (
                StepShift(noise, 2)
                for query, noise in self._singles.items()
                if sum(axis in query.kept for axis in differ) % 2
            )
            yield *moved, *self._normal(cost)

    @property
    def _scale(self) -> Fraction:
        return sum((noise.unit_rho for noise in self.noise), Fraction(0))

    @property
    def _weights(self) -> tuple[Fraction, ...]:
        return tuple(noise.unit_rho / self._scale for noise in self.noise)

    @cached_property
    def _singles(self) -> dict[Query, Mechanism]:
        noise = dict(zip(self.queries, self.noise, strict=True))
        return {query: noise[query] for query in _singles(self.queries)}

    def _normal(self, cost: Fraction) -> tuple[NormalShift, ...]:
        pairs = zip(self.queries, self.noise, strict=True)
        others = [(query, noise) for query, noise in pairs if query not in self._singles]
        if not others or cost == 0:
            return ()
        slack = _SLACK / sum(query.size for query, _ in others)
        more = max(noise.continuous_variance / normal_variance(noise, slack) for _, noise in others)
        return (NormalShift(cost * self._scale * more, _SLACK),)


@dataclass(frozen=True)
class _Costs:
    """Joint costs of the queries with several answers.

    Attributes:
      column: One added record.
      pairs: One change within a geounit, by the two-level attributes that change.
    """

    column: Fraction
    pairs: tuple[tuple[tuple[int, ...], Fraction], ...]


@lru_cache(maxsize=64)  # chains with equal queries and other budgets have the same weights
def _costs(queries: tuple[Query, ...], weights: tuple[Fraction, ...]) -> _Costs:
    singles = _singles(queries)
    paired = [*zip(queries, weights, strict=True)]
    others = [(query, weight) for query, weight in paired if query not in singles]
    axes = sorted({axis for query in singles for axis in query.kept})
    combinations = [
        tuple(itertools.compress(axes, chosen))
        for chosen in itertools.product((False, True), repeat=len(axes))
    ]
    if not others:
        return _Costs(Fraction(0), tuple((differ, Fraction(0)) for differ in combinations[1:]))
    others_queries, numbers = zip(*others, strict=True)
    pairs = pair_costs(others_queries, numbers, axes, combinations)
    column = joint_sensitivity(others_queries, numbers).column
    return _Costs(column, tuple(zip(combinations, pairs, strict=True)))


def _singles(queries: Sequence[Query]) -> list[Query]:
    """Return the queries of one answer; without contrasts if too many attributes have two levels.

    A total is a row of ones. A contrast of two levels is a row of 1 and -1.
    """
    found = [
        query
        for query in queries
        if query.size == 1
        and all(
            factor.kind is FactorKind.TOTAL or np.array_equal(factor.matrix, [[1, -1]])
            for factor in query.factors
        )
    ]
    axes = {axis for query in found for axis in query.kept}
    return found if len(axes) <= _MOST_AXES else [query for query in found if not query.kept]
