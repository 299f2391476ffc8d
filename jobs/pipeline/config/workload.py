"""Planned strategies: from the tables that should be accurate to the queries that are measured."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from das.definition import Definition
from das.errors import BudgetError, SchemaError
from das.mechanisms.mechanism import Mechanism, Norm
from das.mechanisms.registry import choose_mechanism
from das.queries.column_rank import has_full_column_rank
from das.queries.factor import Factor, FactorKind, identity, partition, prefix, ranges, total
from das.queries.group import Group
from das.queries.query import Query, parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Recode, Schema
from das.strategy import QueryShare
from das.tree.curvature import least_eigenvalue
from das.workload.choices import LossKind, Method
from das.workload.workload import AttributeWorkload, BaseKind, Workload
from jobs.pipeline.config.models.allocation import ConvexLossConfig, WorkloadConfig

if TYPE_CHECKING:
    from das.workload.losses import Loss
    from das.workload.variances import StrategyRows

# What a configuration may ask of an attribute by name; recodes have names of their own.
_FACTORS: dict[str, Callable[[tuple[str, ...]], Factor]] = {
    BaseKind.IDENTITY: identity,
    BaseKind.PREFIX: prefix,
    BaseKind.RANGES: ranges,
}
_DIGEST_DIGITS = 8
_MOST_ENTRY = 1024  # of a row in a run file; rounded strategies have 14 bits
_LEAST_EIGENVALUE = 1e-9  # of what all queries say, over the precision of one cell at all of rho


@dataclass(frozen=True)
class BudgetKind:
    """Properties of the budget on which a planned strategy depends.

    Attributes:
      definition: Privacy definition, which determines the unit of costs.
      neighbors: Neighboring relation for which the costs hold.
      mechanism: Name of the noise; None for the default of the definition.
    """

    definition: Definition
    neighbors: Neighbors
    mechanism: str | None = None

    @property
    def noise(self) -> type[Mechanism]:
        """Return the noise mechanism of the measurements.

        Raises:
          BudgetError: The mechanism is unknown, or has no cost in the privacy definition.
        """
        return choose_mechanism(self.definition, self.mechanism)


METHODS_OF_L1 = (Method.HDMM, Method.AUTO)
"""Methods that plan for noise that costs in proportion to L1 sensitivities; auto is HDMM there."""

ZCDP_BOUNDED = BudgetKind(Definition.ZCDP, Neighbors.BOUNDED)


def plan_shares(schema: Schema, wanted: WorkloadConfig, kind: BudgetKind) -> tuple[QueryShare, ...]:
    """Plan what one geolevel measures.

    The result is a function of its arguments up to the rounding of floats, which may differ from
    one machine to another. So the result is kept with the run folder
    (`jobs.pipeline.config.allocation`), and the name of a planned query ends in a digest of its
    matrices: a run that is continued with other matrices is refused by its ledger.

    Args:
      schema: The schema.
      wanted: Tables with weights, bases of attributes, the planner and its loss.
      kind: Definition and neighbors of the budget.

    Where noise costs in proportion to squared sensitivities, queries are charged together. Where it
    costs in proportion to L1 sensitivities, as under pure differential privacy, HDMM alone has a
    theory, and each of its queries is charged for itself.

    Returns:
      Integer queries over the whole schema with exact shares that sum to 1.

    Raises:
      SchemaError: A table or base is unknown, or the method cannot plan the workload.
      BudgetError: The method knows only noise that costs in proportion to squared sensitivities.
    """
    norm = kind.noise.norms[kind.definition]
    if norm is Norm.L1 and wanted.method not in METHODS_OF_L1:
        raise BudgetError(
            f"workload, method {wanted.method}",
            "supports only noise whose cost is proportional to squared sensitivities",
            got=f"{kind.noise.title} noise under {kind.definition}",
            want=" or ".join(METHODS_OF_L1),
            remedy="plan with hdmm, or list `queries` with shares",
        )
    return _plan(schema, wanted.model_dump_json(), kind.neighbors, norm)


def plan_group_shares(
    schema: Schema, group: Group, wanted: WorkloadConfig, kind: BudgetKind
) -> tuple[QueryShare, ...]:
    """Plan what one geolevel measures of a group of records, over the levels they may have.

    As `plan_shares`; a base that is a recode keeps the groups that have such a level.

    Returns:
      Integer queries over the whole schema whose columns outside of the group are zero.
    """
    inside = [np.flatnonzero(allowed) for allowed in group.allowed]
    attributes = tuple(
        Attribute(one.name, tuple(one.levels[level] for level in levels.tolist()))
        for one, levels in zip(schema.attributes, inside, strict=True)
    )
    recodes = []
    for recode in schema.recodes:
        axis = [one.name for one in schema.attributes].index(recode.attribute)
        kept, codes = np.unique(np.array(recode.codes)[inside[axis]], return_inverse=True)
        groups = tuple(recode.groups[code] for code in kept.tolist())
        recodes.append(Recode(recode.name, recode.attribute, groups, tuple(codes.tolist())))
    own = Schema(f"{schema.name} where {group.name}", attributes, tuple(recodes))
    shares = []
    for entry in plan_shares(own, wanted, kind):
        factors = []
        for axis, factor in enumerate(entry.query.factors):
            matrix = np.zeros((len(factor.matrix), schema.attributes[axis].size), np.int64)
            matrix[:, inside[axis]] = factor.matrix
            is_summed = factor.kind is FactorKind.TOTAL and group.labels[axis]
            factors.append(Factor(matrix, (group.labels[axis],) if is_summed else factor.labels))
        name = f"{entry.query.name.partition(' #')[0]} where {group.name}"
        query = Query(name_with_matrices(name, factors), tuple(factors))
        shares.append(QueryShare(query, entry.share, entry.sensitivity_sq))
    return tuple(shares)


def _refuse_flat(shares: Sequence[QueryShare], power: int) -> None:
    """Refuse queries that determine some counts only up to rounding errors of floats.

    Args:
      shares: The queries, each with its share of the budget.
      power: Exponent: the precision of a query is proportional to its share to this power.
    """
    queries = [entry.query for entry in shares]
    if not has_full_column_rank(queries):
        return  # the strategy says so, and which
    precision = least_eigenvalue(queries, [float(entry.share) ** power for entry in shares])
    if precision < _LEAST_EIGENVALUE:
        raise BudgetError(
            "workload",
            "determines some counts of cells only up to rounding errors",
            got=f"relative precision {precision:.1e}",
            want=f"at least {_LEAST_EIGENVALUE:.0e}",
            remedy="give detailed a larger weight",
        )


@lru_cache(maxsize=64)
def _plan(schema: Schema, text: str, neighbors: Neighbors, norm: Norm) -> tuple[QueryShare, ...]:
    """Plan a workload, cached so that geolevels with equal workloads get the same queries."""
    from das.workload.plan import plan_workload
    from das.workload.pure import plan_pure

    wanted = WorkloadConfig.model_validate_json(text)
    workload = read_workload(schema, wanted)
    loss = plan_loss(wanted.loss, workload, positions_of(schema, wanted, workload))
    if norm is Norm.L1:
        pure = plan_pure(workload, loss)
        pairs = zip(pure.queries, pure.shares, strict=True)
        shares = tuple(QueryShare(_over_schema(schema, query), share) for query, share in pairs)
        _refuse_flat(shares, 2)
        return shares
    plan = plan_workload(workload, wanted.method, loss, neighbors=neighbors)
    if wanted.shares is not None:
        plan = replace(plan, strategy=_with_shares(plan.strategy, wanted.shares))
    shares = tuple(
        QueryShare(_over_schema(schema, planned.query), planned.rho, planned.sensitivity)
        for planned in plan.measure_exactly(Fraction(1)).queries()
    )
    _refuse_flat(shares, 1)
    return shares


def _with_shares(strategy: StrategyRows, shares: Mapping[str, Fraction]) -> StrategyRows:
    """Replace the noise of a residual planner by given parts of the cost of its sets.

    Raises:
      SchemaError: The sets are not those of the planner, or a share is not positive.
    """
    from das.workload.residual.plan import ResidualPlan

    if not isinstance(strategy, ResidualPlan):
        return strategy  # the model refuses shares for planners without residual sets
    attributes, sets = strategy.workload.attributes, strategy.residuals.rows
    names = [" * ".join(attributes[i].name for i in members) or "total" for members in sets]
    if {*shares} != {*names} or min(shares.values()) <= 0:
        raise SchemaError(
            "workload, shares",
            "must be positive, one for each set of attributes",
            got=list(shares),
            want=names,
        )
    parts = np.array([float(shares[name]) for name in names])
    return replace(strategy, noise=strategy.set_costs / parts)


def read_workload(schema: Schema, wanted: WorkloadConfig) -> Workload:
    """Read the tables over attributes with several levels, with bases and weights.

    Raises:
      SchemaError: A table or base is unknown or cannot be planned for.
    """
    unknown = [name for name in wanted.bases if name not in {a.name for a in schema.attributes}]
    if unknown:
        raise SchemaError("workload, bases", "names an unknown attribute", got=unknown)
    attributes = [
        read_attribute(schema, attribute, wanted.bases.get(attribute.name, [BaseKind.IDENTITY]))
        for attribute in schema.attributes
        if attribute.size > 1
    ]
    if not attributes:
        raise SchemaError(
            "workload",
            "has nothing to plan: every attribute of the schema has one level",
            remedy="list `queries` with shares instead of a workload",
        )
    rows = {attribute.name: attribute.n_rows for attribute in attributes}
    marginals: dict[tuple[frozenset[str], int], tuple[list[str], float]] = {}
    stated: list[set[str]] = []
    for table, weight in wanted.tables.items():
        if weight < 0:
            raise SchemaError(f"workload, table {table}", "has a negative weight", got=weight)
        names = _axes(schema, table)
        # Tables that differ in attributes of one level alone are one; a table twice is a mistake.
        twice = sum({*names} == other for other in stated)
        stated.append({*names})
        kept = [name for name in names if name in rows]
        size = np.prod([rows[name] for name in kept], dtype=float)
        key = (frozenset(kept), twice)
        _, before = marginals.get(key, (kept, 0.0))
        marginals[key] = (kept, before + float(weight) / size)
    kept_of = [kept for kept, _ in marginals.values()]
    return Workload.of_marginals(attributes, kept_of, [weight for _, weight in marginals.values()])


def plan_loss(
    given: LossKind | ConvexLossConfig, workload: Workload, position: Mapping[str, int]
) -> Loss:
    """Return the loss, with the parameters of tables in the order of the marginals.

    Args:
      given: The loss of the run file.
      workload: Marginals with weights.
      position: Flat index of the marginal of every table, by its text.

    Raises:
      SchemaError: The loss is not convex, or its parameters do not fit the tables.
    """
    from das.workload.losses import LargestRatio, PowerMean, WorstMean

    if isinstance(given, LossKind):
        return given
    if given.power_mean is not None:
        return PowerMean(float(given.power_mean))
    if given.variance_limits is not None:
        limits = np.zeros(workload.marginals.size)
        for table, number in _stated("variance_limits", position, given.variance_limits).items():
            one = position[table]
            limits[one] = min(limits[one] or math.inf, number)
        return LargestRatio(limits)
    means = np.zeros((len(given.max_weighted_mean or ()), workload.marginals.size))
    for mean, weights in zip(means, given.max_weighted_mean or (), strict=True):
        for table, number in _stated("max_weighted_mean", position, weights).items():
            mean[position[table]] += number
        if not mean.any():
            raise SchemaError(
                "workload, loss, max_weighted_mean", "has a mean without a positive weight"
            )
        mean /= mean.sum()
    return WorstMean(means)


def positions_of(schema: Schema, wanted: WorkloadConfig, workload: Workload) -> dict[str, int]:
    """Return the index of the marginal of each table, ignoring attributes with one level."""
    place = {attribute.name: i for i, attribute in enumerate(workload.attributes)}
    found = {}
    for table in wanted.tables:
        members = sorted(place[name] for name in _axes(schema, table) if name in place)
        found[table] = int(workload.marginals.positions(np.array([members], np.int64))[0])
    return found


def _stated(
    key: str, position: Mapping[str, int], numbers: Mapping[str, Fraction]
) -> dict[str, float]:
    """Return the parameter of each table that a loss names, as floats.

    Raises:
      SchemaError: A table is not in the workload, or a number is negative.
    """
    unknown = [table for table in numbers if table not in position]
    if unknown:
        raise SchemaError(
            f"workload, loss, {key}",
            "names a table that is not among `tables`",
            got=unknown,
            want=f"some of {list(position)}",
        )
    for table, number in numbers.items():
        if number < 0:
            raise SchemaError(f"workload, loss, {key}, {table}", "is negative", got=number)
    return {table: float(number) for table, number in numbers.items()}


def _axes(schema: Schema, table: str) -> list[str]:
    """Return the attributes of a table, which must not be recodes or functions."""
    parse_query(schema, table)
    if table.strip() == "total":
        return []
    if table.strip() == "detailed":
        return [attribute.name for attribute in schema.attributes]
    names = [name.strip() for name in table.split("*")]
    plain = {attribute.name for attribute in schema.attributes}
    other = [name for name in names if name not in plain]
    if other:
        raise SchemaError(
            f"workload, table {table}",
            "may name only attributes",
            got=other,
            remedy="list recodes of an attribute under `bases`, not in the name of a table",
        )
    return names


def read_attribute(
    schema: Schema, attribute: Attribute, bases: Sequence[str | list[int]]
) -> AttributeWorkload:
    """Return the base matrix of an attribute: a regular one, or its bases stacked.

    Raises:
      SchemaError: As `stack_bases`; or the rows do not determine the total.
    """
    if len(bases) == 1 and isinstance(bases[0], str) and bases[0] in _FACTORS:
        return AttributeWorkload(attribute.name, BaseKind(bases[0]), attribute.size)
    return AttributeWorkload.from_matrix(
        attribute.name, stack_bases(schema, attribute, bases).matrix
    )


def stack_bases(schema: Schema, attribute: Attribute, bases: Sequence[str | list[int]]) -> Factor:
    """Return what tables ask of an attribute: the rows of its bases, with their labels.

    Raises:
      SchemaError: There is none, one is unknown, or a row does not fit.
    """
    parts = [
        _base(schema, attribute, base) if isinstance(base, str) else _row(attribute, base)
        for base in bases
    ]
    if not parts:
        raise SchemaError(f"workload, base of {attribute.name}", "is empty")
    if len(parts) == 1:
        return parts[0]
    labels = tuple(label for part in parts for label in part.labels)
    return Factor(np.concatenate([part.matrix for part in parts]), labels)


def _row(attribute: Attribute, row: Sequence[int]) -> Factor:
    """Read one row of integers of a run file."""
    where = f"workload, base of {attribute.name}"
    if len(row) != attribute.size:
        raise SchemaError(
            where,
            "has a row that does not fit",
            got=f"{len(row)} integers",
            want=f"{attribute.size}, one per level",
        )
    if not any(row) or max(map(abs, row)) > _MOST_ENTRY:
        raise SchemaError(
            where,
            "has a row that cannot be used",
            got=f"{list(row)!s:.60}",
            want=f"integers from -{_MOST_ENTRY} to {_MOST_ENTRY}, not all 0",
        )
    return Factor(np.array([row], np.int64), (" ".join(map(str, row)),))


def _base(schema: Schema, attribute: Attribute, base: str) -> Factor:
    if base in _FACTORS:
        return _FACTORS[base](attribute.levels)
    for recode in schema.recodes:
        if (recode.name, recode.attribute) == (base, attribute.name):
            return partition(recode.groups, recode.codes)
    known = [recode.name for recode in schema.recodes if recode.attribute == attribute.name]
    raise SchemaError(
        f"workload, base of {attribute.name}",
        "is unknown",
        got=base,
        want=f"one of {[*map(str, _FACTORS), *known]}, or a list of integers",
    )


def _over_schema(schema: Schema, query: Query) -> Query:
    """Return the query with attributes of one level added, and a digest of matrices in its name."""
    planned = iter(query.factors)
    factors = tuple(
        next(planned) if attribute.size > 1 else total(attribute.levels)
        for attribute in schema.attributes
    )
    return Query(name_with_matrices(query.name, factors), factors)


def is_planned(query: Query) -> bool:
    """Return whether the name of a query ends in the digest of its matrices."""
    name = query.name.partition(" #")[0]
    return query.name != name and query.name == name_with_matrices(name, query.factors)


def name_with_matrices(name: str, factors: Sequence[Factor]) -> str:
    """Return the name of a planned query, with a digest of its matrices except for the total."""
    if name == "total":
        return name
    digest = hashlib.sha256()
    for factor in factors:
        digest.update(repr(factor.matrix.shape).encode() + factor.matrix.tobytes())
    return f"{name} #{digest.hexdigest()[:_DIGEST_DIGITS]}"
