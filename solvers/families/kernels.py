"""Compiled loops over families: packing, least squares around the active set, rounding.

Sums are evaluated in the order of the source, so that all processors find the same digits. Loaded
on first use, by `machine_code`. The tests compare the results with `node.solve_node`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray, IntArray
from solvers.least_squares.machine_code import called_by_kernels, compiled, kernels
from solvers.rounding import cost as rounding_cost
from solvers.rounding.cost import EDGE, SNAP, STEPS

_supports = kernels()
_factorise, _forward, _backward = _supports.factorise, _supports.forward, _supports.backward
_adjoint, _gram_blocks, _gradient = _supports.adjoint, _supports.gram_blocks, _supports.gradient
_cost_of_one_more = called_by_kernels(rounding_cost.cost_of_one_more)

ROUNDED, NOT_FOUND, BROKEN = 0, 1, 2  # outcomes of `round_node`: counts, none, wrong counts
_ALIKE = 1e-12  # the value of `blocks.ALIKE`


Families = tuple[IntArray, IntArray, IntArray, IntArray]
"""Fields of `solve.Parents`."""

Numbered = tuple[IntArray, IntArray, IntArray]
"""Results of `number_groups`, and int64[F], start of the answers of each family."""

Queries = tuple[IntArray, IntArray, FloatArray, FloatArray]
"""Index, ends and answers as in `blocks.Partitions`, and float64[C, T] weights."""

Solution = tuple[FloatArray, FloatArray, FloatArray]
"""Values, multipliers of the parent, and float64[C, m] of given sums."""


class Arcs(NamedTuple):
    """Arcs of a network."""

    tail: IntArray
    head: IntArray
    cost: IntArray
    flow: IntArray


class Sums(NamedTuple):
    """I sums of cells, level by level.

    Attributes:
      low: int64[C, I], lower bound of each sum; its value in finished levels.
      is_open: bool[C, I], whether it may be one more.
      price: int64[C, I], cost of one more.
      outer: int64[I], group of the level before that contains it.
      held: int64[I], sum of the parent.
      starts: int64[L + 1], start of each level.
      sizes: int64[L], number of sums in each level.
    """

    low: IntArray
    is_open: BoolArray
    price: IntArray
    outer: IntArray
    held: IntArray
    starts: IntArray
    sizes: IntArray


# --- packing -------------------------------------------------------------------------------------


@compiled
def number_groups(
    rows: IntArray, offsets: IntArray, cells: IntArray, groups: IntArray, sizes: IntArray
) -> None:
    """Number the groups that contain cells of each family, by the first cell of each group.

    For partition t, int64 `rows[t]` of a schema, and family f with k cells from offsets[f] on:
    writes int64[k] to `groups` from T offsets[f] + t k on, and the number of groups to sizes[f, t].
    """
    T, n = rows.shape
    most = -1
    for t in range(T):
        for i in range(n):
            most = max(most, rows[t, i])
    number = np.full(most + 1, -1, np.int64)
    for f in range(len(offsets) - 1):
        first = offsets[f]
        k = offsets[f + 1] - first
        for t in range(T):
            m = 0
            for j in range(k):
                row = rows[t, cells[first + j]]
                if number[row] < 0:
                    number[row] = m
                    m += 1
                groups[T * first + t * k + j] = number[row]
            for j in range(k):
                number[rows[t, cells[first + j]]] = -1
            sizes[f, t] = m


@compiled
def pick_answers(
    t: int,
    rows: IntArray,
    answers: npt.NDArray[np.generic],
    families: Families,
    numbered: Numbered,
    out: FloatArray,
) -> None:
    """Copy the answers of partition t that count some cell of a family.

    Family f has int64 n_children[f] rows of `answers` from first[f] on. Its block of `out` starts
    at start[f] and has a row per child, with the answers of all partitions side by side.
    """
    first_child, n_children, offsets, cells = families
    groups, sizes, start = numbered
    T = sizes.shape[1]
    for f in range(len(offsets) - 1):
        first = offsets[f]
        k = offsets[f + 1] - first
        width, before = 0, 0
        for s in range(T):
            if s < t:
                before += sizes[f, s]
            width += sizes[f, s]
        for c in range(n_children[f]):
            at = start[f] + c * width + before
            for j in range(k):
                row = rows[t, cells[first + j]]
                out[at + groups[T * first + t * k + j]] = answers[first_child[f] + c, row]


@compiled
def compress(
    low: int, high: int, families: Families, start: IntArray, counts: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return lengths, cells and counts of the children of families low..high-1, without zeros.

    Family f has its counts from start[f] on, child by child.
    """
    _, n_children, offsets, cells = families
    n_rows, n_entries = 0, 0
    for f in range(low, high):
        n_rows += n_children[f]
        for i in range(start[f], start[f] + n_children[f] * (offsets[f + 1] - offsets[f])):
            n_entries += counts[i] != 0
    ends = np.zeros(n_rows + 1, np.int64)
    out_cells, out_counts = np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
    row, entry = 0, 0
    for f in range(low, high):
        k = offsets[f + 1] - offsets[f]
        for c in range(n_children[f]):
            for j in range(k):
                count = counts[start[f] + c * k + j]
                if count != 0:
                    out_cells[entry] = cells[offsets[f] + j]
                    out_counts[entry] = count
                    entry += 1
            row += 1
            ends[row] = entry
    return ends, out_cells, out_counts


