"""The dual Newton method of one node as compiled loops: projection, elimination, line search.

`climb` does what `solve` and `face` do in arrays, child by child on their positive cells alone.
Layers that refine all that follow (the chain) are eliminated node by node. The others (crossing)
are eliminated on the smaller side: on the groups of the chain's last layer that hold positive
cells, by inverses of the queries' variances, or on the groups of the crossing layers, of which the
first are diagonal. The multipliers of the coupling are left to conjugate gradients.

Sums are taken in the order they are written in, and no product is fused with a sum: all
processors find the same bits. What is to be fast therefore adds rows to rows.
"""

# Types are inferred by the compiler, from the arrays that callers hand over.
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, RUF059

from __future__ import annotations

import os

import numba
import numpy as np

_compiled = numba.njit(
    cache=os.path.exists(__file__),  # what has no file, as in memory, cannot be kept
    error_model="numpy",
)

_PANEL = 96  # cells whose children's numbers fit the cache
_SINGULAR = 1e-9  # smallest eigenvalue taken for nonzero in the preconditioned system
_REPEATED = 1e-10  # relative shift of the coupling system
_SHIFT = 1e-13  # of the crossing groups' matrix, relative; sums that are given may repeat
_FULL = 8  # a row with more than one in so many entries is passed whole
# Of the damping, however small the residual: a step leaves about this part of what given sums are
# off by, and conjugate gradients need the more iterations the less there is. 94 children took 590
# of them with it, 1,423 with 1e-6.
_LEAST_DAMPING = 1e-3
_FORBIDDEN = -5e199  # half of `layers.FORBIDDEN`


@_compiled
def _project(field, change, t, inverse, unit, parent, has_parent, level, x):
    """Set x to the projection of field + t change; returns sum_c unit_c x_c . change_c.

    See `solve.project`; `level` is where multipliers begin, and then their values. What is to add
    up to the parent's count is convex in the multiplier, so that the first Newton step ends above
    the root, and the others come down from there: who has nobody after the first has nobody at the
    end. Only the others are looked at again, and there are few of them.
    """
    C, k = field.shape
    moved = np.empty((C, _PANEL))
    room, total, slope = np.empty(_PANEL), np.empty(_PANEL), np.empty(_PANEL)
    held, count = np.empty((_PANEL, C), np.int64), np.empty(_PANEL, np.int64)
    out = 0.0
    for low in range(0, k, _PANEL):
        n = min(_PANEL, k - low)
        for i in range(n):
            room[i], total[i], slope[i], count[i] = 0.0, 0.0, 0.0, 0
        for c in range(C):
            w = inverse[c]
            for i in range(n):
                v = field[c, low + i] + t * change[c, low + i]
                moved[c, i] = v
                is_held = v + level[low + i] * w > 0
                room[i] += w if is_held else 0.0
                total[i] += v if is_held else 0.0
        for i in range(n if has_parent else 0):
            if room[i] == 0.0:  # nobody is left: begin from all that may have persons
                for c in range(C):
                    if moved[c, i] > _FORBIDDEN:
                        room[i] += inverse[c]
                        total[i] += moved[c, i]
            level[low + i] = (parent[low + i] - total[i]) / max(room[i], 1e-300)
        for c in range(C):
            w = inverse[c]
            for i in range(n):
                x[c, low + i] = 0.0
            for i in range(n):
                if moved[c, i] + level[low + i] * w > 0:
                    held[i, count[i]] = c
                    count[i] += 1
        for i in range(n):
            now = level[low + i]
            m, is_done = count[i], not has_parent
            while not is_done:
                some, one, few = 0.0, 0.0, 0
                for e in range(m):
                    c = held[i, e]
                    if moved[c, i] + now * inverse[c] > 0:
                        held[i, few] = c
                        few += 1
                        some += inverse[c]
                        one += moved[c, i]
                before = now
                if few:
                    now = (parent[low + i] - one) / some
                is_done = few == 0 or now == before
                m = few
            level[low + i] = now
            for e in range(m):
                c = held[i, e]
                v = max(moved[c, i] + now * inverse[c], 0.0)
                x[c, low + i] = v
                slope[i] += unit[c] * v * change[c, low + i]
        for i in range(n):
            out += slope[i]
    return out


