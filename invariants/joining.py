"""Joined microdata: records are assigned to the units they live in, in every leaf.

Cross-product constraints bound the records of each type by weighted sums of cells of an earlier
product. A coefficient of such a sum is the contents of one unit: an occupied unit has one
householder, a unit of four persons three others, a unit of seven or more six to 96. The types
partition the records, and units are filled type by type. So the units of a leaf can contain its
records iff the records of every type lie between the sums of the bounds of its units. The
constraints state just that, so all records have a unit where they hold (docs/between.md has the
proof).

The constraints do not determine who lives with whom. Here the records of `JoinOrder.first`, such as
adults, come before others in every unit, and persons are matched to units whose first person has
the same code. Remaining choices are drawn from a public seed and the geocode, the same on every
machine. All arithmetic is in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, IntArray, joined_ranges, run_starts
from das.errors import ConfigError, VerificationError
from das.histograms import Histograms
from invariants.between import CrossProductConstraints, Form
from invariants.facilities import Types

NO_CODE = -1  # of a unit whose first person is unknown
_Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class UnitBounds:
    """Bounds of the records of each type that a unit of each cell contains.

    Attributes:
      product: The product of the units.
      types: The types of records.
      least: int64[t, n], by the cell of the unit.
      most: int64[t, n], by the cell of the unit.
      housed: bool[t], types that live in units; records of other types have no unit.
    """

    product: str
    types: Types
    least: IntArray
    most: IntArray
    housed: BoolArray

    @cached_property
    def fixed(self) -> BoolArray:
        """Return bool[t]: types whose lower and upper bounds agree in the units of every cell."""
        return np.asarray((self.least == self.most).all(1))

    @property
    def order(self) -> list[int]:
        """Return the types that live in units; types with a fixed number per unit come first."""
        return sorted(np.flatnonzero(self.housed).tolist(), key=lambda kind: not self.fixed[kind])


@dataclass(frozen=True, eq=False)
class JoinOrder:
    """Rules for the order in which records are assigned to units, and for matching them.

    Attributes:
      first: bool[k], cells of records that are assigned before others.
      match_codes: int64[k], codes of the cells of records: records of equal codes are put together.
      units: int64[n], by the cell of a unit, the code of its first record; `NO_CODE` if unknown.
      seed: Seed of the random choices that remain.
    """

    first: BoolArray
    match_codes: IntArray
    units: IntArray
    seed: int


@dataclass(frozen=True, eq=False)
class Joined:
    """Records of some leaves with their units, sorted by leaf, unit and order in the unit.

    Attributes:
      leaves: int64[r], the leaf of each record.
      numbers: int64[r], the number of its unit in the leaf, from 1 in the order of cells; 0 for
        records without unit, which come first.
      units: int64[r], the cell of the unit of each record; -1 for records without unit.
      cells: int64[r], the cell of each record.
    """

    leaves: IntArray
    numbers: IntArray
    units: IntArray
    cells: IntArray


def unit_bounds(ties: CrossProductConstraints, name: str) -> UnitBounds:
    """Return the bounds of records of each type in a unit, from cross-product constraints.

    Args:
      ties: Cross-product constraints of the product of the records.
      name: Name of that product, for errors.

    Raises:
      ConfigError: The constraints name several products, leave a type without a bound or with
        several, or the bounds of some unit would be negative.
    """
    products, where = sorted(ties.sizes), f"joined {name}"
    if len(products) != 1:
        raise ConfigError(where, "need units of one product", got=products, want="one product")
    (product,) = products
    n_cells, n_types = ties.sizes[product], ties.query.size
    least, most = (np.zeros((n_types, n_cells), np.int64) for _ in range(2))
    housed = np.array([bool(ties.least[kind] or ties.most[kind]) for kind in range(n_types)])
    for kind in np.flatnonzero(housed).tolist():
        lows = ties.least[kind] or (Form({product: np.zeros(n_cells, np.int64)}),)
        highs = ties.most[kind]
        if len(lows) != 1 or len(highs) != 1:
            raise ConfigError(
                where,
                "need one upper and at most one lower bound for each type of records in a unit",
                got=f"{len(ties.least[kind])} lower, {len(highs)} upper bounds: {ties.named(kind)}",
                remedy="state one lower and one upper bound of the same cells",
            )
        least[kind], most[kind] = lows[0].parts[product], highs[0].parts[product]
        if (least[kind] < 0).any() or (most[kind] < least[kind]).any():
            raise ConfigError(
                where,
                "cannot be assigned to units: the bounds of some unit are negative or cross",
                got=ties.named(kind),
                remedy="count what lies within a bound in that bound, too",
            )
    return UnitBounds(product, ties.query, least, most, housed)


def join(
    bounds: UnitBounds,
    order: JoinOrder,
    codes: Sequence[str],
    units: Histograms,
    records: Histograms,
) -> Joined:
    """Assign the records of some leaves to their units.

    Args:
      bounds: Bounds of the records of each type in a unit.
      order: Order of the assignment.
      codes: G geocodes, from which random choices are derived.
      units: Units of these leaves.
      records: Records of these leaves.

    Raises:
      VerificationError: The units of a leaf cannot contain its records; a cross-product constraint
        is broken.
    """
    u_leaf, u_cell = _expanded(units)
    r_leaf, r_cell = _expanded(records)
    first_unit = np.searchsorted(u_leaf, np.arange(units.n_geounits))
    keys = _leaf_keys(codes, order.seed)
    u_key = _scrambled(keys[u_leaf], _within(u_leaf), 1)
    r_key = _scrambled(keys[r_leaf], _within(r_leaf), 2)
    r_type = bounds.types.rows_of(r_cell)
    wanted = np.zeros((bounds.types.size, units.n_geounits), np.int64)
    np.add.at(wanted, (r_type, r_leaf), 1)
    filled = np.zeros((bounds.types.size, len(u_cell)), np.int64)
    for kind in bounds.order:
        filled[kind] = _shared_out(
            wanted[kind],
            u_leaf,
            bounds.least[kind][u_cell],
            bounds.most[kind][u_cell],
            u_key,
            codes,
        )
    whole, seated = filled.sum(0), np.zeros(len(u_cell), np.int64)
    has_first, code = np.zeros(len(u_cell), np.bool_), order.units[u_cell]
    unit_of = np.full(len(r_cell), -1, np.int64)
    position = np.zeros(len(r_cell), np.int64)
    for kind in bounds.order:
        slot = np.repeat(np.arange(len(u_cell)), filled[kind])
        number = seated[slot] + _within(slot)
        # First records take slots in units of one person, then in units without a first record.
        turn = whole[slot] if bounds.fixed[kind] else number + has_first[slot]
        some = np.flatnonzero(r_type == kind)
        records_of, slots_of = _paired(
            order,
            (r_leaf[some], r_cell[some], r_key[some]),
            (u_leaf[slot], code[slot], _scrambled(u_key[slot], number, 3), turn),
        )
        who, where = some[records_of], slot[slots_of]
        unit_of[who], position[who] = where, number[slots_of]
        has_first[where[order.first[r_cell[who]]]] = True
        new = (number[slots_of] == 0) & (code[where] == NO_CODE)
        if bounds.fixed[kind]:  # householders, to whom the others are matched
            code[where[new]] = order.match_codes[r_cell[who[new]]]
        seated += filled[kind]
    numbers = np.where(unit_of < 0, 0, unit_of - first_unit[r_leaf] + 1)
    order_of = np.lexsort((r_key, position, numbers, r_leaf))
    cell_of = np.where(unit_of < 0, -1, u_cell[unit_of] if len(u_cell) else -1)
    return Joined(r_leaf[order_of], numbers[order_of], cell_of[order_of], r_cell[order_of])


def _expanded(histograms: Histograms) -> tuple[IntArray, IntArray]:
    """Return the geounit and the cell of each record, by geounit and then by cell."""
    return (
        np.repeat(histograms.owners(), histograms.counts),
        np.repeat(histograms.cells, histograms.counts),
    )


def _within(groups: IntArray) -> IntArray:
    """Return int64[m]: the number of each entry in its group, from 0; groups rise."""
    starts = run_starts(groups)
    return joined_ranges(np.zeros_like(starts), np.diff(np.append(starts, len(groups))))[1]


def _leaf_keys(codes: Sequence[str], seed: int) -> _Keys:
    """Return a pseudorandom key of each leaf, a hash of its geocode with the seed."""
    salt = seed.to_bytes(8, "little")
    digests = b"".join(blake2b(code.encode(), digest_size=8, key=salt).digest() for code in codes)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _scrambled(keys: _Keys, numbers: IntArray, stream: int) -> _Keys:
    """Derive pseudorandom keys by the finalizer of SplitMix64 (Steele et al. 2014).

    Args:
      keys: The key of the leaf of each entry.
      numbers: Number of each entry in its leaf.
      stream: Purpose of the keys, 0..3, so that keys of different purposes are independent.
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    mixed = keys + step * (np.uint64(4) * numbers.astype(np.uint64) + np.uint64(stream))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def _shared_out(
    wanted: IntArray,
    leaf: IntArray,
    least: IntArray,
    most: IntArray,
    keys: _Keys,
    codes: Sequence[str],
) -> IntArray:
    """Divide the records of one type among the units of each leaf as evenly as possible, int64[u].

    Records beyond the lower bounds are divided evenly among units below their upper bounds.
    Remainders go to the units with the least keys.

    Args:
      wanted: int64[G], records of the type in each leaf.
      leaf: int64[u], the leaf of each unit.
      least: int64[u], fewest records of each unit.
      most: int64[u], most records of each unit.
      keys: The key of each unit, which decides who gets remainders.
      codes: Geocode of each leaf, for errors.

    Raises:
      VerificationError: The bounds of the units of a leaf exclude its number of records.
    """
    filled, n_leaves = least.copy(), len(wanted)
    rest = wanted.copy()
    np.subtract.at(rest, leaf, least)
    while True:
        room = np.flatnonzero((filled < most) & (rest[leaf] > 0))
        if not len(room):
            break
        owner = leaf[room]
        share = rest // np.maximum(np.bincount(owner, minlength=n_leaves), 1)
        order = np.lexsort((keys[room], owner))
        turn = np.empty(len(room), np.int64)
        turn[order] = _within(owner[order])
        given = np.where(share[owner] > 0, share[owner], turn < rest[owner])
        given = np.minimum(given, most[room] - filled[room])
        filled[room] += given
        np.subtract.at(rest, owner, given)
    if rest.any():
        wrong = int(np.flatnonzero(rest)[0])
        raise VerificationError(
            codes[wrong], "has more or fewer records than its units can contain"
        )
    return filled


