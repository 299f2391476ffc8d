"""The command `das tables` for censuses: stored tables of a release, and any other tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from das.arrays import FloatArray, ObjectArray
from das.queries.query import Query
from das.rational import stated_fraction
from das.tree.intervals import normal_factor
from das.tree.model import GeolevelTerms
from das.tree.passes import Moments
from jobs.analysis.requests import TablesRequest, product_named
from jobs.analysis.results import drafts_in, shared_mode
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.product import H1, Product, Resolved, TablesWanted, table_query
from jobs.pipeline.documents.intervals import read_intervals
from jobs.pipeline.plan import without_estimates
from jobs.pipeline.release.census import CensusEstimates
from jobs.pipeline.release.estimate import CONFIDENCE, LevelEstimator
from jobs.pipeline.release.intervals import ClassTable, class_tables
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.tables import Estimates, GeolevelTable, ReleasedEstimates, write_rows
from jobs.pipeline.release.verify import verify_datasets
from jobs.pipeline.storage.dataset import is_published
from jobs.pipeline.storage.files import refuse_foreign, writing
from jobs.pipeline.storage.layout import EstimateLayout
from jobs.pipeline.tasks.batches import Batch, Piece, even_pieces, geounit_batches
from jobs.pipeline.tasks.progress import Reporter

FORMATS = ("csv", "parquet", "xlsx")
_STARTS = {"csv": b'"geolevel","geocode"', "parquet": b"PAR1", "xlsx": b"PK\x03\x04"}
_NUMBERS = 10_000_000  # coordinates of estimates in memory; default, not measured


@dataclass(frozen=True, eq=False)
class _Moments:
    """Estimates of all that some queries need at a geolevel; those of the last range are kept.

    Attributes:
      estimator: The finished estimate stage of the release; its tables are the queries.
      level: Index of the geolevel.
      kept: First and last geocode of the last range, with its estimates.
    """

    estimator: LevelEstimator
    level: int
    kept: dict[tuple[str, str], Moments] = field(default_factory=dict)

    @cached_property
    def reader(self) -> LevelReader:
        """Return the reader of the geolevel."""
        return self.estimator.reader(self.level)

    @cached_property
    def terms(self) -> GeolevelTerms:
        """Return the terms of the estimates of the geolevel that the queries need."""
        terms = self.estimator.terms[self.level]
        return terms.restricted(terms.coordinates.touched_by(self.estimator.tables))

    def read(self, codes: ObjectArray) -> Moments:
        """Return the estimates of the geounits of a range.

        Raises:
          OutputError: The release lacks a geounit, or cannot be read.
        """
        reader, ends = self.reader, (str(codes[0]), str(codes[-1]))
        if ends not in self.kept:
            self.kept.clear()
            if reader.is_leaf:
                rows = reader.rows(Batch(self.level, *ends, len(codes)))
                self.kept[ends] = reader.estimates(rows, reader.above(rows, self.terms), self.terms)
            else:
                self.kept[ends] = reader.whole(codes, self.terms)
        return self.kept[ends]


@dataclass(frozen=True, eq=False)
class ComputedEstimates:
    """Estimates of a query without a stored table, computed from the noisy answers.

    Attributes:
      moments: Estimates that the query needs, for further queries too.
      query: Any query on the schema.
    """

    moments: _Moments
    query: Query

    @property
    def confidence(self) -> float:
        """Return the confidence level of the intervals."""
        return self.moments.estimator.confidence

    def pieces(self, most: int) -> Iterator[Piece]:
        """Yield ranges of about `most` geounits; ranges of leaves never divide a family."""
        estimator = self.moments.estimator
        if self.moments.level < estimator.leaf:
            fitting = min(most, max(1, _NUMBERS // estimator.coordinates.size))
            return even_pieces(estimator.release, self.moments.reader.level.name, fitting)
        batches = geounit_batches(estimator.release, estimator.plan.leaf, 1, most)
        return iter(sorted((batch.low, batch.high) for batch in batches))

    def read(self, codes: ObjectArray) -> tuple[FloatArray, FloatArray]:
        """Return estimates and standard errors, float64[G, m] each, of the geounits of a range.

        Raises:
          OutputError: The release lacks a geounit, or cannot be read.
        """
        moments, part = self.moments.read(codes), self.moments.terms.coordinates
        errors = np.sqrt(part.variances(self.query, moments.matrices))[moments.kind]
        return part.answer(self.query, moments.values), errors


def write_release_tables(
    resolved: Resolved, request: TablesRequest, reporter: Reporter
) -> list[Path]:
    """Write tables of a finished release into a folder.

    Args:
      resolved: The run of the release.
      request: Options of the command; files are `level=GEOLEVEL/TABLE.FORMAT`.
      reporter: Receives progress.

    Returns:
      The written files.

    Raises:
      ConfigError: A geolevel, format or product is unknown, or the confidence is not between 1/2
        and 1.
      SchemaError: A query does not parse.
      OutputError: The release is incomplete or changed, or a file cannot be written.
    """
    product, folder = product_named(resolved, request.product), request.to
    if request.confidence is not None:
        normal_factor(request.confidence)
    wanted = _wanted(product, request)
    paths: dict[tuple[str, str, str], Path] = {}
    files = []
    for geolevel in wanted.queries:
        for stem, query in wanted.files(geolevel):
            files.append((geolevel, query, stem))
            for name in wanted.formats:
                path = folder / f"level={geolevel}" / f"{stem}.{name}"
                refuse_foreign(path, _STARTS[name], "a table that `das tables` wrote before")
                paths[geolevel, stem, name] = path
    verify_tables(product, wanted.queries, any_query=bool(request.queries))
    intervals = _intervals(product, request.confidence)
    with drafts_in(folder, "tables", reporter) as (drafts, tick):
        made: list[tuple[Path, Path]] = []
        for done, (geolevel, query, stem) in enumerate(files):
            tick(done, len(files))
            table = _table(product, geolevel, query, stem, intervals, request.confidence)
            drawn = dict.fromkeys(wanted.formats, drafts)
            written = write_rows(table.rows(), drawn, title=geolevel, spooled=True)
            made += [
                (drafts / part.file, paths[geolevel, stem, name]) for name, part in written.items()
            ]
        tick(len(files), len(files))
        for draft, path in made:  # moved together, after all were computed
            draft.chmod(shared_mode())
            with writing(path):
                path.parent.mkdir(exist_ok=True)
                draft.replace(path)
    return [*paths.values()]


def verify_tables(product: Product, geolevels: Collection[str], *, any_query: bool) -> None:
    """Compare the datasets that tables are made from with their digests.

    Args:
      product: Product of the release.
      geolevels: Geolevels of the tables.
      any_query: Whether queries without a stored table are needed, which takes the measurements.

    Raises:
      OutputError: A dataset is incomplete or changed.
    """
    release, estimates = product.release, EstimateLayout.of(product.release)
    leaf, *above = reversed(product.plan.spine.levels)
    used = [*map(release.geography, product.plan.geolevels), *map(release.counts, geolevels)]
    used += map(estimates.tables, geolevels)
    if any_query:
        used += [*map(estimates.whole, above), release.measurements(leaf), release.invariants(leaf)]
    verify_datasets(release, used)


def read_table(
    product: Product, geolevel: str, text: str, confidence: float | None = None
) -> pa.Table:
    """Return a table of a finished release, as `write_release_tables` writes it.

    Args:
      product: Product of the release.
      geolevel: Name of a geolevel.
      text: Any query on the schema.
      confidence: Confidence level of the intervals; None: as in `TablesRequest`.

    Returns:
      Table with one row per geounit and answer; labels are text.

    Raises:
      ConfigError: The confidence is not between 1/2 and 1, or a geounit has too many answers.
      SchemaError: The query does not parse.
      OutputError: The release is incomplete or changed.
    """
    if confidence is not None:
        normal_factor(confidence)
    query = table_query(product.plan.schema, text)
    intervals = _intervals(product, confidence)
    table = _table(product, geolevel, query, "", intervals, confidence)
    rows = pa.concat_tables(table.rows())
    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(plain))


def _intervals(product: Product, confidence: float | None) -> Mapping[tuple[str, str], ClassTable]:
    """Return intervals of counts from replicates by geolevel and query, if at this confidence."""
    document = read_intervals(product.release, product.plan.leaf.name)
    if document is None or (
        confidence is not None and stated_fraction(document.confidence) != Fraction(str(confidence))
    ):
        return {}
    return class_tables(document)


def _wanted(product: Product, request: TablesRequest) -> TablesWanted:
    levels = product.plan.geolevels
    refuse_unknown("das tables", "names an unknown geolevel", request.geolevels, levels)
    refuse_unknown("das tables", "names an unknown format", request.formats, FORMATS)
    chosen = [level for level in levels if not request.geolevels or level in request.geolevels]
    formats = [*dict.fromkeys(request.formats)]
    if not request.queries:
        stored = TablesWanted.of(product)
        return TablesWanted({level: stored.queries[level] for level in chosen}, formats, stored.h1)
    parsed = (table_query(product.plan.schema, text) for text in request.queries)
    queries = [*{query.name: query for query in parsed}.values()]
    return TablesWanted(dict.fromkeys(chosen, queries), formats)


def _table(
    product: Product,
    geolevel: str,
    query: Query,
    stem: str,
    intervals: Mapping[tuple[str, str], ClassTable],
    confidence: float | None,
) -> GeolevelTable:
    plan, release = product.plan, product.release
    if stem == H1:
        return GeolevelTable(plan, release, geolevel, query, is_h1=True)
    (estimates,) = estimates_of(product, geolevel, [query])
    classes = intervals.get((geolevel, query.name))
    return GeolevelTable(plan, release, geolevel, query, estimates, classes, confidence)


def estimates_of(
    product: Product, geolevel: str, queries: Sequence[Query]
) -> list[Estimates | None]:
    """Open the estimates of any queries at a geolevel, stored or computed; None without estimates.

    What several queries need of a range is computed once.
    """
    plan, release = product.plan, product.release
    stored = [ReleasedEstimates.of(release, geolevel, query) for query in queries]
    unknown = without_estimates(plan, queries)
    is_made = is_published(EstimateLayout.of(release).tables(geolevel))
    computed = [
        query
        for query, known in zip(queries, stored, strict=True)
        if known is None and is_made and geolevel not in unknown.get(query.name, ())
    ]
    estimator = LevelEstimator(plan, release, tuple(computed), CONFIDENCE)
    made: dict[Query, Estimates]
    if geolevel in plan.off_spine:
        made = {query: CensusEstimates(estimator, geolevel, query) for query in computed}
    else:
        moments = _Moments(estimator, plan.level(geolevel).index)
        made = {query: ComputedEstimates(moments, query) for query in computed}
    return [known or made.get(query) for query, known in zip(queries, stored, strict=True)]
