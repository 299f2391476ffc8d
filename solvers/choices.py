"""Names of solvers and methods, and the problem sizes they accept.

Validation of a run file imports no other module of `solvers`, and so loads no solver.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Method(StrEnum):
    """Objective of the continuous stage under x >= 0."""

    NNLS = "nnls"  # weighted squares of all queries
    SEQUENTIAL = "sequential"  # query after query, coarse ones first
    REWEIGHTED = "reweighted"  # squares, with less weight on answers that look like noise alone
    MAXFIT = "maxfit"  # the largest standardized deviation, then squares


class LeastSquaresSolver(StrEnum):
    """Solvers of the continuous stage."""

    STRUCTURED = "structured"
    PIQP = "piqp"
    GUROBI = "gurobi"


class Failsafe(StrEnum):
    """Rule for a parent whose children cannot keep their constraints and add up to the parent.

    EXACT: the parent moves to the nearest counts that children can add up to. PENALTY: it moves to
    the sum of the children that fit their noisy answers best, with a penalty on the move. NONE: the
    run stops.
    """

    EXACT = "exact"
    PENALTY = "penalty"
    NONE = "none"


class IntegerSolver(StrEnum):
    """Solvers of integer problems that are no network flow."""

    HIGHS = "highs"
    GUROBI = "gurobi"


PACKAGES: Mapping[str, str] = MappingProxyType({"piqp": "piqp", "gurobi": "gurobipy"})
"""Python package of each optional solver. The key is also the name of the extra, and of the module
in `solvers.backends`. Other solvers are always installed."""

# Largest nodes solved with matrices over all cells, such as the root: with partition queries only,
# and with planned queries. They bound memory: a matrix of 10,000 cells is 0.8 GB.
MOST_CELLS_OF_PARTITIONS = 10_000
MOST_CELLS_IN_MATRICES = 2_500
# Entries of the Gram matrices that reweighting forms for all children, 800 MB.
MOST_ENTRIES = 100_000_000
# Unknowns (cells and coarse answers of all children) in maxfit, whose linear programs have dense
# rows: 3,000 unknowns are 72 MB a matrix.
MOST_UNKNOWNS = 3_000
# Largest standard deviation of noisy answers. Counts are certified to 1e-7 persons; a float keeps
# answers of 1e10 to 1e-6. Of random nodes with exact totals all were solved at 1e10, 98 % at 3e10
# (`tests/unit/solvers/least_squares/test_solve_oracle.py` goes as far as is accepted).
MOST_NOISE = 5e9
