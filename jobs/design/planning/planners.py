"""Whom an objective favors: errors of small and large tables by method, before any data are read.

A plan that makes a sum small need not be fair: cells of large tables, or of small ones, may get
orders of magnitude more noise than others. Here every method plans the same tables at the cost of
one geolevel, beside the queries that the run itself measures there.

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
from jobs.pipeline.config.workload import plan_loss, read_workload
from jobs.pipeline.documents.document import document
from jobs.pipeline.plan import Plan

MOST_MARGINALS = 5000
"""Most tables; each is a mark in every picture and a row of the page."""

_MOST_HDMM_WORK = 20_000  # marginals times attributes: about a minute of HDMM
_MOST_GROUPS = 1200  # of one geounit: matrices of 11 MB, one per query; 1,075 took 1.6 GB
_POWER = 4.0
_ORDER = 3  # most attributes of a table, by default
_ZERO = 1e-9  # of the largest variance: what invariants give comes out as rounding
_QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


@document
class Quantiles:
    """Standard errors in persons.

    Attributes:
      least: The smallest.
      tenth: One in ten is at most this.
      median: Half are.
      ninetieth: Nine in ten are.
      largest: The largest.
    """

    least: float
    tenth: float
    median: float
    ninetieth: float
    largest: float


@document
class TableSpread:
    """A table under one method.

    Attributes:
      table: Its attributes, or `total`.
      attributes: How many.
      answers: How many answers it has.
      least: The smallest standard error of an answer.
      rmse: Root mean square of them.
      largest: The largest.
    """

    table: str
    attributes: int
    answers: float
    least: float
    rmse: float
    largest: float


@document
class MethodSpread:
    """All tables under one method.

    Attributes:
      method: The planner, or `run` for the queries of the run file.
      objective: What it minimizes.
      answers: Standard errors of all answers of all tables.
      tables: Root mean squares of the tables.
      ratio: Largest over smallest standard error of an answer; none if an invariant gives one.
      rmse: Root mean square over all answers.
      by_table: Every table.
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
    """A method that was left out.

    Attributes:
      method: Its name.
      reason: Why.
    """

    method: str
    reason: str


@document
class PlannerComparison:
    """Errors of cells by method.

    Attributes:
      name: Name of the run, and of the product where it is not the last.
      records: What records are called.
      schema: Name of the schema.
      geolevel: Where.
      rho: What one of its geounits may cost; a fraction.
      neighbors: The relation it holds for.
      workload: What the tables are, in words.
      methods: The methods, the run's own queries first if they can be compared.
      skipped: What was left out.
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
    """Plan the same tables by every method, and list the errors of their answers.

    Args:
      product: A product of a run; only what is public of it is used.
      request: Where, and for which tables.

    Raises:
      ConfigError: The geolevel is unknown, or there are too many tables.
      SchemaError: A table is not made of attributes.
      BudgetError: The cost of the noise is not proportional to squared sensitivities.
      SolverError: A solver stopped without a proof.
    """
    plan = product.plan
    level = _level(plan, request.geolevel)
    wanted, words = _wanted(product, level, request)
    workload = read_workload(plan.schema, wanted)
    rho = plan.budget.total * plan.strategy.levels[level].share
    found: list[MethodSpread] = []
    skipped: list[Skipped] = []
    try:
        own = _own_spreads(plan, level, workload)
        found.append(_summary("run", "its own queries", workload, own, 1.0))
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
        found.append(_summary(method, objective, workload, spreads, planned.cost * scale))
    if workload.marginals.size * len(workload.attributes) > _MOST_HDMM_WORK:
        reason = f"{workload.marginals.size} tables would take it too long"
        skipped.append(Skipped(method=Method.HDMM, reason=reason))
    return PlannerComparison(
        name=product.title,
        records=product.name,
        schema=plan.schema.name,
        geolevel=plan.spine.levels[level],
        rho=str(rho),
        neighbors=plan.budget.neighbors,
        workload=words,
        methods=tuple(found),
        skipped=tuple(skipped),
    )


def _level(plan: Plan, name: str | None) -> int:
    names = list(plan.spine.levels)
    refuse_unknown("--geolevel", "is unknown", [] if name is None else [name], names)
    require_squares(plan, "comparison of planners")
    return len(names) - 1 if name is None else names.index(name)


def _wanted(product: Product, level: int, request: PlanRequest) -> tuple[WorkloadConfig, str]:
    """The tables with their bases, and what they are in words."""
    if request.tables is not None:
        names, words = [text.strip() for text in request.tables], "given tables"
    else:
        geolevel = product.plan.spine.levels[level]
        planned = planned_workload(product.config.privacy.allocation_file, geolevel)
        if planned is not None:
            return planned, "the workload of the allocation"
        order = _ORDER if request.order is None else request.order
        names = list(_marginals(product.plan.schema, order))
        words = f"all tables of up to {order} attributes"
    return WorkloadConfig.model_validate({"tables": dict.fromkeys(names, 1)}), words


def _marginals(schema: Schema, order: int) -> Iterator[str]:
    """Tables of up to `order` attributes, those of one level left out."""
    names = [attribute.name for attribute in schema.attributes if attribute.size > 1]
    if order < 0:
        raise ConfigError("--order", "must not be negative", got=order)
    number = sum(math.comb(len(names), k) for k in range(min(order, len(names)) + 1))
    if number > MOST_MARGINALS:
        raise ConfigError(
            "--order",
            "asks for too many tables",
            got=number,
            want=f"at most {MOST_MARGINALS}",
            remedy="ask for tables of fewer attributes",
        )
    for k in range(min(order, len(names)) + 1):
        for chosen in combinations(names, k):
            yield " * ".join(chosen) or "total"


def _contests(
    schema: Schema, workload: Workload, wanted: WorkloadConfig
) -> Iterator[tuple[Method, str, Workload, Loss]]:
    """Methods with what they minimize; the workload's own loss if it has a parameter."""
    best = Method.RESIDUAL_PLANNER if workload.is_plain else Method.ORP
    by_weight = {one: _weighted(workload, one) for one in Weighting}
    total_loss, largest = LossKind.SUM_OF_VARIANCES, LossKind.LARGEST_VARIANCE
    for one, words in _WEIGHTINGS.items():
        yield best, f"sum, {words}", by_weight[one], total_loss
    equal = by_weight[Weighting.EQUAL]
    yield best, f"power mean {_POWER:.0f}", equal, PowerMean(_POWER)
    yield best, "largest variance", equal, largest
    if not isinstance(wanted.loss, LossKind):
        yield best, "the loss of the allocation", workload, plan_loss(schema, wanted, workload)
    words = f"sum, {_WEIGHTINGS[Weighting.EQUAL]}"
    if not workload.is_plain:
        yield Method.RESIDUAL_PLANNER_PLUS, words, equal, total_loss
        yield Method.RESIDUAL_PLANNER_PLUS, "largest variance", equal, largest
    if workload.marginals.size * len(workload.attributes) <= _MOST_HDMM_WORK:
        yield Method.HDMM, words, equal, total_loss
        yield Method.HDMM, "largest variance", equal, largest


