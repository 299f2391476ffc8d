"""Continuous stage: nonnegative least squares over all children of a parent.

Two methods share the work. Operator splitting finds which cells are zero: its step is one matrix
product for all children because they share G, and the coupling sum_c x_c = p is closed form (the
gap is dealt out in proportion to 1/f_c). A primal-dual active-set Newton method then solves the
problem for these supports to machine precision and corrects the supports until the optimality
conditions hold. The result carries a certificate computed from the problem alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla

from das.errors import SolverError
from solvers.problem import (
    BoolArray,
    Certificate,
    Estimate,
    FloatArray,
    GeneralTerm,
    IntArray,
    NodeProblem,
    Status,
    group_sums,
)

# Rounds of splitting, each followed by a Newton try: iterations, and the penalty as a multiple of
# its usual value. No single penalty suits nodes with both giant and nearly empty children. The
# first rounds go on from one another, the later ones begin anew.
_JOINED_ROUNDS = ((40, 1.0), (80, 10.0), (160, 100.0))
_FRESH_ROUNDS = ((640, 10.0), (1280, 100.0), (2560, 1.0), (5120, 10.0))
_NEWTON_STEPS = 12
_MEMORY = 8  # Anderson acceleration
_BATCHED_CELLS = 48  # up to here one batched inverse for all children beats a loop over children


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The node problem in arrays.

    Attributes:
      H: float64[k, k], G divided by a lower bound of its smallest eigenvalue: the sum of weights
        of partitions into single cells, or the eigenvalue itself if there is no such term.
      B: float64[C, k], b divided likewise.
      scale: float64[C], f divided by its largest.
      p: float64[k] or None.
      A: int64[k] group of each cell in the finest invariant, or None.
      a: float64[C, r] its targets.
      free: bool[C, k], cells not forced to zero by an invariant of zero.
    """

    H: FloatArray
    B: FloatArray
    scale: FloatArray
    p: FloatArray | None
    A: IntArray | None
    a: FloatArray
    free: BoolArray


def assemble(problem: NodeProblem) -> Quadratic:
    """Build H, B and the constraints of a node problem."""
    k, C = problem.n_cells, problem.n_children
    H = np.zeros((k, k))
    B = np.zeros((C, k))
    separating = 0.0
    scale = problem.terms[0].weights / problem.terms[0].weights[0]
    for term in problem.terms:
        weight = float(term.weights[0])
        if np.abs(term.weights - weight * scale).max() > 1e-12 * term.weights.max():
            raise SolverError(f"node {problem.geocode}", "weights of queries differ by child")
        if isinstance(term, GeneralTerm):
            H += weight * term.gram
            B += weight * term.pulled
            continue
        same = term.groups[:, None] == term.groups[None, :]
        H += weight * same
        B += weight * term.answers[:, term.groups]
        if term.answers.shape[1] == k:
            separating += weight
    unit = separating or _smallest_eigenvalue(problem.geocode, H)
    free = np.ones((C, k), bool)
    A, a = None, np.zeros((C, 0))
    for exact in problem.exact:
        free &= exact.targets[:, exact.groups] > 0
        A, a = exact.groups, exact.targets.astype(float)
    parent = None if problem.parent is None else problem.parent.astype(float)
    return Quadratic(H / unit, B / unit, scale / scale.max(), parent, A, a, free)


def _smallest_eigenvalue(geocode: str, H: FloatArray) -> float:
    values = sla.eigvalsh(H, check_finite=False)
    if values[0] <= len(H) * np.finfo(float).eps * values[-1]:
        raise SolverError(
            f"node {geocode} ({len(H)} live cells)",
            "the measured queries do not tell all live cells apart",
            remedy="measure detailed, or a workload that contains it",
        )
    return float(values[0])


