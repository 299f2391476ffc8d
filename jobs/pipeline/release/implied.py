"""Copy public counts into the release, and compute the constraints that they imply.

Capacities of leaves are summed from the geolevel of the facilities to the root, and bounds of
linear rows likewise. Where constraints join products, the released counts of earlier products are
inputs, so this step waits until those are solved. It reads no confidential data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from das.arrays import Geocodes, IntArray, ObjectArray
from das.errors import InputError, OutputError
from das.histograms import Histograms
from invariants.between import Cap, CrossProductConstraints
from invariants.constraint import Constraint
from invariants.facilities import Facilities, binding_totals, groups_of
from invariants.leaves import Leaves, LeavesTable, add_up, limit_totals
from invariants.quarters import without_quarters
from jobs.pipeline.config.models.kinds.kind import KindConfig, PublicTable, Setting
from jobs.pipeline.input.public_tables import read_public
from jobs.pipeline.plan import Level, Plan, exact_query
from jobs.pipeline.storage.answers import ANSWERS, answer_table, read_answers, read_available
from jobs.pipeline.storage.columns import flattened, lengths, lists, ragged_lists, texts
from jobs.pipeline.storage.dataset import (
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    is_published,
    publish,
)
from jobs.pipeline.storage.geography import (
    families,
    read_both_geocodes,
    read_geography,
    read_public_geocodes,
)
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks
from solvers.problem import NO_LIMIT

_IMPLIED = pa.schema(
    [
        ("geocode", pa.string()),
        *((name, pa.list_(pa.int64())) for name in ("least", "most", "low", "high")),
        ("row_least", pa.list_(pa.int64())),
        ("row_most", pa.list_(pa.int64())),
    ]
)
_QUARTERS = pa.field("quarters", pa.list_(pa.int64()))  # where living quarters are known

_GEOUNITS = 50_000  # rows of a table written at once, for memory of the driver; not measured


@dataclass(frozen=True, eq=False)
class Given:
    """Public counts of some geounits.

    Attributes:
      name: Name of the counted quantity, as `Constraint.stored_as`.
      codes: object[G] geocodes, sorted.
      counts: int64[G, m], the m counts of each of the G geounits.
      is_whole: Whether every geounit gets a row; geounits without a count get 0.
    """

    name: str
    codes: ObjectArray
    counts: IntArray
    is_whole: bool = False

    def rows(self, known: ObjectArray) -> Iterator[tuple[ObjectArray, IntArray]]:
        """Yield geocodes and counts of some geounits at a time, for writing.

        Args:
          known: All geounits of the geolevel, sorted.
        """
        codes = known if self.is_whole else self.codes
        for start in range(0, len(codes), _GEOUNITS):
            some = codes[start : start + _GEOUNITS]
            counts = np.zeros((len(some), self.counts.shape[1]), np.int64)
            counts[np.isin(some, self.codes)] = self.counts[np.isin(self.codes, some)]
            yield some, counts


def publish_given_counts(
    plan: Plan,
    stated: Sequence[KindConfig],
    release: ReleaseLayout,
    products: Mapping[str, tuple[Plan, ReleaseLayout]],
    bound: Callable[[Level], Sequence[tuple[str, PartFile]]] = lambda _: (),
) -> None:
    """Copy published tables, exact answers of other products and counts of earlier releases.

    Args:
      plan: The plan.
      stated: The section `invariants` of the configuration, paths absolute.
      release: The release to write to.
      products: Plan and release of products whose exact answers constrain this one.
      bound: Writes the pinned counts of a geolevel, after the geolevel below is published.
        Returns (name of query, part file) pairs.

    Raises:
      InputError: A table cannot be read, or has geounits that do not exist or appear twice.
    """
    for level in reversed(plan.levels):
        if is_published(release.given(level.name)):
            continue
        entries = [entry for entry in stated if entry.stated_at == level.name]
        given = [_given(plan, release, level, entry, products) for entry in entries]
        tables = [counts for counts in given if counts is not None]
        _publish(release, level.name, tables, bound(level))


def _given(
    plan: Plan,
    release: ReleaseLayout,
    level: Level,
    entry: KindConfig,
    products: Mapping[str, tuple[Plan, ReleaseLayout]],
) -> Given | None:
    """Read the public counts that an invariant of a geolevel names; None if it names none."""
    table, exact = entry.public_table, entry.answers_of
    if table is None and exact is None:
        return None
    plans = {name: other for name, (other, _) in products.items()}
    setting = Setting(plan.schema, plan.spine.levels, partial(exact_query, plans))
    (limit,) = entry.build(setting)
    if exact is not None:
        source, of_source = products[exact.product]
        query = exact_query({exact.product: source}, exact.product, exact.query, level.name)
        published = Dataset.open(of_source.invariants(level.name))
        codes, answers = read_available(published, query.name, query.size)
        counts = np.zeros((len(codes), len(limit.counted)), np.int64)
        for column, label in enumerate(query.labels()):
            if label in limit.counted:
                counts[:, limit.counted.index(label)] = answers[:, column]
    elif table is not None:
        codes, counts = _read(table, limit.counted, plan, release, level)
    limit.check_given(counts)
    return Given(limit.stored_as, codes, counts, limit.is_whole)


def _read(
    table: PublicTable, labels: Sequence[str], plan: Plan, release: ReleaseLayout, level: Level
) -> tuple[ObjectArray, IntArray]:
    """Read geocodes and counts of a public table, which has census geocodes."""
    codes, counts = read_public(table, labels, plan.census_digits[level.name])
    if plan.census is None:
        return codes, counts
    on_spine, census = read_both_geocodes(release, level.name)
    known = dict(zip(census, on_spine, strict=True))
    codes = np.array([known.get(code, code) for code in codes], object)
    order = np.argsort(codes)
    return codes[order], counts[order]


def refuse_strange(
    where: str, codes: ObjectArray, known: ObjectArray | Geocodes, geolevel: str
) -> None:
    """Refuse public counts of geounits that the run lacks.

    Args:
      where: Source of the counts, for the error.
      codes: object[G] geocodes with counts.
      known: object[K] or bytes[K], all geounits of the geolevel.
      geolevel: Name of the geolevel.

    Raises:
      InputError: A geounit is unknown.
    """
    strange = ~np.isin(codes.astype(np.bytes_), known.astype(np.bytes_))
    if strange.any():
        raise InputError(
            where,
            f"has geounits that do not exist ({int(strange.sum())} such)",
            got=codes[strange][0],
            want=f"geocodes of the geolevel {geolevel}",
        )


def _publish(
    release: ReleaseLayout,
    geolevel: str,
    given: Sequence[Given],
    bound: Sequence[tuple[str, PartFile]],
) -> None:
    """Publish the public counts of one geolevel, if there are some."""
    dataset = release.given(geolevel)
    if not given and not bound:
        return
    known = read_public_geocodes(release, geolevel)
    parts = [part for _, part in bound]
    for table in given:
        refuse_strange(f"table of {table.name}", table.codes, known, geolevel)
        writer = PartWriter(dataset, ANSWERS)
        for codes, counts in table.rows(known):
            writer.write(answer_table(codes, table.name, counts))
        parts.append(writer.close())
    names = dict.fromkeys([*(table.name for table in given), *(name for name, _ in bound)])
    publish(dataset, parts, {"geolevel": geolevel, "queries": [*names]})


def given_counts(
    release: ReleaseLayout, limit: Constraint, codes: ObjectArray, batch: Batch
) -> IntArray:
    """Read int64[G, m], the m given counts of a limit in G geounits of a range; 0 if not given."""
    size = len(limit.counted)
    out = np.zeros((len(codes), size), np.int64)
    if size:
        dataset = Dataset.open(release.given(limit.geolevel))
        given, counts = read_available(dataset, limit.stored_as, size, batch.low, batch.high)
        keep = np.isin(given, codes)
        out[np.searchsorted(codes.astype(np.str_), given[keep].astype(np.str_))] = counts[keep]
    return out


@dataclass(frozen=True, eq=False)
class BatchLimits:
    """Implied constraints of some geounits.

    Attributes:
      leaves: Capacity of the leaves below each geounit; None where no facilities are counted.
      row_least: int64[G, r], lower bounds of the r bounded rows of the geolevel in G geounits.
      row_most: int64[G, r], upper bounds of these rows.
      quarters: int64[G, m], living quarters by kind; None if the run has none at the geolevel.
    """

    leaves: LeavesTable | None
    row_least: IntArray
    row_most: IntArray
    quarters: IntArray | None = None

    def take(self, geounits: IntArray) -> BatchLimits:
        """Return the constraints of the geounits at these positions."""
        return BatchLimits(
            None if self.leaves is None else self.leaves.take(geounits),
            self.row_least[geounits],
            self.row_most[geounits],
            None if self.quarters is None else self.quarters[geounits],
        )


def publish_implied(plan: Plan, release: ReleaseLayout, tasks: Tasks) -> None:
    """Publish the implied constraints of every geolevel, finest first; published ones are kept.

    Raises:
      OutputError: The exact answers or the given counts are not published.
      InfeasibleError: Facilities and totals of a geounit contradict each other.
    """
    bound = [level for level in plan.levels if plan.limits.is_implied(level.name)]
    for level in reversed(bound):
        dataset = implied_limits(plan, release, level.name)
        if is_published(dataset):
            continue
        below = next((finer for finer in bound if finer.index == level.index + 1), level)
        size = tasks.sizing.implied_geounits
        batches = geounit_batches(release, below, tasks.batches, size.most, size.least)

        def run(batch: Batch, level: Level = level) -> PartFile:
            return _write_implied(plan, release, level, batch)

        parts = tasks.run(f"implied {level.name}", batches, run)
        facts = {"geolevel": level.name}
        if plan.limits.depends_on_other_products:  # made of counts, which other settings make anew
            facts["solve_digest"] = plan.solve_digest
        publish(dataset, parts, facts)


def implied_limits(plan: Plan, release: ReleaseLayout, geolevel: str) -> Place:
    """Return the path of the implied constraints of a geolevel."""
    tied = plan.limits.depends_on_other_products
    return release.tied(geolevel) if tied else release.implied(geolevel)


def other_counts(
    release: ReleaseLayout, sizes: Mapping[str, int], geolevel: str, codes: ObjectArray
) -> dict[str, Histograms]:
    """Read the released counts of earlier products in some geounits, by product name.

    Args:
      release: The release of the product that they constrain.
      sizes: Number of cells by name of the earlier product.
      geolevel: Name of the geolevel.
      codes: object[G] geocodes.
    """
    return {
        name: read_counts(release.product(name), geolevel, codes, n_cells)
        for name, n_cells in sizes.items()
    }


@dataclass(frozen=True, eq=False)
class _Geounits:
    """Geounits of one geolevel whose constraints are implied by those of their children.

    Attributes:
      plan: The plan.
      release: The release.
      batch: The range of the geounits.
      codes: object[G] geocodes, ascending.
      below: Constraints of the children; None where the geolevel below has none.
      owners: int64, position of the geounit of each child; without `below`, of each geounit.
    """

    plan: Plan
    release: ReleaseLayout
    batch: Batch
    codes: ObjectArray
    below: BatchLimits | None
    owners: IntArray

    @property
    def level(self) -> Level:
        """Return the geolevel."""
        return self.plan.levels[self.batch.level]

    def given(self, limit: Constraint) -> IntArray:
        """Read int64[G, m], the m given counts of a limit in each of the G geounits."""
        return given_counts(self.release, limit, self.codes, self.batch)

    def others(self, sizes: Mapping[str, int]) -> dict[str, Histograms]:
        """Read the released counts of earlier products."""
        return other_counts(self.release, sizes, self.level.name, self.codes)

    def quarters(self) -> IntArray | None:
        """Return int64[G, m], living quarters of G geounits by kind; None if the run has none here.

        They are given at one geolevel, and sums over children at the geolevels above.
        """
        quarters = self.plan.limits.quarters_at(self.level.name)
        if quarters is None:
            return None
        if self.level.name == quarters.geolevel:
            return self.given(quarters)
        counts = np.zeros((len(self.codes), len(quarters.kinds)), np.int64)
        if self.below is not None and self.below.quarters is not None:
            np.add.at(counts, self.owners, self.below.quarters)
        return counts

    def leaves(self, quarters: IntArray | None) -> LeavesTable | None:
        """Return the capacity of the leaves below; None where no facilities are counted."""
        bound, size = self.plan.limits.by_type, len(self.codes)
        if bound is None or self.level.name not in bound.geolevels:
            return None
        if self.level.name == bound.geolevel:
            if isinstance(bound, Facilities):
                boxes = bound.boxes(self.given(bound))
            else:
                boxes = bound.boxes(self.others(bound.sizes), size)
            if quarters is not None:
                boxes = boxes.nobody_in(without_quarters(quarters))
            return self._with_totals(bound, add_up(boxes, np.arange(size), size))
        if self.below is None or self.below.leaves is None:
            return None
        finer = self.below.leaves
        return self._with_totals(bound, add_up(finer.leaves, self.owners[finer.owners()], size))

    def _with_totals(
        self, bound: Facilities | CrossProductConstraints, leaves: LeavesTable
    ) -> LeavesTable:
        """Impose totals that are exact at this geolevel and at no finer one."""
        size, geolevel = len(self.codes), self.level.name
        query = binding_totals(bound.geolevel, self.plan.invariants, geolevel)
        if query is None:
            return leaves
        published = Dataset.open(self.release.invariants(geolevel))
        totals = read_answers(published, [query], self.codes)[0]
        types = bound.query
        if query.size > types.size or query.name == types.name:  # the types themselves are exact
            exact = np.zeros((size, types.size), np.int64)
            np.add.at(exact.T, groups_of(query, types), totals.T)
            points = Leaves(exact, exact, exact.sum(1), exact.sum(1))
            return add_up(points, np.arange(size), size)
        return limit_totals(leaves, groups_of(types, query), totals)

    def row_bounds(self) -> tuple[IntArray, IntArray]:
        """Return two int64[G, r], lower and upper bounds of r linear rows in each of G geounits.

        Bounds are stated, or summed over children if the geolevel below has the row. Bounds from
        exact answers of another product are read at every geolevel.
        """
        rows, below, size = self.level.bounded_rows, self.below, len(self.codes)
        finer: list[str] = []
        if below is not None:
            finer = [row.name for row in self.plan.levels[self.batch.level + 1].bounded_rows]
        least, most = np.zeros((2, size, len(rows)), np.int64)
        for index, row in enumerate(rows):
            if row.cap is not None:
                low, high = self._demanded(row.cap)
            elif below is not None and row.name in finer:
                column = finer.index(row.name)
                low = -_added_up(-below.row_least[:, column], self.owners, size)
                high = _added_up(below.row_most[:, column], self.owners, size)
            else:
                low, high = row.bounds(self.given(row))
            least[:, index], most[:, index] = low, high
        return least, most

    def _demanded(self, cap: Cap) -> tuple[IntArray, IntArray]:
        """Return int64[G] lower and upper bounds of a row in G geounits.

        They follow from exact answers of another product.
        """
        dataset = Dataset.open(self.release.product(cap.product).invariants(self.level.name))
        answers = read_answers(dataset, [cap.query], self.codes)[0][:, list(cap.answers)].sum(1)
        sizes = {name: len(part) for name, part in cap.others.parts.items()}
        rest = answers - cap.others.answer(self.others(sizes), len(self.codes))
        none = np.full(len(self.codes), NO_LIMIT)
        return (-none, rest) if cap.is_most else (rest, none)


def _write_implied(plan: Plan, release: ReleaseLayout, level: Level, batch: Batch) -> PartFile:
    """Write the implied constraints of one geolevel from a range of the geolevel below.

    If the geolevel below has no constraints, the range is one of the geolevel itself.
    """
    read = read_geography(
        release, plan.levels[batch.level].name, batch.low, batch.high, ("geocode", "parent")
    )
    codes, below = texts(read), None
    owners = np.arange(len(codes))
    if batch.level != level.index:
        finer = plan.levels[batch.level]
        stored = Dataset.open(implied_limits(plan, release, finer.name))
        below = read_limits(plan, finer, stored, codes)
        parents = texts(read, "parent")
        ranges = list(families(parents))
        owners = np.repeat(np.arange(len(ranges)), [stop - start for start, stop in ranges])
        codes = parents[[start for start, _ in ranges]]
    covered = Batch(level.index, str(codes[0]), str(codes[-1]), len(codes))
    geounits = _Geounits(plan, release, covered, codes, below, owners)
    quarters = geounits.quarters()
    leaves = geounits.leaves(quarters)
    least, most = geounits.row_bounds()
    if quarters is not None:
        is_empty = without_quarters(quarters)
        least[is_empty], most[is_empty] = 0, 0
    table = _implied_table(codes, leaves, least, most)
    if quarters is not None:
        table = table.append_column(_QUARTERS, lists(quarters))
    writer = PartWriter(implied_limits(plan, release, level.name), table.schema)
    writer.write(table)
    return writer.close()


def _added_up(most: IntArray, owners: IntArray, n_owners: int) -> IntArray:
    """Return int64[G], upper bounds of G parents, summed over children.

    Args:
      most: Upper bounds of the children; `NO_LIMIT` for a child without bound.
      owners: Position of the parent of each child.
      n_owners: Number of parents, G. A parent of a child without bound gets `NO_LIMIT`.
    """
    sums, is_open = np.zeros(n_owners, np.int64), np.zeros(n_owners, np.bool_)
    np.add.at(sums, owners, np.where(most == NO_LIMIT, 0, most))
    np.logical_or.at(is_open, owners, most == NO_LIMIT)
    return np.where(is_open, NO_LIMIT, sums)


def read_limits(
    plan: Plan, level: Level, stored: Dataset | RangeReader, codes: ObjectArray
) -> BatchLimits:
    """Read the implied constraints of exactly these geounits of a geolevel, in order.

    Args:
      plan: The plan.
      level: The geolevel.
      stored: The dataset `implied_limits` of the geolevel, or a reader of it.
      codes: object[G] geocodes, ascending, of a range.

    Raises:
      OutputError: The constraints are not published, or lack a geounit.
    """
    table = stored.read(str(codes[0]), str(codes[-1]))
    present = texts(table)
    if not np.array_equal(present, codes):
        raise OutputError(
            str(stored.path), "does not hold every geounit", got=len(present), want=len(codes)
        )
    flat = {
        name: flattened(table.column(name))
        for name in ("least", "most", "low", "high", "row_least", "row_most")
    }
    rows = len(level.bounded_rows)
    bound = plan.limits.by_type
    leaves = None
    if bound is not None and level.name in bound.geolevels:
        t = bound.query.size
        leaves = LeavesTable(
            np.concatenate(([0], np.cumsum(lengths(table.column("low"))))),
            Leaves(
                flat["least"].reshape(-1, t), flat["most"].reshape(-1, t), flat["low"], flat["high"]
            ),
        )
    quarters = None
    known = plan.limits.quarters_at(level.name)
    if known is not None:
        counts = flattened(table.column(_QUARTERS.name))
        quarters = counts.reshape(len(codes), len(known.kinds))
    return BatchLimits(
        leaves,
        flat["row_least"].reshape(len(codes), rows),
        flat["row_most"].reshape(len(codes), rows),
        quarters,
    )


def _implied_table(
    codes: ObjectArray, leaves: LeavesTable | None, least: IntArray, most: IntArray
) -> pa.Table:
    none = np.zeros(len(codes) + 1, np.int64)
    empty = np.zeros(0, np.int64)
    columns = [pa.array(codes, pa.string())]
    if leaves is None:
        columns += [ragged_lists(none, empty)] * 4
    else:
        offsets, rows = leaves.offsets, leaves.leaves
        t = rows.n_types
        columns += [ragged_lists(offsets * t, rows.least), ragged_lists(offsets * t, rows.most)]
        columns += [ragged_lists(offsets, rows.low), ragged_lists(offsets, rows.high)]
    return pa.table([*columns, lists(least), lists(most)], schema=_IMPLIED)
