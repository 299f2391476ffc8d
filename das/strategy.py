"""Strategy: which queries are measured at which geolevel, with which exact share of the budget.

Beside the queries that count everybody, a strategy may have strata: disjoint groups of cells with
queries and shares of their own. A record lies on one path of geounits and in one stratum, so what
strata spend does not add up: a path is a list of geounits and a stratum, and each costs what its
geounits spend on everybody and on that stratum.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from das.errors import BudgetError
from das.mechanisms.mechanism import Mechanism, Norm
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
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
      BudgetError: A share is not positive, the query shares do not sum to 1, or some queries are
        charged together and others for themselves.
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


def _require_whole(where: str, what: str, total: Fraction) -> None:
    if total != 1:
        raise BudgetError(where, what, got=f"{total} (about {float(total):.6f})", want="exactly 1")


@lru_cache(maxsize=64)
def _search(queries: tuple[Query, ...], weights: tuple[Fraction, ...]) -> JointSensitivity:
    """Search once for geolevels that measure the same queries."""
    return joint_sensitivity(queries, weights)


@dataclass(frozen=True, eq=False)
class Stratum:
    """What is measured of the records of one group alone.

    Attributes:
      group: The group; it names the stratum.
      levels: What each geolevel measures of it, from the root down without a gap; geolevels
        further down measure nothing of it.

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
        """What ledgers call it."""
        return self.group.name


@dataclass(frozen=True, eq=False)
class Strategy:
    """The measured queries of every geolevel, root first; level shares sum to exactly 1.

    Attributes:
      levels: What each geolevel measures of everybody.
      mechanism: Name of the noise; None for the default of the definition that the budget counts.
      strata: What is measured of disjoint groups, which hold every cell; none for a strategy that
        measures everybody alike.
      asks_last: Whether a chain of only children is asked the queries of its last geolevel, with
        its shares, as in the Census Bureau's measurements; else those of its first.

    Raises:
      BudgetError: The level shares do not sum to 1, for every stratum together with its own; strata
        overlap or leave out cells; or a geolevel measures a query twice.
    """

    levels: tuple[LevelStrategy, ...]
    mechanism: str | None = None
    strata: tuple[Stratum, ...] = ()
    asks_last: bool = False

    def __post_init__(self) -> None:
        for level, part in enumerate(self.levels):
            names = [entry.query.name for entry in self.measured(level)]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                where = f"allocation, geolevel {part.geolevel}"
                raise BudgetError(where, "lists a query twice", got=twice)
        if self.strata:
            self._check_strata()
        for stratum in self.strata or (None,):
            total = self.chain_share(0, len(self.levels) - 1)
            where, what = "allocation", "the shares of the geolevels do not sum to 1"
            if stratum is not None:
                total += self.chain_share(0, len(self.levels) - 1, stratum)
                where = f"allocation, stratum {stratum.name}"
                what = "its shares and those for everybody do not sum to 1"
            _require_whole(where, what, total)

    def require_full_column_rank(self) -> None:
        """Refuse queries that do not determine every cell: node problems have no unique solution.

        Raises:
          BudgetError: The queries of a geolevel do not have full column rank.
        """
        for level, part in enumerate(self.levels):
            queries = [entry.query for entry in self.measured(level)]
            if not has_full_column_rank(queries):
                raise BudgetError(
                    f"allocation, geolevel {part.geolevel}",
                    "its queries do not have full column rank: some counts of cells would stay "
                    "open",
                    got=[query.name for query in queries],
                    remedy="give detailed a share, or a weight among the tables of a workload, "
                    "however small",
                )

    def _check_strata(self) -> None:
        names = [level.geolevel for level in self.levels]
        for stratum in self.strata:
            own = [level.geolevel for level in stratum.levels]
            if own != names[: len(own)]:
                raise BudgetError(
                    f"allocation, stratum {stratum.name}",
                    "must be measured from the root down without a gap: an only child passes its "
                    "share on to the geounit above it",
                    got=own,
                    want=f"a beginning of {names}",
                    remedy="give it a share, however small, at every geolevel above its last one",
                )
        for one, other in itertools.combinations(self.strata, 2):
            if one.group.meets(other.group):
                raise BudgetError(
                    f"allocation, strata {one.name} and {other.name}",
                    "overlap: a record in both would cost the shares of both",
                )
        held = sum(stratum.group.size for stratum in self.strata)
        cells = self.levels[0].queries[0].query.n_cells
        if held != cells:
            raise BudgetError(
                "allocation, strata", "leave out cells", got=f"{held} of {cells} cells"
            )

    def chain_share(self, first: int, last: int, stratum: Stratum | None = None) -> Fraction:
        """Sum of the level shares first..last, of everybody's queries or those of a stratum.

        A geounit that is an only child is not measured; its share goes to the topmost geounit of
        the chain of only children, so that every root-to-leaf path still sums to 1.
        """
        levels = self.levels if stratum is None else stratum.levels
        return sum((level.share for level in levels[first : last + 1]), Fraction(0))

    def parts(self, level: int) -> tuple[tuple[Stratum | None, LevelStrategy], ...]:
        """What a geolevel measures of everybody, first, and of each stratum that it measures."""
        own = ((one, one.levels[level]) for one in self.strata if level < len(one.levels))
        return (None, self.levels[level]), *own

    def asked(self, first: int, last: int) -> tuple[tuple[Stratum | None, LevelStrategy], ...]:
        """What a geounit is asked whose chain of only children spans geolevels first..last.

        Raises:
          BudgetError: The last geolevel of the chain asks other queries than the first.
        """
        own = self.parts(first)
        if first == last or not self.asks_last:
            return own
        theirs = self.parts(last)
        names = [[entry.query.name for entry in self.measured(level)] for level in (first, last)]
        if sorted(names[0]) != sorted(names[1]) or len(own) != len(theirs):
            raise BudgetError(
                f"allocation, geolevel {self.levels[last].geolevel}",
                "asks other queries than the geolevel on which its chains of only children begin",
                got=names[1],
                want=names[0],
            )
        place = {name: index for index, name in enumerate(names[0])}

        def position(entry: QueryShare) -> int:
            return place[entry.query.name]

        return tuple(
            (stratum, replace(part, queries=tuple(sorted(part.queries, key=position))))
            for stratum, part in theirs
        )

    def measured(self, level: int) -> tuple[QueryShare, ...]:
        """All that a geolevel measures, each query with its share of its part."""
        return tuple(entry for _, part in self.parts(level) for entry in part.queries)


