"""Solve: from noisy measurements to consistent integer counts, geolevel by geolevel."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from das.arrays import FloatArray, IntArray, ObjectArray
from das.errors import InfeasibleError, OutputError
from das.histograms import Histograms
from das.privacy.budget import Definition
from das.queries.query import Query
from das.tree.prior import LearnedPrior, Tally, learn_prior, merge, tally
from invariants.exact import invariants_at
from invariants.linear import LinearRow
from jobs.plan import Batch, Plan, families, geounit_batches, read_geography
from jobs.release.estimate import CONFIDENCE, LevelEstimator
from jobs.release.implied import BatchLimits, read_limits
from jobs.release.reaggregate import carry_up
from jobs.storage.answers import DrawnAnswers, read_answers, read_noisy
from jobs.storage.dataset import Dataset, PartFile, PartWriter, is_published, publish
from jobs.storage.histograms import SPARSE_SCHEMA, read_counts, sparse_table
from jobs.storage.layout import ReleaseLayout
from jobs.tasks.batches import Sizing
from jobs.tasks.executor import Tasks
from solvers.backends.registry import IntegerSolver, LeastSquaresSolver, mixed_integer
from solvers.node import (
    NodeSettings,
    NodeSolution,
    estimate_node,
    solve_node,
)
from solvers.objectives.methods import Method
from solvers.objectives.table import NoiseLaw
from solvers.problem import (
    ExactTerm,
    KroneckerTerm,
    LeastSquaresTerm,
    LeavesTerm,
    NodeProblem,
    RoundingQuery,
    RowsTerm,
    Term,
)
from solvers.rounding.failsafe import Promises, nearest_parent

Priors = Mapping[float, LearnedPrior]  # by variance of the noise

_PIECE_NUMBERS = 4_000_000  # noisy numbers held at once, but for a family of more
_TABLED_CELLS = 50_000  # of a schema for which the groups of all cells are kept
_OFF_EDGES = 1 + 1e-6
_LEAST_TOTAL = 0.3  # persons, so that a child that seems empty is expected to hold some
_WORST = 5
_SUMS = (
    "nodes",
    "copied",
    "trivial",
    "live",
    "variables",
    "iterations",
    "newton_steps",
    "widened",
)


@dataclass
class SolveStatistics:
    """What happened in a batch or geolevel; mergeable, holds nothing per node but the worst.

    Attributes:
      nodes: Parents solved.
      copied: Parents with one child, whose counts are copied.
      trivial: Parents without persons.
      live: Sum over all children of their cells with persons.
      variables: Sum over solved nodes of children x live cells.
      seconds: Processor seconds in the solver, each node's its own.
      max_residual: Largest certificate residual.
      iterations: Of interior points, conjugate gradients or a general solver.
      newton_steps: Active-set steps.
      widened: Nodes whose rounding had to leave the neighboring integers.
      worst_nodes: The nodes of longest time.
      moved: What the failsafe moved: the geocode of a parent, cells, and changes of their counts.
    """

    nodes: int = 0
    copied: int = 0
    trivial: int = 0
    live: int = 0
    variables: int = 0
    seconds: float = 0.0
    max_residual: float = 0.0
    iterations: int = 0
    newton_steps: int = 0
    widened: int = 0
    worst_nodes: list[dict[str, Any]] = field(default_factory=list)
    moved: list[dict[str, Any]] = field(default_factory=list)

    def merge(self, other: dict[str, Any]) -> None:
        """Add the statistics of another batch, given as a dict of the same keys."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + other[name])
        self.seconds += other["seconds"]
        self.max_residual = max(self.max_residual, other["max_residual"])
        self.keep_worst(other["worst_nodes"])
        self.moved += other["moved"]

    def note(self, geocode: str, solution: NodeSolution, seconds: float) -> None:
        """Take a solved node in."""
        estimate = solution.estimate
        residual = estimate.certificate.residual
        self.nodes += 1
        self.variables += solution.counts.size
        self.seconds += seconds
        self.max_residual = max(self.max_residual, residual)
        self.iterations += estimate.iterations
        self.newton_steps += estimate.newton_steps
        self.widened += bool(solution.rounding.widened)
        self.keep_worst([{"geocode": geocode, "residual": residual, "seconds": seconds}])

    def keep_worst(self, nodes: Sequence[dict[str, Any]]) -> None:
        """Keep the slowest few nodes."""
        ranked = sorted([*self.worst_nodes, *nodes], key=lambda n: (-n["seconds"], n["geocode"]))
        self.worst_nodes = ranked[:_WORST]


