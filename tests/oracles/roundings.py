"""Controlled rounding from its definition: everything between floor and ceiling, cost by cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import block_diag, csr_array, hstack, identity, vstack

from solvers.problem import NodeProblem
from tests.oracles.quadratic import indicator


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


def is_controlled(problem: NodeProblem, values: np.ndarray, table: np.ndarray) -> bool:
    """Whether a table is allowed: equalities exact, cells and groups next to their real values."""
    if problem.parent is not None and not np.array_equal(table.sum(0), problem.parent):
        return False
    for exact in problem.exact:
        if not np.array_equal(sums(table, exact.groups), exact.targets):
            return False
    for query in itertools.chain.from_iterable(problem.passes):
        real, whole = sums(values, query.groups), sums(table, query.groups)
        if (whole < np.floor(real)).any() or (whole > np.ceil(real)).any():
            return False
    return True


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
