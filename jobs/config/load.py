"""Read YAML files into checked plain values; every error names the file and the key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NoReturn, TypeVar

import typer
from pydantic import BaseModel

from das.errors import ConfigError, DasError, RuntimeSetupError, SchemaError
from das.privacy.budget import Budget, total_from_epsilon
from das.queries.query import Query, is_refinement, parse_query
from das.schema import Attribute, Recode, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy, strategy_for
from geography.lattice import Spine
from invariants.exact import Invariant
from jobs.config.data import check_data, check_file_type, check_suffix
from jobs.config.digest import run_digest
from jobs.config.files import RunFile, absolute, absolute_path, named, read_model, read_run_file
from jobs.config.format_1 import NOTICE, PERSONS, UNITS
from jobs.config.frozen import read_frozen
from jobs.config.invariants import exact_queries, limits_of
from jobs.config.models import (
    AllocationFile,
    LevelAllocation,
    PrivacyConfig,
    ProductPrivacyConfig,
    RunConfig,
    SchemaFile,
    SolveConfig,
)
from jobs.config.planned import ZCDP_BOUNDED, BudgetKind, plan_shares
from jobs.config.product import Product, Resolved
from jobs.config.solvable import refuse_unsolvable
from jobs.plan import Plan, Solving, exact_query
from jobs.printable import printable
from jobs.storage.account import Claim, default_account
from jobs.storage.layout import product_confidential, product_release

_PACKAGES = {"piqp": "piqp", "gurobi": "gurobipy"}  # by solver; the others are always there

T = TypeVar("T")


def load_run(
    path: Path,
    *,
    output: Path | None = None,
    master: str | None = None,
    solution: str | None = None,
) -> Resolved:
    """Read a run file and everything it names.

    Args:
      path: The run file; relative paths in it are relative to its folder.
      output: Replaces `output.directory`.
      master: Replaces `runtime.master`.
      solution: Name of a solution beside the release.

    Raises:
      ConfigError, SchemaError, GeographyError, BudgetError: Something in it cannot be used; the
        message names the file and the key.
    """
    check_solution_name(solution)
    folder = absolute_path(path).parent
    file = read_run_file(path)
    if file.format == 1:
        typer.echo(printable(f"das: {path}: {NOTICE}"), err=True)
    config = absolute(file.config, folder)
    if output is not None:
        config = _with(config, "output", directory=absolute_path(output))
    if master is not None:
        config = _with(config, "runtime", master=master)
    _refuse_unsupported(config, path)
    digest = run_digest(file.config, config)
    products: dict[str, Product] = {}
    for name in config.products:
        product = _resolve(config, name, file, digest, products, solution)
        for other in products.values():
            if other.account_name == product.account_name:
                raise ConfigError(
                    f"{path}: {other.keys}privacy.product",
                    f"is also that of the {name}",
                    got=other.account_name,
                )
        products[name] = product
    return Resolved(config, path, products, solution)


def _refuse_unsupported(config: RunConfig, path: Path) -> None:
    """Refuse products that can be written and cannot be made together yet.

    Raises:
      ConfigError: They are others than one product, or units before persons.
    """
    names = [*config.products]
    if len(names) > 1 and names != [UNITS, PERSONS]:
        raise ConfigError(
            f"{path}: products",
            "cannot be made together yet",
            got=names,
            want=f"one product, or {UNITS} before {PERSONS}",
            remedy="make each by a run of its own with the same privacy.account",
        )


def check_solution_name(name: str | None) -> None:
    """Check that a solution may have this name; it becomes a folder.

    Raises:
      ConfigError: It may not.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise ConfigError("--solution", "is no name", got=name, want="letters, digits, _ and -")