_WEIGHTINGS = {
    Weighting.EQUAL: "tables alike",
    Weighting.SQUARE_ROOT: "by roots of answers",
    Weighting.CELL_SIZE: "answers alike",
}


def _weighted(workload: Workload, weighting: Weighting) -> Workload:
    """The same tables under a scheme of weights: importance 1, root of the answers or answers."""
    weights = workload.sizes**weighting.exponent
    return replace(workload, weights=weights, weighting=weighting)


def _own_spreads(plan: Plan, level: int, workload: Workload) -> list[Spread]:
    """Variances from the run's own queries in one geounit of a geolevel, invariants known.

    Raises:
      SchemaError: Its queries group the levels in too many ways, or it spends by strata.
    """
    if plan.strategy.strata:
        raise SchemaError(
            "queries of the run file",
            "spend by strata, which no planner of tables does",
        )
    noisy = noisy_queries(plan.strategy, plan.budget, level, level)
    exact = list(plan.levels[level].exact)
    (terms,) = spine_terms([[one.query for one in noisy]], [exact], _MOST_GROUPS)
    precisions = np.array([[precision(one.mechanism) for one in noisy]])
    covariances = tuple(
        covariance_matrices(information, unknown)
        for information, unknown in zip(terms.information(precisions), terms.unknown, strict=True)
    )
    out = []
    for names in _attributes_of(workload):
        alike, counts = terms.coordinates.distinct_answers(_query(plan.schema, workload, names))
        out.append(Spread(terms.coordinates.variances(alike, covariances)[0], counts))
    zero = _ZERO * max(float(one.values.max()) for one in out)
    return [Spread(np.where(one.values > zero, one.values, 0.0), one.counts) for one in out]


def _attributes_of(workload: Workload) -> Iterator[list[str]]:
    """List the names of the attributes of every marginal, in the order of planners."""
    for rows in workload.marginals.by_order:
        for members in rows.tolist():
            yield [workload.attributes[i].name for i in members]


def _query(schema: Schema, workload: Workload, names: Sequence[str]) -> Query:
    """A marginal of a workload as a query on the schema."""
    asked = {one.name: one for one in workload.attributes if one.name in names}
    factors = []
    for attribute in schema.attributes:
        if attribute.name not in asked:
            factors.append(total(attribute.levels))
            continue
        matrix = np.rint(asked[attribute.name].matrix).astype(np.int64)
        factors.append(Factor(matrix, tuple(map(str, range(len(matrix))))))
    return Query(" * ".join(names) or "total", tuple(factors))


def _summary(
    method: str, objective: str, workload: Workload, spreads: Sequence[Spread], scale: float
) -> MethodSpread:
    errors = [np.sqrt(np.maximum(spread.values * scale, 0.0)) for spread in spreads]
    means = np.array(
        [
            math.sqrt(float(one**2 @ spread.counts) / float(spread.counts.sum()))
            for one, spread in zip(errors, spreads, strict=True)
        ]
    )
    every, counts = np.concatenate(errors), np.concatenate([one.counts for one in spreads])
    largest, least = float(every.max()), float(every.min())
    return MethodSpread(
        method=method,
        objective=objective,
        answers=_quantiles(every, counts),
        tables=_quantiles(means, np.ones(len(means))),
        ratio=largest / least if least > 0 else None,
        rmse=math.sqrt(float(every**2 @ counts) / float(counts.sum())),
        by_table=tuple(
            TableSpread(
                table=" * ".join(names) or "total",
                attributes=len(names),
                answers=float(spread.counts.sum()),
                least=float(one.min()),
                rmse=float(mean),
                largest=float(one.max()),
            )
            for names, one, mean, spread in zip(
                _attributes_of(workload), errors, means, spreads, strict=True
            )
        ),
    )


def _quantiles(values: FloatArray, counts: FloatArray) -> Quantiles:
    """The value at or below which a share of the counts lies."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(counts[order]) / counts.sum()
    # A count that adds up to a share exactly may miss it by rounding.
    places = np.searchsorted(below, np.array(_QUANTILES) - 1e-12)
    picked = values[order][np.minimum(places, len(values) - 1)].tolist()
    return Quantiles(
        **dict(zip(("least", "tenth", "median", "ninetieth", "largest"), picked, strict=True))
    )
