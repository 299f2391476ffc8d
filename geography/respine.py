"""Respining: another spine for the same leaves, on which off-spine entities are closer.

Three steps, each a pure function of the geocodes and a public table of entities:

1. split a geolevel and all below by a mark of the leaves, such as lying in a tribal area;
2. replace a geolevel (block groups) by groups of equal or similar entities;
3. split the children of a geolevel (tracts of a county) into groups, a new geolevel.

Steps insert digits into geocodes, so a geounit's geocode stays a prefix of those of its leaves.
The steps use public facts only and no counts, so they cost no privacy.

References:
  Cumings-Menon et al., J. Privacy and Confidentiality 14(3), 2024, arXiv:2203.16654.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, Geocodes, IntArray
from das.errors import GeographyError
from geography.lattice import Lattice, Spine
from geography.offspine import Coverage, Entities, combine, coverage

FAN_OUT_CUTOFF = 12  # the 2020 setting
# Digits of the number of a group, the same whatever the leaves are, so that the geolevels of a
# design are known before any leaf is read. Of n items there are at most 2 sqrt(n) + 1 groups, or
# sqrt(n) + cutoff + 1: enough for geounits of 200,000 items.
GROUP_DIGITS = 3
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Respined:
    """Leaves under the new spine.

    Attributes:
      spine: The new geolevels.
      codes: bytes[n], the new geocodes, in the order of the leaves given.
    """

    spine: Spine
    codes: Geocodes


@dataclass(frozen=True)
class SpineDesign:
    """Steps that change a spine.

    Attributes:
      split: Geolevel whose geounits, and all below them, are split by the mark of the leaves; None
        splits nothing. The halves are a new geolevel, `<split>_part`. The geolevels below, except
        the leaves, are renamed to `<name>_part`.
      regroup: Geolevel whose geounits are replaced by groups of geounits of the geolevel below, as
        geolevel `<regroup>_regrouped`. None replaces nothing.
      split_children: Geolevel whose children are gathered into groups, a new geolevel
        `<child>_group`. None gathers nothing.
      fan_out_cutoff: Added to ceil(sqrt(n)), the largest group of a geounit with n items below.
    """

    split: str | None = None
    regroup: str | None = "block_group"
    split_children: str | None = None
    fan_out_cutoff: int = FAN_OUT_CUTOFF

    def __post_init__(self) -> None:
        if self.fan_out_cutoff < 0:
            raise GeographyError("spine design", "cutoff is negative", got=self.fan_out_cutoff)


def optimize_spine(
    spine: Spine,
    codes: Geocodes,
    entities: Entities,
    design: SpineDesign,
    marked: BoolArray | None = None,
) -> Respined:
    """Apply a design to a spine.

    Args:
      spine: Names and prefix lengths of the geolevels.
      codes: bytes[n] geocodes of the leaves, in any order.
      entities: One row per leaf.
      design: The steps that change the spine.
      marked: bool[n], leaves of the split-off half; needed if the design splits.

    Raises:
      GeographyError: A geolevel of the design is unknown or at the wrong place, an array does not
        fit, or the geocodes do not make a lattice.
    """
    codes = np.asarray(codes, np.bytes_)
    Lattice.from_leaves(spine, codes)
    steps = [*_steps(spine, design)]
    made = Respined(spine, codes)
    for step in steps:
        if not step.is_split:
            made = group_children(made, entities, step, design.fan_out_cutoff)
        elif marked is None or marked.shape != codes.shape:
            raise GeographyError("spine design", "splits, so it needs one mark per leaf")
        else:
            made = _insert(made, step, marked.astype(np.int64))
    return made


@dataclass(frozen=True)
class Step:
    """A geolevel that a design inserts.

    Attributes:
      before: The geolevels without the new one and without a geolevel that it replaces.
      after: The geolevels with the new one.
      level: Index of the geolevel above the new one, in both spines.
      is_split: Whether the new geounits are the halves of the geounits above.
    """

    before: Spine
    after: Spine
    level: int
    is_split: bool = False


def design_spine(spine: Spine, design: SpineDesign) -> Spine:
    """Return the geolevels that a design gives, which do not depend on the leaves.

    A geolevel with a name of `spine` has the same geounits as in `spine`.

    Raises:
      GeographyError: A geolevel of the design is unknown or at the wrong place.

    >>> census = Spine(("state", "tract", "block"), (2, 8, 11))
    >>> design_spine(census, SpineDesign(split="state", regroup=None))
    Spine(levels=('state', 'state_part', 'tract_part', 'block'), digits=(2, 3, 9, 12))
    """
    steps = [*_steps(spine, design)]
    return steps[-1].after if steps else spine


def _steps(spine: Spine, design: SpineDesign) -> Iterator[Step]:
    census = spine
    if design.split is not None:
        level = _level_index(spine, design.split)
        if level == len(spine.levels) - 1:
            raise GeographyError("spine design, split", "cannot split leaves", got=design.split)
        made = _with_geolevel(spine, level, f"{design.split}_part", 1, census)
        names = [f"{name}_part" for name in spine.levels[level + 1 : -1]]
        names = [*made.levels[: level + 2], *names, spine.levels[-1]]
        split = Spine(tuple(names), made.digits)
        yield Step(spine, split, level, is_split=True)
        spine = split
    if design.regroup is not None:
        level = _level_index(spine, design.regroup)
        if not 0 < level < len(spine.levels) - 1:
            raise GeographyError(
                "spine design, regroup", "needs a geolevel above and one below", got=design.regroup
            )
        bare, name = without_geolevel(spine, level), f"{design.regroup}_regrouped"
        made = _with_geolevel(bare, level - 1, name, GROUP_DIGITS, census)
        yield Step(bare, made, level - 1)
        spine = made
    if design.split_children is not None:
        level = _level_index(spine, design.split_children)
        if level == len(spine.levels) - 1:
            raise GeographyError(
                "spine design, split_children", "needs a geolevel below", got=design.split_children
            )
        name = f"{spine.levels[level + 1]}_group"
        yield Step(spine, _with_geolevel(spine, level, name, GROUP_DIGITS, census), level)


def _with_geolevel(spine: Spine, level: int, name: str, width: int, census: Spine) -> Spine:
    """Return the spine with a further geolevel.

    Args:
      spine: The spine.
      level: Index of the geolevel above the new one, 0 for the root.
      name: Name of the new geolevel.
      width: Digits by which geocodes grow at the new geolevel.
      census: The original spine, whose names are not reused.
    """
    if name in census.levels or name in spine.levels:
        raise GeographyError(
            "spine design", "would give a new geolevel a name that is taken", got=name
        )
    start = spine.digits[level]
    above, below = slice(level + 1), slice(level + 1, None)
    return Spine(
        (*spine.levels[above], name, *spine.levels[below]),
        (*spine.digits[above], start + width, *(d + width for d in spine.digits[below])),
    )


def without_geolevel(spine: Spine, level: int) -> Spine:
    """Return the spine without geolevel number `level`, from 0; geocodes do not change."""
    keep = [index for index in range(len(spine.levels)) if index != level]
    return Spine(
        tuple(spine.levels[index] for index in keep), tuple(spine.digits[index] for index in keep)
    )


def group_children(made: Respined, entities: Entities, step: Step, cutoff: int) -> Respined:
    """Insert a geolevel of groups between the geounits of a geolevel and their children.

    Args:
      made: Leaves and their spine; it may include a geolevel that the step replaces.
      entities: One row per leaf, in the order of `made.codes`.
      step: The geolevel.
      cutoff: Items allowed in a group beyond ceil(sqrt(n)), n the items of the geounit.

    Raises:
      GeographyError: There are more groups than their numbers have digits for.
    """
    level, spine = step.level, step.before
    lattice = Lattice.from_leaves(spine, made.codes)
    order = np.argsort(made.codes)
    below = coverage(lattice, entities.take(order))[level + 1]
    first_child = lattice.first_child[level]
    groups = np.empty(len(lattice.codes[level + 1]), np.int64)
    for first, last in pairwise(first_child.tolist()):
        groups[first:last] = group_items(*_counts_of(below, first, last), cutoff)
    prefixes = made.codes.astype(f"S{spine.digits[level + 1]}")
    child = np.searchsorted(lattice.codes[level + 1], prefixes)
    return _insert(made, step, groups[child])


def _counts_of(below: Coverage, first: int, last: int) -> tuple[IntArray, IntArray]:
    """Return the geounits that entities need inside and outside of items, int64[items, E] each.

    Only entities that divide an item are returned.

    Args:
      below: Coverage of the geolevel of the items.
      first: Index of the first item.
      last: End of the items.
    """
    pairs = slice(*np.searchsorted(below.geounits, (first, last)))
    touching, column = np.unique(below.entities[pairs], return_inverse=True)
    inside = np.zeros((last - first, len(touching)), np.int64)
    outside = np.ones_like(inside)
    row = below.geounits[pairs] - first
    inside[row, column] = below.inside[pairs]
    outside[row, column] = below.outside[pairs]
    divided = outside.any(axis=0)
    return inside[:, divided], outside[:, divided]


def most_children(n_items: int, cutoff: int) -> int:
    """Return the largest size of a group of items, ceil(sqrt(n_items)) + cutoff.

    >>> most_children(100, 12), most_children(101, 12)
    (22, 23)
    """
    return math.isqrt(max(n_items - 1, 0)) + 1 + cutoff


def group_items(inside: IntArray, outside: IntArray, cutoff: int) -> IntArray:
    """Group the children of one geounit so that its off-spine entities need few geounits.

    Items that the same entities touch in the same way start in one group, cut into even pieces of
    at most L = `most_children` items. Then two groups are united repeatedly: the pair that lowers
    the sum of off-spine distances most, or raises it least, and among equals the smallest union.
    This ends when no union lowers the sum and there are at most L groups. No union has more than L
    items, so there are at most max(L, 2 n / L + 1) groups.

    Args:
      inside: int64[n, E], geounits needed for the part of each entity in each item.
      outside: int64[n, E], geounits needed for the rest of the item.
      cutoff: Items allowed in a group beyond ceil(sqrt(n)), n the items of the geounit.

    Returns:
      int64[n], numbers of groups from 0, by first item.

    >>> inside = np.array([[1], [1], [0], [0], [0]])
    >>> group_items(inside, 1 - inside, 12).tolist()
    [0, 0, 1, 1, 1]
    """
    limit = most_children(len(inside), cutoff)
    labels = _groups_of_equal_pattern(inside, outside, limit)
    labels = _unite(labels, inside, outside, limit)
    _, first, index = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[index].astype(np.int64)


def _groups_of_equal_pattern(inside: IntArray, outside: IntArray, limit: int) -> IntArray:
    """Label items: equal labels for items touched by equal entities, at most `limit` a label."""
    touched = np.concatenate((inside > 0, outside > 0), axis=1)
    _, patterns = np.unique(touched, axis=0, return_inverse=True)
    labels = np.empty(len(inside), np.int64)
    n_groups = 0
    for pattern in range(int(patterns.max()) + 1):
        items = np.flatnonzero(patterns == pattern)
        for piece in np.array_split(items, -(-len(items) // limit)):
            labels[piece] = n_groups
            n_groups += 1
    return labels


def _unite(labels: IntArray, inside: IntArray, outside: IntArray, limit: int) -> IntArray:
    """Unite groups greedily. A union keeps the label of one of the united groups."""
    n_groups = int(labels.max()) + 1
    sums = np.zeros((2, n_groups, inside.shape[1]), np.int64)
    np.add.at(sums[0], labels, inside)
    np.add.at(sums[1], labels, outside)
    sizes = np.bincount(labels)
    target = np.arange(n_groups)
    direct = _comes_from_inside(sums)
    change = np.stack([_changes(sums, row, direct) for row in range(n_groups)])
    alive = np.ones(n_groups, np.bool_)
    while alive.sum() > 1:
        union = sizes[:, None] + sizes
        fits = np.triu(alive[:, None] & alive & (union <= limit), 1)
        if not fits.any():
            break
        keys = np.where(fits, change * (limit + 1) + union, _NEVER)
        kept, other = np.unravel_index(np.argmin(keys), keys.shape)
        if change[kept, other] >= 0 and alive.sum() <= limit:
            break
        sums[:, kept] += sums[:, other]
        sizes[kept] += sizes[other]
        alive[other] = False
        sums[:, other] = 0
        target[target == other] = kept
        now = _comes_from_inside(sums)
        flipped = now != direct
        change[kept] = change[:, kept] = _changes(sums, int(kept), direct)
        if flipped.any():
            part = sums[:, :, flipped]
            for row in np.flatnonzero(alive):
                change[row] += _changes(part, int(row), now[flipped])
                change[row] -= _changes(part, int(row), direct[flipped])
            direct = now
    return target[labels]


def _comes_from_inside(sums: IntArray) -> BoolArray:
    """Return bool[E]: whether a sum of groups is cheaper than the geounit minus the rest."""
    inside, outside = combine(*sums)
    return np.asarray(inside.sum(axis=0) <= 1 + outside.sum(axis=0))


def _changes(sums: IntArray, row: int, direct: BoolArray) -> IntArray:
    """Return int64[k]: upper bounds of the change of all distances if group `row` joins each."""
    alone = combine(*sums)
    united = combine(sums[0] + sums[0, row], sums[1] + sums[1, row])
    change = np.where(
        direct, united[0] - alone[0] - alone[0][row], united[1] - alone[1] - alone[1][row]
    )
    return np.asarray(change.sum(axis=1, dtype=np.int64))


def _insert(made: Respined, step: Step, numbers: IntArray) -> Respined:
    """Insert the number of its group as digits into the geocode of every leaf.

    Args:
      made: Leaves and their spine.
      step: The new geolevel, with the spines before and after.
      numbers: int64[leaves], the number of the group of each leaf.
    """
    start = step.before.digits[step.level]
    width = step.after.digits[step.level + 1] - start
    if int(numbers.max()) >= 10**width:
        raise GeographyError(
            f"spine design, geolevel {step.after.levels[step.level + 1]}",
            "has more groups in a geounit than can be numbered",
            got=int(numbers.max()) + 1,
            want=f"{10**width} at most",
        )
    inserted = _digits(np.char.zfill(numbers.astype(f"S{width}"), width))
    old = _digits(made.codes)
    digits = np.concatenate((old[:, :start], inserted, old[:, start:]), axis=1)
    codes = np.ascontiguousarray(digits).view(f"S{digits.shape[1]}").ravel()
    return Respined(step.after, codes)


def _digits(codes: Geocodes) -> npt.NDArray[np.uint8]:
    """Return uint8[n, length]: the characters of geocodes of one length."""
    codes = np.ascontiguousarray(codes)
    return codes.view(np.uint8).reshape(len(codes), codes.dtype.itemsize)


def _level_index(spine: Spine, geolevel: str) -> int:
    """Return the position of a geolevel on the spine, 0 for the root.

    If the spine has no geolevel of this name, its part `<geolevel>_part` is looked up instead.

    Raises:
      GeographyError: The spine has neither of them.
    """
    for name in (geolevel, f"{geolevel}_part"):
        if name in spine.levels:
            return spine.levels.index(name)
    raise GeographyError(
        "spine design", "names an unknown geolevel", got=geolevel, want=list(spine.levels)
    )
