"""Check a product of a run file against its schema, allocation and geography, as one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import NoReturn, TypeVar

from das.errors import ConfigError, DasError
from das.privacy.budget import Budget, total_from_epsilon
from das.queries.query import parse_query
from das.strategy import Strategy
from geography.lattice import Spine
from geography.respine import design_spine
from invariants.exact import Invariant
from jobs.pipeline.config.allocation import even_strategy, load_allocation
from jobs.pipeline.config.data import check_suffix
from jobs.pipeline.config.files import RunFile, named
from jobs.pipeline.config.frozen import read_frozen
from jobs.pipeline.config.groups import grouping
from jobs.pipeline.config.invariants import exact_queries, limits_of
from jobs.pipeline.config.models.data import NmfData, WithheldData
from jobs.pipeline.config.models.kinds.kind import KindConfig
from jobs.pipeline.config.models.products import BudgetConfig, ProductPrivacyConfig
from jobs.pipeline.config.models.run import PrivacyConfig, RunConfig
from jobs.pipeline.config.off_spine import refuse_off_spine
from jobs.pipeline.config.product import Product, entry_of, h1_query, tabulated
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.config.solvable import refuse_unsolvable
from jobs.pipeline.config.solve import (
    check_covariate,
    lazy_queries,
    rounding_passes,
    solving,
)
from jobs.pipeline.config.support import check_support, refuse_large
from jobs.pipeline.config.tables import table_query
from jobs.pipeline.config.target import budget_by_noise
from jobs.pipeline.config.workload import BudgetKind
from jobs.pipeline.plan import Plan, Solving, exact_query
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place

T = TypeVar("T")


@dataclass(frozen=True)
class Places:
    """Where the files of a product are.

    Attributes:
      release: Its publishable half.
      confidential: Its other half.
      planned: The strategies that were planned for it, if any.
    """

    release: ReleaseLayout
    confidential: ConfidentialLayout
    planned: Place


def resolve_product(
    config: RunConfig,
    name: str,
    file: RunFile,
    digest: str,
    before: Mapping[str, Product],
    places: Places,
) -> Product:
    """Check one product of a run.

    Args:
      config: The run, paths absolute.
      name: The product.
      file: The run file.
      digest: Digest of the whole run file.
      before: The products before it, whose exact answers may limit this one.
      places: Where its files are.
    """
    own, path = config.products[name], file.path
    place = len(config.products) - 1 - [*config.products].index(name)
    schema = load_schema(own.schema_)
    census = named(
        f"{path}: geography.levels",
        lambda: Spine(
            tuple(level.name for level in config.geography.levels),
            tuple(level.digits for level in config.geography.levels),
        ),
    )
    other = config.geography.spine
    spine = census
    if other is not None:
        spine = named(f"{path}: geography.spine", lambda: design_spine(census, other.design))
    privacy = config.privacy
    kind = BudgetKind(privacy.definition, privacy.neighbors)
    stated, levels = own.invariants, spine.levels
    counted = list(dict.fromkeys((*levels, *census.levels)))
    plans = {other: product.plan for other, product in before.items()}
    keys = f"{path}: products.{name}."
    attempt = _Attempts()
    if not isinstance(own.data, WithheldData):
        attempt(keys.rstrip(": ."), lambda: own.input.check(schema))
        attempt(f"{keys}data.path", own.input.check_path)
        attempt(keys.rstrip(": ."), lambda: own.input.check_digits(census.digits[-1]))
    public = config.geography.geounits
    if public is not None and not place:
        attempt(f"{path}: geography.geounits", partial(check_suffix, public.path))
    if other is not None and other.entities is not None and not place:
        named_file = f"{path}: geography.spine.entities"
        attempt(named_file, partial(check_suffix, other.entities.path))
    for index, entry in enumerate(stated):
        table = entry.public_table
        if table is not None:
            attempt(f"{keys}invariants.{index}.table", partial(check_suffix, table.path))
        if table is not None or entry.released_before is not None:
            attempt(f"{keys}invariants.{index}", partial(_refuse_parts, entry, spine, census))
    for geolevel, types in own.evaluate.areas.items():
        attempt(f"{keys}evaluate.areas.{geolevel}", partial(check_suffix, types.path))

    def allocated() -> Strategy:
        if own.privacy.allocation is not None:
            frozen = read_frozen(places.planned, digest)
            return load_allocation(own.privacy.allocation, schema, spine, kind, frozen)
        if file.wanted is None:
            raise ConfigError(
                f"{keys}privacy.allocation",
                "is required",
                remedy="das plan --optimize FILE makes one for the tables and the budget",
            )
        ordered = [text for passes in own.solve.order.values() for one in passes for text in one]
        named_queries = [*own.privacy.lazy_queries, *own.privacy.root_support, *ordered]
        return even_strategy(schema, spine, [*tabulated(own, schema), *file.wanted, *named_queries])

    is_elsewhere = isinstance(own.data, NmfData)
    asks_last = isinstance(own.data, NmfData) and own.data.chains == "last"
    strategy = attempt("", lambda: replace(allocated(), asks_last=asks_last))
    budget = attempt("", lambda: _product_budget(privacy, own.privacy, strategy, f"{keys}privacy"))

    def exact() -> tuple[Invariant, ...]:
        for index, entry in enumerate(stated):
            refuse_off_spine(f"{index}: geolevel", [entry.stated_at], levels, census.levels)
        return exact_queries(stated, schema, levels)

    def solved_how() -> Solving:
        for key in ("learned_prior", "order"):
            refuse_off_spine(key, getattr(own.solve, key), levels, census.levels)
        return solving(own.solve, schema, strategy())

    invariants = attempt(f"{keys}invariants", exact)
    limits = attempt(
        f"{keys}invariants",
        lambda: limits_of(stated, schema, levels, invariants(), partial(exact_query, plans)),
    )
    attempt(
        f"{keys}solve.housing_units",
        lambda: check_covariate(own.solve, strategy(), limits(), own.privacy.lazy_queries),
    )
    passes = attempt(
        f"{keys}solve",
        lambda: rounding_passes(schema, own.solve.rounding, [*invariants(), *limits().bound]),
    )
    solved = attempt(f"{keys}solve", solved_how)
    lazy = attempt(
        f"{keys}privacy.lazy_queries",
        lambda: lazy_queries(own.privacy.lazy_queries, own.solve, schema, strategy()),
    )
    support = attempt(
        f"{keys}privacy.root_support",
        lambda: tuple(parse_query(schema, text) for text in own.privacy.root_support),
    )
    h1 = own.output.h1
    if h1 is not None:
        attempt(f"{keys}output.h1", lambda: h1_query(schema, h1))
    for text, where in map(entry_of, own.output.tables or []):
        attempt(f"{keys}output.tables", partial(table_query, schema, text))
        attempt(f"{keys}output.tables", partial(_refuse_unknown, text, where or (), counted))
    asked = attempt(
        f"{keys}evaluate", lambda: grouping(own.evaluate, schema, levels, tabulated(own, schema))
    )
    shared = levels[: spine.shared_with(census)]
    attempt(f"{keys}evaluate.areas", partial(_refuse_areas, own.evaluate.areas, shared))
    attempt.refuse()
    seed = privacy.randomness.seed
    plan = Plan(
        schema,
        spine,
        strategy(),
        budget(),
        invariants(),
        passes(),
        solved(),
        privacy.randomness.source != "operating_system",
        digest,
        limits(),
        lazy(),
        support(),
        hashlib.sha256(own.solve.model_dump_json().encode()).hexdigest(),
        is_elsewhere,
        None if other is None else census,
    )
    named(f"{keys}privacy.root_support", partial(check_support, plan))
    named(str(path), partial(refuse_large, plan))
    named(str(path), partial(refuse_unsolvable, plan))
    return Product(
        name,
        f"{config.name}, {name}" if place else config.name,
        own,
        plan,
        places.release,
        places.confidential,
        asked(),
        # Streams are named by geocode and query: another key, or names would repeat.
        None if seed is None else seed + place,
    )


def budget_of(privacy: PrivacyConfig, own: BudgetConfig, where: str) -> Budget:
    """The budget that a run file states.

    Args:
      privacy: What it is counted in, and for which neighbors.
      own: The total.
      where: Keys of the file, for errors.

    Raises:
      ConfigError: It is stated in what the definition does not count.
    """
    definition = privacy.definition
    if definition.unit != "rho" and own.rho is not None:
        raise ConfigError(where, f"definition {definition} counts `{definition.unit}`, not `rho`")
    total = own.rho if own.rho is not None else own.epsilon or Fraction(0)
    if own.rho is None:
        total = named(where, lambda: total_from_epsilon(definition, total, privacy.delta))
    return named(where, lambda: Budget(total, privacy.delta, privacy.neighbors, definition))


def _product_budget(
    privacy: PrivacyConfig,
    own: ProductPrivacyConfig,
    strategy: Callable[[], Strategy],
    where: str,
) -> Budget:
    target = own.epsilon
    if target is None or own.epsilon_from == "rho":
        return budget_of(privacy, own, where)
    measured = strategy()
    return named(where, lambda: budget_by_noise(privacy, target, measured))


class _Attempts:
    """Builds the parts of a run one after the other, so that all mistakes are told at once."""

    def __init__(self) -> None:
        self._errors: list[DasError] = []

    def __call__(self, where: str, build: Callable[[], T]) -> Callable[[], T]:
        """Build a part; of one that needs a part with a mistake, nothing is said.

        Args:
          where: Where in the configuration it stands; empty if its errors say so.
          build: Makes it.

        Returns:
          A function that gives it.
        """
        try:
            value = named(where, build) if where else build()
        except _NotBuiltError:
            return _not_built
        except DasError as error:
            self._errors.append(error)
            return _not_built
        return lambda: value

    def refuse(self) -> None:
        """Raise all mistakes as one error, of the kind of the first.

        Raises:
          DasError: There are some.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            first, *others = self._errors
            own = str(first).removeprefix(f"{first.where}: ")
            raise type(first)(first.where, " | ".join([own, *map(str, others)]))


