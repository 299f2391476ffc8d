r"""The privacy losses of all measurements of a run together, from the distribution of their noise.

They use the noise itself and not only its rho, so that their epsilon is below
`das.privacy.accounting.epsilon_from_rho`, and they say what an attacker can gain at most
(`das.privacy.attack`). All rounding is on the safe side (`das.privacy.losses`).

**Which pairs are worst.** Let every query be a partition, and noise be drawn independently for
every answer. Adding one record moves one answer by 1 in every query on its path. So:

- Unbounded neighbors differ by one shift by 1 in every query of one path.
- Bounded neighbors differ by the record's two paths, old and new: at most one shift by -1 per query
  of the old one and at most one by +1 per query of the new one, where the paths are apart in
  different geounits, where they are together in different answers or, if the record stays in its
  answer, not at all.

The noise is symmetric, so each shift has the loss of a shift by 1, and answers that do not move
have none. Every pair of neighbors thus has, up to reflections and translations of single answers,
which change no delta, some coordinates of P_1 x ... x P_k and Q_1 x ... x Q_k, with one factor per
shift counted above. Dropping coordinates is post-processing, so its delta at every
epsilon is at most that of the whole product; and the product of all shifts of two paths is computed
here. A pair that no record can realize only enlarges what is claimed.

**Only children.** A path may be tiled by chains in many ways, and the old and the new path in
different ones. From the last geolevel up, the losses of a path from a geolevel down are those that
dominate (`das.privacy.losses.dominating`) the losses of each chain that begins there together with
those of a path below its end. Domination is kept when independent losses are added, so these
dominate the losses of every tiling, with one convolution per chain although tilings are
exponentially many. The same of strata that are measured by allocations of their own; and so their
sum with themselves dominates those of every pair of tilings and strata.

**The trap.** The product must not be replaced by one measurement with the sum of rho. A
single discrete Gaussian with rho 2.56 has a few coarse values of the loss and gives epsilon 12.80
at delta 1e-10; 72 queries of the same sum have 16.48.

**The grid** has 512 points within one standard deviation of all losses together, sqrt(2 rho), up
to rounding. The split of the losses of k shifts onto it adds at most k (grid)^2 / 4 to their
variance 2 rho, for 144 shifts 0.014 % of it.

References:
  Meiser & Mohammadi, CCS 2018, and Koskela, Jälkö & Honkela, AISTATS 2020 (loss distributions).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from das.errors import BudgetError
from das.mechanisms.mechanism import Mechanism
from das.privacy.ledger import Chain, costs_of_paths
from das.privacy.losses import Losses, compose_all, dominating, losses_of
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.rational import require_probability

_POINTS = 512  # of the grid within a standard deviation of the losses
_DIGITS = 20  # of probabilities, beyond those of delta


@dataclass(frozen=True)
class UnitShifts:
    """Answers with independent noise of one distribution, each of which moves by 1.

    Attributes:
      mechanism: The noise.
      times: How many such answers, >= 1.

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
        """Cost in zCDP, exact."""
        return self.times * self.mechanism.unit_rho


def unit_shift(query: Query, mechanism: Mechanism) -> UnitShifts:
    """Return how far one record that a measured query counts moves it: one answer, by 1.

    Raises:
      BudgetError: The query is not a partition of the cells it counts, so one record may move
        several answers, or one answer by more.
    """
    if not query.counts_once:
        raise BudgetError(
            f"query {query.name}",
            "is not a partition of cells, so its loss distribution is not known here",
            remedy="use the epsilon that follows from rho",
        )
    return UnitShifts(mechanism)


def losses_of_paths(
    n_levels: int,
    strata: Sequence[Mapping[Chain, tuple[UnitShifts, ...]]],
    neighbors: Neighbors,
    least_delta: Fraction,
) -> Losses:
    """Return losses that dominate those of all measurements, for every pair of neighbors.

    Args:
      n_levels: Paths have the geolevels 0..n_levels - 1.
      strata: For each kind of record that is measured by an allocation of its own, what the
        queries of one geounit that is measured for these geolevels lose when such a record is
        added to it; one kind, unless there are strata.
      neighbors: BOUNDED counts two paths, UNBOUNDED one.
      least_delta: The smallest delta that will be asked for, exact, 0 < least_delta < 1.

    Returns:
      Losses in both directions of each pair, whose noise is symmetric.

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
    dearest = Fraction(0)
    for chains in strata:
        costs = {
            chain: sum((one.rho for one in lost), Fraction(0)) for chain, lost in chains.items()
        }
        paths = costs_of_paths(n_levels, costs)
        if paths is None or not all(chains.values()):
            raise BudgetError("chains", "must tile a path and each measure something")
        dearest = max(dearest, paths[1])
    if not strata:
        raise BudgetError("chains", "must tile a path and each measure something")
    halves = 2 if neighbors is Neighbors.BOUNDED else 1
    digits = _DIGITS + len(str(math.ceil(1 / least_delta)))
    grid = _root_below(2 * halves * dearest) / _POINTS

    @cache
    def one_shift(noise: Mechanism) -> Losses:
        return losses_of(noise.unit_losses(digits), grid, digits)

    half = dominating([_half(n_levels, chains, one_shift) for chains in strata])
    return half.repeated(halves)


def _half(
    n_levels: int,
    chains: Mapping[Chain, tuple[UnitShifts, ...]],
    one_shift: Callable[[Mechanism], Losses],
) -> Losses:
    """What dominates the losses of a record that is added to a path, over all its tilings."""
    whole: dict[int, Losses] = {}  # of a path from a geolevel down
    for first in range(n_levels - 1, -1, -1):
        tiled = []
        for (top, last), shifts in chains.items():
            if top == first and (last + 1 == n_levels or last + 1 in whole):
                times = Counter[Mechanism]()  # shifts by the same noise as one
                for one in shifts:
                    times[one.mechanism] += one.times
                parts = compose_all(one_shift(noise).repeated(n) for noise, n in times.items())
                tiled.append(parts.compose(whole[last + 1]) if last + 1 < n_levels else parts)
        if tiled:
            whole[first] = dominating(tiled)
    return whole[0]


def _root_below(value: Fraction) -> Fraction:
    """A fraction at most the square root of a positive one, and less than 1 % below it.

    >>> _root_below(Fraction(2))
    Fraction(181, 128)
    """
    scale = 2 ** (8 + max(0, value.denominator.bit_length() - value.numerator.bit_length()) // 2)
    return Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)
