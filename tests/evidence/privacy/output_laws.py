"""Output laws of noisy answers in ball arithmetic, and how far those of two neighbors diverge.

Nothing here comes from the package but the parameters: the laws are those of the definitions,
P(k) proportional to exp(-k^2 / (2 sigma_sq)) or exp(-|k| / scale).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce

import flint

from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.mechanism import Mechanism

PRECISION = 300
NEGLIGIBLE = 2.0**-160  # of a sum: terms below it are enclosed by a geometric series
CUT = 90  # in nats: outcomes of a density below exp(-CUT) count as lost
ROUNDING = flint.arb(2) ** -150  # more than any ball here is wide


@dataclass(frozen=True)
class Move:
    """One noisy answer: the law of its noise and how far it is apart for two neighbors."""

    mechanism: Mechanism
    distance: int


@contextmanager
def precise() -> Iterator[None]:
    before = flint.ctx.prec
    flint.ctx.prec = PRECISION
    yield
    flint.ctx.prec = before


def arb(value: Fraction | int) -> flint.arb:
    exact = Fraction(value)
    return flint.arb(flint.fmpq(exact.numerator, exact.denominator))


def exponent(mechanism: Mechanism, k: int) -> Fraction:
    """-ln P(k), up to the normalizer."""
    if isinstance(mechanism, DiscreteGaussian):
        return Fraction(k * k) / (2 * mechanism.sigma_sq)
    assert isinstance(mechanism, DiscreteLaplace)
    return abs(k) / mechanism.scale


@cache
def normalizer(mechanism: Mechanism) -> flint.arb:
    return _series(lambda k: exponent(mechanism, k), 0, 2, mechanism)


def probability(mechanism: Mechanism, k: int) -> flint.arb:
    return (-arb(exponent(mechanism, k))).exp() / normalizer(mechanism)


def _series(of: Callable[[int], Fraction], center: int, steps: int, law: Mechanism) -> flint.arb:
    """Enclose the sum of exp(-of(k)) over all k.

    Beyond `steps` from the center `of` is convex, and a straight line if the law is Laplace's.
    """
    total = (-arb(of(center))).exp()
    for side in (1, -1):
        before = total
        for step in itertools.count(1):
            term = (-arb(of(center + side * step))).exp()
            total += term
            if step > steps and (isinstance(law, DiscreteLaplace) or term < NEGLIGIBLE * total):
                rest = term**2 / (before - term)  # a geometric series
                total += rest if isinstance(law, DiscreteLaplace) else flint.arb(0).union(rest)
                break
            before = term
    return total


def renyi_divergence(moves: Iterable[Move], alpha: Fraction) -> flint.arb:
    """Rényi divergence of order alpha of the two laws of all answers; independent ones add up."""

    @cache
    def of_one(move: Move) -> flint.arb:
        law, d = move.mechanism, move.distance

        def tilted(k: int) -> Fraction:
            return alpha * exponent(law, k) + (1 - alpha) * exponent(law, k - d)

        center = round((1 - alpha) * d) if isinstance(law, DiscreteGaussian) else 0
        total = _series(tilted, center, 2 * abs(d) + 2, law)
        return (total / normalizer(law)).log() / arb(alpha - 1)

    return sum((of_one(move) for move in moves), flint.arb(0))


def largest_loss(moves: Iterable[Move]) -> Fraction:
    """The largest ln P(o) / Q(o) of Laplace noise, exact; attained by answers moved far away."""
    total = Fraction(0)
    for move in moves:
        assert isinstance(move.mechanism, DiscreteLaplace)
        total += max(
            exponent(move.mechanism, k - move.distance) - exponent(move.mechanism, k)
            for k in range(-abs(move.distance), abs(move.distance) + 1)
        )
    return total


@dataclass(frozen=True)
class Losses:
    """Law of ln P(o) / Q(o), o drawn from P: mass[i] at (least + i) unit; `lost` is elsewhere."""

    unit: Fraction
    least: int
    mass: flint.arb_poly
    lost: flint.arb

    def hockey_stick(self, epsilon: Fraction) -> flint.arb:
        """Enclose sum_o max(0, P(o) - exp(epsilon) Q(o)), the smallest delta at epsilon."""
        start = max(0, math.floor(epsilon / self.unit) + 1 - self.least)  # losses above epsilon
        first = (self.least + start) * self.unit
        mass = self.mass.coeffs()[start:]
        moved = flint.arb_poly(mass)((-arb(self.unit)).exp())  # sum of mass exp(first - loss)
        above = sum(mass, flint.arb(0)) - arb(epsilon - first).exp() * moved
        return above + flint.arb(0).union(self.lost)


def losses(moves: Sequence[Move]) -> Losses:
    """The law of the loss of all answers together: the laws of independent losses convolve."""
    points = [_points(move) for move in moves if move.distance]
    unit = reduce(_common, (loss for mass, _ in points for loss in mass), Fraction(0)) or Fraction(
        1
    )
    least, product, lost = 0, flint.arb_poly([1]), flint.arb(0)
    for mass, missing in points:
        places = {int(loss / unit): value for loss, value in mass.items()}
        low = min(places)
        coefficients = [flint.arb(0)] * (max(places) - low + 1)
        for place, value in places.items():
            coefficients[place - low] += value
        product = product * flint.arb_poly(coefficients)
        least += low
        lost += missing
    return Losses(unit, least, product, lost)


@cache
def _points(move: Move) -> tuple[dict[Fraction, flint.arb], flint.arb]:
    """Mass of each loss of one answer, and a bound of the mass left out."""
    law, d = move.mechanism, abs(move.distance)  # reflection changes nothing
    if isinstance(law, DiscreteLaplace):
        fall = (-arb(1 / law.scale)).exp()
        mass = {(d - 2 * k) / law.scale: probability(law, k) for k in range(1, d)}
        mass[d / law.scale] = 1 / (1 + fall)  # all k <= 0
        mass[-d / law.scale] = fall**d / (1 + fall)  # all k >= d
        return mass, flint.arb(0)
    reach = math.isqrt(math.ceil(2 * CUT * law.parameter)) + 1
    inside = {
        exponent(law, k - d) - exponent(law, k): probability(law, k)
        for k in range(-reach, reach + 1)
    }
    return inside, (1 - sum(inside.values(), flint.arb(0))).abs_upper()


def _common(a: Fraction, b: Fraction) -> Fraction:
    """The largest fraction that both are multiples of."""
    denominator = math.lcm(a.denominator, b.denominator)
    return Fraction(math.gcd(int(a * denominator), int(b * denominator)), denominator)
