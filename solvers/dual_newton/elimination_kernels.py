"""Linear system of one dual Newton step, child by child on their positive cells, compiled.

Layers that refine all later layers (the chain) are eliminated node by node. The others (crossing)
and the linear rows are eliminated on the smaller side. One side is the groups of the chain's base
with positive cells, by inverses of the queries' variances. The other is the groups of the crossing
layers, of which the first are diagonal.

Sums are evaluated in the order of the source, as in `kernels`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray, IntArray
from solvers.dual_newton.arrays import Node, Roles, State
from solvers.least_squares.machine_code import compiled_into_kernels

Int32Array = npt.NDArray[np.int32]

# Defaults, not measured.
_SHIFT = 1e-13  # relative shift of the crossing groups' matrix, since given sums may repeat
_FULL = 8  # rows with more than 1 / _FULL nonzero entries are processed as dense
# Variance of the slacks of active rows, over the first one: rows that are active in all children
# can contradict the parent.
_ROW_DAMPING = 0.1


class Nodes(NamedTuple):
    """Positive cells, nodes of the chain above them, and groups that contain them.

    Node i of level a of the chain is in node up[a, i] of level a + 1. tau is the variance below a
    node; with v the variance of its layer, alpha = 1 / (v + tau) and phi = v / (v + tau). `top` is
    the diagonal of the inverse at the base. Base node i is in group groups[q, i] of the rows, then
    of the crossing layers, then of the layers of the chain above the base; -1 if q was not
    measured. A group has the multiplier `number` and the variance `group_variance`. Child c has
    the groups first[c]:first[c + 1]; those of rows and crossing layers end at middle[c].

    Attributes:
      ptr: int64[P + 1, C + 1], start of the nodes of each child.
      place: int32[P + 1, n], cell, or group in the layer of the chain.
      up: int32[P, n], the node above, in the next level.
      tau: float64[P, n], variance below each node.
      alpha: float64[P, n], 1 / (v + tau).
      phi: float64[P, n], v / (v + tau).
      top: float64[base nodes], diagonal of the inverse.
      groups: int32[r + Q + layers above the base, base nodes], groups that contain each base node.
      factor: float64[r, base nodes], coefficients of the rows.
      number: int64[groups], index of the multiplier of each group.
      group_variance: float64[groups], variance of each group.
      first: int64[C + 1], start of the groups of each child.
      middle: int64[C], end of the groups of rows and crossing layers of each child.
      lower: Number of levels up to the base.
    """

    ptr: IntArray
    place: Int32Array
    up: Int32Array
    tau: FloatArray
    alpha: FloatArray
    phi: FloatArray
    top: FloatArray
    groups: Int32Array
    factor: FloatArray
    number: IntArray
    group_variance: FloatArray
    first: IntArray
    middle: IntArray
    lower: int


class Elimination(NamedTuple):
    """Factors per child, on the smaller side.

    Attributes:
      side: int64[C], 1 for the base nodes, 0 for the groups.
      begin: int64[C + 1], start of the factor of each child.
      factors: float64, the triangular factors of all children, end to end.
    """

    side: IntArray
    begin: IntArray
    factors: FloatArray


class Workspace(NamedTuple):
    """Workspace, float64: arrays per node of the chain, then per group.

    Attributes:
      sums: Sums on the way up the chain.
      missing: Residuals of nodes, or pushes on them.
      push: Push on the level below.
      base: Sums at the base.
      turn: Push of the groups on the base.
      dx: Change of the positive cells.
      wanted: [P, n], residuals of the chain.
      found: [P, n], multipliers of the chain.
      lack: Residuals of the groups, then their multipliers.
      spent: Per group.
    """

    sums: FloatArray
    missing: FloatArray
    push: FloatArray
    base: FloatArray
    turn: FloatArray
    dx: FloatArray
    wanted: FloatArray
    found: FloatArray
    lack: FloatArray
    spent: FloatArray


class ActiveFace(NamedTuple):
    """Linear system on the positive cells: its nodes, their factors, and a workspace."""

    nodes: Nodes
    elimination: Elimination
    room: Workspace


@compiled_into_kernels
def _factorise(A: FloatArray, n: int) -> None:
    """Overwrite the upper half of a symmetric positive definite A with U, A = U'U."""
    for i in range(n):
        row = A[i]
        j = 0
        while j + 4 <= i:
            a, b, c, d = A[j, i], A[j + 1, i], A[j + 2, i], A[j + 3, i]
            one, two, three, four = A[j], A[j + 1], A[j + 2], A[j + 3]
            for m in range(i, n):
                row[m] = (((row[m] - a * one[m]) - b * two[m]) - c * three[m]) - d * four[m]
            j += 4
        while j < i:
            a, one = A[j, i], A[j]
            for m in range(i, n):
                row[m] -= a * one[m]
            j += 1
        root = np.sqrt(max(row[i], 1e-300))
        row[i] = root
        for m in range(i + 1, n):
            row[m] /= root


