"""The command `das nmf export`: the noisy answers of a run in the Census Bureau's file layout."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from das.arrays import IntArray, ObjectArray
from das.errors import ConfigError, OutputError, SchemaError
from das.queries.query import Query, marginal
from geography.lattice import Lattice
from invariants.linear import levels_in
from invariants.zeros import StructuralZeros
from jobs.analysis.nmf_constraints import (
    LEAST,
    MOST,
    NURSING,
    NURSING_MINORS,
    NURSING_TERMS,
    PERSONS_PER_FACILITY,
    TOTAL,
)
from jobs.analysis.nmf_files import ANSWERS, CONSTRAINTS, GEOLEVELS, STATE, SUFFIXES, chain_ends
from jobs.analysis.nmf_noise import NOISE
from jobs.pipeline.config.product import Product
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.implied import given_counts
from jobs.pipeline.storage.answers import read_answers, rows_about
from jobs.pipeline.storage.columns import lists, repeated, texts, unpacked
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.files import drafted, writing
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch
from jobs.pipeline.tasks.progress import Reporter

_CHUNK_NUMBERS = 20_000_000  # answers in memory, 160 MB; default, not measured
_TEXT = pa.string()


def write_nmf(
    product: Product, folder: Path, reporter: Reporter, *, with_constraints: bool = True
) -> dict[str, int]:
    """Write the noisy answers of a product into a new folder, which is removed after an error.

    Args:
      product: The measured product.
      folder: The new folder.
      reporter: Receives progress.
      with_constraints: Whether to write invariants too.

    Returns:
      Number of rows of answers by geolevel, named as in the layout.

    Raises:
      ConfigError: The layout cannot express a measurement or an invariant of the run.
      OutputError: The run is not measured, or the folder exists or cannot be written.
    """
    plan, release, folder = product.plan, product.release, folder.resolve()
    names = _names(plan)
    if with_constraints:
        _refuse_unknown(plan)
    if folder.exists():
        raise OutputError(str(folder), "exists", remedy="choose a new folder for the export")
    leaves = read_public_geocodes(release, plan.leaf.name)
    lattice = Lattice.from_leaves(plan.spine, leaves.astype(np.bytes_))
    with drafted(folder) as draft:
        answers = _Files(draft, ANSWERS, plan, names)
        with answers.finishing:
            for level in plan.levels:
                with reporter.line("write", f"noisy answers of {level.name}", level.name):
                    _write_answers(plan, level, release, lattice, answers)
        if with_constraints:
            constraints = _Files(draft, CONSTRAINTS, plan, names)
            with constraints.finishing, reporter.line("write", "constraints"):
                _write_constraints(plan, release, lattice, constraints)
        if not answers.rows:
            raise OutputError(str(release.root), "holds no noisy answers")
    return answers.rows


def _names(plan: Plan) -> dict[str, str]:
    """Return the names of the geolevels in the layout.

    Raises:
      ConfigError: The layout lacks a geolevel, or cannot express a measurement.
    """
    known = {name: theirs for theirs, name in GEOLEVELS.items()}
    unknown = [name for name in plan.spine.levels if name not in known]
    if unknown:
        raise ConfigError(
            "geography.levels", "include some that the layout lacks", got=unknown, want=list(known)
        )
    for level in plan.levels:
        if level.on_demand or plan.strategy.strata:
            key = "privacy.on_demand_queries" if level.on_demand else "privacy.allocation"
            raise ConfigError(key, "leaves answers out, which the layout cannot express")
        for noisy in plan.noise(level.index, level.index):
            where, title = f"geolevel {level.name}, query {noisy.query.name}", noisy.mechanism.title
            if not isinstance(noisy.mechanism, NOISE):
                what = "has noise that the layout does not know"
                raise ConfigError(where, what, got=title, want=NOISE.title)
            if not (noisy.query.is_partition and noisy.query.is_listed):
                what = "is no marginal of attributes and recodes, as in the layout"
                raise ConfigError(where, what)
    return {name: known[name] for name in plan.spine.levels}


def _refuse_unknown(plan: Plan) -> None:
    """Refuse invariants that have no constraint in the layout.

    Raises:
      ConfigError: An invariant has no constraint.
    """
    names = [invariant.query.name for invariant in plan.invariants]
    unknown = [name for name in names if name != "total"]
    unknown += [row.name for row in plan.limits.rows]
    zeros, facilities = plan.limits.zeros, plan.limits.facilities
    if zeros is not None and not _are_nursing_minors(plan, zeros):
        unknown.append("structural zeros")
    if facilities is not None and not (
        facilities.query.name == "hhgq"
        and facilities.geolevel == plan.leaf.name
        and facilities.is_counted.all()
        and (facilities.least <= 1).all()
        and (facilities.most == PERSONS_PER_FACILITY).all()
    ):
        unknown.append(f"facilities {facilities.query.name}")
    if unknown:
        raise ConfigError(
            "invariants",
            "include some that the layout cannot express",
            got=unknown,
            want="total, facilities of hhgq at the last geolevel, and no minors in nursing homes",
            remedy="--without-constraints writes the noisy answers alone",
        )


def _are_nursing_minors(plan: Plan, zeros: StructuralZeros) -> bool:
    shape = plan.schema.shape
    try:
        minors = StructuralZeros(shape, (levels_in(plan.schema, NURSING_MINORS, NURSING),))
    except SchemaError:
        return False
    both = StructuralZeros(shape, (*zeros.boxes, *minors.boxes))
    return len(zeros) == len(minors) == len(both)


class _Files:
    """Open files of one kind, one per geolevel and state."""

    def __init__(self, folder: Path, kind: str, plan: Plan, names: Mapping[str, str]) -> None:
        self.rows: dict[str, int] = {}
        self._folder, self._kind, self._plan, self._names = folder, kind, plan, names
        self._open: dict[Path, pq.ParquetWriter] = {}
        self.finishing = ExitStack()  # closes all files
        self._digits = plan.level(STATE).digits if STATE in plan.spine.levels else None

    def write(self, index: int, codes: ObjectArray, columns: Mapping[str, pa.Array]) -> None:
        """Write rows of one geolevel, ascending; `columns` follow the geocode.

        Raises:
          OutputError: A file cannot be written.
        """
        geolevel = self._plan.levels[index].name
        name = self._names[geolevel]
        table = pa.table({"geocode": pa.array(codes, pa.string()), **columns})
        base = self._folder / f"{name}.parquet" / self._kind
        states = [""] * len(codes)
        if self._digits and index >= self._plan.level(STATE).index:
            states = [code[: self._digits] for code in codes.tolist()]
        edges = np.flatnonzero(np.array(states[1:]) != np.array(states[:-1])) + 1
        for start, stop in pairwise([0, *edges.tolist(), len(codes)]):
            part = base / f"State={states[start]}" if states[start] else base
            path = part / "part-0.parquet"
            with writing(path):
                if path not in self._open:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    writer = pq.ParquetWriter(path, table.schema, compression="zstd")
                    self._open[path] = self.finishing.enter_context(writer)
                self._open[path].write_table(table.slice(start, stop - start))
        self.rows[name] = self.rows.get(name, 0) + len(codes)


def _write_answers(
    plan: Plan, level: Level, release: ReleaseLayout, lattice: Lattice, files: _Files
) -> None:
    """Write the noisy answers of the measured geounits of a geolevel.

    Answers of a chain of only children are written for its last geounit, as in the Bureau's files.
    """
    dataset = Dataset.open(release.measurements(level.name))
    ends, at = chain_ends(lattice, level.index)
    measured = np.flatnonzero(~lattice.is_only_child[level.index])
    codes = lattice.codes[level.index].astype(np.str_)
    chunk = max(1, _CHUNK_NUMBERS // sum(query.size for query in level.queries))
    for start in range(0, len(measured), chunk):
        rows = measured[start : start + chunk]
        table = dataset.read(str(codes[rows[0]]), str(codes[rows[-1]]))
        for query_index, query in enumerate(level.queries):
            of_query = rows_about(table, query.name)
            if not np.array_equal(texts(of_query), codes[rows]):
                what = f"does not hold query {query.name} of every geounit"
                raise OutputError(str(dataset.path), what)
            answers = unpacked(of_query).reshape(len(rows), query.size)
            for end in np.unique(at[rows]).tolist():
                noisy = plan.noise(level.index, end)[query_index]
                is_at_end = at[rows] == end
                variances = np.full(int(is_at_end.sum()), noisy.mechanism.variance(), np.float32)
                columns = _described(plan, query, ANSWERS, query.name, len(variances))
                columns["value"] = lists(answers[is_at_end])
                columns["variance"] = pa.array(variances)
                columns["plb"] = repeated(str(noisy.cost), len(variances)).cast(_TEXT)
                files.write(end, ends[rows][is_at_end], columns)


def _described(plan: Plan, query: Query, kind: str, name: str, rows: int) -> dict[str, pa.Array]:
    """Return the columns that describe the query; for each attribute, how the query counts it."""
    recodes = {recode.name: recode.attribute for recode in plan.schema.recodes}
    terms = {recodes.get(term, term): term for term in query.name.split(" * ")}
    other = "detailed" if query.name == "detailed" else "*"
    texts_of = {"query_name": f"{name}{SUFFIXES[kind]}"}
    texts_of |= {a.name: terms.get(a.name, other) for a in plan.schema.attributes}
    columns = {key: repeated(text, rows).cast(_TEXT) for key, text in texts_of.items()}
    columns["query_shape"] = lists(np.tile(np.array(query.shape, np.int32), (rows, 1)))
    return columns


# --- constraints ---------------------------------------------------------------------------------


def _write_constraints(plan: Plan, release: ReleaseLayout, lattice: Lattice, files: _Files) -> None:
    """Write exact totals, bounds and zeros of every geolevel."""
    bounds = _bounds(plan, release, lattice)
    for level in plan.levels:
        codes = lattice.codes[level.index].astype(np.str_).astype(object)
        stated = []
        for query in level.exact:
            totals = read_answers(Dataset.open(release.invariants(level.name)), [query], codes)
            stated.append((query, TOTAL, "=", totals[0]))
        if bounds is not None:
            query, least, most = bounds
            stated.append((query, LEAST, ">=", least[level.index]))
            stated.append((query, MOST, "<=", most[level.index]))
        if plan.limits.zeros is not None:
            zero = np.zeros((len(codes), 1), np.int64)
            stated.append((marginal(plan.schema, ()), NURSING, "=", zero))
        for query, name, sign, values in stated:
            columns = _described(plan, query, CONSTRAINTS, name, len(codes))
            words = {**(NURSING_TERMS if name == NURSING else {}), "sign": sign}
            columns |= {key: repeated(word, len(codes)).cast(_TEXT) for key, word in words.items()}
            columns["value"] = lists(values)
            columns["variance"] = pa.array(np.zeros(len(codes), np.float32))
            files.write(level.index, codes, columns)


def _bounds(
    plan: Plan, release: ReleaseLayout, lattice: Lattice
) -> tuple[Query, list[IntArray], list[IntArray]] | None:
    """Return the bounds that facility counts set on persons; None without facility counts.

    Returns:
      The query that counts persons by facility type, their lower bounds and their upper bounds;
      bounds are int64[geounits, types] per geolevel.
    """
    facilities = plan.limits.facilities
    if facilities is None:
        return None
    codes = lattice.codes[-1].astype(np.str_).astype(object)
    batch = Batch(plan.leaf.index, str(codes[0]), str(codes[-1]), len(codes))
    counts = [given_counts(release, facilities, codes, batch)]
    for index in range(plan.leaf.index - 1, -1, -1):
        counts.insert(0, np.add.reduceat(counts[0], lattice.first_child[index][:-1]))
    least = [number * facilities.least for number in counts]
    return facilities.query, least, [number * PERSONS_PER_FACILITY for number in counts]
