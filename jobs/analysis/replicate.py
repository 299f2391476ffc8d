"""Replicates: a finished run repeated with its release in place of the truth, at no privacy cost.

The released counts are measured with noise of the same distributions and solved in the same way.
All inputs are public, so the noise comes from a public seed. The confidential half of the run and
the account are neither read nor written. One task makes one replicate in a temporary folder and
stores its errors by size class (`jobs.pipeline.release.intervals`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from das.errors import ConfigError
from das.metrics.replicates import Compared
from das.tree.intervals import normal_factor
from jobs.analysis.requests import ReplicateSettings
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.documents.document import write_document
from jobs.pipeline.documents.intervals import digest_of
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.folder.lock import only_driver
from jobs.pipeline.folder.solutions import refuse_finalized
from jobs.pipeline.plan import Plan
from jobs.pipeline.printable import result_console
from jobs.pipeline.release.intervals import (
    Asked,
    Made,
    describe_intervals,
    gather_errors,
    read_errors,
    write_errors,
)
from jobs.pipeline.repeat import Repeated, compare_products, make_replicate, noise_key
from jobs.pipeline.report.accuracy import errors_table
from jobs.pipeline.report.console import terminal_table
from jobs.pipeline.report.finished import write_public_reports
from jobs.pipeline.storage.dataset import Dataset, PartWriter, is_published, publish
from jobs.pipeline.storage.files import (
    make_closed_folder,
    open_to_readers,
    read_json,
    write_json,
)
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA
from jobs.pipeline.storage.layout import ReleaseLayout, replicates_folder
from jobs.pipeline.storage.place import Place, remove_tree
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks, Tasks, open_tasks, require_run_packages
from jobs.pipeline.tasks.progress import Recorder, Reporter
from jobs.pipeline.tasks.resources import PeakMemory

CHECKED = 4  # every fourth replicate is replicated itself, to check the intervals; default


@dataclass(frozen=True)
class ReplicateTask:
    """Task that makes replicates.

    Attributes:
      products: The repeated products.
      folder: Folder of all replicates.
      seed: Public seed of the noise.
      sizing: Sizes of the batches of a replicate.
      keep: Whether to keep leaf counts, for sums over any area.
    """

    products: tuple[Repeated, ...]
    folder: Place
    seed: int
    sizing: Sizing
    keep: bool = False

    def errors_file(self, number: int) -> Place:
        """Return the file with the errors of a replicate."""
        return self.folder / "errors" / f"{number:06d}.parquet"

    def leaves(self, product: str, number: int) -> Place:
        """Return the folder with the leaf counts of a replicate."""
        return self.folder / "leaves" / product / f"{number:06d}"

    def kept(self, numbers: Iterable[int]) -> list[Place]:
        """List the datasets of the leaf counts of some replicates; none unless they are kept."""
        wanted = self.products if self.keep else ()
        return [self.leaves(product.name, number) for number in numbers for product in wanted]

    def is_made(self, number: int) -> bool:
        """Return whether errors and leaf counts of a replicate are stored."""
        leaves = self.kept([number])
        return self.errors_file(number).exists() and all(map(is_published, leaves))

    def replicate(self, number: int) -> None:
        """Make a replicate, and for one in four a replicate of it; store their errors.

        Running a task again gives the same result.
        """
        room = self.folder / "work" / f"{number:06d}-{uuid.uuid4().hex}"
        try:
            errors = dict(self._generations(number, room))
        finally:
            remove_tree(room)
        write_errors(self.errors_file(number), errors)

    def _generations(self, number: int, room: Place) -> Iterator[tuple[Asked, Compared]]:
        truths: Mapping[str, ReleaseLayout] = {
            product.name: product.release for product in self.products
        }
        tasks = LocalTasks(self.sizing)
        for generation in (1, 2) if is_checked(number) else (1,):
            place, key = room / str(generation), partial(noise_key, self.seed, number, generation)
            made = make_replicate(self.products, truths, place, key, tasks)
            yield from compare_products(self.products, truths, made, generation, tasks)
            for product in self.products if self.keep and generation == 1 else ():
                keep_leaves(product.plan, made[product.name], self.leaves(product.name, number))
            truths = made


def keep_leaves(plan: Plan, made: ReleaseLayout, kept: Place) -> None:
    """Copy the leaf counts of a replicate into their folder, once."""
    if is_published(kept):
        return
    writer = PartWriter(kept, SPARSE_SCHEMA)
    counts = Dataset.open(made.counts(plan.leaf.name))
    for part in counts.parts:
        if part.rows:
            writer.write(counts.read(part.low, part.high))
    publish(kept, [writer.close()], {"geolevel": plan.leaf.name, "not_for_release": True})


def replicate(
    resolved: Resolved, settings: ReplicateSettings, reporter: Reporter, tasks: Tasks | None = None
) -> list[Place]:
    """Make the missing replicates of a finalized release, and intervals from all of them.

    Args:
      resolved: The run, or a further solution of it.
      settings: Number of replicates and seed.
      reporter: Receives progress.
      tasks: Executor of the tasks; None: start Spark as in the run file.

    Returns:
      The written files; all of them can be published.

    Raises:
      ConfigError: The count is below 1, or the confidence is out of range.
      OutputError: The release is not finalized, or was made with other settings.
    """
    if settings.count < 1:
        raise ConfigError("--count", "makes no replicate", got=settings.count, want="1 or more")
    normal_factor(float(settings.confidence))
    require_runnable(resolved)
    if tasks is None:
        require_run_packages()
    for product in resolved.products.values():
        read_manifest(product.release)
    refuse_finalized(resolved)
    folder = replicates_folder(resolved.config.output.directory, resolved.solution)
    make_closed_folder(folder)
    numbers = range(1, settings.count + 1)
    with ExitStack() as stack:
        stack.enter_context(only_driver(folder))
        _claim(folder, resolved.release, settings.seed)
        if tasks is None:
            tasks = stack.enter_context(open_tasks(resolved.config, reporter.say))
        products = tuple(map(Repeated.of, resolved.products.values()))
        task = ReplicateTask(products, folder, settings.seed, tasks.sizing, settings.areas)
        files = [task.errors_file(number) for number in numbers]
        missing = [number for number in numbers if not task.is_made(number)]
        recorder = Recorder(folder, reporter, stack.enter_context(PeakMemory()))
        remove_tree(folder / "work")  # left behind by killed drivers
        if missing:
            with recorder.stage("replicate", f"{len(missing)} of {settings.count}"):
                tasks.run("replicates", missing, task.replicate)
        remove_tree(folder / "work")
        gathered = gather_errors([read_errors(file) for file in files])
        n_bytes = sum(Dataset.open(leaves).bytes for leaves in task.kept(numbers))
        confidence = Fraction(str(settings.confidence))
        n_checked, size = sum(map(is_checked, numbers)), sum(file.stat().st_size for file in files)
        made = Made(settings.count, n_checked, settings.seed, size, confidence)
        reporter.say(
            f"{'':<20}{settings.count} replicates: {made.bytes:,} bytes of errors, {n_bytes:,} "
            f"bytes of leaf counts kept in {folder}"
        )
        written = []
        for product in resolved.products.values():
            document = describe_intervals(product, gathered, made)
            path = product.release.replicated
            write_document(path, document)
            open_to_readers(path.parent)
            if not reporter.console.quiet:
                table = errors_table(product.plan.geolevels, document)
                result_console().print(terminal_table(table))
            written.append(path)
    return [*write_public_reports(resolved.release.root), *written]


def is_checked(number: int) -> bool:
    """Return whether a replicate is itself replicated, to test the coverage of intervals."""
    return number % CHECKED == 1


def _claim(folder: Place, release: ReleaseLayout, seed: int) -> None:
    """Remove the errors of replicates of another release or seed."""
    settings = {"format": 2, "manifest": digest_of(release.manifest), "seed": seed}
    path = folder / "settings.json"
    if path.exists() and read_json(path, "remove the folder") == settings:
        return
    remove_tree(folder / "errors")
    remove_tree(folder / "leaves")
    make_closed_folder(folder / "errors")
    write_json(path, settings)