@compiled_into_kernels
def _substitute(A: FloatArray, n: int, v: FloatArray) -> None:
    """Overwrite v with the solution of U'U z = v; see `_factorise`.

    Each row is read while it is in the cache. Eight partial sums fill vector registers; the order
    in which they are added is fixed.
    """
    for i in range(n):
        row = A[i]
        t = v[i] / row[i]
        v[i] = t
        for m in range(i + 1, n):
            v[m] -= row[m] * t
    for i in range(n - 1, -1, -1):
        row = A[i]
        a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        m = i + 1
        while m + 8 <= n:
            a += row[m] * v[m]
            b += row[m + 1] * v[m + 1]
            c += row[m + 2] * v[m + 2]
            d += row[m + 3] * v[m + 3]
            e += row[m + 4] * v[m + 4]
            f += row[m + 5] * v[m + 5]
            g += row[m + 6] * v[m + 6]
            h += row[m + 7] * v[m + 7]
            m += 8
        t = ((a + e) + (b + f)) + ((c + g) + (d + h))
        while m < n:
            t += row[m] * v[m]
            m += 1
        v[i] = (v[i] - t) / row[i]


@compiled_into_kernels
def find_nodes(state: State, damped: FloatArray, node: Node, roles: Roles) -> Nodes:
    """Find the positive cells, the nodes of the chain above them, and groups that contain them.

    A cell that is positive in one child only stays at the parent's count and is left out of a step.
    """
    x, ends, chain, lower = state.x, node.ends, roles.chain, roles.lower
    C, k = x.shape
    P, r, Q = len(chain), len(node.rows), len(node.rows) + len(roles.crossing)
    held = np.zeros(k, np.int64)
    for c in range(C):
        for j in range(k):
            held[j] += x[c, j] > 0.0
    least = 2 if node.has_parent else 1
    total = 0
    for j in range(k):
        total += held[j] if held[j] >= least else 0
    ptr = np.zeros((P + 1, C + 1), np.int64)
    # int32 saves memory traffic: the data of a large node do not fit the cache.
    place = np.empty((P + 1, total), np.int32)  # cell, or group of a layer of the chain
    up = np.empty((P, total), np.int32)
    tau, alpha, phi = np.zeros((P, total)), np.zeros((P, total)), np.zeros((P, total))
    left = np.empty(total)
    n = 0
    for c in range(C):
        for j in range(k):
            if x[c, j] > 0.0 and held[j] >= least:
                place[0, n] = j
                left[n] = node.inverse[c]
                n += 1
        ptr[0, c + 1] = n
    top = left.copy()
    most = 1
    for q in range(len(ends) - 1):
        most = max(most, ends[q + 1] - ends[q])
    seen = np.full(most + 1, -1, np.int64)
    above = np.empty(total)
    for a in range(P):
        n = 0
        for c in range(C):
            first = n
            for i in range(ptr[a, c], ptr[a, c + 1]):
                g = roles.chain_index[a, place[a, i]]
                one = seen[g]
                if one < first:
                    one = n
                    seen[g] = n
                    place[a + 1, n] = g
                    n += 1
                up[a, i] = one
                tau[a, one] += left[i]
            ptr[a + 1, c + 1] = n
            v = damped[chain[a], c]
            for i in range(first, n):
                t = tau[a, i]
                phi[a, i] = 1.0
                if v < np.inf and v + t > 0.0:
                    alpha[a, i] = 1.0 / (v + t)
                    phi[a, i] = v / (v + t)
                above[i] = t * phi[a, i]
        seen[:] = -1
        for i in range(n):
            left[i] = above[i]
            if a + 1 == lower:
                top[i] = above[i]
    base = ptr[lower, C]
    layers = np.append(roles.crossing, chain[lower:])
    groups = np.full((r + len(layers), base), -1, np.int32)
    factor = np.zeros((r, base))
    number = np.empty(base * len(groups), np.int64)
    group_variance = np.empty(base * len(groups))
    starts, middle = np.zeros(C + 1, np.int64), np.zeros(C, np.int64)
    of_base = np.empty(base, np.int64)
    n = 0
    for c in range(C):
        for q in range(r):
            begin = n
            for i in range(ptr[lower, c], ptr[lower, c + 1]):
                factor[q, i] = roles.coefficients[q, place[lower, i]]
                if factor[q, i] != 0.0:
                    groups[q, i] = begin
                    n = begin + 1
            if n > begin:
                number[begin] = ends[-1] + q
                group_variance[begin] = row_variance(c, q, state, node)
        for q in range(r, len(groups)):
            begin = n
            if q == Q:
                middle[c] = n
            v = damped[layers[q - r], c]
            for i in range(ptr[lower, c], ptr[lower, c + 1]):
                if q < Q:
                    g = roles.maps[q - r, place[lower, i]]
                else:
                    a = lower + q - Q
                    of_base[i] = up[a, i] if q == Q else up[a, of_base[i]]
                    g = place[a + 1, of_base[i]]
                if not v < np.inf:
                    continue
                group = seen[g]
                if group < begin:
                    group = n
                    seen[g] = n
                    number[n] = ends[layers[q - r]] + g
                    group_variance[n] = v
                    n += 1
                groups[q, i] = group
        if len(groups) == Q:
            middle[c] = n
        starts[c + 1] = n
    return Nodes(
        ptr,
        place,
        up,
        tau,
        alpha,
        phi,
        top,
        groups,
        factor,
        number,
        group_variance,
        starts,
        middle,
        lower,
    )


