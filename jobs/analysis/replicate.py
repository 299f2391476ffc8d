"""Replicates: a finished run repeated from its release as if that were the truth, at no cost.

The counts of the release are measured with noise of the same laws and solved by the same steps.
Only what is public enters, so the noise needs no secret: its key is made of a seed that anybody may
know. The confidential half of the run and its account are neither read nor written, and nothing is
measured that a grant would have to pay for. A replicate is one task, which works in a folder of its
own and leaves errors by size class (`jobs.pipeline.release.intervals`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from das.errors import ConfigError
from das.mechanisms.entropy import NoiseKey, Position
from das.metrics.replicates import Compared
from das.queries.query import Query
from das.tree.intervals import normal_factor
from jobs.analysis.requests import ReplicateSettings
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.documents.intervals import digest_of
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.folder.lock import only_driver
from jobs.pipeline.folder.solutions import refuse_finalized
from jobs.pipeline.plan import Plan
from jobs.pipeline.printable import result_console
from jobs.pipeline.release.intervals import (
    Asked,
    Made,
    compare_level,
    describe_intervals,
    gather_errors,
    read_errors,
    write_errors,
    write_intervals,
)
from jobs.pipeline.repeat import Repeat
from jobs.pipeline.report.accuracy import errors_table
from jobs.pipeline.report.console import terminal_table
from jobs.pipeline.report.finished import write_public_reports
from jobs.pipeline.storage.dataset import Dataset, PartWriter, is_published, publish
from jobs.pipeline.storage.files import make_closed_folder, read_json, write_json
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA
from jobs.pipeline.storage.layout import (
    IntervalLayout,
    ReleaseLayout,
    ReplicateLayout,
    replicates_folder,
)
from jobs.pipeline.storage.place import Place, remove_tree
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks, Tasks, open_tasks, require_run_packages
from jobs.pipeline.tasks.progress import Recorder, Reporter
from jobs.pipeline.tasks.resources import PeakMemory

CHECKED = 4  # of so many replicates one is replicated itself, to check the intervals
_SETTINGS = "settings.json"


@dataclass(frozen=True)
class Repeated:
    """A product of a run that is repeated; what its tasks know of it.

    Attributes:
      name: Name of the product.
      plan: Its plan, marked as not for release: the noise of replicates is no noise for one.
      release: What is taken for the truth.
      queries: What is compared.
    """

    name: str
    plan: Plan
    release: ReleaseLayout
    queries: tuple[Query, ...]

    @classmethod
    def of(cls, product: Product) -> Repeated:
        """A product of a finished run."""
        queries = tuple(product.tabulated.values())
        plan = replace(product.plan, not_for_release=True)
        return cls(product.name, plan, product.release, queries)


@dataclass(frozen=True)
class ReplicateTask:
    """All that a task knows which makes replicates.

    Attributes:
      products: What is repeated.
      folder: Where replicates are at work.
      seed: Of the noise.
      sizing: How the steps of a replicate are cut.
      keep: Whether leaf counts are kept, for sums over any area.
    """

    products: tuple[Repeated, ...]
    folder: Place
    seed: int
    sizing: Sizing
    keep: bool = False

    def errors_file(self, number: int) -> Place:
        """Where the errors of a replicate are kept."""
        return self.folder / "errors" / f"{number:06d}.parquet"

    def key(self, replicate: Position, level: int, *, is_on_demand: bool = False) -> NoiseKey:
        """Make the key of the noise of a geolevel of a replicate; no run has the same.

        Args:
          replicate: Its number, its generation, and the number of the product.
          level: Position of the geolevel.
          is_on_demand: Whether it is for the on-demand queries.
        """
        return NoiseKey.for_testing(self.seed, (*replicate, level, int(is_on_demand)))

    def leaves(self, product: str, number: int) -> Place:
        """Where the leaf counts of a replicate are kept."""
        return self.folder / "leaves" / product / f"{number:06d}"

    def kept(self, numbers: Iterable[int]) -> list[Place]:
        """Datasets of the leaf counts of some replicates, if they are wanted."""
        wanted = self.products if self.keep else ()
        return [self.leaves(product.name, number) for number in numbers for product in wanted]

    def is_made(self, number: int) -> bool:
        """Whether all that is kept of a replicate is there."""
        leaves = self.kept([number])
        return self.errors_file(number).exists() and all(map(is_published, leaves))

    def replicate(self, number: int) -> None:
        """Make a replicate, and of one in four a replicate of it; keep their errors.

        A task that is run again, or twice, makes the same.
        """
        room = self.folder / "work" / f"{number:06d}-{uuid.uuid4().hex}"
        try:
            errors = dict(self._generations(number, room))
        finally:
            remove_tree(room)
        write_errors(self.errors_file(number), errors)

    def _generations(self, number: int, room: Place) -> Iterator[tuple[Asked, Compared]]:
        generations = 2 if is_checked(number) else 1
        truths: dict[str, ReleaseLayout] = {one.name: one.release for one in self.products}
        for generation in range(1, generations + 1):
            roots = {one.name: room / f"{one.name}-{generation}" for one in self.products}
            repeats = [
                Repeat(
                    product.plan,
                    truths[product.name],
                    ReplicateLayout(roots[product.name], exact=product.release, made=roots),
                    partial(self.key, (number, generation, index)),
                    LocalTasks(self.sizing),
                )
                for index, product in enumerate(self.products)
            ]
            for one in repeats:  # all before any is solved: one may be fitted to answers of others
                one.measure()
            for product, one in zip(self.products, repeats, strict=True):
                one.solve()
                truth, made = truths[product.name], one.made
                for geolevel in product.plan.geolevels:
                    compared = compare_level(product.plan, geolevel, product.queries, truth, made)
                    for name, found in compared.items():
                        yield Asked(generation, product.name, geolevel, name), found
                if self.keep and generation == 1:
                    keep_leaves(product.plan, made, self.leaves(product.name, number))
                truths[product.name] = made


def keep_leaves(plan: Plan, made: ReleaseLayout, kept: Place) -> None:
    """Copy the leaf counts of a replicate to where they are kept, once."""
    if is_published(kept):
        return
    writer = PartWriter(kept, SPARSE_SCHEMA)
    counts = Dataset.open(made.counts(plan.leaf.name))
    for part in counts.parts:
        if part.rows:
            writer.write(counts.read(part.low, part.high))
    publish(kept, [writer.close()], {"geolevel": plan.leaf.name, "not_for_release": True})


def replicate(
    resolved: Resolved,
    settings: ReplicateSettings,
    reporter: Reporter,
    tasks: Tasks | None = None,
) -> list[Place]:
    """Make the replicates of a finalized release that are not made yet, and intervals of all.

    Args:
      resolved: The run, or the solution beside its release that is meant.
      settings: How many, and of which seed.
      reporter: Who watches.
      tasks: What runs them; None starts Spark as the run file wants it.

    Returns:
      The files written, all publishable.

    Raises:
      ConfigError: None is wanted, or the confidence is out of range.
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
        remove_tree(folder / "work")  # of drivers that were killed
        if missing:
            with recorder.stage("replicate", f"{len(missing)} of {settings.count}"):
                tasks.run("replicates", missing, task.replicate)
        remove_tree(folder / "work")
        gathered = gather_errors([read_errors(file) for file in files])
        held = sum(Dataset.open(leaves).bytes for leaves in task.kept(numbers))
        made = Made(
            settings.count,
            sum(map(is_checked, numbers)),
            settings.seed,
            sum(file.stat().st_size for file in files),
            Fraction(str(settings.confidence)),
        )
        reporter.say(
            f"{'':<20}{settings.count} replicates: {made.bytes:,} bytes of errors, {held:,} bytes "
            f"of leaf counts kept in {folder}"
        )
        written = []
        for one in products:
            document = describe_intervals(one.name, one.release, gathered, made)
            what = "intervals" if one.name == "persons" else f"{one.name}, intervals"
            with recorder.stage("replicate", what):
                write_intervals(one.plan, one.release, one.queries, document, tasks)
            if not reporter.console.quiet:
                table = errors_table(one.plan.geolevels, document)
                result_console().print(terminal_table(table))
            layout = IntervalLayout.of(one.release)
            written += [layout.document, *map(layout.tables, one.plan.geolevels)]
    return [*write_public_reports(resolved.release.root), *written]


def is_checked(number: int) -> bool:
    """Whether a replicate is replicated itself."""
    return number % CHECKED == 1


def _claim(folder: Place, release: ReleaseLayout, seed: int) -> None:
    """Keep errors of replicates of one release and seed; those of others are removed."""
    said = {"format": 2, "manifest": digest_of(release.manifest), "seed": seed}
    path = folder / _SETTINGS
    if path.exists() and read_json(path, "remove the folder") == said:
        return
    remove_tree(folder / "errors")
    remove_tree(folder / "leaves")
    make_closed_folder(folder / "errors")
    write_json(path, said)
