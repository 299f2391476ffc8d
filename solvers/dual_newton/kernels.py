"""The dual Newton method of one node as compiled loops: projection, elimination, line search.

`climb` works child by child, on their positive cells alone.
Layers that refine all that follow (the chain) are eliminated node by node. The others (crossing)
and the linear rows are eliminated on the smaller side: on the groups of the chain's last layer
that hold positive cells, by inverses of the queries' variances, or on the groups of the crossing
layers, of which the first are diagonal. The multipliers of the coupling are left to conjugate
gradients. They are preconditioned as in domain decomposition: S = sum_c R_c' N_c R_c, N_c the
inverse of G on the positive cells of child c, by sum_c R_c' W_c G_c W_c R_c, W_c the child's share
of the variance of each cell. That is exact where all children share one support, and where none
overlap.

Sums are taken in the order they are written in, and no product is fused with a sum: all
processors find the same bits. What is to be fast therefore adds rows to rows.

References:
  Farhat & Roux, Int. J. Numer. Meth. Engng 32 (1991), 1205-1227 (the dual system and its
  preconditioner in domain decomposition).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray, IntArray
from solvers.least_squares.machine_code import Fields, compiled

Int32Array = npt.NDArray[np.int32]

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
# Of the slacks of rows, relative to their first variance: growth per step, most, and the damping of
# rows that bind, since those that bind in all children can contradict the parent.
_FREER, _FREEST, _ROW_DAMPING = 2.0, 100.0, 0.1


class Node(NamedTuple):
    """What a node is: C children, k cells, M answers of all layers side by side, r rows.

    Attributes:
      parent: float64[k].
      has_parent: Whether the children add up to it.
      unit: float64[C].
      inverse: float64[C], 1 / unit.
      answers: float64[C, M].
      variance: float64[layers, C]; 0 if given, inf where not asked.
      ends: int64[layers + 1], where the groups of each layer begin among M.
      on: int64[layers], `Layer.on`.
      onto: int64, `Layer.index` of all layers end to end, from `starts` on.
      starts: int64[layers].
      rows: float64[r, k], coefficients of the linear rows.
      least: float64[C, r], their lower limits, -inf without.
      most: float64[C, r], their upper limits, inf without.
      slack: float64[C, r], variance of their slacks at first.
    """

    parent: FloatArray
    has_parent: bool
    unit: FloatArray
    inverse: FloatArray
    answers: FloatArray
    variance: FloatArray
    ends: IntArray
    on: IntArray
    onto: IntArray
    starts: IntArray
    rows: FloatArray
    least: FloatArray
    most: FloatArray
    slack: FloatArray


class Roles(NamedTuple):
    """Which layers are eliminated how.

    Attributes:
      chain: int64[P], layers each of which refines the next.
      lower: How many of them refine all other layers and rows; the last of these is the base, or
        the cells.
      crossing: int64[Q], the layers outside the chain.
      maps: int64[Q, base], group of each group of the base.
      coefficients: float64[r, base], of the rows.
      chain_index: int64[P, most], group of each group of the layer below, or of each cell.
    """

    chain: IntArray
    lower: int
    crossing: IntArray
    maps: IntArray
    coefficients: FloatArray
    chain_index: IntArray


class State(NamedTuple):
    """Where a climb is; all arrays are moved along.

    Attributes:
      field: float64[C, k], detailed answers and what the multipliers add.
      change: float64[C, k], of the field by a whole step.
      level: float64[k], multipliers of the coupling.
      u: float64[C, M + r], multipliers of the layers, then of the rows.
      du: float64[C, M + r], the step.
      x: float64[C, k], the counts.
      residual: float64[C, M + r], gradient of the dual function.
      center: float64[C, r], where the slacks of rows were.
      slack: float64[C, r], their variance around it.
    """

    field: FloatArray
    change: FloatArray
    level: FloatArray
    u: FloatArray
    du: FloatArray
    x: FloatArray
    residual: FloatArray
    center: FloatArray
    slack: FloatArray


class Nodes(NamedTuple):
    """The positive cells, the nodes of the chain above them, and the groups they are in.

    Node i of level a of the chain is in node up[a, i] of level a + 1; its tau is the variance below
    it, alpha = 1 / (variance + tau) and phi = variance / (variance + tau) with its own variance,
    and `top` the diagonal of the inverse at the base. Base node i is in group groups[q, i], -1
    where q is not asked: of the rows, then of the crossing layers, then of those of the chain above
    the base. `number` says which multiplier is a group's, `own` its variance. Child c has the
    groups from first[c] on, those of rows and crossing layers up to middle[c].

    Attributes:
      ptr: int64[P + 1, C + 1], where the nodes of each child begin.
      place: int32[P + 1, n], cell, or group of a layer of the chain.
      up: int32[P, n].
      tau: float64[P, n].
      alpha: float64[P, n].
      phi: float64[P, n].
      top: float64[base nodes].
      groups: int32[r + Q + layers above the base, base nodes].
      factor: float64[r, base nodes], coefficients of the rows.
      number: int64[groups].
      own: float64[groups].
      first: int64[C + 1].
      middle: int64[C].
      lower: Levels up to the base.
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
    own: FloatArray
    first: IntArray
    middle: IntArray
    lower: int


