r"""Privacy loss distribution of all measurements of a run, from the exact noise distributions.

The noise itself is used and not only its rho. So epsilon is below
`das.privacy.accounting.epsilon_from_rho`, and bounds on attacks are tighter
(`das.privacy.attack`). All rounding is on the safe side (`das.privacy.losses`).

**Worst pairs of neighbors.** In partition queries noise is drawn independently for
every answer. Adding one record moves one answer by 1 in every query on its path. So:

- Unbounded neighbors differ by one shift by 1 in every query of one path.
- Bounded neighbors differ by the record's old and new path. There is at most one shift by -1 per
  query of the old path and at most one by +1 per query of the new path. Where the paths are in
  different geounits, different measurements shift. Where they share a geounit, two answers shift,
  or none if the record stays in its answer.

The noise is symmetric, so each shift has the loss of a shift by 1, and answers that do not move
have none. Reflections and translations of single answers change no delta. Up to these, every pair
of neighbors has some coordinates of P_1 x ... x P_k and Q_1 x ... x Q_k, with one factor per
shift counted above. Dropping coordinates is post-processing, so its delta at every epsilon is at
most the delta of the whole product. This module computes the product of all shifts of two paths. A
pair that no record can realize only enlarges the bound.

**Planned strategies.** One record moves many answers of a planned strategy by integers
(`das.privacy.joint_shifts`). A change within a geounit may lose more than a move between geounits,
or less. So the old and the new path share their geounits down to some geolevel, and are apart below
it. The result dominates the losses for every such geolevel.

**Only children.** A path may be tiled by chains in many ways, and the old and the new path in
different ways. Losses are computed from the last geolevel up. The losses of a path from a geolevel
down dominate (`das.privacy.losses.dominating`), for each chain that begins there, the losses of the
chain plus the losses of the path below its end. Adding independent losses keeps domination. So the
result dominates the losses of every tiling, with one convolution per chain although the number of
tilings is exponential. Strata with separate allocations are treated the same way. So the sum of the
result with itself dominates the losses of every pair of tilings and strata.

**The product must not be replaced by one measurement with the sum of rho.** A single discrete
Gaussian with rho 2.56 has a few coarse values of the loss and gives epsilon 12.80 at delta 1e-10;
72 queries of the same sum have 16.48.

**The grid** has 512 points within one standard deviation of the total loss, sqrt(2 rho), up to
rounding. Splitting the losses of k shifts onto the grid adds at most k (grid)^2 / 4 to their
variance 2 rho: 0.014 % for 144 shifts.

References:
  Meiser & Mohammadi, CCS 2018, and Koskela, Jälkö & Honkela, AISTATS 2020 (loss distributions).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from das.errors import BudgetError
from das.mechanisms.mechanism import Mechanism
from das.privacy.joint_shifts import JointShifts, Noise
from das.privacy.ledger import Chain, costs_of_paths
from das.privacy.losses import Losses, compose_all, dominating, losses_of
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.rational import require_probability

_POINTS = 512  # grid points within a standard deviation of the losses; error above
_DIGITS = 20  # decimal digits of probabilities, beyond the digits of delta; default, not measured


@dataclass(frozen=True)
class UnitShifts:
    """Answers with independent noise of one distribution that all move by 1 if a record is added.

    Attributes:
      mechanism: The noise of each shifted answer.
      times: Number of answers, >= 1.

    Raises:
      BudgetError: times is not positive.
    """

    mechanism: Mechanism
    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 1:
            raise BudgetError("shifts", "must be at least one", got=self.times)

    @property
    def rho(self) -> Fraction:
        """Return the cost in zCDP, exact."""
        return self.times * self.mechanism.unit_rho

    @property
    def added(self) -> tuple[Noise, ...]:
        """Return the noise of the answers that one added record moves by 1."""
        return (self.mechanism,) * self.times

    def changes(self) -> Sequence[Noise]:
        """Return the noise of the answers that one changed record moves by 1, at most."""
        return self.added * 2


Shifts = UnitShifts | JointShifts


def unit_shift(query: Query, mechanism: Mechanism) -> UnitShifts:
    """Return the effect of one added record on a partition query: one answer moves by 1.

    Args:
      query: A partition query.
      mechanism: The noise of its answers.

    Raises:
      BudgetError: The query is no partition, so one record may move several answers, or one answer
        by more than 1.
    """
    if not query.counts_once:
        raise BudgetError(
            f"query {query.name}",
            "is not a partition of cells, so its loss distribution is not known",
            remedy="use the epsilon that follows from rho",
        )
    return UnitShifts(mechanism)


def losses_of_paths(
    n_levels: int,
    strata: Sequence[Mapping[Chain, tuple[Shifts, ...]]],
    neighbors: Neighbors,
    least_delta: Fraction,
) -> Losses:
    """Return a loss distribution that dominates all measurements, for every pair of neighbors.

    Args:
      n_levels: Number of geolevels of a path.
      strata: For each stratum, the shifts of the queries of one geounit when a record of the
        stratum is added, by chain of geolevels. Without strata there is one mapping.
      neighbors: BOUNDED counts two paths, UNBOUNDED one.
      least_delta: The smallest delta that callers will evaluate, exact, 0 < least_delta < 1.

    Returns:
      Losses that hold in both directions of each pair, since the noise is symmetric.

    Raises:
      BudgetError: Delta is a float or out of range, the chains tile no path, or noise has more
        losses than can be listed.

    >>> from das.mechanisms.registry import read_mechanism
    >>> total = UnitShifts(read_mechanism("discrete_laplace", Fraction(4)))
    >>> losses = losses_of_paths(1, [{(0, 0): (total,)}], Neighbors.BOUNDED, Fraction(1, 10**10))
    >>> 0.4999 < losses.epsilon(Fraction(1, 10**10)) < 0.502
    True
    """
    require_probability("delta", least_delta)
    largest_costs = []
    for chains in strata:
        costs = {
            chain: sum((shift.rho for shift in shifts), Fraction(0))
            for chain, shifts in chains.items()
        }
        paths = costs_of_paths(n_levels, costs) if all(chains.values()) else None
        if paths is not None:
            largest_costs.append(paths[1])
    if not strata or len(largest_costs) < len(strata):
        raise BudgetError("chains", "must tile a path, and each chain must measure a query")
    halves = 2 if neighbors is Neighbors.BOUNDED else 1
    digits = _DIGITS + len(str(math.ceil(1 / least_delta)))
    grid = _root_below(2 * halves * max(largest_costs)) / _POINTS

    @cache
    def one_shift(noise: Noise) -> Losses:
        return losses_of(noise.unit_losses(digits), grid, digits)

    def composed(several: Iterable[Noise]) -> Losses:
        times = Counter(several)  # equal noise is composed by repeated squaring
        return compose_all(one_shift(noise).repeated(n) for noise, n in times.items())

    def added(shifts: Sequence[Shifts]) -> Losses:
        return composed(noise for shift in shifts for noise in shift.added)

    def changed(shifts: Sequence[Shifts]) -> Losses:
        return composed(noise for shift in shifts for noise in shift.changes())

    alone = [_along(n_levels, chains, added) for chains in strata]
    shifts = [shift for chains in strata for own in chains.values() for shift in own]
    if halves == 1 or not any(isinstance(shift, JointShifts) for shift in shifts):
        return dominating([losses[0] for losses in alone]).repeated(halves)
    if len(strata) > 1:
        raise BudgetError(
            "strata",
            "have planned strategies, whose losses between strata are not known",
            remedy="use the epsilon that follows from rho",
        )
    return _along(n_levels, strata[0], changed, alone[0])[0]


def _along(
    n_levels: int,
    chains: Mapping[Chain, tuple[Shifts, ...]],
    losses_of_geounit: Callable[[Sequence[Shifts]], Losses],
    apart: Mapping[int, Losses] | None = None,
) -> dict[int, Losses]:
    """Return losses that dominate those of a path from a geolevel down, whatever chains tile it.

    Args:
      n_levels: Number of geolevels.
      chains: Per chain of only children, the shifts of its queries. Chains tile a path if each
        geolevel of the path is in exactly one of them.
      losses_of_geounit: Function that returns the losses in one geounit.
      apart: Losses of an old or new path from a geolevel down; None if there is one path. Two paths
        are in the same geounits down to some geolevel, at least in the root.
    """
    whole = dict[int, Losses]()
    for first in range(n_levels - 1, -1, -1):
        tiled = []
        for (top, last), shifts in chains.items():
            if top == first and (last + 1 == n_levels or last + 1 in whole):
                part = losses_of_geounit(shifts)
                tiled.append(part.compose(whole[last + 1]) if last + 1 < n_levels else part)
        if tiled and apart and first:
            tiled.append(apart[first].repeated(2))
        if tiled:
            whole[first] = dominating(tiled)
    return whole


def _root_below(value: Fraction) -> Fraction:
    """Return a fraction at most the square root of a positive fraction, and less than 1 % below.

    >>> _root_below(Fraction(2))
    Fraction(181, 128)
    """
    scale = 2 ** (8 + max(0, value.denominator.bit_length() - value.numerator.bit_length()) // 2)
    return Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)
