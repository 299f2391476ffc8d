"""Shares that minimize the largest of several errors, or their sum, within limits.

With errors f_j / rho convex and homogeneous of degree -1 in the shares x, h_j = 1 / (c_j f_j) is
concave and homogeneous of degree 1: a positive quasiconcave function of degree 1 is concave. So

    min_x max_j c_j f_j(x) = 1 / max_x min_j h_j(x)

is a concave problem whose tangent planes pass through the origin, and limits f_i <= rho d_i are
h_i >= 1. A sum of errors, sum_j c_j f_j, is convex and homogeneous of degree -1 too, and is treated
as a single error. Sequential quadratic programming solves the problem over a working set of errors.
A larger error outside the working set is added to it.

Tangents at any points x_k bound every allocation from one side. With g_jk the gradient of h_j at
x_k, m_jk >= 0 of sum 1 over the errors and n_ik >= 0 over the limits,

    min_j h_j(y) <= (sum m_jk g_jk + sum n_ik g_ik) . y - sum n_ik    for every y within limits,

and the right side is largest at a vertex of the feasible spending. The weights that minimize it are
the optimal strategy of a matrix game: a linear program over the tangents collected in the search.
The inequality holds for any weights, so the bound does not depend on the accuracy of the program.
In the bound, each chain of only children splits its rho freely, as in `das.tree.allocation`.

With strata, the shares of the population and of any one stratum sum to 1: one equation per stratum
in the search and in the program.

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
    needed_columns,
)
from das.tree.errors import SolvedSpine
from das.tree.information import Information

# Relative distance of value and bound at which the search stops. The least share of `detailed` at
# every geolevel can cost 1e-3 alone. With the whole tree a step costs far more.
NEAR_ENOUGH = {Information.GEOUNIT: 1e-3, Information.TREE: 5e-3}
Row = tuple[int, int, bool]  # entry of a working set: table, geolevel, whether it is a limit
# Defaults, not measured.
_LEAST_SHARE = 1e-3  # floor of the shares that scale the steps
_LEAST_OF_STRATA = 1e-9  # of the budget, per query of a stratum: chains divide by shares of levels
_MOST_ROUNDS = 40  # of growing the working set or restarting
_MOST_RESTARTS = 3  # from the best shares, after a search has stalled
_MOST_STEPS = 100  # of one search
_NEAR = 1.1  # times the least height, up to which gradients are recomputed
_MOST_TANGENTS = 256  # the latest ones; tangents far from the optimum give weak bounds
_TOLERANCE = 1e-6  # relative, by which a limit may be missed


@dataclass(frozen=True, eq=False)
class Objective:
    """Objective of a search for shares, and its limits.

    Attributes:
      scale: float64[T, L], nonnegative factors of the errors.
      is_sum: True to minimize the sum of the scaled errors, False for the largest.
      limits: float64[T, L], the largest accepted mean squared errors at rho = 1; infinite for no
        limit, None for no limits at all.
    """

    scale: FloatArray
    is_sum: bool = False
    limits: FloatArray | None = None

    def ratios(self, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the errors times their scale and over their limits, float64[T, L] each.

        A sum of errors is at [0, 0] of the first.
        """
        goal = errors * self.scale
        if self.is_sum:
            whole = goal.sum()
            goal = np.zeros_like(goal)
            goal[0, 0] = whole
        return goal, errors * self.inverse_limits

    @property
    def inverse_limits(self) -> FloatArray:
        """Return 1 / limits, float64[T, L]; 0 without a limit."""
        return np.zeros_like(self.scale) if self.limits is None else 1.0 / self.limits

    def weights_of(self, table: int, level: int, *, limit: bool) -> FloatArray:
        """Return the weight of each error in one ratio, error / scale or error / limit.

        The result is float64[T, L], tables by geolevels.

        Args:
          table: Index of the table.
          level: Index of the geolevel, 0 for the root.
          limit: Whether the ratio is to the limit; otherwise to the scale.
        """
        if self.is_sum and not limit:
            return self.scale
        scale = self.inverse_limits if limit else self.scale
        out = np.zeros_like(scale)
        out[table, level] = scale[table, level]
        return out

    def without_determined(self, problem: AllocationProblem) -> Objective:
        """Drop the errors of tables that invariants determine."""
        noisy = ~problem.model.is_determined
        limits = None if self.limits is None else np.where(noisy, self.limits, np.inf)
        return Objective(np.where(noisy, self.scale, 0.0), self.is_sum, limits)