@_compiled
def _move(t, field, change, u, du, x, unit, answers, variance, ends, on, index, starts, res):
    """Move field and multipliers by t; set res to the gradient of the dual function [C, M].

    Returns its size, as a certificate sees it.
    """
    C, k = x.shape
    Q = len(on)
    largest, worst = 1.0, 0.0
    for c in range(C):
        row = res[c]
        row[:] = 0.0
        for j in range(k):
            field[c, j] += t * change[c, j]
        for m in range(ends[Q]):
            u[c, m] += t * du[c, m]
        for q in range(Q):
            at = ends[q]
            if on[q] < 0:
                for j in range(k):
                    v = x[c, j]
                    if v > 0.0:
                        row[at + index[starts[q] + j]] += v
            else:
                below = ends[on[q]]
                for g in range(ends[on[q] + 1] - below):
                    v = row[below + g]
                    if v > 0.0:
                        row[at + index[starts[q] + g]] += v
        for j in range(k):
            if x[c, j] > largest:
                largest = x[c, j]
        for q in range(Q):
            v = variance[q, c]
            if not v < np.inf:
                for m in range(ends[q], ends[q + 1]):
                    row[m] = 0.0
                continue
            for m in range(ends[q], ends[q + 1]):
                row[m] = answers[c, m] - v * u[c, m] - row[m]
            bound = worst * (v * unit[c] if v > 0.0 else 1.0)
            for m in range(ends[q], ends[q + 1]):
                if not abs(row[m]) <= bound:  # not a number either
                    bound = abs(row[m])
            worst = bound / (v * unit[c] if v > 0.0 else 1.0)
    return worst / largest


@_compiled
def _spread(du, u, x, unit, answers, variance, ends, on, index, starts, change):
    """change_c = sum_q Q_q' du_cq / unit_c, and what the slope of the dual function is made of.

    Returns:
      Its part that the line search does not change, the one that falls by the step's length, and
      sum_c unit_c x_c . change_c.
    """
    C, k = change.shape
    M = ends[-1]
    pending = np.empty(M)
    constant, linear, moved = np.zeros(M), np.zeros(M), np.zeros(k)
    for c in range(C):
        for m in range(M):
            pending[m] = du[c, m]
        for q in range(len(on)):
            v = variance[q, c]
            if v < np.inf:
                for m in range(ends[q], ends[q + 1]):
                    d = pending[m]
                    constant[m] += d * (answers[c, m] - v * u[c, m])
                    linear[m] += v * d * d
        row = change[c]
        row[:] = 0.0
        for q in range(len(on) - 1, -1, -1):
            at = ends[q]
            if on[q] < 0:
                for j in range(k):
                    row[j] += pending[at + index[starts[q] + j]]
            else:
                below = ends[on[q]]
                for g in range(ends[on[q] + 1] - below):
                    pending[below + g] += pending[at + index[starts[q] + g]]
        w = unit[c]
        for j in range(k):
            moved[j] += x[c, j] * row[j]
            row[j] /= w
    sums = np.zeros(3)
    for m in range(M):
        sums[0] += constant[m]
        sums[1] += linear[m]
    for j in range(k):
        sums[2] += moved[j]
    return sums[0], sums[1], sums[2]


@_compiled
def _factorise(A, n):
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