class Elimination(NamedTuple):
    """Factors per child on the smaller side.

    Attributes:
      side: int64[C], 1 for the base nodes, 0 for the groups.
      begin: int64[C + 1], where the factor of each child begins.
      factors: float64.
    """

    side: IntArray
    begin: IntArray
    factors: FloatArray


class Room(NamedTuple):
    """Room to work, float64: per node of the chain, then per group.

    Attributes:
      sums: Sums that rise.
      missing: What nodes lack, or are pushed by.
      push: What falls on the level below.
      base: Sums at the base.
      turn: Push of the groups on the base.
      dx: Change of the positive cells.
      wanted: [P, n], residuals of the chain.
      found: [P, n], its multipliers.
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


class Face(NamedTuple):
    """The linear system on the positive cells: its nodes, their factors, room to work."""

    nodes: Nodes
    elimination: Elimination
    room: Room


class Shares(NamedTuple):
    """What the coupling is preconditioned by.

    Attributes:
      share: float64[n], share of each positive cell in the variance of its cell.
      weight: float64[groups], 1 / variance; 0 of rows.
      precision: float64[layers, C].
      stack: float64[lower + 1, n], room to work.
    """

    share: FloatArray
    weight: FloatArray
    precision: FloatArray
    stack: FloatArray


class Limits(NamedTuple):
    """When a climb ends.

    Attributes:
      steps: Most steps.
      iterations: Most iterations of conjugate gradients in a step.
      trials: Of the line search.
      stale: Steps without a smaller residual.
      loose: Relative residual of conjugate gradients while the positive cells change much.
      tight: Relative residual from then on.
    """

    steps: int
    iterations: int
    trials: int
    stale: int
    loose: float
    tight: float


@compiled
def _project(
    field: FloatArray, change: FloatArray, t: float, node: Node, level: FloatArray, x: FloatArray
) -> float:
    """Set x to the projection of field + t change; returns sum_c unit_c x_c . change_c.

    In every cell x is nearest to it among the nonnegative counts of children that add up to the
    parent's: x_c = max(0, field_c + level / unit_c) (Michelot, J. Optim. Theory Appl. 50 (1986),
    195-200). `level` is where multipliers begin, and then their values. What is to add
    up to the parent's count is convex in the multiplier, so that the first Newton step ends above
    the root, and the others come down from there: who has nobody after the first has nobody at the
    end. Only the others are looked at again, and there are few of them.
    """
    C, k = field.shape
    inverse, unit, parent, has_parent = node.inverse, node.unit, node.parent, node.has_parent
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


@compiled
def _move(t: float, state: State, node: Node) -> float:
    """Move field and multipliers by t; set the residual to the gradient of the dual function.

    Returns its size, as a certificate sees it.
    """
    field, change, u, du, x, residual = (
        state.field, state.change, state.u, state.du, state.x, state.residual
    )  # fmt: skip
    answers, variance, ends, on, unit = node.answers, node.variance, node.ends, node.on, node.unit
    index, starts = node.onto, node.starts
    C, k = x.shape
    Q = len(on)
    largest, worst = 1.0, 0.0
    for c in range(C):
        row = residual[c]
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
    for j in range(len(node.rows)):
        worst = max(worst, _move_row(j, t, state, node))
    return worst / largest


@compiled
def _move_row(j: int, t: float, state: State, node: Node) -> float:
    """Move the multipliers of row j by t; set its residuals. Returns how far it is from optimal.

    The slack of a row is fitted to where it was (proximal steps), ever more loosely.
    """
    x, column, worst = state.x, node.ends[-1] + j, 0.0
    for c in range(len(x)):
        if t > 0.0:
            state.u[c, column] += t * state.du[c, column]
            state.center[c, j] = _slack(c, j, 0.0, state, node)
            most = _FREEST * node.slack[c, j]
            state.slack[c, j] = min(_FREER * state.slack[c, j], most)
        wanted = _slack(c, j, 0.0, state, node)
        value = 0.0
        for i in range(x.shape[1]):
            value += node.rows[j, i] * x[c, i]
        state.residual[c, column] = wanted - value
        v = state.u[c, column] * node.inverse[c]
        off = min(wanted - node.least[c, j], v) if v > 0.0 else min(node.most[c, j] - wanted, -v)
        worst = max(worst, abs(wanted - value), off)
    return worst


@compiled
def _slack(c: int, j: int, t: float, state: State, node: Node) -> float:
    """The value of row j as its multiplier wants it after a part t of a step."""
    column = node.ends[-1] + j
    pull = (state.u[c, column] + t * state.du[c, column]) * state.slack[c, j]
    return float(min(max(state.center[c, j] - pull, node.least[c, j]), node.most[c, j]))


@compiled
def _row_slope(t: float, state: State, node: Node) -> float:
    """Part of the rows in the slope of the dual function after a part t of a step."""
    out = 0.0
    for c in range(len(state.x)):
        for j in range(len(node.rows)):
            out += state.du[c, node.ends[-1] + j] * _slack(c, j, t, state, node)
    return out


@compiled
def _spread(state: State, node: Node) -> tuple[float, float, float]:
    """change_c = (sum_q Q_q' du_cq + R' du_c) / unit_c, and what the dual function's slope is of.

    Returns:
      Its part that the line search does not change, the one that falls by the step's length, and
      sum_c unit_c x_c . change_c.
    """
    change, u, du, x = state.change, state.u, state.du, state.x
    answers, variance, ends, on, unit = node.answers, node.variance, node.ends, node.on, node.unit
    index, starts = node.onto, node.starts
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
        for j in range(len(node.rows)):
            for i in range(k):
                row[i] += du[c, M + j] * node.rows[j, i]
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


@compiled
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


@compiled
def _substitute(A: FloatArray, n: int, v: FloatArray) -> None:
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


@compiled
def _find_nodes(state: State, damped: FloatArray, node: Node, roles: Roles) -> Nodes:
    """Find the positive cells, the nodes of the chain above them, and the groups they are in.

    A cell that one child holds alone stays at the parent's count: it takes no part in a step.
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
    own = np.empty(base * len(groups))
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
                own[begin] = _row_variance(c, q, state, node)
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
                    own[n] = v
                    n += 1
                groups[q, i] = group
        if len(groups) == Q:
            middle[c] = n
        starts[c + 1] = n
    return Nodes(
        ptr, place, up, tau, alpha, phi, top, groups, factor, number, own, starts, middle, lower
    )


