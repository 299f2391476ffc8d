"""Cells of children expected by the composition of their parent: linear empirical Bayes.

The expected total mu of a child comes from `das.tree.covariate`. Its expected cells are the
cells of its parent, scaled to mu. Along a chain of nested partitions, such as race and then single
cells, group s of group G with the parent's share pi_s = p_s / p_G has

    E x_s = mu p_s / P,   Cov(x_s, x_t | x_G) = D_s [s = t] - D_s D_t / sum_G D,   D_s = D(E x_s),

and totals have the variance V. Both V and D are fitted to noisy answers alone. The residual
z_s - pi_s z_G does not depend on the total, and E (z_s - pi_s z_G)^2 = D_s (1 - pi_s) + noise where
D is proportional to pi. With the expectation m and covariance Sigma of this model, and information
H and adjoint b of the noisy answers,

    y = m + Sigma (I + H Sigma)^-1 (b - H m),     S = Sigma (I + H Sigma)^-1,

is the best linear estimate of a child's cells. For all children, whose sum p is known, it is
y + S_b (sum S)^-1 (p - sum y). The inputs are noisy or public, as in `das.tree.covariate`, so this
is post-processing. The estimate is biased toward the composition of the parent: counts of a group
are too low in a child where the group is concentrated.

References:
  Efron & Morris, J. Amer. Statist. Assoc. 70 (1975), 311-319; Robinson, Statist. Sci. 6 (1991),
  15-32 (best linear prediction).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.tree.covariate import Deviations, family_scale, fit_by_bins, tally_deviations

# Defaults, not measured.
_EDGES = np.asarray(0.02 * 1.35 ** np.arange(72), np.float64)  # bins of expected group counts
_FLAT = 1e4  # variance of a total without an expectation, over its noise variance
_FLOOR = 0.7  # least D over the expected count; Poisson counts have 1


@dataclass(frozen=True, eq=False)
class Family:
    """Parent with C children, restricted to the parent's k positive cells.

    Attributes:
      parent: float64[k], counts of the parent, all positive.
      chain: int64[l, k], nested partitions of the cells, coarsest first; the last row has single
        cells.
      information: float64[C, k, k], H.
      adjoint: float64[C, k], b, the sum over queries of Q'y / variance.
      totals: float64[C], expected totals.
      flat: bool[C], children without an expected total.
    """

    parent: FloatArray
    chain: IntArray
    information: FloatArray
    adjoint: FloatArray
    totals: FloatArray
    flat: BoolArray


@dataclass(frozen=True, eq=False)
class Dispersion:
    """Fitted dispersion D by step of the chain.

    Attributes:
      expected: Per step, float64[p], increasing expected counts.
      variance: Per step, float64[p], D at these counts, nondecreasing.
    """

    expected: tuple[FloatArray, ...]
    variance: tuple[FloatArray, ...]

    def of(self, step: int, expected: FloatArray) -> FloatArray:
        """Return the dispersion D at expected counts of a step; as for Poisson if not fitted.

        Args:
          step: Index of the step of the chain.
          expected: Expected counts.
        """
        if not len(self.expected[step]):
            return expected
        last = self.expected[step][-1]
        inside = np.interp(expected, self.expected[step], self.variance[step])
        above = np.maximum(expected, last) / last
        return np.asarray(np.maximum(inside * above, _FLOOR * expected))


@dataclass(frozen=True, eq=False)
class _Step:
    """Residuals of the groups of one step of the chain; groups alone in theirs are left out.

    Attributes:
      number: Index of the step.
      expected: float64[C, m], expected counts of the groups.
      squares: float64[C, m], squared residuals less noise variance, over 1 - pi.
      noise: float64[C, m], noise variances of the residuals, over 1 - pi.
    """

    number: int
    expected: FloatArray
    squares: FloatArray
    noise: FloatArray


def _steps(family: Family) -> Iterator[_Step]:
    """Yield per step of the chain squared residuals of single groups, not yet tallied or summed."""
    covariance = np.linalg.inv(family.information)
    noisy = (covariance @ family.adjoint[:, :, None])[:, :, 0]
    k, whole = len(family.parent), np.zeros(len(family.parent), np.int64)
    for number, groups in enumerate(family.chain):
        above = whole if number == 0 else family.chain[number - 1]
        size = int(groups.max()) + 1
        within = np.zeros(size, np.int64)
        within[groups] = above
        persons = np.bincount(groups, family.parent, size)
        share = persons / np.bincount(within, persons)[within]
        used = np.flatnonzero(share < 0.98)  # default, not measured: 1 - pi is a divisor
        if not len(used):
            continue
        map_to = np.zeros((len(used), k))
        map_to[:] = groups[None, :] == used[:, None]
        map_to -= share[used][:, None] * (above[None, :] == within[used][:, None])
        residual = noisy @ map_to.T
        noise = np.einsum("mk,ckj,mj->cm", map_to, covariance, map_to, optimize=True)
        rest = 1 - share[used]
        expected = family.totals[:, None] * persons[used] / family.parent.sum()
        yield _Step(number, expected, (residual**2 - noise) / rest, noise / rest)


def residuals(family: Family) -> Deviations:
    """Tally the deviations of noisy group counts of children from the parent's composition.

    Rows of the result are steps of the chain.
    """
    known = ~family.flat & (family.totals > 0)
    none = np.zeros(0)
    tallies = [tally_deviations(none, none, _EDGES)] * len(family.chain)
    for step in _steps(family):
        mean, squares = step.expected[known].ravel(), step.squares[known].ravel()
        tallies[step.number] = tally_deviations(mean, squares, _EDGES)
    return Deviations(
        np.stack([tally.children for tally in tallies]),
        np.stack([tally.expected for tally in tallies]),
        np.stack([tally.squares for tally in tallies]),
    )


def learn_dispersion(deviations: Deviations) -> Dispersion:
    """Fit the dispersion D of every step of the chain, nondecreasing in the expected count."""
    steps = zip(deviations.children, deviations.expected, deviations.squares, strict=True)
    fits = [fit_by_bins(*step) for step in steps]
    return Dispersion(
        tuple(mean for mean, _ in fits),
        tuple(np.maximum(variance, _FLOOR * mean) for mean, variance in fits),
    )


def posterior(
    family: Family, variance: FloatArray, dispersion: Dispersion, kappa: float
) -> FloatArray:
    """Return best linear estimates of the children's cells, float64[C, k], that sum to the parent.

    Args:
      family: A parent and its children.
      variance: float64[C], variance of true totals around expected ones; not used for flat ones.
      dispersion: The fitted dispersion D.
      kappa: Factor of D; values above 1 trust the noisy answers more.
    """
    n_children, k = family.adjoint.shape
    spreads = family_scales(family, dispersion)
    noise = 1 / np.maximum(family.information.sum((1, 2)) / k**2, 1e-300)
    of_totals = np.where(family.flat, _FLAT * noise, variance)
    covariance = of_totals[:, None, None] * np.ones((n_children, k, k))
    share = family.parent / family.parent.sum()
    whole = np.zeros(k, np.int64)
    for number, groups in enumerate(family.chain):
        above = whole if number == 0 else family.chain[number - 1]
        persons = np.bincount(groups, family.parent)[groups]
        pi = persons / np.bincount(above, family.parent)[above]
        mean = family.totals[:, None] * persons / family.parent.sum()
        diagonal = kappa * spreads[number] * dispersion.of(number, mean)
        one_each = np.zeros(k)
        one_each[np.unique(groups, return_index=True)[1]] = 1
        sums = np.stack([np.bincount(above, row * one_each) for row in diagonal])[:, above]
        same, within = groups[:, None] == groups[None, :], above[:, None] == above[None, :]
        outer = diagonal[:, :, None] * diagonal[:, None, :]
        step = diagonal[:, :, None] * same
        step -= within * (outer / np.maximum(sums, 1e-9)[:, :, None])
        covariance = covariance * np.outer(pi, pi) + step
    mean = family.totals[:, None] * share
    gap = family.adjoint - (family.information @ mean[:, :, None])[:, :, 0]
    gain = np.linalg.solve(
        np.eye(k) + family.information @ covariance,
        np.concatenate([gap[:, :, None], np.broadcast_to(np.eye(k), (n_children, k, k))], axis=2),
    )
    estimate = mean + (covariance @ gain[:, :, :1])[:, :, 0]
    left = covariance @ gain[:, :, 1:]
    ridge = 1e-9 * np.trace(left.sum(0)) / k
    adjusted = np.linalg.solve(left.sum(0) + ridge * np.eye(k), family.parent - estimate.sum(0))
    return np.asarray(estimate + left @ adjusted)


def family_scales(family: Family, dispersion: Dispersion) -> FloatArray:
    """Estimate the ratio of the variance of a family to D, per step of the chain, float64[l].

    Args:
      family: A parent and its children.
      dispersion: The fitted dispersion D.
    """
    out = np.ones(len(family.chain))
    known = ~family.flat & (family.totals > 0)
    for step in _steps(family):
        usual = dispersion.of(step.number, step.expected[known])
        out[step.number] = family_scale(step.squares[known], usual, step.noise[known])
    return out
