"""Predict covariances between answers of a plan, before any data are read.

Estimates of different answers share noise: two tables that come from `detailed`, or a total and its
parts. The variance of a sum or a difference of published answers depends on their covariance.
Covariances depend only on the budget, the noisy and exact queries, and the list of geounits.
"""

from __future__ import annotations

from dataclasses import replace

from das.queries.query import Query
from das.tree.classes import SubtreeClasses
from das.tree.components import SpineComponents
from das.tree.coordinates import Coordinates
from das.tree.errors import solve_spine
from das.tree.information import Information
from jobs.design.planning.errors import noise_model
from jobs.pipeline.documents.covariance import Covariance, correlations, pairs_of_answers
from jobs.pipeline.documents.document import document
from jobs.pipeline.plan import Plan


@document
class CovarianceRow:
    """Covariance of two answers at a geolevel.

    Attributes:
      geolevel: The geolevel.
      query: Query of the first answer.
      answer: Label of the first answer.
      other_query: Query of the second answer.
      other_answer: Label of the second answer.
      own: Covariance of estimates from the measurements of the geounit alone.
      full: Covariance of estimates from the measurements of the whole tree.
    """

    geolevel: str
    query: str
    answer: str
    other_query: str
    other_answer: str
    own: Covariance
    full: Covariance


def predict_covariances(
    plan: Plan, tree: SubtreeClasses, pair: tuple[Query, Query]
) -> tuple[CovarianceRow, ...]:
    """Predict the covariance of every answer of one query with every answer of another.

    Args:
      plan: Budget, invariants and the measured queries.
      tree: Classes of equal subtrees.
      pair: Any two queries.

    Returns:
      One row per geolevel and pair of answers, for the best linear unbiased estimates.

    Raises:
      SchemaError: The measured queries need matrices that are too large.
    """
    model, precisions = noise_model(plan, plan.strategy, tree, [pair[0]])
    components = SpineComponents.of_queries(model.answered)
    model = replace(model, spine_components=components)
    coordinates = Coordinates(components)

    def by_level(kind: Information) -> list[list[list[Covariance]]]:
        matrices = solve_spine(model, precisions, kind).mean_covariances()
        values = coordinates.covariances(*pair, matrices)
        ends = [coordinates.variances(query, matrices) for query in pair]
        return [correlations(*level) for level in zip(values, *ends, strict=True)]

    own, full = by_level(Information.GEOUNIT), by_level(Information.TREE)
    return tuple(
        CovarianceRow(
            geolevel=geolevel,
            query=pair[0].name,
            answer=answer,
            other_query=pair[1].name,
            other_answer=other,
            own=own[level][i][j],
            full=full[level][i][j],
        )
        for level, geolevel in enumerate(plan.spine.levels)
        for i, j, answer, other in pairs_of_answers(pair)
    )
