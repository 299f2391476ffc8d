"""The exponential mechanism: exact selection of one of several candidates by integer scores.

P(i) is proportional to exp(exponent score_i). The exponent is a fraction and scores are integers,
so every weight exp(-exponent (most - score_i)) is enclosed as closely as a draw needs
(`das.mechanisms.certified`). Bits of a uniform number are read until it certainly falls between two
running sums of the weights. No probability is rounded.

Cost. With exponent = epsilon / (2 sensitivity) the mechanism is epsilon-bounded range, hence
epsilon^2 / 8 zero-concentrated private. Monotonic scores would allow twice that exponent at the
same cost, but an L1 distance to a model is not monotonic.

References:
  McSherry & Talwar, FOCS 2007 (the mechanism).
  Dong, Durfee & Rogers, ICML 2020, and Cesar & Rogers, ALT 2021, Lemma 3.4 (bounded range, zCDP).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from das.errors import BudgetError
from das.mechanisms.certified import exp_bounds
from das.mechanisms.entropy import BitSource

_FIRST_BITS = 64  # more bits are needed about once in 2^60 draws
_SURPLUS_BITS = 32  # precision of bounds beyond the bits read; default, not measured


@dataclass(frozen=True)
class Selection:
    """Parameters of an exponential mechanism, and its privacy cost.

    Attributes:
      epsilon: Bounded range of the mechanism, exact, > 0.
      sensitivity: The largest change of a score by one record, a positive integer.

    Raises:
      BudgetError: A parameter is not positive, or not exact.

    >>> Selection(Fraction(1, 10), 1).rho
    Fraction(1, 800)
    """

    epsilon: Fraction
    sensitivity: int

    def __post_init__(self) -> None:
        is_exact = isinstance(self.epsilon, Fraction) and isinstance(self.sensitivity, int)
        if not is_exact or self.epsilon <= 0 or self.sensitivity <= 0:
            raise BudgetError(
                "selection",
                "needs an exact positive epsilon and sensitivity",
                got=f"{self.epsilon!r} and {self.sensitivity!r}",
            )

    @classmethod
    def costing(cls, rho: Fraction, sensitivity: int) -> Selection:
        """Return the selection with nearly the largest epsilon that costs at most rho.

        epsilon = sqrt(8 rho) is rounded down to a fraction, by less than 2^-30 of its value. The
        exact cost to record in the ledger is `rho` of the result.
        """
        if not isinstance(rho, Fraction) or rho <= 0:
            raise BudgetError("selection", "needs a positive Fraction as rho", got=repr(rho))
        scale = 1 << 31
        while 8 * rho * scale * scale < 1 << 62:
            scale <<= 1
        square = 8 * rho * scale * scale
        epsilon = Fraction(math.isqrt(square.numerator // square.denominator), scale)
        return cls(epsilon, sensitivity)

    @property
    def rho(self) -> Fraction:
        """Return the cost in zCDP, epsilon^2 / 8, exact."""
        return self.epsilon**2 / 8

    @property
    def exponent(self) -> Fraction:
        """Return epsilon / (2 sensitivity): P(i) is proportional to exp(exponent score_i)."""
        return self.epsilon / (2 * self.sensitivity)

    def choose(self, scores: Sequence[int], bits: BitSource) -> int:
        """Draw a candidate.

        Args:
          scores: Integers, one per candidate; one record moves each by at most `sensitivity`.
          bits: Fresh uniform bits.

        Returns:
          The index of the candidate.

        Law: P(i) is proportional to exp(exponent scores[i]), exactly, given uniform bits.

        Raises:
          BudgetError: There is no candidate, or a score is not an integer.
        """
        if not scores or not all(isinstance(score, int) for score in scores):
            raise BudgetError(
                "selection",
                "needs at least one candidate, and an integer score for each",
                got=f"{len(scores)} candidates",
            )
        most = max(scores)
        losses = [self.exponent * (most - score) for score in scores]
        uniform, n_bits = bits.bits(_FIRST_BITS), _FIRST_BITS
        while True:
            precision = n_bits + _SURPLUS_BITS
            enclosed = [exp_bounds(loss, precision) for loss in losses]
            low = list(accumulate(lower for lower, _ in enclosed))
            high = list(accumulate(upper for _, upper in enclosed))
            # The candidate is #{i : S_i <= U S_n}, S_i the running sums of exact weights and
            # uniform 2^-n <= U < (uniform + 1) 2^-n.
            least = (uniform * low[-1]) >> n_bits
            beyond = -((-(uniform + 1) * high[-1]) >> n_bits)
            candidate = bisect_right(high, least)  # S_i <= U S_n for all i < candidate
            if candidate < len(scores) and beyond <= low[candidate]:
                return candidate
            uniform, n_bits = uniform << 32 | bits.bits(32), n_bits + 32
