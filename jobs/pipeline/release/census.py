"""Protected counts of census geolevels that are not on the spine: sums over leaves, exactly."""

from __future__ import annotations

import time

from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.census import CensusCodes
from jobs.pipeline.storage.dataset import Dataset, PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, sparse_table
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.executor import Tasks


def census_codes(plan: Plan, release: ReleaseLayout) -> CensusCodes | None:
    """The leaves under the geocodes of the census; None if those of the spine are the same."""
    if plan.census is None:
        return None
    off = {name: plan.census_digits[name] for name in plan.off_spine}
    return CensusCodes(release, plan.leaf.name, plan.shared_digits, off)


def publish_census_counts(plan: Plan, release: ReleaseLayout, tasks: Tasks) -> None:
    """Add up the counts of the leaves to those of census geolevels that are not on the spine.

    Published ones are kept. The leaves must be solved.

    Raises:
      OutputError: A dataset is not complete, or a file cannot be written.
    """
    census = census_codes(plan, release)
    missing = [name for name in plan.off_spine if not is_published(release.counts(name))]
    if census is None or not missing:
        return
    started = time.monotonic()
    leaves, n_cells = Dataset.open(release.counts(plan.leaf.name)), plan.schema.size
    ranges = census.ranges(tasks.sizing.merge_leaves.most)

    def run(item: tuple[str, str, str]) -> PartFile:
        geolevel, low, high = item
        writer = PartWriter(release.counts(geolevel), SPARSE_SCHEMA)
        writer.write(sparse_table(*census.sums(leaves, geolevel, low, high, n_cells)))
        return writer.close()

    items = [(name, low, high) for name in missing for low, high in ranges]
    written = tasks.run("census counts", items, run)
    for name in missing:
        parts = [part for item, part in zip(items, written, strict=True) if item[0] == name]
        facts = {
            "geolevel": name,
            "configuration_digest": plan.digest,
            "solve_digest": plan.solve_digest,
            "not_for_release": plan.not_for_release,
            "seconds": time.monotonic() - started,
        }
        publish(release.counts(name), parts, facts)
