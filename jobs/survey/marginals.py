"""Plan of the marginals of a survey: which residual queries are measured; opens no data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from das.definition import Definition
from das.queries.factor import Factor, total
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.workload.choices import LossKind, Method
from das.workload.workload import BaseKind, Workload
from jobs.pipeline.config.workload import plan_loss, read_attribute, stack_bases
from jobs.survey.checks import MARGINALS, check_each, require
from jobs.survey.models import MarginalsConfig, SurveyConfig, attributes_of

if TYPE_CHECKING:
    from das.workload.plan import ExactPlan

# All 1,794 tables of up to 3 of 22 attributes are planned in 1 s and their joint cost found in 4 s;
# with 40 attributes the joint cost of 821 tables takes 14 s.
MOST_TABLES = 2_000
# Noisy answers, 268 MB as integers. All tables of up to 3 attributes of Adult need 21 million.
MOST_ANSWERS = 1 << 25
_MOST_CELLS = 1 << 20  # of a table that is measured, but not planned; default, not measured
MOST_WRITTEN = 1 << 20
"""Most rows of all CSV files together, some 80 MB; a spreadsheet holds as many in one file."""
_UNUSED = 2.0**20  # factor of the noise of the total if the number of records is public
NUMBERS = ("estimate", "standard_error", "lower", "upper")
"""Columns of the estimates of a query."""
NONNEGATIVE = "nonnegative"
"""Column of written tables, if they are small enough for it."""
INTEGER = "integer"
"""Last column of written tables whose attributes together have few combinations of levels."""
TOTAL = "total"
"""Name of the table without attributes, the number of records."""


@dataclass(frozen=True, eq=False)
class MarginalsPlan:
    """Planned marginals.

    Attributes:
      config: Entry of the run file.
      attributes: All attributes of the file with their levels; no table needs all of them.
      tables: Members of each planned table, as increasing positions of attributes.
      cost: Planned privacy loss.
      neighbors: Which data sets count as neighbors.
      definition: Privacy definition, the unit of the cost.
    """

    config: MarginalsConfig
    attributes: tuple[Attribute, ...]
    tables: tuple[tuple[int, ...], ...]
    cost: Fraction
    neighbors: Neighbors
    definition: Definition

    @property
    def name(self) -> str:
        """Return the name of the part."""
        return MARGINALS

    @property
    def _bases(self) -> list[tuple[Schema, Attribute, Sequence[str | list[int]]]]:
        """Return each attribute in a schema of its own, with its bases."""
        stated, plain = self.config.bases, [BaseKind.IDENTITY.value]
        return [
            (Schema(one.name, (one,)), one, stated.get(one.name, plain)) for one in self.attributes
        ]

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """Return what tables ask of each attribute: one row per answer, with its label."""
        return tuple(stack_bases(*one) for one in self._bases)

    @cached_property
    def workload(self) -> Workload:
        """Return the tables over the base matrices of all attributes."""
        attributes = [read_attribute(*one) for one in self._bases]
        names = [[self.attributes[i].name for i in members] for members in self.tables]
        return Workload.of_marginals(attributes, names, self.config.weighting)

    @cached_property
    def exact(self) -> ExactPlan:
        """Plan the queries and their exact costs; takes seconds for hundreds of tables.

        Raises:
          SchemaError: The loss does not fit the tables.
          BudgetError: The noise does not fit its integers.
          SolverError: A solver stopped without a proof.
        """
        from das.workload.plan import ExactPlan, plan_workload
        from das.workload.pure import plan_plain_tables
        from das.workload.residual.plan import ResidualPlan

        if self.definition is Definition.PURE:
            tables = plan_plain_tables(self.workload, self.neighbors, _MOST_CELLS)
            _refuse_many(sum(query.size for query in tables.queries))
            return ExactPlan(self.workload, self.cost, self.neighbors, tables)
        place = {members: i for i, members in enumerate(self.workload.marginals.rows)}
        given, names = self.config.loss, [one.name for one in self.attributes]
        stated = () if isinstance(given, LossKind) else given.tables
        members = {text: _members(text, names, "loss") for text in stated}
        position = {text: place[one] for text, one in members.items() if one in place}
        loss = plan_loss(given, self.workload, position)
        method = Method.RESIDUAL_PLANNER if self.workload.is_plain else Method.ORP
        plan = plan_workload(self.workload, method, loss, neighbors=self.neighbors)
        strategy = plan.strategy
        if self.neighbors is Neighbors.BOUNDED and isinstance(strategy, ResidualPlan):
            # The number of records is public, so next to nothing is spent on it. For a sum of
            # variances the noise of the other sets keeps its best ratios.
            noise = strategy.noise * np.where(np.arange(len(strategy.noise)), 1.0, _UNUSED)
            plan = replace(plan, strategy=replace(strategy, noise=noise))
        return plan.measure_exactly(self.cost)

    def text_of(self, members: tuple[int, ...]) -> str:
        """Return the name of a table: its attributes in the order of the file."""
        return " * ".join(self.attributes[i].name for i in members) or TOTAL

    def query_of(self, members: tuple[int, ...]) -> Query:
        """Return a table as a query: its answers are products of the rows of bases."""
        factors = {self.attributes[i].name: self.factors[i] for i in members}
        return Query(self.text_of(members), self.over_all(factors))

    def over_all(self, factors: Mapping[str, Factor]) -> tuple[Factor, ...]:
        """Return one factor per attribute; attributes without one are summed out."""
        return tuple(factors.get(one.name) or total(one.levels) for one in self.attributes)

    @property
    def written(self) -> tuple[tuple[int, ...], ...]:
        """Return the members of the tables that are written as files."""
        if self.config.written is None:
            return self.tables
        names = [one.name for one in self.attributes]
        return tuple(_members(text, names, "written") for text in self.config.written)


def marginals_plan(config: MarginalsConfig, run: SurveyConfig, budget: Fraction) -> MarginalsPlan:
    """Plan the marginals from public numbers, so that nothing fails after budget is reserved.

    Args:
      config: Entry of the run file.
      run: The run file.
      budget: Total budget of the run.

    Raises:
      ConfigError: A table or attribute is unknown, or there are too many tables or answers.
      SchemaError: A base does not fit its attribute.
    """
    privacy, columns = run.privacy, run.data.columns
    what = "is planned under zCDP only: under pure epsilon plans minimize the sum of variances"
    is_sum = config.loss is LossKind.SUM_OF_VARIANCES
    is_planned = is_sum or privacy.definition is Definition.ZCDP
    require(is_planned, "loss", what, f"definition {privacy.definition}", "sum_of_variances")
    check_each([*config.bases], columns, "bases")
    what = "cannot have the names of columns of estimates"
    taken = {*columns} & {*NUMBERS, NONNEGATIVE, INTEGER}
    require(not taken, "attributes", what, sorted(taken))
    attributes = tuple(Attribute(name, one.levels) for name, one in columns.items())
    tables, cost = _tables(config, [*columns]), budget * config.share
    plan = MarginalsPlan(config, attributes, tables, cost, privacy.neighbors, privacy.definition)
    written, planned = plan.written, {*plan.tables}
    require({*written} <= planned, "written", "names a table that is not planned", config.written)
    require(len({*written}) == len(written), "written", "names a table twice", config.written)
    _refuse_many(_count(tables, [one.size for one in attributes]))
    n_rows = _count(written, [len(factor.labels) for factor in plan.factors])
    what, most = "has too many rows: name fewer tables", f"at most {MOST_WRITTEN}"
    require(n_rows <= MOST_WRITTEN, "written", what, n_rows, most)
    return plan


def _refuse_many(n_answers: int) -> None:
    what, most = "have too many answers to measure", f"at most {MOST_ANSWERS}"
    require(n_answers <= MOST_ANSWERS, "tables", what, n_answers, most)


def _count(tables: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> int:
    """Return the number of answers of tables, given those of each attribute."""
    return sum(math.prod(sizes[i] for i in members) for members in tables)


def _members(text: str, names: Sequence[str], key: str) -> tuple[int, ...]:
    """Return the increasing positions of the attributes of a table; none for `total`.

    Raises:
      ConfigError: An attribute is unknown or named twice.
    """
    stated = () if text.strip() == TOTAL else attributes_of(text)
    check_each(stated, names, key)
    return tuple(sorted(names.index(name) for name in stated))


def _tables(config: MarginalsConfig, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the members of every planned table, as increasing positions of attributes."""
    ways, stated, n_names = config.ways or 0, config.tables or [], len(names)
    key = "tables" if config.ways is None else "ways"
    require(ways <= n_names, key, "is above the number of attributes", ways)
    counts = [math.comb(n_names, order) for order in range(ways + 1)]
    n_tables = len(stated) if config.ways is None else sum(counts)
    what, most = "asks for too many tables", f"at most {MOST_TABLES}"
    require(n_tables <= MOST_TABLES, key, what, n_tables, most)
    if config.ways is not None:
        orders = (itertools.combinations(range(n_names), order) for order in range(ways + 1))
        return tuple(itertools.chain.from_iterable(orders))
    tables = tuple(_members(text, names, key) for text in stated)
    require(len({*tables}) == n_tables, key, "names a table twice", stated)
    return tables
