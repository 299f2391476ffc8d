"""Read what products have to do with each other: ties, rows, hints, and joined microdata."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.schema import Schema
from invariants.between import (
    CrossProductConstraint,
    CrossProductConstraints,
    Form,
    build_constraints,
    caps_of,
)
from invariants.joining import NO_CODE, JoinOrder, UnitBounds, unit_bounds
from invariants.linear import LinearRow, cells_in
from jobs.pipeline.config.mistakes import at, refuse_off_spine, refuse_unknown
from jobs.pipeline.config.models.kinds.row import coefficients_of
from jobs.pipeline.config.models.products import JoinedConfig
from jobs.pipeline.config.models.run import BetweenConfig, RunConfig, SideConfig
from jobs.pipeline.config.product import Product
from jobs.pipeline.plan import Hint, Plan, plan_terms, why_no_estimates
from jobs.pipeline.storage.place import Place

NUMBER = "number"  # of the unit, in the names of columns of joined microdata
_MOST_ANSWERS = 200  # of a query that is estimated: of each kind of geounit their covariances
_TURNED = {"equals": "equals", "at_least": "at_most", "at_most": "at_least"}


def tied_products(
    config: RunConfig, path: Place, products: Mapping[str, Product]
) -> dict[str, Product]:
    """Return the products, with the cross-product constraints among the limits of their plans.

    Args:
      config: The run.
      path: Path of the run file, for errors.
      products: The products by name, in the order of work.

    Raises:
      ConfigError, SchemaError: A constraint names something unknown, cannot be kept by solving one
        product after the other, or might contradict another constraint.
    """
    plans = {name: product.plan for name, product in products.items()}
    stated: dict[str, list[tuple[BetweenConfig, CrossProductConstraint]]] = {}
    for number, entry in enumerate(config.cross_product_constraints):
        with at(f"{path}: cross_product_constraints.{number}"):
            later, tie = _tie(entry, plans)
        if any(entry.name == other.name for other in config.cross_product_constraints[:number]):
            raise ConfigError(
                f"{path}: cross_product_constraints.{number}",
                "has the same name as another constraint",
                got=entry.name,
            )
        stated.setdefault(later, []).append((entry, tie))
    with at(f"{path}: cross_product_constraints"):
        for later, entries in stated.items():
            plans = _tied(later, entries, plans)
    return {name: replace(product, plan=plans[name]) for name, product in products.items()}


def _tie(entry: BetweenConfig, plans: Mapping[str, Plan]) -> tuple[str, CrossProductConstraint]:
    """Return the later product of a constraint, which it binds, and the constraint."""
    order = [*plans]
    for name, side in (("left", entry.left), ("right", entry.right)):
        refuse_unknown(f"{name}.product", "is unknown", [side.product], order)
    if entry.left.product == entry.right.product:
        raise ConfigError(
            "right.product",
            "is the same product as on the left side",
            got=entry.right.product,
            remedy="state a row among the invariants of that product",
        )
    own, other, relation = entry.left, entry.right, str(entry.relation)
    if order.index(own.product) < order.index(other.product):
        own, other, relation = entry.right, entry.left, _TURNED[entry.relation]
    counted = _coefficients(own, plans)
    if not np.isin(counted, (0, 1)).all():
        raise ConfigError(
            f"product {own.product}",
            "comes later in the run file, so each of its records may count at most once",
            got=f"coefficients {sorted({*counted.tolist()})}",
            remedy="put this product before the other one",
        )
    form = Form({other.product: _coefficients(other, plans)})
    least = form if relation in ("equals", "at_least") else None
    most = form if relation in ("equals", "at_most") else None
    return own.product, CrossProductConstraint(entry.name, counted == 1, least, most)


def _coefficients(side: SideConfig, plans: Mapping[str, Plan]) -> IntArray:
    return coefficients_of(side.row, plans[side.product].schema, f"row of {side.product}")


def _tied(
    later: str,
    stated: Sequence[tuple[BetweenConfig, CrossProductConstraint]],
    plans: Mapping[str, Plan],
) -> dict[str, Plan]:
    """Return the plans with the constraints of a product, and the demands of its exact answers."""
    plan, order = plans[later], [*plans]
    geolevels, levels = {entry.geolevel for entry, _ in stated}, plan.spine.levels
    refuse_off_spine(
        f"constraints of the {later}", sorted(geolevels), levels, plan.census_spine.levels
    )
    if len(geolevels) > 1 or not geolevels <= {*levels}:
        raise ConfigError(
            f"constraints of the {later}",
            "do not hold at one geolevel",
            got=sorted(geolevels),
            want=f"one of {list(levels)}",
        )
    if plan.limits.facilities is not None:
        raise ConfigError(
            f"constraints of the {later}",
            "cannot be combined with facilities",
            got=plan.limits.facilities.query.name,
            remedy="state what facilities hold as constraints too, at_least and at_most",
        )
    if plan.limits.pinned:
        raise ConfigError(
            f"constraints of the {later}",
            "cannot be combined with counts of an earlier release",
            got=[one.query.name for one in plan.limits.pinned],
            want="one of both",
        )
    possible = np.zeros(plan.schema.size, np.bool_)
    possible[plan.limits.possible(plan.schema)] = True
    held = tuple(levels[: levels.index(geolevels.pop()) + 1])
    ties = build_constraints([tie for _, tie in stated], held, possible)
    changed = dict(plans)
    before = order[: order.index(later)]
    rows: dict[str, list[LinearRow]] = {}
    for name, coefficients, geolevel, cap in caps_of(later, ties, plan.invariants, before):
        own = rows.setdefault(name, [])
        called = f"between {later} and {name}, {cap.query.name} {len(own)}"
        own.append(LinearRow(called, coefficients, geolevel, None, None, cap))
    for name, own in rows.items():
        limits = plans[name].limits
        changed[name] = replace(plans[name], limits=replace(limits, stated=(*limits.stated, *own)))
    # Its counts follow from those of the others, and so do the settings that it is solved with.
    hinted = _hints_of(later, plan, ties)
    for name, hint in hinted.items():
        changed[name] = replace(changed[name], hints=(*changed[name].hints, hint))
    text = "".join((*(plans[name].solve_digest for name in before), plan.solve_digest))
    digest = hashlib.sha256(text.encode()).hexdigest()
    changed[later] = replace(plan, limits=replace(plan.limits, ties=ties), solve_digest=digest)
    return changed


def _hints_of(later: str, plan: Plan, ties: CrossProductConstraints) -> dict[str, Hint]:
    """Return pseudo-measurements of the later product about earlier ones, by earlier product.

    The result is empty if the later product has no estimates, or no small estimated query
    distinguishes the types. An earlier product is left out unless it alone bounds a type, by one
    lower and one upper bound.

    Args:
      later: Name of the later product.
      plan: Plan of the later product.
      ties: Cross-product constraints that bind the later product.
    """
    if why_no_estimates(plan) is not None:
        return {}
    query = _telling(plan, ties)
    if query is None:
        return {}
    types = ties.query.codes
    type_of = np.zeros(query.size, np.int64)
    type_of[query.rows_of(np.arange(plan.schema.size))] = types
    bounds: dict[str, dict[int, tuple[IntArray, IntArray]]] = {}
    for one, (lows, highs) in enumerate(zip(ties.least, ties.most, strict=True)):
        names = {name for form in (*lows, *highs) for name in form.parts}
        if len(lows) == 1 and len(highs) == 1 and len(names) == 1:
            (name,) = names
            bounds.setdefault(name, {})[one] = lows[0].parts[name], highs[0].parts[name]
    out = {}
    for name, own in bounds.items():
        tied = [np.unique(types[tie.cells]).tolist() for tie in ties.entries]
        sets = {(one,) for one in own} | {tuple(some) for some in tied if {*some} <= {*own}}
        least, most = (np.array([own[one][side] for one in own]) for side in (0, 1))
        out[name] = Hint(
            later,
            plan,
            query,
            np.array([type_of == one for one in own]).astype(np.int64),
            np.array([[one in some for one in own] for some in sorted(sets)]).astype(np.int64),
            least,
            most > least,
        )
    return out


def _telling(plan: Plan, ties: CrossProductConstraints) -> Query | None:
    """Return the smallest estimated query of the product that distinguishes its types."""
    cells, types = np.arange(plan.schema.size), ties.query.codes
    terms = plan_terms(plan)
    names = {query.name: query for level in plan.levels for query in level.queries}
    for axis in plan.schema.attributes:
        query = parse_query(plan.schema, axis.name)
        names.setdefault(query.name, query)
    for query in sorted(names.values(), key=lambda one: one.size):
        if not query.is_partition or query.size > _MOST_ANSWERS:
            continue
        if not all(one.determines(query) for one in terms):
            continue
        pairs = np.unique(np.stack([query.rows_of(cells), types]), axis=1)
        if pairs.shape[1] == len(np.unique(pairs[0])):
            return query
    return None


# --- joined microdata ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Joining:
    """How the joined microdata of a product are made.

    Attributes:
      config: The section `output.joined` of the product.
      places: Bounds on the number of records of each type in a unit.
      order: Order in which records that may share a unit are assigned.
      units: The schema of the units.
      number: Name of the column with the number of the unit.
      columns: Names of the columns with the attributes of the unit, in the order of its schema.
    """

    config: JoinedConfig
    places: UnitBounds
    order: JoinOrder
    units: Schema
    number: str
    columns: tuple[str, ...]


def joined_settings(config: JoinedConfig) -> dict[str, object]:
    """Return the settings on which joined microdata depend, as JSON values."""
    return config.model_dump(mode="json", exclude={"file_formats"})


def joining_of(product: Product, products: Mapping[str, Product]) -> Joining | None:
    """Return how the joined microdata of a product are made; None if the run file requests none.

    Args:
      product: The product of the records, with its cross-product constraints.
      products: All products of the run, by name.

    Raises:
      ConfigError, SchemaError: No cross-product constraint connects the records with units, the
        constraints leave open how many records a unit holds, or a setting names something unknown.
    """
    config, plan = product.config.output.joined, product.plan
    if config is None:
        return None
    ties = plan.limits.ties
    if ties is None:
        raise ConfigError(
            f"joined {product.name}",
            "need constraints with the product of the units, and there are none",
            remedy="state what the two must agree on under `cross_product_constraints`",
        )
    if ties.geolevel != plan.leaf.name:
        raise ConfigError(
            f"joined {product.name}",
            "need constraints at the last geolevel, where records are put into units",
            got=f"constraints at {ties.geolevel}",
            want=plan.leaf.name,
        )
    places = unit_bounds(ties, product.name)
    units = products[places.product].plan.schema
    first = np.zeros(plan.schema.size, np.bool_)
    if config.householder_first:
        where = f"joined {product.name}.householder_first"
        first = cells_in(plan.schema, config.householder_first, where)
    number = f"{places.product}_{NUMBER}"
    columns = tuple(f"{places.product}_{one.name}" for one in units.attributes)
    names = ["geocode", number, *columns, *(one.name for one in plan.schema.attributes)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"joined {product.name}", "would have two columns of the same name", got=twice
        )
    order = JoinOrder(
        first, *_codes(plan.schema, units, config.match_on, product.name), config.seed
    )
    return Joining(config, places, order, units, number, columns)


def _codes(
    schema: Schema, units: Schema, match_on: Sequence[str], name: str
) -> tuple[IntArray, IntArray]:
    """Return int64[k] and int64[n], codes of record cells and unit cells by the matched axes."""
    own, theirs = np.zeros(schema.size, np.int64), np.zeros(units.size, np.int64)
    told: BoolArray = np.full(units.size, bool(match_on))
    for axis in match_on:
        what = "names an unknown attribute or recode"
        refuse_unknown(f"joined {name}.match_on", what, [axis], _axes(schema))
        query = parse_query(schema, axis)
        labels = {label: code for code, label in enumerate(query.labels())}
        own = own * len(labels) + query.rows_of(np.arange(schema.size))
        codes = np.full(units.size, NO_CODE)
        if axis in _axes(units):
            other = parse_query(units, axis)
            of_labels = np.array([labels.get(label, NO_CODE) for label in other.labels()])
            codes = of_labels[other.rows_of(np.arange(units.size))]
        told &= codes != NO_CODE
        theirs = theirs * len(labels) + codes
    return own, np.where(told, theirs, NO_CODE)


def _axes(schema: Schema) -> list[str]:
    return [*(one.name for one in schema.attributes), *(one.name for one in schema.recodes)]
