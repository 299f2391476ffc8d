"""Expected totals from a public covariate, such as housing units, and their fitted variance.

The P persons of a parent are expected in its children in proportion to their housing units h:

    mu_b = P h_b / sum h,      E (T_b - mu_b)^2 = V(mu_b).

V is fitted to noisy totals t_b = T_b + e_b alone, since E (t - mu)^2 = V(mu) + Var e. Units do not
explain some children: those with facilities, and outliers. Such a child is *flat*. It keeps its
noisy total, and the other children share the rest. The inputs are noisy totals, released counts of
the parent and public counts. So this is post-processing and has no privacy cost.

mu_b then enters as one more answer about the total of child b, of weight 1 / (kappa k_g V(mu_b)).
The scale k_g compares the variance of family g with V. This lowers the squared error but is biased:
the totals of children with many persons per unit become too low.

References:
  Efron & Morris, J. Amer. Statist. Assoc. 70 (1975), 311-319 (shrinkage).
  Robbins, Proc. 3rd Berkeley Symp. (1956), 157-163 (empirical Bayes).
  Barlow, Bartholomew, Bremner & Brunk, Statistical Inference under Order Restrictions (1972), 13
  (pooling adjacent violators).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray, sums_at
from das.errors import SchemaError

# Bins of expected totals: wide enough to fit V to some thousand children, and narrow enough that V
# grows by at most a half within a bin where it grows as the square.
_EDGES = np.asarray(0.5 * 1.28 ** np.arange(72), np.float64)  # up to 2 * 10^7 persons
_FEWEST = 21  # least children of a bin that is used; default, not measured
# Squared deviations are summed as integers in these steps, so no sum depends on the task order.
STEPS, _MOST = 1024, 2.0**40
_OUTLIER = 3.5  # standard deviations; of a Gaussian, one in two thousand is further off
_ROUNDS = 3  # default, not measured
_PRIOR_CHILDREN = 5.0  # weight of the geolevel in the scale of a family; default, not measured
_SCALES = (0.15, 8.0)  # bounds of the scale of a family; default, not measured


@dataclass(frozen=True, eq=False)
class Children:
    """Public and noisy inputs for the G children of F parents, family after family.

    Attributes:
      noisy: float64[G], unbiased noisy totals of persons.
      variance: float64[G], their noise variances.
      units: float64[G], housing units of each child; public.
      apart: bool[G], which children have persons outside housing units, as in facilities; public.
      owners: int64[G], index of each child's parent, 0..F-1, ascending.
      parents: float64[F], released totals of the parents.
    """

    noisy: FloatArray
    variance: FloatArray
    units: FloatArray
    apart: BoolArray
    owners: IntArray
    parents: FloatArray

    def __post_init__(self) -> None:
        shapes = {len(values) for values in (self.noisy, self.variance, self.units, self.apart)}
        if shapes != {len(self.owners)} or not (self.variance > 0).all():
            raise SchemaError(
                "children", "need arrays of the same length and positive noise variances"
            )


@dataclass(frozen=True, eq=False)
class Expected:
    """Expected totals of children.

    Attributes:
      totals: float64[G], mu; for a flat child its noisy total, at least 0.
      flat: bool[G], children without an expected total.
    """

    totals: FloatArray
    flat: BoolArray


@dataclass(frozen=True, eq=False)
class Deviations:
    """Tally of deviations of noisy from expected counts, by bin of the expected count; mergeable.

    Attributes:
      children: int64[..., b], number of children, or of groups of their cells.
      expected: int64[..., b], sum of expected counts in steps.
      squares: int64[..., b], sum of (t - mu)^2 - Var e in steps.
      flat: Number of children without an expected total.
    """

    children: IntArray
    expected: IntArray
    squares: IntArray
    flat: int = 0


@dataclass(frozen=True, eq=False)
class TotalVariance:
    """Fitted variance V of true totals around the expected totals.

    Attributes:
      expected: float64[p], ascending expected totals.
      variance: float64[p], nondecreasing.
    """

    expected: FloatArray
    variance: FloatArray

    def of(self, totals: FloatArray) -> FloatArray:
        """Return the variance V at expected totals: linear between bins, quadratic above the last.

        V is at least 0.3 mu + 0.3: a default, not measured.
        """
        last = self.expected[-1]
        inside = np.interp(totals, self.expected, self.variance)
        above = (np.maximum(totals, last) / last) ** 2
        return np.asarray(np.maximum(inside * above, 0.3 * totals + 0.3))


def expect(children: Children, learned: TotalVariance | None = None) -> Expected:
    """Compute expected totals; outliers become flat.

    Args:
      children: The children of some parents.
      learned: Fitted V; None to detect outliers by a wide default variance alone.
    """
    flat = children.apart.copy()
    expected = _share(children, flat)
    for _ in range(_ROUNDS):
        mu = expected.totals
        # Default, not measured: persons per housing unit vary less than this.
        widest = 8 + 4 * mu + (mu / 4) ** 2
        if learned is not None:
            widest = np.minimum(widest, learned.of(mu))
        limit = _OUTLIER**2 * (widest + children.variance)
        flat = children.apart | ((children.noisy - mu) ** 2 > limit)
        expected = _share(children, flat)
    return expected


def _share(children: Children, flat: BoolArray) -> Expected:
    """Keep noisy totals of flat children; split the rest by housing units."""
    n, owners = len(children.parents), children.owners
    flat = flat | ~(children.units > 0)
    kept = np.where(flat, np.maximum(children.noisy, 0), 0.0)
    taken = np.bincount(owners, kept, n)
    fits = np.minimum(1.0, children.parents / np.maximum(taken, 1e-9))
    kept = kept * fits[owners]
    rest = children.parents - taken * fits
    units = np.where(flat, 0.0, children.units)
    per_unit = rest / np.maximum(np.bincount(owners, units, n), 1e-9)
    return Expected(np.where(flat, kept, units * per_unit[owners]), flat)


def deviations(children: Children) -> Deviations:
    """Tally the deviations of noisy totals from expected totals."""
    expected = expect(children)
    is_used = ~expected.flat & (expected.totals > 0)
    mu = expected.totals[is_used]
    square = (children.noisy[is_used] - mu) ** 2 - children.variance[is_used]
    return replace(tally_deviations(mu, square, _EDGES), flat=int(expected.flat.sum()))


def tally_deviations(expected: FloatArray, squares: FloatArray, edges: FloatArray) -> Deviations:
    """Tally squared deviations by bin of the expected count, for the edges between b bins.

    Args:
      expected: float64[G], expected totals.
      squares: float64[G], squared deviation less noise variance.
      edges: float64[b - 1], edges between b bins, ascending.
    """
    bins, size = np.digitize(expected, edges), len(edges) + 1
    mean, square = (sums_at(bins, _in_steps(part), size) for part in (expected, squares))
    return Deviations(np.bincount(bins, minlength=size), mean, square)


def _in_steps(values: FloatArray) -> IntArray:
    """Round values to whole steps of 1/1024, whose sums do not depend on their order."""
    return np.rint(np.clip(values, -_MOST, _MOST) * STEPS).astype(np.int64)


def merge(parts: Iterable[Deviations], *shape: int) -> Deviations:
    """Add up tallies of totals, or of chains with `shape` steps."""
    every = list(parts)
    zero = np.zeros((*shape, len(_EDGES) + 1), np.int64)
    return Deviations(
        sum((part.children for part in every), zero),
        sum((part.expected for part in every), zero),
        sum((part.squares for part in every), zero),
        sum(part.flat for part in every),
    )


def learn_variance(tally: Deviations) -> TotalVariance | None:
    """Fit the variance V of totals by bin, nondecreasing; None if no bin has enough children."""
    expected, variance = fit_by_bins(tally.children, tally.expected, tally.squares)
    if not len(expected):
        return None
    return TotalVariance(expected, np.maximum(variance, 0.3 * expected + 0.3))


def fit_by_bins(
    n: IntArray, expected: IntArray, squares: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Fit nondecreasing variances to the bins with enough children.

    Variances are rounded to three digits, so that they are equal on every machine.

    Args:
      n: int64[b], children of each bin.
      expected: int64[b], sum of expected counts of each bin, in steps of 1 / STEPS.
      squares: int64[b], sum of squared deviations of each bin, in steps of 1 / STEPS.

    Returns:
      Mean expected counts of these bins, ascending, and their variances, float64[p] each.
    """
    from scipy.optimize import isotonic_regression

    use = np.flatnonzero(n >= _FEWEST)
    weights = STEPS * n[use]
    pooled = isotonic_regression(squares[use] / weights, weights=n[use]).x if len(use) else []
    return expected[use] / weights, np.array([float(f"{value:.3g}") for value in pooled])


