"""Solve: from noisy measurements to consistent integer counts, geolevel by geolevel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.errors import OutputError
from das.histograms import Histograms
from das.queries.query import Query
from invariants.invariant import invariants_at
from jobs.counts import SPARSE_SCHEMA, read_counts, sparse_table
from jobs.dataset import PartFile, PartWriter, is_published, publish, read_manifest, read_range
from jobs.layout import ReleaseLayout
from jobs.plan import Batch, Plan, families, geounit_batches, read_geography
from jobs.session import run_tasks, slots
from solvers.node import solve_node
from solvers.problem import ExactTerm, GeneralTerm, LeastSquaresTerm, NodeProblem, RoundingQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
ObjectArray = npt.NDArray[np.object_]

_BATCH_NUMBERS = 20_000_000  # noisy numbers held by one task
_WORST = 5
_SUMS = ("nodes", "copied", "trivial", "variables", "iterations", "newton_steps", "widened")


@dataclass
class SolveStatistics:
    """What happened in a batch or geolevel; mergeable, holds nothing per node but the worst.

    Attributes:
      nodes: Parents solved.
      copied: Parents with one child, whose counts are copied.
      trivial: Parents without persons.
      variables: Sum over solved nodes of children x live cells.
      seconds: Processor time in the solver.
      max_residual: Largest certificate residual.
      iterations: Splitting iterations.
      newton_steps: Active-set steps.
      widened: Nodes whose rounding had to leave the neighboring integers.
      worst_nodes: The nodes of longest time.
    """

    nodes: int = 0
    copied: int = 0
    trivial: int = 0
    variables: int = 0
    seconds: float = 0.0
    max_residual: float = 0.0
    iterations: int = 0
    newton_steps: int = 0
    widened: int = 0
    worst_nodes: list[dict[str, Any]] = field(default_factory=list)

    def merge(self, other: dict[str, Any]) -> None:
        """Add the statistics of another batch, given as a dict of the same keys."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + other[name])
        self.seconds += other["seconds"]
        self.max_residual = max(self.max_residual, other["max_residual"])
        self.keep_worst(other["worst_nodes"])

    def keep_worst(self, nodes: Sequence[dict[str, Any]]) -> None:
        """Keep the slowest few nodes."""
        ranked = sorted([*self.worst_nodes, *nodes], key=lambda n: (-n["seconds"], n["geocode"]))
        self.worst_nodes = ranked[:_WORST]


