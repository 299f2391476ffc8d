"""Read the measurements of a release for analysis: answers with the law of their noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from das.errors import OutputError
from das.mechanisms.mechanism import Mechanism, read_mechanism
from jobs.storage.dataset import Dataset, rows_about
from jobs.storage.layout import ReleaseLayout


@dataclass(frozen=True, eq=False)
class NoisyAnswers:
    """Measurements of one query at one geolevel.

    Attributes:
      labels: What each of the m answers counts.
      geocodes: str[G], the measured geounits; only children are not measured.
      answers: int64[G, m], persons plus noise.
      laws: One per geounit, the law of the noise of each of its answers.
    """

    labels: tuple[str, ...]
    geocodes: npt.NDArray[np.str_]
    answers: npt.NDArray[np.int64]
    laws: tuple[Mechanism, ...]

    def under(self, law: Mechanism) -> NoisyAnswers:
        """Return the geounits measured with this law; all of them at the leaf geolevel."""
        rows = [row for row, other in enumerate(self.laws) if other == law]
        return NoisyAnswers(
            self.labels, self.geocodes[rows], self.answers[rows], tuple(law for _ in rows)
        )


def read_answers(release: Path, geolevel: str, query: str) -> NoisyAnswers:
    """Read what a release measured.

    Args:
      release: The folder `release` of a run.
      geolevel: Name of the geolevel.
      query: Name of the query, as in the allocation.

    Raises:
      OutputError: The geolevel was not measured, a file is missing, or the query was not asked.
    """
    dataset = Dataset.open(ReleaseLayout(release).measurements(geolevel))
    asked = {entry["query"]: entry for entry in dataset.facts["queries"]}
    if query not in asked:
        raise OutputError(str(dataset.path), "lacks a query", got=query, want=list(asked))
    if query in dataset.facts.get("lazy_queries", ()):
        raise OutputError(str(dataset.path), "holds only some answers of a lazy query", got=query)
    columns = ("geocode", "query", "mechanism", "parameter", "answers")
    table = rows_about(dataset.read(columns=columns), query)
    laws: dict[tuple[str, str], Mechanism] = {}
    for kind, parameter in zip(
        table.column("mechanism").to_pylist(), table.column("parameter").to_pylist(), strict=True
    ):
        if (kind, parameter) not in laws:
            laws[kind, parameter] = read_mechanism(kind, Fraction(parameter))
    answers = pc.list_flatten(table.column("answers")).to_numpy()
    return NoisyAnswers(
        tuple(asked[query]["labels"]),
        table.column("geocode").to_numpy().astype(np.str_),
        answers.reshape(table.num_rows, asked[query]["answers"]),
        tuple(
            laws[pair]
            for pair in zip(
                table.column("mechanism").to_pylist(),
                table.column("parameter").to_pylist(),
                strict=True,
            )
        ),
    )