@_compiled
def _substitute(A, n, v):
    """Overwrite v with the solution of U'U z = v; see `_factorise`.

    Rows are read twice while they are near, and nothing below them. Eight sums side by side are as
    wide as registers may be; how they end up in one is written down.
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


@_compiled
def _find_nodes(x, inverse, has_parent, variance, ends, chain, lower, crossing, maps, chain_index,
                sizes):  # fmt: skip
    """The positive cells, the nodes of the chain above them, and the crossing groups they are in.

    A cell that one child holds alone stays at the parent's count: it takes no part in a step.
    Node i of level a of the chain is in node up[a, i] of level a + 1; tau, alpha and phi are those
    of `face`, `top` the diagonal of the inverse at level `lower`, the base. Base node i is in
    group groups[q, i], -1 where layer q is not asked: of the crossing layers, and then of those of
    the chain above the base. `number` says which multiplier is a group's, `own` its variance. Child
    c has the groups from first[c] to last[c], of crossing layers up to middle[c].
    """
    C, k = x.shape
    P, Q = len(chain), len(crossing)
    held = np.zeros(k, np.int64)
    for c in range(C):
        for j in range(k):
            held[j] += x[c, j] > 0.0
    least = 2 if has_parent else 1
    total = 0
    for j in range(k):
        total += held[j] if held[j] >= least else 0
    ptr = np.zeros((P + 1, C + 1), np.int64)
    # Half as wide as other numbers: what a step reads of a large node does not fit the cache.
    place = np.empty((P + 1, total), np.int32)  # cell, or group of a layer of the chain
    up = np.empty((P, total), np.int32)
    tau, alpha, phi = np.zeros((P, total)), np.zeros((P, total)), np.zeros((P, total))
    left = np.empty(total)
    n = 0
    for c in range(C):
        for j in range(k):
            if x[c, j] > 0.0 and held[j] >= least:
                place[0, n] = j
                left[n] = inverse[c]
                n += 1
        ptr[0, c + 1] = n
    top = left.copy()
    seen = np.full(sizes.max() + 1, -1, np.int64)
    above = np.empty(total)
    for a in range(P):
        n = 0
        for c in range(C):
            first = n
            for i in range(ptr[a, c], ptr[a, c + 1]):
                g = chain_index[a, place[a, i]]
                node = seen[g]
                if node < first:
                    node = n
                    seen[g] = n
                    place[a + 1, n] = g
                    n += 1
                up[a, i] = node
                tau[a, node] += left[i]
            ptr[a + 1, c + 1] = n
            v = variance[chain[a], c]
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
    layers = np.append(crossing, chain[lower:])
    groups = np.full((len(layers), base), -1, np.int32)
    number = np.empty(base * len(layers), np.int64)
    own = np.empty(base * len(layers))
    first, middle = np.zeros(C + 1, np.int64), np.zeros(C, np.int64)
    node = np.empty(base, np.int64)
    n = 0
    for c in range(C):
        for q in range(len(layers)):
            begin = n
            if q == Q:
                middle[c] = n
            v = variance[layers[q], c]
            for i in range(ptr[lower, c], ptr[lower, c + 1]):
                if q < Q:
                    g = maps[q, place[lower, i]]
                else:
                    a = lower + q - Q
                    node[i] = up[a, i] if q == Q else up[a, node[i]]
                    g = place[a + 1, node[i]]
                if not v < np.inf:
                    continue
                group = seen[g]
                if group < begin:
                    group = n
                    seen[g] = n
                    number[n] = ends[layers[q]] + g
                    own[n] = v
                    n += 1
                groups[q, i] = group
        if len(layers) == Q:
            middle[c] = n
        first[c + 1] = n
    return ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle


@_compiled
def _eliminate(nodes, P, lower):
    """Factors of the layers above the base per child, on the smaller side.

    Returns:
      The side, 1 for the base nodes; where the factor of each child begins; all factors.
    """
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    C = len(middle)
    Q = len(groups) - (P - lower)  # crossing layers
    side, begin = np.zeros(C, np.int64), np.zeros(C + 1, np.int64)
    most = 0
    for c in range(C):
        n = ptr[lower, c + 1] - ptr[lower, c]
        m = middle[c] - first[c]
        fits = n <= m
        for g in range(first[c], first[c + 1]):
            fits = fits and own[g] > 0.0
        for i in range(ptr[lower, c], ptr[lower, c + 1]):
            fits = fits and top[i] > 0.0
        side[c] = fits
        size = n if fits else m
        begin[c + 1] = begin[c] + size * size
        most = max(most, n)
    factors = np.zeros(begin[C])
    for c in range(C):
        low, n = ptr[lower, c], ptr[lower, c + 1] - ptr[lower, c]
        if n == 0:
            continue
        if side[c]:
            A = factors[begin[c] : begin[c + 1]].reshape(n, n)
            for q in range(len(groups)):
                if groups[q, low] >= 0:
                    mine = groups[q, low : low + n]
                    w = 1.0 / own[mine[0]]
                    for i in range(n):
                        g, out = mine[i], A[i]
                        for j in range(i, n):
                            out[j] += w if mine[j] == g else 0.0
            for i in range(n):
                A[i, i] += 1.0 / top[low + i]
        else:
            m = middle[c] - first[c]
            A = factors[begin[c] : begin[c + 1]].reshape(m, m)
            _add_groups(A, c, nodes, P, lower, Q)
            n = m
        _factorise(A, n)
    return side, begin, factors


@_compiled
def _add_groups(A, c, nodes, P, lower, Q):
    """A = V + Z' N Z, the upper half: the crossing groups Z of a child over the inverse N."""
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    low, n = ptr[lower, c], ptr[lower, c + 1] - ptr[lower, c]
    start, m = first[c], middle[c] - first[c]
    weight, node = np.empty(n), np.empty(n, np.int64)
    for g in range(m):
        A[g, g] = own[start + g]
    for i in range(n):
        weight[i] = top[low + i]
        for q in range(Q):
            one = groups[q, low + i]
            if one >= 0:
                for r in range(q, Q):
                    other = groups[r, low + i]
                    if other >= 0:
                        A[one - start, other - start] += weight[i]
    order = np.empty(n, np.int64)
    held, row = np.empty(m, np.int64), np.zeros(m)
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
                        if row[other] == 0.0:
                            held[some] = other
                            some += 1
                        row[other] += weight[i]
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
                row[held[b]] = 0.0
    for g in range(m):
        A[g, g] *= 1.0 + _SHIFT


