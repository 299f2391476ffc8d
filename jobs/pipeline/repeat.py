"""Measure and solve a product again from public counts and a public seed, without spending budget.

The counts of a release replace the truth. The noise follows the distributions of the run, but its
key comes from a public seed, so the plan must be marked as not for release.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from das.errors import InfeasibleError, SolverError
from das.mechanisms.entropy import NoiseKey
from das.metrics.replicates import Compared, add_compared
from das.queries.query import Query
from jobs.pipeline.confidential.measure import MeasureStage
from jobs.pipeline.config.product import Product
from jobs.pipeline.documents.document import write_document
from jobs.pipeline.documents.intervals import read_intervals
from jobs.pipeline.job import Job
from jobs.pipeline.plan import Plan, why_no_estimates
from jobs.pipeline.release.census import publish_census_counts
from jobs.pipeline.release.estimate import CONFIDENCE, EstimateStage, LevelEstimator
from jobs.pipeline.release.intervals import Asked, Made, compare_level, describe_intervals
from jobs.pipeline.release.solve import solve_level, solve_support
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.layout import ReleasedTruth, ReleaseLayout, ReplicateLayout
from jobs.pipeline.storage.place import Place, remove_tree
from jobs.pipeline.tasks.executor import LocalTasks, Tasks

# A run makes one replicate of `_LEAVES` leaves or more, of smaller releases up to `_REPLICATES`; of
# larger releases it solves the families of about so many leaves. Intervals took 22, 17 and 16 %
# more core seconds in `das run` of conf/run/ri-2010.yaml with 4,714, 25,181 and 100,724 blocks.
_LEAVES = 30_000
_REPLICATES = 3
SEED = 0  # of the replicates of a run; public, and `das replicate` has others


@dataclass(frozen=True, eq=False)
class Repeat:
    """A replicate: a product measured and solved with released counts as the truth.

    Attributes:
      plan: The plan of the run, marked as not for release.
      truth: Release whose counts are measured.
      made: Folder of the noisy answers, estimates and counts of the replicate.
      key: Makes the noise key of a geolevel from a public seed and the index of the geolevel.
      tasks: Runs the tasks.
    """

    plan: Plan
    truth: ReleaseLayout
    made: ReplicateLayout
    key: Callable[..., NoiseKey]
    tasks: Tasks

    @property
    def _stage(self) -> MeasureStage:
        truth = ReleasedTruth(self.made.root, released=self.truth)
        return MeasureStage(self.plan, self.made, truth, self.tasks)

    def measure(self) -> None:
        """Draw all queries but the on-demand ones, and combine estimates from the leaves up."""
        plan, made = self.plan, self.made
        for level in plan.levels:
            self._stage.measure(level.index, self.key(level.index))
        if why_no_estimates(plan) is None:
            estimate = EstimateStage(LevelEstimator(plan, made, (), CONFIDENCE), self.tasks)
            for level in plan.levels[-2::-1]:
                estimate.climb(level.index)

    def solve(self) -> None:
        """Draw on-demand queries and solve, geolevel by geolevel, after all products are measured.

        Counts of census geolevels off the spine are sums over leaves, as in a release.

        Raises:
          SolverError, InfeasibleError: The counts of some geounit could not be solved.
        """
        plan, made = self.plan, self.made
        for level in plan.levels:
            if plan.support and not level.index:
                solve_support(plan=plan, release=made, tasks=self.tasks)
            self._stage.measure(
                level.index, self.key(level.index, is_on_demand=True), is_on_demand=True
            )
            solve_level(level, plan=plan, release=made, tasks=self.tasks)
        publish_census_counts(plan, made, self.tasks)


# --- all products --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repeated:
    """Product of a run, with what a task needs to replicate it.

    Attributes:
      name: Name of the product.
      plan: Plan of the product, marked as not for release: the noise of replicates has a public
        seed, so it protects nothing.
      release: Solved release; its counts take the place of the truth.
      queries: Tabulated queries, whose answers in a replicate are compared with the release.
    """

    name: str
    plan: Plan
    release: ReleaseLayout
    queries: tuple[Query, ...]

    @classmethod
    def of(cls, product: Product) -> Repeated:
        """Describe a product of a run."""
        queries = tuple(product.tabulated.values())
        plan = replace(product.plan, not_for_release=True)
        return cls(product.name, plan, product.release, queries)


def noise_key(seed: int, *position: int, is_on_demand: bool = False) -> NoiseKey:
    """Return the noise key of a geolevel of a replicate; no release has the same key.

    Args:
      seed: Public seed.
      position: Number and generation of the replicate, indices of the product and the geolevel.
      is_on_demand: Whether the key is for the on-demand queries.
    """
    return NoiseKey.for_testing(seed, (*position, int(is_on_demand)))


def make_replicate(
    products: Sequence[Repeated],
    truths: Mapping[str, ReleaseLayout],
    room: Place,
    key: Callable[..., NoiseKey],
    tasks: Tasks,
    share: float = 1.0,
) -> dict[str, ReplicateLayout]:
    """Make a replicate of all products.

    Args:
      products: The products, in the order of work.
      truths: By product, the release or replicate whose counts are measured.
      room: Folder of the replicate.
      key: Makes the noise key of a product and a geolevel, as `noise_key` does.
      tasks: Runs the tasks.
      share: Share of the families of the last geolevel that are solved.

    Returns:
      The replicates by product.

    Raises:
      SolverError, InfeasibleError: The counts of some geounit could not be solved.
    """
    roots = {product.name: room / product.name for product in products}
    repeats = {
        product.name: Repeat(
            product.plan,
            truths[product.name],
            ReplicateLayout(roots[product.name], exact=product.release, made=roots, share=share),
            partial(key, index),
            tasks,
        )
        for index, product in enumerate(products)
    }
    # All are measured before any is solved: one may be fitted to answers of another.
    for repeat in repeats.values():
        repeat.measure()
    for repeat in repeats.values():
        repeat.solve()
    return {name: repeat.made for name, repeat in repeats.items()}


def compare_products(
    products: Sequence[Repeated],
    truths: Mapping[str, ReleaseLayout],
    made: Mapping[str, ReplicateLayout],
    generation: int,
    tasks: Tasks,
) -> Iterator[tuple[Asked, Compared]]:
    """Yield the errors of a replicate, by product, geolevel and query."""
    for product in products:
        both = truths[product.name], made[product.name]
        for geolevel in product.plan.geolevels:
            compared = compare_level(product.plan, geolevel, product.queries, *both, tasks)
            for name, errors in compared.items():
                yield Asked(generation, product.name, geolevel, name), errors


def describe_counts(job: Job) -> None:
    """Make intervals of the counts of every product from replicates, before tables are written.

    Neither the truth nor the noise of the run is read, and no budget is spent. Releases whose
    tables are written stay as they are. If a replicate cannot be solved, there are no intervals:
    a release does not fail for them.
    """
    lacking = [*filter(_lacks_intervals, job.products)]
    if not lacking:
        return
    try:
        with job.stage("write", "intervals of counts"):
            count, gathered = _own_replicates(job)
    except (InfeasibleError, SolverError) as error:
        job.reporter.say(f"tables have no intervals of counts: {error}")
        return
    how = Made(count, 0, SEED, 0, Fraction(str(CONFIDENCE)))
    for product in lacking:
        write_document(product.release.intervals, describe_intervals(product, gathered, how))


def _own_replicates(job: Job) -> tuple[int, dict[Asked, Compared]]:
    """Make the replicates of a run; return their number and their errors together.

    Several replicates are a task each, since steps of so few leaves are short: intervals of
    conf/run/demo.yaml took 9.5 core seconds with tasks for every step, and 4.3 in this way.
    """
    products = tuple(map(Repeated.of, job.products))
    truths = {product.name: product.release for product in products}
    leaves = max(Dataset.open(p.release.geography(p.plan.leaf.name)).rows for p in products)
    count = max(1, min(_REPLICATES, _LEAVES // leaves))
    needs_all = len(products) > 1 or products[0].plan.off_spine  # add up or bind all leaves
    share = 1.0 if needs_all else min(1.0, _LEAVES / leaves)
    room = job.out / "replicating"

    def compared(tasks: Tasks, number: int) -> dict[Asked, Compared]:
        place = room / f"{number}-{uuid.uuid4().hex}"  # apart from a retried task's
        made = make_replicate(
            products, truths, place, partial(noise_key, SEED, number, 1), tasks, share
        )
        errors = dict(compare_products(products, truths, made, 1, tasks))
        remove_tree(place)
        return errors

    remove_tree(room)  # left behind by a killed driver
    try:
        if count == 1:
            return 1, compared(job.tasks, 1)
        task = partial(compared, LocalTasks(job.tasks.sizing))
        parts = job.tasks.run("replicates", range(1, count + 1), task)
        return count, {one: add_compared([part[one] for part in parts]) for one in parts[0]}
    finally:
        remove_tree(room)


def _lacks_intervals(product: Product) -> bool:
    plan, release = product.plan, product.release
    are_written = all(is_published(release.tables(name)) for name in plan.geolevels)
    is_wanted = product.config.output.intervals and not are_written
    return is_wanted and read_intervals(release, plan.leaf.name) is None