@compiled_into_kernels
def row_variance(c: int, j: int, state: State, node: Node) -> float:
    """Return the variance of the slack of row j in child c: proximal if inactive, else damped."""
    wanted = state.center[c, j] - state.u[c, node.ends[-1] + j] * state.slack[c, j]
    if node.least[c, j] < wanted < node.most[c, j]:
        return float(state.slack[c, j])
    return float(_ROW_DAMPING * node.slack[c, j])


@compiled_into_kernels
def eliminate(nodes: Nodes, P: int) -> Elimination:
    """Factorise the layers above the base and the rows per child, on the smaller side."""
    ptr, top, groups, factor, group_variance = (
        nodes.ptr,
        nodes.top,
        nodes.groups,
        nodes.factor,
        nodes.group_variance,
    )
    first, middle, lower = nodes.first, nodes.middle, nodes.lower
    C, r = len(middle), len(factor)
    Q = len(groups) - (P - lower)  # rows and crossing layers
    side, begin = np.zeros(C, np.int64), np.zeros(C + 1, np.int64)
    for c in range(C):
        n = ptr[lower, c + 1] - ptr[lower, c]
        m = middle[c] - first[c]
        fits = n <= m
        for g in range(first[c], first[c + 1]):
            fits = fits and group_variance[g] > 0.0
        for i in range(ptr[lower, c], ptr[lower, c + 1]):
            fits = fits and top[i] > 0.0
        side[c] = fits
        size = n if fits else m
        begin[c + 1] = begin[c] + size * size
    factors = np.zeros(begin[C])
    for c in range(C):
        low, n = ptr[lower, c], ptr[lower, c + 1] - ptr[lower, c]
        if n == 0:
            continue
        if side[c]:
            A = factors[begin[c] : begin[c + 1]].reshape(n, n)
            for q in range(r):
                for i in range(n):
                    if groups[q, low + i] >= 0:
                        w = factor[q, low + i] / group_variance[groups[q, low + i]]
                        for j in range(i, n):
                            A[i, j] += w * factor[q, low + j]
            for q in range(r, len(groups)):
                if groups[q, low] >= 0:
                    mine = groups[q, low : low + n]
                    w = 1.0 / group_variance[mine[0]]
                    for i in range(n):
                        g, out = mine[i], A[i]
                        for j in range(i, n):
                            out[j] += w if mine[j] == g else 0.0
            for i in range(n):
                A[i, i] += 1.0 / top[low + i]
        else:
            m = middle[c] - first[c]
            A = factors[begin[c] : begin[c + 1]].reshape(m, m)
            _add_groups(A, c, nodes, P, Q)
            n = m
        _factorise(A, n)
    return Elimination(side, begin, factors)