def solve_level(
    level: int,
    *,
    plan: Plan,
    release: ReleaseLayout,
    tasks: Tasks,
) -> None:
    """Solve one geolevel given the one above and publish its counts; a published one is kept.

    What the failsafe moved in parents is carried up to all geolevels above.

    Raises:
      OutputError: The measurements or the geolevel above are not complete.
      SolverError, VerificationError: A node failed; nothing is published.
    """
    geolevel = plan.spine.levels[level]
    dataset = release.counts(geolevel)
    spine, n_cells = plan.spine, plan.schema.size
    if is_published(dataset):
        carry_up(level, spine=spine, n_cells=n_cells, release=release)
        return
    started = time.monotonic()
    Dataset.open(release.measurements(geolevel))
    largest, smallest = _batch_sizes(plan, release, level, tasks.sizing)
    batches = geounit_batches(release, geolevel, level, tasks.batches, largest, smallest)

    learned = None
    if geolevel in plan.solving.learned_prior and level:
        learned = learn_level(level, plan, release, tasks, batches)

    def run(batch: Batch) -> PartFile:
        return LevelSolver(plan, release, level, learned).solve(batch)

    parts = tasks.run(f"solve {geolevel}", batches, run)
    total = SolveStatistics()
    for part in parts:
        total.merge(part.facts["statistics"])
    facts = {
        "geolevel": geolevel,
        "configuration_digest": plan.digest,
        "solve_digest": plan.solve_digest,
        "not_for_release": plan.not_for_release,
        "seconds": time.monotonic() - started,
        "statistics": vars(total),
    }
    publish(dataset, parts, facts)
    carry_up(level, spine=spine, n_cells=n_cells, release=release)


def learn_level(
    level: int, plan: Plan, release: ReleaseLayout, tasks: Tasks, batches: Sequence[Batch]
) -> Priors:
    """Learn from the noisy counts of a geolevel how counts are distributed, by noise variance."""

    def run(batch: Batch) -> dict[float, Tally]:
        return LevelSolver(plan, release, level).tally(batch)

    tallies = tasks.run(f"learn {plan.spine.levels[level]}", batches, run)
    variances = {variance for one in tallies for variance in one}
    return {
        variance: learn_prior(merge(one[variance] for one in tallies if variance in one), variance)
        for variance in variances
    }


