"""Dual Newton method of one node as compiled loops: projection, coupling, line search.

`dual_ascent` works child by child, on their positive cells only. `elimination_kernels` solves for
one child; the multipliers that couple the children are found by conjugate gradients. The
preconditioner is that of domain decomposition: S = sum_c R_c' N_c R_c, N_c the inverse of G on the
positive cells of child c, is preconditioned by sum_c R_c' W_c G_c W_c R_c, W_c the child's share of
the variance of each cell. It is exact if all children have the same support, and if no supports
overlap.

Sums are evaluated in the order of the source, and no product is fused with a sum, so all processors
find the same bits. Fast loops therefore add rows to rows.

References:
  Farhat & Roux, Int. J. Numer. Meth. Engng 32 (1991), 1205-1227 (the dual system and its
  preconditioner in domain decomposition).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from das.arrays import FloatArray, IntArray
from solvers.dual_newton.arrays import Limits, Node, Roles, State
from solvers.dual_newton.elimination_kernels import (
    ActiveFace,
    Nodes,
    Workspace,
    eliminate,
    find_nodes,
    row_variance,
    solve_on_face,
)
from solvers.least_squares.machine_code import Fields, compiled

# Defaults, not measured, unless a measurement is named.
_PANEL = 96  # cells whose children's numbers fit the cache
_SINGULAR = 1e-9  # smallest eigenvalue that counts as nonzero in the preconditioned system
_REPEATED = 1e-10  # relative shift of the coupling system
# Lower bound of the damping, over `damping`. A step leaves about this part of the residual of given
# sums, and conjugate gradients need more iterations for smaller ones: 94 children took 590 with it,
# 1,423 with 1e-6.
_LEAST_DAMPING = 1e-3
_FORBIDDEN = -5e199  # half of `layers.FORBIDDEN`
_FREER, _FREEST = 2.0, 100.0  # growth per step and maximum of slack variances, over the first


class Shares(NamedTuple):
    """Preconditioner of the coupling.

    Attributes:
      share: float64[n], share of each positive cell in the variance of its cell.
      weight: float64[groups], 1 / variance; 0 for rows.
      precision: float64[layers, C], 1 / variance of each layer in each child.
      stack: float64[lower + 1, n], workspace.
    """

    share: FloatArray
    weight: FloatArray
    precision: FloatArray
    stack: FloatArray


@compiled
def _project(
    field: FloatArray, change: FloatArray, t: float, node: Node, level: FloatArray, x: FloatArray
) -> float:
    """Set x to the projection of field + t change; returns sum_c unit_c x_c . change_c.

    In every cell x is the nearest point among nonnegative counts of children that add up to the
    parent's: x_c = max(0, field_c + level / unit_c) (Michelot, J. Optim. Theory Appl. 50 (1986),
    195-200). `level` are the first multipliers, and then their values. The sum of the children is
    convex in the multiplier: the first Newton step ends above the root, and the next ones decrease
    to it. A child with count 0 after the first step has count 0 at the end. So later steps look at
    the other children only, which are few.
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
            if room[i] == 0.0:  # no child is positive: start from all that may have persons
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

    Returns the size of the residual in the units of a certificate.
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
                if not abs(row[m]) <= bound:  # also true for NaN
                    bound = abs(row[m])
            worst = bound / (v * unit[c] if v > 0.0 else 1.0)
    for j in range(len(node.rows)):
        worst = max(worst, _move_row(j, t, state, node))
    return worst / largest


@compiled
def _move_row(j: int, t: float, state: State, node: Node) -> float:
    """Move the multipliers of row j by t, set its residuals, and return the largest.

    The slack of a row is fitted to its last value (proximal steps), with growing variance.
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
    """Return the slack of row j that its multiplier determines, after a part t of a step."""
    column = node.ends[-1] + j
    pull = (state.u[c, column] + t * state.du[c, column]) * state.slack[c, j]
    return float(min(max(state.center[c, j] - pull, node.least[c, j]), node.most[c, j]))


@compiled
def _row_slope(t: float, state: State, node: Node) -> float:
    """Return the rows' part of the slope of the dual function after a part t of a step."""
    out = 0.0
    for c in range(len(state.x)):
        for j in range(len(node.rows)):
            out += state.du[c, node.ends[-1] + j] * _slack(c, j, t, state, node)
    return out


@compiled
def _spread(state: State, node: Node) -> tuple[float, float, float]:
    """Set change_c = (sum_q Q_q' du_cq + R' du_c) / unit_c, and return parts of the slope.

    Returns:
      The constant part of the slope of the dual function; the part that falls with the step length;
      and sum_c unit_c x_c . change_c.
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
def _precondition(
    v: FloatArray, out: FloatArray, node: Node, chain: IntArray, nodes: Nodes, shares: Shares
) -> None:
    """Set out = sum_c R_c' W_c G_c W_c R_c v, the preconditioner of the coupling."""
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
def _load_residuals(
    residual: FloatArray, node: Node, chain: IntArray, nodes: Nodes, room: Workspace
) -> None:
    """Load the residuals of the nodes of the chain and of the groups over the base."""
    ptr, first = nodes.ptr, nodes.first
    for c in range(len(nodes.middle)):
        for a in range(len(chain)):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                room.wanted[a, i] = residual[c, node.ends[chain[a]] + nodes.place[a + 1, i]]
        for g in range(first[c], first[c + 1]):
            room.lack[g] = residual[c, nodes.number[g]]


