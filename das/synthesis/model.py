"""Models of selected marginals: what every family of models can do, and records drawn.

A family fits shares of marginals, expects other marginals, and draws records. Selections, noise and
strata are the same for all families.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np

from das.arrays import FloatArray, IntArray
from das.synthesis.records import ChosenMarginals, Generator, Records, merged_counts, unmerge

Attributes = tuple[int, ...]

NOTHING: Mapping[int, int] = MappingProxyType({})  # levels given, of no attribute


@dataclass(frozen=True, eq=False)
class Target:
    """Shares that a marginal is fitted to.

    Attributes:
      shares: float64[n_i, ...], the share of each combination of levels; one axis per attribute.
      weight: float64 that broadcasts with `shares`: 1 / variance of each share.
    """

    shares: FloatArray
    weight: FloatArray


class Model(Protocol):
    """A distribution of records that was fitted to marginals."""

    def marginals(
        self, sets: Iterable[Attributes], given: Mapping[int, int] = NOTHING
    ) -> list[FloatArray]:
        """Return the shares by the levels of each set of attributes, float64[n_i, ...].

        Args:
          sets: Attributes numbered from 0, in rising order; fitted ones, or parts of these.
          given: Levels of some attributes; shares are conditional on them.
        """
        ...

    def draw(self, n_records: int, rng: Generator) -> IntArray:
        """Draw records, int64[n_records, d]."""
        ...

    def admits(self, attributes: Attributes, most_cells: float) -> bool:
        """Return whether a fit to one more set needs at most so many cells."""
        ...


class Fitter(Protocol):
    """Fits a model of one family to shares of marginals, in steps, perhaps from an earlier one."""

    def __call__(
        self,
        sizes: Sequence[int],
        targets: Mapping[Attributes, Target],
        steps: int,
        before: Model | None = None,
    ) -> Model:
        """Fit a model.

        Args:
          sizes: Number of levels of each attribute.
          targets: By sets of attributes, every attribute alone among them: the fitted shares.
          steps: Largest number of steps.
          before: A model of the same family, of fewer sets, to start from.
        """
        ...


def targets_of_marginals(measured: ChosenMarginals) -> tuple[float, dict[Attributes, Target]]:
    """Combine the measured tables of the same attributes, weighted by precision.

    Returns:
      Number of records, about, at least 1; targets by attributes, over the merged domain.
    """
    counts: dict[Attributes, FloatArray] = {}
    precisions: dict[Attributes, FloatArray] = {}

    def add(attributes: Attributes, table: FloatArray, variance: FloatArray) -> None:
        here = 1.0 / variance
        before = precisions.get(attributes, np.zeros(()))
        mean = counts.get(attributes, np.zeros(()))
        precisions[attributes] = before + here
        counts[attributes] = (before * mean + here * table) / (before + here)

    for i, answer in enumerate(measured.one_way):
        add((i,), *merged_counts(answer, measured.merging, i))
    for answer in measured.marginals:
        shape = [measured.merged.sizes[i] for i in answer.query.kept]
        variance = np.array(float(answer.mechanism.continuous_variance))
        add(answer.query.kept, answer.answers.astype(np.float64).reshape(shape), variance)
    # The sum of a table, weighted by its precision, is an unbiased count of the records.
    sums = np.array([table.sum() for table in counts.values()])
    noise = np.array([np.sum(1.0 / p + 0.0 * counts[each]) for each, p in precisions.items()])
    size = max(1.0, float(np.average(sums, weights=1.0 / noise)))
    targets = {
        each: Target(table / size, precisions[each] * size**2) for each, table in counts.items()
    }
    return size, targets


def synthesize_chosen(
    measured: ChosenMarginals, fitter: Fitter, steps: int, n_records: int, seed: int
) -> Records:
    """Fit a model and draw records; a function of noisy answers and public numbers alone.

    The levels in a merged level are equally likely. Sums of floats depend on the processor, so
    records drawn on another processor may differ.

    Args:
      measured: The noisy marginals.
      fitter: Fits the model.
      steps: Number of steps of the fit.
      n_records: Number of records to draw.
      seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)  # noqa: TID251 - post-processing
    _, targets = targets_of_marginals(measured)
    model = fitter(measured.merged.sizes, targets, steps)
    return Records(measured.domain, unmerge(model.draw(n_records, rng), measured.merging, rng))
