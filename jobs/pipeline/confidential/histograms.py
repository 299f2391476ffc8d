"""The true histograms of every geolevel, confidential.

The leaf geolevel is gathered from the input. Each coarser geolevel is summed from the next finer
one, by tasks over contiguous ranges of geocodes, without a shuffle.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from das.arrays import ObjectArray
from das.confidential import Confidential, redact_errors
from das.errors import GeographyError, VerificationError
from das.histograms import Histograms
from das.schema import Schema
from geography.lattice import ROOT_CODE, Lattice
from jobs.pipeline.confidential.leaves import gather_leaves, remove_runs
from jobs.pipeline.confidential.read.reader import Reader
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.census import CensusCodes
from jobs.pipeline.storage.dataset import (
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    is_published,
    publish,
)
from jobs.pipeline.storage.histograms import (
    SPARSE_SCHEMA,
    read_histograms,
    sparse_arrays,
    sparse_table,
)
from jobs.pipeline.storage.layout import ConfidentialLayout
from jobs.pipeline.tasks.executor import Tasks


def write_truth(
    reader: Reader[Any, Any],
    lattice: Lattice,
    *,
    schema: Schema,
    layout: ConfidentialLayout,
    tasks: Tasks,
    census: CensusCodes | None = None,
) -> None:
    """Write the histograms of all geolevels, leaves first; published geolevels are skipped.

    Args:
      reader: Reader of the input; not used if the leaves are published.
      lattice: All geounits.
      schema: Schema of the product.
      layout: Paths of the histograms; all workers must see the folder.
      tasks: Runs the tasks.
      census: Geocodes of the leaves in the data, where the lattice has other geocodes.

    Raises:
      InputError: The data break their format, or hold a geocode that is not in the lattice.
      OutputError: A folder cannot be written.
      VerificationError: Two geolevels do not have the same number of records.
    """
    levels = lattice.spine.levels
    leaf = levels[-1]
    if not is_published(layout.histograms(leaf)):
        gather_leaves(
            reader,
            lattice.codes[-1],
            n_cells=schema.size,
            dataset=layout.histograms(leaf),
            tasks=tasks,
            census=census,
        )
    remove_runs(layout.histograms(leaf))
    for level in range(len(levels) - 2, -1, -1):
        if not is_published(layout.histograms(levels[level])):
            _roll_up(lattice, level, schema, layout, tasks)
    if census is not None:
        _sum_census(census, leaf, schema=schema, layout=layout, tasks=tasks)


def read_truth(
    dataset: Dataset | RangeReader, geocodes: Sequence[str] | ObjectArray, n_cells: int
) -> Confidential[Histograms]:
    """Read the true histograms of some geounits.

    Args:
      dataset: True histograms of a geolevel, or a reader of ranges of them.
      geocodes: G sorted geocodes; contiguous ones are read fastest.
      n_cells: n, the number of cells of the schema.

    Returns:
      G histograms in the order of `geocodes`; geounits without persons are empty.

    Raises:
      OutputError: A file is missing or damaged.
      GeographyError: The geocodes are not sorted and unique.
    """
    if any(first >= second for first, second in itertools.pairwise(geocodes)):
        raise GeographyError(str(dataset.path), "geocodes are not sorted and unique")
    return Confidential(read_histograms(dataset, geocodes, n_cells))


def true_counts(
    plan: Plan, confidential: ConfidentialLayout, geolevel: str, geocodes: ObjectArray
) -> Confidential[Histograms]:
    """Read the true histograms of some geounits of a geolevel, as `read_truth` does."""
    return read_truth(Dataset.open(confidential.histograms(geolevel)), geocodes, plan.schema.size)


def _roll_up(
    lattice: Lattice, level: int, schema: Schema, layout: ConfidentialLayout, tasks: Tasks
) -> None:
    names = lattice.spine.levels
    fine = Dataset.open(layout.histograms(names[level + 1]))
    coarse = layout.histograms(names[level])
    children, first = lattice.codes[level + 1], lattice.first_child[level]
    size = tasks.sizing.truth_children
    n_tasks = max(
        min(tasks.batches, len(children) // size.least + 1), len(children) // size.most + 1
    )
    edges = np.unique(
        np.searchsorted(first, np.linspace(0, len(children), min(n_tasks, len(first) - 1) + 1))
    )
    name, digits = names[level], lattice.spine.digits[level]

    @redact_errors
    def roll_up(item: tuple[Dataset, str, str]) -> PartFile:
        """Sum the children of some geounits; `item` is their dataset, first and last geocode."""
        within, low, high = item
        table, writer, persons = within.read(low, high), PartWriter(coarse, SPARSE_SCHEMA), 0
        if table.num_rows:
            codes, lengths, cells, counts = sparse_arrays(table)
            prefixes = codes.astype(f"U{digits}") if digits else np.full(len(codes), ROOT_CODE)
            unique, owners = np.unique(prefixes, return_inverse=True)
            histograms = Histograms.from_entries(
                schema.size, len(unique), np.repeat(owners, lengths), cells, counts
            )
            writer.write(sparse_table(unique, histograms))
            persons = int(histograms.counts.sum())
        return writer.close(persons=persons)

    items = []
    for start, stop in zip(first[edges[:-1]], first[edges[1:]], strict=True):
        low, high = children[start].decode(), children[stop - 1].decode()
        items.append((fine.within(low, high), low, high))
    written = tasks.run(f"truth {name}", items, roll_up)
    if _persons(written) != _persons(fine.parts):
        raise VerificationError(
            str(coarse), "does not have as many records as the next finer geolevel"
        )
    publish(coarse, written, {"n_cells": schema.size})


def _sum_census(
    census: CensusCodes, leaf: str, *, schema: Schema, layout: ConfidentialLayout, tasks: Tasks
) -> None:
    """Write the histograms of census geolevels that are not on the spine."""
    missing = [name for name in census.digits if not is_published(layout.histograms(name))]
    if not missing:
        return
    leaves = Dataset.open(layout.histograms(leaf))

    @redact_errors
    def run(item: tuple[str, str, str]) -> PartFile:
        geolevel, low, high = item
        codes, sums = census.sums(leaves, geolevel, low, high, schema.size)
        writer = PartWriter(layout.histograms(geolevel), SPARSE_SCHEMA)
        writer.write(sparse_table(codes, sums))
        return writer.close(persons=int(sums.counts.sum()))

    ranges = census.ranges(tasks.sizing.merge_leaves.most)
    items = [(name, low, high) for name in missing for low, high in ranges]
    written = tasks.run("truth census", items, run)
    for name in missing:
        parts = [part for item, part in zip(items, written, strict=True) if item[0] == name]
        dataset = layout.histograms(name)
        if _persons(parts) != _persons(leaves.parts):
            raise VerificationError(str(dataset), "does not have as many records as the leaves")
        publish(dataset, parts, {"n_cells": schema.size})


def _persons(parts: Iterable[PartFile]) -> int:
    return sum(int(part.facts["persons"]) for part in parts)
