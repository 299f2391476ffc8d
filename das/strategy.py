"""Strategy: the measured queries of every geolevel, with exact shares of the budget.

Besides population-wide queries, a strategy may have strata: disjoint groups of cells with separate
queries and shares. A record lies on one path of geounits and in one stratum, so the costs of
different strata do not add up. A path in a stratum costs the shares of its geounits for the
population-wide queries and for the queries of this stratum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from das.errors import BudgetError, require_distinct
from das.mechanisms.mechanism import Mechanism, Norm
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.privacy.joint_shifts import JointShifts
from das.privacy.ledger import Chain
from das.privacy.loss_distribution import Shifts, unit_shift
from das.privacy.target import Measured
from das.queries.column_rank import has_full_column_rank
from das.queries.group import Group
from das.queries.joint_sensitivity import JointSensitivity, joint_sensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity


@dataclass(frozen=True, eq=False)
class QueryShare:
    """A query and its exact share of the geolevel's part of the budget.

    Attributes:
      query: The query.
      share: Exact, > 0.
      sensitivity_sq: Squared sensitivity that scales the noise of a query in a planned strategy.
        Such queries are charged jointly, for the worst neighbors, and `share` is a share of the
        joint cost. None for a query that is charged alone.
    """

    query: Query
    share: Fraction
    sensitivity_sq: Fraction | None = None


@dataclass(frozen=True, eq=False)
class LevelStrategy:
    """The measured queries of one geolevel.

    Attributes:
      geolevel: Name of the geolevel.
      share: The geolevel's exact share of the budget, share > 0.
      queries: Queries with shares that sum to exactly 1.

    Raises:
      BudgetError: A share is not positive, the query shares do not sum to 1, or some queries are
        charged jointly and others alone.
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
        total = sum((entry.share for entry in self.queries), Fraction(0))
        _require_whole(where, "the shares of its queries do not sum to 1", total)
        if len({entry.sensitivity_sq is None for entry in self.queries}) > 1:
            raise BudgetError(where, "charges some queries jointly and others separately")

    @cached_property
    def joint(self) -> JointSensitivity | None:
        """Return the exact joint cost of neighbors under a planned strategy of cost 1.

        None if every query is charged alone.
        """
        weights = tuple(
            entry.share / entry.sensitivity_sq  # 1 / (2 sigma^2) at cost 1
            for entry in self.queries
            if entry.sensitivity_sq is not None
        )
        return _search(tuple(entry.query for entry in self.queries), weights) if weights else None

    def check_joint_cost(self, neighbors: Neighbors) -> None:
        """Check that jointly charged queries cost at most the share of the geolevel.

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


def _require_whole(where: str, what: str, total: Fraction) -> None:
    if total != 1:
        raise BudgetError(where, what, got=f"{total} (about {float(total):.6f})", want="exactly 1")


_search = lru_cache(maxsize=64)(joint_sensitivity)  # geolevels often have the same queries


@dataclass(frozen=True, eq=False)
class Stratum:
    """A group of records with separate measurements.

    Attributes:
      group: The group; its name is the name of the stratum.
      levels: The measured queries of each geolevel, from the root down without a gap; further
        geolevels have no queries on the stratum.

    Raises:
      BudgetError: A query counts records of another group.
    """

    group: Group
    levels: tuple[LevelStrategy, ...]

    def __post_init__(self) -> None:
        for level in self.levels:
            for entry in level.queries:
                pairs = zip(entry.query.factors, self.group.allowed, strict=True)
                if any(factor.matrix[:, ~allowed].any() for factor, allowed in pairs):
                    raise BudgetError(
                        f"allocation, stratum {self.group.name}, query {entry.query.name}",
                        "counts records of other strata",
                    )

    @property
    def name(self) -> str:
        """Return the name of the stratum in ledgers."""
        return self.group.name


@dataclass(frozen=True, eq=False)
class Strategy:
    """The measured queries of every geolevel, root first; level shares sum to exactly 1.

    Attributes:
      levels: The population-wide queries of each geolevel.
      mechanism: Name of the mechanism; None for the default of the budget's definition.
      strata: Disjoint groups with separate measurements that contain every cell; may be empty.
      asks_last: Whether a chain of only children measures the queries and shares of its last
        geolevel, as in the Census Bureau's measurements. Otherwise those of its first geolevel.

    Raises:
      BudgetError: The population-wide level shares and those of a stratum do not sum to 1; strata
        overlap or leave cells out; or a geolevel measures a query twice.
    """

    levels: tuple[LevelStrategy, ...]
    mechanism: str | None = None
    strata: tuple[Stratum, ...] = ()
    asks_last: bool = False

    def __post_init__(self) -> None:
        for level, part in enumerate(self.levels):
            names = [entry.query.name for entry in self.measured(level)]
            where = f"allocation, geolevel {part.geolevel}"
            require_distinct(names, BudgetError, where, "lists a query twice")
        if self.strata:
            self._check_strata()
        for stratum in self.strata or (None,):
            total = self.chain_share(0, len(self.levels) - 1)
            where, what = "allocation", "the shares of the geolevels do not sum to 1"
            if stratum is not None:
                total += self.chain_share(0, len(self.levels) - 1, stratum)
                where = f"allocation, stratum {stratum.name}"
                what = "its shares and the population-wide shares do not sum to 1"
            _require_whole(where, what, total)

    def require_full_column_rank(self) -> None:
        """Check that queries determine every cell, so that node problems have a unique solution.

        Raises:
          BudgetError: The queries of a geolevel do not have full column rank.
        """
        for level, part in enumerate(self.levels):
            queries = [entry.query for entry in self.measured(level)]
            if not has_full_column_rank(queries):
                raise BudgetError(
                    f"allocation, geolevel {part.geolevel}",
                    "its queries do not have full column rank: some cell counts would be "
                    "undetermined",
                    got=[query.name for query in queries],
                    remedy="give detailed a share, or a weight among the tables of a workload, "
                    "however small",
                )

    def _check_strata(self) -> None:
        names = [level.geolevel for level in self.levels]
        for stratum in self.strata:
            measured = [level.geolevel for level in stratum.levels]
            if measured != names[: len(measured)]:
                raise BudgetError(
                    f"allocation, stratum {stratum.name}",
                    "must be measured from the root down without a gap: an only child passes its "
                    "share on to the geounit above it",
                    got=measured,
                    want=f"a beginning of {names}",
                    remedy="give it a share, however small, at every geolevel above its last one",
                )
        for first, second in itertools.combinations(self.strata, 2):
            if first.group.meets(second.group):
                raise BudgetError(
                    f"allocation, strata {first.name} and {second.name}",
                    "overlap: a record in both would cost the shares of both",
                )
        covered = sum(stratum.group.size for stratum in self.strata)
        cells = self.levels[0].queries[0].query.n_cells
        if covered != cells:
            raise BudgetError(
                "allocation, strata",
                "do not cover all cells of the schema",
                got=f"{covered} of {cells} cells",
            )

    def chain_share(self, first: int, last: int, stratum: Stratum | None = None) -> Fraction:
        """Return the sum of the level shares first..last, population-wide or of a stratum.

        A geounit that is an only child is not measured. Its share goes to the topmost geounit of
        the chain of only children, so that every root-to-leaf path still sums to 1.

        Args:
          first: First geolevel of the chain, numbered from 0, the root.
          last: Last geolevel of the chain.
          stratum: The stratum; None for the population-wide queries.
        """
        levels = self.levels if stratum is None else stratum.levels
        return sum((level.share for level in levels[first : last + 1]), Fraction(0))

    def parts(self, level: int) -> tuple[tuple[Stratum | None, LevelStrategy], ...]:
        """Return the population-wide queries (None) of a geolevel, then those of each stratum.

        Geolevels are numbered from 0, the root.
        """
        of_strata = ((s, s.levels[level]) for s in self.strata if level < len(s.levels))
        return (None, self.levels[level]), *of_strata

    def of_chain(self, first: int, last: int) -> tuple[tuple[Stratum | None, LevelStrategy], ...]:
        """Return the queries, by stratum, of a chain of only children over geolevels first..last.

        Raises:
          BudgetError: With `asks_last`, the last geolevel has other queries than the first.
        """
        of_first = self.parts(first)
        if first == last or not self.asks_last:
            return of_first
        of_last = self.parts(last)
        names = [[entry.query.name for entry in self.measured(level)] for level in (first, last)]
        if sorted(names[0]) != sorted(names[1]) or len(of_first) != len(of_last):
            raise BudgetError(
                f"allocation, geolevel {self.levels[last].geolevel}",
                "measures other queries than the first geolevel of its chains of only children",
                got=names[1],
                want=names[0],
            )

        def position(entry: QueryShare) -> int:
            return names[0].index(entry.query.name)

        return tuple(
            (stratum, replace(part, queries=tuple(sorted(part.queries, key=position))))
            for stratum, part in of_last
        )

    def measured(self, level: int) -> tuple[QueryShare, ...]:
        """Return all measured queries of geolevel `level`, from 0 for the root, strata included."""
        return tuple(entry for _, part in self.parts(level) for entry in part.queries)


def strategy_for(
    levels: Sequence[LevelStrategy],
    spine: Sequence[str],
    mechanism: str | None = None,
    strata: Sequence[tuple[Group, Sequence[LevelStrategy]]] = (),
) -> Strategy:
    """Build a strategy from level strategies in any order.

    Args:
      levels: Population-wide queries of the geolevels, in any order.
      spine: Names of geolevels, root first.
      mechanism: Name of the mechanism; None for the default of the budget's definition.
      strata: Groups with their level strategies, in any order.

    Raises:
      BudgetError: A geolevel of the spine has no strategy, or a geolevel is not on the spine.
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
    of_strata = [(group, {level.geolevel: level for level in some}) for group, some in strata]
    for where, named in [("allocation", by_name)] + [
        (f"allocation, stratum {group.name}", some) for group, some in of_strata
    ]:
        extra = [name for name in named if name not in spine]
        if extra:
            raise BudgetError(where, "names a geolevel the spine lacks", got=extra, want=[*spine])
    return Strategy(
        tuple(by_name[name] for name in spine),
        mechanism,
        tuple(
            Stratum(group, tuple(some[name] for name in spine if name in some))
            for group, some in of_strata
        ),
    )


