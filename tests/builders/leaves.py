"""What leaves can hold, for tests of invariants and solvers."""

from __future__ import annotations

import numpy as np

from invariants.leaves import Leaves, add_up


def one_owner(rows: Leaves) -> Leaves:
    """All leaves below one geounit, alike ones added up."""
    return add_up(rows, np.zeros(rows.n_rows, np.int64), 1).of(0)
