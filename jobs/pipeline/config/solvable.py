"""What would stop after measuring is refused before: combinations that no solver takes.

Everything here is known from the run file, and of geounits from their public list.
"""

from __future__ import annotations

from collections.abc import Sequence

from das.errors import ConfigError, SchemaError
from das.queries.query import Query, is_refinement
from das.tree.coordinates import Coordinates
from geography.lattice import Lattice
from jobs.pipeline.plan import Plan, plan_terms, why_no_estimates
from solvers.choices import (
    MOST_CELLS_IN_MATRICES,
    MOST_CELLS_OF_PARTITIONS,
    MOST_ENTRIES,
    MOST_NOISE,
    MOST_UNKNOWNS,
    Failsafe,
    LeastSquaresSolver,
    Method,
)


def refuse_unsolvable(plan: Plan) -> None:
    """Refuse what the solver could not take whatever is measured.

    Raises:
      ConfigError: A key of `solve` does not go with the measured queries, the invariants or the
        number of cells; or noise exceeds what floats resolve.
      SchemaError: The measured queries group the levels in too many ways.
    """
    solving = plan.solving
    if solving.targets == "full" or solving.learned_prior:
        why = why_no_estimates(plan)
        if why is not None:
            raise ConfigError(
                "solve.targets",
                "full needs estimates, and there are none beside these lazy queries",
                got=why,
                remedy="choose targets own",
            )
    if not plan.lazy:  # every such run has estimates
        plan_terms(plan)
    for level in range(len(plan.spine.levels)):
        _refuse_geolevel(plan, level)


def _refuse_geolevel(plan: Plan, level: int) -> None:
    """Refuse what the solver could not take at a geolevel, given by its position."""
    solving, geolevel = plan.solving, plan.spine.levels[level]
    for noisy in plan.noise(level, level):
        sd = noisy.mechanism.variance() ** 0.5
        if sd > MOST_NOISE:
            raise ConfigError(
                f"privacy, geolevel {geolevel}",
                "has so much noise that no counts can be solved",
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
    if solving.round_passes and geolevel in solving.order:
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
            remedy="leave it out, or plan with hdmm on plain counts, whose queries are partitions",
        )
    if cells > MOST_CELLS_IN_MATRICES:
        _refuse_many_groups(where, [*targets, *exact])


def _refuse_unrounded(plan: Plan, level: int, has_rows: bool) -> None:
    """Refuse passes whose answers, once they are whole numbers, some counts could not keep.

    Where one query of a pass refines all others, what comes before and what is exact, any whole
    numbers that add up to the parent are margins of tables of which the parent's cells are the
    others. So the next pass has a solution.
    """
    plan_level = plan.levels[level]
    where = f"solve.round_passes, geolevel {plan_level.name}"
    if Method(plan.solving.method) is not Method.NNLS or has_rows:
        raise ConfigError(
            where,
            "goes with exact queries and structural zeros alone, and with method nnls",
            got="linear rows or facilities" if has_rows else f"method {plan.solving.method}",
            remedy="set round_passes: false",
        )
    queries = {query.name: query for query in plan_level.queries}
    given, rounded = [*plan_level.kept], [query for one in plan.passes for query in one]
    for names in plan.solving.order[plan_level.name]:
        own = [queries[name] for name in names]
        given = _finest([*given, *own])
        if len(given) > 1 or given[0].name not in names:
            raise ConfigError(
                where,
                "has a pass of which no query refines all others, those before it and exact ones",
                got=list(names),
                remedy="name such a query, if one is measured, or set round_passes: false",
            )
        for query in rounded:
            if not (is_refinement(given[0], query) or is_refinement(query, given[0])):
                raise ConfigError(
                    where,
                    "has a pass whose finest query crosses one of solve.rounding",
                    got=f"{given[0].name}, {query.name}",
                    remedy=f"round {given[0].name} in the place of {query.name}",
                )


def _refuse_crossing(
    plan: Plan, level: int, cells: int, exact: Sequence[Query], has_rows: bool
) -> None:
    """Refuse what makes the solver of partitions form matrices over very many cells."""
    geolevel = plan.levels[level].name
    targets = {query.name: query for query in _targets(plan, level)}
    passes = [[targets[name] for name in one] for one in plan.solving.order.get(geolevel, ())]
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
            remedy="leave them out, or solve in one pass with method nnls",
        )


def _finest(queries: Sequence[Query]) -> list[Query]:
    """Queries whose answers are no sums of those of another, each once."""
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
      ConfigError: So many children with so many cells are more than the method can solve.
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
    """Queries that the counts of a geolevel are fitted to."""
    from_subtree = plan.solving.targets == "full" and level < plan.leaf.index
    asked = plan.levels[level:] if from_subtree else plan.levels[level : level + 1]
    return list({query.name: query for one in asked for query in one.queries}.values())


def _needs_matrices(plan: Plan, method: Method, has_rows: bool) -> str:
    """What makes the solver form matrices over cells; "" if nothing does."""
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
            "planned queries or those of strata group the levels of attributes in too many ways",
            got=error.got,
            want=error.want,
            remedy="ask prefixes, ranges or recodes of fewer attributes",
        ) from None
