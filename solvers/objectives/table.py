"""The table problem: noisy answers of partition queries over one histogram, many draws at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SolverError


class NoiseLaw(StrEnum):
    """Shape of the noise; its variance is given apart."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"

    def log_cdf(self, values: FloatArray, variance: float) -> FloatArray:
        """Log of P(noise <= value), elementwise."""
        if self is NoiseLaw.LAPLACE:
            z = values / math.sqrt(variance / 2)
            return np.where(z < 0, z - math.log(2), np.log1p(-np.exp(-np.abs(z)) / 2))
        from scipy.special import log_ndtr

        return np.asarray(log_ndtr(values / math.sqrt(variance)))

    def quantile(self, probability: FloatArray, variance: float) -> FloatArray:
        """The value below which noise is with this probability, elementwise."""
        if self is NoiseLaw.LAPLACE:
            tail = np.minimum(probability, 1 - probability)
            return np.asarray(
                np.sign(probability - 0.5) * -np.log(2 * tail) * math.sqrt(variance / 2)
            )
        from scipy.special import ndtri

        return np.asarray(ndtri(probability) * math.sqrt(variance))

    def log_density(self, values: FloatArray, variance: float) -> FloatArray:
        """Log of the density up to a constant, elementwise."""
        if self is NoiseLaw.LAPLACE:
            return np.asarray(-np.abs(values) / math.sqrt(variance / 2))
        return np.asarray(-(values**2) / (2 * variance))


@dataclass(frozen=True, eq=False)
class NoisyQuery:
    """Noisy answers of one partition query, R draws.

    Attributes:
      groups: int64[n], the answer (0..m-1) in which each cell counts.
      answers: float64[R, m].
      variance: Of the noise of each answer.
    """

    groups: IntArray
    answers: FloatArray
    variance: float

    @property
    def n_answers(self) -> int:
        """Number of answers, m."""
        return int(self.answers.shape[1])

    def rows(self) -> FloatArray:
        """float64[m, n], the query as a matrix."""
        return np.asarray(self.groups == np.arange(self.n_answers)[:, None], float)


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """Noisy answers over one histogram of n cells.

    Attributes:
      coarse: Queries that add cells up, the most important first.
      cells: The query of single cells, cell i in answer i; the least important.
      law: Law of the noise of all answers.
    """

    coarse: tuple[NoisyQuery, ...]
    cells: NoisyQuery
    law: NoiseLaw

    def __post_init__(self) -> None:
        n = len(self.cells.groups)
        if not np.array_equal(self.cells.groups, np.arange(n)) or self.cells.n_answers != n:
            raise SolverError("noisy table", "the last query must ask single cells in order")
        for query in (*self.coarse, self.cells):
            if len(query.groups) != n or len(query.answers) != self.n_draws:
                raise SolverError("noisy table", "queries differ in cells or draws")
            if not query.variance > 0:
                raise SolverError("noisy table", "a variance must be positive", got=query.variance)
            if not np.isfinite(query.answers).all():
                raise SolverError("noisy table", "an answer is not a finite number")
            if query.groups.min() < 0 or query.groups.max() >= query.n_answers:
                raise SolverError("noisy table", "a cell counts in no answer")

    @property
    def n_cells(self) -> int:
        """Number of cells, n."""
        return len(self.cells.groups)

    @property
    def n_draws(self) -> int:
        """Number of draws, R."""
        return len(self.cells.answers)

    def coarse_rows(self) -> FloatArray:
        """float64[m, n], all coarse queries as one matrix."""
        return np.vstack([np.zeros((0, self.n_cells)), *(q.rows() for q in self.coarse)])

    def coarse_answers(self) -> FloatArray:
        """float64[R, m]."""
        return np.hstack([np.zeros((self.n_draws, 0)), *(q.answers for q in self.coarse)])

    def coarse_variances(self) -> FloatArray:
        """float64[m]."""
        return np.concatenate([[], *(np.full(q.n_answers, q.variance) for q in self.coarse)])
