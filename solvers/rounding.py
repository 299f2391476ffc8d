"""Integer stage: round the continuous solution to integers, keeping every equality, as a flow.

Per child the rounding queries form a chain of nested partitions (a laminar family), and the
coupling sum_c h_c = p is one row per cell. Two laminar families make the constraint matrix
totally unimodular, so the problem is a min-cost flow with integral solutions: units flow from
cells through the groups of a child, fine to coarse, to a sink.

Every cell is rounded to a neighboring integer and so is every group sum (controlled rounding); a
fractional point with these bounds exists, the continuous solution, hence an integral one does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from ortools.graph.python import min_cost_flow

from das.errors import SolverError
from solvers.problem import FloatArray, IntArray, NodeProblem, group_sums

_COST_UNIT = 10**6  # arc costs are L1 distances in millionths of a person
_SNAP = 1e-6  # closer than this to an integer counts as that integer
_SINK = 0
_SOURCE = 1
_FIRST_CELL = 2


@dataclass(frozen=True, eq=False)
class _Level:
    """One partition of the cells of every child.

    Attributes:
      groups: int64[k], group of each cell; nested in the level before.
      rounding_pass: Pass whose cost it carries; -1 for an invariant.
      above: float64[C, m], continuous sum minus the sum of the base integers.
      low: int64[C, m], least units above the base.
      high: int64[C, m], most.
    """

    groups: IntArray
    rounding_pass: int
    above: FloatArray
    low: IntArray
    high: IntArray


def round_counts(problem: NodeProblem, values: FloatArray) -> tuple[IntArray, bool]:
    """Round to integers with the least L1 distance, pass by pass.

    Each pass minimises the sum over its queries of |rounded sum - continuous sum|; the sums it
    finds are fixed for the passes after it. Deterministic given its input.

    Args:
      problem: The node problem; its passes and equalities are used.
      values: float64[C, k], the continuous solution.

    Returns:
      int64[C, k] counts, and whether bounds had to be widened by one because float error left
      the continuous solution just outside them.

    Raises:
      SolverError: No rounding exists even so.
    """
    for widen in (0, 1):
        base = _floors(values) - widen
        base = np.maximum(base, 0)
        levels = _levels(problem, values, base, widen)
        counts = _solve_passes(problem, base, levels)
        if counts is not None:
            return counts, bool(widen)
    raise SolverError(
        f"node {problem.geocode}", "the continuous solution cannot be rounded to its equalities"
    )


def _floors(values: FloatArray) -> IntArray:
    nearest = np.rint(values)
    whole = np.abs(values - nearest) <= _SNAP
    return np.where(whole, nearest, np.floor(values)).astype(np.int64)


def _levels(problem: NodeProblem, values: FloatArray, base: IntArray, widen: int) -> list[_Level]:
    """All partitions, coarse before fine, single cells last, with their bounds."""
    levels = []
    for exact in problem.exact:  # first, so that the sort below keeps single cells last
        units = exact.targets - group_sums(base, exact.groups, exact.targets.shape[1])
        levels.append(_Level(exact.groups, -1, units.astype(float), units, units))
    for number, rounding in enumerate(problem.passes):
        for query in rounding:
            m = int(query.groups.max()) + 1
            above = group_sums(values - base, query.groups, m)
            low = _floors(above)
            high = low + (above - low > _SNAP)
            if widen:
                low, high = np.maximum(low - 1, 0), high + 1
            levels.append(_Level(query.groups, number, above, low, high))
    return sorted(levels, key=lambda level: level.low.shape[1])


def _solve_passes(problem: NodeProblem, base: IntArray, levels: list[_Level]) -> IntArray | None:
    """Solve pass after pass; None if the bounds are infeasible."""
    counts = None
    for number in range(len(problem.passes)):
        units = _Network(problem, base, levels, number).solve()
        if units is None:
            return None
        counts = base + units
        levels = [
            _fixed(level, units) if level.rounding_pass == number else level for level in levels
        ]
    return counts


def _fixed(level: _Level, units: IntArray) -> _Level:
    sums = group_sums(units, level.groups, level.low.shape[1])
    return _Level(level.groups, level.rounding_pass, level.above, sums, sums)


@dataclass
class _Network:
    """Min-cost flow of one pass.

    Nodes: sink, source, one per cell, one per (level, child, group) of every level but the last,
    which is single cells and is carried by the arcs leaving the cell nodes. At the root there is
    no parent to add up to: cells draw from the source, which the sink refills.
    """

    problem: NodeProblem
    base: IntArray
    levels: list[_Level]
    rounding_pass: int
    _tails: list[IntArray] = field(default_factory=list)
    _heads: list[IntArray] = field(default_factory=list)
    _costs: list[IntArray] = field(default_factory=list)

    def solve(self) -> IntArray | None:
        """int64[C, k] units above the base, or None if infeasible."""
        C, k = self.base.shape
        self._first = np.cumsum([_FIRST_CELL + k] + [level.low.size for level in self.levels[:-1]])
        self._supply = np.zeros(int(self._first[-1]), np.int64)
        cells = self.levels[-1]
        children, columns = np.indices((C, k)).reshape(2, -1)
        if self.problem.parent is None:
            tails = np.full(C * k, _SOURCE)
        else:
            tails = _FIRST_CELL + columns
            missing = self.problem.parent - self.base.sum(0)
            self._supply[_FIRST_CELL : _FIRST_CELL + k] += missing
            self._supply[_SINK] -= missing.sum()
        cell_arcs = self._connect(cells, tails, self._node(len(self.levels) - 2, children, columns))
        for index in range(len(self.levels) - 1):
            self._connect_groups(index)
        flows = self._run()
        if flows is None:
            return None
        units = cells.low.ravel().copy()
        np.add.at(units, cell_arcs, flows[: len(cell_arcs)])
        return units.reshape(C, k)

    def _node(self, index: int, children: IntArray, cells: IntArray) -> IntArray:
        """Node of the group that holds each (child, cell) at a level; the sink above the first."""
        if index < 0:
            return np.full(len(children), _SINK)
        level = self.levels[index]
        return np.asarray(
            self._first[index] + children * level.low.shape[1] + level.groups[cells], np.int64
        )

    def _connect_groups(self, index: int) -> None:
        level = self.levels[index]
        C, m = level.low.shape
        children, groups = np.indices((C, m)).reshape(2, -1)
        representative = np.zeros(m, np.int64)
        representative[level.groups] = np.arange(len(level.groups))
        inside = self._first[index] + children * m + groups
        self._connect(level, inside, self._node(index - 1, children, representative[groups]))

    def _connect(self, level: _Level, tails: IntArray, heads: IntArray) -> IntArray:
        """Add one unit arc per step from low to high; the lower bound becomes supply."""
        low, high = level.low.ravel(), level.high.ravel()
        np.subtract.at(self._supply, tails, low)
        np.add.at(self._supply, heads, low)
        used = []
        for step in range(int((high - low).max(initial=0))):
            arcs = np.flatnonzero(high - low > step)
            start = low[arcs] + step - level.above.ravel()[arcs]
            distance = np.abs(start + 1) - np.abs(start)
            weight = _COST_UNIT if level.rounding_pass == self.rounding_pass else 0
            self._tails.append(tails[arcs])
            self._heads.append(heads[arcs])
            self._costs.append(np.rint(distance * weight).astype(np.int64))
            used.append(arcs)
        return np.concatenate(used) if used else np.zeros(0, np.int64)

    def _run(self) -> IntArray | None:
        if not self._tails:
            return None if self._supply.any() else np.zeros(0, np.int64)
        tails, heads = np.concatenate(self._tails), np.concatenate(self._heads)
        costs = np.concatenate(self._costs)
        flow = min_cost_flow.SimpleMinCostFlow()
        arcs = flow.add_arcs_with_capacity_and_unit_cost(
            tails, heads, np.ones(len(tails), np.int64), costs
        )
        if self.problem.parent is None:
            flow.add_arc_with_capacity_and_unit_cost(
                _SINK, _SOURCE, int(self.levels[-1].high.sum()), 0
            )
        flow.set_nodes_supplies(np.arange(len(self._supply)), self._supply)
        status = flow.solve()
        if status == flow.INFEASIBLE or status == flow.UNBALANCED:
            return None
        if status != flow.OPTIMAL:
            raise SolverError(f"node {self.problem.geocode}", "flow solver failed", got=status)
        return np.asarray(flow.flows(arcs), np.int64)
