"""Measurements: noisy answers of one query in many geounits. Safe after the firewall."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from das.errors import SchemaError
from das.histograms import frozen_array

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Measurements:
    """Answers of one query in G geounits, each answer + discrete Gaussian noise.

    Attributes:
      query: Canonical name of the query.
      sigma_sq: One exact discrete Gaussian parameter per geounit.
      answers: int64[G, m].
    """

    query: str
    sigma_sq: tuple[Fraction, ...]
    answers: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", frozen_array(self.answers))
        if self.answers.ndim != 2 or len(self.answers) != len(self.sigma_sq):
            raise SchemaError(f"measurements of {self.query}", "need one sigma_sq per geounit")
