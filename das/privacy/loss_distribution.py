r"""Epsilon of all measurements together from their privacy loss distribution, in floating point.

For two output distributions P and Q the loss is ln P(o)/Q(o), o drawn from P. How it is distributed
determines, for every epsilon, the smallest delta of the pair; over independent measurements losses
add, so their distributions convolve. This uses the noise itself and not only its rho, so it is
tighter than `das.privacy.accounting.epsilon_from_rho`. But it is computed in floats by an optional
library and not certified: report it beside the certified epsilon, never in its place.

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
here. The old and the new path may be tiled by different chains of only children, hence the maximum
over all pairs of half-paths. A pair that no record can realize only enlarges the maximum.

**The trap.** The product must not be replaced by one measurement with the sum of rho. A
single discrete Gaussian with rho 2.56 has a few coarse values of the loss and gives epsilon 12.80
at delta 1e-10; 72 queries of the same sum have 16.48.

**Errors.** All systematic ones go up: each loss distribution is replaced by one that dominates it
on a grid, truncated mass counts as an infinite loss, parameters are rounded to less noise, and
epsilon is the upper end of an interval in which delta(epsilon) crosses delta - 1e-13. What is set
aside pays for rounding, which enters delta(epsilon) in three ways:

- The dominating distribution is made from its values delta_i on the grid, each off by some e.
  Differences over a grid of 1e-3 turn e into errors of 1e3 e of single probabilities, but these add
  up to an error e of delta again: the distribution made has the delta_i it was made from, and
  negative probabilities are cut to 0, which only adds. Composed with a distribution Q, delta is the
  mean of delta(epsilon - loss) over Q, so its error is at most e times the mass of Q, and k
  distributions have at most the sum of their e.
- A convolution of n points by the fast Fourier transform is off by about u log2(n) |p| |q| in the
  root of the sum of squares (Higham, Theorem 24.2; u = 1.1e-16, |.| Euclidean norms, below 0.1 for
  distributions of many points), so by the square root of n times that in a sum over all points:
  1e-15 for n = 1e5 and norms of 0.1.
- The sum that gives delta(epsilon) has positive terms, so its relative error is below n u.

Altogether 1.3e-15 was the most in comparisons with exact sums; hence 1e-13, and hence delta must be
at least 1e-12. The inverse of the library is not used: it walks the grid by adding its step again
and again, and after 57,807 steps its epsilon was 2.5e-12 too small, more than was set aside.

References:
  Meiser & Mohammadi, CCS 2018, and Koskela, Jälkö & Honkela, AISTATS 2020 (loss distributions);
  Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, PoPETs 2022, arXiv:2207.04380 (dominating grid).
  Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002 (rounding of transforms).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement
from types import ModuleType

from das.errors import BudgetError, RuntimeSetupError
from das.mechanisms.mechanism import LossDistribution, Mechanism
from das.queries.query import Query
from das.queries.sensitivity import Neighbors

_LEAST_DELTA = Fraction(1, 10**12)
_ROUNDING = 1e-13  # probability set aside for the rounding of convolutions
_TAIL = 1e-16  # probability each convolution may move to infinite loss
_NARROW = 1e-13  # relative width of the interval in which epsilon is enclosed; its end is reported
_GRID = 1e-3  # in nats, where rho is 1 or more; see docs/accounting.md for the choice


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


Chain = tuple[UnitShifts, ...]  # the queries of one measured geounit
HalfPath = tuple[Chain, ...]  # the chains that tile one root-to-leaf path


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


def epsilon_from_losses(
    half_paths: Collection[HalfPath], delta: Fraction, neighbors: Neighbors
) -> float:
    """Return epsilon at delta of all measurements, for every pair of neighbors.

    Args:
      half_paths: Every way a root-to-leaf path may be tiled by chains of only children, and the
        unit shifts in the queries of each chain when one record is added to the path.
      delta: Exact, 10^-12 <= delta < 1.
      neighbors: BOUNDED takes the worst pair of half-paths, UNBOUNDED the worst one.

    Returns:
      Epsilon in nats: an upper bound but for floating point, see the module.

    Raises:
      BudgetError: delta is a float or out of range, or nothing is measured.
      RuntimeSetupError: The library dp-accounting is missing.

    >>> from das.mechanisms.registry import read_mechanism
    >>> total = UnitShifts(read_mechanism("discrete_laplace", Fraction(4)))
    >>> epsilon = epsilon_from_losses([((total,),)], Fraction(1, 10**10), Neighbors.BOUNDED)
    >>> 0.5 <= epsilon < 0.501
    True
    """
    if not isinstance(delta, Fraction) or not _LEAST_DELTA <= delta < 1:
        raise BudgetError(
            "delta", "must be an exact fraction of at least 10^-12 and below 1", got=repr(delta)
        )
    if not half_paths or not all(path and all(path) for path in half_paths):
        raise BudgetError("half-paths", "must hold chains that measure something")
    least_delta = float(delta) - _ROUNDING
    costs = [sum(shifts.rho for chain in path for shifts in chain) for path in half_paths]
    builder = _Builder(_library(), _GRID * min(1.0, math.sqrt(max(costs))))
    halves = [builder.path(path) for path in dict.fromkeys(half_paths)]
    wholes: Iterable[LossDistribution] = halves
    if neighbors is Neighbors.BOUNDED:
        pairs = combinations_with_replacement(halves, 2)
        wholes = (one.compose(other, _TAIL) for one, other in pairs)
    worst = 0.0
    for whole in wholes:
        if whole.get_delta_for_epsilon(worst) > least_delta:
            worst = _enclose(whole, worst, least_delta)
    return worst


def _enclose(losses: LossDistribution, low: float, delta: float) -> float:
    """An epsilon whose delta is at most this, and hardly above the least one.

    Args:
      losses: The whole distribution.
      low: An epsilon whose delta is larger.
      delta: Above 0.

    Returns:
      Epsilon in nats, infinite if infinite losses alone are likelier than delta.
    """
    if losses.get_delta_for_epsilon(math.inf) > delta:
        return math.inf
    high = 2 * low + 1.0
    while losses.get_delta_for_epsilon(high) > delta:
        low, high = high, 2 * high
    while high - low > _NARROW * high:
        middle = (low + high) / 2
        if losses.get_delta_for_epsilon(middle) > delta:
            low = middle
        else:
            high = middle
    return high


class _Builder:
    """Composes loss distributions; keeps those of shifts, chains and beginnings of paths."""

    def __init__(self, library: ModuleType, grid: float) -> None:
        self._library = library
        self._grid = grid
        self._known: dict[tuple[object, ...], LossDistribution] = {}

    def path(self, path: HalfPath) -> LossDistribution:
        """The distribution of one half-path, from the longest beginning known."""
        key = ("path", *path)
        if key not in self._known:
            last = self._chain(path[-1])
            self._known[key] = self.path(path[:-1]).compose(last, _TAIL) if path[1:] else last
        return self._known[key]

    def _chain(self, chain: Chain) -> LossDistribution:
        key = ("chain", *chain)
        if key not in self._known:
            times: dict[Mechanism, int] = {}
            for one in chain:
                times[one.mechanism] = times.get(one.mechanism, 0) + one.times
            parts = [self._shift(noise).self_compose(n, _TAIL) for noise, n in times.items()]
            self._known[key] = reduce(lambda one, other: one.compose(other, _TAIL), parts)
        return self._known[key]

    def _shift(self, mechanism: Mechanism) -> LossDistribution:
        key = ("shift", mechanism)
        if key not in self._known:
            self._known[key] = mechanism.unit_losses(self._library, self._grid)
        return self._known[key]


def _library() -> ModuleType:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise RuntimeSetupError(
            "privacy loss distribution",
            "the library dp-accounting is missing",
            remedy="pip install dp-accounting, or install this project with the extra accounting",
        ) from error
    module: ModuleType = privacy_loss_distribution
    return module
