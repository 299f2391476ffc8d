"""The most violated set of types as an integer program, which checks the minimum cut."""

from __future__ import annotations

import numpy as np

from das.arrays import BoolArray
from das.errors import SolverError
from invariants.implied import Selection


def cut_by_program(selection: Selection) -> BoolArray:
    """Minimise as a mixed integer program, products made linear: (16)-(18) of Leclerc.

    Only to check `cut_by_flow`; slower by two orders of magnitude.

    Returns:
      bool[t]: b of a minimiser.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    n_rows, t = selection.link.shape
    rows, columns = np.nonzero(selection.link)
    m = len(rows)
    order = np.arange(m)
    signs = np.concatenate((np.ones(m), np.ones(m), -np.ones(m)))  # w + b_i - b_R >= 0
    positions = np.concatenate((t + n_rows + order, columns, t + rows))
    matrix = coo_array((signs, (np.tile(order, 3), positions)), shape=(m, t + n_rows + m)).tocsr()
    found = milp(
        np.concatenate((selection.cost, -selection.gain, selection.link[rows, columns])),
        integrality=np.concatenate((np.ones(t + n_rows), np.zeros(m))),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(matrix, 0, np.inf)] if m else [],
    )
    if found.x is None:
        raise SolverError("implied constraints", "integer program failed", got=found.message)
    return np.asarray(found.x[:t] > 0.5, np.bool_)
