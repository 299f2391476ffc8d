"""Exact answers of invariants: outside the privacy guarantee, listed in the manifest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from das.confidential import Confidential, redact_errors
from das.histograms import Histograms
from das.queries.query import Query
from invariants.linear import LinearRow
from jobs.confidential.histograms import read_truth
from jobs.plan import Batch, Plan, geounit_batches, read_geography
from jobs.release.given import ANSWERS
from jobs.storage.dataset import PartFile, PartWriter, is_published, publish
from jobs.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.tasks.executor import Tasks


def publish_invariants(
    plan: Plan,
    level: int,
    *,
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
    tasks: Tasks,
) -> None:
    """Write the exact answers of the invariants of one geolevel, if it has any.

    The second door of the firewall, beside noisy answers. What is published is kept.

    Args:
      plan: The plan.
      level: Position of the geolevel.
      release: Where the answers go.
      confidential: Where the truth lies.
      tasks: What runs the step.
    """
    geolevel, n_cells = plan.spine.levels[level], plan.schema.size
    exact = plan.exact_at(geolevel)
    dataset = release.invariants(geolevel)
    if not exact or is_published(dataset):
        return

    @redact_errors
    def run(batch: Batch) -> PartFile:
        table = read_geography(release, geolevel, batch, columns=("geocode",))
        codes = table.column("geocode").to_numpy(zero_copy_only=False)
        truth = read_truth(confidential, geolevel, geocodes=codes, n_cells=n_cells)
        writer = PartWriter(dataset, ANSWERS)
        writer.write_apart(_answer_table(codes, query, truth) for query in exact)
        return writer.close()

    size = tasks.sizing.invariants_geounits
    batches = geounit_batches(release, geolevel, level, tasks.batches, size.most, size.least)
    parts = tasks.run(f"invariants {geolevel}", batches, run)
    publish(dataset, parts, {"geolevel": geolevel, "queries": [query.name for query in exact]})


def _answer_table(
    codes: Sequence[str], query: Query | LinearRow, truth: Confidential[Histograms]
) -> pa.Table:
    """One row per geounit: the answers of one query."""
    answers = query.answer(truth.reveal())
    which = pa.array(np.zeros(len(codes), np.int32))
    offsets = np.arange(len(codes) + 1, dtype=np.int32) * np.int32(answers.shape[1])
    return pa.table(
        [
            pa.array(codes, pa.string()),
            pa.DictionaryArray.from_arrays(which, pa.array([query.name], pa.string())),
            pa.ListArray.from_arrays(offsets, pa.array(answers.ravel(), pa.int64())),
        ],
        schema=ANSWERS,
    )