def minimize_within_limits(
    problem: AllocationProblem, objective: Objective, start: FloatArray, gap: float | None = None
) -> Allocation:
    """Minimize the largest error, or a sum of errors, within limits.

    Args:
      problem: Errors as a function of shares.
      objective: The objective and the limits.
      start: float64[L, Q], nonnegative; starting shares, up to a factor.
      gap: Relative distance of value and bound at which the search stops; NEAR_ENOUGH if not given.

    Raises:
      BudgetError: A scale is negative, or no error with noise has a positive scale. Or no
        allocation meets the limits; the message says how much more budget is needed.
    """
    refuse_unsearchable(problem, objective)
    objective = objective.without_determined(problem)
    if objective.inverse_limits.any():
        unit = power_of_two(objective.inverse_limits)
        of_limits = Objective(objective.inverse_limits / unit)
        within = _Search(problem, of_limits, enough=1.0 / unit).run(start)
        if within.value > 1.0 / unit:
            raise BudgetError(
                "limits of errors",
                "cannot be met together",
                got=f"{within.value * unit:.6g} times the budget is needed",
                want=f"at most the budget (below {within.bound * unit:.6g} times is impossible)",
                remedy="raise the budget or the limits",
            )
        start = within.shares
    return _Search(problem, objective, gap=gap).run(start)


def refuse_unsearchable(problem: AllocationProblem, objective: Objective) -> None:
    """Refuse an objective without a minimum.

    Raises:
      BudgetError: A scale is negative, no error with noise has a positive scale, or a limit is not
        positive.
    """
    noisy, scale, limits = ~problem.model.is_determined, objective.scale, objective.limits
    if (scale < 0).any() or not np.isfinite(scale).all() or not (scale[noisy] > 0).any():
        raise BudgetError("scales of errors", "must be nonnegative, and one with noise positive")
    if limits is not None and not (limits >= np.finfo(np.float64).tiny).all():
        raise BudgetError("limits of errors", "must be positive")


def power_of_two(numbers: FloatArray) -> float:
    """Return a power of two near the largest number, to scale exactly and avoid overflow."""
    return float(np.ldexp(1.0, int(np.frexp(numbers.max())[1])))


@dataclass(frozen=True, eq=False)
class CertifiedShares:
    """Value and bound of shares, for given weights and prices.

    Attributes:
      errors: float64[T, L], mean squared errors at rho = 1.
      value: The largest error, or the sum.
      bound: No allocation within the limits has a lower value.
      excess: The largest ratio of an error to its limit; at most 1 if limits are met, 0 without.
    """

    errors: FloatArray
    value: float
    bound: float
    excess: float


def tangent_bound(
    problem: AllocationProblem, objective: Objective, allocation: Allocation
) -> float:
    """Compute the best bound from tangents at given shares.

    Args:
      problem: Errors as a function of shares.
      objective: The objective and the limits.
      allocation: Shares; one tangent for every positive weight and price.
    """
    objective = objective.without_determined(problem)
    solved = problem.solve(allocation.shares)
    ratios = objective.ratios(solved.mean)
    rows = [
        (int(table), int(level), limit)
        for limit, counts in ((False, allocation.weights), (True, allocation.prices))
        for table, level in np.argwhere((counts > 0) & (ratios[limit] > 0))
    ]
    slopes = [
        _tangent(problem, objective, solved, row, float(ratios[row[2]][row[:2]])) for row in rows
    ]
    return _game(problem, list(zip(rows, slopes, strict=True)))[1]