@_compiled
def _rise(a, c, sums, missing, wanted, found, nodes):
    """Sums of level a + 1 from those of level a, and what they lack; see `face._Tree.up`."""
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    low, high = ptr[a + 1, c], ptr[a + 1, c + 1]
    for i in range(low, high):
        missing[i] = 0.0
    for i in range(ptr[a, c], ptr[a, c + 1]):
        missing[up[a, i]] += sums[i]
    for i in range(low, high):
        t = wanted[a, i] - missing[i]
        found[a, i] = t
        sums[i] = missing[i] + (1.0 - phi[a, i]) * t


@_compiled
def _fall(a, c, push, missing, found, nodes):
    """Multipliers of level a + 1 in place of what they lack, and the push on level a."""
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
        t = alpha[a, i] * (found[a, i] - tau[a, i] * push[i])
        found[a, i] = t
        missing[i] = push[i] + t
    for i in range(ptr[a, c], ptr[a, c + 1]):
        push[i] = missing[up[a, i]]


@_compiled
def _above(c, wanted, found, nodes, P, lower, room):
    """Push of the chain above the base on base nodes that moved by room[0], without its groups."""
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    sums, missing, push = room[0], room[1], room[2]
    for a in range(lower, P):
        _rise(a, c, sums, missing, wanted, found, nodes)
    for i in range(ptr[P, c], ptr[P, c + 1]):
        push[i] = 0.0
    for a in range(P - 1, lower - 1, -1):
        _fall(a, c, push, missing, found, nodes)


