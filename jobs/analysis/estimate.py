"""The command `das estimate`: one query in any areas, with standard errors and intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import typer
from rich.box import SIMPLE
from rich.table import Table

from das.arrays import Geocodes
from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.tree.coordinates import Coordinates
from das.tree.intervals import (
    central_intervals,
    normal_factor,
    positive_intervals,
    positive_simultaneous_factor,
    simultaneous_factor,
)
from das.tree.passes import Moments
from jobs.analysis.geocodes import NamedGeounits
from jobs.analysis.results import ResultFile
from jobs.pipeline.documents.covariance import Covariance, correlations, pairs_of_answers
from jobs.pipeline.plan import Plan
from jobs.pipeline.printable import printable, result_console
from jobs.pipeline.release.estimate import AreaEstimator, LevelEstimator
from jobs.pipeline.storage.layout import ReleaseLayout

Areas = Mapping[str, Sequence[str] | Geocodes]

_ROWS = pa.schema(
    [
        ("area", pa.string()),
        ("query", pa.string()),
        ("label", pa.string()),
        ("estimate", pa.float64()),
        ("standard_error", pa.float64()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("confidence", pa.float64()),
        ("simultaneous", pa.bool_()),
        ("positive", pa.bool_()),
    ]
)

_COVARIANCES = pa.schema(
    [
        ("area", pa.string()),
        ("query", pa.string()),
        ("label", pa.string()),
        ("other_query", pa.string()),
        ("other_label", pa.string()),
        ("covariance", pa.float64()),
        ("correlation", pa.float64()),
    ]
)
_ANY_CONFIDENCE = 0.9  # covariances do not depend on it

CSV_START = b'"area","query","label"'
"""How CSV files start that are written, and may be written again."""


@dataclass(frozen=True)
class IntervalSettings:
    """What intervals are wanted.

    Attributes:
      confidence: Probability of covering the truth, more than 1/2.
      simultaneous: Whether of all answers of the table at once.
      positive: Whether truths below zero are excluded.
    """

    confidence: float
    simultaneous: bool
    positive: bool


def estimate_areas(
    plan: Plan,
    release: ReleaseLayout,
    query: str,
    areas: Areas,
    geounits: Sequence[str],
    settings: IntervalSettings,
) -> pa.Table:
    """Estimate a query in areas and geounits.

    Args:
      plan: The plan.
      release: A release whose estimate stage is complete.
      query: Any query on the schema.
      areas: Leaf geocodes per area.
      geounits: Geocodes of any geolevel.
      settings: The intervals.

    Returns:
      One row per area or geounit and answer.

    Raises:
      ConfigError: No area is named, or intervals for answers that may be negative are asked to be
        positive.
      InputError: A geounit does not exist.
      SchemaError: The query does not parse.
    """
    parsed = parse_query(plan.schema, query)
    if settings.positive and any(factor.matrix.min() < 0 for factor in parsed.factors):
        raise ConfigError(
            f"estimate, query {parsed.name}", "may have negative answers", want="no --positive"
        )
    one = AreaEstimator(LevelEstimator(plan, release, (parsed,), settings.confidence), (parsed,))
    return pa.concat_tables(
        area_rows(one.coordinates, parsed, area, moments, settings)
        for area, moments in _moments(one, areas, geounits)
    )


def estimate_covariances(
    plan: Plan,
    release: ReleaseLayout,
    pair: tuple[Query, Query],
    areas: Areas,
    geounits: Sequence[str],
) -> pa.Table:
    """Covariances of the estimates of two queries in areas and geounits.

    Args:
      plan: The plan.
      release: A release whose estimate stage is complete.
      pair: Any two queries on the schema, or one twice.
      areas: Leaf geocodes per area.
      geounits: Geocodes of any geolevel.

    Returns:
      One row per area or geounit and pair of answers.

    Raises:
      ConfigError: No area is named.
      InputError: A geounit does not exist.
    """
    one = AreaEstimator(LevelEstimator(plan, release, pair, _ANY_CONFIDENCE), pair)
    rows: list[tuple[object, ...]] = []
    for area, moments in _moments(one, areas, geounits):
        matrices = tuple(part[moments.kind] for part in moments.matrices)
        values = one.coordinates.covariances(*pair, matrices)[0]
        ends = [one.coordinates.variances(query, matrices)[0] for query in pair]
        found = correlations(values, *ends)
        rows += [
            (area, pair[0].name, answer, pair[1].name, other, *_numbers(found[i][j]))
            for i, j, answer, other in pairs_of_answers(pair)
        ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(columns, schema=_COVARIANCES)


def _numbers(found: Covariance) -> tuple[float, float | None]:
    return found.covariance, found.correlation


def _moments(
    one: AreaEstimator, areas: Areas, geounits: Sequence[str]
) -> Iterator[tuple[str, Moments]]:
    """The estimate of every geounit and area by its name."""
    if not areas and not geounits:
        raise ConfigError("estimate", "names no area", want="--area, --geounit or --geolevel")
    named = NamedGeounits(one.estimator.plan, one.estimator.release)
    for code in geounits:
        own = named.spine_code(code)
        if own is None:  # the sum of its leaves
            yield code, one.blocks(named.on_spine(named.leaves_of(code)))
        else:
            yield code, one.geounit(own)
    for name, codes in areas.items():
        yield name, one.blocks(named.on_spine(codes))


def area_rows(
    coordinates: Coordinates,
    query: Query,
    area: str,
    moments: Moments,
    settings: IntervalSettings,
) -> pa.Table:
    """Rows of one area: estimate, standard error and interval of every answer."""
    estimates = coordinates.answer(query, moments.values)
    errors = np.sqrt(coordinates.variances(query, moments.matrices))[moments.kind]
    uncertain = int((errors > 0).sum())
    factor = normal_factor(settings.confidence)
    if settings.simultaneous and settings.positive:
        factor = positive_simultaneous_factor(settings.confidence, uncertain)
    elif settings.simultaneous:
        rank = min(uncertain, coordinates.size)
        factor = simultaneous_factor(settings.confidence, uncertain, rank)
    intervals = positive_intervals if settings.positive else central_intervals
    found = intervals(estimates, errors, factor)
    size = query.size
    columns = [
        [area] * size,
        [query.name] * size,
        query.labels(),
        estimates[0],
        errors[0],
        found.lower[0],
        found.upper[0],
        [settings.confidence] * size,
        [settings.simultaneous] * size,
        [settings.positive] * size,
    ]
    return pa.table(columns, schema=_ROWS)


def report_estimates(table: pa.Table, file: ResultFile, *, as_json: bool) -> None:
    """Write estimates to a file if one is named, and print them otherwise.

    Raises:
      OutputError: The file cannot be written.
    """
    if file.path is not None:
        file.write(table)
        typer.echo(printable(f"{file.path}  publishable"))
        return
    rows: list[dict[str, Any]] = table.to_pylist()
    if as_json:
        typer.echo(json.dumps(rows))
        return
    if table.schema.equals(_COVARIANCES):
        _print_covariances(rows)
        return
    shown = Table("area", "answer", "estimate", "standard error", "lower", "upper", box=SIMPLE)
    for row in rows:
        numbers = (f"{row[k]:,.1f}" for k in ("estimate", "standard_error", "lower", "upper"))
        shown.add_row(printable(row["area"]), printable(row["label"]), *numbers)
    result_console().print(shown)


def _print_covariances(rows: Sequence[Mapping[str, Any]]) -> None:
    shown = Table("area", "answer", "other answer", "covariance", "correlation", box=SIMPLE)
    for row in rows:
        ratio = row["correlation"]
        shown.add_row(
            printable(row["area"]),
            printable(f"{row['query']}: {row['label']}"),
            printable(f"{row['other_query']}: {row['other_label']}"),
            f"{row['covariance']:,.1f}",
            "exact" if ratio is None else f"{ratio:+.3f}",
        )
    result_console().print(shown)
