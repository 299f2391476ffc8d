"""Totals of children expected by their housing units: learned, certified, and added to a node.

Read are noisy answers of one geolevel, released counts of the one above, and living quarters, which
are public; no task sees anything else. Tasks tally how far noisy totals are from those expected,
the driver learns V from the tallies (`das.tree.covariate`). Then tasks solve some families with and
without what is expected, twice each, and estimate from noisy answers alone which of them errs less;
the driver takes that one. What is expected is one more answer of the node problem, and never part
of an unbiased estimate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from jobs.pipeline.release.pieces import Piece
from jobs.pipeline.release.problems import Family, NodeTemplate, Targets, node_problem
from jobs.pipeline.storage.answers import DrawnAnswers
from solvers.node import NodeSettings, estimate_node
from solvers.problem import LeastSquaresTerm, NodeProblem, Status, coarsening, group_sums

PLAIN: Final = "plain"
TOTALS: Final = "totals"
COMPOSITION: Final = "composition"
# Live cells beyond which matrices of every child would take longer than all else; such families
# have their totals expected alone.
MOST_COMPOSED = 100
MOST_CERTIFIED = 20_000  # children whose families are solved again, about; see docs/covariates.md
_STEP = 0.1  # of the perturbation, in standard deviations of the noise


@dataclass(frozen=True, eq=False)
class Learned:
    """What tasks are told of a geolevel.

    Attributes:
      covariate: How it was asked for.
      way: The one that is taken.
      variance: V.
      dispersion: D of every step of the chain; None where cells are not expected.
    """

    covariate: Covariate
    way: str
    variance: TotalVariance
    dispersion: Dispersion | None = None

    @property
    def ways(self) -> tuple[str, ...]:
        """Those that are compared, the plain one first."""
        return (PLAIN, TOTALS, COMPOSITION) if self.dispersion else (PLAIN, TOTALS)


@dataclass(frozen=True, eq=False)
class Seen:
    """What the noisy answers of some pieces say of what is expected; mergeable in any order.

    Attributes:
      totals: How far totals are from those expected.
      groups: How far groups are from the composition of the parent; None where that is not asked.
    """

    totals: Deviations
    groups: Deviations | None


def merge_seen(parts: Sequence[Seen], chain: int) -> Seen:
    """Add tallies up; `chain` is the number of its steps."""
    groups = [one.groups for one in parts if one.groups is not None]
    return Seen(merge(one.totals for one in parts), merge(groups, chain) if groups else None)


@dataclass(frozen=True, eq=False)
class Risks:
    """Estimated squared errors of ways to solve, by way and marginal; mergeable in any order.

    Attributes:
      names: m marginals.
      answers: int64[m], answers of each that were looked at.
      sums: By way, int64[m], estimated squared errors in steps.
      squares: By way, float64[m], squares of the differences to the plain way, family by family.
    """

    names: tuple[str, ...]
    answers: IntArray
    sums: Mapping[str, IntArray]
    squares: Mapping[str, FloatArray]

    def mean(self, way: str) -> FloatArray:
        """float64[m]: estimated mean squared error of an answer."""
        return np.asarray(self.sums[way] / (STEPS * np.maximum(self.answers, 1)))

    def error(self, way: str) -> FloatArray:
        """float64[m]: standard error of the difference of the mean to that of the plain way."""
        return np.asarray(np.sqrt(self.squares[way]) / np.maximum(self.answers, 1))

    def score(self, way: str) -> float:
        """Mean over marginals of the estimated error, over that of the plain way."""
        plain, own = self.mean(PLAIN), self.mean(way)
        return float(np.mean(own / np.maximum(plain, 1 / STEPS)))


def merge_risks(parts: Sequence[Risks]) -> Risks:
    """Add estimates up."""
    first = parts[0]
    return Risks(
        first.names,
        np.sum([one.answers for one in parts], axis=0),
        {way: np.sum([one.sums[way] for one in parts], axis=0) for way in first.sums},
        {way: np.sum([one.squares[way] for one in parts], axis=0) for way in first.squares},
    )


def expected_totals(
    covariate: Covariate, seen: Deviations, variance: TotalVariance | None, risks: Risks | None
) -> ExpectedTotals:
    """What was learned, and the way that is taken.

    Without a certificate it is the one that was asked for.
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
        errors=() if risks is None else _errors(risks),
    )


