"""The command `das nmf import`: noisy measurement files of the Census Bureau as a measured run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from das.arrays import BoolArray, IntArray, ObjectArray
from das.errors import (
    BudgetError,
    ConfigError,
    DasError,
    GeographyError,
    InputError,
    OutputError,
    SchemaError,
)
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query, is_refinement, parse_query
from das.rational import parse_fraction
from das.schema import Schema
from das.strategy import Strategy
from geography.lattice import ROOT_CODE, Lattice, Spine
from jobs.analysis.nmf_constraints import FACILITIES, Exact, read_exact
from jobs.analysis.nmf_files import (
    ANSWERS,
    CONSTRAINTS,
    COST,
    Index,
    LevelFiles,
    attribute_columns,
    chain_ends,
    chain_starts,
    digest_of,
    find_levels,
    matrix_of,
    read_index,
    read_values,
)
from jobs.analysis.nmf_noise import (
    PUBLISHED,
    Chain,
    Stated,
    Variance,
    check_variance,
    derived,
    first_difference,
)
from jobs.analysis.requests import NmfImport
from jobs.pipeline.config.allocation import load_allocation
from jobs.pipeline.config.files import ready_files
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.values import FORMAT
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.manifest import Origin
from jobs.pipeline.folder.identity import claim_as, owner_of
from jobs.pipeline.folder.lock import only_driver
from jobs.pipeline.folder.roots import make_roots
from jobs.pipeline.plan import Level, Plan, planned_ledger
from jobs.pipeline.release.implied import publish_given_counts, publish_implied
from jobs.pipeline.storage import answers as stored
from jobs.pipeline.storage.dataset import PartWriter, dataset_digest, publish
from jobs.pipeline.storage.files import drafted
from jobs.pipeline.storage.geography import write_geography
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.ledger import finalize_ledger, record_measured, start_ledger
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter

RUN_FILE = "run.yaml"
BEGIN_LOWER = "if files of other states were left out, begin with the state by --root state"
_ALLOCATION, _SCHEMA, _GEOUNITS = "allocation.yaml", "schema.yaml", "geounits.parquet"
_CHUNK_NUMBERS = 40_000_000  # answers in memory, 320 MB; default, not measured
_GEOUNITS_AT_ONCE = 100_000  # rows of a written batch; default, not measured


def read_nmf(request: NmfImport, reporter: Reporter) -> Path:
    """Import noisy measurement files into a new run folder, which is removed after an error.

    Returns:
      The run file, for `das run RUN --only solve` and `das estimate`.

    Raises:
      InputError: The files are incomplete or contradictory.
      ConfigError, SchemaError, BudgetError: Schema or allocation do not match the files.
      OutputError: The folder is not empty or cannot be written.
    """
    if (request.allocation is None) != (request.rho is None):
        raise ConfigError("--allocation", "and --rho must be given together")
    folder = request.folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(
            str(folder), "holds other files", remedy="choose a new folder for the import"
        )
    with drafted(folder) as draft:
        with reporter.line("index", str(request.nmf)):
            files = _Source.read(request)
        with reporter.line("index", "noise and constraints"):
            chains, stated = _noise(request, files)
            exact = read_exact(files.schema, files.lattice, files.levels, request.leave_out)
        _write_inputs(request, draft, files, exact, stated, chains)
        resolved = load_run(draft / RUN_FILE)
        require_runnable(resolved)
        n_files, digest = digest_of(request.nmf, files.levels)
        name = request.nmf.resolve().name
        origin = Origin(layout="nmf", name=name, files=n_files, sha256=digest)
        _write_release(resolved, files, exact, origin, reporter)
    run_file = folder / RUN_FILE
    claim_as(owner_of(load_run(run_file)))  # stores the final path of the run file
    return run_file


# --- what the files hold -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Source:
    """Noisy measurement files with their schema and geounits.

    Attributes:
      schema: Attributes and cells.
      schema_text: Text of the schema file.
      levels: Files by geolevel, root first.
      lattice: The geounits.
      spans: First and last geocode of every file.
    """

    schema: Schema
    schema_text: str
    levels: tuple[LevelFiles, ...]
    lattice: Lattice
    spans: Mapping[Path, tuple[str, str]]

    @classmethod
    def read(cls, request: NmfImport) -> _Source:
        levels = find_levels(request.nmf)
        first = next(path for level in levels for path in level.answers)
        schema, text = _schema(request, attribute_columns(first))
        spans: dict[Path, tuple[str, str]] = {}
        codes = {level.geolevel: _geocodes(level, spans) for level in levels}
        digits = {name: _digits(name, of_level) for name, of_level in codes.items()}
        ordered = sorted(levels, key=lambda level: digits[level.geolevel])
        names = [level.geolevel for level in ordered]
        if request.root is not None:
            if request.root not in names:
                what = "is no geolevel of the files"
                raise InputError("--root", what, got=request.root, want=names)
            first_level = names.index(request.root)
            ordered, names = ordered[first_level:], names[first_level:]
        try:
            spine = Spine(tuple(names), tuple(digits[name] for name in names))
            lattice = Lattice.from_leaves(spine, codes[names[-1]])
        except GeographyError as error:
            raise InputError(
                str(request.nmf),
                f"{error.where}: {error.what}",
                got=error.got,
                want=error.want,
                remedy="give the files of the nation, or of one state alone with --root state",
            ) from None
        for index, name in enumerate(names):
            if digits[name] and not np.isin(codes[name], lattice.codes[index]).all():
                what = f"has geounits without a {names[-1]} below them"
                raise InputError(f"{request.nmf}, geolevel {name}", what)
        return cls(schema, text, tuple(ordered), lattice, spans)


def _schema(request: NmfImport, attributes: Sequence[str]) -> tuple[Schema, str]:
    """Return the schema of the files, and the text of its file."""
    given, known, wanted = request.schema, [], list(attributes)
    ready = [content for name, content in ready_files().items() if name.parts[0] == "schema"]
    for content in ready if given is None else [given.read_bytes()]:
        with _as_file(content) as path:
            schema = load_schema(path if given is None else given)  # errors name the file
        names = [attribute.name for attribute in schema.attributes]
        if names == wanted:
            return schema, content.decode()
        known.append(names)
    if given is not None:
        what = "has other attributes than the files"
        raise SchemaError(f"schema {schema.name}", what, got=names, want=wanted)
    raise InputError(
        str(request.nmf),
        "has attributes that no ready schema has",
        got=wanted,
        want=f"one of {known}",
        remedy="give a schema with these attributes by --schema",
    )


@contextmanager
def _as_file(content: bytes) -> Iterator[Path]:
    """Write YAML to a temporary file, which is removed at the end of the block."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def _geocodes(level: LevelFiles, spans: dict[Path, tuple[str, str]]) -> npt.NDArray[np.bytes_]:
    """Return bytes[G], the geocodes of all geounits with answers or constraints, ascending.

    Args:
      level: Files of a geolevel.
      spans: Receives the first and last geocode of every file.
    """
    codes_of = []
    for kind, paths in ((ANSWERS, level.answers), (CONSTRAINTS, level.constraints)):
        for path in paths:
            codes = np.sort(read_index(path, kind).codes)
            if len(codes):
                spans[path] = (codes[0].decode(), codes[-1].decode())
                codes_of.append(codes)
    return np.unique(np.concatenate(codes_of)) if codes_of else np.zeros(0, "S1")


