"""Least squares on a tree of histograms: one pass up, family by family, and one pass down.

On one component (`coordinates`), let the queries measured in node u have information W_u and
adjoint answers b_u = sum_q w_q Q_q'y_q. Invariants leave the span of N open and fix the rest of u
at k_u. Up, with s_u and B_u the sums over the children of their estimates z_c and covariances S_c,

    S_u = N (N'(W_u + B_u^+) N)^{-1} N',   z_u = k_u + S_u (b_u + B_u^+ s_u - (W_u + B_u^+) k_u),

which is the estimate of u from all answers in its subtree. Down, from the root, where x = z, F = S,

    x_c = z_c + S_c B_u^+ (x_u - s_u),     F_c = S_c + S_c (B_u^+ F_u B_u^+ - B_u^+) S_c,

the best linear unbiased estimate from all answers of the tree, and its covariance. Exact answers
are directions without variance, never large weights. An only child equals its parent and is not
measured: on the way up it passes (s, B^+) of its children on, on the way down it takes the parent's
estimate.

Covariances depend on the tree and the noise, not on answers, and geounits share them: `kind` gives
the index of each geounit's covariance. All functions work on many families at once.

References:
  Rauch, Tung & Striebel, AIAA Journal 3, 1965 (smoothing).
  Hay, Rastogi, Miklau & Suciu, PVLDB 3, 2010, arXiv:0904.0942 (least squares on a tree of counts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SolverError
from das.tree.coordinates import Adding, Matrices, Values, group_sums
from das.tree.errors import covariance_matrices
from das.tree.model import GeolevelTerms


@dataclass(frozen=True, eq=False)
class Evidence:
    """Measurements and invariants of geounits in coordinates.

    Attributes:
      adjoint: Values of G geounits, sum_q w_q Q_q'y_q.
      known: Values of G geounits fixed by invariants, 0 in the open subspace.
      information: Matrices of K kinds, sum_q w_q Q_q'Q_q.
      kind: int64[G], index of each geounit's matrix.
    """

    adjoint: Values
    known: Values
    information: Matrices
    kind: IntArray


@dataclass(frozen=True, eq=False)
class Moments:
    """Estimates and their covariances.

    Attributes:
      values: Values of G geounits.
      matrices: Matrices of K kinds: covariances. In messages up the tree (see `pass_up`), the
        matrix of an only child is the precision of its summed children.
      kind: int64[G], index of each geounit's matrix.
    """

    values: Values
    matrices: Matrices
    kind: IntArray

    def take(self, rows: IntArray | BoolArray) -> Moments:
        """Select some geounits, with all kinds."""
        return Moments(tuple(part[rows] for part in self.values), self.matrices, self.kind[rows])


def gather_evidence(
    terms: GeolevelTerms,
    *,
    noisy: Sequence[npt.NDArray[np.integer | np.floating]],
    exact: Sequence[npt.NDArray[np.integer | np.floating]],
    precisions: FloatArray,
    kind: IntArray,
    add_up: Adding = group_sums,
) -> Evidence:
    """Turn answers of G geounits into evidence.

    Args:
      terms: The queries of the geolevel.
      noisy: Per measured query, number[G, m]: its noisy answers in each geounit.
      exact: Per invariant, number[G, m]: its exact answers in each geounit.
      precisions: float64[K, Q], 1 / variance of the noise of one answer, by kind of geounit.
      kind: int64[G], row of `precisions` that applies to each geounit.
      add_up: Function that sums integers by group.
    """
    coordinates, n_geounits = terms.coordinates, len(kind)
    weights = [weight[0] if len(weight) == 1 else weight[kind] for weight in precisions.T]
    adjoint = coordinates.adjoint_sum(terms.measured, noisy, weights, n_geounits, add_up)
    known = coordinates.adjoint_sum(terms.exact, exact, [1.0] * len(exact), n_geounits)
    if terms.exact:
        known = tuple(m @ part for m, part in zip(terms.known_inverse, known, strict=True))
    return Evidence(adjoint, known, terms.information(precisions), kind)


def combine(terms: GeolevelTerms, evidence: Evidence, below: Moments | None) -> Moments:
    """Estimate geounits from their subtrees.

    Args:
      terms: The queries of the geolevel.
      evidence: Evidence of G geounits.
      below: Sums s of their children and precisions B^+; None at the leaves.

    Raises:
      SolverError: The answers do not determine every cell.
    """
    kind = evidence.kind
    pairs = np.stack([kind, np.zeros_like(kind) if below is None else below.kind], axis=1)
    chosen, numbers = _distinct(pairs)
    values, covariances = [], []
    for index, unknown in enumerate(terms.unknown):
        precision = evidence.information[index][chosen[:, 0]]
        adjoint, known = evidence.adjoint[index], evidence.known[index]
        if below is not None:
            precision = precision + below.matrices[index][chosen[:, 1]]
            adjoint = adjoint + _apply(below.matrices[index], below.kind, below.values[index])
        covariance = _inverse(precision, unknown)
        moved = adjoint - _apply(precision, numbers, known)
        values.append(known + _apply(covariance, numbers, moved))
        covariances.append(covariance)
    return Moments(tuple(values), tuple(covariances), numbers)


def add_families(children: Moments, starts: IntArray, unknown: Sequence[FloatArray]) -> Moments:
    """Add up families of more than one child.

    Args:
      children: Subtree estimates, families one after the other.
      starts: int64[U], first row of every family; a family ends where the next begins.
      unknown: Per component, a basis of the subspace to add up: `GeolevelTerms.shared` of the
        children's geolevel.

    Returns:
      Per family, sums s and, as matrices, precisions B^+.
    """
    sums = tuple(np.add.reduceat(part, starts, axis=0) for part in children.values)
    ends = np.append(starts[1:], len(children.kind)).tolist()
    numbers: dict[bytes, int] = {}
    rows: list[IntArray] = []
    kind = np.empty(len(starts), np.int64)
    for family, (start, stop) in enumerate(zip(starts.tolist(), ends, strict=True)):
        kinds = np.sort(children.kind[start:stop])
        kind[family] = numbers.setdefault(kinds.tobytes(), len(numbers))
        if kind[family] == len(rows):
            rows.append(kinds)
    counts = np.stack([np.bincount(kinds, minlength=len(children.matrices[0])) for kinds in rows])
    return Moments(sums, _summed_precision(children.matrices, counts, unknown), kind)


def add_leaves(sums: Moments, numbers: IntArray, unknown: Sequence[FloatArray]) -> Moments:
    """Compute the families' sums of leaves from estimates of their summed answers.

    Leaves of one kind have equal covariances and estimates linear in their answers, so the answers
    are added up first and estimated once per family.

    Args:
      sums: Estimates from the summed answers, all of one kind, with the covariance of one leaf.
      numbers: int64[U], leaves of every family; 0 for a family without measured leaves.
      unknown: As in `add_families`.
    """
    distinct, kind = np.unique(numbers, return_inverse=True)
    precisions = _summed_precision(sums.matrices, np.maximum(distinct, 1)[:, None], unknown)
    measured = (distinct > 0)[:, None, None]
    return Moments(
        tuple(part * (numbers > 0)[:, None, None] for part in sums.values),
        tuple(part * measured for part in precisions),
        kind.reshape(-1).astype(np.int64),
    )


def _summed_precision(
    covariances: Matrices, counts: IntArray, unknown: Sequence[FloatArray]
) -> Matrices:
    """Invert the summed covariance of the children of each of U families.

    Args:
      covariances: Covariances of K kinds of children.
      counts: int64[U, K], number of children of each kind.
      unknown: Per component, float64[D, k], basis of the subspace that is not known exactly.
    """
    out = []
    for part, basis in zip(covariances, unknown, strict=True):
        total = (counts.astype(np.float64) @ part.reshape(len(part), -1)).reshape(
            -1, *part.shape[1:]
        )
        out.append(_inverse(total, basis))
    return tuple(out)


def interleave(first: Moments, second: Moments, is_second: BoolArray) -> Moments:
    """Interleave the rows of two sets of geounits.

    Args:
      first: Rows for the geounits that `is_second` does not mark.
      second: Rows for the geounits that `is_second` marks.
      is_second: bool[G], which geounits of the result are rows of `second`.
    """
    if not is_second.any():  # the most frequent case: only children are few
        return first
    kind = np.empty(len(is_second), np.int64)
    kind[~is_second] = first.kind
    kind[is_second] = second.kind + len(first.matrices[0])
    values = []
    for left, right in zip(first.values, second.values, strict=True):
        part = np.empty((len(is_second), *left.shape[1:]))
        part[~is_second], part[is_second] = left, right
        values.append(part)
    matrices = tuple(map(np.concatenate, zip(first.matrices, second.matrices, strict=True)))
    return Moments(tuple(values), matrices, kind)


def sum_below(
    children: Moments, starts: IntArray, is_only: BoolArray, unknown: Sequence[FloatArray]
) -> Moments:
    """Compute the sums below every parent: of its children, or below its only child.

    Args:
      children: Messages of all children of U parents, in order.
      starts: int64[U], first row of every family.
      is_only: bool[G], whether a child is an only child.
      unknown: As in `add_families`.
    """
    passes = is_only[starts]
    if passes.all():
        return children
    if not passes.any():
        return add_families(children, starts, unknown)
    several = children.take(~is_only)
    before: IntArray = np.cumsum(is_only) - is_only
    sums = add_families(several, (starts - before[starts])[~passes], unknown)
    return interleave(sums, children.take(is_only), passes)


def smooth_families(
    children: Moments, below: Moments, parents: Moments, family: IntArray
) -> Moments:
    """Estimate children from all answers of the tree.

    Args:
      children: Subtree estimates of G children, none an only child.
      below: Sums and precisions of U families, from `add_families`.
      parents: Estimates of the same U parents from all answers, with covariances F.
      family: int64[G], the parent's row of every child.
    """
    triples = np.stack([parents.kind[family], below.kind[family], children.kind], axis=1)
    chosen, numbers = _distinct(triples)
    values, covariances = [], []
    for index, part in enumerate(children.values):
        precision = below.matrices[index]
        change = parents.values[index] - below.values[index]
        change = _apply(precision, below.kind, change)
        values.append(part + _apply(children.matrices[index], children.kind, change[family]))
        given, inverse = parents.matrices[index][chosen[:, 0]], precision[chosen[:, 1]]
        subtree = children.matrices[index][chosen[:, 2]]
        change_of_information = inverse @ given @ inverse - inverse
        covariances.append(subtree + subtree @ change_of_information @ subtree)
    return Moments(tuple(values), tuple(covariances), numbers)


def _distinct(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return distinct rows of nonnegative integers, ascending, and each row's index in them."""
    spans = tuple((rows.max(axis=0, initial=0) + 1).tolist())
    chosen, numbers = np.unique(np.ravel_multi_index(tuple(rows.T), spans), return_inverse=True)
    return np.stack(np.unravel_index(chosen, spans), axis=1), np.asarray(numbers, np.int64)


