r"""Privacy guarantee of noise that is conditioned on invariants: the theorem of Gong & Meng.

Let M be epsilon-differentially private. Let M* draw from the output of M, conditional on meeting
the invariants. For two data sets that both meet the invariants and are k neighboring steps apart,
and every set B of outputs,

    P(M*(x) in B) <= e^((1 + gamma) k epsilon) P(M*(x') in B)    for some gamma in [-1, 1] .

*Why gamma = 1 suffices.* P(M*(x) in B) = P(M(x) in B) / P(M(x) meets the invariants), for B within
the invariants. By group privacy, numerators and denominators each differ by at most e^(k epsilon).

*When gamma = 0 suffices.* If the denominator is the same for all compared data sets, only the
numerator counts. This holds if the noise does not depend on the data and the invariants are only
sums A s = A x: then the noise must satisfy A z = 0, for any x. It does not hold if counts must not
be negative: noise on small counts is rejected more often, so the denominator depends on the data.
So a table drawn by `das.mechanisms.conditional` costs (1 + 1) k epsilon.

*The smallest gamma for one kept marginal.* Let M add two-sided geometric noise of scale 2 /
epsilon, so that a changed record costs epsilon. Let the kept sums be disjoint, of r cells each, and
let counts be nonnegative. With P(M*(x) = s) = t^|s - x|_1 / C(x) and q = t^2 = e^(-epsilon), the
ratio of two laws is largest at s = x, so its logarithm is k epsilon + ln C(x') - ln C(x). Tables of
equal sums are joined by moves of one record within a sum, so k = 1 decides: x' = x - e_i + e_j, n
the sum.

- Generating functions of cells i and j, as partial fractions, give C(x') / C(x) = 1 + (1 - q) P,
  P the probability under M*(x) that s_j >= x_j and 1 <= s_i < x_i - x_j. If x_i <= x_j + 1, the
  ratio is at most 1.
- 1 - P >= P(s_i = 0) + P(s_i >= x_i). Both are smallest if all n records are in cell i: the first
  because s_i then is largest in likelihood ratio order, the second because a table with an excess
  of m in r - 1 cells arises from one without in at most binom(m + r - 2, r - 2) ways.
- There, they are c_n / A_n and 1 / A_n, with c_m = binom(m + r - 2, r - 2) q^m and A_n their sum
  from 0 to n. So gamma = ln(1 + (1 - q) (1 - (1 + c_n) / A_n)) / epsilon, attained by a pair. It
  grows with n, because c_m is log-concave, and stays below ln(2 - q) / epsilon < 1.

*What is not proved.* No gamma below 1 is known for sums that overlap. The paper derives three for
other mechanisms: 0 without invariants, -1/2 for two counts of a fixed sum, -1 if one output is
left. The theorem needs a bounded likelihood ratio. zCDP and approximate differential privacy have
none: the denominators may differ without limit, and no guarantee follows. Neither does one follow
for a Markov chain that has not converged.

References:
  Gong & Meng, Congenial Differential Privacy under Mandated Disclosure, FODS 2020.
"""

from __future__ import annotations

import math
from fractions import Fraction

from das.errors import BudgetError
from das.privacy.cost import Pure, ZeroConcentrated, of_group

GAMMA = Fraction(1)
"""The gamma that holds always, so also for counts that must not be negative."""

_NEGLIGIBLE = 2.0**-60  # a later term changes no digit of a float


def conditioned(cost: Pure | ZeroConcentrated, records: int, gamma: Fraction = GAMMA) -> Pure:
    """Return the exact cost of a conditioned mechanism between data sets k records apart.

    Args:
      cost: Cost of the mechanism between neighbors, before conditioning.
      records: k, the distance of the nearest data sets that meet the same invariants.
      gamma: From -1 to 1; a value other than 1 must be proved for the mechanism.

    Raises:
      BudgetError: The cost is not pure, gamma is out of range, or k is not positive.

    >>> conditioned(Pure(Fraction(1, 2)), 2), conditioned(Pure(Fraction(1)), 2, Fraction(-1, 2))
    (Pure(epsilon=Fraction(2, 1)), Pure(epsilon=Fraction(1, 1)))
    """
    if not isinstance(cost, Pure):
        raise BudgetError(
            "conditioning",
            "gives no guarantee under zCDP: the probability of meeting the invariants may depend "
            "on the data without limit",
            remedy="condition a mechanism of pure differential privacy",
        )
    if not isinstance(gamma, Fraction) or not -1 <= gamma <= 1:
        raise BudgetError("gamma", "must be an exact fraction from -1 to 1", got=repr(gamma))
    return Pure((1 + gamma) * of_group(cost, records).epsilon)


def effective_gamma(noise: Pure, cells: int, records: int) -> float:
    """Compute the smallest gamma of a nonnegative table that keeps one marginal, in floats.

    Args:
      noise: Cost of the noise for one changed record, before conditioning.
      cells: r, the number of cells in each kept sum; at least 2.
      records: Largest value of a kept sum: the number of records of the table.

    >>> round(effective_gamma(Pure(Fraction(1, 2)), 7, 20_000), 4)
    0.6615
    """
    epsilon = float(noise.epsilon)
    q = math.exp(-epsilon)
    last = inverse = 1.0  # c_m / A_m and 1 / A_m for m = 0; A_m itself can overflow
    for m in range(1, records + 1):
        grown = last * q * (m + cells - 2) / m
        inverse, last = inverse / (1 + grown), grown / (1 + grown)
        if last < _NEGLIGIBLE:
            break
    return math.log1p((1 - q) * (1 - inverse - last)) / epsilon


def calibrated(target: Pure, records: int) -> Pure:
    """Return the cost between neighbors at which the conditioned mechanism meets a target cost.

    Args:
      target: Cost between the nearest data sets that meet the same invariants.
      records: Distance of these data sets, in records.

    >>> calibrated(Pure(Fraction(1)), 2)
    Pure(epsilon=Fraction(1, 4))
    """
    return Pure(target.epsilon / conditioned(Pure(Fraction(1)), records).epsilon)