def _digits(geolevel: str, codes: npt.NDArray[np.bytes_]) -> int:
    """Return the length of the geocodes of a geolevel; 0 for the nation."""
    if geolevel == "nation":
        if len(codes) > 1:
            raise InputError("geolevel nation", "has several geounits", got=len(codes), want=1)
        return 0
    lengths = np.unique(np.char.str_len(codes)).tolist()
    if len(lengths) > 1:
        raise InputError(f"geolevel {geolevel}", "has geocodes of several lengths", got=lengths)
    return int(lengths[0])


# --- noise ---------------------------------------------------------------------------------------


def _noise(request: NmfImport, source: _Source) -> tuple[str, Stated]:
    """Find the allocation that matches all variances, and the shares that chains use."""
    noise: dict[Chain, dict[str, Variance]] = {}
    for index in range(len(source.levels)):
        _check_rows(request, source, index, noise)
    levels = source.lattice.spine.levels
    differences: list[tuple[Chain, str, float, float | None]] = []
    for stated, strategy in _allocations(request, source, noise):
        differences = []
        for chains in ("last", "first"):
            planned = replace(strategy, asks_last=chains == "last")
            differs = first_difference(planned, stated.rho, noise)
            if differs is None:
                return chains, stated
            differences.append(differs)
    chain, query, value, want = differences[0]
    what = "has noisy answers, but is not in the allocation"
    if want is not None:
        by = (
            "of the allocation"
            if request.allocation is not None
            else "implied by the other variances"
        )
        what = f"has another noise variance than that {by}"
    raise InputError(f"geolevel {levels[chain.last]}, query {query}", what, got=value, want=want)