def best_way(risks: Risks) -> str:
    """The way of least estimated error: of totals less than plain, and of all marginals least."""
    if not risks.answers.any():
        return PLAIN
    plain = risks.mean(PLAIN)[0]
    scores = {way: risks.score(way) for way in risks.sums if risks.mean(way)[0] < plain}
    return min({PLAIN: 1.0, **scores}.items(), key=lambda item: item[1])[0]


def _errors(risks: Risks) -> tuple[EstimatedError, ...]:
    return tuple(
        EstimatedError(query=query, way=way, error=error, difference_error=spread)
        for way in risks.sums
        for query, error, spread in zip(
            risks.names, _digits(risks.mean(way)), _digits(risks.error(way)), strict=True
        )
    )


def _digits(values: FloatArray) -> tuple[float, ...]:
    """Four digits of each."""
    return tuple(float(f"{value:.4g}") for value in values)


# --- children ------------------------------------------------------------------------------------


def _families(piece: Piece) -> list[Family]:
    """Families that are solved: of two children at least, and a parent with persons."""
    return [
        family
        for family in piece.families
        if family.parent is not None and family.n_children > 1 and family.has_persons
    ]


def children_of(
    plan: Plan, template: NodeTemplate, piece: Piece, families: Sequence[Family]
) -> Children:
    """The children of some families, one family after the other."""
    limits, quarters = piece.constraints.limits, plan.limits.quarters
    if limits is None or limits.quarters is None or quarters is None:
        raise ValueError("no living quarters are known")
    none = np.zeros(0)
    seen = [noisy_totals(template, piece.targets, family) for family in families]
    rows = np.concatenate([np.zeros(0, np.int64), *(_rows(family) for family in families)])
    sizes = [family.n_children for family in families]
    counts = limits.quarters[rows]
    return Children(
        np.concatenate([none, *(totals for totals, _ in seen)]),
        np.concatenate([none, *(variance for _, variance in seen)]),
        quarters.housing_units(counts).astype(np.float64),
        quarters.facilities(counts) > 0,
        np.repeat(np.arange(len(families)), sizes),
        np.array([_persons(family) for family in families], np.float64),
    )


def _rows(family: Family) -> IntArray:
    return np.arange(family.rows.start, family.rows.stop)


def _persons(family: Family) -> int:
    return 0 if family.parent is None else int(family.parent.counts.sum())


def noisy_totals(
    template: NodeTemplate, targets: Targets, family: Family
) -> tuple[FloatArray, FloatArray]:
    """Totals of the children of a family over its live cells, and the variance of their noise.

    The mean, by inverse variance, of what each partition query says of the total.
    """
    cells, measured = template.live_cells(family), targets.measured(family.rows)
    total, precision = np.zeros(family.n_children), np.zeros(family.n_children)
    for query, noisy, weights in targets.each():
        if isinstance(noisy, DrawnAnswers) or not query.is_partition:
            continue
        present, _ = template.groups.present(query, cells)
        own = weights[measured] / len(present)
        total += own * noisy[measured][:, present].sum(1)
        precision += own
    return total / precision, 1 / precision


def chain_of(plan: Plan) -> list[Query]:
    """Nested partitions along which cells are expected: those that are rounded."""
    return list(dict.fromkeys(query for queries in plan.passes for query in queries))


def tally(
    plan: Plan, template: NodeTemplate, pieces: Iterable[Piece], *, with_groups: bool
) -> Iterator[Seen]:
    """How far the noisy answers of the children of each piece are from what is expected."""
    chain = chain_of(plan)
    for piece in pieces:
        families = _families(piece)
        if not families:
            continue
        children = children_of(plan, template, piece, families)
        groups = None
        if with_groups:
            composed = _composed(template, chain, piece.targets, families, expect(children))
            groups = merge((residuals(one) for _, one in composed), len(chain))
        yield Seen(deviations(children), groups)


