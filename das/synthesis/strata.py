"""Synthetic microdata from a pooled model and from strata that are shrunk toward it.

Part of rho measures the whole population. The rest measures every stratum in parallel: strata are
disjoint, so together they cost as much as one. The answers of each stratum are shrunk toward the
pooled model, conditional on the stratum. So large strata keep their differences from the pooled
model; small, noisy strata follow it.

Strata and their weights are public. Combinations of levels with too small weights are pooled in one
stratum, so every record is in a stratum.

References:
  Rosenblatt, Stoyanovich & Musco, Stratification against the disparate impact of differential
  privacy (strata in parallel, public weights).
  Paule & Mandel, J. Res. Natl. Bur. Stand. 87 (1982), 377-385 (variance between groups).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.synthesis.graphical import fit_model
from das.synthesis.mixture import (
    Fit,
    draw_records,
    fit_mixture,
    products,
    refit_mixture,
    shares_of,
)
from das.synthesis.model import Attributes, Fitter, Model, Target, targets_of_marginals
from das.synthesis.records import (
    ChosenMarginals,
    Domain,
    Generator,
    Measured,
    NoisyAnswer,
    Records,
    sum_rho,
    unmerge,
)
from das.synthesis.targets import Targets, centered, residual_block, rounded, targets_of

# A stratum starts from the pooled model, so it takes fewer and smaller steps.
STRATUM_FIT = Fit(components=400, steps=200, rate=0.05, starts=1)
_SURPRISE = 3.0  # standard deviations by which a noisy size must contradict the public one
_HALVINGS = 60  # of an interval; what remains of it is 10^-18
# Standard deviations of a sum of squares. At epsilon 0.1 the population-wide error was 18 % above
# the error without strata with 1, and 15 % with 2; at epsilon 5 it did not matter (four seeds of
# bench.strata_synthesis).
_STRICT = 2.0
_MOST_VARIANCE = 1e6  # of shares, for that of one record; the noise of a stratum is then all kept
_LEAST_OF_PRIOR = 1e-3  # of what is expected of a level remains possible
_LEAST_WEIGHT = 1e-12  # of a combination in its stratum, so that one without records has a model
_NEARLY_ONE = 1e-6  # how far a sum of weights may be from it, as rounded shares of a table are


@dataclass(frozen=True, eq=False)
class Strata:
    """Disjoint groups of records by the levels of some attributes, and their public shares.

    Attributes:
      attributes: Positions of attributes in the domain, rising.
      weights: Public share of every combination of levels of the attributes, float64[n_i, ...],
        summing to 1.
      groups: int64[n_i, ...], the stratum of each combination, 0 or more.
      sample: Number of records of the public sample that gave the weights; None without a sample.
      weight_sd: Standard deviation of the noise of every weight, if noisy counts gave the weights.
    """

    attributes: tuple[int, ...]
    weights: FloatArray
    groups: IntArray
    sample: int | None = None
    weight_sd: float = 0.0

    @classmethod
    def of(
        cls,
        domain: Domain,
        names: Sequence[str],
        weights: FloatArray,
        least: float = 0.001,
        sample: int | None = None,
    ) -> Strata:
        """Make one stratum per combination of levels; the last pools weights of at most `least`.

        Args:
          domain: Domain of the records.
          names: Attributes, in the order of the axes of `weights`; others must remain.
          weights: By levels, float64[n_i, ...], at least 0 and summing to 1; public.
          least: Largest weight that is pooled.
          sample: Number of records of the public sample that gave the weights, such as a holdout;
            None if the weights are exact, such as shares from a census.

        Raises:
          SchemaError: Weights do not cover all combinations, are negative, or do not sum to 1. Or
            attributes are unknown, repeat or leave fewer than two other attributes.
        """
        places = domain.positions(names)
        if len(set(places)) != len(places) or not 0 < len(places) <= len(domain.names) - 2:
            raise SchemaError(
                "strata", "need distinct attributes and leave at least two others", got=list(names)
            )
        shape, total = tuple(domain.sizes[i] for i in places), math.fsum(weights.flat)
        is_whole = weights.shape == shape and abs(total - 1.0) <= _NEARLY_ONE
        if not is_whole or weights.min() < 0:
            raise SchemaError(
                "weights of strata",
                "must be shares of all combinations of levels that sum to 1",
                got=f"shape {weights.shape} and a sum of {total:.9g}",
                want=f"shape {shape}",
            )
        table = np.transpose(weights / total, np.argsort(places))
        is_own = table > least
        groups = np.full(table.shape, int(is_own.sum()), np.int64)
        groups[is_own] = np.arange(is_own.sum())
        return cls(tuple(sorted(places)), table, groups, sample)

    @classmethod
    def of_counts(
        cls, domain: Domain, names: Sequence[str], counted: NoisyAnswer, least: float
    ) -> Strata:
        """Make strata from noisy counts of the combinations; negative counts are projected to 0.

        Args:
          domain: Domain of the records.
          names: Attributes of the counts.
          counted: Their noisy marginal, with the attributes in the order of the domain.
          least: Largest weight that is pooled.

        Raises:
          SchemaError: As `of`.
        """
        names = [name for name in domain.names if name in names]
        shape = [domain.sizes[i] for i in domain.positions(names)]
        total = max(1.0, float(counted.answers.sum()))
        weights = onto_simplex(counted.answers.astype(np.float64), total) / total
        made = cls.of(domain, names, weights.reshape(shape), least)
        noise = math.sqrt(counted.mechanism.continuous_variance)
        return replace(made, weight_sd=noise / total)

    @property
    def n_strata(self) -> int:
        """Count the strata, the pool included if it holds anything."""
        return int(self.groups.max()) + 1

    @property
    def variances(self) -> FloatArray:
        """Return the variance of the weight of each combination, float64[combinations].

        A share w of a sample of m records has variance w (1 - w) / m.
        """
        weights = self.weights.reshape(-1)
        if self.sample is None:
            return np.full_like(weights, self.weight_sd**2)
        rest = 1.0 / self.sample  # share of a combination without records in the sample
        return np.asarray(np.maximum(weights * (1.0 - weights), rest) / self.sample)

    def inner(self, domain: Domain) -> tuple[int, ...]:
        """Return the positions of the attributes that do not define strata."""
        return tuple(i for i in range(len(domain.names)) if i not in self.attributes)

    def of_records(self, codes: IntArray) -> IntArray:
        """Return the stratum of each record, int64[n]."""
        return np.asarray(self.groups[tuple(codes[:, i] for i in self.attributes)])

    def shares(self) -> FloatArray:
        """Return the public share of each stratum, float64[n_strata]."""
        weights = np.bincount(self.groups.reshape(-1), weights=self.weights.reshape(-1))
        return weights.astype(np.float64)


@dataclass(frozen=True, eq=False)
class MeasuredStrata:
    """Noisy answers of the whole population and of every stratum; safe after the firewall.

    Attributes:
      strata: Strata by public weights or by `sizes`.
      population: Population-wide answers on all attributes, with rare levels merged.
      inside: Per stratum the answers on the other attributes, over their merged levels: their
        residuals, or the marginals that were selected population-wide.
      sizes: Noisy counts by the attributes of the strata; None if the weights are public.
    """

    strata: Strata
    population: Measured | ChosenMarginals
    inside: tuple[tuple[NoisyAnswer, ...], ...]
    sizes: NoisyAnswer | None = None

    @property
    def rho(self) -> Fraction:
        """Return the total cost: sizes and population, and the largest cost of a stratum.

        A changed record that moves from one stratum to another costs half in each.
        """
        counted = Fraction(0) if self.sizes is None else self.sizes.rho
        return counted + self.population.rho + max(map(sum_rho, self.inside))


def synthesize_strata(
    measured: MeasuredStrata, fit: Fit, n_records: int, seed: int, fitter: Fitter = fit_model
) -> Records:
    """Fit the pooled model, shrink and refit each stratum, and draw records by public weights.

    The result is a function of noisy answers and public numbers alone.

    Args:
      measured: Noisy answers.
      fit: Parameters of the pooled fit; of selected marginals, its steps alone.
      n_records: Number of records. Strata get the shares of their weights. A mixture combines
        weights of a sample, or noisy ones, with population-wide counts by precision.
      seed: Seed of fits and draws.
      fitter: Fits the models of selected marginals.
    """
    rng = np.random.default_rng(seed)  # noqa: TID251 - post-processing
    strata, population = measured.strata, measured.population
    if isinstance(population, ChosenMarginals):
        return _synthesize_chosen(measured, population, (fitter, fit.steps), n_records, rng)
    targets = targets_of(population)
    model = fit_mixture(population.merged, targets, fit, rng)
    whole = population.domain
    inner = strata.inner(whole)
    merging = population.merging.only(inner)
    domain, merged = whole.only(inner), population.merged.only(inner)
    unmerged = []
    for i in strata.attributes:
        new = population.merging.new_level[i]
        unmerged.append(model.levels[i][:, new] / np.bincount(new)[new])
    joint = products(unmerged)
    weights, variance = _weights(strata, joint.mean(0), targets)
    levels = tuple(model.levels[i] for i in inner)
    holds = [(strata.groups == stratum).reshape(-1) for stratum in range(strata.n_strata)]
    priors = []
    for each in holds:
        chances = joint[:, each].sum(1) + _LEAST_WEIGHT
        size = float(weights[each].sum()) * targets.size
        size_sd = math.sqrt(float(variance[each].sum())) * targets.size
        priors.append(Prior(levels, chances / chances.sum(), size, size_sd))
    tables = [blocks_of(*each) for each in zip(measured.inside, priors, strict=True)]
    variances = {
        inside: variance_between([blocks[inside] for _, blocks in tables])
        for inside in tables[0][1]
    }

    def draw(stratum: int, n: int) -> IntArray:
        (size, blocks), prior = tables[stratum], priors[stratum]
        aims = stratum_targets(size, blocks, variances, prior)
        start = _chosen(levels, prior.chances, STRATUM_FIT, rng)
        fitted = refit_mixture(merged, aims, STRATUM_FIT, start)
        return draw_records(fitted, merging, domain, n, rng).codes

    return _join(strata, whole, _apportioned(weights, n_records), draw, rng)


def _synthesize_chosen(
    measured: MeasuredStrata,
    population: ChosenMarginals,
    fitting: tuple[Fitter, int],
    n_records: int,
    rng: Generator,
) -> Records:
    """Fit a model to the population, and one to the shrunk tables of each stratum.

    Args:
      measured: Noisy answers.
      population: Those of the population.
      fitting: Fitter of the models, and its steps.
      n_records: Number of records.
      rng: Generator of the draws.
    """
    fitter, steps = fitting
    strata, whole = measured.strata, population.domain
    inner, weights = strata.inner(whole), strata.weights.reshape(-1)
    merging = population.merging.only(inner)
    total, targets = targets_of_marginals(population)
    model = fitter(population.merged.sizes, targets, steps)
    tables: list[dict[Attributes, Block]] = []
    for stratum, answers in enumerate(measured.inside):
        is_here = (strata.groups == stratum).reshape(-1)
        stated = total * weights[is_here].sum(), total * math.sqrt(strata.variances[is_here].sum())
        marginals = ChosenMarginals(whole.only(inner), merging, (), (), answers)
        counted, found = targets_of_marginals(marginals)
        precision = sum(float(each.weight) / each.shares.size for each in found.values())
        size = combined_size(stated, (counted, counted / math.sqrt(precision)))
        expected = _expected(strata, stratum, population, model, found)
        tables.append({})
        for each, shares in expected.items():
            noisy, scales = found[each].shares * counted, (shares * (1.0 - shares)).reshape(-1)
            deviation = counted / math.sqrt(found[each].weight)
            tables[-1][each] = Block(noisy, shares * size, None, scales, deviation, size)
    variances = {each: variance_between([table[each] for table in tables]) for each in tables[0]}

    def draw(stratum: int, n: int) -> IntArray:
        aims = {
            each: Target(
                one.shrunk(variances[each]) / one.size, np.array((one.size / one.deviation) ** 2)
            )
            for each, one in tables[stratum].items()
        }
        return unmerge(fitter(merging.sizes(), aims, steps).draw(n, rng), merging, rng)

    return _join(strata, whole, _apportioned(weights, n_records), draw, rng)


def _expected(
    strata: Strata,
    stratum: int,
    population: ChosenMarginals,
    model: Model,
    sets: Iterable[Attributes],
) -> dict[Attributes, FloatArray]:
    """Return the shares that the model of the population expects in a stratum.

    Args:
      strata: The strata.
      stratum: The stratum, from 0.
      population: Noisy answers of the population.
      model: Model of the population.
      sets: Attributes of the tables, numbered among those that do not define strata.
    """
    inner = strata.inner(population.domain)
    places = {each: tuple(inner[i] for i in each) for each in sets}
    parts, chances = [], []
    for combination in np.argwhere(strata.groups == stratum):
        levels = zip(strata.attributes, combination, strict=True)
        evidence = {i: int(population.merging.new_level[i][level]) for i, level in levels}
        parts.append(dict(zip(places, model.marginals(places.values(), evidence), strict=True)))
        chances.append(float(strata.weights[tuple(combination)]) + _LEAST_WEIGHT)
    return {
        each: np.average([part[each] for part in parts], axis=0, weights=chances) for each in places
    }


def _join(
    strata: Strata,
    domain: Domain,
    cells: IntArray,
    draw: Callable[[int, int], IntArray],
    rng: Generator,
) -> Records:
    """Draw the records of every stratum, and give them the levels that define it.

    Args:
      strata: The strata.
      domain: Domain of the records.
      cells: int64[combinations], number of records of each combination of these levels.
      draw: From the stratum and its number of records to the codes of the other attributes.
      rng: Generator of the order.
    """
    parts = [np.zeros((0, len(domain.names)), np.int64)]
    for stratum in range(strata.n_strata):
        each = strata.groups.reshape(-1) == stratum
        n = int(cells[each].sum())
        if not n:
            continue
        codes = np.empty((n, len(domain.names)), np.int64)
        codes[:, list(strata.inner(domain))] = draw(stratum, n)
        combination = np.repeat(np.arange(len(cells))[each], cells[each])
        labels = np.unravel_index(rng.permutation(combination), strata.weights.shape)
        for i, column in zip(strata.attributes, labels, strict=True):
            codes[:, i] = column
        parts.append(codes)
    every = np.concatenate(parts)
    return Records(domain, every[rng.permutation(len(every))])


@dataclass(frozen=True, eq=False)
class Prior:
    """Prediction of the pooled model for a stratum.

    Attributes:
      levels: Per inner attribute float64[K, n_i].
      chances: float64[K], weights of the components in the stratum, summing to 1.
      size: Approximate public number of records.
      size_sd: Standard deviation of `size`; 0 if weights are exact.
    """

    levels: tuple[FloatArray, ...]
    chances: FloatArray
    size: float
    size_sd: float

    def shares(self, inside: tuple[int, ...]) -> FloatArray:
        """Return shares by the levels of one or more attributes, float64[n_i, ...]."""
        return shares_of([self.levels[i] for i in inside], self.chances)


@dataclass(frozen=True, eq=False)
class Block:
    """One centered noisy table of a stratum and its prediction by the pooled model.

    Between strata, shares are taken to vary like a multinomial draw from the model: rare cells by
    little, with correlated cells. So departures are measured along the principal axes of the
    covariance of one record's cell.

    Attributes:
      noisy: float64[n_i, ...], the noisy table.
      goal: float64[n_i, ...], the prediction of the pooled model.
      axes: float64[cells, freedom], orthonormal principal axes; freedom = prod(n_i - 1). None: the
        cells themselves, of a table that is not centered.
      scales: float64[freedom], variance of one record along each axis.
      deviation: Standard deviation of the noise of each cell before centering.
      size: Records of the stratum, about.
    """

    noisy: FloatArray
    goal: FloatArray
    axes: FloatArray | None
    scales: FloatArray
    deviation: float
    size: float

    @classmethod
    def of(cls, noisy: FloatArray, shares: FloatArray, deviation: float, size: float) -> Block:
        """Make a block of a noisy centered table and the model's shares of the same cells.

        Args:
          noisy: float64[n_i, ...], the noisy centered table.
          shares: float64[n_i, ...], the pooled model's shares of the same cells.
          deviation: Standard deviation of the noise of each cell before centering.
          size: Number of records of the stratum, about.
        """
        flat = shares.reshape(-1)
        covariance = np.diag(flat) - np.outer(flat, flat)
        inner = centered(covariance.reshape(shares.shape * 2)).reshape(covariance.shape)
        # Centering empties as many axes as there are sums; they come first.
        values, vectors = np.linalg.eigh(inner)
        freedom = math.prod(length - 1 for length in shares.shape)
        return cls(
            noisy,
            centered(shares * size),
            vectors[:, len(flat) - freedom :],
            np.maximum(values[len(flat) - freedom :], 0.0),
            deviation,
            size,
        )

    def departure(self) -> FloatArray:
        """Return how far the noisy table is from the model along each axis, float64[freedom]."""
        away = (self.noisy - self.goal).reshape(-1)
        return away if self.axes is None else np.asarray(away @ self.axes)

    def signal_variance(self, variance: float) -> FloatArray:
        """Return the variance of true departures along each axis, float64[freedom].

        It is the variance of `size` records drawn from shares that vary around the model's shares.
        """
        return self.scales * (self.size**2 * variance + self.size)

    def shrunk(self, variance: float) -> FloatArray:
        """Return the table shrunk toward the goal, given the between-stratum variance of shares."""
        signal = self.signal_variance(variance)
        kept = signal / (signal + self.deviation**2) * self.departure()
        moved = kept if self.axes is None else self.axes @ kept
        return np.asarray(self.goal + moved.reshape(self.goal.shape))


def variance_between(blocks: Sequence[Block]) -> float:
    """Estimate the between-stratum variance of cell shares around the pooled model.

    The estimate v is a multiple: the covariance of the shares between strata is v times the
    covariance of the cell indicators of one record. It solves

        sum departure^2 / (signal_variance(v) + deviation^2) = F + 2 sqrt(2 F) ,

    with the sum over the F axes of all blocks. The right side is the expectation of the sum plus
    two of its standard deviations, which makes this a conservative form of the estimator of Paule
    and Mandel. The estimate is 0 if noise and the sampling of records explain the departures.

    Args:
      blocks: One block per stratum, all for the same attributes; not empty.
    """
    squares = [np.square(b.departure()) for b in blocks]
    freedom = sum(len(b.scales) for b in blocks)
    most = freedom + _STRICT * math.sqrt(2.0 * freedom)

    def is_too_little(variance: float) -> bool:
        total = 0.0
        for square, block in zip(squares, blocks, strict=True):
            noise = block.deviation**2
            total += float((square / (block.signal_variance(variance) + noise)).sum())
        return total > most

    if not is_too_little(0.0):
        return 0.0
    low, high = 0.0, 1.0
    # No shares vary by more than one record's do, but where the model gives a cell no chance.
    while is_too_little(high) and high < _MOST_VARIANCE:
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_too_little(middle) else (low, middle)
    return high


def blocks_of(
    answers: Sequence[NoisyAnswer], prior: Prior
) -> tuple[float, dict[tuple[int, ...], Block]]:
    """Estimate the size of a stratum and pair its centered tables with the pooled model.

    Shares are only as accurate as the size: at epsilon 5, sizes from a sample, off by 6 %, caused
    most of the error of means of small strata.
    """
    tables = {}
    for answer in answers:
        inside, table, deviation = residual_block(answer)
        tables[inside] = (table, deviation)
    counted, deviation = tables.pop(())
    size = combined_size((prior.size, prior.size_sd), (float(counted), deviation))
    blocks = {
        inside: Block.of(table, prior.shares(inside), deviation, size)
        for inside, (table, deviation) in sorted(tables.items())
    }
    return size, blocks


def combined_size(stated: tuple[float, float], counted: tuple[float, float]) -> float:
    """Average two sizes of a stratum, each with its standard deviation, by precision.

    If the two contradict each other, the result is the counted size. It is at least 1.
    """
    (size, sd), (noisy, noisy_sd) = stated, counted
    weight = sd**2 / (sd**2 + noisy_sd**2)
    if abs(noisy - size) > _SURPRISE * math.hypot(sd, noisy_sd):
        weight = 1.0
    return max(1.0, float(rounded(size + weight * (noisy - size))))


def stratum_targets(
    size: float,
    blocks: Mapping[tuple[int, ...], Block],
    variances: Mapping[tuple[int, ...], float],
    prior: Prior,
) -> Targets:
    """Combine the answers of a stratum, each block shrunk toward the pooled model.

    Args:
      size: Number of records of the stratum, about.
      blocks: Tables of the stratum, by the positions of their attributes.
      variances: Result of `variance_between` for each table.
      prior: Prediction of the pooled model.
    """
    one_way, one_way_sd = [], []
    pairs: dict[tuple[int, int], FloatArray] = {}
    pair_sd: dict[tuple[int, int], float] = {}
    for inside, block in blocks.items():
        table = block.shrunk(variances[inside])
        if len(inside) == 1:
            floor = _LEAST_OF_PRIOR * size * prior.shares(inside)
            counts = floor + onto_simplex(table + size / len(table) - floor, size - floor.sum())
            one_way.append(np.maximum(rounded(counts), 1.0 / 1024))
            one_way_sd.append(block.deviation)
        else:
            i, j = inside
            pairs[i, j] = rounded(table)
            pair_sd[i, j] = float(rounded(block.deviation, 2.0**20))
    sds = rounded(np.array(one_way_sd), 2.0**20)
    return Targets(size, tuple(one_way), pairs, sds, pair_sd)


def onto_simplex(values: FloatArray, total: float) -> FloatArray:
    """Find the nearest point with no negative entry and this sum; noise cut at 0 would add to it.

    Args:
      values: float64[n], the point to be projected.
      total: The sum of the result; not negative.
    """
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(falling - excess >= 0)[-1] if total > 0 else 0
    return np.asarray(np.maximum(values - excess[last], 0.0))


def _weights(
    strata: Strata, modelled: FloatArray, targets: Targets
) -> tuple[FloatArray, FloatArray]:
    """Combine the stated share and the model's share of each combination, by precision.

    A count of the model has the variance of the noise of the pairs that the model was fitted to.

    Returns:
      float64[combinations], and the variance of each.
    """
    stated, of_stated = strata.weights.reshape(-1), strata.variances
    if not of_stated.any():
        return stated, of_stated
    places = strata.attributes
    pairs = [targets.pair_sd[pair] for pair in itertools.combinations(places, 2)]
    deviation = max(pairs, default=float(targets.one_way_sd[places[0]]))
    of_model = (deviation / targets.size) ** 2
    both = (stated * of_model + modelled * of_stated) / (of_model + of_stated)
    variance = of_stated * of_model / (of_model + of_stated)
    return np.asarray(both / both.sum()), np.asarray(variance)


def _chosen(
    levels: Sequence[FloatArray], chances: FloatArray, fit: Fit, rng: Generator
) -> tuple[FloatArray, ...]:
    """Draw `fit.components` components of the pooled model by systematic sampling.

    Args:
      levels: Per attribute float64[K, n_i], the components of the pooled model.
      chances: float64[K], probability of each component.
      fit: The fit that starts from the components.
      rng: Generator of the sample.
    """
    marks = (np.arange(fit.components) + rng.random()) / fit.components
    at = np.minimum(np.searchsorted(np.cumsum(chances), marks), len(chances) - 1)
    return tuple(each[at] for each in levels)


def _apportioned(shares: FloatArray, n: int) -> IntArray:
    """Divide n into whole numbers in proportion to shares, by the largest remainders."""
    exact = shares * n
    out = np.floor(exact).astype(np.int64)
    order = np.argsort(out - exact, kind="stable")
    out[order[: n - int(out.sum())]] += 1
    return out
