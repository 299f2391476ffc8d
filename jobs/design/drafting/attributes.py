"""Choose the columns of a file that become attributes, and their levels."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from das.errors import ConfigError
from jobs.pipeline.confidential.look import MOST_CODES, Column

# The 1940 census of conf/schema has 44,544 cells and runs on a machine of two cores
# (docs/performance.md); a first proposal stays near it.
MOST_CELLS = 50_000

OLDEST = 125  # above every verified age
_TOP = 100  # open-ended last level of ages
_FIVE = 5
_AGES = frozenset({"age", "ages", "alter", "edad", "idade", "eta", "età", "leeftijd", "âge", "yas"})
_GROUPED = frozenset({"grp", "group", "groups", "class", "cat", "category", "band", "bracket"})
_LONGEST_LABEL = 100  # characters; default, not measured
_FEW_CODES = 20  # a column with more whole numbers holds quantities, not codes; default
FILE: Final = "file"
AGES: Final = "ages"  # all possible ages
CODEBOOK: Final = "code list"
Source = Literal["file", "ages", "code list"]
_RESERVED = frozenset({"total", "detailed", "geocode", "where"})


@dataclass(frozen=True)
class Proposal:
    """Proposed attribute.

    Attributes:
      column: Name of the column in the file.
      name: Name of the attribute.
      levels: Labels of the levels, in order.
      codes: Each value in the file to its label; empty if the values are the labels.
      recodes: Name of a recode to {group: levels}.
      source: Origin of the levels: values in the file, all possible ages, or a public code list.
    """

    column: str
    name: str
    levels: tuple[str, ...]
    codes: Mapping[str, str]
    recodes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    source: Source = FILE


@dataclass(frozen=True)
class Wanted:
    """Requirements on the attributes.

    Attributes:
      left_out: Columns to leave out.
      kept: Columns to keep as codes, even if they look like something else.
      tables: Requested tables; their attributes are kept even in a large schema.
      codebook: Public code lists: column to {code: label}.
      most_cells: Largest number of cells of the schema; that of a survey has no cells.
    """

    left_out: Collection[str] = ()
    kept: Collection[str] = ()
    tables: Sequence[str] = ()
    codebook: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    most_cells: float = MOST_CELLS


@dataclass(frozen=True)
class Proposed:
    """Proposed attributes, and columns left out.

    Attributes:
      attributes: Attributes in the order of the file.
      left_out: Name of each other column to the reason why it is no attribute.
    """

    attributes: tuple[Proposal, ...]
    left_out: Mapping[str, str]

    @property
    def cells(self) -> int:
        """Return the number of cells of the schema."""
        return math.prod(len(attribute.levels) for attribute in self.attributes)


def propose(columns: Iterable[Column], following: Collection[str], wanted: Wanted) -> Proposed:
    """Propose attributes for the columns of a file.

    Args:
      columns: Columns of the file, except geocodes.
      following: Columns with a single value in every geounit.
      wanted: Requirements of the user.

    Raises:
      ConfigError: No column can be an attribute.
    """
    left_out: dict[str, str] = {}
    attributes: list[Proposal] = []
    taken: set[str] = set()
    for column in columns:
        listed = wanted.codebook.get(column.name.strip())
        reason = _reason(column, following, wanted)
        if reason:
            left_out[column.name] = reason
            continue
        name = _free(attribute_name(column.name), taken)
        if listed is not None:
            levels = tuple(dict.fromkeys(listed.values()))
            made = Proposal(column.name, name, levels, listed, source=CODEBOOK)
        elif is_age(column):
            made = _ages(column, name)
        else:
            labels = {code: label_of(code) for code in sorted(column.codes or (), key=_in_order)}
            are_labels = all(code == label for code, label in labels.items())
            levels = tuple(dict.fromkeys(labels.values()))
            made = Proposal(column.name, name, levels, {} if are_labels else labels)
        taken |= {made.name, *made.recodes}
        attributes.append(made)
    proposed = _smaller(Proposed(tuple(attributes), left_out), wanted)
    if not proposed.attributes:
        raise ConfigError(
            "das init",
            "finds no column that can be an attribute",
            got="; ".join(f"{name}: {why}" for name, why in proposed.left_out.items()) or None,
            want=f"a column with at most {MOST_CODES} codes, or with ages",
        )
    return proposed


def attribute_name(column: str) -> str:
    """Derive an attribute name for queries: letters and digits of any script, joined by `_`.

    >>> attribute_name("Marital status "), attribute_name("total"), attribute_name("%")
    ('marital_status', 'total_', 'attribute')
    """
    name = re.sub(r"\W+", "_", column.lower()).strip("_")
    if not name:
        return "attribute"
    return f"{name}_" if name in _RESERVED else name


def is_age(column: Column) -> bool:
    """Return whether a column holds ages in years, by its name and numbers."""
    words = set(re.split(r"[\W_]+", column.name.casefold()))
    if not words & _AGES or words & _GROUPED or not column.is_number:
        return False
    return column.least >= 0 and _FEW_CODES < column.most <= OLDEST


def _reason(column: Column, following: Collection[str], wanted: Wanted) -> str:
    """Return the reason why a column cannot be an attribute, or an empty text if it can.

    Args:
      column: The column.
      following: Names of columns with a single value in every geounit.
      wanted: Requirements of the user.
    """
    if column.name in wanted.left_out:
        return "is left out by --leave-out"
    if column.fault:
        return column.fault
    if column.name.strip() in wanted.codebook:
        return ""
    if column.name in wanted.kept and column.codes is not None:
        return ""
    if column.name in following:
        return "has one value in every geounit: it belongs to the geography"
    if is_age(column):
        return ""
    if column.is_unique:
        return "has a different value in every row, like an identifier"
    if column.codes is None:
        return f"has more than {MOST_CODES} values: numbers, names or identifiers"
    if column.longest > _LONGEST_LABEL:
        return f"has values of more than {_LONGEST_LABEL} characters"
    if len(column.codes) < 2:
        return "has a single value"
    if column.is_number and len(column.codes) > _FEW_CODES:
        return f"has more than {_FEW_CODES} whole numbers; --keep treats them as codes"
    return ""


def label_of(code: str) -> str:
    """Derive a label from a code, without characters that spreadsheets read as formulas.

    >>> [label_of(code) for code in ("0-4", " 1 ", "2.0", "-9", "")]
    ['0-4', '1', '2', 'code -9', 'missing']
    """
    text = code.strip()
    text = text.removesuffix(".0") if re.fullmatch(r"-?[0-9]+\.0", text) else text
    if not text:
        return "missing"
    return f"code {text}" if text[0] in "=+-@" else text


def _in_order(code: str) -> tuple[object, ...]:
    """Return a sort key: numbers by value, text by letters, missing values last.

    >>> sorted(["10-14", "85+", "0-4", "", "5-9"], key=_in_order)
    ['0-4', '5-9', '10-14', '85+', '']
    """
    parts = re.split(r"([0-9]+)", code.strip().casefold())
    key = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part)
    return (not code.strip(), key, code)


def _ages(column: Column, name: str, *, years: int = 1) -> Proposal:
    """Propose levels for all ages up to 100, in single years or groups, independent of the data."""
    top = f"{_TOP} and over"
    label = {age: _span(age - age % years, years) if age < _TOP else top
             for age in range(OLDEST + 1)}  # fmt: skip
    levels = tuple(dict.fromkeys(label.values()))
    # Whole numbers can be written as 5, 05 or 5.0; each form in the file gets codes for all ages.
    seen = column.codes or frozenset()
    widths = sorted({len(code) for code in seen if code.isdigit() and code[0] == "0"} - {1})
    forms = ["{}", *(f"{{:0{width}d}}" for width in widths)]
    if any(code.endswith(".0") for code in seen):
        forms.append("{}.0")
    codes = {form.format(age): label[age] for form in forms for age in label}
    if column.has_missing:
        codes[""] = "missing"
        levels = (*levels, "missing")
    recodes = {}
    if years == 1:
        groups = {
            _span(start, _FIVE): tuple(_span(age, 1) for age in range(start, start + _FIVE))
            for start in range(0, _TOP, _FIVE)
        }
        groups |= {level: (level,) for level in levels if level in (top, "missing")}
        recodes[f"{name}_{_FIVE}"] = groups
    return Proposal(column.name, name, levels, codes, recodes, AGES)


def _span(start: int, years: int) -> str:
    return f"{start}" if years == 1 else f"{start} to {start + years - 1}"


def _smaller(proposed: Proposed, wanted: Wanted) -> Proposed:
    """Reduce the schema: group ages, then leave attributes out, until it is small enough."""
    named = set(re.split(r"[^\w]+", " ".join(wanted.tables)))
    attributes, left_out = list(proposed.attributes), dict(proposed.left_out)
    for index, attribute in enumerate(attributes):
        is_large = proposed.cells > wanted.most_cells
        if is_large and attribute.source == AGES and attribute.name not in named:
            codes = frozenset(attribute.codes)
            column = Column(attribute.column, codes=codes, has_missing="" in codes)
            attributes[index] = _ages(column, attribute.name, years=_FIVE)
            proposed = replace(proposed, attributes=tuple(attributes))
    while proposed.cells > wanted.most_cells:
        spare = [
            attribute
            for attribute in attributes
            if not named & {attribute.name, *attribute.recodes}
        ]
        if not spare or len(attributes) == 1:
            break
        largest = max(spare, key=lambda attribute: len(attribute.levels))
        attributes.remove(largest)
        left_out[largest.column] = (
            f"makes a schema of {proposed.cells:,} cells; a first run has at most "
            f"{wanted.most_cells:,}. Name it in --table to keep it"
        )
        proposed = Proposed(tuple(attributes), left_out)
    return proposed


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    names = (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
    return next(free for free in names if not {free, f"{free}_{_FIVE}"} & {*taken})
