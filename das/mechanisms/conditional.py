r"""Noise conditioned on what is exact: a table drawn among those that keep all invariants.

The mechanism adds two-sided geometric noise to every cell, P(Z = z) proportional to t^|z| with t =
e^(-1 / scale), and looks only at the draws that meet the invariants. So a table s of nonnegative
integers with A s = A x has the probability

    t^|s - x|_1 / C(x) ,     C(x) the sum of the same over all such tables.

Gong draws from it by a Markov chain (a Metropolized independence sampler), whose draws have the
distribution only in the limit. Here it is drawn exactly, by dynamic programming over cells:

- Cells with one column of A are a class; only the total of a class matters to the invariants. The
  weight of a total n of the first i cells of a class is the sum over s of t^|s - x_i| times the
  weight of n - s of the cells before.
- The weight of a remainder r of A x after some classes is the sum over totals n of the next class
  of its weight times the weight of the remainder r - n times the column.

A table is then drawn total by total and cell by cell. Weights are irrational: they are kept as
decimals of p digits, and sums of products of positive terms are off by a relative error of one unit
of the last digit per operation. A uniform number is read until it lies between two bounds of the
distribution function, which are further from it than that; if p digits cannot decide, the weights
are computed with twice as many, and the same bits are read on. So each draw has exactly the
distribution, as far as the bits are uniform.

What it promises is in `das.privacy.conditioning`: C(x) depends on the data, so it is not the
epsilon of the noise.

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

_FIRST_DIGITS = 50
_SPARE = 12  # of the digits, those that rounding may spoil: less than 10^10 operations
_READ = 64  # bits at a time
_MOST_STEPS = 2_000_000  # products of weights; some microseconds each
_LOWEST_POWER = 2_000_000  # e^-this is 10^-868,589; decimals end at 10^-999,999


def conditional_table(
    table: IntArray, invariants: IntArray, scale: Fraction, bits: BitSource
) -> IntArray:
    """Draw a table with the same invariants, more likely the nearer it is to the given one.

    Args:
      table: int64[n], nonnegative counts of cells; confidential.
      invariants: int64[m, n], nonnegative; the sums `invariants @ table` are kept, and each cell
        counts in one of them at least.
      scale: Of the noise in every cell, exact, > 0.
      bits: Uniform bits, read as they are needed.

    Returns:
      int64[n], nonnegative.

    Law:
      Independent two-sided geometric noise on every cell, given that the sums are kept and no cell
      is negative; exact.

    Raises:
      BudgetError: The shapes do not fit, a number is negative, a cell counts nowhere, or there are
        more tables than can be added up.
    """
    _check(table, invariants, scale)
    columns, label = np.unique(invariants, axis=1, return_inverse=True)
    label = label.reshape(-1)
    classes = [np.flatnonzero(label == one) for one in range(columns.shape[1])]
    kept = tuple(int(value) for value in invariants @ table)
    counts = [table[cells].tolist() for cells in classes]
    problem = _Problem(counts, columns.T.tolist(), kept, scale)
    problem.weights(_FIRST_DIGITS)  # refuses what is too large before a bit is read
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
    """Weights to a precision: relative errors of d digits are below 10^(_SPARE - d).

    Attributes:
      powers: t^k.
      cells: By class and number of its first cells, of each total.
      rest: By number of classes drawn, of each remainder; it has those that can be used up.
    """

    powers: list[Decimal]
    cells: list[list[list[Decimal]]]
    rest: list[dict[tuple[int, ...], Decimal]]


class _Problem:
    """A table by classes of cells that count alike."""

    def __init__(
        self,
        counts: list[list[int]],
        columns: list[list[int]],
        kept: tuple[int, ...],
        scale: Fraction,
    ) -> None:
        self.counts, self.columns, self.kept, self.scale = counts, columns, kept, scale
        self._known: dict[int, _Weights] = {}
        self.most = [  # of a class
            min(k // c for k, c in zip(kept, column, strict=True) if c) for column in columns
        ]
        steps = sum((most + 1) * len(own) for own, most in zip(self.counts, self.most, strict=True))
        if steps > _MOST_STEPS:
            raise BudgetError(
                "conditional table",
                "is too large to be drawn exactly",
                got=f"{steps} products",
                want=f"at most {_MOST_STEPS}",
                remedy="make the classes of cells smaller, by more invariants, or release noisy "
                "answers and estimate from them",
            )

    def weights(self, digits: int) -> _Weights:
        """All weights to a precision."""
        if digits not in self._known:
            longest = max(self.most) + max(max(own) for own in self.counts)
            with localcontext(Context(prec=digits)):
                rate = -1 / decimal_of(self.scale)
                powers = [(rate * k).exp() for k in range(longest + 1)]
                cells = []
                for own, most in zip(self.counts, self.most, strict=True):
                    sums = [[Decimal(1)] + [Decimal(0)] * most]
                    for x in own:
                        sums.append(_with_cell(sums[-1], x, powers))
                    cells.append(sums)
                wholes = [sums[-1] for sums in cells]
                self._known[digits] = _Weights(powers, cells, self._rest(wholes))
        return self._known[digits]

    def _rest(self, wholes: list[list[Decimal]]) -> list[dict[tuple[int, ...], Decimal]]:
        """Weights of remainders, given those of the totals of every class."""
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
                    raise BudgetError(
                        "conditional table",
                        "has too many combinations of sums to be drawn exactly",
                        want=f"at most {_MOST_STEPS}",
                        remedy="keep fewer sums of overlapping cells, or release noisy answers and "
                        "estimate from them",
                    )
            reachable.append(
                {rest for rest in after if all(rest[a] <= rest[b] for a, b in ordered)}
            )
        done = tuple(0 for _ in self.kept)
        weights = [{done: Decimal(1)}]
        for index in range(len(self.columns) - 1, -1, -1):
            own, below, level = wholes[index], weights[0], {}
            for rest in reachable[index]:
                whole = Decimal(0)
                for total in self.possible(index, rest):
                    left = self.left(index, rest, total)
                    if left in below:
                        whole += own[total] * below[left]
                if whole:
                    level[rest] = whole
            weights.insert(0, level)
        return weights

    def totals(self, index: int, rest: tuple[int, ...], digits: int) -> list[Decimal]:
        """Weights of the totals of a class given the remainder."""
        weights = self.weights(digits)
        own, below = weights.cells[index][-1], weights.rest[index + 1]
        out = [Decimal(0)] * (self.most[index] + 1)
        for total in self.possible(index, rest):
            left = self.left(index, rest, total)
            out[total] = own[total] * below.get(left, Decimal(0))
        return out

    def possible(self, index: int, rest: tuple[int, ...]) -> Sequence[int]:
        """Totals of a class that leave no sum negative, nor one open that no later class enters."""
        column, later = self.columns[index], self.columns[index + 1 :]
        most = min([self.most[index], *(r // c for r, c in zip(rest, column, strict=True) if c)])
        for row, (r, c) in enumerate(zip(rest, column, strict=True)):
            if not any(other[row] for other in later):  # to be used up now
                if c:
                    return [r // c] if r % c == 0 and r // c <= most else []
                if r:
                    return []
        return range(most + 1)

    def left(self, index: int, rest: tuple[int, ...], total: int) -> tuple[int, ...]:
        """What remains after a total of a class."""
        return tuple(r - total * c for r, c in zip(rest, self.columns[index], strict=True))

    def values(self, index: int, position: int, total: int, digits: int) -> list[Decimal]:
        """Weights of the values of a cell given the total of the class up to it."""
        weights = self.weights(digits)
        x, before = self.counts[index][position], weights.cells[index][position]
        return [weights.powers[abs(s - x)] * before[total - s] for s in range(total + 1)]


def _choose(bits: BitSource, weights: Callable[[int], Sequence[Decimal]]) -> int:
    """Draw a position with probability proportional to its weight.

    Args:
      bits: Uniform bits.
      weights: Weights to a number of digits.
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
    """Sums over s of t^|s - x| before[n - s], for every n.

    Those of s >= x follow from the sum before. Those of s < x are a window of x totals up to n,
    put together of two parts: from the start of the block of x totals that n is in, and what is
    left of the block before. So all terms are positive, and nothing is subtracted.
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
            place = n % x
            inside = inside + powers[place] * weight if place else weight
            below = powers[x - place] * inside
            if n >= x and place < x - 1:
                below += powers[1] * to_end[n - x + 1]
        out.append(below + above)
    return out


def margin_rows(margins: Sequence[IntArray]) -> IntArray:
    """int64[m, n]: the sums of all marginals, a row per value that a cell may count in.

    Args:
      margins: Of each, int64[n], the value in which each cell counts; from 0, all are taken.
    """
    rows = [label == value for label in margins for value in range(int(label.max()) + 1)]
    return np.array(rows, np.int64)


def most_steps(margins: Sequence[IntArray], records: int) -> int:
    """Return how many products a draw may take, whatever table of some records it is of.

    The remainder before a class has as many values as an affine space has integer points whose
    coordinates lie from 0 to N: at most (N + 1)^d. Its dimension d is the rank of the columns of
    the classes that were drawn, less that of their sums that are used up. A class that is the last
    of a sum has one total; the totals of the others are at most the counts of a marginal, which
    add up to N over its values.

    Args:
      margins: As of `margin_rows`; these and no more are kept, in this order.
      records: N, the sum of the table.
    """
    rows = margin_rows(margins)
    columns = np.unique(rows, axis=1).T
    starts = np.cumsum([0, *(int(label.max()) + 1 for label in margins)])
    last, states = 0, [1]
    in_rows = np.zeros(len(rows), np.int64)
    before = np.zeros(len(rows), np.int64)  # the class before, if it was not the last of a sum
    for index, column in enumerate(columns):
        drawn, later = columns[:index], columns[index:]
        used_up = ~later.any(axis=0)
        dimension = _rank(drawn) - _rank(drawn[:, used_up])
        count: int = (records + 1) ** dimension
        if (column.astype(bool) & ~columns[index + 1 :].any(axis=0)).any():
            # No more remainders than products of the class before.
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
    most: int = max(rows.shape[1] * (records + 1), last + max(states) * totals)
    return most


def refuse_large(margins: Sequence[IntArray], records: int, scale: Fraction) -> None:
    """Refuse what some table of so many records would be too large for; sees no table.

    Args:
      margins: As of `margin_rows`.
      records: Sum of the table.
      scale: As of `conditional_table`.

    Raises:
      BudgetError: There are more products than can be added up, or weights too small for decimals.
    """
    steps = most_steps(margins, records)
    if steps > _MOST_STEPS:
        raise BudgetError(
            "conditional table",
            "may be too large to be drawn exactly",
            got=f"up to {steps} products",
            want=f"at most {_MOST_STEPS}",
            remedy="keep fewer marginals, or ask for a table of fewer cells",
        )
    if 2 * records / scale > _LOWEST_POWER:
        raise BudgetError(
            "conditional table",
            "has so little noise that its weights are too small for decimals",
            got=f"scale {float(scale):.3g}",
            want=f"at least {2 * records / _LOWEST_POWER:.3g}",
        )


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
            "has a cell that counts in no invariant, so it has no largest value",
            remedy="keep the total too",
        )
    require_positive("scale", scale)