@_compiled
def _respond(inverse, force, wanted, lack, found, nodes, elimination, P, lower, room):
    """Change of the positive cells under a force per cell, float64[k], all layers answering.

    `wanted`, float64[P, nodes], are the residuals of the chain, and `found` is set to its
    multipliers. `lack` are the residuals of the groups over the base and becomes their multipliers,
    those of the chain only where the base nodes are the smaller side, which are not in `found`. The
    last row of `room`, float64[6, nodes], is set to the change.
    """
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    side, begin, factors = elimination
    sums, missing, push, base, turn = room[0], room[1], room[2], room[3], room[4]
    dx = room[5]
    C = len(middle)
    for c in range(C):
        d = inverse[c]
        for i in range(ptr[0, c], ptr[0, c + 1]):
            sums[i] = d * force[place[0, i]]
        for a in range(lower):
            _rise(a, c, sums, missing, wanted, found, nodes)
        low, high = ptr[lower, c], ptr[lower, c + 1]
        Q = len(groups) - (0 if side[c] else P - lower)
        for i in range(low, high):
            base[i] = sums[i]
        if not side[c] and P > lower:
            _above(c, wanted, found, nodes, P, lower, room)
            for i in range(low, high):
                sums[i] = base[i] + top[i] * push[i]
        for i in range(low, high):
            for q in range(Q):
                g = groups[q, i]
                if g >= 0:
                    lack[g] -= sums[i]
        A = factors[begin[c] : begin[c + 1]]
        if side[c]:
            n = high - low
            for i in range(low, high):
                t = 0.0
                for q in range(Q):
                    g = groups[q, i]
                    if g >= 0:
                        t += lack[g] / own[g]
                turn[i] = t
            _substitute(A.reshape(n, n), n, turn[low:])
            for i in range(low, high):
                for q in range(Q):
                    g = groups[q, i]
                    if g >= 0:
                        lack[g] -= turn[i]
            for g in range(first[c], first[c + 1]):
                lack[g] /= own[g]
        else:
            m = middle[c] - first[c]
            _substitute(A.reshape(m, m), m, lack[first[c] :])
        for i in range(low, high):
            t = 0.0
            for q in range(Q):
                g = groups[q, i]
                if g >= 0:
                    t += lack[g]
            turn[i] = t
        if not side[c] and P > lower:
            for i in range(low, high):
                sums[i] = base[i] + top[i] * turn[i]
            _above(c, wanted, found, nodes, P, lower, room)
            for i in range(low, high):
                push[i] += turn[i]
        else:
            for i in range(low, high):
                push[i] = turn[i]
        for a in range(lower - 1, -1, -1):
            _fall(a, c, push, missing, found, nodes)
        for i in range(ptr[0, c], ptr[0, c + 1]):
            dx[i] = d * (force[place[0, i]] + push[i])


@_compiled
def _stiffen(v, share, unit, precision, chain, nodes, lower, stack, spent, room, weight, out):
    """Out = sum_c R_c' W_c G_c W_c R_c v, the preconditioner of the coupling."""
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    push = room[2]
    out[:] = 0.0
    for c in range(len(middle)):
        for i in range(ptr[0, c], ptr[0, c + 1]):
            stack[0, i] = share[i] * v[place[0, i]]
        for a in range(lower):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                stack[a + 1, i] = 0.0
            for i in range(ptr[a, c], ptr[a, c + 1]):
                stack[a + 1, up[a, i]] += stack[a, i]
        for g in range(first[c], first[c + 1]):
            spent[g] = 0.0
        for i in range(ptr[lower, c], ptr[lower, c + 1]):
            for q in range(len(groups)):
                g = groups[q, i]
                if g >= 0:
                    spent[g] += stack[lower, i]
        for g in range(first[c], first[c + 1]):
            spent[g] *= weight[g]
        for i in range(ptr[lower, c], ptr[lower, c + 1]):
            t = 0.0
            for q in range(len(groups)):
                g = groups[q, i]
                if g >= 0:
                    t += spent[g]
            push[i] = t
        for a in range(lower - 1, -1, -1):
            w = precision[chain[a], c]
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                stack[a + 1, i] = push[i] + w * stack[a + 1, i]
            for i in range(ptr[a, c], ptr[a, c + 1]):
                push[i] = stack[a + 1, up[a, i]]
        w = unit[c]
        for i in range(ptr[0, c], ptr[0, c + 1]):
            out[place[0, i]] += share[i] * (w * stack[0, i] + push[i])


@_compiled
def _ask(res, ends, chain, nodes, wanted, lack):
    """Residuals of the nodes of the chain and of the groups over the base."""
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    for c in range(len(middle)):
        for a in range(len(chain)):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                wanted[a, i] = res[c, ends[chain[a]] + place[a + 1, i]]
        for g in range(first[c], first[c + 1]):
            lack[g] = res[c, number[g]]


@_compiled
def _shares(nodes, inverse, lower, k, room):
    """Share of each positive cell in the variance of its cell, that of the layers up to the base.

    Also, per cell, the shift that keeps the coupling system regular: exact sums of all children
    repeat those of the parent.
    """
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    missing, push = room[1], room[2]
    C, total = len(middle), ptr[0, -1]
    share, whole, shift = np.empty(total), np.zeros(k), np.zeros(k)
    for c in range(C):
        d = inverse[c]
        for i in range(ptr[lower, c], ptr[lower, c + 1]):
            push[i] = 0.0
        for a in range(lower - 1, -1, -1):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                missing[i] = alpha[a, i] + phi[a, i] * phi[a, i] * push[i]
            for i in range(ptr[a, c], ptr[a, c + 1]):
                push[i] = missing[up[a, i]]
        for i in range(ptr[0, c], ptr[0, c + 1]):
            share[i] = d - d * d * push[i]
            whole[place[0, i]] += share[i]
            shift[place[0, i]] += _REPEATED * d
    for i in range(total):
        share[i] = share[i] / whole[place[0, i]] if whole[place[0, i]] > 0.0 else 0.0
    return share, shift


