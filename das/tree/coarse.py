"""Coarse classes of subtrees: a small tree on which allocations are searched.

In a national tree nearly every tract is a separate class, though tracts with as many block groups
and blocks have nearly equal errors. Here classes with similar numbers of children and of leaves are
merged into the class with most geounits. Errors on the coarse tree approximate those on the full
tree. `das.tree.search` corrects them by factors and evaluates the result on the full tree.
"""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray, sums_at
from das.tree.classes import Chain, SubtreeClasses

_BIN_WIDTH = 0.2  # in logarithms of children and of leaves; default, not measured


def coarse_classes(tree: SubtreeClasses, width: float = _BIN_WIDTH) -> SubtreeClasses:
    """Merge classes of one chain that have similar numbers of children and leaves.

    Args:
      tree: The classes.
      width: Width of the bins, in logarithms of the numbers of children and of leaves.

    Returns:
      Classes, children before parents. Nodes of a merged class have the children of its
      representative, so numbers of geounits are approximate.

    >>> blocks = np.array([20, 21, 40])
    >>> tree = SubtreeClasses.of_tree([np.array([3]), blocks, np.zeros(81, np.int64)])
    >>> tree.n_classes, coarse_classes(tree).geounits.tolist()
    (5, [80, 2, 1, 1])
    """
    stands_for = _representatives(tree, width)
    kept = stands_for[tree.parent] == tree.parent
    parent, number = tree.parent[kept], tree.number[kept]
    child = stands_for[tree.child[kept]]
    geounits = np.zeros(tree.n_classes, np.int64)
    geounits[-1] = 1
    for chain in reversed(tree.chains):
        inside = (parent >= chain.start) & (parent < chain.stop)
        np.add.at(geounits, child[inside], geounits[parent[inside]] * number[inside])
    kept = geounits > 0  # some representatives are children of no kept class
    renumbered = np.cumsum(kept) - 1
    parent, child, number = (values[kept[parent]] for values in (parent, child, number))
    keys, position = np.unique(
        renumbered[parent] * tree.n_classes + renumbered[child], return_inverse=True
    )
    numbers = sums_at(position, number, len(keys))
    chains = []
    for chain in tree.chains:
        start = int(kept[: chain.start].sum())
        stop = start + int(kept[chain.start : chain.stop].sum())
        if stop > start:
            chains.append(Chain(chain.first, chain.last, start, stop))
    parents, children = np.divmod(keys, tree.n_classes)
    return SubtreeClasses(tree.n_levels, tuple(chains), geounits[kept], parents, children, numbers)


def _representatives(tree: SubtreeClasses, width: float) -> IntArray:
    """Return the representative class of each class, int64[C]."""
    children, leaves = np.zeros(tree.n_classes), np.ones(tree.n_classes)
    np.add.at(children, tree.parent, tree.number)
    out = np.arange(tree.n_classes)
    for chain in tree.chains:
        if chain.last + 1 == tree.n_levels:
            continue
        nodes = np.arange(chain.start, chain.stop)
        leaves[nodes] = 0.0
        inside = (tree.parent >= chain.start) & (tree.parent < chain.stop)
        np.add.at(leaves, tree.parent[inside], tree.number[inside] * leaves[tree.child[inside]])
        sizes = np.log(np.stack([children[nodes], leaves[nodes]], axis=1))
        bins = np.unique(np.rint(sizes / width).astype(np.int64), axis=0, return_inverse=True)[1]
        bins = bins.reshape(-1)
        order = np.lexsort((nodes, -tree.geounits[nodes], bins))
        firsts = order[np.unique(bins[order], return_index=True)[1]]
        out[nodes] = nodes[firsts][bins]
    return out
