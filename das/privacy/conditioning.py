r"""What conditioning noise on invariants promises: the theorem of Gong & Meng, and what it is not.

Let M be epsilon-differentially private, and M* release what M would, given that it meets the
invariants. For two data sets that both meet them and are k steps from neighbor to neighbor apart,
and every set B of outputs,

    P(M*(x) in B) <= e^((1 + gamma) k epsilon) P(M*(x') in B)    for some gamma in [-1, 1] .

*Why gamma = 1 is enough.* P(M*(x) in B) = P(M(x) in B) / P(M(x) meets the invariants), for B within
them. By group privacy the numerators differ by at most e^(k epsilon), and so do the denominators.

*When gamma = 0 is enough.* If the denominator is the same for all data sets that are compared,
only the numerator counts. So it is if the noise does not depend on the data and what is kept are
sums A s = A x alone: then the noise has to satisfy A z = 0, whatever x is. It is not so where
counts must not be negative: noise on small counts is refused more often, and the denominator tells.
So a table that is drawn by `das.mechanisms.conditional` costs (1 + 1) k epsilon here.

*What is not proved.* The theorem names no gamma below 1 for a mechanism; the paper finds three by
hand (0 without invariants, -1/2 for two counts of a fixed sum, -1 where one output is left), and
says of its figure that it does not compare equal promises. And the theorem needs a bound of the
ratio of likelihoods. Under zCDP and under approximate differential privacy there is none: a
denominator may differ without limit, and nothing follows. Nor does it of a Markov chain that has
not converged.

References:
  Gong & Meng, Congenial Differential Privacy under Mandated Disclosure, FODS 2020.
"""

from __future__ import annotations

from fractions import Fraction

from das.errors import BudgetError
from das.privacy.cost import Pure, ZeroConcentrated, of_group


def conditioned(cost: Pure | ZeroConcentrated, records: int, gamma: Fraction = Fraction(1)) -> Pure:
    """Return what conditioning on invariants costs between data sets k records apart, exact.

    Args:
      cost: Of the mechanism that is conditioned, between neighbors.
      records: k, the distance of the nearest data sets that meet the same invariants.
      gamma: From -1 to 1; 1 holds always, another must be proved for the mechanism.

    Raises:
      BudgetError: The cost is not pure, gamma is out of range, or k is not positive.

    >>> conditioned(Pure(Fraction(1, 2)), 2), conditioned(Pure(Fraction(1)), 2, Fraction(-1, 2))
    (Pure(epsilon=Fraction(2, 1)), Pure(epsilon=Fraction(1, 1)))
    """
    if not isinstance(cost, Pure):
        raise BudgetError(
            "conditioning",
            "keeps no promise of zCDP: the chance of meeting the invariants may depend on the data "
            "without limit",
            remedy="condition a mechanism of pure differential privacy",
        )
    if not isinstance(gamma, Fraction) or not -1 <= gamma <= 1:
        raise BudgetError("gamma", "must be an exact fraction from -1 to 1", got=repr(gamma))
    return Pure((1 + gamma) * of_group(cost, records).epsilon)


def gamma_of(*, has_limits: bool) -> Fraction:
    """Return the gamma that is proved for noise that does not depend on the data.

    Args:
      has_limits: Whether outputs must keep inequalities, such as counts that are not negative,
        beside sums that are kept.
    """
    return Fraction(1) if has_limits else Fraction(0)


def calibrated(target: Pure, records: int, *, has_limits: bool = True) -> Pure:
    """Return what the mechanism may cost between neighbors so that conditioning costs a target.

    Args:
      target: Between the nearest data sets that are compared.
      records: How many records these are apart.
      has_limits: As of `gamma_of`.

    >>> calibrated(Pure(Fraction(1)), 2)
    Pure(epsilon=Fraction(1, 4))
    """
    unit = conditioned(Pure(Fraction(1)), records, gamma_of(has_limits=has_limits))
    return Pure(target.epsilon / unit.epsilon)
