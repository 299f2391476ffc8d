"""How the invariants of a plan limit its privacy statements, as data and in words.

Manifests have the words in English. Pages have them in their language, made again from the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from das.privacy.budget import Budget, group_total
from das.privacy.neighborhoods import Comparable, Invariance, Neighborhood
from das.privacy.semantics import Change
from das.queries.sensitivity import Neighbors
from invariants.zeros import cells_at
from jobs.pipeline.documents.account import Guarantee
from jobs.pipeline.documents.manifest import Limited, Nearest, Stated, Statement
from jobs.pipeline.language import prose, tr, with_separators
from jobs.pipeline.plan import Plan

# Where the list of geounits comes from, in a manifest.
PUBLIC_LIST: Final = "public list"
FROM_DATA: Final = "data"
NOT_PROTECTED = "not protected: {reason}"
# From this number of cells on, levels that no invariant distinguishes are represented by four of
# them: each invariant needs some arrays of one number per cell, 0.8 MB each. Default, not measured.
_MANY_CELLS = 100_000


def invariance(plan: Plan, geounits_source: str) -> Invariance:
    """Return what neighboring data sets must have in common under a plan.

    Args:
      plan: The plan.
      geounits_source: "data" if the geounits are listed from the data, else "public list".
    """
    schema, limits, levels = plan.schema, plan.limits, plan.spine.levels
    # A change of two records involves at most four cells, so four levels represent all levels that
    # no invariant distinguishes.
    queries = [invariant.query for invariant in plan.invariants]
    kept_levels = [np.arange(size) for size in schema.shape]
    if schema.size >= _MANY_CELLS:
        kept_levels = limits.representative_levels(schema, queries, most=4)
    cells = cells_at(schema.shape, kept_levels)
    others = [limit for limit in limits.stated if limit not in limits.rows]
    return Invariance(
        levels,
        tuple(a.name for a in schema.attributes),
        tuple(map(len, kept_levels)),
        [held for kind in (*plan.invariants, *limits.rows, *others) for held in kind.held(cells)],
        None if limits.zeros is None else ~limits.zeros.holds(cells),
        places="the list of geounits" if geounits_source == FROM_DATA else "",
    )


def geounits_from_data(leaf: str) -> str:
    """Return a warning that the list of geounits comes from the data, with a remedy."""
    return (
        f"the list of geounits: which {leaf} exists comes from the data and is published; give "
        "geography.geounits, a list made without the data"
    )


def neighborhood(plan: Plan, geounits_source: str) -> Limited:
    """Return how the invariants limit the neighboring relation of the run."""
    kept = invariance(plan, geounits_source)
    neighbors = plan.budget.neighbors
    limited = kept.added() if neighbors is Neighbors.UNBOUNDED else kept.record()
    return _limited(limited, relation_words(neighbors, limited))


def nearest(plan: Plan, geounits_source: str) -> Nearest | None:
    """Return the distance of the nearest data sets with equal exact values; None without any."""
    kept, budget = invariance(plan, geounits_source), plan.budget
    if not any(held.is_exact for held in kept.held):
        return None
    distance = kept.distance(budget.neighbors)
    cost = None
    if distance.is_least and distance.records is not None:
        total = group_total(budget.definition, budget.total, distance.records)
        cost = replace(budget, total=total)
    found = Nearest(
        records=distance.records,
        is_least=distance.is_least,
        total=str(cost.total) if cost else None,
        epsilon=cost.epsilon if cost else None,
        in_words="",
    )
    return replace(found, in_words=nearest_words(budget, found))


def nearest_words(budget: Budget | Guarantee, nearest: Nearest) -> str:
    """Describe the distance of the nearest data sets with equal exact values, and its cost.

    Args:
      budget: Budget of the run, which holds between neighbors.
      nearest: Distance of the data sets, and the privacy loss between them.
    """
    changed = tr("changed" if budget.neighbors is Neighbors.BOUNDED else "added or removed")
    k, unit = nearest.records, budget.definition.unit
    if k is None:
        return prose("nearest.none")
    if nearest.epsilon is None:
        return prose("nearest.unknown", k=k, changed=changed)
    if k == 1:
        return prose("nearest.neighbors", changed=changed)
    loss = {"k": k, "changed": changed, "loss": f"{unit} = {nearest.total}"}
    if budget.definition.is_pure:
        return prose("nearest.pure", **loss)
    epsilon = with_separators(f"{math.ceil(nearest.epsilon * 1e3) / 1e3:,.3f}")  # rounded up
    return prose("nearest.concentrated", **loss, epsilon=epsilon, delta=budget.delta)


def explained(nearest: Nearest | None, budget: Guarantee) -> str:
    """Say what exact values mean for the guarantee of a run; empty without exact values.

    Args:
      nearest: The nearest data sets with equal exact values.
      budget: The guarantee, which holds between neighbors.
    """
    if nearest is None:
        return ""
    words = nearest_words(budget, nearest)
    if nearest.records is None or (nearest.records == 1 and not nearest.is_least):
        return words
    meaning = prose("exact.one") if nearest.records == 1 else prose("exact.several")
    return f"{meaning} {words}"


def limited_statements(
    stated: Sequence[Stated], plan: Plan, geounits_source: str
) -> tuple[Statement, ...]:
    """Return privacy statements with the limits that invariants set.

    A statement without comparable data sets loses its cost.

    Args:
      stated: Cost of each change of a record, ignoring invariants.
      plan: The plan.
      geounits_source: Source of the list of geounits, "data" or "public list".
    """
    kept = invariance(plan, geounits_source)
    limits = {(n.change, n.name): n for n in kept.all()}
    if plan.household_size is not None:
        household = kept.household(plan.household_size)
        limits[household.change, household.name] = household
    statements = []
    for statement in stated:
        neighborhood = limits[statement.change, statement.name]
        if neighborhood.comparable is Comparable.NONE:
            statement = replace(statement, total=None, epsilon=None, epsilon_simple=None)
        limited = _limited(neighborhood, statement_words(neighborhood))
        statements.append(Statement(**vars(statement), **vars(limited)))
    return tuple(statements)


def _limited(neighborhood: Neighborhood, in_words: str) -> Limited:
    return Limited(
        comparable=neighborhood.comparable,
        limited_by=neighborhood.limited_by,
        stays_in=neighborhood.stays_in,
        in_words=in_words,
    )


def relation_words(neighbors: Neighbors, limited: Neighborhood | Limited) -> str:
    """Describe how the invariants limit the epsilon of a run; empty if they limit nothing.

    Args:
      neighbors: Neighboring relation of the run.
      limited: The neighbors that agree on all exact values.
    """
    by, comparable = listed(limited.limited_by), limited.comparable
    if comparable is Comparable.NONE and neighbors is Neighbors.UNBOUNDED:
        return prose("neighbors.none_added", by=by)
    if comparable is Comparable.NONE:
        return prose("neighbors.none", by=by)
    if comparable is Comparable.SOME:
        return prose("neighbors.some", by=by)
    return ""


def statement_words(neighborhood: Neighborhood | Statement) -> str:
    """Describe which changes a privacy statement covers, given the invariants; empty for all.

    A change of the data is covered only if it alters no invariant. The examples are a statement
    about moves within a tract and one about moves within a state.

    >>> kind, by = Change.WITHIN, ("total in every tract",)
    >>> statement_words(Neighborhood(kind, "tract", Comparable.NONE, by))
    'not protected: no such change keeps total in every tract'
    >>> statement_words(Neighborhood(kind, "state", Comparable.SOME, by, stays_in="tract"))
    'only moves within one tract: others change total in every tract'
    """
    by, geolevel = listed(neighborhood.limited_by), neighborhood.stays_in
    if neighborhood.comparable is Comparable.NONE:
        return tr(NOT_PROTECTED, reason=tr("no such change keeps {by}", by=by))
    if neighborhood.comparable is Comparable.ALL:
        return ""
    if neighborhood.change is Change.WITHIN and geolevel:
        return tr("only moves within one {geolevel}: others change {by}", geolevel=geolevel, by=by)
    if geolevel:
        return prose("neighbors.stay", by=by, geolevel=geolevel)
    return tr("only changes that keep {by}", by=by)


def listed(names: Sequence[str]) -> str:
    """Join names of exact values into one phrase.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    shown = [*map(_translated, names)]
    return f" {tr('and')} ".join([", ".join(shown[:-1]), *shown[-1:]] if shown[1:] else shown)


def _translated(name: str) -> str:
    """Translate the name of an exact value, which invariants write as "NAME in every GEOLEVEL"."""
    what, in_every, geolevel = name.rpartition(" in every ")
    if in_every:
        return tr("{what} in every {geolevel}", what=_translated(what), geolevel=geolevel)
    by = name.removeprefix("facilities by ")
    return tr(name) if by == name else tr("facilities by {by}", by=by)
