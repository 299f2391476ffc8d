"""Spine and lattice: the geolevels and all geounits, as arrays.

A geounit's geocode is a prefix of the geocodes of the leaves below it. The spine names the
geolevels, root first, with the prefix length of each. The lattice holds, per geolevel, the sorted
geocodes, the parent of each geounit and the range of its children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np

from das.arrays import BoolArray, Geocodes, IntArray, run_starts
from das.errors import GeographyError, require_distinct

ROOT_CODE = "0"  # geocode of a root whose prefix is empty, such as a nation


@dataclass(frozen=True)
class Spine:
    """Geolevels, root first.

    Attributes:
      levels: Names, such as ("nation", "state", "county", "tract", "block_group", "block").
      digits: Length of the geocode prefix at each geolevel, strictly increasing; 0 is allowed
        for the root only.

    Raises:
      GeographyError: Names repeat, lengths do not increase, or there is no geolevel.
    """

    levels: tuple[str, ...]
    digits: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.levels or len(self.levels) != len(self.digits):
            raise GeographyError("spine", "needs at least one geolevel and one length for each")
        require_distinct(self.levels, GeographyError, "spine", "names a geolevel twice")
        if self.digits[0] < 0 or any(
            b <= a for a, b in zip(self.digits, self.digits[1:], strict=False)
        ):
            raise GeographyError(
                "spine", "prefix lengths must increase from the root", got=list(self.digits)
            )

    def shared_with(self, other: Spine) -> int:
        """Count the geolevels from the root down to the first that differs in another spine."""
        ours = zip(self.levels, self.digits, strict=True)
        theirs = zip(other.levels, other.digits, strict=True)
        pairs = zip(ours, theirs, strict=False)
        return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])

    def code_at(self, leaf: str, level: int) -> str:
        """Return the geocode of the ancestor of a leaf at geolevel `level`, 0 for the root."""
        return leaf[: self.digits[level]] or ROOT_CODE


@dataclass(frozen=True, eq=False)
class Lattice:
    """All geounits of a spine.

    Attributes:
      spine: Names and prefix lengths of the geolevels.
      codes: Per geolevel, bytes[G_l] geocodes, sorted, unique.
      parents: Per geolevel, int64[G_l] index of the parent one geolevel up; -1 at the root.
      first_child: Per geolevel but the last, int64[G_l + 1]; geounit g has the children
        first_child[g]:first_child[g + 1] one geolevel down.
    """

    spine: Spine
    codes: tuple[Geocodes, ...]
    parents: tuple[IntArray, ...]
    first_child: tuple[IntArray, ...]

    @classmethod
    def from_leaves(cls, spine: Spine, leaves: Sequence[str] | Geocodes) -> Lattice:
        """Build the lattice from the geocodes of all leaves, in any order.

        Raises:
          GeographyError: There is no leaf, a leaf has the wrong length or appears twice, or the
            leaves do not share one root. No geocode is named: they may come from records.
        """
        where = f"geography, {spine.levels[-1]}"
        try:
            codes = np.asarray(leaves, dtype=np.bytes_)
        except UnicodeEncodeError:
            raise GeographyError(where, "a geocode is not ASCII text") from None
        if codes.size == 0:
            raise GeographyError("geography", "has no geounits")
        lengths = np.char.str_len(codes)
        wrong = np.flatnonzero(lengths != spine.digits[-1])
        if wrong.size:
            raise GeographyError(
                where,
                f"geocode of the wrong length ({wrong.size} such)",
                got=f"{lengths[wrong[0]]} characters",
                want=f"{spine.digits[-1]}",
            )
        codes = np.sort(codes)
        same = np.flatnonzero(codes[1:] == codes[:-1])
        if same.size:
            raise GeographyError(where, f"geocode appears twice ({same.size} repeated rows)")
        levels: list[Geocodes] = [codes]
        parents: list[IntArray] = []
        first_child: list[IntArray] = []
        for digits in reversed(spine.digits[:-1]):
            below = levels[0]
            prefix = below.astype(f"S{digits}") if digits else np.full(below.shape, b"0", "S1")
            starts = run_starts(prefix)
            levels.insert(0, prefix[starts])
            first_child.insert(0, np.append(starts, len(below)).astype(np.int64))
            parents.insert(0, np.repeat(np.arange(len(starts)), np.diff(first_child[0])))
        if len(levels[0]) != 1:
            raise GeographyError(
                f"geography, root geolevel {spine.levels[0]}",
                "the geounits do not share one root",
                got=f"{len(levels[0])} roots",
                want="one; add a geolevel with 0 digits on top",
            )
        parents.insert(0, np.array([-1], np.int64))
        return cls(spine, tuple(levels), tuple(parents), tuple(first_child))

    def n_children(self, level: int) -> IntArray:
        """Return int64[G_l]: children of each geounit of geolevel `level`, from 0; 0 for leaves."""
        if level == len(self.spine.levels) - 1:
            return np.zeros(len(self.codes[level]), np.int64)
        return np.diff(self.first_child[level])

    @cached_property
    def is_only_child(self) -> tuple[BoolArray, ...]:
        """Return per geolevel bool[G_l]: whether the parent has no other child."""
        below = enumerate(self.parents[1:])  # with the index of the geolevel above
        return (np.array([False]), *(self.n_children(i)[parents] == 1 for i, parents in below))

    @cached_property
    def chain_end(self) -> tuple[IntArray, ...]:
        """Return per geolevel int64[G_l]: the deepest geolevel reached through only children.

        An only child has the same persons as its parent, so the chain is measured once, at its
        top, with the budget of all its geolevels.
        """
        last = len(self.spine.levels) - 1
        out: list[IntArray] = [np.full(len(self.codes[last]), last, np.int64)]
        for level in range(last - 1, -1, -1):
            has_one_child = self.n_children(level) == 1
            below = out[0][self.first_child[level][:-1]]
            out.insert(0, np.where(has_one_child, below, level).astype(np.int64))
        return tuple(out)

    def sizes(self) -> dict[str, int]:
        """Return the number of geounits at each geolevel."""
        return {name: len(codes) for name, codes in zip(self.spine.levels, self.codes, strict=True)}
