"""Microdata: protected counts of the leaf geolevel, one row per person.

Made from the release alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from das.arrays import ObjectArray
from das.histograms import Histograms
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.csv import CsvPartWriter
from jobs.pipeline.storage.dataset import PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.geography import read_geography, read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks

# Rows held at once, but for one entry of a histogram with more: 1 MB a column of 16-bit codes, and
# the geocodes as Python strings, which are most of it.
_PERSONS = 500_000


def write_microdata(
    plan: Plan,
    release: ReleaseLayout,
    formats: Sequence[str],
    tasks: Tasks,
) -> None:
    """Write one row per person of the leaf geolevel, as Parquet and/or CSV; complete ones are kept.

    Columns: geocode, then one column per attribute with the label of its level.
    """
    missing = [name for name in formats if not is_published(release.microdata / name)]
    if not missing:
        return
    started = time.monotonic()
    batches = geounit_batches(
        release,
        plan.leaf,
        tasks.batches,
        tasks.sizing.write_geounits.most,
        tasks.sizing.write_geounits.least,
    )

    def run(batch: Batch) -> dict[str, PartFile]:
        return _microdata_part(batch, plan, release, missing)

    parts = tasks.run("write microdata", batches, run)
    for name in missing:
        facts = {
            "configuration_digest": plan.digest,
            "not_for_release": plan.not_for_release,
            "seconds": time.monotonic() - started,
        }
        publish(release.microdata / name, [part[name] for part in parts], facts)


def _microdata_part(
    batch: Batch, plan: Plan, release: ReleaseLayout, formats: Sequence[str]
) -> dict[str, PartFile]:
    geolevel = plan.levels[batch.level].name
    names = read_public_geocodes(release, geolevel, batch.low, batch.high)
    counts = read_counts(release, geolevel, names, plan.schema.size)
    if plan.census is not None:
        geography = read_geography(release, geolevel, batch.low, batch.high, ("census_geocode",))
        names = texts(geography, "census_geocode")
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
    names: ObjectArray,
    counts: Histograms,
    entries: slice,
    schema: pa.Schema,
) -> pa.Table:
    """One row per person of some histogram entries."""
    times = counts.counts[entries]
    rows = np.repeat(counts.owners()[entries], times)
    columns = [pa.array(names, pa.string()).take(pa.array(rows))]
    codes = plan.schema.codes_of(counts.cells[entries])
    for attribute in plan.schema.attributes:
        index = np.repeat(codes[attribute.name].astype(np.int16), times)
        columns.append(
            pa.DictionaryArray.from_arrays(pa.array(index), pa.array(attribute.levels, pa.string()))
        )
    return pa.table(columns, schema=schema)
