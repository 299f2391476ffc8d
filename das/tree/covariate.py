"""Totals expected by a public covariate, such as housing units, and how far true ones are off.

The children of a parent with P persons share them about as they share its housing units h:

    mu_b = P h_b / sum h,      E (T_b - mu_b)^2 = V(mu_b).

V is learned from noisy totals t_b = T_b + e_b alone, since E (t - mu)^2 = V(mu) + Var e. A child
that units do not explain, one with facilities or an outlier, is *flat*: nothing is expected of it,
and its own noisy total is set aside before the others share the rest. What is read: noisy totals,
counts of the parent that are released already, and public counts. So this is post-processing, and
costs nothing.

mu_b with weight 1 / (kappa k_g V(mu_b)) is then one more answer about the total of child b, where
k_g says how far the children of parent g are from what is usual. It lowers the squared error and
is biased: children with many persons a unit lose.

References:
  Efron & Morris, J. Amer. Statist. Assoc. 70 (1975), 311-319 (shrinkage toward what is expected).
  Robbins, Proc. 3rd Berkeley Symp. (1956), 157-163 (learning it from the noisy data).
  Barlow, Bartholomew, Bremner & Brunk, Statistical Inference under Order Restrictions (1972), 13
  (pooling adjacent violators).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SchemaError

# Bins of what is expected: wide enough for V to be learned from some thousand children, and narrow
# enough for it to grow by at most a half within one where it grows as the square.
_EDGES = np.asarray(0.5 * 1.28 ** np.arange(72), np.float64)  # up to 2 * 10^7 persons
_FEWEST = 21  # children of a bin that is believed
# Squared deviations are added up in these steps, as integers: a sum hangs on no order of tasks.
STEPS, _MOST = 1024, 2.0**40
_OUTLIER = 3.5  # standard deviations; of a Gaussian, one in two thousand is further off
_ROUNDS = 3
_PRIOR_CHILDREN = 5.0  # weight of the geolevel in the scale of one family
_SCALES = (0.15, 8.0)


@dataclass(frozen=True, eq=False)
class Children:
    """The G children of F parents, family after family, as they are seen before they are solved.

    Attributes:
      noisy: float64[G], unbiased noisy totals of persons.
      variance: float64[G], of their noise.
      units: float64[G], housing units; public.
      apart: bool[G], children with persons whom units do not count, such as facilities; public.
      owners: int64[G], the parent of each, 0..F-1, rising.
      parents: float64[F], released totals of the parents.
    """

    noisy: FloatArray
    variance: FloatArray
    units: FloatArray
    apart: BoolArray
    owners: IntArray
    parents: FloatArray

    def __post_init__(self) -> None:
        shapes = {len(one) for one in (self.noisy, self.variance, self.units, self.apart)}
        if shapes != {len(self.owners)} or not (self.variance > 0).all():
            raise SchemaError("children", "need numbers of the same length and noise")


@dataclass(frozen=True, eq=False)
class Expected:
    """What is expected of children.

    Attributes:
      totals: float64[G], mu; of a flat child its own noisy total, at least 0.
      flat: bool[G], children of whom nothing is expected.
    """

    totals: FloatArray
    flat: BoolArray


@dataclass(frozen=True, eq=False)
class Deviations:
    """How far noisy numbers are from what is expected, by bins of that; mergeable in any order.

    Attributes:
      children: int64[..., b], children, or groups of cells of them.
      expected: int64[..., b], their expected numbers in steps.
      squares: int64[..., b], (t - mu)^2 - Var e in steps.
      flat: Children of whom nothing is expected.
    """

    children: IntArray
    expected: IntArray
    squares: IntArray
    flat: int = 0


@dataclass(frozen=True, eq=False)
class TotalVariance:
    """V, the variance of true totals around the expected ones, as learned.

    Attributes:
      expected: float64[p], rising; where V was learned.
      variance: float64[p], nondecreasing.
    """

    expected: FloatArray
    variance: FloatArray

    def of(self, totals: FloatArray) -> FloatArray:
        """V of expected totals: linear between those learned, as the square above the last.

        Never below 0.3 mu + 0.3: totals of whole persons are not all as expected, however few.
        """
        last = self.expected[-1]
        inside = np.interp(totals, self.expected, self.variance)
        above = (np.maximum(totals, last) / last) ** 2
        return np.asarray(np.maximum(inside * above, 0.3 * totals + 0.3))


def expect(children: Children, learned: TotalVariance | None = None) -> Expected:
    """What is expected of children, outliers set aside.

    Args:
      children: The children of some parents.
      learned: V; without it only the widest that is plausible of persons by units tells outliers.
    """
    flat = children.apart.copy()
    found = _share(children, flat)
    for _ in range(_ROUNDS):
        mu = found.totals
        widest = 8 + 4 * mu + (mu / 4) ** 2
        if learned is not None:
            widest = np.minimum(widest, learned.of(mu))
        limit = _OUTLIER**2 * (widest + children.variance)
        flat = children.apart | ((children.noisy - mu) ** 2 > limit)
        found = _share(children, flat)
    return found


def _share(children: Children, flat: BoolArray) -> Expected:
    """Flat children as they are seen; the others share what is left by units."""
    n, owners = len(children.parents), children.owners
    flat = flat | ~(children.units > 0)
    own = np.where(flat, np.maximum(children.noisy, 0), 0.0)
    taken = np.bincount(owners, own, n)
    fits = np.minimum(1.0, children.parents / np.maximum(taken, 1e-9))
    own = own * fits[owners]
    rest = children.parents - taken * fits
    units = np.where(flat, 0.0, children.units)
    per_unit = rest / np.maximum(np.bincount(owners, units, n), 1e-9)
    return Expected(np.where(flat, own, units * per_unit[owners]), flat)


def deviations(children: Children) -> Deviations:
    """Tally how far noisy totals are from what is expected of them."""
    found = expect(children)
    is_used = ~found.flat & (found.totals > 0)
    mu = found.totals[is_used]
    square = (children.noisy[is_used] - mu) ** 2 - children.variance[is_used]
    return replace(tallied(mu, square, _EDGES), flat=int(found.flat.sum()))


def tallied(expected: FloatArray, squares: FloatArray, edges: FloatArray) -> Deviations:
    """Tally deviations by bins of what is expected; edges[b - 1] are those between bins."""
    bins = np.digitize(expected, edges)
    sums = np.zeros((2, len(edges) + 1), np.int64)
    np.add.at(sums[0], bins, steps(expected))
    np.add.at(sums[1], bins, steps(squares))
    return Deviations(np.bincount(bins, minlength=len(edges) + 1), *sums)


def steps(values: FloatArray) -> IntArray:
    """Values as whole numbers of steps, 1/1024, whose sums hang on no order."""
    return np.rint(np.clip(values, -_MOST, _MOST) * STEPS).astype(np.int64)


def merge(parts: Iterable[Deviations], *shape: int) -> Deviations:
    """Add tallies up, of so many steps of a chain, or of totals."""
    every = list(parts)
    zero = np.zeros((*shape, len(_EDGES) + 1), np.int64)
    return Deviations(
        sum((one.children for one in every), zero),
        sum((one.expected for one in every), zero),
        sum((one.squares for one in every), zero),
        sum(one.flat for one in every),
    )


def learn_variance(seen: Deviations) -> TotalVariance | None:
    """V by bins of what is expected, pooled to be nondecreasing; None if too few were seen."""
    expected, variance = learned_by_bins(seen.children, seen.expected, seen.squares)
    if not len(expected):
        return None
    return TotalVariance(expected, np.maximum(variance, 0.3 * expected + 0.3))


def learned_by_bins(
    n: IntArray, expected: IntArray, squares: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Mean expected numbers of the bins that are believed, rising, and variances that do not fall.

    Variances are pooled by neighbors that violate the order, and have three digits: they are not
    known better, and their last digits then hang on nothing.
    """
    from scipy.optimize import isotonic_regression

    use = np.flatnonzero(n >= _FEWEST)
    weights = STEPS * n[use]
    pooled = isotonic_regression(squares[use] / weights, weights=n[use]).x if len(use) else []
    return expected[use] / weights, np.array([float(f"{value:.3g}") for value in pooled])


