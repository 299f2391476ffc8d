"""Census geolevels that are not on the spine: counts and estimates as sums of leaves.

Between the geocodes of a spine and those of the census, where a run has another spine.

Both begin with the same digits, those of the geolevels above all that is changed. Whoever works on
a range of such prefixes has the same leaves in both orders, so nothing is shuffled.
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
from das.tree.passes import Moments
from geography.lattice import ROOT_CODE
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.estimate import (
    AreaEstimator,
    Descended,
    LevelEstimator,
    facts_of,
    said_of_tables,
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

_GEOUNITS = 2_000  # of a task: they take some 10 to 30 ms each
_NUMBERS = 4_000_000  # of a task, estimates of all its geounits
_LEAVES = 200_000  # of a task, but for one of a large geounit


def census_codes(plan: Plan, release: ReleaseLayout) -> CensusCodes | None:
    """The leaves under the geocodes of the census; None if those of the spine are the same."""
    if plan.census is None:
        return None
    off = {name: plan.census_digits[name] for name in plan.off_spine}
    return CensusCodes(release, plan.leaf.name, plan.shared_digits, off)


def publish_census_counts(plan: Plan, release: ReleaseLayout, tasks: Tasks) -> None:
    """Add up the counts of the leaves to those of census geolevels that are not on the spine.

    Published ones are kept. The leaves must be solved.

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
    """Estimates of a query in the geounits of such a geolevel.

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
        """Of the intervals."""
        return self.estimator.confidence

    def pieces(self, most: int) -> Iterator[Piece]:
        """All geounits in ranges of `most` at most."""
        return _pieces(self.estimator, self.geolevel, most)

    def read(self, codes: ObjectArray) -> tuple[FloatArray, FloatArray]:
        """float64[G, m] estimates and standard errors of the geounits of a piece.

        Raises:
          OutputError: The release lacks one, or cannot be read.
        """
        one = _areas_of(self.estimator, (self.query,), codes)
        found = [*_moments(one, self.geolevel, codes)]
        values = [one.coordinates.answer(self.query, own.values) for own in found]
        errors = [
            np.sqrt(one.coordinates.variances(self.query, own.matrices))[own.kind] for own in found
        ]
        return np.concatenate(values), np.concatenate(errors)


def publish_census_estimates(estimator: LevelEstimator, tasks: Tasks) -> None:
    """Estimate the tables in every geounit of the census that the spine has not.

    A geounit is the sum of its leaves, estimated as any area: from all answers, with the
    covariances of all. Published geolevels are kept; those of the spine must be estimated.

    Raises:
      OutputError: Estimates of the spine are not complete, or a file cannot be written.
    """
    plan, layout = estimator.plan, estimator.layout
    missing = [name for name in plan.off_spine if not is_published(layout.tables(name))]
    if not missing:
        return
    started, asked = time.monotonic(), estimator.tables_at(estimator.leaf)
    most = max(1, min(_GEOUNITS, _NUMBERS // max(1, sum(query.size for query in asked))))
    items = [(name, *piece) for name in missing for piece in _pieces(estimator, name, most)]
    # Such a geounit lies in one of the last geolevel above all that is changed.
    first_changed = plan.spine.shared_with(plan.census_spine)
    schema = tables_schema(estimator.largest_above(first_changed))

    def run(item: tuple[str, str, str]) -> Descended:
        geolevel, low, high = item
        codes = read_public_geocodes(estimator.release, geolevel, low, high)
        writer = PartWriter(layout.tables(geolevel), schema)
        if not asked:
            return Descended(None, writer.close(), [], 0.0)
        one = _areas_of(estimator, asked, codes)
        rows = [
            estimate_rows(one.coordinates, asked, codes[at : at + 1], found, schema)
            for at, found in enumerate(_moments(one, geolevel, codes))
        ]
        tables = [pa.concat_tables(parts) for parts in zip(*rows, strict=True)]
        writer.write_apart(tables)
        return Descended(
            None, writer.close(), standard_error_sums(tables), largest_estimate(tables)
        )

    made = tasks.run("estimate census", items, run)
    for name in missing:
        parts = [part for item, part in zip(items, made, strict=True) if item[0] == name]
        facts = facts_of(estimator, name, asked, time.monotonic() - started)
        said = said_of_tables(asked, parts)
        publish(layout.tables(name), [part.tables for part in parts], {**facts, **said})


def _pieces(estimator: LevelEstimator, geolevel: str, most: int) -> Iterator[Piece]:
    """Ranges of geounits of a census geolevel, of about as many leaves as a task is to read."""
    release = estimator.release
    leaves = Dataset.open(release.geography(estimator.plan.leaf.name)).rows
    fitting = _LEAVES * Dataset.open(release.geography(geolevel)).rows // leaves
    return even_pieces(release, geolevel, max(1, min(most, fitting)))


def _areas_of(
    estimator: LevelEstimator, queries: tuple[Query, ...], codes: ObjectArray
) -> AreaEstimator:
    """Estimates areas below what some sorted geounits of the census have in common with a spine."""
    shared = estimator.plan.shared_digits
    return AreaEstimator(estimator, queries, (codes[0][:shared], codes[-1][:shared]))


def _moments(one: AreaEstimator, geolevel: str, codes: ObjectArray) -> Iterator[Moments]:
    """The estimate of every geounit, of one row each."""
    plan, release = one.estimator.plan, one.estimator.release
    return map(one.blocks, _leaves(plan, release, geolevel, codes, one.within))


def _leaves(
    plan: Plan, release: ReleaseLayout, geolevel: str, codes: ObjectArray, within: tuple[str, str]
) -> list[Geocodes]:
    """Of every geounit, sorted ones, the geocodes of its leaves on the spine."""
    own, census = read_both_geocodes(release, plan.leaf.name, within[0], within[1] + LAST)
    above = census.astype(f"S{plan.census_digits[geolevel]}")
    order = np.argsort(above, kind="stable")
    sorted_own, sorted_above = own[order].astype(np.bytes_), above[order]
    starts = np.searchsorted(sorted_above, codes.astype(np.bytes_))
    ends = np.searchsorted(sorted_above, codes.astype(np.bytes_), side="right")
    return [sorted_own[start:end] for start, end in zip(starts, ends, strict=True)]


_LEAVES_AT_ONCE = 20_000  # leaves read at a time


@dataclass(frozen=True)
class CensusCodes:
    """The leaves of a release under both geocodes.

    Attributes:
      release: Has the geography.
      leaf: Name of the leaf geolevel.
      shared: First digits of a leaf geocode that are the same in both.
      digits: Prefix length, in the census, of each of its geolevels that are not on the spine.
    """

    release: ReleaseLayout
    leaf: str
    shared: int
    digits: Mapping[str, int]

    def ranges(self, most: int) -> list[tuple[str, str]]:
        """Ranges of leaf geocodes that hold the same leaves in both, in order; they cover all.

        Args:
          most: Leaves of a range, unless one prefix has more.
        """
        geography = read_geography(self.release, self.leaf, columns=("geocode",))
        prefixes = pc.utf8_slice_codeunits(geography.column("geocode"), 0, self.shared)
        return [
            (prefixes[start].as_py(), prefixes[stop - 1].as_py() + LAST)
            for start, stop in cut_groups(first_rows(prefixes), len(prefixes), most)
        ]

    def read(self, low: str = "", high: str = LAST) -> tuple[Geocodes, Geocodes]:
        """bytes[G] geocodes of the leaves low..high on the spine, ascending; those of the census.

        Raises:
          OutputError: The geography is not complete, or a file cannot be read.
        """
        own, census = read_both_geocodes(self.release, self.leaf, low, high)
        return own.astype(np.bytes_), census.astype(np.bytes_)

    def sums(
        self, leaves: Dataset, geolevel: str, low: str, high: str, n_cells: int
    ) -> tuple[ObjectArray, Histograms]:
        """Histograms of a census geolevel that is not on the spine, as sums over leaves.

        Args:
          leaves: Histograms of the leaves, by geocode of the spine.
          geolevel: Of `digits`.
          low: First leaf of a range of `ranges`.
          high: Last leaf.
          n_cells: Cells of the schema.

        Returns:
          object[G] geocodes of the census, ascending, all in the range, and their histograms.

        Raises:
          OutputError: A file is missing or cannot be read.
        """
        own, census = self.read(low, high)
        size = self.digits[geolevel]
        above = census.astype(f"S{size}") if size else np.full(len(census), ROOT_CODE, "S1")
        codes, owners = np.unique(above, return_inverse=True)
        parts = [*_partial_sums(leaves, own.astype(np.str_).astype(object), owners, n_cells)]
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = Histograms.from_entries(n_cells, len(codes), *columns)
        return codes.astype(np.str_).astype(object), found


def _partial_sums(
    leaves: Dataset, codes: ObjectArray, owners: IntArray, n_cells: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Entries (owner, cell, count) of some leaves at a time, equal ones added."""
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
