"""Sums of cells in the rounding of a node: their real values, bounds and costs.

Rounding queries, invariants, rows with one nonzero coefficient and types of leaves are all sets of
cells, the same in every child. They become the items of one family (`Family`), so that
equal sets count once. Rows of several coefficients and the leaves themselves remain.

A family is laminar if any two of its sets are disjoint or one contains the other. Sums over the
sets of a laminar family, together with sums over the sets of a second one, have a totally
unimodular matrix (Edmonds 1970; Schrijver, Combinatorial Optimization, 2003, section 41.4): with
integer bounds every vertex is an integer point. In a node, the first family contains the sets of
every child, and the second one set per cell: the cell in all children.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array, vstack

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import InfeasibleError
from invariants.leaves import MANY, Leaves, stack
from solvers.problem import NO_LIMIT, NodeProblem, RowsTerm
from solvers.rounding.cost import SNAP, STEPS, cost_at_floor, cost_of_one_more, on_grid

Number = TypeVar("Number", np.int64, np.float64)

NO_SET = -1


@dataclass(frozen=True, eq=False)
class Family:
    """Distinct sets of cells. Its items are the S sets of two or more cells, then the k cells.

    Attributes:
      n_cells: k, the number of live cells.
      n_sets: S, the number of sets.
      sizes: int64[S], number of cells of every set.
      starts: int64[S], start of each set in `cells`; larger sets come first.
      cells: int64, the cells of the sets, one set after the other, ascending.
      parents: int64[S + k], smallest set that strictly contains each item, else NO_SET; None if two
        sets cross.
    """

    n_cells: int
    n_sets: int
    sizes: IntArray
    starts: IntArray
    cells: IntArray
    parents: IntArray | None

    def add(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Sum over every set: [C, k] -> [C, S], same dtype."""
        if not self.n_sets:
            return np.zeros((len(values), 0), values.dtype)
        return np.add.reduceat(values[:, self.cells], self.starts, axis=1, dtype=values.dtype)

    @cached_property
    def incidence(self) -> csr_array:
        """Return int64[S, k], sparse 0/1: the cells of every set."""
        shape = (self.n_sets, self.n_cells)
        ends = np.append(self.starts, len(self.cells))
        return csr_array((np.ones(len(self.cells), np.int64), self.cells, ends), shape=shape)

    @cached_property
    def items(self) -> csr_array:
        """Return int64[S + k, k], sparse 0/1: the cells of every item."""
        cells = eye_array(self.n_cells, dtype=np.int64, format="csr")
        return csr_array(vstack([self.incidence, cells], format="csr"))


def arrange(candidates: list[IntArray]) -> tuple[Family, IntArray]:
    """Find the distinct sets among candidates, and how they nest.

    Args:
      candidates: Each int64[k], disjoint sets 0..m-1 of cells, none of them empty: the set of every
        cell, -1 for cells in none.

    Returns:
      The family, and int64, the item of each set, in order of candidates and sets.

    >>> family, items = arrange([np.array([0, 0, 0]), np.array([0, 1, 1])])
    >>> items.tolist(), family.parents.tolist()
    ([0, 2, 1], [-1, 0, 0, 1, 1])
    >>> arrange([np.array([0, 0, -1]), np.array([0, 1, 1])])[0].parents is None
    True
    """
    number_of: dict[bytes, int] = {}
    distinct: list[IntArray] = []
    numbered: list[IntArray] = []  # per set, its number among the distinct, or -1 - its only cell
    for groups in candidates:
        order = np.argsort(groups, kind="stable")
        ends = np.cumsum(np.bincount(groups + 1))
        starts, ends = ends[:-1], ends[1:]
        numbers = -1 - order[starts]
        for group in np.flatnonzero(ends - starts > 1):
            cells = order[starts[group] : ends[group]]
            numbers[group] = number_of.setdefault(cells.tobytes(), len(distinct))
            if numbers[group] == len(distinct):
                distinct.append(cells)
        numbered.append(numbers)
    lengths = np.array([len(cells) for cells in distinct], np.int64)
    larger_first = np.argsort(-lengths, kind="stable")
    rank = np.argsort(larger_first)
    S = len(distinct)
    numbers = np.concatenate(numbered)
    items = np.where(numbers < 0, S - 1 - numbers, np.append(rank, 0)[np.maximum(numbers, -1)])
    cells = np.concatenate([*(distinct[index] for index in larger_first), np.zeros(0, np.int64)])
    lengths = lengths[larger_first]
    parents = _parents(len(candidates[0]), np.repeat(np.arange(S), lengths), cells, S)
    starts = np.cumsum(lengths) - lengths
    return Family(len(candidates[0]), S, lengths, starts, cells, parents), items


