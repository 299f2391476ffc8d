"""Compiled loops: sums over partition queries, projections, active-set iterations.

Child by child on their own cells, in place of padded arrays, so that small supports cost little:
3 to 5 times as fast as NumPy, from nodes of 4 variables up to those of 3,570
(`python -m bench.newton_step`). Their definition in arrays stands in the tests, which
compare the two. Loaded on first use, by `machine_code`.

Arrays are copied in loops: the message of `a[:] = b` for other shapes takes the compiler seconds.
"""

# Types are inferred by the compiler, from the arrays that callers hand over.
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, RUF059

from __future__ import annotations

import os

import numba
import numpy as np

# Sums may be taken in any order, which lets them use vector instructions; infinities keep their
# meaning.
_compiled = numba.njit(
    cache=os.path.exists(__file__),  # what has no file, as in memory, cannot be kept
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz"},
)

_BY_HAND = 48  # largest matrix that loops factorise faster than a call of LAPACK
_PANEL = 96  # columns that fit the cache
_ROUNDS = 10  # of correction with the same factors; each but the last halves what is off
_ROUGH, _FINE = 1e-8, 1e-15  # what the conditions of a guess may be off by; the last digits


@_compiled
def adjoint(index, answers, weights):
    """See `partitions.adjoint`."""
    T, k = index.shape
    C = len(answers)
    out = np.zeros((C, k))
    for c in range(C):
        for t in range(T):
            w = weights[t, c]
            for i in range(k):
                out[c, i] += w * answers[c, index[t, i]]
    return out


@_compiled
def gram_blocks(index, weights, cells):
    """See `partitions.gram_blocks`."""
    T, k = index.shape
    B, s = cells.shape
    P = weights.shape[1]
    out = np.zeros((B, P, s, s))
    groups = np.empty((T, s), np.int64)
    for b in range(B):
        n = 0
        while n < s and cells[b, n] < k:
            for t in range(T):
                groups[t, n] = index[t, cells[b, n]]
            n += 1
        for p in range(P):
            for i in range(n):
                for t in range(T):
                    own, w = groups[t, i], weights[t, p]
                    for j in range(n):
                        out[b, p, i, j] += w if groups[t, j] == own else 0.0
    return out


@_compiled
def gradient(index, ends, answers, weights, x):
    """See `partitions.gradient`."""
    T, k = index.shape
    C, M = answers.shape
    g = np.zeros((C, k))
    coarse = np.zeros((C, M))
    quadratic, linear = 0.0, 0.0
    for c in range(C):
        for t in range(T):
            w = weights[t, c]
            for i in range(k):
                coarse[c, index[t, i]] += x[c, i]
            for m in range(ends[t], ends[t + 1]):
                v, a = coarse[c, m], answers[c, m]
                quadratic += w * v * v
                linear += w * a * v
                coarse[c, m] = w * (v - a)
            for i in range(k):
                g[c, i] += coarse[c, index[t, i]]
    return g, coarse, quadratic, linear


@_compiled
def project_by_cell(x, give, free, parent):
    """See `partitions.project`; every cell by itself."""
    C, k = x.shape
    moved = np.zeros((C, k))
    held = free.copy()
    price = np.empty(k)
    is_open = np.ones(k, np.bool_)
    left = k
    share = np.empty(k)
    while left:
        for i in range(k):
            price[i], share[i] = parent[i], 0.0
        for c in range(C):
            for i in range(k):
                if held[c, i]:
                    price[i] -= x[c, i]
                    share[i] += give[c, i]
        for i in range(k):
            price[i] /= max(share[i], 2.2250738585072014e-308)
        is_done = np.ones(k, np.bool_)
        for c in range(C):
            for i in range(k):
                if is_open[i] and held[c, i] and not x[c, i] + give[c, i] * price[i] > 0:
                    held[c, i] = False
                    is_done[i] = False
        left = 0
        for i in range(k):
            is_open[i] = not is_done[i]
            left += is_open[i]
    for c in range(C):
        for i in range(k):
            if held[c, i]:
                moved[c, i] = x[c, i] + give[c, i] * price[i]
    return moved, held


