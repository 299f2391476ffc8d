"""Exact answers of invariants: outside the privacy guarantee, listed in the manifest."""

from __future__ import annotations

from das.confidential import redact_errors
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.answers import ANSWERS, answer_table
from jobs.pipeline.storage.dataset import PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks


def publish_invariants(
    plan: Plan, index: int, release: ReleaseLayout, confidential: ConfidentialLayout, tasks: Tasks
) -> None:
    """Write the exact answers of the invariants of one geolevel, if it has any.

    Besides measuring, this is the only code that publishes values computed from confidential data.
    A published dataset is kept.

    Args:
      plan: The plan.
      index: Index of the geolevel.
      release: Paths of the release, which receives the answers.
      confidential: Paths of the true histograms.
      tasks: Runs the tasks.
    """
    level = plan.levels[index]
    geolevel = level.name
    dataset = release.invariants(geolevel)
    if not level.published or is_published(dataset):
        return

    @redact_errors
    def run(batch: Batch) -> PartFile:
        codes = read_public_geocodes(release, geolevel, batch.low, batch.high)
        truth = true_counts(plan, confidential, geolevel, codes)
        writer = PartWriter(dataset, ANSWERS)
        writer.write_apart(
            answer_table(codes, query.name, query.answer(truth.reveal()))
            for query in level.published
        )
        return writer.close()

    size = tasks.sizing.invariants_geounits
    batches = geounit_batches(release, level, tasks.batches, size.most, size.least)
    parts = tasks.run(f"invariants {geolevel}", batches, run)
    publish(
        dataset, parts, {"geolevel": geolevel, "queries": [query.name for query in level.published]}
    )
