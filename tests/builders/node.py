"""A node problem from its numbers: one cell per column of answers, all answers of weight one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from invariants.leaves import Leaves
from solvers.problem import (
    ExactTerm,
    LeastSquaresTerm,
    LeavesTerm,
    NodeProblem,
    RoundingQuery,
)


def node(
    answers: ArrayLike,
    *,
    parent: ArrayLike | None = None,
    exact: Sequence[tuple[ArrayLike, ArrayLike]] = (),
    passes: tuple[tuple[RoundingQuery, ...], ...] | None = None,
    leaves: Sequence[Leaves] = (),
    types: ArrayLike | None = None,
    name: str = "44007",
) -> NodeProblem:
    """A node whose only measured query is that of all cells.

    Args:
      answers: [C, k] of each child.
      parent: [k], or None at the root.
      exact: For each exact query the group of every cell, [k], and its answers, [C, groups].
      passes: Rounding passes; one over all cells if not given.
      leaves: Of each child, or none.
      types: Of each cell, [k], for `leaves`; as many types as cells if not given.
      name: Its geocode.
    """
    values = np.array(answers, float)
    children, cells = values.shape
    everything = np.arange(cells)
    return NodeProblem(
        name,
        cells,
        None if parent is None else np.array(parent),
        (LeastSquaresTerm(everything, values, np.ones(children)),),
        tuple(ExactTerm(np.array(groups), np.array(sums)) for groups, sums in exact),
        ((RoundingQuery(everything),),) if passes is None else passes,
        leaves=LeavesTerm(everything if types is None else np.array(types), tuple(leaves))
        if leaves
        else None,
    )
