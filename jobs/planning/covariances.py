"""Covariances between answers of a plan, before any data are read.

Estimates of different answers share noise: of tables that both come from detailed, of a total and
its parts. Who adds or compares published answers needs their covariances, which depend on budget,
queries and geounits alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from das.arrays import FloatArray
from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.schema import Schema
from das.tree.classes import SubtreeClasses
from das.tree.components import SpineComponents
from das.tree.coordinates import Coordinates
from das.tree.errors import solve_spine
from das.tree.information import Information
from jobs.documents.document import document
from jobs.plan import Plan
from jobs.planning.errors import noise_model

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


@document
class CovarianceRow:
    """Two answers at a geolevel.

    Attributes:
      geolevel: The geolevel.
      query: Of the first answer.
      answer: Its label.
      other_query: Of the second.
      other_answer: Its label.
      own: Of estimates from the geounit's own measurements.
      full: Of estimates from the measurements of the whole tree.
    """

    geolevel: str
    query: str
    answer: str
    other_query: str
    other_answer: str
    own: Covariance
    full: Covariance


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


def predict_covariances(
    plan: Plan, tree: SubtreeClasses, pair: tuple[Query, Query]
) -> tuple[CovarianceRow, ...]:
    """Predict the covariance of every answer of one query with every answer of another.

    Args:
      plan: Budget, invariants and the measured queries.
      tree: Classes of equal subtrees.
      pair: Any two queries.

    Returns:
      A row per geolevel and pair of answers, of the best unbiased linear estimates.

    Raises:
      SchemaError: The measured queries need matrices that are too large.
    """
    model, precisions = noise_model(plan, plan.strategy, tree, [pair[0]])
    components = SpineComponents.of_queries(model.answered)
    model = replace(model, spine_components=components)
    coordinates = Coordinates(components)
    found: dict[Information, list[list[list[Covariance]]]] = {}
    for kind in Information:
        matrices = solve_spine(model, precisions, kind).mean_covariances()
        values = coordinates.covariances(*pair, matrices)
        ends = [coordinates.variances(query, matrices) for query in pair]
        found[kind] = [correlations(*level) for level in zip(values, *ends, strict=True)]
    return tuple(
        CovarianceRow(
            geolevel=geolevel,
            query=pair[0].name,
            answer=answer,
            other_query=pair[1].name,
            other_answer=other,
            own=found[Information.OWN][level][i][j],
            full=found[Information.FULL][level][i][j],
        )
        for level, geolevel in enumerate(plan.spine.levels)
        for i, j, answer, other in pairs_of_answers(pair)
    )


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
