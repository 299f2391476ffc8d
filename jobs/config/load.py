"""Read YAML files into checked plain values; every error names the file and the key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from das.errors import ConfigError, DasError, RuntimeSetupError, SchemaError
from das.privacy.accounting import rho_from_epsilon
from das.privacy.budget import Budget, Definition
from das.queries.query import Query, is_refinement, parse_query
from das.schema import Attribute, Recode, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy, strategy_for
from geography.lattice import Spine
from invariants.exact import Invariant
from jobs.config.data import check_data, check_file_type, check_suffix
from jobs.config.frozen import read_frozen
from jobs.config.invariants import exact_queries, limits_of
from jobs.config.local_path import is_endless, local_path
from jobs.config.models import (
    AllocationFile,
    LevelAllocation,
    OutputConfig,
    PrivacyConfig,
    RunConfig,
    SchemaFile,
    SolveConfig,
    UnitsConfig,
)
from jobs.config.planned import ZCDP_BOUNDED, BudgetKind, plan_shares
from jobs.config.solvable import refuse_unsolvable
from jobs.config.yaml_file import read_map
from jobs.plan import Plan, Solving, exact_query
from jobs.storage.account import Claim, default_account
from jobs.storage.layout import release_layout

_PACKAGES = {"piqp": "piqp", "gurobi": "gurobipy"}  # by solver; the others are always there

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Resolved:
    """A run configuration with everything it refers to, checked; no data has been touched.

    Attributes:
      config: The run file with absolute paths.
      source: Path of the run file.
      plan: All that the stages after reading need.
      units: The second product, written as a run of its own; none in most runs.
      solution: Name of the solution that is meant, if it is not the release itself.
    """

    config: RunConfig
    source: Path
    plan: Plan
    units: Resolved | None = None
    solution: str | None = None


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
    folder = _resolved(path).parent
    written = _read(path, RunConfig)
    config = _absolute(written, folder)
    if output is not None:
        config = _with(config, "output", directory=_resolved(output))
    if master is not None:
        config = _with(config, "runtime", master=master)
    digest = _digest(written, config)
    units = None
    if config.units is not None:
        as_run = _named(f"{path}: units", partial(_units_run, config, config.units))
        units = _resolve(as_run, path, digest, "units.")
    resolved = _resolve(config, path, digest, units=units)
    resolved = replace(resolved, units=units, solution=solution)
    if units is not None and product_of(units) == product_of(resolved):
        raise ConfigError(
            f"{path}: units.privacy.product", "is also that of the persons", got=product_of(units)
        )
    return resolved


def check_solution_name(name: str | None) -> None:
    """Check that a solution may have this name; it becomes a folder.

    Raises:
      ConfigError: It may not.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise ConfigError("--solution", "is no name", got=name, want="letters, digits, _ and -")


def _units_run(config: RunConfig, units: UnitsConfig) -> RunConfig:
    """The units of a run as a run of their own, over the same geography."""
    randomness = config.privacy.randomness
    seed = None if randomness.seed is None else randomness.seed + 1
    try:
        privacy = PrivacyConfig.model_validate(
            {
                **config.privacy.model_dump(),
                **units.privacy.model_dump(),
                # Streams are named by geocode and query: another key, or names would repeat.
                "randomness": randomness.model_copy(update={"seed": seed}),
                "account": account_of(config),
            }
        )
    except ValidationError as error:
        raise _config_error(Path("privacy"), error) from None
    output = OutputConfig(directory=config.output.directory, **units.output.model_dump())
    own = {name: getattr(units, name) for name in ("schema_", "data", "invariants", "solve")}
    changes = {**own, "name": f"{config.name}, units", "privacy": privacy, "output": output}
    return config.model_copy(update={**changes, "units": None})


