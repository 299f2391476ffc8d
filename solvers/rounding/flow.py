"""Sums of nested sets as flows.

Persons flow from the cells of the parent, through the sets of each child from small to large, to a
sink. Every sum is the flow on one arc, so bounds of sums are bounds of arcs and the coupling
sum_c h_c = p is what the cells of the parent send out. Where leaves bound them, persons pass
from the sets of their types through the patterns of the leaves. Flows with integer data are
integers (Ahuja, Magnanti & Orlin, Network Flows, 1993, Theorem 9.10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import SolverError
from invariants.leaves import Leaves
from solvers.rounding.laminar import NO_SET
from solvers.rounding.sums import Penalty, Sums

_COST_UNIT = 10**6  # arc costs are in millionths of a person, real values in the steps of a grid
_SINK = 0  # of a child; also where the cells of the root come from
_FIRST_CELL = 1
_EVERYBODY = -1  # no pattern
_EVERY_TYPE = -1
_TYPE = -2


@dataclass(frozen=True)
class Limit:
    """A bound of one sum in one child.

    Attributes:
      child: Number of the child.
      count: The bound.
      cells: The live cells summed; none if it is a sum over leaves.
      pattern: Row of `Leaves`; -1 if it is a sum over cells.
      type: Type of the persons meant in these leaves; -1 for all types together.
    """

    child: int
    count: int
    cells: tuple[int, ...] = ()
    pattern: int = -1
    type: int = -1


@dataclass(frozen=True)
class Contradiction:
    """Proof that no counts keep these limits: a cut of the flow (Hoffman's circulation theorem).

    For every table that adds up to the parent, the sums of `at_most` minus those of `at_least` are
    `persons`. But sum(at_most) - sum(at_least) < persons for the limits.

    Attributes:
      at_least: Lower bounds.
      at_most: Upper bounds.
      persons: What the difference is, whatever the table.
    """

    at_least: tuple[Limit, ...]
    at_most: tuple[Limit, ...]
    persons: int

    @property
    def shortfall(self) -> int:
        """How many persons the limits are short of; positive."""
        room = sum(one.count for one in self.at_most) - sum(one.count for one in self.at_least)
        return self.persons - room


@dataclass(frozen=True, eq=False)
class _Network:
    """Arcs of items, child by child, then arcs of leaves.

    Attributes:
      items: int64[n]; of arcs of leaves, -1 for all types together, -2 - i for type i.
      children: int64[n].
      tails: int64[n].
      heads: int64[n].
      low: int64[n].
      high: int64[n].
      patterns: int64[n], row of `Leaves`; -1 for arcs of items.
      given: int64[nodes], what the parent puts in.
      finest: int64[C, m], arcs of the items that hold every cell once.
    """

    items: IntArray
    children: IntArray
    tails: IntArray
    heads: IntArray
    low: IntArray
    high: IntArray
    patterns: IntArray
    given: IntArray
    finest: IntArray

    @property
    def supply(self) -> IntArray:
        """int64[nodes], what is left to send once every arc carries its lower bound."""
        supply = self.given.copy()
        np.subtract.at(supply, self.tails, self.low)
        np.add.at(supply, self.heads, self.low)
        return supply


def solve_flow(
    sums: Sums, low: IntArray, high: IntArray, penalty: Penalty, finest: IntArray
) -> IntArray | None:
    """Find integer sums within bounds at the least penalty.

    Args:
      sums: The sums; they must be a flow.
      low: int64[C, I].
      high: int64[C, I].
      penalty: What they cost.
      finest: Items that together hold every cell once; only these and the sets around them are
        considered. With all cells, nothing is left out.

    Returns:
      int64[C, len(finest)], the sums of these items; None if the bounds contradict one another.

    Raises:
      SolverError: The flow solver failed.
    """
    network = _build(sums, low, high, finest)
    if (network.low > network.high).any():
        return None
    arcs, capacities, costs = _pieces(network, penalty, sums)
    supply = network.supply
    found = network.low.copy()
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
        np.add.at(found, arcs, np.asarray(flow.flows(numbers), np.int64))
    elif supply.any():
        return None
    return found[network.finest]


def explain_contradiction(sums: Sums, low: IntArray, high: IntArray) -> Contradiction:
    """Prove that bounds contradict one another.

    Args:
      sums: The sums; they must be a flow.
      low: int64[C, I], bounds that no counts keep.
      high: int64[C, I].

    Returns:
      The limits of a minimum cut; those of one sum if they contradict each other alone.
    """
    crossed = np.argwhere(low > high)
    if len(crossed):
        child, item = (int(one) for one in crossed[0])
        number, cells = int(sums.children[child]), sums.cells_of(item)
        least, most = int(low[child, item]), int(high[child, item])
        return Contradiction((Limit(number, least, cells),), (Limit(number, most, cells),), 0)
    network = _build(sums, low, high, sums.cells)
    reached = _source_side(network)
    enters = ~reached[network.tails] & reached[network.heads]
    leaves = reached[network.tails] & ~reached[network.heads]
    return Contradiction(
        _limits(sums, network, enters, network.low),
        _limits(sums, network, leaves, network.high),
        int(network.given[reached].sum()),
    )


def _build(sums: Sums, low: IntArray, high: IntArray, finest: IntArray) -> _Network:
    """Number the nodes and connect them: sink, cells, then sets, types and patterns of children."""
    C, parents = sums.n_children, sums.family.parents
    if parents is None:
        raise SolverError("minimum cost flow", "the sets of cells cross")
    around = _sets_around(finest, parents)
    items = np.concatenate([finest, around])
    types = np.flatnonzero(sums.types >= 0)
    leaves = sums.leaves or ()
    if leaves and not np.isin(sums.types[types], items).all():
        leaves = ()
    first_set = _FIRST_CELL + len(finest)
    first_type = first_set + C * len(around)
    numbers = np.arange(C)[:, None]

    position = np.full(len(parents) + 1, NO_SET)  # the last entry stands for no set
    position[around] = np.arange(len(around))

    def node_of(some: IntArray) -> IntArray:
        places = position[some]
        return np.where(places == NO_SET, _SINK, first_set + numbers * len(around) + places)

    tails = np.empty((C, len(items)), np.int64)
    tails[:, : len(finest)] = _SINK
    if sums.parent is not None:
        tails[:, : len(finest)] = _FIRST_CELL + np.arange(len(finest))
    tails[:, len(finest) :] = node_of(around)
    heads = node_of(parents[items])
    assignment = np.zeros((7, 0), np.int64)
    if leaves:
        type_of = np.full(len(parents), NO_SET)
        type_of[sums.types[types]] = types
        to_type = first_type + numbers * len(sums.types) + type_of[items]
        heads = np.where(type_of[items] == NO_SET, heads, to_type)
        exits = node_of(np.array([parents[sums.types[types]].max()]))[:, 0]
        assignment = _assignment_arcs(leaves, first_type, exits, sums.most[:, sums.n_sets :].sum(1))
    per_item = (
        np.broadcast_to(items, tails.shape),
        np.broadcast_to(numbers, tails.shape),
        tails,
        heads,
        low[:, items],
        high[:, items],
        np.broadcast_to(_EVERYBODY, tails.shape),
    )
    columns = [one.ravel() for one in per_item]
    if leaves:
        columns = [np.append(one, more) for one, more in zip(columns, assignment, strict=True)]
    given = np.zeros(max(int(columns[2].max()), int(columns[3].max()), first_set - 1) + 1, np.int64)
    if sums.parent is not None:
        held = sums.of_counts(sums.parent[None])[0, finest]
        given[_FIRST_CELL:first_set] = held
        given[_SINK] = -held.sum()
    of_finest = numbers * len(items) + np.arange(len(finest))
    of_item, child, tail, head, least, most, pattern = columns
    return _Network(of_item, child, tail, head, least, most, pattern, given, of_finest)


def _sets_around(finest: IntArray, parents: IntArray) -> IntArray:
    """All sets that strictly contain one of the items."""
    found = np.zeros(len(parents), bool)
    inner = finest
    while len(inner):
        inner = parents[inner]
        inner = inner[inner != NO_SET]
        found[inner] = True
    return np.flatnonzero(found)


def _assignment_arcs(
    leaves: tuple[Leaves, ...], first_type: int, exits: IntArray, room: IntArray
) -> IntArray:
    """Arcs from the types of each child through the patterns of its leaves, as columns.

    No arc need carry more than the room of the child, which keeps capacities far from overflow.
    """
    t = leaves[0].least.shape[1]
    node = first_type + len(leaves) * t
    columns = []
    for child, (one, exit_node) in enumerate(zip(leaves, exits, strict=True)):
        R = len(one.low)
        patterns = np.repeat(np.arange(R), t)
        types = np.tile(np.arange(t), R)
        tails = np.concatenate([first_type + child * t + types, node + np.arange(R)])
        heads = np.concatenate([node + patterns, np.full(R, exit_node)])
        items = np.concatenate([_TYPE - types, np.full(R, _EVERY_TYPE)])
        low = np.concatenate([one.least.ravel(), one.low])
        high = np.concatenate([one.most.ravel(), one.high])
        labels = np.concatenate([patterns, np.arange(R)])
        high = np.minimum(high, np.maximum(low, room[child]))
        columns.append([items, np.full(len(items), child), tails, heads, low, high, labels])
        node += R
    return np.hstack([np.array(one) for one in columns])


def _pieces(network: _Network, penalty: Penalty, sums: Sums) -> tuple[IntArray, IntArray, IntArray]:
    """Arcs of constant cost: number of the connection, capacity, cost in millionths."""
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


def _source_side(network: _Network) -> BoolArray:
    """bool[nodes], the source side of a minimum cut that no flow with these bounds crosses."""
    from ortools.graph.python import max_flow

    flow = max_flow.SimpleMaxFlow()
    used = network.high > network.low
    flow.add_arcs_with_capacity(
        network.tails[used], network.heads[used], (network.high - network.low)[used]
    )
    supply = network.supply
    source, sink = len(supply), len(supply) + 1
    starts, ends = np.flatnonzero(supply > 0), np.flatnonzero(supply < 0)
    flow.add_arcs_with_capacity(np.full(len(starts), source), starts, supply[starts])
    flow.add_arcs_with_capacity(ends, np.full(len(ends), sink), -supply[ends])
    if flow.solve(source, sink) != flow.OPTIMAL:
        raise SolverError("maximum flow", "the flow solver failed")
    reached = np.zeros(len(supply) + 2, bool)
    reached[np.asarray(flow.get_source_side_min_cut(), np.int64)] = True
    return reached[:source]


def _limits(
    sums: Sums, network: _Network, crossing: BoolArray, bounds: IntArray
) -> tuple[Limit, ...]:
    out = []
    for arc in np.flatnonzero(crossing):
        child = int(sums.children[network.children[arc]])
        count, item = int(bounds[arc]), int(network.items[arc])
        if item >= 0:
            out.append(Limit(child, count, sums.cells_of(item)))
        else:
            type_ = -1 if item == _EVERY_TYPE else _TYPE - item
            out.append(Limit(child, count, (), int(network.patterns[arc]), type_))
    return tuple(out)
