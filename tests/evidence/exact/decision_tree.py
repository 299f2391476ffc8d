"""Prove the law of a sampler by following every random decision it can take.

A sampler asks a `Decisions` object for bits (or for any choice of known probability) and is run
again for every answer. The mass of the finished paths is a lower bound of each probability, and
adding the mass of all unfinished paths gives an upper bound. There is no seed and no p-value.

Masses are floats: exact for paths of fair bits, which have dyadic masses, and else far closer than
TOLERANCE.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

TOLERANCE = 1e-12
NEGLIGIBLE = 1e-18  # mass of a path; following it would prove nothing more


class _UndecidedError(Exception):
    def __init__(self, chances: Sequence[float]) -> None:
        super().__init__()
        self.chances = chances


class Decisions:
    """Answers decisions from a script; at its end, reports what could be decided next."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self._script = script
        self._read = 0

    def choose(self, chances: Sequence[float]) -> int:
        """Return i with probability chances[i]."""
        if self._read == len(self._script):
            raise _UndecidedError(chances)
        self._read += 1
        return self._script[self._read - 1]

    def bits(self, n: int) -> int:
        return self.choose([0.5**n] * 2**n)

    def happens(self, chance: float) -> bool:
        return self.choose([1 - chance, chance]) == 1


@dataclass(frozen=True)
class Law:
    """What is proven: P(x) is between mass[x] and mass[x] + unresolved."""

    mass: dict[Hashable, float]
    unresolved: float

    def check(self, probability: Callable[[Hashable], float]) -> None:
        """Fail unless the claimed probabilities agree with everything that is proven."""
        for outcome, mass in self.mass.items():
            claimed = probability(outcome)
            low, high = mass - TOLERANCE, mass + self.unresolved + TOLERANCE
            assert low <= claimed <= high, (
                f"P({outcome}) = {claimed:.9f}, proven: {low:.9f}..{high:.9f}"
            )

    def first_attempt(self) -> Law:
        """Return the law of a rejection sampler, if the finished paths are its first attempt.

        What an attempt accepts is what the sampler returns, for every attempt is like the first.
        """
        accepted = 1.0 - self.unresolved
        return Law({outcome: mass / accepted for outcome, mass in self.mass.items()}, 0.0)


def follow(draw: Callable[..., Hashable], *, replays: int, most_decisions: int = 10_000) -> Law:
    """Follow the most probable unfinished paths first, until `replays` runs have been made.

    Paths that need more than `most_decisions` stay unresolved.
    """
    mass: defaultdict[Hashable, float] = defaultdict(float)
    cut = 0.0
    order = count()
    paths: list[tuple[float, int, tuple[int, ...]]] = [(-1.0, next(order), ())]
    for _ in range(replays):
        if not paths or -paths[0][0] < NEGLIGIBLE:
            break
        negative_mass, _order, script = heapq.heappop(paths)
        try:
            mass[draw(bits=Decisions(script))] -= negative_mass
        except _UndecidedError as undecided:
            if len(script) == most_decisions:
                cut -= negative_mass
                continue
            for choice, chance in enumerate(undecided.chances):
                if chance:
                    heapq.heappush(paths, (negative_mass * chance, next(order), (*script, choice)))
    return Law(mass, cut - math.fsum(path[0] for path in paths))


def gaussian_probability(sigma_sq: Fraction, least: int = -(10**9)) -> Callable[[Hashable], float]:
    """Return the pmf of the discrete Gaussian on k >= least, by its defining sum."""
    reach = 12 * math.isqrt(math.ceil(sigma_sq)) + 12
    support = range(max(-reach, least), reach + 1)
    weights = {k: math.exp(-float(Fraction(k * k) / (2 * sigma_sq))) for k in support}
    return _normalized(weights)


def laplace_probability(scale: Fraction, *, least: int = -(10**9)) -> Callable[[Hashable], float]:
    """Return the pmf of the discrete Laplace law on k >= least, by its defining sum."""
    reach = 60 * math.ceil(scale)
    support = range(max(-reach, least), reach + 1)
    return _normalized({k: math.exp(-abs(k) / float(scale)) for k in support})


def _normalized(weights: dict[int, float]) -> Callable[[Hashable], float]:
    total = math.fsum(weights.values())

    def probability(outcome: Hashable) -> float:
        assert isinstance(outcome, int)
        return weights.get(outcome, 0.0) / total

    return probability
