"""Draw householders among synthetic persons, and sizes of households that match the persons.

The persons of an occupied unit are one household. It has one householder, an adult if one is
available, and as many members as its size. Every person in a household lives in an occupied unit.
"""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray
from jobs.design.synthetic.persons import Entries, summed

RESIDENTS = "residents"  # the schema of conf/schema with householders
DWELLINGS = "dwellings"  # the schema of their units
LARGEST = 7  # the last size stands for 7 and more persons
_EVEN = 2.0  # shape of a gamma distribution: larger values give more equal sizes
# Tendency of the second, third and all later members to be minors, in standard deviations of the
# random part; less by _ALONE for the second member if the householder is a minor.
_YOUNG = np.array([-1.0, 0.5, 1.0])
_ALONE = 1.5
_MIXED = 0.7  # random part of group membership within households, in steps of the groups
# The schema `residents`: residence x votingage x ethnicity_race.
_ADULTS, _GROUPS = 2, 8


def drawn_households(
    rng: np.random.Generator, persons: IntArray, occupied: IntArray
) -> tuple[IntArray, IntArray]:
    """Draw the block and the size of every household.

    Args:
      rng: Random generator.
      persons: int64[B], persons in households by block.
      occupied: int64[B], occupied units by block; each has one household.
    """
    sizes = [np.zeros(0, np.int64)]
    for block in np.flatnonzero(occupied):
        weights = rng.gamma(_EVEN, size=int(occupied[block]))
        sizes.append(1 + rng.multinomial(persons[block] - occupied[block], weights / weights.sum()))
    return np.repeat(np.arange(len(occupied)), occupied), np.concatenate(sizes)


def by_size(blocks: IntArray, sizes: IntArray, n_blocks: int) -> IntArray:
    """Return int64[B, 7], households of each block by size: 1 to 6 persons, and 7 or more.

    Args:
      blocks: Block of each household.
      sizes: Persons of each household.
      n_blocks: B, the number of blocks.
    """
    out = np.zeros((n_blocks, LARGEST), np.int64)
    np.add.at(out, (blocks, np.minimum(sizes, LARGEST) - 1), 1)
    return out


def householders(rng: np.random.Generator, occupied: IntArray, entries: Entries) -> Entries:
    """Draw persons of the schema `residents`, with one householder per occupied unit int64[B].

    Args:
      rng: Random generator.
      occupied: int64[B], at most the persons in households.
      entries: Row, cell of pl94, and persons; rows and cells ascending.

    Returns:
      Row, cell of `residents`, and persons, summed and sorted.
    """
    rows, cells, counts = entries
    kind, adult = cells // 252, cells // 126 % 2
    hispanic, race = cells // 63 % 2, cells % 63
    group = _GROUPS * adult + np.where(hispanic == 1, 0, np.minimum(race, 6) + 1)
    heads = np.zeros(len(rows), np.int64)
    for old in (1, 0):  # adults first
        some = np.flatnonzero((kind == 0) & (adult == old))
        starts = np.searchsorted(rows[some], np.arange(len(occupied) + 1))
        needed = occupied - np.bincount(rows, heads, len(occupied)).astype(np.int64)
        for block in np.flatnonzero(needed):
            candidates = some[starts[block] : starts[block + 1]]
            drawn = min(int(needed[block]), int(counts[candidates].sum()))
            if drawn:
                heads[candidates] = rng.multivariate_hypergeometric(counts[candidates], drawn)
    residence = np.where(kind == 0, 1, kind + 1)
    all_cells = np.concatenate([group, residence * _ADULTS * _GROUPS + group])
    numbers = np.concatenate([heads, counts - heads])
    return summed((np.tile(rows, 2), all_cells, numbers), 9 * _ADULTS * _GROUPS)


def members(
    rng: np.random.Generator, households: tuple[IntArray, IntArray], records: Entries
) -> Entries:
    """Assign persons to households at random, so that adults and groups often live together.

    Householders get households at random. Then open memberships and persons are sorted by
    adulthood, group and a random part, and matched in this order: second members are mostly
    adults, and members mostly belong to the group of the householder.

    Args:
      rng: Random generator.
      households: Block and size of each household, by block.
      records: Row, cell of `residents`, and persons, with one householder per household.

    Returns:
      Block, number of the household in its block (from 1), and cell of all members, by block and
      household, householders first.
    """
    rows, cells = (np.repeat(records[index], records[2]) for index in (0, 1))
    residence, rest = cells // (_ADULTS * _GROUPS), cells % (_ADULTS * _GROUPS)
    adult, group = rest // _GROUPS, rest % _GROUPS
    blocks, sizes = households
    first = np.searchsorted(blocks, blocks)
    heads = np.flatnonzero(residence == 0)
    heads = heads[np.lexsort((rng.random(len(heads)), rows[heads]))]  # one per household
    home = np.repeat(np.arange(len(blocks)), sizes - 1)
    index = np.arange(len(home)) - np.searchsorted(home, home)
    young = _YOUNG[np.minimum(index, len(_YOUNG) - 1)]
    young = young - _ALONE * ((index == 0) & (adult[heads][home] == 0)) + rng.normal(size=len(home))
    order = np.lexsort((young, blocks[home]))
    rank = np.empty(len(home), np.int64)
    rank[order] = np.arange(len(home)) - np.searchsorted(blocks[home], blocks[home])
    others = np.flatnonzero(residence == 1)
    n_adults = np.bincount(rows[others], adult[others], minlength=int(rows.max(initial=0)) + 1)
    is_minor = rank >= n_adults[blocks[home]]
    wanted_group = group[heads][home] + _MIXED * rng.normal(size=len(home))
    slots = np.lexsort((wanted_group, is_minor, blocks[home]))
    person_group = group[others] + _MIXED * rng.normal(size=len(others))
    persons = others[np.lexsort((person_group, 1 - adult[others], rows[others]))]
    who = np.concatenate([heads, persons])
    where = np.concatenate([np.arange(len(blocks)), home[slots]])
    by = np.lexsort((np.concatenate([0 * heads, 1 + index[slots]]), where))
    return rows[who[by]], (where - first[where] + 1)[by], cells[who[by]]
