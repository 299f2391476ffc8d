"""Information matrix of Kronecker queries on live cells, applied without a matrix over the cells.

Every measured query is a product of one matrix per attribute, so sum_q w_q Q_q'Q_q splits into
small matrices on the orthogonal components of `das.tree.components`, whatever the number of cells.
Live cells are some rows and columns of it. If no attribute has groups, these matrices are numbers,
the sum is a signed combination of marginals, and sums over live cells apply it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SolverError
from das.queries.query import Query
from das.tree.coordinates import Coordinates, Matrices, along
from das.tree.model import gram_matrices
from solvers.least_squares.blocks import FLAT, Equality
from solvers.problem import KroneckerTerm, LeastSquaresTerm, NodeProblem, group_sums

# Defaults, not measured.
_NUMBERS = 4_000_000  # numbers in coordinates at a time: 32 MB
_SUM_PRICE = 10.0  # cost of adding a number to its group, over an operation in matrix products
_GIVEN = 1e3  # curvature of a given sum over the mean curvature of its cells


class Information:
    """Matrices G_c + sum_e gamma_ce E_e'E_e of all children of a node.

    The given sums E_e are constants of the problem, so their squares change no solution; they make
    the matrix definite in directions that no query determines.

    Attributes:
      least: float64[C], a positive lower bound of the smallest eigenvalue.
      diagonal: float64[C, k].
      given_weights: float64[given sums, C], gamma.
      marginals: Groups of the live cells and weights float64[C] of the marginals whose combination
        is the matrix; empty if it is applied in coordinates.
    """

    def __init__(self, problem: NodeProblem, equalities: Sequence[Equality]) -> None:
        """Add up the terms.

        Args:
          problem: The node problem; its terms are Kronecker queries or partitions.
          equalities: Given sums.

        Raises:
          SolverError: Queries and given sums do not have full column rank.
          SchemaError: The queries group the levels in too many ways.
        """
        C, k = problem.n_children, problem.n_cells
        self._shape = (C, k)
        partitions = [term for term in problem.terms if isinstance(term, LeastSquaresTerm)]
        general = [term for term in problem.terms if isinstance(term, KroneckerTerm)]
        if len(partitions) + len(general) < len(problem.terms):
            raise SolverError(
                f"node {problem.geocode}",
                "has a general term, which projected steps do not accept",
                remedy="use the structured solver",
            )
        self.diagonal = np.zeros((C, k))
        for term in partitions:
            self.diagonal += term.weights[:, None]
        for kronecker in general:
            self.diagonal += kronecker.weights[:, None] * kronecker.squares
        mean = self.diagonal.mean(1)
        mean = np.where(mean > 0, mean, 1.0)
        self.given_weights = np.array(
            [_GIVEN * mean * e.targets.shape[1] / k for e in equalities]
        ).reshape(len(equalities), C)
        self.diagonal += self.given_weights.sum(0)[:, None]
        self.marginals: list[tuple[IntArray, FloatArray]] = []
        self._is_plain = not general
        if self._is_plain:
            self._plain = [(t.groups, t.weights) for t in partitions]
            self._plain += zip((e.groups for e in equalities), self.given_weights, strict=True)
            detailed = [t.weights for t in partitions if t.answers.shape[1] == k]
            self.least = np.sum([np.zeros(C), *detailed], axis=0)
            self._refuse_flat(problem, self.least <= 0)
            return
        queries = {id(e.groups): e.query for e in problem.exact}
        named = [(term.query, term.weights) for term in general]
        named += [(t.query, t.weights) for t in partitions if t.query is not None]
        self._plain = [(t.groups, t.weights) for t in partitions if t.query is None]
        for e, weights in zip(equalities, self.given_weights, strict=True):
            query = queries.get(id(e.groups))
            if query is None:
                self._plain.append((e.groups, weights))
            else:
                named.append((query, weights))
        cells = general[0].cells
        queries_of_all = tuple(query for query, _ in named)
        weights = np.array([weights for _, weights in named])
        patterns, self._pattern = np.unique(weights.T, axis=0, return_inverse=True)
        self._pattern = self._pattern.reshape(-1)
        self._coordinates, grams = _components(queries_of_all)
        self._matrices = [np.tensordot(patterns, gram, 1) for gram in grams]
        values = [np.linalg.eigvalsh(matrices) for matrices in self._matrices]
        least = np.min([v[:, 0] for v in values], axis=0)
        most = np.max([v[:, -1] for v in values], axis=0)
        self._refuse_flat(problem, (least <= FLAT * most)[self._pattern])
        self.least = least[self._pattern]
        self._sizes = [len(codes) for codes in self._coordinates.components.atoms]
        levels = np.unravel_index(cells, self._sizes)
        sums_cost = _SUM_PRICE * k * 2 ** sum(size > 1 for size in self._sizes)
        tensor_cost = 2.0 * math.prod(self._sizes) * sum(self._sizes)
        if max(self._coordinates.sizes) == 1 and sums_cost < tensor_cost:
            self._prepare_sums(levels)
        else:
            self._prepare_tensor(levels)

    @staticmethod
    def _refuse_flat(problem: NodeProblem, flat: BoolArray) -> None:
        if flat.any():
            raise SolverError(
                f"node {problem.geocode} ({problem.n_cells} live cells), child "
                f"{int(np.flatnonzero(flat)[0])}",
                "the measured and exact queries together do not have full column rank",
                remedy="measure detailed, or a workload that contains it",
            )

    def apply(self, x: FloatArray) -> FloatArray:
        """Multiply float64[C, k] by the matrices; returns float64[C, k]."""
        by_sums = self._is_plain or self.marginals
        out = self._by_sums(x) if by_sums else self._by_tensor(x)
        for groups, weights in self._plain:
            sums = group_sums(x, groups, int(groups.max()) + 1)
            out += weights[:, None] * sums[:, groups]
        return out

    # --- sums over live cells --------------------------------------------------------------------

    def _prepare_sums(self, levels: Sequence[IntArray]) -> None:
        """Compute weights v_B of marginals M_B with sum_B v_B M_B'M_B = sum_A w_A P_A.

        P_A is I - J/n_i for attributes in A and J/n_i for the others. So v_B is the sum over the
        components A that contain B of w_A (-1)^|A - B|, over the product of n_i outside B.
        """
        within = self._coordinates.components.within
        position = {component: index for index, component in enumerate(within)}
        for kept in within:
            total = np.zeros(len(self._matrices[0]))
            for more in itertools.product(
                *[(True,) if is_kept else (False, True) for is_kept in kept]
            ):
                if more in position:
                    sign = (-1) ** (sum(more) - sum(kept))
                    total += sign * self._matrices[position[more]][:, 0, 0]
            pairs = zip(self._sizes, kept, strict=True)
            joined = math.prod(size for size, is_kept in pairs if not is_kept)
            code = np.zeros(self._shape[1], np.int64)
            for axis, is_kept in enumerate(kept):
                if is_kept:
                    code = code * self._sizes[axis] + levels[axis]
            groups = np.unique(code, return_inverse=True)[1].reshape(-1).astype(np.int64)
            self.marginals.append((groups, (total / joined)[self._pattern]))

    def _by_sums(self, x: FloatArray) -> FloatArray:
        out = np.zeros(self._shape)
        for groups, weights in self.marginals:
            m = int(groups.max()) + 1
            if m == self._shape[1]:
                out += weights[:, None] * x
            else:
                out += (weights[:, None] * group_sums(x, groups, m))[:, groups]
        return out

    # --- coordinates -----------------------------------------------------------------------------

    def _prepare_tensor(self, levels: Sequence[IntArray]) -> None:
        """Compute bases of the levels that occur, and the index of each live cell among them."""
        self._bases, self._splits = [], []
        self._spots = np.zeros(self._shape[1], np.int64)
        for axis, level in enumerate(levels):
            bases = self._coordinates.bases[axis]
            occurring, index = np.unique(level, return_inverse=True)
            self._bases.append(np.concatenate([bases[False], bases[True]], axis=1)[occurring])
            self._splits.append(bases[False].shape[1])
            self._spots = self._spots * len(occurring) + index.reshape(-1)

    def _by_tensor(self, x: FloatArray) -> FloatArray:
        C, k = self._shape
        at_once = max(1, _NUMBERS // math.prod(self._sizes))
        out = np.empty((C, k))
        for low in range(0, C, at_once):
            some = slice(low, low + at_once)
            out[some] = self._some_by_tensor(x[some], self._pattern[some])
        return out

    def _some_by_tensor(self, x: FloatArray, pattern: IntArray) -> FloatArray:
        shape = [len(basis) for basis in self._bases]
        flat = np.zeros((math.prod(shape), len(x)))
        flat[self._spots] = x.T
        tensor = flat.reshape(*shape, len(x))
        for axis, basis in enumerate(self._bases):
            tensor = along(axis, tensor, basis)
        for within, matrices in zip(
            self._coordinates.components.within, self._matrices, strict=True
        ):
            part = tuple(
                slice(split, None) if inside else slice(0, split)
                for split, inside in zip(self._splits, within, strict=True)
            )
            tensor[part] = _mixed(tensor[part], within, matrices, pattern)
        for axis, basis in enumerate(self._bases):
            tensor = along(axis, tensor, basis.T)
        return np.ascontiguousarray(tensor.reshape(-1, len(x))[self._spots].T)


def _mixed(
    block: FloatArray, within: Sequence[bool], matrices: FloatArray, pattern: IntArray
) -> FloatArray:
    """Multiply the coefficients of one component by the matrix of each child; children are last."""
    if matrices.shape[1] == 1:
        return np.asarray(block * matrices[pattern, 0, 0])
    axes = sorted(range(len(within)), key=lambda axis: within[axis])
    moved = block.transpose(*axes, len(within))
    rows = moved.reshape(matrices.shape[1], -1, len(pattern))
    if len(matrices) == 1:
        product = (matrices[0] @ rows.reshape(len(rows), -1)).reshape(rows.shape)
    else:
        product = np.einsum("cde,erc->drc", matrices[pattern], rows, optimize=True)
    return np.asarray(product.reshape(moved.shape).transpose(*np.argsort(axes), len(within)))


@lru_cache(maxsize=64)
def _components(queries: tuple[Query, ...]) -> tuple[Coordinates, Matrices]:
    """Return coordinates of queries and their squares; the same for all nodes of a geolevel."""
    coordinates = Coordinates.of_queries(queries)
    return coordinates, gram_matrices(coordinates, queries)