def _resolve(
    config: RunConfig,
    name: str,
    file: RunFile,
    digest: str,
    before: Mapping[str, Product],
    solution: str | None,
) -> Product:
    """Check one product of a run.

    Args:
      config: The run, paths absolute.
      name: The product.
      file: The run file.
      digest: Digest of the whole run file.
      before: The products before it, whose exact answers may limit this one.
      solution: Name of the solution that is meant, if it is not the release itself.
    """
    own, path = config.products[name], file.path
    place = len(config.products) - 1 - [*config.products].index(name)
    folder = name if place else None  # the last product has that of the release itself
    release = product_release(config.output.directory, solution, folder)
    schema = load_schema(own.schema_)
    spine = named(
        f"{path}: geography.levels",
        lambda: Spine(
            tuple(level.name for level in config.geography.levels),
            tuple(level.digits for level in config.geography.levels),
        ),
    )
    privacy = config.privacy
    kind = BudgetKind(privacy.definition, privacy.neighbors)
    planned = product_release(config.output.directory, None, folder).planned
    stated, levels = own.invariants, spine.levels
    plans = {other: product.plan for other, product in before.items()}
    keys = f"{path}: {file.keys_of(name)}"
    attempt = _Attempts()
    attempt(keys.rstrip(": ."), lambda: check_data(own.data, schema))
    attempt(f"{keys}data.path", lambda: check_file_type(own.data))
    public = config.geography.geounits
    if public is not None and not place:
        attempt(f"{path}: geography.geounits", partial(check_suffix, public.path))
    for index, entry in enumerate(stated):
        table = getattr(entry, "table", None)
        if table is not None:
            attempt(f"{keys}invariants.{index}.table", partial(check_suffix, table.path))
    strategy = attempt(
        "",
        lambda: load_allocation(
            own.privacy.allocation, schema, spine, kind, read_frozen(planned, digest)
        ),
    )
    budget = attempt("", lambda: _budget(privacy, own.privacy, f"{keys}privacy"))
    invariants = attempt(f"{keys}invariants", lambda: exact_queries(stated, schema, levels))
    limits = attempt(
        f"{keys}invariants",
        lambda: limits_of(stated, schema, levels, invariants(), partial(exact_query, plans)),
    )
    passes = attempt(
        f"{keys}solve", lambda: rounding_passes(schema, own.solve.rounding, invariants())
    )
    solved = attempt(f"{keys}solve", lambda: solving(own.solve, schema, strategy()))
    lazy = attempt(
        f"{keys}privacy.lazy_queries",
        lambda: lazy_queries(own.privacy.lazy_queries, own.solve, schema, strategy()),
    )
    h1 = own.output.h1
    if h1 is not None:
        attempt(f"{keys}output.h1", lambda: h1_query(schema, h1))
    for table in own.output.tables or []:
        attempt(f"{keys}output.tables", partial(parse_query, schema, table))
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
        hashlib.sha256(own.solve.model_dump_json().encode()).hexdigest(),
    )
    named(str(path), partial(refuse_unsolvable, plan))
    return Product(
        name,
        file.keys_of(name),
        f"{config.name}, {name}" if place else config.name,
        own,
        plan,
        release,
        product_confidential(config.output.directory, solution, folder),
        # Streams are named by geocode and query: another key, or names would repeat.
        None if seed is None else seed + place,
    )


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


def lazy_queries(
    names: Sequence[str], solve: SolveConfig, schema: Schema, strategy: Strategy
) -> frozenset[str]:
    """Check which queries are drawn only where the parent has persons.

    Raises:
      ConfigError: One is not measured below the root, or asks more of the solver than it can do
        while geolevels are measured one by one.
      SchemaError: One is not a query, or no partition.
    """
    lazy = [parse_query(schema, name) for name in names]
    below = {entry.query.name for level in strategy.levels[1:] for entry in level.queries}
    for query in lazy:
        if query.name not in below:
            raise ConfigError(
                query.name, "is not measured below the root", want=f"some of {sorted(below)}"
            )
        if not query.is_partition:
            raise SchemaError(f"query {query.name}", "is not a partition of the cells")
    if lazy and (solve.targets != "own" or solve.learned_prior):
        raise ConfigError(
            "solve",
            "needs all measurements before the first geolevel is solved",
            got=f"targets {solve.targets}, learned_prior {solve.learned_prior}",
            want="targets: own, and no learned_prior, beside lazy_queries",
        )
    return frozenset(query.name for query in lazy)


def _budget(privacy: PrivacyConfig, own: ProductPrivacyConfig, where: str) -> Budget:
    definition = privacy.definition
    if definition.unit != "rho" and own.rho is not None:
        raise ConfigError(where, f"definition {definition} counts `{definition.unit}`, not `rho`")
    total = own.rho if own.rho is not None else own.epsilon or Fraction(0)
    if own.rho is None:
        total = named(where, lambda: total_from_epsilon(definition, total, privacy.delta))
    return named(where, lambda: Budget(total, privacy.delta, privacy.neighbors, definition))


def account_of(config: RunConfig) -> Path:
    """The file in which this run's grant is claimed.

    Raises:
      ConfigError: None is named, and several may be meant.
    """
    last = [*config.products.values()][-1]
    return config.privacy.account or default_account(last.data.path)


def claim_of(resolved: Resolved, product: Product, run: str) -> Claim:
    """What a run folder with this identity asks of the account for a product."""
    grant, folder = resolved.config.privacy.grant, str(resolved.config.output.directory)
    return Claim(product.account_name, grant, product.plan.budget, run, folder)


def h1_query(schema: Schema, name: str) -> Query:
    """The attribute or recode that table H1 is made of.

    Raises:
      SchemaError: It is unknown, or has no levels `occupied` and `vacant`.
    """
    query = parse_query(schema, name)
    if not {"occupied", "vacant"} <= set(query.labels()):
        raise SchemaError(
            f"query {query.name}", "makes no table H1", want="levels occupied and vacant"
        )
    return query