def _composed(
    template: NodeTemplate,
    chain: Sequence[Query],
    targets: Targets,
    families: Sequence[Family],
    found: Expected,
) -> Iterator[tuple[int, composition.Family]]:
    """The families whose cells are expected, with their numbers."""
    start = 0
    for number, family in enumerate(families):
        own = slice(start, start + family.n_children)
        start = own.stop
        cells = template.live_cells(family)
        if family.parent is None or len(cells) > MOST_COMPOSED or not found.totals[own].any():
            continue
        k, measured = len(cells), targets.measured(family.rows)
        information = np.zeros((family.n_children, k, k))
        adjoint = np.zeros((family.n_children, k))
        for query, noisy, weights in targets.each():
            if isinstance(noisy, DrawnAnswers):
                raise TypeError("on-demand answers are not composed")
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
                found.totals[own],
                found.flat[own],
            ),
        )


def with_expected(
    plan: Plan, template: NodeTemplate, piece: Piece, learned: Learned, way: str
) -> Piece:
    """The piece whose targets say what is expected too.

    Expected totals are one more answer of every child, of the weight they have. Where cells are
    expected, answers are those of the estimates of `das.tree.composition`, of the weights they had.
    """
    targets, families = piece.targets, _families(piece)
    if way == PLAIN or not families:
        return piece
    children = children_of(plan, template, piece, families)
    found, weights = answers(children, learned.variance, learned.covariate.variance_factor)
    noisy = targets.answers
    if way == COMPOSITION and learned.dispersion is not None:
        noisy, weights = _estimated(plan, template, targets, families, (found, weights), learned)
    rows = targets.row[np.concatenate([_rows(family) for family in families])]
    expected, precision = np.zeros((len(targets.weights[0]), 1)), np.zeros(len(targets.weights[0]))
    expected[rows, 0], precision[rows] = found.totals, weights
    more = Targets(
        (*targets.queries, parse_query(plan.schema, "total")),
        (*noisy, expected),
        (*targets.weights, precision),
        targets.row,
        targets.told,
    )
    return replace(piece, targets=more)


def _estimated(
    plan: Plan,
    template: NodeTemplate,
    targets: Targets,
    families: Sequence[Family],
    totals: tuple[Expected, FloatArray],
    learned: Learned,
) -> tuple[Sequence[FloatArray | DrawnAnswers], FloatArray]:
    """Answers of the estimated cells, and weights of expected totals that are not among them."""
    found, precision = totals
    dispersion, kappa = learned.dispersion, 2 * learned.covariate.variance_factor
    if dispersion is None:
        raise ValueError("no dispersion was learned")
    variance = 1 / np.where(precision > 0, precision, 1.0)
    left = precision.copy()
    out = [own if isinstance(own, DrawnAnswers) else own.astype(float) for own in targets.answers]
    starts = np.concatenate(([0], np.cumsum([family.n_children for family in families])))
    composed = _composed(template, chain_of(plan), targets, families, found)
    for number, own in composed:
        rows = slice(int(starts[number]), int(starts[number + 1]))
        cells = template.live_cells(families[number])
        measured = targets.measured(families[number].rows)
        estimate = posterior(own, variance[rows], dispersion, kappa)
        for query, into in zip(targets.queries, out, strict=True):
            present, group = template.groups.present(query, cells)
            if not isinstance(into, DrawnAnswers):
                into[measured, present] = group_sums(estimate, group, len(present))
        left[rows] = 0.0
    return out, left


# --- the certificate -----------------------------------------------------------------------------


def is_certified(geocode: str, share: float) -> bool:
    """Whether a family is among those solved again; a share of all, whatever they hold."""
    number = int.from_bytes(hashlib.blake2b(geocode.encode(), digest_size=6).digest(), "big")
    return number < share * 2**48


def certify(
    plan: Plan,
    template: NodeTemplate,
    pieces: Iterable[Piece],
    learned: Learned,
    share: float,
    settings: NodeSettings,
) -> Risks:
    """Estimated squared errors of the families of some pieces, solved with and without.

    Args:
      plan: The plan.
      template: Of the geolevel.
      pieces: Of a range.
      learned: What is expected.
      share: Of all families that are solved again.
      settings: How.
    """
    queries = marginals(plan, template.level)
    names, ways = tuple(query.name for query in queries), learned.ways
    m = len(names)
    nothing = {way: np.zeros(m) for way in ways}
    found = [Risks(names, np.zeros(m, np.int64), {w: np.zeros(m, np.int64) for w in ways}, nothing)]
    for piece in pieces:
        chosen = [f for f in _families(piece) if is_certified(f.geocode, share)]
        if not chosen:
            continue
        some = replace(piece, families=tuple(chosen))
        shifted = replace(some, targets=_shifted(some))
        pairs = {
            way: (
                with_expected(plan, template, some, learned, way),
                with_expected(plan, template, shifted, learned, way),
            )
            for way in learned.ways
        }
        for number in range(len(chosen)):
            one = _risks_of_family(template, queries, pairs, number, settings)
            found += [] if one is None else [one]
    return merge_risks(found)