def _tangent(
    problem: AllocationProblem, objective: Objective, solved: SolvedSpine, row: Row, ratio: float
) -> FloatArray:
    """Return the gradient in rho of 1 / ratio, float64[chains, Q], for the error or limit `row`.

    Args:
      problem: Errors as a function of shares.
      objective: The scales and limits of errors.
      solved: The errors at the current shares.
      row: Table, geolevel, and whether the ratio is to the limit.
      ratio: The current ratio.
    """
    weights = objective.weights_of(row[0], row[1], limit=row[2])
    return -solved.gradient(weights) * problem.per_rho / ratio**2


def certify_shares(
    problem: AllocationProblem, objective: Objective, allocation: Allocation
) -> CertifiedShares:
    """Compute value and bound of shares, with one gradient.

    The bound holds for any nonnegative weights and prices. It is close to the value if these are
    close to the optimal ones.

    Args:
      problem: Errors as a function of shares.
      objective: The objective and the limits.
      allocation: Shares, weights and prices; the value and bound in it are not used.
    """
    objective = objective.without_determined(problem)
    solved = problem.solve(allocation.shares)
    goal, over = objective.ratios(solved.mean)
    weights, prices = allocation.weights / allocation.weights.sum(), allocation.prices
    # The gradient of 1 / ratio is that of the errors over -ratio^2.
    of_goal = np.divide(weights, goal**2, out=np.zeros_like(goal), where=weights > 0)
    of_limits = np.divide(prices, over**2, out=np.zeros_like(over), where=prices > 0)
    of_goal = objective.scale * (of_goal[0, 0] if objective.is_sum else of_goal)
    slope = -solved.gradient(of_goal + objective.inverse_limits * of_limits) * problem.per_rho
    most = problem.largest_slope(slope) - float(prices[over > 0].sum())
    bound = 1 / most if most > 0 else 0.0
    return CertifiedShares(solved.mean, float(goal.max()), bound, float(over.max()))


class _Converged(Exception):  # noqa: N818 - ends a search, which is no error
    """Signal that the bound is close enough, or the value low enough."""


@dataclass(frozen=True, eq=False)
class _Point:
    """Heights h = 1 / (scale * error) at shares, over the working set.

    Attributes:
      given: float64[L * Q], the variables of the search, of any sum.
      total: Sum of the given variables along the most expensive path.
      shares: float64[L, Q], of sum 1.
      solved: Errors at the shares.
      heights: float64[k], at the given variables.
    """

    given: FloatArray
    total: float
    shares: FloatArray
    solved: SolvedSpine
    heights: FloatArray


