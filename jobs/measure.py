"""Measure: the only private stage. Noisy answers and exact invariants, written once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.confidential import Confidential, redact_errors
from das.histograms import Histograms
from das.measure import measure
from das.measurement import Measurements
from das.mechanisms.entropy import NoiseKey
from das.queries.query import Query
from invariants.rows import LinearRow
from jobs.dataset import PartFile, PartWriter, is_published, publish
from jobs.layout import ConfidentialLayout, ReleaseLayout
from jobs.plan import Batch, Plan, geounit_batches, read_geography
from jobs.session import run_tasks, slots
from jobs.truth import read_truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
IntArray = npt.NDArray[np.int64]

MEASUREMENTS = pa.schema(
    [
        ("geocode", pa.string()),
        ("query", pa.dictionary(pa.int32(), pa.string())),
        ("mechanism", pa.dictionary(pa.int32(), pa.string())),
        ("parameter", pa.dictionary(pa.int32(), pa.string())),
        ("variance", pa.float64()),
        ("answers", pa.list_(pa.int64())),
    ]
)
INVARIANTS = pa.schema(
    [
        ("geocode", pa.string()),
        ("query", pa.dictionary(pa.int32(), pa.string())),
        ("answers", pa.list_(pa.int64())),
    ]
)
_CHUNK_NUMBERS = 4_000_000  # numbers held at once in a task
_BATCH_NUMBERS = 40_000_000  # numbers written by one task


@dataclass(frozen=True, eq=False)
class MeasureTask:
    """All that a measuring task knows."""

    plan: Plan
    release: ReleaseLayout
    confidential: ConfidentialLayout
    geolevel: str
    key: NoiseKey


@dataclass(frozen=True, eq=False)
class MeasureStage:
    """The stage, with all it works on.

    Attributes:
      plan: The plan.
      release: Where measurements and invariants go.
      confidential: Where the truth lies.
      spark: The session.
      batches_per_slot: Tasks per parallel slot.
    """

    plan: Plan
    release: ReleaseLayout
    confidential: ConfidentialLayout
    spark: SparkSession
    batches_per_slot: int = 4

    def measure(
        self, level: int, key: NoiseKey | None = None, progress: Progress | None = None
    ) -> None:
        """Measure one geolevel and publish the noisy answers; published ones are kept.

        The key is drawn here, for this geolevel and this start of the driver, and forgotten with
        it. A task that is run again draws the same noise; a published geolevel is never measured
        again.

        Args:
          level: Position of the geolevel.
          key: Only for seeded tests; default: a fresh key from the operating system.
          progress: Called with (finished, all) tasks.
        """
        plan = self.plan
        geolevel = plan.spine.levels[level]
        dataset = self.release.measurements(geolevel)
        if is_published(dataset):
            return
        task = MeasureTask(plan, self.release, self.confidential, geolevel, key or NoiseKey.draw())
        queries = [entry.query for entry in plan.strategy.levels[level].queries]
        largest = max(1, _BATCH_NUMBERS // sum(query.size for query in queries))
        parts = run_tasks(
            self.spark,
            f"measure {geolevel}",
            self._batches(level, largest),
            _measurer(task),
            progress=progress,
        )
        facts = {
            "geolevel": geolevel,
            "configuration_digest": plan.digest,
            "not_for_release": plan.not_for_release,
            "queries": [_described(query) for query in queries],
        }
        publish(dataset, parts, facts)

    def publish_invariants(self, level: int) -> None:
        """Write the exact answers of the invariants of one geolevel, if it has any.

        The second door of the firewall: exact, outside the privacy guarantee, listed in the
        manifest.
        """
        geolevel = self.plan.spine.levels[level]
        held = self.plan.exact_at(geolevel)
        dataset = self.release.invariants(geolevel)
        if not held or is_published(dataset):
            return
        release, confidential, n_cells = self.release, self.confidential, self.plan.schema.size

        @redact_errors
        def run(batch: Batch) -> PartFile:
            table = read_geography(release, geolevel, batch, columns=("geocode",))
            codes = table.column("geocode").to_numpy(zero_copy_only=False)
            truth = read_truth(confidential, geolevel, geocodes=codes, n_cells=n_cells)
            writer = PartWriter(dataset, INVARIANTS)
            writer.write_apart(_invariant_table(codes, query, truth) for query in held)
            return writer.close()

        parts = run_tasks(self.spark, f"invariants {geolevel}", self._batches(level, 100_000), run)
        publish(dataset, parts, {"geolevel": geolevel, "queries": [q.name for q in held]})

    def _batches(self, level: int, largest: int) -> list[Batch]:
        wanted = slots(self.spark) * self.batches_per_slot
        geolevel = self.plan.spine.levels[level]
        return geounit_batches(self.release, geolevel, level, wanted, largest)


def _described(query: Query) -> dict[str, Any]:
    """What a reader of the measurements needs to know about a query."""
    described = {
        "query": query.name,
        "answers": query.size,
        "shape": list(query.shape),
        "labels": query.labels(),
    }
    if query.is_partition:
        return described
    return {**described, "factors": [factor.matrix.tolist() for factor in query.factors]}


def _measurer(task: MeasureTask) -> Callable[[Batch], PartFile]:
    def run(batch: Batch) -> PartFile:
        return measure_batch(batch, task)

    return run


@redact_errors
def measure_batch(batch: Batch, task: MeasureTask) -> PartFile:
    """Measure the geounits of one range that are not only children."""
    table = read_geography(task.release, task.geolevel, batch)
    measured = table.filter(pc.invert(table.column("only_child")))
    codes = measured.column("geocode").to_numpy(zero_copy_only=False)
    ends = measured.column("chain_end").to_numpy(zero_copy_only=False)
    level = batch.level
    queries = [entry.query for entry in task.plan.strategy.levels[level].queries]
    chunk = max(1, _CHUNK_NUMBERS // max(sum(q.size for q in queries), 1))
    writer = PartWriter(task.release.measurements(task.geolevel), MEASUREMENTS)
    for start in range(0, len(codes), chunk):
        some = codes[start : start + chunk]
        truth = read_truth(
            task.confidential, task.geolevel, geocodes=some, n_cells=task.plan.schema.size
        )
        noise = {
            end: task.plan.noise(level, task.plan.spine.levels.index(end))
            for end in set(ends[start : start + chunk])
        }
        measured_queries = []
        for index, query in enumerate(queries):
            mechanisms = [noise[end][index].mechanism for end in ends[start : start + chunk]]
            measured_queries.append(
                measure(truth, query, geocodes=list(some), mechanisms=mechanisms, key=task.key)
            )
        writer.write_apart(_measurement_table(some, one) for one in measured_queries)
    return writer.close()


def _measurement_table(codes: Sequence[str], measured: Measurements) -> pa.Table:
    """One row per geounit, for one query."""
    laws = list({id(law): law for law in measured.mechanisms}.values())
    position = {id(law): index for index, law in enumerate(laws)}
    law = np.array([position[id(m)] for m in measured.mechanisms], np.int32)
    return pa.table(
        [
            pa.array(codes, pa.string()),
            _dictionary(np.zeros(len(codes), np.int32), [measured.query]),
            _dictionary(law, [m.kind for m in laws]),
            _dictionary(law, [str(m.parameter) for m in laws]),
            pa.array(np.array([m.variance() for m in laws])[law], pa.float64()),
            _lists(measured.answers),
        ],
        schema=MEASUREMENTS,
    )


def _dictionary(index: npt.NDArray[np.int32], values: Sequence[str]) -> pa.DictionaryArray:
    """Strings as positions in a list whose values may repeat."""
    distinct = list(dict.fromkeys(values))
    place = np.array([distinct.index(value) for value in values], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(place[index]), pa.array(distinct, pa.string()))


def _lists(answers: IntArray) -> pa.ListArray:
    """[G, m] as G lists."""
    offsets = np.arange(len(answers) + 1, dtype=np.int32) * answers.shape[1]
    return pa.ListArray.from_arrays(offsets, pa.array(answers.ravel(), pa.int64()))


def _invariant_table(
    codes: Sequence[str], query: Query | LinearRow, truth: Confidential[Histograms]
) -> pa.Table:
    return pa.table(
        [
            pa.array(codes, pa.string()),
            _dictionary(np.zeros(len(codes), np.int32), [query.name]),
            _lists(query.answer(truth.reveal())),
        ],
        schema=INVARIANTS,
    )
