"""Copy public counts into the release: facilities, published tables, exact answers of products.

Nothing confidential is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from das.arrays import Geocodes, IntArray, ObjectArray
from das.errors import InputError
from invariants.constraint import Constraint
from jobs.pipeline.config.models.kinds.kind import ExactAnswers, KindConfig, PublicTable, Setting
from jobs.pipeline.input.public_tables import read_public
from jobs.pipeline.plan import Level, Plan, exact_query
from jobs.pipeline.storage.answers import ANSWERS, answer_table, read_available
from jobs.pipeline.storage.dataset import Dataset, PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.geography import read_both_geocodes, read_public_geocodes
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch

_GEOUNITS = 50_000  # rows of a table written at once, for memory of the driver; not measured


@dataclass(frozen=True, eq=False)
class Given:
    """Public counts of some geounits.

    Attributes:
      name: Name of the counted quantity, as `Constraint.stored_as`.
      codes: object[G] geocodes, sorted.
      counts: int64[G, m].
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
        codes, counts = _exact_counts(exact, level.name, limit.counted, products)
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
    own, census = read_both_geocodes(release, level.name)
    known = dict(zip(census, own, strict=True))
    codes = np.array([known.get(code, code) for code in codes], object)
    order = np.argsort(codes)
    return codes[order], counts[order]


def _exact_counts(
    exact: ExactAnswers,
    geolevel: str,
    types: Sequence[str],
    products: Mapping[str, tuple[Plan, ReleaseLayout]],
) -> tuple[ObjectArray, IntArray]:
    """Read geocodes and counts by type from the exact answers of another product."""
    plan, release = products[exact.product]
    query = exact_query({exact.product: plan}, exact.product, exact.query, geolevel)
    published = Dataset.open(release.invariants(geolevel))
    codes, answers = read_available(published, query.name, query.size)
    counts = np.zeros((len(codes), len(types)), np.int64)
    for column, label in enumerate(query.labels()):
        if label in types:
            counts[:, types.index(label)] = answers[:, column]
    return codes, counts


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
    """Read int64[G, m], given counts of a limit in geounits of a range; 0 where none is given."""
    size = len(limit.counted)
    out = np.zeros((len(codes), size), np.int64)
    if size:
        dataset = Dataset.open(release.given(limit.geolevel))
        given, counts = read_available(dataset, limit.stored_as, size, batch.low, batch.high)
        keep = np.isin(given, codes)
        out[np.searchsorted(codes.astype(np.str_), given[keep].astype(np.str_))] = counts[keep]
    return out
