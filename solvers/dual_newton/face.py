"""The Newton step of the lifted problem: the linear system on the cells that are positive.

On a set of positive cells the lifted problem is linear. Eliminated exactly, child by child: a
chain of nested layers (a laminar tree, one pass up and one down) and then the layers of few groups
together with the rows (one small dense matrix per child). What is left, the multipliers of
sum_c x_c = p and of layers that are neither nested nor small, is found by conjugate gradients.
The coupling is preconditioned as in domain decomposition: S = sum_c R_c' N_c R_c, N_c the inverse
of G on the positive cells of child c, by sum_c R_c' W_c G_c W_c R_c, W_c the child's share of the
variance of each cell. That is exact where all children share one support, and where none overlap.

References:
  Farhat & Roux, Int. J. Numer. Meth. Engng 32 (1991), 1205-1227 (the dual system and its
  preconditioner in domain decomposition).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from solvers.dual_newton.blocks import Factors, factorise, substitute
from solvers.dual_newton.layers import CELLS, Layer, Lifted
from solvers.problem import coarsening

if TYPE_CHECKING:
    import scipy.sparse as sp

# Layers and rows of at most this many groups in all are solved densely, child by child.
_DENSE_GROUPS = 400
_SINGULAR = 1e-9  # smallest eigenvalue taken for nonzero in the preconditioned system
_REPEATED = 1e-10  # relative shift of the coupling system
_SHIFT = 1e-13  # keeps the small dense matrices invertible where exact rows repeat one another


@dataclass(frozen=True, eq=False)
class Roles:
    """Which layers are solved how.

    Attributes:
      chain: Nested layers, fine before coarse, each on the one before.
      lower: How many of them are finer than or equal to the base.
      dense: Small layers.
      maps: Per dense layer, its group of each base group.
      rows: float64[r, base groups], coefficients of the rows.
      iterated: The other layers.
    """

    chain: tuple[int, ...]
    lower: int
    dense: tuple[int, ...]
    maps: tuple[IntArray, ...]
    rows: FloatArray
    iterated: tuple[int, ...]


def assign_roles(q: Lifted) -> Roles:
    """Choose the roles from the sizes and the nesting of the layers."""
    dense: list[int] = []
    left = _DENSE_GROUPS - len(q.rows)
    for number in reversed(range(len(q.layers))):
        if q.layers[number].size > left:
            break
        dense.insert(0, number)
        left -= q.layers[number].size
    large = [number for number in range(len(q.layers)) if number not in dense]
    chain: list[int] = []
    for number in large:
        if q.layers[number].on == (chain[-1] if chain else CELLS):
            chain.append(number)
    cells = np.arange(q.base.shape[1])
    for lower in range(len(chain), -1, -1):
        groups = q.layers[chain[lower - 1]].groups if lower else cells
        maps = [coarsening(groups, q.layers[number].groups) for number in dense]
        rows = np.zeros((len(q.rows), int(groups.max()) + 1))
        rows[:, groups] = q.rows
        if all(found is not None for found in maps) and np.array_equal(rows[:, groups], q.rows):
            break
    iterated = tuple(number for number in large if number not in chain)
    found = tuple(map_ for map_ in maps if map_ is not None)
    return Roles(tuple(chain), lower, tuple(dense), found, rows, iterated)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The groups of a layer that hold positive cells.

    Attributes:
      index: int64, node of each node of the layer below (or of each positive cell).
      child: int64[n].
      group: int64[n].
    """

    index: IntArray
    child: IntArray
    group: IntArray

    def sum(self, values: FloatArray) -> FloatArray:
        """Sums of values of the layer below."""
        return np.bincount(self.index, values, len(self.child)).astype(float, copy=False)