@_compiled
def project_by_child(field, inverse, parent, level, forbidden):
    """See `dual_newton.solve.project`; `level` is where multipliers begin, and then their values.

    Panel by panel, until no multiplier changes any more.
    """
    C, k = field.shape
    x = np.empty((C, k))
    room, total = np.empty(_PANEL), np.empty(_PANEL)
    for low in range(0, k, _PANEL):
        n = min(_PANEL, k - low)
        for _ in range(2 * C + 2):
            for i in range(n):
                room[i], total[i] = 0.0, 0.0
            for c in range(C):
                w = inverse[c]
                for i in range(n):
                    is_held = field[c, low + i] + level[low + i] * w > 0
                    room[i] += w if is_held else 0.0
                    total[i] += field[c, low + i] if is_held else 0.0
            is_done = True
            for i in range(n):
                if room[i] == 0.0:  # nobody is left: begin from all that may have persons
                    for c in range(C):
                        if field[c, low + i] > forbidden:
                            room[i] += inverse[c]
                            total[i] += field[c, low + i]
                now = (parent[low + i] - total[i]) / max(room[i], 1e-300)
                if now != level[low + i]:
                    level[low + i] = now
                    is_done = False
            if is_done:
                break
        for c in range(C):
            for i in range(n):
                x[c, low + i] = max(field[c, low + i] + level[low + i] * inverse[c], 0.0)
    return x


@_compiled
def _factorise(M, n):
    """Overwrite the lower triangle of M[:n, :n] with its Cholesky factor."""
    for j in range(n):
        d = M[j, j]
        for t in range(j):
            d -= M[j, t] * M[j, t]
        d = np.sqrt(max(d, 1e-15))
        M[j, j] = d
        for i in range(j + 1, n):
            v = M[i, j]
            for t in range(j):
                v -= M[i, t] * M[j, t]
            M[i, j] = v / d


@_compiled
def _forward(L, n, v):
    """Overwrite v with L^-1 v."""
    for i in range(n):
        t = v[i]
        for j in range(i):
            t -= L[i, j] * v[j]
        v[i] = t / L[i, i]


@_compiled
def _backward(L, n, v):
    """Overwrite v with L^-T v."""
    for i in range(n - 1, -1, -1):
        v[i] /= L[i, i]
        t = v[i]
        for j in range(i):
            v[j] -= L[i, j] * t


@_compiled
def substitute(flat, starts, ends, is_inverse, right):
    """See `dual_newton.blocks.substitute`."""
    out = right.copy()
    for b in range(len(is_inverse)):
        n = ends[b + 1] - ends[b]
        block = flat[starts[b] : starts[b + 1]].reshape(n, n)
        own = out[ends[b] : ends[b + 1]]
        if is_inverse[b]:
            for i in range(n):
                t = 0.0
                for j in range(n):
                    t += block[i, j] * right[ends[b] + j]
                own[i] = t
        else:
            _forward(block, n, own)
            _backward(block, n, own)
    return out


@_compiled
def _invert(M, n, W):
    """Overwrite M[:n, :n], positive definite, with its inverse; W is room to work."""
    _factorise(M, n)
    for j in range(n):  # W = L^-T, so that all sums run along rows
        W[j, j] = 1.0 / M[j, j]
        for i in range(j + 1, n):
            t = 0.0
            for m in range(j, i):
                t -= M[i, m] * W[j, m]
            W[j, i] = t / M[i, i]
    for i in range(n):
        for j in range(i + 1):
            t = 0.0
            for m in range(i, n):
                t += W[i, m] * W[j, m]
            M[i, j] = t
            M[j, i] = t


