"""Check the confidential data against invariants that do not come from them.

The check runs before budget is reserved, so a contradiction costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray, ObjectArray
from das.confidential import redact_errors
from das.errors import InfeasibleError, InputError
from das.histograms import Histograms
from das.queries.query import Query
from invariants.conflict import Statement, smallest_conflict
from invariants.constraint import Constraint, statements_of
from invariants.exact import Invariant, invariants_at
from invariants.facilities import groups_of
from invariants.linear import LinearRow
from invariants.quarters import without_quarters
from invariants.zeros import cells_at
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.config.models.kinds.kind import KindConfig
from jobs.pipeline.config.models.kinds.query import InvariantConfig
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.bound import bound_entries, open_released
from jobs.pipeline.release.implied import given_counts
from jobs.pipeline.storage.answers import read_answers
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks


def check_input(
    plan: Plan,
    stated: Sequence[KindConfig],
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
    tasks: Tasks,
) -> None:
    """Check that the confidential data meet every invariant that does not come from them.

    Errors name the geounit and the invariants, and quote no number.

    Raises:
      InfeasibleError: The invariants of a geounit contradict each other for any data.
      InputError: The data of a geounit break an invariant.
    """
    agreements = _agreements(plan, stated)
    for level in plan.levels:
        tables = [
            Invariant.build(plan.schema, plan.spine.levels, entry.query, level.name)
            for entry in stated
            if isinstance(entry, InvariantConfig)
            and entry.table is not None
            and entry.geolevel == level.name
        ]
        limits = [*tables, *plan.limits.stated_at(level.name)]
        if level is not plan.leaf:  # limits of all geolevels hold above if they hold in leaves
            limits = [limit for limit in limits if limit.geolevels]
        agreed = agreements.get(level.name, [])
        quarters = plan.limits.quarters
        quartered = quarters is not None and quarters.geolevel == level.name
        if not (limits or agreed or (level.bound and quartered)):
            continue
        size = tasks.sizing.check_geounits
        batches = geounit_batches(release, level, tasks.batches, size.most, size.least)
        tasks.run(
            f"check {level.name}", batches, _checker(plan, limits, agreed, release, confidential)
        )


@dataclass(frozen=True, eq=False)
class Agreement:
    """Sums that must be equal in the data and in an earlier release that the run is pinned to.

    Attributes:
      name: Description for error messages.
      query: Query with m answers in the release.
      groups: int64[m], index of the sum to which each answer belongs.
    """

    name: str
    query: Query
    groups: IntArray

    def sums(self, answers: IntArray) -> IntArray:
        """Return int64[G, e], the e sums in each of G geounits, from int64[G, m] query answers."""
        out = np.zeros((len(answers), int(self.groups.max()) + 1), np.int64)
        np.add.at(out.T, self.groups, answers.T)
        return out


def _agreements(plan: Plan, stated: Sequence[KindConfig]) -> dict[str, list[Agreement]]:
    """List the sums on which the data and earlier releases must agree, by geolevel.

    These are the exact values that this run publishes, and those that the release published.
    """
    agreements: dict[str, list[Agreement]] = {}
    for bound in plan.limits.pinned:
        for exact in plan.invariants:
            shared = [name for name in exact.geolevels if name in bound.geolevels]
            if shared and exact.query.size <= bound.query.size:
                groups = groups_of(bound.query, exact.query)
            elif shared:
                groups = np.arange(bound.query.size)
            else:
                continue
            name = f"the invariant {exact.query.name}"
            agreements.setdefault(shared[-1], []).append(Agreement(name, bound.query, groups))
    for entry in bound_entries(stated):
        if entry.released is None or entry.released.path is None:
            continue
        released = open_released(plan, entry, entry.released)
        for digits, exact_sums in released.exact().items():
            geolevels = [n for n in plan.spine.levels if plan.census_digits.get(n) == digits]
            for geolevel in geolevels[:1]:
                agreements.setdefault(geolevel, []).extend(
                    Agreement(f"{name}, which is exact in the release", released.query, groups)
                    for name, groups in exact_sums
                )
    return agreements


def _checker(
    plan: Plan,
    limits: Sequence[Constraint],
    agreed: Sequence[Agreement],
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
) -> Callable[[Batch], None]:
    @redact_errors
    def run(batch: Batch) -> None:
        geolevel = plan.levels[batch.level].name
        codes = read_public_geocodes(release, geolevel, batch.low, batch.high)
        truth = true_counts(plan, confidential, geolevel, codes).reveal()
        _refuse_other_release(plan, release, batch, codes, truth, agreed)
        given = [given_counts(release, limit, codes, batch) for limit in limits]
        broken = [limit.broken(truth, stated) for limit, stated in zip(limits, given, strict=True)]
        first = min((int(np.argmax(mask)) for mask in broken if mask.any()), default=None)
        if first is None:
            return
        cells = _cells(plan, geolevel, limits)
        statements = [*_published(plan, geolevel, truth.slice(first, first + 1), cells, limits)]
        for limit, stated in zip(limits, given, strict=True):
            statements += limit.statements(cells, stated[first])
        conflict = smallest_conflict(statements)
        where = f"{geolevel} {codes[first]}"
        if conflict:
            raise InfeasibleError(
                where,
                "its invariants contradict each other",
                got=" and ".join(conflict),
                want="counts of persons that keep all of them",
                remedy="correct the table of one of these invariants, or remove one from the run "
                "file",
            )
        name = next(limit.title for limit, mask in zip(limits, broken, strict=True) if mask[first])
        raise InputError(
            where,
            "the confidential data break an invariant",
            got=name,
            remedy="correct the data or the invariant",
        )

    return run


def _refuse_other_release(
    plan: Plan,
    release: ReleaseLayout,
    batch: Batch,
    codes: ObjectArray,
    truth: Histograms,
    agreed: Sequence[Agreement],
) -> None:
    """Refuse data that differ from the earlier release that the run is pinned to.

    Raises:
      InputError: An exact value differs; or the release has records in a geounit without living
        quarters.
    """
    level = plan.levels[batch.level]
    if not level.bound:
        return
    dataset = Dataset.open(release.given(level.name))
    given = dict(zip(level.bound, read_answers(dataset, level.bound, codes), strict=True))
    for agreement in agreed:
        query = agreement.query
        differ = (agreement.sums(query.answer(truth)) != agreement.sums(given[query])).any(1)
        if differ.any():
            raise InputError(
                f"{level.name} {codes[int(np.argmax(differ))]}",
                "the confidential data contradict the earlier release that the run is bound to",
                got=agreement.name,
                want="the data from which that release was made",
                remedy="bind the run to the release of these data",
            )
    quarters = plan.limits.quarters
    if quarters is not None and quarters.geolevel == level.name:
        is_empty = without_quarters(given_counts(release, quarters, codes, batch))
        for query, answers in given.items():
            homeless = is_empty & (answers.sum(1) > 0)
            if homeless.any():
                raise InputError(
                    f"{level.name} {codes[int(np.argmax(homeless))]}",
                    f"the earlier release has people there in {query.name}, and there are no "
                    "living quarters",
                    remedy="make the earlier release with the same living quarters, or leave the "
                    "invariant `living_quarters` out of this run",
                )


def _cells(plan: Plan, geolevel: str, limits: Sequence[Constraint]) -> IntArray:
    """Return int64[k], one cell of each of k groups of cells that no invariant distinguishes."""
    queries = [query for limit in limits for query in limit.queries]
    queries += [invariant.query for invariant in invariants_at(plan.invariants, geolevel)]
    levels = plan.limits.representative_levels(plan.schema, queries, most=1)
    return cells_at(plan.schema.shape, levels)


def _published(
    plan: Plan, geolevel: str, truth: Histograms, cells: IntArray, limits: Sequence[Constraint]
) -> Iterator[Statement]:
    """Yield the exact values that the run publishes of one geounit, but for public tables.

    Args:
      plan: The plan.
      geolevel: The geolevel.
      truth: Histogram of one geounit.
      cells: int64[k], as `_cells`.
      limits: Limits checked at the geolevel, including public tables.
    """
    tables = {limit.stored_as for limit in limits}
    for exact in plan.level(geolevel).published:
        answers = exact.answer(truth)[0]
        if isinstance(exact, LinearRow):
            total = float(answers[0])
            yield Statement(exact.name, exact.coefficients[cells], total, total)
        elif exact.name not in tables:
            yield from statements_of(exact.name, exact, answers, answers, cells)
