"""Householders among synthetic persons, and the sizes of their households, which agree.

Every occupied unit has one householder, an adult as long as there are some, and as many persons as
its size says; who lives in households lives in one of them.
"""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray
from jobs.design.synthetic.persons import Entries, summed

RESIDENTS = "residents"  # the schema of conf/schema that has householders
DWELLINGS = "dwellings"  # and that of the units they live in
LARGEST = 7  # households of so many persons or more are of one size
_EVEN = 2.0  # of a gamma distribution: the larger, the more alike households are
# By place in the household, from the second on, how little it is one for an adult, in standard
# deviations of chance; the last is of all that follow. It is so much less if the householder is a
# minor.
_YOUNG = np.array([-1.0, 0.5, 1.0])
_ALONE = 1.5
_MIXED = 0.7  # how much chance there is in who lives with whom, in steps of the groups
# Of the schema `residents`: residence x votingage x ethnicity_race.
_ADULTS, _GROUPS = 2, 8


def drawn_households(
    rng: np.random.Generator, persons: IntArray, occupied: IntArray
) -> tuple[IntArray, IntArray]:
    """Households of int64[B] persons in int64[B] occupied units: the block and persons of each."""
    sizes = [np.zeros(0, np.int64)]
    for block in np.flatnonzero(occupied):
        weights = rng.gamma(_EVEN, size=int(occupied[block]))
        sizes.append(1 + rng.multinomial(persons[block] - occupied[block], weights / weights.sum()))
    return np.repeat(np.arange(len(occupied)), occupied), np.concatenate(sizes)


def by_size(blocks: IntArray, sizes: IntArray, n_blocks: int) -> IntArray:
    """int64[B, 7]: households by size."""
    out = np.zeros((n_blocks, LARGEST), np.int64)
    np.add.at(out, (blocks, np.minimum(sizes, LARGEST) - 1), 1)
    return out


def householders(rng: np.random.Generator, occupied: IntArray, entries: Entries) -> Entries:
    """Persons of the schema `residents`, one householder for each of int64[B] occupied units.

    Args:
      rng: What draws who they are.
      occupied: Never more than the persons in households.
      entries: Row, cell of pl94 and persons of every entry, rows and cells rising.

    Returns:
      Row, cell of `residents` and persons, summed and sorted.
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
            own = some[starts[block] : starts[block + 1]]
            drawn = min(int(needed[block]), int(counts[own].sum()))
            if drawn:
                heads[own] = rng.multivariate_hypergeometric(counts[own], drawn)
    residence = np.where(kind == 0, 1, kind + 1)
    every = np.concatenate([group, residence * _ADULTS * _GROUPS + group])
    numbers = np.concatenate([heads, counts - heads])
    return summed((np.tile(rows, 2), every, numbers), 9 * _ADULTS * _GROUPS)


def members(
    rng: np.random.Generator, households: tuple[IntArray, IntArray], records: Entries
) -> Entries:
    """Who lives in which household; drawn, so that adults and groups are often together.

    Householders have households by chance. Places and persons are then ordered by what they are and
    by chance, and the first place has the first person: second places mostly adults, the places of
    a household mostly persons of the group of the householder.

    Args:
      rng: What draws it.
      households: Block and persons of each, by block.
      records: Row, cell of `residents` and persons, one householder for each household.

    Returns:
      Block, number of the household in its block from 1 on, and cell of everybody in a household,
      by block and household, the householder first.
    """
    rows, cells = (np.repeat(records[index], records[2]) for index in (0, 1))
    residence, rest = cells // (_ADULTS * _GROUPS), cells % (_ADULTS * _GROUPS)
    adult, group = rest // _GROUPS, rest % _GROUPS
    blocks, sizes = households
    first = np.searchsorted(blocks, blocks)
    heads = np.flatnonzero(residence == 0)
    heads = heads[np.lexsort((rng.random(len(heads)), rows[heads]))]  # one per household
    home = np.repeat(np.arange(len(blocks)), sizes - 1)
    place = np.arange(len(home)) - np.searchsorted(home, home)
    young = _YOUNG[np.minimum(place, len(_YOUNG) - 1)]
    young = young - _ALONE * ((place == 0) & (adult[heads][home] == 0)) + rng.normal(size=len(home))
    order = np.lexsort((young, blocks[home]))
    rank = np.empty(len(home), np.int64)
    rank[order] = np.arange(len(home)) - np.searchsorted(blocks[home], blocks[home])
    others = np.flatnonzero(residence == 1)
    n_adults = np.bincount(rows[others], adult[others], minlength=int(rows.max(initial=0)) + 1)
    is_minor = rank >= n_adults[blocks[home]]
    apart = group[heads][home] + _MIXED * rng.normal(size=len(home))
    slots = np.lexsort((apart, is_minor, blocks[home]))
    alike = group[others] + _MIXED * rng.normal(size=len(others))
    persons = others[np.lexsort((alike, 1 - adult[others], rows[others]))]
    who = np.concatenate([heads, persons])
    where = np.concatenate([np.arange(len(blocks)), home[slots]])
    by = np.lexsort((np.concatenate([0 * heads, 1 + place[slots]]), where))
    return rows[who[by]], (where - first[where] + 1)[by], cells[who[by]]