def _resolve(
    config: RunConfig,
    path: Path,
    digest: str,
    section: str = "",
    units: Resolved | None = None,
) -> Resolved:
    """Check a run, or the section of it that describes another product.

    Args:
      config: The run, paths absolute.
      path: The run file.
      digest: Digest of the whole run file.
      section: Where in the file the product stands, with a dot at its end.
      units: The units of the run, whose exact queries may limit this product.
    """
    schema = load_schema(config.schema_)
    spine = _named(
        f"{path}: geography.levels",
        lambda: Spine(
            tuple(level.name for level in config.geography.levels),
            tuple(level.digits for level in config.geography.levels),
        ),
    )
    privacy = config.privacy
    kind = BudgetKind(privacy.definition, privacy.neighbors)
    release = release_layout(config.output.directory)
    planned = (release.units if section else release).planned
    stated, levels = config.invariants, spine.levels
    asked = partial(exact_query, None if units is None else units.plan)
    own = f"{path}: {section}"
    attempt = _Attempts()
    attempt(own.rstrip(": ."), lambda: check_data(config.data, schema))
    attempt(f"{own}data.path", lambda: check_file_type(config.data))
    public = config.geography.geounits
    if public is not None and not section:
        attempt(f"{own}geography.geounits", partial(check_suffix, public.path))
    for index, entry in enumerate(stated):
        table = getattr(entry, "table", None)
        if table is not None:
            attempt(f"{own}invariants.{index}.table", partial(check_suffix, table.path))
    strategy = attempt(
        "",
        lambda: load_allocation(
            privacy.allocation, schema, spine, kind, read_frozen(planned, digest)
        ),
    )
    budget = attempt(f"{own}privacy", lambda: _budget(privacy))
    invariants = attempt(f"{own}invariants", lambda: exact_queries(stated, schema, levels))
    limits = attempt(
        f"{own}invariants", lambda: limits_of(stated, schema, levels, invariants(), asked)
    )
    passes = attempt(
        f"{own}solve", lambda: rounding_passes(schema, config.solve.rounding, invariants())
    )
    solved = attempt(f"{own}solve", lambda: solving(config.solve, schema, strategy()))
    lazy = attempt(
        f"{own}privacy.lazy_queries",
        lambda: lazy_queries(privacy.lazy_queries, config.solve, schema, strategy()),
    )
    h1 = config.output.h1
    if h1 is not None:
        attempt(f"{own}output.h1", lambda: h1_query(schema, h1))
    for table in config.output.tables or []:
        attempt(f"{own}output.tables", partial(parse_query, schema, table))
    attempt.refuse()
    is_seeded = privacy.randomness.source != "operating_system"
    plan = Plan(
        schema,
        spine,
        strategy(),
        budget(),
        invariants(),
        passes(),
        solved(),
        is_seeded,
        digest,
        limits(),
        lazy(),
        hashlib.sha256(config.solve.model_dump_json().encode()).hexdigest(),
    )
    _named(str(path), partial(refuse_unsolvable, plan))
    return Resolved(config, path, plan)


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
            value = _named(where, build) if where else build()
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


def _budget(privacy: PrivacyConfig) -> Budget:
    total = privacy.rho if privacy.rho is not None else privacy.epsilon or Fraction(0)
    if privacy.rho is None and privacy.definition is Definition.ZCDP:
        total = rho_from_epsilon(total, privacy.delta)
    return Budget(total, privacy.delta, privacy.neighbors, privacy.definition)


def account_of(config: RunConfig) -> Path:
    """The file in which this run's grant is claimed.

    Raises:
      ConfigError: None is named, and several may be meant.
    """
    return config.privacy.account or default_account(config.data.path)


def product_of(resolved: Resolved) -> str:
    """Name of what is made, in the account."""
    return resolved.config.privacy.product or resolved.plan.schema.name


def claim_of(resolved: Resolved, run: str) -> Claim:
    """What a run folder with this identity asks of the account."""
    config = resolved.config
    folder = str(config.output.directory)
    return Claim(product_of(resolved), config.privacy.grant, resolved.plan.budget, run, folder)


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
    model = _read(path, SchemaFile)

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

    return _named(str(path), build)


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
    levels = _read(path, AllocationFile).levels
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
    model = _read(path, AllocationFile)

    def build() -> Strategy:
        levels = []
        for name, level in model.levels.items():
            known = (frozen or {}).get(name) if level.workload is not None else None
            shares = known or _named(f"geolevel {name}", partial(_shares, schema, level, kind))
            levels.append(LevelStrategy(name, level.share, shares))
        return strategy_for(levels, spine.levels)

    return _named(str(path), build)


