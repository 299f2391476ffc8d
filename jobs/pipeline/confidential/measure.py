"""Draw the noisy answers of every geounit, and write them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from das.confidential import Confidential, redact_errors
from das.errors import ConfigError
from das.histograms import Histograms
from das.measure import Part, draw_under, measure, measure_at
from das.mechanisms.entropy import NoiseKey, Stream, Streams
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from jobs.pipeline.confidential.draw import Drawn
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.confidential.noise_key import LentKey, lent
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.level import read_support
from jobs.pipeline.storage.answers import (
    LAZY_MEASUREMENTS,
    MEASUREMENTS,
    MEASUREMENTS_FORMAT,
    DrawnAnswers,
    described,
    measurement_table,
)
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.dataset import (
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    is_published,
    publish,
)
from jobs.pipeline.storage.geography import families, read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks

_CHUNK_NUMBERS = 4_000_000  # noisy numbers held in memory by a task; default, not measured


@dataclass(frozen=True, eq=False)
class MeasureTask:
    """The data that are shipped to each measuring task.

    Attributes:
      plan: The plan.
      level: The geolevel.
      release: Paths of the release, which receives the noisy answers.
      confidential: Paths of the true histograms.
      key: The task's share of the noise key.
      is_on_demand: Whether the on-demand queries are drawn, or all others.
    """

    plan: Plan
    level: Level
    release: ReleaseLayout
    confidential: ConfidentialLayout
    key: LentKey
    is_on_demand: bool = False

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return the queries to draw."""
        return self.level.on_demand if self.is_on_demand else self.level.whole

    @property
    def dataset(self) -> Place:
        """Return the folder of the noisy answers."""
        return _dataset_of(self.release, self.level, is_on_demand=self.is_on_demand)


def _dataset_of(release: ReleaseLayout, level: Level, *, is_on_demand: bool) -> Place:
    return (release.lazy_measurements if is_on_demand else release.measurements)(level.name)