@compiled
def _row_variance(c: int, j: int, state: State, node: Node) -> float:
    """Variance of the slack of a row: that of proximal steps where it is free, else a damping."""
    wanted = state.center[c, j] - state.u[c, node.ends[-1] + j] * state.slack[c, j]
    if node.least[c, j] < wanted < node.most[c, j]:
        return float(state.slack[c, j])
    return float(_ROW_DAMPING * node.slack[c, j])


@compiled
def _eliminate(nodes: Nodes, P: int) -> Elimination:
    """Factorise the layers above the base and the rows per child, on the smaller side."""
    ptr, top, groups, factor, own = nodes.ptr, nodes.top, nodes.groups, nodes.factor, nodes.own
    first, middle, lower = nodes.first, nodes.middle, nodes.lower
    C, r = len(middle), len(factor)
    Q = len(groups) - (P - lower)  # rows and crossing layers
    side, begin = np.zeros(C, np.int64), np.zeros(C + 1, np.int64)
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
                        w = factor[q, low + i] / own[groups[q, low + i]]
                        for j in range(i, n):
                            A[i, j] += w * factor[q, low + j]
            for q in range(r, len(groups)):
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
            _add_groups(A, c, nodes, P, Q)
            n = m
        _factorise(A, n)
    return Elimination(side, begin, factors)


