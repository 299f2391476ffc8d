"""Nonnegative tables that agree with each other, from residual answers: local nonnegativity.

The tables are changed as little as the noise allows: minimise

    sum_S |y_S - z_S|^2 / noise_S    over residual answers y with no negative cell in any table,

with z the noisy answers. Every table is computed from the same y, so shared margins stay equal.
With D the decoder of all tables, whose cells are D y, the optimum is y = z + noise D'p for prices
p >= 0, where D y >= 0 holds with p'D y = 0. Accelerated gradient steps find the prices. No
distribution over all cells need have these tables, since only they are kept nonnegative.

References:
  Mullins, Fuentes, Xiao, Kifer, Musco & Sheldon, NeurIPS 2024 (GReM-LNN).
  Beck & Teboulle, SIAM Journal on Imaging Sciences 2, 2009 (accelerated steps).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray, IntArray
from das.workload.attribute_sets import AttributeSets
from das.workload.residual.bases import AttributeBasis
from das.workload.residual.reconstruction import ResidualAnswers, index_answers

# A fixed number: a rule of when to stop could stop at another step on another processor. For a
# table of 24,000 cells the squared error after 300 steps was 7 % above that after 1,000.
STEPS = 500
_POWER_STEPS = 40  # for the largest eigenvalue; default, not measured
# Noise of what was not measured, over the largest noise that was, per cell. On the invented survey
# with rho 0.056, errors of tables were 13.8 at 10, 14.1 at 1 and 16.1 at 100 (one attribute).
_UNMEASURED = 10.0
_TINY = np.finfo(float).tiny
_ABOVE = 1.2  # bound of that eigenvalue over its estimate; default, not measured


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of a table as a linear map of the residual answers.

    Attributes:
      index: int64, position of the residual answers of all subsets, a row per attribute.
      decoders: Per attribute, float64[groups of levels, 1 + residual rows].
    """

    index: IntArray
    decoders: tuple[FloatArray, ...]

    def of(self, values: FloatArray) -> FloatArray:
        """Return the cells of residual answers."""
        return _along(values[self.index], self.decoders)

    def add_adjoint(self, prices: FloatArray, into: FloatArray) -> None:
        """Add D'p of prices of the cells to an array over residual answers."""
        into[self.index] += _along(prices, [decoder.T for decoder in self.decoders])


def nonnegative_answers(
    residuals: ResidualAnswers, tables: Sequence[Sequence[int]]
) -> ResidualAnswers:
    """Return the residual answers next to the noisy ones whose tables have no negative cell.

    Args:
      residuals: Noisy answers. Noise 0 marks an exact answer, which stays.
      tables: Attributes of each table, as increasing positions.

    Returns:
      Answers by which cells of all tables are at least 0, up to rounding. A cell is a combination
      of levels, or of groups of levels that the residual rows do not tell apart.

    Raises:
      SchemaError: A table was not planned.
    """
    sets = [frozenset(members) for members in tables]
    largest = sorted({s for s in sets if not any(s < other for other in sets)}, key=sorted)
    cells = [_cells_of(residuals, sorted(members)) for members in largest]
    values = _nearest(residuals, cells)
    return replace(residuals, values=_mixed(residuals, values, cells))


def nonnegative_table(residuals: ResidualAnswers, members: Sequence[int]) -> FloatArray:
    """Return one table without negative counts that is near the answers of all tables inside it.

    Residual sets that were not measured count as answers of 0 with large noise.

    Args:
      residuals: Noisy answers. Noise 0 marks an exact answer, which stays.
      members: Positions of the attributes of the table, increasing.

    Returns:
      float64[n_1, ..., n_k]. Levels that the residual rows do not tell apart count as the first.
    """
    plan, row = residuals.plan, np.array([members], np.int64).reshape(1, len(members))
    inside = AttributeSets.from_rows(len(plan.bases), [row]).closure()
    known = {one: number for number, one in enumerate(plan.residuals.rows)}
    ratios = [(basis.spread**2).sum() / (basis.pivot**2).sum() for basis in plan.bases]
    per_cell = inside.product(np.array(ratios))
    noise = np.array([plan.noise[known[s]] if s in known else np.nan for s in inside.rows])
    noise = np.where(np.isnan(noise), _UNMEASURED * np.nanmax(noise * per_cell) / per_cell, noise)
    blocks = np.split(residuals.values, residuals.starts[1:-1])
    sizes = inside.product(np.array([float(len(basis.subtraction)) for basis in plan.bases]))
    answers = [
        blocks[known[s]] if s in known else np.zeros(int(size))
        for s, size in zip(inside.rows, sizes, strict=True)
    ]
    whole = ResidualAnswers(replace(plan, residuals=inside, noise=noise), np.concatenate(answers))
    cells = _cells_of(whole, list(members))
    values = _nearest(whole, [cells])
    table = np.maximum(cells.of(values), 0.0)
    table *= max(float(values[0]), 0.0) / max(float(table.sum()), _TINY)
    out = np.zeros([len(plan.bases[i].pivot) for i in members])
    out[np.ix_(*(_groups(plan.bases[i])[0] for i in members))] = table
    return out


