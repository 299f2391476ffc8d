"""Sum leaves to census geolevels that are not on the spine: counts and estimates.

A run can have a spine other than the census hierarchy; then each leaf has two geocodes. Both begin
with the same digits, those of the unchanged upper geolevels. A range of such prefixes holds the
same leaves in both orders, so no shuffle is needed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import FloatArray, Geocodes, IntArray, ObjectArray
from das.histograms import Histograms
from das.queries.query import Query
from das.tree.coordinates import Coordinates
from das.tree.passes import Moments
from geography.lattice import ROOT_CODE
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.estimate import (
    AreaEstimator,
    Descended,
    LevelEstimator,
    facts_of,
    table_statistics,
)
from jobs.pipeline.storage.dataset import (
    LAST,
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    is_published,
    publish,
)
from jobs.pipeline.storage.estimates import (
    estimate_rows,
    largest_estimate,
    standard_error_sums,
    tables_schema,
)
from jobs.pipeline.storage.geography import read_both_geocodes, read_geography, read_public_geocodes
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, align_histograms, sparse_table
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Piece, cut_groups, even_pieces, first_rows
from jobs.pipeline.tasks.executor import Tasks

_GEOUNITS = 2_000  # geounits of a task, at 10 to 30 ms each: 20 to 60 s
_NUMBERS = 4_000_000  # estimates of a task, 32 MB; default, not measured
_LEAVES = 200_000  # leaves of a task, except for one large geounit; default, not measured


def census_codes(plan: Plan, release: ReleaseLayout) -> CensusCodes | None:
    """Return the leaves under census geocodes; None if the spine is the census hierarchy."""
    if plan.census is None:
        return None
    off = {name: plan.census_digits[name] for name in plan.off_spine}
    return CensusCodes(release, plan.leaf.name, plan.shared_digits, off)


def publish_census_counts(plan: Plan, release: ReleaseLayout, tasks: Tasks) -> None:
    """Sum counts of leaves to census geolevels that are not on the spine, and publish them.

    Published geolevels are kept. The leaves must be solved.

    Raises:
      OutputError: A dataset is not complete, or a file cannot be written.
    """
    census = census_codes(plan, release)
    missing = [name for name in plan.off_spine if not is_published(release.counts(name))]
    if census is None or not missing:
        return
    started = time.monotonic()
    leaves, n_cells = Dataset.open(release.counts(plan.leaf.name)), plan.schema.size
    ranges = census.ranges(tasks.sizing.merge_leaves.most)

    def run(item: tuple[str, str, str]) -> PartFile:
        geolevel, low, high = item
        writer = PartWriter(release.counts(geolevel), SPARSE_SCHEMA)
        writer.write(sparse_table(*census.sums(leaves, geolevel, low, high, n_cells)))
        return writer.close()

    items = [(name, low, high) for name in missing for low, high in ranges]
    written = tasks.run("census counts", items, run)
    for name in missing:
        parts = [part for item, part in zip(items, written, strict=True) if item[0] == name]
        facts = plan.facts(
            geolevel=name,
            solve_digest=plan.solve_digest,
            seconds=time.monotonic() - started,
        )
        publish(release.counts(name), parts, facts)


@dataclass(frozen=True, eq=False)
class CensusEstimates:
    """Estimates of a query in the geounits of a census geolevel that is not on the spine.

    Attributes:
      estimator: The finished estimate stage of a release.
      geolevel: A census geolevel that is not on the spine.
      query: Any query that has estimates at the leaves.
    """

    estimator: LevelEstimator
    geolevel: str
    query: Query

    @property
    def confidence(self) -> float:
        """Return the confidence of the intervals, between 0 and 1."""
        return self.estimator.confidence

    def pieces(self, most: int) -> Iterator[Piece]:
        """Yield ranges of at most `most` geounits that cover the geolevel."""
        return _pieces(self.estimator, self.geolevel, most)

    def read(self, codes: ObjectArray) -> tuple[FloatArray, FloatArray]:
        """Estimate float64[G, m] values and standard errors in the geounits of a piece.

        Raises:
          OutputError: The release lacks a geounit, or cannot be read.
        """
        coordinates, moments = _estimate(self.estimator, (self.query,), self.geolevel, codes)
        values = [coordinates.answer(self.query, m.values) for m in moments]
        errors = [np.sqrt(coordinates.variances(self.query, m.matrices))[m.kind] for m in moments]
        return np.concatenate(values), np.concatenate(errors)


def publish_census_estimates(estimator: LevelEstimator, tasks: Tasks) -> None:
    """Estimate the tables in every census geounit that is not on the spine.

    A geounit is the sum of its leaves, estimated as any area: from all noisy answers with their
    covariances. Published geolevels are kept; geolevels of the spine must be estimated.

    Raises:
      OutputError: Estimates of the spine are not complete, or a file cannot be written.
    """
    plan, layout = estimator.plan, estimator.layout
    missing = [name for name in plan.off_spine if not is_published(layout.tables(name))]
    if not missing:
        return
    started, queries = time.monotonic(), estimator.tables_at(estimator.leaf)
    most = max(1, min(_GEOUNITS, _NUMBERS // max(1, sum(query.size for query in queries))))
    items = [(name, *piece) for name in missing for piece in _pieces(estimator, name, most)]
    # A geounit off the spine lies in one geounit of the last unchanged geolevel.
    first_changed = plan.spine.shared_with(plan.census_spine)
    schema = tables_schema(estimator.largest_above(first_changed))

    def run(item: tuple[str, str, str]) -> Descended:
        geolevel, low, high = item
        codes = read_public_geocodes(estimator.release, geolevel, low, high)
        writer = PartWriter(layout.tables(geolevel), schema)
        if not queries:
            return Descended(None, writer.close(), [], 0.0)
        coordinates, moments = _estimate(estimator, queries, geolevel, codes)
        rows = [
            estimate_rows(coordinates, queries, codes[row : row + 1], of_geounit, schema)
            for row, of_geounit in enumerate(moments)
        ]
        tables = [pa.concat_tables(parts) for parts in zip(*rows, strict=True)]
        writer.write_apart(tables)
        return Descended(
            None, writer.close(), standard_error_sums(tables), largest_estimate(tables)
        )

    made = tasks.run("estimate census", items, run)
    for name in missing:
        parts = [part for item, part in zip(items, made, strict=True) if item[0] == name]
        facts = facts_of(estimator, name, queries, time.monotonic() - started)
        facts |= table_statistics(queries, parts)
        publish(layout.tables(name), [part.tables for part in parts], facts)


def _pieces(estimator: LevelEstimator, geolevel: str, most: int) -> Iterator[Piece]:
    """Yield ranges of census geounits with about as many leaves as a task should read."""
    release = estimator.release
    leaves = Dataset.open(release.geography(estimator.plan.leaf.name)).rows
    fitting = _LEAVES * Dataset.open(release.geography(geolevel)).rows // leaves
    return even_pieces(release, geolevel, max(1, min(most, fitting)))


def _estimate(
    estimator: LevelEstimator, queries: tuple[Query, ...], geolevel: str, codes: ObjectArray
) -> tuple[Coordinates, list[Moments]]:
    """Estimate each census geounit from its leaves; `codes` are sorted.

    Only leaves below the geocode prefixes that census and spine share are read.

    Returns:
      The coordinates of the queries, and moments of one row for each geounit.
    """
    plan = estimator.plan
    low, high = (code[: plan.shared_digits] for code in (codes[0], codes[-1]))
    areas = AreaEstimator(estimator, queries, (low, high))
    on_spine, census = read_both_geocodes(estimator.release, plan.leaf.name, low, high + LAST)
    above = census.astype(f"S{plan.census_digits[geolevel]}")
    order = np.argsort(above, kind="stable")
    sorted_codes, sorted_above = on_spine[order].astype(np.bytes_), above[order]
    starts = np.searchsorted(sorted_above, codes.astype(np.bytes_))
    ends = np.searchsorted(sorted_above, codes.astype(np.bytes_), side="right")
    moments = [areas.blocks(sorted_codes[s:e]) for s, e in zip(starts, ends, strict=True)]
    return areas.coordinates, moments


_LEAVES_AT_ONCE = 20_000  # leaves read at a time; default, not measured


@dataclass(frozen=True)
class CensusCodes:
    """The leaves of a release under both geocodes.

    Attributes:
      release: The release with the geography.
      leaf: Name of the leaf geolevel.
      shared: Number of first digits that are the same in both geocodes of a leaf.
      digits: Length of census geocodes of each census geolevel that is not on the spine.
    """

    release: ReleaseLayout
    leaf: str
    shared: int
    digits: Mapping[str, int]

    def ranges(self, most: int) -> list[tuple[str, str]]:
        """Cut leaf geocodes into ascending ranges that hold the same leaves in both orders.

        Args:
          most: Most leaves of a range, unless one prefix has more.
        """
        geography = read_geography(self.release, self.leaf, columns=("geocode",))
        prefixes = pc.utf8_slice_codeunits(geography.column("geocode"), 0, self.shared)
        return [
            (prefixes[start].as_py(), prefixes[stop - 1].as_py() + LAST)
            for start, stop in cut_groups(first_rows(prefixes), len(prefixes), most)
        ]

    def read(self, low: str = "", high: str = LAST) -> tuple[Geocodes, Geocodes]:
        """Read bytes[G] spine geocodes of the leaves low..high, ascending, and census geocodes.

        Raises:
          OutputError: The geography is not complete, or a file cannot be read.
        """
        on_spine, census = read_both_geocodes(self.release, self.leaf, low, high)
        return on_spine.astype(np.bytes_), census.astype(np.bytes_)

    def sums(
        self, leaves: Dataset, geolevel: str, low: str, high: str, n_cells: int
    ) -> tuple[ObjectArray, Histograms]:
        """Sum histograms of leaves to a census geolevel that is not on the spine.

        Args:
          leaves: Histograms of the leaves, by geocode of the spine.
          geolevel: A key of `digits`.
          low: First leaf of a range of `ranges`.
          high: Last leaf.
          n_cells: Cells of the schema.

        Returns:
          object[G] geocodes of the census, ascending, all in the range, and their histograms.

        Raises:
          OutputError: A file is missing or cannot be read.
        """
        on_spine, census = self.read(low, high)
        size = self.digits[geolevel]
        above = census.astype(f"S{size}") if size else np.full(len(census), ROOT_CODE, "S1")
        codes, owners = np.unique(above, return_inverse=True)
        spine_codes = on_spine.astype(np.str_).astype(object)
        parts = [*_partial_sums(leaves, spine_codes, owners, n_cells)]
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = Histograms.from_entries(n_cells, len(codes), *columns)
        return codes.astype(np.str_).astype(object), found


def _partial_sums(
    leaves: Dataset, codes: ObjectArray, owners: IntArray, n_cells: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield (owner, cell, count) arrays of some leaves at a time, equal entries summed."""
    reader, size = RangeReader(leaves), int(owners.max()) + 1
    for start in range(0, len(codes), _LEAVES_AT_ONCE):
        rows = slice(start, start + _LEAVES_AT_ONCE)
        some = codes[rows]
        table = reader.read(str(some[0]), str(some[-1]))
        if not table.num_rows:
            continue
        found = align_histograms(table, some, n_cells)
        owner = owners[rows][found.owners()]
        sums = Histograms.from_entries(n_cells, size, owner, found.cells, found.counts)
        yield sums.owners(), sums.cells, sums.counts
    yield (np.zeros(0, np.int64),) * 3
