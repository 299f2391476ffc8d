"""Expect totals of children from their housing units: learn, certify, add to a node problem.

Tasks read the noisy answers of one geolevel, the released counts of the geolevel above, and public
living quarters. They tally how far noisy totals are from expected totals; the driver learns the
variance V from the tallies (`das.tree.covariate`). Then tasks solve some families with and without
expected totals, twice each, and estimate from noisy answers which errs less; the driver takes it.
An expected total is one more answer of the node problem, and never part of an unbiased estimate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from das.arrays import FloatArray, IntArray, ObjectArray
from das.queries.query import Query, parse_query
from das.tree import composition
from das.tree.composition import Dispersion, posterior, residuals
from das.tree.covariate import (
    STEPS,
    Children,
    Deviations,
    Expected,
    TotalVariance,
    answers,
    deviations,
    expect,
    merge,
    risk,
)
from jobs.pipeline.documents.statistics import EstimatedError, ExpectedTotals
from jobs.pipeline.plan import Covariate, Level, Plan
from jobs.pipeline.release.pieces import Piece, of_families
from jobs.pipeline.release.problems import Family, NodeTemplate, Targets, node_problem
from jobs.pipeline.storage.answers import DrawnAnswers
from solvers.node import NodeSettings, estimate_node
from solvers.problem import LeastSquaresTerm, NodeProblem, Status, coarsening, group_sums

PLAIN: Final = "plain"
TOTALS: Final = "totals"
COMPOSITION: Final = "composition"
# Live cells beyond which a k x k matrix per child would dominate the time of a family. Families
# with more have only their totals expected. Default, not measured.
MOST_COMPOSED = 100
MOST_CERTIFIED = 20_000  # children whose families are solved again, about; see docs/covariates.md
STEP = 0.1  # of the perturbation, in standard deviations of the noise; default, not measured


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways to solve that are compared.

    Attributes:
      names: Names of the ways, `PLAIN` first.
      solve: Solves the families of a piece in all ways: by way, float64[C, k] per family.
    """

    names: Sequence[str]
    solve: Callable[[Piece], Mapping[str, Sequence[FloatArray | None]]]


@dataclass(frozen=True, eq=False)
class CovariateModel:
    """Learned model of expected totals of one geolevel, as tasks get it.

    Attributes:
      covariate: The setting `covariate` of the run.
      way: The chosen way to solve: `PLAIN`, `TOTALS` or `COMPOSITION`.
      variance: Variance of totals around the predicted totals.
      dispersion: Dispersion of the composition at each step of the query chain; None if cells are
        not predicted.
    """

    covariate: Covariate
    way: str
    variance: TotalVariance
    dispersion: Dispersion | None = None

    @property
    def ways(self) -> tuple[str, ...]:
        """Return the ways to solve that are compared, the plain one first."""
        return (PLAIN, TOTALS, COMPOSITION) if self.dispersion else (PLAIN, TOTALS)


@dataclass(frozen=True, eq=False)
class SufficientStats:
    """Tallies of noisy answers against expected ones; mergeable in any order.

    Attributes:
      totals: Deviations of totals from expected totals.
      groups: Deviations of groups from the composition of the parent; None where cells are not
        expected.
    """

    totals: Deviations
    groups: Deviations | None


def merge_stats(parts: Sequence[SufficientStats], chain: int) -> SufficientStats:
    """Sum the tallies of several tasks; `chain` is the number of steps of the query chain."""
    groups = [part.groups for part in parts if part.groups is not None]
    return SufficientStats(
        merge(part.totals for part in parts), merge(groups, chain) if groups else None
    )


