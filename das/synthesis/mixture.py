"""A mixture of products, fitted to noisy one- and two-way tables at once, and records drawn of it.

Component k has a distribution q_ki over the levels of each attribute, and every component has the
same weight. With Q the K x L matrix of all of them and Q_c its attributes centered, the residuals
of all pairs are the blocks of Q_c' Q_c / K, one matrix product; their noise is white, so the
likelihood is a sum of squares. Adam minimizes it.

References:
  Kingma & Ba, ICLR 2015 (Adam).
  Vietri et al., RAP, ICML 2022 workshop, and Liu et al., GEM, NeurIPS 2021 (mixtures of products).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray
from das.synthesis.answers import Generator, Measured, Merging, unmerge
from das.synthesis.records import Domain, Records
from das.synthesis.targets import Targets

Singles = npt.NDArray[np.float32]

_FIRST_MOMENT, _SECOND_MOMENT = 0.9, 0.999  # of Adam, as its authors have them
_LAST_STEP = 0.02  # of the first one, besides the cosine


@dataclass(frozen=True)
class Fit:
    """How a mixture is fitted.

    Attributes:
      components: K.
      steps: Steps of Adam.
      rate: Its first step. 0.05 reached 0.1285 in three-way error on Adult where 0.1 reached 0.1313
        with 400 components; with 800 components 0.15 was better than both.
    """

    components: int = 800
    steps: int = 800
    rate: float = 0.15


@dataclass(frozen=True, eq=False)
class Mixture:
    """Per attribute float64[K, n_i], rows summing to 1."""

    domain: Domain
    levels: tuple[FloatArray, ...]

    def marginal(self, attributes: tuple[int, ...]) -> FloatArray:
        """Shares by the levels of some attributes, float64[n_i, ...]."""
        table = np.ones((len(self.levels[0]), 1))
        for i in attributes:
            table = (table[:, :, None] * self.levels[i][:, None, :]).reshape(len(table), -1)
        shape = [self.domain.sizes[i] for i in attributes]
        out: FloatArray = table.mean(0).reshape(shape)
        return out


def fit_mixture(domain: Domain, targets: Targets, fit: Fit, rng: Generator) -> Mixture:
    """Fit a mixture of products to targets.

    Minimizes sum_pairs |N Q_i' Q_j / K - y_ij|^2 / s_ij^2 + sum_i |N mean(Q_i) - y_i|^2 / s_i^2
    over centered tables; not convex, so a start drawn by `rng` decides which minimum is found.

    Args:
      domain: The merged domain.
      targets: Tables of it.
      fit: Components and steps.
      rng: For the start.
    """
    starts = np.concatenate([[0], np.cumsum(domain.sizes)])
    blocks = [slice(starts[i], starts[i + 1]) for i in range(len(domain.sizes))]
    length = int(starts[-1])
    goal, weight = _pairs_as_matrix(targets, blocks, length)
    shares = np.concatenate([table / targets.size for table in targets.one_way])
    own = np.concatenate(
        [
            np.full(size, (targets.size / deviation) ** 2)
            for size, deviation in zip(domain.sizes, targets.one_way_sd, strict=True)
        ]
    )
    largest = own.max()
    pairs = (goal.astype(np.float32), (weight / largest).astype(np.float32))
    one_way = (shares.astype(np.float32), (own / largest).astype(np.float32))
    scores = np.log(np.maximum(shares, 1e-6)) + rng.normal(0.0, 1.0, (fit.components, length))
    scores = scores.astype(np.float32)
    first, second = np.zeros_like(scores), np.zeros_like(scores)
    probability = _normalized(scores, blocks)
    for step in range(fit.steps):
        gradient = _gradient(probability, blocks, pairs, one_way)
        first = _FIRST_MOMENT * first + (1.0 - _FIRST_MOMENT) * gradient
        second = _SECOND_MOMENT * second + (1.0 - _SECOND_MOMENT) * gradient * gradient
        cosine = 0.5 * (1.0 + math.cos(math.pi * step / fit.steps)) + _LAST_STEP
        mean = first / (1.0 - _FIRST_MOMENT ** (step + 1))
        spread = np.sqrt(second / (1.0 - _SECOND_MOMENT ** (step + 1))) + 1e-9
        scores -= np.float32(fit.rate * cosine) * (mean / spread)
        probability = _normalized(scores, blocks)
    levels = []
    for block in blocks:
        exact = probability[:, block].astype(np.float64)
        levels.append(exact / exact.sum(1, keepdims=True))
    return Mixture(domain, tuple(levels))


def draw_records(
    mixture: Mixture, merging: Merging, domain: Domain, n_records: int, rng: Generator
) -> Records:
    """Draw records, components shared out equally and uniforms stratified within each.

    A merged level is drawn uniformly among those that it holds.

    Args:
      mixture: Over the merged domain.
      merging: From `domain` to it.
      domain: Of the records.
      n_records: How many; public, or made of noisy answers.
      rng: For the draws.
    """
    n_components = len(mixture.levels[0])
    per_component = np.bincount(np.arange(n_records) % n_components, minlength=n_components)
    owner = np.repeat(np.arange(n_components), per_component)
    codes = np.empty((n_records, len(domain.sizes)), np.int64)
    for i, probability in enumerate(mixture.levels):
        uniform = np.empty(n_records)
        start = 0
        for count in per_component:
            uniform[start : start + count] = (rng.permutation(count) + rng.random(count)) / count
            start += count
        cumulative = np.cumsum(probability, axis=1)
        merged = (uniform[:, None] > cumulative[owner]).sum(1)
        merged = np.minimum(merged, probability.shape[1] - 1)
        codes[:, i] = unmerge(merged, merging, i, rng)
    return Records(domain, codes[rng.permutation(n_records)])


def synthesize(
    measured: Measured, targets: Targets, fit: Fit, n_records: int, seed: int
) -> Records:
    """Fit and draw; a function of noisy answers and public numbers alone."""
    rng = np.random.default_rng(seed)  # noqa: TID251 - post-processing
    mixture = fit_mixture(measured.merged, targets, fit, rng)
    return draw_records(mixture, measured.merging, measured.domain, n_records, rng)


def _pairs_as_matrix(
    targets: Targets, blocks: list[slice], length: int
) -> tuple[FloatArray, FloatArray]:
    """Shares and weights of all pairs as symmetric float64[L, L], zero within an attribute."""
    goal, weight = np.zeros((length, length)), np.zeros((length, length))
    for (i, j), table in targets.pairs.items():
        goal[blocks[i], blocks[j]] = table / targets.size
        goal[blocks[j], blocks[i]] = table.T / targets.size
        precision = (targets.size / targets.pair_sd[i, j]) ** 2 / 2.0
        weight[blocks[i], blocks[j]] = weight[blocks[j], blocks[i]] = precision
    return goal, weight


def _normalized(scores: Singles, blocks: list[slice]) -> Singles:
    """Softmax of every attribute."""
    out = np.empty_like(scores)
    for block in blocks:
        part = scores[:, block]
        part = np.exp(part - part.max(1, keepdims=True))
        out[:, block] = part / part.sum(1, keepdims=True)
    return out


def _gradient(
    probability: Singles,
    blocks: list[slice],
    pairs: tuple[Singles, Singles],
    one_way: tuple[Singles, Singles],
) -> Singles:
    """Gradient of the loss in the scores, times K: float32[K, L]."""
    (goal, weight), (shares, own) = pairs, one_way
    n_components = len(probability)
    centered = np.empty_like(probability)
    for block in blocks:
        part = probability[:, block]
        centered[:, block] = part - part.mean(1, keepdims=True)
    error = weight * (centered.T @ centered / np.float32(n_components) - goal)
    by_level = np.float32(4.0) * (centered @ error)
    alone = np.float32(8.0) * own * (probability.mean(0) - shares)
    out = np.empty_like(probability)
    for block in blocks:
        part = by_level[:, block]
        part = part - part.mean(1, keepdims=True) + alone[block]
        share = probability[:, block]
        out[:, block] = share * (part - (share * part).sum(1, keepdims=True))
    return out
