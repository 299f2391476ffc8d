"""Errors of a table by population group, counted exactly, and the parity error between groups.

A group is an answer of a query, such as one race, or a type of geounits, such as rural ones. Its
errors are the errors of the table restricted to the group, summed over geounits. All sums are
integers, so batches merge without rounding, in any order.

References:
  Rosenblatt, Stoyanovich & Musco, Stratification against the disparate impact of differential
  privacy, Definition 11 (parity error).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray, sums_at
from das.errors import SchemaError
from das.histograms import Histograms, freeze_arrays
from das.metrics.accuracy import gather
from das.queries.query import Query, common_refinement


@dataclass(frozen=True, eq=False)
class Restriction:
    """A table restricted to each of m groups.

    Attributes:
      groups: A partition query; each of its answers is a group.
      table: A partition query.
    """

    groups: Query
    table: Query

    @cached_property
    def joint(self) -> Query:
        """Return the query with one answer per group and row of the table that intersect.

        Raises:
          SchemaError: The groups or the table are not a partition.
        """
        return common_refinement(self.groups, self.table)

    @cached_property
    def rows(self) -> IntArray:
        """Return the number of answers of the table in each of m groups, int64[m]."""
        rows = np.ones(1, np.int64)
        for group, joint in zip(self.groups.factors, self.joint.factors, strict=True):
            counts = np.bincount(group.codes[joint.first_levels], minlength=len(group.labels))
            rows = np.multiply.outer(rows, counts).reshape(-1)
        return rows

    @property
    def is_finer(self) -> bool:
        """Return whether the table has more than one answer in some group."""
        return bool((self.rows > 1).any())


@dataclass(frozen=True, eq=False, slots=True)
class Areas:
    """Types of the compared geounits.

    Attributes:
      labels: Names of the m types.
      of_geounits: int64[G]; the type of each geounit.
    """

    labels: tuple[str, ...]
    of_geounits: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self, "of_geounits")

    def slice(self, start: int, stop: int) -> Areas:
        """Return the types of geounits start..stop-1."""
        return Areas(self.labels, self.of_geounits[start:stop])


@dataclass(frozen=True, eq=False, slots=True)
class GroupErrors:
    """Errors of one table in m groups, over some geounits.

    Attributes:
      answers: int64[m]; answers compared.
      truth: int64[m]; true persons.
      released: int64[m]; released persons.
      absolute: int64[m]; sum of |released - true| over the answers.
      squared: m Python integers; sum of squared errors.
      largest: int64[m]; largest |released - true|.
    """

    answers: IntArray
    truth: IntArray
    released: IntArray
    absolute: IntArray
    squared: tuple[int, ...]
    largest: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self, "answers", "truth", "released", "absolute", "largest")


def merge_groups(first: GroupErrors, second: GroupErrors) -> GroupErrors:
    """Combine disjoint sets of geounits; exactly associative and commutative."""
    return GroupErrors(
        first.answers + second.answers,
        first.truth + second.truth,
        first.released + second.released,
        first.absolute + second.absolute,
        tuple(a + b for a, b in zip(first.squared, second.squared, strict=True)),
        np.maximum(first.largest, second.largest),
    )


@dataclass(frozen=True, eq=False)
class Differences:
    """Cells in which a release differs from the truth, computed once for all groups and tables.

    Attributes:
      n_geounits: G, the number of geounits.
      owners: int64[k]; geounit of each cell that differs.
      cells: int64[d]; the distinct cells that differ in some geounit, increasing.
      positions: int64[k]; index into `cells` of each cell that differs.
      errors: int64[k]; released minus true, not 0.
      occupied: int64[c]; the cells in which the truth has persons.
      persons: int64[c]; true persons in each of these cells, in all geounits.
      totals: int64[G]; true persons of each geounit.
    """

    n_geounits: int
    owners: IntArray
    cells: IntArray
    positions: IntArray
    errors: IntArray
    occupied: IntArray
    persons: IntArray
    totals: IntArray

    @classmethod
    def between(cls, truth: Histograms, released: Histograms) -> Differences:
        """Compare the histograms of the same G geounits, in time linear in their entries.

        Raises:
          SchemaError: The histograms have different geounits or cells.
        """
        if (truth.n_geounits, truth.n_cells) != (released.n_geounits, released.n_cells):
            raise SchemaError("parity", "truth and release hold different geounits or cells")
        n = truth.n_cells
        spots = np.concatenate([h.owners() * n + h.cells for h in (truth, released)])
        spots, sums = gather(spots, np.concatenate((-truth.counts, released.counts)))
        cells, positions = np.unique(spots % n, return_inverse=True)
        occupied, persons = gather(truth.cells, truth.counts)
        return cls(
            truth.n_geounits, spots // n, cells, positions.reshape(-1), sums,
            occupied, persons, truth.totals(),
        )  # fmt: skip

    def by_group(self, restriction: Restriction) -> GroupErrors:
        """Return the errors of a table restricted to groups of persons."""
        groups, joint = restriction.groups, restriction.joint
        n_groups = groups.size
        of_cell = groups.rows_of(self.cells)[self.positions]
        first, errors = self._sums(joint)
        truth = sums_at(groups.rows_of(self.occupied), self.persons, n_groups)
        net = sums_at(of_cell, self.errors, n_groups)
        return _errors(self.n_geounits * restriction.rows, truth, net, of_cell[first], errors)

    def by_area(self, table: Query, areas: Areas) -> GroupErrors:
        """Return the errors of a table in the geounits of each type.

        Raises:
          SchemaError: The table is not a partition, or there is not one type per geounit.
        """
        kinds, n_groups = areas.of_geounits, len(areas.labels)
        if len(kinds) != self.n_geounits:
            raise SchemaError("parity", "needs one type per geounit")
        first, errors = self._sums(table)
        answers = np.bincount(kinds, minlength=n_groups) * table.size
        truth = sums_at(kinds, self.totals, n_groups)
        net = sums_at(kinds[self.owners], self.errors, n_groups)
        return _errors(answers, truth, net, kinds[self.owners[first]], errors)

    def _sums(self, table: Query) -> tuple[IntArray, IntArray]:
        """Sum errors by answer; return an entry's index and the sum, per answer that differs."""
        keys = self.owners * table.size + table.rows_of(self.cells)[self.positions]
        _, first, answer = np.unique(keys, return_index=True, return_inverse=True)
        sums = sums_at(answer.reshape(-1), self.errors, len(first))
        return first[sums != 0], sums[sums != 0]