@dataclass(frozen=True, eq=False)
class SureEstimate:
    """Estimated squared errors of ways to solve, by way and marginal; mergeable in any order.

    Attributes:
      names: Names of the m marginals.
      answers: int64[m], number of answers of each marginal.
      sums: By way, int64[m], sums of estimated squared errors in units of 1 / STEPS.
      squares: By way, float64[m], sums over families of squared differences to the plain way.
    """

    names: tuple[str, ...]
    answers: IntArray
    sums: Mapping[str, IntArray]
    squares: Mapping[str, FloatArray]

    def mean(self, way: str) -> FloatArray:
        """Return float64[m], for each marginal the estimated mean squared error of an answer."""
        return np.asarray(self.sums[way] / (STEPS * np.maximum(self.answers, 1)))

    def error(self, way: str) -> FloatArray:
        """Return float64[m], standard errors of the difference in `mean` to the plain way."""
        return np.asarray(np.sqrt(self.squares[way]) / np.maximum(self.answers, 1))

    def score(self, way: str) -> float:
        """Return the mean over marginals of the error relative to the plain way."""
        return float(np.mean(self.mean(way) / np.maximum(self.mean(PLAIN), 1 / STEPS)))


def merge_risks(parts: Sequence[SureEstimate]) -> SureEstimate:
    """Sum estimated squared errors of several batches."""
    first = parts[0]
    return SureEstimate(
        first.names,
        np.sum([part.answers for part in parts], axis=0),
        {way: np.sum([part.sums[way] for part in parts], axis=0) for way in first.sums},
        {way: np.sum([part.squares[way] for part in parts], axis=0) for way in first.squares},
    )


def expected_totals(
    covariate: Covariate,
    seen: Deviations,
    variance: TotalVariance | None,
    risks: SureEstimate | None,
) -> ExpectedTotals:
    """Summarize the learned model, and choose the way to solve.

    The plain way is chosen without variance or risks. Unless errors decide, the requested way is.

    Args:
      covariate: The setting `covariate` of the run.
      seen: Deviations of noisy totals from predicted totals.
      variance: Fitted variance of totals; None with too few geounits to fit it.
      risks: Estimated errors of the ways to solve; None if no variance was fitted.
    """
    way = PLAIN
    if variance is not None and risks is not None:
        way = best_way(risks) if covariate.only_if_better else [*risks.sums][-1]
    return ExpectedTotals(
        way=way,
        kappa=covariate.variance_factor,
        certified=covariate.only_if_better,
        children=int(seen.children.sum()),
        flat=seen.flat,
        totals=() if variance is None else _digits(variance.expected),
        variance=() if variance is None else _digits(variance.variance),
        errors=() if risks is None else estimated_errors(risks),
    )


def estimated_errors(risks: SureEstimate) -> tuple[EstimatedError, ...]:
    """Return the estimated errors of all ways and marginals, for the manifest."""
    return tuple(
        EstimatedError(query=query, way=way, error=error, difference_error=spread)
        for way in risks.sums
        for query, error, spread in zip(
            risks.names, _digits(risks.mean(way)), _digits(risks.error(way)), strict=True
        )
    )


def best_way(risks: SureEstimate) -> str:
    """Choose the way with the smallest error among those whose totals err less than plain ones."""
    if not risks.answers.any():
        return PLAIN
    plain = risks.mean(PLAIN)[0]
    scores = {way: risks.score(way) for way in risks.sums if risks.mean(way)[0] < plain}
    return min({PLAIN: 1.0, **scores}.items(), key=lambda item: item[1])[0]


def _digits(values: FloatArray) -> tuple[float, ...]:
    """Round to four significant digits."""
    return tuple(float(f"{value:.4g}") for value in values)


# --- children ------------------------------------------------------------------------------------


def families_to_solve(piece: Piece) -> list[Family]:
    """List the families to solve: at least two children, and a parent with persons."""
    return [
        family
        for family in piece.families
        if family.parent is not None and family.n_children > 1 and family.has_persons
    ]


def children_of(
    plan: Plan, template: NodeTemplate, piece: Piece, families: Sequence[Family]
) -> Children:
    """Gather noisy totals and living quarters of children, one family after the other."""
    limits, quarters = piece.constraints.limits, plan.limits.quarters
    if limits is None or limits.quarters is None or quarters is None:
        raise ValueError("no living quarters are known")
    none = np.zeros(0)
    seen = [noisy_totals(template, piece.targets, family) for family in families]
    rows = np.concatenate([np.zeros(0, np.int64), *(rows_of(family) for family in families)])
    sizes = [family.n_children for family in families]
    counts = limits.quarters[rows]
    return Children(
        np.concatenate([none, *(totals for totals, _ in seen)]),
        np.concatenate([none, *(variance for _, variance in seen)]),
        quarters.housing_units(counts).astype(np.float64),
        quarters.facilities(counts) > 0,
        np.repeat(np.arange(len(families)), sizes),
        np.array(
            [family.parent.counts.sum() for family in families if family.parent is not None],
            np.float64,
        ),
    )


