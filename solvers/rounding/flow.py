"""Sums of nested sets as network flows.

Persons flow from the cells of the parent, through the sets of each child from small to large, to a
sink. Every sum is the flow on one arc, so bounds of sums are bounds of arcs, and the coupling
sum_c h_c = p is the supply of the cells of the parent. If leaves bound the counts, persons pass
from the sets of their types through the patterns of the leaves. Flows with integer data are
integers (Ahuja, Magnanti & Orlin, Network Flows, 1993, Theorem 9.10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray
from das.errors import SolverError
from invariants.leaves import Leaves
from solvers.rounding.sums import NO_SET, Penalty, Sums

_COST_UNIT = 10**6  # arc costs are in millionths of a person, real values in steps of the grid
_SINK = 0  # sink of all children; also the source of cells at the root
_FIRST_CELL = 1
_NO_ITEM = -1  # item of an arc of leaves, whose cost is 0


@dataclass(frozen=True, eq=False)
class _Network:
    """Arcs of items, child by child, then arcs of leaves.

    Attributes:
      items: int64[n], item whose sum flows through each arc; -1 for arcs of leaves.
      children: int64[n], child of each arc.
      tails: int64[n], node where each arc starts.
      heads: int64[n], node where each arc ends.
      low: int64[n], least flow of each arc.
      high: int64[n], largest flow of each arc.
      given: int64[nodes], supply of each node from the parent's counts.
    """

    items: IntArray
    children: IntArray
    tails: IntArray
    heads: IntArray
    low: IntArray
    high: IntArray
    given: IntArray


def solve_flow(
    sums: Sums, low: IntArray, high: IntArray, penalty: Penalty, finest: IntArray
) -> IntArray | None:
    """Find integer sums within bounds at the least penalty.

    Args:
      sums: The sums; they must be a network flow.
      low: int64[C, I], lower bounds of I sums of C children.
      high: int64[C, I], upper bounds of the sums.
      penalty: Cost of the sums.
      finest: Items that together contain every cell once; only these and the sets around them are
        considered. With all cells, nothing is left out.

    Returns:
      int64[C, len(finest)], the sums of these items; None if the bounds are infeasible.

    Raises:
      SolverError: The flow solver failed.
    """
    network = _build(sums, low, high, finest)
    if (network.low > network.high).any():
        return None
    arcs, capacities, costs = _pieces(network, penalty, sums)
    supply = network.given.copy()  # remaining supply after the lower bounds of all arcs
    np.subtract.at(supply, network.tails, network.low)
    np.add.at(supply, network.heads, network.low)
    flows = network.low.copy()
    if len(arcs):
        from ortools.graph.python import min_cost_flow

        flow = min_cost_flow.SimpleMinCostFlow()
        numbers = flow.add_arcs_with_capacity_and_unit_cost(
            network.tails[arcs], network.heads[arcs], capacities, costs
        )
        flow.set_nodes_supplies(np.arange(len(supply)), supply)
        status = flow.solve()
        if status in (flow.INFEASIBLE, flow.UNBALANCED):
            return None
        if status != flow.OPTIMAL:
            raise SolverError("minimum cost flow", "the flow solver failed", got=status)
        np.add.at(flows, arcs, np.asarray(flow.flows(numbers), np.int64))
    elif supply.any():
        return None
    per_child = np.count_nonzero(network.items != _NO_ITEM) // len(low)
    return flows[: per_child * len(low)].reshape(len(low), -1)[:, : len(finest)]


def _build(sums: Sums, low: IntArray, high: IntArray, finest: IntArray) -> _Network:
    """Number the nodes and connect them: sink, cells, then sets, types and patterns of children."""
    C, parents = len(low), sums.family.parents
    if parents is None:
        raise SolverError("minimum cost flow", "the sets of cells cross")
    is_around, inner = np.zeros(len(parents), bool), finest
    while len(inner):
        inner = parents[inner]
        inner = inner[inner != NO_SET]
        is_around[inner] = True
    around = np.flatnonzero(is_around)
    items = np.concatenate([finest, around])
    types = np.flatnonzero(sums.types >= 0)
    leaves = sums.leaves or ()
    if leaves and not np.isin(sums.types[types], items).all():
        leaves = ()
    first_set = _FIRST_CELL + len(finest)
    first_type = first_set + C * len(around)
    numbers = np.arange(C)[:, None]
    nodes = np.full((C, len(parents) + 1), _SINK)  # the last column stands for no set
    nodes[:, around] = first_set + numbers * len(around) + np.arange(len(around))

    tails = np.empty((C, len(items)), np.int64)
    tails[:, : len(finest)] = _SINK
    if sums.parent is not None:
        tails[:, : len(finest)] = _FIRST_CELL + np.arange(len(finest))
    tails[:, len(finest) :] = nodes[:, around]
    heads = nodes[:, parents[items]]
    if leaves:
        type_of = np.full(len(parents), NO_SET)
        type_of[sums.types[types]] = types
        to_type = first_type + numbers * len(sums.types) + type_of[items]
        heads = np.where(type_of[items] == NO_SET, heads, to_type)
    per_item = np.broadcast_arrays(items, numbers, tails, heads, low[:, items], high[:, items])
    columns = [column.ravel() for column in per_item]
    if leaves:
        exits = nodes[:, parents[sums.types[types]].max()]
        room = sums.most[:, sums.family.n_sets :].sum(1)
        arcs = _assignment_arcs(leaves, first_type, exits, room)
        columns = [np.append(first, more) for first, more in zip(columns, arcs, strict=True)]
    item, child, tail, head, least, most = columns
    given = np.zeros(max(int(tail.max()), int(head.max()), first_set - 1) + 1, np.int64)
    if sums.parent is not None:
        of_parent = sums.of_counts(sums.parent[None])[0, finest]
        given[_FIRST_CELL:first_set] = of_parent
        given[_SINK] = -of_parent.sum()
    return _Network(item, child, tail, head, least, most, given)


def _assignment_arcs(
    leaves: tuple[Leaves, ...], first_type: int, exits: IntArray, room: IntArray
) -> IntArray:
    """Return arcs from the types of each child through the patterns of its leaves, as columns.

    Capacities are at most the room of the child, which avoids overflow.
    """
    t = leaves[0].least.shape[1]
    node = first_type + len(leaves) * t
    columns = []
    for child, (below, exit_node) in enumerate(zip(leaves, exits, strict=True)):
        R = len(below.low)
        patterns = np.repeat(np.arange(R), t)
        types = np.tile(np.arange(t), R)
        tails = np.concatenate([first_type + child * t + types, node + np.arange(R)])
        heads = np.concatenate([node + patterns, np.full(R, exit_node)])
        low = np.concatenate([below.least.ravel(), below.low])
        high = np.concatenate([below.most.ravel(), below.high])
        high = np.minimum(high, np.maximum(low, room[child]))
        items = np.full(len(low), _NO_ITEM)
        columns.append([items, np.full(len(low), child), tails, heads, low, high])
        node += R
    return np.hstack([np.array(column) for column in columns])


def _pieces(network: _Network, penalty: Penalty, sums: Sums) -> tuple[IntArray, IntArray, IntArray]:
    """Split arcs into pieces of constant cost: arc, capacity and cost in millionths."""
    low, high = network.low, network.high
    weight = np.where(network.items >= 0, penalty.weights[np.maximum(network.items, 0)], 0)
    costly = np.flatnonzero((weight > 0) & (high > low))
    free = np.flatnonzero((weight == 0) & (high > low))
    at = (network.children[costly], network.items[costly])
    least, most, unit = low[costly], high[costly], weight[costly] * _COST_UNIT
    floor, ceiling = sums.whole[at], sums.next_whole[at]
    capacities = [
        np.minimum(most, floor) - least,
        np.minimum(most, ceiling) - np.maximum(least, floor),
        most - np.maximum(least, ceiling),
    ]
    costs = [-unit, np.rint(penalty.middle[at] * unit).astype(np.int64), unit]
    arcs = np.concatenate([free, costly, costly, costly])
    capacity = np.concatenate([high[free] - low[free], *capacities])
    cost = np.concatenate([np.zeros(len(free), np.int64), *costs])
    used = capacity > 0
    return arcs[used], capacity[used], cost[used]
