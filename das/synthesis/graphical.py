"""Graphical models: marginals by junction trees, fits to noisy marginals, records drawn.

A model is proportional to exp(sum of potentials), one potential per set of attributes. Attributes
are eliminated in the order of least weight, which gives cliques; a spanning tree of largest
separators joins them. Two passes of messages give all marginals. Messages are logarithms, so no
cell underflows.

The fit searches the distributions of maximum entropy for given marginals. Mirror descent in their
potentials minimizes the weighted squared distance to the measured marginals.

References:
  Lauritzen & Spiegelhalter, J. R. Statist. Soc. B 50 (1988), 157-224.
  Koller & Friedman, Probabilistic Graphical Models (2009), chapters 9 and 10 (min-weight).
  McKenna, Sheldon & Miklau, Graphical-model based estimation and inference for differential
  privacy, ICML 2019.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.histograms import mixed_radix
from das.synthesis.model import NOTHING, Attributes, Model, Target
from das.synthesis.records import Generator

_MOST_HALVINGS = 25  # of a step; the one that remains is 3e-8 of it
_GROWTH = 1.3  # of the step after one that was taken
_FIRST_STEP = 2.0  # over the largest weight
_EXCLUDED = -1e4  # potential of a level that evidence excludes; exp of it is 0, differences finite
_ENOUGH = 1e-10  # relative decrease of the loss at which steps end


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """Cliques of attributes, joined so that those with an attribute in common are connected.

    Attributes:
      sizes: Number of levels of each attribute.
      cliques: Positions in rising order; a clique stands after its parent.
      parents: Of each clique the position of its parent, -1 of the first. Where parts have no
        attribute in common, the separator is empty.
    """

    sizes: tuple[int, ...]
    cliques: tuple[Attributes, ...]
    parents: tuple[int, ...]

    @cached_property
    def cells(self) -> int:
        """Return the number of cells of all cliques together."""
        return sum(math.prod(self.sizes[i] for i in clique) for clique in self.cliques)

    @cached_property
    def separators(self) -> tuple[Attributes, ...]:
        """Return the attributes that each clique shares with its parent."""
        return tuple(
            tuple(i for i in clique if parent >= 0 and i in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    def home(self, attributes: Iterable[int]) -> int | None:
        """Return the index of the first clique with all attributes; None without such a clique."""
        wanted = set(attributes)
        return next((k for k, clique in enumerate(self.cliques) if wanted <= {*clique}), None)

    def shape(self, clique: Attributes, inside: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a table that broadcasts over a clique: 1 outside of `inside`.

        Args:
          clique: Attributes of the clique.
          inside: Attributes of the table.
        """
        return tuple(self.sizes[i] if i in inside else 1 for i in clique)

    def beliefs(self, potentials: Mapping[Attributes, FloatArray]) -> list[FloatArray]:
        """Compute the marginals of all cliques, each summing to 1.

        Args:
          potentials: By attributes in rising order, float64 tables of their sizes. Each must lie in
            a clique.

        Raises:
          SchemaError: A potential lies in no clique.
        """
        from scipy.special import softmax

        scores = [np.zeros(self.shape(clique, clique)) for clique in self.cliques]
        for attributes, table in potentials.items():
            home = self.home(attributes)
            if home is None:
                raise SchemaError("potential", "lies in no clique", got=attributes)
            scores[home] += table.reshape(self.shape(self.cliques[home], attributes))
        upward: list[FloatArray] = [np.zeros(())] * len(scores)
        for k in range(len(scores) - 1, 0, -1):
            upward[k] = self._message(scores[k], k, k)
            scores[self.parents[k]] += self._lifted(upward[k], k, self.parents[k])
        for k in range(1, len(scores)):
            downward = self._message(scores[self.parents[k]], self.parents[k], k)
            scores[k] += self._lifted(downward - upward[k], k, k)
        return [softmax(table) for table in scores]

    def marginal(self, beliefs: Sequence[FloatArray], attributes: Attributes) -> FloatArray:
        """Compute the marginal of attributes, in rising order, that lie in a clique.

        Args:
          beliefs: Per clique, the table of its expected counts or shares.
          attributes: Attributes numbered from 0, in rising order.

        Raises:
          SchemaError: No clique contains all these attributes.
        """
        home = self.home(attributes)
        if home is None:
            raise SchemaError("marginal", "lies in no clique", got=attributes)
        away = tuple(axis for axis, i in enumerate(self.cliques[home]) if i not in attributes)
        return np.asarray(beliefs[home].sum(axis=away))

    def draw(self, beliefs: Sequence[FloatArray], n_records: int, rng: Generator) -> IntArray:
        """Draw records, int64[n_records, d].

        Along the tree, the records of each combination of a separator are assigned to the new
        attributes by systematic sampling, so every clique's count differs by less than 1 from what
        is expected given the counts of its separator.
        """
        codes = np.zeros((n_records, len(self.sizes)), np.int64)
        done: set[int] = set()
        for k, clique in enumerate(self.cliques):
            old, new = self.separators[k], [i for i in clique if i not in done]
            done.update(new)
            table = np.transpose(beliefs[k], [clique.index(i) for i in (*old, *new)])
            n_old = math.prod(self.sizes[i] for i in old)
            groups = mixed_radix(codes, old, self.sizes)
            spots = assign(table.reshape(n_old, -1), groups, rng)
            for i in reversed(new):
                spots, codes[:, i] = np.divmod(spots, self.sizes[i])
        return codes

    def _message(self, scores: FloatArray, source: int, child: int) -> FloatArray:
        """Take logarithms of sums over what is not in the separator of a child and its parent."""
        inside = self.separators[child]
        away = tuple(axis for axis, i in enumerate(self.cliques[source]) if i not in inside)
        most = scores.max(axis=away, keepdims=True)
        sums = np.log(np.exp(scores - most).sum(axis=away, keepdims=True)) + most
        return np.asarray(sums.reshape([self.sizes[i] for i in inside]))

    def _lifted(self, message: FloatArray, child: int, target: int) -> FloatArray:
        return message.reshape(self.shape(self.cliques[target], self.separators[child]))


