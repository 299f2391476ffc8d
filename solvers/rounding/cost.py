"""Cost of rounding: the one definition, for node problems and for packed families.

Processors add floats in different orders, so the last digits of a real value differ by 1e-14 to
1e-9 of a person. Choices between integers must not depend on these digits, since many choices cost
exactly the same. So costs are computed on a grid: values 1e-9 apart fall on different steps once in
100,000 times, values 1e-13 apart once in a billion. The grid is shifted, so that halves, thirds and
1/32 are not on the edge of a step, however they are rounded.

The cost of a sum is convex. These functions return it at the floor and at the ceiling of a real
value. A sum beyond these costs one person more per person.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from das.arrays import FloatArray, IntArray

STEPS = 10**4  # steps of the grid per person
EDGE = 0.5 + 1 / np.pi / 2  # shift of the grid, in steps; see above
SNAP = 1e-6  # values closer than this to an integer are that integer; default, not measured

Steps = TypeVar("Steps", int, IntArray)


def on_grid(values: FloatArray) -> IntArray:
    """Return real values of persons as whole steps of the grid."""
    return np.floor(values * STEPS + EDGE).astype(np.int64)


def cost_at_floor(above: Steps) -> Steps:
    """Return the cost of a sum at its floor, in steps; `above` is the real value minus floor."""
    return above


def cost_of_one_more(above: Steps) -> Steps:
    """Return the cost at the ceiling minus that at the floor, in steps."""
    return STEPS - 2 * above
