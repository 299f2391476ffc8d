"""Assemble the node problems of the families of one geolevel from answers. Reads no files.

A family is the children of one parent. Its node problem fits counts to noisy answers (targets)
under exact and bounded sums (constraints). Both are arrays over the geounits of a range, and a
family is a slice of them.

Most families are least squares of partition queries in one pass, constrained by the parent alone,
with rounding by nested queries. Compiled loops solve them (`solvers.families`). `questions_of`
decides by geolevel, `PackedFamilies.solve` by size and weights of a family.

Empirical Bayes: where most counts are zero, the posterior mean of an answer has less squared error
than its noisy count. Tasks tally noisy counts by expected counts, the driver learns one prior per
query and noise variance (`das.tree.prior`), and node problems are fitted to posterior means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
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
    is_constant,
)

# Cells of a schema up to which the answer of each cell is cached, at 8 bytes per cell and query.
# In larger schemas answers are computed for the live cells of each family: slower per cell, but
# few cells are live. Default, not measured.
_KEPT_CELLS = 50_000
# Live cells up to which weighted sums are targets: each needs a dense matrix over the live cells
# (`solvers.node`), 8 MB at this size. Default, not measured.
_MOST_PSEUDO_MEASURED = 1_000
# Relative standard deviation between geounits of the mean persons of an open unit beyond its least.
# Measured on public counts of persons other than the householder per occupied unit: 0.35 between
# tracts, 0.37 between block groups and 0.43 between blocks of Cook County in 2010, chance
# subtracted; 0.28 between tracts of Illinois in 2020.
_BETWEEN = 1 / 3


@dataclass(frozen=True, eq=False)
class Support:
    """Cells of the root that may be live, since solved coarser counts are positive there.

    Attributes:
      cells: int64[k] cells, ascending.
      known: The last solved query and its positive counts, int64[1, number of positive answers];
        None before the first query.
    """

    cells: IntArray
    known: tuple[Query, IntArray] | None = None


@dataclass(frozen=True, eq=False)
class Family:
    """The children of one parent.

    Attributes:
      geocode: Geocode of the parent; "root" for the family of the root.
      rows: Positions of the children in the range.
      parent: Counts of the parent; None for the root.
      support: Support of the root; None if all possible cells may be live.
    """

    geocode: str
    rows: slice
    parent: Histograms | None
    support: Support | None = None

    @property
    def n_children(self) -> int:
        """Return the number of children, C."""
        return int(self.rows.stop - self.rows.start)

    @property
    def has_persons(self) -> bool:
        """Return whether the parent has a live cell; the root has, unless its support is empty."""
        if self.parent is not None:
            return len(self.parent.cells) > 0
        return self.support is None or len(self.support.cells) > 0


@dataclass(frozen=True, eq=False)
class PseudoMeasurement:
    """Cross-product pseudo-measurement: an estimated weighted sum of the cells of M geounits.

    Attributes:
      coefficients: float64[n], weight of each cell.
      beyond: float64[n], mean persons of a unit beyond the least of its size.
      spread: float64[n], variance of that number for one unit.
      answers: float64[M], estimates of the sums.
      weights: float64[M], inverse variances, without the variance of the units.
    """

    coefficients: FloatArray
    beyond: FloatArray
    spread: FloatArray
    answers: FloatArray
    weights: FloatArray

    def take(self, measured: IntArray) -> PseudoMeasurement:
        """Return the pseudo-measurement of some of the geounits."""
        return replace(self, answers=self.answers[measured], weights=self.weights[measured])

    def of_family(self, parent: IntArray, cells: IntArray, rows: slice) -> FloatArray:
        """Return float64[C], inverse variances for C children, including the variance of the units.

        Open units are distributed over children in proportion to the answers. Their mean persons
        beyond the least vary between geounits by `_BETWEEN`.

        Args:
          parent: int64[k], counts of the parent in its live cells.
          cells: int64[k], the live cells.
          rows: Positions of the children.
        """
        weights, records = self.weights[rows], np.maximum(self.answers[rows], 0)
        share = records / max(float(records.sum()), 1.0)
        varies = share * float(self.spread[cells] @ parent)
        varies += (_BETWEEN * share * float(self.beyond[cells] @ parent)) ** 2
        return np.asarray(weights / (1 + varies * weights), np.float64)


@dataclass(frozen=True, eq=False)
class Targets:
    """Answers to which the counts of the geounits of a range are fitted; only children have none.

    Attributes:
      queries: The queries.
      answers: Per query, numbers[M, m] of the M measured geounits, or answers drawn on demand.
      weights: Per query, float64[M], inverse variances.
      row: int64[G], row of each geounit among the measured; undefined for only children.
      pseudo_measurements: Cross-product pseudo-measurements.
    """

    queries: Sequence[Query]
    answers: Sequence[FloatArray | IntArray | DrawnAnswers]
    weights: Sequence[FloatArray]
    row: IntArray
    pseudo_measurements: Sequence[PseudoMeasurement] = ()

    def each(self) -> Iterator[tuple[Query, FloatArray | IntArray | DrawnAnswers, FloatArray]]:
        """Iterate over (query, answers, weights)."""
        return zip(self.queries, self.answers, self.weights, strict=True)

    def measured(self, rows: slice) -> slice:
        """Return the rows of a family of at least two children among the measured geounits."""
        return slice(int(self.row[rows.start]), int(self.row[rows.stop - 1]) + 1)

    def sums_of(self, query: Query) -> Targets:
        """Return the targets whose answers are sums of the answers of a partition query."""
        kept = [at for at, target in enumerate(self.queries) if is_answered_by(query, target)]
        return replace(
            self,
            queries=[self.queries[at] for at in kept],
            answers=[self.answers[at] for at in kept],
            weights=[self.weights[at] for at in kept],
            pseudo_measurements=(),
        )

    def take(self, geounits: IntArray) -> tuple[Targets, IntArray]:
        """Return the targets of some geounits, and their positions among the M measured."""
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
            [weighted.take(measured) for weighted in self.pseudo_measurements],
        ), measured


@dataclass(frozen=True, eq=False)
class BatchConstraints:
    """Constraints of the counts of the geounits of a range.

    Attributes:
      exact: Per exact query, int64[G, m], the m exact answers of each of G geounits.
      sums: Per exact linear row, int64[G, 1], the exact sum in each geounit.
      limits: Capacities of the leaves below, and bounds of linear rows; None without either.
    """

    exact: Sequence[IntArray]
    sums: Sequence[IntArray]
    limits: BatchLimits | None


@dataclass(frozen=True, eq=False)
class CellGroups:
    """Answers of partition queries by cell, cached for small schemas.

    Attributes:
      n_cells: Number of cells of the schema, n.
      known: Cache by query name: int64[n], for each cell the index of the answer.
    """

    n_cells: int
    known: dict[str, IntArray] = field(default_factory=dict)

    def rows_of(self, query: Query | Types, cells: IntArray) -> IntArray:
        """Return int64[k], for each of k cells the index of the answer to which it contributes."""
        if self.n_cells > _KEPT_CELLS:
            return query.rows_of(cells)
        if query.name not in self.known:
            self.known[query.name] = query.rows_of(np.arange(self.n_cells))
        return self.known[query.name][cells]

    def present(self, query: Query, cells: IntArray) -> tuple[IntArray, IntArray]:
        """Return the answers of some cells, ascending, and int64[k], the position of each cell."""
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
    """Common part of all node problems of one geolevel.

    Attributes:
      level: The geolevel of the children.
      n_cells: Number of cells of the schema, n.
      possible: Returns int64[k], cells that are no structural zeros; used for a root without
        support only.
      types: The query whose answers are bounded in the leaves below; None without bounds.
      passes: Rounding passes.
      order: Least-squares passes, as names of queries.
      groups: Answers by cell, shared by all families of a task.
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
        """Make the template of a geolevel of a plan."""
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
        """Return the template of problems with one cell for each answer of a query."""
        coarser = [
            tuple(q for q in queries if q.name != query.name and is_refinement(query, q))
            for queries in self.passes
        ]
        passes = (*(queries for queries in coarser if queries), (query,))
        return replace(self, passes=passes, order=())

    def live_cells(self, family: Family) -> IntArray:
        """Return int64[k], the live cells of the parent; children have records in no other cell."""
        if family.parent is not None:
            return family.parent.cells
        return self.possible() if family.support is None else family.support.cells


