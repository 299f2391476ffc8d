"""Group: the cells of some levels of some attributes, such as women, or children of one race."""

from __future__ import annotations

import math
from dataclasses import dataclass

from das.arrays import BoolArray


@dataclass(frozen=True, eq=False)
class Group:
    """A product set of cells: those whose level is allowed in every attribute.

    Attributes:
      name: Conditions in the order of the schema, such as "sex=f and race=white"; no other group
        has it.
      allowed: Per attribute, bool[n_i], one level at least.
      labels: Per attribute the label that its levels have in common; empty where all are allowed.
      axes: The attributes and recodes of the conditions, in the order of the schema.
    """

    name: str
    allowed: tuple[BoolArray, ...]
    labels: tuple[str, ...]
    axes: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(int(levels.sum()) for levels in self.allowed)

    @property
    def label(self) -> str:
        """What a reader calls it, as `Query.labels` does: "f / white"."""
        return " / ".join(label for label in self.labels if label)

    def meets(self, other: Group) -> bool:
        """Whether some cell is in both: in every attribute they share a level."""
        pairs = zip(self.allowed, other.allowed, strict=True)
        return all(bool((one & two).any()) for one, two in pairs)
