"""For whom a release is worse: errors of a table by group of persons, counted exactly.

A group is an answer of a query, such as one race, or a type of area. Its errors are those of the
table restricted to it, added up over geounits; all sums are integers, so batches merge without
rounding, in any order.

References:
  Rosenblatt, Stoyanovich & Musco, Stratification against the disparate impact of differential
  privacy, Definition 11 (parity error).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.histograms import frozen_array


@dataclass(frozen=True, eq=False, slots=True)
class GroupErrors:
    """Errors of one table in m groups, over some geounits.

    Attributes:
      answers: int64[m]; answers compared.
      truth: int64[m]; sum of the true answers: persons, if the table is a partition.
      released: int64[m]; sum of the released answers.
      net: int64[m]; sum of released minus true.
      absolute: int64[m]; sum of |released - true|.
      squared: int64[m]; sum of squares.
      largest: int64[m]; largest |released - true|.
    """

    answers: IntArray
    truth: IntArray
    released: IntArray
    net: IntArray
    absolute: IntArray
    squared: IntArray
    largest: IntArray

    def __post_init__(self) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, frozen_array(getattr(self, name)))


def no_errors(n_groups: int) -> GroupErrors:
    """Of no geounits, the neutral element of `merge_groups`."""
    zero = np.zeros(n_groups, np.int64)
    return GroupErrors(zero, zero, zero, zero, zero, zero, zero)


def compare_groups(truth: IntArray, released: IntArray) -> GroupErrors:
    """Errors of G geounits.

    Args:
      truth: int64[G, m, t]; true answers of the table by group.
      released: int64[G, m, t].

    Raises:
      SchemaError: The shapes differ.
    """
    if truth.ndim != 3 or truth.shape != released.shape:
        raise SchemaError(
            "parity", "answers do not fit together", got=f"{truth.shape} and {released.shape}"
        )
    errors = released - truth
    size = np.abs(errors)
    geounits, n_groups, n_rows = truth.shape
    return GroupErrors(
        np.full(n_groups, geounits * n_rows, np.int64),
        truth.sum((0, 2)),
        released.sum((0, 2)),
        errors.sum((0, 2)),
        size.sum((0, 2)),
        (errors * errors).sum((0, 2)),
        size.max((0, 2), initial=0),
    )


def merge_groups(first: GroupErrors, second: GroupErrors) -> GroupErrors:
    """Combine disjoint sets of geounits; exactly associative and commutative."""
    return GroupErrors(
        first.answers + second.answers,
        first.truth + second.truth,
        first.released + second.released,
        first.net + second.net,
        first.absolute + second.absolute,
        first.squared + second.squared,
        np.maximum(first.largest, second.largest),
    )


@dataclass(frozen=True)
class Parity:
    """How unequally a table is released for groups.

    Attributes:
      relative: float64[m]; sum of |error| over sum of truth, NaN where the truth is below the
        floor.
      everybody: The same of all groups together; NaN below the floor.
      n_groups: k, the groups that reach the floor.
      error: Parity error, omega everybody + the sum of relative errors over the k groups. It grows
        with k; `mean` does not.
      worst: Number of the group with the largest relative error, None if k = 0.
    """

    relative: FloatArray
    everybody: float
    n_groups: int
    error: float
    worst: int | None

    @property
    def mean(self) -> float:
        """Parity error over k; NaN if no group reaches the floor."""
        return self.error / self.n_groups if self.n_groups else float("nan")


def parity_of(errors: GroupErrors, *, floor: int = 1, omega: float | None = None) -> Parity:
    """Parity error of Definition 11, of sums of |error|.

    Args:
      errors: Of a table by group.
      floor: Relative errors are taken of groups with at least so many persons, 1 or more; a small
        group is in `errors` all the same, in persons.
      omega: Weight of everybody, 1/k if None.

    Raises:
      SchemaError: The floor is below 1 or the weight negative.
    """
    if floor < 1 or (omega is not None and omega < 0):
        raise SchemaError(
            "parity",
            "cannot be taken",
            got=f"floor {floor}, omega {omega}",
            want="at least 1 and 0",
        )
    large = errors.truth >= floor
    k = int(large.sum())
    relative = np.full(len(large), np.nan)
    relative[large] = errors.absolute[large] / errors.truth[large]
    persons = int(errors.truth.sum())
    everybody = int(errors.absolute.sum()) / persons if persons >= floor else float("nan")
    error = parity_error(relative[large], everybody, omega=omega) if k else float("nan")
    worst = int(np.nanargmax(relative)) if k else None
    return Parity(relative, everybody, k, error, worst)


def parity_error(relative: FloatArray, everybody: float, *, omega: float | None = None) -> float:
    """Parity error of Definition 11, of any statistic: omega e + sum_i e_i.

    Args:
      relative: float64[k]; relative error |f(G_i) - M(G_i)| / |f(G_i)| of each group.
      everybody: e, that of all of them together.
      omega: Weight of everybody, 1/k if None.

    >>> parity_error(np.array([0.25, 0.5]), 0.5)
    1.0
    """
    weight = 1.0 / len(relative) if omega is None else omega
    return float(relative.sum()) + weight * everybody


def expected_parity(
    standard_errors: Sequence[FloatArray], released: Sequence[float], *, floor: int = 1
) -> FloatArray:
    """Expected relative errors of groups, from what is public; no truth.

    An unbiased estimate with standard error s errs by s sqrt(2 / pi) on average where its error is
    normal, so a group by the sum of these over its released persons.

    Args:
      standard_errors: m arrays, of all answers of a group.
      released: m released sizes of the groups.
      floor: Least released size.

    Returns:
      float64[m], NaN below the floor.
    """
    sizes = np.asarray(released, float)
    errors = np.array([float(np.sum(values)) for values in standard_errors])
    out = np.full(len(sizes), np.nan)
    large = sizes >= floor
    out[large] = np.sqrt(2.0 / np.pi) * errors[large] / sizes[large]
    return out
