"""The arrays that a climb is handed and moves along."""

from __future__ import annotations

from typing import NamedTuple

from das.arrays import FloatArray, IntArray


class Node(NamedTuple):
    """What a node is: C children, k cells, M answers of all layers side by side, r rows.

    Attributes:
      parent: float64[k].
      has_parent: Whether the children add up to it.
      unit: float64[C].
      inverse: float64[C], 1 / unit.
      answers: float64[C, M].
      variance: float64[layers, C]; 0 if given, inf where not asked.
      ends: int64[layers + 1], where the groups of each layer begin among M.
      on: int64[layers], `Layer.on`.
      onto: int64, `Layer.index` of all layers end to end, from `starts` on.
      starts: int64[layers].
      rows: float64[r, k], coefficients of the linear rows.
      least: float64[C, r], their lower limits, -inf without.
      most: float64[C, r], their upper limits, inf without.
      slack: float64[C, r], variance of their slacks at first.
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
    """Which layers are eliminated how.

    Attributes:
      chain: int64[P], layers each of which refines the next.
      lower: How many of them refine all other layers and rows; the last of these is the base, or
        the cells.
      crossing: int64[Q], the layers outside the chain.
      maps: int64[Q, base], group of each group of the base.
      coefficients: float64[r, base], of the rows.
      chain_index: int64[P, most], group of each group of the layer below, or of each cell.
    """

    chain: IntArray
    lower: int
    crossing: IntArray
    maps: IntArray
    coefficients: FloatArray
    chain_index: IntArray


class State(NamedTuple):
    """Where a climb is; all arrays are moved along.

    Attributes:
      field: float64[C, k], detailed answers and what the multipliers add.
      change: float64[C, k], of the field by a whole step.
      level: float64[k], multipliers of the coupling.
      u: float64[C, M + r], multipliers of the layers, then of the rows.
      du: float64[C, M + r], the step.
      x: float64[C, k], the counts.
      residual: float64[C, M + r], gradient of the dual function.
      center: float64[C, r], where the slacks of rows were.
      slack: float64[C, r], their variance around it.
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
    """When a climb ends.

    Attributes:
      steps: Most steps.
      iterations: Most iterations of conjugate gradients in a step.
      trials: Of the line search.
      stale: Steps without a smaller residual.
      loose: Relative residual of conjugate gradients while the positive cells change much.
      tight: Relative residual from then on.
    """

    steps: int
    iterations: int
    trials: int
    stale: int
    loose: float
    tight: float
