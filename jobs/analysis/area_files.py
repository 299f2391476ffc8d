"""Files that say which leaf geounits make up an area, as offices write them.

One geocode a line, or an area and a geocode in either order, separated by a comma, tab, bar or
semicolon, with or without a header line, quotes and a byte order mark. Which column holds geocodes
is told by the public list of leaf geounits.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from das.errors import InputError
from jobs.storage.place import Place

_DELIMITERS = (",", "\t", "|", ";")
_LOOKED_AT = 1000  # rows from which the layout is told

Rows = Sequence[tuple[int, Sequence[str]]]  # line number and fields


@dataclass(frozen=True)
class AreaFile:
    """What an area file says.

    Attributes:
      areas: Leaf geocodes of every area, each once, in the order of the file.
      notes: What a reader should know of it: leaves that are in no area, twice in one, or in two.
    """

    areas: Mapping[str, Sequence[str]]
    notes: Sequence[str]


def read_areas(path: Place, leaves: Sequence[str], leaf: str) -> AreaFile:
    """Read an area file.

    Args:
      path: The file. Without a column of areas, it is one area, called as the file.
      leaves: Geocodes of all leaf geounits.
      leaf: Name of the leaf geolevel.

    Raises:
      InputError: It cannot be read, no column holds geocodes, several columns could be that of the
        areas, or a geocode does not exist; the message names row and code, which are public.
    """
    known = frozenset(leaves)
    delimiter, rows = _rows(path, known)
    column = _code_column(path, rows, known, leaf)
    rows = _without_header(rows, column, known)
    area_column = _area_column(path, rows, column, delimiter)
    return _assigned(path, rows, (area_column, column), leaves, leaf)


def _rows(path: Place, known: AbstractSet[str]) -> tuple[str, Rows]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(str(path), "cannot be read", got=error.strerror) from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text", remedy="save it as UTF-8") from None
    lines = text.splitlines()
    head = [line for line in lines if line.strip()][:_LOOKED_AT]
    if not head:
        raise InputError(str(path), "is empty", want="geocodes, one a line")

    def fitting(delimiter: str) -> int:
        fields = (_fields(path, 0, line, delimiter) for line in head)
        return sum(len(row) > 1 and bool(known & set(row)) for row in fields)

    delimiter = max(_DELIMITERS, key=fitting)
    rows = [
        (number, _fields(path, number, line, delimiter))
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    return delimiter, rows


def _fields(path: Place, number: int, line: str, delimiter: str) -> list[str]:
    try:
        found = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    except (csv.Error, StopIteration):
        raise InputError(f"{path}, row {number}", "is not a CSV line") from None
    return [field.strip() for field in found]


def _code_column(path: Place, rows: Rows, known: AbstractSet[str], leaf: str) -> int:
    """The column with most known geocodes among the first rows."""
    some = [row for _, row in rows[:_LOOKED_AT]]
    width = max(len(row) for row in some)
    fits = [sum(at < len(row) and row[at] in known for row in some) for at in range(width)]
    if max(fits):
        return fits.index(max(fits))
    example = min(known, default="")
    number, first = rows[-1]
    shorter = any(
        field.isalnum() and field.zfill(len(example)) in known for row in some for field in row
    )
    raise InputError(
        f"{path}, row {number}",
        f"holds no geocode of the geolevel {leaf}, as no other row does",
        got=", ".join(first),
        want=f"geocodes such as {example}",
        remedy="programs that read geocodes as numbers drop leading zeros: write them as text"
        if shorter
        else None,
    )


def _without_header(rows: Rows, column: int, known: AbstractSet[str]) -> Rows:
    """All rows but a first one that names columns."""
    first = rows[0][1]
    code = first[column] if column < len(first) else ""
    if code in known or len(rows) == 1:
        return rows
    digits = {len(one) for one in known}
    is_numeric = all(one.isdecimal() for one in known)
    looks_alike = len(code) in digits and (code.isdecimal() or not is_numeric)
    return rows if looks_alike else rows[1:]


def _area_column(path: Place, rows: Rows, column: int, delimiter: str) -> int | None:
    width = max(len(row) for _, row in rows)
    for number, row in rows:
        if len(row) != width:
            raise InputError(
                f"{path}, row {number}",
                "has another number of fields than other rows",
                got=f"{len(row)}, separated by {delimiter!r}",
                want=width,
                remedy="put quotes around names that hold the separator",
            )
    if width > 2:
        raise InputError(
            f"{path}, row {rows[0][0]}",
            "has several columns beside that of the geocodes",
            got=f"{width} columns",
            want="one column of areas and one of geocodes",
            remedy="leave the other columns out",
        )
    return None if width == 1 else 1 - column


def _assigned(
    path: Place, rows: Rows, columns: tuple[int | None, int], leaves: Sequence[str], leaf: str
) -> AreaFile:
    area_column, column = columns
    known = frozenset(leaves)
    unknown = [(number, row[column]) for number, row in rows if row[column] not in known]
    if unknown:
        number, code = unknown[0]
        raise InputError(
            f"{path}, row {number}",
            f"names no {leaf} of the release ({len(unknown)} such rows)",
            got=code or "nothing",
            want=f"geocodes such as {leaves[0]}",
            remedy="correct the row, or remove it",
        )
    areas: dict[str, dict[str, int]] = {}
    first: dict[str, tuple[int, str]] = {}
    twice: list[str] = []
    shared: list[str] = []
    for number, row in rows:
        area = path.stem if area_column is None else row[area_column]
        if not area:  # a leaf that is assigned to no area
            continue
        code = row[column]
        if code in areas.setdefault(area, {}):
            twice.append(f"{code} in rows {areas[area][code]} and {number}")
            continue
        areas[area][code] = number
        if code in first:
            row_before, area_before = first[code]
            shared.append(f"{code} in {area_before}, row {row_before}, and {area}, row {number}")
        first.setdefault(code, (number, area))
    if not areas:
        raise InputError(str(path), "assigns no geocode to an area", want="names of areas")
    missing = [code for code in leaves if code not in first]
    notes = [
        f"{len(found)} {what}, the first is {found[0]}"
        for found, what in (
            (missing if area_column is not None else [], f"of {len(leaves)} {leaf}s in no area"),
            (twice, f"{leaf}s twice in one area, counted once"),
            (shared, f"{leaf}s in more than one area"),
        )
        if found
    ]
    return AreaFile({area: list(codes) for area, codes in areas.items()}, notes)
