"""Refuse a run that could not be finished, before anything is spent on it.

Everything here is known from the run file, and of geounits from their public list. Commands that
measure, solve or validate call `require_runnable` once; who reads a finished release need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise, product

from das.errors import ConfigError, RuntimeSetupError, SchemaError
from das.queries.query import Query, is_refinement
from das.tree.coordinates import Coordinates
from geography.lattice import Lattice
from jobs.pipeline.config.between import joining_of
from jobs.pipeline.config.files import refuse_tangled
from jobs.pipeline.config.mistakes import Mistakes, at, refuse_unknown
from jobs.pipeline.config.models.products import SolveConfig
from jobs.pipeline.config.product import (
    MOST_ANSWERS,
    Grouping,
    Product,
    Resolved,
    refuse_long_table,
    table_entries,
)
from jobs.pipeline.plan import Plan, plan_terms, why_no_estimates
from solvers.choices import (
    MOST_CELLS_IN_MATRICES,
    MOST_CELLS_OF_PARTITIONS,
    MOST_ENTRIES,
    MOST_NOISE,
    MOST_UNKNOWNS,
    PACKAGES,
    Failsafe,
    LeastSquaresSolver,
    Method,
)

# Each is some 200 bytes of the evaluation: 20 MB.
MOST_ROWS = 100_000


def require_runnable(resolved: Resolved) -> None:
    """Refuse a run that could not be finished, whatever its data are.

    Raises:
      DasError: A product could not be finished. All independent mistakes of the first such product
        are named, each with its key.
    """
    refuse_tangled(resolved.source, resolved.config, resolved.config.output.roots)
    for made in resolved.products.values():
        _require_product(made, f"{resolved.source}: {made.keys}")
    for made in resolved.products.values():
        with at(f"{resolved.source}: {made.keys}output"):
            joining_of(made, resolved.products)


def _require_product(made: Product, keys: str) -> None:
    """Refuse a product that could not be made; `keys` is the prefix of its keys in errors."""
    plan, own, mistakes = made.plan, made.config, Mistakes()
    with mistakes.at(str(own.privacy.allocation or "")):
        plan.strategy.require_full_column_rank()
    with mistakes.at(f"{keys}solve"):
        _refuse_missing_solvers(own.solve)
        _refuse_unmeasured_order(plan)
    with mistakes.at(f"{keys}privacy.on_demand_queries"):
        _refuse_not_on_demand(plan)
    with mistakes.at(f"{keys}solve"):
        _refuse_crossing_rounding(plan)
    for index, (text, _) in enumerate(table_entries(own.output, plan.schema)):
        with mistakes.at(f"{keys}output.tables.{index}"):
            refuse_long_table(made.tabulated[text])
    with mistakes.at(f"{keys}evaluate"):
        _refuse_many_rows(made.grouping, len(plan.spine.levels))
    with mistakes.at(f"{keys}evaluate.areas"):
        shared = plan.spine.levels[: plan.spine.shared_with(plan.census_spine)]
        refuse_unknown("geolevel", "has other geocodes on the spine", own.evaluate.areas, shared)
    mistakes.refuse()
    with at(f"{keys}solve.housing_units"):
        _check_covariate(own.solve, plan)
    with at(f"{keys}solve.learned"):
        _check_learned(own.solve, plan)
    with at(keys.removesuffix(".")):
        _refuse_unsolvable(plan)


def _refuse_missing_solvers(config: SolveConfig) -> None:
    """Raise a `RuntimeSetupError` if a solver is not installed."""
    for name in (str(config.least_squares), str(config.integers)):
        package = PACKAGES.get(name)
        if package and find_spec(package) is None:
            raise RuntimeSetupError(
                f"solver {name}",
                f"the package {package} is not installed",
                remedy=f"pip install '.[{name}]' in a clone",
            )


def _refuse_unmeasured_order(plan: Plan) -> None:
    """Raise a `ConfigError` if a pass repeats a query, or its geolevel does not measure one."""
    for geolevel, passes in plan.solving.l2_passes.items():
        partitions = [q.name for q in plan.level(geolevel).queries if q.is_partition]
        chosen = [name for one in passes for name in one]
        for name in chosen:
            if name not in partitions or chosen.count(name) > 1:
                raise ConfigError(
                    f"l2_passes.{geolevel}",
                    "lists each partition query that is measured there at most once",
                    got=name,
                    want=partitions,
                )


def _refuse_not_on_demand(plan: Plan) -> None:
    """Refuse queries that cannot be drawn only where the parent has persons.

    Raises:
      ConfigError: An on-demand query is not measured below the root; or the run learns a prior,
        which needs all noisy answers before the first geolevel is solved.
      SchemaError: An on-demand query is not a partition query.
    """
    below = {query.name: query for level in plan.levels[1:] for query in level.queries}
    refuse_unknown("query", "is not measured below the root", sorted(plan.on_demand), sorted(below))
    for name in sorted(plan.on_demand):
        if not below[name].is_partition:
            raise SchemaError(f"query {name}", "is not a partition of the cells")
    if plan.on_demand and plan.solving.empirical_bayes:
        raise ConfigError(
            "solve",
            "needs all answers to every cell before the first geolevel is solved",
            got=f"empirical_bayes {[*plan.solving.empirical_bayes]}",
            want="no empirical_bayes beside on_demand_queries",
        )


def _refuse_crossing_rounding(plan: Plan) -> None:
    """Refuse rounding passes that do not form one nested chain with the exact queries.

    Raises:
      SchemaError: Two queries are not nested, or the last query of the last pass is not detailed.
    """
    chain = [query for one in plan.passes for query in one]
    if not chain or chain[-1].name != "detailed":
        raise SchemaError("rounding_passes", "the last query of the last pass must be detailed")
    _refuse_unnested("rounding_passes", chain)
    for invariant, query in product([*plan.invariants, *plan.limits.pinned], chain):
        if _cross(query, invariant.query):
            raise SchemaError(
                "rounding_passes", f"{query.name} and the invariant {invariant.query.name} cross"
            )


def _refuse_many_rows(asked: Grouping, n_levels: int) -> None:
    """Raise a `ConfigError` if an evaluation would have too many rows."""
    rows = n_levels * sum(pair.groups.size for pair in asked.restrictions)
    if rows > MOST_ROWS:
        raise ConfigError(
            "groups",
            "are too many",
            got=f"{rows} rows: groups x tables x geolevels",
            want=f"at most {MOST_ROWS}",
            remedy="ask fewer groups or fewer tables",
        )


def _refuse_unnested(where: str, chain: Sequence[Query]) -> None:
    for coarse, fine in pairwise(chain):
        if coarse.name == fine.name or not is_refinement(fine, coarse):
            raise SchemaError(
                where, f"{fine.name} does not refine {coarse.name}, which comes before it"
            )


def _cross(one: Query, other: Query) -> bool:
    """Return whether neither query determines the other's answers."""
    return not (is_refinement(one, other) or is_refinement(other, one))