class LevelSolver:
    """Solves the families of one geolevel, range by range; lives inside one task."""

    def __init__(
        self, plan: Plan, release: ReleaseLayout, level: int, priors: Priors | None = None
    ) -> None:
        self._plan = plan
        self._priors = priors
        self._release = release
        self._level = level
        self._geolevel = plan.spine.levels[level]
        self._queries = [entry.query for entry in plan.strategy.levels[level].queries]
        self._lazy = plan.lazy_at(level)
        self._rows: dict[str, IntArray] = {}
        self._settings = node_settings(plan)
        self._weights = [
            1.0 / float(n.mechanism.continuous_variance) for n in plan.noise(level, level)
        ]
        self._exact = [i.query for i in invariants_at(plan.invariants, self._geolevel)]
        limits = plan.limits
        self._exact_sums = limits.exact_rows_at(self._geolevel)
        self._bounded = limits.bounded_rows_at(self._geolevel)
        facilities = limits.facilities
        counted = facilities is not None and self._geolevel in facilities.geolevels
        self._types = facilities.query if facilities is not None and counted else None

    @cached_property
    def _possible(self) -> IntArray:
        """Cells in which somebody may be."""
        return self._plan.limits.possible(self._plan.schema)

    def solve(self, batch: Batch) -> PartFile:
        """Solve all families of a range and write their counts."""
        statistics = SolveStatistics()
        writer = PartWriter(self._release.counts(self._geolevel), SPARSE_SCHEMA)
        for codes, data, families_read in self._read(batch):
            for family in families_read:
                counts = self._counts(family, data, statistics)
                statistics.live += len(counts.cells)
                writer.write(sparse_table(codes[family.rows], counts))
        return writer.close(statistics=vars(statistics))

    def problems(self, batch: Batch) -> Iterator[NodeProblem]:
        """The node problems of a range, for those who study them."""
        for _, data, every in self._read(batch):
            for family in every:
                if family.has_persons and self._known(family, data, SolveStatistics()) is None:
                    yield self._problem(family, data)

    def tally(self, batch: Batch) -> dict[float, Tally]:
        """Tally the noisy counts of a range by the variance of their noise."""
        found: dict[float, list[Tally]] = defaultdict(list)
        for _, data, every in self._read(batch, with_cells=True):
            for family in every:
                if self._known(family, data, SolveStatistics()) is None and family.has_persons:
                    for variance, noisy, expected in self._seen(family, data):
                        found[variance].append(tally(noisy, expected, variance))
        return {variance: merge(tallies) for variance, tallies in found.items()}

    def _read(
        self, batch: Batch, *, with_cells: bool = False
    ) -> Iterator[tuple[ObjectArray, _RangeData, list[Family]]]:
        """Geocodes, answers and families of a range, piece by piece."""
        table = read_geography(self._release, self._geolevel, batch)
        codes = table.column("geocode").to_numpy(zero_copy_only=False)
        parents = table.column("parent").to_numpy(zero_copy_only=False)
        above = self._parents(parents)
        every = [
            Family(
                parents[start] or "root",
                slice(start, stop),
                above.slice(index, index + 1) if above is not None else None,
            )
            for index, (start, stop) in enumerate(families(parents))
        ]
        for first, last in self._pieces(every):
            low, high = every[first].rows.start, every[last - 1].rows.stop
            part = table.slice(low, high - low)
            piece = Batch(batch.level, str(codes[low]), str(codes[high - 1]), high - low)
            data = self._measured(piece, part)
            if with_cells or self._priors is not None:
                estimator = LevelEstimator(self._plan, self._release, (), CONFIDENCE)
                data = replace(data, cells=estimator.cell_estimates(piece))
            yield codes[low:high], data, [one.moved_up(low) for one in every[first:last]]

    def _pieces(self, every: Sequence[Family]) -> Iterator[tuple[int, int]]:
        """Ranges of families whose answers are held at once."""
        whole = _whole_answers(self._plan, self._level)
        first, held = 0, 0
        for index, family in enumerate(every):
            live = len(family.parent.cells) if family.parent is not None else 0
            numbers = family.n_children * (whole + len(self._lazy) * live)
            if index > first and held + numbers > _PIECE_NUMBERS:
                yield first, index
                first, held = index, 0
            held += numbers
        yield first, len(every)

    def _seen(
        self, family: Family, data: _RangeData
    ) -> Iterator[tuple[float, FloatArray, FloatArray]]:
        """Of each child, the variance of the noise, noisy and expected counts of live cells.

        So many are expected as the child's share of the parent's persons, by least squares, takes
        of the parent's cell.
        """
        if data.cells is None or family.parent is None:
            raise OutputError(str(self._release.root), "has no estimates of cells")
        totals = estimate_node(self._problem(family, data), self._settings).values.sum(1)
        share = (totals + _LEAST_TOTAL) / (totals + _LEAST_TOTAL).sum()
        noisy, variances = data.cells
        first = data.row[family.rows.start]
        for child, part in enumerate(share):
            row = noisy[first + child, family.parent.cells]
            # Three digits, by edges on which no quotient of small integers lies: last digits, which
            # differ between processors, must not choose the prior.
            variance = float(f"{variances[first + child] * _OFF_EDGES:.3g}")
            yield variance, row, part * family.parent.counts

    def _drawn_to_posterior(self, family: Family, data: _RangeData) -> NodeProblem:
        """The node problem with posterior means of the cells in place of noisy answers."""
        problem = self._problem(family, data)
        if self._priors is None:
            return problem
        means, weights = [], []
        for variance, noisy, expected in self._seen(family, data):
            means.append(self._priors[variance].posterior_mean(noisy, expected))
            weights.append(1 / variance)
        cells = np.arange(problem.n_cells)
        term = LeastSquaresTerm(cells, np.array(means), np.array(weights))
        return replace(problem, terms=(term,), order=())

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
        row = np.cumsum(~only) - 1
        published: list[Query | LinearRow] = [*self._exact, *self._exact_sums]
        answers = (
            read_answers(Dataset.open(self._release.invariants(self._geolevel)), published, codes)
            if published
            else []
        )
        exact, sums = answers[: len(self._exact)], answers[len(self._exact) :]
        limits = None
        if self._plan.limits.binds(self._geolevel):
            limits = read_limits(self._plan, self._release, batch, codes)
        queries, noisy, weights = self._targets(batch, codes[~only], ends[~only])
        return _RangeData(queries, noisy, weights, row, exact, sums, limits)

    def _targets(
        self, batch: Batch, codes: ObjectArray, chain_ends: ObjectArray
    ) -> tuple[Sequence[Query], Sequence[FloatArray | DrawnAnswers], list[FloatArray]]:
        """Queries, answers and weights that the counts of measured geounits are drawn to."""
        is_leaf = self._level == len(self._plan.spine.levels) - 1
        if self._plan.solving.targets == "full" and not is_leaf:
            found = LevelEstimator(self._plan, self._release, (), CONFIDENCE).targets(batch)
            return found.queries, list(found.answers), list(found.weights.T)
        scale = {end: self._relative_precision(end) for end in set(chain_ends)}
        relative = np.array([scale[end] for end in chain_ends])
        dataset = Dataset.open(self._release.measurements(self._geolevel))
        answers = read_noisy(dataset, self._queries, self._lazy, codes)
        return self._queries, answers, [weight * relative for weight in self._weights]

    def _relative_precision(self, chain_end: str) -> float:
        """Precision of the noise of a chain's geounits over that of ordinary ones, in any query."""
        last = self._plan.spine.levels.index(chain_end)
        ordinary = self._plan.noise(self._level, self._level)[0].mechanism.continuous_variance
        return float(
            ordinary / self._plan.noise(self._level, last)[0].mechanism.continuous_variance
        )

    def _counts(self, family: Family, data: _RangeData, statistics: SolveStatistics) -> Histograms:
        """Counts of the children of a family.

        Where what they must keep contradicts the parent, the failsafe moves the parent first.
        """
        known = self._known(family, data, statistics)
        if known is not None:
            return known
        seconds = 0.0
        try:
            if not family.has_persons:
                raise InfeasibleError(f"node {family.geocode}", "some of its children need persons")
            problem = self._drawn_to_posterior(family, data)
            started = time.process_time()
            try:
                solution = solve_node(problem, self._settings)
            finally:
                seconds = time.process_time() - started
        except InfeasibleError:
            if family.parent is None or not self._plan.solving.failsafe:
                raise
            started = time.process_time()
            family = self._moved(family, data, statistics)
            solution = solve_node(self._drawn_to_posterior(family, data), self._settings)
            seconds += time.process_time() - started
        statistics.note(family.geocode, solution, seconds)
        return self._histograms(family, solution)

    def _known(
        self, family: Family, data: _RangeData, statistics: SolveStatistics
    ) -> Histograms | None:
        """Counts that need no solving: of an only child, or of the children of nobody."""
        parent = family.parent
        if parent is not None and family.n_children == 1:
            statistics.copied += 1
            return parent
        if not family.has_persons and self._may_be_empty(family.rows, data):
            statistics.trivial += 1
            offsets = np.zeros(family.n_children + 1, np.int64)
            none = np.zeros(0, np.int64)
            return Histograms(self._plan.schema.size, offsets, none, none)
        return None

    def _may_be_empty(self, rows: slice, data: _RangeData) -> bool:
        """Whether some children keep their rows with nobody in any of them.

        Exact queries and leaves add up without signs, so where the parent is empty they allow it.
        """
        return all(
            bool(((term.least <= 0) & (term.most >= 0)).all())
            for term in self._row_terms(np.zeros(0, np.int64), rows, data)
        )

    def _histograms(self, family: Family, solution: NodeSolution) -> Histograms:
        cells = self._possible if family.parent is None else family.parent.cells
        children, live = np.nonzero(solution.counts)
        offsets = np.searchsorted(children, np.arange(family.n_children + 1))
        size = self._plan.schema.size
        return Histograms(size, offsets, cells[live], solution.counts[children, live])

    def _moved(self, family: Family, data: _RangeData, statistics: SolveStatistics) -> Family:
        """The family with the nearest parent that its children can add up to.

        Cells whose lazy answers were not drawn stay empty.
        """
        cells = self._possible
        if self._lazy and family.parent is not None:
            cells = family.parent.cells
            if not len(cells):
                raise InfeasibleError(
                    f"node {family.geocode}", "is empty, and some of its children need persons"
                )
        before = _row(family.parent, cells)
        size = self._plan.schema.size
        # Its promises are those on all cells; no count of the parent enters them.
        whole = Histograms(size, np.array([0, len(cells)]), cells, np.maximum(before, 1))
        problem = self._problem(Family(family.geocode, family.rows, whole), data)
        score = np.zeros(len(cells))
        for term in problem.terms:
            pulled = (
                term.pulled
                if not isinstance(term, LeastSquaresTerm)
                else term.answers[:, term.groups]
            )
            score += term.weights @ pulled
        held, held_rows = _held_above(self._plan, self._level, cells)
        promises = Promises(
            family.geocode,
            before,
            problem.exact,
            problem.rows,
            problem.leaves,
            held,
            score,
            held_rows,
        )
        after = nearest_parent(promises, mixed_integer(self._settings.integers))
        changed, live = np.flatnonzero(after != before), np.flatnonzero(after)
        statistics.moved.append(
            {
                "geocode": family.geocode,
                "cells": cells[changed].tolist(),
                "changes": (after - before)[changed].tolist(),
            }
        )
        parent = Histograms(size, np.array([0, len(live)]), cells[live], after[live])
        return Family(family.geocode, family.rows, parent)

    def _problem(self, family: Family, data: _RangeData) -> NodeProblem:
        rows, parent = family.rows, family.parent
        cells = self._possible if parent is None else parent.cells
        measured = slice(data.row[rows.start], data.row[rows.stop - 1] + 1)
        terms = [
            self._term(query, cells, answers, measured, weights[measured])
            for query, answers, weights in zip(
                data.queries, data.answers, data.weights, strict=True
            )
        ]
        exact = []
        for query, answers in zip(self._exact, data.exact, strict=True):
            present, groups = self._groups(query, cells)
            exact.append(ExactTerm(groups, answers[rows][:, present], query))
        passes = tuple(
            tuple(RoundingQuery(self._groups(query, cells)[1]) for query in one)
            for one in self._plan.passes
        )
        return NodeProblem(
            family.geocode,
            len(cells),
            None if parent is None else parent.counts,
            tuple(terms),
            tuple(exact),
            passes,
            self._row_terms(cells, rows, data),
            self._leaves_term(cells, rows, data),
            self._order(data.queries),
        )

    def _order(self, queries: Sequence[Query]) -> tuple[tuple[int, ...], ...]:
        """Least-squares passes as positions of terms; those not named come last."""
        passes = self._plan.solving.order.get(self._geolevel, ())
        names = [query.name for query in queries]
        named = [tuple(names.index(name) for name in one) for one in passes]
        chosen = {index for one in named for index in one}
        last = tuple(index for index in range(len(names)) if index not in chosen)
        return (*named, last) if named and last else tuple(named)

    def _row_terms(self, cells: IntArray, rows: slice, data: _RangeData) -> tuple[RowsTerm, ...]:
        """Linear rows of some children, exact ones with their sums."""
        every = [*self._exact_sums, *self._bounded]
        if not every:
            return ()
        sums = [answers[rows] for answers in data.sums]
        least, most = list(sums), list(sums)
        if data.limits is not None:
            least.append(data.limits.row_least[rows])
            most.append(data.limits.row_most[rows])
        coefficients = np.array([row.coefficients[cells] for row in every])
        names = tuple(row.name for row in every)
        return (RowsTerm(coefficients, np.hstack(least), np.hstack(most), names),)

    def _leaves_term(self, cells: IntArray, rows: slice, data: _RangeData) -> LeavesTerm | None:
        """What the leaves below some children can hold."""
        if self._types is None or data.limits is None or data.limits.leaves is None:
            return None
        held = data.limits.leaves
        children = range(rows.start, rows.stop)
        return LeavesTerm(
            self._rows_of(self._types, cells), tuple(held.of(child) for child in children)
        )

    def _term(
        self,
        query: Query,
        cells: IntArray,
        answers: FloatArray | DrawnAnswers,
        measured: slice,
        weights: FloatArray,
    ) -> Term:
        """What one query says about the live cells of some children."""
        if isinstance(answers, DrawnAnswers):
            present, groups = self._groups(query, cells)
            return LeastSquaresTerm(groups, answers.of(measured, present), weights)
        if not query.is_partition:
            return KroneckerTerm(query, cells, query.pull(answers[measured], cells), weights)
        present, groups = self._groups(query, cells)
        return LeastSquaresTerm(groups, answers[measured][:, present], weights, query)

    def _groups(self, query: Query, cells: IntArray) -> tuple[IntArray, IntArray]:
        """Answers of a partition query in which some cells count, and which of them each does."""
        rows = self._rows_of(query, cells)
        if self._plan.schema.size > _TABLED_CELLS:
            return np.unique(rows, return_inverse=True)
        number = np.zeros(query.size, np.int64)
        number[rows] = 1
        present = np.flatnonzero(number)
        number[present] = np.arange(len(present))
        return present, number[rows]

    def _rows_of(self, query: Query, cells: IntArray) -> IntArray:
        """Answer of a partition query in which each cell counts."""
        if self._plan.schema.size > _TABLED_CELLS:
            return query.rows_of(cells)
        if query.name not in self._rows:
            self._rows[query.name] = query.rows_of(np.arange(self._plan.schema.size))
        return self._rows[query.name][cells]