def _named(where: str, build: Callable[[], T]) -> T:
    """Build a value; errors say where in the configuration it stands."""
    try:
        return build()
    except DasError as error:
        raise type(error)(
            f"{where}: {error.where}",
            error.what,
            got=error.got,
            want=error.want,
            remedy=error.remedy,
        ) from None


def _read(path: Path, model: type[ModelT]) -> ModelT:
    document = read_map(path)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _config_error(path, error) from None


_MOST_PROBLEMS = 20  # named at once
_TAGS = ("records", "block_table", "pl94", "histograms", "RecordColumn")


def _keys(location: Sequence[int | str]) -> list[str]:
    """Keys on the way to a value, without the names of the alternatives a union chose."""
    named = [str(part) for part in location if part not in _TAGS]
    keys = [part for part in named if not part.startswith("function-")]
    place = keys.index("invariants") + 2 if "invariants" in keys else len(keys)
    return keys[:place] + keys[place + 1 :]


def _config_error(path: Path, error: ValidationError) -> ConfigError:
    """One error naming the first wrong keys, what it got and what it wants."""
    problems = []
    for item in error.errors()[:_MOST_PROBLEMS]:
        key = ".".join(_keys(item["loc"]))
        got = item["input"]
        shown = type(got).__name__ if isinstance(got, dict | list) else f"{got!r:.200}"
        kind = item["type"]
        if kind == "missing":
            problems.append(f"{key}: is required")
        elif kind == "extra_forbidden":
            problems.append(f"{key}: is not a known key")
        elif kind == "value_error":
            problems.append(f"{key or 'file'}: {item['msg'].removeprefix('Value error, ')}")
        else:
            problems.append(f"{key}: {item['msg']}; got {shown}")
    more = error.error_count() - len(problems)
    return ConfigError(
        str(path), " | ".join([*problems, *([f"and {more} more"] if more > 0 else [])])
    )


def _absolute(config: RunConfig, folder: Path) -> RunConfig:
    def walk(model: BaseModel) -> BaseModel:
        changes: dict[str, Any] = {}
        for name in type(model).model_fields:
            value = getattr(model, name)
            if isinstance(value, Path):
                changes[name] = _resolved(folder / value)
            elif isinstance(value, BaseModel):
                changes[name] = walk(value)
            elif isinstance(value, list):
                changes[name] = [walk(v) if isinstance(v, BaseModel) else v for v in value]
        return model.model_copy(update=changes)

    resolved = walk(config)
    if not isinstance(resolved, RunConfig):
        raise ConfigError("run file", "is not a run configuration")
    return resolved


def _resolved(path: Path) -> Path:
    try:
        found = local_path(path).resolve()
    except ValueError as error:
        raise ConfigError(f"path {path}", str(error)) from None
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        raise ConfigError(str(path), "cannot be followed; a link leads in a circle") from None
    if is_endless(found):
        raise ConfigError(str(path), "is a device that does not end", want="a file or folder")
    return found


def _with(config: RunConfig, section: str, **changes: object) -> RunConfig:
    part: BaseModel = getattr(config, section)
    return config.model_copy(update={section: part.model_copy(update=changes)})


def _digest(written: RunConfig, config: RunConfig) -> str:
    """SHA-256 of what fixes the law of the measurements, and the exact answers beside them.

    That is the run file without its name, speed, account, and what follows from measurements
    (`solve`, `output`: `jobs.folder.solutions`), with the files it names. Data paths count as
    written, so that a project can move to another folder.
    """
    document = written.model_dump(mode="json", by_alias=True)
    for key in ("name", "output", "solve", "runtime"):
        del document[key]
    del document["privacy"]["account"]
    if config.units is None:
        del document["units"]
    else:
        del document["units"]["output"], document["units"]["solve"]
        _put_contents(document["units"], config.units)
    _put_contents(document, config)
    text = json.dumps(document)  # in order: the order of groups numbers the answers
    return hashlib.sha256(text.encode()).hexdigest()


def _put_contents(document: dict[str, Any], product: RunConfig | UnitsConfig) -> None:
    """Replace the paths of schema and allocation by what the files say."""
    allocation = _read(product.privacy.allocation, AllocationFile)
    document["schema"] = _read(product.schema_, SchemaFile).model_dump(mode="json")
    document["privacy"]["allocation"] = allocation.model_dump(mode="json")
