"""Public code lists: what each code of a column means."""

from __future__ import annotations

from das.errors import InputError
from jobs.pipeline.confidential.look import look_at
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Table, read_table
from jobs.pipeline.storage.place import Place

_COLUMNS = ("column", "code", "label")
_MOST_ROWS = 1_000_000


def read_codebook(path: Place) -> dict[str, dict[str, str]]:
    """Read a table with a row per column and code; levels come in the order of the rows.

    Returns:
      By column, from code to label; a row without a code is about missing values.

    Raises:
      InputError: It cannot be read, lacks a column, gives a code twice, or has no label for one.
    """
    delimiter = look_at(path, _MOST_ROWS).delimiter or ","
    found: dict[str, dict[str, str]] = {}
    for batch in read_table(Table(path, _COLUMNS, delimiter)):
        texts = [values.texts(batch, name).to_pylist() for name in _COLUMNS]
        for index, (column, code, label) in enumerate(zip(*texts, strict=True)):
            codes = found.setdefault(column.strip(), {})
            if code in codes:
                raise InputError(batch.where(index), "gives a code twice", got=code)
            if not label.strip() or not label.isprintable():
                raise InputError(batch.where(index), "has no label", want="a label for every code")
            codes[code] = label.strip()
    return found
