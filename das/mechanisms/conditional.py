r"""Exact sampling of a contingency table with geometric noise, conditional on its invariants.

The mechanism adds two-sided geometric noise to every cell, P(Z = z) proportional to t^|z| with t =
e^(-1 / scale), conditional on meeting the invariants A x. So a table s of nonnegative integers with
A s = A x has the probability

    t^|s - x|_1 / C(x) ,     C(x) the sum of the numerator over all such tables.

Gong samples by a Markov chain (a Metropolized independence sampler), whose draws have the
distribution only in the limit. Here sampling is exact, by dynamic programming over cells:

- Cells with equal columns of A form a class; the invariants depend only on the totals of classes.
  The weight of a total n of the first i cells of a class is the sum over s of t^|s - x_i| times the
  weight of total n - s of the first i - 1 cells.
- The weight of a remainder r of A x after some classes is the sum over totals n of the next class
  of its weight times the weight of the remainder r - n times the column.

A table is then drawn total by total and cell by cell. Weights are irrational: they are kept as
decimals of p digits, and sums of products of positive terms have a relative error of one unit of
the last digit per operation. Bits of a uniform number are read until it lies between two bounds of
the distribution function with a margin above that error. If p digits cannot decide, the weights are
computed with twice as many, and reading continues. So each draw has exactly this distribution, if
the bits are uniform.

The privacy guarantee is in `das.privacy.conditioning`: C(x) depends on the data, so the cost is not
the epsilon of the noise.

References:
  Gong & Meng, Congenial Differential Privacy under Mandated Disclosure, FODS 2020. Gong, Exact
  Inference with Approximate Computation for Differentially Private Data via Perturbations, 2022,
  arXiv:1909.12237.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import pairwise, permutations

import numpy as np

from das.arrays import IntArray
from das.errors import BudgetError
from das.mechanisms.entropy import BitSource
from das.rational import decimal_of, require_positive

_FIRST_DIGITS = 50  # default, not measured; doubled if a draw needs more
_SPARE = 12  # digits that rounding may spoil: less than 10^10 operations
_READ = 64  # bits read at a time
_MOST_STEPS = 2_000_000  # products of weights, some microseconds each; default, not measured
_LOWEST_POWER = 2_000_000  # e^-this is 10^-868,589; decimals end at 10^-999,999


def conditional_table(
    table: IntArray, invariants: IntArray, scale: Fraction, bits: BitSource
) -> IntArray:
    """Draw a noisy table with the same invariants.

    Args:
      table: int64[n], nonnegative counts of cells; confidential.
      invariants: int64[m, n], nonnegative; the sums `invariants @ table` are kept, and each cell
        has a positive coefficient in at least one of them.
      scale: Scale of the noise in every cell, exact, > 0.
      bits: Uniform bits, read as they are needed.

    Returns:
      int64[n], nonnegative.

    Law:
      Independent two-sided geometric noise on every cell, conditional on the kept sums and on
      nonnegative cells; exact.

    Raises:
      BudgetError: The shapes do not fit, a number is negative, a cell is in no invariant, or the
        sampler would need more than 2,000,000 products.
    """
    _check(table, invariants, scale)
    columns, label = np.unique(invariants, axis=1, return_inverse=True)
    label = label.reshape(-1)
    classes = [np.flatnonzero(label == number) for number in range(columns.shape[1])]
    kept = tuple(int(value) for value in invariants @ table)
    counts = [table[cells].tolist() for cells in classes]
    problem = _Problem(counts, columns.T.tolist(), kept, scale)
    problem.weights(_FIRST_DIGITS)  # refuses a too large problem before a bit is read
    out = np.zeros_like(table)
    rest = kept
    for index, cells in enumerate(classes):
        total = _choose(bits, partial(problem.totals, index, rest))
        rest = problem.left(index, rest, total)
        for position in range(len(cells) - 1, -1, -1):
            value = _choose(bits, partial(problem.values, index, position, total))
            out[cells[position]] = value
            total -= value
    return out


@dataclass(frozen=True, eq=False)
class _Weights:
    """Weights to a precision of d digits: relative errors are below 10^(_SPARE - d).

    Attributes:
      powers: t^k for k = 0, 1, ...
      cells: Weight of each total, by class and number of its first cells.
      rest: Weight of each remainder that can be used up, by number of classes drawn.
    """

    powers: list[Decimal]
    cells: list[list[list[Decimal]]]
    rest: list[dict[tuple[int, ...], Decimal]]


class _Problem:
    """The sampling problem of a table, by classes of cells with equal coefficients."""

    def __init__(
        self,
        counts: list[list[int]],
        columns: list[list[int]],
        kept: tuple[int, ...],
        scale: Fraction,
    ) -> None:
        self.counts, self.columns, self.kept, self.scale = counts, columns, kept, scale
        self._known: dict[int, _Weights] = {}
        self.most = [  # largest total of a class
            min(k // c for k, c in zip(kept, column, strict=True) if c) for column in columns
        ]
        steps = sum((most + 1) * len(x) for x, most in zip(self.counts, self.most, strict=True))
        if steps > _MOST_STEPS:
            raise _too_many_steps(
                "is too large for exact sampling",
                f"{steps} products",
                remedy="make the classes of cells smaller, by more invariants, or release noisy "
                "answers and estimate from them",
            )

    def weights(self, digits: int) -> _Weights:
        """Return all weights to a precision; computed once per precision."""
        if digits not in self._known:
            longest = max(self.most) + max(max(of_class) for of_class in self.counts)
            with localcontext(Context(prec=digits)):
                rate = -1 / decimal_of(self.scale)
                powers = [(rate * k).exp() for k in range(longest + 1)]
                cells = []
                for of_class, most in zip(self.counts, self.most, strict=True):
                    sums = [[Decimal(1)] + [Decimal(0)] * most]
                    for x in of_class:
                        sums.append(_with_cell(sums[-1], x, powers))
                    cells.append(sums)
                wholes = [sums[-1] for sums in cells]
                self._known[digits] = _Weights(powers, cells, self._rest(wholes))
        return self._known[digits]

    def _rest(self, wholes: list[list[Decimal]]) -> list[dict[tuple[int, ...], Decimal]]:
        """Return the weights of remainders from the weights of the totals of every class."""
        reachable, steps = [{self.kept}], 0
        for index in range(len(self.columns)):
            after: set[tuple[int, ...]] = set()
            later = np.array(self.columns[index + 1 :]).reshape(-1, len(self.kept))
            # A sum in which no later class counts for more than in another cannot be larger.
            pairs = permutations(range(len(self.kept)), 2)
            ordered = [(a, b) for a, b in pairs if (later[:, a] <= later[:, b]).all()]
            for rest in reachable[-1]:
                totals = self.possible(index, rest)
                after |= {self.left(index, rest, total) for total in totals}
                steps += len(totals)
                if steps > _MOST_STEPS:
                    raise _too_many_steps(
                        "has too many combinations of sums for exact sampling",
                        f"more than {_MOST_STEPS}",
                        remedy="keep fewer sums of overlapping cells, or release noisy answers and "
                        "estimate from them",
                    )
            reachable.append(
                {rest for rest in after if all(rest[a] <= rest[b] for a, b in ordered)}
            )
        done = tuple(0 for _ in self.kept)
        weights = [{done: Decimal(1)}]
        for index in range(len(self.columns) - 1, -1, -1):
            of_totals, below, level = wholes[index], weights[0], {}
            for rest in reachable[index]:
                whole = Decimal(0)
                for total in self.possible(index, rest):
                    left = self.left(index, rest, total)
                    if left in below:
                        whole += of_totals[total] * below[left]
                if whole:
                    level[rest] = whole
            weights.insert(0, level)
        return weights

    def totals(self, index: int, rest: tuple[int, ...], digits: int) -> list[Decimal]:
        """Return the weight of each total of one class, given the sums that are left for it.

        Args:
          index: Number of the class, from 0.
          rest: Per invariant, the part of its sum that this class and later ones must use up.
          digits: Digits of the weights.
        """
        weights = self.weights(digits)
        of_totals, below = weights.cells[index][-1], weights.rest[index + 1]
        out = [Decimal(0)] * (self.most[index] + 1)
        for total in self.possible(index, rest):
            left = self.left(index, rest, total)
            out[total] = of_totals[total] * below.get(left, Decimal(0))
        return out

    def possible(self, index: int, rest: tuple[int, ...]) -> Sequence[int]:
        """Return the totals of class `index` after which later classes can use up what is left."""
        column, later = self.columns[index], self.columns[index + 1 :]
        most = min([self.most[index], *(r // c for r, c in zip(rest, column, strict=True) if c)])
        for row, (r, c) in enumerate(zip(rest, column, strict=True)):
            if not any(other[row] for other in later):  # this class must use up the sum
                if c:
                    return [r // c] if r % c == 0 and r // c <= most else []
                if r:
                    return []
        return range(most + 1)

    def left(self, index: int, rest: tuple[int, ...], total: int) -> tuple[int, ...]:
        """Return what is left of the sums `rest` after class `index` takes `total`."""
        return tuple(r - total * c for r, c in zip(rest, self.columns[index], strict=True))

    def values(self, index: int, position: int, total: int, digits: int) -> list[Decimal]:
        """Return the weights of the values of one cell, given the total of its class up to it.

        Args:
          index: Number of the class, from 0.
          position: Number of the cell in the class, from 0.
          total: Sum of the first cells of the class, this one included.
          digits: Decimal digits of the weights.
        """
        weights = self.weights(digits)
        x, before = self.counts[index][position], weights.cells[index][position]
        return [weights.powers[abs(s - x)] * before[total - s] for s in range(total + 1)]


def _choose(bits: BitSource, weights: Callable[[int], Sequence[Decimal]]) -> int:
    """Draw a position with probability proportional to its weight.

    Args:
      bits: Uniform bits.
      weights: Function that returns the weights to a number of digits.
    """
    number, length, digits = 0, 0, _FIRST_DIGITS
    while True:
        number, length = (number << _READ) | bits.bits(_READ), length + _READ
        while length > 3 * (digits - 2 * _SPARE):  # a digit is worth more than three bits
            digits *= 2
        with localcontext(Context(prec=digits + _SPARE)):
            values = weights(digits)
            # The uniform number lies from low to high. Ratios of sums are off by less than this.
            error, whole, below = Decimal(10) ** (_SPARE + 2 - digits), sum(values), Decimal(0)
            low, high = Decimal(number) / 2**length, Decimal(number + 1) / 2**length
            for position, value in enumerate(values):
                above = below + value
                is_above = not below or below / whole + error <= low
                is_below = above == whole or high <= above / whole - error
                if value and is_above and is_below:
                    return position
                below = above


def _with_cell(before: Sequence[Decimal], x: int, powers: Sequence[Decimal]) -> list[Decimal]:
    """Return the sums over s of t^|s - x| before[n - s], for every n.

    The part with s >= x follows from the sum for n - 1. The part with s < x is a window of x totals
    up to n. It has two parts: from the start of n's block of x totals, and the rest of the previous
    block. So all terms are positive, and nothing is subtracted.
    """
    out, above, inside = [], Decimal(0), Decimal(0)
    to_end = list(before)  # sums of t^(m - n) before[m] from n to the end of its block
    for n in range(len(before) - 2, -1, -1):
        if x and (n + 1) % x:
            to_end[n] += powers[1] * to_end[n + 1]
    for n, weight in enumerate(before):
        if n >= x:
            above = above * powers[1] + before[n - x]
        below = Decimal(0)
        if x:
            offset = n % x
            inside = inside + powers[offset] * weight if offset else weight
            below = powers[x - offset] * inside
            if n >= x and offset < x - 1:
                below += powers[1] * to_end[n - x + 1]
        out.append(below + above)
    return out


def margin_rows(margins: Sequence[IntArray]) -> IntArray:
    """Return the 0/1 matrix of all marginals on n cells, int64[m, n], one row per value.

    Args:
      margins: Per marginal int64[n], the value of each cell; all of 0, 1, ... occur.
    """
    rows = [label == value for label in margins for value in range(int(label.max()) + 1)]
    return np.array(rows, np.int64)


def most_steps(margins: Sequence[IntArray], records: int) -> int:
    """Return an upper bound on the products of a draw, over all tables with this many records.

    The remainder before a class lies in an affine space, with integer coordinates from 0 to N: at
    most (N + 1)^d values. Its dimension d is the rank of the columns of the drawn classes, less the
    rank of their used-up sums. A class that is the last of a sum has one total. The totals of the
    other classes are at most the counts of a marginal, which add up to N over its values.

    Args:
      margins: Per marginal int64[n], the value of each cell, from 0. Exactly these marginals are
        kept, in this order.
      records: N, the sum of the table.
    """
    rows = margin_rows(margins)
    columns = np.unique(rows, axis=1).T
    starts = np.cumsum([0, *(int(label.max()) + 1 for label in margins)])
    last, states = 0, [1]
    in_rows = np.zeros(len(rows), np.int64)
    before = np.zeros(len(rows), np.int64)  # the previous class, unless it is the last of a sum
    for index, column in enumerate(columns):
        drawn, later = columns[:index], columns[index:]
        used_up = ~later.any(axis=0)
        dimension = _rank(drawn) - _rank(drawn[:, used_up])
        count: int = (records + 1) ** dimension
        if (column.astype(bool) & ~columns[index + 1 :].any(axis=0)).any():
            # There are at most as many remainders as products of the previous class.
            last += 0 if before.any() else count
            in_rows += before
            before = np.zeros(len(rows), np.int64)
        else:
            states.append(count)
            in_rows += column
            if count > _MOST_STEPS:
                return count
            before = column
    groups = [in_rows[start:end] for start, end in pairwise(starts)]
    totals = min(int(group.max()) * records + int(group.sum()) for group in groups)
    return int(max(rows.shape[1] * (records + 1), last + max(states) * totals))


def refuse_large(margins: Sequence[IntArray], records: int, scale: Fraction) -> None:
    """Refuse a problem for which some table with this many records is too large to sample.

    Args:
      margins: Per marginal int64[n], the value of each cell, from 0.
      records: Sum of the table.
      scale: Scale of the discrete Laplace noise, as in `conditional_table`.

    Raises:
      BudgetError: A draw may need more than 2,000,000 products, or weights are too small for
        decimals.
    """
    steps = most_steps(margins, records)
    if steps > _MOST_STEPS:
        raise _too_many_steps(
            "may be too large for exact sampling",
            f"up to {steps} products",
            remedy="keep fewer marginals, or request a table with fewer cells",
        )
    if 2 * records / scale > _LOWEST_POWER:
        raise BudgetError(
            "conditional table",
            "has so little noise that its weights are too small for decimals",
            got=f"scale {float(scale):.3g}",
            want=f"at least {2 * records / _LOWEST_POWER:.3g}",
        )


def _too_many_steps(what: str, got: str, *, remedy: str) -> BudgetError:
    want = f"at most {_MOST_STEPS}"
    return BudgetError("conditional table", what, got=got, want=want, remedy=remedy)


def _rank(matrix: IntArray) -> int:
    return int(np.linalg.matrix_rank(matrix)) if matrix.size else 0


def _check(table: IntArray, invariants: IntArray, scale: Fraction) -> None:
    if table.ndim != 1 or invariants.ndim != 2 or invariants.shape[1] != len(table):
        raise BudgetError(
            "conditional table",
            "needs one column of invariants per cell",
            got=f"{table.shape}, {invariants.shape}",
        )
    if (table < 0).any() or (invariants < 0).any():
        raise BudgetError("conditional table", "has a negative number")
    if not invariants.any(axis=0).all():
        raise BudgetError(
            "conditional table",
            "has a cell that is in no invariant, so its value is unbounded",
            remedy="keep the total too",
        )
    require_positive("scale", scale)
