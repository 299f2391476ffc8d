"""Draws of noisy or confidential tables that satisfy invariants, by a Metropolised sampler.

The target is the distribution p(s) proportional to prod_j eta(s_j - center_j), conditioned on the
set {A s = a, B s >= b} of what is published exactly. Around noisy answers and under a flat prior on
that set, it is the posterior of the confidential table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import InfeasibleError, SchemaError
from das.inference.simulation import Generator, draw_noise
from das.mechanisms.mechanism import Distribution

BATCH = 1 << 14
_ROUNDING = 1e-9  # relative; of sums of real coordinates, default, not measured

Tables = IntArray | FloatArray
"""Whole coordinates under discrete noise, real ones under continuous noise."""


@dataclass(frozen=True, eq=False)
class LinearInvariants:
    """The set {s: A s = a, B s >= b}, of whole or of real s.

    Attributes:
      equal: int64[r, m], the matrix A of r equations.
      equal_to: int64[r], a, the right-hand sides of the equations.
      least: int64[q, m], the matrix B of q lower bounds.
      least_of: int64[q], b, the right-hand sides of the bounds.

    Raises:
      SchemaError: Shapes do not fit.
    """

    equal: IntArray
    equal_to: IntArray
    least: IntArray
    least_of: IntArray

    def __post_init__(self) -> None:
        for name in ("equal", "equal_to", "least", "least_of"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        shapes = [array.shape for array in (self.equal, self.equal_to, self.least, self.least_of)]
        if (
            self.equal.ndim != 2
            or self.least.ndim != 2
            or shapes[1] != shapes[0][:1]
            or shapes[3] != shapes[2][:1]
            or shapes[0][1] != shapes[2][1]
        ):
            raise SchemaError("linear invariants", "shapes do not fit", got=shapes)

    @classmethod
    def nonnegative(cls, equal: IntArray, equal_to: IntArray) -> LinearInvariants:
        """Return the set {s >= 0: A s = a}."""
        m = np.asarray(equal).shape[1]
        return cls(equal, equal_to, np.eye(m, dtype=np.int64), np.zeros(m, np.int64))

    def hold(self, tables: Tables) -> BoolArray:
        """Return bool[n]: which rows of [n, m] are in the set, real ones up to rounding."""
        apart = np.abs(tables @ self.equal.T - self.equal_to)
        rounding = 0 if _is_whole(tables) else _ROUNDING * (np.abs(tables) @ np.abs(self.equal.T))
        exact = (apart <= rounding).all(axis=1)
        return np.asarray(exact & (tables @ self.least.T >= self.least_of).all(axis=1))


@dataclass(frozen=True, eq=False)
class Completion:
    """Solution of A s = a by free coordinates: denominator s_rest = constant - slope s_free.

    Attributes:
      free: int64[f], indices of the free coordinates.
      rest: int64[k], indices of the determined coordinates, k the rank of A.
      constant: int64[k], the constant of each determined coordinate.
      slope: int64[k, f], the coefficients of the free coordinates in each determined one.
      denominator: Positive; where it does not divide, no whole table exists.
    """

    free: IntArray
    rest: IntArray
    constant: IntArray
    slope: IntArray
    denominator: int

    def complete(self, free: Tables) -> tuple[Tables, BoolArray]:
        """Return [n, m] tables, and which of them are exact: if real, all."""
        scaled = self.constant - free @ self.slope.T
        tables = np.empty_like(free, shape=(len(free), len(self.free) + len(self.rest)))
        tables[:, self.free] = free
        if not _is_whole(free):
            tables[:, self.rest] = scaled / self.denominator
            return tables, np.ones(len(free), bool)
        tables[:, self.rest] = scaled // self.denominator
        return tables, (scaled % self.denominator == 0).all(axis=1)


def solve_for_rest(invariants: LinearInvariants, order: Sequence[int]) -> Completion:
    """Solve A s = a for as many coordinates as A has rank, in exact fractions.

    Args:
      invariants: The set; only its equations are used.
      order: All coordinates; the earlier ones are solved for where that is possible.

    Raises:
      InfeasibleError: The equations contradict each other.
    """
    m = invariants.equal.shape[1]
    rows = np.column_stack((invariants.equal, invariants.equal_to)).astype(object) * Fraction(1)
    rest: list[int] = []
    for column in order:
        rank = len(rest)
        below = rank + np.flatnonzero(rows[rank:, column])
        if not below.size:
            continue
        rows[[rank, below[0]]] = rows[[below[0], rank]]
        rows[rank] /= rows[rank, column]
        factors = rows[:, column].copy()
        factors[rank] = 0
        rows -= np.outer(factors, rows[rank])
        rest.append(column)
    if rows[len(rest) :, m].any():
        raise InfeasibleError("linear invariants", "equations contradict each other")
    solved = rows[: len(rest)]
    denominator = math.lcm(*(v.denominator for v in solved.flat))
    scaled = (solved * denominator).astype(np.int64)
    free = np.setdiff1d(np.arange(m), rest)
    return Completion(free, np.array(rest, np.int64), scaled[:, m], scaled[:, free], denominator)


@dataclass(frozen=True, eq=False)
class ConditionalDraws:
    """States of the Markov chain.

    Attributes:
      tables: int64[n, m], or float64[n, m] under continuous noise; every row satisfies the
        invariants, whole ones exactly. Column j is the trace of coordinate j.
      acceptance: Share of the proposals that were accepted.
    """

    tables: Tables
    acceptance: float


def _is_whole(tables: Tables) -> bool:
    return tables.dtype.kind == "i"


def _table(name: str, given: npt.ArrayLike, invariants: LinearInvariants, whole: bool) -> Tables:
    values = np.asarray(given)
    shape = invariants.equal.shape[1:]
    if values.shape != shape:
        where, what = "conditional sampler", f"the {name} has another shape"
        raise SchemaError(where, what, got=values.shape, want=shape)
    if not whole:
        return values.astype(np.float64)
    table = values.astype(np.int64)
    if (table != values).any():
        raise SchemaError("conditional sampler", f"the {name} is not of whole numbers")
    return table


def draw_conditional(  # noqa: PLR0913 - a target, a set, a chain
    center: npt.ArrayLike,
    distribution: Distribution,
    invariants: LinearInvariants,
    start: npt.ArrayLike,
    n: int,
    generator: Generator,
    *,
    proposal: Distribution | None = None,
) -> ConditionalDraws:
    """Draw tables around a center that satisfy the invariants.

    Proposes the free coordinates from the center plus noise of distribution q, solves for the rest,
    and moves there with probability min(1, p(new) q(old) / (p(old) q(new))), p being 0 outside the
    set. Solved for are the largest coordinates of the center: they carry the noise of many others,
    and large ones are the last to become negative.

    Args:
      center: [m], a confidential table, or noisy answers; whole numbers under discrete noise.
      distribution: Distribution of each coordinate around the center, discrete or continuous.
      invariants: The set that the draws must lie in.
      start: [m], a table in the set.
      n: Length of the chain.
      generator: Randomness of the analyst.
      proposal: Distribution q, discrete if the other is; default the distribution itself. Somewhat
        less noise is often accepted more.

    Law: A Markov chain, independent proposals, with stationary distribution p conditioned on the
    set. Draws repeat where proposals are refused; early ones depend on the start.

    Raises:
      SchemaError: Center or start have another shape than the set, or, under discrete noise, are
        not whole. Or one distribution is discrete and the other is not.
      InfeasibleError: The start is not in the set, or the equations contradict each other.

    References:
      Liu, Metropolized independent sampling, Statistics and Computing 6, 1996.
      Gong & Meng, Congenial Differential Privacy under Mandated Disclosure, FODS 2020.
    """
    around, is_whole = distribution if proposal is None else proposal, distribution.is_discrete
    if around.is_discrete != is_whole:
        got = f"{distribution} and proposal {around}"
        what = "needs two discrete distributions or two continuous ones"
        raise SchemaError("conditional sampler", what, got=got)
    middle = _table("center", center, invariants, is_whole)
    first = _table("start", start, invariants, is_whole)
    completion = solve_for_rest(invariants, np.argsort(-middle, kind="stable").tolist())
    if not invariants.hold(first[None])[0]:
        raise InfeasibleError("conditional sampler", "the start does not satisfy the invariants")

    def log_weight(tables: Tables) -> FloatArray:
        noise = tables - middle
        target = distribution.log_ratio(noise).sum(axis=1)
        return np.asarray(target - around.log_ratio(noise[:, completion.free]).sum(axis=1))

    tables = np.empty_like(middle, shape=(n, len(middle)))
    state, weight = first, float(log_weight(first[None])[0])
    accepted = 0
    for begin in range(0, n, BATCH):
        size = min(BATCH, n - begin)
        noise = draw_noise(around, (size, len(completion.free)), generator)
        moved = np.rint(noise).astype(np.int64) if is_whole else noise
        proposed, exact = completion.complete(middle[completion.free] + moved)
        weights = np.where(exact & invariants.hold(proposed), log_weight(proposed), -np.inf)
        log_uniform = np.log(generator.random(size))
        origin = np.full(size, -1, np.int64)  # the proposal each state came from; -1 the old state
        for index in np.flatnonzero(np.isfinite(weights)):
            if log_uniform[index] < weights[index] - weight:
                weight = float(weights[index])
                origin[index] = index
                accepted += 1
        origin = np.maximum.accumulate(origin)
        tables[begin : begin + size] = np.where(origin[:, None] < 0, state, proposed[origin])
        state = tables[begin + size - 1]
    return ConditionalDraws(tables, accepted / n)
