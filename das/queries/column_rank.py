"""Whether Kronecker queries have full column rank together, without a matrix over the cells.

Rank is decided exactly. On each attribute the row spaces of the factors are taken apart into
independent blocks, so that each of them is a sum of some; a residual planner has two, the total and
the rest. Then the row space of a query is the sum over the products of its blocks, and all queries
together have full column rank if every product of blocks is covered. The arithmetic is modulo a
prime, exact and quick: full rank there proves full rank of the integers, since the determinant that
is not 0 modulo the prime is not 0. The reverse fails with odds of about the number of levels over
the prime.

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
_MOST_BLOCKS = 64  # of one attribute
_DENSE_CELLS = 4096  # with which row spaces that do not come apart are still decided
_LEAST = 1e-10  # of the eigenvalues of that matrix, over the largest; rounding leaves 1e-12


def has_full_column_rank(queries: Sequence[Query]) -> bool:
    """Return whether the stacked queries have full column rank; they may be of any size.

    Row spaces of one attribute that do not come apart into blocks, as three lines in a plane do
    not, are decided with a matrix over the cells, up to 4,096 of them. Beyond, only a query that
    has full column rank by itself is then seen to suffice.

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
    if any(all(len(space) == space.shape[1] for space in one) for one in zip(*spaces, strict=True)):
        return True
    covers = []
    for of_attribute in spaces:
        found = _cover(of_attribute)
        if found is None:
            return _is_dense_full(queries)
        if not found.size:
            return False
        covers.append(found)
    shape = tuple(cover.shape[1] for cover in covers)
    if math.prod(shape) > _DENSE_CELLS**2:
        return False
    covered = np.zeros(shape, np.bool_)
    for one in zip(*covers, strict=True):
        covered[np.ix_(*one)] = True
    return bool(covered.all())


def _row_spaces(queries: Sequence[Query]) -> list[list[IntArray]]:
    """Per attribute and query, the reduced rows of the factor, equal for equal row spaces."""
    out = []
    for factors in zip(*(query.factors for query in queries), strict=True):
        distinct = {factor.key: factor for factor in factors}
        known = {key: _row_space(factor) for key, factor in distinct.items()}
        out.append([known[factor.key] for factor in factors])
    return out


def _row_space(factor: Factor) -> IntArray:
    if factor.kind is FactorKind.GENERAL:
        return _reduced(factor.matrix)
    held = factor.matrix[factor.matrix.any(1)]  # disjoint groups, reduced but for their order
    return np.ascontiguousarray(held[np.argsort((held != 0).argmax(1))])


def _cover(spaces: Sequence[IntArray]) -> BoolArray | None:
    """Which blocks make up each row space, bool[Q, blocks].

    Blocks are made from intersections upward: what a space holds beyond the blocks within it is one
    more. Empty if all spaces together miss a direction; None if the blocks are not independent.
    """
    n = spaces[0].shape[1]
    distinct = {space.tobytes(): space for space in spaces}
    pending = list(itertools.combinations(distinct.values(), 2))
    while pending:
        one, other = pending.pop()
        if len(one) == n or len(other) == n:
            continue
        both = _meet(one, other)
        if len(both) and both.tobytes() not in distinct:
            if len(distinct) == _MOST_BLOCKS:
                return None
            pending += [(both, space) for space in distinct.values()]
            distinct[both.tobytes()] = both
    blocks: list[IntArray] = []
    for space in sorted(distinct.values(), key=len):
        within = [block for block in blocks if _is_within(block, space)]
        held = _reduced(np.concatenate([space[:0], *within]))
        if len(held) < len(space):
            blocks.append(_beyond(held, space))
    rank = len(_reduced(np.concatenate(blocks)))
    if rank < sum(map(len, blocks)):
        return None
    if rank < n:
        return np.zeros((len(spaces), 0), np.bool_)
    return np.array([[_is_within(block, space) for block in blocks] for space in spaces])


def _reduced(rows: npt.NDArray[np.integer]) -> IntArray:
    """Reduced row echelon form modulo the prime, int64[rank, n]; stops at full rank.

    Rows are taken in a few at a time, so that the rows of all ranges are not eliminated at once.
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
    """Return the rows that no linear combination of those before is, modulo the prime."""
    reduced = _eliminated(rows.T % _PRIME)
    return np.asarray(rows[(reduced != 0).argmax(axis=1)])


def _meet(one: IntArray, other: IntArray) -> IntArray:
    """The intersection of two row spaces (Zassenhaus' algorithm)."""
    n = one.shape[1]
    upper = np.concatenate([one, one], axis=1)
    lower = np.concatenate([other, np.zeros_like(other)], axis=1)
    found = _eliminated(np.concatenate([upper, lower]))
    return _reduced(found[~found[:, :n].any(1), n:])


def _is_within(block: IntArray, space: IntArray) -> bool:
    if len(space) == space.shape[1]:
        return True
    return len(_reduced(np.concatenate([space, block]))) == len(space)


def _beyond(held: IntArray, space: IntArray) -> IntArray:
    """Rows of a reduced space that complete a reduced one within it: those of other pivots."""
    pivots = (held != 0).argmax(1)
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