@_compiled
def _step(x, unit, inverse, has_parent, variance, damped, precision, ends, chain, lower, crossing,
          maps, chain_index, sizes, res, forcing, most_iterations, du):  # fmt: skip
    """Newton step from residuals res [C, M], into du [C, M]; returns iterations.

    `damped` are the variances with those of given sums that keep a step within bounds.
    """
    C, k = x.shape
    P = len(chain)
    nodes = _find_nodes(
        x, inverse, has_parent, damped, ends, chain, lower, crossing, maps, chain_index, sizes
    )
    ptr, place, up, tau, alpha, phi, top, groups, number, own, first, middle = nodes
    elimination = _eliminate(nodes, P, lower)
    side = elimination[0]
    total = ptr[0, C]
    room = np.empty((6, total))
    dx = room[5]
    wanted, found, lack = np.zeros((P, total)), np.zeros((P, total)), np.zeros(len(number))
    force = np.zeros(k)
    iterations = 0
    if has_parent:
        share, shift = _shares(nodes, inverse, lower, k, room)
        weight = np.zeros(len(number))
        for g in range(len(number)):
            weight[g] = 1.0 / own[g] if own[g] > 0.0 else 0.0
        _ask(res, ends, chain, nodes, wanted, lack)
        _respond(inverse, force, wanted, lack, found, nodes, elimination, P, lower, room)
        wanted[:] = 0.0
        stack, spent = np.empty((lower + 1, total)), np.empty(len(number))
        r, z, p, image = np.zeros(k), np.empty(k), np.zeros(k), np.empty(k)
        for i in range(total):
            r[place[0, i]] -= dx[i]
        rho, goal, size = 0.0, 0.0, 0.0
        while True:
            _stiffen(r, share, unit, precision, chain, nodes, lower, stack, spent, room, weight, z)
            after = 0.0
            for j in range(k):
                after += r[j] * z[j]
            beta = after / rho if iterations else 0.0
            if iterations == 0:
                goal = after * forcing * forcing
            size = after + beta * beta * size
            rho = after
            if rho <= goal or rho <= 0.0 or iterations == most_iterations:
                break
            for j in range(k):
                p[j] = z[j] + beta * p[j]
            lack[:] = 0.0
            _respond(inverse, p, wanted, lack, found, nodes, elimination, P, lower, room)
            for j in range(k):
                image[j] = shift[j] * p[j]
            for i in range(total):
                image[place[0, i]] += dx[i]
            curvature = 0.0
            for j in range(k):
                curvature += p[j] * image[j]
            if curvature <= _SINGULAR * size:
                break
            t = rho / curvature
            for j in range(k):
                force[j] += t * p[j]
                r[j] -= t * image[j]
            iterations += 1
    _ask(res, ends, chain, nodes, wanted, lack)
    _respond(inverse, force, wanted, lack, found, nodes, elimination, P, lower, room)
    for c in range(C):
        # Groups without a positive cell: as if they had one, so that their multipliers move.
        for q in range(len(ends) - 1):
            v = variance[q, c]
            w = (1.0 / v if v > 0.0 else unit[c]) if v < np.inf else 0.0
            for m in range(ends[q], ends[q + 1]):
                du[c, m] = w * res[c, m]
        for a in range(lower if side[c] else P):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                du[c, ends[chain[a]] + place[a + 1, i]] = found[a, i]
        for g in range(first[c], first[c + 1] if side[c] else middle[c]):
            du[c, number[g]] = lack[g]
    return iterations


