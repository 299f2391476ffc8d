"""A product measured and solved again from public counts and a public seed; spends nothing.

The counts of a release take the place of the truth. Noise has the laws of the run, and its key is
made of a seed that anybody may know, so a plan marked as not for release is all that this takes.
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


@dataclass(frozen=True, eq=False)
class Repeat:
    """Measure and solve the counts of a release as if they were the truth.

    Attributes:
      plan: The plan of the run, marked as not for release.
      truth: Whose counts are measured.
      made: Where noisy answers, messages and counts go.
      key: Makes the key of the noise of a geolevel from a public seed, by its position.
      tasks: What runs the steps.
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
        """Draw what is drawn completely, and estimate upwards."""
        plan, made = self.plan, self.made
        for level in plan.levels:
            self._stage.measure(level.index, self.key(level.index))
        if why_no_estimates(plan) is None:
            estimate = EstimateStage(LevelEstimator(plan, made, (), CONFIDENCE), self.tasks)
            for level in plan.levels[-2::-1]:
                estimate.climb(level.index)

    def solve(self) -> None:
        """Draw on-demand queries and solve, geolevel by geolevel; all products are measured.

        Counts of census geolevels off the spine are sums over leaves, as in a release.

        Raises:
          SolverError, InfeasibleError: A node failed.
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