def rows_of(family: Family) -> IntArray:
    """Return the positions of the children of a family in its piece."""
    return np.arange(family.rows.start, family.rows.stop)


def noisy_totals(
    template: NodeTemplate, targets: Targets, family: Family
) -> tuple[FloatArray, FloatArray]:
    """Return noisy totals of children over live cells, and their variances, float64[C] each.

    A total is the mean of the totals of all partition queries, weighted by inverse variance.
    """
    cells, measured = template.live_cells(family), targets.measured(family.rows)
    total, precision = np.zeros(family.n_children), np.zeros(family.n_children)
    for query, noisy, weights in targets.each():
        if isinstance(noisy, DrawnAnswers) or not query.is_partition:
            continue
        present, _ = template.groups.present(query, cells)
        of_query = weights[measured] / len(present)
        total += of_query * noisy[measured][:, present].sum(1)
        precision += of_query
    return total / precision, 1 / precision


def chain_of(plan: Plan) -> list[Query]:
    """List the nested partitions along which cells are expected: the rounding queries."""
    return list(dict.fromkeys(query for queries in plan.passes for query in queries))


def tally(
    plan: Plan, template: NodeTemplate, pieces: Iterable[Piece], *, with_groups: bool
) -> Iterator[SufficientStats]:
    """Tally deviations of noisy answers of children from expected ones, piece by piece."""
    chain = chain_of(plan)
    for piece in pieces:
        families = families_to_solve(piece)
        if not families:
            continue
        children = children_of(plan, template, piece, families)
        groups = None
        if with_groups:
            composed = _composed(template, chain, piece.targets, families, expect(children))
            groups = merge((residuals(one) for _, one in composed), len(chain))
        yield SufficientStats(deviations(children), groups)


def _composed(
    template: NodeTemplate,
    chain: Sequence[Query],
    targets: Targets,
    families: Sequence[Family],
    found: Expected,
) -> Iterator[tuple[int, composition.Family]]:
    """Yield the number and composition problem of each family whose cells are expected."""
    start = 0
    for number, family in enumerate(families):
        rows = slice(start, start + family.n_children)
        start = rows.stop
        cells = template.live_cells(family)
        if family.parent is None or len(cells) > MOST_COMPOSED or not found.totals[rows].any():
            continue
        k, measured = len(cells), targets.measured(family.rows)
        information = np.zeros((family.n_children, k, k))
        adjoint = np.zeros((family.n_children, k))
        for query, noisy, weights in targets.each():
            if isinstance(noisy, DrawnAnswers):
                raise TypeError("on-demand answers have no composition")
            present, group = template.groups.present(query, cells)
            of_query = weights[measured][:, None]
            information += of_query[:, :, None] * (group[:, None] == group[None, :])
            adjoint += of_query * noisy[measured][:, present][:, group]
        yield (
            number,
            composition.Family(
                family.parent.counts.astype(np.float64),
                np.array([template.groups.present(query, cells)[1] for query in chain]),
                information,
                adjoint,
                found.totals[rows],
                found.flat[rows],
            ),
        )