def _parents(k: int, sets: IntArray, cells: IntArray, S: int) -> IntArray | None:
    """Return the smallest set around each item; None if two sets cross.

    The sets of a cell, larger ones first, are a chain. Sets nest iff each set has the same
    predecessor in the chains of all its cells, which then contains it.

    Args:
      k: Number of cells.
      sets: int64[n], ascending, the larger ones first.
      cells: int64[n], the cells of the sets.
      S: Number of sets.
    """
    order = np.argsort(cells, kind="stable")
    chain, of = sets[order], cells[order]
    before = np.full(len(chain), NO_SET)
    before[1:] = np.where(of[1:] == of[:-1], chain[:-1], NO_SET)
    parents = np.full(S + k, NO_SET)
    parents[chain] = before
    if (parents[chain] != before).any():
        return None
    parents[S + of] = chain  # the last set of a cell is the smallest
    return parents


@dataclass(frozen=True, eq=False)
class Sums:
    """Rounding problem. I = S + k items: sets, then cells; C children in any order.

    Attributes:
      children: int64[C], number of each child in the problem.
      family: The sets and how they nest.
      whole: int64[C, I], floor of the real value.
      above: float64[C, I], real value minus floor, in [0, 1).
      next_whole: int64[C, I], ceiling of the real value.
      least: int64[C, I], fewest persons that invariants and nonnegativity allow.
      most: int64[C, I], most persons that invariants and the parent allow.
      rounded: bool[I], whether rounding keeps the sum within floor and ceiling.
      weights: int64[P, I], number of queries of each pass that contain the item.
      finest: Per pass, the items of its finest query, which together contain every cell once.
      parent: int64[k], or None at the root.
      rows: Rows that are no sets.
      leaves: Per child, the bounds of its leaves; None without an invariant on leaves.
      types: Item of each type of leaves; -1 where no cell has the type.
      is_flow: Whether every constraint is one of a network. The sets must nest. Leaves lie between
        the types and the whole child, so only the whole child may contain a type; see
        `with_leaves_as_rows` for other nodes.
    """

    children: IntArray
    family: Family
    whole: IntArray
    above: FloatArray
    next_whole: IntArray
    least: IntArray
    most: IntArray
    rounded: BoolArray
    weights: IntArray
    finest: tuple[IntArray, ...]
    parent: IntArray | None
    rows: RowsTerm
    leaves: tuple[Leaves, ...] | None
    types: IntArray
    is_flow: bool

    def of_counts(self, counts: IntArray) -> IntArray:
        """Return all sums int64[C, I] of integer counts int64[C, k]."""
        return np.concatenate([self.family.add(counts), counts], axis=1)

    def from_parts(self, items: IntArray, finest: IntArray, parts: IntArray) -> IntArray:
        """Return sums of some items, from the sums of finest items that contain every cell once.

        Args:
          items: Items; each a union of finest ones.
          finest: int64[m], the finest items.
          parts: int64[C, m], sums of the finest items.

        Returns:
          int64[C, len(items)].
        """
        inside = np.append(self.family.cells[self.family.starts], np.arange(self.family.n_cells))
        counts = np.zeros((len(parts), self.family.n_cells), np.int64)
        counts[:, inside[finest]] = parts  # each at one of its cells
        return self.of_counts(counts)[:, items]


