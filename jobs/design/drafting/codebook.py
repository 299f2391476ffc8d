"""Read public code lists, with a label for each code of a column."""

from __future__ import annotations

from das.errors import InputError
from jobs.pipeline.confidential.look import look_at
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Table, read_table
from jobs.pipeline.storage.place import Place

_COLUMNS = ("column", "code", "label")
_MOST_ROWS = 1_000_000  # read to detect the delimiter; default, not measured


def read_codebook(path: Place) -> dict[str, dict[str, str]]:
    """Read a code list: one row per column and code; the order of rows is that of levels.

    Returns:
      Column to {code: label}; an empty code stands for missing values.

    Raises:
      InputError: The file cannot be read, lacks a column, repeats a code, or lacks a label.
    """
    delimiter = look_at(path, _MOST_ROWS).delimiter or ","
    codebook: dict[str, dict[str, str]] = {}
    for batch in read_table(Table(path, _COLUMNS, delimiter)):
        texts = [values.texts(batch, name).to_pylist() for name in _COLUMNS]
        for index, (column, code, label) in enumerate(zip(*texts, strict=True)):
            codes = codebook.setdefault(column.strip(), {})
            if code in codes:
                raise InputError(batch.where(index), "repeats a code", got=code)
            if not label.strip() or not label.isprintable():
                raise InputError(batch.where(index), "has no label", want="a label for every code")
            codes[code] = label.strip()
    return codebook
