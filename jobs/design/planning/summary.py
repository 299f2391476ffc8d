"""Summary of a plan: measured queries and predicted errors, before any data are read.

`das validate` and `das plan` print the summary as JSON or as the tables of
`jobs.design.planning.tables`; the page of `das plan --report` shows the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from das.errors import SchemaError
from das.privacy.attack import AttacksByLosses
from das.privacy.ledger import Ledger
from das.privacy.loss_distribution import losses_of_paths
from das.schema import Schema
from das.strategy import moved_answers
from das.tree.classes import SubtreeClasses
from das.tree.information import Information
from geography.lattice import Lattice
from jobs.design.planning.allocation import EVEN, REPLACED, Optimized
from jobs.design.planning.covariances import CovarianceRow
from jobs.design.planning.errors import PredictedRow, parse_tables, predict, prediction_rows
from jobs.design.planning.group_errors import ComparedGroup, GroupRow, group_rows
from jobs.design.planning.groups import GroupGoal
from jobs.pipeline.config.product import Product
from jobs.pipeline.documents.document import document
from jobs.pipeline.documents.manifest import (
    NORMAL_90,
    Attacks,
    BudgetRow,
    ExactQuery,
    Limit,
    Privacy,
    Statement,
    StratumStatements,
    attacks_of,
)
from jobs.pipeline.plan import Plan, planned_ledger, without_estimates
from jobs.pipeline.release.statements import (
    budget_rows,
    exact_queries,
    limits_of,
    privacy_statement,
    privacy_statements,
    stratum_statements,
)
from solvers.choices import MOST_CELLS_IN_MATRICES


@document
class NamedSchema:
    """Schema of a product.

    Attributes:
      name: Name of the schema.
      cells: Number of combinations of levels.
    """

    name: str
    cells: int


@document
class LevelShape:
    """Size of a geolevel.

    Attributes:
      geounits: Number of geounits.
      only_children: Number of only children, which equal their parent and are not measured again.
      largest_family: Largest number of children of one parent.
      mean_family: Mean number of children per parent.
    """

    geounits: int
    only_children: int
    largest_family: int
    mean_family: float


@document
class PlannedRow(BudgetRow):
    """Query that will be measured.

    Attributes:
      expected_rmse: Root mean squared error of one noisy answer.
      half_width_90: Half width of the interval that holds 9 in 10 errors.
    """

    expected_rmse: float
    half_width_90: float


@document
class ComparedRow(PredictedRow):
    """Predicted errors of a table under an optimized allocation.

    Attributes:
      before: Errors under the allocation it is compared with.
      given_up: Relative growth of the root mean squared error of estimates from the measurements
        that the allocation was optimized for; 0 without growth.
    """

    before: PredictedRow
    given_up: float


@document
class ShareRow:
    """Share of one query in an allocation.

    Attributes:
      geolevel: The geolevel.
      level_share: Share of the geolevel in the budget; a fraction.
      query: Name of the query.
      share: Share of the query in the share of the geolevel; a fraction.
    """

    geolevel: str
    level_share: str
    query: str
    share: str


@document
class OptimizedSummary:
    """Optimized allocation.

    Attributes:
      path: File of the allocation.
      source: Description of the optimization.
      value: Attained value of the objective.
      bound: Lower bound on the objective over all allocations.
      compared_with: Name of the allocation of the errors before.
      information: Measurements that estimates use.
      predicted: Errors of tables at the same budget.
      shares: Shares of all queries.
      groups: Errors of groups at the same budget, if it was optimized for groups.
    """

    path: str
    source: str
    value: float
    bound: float
    compared_with: str
    information: str
    predicted: tuple[ComparedRow, ...]
    shares: tuple[ShareRow, ...]
    groups: tuple[ComparedGroup, ...] | None = None


@document
class NoiseGuarantee:
    """Guarantee from the exact distribution of the noise, tighter than the one from rho.

    Attributes:
      epsilon: Epsilon at `delta`, rounded up.
      delta: Delta; a fraction.
      attacks: Bounds on attacks; left out if invariants leave no neighbors.
    """

    epsilon: float
    delta: str
    attacks: Attacks | None = None


@document
class PlanSummary:
    """Summary of a plan.

    Attributes:
      name: Name of the run, and of the product unless it is the last.
      records: Name of the product, such as `persons`.
      configuration_digest: SHA-256 of all settings that determine the measurements.
      schema: Schema of the product.
      geounits_source: `public list` or `data`.
      levels: Geolevels, root first.
      privacy: The privacy guarantee.
      by_noise: Guarantee from the privacy losses of the noise, if requested.
      statements: Privacy loss of smaller changes of a record.
      invariants: Queries that are published exactly.
      limits: All other invariants.
      formulas: Names and labels that a spreadsheet would compute.
      unrelated: Pairs of attributes that no measured query but `detailed` joins, to the standard
        error of their table at the first geolevel.
      budget: Measured queries; `das plan` adds their errors.
      strata: Groups of records with separate queries.
      geography: Size of each geolevel (`das plan`).
      predicted: Predicted errors of tables (`das plan`).
      not_predicted: Reason why errors are not predicted.
      groups: Predicted errors of groups, if requested.
      optimized: The optimized allocation, if requested.
      covariances: Covariances of pairs of answers, if requested.
      without_estimates: Table to geolevels without estimates, because the table does not follow
        from completely measured queries.
      absent: Files that do not exist yet.
      closed: Files that the user cannot read, so that their columns are not checked.
      root_core_seconds: Predicted processor seconds of the least-squares fit of a large root with
        planned queries.
    """

    name: str
    records: str
    configuration_digest: str
    schema: NamedSchema
    geounits_source: str
    levels: tuple[str, ...]
    privacy: Privacy
    by_noise: NoiseGuarantee | None = None
    statements: tuple[Statement, ...]
    invariants: tuple[ExactQuery, ...]
    limits: tuple[Limit, ...]
    formulas: tuple[str, ...]
    budget: tuple[BudgetRow, ...]
    unrelated: dict[str, float | None] | None = None
    strata: tuple[StratumStatements, ...] = ()
    geography: dict[str, LevelShape] | None = None
    predicted: tuple[PredictedRow, ...] | None = None
    not_predicted: str | None = None
    groups: tuple[GroupRow, ...] | None = None
    optimized: OptimizedSummary | None = None
    covariances: tuple[CovarianceRow, ...] | None = None
    without_estimates: dict[str, tuple[str, ...]] | None = None
    absent: tuple[str, ...] | None = None
    closed: tuple[str, ...] | None = None
    root_core_seconds: float | None = None


SECONDS_PER_CELL = 1.8e-5
"""Core seconds: 22 for 1,227,744 cells whose 32 sets of attributes were planned, 379 products."""
SECONDS_PER_CELL_AND_LEVEL = 3e-7
"""Further core seconds if products multiply matrices, as for ranges; default, not measured."""


def budget_summary(
    product: Product, source: str, ledger: Ledger | None = None, *, losses: bool = False
) -> PlanSummary:
    """Summarize the resolved budget, one row per geolevel and query.

    Args:
      product: A product of the run.
      source: Source of the list of geounits: `public list` or `data`.
      ledger: Ledger of the planned costs. Default: the ledger of one path of the tree on which no
        geounit is an only child.
      losses: Whether to compute the privacy losses of the noise too.

    Raises:
      BudgetError: `losses` is set, and the losses of the noise are unknown or too many.
    """
    plan, privacy = product.plan, privacy_statement(product.plan, source)
    ledger = planned_ledger(plan, None) if ledger is None else ledger
    unknown = without_estimates(plan, product.tabulated.values()) if plan.on_demand else None
    return PlanSummary(
        name=product.title,
        records=product.name,
        configuration_digest=plan.digest,
        schema=NamedSchema(name=plan.schema.name, cells=plan.schema.size),
        geounits_source=source,
        levels=tuple(plan.spine.levels),
        privacy=privacy,
        by_noise=_by_noise(plan, ledger, privacy) if losses else None,
        statements=privacy_statements(plan, ledger, source),
        invariants=exact_queries(plan),
        limits=limits_of(plan),
        formulas=formulas(plan.schema),
        budget=budget_rows(plan, ledger),
        unrelated=unrelated_pairs(plan) or None,
        strata=stratum_statements(plan, ledger, source),
        without_estimates=unknown,
        root_core_seconds=root_core_seconds(plan),
    )


def root_core_seconds(plan: Plan) -> float | None:
    """Predict the processor seconds of the least-squares fit of a large root with planned queries.

    Returns:
      Seconds; None if the root is small or has partition queries only, whose fit takes less.
    """
    queries, cells = plan.levels[0].queries, plan.limits.n_possible(plan.schema)
    if cells <= MOST_CELLS_IN_MATRICES or all(query.is_partition for query in queries):
        return None
    factors = {id(factor): factor for query in queries for factor in query.factors}
    # Counts and their residuals treat all levels alike: a Gram matrix has two distinct entries.
    is_plain = all(len(np.unique(factor.gram)) <= 2 for factor in factors.values())
    sizes = 0 if is_plain else sum(attribute.size for attribute in plan.schema.attributes)
    return cells * (SECONDS_PER_CELL + sizes * SECONDS_PER_CELL_AND_LEVEL)


def unrelated_pairs(plan: Plan) -> dict[str, float | None]:
    """Return the pairs of attributes whose relation only the query `detailed` measures.

    Returns:
      Name of the pair to the standard error of its table at the first geolevel, as a sum of
      answers to `detailed`; null if that is not measured there.
    """
    measured = [noisy for noisy in plan.noise(0, 0) if not noisy.stratum]
    joined = {
        pair
        for noisy in measured
        if noisy.query.name != "detailed"
        for pair in combinations(noisy.query.kept, 2)
    }
    whole = [noisy.mechanism.variance() for noisy in measured if noisy.query.name == "detailed"]
    attributes, errors = plan.schema.attributes, dict[str, float | None]()
    for first, second in combinations(range(len(attributes)), 2):
        if (first, second) not in joined:
            size = attributes[first].size * attributes[second].size
            name = f"{attributes[first].name} * {attributes[second].name}"
            errors[name] = (whole[0] * plan.schema.size / size) ** 0.5 if whole else None
    return errors


def _by_noise(plan: Plan, ledger: Ledger, privacy: Privacy) -> NoiseGuarantee:
    ends = {(entry.geolevel, entry.chain_end) for entry in ledger.entries}
    chains = {(ledger.spine.index(first), ledger.spine.index(last)) for first, last in ends}
    budget = plan.budget
    strata = [dict(part) for part in moved_answers(plan.strategy, budget, sorted(chains))]
    losses = losses_of_paths(len(ledger.spine), strata, budget.neighbors, budget.delta)
    attacks = attacks_of(AttacksByLosses(losses), "noise") if privacy.attacks is not None else None
    epsilon = losses.epsilon(budget.delta)
    return NoiseGuarantee(epsilon=epsilon, delta=str(budget.delta), attacks=attacks)


def formulas(schema: Schema) -> tuple[str, ...]:
    """List names and labels that a spreadsheet would compute when it opens a CSV file.

    >>> from das.schema import Attribute
    >>> formulas(Schema("s", (Attribute("age", ("0-4", "-5", "=1+1", "85+")),)))
    ('-5', '=1+1')
    """
    texts = [*(a.name for a in schema.attributes), *(r.name for r in schema.recodes)]
    texts += [level for attribute in schema.attributes for level in attribute.levels]
    texts += [group for recode in schema.recodes for group in recode.groups]
    return tuple(
        dict.fromkeys(text for text in texts if text.lstrip().startswith(("=", "+", "-", "@")))
    )


def plan_summary(
    product: Product,
    source: str,
    lattice: Lattice,
    classes: SubtreeClasses,
    tables: Sequence[str] | None = None,
) -> PlanSummary:
    """Summarize the budget by geolevel, chain and query, and predict the errors of tables.

    Args:
      product: A product of the run.
      source: Source of the list of geounits: `public list` or `data`.
      lattice: All geounits of the run.
      classes: Their classes of equal subtrees.
      tables: Tables whose errors are predicted. Default: the published tables and the total of each
        stratum.

    Raises:
      SchemaError: A table is no query on the schema.
    """
    plan = product.plan
    if tables is None:
        strata = plan.strategy.strata
        tables = [*product.tabulated, *(f"total where {stratum.name}" for stratum in strata)]
    queries = parse_tables(plan, tables)
    predicted: tuple[PredictedRow, ...] = ()
    not_predicted = None
    try:
        predicted = prediction_rows(plan, predict(plan, plan.strategy, classes, queries))
    except SchemaError as error:  # nothing else of a plan depends on the prediction
        not_predicted = str(error)
    summary = budget_summary(product, source, planned_ledger(plan, lattice))
    return replace(
        summary,
        budget=tuple(
            PlannedRow(
                **vars(row),
                expected_rmse=row.variance**0.5,
                half_width_90=NORMAL_90 * row.variance**0.5,
            )
            for row in summary.budget
        ),
        geography={
            name: LevelShape(
                geounits=len(lattice.codes[level]),
                only_children=int(lattice.is_only_child[level].sum()),
                largest_family=int(lattice.n_children(level).max()),
                mean_family=float(np.mean(lattice.n_children(level))),
            )
            for level, name in enumerate(lattice.spine.levels)
        },
        predicted=predicted,
        not_predicted=not_predicted,
    )


def optimized_summary(
    plan: Plan,
    tree: SubtreeClasses,
    optimized: Optimized,
    path: Path,
    group_goal: GroupGoal | None = None,
    *,
    is_even: bool = False,
) -> OptimizedSummary:
    """Return shares and predicted errors of an optimized allocation, with the errors before.

    Args:
      plan: The plan of the run.
      tree: Classes of equal subtrees.
      optimized: The allocation.
      path: File of the allocation.
      group_goal: Groups that it was optimized for; their errors are listed separately.
      is_even: Whether the run file has no allocation, so that the plan has even shares.
    """
    predictions = (optimized.after, optimized.before)
    groups: tuple[ComparedGroup, ...] | None = None
    if group_goal is not None:
        rows = [group_rows(plan, tree, group_goal, prediction) for prediction in predictions]
        pairs = zip(*rows, strict=True)
        groups = tuple(ComparedGroup(**vars(row), before=old) for row, old in pairs)
    first = len(groups or ())  # the tables of the groups come first
    after, before = (prediction_rows(plan, prediction) for prediction in predictions)
    return OptimizedSummary(
        path=str(path),
        source=optimized.source,
        value=optimized.value,
        bound=optimized.bound,
        compared_with=EVEN if is_even else REPLACED,
        information=str(optimized.information),
        predicted=tuple(
            ComparedRow(**vars(row), before=old, given_up=_growth(row, old, optimized.information))
            for row, old in zip(after[first:], before[first:], strict=True)
        ),
        groups=groups,
        shares=tuple(
            ShareRow(
                geolevel=level.geolevel,
                level_share=str(level.share),
                query=entry.query.name,
                share=str(entry.share),
            )
            for index in range(len(optimized.strategy.levels))
            for _, level in optimized.strategy.parts(index)
            for entry in level.queries
        ),
    )


def _growth(row: PredictedRow, before: PredictedRow, information: Information) -> float:
    kind = "own" if information is Information.GEOUNIT else "full"
    new, old = getattr(row, kind), getattr(before, kind)
    return max(0.0, new.rmse / old.rmse - 1) if old.rmse else 0.0
