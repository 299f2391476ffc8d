"""Records put into the units they live in: microdata of two products that agree in every leaf.

Ties bound the records of each type by weighted sums of the cells of a product before (`between`),
and a coefficient of such a sum is what one unit holds: an occupied unit one householder, a unit of
four persons three others, one of seven or more six to 96. The types part the records, and a unit
holds them type by type, so the units of a leaf can hold its records iff the records of every type
lie between the sums of what each unit needs and takes of it. That is what ties say, so wherever
they hold everybody has a place (docs/between.md has the proof).

Who lives with whom the ties leave open. Here those of `Order.first`, say adults, come before others
in every unit, and persons come to units whose first one is like them; what is left to chance is
drawn by a public seed from the geocode, the same on every machine. All is integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError, VerificationError
from das.histograms import Histograms
from invariants.between import Form, Ties
from invariants.facilities import Types

NO_CODE = -1  # of a unit that nobody is like
_Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Places:
    """How many records of each type a unit of each cell holds.

    Attributes:
      product: The product of the units.
      types: The types of records.
      least: int64[t, n], by the cell of the unit.
      most: int64[t, n].
      housed: bool[t], types that live in units; the others in none.
    """

    product: str
    types: Types
    least: IntArray
    most: IntArray
    housed: BoolArray

    @property
    def order(self) -> list[int]:
        """Types that live in units; those of whom a unit holds a fixed number come first."""
        fixed = (self.least == self.most).all(1)
        return sorted(np.flatnonzero(self.housed).tolist(), key=lambda one: not fixed[one])


@dataclass(frozen=True, eq=False)
class Order:
    """In which order records are put into units, and with whom.

    Attributes:
      first: bool[k], cells of records that come before others.
      alike: int64[k], codes of cells of records: those of a code are put together.
      units: int64[n], the code of the first record of a unit of each cell, as the unit says;
        `NO_CODE` where it says none.
      seed: What draws the rest.
    """

    first: BoolArray
    alike: IntArray
    units: IntArray
    seed: int


@dataclass(frozen=True, eq=False)
class Joined:
    """Records of some leaves with their units, by leaf, unit and order in it.

    Attributes:
      leaves: int64[r], the leaf of every record.
      numbers: int64[r], the number of its unit among those of the leaf, from 1 on in the order of
        cells; 0 for records without, which come first.
      units: int64[r], the cell of its unit; -1 without.
      cells: int64[r], its own cell.
    """

    leaves: IntArray
    numbers: IntArray
    units: IntArray
    cells: IntArray


def places_of(ties: Ties, name: str) -> Places:
    """How many records of each type a unit holds, if the ties say it of every unit.

    Args:
      ties: Of the product of the records.
      name: Of that product, for errors.

    Raises:
      ConfigError: They name several products, bound a type not at all from one side or by several
        sums, or a unit might take fewer than none.
    """
    products = sorted(ties.sizes)
    if len(products) != 1:
        raise ConfigError(
            f"joined {name}", "live in units of one product", got=products, want="one product"
        )
    (product,) = products
    n_cells, n_types = ties.sizes[product], ties.query.size
    least, most = (np.zeros((n_types, n_cells), np.int64) for _ in range(2))
    housed = np.array([bool(ties.least[one] or ties.most[one]) for one in range(n_types)])
    for one in np.flatnonzero(housed).tolist():
        lows = ties.least[one] or (Form({product: np.zeros(n_cells, np.int64)}),)
        highs = ties.most[one]
        if len(lows) != 1 or len(highs) != 1:
            raise ConfigError(
                f"joined {name}",
                "need to know how many of them one unit holds at least and at most",
                got=f"{len(ties.least[one])} lower, {len(highs)} upper bounds, {ties.named(one)}",
                remedy="state one lower and one upper bound of the same cells",
            )
        least[one], most[one] = lows[0].parts[product], highs[0].parts[product]
        if (least[one] < 0).any() or (most[one] < least[one]).any():
            raise ConfigError(
                f"joined {name}",
                "cannot be put into units one by one: some unit would hold fewer than none",
                got=ties.named(one),
                remedy="count what lies within a bound in that bound, too",
            )
    return Places(product, ties.query, least, most, housed)


def join(
    places: Places, order: Order, codes: Sequence[str], units: Histograms, records: Histograms
) -> Joined:
    """Put the records of some leaves into their units.

    Args:
      places: How many of each type a unit holds.
      order: Who goes where, of those that may.
      codes: G geocodes, from which the rest is drawn.
      units: Of these leaves.
      records: Of these leaves.

    Raises:
      VerificationError: The units of a leaf cannot hold its records; then a tie is broken.
    """
    u_leaf, u_cell = _expanded(units)
    r_leaf, r_cell = _expanded(records)
    first_unit = np.searchsorted(u_leaf, np.arange(units.n_geounits))
    keys = _leaf_keys(codes, order.seed)
    u_key = _scrambled(keys[u_leaf], _within(u_leaf), 1)
    r_key = _scrambled(keys[r_leaf], _within(r_leaf), 2)
    r_type = places.types.rows_of(r_cell)
    wanted = np.zeros((places.types.size, units.n_geounits), np.int64)
    np.add.at(wanted, (r_type, r_leaf), 1)
    held = np.zeros((places.types.size, len(u_cell)), np.int64)
    for one in places.order:
        held[one] = _shared_out(
            wanted[one], u_leaf, places.least[one][u_cell], places.most[one][u_cell], u_key, codes
        )
    whole, seated = held.sum(0), np.zeros(len(u_cell), np.int64)
    has_first, code = np.zeros(len(u_cell), np.bool_), order.units[u_cell]
    unit_of = np.full(len(r_cell), -1, np.int64)
    place = np.zeros(len(r_cell), np.int64)
    for one in places.order:
        slot = np.repeat(np.arange(len(u_cell)), held[one])
        number = seated[slot] + _within(slot)
        # Who comes first goes where nobody else will be; later, where none of them is yet.
        turn = whole[slot] if _is_fixed(places, one) else number + has_first[slot]
        some = np.flatnonzero(r_type == one)
        records_of, slots_of = _paired(
            order,
            (r_leaf[some], r_cell[some], r_key[some]),
            (u_leaf[slot], code[slot], _scrambled(u_key[slot], number, 3), turn),
        )
        who, where = some[records_of], slot[slots_of]
        unit_of[who], place[who] = where, number[slots_of]
        has_first[where[order.first[r_cell[who]]]] = True
        new = (number[slots_of] == 0) & (code[where] == NO_CODE)
        if _is_fixed(places, one):  # householders, of whom the others may be like
            code[where[new]] = order.alike[r_cell[who[new]]]
        seated += held[one]
    numbers = np.where(unit_of < 0, 0, unit_of - first_unit[r_leaf] + 1)
    by = np.lexsort((r_key, place, numbers, r_leaf))
    found = np.where(unit_of < 0, -1, u_cell[unit_of] if len(u_cell) else -1)
    return Joined(r_leaf[by], numbers[by], found[by], r_cell[by])


def _is_fixed(places: Places, one: int) -> bool:
    return bool((places.least[one] == places.most[one]).all())


def _expanded(histograms: Histograms) -> tuple[IntArray, IntArray]:
    """Geounit and cell of every single record, in order."""
    return (
        np.repeat(histograms.owners(), histograms.counts),
        np.repeat(histograms.cells, histograms.counts),
    )


def _within(groups: IntArray) -> IntArray:
    """int64[m]: the number of each entry in its group, from 0 on; groups rise."""
    if not len(groups):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(groups) != 0)))
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))


def _leaf_keys(codes: Sequence[str], seed: int) -> _Keys:
    """A number of each leaf, from its geocode and the seed."""
    salt = seed.to_bytes(8, "little")
    digests = b"".join(blake2b(code.encode(), digest_size=8, key=salt).digest() for code in codes)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _scrambled(keys: _Keys, numbers: IntArray, stream: int) -> _Keys:
    """A number of each entry of a stream: the finalizer of SplitMix64 (Steele et al. 2014)."""
    step = np.uint64(0x9E3779B97F4A7C15)
    own = keys + step * (np.uint64(4) * numbers.astype(np.uint64) + np.uint64(stream))
    own = (own ^ (own >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    own = (own ^ (own >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(own ^ (own >> np.uint64(31)), np.uint64)


def _shared_out(
    wanted: IntArray,
    leaf: IntArray,
    least: IntArray,
    most: IntArray,
    keys: _Keys,
    codes: Sequence[str],
) -> IntArray:
    """int64[u]: how many of int64[G] records of a type each unit holds, as evenly as it may be.

    What units take beyond their least is shared out evenly among those with room; what does not
    go round goes to the units of the least keys.

    Raises:
      VerificationError: The units of a leaf need more of them than it has, or have room for less.
    """
    held, n_leaves = least.copy(), len(wanted)
    rest = wanted.copy()
    np.subtract.at(rest, leaf, least)
    while True:
        room = np.flatnonzero((held < most) & (rest[leaf] > 0))
        if not len(room):
            break
        own = leaf[room]
        share = rest // np.maximum(np.bincount(own, minlength=n_leaves), 1)
        order = np.lexsort((keys[room], own))
        turn = np.empty(len(room), np.int64)
        turn[order] = _within(own[order])
        given = np.where(share[own] > 0, share[own], turn < rest[own])
        given = np.minimum(given, most[room] - held[room])
        held[room] += given
        np.subtract.at(rest, own, given)
    if rest.any():
        wrong = int(np.flatnonzero(rest)[0])
        raise VerificationError(
            codes[wrong], "has records for whom its units have no place, or too few of them"
        )
    return held


def _paired(
    order: Order,
    records: tuple[IntArray, IntArray, _Keys],
    slots: tuple[IntArray, IntArray, _Keys, IntArray],
) -> tuple[IntArray, IntArray]:
    """Records of a type and their slots, one beside the other; as many of both in every leaf.

    Those who come first have the slots of the least turns. Among them, and among the others, as
    many as can be come to a slot of their code; the rest are paired by their keys.

    Args:
      order: Who comes first, and who is alike.
      records: Leaf, cell and key of each.
      slots: Leaf, code, key and turn of each.

    Returns:
      int64[m] places in `records`, and in `slots`.
    """
    leaf, cell, key = records
    s_leaf, s_code, s_key, turn = slots
    is_first = order.first[cell]
    n_first = np.bincount(leaf, is_first, minlength=int(leaf.max(initial=-1)) + 1)
    by_turn = np.lexsort((s_key, turn, s_leaf))
    rank = np.empty(len(s_leaf), np.int64)
    rank[by_turn] = _within(s_leaf[by_turn])
    n_codes = int(max(order.alike.max(initial=0), s_code.max(initial=0))) + 2
    own = (2 * leaf + ~is_first) * n_codes + order.alike[cell] + 1
    theirs = (2 * s_leaf + (rank >= n_first[s_leaf])) * n_codes + s_code + 1
    classes, numbered = np.unique(np.concatenate([own, theirs]), return_inverse=True)
    own, theirs = numbered[: len(own)], numbered[len(own) :]
    matched = np.minimum(
        np.bincount(own, minlength=len(classes)), np.bincount(theirs, minlength=len(classes))
    )
    groups = classes // n_codes
    return (
        _matched_order(own, key, matched, groups),
        _matched_order(theirs, s_key, matched, groups),
    )


def _matched_order(codes: IntArray, keys: _Keys, matched: IntArray, groups: IntArray) -> IntArray:
    """Entries by group: first so many of each code as are matched, by code, then the rest by key.

    Args:
      codes: int64[m], the class of each entry.
      keys: uint64[m].
      matched: int64[c], how many of each class are matched.
      groups: int64[c], the group of each class.
    """
    by = np.lexsort((keys, codes))
    is_matched = np.zeros(len(codes), np.bool_)
    is_matched[by] = _within(codes[by]) < matched[codes[by]]
    return np.lexsort((keys, np.where(is_matched, codes, 0), ~is_matched, groups[codes]))