def _apply(matrices: FloatArray, kind: IntArray, values: FloatArray) -> FloatArray:
    """Multiply the values of each geounit by its matrix, float64[G, D, R].

    Args:
      matrices: float64[K, D, D], one matrix per kind.
      kind: int64[G], kind of each geounit.
      values: float64[G, D, R].
    """
    if len(matrices) == 1:
        return np.asarray(matrices[0] @ values)
    if matrices.shape[1] == 1:
        return np.asarray(matrices[kind] * values)
    return np.asarray(matrices[kind] @ values)


def _inverse(precision: FloatArray, unknown: FloatArray) -> FloatArray:
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return covariance_matrices(precision, unknown)
    except (np.linalg.LinAlgError, FloatingPointError):
        raise SolverError(
            "estimate",
            "the answers of a geounit and its descendants do not have full column rank",
            remedy="measure the detailed query at the last geolevel",
        ) from None


# --- one geolevel at a time ----------------------------------------------------------------------


def pass_up(
    terms: GeolevelTerms, evidence: Evidence, below: Moments | None, is_only: BoolArray
) -> Moments:
    """Compute the messages of a geolevel: subtree estimates; for only children the sums below.

    Args:
      terms: The queries of the geolevel.
      evidence: Evidence of the geounits that are not only children.
      below: Sums and precisions below all G geounits; None at the leaves.
      is_only: bool[G], whether each geounit is the only child of its parent.
    """
    if below is None:  # only children at the last geolevel have no sum and no precision
        sizes, widths, n_only = terms.coordinates.sizes, terms.coordinates.widths, is_only.sum()
        values = (np.zeros((n_only, d, r)) for d, r in zip(sizes, widths, strict=True))
        precisions = (np.zeros((1, d, d)) for d in sizes)
        only = Moments(tuple(values), tuple(precisions), np.zeros(n_only, np.int64))
        return interleave(combine(terms, evidence, None), only, is_only)
    if not is_only.any():
        return combine(terms, evidence, below)
    several = combine(terms, evidence, below.take(~is_only))
    return interleave(several, below.take(is_only), is_only)


def pass_down(
    messages: Moments, below: Moments, parents: Moments, starts: IntArray, is_only: BoolArray
) -> Moments:
    """Estimate a geolevel from all answers of the tree.

    Args:
      messages: Messages of all G children of U parents, from `pass_up`.
      below: Sums below the U parents, from `sum_below`.
      parents: Estimates of the U parents from all answers.
      starts: int64[U], first row of every family.
      is_only: bool[G], whether each child is the only child of its parent.
    """
    sizes = np.diff(np.append(starts, len(is_only)))
    family = np.repeat(np.arange(len(starts)), sizes)
    if not is_only.any():
        return smooth_families(messages, below, parents, family)
    several = smooth_families(messages.take(~is_only), below, parents, family[~is_only])
    return interleave(several, parents.take(family[is_only]), is_only)
