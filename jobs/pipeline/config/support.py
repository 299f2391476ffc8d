"""Check what of a large schema is found first, and what none of it may be as large as."""

from __future__ import annotations

from itertools import pairwise

from das.errors import ConfigError, SchemaError
from das.queries.query import is_refinement
from jobs.pipeline.plan import Plan

MOST_ANSWERS = 4_000_000
"""Of a geounit to the queries that are not lazy: 32 MB an array, of which a task holds some tens
(docs/sizes.md, "Schemas of millions of cells"). They have full column rank, so a root without
support has no more cells."""


def check_support(plan: Plan) -> None:
    """Check the queries whose counts at the root say where its lazy queries are drawn.

    Raises:
      ConfigError: One is not measured at the root, nothing lazy is left to draw there, or a limit
        binds the root.
      SchemaError: One is not finer than the one before, an invariant of the root is no sum of the
        first, or a rounding query crosses one.
    """
    chain, root = plan.support, plan.levels[0]
    if not chain:
        return
    partitions = {query.name for query in root.queries if query.is_partition}
    for query in chain:
        if query.name not in partitions:
            raise ConfigError(
                query.name,
                "is no partition query that is measured at the root",
                want=f"some of {sorted(partitions)}",
            )
    for coarse, fine in pairwise(chain):
        if coarse.name == fine.name or not is_refinement(fine, coarse):
            raise SchemaError(fine.name, f"does not refine {coarse.name}, which comes before it")
    if not root.lazy:
        raise ConfigError(
            chain[-1].name,
            "leaves nothing to draw below it at the root",
            want="a query of privacy.lazy_queries that is measured there and no sum of it",
        )
    if plan.limits.is_implied(root.name) or plan.limits.rows_at(root.name):
        raise ConfigError(
            root.name,
            "has limits to keep, which are not known of sums of its cells",
            want="no facilities, living quarters or linear rows",
        )
    for query in root.exact:
        if not is_refinement(chain[0], query):
            raise SchemaError(
                f"invariant {query.name}", f"is no sum of {chain[0].name}, which comes first"
            )
    for query in chain:
        for one in (one for own in plan.passes for one in own):
            if not (is_refinement(query, one) or is_refinement(one, query)):
                raise SchemaError(f"rounding query {one.name}", f"crosses {query.name}")


def refuse_large(plan: Plan) -> None:
    """Refuse what would be as large as the cells of a schema of many millions.

    Raises:
      ConfigError: A geounit would have more noisy answers than a task holds.
    """
    for level in plan.levels:
        answers = sum(query.size for query in level.whole)
        largest = max(level.whole, key=lambda query: query.size, default=None)
        if answers > MOST_ANSWERS and largest is not None:
            raise ConfigError(
                f"privacy.lazy_queries, geolevel {level.name}",
                "would draw more answers in every geounit than a task holds",
                got=f"{answers} answers, {largest.size} of them of {largest.name}",
                want=f"at most {MOST_ANSWERS}",
                remedy="name the query in privacy.lazy_queries, and for the root in "
                "privacy.root_support queries that say where it is drawn",
            )
