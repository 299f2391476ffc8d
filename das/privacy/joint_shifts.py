r"""What one record moves in the answers to a planned strategy, whose queries are charged jointly.

**The total** has little noise, so its exact losses count. An added record moves it by 1. A change
within a geounit does not move it.

**All other answers** move by several integers. Their noise is a randomized rounding of normal noise
(`das.mechanisms.normal`), whose losses grow with the squared distance alone. So the worst neighbors
are those with the largest joint cost of these queries. Normal noise has variance sigma_q^2 - r_q^2.
So a query costs sigma_q^2 / (sigma_q^2 - r_q^2) times as much, and the joint cost grows by at most
the sum of what this adds to the largest cost of each query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from das.mechanisms.mechanism import Mechanism
from das.mechanisms.normal import NormalShift, normal_variance
from das.queries.joint_sensitivity import JointSensitivity, joint_sensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq

Noise = Mechanism | NormalShift

_SLACK = Fraction(1, 10**5)  # epsilon grows by up to 4 times as much per geounit of a path


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
        """Return the cost of one added record in zCDP, or somewhat more."""
        return sum((noise.unit_rho for noise in self.added), Fraction(0))

    @cached_property
    def added(self) -> tuple[Noise, ...]:
        """Return noise whose unit shifts lose at least as much privacy as one added record."""
        pairs = zip(self.queries, self.noise, strict=True)
        totals = (noise for query, noise in pairs if not query.kept)
        return (*totals, *self._normal(Neighbors.UNBOUNDED))

    def changes(self) -> Sequence[Noise]:
        """Return noise whose unit shifts bound every change within the geounit."""
        return self._normal(Neighbors.BOUNDED)

    def _normal(self, neighbors: Neighbors) -> tuple[NormalShift, ...]:
        pairs = zip(self.queries, self.noise, strict=True)
        others = [(query, noise) for query, noise in pairs if query.kept]
        if not others:
            return ()
        rhos = [noise.unit_rho for _, noise in others]
        whole = sum(rhos)
        joint = _joint(tuple(query for query, _ in others), tuple(rho / whole for rho in rhos))
        cost = whole * (joint.column if neighbors is Neighbors.UNBOUNDED else joint.pair)
        for query, noise in others:
            normal = normal_variance(noise, _SLACK / len(others) / query.size)
            more = noise.continuous_variance / normal - 1
            cost += more * noise.unit_rho * l2_sensitivity_sq(query, neighbors)
        return (NormalShift(cost, _SLACK),)


@lru_cache(maxsize=64)  # chains with equal queries and other budgets have the same weights
def _joint(queries: tuple[Query, ...], weights: tuple[Fraction, ...]) -> JointSensitivity:
    return joint_sensitivity(queries, weights)
