"""Many small least-squares problems with bounds at once, by block principal pivoting.

Problem r = 1..R is

    minimise 1/2 sum_i d_ri (x_ri - c_ri)^2 + 1/2 sum_j w_rj (u_rj x_r - a_rj)^2
    subject to l_ri <= x_ri <= h_ri,

a diagonal plus few rows, such as noisy tables of single cells and of sums of cells. On the cells F
that are not at a bound the Woodbury identity leaves one system per problem, with S = diag(sqrt w),

    (I + S U_F D_F^-1 U_F' S) s = S (a - U x_fixed - U_F c_F),    x_F = c_F + D_F^-1 U_F' S s,

which stays well conditioned when weights are zero or very large. All R systems are solved in one
call. Cells change sides in blocks while that lowers the number of violations; after three failures,
one cell at a time, which ends for every strictly convex problem.

References:
  Portugal, Judice & Vicente, Math. Comp. 63 (1994), 625-643; Kim & Park, SIAM J. Sci. Comput. 33
  (2011), 3261-3281.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.errors import SolverError

# Defaults, not measured; the patience is that of Kim & Park.
_PATIENCE = 3  # blocks that may fail to lower the number of violations
_MOST_PIVOTS = 2000  # then the solver fails
_SLACK = 1e-10  # violations below this, relative to the problem, count as rounding errors
_AT_ONCE = 250  # problems per call, to bound the memory of their matrices
_PENALTY = 100.0  # first weight of an equality, over the largest weight
_MOST_PENALTY = 1e7  # with more, rounding errors in the weighted matrix dominate
_MOST_ROUNDS = 100  # of multipliers; then the solver fails
_MET = 1e-9  # accepted residual of an equality, relative to its largest target
_SETTLED = 1e-6  # accepted change of a solution in a round, on the same scale


@dataclass(frozen=True, eq=False)
class BoundedProblems:
    """R problems over n cells and m rows.

    Attributes:
      cell_weights: float64[R, n], d, all positive.
      cell_targets: float64[R, n], c.
      rows: float64[m, n] if all problems share them, else float64[R, m, n].
      row_weights: float64[R, m], w, nonnegative.
      row_targets: float64[R, m], a.
      lower: float64[R, n], l; may be -inf.
      upper: float64[R, n], h >= l; may be inf.
    """

    cell_weights: FloatArray
    cell_targets: FloatArray
    rows: FloatArray
    row_weights: FloatArray
    row_targets: FloatArray
    lower: FloatArray
    upper: FloatArray

    def take(self, chosen: BoolArray | slice) -> BoundedProblems:
        """Return the chosen problems."""
        return BoundedProblems(
            self.cell_weights[chosen],
            self.cell_targets[chosen],
            self.rows if self.rows.ndim == 2 else self.rows[chosen],
            self.row_weights[chosen],
            self.row_targets[chosen],
            self.lower[chosen],
            self.upper[chosen],
        )


def solve_bounded(problems: BoundedProblems, start: FloatArray | None = None) -> FloatArray:
    """Solve all problems exactly up to rounding errors.

    Args:
      problems: The R problems; each is solved alone.
      start: float64[R, n], a guess; cells strictly inside their bounds start as free.

    Returns:
      float64[R, n], within the bounds.

    Raises:
      SolverError: The pivots of a problem did not end, or a number is not finite.

    >>> shared = np.ones((1, 2))
    >>> problem = BoundedProblems(
    ...     np.ones((1, 2)), np.array([[3.0, -5.0]]), shared, np.ones((1, 1)),
    ...     np.zeros((1, 1)), np.zeros((1, 2)), np.full((1, 2), np.inf))
    >>> solve_bounded(problem)
    array([[1.5, 0. ]])
    """
    guess = problems.cell_targets if start is None else start
    out = np.empty_like(problems.cell_targets)
    for begin in range(0, len(out), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        out[part] = _solve_part(problems.take(part), guess[part])
    return out


def _solve_part(problems: BoundedProblems, start: FloatArray) -> FloatArray:
    side = (start >= problems.upper).astype(np.int8) - (start <= problems.lower)
    out = np.empty_like(start)
    fewest = np.full(len(start), start.shape[1] + 1)
    patience = np.full(len(start), _PATIENCE)
    left = np.arange(len(start))
    for _ in range(_MOST_PIVOTS):
        x, gradient = solve_on_sides(problems, side)
        wanted = _wanted_sides(problems, side, x, gradient)
        wrong = wanted != side
        count = wrong.sum(1)
        done = count == 0
        if not np.isfinite(x).all():
            raise SolverError("bounded least squares", "a solution is not finite")
        out[left[done]] = np.clip(x, problems.lower, problems.upper)[done]
        if done.all():
            return out
        better = count < fewest
        patience = np.where(better, _PATIENCE, patience - 1)
        fewest = np.minimum(fewest, count)
        # Only the last violation: Murty's rule, which cannot cycle.
        last = wrong.shape[1] - 1 - wrong[:, ::-1].argmax(1)
        is_last = np.zeros_like(wrong)
        is_last[np.arange(len(is_last)), last] = True
        side = np.where(wrong & (is_last | (patience >= 0)[:, None]), wanted, side)
        kept = ~done
        problems, side, left = problems.take(kept), side[kept], left[kept]
        fewest, patience = fewest[kept], patience[kept]
    raise SolverError(
        "bounded least squares",
        "the pivots did not end",
        got=f"{len(left)} problems after {_MOST_PIVOTS} pivots",
        remedy="check the weights: the largest may be more than 1e12 times the smallest",
    )


def solve_on_sides(problems: BoundedProblems, side: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Solve with cells at their lower (-1) or upper (1) bound or free (0).

    Returns:
      x, float64[R, n], and the gradient of the objective there, zero on free cells.
    """
    free = side == 0
    x = np.where(side < 0, problems.lower, np.where(side > 0, problems.upper, 0.0))
    root = np.sqrt(problems.row_weights)
    inverse = free / problems.cell_weights
    center = np.where(free, problems.cell_targets, x)
    rows, is_shared = problems.rows, problems.rows.ndim == 2
    answers = center @ rows.T if is_shared else (rows @ center[:, :, None])[:, :, 0]
    right = root * (problems.row_targets - answers)
    spread = rows * inverse[:, None, :]
    K = spread @ rows.swapaxes(-1, -2)
    K *= root[:, :, None] * root[:, None, :]
    diagonal = np.arange(K.shape[1])
    K[:, diagonal, diagonal] += 1
    multipliers = root * np.linalg.solve(K, right[:, :, None])[:, :, 0]
    adjoint = multipliers @ rows if is_shared else (multipliers[:, None, :] @ rows)[:, 0]
    x = center + inverse * adjoint
    gradient = np.where(free, 0.0, problems.cell_weights * (x - problems.cell_targets) - adjoint)
    return x, gradient


