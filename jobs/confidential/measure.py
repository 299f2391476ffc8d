"""Measure: noisy answers of every geounit, written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from das.confidential import Confidential, redact_errors
from das.errors import ConfigError
from das.histograms import Histograms
from das.measure import Part, measure, measure_at
from das.mechanisms.entropy import NoiseKey, Places
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from jobs.confidential.histograms import read_truth
from jobs.confidential.noise_key import LentKey, lent
from jobs.plan import Level, Plan
from jobs.storage.answers import (
    LAZY_MEASUREMENTS,
    MEASUREMENTS,
    MEASUREMENTS_FORMAT,
    DrawnAnswers,
    described,
    measurement_table,
)
from jobs.storage.columns import texts
from jobs.storage.dataset import (
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    is_published,
    propose,
    publish,
)
from jobs.storage.geography import families, read_geography
from jobs.storage.histograms import read_counts
from jobs.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.tasks.batches import Batch, geounit_batches
from jobs.tasks.executor import Tasks

_CHUNK_NUMBERS = 4_000_000  # numbers held at once in a task


@dataclass(frozen=True, eq=False)
class MeasureTask:
    """All that a measuring task knows."""

    plan: Plan
    level: Level
    release: ReleaseLayout
    confidential: ConfidentialLayout
    key: LentKey


@dataclass(frozen=True, eq=False)
class MeasureStage:
    """The stage, with all it works on.

    Attributes:
      plan: The plan.
      release: Where measurements go.
      confidential: Where the truth lies.
      tasks: What runs its steps; whether they are open to others is stated with the measurements.
    """

    plan: Plan
    release: ReleaseLayout
    confidential: ConfidentialLayout
    tasks: Tasks

    def measure(self, index: int, key: NoiseKey | None = None, attempt: str | None = None) -> None:
        """Measure one geolevel and publish the noisy answers; published ones are kept.

        Lazy queries are drawn for answers about cells in which the published counts of the parent
        are positive, so the geolevel above must be solved; what is drawn is published with all
        other answers of the geolevel, once.

        The key is drawn here, for this geolevel and this start of the driver, lent to the tasks,
        and cannot be put together again when they are done. A task that is run again draws the
        same noise; a published geolevel is never measured again.

        Args:
          index: Position of the geolevel.
          key: Only for seeded tests; default: a fresh key from the operating system.
          attempt: How the account knows this draw. Then the answers are only proposed: the caller
            accepts them when the account has recorded them.

        Raises:
          OutputError: A query is lazy and the geolevel above is not solved.
          ConfigError: The key can be guessed, and the plan is not marked as not for release.
        """
        plan = self.plan
        if key is not None and key.is_for_testing and not plan.not_for_release:
            raise ConfigError(
                "noise key",
                "can be made again by anyone, so it must not protect what is to be released",
                remedy="give no key; or a run file with `privacy.randomness: {source: "
                "seeded_not_for_release, seed: ...}`",
            )
        level = plan.levels[index]
        geolevel, dataset = level.name, self.release.measurements(level.name)
        if is_published(dataset):
            return
        if level.lazy:
            Dataset.open(self.release.counts(plan.levels[level.index - 1].name))
        whole = sum(query.size for query in level.whole)
        size = self.tasks.sizing.measure_numbers
        largest = max(1, size.most // max(1, whole))
        numbers = sum(query.size for query in level.queries)
        batches = self._batches(level, largest, size.least // max(1, numbers))
        with lent(key or NoiseKey.draw(), self.confidential.keys) as lent_key:
            task = MeasureTask(plan, level, self.release, self.confidential, lent_key)
            parts = self.tasks.run(f"measure {geolevel}", batches, _measurer(task))
        facts = {
            "format": MEASUREMENTS_FORMAT,
            "geolevel": geolevel,
            "configuration_digest": plan.digest,
            "not_for_release": plan.not_for_release,
            "queries": [described(query) for query in level.queries],
            "lazy_queries": sorted(query.name for query in level.lazy),
            "open_session": self.tasks.is_open,
        }
        if attempt is None:
            publish(dataset, parts, facts)
        else:
            propose(dataset, attempt, parts, facts)

    def _batches(self, level: Level, largest: int, smallest: int) -> list[Batch]:
        return geounit_batches(self.release, level, self.tasks.batches, largest, smallest)


def _measurer(task: MeasureTask) -> Callable[[Batch], PartFile]:
    def run(batch: Batch) -> PartFile:
        return measure_batch(batch, task)

    return run


@redact_errors
def measure_batch(batch: Batch, task: MeasureTask) -> PartFile:
    """Measure the geounits of one range that are not only children."""
    plan, level, key = task.plan, task.level, task.key.key()
    table = read_geography(task.release, level.name, batch.low, batch.high)
    measured = table.filter(pc.invert(table.column("only_child")))
    codes = texts(measured)
    ends = texts(measured, "chain_end")
    above = _Above.read(task, texts(measured, "parent"))
    whole = sum(query.size for query in level.whole)
    numbers = np.cumsum(whole + len(level.lazy) * above.live_cells() + 1)
    noise = {end: plan.noise(level.index, plan.level(end).index) for end in set(ends)}
    schema = LAZY_MEASUREMENTS if level.lazy else MEASUREMENTS
    writer = PartWriter(task.release.measurements(level.name), schema)
    histograms = RangeReader(Dataset.open(task.confidential.histograms(level.name)))
    start = 0
    while start < len(codes):
        most = (numbers[start - 1] if start else 0) + _CHUNK_NUMBERS
        stop = max(start + 1, int(np.searchsorted(numbers, most, side="right")))
        chunk = list(codes[start:stop])
        places = Places.of(chunk)
        truth = read_truth(histograms, chunk, plan.schema.size)
        tables = []
        for index, query in enumerate(level.queries):
            mechanisms = [noise[end][index].mechanism for end in ends[start:stop]]
            if query in level.lazy:
                drawn = above.part(start, stop)
                tables.append(_lazy_table(truth, query, drawn, chunk, mechanisms, key))
            else:
                noisy = measure(truth, query, geocodes=places, mechanisms=mechanisms, key=key)
                tables.append(
                    measurement_table(chunk, query.name, mechanisms, noisy.answers, schema)
                )
        writer.write_apart(tables)
        start = stop
    return writer.close()


@dataclass(frozen=True, eq=False)
class _Above:
    """The published counts of the parents of some geounits, where a query is lazy.

    Attributes:
      counts: Of the parents; none without lazy queries.
      parent: int64[G], its number for each geounit, rising.
    """

    counts: Histograms | None
    parent: IntArray

    @classmethod
    def read(cls, task: MeasureTask, parents: npt.NDArray[np.object_]) -> _Above:
        level, plan = task.level, task.plan
        starts = np.array([start for start, _ in families(parents)], np.int64)
        number = np.searchsorted(starts, np.arange(len(parents)), side="right") - 1
        if not level.lazy:
            return cls(None, number)
        above = plan.levels[level.index - 1].name
        return cls(read_counts(task.release, above, parents[starts], plan.schema.size), number)

    def live_cells(self) -> IntArray:
        """int64[G]: positive cells of the parent of each geounit."""
        if self.counts is None:
            return np.zeros(len(self.parent), np.int64)
        return np.diff(self.counts.offsets)[self.parent]

    def part(self, start: int, stop: int) -> _Above:
        """The geounits start..stop-1."""
        return _Above(self.counts, self.parent[start:stop])

    def families(self) -> Iterator[tuple[slice, IntArray]]:
        """Geounits of one parent, and its positive cells."""
        for start, stop in families(self.parent):
            if self.counts is not None:
                number = int(self.parent[start])
                yield slice(start, stop), self.counts.slice(number, number + 1).cells


def _lazy_table(
    truth: Confidential[Histograms],
    query: Query,
    above: _Above,
    codes: Sequence[str],
    mechanisms: Sequence[Mechanism],
    key: NoiseKey,
) -> pa.Table:
    """One row per geounit: the answers about positive cells of the parent, and their positions."""
    answers, places, lengths = [], [], []
    for rows, cells in above.families():
        positions = np.unique(query.rows_of(cells))
        part = Part(rows, positions)
        noisy = measure_at(
            truth, query, part, geocodes=codes[rows], mechanisms=mechanisms[rows], key=key
        )
        answers.append(noisy.answers.ravel())
        places.append(np.tile(positions, len(noisy.answers)))
        lengths.append(np.full(len(noisy.answers), len(positions)))
    offsets = np.concatenate([[0], *lengths]).cumsum()
    drawn = DrawnAnswers(offsets, np.concatenate(places), np.concatenate(answers))
    return measurement_table(codes, query.name, mechanisms, drawn, LAZY_MEASUREMENTS)
