"""The command `das areas`: tables of districts or other areas, from a release alone.

The tables hold sums of protected counts, unbiased estimates of the same sums, and the deviation of
each area's total from the ideal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from das.arrays import Geocodes, IntArray
from das.errors import ConfigError, InputError
from das.histograms import Histograms
from das.metrics.replicates import own_intervals
from das.queries.query import Query, parse_query
from das.tree.intervals import (
    central_intervals,
    estimated_ratios,
    normal_factor,
    simultaneous_factor,
)
from jobs.analysis.area_files import AreaFile, read_areas
from jobs.analysis.geocodes import NamedGeounits
from jobs.analysis.requests import AreasRequest
from jobs.analysis.results import print_rows
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.documents.intervals import digest_of
from jobs.pipeline.plan import Plan, without_estimates
from jobs.pipeline.printable import printable
from jobs.pipeline.release.estimate import AreaEstimator, LevelEstimator
from jobs.pipeline.release.verify import verify_datasets
from jobs.pipeline.storage.dataset import Dataset, RangeReader, is_published
from jobs.pipeline.storage.files import read_json
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout, replicates_folder
from jobs.pipeline.storage.place import Place

CSV_START = b'"area","table","label"'
"""First bytes of written CSV files, by which a later call knows that it may replace a file."""
TOTAL = "total"
MOST_ROWS = 4_000_000
"""Rows of a written file; 4.1 million took 0.9 GB."""
MOST_PRINTED = 200_000
"""Printed rows; 197 thousand took 0.7 GB and 39 core seconds."""
_LEAVES = 100_000  # whose counts are held at once; default, not measured
# All other columns hold floating-point numbers.
_KINDS = dict.fromkeys(("area", "table", "label"), pa.string())
_KINDS |= dict.fromkeys(("count", "count_lower", "count_upper"), pa.int64())
_OF_COUNTS = ("count_lower", "count_upper", "count_bias", "count_standard_deviation")
_OF_SHARES = {
    "share_estimate": "estimate",
    "share_lower": "lower",
    "share_upper": "upper",
    "above_half": "above_half",
}
BEYOND = (5, 10)
"""Deviations in percent of the ideal whose probability is stated: limits that courts use."""
_OF_ESTIMATES = ("estimate", "standard_error", "estimate_lower", "estimate_upper")


@dataclass(frozen=True, eq=False)
class AreaTables:
    """Tables of areas.

    Attributes:
      table: One row per area, table and answer, totals first. Columns: area, table, label, count;
        with leaf counts of replicates count_lower, count_upper, count_bias and
        count_standard_deviation; with estimates estimate, standard_error, estimate_lower and
        estimate_upper; for totals deviation and deviation_percent from the ideal area, and with
        estimates beyond_5_percent and beyond_10_percent, the probabilities of such a deviation;
        with a share share, share_estimate, share_lower, share_upper and above_half.
      confidence: Confidence level of all intervals.
      replicates: Number of replicates behind the intervals of counts; 0 without replicates.
      ideal: Persons of the ideal area.
      total_deviation: Difference of the largest and the smallest area, in persons.
      deviation_ends: Interval of the true total deviation, at least as confident as stated; None
        without estimates.
      notes: Warnings about the areas.
    """

    table: pa.Table
    confidence: float
    replicates: int
    ideal: float
    total_deviation: int
    deviation_ends: tuple[float, float] | None
    notes: tuple[str, ...]

    @property
    def total_deviation_percent(self) -> float | None:
        """Return the total deviation in percent of the ideal area; None if the ideal area is 0."""
        return 100 * self.total_deviation / self.ideal if self.ideal else None

    def summary(self) -> dict[str, Any]:
        """Return everything except the rows as JSON."""
        summary = {"areas": len(self.table.column("area").unique()), **vars(self)}
        del summary["table"]
        ends = None if self.deviation_ends is None else [*self.deviation_ends]
        summary |= {"notes": [*self.notes], "deviation_ends": ends}
        return {**summary, "total_deviation_percent": self.total_deviation_percent}


def name_areas(resolved: Resolved, request: AreasRequest) -> AreaFile:
    """Return the requested areas: those of a file, and geounits as areas.

    Raises:
      ConfigError: The geolevel is unknown.
      InputError: The file cannot be read, or a geounit does not exist.
    """
    known = NamedGeounits(resolved.plan, resolved.last.release)
    codes = known.named(request.geounit, request.geolevel)
    geounits = {code: known.leaves_of(code, "das areas") for code in codes}
    if request.assign is None:
        return AreaFile(geounits, ())
    file = read_areas(request.assign, known.leaves, resolved.plan.leaf.name, request.column)
    return AreaFile({**geounits, **file.areas}, file.notes)


def tabulate_areas(
    resolved: Resolved,
    named: AreaFile,
    tables: Sequence[str],
    confidence: float = 0.9,
    ideal: float | None = None,
    share: str | None = None,
) -> AreaTables:
    """Compute tables of areas from a finished release.

    Args:
      resolved: The run of the release or of the further solution.
      named: Leaf geocodes by area, distinct and ascending, with notes.
      tables: Any queries on the schema.
      confidence: Confidence level of all intervals.
      ideal: Persons of the ideal area; None: the mean over areas.
      share: A query of one answer, in which each count has a share; None for no shares.

    Raises:
      ConfigError: No area is named, the tables have too many rows, or the query of the shares has
        several answers.
      InputError: A leaf geounit does not exist.
      SchemaError: A query does not parse.
      OutputError: The release is incomplete or damaged.
    """
    plan, release = resolved.plan, resolved.last.release
    queries = _tables(plan, named, tables, MOST_ROWS)
    whole = None if share is None else _whole(plan, share)
    estimates = EstimateLayout.of(release)
    leaf, *above = reversed(plan.spine.levels)
    used = [*map(release.geography, plan.spine.levels), *map(estimates.whole, above)]
    used += [release.counts(leaf), release.measurements(leaf), release.invariants(leaf)]
    verify_datasets(release, used)
    known = NamedGeounits(plan, release)
    areas = {name: known.on_spine(codes) for name, codes in named.areas.items()}
    members = _Members.of(areas)
    members.refuse_unknown(release, plan)
    areas_counted = members.add_up(Dataset.open(release.counts(leaf)), plan.schema.size)
    released = [query.answer(areas_counted) for query in queries]
    kept = kept_leaves(resolved)
    named_areas = [np.repeat(np.array([*areas], object), query.size) for query in queries]
    columns: dict[str, Any] = {
        "area": np.concatenate(named_areas),
        "table": np.repeat([query.name for query in queries], [*map(len, named_areas)]),
        "label": [label for query in queries for label in query.labels() * len(areas)],
        "count": _column(released),
    }
    if len(kept) > 1:
        drawn = [members.add_up(leaves, plan.schema.size) for leaves in kept]
        replicated = [[query.answer(counts) for query in queries] for counts in drawn]
        columns |= _of_counts(queries, released, replicated, confidence)
    if whole is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = [answers / whole.answer(areas_counted) for answers in released]
        columns["share"] = pa.array(_column(shares), from_pandas=True)
    if is_published(estimates.tables(leaf)):
        columns |= _of_estimates(plan, release, queries, areas, confidence, whole)
    totals = released[0][:, 0]
    ideal = float(totals.sum() / len(totals)) if ideal is None else ideal
    columns |= _of_totals(totals, ideal, columns)
    kinds = [(name, _KINDS.get(name, pa.float64())) for name in columns]
    table = pa.table([*map(pa.array, columns.values())], schema=pa.schema(kinds))
    deviation = int(totals.max() - totals.min())
    replicates = len(kept) if len(kept) > 1 else 0
    ends = _deviation_ends(table.slice(0, len(totals)), confidence)
    return AreaTables(table, confidence, replicates, ideal, deviation, ends, tuple(named.notes))


def refuse_long_print(resolved: Resolved, named: AreaFile, tables: Sequence[str]) -> None:
    """Refuse tables that are too long to print.

    Raises:
      ConfigError: No area is named, or the tables have too many rows.
      SchemaError: A query does not parse.
    """
    _tables(resolved.plan, named, tables, MOST_PRINTED)


def _tables(
    plan: Plan, named: AreaFile, tables: Sequence[str], most_rows: int
) -> tuple[Query, ...]:
    """Parse the queries of tables, the total first.

    Raises:
      ConfigError: No area is named, or the tables have too many rows.
      SchemaError: A query does not parse.
    """
    parsed = (parse_query(plan.schema, text) for text in (TOTAL, *tables))
    queries = tuple({query.name: query for query in parsed}.values())
    if not named.areas:
        raise ConfigError("das areas", "names no area", want="--assign, --geounit or --geolevel")
    rows = len(named.areas) * sum(query.size for query in queries)
    if rows > most_rows:
        raise ConfigError(
            "das areas",
            "has more rows than fit in memory",
            got=f"{rows}, {len(named.areas)} areas of {[query.name for query in queries]}",
            want=f"at most {MOST_ROWS} by --output, {MOST_PRINTED} printed",
            remedy="request fewer attributes, groups of levels or areas",
        )
    return queries


@dataclass(frozen=True, eq=False)
class _Members:
    """Membership of leaf geounits in areas.

    Attributes:
      codes: bytes[k], leaf geocodes, ascending; repeated if in several areas.
      area: int64[k], area index of each geocode.
      areas: Number of areas.
    """

    codes: Geocodes
    area: IntArray
    areas: int

    @classmethod
    def of(cls, areas: Mapping[str, Geocodes]) -> _Members:
        """Build the membership from leaf geocodes by area."""
        codes = np.concatenate([*areas.values()]).astype(np.bytes_)
        area = np.repeat(np.arange(len(areas)), [len(leaves) for leaves in areas.values()])
        order = np.argsort(codes, kind="stable")
        return cls(codes[order], area[order], len(areas))

    @cached_property
    def distinct(self) -> Geocodes:
        """Return bytes[n], the distinct leaf geocodes of all areas, ascending."""
        return np.unique(self.codes)

    def refuse_unknown(self, release: ReleaseLayout, plan: Plan) -> None:
        """Check that all leaf geounits exist.

        Raises:
          InputError: A leaf geounit does not exist.
        """
        leaves = read_public_geocodes(release, plan.leaf.name).astype(np.bytes_)
        spots = np.minimum(np.searchsorted(leaves, self.distinct), len(leaves) - 1)
        unknown = self.distinct[leaves[spots] != self.distinct]
        if len(unknown):
            raise InputError(
                "das areas",
                f"an area holds a code that is no {plan.leaf.name} of the release ({len(unknown)} "
                "such)",
                got=unknown[0].decode(errors="replace") or "nothing",
                want=f"geocodes such as {leaves[0].decode()}",
            )

    def add_up(self, leaves: Dataset, n_cells: int) -> Histograms:
        """Sum the histograms of leaves into histograms of areas."""
        from scipy.sparse import csr_array

        reader, sums = RangeReader(leaves), csr_array((self.areas, n_cells), dtype=np.int64)
        for start in range(0, len(self.distinct), _LEAVES):
            codes = self.distinct[start : start + _LEAVES]
            histograms = read_histograms(reader, codes.astype(np.str_).astype(object), n_cells)
            entries = (histograms.counts, histograms.cells, histograms.offsets)
            first = np.searchsorted(self.codes, codes[0])
            last = np.searchsorted(self.codes, codes[-1], side="right")
            spots = np.searchsorted(codes, self.codes[first:last])
            pairs = (np.ones(len(spots), np.int64), (self.area[first:last], spots))
            members = csr_array(pairs, shape=(self.areas, len(codes)))
            sums += members @ csr_array(entries, shape=(len(codes), n_cells))
        added = sums.tocoo()
        return Histograms.from_entries(n_cells, self.areas, added.row, added.col, added.data)


def _column(answers: Sequence[Any]) -> Any:  # noqa: ANN401 - numbers of any kind
    """Concatenate the answers of all queries into one column, ordered by query, area and answer."""
    return np.concatenate([values.ravel() for values in answers])


def _of_counts(
    queries: Sequence[Query],
    released: Sequence[IntArray],
    replicated: Sequence[Sequence[IntArray]],
    confidence: float,
) -> dict[str, Any]:
    """Compute intervals of the counts of areas from the spread of replicates.

    Args:
      queries: Tables.
      released: For each table, int64[areas, answers], the released counts.
      replicated: For each replicate, counts in the form of `released`.
      confidence: Confidence level of the intervals.
    """
    columns_of = []
    for index, (query, counts) in enumerate(zip(queries, released, strict=True)):
        others = np.stack([answers[index] for answers in replicated])
        interval = own_intervals(counts, others, confidence)
        ends = (interval.lower, interval.upper)
        lower, upper = ends if query.is_signed else (np.maximum(end, 0) for end in ends)
        columns_of.append((lower, upper, interval.bias, interval.spread))
    columns = map(_column, zip(*columns_of, strict=True))
    return dict(zip(_OF_COUNTS, columns, strict=True))


def _of_estimates(
    plan: Plan,
    release: ReleaseLayout,
    queries: tuple[Query, ...],
    areas: Mapping[str, Geocodes],
    confidence: float,
    whole: Query | None,
) -> dict[str, Any]:
    """Compute unbiased estimates with intervals; null for queries without estimates.

    Args:
      plan: The plan of the release.
      release: The release.
      queries: Tables.
      areas: Leaf geocodes of each area.
      confidence: Confidence level of the intervals.
      whole: Query in which the answers have shares; None for no shares.
    """
    wanted = queries if whole is None or whole in queries else (*queries, whole)
    unknown = without_estimates(plan, wanted)
    known = tuple(q for q in wanted if plan.leaf.name not in unknown.get(q.name, ()))
    estimator = AreaEstimator(LevelEstimator(plan, release, known, confidence), known)
    values = {query: np.full((len(areas), query.size), np.nan) for query in wanted}
    variances = {query: values[query].copy() for query in wanted}
    with_whole = {query: values[query].copy() for query in queries}  # covariances
    for row, codes in enumerate(areas.values() if known else ()):
        moments = estimator.blocks(codes)
        matrices = tuple(part[moments.kind] for part in moments.matrices)
        for query in known:
            values[query][row] = estimator.coordinates.answer(query, moments.values)[0]
            variances[query][row] = estimator.coordinates.variances(query, matrices)[0]
            if whole in known and query in with_whole:
                covariances = estimator.coordinates.covariances(query, whole, matrices)
                with_whole[query][row] = covariances[0, :, 0]
    factor = normal_factor(confidence)
    errors = {query: np.sqrt(variances[query]) for query in queries}
    intervals = [central_intervals(values[query], errors[query], factor) for query in queries]
    lower, upper = [ends.lower for ends in intervals], [ends.upper for ends in intervals]
    numbers = ([values[query] for query in queries], [*errors.values()], lower, upper)
    columns = dict(zip(_OF_ESTIMATES, numbers, strict=True))
    if whole is not None:
        ratios = [
            estimated_ratios(
                (values[query], variances[query]),
                (values[whole], variances[whole]),
                with_whole[query],
                factor,
            )
            for query in queries
        ]
        for name, end in _OF_SHARES.items():
            columns[name] = [getattr(each, end) for each in ratios]
    return {name: pa.array(_column(each), from_pandas=True) for name, each in columns.items()}


def _whole(plan: Plan, text: str) -> Query:
    """Parse the query in which counts have shares.

    Raises:
      ConfigError: It has several answers.
    """
    query = parse_query(plan.schema, text)
    if query.size != 1:
        want = "one answer, such as total"
        raise ConfigError("das areas --share", "has several answers", got=query.size, want=want)
    return query


def _of_totals(totals: IntArray, ideal: float, columns: Mapping[str, Any]) -> dict[str, pa.Array]:
    """Compute the deviations of the total of each area from the ideal area.

    Args:
      totals: Total of each area. These are the first rows of the table.
      ideal: Records in an area if all areas had equally many.
      columns: Columns of the table; rows that are not totals stay null in the new ones.

    Returns:
      The deviations, and with estimates the probability that the true total is further from the
      ideal than 5 and 10 % of it, given the noisy answers and a flat prior.
    """
    from scipy.special import ndtr

    empty = np.full(len(columns["count"]), np.nan)
    added = {"deviation": empty.copy(), "deviation_percent": empty.copy()}
    added["deviation"][: len(totals)] = totals - ideal
    if ideal:
        added["deviation_percent"] = 100 * added["deviation"] / ideal
    if "estimate" in columns:
        first = slice(len(totals))
        means, errors = (
            columns[name][first].to_numpy(zero_copy_only=False)
            for name in ("estimate", "standard_error")
        )
        for percent in BEYOND:
            edge = ideal * percent / 100
            with np.errstate(divide="ignore", invalid="ignore"):
                within = ndtr((ideal + edge - means) / errors) - ndtr(
                    (ideal - edge - means) / errors
                )
            exact = np.abs(means - ideal) <= edge
            added[f"beyond_{percent}_percent"] = empty.copy()
            added[f"beyond_{percent}_percent"][first] = 1 - np.where(errors > 0, within, exact)
    return {name: pa.array(column, from_pandas=True) for name, column in added.items()}


def _deviation_ends(totals: pa.Table, confidence: float) -> tuple[float, float] | None:
    """Return an interval of the largest minus the smallest total, from simultaneous intervals.

    Where all totals lie in their simultaneous intervals, the true total deviation lies in this
    one. Its confidence is at least the stated one, whatever the correlation of the estimates.

    Args:
      totals: Rows of the totals.
      confidence: Confidence level.

    Returns:
      The ends, in persons; None if a total has no estimate.
    """
    if "estimate" not in totals.column_names or totals.column("estimate").null_count:
        return None
    means, errors = (np.asarray(totals.column(name)) for name in ("estimate", "standard_error"))
    uncertain = int((errors > 0).sum())
    half = simultaneous_factor(confidence, uncertain, uncertain) * errors
    lower, upper = means - half, means + half
    return max(float(lower.max() - upper.min()), 0.0), float(upper.max() - lower.min())


def kept_leaves(resolved: Resolved) -> list[Dataset]:
    """Open the kept leaf counts of the replicates, or none if they are of another release."""
    folder = replicates_folder(resolved.config.output.directory, resolved.solution)
    settings = folder / "settings.json"
    if not settings.exists():
        return []
    stored = read_json(settings, "remove the folder, and run `das replicate` again")
    if stored.get("manifest") != digest_of(resolved.release.manifest):
        return []
    folders: list[Place] = sorted((folder / "leaves" / resolved.last.name).glob("*"), key=str)
    return [Dataset.open(leaves) for leaves in folders if is_published(leaves)]


def print_areas(tables: AreaTables, *, as_json: bool) -> None:
    """Print tables of areas."""
    summary = tables.summary()
    if as_json:
        typer.echo(json.dumps({**summary, "rows": tables.table.to_pylist()}))
        return
    percent = tables.total_deviation_percent
    shown = "" if percent is None else f", {percent:.2f} % of it"
    ends = ""
    if tables.deviation_ends is not None:
        low, high = tables.deviation_ends
        ends = f"; estimated at {low:,.2f} to {high:,.2f}"
    typer.echo(
        f"{summary['areas']} areas; ideal {tables.ideal:,.2f}; total deviation "
        f"{tables.total_deviation:,}{shown}{ends}"
    )
    for name in tables.table.column("table").unique().to_pylist():
        rows = tables.table.filter(pc.equal(tables.table.column("table"), name))
        kept = [column for column in rows.column_names if rows.column(column).null_count == 0]
        headings = [column for column in kept if column not in ("table", "label")]
        if name != TOTAL:
            headings.insert(1, "label")
        cells = [[_shown(row[heading]) for heading in headings] for row in rows.to_pylist()]
        print_rows((heading.replace("_", " ") for heading in headings), cells, printable(name))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