@_compiled
def _lagrangian_gradient(x, lam, mu, nu, data):
    """See `certificate.gradient`."""
    (scale, linear, parent, has_parent, starts, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    C, k = x.shape
    P = blocks.shape[1]
    g = np.empty((C, k))
    for c in range(C):
        p = c if P > 1 else 0
        f = scale[c]
        for i in range(k):
            g[c, i] = -linear[c, i]
        for j in range(F.shape[1]):
            t = 0.0
            for i in range(k):
                t += F[p, j, i] * x[c, i]
            for i in range(k):
                g[c, i] += F[p, j, i] * t
        for b in range(len(starts) - 1):
            at = starts[b]
            n = starts[b + 1] - at
            for j in range(n):
                v = x[c, at + j]
                if v != 0.0:
                    for i in range(n):
                        g[c, at + i] += blocks[b, p, j, i] * v
        for i in range(k):
            g[c, i] *= f
            if has_parent:
                g[c, i] -= lam[i]
        for e in range(len(eq_groups)):
            for i in range(k):
                g[c, i] -= mu[e, c, eq_groups[e, i]]
        for n in range(len(R)):
            if nu[c, n] != 0.0:
                for i in range(k):
                    g[c, i] -= nu[c, n] * R[n, i]
    return g


@_compiled
def _sums(x, groups, m):
    C, k = x.shape
    out = np.zeros((C, m))
    for c in range(C):
        for i in range(k):
            out[c, groups[i]] += x[c, i]
    return out


@_compiled
def _hold(support, free, linear, parent, has_parent, eq_groups, eq_targets, eq_sizes):
    """Give each live cell a child and each positive group a cell, to carry it."""
    C, k = support.shape
    if has_parent:
        for i in range(k):
            if not support[:, i].any():
                best = -1
                for c in range(C):
                    if free[c, i] and (best < 0 or linear[c, i] > linear[best, i]):
                        best = c
                if best >= 0:
                    support[best, i] = True
    for e in range(len(eq_groups)):
        held = np.zeros((C, eq_sizes[e]), np.bool_)
        for c in range(C):
            for i in range(k):
                if support[c, i]:
                    held[c, eq_groups[e, i]] = True
            for i in range(k):
                group = eq_groups[e, i]
                if not held[c, group] and eq_targets[e, c, group] > 0 and free[c, i]:
                    support[c, i] = True


@_compiled
def _factors(support, sides, data):
    """Factors of the conditions of a guess; see `elimination`.

    For block b and child c, `local` from first[b, c] on holds the count[b, c] positions of its
    support within the block, K from place[b, c] on its inverse, Z its product with the outside
    rows Frow. L are the factors of the coupling, S the factor of the system of the outside rows.
    """
    (scale, linear, parent, has_parent, starts, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    C, k = support.shape
    P, r0 = F.shape[0], F.shape[1]
    B = len(starts) - 1
    # Rows outside the blocks: F, the equalities across blocks, the rows at their limits.
    extra = 0
    for e in range(len(eq_groups)):
        if not eq_inside[e]:
            extra += eq_sizes[e]
    is_used = np.zeros(len(R), np.bool_)
    for n in range(len(R)):
        is_used[n] = (sides[:, n] != 0).any()
    r = r0 + extra + is_used.sum()
    total, squares, width = 0, 0, 0
    for b in range(B):
        width = max(width, starts[b + 1] - starts[b])
        for c in range(C):
            n = 0
            for i in range(starts[b], starts[b + 1]):
                if support[c, i]:
                    n += 1
            total += n
            squares += n * n
    local = np.empty(total, np.int64)
    first = np.empty((B, C), np.int64)
    count = np.empty((B, C), np.int64)
    place = np.empty((B, C), np.int64)
    K = np.empty(squares)
    Z = np.zeros((total, r))
    Frow = np.zeros((total, r))
    L = np.zeros((B, width, width))
    M = np.empty((width, width))
    W = np.empty((width, width))
    root = np.empty(width)
    J = np.zeros((C, r, r))
    at, square = 0, 0
    for b in range(B):
        start = starts[b]
        size = starts[b + 1] - start
        for c in range(C):
            p = c if P > 1 else 0
            n = 0
            for i in range(size):
                if support[c, start + i]:
                    local[at + n] = i
                    n += 1
            first[b, c], count[b, c], place[b, c] = at, n, square
            for i in range(n):
                for j in range(i + 1):
                    M[i, j] = blocks[b, p, local[at + i], local[at + j]]
            for e in range(len(eq_groups)):
                if eq_inside[e]:
                    for i in range(n):
                        one = eq_groups[e, start + local[at + i]]
                        for j in range(i + 1):
                            if one == eq_groups[e, start + local[at + j]]:
                                M[i, j] += penalty
            for i in range(n):
                root[i] = 1.0 / np.sqrt(M[i, i])
            for i in range(n):
                for j in range(i + 1):
                    M[i, j] *= root[i] * root[j]
            if n > _BY_HAND:
                for i in range(n):
                    for j in range(i):
                        M[j, i] = M[i, j]
                inverse = np.linalg.inv(np.ascontiguousarray(M[:n, :n]))
                for i in range(n):
                    for j in range(n):
                        M[i, j] = inverse[i, j]
            else:
                _invert(M, n, W)
            f = 1.0 / scale[c]
            for i in range(n):
                for j in range(n):
                    v = M[i, j] * root[i] * root[j]
                    K[square + i * n + j] = v
                    if j <= i:
                        L[b, local[at + i], local[at + j]] += v * f
            if r:
                for i in range(n):
                    cell = start + local[at + i]
                    for j in range(r0):
                        Frow[at + i, j] = F[p, j, cell]
                    put = r0
                    for e in range(len(eq_groups)):
                        if not eq_inside[e]:
                            Frow[at + i, put + eq_groups[e, cell]] = np.sqrt(penalty)
                            put += eq_sizes[e]
                    for m in range(len(R)):
                        if is_used[m]:
                            if sides[c, m] != 0:
                                Frow[at + i, put] = np.sqrt(penalty) * R[m, cell]
                            put += 1
                for i in range(n):
                    for m in range(n):
                        v = K[square + i * n + m]
                        for j in range(r):
                            Z[at + i, j] += v * Frow[at + m, j]
                for i in range(n):
                    for j in range(r):
                        v = Z[at + i, j]
                        if v != 0.0:
                            for m in range(r):
                                J[c, j, m] += v * Frow[at + i, m]
            at += n
            square += n * n
        if has_parent:
            for i in range(size):
                d = L[b, i, i]
                root[i] = 1.0 / np.sqrt(d) if d > 0 else 1.0
            for i in range(size):
                for j in range(i):
                    L[b, i, j] *= root[i] * root[j]
                L[b, i, i] = 1.0 + 1e-14
            if size > _BY_HAND:
                for i in range(size):
                    L[b, i, i] += 1e-13
                factor = np.linalg.cholesky(np.ascontiguousarray(L[b, :size, :size]))
                for i in range(size):
                    for j in range(i + 1):
                        L[b, i, j] = factor[i, j]
            else:
                _factorise(L[b], size)
            for i in range(size):
                for j in range(i + 1):
                    L[b, i, j] /= root[i]
    S = np.zeros((C * r, C * r))
    if r:
        if has_parent:
            _subtract_coupled(S, L, Z, starts, local, first, count, k)
        for c in range(C):
            for i in range(r):
                for j in range(r):
                    S[c * r + i, c * r + j] += scale[c] * J[c, i, j]
                S[c * r + i, c * r + i] += scale[c]
        most_diagonal = 0.0
        for c in range(C):
            for i in range(r):
                most_diagonal = max(most_diagonal, S[c * r + i, c * r + i] / scale[c])
        for c in range(C):
            for i in range(r):
                S[c * r + i, c * r + i] += 1e-14 * most_diagonal * scale[c]
        if C * r <= _BY_HAND:
            _factorise(S, C * r)
        else:
            factor = np.linalg.cholesky(S)
            for i in range(C * r):
                for j in range(i + 1):
                    S[i, j] = factor[i, j]
    return r, local, first, count, place, K, Frow, Z, L, S


@_compiled
def _subtract_coupled(S, L, Z, starts, local, first, count, k):
    """S -= sum_b (L_b^-1 Z_b)' (L_b^-1 Z_b), the lower half, in panels that fit the cache."""
    B, C = first.shape
    r = Z.shape[1]
    m = min(_PANEL, C * r)
    panels = np.zeros(((C * r + m - 1) // m, k, m))
    for b in range(B):
        start = starts[b]
        for c in range(C):
            for i in range(first[b, c], first[b, c] + count[b, c]):
                for j in range(r):
                    column = c * r + j
                    panels[column // m, start + local[i], column % m] = Z[i, j]
    for q in range(len(panels)):
        Y = panels[q]
        for b in range(B):
            start = starts[b]
            for i in range(starts[b + 1] - start):
                for j in range(i):
                    v = L[b, i, j]
                    if v != 0.0:
                        for t in range(m):
                            Y[start + i, t] -= v * Y[start + j, t]
                v = 1.0 / L[b, i, i]
                for t in range(m):
                    Y[start + i, t] *= v
        high = min(q * m + m, C * r)
        for p in range(q + 1):
            right = min(p * m + m, C * r)
            product = np.dot(Y.T, panels[p])
            for i in range(high - q * m):
                for j in range(right - p * m):
                    S[q * m + i, p * m + j] -= product[i, j]


@_compiled
def _apply(factors, right, missing, data):
    """See `elimination.Elimination.solve`."""
    (scale, linear, parent, has_parent, starts, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    r, local, first, count, place, K, Frow, Z, L, S = factors
    C, k = right.shape
    B = len(starts) - 1
    dx = np.zeros((C, k))
    change = np.zeros(k)
    piece = np.empty(L.shape[1])
    _times(factors, right, np.ones(C), starts, dx)
    if has_parent:
        change = missing.copy()
        for c in range(C):
            for i in range(k):
                change[i] -= dx[c, i]
        for b in range(B):
            size = starts[b + 1] - starts[b]
            _forward(L[b], size, change[starts[b] :])
            _backward(L[b], size, change[starts[b] :])
    if r:
        y = np.zeros(C * r)
        for b in range(B):
            for c in range(C):
                for i in range(first[b, c], first[b, c] + count[b, c]):
                    cell = starts[b] + local[i]
                    v, w = scale[c] * dx[c, cell], change[cell]
                    for j in range(r):
                        y[c * r + j] += v * Frow[i, j] + w * Z[i, j]
        _forward(S, C * r, y)
        _backward(S, C * r, y)
        for b in range(B):
            size = starts[b + 1] - starts[b]
            piece[:size] = 0.0
            for c in range(C):
                for i in range(first[b, c], first[b, c] + count[b, c]):
                    t = 0.0
                    for j in range(r):
                        t += Z[i, j] * y[c * r + j]
                    dx[c, starts[b] + local[i]] -= t
                    piece[local[i]] += t
            if has_parent:
                _forward(L[b], size, piece)
                _backward(L[b], size, piece)
                for i in range(size):
                    change[starts[b] + i] += piece[i]
    if has_parent:
        _times(factors, np.broadcast_to(change, (C, k)).copy(), 1.0 / scale, starts, dx)
    return dx, change


@_compiled
def _times(factors, right, share, starts, out):
    """Add share_c K_c right_c to out."""
    r, local, first, count, place, K, Frow, Z, L, S = factors
    B, C = first.shape
    piece = np.empty(L.shape[1])
    for b in range(B):
        for c in range(C):
            n, at, square = count[b, c], first[b, c], place[b, c]
            for j in range(n):
                piece[j] = right[c, starts[b] + local[at + j]]
            for i in range(n):
                t = 0.0
                for j in range(n):
                    t += K[square + i * n + j] * piece[j]
                out[c, starts[b] + local[at + i]] += share[c] * t


@_compiled
def _copy(one, other):
    """Copy one array to another, flat, of the same size."""
    for i in range(len(one)):
        other[i] = one[i]


@_compiled
def _copy_point(x, lam, mu, nu, to_x, to_lam, to_mu, to_nu):
    _copy(x.reshape(-1), to_x.reshape(-1))
    _copy(lam, to_lam)
    _copy(mu.reshape(-1), to_mu.reshape(-1))
    _copy(nu.reshape(-1), to_nu.reshape(-1))


@_compiled
def _correct(factors, support, sides, x, lam, mu, nu, data, goal):
    """Rounds of correction with the same factors (method of multipliers).

    Returns the gradient at the end.
    """
    (scale, linear, parent, has_parent, starts, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    C, k = x.shape
    for c in range(C):
        for i in range(k):
            if not support[c, i]:
                x[c, i] = 0.0
        for n in range(len(R)):
            if sides[c, n] == 0:
                nu[c, n] = 0.0
    best_x, best_lam, best_mu, best_nu = x.copy(), lam.copy(), mu.copy(), nu.copy()
    least_off = np.inf
    gaps = np.zeros_like(mu)
    row_gap = np.zeros_like(nu)
    missing = np.zeros(k)
    right = np.empty((C, k))
    best_g = right
    for _ in range(_ROUNDS):
        g = _lagrangian_gradient(x, lam, mu, nu, data)
        off, biggest = 0.0, 1.0
        for c in range(C):
            for i in range(k):
                right[c, i] = -g[c, i] / scale[c] if support[c, i] else 0.0
                off = max(off, abs(right[c, i]))
                biggest = max(biggest, abs(x[c, i]))
        if has_parent:
            missing = parent.copy()
            for c in range(C):
                for i in range(k):
                    missing[i] -= x[c, i]
            for i in range(k):
                off = max(off, abs(missing[i]))
        for e in range(len(eq_groups)):
            sums = _sums(x, eq_groups[e], eq_sizes[e])
            for c in range(C):
                for i in range(eq_sizes[e]):
                    gaps[e, c, i] = eq_targets[e, c, i] - sums[c, i]
                    off = max(off, abs(gaps[e, c, i]))
        for n in range(len(R)):
            for c in range(C):
                if sides[c, n] != 0:
                    t = least[c, n] if sides[c, n] < 0 else most[c, n]
                    for i in range(k):
                        t -= R[n, i] * x[c, i]
                    row_gap[c, n] = t
                    off = max(off, abs(t))
        off /= biggest
        if not off < 0.5 * least_off and least_off < np.inf:
            break
        least_off, best_g = off, g
        _copy_point(x, lam, mu, nu, best_x, best_lam, best_mu, best_nu)
        if off <= goal:
            break
        for c in range(C):
            for e in range(len(eq_groups)):
                for i in range(k):
                    if support[c, i]:
                        right[c, i] += penalty * gaps[e, c, eq_groups[e, i]]
            for n in range(len(R)):
                if sides[c, n] != 0:
                    for i in range(k):
                        if support[c, i]:
                            right[c, i] += penalty * row_gap[c, n] * R[n, i]
        dx, change = _apply(factors, right, missing, data)
        for e in range(len(eq_groups)):
            sums = _sums(dx, eq_groups[e], eq_sizes[e])
            for c in range(C):
                for i in range(eq_sizes[e]):
                    mu[e, c, i] += scale[c] * penalty * (gaps[e, c, i] - sums[c, i])
        for n in range(len(R)):
            for c in range(C):
                if sides[c, n] != 0:
                    t = row_gap[c, n]
                    for i in range(k):
                        t -= R[n, i] * dx[c, i]
                    nu[c, n] += scale[c] * penalty * t
        lam += change
        x += dx
    _copy_point(best_x, best_lam, best_mu, best_nu, x, lam, mu, nu)
    return best_g


@_compiled
def _residual(x, g, nu, data):
    """See `certificate.natural_residual`."""
    (scale, linear, parent, has_parent, starts, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    C, k = x.shape
    worst, size = 0.0, 1.0
    for c in range(C):
        for i in range(k):
            v = x[c, i]
            size = max(size, v)
            worst = max(worst, -v)
            if free[c, i]:
                worst = max(worst, abs(min(max(v, 0.0), g[c, i] / scale[c])))
            if not np.isfinite(g[c, i]):
                return np.inf
    if has_parent:
        for i in range(k):
            t = -parent[i]
            for c in range(C):
                t += max(x[c, i], 0.0)
            worst = max(worst, abs(t))
    for e in range(len(eq_groups)):
        sums = _sums(np.maximum(x, 0.0), eq_groups[e], eq_sizes[e])
        for c in range(C):
            for i in range(eq_sizes[e]):
                worst = max(worst, abs(sums[c, i] - eq_targets[e, c, i]))
    for n in range(len(R)):
        for c in range(C):
            t = 0.0
            for i in range(k):
                t += R[n, i] * max(x[c, i], 0.0)
            v = nu[c, n] / scale[c]
            worst = max(worst, least[c, n] - t, t - most[c, n])
            worst = max(worst, abs(min(t - least[c, n], max(v, 0.0))))
            worst = max(worst, abs(min(most[c, n] - t, max(-v, 0.0))))
    return worst / size


@_compiled
def _next(support, sides, x, g, nu, data):
    """See `active_set.next_guess`; returns whether anything changed."""
    (scale, linear, parent, has_parent, starts, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    C, k = x.shape
    P = F.shape[0]
    changed = False
    for c in range(C):
        p = c if P > 1 else 0
        for i in range(k):
            now = free[c, i] and x[c, i] - g[c, i] / (scale[c] * diagonal[p, i]) > 0
            if now != support[c, i]:
                support[c, i] = now
                changed = True
        for n in range(len(R)):
            t = 0.0
            for i in range(k):
                t += R[n, i] * x[c, i]
            v = nu[c, n] / scale[c]
            side = 0
            if least[c, n] == most[c, n] or v - (t - least[c, n]) > 0:
                side = -1
            elif -v - (most[c, n] - t) > 0:
                side = 1
            if side != sides[c, n]:
                sides[c, n] = side
                changed = True
    return changed


@_compiled
def active_set(support, sides, x, lam, mu, nu, data, tolerance, most_steps, stale_steps):
    """See `active_set.iterate`.

    While supports change, a guess is solved only as well as the next needs; the last one to the
    last digits, so that other processors find the same values but for those, which keeps rounding
    from telling them apart. Overwrites x, lam, mu and nu with the point of the smallest residual;
    returns that and steps.
    """
    (scale, linear, parent, has_parent, starts, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    best_x, best_lam, best_mu, best_nu = x.copy(), lam.copy(), mu.copy(), nu.copy()
    least_residual, stale, steps = np.inf, 0, 0
    for _ in range(most_steps):
        _hold(support, free, linear, parent, has_parent, eq_groups, eq_targets, eq_sizes)
        factors = _factors(support, sides, data)
        steps += 1
        changed = False
        for goal in (_ROUGH, _FINE):
            g = _correct(factors, support, sides, x, lam, mu, nu, data, goal)
            residual = _residual(x, g, nu, data)
            next_support, next_sides = support.copy(), sides.copy()
            changed = _next(next_support, next_sides, x, g, nu, data)
            if (changed and residual > tolerance) or not np.isfinite(residual):
                break
        if not np.isfinite(residual):
            break
        if residual < least_residual:
            least_residual, stale = residual, 0
            _copy_point(x, lam, mu, nu, best_x, best_lam, best_mu, best_nu)
        else:
            stale += 1
        if least_residual <= tolerance or stale >= stale_steps or not changed:
            break
        support, sides = next_support, next_sides
    _copy_point(best_x, best_lam, best_mu, best_nu, x, lam, mu, nu)
    return least_residual, steps


def compile_all():
    """Call every kernel with a node of two children and two cells, types as callers hand over."""
    one, two, square = np.ones(1), np.ones(2), np.ones((2, 2))
    none, nowhere = np.zeros((2, 0)), np.zeros(0, np.int64)
    cells, ends = np.arange(2), np.array([0, 2])
    free = np.ones((2, 2), np.bool_)
    adjoint(cells[None], square, np.ones((1, 2)))
    gram_blocks(cells[None], np.ones((1, 1)), cells[None])
    gradient(cells[None], ends, square, np.ones((1, 2)), square)
    project_by_cell(square, square, free, two)
    project_by_child(square, two, two, two.copy(), -1.0)
    substitute(one, np.arange(2), np.arange(2), np.zeros(1, np.bool_), one)
    no_equalities = np.zeros((0, 2), np.int64), np.zeros((0, 2, 0)), nowhere, np.zeros(0, np.bool_)
    data = (
        two,
        square,
        two,
        True,
        ends,
        np.eye(2)[None, None],
        np.zeros((1, 0, 2)),
        np.ones((1, 2)),
        free,
        *no_equalities,
        np.zeros((0, 2)),
        none,
        none,
        1e4,
    )
    start = np.zeros((2, 2)), np.zeros(2), np.zeros((0, 2, 0)), none.copy()
    active_set(free, none.astype(np.int64), *start, data, 1e-9, 1, 1)