def _wanted_sides(
    problems: BoundedProblems, side: np.ndarray, x: FloatArray, gradient: FloatArray
) -> np.ndarray:
    """Return the side that optimality requires of each cell: -1 lower bound, 1 upper, 0 free."""
    size = _SLACK * np.maximum(1.0, np.abs(x).max(1, keepdims=True))
    wanted = np.where(side == 0, (x > problems.upper + size).astype(np.int8), side)
    wanted = np.where((side == 0) & (x < problems.lower - size), np.int8(-1), wanted)
    force = size * problems.cell_weights
    leaves = ((side < 0) & (gradient < -force)) | ((side > 0) & (gradient > force))
    return np.where(leaves & (problems.lower < problems.upper), np.int8(0), wanted)


@dataclass(frozen=True, eq=False)
class Equalities:
    """Equality rows, imposed by the method of multipliers.

    Attributes:
      rows: float64[e, n], coefficients of the equalities, shared by all problems.
      targets: float64[R, e], the value of each equality in each of R problems.
    """

    rows: FloatArray
    targets: FloatArray


def solve_with_equalities(
    problems: BoundedProblems, equalities: Equalities, proximal: float = 0.0
) -> FloatArray:
    """Solve all problems under E x_r = e_r; the rows E are shared.

    The method of multipliers adds the rows with a large weight and shifted targets; each round is a
    problem of the same form. With `proximal` > 0 the cell weights and targets are not part of the
    problem, which need not be strictly convex: a proximal term of weight `proximal`, relative to
    the largest row weight, replaces them.

    Raises:
      SolverError: The rows are not met, for example because they contradict the bounds.

    References:
      Rockafellar, Math. Oper. Res. 1 (1976), 97-116 (proximal method of multipliers).
    """
    n_rows = len(equalities.rows)
    if not n_rows and not proximal:
        return solve_bounded(problems)
    joined = replace(problems, rows=np.vstack([problems.rows, equalities.rows]))
    heaviest = (problems.row_weights if proximal else problems.cell_weights).max(1, keepdims=True)
    penalty = _PENALTY
    scale = np.maximum(1.0, np.abs(equalities.targets).max(1, initial=0.0))
    shift = np.zeros_like(equalities.targets)
    x = np.clip(problems.cell_targets, problems.lower, problems.upper)
    left = np.ones(len(x), bool)
    for _ in range(_MOST_ROUNDS):
        weights = np.broadcast_to(penalty * heaviest, shift.shape)
        part = replace(
            joined,
            row_weights=np.hstack([problems.row_weights, weights]),
            row_targets=np.hstack([problems.row_targets, equalities.targets + shift]),
        )
        if proximal:
            near = np.full_like(problems.cell_weights, proximal) * heaviest
            part = replace(part, cell_weights=near, cell_targets=x)
        new = solve_bounded(part.take(left), x[left])
        missing = equalities.targets[left] - new @ equalities.rows.T
        moved = np.abs(new - x[left]).max(1)
        x[left] = new
        shift[left] += missing
        worst = np.abs(missing).max(1, initial=0.0)
        left[left] = (worst > _MET * scale[left]) | (moved > _SETTLED * scale[left])
        if not left.any():
            return x
        if penalty < _MOST_PENALTY:
            penalty *= 2
            shift /= 2
    raise SolverError(
        "least squares with fixed answers",
        "the fixed answers are not met",
        got=f"{left.sum()} problems, largest miss {worst.max():.1e} after {_MOST_ROUNDS} rounds",
        want=f"at most {_MET:.0e} of the largest",
    )


