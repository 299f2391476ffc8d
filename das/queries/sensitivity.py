"""Sensitivity of a query that is evaluated in all geounits of a geolevel."""

from __future__ import annotations

import math
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from das.mechanisms.mechanism import Norm
from das.queries.factor import Factor
from das.queries.query import Query


class Neighbors(StrEnum):
    """The neighboring relation of data sets.

    UNBOUNDED adds or removes one record. BOUNDED changes one record, its location included; the
    2020 Census releases use it. The number of records is not protected under BOUNDED.
    """

    BOUNDED = "bounded"
    UNBOUNDED = "unbounded"


def sensitivity(query: Query, neighbors: Neighbors, norm: Norm) -> Fraction:
    """Return the exact sensitivity of a query in a norm.

    Args:
      query: The query.
      neighbors: The neighboring relation of the budget.
      norm: L1, or squared L2.
    """
    measure = l1_sensitivity if norm is Norm.L1 else l2_sensitivity_sq
    return Fraction(measure(query, neighbors))


@lru_cache(maxsize=1024)
def l2_sensitivity_sq(query: Query, neighbors: Neighbors) -> int:
    """Return the squared L2 sensitivity of a query evaluated in every geounit of a geolevel.

    One record counts in one geounit and one cell j, with column q_j = kron_i f_ij. Let M_i be the
    largest |f_ij|^2 and D_i the largest |f_ij - f_ik|^2 of factor i.

    UNBOUNDED: a record moves the stacked answers by q_j, so the maximum is prod_i M_i.

    BOUNDED: a record moves them by q_j in one geounit and -q_k in another, at most 2 prod_i M_i,
    or by q_j - q_k within one. The maximum over both is
    max(2 prod_i M_i, max_i D_i prod_{l != i} M_l). It is attained: q_j and q_k may differ in
    factor i alone and share the longest column of every other factor. It is a bound: if
    <q_j, q_k> >= 0, then |q_j - q_k|^2 <= |q_j|^2 + |q_k|^2. Otherwise some factor has
    <f_ij, f_ik> < 0, and replacing each other factor's |f_lj|^2, |f_lk|^2 and |<f_lj, f_lk>| by
    M_l lowers none of the three terms of |q_j|^2 + |q_k|^2 + 2 |<q_j, q_k>|.

    Args:
      query: The query.
      neighbors: The neighboring relation of the budget.

    Returns:
      The exact squared L2 sensitivity for a geolevel of at least two geounits (an upper bound for
      one geounit). A partition query of at least two cells has 1 (UNBOUNDED) or 2 (BOUNDED).

    >>> from das.queries.query import parse_query
    >>> from das.schema import Attribute, Schema
    >>> schema = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> l2_sensitivity_sq(parse_query(schema, "sex"), Neighbors.BOUNDED)
    2
    >>> l2_sensitivity_sq(parse_query(schema, "residual(sex)"), Neighbors.BOUNDED)
    8
    """
    columns = [_exact(factor) for factor in query.factors]
    lengths = [(matrix * matrix).sum(0) for matrix in columns]
    longest = [int(squares.max()) for squares in lengths]
    product = math.prod(longest)
    if neighbors is Neighbors.UNBOUNDED:
        return product
    apart = [2 * product]
    for i, (matrix, squares) in enumerate(zip(columns, lengths, strict=True)):
        if (matrix < 0).any():  # without negative entries 2 M_i is never exceeded
            diameter = int((squares[:, None] + squares - 2 * (matrix.T @ matrix)).max())
            apart.append(diameter * math.prod(longest[:i] + longest[i + 1 :]))
    return max(apart)


def l1_sensitivity(query: Query, neighbors: Neighbors) -> int:
    """Return the L1 sensitivity of a query evaluated in every geounit of a geolevel.

    UNBOUNDED: max_j |q_j|_1 = prod_i max_j |f_ij|_1. BOUNDED: twice that, attained by a record
    that moves to another geounit; within a geounit |q_j - q_k|_1 <= |q_j|_1 + |q_k|_1.

    Args:
      query: The query.
      neighbors: The neighboring relation of the budget.

    Returns:
      The exact L1 sensitivity for a geolevel of at least two geounits.
    """
    product = math.prod(int(abs(_exact(f)).sum(0).max()) for f in query.factors)
    return product if neighbors is Neighbors.UNBOUNDED else 2 * product


def _exact(factor: Factor) -> npt.NDArray[Any]:
    """Return the matrix in a type in which |a|^2 + |b|^2 + 2 |<a, b>| of columns is exact.

    Sums of products up to 2^53 are exact in float64, in any order, and floats multiply fast.
    Python integers are always exact.
    """
    matrix = factor.matrix
    fits = 4 * len(matrix) * factor.largest**2 <= 2**53
    return matrix.astype(np.float64 if fits else object)