def solve_level(
    level: int,
    *,
    plan: Plan,
    release: ReleaseLayout,
    spark: SparkSession,
    batches_per_slot: int = 4,
    progress: Progress | None = None,
) -> None:
    """Solve one geolevel given the one above and publish its counts; a published one is kept.

    Raises:
      OutputError: The measurements or the geolevel above are not complete.
      SolverError, VerificationError: A node failed; nothing is published.
    """
    geolevel = plan.spine.levels[level]
    dataset = release.counts(geolevel)
    if is_published(dataset):
        return
    started = time.monotonic()
    read_manifest(release.measurements(geolevel))
    numbers = sum(entry.query.size for entry in plan.strategy.levels[level].queries)
    batches = geounit_batches(
        release,
        geolevel,
        level,
        slots(spark) * batches_per_slot,
        max(1, _BATCH_NUMBERS // numbers),
    )

    def run(batch: Batch) -> PartFile:
        return LevelSolver(plan, release, level).solve(batch)

    parts = run_tasks(spark, f"solve {geolevel}", batches, run, progress=progress)
    total = SolveStatistics()
    for part in parts:
        total.merge(part.facts["statistics"])
    facts = {
        "geolevel": geolevel,
        "configuration_digest": plan.digest,
        "not_for_release": plan.not_for_release,
        "seconds": time.monotonic() - started,
        "statistics": vars(total),
    }
    publish(dataset, parts, facts)


class LevelSolver:
    """Solves the families of one geolevel, range by range; lives inside one task."""

    def __init__(self, plan: Plan, release: ReleaseLayout, level: int) -> None:
        self._plan = plan
        self._release = release
        self._level = level
        self._geolevel = plan.spine.levels[level]
        every = np.arange(plan.schema.size)
        self._queries = [entry.query for entry in plan.strategy.levels[level].queries]
        self._rows = [
            query.rows_of(every) if query.is_partition else None for query in self._queries
        ]
        self._weights = [
            1.0 / float(n.mechanism.continuous_variance) for n in plan.noise(level, level)
        ]
        self._exact = [i.query for i in invariants_at(plan.invariants, self._geolevel)]
        self._exact_rows = [query.rows_of(every) for query in self._exact]
        self._passes = [[query.rows_of(every) for query in one] for one in plan.passes]

    def solve(self, batch: Batch) -> PartFile:
        """Solve all families of a range and write their counts."""
        statistics = SolveStatistics()
        table = read_geography(self._release, self._geolevel, batch)
        codes = table.column("geocode").to_numpy(zero_copy_only=False)
        parents = table.column("parent").to_numpy(zero_copy_only=False)
        above = self._parents(parents)
        data = self._measured(batch, table)
        writer = PartWriter(self._release.counts(self._geolevel), SPARSE_SCHEMA)
        for index, (start, stop) in enumerate(families(parents)):
            parent = above.slice(index, index + 1) if above is not None else None
            counts = self._family(parents[start], slice(start, stop), parent, data, statistics)
            writer.write(sparse_table(codes[start:stop], counts))
        return writer.close(statistics=vars(statistics))

    def _parents(self, parents: ObjectArray) -> Histograms | None:
        if self._level == 0:
            return None
        unique = parents[[start for start, _ in families(parents)]]
        name = self._plan.spine.levels[self._level - 1]
        return read_counts(self._release, name, unique, self._plan.schema.size)

    def _measured(self, batch: Batch, geography: pa.Table) -> _RangeData:
        """Noisy and exact answers of a range, one row per geounit of the geography table."""
        codes = geography.column("geocode").to_numpy(zero_copy_only=False)
        only = geography.column("only_child").to_numpy(zero_copy_only=False)
        ends = geography.column("chain_end").to_numpy(zero_copy_only=False)
        scale = {end: self._relative_precision(end) for end in set(ends)}
        noisy = _answers(
            self._release.measurements(self._geolevel), batch, self._queries, codes[~only]
        )
        row = np.cumsum(~only) - 1
        exact = (
            _answers(self._release.invariants(self._geolevel), batch, self._exact, codes)
            if self._exact
            else []
        )
        return _RangeData(noisy, row, exact, np.array([scale[end] for end in ends]))

    def _relative_precision(self, chain_end: str) -> float:
        """Precision of the noise of a chain's geounits over that of ordinary ones, in any query."""
        last = self._plan.spine.levels.index(chain_end)
        ordinary = self._plan.noise(self._level, self._level)[0].mechanism.continuous_variance
        return float(
            ordinary / self._plan.noise(self._level, last)[0].mechanism.continuous_variance
        )

    def _family(
        self,
        geocode: str,
        rows: slice,
        parent: Histograms | None,
        data: _RangeData,
        statistics: SolveStatistics,
    ) -> Histograms:
        """Counts of one family."""
        n_cells = self._plan.schema.size
        n_children = rows.stop - rows.start
        if parent is not None and n_children == 1:
            statistics.copied += 1
            return parent
        if parent is not None and not len(parent.cells):
            statistics.trivial += 1
            empty = np.zeros(0, np.int64)
            return Histograms(n_cells, np.zeros(n_children + 1, np.int64), empty, empty)
        cells = np.arange(n_cells) if parent is None else parent.cells
        problem = self._problem(geocode, rows, cells, parent, data)
        started = time.process_time()
        solution = solve_node(problem, self._plan.tolerance)
        seconds = time.process_time() - started
        residual = solution.estimate.certificate.residual
        statistics.nodes += 1
        statistics.variables += solution.counts.size
        statistics.seconds += seconds
        statistics.max_residual = max(statistics.max_residual, residual)
        statistics.iterations += solution.estimate.iterations
        statistics.newton_steps += solution.estimate.newton_steps
        statistics.widened += solution.widened
        statistics.keep_worst(
            [{"geocode": geocode or "root", "residual": residual, "seconds": seconds}]
        )
        children, live = np.nonzero(solution.counts)
        offsets = np.searchsorted(children, np.arange(n_children + 1))
        return Histograms(n_cells, offsets, cells[live], solution.counts[children, live])

    def _problem(
        self,
        geocode: str,
        rows: slice,
        cells: IntArray,
        parent: Histograms | None,
        data: _RangeData,
    ) -> NodeProblem:
        measured = data.row[rows]
        terms: list[LeastSquaresTerm | GeneralTerm] = []
        for index, answers in enumerate(data.noisy):
            own = answers[measured[0] : measured[-1] + 1]
            terms.append(self._term(index, cells, own, data.scale[rows]))
        exact = []
        for query_rows, answers in zip(self._exact_rows, data.exact, strict=True):
            present, groups = np.unique(query_rows[cells], return_inverse=True)
            exact.append(ExactTerm(groups, answers[rows][:, present]))
        passes = tuple(
            tuple(RoundingQuery(np.unique(r[cells], return_inverse=True)[1]) for r in one)
            for one in self._passes
        )
        return NodeProblem(
            geocode or "root",
            len(cells),
            None if parent is None else parent.counts,
            tuple(terms),
            tuple(exact),
            passes,
        )

    def _term(
        self, index: int, cells: IntArray, answers: IntArray, scale: FloatArray
    ) -> LeastSquaresTerm | GeneralTerm:
        """What one measured query says about the live cells of some children."""
        rows, query = self._rows[index], self._queries[index]
        weights = self._weights[index] * scale
        if rows is None:
            return GeneralTerm(query.gram(cells), query.pull(answers, cells), weights)
        present, groups = np.unique(rows[cells], return_inverse=True)
        return LeastSquaresTerm(groups, answers[:, present].astype(float), weights)


@dataclass(frozen=True, eq=False)
class _RangeData:
    """Answers of a range of geounits.

    Attributes:
      noisy: Per query, int64[measured geounits, m].
      row: Row in `noisy` of each geounit; meaningless for only children.
      exact: Per invariant, int64[geounits, m].
      scale: float64[geounits], precision relative to an ordinary geounit of the geolevel.
    """

    noisy: list[IntArray]
    row: IntArray
    exact: list[IntArray]
    scale: FloatArray


def _answers(
    dataset: Path, batch: Batch, queries: Sequence[Query], codes: ObjectArray
) -> list[IntArray]:
    """Read the answers of queries for exactly these geounits: per query int64[G, m]."""
    parts, _ = read_manifest(dataset)
    table = read_range(dataset, parts, batch.low, batch.high)
    names = table.column("query")
    answers = []
    for query in queries:
        rows = table.filter(pc.equal(names, query.name))
        found = rows.column("geocode").to_numpy(zero_copy_only=False)
        flat = pc.list_flatten(rows.column("answers")).to_numpy()
        if not np.array_equal(found, codes) or len(flat) != len(codes) * query.size:
            raise OutputError(
                str(dataset),
                f"does not hold query {query.name} of every geounit",
                got=f"{len(found)} rows for {batch.low}..{batch.high}",
                want=len(codes),
            )
        answers.append(flat.reshape(len(codes), query.size))
    return answers