@compiled_into_kernels
def _add_groups(A: FloatArray, c: int, nodes: Nodes, P: int, Q: int) -> None:
    """Set the upper half of A = V + Z' N Z for the rows and crossing groups Z of a child."""
    ptr, up, alpha, phi, lower = nodes.ptr, nodes.up, nodes.alpha, nodes.phi, nodes.lower
    groups, factor, r = nodes.groups, nodes.factor, len(nodes.factor)
    low, n = ptr[lower, c], ptr[lower, c + 1] - ptr[lower, c]
    start, m = nodes.first[c], nodes.middle[c] - nodes.first[c]
    weight, node = np.empty(n), np.empty(n, np.int64)
    for g in range(m):
        A[g, g] = nodes.group_variance[start + g]
    for i in range(n):
        weight[i] = nodes.top[low + i]
        for q in range(Q):
            one = groups[q, low + i]
            if one >= 0:
                w = weight[i] * factor[q, low + i] if q < r else weight[i]
                for s in range(q, Q):
                    other = groups[s, low + i]
                    if other >= 0:
                        v = w * factor[s, low + i] if s < r else w
                        A[one - start, other - start] += v
    order = np.empty(n, np.int64)
    held, row, is_held = np.empty(m, np.int64), np.zeros(m), np.zeros(m, np.bool_)
    for a in range(lower, P):
        begin, end = ptr[a + 1, c], ptr[a + 1, c + 1]
        count = np.zeros(end - begin + 1, np.int64)
        for i in range(n):
            node[i] = up[a, low + i] if a == lower else up[a, node[i]]
            count[node[i] - begin + 1] += 1
        for g in range(end - begin):
            count[g + 1] += count[g]
        for i in range(n):
            g = node[i] - begin
            order[count[g]] = i
            count[g] += 1  # now where the next node begins
        at = 0
        for g in range(end - begin):
            some = 0
            while at < count[g]:
                i = order[at]
                for q in range(Q):
                    other = groups[q, low + i] - start
                    if other >= 0 and weight[i] > 0.0:
                        if not is_held[other]:
                            held[some], is_held[other] = other, True
                            some += 1
                        row[other] += weight[i] * factor[q, low + i] if q < r else weight[i]
                weight[i] *= phi[a, begin + g]
                at += 1
            is_full = some * _FULL > m
            for b in range(some):
                one = held[b]
                f = alpha[a, begin + g] * row[one]
                out = A[one]
                for other in range(one if is_full else m, m):
                    out[other] -= f * row[other]
                for e in range(0 if is_full else some):
                    other = held[e]
                    if other >= one:
                        out[other] -= f * row[other]
            for b in range(some):
                row[held[b]], is_held[held[b]] = 0.0, False
    for g in range(m):
        A[g, g] *= 1.0 + _SHIFT


@compiled_into_kernels
def _pass_up(a: int, c: int, room: Workspace, nodes: Nodes) -> None:
    """Compute sums of level a + 1 from those of level a, and the residuals left."""
    ptr, up, sums, missing = nodes.ptr, nodes.up, room.sums, room.missing
    low, high = ptr[a + 1, c], ptr[a + 1, c + 1]
    for i in range(low, high):
        missing[i] = 0.0
    for i in range(ptr[a, c], ptr[a, c + 1]):
        missing[up[a, i]] += sums[i]
    for i in range(low, high):
        t = room.wanted[a, i] - missing[i]
        room.found[a, i] = t
        sums[i] = missing[i] + (1.0 - nodes.phi[a, i]) * t


@compiled_into_kernels
def _pass_down(a: int, c: int, room: Workspace, nodes: Nodes) -> None:
    """Replace residuals of level a + 1 by multipliers, and compute the push on level a."""
    ptr, up, found, push, missing = nodes.ptr, nodes.up, room.found, room.push, room.missing
    for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
        t = nodes.alpha[a, i] * (found[a, i] - nodes.tau[a, i] * push[i])
        found[a, i] = t
        missing[i] = push[i] + t
    for i in range(ptr[a, c], ptr[a, c + 1]):
        push[i] = missing[up[a, i]]


