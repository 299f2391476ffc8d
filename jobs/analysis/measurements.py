"""Read the measurements of a release for analysis: answers with the mechanism of their noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.errors import OutputError
from das.mechanisms.mechanism import Mechanism
from jobs.pipeline.storage.answers import read_measured
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place


@dataclass(frozen=True, eq=False)
class NoisyAnswers:
    """Measurements of one query at one geolevel.

    Attributes:
      labels: Labels of the m answers.
      geocodes: str[G], the measured geounits; only children are not measured.
      answers: int64[G, m], persons plus noise.
      mechanisms: For each geounit, the noise distribution of each answer.
    """

    labels: tuple[str, ...]
    geocodes: npt.NDArray[np.str_]
    answers: npt.NDArray[np.int64]
    mechanisms: tuple[Mechanism, ...]

    def under(self, mechanism: Mechanism) -> NoisyAnswers:
        """Return the rows of the geounits measured with this mechanism."""
        rows = [row for row, other in enumerate(self.mechanisms) if other == mechanism]
        return NoisyAnswers(
            self.labels, self.geocodes[rows], self.answers[rows], (mechanism,) * len(rows)
        )


def read_measurements(release: Place, geolevel: str, query: str) -> NoisyAnswers:
    """Read the noisy answers of a query from a release.

    Args:
      release: The folder of a product in a release.
      geolevel: Name of the geolevel.
      query: Name of the query, as in the allocation.

    Raises:
      OutputError: The geolevel or the query was not measured, or a file is missing.
    """
    layout = ReleaseLayout(release)
    dataset = Dataset.open(layout.measurements(geolevel))
    lazily = layout.lazy_measurements(geolevel)
    measured = {entry["query"]: entry for entry in dataset.facts["queries"]}
    if is_published(lazily) and query in Dataset.open(lazily).facts["lazy_queries"]:
        raise OutputError(
            str(dataset.path), "holds only some answers of an on-demand query", got=query
        )
    if query not in measured:
        raise OutputError(str(dataset.path), "lacks a query", got=query, want=list(measured))
    codes, answers, mechanisms = read_measured(dataset, query, measured[query]["answers"])
    labels = tuple(measured[query]["labels"])
    return NoisyAnswers(labels, codes.astype(np.str_), answers, mechanisms)
