"""Arrays of a node for compiled kernels: no padding, blocks of cells end to end."""

from __future__ import annotations

from typing import NamedTuple

from das.arrays import BoolArray, FloatArray, IntArray


class Problem(NamedTuple):
    """Fields of `blocks.Quadratic` that steps need, with blocks of cells end to end.

    Attributes:
      scale: float64[C], d_c over the largest d_c.
      linear: float64[C, k], b_c / d_c.
      parent: float64[k], counts of the parent.
      has_parent: Whether the children add up to the parent.
      starts: int64[B + 1], start of the cells of each block.
      blocks: float64[B, P, s, s], H_cb, the part of H_c within each block.
      outside: float64[P, r, k], F_c, the rows of queries across blocks.
      diagonal: float64[P, k], diagonal of H_c, 1 where it is 0.
      free: bool[C, k], cells not forced to zero.
      groups: int64[E, k], the sum of each equality in which each cell counts.
      targets: float64[E, C, m], required sums, padded to the m of the largest equality.
      sizes: int64[E], number of sums of each equality.
      is_inside: bool[E], whether each equality joins only cells of one block.
      coefficients: float64[n, k], the linear rows.
      least: float64[C, n], lower bounds of the rows, -inf for none.
      most: float64[C, n], upper bounds of the rows, inf for none.
      penalty: Curvature of an equality in factorised matrices.
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
    """Point as in `certificate.Point`; sums are float64[E, C, m]."""

    x: FloatArray
    coupling: FloatArray
    sums: FloatArray
    rows: FloatArray


class Guess(NamedTuple):
    """Guess of the positive cells and of the active rows.

    Attributes:
      support: bool[C, k], cells that are guessed to be positive.
      sides: int64[C, n]: -1 at the lower bound, 1 at the upper, 0 between.
    """

    support: BoolArray
    sides: IntArray


class Spots(NamedTuple):
    """Locations of the support in block b of child c.

    Attributes:
      local: int64, positions within the blocks, end to end.
      first: int64[B, C], start of the positions of each block and child.
      held: int64[B, C], number of positions.
      place: int64[B, C], start of their matrix.
    """

    local: IntArray
    first: IntArray
    held: IntArray
    place: IntArray


class Factors(NamedTuple):
    """Factors of the linear system of a guess; see `elimination`.

    Attributes:
      spots: Locations of the support.
      K: float64, inverses of the blocks on the support, end to end.
      rows: float64[support, r], the outside rows.
      Z: float64[support, r], outside rows times K.
      L: float64[B, s, s], Cholesky factors of the coupling.
      S: float64[C r, C r], Cholesky factor of the system of outside rows.
    """

    spots: Spots
    K: FloatArray
    rows: FloatArray
    Z: FloatArray
    L: FloatArray
    S: FloatArray
