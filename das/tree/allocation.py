"""The split of rho over geolevels and queries that makes tables over a spine most accurate.

Under zCDP the precision of a query is 2 / Delta^2 times its rho, so with shares x (of geolevel l
and query q, summing to 1) every mean squared error is a function of rho x, convex where no geounit
is an only child, and homogeneous of degree -1. Two goals are minimized over the shares:

    weighted: sum_j c_j f_j(x),            largest: max_j c_j f_j(x) .

The second is in `das.tree.largest`. The first runs on log f in the logarithms of the shares with
exact gradients.

No better allocation than the bound exists: let f = sum_j c_j f_j, and let each chain of only
children spread its rho over its queries as it likes. Then f is convex in what is spent, and its
tangent at x and homogeneity give

    f(y) >= f(x)^2 / max_k sum_{chains over k} max_q |df / dx_{chain, q}|   for every allocation y.

With strata, groups of records that do not add up, a query counts everybody or one stratum, and what
is spent on everybody and on each stratum sums to 1. Then the tangent's denominator is the larger of
two: all is spent on everybody, where k is as above; or all in every stratum, each at a k of its own
and on queries of its own, and the strata's numbers add up. How much is spent on everybody is sought
with the shares.

References:
  Boyd & Vandenberghe, Convex Optimization, Cambridge 2004, section 3.1.3 (the tangent bound).
  Liu & Nocedal, Mathematical Programming 45, 1989 (L-BFGS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import BudgetError
from das.queries.group import Group
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.strategy import LevelStrategy, QueryShare, Strategy, Stratum
from das.tree.errors import SolvedSpine, SpineModel, solve_spine
from das.tree.information import Information

LEAST_DETAILED = Fraction(1, 10_000)  # of the budget, for `detailed` at every geolevel
DENOMINATOR = 10_000  # of the exact shares
_MOST_STEPS = 1000
_MOST_ODDS = 9.0  # logarithm: either side of strata keeps 1/10,000, a part of exact shares
# Relative decrease of the goal at which the search stops; full information costs far more a step.
_LEAST_DECREASE = {Information.OWN: 1e-11, Information.FULL: 1e-7}


@dataclass(frozen=True, eq=False)
class Allocation:
    """Shares, what they attain and what no shares can beat.

    Attributes:
      shares: float64[L, Q] shares of the budget; they sum to 1, with strata those for everybody
        with those of each.
      value: The goal at these shares at rho = 1: a weighted error, or the largest.
      bound: No allocation over these queries has a lower value.
      weights: float64[T, L], nonnegative with sum 1: how much each error counts in the bound of a
        largest error; those that decide have positive weight. Of a sum, all at its first place.
      prices: float64[T, L], nonnegative: how much each limit counts; 0 where it costs nothing.
    """

    shares: FloatArray
    value: float
    bound: float
    weights: FloatArray
    prices: FloatArray


@dataclass(frozen=True, eq=False)
class AllocationProblem:
    """Errors at rho = 1 as a function of shares.

    Attributes:
      model: Tree, candidate queries (`model.measured`, detailed among them) and tables.
      neighbors: The relation that rho is counted under.
      information: What estimates may use.
      strata: int64[Q], of each candidate the stratum whose records alone it counts, from 1; 0 if it
        counts everybody. None if there are no strata.
      factor: float64[T, L], by which errors are multiplied; None for 1.
    """

    model: SpineModel
    neighbors: Neighbors
    information: Information
    strata: IntArray | None = None
    factor: FloatArray | None = None

    @cached_property
    def parts(self) -> tuple[IntArray, ...]:
        """Columns of the candidates for everybody, then of those of each stratum."""
        if self.strata is None:
            return (np.arange(len(self.model.measured)),)
        return tuple(np.flatnonzero(self.strata == one) for one in range(self.strata.max() + 1))

    def precisions(self, shares: FloatArray) -> FloatArray:
        """float64[chains, Q] at rho = 1 of shares float64[L, Q], chains measured at their tops."""
        chains = self.model.tree.chains
        out = np.empty((len(chains), shares.shape[1]))
        for part in self.parts:
            own = shares[:, part]
            levels = own.sum(axis=1)
            out[:, part] = [
                own[c.first] * levels[c.first : c.last + 1].sum() / levels[c.first] for c in chains
            ]
        return np.asarray(out * self.per_rho)

    def solve(self, shares: FloatArray) -> SolvedSpine:
        """Mean squared errors at rho = 1, with what their gradients need."""
        solved = solve_spine(self.model, self.precisions(shares), self.information)
        return solved if self.factor is None else solved.scaled(self.factor)

    def errors(self, shares: FloatArray) -> FloatArray:
        """float64[T, L]: mean squared errors at rho = 1."""
        return self.solve(shares).mean

    def evaluate(self, shares: FloatArray, weights: FloatArray) -> tuple[float, FloatArray, float]:
        """Return the weighted error, its gradient in the shares, and the bound's denominator.

        The denominator is max_k sum_{chains over k} max_q |d error / dx_{chain, q}|.
        """
        solved = self.solve(shares)
        value = float((weights * solved.mean).sum())
        slopes = solved.gradient(weights) * self.per_rho
        return value, self.in_shares(shares, slopes), self.steepest(-slopes)

    def in_shares(self, shares: FloatArray, slopes: FloatArray) -> FloatArray:
        """Gradient float64[L, Q] in the shares, of slopes float64[chains, Q] in what is spent."""
        gradient = np.zeros_like(shares)
        for part in self.parts:
            own = shares[:, part]
            levels, found = own.sum(axis=1), np.zeros_like(own)
            for chain, slope in zip(self.model.tree.chains, slopes[:, part], strict=True):
                inside = slice(chain.first, chain.last + 1)
                top, whole = levels[chain.first], levels[inside].sum()
                found[chain.first] += slope * whole / top
                moved = float(slope @ own[chain.first]) / top
                found[inside] += moved
                found[chain.first] -= moved * whole / top
            gradient[:, part] = found
        return gradient

    def steepest(self, slopes: FloatArray) -> float:
        """Most of slopes . x, float64[chains, Q], where each chain spends its rho as it likes."""
        found = []
        for part in self.parts:
            most = np.zeros(self.model.tree.n_levels)
            for chain, slope in zip(self.model.tree.chains, slopes[:, part], strict=True):
                most[chain.first : chain.last + 1] += slope.max()
            found.append(float(most.max()))
        return max(found[0], sum(found[1:]))

    @cached_property
    def per_rho(self) -> FloatArray:
        """float64[Q]: precision of each query per unit of rho."""
        squares = [l2_sensitivity_sq(query, self.neighbors) for query in self.model.measured]
        return np.asarray(2.0 / np.array(squares, np.float64))


def least_weighted_error(
    problem: AllocationProblem, weights: FloatArray, start: FloatArray
) -> Allocation:
    """Minimize sum of weights * mean squared error.

    Args:
      problem: Errors as a function of shares.
      weights: float64[T, L], nonnegative.
      start: float64[L, Q], nonnegative; shares to start from, up to a factor.

    Raises:
      BudgetError: No pair of a table and a geolevel with noise has a positive weight.
    """
    if not (weights[~problem.model.is_determined] > 0).any() or (weights < 0).any():
        raise BudgetError("weights of tables", "must be nonnegative, one of a noisy table positive")
    shares = _descend(problem, weights, start)
    value, _, steepest = problem.evaluate(shares, weights)
    first, none = np.zeros_like(weights), np.zeros_like(weights)
    first[0, 0] = 1.0
    return Allocation(shares, value, value * (value / steepest), first, none)


def exact_strategy(
    problem: AllocationProblem,
    shares: FloatArray,
    spine: tuple[str, ...],
    mechanism: str | None = None,
    groups: Sequence[Group] = (),
) -> Strategy:
    """Round shares to exact fractions of DENOMINATOR.

    Every geolevel and `detailed` in it keep at least one part, of the share of each stratum too;
    queries that round to none are not measured. Level shares, with those of each stratum, and the
    query shares of each geolevel sum to exactly 1.

    Args:
      problem: Its candidate queries name the columns.
      shares: float64[L, Q].
      spine: Names of the geolevels, root first.
      mechanism: Name of the noise; None for the default of the definition that is charged.
      groups: The strata of the problem, in their order.
    """
    queries = problem.model.measured
    everybody = DENOMINATOR
    if groups:
        wanted = round(float(shares[:, problem.parts[0]].sum()) * DENOMINATOR)
        everybody = min(max(wanted, len(spine)), DENOMINATOR - len(spine))
    found = []
    for number, part in enumerate(problem.parts):
        own = shares[:, part]
        kept = np.flatnonzero(part == detailed_column(problem))
        whole = DENOMINATOR - everybody if number else everybody
        levels = []
        of_levels = _parts(own.sum(axis=1), np.arange(len(spine)), whole)
        for name, level, row in zip(spine, of_levels, own, strict=True):
            asked = tuple(
                QueryShare(queries[column], Fraction(share, DENOMINATOR))
                for column, share in zip(part.tolist(), _parts(row, kept, DENOMINATOR), strict=True)
                if share
            )
            levels.append(LevelStrategy(name, Fraction(level, DENOMINATOR), asked))
        found.append(tuple(levels))
    strata = (Stratum(group, levels) for group, levels in zip(groups, found[1:], strict=True))
    return Strategy(found[0], mechanism, tuple(strata))


def strategy_shares(problem: AllocationProblem, strategy: Strategy) -> FloatArray:
    """float64[L, Q] shares of a strategy; what it spends on other queries is not counted."""
    column = {query.name: index for index, query in enumerate(problem.model.measured)}
    out = np.zeros((len(strategy.levels), len(column)))
    for row in range(len(strategy.levels)):
        for _, part in strategy.parts(row):
            for entry in part.queries:
                if entry.query.name in column:
                    out[row, column[entry.query.name]] = float(part.share * entry.share)
    return out


def detailed_column(problem: AllocationProblem) -> int:
    """Column of the detailed query.

    Raises:
      BudgetError: It is not a candidate.
    """
    names = [query.name for query in problem.model.measured]
    if "detailed" not in names:
        raise BudgetError("allocation", "needs the detailed query among its candidates", got=names)
    return names.index("detailed")


def _descend(problem: AllocationProblem, weights: FloatArray, start: FloatArray) -> FloatArray:
    """Minimize the log of weighted errors over shares = floor + rest * softmax(logarithms).

    The variables are the logarithms of each part and, with strata, that of the odds of everybody's.
    Everybody's part has the floor and a fraction of the rest, every stratum what remains of it.
    """
    from scipy.optimize import minimize

    floor = np.zeros_like(start)
    floor[:, detailed_column(problem)] = float(LEAST_DETAILED)
    rest, parts = 1.0 - floor.sum(), problem.parts
    has_strata = problem.strata is not None
    cuts = np.cumsum([len(start) * len(part) for part in parts])

    def shares_of(z: FloatArray) -> tuple[FloatArray, list[FloatArray], float]:
        fraction = 1.0 / (1.0 + np.exp(-z[-1])) if has_strata else 1.0
        spreads = []
        for piece in np.split(z[: cuts[-1]], cuts[:-1]):
            raised = np.exp(piece - piece.max())
            spreads.append(raised / raised.sum())
        shares = floor.copy()
        for number, (part, piece) in enumerate(zip(parts, spreads, strict=True)):
            of_rest = rest * (1.0 - fraction if number else fraction)
            shares[:, part] += of_rest * piece.reshape(len(start), len(part))
        return shares, spreads, fraction

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        shares, spreads, fraction = shares_of(z)
        value, gradient, _ = problem.evaluate(shares, weights)
        slope, odds = [], 0.0
        for number, (part, piece) in enumerate(zip(parts, spreads, strict=True)):
            own = rest * gradient[:, part].ravel() / value
            along = float(own @ piece)
            slope.append((1.0 - fraction if number else fraction) * piece * (own - along))
            odds += -along if number else along
        if has_strata:
            slope.append(np.array([odds * fraction * (1.0 - fraction)]))
        return float(np.log(value)), np.concatenate(slope)

    # A share of exactly zero would stay zero.
    first = [np.log(start[:, part].ravel() + 0.01 / start.size) for part in parts]
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * int(cuts[-1])
    if has_strata:
        everybody = float(np.clip(start[:, parts[0]].sum(), 0.05, 0.95))
        first.append(np.array([np.log(everybody / (1.0 - everybody))]))
        bounds.append((-_MOST_ODDS, _MOST_ODDS))
    found = minimize(
        objective,
        np.concatenate(first),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={
            "maxiter": _MOST_STEPS,
            "ftol": _LEAST_DECREASE[problem.information],
            "gtol": 1e-9,
        },
    )
    return shares_of(found.x)[0]


def _parts(shares: FloatArray, kept: IntArray, total: int) -> list[int]:
    """Integers near shares * total / sum that sum to the total; `kept` get at least 1."""
    wanted = shares * (total / shares.sum())
    least = np.zeros(len(shares), np.int64)
    least[kept] = 1
    parts = np.maximum(np.floor(wanted).astype(np.int64), least)
    while parts.sum() < total:
        parts[np.argmax(wanted - parts)] += 1
    while parts.sum() > total:
        parts[np.argmax(np.where(parts > least, parts - wanted, -np.inf))] -= 1
    return [int(part) for part in parts]
