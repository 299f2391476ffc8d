"""Projected steps: the continuous stage for large nodes with general queries, without matrices.

Every step guesses which cells are positive, as in `least_squares.solve`. It minimises on them by
projected conjugate gradients, without cells that turn negative, and moves towards the minimum while
the objective falls. If the objective does not fall, a step among the positive cells and one along
the projected gradient are taken instead, so that the method converges from everywhere. The feasible
sets are simplices: x >= 0 with sum_c x_c = p, or at the root with the finest given sums. Other
given sums are imposed by the method of multipliers; their squares are part of the matrix.

References:
  Hintermueller, Ito & Kunisch, SIAM J. Optim. 13 (2003), 865-888 (active sets as Newton steps).
  More & Toraldo, SIAM J. Optim. 1 (1991), 93-113 (gradient projection and conjugate gradients).
  Michelot, J. Optim. Theory Appl. 50 (1986), 195-200 (projection onto a simplex).
  Bertsekas, Constrained Optimization and Lagrange Multiplier Methods (1982), ch. 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SolverError
from das.queries.query import Query
from das.tree.coordinates import Coordinates, Matrices, along
from das.tree.model import gram_matrices
from solvers.least_squares.blocks import FLAT, Equality, given_sums, not_full_rank
from solvers.least_squares.certificate import Conditions, judge
from solvers.problem import (
    Certificate,
    Estimate,
    Fixed,
    KroneckerTerm,
    LeastSquaresTerm,
    NodeProblem,
    Status,
    group_sums,
)

# Defaults, not measured.
_STEPS = 200  # then the status is LIMIT
_DROPS = 8  # times that negative cells are dropped in a step
_ITERATIONS = 500  # of conjugate gradients in a step
_LOOSE, _TIGHT, _EXACT = 1e-2, 1e-4, 1e-12  # relative residuals of conjugate gradients
_FEW = 0.02  # share of positive cells; with fewer changes, conjugate gradients are tighter
_ROUNDING = 1e-15  # rounding error of a residual, over its parts
_NEAR = 100.0  # residual, over the tolerance, from which on the certificate is computed
_TINY = np.finfo(float).tiny

# Defaults, not measured.
_NUMBERS = 4_000_000  # numbers in coordinates at a time: 32 MB
# Cost per number of a table with all its sums, over adding a live cell to the sum of a marginal:
# with 1,227,744 cells, 32 marginals and 306,936 live cells both ways take 0.04 s.
_FOLD_PRICE = 3.0
_GIVEN = 1e3  # curvature of a given sum over the mean curvature of its cells


class Information:
    """Matrices G_c + sum_e gamma_ce E_e'E_e of all children, applied without storing them.

    Every measured query is a product of one matrix per attribute, so sum_q w_q Q_q'Q_q splits into
    small matrices on the orthogonal components of `das.tree.components`, whatever the number of
    cells. Live cells are some rows and columns of it. If no attribute has groups, these matrices
    are numbers, the sum is a signed combination of marginals, and sums over live cells apply it.

    The given sums E_e are constants of the problem, so their squares change no solution; they make
    the matrix definite in directions that no query determines.

    Attributes:
      least: float64[C], a positive lower bound of the smallest eigenvalue.
      diagonal: float64[C, k], diagonal of each matrix.
      given_weights: float64[given sums, C], gamma.
      marginals: Groups of the live cells and weights float64[C] of the marginals whose combination
        is the matrix; empty if it is applied in coordinates.
    """

    def __init__(self, problem: NodeProblem, equalities: Sequence[Equality]) -> None:
        """Add up the terms.

        Args:
          problem: The node problem; its terms are Kronecker queries or partitions.
          equalities: Partition sums that are given for every child.

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
                "has a term that is neither a partition nor a Kronecker query, as the projected "
                "solver requires",
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
            _refuse_flat(problem, self.least <= 0)
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
        _refuse_flat(problem, (least <= FLAT * most)[self._pattern])
        self.least = least[self._pattern]
        self._sizes = [len(codes) for codes in self._coordinates.components.atoms]
        levels = np.unravel_index(cells, self._sizes)
        if max(self._coordinates.sizes) > 1:
            self._prepare_tensor(levels)
            return
        n_marginals = 2 ** sum(size > 1 for size in self._sizes)
        if k * n_marginals < _FOLD_PRICE * math.prod(size + 1 for size in self._sizes):
            self._prepare_sums(levels)
        else:
            self._extended = [size + (size > 1) for size in self._sizes]
            self._cells = np.ravel_multi_index(levels, self._extended)
            self._weighted = [*self._marginal_weights()]

    def apply(self, x: FloatArray) -> FloatArray:
        """Multiply float64[C, k] by the matrices; returns float64[C, k]."""
        by_sums = self._is_plain or self.marginals
        out = self._by_sums(x) if by_sums else self._in_batches(x)
        for groups, weights in self._plain:
            sums = group_sums(x, groups, int(groups.max()) + 1)
            out += weights[:, None] * sums[:, groups]
        return out

    # --- sums over live cells --------------------------------------------------------------------

    def _prepare_sums(self, levels: Sequence[IntArray]) -> None:
        """Number the groups of live cells of every marginal."""
        for kept, weights in self._marginal_weights():
            code = np.zeros(self._shape[1], np.int64)
            for axis, is_kept in enumerate(kept):
                if is_kept:
                    code = code * self._sizes[axis] + levels[axis]
            groups = np.unique(code, return_inverse=True)[1].reshape(-1).astype(np.int64)
            self.marginals.append((groups, weights))

    def _marginal_weights(self) -> Iterator[tuple[tuple[bool, ...], FloatArray]]:
        """Yield marginals M_B and weights v_B with sum_B v_B M_B'M_B = sum_A w_A P_A.

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
            yield kept, (total / joined)[self._pattern]

    def _some_folded(self, x: FloatArray, low: int) -> FloatArray:
        """Append the sums over every attribute to the table, weigh the marginals, and add back."""
        flat = np.zeros((math.prod(self._extended), len(x)))
        flat[self._cells] = x.T
        tensor = flat.reshape(*self._extended, len(x))
        lines = [np.moveaxis(tensor, axis, 0) for axis, size in enumerate(self._sizes) if size > 1]
        for line in lines:
            line[:-1].sum(0, out=line[-1])
        for kept, weights in self._weighted:
            pairs = zip(self._sizes, kept, strict=True)
            part = tuple(
                slice(0, n) if n == 1 or is_kept else slice(n, None) for n, is_kept in pairs
            )
            tensor[part] *= weights[low : low + len(x)]
        for line in lines:
            line[:-1] += line[-1:]
        return np.ascontiguousarray(flat[self._cells].T)

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

    def _in_batches(self, x: FloatArray) -> FloatArray:
        at_once = max(1, _NUMBERS // math.prod(self._sizes))
        apply = self._some_by_tensor if max(self._coordinates.sizes) > 1 else self._some_folded
        out = np.empty(self._shape)
        for low in range(0, len(x), at_once):
            out[low : low + at_once] = apply(x[low : low + at_once], low)
        return out

    def _some_by_tensor(self, x: FloatArray, low: int) -> FloatArray:
        pattern = self._pattern[low : low + len(x)]
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


def _refuse_flat(problem: NodeProblem, flat: BoolArray) -> None:
    if flat.any():
        raise not_full_rank(problem, int(np.flatnonzero(flat)[0]))


@lru_cache(maxsize=64)
def _components(queries: tuple[Query, ...]) -> tuple[Coordinates, Matrices]:
    """Return coordinates of queries and their squares; the same for all nodes of a geolevel."""
    coordinates = Coordinates.of_queries(queries)
    return coordinates, gram_matrices(coordinates, queries)


class _Node:
    """Node problem in vectors over its cells.

    Attributes:
      apply: Computes G x, with the squares of the given sums.
    """

    def __init__(self, problem: NodeProblem, fixed: Fixed) -> None:
        C, k = problem.n_children, problem.n_cells
        self.problem, self.fixed = problem, fixed
        every = given_sums(problem, fixed)
        information = Information(problem, every)
        self.apply = information.apply
        self.unit, self.diagonal = information.least, information.diagonal
        self.linear = np.zeros((C, k))
        for term in problem.terms:
            if isinstance(term, LeastSquaresTerm):
                self.linear += term.weights[:, None] * term.answers[:, term.groups]
            else:
                self.linear += term.weights[:, None] * term.adjoint
        self.free = np.ones((C, k), np.bool_)
        for e, weights in zip(every, information.given_weights, strict=True):
            self.linear += weights[:, None] * e.targets[:, e.groups]
            self.free &= e.targets[:, e.groups] > 0
        # The simplex of every count, and the sums of the simplices.
        self._simplex, self.totals = None, np.zeros(0)
        self.given, self._weights = every, information.given_weights
        if problem.parent is not None:
            self._simplex = np.tile(np.arange(k), C)
            self.totals = problem.parent.astype(float)
        elif every:
            self._simplex, self.totals = every[0].groups, every[0].targets[0]
            self.given, self._weights = every[1:], self._weights[1:]
        self.iterations = 0

    def totals_of(self, x: FloatArray) -> FloatArray:
        """Return the sum of the counts of each simplex; an empty array without simplices."""
        if self._simplex is None:
            return np.zeros(0)
        return np.bincount(self._simplex, x.ravel(), len(self.totals)).astype(float, copy=False)

    def spread(self, multiplier: FloatArray) -> FloatArray:
        """Return the simplex multiplier of each cell, float64[C, k]; 0 without simplices."""
        if self._simplex is None:
            return np.zeros_like(self.linear)
        return np.asarray(multiplier[self._simplex].reshape(self.linear.shape))

    def coupling(self, g: FloatArray, support: BoolArray, metric: FloatArray) -> FloatArray:
        """Return the multiplier per simplex that minimises the gradient on a support."""
        share = np.where(support, 1 / metric, 0.0)
        return self.totals_of(share * g) / np.maximum(self.totals_of(share), _TINY)

    def project(self, x: FloatArray) -> FloatArray:
        """Return the nearest feasible counts, in the metric of the diagonal."""
        if self._simplex is None:
            return np.where(self.free, np.maximum(x, 0.0), 0.0)
        give = np.where(self.free, 1 / self.diagonal, 0.0)
        support = self.free
        while True:  # ends, since the support only shrinks
            share = np.where(support, give, 0.0)
            missing = self.totals - self.totals_of(np.where(support, x, 0.0))
            level = missing / np.maximum(self.totals_of(share), _TINY)
            moved = x + give * self.spread(level)
            positive = support & (moved > 0)
            if np.array_equal(positive, support):
                return np.where(support, moved, 0.0)
            support = positive

    def fitted(self, x: FloatArray, support: BoolArray) -> FloatArray:
        """Move counts on a support to the sums of their simplices."""
        x = np.where(support, x, 0.0)
        if self._simplex is None:
            return x
        share = np.where(support, 1 / self.diagonal, 0.0)
        missing = self.totals - self.totals_of(x)
        return x + share * self.spread(missing / np.maximum(self.totals_of(share), _TINY))

    def with_holders(self, support: BoolArray, reduced: FloatArray) -> BoolArray:
        """Add a cell to the support of every simplex that has none."""
        if self._simplex is None:
            return support
        empty = (self.totals_of(support.astype(float)) == 0) & (self.totals > 0)
        if empty.any():
            score = np.where(self.free, reduced, np.inf).ravel()
            least = np.full(len(self.totals), np.inf)
            np.minimum.at(least, self._simplex, score)
            best = (score == least[self._simplex]) & empty[self._simplex]
            support = support | (best.reshape(support.shape) & self.free)
        return support

    def gaps(self, x: FloatArray) -> list[FloatArray]:
        """Return target minus sum, float64[C, m], for each given sum that is not a simplex."""
        return [e.targets - group_sums(x, e.groups, e.targets.shape[1]) for e in self.given]

    def missing(self, x: FloatArray) -> float:
        """Return the largest gap, over the largest count."""
        worst = max([0.0, *(float(np.abs(gap).max(initial=0.0)) for gap in self.gaps(x))])
        return worst / max(1.0, float(x.max(initial=0.0)))

    def pushed(self, sums: tuple[FloatArray, ...]) -> FloatArray:
        """Return b plus the multipliers of the given sums that are not simplices."""
        out = self.linear
        for e, mu in zip(self.given, sums, strict=True):
            out = out + mu[:, e.groups]
        return out

    def raised(self, x: FloatArray, sums: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
        """Return the multipliers of the given sums, each increased by its weight times its gap."""
        every = zip(sums, self._weights, self.gaps(x), strict=True)
        return tuple(mu + w[:, None] * gap for mu, w, gap in every)

    def on_face(
        self, support: BoolArray, push: FloatArray, image: FloatArray, tolerance: float
    ) -> FloatArray:
        """Minimise dx'G dx / 2 - (push - image)'dx over dx on a support that keep all simplices.

        Projected conjugate gradients, preconditioned by the diagonal. They end at the tolerance, or
        when the residual is at the level of rounding errors.
        """
        share = np.where(support, 1 / self.diagonal, 0.0)
        room = np.maximum(self.totals_of(share), _TINY)

        def projected(r: FloatArray) -> FloatArray:
            if self._simplex is not None:
                r = r - self.spread(self.totals_of(share * r) / room)
            return np.where(support, r, 0.0)

        x = np.zeros_like(push)
        r = projected(push - image)
        z = share * r
        p, rho = z, float((r * z).sum())
        rounding = _ROUNDING**2 * float((share * (push**2 + image**2)).sum())
        goal = max(rho * tolerance**2, rounding)
        for _ in range(_ITERATIONS):
            if rho <= goal:
                break
            image = self.apply(p)
            curvature = float((p * image).sum())
            if curvature <= 0:
                break
            self.iterations += 1
            step = rho / curvature
            x += step * p
            r = r - projected(step * image)
            z = share * r
            after = float((r * z).sum())
            p = z + (after / rho) * p
            rho = after
        return x

    def reduced(self, g: FloatArray, support: BoolArray) -> FloatArray:
        """Return the gradient `g` minus the multipliers of the simplices, float64[C, k]."""
        return g - self.spread(self.coupling(g, support, self.diagonal))

    def minimum(
        self, x: FloatArray, support: BoolArray, push: FloatArray, g: FloatArray, forcing: float
    ) -> tuple[FloatArray, int]:
        """Return the minimum on a support without cells that turn negative, and their number.

        Args:
          x: float64[C, k], counts.
          support: bool[C, k], cells that may be positive; all others are 0.
          push: float64[C, k], b plus multipliers.
          g: float64[C, k], gradient minus the multipliers of the simplices.
          forcing: Relative residual of conjugate gradients.
        """
        dropped = 0
        for _ in range(_DROPS):
            y = self.fitted(x, support)
            for _ in range(2 if forcing <= _EXACT else 1):  # the second corrects rounding errors
                y = y + self.on_face(support, push, self.apply(y), forcing)
            negative = support & (y < 0)
            if not negative.any():
                return y, dropped
            dropped += int(negative.sum())
            support = self.with_holders(support & ~negative, g)
            x = y
        return self.project(y), dropped

    def towards(
        self, goal: FloatArray, x: FloatArray, image: FloatArray, push: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Step to feasible counts while the objective falls; returns counts and G times counts."""
        step = goal - x
        slope = float(((image - push) * step).sum())
        if not slope < 0:
            return x, image
        change = self.apply(step)
        curvature = float((step * change).sum())
        t = min(1.0, -slope / curvature) if curvature > 0 else 1.0
        return (goal if t == 1 else x + t * step), image + t * change


