"""Exact test for full column rank of stacked Kronecker queries, without a matrix over the cells.

On each attribute the row spaces of the factors are decomposed into independent blocks, so that each
row space is a sum of blocks. A residual planner has two blocks, the total and its complement. Then
the row space of a query is the sum over the products of its blocks. The stacked queries have full
column rank if every product of blocks is covered. Arithmetic is modulo a prime, exact and fast.
Full rank modulo the prime proves full rank over the integers, since a determinant that is not 0
modulo the prime is not 0. The reverse fails with probability about n levels over the prime.

Full rank says nothing about rounding; see `das.tree.curvature`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, IntArray
from das.queries.factor import Factor, FactorKind
from das.queries.query import Query

_PRIME = 2**31 - 1  # products of two residues fit in 63 bits
_MOST_BLOCKS = 64  # blocks of one attribute; default, not measured
_DENSE_CELLS = 4096  # largest dense matrix, if there is no decomposition; default, not measured
_LEAST = 1e-10  # smallest eigenvalue over the largest, at full rank; rounding leaves 1e-12


def has_full_column_rank(queries: Sequence[Query]) -> bool:
    """Return whether the stacked queries have full column rank, for any number of cells.

    The row spaces of an attribute need not split into independent blocks; three lines in a plane
    do not. Then a dense matrix decides for up to 4,096 cells. For more cells, True is returned only
    if one query alone has full column rank, so False proves nothing. The same holds for more than
    4,096^2 products of blocks.

    >>> from das.queries.query import parse_query
    >>> from das.schema import Attribute, Schema
    >>> schema = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> texts = ["total", "sex", "residual(age)", "sex * residual(age)"]
    >>> has_full_column_rank([parse_query(schema, text) for text in texts])
    True
    >>> has_full_column_rank([parse_query(schema, text) for text in texts[:3]])
    False
    """
    spaces = _row_spaces(queries)
    of_queries = zip(*spaces, strict=True)
    if any(all(len(space) == space.shape[1] for space in of_query) for of_query in of_queries):
        return True
    covers = []
    for of_attribute in spaces:
        cover = _cover(of_attribute)
        if cover is None:
            return _is_dense_full(queries)
        if not cover.size:
            return False
        covers.append(cover)
    shape = tuple(cover.shape[1] for cover in covers)
    if math.prod(shape) > _DENSE_CELLS**2:
        return False
    covered = np.zeros(shape, np.bool_)
    for of_query in zip(*covers, strict=True):
        covered[np.ix_(*of_query)] = True
    return bool(covered.all())


def _row_spaces(queries: Sequence[Query]) -> list[list[IntArray]]:
    """Return the reduced row space of each factor, by attribute and query."""
    out = []
    for factors in zip(*(query.factors for query in queries), strict=True):
        distinct = {factor.key: factor for factor in factors}
        known = {key: _row_space(factor) for key, factor in distinct.items()}
        out.append([known[factor.key] for factor in factors])
    return out


def _row_space(factor: Factor) -> IntArray:
    if factor.kind is FactorKind.GENERAL:
        return _reduced(factor.matrix)
    rows = factor.matrix[factor.matrix.any(1)]  # disjoint groups, reduced up to their order
    return np.ascontiguousarray(rows[np.argsort((rows != 0).argmax(1))])


def _cover(spaces: Sequence[IntArray]) -> BoolArray | None:
    """Return which blocks sum to the row space of each of Q factors, bool[Q, blocks].

    Blocks are built from intersections upward: the complement of the known blocks within a space is
    a new block. The result is empty if the sum of all spaces is not the whole space, and None if
    the blocks are not independent.
    """
    n = spaces[0].shape[1]
    distinct = {space.tobytes(): space for space in spaces}
    pending = list(itertools.combinations(distinct.values(), 2))
    while pending:
        first, second = pending.pop()
        if len(first) == n or len(second) == n:
            continue
        both = _meet(first, second)
        if len(both) and both.tobytes() not in distinct:
            if len(distinct) == _MOST_BLOCKS:
                return None
            pending += [(both, space) for space in distinct.values()]
            distinct[both.tobytes()] = both
    blocks: list[IntArray] = []
    for space in sorted(distinct.values(), key=len):
        within = [block for block in blocks if _is_within(block, space)]
        known = _reduced(np.concatenate([space[:0], *within]))
        if len(known) < len(space):
            blocks.append(_complement(known, space))
    rank = len(_reduced(np.concatenate(blocks)))
    if rank < sum(map(len, blocks)):
        return None
    if rank < n:
        return np.zeros((len(spaces), 0), np.bool_)
    return np.array([[_is_within(block, space) for block in blocks] for space in spaces])


def _reduced(rows: npt.NDArray[np.integer]) -> IntArray:
    """Return the reduced row echelon form modulo the prime, int64[rank, n].

    Rows are processed n at a time and stop at full rank, since range queries have many rows.
    """
    n = rows.shape[1]
    basis = np.zeros((0, n), np.int64)
    for start in range(0, len(rows), max(n, 1)):
        basis = _eliminated(np.concatenate([basis, rows[start : start + n] % _PRIME]))
        if len(basis) == n:
            return np.eye(n, dtype=np.int64)
    return basis


def _eliminated(rows: IntArray) -> IntArray:
    matrix, rank = rows.copy(), 0
    for column in range(matrix.shape[1]):
        below = np.flatnonzero(matrix[rank:, column])
        if not below.size:
            continue
        pivot = rank + int(below[0])
        matrix[[rank, pivot]] = matrix[[pivot, rank]]
        inverse = pow(int(matrix[rank, column]), -1, _PRIME)
        matrix[rank] = matrix[rank] * inverse % _PRIME
        factors = matrix[:, column].copy()
        factors[rank] = 0
        some = np.flatnonzero(factors)
        matrix[some] = (matrix[some] - factors[some, None] * matrix[rank]) % _PRIME
        rank += 1
        if rank == len(matrix):
            break
    return np.ascontiguousarray(matrix[:rank])


def independent_rows(rows: IntArray) -> IntArray:
    """Return the rows that are no linear combination of previous rows, modulo the prime."""
    reduced = _eliminated(rows.T % _PRIME)
    return np.asarray(rows[(reduced != 0).argmax(axis=1)])


def _meet(first: IntArray, second: IntArray) -> IntArray:
    """Return the intersection of two row spaces (Zassenhaus' algorithm)."""
    n = first.shape[1]
    upper = np.concatenate([first, first], axis=1)
    lower = np.concatenate([second, np.zeros_like(second)], axis=1)
    reduced = _eliminated(np.concatenate([upper, lower]))
    return _reduced(reduced[~reduced[:, :n].any(1), n:])


def _is_within(block: IntArray, space: IntArray) -> bool:
    if len(space) == space.shape[1]:
        return True
    return len(_reduced(np.concatenate([space, block]))) == len(space)


def _complement(known: IntArray, space: IntArray) -> IntArray:
    """Return the rows of a reduced space whose pivots are not pivots of a reduced subspace."""
    pivots = (known != 0).argmax(1)
    return space[~np.isin((space != 0).argmax(1), pivots)]


def _is_dense_full(queries: Sequence[Query]) -> bool:
    n = queries[0].n_cells
    if n > _DENSE_CELLS:
        return False
    cells = np.arange(n)
    gram = np.zeros((n, n))
    for query in queries:
        scale = math.prod(float(factor.gram.diagonal().max()) for factor in query.factors)
        gram += query.gram(cells) / scale
    values = np.linalg.eigvalsh(gram)
    return bool(values[0] > _LEAST * values[-1])
