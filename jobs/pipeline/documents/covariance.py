"""Covariances of pairs of answers: how they are asked for, and what is stated of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from das.arrays import FloatArray
from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.documents.document import document

MOST_PAIRS = 100_000
"""Most pairs of answers of a geolevel; their table is for people and spreadsheets."""

_ZERO = 1e-9  # of a variance over the largest there: what invariants give has no error


@document
class Covariance:
    """Covariance of two estimates.

    Attributes:
      covariance: In persons squared, averaged over the geounits of the geolevel.
      correlation: Over the root of both variances; none where one is 0.
    """

    covariance: float
    correlation: float | None


def parse_pair(schema: Schema, text: str) -> tuple[Query, Query]:
    """Read two queries, separated by a semicolon; one stands for itself twice.

    Raises:
      ConfigError: There are more than two, or their answers make too many pairs.
      SchemaError: One is not a query on the schema.
    """
    parts = text.split(";")
    if len(parts) > 2:
        raise ConfigError(
            "--covariance",
            "takes one query or two",
            got=f"{len(parts)} between semicolons",
            want='such as "sex * age; total"',
        )
    first, second = parse_query(schema, parts[0]), parse_query(schema, parts[-1])
    if first.size * second.size > MOST_PAIRS:
        raise ConfigError(
            "--covariance",
            "asks for too many pairs of answers",
            got=f"{first.size} x {second.size}",
            want=f"at most {MOST_PAIRS}",
            remedy="ask for recodes of fewer groups",
        )
    return first, second


def correlations(
    covariances: FloatArray, variances: FloatArray, others: FloatArray
) -> list[list[Covariance]]:
    """Covariances float64[m, n] with their correlations, given float64[m] and float64[n]."""
    scale = max(float(variances.max()), float(others.max()))
    rows = []
    for row, variance in zip(covariances.tolist(), variances.tolist(), strict=True):
        cells = []
        for value, other in zip(row, others.tolist(), strict=True):
            is_open = min(variance, other) > _ZERO * scale
            ratio = value / math.sqrt(variance * other) if is_open else None
            cells.append(Covariance(covariance=value if is_open else 0.0, correlation=ratio))
        rows.append(cells)
    return rows


def pairs_of_answers(pair: Sequence[Query]) -> list[tuple[int, int, str, str]]:
    """Positions and labels; of a query with itself every pair once."""
    labels = [query.labels() for query in pair]
    same = pair[0].name == pair[1].name
    return [
        (i, j, answer, other)
        for i, answer in enumerate(labels[0])
        for j, other in enumerate(labels[1])
        if not same or i <= j
    ]
