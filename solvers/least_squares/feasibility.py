"""Whether the promises of a node contradict one another, decided by a linear program."""

from __future__ import annotations

import numpy as np

from solvers.least_squares.blocks import Fixed
from solvers.problem import NO_LIMIT, NodeProblem

_SLACK = 1e-6  # relative; sums fixed by earlier passes are only as exact as their certificate


def contradiction(problem: NodeProblem, fixed: Fixed = ()) -> str:
    """Find the least total violation of the promises that any x >= 0 achieves.

    Args:
      problem: The node problem; its `leaves` are not considered.
      fixed: Further partition sums that are given.

    Returns:
      What is violated by how much, or "" if all promises can be kept together.
    """
    import scipy.sparse as sp
    from scipy.optimize import linprog

    C, k = problem.n_children, problem.n_cells
    blocks: list[sp.sparray] = []
    low: list[np.ndarray] = []
    high: list[np.ndarray] = []
    names: list[str] = []

    def add(block: sp.sparray, least: np.ndarray, most: np.ndarray, name: str) -> None:
        blocks.append(block)
        low.append(least)
        high.append(most)
        names.extend([name] * block.shape[0])

    if problem.parent is not None:
        parent = problem.parent.astype(float)
        add(sp.kron(np.ones((1, C)), sp.eye_array(k)), parent, parent, "the sum of the children")
    sums = [(e.groups, e.targets.astype(float)) for e in problem.exact]
    for number, (groups, targets) in enumerate((*sums, *fixed)):
        m = targets.shape[1]
        matrix = sp.csr_array((np.ones(k), (groups, np.arange(k))), shape=(m, k))
        name = f"equality {number}"
        add(sp.kron(sp.eye_array(C), matrix), targets.ravel(), targets.ravel(), name)
    for rows in problem.rows:
        least = np.where(rows.least <= -NO_LIMIT, -np.inf, rows.least.astype(float))
        most = np.where(rows.most >= NO_LIMIT, np.inf, rows.most.astype(float))
        for row, name in enumerate(rows.names):
            one = sp.csr_array(rows.coefficients[row : row + 1].astype(float))
            add(sp.kron(sp.eye_array(C), one), least[:, row], most[:, row], f"row {name}")
    if not blocks:
        return ""
    A, least, most = sp.vstack(blocks).tocsr(), np.concatenate(low), np.concatenate(high)
    n, m = C * k, len(least)
    size = max(1.0, float(np.abs(least[np.isfinite(least)]).max(initial=0.0)))
    lacking, exceeding = np.isfinite(least), np.isfinite(most)
    eye = sp.eye_array(m).tocsr()
    result = linprog(
        np.concatenate([np.zeros(n), np.ones(2 * m)]),
        A_ub=sp.vstack(
            [
                sp.hstack([-A[lacking], -eye[lacking], sp.csr_array((lacking.sum(), m))]),
                sp.hstack([A[exceeding], sp.csr_array((exceeding.sum(), m)), -eye[exceeding]]),
            ]
        ).tocsr(),
        b_ub=np.concatenate([-least[lacking], most[exceeding]]) / size,
        bounds=(0, None),
        method="highs",
    )
    if result.x is None or result.fun <= _SLACK * m**0.5:
        return ""
    off = result.x[n : n + m] + result.x[n + m :]
    worst = int(np.argmax(off))
    return (
        f"no table keeps every promise: together they are off by at least {result.fun * size:.6g} "
        f"persons, for example {names[worst]} by {off[worst] * size:.6g}"
    )
