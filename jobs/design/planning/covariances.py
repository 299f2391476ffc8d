"""Covariances between answers of a plan, before any data are read.

Estimates of different answers share noise: of tables that both come from detailed, of a total and
its parts. Who adds or compares published answers needs their covariances, which depend on budget,
queries and geounits alone.
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
            own=found[Information.GEOUNIT][level][i][j],
            full=found[Information.TREE][level][i][j],
        )
        for level, geolevel in enumerate(plan.spine.levels)
        for i, j, answer, other in pairs_of_answers(pair)
    )
