"""Covariances of pairs of answers: reading requested pairs, and their results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from das.arrays import FloatArray
from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.documents.document import document

MOST_PAIRS = 100_000
"""Largest number of pairs of answers per geolevel, so that a spreadsheet can hold the table."""

_ZERO = 1e-9  # variances below this share of the largest count as 0: invariants fix these answers


@document
class Covariance:
    """Covariance of two estimates.

    Attributes:
      covariance: Covariance in squared records, averaged over the geounits of the geolevel.
      correlation: Correlation of the two estimates; null if one variance is 0.
    """

    covariance: float
    correlation: float | None


def parse_pair(schema: Schema, text: str) -> tuple[Query, Query]:
    """Read two queries, separated by a semicolon; a single query is paired with itself.

    Raises:
      ConfigError: The text has more than two queries, or their answers form too many pairs.
      SchemaError: A text is not a query on the schema.
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
    refuse_many_pairs(first, second)
    return first, second


def refuse_many_pairs(first: Query, second: Query) -> None:
    """Refuse two queries whose answers form too many pairs.

    Raises:
      ConfigError: There are more than `MOST_PAIRS`.
    """
    if first.size * second.size > MOST_PAIRS:
        raise ConfigError(
            "--covariance",
            "requests too many pairs of answers",
            got=f"{first.size} x {second.size}",
            want=f"at most {MOST_PAIRS}",
            remedy="ask for recodes of fewer groups",
        )


def correlations(
    covariances: FloatArray, variances: FloatArray, others: FloatArray
) -> list[list[Covariance]]:
    """Return covariances float64[m, n] with correlations, given variances float64[m], [n]."""
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
    """List pairs of answers: indices and labels; pairs of a query with itself only once."""
    labels = [query.labels() for query in pair]
    same = pair[0].name == pair[1].name
    return [
        (i, j, answer, other)
        for i, answer in enumerate(labels[0])
        for j, other in enumerate(labels[1])
        if not same or i <= j
    ]


def covariance_rows(
    pair: Sequence[Query], values: FloatArray, ends: Sequence[FloatArray]
) -> list[dict[str, object]]:
    """Return one row per pair of answers: queries, labels, covariance and correlation.

    Args:
      pair: The two queries.
      values: float64[m, n], covariances of their answers.
      ends: Variances of the answers of each, float64[m] and float64[n].
    """
    pairs = correlations(values, *ends)
    columns = ("query", "label", "other_query", "other_label")
    return [
        dict(zip(columns, (pair[0].name, answer, pair[1].name, other), strict=True))
        | vars(pairs[i][j])
        for i, j, answer, other in pairs_of_answers(pair)
    ]
