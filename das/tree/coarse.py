"""A smaller tree that stands for a large one while an allocation is sought.

Of a nation nearly every tract is a class of its own, though errors hardly differ between two tracts
of as many block groups and blocks. Here classes whose nodes have nearly as many children and nearly
as many leaves are one, that of the most geounits. Errors of the smaller tree are near those of the
large one, not equal: whoever searches on it says by what factor they differ, and what was found is
judged on the large one (`das.tree.search`).
"""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray
from das.tree.classes import Chain, SubtreeClasses

_APART = 0.2  # in logarithms of children and of leaves


def coarse_classes(tree: SubtreeClasses, apart: float = _APART) -> SubtreeClasses:
    """Merge classes of the same chain whose sizes are near.

    Args:
      tree: The classes.
      apart: Width of the bins, in logarithms of the numbers of children and of leaves.

    Returns:
      Classes with children before parents. Nodes of a merged class have the children of its
      representative, so numbers of geounits differ a little.

    >>> blocks = np.array([20, 21, 40])
    >>> tree = SubtreeClasses.of_tree([np.array([3]), blocks, np.zeros(81, np.int64)])
    >>> tree.n_classes, coarse_classes(tree).geounits.tolist()
    (5, [80, 2, 1, 1])
    """
    stands_for = _representatives(tree, apart)
    kept = stands_for[tree.parent] == tree.parent
    parent, number = tree.parent[kept], tree.number[kept]
    child = stands_for[tree.child[kept]]
    geounits = np.zeros(tree.n_classes, np.int64)
    geounits[-1] = 1
    for chain in reversed(tree.chains):
        inside = (parent >= chain.start) & (parent < chain.stop)
        np.add.at(geounits, child[inside], geounits[parent[inside]] * number[inside])
    lives = geounits > 0  # a representative may be a child of none
    place = np.cumsum(lives) - 1
    parent, child, number = (values[lives[parent]] for values in (parent, child, number))
    keys, position = np.unique(place[parent] * tree.n_classes + place[child], return_inverse=True)
    numbers = np.zeros(len(keys), np.int64)
    np.add.at(numbers, position, number)
    chains = []
    for chain in tree.chains:
        start = int(lives[: chain.start].sum())
        stop = start + int(lives[chain.start : chain.stop].sum())
        if stop > start:
            chains.append(Chain(chain.first, chain.last, start, stop))
    parents, children = np.divmod(keys, tree.n_classes)
    return SubtreeClasses(tree.n_levels, tuple(chains), geounits[lives], parents, children, numbers)


def _representatives(tree: SubtreeClasses, apart: float) -> IntArray:
    """int64[C]: the class that stands for each."""
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
        bins = np.unique(np.rint(sizes / apart).astype(np.int64), axis=0, return_inverse=True)[1]
        bins = bins.reshape(-1)
        order = np.lexsort((nodes, -tree.geounits[nodes], bins))
        firsts = order[np.unique(bins[order], return_index=True)[1]]
        out[nodes] = nodes[firsts][bins]
    return out
