"""Controlled rounding from its definition: everything between floor and ceiling, cost by cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import block_diag, csr_array, hstack, identity, vstack

from invariants.leaves import Leaves
from solvers.problem import NO_LIMIT, LeavesTerm, NodeProblem, RowsTerm
from tests.unit.solvers.least_squares.quadratic import indicator


def sums(table: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """[C, m] sums of the columns of each group."""
    return table @ indicator(groups, int(groups.max()) + 1).T


def pass_cost(problem: NodeProblem, number: int, values: np.ndarray, table: np.ndarray) -> float:
    """L1 distance of one pass."""
    return float(
        sum(
            np.abs(sums(table, query.groups) - sums(values, query.groups)).sum()
            for query in problem.passes[number]
        )
    )


def costs(problem: NodeProblem, values: np.ndarray, table: np.ndarray) -> list[float]:
    """L1 distance of every pass."""
    return [pass_cost(problem, number, values, table) for number in range(len(problem.passes))]


def can_be_assigned(leaves: Leaves, persons: np.ndarray) -> bool:
    """Whether persons by type fit the leaves, as a linear program; its vertices are whole."""
    R, t = leaves.least.shape
    over_types = np.kron(np.eye(R), np.ones((1, t)))
    result = linprog(
        np.zeros(R * t),
        A_eq=np.kron(np.ones((1, R)), np.eye(t)),
        b_eq=persons,
        A_ub=np.vstack([over_types, -over_types]),
        b_ub=np.concatenate([leaves.high, -leaves.low]),
        bounds=np.column_stack([leaves.least.ravel(), leaves.most.ravel()]),
    )
    return result.status == 0


def keeps_promises(problem: NodeProblem, table: np.ndarray) -> bool:
    """Whether a table keeps the parent, the invariants, and what the leaves can hold."""
    if problem.parent is not None and not np.array_equal(table.sum(0), problem.parent):
        return False
    for exact in problem.exact:
        if not np.array_equal(sums(table, exact.groups), exact.targets):
            return False
    for term in problem.rows:
        rows = table @ term.coefficients.T
        if (rows < term.least).any() or (rows > term.most).any():
            return False
    if problem.leaves is None:
        return True
    types = indicator(problem.leaves.groups, problem.leaves.leaves[0].least.shape[1])
    return all(map(can_be_assigned, problem.leaves.leaves, table @ types.T))


def excess(problem: NodeProblem, values: np.ndarray, table: np.ndarray) -> int:
    """Persons by which cells and sums of rounding queries are not next to their real values.

    Equal sets of cells count once, however many queries ask for them.
    """
    sets = {(cell,) for cell in range(problem.n_cells)}
    for query in itertools.chain.from_iterable(problem.passes):
        for group in range(int(query.groups.max()) + 1):
            sets.add(tuple(np.flatnonzero(query.groups == group).tolist()))
    out = 0.0
    for cells in sets:
        real, whole = values[:, list(cells)].sum(1), table[:, list(cells)].sum(1)
        out += np.maximum(np.floor(real) - whole, 0).sum()
        out += np.maximum(whole - np.ceil(real), 0).sum()
    return int(out)


def is_controlled(problem: NodeProblem, values: np.ndarray, table: np.ndarray) -> bool:
    """Whether a table is allowed: promises kept, cells and groups next to their real values."""
    return excess(problem, values, table) == 0 and keeps_promises(problem, table)


def least_excess_by_trying_all(problem: NodeProblem, values: np.ndarray) -> int | None:
    """The least excess over all nonnegative tables that keep the promises; None if there is none.

    For a few persons in a few cells: every way to deal the parent's persons is tried.
    """
    C = problem.n_children
    ways = [
        [way for way in itertools.product(range(persons + 1), repeat=C) if sum(way) == persons]
        for persons in problem.parent
    ]
    best = None
    for columns in itertools.product(*ways):
        table = np.array(columns, np.int64).T
        if best is not None and excess(problem, values, table) >= best:
            continue
        if keeps_promises(problem, table):
            best = excess(problem, values, table)
    return best


def all_controlled(problem: NodeProblem, values: np.ndarray) -> Iterator[np.ndarray]:
    """Every allowed rounding; for at most some 10 fractional cells."""
    low = np.floor(values)
    where = np.argwhere(values > low)
    for bits in itertools.product((0, 1), repeat=len(where)):
        table = low.copy()
        for (c, j), bit in zip(where, bits, strict=True):
            table[c, j] += bit
        if is_controlled(problem, values, table):
            yield table


def least_costs_by_trying_all(
    problem: NodeProblem, values: np.ndarray, ours: np.ndarray
) -> list[float]:
    """The least cost of each pass among the roundings that keep our sums of the passes before."""
    left = list(all_controlled(problem, values))
    costs = []
    for number, queries in enumerate(problem.passes):
        costs.append(min(pass_cost(problem, number, values, table) for table in left))
        left = [
            table
            for table in left
            if all(np.array_equal(sums(table, q.groups), sums(ours, q.groups)) for q in queries)
        ]
    return costs


def least_cost_by_milp(
    problem: NodeProblem, values: np.ndarray, ours: np.ndarray, number: int
) -> float:
    """The least cost of one pass, with our sums of the passes before it, by branch and bound.

    Variables: the table, then for every answer of the pass a bound t on |sum - real sum|.
    """
    C, k = values.shape
    maps = {
        (i, j): csr_array(block_diag([indicator(q.groups, int(q.groups.max()) + 1)] * C))
        for i, queries in enumerate(problem.passes)
        for j, q in enumerate(queries)
    }
    costed = vstack([maps[number, j] for j in range(len(problem.passes[number]))])
    real = costed @ values.ravel()
    T = identity(costed.shape[0])
    constraints = [
        LinearConstraint(hstack([costed, -T]), -np.inf, real),
        LinearConstraint(hstack([costed, T]), real, np.inf),
    ]

    def on_table(matrix: csr_array, low: np.ndarray, high: np.ndarray) -> None:
        empty = csr_array((matrix.shape[0], costed.shape[0]))
        constraints.append(LinearConstraint(hstack([matrix, empty]), low, high))

    for (i, _), matrix in maps.items():
        whole = matrix @ values.ravel()
        on_table(matrix, np.floor(whole), np.ceil(whole))
        if i < number:
            on_table(matrix, matrix @ ours.ravel(), matrix @ ours.ravel())
    if problem.parent is not None:
        on_table(csr_array(hstack([identity(k)] * C)), problem.parent, problem.parent)
    for exact in problem.exact:
        A = csr_array(block_diag([indicator(exact.groups, exact.targets.shape[1])] * C))
        on_table(A, exact.targets.ravel(), exact.targets.ravel())
    cost = np.concatenate([np.zeros(C * k), np.ones(costed.shape[0])])
    integer = np.concatenate([np.ones(C * k), np.zeros(costed.shape[0])])
    result = milp(cost, constraints=constraints, integrality=integer)
    assert result.success, result.message
    return float(result.fun)


# --- rows and leaves that a point satisfies ------------------------------------------------------


def with_rows(problem: NodeProblem, values: np.ndarray, sets: list, seed: int) -> NodeProblem:
    """The node with a bound on each of some sets of cells, next to the point or farther off.

    Coefficients are 1, 3 or -2, and children without a bound are frequent.
    """
    rng = np.random.default_rng(seed)
    coefficients = rng.choice([1, 3, -2], len(sets))
    matrix = np.array([np.isin(np.arange(problem.n_cells), cells) for cells in sets], np.int64)
    matrix *= coefficients[:, None]
    real = values @ matrix.T
    slack = (rng.random(real.shape) < 0.3) * np.abs(coefficients)
    size = np.abs(coefficients)
    least = np.floor(real / size).astype(np.int64) * size - slack
    most = np.ceil(real / size).astype(np.int64) * size + slack
    least[rng.random(real.shape) < 0.3] = -NO_LIMIT
    most[rng.random(real.shape) < 0.3] = NO_LIMIT
    names = tuple(f"row {number}" for number in range(len(sets)))
    return replace(problem, rows=(*problem.rows, RowsTerm(matrix, least, most, names)))


def with_leaves(
    problem: NodeProblem, values: np.ndarray, groups: np.ndarray, seed: int
) -> NodeProblem:
    """The node with leaves of up to three patterns per child that could hold the point."""
    rng = np.random.default_rng(seed)
    real = sums(values, groups)
    leaves = []
    for persons in real:
        R = int(rng.integers(1, 4))
        shares = rng.dirichlet(np.ones(R), len(persons)).T * persons
        slack = rng.random(shares.shape) < 0.3
        least = np.maximum(np.floor(shares).astype(np.int64) - slack, 0)
        most = np.ceil(shares).astype(np.int64) + (rng.random(shares.shape) < 0.3)
        total = shares.sum(1)
        leaves.append(
            Leaves(least, most, np.floor(total).astype(np.int64), np.ceil(total).astype(np.int64))
        )
    return replace(problem, leaves=LeavesTerm(groups, tuple(leaves)))


# --- proofs --------------------------------------------------------------------------------------


def is_totally_unimodular(matrix: np.ndarray) -> bool:
    """Ghouila-Houri: every set of rows splits in two whose sums differ by at most one."""
    for size in range(1, len(matrix) + 1):
        signs = np.array(list(itertools.product((-1, 1), repeat=size)))
        for rows in itertools.combinations(range(len(matrix)), size):
            if np.abs(signs @ matrix[list(rows)]).max(1).min() > 1:
                return False
    return True
