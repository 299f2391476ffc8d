"""Targets of model fits: combined noisy counts, and denoised residuals of pairs of attributes.

The residual of a pair is its table without the parts that one attribute explains. Most pairs are
nearly independent, so their residual is mostly noise. Shrinking singular values at the known noise
level keeps the significant part.

References:
  Gavish & Donoho, IEEE Trans. Inf. Theory 63 (2017), 2137-2152 (optimal shrinkage, Frobenius).
  James & Stein, Berkeley Symposium 1961.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from das.arrays import FloatArray
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from das.synthesis.records import Measured, NoisyAnswer, merged_counts

# Targets are multiples of 1 / 1024 record, far below their noise. Processors differ in singular
# values by some 10^-12 of a record; that one of 10,000 cells is that near to a boundary of rounding
# happens about once in 10^5 fits.
_UNIT = 1024.0


@dataclass(frozen=True, eq=False)
class Targets:
    """Estimated one- and two-way tables of the merged domain.

    All but `departures` are rounded, so that fits to them do not depend on the processor.

    Attributes:
      size: Records, about; at least 1.
      one_way: Per attribute float64[n_i], positive, summing to `size`.
      pairs: Per pair i < j float64[n_i, n_j], its residual: rows and columns sum to 0.
      one_way_sd: Standard deviation of the noise of each one-way residual.
      pair_sd: Standard deviation of the noise of each pair, per cell before centering.
      departures: Per pair the denoised residual, the departure from independence; empty in strata.
    """

    size: float
    one_way: tuple[FloatArray, ...]
    pairs: dict[tuple[int, int], FloatArray]
    one_way_sd: FloatArray
    pair_sd: dict[tuple[int, int], float]
    departures: dict[tuple[int, int], FloatArray] = field(default_factory=dict)


def residual_block(answer: NoisyAnswer) -> tuple[tuple[int, ...], FloatArray, float]:
    """Invert a residual query to its centered table, with the noise of a cell before centering.

    The integer rows of an attribute, n I - 11' or (1, -1), have equal singular values, so white
    noise on them is white noise on the cells, centered.

    Returns:
      Positions of its attributes, float64[n_i, ...], standard deviation.
    """
    inside = answer.query.kept
    rows = [answer.query.factors[i].matrix for i in inside]
    table = answer.answers.astype(np.float64).reshape([len(matrix) for matrix in rows])
    for axis, matrix in enumerate(rows):
        largest = float(np.linalg.norm(matrix, 2))
        inverse = matrix.T / largest**2
        table = np.moveaxis(np.tensordot(inverse, table, axes=(1, axis)), 0, axis)
    return inside, table, residual_deviation(answer.query, answer.mechanism)


def residual_deviation(query: Query, mechanism: Mechanism) -> float:
    """Return the standard deviation of each cell of `residual_block`, before centering."""
    rows = [query.factors[i].matrix for i in query.kept]
    # Of equal singular values, as many as levels less one, the square sum is that of all entries.
    square = [int((matrix * matrix).sum()) / (matrix.shape[1] - 1) for matrix in rows]
    return math.sqrt(mechanism.continuous_variance / math.prod(square))


def shrink_singular_values(noisy: FloatArray, deviation: float) -> FloatArray:
    """Estimate a matrix in white noise with least squared error, by its singular values.

    Args:
      noisy: float64[m, n], the matrix plus the noise.
      deviation: Standard deviation of the noise of each entry.
    """
    if noisy.shape[0] > noisy.shape[1]:
        return shrink_singular_values(noisy.T, deviation).T
    m, n = noisy.shape
    left, values, right = np.linalg.svd(noisy, full_matrices=False)
    ratio, scale = m / n, deviation * math.sqrt(n)
    y = values / scale
    kept = y > 1.0 + math.sqrt(ratio)
    shrunk = np.zeros_like(values)
    squares = np.maximum((y[kept] ** 2 - ratio - 1.0) ** 2 - 4.0 * ratio, 0.0)
    shrunk[kept] = scale * np.sqrt(squares) / y[kept]
    return np.asarray((left * shrunk) @ right)


def shrink_block(block: FloatArray, deviation: float, freedom: int) -> FloatArray:
    """Shrink a block toward zero (James-Stein).

    The factor is max(0, 1 - (freedom - 2) deviation^2 / |block|^2).

    Args:
      block: The noisy table.
      deviation: Standard deviation of the noise of each entry.
      freedom: Degrees of freedom of the noise in the block.
    """
    square = float((block * block).sum())
    factor = max(0.0, 1.0 - max(freedom - 2, 0) * deviation**2 / max(square, 1e-12))
    return factor * block


def targets_of(measured: Measured) -> Targets:
    """Combine all phases and take the noise out of the pairs."""
    sizes = measured.merged.sizes
    blocks: dict[tuple[int, ...], tuple[FloatArray, float]] = {}
    for answer in (*measured.residuals, *measured.again):
        inside, table, deviation = residual_block(answer)
        if inside in blocks:
            table, deviation = _combined(blocks[inside], (table, deviation))
        blocks[inside] = (table, deviation)
    total = max(1.0, float(rounded(blocks[()][0])))
    one_way, one_way_sd = [], []
    for i, size in enumerate(sizes):
        first, variance = merged_counts(measured.one_way[i], measured.merging, i)
        table, deviation = blocks[(i,)]
        second = table + total / size
        weight = (1.0 / variance) / (1.0 / variance + 1.0 / deviation**2)
        # At least half a record, so that a level with a noisy count of 0 or less stays possible.
        counts = np.maximum(weight * first + (1.0 - weight) * second, 0.5)
        one_way.append(np.maximum(rounded(counts / counts.sum() * total), 1.0 / _UNIT))
        one_way_sd.append(deviation)
    pairs, pair_sd, departures = {}, {}, {}
    for inside, (table, deviation) in blocks.items():
        if len(inside) != 2:
            continue
        i, j = inside
        alone = centered(np.outer(one_way[i], one_way[j]) / total)
        departures[i, j] = _denoised(table - alone, deviation)
        pairs[i, j] = rounded(alone + departures[i, j])
        pair_sd[i, j] = float(rounded(deviation, _UNIT**2))
    sds = rounded(np.array(one_way_sd), _UNIT**2)
    return Targets(total, tuple(one_way), pairs, sds, pair_sd, departures)


def strongest_pairs(measured: Measured, n_pairs: int) -> list[tuple[int, int]]:
    """List the pairs that depart most from independence, in records, by noisy answers alone.

    Args:
      measured: The noisy answers.
      n_pairs: Number of pairs to list.
    """
    departures = targets_of(measured).departures
    strength = {pair: float(np.abs(table).sum()) for pair, table in departures.items()}
    return sorted(strength, key=lambda pair: (-strength[pair], pair))[:n_pairs]


def rounded(values: FloatArray | float, unit: float = _UNIT) -> FloatArray:
    """Round values to multiples of 1 / `unit`; the digits below depend on the processor."""
    return np.asarray(np.rint(np.asarray(values) * unit) / unit)


def _denoised(rest: FloatArray, deviation: float) -> FloatArray:
    """Shrink the departure of a pair from independence, which contains noise.

    Args:
      rest: float64[m, n], the noisy departure, with rows and columns that sum to 0.
      deviation: Standard deviation of the noise of each cell before centering.
    """
    m, n = rest.shape
    freedom = (m - 1) * (n - 1)
    if min(m, n) > 2:
        return shrink_singular_values(rest, deviation * math.sqrt(freedom / (m * n)))
    return shrink_block(rest, deviation, freedom)


def _combined(
    first: tuple[FloatArray, float], second: tuple[FloatArray, float]
) -> tuple[FloatArray, float]:
    """Average two measurements (table, standard deviation) of one block, weighted by precision."""
    precision, other = first[1] ** -2, second[1] ** -2
    mean = (precision * first[0] + other * second[0]) / (precision + other)
    return mean, (precision + other) ** -0.5


def centered(table: FloatArray) -> FloatArray:
    """Subtract from a table its means along every axis."""
    for axis in range(table.ndim):
        table = table - table.mean(axis, keepdims=True)
    return table