def rounding_passes(
    schema: Schema, passes: Sequence[Sequence[str]], invariants: Sequence[Invariant]
) -> tuple[tuple[Query, ...], ...]:
    """Parse rounding passes and check that they and the invariants form one nested chain.

    Raises:
      SchemaError: A query is unknown, two are not nested, or the last is not detailed.
    """
    parsed = tuple(tuple(parse_query(schema, name) for name in one) for one in passes)
    chain = [query for one in parsed for query in one]
    if not chain or chain[-1].name != "detailed":
        raise SchemaError("rounding", "the last query must be detailed")
    for coarse, fine in pairwise(chain):
        if coarse.name == fine.name or not is_refinement(fine, coarse):
            raise SchemaError(
                "rounding", f"{fine.name} does not refine {coarse.name}, which comes before it"
            )
    for invariant in invariants:
        for query in chain:
            if not (is_refinement(query, invariant.query) or is_refinement(invariant.query, query)):
                raise SchemaError(
                    "rounding", f"{query.name} and the invariant {invariant.query.name} cross"
                )
    return parsed


def solving(config: SolveConfig, schema: Schema, strategy: Strategy) -> Solving:
    """Check how noisy answers become counts.

    Raises:
      ConfigError: A geolevel or query is unknown, a query is named twice or is no partition.
      RuntimeSetupError: A solver is not installed.
    """
    for name in (str(config.least_squares), str(config.integers)):
        package = _PACKAGES.get(name)
        if package and find_spec(package) is None:
            raise RuntimeSetupError(
                f"solver {name}",
                f"the package {package} is not installed",
                remedy=f'pip install "topdown-das[{name}]"',
            )
    geolevels = [level.geolevel for level in strategy.levels]
    named = {"learned_prior": config.learned_prior, "order": list(config.order)}
    for key, levels in named.items():
        for level in levels:
            if level not in geolevels:
                raise ConfigError(key, "names an unknown geolevel", got=level, want=geolevels)
    order = {}
    for level, passes in config.order.items():
        queries = {q.query.name: q.query for q in strategy.levels[geolevels.index(level)].queries}
        parsed = tuple(tuple(parse_query(schema, name).name for name in one) for one in passes)
        chosen = [name for one in parsed for name in one]
        for name in chosen:
            if name not in queries or not queries[name].is_partition or chosen.count(name) > 1:
                raise ConfigError(
                    f"order.{level}",
                    "lists each partition query that is measured there at most once",
                    got=name,
                    want=[name for name, query in queries.items() if query.is_partition],
                )
        order[level] = parsed
    return Solving(
        config.tolerance,
        config.targets,
        tuple(config.learned_prior),
        order,
        config.method,
        config.least_squares,
        config.integers,
        config.failsafe,
    )


def load_schema(path: Path) -> Schema:
    """Read a schema file.

    Raises:
      ConfigError, SchemaError: It cannot be used.
    """
    model = read_model(path, SchemaFile)

    def build() -> Schema:
        attributes = tuple(Attribute(a.name, tuple(a.levels)) for a in model.attributes)
        by_name = {a.name: a for a in attributes}
        recodes = []
        for index, recode in enumerate(model.recodes):
            if recode.attribute not in by_name:
                raise ConfigError(
                    f"recodes.{index}.attribute",
                    "is unknown",
                    got=recode.attribute,
                    want=f"one of {list(by_name)}",
                )
            groups = {label: tuple(levels) for label, levels in recode.groups.items()}
            recodes.append(Recode.from_groups(recode.name, by_name[recode.attribute], groups))
        return Schema(model.name, attributes, tuple(recodes))

    return named(str(path), build)


def _shares(schema: Schema, level: LevelAllocation, kind: BudgetKind) -> tuple[QueryShare, ...]:
    if level.workload is not None:
        return plan_shares(schema, level.workload, kind)
    shares = []
    for text, share in (level.queries or {}).items():
        query = parse_query(schema, text)
        if not query.is_partition:
            raise SchemaError(
                f"query {query.name}",
                "cannot be measured: it does not count every cell exactly once",
                remedy="use total, detailed, attributes and recodes; functions of them are for "
                "output.tables",
            )
        shares.append(QueryShare(query, share))
    return tuple(shares)


def planned_geolevels(path: Path) -> list[str]:
    """Geolevels of an allocation file whose queries are planned.

    Raises:
      ConfigError: It cannot be used.
    """
    levels = read_model(path, AllocationFile).levels
    return [name for name, level in levels.items() if level.workload is not None]


def load_allocation(
    path: Path,
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
      frozen: What was planned before, by geolevel; it is not planned again.

    Raises:
      ConfigError, SchemaError, BudgetError: It cannot be used.
    """
    model = read_model(path, AllocationFile)
    kind = replace(kind, mechanism=model.mechanism)

    def build() -> Strategy:
        named("mechanism", lambda: kind.noise)
        levels = []
        for name, level in model.levels.items():
            known = (frozen or {}).get(name) if level.workload is not None else None
            shares = known or named(f"geolevel {name}", partial(_shares, schema, level, kind))
            levels.append(LevelStrategy(name, level.share, shares))
        return strategy_for(levels, spine.levels, model.mechanism)

    return named(str(path), build)


def _with(config: RunConfig, section: str, **changes: object) -> RunConfig:
    part: BaseModel = getattr(config, section)
    return config.model_copy(update={section: part.model_copy(update=changes)})
