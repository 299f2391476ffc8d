"""A prior of cell counts learned from the noisy counts of a geolevel, and problems fitted to it.

Where most counts are zero, the posterior mean of a cell has less squared error than its noisy
count. Tasks tally noisy counts of cells by what was expected of them, the driver learns one prior
per variance of the noise (`das.tree.prior`), and node problems are fitted to posterior means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray, IntArray
from das.histograms import Histograms
from das.tree.prior import LearnedPrior, Tally, learn_prior, merge, tally
from solvers.node import NodeSettings, estimate_node
from solvers.problem import GeneralTerm, LeastSquaresTerm, NodeProblem

Priors = Mapping[float, LearnedPrior]  # by variance of the noise
Tallies = Mapping[float, Tally]  # likewise

# Moves a variance off the edges between numbers of three digits. Quotients of small integers lie on
# them; there the last digits of a float, which differ between processors, would choose the prior.
_OFF_EDGES = 1 + 1e-6
# Persons added to the estimated total of every child. With 0, all cells of a child whose total is
# estimated as 0 would fall into the lowest bin of expected counts; with many, all children of a
# parent would be expected to be alike.
_LEAST_TOTAL = 0.3


@dataclass(frozen=True, eq=False)
class CellEstimates:
    """Unbiased estimates of all cells of the M measured geounits of a range.

    Attributes:
      values: float64[M, n], from each geounit's subtree.
      variances: float64[M], mean variance of a cell.
    """

    values: FloatArray
    variances: FloatArray

    def take(self, measured: IntArray) -> CellEstimates:
        """Those of some of the measured geounits."""
        return CellEstimates(self.values[measured], self.variances[measured])


@dataclass(frozen=True, eq=False)
class ChildCounts:
    """Noisy counts of one child in the live cells of its parent, and what is expected of them.

    Attributes:
      variance: Of the noise, three digits.
      noisy: float64[k].
      expected: float64[k].
    """

    variance: float
    noisy: FloatArray
    expected: FloatArray


def child_counts(
    problem: NodeProblem,
    parent: Histograms,
    cells: CellEstimates,
    measured: slice,
    settings: NodeSettings,
) -> list[ChildCounts]:
    """Noisy and expected counts of the children of one parent.

    Expected count = (child's estimated share of the parent's persons) x (parent's count in the
    cell); shares are those of the least-squares estimates of the children's totals.

    Args:
      problem: The node problem with noisy answers.
      parent: Counts of the parent, one geounit.
      cells: Estimates of a range.
      measured: Rows of the children in the range.
      settings: How nodes are solved.
    """
    totals = estimate_node(problem, settings).values.sum(1) + _LEAST_TOTAL
    shares = totals / totals.sum()
    noisy = cells.values[measured][:, parent.cells]
    return [
        ChildCounts(
            float(f"{variance * _OFF_EDGES:.3g}"), noisy[child], shares[child] * parent.counts
        )
        for child, variance in enumerate(cells.variances[measured])
    ]


def tally_children(children: Iterable[ChildCounts]) -> Tallies:
    """Tally noisy counts by the variance of their noise."""
    tallies: dict[float, list[Tally]] = defaultdict(list)
    for child in children:
        tallies[child.variance].append(tally(child.noisy, child.expected, child.variance))
    return {variance: merge(group) for variance, group in tallies.items()}


def learn_priors(parts: Sequence[Tallies]) -> Priors:
    """Learn from the tallies of all tasks how counts are distributed, by variance of the noise."""
    variances = {variance for tallies in parts for variance in tallies}
    return {
        variance: learn_prior(merge(_of_variance(parts, variance)), variance)
        for variance in variances
    }


def _of_variance(parts: Sequence[Tallies], variance: float) -> Iterator[Tally]:
    return (tallies[variance] for tallies in parts if variance in tallies)


def fit_to_posterior(
    problem: NodeProblem, children: Sequence[ChildCounts], priors: Priors
) -> NodeProblem:
    """The node problem with posterior means of the cells in place of noisy answers.

    Each cell of a child weighs 1 / variance of its noise; least-squares passes make no difference
    between cells, so there is one. What a later product tells of weighted sums stays.
    """
    means = [
        priors[child.variance].posterior_mean(child.noisy, child.expected) for child in children
    ]
    weights = [1 / child.variance for child in children]
    cells = np.arange(problem.n_cells)
    term = LeastSquaresTerm(cells, np.array(means), np.array(weights))
    told = (one for one in problem.terms if isinstance(one, GeneralTerm))  # of other records
    return replace(problem, terms=(term, *told), order=())