# --- least squares -------------------------------------------------------------------------------


@compiled
def assemble(
    queries: Queries, groups: IntArray, targets: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, float, FloatArray]:
    """Assemble a node of partition queries in one block; see `blocks.Quadratic` for the arrays.

    Sums float64[C, m] of groups int64[k] are given, or m is 0. Returns unit, scale, linear, blocks,
    diagonal, the curvature of given sums, which is `penalty` over the largest, and float64[C, k],
    each child's separate solution without x >= 0. A unit of 0 means that no query of single cells
    has weight in that child; then the other results are undefined.
    """
    index, ends, answers, weights = queries
    T, k = index.shape
    C = len(answers)
    unit = np.zeros(C)
    share = np.empty((T, C))
    top = 0.0
    for c in range(C):
        for t in range(T):
            if ends[t + 1] - ends[t] == k:
                unit[c] += weights[c, t]
        top = max(top, unit[c])
        for t in range(T):
            share[t, c] = weights[c, t] / unit[c]
    apart, most = 0.0, 0.0
    for t in range(T):
        for c in range(C):
            apart = max(apart, abs(share[t, c] - share[t, 0]))
            most = max(most, share[t, c])
    P = 1 if apart <= _ALIKE * most else C
    linear = _adjoint(index, answers, share)
    blocks = _gram_blocks(index, np.ascontiguousarray(share[:, :P]), np.arange(k).reshape(1, k))
    diagonal = np.zeros((P, k))
    alone = np.empty((C, k))
    curvature = 0.0
    for p in range(P):
        for t in range(T):
            for i in range(k):
                diagonal[p, i] += share[t, p]
        for i in range(k):
            curvature = max(curvature, diagonal[p, i])
    curvature = penalty * (1.0 + curvature)
    is_given = targets.shape[1] > 0
    for p in range(P):
        U = blocks[0, p].copy()
        if is_given:
            for i in range(k):
                for j in range(k):
                    U[i, j] += curvature if groups[j] == groups[i] else 0.0
        _factorise(U, k)
        for c in range(C if P == 1 else 1):
            solution = alone[p + c]
            for i in range(k):
                solution[i] = linear[p + c, i]
                if is_given:
                    solution[i] += curvature * targets[p + c, groups[i]]
            _forward(U, k, solution)
            _backward(U, k, solution)
    scale = np.empty(C)
    for c in range(C):
        scale[c] = unit[c] / top
    return unit, scale, linear, blocks, diagonal, curvature, alone


