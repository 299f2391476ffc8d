"""Implied constraints: bounds on the counts of a geounit by type, from the leaves below it.

For every set S of types, with least(S) the sum of `least` over S, and sums over the rows of leaves,

    LB(S) = sum_R max(least_R(S), low_R - most_R(not S))
    UB(S) = sum_R min(most_R(S), high_R - least_R(not S)).

Counts s can be assigned to the leaves iff LB(S) <= s(S) <= UB(S) for every S, and then in integers.

Proof. Assigning is a flow: s_i persons enter at type i, go on to row R within
[least_Ri, most_Ri] and leave it within [low_R, high_R]. By Hoffman's theorem a flow within these
bounds exists iff for every set of nodes the least flow that enters does not exceed the most that
leaves. A set of nodes is a set S of types and a set of rows. Given S, each row is on the side where
the condition is tightest, which is the max or min above. Integer bounds give integer flows.

With an exact total T and f_i facilities of at least one person without upper bound, a leaf of types
P has max(...) = T if S contains P, else f(S), and min(...) = 0 if S and P are disjoint, else
T - f(not S): the bounds (14) and (15) of Leclerc.

The sets are exponentially many, but the most violated one is a minimum cut. Writing b_i = 1 for
i in S and b_R = 1 for rows on the side of their total,

    s(S) - LB(S) = min over b_R of  sum_i (s_i - least_i) b_i - sum_R (low_R - least_R(all)) b_R
                                    + sum_Ri (most_Ri - least_Ri) b_R (1 - b_i),
    UB(S) - s(S) = the same with most_i - s_i for types and most_R(all) - high_R for rows.

References:
  Hoffman, Some Recent Applications of the Theory of Linear Inequalities to Extremal Combinatorial
  Analysis, Proc. Symposia in Applied Mathematics 10, 1960.
  Leclerc, Generating Microdata with Complex Invariants under Differential Privacy, JSM 2019,
  (14)-(18).
  Picard, Maximal Closure of a Graph and Applications to Combinatorial Problems, Management Science
  22, 1976.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SolverError
from invariants.leaves import Leaves, tighten

_SCALE = 2**20  # fractional counts become integers, in units of 1 / _SCALE


class Side(StrEnum):
    """Lower or upper bound."""

    LEAST = "at least"
    MOST = "at most"


@dataclass(frozen=True, eq=False)
class Cut:
    """Bound on the persons of a set of types.

    Attributes:
      chosen: bool[t], the set S.
      side: Whether the bound is a lower or an upper one.
      bound: The bound: LB(S) or UB(S), by `side`.
      violation: Distance of the counts from the bound, in persons; 0 if no bound is violated.
    """

    chosen: BoolArray
    side: Side
    bound: int
    violation: float


@dataclass(frozen=True, eq=False)
class Selection:
    """Problem: minimise cost'b - gain'b + sum_Ri link_Ri b_R (1 - b_i) over binary b_i, b_R.

    Attributes:
      cost: float64[t], cost of choosing each type.
      gain: float64[R], nonnegative: gain of choosing each row.
      link: float64[R, t], nonnegative: cost of choosing a row without a type.
    """

    cost: FloatArray
    gain: FloatArray
    link: FloatArray


Separation = Callable[[Selection], BoolArray]


def lower_bounds(leaves: Leaves, chosen: BoolArray) -> IntArray:
    """Return int64[m]: LB of m sets, given as bool[m, t]."""
    inside, outside = leaves.least @ chosen.T, leaves.most @ ~chosen.T
    return np.asarray(np.maximum(inside, leaves.low[:, None] - outside).sum(0), np.int64)


def upper_bounds(leaves: Leaves, chosen: BoolArray) -> IntArray:
    """Return int64[m]: UB of m sets, given as bool[m, t]."""
    inside, outside = leaves.most @ chosen.T, leaves.least @ ~chosen.T
    return np.asarray(np.minimum(inside, leaves.high[:, None] - outside).sum(0), np.int64)


def most_violated(
    leaves: Leaves, counts: npt.NDArray[np.number], separate: Separation | None = None
) -> Cut:
    """Find the set of types whose bound the counts violate most.

    Args:
      leaves: The leaves below a geounit; every row fits some counts.
      counts: number[t], persons by type.
      separate: Function that solves a `Selection`; default `cut_by_flow`.

    Returns:
      The cut; its violation is 0 iff the counts can be assigned to the leaves.
    """
    tight = tighten(leaves)
    values = np.asarray(counts, np.float64)
    link = (tight.most - tight.least).astype(np.float64)
    lower = Selection(values - tight.least.sum(0), (tight.low - tight.least.sum(1)) * 1.0, link)
    upper = Selection(tight.most.sum(0) - values, (tight.most.sum(1) - tight.high) * 1.0, link)
    cuts = []
    for side, selection in ((Side.LEAST, lower), (Side.MOST, upper)):
        chosen = (separate or cut_by_flow)(selection)
        if side is Side.LEAST:
            bound = int(lower_bounds(tight, chosen[None])[0])
            violation = bound - values[chosen].sum()
        else:
            bound = int(upper_bounds(tight, chosen[None])[0])
            violation = values[chosen].sum() - bound
        cuts.append(Cut(chosen, side, bound, max(0.0, float(violation))))
    return max(cuts, key=lambda cut: cut.violation)


def can_be_assigned(leaves: Leaves, counts: IntArray) -> bool:
    """Return whether integer counts by type can be assigned to the leaves."""
    if leaves.n_rows == 1:
        inside = (leaves.least[0] <= counts) & (counts <= leaves.most[0])
        return bool(inside.all() and leaves.low[0] <= counts.sum() <= leaves.high[0])
    return most_violated(leaves, counts).violation == 0


def cut_by_flow(selection: Selection) -> BoolArray:
    """Solve a `Selection` as a minimum cut, by push-relabel.

    The time is polynomial in the numbers of types and rows.

    Args:
      selection: The problem; its numbers are rounded to multiples of 2^-20.

    Returns:
      bool[t]: b of the smallest minimiser.
    """
    from ortools.graph.python import max_flow

    cost = np.rint(selection.cost * _SCALE).astype(np.int64)
    gain = np.rint(selection.gain * _SCALE).astype(np.int64)
    most = int(gain.sum() + np.abs(cost).sum())  # no arc can carry more
    link = np.minimum(np.rint(selection.link * _SCALE), most).astype(np.int64)
    n_rows, t = link.shape
    source, sink = n_rows + t, n_rows + t + 1
    types = n_rows + np.arange(t)
    rows, columns = np.nonzero(link)
    earning, paying = np.flatnonzero(cost < 0), np.flatnonzero(cost > 0)
    # Tails, heads and capacities. The last arc adds source and sink where no other arc does.
    arcs = [
        (np.full(n_rows, source), np.arange(n_rows), gain),
        (rows, types[columns], link[rows, columns]),
        (np.full(len(earning), source), types[earning], -cost[earning]),
        (types[paying], np.full(len(paying), sink), cost[paying]),
        (np.array([source]), np.array([sink]), np.zeros(1, np.int64)),
    ]
    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(*map(np.concatenate, zip(*arcs, strict=True)))
    status = flow.solve(source, sink)
    if status != flow.OPTIMAL:
        raise SolverError("implied constraints", "maximum flow failed", got=status)
    side = np.asarray(flow.get_source_side_min_cut(), np.int64)
    return np.isin(types, side)