@compiled_into_kernels
def _pass_above_base(c: int, room: Workspace, nodes: Nodes, P: int) -> None:
    """Compute the push of the chain above the base, for base nodes that moved by `sums`."""
    for a in range(nodes.lower, P):
        _pass_up(a, c, room, nodes)
    for i in range(nodes.ptr[P, c], nodes.ptr[P, c + 1]):
        room.push[i] = 0.0
    for a in range(P - 1, nodes.lower - 1, -1):
        _pass_down(a, c, room, nodes)


@compiled_into_kernels
def _subtract_groups(values: FloatArray, lack: FloatArray, c: int, Q: int, nodes: Nodes) -> None:
    """Subtract Z' values from `lack`: sums of a child's base nodes over rows and groups."""
    groups, factor = nodes.groups, nodes.factor
    for i in range(nodes.ptr[nodes.lower, c], nodes.ptr[nodes.lower, c + 1]):
        for q in range(len(factor), Q):
            g = groups[q, i]
            if g >= 0:
                lack[g] -= values[i]
        for q in range(len(factor)):
            if groups[q, i] >= 0:
                lack[groups[q, i]] -= factor[q, i] * values[i]


@compiled_into_kernels
def _push_groups(lack: FloatArray, turn: FloatArray, c: int, Q: int, nodes: Nodes) -> None:
    """Set `turn` to Z lack: the push of rows and groups on a child's base nodes."""
    groups, factor = nodes.groups, nodes.factor
    for i in range(nodes.ptr[nodes.lower, c], nodes.ptr[nodes.lower, c + 1]):
        t = 0.0
        for q in range(len(factor), Q):
            g = groups[q, i]
            if g >= 0:
                t += lack[g]
        for q in range(len(factor)):
            if groups[q, i] >= 0:
                t += factor[q, i] * lack[groups[q, i]]
        turn[i] = t


@compiled_into_kernels
def solve_on_face(inverse: FloatArray, force: FloatArray, face: ActiveFace, P: int) -> None:
    """Solve for the change of the positive cells under a force per cell, float64[k].

    `room.found` is set to the multipliers of the chain. `room.lack` are the residuals of the groups
    over the base and becomes their multipliers. Multipliers of the chain are in `lack`, not in
    `found`, if the base nodes are the smaller side. `room.dx` is set to the change.
    """
    nodes, elimination, room = face.nodes, face.elimination, face.room
    ptr, place, top, lower = nodes.ptr, nodes.place, nodes.top, nodes.lower
    group_variance, first, middle = nodes.group_variance, nodes.first, nodes.middle
    sums, push, base, turn, lack = room.sums, room.push, room.base, room.turn, room.lack
    side, begin = elimination.side, elimination.begin
    for c in range(len(middle)):
        d = inverse[c]
        for i in range(ptr[0, c], ptr[0, c + 1]):
            sums[i] = d * force[place[0, i]]
        for a in range(lower):
            _pass_up(a, c, room, nodes)
        low, high = ptr[lower, c], ptr[lower, c + 1]
        Q = len(nodes.groups) - (0 if side[c] else P - lower)
        for i in range(low, high):
            base[i] = sums[i]
        if not side[c] and P > lower:
            _pass_above_base(c, room, nodes, P)
            for i in range(low, high):
                sums[i] = base[i] + top[i] * push[i]
        _subtract_groups(sums, lack, c, Q, nodes)
        A = elimination.factors[begin[c] : begin[c + 1]]
        if side[c]:
            n = high - low
            for g in range(first[c], first[c + 1]):
                room.spent[g] = lack[g] / group_variance[g]
            _push_groups(room.spent, turn, c, Q, nodes)
            _substitute(A.reshape(n, n), n, turn[low:])
            _subtract_groups(turn, lack, c, Q, nodes)
            for g in range(first[c], first[c + 1]):
                lack[g] /= group_variance[g]
        else:
            m = middle[c] - first[c]
            _substitute(A.reshape(m, m), m, lack[first[c] :])
        _push_groups(lack, turn, c, Q, nodes)
        if not side[c] and P > lower:
            for i in range(low, high):
                sums[i] = base[i] + top[i] * turn[i]
            _pass_above_base(c, room, nodes, P)
            for i in range(low, high):
                push[i] += turn[i]
        else:
            for i in range(low, high):
                push[i] = turn[i]
        for a in range(lower - 1, -1, -1):
            _pass_down(a, c, room, nodes)
        for i in range(ptr[0, c], ptr[0, c + 1]):
            room.dx[i] = d * (force[place[0, i]] + push[i])