def _check_covariate(config: SolveConfig, plan: Plan) -> None:
    """Check that the housing-unit covariate can predict totals at the geolevels that use it.

    Raises:
      ConfigError: A geolevel of the covariate has no counts of housing units or no measured query
        that determines totals, or another key of `solve` contradicts the covariate.
    """
    asked = config.housing_units
    if asked is None:
        return
    quarters = plan.limits.quarters
    if quarters is None or not quarters.is_housing.any():
        raise ConfigError(
            "housing_units",
            "are not stated",
            remedy="add an invariant `living_quarters` that names kinds which are housing units",
        )
    known = [name for name in quarters.geolevels if name != plan.levels[0].name]
    refuse_unknown("geolevels", "are not counted there", asked.geolevels, known)
    for geolevel in asked.geolevels:
        kinds = [query.is_partition for query in plan.level(geolevel).queries]
        if not (all if asked.expect == "composition" else any)(kinds):
            what = "only partitions" if asked.expect == "composition" else "some partition"
            raise ConfigError(
                "geolevels", f"names a geolevel that does not measure {what}", got=geolevel
            )
        if geolevel in config.empirical_bayes or geolevel in config.l2_passes:
            raise ConfigError(
                "geolevels",
                "names a geolevel of empirical_bayes or l2_passes, which cannot be combined with "
                "housing_units",
                got=geolevel,
            )
    if config.method != "nnls":
        raise ConfigError("method", "goes without housing units", got=config.method, want="nnls")
    if plan.on_demand:
        raise ConfigError(
            "on_demand_queries", "go without housing units", got=sorted(plan.on_demand)
        )


