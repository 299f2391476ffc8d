"""A mixture of products, fitted to noisy one- and two-way tables at once, and records drawn of it.

Component k has a distribution q_ki over the levels of each attribute, and every component has the
same weight. With Q the L x K matrix of all of them and Q_c its attributes centered, the residuals
of all pairs are the blocks of Q_c Q_c' / K, one matrix product; their noise is white, so the
likelihood is a sum of squares. Adam minimizes it.

References:
  Kingma & Ba, ICLR 2015 (Adam).
  Vietri et al., RAP, ICML 2022 workshop, and Liu et al., GEM, NeurIPS 2021 (mixtures of products).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.synthesis import portable
from das.synthesis.records import Domain, Generator, Measured, Merging, Records, unmerge
from das.synthesis.targets import Targets

_FIRST_MOMENT, _SECOND_MOMENT = 0.9, 0.999  # of Adam, as its authors have them
_LAST_STEP = 0.02  # of the first one, besides the schedule
_MOST_CELLS = 1 << 21  # 16 megabytes of expected numbers
_MOST_RECORDS = 1 << 24
_UNITS = float(1 << 38)  # times the most records is below 2^63
_LEAST_SHARE = 1e-6  # of a level in the start


@dataclass(frozen=True)
class Fit:
    """Parameters of the fit of a mixture.

    Two-way tables do not determine higher-order structure. A single fit fills it by chance; the
    mean of several fits does not. On the data set Adult at epsilon 1, one fit with 800 components
    and 800 steps had a three-way error of 0.124. Twelve fits with the defaults had 0.109, and each
    took half the time (`bench.synthesis`).

    Attributes:
      components: Number of components of each fit. Fewer than 200 gave larger errors at epsilon 5.
      steps: Number of steps of the optimizer Adam.
      rate: Initial step size of Adam.
      starts: Number of fits from random starts; the mixture has the components of all fits.
    """

    components: int = 200
    steps: int = 400
    rate: float = 0.25
    starts: int = 12


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of K products with equal weights.

    Attributes:
      domain: The merged domain.
      levels: Per attribute float64[K, n_i], probabilities of its levels; rows sum to 1.
    """

    domain: Domain
    levels: tuple[FloatArray, ...]


def products(levels: Sequence[FloatArray]) -> FloatArray:
    """Multiply levels to the probability of every combination, float64[K, combinations]."""
    table: FloatArray = np.ones((len(levels[0]), 1))
    for each in levels:
        table = (table[:, :, None] * each[:, None, :]).reshape(len(table), -1)
    return table


def fit_mixture(domain: Domain, targets: Targets, fit: Fit, rng: Generator) -> Mixture:
    """Fit a mixture of products to targets, several times, and take all components.

    Minimizes sum_pairs |N Q_i' Q_j / K - y_ij|^2 / s_ij^2 + sum_i |N mean(Q_i) - y_i|^2 / s_i^2
    over centered tables; not convex, so a start drawn by `rng` decides which minimum is found.

    Args:
      domain: The merged domain.
      targets: Tables over the merged domain that are fitted.
      fit: Components, steps and starts.
      rng: Generator of the starts.

    Returns:
      A mixture of starts x components products; the same on every processor for equal targets.
    """
    loss = Loss.of(domain, targets)
    center = portable.log(np.maximum(loss.shares, _LEAST_SHARE))[:, None]
    fitted = []
    for _ in range(fit.starts):
        spread = rng.normal(0.0, 1.0, (len(loss.shares), fit.components))
        fitted.append(_descend(loss, fit, center + spread))
    return _mixture(domain, loss, np.concatenate(fitted, axis=1))


