"""A node as the kernels take it: arrays without padding, blocks of cells end to end."""

from __future__ import annotations

from typing import NamedTuple

from das.arrays import BoolArray, FloatArray, IntArray


class Problem(NamedTuple):
    """The fields of `blocks.Quadratic` that steps need, blocks of cells end to end.

    Attributes:
      scale: float64[C].
      linear: float64[C, k].
      parent: float64[k].
      has_parent: Whether the children add up to it.
      starts: int64[B + 1], where the cells of each block begin.
      blocks: float64[B, P, s, s].
      outside: float64[P, r, k].
      diagonal: float64[P, k].
      free: bool[C, k].
      groups: int64[E, k], of E equalities.
      targets: float64[E, C, m], in as many columns as the largest needs.
      sizes: int64[E].
      is_inside: bool[E].
      coefficients: float64[n, k], rows.
      least: float64[C, n].
      most: float64[C, n].
      penalty: Curvature that an equality is given.
    """

    scale: FloatArray
    linear: FloatArray
    parent: FloatArray
    has_parent: bool
    starts: IntArray
    blocks: FloatArray
    outside: FloatArray
    diagonal: FloatArray
    free: BoolArray
    groups: IntArray
    targets: FloatArray
    sizes: IntArray
    is_inside: BoolArray
    coefficients: FloatArray
    least: FloatArray
    most: FloatArray
    penalty: float


class Point(NamedTuple):
    """As `certificate.Point`; sums float64[E, C, m]."""

    x: FloatArray
    coupling: FloatArray
    sums: FloatArray
    rows: FloatArray


class Guess(NamedTuple):
    """Which cells are positive and which rows are at a limit.

    Attributes:
      support: bool[C, k].
      sides: int64[C, n]: -1 at the lower limit, 1 at the upper, 0 between.
    """

    support: BoolArray
    sides: IntArray


class Spots(NamedTuple):
    """Where the support of block b and child c lies.

    Attributes:
      local: int64, positions within the blocks, end to end.
      first: int64[B, C], where those of each begin.
      held: int64[B, C], how many there are.
      place: int64[B, C], where their matrix begins.
    """

    local: IntArray
    first: IntArray
    held: IntArray
    place: IntArray


class Factors(NamedTuple):
    """Factors of the conditions of a guess; see `elimination`.

    Attributes:
      spots: Of the support.
      K: float64, inverses of the blocks on it, end to end.
      rows: float64[support, r], the outside rows.
      Z: float64[support, r], their product with K.
      L: float64[B, s, s], factors of the coupling.
      S: float64[C r, C r], the factor of the system of the outside rows.
    """

    spots: Spots
    K: FloatArray
    rows: FloatArray
    Z: FloatArray
    L: FloatArray
    S: FloatArray
