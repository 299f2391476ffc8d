"""Joined microdata: one row per record with the unit it lives in, from released counts of both."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from das.arrays import IntArray, ObjectArray
from das.histograms import Histograms
from das.schema import Schema
from invariants.joining import Joined, join
from jobs.pipeline.config.between import Joining, joined_settings
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.csv import CsvPartWriter
from jobs.pipeline.storage.dataset import PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.geography import read_geography, read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks

# Records and units joined at once, but for a leaf of more: some 20 arrays of 8 bytes each, 100 MB.
_TOGETHER = 500_000


def write_joined(plan: Plan, release: ReleaseLayout, joining: Joining, tasks: Tasks) -> None:
    """Write one row per record of the leaf geolevel with its unit; complete formats are kept.

    Columns: geocode, the number of the unit among those of the leaf in the microdata of their
    product, the attributes of the unit, and those of the record. Rows are in order of geocode and
    number.

    Raises:
      VerificationError: Units cannot hold the records of a leaf, as they can wherever ties hold.
    """
    folder = release.joined
    missing = [name for name in joining.config.formats if not is_published(folder / name)]
    if not missing:
        return
    started = time.monotonic()
    size = tasks.sizing.write_geounits
    batches = geounit_batches(release, plan.leaf, tasks.batches, size.most, size.least)

    def run(batch: Batch) -> dict[str, PartFile]:
        schema = joined_schema(plan.schema, joining)
        writers: dict[str, PartWriter | CsvPartWriter] = {
            name: CsvPartWriter(folder / name)
            if name == "csv"
            else PartWriter(folder / name, schema)
            for name in missing
        }
        for table in _tables(plan, release, joining, batch, schema):
            for writer in writers.values():
                writer.write(table)
        return {name: writer.close() for name, writer in writers.items()}

    parts = tasks.run("write joined microdata", batches, run)
    for name in missing:
        facts = {
            "configuration_digest": plan.digest,
            "not_for_release": plan.not_for_release,
            "settings": joined_settings(joining.config),
            "seconds": time.monotonic() - started,
        }
        publish(folder / name, [part[name] for part in parts], facts)


def joined_schema(schema: Schema, joining: Joining) -> pa.Schema:
    """The columns of joined microdata; those of the unit are null where there is none."""
    label = pa.dictionary(pa.int16(), pa.string())
    return pa.schema(
        [("geocode", pa.string()), (joining.number, pa.int32())]
        + [(name, label) for name in joining.columns]
        + [(one.name, label) for one in schema.attributes]
    )


def _tables(
    plan: Plan, release: ReleaseLayout, joining: Joining, batch: Batch, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The joined records of a range of leaves, some leaves at a time; one table at least."""
    leaf = plan.leaf.name
    codes = read_public_geocodes(release, leaf, batch.low, batch.high)
    names = codes
    if plan.census is not None:
        geography = read_geography(release, leaf, batch.low, batch.high, ("census_geocode",))
        names = texts(geography, "census_geocode")
    by_name = np.argsort(names.astype(np.str_), kind="stable")
    units = read_counts(release.beside(joining.places.product), leaf, codes, joining.units.size)
    records = read_counts(release, leaf, codes, plan.schema.size)
    names = names[by_name]
    units, records = (_reordered(one, by_name) for one in (units, records))
    ends = np.cumsum(units.totals() + records.totals())
    first = 0
    while first < len(names):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _TOGETHER, side="right")))
        some = names[first:last]
        joined = join(
            joining.places,
            joining.order,
            some.tolist(),
            units.slice(first, last),
            records.slice(first, last),
        )
        yield _table(plan.schema, joining, some, joined, schema)
        first = last


def _reordered(histograms: Histograms, order: IntArray) -> Histograms:
    """The geounits in another order."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    owners = rank[histograms.owners()]
    return Histograms.from_entries(
        histograms.n_cells, len(order), owners, histograms.cells, histograms.counts
    )


def _table(
    records: Schema, joining: Joining, names: ObjectArray, joined: Joined, schema: pa.Schema
) -> pa.Table:
    without = joined.numbers == 0
    columns = [
        pa.array(names, pa.string()).take(pa.array(joined.leaves)),
        pa.array(joined.numbers.astype(np.int32), mask=without),
    ]
    columns += _labels(joining.units, np.where(without, 0, joined.units), without)
    columns += _labels(records, joined.cells, np.zeros_like(without))
    return pa.table(columns, schema=schema)


def _labels(
    schema: Schema, cells: IntArray, missing: np.typing.NDArray[np.bool_]
) -> list[pa.DictionaryArray]:
    codes = schema.codes_of(cells)
    return [
        pa.DictionaryArray.from_arrays(
            pa.array(codes[one.name].astype(np.int16), mask=missing),
            pa.array(one.levels, pa.string()),
        )
        for one in schema.attributes
    ]
