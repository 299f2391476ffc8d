"""Compiled loops: sums over partition queries, projections, active-set iterations.

Each child is computed on its positive cells, without padded arrays, so that small supports cost
little: 3 to 5 times as fast as NumPy, from nodes of 4 variables up to those of 3,570
(`python -m bench.newton_step`). The tests define the same functions in arrays and compare the two.
Loaded on first use, by `machine_code`.

Arrays are copied in loops: `a[:] = b` compiles seconds longer, for its error message on shapes.
"""

from __future__ import annotations

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from solvers.least_squares.arrays import Factors, Guess, Point, Problem, Spots
from solvers.least_squares.machine_code import Fields, compiled_in_any_order

_BY_HAND = 48  # largest matrix that loops factorise faster than LAPACK; default, not measured
_PANEL = 96  # columns that fit the cache; default, not measured
_ROUNDS = 10  # of correction with the same factors; each except the last halves the residual
_ROUGH, _FINE = 1e-8, 1e-15  # accepted residuals of a guess: of any one, and of the last


@compiled_in_any_order
def adjoint(index: IntArray, answers: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the right-hand side of the normal equations, sum_q w_cq Q_q' y_cq, float64[C, k].

    `index` int64[T, k] are columns of float64[C, M] answers, weights float64[T, C].
    """
    T, k = index.shape
    C = len(answers)
    out = np.zeros((C, k))
    for c in range(C):
        for t in range(T):
            w = weights[t, c]
            for i in range(k):
                out[c, i] += w * answers[c, index[t, i]]
    return out


@compiled_in_any_order
def gram_blocks(index: IntArray, weights: FloatArray, cells: IntArray) -> FloatArray:
    """Return blocks of the Gram matrix sum_q w_pq Q_q' Q_q, float64[B, P, s, s].

    `index` int64[T, k] are groups, weights float64[T, P], and int64[B, s] the cells of each block,
    k where a block has fewer than s.
    """
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
                    group, w = groups[t, i], weights[t, p]
                    for j in range(n):
                        out[b, p, i, j] += w if groups[t, j] == group else 0.0
    return out


@compiled_in_any_order
def gradient(
    index: IntArray, ends: IntArray, answers: FloatArray, weights: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    """Compute the gradient of sum_cq w_cq |Q_q x_c - y_cq|^2 / 2.

    The columns of query t are ends[t]:ends[t + 1]. Returns the gradient float64[C, k]; w (Q x - y),
    float64[C, M]; and the sums of w (Q x)^2 and of w y Q x.
    """
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


@compiled_in_any_order
def project_by_cell(
    x: FloatArray, give: FloatArray, free: BoolArray, parent: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return the nearest x >= 0 that sums to the parent in every cell, and its support.

    Each cell is projected separately. `give` float64[C, k] is the change of each cell per unit of
    the multiplier of the sum. `free` are the cells that may be positive. Method: Michelot, J.
    Optim. Theory Appl. 50 (1986), 195-200.
    """
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


@compiled_in_any_order
def factorise(M: FloatArray, n: int) -> None:
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


@compiled_in_any_order
def forward(L: FloatArray, n: int, v: FloatArray) -> None:
    """Overwrite v with L^-1 v."""
    for i in range(n):
        t = v[i]
        for j in range(i):
            t -= L[i, j] * v[j]
        v[i] = t / L[i, i]


@compiled_in_any_order
def backward(L: FloatArray, n: int, v: FloatArray) -> None:
    """Overwrite v with L^-T v."""
    for i in range(n - 1, -1, -1):
        v[i] /= L[i, i]
        t = v[i]
        for j in range(i):
            v[j] -= L[i, j] * t


@compiled_in_any_order
def _invert(M: FloatArray, n: int, W: FloatArray) -> None:
    """Overwrite M[:n, :n], positive definite, with its inverse; W is a workspace."""
    factorise(M, n)
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


@compiled_in_any_order
def _lagrangian_gradient(point: Point, problem: Problem) -> FloatArray:
    """Compute the gradient of the Lagrangian like `certificate.gradient`."""
    x, lam, mu, nu = point.x, point.coupling, point.sums, point.rows
    scale, linear, has_parent = problem.scale, problem.linear, problem.has_parent
    starts, blocks, F, eq_groups = problem.starts, problem.blocks, problem.outside, problem.groups
    R = problem.coefficients
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


@compiled_in_any_order
def _sums(x: FloatArray, groups: IntArray, m: int) -> FloatArray:
    """Compute sums of cells by group, float64[C, m]."""
    C, k = x.shape
    out = np.zeros((C, m))
    for c in range(C):
        for i in range(k):
            out[c, groups[i]] += x[c, i]
    return out


@compiled_in_any_order
def _complete_support(support: BoolArray, problem: Problem) -> None:
    """Give each live cell a child, and each positive group a cell, in the support."""
    free, linear, targets, sizes = problem.free, problem.linear, problem.targets, problem.sizes
    C, k = support.shape
    if problem.has_parent:
        for i in range(k):
            if not support[:, i].any():
                best = -1
                for c in range(C):
                    if free[c, i] and (best < 0 or linear[c, i] > linear[best, i]):
                        best = c
                if best >= 0:
                    support[best, i] = True
    for e in range(len(problem.groups)):
        held = np.zeros((C, sizes[e]), np.bool_)
        for c in range(C):
            for i in range(k):
                if support[c, i]:
                    held[c, problem.groups[e, i]] = True
            for i in range(k):
                group = problem.groups[e, i]
                if not held[c, group] and targets[e, c, group] > 0 and free[c, i]:
                    support[c, i] = True


@compiled_in_any_order
def _factors(guess: Guess, problem: Problem) -> Factors:
    """Factorise the linear system of a guess."""
    support, sides = guess.support, guess.sides
    scale, has_parent, starts = problem.scale, problem.has_parent, problem.starts
    blocks, F, eq_groups, eq_sizes = problem.blocks, problem.outside, problem.groups, problem.sizes
    eq_inside, R, penalty = problem.is_inside, problem.coefficients, problem.penalty
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
    spots = Spots(local, first, count, place)
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
                        group = eq_groups[e, start + local[at + i]]
                        for j in range(i + 1):
                            if group == eq_groups[e, start + local[at + j]]:
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
                factorise(L[b], size)
            for i in range(size):
                for j in range(i + 1):
                    L[b, i, j] /= root[i]
    S = np.zeros((C * r, C * r))
    if r:
        if has_parent:
            _subtract_coupled(S, L, Z, starts, spots, k)
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
            factorise(S, C * r)
        else:
            factor = np.linalg.cholesky(S)
            for i in range(C * r):
                for j in range(i + 1):
                    S[i, j] = factor[i, j]
    return Factors(spots, K, Frow, Z, L, S)


@compiled_in_any_order
def _subtract_coupled(
    S: FloatArray, L: FloatArray, Z: FloatArray, starts: IntArray, spots: Spots, k: int
) -> None:
    """Subtract sum_b (L_b^-1 Z_b)' (L_b^-1 Z_b) from the lower half of S, in cache-sized panels."""
    local, first, count = spots.local, spots.first, spots.held
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


@compiled_in_any_order
def _apply(
    factors: Factors, right: FloatArray, missing: FloatArray, problem: Problem
) -> tuple[FloatArray, FloatArray]:
    """Solve the linear system like `elimination.Elimination.solve`."""
    scale, has_parent, starts = problem.scale, problem.has_parent, problem.starts
    r = factors.Z.shape[1]
    local, first, count = factors.spots.local, factors.spots.first, factors.spots.held
    Frow, Z, L, S = factors.rows, factors.Z, factors.L, factors.S
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
            forward(L[b], size, change[starts[b] :])
            backward(L[b], size, change[starts[b] :])
    if r:
        y = np.zeros(C * r)
        for b in range(B):
            for c in range(C):
                for i in range(first[b, c], first[b, c] + count[b, c]):
                    cell = starts[b] + local[i]
                    v, w = scale[c] * dx[c, cell], change[cell]
                    for j in range(r):
                        y[c * r + j] += v * Frow[i, j] + w * Z[i, j]
        forward(S, C * r, y)
        backward(S, C * r, y)
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
                forward(L[b], size, piece)
                backward(L[b], size, piece)
                for i in range(size):
                    change[starts[b] + i] += piece[i]
    if has_parent:
        _times(factors, np.broadcast_to(change, (C, k)).copy(), 1.0 / scale, starts, dx)
    return dx, change


@compiled_in_any_order
def _times(
    factors: Factors, right: FloatArray, share: FloatArray, starts: IntArray, out: FloatArray
) -> None:
    """Add share_c K_c right_c to out."""
    local, first, count = factors.spots.local, factors.spots.first, factors.spots.held
    place, K, L = factors.spots.place, factors.K, factors.L
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


@compiled_in_any_order
def _copy(source: FloatArray, target: FloatArray) -> None:
    """Copy a flat array to another of the same size."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled_in_any_order
def _copy_point(point: Point, other: Point) -> None:
    """Copy a point to another."""
    _copy(point.x.reshape(-1), other.x.reshape(-1))
    _copy(point.coupling, other.coupling)
    _copy(point.sums.reshape(-1), other.sums.reshape(-1))
    _copy(point.rows.reshape(-1), other.rows.reshape(-1))


@compiled_in_any_order
def _correct(
    factors: Factors, guess: Guess, point: Point, problem: Problem, goal: float
) -> FloatArray:
    """Correct the point in place by the method of multipliers, with one factorization.

    The rounds end when the residual is at most `goal`, or is not halved. The point with the least
    residual is kept.

    Args:
      factors: Factorized matrices of the cells in the support.
      guess: Guessed positive cells and active rows; all other cells are set to zero.
      point: Candidate solution, overwritten.
      problem: The node problem.
      goal: Largest residual of a solution, relative to its largest cell.

    Returns:
      float64[C, k], gradient of the Lagrangian at the kept point.
    """
    support, sides = guess.support, guess.sides
    x, lam, mu, nu = point.x, point.coupling, point.sums, point.rows
    scale, parent, has_parent = problem.scale, problem.parent, problem.has_parent
    eq_groups, eq_targets, eq_sizes = problem.groups, problem.targets, problem.sizes
    R, least, most, penalty = problem.coefficients, problem.least, problem.most, problem.penalty
    C, k = x.shape
    for c in range(C):
        for i in range(k):
            if not support[c, i]:
                x[c, i] = 0.0
        for n in range(len(R)):
            if sides[c, n] == 0:
                nu[c, n] = 0.0
    best = Point(x.copy(), lam.copy(), mu.copy(), nu.copy())
    least_off = np.inf
    gaps = np.zeros_like(mu)
    row_gap = np.zeros_like(nu)
    missing = np.zeros(k)
    right = np.empty((C, k))
    best_g = right
    for _ in range(_ROUNDS):
        g = _lagrangian_gradient(point, problem)
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
        _copy_point(point, best)
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
        dx, change = _apply(factors, right, missing, problem)
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
    _copy_point(best, point)
    return best_g


@compiled_in_any_order
def _residual(point: Point, g: FloatArray, problem: Problem) -> float:
    """Compute the residual like `certificate.natural_residual`."""
    x, nu = point.x, point.rows
    scale, parent, has_parent = problem.scale, problem.parent, problem.has_parent
    free, eq_groups, eq_targets = problem.free, problem.groups, problem.targets
    eq_sizes, R, least, most = problem.sizes, problem.coefficients, problem.least, problem.most
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


@compiled_in_any_order
def _update_guess(guess: Guess, point: Point, g: FloatArray, problem: Problem) -> bool:
    """Update the guess like `active_set.next_guess`; returns whether it changed."""
    support, sides, x, nu = guess.support, guess.sides, point.x, point.rows
    scale, F, diagonal, free = problem.scale, problem.outside, problem.diagonal, problem.free
    R, least, most = problem.coefficients, problem.least, problem.most
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


@compiled_in_any_order
def active_set(
    first: Fields,
    start: Fields,
    fields: Fields,
    tolerance: float,
    most_steps: int,
    stale_steps: int,
) -> tuple[float, int]:
    """Iterate by active sets from the `Guess` `first` and the `Point` `start` of a `Problem`.

    While supports change, a guess is solved only as accurately as the next needs. The last one is
    solved to the last digits, so that all processors find the same values up to these digits, which
    rounding ignores. Overwrites the point with the one of the smallest residual; returns that
    residual and the number of steps.
    """
    guess, point, problem = Guess(*first), Point(*start), Problem(*fields)
    best = Point(point.x.copy(), point.coupling.copy(), point.sums.copy(), point.rows.copy())
    least_residual, stale, steps = np.inf, 0, 0
    for _ in range(most_steps):
        _complete_support(guess.support, problem)
        factors = _factors(guess, problem)
        steps += 1
        changed = False
        for goal in (_ROUGH, _FINE):
            g = _correct(factors, guess, point, problem, goal)
            residual = _residual(point, g, problem)
            after = Guess(guess.support.copy(), guess.sides.copy())
            changed = _update_guess(after, point, g, problem)
            if (changed and residual > tolerance) or not np.isfinite(residual):
                break
        if not np.isfinite(residual):
            break
        if residual < least_residual:
            least_residual, stale = residual, 0
            _copy_point(point, best)
        else:
            stale += 1
        if least_residual <= tolerance or stale >= stale_steps or not changed:
            break
        guess = after
    _copy_point(best, point)
    return least_residual, steps


def compile_all() -> None:
    """Compile every kernel by a node of two children and two cells, with its callers' types."""
    two, square = np.ones(2), np.ones((2, 2))
    none, nowhere = np.zeros((2, 0)), np.zeros(0, np.int64)
    cells, ends = np.arange(2), np.array([0, 2])
    free = np.ones((2, 2), np.bool_)
    adjoint(cells[None], square, np.ones((1, 2)))
    gram_blocks(cells[None], np.ones((1, 1)), cells[None])
    gradient(cells[None], ends, square, np.ones((1, 2)), square)
    project_by_cell(square, square, free, two)
    no_equalities = np.zeros((0, 2), np.int64), np.zeros((0, 2, 0)), nowhere, np.zeros(0, np.bool_)
    problem = Problem(
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
    start = Point(np.zeros((2, 2)), np.zeros(2), np.zeros((0, 2, 0)), none.copy())
    active_set((free, none.astype(np.int64)), tuple(start), tuple(problem), 1e-9, 1, 1)