def solve_projected(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate:
    """Solve the continuous stage of a large node whose terms are queries over the schema.

    Args:
      problem: The node problem, without linear rows; terms are Kronecker queries or partitions.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further given partition sums, as in `least_squares.solve_quadratic`.

    Returns:
      The estimate. Its status is LIMIT if the tolerance was not reached, also if the node is
      infeasible; callers must not use it as a solution.

    Raises:
      SolverError: Queries and given sums do not have full column rank.
      SchemaError: The queries group the levels in too many ways.
    """
    node = _Node(problem, fixed)
    sums = tuple(np.zeros_like(e.targets) for e in node.given)
    x = node.project(node.linear / node.diagonal)
    image = node.apply(x)
    best, certificate = x, None
    forcing, steps = _LOOSE, 0
    while steps < _STEPS:
        steps += 1
        push = node.pushed(sums)
        reduced = node.reduced(image - push, x > 0)
        support = (x - reduced / node.diagonal > 0) & node.free
        support = node.with_holders(support, reduced)
        changed = int((support != (x > 0)).sum())
        goal, dropped = node.minimum(x, support, push, reduced, forcing)
        changed += dropped
        before = x
        x, image = node.towards(goal, x, image, push)
        if x is before:  # no descent; among the positive cells there is a direction
            dx = node.on_face(x > 0, push, image, forcing)
            falls = dx < 0
            if dx.any():  # step to the minimum there, until the first cell would turn negative
                t = min(1.0, float((x[falls] / -dx[falls]).min(initial=1.0)))
                x, image = np.maximum(x + t * dx, 0.0), image + t * node.apply(dx)
            down = node.project(x - node.reduced(image - push, x > 0) / node.diagonal)
            x, image = node.towards(down, x, image, push)
        scaled = np.where(node.free, node.reduced(image - push, x > 0) / node.unit[:, None], 0.0)
        size = max(1.0, float(x.max(initial=0.0)))
        off = float(np.abs(np.minimum(x, scaled)).max(initial=0.0)) / size
        missing = node.missing(x)
        if max(off, missing) <= _NEAR * tolerance:
            after = certify(node, x, sums)
            if certificate is None or after.residual < certificate.residual:
                best, certificate = x, after
            if after.residual <= tolerance:
                break
        if off <= max(0.1 * missing, 0.1 * tolerance) and node.given:
            sums = node.raised(x, sums)
            image = node.apply(x)
        if not changed:
            forcing = max(_EXACT, forcing * 1e-3)
        else:
            forcing = _LOOSE if changed > _FEW * support.sum() else _TIGHT
    if certificate is None:
        best, certificate = x, certify(node, x, sums)
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(np.maximum(best, 0), certificate, status, node.iterations, steps)


def certify(node: _Node, counts: FloatArray, sums: tuple[FloatArray, ...]) -> Certificate:
    """Compute the certificate of counts and multipliers from the terms of the problem itself.

    The gradient is summed up query by query, without the arrays of the solver.

    Args:
      node: The node problem.
      counts: float64[C, k], counts of the children.
      sums: Multipliers of the other given sums, float64[C, m] each.
    """
    problem, x = node.problem, np.maximum(counts, 0)
    g, linear = np.zeros_like(x), 0.0
    for term in problem.terms:
        w = term.weights[:, None]
        if isinstance(term, LeastSquaresTerm):
            answers = group_sums(x, term.groups, term.answers.shape[1])
            g += w * answers[:, term.groups]
            adjoint = term.answers[:, term.groups]
        else:
            image = term.apply(x) if isinstance(term, KroneckerTerm) else x @ term.gram
            g += w * image
            adjoint = term.adjoint
        g -= w * adjoint
        linear += float((w * adjoint * x).sum())
    objective = 0.5 * (float((g * x).sum()) - linear)
    equalities = []
    for e, mu in zip(node.given, node.raised(counts, sums), strict=True):
        g -= mu[:, e.groups]
        equalities.append((mu, group_sums(x, e.groups, e.targets.shape[1]) - e.targets))
    coupling = node.coupling(g, x > 0, node.diagonal)
    g -= node.spread(coupling)
    equalities.append((coupling, node.totals_of(x) - node.totals))
    # Sums implied by finer ones have no multiplier, but are checked too.
    given = [(e.groups, e.targets.astype(float)) for e in problem.exact]
    for groups, targets in (*given, *node.fixed):
        off = group_sums(x, groups, targets.shape[1]) - targets
        equalities.append((np.zeros_like(targets), off))
    g = np.where(node.free, g, 0.0)
    return judge(Conditions(counts, g, node.unit, objective, equalities))
