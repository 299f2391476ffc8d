"""Tables of protected counts as CSV, and table H1 of the redistricting data.

Made from the release alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from das.arrays import ObjectArray
from das.histograms import Histograms
from das.queries.query import Query, parse_query
from jobs.plan import Plan
from jobs.storage.csv import CsvPartWriter
from jobs.storage.dataset import PartFile, is_published, publish
from jobs.storage.geography import read_public_geocodes
from jobs.storage.histograms import read_counts
from jobs.storage.layout import ReleaseLayout
from jobs.storage.place import Place
from jobs.tasks.batches import Batch, geounit_batches
from jobs.tasks.executor import Tasks


def write_tables(
    plan: Plan,
    release: ReleaseLayout,
    queries: Sequence[str],
    tasks: Tasks,
) -> None:
    """Write a CSV table of protected counts per geolevel; complete ones are kept.

    One row per geounit, one column per answer of each query.
    """
    parsed = [parse_query(plan.schema, text) for text in queries]

    def tabulate(geocodes: ObjectArray, counts: Histograms) -> pa.Table:
        return answer_table(geocodes, counts, parsed)

    _write_csv(plan, release, tasks, _Table(release.tables, tabulate, tuple(parsed)))


def write_h1(
    plan: Plan,
    release: ReleaseLayout,
    query: Query,
    tasks: Tasks,
) -> None:
    """Write table H1 of the redistricting data per geolevel; complete ones are kept.

    Args:
      plan: The plan of the units.
      release: Has their counts.
      query: Attribute or recode with the levels `occupied` and `vacant`; others are no housing
        units.
      tasks: What runs the step.
    """

    def tabulate(geocodes: ObjectArray, counts: Histograms) -> pa.Table:
        return h1_table(geocodes, counts, query)

    _write_csv(plan, release, tasks, _Table(release.h1, tabulate, (query,)))


@dataclass(frozen=True, eq=False)
class _Table:
    """A table of every geolevel.

    Attributes:
      dataset: Where that of a geolevel goes.
      tabulate: Rows of some geounits.
      queries: What it is made of.
    """

    dataset: Callable[[str], Place]
    tabulate: Callable[[ObjectArray, Histograms], pa.Table]
    queries: tuple[Query, ...]


def _write_csv(plan: Plan, release: ReleaseLayout, tasks: Tasks, table: _Table) -> None:
    names = [query.name for query in table.queries]
    for level in plan.levels:
        dataset = table.dataset(level.name)
        if is_published(dataset):
            continue

        def run(batch: Batch, geolevel: str = level.name, dataset: Place = dataset) -> PartFile:
            geocodes = read_public_geocodes(release, geolevel, batch.low, batch.high)
            counts = read_counts(release, geolevel, geocodes, plan.schema.size)
            writer = CsvPartWriter(dataset)
            writer.write(table.tabulate(geocodes, counts))
            return writer.close()

        size = tasks.sizing.write_geounits
        batches = geounit_batches(release, level, tasks.batches, size.most, size.least)
        parts = tasks.run(f"write {dataset.parent.name} {level.name}", batches, run)
        publish(dataset, parts, {"queries": names, "not_for_release": plan.not_for_release})


def answer_table(
    geocodes: Sequence[str] | ObjectArray, histograms: Histograms, queries: Sequence[Query]
) -> pa.Table:
    """Wide table: geocode, then "query: row label" columns with int64 answers."""
    columns: dict[str, pa.Array] = {
        "geocode": pa.array(np.asarray(geocodes, dtype=object), pa.string())
    }
    for query in queries:
        answers = query.answer(histograms)
        for index, label in enumerate(query.labels()):
            name = query.name if query.size == 1 else f"{query.name}: {label}"
            columns[name] = pa.array(answers[:, index], pa.int64())
    return pa.table(columns)


def h1_table(
    geocodes: Sequence[str] | ObjectArray, histograms: Histograms, query: Query
) -> pa.Table:
    """Table H1: geocode, then all, occupied and vacant housing units under their official names."""
    labels = query.labels()
    answers = query.answer(histograms)[:, [labels.index("occupied"), labels.index("vacant")]]
    return pa.table(
        {
            "geocode": pa.array(np.asarray(geocodes, dtype=object), pa.string()),
            "H0010001": pa.array(answers.sum(axis=1), pa.int64()),
            "H0010002": pa.array(answers[:, 0], pa.int64()),
            "H0010003": pa.array(answers[:, 1], pa.int64()),
        }
    )
