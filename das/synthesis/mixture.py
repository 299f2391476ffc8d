"""A mixture of products, fitted to noisy tables, and records drawn of it.

Component k has a distribution q_ki over the levels of each attribute, and every component has the
same weight. With Q the L x K matrix of all of them and Q_c its attributes centered, the residuals
of all pairs are the blocks of Q_c Q_c' / K, one matrix product; their noise is white, so the
likelihood is a sum of squares. Adam minimizes it. Selected marginals of any number of attributes
have another loss, whose sums depend on the processor.

References:
  Kingma & Ba, ICLR 2015 (Adam).
  Vietri et al., RAP, ICML 2022 workshop, and Liu et al., GEM, NeurIPS 2021 (mixtures of products).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.synthesis import portable
from das.synthesis.model import NOTHING, Attributes, Model, Target
from das.synthesis.records import Domain, Generator, Measured, Merging, Records, unmerge
from das.synthesis.targets import Targets

_FIRST_MOMENT, _SECOND_MOMENT = 0.9, 0.999  # of Adam, as its authors have them
_LAST_STEP = 0.02  # of the first one, besides the schedule
_MOST_CELLS = 1 << 21  # 16 megabytes of expected numbers
_MOST_RECORDS = 1 << 24
_UNITS = float(1 << 38)  # times the most records is below 2^63
_LEAST_SHARE = 1e-6  # of a level in the start
_LEAST_CHANCE = 1e-12  # of a component, given levels that no component has


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


IN_ROUNDS = Fit(components=100, rate=0.1, starts=1)  # of a model between selections


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of K products with equal weights.

    Attributes:
      levels: Per attribute float64[K, n_i], probabilities of its levels; rows sum to 1.
    """

    levels: tuple[FloatArray, ...]

    def marginals(
        self, sets: Iterable[Attributes], given: Mapping[int, int] = NOTHING
    ) -> list[FloatArray]:
        """Return the shares by the levels of sets of attributes.

        Args:
          sets: Attributes numbered from 0.
          given: Levels of some attributes; shares are conditional on them.
        """
        chances = np.ones(len(self.levels[0]))
        for i, level in given.items():
            chances *= self.levels[i][:, level]
        chances += _LEAST_CHANCE
        chances /= chances.sum()
        return [shares_of([self.levels[i] for i in each], chances) for each in sets]

    def draw(self, n_records: int, rng: Generator) -> IntArray:
        """Draw records in random order, int64[n_records, d]."""
        return _codes(self, n_records, rng)[rng.permutation(n_records)]

    def admits(self, attributes: Attributes, most_cells: float) -> bool:
        """Return True: a mixture does not grow with the sets that it is fitted to."""
        return True


def products(levels: Sequence[FloatArray]) -> FloatArray:
    """Multiply levels to the probability of every combination, float64[K, combinations]."""
    table: FloatArray = np.ones((len(levels[0]), 1))
    for each in levels:
        table = (table[:, :, None] * each[:, None, :]).reshape(len(table), -1)
    return table


def shares_of(levels: Sequence[FloatArray], chances: FloatArray) -> FloatArray:
    """Return the shares of every combination of levels in a mixture, float64[n_i, ...].

    Args:
      levels: Per attribute, at least one, float64[K, n_i].
      chances: float64[K], weights of the components, summing to 1.
    """
    table = products((chances[:, None], *levels[:-1])).T @ levels[-1]
    return np.asarray(table.reshape([each.shape[1] for each in levels]))


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
    return _started(PairLoss.of(domain, targets), fit, rng)


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
    return _continued(PairLoss.of(domain, targets), fit, levels)


def fit_products(
    sizes: Sequence[int],
    targets: Mapping[Attributes, Target],
    steps: int,
    before: Model | None = None,
    *,
    fit: Fit = IN_ROUNDS,
    seed: int = 0,
) -> Mixture:
    """Fit a mixture of products to shares of marginals, as a `Fitter`; not the same everywhere.

    Minimizes sum over targets of weight (marginal - shares)^2.

    Args:
      sizes: Number of levels of each attribute.
      targets: By sets of attributes, every attribute alone among them: the fitted shares.
      steps: Number of steps of Adam.
      before: A mixture to start from; without one, starts are random.
      fit: Components, learning rate and starts.
      seed: Seed of the random starts.
    """
    loss, fit = MarginalLoss.of(sizes, targets), replace(fit, steps=steps)
    if isinstance(before, Mixture):
        return _continued(loss, fit, before.levels)
    return _started(loss, fit, np.random.default_rng(seed))  # noqa: TID251 - post-processing


def _started(loss: Loss, fit: Fit, rng: Generator) -> Mixture:
    """Minimize a loss from random starts, and take the components of all."""
    center = portable.log(np.maximum(loss.shares, _LEAST_SHARE))[:, None]
    fitted = []
    for _ in range(fit.starts):
        spread = rng.normal(0.0, 1.0, (len(loss.shares), fit.components))
        fitted.append(_descend(loss, fit, center + spread))
    return loss.mixture(np.concatenate(fitted, axis=1))


def _continued(loss: Loss, fit: Fit, levels: tuple[FloatArray, ...]) -> Mixture:
    """Minimize a loss from given components on."""
    start = np.concatenate([each.T for each in levels])
    return loss.mixture(_descend(loss, fit, portable.log(np.maximum(start, _LEAST_SHARE))))