@dataclass(frozen=True, eq=False)
class Penalty:
    """Cost of all persons: convex in each sum, with kinks at the floor and the ceiling.

    Each person below the floor or above the ceiling of a sum costs `weights`; from the floor to the
    ceiling the cost changes by `middle`.

    Attributes:
      weights: int64[I], factor of each item.
      floor_cost: float64[C, I], cost at the floor.
      middle: float64[C, I], change of cost from floor to ceiling, where the real value is not
        whole.
    """

    weights: IntArray
    floor_cost: FloatArray
    middle: FloatArray

    @classmethod
    def of_distance(cls, sums: Sums, number: int) -> Penalty:
        """Return the cost |rounded sum - real sum| over the queries of one pass, on the grid.

        Args:
          sums: The sums.
          number: Index of the pass.
        """
        above = np.where(sums.above > 0, on_grid(sums.above), 0)
        floor_cost, middle = cost_at_floor(above) / STEPS, cost_of_one_more(above) / STEPS
        return cls(sums.weights[number], floor_cost, middle)


def gather_sums(problem: NodeProblem, values: FloatArray, children: IntArray) -> Sums:
    """Write the rounding of a node as sums with bounds.

    Args:
      problem: The node problem.
      values: float64[C, k], the continuous solution.
      children: int64[C], order of the children.

    Raises:
      InfeasibleError: An invariant requires persons where no cell is live.
    """
    sets, bounds, rows = _split_rows(problem, children)
    for term in problem.exact:
        there = np.bincount(term.groups, minlength=term.targets.shape[1]) > 0
        if term.targets[:, ~there].any():
            raise _no_live_cell(problem)
        sets.append((np.cumsum(there) - 1)[term.groups])
        bounds.append((term.targets[children][:, there],) * 2)
    types = np.zeros(0, np.int64) if problem.leaves is None else np.unique(problem.leaves.groups)
    if problem.leaves is not None:
        sets.append(np.searchsorted(types, problem.leaves.groups))
    queries = [query for queries in problem.passes for query in queries]
    sets += [query.groups for query in queries]
    family, numbered = arrange(sets)
    items_of = np.split(numbered, np.cumsum([groups.max() + 1 for groups in sets])[:-1])

    # Fractions are added separately, which keeps their digits.
    cells, above_cells = _floors(values[children])
    carried, above_sets = _floors(family.add(above_cells))
    whole = np.hstack([family.add(cells) + carried, cells])
    above = np.hstack([above_sets, above_cells])
    if problem.parent is None:
        room = np.full(cells.shape, _most_persons(problem, cells))
    else:
        room = np.broadcast_to(problem.parent, cells.shape)
    most = np.concatenate([family.add(room), room], axis=1)
    least = np.zeros_like(most)
    for items, (low, high) in zip(items_of, bounds, strict=False):
        for item, item_low, item_high in zip(items, low.T, high.T, strict=True):
            least[:, item] = np.maximum(least[:, item], item_low)
            most[:, item] = np.minimum(most[:, item], item_high)

    of_queries, of_types = items_of[len(sets) - len(queries) :], items_of[len(bounds)]
    weights = np.zeros((len(problem.passes), whole.shape[1]), np.int64)
    lengths = [len(queries) for queries in problem.passes]
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    for number, items in zip(numbers, of_queries, strict=True):
        weights[number, items] += 1
    rounded = np.asarray(weights.any(0), bool)
    rounded[family.n_sets :] = True
    leaves, item_of_type = None, np.zeros(0, np.int64)
    is_flow = family.parents is not None and not len(rows.coefficients)
    if problem.leaves is not None:
        leaves = tuple(problem.leaves.leaves[child] for child in children)
        item_of_type = np.full(leaves[0].least.shape[1], -1)
        item_of_type[types] = of_types
        if family.parents is not None:
            outer = family.parents[of_types]
            is_flow &= bool((family.sizes[outer[outer >= 0]] == family.n_cells).all())
    return Sums(
        children,
        family,
        whole,
        above,
        np.asarray(whole + (above > 0), np.int64),
        least,
        most,
        rounded,
        weights,
        tuple(of_queries[end - 1] for end in np.cumsum(lengths)),
        problem.parent,
        rows,
        leaves,
        item_of_type,
        is_flow,
    )


