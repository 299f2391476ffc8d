"""`das nmf import`: noisy measurement files of the Census Bureau as a run that has measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

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
from das.queries.query import Query, parse_query
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
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.config.upgrade import FORMAT
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.manifest import Origin
from jobs.pipeline.folder.identity import claim_as, owner_of
from jobs.pipeline.folder.lock import only_driver
from jobs.pipeline.folder.roots import make_roots
from jobs.pipeline.plan import Level, Plan, planned_ledger
from jobs.pipeline.release.given import publish_given_counts
from jobs.pipeline.release.implied import publish_implied
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
_CHUNK_NUMBERS = 40_000_000  # answers held at once; each time, files about them are read
_GEOUNITS_AT_ONCE = 100_000


def read_nmf(asked: NmfImport, reporter: Reporter) -> Path:
    """Read everything and make the run folder; on an error nothing is left of it.

    Returns:
      The run file: `das run RUN --only solve` and `das estimate` go on from it.

    Raises:
      InputError: The files do not hold what they should.
      ConfigError, SchemaError, BudgetError: Schema or allocation do not fit them.
      OutputError: The folder is not empty or cannot be written.
    """
    if (asked.allocation is None) != (asked.rho is None):
        raise ConfigError("--allocation", "goes with --rho, and --rho with it")
    folder = asked.folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(
            str(folder), "holds other things", remedy="choose a new folder for the import"
        )
    with drafted(folder) as draft:
        with reporter.line("index", str(asked.nmf)):
            found = _Found.read(asked)
        with reporter.line("index", "noise and constraints"):
            chains, stated = _noise(asked, found)
            exact = read_exact(found.schema, found.lattice, found.levels, asked.leave_out)
        _write_inputs(asked, draft, found, exact, stated, chains)
        resolved = load_run(draft / RUN_FILE)
        require_runnable(resolved)
        files, digest = digest_of(asked.nmf, found.levels)
        name = asked.nmf.resolve().name
        origin = Origin(layout="nmf", name=name, files=files, sha256=digest)
        _write_release(resolved, found, exact, origin, reporter)
    run_file = folder / RUN_FILE
    claim_as(owner_of(load_run(run_file)))  # which remembers where the run file is
    return run_file


# --- what the files hold -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Found:
    """Files with what all of them are about.

    Attributes:
      schema: Attributes and cells.
      schema_text: The file that it is read from.
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
    def read(cls, asked: NmfImport) -> _Found:
        levels = find_levels(asked.nmf)
        first = next(path for level in levels for path in level.answers)
        schema, text = _schema(asked, attribute_columns(first))
        spans: dict[Path, tuple[str, str]] = {}
        codes = {level.geolevel: _geocodes(level, spans) for level in levels}
        digits = {name: _digits(name, found) for name, found in codes.items()}
        ordered = sorted(levels, key=lambda level: digits[level.geolevel])
        names = [level.geolevel for level in ordered]
        if asked.root is not None:
            if asked.root not in names:
                raise InputError(
                    "--root", "is no geolevel of the files", got=asked.root, want=names
                )
            ordered = ordered[names.index(asked.root) :]
            names = names[names.index(asked.root) :]
        try:
            spine = Spine(tuple(names), tuple(digits[name] for name in names))
            lattice = Lattice.from_leaves(spine, codes[names[-1]])
        except GeographyError as error:
            raise InputError(
                str(asked.nmf),
                f"{error.where}: {error.what}",
                got=error.got,
                want=error.want,
                remedy="give the files of the nation, or of one state alone with --root state",
            ) from None
        for index, name in enumerate(names):
            if digits[name] and not np.isin(codes[name], lattice.codes[index]).all():
                raise InputError(
                    f"{asked.nmf}, geolevel {name}",
                    f"has geounits without any of {names[-1]} below them",
                )
        return cls(schema, text, tuple(ordered), lattice, spans)


def _schema(asked: NmfImport, attributes: Sequence[str]) -> tuple[Schema, str]:
    """The schema of the files, and the text of its file."""
    given, known = asked.schema, []
    ready = [content for name, content in ready_files().items() if name.parts[0] == "schema"]
    for content in ready if given is None else [given.read_bytes()]:
        with _as_file(content) as path:
            schema = load_schema(path if given is None else given)  # errors name the file
        own = [attribute.name for attribute in schema.attributes]
        if own == list(attributes):
            return schema, content.decode()
        known.append(own)
    if given is not None:
        where, want = f"schema {schema.name}", list(attributes)
        raise SchemaError(where, "has other attributes than the files", got=own, want=want)
    raise InputError(
        str(asked.nmf),
        "has attributes that no ready schema has",
        got=list(attributes),
        want=f"one of {known}",
        remedy="give a schema with these attributes by --schema",
    )


