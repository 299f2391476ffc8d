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

*What is not proved.* The theorem states no gamma below 1 for a mechanism. The paper derives three
by hand: 0 without invariants, -1/2 for two counts of a fixed sum, -1 if one output is left. And the
theorem needs a bounded likelihood ratio. zCDP and approximate differential privacy have none: the
denominators may differ without limit, and no guarantee follows. Neither does one follow for a
Markov chain that has not converged.

References:
  Gong & Meng, Congenial Differential Privacy under Mandated Disclosure, FODS 2020.
"""

from __future__ import annotations

from fractions import Fraction

from das.errors import BudgetError
from das.privacy.cost import Pure, ZeroConcentrated, of_group

GAMMA = Fraction(1)
"""The gamma that holds always, so also for counts that must not be negative."""


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


def calibrated(target: Pure, records: int) -> Pure:
    """Return the cost between neighbors at which the conditioned mechanism meets a target cost.

    Args:
      target: Cost between the nearest data sets that meet the same invariants.
      records: Distance of these data sets, in records.

    >>> calibrated(Pure(Fraction(1)), 2)
    Pure(epsilon=Fraction(1, 4))
    """
    return Pure(target.epsilon / conditioned(Pure(Fraction(1)), records).epsilon)
