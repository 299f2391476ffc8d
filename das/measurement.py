"""Measurements: noisy answers of one query in many geounits. Safe after the firewall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.errors import SchemaError
from das.histograms import frozen_array
from das.mechanisms.mechanism import Mechanism

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Measurements:
    """Answers of one query in G geounits, each answer + independent noise.

    Attributes:
      query: Canonical name of the query.
      mechanisms: One law of noise per geounit.
      answers: int64[G, m].
    """

    query: str
    mechanisms: tuple[Mechanism, ...]
    answers: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", frozen_array(self.answers))
        if self.answers.ndim != 2 or len(self.answers) != len(self.mechanisms):
            raise SchemaError(f"measurements of {self.query}", "need one mechanism per geounit")
