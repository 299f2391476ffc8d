"""What `output.joined` of a product means: how records are put into units, and their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError
from das.queries.query import parse_query
from das.schema import Schema
from invariants.joining import NO_CODE, Order, Places, places_of
from invariants.linear import cells_in
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.models.products import JoinedConfig
from jobs.pipeline.config.product import Product

NUMBER = "number"


@dataclass(frozen=True, eq=False)
class Joining:
    """How the joined microdata of a product are made.

    Attributes:
      config: As stated.
      places: How many records of each type a unit holds.
      order: Who goes where, of those that may.
      units: The schema of the units.
      number: Name of the column with the number of the unit.
      columns: Names of the columns with the attributes of the unit, in the order of its schema.
    """

    config: JoinedConfig
    places: Places
    order: Order
    units: Schema
    number: str
    columns: tuple[str, ...]


def joined_settings(config: JoinedConfig) -> dict[str, object]:
    """What joined microdata of the same counts follow from, as JSON values."""
    return dict(config.model_dump(mode="json", exclude={"formats"}))


def joining_of(product: Product, products: Mapping[str, Product]) -> Joining | None:
    """How the joined microdata of a product are made; None if it has none.

    Args:
      product: With its ties.
      products: All of the run.

    Raises:
      ConfigError, SchemaError: Nothing ties it to units, what does leaves open how many records a
        unit holds, or a setting names what is unknown.
    """
    config, plan = product.config.output.joined, product.plan
    if config is None:
        return None
    ties = plan.limits.ties
    if ties is None:
        raise ConfigError(
            f"joined {product.name}",
            "are put into the units of another product, and nothing says which hold how many",
            remedy="state what the two must agree on under `between`",
        )
    if ties.geolevel != plan.leaf.name:
        raise ConfigError(
            f"joined {product.name}",
            "are put into the units of their leaf geounit",
            got=f"constraints at {ties.geolevel}",
            want=plan.leaf.name,
        )
    places = places_of(ties, product.name)
    units = products[places.product].plan.schema
    first = np.zeros(plan.schema.size, np.bool_)
    if config.adults:
        first = cells_in(plan.schema, config.adults, f"joined {product.name}.adults")
    number = f"{places.product}_{NUMBER}"
    columns = tuple(f"{places.product}_{one.name}" for one in units.attributes)
    names = ["geocode", number, *columns, *(one.name for one in plan.schema.attributes)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"joined {product.name}", "would have a column twice", got=twice)
    order = Order(first, *_codes(plan.schema, units, config.alike, product.name), config.seed)
    return Joining(config, places, order, units, number, columns)


def _codes(
    schema: Schema, units: Schema, alike: Sequence[str], name: str
) -> tuple[IntArray, IntArray]:
    """int64[k] codes of the cells of records by what is to be alike; int64[n] of cells of units."""
    own, theirs = np.zeros(schema.size, np.int64), np.zeros(units.size, np.int64)
    told: BoolArray = np.full(units.size, bool(alike))
    for axis in alike:
        what = "names what is no attribute or recode"
        refuse_unknown(f"joined {name}.alike", what, [axis], _axes(schema))
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
