"""Check how noisy answers become counts: rounding, order, solvers, lazy queries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise

from das.errors import ConfigError, RuntimeSetupError, SchemaError
from das.queries.query import Query, is_refinement, parse_query
from das.schema import Schema
from das.strategy import Strategy
from invariants.exact import Invariant
from jobs.config.models.products import SolveConfig
from jobs.plan import Solving
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
    if lazy and (solve.targets != "own" or solve.learned_prior):
        raise ConfigError(
            "solve",
            "needs all measurements before the first geolevel is solved",
            got=f"targets {solve.targets}, learned_prior {solve.learned_prior}",
            want="targets: own, and no learned_prior, beside lazy_queries",
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
        config.method,
        config.least_squares,
        config.integers,
        config.failsafe,
    )
