"""Strategy: which queries are measured at which geolevel, with which exact share of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from das.errors import BudgetError
from das.mechanisms.mechanism import Mechanism, Norm
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.queries.column_rank import has_full_column_rank
from das.queries.joint_sensitivity import JointSensitivity, joint_sensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity


@dataclass(frozen=True, eq=False)
class QueryShare:
    """A query and its exact share of the geolevel's part of the budget.

    Attributes:
      query: The query.
      share: Positive.
      sensitivity_sq: For a query of a planned strategy, the squared sensitivity to which its noise
        is scaled. Its queries are charged together, for the neighbors that are the worst for all of
        them, and the share is a part of that. None for a query that is charged for itself.
    """

    query: Query
    share: Fraction
    sensitivity_sq: Fraction | None = None


@dataclass(frozen=True, eq=False)
class LevelStrategy:
    """What one geolevel measures.

    Attributes:
      geolevel: Name of the geolevel.
      share: The geolevel's exact share of the budget, share > 0.
      queries: Queries with shares that sum to exactly 1.

    Raises:
      BudgetError: A share is not positive, the query shares do not sum to 1, some queries are
        charged together and others for themselves, or the queries do not have full column rank;
        without that the node problem has no unique solution.
    """

    geolevel: str
    share: Fraction
    queries: tuple[QueryShare, ...]

    def __post_init__(self) -> None:
        where = f"allocation, geolevel {self.geolevel}"
        if self.share <= 0:
            raise BudgetError(where, "must have a positive share", got=self.share)
        if not self.queries:
            raise BudgetError(where, "measures no query")
        for entry in self.queries:
            if entry.share <= 0:
                raise BudgetError(
                    f"{where}, query {entry.query.name}", "share must be positive", got=entry.share
                )
        names = [entry.query.name for entry in self.queries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BudgetError(where, "lists a query twice", got=twice)
        if not has_full_column_rank([entry.query for entry in self.queries]):
            raise BudgetError(
                where,
                "its queries do not have full column rank: some counts of cells would stay open",
                got=names,
                remedy="give detailed a share, or a weight among the tables of a workload, "
                "however small",
            )
        total = sum((entry.share for entry in self.queries), Fraction(0))
        if total != 1:
            raise BudgetError(
                where,
                "the shares of its queries do not sum to 1",
                got=f"{total} (about {float(total):.6f})",
                want="exactly 1",
            )
        if len({entry.sensitivity_sq is None for entry in self.queries}) > 1:
            raise BudgetError(where, "charges some queries together and others for themselves")

    @cached_property
    def joint(self) -> JointSensitivity | None:
        """What neighbors cost by the queries of a planned strategy, together, at cost 1; exact.

        None if every query is charged for itself.
        """
        weights = tuple(
            entry.share / entry.sensitivity_sq  # 1 / (2 sigma^2) at cost 1
            for entry in self.queries
            if entry.sensitivity_sq is not None
        )
        return _search(tuple(entry.query for entry in self.queries), weights) if weights else None

    def check_joint_cost(self, neighbors: Neighbors) -> None:
        """Check that queries that are charged together cost no more than their shares.

        Raises:
          BudgetError: A pair of neighbors costs more.
        """
        if self.joint is not None and self.joint.of(neighbors) > 1:
            raise BudgetError(
                f"planned strategy of geolevel {self.geolevel}",
                "costs more than its share",
                got=f"{float(self.joint.of(neighbors)):.12f} of it, {neighbors} neighbors",
                want="at most 1",
            )


@lru_cache(maxsize=64)
def _search(queries: tuple[Query, ...], weights: tuple[Fraction, ...]) -> JointSensitivity:
    """Search once for geolevels that measure the same queries."""
    return joint_sensitivity(queries, weights)


@dataclass(frozen=True, eq=False)
class Strategy:
    """The measured queries of every geolevel, root first; level shares sum to exactly 1.

    Attributes:
      levels: What each geolevel measures.
      mechanism: Name of the noise; None for the default of the definition that the budget counts.

    Raises:
      BudgetError: The level shares do not sum to 1.
    """

    levels: tuple[LevelStrategy, ...]
    mechanism: str | None = None

    def __post_init__(self) -> None:
        total = sum((level.share for level in self.levels), Fraction(0))
        if total != 1:
            raise BudgetError(
                "allocation",
                "the shares of the geolevels do not sum to 1",
                got=f"{total} (about {float(total):.6f})",
                want="exactly 1",
            )

    def chain_share(self, first: int, last: int) -> Fraction:
        """Sum of the level shares first..last.

        A geounit that is an only child is not measured; its share goes to the topmost geounit of
        the chain of only children, so that every root-to-leaf path still sums to 1.
        """
        return sum((level.share for level in self.levels[first : last + 1]), Fraction(0))


def query_cost(budget: Budget, level_share: Fraction, share: Fraction) -> Fraction:
    """Total * level share * query share, exact: rho or epsilon, as the budget counts."""
    return budget.total * level_share * share


def query_mechanism(
    budget: Budget, query: Query, cost: Fraction, mechanism: str | None = None
) -> Mechanism:
    """The mechanism under which releasing the query in every geounit costs exactly `cost`.

    Args:
      budget: What costs are counted in, and for which neighbors.
      query: The query.
      cost: Exact, > 0.
      mechanism: Name of the noise; None for the default of the budget's definition.

    Raises:
      BudgetError: The noise is unknown or cannot be charged in the budget's definition.
    """
    noise = choose_mechanism(budget.definition, mechanism)
    norm = noise.norms[budget.definition]
    return noise.costing(budget.definition, cost, sensitivity(query, budget.neighbors, norm))


def strategy_for(
    levels: Sequence[LevelStrategy], spine: Sequence[str], mechanism: str | None = None
) -> Strategy:
    """Order level strategies as the spine, root first.

    Args:
      levels: What geolevels measure, in any order.
      spine: Names of geolevels, root first.
      mechanism: Name of the noise; None for the default of the definition that is charged.

    Raises:
      BudgetError: A geolevel of the spine has no strategy, or one is named that the spine lacks.
    """
    by_name = {level.geolevel: level for level in levels}
    missing = [name for name in spine if name not in by_name]
    if missing:
        raise BudgetError(
            "allocation",
            f"has no entry for {', '.join(missing)}",
            got=list(by_name),
            want=list(spine),
            remedy="give every geolevel of the run a share and queries under `levels`",
        )
    extra = [name for name in by_name if name not in spine]
    if extra:
        raise BudgetError(
            "allocation", "names a geolevel the spine lacks", got=extra, want=list(spine)
        )
    return Strategy(tuple(by_name[name] for name in spine), mechanism)


@dataclass(frozen=True, eq=False)
class NoisyQuery:
    """A query with the exact noise it is measured with in one class of geounits.

    Attributes:
      query: The query.
      share: Its exact share of the geolevel.
      level_share: The exact share of the budget of the chain of geolevels measured together.
      cost: Its exact cost, in what the budget counts; in a planned strategy, a part of what its
        queries cost together.
      mechanism: The noise.
      sensitivity_sq: As `QueryShare` has it.
    """

    query: Query
    share: Fraction
    level_share: Fraction
    cost: Fraction
    mechanism: Mechanism
    sensitivity_sq: Fraction | None = None


def noisy_queries(
    strategy: Strategy, budget: Budget, first: int, last: int
) -> tuple[NoisyQuery, ...]:
    """Resolve what a geounit measures whose chain of only children spans geolevels first..last.

    It asks the queries of geolevel `first`; its budget is that of all geolevels of the chain.

    Raises:
      BudgetError: The noise cannot be charged in the budget's definition, or queries are charged
        together for noise whose cost is not proportional to squared sensitivities.
    """
    level = strategy.levels[first]
    noise = choose_mechanism(budget.definition, strategy.mechanism)
    norm = noise.norms[budget.definition]
    share = strategy.chain_share(first, last)
    out = []
    for entry in level.queries:
        cost = query_cost(budget, share, entry.share)
        if entry.sensitivity_sq is None:
            charged = sensitivity(entry.query, budget.neighbors, norm)
        elif norm is Norm.L2_SQUARED:
            charged = entry.sensitivity_sq
        else:
            raise BudgetError(
                f"query {entry.query.name}",
                "is planned for noise that costs in proportion to squared sensitivities",
                got=f"{noise.title} noise charged in {budget.definition.unit}",
            )
        mechanism = noise.costing(budget.definition, cost, charged)
        out.append(
            NoisyQuery(entry.query, entry.share, share, cost, mechanism, entry.sensitivity_sq)
        )
    return tuple(out)