@dataclass(frozen=True, eq=False)
class Family:
    """The children of one parent.

    Attributes:
      geocode: The parent's, "root" for the root alone.
      rows: The children among the geounits of the range.
      parent: Its counts; None for the root alone.
    """

    geocode: str
    rows: slice
    parent: Histograms | None

    @property
    def n_children(self) -> int:
        """Number of children."""
        return int(self.rows.stop - self.rows.start)

    def moved_up(self, rows: int) -> Family:
        """The same among geounits that start so many rows later."""
        return replace(self, rows=slice(self.rows.start - rows, self.rows.stop - rows))

    @property
    def has_persons(self) -> bool:
        """Whether the parent has a live cell, as the root has."""
        return self.parent is None or len(self.parent.cells) > 0


def _whole_answers(plan: Plan, level: int) -> int:
    """Answers of a geounit to the queries that are not lazy, at least 1."""
    lazy = plan.lazy_at(level)
    queries = [entry.query for entry in plan.strategy.levels[level].queries]
    return max(1, sum(query.size for query in queries if query not in lazy))


def _batch_sizes(plan: Plan, release: ReleaseLayout, level: int, sizing: Sizing) -> tuple[int, int]:
    """Most and fewest geounits of a task, by the answers it reads and the variables it solves.

    A geounit has as many variables as its parent has live cells, here a parent of the mean.
    """
    most = sizing.solve_numbers.most // _whole_answers(plan, level)
    if not level:
        return max(1, most), 1
    above = Dataset.open(release.counts(plan.spine.levels[level - 1]))
    variables = max(1, int(above.facts["statistics"]["live"]) // max(1, above.rows))
    size = sizing.solve_variables
    return max(1, min(most, size.most // variables)), size.least // variables


def node_settings(plan: Plan) -> NodeSettings:
    """How the nodes of a plan are solved."""
    solving = plan.solving
    pure = plan.budget.definition is Definition.PURE
    return NodeSettings(
        solving.tolerance,
        LeastSquaresSolver(solving.least_squares),
        IntegerSolver(solving.integers),
        Method(solving.method),
        NoiseLaw.LAPLACE if pure else NoiseLaw.GAUSSIAN,
    )


def _held_above(
    plan: Plan, level: int, cells: IntArray
) -> tuple[tuple[IntArray, ...], tuple[IntArray, ...]]:
    """What a parent of a geolevel keeps when it moves: sums of partitions, and of linear rows.

    Rows are kept by their sum, unless the children have their own bounds for them.
    """
    geolevel = plan.spine.levels[level]
    held: dict[str, IntArray] = {}
    rows: dict[str, IntArray] = {}
    for above in plan.spine.levels[:level]:
        for invariant in invariants_at(plan.invariants, above):
            held[invariant.query.name] = invariant.query.rows_of(cells)
        for row in plan.limits.rows_at(above):
            if row.is_exact or geolevel not in row.geolevels:
                rows[row.name] = row.coefficients[cells]
    return tuple(held.values()), tuple(rows.values())


def _row(histograms: Histograms | None, cells: IntArray) -> IntArray:
    """Counts of one geounit in some cells, int64[k]."""
    dense = np.zeros(int(cells.max(initial=-1)) + 1, np.int64)
    if histograms is not None:
        dense[histograms.cells] = histograms.counts
    return dense[cells]


@dataclass(frozen=True, eq=False)
class _RangeData:
    """Answers of a range of geounits.

    Attributes:
      queries: What the counts are drawn to.
      answers: Per query, float64[measured geounits, m], or those drawn of a lazy one.
      weights: Per query, float64[measured geounits], inverse variances.
      row: Row in `answers` of each geounit; meaningless for only children.
      exact: Per invariant, int64[geounits, m].
      sums: Per exact linear row, int64[geounits, 1].
      limits: What the geounits must keep beside exact answers; none if nothing binds them.
      cells: Estimates float64[measured geounits, n] and mean variances of a cell, where a prior is
        learned.
    """

    queries: Sequence[Query]
    answers: Sequence[FloatArray | DrawnAnswers]
    weights: list[FloatArray]
    row: IntArray
    exact: list[IntArray]
    sums: list[IntArray]
    limits: BatchLimits | None
    cells: tuple[FloatArray, FloatArray] | None = None
