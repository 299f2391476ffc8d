"""Check how noisy answers become counts: rounding, order, solvers, lazy queries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise

from das.errors import ConfigError, RuntimeSetupError, SchemaError
from das.queries.query import Query, is_refinement, parse_query
from das.schema import Schema
from das.strategy import Strategy
from invariants.constraints import Limits
from invariants.exact import Invariant
from jobs.pipeline.config.models.products import SolveConfig
from jobs.pipeline.plan import Covariate, Solving
from solvers.choices import PACKAGES


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
    below = {
        entry.query.name
        for level in range(1, len(strategy.levels))
        for entry in strategy.measured(level)
    }
    for query in lazy:
        if query.name not in below:
            raise ConfigError(
                query.name, "is not measured below the root", want=f"some of {sorted(below)}"
            )
        if not query.is_partition:
            raise SchemaError(f"query {query.name}", "is not a partition of the cells")
    if lazy and solve.learned_prior:
        raise ConfigError(
            "solve",
            "needs all answers to every cell before the first geolevel is solved",
            got=f"learned_prior {solve.learned_prior}",
            want="no learned_prior beside lazy_queries",
        )
    return frozenset(query.name for query in lazy)


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
        package = PACKAGES.get(name)
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
        queries = {q.query.name: q.query for q in strategy.measured(geolevels.index(level))}
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
        config.round_passes,
        config.method,
        config.least_squares,
        config.integers,
        config.failsafe,
        None
        if config.housing_units is None
        else Covariate(
            tuple(config.housing_units.geolevels),
            config.housing_units.expect == "composition",
            config.housing_units.kappa,
            config.housing_units.certified,
        ),
    )


def check_covariate(
    config: SolveConfig, strategy: Strategy, limits: Limits, lazy: Sequence[str]
) -> None:
    """Check that totals can be expected by housing units where that is asked for.

    Raises:
      ConfigError: No housing units are given there, nothing is measured of which totals could be
        told, or another key of `solve` does not go with it.
    """
    asked = config.housing_units
    if asked is None:
        return
    quarters = limits.quarters
    if quarters is None or not quarters.is_housing.any():
        raise ConfigError(
            "housing_units",
            "are not given to the run",
            remedy="add an invariant `living_quarters` that names kinds which are housing units",
        )
    root = strategy.levels[0].geolevel
    known = [name for name in quarters.geolevels if name != root]
    for geolevel in asked.geolevels:
        if geolevel not in known:
            raise ConfigError("geolevels", "are not counted there", got=geolevel, want=known)
        level = [entry.geolevel for entry in strategy.levels].index(geolevel)
        kinds = [entry.query.is_partition for entry in strategy.measured(level)]
        if not (all if asked.expect == "composition" else any)(kinds):
            what = "only partitions" if asked.expect == "composition" else "some partition"
            raise ConfigError(
                "geolevels", f"names one that does not measure {what} of its records", got=geolevel
            )
        if geolevel in config.learned_prior or geolevel in config.order:
            raise ConfigError(
                "geolevels",
                "names one with a learned prior or an order of its own, which leave no room for "
                "expected totals",
                got=geolevel,
            )
    if config.method != "nnls":
        raise ConfigError("method", "goes without housing units", got=config.method, want="nnls")
    if lazy:
        raise ConfigError("lazy_queries", "go without housing units", got=list(lazy))
