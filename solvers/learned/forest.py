"""Boosted regression trees on integer features: the same trees and predictions on every machine.

A forest predicts a constant plus the sum of one leaf of each tree. Features, thresholds and leaves
are integers, so no prediction depends on the order of a sum. Splits are chosen by quotients of
exact sums, each of which is one rounded operation on every processor.

Reference:
  Friedman, Annals of Statistics 29 (2001), 1189-1232 (gradient boosting).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray, IntArray

LEAF_STEPS = 1 << 12  # leaves are multiples of 1 / LEAF_STEPS
DEPTH = 3
SPLITS, LEAVES = 2**DEPTH - 1, 2**DEPTH
_NEVER = 2**31 - 1  # threshold of a node that is not divided: no feature is above it
# Defaults, not measured: trees, rate, bins of a feature, rows added to a mean, rows of a leaf.
_TREES, _RATE, _BINS, _RIDGE, _LEAST = 60, 0.2, 64, 5.0, 60


@dataclass(frozen=True, eq=False)
class Forest:
    """T regression trees of depth 3.

    The children of node i of a tree are nodes 2i + 1, at or below the threshold, and 2i + 2.

    Attributes:
      constant: Prediction before all trees, in steps of 1 / LEAF_STEPS.
      features: int64[T, 7], the feature of each node.
      thresholds: int64[T, 7], the threshold of each node.
      leaves: int64[T, 8], what each leaf adds, in steps.
    """

    constant: int
    features: IntArray
    thresholds: IntArray
    leaves: IntArray

    def predict(self, columns: Sequence[IntArray]) -> FloatArray:
        """Return float64[N], the predictions for N rows.

        Whole columns are compared, tree by tree: as fast as a compiled loop over rows, which would
        miss the cache at each of them.

        Args:
          columns: Per feature, int64[N].
        """
        total = np.full(len(columns[0]), self.constant, np.int64)
        trees = zip(self.features.tolist(), self.thresholds.tolist(), self.leaves, strict=True)
        for features, thresholds, leaves in trees:
            total += leaves[_leaf_of(columns, features, thresholds)]
        return np.asarray(total / LEAF_STEPS, np.float64)


def _leaf_of(
    columns: Sequence[IntArray], features: Sequence[int], thresholds: Sequence[int]
) -> npt.NDArray[np.uint8]:
    """Return uint8[N], the leaf of a tree into which each row falls."""
    is_above = [columns[f] > t for f, t in zip(features, thresholds, strict=True)]
    path = list[BoolArray]()
    for depth in range(DEPTH):
        path.append(_chosen(is_above[2**depth - 1 : 2 ** (depth + 1) - 1], path))
    leaf = path[0].astype(np.uint8)
    for turn in path[1:]:
        leaf = 2 * leaf + turn
    return leaf


def _chosen(nodes: Sequence[BoolArray], path: Sequence[BoolArray]) -> BoolArray:
    """Return bool[N]: of the nodes of a depth, the one to which the path of each row leads."""
    for turn in reversed(path):  # np.where would take 30 times as long
        pairs = zip(nodes[::2], nodes[1::2], strict=True)
        nodes = [left ^ (turn & (left ^ right)) for left, right in pairs]
    return nodes[0]


def fit_forest(columns: Sequence[IntArray], wanted: FloatArray) -> Forest:
    """Fit a forest to the values that it should predict, by least squares.

    Args:
      columns: Per feature, int64[N].
      wanted: float64[N], the values.
    """
    edges = [_edges(column) for column in columns]
    binned = [np.searchsorted(e, c) for e, c in zip(edges, columns, strict=True)]
    rest = np.rint(wanted * LEAF_STEPS).astype(np.int64)
    constant = int(np.rint(rest.mean()))
    rest -= constant
    trees = []
    for _ in range(_TREES):
        split = _split(binned, rest)
        leaf = _leaf_of(binned, *split)
        sums = np.bincount(leaf, rest, LEAVES)
        number = np.bincount(leaf, minlength=LEAVES)
        leaves = np.rint(_RATE * sums / (number + _RIDGE)).astype(np.int64)
        rest -= leaves[leaf]
        thresholds = [
            _NEVER if cut == _NEVER else int(edges[feature][cut])
            for feature, cut in zip(*split, strict=True)
        ]
        trees.append((split[0], thresholds, leaves))
    return Forest(constant, *(np.array(part, np.int64) for part in zip(*trees, strict=True)))


def _edges(column: IntArray) -> IntArray:
    """Return the values between bins of about as many rows, ascending and distinct."""
    ordered = np.sort(column)
    return np.unique(ordered[np.arange(1, _BINS) * (len(ordered) - 1) // _BINS])


def _split(binned: Sequence[IntArray], rest: IntArray) -> tuple[list[int], list[int]]:
    """Grow a tree depth by depth; returns the feature and the last bin at or below each node."""
    features, cuts = [0] * SPLITS, [_NEVER] * SPLITS
    node, path = np.zeros(len(rest), np.int64), list[BoolArray]()
    for depth in range(DEPTH):
        first, width = 2**depth - 1, 2**depth
        best = np.full(width, 1e-9)
        for feature, column in enumerate(binned):
            key, size = node * _BINS + column, width * _BINS
            sums = np.bincount(key, rest, size).reshape(width, _BINS).cumsum(1)
            number = np.bincount(key, minlength=size).reshape(width, _BINS).cumsum(1)
            gain = _gain(sums, number)
            at = gain.argmax(axis=1)
            for one in np.flatnonzero(gain.max(axis=1) > best):
                best[one] = gain[one, at[one]]
                features[first + one], cuts[first + one] = feature, int(at[one])
        of_depth = slice(first, first + width)
        chosen = zip(features[of_depth], cuts[of_depth], strict=True)
        path.append(_chosen([binned[feature] > cut for feature, cut in chosen], path))
        node = 2 * node + path[-1]
    return features, cuts


def _gain(sums: FloatArray, number: IntArray) -> FloatArray:
    """Return by how much each cut lowers the squared error; -1 with too few rows on a side.

    Args:
      sums: float64[K, bins], sums of the rest up to each bin; exact, since the terms are integers.
      number: int64[K, bins], numbers of rows up to each bin.
    """
    whole, rows = sums[:, -1:], number[:, -1:]
    above = whole - sums
    gain = sums**2 / (number + _RIDGE) + above**2 / (rows - number + _RIDGE)
    gain -= whole**2 / (rows + _RIDGE)
    is_small = (number < _LEAST) | (rows - number < _LEAST)
    return np.where(is_small, -1.0, gain)
