"""Tables P1 to P5 and H1 of the 2020 redistricting data: columns, subtotals and cells.

P1 and P3 (voting age) have 71 columns: the total, the population of one race, six races alone,
two or more races, and then, for two to six races, a subtotal and its combinations. P2 and P4
(voting age) put Hispanic and not Hispanic after the total and repeat the rest for the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from math import comb

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray

# Raises InputError for (index of the block, "variable: fault").
Wrong = Callable[[int, str], None]

SEGMENTS: Mapping[str, tuple[int, ...]] = {
    "persons": (1, 2),
    "group_quarters": (1, 3),
    "housing_units": (2,),
}


def _race_columns() -> tuple[IntArray, list[tuple[int, list[int]]]]:
    """Return the columns of the 63 race combinations, and every subtotal with its parts."""
    sizes = [comb(6, k) for k in range(2, 7)]
    heads = list(accumulate(sizes, lambda head, size: head + size + 1, initial=9))[:-1]
    combos = [list(range(h + 1, h + 1 + s)) for h, s in zip(heads, sizes, strict=True)]
    alone = list(range(2, 8))
    subtotals = [(0, [1, 8]), (1, alone), (8, heads), *zip(heads, combos, strict=True)]
    return np.array(alone + [column for group in combos for column in group]), subtotals


# Columns count from 0 within P1; in P2 everything after the total lies two columns later.
RACES, _SUBTOTALS = _race_columns()
SUBTOTALS: Mapping[str, list[tuple[int, list[int]]]] = {
    "P001": _SUBTOTALS,
    "P002": [(0, [1, 2]), *((t + 2, [p + 2 for p in parts]) for t, parts in _SUBTOTALS)],
    "P005": [(0, [1, 6]), (1, [2, 3, 4, 5]), (6, [7, 8, 9])],
    "H001": [(0, [1, 2])],
}
_SAME = {"P003": "P001", "P004": "P002"}
_LARGEST_COUNT = 10**15  # in a block; sums of a table then stay exact in int64
_TYPES = [2, 3, 4, 5, 7, 8, 9]  # columns of P5 in the order of the levels of hhgq


def variable(table: str, column: int) -> str:
    """Return the official name of a column of a table.

    Args:
      table: Name of the table, such as `P001`.
      column: Position of the column in the table, from 0; official names count from 1.

    >>> variable("P001", 0)
    'P0010001'
    """
    return f"{table}{column + 1:04d}"


def cells_of(product: str, tables: Mapping[str, IntArray], wrong: Wrong) -> IntArray:
    """Derive the cells of a product, and check every subtotal.

    Args:
      product: Product name, as in `Pl94Data`.
      tables: Table name -> int64[G, columns], for all tables of the segments of the product.
      wrong: Raises InputError for a block.

    Returns:
      int64[G, n], nonnegative.
    """
    for name, counts in tables.items():
        _check_table(name, counts, wrong)
    if product == "housing_units":
        return tables["H001"][:, 1:]
    if product == "group_quarters":
        household = tables["P001"][:, 0] - tables["P005"][:, 0]
        _refuse(household < 0, "P0050001: exceeds P0010001", wrong)
        return np.column_stack([household, tables["P005"][:, _TYPES]])
    return _person_cells(tables, wrong)


def _person_cells(tables: Mapping[str, IntArray], wrong: Wrong) -> IntArray:
    _refuse(tables["P002"][:, 0] != tables["P001"][:, 0], "P0020001: differs from P0010001", wrong)
    _refuse(tables["P004"][:, 0] != tables["P003"][:, 0], "P0040001: differs from P0030001", wrong)
    all_ages, not_hispanic = tables["P001"][:, RACES], tables["P002"][:, RACES + 2]
    adults, adults_not_hispanic = tables["P003"][:, RACES], tables["P004"][:, RACES + 2]
    adults_hispanic = adults - adults_not_hispanic
    parts = {
        "P2 and P4": not_hispanic - adults_not_hispanic,
        "P1 to P4": all_ages - not_hispanic - adults_hispanic,
        "P4": adults_not_hispanic,
        "P3 and P4": adults_hispanic,
    }
    for names, counts in parts.items():
        rows, races = np.nonzero(counts < 0)
        if len(rows):
            column = RACES[races[0]]
            either = f"{variable('P003', column)} or {variable('P004', column + 2)}"
            wrong(int(rows[0]), f"{either}: {names} give a negative count")
    return np.concatenate([*parts.values()], axis=1)


def _check_table(name: str, counts: IntArray, wrong: Wrong) -> None:
    rows, columns = np.nonzero(counts < 0)
    if len(rows):
        wrong(int(rows[0]), f"{variable(name, int(columns[0]))}: count is negative")
    rows, columns = np.nonzero(counts > _LARGEST_COUNT)
    if len(rows):
        wrong(int(rows[0]), f"{variable(name, int(columns[0]))}: count is too large")
    for total, parts in SUBTOTALS[_SAME.get(name, name)]:
        differs = np.flatnonzero(counts[:, parts].sum(1) != counts[:, total])
        if len(differs):
            names = " + ".join(variable(name, part) for part in parts)
            wrong(int(differs[0]), f"{variable(name, total)}: is not {names}")


def _refuse(mask: npt.NDArray[np.bool_], what: str, wrong: Wrong) -> None:
    rows = np.flatnonzero(mask)
    if len(rows):
        wrong(int(rows[0]), what)
