"""Reference samplers: short, slow, exact rational arithmetic over a source of bits.

They follow Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS
2020, arXiv:2004.00010 [CKS20]. They are the readable statement of what the tables in
`das.mechanisms.table` must produce. Every parameter is keyword-only, because a swapped scale and
variance would go unnoticed.
"""

from __future__ import annotations

import math
from fractions import Fraction

from das.errors import BudgetError
from das.mechanisms.entropy import BitSource


def uniform_below(*, n: int, bits: BitSource) -> int:
    """Draw an integer below n, n >= 1.

    Law: P(X = x) = 1/n for each x in 0..n-1.
    """
    if n < 1:
        raise BudgetError("uniform_below", "has nothing to draw from", got=n, want="n >= 1")
    width = (n - 1).bit_length()
    while True:
        candidate = bits.bits(width)
        if candidate < n:
            return candidate


def bernoulli(*, p: Fraction, bits: BitSource) -> bool:
    """Draw True with probability p, 0 <= p <= 1.

    Law: P(True) = p.
    """
    if not 0 <= p <= 1:
        raise BudgetError("bernoulli", "is not a probability", got=p, want="0 <= p <= 1")
    return uniform_below(n=p.denominator, bits=bits) < p.numerator


def bernoulli_exp(*, gamma: Fraction, bits: BitSource) -> bool:
    """Draw True with probability exp(-gamma), gamma >= 0 [CKS20, Algorithm 1].

    Law: P(True) = exp(-gamma).
    """
    if gamma < 0:
        raise BudgetError("bernoulli_exp", "needs a rate that is not negative", got=gamma)
    while gamma > 1:  # exp(-gamma) = exp(-1) exp(-(gamma - 1)), and most draws stop here early
        if not _bernoulli_exp_below_one(Fraction(1), bits):
            return False
        gamma -= 1
    return _bernoulli_exp_below_one(gamma, bits)


def _bernoulli_exp_below_one(gamma: Fraction, bits: BitSource) -> bool:
    # The first failure comes at trial k with probability gamma^(k-1)/(k-1)! - gamma^k/k!;
    # summed over odd k this is the series of exp(-gamma).
    trial = 1
    while bernoulli(p=gamma / trial, bits=bits):
        trial += 1
    return trial % 2 == 1


def geometric(*, scale: Fraction, bits: BitSource) -> int:
    """Draw a non-negative integer with exponential decay, scale > 0 [CKS20, Algorithm 2].

    Law: P(X = x) proportional to exp(-x / scale) for x = 0, 1, 2, ...
    """
    _require_positive(scale, "geometric", "scale")
    t, s = scale.numerator, scale.denominator
    while True:  # remainder modulo t, by rejection
        remainder = uniform_below(n=t, bits=bits)
        if bernoulli_exp(gamma=Fraction(remainder, t), bits=bits):
            break
    quotient = 0
    while bernoulli_exp(gamma=Fraction(1), bits=bits):
        quotient += 1
    # remainder + t * quotient decays as exp(-x / t); s of its values make one of ours
    return (remainder + t * quotient) // s


def discrete_laplace(*, scale: Fraction, bits: BitSource) -> int:
    """Draw a two-sided geometric integer, scale > 0 [CKS20, Algorithm 2].

    Law: X in Z with P(X = x) proportional to exp(-|x| / scale), exactly, given uniform bits.
    """
    while True:
        is_negative = bits.bits(1) == 1
        magnitude = geometric(scale=scale, bits=bits)
        if magnitude or not is_negative:  # else zero would have two names and twice its mass
            return -magnitude if is_negative else magnitude


def discrete_gaussian(*, sigma_sq: Fraction, bits: BitSource) -> int:
    """Draw discrete Gaussian noise, sigma_sq > 0 [CKS20, Algorithm 3].

    Law: X in Z with P(X = x) proportional to exp(-x^2 / (2 sigma_sq)), exactly, given uniform bits.
    """
    _require_positive(sigma_sq, "discrete_gaussian", "sigma_sq")
    scale = Fraction(math.isqrt(math.floor(sigma_sq)) + 1)  # floor(sigma) + 1, without a root
    while True:
        candidate = discrete_laplace(scale=scale, bits=bits)
        gamma = (abs(candidate) - sigma_sq / scale) ** 2 / (2 * sigma_sq)
        if bernoulli_exp(gamma=gamma, bits=bits):
            return candidate


def _require_positive(value: Fraction, where: str, name: str) -> None:
    if not isinstance(value, Fraction) or value <= 0:
        raise BudgetError(
            where, f"{name} cannot be used", got=repr(value), want="a positive Fraction"
        )
