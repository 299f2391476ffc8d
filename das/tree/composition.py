"""Cells of children expected by the composition of their parent: linear empirical Bayes.

Given the total T of a child and its expected total mu (`das.tree.covariate`), its cells are about
those of its parent, scaled. Along a chain of nested partitions, such as race and then single cells,
group s of group G with the parent's share pi_s = p_s / p_G has

    E x_s = mu p_s / P,   Cov(x_s, x_t | x_G) = D_s [s = t] - D_s D_t / sum_G D,   D_s = D(E x_s),

and totals have the variance V. D is learned as V is, from noisy answers alone: z_s - pi_s z_G is
free of the total, and E (z_s - pi_s z_G)^2 = D_s (1 - pi_s) + noise where D goes as pi. With m and
Sigma so expected, and information H and adjoint b of the noisy answers,

    y = m + Sigma (I + H Sigma)^-1 (b - H m),     S = Sigma (I + H Sigma)^-1,

is the best linear estimate of a child's cells, and y + S_b (sum S)^-1 (p - sum y) of all children
whose sum p is known. What is read is what `das.tree.covariate` reads; the result is biased toward
the composition of the parent, so groups lose where they are concentrated.

References:
  Efron & Morris, J. Amer. Statist. Assoc. 70 (1975), 311-319; Robinson, Statist. Sci. 6 (1991),
  15-32 (best linear prediction).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.tree.covariate import Deviations, learned_by_bins, scale, tallied

_EDGES = np.asarray(0.02 * 1.35 ** np.arange(72), np.float64)  # of what is expected of a group
_FLAT = 1e4  # variance of a total of which nothing is expected, over that of its noise
_FLOOR = 0.7  # of D over what is expected; below it cells would be nearer than if drawn at random


@dataclass(frozen=True, eq=False)
class Family:
    """A parent and its C children in its k live cells.

    Attributes:
      parent: float64[k], its counts, all positive.
      chain: int64[l, k], groups of the cells, each row within the one before; the last has single
        cells, and the first may have all in one.
      information: float64[C, k, k], H.
      adjoint: float64[C, k], b.
      totals: float64[C], expected.
      flat: bool[C], children of whose totals nothing is expected.
    """

    parent: FloatArray
    chain: IntArray
    information: FloatArray
    adjoint: FloatArray
    totals: FloatArray
    flat: BoolArray


@dataclass(frozen=True, eq=False)
class Dispersion:
    """D, by step of the chain, as learned.

    Attributes:
      expected: Of each step, float64[p], rising.
      variance: Of each step, float64[p], nondecreasing.
    """

    expected: tuple[FloatArray, ...]
    variance: tuple[FloatArray, ...]

    def of(self, step: int, expected: FloatArray) -> FloatArray:
        """D of what is expected of groups of a step; as in a Poisson where nothing was learned."""
        if not len(self.expected[step]):
            return expected
        last = self.expected[step][-1]
        inside = np.interp(expected, self.expected[step], self.variance[step])
        above = np.maximum(expected, last) / last
        return np.asarray(np.maximum(inside * above, _FLOOR * expected))


@dataclass(frozen=True, eq=False)
class _Step:
    """Groups of one step of the chain that have others beside them in their own.

    Attributes:
      number: Of the step.
      expected: float64[C, m], of the groups.
      squares: float64[C, m], squared residuals less their noise, over 1 - pi.
      noise: float64[C, m], of the residuals, over 1 - pi.
    """

    number: int
    expected: FloatArray
    squares: FloatArray
    noise: FloatArray


def _steps(family: Family) -> Iterator[_Step]:
    """Residuals of every step of the chain."""
    covariance = np.linalg.inv(family.information)
    noisy = (covariance @ family.adjoint[:, :, None])[:, :, 0]
    k, whole = len(family.parent), np.zeros(len(family.parent), np.int64)
    everybody = family.parent.sum()
    for number, groups in enumerate(family.chain):
        above = whole if number == 0 else family.chain[number - 1]
        size = int(groups.max()) + 1
        within = np.zeros(size, np.int64)
        within[groups] = above
        persons = np.bincount(groups, family.parent, size)
        share = persons / np.bincount(within, persons)[within]
        used = np.flatnonzero(share < 0.98)  # the others are nearly all there is of theirs
        if not len(used):
            continue
        map_to = np.zeros((len(used), k))
        map_to[:] = groups[None, :] == used[:, None]
        map_to -= share[used][:, None] * (above[None, :] == within[used][:, None])
        residual = noisy @ map_to.T
        noise = np.einsum("mk,ckj,mj->cm", map_to, covariance, map_to, optimize=True)
        rest = 1 - share[used]
        expected = family.totals[:, None] * persons[used] / everybody
        yield _Step(number, expected, (residual**2 - noise) / rest, noise / rest)


def residuals(family: Family) -> Deviations:
    """Tally how far the noisy groups of the children of a family are from its composition.

    Rows are steps of the chain.
    """
    known = ~family.flat & (family.totals > 0)
    none = np.zeros(0)
    found = [tallied(none, none, _EDGES)] * len(family.chain)
    for step in _steps(family):
        mean, squares = step.expected[known].ravel(), step.squares[known].ravel()
        found[step.number] = tallied(mean, squares, _EDGES)
    return Deviations(
        np.stack([one.children for one in found]),
        np.stack([one.expected for one in found]),
        np.stack([one.squares for one in found]),
    )


def learn_dispersion(seen: Deviations) -> Dispersion:
    """D of every step of the chain, pooled to be nondecreasing."""
    steps = zip(seen.children, seen.expected, seen.squares, strict=True)
    found = [learned_by_bins(*step) for step in steps]
    return Dispersion(
        tuple(mean for mean, _ in found),
        tuple(np.maximum(variance, _FLOOR * mean) for mean, variance in found),
    )


def posterior(
    family: Family, variance: FloatArray, dispersion: Dispersion, kappa: float
) -> FloatArray:
    """float64[C, k]: best linear estimates of the cells of the children, which sum to the parent.

    Args:
      family: The family.
      variance: float64[C], of its totals around those expected, with factors; of flat ones none.
      dispersion: D.
      kappa: Factor of D; more than 1 is on the side of the noisy answers.
    """
    n_children, k = family.adjoint.shape
    spreads = scales(family, dispersion)
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
        apart = kappa * spreads[number] * dispersion.of(number, mean)
        one_each = np.zeros(k)
        one_each[np.unique(groups, return_index=True)[1]] = 1
        sums = np.stack([np.bincount(above, one * one_each) for one in apart])[:, above]
        same, within = groups[:, None] == groups[None, :], above[:, None] == above[None, :]
        own = apart[:, :, None] * same
        own -= within * (apart[:, :, None] * apart[:, None, :] / np.maximum(sums, 1e-9)[:, :, None])
        covariance = covariance * np.outer(pi, pi) + own
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


def scales(family: Family, dispersion: Dispersion) -> FloatArray:
    """float64[l]: how much more the composition of these children varies than is usual."""
    out = np.ones(len(family.chain))
    known = ~family.flat & (family.totals > 0)
    for step in _steps(family):
        usual = dispersion.of(step.number, step.expected[known])
        out[step.number] = scale(step.squares[known], usual, step.noise[known])
    return out
