"""Write microdata: protected counts of the leaf geolevel, one row per person.

Joined microdata add the unit of each person. Both are made from released counts only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from das.arrays import BoolArray, IntArray, ObjectArray
from das.histograms import Histograms
from das.schema import Schema
from invariants.joining import Joined, join
from jobs.pipeline.config.between import Joining, joined_settings
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.tables import write_rows
from jobs.pipeline.storage.dataset import PartFile, is_published, publish
from jobs.pipeline.storage.geography import read_both_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks

# Rows held at once, except for one larger histogram entry: 1 MB per column of 16-bit codes, plus
# geocodes as Python strings, which take most memory. Default, not measured.
_PERSONS = 500_000
# Records and units joined at once, except for one larger leaf: 20 arrays of 8 bytes, 100 MB.
_TOGETHER = 500_000
_LABEL = pa.dictionary(pa.int16(), pa.string())


def write_microdata(
    plan: Plan, release: ReleaseLayout, formats: Sequence[str], tasks: Tasks
) -> None:
    """Write one row per person of the leaf geolevel; complete formats are kept.

    Columns: geocode, then one column per attribute with the label of its level.
    """

    def rows(batch: Batch) -> Iterator[pa.Table]:
        return person_rows(plan, release, batch)

    folders = {name: release.microdata / name for name in formats}
    _write("microdata", plan, release, folders, rows, tasks)


def write_joined(plan: Plan, release: ReleaseLayout, joining: Joining, tasks: Tasks) -> None:
    """Write one row per record of the leaf geolevel with its unit; complete formats are kept.

    Columns: geocode; number of the unit, in the order of the units' microdata within the leaf;
    attributes of the unit; attributes of the record. Rows are sorted by geocode and number.

    Raises:
      VerificationError: The units of a leaf cannot hold its records. It cannot happen where the
        constraints between products hold.
    """

    def rows(batch: Batch) -> Iterator[pa.Table]:
        return _joined(plan, release, joining, batch)

    folders: dict[str, Place] = {
        name: release.joined / name for name in joining.config.file_formats
    }
    facts = {"settings": joined_settings(joining.config)}
    _write("joined microdata", plan, release, folders, rows, tasks, **facts)


def _write(
    what: str,
    plan: Plan,
    release: ReleaseLayout,
    folders: Mapping[str, Place],
    rows: Callable[[Batch], Iterator[pa.Table]],
    tasks: Tasks,
    **facts: Any,  # noqa: ANN401 - JSON facts
) -> None:
    """Write rows of ranges of leaves in each incomplete format."""
    missing = {name: folder for name, folder in folders.items() if not is_published(folder)}
    if not missing:
        return
    started = time.monotonic()
    size = tasks.sizing.write_geounits
    batches = geounit_batches(release, plan.leaf, tasks.batches, size.most, size.least)

    def run(batch: Batch) -> dict[str, PartFile]:
        return write_rows(rows(batch), missing)

    parts = tasks.run(f"write {what}", batches, run)
    for name, folder in missing.items():
        known = plan.facts(**facts, seconds=time.monotonic() - started)
        publish(folder, [part[name] for part in parts], known)


def person_rows(plan: Plan, release: ReleaseLayout, batch: Batch) -> Iterator[pa.Table]:
    """Yield tables with one row per person of a range of leaves; at least one table.

    Columns: geocode, then one column per attribute with the label of its level.
    """
    codes, names = read_both_geocodes(release, plan.leaf.name, batch.low, batch.high)
    counts = read_counts(release, plan.leaf.name, codes, plan.schema.size)
    geocodes, owners, ends = pa.array(names, pa.string()), counts.owners(), np.cumsum(counts.counts)
    first = 0
    while first < len(ends) or not first:
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _PERSONS, side="right")))
        entries = slice(first, last)
        times = counts.counts[entries]
        columns = {"geocode": geocodes.take(pa.array(np.repeat(owners[entries], times)))}
        columns |= _labels(plan.schema, counts.cells[entries], times=times)
        yield pa.table(columns)
        first = last


def joined_schema(schema: Schema, joining: Joining) -> pa.Schema:
    """Return the columns of joined microdata; unit columns are null for records without unit."""
    return pa.schema(
        [("geocode", pa.string()), (joining.number, pa.int32())]
        + [(name, _LABEL) for name in joining.columns]
        + [(one.name, _LABEL) for one in schema.attributes]
    )


def _joined(
    plan: Plan, release: ReleaseLayout, joining: Joining, batch: Batch
) -> Iterator[pa.Table]:
    """Yield tables of joined records, some leaves at a time; at least one table."""
    leaf = plan.leaf.name
    codes, names = read_both_geocodes(release, leaf, batch.low, batch.high)
    by_name = np.argsort(names.astype(np.str_), kind="stable")
    units = read_counts(release.product(joining.places.product), leaf, codes, joining.units.size)
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
        yield _table(plan.schema, joining, some, joined)
        first = last


def _reordered(histograms: Histograms, order: IntArray) -> Histograms:
    """Return histograms with their geounits in another order."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    owners = rank[histograms.owners()]
    return Histograms.from_entries(
        histograms.n_cells, len(order), owners, histograms.cells, histograms.counts
    )


def _table(records: Schema, joining: Joining, names: ObjectArray, joined: Joined) -> pa.Table:
    without = joined.numbers == 0
    columns = [
        pa.array(names, pa.string()).take(pa.array(joined.leaves)),
        pa.array(joined.numbers.astype(np.int32), mask=without),
        *_labels(joining.units, np.where(without, 0, joined.units), without).values(),
        *_labels(records, joined.cells).values(),
    ]
    return pa.table(columns, schema=joined_schema(records, joining))


def _labels(
    schema: Schema,
    cells: IntArray,
    missing: BoolArray | None = None,
    times: IntArray | int = 1,
) -> dict[str, pa.DictionaryArray]:
    """Return the labels of each attribute in some cells, repeated `times`; null if missing."""
    codes = schema.codes_of(cells)
    return {
        one.name: pa.DictionaryArray.from_arrays(
            pa.array(np.repeat(codes[one.name].astype(np.int16), times), mask=missing),
            pa.array(one.levels, pa.string()),
        )
        for one in schema.attributes
    }
