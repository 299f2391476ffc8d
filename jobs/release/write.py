"""Write: protected counts to microdata and tables. Reads nothing but the release."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from das.errors import OutputError
from das.histograms import Histograms
from das.queries.query import Query, parse_query
from jobs.plan import Batch, Plan, geounit_batches, read_geography
from jobs.storage.dataset import PartFile, PartWriter, is_published, publish
from jobs.storage.files import writing
from jobs.storage.histograms import read_counts
from jobs.storage.layout import ReleaseLayout
from jobs.storage.modes import make_closed_file, make_closed_folder
from jobs.tasks.session import run_tasks, slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PERSONS = 500_000  # rows of microdata held at once
_GEOUNITS = 50_000  # geounits per task
_TASK_GEOUNITS = 1_000  # fewer are not worth a task of their own


def write_microdata(
    plan: Plan,
    release: ReleaseLayout,
    formats: Sequence[str],
    spark: SparkSession,
    *,
    batches_per_slot: int = 4,
) -> None:
    """Write one row per person of the leaf geolevel, as Parquet and/or CSV; complete ones are kept.

    Columns: geocode, then one column per attribute with the label of its level.
    """
    leaf = len(plan.spine.levels) - 1
    wanted = [name for name in formats if not is_published(release.microdata / name)]
    if not wanted:
        return
    started = time.monotonic()
    batches = geounit_batches(
        release,
        plan.spine.levels[leaf],
        leaf,
        slots(spark) * batches_per_slot,
        _GEOUNITS,
        _TASK_GEOUNITS,
    )

    def run(batch: Batch) -> dict[str, PartFile]:
        return _microdata_part(batch, plan, release, wanted)

    parts = run_tasks(spark, "write microdata", batches, run)
    for name in wanted:
        facts = {
            "configuration_digest": plan.digest,
            "not_for_release": plan.not_for_release,
            "seconds": time.monotonic() - started,
        }
        publish(release.microdata / name, [part[name] for part in parts], facts)


def _microdata_part(
    batch: Batch, plan: Plan, release: ReleaseLayout, formats: Sequence[str]
) -> dict[str, PartFile]:
    geolevel = plan.spine.levels[batch.level]
    codes = read_geography(release, geolevel, batch, ("geocode",)).column("geocode")
    names = codes.to_numpy(zero_copy_only=False)
    counts = read_counts(release, geolevel, names, plan.schema.size)
    schema = pa.schema(
        [("geocode", pa.string())]
        + [(a.name, pa.dictionary(pa.int16(), pa.string())) for a in plan.schema.attributes]
    )
    writers: dict[str, PartWriter | CsvPartWriter] = {}
    for name in formats:
        folder = release.microdata / name
        writers[name] = CsvPartWriter(folder) if name == "csv" else PartWriter(folder, schema)
    ends = np.cumsum(counts.counts)
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _PERSONS, side="right")))
        table = _persons(plan, names, counts, slice(first, last), schema)
        for writer in writers.values():
            writer.write(table)
        first = last
    if "csv" in formats and not len(ends):
        writers["csv"].write(schema.empty_table())
    return {name: writer.close() for name, writer in writers.items()}


def _persons(
    plan: Plan,
    names: Sequence[str],
    counts: Histograms,
    entries: slice,
    schema: pa.Schema,
) -> pa.Table:
    """One row per person of some histogram entries."""
    times = counts.counts[entries]
    geocodes = np.asarray(names, dtype=object)[np.repeat(counts.owners()[entries], times)]
    columns = [pa.array(geocodes, pa.string())]
    codes = plan.schema.codes_of(counts.cells[entries])
    for attribute in plan.schema.attributes:
        index = np.repeat(codes[attribute.name].astype(np.int16), times)
        columns.append(
            pa.DictionaryArray.from_arrays(pa.array(index), pa.array(attribute.levels, pa.string()))
        )
    return pa.table(columns, schema=schema)


class CsvPartWriter:
    """Writes one CSV part file with a header row."""

    def __init__(self, dataset: Path) -> None:
        try:
            make_closed_folder(dataset)
        except OSError as error:
            raise OutputError(str(dataset), "cannot be created", got=error.strerror) from None
        self._path = dataset / f"part-{uuid.uuid4().hex}.csv"
        self._writer: pa_csv.CSVWriter | None = None
        self._rows = 0
        self._low = ""
        self._high = ""

    def write(self, table: pa.Table) -> None:
        """Append rows sorted by geocode."""
        plain = pa.table(
            {
                field.name: column.cast(pa.string())
                if pa.types.is_dictionary(field.type)
                else column
                for field, column in zip(table.schema, table.columns, strict=True)
            }
        )
        if self._writer is None:
            with writing(self._path, self._path):
                make_closed_file(self._path)
                self._writer = pa_csv.CSVWriter(self._path, plain.schema)
        if plain.num_rows:
            self._low = self._low or plain.column(0)[0].as_py()
            self._high = plain.column(0)[-1].as_py()
        self._rows += plain.num_rows
        with writing(self._path, self._path):
            self._writer.write_table(plain)

    def close(self) -> PartFile:
        """Finish the file and describe it."""
        if self._writer is not None:
            with writing(self._path, self._path):
                self._writer.close()
        with self._path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            size = handle.tell()
        return PartFile(self._path.name, self._rows, self._low, self._high, size, digest)


def write_tables(
    plan: Plan,
    release: ReleaseLayout,
    queries: Sequence[str],
    spark: SparkSession,
    *,
    batches_per_slot: int = 4,
) -> None:
    """Write a CSV table of protected counts per geolevel; complete ones are kept.

    One row per geounit, one column per answer of each query.
    """
    parsed = [parse_query(plan.schema, text) for text in queries]

    def tabulate(geocodes: Sequence[str], counts: Histograms) -> pa.Table:
        return answer_table(geocodes, counts, parsed)

    _write_csv(
        plan, release, spark, batches_per_slot, _Table(release.tables, tabulate, tuple(parsed))
    )


def write_h1(
    plan: Plan,
    release: ReleaseLayout,
    query: Query,
    spark: SparkSession,
    *,
    batches_per_slot: int = 4,
) -> None:
    """Write table H1 of the redistricting data per geolevel; complete ones are kept.

    Args:
      plan: The plan of the units.
      release: Has their counts.
      query: Attribute or recode with the levels `occupied` and `vacant`; others are no housing
        units.
      spark: The session.
      batches_per_slot: Tasks per parallel slot.
    """

    def tabulate(geocodes: Sequence[str], counts: Histograms) -> pa.Table:
        return h1_table(geocodes, counts, query)

    _write_csv(plan, release, spark, batches_per_slot, _Table(release.h1, tabulate, (query,)))


@dataclass(frozen=True, eq=False)
class _Table:
    """A table of every geolevel.

    Attributes:
      dataset: Where that of a geolevel goes.
      tabulate: Rows of some geounits.
      queries: What it is made of.
    """

    dataset: Callable[[str], Path]
    tabulate: Callable[[Sequence[str], Histograms], pa.Table]
    queries: tuple[Query, ...]


def _write_csv(
    plan: Plan, release: ReleaseLayout, spark: SparkSession, batches_per_slot: int, table: _Table
) -> None:
    names = [query.name for query in table.queries]
    for level, geolevel in enumerate(plan.spine.levels):
        dataset = table.dataset(geolevel)
        if is_published(dataset):
            continue

        def run(batch: Batch, geolevel: str = geolevel, dataset: Path = dataset) -> PartFile:
            codes = read_geography(release, geolevel, batch, ("geocode",)).column("geocode")
            geocodes = codes.to_numpy(zero_copy_only=False)
            counts = read_counts(release, geolevel, geocodes, plan.schema.size)
            writer = CsvPartWriter(dataset)
            writer.write(table.tabulate(geocodes, counts))
            return writer.close()

        batches = geounit_batches(
            release, geolevel, level, slots(spark) * batches_per_slot, _GEOUNITS, _TASK_GEOUNITS
        )
        parts = run_tasks(spark, f"write {dataset.parent.name} {geolevel}", batches, run)
        publish(dataset, parts, {"queries": names, "not_for_release": plan.not_for_release})


def answer_table(
    geocodes: Sequence[str], histograms: Histograms, queries: Sequence[Query]
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


def h1_table(geocodes: Sequence[str], histograms: Histograms, query: Query) -> pa.Table:
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
