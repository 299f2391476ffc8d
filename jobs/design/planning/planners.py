"""Compare the errors of small and large tables between planners, before any data are read.

A plan that minimizes a sum can give cells of some tables orders of magnitude more noise than
others. Here every planner plans the same tables at the cost of one geolevel, and is compared with
the measured queries of the run.

References:
  He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Section 6.2 and Figures 1 to 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from das.arrays import FloatArray
from das.errors import ConfigError, DasError, SchemaError
from das.queries.factor import Factor, total
from das.queries.query import Query
from das.schema import Schema
from das.strategy import noisy_queries
from das.tree.errors import covariance_matrices
from das.tree.model import precision, spine_terms
from das.workload.choices import LossKind, Method
from das.workload.losses import Loss, PowerMean
from das.workload.plan import plan_workload
from das.workload.variances import Spread, list_spreads
from das.workload.workload import Weighting, Workload
from jobs.design.planning.allocation import require_squares
from jobs.design.requests import PlanRequest
from jobs.pipeline.config.allocation import planned_workload
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.product import Product
from jobs.pipeline.config.workload import plan_loss, positions_of, read_workload
from jobs.pipeline.documents.document import document
from jobs.pipeline.plan import Plan

MOST_MARGINALS = 5000
"""Largest number of tables; each is a mark in every plot and a row of the page. Default."""

_MOST_HDMM_WORK = 20_000  # marginals times attributes: about a minute of HDMM
_MOST_GROUPS = 1200  # of one geounit: matrices of 11 MB, one per query; 1,075 took 1.6 GB
_POWER = 4.0  # exponent of the compared power mean; default
_ORDER = 3  # most attributes of a table; default
_ZERO = 1e-9  # of the largest variance: variances below are rounding errors of exact answers
_QUANTILES = {"least": 0.0, "tenth": 0.1, "median": 0.5, "ninetieth": 0.9, "largest": 1.0}


@document
class Quantiles:
    """Quantiles of standard errors, in persons.

    Attributes:
      least: Smallest standard error.
      tenth: 10 % quantile.
      median: Median.
      ninetieth: 90 % quantile.
      largest: Largest standard error.
    """

    least: float
    tenth: float
    median: float
    ninetieth: float
    largest: float


@document
class TableSpread:
    """Errors of one table under one planner.

    Attributes:
      table: Attributes of the table, or `total`.
      attributes: Number of attributes.
      answers: Number of answers.
      least: Smallest standard error of an answer.
      rmse: Root mean square of the standard errors.
      largest: Largest standard error of an answer.
    """

    table: str
    attributes: int
    answers: float
    least: float
    rmse: float
    largest: float


@document
class MethodSpread:
    """Errors of all tables under one planner.

    Attributes:
      method: The planner; `run`: the measured queries of the run file.
      objective: Minimized objective.
      answers: Quantiles of the standard errors of all answers.
      tables: Quantiles of the root mean squares of tables.
      ratio: Largest over smallest standard error; null if an invariant determines an answer.
      rmse: Root mean square over all answers.
      by_table: Errors of each table.
    """

    method: str
    objective: str
    answers: Quantiles
    tables: Quantiles
    ratio: float | None
    rmse: float
    by_table: tuple[TableSpread, ...]


@document
class Skipped:
    """Planner that was left out.

    Attributes:
      method: Name of the planner.
      reason: Reason for leaving it out.
    """

    method: str
    reason: str


@document
class PlannerComparison:
    """Comparison of the errors of cells between planners.

    Attributes:
      name: Name of the run, and of the product unless it is the last.
      records: Name of the records, such as `persons`.
      schema: Name of the schema.
      geolevel: The geolevel.
      rho: Budget of one geounit of the geolevel; a fraction.
      neighbors: Neighbor relation of the budget.
      workload: Description of the tables.
      methods: Errors by planner; the queries of the run come first if they can be compared.
      skipped: Planners that were left out.
    """

    name: str
    records: str
    schema: str
    geolevel: str
    rho: str
    neighbors: str
    workload: str
    methods: tuple[MethodSpread, ...]
    skipped: tuple[Skipped, ...]


def compare_planners(product: Product, request: PlanRequest) -> PlannerComparison:
    """Plan the same tables by every planner, and compare the errors of their answers.

    Args:
      product: A product of the run; only its public part is used.
      request: Geolevel and tables.

    Raises:
      ConfigError: The geolevel is unknown, or there are too many tables.
      SchemaError: A table is no combination of attributes.
      BudgetError: The cost of the noise is not proportional to squared sensitivities.
      SolverError: A solver stopped without a proof.
    """
    plan = product.plan
    names = list(plan.spine.levels)
    geolevel = names[-1] if request.geolevel is None else request.geolevel
    refuse_unknown("--geolevel", "is unknown", [geolevel], names)
    require_squares(plan, "comparison of planners")
    level = names.index(geolevel)
    wanted, words = _wanted(product, geolevel, request)
    workload = read_workload(plan.schema, wanted)
    rho = plan.budget.total * plan.strategy.levels[level].share
    methods: list[MethodSpread] = []
    skipped: list[Skipped] = []
    try:
        spreads = _run_spreads(plan, level, workload)
        methods.append(_summary("run", "its queries", workload, spreads, 1.0))
    except SchemaError as error:
        skipped.append(Skipped(method="run", reason=str(error)))
    scale = 1.0 / (2.0 * float(rho))
    for method, objective, weighted, loss in _contests(plan.schema, workload, wanted):
        try:
            planned = plan_workload(weighted, method, loss, neighbors=plan.budget.neighbors)
            spreads = list_spreads(planned.strategy)
        except DasError as error:
            skipped.append(Skipped(method=f"{method}, {objective}", reason=str(error)))
            continue
        methods.append(_summary(method, objective, workload, spreads, planned.cost * scale))
    if workload.marginals.size * len(workload.attributes) > _MOST_HDMM_WORK:
        reason = f"{workload.marginals.size} tables would take too long"
        skipped.append(Skipped(method=Method.HDMM, reason=reason))
    return PlannerComparison(
        name=product.title,
        records=product.name,
        schema=plan.schema.name,
        geolevel=geolevel,
        rho=str(rho),
        neighbors=plan.budget.neighbors,
        workload=words,
        methods=tuple(methods),
        skipped=tuple(skipped),
    )


def _wanted(product: Product, geolevel: str, request: PlanRequest) -> tuple[WorkloadConfig, str]:
    """Return the workload to plan, and words that describe where its tables come from."""
    if request.tables is not None:
        names, words = [text.strip() for text in request.tables], "given tables"
    else:
        planned = planned_workload(product.config.privacy.allocation_file, geolevel)
        if planned is not None:
            return planned, "the workload of the allocation"
        order = _ORDER if request.order is None else request.order
        names = list(_marginals(product.plan.schema, order))
        words = f"all tables of up to {order} attributes"
    return WorkloadConfig.model_validate({"tables": dict.fromkeys(names, 1)}), words


def _marginals(schema: Schema, order: int) -> Iterator[str]:
    """Yield tables of up to `order` attributes, ignoring attributes with one level."""
    names = [attribute.name for attribute in schema.attributes if attribute.size > 1]
    if order < 0:
        raise ConfigError("--order", "must not be negative", got=order)
    sizes = range(min(order, len(names)) + 1)
    number = sum(math.comb(len(names), size) for size in sizes)
    if number > MOST_MARGINALS:
        raise ConfigError(
            "--order",
            "selects too many tables",
            got=number,
            want=f"at most {MOST_MARGINALS}",
            remedy="choose a smaller --order",
        )
    for size in sizes:
        for chosen in combinations(names, size):
            yield " * ".join(chosen) or "total"


def _contests(
    schema: Schema, workload: Workload, wanted: WorkloadConfig
) -> Iterator[tuple[Method, str, Workload, Loss]]:
    """Yield planners with workload and objective, including the loss of the workload itself."""
    best = Method.RESIDUAL_PLANNER if workload.is_plain else Method.ORP
    total_loss, largest = LossKind.SUM_OF_VARIANCES, LossKind.LARGEST_VARIANCE
    for weighting, words in _WEIGHTINGS.items():
        weights = workload.sizes**weighting.exponent
        weighted = replace(workload, weights=weights, weighting=weighting)
        if weighting is Weighting.EQUAL:
            equal = weighted
        yield best, f"sum, {words}", weighted, total_loss
    yield best, f"power mean {_POWER:.0f}", equal, PowerMean(_POWER)
    yield best, "largest variance", equal, largest
    if not isinstance(wanted.loss, LossKind):
        loss = plan_loss(wanted.loss, workload, positions_of(schema, wanted, workload))
        yield best, "the loss of the allocation", workload, loss
    others = [] if workload.is_plain else [Method.RESIDUAL_PLANNER_PLUS]
    if workload.marginals.size * len(workload.attributes) <= _MOST_HDMM_WORK:
        others.append(Method.HDMM)
    for method in others:
        yield method, f"sum, {_WEIGHTINGS[Weighting.EQUAL]}", equal, total_loss
        yield method, "largest variance", equal, largest


_WEIGHTINGS = {
    Weighting.EQUAL: "equal weight per table",
    Weighting.SQUARE_ROOT: "weighted by roots of answers",
    Weighting.CELL_SIZE: "equal weight per answer",
}


def _run_spreads(plan: Plan, level: int, workload: Workload) -> list[Spread]:
    """Return variances from the run's measurements of one geounit, conditional on the invariants.

    Raises:
      SchemaError: The queries group the levels in too many ways, or the run spends by strata.
    """
    if plan.strategy.strata:
        what = "spend by strata, which no planner of tables supports"
        raise SchemaError("queries of the run file", what)
    noisy = noisy_queries(plan.strategy, plan.budget, level, level)
    exact = list(plan.levels[level].exact)
    (terms,) = spine_terms([[measured.query for measured in noisy]], [exact], _MOST_GROUPS)
    precisions = np.array([[precision(measured.mechanism) for measured in noisy]])
    covariances = tuple(
        covariance_matrices(information, unknown)
        for information, unknown in zip(terms.information(precisions), terms.unknown, strict=True)
    )
    out = []
    for names in _attributes_of(workload):
        alike, counts = terms.coordinates.distinct_answers(_query(plan.schema, workload, names))
        out.append(Spread(terms.coordinates.variances(alike, covariances)[0], counts))
    zero = _ZERO * max(float(spread.values.max()) for spread in out)
    return [Spread(np.where(s.values > zero, s.values, 0.0), s.counts) for s in out]


def _attributes_of(workload: Workload) -> Iterator[list[str]]:
    """Yield the names of the attributes of every marginal, in the order of planners."""
    for rows in workload.marginals.by_order:
        for members in rows.tolist():
            yield [workload.attributes[i].name for i in members]


def _query(schema: Schema, workload: Workload, names: Sequence[str]) -> Query:
    """Express a marginal of a workload as a query on the schema."""
    members = {a.name: a for a in workload.attributes if a.name in names}
    factors = []
    for attribute in schema.attributes:
        if attribute.name not in members:
            factors.append(total(attribute.levels))
            continue
        matrix = np.rint(members[attribute.name].matrix).astype(np.int64)
        factors.append(Factor(matrix, tuple(map(str, range(len(matrix))))))
    return Query(" * ".join(names) or "total", tuple(factors))


def _summary(
    method: str, objective: str, workload: Workload, spreads: Sequence[Spread], scale: float
) -> MethodSpread:
    errors = [np.sqrt(np.maximum(spread.values * scale, 0.0)) for spread in spreads]
    counts = [spread.counts for spread in spreads]
    means = np.array([*map(_root_mean_square, errors, counts)])
    all_errors, all_counts = np.concatenate(errors), np.concatenate(counts)
    largest, least = float(all_errors.max()), float(all_errors.min())
    return MethodSpread(
        method=method,
        objective=objective,
        answers=_quantiles(all_errors, all_counts),
        tables=_quantiles(means, np.ones(len(means))),
        ratio=largest / least if least > 0 else None,
        rmse=_root_mean_square(all_errors, all_counts),
        by_table=tuple(
            TableSpread(
                table=" * ".join(names) or "total",
                attributes=len(names),
                answers=float(of_answers.sum()),
                least=float(of_table.min()),
                rmse=float(mean),
                largest=float(of_table.max()),
            )
            for names, of_table, mean, of_answers in zip(
                _attributes_of(workload), errors, means, counts, strict=True
            )
        ),
    )


def _root_mean_square(errors: FloatArray, counts: FloatArray) -> float:
    return math.sqrt(float(errors**2 @ counts) / float(counts.sum()))


def _quantiles(values: FloatArray, counts: FloatArray) -> Quantiles:
    """Return weighted quantiles: the least value at or below which a share of the counts lies."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(counts[order]) / counts.sum()
    # Rounding can move a cumulative count just below a share that it reaches exactly.
    indices = np.searchsorted(below, np.array([*_QUANTILES.values()]) - 1e-12)
    picked = values[order][np.minimum(indices, len(values) - 1)].tolist()
    return Quantiles(**dict(zip(_QUANTILES, picked, strict=True)))
