"""Solve: from noisy measurements to consistent integer counts, geolevel by geolevel.

A family is a parent with its children; a node is the optimization problem of a family. A batch is
the range of whole families that one task gets. A task reads its batch in pieces that fit in memory
(`pieces`), assembles the node of each family (`problems`) and solves it. Where a prior was learned,
nodes are fitted to posterior means. Where children cannot sum to their parent, the failsafe moves
the parent (`moves`), and `carry_up` adds the move to all geolevels above. Compiled code solves runs
of consecutive families together.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import InfeasibleError
from das.histograms import Histograms
from das.mechanisms.registry import choose_mechanism
from das.queries.query import of_answers
from das.tree.composition import learn_dispersion
from das.tree.covariate import learn_variance
from jobs.pipeline.config.learned import read_learned
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.statistics import (
    EstimatedError,
    ExpectedTotals,
    Fact,
    LearnedAnswers,
    Move,
    SlowNode,
    SolveStatistics,
    statistics_of,
    use_of,
)
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.covariate import (
    MOST_CERTIFIED,
    PLAIN,
    CovariateModel,
    SufficientStats,
    SureEstimate,
    Ways,
    certify,
    chain_of,
    estimated_errors,
    expected_totals,
    is_sampled,
    merge_risks,
    merge_stats,
    tally,
    ways_of,
    with_expected,
)
from jobs.pipeline.release.learned import (
    CORRECTION_STEP,
    LEARNED,
    MOST_CORRECTED,
    correct,
    improved,
)
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.moves import Contradicted, carry_up, move_of, moved_family
from jobs.pipeline.release.pieces import Piece, of_families, read_pieces, whole_answers
from jobs.pipeline.release.problems import (
    ChildCounts,
    Family,
    NodeTemplate,
    Priors,
    Support,
    Tallies,
    child_counts,
    fit_to_posterior,
    histograms_of,
    learn_priors,
    may_be_empty,
    node_problem,
    pack_families,
    questions_of,
    tally_children,
)
from jobs.pipeline.storage.dataset import Dataset, PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, sparse_table
from jobs.pipeline.storage.layout import ReleaseLayout, ReplicateLayout
from jobs.pipeline.tasks.batches import Batch, Sizing, geounit_batches
from jobs.pipeline.tasks.executor import Tasks
from solvers.choices import Failsafe, IntegerSolver, LeastSquaresSolver, Method
from solvers.families.solve import FamilySettings, PackedFamilies
from solvers.learned.forest import Forest
from solvers.least_squares.machine_code import load_kernels
from solvers.node import NodeSettings, NodeSolution, solve_node
from solvers.problem import NodeProblem

_WORST = 5  # rows of the table of slowest nodes in a report
_SUMS = (
    "nodes",
    "copied",
    "trivial",
    "live",
    "variables",
    "seconds",
    "iterations",
    "newton_steps",
    "widened",
)


def solve_level(level: Level, *, plan: Plan, release: ReleaseLayout, tasks: Tasks) -> None:
    """Solve one geolevel given the geolevel above, and publish its counts, once.

    Moves of the failsafe are carried up to all geolevels above.

    Raises:
      OutputError: The measurements or the geolevel above are not complete.
      SolverError, VerificationError: A node failed; nothing is published.
    """
    dataset = release.counts(level.name)
    spine, n_cells = plan.spine, plan.schema.size
    if is_published(dataset):
        carry_up(level.index, spine=spine, n_cells=n_cells, release=release)
        return
    started = time.monotonic()
    Dataset.open(release.measurements(level.name))
    largest, smallest = batch_sizes(plan, release, level, tasks.sizing)
    batches = geounit_batches(release, level, tasks.batches, largest, smallest)

    covariate, expected = learn_covariate(level, plan, release, tasks, batches)
    forests, correction = choose_corrections(level, plan, release, tasks, batches)
    priors: Priors | None = None
    if level.name in plan.solving.empirical_bayes and level.index:

        def tally_batch(batch: Batch) -> Tallies:
            solving = LevelSolving.of(plan, level.index)
            pieces = read_pieces(
                LevelReader(plan, release, level.index), batch, with_estimates=True
            )
            return tally_children(noisy_children(solving, pieces))

        priors = learn_priors(tasks.run(f"learn {level.name}", batches, tally_batch))

    def run(batch: Batch) -> tuple[PartFile, SolveStatistics]:
        return solve_batch(
            LevelReader(plan, release, level.index), batch, priors, covariate, forests
        )

    solved = tasks.run(f"solve {level.name}", batches, run)
    facts = plan.facts(
        geolevel=level.name,
        solve_digest=plan.solve_digest,
        seconds=time.monotonic() - started,
        statistics=json_of(total(statistics for _, statistics in solved)),
    )
    if expected is not None:
        facts["expected_totals"] = json_of(expected)
    if correction is not None:
        facts["learned"] = json_of(correction)
    # Replaceable: `carry_up` may replace published counts when geolevels below are solved.
    publish(dataset, [part for part, _ in solved], facts, replaceable=True)
    carry_up(level.index, spine=spine, n_cells=n_cells, release=release)


def solve_support(*, plan: Plan, release: ReleaseLayout, tasks: Tasks) -> None:
    """Solve the support of the root query by query, and publish the counts of the last, once.

    Queries are solved from coarse to fine, each fitted to the measured queries that are sums of it.
    Only answers within positive answers of the coarser query are solved, and its counts are kept as
    totals. So memory grows with the positive answers, not with the number of cells.

    Raises:
      OutputError: The measurements of the root are not complete.
      SolverError, InfeasibleError, VerificationError: A query could not be solved.
    """
    level = plan.levels[0]
    dataset = release.support(level.name)
    if is_published(dataset):
        return

    def run(batch: Batch) -> PartFile:
        return _support_of(LevelReader(plan, release, 0), batch)

    batches = geounit_batches(release, level, tasks.batches, 1, 1)
    parts = tasks.run(f"support {level.name}", batches, run)
    publish(dataset, parts, plan.facts(geolevel=level.name, query=plan.support[-1].name))


def _support_of(reader: LevelReader, batch: Batch) -> PartFile:
    """Solve the support queries of the root, coarse to fine, and write counts of the last query.

    Each query is solved only where the query before it has positive counts.
    """
    load_kernels()
    plan = reader.plan
    (piece,) = read_pieces(reader, batch, with_on_demand=False)
    (root,) = piece.families
    template, settings = NodeTemplate.of(plan, reader.level), node_settings(plan)
    positions, known = np.arange(plan.support[0].size), None
    for query in plan.support:
        if known is not None:
            positions = of_answers(known[0], query).cells_of(positions)
        zeros = plan.limits.zeros
        if zeros is None:
            cells = query.first_cells(positions)
        else:  # one possible cell of each answer; -1 for answers of structural zeros only
            cells = zeros.first_outside(query, positions)
            positions, cells = positions[cells >= 0], cells[cells >= 0]
        if not len(positions):  # the population is empty
            known = query, np.zeros((1, 0), np.int64)
            continue
        family = replace(root, support=Support(cells, known))
        targets = piece.targets.sums_of(query)
        problem = node_problem(template.of_sums(query), family, targets, piece.constraints)
        counts = solve_node(problem, settings).counts
        live = np.flatnonzero(counts[0])
        positions, known = positions[live], (query, counts[:, live])
    if known is None:
        raise ValueError("a support has queries")
    writer = PartWriter(reader.release.support(reader.level.name), SPARSE_SCHEMA)
    counted = Histograms(known[0].size, np.array([0, len(positions)]), positions, known[1][0])
    writer.write(sparse_table(piece.codes, counted))
    return writer.close()


def learn_covariate(
    level: Level, plan: Plan, release: ReleaseLayout, tasks: Tasks, batches: Sequence[Batch]
) -> tuple[CovariateModel | None, ExpectedTotals | None]:
    """Learn the deviation of totals from expected totals, and estimate whether they help.

    Returns:
      The learned model for tasks, None if the plain way is chosen; and its summary for the
      manifest, None if the run expects no totals at this geolevel.
    """
    covariate = plan.solving.covariate
    if covariate is None or level.name not in covariate.geolevels:
        return None, None
    chain = len(chain_of(plan))
    template, settings = NodeTemplate.of(plan, level), node_settings(plan)

    def pieces(batch: Batch) -> Iterator[Piece]:
        return read_pieces(LevelReader(plan, release, level.index), batch)

    def accumulate(batch: Batch) -> SufficientStats:
        with_groups = covariate.with_composition
        return merge_stats([*tally(plan, template, pieces(batch), with_groups=with_groups)], chain)

    seen = merge_stats(tasks.run(f"expect {level.name}", batches, accumulate), chain)
    variance = learn_variance(seen.totals)
    if variance is None:
        return None, expected_totals(covariate, seen.totals, None, None)
    dispersion = None if seen.groups is None else learn_dispersion(seen.groups)
    model = CovariateModel(covariate, PLAIN, variance, dispersion)
    share = min(1.0, MOST_CERTIFIED / Dataset.open(release.geography(level.name)).rows)

    ways = ways_of(plan, template, model, settings)

    def evaluate_ways(batch: Batch) -> SureEstimate:
        return certify(plan, template, pieces(batch), share, ways)

    summary = choice_of_run(release, level, "expected_totals", ExpectedTotals)
    if summary is None:
        risks = merge_risks(tasks.run(f"certify {level.name}", batches, evaluate_ways))
        summary = expected_totals(covariate, seen.totals, variance, risks)
    return (None if summary.way == PLAIN else replace(model, way=summary.way)), summary


def choice_of_run(release: ReleaseLayout, level: Level, name: str, kind: type[Fact]) -> Fact | None:
    """Return what the run chose for a replicate, as choosing takes longer than solving; else None.

    Args:
      release: The release or replicate to solve.
      level: The geolevel.
      name: Name of the fact, as for `use_of`.
      kind: Type of the fact.
    """
    if not isinstance(release, ReplicateLayout):
        return None
    return use_of(Dataset.open(release.exact.counts(level.name)), name, kind)


def choose_corrections(
    level: Level, plan: Plan, release: ReleaseLayout, tasks: Tasks, batches: Sequence[Batch]
) -> tuple[Mapping[str, Forest], LearnedAnswers | None]:
    """Choose the learned regressions that correct released answers.

    All are tried. Those of queries whose error is not clearly smaller are left out, and the rest is
    tried again.

    Returns:
      The regressions by query, and the summary for the manifest; None if the run has no regressions
      of this geolevel.
    """
    learned = plan.solving.learned
    if learned is None or level.name != learned.geolevel:
        return {}, None
    if learned.is_own:
        exact = release.exact if isinstance(release, ReplicateLayout) else release
        learned = read_learned(exact.learned)
    chosen = choice_of_run(release, level, "learned", LearnedAnswers)
    if chosen is not None:
        return {name: learned.forests[name] for name in chosen.corrected}, chosen
    share = min(1.0, MOST_CORRECTED / Dataset.open(release.geography(level.name)).rows)

    def estimate(forests: Mapping[str, Forest]) -> SureEstimate:
        def evaluate_both(batch: Batch) -> SureEstimate:
            solving = replace(LevelSolving.of(plan, level.index), forests=forests)
            ways = Ways((PLAIN, LEARNED), solving.both_ways)
            pieces = read_pieces(LevelReader(plan, release, level.index), batch)
            return certify(plan, solving.template, pieces, share, ways, CORRECTION_STEP)

        return merge_risks(tasks.run(f"certify {level.name}", batches, evaluate_both))

    forests, errors = learned.forests, tuple[EstimatedError, ...]()
    while forests:
        risks = estimate(forests)
        errors = errors or estimated_errors(risks)
        kept = improved(risks, forests.keys())
        if kept == forests.keys():
            break
        forests = {name: forests[name] for name in kept}
    return forests, LearnedAnswers(
        corrected=tuple(sorted(forests)),
        source=learned.source,
        digest=learned.digest,
        errors=errors,
    )


def batch_sizes(
    plan: Plan, release: ReleaseLayout, level: Level, sizing: Sizing
) -> tuple[int, int]:
    """Return the largest and the smallest number of geounits that one task solves, in this order.

    The noisy answers to read limit the largest number; the variables to solve limit both. A geounit
    has one variable per cell with records in its parent; the mean over all parents is used.
    """
    most = sizing.solve_numbers.most // whole_answers(level)
    if not level.index:
        return max(1, most), 1
    above = Dataset.open(release.counts(plan.levels[level.index - 1].name))
    variables = max(1, statistics_of(above).live // max(1, above.rows))
    size = sizing.solve_variables
    return max(1, min(most, size.most // variables)), size.least // variables


def node_settings(plan: Plan) -> NodeSettings:
    """Return the solver settings of a plan."""
    solving = plan.solving
    return NodeSettings(
        solving.tolerance,
        LeastSquaresSolver(solving.least_squares),
        IntegerSolver(solving.integers),
        Method(solving.method),
        solving.round_l2_passes,
        choose_mechanism(plan.budget.definition, plan.strategy.mechanism).continuous,
    )


@dataclass(frozen=True, eq=False)
class LevelSolving:
    """Setup for solving the families of one geolevel; made once per task.

    Attributes:
      plan: The plan.
      template: Common part of the node problems.
      settings: Solver settings.
      priors: Priors by query and variance of the noise; None without empirical Bayes.
      questions: Rounding queries of the compiled loops; None if families are solved one by one.
      forests: Regressions that correct released answers, by query; none without corrections.
    """

    plan: Plan
    template: NodeTemplate
    settings: NodeSettings
    priors: Priors | None = None
    questions: FamilySettings | None = None
    forests: Mapping[str, Forest] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, level: int, priors: Priors | None = None) -> LevelSolving:
        """Prepare a geolevel of a plan; `priors` is None without empirical Bayes."""
        template = NodeTemplate.of(plan, plan.levels[level])
        questions = questions_of(plan, plan.levels[level])
        return cls(plan, template, node_settings(plan), priors, questions)

    def corrected(self, piece: Piece, counts: IntArray) -> Piece:
        """Return a piece with corrected answers, given its counts without, int64[G, n]."""
        return correct(piece, counts, self.forests, self.plan.limits.quarters)

    def both_ways(self, piece: Piece) -> dict[str, list[FloatArray]]:
        """Solve a piece without and with corrections; by way, float64[C, k] per family."""
        plain = solved_counts(self, piece)
        ways = {PLAIN: plain, LEARNED: solved_counts(self, self.corrected(piece, plain))}
        live = [self.template.live_cells(family) for family in piece.families]
        return {
            way: [
                counts[family.rows][:, cells].astype(np.float64)
                for family, cells in zip(piece.families, live, strict=True)
            ]
            for way, counts in ways.items()
        }


def solved_counts(solving: LevelSolving, piece: Piece) -> IntArray:
    """Solve a piece; returns int64[G, n], the counts of its geounits in all cells."""
    out = np.zeros((len(piece.codes), solving.template.n_cells), np.int64)
    for rows, counts, _ in solve_piece(solving, piece):
        out[rows] = counts.dense()
    return out


def with_corrections(solving: LevelSolving, piece: Piece) -> Piece:
    """Return the piece with corrected released answers in place of noisy answers.

    The piece is solved first; its regressions then predict what is missing in the counts.
    """
    if not solving.forests:
        return piece
    return solving.corrected(piece, solved_counts(solving, piece))


def solve_batch(
    reader: LevelReader,
    batch: Batch,
    priors: Priors | None,
    covariate: CovariateModel | None,
    forests: Mapping[str, Forest],
) -> tuple[PartFile, SolveStatistics]:
    """Solve all families of a range and write their counts.

    Args:
      reader: Reader of the geolevel.
      batch: The range.
      priors: Priors by query and variance of the noise; None without empirical Bayes.
      covariate: The model of expected totals; None without expected totals.
      forests: Regressions that correct released answers, by query; none without corrections.
    """
    load_kernels()  # otherwise compiling would count as time of the first node
    plan = reader.plan
    solving = replace(LevelSolving.of(plan, batch.level, priors), forests=forests)
    solved: list[SolveStatistics] = []
    writer = PartWriter(reader.release.counts(reader.level.name), SPARSE_SCHEMA)
    for every in read_pieces(reader, batch, with_estimates=priors is not None):
        read = sampled_families(reader, every)
        piece = with_corrections(solving, read)
        if covariate is not None:
            piece = with_expected(plan, solving.template, read, covariate, covariate.way)
        for rows, counts, of_run in solve_piece(solving, piece):
            solved += of_run
            writer.write(sparse_table(piece.codes[rows], counts))
    statistics = total(solved)
    return writer.close(statistics=json_of(statistics)), statistics


def sampled_families(reader: LevelReader, piece: Piece) -> Piece:
    """Return the sampled families of a piece of leaves of a replicate; any other piece itself."""
    if not reader.is_leaf or not isinstance(reader.release, ReplicateLayout):
        return piece
    share = reader.release.share
    return of_families(piece, [one for one in piece.families if is_sampled(one.geocode, share)])


def solve_piece(
    solving: LevelSolving, piece: Piece
) -> Iterator[tuple[slice, Histograms, list[SolveStatistics]]]:
    """Solve the families of a piece in order, in runs of families.

    Yields:
      Rows of the children of a run, their counts, and the statistics of the families.

    Raises:
      As `solve_family`.
    """
    packed, families = None, piece.families
    if solving.questions and families:
        packed = pack_families(solving.questions, solving.template, families, piece.targets)
    run: list[SolveStatistics] = []
    for number, family in enumerate((*families, None)):  # None ends the last run
        solved = solve_packed(packed, number, family) if packed and family else None
        if solved:
            run.append(solved)
            continue
        if packed and run:
            first = number - len(run)
            rows = slice(families[first].rows.start, families[number - 1].rows.stop)
            counts = Histograms(solving.template.n_cells, *packed.histograms(first, number))
            yield rows, counts, run
            run = []
        if family:
            counts, statistics = solve_family(solving, piece, family)
            yield family.rows, counts, [statistics]


def solve_packed(packed: PackedFamilies, number: int, family: Family) -> SolveStatistics | None:
    """Solve a packed family, or copy known counts; None if it needs `solve_family`."""
    if family.parent is not None and family.n_children == 1:
        packed.copy(number)
        return unsolved(live=len(family.parent.cells), is_copied=True)
    if not family.has_persons:
        return unsolved(live=0, is_copied=False)
    started = time.process_time()
    solved = packed.solve(number)
    if solved is None:
        return None
    return _solved(
        family.geocode,
        solved.live,
        time.process_time() - started,
        solved.residual,
        variables=solved.variables,
        newton_steps=solved.newton_steps,
    )


def solve_family(
    solving: LevelSolving, piece: Piece, family: Family
) -> tuple[Histograms, SolveStatistics]:
    """Solve a family; returns the counts of the children and the statistics.

    If the constraints of the children contradict the parent, the failsafe moves the parent first.

    Raises:
      InfeasibleError: Constraints contradict the parent, and the failsafe is off or fails.
      SolverError, VerificationError: The node failed.
    """
    counts = known_counts(solving.template, piece, family)
    if counts is not None:
        return counts, unsolved(live=len(counts.cells), is_copied=family.n_children == 1)
    seconds = 0.0
    moved: tuple[Move, ...] = ()
    try:
        if not family.has_persons:
            raise InfeasibleError(
                f"node {family.geocode}", "is empty, but its children must have persons"
            )
        problem = _problem(solving, piece, family)
        started = time.process_time()
        try:
            solution = solve_node(problem, solving.settings)
        finally:
            seconds = time.process_time() - started
    except InfeasibleError:
        failsafe = Failsafe(solving.plan.solving.failsafe)
        if family.parent is None or failsafe is Failsafe.NONE:
            raise
        started = time.process_time()
        node = Contradicted.of(solving.plan, solving.template, piece, family)
        family = moved_family(node, failsafe, solving.settings)
        moved = (move_of(node, family, failsafe),)
        solution = solve_node(_problem(solving, piece, family), solving.settings)
        seconds += time.process_time() - started
    counts = histograms_of(solving.template, family, solution.counts)
    live = len(counts.cells)
    return counts, of_node(family.geocode, solution, live=live, seconds=seconds, moved=moved)


def known_counts(template: NodeTemplate, piece: Piece, family: Family) -> Histograms | None:
    """Return counts that need no solving: an only child, or empty children; else None."""
    if family.parent is not None and family.n_children == 1:
        return family.parent
    if not family.has_persons and may_be_empty(template, family, piece.constraints):
        empty = np.zeros(0, np.int64)
        return Histograms(template.n_cells, np.zeros(family.n_children + 1, np.int64), empty, empty)
    return None


def _problem(solving: LevelSolving, piece: Piece, family: Family) -> NodeProblem:
    """Assemble the node problem of the children of one parent.

    If the geolevel has priors, posterior means replace the noisy answers. The family
    of the root always keeps its noisy answers.
    """
    problem = node_problem(solving.template, family, piece.targets, piece.constraints)
    if solving.priors is None:
        return problem
    children = _children(solving, piece, family, problem)
    return fit_to_posterior(problem, children, solving.priors) if children else problem


def _children(
    solving: LevelSolving, piece: Piece, family: Family, problem: NodeProblem
) -> list[ChildCounts]:
    """Compute noisy and expected counts of the children of a parent; none at the root."""
    if piece.estimates is None or family.parent is None:
        return []
    measured = piece.targets.measured(family.rows)
    return child_counts(problem, family.parent, piece.estimates, measured, solving.settings)


def noisy_children(solving: LevelSolving, pieces: Iterable[Piece]) -> Iterator[ChildCounts]:
    """Yield noisy and expected counts of all children that must be solved."""
    for piece in pieces:
        for family in piece.families:
            if family.has_persons and known_counts(solving.template, piece, family) is None:
                yield from _children(solving, piece, family, _problem(solving, piece, family))


# --- statistics ----------------------------------------------------------------------------------


def _statistics(live: int, **more: Any) -> SolveStatistics:  # noqa: ANN401 - as the document has it
    """Make the statistics of one parent; fields that are not given are 0 or empty."""
    zeros = {**dict.fromkeys(_SUMS, 0), "seconds": 0.0, "max_residual": 0.0}
    return SolveStatistics(**{**zeros, "worst_nodes": (), "moved": (), "live": live, **more})


def unsolved(*, live: int, is_copied: bool) -> SolveStatistics:
    """Make the statistics of a parent whose children are a copy of it, or empty as it is."""
    return _statistics(live, copied=int(is_copied), trivial=int(not is_copied))


def of_node(
    geocode: str, solution: NodeSolution, *, live: int, seconds: float, moved: tuple[Move, ...]
) -> SolveStatistics:
    """Make the statistics of one solved node.

    Args:
      geocode: Geocode of the parent.
      solution: Solution of the node problem.
      live: Cells with persons, summed over the children.
      seconds: Processor seconds in the solver.
      moved: Moves of the failsafe.
    """
    estimate = solution.estimate
    return _solved(
        geocode,
        live,
        seconds,
        estimate.certificate.residual,
        variables=solution.counts.size,
        iterations=estimate.iterations,
        newton_steps=estimate.newton_steps,
        widened=int(bool(solution.rounding.widened)),
        moved=moved,
    )


def _solved(
    geocode: str,
    live: int,
    seconds: float,
    residual: float,
    **more: Any,  # noqa: ANN401 - as the document has it
) -> SolveStatistics:
    """Make the statistics of one solved parent; `more` are further fields."""
    node = SlowNode(geocode=geocode, residual=residual, seconds=seconds)
    return _statistics(
        live, nodes=1, seconds=seconds, max_residual=residual, worst_nodes=(node,), **more
    )


def total(parts: Iterable[SolveStatistics]) -> SolveStatistics:
    """Sum statistics of several parents or tasks; keeps the slowest nodes."""
    parts = list(parts)
    slowest = sorted(
        (node for part in parts for node in part.worst_nodes),
        key=lambda node: (-node.seconds, node.geocode),
    )
    return SolveStatistics(
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMS},
        max_residual=max((part.max_residual for part in parts), default=0.0),
        worst_nodes=tuple(slowest[:_WORST]),
        moved=tuple(move for part in parts for move in part.moved),
    )
