"""Mean of the histogram given all noisy answers, under a prior learned from these answers.

A posterior mean has the smallest expected squared error for every linear query at once, sums and
single cells alike. The price that microdata pay for x >= 0 is a worst case over histograms;
a prior says which histograms to be good at, and can be wrong.

Prior: cells are independent; a cell is 0, or in one of the ranges [2^k, 2^{k+1}) grid steps, with
probabilities per class of cells. Classes come from what the coarse answers would give the cell if
they were independent: cells that should be empty, few, or many. Probabilities are learned by
expectation maximization inside the iteration, and drawn towards those of all cells.
Posterior: expectation propagation. Each factor (a cell's prior with its own answer; a coarse answer
with Laplace noise) is replaced by the Gaussian that gives the same mean and variance together with
all other factors; Gaussian noise of coarse answers needs no replacement.

References:
  Minka, "Expectation Propagation for Approximate Bayesian Inference", UAI 2001.
  Kiefer & Wolfowitz, Ann. Math. Statist. 27 (1956), 887-906 (mixtures learned from the data).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bench.studies.postprocessing_table import NoisyTable
from das.arrays import BoolArray, FloatArray, IntArray
from das.mechanisms.gaussian import Gaussian
from das.mechanisms.mechanism import Continuous

_POINTS = 128  # of the grid on which a cell's distribution lives
_STEPS_PER_DEVIATION = 8
_CLASS_LIMITS = (0.03, 0.3, 3.0)  # of the expected cell, in standard deviations
_PRIOR_STRENGTH = 30.0  # cells' worth of faith in the common probabilities
_PRIOR_ZERO = 0.8
_ROUNDS = 40
_DAMPING = 0.4
_SETTLED = 0.01  # standard deviations
_AT_ONCE = 50  # draws per batch: memory


@dataclass(eq=False)
class _Sites:
    """Gaussian stand-ins exp(shift x - precision x^2 / 2), per cell or coarse answer."""

    precision: FloatArray
    shift: FloatArray

    def move(self, precision: FloatArray, shift: FloatArray) -> None:
        """Go part of the way to new values."""
        self.precision = (1 - _DAMPING) * self.precision + _DAMPING * precision
        self.shift = (1 - _DAMPING) * self.shift + _DAMPING * shift


def posterior_mean(table: NoisyTable) -> FloatArray:
    """Return the approximate posterior mean of every draw, float64[R, n], nonnegative."""
    out = np.empty_like(table.cells.answers)
    rows, variances = table.coarse_rows(), table.coarse_variances()
    classes = classify(table)
    for begin in range(0, len(out), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        cells, coarse = table.cells.answers[part], table.coarse_answers()[part]
        prior = _Prior.start(cells, table.cells.variance, table.noise, classes[part])
        out[part] = _propagate(prior, rows, coarse, variances, table.noise)
    return out


def classify(table: NoisyTable) -> IntArray:
    """Class of each cell, int64[R, n], by the product of its shares in the coarse answers.

    A query that adds all cells up has no share to give; the smallest of the queries serves as the
    total.
    """
    expected = np.zeros(table.cells.answers.shape)
    if any(query.n_answers > 1 for query in table.coarse):
        first = min(table.coarse, key=lambda query: query.n_answers)
        total = np.maximum(first.answers.sum(1, keepdims=True), math.sqrt(first.variance))
        expected += total
        for query in table.coarse:
            if query.n_answers > 1:
                expected *= np.maximum(query.answers, 0.0)[:, query.groups] / total
    limits = np.array(_CLASS_LIMITS) * math.sqrt(table.cells.variance)
    return np.asarray(np.searchsorted(limits, expected, side="left"), np.int64)


@dataclass(eq=False)
class _Prior:
    """Distribution of each cell on its grid, with the likelihood of its own answer.

    Cells far above zero have a grid around their answer and a flat prior.

    Attributes:
      grid: float64[R, n, K].
      likelihood: float64[R, n, K], logs.
      near_zero: bool[R, n], cells with the common grid 0, h, 2h, ...
      classes: int64[R, n].
      weights: float64[R, classes, ranges], probabilities.
      variance: Of the noise of a cell.
    """

    grid: FloatArray
    likelihood: FloatArray
    near_zero: BoolArray
    classes: IntArray
    weights: FloatArray
    variance: float

    @classmethod
    def start(
        cls, answers: FloatArray, variance: float, noise: type[Continuous], classes: IntArray
    ) -> _Prior:
        """Before anything is learned."""
        step = max(1.0, math.sqrt(variance) / _STEPS_PER_DEVIATION)
        offset = np.maximum(answers - _POINTS * step / 2, 0.0)
        grid = offset[:, :, None] + step * np.arange(_POINTS)
        likelihood = noise.of_variance(variance).log_ratio(answers[:, :, None] - grid)
        weights = np.broadcast_to(_common(), (len(answers), len(_CLASS_LIMITS) + 1, _N_RANGES))
        return cls(grid, likelihood, offset == 0, classes, weights, variance)

    def moments(self, cavity: _Sites) -> tuple[FloatArray, FloatArray]:
        """Means and variances of the cells, each float64[R, n]; the prior learns on the way."""
        mean = (cavity.shift / cavity.precision)[:, :, None]
        density = self.likelihood - cavity.precision[:, :, None] * (self.grid - mean) ** 2 / 2
        logs = np.log(self.weights / _SIZES)[:, :, _RANGE]
        chosen = np.take_along_axis(logs, self.classes[:, :, None], axis=1)
        density += np.where(self.near_zero[:, :, None], chosen, 0.0)
        density -= density.max(2, keepdims=True)
        np.exp(density, out=density)
        density /= density.sum(2, keepdims=True)
        self._learn(density)
        center = np.einsum("rik,rik->ri", density, self.grid)
        spread = self.grid - center[:, :, None]
        spread *= spread
        return center, np.einsum("rik,rik->ri", density, spread)

    def _learn(self, density: FloatArray) -> None:
        """One step of expectation maximization."""
        mass = np.where(self.near_zero[:, :, None], density @ _MEMBER, 0.0)
        members = self.classes[:, None, :] == np.arange(self.weights.shape[1])[:, None]
        by_class = members.astype(float) @ mass
        together = by_class.sum(1, keepdims=True) + _PRIOR_STRENGTH * _common()
        together /= together.sum(2, keepdims=True)
        weights = by_class + _PRIOR_STRENGTH * together
        self.weights = weights / weights.sum(2, keepdims=True)


_RANGE = np.array([k.bit_length() for k in range(_POINTS)])
_N_RANGES = int(_RANGE.max()) + 1
_MEMBER = np.eye(_N_RANGES)[_RANGE]
_SIZES = _MEMBER.sum(0)


def _common() -> FloatArray:
    """Probabilities before anything is learned."""
    rest = (1 - _PRIOR_ZERO) / (_N_RANGES - 1)
    return np.concatenate([[_PRIOR_ZERO], np.full(_N_RANGES - 1, rest)])


def _propagate(
    prior: _Prior,
    rows: FloatArray,
    answers: FloatArray,
    variances: FloatArray,
    noise: type[Continuous],
) -> FloatArray:
    """Expectation propagation until the means settle."""
    flat = np.full(prior.classes.shape, 1 / prior.variance)
    own = np.einsum("rik,rik->ri", *_normalized(prior.likelihood, prior.grid))
    cells = _Sites(flat, own * flat)
    coarse = _Sites(np.broadcast_to(1 / variances, answers.shape), answers / variances)
    center = own
    for _ in range(_ROUNDS):
        spread = 1 / cells.precision
        before = cells.shift * spread
        weighted = rows * spread[:, None, :]
        sums = weighted @ rows.T
        inverse = np.linalg.inv(sums + _diagonal(1 / coarse.precision))
        missing = coarse.shift / coarse.precision - before @ rows.T
        adjoint = np.einsum("rjk,rk->rj", inverse, missing)
        mean = before + spread * (adjoint @ rows)
        variance = spread - spread**2 * ((inverse @ rows) * rows).sum(1)
        cavity = _without(mean, variance, cells)
        found, its_variance = prior.moments(cavity)
        settled = np.abs(found - center).max() <= _SETTLED * math.sqrt(prior.variance)
        center = found
        if settled:
            break
        cells.move(*_site(found, its_variance, cavity, prior.variance))
        if noise is not Gaussian and len(rows):
            gain = sums @ inverse
            mean = before @ rows.T + np.einsum("rjk,rk->rj", gain, missing)
            variance = np.einsum("rjj->rj", sums - gain @ sums)
            cavity = _without(mean, np.maximum(variance, 1e-9), coarse)
            moments = _noisy_moments(noise, answers, variances, cavity)
            coarse.move(*_site(*moments, cavity, variances))
    return np.asarray(center)


def _normalized(logs: FloatArray, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    density = np.exp(logs - logs.max(2, keepdims=True))
    return np.asarray(density / density.sum(2, keepdims=True)), grid


def _diagonal(values: FloatArray) -> FloatArray:
    return np.asarray(values[:, :, None] * np.eye(values.shape[1]))


def _without(mean: FloatArray, variance: FloatArray, sites: _Sites) -> _Sites:
    """All factors but one, for each one."""
    precision = np.maximum(1 / variance - sites.precision, 1e-9)
    return _Sites(precision, mean / variance - sites.shift)


def _site(
    mean: FloatArray, variance: FloatArray, cavity: _Sites, noise: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The Gaussian that turns the cavity into this mean and variance."""
    variance = np.maximum(variance, 1e-6 * noise)
    precision = np.clip(1 / variance - cavity.precision, 1e-4 / noise, 1e4 / noise)
    return precision, mean * (precision + cavity.precision) - cavity.shift


_Z = np.linspace(-6.0, 6.0, 161)


def _noisy_moments(
    noise: type[Continuous], answers: FloatArray, variances: FloatArray, cavity: _Sites
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a sum of cells, normal but for its own noisy answer."""
    deviation = np.sqrt(variances)[:, None]
    values = (cavity.shift / cavity.precision)[:, :, None] + _Z / np.sqrt(cavity.precision)[
        :, :, None
    ]
    standard = noise.of_variance(1.0)
    logs = standard.log_ratio((answers[:, :, None] - values) / deviation) - _Z**2 / 2
    density, _ = _normalized(logs, values)
    mean = (density * values).sum(2)
    return mean, (density * (values - mean[:, :, None]) ** 2).sum(2)
