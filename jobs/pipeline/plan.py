"""Plan: all that is public of a run before its data are read, and what each geolevel is to do."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
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
from das.queries.query import Query, is_refinement
from das.schema import Schema
from das.strategy import NoisyQuery, Strategy, noisy_queries
from das.tree.model import GeolevelTerms, partial_terms, spine_terms
from geography.lattice import Lattice, Spine
from invariants.constraints import Constraints
from invariants.exact import Invariant, invariants_at
from invariants.linear import LinearRow


@dataclass(frozen=True)
class Covariate:
    """Totals that are expected by housing units.

    Attributes:
      geolevels: Where they are.
      with_composition: Whether cells are expected too, by the composition of the parent.
      variance_factor: Factor of the variance that is learned of totals; twice that of composition.
      only_if_better: Whether they are only used where that lowers the estimated error.
    """

    geolevels: tuple[str, ...]
    with_composition: bool = False
    variance_factor: float = 2.0
    only_if_better: bool = True


@dataclass(frozen=True)
class Solving:
    """How noisy answers become counts.

    Attributes:
      tolerance: Largest accepted residual of a node.
      fit_to: Whether a geounit is fitted to the estimate from its whole subtree, "tree", or from
        its own geolevel, "level".
      empirical_bayes: Geolevels whose cells are fitted to posterior means.
      l2_passes: Least-squares passes of geolevels, as names of measured queries.
      round_l2_passes: Whether the answers of a pass are whole numbers before they are fixed.
      method: What the continuous stage minimises, a `solvers.choices.Method`.
      least_squares: A `solvers.choices.LeastSquaresSolver`.
      integers: A `solvers.choices.IntegerSolver`.
      failsafe: What happens to a parent whose children cannot satisfy their constraints and add up
        to it, a `solvers.choices.Failsafe`.
      covariate: Where totals are expected by housing units; None for nowhere.
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


