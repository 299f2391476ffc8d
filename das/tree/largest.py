"""Shares that make the largest of several errors, or their sum, least within limits.

With errors f_j / rho convex and homogeneous of degree -1 in the shares x, h_j = 1 / (c_j f_j) is
concave and homogeneous of degree 1: a positive quasiconcave function of degree 1 is concave. So

    min_x max_j c_j f_j(x) = 1 / max_x min_j h_j(x)

is a concave problem whose tangent planes pass through the origin, and limits f_i <= rho d_i are
h_i >= 1. A sum of errors, sum_j c_j f_j, is convex and homogeneous of degree -1 as each of them is,
and stands in the place of the only error. The problem is solved by sequential quadratic programming
over a working set of errors; an error outside of it that turns out larger joins it.

Tangents at any points x_k bound every allocation from one side. With g_jk the gradient of h_j at
x_k, m_jk >= 0 of sum 1 over the errors and n_ik >= 0 over the limits,

    min_j h_j(y) <= (sum m_jk g_jk + sum n_ik g_ik) . y - sum n_ik    for every y within limits,

and the right side is largest at a vertex of what may be spent. The weights that make it least are
the optimal strategy of a matrix game, a linear program over the tangents met on the way. They are
checked by that inequality alone: whatever weights the program returns, the bound holds. Each chain
of only children may spend its rho as it likes in the bound, as in `das.tree.allocation`.

With strata what is spent on everybody and on each stratum sums to 1: one equation per stratum in
the search and in the program.

References:
  Boyd & Vandenberghe, Convex Optimization, Cambridge 2004, sections 3.4 and 5.2.5 (quasiconvexity,
    matrix games).
  Kelley, J. SIAM 8, 1960 (cutting planes).
  Kraft, DFVLR-FB 88-28, 1988 (SLSQP).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import BudgetError
from das.tree.allocation import (
    LEAST_DETAILED,
    Allocation,
    AllocationProblem,
    detailed_column,
)
from das.tree.errors import SolvedSpine
from das.tree.information import Information

# Relative distance of value and bound at which the search stops: the parts that `detailed` must
# have at every geolevel alone can cost the first. Full information costs far more a step.
NEAR_ENOUGH = {Information.OWN: 1e-3, Information.FULL: 5e-3}
Row = tuple[int, int, bool]  # of a working set: table, geolevel, whether it is a limit
_LEAST_SHARE = 1e-3  # below which steps are not measured by the share itself
_LEAST_OF_STRATA = 1e-9  # of the budget, per query of a stratum: chains divide by shares of levels
_MOST_ROUNDS = 40  # of growing the working set or starting again
_MOST_RESTARTS = 3  # from the best shares, where a search has stalled
_MOST_STEPS = 100  # of one search
_NEAR = 1.1  # times the least height, up to which gradients are made anew
_MOST_TANGENTS = 256  # the latest ones; those far from the optimum bound nothing
_TOLERANCE = 1e-6  # relative, by which a limit may be missed and an error outside be larger


@dataclass(frozen=True, eq=False)
class Aim:
    """What shares are sought for.

    Attributes:
      scale: float64[T, L], nonnegative; what errors are multiplied with.
      is_sum: Whether their sum is made least, or the largest of them.
      limits: float64[T, L], the largest accepted mean squared errors at rho = 1; infinite, or None
        for all, where there is none.
    """

    scale: FloatArray
    is_sum: bool = False
    limits: FloatArray | None = None

    def ratios(self, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """float64[T, L] twice: errors times their scale, and over their limits.

        Of a sum, all of it is in the first place.
        """
        goal = errors * self.scale
        if self.is_sum:
            whole = goal.sum()
            goal = np.zeros_like(goal)
            goal[0, 0] = whole
        return goal, errors * self.limited

    @property
    def limited(self) -> FloatArray:
        """float64[T, L]: 1 / limits, 0 where there is none."""
        return np.zeros_like(self.scale) if self.limits is None else 1.0 / self.limits

    def weights_of(self, table: int, level: int, *, limit: bool) -> FloatArray:
        """float64[T, L]: weights of the errors that make up one of the ratios."""
        if self.is_sum and not limit:
            return self.scale
        scale = self.limited if limit else self.scale
        out = np.zeros_like(scale)
        out[table, level] = scale[table, level]
        return out

    def of_noise(self, problem: AllocationProblem) -> Aim:
        """The same without errors that invariants leave none of."""
        noisy = ~problem.model.is_determined
        limits = None if self.limits is None else np.where(noisy, self.limits, np.inf)
        return Aim(np.where(noisy, self.scale, 0.0), self.is_sum, limits)


def least_within(
    problem: AllocationProblem, aim: Aim, start: FloatArray, gap: float | None = None
) -> Allocation:
    """Make the largest error, or a sum of errors, least within limits.

    Args:
      problem: Errors as a function of shares.
      aim: What is made least, and the limits.
      start: float64[L, Q], nonnegative; shares to start from, up to a factor.
      gap: Relative distance of value and bound at which the search stops; NEAR_ENOUGH if not given.

    Raises:
      BudgetError: A scale is negative, or none of a table with noise is positive; or no allocation
        was found within the limits, and the message says by what factor rho is too small.
    """
    refuse_unsearchable(problem, aim)
    aim = aim.of_noise(problem)
    if aim.limited.any():
        unit = power_of_two(aim.limited)
        within = _Search(problem, Aim(aim.limited / unit), enough=1.0 / unit).run(start)
        if within.value > 1.0 / unit:
            raise BudgetError(
                "limits of errors",
                "cannot be met together",
                got=f"{within.value * unit:.6g} times the budget is needed",
                want=f"at most the budget (none below {within.bound * unit:.6g} times can do)",
                remedy="raise the budget or the limits",
            )
        start = within.shares
    return _Search(problem, aim, gap=gap).run(start)


def refuse_unsearchable(problem: AllocationProblem, aim: Aim) -> None:
    """Refuse an aim for which no shares can be sought.

    Raises:
      BudgetError: A scale is negative, or none of a table with noise is positive; or a limit is not
        positive.
    """
    noisy, scale, limits = ~problem.model.is_determined, aim.scale, aim.limits
    if (scale < 0).any() or not np.isfinite(scale).all() or not (scale[noisy] > 0).any():
        raise BudgetError("scales of errors", "must be nonnegative, one of a noisy table positive")
    if limits is not None and not (limits >= np.finfo(np.float64).tiny).all():
        raise BudgetError("limits of errors", "must be positive")


def power_of_two(numbers: FloatArray) -> float:
    """One near the largest number: dividing by it keeps all bits, and squares from overflowing."""
    return float(np.ldexp(1.0, int(np.frexp(numbers.max())[1])))


@dataclass(frozen=True, eq=False)
class Certified:
    """What shares attain, and what none can beat, by prices that were found elsewhere.

    Attributes:
      errors: float64[T, L], mean squared errors at rho = 1.
      value: The largest error, or the sum.
      bound: No allocation within the limits has a lower value.
      excess: The largest error over its limit; at most 1 if the limits are kept, 0 without any.
    """

    errors: FloatArray
    value: float
    bound: float
    excess: float


def least_bound(problem: AllocationProblem, aim: Aim, found: Allocation) -> float:
    """The best bound by tangents at shares, with a gradient for every error that counts.

    Args:
      problem: Errors as a function of shares.
      aim: What is made least, and the limits.
      found: Shares; errors and limits count where their weights and prices are positive.
    """
    aim = aim.of_noise(problem)
    solved = problem.solve(found.shares)
    ratios = aim.ratios(solved.mean)
    rows = [
        (int(table), int(level), limit)
        for limit, counts in ((False, found.weights), (True, found.prices))
        for table, level in np.argwhere((counts > 0) & (ratios[limit] > 0))
    ]
    slopes = [_tangent(problem, aim, solved, row, float(ratios[row[2]][row[:2]])) for row in rows]
    return _game(problem, list(zip(rows, slopes, strict=True)))[1]


def _tangent(
    problem: AllocationProblem, aim: Aim, solved: SolvedSpine, row: Row, ratio: float
) -> FloatArray:
    """float64[chains, Q]: the gradient of the inverse of one of the ratios."""
    weights = aim.weights_of(row[0], row[1], limit=row[2])
    return -solved.gradient(weights) * problem.per_rho / ratio**2


def certify(problem: AllocationProblem, aim: Aim, found: Allocation) -> Certified:
    """Judge shares, with one gradient.

    The bound holds for any nonnegative weights and prices; it is near the value where these are
    near those of the optimum.

    Args:
      problem: Errors as a function of shares.
      aim: What is made least, and the limits.
      found: Shares, weights and prices; its value and bound are not used.
    """
    aim = aim.of_noise(problem)
    solved = problem.solve(found.shares)
    goal, over = aim.ratios(solved.mean)
    weights, prices = found.weights / found.weights.sum(), found.prices
    # The gradient of 1 / ratio is that of the errors over -ratio^2.
    of_goal = np.divide(weights, goal**2, out=np.zeros_like(goal), where=weights > 0)
    of_limits = np.divide(prices, over**2, out=np.zeros_like(over), where=prices > 0)
    of_goal = aim.scale * (of_goal[0, 0] if aim.is_sum else of_goal)
    slope = -solved.gradient(of_goal + aim.limited * of_limits) * problem.per_rho
    most = problem.steepest(slope) - float(prices[over > 0].sum())
    bound = 1 / most if most > 0 else 0.0
    return Certified(solved.mean, float(goal.max()), bound, float(over.max()))


class _Certified(Exception):  # noqa: N818 - ends a search, which is no error
    """The bound is as near as it needs to be, or the value as low."""


@dataclass(frozen=True, eq=False)
class _Point:
    """Heights h = 1 / (scale * error) at shares, over the working set.

    Attributes:
      given: The numbers that the search gave, of any sum.
      total: Their sum.
      shares: float64[L, Q], of sum 1.
      solved: Errors at the shares.
      heights: float64[k], at the numbers given.
    """

    given: FloatArray
    total: float
    shares: FloatArray
    solved: SolvedSpine
    heights: FloatArray


class _Search:
    """Sequential quadratic programming with its tangents, for one goal and its limits."""

    def __init__(
        self,
        problem: AllocationProblem,
        aim: Aim,
        enough: float = 0.0,
        gap: float | None = None,
    ) -> None:
        self.problem = problem
        self.aim = aim
        self.enough = enough  # a value at which there is nothing more to search
        self.gap = NEAR_ENOUGH[problem.information] if gap is None else gap
        self.working: list[Row] = []
        self.tangents: list[tuple[Row, FloatArray]] = []
        self.gradients: dict[Row, FloatArray] = {}  # the latest of each row
        self.best: FloatArray | None = None
        self.value, self.bound = np.inf, 0.0
        self.weights, self.prices = np.zeros_like(aim.scale), np.zeros_like(aim.scale)
        self.point: _Point | None = None
        shape = (problem.model.tree.n_levels, len(problem.model.measured))
        self.floor = np.zeros(shape)
        for part in problem.parts[1:]:
            self.floor[:, part] = _LEAST_OF_STRATA
        self.floor[:, detailed_column(problem)] = float(LEAST_DETAILED)

    def run(self, start: FloatArray) -> Allocation:
        """Search from shares, up to a factor."""
        shares = self._feasible(start)
        self._join(self._solved(shares))
        restarts = 0
        for _ in range(_MOST_ROUNDS):
            if self.value <= self.enough:
                break
            try:
                reached = self._descend(shares)
            except _Certified:
                break
            if self._join(self._solved(reached)):
                shares = reached
                continue
            self._tighten()
            if self.value <= (1 + self.gap) * self.bound or restarts == _MOST_RESTARTS:
                break
            restarts += 1
            shares = self.best if self.best is not None else reached
        if self.best is None:
            raise BudgetError("limits of errors", "no allocation within them was found")
        self._tighten()
        best = self.best
        if self.problem.strata is not None:  # a stratum that spent less gets all it may
            best = self._of_parts(best - self.floor, float(best[:, self.problem.parts[0]].sum()))
        return Allocation(best, self.value, self.bound, self.weights, self.prices)

    def _feasible(self, shares: FloatArray) -> FloatArray:
        positive, of_all = np.maximum(shares, 0.0), 1.0
        if self.problem.strata is not None:
            first = self.problem.parts[0]
            least = self.floor[:, first].sum()
            of_all = positive[:, first].sum() / self._spent(positive)
            of_all = float(np.clip(of_all, 2 * least, 1 - 2 * least))
        return self._of_parts(positive, of_all)

    def _of_parts(self, positive: FloatArray, of_all: float) -> FloatArray:
        """Shares with so much for everybody and the rest for each stratum, above the floor."""
        out = self.floor.copy()
        for number, part in enumerate(self.problem.parts):
            own, whole = positive[:, part], 1 - of_all if number else of_all
            left = whole - self.floor[:, part].sum()
            even = np.full(own.shape, 1 / own.size)
            out[:, part] += left * (own / own.sum() if own.sum() > 0 else even)
        return out

    def _spent(self, shares: FloatArray) -> float:
        """What the most expensive path costs; without strata all paths cost the same."""
        first, *others = (shares[:, part].sum() for part in self.problem.parts)
        return float(first + max(others, default=0.0))

    def _solved(self, shares: FloatArray) -> SolvedSpine:
        """Errors at shares of sum 1, which are kept if they are the best within limits."""
        solved = self.problem.solve(shares)
        goal, limited = self.aim.ratios(solved.mean)
        value = float(goal.max())
        if value < self.value and limited.max() <= 1 + _TOLERANCE:
            self.best, self.value = shares, value
        return solved

    def _join(self, solved: SolvedSpine) -> bool:
        """Let the largest error of every geolevel, and all limits that are missed, join.

        Returns whether any did.
        """
        before = len(self.working)
        for is_limit, ratio in enumerate(self.aim.ratios(solved.mean)):
            known = [ratio[t, level] for t, level, limit in self.working if limit == is_limit]
            least = 1.0 if is_limit else max(known, default=0.0)
            for level in range(ratio.shape[1]):
                larger = np.flatnonzero(ratio[:, level] > (1 + _TOLERANCE) * least).tolist()
                for table in larger if is_limit else larger and [int(ratio[:, level].argmax())]:
                    row = (table, level, bool(is_limit))
                    if row not in self.working:
                        self.working.append(row)
        return len(self.working) > before

    def _descend(self, start: FloatArray) -> FloatArray:
        """Maximize the least height over the working set; shares at the end."""
        from scipy.optimize import minimize

        size = start.size
        is_limit = np.array([limit for _, _, limit in self.working])
        # Steps of shares are measured by the roots of the shares, so that the search, which begins
        # without knowledge of curvature, changes small ones little: Delta y^2 / y is the second
        # order of the divergence of shares.
        roots = np.sqrt(start.ravel() + _LEAST_SHARE)
        first = self._at(start.ravel())
        unit = float(first.heights[~is_limit].min())
        # Heights over the least one at the start, so that the last variable starts at 1.
        units = np.where(is_limit, 1.0, unit)
        of_level = np.where(is_limit, 0.0, -1.0)
        apart = np.where(is_limit, -1.0, 0.0)

        def slack(z: FloatArray) -> FloatArray:
            heights = self._at(roots * z[:-1]).heights
            return np.asarray(heights / units + of_level * z[-1] + apart)

        def slopes(z: FloatArray) -> FloatArray:
            gradients = self._gradients(roots * z[:-1]) * roots / units[:, None]
            return np.concatenate([gradients, of_level[:, None]], axis=1)

        sums = np.pad(self._paths() * roots, ((0, 0), (0, 1)))
        last = np.append(np.zeros(size), -1.0)
        lowest = self.floor.ravel() / roots
        found = minimize(
            lambda z: -z[-1],
            np.append(start.ravel() / roots, 1.0),
            jac=lambda z: last,
            constraints=[
                {"type": "ineq", "fun": slack, "jac": slopes},
                {"type": "eq", "fun": lambda z: sums @ z - 1, "jac": lambda z: sums},
            ],
            bounds=[*zip(lowest, 1 / roots, strict=True), (0.0, None)],
            callback=lambda z: self._stop_if_certified(),
            method="SLSQP",
            options={"maxiter": _MOST_STEPS, "ftol": 1e-7},
        )
        return self._feasible((roots * found.x[:-1]).reshape(start.shape))

    def _paths(self) -> FloatArray:
        """float64[strata, L * Q], one row without strata: the shares that a record is charged."""
        first, *others = self.problem.parts
        out = np.zeros((max(1, len(others)), *self.floor.shape))
        out[:, :, first] = 1.0
        for row, part in zip(out, others, strict=False):
            row[:, part] = 1.0
        return out.reshape(len(out), -1)

    def _stop_if_certified(self) -> None:
        if self.best is not None:
            if self.value <= self.enough:
                raise _Certified
            self._tighten()
            if self.value <= (1 + self.gap) * self.bound:
                raise _Certified

    def _at(self, given: FloatArray) -> _Point:
        """Heights at nonnegative numbers of any sum: they are homogeneous."""
        if self.point is not None and np.array_equal(self.point.given, given):
            return self.point
        positive = np.maximum(given.reshape(self.floor.shape), self.floor)
        total = self._spent(positive)
        shares = positive / total
        solved = self._solved(shares)
        ratios = self.aim.ratios(solved.mean)
        heights = total / np.array([ratios[row[2]][row[:2]] for row in self.working])
        self.point = _Point(given.copy(), total, shares, solved, heights)
        return self.point

    def _gradients(self, given: FloatArray) -> FloatArray:
        """float64[k, L * Q]: gradients of the heights; each is a tangent for the bound.

        Heights far from the least, and from their limits, keep the gradients of an earlier point:
        they are tangents, too, and hold back no step.
        """
        point = self._at(given)
        is_limit = np.array([limit for _, _, limit in self.working])
        least = np.where(is_limit, point.total, point.heights[~is_limit].min())
        is_near = (point.heights <= _NEAR * least).tolist()
        for row, height, near in zip(self.working, point.heights, is_near, strict=True):
            if row in self.gradients and not near:
                continue
            ratio = float(point.total / height)
            slope = _tangent(self.problem, self.aim, point.solved, row, ratio)
            self.tangents.append((row, slope))
            self.gradients[row] = self.problem.in_shares(point.shares, slope).ravel()
        del self.tangents[:-_MOST_TANGENTS]
        return np.stack([self.gradients[row] for row in self.working])

    def _tighten(self) -> None:
        """Solve the game of the tangents; keep its bound if it is better."""
        if not self.tangents:
            return
        weights, bound = _game(self.problem, self.tangents)
        if bound <= self.bound:
            return
        self.bound = bound
        self.weights, self.prices = (np.zeros_like(self.aim.scale) for _ in range(2))
        for (row, _), weight in zip(self.tangents, weights, strict=True):
            (self.prices if row[2] else self.weights)[row[:2]] += weight


def _game(
    problem: AllocationProblem, tangents: Sequence[tuple[Row, FloatArray]]
) -> tuple[FloatArray, float]:
    """Return float64[k], nonnegative weights of tangents, and what no allocation beats by them.

    Weights of errors sum to 1. The bound is 0 if the tangents say nothing.

    The variables are what is spent: of every geolevel on everybody and on each stratum, then of
    every chain and query, then the height.
    """
    from scipy.optimize import linprog

    is_limit = np.array([row[2] for row, _ in tangents])
    slopes = np.stack([slope for _, slope in tangents])
    chains, levels = problem.model.tree.chains, problem.model.tree.n_levels
    parts = problem.parts
    spent = levels * len(parts)
    n_tangents, n_chains, n_queries = slopes.shape
    # Slopes are 1 / squared errors: their unit is that of the largest.
    unit = float(slopes[~is_limit].max())
    units = np.where(is_limit, 1.0, unit)
    upper = np.zeros((n_tangents, spent + n_chains * n_queries + 1))
    upper[:, spent:-1] = -(slopes / units[:, None, None]).reshape(n_tangents, -1)
    upper[:, -1] = ~is_limit
    n_rows, n_paths = n_chains * len(parts), max(1, len(parts) - 1)
    equal = np.zeros((n_rows + n_paths, upper.shape[1]))
    for number, part in enumerate(parts):
        for index, chain in enumerate(chains):
            row = equal[number * n_chains + index]
            row[spent + index * n_queries + part] = 1.0
            row[number * levels + np.arange(chain.first, chain.last + 1)] = -1.0
    equal[n_rows:, :levels] = 1.0
    for path in range(1, len(parts)):
        equal[n_rows + path - 1, path * levels : (path + 1) * levels] = 1.0
    found = linprog(
        np.append(np.zeros(upper.shape[1] - 1), -1.0),
        A_ub=upper,
        b_ub=np.where(is_limit, -1.0, 0.0),
        A_eq=equal,
        b_eq=np.append(np.zeros(n_rows), np.ones(n_paths)),
        bounds=(0, None),
        method="highs",
    )
    weights = np.where(is_limit, 0.0, 1.0)
    if found.x is not None:
        # In the units of the program the height is 1 / unit of what it is.
        weights = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0) / (units / unit)
    weights = weights / weights[~is_limit].sum()
    most = problem.steepest(np.tensordot(weights, slopes, 1)) - weights[is_limit].sum()
    return weights, float(1 / most) if most > 0 else 0.0