@dataclass(frozen=True, eq=False)
class NoisyQuery:
    """A query with its exact noise in one class of geounits.

    Attributes:
      query: The query.
      share: Exact share of the geolevel's budget.
      level_share: Exact share of the budget of the chain of geolevels measured together.
      cost: Exact cost in the unit of the budget; in a planned strategy, a share of the joint cost.
      mechanism: The noise.
      sensitivity_sq: As in `QueryShare`.
      stratum: Name of the stratum whose records the query counts; empty if it counts all records.
    """

    query: Query
    share: Fraction
    level_share: Fraction
    cost: Fraction
    mechanism: Mechanism
    sensitivity_sq: Fraction | None = None
    stratum: str = ""


def noisy_queries(
    strategy: Strategy, budget: Budget, first: int, last: int
) -> tuple[NoisyQuery, ...]:
    """Return the noisy queries of a chain of only children over geolevels first..last.

    They are the queries of geolevel `first`, with the shares of geolevel `last` if `asks_last`. The
    budget is the sum of the budgets of all geolevels of the chain. Population-wide queries come
    first, then the queries stratum by stratum.

    Args:
      strategy: Queries and shares of all geolevels.
      budget: The total budget and its definition.
      first: First geolevel of the chain, numbered from 0, the root.
      last: Last geolevel of the chain.

    Raises:
      BudgetError: The budget's definition cannot charge the mechanism, or queries are charged
        jointly for noise whose cost is not proportional to squared sensitivities.
    """
    noise = choose_mechanism(budget.definition, strategy.mechanism)
    norm = noise.norms[budget.definition]
    out = []
    for stratum, level in strategy.of_chain(first, last):
        share = strategy.chain_share(first, last, stratum)
        name = "" if stratum is None else stratum.name
        for entry in level.queries:
            cost = budget.total * share * entry.share
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
                NoisyQuery(
                    entry.query, entry.share, share, cost, mechanism, entry.sensitivity_sq, name
                )
            )
    return tuple(out)


def moved_answers(strategy: Strategy, budget: Budget, chains: Iterable[Chain]) -> Measured:
    """Return the answers that one record moves in a geounit, by stratum and chain of geolevels.

    Args:
      strategy: Queries and shares of all geolevels.
      budget: The total budget and its definition.
      chains: First and last geolevel of every chain, numbered from 0, the root.

    Raises:
      BudgetError: A query that is charged alone is no partition.
    """

    def moved(own: Sequence[NoisyQuery], stratum: str) -> tuple[Shifts, ...]:
        part = [entry for entry in own if entry.stratum == stratum]
        if not part or part[0].sensitivity_sq is None:
            return tuple(unit_shift(entry.query, entry.mechanism) for entry in part)
        queries, noise = tuple(e.query for e in part), tuple(e.mechanism for e in part)
        return (JointShifts(queries, noise),)

    noisy = [(chain, noisy_queries(strategy, budget, *chain)) for chain in chains]
    return tuple(
        tuple((chain, moved(own, "") + (moved(own, name) if name else ())) for chain, own in noisy)
        for name in [stratum.name for stratum in strategy.strata] or [""]
    )
