"""Allocation files as strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from das.errors import ConfigError, SchemaError
from das.queries.group import Group
from das.queries.query import groups_of, names_groups, parse_query, restricted
from das.schema import Schema
from das.strategy import LevelStrategy, QueryShare, Strategy, strategy_for
from geography.lattice import Spine
from jobs.pipeline.config.files import named, read_model
from jobs.pipeline.config.models.allocation import (
    AllocationFile,
    LevelAllocation,
    StrataAllocation,
    WorkloadConfig,
)
from jobs.pipeline.config.workload import (
    ZCDP_BOUNDED,
    BudgetKind,
    is_planned,
    plan_group_shares,
    plan_shares,
)
from jobs.pipeline.storage.place import Place


def _shares(schema: Schema, level: LevelAllocation, kind: BudgetKind) -> tuple[QueryShare, ...]:
    if level.workload is not None:
        return plan_shares(schema, level.workload, kind)
    shares = []
    for text, share in (level.queries or {}).items():
        query = parse_query(schema, text)
        if not query.is_partition or names_groups(schema, query):
            raise SchemaError(
                f"query {query.name}",
                "cannot be measured: it does not count every cell exactly once"
                if not query.is_partition
                else "cannot be measured: the schema has no such groups",
                remedy="use total, detailed, attributes and recodes; functions of them are for "
                "output.tables",
            )
        shares.append(QueryShare(query, share))
    return tuple(shares)


def _own_level(
    schema: Schema,
    group: Group,
    named_level: tuple[str, LevelAllocation],
    kind: BudgetKind,
    known: tuple[QueryShare, ...] | None,
) -> LevelStrategy:
    """What a geolevel measures of a stratum: its queries, of the stratum's records alone."""
    name, level = named_level

    def shares() -> tuple[QueryShare, ...]:
        if level.workload is not None:
            return plan_group_shares(schema, group, level.workload, kind)
        every = _shares(schema, level, kind)
        return tuple(QueryShare(restricted(entry.query, group), entry.share) for entry in every)

    return LevelStrategy(name, level.share, known or named(f"geolevel {name}", shares))


def _strata(schema: Schema, wanted: StrataAllocation) -> dict[str, Group]:
    """The groups of the strata by label.

    Raises:
      SchemaError: They overlap.
      ConfigError: There is one group in all, one is unknown, or one has no allocation.
    """
    groups = {group.label: group for group in groups_of(schema, parse_query(schema, wanted.query))}
    where = f"strata by {wanted.query}"
    if len(groups) < 2:
        raise ConfigError(where, "needs two answers at least", got=len(groups))
    unknown = [label for label in wanted.levels if label not in groups]
    if unknown:
        raise ConfigError(where, "names an unknown stratum", got=unknown, want=list(groups))
    missing = [label for label in groups if not wanted.levels.get(label)]
    if missing:
        raise ConfigError(
            where,
            "has a stratum without an allocation: its records would cost less than was granted",
            got=missing,
            remedy="give each stratum a share and queries at the root at least",
        )
    return groups


def planned_parts(strategy: Strategy) -> dict[str, tuple[QueryShare, ...]]:
    """What of a strategy was planned: by geolevel, or by geolevel and stratum."""
    return {
        _part(part.geolevel, stratum.group if stratum is not None else None): part.queries
        for level in range(len(strategy.levels))
        for stratum, part in strategy.parts(level)
        if part.joint is not None or any(is_planned(entry.query) for entry in part.queries)
    }


def _part(geolevel: str, group: Group | None) -> str:
    return geolevel if group is None else f"{geolevel} where {group.name}"


def planned_workload(path: Place, geolevel: str) -> WorkloadConfig | None:
    """What a geolevel of an allocation file is planned for; None if its queries are listed.

    Raises:
      ConfigError: The file cannot be used.
    """
    return read_model(path, AllocationFile).levels[geolevel].workload


def even_strategy(schema: Schema, spine: Spine, texts: Sequence[str]) -> Strategy:
    """Equal shares of geolevels, and in each of `detailed` and of every table that can be measured.

    It is where the search for an allocation begins if there is none.

    Raises:
      SchemaError: A table is not a query on the schema.
    """
    every = [parse_query(schema, text) for text in (*texts, "detailed")]
    queries = {query.name: query for query in every if query.is_partition and query.is_listed}
    shares = tuple(QueryShare(query, Fraction(1, len(queries))) for query in queries.values())
    share = Fraction(1, len(spine.levels))
    return strategy_for(
        [LevelStrategy(level, share, shares) for level in spine.levels], spine.levels
    )


def load_allocation(
    path: Place,
    schema: Schema,
    spine: Spine,
    kind: BudgetKind = ZCDP_BOUNDED,
    frozen: Mapping[str, tuple[QueryShare, ...]] | None = None,
) -> Strategy:
    """Read an allocation file for a schema and a spine.

    Args:
      path: The file.
      schema: The schema its queries are about.
      spine: The geolevels it must name.
      kind: Definition and neighbors of the budget that pays; planned strategies depend on them.
      frozen: What was planned before, as `planned_parts` has it; it is not planned again.

    Raises:
      ConfigError, SchemaError, BudgetError: It cannot be used.
    """
    model = read_model(path, AllocationFile)
    kind = replace(kind, mechanism=model.mechanism)

    def build() -> Strategy:
        named("mechanism", lambda: kind.noise)
        levels, strata = [], []
        for name, level in model.levels.items():
            known = (frozen or {}).get(name) if level.workload is not None else None
            shares = known or named(f"geolevel {name}", partial(_shares, schema, level, kind))
            levels.append(LevelStrategy(name, level.share, shares))
        if model.strata is not None:
            for label, group in _strata(schema, model.strata).items():
                own = []
                for name, level in model.strata.levels[label].items():
                    key = _part(name, group) if level.workload is not None else ""
                    known = (frozen or {}).get(key)
                    part = partial(_own_level, schema, group, (name, level), kind, known)
                    own.append(named(f"stratum {label}", part))
                strata.append((group, own))
        return strategy_for(levels, spine.levels, model.mechanism, strata)

    return named(str(path), build)
