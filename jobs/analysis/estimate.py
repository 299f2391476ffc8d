"""The command `das estimate`: one query in any areas, with standard errors and intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import typer

from das.arrays import Geocodes
from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.tree.coordinates import Coordinates
from das.tree.intervals import IntervalKind
from das.tree.passes import Moments
from jobs.analysis.area_files import AreaFile, read_areas
from jobs.analysis.geocodes import NamedGeounits
from jobs.analysis.requests import EstimateRequest, IntervalSettings
from jobs.analysis.results import print_rows
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.documents.covariance import covariance_rows, parse_pair
from jobs.pipeline.plan import Plan
from jobs.pipeline.printable import printable
from jobs.pipeline.release.estimate import AreaEstimator, LevelEstimator
from jobs.pipeline.release.public_bounds import Bounds
from jobs.pipeline.storage.layout import ReleaseLayout

Areas = Mapping[str, Sequence[str] | Geocodes]

_NUMBERS = ("estimate", "standard_error", "lower", "upper")
_IDENTITY = dict.fromkeys(("area", "query", "label"), pa.string())
_ROWS = pa.schema(
    _IDENTITY
    | dict.fromkeys((*_NUMBERS, "confidence"), pa.float64())
    | dict.fromkeys(("simultaneous", "positive"), pa.bool_())
)
_COVARIANCES = pa.schema(
    _IDENTITY
    | dict.fromkeys(("other_query", "other_label"), pa.string())
    | dict.fromkeys(("covariance", "correlation"), pa.float64())
)
_ANY_CONFIDENCE = 0.9  # covariances do not depend on it

CSV_START = b'"area","query","label"'
"""First bytes of written CSV files, by which a later call knows that it may replace a file."""


def answer_request(
    resolved: Resolved, request: EstimateRequest, intervals: IntervalSettings
) -> tuple[pa.Table, Sequence[str]]:
    """Answer a request of `das estimate`; return the table and warnings about the area file.

    Raises:
      ConfigError, InputError, SchemaError: As `estimate_areas` and `read_areas`.
    """
    plan, release = resolved.plan, resolved.last.release
    known, file = NamedGeounits(plan, release), AreaFile({}, ())
    if request.area is not None:
        file = read_areas(request.area, known.leaves, plan.leaf.name)
    codes = known.named(request.geounit, request.geolevel)
    if request.covariance is None:
        table = estimate_areas(plan, release, request.query, file.areas, codes, intervals)
        return table, file.notes
    pair = parse_pair(plan.schema, f"{request.query}; {request.covariance}")
    return estimate_covariances(plan, release, pair, file.areas, codes), file.notes


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
      settings: Confidence level and kind of the intervals.

    Returns:
      Table with one row per area or geounit and answer.

    Raises:
      ConfigError: No area is named, or positive intervals are requested for answers that can be
        negative.
      InputError: A geounit does not exist.
      SchemaError: The query does not parse.
    """
    parsed = parse_query(plan.schema, query)
    if settings.positive and parsed.is_signed:
        raise ConfigError(
            f"estimate, query {parsed.name}", "can have negative answers", want="no --positive"
        )
    levels = LevelEstimator(plan, release, (parsed,), settings.confidence)
    estimator = AreaEstimator(levels, (parsed,))
    return pa.concat_tables(
        area_rows(estimator.coordinates, parsed, area, moments, settings, bounds)
        for area, moments, bounds in _estimates(estimator, areas, geounits)
    )


def estimate_covariances(
    plan: Plan,
    release: ReleaseLayout,
    pair: tuple[Query, Query],
    areas: Areas,
    geounits: Sequence[str],
) -> pa.Table:
    """Compute covariances of the estimates of two queries in areas and geounits.

    Args:
      plan: The plan.
      release: A release whose estimate stage is complete.
      pair: Any two queries on the schema; both can be the same.
      areas: Leaf geocodes per area.
      geounits: Geocodes of any geolevel.

    Returns:
      Table with one row per area or geounit and pair of answers.

    Raises:
      ConfigError: No area is named.
      InputError: A geounit does not exist.
    """
    estimator = AreaEstimator(LevelEstimator(plan, release, pair, _ANY_CONFIDENCE), pair)
    rows: list[dict[str, object]] = []
    for area, moments, _ in _estimates(estimator, areas, geounits):
        matrices = tuple(part[moments.kind] for part in moments.matrices)
        values = estimator.coordinates.covariances(*pair, matrices)[0]
        ends = [estimator.coordinates.variances(query, matrices)[0] for query in pair]
        rows += [{"area": area, **row} for row in covariance_rows(pair, values, ends)]
    return pa.Table.from_pylist(rows, schema=_COVARIANCES)


def _estimates(
    estimator: AreaEstimator, areas: Areas, geounits: Sequence[str]
) -> Iterator[tuple[str, Moments, Bounds | None]]:
    """Yield name, estimate and public bounds of the first query, of every geounit and area.

    Areas, and geounits off the spine, have no bounds.
    """
    if not areas and not geounits:
        raise ConfigError("estimate", "names no area", want="--area, --geounit or --geolevel")
    named = NamedGeounits(estimator.estimator.plan, estimator.estimator.release)
    for code in geounits:
        on_spine = named.spine_code(code)
        if on_spine is None:  # the geounit is not on the spine: sum its leaves
            yield code, estimator.blocks(named.on_spine(named.leaves_of(code))), None
        else:
            yield code, estimator.geounit(on_spine), estimator.bounds(on_spine)
    for name, codes in areas.items():
        yield name, estimator.blocks(named.on_spine(codes)), None


def area_rows(
    coordinates: Coordinates,
    query: Query,
    area: str,
    moments: Moments,
    settings: IntervalSettings,
    bounds: Bounds | None,
) -> pa.Table:
    """Return the rows of one area: estimate, standard error and interval of every answer."""
    estimates = coordinates.answer(query, moments.values)
    errors = np.sqrt(coordinates.variances(query, moments.matrices))[moments.kind]
    kind, rank = IntervalKind(**vars(settings)), coordinates.size
    ends = kind.around(estimates, errors, rank, *(() if bounds is None else bounds))
    numbers = [each[0] for each in (estimates, errors, ends.lower, ends.upper)]
    stated = [[each] * query.size for each in vars(settings).values()]
    names = [[name] * query.size for name in (area, query.name)]
    return pa.table([*names, query.labels(), *numbers, *stated], schema=_ROWS)


def print_estimates(table: pa.Table, *, as_json: bool) -> None:
    """Print estimates or their covariances; those of surveys have no area."""
    rows: list[dict[str, Any]] = table.to_pylist()
    if as_json:
        typer.echo(json.dumps(rows))
        return
    rows = printable(rows)
    where = [name for name in ("area",) if name in table.column_names]
    if "covariance" in table.column_names:
        titles = (*where, "answer", "other answer", "covariance", "correlation")
        cells = []
        for row in rows:
            answers = [f"{row[f'{of}query']}: {row[f'{of}label']}" for of in ("", "other_")]
            ratio = "exact" if row["correlation"] is None else f"{row['correlation']:+.3f}"
            shown = [f"{row['covariance']:,.1f}", ratio]
            cells.append([*(row[name] for name in where), *answers, *shown])
        print_rows(titles, cells)
        return
    cells = [
        [*(row[name] for name in where), row["label"], *(f"{row[name]:,.1f}" for name in _NUMBERS)]
        for row in rows
    ]
    print_rows((*where, "answer", *(name.replace("_", " ") for name in _NUMBERS)), cells)