def _allocations(
    request: NmfImport, source: _Source, noise: Mapping[Chain, Mapping[str, Variance]]
) -> Iterator[tuple[Stated, Strategy]]:
    """Yield the given allocation; else published ones, then one derived from variances."""
    schema, spine = source.schema, source.lattice.spine
    if request.allocation is not None and request.rho is not None:
        given = Stated(request.rho, request.allocation.read_text(encoding="utf-8"))
        yield given, load_allocation(request.allocation, schema, spine)
        return
    for name, content in ready_files().items():
        if name.parts[0] == "allocation" and name.stem in PUBLISHED:
            with _as_file(content) as path, suppress(DasError):  # for other geolevels or attributes
                strategy = load_allocation(path, schema, spine)
                yield Stated(PUBLISHED[name.stem], content.decode()), strategy
    why = (
        f"Fitted to the variances of {request.nmf.name}: these shares of rho reproduce all of them "
        "to their last digit."
    )
    stated = derived(schema, spine.levels, noise, why)
    with _as_file(stated.document.encode()) as path:
        yield stated, load_allocation(path, schema, spine)


@dataclass(frozen=True, eq=False)
class _LevelRows:
    """Rows of the answers of one geolevel, gathered file by file.

    Attributes:
      times: By query: int64[G], how often each geounit answers it.
      variances: Variances by query and geolevel on which chains begin.
      costs: Stated costs by query and geolevel on which chains begin.
    """

    times: dict[str, IntArray] = field(default_factory=dict)
    variances: dict[tuple[str, int], set[Variance]] = field(default_factory=dict)
    costs: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    def add(self, rows: Index, geounit: IntArray, begins: IntArray) -> None:
        """Add the rows of a file.

        Args:
          rows: The rows.
          geounit: int64[R], index of the geounit of each row.
          begins: int64[G], geolevel on which the chain of each geounit begins.
        """
        for column, name in enumerate(rows.names):
            is_of_query = rows.query == column
            known = self.times.setdefault(name, np.zeros(len(begins), np.int64))
            known += np.bincount(geounit[is_of_query], minlength=len(begins))
            for begin in np.unique(begins[geounit[is_of_query]]).tolist():
                some = is_of_query & (begins[geounit] == begin)
                values = np.unique(rows.variances[some]).tolist()
                variances = {Variance(value, rows.is_single) for value in values}
                self.variances.setdefault((name, begin), set()).update(variances)
                stated = {rows.costs[cost] for cost in np.unique(rows.cost[some])}
                self.costs.setdefault((name, begin), set()).update(stated)