def _errors(
    answers: IntArray, truth: IntArray, net: IntArray, of_error: IntArray, errors: IntArray
) -> GroupErrors:
    """Return the sums of errors by group.

    Args:
      answers: int64[m], number of answers of each group.
      truth: int64[m], true persons of each group.
      net: int64[m], sum of the errors of each group.
      of_error: int64[k], the group of each error.
      errors: int64[k], the errors other than 0.
    """
    size, n_groups = np.abs(errors), len(answers)
    largest = np.zeros(n_groups, np.int64)
    np.maximum.at(largest, of_error, size)
    absolute = sums_at(of_error, size, n_groups)
    # Sums of squares, in Python integers if 64 bits may not suffice.
    fits = int(size.max(initial=0)) ** 2 * len(size) < 1 << 63
    wide = size.astype(np.int64 if fits else object)
    squares = np.zeros(n_groups, wide.dtype)
    np.add.at(squares, of_error, wide * wide)
    squared = tuple(int(value) for value in squares)
    return GroupErrors(answers, truth, truth + net, absolute, squared, largest)


@dataclass(frozen=True)
class Parity:
    """Inequality of the relative errors of a table between groups.

    Attributes:
      relative: float64[m]; sum of |error| over persons, NaN for groups below the floor.
      population: Relative error of the population-wide table; NaN below the floor.
      n_groups: k, the number of groups that reach the floor.
      error: Parity error, population / k + the sum of relative errors over the k groups. It grows
        with k; `mean` does not.
      worst: Index of the group with the largest relative error, None if k = 0.
    """

    relative: FloatArray
    population: float
    n_groups: int
    error: float
    worst: int | None

    @property
    def mean(self) -> float:
        """Return the parity error over k; NaN if no group reaches the floor."""
        return self.error / self.n_groups if self.n_groups else math.nan


def parity_of(
    absolute: FloatArray | IntArray,
    persons: IntArray,
    absolute_population: float,
    *,
    floor: int = 1,
) -> Parity:
    """Return the parity error of Definition 11, from sums of |error|.

    Args:
      absolute: number[m]; sum of |error| of each group, observed or expected.
      persons: int64[m]; persons of each group. Every person is in one group.
      absolute_population: Sum of |error| of the population-wide table.
      floor: Smallest number of persons for which a relative error is computed, 1 or more.

    Raises:
      SchemaError: The floor is below 1.
    """
    if floor < 1:
        raise SchemaError("parity error", "has too small a floor", got=floor, want="1 or more")
    large = persons >= floor
    k, population = int(large.sum()), int(persons.sum())
    relative = np.full(len(large), np.nan)
    relative[large] = absolute[large] / persons[large]
    of_all = absolute_population / population if population >= floor else math.nan
    error = parity_error(relative[large], of_all) if k else math.nan
    worst = int(np.nanargmax(relative)) if k else None
    return Parity(relative, of_all, k, error, worst)


def parity_error(relative: FloatArray, population: float) -> float:
    """Return the parity error of Definition 11 for any statistic: e / k + sum_i e_i.

    Args:
      relative: float64[k]; relative error |f(G_i) - M(G_i)| / |f(G_i)| of each group.
      population: e, the relative error of the whole population.

    >>> parity_error(np.array([0.25, 0.5]), 0.5)
    1.0
    """
    return float(relative.sum()) + 1.0 / len(relative) * population


def expected_absolute(standard_errors: Sequence[float] | FloatArray) -> FloatArray:
    """Return the mean |error| of m normal errors, s sqrt(2 / pi) for standard error s."""
    return np.asarray(np.sqrt(2.0 / np.pi) * np.asarray(standard_errors, np.float64))
