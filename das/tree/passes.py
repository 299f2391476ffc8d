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

Types of cells that are publicly empty in single geounits, such as prisoners where there is no
prison, are exact answers too. They differ between siblings, so N differs between kinds of geounits:
N spans the null space of the invariants within the range of B_u, or, where nothing is measured
below u, within the types that u has. Outside the range of B_u the sums s_u are exact, and k_u
contains them.

Covariances depend on the tree and the noise, not on answers, and geounits share them: `kind` gives
the index of each geounit's covariance. All functions work on many families at once.

References:
  Rauch, Tung & Striebel, AIAA Journal 3, 1965 (smoothing).
  Hay, Rastogi, Miklau & Suciu, PVLDB 3, 2010, arXiv:0904.0942 (least squares on a tree of counts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SolverError
from das.tree.coordinates import Adding, Matrices, Values, group_sums
from das.tree.errors import covariance_matrices
from das.tree.model import GeolevelTerms

# Eigenvalues of a precision below this times the largest are zero: rounding leaves about 1e-15, and
# queries of one geounit differ by far less than 1e10 in precision.
_RANGE = 1e-11


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of geounits: those of one kind have estimates with the same covariance.

    Attributes:
      precisions: float64[K, Q], 1 / variance of the noise of one answer of each query.
      of: int64[G], the kind of each geounit.
      has_type: bool[K, t], False for types of cells that are empty in the geounits of a kind; None
        if the terms have no types.
      is_last: bool[K], whether nothing is measured below the geounits of a kind; None without
        types.
    """

    precisions: FloatArray
    of: IntArray
    has_type: BoolArray | None = None
    is_last: BoolArray | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """Measurements and invariants of geounits in coordinates.

    Attributes:
      adjoint: Values of G geounits, sum_q w_q Q_q'y_q.
      known: Values of G geounits fixed by invariants, 0 in the open subspace.
      information: Matrices of K kinds, sum_q w_q Q_q'Q_q.
      kind: int64[G], index of each geounit's matrix.
      is_open: Per component bool[K, D], coordinates of the types that a kind has; none without
        types.
      is_last: bool[K], as in `Kinds`.
    """

    adjoint: Values
    known: Values
    information: Matrices
    kind: IntArray
    is_open: tuple[BoolArray, ...] = ()
    is_last: BoolArray | None = None


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
    kinds: Kinds,
    add_up: Adding = group_sums,
) -> Evidence:
    """Turn answers of G geounits into evidence.

    Args:
      terms: The queries of the geolevel.
      noisy: Per measured query, number[G, m]: its noisy answers in each geounit.
      exact: Per invariant, number[G, m]: its exact answers in each geounit.
      kinds: The kinds of the geounits.
      add_up: Function that sums integers by group.
    """
    coordinates, n_geounits = terms.coordinates, len(kinds.of)
    by_query = kinds.precisions.T
    weights = [weight[0] if len(weight) == 1 else weight[kinds.of] for weight in by_query]
    adjoint = coordinates.adjoint_sum(terms.measured, noisy, weights, n_geounits, add_up)
    known = coordinates.adjoint_sum(terms.exact, exact, [1.0] * len(exact), n_geounits)
    if terms.exact:
        known = tuple(m @ part for m, part in zip(terms.known_inverse, known, strict=True))
    information = terms.information(kinds.precisions)
    is_open = () if kinds.has_type is None else terms.can_be_positive(kinds.has_type)
    return Evidence(adjoint, known, information, kinds.of, is_open, kinds.is_last)


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
        if terms.types is None:
            covariance = _inverse(precision, unknown)
        else:
            is_open = evidence.is_open[index][chosen[:, 0]]
            from_below = None
            if below is not None and terms.exact and evidence.is_last is not None:
                from_below = np.where(
                    evidence.is_last[chosen[:, 0], None, None],
                    np.eye(is_open.shape[1]) * is_open[:, None],
                    below.matrices[index][chosen[:, 1]],
                )
            spaces = _spaces(is_open, from_below)
            sums = np.zeros_like(known) if below is None else below.values[index]
            known, covariance = _within(
                spaces, precision, terms.exact_gram[index], known, sums, numbers
            )
        moved = adjoint - _apply(precision, numbers, known)
        values.append(known + _apply(covariance, numbers, moved))
        covariances.append(covariance)
    return Moments(tuple(values), tuple(covariances), numbers)


def _spaces(
    is_open: BoolArray, from_below: FloatArray | None = None
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield bases of the subspaces that public zeros leave open, with the kinds that have them.

    Args:
      is_open: bool[K, D], coordinates that can be positive.
      from_below: float64[K, D, D], matrices whose range is the subspace: precisions of sums of
        children. Invariants and zeros of the children together can fix more than those of the sum.
    """
    masks, group = np.unique(is_open, axis=0, return_inverse=True)
    group = group.reshape(-1)
    for number, mask in enumerate(masks):
        rows, basis = np.flatnonzero(group == number), np.eye(len(mask))[:, mask]
        if from_below is None:
            yield rows, basis
            continue
        for row in rows.tolist():
            yield np.array([row]), range_basis(from_below[row])


def range_basis(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the range of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors[:, values > _RANGE * float(values.max(initial=0.0))])


def _within(
    spaces: Iterable[tuple[IntArray, FloatArray]],
    precision: FloatArray,
    exact_gram: FloatArray,
    known: FloatArray,
    sums: FloatArray,
    numbers: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Return what is known of geounits on one component, and their covariances by kind.

    Args:
      spaces: From `_spaces`.
      precision: float64[K, D, D].
      exact_gram: float64[D, D], E, the Gram matrix of the invariants.
      known: float64[G, D, R], k with E k equal to the adjoint exact answers.
      sums: float64[G, D, R], exact outside the subspaces.
      numbers: int64[G], the kind of each geounit.
    """
    out, covariance = np.zeros_like(known), np.zeros_like(precision)
    has_exact = bool(exact_gram.any())
    for rows, space in spaces:
        free = space
        if has_exact:
            values, vectors = np.linalg.eigh(space.T @ exact_gram @ space)
            is_fixed = values > _RANGE * np.trace(exact_gram)
            free, fixed = space @ vectors[:, ~is_fixed], space @ vectors[:, is_fixed]
            inverse = (fixed / values[is_fixed]) @ fixed.T
            geounits = np.flatnonzero(np.isin(numbers, rows))
            outside = sums[geounits] - space @ (space.T @ sums[geounits])
            out[geounits] = outside + inverse @ (exact_gram @ (known[geounits] - outside))
        covariance[rows] = _inverse(precision[rows], free)
    return out, covariance


def add_families(children: Moments, starts: IntArray, terms: GeolevelTerms) -> Moments:
    """Add up families of more than one child.

    Args:
      children: Subtree estimates, families one after the other.
      starts: int64[U], first row of every family; a family ends where the next begins.
      terms: The queries of the children's geolevel.

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
    return Moments(sums, _summed_precision(children.matrices, counts, terms), kind)


def add_leaves(sums: Moments, numbers: IntArray, starts: IntArray, terms: GeolevelTerms) -> Moments:
    """Compute the families' sums of leaves from estimates of their summed answers.

    Leaves of one kind have equal covariances and estimates linear in their answers, so the answers
    are added up first and estimated once per family and kind.

    Args:
      sums: Estimates from the summed answers of H groups of leaves, family by family, with the
        covariance of one leaf of each kind.
      numbers: int64[H], leaves of every group; 0 for a family without measured leaves.
      starts: int64[U], the first group of every family.
      terms: The queries of the leaves.
    """
    counts = np.zeros((len(starts), len(sums.matrices[0])), np.int64)
    families = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(numbers))))
    counts[families, sums.kind] = numbers
    distinct, kind = np.unique(counts, axis=0, return_inverse=True)
    measured: BoolArray = np.asarray(distinct.any(axis=1), np.bool_)
    precisions = _summed_precision(sums.matrices, np.where(measured[:, None], distinct, 1), terms)
    is_measured = (numbers > 0)[:, None, None]
    return Moments(
        tuple(np.add.reduceat(part * is_measured, starts, axis=0) for part in sums.values),
        tuple(part * measured[:, None, None] for part in precisions),
        kind.reshape(-1).astype(np.int64),
    )


