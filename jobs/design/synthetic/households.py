"""Synthetic households: members of each household, and their cell in the 2020 schema.

Members are drawn household by household: partners near the householder's age, children born at a
plausible age, parents a generation older. The cell follows from the members, so that age, children,
elderly and size agree, and no household is in an impossible cell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.schema import Schema
from jobs.design.synthetic.persons import Entries

Uniform = Callable[[int], FloatArray]

COUPLES = (
    "married_opposite_sex",
    "married_same_sex",
    "cohabiting_opposite_sex",
    "cohabiting_same_sex",
    "no_partner",
)
AGES_OF_MINORS = ("none", "under_6", "6_to_17", "both")
LARGEST_SIZE = 7  # stands for 7 and more

# Householders by age: first ages of the levels of hhage, and their weights.
_FIRST_AGES = np.array([15, 25, 35, 45, 55, 60, 65, 75, 85, 101])
_AGES = np.array([0.035, 0.155, 0.17, 0.175, 0.095, 0.095, 0.16, 0.085, 0.03])
# Shares by level of hhage: partnered; of these married; owners; of these with a mortgage.
_PARTNERED = np.array([0.25, 0.5, 0.62, 0.62, 0.61, 0.6, 0.58, 0.42, 0.22])
_MARRIED = np.array([0.35, 0.68, 0.84, 0.86, 0.88, 0.9, 0.93, 0.95, 0.96])
_OWNERS = np.array([0.14, 0.4, 0.58, 0.68, 0.72, 0.74, 0.78, 0.76, 0.66])
_MORTGAGES = np.array([0.86, 0.9, 0.88, 0.78, 0.66, 0.56, 0.4, 0.24, 0.14])
_SAME_SEX = 0.016  # share of couples
_CHILDREN = np.array([0.24, 0.2, 0.3, 0.15, 0.07, 0.04]).cumsum()  # ever born, 0 to 5
_NO_PAY = 0.03  # share of renters
# Factors on the probability of owning, by race and for Hispanics.
_OWNER_TILT = np.array([1.12, 0.7, 0.85, 0.98, 0.72, 0.8, 0.9])
_HISPANIC_TILT = 0.8


def add_household_details(
    uniform: Uniform, schema: Schema, races: IntArray, entries: Entries
) -> Entries:
    """Draw the attributes that redistricting cells of householders lack, for every household.

    Args:
      uniform: Function that draws n uniform numbers in [0, 1).
      schema: `dhc_households`.
      races: int64[63], level of race of each combination of races.
      entries: Row, cell of pl94, and number of householders.

    Returns:
      Row, cell of the schema, and count 1 for every household, in any order.
    """
    rows, cells, counts = entries
    rows, cells = np.repeat(rows, counts), np.repeat(cells, counts)
    hispanic, race = cells // len(races) % 2, races[cells % len(races)]
    levels = schema.attribute("hhtype").levels
    age, is_male, couple, oldest, types = _draw_people(uniform, len(rows), levels)
    level = _level_of(age)
    likely = _OWNERS[level] * _OWNER_TILT[race] * np.where(hispanic == 1, _HISPANIC_TILT, 1.0)
    owns = uniform(len(rows)) < likely + 0.1 * (couple < 2)  # the married
    pays = uniform(len(rows)) < _MORTGAGES[level]
    codes = {
        "sex": (~is_male).astype(np.int64),
        "hhage": level,
        "hispanic": hispanic,
        "race": race,
        "elderly": np.searchsorted([60, 65, 75], oldest, side="right"),
        "tenure": np.where(owns, np.where(pays, 0, 1), 2),
        "hhtype": types,
    }
    return rows, schema.cells_of(codes), np.ones(len(rows), np.int64)


def tenure_of(uniform: Uniform, schema: Schema, entries: Entries, n_rows: int) -> IntArray:
    """Return int64[R, 4], households of each block by the tenure level of dhc_units.

    Args:
      uniform: Draws this many uniform numbers, to choose renters who pay no rent.
      schema: Schema of the households.
      entries: Block, cell and number of households.
      n_rows: R, the number of blocks.
    """
    rows, cells, counts = entries
    rows, cells = np.repeat(rows, counts), np.repeat(cells, counts)
    tenure = schema.codes_of(cells)["tenure"]
    tenure = tenure + ((tenure == 2) & (uniform(len(rows)) < _NO_PAY))
    return np.bincount(4 * rows + tenure, minlength=4 * n_rows).reshape(n_rows, 4)


def _level_of(age: IntArray) -> IntArray:
    return np.asarray(np.searchsorted(_FIRST_AGES, age, side="right") - 1, np.int64)


def _draw_people(
    uniform: Uniform, number: int, levels: tuple[str, ...]
) -> tuple[IntArray, BoolArray, IntArray, IntArray, IntArray]:
    """Draw age and sex of householders, couple, age of the oldest member, and household type.

    Couples are indices into `COUPLES`, types are indices into the levels of `hhtype`.
    """

    def chance(probability: FloatArray | float) -> BoolArray:
        return np.asarray(uniform(number) < probability, np.bool_)

    def between(low: IntArray | int, high: IntArray | int) -> IntArray:
        """Draw ages from low to high - 1, most often in the middle."""
        middle = (uniform(number) + uniform(number)) / 2
        return np.asarray(np.floor(low + middle * (np.asarray(high) - low)), np.int64)

    age = _householder_ages(uniform, number)
    level, is_male = _level_of(age), chance(0.5)
    has_partner = chance(np.where(age < 18, 0.05, _PARTNERED[level]))
    cohabits, same_sex = chance(1 - _MARRIED[level]), chance(_SAME_SEX)
    couple = np.where(has_partner, 2 * cohabits + same_sex, len(COUPLES) - 1)
    partner = np.maximum(16, between(age - 14, age + 15))
    oldest = np.maximum(age, np.where(has_partner, partner, 0))

    born = np.searchsorted(_CHILDREN, uniform(number), side="right")
    lives_here = np.where(has_partner | ~is_male, 0.95, 0.3)
    young, grown = np.zeros((number, 2), np.int64), np.zeros(number, np.int64)
    for child in range(len(_CHILDREN) - 1):
        # Householders were 16 to 44 (women) or 51 (men) at birth; no structural zero forbids this.
        of_age = age - between(16, np.where(is_male, 52, 45))
        stays = chance(np.where(of_age < 18, lives_here, np.where(of_age < 25, 0.5, 0.1)))
        there = (child < born) & (of_age >= 0) & stays
        young[:, 0] += there & (of_age < 6)
        young[:, 1] += there & (of_age >= 6) & (of_age < 18)
        grown += there & (of_age >= 18)

    minors = np.zeros((number, 2), np.int64)
    has_grandchild = (age >= 38) & chance(np.where(grown > 0, 0.18, 0.02))
    kind = np.minimum(np.searchsorted([0.42, 0.88], uniform(number)), np.where(age < 55, 1, 2))
    for column in (0, 1):
        minors[:, column] += has_grandchild & (kind == column)
        minors[:, column] += has_grandchild & chance(0.25)
    grandchildren = (has_grandchild & (kind == 2)).astype(np.int64)

    has_parent = chance(0.035) & (age < 80)
    oldest = np.maximum(oldest, np.where(has_parent, between(age + 17, age + 36), 0))
    has_relative = np.zeros(number, np.bool_)
    adults = grown + grandchildren + has_parent
    for is_related, frequency in ((True, 0.06), (False, 0.03)):
        alone = np.where(~has_partner & ~is_related, 3 - 2 * (age > 40), 1)
        some = chance(frequency * alone)
        grown_up = some * (1 + chance(0.2))
        oldest = np.maximum(oldest, np.where(some, between(18, 75), 0))
        adults = adults + grown_up
        nearby = [chance(0.008), chance(0.01)]
        minors += np.column_stack(nearby)
        if is_related:
            has_relative |= some | nearby[0] | nearby[1]
    has_child = (young.sum(1) + grown) > 0
    has_generation = has_grandchild | has_parent
    has_relative |= has_child | has_generation | (has_partner & ~cohabits)
    has_minor_head = (age < 18) | (has_partner & (partner < 18))
    minors += young
    size = 1 + has_partner + minors.sum(1) + adults
    types = _numbers(levels)[
        couple,
        _ages(young),
        _ages(minors),
        has_relative.astype(np.int64),
        (has_minor_head & (minors.sum(1) == 0)).astype(np.int64),
        (has_child & has_generation).astype(np.int64),
        np.minimum(size, LARGEST_SIZE),
    ]
    if (types < 0).any():
        raise AssertionError("a household is of no type")
    return age, is_male, couple, oldest, types


def _householder_ages(uniform: Uniform, size: int) -> IntArray:
    """Draw int64[H], the age of each householder, 15 to 100; few in the first level are minors."""
    level = np.searchsorted(_AGES.cumsum() / _AGES.sum(), uniform(size), side="right")
    within = uniform(size)
    within = np.where(level == 0, within**0.25, within)
    first, next_first = _FIRST_AGES[level], _FIRST_AGES[level + 1]
    return np.asarray(np.floor(first + within * (next_first - first)), np.int64)


def _ages(minors: IntArray) -> IntArray:
    """Return int64[H] by household: 0 no minors, 1 only under 6, 2 only 6 to 17, 3 both.

    Args:
      minors: int64[H, 2], number of members under 6, and from 6 to 17.
    """
    return np.asarray((minors[:, 0] > 0) + 2 * (minors[:, 1] > 0), np.int64)


@cache
def _numbers(levels: tuple[str, ...]) -> IntArray:
    """Return the index of a household type by its facts; -1 for impossible combinations."""
    out = np.full((len(COUPLES), 4, 4, 2, 2, 2, LARGEST_SIZE + 1), -1)
    index_of = {level: index for index, level in enumerate(levels)}
    for facts in product(*(range(size) for size in out.shape)):
        out[facts] = index_of.get(household_type(facts), -1)
    return out


def household_type(facts: tuple[int, ...]) -> str:
    """Return the name of a household type, without facts that follow from earlier ones.

    Args:
      facts: In this order:
        couple: Index into `COUPLES`.
        own: Ages of the householder's own children under 18, an index into `AGES_OF_MINORS`.
        minors: Ages of all persons under 18 except householder and partner.
        relatives: Whether a member is related to the householder, spouses included.
        minor_head: Whether householder or partner are under 18; 0 if other members are.
        generations: Whether a child of the householder and a grandchild or a parent are members.
        size: Number of persons, 1 to 7; 7 stands for more.
    """
    couple, own, minors, relatives, minor_head, generations, size = facts
    follows = couple < 2 or own or generations or size == 1
    named = {
        COUPLES[couple]: True,
        "relatives" if relatives else "no_relatives": not follows or relatives != (size > 1),
        f"own_{AGES_OF_MINORS[own]}": own,
        f"minors_{AGES_OF_MINORS[minors]}": minors != own,
        "minor_head": minor_head,
        "three_generations": generations,
        f"size_{size}" + "_or_more" * (size == LARGEST_SIZE): True,
    }
    return "-".join(fact for fact, is_stated in named.items() if is_stated)
