"""Which column holds the geocodes, and into which geolevels their prefixes fall."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from das.errors import ConfigError
from jobs.pipeline.confidential.look import Column

# Words of censuses for what a geocode names; the finest of several columns is taken.
_PLACES = frozenset(
    {
        *("geocode", "geoid", "geo", "geography", "area", "place", "zone", "region", "locality"),
        *("block", "tract", "county", "state", "ea", "enumeration", "village", "town", "city"),
        *("municipality", "municipio", "commune", "gemeinde", "ags", "district", "province"),
        *("parish", "ward", "sector", "settlement", "oa", "lsoa", "msoa", "sa1", "sa2", "lau"),
        *("nuts", "insee", "ibge", "comuna", "canton", "department", "departement", "grid", "cell"),
    }
)
_NAMES = frozenset({"name", "names", "nom", "nome", "nombre", "naam", "label", "bezeichnung"})
_NAME_ENDS = ("name", "naam", "bezeichnung")  # of words put together: Gemeindename, gemeentenaam
_ROOT = "country"
_FAN = 3  # a geolevel with fewer children to a parent, on average, says little
_LONGEST = 100  # characters; what a run file takes
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Geolevel:
    """A proposed geolevel.

    Attributes:
      name: Of the geolevel.
      digits: Length of its geocodes.
      why: How it was found; empty if somebody said it.
    """

    name: str
    digits: int
    why: str = ""


def find_geocode(columns: Iterable[Column], of_data: str = "") -> str:
    """The column that holds geocodes, by names and lengths.

    Args:
      columns: Of a file.
      of_data: Of a list of geounits: what the column is called in the data.

    Raises:
      ConfigError: None does, or several may.
    """
    fitting = [one for one in columns if one.is_code and not one.fault and one.longest <= _LONGEST]
    named = [one for one in fitting if is_of_places(one)]
    if named:
        longest = max(one.longest for one in named)
        found = [one.name for one in named if one.longest == longest]
    else:
        found = [one.name for one in fitting if not one.is_number and one.codes is None]
    if len(found) != 1:
        raise ConfigError(
            "das init",
            "cannot tell which column holds the geocodes",
            got=found or [one.name for one in fitting] or None,
            want="a column of letters and digits, alike in length",
            remedy=f"call it {of_data} in this list, as in the data"
            if of_data
            else "name it by --geocode, or, root first, all columns that make it, with commas",
        )
    return found[0]


def is_of_places(column: Column) -> bool:
    """Whether a column is called like what a geocode names, and holds codes."""
    return column.is_code and not column.fault and bool(_words(column.name) & _PLACES)


def read_geolevels(texts: Sequence[str]) -> list[Geolevel]:
    """Read geolevels as the command line has them, such as "province 2".

    Raises:
      ConfigError: One is not a name and a number.
    """
    found = []
    for text in texts:
        name, _, digits = text.strip().replace(":", " ").rpartition(" ")
        if not _NAME.fullmatch(name.strip()) or not digits.isdigit() or len(digits) > 3:
            raise ConfigError(
                "--geolevels",
                "holds no geolevels",
                got=text,
                want='names and lengths of geocodes, root first, such as "province 2, village 6"',
            )
        found.append(Geolevel(name.strip(), int(digits)))
    return found


def propose_geolevels(
    geocodes: Collection[str], prefixes: Mapping[str, int], leaf: str
) -> list[Geolevel]:
    """Propose geolevels: those that other columns name, else lengths at which geocodes branch.

    Args:
      geocodes: Of all leaves, of one length.
      prefixes: Columns that repeat the beginning of the geocode, to its length.
      leaf: Column of the geocodes.
    """
    digits = max(len(code) for code in geocodes)
    taken = {_ROOT}
    levels = [Geolevel(_ROOT, 0, "the whole, so that all geounits share one root")]
    of_length = {length: name for name, length in sorted(prefixes.items(), reverse=True)}
    for length, name in sorted(of_length.items()):
        why = f"the column {name} repeats these characters of the geocode"
        levels.append(Geolevel(_level_name(name, length, taken), length, why))
    if not of_length:
        for length in _branching(geocodes, digits):
            why = "guessed from where geocodes branch: what do these characters mean?"
            levels.append(Geolevel(_level_name("", length, taken), length, why))
    last = _level_name(leaf, digits, taken)
    return [*levels, Geolevel(last, digits, "the whole geocode")]


def propose_names(
    said: Mapping[str, Mapping[str, str]], levels: Sequence[Geolevel]
) -> dict[str, str]:
    """Which columns of a public list name geounits, by geolevel: one each, the finest that fits.

    Args:
      said: Columns of the list, each by geocode of full length.
      levels: Geolevels, root first.
    """
    found: dict[str, str] = {}
    for column, of_code in said.items():
        if not _is_of_names(column) or len({*of_code.values()}) < 2:
            continue
        for level in levels[1:]:
            pairs = {(code[: level.digits], text) for code, text in of_code.items()}
            if len({code for code, _ in pairs}) == len(pairs):
                found.setdefault(level.name, column)
                break
    return found


def _branching(geocodes: Collection[str], digits: int) -> list[int]:
    """Lengths at which a geounit has several parts, and is one of several."""
    numbers = {length: len({code[:length] for code in geocodes}) for length in range(digits + 1)}
    found: list[int] = []
    for length in range(1, digits):
        above = numbers[found[-1] if found else 0]
        is_apart = length - (found[-1] if found else 0) > 1
        if is_apart and min(numbers[length] / above, numbers[digits] / numbers[length]) >= _FAN:
            found.append(length)
    return found


def _level_name(column: str, digits: int, taken: set[str]) -> str:
    """A name that a geolevel may have: that of the column, if it is one."""
    name = re.sub(r"[^A-Za-z0-9-]+", "_", column.strip().lower()).strip("_-")
    if not _NAME.fullmatch(name) or name in taken:
        name = f"first_{digits}"
    taken.add(name)
    return name


def _is_of_names(column: str) -> bool:
    words = _words(column)
    return bool(words & _NAMES) or any(word.endswith(_NAME_ENDS) for word in words)


def _words(name: str) -> set[str]:
    return set(re.split(r"[\W_]+", name.casefold()))
