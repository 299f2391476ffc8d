"""Compiled active-set iterations: the steps of `active_set`, child by child on their own cells.

The same method as in `active_set` and `elimination`, with loops in place of padded arrays, so that
small supports cost little. Needs the package numba; loaded on first use, since compiled code takes
a second to load.
"""

# Types are inferred by the compiler, from the arrays that `compiled` hands over.
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, RUF059

from __future__ import annotations

import numba
import numpy as np

_compiled = numba.njit(cache=True, error_model="numpy")


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
def _invert(M, n, W):
    """Overwrite W[:n, :n] with the inverse of the positive definite M[:n, :n]; destroys M."""
    _factorise(M, n)
    for j in range(n):  # W = L^-1, lower triangle
        W[j, j] = 1.0 / M[j, j]
        for i in range(j + 1, n):
            t = 0.0
            for m in range(j, i):
                t -= M[i, m] * W[m, j]
            W[i, j] = t / M[i, i]
    for i in range(n):  # M = W' W
        for j in range(i + 1):
            t = 0.0
            for m in range(i, n):
                t += W[m, i] * W[m, j]
            M[i, j] = t
    for i in range(n):
        for j in range(i + 1):
            W[i, j] = M[i, j]
            W[j, i] = M[i, j]


@_compiled
def _gradient(x, lam, mu, nu, scale, linear, starts, cells, blocks, F, eq_groups, R, has_parent):
    C, k = x.shape
    P = blocks.shape[1]
    r = F.shape[1]
    g = np.empty((C, k))
    Fx = np.empty(r)
    for c in range(C):
        p = c if P > 1 else 0
        f = scale[c]
        for j in range(r):
            t = 0.0
            for i in range(k):
                t += F[p, j, i] * x[c, i]
            Fx[j] = t
        for i in range(k):
            g[c, i] = -linear[c, i]
        for j in range(r):
            t = Fx[j]
            for i in range(k):
                g[c, i] += F[p, j, i] * t
        for b in range(len(starts) - 1):
            n = starts[b + 1] - starts[b]
            for j in range(n):
                v = x[c, cells[starts[b] + j]]
                if v != 0.0:
                    for i in range(n):
                        g[c, cells[starts[b] + i]] += blocks[b, p, j, i] * v
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
def _guess(support, sides, x, lam, mu, nu, data):
    """Solve the equality-constrained problem of a guess, by rounds of correction."""
    (scale, linear, parent, has_parent, starts, cells, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    C, k = x.shape
    P, r0 = F.shape[0], F.shape[1]
    B = len(starts) - 1
    # Rows outside the blocks: F, the equalities across blocks, the rows at their limits.
    extra = 0
    for e in range(len(eq_groups)):
        if not eq_inside[e]:
            extra += eq_sizes[e]
    used_rows = 0
    for n in range(len(R)):
        if (sides[:, n] != 0).any():
            used_rows += 1
    r = r0 + extra + used_rows
    width = 0
    for b in range(B):
        width = max(width, starts[b + 1] - starts[b])
    # Index of the support, per block and child.
    total, squares, at = 0, 0, 0
    for b in range(B):
        for c in range(C):
            n = 0
            for i in range(starts[b], starts[b + 1]):
                if support[c, cells[i]]:
                    n += 1
            total += n
            squares += n * n
    local = np.empty(total, np.int64)  # position within the block
    first = np.empty((B, C), np.int64)
    count = np.empty((B, C), np.int64)
    place = np.empty((B, C), np.int64)
    K = np.empty(squares)
    Z = np.empty((total, r))
    Frow = np.zeros((total, r))
    L = np.zeros((B, width, width))
    M = np.empty((width, width))
    W = np.empty((width, width))
    root = np.empty(width)
    J = np.zeros((C, r, r))
    Y = np.zeros((C * r if has_parent else 0, k))
    column = np.empty(width)
    square = 0
    for b in range(B):
        size = starts[b + 1] - starts[b]
        for c in range(C):
            p = c if P > 1 else 0
            n = 0
            first[b, c] = at
            for i in range(size):
                if support[c, cells[starts[b] + i]]:
                    local[at + n] = i
                    n += 1
            count[b, c] = n
            place[b, c] = square
            for i in range(n):
                for j in range(i + 1):
                    v = blocks[b, p, local[at + i], local[at + j]]
                    for e in range(len(eq_groups)):
                        if eq_inside[e]:
                            one = eq_groups[e, cells[starts[b] + local[at + i]]]
                            if one == eq_groups[e, cells[starts[b] + local[at + j]]]:
                                v += penalty
                    M[i, j] = v
            for i in range(n):
                root[i] = 1.0 / np.sqrt(M[i, i])
            for i in range(n):
                for j in range(i + 1):
                    M[i, j] *= root[i] * root[j]
            if n > 40:
                for i in range(n):
                    for j in range(i):
                        M[j, i] = M[i, j]
                W[:n, :n] = np.linalg.inv(np.ascontiguousarray(M[:n, :n]))
            else:
                _invert(M, n, W)
            for i in range(n):
                for j in range(n):
                    v = W[i, j] * root[i] * root[j]
                    K[square + i * n + j] = v
                    L[b, local[at + i], local[at + j]] += v / scale[c]
            # Outside rows on this support.
            for i in range(n):
                cell = cells[starts[b] + local[at + i]]
                for j in range(r0):
                    Frow[at + i, j] = F[p, j, cell]
                put = r0
                for e in range(len(eq_groups)):
                    if not eq_inside[e]:
                        Frow[at + i, put + eq_groups[e, cell]] = np.sqrt(penalty)
                        put += eq_sizes[e]
                for m in range(len(R)):
                    if (sides[:, m] != 0).any():
                        if sides[c, m] != 0:
                            Frow[at + i, put] = np.sqrt(penalty) * R[m, cell]
                        put += 1
            for i in range(n):
                for j in range(r):
                    Z[at + i, j] = 0.0
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
                for j in range(size):
                    L[b, i, j] *= root[i] * root[j]
                L[b, i, i] = 1.0 + 1e-14
            if size > 40:
                for i in range(size):
                    L[b, i, i] += 1e-13
                L[b, :size, :size] = np.linalg.cholesky(np.ascontiguousarray(L[b, :size, :size]))
            else:
                _factorise(L[b], size)
            for i in range(size):
                for j in range(size):
                    L[b, i, j] /= root[i]
            if r:
                for c in range(C):
                    n, start = count[b, c], first[b, c]
                    if n == 0:
                        continue
                    for j in range(r):
                        for i in range(size):
                            column[i] = 0.0
                        for i in range(n):
                            column[local[start + i]] = Z[start + i, j]
                        _forward(L[b], size, column)
                        for i in range(size):
                            Y[c * r + j, starts[b] + i] = column[i]
    S = np.zeros((0, 0))
    if r:
        S = np.zeros((C * r, C * r))
        if has_parent:
            for i in range(0, C * r, 96):  # the lower half only
                j = min(i + 96, C * r)
                S[i:j, :j] -= np.dot(Y[i:j], Y[:j].T)
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
        if C * r <= 48:
            _factorise(S, C * r)
        else:
            S = np.linalg.cholesky(S)
    # Rounds of correction.
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
    y = np.empty(C * r)
    missing = np.zeros(k)
    change = np.zeros(k)
    dx = np.zeros((C, k))
    piece = np.empty(width)
    for _ in range(10):
        right = _gradient(
            x, lam, mu, nu, scale, linear, starts, cells, blocks, F, eq_groups, R, has_parent
        )
        off, biggest = 0.0, 1.0
        for c in range(C):
            for i in range(k):
                right[c, i] = -right[c, i] / scale[c] if support[c, i] else 0.0
                off = max(off, abs(right[c, i]))
                biggest = max(biggest, abs(x[c, i]))
        if has_parent:
            for i in range(k):
                t = parent[i]
                for c in range(C):
                    t -= x[c, i]
                missing[i] = t
                off = max(off, abs(t))
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
        if not off < 0.5 * least_off:
            break
        least_off = off
        best_x[:], best_lam[:], best_mu[:], best_nu[:] = x, lam, mu, nu
        if off <= 1e-13:
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
        # dx = K right, then the coupling, then the outside rows.
        dx[:] = 0.0
        for b in range(B):
            for c in range(C):
                n, start, square = count[b, c], first[b, c], place[b, c]
                for i in range(n):
                    t = 0.0
                    for j in range(n):
                        t += K[square + i * n + j] * right[c, cells[starts[b] + local[start + j]]]
                    dx[c, cells[starts[b] + local[start + i]]] = t
        change[:] = 0.0
        if has_parent:
            for b in range(B):
                size = starts[b + 1] - starts[b]
                for i in range(size):
                    cell = cells[starts[b] + i]
                    t = missing[cell]
                    for c in range(C):
                        t -= dx[c, cell]
                    piece[i] = t
                _forward(L[b], size, piece)
                _backward(L[b], size, piece)
                for i in range(size):
                    change[cells[starts[b] + i]] = piece[i]
        if r:
            y[:] = 0.0
            for b in range(B):
                for c in range(C):
                    n, start = count[b, c], first[b, c]
                    for i in range(n):
                        cell = cells[starts[b] + local[start + i]]
                        v, w = scale[c] * dx[c, cell], change[cell]
                        for j in range(r):
                            y[c * r + j] += v * Frow[start + i, j] + w * Z[start + i, j]
            _forward(S, C * r, y)
            _backward(S, C * r, y)
            for b in range(B):
                size = starts[b + 1] - starts[b]
                for i in range(size):
                    piece[i] = 0.0
                for c in range(C):
                    n, start = count[b, c], first[b, c]
                    for i in range(n):
                        t = 0.0
                        for j in range(r):
                            t += Z[start + i, j] * y[c * r + j]
                        dx[c, cells[starts[b] + local[start + i]]] -= t
                        piece[local[start + i]] += t
                if has_parent:
                    _forward(L[b], size, piece)
                    _backward(L[b], size, piece)
                    for i in range(size):
                        change[cells[starts[b] + i]] += piece[i]
        if has_parent:
            for b in range(B):
                for c in range(C):
                    n, start, square = count[b, c], first[b, c], place[b, c]
                    for i in range(n):
                        t = 0.0
                        for j in range(n):
                            t += K[square + i * n + j] * change[cells[starts[b] + local[start + j]]]
                        dx[c, cells[starts[b] + local[start + i]]] += t / scale[c]
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
        for i in range(k):
            lam[i] += change[i]
            for c in range(C):
                x[c, i] += dx[c, i]
    x[:], lam[:], mu[:], nu[:] = best_x, best_lam, best_mu, best_nu


@_compiled
def _residual(x, g, nu, data):
    """See `optimality.natural_residual`."""
    (scale, linear, parent, has_parent, starts, cells, blocks, F, diagonal, free,
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
    (scale, linear, parent, has_parent, starts, cells, blocks, F, diagonal, free,
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
    """See `active_set.iterate`; with no step taken yet the first guess is without signs.

    Overwrites x, lam, mu and nu with the point of the smallest residual; returns that and steps.
    """
    (scale, linear, parent, has_parent, starts, cells, blocks, F, diagonal, free,
     eq_groups, eq_targets, eq_sizes, eq_inside, R, least, most, penalty) = data  # fmt: skip
    best_x, best_lam, best_mu, best_nu = x.copy(), lam.copy(), mu.copy(), nu.copy()
    least_residual, stale, steps = np.inf, 0, 0
    for _ in range(most_steps):
        _hold(support, free, linear, parent, has_parent, eq_groups, eq_targets, eq_sizes)
        _guess(support, sides, x, lam, mu, nu, data)
        steps += 1
        g = _gradient(
            x, lam, mu, nu, scale, linear, starts, cells, blocks, F, eq_groups, R, has_parent
        )
        residual = _residual(x, g, nu, data)
        if not np.isfinite(residual):
            break
        if residual < least_residual:
            least_residual, stale = residual, 0
            best_x[:], best_lam[:], best_mu[:], best_nu[:] = x, lam, mu, nu
        else:
            stale += 1
        if least_residual <= tolerance or stale >= stale_steps:
            break
        if not _next(support, sides, x, g, nu, data):
            break
    x[:], lam[:], mu[:], nu[:] = best_x, best_lam, best_mu, best_nu
    return least_residual, steps
