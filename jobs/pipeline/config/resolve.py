"""Check the products of a run file against their schemas, allocations and the geography."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement

from pydantic_core import to_json

from das.errors import BudgetError, ConfigError
from das.privacy.budget import Budget, group_total, total_from_epsilon
from das.privacy.target import rho_from_noise
from das.queries.query import Query, parse_query
from das.schema import Schema
from das.strategy import Strategy, moved_answers
from geography.lattice import Spine
from geography.respine import design_spine
from invariants.constraint import Constraint
from invariants.constraints import Constraints
from invariants.exact import Invariant, check_invariants
from jobs.pipeline.config.allocation import even_strategy, load_allocation, read_frozen
from jobs.pipeline.config.between import tied_products
from jobs.pipeline.config.data import check_suffix
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.learned import digests_of, load_learned, solve_document
from jobs.pipeline.config.mistakes import Mistakes, at, refuse_off_spine, refuse_unknown
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.models.data import NmfData, WithheldData
from jobs.pipeline.config.models.kinds.kind import KindConfig, Setting
from jobs.pipeline.config.models.kinds.registry import KINDS
from jobs.pipeline.config.models.products import BudgetConfig, SolveConfig
from jobs.pipeline.config.models.run import PrivacyConfig, RunConfig
from jobs.pipeline.config.models.schema import SchemaFile
from jobs.pipeline.config.product import (
    Product,
    grouping,
    h1_query,
    table_entries,
)
from jobs.pipeline.config.schema import load_schema, read_schema
from jobs.pipeline.config.workload import BudgetKind
from jobs.pipeline.plan import Covariate, Plan, Solving, exact_query
from jobs.pipeline.storage.layout import ReleaseLayout, confidential_layout
from jobs.pipeline.storage.place import Place

NamedFiles = Mapping[str, tuple[SchemaFile, AllocationFile | None]]
"""Schema and allocation of each product of a run file, by its name."""


@dataclass(frozen=True)
class RunFile:
    """A run file whose products are checked.

    Attributes:
      path: Path of the file.
      config: Content of the file, with absolute paths.
      named: Schemas and allocations of the products.
      digest: Digest of the settings that determine the measurements.
      not_for_release: Whether the noise follows from a public seed.
      measured: Layout of the release that the measurements belong to.
      release: Layout of this release, or of a further solution of the same measurements.
      solution: Name of the further solution, if any.
      wanted: Tables to measure in a product without an allocation, by product; None if every
        product must name an allocation.
    """

    path: Place
    config: RunConfig
    named: NamedFiles
    digest: str
    not_for_release: bool
    measured: ReleaseLayout
    release: ReleaseLayout
    solution: str | None = None
    wanted: Mapping[str, Sequence[str]] | None = None


def read_named(config: RunConfig) -> NamedFiles:
    """Read the schemas and allocations of a run file, paths absolute.

    Raises:
      ConfigError, SchemaError: A file cannot be read, or does not fit its model.
    """
    named = {}
    for name, product in config.products.items():
        schema, path = read_schema(product.schema_), product.privacy.allocation
        named[name] = schema, None if path is None else read_model(path, AllocationFile)
    return named


def resolve_products(file: RunFile) -> dict[str, Product]:
    """Check all products of a run, in the order of work.

    Raises:
      DasError: A product cannot be used; all mistakes of the first such product are named.
    """
    geography, products = file.config.geography, dict[str, Product]()
    with at(f"{file.path}: geography.levels"):
        census = Spine(
            tuple(level.name for level in geography.levels),
            tuple(level.digits for level in geography.levels),
        )
    spine = census
    if geography.spine is not None:
        with at(f"{file.path}: geography.spine"):
            spine = design_spine(census, geography.spine.design)
    for name in file.config.products:
        product = _resolve(file, name, spine, census, products)
        for other in products.values():
            if other.account_name == product.account_name:
                raise ConfigError(
                    f"{file.path}: {other.keys}privacy.product",
                    f"is also that of the {name}",
                    got=other.account_name,
                )
        products[name] = product
    return (
        tied_products(file.config, file.path, products)
        if file.config.cross_product_constraints
        else products
    )


def _resolve(
    file: RunFile, name: str, spine: Spine, census: Spine, before: Mapping[str, Product]
) -> Product:
    """Check one product.

    Args:
      file: The run file.
      name: The product.
      spine: Geolevels that are measured and solved.
      census: Geolevels of the geocodes of the data.
      before: The earlier products by name, whose exact answers may limit this one.
    """
    config, own = file.config, file.config.products[name]
    privacy, keys, levels = config.privacy, f"{file.path}: products.{name}.", spine.levels
    schema, folder = load_schema(own.schema_, file.named[name][0]), file.measured.folders[name]
    place = len(config.products) - 1 - [*config.products].index(name)
    mistakes = Mistakes()
    _check_files(file, name, schema, spine, census, mistakes)
    with mistakes.at():
        budget = budget_of(privacy, own.privacy, f"{keys}privacy")
        if own.privacy.protects == "household" and own.privacy.household_size is not None:
            unit = group_total(budget.definition, Fraction(1), own.privacy.household_size)
            budget = replace(budget, total=budget.total / unit)
    with mistakes.at():
        strategy = _strategy(file, name, schema, spine)
        if own.privacy.epsilon_from == "noise" and own.privacy.epsilon is not None:
            with mistakes.at(f"{keys}privacy"):
                budget = budget_by_noise(privacy, own.privacy.epsilon, strategy)
    with mistakes.at(f"{keys}solve"):
        for key in ("empirical_bayes", "l2_passes"):
            refuse_off_spine(key, getattr(own.solve, key), levels, census.levels)
            refuse_unknown(key, "names an unknown geolevel", getattr(own.solve, key), levels)
        solving = _solving(own.solve, schema)
    with mistakes.at(f"{keys}solve"):
        passes = tuple(
            tuple(parse_query(schema, text) for text in one) for one in own.solve.rounding_passes
        )
    with mistakes.at(f"{keys}privacy.on_demand_queries"):
        on_demand = frozenset(
            parse_query(schema, text).name for text in own.privacy.on_demand_queries
        )
    with mistakes.at(f"{keys}privacy.root_support_passes"):
        support = tuple(parse_query(schema, text) for text in own.privacy.root_support_passes)
    with mistakes.at(f"{keys}invariants"):
        for index, entry in enumerate(own.invariants):
            refuse_off_spine(f"{index}: geolevel", [entry.stated_at], levels, census.levels)
        exact = partial(exact_query, {other: product.plan for other, product in before.items()})
        invariants, limits = read_invariants(own.invariants, Setting(schema, levels, exact))
    if own.output.h1 is not None:
        with mistakes.at(f"{keys}output.h1"):
            h1_query(schema, own.output.h1)
    known = dict.fromkeys((*levels, *census.levels))
    tabulated = dict[str, Query]()
    for index, (text, where) in enumerate(table_entries(own.output, schema)):
        with mistakes.at(f"{keys}output.tables.{index}"):
            tabulated[text] = parse_query(schema, text)
            refuse_unknown(f"table {text}", "names an unknown geolevel", where or (), known)
    with mistakes.at(f"{keys}evaluate"):
        asked = grouping(own.evaluate, schema, levels, tabulated.values())
    mistakes.refuse()
    if own.solve.learned is not None:
        with at(f"{keys}solve.learned"):
            learned = load_learned(own.solve.learned, digests_of(*file.named[name], budget, limits))
            solving = replace(solving, learned=learned)
    plan = Plan(
        schema,
        spine,
        strategy,
        budget,
        invariants,
        passes,
        solving,
        file.not_for_release,
        file.digest,
        limits,
        on_demand,
        support,
        solve_digest=solve_digest(own.solve),
        is_elsewhere=isinstance(own.data, NmfData),
        census=None if spine is census else census,
        household_size=own.privacy.household_size,
    )
    # Streams are named by geocode and query: another key for each product, or names would repeat.
    seed = privacy.randomness.seed
    return Product(
        name,
        f"{config.name}, {name}" if place else config.name,
        own,
        plan,
        file.release.product(name),
        confidential_layout(config.output.roots, file.solution, folder),
        tabulated,
        asked,
        None if seed is None else seed + place,
    )


def solve_digest(solve: SolveConfig) -> str:
    """Return the SHA-256 of the section `solve`."""
    return hashlib.sha256(to_json(solve_document(solve))).hexdigest()


def _check_files(
    file: RunFile, name: str, schema: Schema, spine: Spine, census: Spine, mistakes: Mistakes
) -> None:
    """Check the keys about the input of a product and about public files; no file is opened."""
    own, geography = file.config.products[name], file.config.geography
    product = f"{file.path}: products.{name}"
    if not isinstance(own.data, WithheldData):
        with mistakes.at(product):
            own.input.check(schema)
        with mistakes.at(f"{product}.data.path"):
            own.input.check_path()
        with mistakes.at(product):
            own.input.check_digits(census.digits[-1])
    public = {} if geography.geounits is None else {"geounits": geography.geounits.path}
    if geography.spine is not None and geography.spine.entities is not None:
        public["spine.entities"] = geography.spine.entities.path
    if name == [*file.config.products][-1]:  # once for all products
        for key, path in public.items():
            with mistakes.at(f"{file.path}: geography.{key}"):
                check_suffix(path)
    for index, entry in enumerate(own.invariants):
        table, key = entry.public_table, f"{product}.invariants.{index}"
        if table is not None:
            with mistakes.at(f"{key}.table"):
                check_suffix(table.path)
        if table is not None or entry.released_before is not None:
            with mistakes.at(key):
                what = "has geounits that are made by geography.spine, which no public counts name"
                known = [level for level in spine.levels if level in census.levels]
                named = [level for level in spine.levels if level == entry.stated_at]
                refuse_unknown("geolevel", what, named, known)
    for geolevel, types in own.evaluate.areas.items():
        with mistakes.at(f"{product}.evaluate.areas.{geolevel}"):
            check_suffix(types.path)


def _strategy(file: RunFile, name: str, schema: Schema, spine: Spine) -> Strategy:
    """Read the allocation of a product; without one, make equal shares."""
    own, privacy, allocation = file.config.products[name], file.config.privacy, file.named[name][1]
    if allocation is not None:
        kind = BudgetKind(privacy.definition, privacy.neighbors)
        frozen = partial(read_frozen, file.measured.product(name).planned, file.digest)
        path = own.privacy.allocation_file
        strategy = load_allocation(path, schema, spine, kind, frozen, allocation)
    elif file.wanted is None:
        raise ConfigError(
            f"{file.path}: products.{name}.privacy.allocation",
            "is required",
            remedy="das plan --optimize FILE makes one for the tables and the budget",
        )
    else:
        ordered = [
            text for passes in own.solve.l2_passes.values() for one in passes for text in one
        ]
        named_queries = [*own.privacy.on_demand_queries, *own.privacy.root_support_passes, *ordered]
        tables = [text for text, _ in table_entries(own.output, schema)]
        texts = [*tables, *file.wanted.get(name, ()), *named_queries]
        strategy = even_strategy(schema, spine, texts)
    asks_last = isinstance(own.data, NmfData) and own.data.chains == "last"
    return replace(strategy, asks_last=asks_last)


def read_invariants(
    entries: Sequence[KindConfig], setting: Setting
) -> tuple[tuple[Invariant, ...], Constraints]:
    """Return the exact queries of the section `invariants`, and its other entries as limits.

    Args:
      entries: The entries of the section.
      setting: Schema, geolevels and exact queries of other products.

    Raises:
      SchemaError, ConfigError: An entry cannot be used, or two entries contradict each other; the
        message names them.
    """
    built: dict[type[KindConfig], list[Constraint]] = {kind: [] for kind in (*KINDS[1:], KINDS[0])}
    exact = list[Constraint]()
    for index, entry in enumerate(entries):
        own = exact if entry.is_exact_query else built[type(entry)]
        if own and entry.limit.is_single:
            raise ConfigError(f"{index}.{entry.key}", "are stated twice")
        with at(str(index)):
            own += entry.build(setting)
    invariants = tuple(one for one in exact if isinstance(one, Invariant))
    check_invariants(invariants)
    stated = tuple(one for kind, own in built.items() if own for one in kind.limit.joined(own))
    for limit in stated:
        limit.check(stated, invariants)
    return invariants, Constraints(stated)


def _solving(config: SolveConfig, schema: Schema) -> Solving:
    """Return the settings of post-processing; raises the errors of `parse_query`."""
    housing = config.housing_units
    return Solving(
        config.tolerance,
        config.fit_to,
        tuple(config.empirical_bayes),
        {
            level: tuple(tuple(parse_query(schema, text).name for text in one) for one in passes)
            for level, passes in config.l2_passes.items()
        },
        config.round_l2_passes,
        config.method,
        config.least_squares,
        config.integers,
        config.failsafe,
        None
        if housing is None
        else Covariate(
            tuple(housing.geolevels),
            housing.expect == "composition",
            housing.variance_factor,
            housing.only_if_better,
        ),
    )


def budget_of(privacy: PrivacyConfig, own: BudgetConfig, where: str) -> Budget:
    """Return the budget stated in a run file.

    Args:
      privacy: Privacy definition, delta and neighbors.
      own: The total, as rho or as epsilon.
      where: Keys of the run file, for error messages.

    Raises:
      ConfigError: The total is given as rho, but the privacy definition counts epsilon.
    """
    definition = privacy.definition
    if definition.unit != "rho" and own.rho is not None:
        raise ConfigError(where, f"definition {definition} counts `{definition.unit}`, not `rho`")
    with at(where):
        total = own.rho
        if total is None:
            total = total_from_epsilon(definition, own.epsilon or Fraction(0), privacy.delta)
        return Budget(total, privacy.delta, privacy.neighbors, definition)


def budget_by_noise(privacy: PrivacyConfig, epsilon: Fraction, strategy: Strategy) -> Budget:
    """Return the largest budget whose noise keeps an epsilon at delta, for all chains of geounits.

    Args:
      privacy: Delta and the neighbors.
      epsilon: The target, exact.
      strategy: What is measured.

    Raises:
      BudgetError: Epsilon is the total itself, losses of the noise are unknown, or no budget fits.
    """
    if privacy.definition.is_pure:
        raise BudgetError(
            "epsilon_from",
            "cannot be noise under pure, where the total is epsilon itself",
            remedy="leave `epsilon_from` out of the run file",
        )
    unit, n_levels = Budget(Fraction(1), privacy.delta, privacy.neighbors), len(strategy.levels)
    chains = combinations_with_replacement(range(n_levels), 2)
    measured = moved_answers(strategy, unit, chains)
    rho = rho_from_noise(n_levels, measured, privacy.neighbors, epsilon, privacy.delta)
    return Budget(rho, privacy.delta, privacy.neighbors, epsilon_by_noise=epsilon)
