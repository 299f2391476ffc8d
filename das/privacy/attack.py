r"""What an attacker can gain at most: the same promise, said as error rates of a test.

An attacker sees the release and knows everything but which of two neighbors it was made from. It
says "this one" for some releases. The *false positive rate* is how often it says so when it was the
other, the *true positive rate* how often when it was this one. The *advantage* is the largest
difference of the two, the total variation distance: the chance of a right guess between equally
likely neighbors is (1 + advantage) / 2. The *predictive value* of "this one" is how often it is
right if the one was as likely as the other before. Every bound is rounded up and holds for every
attacker:

- **From losses.** P(S) <= e^epsilon Q(S) + delta(epsilon) for every epsilon, so the true positive
  rate is at most the least right side. For the distributions given that is the best test there is
  (Neyman & Pearson), so nothing is lost but what the losses lost.
- **From rho.** The Rényi divergence of "this one or not" is at most alpha rho for every alpha > 1
  [BS16, Lemma 1.4, post-processing], so TPR^alpha FPR^(1 - alpha) <= e^(alpha (alpha - 1) rho); the
  best alpha, sqrt(ln(1/FPR) / rho), gives TPR <= exp(-(sqrt(ln(1/FPR)) - sqrt(rho))^2) where
  ln(1/FPR) > rho, and nothing elsewhere. The same of the other answer bounds the false negative
  rate FNR by 1 - FPR <= exp(-(sqrt(ln(1/FNR)) - sqrt(rho))^2). The Kullback-Leibler divergence is
  at most rho, so the advantage is at most sqrt(rho / 2) (Pinsker) and sqrt(1 - e^-rho) (Bretagnolle
  & Huber).
- **From a pure epsilon.** TPR <= e^epsilon FPR and 1 - TPR >= e^-epsilon (1 - FPR); the advantage
  is at most tanh(epsilon / 2).

**Gaussian differential privacy.** Continuous Gaussian noise with this rho is mu-GDP with mu =
sqrt(2 rho), exactly: no test is better than the best one between N(0, 1) and N(mu, 1). Of discrete
Gaussian noise mu is no more than a description, and no bound on either side. With rho 2.56, one
measurement has epsilon 12.80 at delta 10^-10, and 144 equal ones 16.4802, where mu-GDP has 16.4794.
What is claimed are the bounds above.

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
_SLACK = Decimal("1e-40")  # of numbers up to 1, after at most a million roundings of 1e-59


@dataclass(frozen=True)
class AttacksByLosses:
    """Bounds from a distribution of losses.

    Attributes:
      losses: Those of every pair of neighbors, in both directions.
    """

    losses: Losses

    def advantage(self) -> Fraction:
        """Delta at epsilon 0."""
        return self.losses.delta(Fraction(0))

    def true_positive_rate(self, false_positive_rate: Fraction) -> Fraction:
        """The least of e^epsilon FPR + delta(epsilon) over the points of the losses."""
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
    """Bounds from zCDP alone.

    Attributes:
      rho: Exact, rho >= 0.
    """

    rho: Fraction

    def advantage(self) -> Fraction:
        """The lesser of two bounds from the Kullback-Leibler divergence."""
        with localcontext(_DIGITS):
            rho = decimal_of(self.rho)
            return _fraction(min((rho / 2).sqrt(), (1 - (-rho).exp()).sqrt()) + _SLACK)

    def true_positive_rate(self, false_positive_rate: Fraction) -> Fraction:
        """The lesser of the bounds from both answers of the test."""
        rate = false_positive_rate
        require_probability("false positive rate", rate)
        with localcontext(_DIGITS):
            root = decimal_of(self.rho).sqrt()
            direct = self._largest(-decimal_of(rate).ln(), root)
            # The least false negative rate x has 1 - rate = exp(-(sqrt(ln(1/x)) - root)^2).
            needed = (-(1 - decimal_of(rate)).ln()).sqrt() + root
            other = 1 - (-needed * needed).exp()
            return _fraction(min(direct, other) + _SLACK)

    @staticmethod
    def _largest(log_inverse: Decimal, root: Decimal) -> Decimal:
        gap = log_inverse.sqrt() - root
        return (-gap * gap).exp() if gap > 0 else Decimal(1)


@dataclass(frozen=True)
class AttacksByEpsilon:
    """Bounds from differential privacy at delta 0.

    Attributes:
      epsilon: Exact, epsilon >= 0.
    """

    epsilon: Fraction

    def advantage(self) -> Fraction:
        """tanh(epsilon / 2)."""
        with localcontext(_DIGITS):
            inverse = (-decimal_of(self.epsilon)).exp()
            return _fraction((1 - inverse) / (1 + inverse) + _SLACK)

    def true_positive_rate(self, false_positive_rate: Fraction) -> Fraction:
        """The lesser of e^epsilon FPR and 1 - e^-epsilon (1 - FPR)."""
        require_probability("false positive rate", false_positive_rate)
        rate = decimal_of(false_positive_rate)
        with localcontext(_DIGITS):
            inverse = (-decimal_of(self.epsilon)).exp()  # 0 of an epsilon above some million
            direct = rate / inverse if inverse else Decimal(1)
            return _fraction(min(direct, 1 - inverse * (1 - rate)) + _SLACK)


Attacks = AttacksByLosses | AttacksByRho | AttacksByEpsilon
"""Bounds on every test between two neighbors."""


def attacks_of_total(definition: Definition, total: Fraction) -> Attacks:
    """The bounds that a total cost implies."""
    return AttacksByEpsilon(total) if definition.is_pure else AttacksByRho(total)


def predictive_value(
    true_positive_rate: Fraction, false_positive_rate: Fraction, prior: Fraction = Fraction(1, 2)
) -> Fraction:
    """How often "this one" is right, exact.

    Args:
      true_positive_rate: Largest; the value grows with it.
      false_positive_rate: Above 0.
      prior: Probability of the one before the release, 0 < prior < 1.

    >>> predictive_value(Fraction(1, 2), Fraction(1, 100), Fraction(1, 101))
    Fraction(1, 3)
    """
    right = true_positive_rate * prior
    return right / (right + false_positive_rate * (1 - prior))


def mu_gdp(rho: Fraction) -> float:
    """The mu of Gaussian differential privacy that continuous noise of this rho has, rounded up.

    >>> mu_gdp(Fraction(2))
    2.0
    """
    with localcontext(_DIGITS):
        root = decimal_of(2 * rho).sqrt()
    return float_above(root)


def _fraction(value: Decimal) -> Fraction:
    """A number of 30 decimals that is not smaller, at most 1."""
    up = value.quantize(Decimal("1e-30"), rounding=ROUND_CEILING)
    return min(Fraction(1), Fraction(up))
