"""Noisy answers of a range of geounits, read for the node problems of their parents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import FloatArray, IntArray, ObjectArray
from das.errors import OutputError
from das.queries.query import Query
from jobs.storage.dataset import Dataset, rows_about


@dataclass(frozen=True, eq=False)
class DrawnAnswers:
    """Answers of a lazy query: of every geounit those that were drawn, compressed by rows.

    Attributes:
      offsets: int64[G + 1]; geounit g owns entries offsets[g]:offsets[g + 1].
      positions: int64, which answer each entry is, rising within a geounit.
      answers: int64, noisy.
    """

    offsets: IntArray
    positions: IntArray
    answers: IntArray

    def of(self, rows: slice, wanted: IntArray) -> FloatArray:
        """Some answers of the geounits of one family, float64[C, w].

        Raises:
          OutputError: One was not drawn.
        """
        edges = self.offsets[rows.start : rows.stop + 1]
        entries = slice(edges[0], edges[-1])
        positions = self.positions[entries].reshape(rows.stop - rows.start, -1)
        place = np.searchsorted(positions[0], wanted)
        if (place >= positions.shape[1]).any() or (positions[:, place] != wanted).any():
            raise OutputError(
                "lazy measurements",
                "lack answers about cells that are positive now: the geolevel above was solved "
                "again after they were drawn",
                remedy="restore those counts from a backup; or remove them and solve them again "
                "with the libraries and the machine that solved them first",
            )
        return self.answers[entries].reshape(positions.shape)[:, place].astype(np.float64)


def read_noisy(
    dataset: Path, queries: Sequence[Query], lazy: Sequence[Query], codes: ObjectArray
) -> list[FloatArray | DrawnAnswers]:
    """Read the noisy answers of queries for exactly these geocodes.

    Args:
      dataset: The measurements of a geolevel.
      queries: What to read.
      lazy: Those of them of which only some answers were drawn.
      codes: Geocodes of measured geounits, as they lie in the file.

    Returns:
      Per query float64[G, m], or the answers drawn if it is lazy.

    Raises:
      OutputError: The dataset is not complete or lacks a geounit.
    """
    if not len(codes):
        return [np.zeros((0, query.size)) for query in queries]
    table = Dataset.open(dataset).read(str(codes[0]), str(codes[-1]))
    found: list[FloatArray | DrawnAnswers] = []
    for query in queries:
        rows = rows_about(table, query.name)
        if not np.array_equal(rows.column("geocode").to_numpy(zero_copy_only=False), codes):
            raise _lacks(dataset, query)
        flat = pc.list_flatten(rows.column("answers")).to_numpy()
        if query in lazy:
            found.append(_drawn(rows, flat))
        elif len(flat) == len(codes) * query.size:
            found.append(flat.reshape(len(codes), query.size).astype(np.float64))
        else:
            raise _lacks(dataset, query)
    return found


def _drawn(rows: pa.Table, flat: IntArray) -> DrawnAnswers:
    lengths = pc.list_value_length(rows.column("answers")).to_numpy()
    positions = pc.list_flatten(rows.column("positions")).to_numpy()
    return DrawnAnswers(np.concatenate(([0], np.cumsum(lengths))), positions, flat)


def _lacks(dataset: Path, query: Query) -> OutputError:
    return OutputError(str(dataset), f"does not hold query {query.name} of every geounit")