@compiled
def _shares(nodes: Nodes, node: Node, k: int, room: Workspace) -> tuple[FloatArray, FloatArray]:
    """Compute the share of each positive cell in the variance of its cell, up to the base.

    Also returns a shift per cell that keeps the coupling system regular: exact sums of all children
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
    """Return inverses of variances; 0 for variances that are 0 or infinite."""
    out = np.zeros_like(variance)
    for q in range(len(variance)):
        for c in range(variance.shape[1]):
            v = variance[q, c]
            out[q, c] = 1.0 / v if v > 0.0 and v < np.inf else 0.0
    return out


@compiled
def _solve_coupling(
    state: State, node: Node, roles: Roles, face: ActiveFace, forcing: float, most: int
) -> tuple[FloatArray, int]:
    """Solve for the force per cell of the coupling's multipliers by conjugate gradients."""
    nodes, room = face.nodes, face.room
    place, inverse, P, M = nodes.place, node.inverse, len(roles.chain), node.ends[-1]
    k, total = state.x.shape[1], nodes.ptr[0, -1]
    force, iterations = np.zeros(k), 0
    share, shift = _shares(nodes, node, k, room)
    weight = np.zeros(len(nodes.number))
    for g in range(nodes.first[-1]):
        is_layer = nodes.group_variance[g] > 0.0 and nodes.number[g] < M
        weight[g] = 1.0 / nodes.group_variance[g] if is_layer else 0.0
    stack = np.empty((nodes.lower + 1, total))
    shares = Shares(share, weight, _precision(node.variance), stack)
    _load_residuals(state.residual, node, roles.chain, nodes, room)
    solve_on_face(inverse, force, face, P)
    room.wanted[:] = 0.0
    r, z, p, image = np.zeros(k), np.empty(k), np.zeros(k), np.empty(k)
    for i in range(total):
        r[place[0, i]] -= room.dx[i]
    rho, goal, size = 0.0, 0.0, 0.0
    while True:
        _precondition(r, z, node, roles.chain, nodes, shares)
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
        solve_on_face(inverse, p, face, P)
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
def _newton_step(
    state: State, node: Node, roles: Roles, damped: FloatArray, forcing: float, most: int
) -> int:
    """Compute the Newton step from the residuals into `state.du`; returns iterations.

    `damped` are the variances, with damping of given sums, which limits the step.
    """
    du, residual, ends, chain = state.du, state.residual, node.ends, roles.chain
    P = len(chain)
    nodes = find_nodes(state, damped, node, roles)
    elimination = eliminate(nodes, P)
    ptr, first, number = nodes.ptr, nodes.first, nodes.number
    total = ptr[0, -1]
    n = len(number)
    room = Workspace(
        np.empty(total), np.empty(total), np.empty(total), np.empty(total), np.empty(total),
        np.empty(total), np.zeros((P, total)), np.zeros((P, total)), np.zeros(n), np.empty(n),
    )  # fmt: skip
    face = ActiveFace(nodes, elimination, room)
    force, iterations = np.zeros(state.x.shape[1]), 0
    if node.has_parent:
        force, iterations = _solve_coupling(state, node, roles, face, forcing, most)
    _load_residuals(residual, node, chain, nodes, room)
    solve_on_face(node.inverse, force, face, P)
    for c in range(len(du)):
        # Groups without a positive cell are treated as if they had one, to move their multipliers.
        for q in range(len(ends) - 1):
            v = node.variance[q, c]
            w = (1.0 / v if v > 0.0 else node.unit[c]) if v < np.inf else 0.0
            for m in range(ends[q], ends[q + 1]):
                du[c, m] = w * residual[c, m]
        for j in range(len(node.rows)):
            v = row_variance(c, j, state, node)
            du[c, ends[-1] + j] = residual[c, ends[-1] + j] / v
        for a in range(nodes.lower if elimination.side[c] else P):
            for i in range(ptr[a + 1, c], ptr[a + 1, c + 1]):
                du[c, ends[chain[a]] + nodes.place[a + 1, i]] = room.found[a, i]
        for g in range(first[c], first[c + 1] if elimination.side[c] else nodes.middle[c]):
            du[c, number[g]] = room.lack[g]
    return iterations


@compiled
def dual_ascent(
    start: Fields, fields: Fields, chains: Fields, goal: float, damping: float, ends: Fields
) -> tuple[int, int, float]:
    """Take Newton steps with a line search until the residual is at most the goal.

    Args:
      start: Fields of the first `State`, updated in place.
      fields: Fields of the `Node`.
      chains: Fields of the `Roles`: how the layers of the node are eliminated.
      goal: Residual at which to stop.
      damping: Damping of the multipliers of given sums, over the variance of a cell; 0 for none.
      ends: Fields of the `Limits`, the stopping rules.

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
        iterations += _newton_step(state, node, roles, damped, forcing, limits.iterations)
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
    """Compile every kernel by a node of two children and two cells, with its callers' types."""
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
    dual_ascent(tuple(state), tuple(node), tuple(roles), 1e-9, 0.0, (1, 1, 1, 1, 0.3, 1e-3))