@dataclass(frozen=True, eq=False)
class Loss(ABC):
    """The loss function of a fit, over the L concatenated levels of d attributes.

    Attributes:
      sizes: int64[d], levels of each attribute.
      starts: int64[d], index among the L levels of the first level of each attribute.
      shares: float64[L], shares of the levels, where random starts are.
    """

    sizes: IntArray
    starts: IntArray
    shares: FloatArray

    @abstractmethod
    def slope(self, probability: FloatArray) -> FloatArray:
        """Compute the gradient in the probabilities, float64[L, K], up to a factor."""

    def gradient(self, probability: FloatArray) -> FloatArray:
        """Compute the gradient in the scores, up to the factor of `slope`: float64[L, K]."""
        slope = self.slope(probability)
        moved = np.add.reduceat(probability * slope, self.starts, axis=0)
        slope -= np.repeat(moved, self.sizes, axis=0)
        slope *= probability
        return slope

    def normalized(self, scores: FloatArray) -> FloatArray:
        """Take the softmax of every attribute: float64[L, K]."""
        most = np.maximum.reduceat(scores, self.starts, axis=0)
        out = portable.exp(scores - np.repeat(most, self.sizes, axis=0))
        out /= np.repeat(np.add.reduceat(out, self.starts, axis=0), self.sizes, axis=0)
        return out

    def mixture(self, probability: FloatArray) -> Mixture:
        """Make a mixture of probabilities, float64[L, K]."""
        return Mixture(tuple(each.T.copy() for each in np.split(probability, self.starts[1:])))


@dataclass(frozen=True, eq=False)
class MarginalLoss(Loss):
    """Squared distance from shares of marginals.

    Attributes:
      targets: Sets of attributes, their shares float64[rest, n], and weights over the largest
        weight. The attribute with the most levels n comes last, and has the columns.
    """

    targets: tuple[tuple[Attributes, FloatArray, FloatArray], ...]

    @classmethod
    def of(cls, sizes: Sequence[int], targets: Mapping[Attributes, Target]) -> MarginalLoss:
        """Order the attributes of each target by their numbers of levels."""
        most = max(float(target.weight.max()) for target in targets.values())
        ordered = []
        for each, target in targets.items():
            axes = sorted(range(len(each)), key=lambda axis: sizes[each[axis]])
            weight = np.broadcast_to(target.weight / most, target.shares.shape)
            attributes = tuple(each[axis] for axis in axes)
            shares, weights = (
                table.transpose(axes).reshape(-1, sizes[attributes[-1]])
                for table in (target.shares, weight)
            )
            ordered.append((attributes, shares, weights))
        shares = np.concatenate([targets[i,].shares for i in range(len(sizes))])
        lengths = np.array(sizes)
        return cls(lengths, np.cumsum(lengths) - lengths, shares, tuple(ordered))

    def slope(self, probability: FloatArray) -> FloatArray:
        """Add up the gradients of all targets, times K / 2."""
        slope, n_components = np.zeros_like(probability), probability.shape[1]
        parts, slopes = np.split(probability, self.starts[1:]), np.split(slope, self.starts[1:])
        for (*first, last), shares, weights in self.targets:
            before = [np.ones((1, n_components))]  # products of the first attributes
            for i in first:
                before.append((before[-1][:, None] * parts[i]).reshape(-1, n_components))
            error = weights * (before[-1] @ parts[last].T / n_components - shares)
            slopes[last] += error.T @ before[-1]
            back = error @ parts[last]
            for i, known in zip(reversed(first), reversed(before[:-1]), strict=True):
                back = back.reshape(len(known), -1, n_components)
                slopes[i] += np.einsum("mik,mk->ik", back, known)
                back = np.einsum("mik,ik->mk", back, parts[i])
        return slope


@dataclass(frozen=True, eq=False)
class PairLoss(Loss):
    """Squared distance from the residuals of all pairs, and from one-way shares.

    Attributes:
      goal: float64[L, L], shares of the residuals of all pairs.
      weight: float64[L, L], weight of each entry of `goal`; 0 within an attribute.
      share_weight: float64[L], weights of `shares`.
    """

    goal: FloatArray
    weight: FloatArray
    share_weight: FloatArray

    @classmethod
    def of(cls, domain: Domain, targets: Targets) -> PairLoss:
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
        return cls(sizes, starts, shares, goal, weight / most, of_shares / most)

    def slope(self, probability: FloatArray) -> FloatArray:
        """Compute the gradient in the probabilities, times K: float64[L, K]."""
        n_components = probability.shape[1]
        centered = probability - self._mean(probability)
        error = self.weight * (portable.product(centered, centered.T) / n_components - self.goal)
        slope = 4.0 * portable.product(error, centered)
        alone = 8.0 * self.share_weight * (probability.sum(1) / n_components - self.shares)
        slope -= self._mean(slope)
        slope += alone[:, None]
        return slope

    def _mean(self, table: FloatArray) -> FloatArray:
        """Replace each entry by the mean over the levels of its attribute."""
        sums = np.add.reduceat(table, self.starts, axis=0)
        return np.asarray(np.repeat(sums / self.sizes[:, None], self.sizes, axis=0))


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
    codes = _codes(mixture, n_records, rng)
    return Records(domain, unmerge(codes, merging, rng)[rng.permutation(n_records)])


def _codes(mixture: Mixture, n_records: int, rng: Generator) -> IntArray:
    """Draw merged codes, int64[n_records, d], by cell if they are few, else by component.

    Raises:
      SchemaError: Too many records.
    """
    if not 0 <= n_records <= _MOST_RECORDS:
        raise SchemaError("records to draw", "are too many", got=n_records, want=_MOST_RECORDS)
    sizes = tuple(each.shape[1] for each in mixture.levels)
    if math.prod(sizes) <= _MOST_CELLS:
        return _rounded_cells(mixture, sizes, n_records, rng)
    return _by_component(mixture, n_records, rng)


def _rounded_cells(
    mixture: Mixture, sizes: tuple[int, ...], n_records: int, rng: Generator
) -> IntArray:
    """Draw merged codes by cell; each cell gets its expected number, rounded up or down."""
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