@compiled
def certify(
    queries: Queries,
    unit: FloatArray,
    parent: FloatArray,
    solution: Solution,
    groups: IntArray,
    targets: FloatArray,
) -> tuple[float, float, float, float]:
    """Compute stationarity, primal, complementarity and gap like `certificate.certify`.

    Sums float64[C, m] of groups int64[k] are given, or m is 0.
    """
    index, ends, answers, weights = queries
    x, coupling, given = solution
    T, k = index.shape
    C = len(answers)
    top = 0.0
    for c in range(C):
        top = max(top, unit[c])
    stationarity, primal, complementarity, gap, size = 0.0, 0.0, 0.0, 0.0, 1.0
    scaled = np.empty((T, C))
    for c in range(C):
        for t in range(T):
            scaled[t, c] = weights[c, t] / top
    g, _, quadratic, linear = _gradient(index, ends, answers, scaled, np.maximum(x, 0.0))
    n_given = targets.shape[1]
    for c in range(C):
        for m in range(n_given):
            off = -targets[c, m]
            for i in range(k):
                if groups[i] == m:
                    off += max(x[c, i], 0.0)
            primal = max(primal, abs(off))
            gap += given[c, m] * off
        for i in range(k):
            v, slope = max(x[c, i], 0.0), g[c, i] - coupling[i]
            if n_given:
                # Cells forced to zero by a given sum of zero have no gradient.
                is_forced = not targets[c, groups[i]] > 0.0
                slope = 0.0 if is_forced else slope - given[c, groups[i]]
            persons = slope / (unit[c] / top)
            size = max(size, v)
            stationarity = max(stationarity, -persons)
            complementarity = max(complementarity, min(v, max(persons, 0.0)))
            primal = max(primal, -x[c, i])
            gap += v * slope
            if not np.isfinite(persons):
                return np.inf, np.inf, np.inf, np.inf
    for i in range(k):
        off = -parent[i]
        for c in range(C):
            off += max(x[c, i], 0.0)
        primal = max(primal, abs(off))
        gap += coupling[i] * off
    gap = abs(gap) / max(1.0, abs(0.5 * quadratic - linear))
    return stationarity / size, primal / size, complementarity / size, gap


# --- rounding ------------------------------------------------------------------------------------


@compiled
def _order_of_children(x: FloatArray) -> IntArray:
    """Order children by their values on the grid, first cell first, as in `round`."""
    C, k = x.shape
    grid = np.empty((C, k), np.int64)
    for c in range(C):
        for j in range(k):
            grid[c, j] = np.int64(np.floor(max(x[c, j], 0.0) * STEPS + EDGE))
    order = np.arange(C)
    for i in range(1, C):
        one = order[i]
        at = i
        while at > 0:
            other = order[at - 1]
            j = 0
            while j < k and grid[one, j] == grid[other, j]:
                j += 1
            if j == k or grid[one, j] > grid[other, j]:
                break
            order[at] = other
            at -= 1
        order[at] = one
    return order