def with_expected(
    plan: Plan, template: NodeTemplate, piece: Piece, model: CovariateModel, way: str
) -> Piece:
    """Return the piece with expected totals among its targets.

    An expected total is one more answer of each child, weighted by its inverse variance. Where
    cells are expected, noisy answers are replaced by the estimates of `das.tree.composition`;
    weights stay.
    """
    targets, families = piece.targets, families_to_solve(piece)
    if way == PLAIN or not families:
        return piece
    children = children_of(plan, template, piece, families)
    found, weights = answers(children, model.variance, model.covariate.variance_factor)
    noisy = targets.answers
    if way == COMPOSITION and model.dispersion is not None:
        kappa = 2 * model.covariate.variance_factor
        variance, weights = 1 / np.where(weights > 0, weights, 1.0), weights.copy()
        noisy = [a if isinstance(a, DrawnAnswers) else a.astype(float) for a in noisy]
        starts = np.concatenate(([0], np.cumsum([family.n_children for family in families])))
        chain = chain_of(plan)
        for number, of_cells in _composed(template, chain, targets, families, found):
            children_rows = slice(int(starts[number]), int(starts[number + 1]))
            cells = template.live_cells(families[number])
            measured = targets.measured(families[number].rows)
            estimate = posterior(of_cells, variance[children_rows], model.dispersion, kappa)
            for query, into in zip(targets.queries, noisy, strict=True):
                present, group = template.groups.present(query, cells)
                if not isinstance(into, DrawnAnswers):
                    into[measured, present] = group_sums(estimate, group, len(present))
            weights[children_rows] = 0.0
    rows = targets.row[np.concatenate([rows_of(family) for family in families])]
    expected, precision = np.zeros((len(targets.weights[0]), 1)), np.zeros(len(targets.weights[0]))
    expected[rows, 0], precision[rows] = found.totals, weights
    more = Targets(
        (*targets.queries, parse_query(plan.schema, "total")),
        (*noisy, expected),
        (*targets.weights, precision),
        targets.row,
        targets.pseudo_measurements,
    )
    return replace(piece, targets=more)


# --- the certificate -----------------------------------------------------------------------------


def is_sampled(geocode: str, share: float) -> bool:
    """Return whether a family is solved again: a share of all, chosen by a hash of the geocode."""
    number = int.from_bytes(hashlib.blake2b(geocode.encode(), digest_size=6).digest(), "big")
    return number < share * 2**48


def certify(
    plan: Plan,
    template: NodeTemplate,
    pieces: Iterable[Piece],
    share: float,
    ways: Ways,
    step: float = STEP,
) -> SureEstimate:
    """Estimate squared errors of families solved in several ways.

    Args:
      plan: The plan.
      template: The node template of the geolevel.
      pieces: The pieces of a range.
      share: Share of families that are solved again.
      ways: The ways to solve.
      step: Size of the perturbation in standard deviations of the noise.
    """
    queries, found = marginals(plan, template.level), list[SureEstimate]()
    for piece in pieces:
        chosen = [f for f in families_to_solve(piece) if is_sampled(f.geocode, share)]
        if not chosen:
            continue
        some = of_families(piece, chosen)
        pair = some, replace(some, targets=_shifted(some, step))
        first, second = (ways.solve(one) for one in pair)
        for number in range(len(chosen)):
            values = {way: [first[way][number], second[way][number]] for way in first}
            risks = _risks_of_family(template, queries, pair, number, values, step)
            found += [] if risks is None else [risks]
    return merge_risks([no_risks(queries, ways.names), *found])


def no_risks(queries: Sequence[Query], ways: Iterable[str]) -> SureEstimate:
    """Return the estimate of no families."""
    m = len(queries)
    zeros = {way: np.zeros(m, np.int64) for way in ways}
    squares = {way: np.zeros(m) for way in zeros}
    return SureEstimate(
        tuple(query.name for query in queries), np.zeros(m, np.int64), zeros, squares
    )


def ways_of(
    plan: Plan, template: NodeTemplate, model: CovariateModel, settings: NodeSettings
) -> Ways:
    """Return the ways to solve with and without expected totals; counts are not rounded."""

    def solve_by(way: str, piece: Piece) -> list[FloatArray | None]:
        values = list[FloatArray | None]()
        piece = with_expected(plan, template, piece, model, way)
        for family in piece.families:
            problem = node_problem(template, family, piece.targets, piece.constraints)
            estimate = estimate_node(problem, settings)
            values.append(estimate.values if estimate.status is Status.SOLVED else None)
        return values

    return Ways(model.ways, lambda piece: {way: solve_by(way, piece) for way in model.ways})


def marginals(plan: Plan, level: Level) -> list[Query]:
    """List the marginals whose error is estimated: the total and every measured partition."""
    names = ["total", *(query.name for query in level.whole if query.is_partition)]
    return [parse_query(plan.schema, name) for name in dict.fromkeys(names)]


