"""The command `das areas`: tables of districts, or of any other areas, from a release alone.

Protected counts added up, beside the unbiased estimates of the same sums, and how far the total of
each area is from that of the ideal one.
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
from das.tree.intervals import central_intervals, normal_factor
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
"""How CSV files start that are written, and may be written again."""
TOTAL = "total"
MOST_ROWS = 4_000_000
"""Of a file: 4.1 million took 0.9 GB."""
MOST_PRINTED = 200_000
"""Of what is printed: 197 thousand took 0.7 GB and 39 core seconds."""
_LEAVES = 100_000  # whose counts are held at once
_TEXTS = ("area", "table", "label")
_WHOLE = ("count", "count_lower", "count_upper")  # all other columns are of floating-point numbers
_OF_COUNTS = ("count_lower", "count_upper", "count_bias", "count_standard_deviation")
_OF_ESTIMATES = ("estimate", "standard_error", "estimate_lower", "estimate_upper")


@dataclass(frozen=True, eq=False)
class AreaTables:
    """Tables of areas.

    Attributes:
      table: A row per area, table and answer, the total of each area first: area, table, label,
        count, of it count_lower, count_upper, count_bias and count_standard_deviation where leaf
        counts of replicates are there, estimate, standard_error, estimate_lower and estimate_upper
        where the release has estimates, and of the total deviation and deviation_percent from the
        ideal area.
      confidence: Of the intervals.
      replicates: From how many replicates intervals of counts are; 0 if there are none.
      ideal: Persons of the ideal area.
      total_deviation: Between the largest and the smallest area, in persons.
      notes: What a reader should know of the areas.
    """

    table: pa.Table
    confidence: float
    replicates: int
    ideal: float
    total_deviation: int
    notes: tuple[str, ...]

    @property
    def total_deviation_percent(self) -> float | None:
        """Of the ideal area; None if nobody lives anywhere."""
        return 100 * self.total_deviation / self.ideal if self.ideal else None

    def summary(self) -> dict[str, Any]:
        """All but the rows, as JSON."""
        own = vars(self) | {"notes": [*self.notes]}
        own["total_deviation_percent"] = self.total_deviation_percent
        del own["table"]
        return {"areas": len(self.table.column("area").unique()), **own}


def name_areas(resolved: Resolved, request: AreasRequest) -> AreaFile:
    """The areas that a command line names: those of a file, and geounits as areas of their own.

    Raises:
      ConfigError: There is no such geolevel.
      InputError: The file cannot be understood, or a geounit does not exist.
    """
    known = NamedGeounits(resolved.plan, resolved.last.release)
    codes = known.named(request.geounit, request.geolevel)
    found = {code: known.leaves_of(code, "das areas") for code in codes}
    if request.assign is None:
        return AreaFile(found, ())
    file = read_areas(request.assign, known.leaves, resolved.plan.leaf.name, request.column)
    return AreaFile({**found, **file.areas}, file.notes)


def tabulate_areas(
    resolved: Resolved,
    named: AreaFile,
    tables: Sequence[str],
    confidence: float = 0.9,
    ideal: float | None = None,
    most_rows: int = MOST_ROWS,
) -> AreaTables:
    """Tables of areas of a finished release.

    Args:
      resolved: The run of the release, or of the solution that is meant.
      named: Leaf geocodes by area, each once, ascending; and what is known of the areas.
      tables: Queries of any kind.
      confidence: Of all intervals.
      ideal: Persons of the ideal area; None for an even share of all.
      most_rows: Of all tables together.

    Raises:
      ConfigError: No area is named, or the tables have more rows than are wanted.
      InputError: A leaf does not exist.
      SchemaError: A table does not parse.
      OutputError: The release is not complete or was damaged.
    """
    plan, release = resolved.plan, resolved.last.release
    parsed = (parse_query(plan.schema, text) for text in (TOTAL, *tables))
    queries = tuple({query.name: query for query in parsed}.values())
    if not named.areas:
        raise ConfigError("das areas", "names no area", want="--assign, --geounit or --geolevel")
    rows = len(named.areas) * sum(query.size for query in queries)
    if rows > most_rows:
        raise ConfigError(
            "das areas",
            "has more rows than are held at once",
            got=f"{rows}, {len(named.areas)} areas of {[query.name for query in queries]}",
            want=f"at most {MOST_ROWS} by --output, {MOST_PRINTED} printed",
            remedy="ask fewer attributes or groups of levels, or fewer areas",
        )
    estimates = EstimateLayout.of(release)
    leaf, *above = reversed(plan.spine.levels)
    verify_datasets(
        release,
        [
            *map(release.geography, plan.spine.levels),
            *(place(leaf) for place in (release.counts, release.measurements, release.invariants)),
            *map(estimates.whole, above),
        ],
    )
    known = NamedGeounits(plan, release)
    areas = {name: known.on_spine(codes) for name, codes in named.areas.items()}
    members = _Members.of(areas)
    members.refuse_unknown(release, plan)
    counted = Dataset.open(release.counts(leaf))
    areas_counted = members.add_up(counted, plan.schema.size)
    seen = [query.answer(areas_counted) for query in queries]
    kept = kept_leaves(resolved)
    columns = _identity(queries, [*areas])
    columns["count"] = _column(seen)
    if len(kept) > 1:
        drawn = [members.add_up(one, plan.schema.size) for one in kept]
        replicated = [[query.answer(one) for query in queries] for one in drawn]
        columns |= _of_counts(queries, seen, replicated, confidence)
    if is_published(estimates.tables(leaf)):
        columns |= _of_estimates(plan, release, queries, areas, confidence)
    totals = seen[0][:, 0]
    ideal = float(totals.sum() / len(totals)) if ideal is None else ideal
    columns |= _of_totals(totals, ideal, len(columns["count"]))
    kinds = dict.fromkeys(columns, pa.float64()) | dict.fromkeys(_TEXTS, pa.string())
    kinds |= {name: pa.int64() for name in _WHOLE if name in columns}
    arrays = [pa.array(column) for column in columns.values()]
    table = pa.table(arrays, schema=pa.schema([*kinds.items()]))
    deviation = int(totals.max() - totals.min())
    replicates = len(kept) if len(kept) > 1 else 0
    return AreaTables(table, confidence, replicates, ideal, deviation, tuple(named.notes))


@dataclass(frozen=True, eq=False)
class _Members:
    """Which leaves are in which areas.

    Attributes:
      codes: bytes[k] leaf geocodes, ascending; one that is in several areas several times.
      area: int64[k], the area of each.
      areas: How many areas there are.
    """

    codes: Geocodes
    area: IntArray
    areas: int

    @classmethod
    def of(cls, areas: Mapping[str, Geocodes]) -> _Members:
        """Those of leaf geocodes by area."""
        codes = np.concatenate([*areas.values()]).astype(np.bytes_)
        area = np.repeat(np.arange(len(areas)), [len(own) for own in areas.values()])
        order = np.argsort(codes, kind="stable")
        return cls(codes[order], area[order], len(areas))

    @cached_property
    def distinct(self) -> Geocodes:
        """bytes[n] geocodes, each once."""
        return np.unique(self.codes)

    def refuse_unknown(self, release: ReleaseLayout, plan: Plan) -> None:
        """Check that all leaves exist.

        Raises:
          InputError: One does not.
        """
        leaves = read_public_geocodes(release, plan.leaf.name).astype(np.bytes_)
        spots = np.minimum(np.searchsorted(leaves, self.distinct), len(leaves) - 1)
        unknown = self.distinct[leaves[spots] != self.distinct]
        if len(unknown):
            raise InputError(
                "das areas",
                f"an area holds what is no {plan.leaf.name} of the release ({len(unknown)} such)",
                got=unknown[0].decode(errors="replace") or "nothing",
                want=f"geocodes such as {leaves[0].decode()}",
            )

    def add_up(self, leaves: Dataset, n_cells: int) -> Histograms:
        """Histograms of the areas from those of leaves."""
        from scipy.sparse import csr_array

        reader, sums = RangeReader(leaves), csr_array((self.areas, n_cells), dtype=np.int64)
        for start in range(0, len(self.distinct), _LEAVES):
            own = self.distinct[start : start + _LEAVES]
            found = read_histograms(reader, own.astype(np.str_).astype(object), n_cells)
            entries = (found.counts, found.cells, found.offsets)
            first = np.searchsorted(self.codes, own[0])
            last = np.searchsorted(self.codes, own[-1], side="right")
            spots = np.searchsorted(own, self.codes[first:last])
            pairs = (np.ones(len(spots), np.int64), (self.area[first:last], spots))
            members = csr_array(pairs, shape=(self.areas, len(own)))
            sums += members @ csr_array(entries, shape=(len(own), n_cells))
        added = sums.tocoo()
        return Histograms.from_entries(n_cells, self.areas, added.row, added.col, added.data)


def _column(answers: Sequence[Any]) -> Any:  # noqa: ANN401 - numbers of any kind
    """Answers of all queries as a column: by query, then area, then answer."""
    return np.concatenate([one.ravel() for one in answers])


def _identity(queries: Sequence[Query], names: Sequence[str]) -> dict[str, Any]:
    areas = [np.repeat(np.array(names, object), query.size) for query in queries]
    return {
        "area": np.concatenate(areas),
        "table": np.repeat([query.name for query in queries], [len(own) for own in areas]),
        "label": [label for query in queries for label in query.labels() * len(names)],
    }


def _of_counts(
    queries: Sequence[Query],
    seen: Sequence[IntArray],
    replicated: Sequence[Sequence[IntArray]],
    confidence: float,
) -> dict[str, Any]:
    """Intervals of counts, from replicates of the same sums."""
    found = []
    for index, (query, own) in enumerate(zip(queries, seen, strict=True)):
        others = np.stack([answers[index] for answers in replicated])
        interval = own_intervals(own, others, confidence)
        signed = any(factor.matrix.min() < 0 for factor in query.factors)
        ends = (interval.lower, interval.upper)
        lower, upper = ends if signed else (np.maximum(end, 0) for end in ends)
        found.append((lower, upper, interval.bias, interval.spread))
    columns = map(_column, zip(*found, strict=True))
    return dict(zip(_OF_COUNTS, columns, strict=True))


def _of_estimates(
    plan: Plan,
    release: ReleaseLayout,
    queries: tuple[Query, ...],
    areas: Mapping[str, Geocodes],
    confidence: float,
) -> dict[str, Any]:
    """Unbiased estimates, with intervals; null of queries that have none."""
    unknown = without_estimates(plan, queries)
    known = tuple(q for q in queries if plan.leaf.name not in unknown.get(q.name, ()))
    one = AreaEstimator(LevelEstimator(plan, release, known, confidence), known)
    values = [np.full((len(areas), query.size), np.nan) for query in queries]
    errors = [each.copy() for each in values]
    for row, codes in enumerate(areas.values() if known else ()):
        moments = one.blocks(codes)
        matrices = tuple(part[moments.kind] for part in moments.matrices)
        for index, query in enumerate(queries):
            if query in known:
                values[index][row] = one.coordinates.answer(query, moments.values)[0]
                errors[index][row] = np.sqrt(one.coordinates.variances(query, matrices)[0])
    factor = normal_factor(confidence)
    found = [central_intervals(v, e, factor) for v, e in zip(values, errors, strict=True)]
    numbers = (values, errors, [one.lower for one in found], [one.upper for one in found])
    columns = (pa.array(_column(each), from_pandas=True) for each in numbers)
    return dict(zip(_OF_ESTIMATES, columns, strict=True))


def _of_totals(totals: IntArray, ideal: float, rows: int) -> dict[str, Any]:
    """How far totals, which come first, are from the ideal one; null of other rows."""
    apart = totals - ideal
    rest = [None] * (rows - len(totals))
    percent = (100 * apart / ideal).tolist() if ideal else [None] * len(apart)
    return {"deviation": [*apart.tolist(), *rest], "deviation_percent": [*percent, *rest]}


def kept_leaves(resolved: Resolved) -> list[Dataset]:
    """Leaf counts of the replicates of a release that were kept; none if they are of another."""
    folder = replicates_folder(resolved.config.output.directory, resolved.solution)
    settings = folder / "settings.json"
    if not settings.exists():
        return []
    said = read_json(settings, "remove the folder, and run `das replicate` again")
    if said.get("manifest") != digest_of(resolved.release.manifest):
        return []
    places: list[Place] = sorted((folder / "leaves" / resolved.last.name).glob("*"), key=str)
    return [Dataset.open(place) for place in places if is_published(place)]


def print_areas(found: AreaTables, *, as_json: bool) -> None:
    """Print tables of areas."""
    summary = found.summary()
    if as_json:
        typer.echo(json.dumps({**summary, "rows": found.table.to_pylist()}))
        return
    percent = summary["total_deviation_percent"]
    shown = "" if percent is None else f", {percent:.2f} % of it"
    typer.echo(
        f"{summary['areas']} areas; ideal {found.ideal:,.1f}; total deviation "
        f"{found.total_deviation:,}{shown}"
    )
    for name in found.table.column("table").unique().to_pylist():
        rows = found.table.filter(pc.equal(found.table.column("table"), name))
        kept = [column for column in rows.column_names if rows.column(column).null_count == 0]
        headings = [column for column in kept if column not in ("table", "label")]
        if name != TOTAL:
            headings.insert(1, "label")
        cells = [[_shown(row[one]) for one in headings] for row in rows.to_pylist()]
        print_rows((one.replace("_", " ") for one in headings), cells, printable(name))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
