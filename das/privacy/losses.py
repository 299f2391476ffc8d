r"""Privacy loss distributions of independent measurements, with all rounding on the safe side.

For two output distributions P and Q the loss is ln P(o)/Q(o), o drawn from P. For every epsilon,
the mean of (1 - e^(epsilon - loss))_+ is the smallest delta of the pair. Losses of independent
measurements add, so their distributions convolve.

A distribution is discretized on a grid, in integers: the number of units of 10^-digits of
probability at each point. It bounds the true distribution from above: delta is at least the true
delta at every epsilon. Every operation keeps this:

- **Onto the grid.** An atom of probability p at a loss between two points is split between them so
  that p and p e^-loss, its probability under Q, are unchanged. That spreads e^-loss and keeps its
  mean, and (1 - e^epsilon u)_+ is convex in u = e^-loss, also after other, independent factors of
  u. By Jensen no delta decreases, for the atom alone or in any composition.
- **Upward.** More probability at a point, or the same at a larger loss, never lowers a delta. So
  every number of units is rounded up. Probability below the kept points is moved up to the lowest
  kept point; probability above them counts as an infinite loss.
- **Convolution** is one product of two integers that hold all units as blocks of digits (Kronecker
  substitution), by the number-theoretic transform of `decimal`, which is exact. Then each sum is
  rounded up to a unit.
- **The upper envelope of several** (`dominating`): delta is piecewise linear in e^epsilon with its
  bends at the grid points. From the top down, each point gets the units that the largest delta at
  the point below it needs, rounded up. So delta is at least each of the others at all points, and
  between them. Below the lowest point delta is linear too, up to all probability at e^epsilon = 0.

No binary floating point is used, so results are the same on any processor.

References:
  Meiser & Mohammadi, CCS 2018, and Koskela, Jälkö & Honkela, AISTATS 2020 (loss distributions);
  Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, PoPETs 2022, arXiv:2207.04380 (the split onto the
  grid); Zhu, Dong & Wang, AISTATS 2022, arXiv:2106.08567 (dominating pairs compose).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    ROUND_CEILING,
    Context,
    Decimal,
    localcontext,
)
from fractions import Fraction

from das.errors import BudgetError
from das.mechanisms.mechanism import LossAtoms
from das.rational import decimal_of, float_above

_WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)  # products of integers are exact
# Decimal digits beyond those of the units. Sums over n points of numbers below 10^(digits + 2), in
# steps with a relative error of a few 10^-(digits + 16), are off by less than n^2 10^-13 units. So
# one unit more covers them for a million points.
_SPARE = 16
_MOST_POINTS = 10**6  # the bound under which _SPARE holds
_TAIL = 10**6  # less than this many units are moved at an end of a distribution; not measured


@dataclass(frozen=True, eq=False)
class Losses:
    """A loss distribution on a grid, whose delta is at least the true delta at every epsilon.

    Attributes:
      grid: Distance of two points in nats, exact.
      digits: Probabilities are integers, in units of 10^-digits.
      lowest: The first point is at lowest * grid.
      masses: Units of probability at each point, the lowest first.
      infinite: Units of probability of an infinite loss.
    """

    grid: Fraction
    digits: int
    lowest: int
    masses: tuple[int, ...]
    infinite: int

    def compose(self, other: Losses) -> Losses:
        """Return the losses of two independent measurements on the same grid."""
        masses = _convolved(self.masses, other.masses, self.digits)
        whole = sum(other.masses) + other.infinite
        infinite = self.infinite * whole + sum(self.masses) * other.infinite
        infinite = -(-infinite // 10**self.digits)
        lowest = self.lowest + other.lowest
        return _trimmed(Losses(self.grid, self.digits, lowest, tuple(masses), infinite))

    def repeated(self, times: int) -> Losses:
        """Return the losses of `times` independent measurements, times >= 1."""
        if times == 1:
            return self
        half = self.repeated(times // 2)
        whole = half.compose(half)
        return whole.compose(self) if times % 2 else whole

    def curve(self, low: int, high: int) -> list[Decimal]:
        """Return delta, in units and rounded up, at the grid points low, ..., high.

        Args:
          low: At most `lowest`.
          high: At least the last point.
        """
        end = self.lowest + len(self.masses)
        with localcontext(self._context):
            ratio = _exp(-self.grid)
            delta, weight = Decimal(self.infinite + 1), Decimal(0)
            out = [delta]
            for point in range(high, low, -1):
                if self.lowest <= point < end:
                    weight += self.masses[point - self.lowest]
                delta += weight * (1 - ratio)
                weight *= ratio
                out.append(delta)
        return out[::-1]

    def delta(self, epsilon: Fraction) -> Fraction:
        """Return the smallest delta at an epsilon, rounded up."""
        first = max(0, math.floor(epsilon / self.grid) + 1 - self.lowest)
        masses = self.masses[first:]
        with localcontext(self._context):
            weight, ratio = Decimal(0), _exp(-self.grid)
            for mass in reversed(masses):
                weight = mass + weight * ratio
            weight *= _exp(epsilon - (self.lowest + first) * self.grid)
            units = _ceiling(sum(masses) - weight) + 1 + self.infinite
        return min(Fraction(1), Fraction(units, 10**self.digits))

    def epsilon(self, delta: Fraction) -> float:
        """Return the smallest epsilon >= 0 at a delta, rounded up; infinity if there is none.

        Args:
          delta: Exact, 0 < delta < 1.
        """
        most = math.floor(delta * 10**self.digits) - self.infinite - 1
        if most < 0:
            return math.inf
        with localcontext(self._context):
            ratio = _exp(-self.grid)
            above, weight = 0, Decimal(0)  # mass from this point up, and weighted by e^-loss
            for point in range(self.lowest + len(self.masses) - 1, self.lowest - 1, -1):
                weight = self.masses[point - self.lowest] + weight * ratio
                above += self.masses[point - self.lowest]
                # One point below, delta is above - weight e^-grid.
                if above - weight * ratio > most:
                    break
            if above <= most:
                return 0.0
            epsilon = decimal_of(point * self.grid) + ((above - most) / weight).ln()
            epsilon += (1 + abs(epsilon)) * Decimal(10) ** -20
        return float_above(max(epsilon, Decimal(0)))

    @property
    def _context(self) -> Context:
        return Context(prec=self.digits + _SPARE)


def losses_of(atoms: LossAtoms, grid: Fraction, digits: int) -> Losses:
    """Discretize the losses of one answer that moves by 1.

    Args:
      atoms: Upper bounds of losses and probabilities.
      grid: Distance of two points in nats, exact.
      digits: Probabilities become integers, in units of 10^-digits.

    Raises:
      BudgetError: The losses span more than a million grid points.
    """
    units: dict[int, int] = {}
    scale = Decimal(10) ** digits
    with localcontext(Context(prec=digits + _SPARE)):
        gap = 1 - _exp(-grid)
        for loss, probability in atoms.atoms:
            below = math.floor(loss / grid)
            parts = {below: probability}
            if loss != below * grid:
                upper = probability * (1 - _exp(below * grid - loss)) / gap
                parts = {below: probability - upper, below + 1: upper}
            for point, part in parts.items():
                units[point] = units.get(point, 0) + _ceiling(part * scale) + 1
        infinite = _ceiling(atoms.beyond * scale) + 1
    low, high = min(units), max(units)
    if high - low >= _MOST_POINTS:
        raise BudgetError("losses", "span too many points", got=high - low, want=_MOST_POINTS)
    masses = tuple(units.get(point, 0) for point in range(low, high + 1))
    return _trimmed(Losses(grid, digits, low, masses, infinite))


def compose_all(parts: Iterable[Losses]) -> Losses:
    """Return the losses of independent measurements; short distributions are convolved first."""
    heap = [(len(losses.masses), order, losses) for order, losses in enumerate(parts)]
    heapq.heapify(heap)
    order = len(heap)
    while len(heap) > 1:
        both = heapq.heappop(heap)[2].compose(heapq.heappop(heap)[2])
        heapq.heappush(heap, (len(both.masses), order, both))
        order += 1
    return heap[0][2]


def dominating(several: Sequence[Losses]) -> Losses:
    """Return losses whose delta is at least each delta of the given losses, at every epsilon."""
    if len(several) == 1:
        return several[0]
    grid, digits = several[0].grid, several[0].digits
    infinite = max(losses.infinite for losses in several)
    low = min(losses.lowest for losses in several) - 1
    high = max(losses.lowest + len(losses.masses) for losses in several) - 1
    curves = (losses.curve(low, high) for losses in several)
    wanted = [max(units) for units in zip(*curves, strict=True)]
    masses = []
    with localcontext(Context(prec=digits + _SPARE)):
        ratio = _exp(-grid)
        delta, weight = Decimal(infinite), Decimal(0)
        for index in range(high - low, 0, -1):
            needed = (wanted[index - 1] - delta) / (1 - ratio) - weight
            masses.append(max(0, _ceiling(needed) + 1))
            weight += masses[-1]
            delta += weight * (1 - ratio)
            weight *= ratio
    whole = max(sum(losses.masses) + losses.infinite for losses in several)
    masses[-1] += max(0, whole - infinite - sum(masses))
    return _trimmed(Losses(grid, digits, low + 1, tuple(masses[::-1]), infinite))


def _convolved(first: Sequence[int], second: Sequence[int], digits: int) -> list[int]:
    """Return the convolution of two sequences over 10^digits, rounded up."""
    width = len(str(max(first))) + len(str(max(second))) + len(str(min(len(first), len(second))))
    width = max(width, digits + 1)
    factors = [Decimal("".join([f"{mass:0{width}d}" for mass in part])) for part in (first, second)]
    size = len(first) + len(second) - 1
    text = format(_WIDE.multiply(*factors), "f").zfill(size * width)
    kept = width - digits
    return [
        int(text[start : start + kept]) + (text[start : start + width].strip("0") != "")
        for start in range(0, size * width, width)
    ]


def _trimmed(losses: Losses) -> Losses:
    """Move a few units at the lower end up to one point, and at the upper end to infinity."""
    masses = losses.masses
    first, moved = 0, 0
    while first < len(masses) - 1 and moved + masses[first] < _TAIL:
        moved += masses[first]
        first += 1
    last, lost = len(masses), 0
    while last > first + 1 and lost + masses[last - 1] < _TAIL:
        lost += masses[last - 1]
        last -= 1
    kept = (masses[first] + moved, *masses[first + 1 : last])
    return Losses(losses.grid, losses.digits, losses.lowest + first, kept, losses.infinite + lost)


def _exp(value: Fraction) -> Decimal:
    return decimal_of(value).exp()


def _ceiling(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_CEILING))