@compiled
def _add_groups(A: FloatArray, c: int, nodes: Nodes, P: int, Q: int) -> None:
    """A = V + Z' N Z, the upper half: rows and crossing groups Z of a child, the inverse N."""
    ptr, up, alpha, phi, lower = nodes.ptr, nodes.up, nodes.alpha, nodes.phi, nodes.lower
    groups, factor, r = nodes.groups, nodes.factor, len(nodes.factor)
    low, n = ptr[lower, c], ptr[lower, c + 1] - ptr[lower, c]
    start, m = nodes.first[c], nodes.middle[c] - nodes.first[c]
    weight, node = np.empty(n), np.empty(n, np.int64)
    for g in range(m):
        A[g, g] = nodes.own[start + g]
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


@compiled
def _rise(a: int, c: int, room: Room, nodes: Nodes) -> None:
    """Sums of level a + 1 from those of level a, and what they lack."""
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


@compiled
def _fall(a: int, c: int, room: Room, nodes: Nodes) -> None:
    """Multipliers of level a + 1 in place of what they lack, and the push on level a."""
    ptr, up, found, push, missing = nodes.ptr, nodes.up, room.found, room.push, room.missing
    for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
        t = nodes.alpha[a, i] * (found[a, i] - nodes.tau[a, i] * push[i])
        found[a, i] = t
        missing[i] = push[i] + t
    for i in range(ptr[a, c], ptr[a, c + 1]):
        push[i] = missing[up[a, i]]


@compiled
def _above(c: int, room: Room, nodes: Nodes, P: int) -> None:
    """Push of the chain above the base on base nodes that moved by `sums`, without its groups."""
    for a in range(nodes.lower, P):
        _rise(a, c, room, nodes)
    for i in range(nodes.ptr[P, c], nodes.ptr[P, c + 1]):
        room.push[i] = 0.0
    for a in range(P - 1, nodes.lower - 1, -1):
        _fall(a, c, room, nodes)


@compiled
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


@compiled
def _push_groups(lack: FloatArray, turn: FloatArray, c: int, Q: int, nodes: Nodes) -> None:
    """Set `turn` to Z lack: what rows and groups push a child's base nodes by."""
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


