"""Answers, variances and covariances of product queries, from stored residual answers alone.

The residual rows Sub_i and the total have a right inverse [u_i | R_i] on their row space. A query
kron_i F_i with F_i in the row space of [1^T; Sub_i] is

    F_i = (F_i u_i) 1^T + (F_i R_i) Sub_i,

so its answer is the sum over S of kron(F_i R_i if i in S else F_i u_i) y_S. Only sets S of
attributes that the query does not sum out contribute. Two queries have the covariance

    sum_S noise_S kron(F_i R_i (G_i R_i)^T if i in S else F_i u_i (G_i u_i)^T),

over sets S of attributes that neither sums out (ResidualPlanner+, Theorem 7.2, for any rows).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.queries.factor import FactorKind
from das.queries.query import Query
from das.workload.attribute_sets import AttributeSets
from das.workload.incidence import locate_subsets
from das.workload.residual.bases import AttributeBasis, build_basis
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.reconstruction import (
    DEFAULT_BYTES,
    ResidualAnswers,
    decode_marginal,
    refuse_large_marginal,
)
from das.workload.workload import AttributeWorkload, Workload

# Relative, of factors outside the row space and of singular values that count as zero. Rounded
# residual rows have 14 bits, so their singular values lie far above. Defaults, not measured.
_IN_ROW_SPACE = 1e-7
_LEAST_SINGULAR = 1e-9


def read_residuals(
    names: Sequence[str], measured: Sequence[tuple[Query, float, IntArray]]
) -> ResidualAnswers:
    """Rebuild a residual plan from its integer queries, so that the planner is not needed again.

    Args:
      names: The attributes, in the order of the factors.
      measured: Query, noise variance and int64 answers of each residual set, all subsets included,
        in any order.

    Returns:
      Plan and answers. The workload of the plan lists the residual sets as plain marginals; ask it
      by `answer_product`, which refuses what the residual rows do not determine.

    Raises:
      SchemaError: An attribute has different residual rows in two queries, or a query is missing.
    """
    queries = [query for query, _, _ in measured]
    sizes = [factor.matrix.shape[1] for factor in queries[0].factors]
    attributes = tuple(map(AttributeWorkload.identity, names, sizes))
    bases = tuple(_read_basis(one, i, queries) for i, one in enumerate(attributes))
    rows = [np.array([query.kept], np.int64) for query in queries]
    sets = AttributeSets.from_rows(len(names), rows)
    order = np.argsort([int(sets.positions(row)[0]) for row in rows]).tolist()
    if sets.size < len(rows) or sets.closure().size > sets.size:
        raise SchemaError("residual queries", "are not one per subset of every marginal")
    noise = np.array([measured[i][1] for i in order])
    plan = ResidualPlan(Workload(attributes, sets, np.ones(sets.size)), bases, sets, noise)
    return ResidualAnswers(plan, np.concatenate([measured[i][2] for i in order]).astype(float))


def _read_basis(
    attribute: AttributeWorkload, axis: int, queries: Sequence[Query]
) -> AttributeBasis:
    """Return the basis of an attribute from the residual rows of its queries."""
    factors = [query.factors[axis] for query in queries]
    found = {each.key: each for each in factors if each.kind is not FactorKind.TOTAL}
    if len(found) > 1:
        raise SchemaError(f"attribute {attribute.name}", "has two different sets of residual rows")
    kept = [factor.matrix.astype(np.float64) for factor in found.values()]
    rows = np.concatenate([np.zeros((0, attribute.size)), *kept])
    # Integer rows are up to 2^14 long; at the length of the total the inverse keeps its digits.
    scale = max(float(np.sqrt((rows**2).sum(axis=0).max())), 1.0)
    together = np.concatenate([np.ones((1, attribute.size)), rows / scale])
    inverse = np.linalg.pinv(together, rcond=_LEAST_SINGULAR)
    return build_basis(attribute, rows, inverse[:, 0], inverse[:, 1:] / scale)


def _locate(plan: ResidualPlan, query: Query, members: Sequence[int]) -> IntArray:
    """Return the flat indexes of all subsets of a set of attributes, int64[2^k].

    Raises:
      SchemaError: The set was not planned.
    """
    try:
        return np.asarray(locate_subsets(plan.residuals, np.array([members], np.int64))[0])
    except SchemaError:
        raise SchemaError(
            f"query {query.name}",
            "asks for a marginal that was not planned",
            got=" * ".join(plan.workload.attributes[i].name for i in members),
            want="attributes that are together in one of the planned tables",
        ) from None


def _decode(plan: ResidualPlan, query: Query) -> tuple[IntArray, list[FloatArray]]:
    """Return the subsets of the attributes that a query keeps, and its rows on each attribute.

    Returns:
      int64[2^k], flat indexes of the subsets, and F_i [u_i | R_i], float64[m_i, 1 + q_i], per
      attribute.

    Raises:
      SchemaError: The residual rows do not determine the query, or it was not planned.
    """
    subsets, out = _locate(plan, query, query.kept), []
    for i in query.kept:
        basis, matrix = plan.bases[i], query.factors[i].matrix.astype(np.float64)
        decoded = matrix @ basis.decoder
        again = decoded[:, :1] + decoded[:, 1:] @ basis.subtraction
        if np.abs(again - matrix).max() > _IN_ROW_SPACE * np.abs(matrix).max():
            raise SchemaError(
                f"query {query.name}",
                "is not determined by what was measured",
                got=f"levels of {plan.workload.attributes[i].name} that its `bases` do not tell "
                "apart",
                want="sums of answers to its base",
            )
        out.append(decoded)
    return subsets, out


def answer_product(
    residuals: ResidualAnswers, query: Query, *, most_bytes: int = DEFAULT_BYTES
) -> FloatArray:
    """Answer a product query: the best linear unbiased estimate from the residual answers.

    Args:
      residuals: The residual answers.
      query: Any query over the attributes of the plan.
      most_bytes: Most memory for the work.

    Returns:
      float64[m], in the order of the answers of the query.

    Raises:
      SchemaError: The residual rows do not determine the query, it was not planned, or it is too
        large.
    """
    plan, members = residuals.plan, query.kept
    subsets, decoded = _decode(plan, query)
    largest = math.prod(max(each.shape) for each in decoded)
    names = [plan.workload.attributes[i].name for i in members]
    refuse_large_marginal(names, largest, most_bytes)
    rows = np.array([members], np.int64)
    return decode_marginal(residuals, rows, subsets[None, :], decoded).reshape(-1)


def product_variances(plan: ResidualPlan, query: Query) -> FloatArray:
    """Return the variance of every answer of a product query, float64[m].

    Raises:
      SchemaError: As `answer_product`.
    """
    _, decoded = _decode(plan, query)
    parts = [np.column_stack([rows[:, 0] ** 2, (rows[:, 1:] ** 2).sum(1)]) for rows in decoded]
    return plan.contract(np.array(query.kept, np.int64), parts).reshape(-1)


def product_covariances(plan: ResidualPlan, first: Query, second: Query) -> FloatArray:
    """Return the covariances of the answers of two product queries, float64[m, m'].

    Raises:
      SchemaError: As `answer_product`.
    """
    left, right = sides = [
        dict(zip(query.kept, _decode(plan, query)[1], strict=True)) for query in (first, second)
    ]
    common = sorted({*left} & {*right})
    noise = plan.noise[_locate(plan, first, common)]
    total = np.ones((1, 1))
    out = np.zeros((first.size, second.size))
    for variance, mask in zip(
        noise.tolist(), itertools.product((False, True), repeat=len(common)), strict=True
    ):
        inside = {i for i, is_in in zip(common, mask, strict=True) if is_in}
        term = variance * total
        for i in sorted({*left, *right}):
            columns = slice(1, None) if i in inside else slice(0, 1)
            one, other = (side[i][:, columns] if i in side else total for side in sides)
            term = np.kron(term, one @ other.T)
        out += term
    return out