def assign(weights: FloatArray, groups: IntArray, rng: Generator) -> IntArray:
    """Assign members of groups to columns, in proportion as nearly as whole numbers can be.

    Args:
      weights: float64[g, m], not negative; a row of zeros counts as equal weights.
      groups: int64[n], the row of each member.
      rng: Generator of the start of each group and of the order of its members.

    Returns:
      int64[n], the column of each member.

    Law: the number in a column is the integer below or above its expected number.
    """
    present, position = np.unique(groups, return_inverse=True)
    members = np.bincount(position, minlength=len(present))
    rows = weights[present]
    sums = rows.sum(1, keepdims=True)
    rows = np.where(sums > 0, rows, 1.0)
    reached = np.cumsum(rows, axis=1)
    reached *= members[:, None] / reached[:, -1:]
    starts = rng.random(len(present))
    ends = np.floor(reached + starts[:, None]).astype(np.int64)
    ends[:, -1] = members  # floor(members + start), whatever rounding did
    counts = np.diff(np.minimum(ends, members[:, None]), axis=1, prepend=0)
    columns = np.repeat(np.tile(np.arange(rows.shape[1]), len(rows)), counts.reshape(-1))
    out = np.empty(len(groups), np.int64)
    order = rng.permutation(len(groups))
    out[order[np.argsort(position[order], kind="stable")]] = columns
    return out


def junction_tree(sizes: Sequence[int], sets: Iterable[Attributes]) -> JunctionTree:
    """Build a junction tree whose cliques hold given sets of attributes, and every attribute.

    The next attribute to be eliminated is the one whose clique has the fewest cells.
    """
    around: dict[int, set[int]] = {i: set() for i in range(len(sizes))}
    for each in sets:
        for i, j in itertools.permutations(each, 2):
            around[i].add(j)
    cliques: list[frozenset[int]] = []
    while around:
        weight = {i: math.prod(sizes[j] for j in near) * sizes[i] for i, near in around.items()}
        out = min(around, key=lambda i: (weight[i], i))
        clique = frozenset({out, *around[out]})
        if not any(clique <= larger for larger in cliques):
            cliques.append(clique)
        for i, j in itertools.permutations(around[out], 2):
            around[i].add(j)
        for i in around.pop(out):
            around[i].discard(out)
    return _joined(tuple(sizes), cliques)