@dataclass(frozen=True, eq=False)
class MeasureStage:
    """The stage that measures one product.

    Attributes:
      plan: The plan.
      release: Paths of the release, which receives the noisy answers.
      confidential: Paths of the true histograms.
      tasks: Runs the tasks; measurements record whether the Spark session admits other users.
    """

    plan: Plan
    release: ReleaseLayout
    confidential: ConfidentialLayout
    tasks: Tasks

    def draw(self, index: int, key: NoiseKey, *, is_on_demand: bool = False) -> Drawn:
        """Draw the noisy answers of one geolevel, and write them to part files.

        The key is split into two shares for the tasks and cannot be rebuilt after they end. A
        retried task draws the same noise.

        On-demand queries are drawn after the geolevel above is solved, for cells where the released
        counts of the parent are positive; at the root, for cells of its support.

        Args:
          index: Index of the geolevel.
          key: Noise key of this part alone.
          is_on_demand: Whether the on-demand queries are drawn, or all others.

        Returns:
          The part files, and facts about them.

        Raises:
          ConfigError: The key is public, and the plan is not marked as not for release.
          OutputError: On-demand queries are drawn, and the geolevel above is not solved.
          SpentError: Measuring failed after noise was drawn.
        """
        plan, level = self.plan, self.plan.levels[index]
        if key.is_for_testing and not plan.not_for_release:
            raise ConfigError(
                "noise key",
                "can be reproduced by anyone, so it must not protect a release",
                remedy="give no key; or a run file with `privacy.randomness: {source: "
                "seeded_not_for_release, seed: ...}`",
            )
        if is_on_demand and level.index:
            Dataset.open(self.release.counts(plan.levels[level.index - 1].name))
        elif is_on_demand:
            Dataset.open(self.release.support(level.name))
        with lent(key, self.confidential.keys) as lent_key:
            task = MeasureTask(plan, level, self.release, self.confidential, lent_key, is_on_demand)
            n_answers = sum(query.size for query in task.queries)
            size = self.tasks.sizing.measure_numbers
            # The number of answers of on-demand queries is unknown before; that of the others
            # serves as an estimate.
            drawn = sum(query.size for query in level.whole)
            largest = max(1, size.most // max(1, drawn))
            smallest = size.least // max(1, n_answers)
            batches = geounit_batches(self.release, level, self.tasks.batches, largest, smallest)
            label = f"measure {level.name}{' on_demand' if is_on_demand else ''}"
            parts = self.tasks.run(label, batches, partial(measure_batch, task=task))
        facts = {
            "format": MEASUREMENTS_FORMAT,
            "geolevel": level.name,
            "configuration_digest": plan.digest,
            "not_for_release": plan.not_for_release,
            "queries": [described(query) for query in task.queries],
            "lazy_queries": sorted(query.name for query in task.queries) if is_on_demand else [],
            "open_session": self.tasks.is_open,
        }
        return parts, facts

    def measure(self, index: int, key: NoiseKey, *, is_on_demand: bool = False) -> None:
        """Draw a geolevel and publish it without an account, for replicates only.

        The truth of a replicate is a release; runs use `draw_part`. A published dataset is kept.

        Args:
          index: Index of the geolevel.
          key: Public noise key; the plan is marked as not for release.
          is_on_demand: As for `draw`; nothing happens at a geolevel without on-demand queries.

        Raises:
          ConfigError, OutputError, SpentError: As for `draw`.
        """
        level = self.plan.levels[index]
        dataset = _dataset_of(self.release, level, is_on_demand=is_on_demand)
        if not is_published(dataset) and (level.on_demand or not is_on_demand):
            publish(dataset, *self.draw(index, key, is_on_demand=is_on_demand))


@redact_errors
def measure_batch(batch: Batch, task: MeasureTask) -> PartFile:
    """Draw the noisy answers of a range of geounits, but for only children."""
    plan, level = task.plan, task.level
    table = read_geography(task.release, level.name, batch.low, batch.high)
    measured = table.filter(pc.invert(table.column("only_child")))
    if batch.first is None:
        raise ConfigError(
            f"geounits {batch.low} to {batch.high}", "have no numbers", want="geounit_batches"
        )
    # Positions in the geolevel of all geounits but only children.
    rows = batch.first + np.flatnonzero(~table.column("only_child").to_numpy())
    codes = texts(measured)
    ends = texts(measured, "chain_end")
    above = _Above.read(task, texts(measured, "parent"))
    every = 0 if task.is_on_demand else sum(query.size for query in task.queries)
    numbers = np.cumsum(every + len(level.on_demand) * above.live_cells() + 1)
    noise = {
        end: {
            noisy.query.name: noisy.mechanism
            for noisy in plan.noise(level.index, plan.level(end).index)
        }
        for end in set(ends)
    }
    writer = PartWriter(task.dataset, LAZY_MEASUREMENTS if task.is_on_demand else MEASUREMENTS)
    histograms = RangeReader(Dataset.open(task.confidential.histograms(level.name)))

    def draw(streams: Streams) -> None:
        start = 0
        while start < len(codes):
            most = (numbers[start - 1] if start else 0) + _CHUNK_NUMBERS
            stop = max(start + 1, int(np.searchsorted(numbers, most, side="right")))
            chunk = list(codes[start:stop])
            truth = read_truth(histograms, chunk, plan.schema.size)
            tables = []
            for query in task.queries:
                number = level.queries.index(query)
                mechanisms = [noise[end][query.name] for end in ends[start:stop]]
                if task.is_on_demand:
                    drawn = above.part(start, stop)
                    open_rows = partial(_open_rows, streams, number, rows[start:stop])
                    tables.append(
                        _on_demand_table(truth, query, drawn, chunk, mechanisms, open_rows)
                    )
                else:
                    stream = streams.open((number,), rows[start:stop])
                    noisy = measure(truth, query, mechanisms=mechanisms, stream=stream)
                    tables.append(measurement_table(chunk, query.name, mechanisms, noisy.answers))
            writer.write_apart(tables)
            start = stop

    draw_under(task.key.key(), draw)
    return writer.close()


def _open_rows(streams: Streams, number: int, rows: IntArray, some: slice) -> Stream:
    """Open the noise streams of some geounits of a chunk for a query."""
    return streams.open((number,), rows[some])


@dataclass(frozen=True, eq=False)
class _Above:
    """The released counts of the parents, which select the cells of on-demand queries.

    Attributes:
      counts: Counts of the parents; at the root, one record in each cell of its support. None for
        queries that are drawn completely.
      parent: int64[G], index of the parent of each geounit, not decreasing.
    """

    counts: Histograms | None
    parent: IntArray

    @classmethod
    def read(cls, task: MeasureTask, parents: npt.NDArray[np.object_]) -> _Above:
        level, plan = task.level, task.plan
        starts = np.array([start for start, _ in families(parents)], np.int64)
        number = np.searchsorted(starts, np.arange(len(parents)), side="right") - 1
        if not task.is_on_demand:
            return cls(None, number)
        if not level.index:
            cells = read_support(plan, task.release).cells
            edges, ones = np.array([0, len(cells)]), np.ones(len(cells), np.int64)
            return cls(Histograms(plan.schema.size, edges, cells, ones), number)
        above = plan.levels[level.index - 1].name
        return cls(read_counts(task.release, above, parents[starts], plan.schema.size), number)

    def live_cells(self) -> IntArray:
        """Return int64[G], for each of G geounits the number of positive cells of its parent."""
        if self.counts is None:
            return np.zeros(len(self.parent), np.int64)
        return np.diff(self.counts.offsets)[self.parent]

    def part(self, start: int, stop: int) -> _Above:
        """Return the geounits start..stop-1."""
        return _Above(self.counts, self.parent[start:stop])

    def families(self) -> Iterator[tuple[slice, IntArray]]:
        """Yield the geounits of each parent, and its positive cells."""
        for start, stop in families(self.parent):
            if self.counts is not None:
                number = int(self.parent[start])
                yield slice(start, stop), self.counts.slice(number, number + 1).cells


def _on_demand_table(
    truth: Confidential[Histograms],
    query: Query,
    above: _Above,
    codes: Sequence[str],
    mechanisms: Sequence[Mechanism],
    open_rows: Callable[[slice], Stream],
) -> pa.Table:
    """Return one row per geounit: answers for positive cells of the parent, and their indices."""
    answers, indices, lengths = [], [], []
    for rows, cells in above.families():
        positions = np.unique(query.rows_of(cells))
        part = Part(rows, positions)
        noisy = measure_at(truth, query, part, mechanisms=mechanisms[rows], stream=open_rows(rows))
        answers.append(noisy.answers.ravel())
        indices.append(np.tile(positions, len(noisy.answers)))
        lengths.append(np.full(len(noisy.answers), len(positions)))
    offsets = np.concatenate([[0], *lengths]).cumsum()
    drawn = DrawnAnswers(offsets, np.concatenate(indices), np.concatenate(answers))
    return measurement_table(codes, query.name, mechanisms, drawn, LAZY_MEASUREMENTS)