def node_problem(
    template: NodeTemplate, family: Family, targets: Targets, constraints: BatchConstraints
) -> NodeProblem:
    """Assemble the node problem of a family of at least two children, or of the root.

    Raises:
      OutputError: An on-demand answer about a live cell was not drawn.
    """
    cells, rows, groups = template.live_cells(family), family.rows, template.groups
    measured = targets.measured(rows)
    terms: list[Term] = []
    for query, answers, of_measured in targets.each():
        weights = of_measured[measured]
        if not (query.is_partition or isinstance(answers, DrawnAnswers)):
            adjoint = query.adjoint(answers[measured].astype(np.float64), cells)
            terms.append(KroneckerTerm(query, cells, adjoint, weights))
            continue
        present, group = groups.present(query, cells)
        if isinstance(answers, DrawnAnswers):
            terms.append(LeastSquaresTerm(group, answers.of(measured, present), weights))
        else:
            numbers = answers[measured][:, present].astype(np.float64)
            terms.append(LeastSquaresTerm(group, numbers, weights, query))
    exact = []
    for query, published in zip(template.level.kept, constraints.exact, strict=True):
        present, group = groups.present(query, cells)
        exact.append(ExactTerm(group, published[rows][:, present], query))
    if family.support is not None and family.support.known is not None:
        query, counts = family.support.known
        exact.append(ExactTerm(groups.present(query, cells)[1], counts, query))
    passes = tuple(
        tuple(RoundingQuery(groups.present(query, cells)[1]) for query in queries)
        for queries in template.passes
    )
    if targets.pseudo_measurements and len(cells) <= _MOST_PSEUDO_MEASURED:
        terms += _pseudo_measurement_terms(family, targets, measured, cells, exact)
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
    """Return whether empty children keep the linear rows, for an empty parent.

    Exact queries and bounds of leaves have no negative terms, so an empty parent satisfies them.
    """
    return all(
        bool(((term.least <= 0) & (term.most >= 0)).all())
        for term in _row_terms(template, np.zeros(0, np.int64), family.rows, constraints)
    )