def _nearest(residuals: ResidualAnswers, cells: Sequence[_Cells]) -> FloatArray:
    """Return the residual answers next to the noisy ones, with cells of at least about 0."""
    sizes = np.diff(residuals.starts)
    scale = np.sqrt(np.repeat(residuals.plan.noise, sizes))

    def answers(prices: Sequence[FloatArray]) -> FloatArray:
        moved = np.zeros(len(scale))
        for table, price in zip(cells, prices, strict=True):
            table.add_adjoint(price, moved)
        return scale**2 * moved

    step = 1.0 / _largest_eigenvalue(cells, scale)
    prices = [np.zeros_like(table.of(residuals.values)) for table in cells]
    ahead, pace = prices, 1.0
    for _ in range(STEPS):
        values = residuals.values + answers(ahead)
        new = [
            np.maximum(price - step * table.of(values), 0.0)
            for table, price in zip(cells, ahead, strict=True)
        ]
        quicker = (1.0 + math.sqrt(1.0 + 4.0 * pace**2)) / 2.0
        weight = (pace - 1.0) / quicker
        ahead = [n + weight * (n - old) for n, old in zip(new, prices, strict=True)]
        prices, pace = new, quicker
    return np.asarray(residuals.values + answers(prices))


def _cells_of(residuals: ResidualAnswers, members: list[int]) -> _Cells:
    plan = residuals.plan
    return _Cells(index_answers(plan, members), tuple(_decoder(plan.bases[i]) for i in members))


def _decoder(basis: AttributeBasis) -> FloatArray:
    """Return the rows that decode each group of levels with equal residual columns."""
    first, group = _groups(basis)
    return np.asarray((group == np.arange(len(first))[:, None]) @ basis.decoder)


def _groups(basis: AttributeBasis) -> tuple[IntArray, IntArray]:
    """Return the first level of each group, increasing, and the group of each level."""
    _, first, group = np.unique(basis.subtraction, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[group.reshape(-1)]


def _along(tensor: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Multiply every axis by its matrix; the last axis first, so that axes keep their order."""
    for matrix in reversed(matrices):
        tensor = np.moveaxis(np.tensordot(tensor, matrix, (tensor.ndim - 1, 1)), -1, 0)
    return np.asarray(tensor)


def _largest_eigenvalue(cells: Sequence[_Cells], scale: FloatArray) -> float:
    """Bound the largest eigenvalue of D noise D', by power steps.

    The start is the same on every machine, and orthogonal to no eigenvector by design: constants,
    for example, are orthogonal to all residual rows of plain counts.
    """
    vector, value = np.sin(np.arange(1.0, len(scale) + 1.0)), 1.0
    for _ in range(_POWER_STEPS):
        moved = np.zeros_like(vector)
        for table in cells:
            table.add_adjoint(table.of(scale * vector), moved)
        moved *= scale
        value = float(np.linalg.norm(moved)) / float(np.linalg.norm(vector))
        vector = moved / np.linalg.norm(moved)
    return _ABOVE * value


def _mixed(residuals: ResidualAnswers, values: FloatArray, cells: Sequence[_Cells]) -> FloatArray:
    """Mix answers with those of equal cells, by the least weight that leaves no negative cell."""
    plan, starts = residuals.plan, residuals.starts
    even = np.zeros_like(values)
    for flat, members in enumerate(plan.residuals.rows):
        part = np.full(1, max(float(values[0]), 0.0))
        for i in members:
            part = np.kron(part, plan.bases[i].subtraction.mean(axis=1))
        even[starts[flat] : starts[flat + 1]] = part
    weight = 0.0
    for table in cells:
        low, level = table.of(values), table.of(even)
        below = low < 0
        share = np.divide(-low, level - low, out=np.zeros_like(low), where=below)
        weight = max(weight, float(share.max()))
    return (1.0 - weight) * values + weight * even
