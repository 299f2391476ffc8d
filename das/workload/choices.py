"""Names of planning methods and losses; imports no numerical library."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    """A family of planners."""

    RESIDUAL_PLANNER = "residual_planner"  # plain counts only; optimal for them
    RESIDUAL_PLANNER_PLUS = "residual_planner_plus"  # any base matrix, pivots 1/n
    ORP = "orp"  # oblique: pivots chosen too
    HDMM = "hdmm"  # the best of three families of Kronecker products
    AUTO = "auto"  # the best of all feasible methods


class LossKind(StrEnum):
    """Losses without parameters."""

    SUM_OF_VARIANCES = "sum_of_variances"  # weighted over marginals
    LARGEST_VARIANCE = "largest_variance"  # over all answers; ignores weights
