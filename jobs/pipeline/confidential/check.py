"""Check the confidential data against the invariants that are not made from them.

Runs before anything is measured: a contradiction costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray, ObjectArray
from das.confidential import redact_errors
from das.errors import InfeasibleError, InputError
from das.histograms import Histograms
from das.queries.query import Query, parse_query
from invariants.conflict import Statement, smallest_conflict
from invariants.facilities import groups_of
from invariants.linear import LinearRow
from invariants.quarters import NAME, without_quarters
from invariants.zeros import cells_at, representative_levels
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.config.models.invariants import AnyInvariant, InvariantConfig
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.bound import bound_entries, open_released
from jobs.pipeline.release.given import (
    facilities_name,
    facility_counts,
    quarter_counts,
    stated_query,
)
from jobs.pipeline.storage.answers import read_answers, read_available
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks


@dataclass(frozen=True, eq=False)
class Broken:
    """Which geounits of a range break an invariant.

    Attributes:
      name: The invariant.
      mask: bool[G].
    """

    name: str
    mask: BoolArray


def check_input(
    plan: Plan,
    stated: Sequence[AnyInvariant],
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
    tasks: Tasks,
) -> None:
    """Check that the confidential data keep every invariant that is not made from them.

    Errors name the geounit and the invariants, and quote no number.

    Raises:
      InfeasibleError: The invariants of a geounit contradict each other, whatever the data.
      InputError: The data of a geounit break an invariant.
    """
    agreements = _agreements(plan, stated)
    for level in plan.levels:
        tables = [
            stated_query(plan, level, entry)
            for entry in stated
            if isinstance(entry, InvariantConfig)
            and entry.table is not None
            and entry.geolevel == level.name
        ]
        agreed = agreements.get(level.name, [])
        limits = plan.limits
        counted = limits.facilities is not None and limits.facilities.geolevel == level.name
        quartered = limits.quarters is not None and limits.quarters.geolevel == level.name
        rows = any(row.geolevels[-1] == level.name for row in limits.rows)
        zeros = level is plan.leaf and limits.zeros is not None
        bound = bool(level.bound) and quartered
        if not (tables or counted or quartered or rows or zeros or agreed or bound):
            continue
        size = tasks.sizing.check_geounits
        batches = geounit_batches(release, level, tasks.batches, size.most, size.least)
        tasks.run(
            f"check {level.name}", batches, _checker(plan, tables, agreed, release, confidential)
        )


@dataclass(frozen=True, eq=False)
class Agreement:
    """What of the data is the same in an earlier release that the run is bound to.

    Attributes:
      name: What it is, for the error.
      query: The query whose answers are those of the release, m answers.
      groups: int64[m], the sum in which each of them counts; the sums agree.
    """

    name: str
    query: Query
    groups: IntArray

    def sums(self, answers: IntArray) -> IntArray:
        """int64[G, e] of int64[G, m] answers of the query."""
        out = np.zeros((len(answers), int(self.groups.max()) + 1), np.int64)
        np.add.at(out.T, self.groups, answers.T)
        return out


def _agreements(plan: Plan, stated: Sequence[AnyInvariant]) -> dict[str, list[Agreement]]:
    """What data and earlier releases must agree on, by geolevel.

    That is what the run itself publishes exactly of the data, and what the release did.
    """
    found: dict[str, list[Agreement]] = {}
    for bound in plan.limits.bound:
        for exact in plan.invariants:
            shared = [name for name in exact.geolevels if name in bound.geolevels]
            if shared and exact.query.size <= bound.query.size:
                groups = groups_of(bound.query, exact.query)
            elif shared:
                groups = np.arange(bound.query.size)
            else:
                continue
            name = f"the invariant {exact.query.name}"
            found.setdefault(shared[-1], []).append(Agreement(name, bound.query, groups))
    for entry in bound_entries(stated):
        if entry.released is None or entry.released.path is None:
            continue
        released = open_released(plan, entry, entry.released)
        for digits, exact_there in released.exact().items():
            here = [name for name in plan.spine.levels if plan.census_digits.get(name) == digits]
            for geolevel in here[:1]:
                for called, groups in exact_there:
                    name = f"{called}, which is exact in the release"
                    found.setdefault(geolevel, []).append(Agreement(name, released.query, groups))
    return found


def _checker(
    plan: Plan,
    tables: Sequence[Query],
    agreed: Sequence[Agreement],
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
) -> Callable[[Batch], None]:
    @redact_errors
    def run(batch: Batch) -> None:
        geolevel = plan.levels[batch.level].name
        codes = read_public_geocodes(release, geolevel, batch.low, batch.high)
        truth = read_truth(
            Dataset.open(confidential.histograms(geolevel)), codes, plan.schema.size
        ).reveal()
        check = InputCheck(plan, release, batch, codes, tables)
        check.refuse_other_release(truth, agreed)
        broken = [failure for failure in check.broken(truth) if failure.mask.any()]
        if not broken:
            return
        first = min(int(np.argmax(failure.mask)) for failure in broken)
        conflict = smallest_conflict(check.statements(truth.slice(first, first + 1), first))
        where = f"{geolevel} {codes[first]}"
        if conflict:
            raise InfeasibleError(
                where,
                "its invariants contradict each other",
                got=" and ".join(conflict),
                want="counts of persons that keep all of them",
                remedy="correct the table one of them comes from, or leave one out",
            )
        name = next(failure.name for failure in broken if failure.mask[first])
        raise InputError(
            where,
            "the confidential data break an invariant",
            got=name,
            remedy="correct the data or the invariant",
        )

    return run


@dataclass(frozen=True, eq=False)
class InputCheck:
    """Invariants of the geounits of one range that do not come from the confidential data.

    Attributes:
      plan: The plan.
      release: Where given counts are published.
      batch: The range.
      codes: object[G], its geounits.
      tables: Queries of the geolevel that were given as tables.
    """

    plan: Plan
    release: ReleaseLayout
    batch: Batch
    codes: ObjectArray
    tables: Sequence[Query]

    def refuse_other_release(self, truth: Histograms, agreed: Sequence[Agreement]) -> None:
        """Refuse data that are not those of the release they are bound to.

        Raises:
          InputError: They disagree on what both have exactly; or people of the release are where
            nobody can live.
        """
        level, names = self.plan.levels[self.batch.level], [*self.codes]
        if not level.bound:
            return
        dataset = Dataset.open(self.release.given(level.name))
        given = dict(zip(level.bound, read_answers(dataset, level.bound, self.codes), strict=True))
        for one in agreed:
            differ = (one.sums(one.query.answer(truth)) != one.sums(given[one.query])).any(1)
            if differ.any():
                raise InputError(
                    f"{level.name} {names[int(np.argmax(differ))]}",
                    "the confidential data contradict the earlier release that the run is bound to",
                    got=one.name,
                    want="the people that the release is of",
                    remedy="bind the run to the release of these data",
                )
        quarters = self.plan.limits.quarters
        if quarters is not None and quarters.geolevel == level.name:
            counts = quarter_counts(self.release, quarters, self.codes, self.batch)
            for query, answers in given.items():
                homeless = without_quarters(counts) & (answers.sum(1) > 0)
                if homeless.any():
                    raise InputError(
                        f"{level.name} {names[int(np.argmax(homeless))]}",
                        f"the earlier release has people there in {query.name}, and there are no "
                        "living quarters",
                        remedy="make that release with the same living quarters, or leave them out",
                    )

    def broken(self, truth: Histograms) -> Iterator[Broken]:
        """Which geounits break which invariant."""
        for name, query, low, high in self._limits():
            answers = query.answer(truth)
            outside = (answers < low) | (answers > high)
            yield Broken(name, np.asarray(outside.any(1), np.bool_))
        if self.plan.limits.zeros is not None:
            mask = np.zeros(len(self.codes), np.bool_)
            mask[truth.owners()[self.plan.limits.zeros.holds(truth.cells)]] = True
            yield Broken("structural zeros", mask)

    def statements(self, truth: Histograms, row: int) -> list[Statement]:
        """All invariants of one geounit, exact ones with their answers."""
        plan, cells = self.plan, self._cells()
        out: list[Statement] = []
        given = {query.name for query in self.tables}
        for exact in plan.levels[self.batch.level].published:
            if exact.name not in given:
                answers = exact.answer(truth)[0]
                out += _statements(exact.name, exact, answers, answers, cells)
        for name, query, low, high in self._limits():
            out += _statements(name, query, low[row], high[row], cells)
        if plan.limits.zeros is not None:
            nobody = plan.limits.zeros.holds(cells).astype(np.int64)
            out.append(Statement("structural zeros", nobody, 0, 0))
        return out

    def _cells(self) -> IntArray:
        """int64[k]: one cell of all that no statement tells apart; all beside linear rows."""
        plan = self.plan
        if plan.limits.rows:
            return np.arange(plan.schema.size)
        limits = [query for _, query, _, _ in self._limits() if isinstance(query, Query)]
        queries = [*plan.levels[self.batch.level].exact, *limits]
        levels = representative_levels(plan.schema.shape, queries, plan.limits.zeros, most=1)
        return cells_at(plan.schema.shape, levels)

    def _limits(self) -> Iterator[tuple[str, Query | LinearRow, IntArray, IntArray]]:
        """Name, query, and int64[G, m] least and most of what was given or stated."""
        plan, batch = self.plan, self.batch
        level, facilities = plan.levels[batch.level], plan.limits.facilities
        for query in self.tables:
            dataset = Dataset.open(self.release.given(level.name))
            given, answers = read_available(dataset, query.name, query.size, batch.low, batch.high)
            full = np.zeros((len(self.codes), query.size), np.int64)
            full[np.isin(self.codes, given)] = answers
            yield f"table of {query.name}", query, full, full
        if facilities is not None and facilities.geolevel == level.name:
            counts = facility_counts(self.release, facilities, self.codes, batch)
            boxes = facilities.boxes(counts)
            yield facilities_name(facilities), facilities.query, boxes.least, boxes.most
        quarters = plan.limits.quarters
        if quarters is not None and quarters.geolevel == level.name:
            nobody = without_quarters(quarter_counts(self.release, quarters, self.codes, batch))
            low = np.zeros((len(self.codes), 1), np.int64)
            yield NAME, parse_query(plan.schema, "total"), low, np.where(nobody, 0, 2**62)[:, None]
        for row in level.bounded_rows:
            if row.geolevels[-1] == level.name:
                shape = (len(self.codes), 1)
                low = np.full(shape, -(2**62) if row.least is None else row.least)
                high = np.full(shape, 2**62 if row.most is None else row.most)
                yield f"row {row.name}", row, low, high


def _statements(
    name: str, query: Query | LinearRow, low: IntArray, high: IntArray, cells: IntArray
) -> Iterator[Statement]:
    """One statement per answer, about some cells."""
    if isinstance(query, LinearRow):
        yield Statement(name, query.coefficients[cells], float(low[0]), float(high[0]))
        return
    rows = query.rows_of(cells)
    for index, label in enumerate(query.labels()):
        called = name if query.size == 1 else f"{name}: {label}"
        yield Statement(
            called, (rows == index).astype(np.int64), float(low[index]), float(high[index])
        )
