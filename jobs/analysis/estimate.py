"""The command `das estimate`: one query in any areas, with standard errors and intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import typer
from rich.box import SIMPLE
from rich.table import Table

from das.errors import ConfigError, OutputError
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
from jobs.analysis.estimate_area import AreaEstimator
from jobs.plan import Plan
from jobs.printable import printable, result_console
from jobs.release.estimate import LevelEstimator
from jobs.storage.files import refuse_foreign
from jobs.storage.geography import read_public_geocodes
from jobs.storage.layout import ReleaseLayout

Areas = Mapping[str, Sequence[str]]

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

# How the files start that are written, and may be written again.
_STARTS = {"--parquet": b"PAR1", "--csv": b'"area","query","label"'}


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


def check_places(parquet: Path | None, csv: Path | None) -> None:
    """Check where estimates are to be written, before they are made.

    Raises:
      ConfigError: Both are given, or a name ends as that of another format.
      OutputError: The folder does not exist, or another file has the name.
    """
    if parquet is not None and csv is not None:
        raise ConfigError("das estimate", "takes --parquet or --csv, not both")
    for option, path, others in (
        ("--parquet", parquet, {".csv": "--csv", ".txt": "--csv", ".tsv": "--csv"}),
        ("--csv", csv, {".parquet": "--parquet", ".pq": "--parquet"}),
    ):
        if path is None:
            continue
        other = others.get(path.suffix.lower())
        if other is not None:
            raise ConfigError(
                f"das estimate {option}",
                "names a file of another format",
                got=path.name,
                remedy=f"use {other} {path}",
            )
        if not path.parent.is_dir():
            raise OutputError(str(path.parent), "is not a folder", remedy="make it first")
        refuse_foreign(path, _STARTS[option], f"what `das estimate {option}` wrote before")


def leaf_geocodes(plan: Plan, release: ReleaseLayout) -> list[str]:
    """Geocodes of all leaf geounits of a release, ascending."""
    codes: list[str] = read_public_geocodes(release, plan.leaf.name).tolist()
    return codes


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
    if not areas and not geounits:
        raise ConfigError("estimate", "names no area", want="--area or --geounit")
    if settings.positive and any(factor.matrix.min() < 0 for factor in parsed.factors):
        raise ConfigError(
            f"estimate, query {parsed.name}", "may have negative answers", want="no --positive"
        )
    one = AreaEstimator(LevelEstimator(plan, release, (parsed,), settings.confidence), parsed)
    rows = [
        *(area_rows(one.coordinates, parsed, c, one.geounit(c), settings) for c in geounits),
        *(
            area_rows(one.coordinates, parsed, name, one.blocks(codes), settings)
            for name, codes in areas.items()
        ),
    ]
    return pa.concat_tables(rows)


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


def report_estimates(
    table: pa.Table, parquet: Path | None, csv: Path | None, *, as_json: bool
) -> None:
    """Write estimates to a file if one is named, and print them otherwise.

    Raises:
      OutputError: The file cannot be written.
    """
    path = parquet or csv
    if path is not None:
        try:
            (pq.write_table if parquet else pa_csv.write_csv)(table, path)
        except OSError as error:
            raise OutputError(str(path), "cannot be written", got=error.strerror) from None
        typer.echo(printable(f"{path}  publishable"))
        return
    rows: list[dict[str, Any]] = table.to_pylist()
    if as_json:
        typer.echo(json.dumps(rows))
        return
    shown = Table("area", "answer", "estimate", "standard error", "lower", "upper", box=SIMPLE)
    for row in rows:
        numbers = (f"{row[k]:,.1f}" for k in ("estimate", "standard_error", "lower", "upper"))
        shown.add_row(printable(row["area"]), printable(row["label"]), *numbers)
    result_console().print(shown)
