"""The table problem: noisy answers of partition queries over one histogram, many draws at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SolverError
from das.mechanisms.mechanism import Continuous


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
      noise: Distribution of the noise of all answers, but for its variance.
    """

    coarse: tuple[NoisyQuery, ...]
    cells: NoisyQuery
    noise: type[Continuous]

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
