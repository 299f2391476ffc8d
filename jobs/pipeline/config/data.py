"""Kinds of input files, by the endings of their names. Opens no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from das.errors import InputError
from jobs.pipeline.storage.place import Place

FILE_KINDS: Mapping[str, Literal["csv", "parquet"]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def check_suffix(path: Place, known: Sequence[str] = tuple(FILE_KINDS)) -> None:
    """Check the ending of the name of a file; a folder may be called anything.

    Raises:
      InputError: The name of the file has an ending that is not in `known`.
    """
    if path.suffix and path.suffix.lower() not in known and not path.is_dir():
        raise InputError(
            str(path), "has an unknown file type", want=f"a name ending in {list(known)}"
        )
