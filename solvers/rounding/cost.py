"""What rounding costs: the one definition for node problems and for packed families.

Processors add floats in different orders, so the same real value differs in its last digits from
one to another, by 1e-14 to 1e-9 of a person. What chooses between integers must not see those
digits: many choices cost exactly the same, and any digit would decide. It sees a grid, on which
values 1e-9 apart differ once in 100,000 times, 1e-13 apart once in a billion. The grid is shifted,
as halves, thirds and 1/32 lie on no edge of it then, however they are rounded.

A penalty is convex in each sum. Here stand its values at the floor and at the ceiling of a real
value; a sum beyond these costs one person's worth per person.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from das.arrays import FloatArray, IntArray

STEPS = 10**4  # to a person, of the grid
EDGE = 0.5 + 1 / np.pi / 2  # of a step; see above
SNAP = 1e-6  # closer than this to an integer counts as that integer

Steps = TypeVar("Steps", int, IntArray)


def on_grid(values: FloatArray) -> IntArray:
    """Return real values of persons as whole steps of the grid."""
    return np.floor(values * STEPS + EDGE).astype(np.int64)


def cost_at_floor(above: Steps) -> Steps:
    """Return what a sum at its floor costs, in steps, from how many its real value lies above."""
    return above


def cost_of_one_more(above: Steps) -> Steps:
    """Return what the ceiling costs more than the floor, in steps, from the same."""
    return STEPS - 2 * above