def _check_rows(
    request: NmfImport, source: _Source, index: int, noise: dict[Chain, dict[str, Variance]]
) -> None:
    """Check that every measured geounit answers each query once; add the variances to `noise`.

    Geounits with no child or several children are measured; a chain of only children is measured
    once, in its last geounit.

    Raises:
      InputError: A query is missing, repeated, or answered in a geounit that is not measured.
    """
    lattice, level = source.lattice, source.levels[index]
    where = f"{request.nmf}, geolevel {level.geolevel}"
    is_measured, begins = lattice.n_children(index) != 1, chain_starts(lattice, index)
    read, parsed = _LevelRows(), dict[str, Query]()
    for path in level.answers:
        rows = read_index(path, ANSWERS)
        parsed |= {name: _query(source.schema, where, name) for name in rows.names}
        _check_shapes(where, rows, parsed)
        at = np.zeros(len(rows.codes), np.int64)  # the nation has one geounit, whatever its geocode
        if lattice.spine.digits[index]:
            at = np.searchsorted(lattice.codes[index], rows.codes)
        read.add(rows, at[rows.geounit], begins)
    if not parsed:
        if is_measured.any():
            raise InputError(where, "lacks noisy answers", want=ANSWERS)
        return
    meant = [query.name for query in parsed.values()]
    if len(set(meant)) < len(meant):
        raise InputError(where, "names a query in two ways", got=[*parsed])
    for name, times in read.times.items():
        _check_times(where, name, times, is_measured, lattice.codes[index])
    for (name, begin), variances in read.variances.items():
        values = sorted({variance.value for variance in variances})
        for value in values:
            check_variance(f"{where}, query {name}", value)
        if len(values) > 1:
            raise InputError(
                f"{where}, query {name}",
                "has several variances among geounits with equal shares",
                got=values[:3],
            )
        kind = noise.setdefault(Chain(begin, index), {})
        single = any(variance.is_single for variance in variances)
        kind[parsed[name].name] = Variance(values[0], single, _cost(read.costs[name, begin]))


def _check_times(
    where: str, query: str, times: IntArray, is_measured: BoolArray, codes: npt.NDArray[np.bytes_]
) -> None:
    """Check that a query is answered once in all measured geounits, and in no other."""
    twice, extra = times > 1, (times > 0) & ~is_measured
    absent = (times == 0) & is_measured
    for wrong, what in (
        (twice, "answers a query twice in a geounit"),
        (extra, "has answers in a geounit with a single child, which is measured instead"),
        (absent, "lacks a query of a geounit"),
    ):
        if wrong.any():
            first = codes[int(np.argmax(wrong))].decode()
            got = f"{query} in {first}, {int(wrong.sum())} such"
            raise InputError(where, what, got=got, remedy=BEGIN_LOWER if wrong is extra else None)


def _cost(texts: set[str]) -> Fraction | None:
    """Return the cost that all rows state, or None if costs differ or are no fractions.

    Args:
      texts: Distinct values of the cost column.
    """
    try:
        return parse_fraction(next(iter(texts)), COST) if len(texts) == 1 else None
    except BudgetError:
        return None


def _query(schema: Schema, where: str, name: str) -> Query:
    try:
        return parse_query(schema, name)
    except SchemaError as error:
        where, what = f"{where}, query {name}", f"does not fit the schema: {error.what}"
        raise InputError(where, what, got=error.got, want=error.want) from None


def _check_shapes(where: str, rows: Index, queries: dict[str, Query]) -> None:
    if rows.shapes is None:
        return
    for index, name in enumerate(rows.names):
        shapes, want = rows.shapes[rows.query == index], list(queries[name].shape)
        if shapes.shape[1] != len(want) or (shapes != np.array(want)).any():
            got = shapes[0].tolist()
            what = "has another shape than in the schema"
            raise InputError(f"{where}, query {name}", what, got=got, want=want)


# --- the folder ----------------------------------------------------------------------------------


