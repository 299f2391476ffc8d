"""What the section `between` of a run file means: ties of products, and rows on those before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from das.arrays import IntArray
from das.errors import ConfigError
from invariants.between import Form, Tie, caps_of, tie_types
from invariants.linear import LinearRow
from jobs.pipeline.config.files import named
from jobs.pipeline.config.hints import hints_of
from jobs.pipeline.config.joined import joining_of
from jobs.pipeline.config.models.between import BetweenConfig, SideConfig
from jobs.pipeline.config.models.kinds.row import coefficients_of
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.off_spine import refuse_off_spine
from jobs.pipeline.config.product import Product
from jobs.pipeline.config.solvable import refuse_unsolvable
from jobs.pipeline.config.support import check_support
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.place import Place

_TURNED = {"equals": "equals", "at_least": "at_most", "at_most": "at_least"}


def tied_products(
    config: RunConfig, path: Place, products: Mapping[str, Product]
) -> dict[str, Product]:
    """The products with what they must agree on among the limits of their plans.

    Args:
      config: The run.
      path: Its file, for errors.
      products: In the order of work.

    Raises:
      ConfigError, SchemaError: A constraint names what is unknown, cannot be kept by solving one
        product after the other, or might contradict others; or joined microdata are asked for of
        what cannot be joined.
    """
    tied = _tied_products(config, path, products) if config.between else dict(products)
    for name, product in tied.items():
        named(f"{path}: products.{name}.output", partial(joining_of, product, tied))
    return tied


def _tied_products(
    config: RunConfig, path: Place, products: Mapping[str, Product]
) -> dict[str, Product]:
    plans = {name: product.plan for name, product in products.items()}
    stated: dict[str, list[tuple[BetweenConfig, Tie]]] = {}
    for number, entry in enumerate(config.between):
        where = f"{path}: between.{number}"
        later, tie = named(where, partial(_tie, entry, plans))
        if any(entry.name == other.name for other in config.between[:number]):
            raise ConfigError(where, "has the name of another", got=entry.name)
        stated.setdefault(later, []).append((entry, tie))
    for later, entries in stated.items():
        plans = named(f"{path}: between", partial(_tied, later, entries, plans))
    for name, plan in plans.items():
        if plan is not products[name].plan:
            named(f"{path}: products.{name}", partial(check_support, plan))
            named(f"{path}: products.{name}", partial(refuse_unsolvable, plan))
    return {name: replace(product, plan=plans[name]) for name, product in products.items()}


def _tie(entry: BetweenConfig, plans: Mapping[str, Plan]) -> tuple[str, Tie]:
    """The product that a constraint binds, the later of the two, and the constraint."""
    order = [*plans]
    for name, side in (("left", entry.left), ("right", entry.right)):
        if side.product not in order:
            raise ConfigError(f"{name}.product", "is unknown", got=side.product, want=order)
    if entry.left.product == entry.right.product:
        raise ConfigError(
            "right.product",
            "is the left one",
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
            "comes later and is bound as integers, so each of its records may count once at most",
            got=f"coefficients {sorted({*counted.tolist()})}",
            remedy="put this product before the other one",
        )
    form = Form({other.product: _coefficients(other, plans)})
    least = form if relation in ("equals", "at_least") else None
    most = form if relation in ("equals", "at_most") else None
    return own.product, Tie(entry.name, counted == 1, least, most)


def _coefficients(side: SideConfig, plans: Mapping[str, Plan]) -> IntArray:
    return coefficients_of(side.row, plans[side.product].schema, f"row of {side.product}")


def _tied(
    later: str, stated: Sequence[tuple[BetweenConfig, Tie]], plans: Mapping[str, Plan]
) -> dict[str, Plan]:
    """The plans with the ties of a product, and what its exact answers demand of others."""
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
            "stand beside facilities",
            got=plan.limits.facilities.query.name,
            remedy="state what facilities hold as constraints too, at_least and at_most",
        )
    if plan.limits.bound:
        raise ConfigError(
            f"constraints of the {later}",
            "stand beside counts of an earlier release",
            got=[one.query.name for one in plan.limits.bound],
            want="one of both",
        )
    possible = np.zeros(plan.schema.size, np.bool_)
    possible[plan.limits.possible(plan.schema)] = True
    held = tuple(levels[: levels.index(geolevels.pop()) + 1])
    ties = tie_types([tie for _, tie in stated], held, possible)
    changed = dict(plans)
    folder = None if later == order[-1] else later
    before = order[: order.index(later)]
    rows: dict[str, list[LinearRow]] = {}
    for name, coefficients, at, cap in caps_of(folder, ties, plan.invariants, before):
        own = rows.setdefault(name, [])
        called = f"between {later} and {name}, {cap.query.name} {len(own)}"
        own.append(LinearRow(called, coefficients, at, None, None, cap))
    for name, own in rows.items():
        limits = plans[name].limits
        changed[name] = replace(plans[name], limits=replace(limits, stated=(*limits.stated, *own)))
    # Its counts follow from those of the others, and so do the settings that it is solved with.
    hinted = hints_of(folder, plan, ties)
    for name, hint in hinted.items():
        changed[name] = replace(changed[name], hints=(*changed[name].hints, hint))
    text = "".join((*(plans[name].solve_digest for name in before), plan.solve_digest))
    digest = hashlib.sha256(text.encode()).hexdigest()
    changed[later] = replace(plan, limits=replace(plan.limits, ties=ties), solve_digest=digest)
    return changed