@compiled
def _respond(inverse: FloatArray, force: FloatArray, face: Face, P: int) -> None:
    """Change of the positive cells under a force per cell, float64[k], all layers answering.

    `room.found` is set to the multipliers of the chain. `room.lack` are the residuals of the groups
    over the base and becomes their multipliers, those of the chain only where the base nodes are
    the smaller side, which are not in `found`. `room.dx` is set to the change.
    """
    nodes, elimination, room = face.nodes, face.elimination, face.room
    ptr, place, top, lower = nodes.ptr, nodes.place, nodes.top, nodes.lower
    own, first, middle = nodes.own, nodes.first, nodes.middle
    sums, push, base, turn, lack = room.sums, room.push, room.base, room.turn, room.lack
    side, begin = elimination.side, elimination.begin
    for c in range(len(middle)):
        d = inverse[c]
        for i in range(ptr[0, c], ptr[0, c + 1]):
            sums[i] = d * force[place[0, i]]
        for a in range(lower):
            _rise(a, c, room, nodes)
        low, high = ptr[lower, c], ptr[lower, c + 1]
        Q = len(nodes.groups) - (0 if side[c] else P - lower)
        for i in range(low, high):
            base[i] = sums[i]
        if not side[c] and P > lower:
            _above(c, room, nodes, P)
            for i in range(low, high):
                sums[i] = base[i] + top[i] * push[i]
        _subtract_groups(sums, lack, c, Q, nodes)
        A = elimination.factors[begin[c] : begin[c + 1]]
        if side[c]:
            n = high - low
            for g in range(first[c], first[c + 1]):
                room.spent[g] = lack[g] / own[g]
            _push_groups(room.spent, turn, c, Q, nodes)
            _substitute(A.reshape(n, n), n, turn[low:])
            _subtract_groups(turn, lack, c, Q, nodes)
            for g in range(first[c], first[c + 1]):
                lack[g] /= own[g]
        else:
            m = middle[c] - first[c]
            _substitute(A.reshape(m, m), m, lack[first[c] :])
        _push_groups(lack, turn, c, Q, nodes)
        if not side[c] and P > lower:
            for i in range(low, high):
                sums[i] = base[i] + top[i] * turn[i]
            _above(c, room, nodes, P)
            for i in range(low, high):
                push[i] += turn[i]
        else:
            for i in range(low, high):
                push[i] = turn[i]
        for a in range(lower - 1, -1, -1):
            _fall(a, c, room, nodes)
        for i in range(ptr[0, c], ptr[0, c + 1]):
            room.dx[i] = d * (force[place[0, i]] + push[i])


@compiled
def _stiffen(
    v: FloatArray, out: FloatArray, node: Node, chain: IntArray, nodes: Nodes, shares: Shares
) -> None:
    """Out = sum_c R_c' W_c G_c W_c R_c v, the preconditioner of the coupling."""
    ptr, place, up, groups, lower = nodes.ptr, nodes.place, nodes.up, nodes.groups, nodes.lower
    share, stack, first = shares.share, shares.stack, nodes.first
    push, spent = np.empty(len(share)), np.empty(len(shares.weight))
    out[:] = 0.0
    for c in range(len(nodes.middle)):
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
            spent[g] *= shares.weight[g]
        for i in range(ptr[lower, c], ptr[lower, c + 1]):
            t = 0.0
            for q in range(len(groups)):
                g = groups[q, i]
                if g >= 0:
                    t += spent[g]
            push[i] = t
        for a in range(lower - 1, -1, -1):
            w = shares.precision[chain[a], c]
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                stack[a + 1, i] = push[i] + w * stack[a + 1, i]
            for i in range(ptr[a, c], ptr[a, c + 1]):
                push[i] = stack[a + 1, up[a, i]]
        w = node.unit[c]
        for i in range(ptr[0, c], ptr[0, c + 1]):
            out[place[0, i]] += share[i] * (w * stack[0, i] + push[i])


@compiled
def _ask(residual: FloatArray, node: Node, chain: IntArray, nodes: Nodes, room: Room) -> None:
    """Residuals of the nodes of the chain and of the groups over the base."""
    ptr, first = nodes.ptr, nodes.first
    for c in range(len(nodes.middle)):
        for a in range(len(chain)):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                room.wanted[a, i] = residual[c, node.ends[chain[a]] + nodes.place[a + 1, i]]
        for g in range(first[c], first[c + 1]):
            room.lack[g] = residual[c, nodes.number[g]]


@compiled
def _shares(nodes: Nodes, node: Node, k: int, room: Room) -> tuple[FloatArray, FloatArray]:
    """Share of each positive cell in the variance of its cell, that of the layers up to the base.

    Also, per cell, the shift that keeps the coupling system regular: exact sums of all children
    repeat those of the parent.
    """
    ptr, place, up, alpha, phi = nodes.ptr, nodes.place, nodes.up, nodes.alpha, nodes.phi
    missing, push, lower = room.missing, room.push, nodes.lower
    C, total = len(nodes.middle), ptr[0, -1]
    share, whole, shift = np.empty(total), np.zeros(k), np.zeros(k)
    for c in range(C):
        d = node.inverse[c]
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