def _write_inputs(
    request: NmfImport, draft: Path, source: _Source, exact: Exact, stated: Stated, chains: str
) -> None:
    """Write the run file and the files that it names."""
    spine = source.lattice.spine
    attributes = [attribute.name for attribute in source.schema.attributes]
    geounits = pa.table({"geocode": source.lattice.codes[-1].astype(np.str_)})
    pq.write_table(geounits, draft / _GEOUNITS)
    if exact.facilities is not None:
        pq.write_table(exact.facilities, draft / FACILITIES)
    (draft / _SCHEMA).write_text(source.schema_text, encoding="utf-8")
    (draft / _ALLOCATION).write_text(stated.document, encoding="utf-8")
    nmf, digits = request.nmf.resolve(), zip(spine.levels, spine.digits, strict=True)
    levels = [{"name": name, "digits": number} for name, number in digits]
    product = {
        "schema": _SCHEMA,
        "data": {"input_format": "nmf", "path": str(nmf), "chains": chains},
        "privacy": {"rho": str(stated.rho), "allocation": _ALLOCATION},
        "invariants": exact.invariants,
        "solve": {"rounding_passes": _rounding_passes(source.schema, stated.document)},
        "output": {"microdata": ["parquet"]},
    }
    name = request.product or ("units" if "h1" in attributes else "persons")
    document = {
        "format": FORMAT,
        "name": f"nmf {nmf.name}",
        "geography": {"levels": levels, "geounits": {"path": _GEOUNITS}},
        "products": {name: product},
        "output": {"directory": "out"},
    }
    text = yaml.safe_dump(document, sort_keys=False, width=100)
    head = "# Made by das nmf import. You can change `solve` and `output`.\n"
    (draft / RUN_FILE).write_text(head + text, encoding="utf-8")


def _rounding_passes(schema: Schema, allocation: str) -> list[list[str]]:
    """Return rounding passes: totals, then nested queries, as published tables add up their cells.

    Each query of the chain is the largest measured one that the next query refines.

    Args:
      schema: Attributes and cells.
      allocation: Text of the allocation file; its last geolevel names the measured queries.
    """
    *_, last = yaml.safe_load(allocation)["levels"].values()
    queries = [parse_query(schema, name) for name in last["queries"]]
    chain = [parse_query(schema, "detailed")]
    for query in sorted(queries, key=lambda query: -query.size):  # of equal size the first named
        if 1 < query.size < chain[0].size and is_refinement(chain[0], query):
            chain.insert(0, query)
    return [["total"], [query.name for query in chain]]


def _write_release(
    resolved: Resolved, source: _Source, exact: Exact, origin: Origin, reporter: Reporter
) -> None:
    """Write all files of a run that has measured."""
    product, roots = resolved.last, resolved.config.output.roots
    plan, release = product.plan, product.release
    make_roots(roots)
    with only_driver(roots.out):
        claim_as(owner_of(resolved))
        granted = {**plan.budget.exact(), "randomness": plan.randomness}
        start_ledger(release.ledger, granted, planned_ledger(plan, source.lattice))
        write_geography(source.lattice, release)
        with reporter.line("resolve_constraints", "invariants"):
            _publish_exact(product, source, exact)
        for level in plan.levels:
            with reporter.line("read", f"noisy answers of {level.name}", level.name):
                _publish_answers(plan, level, release, source, origin)
            digest = dataset_digest(release.measurements(level.name))
            record_measured(release.ledger, level.name, digest)
        finalize_ledger(release.ledger)


