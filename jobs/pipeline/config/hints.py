"""What noisy answers of a product say of products before it that its ties name."""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray
from das.queries.query import Query, parse_query
from invariants.between import Ties
from jobs.pipeline.plan import Hint, Plan, plan_terms, why_no_estimates

_MOST_ANSWERS = 200  # of a query that is estimated: of each kind of geounit their covariances


def hints_of(folder: str | None, plan: Plan, ties: Ties) -> dict[str, Hint]:
    """By the name of a product before, what noisy answers say of it.

    None where records have no estimates, where no small query tells the types apart, or where
    bounds of a type are sums over several products or of which either may bind.

    Args:
      folder: That of the product; None of the last.
      plan: Its plan.
      ties: Its ties.
    """
    if why_no_estimates(plan) is not None:
        return {}
    query = _telling(plan, ties)
    if query is None:
        return {}
    types = ties.query.codes
    type_of = np.zeros(query.size, np.int64)
    type_of[query.rows_of(np.arange(plan.schema.size))] = types
    bounds: dict[str, dict[int, tuple[IntArray, IntArray]]] = {}
    for one, (lows, highs) in enumerate(zip(ties.least, ties.most, strict=True)):
        names = {name for form in (*lows, *highs) for name in form.parts}
        if len(lows) == 1 and len(highs) == 1 and len(names) == 1:
            (name,) = names
            bounds.setdefault(name, {})[one] = lows[0].parts[name], highs[0].parts[name]
    out = {}
    for name, own in bounds.items():
        tied = [np.unique(types[tie.cells]).tolist() for tie in ties.entries]
        sets = {(one,) for one in own} | {tuple(some) for some in tied if {*some} <= {*own}}
        least, most = (np.array([own[one][side] for one in own]) for side in (0, 1))
        out[name] = Hint(
            folder,
            plan,
            query,
            np.array([type_of == one for one in own]).astype(np.int64),
            np.array([[one in some for one in own] for some in sorted(sets)]).astype(np.int64),
            least,
            most > least,
        )
    return out


def _telling(plan: Plan, ties: Ties) -> Query | None:
    """The smallest query of the product that tells its types apart and is estimated."""
    cells, types = np.arange(plan.schema.size), ties.query.codes
    terms = plan_terms(plan)
    names = {query.name: query for level in plan.levels for query in level.queries}
    for axis in plan.schema.attributes:
        query = parse_query(plan.schema, axis.name)
        names.setdefault(query.name, query)
    for query in sorted(names.values(), key=lambda one: one.size):
        if not query.is_partition or query.size > _MOST_ANSWERS:
            continue
        if not all(one.determines(query) for one in terms):
            continue
        pairs = np.unique(np.stack([query.rows_of(cells), types]), axis=1)
        if pairs.shape[1] == len(np.unique(pairs[0])):
            return query
    return None