@_compiled
def climb(field, level, u, x, parent, has_parent, unit, answers, variance, ends, on, index, starts,
          chain, lower, crossing, maps, chain_index, sizes, goal, damping, settings):  # fmt: skip
    """Newton steps with a line search until the residual is at most the goal.

    Args:
      field: float64[C, k], detailed answers and what the multipliers add; moved along.
      level: float64[k], multipliers of the coupling to begin from; moved along.
      u: float64[C, M], multipliers of all layers side by side; moved along.
      x: float64[C, k], set to the counts.
      parent: float64[k].
      has_parent: bool.
      unit: float64[C].
      answers: float64[C, M].
      variance: float64[layers, C]; 0 if given, inf where not asked.
      ends: int64[layers + 1], where the groups of each layer begin among M.
      on: int64[layers], `Layer.on`.
      index: int64, `Layer.index` of all layers end to end, from `starts` on.
      starts: int64[layers].
      chain: int64[P], layers each of which refines the next.
      lower: How many of them refine all other layers; the last of these is the base, or the cells.
      crossing: int64[Q], the layers outside the chain.
      maps: int64[Q, base], group of each group of the base.
      chain_index: int64[P, most], group of each group of the layer below, or of each cell.
      sizes: int64[layers].
      goal: Residual at which to stop.
      damping: Of the multipliers of given sums, relative to the variance of a cell; 0 for none.
      settings: Most steps, most iterations of conjugate gradients in a step, trials of the line
        search, steps without a smaller residual, loose and tight forcing.

    Returns:
      Steps, iterations, the residual at the end.
    """
    most_steps, most_iterations, trials, stale_steps, loose, tight = settings
    C, k = field.shape
    M = ends[-1]
    inverse = 1.0 / unit
    precision = np.zeros(variance.shape)
    for q in range(len(on)):
        for c in range(C):
            v = variance[q, c]
            precision[q, c] = 1.0 / v if v > 0.0 and v < np.inf else 0.0
    damped = variance.copy()
    res, du, change = np.empty((C, M)), np.zeros((C, M)), np.zeros((C, k))
    _project(field, change, 0.0, inverse, unit, parent, has_parent, level, x)
    steps, iterations, stale, forcing = 0, 0, 0, loose
    t, best = 0.0, np.inf
    while True:
        off = _move(
            t, field, change, u, du, x, unit, answers, variance, ends, on, index, starts, res
        )
        stale = 0 if off < best else stale + 1
        best = min(best, off)
        if off <= goal or steps == most_steps or stale >= stale_steps or not off < np.inf:
            break
        if damping > 0.0:
            for q in range(len(on)):
                for c in range(C):
                    if variance[q, c] == 0.0:
                        damped[q, c] = damping * max(_LEAST_DAMPING, min(1.0, off)) * inverse[c]
        iterations += _step(
            x, unit, inverse, has_parent, variance, damped, precision, ends, chain, lower, crossing,
            maps, chain_index, sizes, res, forcing, most_iterations, du,
        )  # fmt: skip
        constant, linear, moved = _spread(
            du, u, x, unit, answers, variance, ends, on, index, starts, change
        )
        first = constant - moved
        t, low, high = 1.0, 0.0, np.inf
        slope_low, slope_high = first, 0.0
        for trial in range(trials):
            if trial:
                cut = slope_low / (slope_low - slope_high)
                t = low + (high - low) * min(0.9, max(0.1, cut))
            moved = _project(field, change, t, inverse, unit, parent, has_parent, level, x)
            now = constant - t * linear - moved
            if now >= 0:
                low, slope_low = t, now
            else:
                high, slope_high = t, now
            if first <= 0 or (t == low and t == 1.0) or abs(now) <= 0.1 * first:
                break
        forcing = loose if t < 1.0 else tight
        steps += 1
    return steps, iterations, off


def compile_all():
    """Call every kernel with a node of two children and two cells, types as callers hand over."""
    two, square = np.ones(2), np.ones((2, 2))
    cells, one = np.arange(2), np.zeros(1, np.int64)
    climb(
        square.copy(), two.copy(), np.zeros((2, 1)), square.copy(), two, True, two,
        np.ones((2, 1)), np.ones((1, 2)), np.arange(2), one - 1, np.zeros(2, np.int64), one,
        one, 1, np.zeros(0, np.int64), np.zeros((0, 1), np.int64), cells[None] * 0, one + 1,
        1e-9, 0.0, (1, 1, 1, 1, 0.3, 1e-3),
    )  # fmt: skip
