"""Types of geounits, such as urban and rural, read from public files."""

from __future__ import annotations

import numpy as np

from das.arrays import Geocodes
from das.errors import InputError
from das.metrics.parity import Areas
from jobs.pipeline.config.models.products import AreasFile
from jobs.pipeline.input.spine import read_columns

# A type groups many geounits. A column with more values holds something else. Not measured.
MOST_TYPES = 1_000


def read_areas(file: AreasFile, geocodes: Geocodes) -> Areas:
    """Read the types of all geounits of a geolevel.

    Args:
      file: The file of types.
      geocodes: bytes[G], the geounits, sorted.

    Returns:
      The types in the order of the geounits, with sorted labels.

    Raises:
      InputError: The file cannot be read, repeats a geounit, has an unknown geounit, or lacks a
        geounit or its type.
    """
    types = read_columns(file, geocodes, geocodes.dtype.itemsize, (file.type,))[file.type]
    where = f"{file.path}, column {file.type}"
    if (types == "").any():
        without = geocodes[types == ""][0].decode()
        raise InputError(where, "type is missing", got=f"none of {without}")
    labels, kinds = np.unique(types, return_inverse=True)
    if len(labels) > MOST_TYPES:
        raise InputError(where, "has too many types", got=len(labels), want=f"at most {MOST_TYPES}")
    return Areas(tuple(map(str, labels)), kinds.reshape(-1))