def solve_least_squares(problem: NodeProblem, tolerance: float) -> Estimate:
    """Solve the continuous stage of a node.

    Newton starts from the signs of the solution without x >= 0, which usually suffices; where it
    cycles, splitting iterations provide better supports.

    Args:
      problem: The node problem.
      tolerance: Largest accepted certificate residual, for example 1e-7.

    Returns:
      The estimate; its status is LIMIT if the tolerance was not reached, which callers must not
      take for a solution.
    """
    q = assemble(problem)
    s = np.where(q.free, equality_solution(q), 0.0)
    x, certificate, steps = newton(q, s > 0, tolerance)
    splitting = None
    for number, (iterations, penalty) in enumerate(_JOINED_ROUNDS + _FRESH_ROUNDS):
        if certificate.residual <= tolerance:
            break
        splitting = splitting or Splitting(q, s)
        if number >= len(_JOINED_ROUNDS):
            splitting.s = s
        splitting.weigh(penalty)
        splitting.advance(iterations, tolerance)
        polished, its_certificate, used = newton(q, (splitting.s > 0) & q.free, tolerance)
        steps += used
        own = splitting.solution()
        for candidate, reached in ((polished, its_certificate), (own, splitting.certificate())):
            if reached.residual < certificate.residual:
                x, certificate = candidate, reached
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(x, certificate, status, splitting.iterations if splitting else 0, steps)


def equality_solution(q: Quadratic) -> FloatArray:
    """Solve the node problem without x >= 0, float64[C, k]."""
    return _with_parent(q, q.B, *_equality_operators(q, sla.inv(q.H, check_finite=False)))


