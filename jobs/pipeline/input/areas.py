"""Types of geounits, such as urban and rural, read from public files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import Geocodes
from das.errors import InputError
from das.metrics.parity import Areas
from jobs.pipeline.config.models.products import AreasFile
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Batch, Table, read_table
from jobs.pipeline.input.geounits import sorted_unique

# Types are groups of many geounits. A file of more has another column where its types should be.
MOST_TYPES = 1_000


def read_areas(file: AreasFile, geocodes: Geocodes) -> Areas:
    """Read the types of all geounits of a geolevel.

    Args:
      file: Where they stand.
      geocodes: bytes[G]; the geounits, sorted.

    Returns:
      The types in the order of the geounits; labels sorted.

    Raises:
      InputError: The file cannot be read, names a geounit twice or one that there is not, or lacks
        one or its type.
    """
    digits = geocodes.dtype.itemsize
    columns = (file.geocode, file.type)
    lost = file.leading_zeros == "lost"
    table = Table(file.path, columns, file.delimiter, "its delimiter", lost)
    parts, types = [], []
    for batch in read_table(table):
        parts.append(values.geocode_bytes(values.geocodes(batch, file.geocode, digits), digits))
        types.append(_types(batch, file.type))
    codes = np.concatenate(parts)
    listed = sorted_unique(parts, table, file.geocode, digits)
    _refuse_other(file, np.setdiff1d(listed, geocodes), "names geounits that there are not")
    _refuse_other(file, np.setdiff1d(geocodes, listed), "lacks geounits")
    labels, kinds = np.unique(np.concatenate(types), return_inverse=True)
    if len(labels) > MOST_TYPES:
        raise InputError(
            f"{file.path}, column {file.type}",
            "has too many types",
            got=len(labels),
            want=f"at most {MOST_TYPES}",
        )
    return Areas(tuple(map(str, labels)), kinds.reshape(-1)[np.argsort(codes, kind="stable")])


def _types(batch: Batch, column: str) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    array = batch.table.column(column).cast(pa.string())
    missing = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(pc.fill_null(array, ""))), 0)
    if pc.any(missing).as_py():
        row = int(np.argmax(np.asarray(missing)))
        raise InputError(f"{batch.where(row)}, column {column}", "type is missing")
    return np.asarray(array.to_pylist(), np.str_)


def _refuse_other(file: AreasFile, codes: Geocodes, what: str) -> None:
    if len(codes):
        raise InputError(
            str(file.path),
            f"{what} ({len(codes)} such)",
            got=codes[0].decode(),
            want="one row for each geounit of the geolevel",
        )
