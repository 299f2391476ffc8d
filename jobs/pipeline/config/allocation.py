"""Allocation files as strategies, and planned strategies as they are kept with a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from das.errors import ConfigError, DasError, OutputError, SchemaError
from das.mechanisms.registry import choose_mechanism
from das.queries.factor import Factor
from das.queries.group import Group
from das.queries.query import Query, groups_of, names_groups, parse_query, restricted
from das.rational import stated_fraction
from das.schema import Schema
from das.strategy import LevelStrategy, QueryShare, Strategy, strategy_for
from geography.lattice import Spine
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.mistakes import at, refuse_unknown
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
    name_with_matrices,
    plan_group_shares,
    plan_shares,
)
from jobs.pipeline.storage.files import create_file, json_text, read_json, understanding
from jobs.pipeline.storage.place import Place

_SHARES = [field.name for field in fields(QueryShare) if field.name != "query"]
_AGAIN = "restore it from a backup; the measurements name the same matrices"


def _level(
    schema: Schema,
    group: Group | None,
    named_level: tuple[str, LevelAllocation],
    kind: BudgetKind,
    frozen: Mapping[str, tuple[QueryShare, ...]],
) -> LevelStrategy:
    """Return the queries and shares of a geolevel.

    Args:
      schema: The schema.
      group: The stratum whose records are measured; None for all records.
      named_level: Name of the geolevel, and its section of the allocation file.
      kind: Privacy definition and neighbors of the budget.
      frozen: Queries and shares that an earlier start planned, by part.
    """
    name, level = named_level
    known = frozen.get(_part(name, group)) if level.workload is not None else None
    if known is not None:
        return LevelStrategy(name, level.share, known)
    with at(f"geolevel {name}"):
        if level.workload is None:
            shares = _listed(schema, group, level.queries or {})
        elif group is None:
            shares = plan_shares(schema, level.workload, kind)
        else:
            shares = plan_group_shares(schema, group, level.workload, kind)
    return LevelStrategy(name, level.share, shares)


def _listed(
    schema: Schema, group: Group | None, queries: Mapping[str, Fraction]
) -> tuple[QueryShare, ...]:
    shares = []
    for text, share in queries.items():
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
        shares.append(QueryShare(query if group is None else restricted(query, group), share))
    return tuple(shares)


def _strata(schema: Schema, wanted: StrataAllocation) -> dict[str, Group]:
    """Return the groups of the strata by label.

    Raises:
      SchemaError: Two strata overlap.
      ConfigError: The query has a single group, or a group is unknown or has no allocation.
    """
    groups = {group.label: group for group in groups_of(schema, parse_query(schema, wanted.query))}
    where = f"strata by {wanted.query}"
    if len(groups) < 2:
        raise ConfigError(where, "needs at least two answers", got=len(groups))
    refuse_unknown(where, "names an unknown stratum", wanted.levels, groups)
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
    """Return the planned parts of a strategy, by geolevel or by geolevel and stratum."""
    return {
        _part(part.geolevel, stratum.group if stratum is not None else None): part.queries
        for level in range(len(strategy.levels))
        for stratum, part in strategy.parts(level)
        if part.joint is not None or any(is_planned(entry.query) for entry in part.queries)
    }


def _part(geolevel: str, group: Group | None) -> str:
    return geolevel if group is None else f"{geolevel} where {group.name}"


def planned_workload(path: Place, geolevel: str) -> WorkloadConfig | None:
    """Return the workload for which a geolevel is planned; None if its queries are listed.

    Raises:
      ConfigError: The file cannot be used.
    """
    return read_model(path, AllocationFile).levels[geolevel].workload


def even_strategy(schema: Schema, spine: Spine, texts: Sequence[str]) -> Strategy:
    """Return equal shares of geolevels and, in each, of `detailed` and every measurable table.

    A table can be measured if it counts every cell exactly once. The search for an allocation
    begins with these shares if the product names no allocation.

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
    frozen: Callable[[], Mapping[str, tuple[QueryShare, ...]]] | None = None,
    model: AllocationFile | None = None,
) -> Strategy:
    """Read an allocation file for a schema and a spine.

    Args:
      path: The allocation file.
      schema: The schema of the queries in the file.
      spine: The geolevels that the file must name.
      kind: Privacy definition and neighbors of the budget; planned strategies depend on them.
      frozen: Returns queries and shares that an earlier start planned, as `planned_parts` does.
        Called only if the file has something to plan.
      model: Content of the file, if it was read before.

    Raises:
      ConfigError, SchemaError, BudgetError: The allocation file cannot be used.
    """
    model = model or read_model(path, AllocationFile)
    kind = replace(kind, mechanism=model.mechanism)
    of_strata = model.strata.levels.values() if model.strata is not None else ()
    stated = [level for levels in (model.levels, *of_strata) for level in levels.values()]
    has_workload = any(level.workload is not None for level in stated)
    known = frozen() if frozen is not None and has_workload else {}
    with at(str(path)):
        if model.mechanism is not None:
            with at("mechanism"):
                choose_mechanism(kind.definition, model.mechanism)
        levels = [_level(schema, None, named, kind, known) for named in model.levels.items()]
        strata = []
        if model.strata is not None:
            for label, group in _strata(schema, model.strata).items():
                with at(f"stratum {label}"):
                    named_levels = model.strata.levels[label].items()
                    own = [_level(schema, group, named, kind, known) for named in named_levels]
                strata.append((group, own))
        return strategy_for(levels, spine.levels, model.mechanism, strata)


