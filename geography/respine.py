"""Another spine for the same leaves, on which off-spine entities are closer.

Three steps, each a pure function of the geocodes and a public table of entities:

1. split a geolevel and all below by a mark of the leaves, such as lying in a tribal area;
2. replace a geolevel (block groups) by groups of equal or similar entities;
3. gather the children of a geolevel (tracts of a county) into groups, a new geolevel.

Steps insert digits into geocodes, so the original geocode comes back by leaving them out, and a
geounit's geocode stays a prefix of those of its leaves. Counts are never looked at: a spine made of
public facts costs no privacy.

References:
  Cumings-Menon et al., J. Privacy and Confidentiality 14(3), 2024, arXiv:2203.16654.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from das.arrays import Geocodes, IntArray
from das.errors import GeographyError
from geography.lattice import Lattice, Spine
from geography.offspine import Coverage, Entities, combine, coverage

FAN_OUT_CUTOFF = 12  # the 2020 setting
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Insertion:
    """Digits inserted into every geocode: `width` of them before position `start`."""

    start: int
    width: int


@dataclass(frozen=True, eq=False)
class Respined:
    """Leaves under another spine.

    Attributes:
      spine: The new geolevels.
      codes: bytes[n], the new geocodes, in the order of the leaves given.
      insertions: What was inserted, in order of application.
    """

    spine: Spine
    codes: Geocodes
    insertions: tuple[Insertion, ...] = ()


@dataclass(frozen=True)
class SpineDesign:
    """What to change.

    Attributes:
      split: Geolevel whose geounits, and all below them, are split by the mark of the leaves; None
        leaves them whole. The halves are a geolevel of their own, `<split>_part`.
      regroup: Geolevel whose geounits are replaced by groups of geounits of the geolevel below.
      gather: Geolevel whose children are gathered into groups, a new geolevel `<child>_group`.
      fan_out_cutoff: A geounit with n items below gets groups of at most ceil(sqrt(n)) + this.
    """

    split: str | None = None
    regroup: str | None = "block_group"
    gather: str | None = None
    fan_out_cutoff: int = FAN_OUT_CUTOFF

    def __post_init__(self) -> None:
        if self.fan_out_cutoff < 0:
            raise GeographyError("spine design", "cutoff is negative", got=self.fan_out_cutoff)


def optimize_spine(
    spine: Spine,
    codes: Geocodes,
    entities: Entities,
    design: SpineDesign,
    marked: npt.NDArray[np.bool_] | None = None,
) -> Respined:
    """Apply a design to a spine.

    Args:
      spine: The geolevels.
      codes: bytes[n] geocodes of the leaves, in any order.
      entities: One row per leaf.
      design: What to change.
      marked: bool[n], leaves of the split-off half; needed if the design splits.

    Raises:
      GeographyError: A geolevel of the design is unknown or at the wrong place, an array does not
        fit, or the geocodes do not make a lattice.
    """
    codes = np.asarray(codes, np.bytes_)
    Lattice.from_leaves(spine, codes)
    made = Respined(spine, codes)
    if design.split is not None:
        if marked is None or marked.shape != codes.shape:
            raise GeographyError("spine design", "splits, so it needs one mark per leaf")
        made = split_geounits(made, design.split, marked)
    if design.regroup is not None:
        level = _position(made.spine, design.regroup)
        if not 0 < level < len(made.spine.levels) - 1:
            raise GeographyError(
                "spine design, regroup", "needs a geolevel above and one below", got=design.regroup
            )
        above = made.spine.levels[level - 1]
        made = Respined(without_geolevel(made.spine, level), made.codes, made.insertions)
        made = group_children(made, entities, above, design.regroup, design.fan_out_cutoff)
    if design.gather is not None:
        level = _position(made.spine, design.gather)
        if level == len(made.spine.levels) - 1:
            raise GeographyError(
                "spine design, gather", "needs a geolevel below", got=design.gather
            )
        name = f"{made.spine.levels[level + 1]}_group"
        made = group_children(made, entities, design.gather, name, design.fan_out_cutoff)
    return made


def original_codes(codes: Geocodes, insertions: Sequence[Insertion]) -> Geocodes:
    """Return the geocodes without the inserted digits."""
    digits = _digits(codes)
    for insertion in reversed(insertions):
        gone = np.arange(insertion.start, insertion.start + insertion.width)
        digits = np.delete(digits, gone, axis=1)
    return _joined(digits)


def split_geounits(made: Respined, geolevel: str, marked: npt.NDArray[np.bool_]) -> Respined:
    """Split the geounits of a geolevel, and all below them, into unmarked (0) and marked (1).

    The geounit itself stays, with its halves as children: its invariants hold for their sum. A
    geounit without marked leaves has one child and is measured once, with the budget of both.
    """
    level = _position(made.spine, geolevel)
    if level == len(made.spine.levels) - 1:
        raise GeographyError("spine design, split", "cannot split leaves", got=geolevel)
    return _insert(made, level, f"{geolevel}_part", marked.astype(np.int64))


def without_geolevel(spine: Spine, level: int) -> Spine:
    """Return the spine without one of its geolevels; geocodes stay as they are."""
    keep = [index for index in range(len(spine.levels)) if index != level]
    return Spine(
        tuple(spine.levels[index] for index in keep), tuple(spine.digits[index] for index in keep)
    )


def group_children(
    made: Respined, entities: Entities, geolevel: str, name: str, cutoff: int
) -> Respined:
    """Insert a geolevel of groups between the geounits of a geolevel and their children.

    Args:
      made: Leaves and their spine.
      entities: One row per leaf, in the order of `made.codes`.
      geolevel: Whose children are grouped.
      name: Name of the new geolevel.
      cutoff: See `SpineDesign.fan_out_cutoff`.
    """
    level = _position(made.spine, geolevel)
    lattice = Lattice.from_leaves(made.spine, made.codes)
    order = np.argsort(made.codes)
    below = coverage(lattice, entities.take(order))[level + 1]
    first_child = lattice.first_child[level]
    groups = np.empty(len(lattice.codes[level + 1]), np.int64)
    for first, last in pairwise(first_child.tolist()):
        groups[first:last] = group_items(*_counts_of(below, first, last), cutoff)
    prefixes = made.codes.astype(f"S{made.spine.digits[level + 1]}")
    child = np.searchsorted(lattice.codes[level + 1], prefixes)
    return _insert(made, level, name, groups[child])


def _counts_of(below: Coverage, first: int, last: int) -> tuple[IntArray, IntArray]:
    """Dense int64[items, E] counts inside and outside, of the entities that the items divide."""
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
    """Largest size of a group of items, ceil(sqrt(n_items)) + cutoff.

    >>> most_children(100, 12), most_children(101, 12)
    (22, 23)
    """
    return math.isqrt(max(n_items - 1, 0)) + 1 + cutoff


def group_items(inside: IntArray, outside: IntArray, cutoff: int) -> IntArray:
    """Group the children of one geounit so that its off-spine entities need few geounits.

    Items that the same entities touch in the same way start in one group, cut into even pieces of
    at most L = `most_children` items. Then the two groups whose union lowers the sum of the
    off-spine distances most, or raises it least, are united, as long as that lowers the sum or
    there are more than L groups; of equal choices the smallest union. No union has more than L
    items, so there are at most max(L, 2 n / L + 1) groups.

    Args:
      inside: int64[n, E], geounits needed for the part of each entity in each item.
      outside: int64[n, E], the same for the rest of the item.
      cutoff: See `SpineDesign.fan_out_cutoff`.

    Returns:
      int64[n], numbers of groups from 0, by first item.

    >>> inside = np.array([[1], [1], [0], [0], [0]])
    >>> group_items(inside, 1 - inside, 12).tolist()
    [0, 0, 1, 1, 1]
    """
    limit = most_children(len(inside), cutoff)
    labels = _alike(inside, outside, limit)
    labels = _unite(labels, inside, outside, limit)
    _, first, index = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[index].astype(np.int64)


def _alike(inside: IntArray, outside: IntArray, limit: int) -> IntArray:
    """Items touched alike, in even pieces of at most `limit` consecutive ones."""
    touched = np.concatenate((inside > 0, outside > 0), axis=1)
    _, alike = np.unique(touched, axis=0, return_inverse=True)
    labels = np.empty(len(inside), np.int64)
    n_groups = 0
    for one in range(int(alike.max()) + 1):
        items = np.flatnonzero(alike == one)
        for piece in np.array_split(items, -(-len(items) // limit)):
            labels[piece] = n_groups
            n_groups += 1
    return labels


def _unite(labels: IntArray, inside: IntArray, outside: IntArray, limit: int) -> IntArray:
    """Unite groups greedily; labels name one of the groups united."""
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
        one, other = np.unravel_index(np.argmin(keys), keys.shape)
        if change[one, other] >= 0 and alive.sum() <= limit:
            break
        sums[:, one] += sums[:, other]
        sizes[one] += sizes[other]
        alive[other] = False
        sums[:, other] = 0
        target[target == other] = one
        now = _comes_from_inside(sums)
        flipped = now != direct
        change[one] = change[:, one] = _changes(sums, int(one), direct)
        if flipped.any():
            part = sums[:, :, flipped]
            for row in np.flatnonzero(alive):
                change[row] += _changes(part, int(row), now[flipped])
                change[row] -= _changes(part, int(row), direct[flipped])
            direct = now
    return target[labels]


def _comes_from_inside(sums: IntArray) -> npt.NDArray[np.bool_]:
    """bool[E]: the entity is cheaper as a sum of groups than as the geounit minus the rest."""
    inside, outside = combine(*sums)
    return np.asarray(inside.sum(axis=0) <= 1 + outside.sum(axis=0))


def _changes(sums: IntArray, row: int, direct: npt.NDArray[np.bool_]) -> IntArray:
    """int64[k]: what uniting one group with each adds to the sum of distances, at most."""
    alone = combine(*sums)
    united = combine(sums[0] + sums[0, row], sums[1] + sums[1, row])
    change = np.where(
        direct, united[0] - alone[0] - alone[0][row], united[1] - alone[1] - alone[1][row]
    )
    return np.asarray(change.sum(axis=1, dtype=np.int64))


def _insert(made: Respined, level: int, name: str, numbers: IntArray) -> Respined:
    """Insert a geolevel below one, and its number as digits into every geocode."""
    spine = made.spine
    start = spine.digits[level]
    width = len(str(int(numbers.max())))
    inserted = _digits(np.char.zfill(numbers.astype(f"S{width}"), width))
    old = _digits(made.codes)
    codes = _joined(np.concatenate((old[:, :start], inserted, old[:, start:]), axis=1))
    new = Spine(
        (*spine.levels[: level + 1], name, *spine.levels[level + 1 :]),
        (
            *spine.digits[: level + 1],
            start + width,
            *(d + width for d in spine.digits[level + 1 :]),
        ),
    )
    return Respined(new, codes, (*made.insertions, Insertion(start, width)))


def _digits(codes: Geocodes) -> npt.NDArray[np.uint8]:
    """uint8[n, length]: the characters of geocodes of one length."""
    codes = np.ascontiguousarray(codes)
    return codes.view(np.uint8).reshape(len(codes), codes.dtype.itemsize)


def _joined(digits: npt.NDArray[np.uint8]) -> Geocodes:
    return np.ascontiguousarray(digits).view(f"S{digits.shape[1]}").ravel()


def _position(spine: Spine, geolevel: str) -> int:
    if geolevel not in spine.levels:
        raise GeographyError(
            "spine design", "names an unknown geolevel", got=geolevel, want=list(spine.levels)
        )
    return spine.levels.index(geolevel)