def _check_learned(config: SolveConfig, plan: Plan) -> None:
    """Check that regressions can correct the counts of the geolevel that they name.

    Raises:
      ConfigError: The geolevel is not the last, measures queries that are no partitions or on
        demand, or is corrected in another way too.
    """
    if config.learned is None:
        return
    (geolevel,) = config.learned.geolevels
    if geolevel != plan.leaf.name:
        raise ConfigError(
            "geolevels", "names another geolevel than the last", got=geolevel, want=plan.leaf.name
        )
    refuse_unlearnable(plan)
    if config.learned.file == "self" and plan.on_demand:
        raise ConfigError("file", "is not for on-demand queries", got="self")
    housing = [] if config.housing_units is None else config.housing_units.geolevels
    if geolevel in (*config.empirical_bayes, *housing):
        raise ConfigError(
            "geolevels",
            "names a geolevel of empirical_bayes or housing_units, which cannot be combined with "
            "learned",
            got=geolevel,
        )


def refuse_unlearnable(plan: Plan) -> None:
    """Refuse a last geolevel whose released answers no regression can correct.

    Raises:
      ConfigError: It is the root, or measures queries that are no partitions or are on demand.
    """
    leaf = plan.leaf
    if not leaf.index or leaf.on_demand or not all(query.is_partition for query in leaf.queries):
        raise ConfigError(
            f"geolevel {leaf.name}",
            "cannot be corrected by regressions",
            want="a geolevel below the root that measures partitions alone, none of them on demand",
        )


def _refuse_unsolvable(plan: Plan) -> None:
    """Refuse settings that the solver cannot handle, whatever the noisy answers are.

    Raises:
      ConfigError: A key of `solve` does not go with the measured queries, the invariants or the
        number of cells; or noise exceeds what floats resolve.
      SchemaError: The measured queries group the levels in too many ways.
    """
    with at("privacy.root_support_passes"):
        _check_support(plan)
    _refuse_many_answers(plan)
    solving = plan.solving
    if not plan.on_demand:  # every such run has estimates
        plan_terms(plan)
    elif solving.fit_to == "tree" or solving.empirical_bayes:
        why = why_no_estimates(plan)
        if why is not None:
            raise ConfigError(
                "solve.fit_to",
                "tree needs estimates, and there are none beside these on-demand queries",
                got=why,
                remedy="choose fit_to level",
            )
    for level in range(len(plan.spine.levels)):
        _refuse_geolevel(plan, level)


def _refuse_geolevel(plan: Plan, level: int) -> None:
    """Refuse settings that the solver cannot handle at the geolevel with position `level`."""
    solving, geolevel = plan.solving, plan.spine.levels[level]
    for noisy in plan.noise(level, level):
        sd = noisy.mechanism.variance() ** 0.5
        if sd > MOST_NOISE:
            raise ConfigError(
                f"privacy, geolevel {geolevel}",
                "has too much noise to solve counts",
                got=f"standard deviation {sd:.2g} of {noisy.query.name}",
                want=f"at most {MOST_NOISE:.0e}",
                remedy="raise the budget, or the shares of geolevel and query",
            )
    method = Method(solving.method)
    cells = plan.limits.n_possible(plan.schema)
    targets = _targets(plan, level)
    has_planned = any(not query.is_partition for query in targets)
    has_rows = bool(plan.limits.rows_at(geolevel)) or plan.limits.binds(geolevel)
    where = f"solve, geolevel {geolevel}"
    if method is Method.MAXFIT and (has_planned or has_rows):
        raise ConfigError(
            where,
            "maxfit takes partition queries alone, beside exact queries",
            got="planned queries or strata" if has_planned else "linear rows or facilities",
            remedy="choose method nnls",
        )
    if method is Method.REWEIGHTED and cells**2 > MOST_ENTRIES:
        raise ConfigError(
            where,
            "reweighted forms a matrix over the cells",
            got=f"{cells} cells",
            want=f"at most {int(MOST_ENTRIES**0.5)}",
            remedy="choose method nnls",
        )
    penalty = level > 0 and has_rows and Failsafe(solving.failsafe) is Failsafe.PENALTY
    if penalty and cells > MOST_CELLS_OF_PARTITIONS:
        raise ConfigError(
            where,
            "the failsafe penalty forms matrices over cells where a parent is contradicted",
            got=f"{cells} cells",
            want=f"at most {MOST_CELLS_OF_PARTITIONS}",
            remedy="choose failsafe exact",
        )
    exact = plan.levels[level].kept
    if solving.round_l2_passes and geolevel in solving.l2_passes:
        _refuse_unrounded(plan, level, has_rows)
    if not has_planned:
        _refuse_crossing(plan, level, cells, exact, has_rows)
        return
    needs = _needs_matrices(plan, method, has_rows)
    if needs and cells > MOST_CELLS_IN_MATRICES:
        raise ConfigError(
            where,
            f"{needs} forms matrices over cells beside queries that are no partitions, "
            "planned or of strata",
            got=f"{cells} cells",
            want=f"at most {MOST_CELLS_IN_MATRICES}",
            remedy="remove the named setting from the run file, or plan with hdmm on plain counts, "
            "whose queries are partitions",
        )
    if cells > MOST_CELLS_IN_MATRICES:
        _refuse_many_groups(where, [*targets, *exact])


