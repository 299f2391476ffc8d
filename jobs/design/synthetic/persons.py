"""Relationship, single year of age, sex and citizenship of synthetic persons.

Details are drawn for every person in the redistricting cells of a tract, so time and memory depend
on the number of persons, not on the cells of large schemas. Impossible persons, such as parents of
the householder under 30, are not drawn (`AGES`), so a run can state them as structural zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from das.arrays import FloatArray, IntArray
from das.schema import Schema

Entries = tuple[IntArray, IntArray, IntArray]

# Levels of the attribute relgq of conf/schema/dhc_persons.yaml: relationships, then facilities.
_N_RELATIONSHIPS, _N_FACILITIES = 18, 24
_N_AGES = 116
_CENRACE = 63
# Youngest and oldest age by level of relgq; all ages where none is given.
AGES = {
    **dict.fromkeys(range(6), (15, 115)), **dict.fromkeys((6, 7, 8), (0, 89)),
    10: (30, 115), 11: (0, 74), 12: (30, 115), 13: (15, 89), 16: (0, 20),
    **dict.fromkeys(range(18, 23), (15, 115)), 23: (17, 65),
    **dict.fromkeys((24, 25, 26), (0, 25)), 27: (20, 115),
    **dict.fromkeys((31, 34, 35), (17, 65)), 32: (3, 30), 33: (16, 65),
    37: (16, 115), 38: (16, 115), 39: (16, 75),
}  # fmt: skip
# Weights of the relationships of minors and adults, and of the facilities within their type.
_MINORS = (0, 0.5, 0.1, 0.1, 0, 0, 80, 2, 4, 1, 0, 8, 0, 0, 3, 0.5, 1, 1)
_ADULTS = (14, 36, 25, 4, 0.4, 0.4, 10, 0.3, 0.6, 1.2, 1.6, 0.5, 0.6, 0.5, 2, 2.5, 0.1, 1.5)
_OF_TYPE = {1: range(18, 24), 2: range(24, 27), 3: range(27, 28), 4: range(28, 33),
            5: range(33, 34), 6: range(34, 36), 7: range(36, 42)}  # fmt: skip
_COMMONNESS = np.array(
    [1, 3, 10, 6, 1, 0.1, 3, 3, 2, 1, 4, 2, 1, 0.2, 1, 1, 4, 1, 4, 6, 2, 0.3, 2, 3]
)


def summed(entries: Entries, n_cells: int) -> Entries:
    """Add up counts of equal rows and cells; drop zeros and sort by row and cell."""
    rows, cells, counts = entries
    keys, inverse = np.unique(rows * n_cells + cells, return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse, counts)
    keys, sums = keys[sums > 0], sums[sums > 0]
    return keys // n_cells, keys % n_cells, sums


def facility_shares() -> list[FloatArray]:
    """Return, for each of the 7 types, the shares of the finer types of relgq."""
    weights = [_COMMONNESS[np.array(some) - _N_RELATIONSHIPS] for some in _OF_TYPE.values()]
    return [some / some.sum() for some in weights]


def add_persons_details(
    uniform: Callable[[int], FloatArray], schema: Schema, races: IntArray, entries: Entries
) -> Entries:
    """Draw the attributes that redistricting cells lack, for every person.

    Args:
      uniform: Function that draws n uniform numbers in [0, 1).
      schema: `dhc_persons` or `census1940`.
      races: int64[63], level of the race attribute of each combination of races.
      entries: Row, cell of pl94, and number of persons.

    Returns:
      Row, cell of the schema, and count 1 for every person, in any order.
    """
    rows, cells, counts = entries
    rows, cells = np.repeat(rows, counts), np.repeat(cells, counts)
    kind, adult = cells // 252, cells // 126 % 2
    hispanic, race = cells // _CENRACE % 2, races[cells % _CENRACE]
    spot = np.empty(len(cells), np.int64)
    order = np.argsort(2 * kind + adult, kind="stable")
    classes, starts = np.unique((2 * kind + adult)[order], return_index=True)
    for number, some in zip(classes, np.split(order, starts[1:]), strict=False):
        limits = _relationship_and_age(int(number) // 2, int(number) % 2)
        spot[some] = np.searchsorted(limits, uniform(len(some)), side="right")
    relgq, age = spot // _N_AGES, spot % _N_AGES
    sex = (uniform(len(cells)) < np.where(age > 60, 0.56, 0.5)).astype(np.int64)
    drawn = {"relgq": relgq, "hhgq": kind, "sex": sex, "age": age, "hispanic": hispanic}
    drawn |= {"cenrace": race, "race": race}
    foreign = uniform(len(cells)) < np.where(hispanic == 1, 0.2, 0.02) * (0.2 + 0.8 * adult)
    drawn["citizen"] = foreign.astype(np.int64)
    codes = {attribute.name: drawn[attribute.name] for attribute in schema.attributes}
    return rows, schema.cells_of(codes), np.ones(len(cells), np.int64)


@lru_cache
def _relationship_and_age(kind: int, adult: int) -> FloatArray:
    """Return cumulative probabilities of (relationship or facility, age) by type and adulthood."""
    ages = np.arange(_N_AGES)
    alive = np.where(ages < 18, 1.0, np.exp(-(((ages - 18) / 52.0) ** 3)))
    alive[(ages >= 18) != bool(adult)] = 0
    weights = np.zeros((_N_RELATIONSHIPS + _N_FACILITIES, _N_AGES))
    if kind == 0:
        weights[:_N_RELATIONSHIPS] = np.outer(_ADULTS if adult else _MINORS, alive)
    else:
        facilities = np.array(_OF_TYPE[kind])
        weights[facilities] = np.outer(_COMMONNESS[facilities - _N_RELATIONSHIPS], alive)
    if kind == 3:  # nursing
        weights *= np.exp(np.minimum(ages - 75, 15) / 8.0)
    if kind == 5:  # college
        weights *= np.exp(-np.abs(ages - 20) / 2.0)
    for level, (youngest, oldest) in AGES.items():
        weights[level, (ages < youngest) | (ages > oldest)] = 0
    limits = weights.ravel().cumsum()
    return np.asarray(limits / limits[-1])
