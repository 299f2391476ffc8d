"""Measure and solve a product again from public counts and a public seed, without spending budget.

The counts of a release replace the truth. The noise follows the distributions of the run, but its
key comes from a public seed, so the plan must be marked as not for release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from das.mechanisms.entropy import NoiseKey
from jobs.pipeline.confidential.measure import MeasureStage
from jobs.pipeline.plan import Plan, why_no_estimates
from jobs.pipeline.release.census import publish_census_counts
from jobs.pipeline.release.estimate import CONFIDENCE, EstimateStage, LevelEstimator
from jobs.pipeline.release.solve import solve_level, solve_support
from jobs.pipeline.storage.layout import ReleasedTruth, ReleaseLayout, ReplicateLayout
from jobs.pipeline.tasks.executor import Tasks


def noise_key(seed: int, *position: int, is_on_demand: bool = False) -> NoiseKey:
    """Return the noise key of a geolevel of a replicate; no release has the same key.

    Args:
      seed: Public seed.
      position: Number and generation of the replicate, indices of the product and the geolevel.
      is_on_demand: Whether the key is for the on-demand queries.
    """
    return NoiseKey.for_testing(seed, (*position, int(is_on_demand)))


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