_FLOAT_ROOM = 1e-7  # added to the smallest deviation: the tolerance of HiGHS


def fit_largest_deviation(
    rows: FloatArray,
    answers: FloatArray,
    variances: FloatArray,
    slack: float = 0.0,
    equalities: Equalities | None = None,
) -> FloatArray:
    """Fit the histogram of every draw.

    Args:
      rows: float64[m, n], coarse queries on n cells.
      answers: float64[R, m + n], noisy answers of R draws: first the coarse queries, then the
        cells.
      variances: float64[m + n], noise variance of each answer.
      slack: Deviation allowed beyond the smallest, in standard deviations.
      equalities: Further equalities over the cells.

    Returns:
      float64[R, n], nonnegative.

    Raises:
      SolverError: A linear program or the least squares after it did not end.
    """
    deviations = np.sqrt(variances)
    matrix = np.vstack([rows, np.eye(rows.shape[1])])
    n, m, R = rows.shape[1], len(rows), len(answers)
    must = equalities or Equalities(np.zeros((0, n)), np.zeros((R, 0)))
    smallest = [
        smallest_deviation(matrix, noisy, deviations, must.rows, target)
        for noisy, target in zip(answers, must.targets, strict=True)
    ]
    room = np.array(smallest)[:, None] * (1 + _FLOAT_ROOM) + _FLOAT_ROOM + slack
    limit = room * deviations
    scaled = np.broadcast_to(1 / variances, answers.shape)
    # Variables: cells, then the deviations of the coarse answers.
    problems = BoundedProblems(
        np.hstack([scaled[:, m:], scaled[:, :m]]),
        np.hstack([answers[:, m:], np.zeros((R, m))]),
        np.zeros((0, n + m)),
        np.zeros((R, 0)),
        np.zeros((R, 0)),
        np.hstack([np.maximum(0.0, answers[:, m:] - limit[:, m:]), -limit[:, :m]]),
        np.hstack([np.maximum(0.0, answers[:, m:] + limit[:, m:]), limit[:, :m]]),
    )
    rows_of_both = np.block([[rows, -np.eye(m)], [must.rows, np.zeros((len(must.rows), m))]])
    both = Equalities(rows_of_both, np.hstack([answers[:, :m], must.targets]))
    return solve_with_equalities(problems, both)[:, :n]


def smallest_deviation(
    matrix: FloatArray,
    answers: FloatArray,
    deviations: FloatArray,
    fixed: FloatArray,
    targets: FloatArray,
) -> float:
    """Return the least value, over x >= 0 with `fixed` x = `targets`, of max |M x - a| / deviation.

    Args:
      matrix: M, float64[m, n].
      answers: a, float64[m].
      deviations: float64[m], standard deviations of the answers.
      fixed: float64[e, n], rows whose sums are given.
      targets: float64[e], the given sums.

    >>> none = np.zeros((0, 1)), np.zeros(0)
    >>> round(smallest_deviation(np.ones((2, 1)), np.array([1.0, 5.0]), np.ones(2), *none), 9)
    2.0
    """
    import scipy.sparse as sp
    from scipy.optimize import linprog

    sparse, column = sp.csr_array(matrix), sp.csr_array(deviations[:, None])
    result = linprog(
        np.append(np.zeros(matrix.shape[1]), 1.0),
        A_ub=sp.vstack([sp.hstack([sparse, -column]), sp.hstack([-sparse, -column])]),
        b_ub=np.concatenate([answers, -answers]),
        A_eq=np.hstack([fixed, np.zeros((len(fixed), 1))]) if len(fixed) else None,
        b_eq=targets if len(fixed) else None,
        method="highs",
    )
    if result.status != 0:
        raise SolverError("largest deviation", "the linear program did not end", got=result.message)
    return float(result.x[-1])
