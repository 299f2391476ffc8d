"""A graphical model fitted to noisy marginals, and records drawn of it.

Of all distributions the fit looks among those of the greatest entropy with given marginals; mirror
descent in their potentials minimizes the weighted squared distance to what was measured.

References:
  McKenna, Sheldon & Miklau, Graphical-model based estimation and inference for differential
  privacy, ICML 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.synthesis.answers import ChosenMarginals, NoisyAnswer, merged_counts, unmerge
from das.synthesis.records import Domain, Records
from das.synthesis.tree import Attributes, JunctionTree, junction_tree

_MOST_HALVINGS = 25  # of a step; the one that remains is 3e-8 of it
_GROWTH = 1.3  # of the step after one that was taken
_FIRST_STEP = 2.0  # over the largest weight
_ENOUGH = 1e-10  # relative decrease of the loss at which steps end


@dataclass(frozen=True, eq=False)
class Target:
    """Shares that a marginal is fitted to.

    Attributes:
      shares: float64[n_i, ...].
      weight: float64 that broadcasts with them, 1 / variance of each.
    """

    shares: FloatArray
    weight: FloatArray


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A distribution by its potentials.

    Attributes:
      tree: Cliques.
      potentials: By sets of attributes, float64[n_i, ...].
      beliefs: Marginals of the cliques of the tree.
      step: Of mirror descent, where it ended.
    """

    tree: JunctionTree
    potentials: Mapping[Attributes, FloatArray]
    beliefs: Sequence[FloatArray]
    step: float = _FIRST_STEP

    def marginal(self, attributes: Attributes) -> FloatArray:
        """Shares by the levels of attributes in rising order that lie in one clique."""
        return self.tree.marginal(self.beliefs, attributes)


def targets_of_marginals(measured: ChosenMarginals) -> tuple[float, dict[Attributes, Target]]:
    """Combine what was measured, by precision.

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
        add(answer.query.kept, *_table(answer, measured.merged))
    # The sum of a table, weighted by its precision, is an unbiased count of the records.
    sums = np.array([table.sum() for table in counts.values()])
    noise = np.array([np.sum(1.0 / p + 0.0 * counts[each]) for each, p in precisions.items()])
    size = max(1.0, float(np.average(sums, weights=1.0 / noise)))
    targets = {
        each: Target(table / size, precisions[each] * size**2) for each, table in counts.items()
    }
    return size, targets


def fit_model(
    sizes: Sequence[int],
    targets: Mapping[Attributes, Target],
    steps: int,
    before: GraphicalModel | None = None,
) -> GraphicalModel:
    """Fit potentials of the measured sets.

    Minimizes sum over targets of weight (marginal - shares)^2 / 2 by entropic mirror descent; a
    step is halved until the loss falls by half of what its slope promises.

    Args:
      sizes: Levels of each attribute.
      targets: At least one.
      steps: At most so many.
      before: A model of fewer sets to start from.
    """
    known = {} if before is None else before.potentials
    kept = before is not None and all(before.tree.home(each) is not None for each in targets)
    tree = before.tree if kept and before is not None else junction_tree(sizes, targets)
    potentials = {each: known.get(each, np.zeros([sizes[i] for i in each])) for each in targets}
    largest = max(float(target.weight.max()) for target in targets.values())

    beliefs = tree.beliefs(potentials)
    at = _Point.of(tree, beliefs, targets, largest)
    step = _FIRST_STEP if before is None else before.step
    for _ in range(steps):
        for _ in range(_MOST_HALVINGS):
            moved = {each: potentials[each] - step * at.slopes[each] for each in targets}
            beliefs_there = tree.beliefs(moved)
            there = _Point.of(tree, beliefs_there, targets, largest)
            promised = sum(
                float((at.slopes[each] * (at.marginals[each] - there.marginals[each])).sum())
                for each in targets
            )
            if at.loss - there.loss >= 0.5 * promised:
                break
            step /= 2.0
        else:
            break
        gained = at.loss - there.loss
        potentials, beliefs, at = moved, beliefs_there, there
        step *= _GROWTH
        if gained <= _ENOUGH * at.loss:
            break
    return GraphicalModel(tree, potentials, beliefs, step)


@dataclass(frozen=True, eq=False)
class _Point:
    """Loss and its slopes in the marginals, over the largest weight."""

    marginals: dict[Attributes, FloatArray]
    loss: float
    slopes: dict[Attributes, FloatArray]

    @classmethod
    def of(
        cls,
        tree: JunctionTree,
        beliefs: Sequence[FloatArray],
        targets: Mapping[Attributes, Target],
        largest: float,
    ) -> _Point:
        marginals = {each: tree.marginal(beliefs, each) for each in targets}
        errors = {each: marginals[each] - target.shares for each, target in targets.items()}
        slopes = {each: targets[each].weight / largest * errors[each] for each in targets}
        loss = sum(0.5 * float((slopes[each] * errors[each]).sum()) for each in targets)
        return cls(marginals, loss, slopes)


def synthesize_graphical(
    measured: ChosenMarginals, steps: int, n_records: int, seed: int
) -> Records:
    """Fit and draw; a function of noisy answers and public numbers alone.

    The levels of a merged one are equally likely.
    In floats: another processor may add in another order, and records drawn there may differ.
    """
    rng = np.random.default_rng(seed)  # noqa: TID251 - post-processing
    _, targets = targets_of_marginals(measured)
    model = fit_model(measured.merged.sizes, targets, steps)
    codes = model.tree.draw(model.beliefs, n_records, rng)
    return Records(measured.domain, unmerge(codes, measured.merging, rng))


def _table(answer: NoisyAnswer, domain: Domain) -> tuple[FloatArray, FloatArray]:
    shape = [domain.sizes[i] for i in answer.query.kept]
    variance = np.array(float(answer.mechanism.continuous_variance))
    return answer.answers.astype(np.float64).reshape(shape), variance
