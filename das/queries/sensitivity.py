"""How far one record can move the answers of a query over all geounits of a geolevel."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from das.queries.query import Query


class Neighbors(StrEnum):
    """Which data sets count as neighbors.

    UNBOUNDED adds or removes one record. BOUNDED changes one record, its location included; the
    2020 Census releases use it. The number of records is not protected under BOUNDED.
    """

    BOUNDED = "bounded"
    UNBOUNDED = "unbounded"


def l2_sensitivity_sq(query: Query, neighbors: Neighbors) -> int:
    """Return the squared L2 sensitivity of the query asked in every geounit of a geolevel.

    One record counts in one geounit and one cell j, with column q_j. Adding it moves the stacked
    answers by q_j, so the squared sensitivity is max_j |q_j|^2 = prod_i max_j |column j of F_i|^2.
    Changing it moves them by q_j in one geounit and by -q_k in another (2 max_j |q_j|^2), or by
    q_j - q_k within one geounit, at most 2 max_j |q_j|^2 when all entries are nonnegative and at
    most 4 max_j |q_j|^2 otherwise. The exact within-geounit maximum of a Kronecker product is not
    a product, so for signed factors the bound 4 max_j |q_j|^2 is used.

    Args:
      query: The query.
      neighbors: The relation of the budget that pays for it.

    Returns:
      An upper bound on the squared L2 sensitivity, exact for queries with nonnegative entries.
      A partition query gives 1 (UNBOUNDED) or 2 (BOUNDED).

    >>> from das.queries.query import marginal
    >>> from das.schema.schema import Attribute, Schema
    >>> q = marginal(Schema("s", (Attribute("sex", ("f", "m")),)), ("sex",))
    >>> l2_sensitivity_sq(q, Neighbors.BOUNDED)
    2
    """
    largest = 1
    signed = False
    for factor in query.factors:
        largest *= int((factor.matrix**2).sum(0).max())
        signed = signed or bool((factor.matrix < 0).any())
    if neighbors is Neighbors.UNBOUNDED:
        return largest
    return (4 if signed else 2) * largest


def max_abs_row_sum(query: Query) -> int:
    """Return the largest absolute sum of coefficients of one answer, for overflow checks."""
    largest = 1
    for factor in query.factors:
        largest *= int(np.abs(factor.matrix).sum(1).max())
    return largest
