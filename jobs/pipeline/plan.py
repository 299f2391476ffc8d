"""The plan of a product: everything public before the data are read, by geolevel."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from das.arrays import BoolArray, IntArray
from das.change_costs import Chain, change_costs
from das.errors import BudgetError, ConfigError, SchemaError
from das.privacy.budget import Budget
from das.privacy.ledger import Ledger, LedgerEntry
from das.privacy.semantics import ChangeCosts, statements, touched_attributes
from das.queries.factor import partition
from das.queries.query import Query, is_refinement
from das.schema import Schema
from das.strategy import NoisyQuery, Strategy, noisy_queries
from das.tree.model import GeolevelTerms, partial_terms, spine_terms
from geography.lattice import Lattice, Spine
from invariants.constraints import Constraints
from invariants.exact import Invariant, invariants_at
from invariants.linear import LinearRow
from solvers.learned.forest import Forest


@dataclass(frozen=True)
class Covariate:
    """Settings of the housing-unit covariate, which predicts total records.

    Attributes:
      geolevels: Geolevels at which the solver uses it.
      with_composition: Whether cells are predicted too, from the composition of the parent.
      variance_factor: Factor of the fitted variance of totals; composition uses twice this factor.
      only_if_better: Whether it is used only where it lowers the estimated error.
    """

    geolevels: tuple[str, ...]
    with_composition: bool = False
    variance_factor: float = 2.0
    only_if_better: bool = True


@dataclass(frozen=True, eq=False)
class LearnedCounts:
    """Regressions that correct the released answers of a geolevel; trained on public counts.

    Attributes:
      geolevel: The geolevel.
      forests: By measured query, the regression of true less released answers.
      source: The public tables and the command that trained on them.
      digest: SHA-256 of the file of the regressions.
      tables: SHA-256 of each public table, with its size in bytes.
      sketch: Digests of some public histograms, by which input of a run is recognised.
      is_own: Whether the run learns from its own noisy answers; its release then has the file.
    """

    geolevel: str
    forests: Mapping[str, Forest]
    source: str
    digest: str
    tables: Mapping[str, int]
    sketch: frozenset[str]
    is_own: bool = False


@dataclass(frozen=True)
class Solving:
    """Settings of post-processing, from noisy answers to nonnegative integer counts.

    Attributes:
      tolerance: Largest accepted residual of a node.
      fit_to: "tree" fits each geounit to the estimate from its subtree; "level" to the estimate
        from its geolevel alone.
      empirical_bayes: Geolevels whose answers are fitted to empirical Bayes posterior means.
      l2_passes: Least-squares passes by geolevel, each a tuple of names of measured queries.
      round_l2_passes: Whether the answers of a pass are rounded before later passes keep them.
      method: Objective of the continuous stage, a `solvers.choices.Method`.
      least_squares: A `solvers.choices.LeastSquaresSolver`.
      integers: A `solvers.choices.IntegerSolver`.
      failsafe: Treatment of a parent whose children cannot meet their constraints and sum to it, a
        `solvers.choices.Failsafe`.
      covariate: The housing-unit covariate; None if unused.
      learned: Regressions that correct released answers; None if unused.
    """

    tolerance: float = 1e-7
    fit_to: str = "tree"
    empirical_bayes: tuple[str, ...] = ()
    l2_passes: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    round_l2_passes: bool = False
    method: str = "nnls"
    least_squares: str = "structured"
    integers: str = "highs"
    failsafe: str = "exact"
    covariate: Covariate | None = None
    learned: LearnedCounts | None = None


@dataclass(frozen=True, eq=False)
class Hint:
    """A cross-product pseudo-measurement: noisy answers of a later product about an earlier one.

    The records of a type number at least the minimum per unit, summed over units. Units of open
    cells may hold more records than their minimum.

    Attributes:
      product: Name of the later product.
      plan: Plan of the later product.
      query: Query of the later product that is estimated; it has m answers.
      types: int64[t, m], 0 or 1: the answers that count records of each type.
      sums: int64[d, t], 0 or 1: sums of types that constraints bound, and the types themselves.
      least: int64[t, n], minimum number of records of each type in a unit of each cell.
      is_open: bool[t, n], whether a unit of the cell may hold more than the minimum.
    """

    product: str
    plan: Plan
    query: Query
    types: IntArray
    sums: IntArray
    least: IntArray
    is_open: BoolArray


@dataclass(frozen=True, eq=False)
class Level:
    """A geolevel of a plan, with its measured queries and its constraints.

    Attributes:
      index: Position in the spine; 0 is the root.
      name: Name of the geolevel.
      digits: Length of its geocodes; 0 at a root whose geocode is empty.
      queries: Measured queries, in the order of the strategy.
      on_demand: Measured queries whose noise is drawn only for cells with released records of the
        parent; at the root, only for cells of its support.
      complete: Measured queries that are on-demand queries at no geolevel.
      exact: Queries whose answers are published exactly, coarse before fine.
      bound: Queries whose answers must equal those of an earlier release.
      exact_rows: Linear rows whose sums are published exactly.
      bounded_rows: Linear rows with a lower or upper bound only.
      whole: Measured queries that are not in `on_demand`.
      kept: Queries whose answers the counts must reproduce, `exact` and `bound`, coarse first.
      published: Queries and rows whose exact answers come from the data of this run.
    """

    index: int
    name: str
    digits: int
    queries: tuple[Query, ...] = ()
    on_demand: tuple[Query, ...] = ()
    complete: tuple[Query, ...] = ()
    exact: tuple[Query, ...] = ()
    bound: tuple[Query, ...] = ()
    exact_rows: tuple[LinearRow, ...] = ()
    bounded_rows: tuple[LinearRow, ...] = ()
    whole: tuple[Query, ...] = field(init=False)
    kept: tuple[Query, ...] = field(init=False)
    published: tuple[Query | LinearRow, ...] = field(init=False)

    def __post_init__(self) -> None:
        kept = sorted((*self.exact, *self.bound), key=lambda query: query.size)
        object.__setattr__(self, "whole", tuple(q for q in self.queries if q not in self.on_demand))
        object.__setattr__(self, "kept", tuple(kept))
        object.__setattr__(self, "published", (*self.exact, *self.exact_rows))


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a product, used by all stages; it holds no path to confidential data.

    Attributes:
      schema: Attributes and cells.
      spine: Geolevels.
      strategy: Measured queries.
      budget: Budget of each root-to-leaf path.
      invariants: Queries published exactly.
      passes: Rounding passes, each a tuple of nested queries.
      solving: Settings of post-processing.
      not_for_release: Whether the noise is seeded, so that anyone can reproduce it.
      digest: Digest of all settings that determine the measurements.
      limits: Invariants other than exact queries.
      on_demand: Names of on-demand queries, whose noise is drawn only for cells where the parent
        has records.
      support: Root queries, coarse to fine, that are solved first. On-demand queries of the root
        are drawn only within positive answers of the last one; without support, completely.
      solve_digest: Digest of the post-processing settings, which may change after measuring.
      is_elsewhere: Whether the noisy answers are imported, so that this run spends no budget.
      census: Geolevels of the geocodes of data, microdata and tables; None if equal to the spine.
      hints: Pseudo-measurements from later products.
      household_size: Largest number of records of a household whose privacy loss is stated; None
        to state none.
    """

    schema: Schema
    spine: Spine
    strategy: Strategy
    budget: Budget
    invariants: tuple[Invariant, ...]
    passes: tuple[tuple[Query, ...], ...]
    solving: Solving
    not_for_release: bool
    digest: str
    limits: Constraints = field(default_factory=Constraints)
    on_demand: frozenset[str] = frozenset()
    support: tuple[Query, ...] = ()
    solve_digest: str = ""
    is_elsewhere: bool = False
    census: Spine | None = None
    hints: tuple[Hint, ...] = ()
    household_size: int | None = None

    @property
    def census_spine(self) -> Spine:
        """Return the geolevels of the geocodes of data, microdata and tables."""
        return self.spine if self.census is None else self.census

    @cached_property
    def census_digits(self) -> dict[str, int]:
        """Return the geocode length of each census geolevel."""
        census = self.census_spine
        return dict(zip(census.levels, census.digits, strict=True))

    @cached_property
    def off_spine(self) -> tuple[str, ...]:
        """Return the census geolevels off the spine; their counts are sums over leaves."""
        return tuple(name for name in self.census_spine.levels if name not in self.spine.levels)

    @property
    def geolevels(self) -> tuple[str, ...]:
        """Return the geolevels with counts: of the spine, root first, then of the census only."""
        return (*self.spine.levels, *self.off_spine)

    @cached_property
    def shared_digits(self) -> int:
        """Return how many leading digits a leaf geocode shares with its census geocode."""
        return self.spine.digits[self.spine.shared_with(self.census_spine) - 1]

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Return the geolevels, root first."""
        spine, limits = self.spine, self.limits
        return tuple(
            Level(
                index,
                name,
                digits,
                tuple(entry.query for entry in measured),
                tuple(e.query for e in measured if self._is_on_demand(index, e.query)),
                tuple(e.query for e in measured if e.query.name not in self.on_demand),
                tuple(invariant.query for invariant in invariants_at(self.invariants, name)),
                tuple(invariant.query for invariant in invariants_at(limits.pinned, name)),
                tuple(limits.exact_rows_at(name)),
                tuple(limits.bounded_rows_at(name)),
            )
            for index, (name, digits) in enumerate(zip(spine.levels, spine.digits, strict=True))
            for measured in (self.strategy.measured(index),)
        )

    def _is_on_demand(self, level: int, query: Query) -> bool:
        """Return whether noise of a query is drawn only for cells with released records above."""
        if level or query.name not in self.on_demand:
            return query.name in self.on_demand
        return bool(self.support) and not is_refinement(self.support[-1], query)

    @property
    def leaf(self) -> Level:
        """Return the last geolevel."""
        return self.levels[-1]

    def level(self, name: str) -> Level:
        """Return a geolevel by its name."""
        return self.levels[self.spine.levels.index(name)]

    @property
    def randomness(self) -> str:
        """Return the source of the noise, in the words of the configuration."""
        if self.is_elsewhere:
            return "elsewhere"
        return "seeded_not_for_release" if self.not_for_release else "operating_system"

    @property
    def spends(self) -> bool:
        """Return whether the account pays for the noisy answers."""
        return not (self.not_for_release or self.is_elsewhere)

    def facts(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON facts
        """Return the facts about the plan that every dataset records, and more facts."""
        known = {"configuration_digest": self.digest, "not_for_release": self.not_for_release}
        return known | more

    def noise(self, first: int, last: int) -> tuple[NoisyQuery, ...]:
        """Return queries and exact noise of geounits whose chain spans geolevels first..last.

        A chain is a geounit, its only child, the only child of that child, and so on. They hold the
        same records, so the first geolevel is measured once, with the budget of the whole chain.
        """
        return noisy_queries(self.strategy, self.budget, first, last)

    def change_costs(self, first: str, last: str) -> tuple[ChangeCosts, ...]:
        """Return the cost of changing one record in a chain, by stratum."""
        chain = Chain(self.level(first).index, self.level(last).index, (first, last))
        names = [attribute.name for attribute in self.schema.attributes]
        return change_costs(self.strategy, self.budget, names, chain)

    @cached_property
    def changed_record(self) -> Fraction:
        """Return the cost of any change of one record, in the unit of the budget.

        This is the row `record` of `das.privacy.semantics.statements` over all possible chains of
        only children, so it bounds the cost in every geography.
        """
        names, measured = self.spine.levels, list[ChangeCosts]()
        for first, last in itertools.combinations_with_replacement(names, 2):
            try:
                measured += self.change_costs(first, last)
            except BudgetError:
                if first == last:
                    raise  # else geounits that form this chain are refused
        return statements(names, (), measured)[0].cost


@lru_cache(maxsize=4)
def plan_terms(plan: Plan) -> tuple[GeolevelTerms, ...]:
    """Return the complete queries of each geolevel as small matrices.

    Args:
      plan: The plan.

    Raises:
      SchemaError: The queries group attribute levels in too many ways.
    """
    queries = (
        [list(level.complete) for level in plan.levels],
        [list(level.exact) for level in plan.levels],
    )
    if plan.on_demand:
        return partial_terms(*queries)
    for with_structural in (True, False):
        types = types_of_cells(plan, with_structural=with_structural)
        if types is not None:
            with suppress(SchemaError):  # matrices would be too large; estimates ignore such zeros
                return spine_terms(*queries, types=types)
    return spine_terms(*queries)


def types_of_cells(plan: Plan, *, with_structural: bool) -> Query | None:
    """Partition the cells into types that are publicly empty in some or all geounits.

    Counts of facilities and of living quarters are public. Released counts of other products are
    not used, since they are known only after solving.

    Args:
      plan: The plan.
      with_structural: Whether structural zeros are types too.

    Returns:
      A partition query; None if no cell is publicly empty.
    """
    limits = plan.limits
    zeros = limits.zeros if with_structural else None
    if not limits.counted_before_solving and zeros is None:
        return None
    factors = []
    for axis, size in enumerate(plan.schema.shape):
        columns = [np.zeros(size, np.int64)]
        for stated in limits.counted_before_solving:
            columns += [query.factors[axis].codes for query in stated.queries]
        if zeros is not None:
            columns += [*zeros.patterns(axis).T]
        kinds = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)
        labels = tuple(str(kind) for kind in range(int(kinds.max()) + 1))
        factors.append(partition(labels, tuple(kinds.tolist())))
    return Query("types of cells", tuple(factors))


def why_no_estimates(plan: Plan) -> str | None:
    """Return the reason why nothing can be estimated; None if something can."""
    if plan.on_demand and not any(level.complete for level in plan.levels):
        return "no query is measured completely"
    try:
        plan_terms(plan)
    except SchemaError as error:
        return str(error)
    return None


def without_estimates(plan: Plan, queries: Iterable[Query]) -> dict[str, tuple[str, ...]]:
    """Return the tables that cannot be estimated, each with the geolevels where it cannot.

    Tables are estimable if complete measured queries determine them.
    """
    if not plan.on_demand:
        return {}
    levels = plan.geolevels
    if why_no_estimates(plan) is not None:
        return {query.name: tuple(levels) for query in queries}
    terms = plan_terms(plan)  # geolevels off the spine are estimated from leaves
    pairs = [*zip(levels, (*terms, *terms[-1:] * len(plan.off_spine)), strict=True)]
    without = {
        query.name: tuple(level for level, of_level in pairs if not of_level.determines(query))
        for query in queries
    }
    return {name: unknown for name, unknown in without.items() if unknown}


def exact_query(plans: Mapping[str, Plan], product: str, name: str, geolevel: str) -> Query:
    """Find a query that an earlier product publishes exactly at a geolevel.

    Args:
      plans: Plans of the earlier products, by name.
      product: Name of the earlier product.
      name: Query as written in a configuration, such as "hhgq".
      geolevel: Name of the geolevel.

    Raises:
      ConfigError: No earlier product has this name, or it has no such invariant at the geolevel.
    """
    if product not in plans:
        raise ConfigError(
            f"product {product}",
            "does not come before this one",
            got=list(plans),
            remedy="put it into the run file, before this one",
        )
    exact = {query.name: query for query in plans[product].level(geolevel).exact}
    if name not in exact:
        raise ConfigError(
            f"product {product}, query {name}",
            f"is not exact at geolevel {geolevel}",
            got=sorted(exact),
            remedy="add it to the invariants of that product",
        )
    return exact[name]


# --- the ledger that measuring will produce ------------------------------------------------------


def planned_ledger(plan: Plan, lattice: Lattice | None) -> Ledger:
    """Compute the ledger of measuring all geounits, checked against the budget.

    Args:
      plan: The plan.
      lattice: The geounits; None computes the ledger of one path without only children.

    Raises:
      LedgerError: A path of the tree would not spend exactly the budget.
      BudgetError: A planned strategy costs more than its share.
    """
    # Number of geounits of each chain, by first and last geolevel.
    geounits = {(level, level): 1 for level in range(len(plan.spine.levels))}
    if lattice is not None:
        geounits = {}
        for level, is_only_child in enumerate(lattice.is_only_child):
            chain_ends = lattice.chain_end[level][~is_only_child]
            ends, sizes = np.unique(chain_ends, return_counts=True)
            pairs = zip(ends.tolist(), sizes.tolist(), strict=True)
            geounits |= {(level, end): size for end, size in pairs}
    names = plan.spine.levels
    attributes = [attribute.name for attribute in plan.schema.attributes]
    strategy = plan.strategy
    for level in range(len(strategy.levels)):
        for _, part in strategy.parts(level):
            part.check_joint_cost(plan.budget.neighbors)
    entries = [
        LedgerEntry(
            names[first],
            names[last],
            noisy.query.name,
            touched_attributes(noisy.query, attributes),
            noisy.mechanism,
            noisy.cost,
            number,
            noisy.stratum,
        )
        for (first, last), number in geounits.items()
        for noisy in plan.noise(first, last)
    ]
    strata = tuple(stratum.name for stratum in strategy.strata)
    ledger = Ledger(names, plan.budget.total, strata=strata).append(entries)
    ledger.finalize()
    return ledger
