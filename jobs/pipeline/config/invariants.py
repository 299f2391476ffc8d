"""What the section `invariants` of a run file means: exact queries, and limits of other kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from das.errors import ConfigError
from das.queries.query import Query
from das.schema import Schema
from invariants.constraints import Limits
from invariants.exact import Invariant, check_invariants
from invariants.limit import Limit
from jobs.pipeline.config.mistakes import at
from jobs.pipeline.config.models.kinds.kind import KindConfig, Setting
from jobs.pipeline.config.models.kinds.registry import KINDS


def exact_queries(
    entries: Sequence[KindConfig], schema: Schema, spine: Sequence[str]
) -> tuple[Invariant, ...]:
    """The exact queries among the invariants, checked.

    Raises:
      SchemaError, ConfigError: One is unknown, or two cross; or the table of one lacks answers.
    """
    setting = Setting(schema, spine, _no_other_product)
    built = list[Limit]()
    for index, entry in enumerate(entries):
        if entry.is_exact_query:
            with at(str(index)):
                built += entry.build(setting)
    invariants = tuple(one for one in built if isinstance(one, Invariant))
    check_invariants(invariants)
    return invariants


def limits_of(
    entries: Sequence[KindConfig],
    schema: Schema,
    spine: Sequence[str],
    invariants: Sequence[Invariant],
    exact: Callable[[str, str, str], Query],
) -> Limits:
    """The other invariants, checked.

    Args:
      entries: The section.
      schema: Attributes and cells.
      spine: Geolevels, root first.
      invariants: The exact queries.
      exact: Gives the exact query of a product, by the names of product, query and geolevel.

    Raises:
      SchemaError, ConfigError: One cannot be used; the message says which.
    """
    setting = Setting(schema, spine, exact)
    built: dict[type[KindConfig], list[Limit]] = {kind: [] for kind in (*KINDS[1:], KINDS[0])}
    for index, entry in enumerate(entries):
        if entry.is_exact_query:
            continue
        own = built[type(entry)]
        if own and entry.limit.is_single:
            raise ConfigError(f"{index}.{entry.key}", "are stated twice")
        with at(str(index)):
            own += entry.build(setting)
    stated = tuple(one for kind, own in built.items() for one in kind.limit.joined(own))
    for limit in stated:
        limit.check(stated, invariants)
    return Limits(stated)


def _no_other_product(product: str, query: str, geolevel: str) -> Query:
    raise ConfigError(f"product {product}", "is not asked for exact queries", got=query)