def with_leaves_as_rows(problem: NodeProblem) -> NodeProblem | None:
    """Return the node with rows instead of leaves; None if some child has several rows of leaves.

    A single row of leaves is equivalent to bounds of single types and of all types. As sets they
    may be inside other sets, which is not allowed for types of leaves (`Sums.is_flow`).
    """
    if problem.leaves is None or any(leaves.n_rows > 1 for leaves in problem.leaves.leaves):
        return None
    leaves = stack(problem.leaves.leaves)
    types = np.arange(problem.leaves.leaves[0].n_types)
    sets = [*(problem.leaves.groups == types[:, None]), np.ones(problem.n_cells, np.bool_)]
    least, most = (
        np.hstack([of_types, whole[:, None]])
        for of_types, whole in ((leaves.least, leaves.low), (leaves.most, leaves.high))
    )
    names = (*(f"type {number}" for number in types), "all types")
    rows = RowsTerm(np.array(sets, np.int64), least, np.where(most >= MANY, NO_LIMIT, most), names)
    return replace(problem, rows=(*problem.rows, rows), leaves=None)


def _no_live_cell(problem: NodeProblem) -> InfeasibleError:
    return InfeasibleError(
        f"node {problem.geocode}", "an invariant requires persons where no cell is live"
    )


def _split_rows(
    problem: NodeProblem, children: IntArray
) -> tuple[list[IntArray], list[tuple[IntArray, IntArray]], RowsTerm]:
    """Split rows into sets and general rows; divide bounds of sets by their only coefficient."""
    sets, bounds, general = [], [], []
    every = [(term, row) for term in problem.rows for row in range(len(term.coefficients))]
    for term, row in every:
        cells = np.flatnonzero(term.coefficients[row])
        low, high = term.least[children, row], term.most[children, row]
        kinds = np.unique(term.coefficients[row, cells])
        if len(kinds) > 1:
            general.append((term.coefficients[row], low, high, term.names[row]))
            continue
        if not len(kinds):
            if (low > 0).any() or (high < 0).any():
                raise _no_live_cell(problem)
            continue
        if kinds[0] < 0:
            low, high = -high, -low
        size = abs(int(kinds[0]))
        sets.append(np.where(term.coefficients[row] != 0, 0, -1))
        bounds.append((-(-low // size)[:, None], (high // size)[:, None]))
    none = np.zeros((len(children), 0), np.int64)
    rows = RowsTerm(
        np.array([row for row, *_ in general], np.int64).reshape(len(general), problem.n_cells),
        np.column_stack([none, *(low for _, low, _, _ in general)]),
        np.column_stack([none, *(high for _, _, high, _ in general)]),
        tuple(name for *_, name in general),
    )
    return sets, bounds, rows


def _most_persons(problem: NodeProblem, whole: IntArray) -> int:
    """Return an upper bound on the rounded count of any cell, for a node without a parent.

    Args:
      problem: The node problem.
      whole: int64[C, k], the integer parts of the continuous solution.
    """
    limits = [term.targets for term in problem.exact]
    limits += [limit for term in problem.rows for limit in (term.least, term.most)]
    if problem.leaves is not None:
        limits += [side for below in problem.leaves.leaves for side in (below.least, below.low)]
    required = sum(int(np.abs(side[np.abs(side) < NO_LIMIT]).sum()) for side in limits)
    return int(whole.sum() + whole.shape[1] + required)


def _floors(values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Split values into floor and fraction; those close to an integer are that integer."""
    nearest = np.rint(values)
    is_whole = np.abs(values - nearest) <= SNAP
    whole = np.where(is_whole, nearest, np.floor(values))
    return whole.astype(np.int64), np.where(is_whole, 0.0, values - whole)