def _publish_exact(product: Product, source: _Source, exact: Exact) -> None:
    """Publish exact totals, given counts and implied bounds."""
    plan, release = product.plan, product.release
    for index, totals in enumerate(exact.totals):
        level, codes = plan.levels[index], source.lattice.codes[index].astype(np.str_)
        dataset = release.invariants(level.name)
        writer = PartWriter(dataset, stored.ANSWERS)
        for start in range(0, len(codes), _GEOUNITS_AT_ONCE):
            some = slice(start, start + _GEOUNITS_AT_ONCE)
            writer.write(stored.answer_table(codes[some].tolist(), "total", totals[some, None]))
        publish(dataset, [writer.close()], {"geolevel": level.name, "queries": ["total"]})
    publish_given_counts(plan, product.config.invariants, release, {})
    if not plan.limits.depends_on_other_products:
        publish_implied(plan, release, LocalTasks(Sizing(1)))


def _publish_answers(
    plan: Plan, level: Level, release: ReleaseLayout, source: _Source, origin: Origin
) -> None:
    """Publish the noisy answers of the geounits of a geolevel that are not only children."""
    lattice, dataset = source.lattice, release.measurements(level.name)
    measured = np.flatnonzero(~lattice.is_only_child[level.index])
    names = lattice.codes[level.index].astype(np.str_)
    ends, at = chain_ends(lattice, level.index)
    noise = {end: plan.noise(level.index, end) for end in np.unique(at[measured]).tolist()}
    writer = PartWriter(dataset, stored.MEASUREMENTS)
    chunk = max(1, _CHUNK_NUMBERS // sum(query.size for query in level.queries))
    for start in range(0, len(measured), chunk):
        rows = measured[start : start + chunk]
        codes, last = ends[rows], at[rows]
        read = {end: _between(source, end, codes[last == end]) for end in np.unique(last).tolist()}
        tables = []
        for index, query in enumerate(level.queries):
            answers = np.zeros((len(rows), query.size), np.int64)
            for end, table in read.items():
                answers[last == end] = _answers(source, end, table, query, codes[last == end])
            drawn: list[Mechanism] = [noise[end][index].mechanism for end in last]
            tables.append(
                stored.measurement_table(names[rows].tolist(), query.name, drawn, answers)
            )
        writer.write_apart(tables)
    facts = {
        "format": stored.MEASUREMENTS_FORMAT,
        "geolevel": level.name,
        "configuration_digest": plan.digest,
        "not_for_release": False,
        "queries": [stored.described(query) for query in level.queries],
        "lazy_queries": [],
        "open_session": False,
        stored.ORIGIN: json_of(origin),
    }
    publish(dataset, [writer.close()], facts)


def _between(source: _Source, index: int, codes: ObjectArray) -> pa.Table:
    """Read the rows of a geolevel between the first and the last of these geocodes."""
    files = source.levels[index].answers
    if source.lattice.spine.digits[index] == 0:
        table = read_values(files)
        return table.set_column(0, "geocode", pa.array([ROOT_CODE] * len(table), pa.string()))
    low, high = str(codes.min()), str(codes.max())
    spans = {path: source.spans[path] for path in files if path in source.spans}
    return read_values([p for p, (a, b) in spans.items() if a <= high and b >= low], low, high)


def _answers(
    source: _Source, index: int, table: pa.Table, query: Query, codes: ObjectArray
) -> IntArray:
    """Return int64[geounits, answers], the answers of a query.

    Args:
      source: The measurement files.
      index: Index of the geolevel.
      table: Rows of the geolevel, for at least the geounits `codes`.
      query: The query.
      codes: Geocodes of the geounits, in the order of the result.
    """
    written = table.column("query").unique().to_pylist()
    names = [name for name in written if parse_query(source.schema, name).name == query.name]
    rows = table.filter(pc.is_in(table.column("query"), pa.array(names, pa.string())))
    rows = rows.take(pc.sort_indices(rows.column("geocode")))
    stored_codes = np.asarray(rows.column("geocode").to_pylist(), np.str_)
    index_of = np.searchsorted(stored_codes, codes.astype(np.str_))
    where = f"geolevel {source.levels[index].geolevel}, query {query.name}"
    what = "has another number of answers"
    return matrix_of(rows.column("value"), where, what, query.size)[index_of]
