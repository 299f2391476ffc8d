"""Optimal shares of rho by geolevel and query, for accurate tables over a spine.

Under zCDP the precision of a query is 2 / Delta^2 times its rho, so with shares x (of geolevel l
and query q, summing to 1) every mean squared error is a function of rho x, convex where no geounit
is an only child, and homogeneous of degree -1. Two goals are minimized over the shares:

    weighted: sum_j c_j f_j(x),            largest: max_j c_j f_j(x) .

The second is in `das.tree.largest`. The first runs on log f in the logarithms of the shares with
exact gradients.

No better allocation than the bound exists. Let f = sum_j c_j f_j, and let each chain of only
children split its rho freely over its queries. Then f is convex in the rho spent. Its tangent at x
and homogeneity give

    f(y) >= f(x)^2 / max_k sum_{chains over k} max_q |df / dx_{chain, q}|   for every allocation y.

Strata are disjoint groups of records. With strata, a query counts the whole population or one
stratum. The shares of the population and of any one stratum sum to 1. The tangent's denominator is
then the larger of two numbers. The first spends everything on the population, with k as above. The
second spends everything within each stratum, each with a separate k; the strata add up. The share
of the population is a variable of the search.

References:
  Boyd & Vandenberghe, Convex Optimization, Cambridge 2004, section 3.1.3 (the tangent bound).
  Liu & Nocedal, Mathematical Programming 45, 1989 (L-BFGS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import BudgetError
from das.queries.group import Group
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.strategy import LevelStrategy, QueryShare, Strategy, Stratum
from das.tree.errors import SolvedSpine, SpineModel, solve_spine
from das.tree.information import Information

LEAST_DETAILED = Fraction(1, 10_000)  # of the budget, for `detailed` at every geolevel
DENOMINATOR = 10_000  # of the exact shares
_MOST_STEPS = 1000  # default, not measured
# Defaults, not measured.
_SHARP = 100.0  # power of the mean that stands for the cost of the worst pair of neighbors
_FREE = 1e-9  # least price of a query
_MOST_ODDS = 9.0  # log odds; population and strata each keep 1 / DENOMINATOR
# Relative decrease of the objective at which the search stops. Defaults, not measured; a step with
# the measurements of the whole tree costs far more.
_LEAST_DECREASE = {Information.GEOUNIT: 1e-11, Information.TREE: 1e-7}


@dataclass(frozen=True, eq=False)
class Allocation:
    """Shares of the budget, their objective and a lower bound for all shares.

    Attributes:
      shares: float64[L, Q] shares of the budget. They sum to 1; with strata, the shares of the
        population and of any one stratum do.
      value: The objective at rho = 1: a weighted error, or the largest error.
      bound: No allocation over these queries has a lower value.
      weights: float64[T, L], nonnegative with sum 1: dual weights of the errors in the bound of a
        largest error. For a sum of errors, entry [0, 0] is 1.
      prices: float64[T, L], nonnegative: dual prices of the limits; 0 where a limit is not binding.
    """

    shares: FloatArray
    value: float
    bound: float
    weights: FloatArray
    prices: FloatArray


@dataclass(frozen=True, eq=False)
class AllocationProblem:
    """Mean squared errors at rho = 1 as a function of shares.

    Attributes:
      model: Tree, candidate queries (`model.measured`, with `detailed`) and tables.
      neighbors: The neighboring relation of rho.
      information: Which measurements estimates may use.
      strata: int64[Q], the stratum that each candidate query counts, from 1; 0 for the whole
        population. None if there are no strata.
      factor: float64[T, L], a factor of each error; None for 1.
      pairs: float64[P, Q], for queries that are charged together, as those of planned strategies:
        cost of each query for each pair of neighbors, relative to a move to another geounit, which
        is row 0. A geolevel pays for its worst pair. None if queries are charged one by one.
    """

    model: SpineModel
    neighbors: Neighbors
    information: Information
    strata: IntArray | None = None
    factor: FloatArray | None = None
    pairs: FloatArray | None = None

    @cached_property
    def parts(self) -> tuple[IntArray, ...]:
        """Return the columns of the population's candidate queries, then of each stratum's."""
        if self.strata is None:
            return (np.arange(len(self.model.measured)),)
        return tuple(np.flatnonzero(self.strata == code) for code in range(self.strata.max() + 1))

    def precisions(self, shares: FloatArray) -> FloatArray:
        """Return the precisions float64[chains, Q] at rho = 1 of shares float64[L, Q].

        A chain of only children is measured once, at its top geolevel.
        """
        chains = self.model.tree.chains
        out = np.empty((len(chains), shares.shape[1]))
        for part in self.parts:
            chosen = shares[:, part]
            levels, charged = chosen.sum(axis=1), self.charge(chosen)
            out[:, part] = [
                chosen[c.first] * levels[c.first : c.last + 1].sum() / charged[c.first]
                for c in chains
            ]
        return np.asarray(out * self.per_rho)

    def solve(self, shares: FloatArray) -> SolvedSpine:
        """Compute the mean squared errors at rho = 1, ready for gradients."""
        solved = solve_spine(self.model, self.precisions(shares), self.information)
        return solved if self.factor is None else solved.scaled(self.factor)

    def errors(self, shares: FloatArray) -> FloatArray:
        """Return the mean squared errors at rho = 1, float64[T, L]."""
        return self.solve(shares).mean

    def evaluate(self, shares: FloatArray, weights: FloatArray) -> tuple[float, FloatArray, float]:
        """Compute the weighted error, its gradient in the shares, and the denominator of the bound.

        The denominator is max_k sum_{chains over k} max_q |d error / dx_{chain, q}|.
        """
        solved = self.solve(shares)
        value = float((weights * solved.mean).sum())
        slopes = solved.gradient(weights) * self.per_rho
        most = self.largest_slope(-slopes)
        if self.pairs is not None:
            # A mixture of the constraints of pairs, here that of their prices, is one they imply.
            mixture = self._prices(shares, self.pairs)
            prices = mixture / mixture.sum(axis=1, keepdims=True) @ self.pairs
            firsts = [chain.first for chain in self.model.tree.chains]
            most = min(most, self.largest_slope(-slopes / np.maximum(prices, _FREE)[firsts]))
        return value, self.share_gradient(shares, slopes), most

    def charge(self, shares: FloatArray) -> FloatArray:
        """Compute what geolevels pay for, float64[L], of shares float64[L, Q].

        Without `pairs` that is their sum. With them it is a smooth bound of the cost of the worst
        pair, at most P^(1/_SHARP) times that cost.
        """
        if self.pairs is None:
            return np.asarray(shares.sum(axis=1))
        costs = shares @ self.pairs.T
        worst = costs.max(axis=1)
        return np.asarray(worst * ((costs.T / worst) ** _SHARP).sum(axis=0) ** (1 / _SHARP))

    def _prices(self, shares: FloatArray, pairs: FloatArray) -> FloatArray:
        """Return the derivatives of `charge` in the costs of `pairs`, float64[L, P]."""
        costs = shares @ pairs.T
        return np.asarray((costs / self.charge(shares)[:, None]) ** (_SHARP - 1))

    def share_gradient(self, shares: FloatArray, slopes: FloatArray) -> FloatArray:
        """Convert slopes float64[chains, Q] in rho to a gradient float64[L, Q] in shares."""
        gradient = np.zeros_like(shares)
        for part in self.parts:
            chosen = shares[:, part]
            levels, by_share = chosen.sum(axis=1), np.zeros_like(chosen)
            charged = self.charge(chosen)
            rises = np.ones_like(chosen)
            if self.pairs is not None:
                rises = self._prices(chosen, self.pairs) @ self.pairs
            for chain, slope in zip(self.model.tree.chains, slopes[:, part], strict=True):
                inside = slice(chain.first, chain.last + 1)
                top, whole = charged[chain.first], levels[inside].sum()
                by_share[chain.first] += slope * whole / top
                moved = float(slope @ chosen[chain.first]) / top
                by_share[inside] += moved
                by_share[chain.first] -= moved * whole / top * rises[chain.first]
            gradient[:, part] = by_share
        return gradient

    def largest_slope(self, slopes: FloatArray) -> float:
        """Maximize a linear function, float64[chains, Q], over all allocations of the budget.

        If queries are charged together, only moves between geounits limit the allocations here.
        """
        maxima = []
        for part in self.parts:
            most = np.zeros(self.model.tree.n_levels)
            for chain, slope in zip(self.model.tree.chains, slopes[:, part], strict=True):
                most[chain.first : chain.last + 1] += slope.max()
            maxima.append(float(most.max()))
        return max(maxima[0], sum(maxima[1:]))

    @cached_property
    def per_rho(self) -> FloatArray:
        """Return the precision of each query per unit of rho, float64[Q]."""
        if self.pairs is not None:
            moved = 1 if self.neighbors is Neighbors.UNBOUNDED else 2
            longest = (l2_sensitivity_sq(q, Neighbors.UNBOUNDED) for q in self.model.measured)
            squares = [moved * square for square in longest]
        else:
            squares = [l2_sensitivity_sq(query, self.neighbors) for query in self.model.measured]
        return np.asarray(2.0 / np.array(squares, np.float64))


def minimize_weighted_error(
    problem: AllocationProblem, weights: FloatArray, start: FloatArray
) -> Allocation:
    """Minimize the weighted sum of mean squared errors.

    Args:
      problem: Errors as a function of shares.
      weights: float64[T, L], nonnegative.
      start: float64[L, Q], nonnegative; starting shares, up to a factor.

    Raises:
      BudgetError: A weight is negative, or no error with noise has a positive weight.
    """
    if not (weights[~problem.model.is_determined] > 0).any() or (weights < 0).any():
        raise BudgetError("weights of errors", "must be nonnegative, and one with noise positive")
    shares = _descend(problem, weights, start)
    value, _, largest_slope = problem.evaluate(shares, weights)
    first, none = np.zeros_like(weights), np.zeros_like(weights)
    first[0, 0] = 1.0
    return Allocation(shares, value, value * (value / largest_slope), first, none)


def exact_strategy(
    problem: AllocationProblem,
    shares: FloatArray,
    spine: tuple[str, ...],
    mechanism: str | None = None,
    groups: Sequence[Group] = (),
) -> Strategy:
    """Round shares to exact fractions of DENOMINATOR.

    Every geolevel keeps at least one unit of 1 / DENOMINATOR, and so does `detailed`; the same
    holds within each stratum. Queries that round to 0 are not measured. The level shares of the
    population and of any one stratum sum to exactly 1. So do the query shares of each geolevel.

    Args:
      problem: The problem; its candidate queries are the columns of `shares`.
      shares: float64[L, Q], the share of the budget of each candidate query at each geolevel.
      spine: Names of the geolevels, root first.
      mechanism: Name of the noise; None for the default of the privacy definition.
      groups: The strata of the problem, in order.
    """
    queries = problem.model.measured
    population = DENOMINATOR
    if groups:
        wanted = round(float(shares[:, problem.parts[0]].sum()) * DENOMINATOR)
        population = min(max(wanted, len(spine)), DENOMINATOR - len(spine))
    rounded = []
    for number, part in enumerate(problem.parts):
        chosen = shares[:, part]
        kept = np.flatnonzero(np.isin(part, needed_columns(problem)))
        whole = DENOMINATOR - population if number else population
        levels = []
        of_levels = _parts(chosen.sum(axis=1), np.arange(len(spine)), whole)
        for name, level, row in zip(spine, of_levels, chosen, strict=True):
            measured = tuple(
                QueryShare(queries[column], Fraction(share, DENOMINATOR))
                for column, share in zip(part.tolist(), _parts(row, kept, DENOMINATOR), strict=True)
                if share
            )
            levels.append(LevelStrategy(name, Fraction(level, DENOMINATOR), measured))
        rounded.append(tuple(levels))
    strata = (Stratum(group, levels) for group, levels in zip(groups, rounded[1:], strict=True))
    return Strategy(rounded[0], mechanism, tuple(strata))


def with_queries(
    strategy: Strategy, queries: Sequence[Query], n_levels: int, share: Fraction
) -> Strategy:
    """Measure further queries at the first geolevels, each with an equal part of `share`.

    The queries measured there before lose the same share of theirs; all are multiples of
    1 / DENOMINATOR, and at least that.
    """
    levels = list(strategy.levels)
    for index, level in enumerate(levels[:n_levels]):
        measured = {query.name: query for query in (*(e.query for e in level.queries), *queries)}
        wanted = dict.fromkeys(measured, 0.0)
        for entry in level.queries:
            wanted[entry.query.name] += float((1 - share) * entry.share)
        for query in queries:
            wanted[query.name] += float(share / len(queries))
        parts = _parts(np.array([*wanted.values()]), np.arange(len(wanted)), DENOMINATOR)
        shares = (Fraction(part, DENOMINATOR) for part in parts)
        levels[index] = replace(level, queries=tuple(map(QueryShare, measured.values(), shares)))
    return replace(strategy, levels=tuple(levels))


def strategy_shares(problem: AllocationProblem, strategy: Strategy) -> FloatArray:
    """Return the shares float64[L, Q] that a strategy spends on the candidate queries."""
    column = {query.name: index for index, query in enumerate(problem.model.measured)}
    out = np.zeros((len(strategy.levels), len(column)))
    for row in range(len(strategy.levels)):
        for _, part in strategy.parts(row):
            for entry in part.queries:
                if entry.query.name in column:
                    out[row, column[entry.query.name]] = float(part.share * entry.share)
    return out


def needed_columns(problem: AllocationProblem) -> list[int]:
    """Return the columns that keep a share: the detailed query, or all that are charged together.

    Raises:
      BudgetError: The detailed query is not a candidate.
    """
    if problem.pairs is not None:
        return [*range(len(problem.model.measured))]
    names = [query.name for query in problem.model.measured]
    if "detailed" not in names:
        raise BudgetError("allocation", "needs the detailed query among its candidates", got=names)
    return [names.index("detailed")]


def _descend(problem: AllocationProblem, weights: FloatArray, start: FloatArray) -> FloatArray:
    """Find the shares float64[L, Q] with the smallest weighted sum of mean squared errors.

    L-BFGS-B minimizes the logarithm of the sum over shares = floor + rest * softmax(z). The floor
    is the least share of the detailed query at every geolevel; the rest is the budget beyond all
    floors. There is one vector z for the population and one for each stratum. With strata, one
    more variable is the log odds of the fraction of the rest that the population gets. Each
    stratum gets the remaining fraction.

    Args:
      problem: The errors as a function of shares.
      weights: float64[T, L], the weight of each error.
      start: float64[L, Q], the shares to start from.
    """
    from scipy.optimize import minimize
    from scipy.special import softmax

    floor = np.zeros_like(start)
    needed = needed_columns(problem)
    floor[:, needed] = float(LEAST_DETAILED) / len(needed)
    rest, parts = 1.0 - floor.sum(), problem.parts
    has_strata = problem.strata is not None
    cuts = np.cumsum([len(start) * len(part) for part in parts])

    def shares_of(z: FloatArray) -> tuple[FloatArray, list[FloatArray], float]:
        fraction = 1.0 / (1.0 + np.exp(-z[-1])) if has_strata else 1.0
        spreads = [softmax(piece) for piece in np.split(z[: cuts[-1]], cuts[:-1])]
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
            relative = rest * gradient[:, part].ravel() / value
            along = float(relative @ piece)
            slope.append((1.0 - fraction if number else fraction) * piece * (relative - along))
            odds += -along if number else along
        if has_strata:
            slope.append(np.array([odds * fraction * (1.0 - fraction)]))
        return float(np.log(value)), np.concatenate(slope)

    # A share of exactly zero would stay zero.
    first = [np.log(start[:, part].ravel() + 0.01 / start.size) for part in parts]
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * int(cuts[-1])
    if has_strata:
        population = float(np.clip(start[:, parts[0]].sum(), 0.05, 0.95))
        first.append(np.array([np.log(population / (1.0 - population))]))
        bounds.append((-_MOST_ODDS, _MOST_ODDS))
    end = minimize(
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
    return shares_of(end.x)[0]


def _parts(shares: FloatArray, kept: IntArray, total: int) -> list[int]:
    """Round shares to integers that sum to a total.

    Args:
      shares: float64[n], nonnegative shares.
      kept: Indices of entries that get at least 1.
      total: The sum of the integers.
    """
    wanted = shares * (total / shares.sum())
    least = np.zeros(len(shares), np.int64)
    least[kept] = 1
    parts = np.maximum(np.floor(wanted).astype(np.int64), least)
    while parts.sum() < total:
        parts[np.argmax(wanted - parts)] += 1
    while parts.sum() > total:
        parts[np.argmax(np.where(parts > least, parts - wanted, -np.inf))] -= 1
    return [int(part) for part in parts]