def marginals(plan: Plan, level: Level) -> list[Query]:
    """Marginals whose error is estimated: the total, and every partition that is measured."""
    names = ["total", *(query.name for query in level.whole if query.is_partition)]
    return [parse_query(plan.schema, name) for name in dict.fromkeys(names)]


def _risks_of_family(
    template: NodeTemplate,
    queries: Sequence[Query],
    pairs: Mapping[str, tuple[Piece, Piece]],
    number: int,
    settings: NodeSettings,
) -> Risks | None:
    """Of one family; None if some way does not solve it."""
    problems = {
        way: [node_problem(template, p.families[number], p.targets, p.constraints) for p in pair]
        for way, pair in pairs.items()
    }
    solved = {}
    for way, pair in problems.items():
        estimates = [estimate_node(problem, settings) for problem in pair]
        if any(estimate.status is not Status.SOLVED for estimate in estimates):
            return None
        solved[way] = [estimate.values for estimate in estimates]
    n = len(queries)
    counted = np.zeros(n, np.int64)
    sums = {way: np.zeros(n, np.int64) for way in pairs}
    cells = template.live_cells(pairs[PLAIN][0].families[number])
    for index, query in enumerate(queries):
        groups = template.groups.present(query, cells)[1]
        size = int(groups.max()) + 1
        noisy, variance = noisy_sums(problems[PLAIN][0], groups, size)
        shifted, _ = noisy_sums(problems[PLAIN][1], groups, size)
        counted[index] = noisy.size
        for way, (first, second) in solved.items():
            found = risk(
                noisy,
                variance,
                group_sums(first, groups, size),
                shifted,
                group_sums(second, groups, size),
                _STEP,
            )
            sums[way][index] = int(np.rint(np.clip(found.sum(), -(2.0**40), 2.0**40) * STEPS))
    squares = {way: ((own - sums[PLAIN]) / STEPS) ** 2 for way, own in sums.items()}
    return Risks(tuple(query.name for query in queries), counted, sums, squares)


def noisy_sums(problem: NodeProblem, groups: IntArray, size: int) -> tuple[FloatArray, FloatArray]:
    """What the noisy answers of a node say of sums of cells by group, and its variance.

    The mean, by inverse variance, of all partition queries that tell the groups apart.

    Args:
      problem: The node.
      groups: int64[k].
      size: Number of groups, m.

    Returns:
      float64[C, m] and float64[C, m].
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
        own = term.weights[:, None] / parts
        total += own * group_sums(term.answers, within, size)
        precision += own
    return total / precision, 1 / precision


def _shifted(piece: Piece) -> Targets:
    """Answers a step off, by signs that hang on geocode and query alone."""
    targets = piece.targets
    is_measured = np.diff(targets.row, prepend=-1) > 0
    codes = piece.codes[is_measured]
    answers = []
    for query, own, weights in targets.each():
        if isinstance(own, DrawnAnswers):
            raise TypeError("on-demand answers are not perturbed")
        deviation = np.where(weights > 0, 1 / np.sqrt(np.maximum(weights, 1e-300)), 0.0)
        answers.append(own + _STEP * deviation[:, None] * signs(codes, query, own.shape[1]))
    return replace(targets, answers=answers)


def signs(codes: ObjectArray, query: Query, size: int) -> FloatArray:
    """float64[G, m] of 1 and -1: bits of BLAKE2b of geocode, query and number of the word.

    They protect nobody and are no noise: everybody can compute them, on every machine.
    """
    words = -(-size // 512)
    digests = b"".join(
        hashlib.blake2b(f"{query.name}/{code}/{word}".encode()).digest()
        for code in codes
        for word in range(words)
    )
    bits = np.unpackbits(np.frombuffer(digests, np.uint8)).reshape(len(codes), words * 512)
    return bits[:, :size].astype(np.float64) * 2 - 1