def _joined(sizes: tuple[int, ...], cliques: Sequence[frozenset[int]]) -> JunctionTree:
    """Join cliques by a maximum-weight spanning tree from the first clique on (Prim).

    The weight of an edge is the number of attributes that its two cliques share.
    """
    order, parents = [0], [-1]
    outside = [*range(1, len(cliques))]
    best = {k: (len(cliques[k] & cliques[0]), 0) for k in outside}
    while outside:
        k = max(outside, key=lambda k: (best[k][0], -k))
        outside.remove(k)
        parents.append(best[k][1])
        order.append(k)
        for other in outside:
            common = len(cliques[other] & cliques[k])
            if common > best[other][0]:
                best[other] = (common, len(order) - 1)
    return JunctionTree(sizes, tuple(tuple(sorted(cliques[k])) for k in order), tuple(parents))


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A distribution by its potentials.

    Attributes:
      tree: Cliques of attributes.
      potentials: By sets of attributes, float64[n_i, ...].
      beliefs: Marginals of the cliques of the tree.
      step: Last step size of mirror descent.
    """

    tree: JunctionTree
    potentials: Mapping[Attributes, FloatArray]
    beliefs: Sequence[FloatArray]
    step: float = _FIRST_STEP

    def marginals(
        self, sets: Iterable[Attributes], given: Mapping[int, int] = NOTHING
    ) -> list[FloatArray]:
        """Return the shares by the levels of sets of attributes, each of one clique.

        Args:
          sets: Attributes numbered from 0, in rising order.
          given: Levels of some attributes; shares are conditional on them.
        """
        potentials = dict(self.potentials)
        for i, level in given.items():
            evidence = np.full(self.tree.sizes[i], _EXCLUDED)
            evidence[level] = 0.0
            potentials[i,] = potentials.get((i,), 0.0) + evidence
        beliefs = self.tree.beliefs(potentials) if given else self.beliefs
        return [self.tree.marginal(beliefs, each) for each in sets]

    def draw(self, n_records: int, rng: Generator) -> IntArray:
        """Draw records, int64[n_records, d], as `JunctionTree.draw`."""
        return self.tree.draw(self.beliefs, n_records, rng)

    def admits(self, attributes: Attributes, most_cells: float) -> bool:
        """Return whether a clique holds the attributes, or the tree with them is small enough."""
        if self.tree.home(attributes) is not None:
            return True
        return junction_tree(self.tree.sizes, (*self.potentials, attributes)).cells <= most_cells


def fit_model(
    sizes: Sequence[int],
    targets: Mapping[Attributes, Target],
    steps: int,
    before: Model | None = None,
) -> GraphicalModel:
    """Fit potentials of the measured sets.

    Minimizes sum over targets of weight (marginal - shares)^2 / 2 by entropic mirror descent; a
    step is halved until the loss falls by half of what its slope promises.

    Args:
      sizes: Number of levels of each attribute.
      targets: By sets of attributes, at least one: the shares that are fitted.
      steps: Largest number of steps.
      before: A graphical model of fewer sets to start from.
    """
    tree, known, step = None, dict[Attributes, FloatArray](), _FIRST_STEP
    if isinstance(before, GraphicalModel):
        known, step = dict(before.potentials), before.step
        if all(before.tree.home(each) is not None for each in targets):
            tree = before.tree
    tree = tree or junction_tree(sizes, targets)
    potentials = {each: known.get(each, np.zeros([sizes[i] for i in each])) for each in targets}
    largest = max(float(target.weight.max()) for target in targets.values())

    at = _evaluate(tree, potentials, targets, largest)
    for _ in range(steps):
        for _ in range(_MOST_HALVINGS):
            moved = {each: potentials[each] - step * at.slopes[each] for each in targets}
            there = _evaluate(tree, moved, targets, largest)
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
        potentials, at = moved, there
        step *= _GROWTH
        if gained <= _ENOUGH * at.loss:
            break
    return GraphicalModel(tree, potentials, at.beliefs, step)


class _Point(NamedTuple):
    """Marginals of a model, and the loss with its slopes in them, over the largest weight."""

    beliefs: list[FloatArray]
    marginals: dict[Attributes, FloatArray]
    loss: float
    slopes: dict[Attributes, FloatArray]


def _evaluate(
    tree: JunctionTree,
    potentials: Mapping[Attributes, FloatArray],
    targets: Mapping[Attributes, Target],
    largest: float,
) -> _Point:
    """Compute the marginals of a model, the loss against the targets, and its slopes.

    Args:
      tree: The junction tree.
      potentials: By sets of attributes, the potentials of the model.
      targets: By sets of attributes, the shares to fit.
      largest: Largest weight of a target; slopes and loss are divided by it.
    """
    beliefs = tree.beliefs(potentials)
    marginals = {each: tree.marginal(beliefs, each) for each in targets}
    errors = {each: marginals[each] - target.shares for each, target in targets.items()}
    slopes = {each: targets[each].weight / largest * errors[each] for each in targets}
    loss = sum(0.5 * float((slopes[each] * errors[each]).sum()) for each in targets)
    return _Point(beliefs, marginals, loss, slopes)
