"""Householders among synthetic persons, and the sizes of their households, which agree.

Every occupied unit has one householder, an adult as long as there are some, and as many persons as
its size says; who lives in households lives in one of them.
"""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray
from jobs.synthetic.persons import Entries

RESIDENTS = "residents"  # the schema of conf/schema that has householders
DWELLINGS = "dwellings"  # and that of the units they live in
LARGEST = 7  # households of so many persons or more are of one size
_EVEN = 2.0  # of a gamma distribution: the larger, the more alike households are
# Of the schema `residents`: residence x votingage x ethnicity_race.
_ADULTS, _GROUPS = 2, 8


def sizes_of_households(
    rng: np.random.Generator, persons: IntArray, occupied: IntArray
) -> IntArray:
    """int64[B, 7]: households by size, from int64[B] persons in them and int64[B] of them."""
    out = np.zeros((len(persons), LARGEST), np.int64)
    for block in np.flatnonzero(occupied):
        weights = rng.gamma(_EVEN, size=int(occupied[block]))
        others = rng.multinomial(persons[block] - occupied[block], weights / weights.sum())
        np.add.at(out[block], np.minimum(others, LARGEST - 1), 1)
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
    keys = np.tile(rows, 2) * (9 * _ADULTS * _GROUPS) + every
    keys, inverse = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse, np.concatenate([heads, counts - heads]))
    keys, sums = keys[sums > 0], sums[sums > 0]
    return keys // (9 * _ADULTS * _GROUPS), keys % (9 * _ADULTS * _GROUPS), sums
