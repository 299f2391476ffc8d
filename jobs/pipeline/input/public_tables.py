"""Read public tables of counts, such as facilities by type or persons by county."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from das.arrays import IntArray, ObjectArray
from das.errors import InputError
from jobs.pipeline.config.models.kinds.kind import PublicTable
from jobs.pipeline.input import values
from jobs.pipeline.input.files import read_table
from jobs.pipeline.input.geounits import table_of

# Keeps products in int64: the sum of a table times the most persons of a facility.
_LARGEST_SUM = 10**12


def read_public(
    table: PublicTable, labels: Sequence[str], digits: int
) -> tuple[ObjectArray, IntArray]:
    """Read a public table of counts.

    Args:
      table: The file and its columns.
      labels: Labels of the counts, in the order of the result; labels without a column get 0.
      digits: Length of the geocodes.

    Returns:
      object[G] geocodes, sorted, and int64[G, len(labels)] counts.

    Raises:
      InputError: The table cannot be read, or repeats a geounit.
    """
    codes, counts, total = [], [], 0.0
    for batch in read_table(table_of(table, table.columns.values())):
        array = values.geocodes(batch, table.geocode, digits)
        codes.append(array.to_numpy(zero_copy_only=False).astype(object))
        rows = np.zeros((len(array), len(labels)), np.int64)
        for label, column in table.columns.items():
            rows[:, labels.index(label)] = values.counts(batch, column)
        total = values.add_rows(total, rows.sum(1, dtype=np.float64), batch.where, _LARGEST_SUM)
        counts.append(rows)
    geocodes = np.concatenate(codes)
    order = np.argsort(geocodes.astype(np.str_), kind="stable")
    geocodes = geocodes[order]
    twice = geocodes[1:][geocodes[1:] == geocodes[:-1]]
    if len(twice):
        raise InputError(
            str(table.path),
            f"geocode appears twice ({len(np.unique(twice.astype(np.str_)))} such)",
            got=twice[0],
            want="one row per geounit",
        )
    return geocodes, np.concatenate(counts)[order]