def _risks_of_family(
    template: NodeTemplate,
    queries: Sequence[Query],
    pair: tuple[Piece, Piece],
    number: int,
    values: Mapping[str, Sequence[FloatArray | None]],
    step: float,
) -> SureEstimate | None:
    """Estimate squared errors of one family; None if a way fails to solve it.

    Args:
      template: The node template of the geolevel.
      queries: The marginals.
      pair: The piece with noisy answers, and with perturbed ones.
      number: Index of the family in both.
      values: By way, the solved counts of the family from both, float64[C, k].
      step: Size of the perturbation.
    """
    solved = {way: [one for one in both if one is not None] for way, both in values.items()}
    if any(len(both) < len(pair) for both in solved.values()):
        return None
    problems = [node_problem(template, p.families[number], p.targets, p.constraints) for p in pair]
    n = len(queries)
    counted = np.zeros(n, np.int64)
    sums = {way: np.zeros(n, np.int64) for way in solved}
    cells = template.live_cells(pair[0].families[number])
    for index, query in enumerate(queries):
        groups = template.groups.present(query, cells)[1]
        size = int(groups.max()) + 1
        noisy, variance = noisy_sums(problems[0], groups, size)
        shifted, _ = noisy_sums(problems[1], groups, size)
        counted[index] = noisy.size
        for way, both in solved.items():
            first, second = (group_sums(values, groups, size) for values in both)
            found = risk(noisy, variance, first, shifted, second, step)
            sums[way][index] = int(np.rint(np.clip(found.sum(), -(2.0**40), 2.0**40) * STEPS))
    squares = {way: ((of_way - sums[PLAIN]) / STEPS) ** 2 for way, of_way in sums.items()}
    return SureEstimate(tuple(query.name for query in queries), counted, sums, squares)


def noisy_sums(problem: NodeProblem, groups: IntArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Estimate sums of cells by group from the noisy answers of a node.

    An estimate is the mean, by inverse variance, of all partition queries that refine the groups.

    Args:
      problem: The node problem.
      groups: int64[k], the group of each live cell.
      size: Number of groups, m.

    Returns:
      float64[C, m] estimates and float64[C, m] variances.
    """
    total = np.zeros((problem.n_children, size))
    precision = np.zeros((problem.n_children, size))
    for term in problem.terms:
        if not isinstance(term, LeastSquaresTerm):
            continue
        within = coarsening(term.groups, groups)
        if within is None:
            continue
        parts = np.bincount(within, minlength=size)
        of_term = term.weights[:, None] / parts
        total += of_term * group_sums(term.answers, within, size)
        precision += of_term
    return total / precision, 1 / precision


def _shifted(piece: Piece, step: float) -> Targets:
    """Perturb noisy answers by `step` deviations, with signs from geocode and query alone."""
    targets = piece.targets
    is_measured = np.diff(targets.row, prepend=-1) > 0
    codes = piece.codes[is_measured]
    answers = []
    for query, noisy, weights in targets.each():
        if isinstance(noisy, DrawnAnswers):
            raise TypeError("on-demand answers cannot be perturbed")
        deviation = np.where(weights > 0, 1 / np.sqrt(np.maximum(weights, 1e-300)), 0.0)
        answers.append(noisy + step * deviation[:, None] * signs(codes, query, noisy.shape[1]))
    return replace(targets, answers=answers)


def signs(codes: ObjectArray, query: Query, size: int) -> FloatArray:
    """Return float64[G, m], a random sign, 1 or -1, for each of m answers in each of G geounits.

    The signs are bits of BLAKE2b digests of query, geocode and a number.

    The signs are public and reproducible. They are no noise and protect no one.
    """
    words = -(-size // 512)
    digests = b"".join(
        hashlib.blake2b(f"{query.name}/{code}/{word}".encode()).digest()
        for code in codes
        for word in range(words)
    )
    bits = np.unpackbits(np.frombuffer(digests, np.uint8)).reshape(len(codes), words * 512)
    return bits[:, :size].astype(np.float64) * 2 - 1