@compiled
def _least_cost_flow(n: int, m: int, arcs: Arcs, supply: IntArray) -> bool:
    """Compute a flow of least cost on m arcs of capacity 1 for the supply of n nodes.

    Primal network simplex with strongly feasible trees, which cannot cycle (Cunningham, Math.
    Programming 11 (1976), 105-116). The arrays of arcs have room for n more, which join every node
    to a root at a cost above that of any path. Returns whether a flow exists.
    """
    tail, head, cost, flow = arcs.tail, arcs.head, arcs.cost, arcs.flow
    root, high = n, np.int64(1)
    for a in range(m):
        high = max(high, abs(cost[a]))
    prohibitive = (high + 1) * (n + 1)
    parent, by = np.full(n + 1, -1, np.int64), np.full(n + 1, -1, np.int64)
    is_up, depth = np.zeros(n + 1, np.bool_), np.zeros(n + 1, np.int64)
    price = np.zeros(n + 1, np.int64)
    child, after = np.full(n + 1, -1, np.int64), np.full(n + 1, -1, np.int64)
    before = np.full(n + 1, -1, np.int64)
    state = np.ones(m + n, np.int64)  # 1 at no flow, -1 at capacity, 0 in the tree
    for a in range(m):
        flow[a] = 0
    for i in range(n):
        a = m + i
        cost[a], state[a] = prohibitive, 0
        if supply[i] >= 0:
            tail[a], head[a], flow[a], is_up[i], price[i] = i, root, supply[i], True, -prohibitive
        else:
            tail[a], head[a], flow[a], price[i] = root, i, -supply[i], prohibitive
        parent[i], by[i], depth[i] = root, a, 1
        after[i] = child[root]
        if child[root] >= 0:
            before[child[root]] = i
        child[root] = i
    block = max(10, int(np.sqrt(m)))
    at = 0
    stack = np.empty(n + 1, np.int64)
    while True:
        best, entering, left, a = np.int64(0), -1, block, at
        for _ in range(m):
            reduced = state[a] * (cost[a] + price[tail[a]] - price[head[a]])
            if reduced < best:
                best, entering = reduced, a
            left -= 1
            a += 1
            if a == m:
                a = 0
            if left == 0:
                if entering >= 0:
                    break
                left = block
        at = a
        if entering < 0:
            break
        first, second = tail[entering], head[entering]
        if state[entering] < 0:
            first, second = second, first
        u, v = first, second
        while u != v:
            deeper = depth[u] - depth[v]
            if deeper >= 0:
                u = parent[u]
            if deeper <= 0:
                v = parent[v]
        join = u
        # Flow that can be sent around: artificial arcs have no capacity, the others 1.
        step, side, last = np.int64(1), 0, -1
        u = first
        while u != join:
            a = by[u]
            room = flow[a] if is_up[u] else (1 - flow[a] if a < m else np.int64(1) << 60)
            if room < step:
                step, side, last = room, 1, u
            u = parent[u]
        u = second
        while u != join:
            a = by[u]
            room = (1 - flow[a] if a < m else np.int64(1) << 60) if is_up[u] else flow[a]
            if room <= step:
                step, side, last = room, 2, u
            u = parent[u]
        if step > 0:
            flow[entering] += state[entering] * step
            u = first
            while u != join:
                flow[by[u]] += -step if is_up[u] else step
                u = parent[u]
            u = second
            while u != join:
                flow[by[u]] += step if is_up[u] else -step
                u = parent[u]
        if side == 0:
            state[entering] = -state[entering]
            continue
        leaving = by[last]
        state[entering] = 0
        state[leaving] = 1 if flow[leaving] == 0 else -1
        inner, outer = (first, second) if side == 1 else (second, first)
        u, new_parent, new_by = inner, outer, entering
        while True:
            old_parent, old_by = parent[u], by[u]
            if before[u] >= 0:
                after[before[u]] = after[u]
            else:
                child[old_parent] = after[u]
            if after[u] >= 0:
                before[after[u]] = before[u]
            before[u], after[u] = -1, child[new_parent]
            if child[new_parent] >= 0:
                before[child[new_parent]] = u
            child[new_parent] = u
            parent[u], by[u], is_up[u] = new_parent, new_by, tail[new_by] == u
            if u == last:
                break
            new_parent, new_by, u = u, old_by, old_parent
        if tail[entering] == inner:
            change = price[outer] - cost[entering] - price[inner]
        else:
            change = price[outer] + cost[entering] - price[inner]
        top = 0
        stack[0] = inner
        while top >= 0:
            u = stack[top]
            top -= 1
            price[u] += change
            depth[u] = depth[parent[u]] + 1
            v = child[u]
            while v >= 0:
                top += 1
                stack[top] = v
                v = after[v]
    for i in range(n):
        if flow[m + i] != 0:
            return False
    return True


@compiled
def _sums_on_chain(
    x: FloatArray,
    sizes: IntArray,
    chain: IntArray,
    starts: IntArray,
    whole: IntArray,
    above: FloatArray,
) -> None:
    """Compute floor and fraction of the sums of every group, level by level."""
    L, k = chain.shape
    C = len(x)
    cells = starts[L - 1]
    for c in range(C):
        for j in range(k):
            v = max(x[c, j], 0.0)
            near = np.rint(v)
            if abs(v - near) > SNAP:
                near = np.floor(v)
                above[c, cells + chain[L - 1, j]] = v - near
            whole[c, cells + chain[L - 1, j]] = np.int64(near)
        for level in range(L - 1):
            for j in range(k):
                g = starts[level] + chain[level, j]
                whole[c, g] += whole[c, cells + chain[L - 1, j]]
                above[c, g] += above[c, cells + chain[L - 1, j]]
            for g in range(starts[level], starts[level] + sizes[level]):
                near = np.rint(above[c, g])
                if abs(above[c, g] - near) <= SNAP:
                    above[c, g] = 0.0
                else:
                    near = np.floor(above[c, g])
                    above[c, g] -= near
                whole[c, g] += np.int64(near)