@compiled
def _precision(variance: FloatArray) -> FloatArray:
    """Inverses of variances; 0 of those that are 0 or infinite."""
    out = np.zeros_like(variance)
    for q in range(len(variance)):
        for c in range(variance.shape[1]):
            v = variance[q, c]
            out[q, c] = 1.0 / v if v > 0.0 and v < np.inf else 0.0
    return out


@compiled
def _couple(
    state: State, node: Node, roles: Roles, face: Face, forcing: float, most: int
) -> tuple[FloatArray, int]:
    """Force per cell of the coupling's multipliers by conjugate gradients, and iterations."""
    nodes, room = face.nodes, face.room
    place, inverse, P, M = nodes.place, node.inverse, len(roles.chain), node.ends[-1]
    k, total = state.x.shape[1], nodes.ptr[0, -1]
    force, iterations = np.zeros(k), 0
    share, shift = _shares(nodes, node, k, room)
    weight = np.zeros(len(nodes.number))
    for g in range(nodes.first[-1]):
        is_layer = nodes.own[g] > 0.0 and nodes.number[g] < M
        weight[g] = 1.0 / nodes.own[g] if is_layer else 0.0
    stack = np.empty((nodes.lower + 1, total))
    shares = Shares(share, weight, _precision(node.variance), stack)
    _ask(state.residual, node, roles.chain, nodes, room)
    _respond(inverse, force, face, P)
    room.wanted[:] = 0.0
    r, z, p, image = np.zeros(k), np.empty(k), np.zeros(k), np.empty(k)
    for i in range(total):
        r[place[0, i]] -= room.dx[i]
    rho, goal, size = 0.0, 0.0, 0.0
    while True:
        _stiffen(r, z, node, roles.chain, nodes, shares)
        after = 0.0
        for j in range(k):
            after += r[j] * z[j]
        beta = after / rho if iterations else 0.0
        if iterations == 0:
            goal = after * forcing * forcing
        size = after + beta * beta * size
        rho = after
        if rho <= goal or rho <= 0.0 or iterations == most:
            break
        for j in range(k):
            p[j] = z[j] + beta * p[j]
        room.lack[:] = 0.0
        _respond(inverse, p, face, P)
        for j in range(k):
            image[j] = shift[j] * p[j]
        for i in range(total):
            image[place[0, i]] += room.dx[i]
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
    return force, iterations


@compiled
def _step(
    state: State, node: Node, roles: Roles, damped: FloatArray, forcing: float, most: int
) -> int:
    """Newton step from the residuals, into `state.du`; returns iterations.

    `damped` are the variances with those of given sums that keep a step within bounds.
    """
    du, residual, ends, chain = state.du, state.residual, node.ends, roles.chain
    P = len(chain)
    nodes = _find_nodes(state, damped, node, roles)
    elimination = _eliminate(nodes, P)
    ptr, first, number = nodes.ptr, nodes.first, nodes.number
    total = ptr[0, -1]
    n = len(number)
    room = Room(
        np.empty(total), np.empty(total), np.empty(total), np.empty(total), np.empty(total),
        np.empty(total), np.zeros((P, total)), np.zeros((P, total)), np.zeros(n), np.empty(n),
    )  # fmt: skip
    face = Face(nodes, elimination, room)
    force, iterations = np.zeros(state.x.shape[1]), 0
    if node.has_parent:
        force, iterations = _couple(state, node, roles, face, forcing, most)
    _ask(residual, node, chain, nodes, room)
    _respond(node.inverse, force, face, P)
    for c in range(len(du)):
        # Groups without a positive cell: as if they had one, so that their multipliers move.
        for q in range(len(ends) - 1):
            v = node.variance[q, c]
            w = (1.0 / v if v > 0.0 else node.unit[c]) if v < np.inf else 0.0
            for m in range(ends[q], ends[q + 1]):
                du[c, m] = w * residual[c, m]
        for j in range(len(node.rows)):
            v = _row_variance(c, j, state, node)
            du[c, ends[-1] + j] = residual[c, ends[-1] + j] / v
        for a in range(nodes.lower if elimination.side[c] else P):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                du[c, ends[chain[a]] + nodes.place[a + 1, i]] = room.found[a, i]
        for g in range(first[c], first[c + 1] if elimination.side[c] else nodes.middle[c]):
            du[c, number[g]] = room.lack[g]
    return iterations


