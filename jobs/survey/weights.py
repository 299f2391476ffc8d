"""Public weights and sizes of strata, matched by the labels of their levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from das.errors import BudgetError, ConfigError
from das.rational import parse_fraction
from jobs.pipeline.input.files import Table, plan_chunks, read_table
from jobs.pipeline.storage.csv import without_formula
from jobs.survey.checks import combinations, require

WEIGHT, SIZE = "weight", "size"
_MOST_SIZE = 1 << 34

Labels = tuple[str, ...]


@dataclass(frozen=True)
class PublicStratum:
    """What is public of a stratum.

    Attributes:
      weight: Its share of the population, exact.
      size: Public number of records, about; perhaps 0.
      is_expected: Whether the size is what the weight lets expect, and no number that was given.
    """

    weight: Fraction
    size: int
    is_expected: bool = False


def stratum_name(labels: Labels) -> str:
    """What a stratum is called.

    >>> stratum_name(("female", "65 and over"))
    'female * 65 and over'
    """
    return " * ".join(labels)


def spelled(label: str, levels: Sequence[str]) -> str:
    """Spell a label so that no spreadsheet computes it, unless that is the label of another level.

    >>> spelled("=1+1", ["a", "=1+1"]), spelled("=1+1", ["'=1+1", "=1+1"])
    ("'=1+1", '=1+1')
    """
    plain = without_formula(label)
    return label if plain in levels else plain


def read_weights(
    path: Path, attributes: Mapping[str, Sequence[str]], records: int
) -> dict[Labels, PublicStratum]:
    """Read the public weights of all strata.

    Args:
      path: A CSV file with a column per attribute, `weight`, and perhaps `size`. Attributes and
        levels that a spreadsheet would compute may stand as releases write them.
      attributes: Attribute to its levels.
      records: Public number of records, shared out by weight where there are no sizes.

    Returns:
      One for every combination of levels, in their order.

    Raises:
      ConfigError: A stratum is missing, comes twice or is unknown; a weight is no exact number of
        at least 0, or they do not sum to 1; a size is no whole number.
      InputError: The file cannot be read, or lacks a column.
    """
    wanted = combinations([*attributes.values()], str(path))
    known = {
        name: {spelled(label, levels): label for label in levels}
        | {label: label for label in levels}
        for name, levels in attributes.items()
    }
    found: dict[Labels, PublicStratum] = {}
    for where, row in _rows(path, [*attributes]):
        for name, levels in attributes.items():
            what, want = f"names an unknown level of {name}", f"one of {list(levels)}"
            require(row[name] in known[name], where, what, row[name], want)
        labels = tuple(known[name][row[name]] for name in attributes)
        what = "gives a stratum a second time"
        require(labels not in found, where, what, stratum_name(labels))
        weight = _weight(row[WEIGHT], where)
        size = round(weight * records) if SIZE not in row else _size(row[SIZE], where)
        found[labels] = PublicStratum(weight, size, SIZE not in row)
    missing = [stratum_name(labels) for labels in wanted if labels not in found]
    what = f"lacks {len(missing)} of {len(wanted)} strata"
    want = "a row for every combination of levels; its weight may be 0"
    require(not missing, str(path), what, f"none of {missing[:3]}", want)
    total = sum((stratum.weight for stratum in found.values()), Fraction(0))
    what, got = "holds weights that are not shares of one whole", f"about {float(total):.9g}"
    want = "exactly 1; write fractions such as 3/7, or decimals that add up"
    require(total == 1, str(path), what, f"sum {total}, {got}", want)
    return {labels: found[labels] for labels in wanted}


def _rows(path: Path, attributes: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Where a row stands, and its fields by column."""
    what, want = "is no CSV file by its name", "a name ending in .csv"
    require(path.suffix.lower() == ".csv", str(path), what, want=want)
    header = plan_chunks(Table(path, (WEIGHT,)))[0].header
    columns = {name: name if name in header else without_formula(name) for name in attributes}
    columns[WEIGHT] = WEIGHT
    if SIZE in header:
        columns.setdefault(SIZE, SIZE)
    for batch in read_table(Table(path, tuple(columns.values()))):
        for index, row in enumerate(batch.table.to_pylist()):
            yield (
                batch.where(index),
                {name: str(row[column]).strip() for name, column in columns.items()},
            )


def _weight(text: str, where: str) -> Fraction:
    try:
        weight = parse_fraction(text, where)
    except BudgetError as error:
        raise ConfigError(
            where, "holds a weight that is no exact number", got=error.got, want="3/7 or 0.25"
        ) from None
    require(weight >= 0, where, "holds a negative weight", text)
    return weight


def _size(text: str, where: str) -> int:
    is_whole = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_SIZE))
    require(is_whole, where, "holds a size that is no whole number", text)
    require(int(text) <= _MOST_SIZE, where, "holds a size that is too large", text, _MOST_SIZE)
    return int(text)