@dataclass(frozen=True, eq=False)
class Hint:
    """What noisy answers of a later product say of one before it, by what ties them.

    Records of a type are as many as the least number per unit, summed over units, and an unknown
    surplus in units of open cells, which may hold more than their least.

    Attributes:
      product: Name of the later product.
      plan: Its plan.
      query: Its query that is estimated.
      types: int64[t, m], 0 or 1: the answers that count records of each type.
      sums: int64[d, t], 0 or 1: sums of types that its ties bound, and the types themselves.
      least: int64[t, n], how many of each type a unit of each cell holds at least.
      is_open: bool[t, n], whether it may hold more.
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
    """A geolevel of a plan, and all that is asked of it and known in it.

    Attributes:
      index: Its position; 0 is the root.
      name: Its name.
      digits: Length of its geocodes; 0 where the root has the whole prefix to itself.
      queries: Measured queries, in the order of the strategy.
      on_demand: Those of them whose noise is drawn only for cells where the parent has persons; at
        the root only for cells where its support has.
      complete: Those of them that are on demand at no geolevel.
      exact: Queries whose answers are published exactly, coarse before fine.
      bound: Queries whose answers must equal those of an earlier release.
      exact_rows: Linear rows whose sums are published exactly.
      bounded_rows: Linear rows with a lower or upper bound only.
      whole: Measured queries that are not on demand at this geolevel.
      kept: Every query whose answers the counts must reproduce: `exact` and `bound`, coarse before
        fine.
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
    """What the stages after reading need; no path to confidential data.

    Attributes:
      schema: Attributes and cells.
      spine: Geolevels.
      strategy: Measured queries.
      budget: What every root-to-leaf path may cost.
      invariants: Exact queries.
      passes: Rounding passes, each a tuple of nested queries.
      solving: How noisy answers become counts.
      not_for_release: Whether noise is seeded.
      digest: Digest of what fixes the measurements.
      limits: Invariants other than exact queries.
      on_demand: Names of the queries whose noise is drawn only where the parent has persons.
      support: Queries of the root, from coarse to fine, whose counts are solved first. On-demand
        queries of the root are then drawn only within positive answers of the last. Without support
        they are drawn in full.
      solve_digest: Digest of how counts are made, which may change after measuring.
      is_elsewhere: Whether the noisy answers were made elsewhere, and the budget spent there.
      census: Geolevels of the geocodes of data, microdata and tables, where the spine has others.
      hints: What noisy answers of later products say of this one.
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

    @property
    def census_spine(self) -> Spine:
        """Geolevels of the geocodes of data, microdata and tables."""
        return self.spine if self.census is None else self.census

    @cached_property
    def census_digits(self) -> dict[str, int]:
        """Lengths of geocodes of the census by geolevel, those that only the spine has left out."""
        census = self.census_spine
        return dict(zip(census.levels, census.digits, strict=True))

    @cached_property
    def off_spine(self) -> tuple[str, ...]:
        """Census geolevels that are not on the spine; their counts are sums over leaves."""
        return tuple(name for name in self.census_spine.levels if name not in self.spine.levels)

    @property
    def geolevels(self) -> tuple[str, ...]:
        """All that have counts: those of the spine, root first, and those off it."""
        return (*self.spine.levels, *self.off_spine)

    @cached_property
    def shared_digits(self) -> int:
        """First digits of a leaf geocode that are the same on the spine and in the census."""
        return self.spine.digits[self.spine.shared_with(self.census_spine) - 1]

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The geolevels, root first."""
        spine, limits = self.spine, self.limits
        return tuple(
            Level(
                index,
                name,
                digits,
                tuple(entry.query for entry in asked),
                tuple(e.query for e in asked if self._is_on_demand(index, e.query)),
                tuple(e.query for e in asked if e.query.name not in self.on_demand),
                tuple(invariant.query for invariant in invariants_at(self.invariants, name)),
                tuple(invariant.query for invariant in invariants_at(limits.pinned, name)),
                tuple(limits.exact_rows_at(name)),
                tuple(limits.bounded_rows_at(name)),
            )
            for index, (name, digits) in enumerate(zip(spine.levels, spine.digits, strict=True))
            for asked in (self.strategy.measured(index),)
        )

    def _is_on_demand(self, level: int, query: Query) -> bool:
        """Whether a query is drawn only where somebody is known to be."""
        if level or query.name not in self.on_demand:
            return query.name in self.on_demand
        return bool(self.support) and not is_refinement(self.support[-1], query)

    @property
    def leaf(self) -> Level:
        """The last geolevel."""
        return self.levels[-1]

    def level(self, name: str) -> Level:
        """A geolevel by its name."""
        return self.levels[self.spine.levels.index(name)]

    @property
    def randomness(self) -> str:
        """Where noise comes from, as the configuration calls it."""
        if self.is_elsewhere:
            return "elsewhere"
        return "seeded_not_for_release" if self.not_for_release else "operating_system"

    @property
    def spends(self) -> bool:
        """Whether the account of the people pays for the noisy answers."""
        return not (self.not_for_release or self.is_elsewhere)

    def facts(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON facts
        """Return what every dataset says of the plan that it was made by, and more."""
        known = {"configuration_digest": self.digest, "not_for_release": self.not_for_release}
        return {**known, **more}

    def noise(self, first: int, last: int) -> tuple[NoisyQuery, ...]:
        """Return queries and exact noise of geounits whose chain spans geolevels first..last.

        A chain is a geounit, its only child, that one's only child, and so on. They hold the same
        people, so they are measured once, at the first geolevel, with the budget of all.
        """
        return noisy_queries(self.strategy, self.budget, first, last)

    def change_costs(self, first: str, last: str) -> tuple[ChangeCosts, ...]:
        """What changing one record costs by the measurements of a chain, by stratum."""
        chain = Chain(self.level(first).index, self.level(last).index, (first, last))
        names = [attribute.name for attribute in self.schema.attributes]
        return change_costs(self.strategy, self.budget, names, chain)

    @cached_property
    def changed_record(self) -> Fraction:
        """Cost of any change of one record, in what the budget counts, in every geography.

        It is the row `record` of `das.privacy.semantics.statements` over all chains of only
        children that geounits may form, so it is at least that of the chains that occur.
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
    """Return queries of every geolevel as small matrices, without those drawn on demand.

    Raises:
      SchemaError: The queries group the levels in too many ways.
    """
    make = partial_terms if plan.on_demand else spine_terms
    return make(
        [list(level.complete) for level in plan.levels],
        [list(level.exact) for level in plan.levels],
    )


def why_no_estimates(plan: Plan) -> str | None:
    """Why there are none of anything, as may be with on-demand queries; None if there are some."""
    if plan.on_demand and not any(level.complete for level in plan.levels):
        return "no query is measured completely"
    try:
        plan_terms(plan)
    except SchemaError as error:
        return str(error)
    return None


def without_estimates(plan: Plan, queries: Iterable[Query]) -> dict[str, tuple[str, ...]]:
    """Tables that do not follow from what is measured completely, each with the geolevels."""
    if not plan.on_demand:
        return {}
    levels = plan.geolevels
    if why_no_estimates(plan) is not None:
        return {query.name: tuple(levels) for query in queries}
    out = {}
    for query in queries:
        terms = plan_terms(plan)  # what is not on the spine is estimated from leaves
        pairs = zip(levels, (*terms, *terms[-1:] * len(plan.off_spine)), strict=True)
        without = tuple(level for level, own in pairs if not own.determines(query))
        if without:
            out[query.name] = without
    return out


def exact_query(plans: Mapping[str, Plan], product: str, name: str, geolevel: str) -> Query:
    """The query of a product that is published exactly at a geolevel.

    Args:
      plans: The plans of the products that come before the one that asks.
      product: Name of the product whose answers are meant.
      name: Its query as written in a configuration, such as "hhgq".
      geolevel: Where its answers are wanted.

    Raises:
      ConfigError: The product does not come before, or has no such invariant at the geolevel.
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


def planned_ledger(plan: Plan, lattice: Lattice) -> Ledger:
    """The ledger that measuring this lattice will produce; checked against the budget.

    Raises:
      LedgerError: A path of the tree would not spend exactly the budget.
      BudgetError: A planned strategy costs more than its share.
    """
    geounits: dict[tuple[int, int], int] = {}
    for level in range(len(plan.spine.levels)):
        measured = ~lattice.is_only_child[level]
        ends, sizes = np.unique(lattice.chain_end[level][measured], return_counts=True)
        geounits |= {(level, int(end)): int(size) for end, size in zip(ends, sizes, strict=True)}
    return _ledger(plan, geounits)


def ordinary_ledger(plan: Plan) -> Ledger:
    """The ledger of one path of geounits none of which is an only child.

    Raises:
      LedgerError: The path would not spend exactly the budget.
      BudgetError: A planned strategy costs more than its share.
    """
    return _ledger(plan, {(level, level): 1 for level in range(len(plan.spine.levels))})


def _ledger(plan: Plan, geounits: Mapping[tuple[int, int], int]) -> Ledger:
    """Entries of every chain that occurs, given the number of its geounits."""
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