def scales(children: Children, found: Expected, learned: TotalVariance) -> FloatArray:
    """k_g, float64[F]: how much further from what is expected each family is than is usual.

    A mean of ((t - mu)^2 - Var e) / V over its children, by the information of each, shrunk toward
    1 as by five more children that are as usual.
    """
    n, owners = len(children.parents), children.owners
    usual, is_used = learned.of(found.totals), ~found.flat
    square = (children.noisy - found.totals) ** 2 - children.variance
    information = np.where(is_used, 0.5 * (usual / (usual + children.variance)) ** 2, 0.0)
    above = np.bincount(owners, information * square / usual, n)
    below = np.bincount(owners, information, n)
    return np.clip((_PRIOR_CHILDREN + above) / (_PRIOR_CHILDREN + below), *_SCALES)


def scale(squares: FloatArray, usual: FloatArray, noise: FloatArray) -> float:
    """One such scale, of squares less their noise of one family, whatever they are squares of.

    Args:
      squares: float64[...], unbiased for the variance.
      usual: float64[...], the variance that is usual.
      noise: float64[...], of what was squared.
    """
    information = 0.5 * (usual / (usual + noise)) ** 2
    above = _PRIOR_CHILDREN + float((information * squares / usual).sum())
    return float(np.clip(above / (_PRIOR_CHILDREN + float(information.sum())), *_SCALES))


def answers(
    children: Children, learned: TotalVariance, kappa: float
) -> tuple[Expected, FloatArray]:
    """Expected totals, and their weights as answers about the totals of children.

    Args:
      children: The children of some parents.
      learned: V.
      kappa: Factor of V; more than 1 is on the side of the noisy answers.

    Returns:
      What is expected, and float64[G] inverse variances; 0 for flat children.
    """
    found = expect(children, learned)
    variance = scales(children, found, learned)[children.owners] * learned.of(found.totals)
    return found, np.where(found.flat, 0.0, 1 / (kappa * variance))


def risk(
    noisy: FloatArray,
    variance: FloatArray,
    solved: FloatArray,
    shifted_noisy: FloatArray,
    shifted: FloatArray,
    step: float,
) -> FloatArray:
    """Squared errors of answers as the noisy answers alone estimate them, without bias.

    Of an answer a'x with an unbiased linear estimate z of variance v, and a way f to solve,

        R = (a'f(y) - z)^2 - v + 2 (z' - z) (a'f(y + d e) - a'f(y)) / d^2 ,

    e of independent signs times the standard deviations of the noisy answers y, and z' made of
    y + d e. E R = E (a'f - a'x)^2 up to terms in d, for Gaussian noise that the rest of f does not
    depend on.

    Args:
      noisy: float64[...], z.
      variance: float64[...], v.
      solved: float64[...], a'f(y).
      shifted_noisy: float64[...], z'.
      shifted: float64[...], a'f(y + d e).
      step: d.

    References:
      Stein, Ann. Statist. 9 (1981), 1135-1151; Ramani, Blu & Unser, IEEE Trans. Image Process. 17
      (2008), 1540-1554 (the divergence from one perturbation).
    """
    divergence = (shifted_noisy - noisy) * (shifted - solved) / step**2
    return np.asarray((solved - noisy) ** 2 - variance + 2 * divergence)