class _NotBuiltError(Exception):
    """A part that another needs has a mistake, which is told."""


def _not_built() -> NoReturn:
    raise _NotBuiltError


def _refuse_parts(entry: KindConfig, spine: Spine, census: Spine) -> None:
    """Refuse public counts of a geolevel whose geounits nobody else knows.

    Raises:
      ConfigError: The spine alone has the geolevel.
    """
    geolevel = entry.stated_at
    if geolevel in spine.levels and geolevel not in census.levels:
        raise ConfigError(
            "geolevel",
            "has geounits that are made by geography.spine, which no public counts name",
            got=geolevel,
            want=[name for name in spine.levels if name in census.levels],
        )


def _refuse_areas(areas: Mapping[str, object], shared: Sequence[str]) -> None:
    """Refuse types of geounits whose geocodes the spine of the run changes.

    Raises:
      ConfigError: There are some.
    """
    changed = [name for name in areas if name not in shared]
    if changed:
        raise ConfigError(
            "geolevel", "has other geocodes on the spine", got=changed[0], want=list(shared)
        )


def _refuse_unknown(table: str, geolevels: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in geolevels if name not in known]
    if unknown:
        raise ConfigError(
            f"table {table}", "names an unknown geolevel", got=unknown[0], want=[*known]
        )