def family_scales(children: Children, expected: Expected, learned: TotalVariance) -> FloatArray:
    """Estimate the scale k_g of each family, float64[F]: its variance relative to V.

    A family g is a parent with its children; V is the fitted variance of a child's total. k_g is
    the mean over the children of ((t - mu)^2 - Var e) / V, weighted by information. Here t is the
    noisy total of a child, mu its expected total and Var e its noise variance. The mean includes
    five further children of scale 1, which shrink it toward 1. It is clipped to [0.15, 8].
    """
    n, owners = len(children.parents), children.owners
    usual, is_used = learned.of(expected.totals), ~expected.flat
    square = (children.noisy - expected.totals) ** 2 - children.variance
    information = np.where(is_used, 0.5 * (usual / (usual + children.variance)) ** 2, 0.0)
    above = np.bincount(owners, information * square / usual, n)
    below = np.bincount(owners, information, n)
    return np.clip((_PRIOR_CHILDREN + above) / (_PRIOR_CHILDREN + below), *_SCALES)


def family_scale(squares: FloatArray, usual: FloatArray, noise: FloatArray) -> float:
    """Estimate the scale of one family from squared deviations less their noise variance.

    Args:
      squares: float64[...], unbiased estimates of the variance.
      usual: float64[...], the fitted variance.
      noise: float64[...], noise variances of the deviations.
    """
    information = 0.5 * (usual / (usual + noise)) ** 2
    above = _PRIOR_CHILDREN + float((information * squares / usual).sum())
    return float(np.clip(above / (_PRIOR_CHILDREN + float(information.sum())), *_SCALES))


