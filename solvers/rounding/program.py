"""Rounding as a mixed-integer program, for sums that are no flow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import block_array, block_diag, csr_array, eye_array, vstack

from das.arrays import FloatArray, IntArray
from invariants.leaves import Leaves
from solvers.constraints import every_child, leaf_rows, limits, sum_of_children
from solvers.rounding.mixed_integer import MixedIntegerProgram
from solvers.rounding.sums import Penalty, Sums


class _Rows(NamedTuple):
    """Rows lower <= A_u u + A_z z + A_d d <= upper; None for a block of zeros."""

    of_cells: csr_array | None
    of_leaves: csr_array | None
    of_penalties: csr_array | None
    lower: FloatArray
    upper: FloatArray


def write_program(
    sums: Sums, low: IntArray, high: IntArray, penalty: Penalty
) -> MixedIntegerProgram:
    """Write the search for integer sums within bounds at the least penalty as a program.

    Variables: u = h - low of the cells, child by child; z, persons of each type in each pattern of
    leaves; d, the penalty of each sum whose bounds are wider than floor to ceiling, where alone the
    penalty is linear. Subtracting `low` keeps numbers small. Given whole counts, the leaves are a
    flow with whole bounds, so z need not be declared integer.

    Args:
      sums: The sums.
      low: int64[C, I], lower bounds of I sums of C children.
      high: int64[C, I], upper bounds of the sums.
      penalty: Cost of the sums.

    Returns:
      The program; its first C k variables are u.
    """
    C, S = len(low), sums.family.n_sets
    base, room = low[:, S:], (high - low)[:, S:]
    items = every_child(C, sums.family.items)
    near = (low >= sums.whole) & (high <= sums.next_whole)
    wide = np.flatnonzero((~near & (penalty.weights > 0)).ravel())
    leaves = sums.leaves or ()
    rows = [
        *_bounds(sums, base, low, high),
        *_leaves(sums, base, leaves),
        *_kinks(sums, base, penalty, items[wide], wide),
    ]
    slopes = np.where(near, penalty.middle * penalty.weights, 0.0).ravel()
    n_assigned = sum(below.least.size for below in leaves)
    sizes = (base.size, n_assigned, len(wide))
    free = np.full(len(wide), np.inf)
    return MixedIntegerProgram(
        np.concatenate([items.T @ slopes, np.zeros(n_assigned), np.tile(penalty.weights, C)[wide]]),
        np.repeat([True, False, False], sizes),
        np.concatenate(
            [np.zeros(base.size), *(below.least.ravel() for below in leaves), 0.0 * wide]
        ),
        np.concatenate([room.ravel(), *(limits(below.most).ravel() for below in leaves), free]),
        _stack(rows, sizes),
        np.concatenate([row.lower for row in rows]),
        np.concatenate([row.upper for row in rows]),
    )


def _stack(rows: list[_Rows], sizes: tuple[int, ...]) -> csr_array:
    """Stack the constraint rows of all groups into one matrix.

    Args:
      rows: Groups of rows; a block that is None becomes zeros.
      sizes: Numbers of variables u, z and d: the columns of the three blocks of each group.
    """
    blocks = [
        [
            csr_array((len(row.lower), size)) if block is None else block
            for block, size in zip(row[:3], sizes, strict=True)
        ]
        for row in rows
    ]
    return csr_array(block_array(blocks))


def _bounds(sums: Sums, base: IntArray, low: IntArray, high: IntArray) -> list[_Rows]:
    """Return the rows of sets, of the parent, and of general linear rows."""
    C, k = base.shape
    of_base = sums.of_counts(base)[:, : sums.family.n_sets]
    low, high = (side[:, : sums.family.n_sets] - of_base for side in (low, high))
    sets = every_child(C, sums.family.incidence)
    out = [_Rows(sets, None, None, low.ravel().astype(float), high.ravel().astype(float))]
    if sums.parent is not None:
        missing = (sums.parent - base.sum(0)).astype(float)
        out.append(_Rows(sum_of_children(C, k), None, None, missing, missing))
    if len(sums.rows.coefficients):
        R = sums.rows.coefficients
        of_base = base @ R.T
        least, most = (limits(side) - of_base for side in (sums.rows.least, sums.rows.most))
        rows = every_child(C, csr_array(R))
        out.append(_Rows(rows, None, None, least.ravel(), most.ravel()))
    return out


def _leaves(sums: Sums, base: IntArray, leaves: tuple[Leaves, ...]) -> list[_Rows]:
    """Return rows for leaves: types add up over patterns, and patterns are within bounds."""
    if not leaves:
        return []
    empty = csr_array((1, base.shape[1]))  # row of types without cells, whose item is -1
    items = csr_array(vstack([sums.family.items, empty], format="csr"))
    types = csr_array(items[sums.types])
    of_base = (types @ base.T).T.ravel()
    by_type, by_pattern = map(block_diag, zip(*map(leaf_rows, leaves), strict=True))
    low = limits(np.concatenate([below.low for below in leaves]))
    high = limits(np.concatenate([below.high for below in leaves]))
    return [
        _Rows(-every_child(len(base), types), by_type, None, of_base, of_base),
        _Rows(None, by_pattern, None, low, high),
    ]


def _kinks(
    sums: Sums, base: IntArray, penalty: Penalty, items: csr_array, wide: IntArray
) -> list[_Rows]:
    """Return rows that keep each penalty above the three pieces of a convex function.

    With v the sum minus its floor, f and g the cost at floor and ceiling, all divided by weight,
    and s = 1 if floor and ceiling differ, else 0:
    d >= f - v,  d >= f + middle v (where s = 1),  d >= g + v - s.
    """
    if not len(wide):
        return []
    of_base = (sums.of_counts(base) - sums.whole).ravel()[wide]
    step = (sums.next_whole - sums.whole).ravel()[wide]
    middle = np.where(step > 0, penalty.middle.ravel()[wide], 0.0)
    f = penalty.floor_cost.ravel()[wide]
    g = f + middle
    d, none = csr_array(eye_array(len(wide))), np.full(len(wide), np.inf)
    slope = csr_array((middle, (np.arange(len(wide)), np.arange(len(wide)))))
    return [
        _Rows(items, None, d, f - of_base, none),
        _Rows(-slope @ items, None, d, np.where(step > 0, f + middle * of_base, -np.inf), none),
        _Rows(-items, None, d, g + of_base - step, none),
    ]
