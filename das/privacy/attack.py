r"""Upper bounds on a membership attack: the privacy guarantee as error rates of a hypothesis test.

An attacker sees the release and knows that it was made from one of two neighboring data sets, P or
Q. The attacker guesses P for some releases. The *false positive rate* (FPR) is the probability of
guessing P when the data set is Q. The *true positive rate* (TPR) is the probability of guessing P
when it is P. The *advantage* is the largest difference TPR - FPR, the total variation distance. So
a guess between equally likely neighbors is right with probability at most (1 + advantage) / 2. The
*predictive value* is the probability that the guess P is right. Every bound is rounded up and holds
for every attacker:

- **From a loss distribution.** P(S) <= e^epsilon Q(S) + delta(epsilon) for every epsilon, so the
  true positive rate is at most the least right side. By Neyman & Pearson this is the best test
  between the two distributions, so the bound is as tight as the loss distribution.
- **From rho.** The Rényi divergence of the guess is at most alpha rho for every alpha > 1 [BS16,
  Lemma 1.4, post-processing], so TPR^alpha FPR^(1 - alpha) <= e^(alpha (alpha - 1) rho). The best
  alpha is sqrt(ln(1/FPR) / rho). It gives TPR <= exp(-(sqrt(ln(1/FPR)) - sqrt(rho))^2) where
  ln(1/FPR) > rho, and no bound otherwise. The same argument for the guess Q bounds the false
  negative rate FNR by 1 - FPR <= exp(-(sqrt(ln(1/FNR)) - sqrt(rho))^2). The Kullback-Leibler
  divergence is at most rho, so the advantage is at most sqrt(rho / 2) (Pinsker) and
  sqrt(1 - e^-rho) (Bretagnolle & Huber).
- **From a pure epsilon.** TPR <= e^epsilon FPR and 1 - TPR >= e^-epsilon (1 - FPR); the advantage
  is at most tanh(epsilon / 2).

**Gaussian differential privacy.** Continuous Gaussian noise with this rho is mu-GDP with mu =
sqrt(2 rho), exactly: no test is better than the best one between N(0, 1) and N(mu, 1). For discrete
Gaussian noise mu is only a description, and no bound in either direction. With rho 2.56, one
measurement has epsilon 12.80 at delta 10^-10, and 144 equal ones have 16.4802; mu-GDP has 16.4794.
Reports claim only the bounds above.

References:
  Dong, Roth & Su, Gaussian Differential Privacy, JRSS B 2022, arXiv:1905.02383, Sections 2.1 and
  2.2 and Proposition 2.5. Wasserman & Zhou, JASA 2010, arXiv:0811.2501, Theorem 2.4 (tests).
  [BS16] Bun & Steinke, TCC 2016, arXiv:1605.02065. Canonne, A short note on an inequality between
  KL and TV, 2022, arXiv:2202.07198.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction

from das.definition import Definition
from das.privacy.losses import Losses
from das.rational import decimal_of, float_above, require_probability

FALSE_POSITIVE_RATES = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 20), Fraction(1, 10))

_DIGITS = Context(prec=60)
_SLACK = Decimal("1e-40")  # error of numbers up to 1, after at most a million roundings of 1e-59


@dataclass(frozen=True)
class AttacksByLosses:
    """Bounds on attacks from a privacy loss distribution.

    Attributes:
      losses: A distribution that dominates every pair of neighbors, in both directions.
    """

    losses: Losses

    def advantage(self) -> Fraction:
        """Return a bound on the advantage: delta at epsilon 0."""
        return self.losses.delta(Fraction(0))

    def true_positive_rate(self, false_positive_rate: Fraction) -> Fraction:
        """Return the least of e^epsilon FPR + delta(epsilon) over the grid of the losses."""
        require_probability("false positive rate", false_positive_rate)
        rate, losses = false_positive_rate, self.losses
        curve = losses.curve(losses.lowest, losses.lowest + len(losses.masses) - 1)
        with localcontext(_DIGITS):
            unit = Decimal(10) ** -losses.digits
            factor = decimal_of(losses.grid).exp()
            given = decimal_of(rate) * decimal_of(losses.lowest * losses.grid).exp()
            best = Decimal(1)
            for delta in curve:
                best = min(best, given + delta * unit)
                given *= factor
            return _fraction(best * (1 + _SLACK))


@dataclass(frozen=True)
class AttacksByRho:
    """Bounds on attacks from zCDP alone.

    Attributes:
      rho: Exact, rho >= 0.
    """

    rho: Fraction

    def advantage(self) -> Fraction:
        """Return a bound on the advantage: the smaller of Pinsker's and Bretagnolle & Huber's."""
        with localcontext(_DIGITS):
            rho = decimal_of(self.rho)
            return _fraction(min((rho / 2).sqrt(), (1 - (-rho).exp()).sqrt()) + _SLACK)

    def true_positive_rate(self, false_positive_rate: Fraction) -> Fraction:
        """Return the smaller of the bounds from the two guesses of the test."""
        rate = false_positive_rate
        require_probability("false positive rate", rate)
        with localcontext(_DIGITS):
            root = decimal_of(self.rho).sqrt()
            gap = (-decimal_of(rate).ln()).sqrt() - root
            direct = (-gap * gap).exp() if gap > 0 else Decimal(1)
            # The least false negative rate x has 1 - rate = exp(-(sqrt(ln(1/x)) - root)^2).
            needed = (-(1 - decimal_of(rate)).ln()).sqrt() + root
            other = 1 - (-needed * needed).exp()
            return _fraction(min(direct, other) + _SLACK)


@dataclass(frozen=True)
class AttacksByEpsilon:
    """Bounds on attacks from pure differential privacy.

    Attributes:
      epsilon: Exact, epsilon >= 0.
    """

    epsilon: Fraction

    def advantage(self) -> Fraction:
        """Return a bound on the advantage, tanh(epsilon / 2)."""
        with localcontext(_DIGITS):
            inverse = (-decimal_of(self.epsilon)).exp()
            return _fraction((1 - inverse) / (1 + inverse) + _SLACK)

    def true_positive_rate(self, false_positive_rate: Fraction) -> Fraction:
        """Return the largest true positive rate of an attack, rounded up.

        It is the smaller of e^epsilon FPR and 1 - e^-epsilon (1 - FPR), with FPR the false positive
        rate.
        """
        require_probability("false positive rate", false_positive_rate)
        rate = decimal_of(false_positive_rate)
        with localcontext(_DIGITS):
            inverse = (-decimal_of(self.epsilon)).exp()  # 0 for an epsilon above some million
            direct = rate / inverse if inverse else Decimal(1)
            return _fraction(min(direct, 1 - inverse * (1 - rate)) + _SLACK)


Attacks = AttacksByLosses | AttacksByRho | AttacksByEpsilon
"""Bounds on every hypothesis test between two neighboring data sets."""


def attacks_of_total(definition: Definition, total: Fraction) -> Attacks:
    """Return the bounds on attacks that a total privacy loss implies."""
    return AttacksByEpsilon(total) if definition.is_pure else AttacksByRho(total)


def predictive_value(
    true_positive_rate: Fraction, false_positive_rate: Fraction, prior: Fraction = Fraction(1, 2)
) -> Fraction:
    """Return the largest probability that a positive guess of the attacker is right, exact.

    Args:
      true_positive_rate: Upper bound on the true positive rate; the result increases in it.
      false_positive_rate: Above 0.
      prior: Probability of the guessed data set before the release, 0 < prior < 1.

    >>> predictive_value(Fraction(1, 2), Fraction(1, 100), Fraction(1, 101))
    Fraction(1, 3)
    """
    right = true_positive_rate * prior
    return right / (right + false_positive_rate * (1 - prior))


def mu_gdp(rho: Fraction) -> float:
    """Return mu of the Gaussian differential privacy of continuous noise with this rho, rounded up.

    >>> mu_gdp(Fraction(2))
    2.0
    """
    with localcontext(_DIGITS):
        root = decimal_of(2 * rho).sqrt()
    return float_above(root)


def _fraction(value: Decimal) -> Fraction:
    """Round a number up to 30 decimals, and to at most 1."""
    up = value.quantize(Decimal("1e-30"), rounding=ROUND_CEILING)
    return min(Fraction(1), Fraction(up))
