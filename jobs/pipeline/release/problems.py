"""Node problems of the families of one geolevel, assembled from answers. Reads no files.

A family is the children of one parent. Its node problem fits their counts to noisy answers, its
targets, and keeps what is exact or bounded, its constraints. Both come as arrays over the geounits
of a range, of which a family is a slice.

Most families of most runs are least squares of partition queries in one pass, under the parent
alone, and rounding by nested queries. Compiled loops solve those (`solvers.families`): which
geolevels are such, `questions_of` says from the plan, and which families `PackedFamilies.solve`,
from their sizes and weights.

A prior of cell counts learned from the noisy counts of a geolevel, and problems fitted to it.

Where most counts are zero, the posterior mean of a cell has less squared error than its noisy
count. Tasks tally noisy counts of cells by what was expected of them, the driver learns one prior
per variance of the noise (`das.tree.prior`), and node problems are fitted to posterior means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from das.arrays import FloatArray, IntArray
from das.histograms import Histograms
from das.queries.query import Query, is_answered_by, is_refinement
from das.tree.prior import LearnedPrior, Tally, learn_prior, merge, tally
from invariants.facilities import Types
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.implied import BatchLimits
from jobs.pipeline.storage.answers import DrawnAnswers
from solvers.choices import LeastSquaresSolver, Method
from solvers.families.solve import FamilySettings, PackedFamilies, Parents
from solvers.node import NodeSettings, estimate_node
from solvers.problem import (
    ExactTerm,
    GeneralTerm,
    KroneckerTerm,
    LeastSquaresTerm,
    LeavesTerm,
    NodeProblem,
    RoundingQuery,
    RowsTerm,
    Term,
)

# Cells of a schema up to which the answers in which all of them count are kept, at 8 bytes a cell
# and query. Beyond, they are found again for the live cells of each family: slower per cell, but
# few of many cells are live.
_KEPT_CELLS = 50_000
# Live cells up to which weighted sums are targets: each has a matrix over the live cells, and nodes
# with one are solved with such matrices (`solvers.node`).
_MOST_TOLD = 1_000
# How what an open unit holds beyond its least, in the mean, differs between geounits, as a share of
# it. Persons beside the householder, per occupied unit, of public counts: 0.35 between tracts, 0.37
# between block groups and 0.43 between blocks of Cook County in 2010, less what units of a geounit
# differ by chance; 0.28 between tracts of Illinois in 2020.
_BETWEEN = 1 / 3


@dataclass(frozen=True, eq=False)
class Support:
    """Cells of the root that may be live because coarser counts of it, found before, are positive.

    Attributes:
      cells: int64[k], rising.
      known: The query whose counts are known, and int64[1, answers with such cells], all positive;
        None where none are yet.
    """

    cells: IntArray
    known: tuple[Query, IntArray] | None = None


@dataclass(frozen=True, eq=False)
class Family:
    """The children of one parent.

    Attributes:
      geocode: The parent's, "root" for the root alone.
      rows: The children among the geounits of the range.
      parent: Its counts; None for the root alone.
      support: Of the root alone, what is known of its cells; None for all that may be.
    """

    geocode: str
    rows: slice
    parent: Histograms | None
    support: Support | None = None

    @property
    def n_children(self) -> int:
        """Number of children, C."""
        return int(self.rows.stop - self.rows.start)

    @property
    def has_persons(self) -> bool:
        """Whether the parent has a live cell, as the root has unless its support has none."""
        if self.parent is not None:
            return len(self.parent.cells) > 0
        return self.support is None or len(self.support.cells) > 0


@dataclass(frozen=True, eq=False)
class ToldSum:
    """What is told of a weighted sum of the cells of M geounits.

    Attributes:
      coefficients: float64[n].
      beyond: float64[n], what of it one unit holds beyond its least, which varies.
      spread: float64[n], the variance of that of one unit.
      answers: float64[M].
      weights: float64[M], inverse variances without that of the units.
    """

    coefficients: FloatArray
    beyond: FloatArray
    spread: FloatArray
    answers: FloatArray
    weights: FloatArray

    def take(self, measured: IntArray) -> ToldSum:
        """That of some of the geounits."""
        answers, weights = self.answers[measured], self.weights[measured]
        return replace(self, answers=answers, weights=weights)

    def of_family(self, parent: IntArray, cells: IntArray, rows: slice) -> FloatArray:
        """float64[C]: inverse variances of children, with that of what open units hold.

        Open units are spread over the children as the answers are, and what they hold beyond their
        least in the mean differs between geounits.

        Args:
          parent: int64[k], counts of the parent in its live cells.
          cells: int64[k], these cells.
          rows: The children among the geounits.
        """
        weights, records = self.weights[rows], np.maximum(self.answers[rows], 0)
        share = records / max(float(records.sum()), 1.0)
        varies = share * float(self.spread[cells] @ parent)
        varies += (_BETWEEN * share * float(self.beyond[cells] @ parent)) ** 2
        return np.asarray(weights / (1 + varies * weights), np.float64)


@dataclass(frozen=True, eq=False)
class Targets:
    """What the counts of the geounits of a range are fitted to; only children have none.

    Attributes:
      queries: The queries.
      answers: Per query, numbers[M, m] of the M measured geounits, or those drawn of an on-demand
        one.
      weights: Per query, float64[M], inverse variances.
      row: int64[G], row of each geounit among the measured; meaningless for only children.
      told: What a later product tells of weighted sums.
    """

    queries: Sequence[Query]
    answers: Sequence[FloatArray | IntArray | DrawnAnswers]
    weights: Sequence[FloatArray]
    row: IntArray
    told: Sequence[ToldSum] = ()

    def each(self) -> Iterator[tuple[Query, FloatArray | IntArray | DrawnAnswers, FloatArray]]:
        """Give every query with its answers and weights."""
        return zip(self.queries, self.answers, self.weights, strict=True)

    def measured(self, rows: slice) -> slice:
        """Rows of a family of at least two among the measured geounits."""
        return slice(int(self.row[rows.start]), int(self.row[rows.stop - 1]) + 1)

    def sums_of(self, query: Query) -> Targets:
        """Those whose answers are sums of the answers of a partition query."""
        kept = [at for at, one in enumerate(self.queries) if is_answered_by(query, one)]
        return replace(
            self,
            queries=[self.queries[at] for at in kept],
            answers=[self.answers[at] for at in kept],
            weights=[self.weights[at] for at in kept],
            told=(),
        )

    def take(self, geounits: IntArray) -> tuple[Targets, IntArray]:
        """Those of some of the geounits, in their order, and which of the M measured they are."""
        is_measured = np.diff(self.row, prepend=-1) > 0
        measured = self.row[geounits][is_measured[geounits]]
        return Targets(
            self.queries,
            [
                answers.take(measured) if isinstance(answers, DrawnAnswers) else answers[measured]
                for answers in self.answers
            ],
            [weights[measured] for weights in self.weights],
            np.cumsum(is_measured[geounits]) - 1,
            [one.take(measured) for one in self.told],
        ), measured


@dataclass(frozen=True, eq=False)
class BatchConstraints:
    """What the counts of the geounits of a range must keep.

    Attributes:
      exact: Per query whose answers they must have, int64[G, m].
      sums: Per exact linear row, int64[G, 1].
      limits: What the leaves below can hold, and bounds of linear rows; None if nothing binds.
    """

    exact: Sequence[IntArray]
    sums: Sequence[IntArray]
    limits: BatchLimits | None


@dataclass(frozen=True, eq=False)
class CellGroups:
    """In which answer of a partition query each cell of a schema counts.

    Attributes:
      n_cells: n.
      known: int64[n] by name of the query, kept if n is small; fills as queries are asked for.
    """

    n_cells: int
    known: dict[str, IntArray] = field(default_factory=dict)

    def rows_of(self, query: Query | Types, cells: IntArray) -> IntArray:
        """int64[k]: the answer in which each of some cells counts."""
        if self.n_cells > _KEPT_CELLS:
            return query.rows_of(cells)
        if query.name not in self.known:
            self.known[query.name] = query.rows_of(np.arange(self.n_cells))
        return self.known[query.name][cells]

    def present(self, query: Query, cells: IntArray) -> tuple[IntArray, IntArray]:
        """Answers in which some cells count, rising, and int64[k], which of them each cell does."""
        rows = self.rows_of(query, cells)
        if self.n_cells > _KEPT_CELLS:
            return np.unique(rows, return_inverse=True)
        number = np.zeros(query.size, np.int64)
        number[rows] = 1
        present = np.flatnonzero(number)
        number[present] = np.arange(len(present))
        return present, number[rows]


@dataclass(frozen=True, eq=False)
class NodeTemplate:
    """What all node problems of one geolevel have in common.

    Attributes:
      level: The geolevel of the children.
      n_cells: n, of the schema.
      possible: int64[k], cells in which somebody may be; the live cells of a root without support,
        and asked for there alone.
      types: What is bound by type in the leaves below, if something is.
      passes: Rounding passes.
      order: Least-squares passes, as names of queries.
      groups: Cells by answer, shared by all families of a task.
    """

    level: Level
    n_cells: int
    possible: Callable[[], IntArray]
    types: Query | Types | None
    passes: tuple[tuple[Query, ...], ...]
    order: tuple[tuple[str, ...], ...]
    groups: CellGroups

    @classmethod
    def of(cls, plan: Plan, level: Level) -> NodeTemplate:
        """The template of a geolevel of a plan."""
        bound = plan.limits.by_type
        return cls(
            level,
            plan.schema.size,
            partial(plan.limits.possible, plan.schema),
            bound.query if bound is not None and level.name in bound.geolevels else None,
            plan.passes,
            plan.solving.l2_passes.get(level.name, ()),
            CellGroups(plan.schema.size),
        )

    def of_sums(self, query: Query) -> NodeTemplate:
        """The template of problems whose cells are answers of a query, a cell for each of them."""
        coarser = [
            tuple(one for one in queries if one.name != query.name and is_refinement(query, one))
            for queries in self.passes
        ]
        passes = (*(queries for queries in coarser if queries), (query,))
        return replace(self, passes=passes, order=())

    def live_cells(self, family: Family) -> IntArray:
        """int64[k]: cells that children can have persons in, those of their parent."""
        if family.parent is not None:
            return family.parent.cells
        return self.possible() if family.support is None else family.support.cells


def node_problem(
    template: NodeTemplate, family: Family, targets: Targets, constraints: BatchConstraints
) -> NodeProblem:
    """The node problem of a family of at least two children, or of the root.

    Raises:
      OutputError: The answer of an on-demand query about a live cell was not drawn.
    """
    cells, rows, groups = template.live_cells(family), family.rows, template.groups
    measured = targets.measured(rows)
    terms = [
        _term(groups, query, cells, answers, measured, weights[measured])
        for query, answers, weights in targets.each()
    ]
    exact = []
    for query, answers in zip(template.level.kept, constraints.exact, strict=True):
        present, group = groups.present(query, cells)
        exact.append(ExactTerm(group, answers[rows][:, present], query))
    if family.support is not None and family.support.known is not None:
        query, counts = family.support.known
        exact.append(ExactTerm(groups.present(query, cells)[1], counts, query))
    passes = tuple(
        tuple(RoundingQuery(groups.present(query, cells)[1]) for query in queries)
        for queries in template.passes
    )
    if targets.told and len(cells) <= _MOST_TOLD:
        terms += _told_terms(family, targets, measured, cells, exact)
    return NodeProblem(
        family.geocode,
        len(cells),
        None if family.parent is None else family.parent.counts,
        tuple(terms),
        tuple(exact),
        passes,
        _row_terms(template, cells, rows, constraints),
        _leaves_term(template, cells, rows, constraints),
        _order(template, targets.queries, len(terms)),
    )


def may_be_empty(template: NodeTemplate, family: Family, constraints: BatchConstraints) -> bool:
    """Whether the children of an empty parent keep their linear rows with nobody in any of them.

    Exact queries and leaves add up without signs, so where the parent is empty they allow it.
    """
    return all(
        bool(((term.least <= 0) & (term.most >= 0)).all())
        for term in _row_terms(template, np.zeros(0, np.int64), family.rows, constraints)
    )


def histograms_of(template: NodeTemplate, family: Family, counts: IntArray) -> Histograms:
    """Histograms of the children from int64[C, k] counts in the live cells."""
    children, live = np.nonzero(counts)
    offsets = np.searchsorted(children, np.arange(family.n_children + 1))
    cells = template.live_cells(family)
    return Histograms(template.n_cells, offsets, cells[live], counts[children, live])


def _order(
    template: NodeTemplate, queries: Sequence[Query], n_terms: int
) -> tuple[tuple[int, ...], ...]:
    """Least-squares passes as positions of terms.

    What is not named comes last. Sums that a later product tells have no names, and are in the last
    pass that there is.
    """
    names = [query.name for query in queries]
    passes = [tuple(names.index(name) for name in stated) for stated in template.order]
    named = {index for indices in passes for index in indices}
    last = tuple(index for index in range(len(names)) if index not in named)
    if passes and last:
        passes.append(last)
    if passes:
        passes[-1] += tuple(range(len(names), n_terms))
    return tuple(passes)


def _row_terms(
    template: NodeTemplate, cells: IntArray, rows: slice, constraints: BatchConstraints
) -> tuple[RowsTerm, ...]:
    """Linear rows of some children, exact ones with their sums as both bounds."""
    linear = [*template.level.exact_rows, *template.level.bounded_rows]
    if not linear:
        return ()
    sums = [answers[rows] for answers in constraints.sums]
    least, most = list(sums), list(sums)
    if constraints.limits is not None:
        least.append(constraints.limits.row_least[rows])
        most.append(constraints.limits.row_most[rows])
    coefficients = np.array([row.coefficients[cells] for row in linear])
    names = tuple(row.name for row in linear)
    return (RowsTerm(coefficients, np.hstack(least), np.hstack(most), names),)


def _leaves_term(
    template: NodeTemplate, cells: IntArray, rows: slice, constraints: BatchConstraints
) -> LeavesTerm | None:
    """What the leaves below some children can hold."""
    if template.types is None or constraints.limits is None or constraints.limits.leaves is None:
        return None
    leaves = constraints.limits.leaves
    types = template.groups.rows_of(template.types, cells)
    return LeavesTerm(types, tuple(leaves.of(child) for child in range(rows.start, rows.stop)))


def _told_terms(
    family: Family,
    targets: Targets,
    measured: slice,
    cells: IntArray,
    exact: Sequence[ExactTerm],
) -> list[Term]:
    """Weighted sums that a later product tells, but for those that exact answers fix."""
    found: list[Term] = []
    for told in targets.told:
        row, weights = told.coefficients[cells], told.weights[measured]
        if not weights.any() or any(_is_fixed_by(one.groups, row) for one in exact):
            continue
        if family.parent is not None:
            weights = told.of_family(family.parent.counts, cells, measured)
        adjoint = told.answers[measured][:, None] * row
        found.append(GeneralTerm(np.outer(row, row), adjoint, weights))
    return found


def _is_fixed_by(groups: IntArray, row: FloatArray) -> bool:
    """Whether a weighted sum is one of the sums over groups."""
    first = np.zeros(int(groups.max(initial=-1)) + 1)
    first[groups] = row
    return np.array_equal(first[groups], row)


def _term(
    groups: CellGroups,
    query: Query,
    cells: IntArray,
    answers: FloatArray | IntArray | DrawnAnswers,
    measured: slice,
    weights: FloatArray,
) -> Term:
    """What one query says about the live cells of some children."""
    if isinstance(answers, DrawnAnswers):
        present, group = groups.present(query, cells)
        return LeastSquaresTerm(group, answers.of(measured, present), weights)
    if not query.is_partition:
        own = answers[measured].astype(np.float64)
        return KroneckerTerm(query, cells, query.adjoint(own, cells), weights)
    present, group = groups.present(query, cells)
    own = answers[measured][:, present].astype(np.float64)
    return LeastSquaresTerm(group, own, weights, query)


# --- families that are solved by compiled loops --------------------------------------------------


def questions_of(plan: Plan, level: Level) -> FamilySettings | None:
    """How the families of a geolevel are rounded; None if they are solved one by one.

    So are those of the root, which has no parent, of geolevels with invariants, limits, on-demand
    or planned queries, a learned prior, first passes of more than one query or that are rounded,
    and all of a run with another method or least-squares solver.
    """
    solving = plan.solving
    is_plain = (
        solving.method == Method.NNLS
        and solving.least_squares == LeastSquaresSolver.STRUCTURED
        and level.name not in solving.empirical_bayes
    )
    order = solving.l2_passes.get(level.name, ())
    is_rounded = bool(order) and solving.round_l2_passes
    if is_rounded or len(order) > 1 or any(len(names) > 1 for names in order):
        return None
    is_free = not (
        level.published
        or level.bound
        or level.bounded_rows
        or plan.limits.binds(level.name)
        or plan.hints
    )
    if not (level.index and is_plain and is_free) or plan.schema.size > _KEPT_CELLS:
        return None
    if level.on_demand or not all(query.is_partition for query in level.queries):
        return None
    cells = np.arange(plan.schema.size)
    chain = list(dict.fromkeys(query for queries in plan.passes for query in queries))
    asked = [[queries.count(query) for query in chain] for queries in plan.passes]
    rows = np.array([query.rows_of(cells) for query in chain], np.int64)
    first = order[0][0] if order and len(level.queries) > 1 else None
    return FamilySettings(rows, np.array(asked), solving.tolerance, first)


def pack_families(
    questions: FamilySettings, template: NodeTemplate, families: Sequence[Family], targets: Targets
) -> PackedFamilies | None:
    """Pack families of a geolevel that has a parent, to be solved by compiled loops.

    None if what they are fitted to are not answers of partitions.
    """
    if not all(query.is_partition for query in targets.queries):
        return None
    cells, none = np.arange(template.n_cells), np.zeros(0, np.int64)
    names = [query.name for query in targets.queries]
    queries = [template.groups.rows_of(query, cells) for query in targets.queries]
    parents = [family.parent for family in families if family.parent is not None]
    starts = np.array([family.rows.start for family in families])
    sizes = [len(parent.cells) for parent in parents]
    return PackedFamilies(
        questions,
        np.array(queries, np.int64),
        Parents(
            [family.geocode for family in families],
            np.array([family.n_children for family in families]),
            np.asarray(targets.row, np.int64)[starts],
            np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
            np.concatenate([none, *(parent.cells for parent in parents)]),
            np.concatenate([none, *(parent.counts for parent in parents)]),
        ),
        [one for one in targets.answers if not isinstance(one, DrawnAnswers)],
        np.stack(targets.weights, axis=1),
        None if questions.first is None else names.index(questions.first),
    )


# --- learned priors -------------------------------------------------------------------------------


Priors = Mapping[float, LearnedPrior]  # by variance of the noise
Tallies = Mapping[float, Tally]  # likewise

# Moves a variance off the edges between numbers of three digits. Quotients of small integers lie on
# them; there the last digits of a float, which differ between processors, would choose the prior.
_OFF_EDGES = 1 + 1e-6
# Persons added to the estimated total of every child. With 0, all cells of a child whose total is
# estimated as 0 would fall into the lowest bin of expected counts; with many, all children of a
# parent would be expected to be alike.
_LEAST_TOTAL = 0.3


@dataclass(frozen=True, eq=False)
class CellEstimates:
    """Unbiased estimates of all cells of the M measured geounits of a range.

    Attributes:
      values: float64[M, n], from each geounit's subtree.
      variances: float64[M], mean variance of a cell.
    """

    values: FloatArray
    variances: FloatArray

    def take(self, measured: IntArray) -> CellEstimates:
        """Those of some of the measured geounits."""
        return CellEstimates(self.values[measured], self.variances[measured])


@dataclass(frozen=True, eq=False)
class ChildCounts:
    """Noisy counts of one child in the live cells of its parent, and what is expected of them.

    Attributes:
      variance: Of the noise, three digits.
      noisy: float64[k].
      expected: float64[k].
    """

    variance: float
    noisy: FloatArray
    expected: FloatArray


def child_counts(
    problem: NodeProblem,
    parent: Histograms,
    cells: CellEstimates,
    measured: slice,
    settings: NodeSettings,
) -> list[ChildCounts]:
    """Noisy and expected counts of the children of one parent.

    Expected count = (child's estimated share of the parent's persons) x (parent's count in the
    cell); shares are those of the least-squares estimates of the children's totals.

    Args:
      problem: The node problem with noisy answers.
      parent: Counts of the parent, one geounit.
      cells: Estimates of a range.
      measured: Rows of the children in the range.
      settings: How nodes are solved.
    """
    totals = estimate_node(problem, settings).values.sum(1) + _LEAST_TOTAL
    shares = totals / totals.sum()
    noisy = cells.values[measured][:, parent.cells]
    return [
        ChildCounts(
            float(f"{variance * _OFF_EDGES:.3g}"), noisy[child], shares[child] * parent.counts
        )
        for child, variance in enumerate(cells.variances[measured])
    ]


def tally_children(children: Iterable[ChildCounts]) -> Tallies:
    """Tally noisy counts by the variance of their noise."""
    tallies: dict[float, list[Tally]] = defaultdict(list)
    for child in children:
        tallies[child.variance].append(tally(child.noisy, child.expected, child.variance))
    return {variance: merge(group) for variance, group in tallies.items()}


def learn_priors(parts: Sequence[Tallies]) -> Priors:
    """Learn from the tallies of all tasks how counts are distributed, by variance of the noise."""
    variances = {variance for tallies in parts for variance in tallies}
    return {
        variance: learn_prior(merge(_of_variance(parts, variance)), variance)
        for variance in variances
    }


def _of_variance(parts: Sequence[Tallies], variance: float) -> Iterator[Tally]:
    return (tallies[variance] for tallies in parts if variance in tallies)


def fit_to_posterior(
    problem: NodeProblem, children: Sequence[ChildCounts], priors: Priors
) -> NodeProblem:
    """The node problem with posterior means of the cells in place of noisy answers.

    Each cell of a child weighs 1 / variance of its noise; least-squares passes make no difference
    between cells, so there is one. What a later product tells of weighted sums stays.
    """
    means = [
        priors[child.variance].posterior_mean(child.noisy, child.expected) for child in children
    ]
    weights = [1 / child.variance for child in children]
    cells = np.arange(problem.n_cells)
    term = LeastSquaresTerm(cells, np.array(means), np.array(weights))
    told = (one for one in problem.terms if isinstance(one, GeneralTerm))  # of other records
    return replace(problem, terms=(term, *told), order=())
