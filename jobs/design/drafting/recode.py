"""Number the places of a public list whose codes are no geocodes: of any length and alphabet."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from das.errors import ConfigError
from jobs.design.drafting.geolevels import (
    ROOT,
    Geolevel,
    is_of_places,
    level_name,
    propose_names,
)
from jobs.pipeline.confidential.look import Column, Look
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Table, read_table
from jobs.pipeline.storage.place import Place

FILE = "geocodes.csv"
_NEARLY = 0.9  # share of the codes of the data that the list must hold; default, not measured

Rows = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Recoded:
    """Public table of new geocodes, made from a public list alone.

    Attributes:
      columns: Columns of the data whose codes together stand for a leaf geounit.
      levels: Geolevels, root first.
      names: Geolevel to the column of the table with codes and names of its geounits.
      table: Column of the table to its texts, `geocode` first.
    """

    columns: tuple[str, ...]
    levels: tuple[Geolevel, ...]
    names: Mapping[str, str]
    table: Mapping[str, Sequence[str]]

    @property
    def codes(self) -> frozenset[str]:
        """Return the codes of all places, as `values.joined` gives those of the data."""
        rows = zip(*(self.table[column] for column in self.columns), strict=True)
        return frozenset(values.CODE_END.join(row) for row in rows)

    def write(self, path: Path) -> None:
        """Write the table as CSV."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.table)
        writer.writerows(zip(*self.table.values(), strict=True))
        path.write_text(file.getvalue(), encoding="utf-8")


def read_list(path: Place, look: Look) -> dict[str, tuple[str, ...]]:
    """Read all columns of a public list as trimmed texts."""
    names = tuple(column.name for column in look.columns if not column.fault)
    texts: dict[str, list[str]] = {name: [] for name in names}
    for batch in read_table(Table(path, names, look.delimiter or ",", "--delimiter")):
        for name in names:
            texts[name] += values.joined(batch, [name]).to_pylist()
    return {name: tuple(column) for name, column in texts.items()}


def match_columns(
    codes_of: Mapping[str, Collection[str]],
    listed: Mapping[str, Sequence[str]],
    stated: Sequence[str],
) -> dict[str, str]:
    """Match columns of the data with columns of a list that hold their codes.

    Args:
      codes_of: Column of the data to its distinct codes.
      listed: Column of the list to its texts.
      stated: Columns that the user named; empty if none were.

    Returns:
      Column of the data to that of the list: all that have the same name and hold the same codes,
      else the only one whose codes are a key of the list. Empty if nothing matches.
    """
    held = {name: {*texts} for name, texts in listed.items()}

    def holds(name: str, column: str) -> bool:
        codes = {code.strip() for code in codes_of[name]}
        return len(codes & held[column]) >= _NEARLY * len(codes)

    named = {name.strip(): name for name in listed}
    same = {
        name: named[name.strip()]
        for name in stated or codes_of
        if name.strip() in named and holds(name, named[name.strip()])
    }
    if same if not stated else len(same) == len(stated):
        return same
    keys = [column for column, texts in listed.items() if len(held[column]) == len(texts)]
    pairs = [
        (name, column) for name in stated or codes_of for column in keys if holds(name, column)
    ]
    return dict(pairs) if len(pairs) == 1 else {}


def recode(
    listed: Mapping[str, Sequence[str]], look: Look, matched: Mapping[str, str]
) -> Recoded | None:
    """Number the places of a list along its hierarchy.

    Args:
      listed: Column of the list to its texts.
      look: The columns of the list.
      matched: Columns of the data that stand for a place, to those of the list.

    Returns:
      The table; None if two places of the list have the same codes.

    Raises:
      ConfigError: A place of the list has no code.
    """
    of_list = {column: name for name, column in matched.items()}
    chain = _chain(listed, look, [*matched.values()])
    if len({*zip(*(listed[column] for column in chain), strict=True)}) < len(listed[chain[0]]):
        return None
    if any("" in listed[column] for column in chain):
        what = "has a place without a code"
        raise ConfigError("--geounits", what, got=chain, want="a code in every row")
    paths = [*zip(*(listed[column] for column in chain), strict=True)]
    taken, geocodes = {ROOT}, [""] * len(paths)
    levels = [Geolevel(ROOT, 0, "the whole country, so that all geounits share one root")]
    columns_of: dict[str, str] = {}
    for depth, column in enumerate(chain, 1):
        numbers = _numbered([path[:depth] for path in paths])
        if max(numbers.values()) == 1 and depth > 1:  # another text for the same places
            continue
        width = len(str(max(numbers.values())))
        for row, path in enumerate(paths):
            geocodes[row] += f"{numbers[path[:depth]]:0{width}d}"
        name = level_name(column, len(geocodes[0]), taken)
        levels.append(Geolevel(name, len(geocodes[0]), "das init numbered its codes"))
        columns_of[name] = column
    rest = {
        name: dict(zip(geocodes, texts, strict=True))
        for name, texts in listed.items()
        if name not in chain
    }
    words = propose_names(rest, levels)
    table: dict[str, Sequence[str]] = {"geocode": geocodes}
    table |= {of_list.get(column, column): listed[column] for column in chain}
    names = {level: of_list.get(column, column) for level, column in columns_of.items()}
    for level, column in words.items():
        names[level] = f"{level} name"
        pairs = zip(listed[columns_of[level]], listed[column], strict=True)
        table[names[level]] = [f"{code} {word}".strip() for code, word in pairs]
    return Recoded(tuple(matched), tuple(levels), names, table)


def _chain(listed: Mapping[str, Sequence[str]], look: Look, keys: Sequence[str]) -> list[str]:
    """Return the columns of the hierarchy, root first: the keys, and places that contain them."""

    def size(column: str) -> int:
        return len({*listed[column]})

    chain = sorted(keys, key=size)
    places = [
        column.name
        for column in look.columns
        if column.name in listed and column.name not in keys and is_of_places(column)
    ]
    for place in sorted(places, key=size, reverse=True):
        below = [column for column in chain if size(column) > size(place)]
        if not below or size(place) < 2:
            continue
        if len({*zip(listed[below[0]], listed[place], strict=True)}) == size(below[0]):
            chain.insert(chain.index(below[0]), place)
    return chain


def _numbered(paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    """Number the geounits of a geolevel within their parents, from 1, in the order of codes."""
    numbers: dict[tuple[str, ...], int] = {}
    last: dict[tuple[str, ...], int] = {}
    for path in sorted({*paths}):
        last[path[:-1]] = numbers[path] = last.get(path[:-1], 0) + 1
    return numbers


def is_plain(column: Column | None) -> bool:
    """Return whether a column holds geocodes as they are: equally long, or without their zeros."""
    if column is None or not column.is_code:
        return False
    return column.shortest == column.longest or (column.is_number and not column.has_zeros)