def refit_mixture(
    domain: Domain, targets: Targets, fit: Fit, levels: tuple[FloatArray, ...]
) -> Mixture:
    """Fit a mixture of products to targets from given components on.

    Args:
      domain: The merged domain.
      targets: Tables over the merged domain that are fitted.
      fit: Number of steps and learning rate; its components and starts are not used.
      levels: Per attribute float64[K, n_i], the components to start from.
    """
    loss = Loss.of(domain, targets)
    start = np.concatenate([each.T for each in levels])
    scores = portable.log(np.maximum(start, _LEAST_SHARE))
    return _mixture(domain, loss, _descend(loss, fit, scores))


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss function of a fit, over the L concatenated levels of d attributes.

    Attributes:
      sizes: int64[d], levels of each attribute.
      starts: int64[d], index among the L levels of the first level of each attribute.
      goal: float64[L, L], shares of the residuals of all pairs.
      weight: float64[L, L], weight of each entry of `goal`; 0 within an attribute.
      shares: float64[L], of the levels.
      share_weight: float64[L], weights of the levels.
    """

    sizes: IntArray
    starts: IntArray
    goal: FloatArray
    weight: FloatArray
    shares: FloatArray
    share_weight: FloatArray

    @classmethod
    def of(cls, domain: Domain, targets: Targets) -> Loss:
        """Write the targets as matrices; weights are divided by the largest weight of a share."""
        sizes = np.array(domain.sizes)
        starts = np.cumsum(sizes) - sizes
        blocks = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        goal, weight = np.zeros((2, int(sizes.sum()), int(sizes.sum())))
        for (i, j), table in targets.pairs.items():
            goal[blocks[i], blocks[j]] = table / targets.size
            goal[blocks[j], blocks[i]] = table.T / targets.size
            precision = (targets.size / targets.pair_sd[i, j]) ** 2 / 2.0
            weight[blocks[i], blocks[j]] = weight[blocks[j], blocks[i]] = precision
        of_shares = np.repeat((targets.size / targets.one_way_sd) ** 2, sizes)
        shares = np.concatenate(targets.one_way) / targets.size
        most = of_shares.max()
        return cls(sizes, starts, goal, weight / most, shares, of_shares / most)

    def normalized(self, scores: FloatArray) -> FloatArray:
        """Take the softmax of every attribute: float64[L, K]."""
        most = np.maximum.reduceat(scores, self.starts, axis=0)
        out = portable.exp(scores - np.repeat(most, self.sizes, axis=0))
        out /= np.repeat(np.add.reduceat(out, self.starts, axis=0), self.sizes, axis=0)
        return out

    def gradient(self, probability: FloatArray) -> FloatArray:
        """Compute the gradient in the scores, times K: float64[L, K]."""
        n_components = probability.shape[1]
        centered = probability - self._mean(probability)
        error = self.weight * (portable.product(centered, centered.T) / n_components - self.goal)
        slope = 4.0 * portable.product(error, centered)
        alone = 8.0 * self.share_weight * (probability.sum(1) / n_components - self.shares)
        slope -= self._mean(slope)
        slope += alone[:, None]
        moved = np.add.reduceat(probability * slope, self.starts, axis=0)
        slope -= np.repeat(moved, self.sizes, axis=0)
        slope *= probability
        return slope

    def _mean(self, table: FloatArray) -> FloatArray:
        """Replace each entry by the mean over the levels of its attribute."""
        sums = np.add.reduceat(table, self.starts, axis=0)
        return np.asarray(np.repeat(sums / self.sizes[:, None], self.sizes, axis=0))


def _mixture(domain: Domain, loss: Loss, probability: FloatArray) -> Mixture:
    ends = loss.starts + loss.sizes
    return Mixture(
        domain,
        tuple(probability[a:b].T.copy() for a, b in zip(loss.starts, ends, strict=True)),
    )


def _descend(loss: Loss, fit: Fit, scores: FloatArray) -> FloatArray:
    """Return the probabilities after all steps of Adam, float64[L, K].

    Args:
      loss: The loss to minimize.
      fit: Number of steps and learning rate.
      scores: float64[L, K], the scores to start from.
    """
    scores = scores.copy()
    first, second = np.zeros_like(scores), np.zeros_like(scores)
    power_1 = power_2 = 1.0
    for step in range(fit.steps):
        gradient = loss.gradient(loss.normalized(scores))
        power_1, power_2 = power_1 * _FIRST_MOMENT, power_2 * _SECOND_MOMENT
        first += (1.0 - _FIRST_MOMENT) * (gradient - first)
        gradient *= gradient
        second += (1.0 - _SECOND_MOMENT) * (gradient - second)
        t = step / fit.steps
        rate = fit.rate * (1.0 - t * t * (3.0 - 2.0 * t) + _LAST_STEP)  # falls as a cosine does
        size = np.sqrt(second / (1.0 - power_2))
        size += 1e-9
        scores -= rate / (1.0 - power_1) * first / size
    return loss.normalized(scores)


def draw_records(
    mixture: Mixture, merging: Merging, domain: Domain, n_records: int, rng: Generator
) -> Records:
    """Draw records from a mixture, with less variance than independent draws.

    Up to `_MOST_CELLS` cells, the expected number in each cell is rounded up or down by systematic
    sampling in the order of cells. So marginals on leading attributes are within 1 of expectation.
    With more cells, every component gets equally many records, drawn by stratified uniforms.

    A merged level is replaced by one of its levels, all equally likely.

    Args:
      mixture: Mixture over the merged domain.
      merging: Merging of the levels of `domain`.
      domain: Domain of the records.
      n_records: Number of records, up to 2^24; public, or from noisy answers.
      rng: Generator of the draws.

    Raises:
      SchemaError: Too many records.
    """
    if not 0 <= n_records <= _MOST_RECORDS:
        raise SchemaError("records to draw", "are too many", got=n_records, want=_MOST_RECORDS)
    if math.prod(mixture.domain.sizes) <= _MOST_CELLS:
        codes = _rounded_cells(mixture, n_records, rng)
    else:
        codes = _by_component(mixture, n_records, rng)
    return Records(domain, unmerge(codes, merging, rng)[rng.permutation(n_records)])


def _rounded_cells(mixture: Mixture, n_records: int, rng: Generator) -> IntArray:
    """Draw merged codes by cell; each cell gets its expected number, rounded up or down."""
    sizes = mixture.domain.sizes
    first = next(k for k in range(len(sizes)) if math.prod(sizes[: k + 1]) ** 2 >= math.prod(sizes))
    leading = products(mixture.levels[: first + 1])
    rest = mixture.levels[first + 1 :]
    trailing = products(rest) if rest else np.ones((len(leading), 1))
    expected = (leading.T @ trailing).reshape(-1)
    # In whole numbers, of which the last digits of a product of floats are no part.
    reached = np.cumsum(np.rint(expected * (_UNITS / expected.sum())).astype(np.int64))
    total = int(reached[-1])
    ends = (reached * n_records + int(rng.integers(total))) // total
    cells = np.repeat(np.arange(len(expected)), np.diff(ends, prepend=0))
    return np.stack(np.unravel_index(cells, sizes), axis=1).astype(np.int64)


def _by_component(mixture: Mixture, n_records: int, rng: Generator) -> IntArray:
    """Draw merged codes, int64[n_records, d]: the records of component 0 first, then of 1, ..."""
    n_components = len(mixture.levels[0])
    per_component = np.bincount(np.arange(n_records) % n_components, minlength=n_components)
    owner = np.repeat(np.arange(n_components), per_component)
    codes = np.empty((n_records, len(mixture.levels)), np.int64)
    for i, probability in enumerate(mixture.levels):
        uniform = np.empty(n_records)
        start = 0
        for count in per_component:
            uniform[start : start + count] = (rng.permutation(count) + rng.random(count)) / count
            start += count
        cumulative = np.cumsum(probability, axis=1)
        merged = (uniform[:, None] > cumulative[owner]).sum(1)
        codes[:, i] = np.minimum(merged, probability.shape[1] - 1)
    return codes


def synthesize(
    measured: Measured, targets: Targets, fit: Fit, n_records: int, seed: int
) -> Records:
    """Fit a mixture and draw records; a function of noisy answers and public numbers alone.

    Args:
      measured: The noisy answers.
      targets: The targets of the fit, from the noisy answers.
      fit: Parameters of the fit.
      n_records: Number of records to draw.
      seed: Seed of the fit and of the draws.
    """
    rng = np.random.default_rng(seed)  # noqa: TID251 - post-processing
    mixture = fit_mixture(measured.merged, targets, fit, rng)
    return draw_records(mixture, measured.merging, measured.domain, n_records, rng)
