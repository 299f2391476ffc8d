"""Predict the error of every table at every geolevel from public facts: budget, queries, tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from das.arrays import FloatArray
from das.queries.query import Query, parse_query
from das.strategy import Strategy, noisy_queries
from das.tree.classes import SubtreeClasses
from das.tree.errors import PredictedErrors, SpineModel, predict_errors
from das.tree.information import Information
from das.tree.model import precision
from geography.lattice import Lattice
from jobs.pipeline.config.mistakes import at, refuse_off_spine, refuse_unknown
from jobs.pipeline.documents.document import document
from jobs.pipeline.documents.manifest import NORMAL_90
from jobs.pipeline.plan import Plan

T = TypeVar("T")


@document
class TableErrors:
    """Predicted errors of the answers to a table.

    Attributes:
      rmse: Root mean squared error over all geounits.
      half_width_90: Within which 9 in 10 estimates lie.
      worst_rmse: Root mean squared error of the worst geounit.
    """

    rmse: float
    half_width_90: float
    worst_rmse: float


@document
class PredictedRow:
    """Predicted errors of a table at a geolevel.

    Attributes:
      table: Name of the table.
      answers: Its answers per geounit.
      geolevel: The geolevel.
      own: Of estimates from the geounit's own measurements.
      full: Of estimates from the measurements of the whole tree.
    """

    table: str
    answers: int
    geolevel: str
    own: TableErrors
    full: TableErrors


@dataclass(frozen=True, eq=False)
class Prediction:
    """Errors of a strategy.

    Attributes:
      model: Tree, measured queries and tables.
      errors: Mean and worst squared errors per kind of estimate.
    """

    model: SpineModel
    errors: Mapping[Information, PredictedErrors]


def subtree_classes(lattice: Lattice) -> SubtreeClasses:
    """Classes of equal subtrees of all geounits."""
    depth = len(lattice.spine.levels)
    return SubtreeClasses.of_tree([lattice.n_children(level) for level in range(depth)])


def parse_tables(plan: Plan, tables: Sequence[str]) -> tuple[Query, ...]:
    """Read tables by name, each once.

    Raises:
      SchemaError: One is not a query on the schema.
    """
    parsed = (parse_query(plan.schema, text) for text in tables)
    return tuple({query.name: query for query in parsed}.values())


def query_at(plan: Plan, text: object, where: str) -> Query:
    """Read a query; errors say where it stands.

    Raises:
      SchemaError: It is not a query on the schema.
    """
    with at(where):
        return parse_query(plan.schema, str(text))


def by_geolevel(plan: Plan, where: str, given: T | dict[str, T]) -> dict[str, T]:
    """Return what is given by geolevel; one value stands for all geolevels.

    Raises:
      ConfigError: A geolevel is unknown, or off the spine.
    """
    levels = plan.spine.levels
    if not isinstance(given, dict):
        return dict.fromkeys(levels, given)
    refuse_off_spine(where, given, levels, plan.census_spine.levels)
    refuse_unknown(where, "names an unknown geolevel", given, levels)
    return given


def spine_model(
    plan: Plan, tree: SubtreeClasses, measured: Sequence[Query], tables: Sequence[Query]
) -> SpineModel:
    """The model of errors of these tables when these queries may be measured.

    Raises:
      SchemaError: Its matrices would be too large.
    """
    exact = tuple(level.exact for level in plan.levels)
    return SpineModel(tree, tuple(measured), exact, tuple(tables))


def predict(
    plan: Plan, strategy: Strategy, tree: SubtreeClasses, tables: Sequence[Query]
) -> Prediction:
    """Predict the errors of a strategy at the budget of a plan.

    Raises:
      SchemaError: The measured queries need matrices that are too large.
    """
    model, precisions = noise_model(plan, strategy, tree, tables)
    errors = {kind: predict_errors(model, precisions, kind) for kind in Information}
    return Prediction(model, errors)


def noise_model(
    plan: Plan, strategy: Strategy, tree: SubtreeClasses, tables: Sequence[Query]
) -> tuple[SpineModel, FloatArray]:
    """The model of a strategy, and float64[chains, Q]: the precision of every noisy answer.

    Raises:
      SchemaError: The measured queries need matrices that are too large.
    """
    asked = {
        entry.query.name: entry.query
        for level in range(len(strategy.levels))
        for entry in strategy.measured(level)
    }
    model = spine_model(plan, tree, list(asked.values()), tables)
    column = {name: index for index, name in enumerate(asked)}
    precisions = np.zeros((len(tree.chains), len(asked)))
    for row, chain in enumerate(tree.chains):
        for noisy in noisy_queries(strategy, plan.budget, chain.first, chain.last):
            precisions[row, column[noisy.query.name]] = precision(noisy.mechanism)
    return model, precisions


def prediction_rows(plan: Plan, prediction: Prediction) -> tuple[PredictedRow, ...]:
    """One row per table and geolevel: root mean squared error, half width and worst geounit."""
    errors = prediction.errors
    return tuple(
        PredictedRow(
            table=table.name,
            answers=table.size,
            geolevel=name,
            own=_at(errors[Information.GEOUNIT], row, level),
            full=_at(errors[Information.TREE], row, level),
        )
        for row, table in enumerate(prediction.model.tables)
        for level, name in enumerate(plan.spine.levels)
    )


def _at(errors: PredictedErrors, row: int, level: int) -> TableErrors:
    rmse = float(errors.mean[row, level]) ** 0.5
    worst = float(errors.worst[row, level]) ** 0.5
    return TableErrors(rmse=rmse, half_width_90=NORMAL_90 * rmse, worst_rmse=worst)