@compiled
def _round_pass(order: IntArray, sums: Sums, coarse: int, fine: int) -> bool:
    """Round sums of level `fine` that add up to those of `coarse`, or to the total if it is -1.

    Children are in the given order. Every sum is `low`, or one more where it is open, at the cost
    `price`. Overwrites `low` of level `fine` and returns True; returns False if it is infeasible.
    """
    low, is_open, price, outer = sums.low, sums.is_open, sums.price, sums.outer
    starts, sizes, held = sums.starts, sums.sizes, sums.held
    C = len(low)
    m_fine, m_coarse = sizes[fine], 1 if coarse < 0 else sizes[coarse]
    n_open = 0
    for c in range(C):
        for level in range(coarse + 1, fine + 1):
            for g in range(starts[level], starts[level] + sizes[level]):
                n_open += is_open[c, g]
    room = n_open + m_fine + C * m_coarse + 1
    for level in range(coarse + 1, fine):
        room += C * sizes[level]
    tail, head = np.empty(n_open + room, np.int64), np.empty(n_open + room, np.int64)
    cost, flow = np.empty(n_open + room, np.int64), np.zeros(n_open + room, np.int64)
    of_child, of_group = np.full(n_open, -1, np.int64), np.empty(n_open, np.int64)
    supply = np.zeros(room, np.int64)
    widest = 0
    for level in range(coarse + 1, fine + 1):
        widest = max(widest, sizes[level])
    # For each open sum: start of its arc, cost up to this level, and its group.
    start, paid, group = (
        np.empty(widest, np.int64),
        np.empty(widest, np.int64),
        np.empty(widest, np.int64),
    )
    up_start, up_paid, up_group = start.copy(), paid.copy(), group.copy()
    arcs_in, only, missing = (
        np.empty(widest, np.int64),
        np.empty(widest, np.int64),
        np.empty(widest, np.int64),
    )
    n, m = m_fine, 0
    sink = -1
    if coarse < 0:
        sink = n
        n += 1
    for g in range(m_fine):
        supply[g] = held[starts[fine] + g]
    for at in range(C):
        c = order[at]
        for g in range(m_fine):
            i = starts[fine] + g
            supply[g] -= low[c, i]
            start[g] = g if is_open[c, i] else -1
            paid[g], group[g] = price[c, i], g
        for level in range(fine - 1, coarse, -1):
            finer = starts[level + 1]
            for g in range(sizes[level]):
                arcs_in[g], missing[g] = 0, -low[c, starts[level] + g]
            for g in range(sizes[level + 1]):
                to = outer[finer + g]
                missing[to] += low[c, finer + g]
                if start[g] >= 0:
                    arcs_in[to] += 1
                    only[to] = g
            for g in range(sizes[level]):
                i = starts[level] + g
                up_start[g] = -1
                if arcs_in[g] == 1 and missing[g] == 0 and is_open[c, i]:
                    g_in = only[g]
                    up_start[g], up_paid[g] = start[g_in], paid[g_in] + price[c, i]
                    up_group[g] = group[g_in]
                    only[g] = -1
                elif arcs_in[g] or is_open[c, i]:
                    supply[n] = missing[g]
                    only[g] = n
                    if is_open[c, i]:
                        up_start[g], up_paid[g], up_group[g] = n, price[c, i], -1
                    n += 1
                elif missing[g] != 0:
                    return False
            for g in range(sizes[level + 1]):
                to = outer[finer + g]
                if start[g] >= 0 and only[to] >= 0:
                    tail[m], head[m], cost[m] = start[g], only[to], paid[g]
                    if group[g] >= 0:
                        of_child[m], of_group[m] = c, group[g]
                    m += 1
            start, up_start = up_start, start
            paid, up_paid = up_paid, paid
            group, up_group = up_group, group
        finer = starts[coarse + 1]
        if coarse >= 0:
            for g in range(sizes[coarse]):
                supply[n + g] = -low[c, starts[coarse] + g]
        for g in range(sizes[coarse + 1]):
            to = sink if coarse < 0 else n + outer[finer + g]
            supply[to] += low[c, finer + g]
            if start[g] >= 0:
                tail[m], head[m], cost[m] = start[g], to, paid[g]
                if group[g] >= 0:
                    of_child[m], of_group[m] = c, group[g]
                m += 1
        if coarse >= 0:
            n += sizes[coarse]
    if sink >= 0:
        total = 0
        for g in range(m_fine):
            total += held[starts[fine] + g]
        supply[sink] -= total
    if not _least_cost_flow(n, m, Arcs(tail, head, cost, flow), supply):
        return False
    for a in range(m):
        if of_child[a] >= 0:
            low[of_child[a], starts[fine] + of_group[a]] += flow[a]
    return True


