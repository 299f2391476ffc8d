"""Find the column of geocodes, and propose geolevels from their prefixes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from das.errors import ConfigError
from jobs.pipeline.confidential.look import Column

# Census terms for geographic units; among several such columns the one with the longest codes wins.
_PLACES = frozenset(
    {
        *("geocode", "geoid", "geo", "geography", "area", "place", "zone", "region", "locality"),
        *("block", "tract", "county", "state", "ea", "enumeration", "village", "town", "city"),
        *("municipality", "municipio", "commune", "gemeinde", "ags", "district", "province"),
        *("parish", "ward", "sector", "settlement", "oa", "lsoa", "msoa", "sa1", "sa2", "lau"),
        *("nuts", "insee", "ibge", "comuna", "canton", "department", "departement", "grid", "cell"),
        *("freguesia", "concelho", "distrito", "regiao", "localidade", "dicofre", "kreis"),
        *("parroquia", "barrio", "provincia", "kommune", "kommun", "gmina", "powiat"),
    }
)
_NAMES = frozenset({"name", "names", "nom", "nome", "nombre", "naam", "label", "bezeichnung"})
_NAME_ENDS = ("name", "naam", "bezeichnung")  # compound words: Gemeindename, gemeentenaam
ROOT = "country"
_FAN = 3  # least mean number of children per parent of a guessed geolevel; default, not measured
_DISTINCT = 0.8  # least share of different texts among names of places; default, not measured
_LONGEST = 100  # characters of a geocode that a run file allows
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Geolevel:
    """Proposed geolevel.

    Attributes:
      name: Name of the geolevel.
      digits: Length of its geocodes.
      why: How the geolevel was found; empty if the user stated it.
    """

    name: str
    digits: int
    why: str = ""


def find_geocode(columns: Iterable[Column], of_data: str = "") -> str:
    """Return the column that holds geocodes, by names and lengths.

    Args:
      columns: Columns of a file.
      of_data: For a list of geounits: name of the column in the data.

    Raises:
      ConfigError: No column fits, or several do.
    """
    usable = (column for column in columns if column.is_code and not column.fault)
    fitting = [column for column in usable if column.longest <= _LONGEST]
    named = [column for column in fitting if is_of_places(column)]
    longest = max((column.longest for column in named), default=0)
    candidates = [column.name for column in named if column.longest == longest]
    if len(candidates) != 1:
        remedy = (
            "name it by --geocode, or all columns of its parts, root first, separated by commas; "
            "codes of any kind need the public list of places, by --geounits"
        )
        if of_data:
            remedy = f"name it {of_data} in this list, as in the data"
        raise ConfigError(
            "das init",
            "cannot determine the column of geocodes",
            got=candidates or [column.name for column in fitting] or None,
            want="a column of letters and digits of equal length",
            remedy=remedy,
        )
    return candidates[0]


def is_of_places(column: Column) -> bool:
    """Return whether a column has a geographic name and can be read."""
    return not column.fault and bool(_words(column.name) & _PLACES)


def read_geolevels(texts: Sequence[str]) -> list[Geolevel]:
    """Read geolevels of the command line, such as "province 2".

    Raises:
      ConfigError: An entry is no name with a number.
    """
    geolevels = []
    for text in texts:
        name, _, digits = _plain(text).strip().replace(":", " ").rpartition(" ")
        if not _NAME.fullmatch(name.strip()) or not digits.isdigit() or len(digits) > 3:
            raise ConfigError(
                "--geolevels",
                "holds no geolevels",
                got=text,
                want="names of letters, digits, _ and -, and lengths of geocodes, root first, such "
                'as "province 2, village 6"',
            )
        geolevels.append(Geolevel(name.strip(), int(digits)))
    return geolevels


def propose_geolevels(
    geocodes: Collection[str], prefixes: Mapping[str, int], leaf: str
) -> list[Geolevel]:
    """Propose geolevels from columns with prefixes, else from lengths at which geocodes branch.

    Args:
      geocodes: Geocodes of all leaves, of one length.
      prefixes: Columns that repeat the beginning of the geocode, to the length of that prefix.
      leaf: Column of the geocodes.
    """
    digits = max(map(len, geocodes))
    taken = {ROOT}
    levels = [Geolevel(ROOT, 0, "the whole country, so that all geounits share one root")]
    of_length = {length: name for name, length in sorted(prefixes.items(), reverse=True)}
    for length, name in sorted(of_length.items()):
        why = f"the column {name} repeats these characters of the geocode"
        levels.append(Geolevel(level_name(name, length, taken), length, why))
    if not of_length:
        for length in _branching(geocodes, digits):
            why = "guessed from where geocodes branch: what do these characters mean?"
            levels.append(Geolevel(level_name("", length, taken), length, why))
    last = level_name(leaf, digits, taken)
    return [*levels, Geolevel(last, digits, "the whole geocode")]


def propose_names(
    texts_of: Mapping[str, Mapping[str, str]], levels: Sequence[Geolevel]
) -> dict[str, str]:
    """Propose for each geolevel the column of a public list that holds names of its geounits.

    Args:
      texts_of: Column to {geocode: text}; geocodes have full length.
      levels: Geolevels, root first.
    """
    columns: dict[str, str] = {}
    for column, of_code in texts_of.items():
        words, texts = _words(column), {*of_code.values()}
        is_called_name = words & _NAMES or any(word.endswith(_NAME_ENDS) for word in words)
        is_in_words = all(any(letter.isalpha() for letter in text) for text in texts)
        if len(texts) < 2 or not (is_called_name or is_in_words):
            continue
        for level in levels[1:]:
            pairs = {(code[: level.digits], text) for code, text in of_code.items()}
            is_distinct = is_called_name or len(texts) >= _DISTINCT * len(pairs)
            if is_distinct and len({code for code, _ in pairs}) == len(pairs):
                columns.setdefault(level.name, column)
                break
    return columns


def _branching(geocodes: Collection[str], digits: int) -> list[int]:
    """Return lengths of prefixes that suit as geolevels: several children and several siblings."""
    numbers = {length: len({code[:length] for code in geocodes}) for length in range(digits + 1)}
    lengths: list[int] = []
    for length in range(1, digits):
        above = numbers[lengths[-1] if lengths else 0]
        is_new = length - (lengths[-1] if lengths else 0) > 1
        if is_new and min(numbers[length] / above, numbers[digits] / numbers[length]) >= _FAN:
            lengths.append(length)
    return lengths


def level_name(column: str, digits: int, taken: set[str]) -> str:
    """Return a valid name for a geolevel, from the column if possible, without accents."""
    name = re.sub(r"[^A-Za-z0-9-]+", "_", _plain(column).strip().lower()).strip("_-")
    if not _NAME.fullmatch(name) or name in taken:
        name = f"first_{digits}"
    taken.add(name)
    return name


def _words(name: str) -> set[str]:
    return set(re.split(r"[\W_]+", _plain(name).casefold()))


def _plain(text: str) -> str:
    """Remove the accents of letters: geolevels are names of folders.

    >>> _plain("Região 7")
    'Regiao 7'
    """
    parts = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in parts if not unicodedata.combining(letter))
