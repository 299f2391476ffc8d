"""Attribute, Recode, Schema: the axes of a histogram and the numbering of its cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray
from das.errors import SchemaError, meant, require_distinct


@dataclass(frozen=True)
class Attribute:
    """One axis of the histogram: a name and its levels in order.

    Raises:
      SchemaError: No levels, or two levels with the same name.
    """

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise SchemaError(f"attribute {self.name}", "has no levels")
        where = f"attribute {self.name}"
        if len(set(self.levels)) != len(self.levels):  # there may be very many levels
            require_distinct(self.levels, SchemaError, where, "has a level twice")

    @property
    def size(self) -> int:
        """Return the number of levels, n_i."""
        return len(self.levels)

    @cached_property
    def level_index(self) -> Mapping[str, int]:
        """Return the position of each level by its label, from 0."""
        return {level: index for index, level in enumerate(self.levels)}


def written_out(levels: Sequence[str], wanted: Sequence[str], where: str) -> tuple[str, ...]:
    """Expand ranges of consecutive levels, such as "0..14".

    The label of a level is kept, even if it contains dots. Other text is kept too; callers refuse
    it as an unknown level.

    Args:
      levels: All levels, in order.
      wanted: Levels, and ranges: the first level, two dots, the last level.
      where: Location for error messages.

    Raises:
      SchemaError: A range ends before it begins, or an end is not a level.

    >>> written_out(["0", "1", "2", "3", "old"], ["1..3", "old"], "age")
    ('1', '2', '3', 'old')
    """
    index = {level: number for number, level in enumerate(levels)}
    out: list[str] = []
    for text in wanted:
        first, dots, last = (part.strip() for part in text.partition(".."))
        if text in index or not dots:
            out.append(text)
            continue
        unknown = [end for end in (first, last) if end not in index]
        if unknown:
            raise SchemaError(
                where,
                f"has the range {text}, and its ends must be levels",
                got=unknown,
                want=f"some of {list(levels)}",
            )
        if index[last] < index[first]:
            raise SchemaError(where, "has a range that ends before it begins", got=text)
        out += levels[index[first] : index[last] + 1]
    return tuple(out)


@dataclass(frozen=True)
class Recode:
    """A grouping of one attribute's levels.

    Every level belongs to exactly one group, so a query on the recode is a partition of the cells.

    Attributes:
      name: Name in queries, distinct from attribute names.
      attribute: The attribute whose levels are grouped.
      groups: Group labels in order.
      codes: For each level of the attribute, the index of its group in `groups`, from 0.
    """

    name: str
    attribute: str
    groups: tuple[str, ...]
    codes: tuple[int, ...]

    @classmethod
    def from_groups(
        cls, name: str, attribute: Attribute, groups: Mapping[str, tuple[str, ...]]
    ) -> Recode:
        """Build a recode from a map of group label to the levels in it.

        Raises:
          SchemaError: A level is unknown, in two groups, or in none.
        """
        where = f"recode {name} of {attribute.name}"
        code_of: dict[str, int] = {}
        for index, (label, levels) in enumerate(groups.items()):
            for level in levels:
                if level not in attribute.level_index:
                    raise SchemaError(where, f"group {label} names an unknown level", got=level)
                if level in code_of:
                    raise SchemaError(where, "puts a level in two groups", got=level)
                code_of[level] = index
        missing = [level for level in attribute.levels if level not in code_of]
        if missing:
            raise SchemaError(where, "leaves levels without a group", got=missing)
        empty = [label for label, levels in groups.items() if not levels]
        if empty:
            raise SchemaError(where, "has an empty group", got=empty)
        codes = tuple(code_of[level] for level in attribute.levels)
        return cls(name, attribute.name, tuple(groups), codes)


@dataclass(frozen=True)
class Schema:
    """Attributes in order and the recodes that queries may use.

    Cells are numbered in C order, the last attribute fastest: cell = sum_i code_i * stride_i.

    Raises:
      SchemaError: Names collide, a recode names an unknown attribute, or the cell numbers would
        not fit in 63 bits.

    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> schema.size, schema.cells_of({"sex": np.array([1]), "age": np.array([2])})
    (6, array([5]))
    """

    name: str
    attributes: tuple[Attribute, ...]
    recodes: tuple[Recode, ...] = ()

    def __post_init__(self) -> None:
        names = [a.name for a in self.attributes] + [r.name for r in self.recodes]
        where = f"schema {self.name}"
        require_distinct(names, SchemaError, where, "uses a name twice")
        unclear = [name for name in names if not is_plain_name(name)]
        if unclear:
            what = "has a name that would make queries ambiguous"
            raise SchemaError(where, what, got=unclear, want=PLAIN_NAME)
        if not self.attributes:
            raise SchemaError(where, "has no attributes")
        known = {a.name: a.size for a in self.attributes}
        for recode in self.recodes:
            if recode.attribute not in known:
                raise SchemaError(
                    f"recode {recode.name}", "names an unknown attribute", got=recode.attribute
                )
            if len(recode.codes) != known[recode.attribute]:
                raise SchemaError(f"recode {recode.name}", "does not give one code per level")
        if self.size >= 2**63:
            raise SchemaError(where, "has too many cells", got=self.size)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Return the numbers of levels, (n_1, ..., n_d)."""
        return tuple(a.size for a in self.attributes)

    @cached_property
    def size(self) -> int:
        """Return the number of cells, n."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the difference of cell numbers between adjacent levels, per attribute."""
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def attribute(self, name: str) -> Attribute:
        """Return the attribute with this name.

        Raises:
          SchemaError: The schema has no such attribute.
        """
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SchemaError(
            f"schema {self.name}",
            "has no such attribute",
            got=meant(name, [a.name for a in self.attributes]),
            want=f"one of {[a.name for a in self.attributes]}",
        )

    def cells_of(self, codes: Mapping[str, npt.NDArray[np.integer]]) -> IntArray:
        """Return the cell numbers, int64[m], of combinations of levels.

        Args:
          codes: int[m] per attribute name, levels numbered from 0; the range is not checked.
        """
        parts = [
            np.asarray(codes[attribute.name], np.int64) * stride
            for attribute, stride in zip(self.attributes, self.strides, strict=True)
        ]
        return np.asarray(sum(parts[1:], start=parts[0]), np.int64)

    def codes_of(self, cells: IntArray) -> dict[str, IntArray]:
        """Return the level positions, int64[m] per attribute, of cells, int64[m]."""
        return {
            attribute.name: (cells // stride) % attribute.size
            for attribute, stride in zip(self.attributes, self.strides, strict=True)
        }


PLAIN_NAME = (
    "no * or #, no outer spaces, no where between spaces, not total or detailed, "
    "not like prefix(age)"
)


def is_plain_name(name: str) -> bool:
    """Return whether an attribute of a census or survey may have this name.

    Names of attributes form the names of queries, which must be unambiguous.
    """
    looks_like_call = name.endswith(")") and name.partition("(")[0].isidentifier()
    return (
        bool(name)
        and name == name.strip()
        and not {"*", "#"} & set(name)
        and " where " not in name
        and name not in ("total", "detailed")
        and not looks_like_call
    )