@contextmanager
def _as_file(content: bytes) -> Iterator[Path]:
    """Write a YAML file for what reads files; it is removed at the end of the block."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def _geocodes(level: LevelFiles, spans: dict[Path, tuple[str, str]]) -> npt.NDArray[np.bytes_]:
    """bytes[G]: geounits that answers or constraints are about; notes the span of each file."""
    found = []
    for kind, paths in ((ANSWERS, level.answers), (CONSTRAINTS, level.constraints)):
        for path in paths:
            codes = np.sort(read_index(path, kind).codes)
            if len(codes):
                spans[path] = (codes[0].decode(), codes[-1].decode())
                found.append(codes)
    return np.unique(np.concatenate(found)) if found else np.zeros(0, "S1")


def _digits(geolevel: str, codes: npt.NDArray[np.bytes_]) -> int:
    """Length of the geocodes of a geolevel; 0 of the nation, whatever it is called."""
    if geolevel == "nation":
        if len(codes) > 1:
            raise InputError("geolevel nation", "has several geounits", got=len(codes), want=1)
        return 0
    lengths = np.unique(np.char.str_len(codes))
    if len(lengths) > 1:
        raise InputError(
            f"geolevel {geolevel}", "has geocodes of several lengths", got=lengths.tolist()
        )
    return int(lengths[0])


# --- noise ---------------------------------------------------------------------------------------


def _noise(asked: NmfImport, found: _Found) -> tuple[str, Stated]:
    """With whose shares chains were measured, and the budget with its allocation."""
    noise: dict[Chain, dict[str, Variance]] = {}
    for index in range(len(found.levels)):
        _check_rows(asked, found, index, noise)
    levels = found.lattice.spine.levels
    differences: list[tuple[Chain, str, float, float | None]] = []
    for stated, strategy in _allocations(asked, found, noise):
        differences = []
        for chains in ("last", "first"):
            planned = replace(strategy, asks_last=chains == "last")
            differs = first_difference(planned, stated.rho, noise)
            if differs is None:
                return chains, stated
            differences.append(differs)
    chain, query, value, want = differences[0]
    what = "is not asked by the allocation"
    if want is not None:
        by = "the allocation gives it" if asked.allocation is not None else "others imply"
        what = f"has another variance than {by}"
    raise InputError(f"geolevel {levels[chain.last]}, query {query}", what, got=value, want=want)


def _allocations(
    asked: NmfImport, found: _Found, noise: Mapping[Chain, Mapping[str, Variance]]
) -> Iterator[tuple[Stated, Strategy]]:
    """Yield the allocation that is given; else published ones that fit, and what variances say."""
    schema, spine = found.schema, found.lattice.spine
    if asked.allocation is not None and asked.rho is not None:
        given = Stated(asked.rho, asked.allocation.read_text(encoding="utf-8"))
        yield given, load_allocation(asked.allocation, schema, spine)
        return
    for name, content in ready_files().items():
        if name.parts[0] == "allocation" and name.stem in PUBLISHED:
            with _as_file(content) as path, suppress(DasError):  # of other geolevels or attributes
                strategy = load_allocation(path, schema, spine)
                yield Stated(PUBLISHED[name.stem], content.decode()), strategy
    why = (
        f"The variances of {asked.nmf.name}, which are those of these shares of rho to as many "
        "digits as it has."
    )
    stated = derived(schema, spine.levels, noise, why)
    with _as_file(stated.document.encode()) as path:
        yield stated, load_allocation(path, schema, spine)


@dataclass(frozen=True, eq=False)
class _Asked:
    """What the rows of a geolevel hold, gathered file by file.

    Attributes:
      times: int64[G] by query, how often each geounit answers it.
      variances: By query and the geolevel on which chains begin.
      costs: Likewise, what rows say that they cost.
    """

    times: dict[str, IntArray] = field(default_factory=dict)
    variances: dict[tuple[str, int], set[Variance]] = field(default_factory=dict)
    costs: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    def add(self, rows: Index, place: IntArray, begins: IntArray) -> None:
        """Add the rows of a file: the geounit of each, and where the chain of each begins."""
        for column, name in enumerate(rows.names):
            mine = rows.query == column
            known = self.times.setdefault(name, np.zeros(len(begins), np.int64))
            known += np.bincount(place[mine], minlength=len(begins))
            for begin in np.unique(begins[place[mine]]).tolist():
                some = mine & (begins[place] == begin)
                values = np.unique(rows.variances[some]).tolist()
                found = {Variance(value, rows.is_single) for value in values}
                self.variances.setdefault((name, begin), set()).update(found)
                stated = {rows.costs[one] for one in np.unique(rows.cost[some])}
                self.costs.setdefault((name, begin), set()).update(stated)


def _check_rows(
    asked: NmfImport, found: _Found, index: int, noise: dict[Chain, dict[str, Variance]]
) -> None:
    """Check that every query was asked once where it should be; note the variances in `noise`.

    Every geounit is measured that has no children, or several: of a chain of only children, the
    last.

    Raises:
      InputError: Something else was.
    """
    lattice, level = found.lattice, found.levels[index]
    where = f"{asked.nmf}, geolevel {level.geolevel}"
    is_measured, begins = lattice.n_children(index) != 1, chain_starts(lattice, index)
    read, parsed = _Asked(), dict[str, Query]()
    for path in level.answers:
        rows = read_index(path, ANSWERS)
        parsed |= {name: _query(found.schema, where, name) for name in rows.names}
        _check_shapes(where, rows, parsed)
        at = np.zeros(len(rows.codes), np.int64)  # of the nation, whatever it is called
        if lattice.spine.digits[index]:
            at = np.searchsorted(lattice.codes[index], rows.codes)
        read.add(rows, at[rows.geounit], begins)
    if not parsed:
        if is_measured.any():
            raise InputError(where, "lacks noisy answers", want=ANSWERS)
        return
    meant = [query.name for query in parsed.values()]
    if len(set(meant)) < len(meant):
        raise InputError(where, "asks a query by two names", got=[*parsed])
    for name, times in read.times.items():
        _check_times(where, name, times, is_measured, lattice.codes[index])
    for (name, begin), variances in read.variances.items():
        values = sorted({one.value for one in variances})
        for value in values:
            check_variance(f"{where}, query {name}", value)
        if len(values) > 1:
            raise InputError(
                f"{where}, query {name}",
                "has several variances in geounits of one kind",
                got=values[:3],
            )
        kind = noise.setdefault(Chain(begin, index), {})
        single = any(one.is_single for one in variances)
        kind[parsed[name].name] = Variance(values[0], single, _cost(read.costs[name, begin]))


def _check_times(
    where: str,
    query: str,
    times: IntArray,
    is_measured: BoolArray,
    codes: npt.NDArray[np.bytes_],
) -> None:
    """Check that a query is answered once in all measured geounits, and nowhere else."""
    twice, extra = times > 1, (times > 0) & ~is_measured
    absent = (times == 0) & is_measured
    for wrong, what in (
        (twice, "answers a query twice in a geounit"),
        (extra, "has answers in a geounit with a single child, whose answers stand for both"),
        (absent, "lacks a query of a geounit"),
    ):
        if wrong.any():
            first = codes[int(np.argmax(wrong))].decode()
            got = f"{query} in {first}, {int(wrong.sum())} such"
            raise InputError(where, what, got=got, remedy=BEGIN_LOWER if wrong is extra else None)


def _cost(texts: set[str]) -> Fraction | None:
    """What rows say that each cost; None if they do not agree, or say no fraction."""
    try:
        return parse_fraction(next(iter(texts)), COST) if len(texts) == 1 else None
    except BudgetError:
        return None


def _query(schema: Schema, where: str, name: str) -> Query:
    try:
        return parse_query(schema, name)
    except SchemaError as error:
        raise InputError(
            f"{where}, query {name}",
            f"is none of the schema: {error.what}",
            got=error.got,
            want=error.want,
        ) from None


def _check_shapes(where: str, rows: Index, queries: dict[str, Query]) -> None:
    if rows.shapes is None:
        return
    for index, name in enumerate(rows.names):
        own, want = rows.shapes[rows.query == index], list(queries[name].shape)
        if own.shape[1] != len(want) or (own != np.array(want)).any():
            got = own[0].tolist()
            raise InputError(f"{where}, query {name}", "has another shape", got=got, want=want)


# --- the folder ----------------------------------------------------------------------------------


def _write_inputs(
    asked: NmfImport, draft: Path, found: _Found, exact: Exact, stated: Stated, chains: str
) -> None:
    """Write the run file and what it names."""
    spine = found.lattice.spine
    attributes = [attribute.name for attribute in found.schema.attributes]
    pq.write_table(
        pa.table({"geocode": found.lattice.codes[-1].astype(np.str_)}), draft / _GEOUNITS
    )
    if exact.facilities is not None:
        pq.write_table(exact.facilities, draft / FACILITIES)
    (draft / _SCHEMA).write_text(found.schema_text, encoding="utf-8")
    (draft / _ALLOCATION).write_text(stated.document, encoding="utf-8")
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": f"nmf {asked.nmf.resolve().name}",
        "geography": {
            "levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(spine.levels, spine.digits, strict=True)
            ],
            "geounits": {"path": _GEOUNITS},
        },
        "products": {
            asked.product or ("units" if "h1" in attributes else "persons"): {
                "schema": _SCHEMA,
                "data": {"input_format": "nmf", "path": str(asked.nmf.resolve()), "chains": chains},
                "privacy": {"rho": str(stated.rho), "allocation": _ALLOCATION},
                "invariants": exact.invariants,
                "output": {"microdata": ["parquet"]},
            }
        },
        "output": {"directory": "out"},
    }
    text = yaml.safe_dump(document, sort_keys=False, width=100)
    head = "# Made by das nmf import. `solve` and `output` may be changed.\n"
    (draft / RUN_FILE).write_text(head + text, encoding="utf-8")


def _write_release(
    resolved: Resolved, found: _Found, exact: Exact, origin: Origin, reporter: Reporter
) -> None:
    """Write all that a run has when it has measured."""
    product, roots = resolved.last, resolved.config.output.roots
    plan, release = product.plan, product.release
    make_roots(roots)
    with only_driver(roots.out):
        claim_as(owner_of(resolved))
        granted = {**plan.budget.exact(), "randomness": plan.randomness}
        start_ledger(release.ledger, granted, planned_ledger(plan, found.lattice))
        write_geography(found.lattice, release)
        with reporter.line("resolve_constraints", "invariants"):
            _publish_exact(product, found, exact)
        for level in plan.levels:
            with reporter.line("read", f"noisy answers of {level.name}", level.name):
                _publish_answers(plan, level, release, found, origin)
            record_measured(
                release.ledger, level.name, dataset_digest(release.measurements(level.name))
            )
        finalize_ledger(release.ledger)


def _publish_exact(product: Product, found: _Found, exact: Exact) -> None:
    """Write exact totals, given counts, and what they imply."""
    plan, release = product.plan, product.release
    for index, totals in enumerate(exact.totals):
        level, codes = plan.levels[index], found.lattice.codes[index].astype(np.str_)
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
    plan: Plan, level: Level, release: ReleaseLayout, found: _Found, origin: Origin
) -> None:
    """Write the noisy answers of the geounits of a geolevel that are not only children."""
    lattice, dataset = found.lattice, release.measurements(level.name)
    measured = np.flatnonzero(~lattice.is_only_child[level.index])
    names = lattice.codes[level.index].astype(np.str_)
    ends, at = chain_ends(lattice, level.index)
    noise = {end: plan.noise(level.index, int(end)) for end in np.unique(at[measured])}
    writer = PartWriter(dataset, stored.MEASUREMENTS)
    chunk = max(1, _CHUNK_NUMBERS // sum(query.size for query in level.queries))
    for start in range(0, len(measured), chunk):
        rows = measured[start : start + chunk]
        read = {
            int(end): _between(found, int(end), ends[rows][at[rows] == end])
            for end in np.unique(at[rows])
        }
        tables = []
        for index, query in enumerate(level.queries):
            answers = np.zeros((len(rows), query.size), np.int64)
            for end, table in read.items():
                mine = at[rows] == end
                answers[mine] = _answers(found, end, table, query, ends[rows][mine])
            mechanisms: list[Mechanism] = [noise[end][index].mechanism for end in at[rows]]
            tables.append(
                stored.measurement_table(names[rows].tolist(), query.name, mechanisms, answers)
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


def _between(found: _Found, index: int, codes: ObjectArray) -> pa.Table:
    """The rows of a geolevel from the first to the last of some geounits, sorted by them."""
    files = found.levels[index].answers
    if found.lattice.spine.digits[index] == 0:
        table = read_values(files)
        return table.set_column(0, "geocode", pa.array([ROOT_CODE] * len(table), pa.string()))
    low, high = str(codes.min()), str(codes.max())
    spans = {path: found.spans[path] for path in files if path in found.spans}
    return read_values([p for p, (a, b) in spans.items() if a <= high and b >= low], low, high)


def _answers(
    found: _Found, index: int, table: pa.Table, query: Query, codes: ObjectArray
) -> IntArray:
    """int64[G, m]: the answers of a query in some geounits."""
    asked = [
        name
        for name in table.column("query").unique().to_pylist()
        if parse_query(found.schema, name).name == query.name
    ]
    rows = table.filter(pc.is_in(table.column("query"), pa.array(asked, pa.string())))
    rows = rows.take(pc.sort_indices(rows.column("geocode")))
    held = np.asarray(rows.column("geocode").to_pylist(), np.str_)
    place = np.searchsorted(held, codes.astype(np.str_))
    where = f"geolevel {found.levels[index].geolevel}, query {query.name}"
    what = "has another number of answers"
    return matrix_of(rows.column("value"), where, what, query.size)[place]