def _summed_precision(covariances: Matrices, counts: IntArray, terms: GeolevelTerms) -> Matrices:
    """Invert the summed covariance of the children of each of U families.

    Args:
      covariances: Covariances of K kinds of children.
      counts: int64[U, K], number of children of each kind.
      terms: The queries of the children's geolevel.
    """
    out = []
    for part, basis in zip(covariances, terms.shared, strict=True):
        total = (counts.astype(np.float64) @ part.reshape(len(part), -1)).reshape(
            -1, *part.shape[1:]
        )
        if terms.types is None:
            out.append(_inverse(total, basis))
            continue
        inverse = np.zeros_like(total)
        is_open = np.diagonal(total, axis1=1, axis2=2) > 0  # closed coordinates have exact zeros
        for rows, space in _spaces(is_open, total if terms.exact else None):
            inverse[rows] = _inverse(total[rows], space)
        out.append(inverse)
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
    children: Moments, starts: IntArray, is_only: BoolArray, terms: GeolevelTerms
) -> Moments:
    """Compute the sums below every parent: of its children, or below its only child.

    Args:
      children: Messages of all children of U parents, in order.
      starts: int64[U], first row of every family.
      is_only: bool[G], whether a child is an only child.
      terms: The queries of the children's geolevel.
    """
    passes = is_only[starts]
    if passes.all():
        return children
    if not passes.any():
        return add_families(children, starts, terms)
    several = children.take(~is_only)
    before: IntArray = np.cumsum(is_only) - is_only
    sums = add_families(several, (starts - before[starts])[~passes], terms)
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
