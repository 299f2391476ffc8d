"""What may be asked of the solvers and what they take: names and limits, without loading any.

Reading a run file needs these and nothing else of the solvers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Method(StrEnum):
    """What the continuous stage minimises under x >= 0."""

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
    """What happens to a parent where no children keep their constraints and add up to it.

    EXACT: it moves to the nearest counts that children add up to. PENALTY: to the sum of the
    children that fit their noisy answers best with a penalty on what it moves. NONE: the run stops.
    """

    EXACT = "exact"
    PENALTY = "penalty"
    NONE = "none"


class IntegerSolver(StrEnum):
    """Solvers of integer problems that are no flow."""

    HIGHS = "highs"
    GUROBI = "gurobi"


PACKAGES: Mapping[str, str] = MappingProxyType({"piqp": "piqp", "gurobi": "gurobipy"})
"""Python package of a solver by the solver's name, which is that of its extra and of its module in
`solvers.backends`, too. A solver that is not here is always installed."""

# Cells of a node that needs matrices over all of them, as the root does: with partition queries
# alone, and with planned queries. They bound memory: a matrix of 10,000 cells is 0.8 GB.
MOST_CELLS_OF_PARTITIONS = 10_000
MOST_CELLS_IN_MATRICES = 2_500
# Entries of the Gram matrices of all children that reweighting makes, 800 MB.
MOST_ENTRIES = 100_000_000
# Cells and coarse answers of all children in maxfit, whose linear programs have dense rows: 3,000
# unknowns are 72 MB a matrix.
MOST_UNKNOWNS = 3_000
# Standard deviation of noisy answers. Counts are certified to 1e-7 persons; of answers of 1e10 a
# float keeps 1e-6. Random nodes with exact totals were all solved at 1e10, 2 of 100 not at 3e10
# (`tests/unit/solvers/least_squares/test_solve_oracle.py` goes as far as is accepted).
MOST_NOISE = 5e9