def histograms_of(template: NodeTemplate, family: Family, counts: IntArray) -> Histograms:
    """Make histograms of the children from int64[C, k] counts in the live cells."""
    children, live = np.nonzero(counts)
    offsets = np.searchsorted(children, np.arange(family.n_children + 1))
    cells = template.live_cells(family)
    return Histograms(template.n_cells, offsets, cells[live], counts[children, live])


def _order(
    template: NodeTemplate, queries: Sequence[Query], n_terms: int
) -> tuple[tuple[int, ...], ...]:
    """Return the least-squares passes as positions of terms.

    Queries that no pass names come last. Pseudo-measurements have no names, and join the last pass.
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
    """Return the linear rows of some children; both bounds of an exact row are its sum."""
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
    """Return the capacities of the leaves below some children; None without bounds."""
    if template.types is None or constraints.limits is None or constraints.limits.leaves is None:
        return None
    leaves = constraints.limits.leaves
    types = template.groups.rows_of(template.types, cells)
    return LeavesTerm(types, tuple(leaves.of(child) for child in range(rows.start, rows.stop)))


def _pseudo_measurement_terms(
    family: Family,
    targets: Targets,
    measured: slice,
    cells: IntArray,
    exact: Sequence[ExactTerm],
) -> list[Term]:
    """Return the pseudo-measurements of a family, except those that exact answers determine."""
    found: list[Term] = []
    for weighted in targets.pseudo_measurements:
        row, weights = weighted.coefficients[cells], weighted.weights[measured]
        if not weights.any() or any(is_constant(row, term.groups) for term in exact):
            continue
        if family.parent is not None:
            weights = weighted.of_family(family.parent.counts, cells, measured)
        adjoint = weighted.answers[measured][:, None] * row
        found.append(GeneralTerm(np.outer(row, row), adjoint, weights))
    return found


# --- families that are solved by compiled loops --------------------------------------------------


def questions_of(plan: Plan, level: Level) -> FamilySettings | None:
    """Return the queries by which compiled loops round the families of a geolevel.

    Returns None if families are solved one by one: at the root; with invariants, constraints,
    on-demand or planned queries, or empirical Bayes; if a first pass has several queries or is
    rounded; with another method or least-squares solver.
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
    times = [[queries.count(query) for query in chain] for queries in plan.passes]
    rows = np.array([query.rows_of(cells) for query in chain], np.int64)
    first = order[0][0] if order and len(level.queries) > 1 else None
    return FamilySettings(rows, np.array(times), solving.tolerance, first)