@compiled
def climb(
    start: Fields, fields: Fields, chains: Fields, goal: float, damping: float, ends: Fields
) -> tuple[int, int, float]:
    """Newton steps with a line search until the residual is at most the goal.

    Args:
      start: A `State` to begin from; moved along.
      fields: The `Node`.
      chains: How its layers are eliminated, `Roles`.
      goal: Residual at which to stop.
      damping: Of the multipliers of given sums, relative to the variance of a cell; 0 for none.
      ends: When to give up, `Limits`.

    Returns:
      Steps, iterations, the residual at the end.
    """
    state, node, roles, limits = State(*start), Node(*fields), Roles(*chains), Limits(*ends)
    variance, inverse = node.variance, node.inverse
    damped = variance.copy()
    _project(state.field, state.change, 0.0, node, state.level, state.x)
    steps, iterations, stale, forcing = 0, 0, 0, limits.loose
    t, best = 0.0, np.inf
    while True:
        off = _move(t, state, node)
        stale = 0 if off < best else stale + 1
        best = min(best, off)
        is_stale = stale >= limits.stale
        if off <= goal or steps == limits.steps or is_stale or not off < np.inf:
            break
        if damping > 0.0:
            for q in range(damped.shape[0]):
                for c in range(damped.shape[1]):
                    if variance[q, c] == 0.0:
                        damped[q, c] = damping * max(_LEAST_DAMPING, min(1.0, off)) * inverse[c]
        iterations += _step(state, node, roles, damped, forcing, limits.iterations)
        constant, linear, moved = _spread(state, node)
        first = constant + _row_slope(0.0, state, node) - moved
        t, low, high = 1.0, 0.0, np.inf
        slope_low, slope_high = first, 0.0
        for trial in range(limits.trials):
            if trial:
                cut = slope_low / (slope_low - slope_high)
                t = low + (high - low) * min(0.9, max(0.1, cut))
            moved = _project(state.field, state.change, t, node, state.level, state.x)
            now = constant - t * linear + _row_slope(t, state, node) - moved
            if now >= 0:
                low, slope_low = t, now
            else:
                high, slope_high = t, now
            if first <= 0 or (t == low and t == 1.0) or abs(now) <= 0.1 * first:
                break
        forcing = limits.loose if t < 1.0 else limits.tight
        steps += 1
    return steps, iterations, off


def compile_all() -> None:
    """Call every kernel with a node of two children and two cells, types as callers hand over."""
    two, square, column = np.ones(2), np.ones((2, 2)), np.ones((2, 1))
    cells, one = np.arange(2), np.zeros(1, np.int64)
    none, wide = np.zeros((2, 0)), np.zeros((0, 2))
    node = Node(
        two, True, two, two, column, np.ones((1, 2)), cells, one - 1, np.zeros(2, np.int64), one,
        wide, none, none, none,
    )  # fmt: skip
    no_layers, no_rows = np.zeros((0, 1), np.int64), np.zeros((0, 1))
    roles = Roles(one, 1, np.zeros(0, np.int64), no_layers, no_rows, cells[None] * 0)
    state = State(
        square.copy(), square * 0, two.copy(), column * 0, column * 0, square.copy(), column * 0,
        none, none,
    )  # fmt: skip
    climb(tuple(state), tuple(node), tuple(roles), 1e-9, 0.0, (1, 1, 1, 1, 0.3, 1e-3))