def _paired(
    order: JoinOrder,
    records: tuple[IntArray, IntArray, _Keys],
    slots: tuple[IntArray, IntArray, _Keys, IntArray],
) -> tuple[IntArray, IntArray]:
    """Match the records of a type to slots of units; both are equally many in every leaf.

    First records have the slots of the least turns. Among first records, and among the others, as
    many as possible get a slot of their code. The remaining ones are matched by their keys.

    Args:
      order: Which records are first, and the codes that records and slots are matched by.
      records: Leaf, cell and key of each record.
      slots: Leaf, code, key and turn of each slot.

    Returns:
      int64[m] indices into `records` and into `slots`.
    """
    leaf, cell, key = records
    s_leaf, s_code, s_key, turn = slots
    is_first = order.first[cell]
    n_first = np.bincount(leaf, is_first, minlength=int(leaf.max(initial=-1)) + 1)
    by_turn = np.lexsort((s_key, turn, s_leaf))
    rank = np.empty(len(s_leaf), np.int64)
    rank[by_turn] = _within(s_leaf[by_turn])
    n_codes = int(max(order.match_codes.max(initial=0), s_code.max(initial=0))) + 2
    record_class = (2 * leaf + ~is_first) * n_codes + order.match_codes[cell] + 1
    slot_class = (2 * s_leaf + (rank >= n_first[s_leaf])) * n_codes + s_code + 1
    classes, numbered = np.unique(np.concatenate([record_class, slot_class]), return_inverse=True)
    record_class, slot_class = numbered[: len(record_class)], numbered[len(record_class) :]
    matched = np.minimum(
        np.bincount(record_class, minlength=len(classes)),
        np.bincount(slot_class, minlength=len(classes)),
    )
    groups = classes // n_codes
    return (
        _matched_order(record_class, key, matched, groups),
        _matched_order(slot_class, s_key, matched, groups),
    )


def _matched_order(codes: IntArray, keys: _Keys, matched: IntArray, groups: IntArray) -> IntArray:
    """Order entries by group: the matched ones by code, then the others by key.

    Args:
      codes: int64[m], the class of each entry.
      keys: uint64[m], the key of each entry.
      matched: int64[c], how many of each class are matched.
      groups: int64[c], the group of each class.
    """
    by = np.lexsort((keys, codes))
    is_matched = np.zeros(len(codes), np.bool_)
    is_matched[by] = _within(codes[by]) < matched[codes[by]]
    return np.lexsort((keys, np.where(is_matched, codes, 0), ~is_matched, groups[codes]))