def strategy_for(
    levels: Sequence[LevelStrategy],
    spine: Sequence[str],
    mechanism: str | None = None,
    strata: Sequence[tuple[Group, Sequence[LevelStrategy]]] = (),
) -> Strategy:
    """Order level strategies as the spine, root first.

    Args:
      levels: What geolevels measure of everybody, in any order.
      spine: Names of geolevels, root first.
      mechanism: Name of the noise; None for the default of the definition that is charged.
      strata: Groups, and what geolevels measure of each, in any order.

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
    own = [(group, {level.geolevel: level for level in some}) for group, some in strata]
    for where, named in [("allocation", by_name)] + [
        (f"allocation, stratum {group.name}", some) for group, some in own
    ]:
        extra = [name for name in named if name not in spine]
        if extra:
            raise BudgetError(where, "names a geolevel the spine lacks", got=extra, want=[*spine])
    return Strategy(
        tuple(by_name[name] for name in spine),
        mechanism,
        tuple(
            Stratum(group, tuple(some[name] for name in spine if name in some))
            for group, some in own
        ),
    )


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
      stratum: Name of the stratum whose records alone it counts; empty if it counts everybody.
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
    """Resolve what a geounit measures whose chain of only children spans geolevels first..last.

    It asks the queries of geolevel `first`, or with `asks_last` with the shares of geolevel `last`;
    its budget is that of all geolevels of the chain. What
    counts everybody comes first, then stratum by stratum.

    Raises:
      BudgetError: The noise cannot be charged in the budget's definition, or queries are charged
        together for noise whose cost is not proportional to squared sensitivities.
    """
    noise = choose_mechanism(budget.definition, strategy.mechanism)
    norm = noise.norms[budget.definition]
    out = []
    for stratum, level in strategy.asked(first, last):
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