def answers(
    children: Children, learned: TotalVariance, kappa: float
) -> tuple[Expected, FloatArray]:
    """Compute expected totals, and their weights as answers about the totals of children.

    Args:
      children: The children of some parents.
      learned: The fitted variance V.
      kappa: Factor of V; values above 1 trust the noisy answers more.

    Returns:
      Expected totals, and float64[G] inverse variances; 0 for flat children.
    """
    expected = expect(children, learned)
    scale = family_scales(children, expected, learned)[children.owners]
    variance = scale * learned.of(expected.totals)
    return expected, np.where(expected.flat, 0.0, 1 / (kappa * variance))


def risk(
    noisy: FloatArray,
    variance: FloatArray,
    solved: FloatArray,
    shifted_noisy: FloatArray,
    shifted: FloatArray,
    step: float,
) -> FloatArray:
    """Estimate squared errors of answers from noisy answers alone, without bias (SURE).

    For an answer a'x with an unbiased linear estimate z of variance v, and an estimator f,

        R = (a'f(y) - z)^2 - v + 2 (z' - z) (a'f(y + d e) - a'f(y)) / d^2 ,

    where e has independent signs times the standard deviations of the noisy answers y, and z' is
    the estimate from y + d e. E R = E (a'f - a'x)^2 up to terms in d, if the noise is Gaussian and
    independent of the other inputs of f.

    Args:
      noisy: float64[...], z, the linear estimate of each answer.
      variance: float64[...], v, the variance of each linear estimate.
      solved: float64[...], a'f(y), the answers of the estimator.
      shifted_noisy: float64[...], z', the linear estimates from shifted noisy answers.
      shifted: float64[...], a'f(y + d e), the answers of the estimator from shifted noisy answers.
      step: d, the size of the shift in standard deviations of the noise.

    References:
      Stein, Ann. Statist. 9 (1981), 1135-1151; Ramani, Blu & Unser, IEEE Trans. Image Process. 17
      (2008), 1540-1554 (the divergence from one perturbation).
    """
    divergence = (shifted_noisy - noisy) * (shifted - solved) / step**2
    return np.asarray((solved - noisy) ** 2 - variance + 2 * divergence)