def _refuse_unrounded(plan: Plan, level: int, has_rows: bool) -> None:
    """Refuse least-squares passes whose rounded answers may have no counts that equal them.

    One query of each pass must refine all other queries of the pass and of earlier passes, and all
    exact queries. Integer answers of this query that sum to the parent are one margin of a table,
    and the cells of the parent are the other margin. Such a table exists, so the next pass has a
    solution.
    """
    plan_level = plan.levels[level]
    where = f"solve.round_l2_passes, geolevel {plan_level.name}"
    if Method(plan.solving.method) is not Method.NNLS or has_rows:
        raise ConfigError(
            where,
            "goes with exact queries and structural zeros alone, and with method nnls",
            got="linear rows or facilities" if has_rows else f"method {plan.solving.method}",
            remedy="set round_l2_passes: false",
        )
    queries = {query.name: query for query in plan_level.queries}
    given, rounded = [*plan_level.kept], [query for one in plan.passes for query in one]
    for names in plan.solving.l2_passes[plan_level.name]:
        own = [queries[name] for name in names]
        given = _finest([*given, *own])
        if len(given) > 1 or given[0].name not in names:
            raise ConfigError(
                where,
                "has a pass without a query that refines all others, earlier and exact ones",
                got=list(names),
                remedy="name such a query, if one is measured, or set round_l2_passes: false",
            )
        for query in rounded:
            if _cross(given[0], query):
                raise ConfigError(
                    where,
                    "has a pass whose finest query crosses one of solve.rounding_passes",
                    got=f"{given[0].name}, {query.name}",
                    remedy=f"round {given[0].name} in the place of {query.name}",
                )


def _refuse_crossing(
    plan: Plan, level: int, cells: int, exact: Sequence[Query], has_rows: bool
) -> None:
    """Refuse settings for which the solver of partitions forms matrices over too many cells."""
    geolevel = plan.levels[level].name
    targets = {query.name: query for query in _targets(plan, level)}
    passes = [[targets[name] for name in one] for one in plan.solving.l2_passes.get(geolevel, ())]
    if Method(plan.solving.method) is Method.SEQUENTIAL:
        coarse = [query for query in targets.values() if query.size < plan.schema.size]
        passes = [[query] for query in sorted(coarse, key=lambda query: query.size)]
    elif {*targets} == {query.name for queries in passes for query in queries}:
        passes = passes[:-1]  # the last pass, of which nothing is fixed
    given = [*exact] if passes else []
    for queries in passes:
        given = _finest([*given, *queries])
        if len(given) > 1:
            break
    at_root = level == 0 and has_rows and bool(exact)
    if cells > MOST_CELLS_OF_PARTITIONS and (len(given) > 1 or at_root):
        what = "linear rows beside exact queries" if at_root else "passes whose queries cross"
        names = "" if at_root else f", {given[0].name} beside {given[1].name}"
        raise ConfigError(
            f"solve, geolevel {geolevel}",
            f"{what} form matrices over cells",
            got=f"{cells} cells{names}",
            want=f"at most {MOST_CELLS_OF_PARTITIONS}",
            remedy="remove the named rows or passes, or solve in one pass with method nnls",
        )


def _finest(queries: Sequence[Query]) -> list[Query]:
    """Return the queries whose answers are not sums of the answers of another, each once."""
    kept: list[Query] = []
    for query in sorted(queries, key=lambda query: -query.size):
        if not any(is_refinement(one, query) for one in kept):
            kept.append(query)
    return kept


