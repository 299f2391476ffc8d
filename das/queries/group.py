"""Group: a product set of cells, such as women, or children of one race."""

from __future__ import annotations

import math
from dataclasses import dataclass

from das.arrays import BoolArray


@dataclass(frozen=True, eq=False)
class Group:
    """A product set of cells, given by the allowed levels of every attribute.

    Attributes:
      name: Conditions in the order of the schema, such as "sex=f and race=white"; unique.
      allowed: Per attribute bool[n_i], with at least one True.
      labels: Per attribute the label of the allowed levels; empty if all levels are allowed.
      axes: The attributes and recodes of the conditions, in the order of the schema.
    """

    name: str
    allowed: tuple[BoolArray, ...]
    labels: tuple[str, ...]
    axes: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of cells in the group."""
        return math.prod(int(levels.sum()) for levels in self.allowed)

    @property
    def label(self) -> str:
        """Return the label in tables, in the form of `Query.labels`: "f / white"."""
        return " / ".join(label for label in self.labels if label)

    def meets(self, other: Group) -> bool:
        """Return whether the two groups share a cell."""
        pairs = zip(self.allowed, other.allowed, strict=True)
        return all(bool((first & second).any()) for first, second in pairs)