class _Search:
    """Sequential quadratic programming for one objective, collecting tangents for the bound."""

    def __init__(
        self,
        problem: AllocationProblem,
        objective: Objective,
        enough: float = 0.0,
        gap: float | None = None,
    ) -> None:
        self.problem = problem
        self.objective = objective
        self.enough = enough  # a value at which the search stops
        self.gap = NEAR_ENOUGH[problem.information] if gap is None else gap
        self.working: list[Row] = []
        self.tangents: list[tuple[Row, FloatArray]] = []
        self.gradients: dict[Row, FloatArray] = {}  # the latest of each row
        self.best: FloatArray | None = None
        self.value, self.bound = np.inf, 0.0
        self.weights, self.prices = np.zeros_like(objective.scale), np.zeros_like(objective.scale)
        self.point: _Point | None = None
        shape = (problem.model.tree.n_levels, len(problem.model.measured))
        self.floor = np.zeros(shape)
        for part in problem.parts[1:]:
            self.floor[:, part] = _LEAST_OF_STRATA
        needed = needed_columns(problem)
        self.floor[:, needed] = float(LEAST_DETAILED) / len(needed)

    def run(self, start: FloatArray) -> Allocation:
        """Search from starting shares, given up to a factor."""
        shares = self._feasible(start)
        self._grow(self._solved(shares))
        restarts = 0
        for _ in range(_MOST_ROUNDS):
            if self.value <= self.enough:
                break
            try:
                reached = self._descend(shares)
            except _Converged:
                break
            if self._grow(self._solved(reached)):
                shares = reached
                continue
            self._tighten()
            if self.value <= (1 + self.gap) * self.bound or restarts == _MOST_RESTARTS:
                break
            restarts += 1
            shares = self.best if self.best is not None else reached
        if self.best is None:
            raise BudgetError("limits of errors", "no allocation within the limits was found")
        self._tighten()
        best = self.best
        if self.problem.strata is not None:  # every stratum spends all it may
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
        """Scale shares to `of_all` for the population and the rest per stratum, above the floor."""
        out = self.floor.copy()
        for number, part in enumerate(self.problem.parts):
            chosen, whole = positive[:, part], 1 - of_all if number else of_all
            left = whole - self.floor[:, part].sum()
            even = np.full(chosen.shape, 1 / chosen.size)
            out[:, part] += left * (chosen / chosen.sum() if chosen.sum() > 0 else even)
        return out

    def _spent(self, shares: FloatArray) -> float:
        """Return the cost of the most expensive path; paths differ only by stratum."""
        first, *others = (shares[:, part].sum() for part in self.problem.parts)
        return float(first + max(others, default=0.0))

    def _solved(self, shares: FloatArray) -> SolvedSpine:
        """Compute errors at shares of sum 1; keep the shares if they are the best within limits."""
        solved = self.problem.solve(shares)
        goal, inverse_limits = self.objective.ratios(solved.mean)
        value = float(goal.max())
        if value < self.value and inverse_limits.max() <= 1 + _TOLERANCE:
            self.best, self.value = shares, value
        return solved

    def _grow(self, solved: SolvedSpine) -> bool:
        """Add the largest error of every geolevel, and all missed limits, to the working set.

        Return whether any was added.
        """
        before = len(self.working)
        for is_limit, ratio in enumerate(self.objective.ratios(solved.mean)):
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
        """Maximize the least height over the working set; return the final shares."""
        from scipy.optimize import minimize

        size = start.size
        is_limit = np.array([limit for _, _, limit in self.working])
        # Steps are scaled by the roots of the shares. The search starts without curvature, and this
        # keeps changes of small shares small: Delta y^2 / y is the second order of the divergence.
        roots = np.sqrt(start.ravel() + _LEAST_SHARE)
        first = self._at(start.ravel())
        unit = float(first.heights[~is_limit].min())
        # Heights are divided by the least one at the start: the last variable starts at 1.
        units = np.where(is_limit, 1.0, unit)
        of_level = np.where(is_limit, 0.0, -1.0)
        thresholds = np.where(is_limit, -1.0, 0.0)

        def slack(z: FloatArray) -> FloatArray:
            heights = self._at(roots * z[:-1]).heights
            return np.asarray(heights / units + of_level * z[-1] + thresholds)

        def slopes(z: FloatArray) -> FloatArray:
            gradients = self._gradients(roots * z[:-1]) * roots / units[:, None]
            return np.concatenate([gradients, of_level[:, None]], axis=1)

        sums = np.pad(self._paths() * roots, ((0, 0), (0, 1)))
        last = np.append(np.zeros(size), -1.0)
        lowest = self.floor.ravel() / roots
        end = minimize(
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
        return self._feasible((roots * end.x[:-1]).reshape(start.shape))

    def _paths(self) -> FloatArray:
        """Return indicators float64[strata, L * Q] of the shares that one record is charged."""
        first, *others = self.problem.parts
        out = np.zeros((max(1, len(others)), *self.floor.shape))
        out[:, :, first] = 1.0
        for row, part in zip(out, others, strict=False):
            row[:, part] = 1.0
        return out.reshape(len(out), -1)

    def _stop_if_certified(self) -> None:
        if self.best is not None:
            if self.value <= self.enough:
                raise _Converged
            self._tighten()
            if self.value <= (1 + self.gap) * self.bound:
                raise _Converged

    def _at(self, given: FloatArray) -> _Point:
        """Compute heights at nonnegative variables of any sum: heights are homogeneous."""
        if self.point is not None and np.array_equal(self.point.given, given):
            return self.point
        positive = np.maximum(given.reshape(self.floor.shape), self.floor)
        total = self._spent(positive)
        shares = positive / total
        solved = self._solved(shares)
        ratios = self.objective.ratios(solved.mean)
        heights = total / np.array([ratios[row[2]][row[:2]] for row in self.working])
        self.point = _Point(given.copy(), total, shares, solved, heights)
        return self.point

    def _gradients(self, given: FloatArray) -> FloatArray:
        """Compute gradients of the heights, float64[k, L * Q]; each is a tangent for the bound.

        Heights far from the least, and from their limits, keep the gradient of an earlier point:
        it is a tangent too, and does not limit the step.
        """
        point = self._at(given)
        is_limit = np.array([limit for _, _, limit in self.working])
        least = np.where(is_limit, point.total, point.heights[~is_limit].min())
        is_near = (point.heights <= _NEAR * least).tolist()
        for row, height, near in zip(self.working, point.heights, is_near, strict=True):
            if row in self.gradients and not near:
                continue
            ratio = float(point.total / height)
            slope = _tangent(self.problem, self.objective, point.solved, row, ratio)
            self.tangents.append((row, slope))
            self.gradients[row] = self.problem.share_gradient(point.shares, slope).ravel()
        del self.tangents[:-_MOST_TANGENTS]
        return np.stack([self.gradients[row] for row in self.working])

    def _tighten(self) -> None:
        """Solve the matrix game of the tangents; keep its bound if it is better."""
        if not self.tangents:
            return
        weights, bound = _game(self.problem, self.tangents)
        if bound <= self.bound:
            return
        self.bound = bound
        self.weights, self.prices = (np.zeros_like(self.objective.scale) for _ in range(2))
        for (row, _), weight in zip(self.tangents, weights, strict=True):
            (self.prices if row[2] else self.weights)[row[:2]] += weight


def _game(
    problem: AllocationProblem, tangents: Sequence[tuple[Row, FloatArray]]
) -> tuple[FloatArray, float]:
    """Solve the matrix game of tangents: return their weights and the lower bound they prove.

    Weights of errors sum to 1. The bound is 0 if the tangents prove none.

    The variables are the budget spent: per geolevel on the population and on each stratum, then
    per chain and query. The last variable is the height.

    Args:
      problem: Errors as a function of shares.
      tangents: Per error or limit, its identification and its gradient in rho.
    """
    from scipy.optimize import linprog

    is_limit = np.array([row[2] for row, _ in tangents])
    slopes = np.stack([slope for _, slope in tangents])
    chains, levels = problem.model.tree.chains, problem.model.tree.n_levels
    parts = problem.parts
    spent = levels * len(parts)
    n_tangents, n_chains, n_queries = slopes.shape
    # Slopes are 1 / squared errors; they are scaled by the largest.
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
    optimum = linprog(
        np.append(np.zeros(upper.shape[1] - 1), -1.0),
        A_ub=upper,
        b_ub=np.where(is_limit, -1.0, 0.0),
        A_eq=equal,
        b_eq=np.append(np.zeros(n_rows), np.ones(n_paths)),
        bounds=(0, None),
        method="highs",
    )
    weights = np.where(is_limit, 0.0, 1.0)
    if optimum.x is not None:
        # The program scales the height by 1 / unit.
        weights = np.maximum(-np.asarray(optimum.ineqlin.marginals), 0.0) / (units / unit)
    weights = weights / weights[~is_limit].sum()
    most = problem.largest_slope(np.tensordot(weights, slopes, 1)) - weights[is_limit].sum()
    return weights, float(1 / most) if most > 0 else 0.0