def pack_families(
    questions: FamilySettings, template: NodeTemplate, families: Sequence[Family], targets: Targets
) -> PackedFamilies | None:
    """Pack families for compiled loops; the geolevel is not the root.

    Returns None if a target is not a partition query.
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


Key = tuple[str, float]  # name of a query, and variance of the noise of its estimates
Priors = Mapping[Key, LearnedPrior]
Tallies = Mapping[Key, Tally]

# Moves a variance off the rounding edges of three digits. Quotients of small integers lie on edges,
# where the last digits of a float, which differ between processors, would choose the prior.
_OFF_EDGES = 1 + 1e-6
# Persons added to the estimated total of every child. With 0, all cells of a child with estimated
# total 0 would fall into the lowest bin of expected counts; a large number would make the expected
# counts of all children equal. Default, not measured.
_LEAST_TOTAL = 0.3


@dataclass(frozen=True, eq=False)
class AnswerEstimates:
    """Unbiased estimates of the m answers to a query in the M measured geounits of a range.

    Attributes:
      values: float64[M, m], from each geounit's subtree.
      variances: float64[M], mean variance of an answer that is not known.
      is_known: bool[M, m], answers that invariants and public zeros fix.
    """

    values: FloatArray
    variances: FloatArray
    is_known: BoolArray

    def take(self, measured: IntArray) -> AnswerEstimates:
        """Return the estimates of some of the measured geounits."""
        return AnswerEstimates(
            self.values[measured], self.variances[measured], self.is_known[measured]
        )


@dataclass(frozen=True, eq=False)
class ChildCounts:
    """Estimated and expected answers of one child to a query, those with records in the parent.

    Attributes:
      key: The query, and the mean variance of `noisy`, rounded to three significant digits.
      child: Position of the child in its family.
      noisy: float64[m], unbiased estimates from the noisy answers of the child's subtree.
      expected: float64[m], the parent's counts times the child's estimated share of the parent's
        persons; of the total, the mean over the children.
      is_known: bool[m], answers whose noisy count is exact.
    """

    key: Key
    child: int
    noisy: FloatArray
    expected: FloatArray
    is_known: BoolArray


def child_counts(
    problem: NodeProblem,
    parent: Histograms,
    estimates: Mapping[str, AnswerEstimates],
    measured: slice,
    settings: NodeSettings,
) -> list[ChildCounts]:
    """Compute noisy and expected counts of the children of one parent, query by query.

    Expected count = (estimated share of the child in the parent's persons) x (parent's count).
    Shares come from least-squares estimates of the children's totals. An expected total may not
    depend on the noisy total, so every child is expected to have the mean.

    Args:
      problem: The node problem with noisy answers.
      parent: Counts of the parent, one geounit.
      estimates: Estimates of a range, by name of the query.
      measured: Rows of the children in the range.
      settings: Solver settings.
    """
    totals = estimate_node(problem, settings).values.sum(1) + _LEAST_TOTAL
    shares, means = totals / totals.sum(), np.full(len(totals), 1 / len(totals))
    found = []
    for term in _partitions(problem):
        query = term.query
        if query is None or query.name not in estimates:
            continue
        of_query, present = estimates[query.name], np.unique(query.rows_of(parent.cells))
        values, is_known = of_query.values[measured], of_query.is_known[measured]
        whole = np.bincount(term.groups, parent.counts)
        for child, variance in enumerate(of_query.variances[measured]):
            share = means[child] if query.size == 1 else shares[child]
            found.append(
                ChildCounts(
                    (query.name, float(f"{variance * _OFF_EDGES:.3g}")),
                    child,
                    values[child, present],
                    share * whole,
                    is_known[child, present],
                )
            )
    return found


def _partitions(problem: NodeProblem) -> list[LeastSquaresTerm]:
    return [term for term in problem.terms if isinstance(term, LeastSquaresTerm)]


def tally_children(children: Iterable[ChildCounts]) -> Tallies:
    """Tally noisy counts by query and variance of the noise."""
    tallies: dict[Key, list[Tally]] = defaultdict(list)
    for child in children:
        is_open = ~child.is_known
        if is_open.any():
            of_child = tally(child.noisy[is_open], child.expected[is_open], child.key[1])
            tallies[child.key].append(of_child)
    return {key: merge(group) for key, group in tallies.items()}


def learn_priors(parts: Sequence[Tallies]) -> Priors:
    """Learn the prior of counts from the tallies of all tasks, by query and noise variance."""
    return {
        key: learn_prior(merge(tallies[key] for tallies in parts if key in tallies), key[1])
        for key in {key for tallies in parts for key in tallies}
    }


def fit_to_posterior(
    problem: NodeProblem, children: Sequence[ChildCounts], priors: Priors
) -> NodeProblem:
    """Replace the noisy answers of a node problem by posterior means of those that are not known.

    Every query keeps its weights. Queries that are no partitions keep their noisy answers.
    """
    means = {term.query.name: term.answers.copy() for term in _partitions(problem) if term.query}
    for child in children:
        row, is_open = means[child.key[0]][child.child], ~child.is_known
        if is_open.any():
            prior = priors[child.key]
            row[is_open] = prior.posterior_mean(child.noisy[is_open], child.expected[is_open])
    terms = (
        replace(term, answers=means[term.query.name])
        if isinstance(term, LeastSquaresTerm) and term.query
        else term
        for term in problem.terms
    )
    return replace(problem, terms=tuple(terms))
