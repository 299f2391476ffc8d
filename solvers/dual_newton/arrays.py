"""Arrays of dual ascent: the node, its elimination order and the iterate."""

from __future__ import annotations

from typing import NamedTuple

from das.arrays import FloatArray, IntArray


class Node(NamedTuple):
    """Node: C children, k cells, M answers of all layers side by side, r rows.

    Attributes:
      parent: float64[k], the counts of the parent.
      has_parent: Whether the children add up to the parent.
      unit: float64[C], precision of the detailed answers of each child.
      inverse: float64[C], 1 / unit.
      answers: float64[C, M], answers of all layers.
      variance: float64[layers, C]; 0 if given, inf if not measured.
      ends: int64[layers + 1], start of the groups of each layer among M.
      on: int64[layers], `Layer.on`.
      onto: int64, `Layer.index` of all layers end to end; layer q starts at starts[q].
      starts: int64[layers], start of each layer in `onto`.
      rows: float64[r, k], coefficients of the linear rows.
      least: float64[C, r], lower bounds of the rows, -inf for none.
      most: float64[C, r], upper bounds of the rows, inf for none.
      slack: float64[C, r], first variance of the slacks of the rows.
    """

    parent: FloatArray
    has_parent: bool
    unit: FloatArray
    inverse: FloatArray
    answers: FloatArray
    variance: FloatArray
    ends: IntArray
    on: IntArray
    onto: IntArray
    starts: IntArray
    rows: FloatArray
    least: FloatArray
    most: FloatArray
    slack: FloatArray


class Roles(NamedTuple):
    """Order in which layers are eliminated.

    Attributes:
      chain: int64[P], layers each of which refines the next.
      lower: Number of layers of the chain that refine all other layers and rows; the last of these
        is the base. If 0, the cells are the base.
      crossing: int64[Q], the layers outside the chain.
      maps: int64[Q, base], group of each group of the base.
      coefficients: float64[r, base], coefficients of the rows.
      chain_index: int64[P, most], group of each group of the layer below, or of each cell.
    """

    chain: IntArray
    lower: int
    crossing: IntArray
    maps: IntArray
    coefficients: FloatArray
    chain_index: IntArray


class State(NamedTuple):
    """Iterate of dual ascent, updated in place.

    Attributes:
      field: float64[C, k], detailed answers plus the multipliers' terms.
      change: float64[C, k], change of the field by a full step.
      level: float64[k], multipliers of the coupling.
      u: float64[C, M + r], multipliers of the layers, then of the rows.
      du: float64[C, M + r], the step.
      x: float64[C, k], the counts.
      residual: float64[C, M + r], gradient of the dual function.
      center: float64[C, r], centers of the proximal terms of the slacks of rows.
      slack: float64[C, r], variance of the slacks around the centers.
    """

    field: FloatArray
    change: FloatArray
    level: FloatArray
    u: FloatArray
    du: FloatArray
    x: FloatArray
    residual: FloatArray
    center: FloatArray
    slack: FloatArray


class Limits(NamedTuple):
    """Stopping rules of dual ascent.

    Attributes:
      steps: Most steps.
      iterations: Most iterations of conjugate gradients in a step.
      trials: Most trials of the line search.
      stale: Most steps without a smaller residual.
      loose: Relative residual of conjugate gradients after a shortened step.
      tight: Relative residual after a full step.
    """

    steps: int
    iterations: int
    trials: int
    stale: int
    loose: float
    tight: float