def _nodes(child: IntArray, group: IntArray, size: int, n_children: int) -> _Nodes:
    key = child * size + group
    held = np.zeros(n_children * size, bool)
    held[key] = True
    number = np.cumsum(held) - 1
    present = np.flatnonzero(held)
    return _Nodes(number[key], present // size, present % size)


def _over(numerator: FloatArray | float, denominator: FloatArray) -> FloatArray:
    """Quotient, 0 where the denominator is 0 or infinite."""
    good = (denominator > 0) & np.isfinite(denominator)
    return np.where(good, numerator / np.where(good, denominator, 1.0), 0.0)


def _factors(K: sp.coo_array, root: FloatArray, variance: FloatArray) -> Factors:
    """Factors of D (K_c + V_c) D per child, on the groups where D is positive.

    Args:
      K: Block diagonal, [C r, C r].
      root: float64[C, r], the diagonal of D.
      variance: float64[C, r], the diagonal of V.
    """
    r = root.shape[1]
    is_held = root > 0
    sizes = is_held.sum(1)
    starts = np.append(0, np.cumsum(sizes**2))
    place = (np.cumsum(is_held, axis=1) - 1).ravel()
    flat = np.zeros(starts[-1])
    scale = root.ravel()
    kept = is_held.ravel()[K.row] & is_held.ravel()[K.col]
    rows, columns, values = K.row[kept], K.col[kept], K.data[kept]
    child = rows // r if r else rows
    at = starts[child] + place[rows] * sizes[child] + place[columns]
    flat[at] = values * scale[rows] * scale[columns]
    own, group = np.nonzero(is_held)
    ends = starts[own] + place[own * r + group] * (sizes[own] + 1)
    flat[ends] += variance[own, group] * root[own, group] ** 2 + _SHIFT
    return factorise(flat, sizes)


class _Tree:
    """Elimination of nested layers over a diagonal; see `respond`."""

    def __init__(self, layers: list[tuple[Layer, _Nodes]], diagonal: FloatArray) -> None:
        self.nodes = [nodes for _, nodes in layers]
        self.tau, self.alpha, self.phi = [], [], []
        for layer, nodes in layers:
            variance = layer.variance[nodes.child]
            tau = nodes.sum(diagonal)
            self.tau.append(tau)
            self.alpha.append(_over(1.0, variance + tau))
            self.phi.append(1 - tau * self.alpha[-1])
            # phi = variance / (variance + tau), without the cancellation where it is small
            finite = np.isfinite(variance)
            self.phi[-1][finite] = _over(variance, variance + tau)[finite]
            diagonal = tau * self.phi[-1]
        self.top = diagonal

    def diagonal(self, d: FloatArray) -> FloatArray:
        """Diagonal of the inverse."""
        above = np.zeros(len(self.top))
        for level in reversed(range(len(self.nodes))):
            above = (self.alpha[level] + self.phi[level] ** 2 * above)[self.nodes[level].index]
        return d - d**2 * above if self.nodes else d

    def up(self, sums: FloatArray, wanted: list[FloatArray]) -> tuple[FloatArray, list[FloatArray]]:
        """What is missing per node (answers wanted less sums), and the sums left at the top."""
        missing = []
        for level, nodes in enumerate(self.nodes):
            sums = nodes.sum(sums)
            missing.append(wanted[level] - sums)
            sums = sums + (1 - self.phi[level]) * missing[-1]
        return sums, missing

    def down(
        self, missing: list[FloatArray], above: FloatArray
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Multipliers per level, and their total as seen by what the tree stands on."""
        found: list[FloatArray] = []
        for level in reversed(range(len(self.nodes))):
            u = self.alpha[level] * (missing[level] - self.tau[level] * above)
            found.insert(0, u)
            above = (above + u)[self.nodes[level].index]
        return above, found


@dataclass(frozen=True, eq=False)
class Step:
    """A Newton step.

    Attributes:
      layers: float64[C, m] per layer, change of its multipliers.
      rows: float64[C, r].
      iterations: Of conjugate gradients.
    """

    layers: list[FloatArray]
    rows: FloatArray
    iterations: int


class Face:
    """The linear system on one set of positive cells."""

    def __init__(self, q: Lifted, roles: Roles, support: BoolArray, slacks: FloatArray) -> None:
        """Prepare the eliminations.

        Args:
          q: The lifted problem.
          roles: From `assign_roles`.
          support: bool[C, k], positive cells.
          slacks: float64[C, r], variance of the slack of each row, 0 where it binds.
        """
        self._q, self._roles = q, roles
        C, k = q.base.shape
        if q.parent is not None:
            # A cell that one child holds alone stays at p: it takes no part in the step.
            support = support & (support.sum(0) > 1)
        flat = np.flatnonzero(support)
        self.child, self.cell = np.divmod(flat, k)
        self._d = (1 / q.unit)[self.child]
        self._nodes: list[_Nodes] = []
        for layer in q.layers:
            below = self if layer.on == CELLS else self._nodes[layer.on]
            at = self.cell if layer.on == CELLS else self._nodes[layer.on].group
            self._nodes.append(_nodes(below.child, layer.index[at], layer.size, C))
        chain = [(q.layers[number], self._nodes[number]) for number in roles.chain]
        self._lower = _Tree(chain[: roles.lower], self._d)
        self._upper = _Tree(chain[roles.lower :], self._lower.top)
        base = self._nodes[roles.chain[roles.lower - 1]] if roles.lower else self
        self._base_child = base.child
        self._base_group = base.group if isinstance(base, _Nodes) else self.cell
        self._widths = [q.layers[number].size for number in roles.dense] + [len(q.rows)]
        self._prepare_dense(slacks)
        if q.parent is not None:
            spread = self._lower.diagonal(self._d)
            total = np.bincount(self.cell, spread, k)
            self._share = spread / total[self.cell]
        self._precision = [
            _over(1.0, layer.variance)[nodes.child]
            for layer, nodes in zip(q.layers, self._nodes, strict=True)
        ]
        self._iterated_variance, self._iterated_inverse = [], []
        for number in roles.iterated:
            variance = q.layers[number].variance[self._nodes[number].child]
            held = np.bincount(self._flat_index(number), self._d, len(variance))
            self._iterated_variance.append(np.where(np.isfinite(variance), variance, 0.0))
            self._iterated_inverse.append(_over(1.0, variance + held))

    def _flat_index(self, number: int) -> IntArray:
        """Node in a layer of each positive cell."""
        index = self._nodes[number].index
        on = self._q.layers[number].on
        return index if on == CELLS else index[self._flat_index(on)]

    def _prepare_dense(self, slacks: FloatArray) -> None:
        """Factorise, per child, variance + Z' N Z for the dense layers and rows Z."""
        import scipy.sparse as sp

        q, roles = self._q, self._roles
        C, n, r = len(q.unit), len(self._base_child), sum(self._widths)
        offset = self._base_child * r
        at, columns, values = [], [], []
        for map_, width in zip(roles.maps, self._widths, strict=False):
            at.append(np.arange(n))
            columns.append(offset + map_[self._base_group])
            values.append(np.ones(n))
            offset = offset + width
        for coefficients in roles.rows:
            held = coefficients[self._base_group]
            some = np.flatnonzero(held)
            at.append(some)
            columns.append(offset[some])
            values.append(held[some])
            offset = offset + 1
        none = np.zeros(0, np.int64)
        entries = (np.concatenate([none, *at]), np.concatenate([none, *columns]))
        data = np.concatenate([np.zeros(0), *values])
        self._Z = sp.csr_array((data, entries), (n, C * r))
        self._Zt = self._Z.T.tocsr()
        self._C, self._r = C, r
        rest = sp.diags_array(self._lower.top) @ self._Z
        K = (self._Zt @ rest).tocoo()
        for nodes, alpha, phi in zip(
            self._upper.nodes, self._upper.alpha, self._upper.phi, strict=True
        ):
            where = (nodes.index, np.arange(len(nodes.index)))
            collect = sp.csr_array((np.ones(len(nodes.index)), where), (len(alpha), rest.shape[0]))
            sums = collect @ rest
            K = (K - sums.T @ sp.diags_array(alpha) @ sums).tocoo()
            rest = sp.diags_array(phi) @ sums
        variances = [
            np.repeat(q.layers[number].variance[:, None], q.layers[number].size, 1)
            for number in roles.dense
        ]
        variance = np.concatenate([*variances, slacks], axis=1)
        is_diagonal = K.row == K.col
        flat = np.zeros(C * r)
        flat[K.row[is_diagonal]] = K.data[is_diagonal]
        diagonal = flat.reshape(C, r)
        # A multiplier no positive cell answers to: by its variance, else as if it had such a cell.
        alone = np.where(variance > 0, _over(1.0, variance), q.unit[:, None])
        self._dense_alone = np.where(diagonal > 0, 0.0, alone)
        root = np.where(diagonal > 0, np.sqrt(_over(1.0, diagonal + variance)), 0.0)
        self._held = np.flatnonzero(root)
        self._root = root.ravel()[self._held]
        self._factors = _factors(K, root, np.where(np.isfinite(variance), variance, 0.0))

    def _solve_dense(self, lack: FloatArray) -> FloatArray:
        """Multipliers of dense layers and rows that make up for what each child lacks, [C, r]."""
        z = self._dense_alone * lack
        right = self._root * lack.ravel()[self._held]
        z.ravel()[self._held] += self._root * substitute(self._factors, right)
        return z

    def _respond(
        self, force: FloatArray, wanted: list[FloatArray], wanted_dense: FloatArray
    ) -> tuple[FloatArray, list[FloatArray], FloatArray]:
        """Change of the positive cells under a force on them, all eliminated layers answering.

        Returns:
          The change; the multipliers of the chain per node; those of dense layers and rows [C, r].
        """
        lower, upper = self._lower, self._upper
        depth = len(lower.nodes)
        sums, missing_low = lower.up(self._d * force, wanted[:depth])
        left, missing_up = upper.up(sums, wanted[depth:])
        total, _ = upper.down(missing_up, np.zeros(len(left)))
        moved = sums + self._lower.top * total
        lack = wanted_dense - (self._Zt @ moved).reshape(self._C, self._r)
        z = self._solve_dense(lack)
        push = self._Z @ z.ravel()
        if upper.nodes:
            still = [np.zeros(len(nodes.child)) for nodes in upper.nodes]
            more, missing = upper.up(self._lower.top * push, still)
            both = [one + two for one, two in zip(missing_up, missing, strict=True)]
            total, found_up = upper.down(both, np.zeros(len(more)))
            push = push + total
        else:
            found_up = []
        below, found_low = lower.down(missing_low, push)
        return self._d * (force + below), found_low + found_up, z

    def solve(
        self, residuals: list[FloatArray], rows: FloatArray, tolerance: float, limit: int
    ) -> Step:
        """Newton step for dual residuals of the layers [C, m] and rows [C, r]."""
        q, roles = self._q, self._roles
        wanted = [residuals[n][self._nodes[n].child, self._nodes[n].group] for n in roles.chain]
        wanted_dense = np.concatenate([*(residuals[n] for n in roles.dense), rows], axis=1)
        none = [np.zeros(len(part)) for part in wanted]
        none_dense = np.zeros_like(wanted_dense)
        k = q.base.shape[1] if q.parent is not None else 0
        sizes = [len(v) for v in self._iterated_variance]
        cuts = np.cumsum([k, *sizes])[:-1]
        flat = [self._flat_index(n) for n in roles.iterated]

        def force(v: FloatArray) -> FloatArray:
            first, *others = np.split(v, cuts)
            out = first[self.cell] if k else np.zeros(len(self.cell))
            for index, u in zip(flat, others, strict=True):
                out = out + u[index]
            return np.asarray(out)

        def gather(dx: FloatArray) -> FloatArray:
            parts = [np.bincount(self.cell, dx, k)] if k else [np.zeros(0)]
            for index, size in zip(flat, sizes, strict=True):
                parts.append(np.bincount(index, dx, size).astype(float, copy=False))
            return np.concatenate(parts)

        # Invariants of all children repeat those of the parent: S is singular but for this shift.
        shift = _REPEATED * np.bincount(self.cell, self._d, k) if k else np.zeros(0)
        own = np.concatenate([shift, *self._iterated_variance])

        def apply(v: FloatArray) -> FloatArray:
            return gather(self._respond(force(v), none, none_dense)[0]) + own * v

        def precondition(v: FloatArray) -> FloatArray:
            first, *others = np.split(v, cuts)
            parts = [self._coupling_inverse(first)] if k else [first]
            for inverse, u in zip(self._iterated_inverse, others, strict=True):
                parts.append(inverse * u)
            return np.concatenate(parts)

        v, iterations = np.zeros(k + sum(sizes)), 0
        if len(v):
            start = self._respond(np.zeros(len(self.cell)), wanted, wanted_dense)[0]
            asked = [
                residuals[n][self._nodes[n].child, self._nodes[n].group] for n in roles.iterated
            ]
            right = np.concatenate([np.zeros(k), *asked]) - gather(start)
            v, iterations = conjugate_gradients(apply, precondition, right, tolerance, limit)
        _, found, z = self._respond(force(v), wanted, wanted_dense)
        found += np.split(v, cuts)[1:]
        # Groups without a positive cell: as if they had one, so that their multipliers move.
        alone = [np.where(layer.variance > 0, layer.variance, 1 / q.unit) for layer in q.layers]
        out = [r / variance[:, None] for r, variance in zip(residuals, alone, strict=True)]
        for number, u in zip((*roles.chain, *roles.iterated), found, strict=True):
            out[number][self._nodes[number].child, self._nodes[number].group] = u
        pieces = np.split(z, np.cumsum(self._widths)[:-1], axis=1)
        for number, piece in zip(roles.dense, pieces, strict=False):
            out[number] = piece
        return Step(out, pieces[-1], iterations)

    def _coupling_inverse(self, v: FloatArray) -> FloatArray:
        """The preconditioner sum_c R_c' W_c G_c W_c R_c."""
        q = self._q
        x = self._share * v[self.cell]
        sums: list[FloatArray] = []
        for layer, nodes in zip(q.layers, self._nodes, strict=True):
            sums.append(nodes.sum(x if layer.on == CELLS else sums[layer.on]))
        out = x / self._d
        pending: list[FloatArray] = [
            np.zeros(len(s)) if n in self._roles.iterated else s * w
            for n, (s, w) in enumerate(zip(sums, self._precision, strict=True))
        ]
        for number in reversed(range(len(q.layers))):
            layer, nodes = q.layers[number], self._nodes[number]
            if layer.on == CELLS:
                out += pending[number][nodes.index]
            else:
                pending[layer.on] += pending[number][nodes.index]
        return np.bincount(self.cell, self._share * out, len(v)).astype(float, copy=False)


def conjugate_gradients(
    apply: Callable[[FloatArray], FloatArray],
    precondition: Callable[[FloatArray], FloatArray],
    right: FloatArray,
    tolerance: float,
    limit: int,
) -> tuple[FloatArray, int]:
    """Solve apply(v) = right from v = 0 until the residual fell by `tolerance`; bounded work.

    The system may be singular, as exact invariants of all children repeat those of the parent.
    """
    v = np.zeros_like(right)
    r = right.copy()
    z = precondition(r)
    p = z
    rho = float(r @ z)
    goal = rho * tolerance**2
    size = rho  # p' M p, M the inverse of the preconditioner
    for iteration in range(limit):
        if rho <= goal or rho <= 0:
            return v, iteration
        image = apply(p)
        curvature = float(p @ image)
        if curvature <= _SINGULAR * size:
            return v, iteration
        step = rho / curvature
        v += step * p
        r -= step * image
        z = precondition(r)
        after = float(r @ z)
        p = z + (after / rho) * p
        size = after + (after / rho) ** 2 * size
        rho = after
    return v, limit