# --- frozen strategies ---------------------------------------------------------------------------
# Planning computes in floats, and another machine or library may round otherwise. So the integer
# queries and shares of a folder are written when it is first planned, and read back by all that
# works on it later: the run that goes on, solving, verifying, estimating.


def freeze(path: Place, digest: str, levels: Mapping[str, Sequence[QueryShare]]) -> None:
    """Write the planned queries and shares, unless an earlier start wrote equal ones.

    Args:
      path: The file.
      digest: Digest of the configuration that was planned.
      levels: Queries and shares of every planned part. The key is the name of the geolevel; for a
        stratum it continues with " where " and the name of the stratum.

    Raises:
      OutputError: The file cannot be written, or another start wrote a different plan meanwhile.
    """
    factors: dict[str, int] = {}
    described = {
        name: [_described(share, factors) for share in shares] for name, shares in levels.items()
    }
    document = {
        "configuration_digest": digest,
        "factors": [json.loads(text) for text in factors],
        "levels": described,
    }
    text = json_text(document)
    if not create_file(path, text) and path.read_text(encoding="utf-8") != text:
        what = "holds another plan than the one just made"
        raise OutputError(str(path), what, remedy="start again: it is read then")


def read_frozen(path: Place, digest: str) -> dict[str, tuple[QueryShare, ...]]:
    """Read the planned queries and shares of a configuration; empty if the file has none of it.

    Returns:
      Queries and shares by part, with the keys of the argument `levels` of `freeze`.

    Raises:
      OutputError: The file is damaged, or its store does not answer.
    """
    with understanding(path):
        if not path.is_file():
            return {}
    document = read_json(path, _AGAIN)
    if document.get("configuration_digest") != digest:
        return {}
    try:
        factors = [
            Factor(np.array(one["matrix"], np.int64), tuple(one["labels"]))
            for one in document["factors"]
        ]
        return {
            name: tuple(_share(entry, factors) for entry in entries)
            for name, entries in document["levels"].items()
        }
    except (DasError, ArithmeticError, KeyError, IndexError, TypeError, ValueError) as error:
        raise OutputError(str(path), "is damaged", got=error, remedy=_AGAIN) from None


def _described(share: QueryShare, factors: dict[str, int]) -> dict[str, Any]:
    """Describe one query for the plan file; equal factors get one number in `factors`."""
    numbers = []
    for factor in share.query.factors:
        text = json.dumps({"labels": list(factor.labels), "matrix": factor.matrix.tolist()})
        numbers.append(factors.setdefault(text, len(factors)))
    values = {name: getattr(share, name) for name in _SHARES}
    exact = {name: None if value is None else str(value) for name, value in values.items()}
    return {"query": share.query.name, "factors": numbers, **exact}


def _share(entry: Mapping[str, Any], factors: Sequence[Factor]) -> QueryShare:
    parts = tuple(factors[number] for number in entry["factors"])
    name = str(entry["query"])
    if name != name_with_matrices(name.partition(" #")[0], parts):
        raise ValueError(f"the matrices of {name}")
    exact = {key: None if entry[key] is None else stated_fraction(entry[key]) for key in _SHARES}
    return QueryShare(Query(name, parts), **exact)  # type: ignore[arg-type]