@compiled
def round_node(
    x: FloatArray,
    parent: IntArray,
    chain: IntArray,
    sizes: IntArray,
    query_counts: IntArray,
    counts: IntArray,
) -> int:
    """Round a node like `round.round_counts`, for nested rounding queries and no invariants.

    Arguments are float64[C, k] values, int64[k] parent, int64[L, k] groups of partitions, coarse
    before fine and nested, the last of single cells, int64[L] numbers of groups, and int64[P, L],
    how many queries of each pass are each partition. Writes int64[C, k] counts. Returns ROUNDED;
    NOT_FOUND if some sum must leave the interval from floor to ceiling; or BROKEN.
    """
    L, k = chain.shape
    C = len(x)
    starts = np.zeros(L + 1, np.int64)
    for level in range(L):
        starts[level + 1] = starts[level] + sizes[level]
    I = starts[L]  # noqa: E741
    whole, above = np.zeros((C, I), np.int64), np.zeros((C, I))
    _sums_on_chain(x, sizes, chain, starts, whole, above)
    held, outer = np.zeros(I, np.int64), np.zeros(I, np.int64)
    for level in range(L):
        for j in range(k):
            i = starts[level] + chain[level, j]
            held[i] += parent[j]
            outer[i] = chain[level - 1, j] if level else 0
    is_open = np.zeros((C, I), np.bool_)
    steps = np.zeros((C, I), np.int64)
    for c in range(C):
        for i in range(I):
            low = max(whole[c, i], 0)
            high = min(whole[c, i] + (above[c, i] > 0.0), held[i])
            if low > high:
                return NOT_FOUND
            whole[c, i], is_open[c, i] = low, high > low
            if above[c, i] > 0.0:
                steps[c, i] = _cost_of_one_more(int(np.floor(above[c, i] * STEPS + EDGE)))
    order = _order_of_children(x)
    price = np.zeros((C, I), np.int64)
    sums = Sums(whole, is_open, price, outer, held, starts, sizes)
    coarse = -1
    for p in range(len(query_counts)):
        fine = coarse
        for level in range(L):
            if query_counts[p, level]:
                fine = level
            for c in range(C):
                for i in range(starts[level], starts[level + 1]):
                    price[c, i] = query_counts[p, level] * steps[c, i]
        if fine == coarse:
            continue
        if not _round_pass(order, sums, coarse, fine):
            return NOT_FOUND
        coarse = fine
    for j in range(k):
        left = parent[j]
        for c in range(C):
            count = whole[c, starts[L - 1] + chain[L - 1, j]]
            counts[c, j] = count
            left -= count
            if count < 0:
                return BROKEN
        if left != 0:
            return BROKEN
    return ROUNDED


def compile_all() -> None:
    """Compile every kernel by two families of two children, with its callers' types."""
    rows = np.array([[0, 0], [0, 1]])
    offsets, cells, children = np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([2, 2])
    groups, sizes, start = np.zeros(8, np.int64), np.zeros((2, 2), np.int64), np.array([0, 6])
    number_groups(rows, offsets, cells, groups, sizes)
    two, square, out = np.ones(2), np.ones((2, 2)), np.zeros(12)
    families = np.zeros(2, np.int64), children, offsets, cells
    for answers in (square, square.astype(np.int16)):
        pick_answers(1, rows, answers, families, (groups, sizes, start), out)
    compress(0, 2, families, np.array([0, 4]), np.ones(8, np.int64))
    index, ends = np.array([[0, 0], [1, 2]]), np.array([0, 1, 3])
    queries = index, ends, np.ones((2, 3)), square
    given = np.zeros(2, np.int64), np.ones((2, 1))
    unit, *_ = assemble(queries, *given, 1.0)
    certify(queries, unit, two, (square, two, given[1]), *given)
    chain, query_counts = np.array([[0, 0], [0, 1]]), np.array([[1, 0], [0, 1]])
    halves, whole = np.full((2, 2), 0.5), np.zeros((2, 2), np.int64)
    round_node(halves, np.ones(2, np.int64), chain, np.array([1, 2]), query_counts, whole)