def refuse_large_families(plan: Plan, lattice: Lattice) -> None:
    """Refuse families of geounits that are too large for the method.

    Args:
      plan: The plan.
      lattice: The public geounits.

    Raises:
      ConfigError: A family has more children, or children times cells, than the method can solve.
    """
    if Method(plan.solving.method) is not Method.MAXFIT:
        return
    cells = plan.limits.n_possible(plan.schema)
    for level, geolevel in enumerate(plan.spine.levels):
        largest = int(lattice.n_children(level - 1).max()) if level else 1
        answers = sum(q.size for q in _targets(plan, level) if q.size < plan.schema.size)
        unknowns = largest * (cells + answers)
        if unknowns > MOST_UNKNOWNS:
            raise ConfigError(
                f"solve, geolevel {geolevel}",
                "has families that are too large for maxfit",
                got=f"{largest} children x ({cells} cells + {answers} answers) = {unknowns}",
                want=f"at most {MOST_UNKNOWNS}",
                remedy="choose method nnls",
            )


def _targets(plan: Plan, level: int) -> list[Query]:
    """Return the queries to which the counts of a geolevel are fitted."""
    from_subtree = plan.solving.fit_to == "tree" and level < plan.leaf.index
    asked = plan.levels[level:] if from_subtree else plan.levels[level : level + 1]
    return list({query.name: query for one in asked for query in one.queries}.values())


def _needs_matrices(plan: Plan, method: Method, has_rows: bool) -> str:
    """Return why the solver forms matrices over cells; "" if it does not."""
    if has_rows:
        return "a linear row or facility count"
    if method is Method.REWEIGHTED:
        return "method reweighted"
    if LeastSquaresSolver(plan.solving.least_squares) is not LeastSquaresSolver.STRUCTURED:
        return f"least_squares {plan.solving.least_squares}"
    return ""


def _refuse_many_groups(where: str, queries: list[Query]) -> None:
    try:
        Coordinates.of_queries(queries)
    except SchemaError as error:
        raise ConfigError(
            where,
            "planned queries or queries of strata group the levels of attributes in too many ways",
            got=error.got,
            want=error.want,
            remedy="ask prefixes, ranges or recodes of fewer attributes",
        ) from None


def _check_support(plan: Plan) -> None:
    """Check the support: root queries whose positive counts limit where noise is drawn.

    Raises:
      ConfigError: A query of the support is not measured at the root, the root has no other
        on-demand query, or a limit binds the root.
      SchemaError: A query is not finer than the previous one, an exact query of the root is not a
        sum of the first query, or a rounding query crosses a query of the support.
    """
    chain, root = plan.support, plan.levels[0]
    if not chain:
        return
    partitions = {query.name for query in root.queries if query.is_partition}
    what = "is no partition query that is measured at the root"
    refuse_unknown("query", what, [query.name for query in chain], sorted(partitions))
    _refuse_unnested("queries", chain)
    if not root.on_demand:
        raise ConfigError(
            chain[-1].name,
            "leaves nothing to draw below it at the root",
            want="a query of privacy.on_demand_queries that is measured there and no sum of it",
        )
    if plan.limits.is_implied(root.name) or plan.limits.rows_at(root.name):
        raise ConfigError(
            root.name,
            "has limits that cannot be checked on sums of its cells",
            want="no facilities, living quarters or linear rows",
        )
    for query in root.exact:
        if not is_refinement(chain[0], query):
            raise SchemaError(
                f"invariant {query.name}", f"is no sum of {chain[0].name}, which comes first"
            )
    for query, one in product(chain, [one for own in plan.passes for one in own]):
        if _cross(query, one):
            raise SchemaError(f"solve.rounding_passes, query {one.name}", f"crosses {query.name}")


def _refuse_many_answers(plan: Plan) -> None:
    """Refuse queries with more answers than a task can hold, in schemas of millions of cells.

    Raises:
      ConfigError: A geounit would have more noisy answers than a task holds.
    """
    for level in plan.levels:
        answers = sum(query.size for query in level.whole)
        largest = max(level.whole, key=lambda query: query.size, default=None)
        if answers > MOST_ANSWERS and largest is not None:
            raise ConfigError(
                f"privacy.on_demand_queries, geolevel {level.name}",
                "leaves too many answers per geounit to queries that are not on demand",
                got=f"{answers} answers, {largest.size} of them of {largest.name}",
                want=f"at most {MOST_ANSWERS}",
                remedy="name the query in privacy.on_demand_queries, and for the root name coarser "
                "queries in privacy.root_support_passes, which limit where it is drawn",
            )