def _equality_operators(q: Quadratic, K: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P, Q with x_c = P r_c + Q_c minimising x' K^-1 x / 2 - r_c' x under A x = a_c."""
    if q.A is None:
        return K, np.zeros_like(q.B)
    KA = group_sums(K, q.A, q.a.shape[1])  # = K A'
    lift = np.linalg.solve(group_sums(KA.T, q.A, q.a.shape[1]), KA.T)
    return K - KA @ lift, q.a @ lift


def _with_parent(q: Quadratic, R: FloatArray, P: FloatArray, Q: FloatArray) -> FloatArray:
    """Add the coupling: what is missing to the parent is dealt out in proportion to 1 / f_c."""
    x = R @ P + Q
    if q.p is not None:
        share = (1 / q.scale) / (1 / q.scale).sum()
        x += share[:, None] * (q.p - x.sum(0))
    return np.asarray(x)


class Splitting:
    """Over-relaxed operator splitting with Anderson acceleration; mutable iterate `s`.

    Fixed point of s -> s + alpha (x(s) - z(s)), z = max(s, 0) on free cells, x the minimiser of
    the quadratic plus rho f_c / 2 |x_c - (2 z_c - s_c)|^2 under the equalities.
    """

    def __init__(self, q: Quadratic, start: FloatArray) -> None:
        self._q = q
        self.s = start
        self.iterations = 0
        self._eigenvalues, self._vectors = sla.eigh(q.H)
        self._usual = float(np.sqrt(self._eigenvalues[0] * np.median(self._eigenvalues)))
        self._rho = self._usual
        self.weigh(1.0)

    def weigh(self, penalty: float) -> None:
        """Go on with rho at a multiple of its usual value; the multipliers of x >= 0 are kept."""
        z, before = self.solution(), self._rho
        self._rho = penalty * self._usual
        self.s = z + (self.s - z) * (before / self._rho)
        K = (self._vectors / (self._eigenvalues + self._rho)) @ self._vectors.T
        self._P, self._Q = _equality_operators(self._q, K)
        self._history: list[tuple[FloatArray, FloatArray]] = []
        self._best: tuple[float, FloatArray] = (np.inf, self.s)
        self._plain_steps, self._rest = 0, 20

    def solution(self) -> FloatArray:
        """z, the nonnegative half of the iterate."""
        return np.where(self._q.free, np.maximum(self.s, 0), 0.0)

    def certificate(self) -> Certificate:
        """Optimality of z, with the multipliers that the last step implies.

        The step solves f (H x - b) + rho f (x - 2 z + s) = lambda + A' mu, so the reduced gradient
        at z is rho f (2 z - s - x) + f H (z - x). Needed at degenerate solutions, where supports
        do not determine the multipliers.
        """
        q, z = self._q, self.solution()
        x = _with_parent(q, q.B + self._rho * (2 * z - self.s), self._P, self._Q)
        f = q.scale[:, None]
        return certify(q, z, f * (self._rho * (2 * z - self.s - x) + (z - x) @ q.H))

    def _step(self, s: FloatArray) -> FloatArray:
        q = self._q
        z = np.where(q.free, np.maximum(s, 0), 0.0)
        x = _with_parent(q, q.B + self._rho * (2 * z - s), self._P, self._Q)
        self.iterations += 1
        return s + 1.6 * (x - z)

    def advance(self, iterations: int, tolerance: float) -> None:
        """Run up to `iterations` more steps; stops when the fixed point moves less than needed."""
        scale = 1.0 if self._q.p is None else max(1.0, float(self._q.p.max()))
        for _ in range(iterations):
            image = self._step(self.s)
            residual = image - self.s
            if np.abs(residual).max() <= tolerance * scale * 1e-2:
                self.s = image
                return
            self.s = self._next(image, residual)

    def _next(self, image: FloatArray, residual: FloatArray) -> FloatArray:
        """The plain image, or a mix of the last ones while mixing helps.

        Mixing can run away where supports keep changing. Then the iteration goes back to the best
        image so far and takes plain steps, twice as many as the last time; those converge.
        """
        norm = float(np.linalg.norm(residual))
        if norm < self._best[0]:
            self._best = (norm, image)
        elif norm > 2 * self._best[0] and self._history:
            self._history = []
            self._plain_steps, self._rest = self._rest, 2 * self._rest
            return self._best[1]
        if self._plain_steps:
            self._plain_steps -= 1
            return image
        self._history.append((image, residual))
        del self._history[:-_MEMORY]
        return self._mixed(image, residual) if len(self._history) >= 3 else image

    def _mixed(self, image: FloatArray, residual: FloatArray) -> FloatArray:
        """Anderson mixing of the last images."""
        images = np.array([g.ravel() for g, _ in self._history])
        residuals = np.array([r.ravel() for _, r in self._history])
        dR = np.diff(residuals, axis=0)
        gram = dR @ dR.T
        gram[np.diag_indices_from(gram)] += 1e-10 * max(np.trace(gram), 1e-300)
        weights = np.linalg.solve(gram, dR @ residual.ravel())
        return np.asarray((images[-1] - weights @ np.diff(images, axis=0)).reshape(image.shape))


def newton(
    q: Quadratic, support: BoolArray, tolerance: float
) -> tuple[FloatArray, Certificate, int]:
    """Primal-dual active-set iterations from a support.

    For fixed supports the problem is linear: x_c = x0_c + (1/f_c) N_c lambda, N_c the inverse of H
    on the support and on the null space of A, and lambda solves
    (sum_c N_c / f_c) lambda = p - sum_c x0_c. The next support is where x - gradient / diag > 0.

    Returns:
      The point of the smallest residual, its certificate, and the steps used.

    References:
      Hintermueller, Ito & Kunisch, SIAM J. Optim. 13 (2003), 865-888 (as semismooth Newton).
    """
    diagonal = np.diag(q.H)
    best_x = np.zeros_like(q.B)
    best: Certificate | None = None
    stale = 0
    steps = 0
    for _ in range(_NEWTON_STEPS):
        support = _with_columns(q, support)
        x, gradient = _solve_support(q, support)
        steps += 1
        certificate = certify(q, x, gradient)
        if best is None or certificate.residual < best.residual:
            best, best_x, stale = certificate, x, 0
        else:
            stale += 1
        if best.residual <= tolerance * 1e-2 or stale >= 4:
            break
        changed = (x - gradient / (q.scale[:, None] * diagonal) > 0) & q.free
        if np.array_equal(changed, support):
            break
        support = changed
    if best is None:
        best = Certificate(np.inf, np.inf, np.inf)
    return np.maximum(best_x, 0), best, steps


def _with_columns(q: Quadratic, support: BoolArray) -> BoolArray:
    """Make sure each live cell has a child, and each positive exact group a cell, to carry it."""
    support = support.copy()
    if q.p is not None:
        empty = np.flatnonzero(~support.any(0))
        if empty.size:
            score = np.where(q.free[:, empty], q.B[:, empty], -np.inf)
            support[score.argmax(0), empty] = True
    if q.A is not None:
        held = group_sums(support.astype(float), q.A, q.a.shape[1])
        for c, g in zip(*np.nonzero((held == 0) & (q.a > 0)), strict=True):
            support[c, (q.A == g) & q.free[c]] = True
    return support


def _solve_support(q: Quadratic, support: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Solve the equality-constrained problem on a support; return x and the reduced gradient.

    Rounds of correction with the same inverses give back the digits that widely spread weights
    cost, and make the tiny shift in the coupling harmless.
    """
    small = q.H.shape[0] <= _BATCHED_CELLS
    inverses = _BatchedInverses(q, support) if small else _LoopedInverses(q, support)
    x = inverses.solve(q.B, q.a)
    multiplier = np.zeros(q.H.shape[0])
    coupling = None if q.p is None else _Coupling(inverses.total(), inverses.size)
    for last in (False, False, True):
        if coupling is not None:
            change = coupling.solve(q.p - x.sum(0))
            multiplier += change
            x += inverses.apply(change)
        if not last:
            missing = np.where(support, q.B - x @ q.H + multiplier / q.scale[:, None], 0.0)
            left = q.a if q.A is None else q.a - group_sums(x, q.A, q.a.shape[1])
            x += inverses.solve(missing, left)
    gradient = q.scale[:, None] * (x @ q.H - q.B) - multiplier
    if q.A is not None:
        gradient = _without_group_multipliers(q, q.A, gradient, support)
    return x, gradient


class _Coupling:
    """Solves (sum_c N_c / f_c) lambda = r in the least-norm sense.

    Singular directions are real: a cell whose every holder is fixed by its equalities, and, under
    A x = a, the rows of A. They are told from small ones by the size the inverses had before the
    equalities took their part out of them.
    """

    def __init__(self, N: FloatArray, size: float) -> None:
        self._spectral = len(N) <= _BATCHED_CELLS
        floor = max(1e-12 * size, 1e-300)
        if self._spectral:
            values, vectors = np.linalg.eigh(N)
            kept = values > floor
            self._left, self._right = vectors[:, kept] / values[kept], vectors[:, kept].T
        else:
            shifted = N + floor * np.eye(len(N))
            self._factor = sla.cho_factor(shifted, overwrite_a=True, check_finite=False)

    def solve(self, right: FloatArray) -> FloatArray:
        if self._spectral:
            return np.asarray(self._left @ (self._right @ right))
        return np.asarray(sla.cho_solve(self._factor, right, check_finite=False))


class _BatchedInverses:
    """Per child, the inverse of H on the support and the null space of A, zero elsewhere.

    All children at once as [C, k, k]; for few cells, where a loop would cost more than the sums.
    """

    def __init__(self, q: Quadratic, support: BoolArray) -> None:
        self._q = q
        pairs = support[:, :, None] & support[:, None, :]
        masked = np.where(pairs, q.H, 0.0)
        k = q.H.shape[0]
        masked[:, np.arange(k), np.arange(k)] += ~support
        inverse = np.where(pairs, np.linalg.inv(masked), 0.0)
        self.size = float(np.einsum("ckk,c->", inverse, 1 / q.scale)) / k
        self._lift: FloatArray | None = None
        if q.A is not None:
            membership = np.eye(q.a.shape[1])[q.A]
            KA = inverse @ membership
            AKA = membership.T @ KA
            r = AKA.shape[1]
            absent = (support.astype(float) @ membership) == 0
            AKA[:, np.arange(r), np.arange(r)] += absent
            lift = np.asarray(np.linalg.solve(AKA, KA.transpose(0, 2, 1)), float)
            inverse = np.asarray(inverse - KA @ lift, float)
            self._lift = lift
        self._inverse = inverse

    def solve(self, right: FloatArray, targets: FloatArray) -> FloatArray:
        """Minimise x' H x / 2 - right' x on the supports under A x = targets, child by child."""
        x = np.einsum("ckl,cl->ck", self._inverse, right)
        if self._lift is not None:
            x += np.einsum("cr,crk->ck", targets, self._lift)
        return np.asarray(x)

    def total(self) -> FloatArray:
        """float64[k, k]: sum of the inverses over f_c."""
        return np.asarray(np.einsum("ckl,c->kl", self._inverse, 1 / self._q.scale))

    def apply(self, change: FloatArray) -> FloatArray:
        """How the children answer to a change of the coupling's multiplier."""
        return np.asarray((self._inverse @ change) / self._q.scale[:, None])


class _LoopedInverses:
    """The same, child by child on its own cells; for many cells, of which few are in a support."""

    def __init__(self, q: Quadratic, support: BoolArray) -> None:
        self._q = q
        self._parts = [_child_inverse(q, np.flatnonzero(support[c])) for c in range(len(q.B))]
        self.size = (
            sum(part.size / f for part, f in zip(self._parts, q.scale, strict=True)) / q.H.shape[0]
        )

    def solve(self, right: FloatArray, targets: FloatArray) -> FloatArray:
        """Minimise x' H x / 2 - right' x on the supports under A x = targets, child by child."""
        x = np.zeros_like(right)
        for c, part in enumerate(self._parts):
            x[c, part.cells] = part.inverse @ right[c, part.cells]
            if part.lift is not None:
                x[c, part.cells] += targets[c, part.groups] @ part.lift
        return x

    def total(self) -> FloatArray:
        """float64[k, k]: sum of the inverses over f_c."""
        N = np.zeros_like(self._q.H)
        for c, part in enumerate(self._parts):
            N[np.ix_(part.cells, part.cells)] += part.inverse / self._q.scale[c]
        return N

    def apply(self, change: FloatArray) -> FloatArray:
        """How the children answer to a change of the coupling's multiplier."""
        x = np.zeros_like(self._q.B)
        for c, part in enumerate(self._parts):
            x[c, part.cells] = part.inverse @ change[part.cells] / self._q.scale[c]
        return x


@dataclass(frozen=True, eq=False)
class _ChildInverse:
    """Inverse of H on one child's support and on the null space of A.

    Attributes:
      cells: int64[s], the support.
      inverse: float64[s, s].
      groups: int64[g], groups of A with a cell in the support.
      lift: float64[g, s] or None without A: what the targets of these groups contribute to x.
      size: Trace of the inverse before A was taken out.
    """

    cells: IntArray
    inverse: FloatArray
    groups: IntArray
    lift: FloatArray | None
    size: float


def _child_inverse(q: Quadratic, cells: IntArray) -> _ChildInverse:
    none = np.zeros(0, np.int64)
    if not cells.size:
        return _ChildInverse(cells, np.zeros((0, 0)), none, None, 0.0)
    inverse = sla.inv(q.H[np.ix_(cells, cells)], check_finite=False)
    size = float(np.trace(inverse))
    if q.A is None:
        return _ChildInverse(cells, inverse, none, None, size)
    present, groups = np.unique(q.A[cells], return_inverse=True)
    KA = group_sums(inverse, groups, len(present))
    lift = np.linalg.solve(group_sums(KA.T, groups, len(present)), KA.T)
    return _ChildInverse(cells, inverse - KA @ lift, present, lift, size)


def _without_group_multipliers(
    q: Quadratic, groups: IntArray, gradient: FloatArray, support: BoolArray
) -> FloatArray:
    """Subtract each child's multiplier of A x = a: the mean gradient on the group's support."""
    held = group_sums(support.astype(float), groups, q.a.shape[1])
    sums = group_sums(np.where(support, gradient, 0.0), groups, q.a.shape[1])
    return np.asarray(gradient - (sums / np.maximum(held, 1))[:, groups])


def certify(q: Quadratic, x: FloatArray, gradient: FloatArray) -> Certificate:
    """Measure how far (x, gradient) is from the optimality conditions."""
    size = max(1.0, float(np.abs(x).max(initial=0.0)))
    positive = np.maximum(x, 0)
    g = gradient / q.scale[:, None]
    # At an optimum g >= 0 where x = 0 and g = 0 where x > 0: natural residual min(x, g) = 0.
    natural = np.where(q.free, np.minimum(positive, g), 0.0)
    stationarity = float(np.abs(natural).max(initial=0.0)) / size
    primal = float(np.maximum(-x, 0).max(initial=0.0))
    if q.p is not None:
        primal = max(primal, float(np.abs(positive.sum(0) - q.p).max(initial=0.0)))
    if q.A is not None:
        sums = group_sums(positive, q.A, q.a.shape[1])
        primal = max(primal, float(np.abs(sums - q.a).max(initial=0.0)))
    objective = float((q.scale[:, None] * (0.5 * (x @ q.H) - q.B) * x).sum())
    gap = abs(float((gradient * positive).sum())) / max(1.0, abs(objective))
    return Certificate(stationarity, primal / size, gap)
